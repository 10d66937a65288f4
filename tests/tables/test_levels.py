"""Counts at several resolution levels: what a row moves, and what noise alone divides."""

from __future__ import annotations

import numpy as np
import pytest

from siloweave.errors import DataError
from siloweave.protocols.histograms import NoisyHistogram
from siloweave.tables.bins import edges_of, spike_bins
from siloweave.tables.codes import Encoder, ResolutionLevels, consistent
from siloweave.tables.column import Column
from siloweave.tables.features import Features
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

SCHEMA = Schema(
    (
        Column("gain", "integer", low=0, high=99_999, missing=True),
        Column("rooms", "continuous", low=0.5, high=140.0),
        Column("age", "integer", low=17, high=90),
        Column("sex", "categorical", categories=("a", "b")),
    )
)
ENCODER = Encoder(SCHEMA, bins=4096)
LEVELS = ResolutionLevels(ENCODER)


def table(rows, seed=0):
    random = np.random.default_rng(seed)
    gain = np.where(random.random(rows) < 0.9, 0, random.integers(1, 20_000, rows))
    rooms = np.clip(random.lognormal(1.7, 0.3, rows), 0.5, 140.0)
    return Table.from_columns(
        {
            "gain": (gain, random.random(rows) < 0.1),
            "rooms": (rooms, None),
            "age": (random.integers(17, 91, rows), None),
            "sex": (np.array(["a", "b"], dtype=object)[random.integers(0, 2, rows)], None),
        }
    )


def test_each_row_is_in_one_cell_of_each_table_or_in_none():
    assert LEVELS.widths == {
        "gain": (256, 16, 1), "rooms": (256, 16, 1), "age": (16, 1), "sex": (1,)
    }  # fmt: skip
    assert LEVELS.number == 9
    codes = ENCODER.encode(table(500))
    every = np.stack([LEVELS.count(codes.take([i])) for i in range(500)])
    ends = np.cumsum([16 + 1, 256, 4096, 16, 256, 4096, 5, 74, 2])
    assert LEVELS.cells == ends[-1] == every.shape[1]
    per_table = np.stack([part.sum(axis=1) for part in np.split(every, ends[:-1], axis=1)])
    missing = codes.column("gain") == 4096
    assert missing.any()
    assert (per_table[1:3] == ~missing).all()
    assert (np.delete(per_table, [1, 2], axis=0) == 1).all()
    assert (every.sum(axis=0) == LEVELS.count(codes)).all()


def test_without_noise_every_count_comes_back():
    codes = ENCODER.encode(table(5000))
    found = LEVELS.columns(LEVELS.count(codes), 5000, 1e-6)
    for name, size in zip(ENCODER.domain.names, ENCODER.domain.sizes, strict=True):
        exact = np.bincount(codes.column(name), minlength=size)
        assert found[name] == pytest.approx(exact, abs=1e-6)


def test_where_all_is_noise_bins_are_shared_alike():
    random = np.random.default_rng(3)
    rooms = random.uniform(0.5, 140.0, 20_000)
    schema = Schema((SCHEMA["rooms"],))
    levels = ResolutionLevels(Encoder(schema, bins=4096))
    exact = levels.count(levels.encoder.encode(Table.from_columns({"rooms": (rooms, None)})))
    noisy = exact + np.rint(random.normal(0, 300.0, len(exact)))
    fine = levels.columns(noisy, 20_000, 300.0)["rooms"].reshape(16, 256)
    assert fine.sum() == pytest.approx(20_000)
    assert fine.min() >= 0
    assert np.median(np.ptp(fine, axis=1)) == pytest.approx(0.0, abs=1e-9)
    assert np.mean(np.ptp(fine.reshape(256, 16), axis=1) < 1e-9) > 0.95


def test_columns_are_found_that_equal_bins_cannot_see():
    data, random = table(20_000), np.random.default_rng(4)
    exact = LEVELS.count(ENCODER.encode(data))
    noisy = exact + np.rint(random.normal(0, 20.0, len(exact)))
    columns = LEVELS.columns(noisy, 20_000, 20.0)
    assert spike_bins(SCHEMA["gain"], ENCODER.edges("gain"), columns["gain"]) == {0: 0}
    assert spike_bins(SCHEMA["rooms"], ENCODER.edges("rooms"), columns["rooms"]) == {}
    features = Features.from_counts(ENCODER, columns, numeric="quantile")
    drawn = features.decode(features.encode(data, key=1), key=2)
    gain, gone = data.integers("gain")
    again, missing = drawn.integers("gain")
    assert (missing == gone).all()
    assert ((again == 0) == (gain == 0))[~gone].all()  # the spike is a choice of its own
    encoding = next(encoding for encoding in features.encodings if encoding.column == "rooms")
    numbers = encoding.split(data.floats("rooms")[0], np.zeros(20_000, bool), random)[1]
    assert numbers.std() == pytest.approx(1.0, abs=0.1)  # the curve follows the narrow hump
    assert np.quantile(numbers, [0.25, 0.75]) == pytest.approx([-0.67, 0.67], abs=0.1)


def test_counts_of_other_tables_are_refused():
    with pytest.raises(DataError, match="9 tables have 8818 cells"):
        LEVELS.columns(np.zeros(7), 10, 1.0)


def test_rows_to_weigh_by_have_the_spikes_that_the_encodings_have():
    """Else raking would ask for amounts beside 0 that no drawn row can have."""
    histogram = NoisyHistogram(
        ENCODER, LEVELS.count(ENCODER.encode(table(20_000))), 1.0, 20_000, seed=5
    )
    gain, gone = histogram.product().integers("gain")
    encoding = next(
        encoding
        for encoding in histogram.features("quantile").encodings
        if encoding.column == "gain"
    )
    assert encoding.spikes == (0.0,)
    real, missing = table(20_000).integers("gain")
    assert (gain[~gone] == 0).mean() == pytest.approx((real[~missing] == 0).mean(), abs=0.01)
    cells = next(one for one in histogram.one_way.cells if one.column.name == "gain")
    assert cells.ends[0] == 0.0
    assert cells.shares[0] == pytest.approx(((real == 0) & ~missing).mean(), abs=0.01)


@pytest.mark.parametrize("bins", [32, 1000])
def test_wide_bins_tell_of_no_single_value(bins):
    weights = np.ones(bins + 1)
    weights[0] = 10.0 * bins
    assert spike_bins(SCHEMA["gain"], edges_of(SCHEMA["gain"], bins), weights) == {}


def test_both_bounds_and_zero_are_told():
    column = Column("x", "continuous", low=-1.0, high=3.0)
    weights, edges = np.ones(2048), edges_of(column, 2048)
    weights[[0, 512, 2047]] = 500.0
    assert spike_bins(column, edges, weights) == {512: 0, 0: -1.0, 2047: 3.0}
    weights[511] = 400.0  # no longer alone
    assert spike_bins(column, edges, weights) == {0: -1.0, 2047: 3.0}
    encoding = Features.from_counts(Encoder(Schema((column,)), 2048), {"x": weights}).encodings[0]
    assert encoding.spikes == (-1.0, 3.0)


@pytest.mark.parametrize("total", [1e-300, 2.0**-50, 0.5, 7.0, 1e6, 1e15])
def test_any_sum_above_0_is_met_however_small_it_is_beside_the_noise(total):
    """What rounding leaves in a bin was 2^-50 once, and a run ended after it was paid for."""
    counts = np.array([-14, -6, 0, 1, -25, 15, -16, 29, 6, 15])
    found = consistent(counts, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, rel=1e-9)
    assert found.argmax() == counts.argmax()
