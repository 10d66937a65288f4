"""What every synthesizer promises its user, a function for each promise.

The test files of this folder say how a family is fitted; what has to hold stands here, once.
"""

import json

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.tables import Column, Schema
from tests.synthesizers.cases import SCHEMA, pandas_frame

STORED = {".safetensors", ".json", ".parquet"}  # data, never programs
_FAULTS = {
    "drop": lambda frame: frame.drop(columns="age"),
    "add": lambda frame: frame.assign(extra=1),
    "bound": lambda frame: frame.assign(age=frame["age"].where(frame.index > 0, 17)),
    "missing": lambda frame: frame.assign(age=frame["age"].astype("Int64").where(frame.index > 0)),
    "unseen": lambda frame: frame.assign(sex=pd.Series(["x"] * len(frame), dtype="str")),
    "empty": lambda frame: frame[:0],
}
# What the error names, whoever reads the rows.
NAMED = {"drop": "age", "add": "extra", "bound": "'age'", "missing": "'age'", "unseen": "'sex'",
         "empty": "no rows"}  # fmt: skip
every_fault = pytest.mark.parametrize("fault", _FAULTS)
# Types of the usual schema's columns in pandas, as drawn under a guarantee, whatever the frame was.
BY_SCHEMA = pd.DataFrame({
    "sex": pd.Series(["f"]), "town": pd.Series(["Ulm"]), "age": [18],
    "visits": pd.array([0], dtype="Int64"), "pay": [0.0], "member": [True],
    "seen": np.array(["2020-01-01"], dtype="datetime64[us]"),
}).dtypes  # fmt: skip


def spoilt(fault):
    """The usual frame with one thing in it that the schema does not allow."""
    return _FAULTS[fault](pandas_frame())


def check_like_the_frame(sample, rows, frame=None, schema=SCHEMA, dtypes=None):
    """Columns, types (the frame's if not given), categories, bounds, and gaps where declared."""
    frame = pandas_frame() if frame is None else frame
    assert len(sample) == rows
    assert list(sample.columns) == list(schema.names)
    pd.testing.assert_series_equal(sample.dtypes, frame.dtypes if dtypes is None else dtypes)
    for column in schema.columns:
        values = sample[column.name].dropna()
        assert column.missing or len(values) == rows, column.name
        if column.kind == "categorical":
            assert set(values) <= set(column.categories), column.name
        elif column.kind in ("integer", "continuous"):
            assert values.between(column.low, column.high).all(), column.name
        elif column.kind == "datetime":
            low, high = pd.Timestamp(column.low), pd.Timestamp(column.high)
            assert values.between(low, high).all(), column.name


def check_seeds(one, twin):
    """Two fits of one seed draw the same rows; another seed, or none, draws others."""
    pd.testing.assert_frame_equal(one.sample(40, seed=0), twin.sample(40, seed=0))
    assert not one.sample(40, seed=0).equals(one.sample(40, seed=1))
    assert not one.sample(40).equals(one.sample(40))


def check_kept(fitted, folder, load=sw.load):
    """Stored as data, read again: the same rows, and the same words about it."""
    fitted.save(folder)
    again = load(folder)
    shown = [
        one.sample(40, seed=0).astype(str) for one in (again, fitted)
    ]  # a file has no pandas category
    pd.testing.assert_frame_equal(*shown)
    for fact in ("info", "ledgers", "epsilon"):
        assert getattr(again, fact) == getattr(fitted, fact), fact
    settings = [json.dumps(one.settings, sort_keys=True) for one in (again, fitted)]
    assert settings[0] == settings[1]  # in a file a tuple is a list
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == STORED


def crowded(rows, names, flags=0):
    """A table of one category, a constant, a column of very many values, and binary columns."""
    rng = np.random.default_rng(0)
    values, binary = [f"n{i}" for i in range(names)], [f"flag {i}" for i in range(flags)]
    schema = Schema(
        (
            Column("only", "categorical", categories=("x",)),
            Column("flat", "continuous", low=0.0, high=1.0),
            Column("wide", "categorical", categories=tuple(values)),
            *(Column(flag, "boolean") for flag in binary),
        )
    ).with_fallbacks()
    columns = {"only": ["x"] * rows, "flat": [0.5] * rows, "wide": rng.choice(values, rows)}
    return schema, pd.DataFrame({**columns, **{f: rng.random(rows) < 0.5 for f in binary}})


def check_crowded(sample, schema, rows=40):
    """What was drawn by a fit to `crowded` is within its schema."""
    assert len(sample) == rows
    assert list(sample.columns) == list(schema.names)
    assert set(sample["only"]) == {"x"}
    assert sample["flat"].between(0, 1).all()
    assert set(sample["wide"]) <= set(schema["wide"].categories)
    assert all(sample[flag].isin([True, False]).all() for flag in schema.names[3:])
