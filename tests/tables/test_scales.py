import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siloweave.datasets import adult
from siloweave.tables.encodings import Mixture, fit_mixture


def three_heaps(rows=4000, seed=0):
    """Draw from weights 0.5, 0.3 and 0.2 at 0, 12 and 30 with deviations 1, 2 and 0.5."""
    random = np.random.default_rng(seed)
    heap = random.choice(3, rows, p=[0.5, 0.3, 0.2])
    centres, deviations = np.array([0.0, 12.0, 30.0]), np.array([1.0, 2.0, 0.5])
    return np.sort(centres[heap] + deviations[heap] * random.standard_normal(rows))


def main_modes(mixture):
    """Return means, deviations and weights of modes above 5 %."""
    parts = np.array([mixture.means, mixture.scales, mixture.weights])
    return parts[:, parts[2] > 0.05]


def mean_log_density(means, scales, weights, values):
    away = (values[:, None] - np.asarray(means)) / scales
    return np.log((np.asarray(weights) / scales * np.exp(-(away**2) / 2)).sum(axis=1)).mean()


def oracle(values, components=10, tolerance=1e-3):
    """Fit scikit-learn's variational mixture, with CTGAN's priors, to standardised values."""
    from sklearn.mixture import BayesianGaussianMixture

    centre, scale = values.mean(), values.std()
    model = BayesianGaussianMixture(
        n_components=components,
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=0.001,
        covariance_prior=np.eye(1),  # its default divides by one observation fewer
        max_iter=10_000,
        tol=tolerance,
        random_state=0,
    ).fit(((values - centre) / scale)[:, None])
    deviations = np.sqrt(model.covariances_[:, 0, 0])
    order = np.argsort(model.means_[:, 0])
    return (
        model.means_[order, 0] * scale + centre,
        deviations[order] * scale,
        model.weights_[order],
    )


def test_same_posterior_as_scikit_learn():
    values = three_heaps()
    ours = main_modes(fit_mixture(values, np.ones(len(values)), components=3))
    theirs = np.array(oracle(values, components=3))
    assert np.allclose(ours, theirs, rtol=2e-3, atol=2e-3)
    # The truth is near; the prior widens the smallest heap.
    assert np.allclose(ours[0], [0, 12, 30], atol=0.2)
    assert np.allclose(ours[1], [1, 2, 1], rtol=0.1)
    assert np.allclose(ours[2], [0.5, 0.3, 0.2], atol=0.03)


def test_same_posterior_where_few_rows_overlap():
    # Every term of the updates shows here: 56 rows, and two heaps that share the middle.
    random = np.random.default_rng(3)
    heaps = [random.standard_normal(40), 3.2 + 0.7 * random.standard_normal(16)]
    values = np.sort(np.concatenate(heaps))
    ours = fit_mixture(values, np.ones(56), components=2, steps=1000, tolerance=1e-12)
    theirs = np.array(oracle(values, components=2, tolerance=1e-13))
    assert np.allclose([ours.means, ours.scales, ours.weights], theirs, rtol=0, atol=1e-5)


def test_as_likely_as_scikit_learns_where_modes_overlap():
    age = np.sort(adult().values("age")[:3000].astype(float))
    distinct, counts = np.unique(age, return_counts=True)
    ours = fit_mixture(distinct, counts.astype(float))
    mine = mean_log_density(ours.means, np.array(ours.scales), ours.weights, age)
    theirs = mean_log_density(*oracle(age), age)
    one_normal = mean_log_density([age.mean()], np.array([age.std()]), [1.0], age)
    assert mine > theirs - 0.02
    assert mine > one_normal + 0.02


def test_weights_are_repeated_values():
    heaps = np.round(three_heaps(), 1)
    distinct, counts = np.unique(heaps, return_counts=True)
    one = fit_mixture(distinct, counts.astype(float), components=3)
    many = fit_mixture(heaps, np.ones(len(heaps)), components=3)
    assert np.allclose(main_modes(one), main_modes(many), rtol=1e-3, atol=1e-3)


