"""Every kind of column goes the whole way: schema, cells, a fit, a sample, and words for people.

A new kind fails here until it has an example, and then where some place does not know it.
"""

from typing import get_args

import numpy as np
import pytest

import siloweave as sw
from siloweave.app import review, review_form, sample
from siloweave.core import conditional
from siloweave.tables.cells import placed_cells
from siloweave.tables.codes import Encoder
from siloweave.tables.column import KINDS, Kind
from siloweave.tables.schema import describe, outline

ROWS = 60
EXAMPLES = {
    "categorical": (sw.Column("x", "categorical", categories=("a", "b", "c")), ["a", "b", "c"]),
    "integer": (sw.Column("x", "integer", low=0, high=9), [0, 4, 9]),
    "continuous": (sw.Column("x", "continuous", low=0, high=1, decimals=2), [0.0, 0.25, 1.0]),
    "boolean": (sw.Column("x", "boolean"), [False, True, True]),
    "datetime": (
        sw.Column("x", "datetime", low="2020-01-01", high="2020-12-31"),
        ["2020-01-01", "2020-05-06", "2020-12-31"],
    ),
    "id": (sw.Column("x", "id"), ["A-1", "A-2", "A-3"]),
    "text": (sw.Column("x", "text"), ["one word", "two words", "three"]),
}
"""By kind, a column of it and three values that it has."""
MODELLED = tuple(kind for kind, (column, _) in EXAMPLES.items() if column.modelled)


def column_of(kind):
    column, _ = EXAMPLES[kind]
    return sw.Schema((column,)).with_fallbacks()["x"]


def table_of(kind):
    _, values = EXAMPLES[kind]
    repeated = np.resize(np.array(values), ROWS)
    return sw.Table.from_columns(
        {"x": (repeated, None), "other": (np.resize(np.array(["m", "n"]), ROWS), None)}
    )


def schema_of(kind):
    other = sw.Column("other", "categorical", categories=("m", "n"))
    return sw.Schema((EXAMPLES[kind][0], other)).with_fallbacks()


def test_every_kind_has_an_example():
    assert EXAMPLES.keys() == set(KINDS) == set(get_args(Kind)), "add an example of the new kind"


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_comes_back_from_json(kind):
    schema = schema_of(kind)
    assert sw.Schema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize("kind", MODELLED)
def test_cells_have_places_and_codes(kind):
    column = column_of(kind)
    placed = placed_cells(column, table_of(kind))
    assert not placed.missing.any()
    assert not placed.moved.any()
    codes = Encoder(schema_of(kind), 4).encode(table_of(kind)).columns
    assert len(np.unique(codes[0])) >= 2


@pytest.mark.parametrize("kind", MODELLED)
def test_a_column_is_learnt_and_drawn_within_its_values(kind):
    budget = sw.Budget(epsilon=20.0, delta=1e-6)
    schema = schema_of(kind)
    fitted = sw.AIM(bins=4, workload=[("x", "other")]).fit(table_of(kind), schema, budget=budget)
    drawn = sw.read(fitted.sample(30, seed=0))
    placed = placed_cells(schema["x"], drawn)
    assert not placed.moved.any()
    _, values = EXAMPLES[kind]
    # Not the first value, which may be 0 and so the same as a float and as a whole number.
    given = fitted.sample(given={"x": values[1]}, num_rows=5, seed=0)
    same = placed_cells(schema["x"], sw.read(given))
    wanted = placed_cells(schema["x"], table_of(kind).take([1]))
    assert (same.values == wanted.values[0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_its_facts_are_found_in_rows(kind):
    described = describe(table_of(kind), "x", kind=kind)
    assert described.kind == kind
    if described.is_binned:
        assert described.low is not None
        assert described.high is not None


@pytest.mark.parametrize("kind", MODELLED)
def test_drawn_numbers_have_the_type_of_the_rows(kind):
    if column_of(kind).is_number:
        table = table_of(kind)
        assert outline(table, schema_of(kind)).kind("x") == table.kind("x")


@pytest.mark.parametrize("kind", KINDS)
def test_people_are_told_of_every_kind_in_words(kind):
    column, _ = EXAMPLES[kind]
    assert kind in review._KIND_WORDS
    assert (kind in review_form._MODELLED) == column.modelled
    if column.is_binned:
        assert kind in sample._READERS
        assert kind in sample._SPELLINGS
        assert kind in conditional._STAND_INS
