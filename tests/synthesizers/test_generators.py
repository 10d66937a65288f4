"""The properties that every central generator shares; a new one is tested by being listed."""

import math
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest

from siloweave.algorithms.generators import GENERATORS, load
from siloweave.errors import BudgetError, DataError, InputError, SchemaError
from siloweave.privacy import Budget
from siloweave.privacy.ledger import Ledger
from siloweave.tables import Column, Schema
from tests.synthesizers.cases import SCHEMA, pandas_frame, polars_frame

# Settings with which a fit takes a moment; nothing is learnt in so few steps.
FAST = {
    "gaussian_copula": {},
    "ctgan": {"settings": {"batch": 20, "pac": 2, "epochs": 1, "generator": (8,), "critic": (8,)}},
    "tabddpm": {"settings": {"steps": 3, "batch": 16, "hidden": (8,), "embed": 8, "timesteps": 5}},
}
pytestmark = pytest.mark.parametrize("name", GENERATORS)


def fit(name, data=None, schema=SCHEMA, **named):
    data = pandas_frame() if data is None else data
    return GENERATORS[name](**FAST[name]).fit(data, schema, **named)


@cache
def fitted_once(name):
    """Compiling takes seconds; what only looks at a fit shares it."""
    return fit(name)


def test_samples_keep_the_schema_and_the_types(name):
    frame = pandas_frame()
    sample = fitted_once(name).sample(200)
    assert list(sample.columns) == list(SCHEMA.names)
    assert len(sample) == 200
    pd.testing.assert_series_equal(sample.dtypes, frame.dtypes)
    for column in SCHEMA.columns:
        values = sample[column.name].dropna()
        if not column.missing:
            assert len(values) == 200
        if column.kind == "categorical":
            assert set(values) <= set(column.categories)
        elif column.kind in ("integer", "continuous"):
            assert column.low <= values.min()
            assert values.max() <= column.high


def test_polars_gives_polars(name):
    frame = polars_frame()
    sample = fit(name, frame).sample(50)
    assert isinstance(sample, pl.DataFrame)
    assert sample.schema == frame.schema


def test_the_same_seed_gives_the_same_rows(name):
    one, other = fitted_once(name), fit(name)
    pd.testing.assert_frame_equal(one.sample(40), other.sample(40))
    assert not one.sample(40, seed=0).equals(one.sample(40, seed=1))
    assert len(one.sample()) == len(pandas_frame())


def test_it_is_kept_as_data_and_read_again(name, tmp_path):
    fitted = fitted_once(name)
    fitted.save(tmp_path)
    again = load(tmp_path)
    shown = [one.sample(30).astype(str) for one in (again, fitted)]  # a file has no pandas category
    pd.testing.assert_frame_equal(*shown)
    assert again.info == fitted.info
    assert again.settings == fitted.settings
    assert {p.suffix for p in tmp_path.iterdir()} == {".safetensors", ".json", ".parquet"}
    (tmp_path / "features.json").write_text("{")
    with pytest.raises((DataError, SchemaError)):
        load(tmp_path)


def test_nothing_is_promised_and_the_ledger_says_so(name, tmp_path):
    fitted = fit(name, folder=tmp_path)
    assert not fitted.private
    assert fitted.epsilon == math.inf
    assert fitted.info.guarantee == "none"
    (file,) = tmp_path.glob("parties/*/ledger.jsonl")
    assert len(Ledger.read(file).entries) == 3
    assert "epsilon infinite" in str(fitted.ledger)
    traffic = fitted.cost.parties["curator"]
    assert traffic.bytes_from_party > traffic.bytes_to_party > 0


def test_a_bound_is_refused_before_anything_is_read(name):
    with pytest.raises(BudgetError, match=r"no private training.*epsilon = 1\.0"):
        fit(name, "nowhere.csv", budget=Budget(1.0, 1e-6))
    assert fitted_once(name).budget == Budget(math.inf, 1e-6)


def test_wrong_settings_are_refused_before_anything_is_read(name):
    kind = GENERATORS[name]
    wrong = {"family": "none"} if name == "gaussian_copula" else {"settings": {"wings": 2}}
    with pytest.raises(InputError, match=r"wings|family"):
        kind(**wrong).fit("nowhere.csv", SCHEMA)
    with pytest.raises(InputError, match=r"takes no target|target='wings' is no column"):
        kind(target="wings").fit("nowhere.csv", SCHEMA)


def test_odd_tables(name):
    schema = Schema(
        (
            Column("only", "categorical", categories=("x",)),
            Column("flat", "continuous", low=0.0, high=1.0),
            Column("sex", "categorical", categories=("f", "m")),
        )
    )
    frame = pd.DataFrame({"only": ["x"] * 40, "flat": [0.5] * 40, "sex": ["f", "m"] * 20})
    sample = fit(name, frame, schema).sample(30)
    assert set(sample["only"]) == {"x"}
    assert sample["flat"].between(0, 1).all()
    wide = Schema((Column("c", "categorical", categories=tuple(f"n{i}" for i in range(3000))),))
    names = pd.DataFrame({"c": [f"n{i}" for i in np.random.default_rng(0).integers(0, 3000, 60)]})
    assert len(fit(name, names, wide).sample(10)) == 10


@pytest.mark.parametrize("change", ["drop", "add", "bound", "missing", "empty"])
def test_rows_that_do_not_fit_are_refused(name, change):
    frame = pandas_frame()
    if change == "drop":
        frame = frame.drop(columns="age")
    elif change == "add":
        frame["extra"] = 1
    elif change == "bound":
        frame.loc[0, "age"] = 17
    elif change == "missing":
        frame["age"] = frame["age"].astype("Int64")
        frame.loc[0, "age"] = None
    else:
        frame = frame[:0]
    with pytest.raises(InputError):
        fit(name, frame)
