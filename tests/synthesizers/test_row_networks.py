"""The properties that every network over parties with different rows shares."""

import math
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest

import siloweave as sw
from siloweave.algorithms.row_methods import ROW_METHODS
from siloweave.errors import InputError, RosterError
from siloweave.methods import listed, method_of, unbounded
from siloweave.privacy import Budget, Relation
from siloweave.tables import Column, Schema
from tests.synthesizers.cases import SCHEMA, pandas_frame, polars_frame

_GAN = {"batch": 20, "pac": 2, "generator": [8], "critic": [8]}
_DIFFUSION = {"batch": 16, "hidden": [8], "embed": 8, "timesteps": 5}
FAST = {
    "fed_tgan": _GAN,
    "md_tgan": _GAN,
    "fed_tabddpm": _DIFFUSION,
    "fed_point_diff": {"diffusion": _DIFFUSION},
}
SOONER = {"fed_tabddpm"}  # CTGAN's rounds are tested in tests/algorithms/test_fed_tgan.py
every = pytest.mark.parametrize(
    "name", [n if n in SOONER else pytest.param(n, marks=pytest.mark.slow) for n in ROW_METHODS]
)


def made(name, target=None):
    return ROW_METHODS[name](target=target, settings=FAST[name], rounds=1)


def parts_of(frame):
    return [frame[:20], frame[20:40], frame[40:]]


def fit(name, data=None, schema=SCHEMA, **named):
    target = "member" if ROW_METHODS[name].takes_target and schema is SCHEMA else None
    return made(name, target).fit(
        parts_of(pandas_frame()) if data is None else data, schema, **named
    )


@cache
def fitted_once(name):
    return fit(name)


@every
def test_samples_keep_the_schema_the_types_and_gaps(name):
    sample = fitted_once(name).sample(60)
    assert list(sample.columns) == list(SCHEMA.names)
    pd.testing.assert_series_equal(sample.dtypes, pandas_frame().dtypes)
    for column in SCHEMA.columns:
        values = sample[column.name].dropna()
        assert column.missing or len(values) == 60
        if column.kind == "categorical":
            assert set(values) <= set(column.categories)
        elif column.kind in ("integer", "continuous"):
            assert column.low <= values.min()
            assert values.max() <= column.high


@every
def test_the_same_seed_gives_the_same_rows_and_a_file_too(name, tmp_path):
    one, other = fitted_once(name), fit(name)
    pd.testing.assert_frame_equal(one.sample(40), other.sample(40))
    assert not one.sample(40, seed=0).equals(one.sample(40, seed=1))
    assert len(one.sample()) == one.num_rows == 60
    one.save(tmp_path)
    again = sw.load(tmp_path)
    shown = [f.sample(40).astype(str) for f in (again, one)]
    pd.testing.assert_frame_equal(*shown)
    assert (again.info, again.settings, again.ledgers) == (one.info, one.settings, one.ledgers)


@every
def test_polars_gives_polars(name):
    assert isinstance(fit(name, parts_of(polars_frame())).sample(50), pl.DataFrame)


@every
def test_nothing_is_promised(name):
    fitted = fitted_once(name)
    assert fitted.epsilon == math.inf
    assert not fitted.private
    assert set(fitted.epsilons.values()) == {math.inf}
    with pytest.raises(NotImplementedError, match=r"no private training yet.*epsilon = 1\.0"):
        fit(name, "nowhere.csv", budget=Budget(1.0, 1e-6, "row", Relation.ADD_REMOVE))
    assert listed()[name].guarantee == "none"
    assert listed()[name].split == "rows"
    assert unbounded(method_of({"name": name, "rounds": 3}))


@every
def test_what_is_given_is_in_every_row(name):
    sample = fitted_once(name).sample(40, given={"member": True, "sex": None})
    assert sample["member"].all()
    assert sample["sex"].isna().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ROW_METHODS)
def test_one_category_a_wide_column_and_a_party_of_one_row(name):
    names = [f"n{i}" for i in range(300)]
    schema = Schema(
        (
            Column("only", "categorical", categories=("x",)),
            Column("wide", "categorical", categories=tuple(names)),
            Column("flat", "continuous", low=0.0, high=1.0),
        )
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"only": ["x"] * 41, "wide": rng.choice(names, 41), "flat": [0.5] * 41})
    sample = fit(name, [frame[:40], frame[40:]], schema).sample(40)
    assert set(sample["only"]) == {"x"}
    assert set(sample["wide"]) <= set(names)
    assert sample["flat"].between(0, 1).all()


@every
@pytest.mark.parametrize("change", ["drop", "add", "bound", "unseen", "empty"])
def test_rows_that_do_not_fit_are_refused_by_name(name, change):
    frame = pandas_frame()
    if change == "drop":
        frame = frame.drop(columns="age")
    elif change == "add":
        frame["extra"] = 1
    elif change == "bound":
        frame.loc[0, "age"] = 17
    elif change == "unseen":
        frame["sex"] = pd.Series(["x"] * len(frame), dtype="str")
    else:
        frame = frame[:0]
    with pytest.raises(InputError, match="party 'b'"):
        fit(name, {"a": pandas_frame(), "b": frame})
    with pytest.raises(RosterError, match="one table per party"):
        fit(name, pandas_frame())
