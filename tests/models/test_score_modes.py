"""CopulaGAN's transform: numbers become modes of normal scores, all else stays as it is."""

import json

import numpy as np
import pytest
from scipy import stats

from siloweave.errors import InputError
from siloweave.models.copula import ScoreModes
from siloweave.tables.features import Block

BLOCKS = (
    Block("kind", 0, 3, "categorical"),
    Block("pay", 3, 1, "number"),
    Block("pay", 4, 3, "categorical"),  # a number, a spike, missing
    Block("age", 7, 1, "number"),
    Block("flat", 8, 1, "number"),
    Block("wide", 9, 2, "categorical"),
    Block("wide", 11, 2, "categorical"),
)


def table(n=400):
    rng = np.random.default_rng(0)
    X = np.zeros((n, 13), dtype=np.float32)
    X[np.arange(n), rng.integers(0, 3, n)] = 1
    sort = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    X[np.arange(n), 4 + sort] = 1
    X[:, 3] = np.where(sort == 0, np.exp(rng.normal(size=n)), 0.0)
    X[:, 7] = np.where(rng.random(n) < 0.5, rng.normal(-4, 0.5, n), rng.normal(4, 0.5, n))
    X[:, 8] = 2.0
    X[np.arange(n), 9 + rng.integers(0, 2, n)] = 1
    X[np.arange(n), 11 + rng.integers(0, 2, n)] = 1
    return X


@pytest.fixture(scope="module")
def scores():
    return ScoreModes.fit(table(), BLOCKS, "gamma")


def test_vectors_come_back(scores):
    X = table()
    inner = scores.encode(X, key=0)
    assert inner.shape[1] == scores.inner[-1].stop == sum(b.size for b in scores.inner)
    assert np.isfinite(inner).all()
    for block in scores.inner:
        part = inner[:, block.start : block.stop]
        if block.kind == "number":
            assert np.abs(part).max() <= 0.99
        else:
            np.testing.assert_array_equal(part.sum(1), 1.0)
    # Scores stop 1.2e-7 short of the ends of a distribution; all else is exact but for float32.
    np.testing.assert_allclose(scores.decode(inner), X, rtol=2e-3, atol=2e-3)


def test_a_column_that_its_distribution_fits_badly_gets_modes(scores):
    sizes = {b.column: b.size for b in scores.inner if b.kind == "categorical"}
    assert sizes["age"] >= 2  # two heaps are no gamma distribution
    assert "flat" not in sizes
    assert sizes["kind"] == 3
    assert sizes["pay"] >= 3  # its modes in place of the first option, then spike and missing


def test_scores_are_normal_where_the_distribution_fits():
    x = np.random.default_rng(1).normal(5.0, 2.0, (2_000, 1)).astype(np.float32)
    made = ScoreModes.fit(x, (Block("x", 0, 1, "number"),), "norm")
    inner = made.encode(x, key=0)
    modes = np.zeros(len(x), int) if inner.shape[1] == 1 else inner[:, 1:].argmax(1)
    z = made.mixtures[0].join(modes, inner[:, 0].astype(float))
    assert stats.kstest(z, "norm").statistic < 0.03


def test_the_distribution_of_a_number_is_fitted_where_it_is_in_use(scores):
    law = scores.margins[0]
    assert law.ppf(np.array([1e-3]))[0] > 0.0  # zeros beside spikes and gaps are no values
    assert 0.7 < law.ppf(np.array([0.5]))[0] < 1.4


def test_what_has_no_number_can_be_given(scores):
    given = np.full((2, 13), np.nan, dtype=np.float32)
    given[0, :3] = [0, 1, 0]
    inner = scores.moved(given)
    kind = next(b for b in scores.inner if b.column == "kind")
    assert inner[0, kind.start : kind.stop].tolist() == [0, 1, 0]
    assert np.isnan(inner).sum() == inner.size - 3


def test_it_comes_back_from_json(scores):
    again = ScoreModes.from_facts(json.loads(json.dumps(scores.to_facts())))
    X = table()
    np.testing.assert_array_equal(again.encode(X, key=3), scores.encode(X, key=3))
    assert again.inner == scores.inner


def test_a_number_nobody_uses_and_one_row_are_no_trouble():
    X = table(1)
    X[:, 4:7], X[:, 3] = [0, 0, 1], 0.0
    made = ScoreModes.fit(X, BLOCKS, "beta")
    np.testing.assert_allclose(made.decode(made.encode(X, key=0)), X, atol=1e-4)


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(InputError, match="not finite"):
        ScoreModes.fit(np.full((2, 1), np.nan), (Block("x", 0, 1, "number"),))
    with pytest.raises(InputError, match="family='none'"):
        ScoreModes.fit(np.ones((2, 1)), (Block("x", 0, 1, "number"),), "none")
