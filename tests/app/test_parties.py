"""Files of parties that disagree, rows that several hold, and rows that do not fit."""

import math

import numpy as np
import pytest

from siloweave.app.parties import costs, differences, misfits, overlaps
from siloweave.privacy.budget import Budget
from siloweave.report import words
from siloweave.tables import Column, Schema, Table
from siloweave.tables.split import split_rows


def column(*values):
    return np.array(values, dtype=object), None


def people(seed, rows=300, **changed):
    """A table of people, whose columns `changed` replaces."""
    rng = np.random.default_rng(seed)
    columns = {
        "sex": column(*rng.choice(["female", "male"], rows)),
        "weight": (np.round(rng.normal(70, 10, rows), 1), None),
        "age": (rng.integers(18, 90, rows), None),
        "risk": (
            rng.choice(np.array(["low", "high"], dtype=object), rows),
            rng.random(rows) < 0.05,
        ),
        "note": column(*(f"{seed} {n} {rng.integers(10**6)}" for n in range(rows))),
    }
    return Table.from_columns({**columns, **changed})


def joined(*tables):
    return Table.from_columns(
        {
            name: (
                np.concatenate([one.values(name) for one in tables]),
                np.concatenate([one.missing(name) for one in tables]),
            )
            for name in tables[0].names
        }
    )


def test_files_that_agree_are_not_named():
    tables = {f"party {seed}": people(seed) for seed in range(4)}
    assert differences(tables) == []
    assert overlaps(tables) == []
    assert differences({"one": people(0)}) == []
    assert overlaps({"one": people(0)}) == []
    assert overlaps({}) == []


def test_parties_of_one_real_table_are_not_named():
    from siloweave.datasets import adult

    parts = split_rows(adult().take(range(12_000)), 4, by="iid", seed=0)
    tables = {f"party {number}": part for number, part in enumerate(parts)}
    assert differences(tables) == []
    assert overlaps(tables) == []  # Adult has rows twice


@pytest.mark.parametrize(
    ("changed", "what", "said"),
    [
        ({"sex": column(*["M", "F"] * 150)}, "categories", "south has F, M"),
        ({"sex": (np.arange(300) % 2, None)}, "categories", "female, male; south has 0, 1"),
        ({"sex": column(*["Male", "female"] * 150)}, "spelling", "south has Male"),
        ({"sex": column(*["male ", "Fe-male"] * 150)}, "categories", "south has Fe-male, male "),
        ({"sex": column(*["male"] * 300)}, "categories", "south has no female"),
        (
            {"weight": (np.random.default_rng(9).normal(70_000, 9_000, 300).round(), None)},
            "size",
            "south has about 1,000 times as much as north",
        ),
        (
            {"weight": (np.random.default_rng(9).normal(154, 5, 300).round(1), None)},
            "size",
            "south has about 2.2 times as much as north",
        ),
        (
            {"weight": (np.random.default_rng(9).normal(70, 10, 300).round(), None)},
            "decimals",
            "south has 0 decimals",
        ),
        (
            {"age": column(*(f"{n % 60 + 20} years" for n in range(300)))},
            "kind",
            "north has numbers; south has",
        ),
        (
            {"risk": (np.array(["low", "high"] * 150, dtype=object), np.arange(300) % 3 == 0)},
            "missing values",
            "south has 33.3% missing",
        ),
    ],
)
def test_what_parties_hold_differently_is_named(changed, what, said):
    found = differences({"north": people(1), "south": people(2, **changed)})
    name = next(iter(changed))
    assert {one.column for one in found} == {name}
    assert what in {one.what for one in found}
    assert said in " ".join(map(str, found))


def test_marks_that_mean_something_are_no_spelling():
    values = ["A+", "A-", "<=5", ">5", "1-2", "1.2"] * 50
    tables = {p: Table.from_columns({"x": column(*values)}) for p in ("north", "south")}
    assert differences(tables) == []


def test_few_rows_do_not_make_a_difference():
    small = {"sex": column(*["male"] * 8)}
    assert differences({"north": people(1), "south": people(2, rows=8, **small)}) == []


def test_one_file_given_twice_is_named_in_whatever_order():
    rows = people(3)
    mixed = rows.take(np.random.default_rng(0).permutation(rows.num_rows))
    (found,) = overlaps({"north": rows, "south": people(4), "west": mixed})
    assert (found.parties, found.count, found.same) == (("north", "west"), 300, True)
    few = Table.from_columns({"sex": column(*["f", "m", "f"] * 9)})
    assert overlaps({"a": few, "b": few})[0].same


