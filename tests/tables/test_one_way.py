"""Shares of single columns: every kind of column, what is rare, what is missing, and the file."""

import numpy as np
import pytest

from siloweave.errors import DataError
from siloweave.tables import Column, Schema, Table
from siloweave.tables.features import _CUTS, _MOST_APART, OneWay

ROWS = 1_000
SCHEMA = Schema((
    Column("who", "id"),
    Column("city", "categorical", categories=("a", "b", "c"), missing=True),
    Column("flag", "boolean"),
    Column("gain", "continuous", low=0.0, high=10.0, missing=True),
))  # fmt: skip


def table(seed=0):
    random = np.random.default_rng(seed)
    city = random.choice(["a", "b"], ROWS, p=[0.7, 0.3]).astype(object)
    city[:5] = "c"  # too few for a cell of their own
    gain = np.where(random.random(ROWS) < 0.6, 0.0, random.uniform(0, 10, ROWS))
    return Table.from_columns({
        "who": (np.arange(ROWS), None),
        "city": (city, np.arange(ROWS) >= 990),
        "flag": (random.random(ROWS) < 0.25, None),
        "gain": (gain, np.arange(ROWS) < 100),
    })  # fmt: skip


def test_shares_are_those_of_the_rows_and_codes_find_them():
    law = OneWay.of(table(), SCHEMA)
    assert [one.column.name for one in law.cells] == ["city", "flag", "gain"]
    for codes, shares in zip(law.codes(table()), law.shares, strict=True):
        np.testing.assert_allclose(np.bincount(codes, minlength=len(shares)) / ROWS, shares)
        assert shares.sum() == pytest.approx(1.0)


def test_the_rare_share_a_cell_and_the_missing_have_one():
    city, _, gain = OneWay.of(table(), SCHEMA).cells
    assert set(city.labels) == {"a", "b"}
    assert city.shares[-2:] == pytest.approx((0.005, 0.01))
    assert gain.shares[-2:] == (0.0, 0.1)


def test_a_column_of_nothing_but_rare_categories_is_one_cell():
    names = np.array([f"name {i}" for i in range(30)], dtype=object)
    column = Column("who", "categorical", categories=tuple(names), missing=True)
    one = Table.from_columns({"who": (names, np.arange(30) >= 27)})
    (cells,) = OneWay.of(one, Schema((column,))).cells
    assert (cells.labels, cells.shares) == ((), pytest.approx((0.9, 0.1)))
    assert np.bincount(cells.codes(one)).tolist() == [27, 3]


def test_a_frequent_number_has_a_cell_of_its_own():
    gain = OneWay.of(table(), SCHEMA).cells[2]
    assert gain.ends[0] == 0.0
    assert 0.5 < gain.shares[0] < 0.6  # of all rows, the missing among them


def test_values_that_were_not_seen_are_all_else():
    law = OneWay.of(table().take(np.arange(100, 900)), SCHEMA.select(["city", "gain"]))
    rows = Table.from_columns({"city": (np.array(["c"], object), None), "gain": ([10.0], None)})
    city, gain = law.codes(rows)
    assert city[0] == len(law.cells[0].labels)
    assert gain[0] == len(law.cells[1].ends)


def test_a_file_comes_back_and_another_is_refused():
    law = OneWay.of(table(), SCHEMA)
    assert OneWay.from_json(law.to_json()) == law
    with pytest.raises(DataError, match="no shares of columns"):
        OneWay.from_json("{}")


def skewed(rows=4_000, seed=3, **columns):
    """Numbers with a heavy tail, of two decimals; whole ones; and one that is often 0."""
    random = np.random.default_rng(seed)
    sizes = np.round(np.exp(random.normal(0, 1, rows)) + columns.get("shift", 0.0), 2)
    return Table.from_columns({
        "size": (sizes, np.arange(rows) % 10 == 0),
        "year": (random.integers(1900, 2000, rows) + columns.get("years", 0), None),
        "gain": (np.where(random.random(rows) < 0.6, 0.0, columns.get("gain", 5.0)), None),
    })  # fmt: skip


WIDE = Schema((
    Column("size", "continuous", low=0.0, high=1e3, missing=True),
    Column("year", "integer", low=1800, high=2100),
    Column("gain", "continuous", low=0.0, high=100.0),
))  # fmt: skip


