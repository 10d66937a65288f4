"""Rows that a generator draws have the ids and types that the schema says."""

import numpy as np
import pytest

import siloweave as sw
from siloweave.tables.features import Features


def test_ids_run_from_1_in_raked_rows_too():
    schema = sw.Schema((sw.Column("who", "id"), sw.Column("x", "integer", low=0, high=9)))
    rows = {"who": (np.arange(900, 1_300), None), "x": (np.arange(400) % 10, None)}
    fitted = sw.GaussianCopula().fit(sw.Table.from_columns(rows), schema)
    for count in (20, 300):
        assert fitted.sample_table(count).values("who").tolist() == list(range(1, count + 1))


def test_given_rows_list_the_declared_categories_and_not_those_of_the_rows():
    pd = pytest.importorskip("pandas")
    schema = sw.Schema((
        sw.Column("c", "categorical", categories=("a", "b", "z")),
        sw.Column("x", "integer", low=0, high=9),
    ))  # fmt: skip
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b"] * 100), "x": np.arange(200) % 10})
    fitted = sw.GaussianCopula().fit(frame, schema)
    for drawn in (fitted.sample(120), fitted.sample(5, given={"x": 3})):
        assert list(drawn["c"].cat.categories) == ["a", "b", "z"]


def test_numbers_that_are_all_missing_are_not_taken_for_whole_ones():
    schema = sw.Schema((
        sw.Column("x", "continuous", low=-3.0, high=3.0, missing=True),
        sw.Column("y", "integer", low=0, high=9),
    ))  # fmt: skip
    rows = {"x": (np.zeros(60), np.ones(60, dtype=bool)), "y": (np.arange(60) % 10, None)}
    features = Features.fit(sw.Table.from_columns(rows), schema, key=0)
    assert (features.plans[0].column, features.plans[0].grain) == ("x", 0.0)