def test_rows_that_are_at_two_parties_are_counted():
    shared = people(7, rows=40)
    found = overlaps({"north": joined(people(5), shared), "south": joined(shared, people(6))})
    assert [(one.parties, one.count, one.same) for one in found] == [
        (("north", "south"), 40, False)
    ]
    assert "more than chance would give. A person with a row at each of" in found[0].said()


def test_shared_rows_of_few_columns_are_told_from_chance():
    """199 of 600 rows, of which chance alone would give about as many."""
    rng = np.random.default_rng(0)

    def rows(count):
        values = {
            n: (rng.integers(0, most, count), None) for n, most in (("a", 20), ("b", 15), ("c", 6))
        }
        return Table.from_columns(values)

    shared, own = rows(199), [rows(401), rows(401)]
    (found,) = overlaps({"north": joined(shared, own[0]), "south": joined(own[1], shared)})
    assert 199 <= found.count <= 500
    assert overlaps({"north": joined(rows(199), own[0]), "south": joined(own[1], shared)}) == []


@pytest.mark.parametrize("most", [2, 8, 40, 300])
def test_parties_of_other_people_share_no_more_than_chance(most):
    """Whatever the parties' people are like: values are skewed, and another way at each."""
    rng = np.random.default_rng(most)
    for _ in range(20):
        tables = {}
        for party, rows in (("north", 900), ("south", 300)):
            chances = rng.dirichlet(np.full(most, 0.5))
            values = {n: (rng.choice(most, rows, p=chances), None) for n in "ab"}
            tables[party] = Table.from_columns(values)
        assert overlaps(tables) == []


def test_coarse_rows_are_alike_by_chance():
    rng = np.random.default_rng(0)
    tables = {
        party: Table.from_columns({n: (rng.integers(0, 3, 500), None) for n in "abcd"})
        for party in ("north", "south")
    }
    assert overlaps(tables) == []


def test_ids_in_common_are_named_and_running_numbers_are_not():
    def numbered(seed, ids):
        return Table.from_columns({"id": (ids, None), "x": (people(seed).values("weight"), None)})

    rng = np.random.default_rng(0)
    ids = [rng.choice(10**9, 300, replace=False) for _ in range(2)]
    ids[1][:50] = ids[0][:50]
    (found,) = overlaps({"north": numbered(1, ids[0]), "south": numbered(2, ids[1])})
    assert (found.what, found.count) == ("id", 50)
    assert found.said(Budget(1.0, 1e-6)).startswith("50 values of id are at north and south: are")
    running = {"north": numbered(1, np.arange(1, 301)), "south": numbered(2, np.arange(1, 301))}
    assert overlaps(running) == []


def test_what_a_person_with_several_rows_pays():
    """Group privacy, by its definition: k rows change a probability k times over."""
    epsilon, delta = words.of_rows(0.5, 1e-6, 3)
    assert epsilon == 1.5
    assert delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1.0)))
    assert words.of_rows(0.0, 1e-6, 2) == (0.0, 2e-6)
    assert words.of_rows(1.0, 1e-6, 1) == (1.0, 1e-6)
    assert words.of_rows(500.0, 1e-6, 2) == (1000.0, 1.0)
    assert "has ε = 2 at δ = 3.72e-6, not 1" in costs(2, Budget(1.0, 1e-6))
    assert "3 times the ε" in costs(3, None)


def test_rows_that_do_not_fit_are_shown_with_their_place():
    schema = Schema(
        (
            Column("age", "integer", low=0, high=99),
            Column("sex", "categorical", categories=("f", "m")),
            Column("name", "text"),
        )
    ).with_fallbacks()
    ages = np.arange(60)
    ages[[3, 17, 59]] = 120
    sexes = column(*["f", "m"] * 29, "x", "f")
    table = Table.from_columns({"age": (ages, None), "sex": sexes, "name": column(*map(str, ages))})
    ages_odd, sex_odd = misfits("north", table, schema, 8)
    assert ages_odd.startswith(
        "north, row 4 (120), row 18 (120), row 60 (120): column 'age': 3 rows"
    )
    assert "widen low and high" in ages_odd
    assert sex_odd.startswith("north, row 59 ('x'): column 'sex': 1 row ")
    many = Table.from_columns({"age": (ages + 500, None)})
    odd, other = misfits("north", many, schema.select(["age"]), 8)
    assert odd.count(", row ") == 5
    assert "is it the schema of another table?" in other
    assert misfits("north", table.take([0, 1]), schema, 8) == []
