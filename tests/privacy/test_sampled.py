"""Steps on Poisson samples, of one party and of nearly continuous noise: exact distributions."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from siloweave.errors import BudgetError, InputError
from siloweave.privacy import accountants as ac
from siloweave.privacy import budget as cal
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import Exponential, Gaussian, SampledSharedGaussian, ThresholdGaussian
from siloweave.privacy.ledger import Ledger

DELTA = 1e-5
X = np.linspace(-60, 60, 400_001)


def steps(multiplier, count, rate=0.0125, **more):
    return SampledSharedGaussian(1e4 * multiplier, 1, 0, 1e4, 1, rate, count=count, **more)


def read(multiplier, count, rate=0.0125, **more):
    return ac.epsilon([steps(multiplier, count, rate, **more)], DELTA)


def test_what_the_paper_claims_for_batch_clipping_is_refuted():
    """sigma counted as if the clipped mean moved by C, and not by 2 C."""
    claimed, true = read(0.5, 80), read(0.5 / 2, 80)
    assert true > 6 * claimed


def hockey_stick(p, q, epsilon):
    return np.maximum(p - math.exp(epsilon) * q, 0).sum() * (X[1] - X[0])


def mixture(multiplier, rate, centre):
    return (1 - rate) * norm.pdf(X, 0, multiplier) + rate * norm.pdf(X, centre, multiplier)


@pytest.mark.parametrize(("multiplier", "rate"), [(1.0, 0.1), (0.5, 0.02), (3.0, 0.5), (1.0, 1.0)])
def test_one_step_is_read_upwards_and_not_far_from_what_it_is(multiplier, rate):
    with_row, without = mixture(multiplier, rate, 1.0), norm.pdf(X, 0, multiplier)
    epsilon = read(multiplier, 1, rate=rate)
    worst = max(hockey_stick(with_row, without, epsilon), hockey_stick(without, with_row, epsilon))
    assert worst <= DELTA
    less = epsilon * 0.7
    assert max(hockey_stick(with_row, without, less), hockey_stick(without, with_row, less)) > DELTA


@pytest.mark.parametrize(("multiplier", "rate"), [(1.0, 0.1), (0.5, 0.02), (3.0, 0.5), (1.0, 1.0)])
def test_the_price_of_a_replaced_row_covers_opposite_rows(multiplier, rate):
    here, there = mixture(multiplier, rate, 1.0), mixture(multiplier, rate, -1.0)
    epsilon = read(multiplier, 1, rate=rate, replace_one=True)
    assert hockey_stick(here, there, epsilon) <= DELTA
    assert read(multiplier, 1, rate=rate) < epsilon


def test_steps_compose_with_the_other_events_of_a_ledger():
    own = steps(1.0, 400)
    others = [Gaussian(sigma=40.0, sensitivity=1.0, count=3), Exponential(epsilon=0.02, count=9)]
    alone, rest, all_ = (ac.epsilon(e, DELTA) for e in ([own], others, [own, *others]))
    assert max(alone, rest) < all_
    assert all_ <= ac.epsilon([own], DELTA / 2) + ac.epsilon_of_rho(ac.rho(others), DELTA / 2)
    assert ac.epsilon([*others, own], DELTA) == all_
    split = [steps(1.0, c) for c in (150, 249, 1)]
    assert ac.epsilon([*split, *others], DELTA) == all_
    far = ThresholdGaussian(sigma=30.0, sensitivity=1.0, threshold=180)
    assert ac.epsilon([own, *others, far], DELTA) > all_
    near = ThresholdGaussian(sigma=30.0, sensitivity=1.0, threshold=20)
    assert ac.epsilon([own, near], DELTA) == math.inf


def test_two_kinds_of_steps_cost_more_than_one_and_less_than_the_worse_for_all():
    a, b = steps(1.0, 100, 0.01), steps(0.8, 100, 0.02)
    both = ac.epsilon([a, b], DELTA)
    assert ac.epsilon([b], DELTA) < both < read(0.8, 200, rate=0.02)
    replaced = steps(0.8, 100, 0.02, replace_one=True)
    assert both < ac.epsilon([a, replaced], DELTA) < math.inf


def test_a_ledger_pays_before_the_first_step_and_stops_at_its_limit():
    ledger = Ledger("clinic", limit=Budget(epsilon=1.0, delta=DELTA))
    ledger.charge(steps(2.0, 1000, 0.01), run="r", step="train", what="gradients", to="itself")
    assert 0 < ledger.epsilon() <= 1.0
    with pytest.raises(BudgetError, match="Nothing was released"):
        ledger.charge(steps(2.0, 9000, 0.01), run="r", step="more", what="g", to="itself")


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "count"), [(0.5, 50), (3.0, 1000)])
def test_the_multiplier_of_a_budget_is_the_least(relation, epsilon, count):
    replace = relation is Relation.REPLACE_ONE
    found = cal.falls_to(lambda m: read(m, count, rate=0.01, replace_one=replace), epsilon)
    assert read(found, count, rate=0.01, replace_one=replace) <= epsilon
    assert read(found * 0.995, count, rate=0.01, replace_one=replace) > epsilon


@pytest.mark.parametrize("separation", [0.1, 0.15, 0.2])
def test_a_separation_means_the_fixed_point_of_the_trade_off_curve(separation):
    mu = cal.mu_of_separation(separation)
    fixed = norm.cdf(-mu / 2)
    assert math.sqrt(2) * abs(fixed - 0.5) == pytest.approx(separation, rel=1e-9)
    assert norm.cdf(norm.ppf(1 - fixed) - mu) == pytest.approx(fixed, rel=1e-9)  # G_mu(a) = a


@pytest.mark.parametrize("bad", [0.0, -0.1, 0.71, math.nan])
def test_an_impossible_separation_is_refused(bad):
    with pytest.raises(InputError, match="separation = "):
        cal.mu_of_separation(bad)