def test_numbers_that_are_far_off_are_moved_in_their_order():
    law = OneWay.of(skewed(), WIDE)
    off = skewed(seed=4, shift=1.0, years=30, gain=50.0)
    found = law.moved(off, off)
    for name in ("size", "year"):
        gone = off.missing(name)
        old, new = off.values(name)[~gone], found.values(name)[~gone]
        np.testing.assert_array_equal(found.missing(name), gone)
        assert (np.diff(new[np.argsort(old, kind="stable")]) >= 0).all()
        inside = (new >= old.min()) & (new <= old.max())
        assert set(new[inside]) <= set(old)
        np.testing.assert_array_equal(np.round(new, 2), new)  # as many decimals beyond these
        assert new.dtype == old.dtype
        want = skewed().values(name)[~gone]
        np.testing.assert_allclose(np.median(new), np.median(want), rtol=0.1)
        assert np.abs(old - new).max() > 0
    np.testing.assert_array_equal(found.values("gain"), off.values("gain"))  # often one value


@pytest.mark.parametrize("drawn", [51, 101, 200])
def test_no_number_that_is_moved_becomes_one_of_a_row(drawn):
    """Wherever cuts of the drawn numbers lie, and also beyond those that were drawn."""
    random = np.random.default_rng(0)
    schema = Schema((Column("x", "continuous", low=-1e3, high=1e3),))
    rows = Table.from_columns({"x": (random.normal(0, 1, 50), None)})
    tail = random.exponential(9, drawn)
    for far in (random.normal(5, 2, drawn), tail, tail - 500, np.full(drawn, 3.0)):
        table = Table.from_columns({"x": (far, None)})
        moved = OneWay.of(rows, schema).moved(table, table).values("x")
        assert not np.isin(moved, rows.values("x")).any()
        assert moved.max() < max(rows.values("x").max(), 3.1)


def test_rows_that_are_drawn_too_narrowly_get_the_whole_range():
    law = OneWay.of(skewed(), WIDE)
    rows = skewed(seed=8)
    year = 1940 + (rows.values("year") - 1900) // 20  # five years in the place of a hundred
    columns = {n: (rows.values(n), rows.missing(n)) for n in rows.names}
    narrow = Table.from_columns({**columns, "year": (year, None)})
    found = law.moved(narrow, narrow).values("year")
    want = skewed().values("year")
    assert np.quantile(found, [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(want, [0.1, 0.5, 0.9]), abs=2
    )
    assert len(set(found)) >= 90  # equal years part


def test_a_frequent_value_becomes_as_frequent_as_it_should():
    law, rows = OneWay.of(skewed(), WIDE), skewed(seed=9)
    gain = np.where(np.arange(4_000) < 3_600, 0.0, 5.0)
    columns = {n: (rows.values(n), rows.missing(n)) for n in rows.names}
    found = law.moved(Table.from_columns({**columns, "gain": (gain, None)}), rows).values("gain")
    assert set(found) == {0.0, 5.0}
    assert (found == 0.0).mean() == pytest.approx((skewed().values("gain") == 0.0).mean(), abs=1e-3)
    assert found[gain == 5.0].min() == 5.0  # in their order


def test_numbers_that_are_near_stay_as_they_are():
    law, near = OneWay.of(skewed(), WIDE), skewed(seed=5)
    found = law.moved(near, near)
    for name in near.names:
        np.testing.assert_array_equal(found.values(name), near.values(name))


def test_whole_numbers_that_are_not_all_float64_stay():
    far = 2**53 + np.arange(1_000)
    schema = Schema((Column("id", "integer", low=0, high=2**60),))
    law = OneWay.of(Table.from_columns({"id": (far, None)}), schema)
    off = Table.from_columns({"id": (far + 10_001, None)})
    np.testing.assert_array_equal(law.moved(off, off).values("id"), far + 10_001)


def test_a_pool_gives_the_numbers_that_rows_lack():
    law, rows = OneWay.of(skewed(), WIDE), skewed(seed=6, years=100)
    found = law.moved(rows, skewed(seed=7))
    assert found.values("year").max() < 2000
    assert found.values("year").min() < 1920


def test_the_number_of_a_cell_is_one_byte():
    """A party that decodes sends the cell of each row so (protocols/columns.py)."""
    assert max(_MOST_APART, _CUTS) + 2 <= 256  # all other values and missing ones have one each
