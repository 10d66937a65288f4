"""Distances and nearest rows against scipy, on every kind of column."""

import numpy as np
import polars as pl
import pytest
from scipy.spatial.distance import cdist

from siloweave.attacks import neighbours
from siloweave.attacks.neighbours import Blocks, nearest, space
from siloweave.errors import InputError
from siloweave.tables.aligned import align
from tests.attacks.people import people


def tables(gaps):
    drawn = {"a": people(1, 60, gaps), "b": people(2, 5000, gaps)}
    return align(
        {
            **drawn,
            "b": drawn["b"].with_columns(constant=pl.lit(3.5)),
            "a": drawn["a"].with_columns(constant=pl.lit(3.5)),
        }
    )


def by_hand(both, metric):
    """All distances between tables, column by column, with scipy."""
    total = np.zeros((both.num_rows["a"], both.num_rows["b"]))
    for column in both.columns:
        a, b = (column.values[t].astype(float) for t in "ab")
        if not column.numeric or metric == "hamming":
            a, b = (np.where(np.isnan(v), -1e9, v) for v in (a, b))
            total += (2 if metric == "l2" else 1) * cdist(a[:, None], b[:, None], "hamming")
            continue
        pooled = np.r_[a, b]
        gap = np.isnan(a)[:, None] != np.isnan(b)
        if metric == "gower":
            reach = np.nanmax(pooled) - np.nanmin(pooled)
            apart = cdist(np.nan_to_num(a)[:, None], np.nan_to_num(b)[:, None], "cityblock")
            apart = apart / reach if reach else 0 * apart
            apart[np.isnan(a)] = apart[:, np.isnan(b)] = 0
            total += np.where(gap, 1, apart)
        else:
            spread = np.nanstd(pooled) or 1
            a, b = ((np.where(np.isnan(v), np.nanmean(pooled), v)) / spread for v in (a, b))
            total += cdist(a[:, None], b[:, None], "sqeuclidean") + 2 * gap
    return np.sqrt(total) if metric == "l2" else total / len(both.columns)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("metric", ["gower", "hamming", "l2"])
def test_distances_are_those_of_scipy(metric, gaps):
    both = tables(gaps)
    truth = by_hand(both, metric)
    within = space(both, metric)
    found = np.empty_like(truth)
    for rows, columns, totals in Blocks(within, within.points["a"], within.points["b"]):
        found[rows, columns] = within.scaled(totals)
    np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-6 if metric == "l2" else 1e-7)


@pytest.mark.parametrize("metric", ["gower", "hamming", "l2"])
def test_nearest_are_those_of_all_distances(metric):
    both = tables(gaps=True)
    truth = by_hand(both, metric)
    within = space(both, metric)
    found = nearest(within, within.points["a"], within.points["b"])
    np.testing.assert_allclose(found.distances, truth.min(axis=1), rtol=1e-5, atol=1e-6)
    chosen = truth[np.arange(len(truth)), found.places]
    np.testing.assert_allclose(chosen, found.distances, rtol=1e-5, atol=1e-6)


def test_of_equally_near_rows_the_first_is_taken():
    rows = people(1, 40)
    both = align({"a": rows, "b": pl.concat([people(2, 5000), rows, people(3, 4000), rows])})
    for metric in ("gower", "hamming", "l2"):
        within = space(both, metric)
        found = nearest(within, within.points["a"], within.points["b"])
        assert found.distances.max() == 0
        np.testing.assert_array_equal(found.places, 5000 + np.arange(40))


def test_a_part_taken_out_of_a_total_leaves_the_rest():
    both = tables(gaps=True)
    within = space(both, "gower")
    for left_out in range(within.width):
        rest = space(both, "gower", [n for k, n in enumerate(within.names) if k != left_out])
        whole = Blocks(within, within.points["a"], within.points["b"])
        others = Blocks(rest, rest.points["a"], rest.points["b"])
        for (rows, columns, one), (_, _, two) in zip(whole, others, strict=True):
            left = one - whole.part(left_out, rows, columns)
            np.testing.assert_array_equal(left, two)


def test_many_columns_do_not_overflow():
    rng = np.random.default_rng(0)
    wide = {f"n{k}": rng.random(30) * 10.0 ** rng.integers(-9, 9) for k in range(150)}
    wide |= {f"c{k}": rng.integers(3, size=30).astype(str) for k in range(150)}
    both = align({"a": pl.DataFrame(wide)[:5], "b": pl.DataFrame(wide)})
    for metric, off in (("gower", 2e-5), ("hamming", 1e-9)):
        within = space(both, metric)
        found = np.empty((5, 30))
        for rows, columns, totals in Blocks(within, within.points["a"], within.points["b"]):
            found[rows, columns] = within.scaled(totals)
        np.testing.assert_allclose(found, by_hand(both, metric), atol=off)


def test_blocks_hold_little_and_are_used_again(monkeypatch):
    monkeypatch.setattr(neighbours, "_AMONG", 64)
    both = tables(gaps=False)
    within = space(both, "gower")
    sizes = [totals.shape for _, _, totals in Blocks(within, *within.points.values())]
    assert max(np.prod(size) for size in sizes) <= 16 * 64
    assert sum(np.prod(size) for size in sizes) == 60 * 5000


def test_extreme_numbers_stay_finite():
    values = pl.DataFrame({"x": [-1.7e308, 0.0, 1.7e308], "y": [5e-324, 0.0, 1e-323]})
    both = align({"a": values, "b": values})
    for metric in ("gower", "l2"):
        within = space(both, metric)
        found = nearest(within, within.points["a"], within.points["b"])
        assert found.distances.max() == 0
        blocks = Blocks(within, within.points["a"], within.points["b"])
        assert all(np.isfinite(within.scaled(totals)).all() for _, _, totals in blocks)


def test_what_cannot_be_measured_is_refused():
    both = tables(gaps=False)
    with pytest.raises(InputError, match="names is empty"):
        space(both, "gower", [])
    with pytest.raises(InputError, match="metric='cosine'"):
        space(both, "cosine")
