"""Far ends of skewed columns that noise fills are thinned out, and those that have rows stay."""

import numpy as np
import pytest

from siloweave.protocols.histograms import _fine_bins
from siloweave.tables.codes import LevelCounts, ResolutionLevels, thinned
from siloweave.tables.column import Column

ROWS = 20_000


def noisy_total(values, column, sigma, seed):
    """Return the total of a column by noisy counts of its fine bins, as a share of the real one."""
    encoder = _fine_bins([column])
    levels = ResolutionLevels(encoder)
    edges = encoder.edges(column.name).astype(float)
    places = np.searchsorted(edges, values, side="right") - 1
    fine = np.bincount(np.clip(places, 0, len(edges) - 2), minlength=len(edges) - 1)

    class Counted:
        def count(self, cliques):
            return [fine]

    exact = levels.count(Counted())
    noisy = exact + np.random.default_rng(seed).normal(0, sigma, len(exact)).round()
    counts = levels.columns(noisy, len(values), sigma)[column.name]
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(len(values))
    middles = (edges[:-1] + edges[1:]) / 2
    return float(counts @ middles / values.sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sign", [1, -1])
def test_a_total_is_not_that_of_noise_at_the_far_end(seed, sign):
    rng = np.random.default_rng(seed)
    values = sign * np.minimum(np.exp(rng.normal(3.5, 1.1, ROWS)), 100_000).round(2)
    bounds = {"low": 0, "high": 100_000} if sign > 0 else {"low": -100_000, "high": 0}
    column = Column("order", "continuous", decimals=2, **bounds)
    assert 0.7 < noisy_total(values, column, 30.0, seed) < 1.5


def test_rows_at_the_far_end_stay_where_they_stand_out():
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(3.5, 1.1, ROWS)).round()
    values[:400] = 99_999
    column = Column("gain", "integer", low=0, high=100_000)
    assert 0.9 < noisy_total(values, column, 20.0, 1) < 1.1


def test_exact_counts_stay_as_they_are():
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(3.5, 1.1, ROWS)).round()
    values[0] = 90_000
    column = Column("gain", "integer", low=0, high=100_000)
    assert noisy_total(values, column, 0.0, 1) == pytest.approx(1.0, abs=0.01)


def test_few_rows_that_noise_drowns_stay_where_counts_put_them():
    column = Column("many", "integer", low=-1_000_000, high=100_000)
    encoder = _fine_bins([column])
    levels = ResolutionLevels(encoder)
    noisy = np.random.default_rng(0).normal(0, 300, levels.cells).round()
    counts = levels.columns(noisy, 100, 300.0)["many"]
    assert np.count_nonzero(counts) > 500


def test_a_column_of_few_octaves_stays_as_it_is():
    edges = np.arange(65.0)
    counts = np.ones(64)
    assert thinned(counts, [LevelCounts(1, counts)], edges, 100.0) is counts


@pytest.mark.parametrize(("rows", "sigma"), [(300, 40.0), (300, 20.0), (1000, 80.0)])
@pytest.mark.parametrize("high", [1, 5_000])
def test_few_rows_that_lie_evenly_are_not_put_near_0(rows, sigma, high):
    column = Column("rate", "continuous", low=0, high=high)
    shares = []
    for seed in range(12):
        values = np.random.default_rng(seed).random(rows) * high
        shares.append(noisy_total(values, column, sigma, seed))
    assert 0.7 < np.median(shares) < 1.2
    assert min(shares) > 0.2
