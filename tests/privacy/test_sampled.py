"""Steps on Poisson samples: against exact distributions, published figures and known faults."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from siloweave.errors import BudgetError, InputError
from siloweave.privacy import (
    Budget,
    Exponential,
    Gaussian,
    Ledger,
    Relation,
    SampledGaussian,
    ThresholdGaussian,
    sampled,
)
from siloweave.privacy import accountants as ac
from siloweave.privacy import budget as cal

DELTA = 1e-5
RATE = 0.0125  # 500 of 40,000 rows
X = np.linspace(-60, 60, 400_001)


def read(multiplier, steps, rate=RATE, delta=DELTA, **more):
    return ac.epsilon([SampledGaussian(multiplier, rate, count=steps, **more)], delta)


@pytest.mark.parametrize(
    ("multiplier", "once", "ten_times"),
    [
        (0.2, 76, 234),
        (0.1, 355, 1202),
        (0.5, 7.0, 14.6),  # the notes say 15.0; finer and finer tables say 14.6085
        (0.25, 44, 126),
        (0.5 / (2 * 2**0.5), 102, 322),  # two parts, each clipped in a batch's mean
    ],
)
def test_the_figures_of_the_soundness_notes(multiplier, once, ten_times):
    """PLD at N = 40,000, b = 500, delta = 1e-5, after one epoch and after ten."""
    assert read(multiplier, 80) == pytest.approx(once, rel=0.015)
    assert read(multiplier, 800) == pytest.approx(ten_times, rel=0.01)


def test_what_the_paper_claims_for_batch_clipping_is_refuted():
    """sigma counted as if the clipped mean moved by C, and not by 2 C."""
    claimed, true = read(0.5, 80), read(0.5 / 2, 80)
    assert true > 6 * claimed


def hockey_stick(p, q, epsilon):
    return np.maximum(p - math.exp(epsilon) * q, 0).sum() * (X[1] - X[0])


def mixture(multiplier, rate, centre):
    return (1 - rate) * norm.pdf(X, 0, multiplier) + rate * norm.pdf(X, centre, multiplier)


@pytest.mark.parametrize(("multiplier", "rate"), [(1.0, 0.1), (0.5, 0.02), (3.0, 0.5), (1.0, 1.0)])
def test_one_step_is_read_exactly_and_upwards(multiplier, rate):
    with_row, without = mixture(multiplier, rate, 1.0), norm.pdf(X, 0, multiplier)
    epsilon = read(multiplier, 1, rate=rate)
    worst = max(hockey_stick(with_row, without, epsilon), hockey_stick(without, with_row, epsilon))
    assert worst <= DELTA * (1 + 1e-4)
    less = epsilon * 0.995 - 1e-3
    assert max(hockey_stick(with_row, without, less), hockey_stick(without, with_row, less)) > DELTA


@pytest.mark.parametrize(("multiplier", "rate"), [(1.0, 0.1), (0.5, 0.02), (3.0, 0.5), (1.0, 1.0)])
def test_replacing_a_row_costs_more_and_the_price_covers_opposite_rows(multiplier, rate):
    here, there = mixture(multiplier, rate, 1.0), mixture(multiplier, rate, -1.0)
    epsilon = read(multiplier, 1, rate=rate, replace_one=True)
    assert hockey_stick(here, there, epsilon) <= DELTA
    assert hockey_stick(here, there, read(multiplier, 1, rate=rate)) > DELTA  # add/remove is less


def test_replacing_a_row_is_a_removal_and_an_addition():
    for steps in (1, 80, 2000):
        once, both = read(1.0, steps), read(1.0, steps, replace_one=True)
        assert 2 * once < both < 3 * once
    half = read(1.0, 80, delta=DELTA * 0.2)
    assert 0.2 * (1 + math.exp(half)) <= 1
    assert read(1.0, 80, replace_one=True) <= 2 * half * 1.0001


@pytest.mark.parametrize("steps", [1, 7])
def test_sampling_every_row_is_the_gaussian_mechanism(steps):
    mu = math.sqrt(steps) / 2.0
    exact = brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA,
        0,
        30,
    )
    assert exact <= read(2.0, steps, rate=1.0) <= exact * 1.002
    assert cal.gdp_epsilon(mu, DELTA) == pytest.approx(exact, rel=1e-6)


def test_a_finer_table_reads_hardly_less():
    kinds = (((0.8, 0.01), 3000),)
    coarse = sampled.from_sampling(kinds, DELTA)
    fine = sampled.from_sampling(kinds, DELTA, 32_000)
    assert fine <= coarse * (1 + 1e-6)
    assert coarse < fine * 1.002


def test_steps_compose_with_the_other_events_of_a_ledger():
    steps = SampledGaussian(1.0, RATE, count=400)
    others = [Gaussian(sigma=40.0, sensitivity=1.0, count=3), Exponential(epsilon=0.02, count=9)]
    alone, rest, all_ = (ac.epsilon(e, DELTA) for e in ([steps], others, [steps, *others]))
    assert max(alone, rest) < all_
    assert all_ <= ac.epsilon([steps], DELTA / 2) + ac.epsilon_of_rho(ac.rho(others), DELTA / 2)
    assert ac.epsilon([*others, steps], DELTA) == all_
    split = [SampledGaussian(1.0, RATE, count=c) for c in (150, 249, 1)]
    assert ac.epsilon([*split, *others], DELTA) == all_
    far = ThresholdGaussian(sigma=30.0, sensitivity=1.0, threshold=180)
    assert ac.epsilon([steps, *others, far], DELTA) > all_
    near = ThresholdGaussian(sigma=30.0, sensitivity=1.0, threshold=20)
    assert ac.epsilon([steps, near], DELTA) == math.inf


def test_two_kinds_of_steps_cost_more_than_one_and_less_than_the_worse_for_all():
    a, b = SampledGaussian(1.0, 0.01, count=100), SampledGaussian(0.8, 0.02, count=100)
    both = ac.epsilon([a, b], DELTA)
    assert ac.epsilon([b], DELTA) < both < read(0.8, 200, rate=0.02)
    replaced = SampledGaussian(0.8, 0.02, replace_one=True, count=100)
    assert both < ac.epsilon([a, replaced], DELTA) < math.inf


def test_a_ledger_pays_before_the_first_step_and_stops_at_its_limit():
    ledger = Ledger("clinic", limit=Budget(epsilon=1.0, delta=DELTA))
    afford = SampledGaussian(2.0, 0.01, count=1000)
    ledger.charge(afford, run="r", step="train", what="gradients", to="itself")
    assert 0 < ledger.epsilon() <= 1.0
    with pytest.raises(BudgetError, match="Nothing was released"):
        ledger.charge(
            SampledGaussian(2.0, 0.01, count=9000), run="r", step="more", what="g", to="itself"
        )


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("epsilon", "steps"), [(0.5, 50), (3.0, 1000)])
def test_the_multiplier_of_a_budget_is_the_least(relation, epsilon, steps):
    replace = relation is Relation.REPLACE_ONE
    found = cal.falls_to(lambda m: read(m, steps, rate=0.01, replace_one=replace), epsilon)
    assert read(found, steps, rate=0.01, replace_one=replace) <= epsilon
    assert read(found * 0.995, steps, rate=0.01, replace_one=replace) > epsilon


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
