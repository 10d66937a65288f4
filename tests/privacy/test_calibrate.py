import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfcx

from siloweave.errors import InputError
from siloweave.privacy import accountants as ac
from siloweave.privacy import budget as cal
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import Exponential, Gaussian, SharedGaussian

DELTAS = [1e-2, 1e-5, 1e-9]


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.1234567891, 1.0, 3.0, 8.0, 100.0])
def test_rho_is_the_largest_that_the_ledger_reads_as_within_budget(epsilon, delta):
    rho = cal.rho_for(Budget(epsilon=epsilon, delta=delta))
    assert ac.epsilon_of_rho(rho, delta) <= epsilon
    assert ac.epsilon_of_rho(rho * 1.0001, delta) > epsilon


@pytest.mark.parametrize("parts", [1, 3, 7, 640, 1000])
def test_adding_up_shares_of_rho_never_overshoots(parts):
    budget = Budget(epsilon=1.0, delta=1e-5)
    rho = cal.rho_for(budget)
    gaussians = [Gaussian(cal.gaussian_sigma(0.9 * rho / parts, 1.0), 1.0)] * parts
    selections = [Exponential(math.sqrt(0.8 * rho / parts))] * parts
    assert ac.epsilon(gaussians + selections, budget.delta) <= budget.epsilon
    assert ac.rho(gaussians + selections) == pytest.approx(rho, rel=1e-9)


def test_no_privacy_is_infinite():
    assert cal.rho_for(Budget(epsilon=math.inf, delta=1e-5)) == math.inf


@given(st.floats(1e-8, 1e4), st.floats(1e-3, 1e4))
def test_noise_costs_no_more_than_asked_and_wastes_nothing(rho, sensitivity):
    sigma = cal.gaussian_sigma(rho, sensitivity)
    cost = Gaussian(sigma=sigma, sensitivity=sensitivity).rho
    assert rho * (1 - 1e-12) <= cost <= rho


@given(
    st.floats(1e-6, 10.0),
    st.integers(1, 50),
    st.integers(0, 20),
    st.integers(1, 10**6),
)
def test_shares_cost_no_more_than_asked(rho, left, tolerated, dimension):
    named = {
        "sensitivity": 1.0,
        "shares": left + tolerated,
        "tolerated": tolerated,
        "dimension": dimension,
    }
    share = cal.share_sigma(rho, **named)
    cost = SharedGaussian(share_sigma=share, **named).rho
    assert share >= 1
    assert cost <= rho
    assert share == 1 or cost >= rho * (1 - 1e-9)


@pytest.mark.parametrize("rho", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_rho_is_refused(rho):
    with pytest.raises(InputError, match=f"gaussian_sigma: rho = {rho}"):
        cal.gaussian_sigma(rho, 1.0)
    with pytest.raises(InputError, match="share_sigma: rho"):
        cal.share_sigma(rho, sensitivity=1.0, shares=2, tolerated=0, dimension=1)


def test_more_budget_is_more_rho():
    rhos = [cal.rho_for(Budget(epsilon=e, delta=1e-6)) for e in np.geomspace(0.01, 20, 12)]
    assert rhos == sorted(rhos)


@pytest.mark.parametrize("separation", [0.1, 0.15, 0.2])
def test_a_budget_of_a_separation_is_that_of_a_gaussian_mechanism(separation):
    budget = cal.budget_of_separation(separation, 1e-5)
    sigma = 1 / cal.mu_of_separation(separation)
    read = from_gaussian_mechanism(sigma).get_epsilon_for_delta(1e-5)
    assert budget.epsilon == pytest.approx(read, rel=5e-3)
    assert budget.epsilon <= ac.round_up(read)
    with pytest.raises(InputError, match="separation"):
        cal.budget_of_separation(0.8, 1e-5)


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-5, 0.3])
@pytest.mark.parametrize("mu", [0.05, 0.36, 1.0847669474, 1.2918730992, 1.8322582134, 5.0, 29.0])
def test_epsilon_of_gaussian_privacy_holds_where_tails_are_tiny(mu, delta):
    """By scaled complementary error functions, which lose no digit in the tails."""
    epsilon = cal.gdp_epsilon(mu, delta)
    near, far = (epsilon / mu + mu / 2 * side for side in (-1, 1))
    near, far = near / math.sqrt(2), far / math.sqrt(2)
    found = math.exp(-(near**2)) * (erfcx(near) - erfcx(far)) / 2
    assert found <= delta * (1 + 1e-9)
    assert found >= 0.9999 * delta or epsilon == 0
