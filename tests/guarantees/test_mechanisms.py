"""The noise is what the Guarantee blocks say.

Exact first (mass functions and divergences, no sampling), then statistics under a fixed key.
"""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.stats import chi2

from siloweave.privacy import mechanisms
from siloweave.privacy.events import Gaussian, SharedGaussian
from siloweave.privacy.mechanisms import OSEntropy, SeededEntropy
from tests.guarantees.exact import (
    DEEP,
    N,
    distance,
    fits,
    float_masses,
    gaussian_masses,
    gaussian_weight,
    laplace_masses,
    laplace_weight,
    masses_of,
    noise_is_independent,
    selection_loss,
    selection_masses,
    sum_of_shares,
    worst_rho,
)

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620900")


@pytest.fixture(autouse=True)
def _digits():
    """Operators on decimals round to 70 digits here, not to 28."""
    with localcontext(DEEP):
        yield


# Exact mass functions.


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, math.pi, 50.0, 300.0])
def test_the_gaussian_table_has_the_mass_function_of_the_paper(sigma):
    masses = masses_of(mechanisms._gaussian_table(sigma))
    assert sum(masses) == 2**127
    assert min(masses) >= 0
    assert distance(masses, lambda k: gaussian_weight(k, sigma)) < mechanisms.TV_PER_DRAW
    for wrong in (0.999, 1.001):
        assert distance(masses, lambda k, s=sigma * wrong: gaussian_weight(k, s)) > 1e-24


@pytest.mark.parametrize("scale", [0.1, 1.0, 7.7, 40.0])
def test_the_laplace_table_has_the_mass_function_of_the_paper(scale):
    masses = masses_of(mechanisms._laplace_table(scale))
    assert distance(masses, lambda k: laplace_weight(k, scale)) < mechanisms.TV_PER_DRAW


def test_large_tables_are_right_at_every_scale():
    """Poisson summation gives P(X = 0) = 1 / (sigma sqrt(2 pi)) up to e^(-2 pi^2 sigma^2)."""
    sigma = 20_000.0
    masses = masses_of(mechanisms._gaussian_table(sigma))
    assert len(masses) <= mechanisms.LARGEST_TABLE
    at_zero = 1 / (Decimal(sigma) * DEEP.sqrt(2 * PI))
    for k in (0, 1, 2, 1000, 20_000, 100_000, 200_000):
        exact = (1 if k == 0 else 2) * at_zero * gaussian_weight(k, sigma)
        assert abs(Decimal(masses[k]) / 2**127 - exact) < Decimal(2) ** -125
    assert masses[-1] == 0 or len(masses) > 13 * sigma


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.5, 10.0])
def test_the_price_of_a_gaussian_covers_its_divergence(sigma):
    """The largest shift that keeps the tails of these mass functions in range is 1."""
    real = worst_rho(float_masses(sigma, math.ceil(25 * sigma)))
    price = Gaussian(sigma=sigma, sensitivity=1.0).rho
    assert real <= price * (1 + 1e-9)
    assert real > 0.99 * price or sigma < 1


@pytest.mark.parametrize("shares", [2, 3, 5])
@pytest.mark.parametrize("sigma", [1.0, 1.5, 4.0])
def test_the_price_of_shared_noise_covers_its_divergence(sigma, shares):
    real = worst_rho(sum_of_shares(sigma, shares))
    event = SharedGaussian(
        share_sigma=sigma, shares=shares + 2, tolerated=2, sensitivity=1.0, dimension=1
    )
    assert real <= event.rho * (1 + 1e-9)
    assert real > 0.95 * event.rho


def test_narrow_shares_would_break_the_price_without_its_correction():
    """Why shares below 1 are refused: their sum is not a Gaussian of the summed variance."""
    real = worst_rho(sum_of_shares(0.4, 3))
    assert real > 1.02 / (2 * 3 * 0.4**2)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_a_selection_loses_no_more_than_epsilon_and_nearly_that(epsilon):
    loss = selection_loss(selection_masses, epsilon=epsilon)
    assert 0.95 * epsilon < loss <= epsilon + mechanisms.EXPONENTIAL_SLACK


def test_a_selection_has_the_mass_function_of_the_paper():
    scores = [0.0, -3.5, 12.25, 400.0, 399.0, 1e-3]
    epsilon = 0.1
    exact = [DEEP.exp((Decimal(s) - 400) * Decimal(epsilon) / 2) for s in scores]
    ours = selection_masses(scores, 1.0, epsilon)
    for p, w in zip(ours, exact, strict=True):
        assert abs(float(DEEP.ln(p * sum(exact) / w))) < mechanisms.EXPONENTIAL_SLACK


def test_lifting_far_candidates_costs_nothing():
    """Gaps beyond the reach, just at it, and across it when the neighbour moves."""
    for gap in (511.0, 512.0, 513.0, 514.0, 1e6):
        for up in (1.0, -1.0):
            p = selection_masses([0.0, -gap, -gap], 1.0, 1.0)
            q = selection_masses([-up, -gap + up, -gap - up], 1.0, 1.0)
            losses = [float(DEEP.ln(a / b)) for a, b in zip(p, q, strict=True)]
            assert max(losses) - min(losses) <= 1 + mechanisms.EXPONENTIAL_SLACK


# Statistics, under a fixed key; both directions must be rejected.


@pytest.mark.parametrize("sigma", [0.5, 1.7, 20.0])
def test_gaussian_draws_fit_and_other_widths_are_rejected(sigma):
    draws = mechanisms.discrete_gaussian(sigma, N, entropy=SeededEntropy(11))
    assert fits(draws, gaussian_masses(sigma))
    assert not fits(draws, gaussian_masses(0.9 * sigma))
    assert not fits(draws, gaussian_masses(1.1 * sigma))


@pytest.mark.parametrize("scale", [0.6, 3.0, 20.0])
def test_laplace_draws_fit_and_other_widths_are_rejected(scale):
    draws = mechanisms.discrete_laplace(scale, N, entropy=SeededEntropy(12))
    assert fits(draws, laplace_masses(scale))
    assert not fits(draws, laplace_masses(0.9 * scale))
    assert not fits(draws, laplace_masses(1.1 * scale))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_opendp_draws_the_same_distribution(kind):
    """An independent sampler, with its own entropy: hence a level that chance does not reach."""
    masses = {"gaussian": gaussian_masses, "laplace": laplace_masses}[kind]
    draws = mechanisms._opendp(kind, 3.0, N)
    assert fits(draws, masses(3.0), level=1e-12)
    assert not fits(draws, masses(2.7), level=1e-12)
    assert not fits(draws, masses(3.3), level=1e-12)


def test_draws_with_the_systems_entropy_fit():
    draws = mechanisms.discrete_gaussian(3.0, N, entropy=OSEntropy())
    assert fits(draws, gaussian_masses(3.0), level=1e-12)


def test_selections_fit():
    entropy, scores = SeededEntropy(13), [0.0, 1.0, 3.0, 2.5]
    chosen = [
        mechanisms.exponential(scores, sensitivity=1.0, epsilon=2.0, entropy=entropy)
        for _ in range(20_000)
    ]
    observed = np.bincount(chosen, minlength=4)
    for epsilon, right in ((2.0, True), (2.4, False), (1.6, False)):
        w = np.exp(np.array(scores) * epsilon / 2)
        expected = 20_000 * w / w.sum()
        p = chi2.sf(((observed - expected) ** 2 / expected).sum(), 3)
        assert bool(p > 1e-4) is right


def test_every_cell_gets_noise_of_its_own():
    assert noise_is_independent(mechanisms.add_gaussian)
