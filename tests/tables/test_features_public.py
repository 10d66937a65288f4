"""Features without rows: from counts over declared bins, and from public facts alone."""

import numpy as np
import polars as pl
import pytest

from siloweave.datasets import adult, adult_schema
from siloweave.errors import DataError, SchemaError
from siloweave.tables import Column, Encoder, Schema, Table, read
from siloweave.tables.features import Features

NUMERIC = ("quantile", "modes", "standard")
SCHEMA = Schema(
    (
        Column("c", "categorical", ("a", "b"), missing=True),
        Column("i", "integer", low=0, high=999, missing=True),
        Column("k", "integer", low=0, high=40),
        Column("x", "continuous", low=-5.0, high=5.0),
        Column("z", "continuous", low=1.0, high=1.0),
        Column("d", "datetime", low="2020-01-01", high="2022-12-31"),
    )
)


def rows(count=500, seed=0):
    random = np.random.default_rng(seed)
    days = np.datetime64("2020-01-01", "us") + random.integers(0, 1096, count).astype("m8[D]")
    return read(
        pl.DataFrame(
            {
                "c": random.choice(["a", "b"], count),
                "i": [None if v % 9 == 0 else int(v) for v in random.integers(0, 1000, count)],
                "k": np.where(random.random(count) < 0.6, 3, random.integers(0, 41, count)),
                "x": random.random(count) * 4 - 1,
                "z": np.ones(count),
                "d": days,
            }
        )
    )


def counts_of(encoder, table):
    codes = encoder.encode(table)
    sizes = encoder.domain.sizes
    return {
        name: np.bincount(column, minlength=size).astype(float)
        for name, column, size in zip(encoder.domain.names, codes.columns, sizes, strict=True)
    }


def same(table, back, tolerance=1e-5):
    for name in table.names:
        gone = table.missing(name)
        assert (gone == back.missing(name)).all()
        was, now = table.values(name)[~gone], back.values(name)[~gone]
        assert np.allclose(was, now, atol=tolerance) if name == "x" else (was == now).all(), name


def test_declared_features_bring_rows_back():
    table, features = rows(), Features.declared(SCHEMA)
    assert Features.from_json(features.to_json()) == features
    same(table, features.decode(features.encode(table, key=0), key=0))
    sizes = {}
    for block in features.blocks:
        sizes.setdefault(block.column, []).append(block.size)
    assert sizes == {"c": [3], "i": [1, 2], "k": [1], "x": [1], "z": [1], "d": [1]}


def test_declared_numbers_span_minus_1_to_1():
    schema = Schema(
        (
            Column("i", "integer", low=0, high=30),
            Column("x", "continuous", low=-4.0, high=0.0),
        )
    )
    ends = read(pl.DataFrame({"i": [0, 15, 30], "x": [-4.0, -2.0, 0.0]}))
    assert Features.declared(schema).encode(ends, key=0).tolist() == [[-1, -1], [0, 0], [1, 1]]
    # Beyond the ends a model's numbers are the bounds.
    wild = Features.declared(schema).decode(np.array([[-9.0, 9.0]]), key=0)
    assert (wild.values("i").tolist(), wild.values("x").tolist()) == ([0], [0.0])


@pytest.mark.parametrize("numeric", NUMERIC)
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_features_of_counts_bring_rows_back(numeric, noise):
    table, encoder = rows(), Encoder(SCHEMA, bins=64)
    random = np.random.default_rng(1)
    counts = {
        name: exact + noise * random.standard_normal(len(exact))
        for name, exact in counts_of(encoder, table).items()
    }
    features = Features.from_counts(encoder, counts, numeric=numeric)
    assert Features.from_json(features.to_json()) == features
    same(table, features.decode(features.encode(table, key=0), key=0))
    # One bin is one value of k, so its spike is seen.
    assert [p.spikes for p in features.encodings if p.column == "k"] == [(3.0,)]


def test_counts_of_all_rows_are_the_sum_of_the_parties():
    encoder = Encoder(SCHEMA, bins=20)
    parts = [rows(300, seed) for seed in range(3)]
    summed = {
        name: sum(counts_of(encoder, part)[name] for part in parts) for name in encoder.domain.names
    }
    pooled = Table.from_columns(
        {
            name: (
                np.concatenate([part.values(name) for part in parts]),
                np.concatenate([part.missing(name) for part in parts]),
            )
            for name in SCHEMA.names
        }
    )
    whole = counts_of(encoder, pooled)
    assert Features.from_counts(encoder, summed) == Features.from_counts(encoder, whole)


def test_counts_give_the_same_scale_as_rows():
    table = adult().select(["age", "fnlwgt"])
    encoder = Encoder(adult_schema().select(["age", "fnlwgt"]), bins=200)
    counts = counts_of(encoder, table)
    by_rows = Features.fit(table, encoder.schema, key=0).encode(table, key=0)
    by_counts = Features.from_counts(encoder, counts, numeric="quantile").encode(table, key=0)
    # Age has a bin for each value; fnlwgt has bins of 7,391.
    assert np.array_equal(by_rows[:, 0], by_counts[:, 0])
    assert np.abs(by_rows[:, 1] - by_counts[:, 1]).mean() < 0.02


def test_wide_columns_are_ordered_by_the_counts():
    names = tuple(f"n{i}" for i in range(400))
    schema = Schema((Column("s", "categorical", names),))
    counts = np.arange(400.0)
    features = Features.from_counts(Encoder(schema), {"s": counts})
    assert features.encodings[0].order == tuple(range(399, -1, -1))
    assert Features.declared(schema).encodings[0].order == ()


def test_empty_and_missing_counts_are_declared_or_flat():
    table, encoder = rows(), Encoder(SCHEMA, bins=16)
    nothing = {name: np.zeros(encoder.domain.size_of(name)) for name in encoder.domain.names}
    for numeric in NUMERIC:
        features = Features.from_counts(encoder, nothing, numeric=numeric)
        same(table, features.decode(features.encode(table, key=0), key=0))
    assert Features.from_counts(encoder, {}) == Features.declared(SCHEMA)


def test_bad_counts_and_declarations_are_refused():
    encoder = Encoder(SCHEMA, bins=16)
    for counts, match in (
        ({"q": np.zeros(3)}, "counts names q"),
        ({"c": np.zeros(2)}, r"'c' have shape \(2,\); its codes are 3"),
        ({"c": np.array([1, np.nan, 2])}, "'c' are not all finite"),
    ):
        with pytest.raises(DataError, match=match):
            Features.from_counts(encoder, counts)
    with pytest.raises(SchemaError, match="no declared low and high"):
        Features.declared(Schema((Column("x", "continuous", low=0.0),)))