def test_many_values_are_grouped_without_loss(monkeypatch):
    values = three_heaps(20_000)
    grouped = main_modes(fit_mixture(values, np.ones(len(values)), components=3))
    monkeypatch.setattr("siloweave.tables.encodings._GROUPS", 20_000)
    single = main_modes(fit_mixture(values, np.ones(len(values)), components=3))
    assert not np.array_equal(grouped, single)
    assert np.allclose(grouped, single, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_a_histogram_is_enough(noise):
    values = three_heaps(20_000)
    counts, edges = np.histogram(values, bins=160, range=(-10, 40))
    noisy = counts + noise * np.random.default_rng(1).standard_normal(160)
    middle, spread = (edges[1:] + edges[:-1]) / 2, np.full(160, np.diff(edges)[0] ** 2 / 12)
    means, deviations, weights = main_modes(fit_mixture(middle, noisy, spread, components=5))
    for centre, deviation, weight in ((0.0, 1.0, 0.5), (12.0, 2.0, 0.3), (30.0, 0.5, 0.2)):
        near = np.abs(means - centre) < 3
        assert abs(weights[near].sum() - weight) < 0.05
        assert abs(np.average(means[near], weights=weights[near]) - centre) < 0.3
        assert 0.6 * deviation < deviations[near].min() < 1.4 * deviation


def test_one_full_bin_is_as_wide_as_the_bin():
    mixture = fit_mixture(np.array([5.0, 15.0, 25.0]), np.array([0, 9e4, 0]), np.full(3, 100 / 12))
    assert mixture.means == (15.0,)
    assert abs(mixture.scales[0] - 10 / 12**0.5) < 0.01


def test_fewer_modes_where_fewer_are_needed():
    values = np.sort(np.random.default_rng(0).standard_normal(5000))
    few = fit_mixture(values, np.ones(5000), components=1)
    assert few.modes == 1
    assert abs(few.scales[0] - 1) < 0.05
    assert fit_mixture(np.array([4.0]), np.ones(1)).modes == 1
    assert fit_mixture(np.array([4.0, 5.0]), np.zeros(2)).modes <= 2


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60, unique=True),
    st.integers(1, 12),
)
@settings(max_examples=40)
def test_every_value_is_within_reach(values, components):
    array = np.sort(np.array(values))
    mixture = fit_mixture(array, np.ones(len(array)), components=components)
    assert abs(sum(mixture.weights) - 1) < 1e-9
    assert min(mixture.scales) > 0
    modes, numbers = mixture.split(array, np.random.default_rng(0))
    assert np.abs(numbers).max() <= 0.99
    span = max(array[-1] - array[0], np.abs(array).max() * 1e-5, 1e-6)
    assert np.allclose(mixture.join(modes, numbers), array, atol=1e-6 * span)


def test_modes_are_drawn_by_how_likely_they_are():
    mixture = Mixture((0.0, 1.0), (1.0, 1.0), (0.8, 0.2))
    modes, numbers = mixture.split(np.full(20_000, 0.5), np.random.default_rng(0))
    # Half way between equal deviations the weights decide: 0.8 against 0.2.
    assert abs(modes.mean() - 0.2) < 0.01
    assert set(numbers.tolist()) == {0.125, -0.125}


def test_a_mode_that_does_not_reach_is_not_drawn():
    mixture = Mixture((0.0, 10.0), (1.0, 2.0), (0.999999, 0.000001))
    modes, numbers = mixture.split(np.full(100, 4.5), np.random.default_rng(0))
    assert (modes == 1).all()
    assert np.allclose(numbers, -5.5 / 8)
    # Nothing reaches: the nearest end, clipped.
    modes, numbers = mixture.split(np.array([100.0]), np.random.default_rng(0))
    assert (modes.tolist(), numbers.tolist()) == ([1], [0.99])
