import numpy as np
import polars as pl
import pytest
from sklearn.neighbors import NearestNeighbors
from tests.evaluate.made import pair, people, shuffled

from siloweave.errors import InputError
from siloweave.evaluate.support import support

BOTH = ("real", "synthetic")


def embedded(frame, real):
    """Numbers scaled to the real range and an indicator per category."""
    parts = []
    for name in ("age", "pay"):
        low, high = real[name].min(), real[name].max()
        parts.append((frame[name].to_numpy()[:, None] - low) / (high - low))
    for name in ("job", "rich"):
        values = frame[name].to_numpy()
        parts += [(values == label)[:, None] for label in real[name].unique().sort()]
    return np.hstack(parts).astype(float)


def expected(real, synthetic):
    """Alpha-precision and beta-recall by the paper's definition, over the whole embedding."""
    X, Z = embedded(real, real), embedded(synthetic, real)
    levels = np.linspace(0, 1, 30)

    def far(rows, centre):
        return np.linalg.norm(rows - centre, axis=1)

    radii = np.quantile(far(X, X.mean(0)), levels)
    precision = [(far(Z, X.mean(0)) <= radius).mean() for radius in radii]
    to_real = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X)[0][:, 1]
    to_other, place = NearestNeighbors(n_neighbors=1).fit(Z).kneighbors(X)
    there = far(Z[place[:, 0]], Z.mean(0))
    near = to_other[:, 0] <= to_real
    recall = [(near & (there <= radius)).mean() for radius in np.quantile(there, levels)]
    total = levels.sum()
    return [1 - np.abs(levels - np.array(shares)).sum() / total for shares in (precision, recall)]


def test_both_are_those_of_the_whole_embedding():
    real, synthetic = people(0, 300), people(1, 300, noise=0.3)
    found = support(pair(real, synthetic), *BOTH, key=0)
    assert [found.alpha_precision, found.beta_recall] == pytest.approx(expected(real, synthetic))
    assert found.rows == 300


def test_copies_fresh_rows_and_shuffled_columns():
    real = people(0)
    copy = support(pair(real, real), *BOTH, key=0)
    fresh = support(pair(real, people(1)), *BOTH, key=0)
    mixed = support(pair(real, shuffled(real, 1)), *BOTH, key=0)
    assert copy.alpha_precision == pytest.approx(1, abs=1 / 400)
    assert copy.beta_recall == pytest.approx(1, abs=1 / 400)
    assert fresh.beta_recall == pytest.approx(0.5, abs=0.1)
    assert mixed.beta_recall < fresh.beta_recall - 0.1


def test_rows_in_other_places_cover_nothing():
    x = np.linspace(0.5, 1, 200)
    found = support(pair({"x": x}, {"x": x + 9}), *BOTH, key=0)
    assert found.alpha_precision < 0.1
    assert found.beta_recall < 0.1


def test_rows_are_drawn_and_as_many_of_either():
    both = pair(people(0), people(1, 150))
    assert support(both, *BOTH, key=0).rows == 150
    first, again, other = (support(both, *BOTH, key=k, max_rows=60) for k in (1, 1, 2))
    assert first == again != other
    assert first.rows == 60


def test_a_missing_number_is_a_value_of_its_own():
    real = people(0)
    holes = real.with_columns(age=pl.when(pl.col("rich")).then("age"))
    same = support(pair(holes, holes), *BOTH, key=0)
    other = support(pair(holes, real), *BOTH, key=0)
    assert same.beta_recall == pytest.approx(1, abs=1 / 400)
    assert other.beta_recall < 0.6


def test_constant_columns_and_a_synthetic_column_of_one_value():
    real = people(0, 60).with_columns(flat=pl.lit(2.5), same=pl.lit("x"))
    empty = real.with_columns(age=pl.when(pl.int_range(60) == 0).then("age"))
    assert support(pair(real, real), *BOTH, key=0).beta_recall > 0.95
    assert support(pair(real, empty), *BOTH, key=0).beta_recall < 0.2


def test_bad_input():
    both = pair({"x": [1.5]}, {"x": [2.5]})
    with pytest.raises(InputError, match="1 row of each table has no neighbour in it; give 2"):
        support(both, *BOTH, key=0)
    with pytest.raises(InputError, match="there is no table 'other'"):
        support(both, "real", "other", key=0)
