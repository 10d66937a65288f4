import json

import numpy as np
import polars as pl
import pytest

from siloweave.errors import CapacityError, DataError, SchemaError
from siloweave.tables import Column, Schema, read
from siloweave.tables.features import Block, Features


def frame(**columns):
    return read(pl.DataFrame(columns, strict=False))


def test_bad_rows_are_refused():
    schema = Schema(
        (Column("x", "continuous", low=0.0, high=1.0), Column("c", "categorical", ("a",)))
    )
    fine = frame(x=[0.5, 0.2], c=["a", "a"])
    features = Features.fit(fine, schema, key=0)
    for table, match in (
        (frame(x=[0.5, float("inf")], c=["a", "a"]), "'x': 1 row holds infinite"),
        (frame(x=[0.5, float("nan")], c=["a", "a"]), "'x': 1 row has no value"),
        (frame(x=[0.5, 1.5], c=["a", "a"]), "'x': 1 row is outside its bounds 0.0 to 1.0"),
        (frame(x=[0.5], c=["b"]), "'c': 1 row holds none of its 1 category"),
        (frame(x=[0.5]), "lacks columns of the schema: c"),
        (frame(x=[0.5], c=["a"], y=[1]), "schema lacks columns of the table: y"),
    ):
        with pytest.raises((DataError, SchemaError), match=match):
            features.encode(table, key=0)
        with pytest.raises((DataError, SchemaError), match=match):
            Features.fit(table, schema, key=0)
    assert features.encode(fine.take([]), key=0).shape == (0, features.width)
    with pytest.raises(DataError, match="no rows"):
        Features.fit(fine.take([]), schema, key=0)
    with pytest.raises(SchemaError, match="no declared low and high"):
        Features.fit(fine, Schema((Column("x", "continuous"), *schema.columns[1:])), key=0)
    with pytest.raises(DataError, match="numeric='log'"):
        Features.fit(fine, schema, key=0, numeric="log")


def test_bad_vectors_are_refused():
    schema = Schema((Column("x", "continuous", low=0.0, high=1.0), Column("b", "boolean")))
    features = Features.declared(schema)
    good = np.zeros((4, 3), dtype=np.float32)
    assert features.decode(good, key=0).num_rows == 4
    assert features.decode(good[:0], key=0).num_rows == 0
    assert features.decode(np.full((1, 3), 3e38, dtype=np.float32), key=0).num_rows == 1
    for place, match in (
        ((2, 0), "1 row is .* the number part of column 'x'"),
        ((0, 2), "categorical part of column 'b'"),
    ):
        for wild in (np.nan, np.inf, -np.inf):
            bad = good.copy()
            bad[place] = wild
            with pytest.raises(DataError, match=match):
                features.decode(bad, key=0)
    for bad in (good[:, :2], good[0], good.astype(int)):
        with pytest.raises(DataError, match="values has"):
            features.decode(bad, key=0)


def test_bad_files_are_refused():
    text = Features.declared(Schema((Column("b", "boolean"),))).to_json()
    for broken in ("{", text.replace("siloweave-features", "other"), "[]"):
        with pytest.raises(SchemaError, match="not a features file"):
            Features.from_json(broken)
    newer = json.loads(text) | {"version": 99}
    with pytest.raises(SchemaError, match="version 99"):
        Features.from_json(json.dumps(newer))


def test_too_large_is_refused_before_memory_is_taken(monkeypatch):
    monkeypatch.setattr("siloweave.tables.features._MOST_BYTES", 1000)
    schema = Schema((Column("b", "boolean"),))
    features = Features.declared(schema)
    assert features.blocks == (Block("b", 0, 2, "categorical"),)
    features.encode(frame(b=[True] * 125), key=0)
    with pytest.raises(CapacityError, match="126 rows of 2 numbers"):
        features.encode(frame(b=[True] * 126), key=0)
