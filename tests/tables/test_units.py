"""Which rows of each id take part: a function of that id's rows and the key alone."""

from collections import Counter
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from siloweave.errors import SchemaError
from siloweave.tables import Column, Schema, read
from siloweave.tables import units as units_module
from siloweave.tables.units import (
    bounded_rows,
    check_unit,
    rows_by_unit,
    rows_kept,
    shares_kept,
)

KEY = bytes(range(32))
WHO = Column("who", "id")


def table(ids, **more):
    return read(pl.DataFrame({"who": ids, "row": range(len(ids))} | more))


def random_ids(seed, number=60, people=12):
    return np.random.default_rng(seed).integers(0, people, number).tolist()


@pytest.mark.parametrize("most", [1, 2, 5, 100])
def test_no_id_has_more_rows_and_none_has_fewer_than_it_may(most):
    ids = random_ids(0)
    kept = bounded_rows(table(ids), WHO, most, KEY)
    held, taken = Counter(ids), Counter(kept.values("who").tolist())
    assert taken == {one: min(count, most) for one, count in held.items()}
    assert kept.values("row").tolist() == sorted(kept.values("row").tolist())
    again = bounded_rows(kept, WHO, most, KEY)
    assert again.values("row").tolist() == kept.values("row").tolist()


def rows_of_others(ids, patient, most, key, texts=None):
    kept = rows_kept(ids, most, key, texts)
    rows = zip(ids, kept.tolist(), strict=True)
    return [keep for one, keep in rows if one != patient], sum(
        keep for one, keep in zip(ids, kept.tolist(), strict=True) if one == patient
    )


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("most", [1, 3])
def test_one_person_more_changes_no_other_persons_rows_for_any_key(most, ordered):
    """The guarantee: her rows stand anywhere, hold anything, and are any number."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        ids = [str(one) for one in random_ids(seed)]
        values = [str(one) for one in rng.integers(0, 4, len(ids))]
        both = list(zip(ids, values, strict=True))
        more = list(both)
        for _ in range(int(rng.integers(1, 100))):
            more.insert(int(rng.integers(0, len(more) + 1)), ("ana", str(rng.integers(0, 4))))
        key = rng.bytes(32)
        texts = (None, None) if ordered else ([v for _, v in both], [v for _, v in more])
        before, none = rows_of_others(ids, "ana", most, key, texts[0])
        after, hers = rows_of_others([one for one, _ in more], "ana", most, key, texts[1])
        assert before == after
        assert none == 0 < hers <= most


def by_place_in_table(ids, secret):
    """A mutant: how many rows are in the table decides which of them take part."""
    words = np.random.default_rng(len(ids)).integers(0, 2**63, len(ids))
    return words.astype(np.uint64)


def test_a_choice_that_depends_on_other_people_is_caught(monkeypatch):
    monkeypatch.setattr(units_module, "_by_place", by_place_in_table)
    with pytest.raises(AssertionError):
        test_one_person_more_changes_no_other_persons_rows_for_any_key(1, True)


def test_every_row_of_a_person_is_as_likely_to_take_part():
    """Two of six rows, under 3,000 keys: each takes part in a third, within four errors."""
    ids, taken = ["ana"] * 6, np.zeros(6)
    for seed in range(3000):
        taken += rows_kept(ids, 2, seed.to_bytes(32, "big"))
    assert np.abs(taken / 3000 - 1 / 3).max() < 4 * (2 / 9 / 3000) ** 0.5
    texts, taken = [str(i) for i in range(6)], np.zeros(6)
    for seed in range(3000):
        taken += rows_kept(ids, 2, seed.to_bytes(32, "big"), texts)
    assert np.abs(taken / 3000 - 1 / 3).max() < 4 * (2 / 9 / 3000) ** 0.5


def test_without_an_order_the_same_contents_take_part_however_rows_come():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "who": rng.integers(0, 6, 80),
            "x": [[0.5, 1.5, None][i] for i in rng.integers(0, 3, 80)],
            "t": [["a", "b", None][i] for i in rng.integers(0, 3, 80)],
        }
    )

    def contents(rows):
        return sorted(rows.to_native().rows(), key=str)

    first = contents(bounded_rows(read(frame), WHO, 3, KEY, ordered=False))
    for seed in range(5):
        mixed = frame.sample(fraction=1, shuffle=True, seed=seed)
        assert contents(bounded_rows(read(mixed), WHO, 3, KEY, ordered=False)) == first
    other = bounded_rows(read(frame), WHO, 3, bytes(32), ordered=False)
    assert contents(other) != first


@pytest.mark.parametrize(
    "ids",
    [
        [7, 7, 8],
        ["7", "7", "8"],
        [7.0, 7.0, 8.0],
        ["2020-01-31", "2020-01-31 00:00:00", "2020-02-01"],
        [datetime(2020, 1, 31), datetime(2020, 1, 31), datetime(2020, 2, 1)],  # noqa: DTZ001
        ["caf\u00e9", "cafe\u0301", "cafe"],
    ],
    ids=str,
)
def test_ids_are_compared_as_ids_are(ids):
    assert bounded_rows(table(ids), WHO, 1, KEY).num_rows == 2


def test_the_same_ids_of_other_types_keep_the_same_rows():
    ids = random_ids(1)
    kept = [
        bounded_rows(table([kind(one) for one in ids]), WHO, 2, KEY).values("row").tolist()
        for kind in (int, str, float)
    ]
    assert kept[0] == kept[1] == kept[2]


def test_rows_without_an_id_are_people_of_their_own_or_refused():
    ids = ["ana", None, "ana", None, "", "?", None]
    with pytest.raises(SchemaError, match="4 rows have no id in 'who'"):
        rows_by_unit(table(ids), WHO)
    declared = Column("who", "id", missing=True, missing_values=("?",))
    found = rows_by_unit(table(ids), declared)
    assert found == ["ana", None, "ana", None, None, None, None]
    kept = bounded_rows(table(ids), declared, 1, KEY)
    assert kept.num_rows == 6
    with pytest.raises(SchemaError, match="1 row has no id"):
        rows_by_unit(table([1, None]), WHO)


def test_what_names_nobody_is_refused():
    with pytest.raises(SchemaError, match="lacks the id column 'who'"):
        bounded_rows(read(pl.DataFrame({"x": [1]})), WHO, 1, KEY)
    schema = Schema((WHO, Column("age", "integer", low=0, high=99), Column("card", "id")))
    check_unit("card", schema)
    with pytest.raises(SchemaError, match=r"'age' is a column of kind integer.*'who', 'card'"):
        check_unit("age", schema)
    with pytest.raises(SchemaError, match="'patient' is no column of the schema"):
        check_unit("patient", schema)
    with pytest.raises(SchemaError, match="the schema has no id column"):
        check_unit("age", schema.select(["age"]))


@pytest.mark.parametrize("odd", ["x", "", "NaN", "true", "1.5", "1e3", "007", "é", "2020-01-31"])
def test_one_row_more_changes_no_other_rows_id_in_a_file(odd, tmp_path):
    """Whose a row is follows from its own cell, whatever else makes the column text or numbers."""
    written = ["1", "1.0", "001", "1e3", "1000", "NaN", "true", "True", "2020-01-31 00:00"]
    declared = Column("who", "id", missing=True)
    for ids in ([1, 2, 2], written, written[:2], written[5:6], written[6:8], written[8:]):
        file = tmp_path / "rows.csv"
        found = []
        for more in ([], [odd]):
            lines = [f"{one},0" for one in [*ids, *more]]
            file.write_text("\n".join(["who,x", *lines, ""]))
            found.append(rows_by_unit(read(file), declared)[: len(ids)])
        assert found[0] == found[1]


def test_no_rows_and_one_are_bounded_too():
    assert bounded_rows(table(pl.Series([], dtype=pl.String)), WHO, 3, KEY).num_rows == 0
    assert bounded_rows(table(["ana"]), WHO, 3, KEY).num_rows == 1
    assert rows_kept([], 1, KEY, []).tolist() == []


def test_what_bounds_keep():
    ids = ["a"] * 8 + ["b"] * 2 + [None] * 2
    one, two, eight = shares_kept(ids, [1, 2, 8])
    assert (one.rows, one.whole) == (4 / 12, 2 / 4)
    assert (two.rows, two.whole) == (6 / 12, 3 / 4)
    assert (eight.rows, eight.whole) == (1.0, 1.0)
    assert shares_kept([], [1]) == []


def test_another_rows_type_does_not_decide_which_rows_take_part():
    """In a database, where contents choose: whole numbers beside one text are texts."""
    whole = [n % 7 for n in range(40)]
    ids = [f"p{n % 4}" for n in range(40)]
    kept = []
    for others in ([], [("zoe", "?")], [("zoe", 2.5)]):
        who = [*ids, *(one for one, _ in others)]
        cells = [*whole, *(cell for _, cell in others)]
        table = read(pd.DataFrame({"who": who, "x": pd.Series(cells, dtype=object)}))
        rows = bounded_rows(table, WHO, 3, KEY, ordered=False)
        mine = rows.take(np.flatnonzero(rows.values("who") != "zoe"))
        kept.append(sorted(zip(mine.values("who"), mine.labels("x", str).to_list(), strict=True)))
    assert kept[0] == kept[1] == kept[2]
    assert len(kept[0]) == 12
