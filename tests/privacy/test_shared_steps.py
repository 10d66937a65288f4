"""Masked steps on Poisson samples: their exact price, and their grid on neighbours."""

import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from siloweave.errors import BudgetError, InputError
from siloweave.privacy import accountants as ac
from siloweave.privacy import events as ev
from siloweave.privacy import sampled
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import (
    Exponential,
    Gaussian,
    SampledSharedGaussian,
    SharedGaussian,
    ThresholdGaussian,
)
from siloweave.privacy.ledger import Ledger
from siloweave.privacy.shared_steps import moved, plan_steps, quantised, span
from tests.guarantees.exact import float_masses, renyi

DELTA = 1e-5


def mass_of(sigma, shares):
    """Mass of a sum of discrete Gaussians on -reach..reach."""
    one = float_masses(sigma, int(40 * sigma))
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return total


def shifted(p, far):
    return np.concatenate([np.zeros(far), p[:-far]])


def event(sigma=8.0, shares=4, tolerated=1, far=3.0, rate=0.1, **more):
    return SampledSharedGaussian(sigma, shares, tolerated, far, 1, rate, **more)


# The price


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize(("sigma", "shares", "far"), [(4.0, 1, 3), (2.0, 3, 2), (1.0, 2, 1)])
def test_divergences_of_exact_distributions_are_never_above_the_price(rate, sigma, shares, far):
    """Both directions, at every whole order that floats can follow, with true sums of shares."""
    p = mass_of(sigma, shares)
    mixed = (1 - rate) * p + rate * shifted(p, far)
    paid = event(sigma, shares, 0, float(far), rate)
    prices = dict(zip(sampled.WHOLE_ORDERS, sampled.step_rdp(paid.multiplier, paid.excess, rate),
                      strict=True))  # fmt: skip
    inner = slice(far + int(6 * sigma), -int(6 * sigma))
    for order in (2, 3, 5, 8):
        there, back = renyi(mixed[inner], p[inner], order), renyi(p[inner], mixed[inner], order)
        assert back <= there * (1 + 1e-9)
        assert there <= prices[order] * (1 + 1e-9)
        if shares == 1:  # then nothing is given away
            assert there == pytest.approx(prices[order], rel=1e-6, abs=1e-10)


def test_a_formula_without_the_excess_would_be_too_small_for_narrow_shares():
    """The mutant that takes a sum of narrow shares for one discrete Gaussian."""
    sigma, shares = 0.55, 2
    p = mass_of(sigma, shares)
    one = float_masses(sigma * math.sqrt(2), (len(p) - 1) // 2)
    core = slice(len(p) // 2 - 6, len(p) // 2 + 7)
    ratio = np.abs(np.log(p[core] / one[core])).max()
    assert ratio > 1e-3
    assert ratio <= ev.shared_excess(sigma, shares) / 2


@pytest.mark.parametrize(("sigma", "shares"), [(0.6, 2), (0.7, 3), (0.8, 5), (1.0, 4)])
def test_a_sum_of_shares_is_as_near_to_one_gaussian_as_is_said(sigma, shares):
    p = mass_of(sigma, shares)
    one = float_masses(sigma * math.sqrt(shares), (len(p) - 1) // 2)
    core = slice(len(p) // 2 - 8, len(p) // 2 + 9)
    assert np.abs(np.log(p[core] / one[core])).max() <= ev.shared_excess(sigma, shares) / 2 + 1e-12


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("sigma", "shares", "far", "rate"), [(4.0, 1, 3, 0.1), (2.0, 3, 2, 0.4)])
def test_the_reading_covers_the_exact_privacy_curve(sigma, shares, far, rate, steps):
    p = mass_of(sigma, shares)
    mixed = (1 - rate) * p + rate * shifted(p, far)
    epsilon = ac.epsilon([event(sigma, shares, 0, float(far), rate, count=steps)], DELTA)
    for one, other in ((mixed, p), (p, mixed)):
        first, second = np.ones(1), np.ones(1)
        for _ in range(steps):  # all outcomes of all steps
            first, second = np.outer(first, one).ravel(), np.outer(second, other).ravel()
            first, second = _merged(first, second)
        assert np.maximum(first - math.exp(epsilon) * second, 0).sum() <= DELTA


def _merged(first, second, cells=4000):
    """Outcomes of nearly equal loss as one, so that products stay small; loses next to nothing."""
    keep = (first > 1e-30) & (second > 1e-30)
    first, second = first[keep], second[keep]
    place = np.round(np.log(first / second) * 2000).astype(np.int64)
    _, place = np.unique(place, return_inverse=True)
    return np.bincount(place, first), np.bincount(place, second)


@pytest.mark.parametrize(("rate", "steps"), [(0.02, 400), (0.06, 400), (0.2, 50)])
def test_it_costs_what_continuous_noise_does_and_a_little_for_orders(rate, steps):
    paid = event(sigma=300.0, shares=5, far=400.0, rate=rate, count=steps)
    alike = from_gaussian_mechanism(paid.multiplier, sampling_prob=rate).self_compose(steps)
    ours, theirs = ac.epsilon([paid], DELTA), alike.get_epsilon_for_delta(DELTA)
    assert theirs * 0.999 < ours < theirs * 1.25
    assert ours < ac.epsilon_of_rho(ac.rho([paid]), DELTA) / 3  # sampling helps


def test_missing_shares_and_wider_rows_cost_more():
    base = ac.epsilon([event(count=50)], DELTA)
    for change in ({"tolerated": 2}, {"far": 3.3}, {"rate": 0.11}, {"sigma": 7.5}, {"shares": 3},
                   {"replace_one": True}):  # fmt: skip
        assert ac.epsilon([event(count=50, **change)], DELTA) > base * 1.02


def test_replacing_a_row_is_a_removal_and_an_addition():
    for steps in (1, 40):
        once, both = (ac.epsilon([event(count=steps, replace_one=r)], DELTA) for r in (False, True))
        assert 2 * once < both < 3 * once
    mixed = ac.epsilon([event(replace_one=True), event(sigma=9.0)], DELTA)
    assert mixed > max(ac.epsilon([event(replace_one=True)], DELTA),
                       ac.epsilon([event(sigma=9.0)], DELTA))  # fmt: skip


def test_steps_compose_with_every_other_event_and_in_any_order():
    others = [
        SharedGaussian(30.0, 4, 1, 2.0, 100),
        Exponential(epsilon=0.02, count=9),
        Gaussian(sigma=40.0, sensitivity=1.0, count=3),
        SampledSharedGaussian(200.0, 1, 0, 100.0, 1, 0.02, count=30),
    ]
    split = [event(count=c) for c in (15, 24, 1)]
    all_ = ac.epsilon([event(count=40), *others], DELTA)
    assert ac.epsilon([*others, *split], DELTA) == all_
    assert max(ac.epsilon(x, DELTA) for x in ([event(count=40)], others)) < all_
    assert all_ <= ac.epsilon([event(count=40)], DELTA / 2) + ac.epsilon(others, DELTA / 2)
    escaping = ThresholdGaussian(sigma=30.0, sensitivity=1.0, threshold=180)
    assert ac.epsilon([event(), escaping], DELTA) > ac.epsilon([event()], DELTA)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": 1.5}, r"sampling_rate = 1\.5 must be at most 1"),
        ({"rate": 0.0}, "sampling_rate = 0"),
        ({"sigma": 0.9}, "share_sigma = 0.9 must be at least 1"),
        ({"tolerated": 4}, "tolerated = 4"),
        ({"far": math.inf}, "sensitivity = inf"),
        ({"count": 0}, "count = 0"),
    ],
)
def test_values_out_of_bounds_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        event(**change)


def test_a_ledger_takes_as_many_steps_as_were_planned_and_no_more():
    budget = Budget(2.0, DELTA)
    found = plan_steps(budget, rate=0.1, steps=30, shares=3, tolerated=1, dimension=50)
    step = SampledSharedGaussian(found.share_sigma, 3, 1, moved(found.levels, 50), 50, 0.1)
    ledger = Ledger("north", limit=budget)
    for number in range(30):
        ledger.charge(step, run="r", step=str(number), what="step", to="coordinator")
    assert 1.98 < ledger.epsilon() <= 2.0
    assert ledger.epsilon() == ac.epsilon(ledger.events, DELTA)
    with pytest.raises(BudgetError, match="Nothing was released"):
        ledger.charge(step, run="r", step="30", what="step", to="coordinator")


# The grid


def far_apart(make, seed, dimension=400, clip=0.7):
    """Two sums that one clipped row tells apart, placed at the worst of roundings."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=dimension) * 5
    row = rng.normal(size=dimension) * (rng.random(dimension) < 10.0 ** -(seed % 3))
    row *= clip / max(np.linalg.norm(row), 1e-30)
    return np.linalg.norm((make(base + row) - make(base)).astype(float))


@pytest.mark.parametrize("levels", [3, 100, 20_000])
def test_a_row_moves_the_integers_by_what_is_paid_for(levels):
    def make(total):
        return quantised(total, clip=0.7, levels=levels, parties=5)

    farthest = max(far_apart(make, seed) for seed in range(30))
    assert 0.9 * levels < farthest <= moved(levels, 400)


def test_the_rounding_term_is_needed():
    """Many small moves: each is half a unit, and rounds to a whole one."""
    levels = 100
    d = 4 * levels**2
    base, row = np.full(d, 0.3 / levels), np.full(d, 1 / math.sqrt(d))  # of norm 1, the clip
    a, b = (quantised(x, clip=1.0, levels=levels, parties=2) for x in (base, base + row))
    assert moved(levels, d) / 2 < np.linalg.norm((b - a).astype(float)) <= moved(levels, d)
    assert np.linalg.norm((b - a).astype(float)) > 1.9 * levels


def test_sums_of_all_parties_stay_within_32_bits():
    for parties in (1, 5, 500):
        huge = quantised(np.array([1e30, -1e30]), clip=1.0, levels=10, parties=parties)
        assert abs(huge).max() + 2**20 < 2**31 // parties
        assert abs(huge).max() == span(parties)
    with pytest.raises(InputError, match="at most 682 parties"):
        span(10_000)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("epsilon", [0.5, 3.0, 200.0])
def test_the_plan_is_the_least_noise_within_the_budget(epsilon, relation):
    budget, look = Budget(epsilon, DELTA, relation=relation), SharedGaussian(60.0, 5, 1, 4.0, 500)
    facts = {"shares": 5, "tolerated": 1, "dimension": 5_000}
    found = plan_steps(budget, rate=0.05, steps=200, others=[look], **facts)
    replaced = relation is Relation.REPLACE_ONE

    def cost(sigma):
        step = SampledSharedGaussian(sigma, 5, 1, moved(found.levels, 5_000), 5_000, 0.05, replaced,
                                     200)  # fmt: skip
        return ac.epsilon([look, step], DELTA)

    assert cost(found.share_sigma) <= epsilon < cost(found.share_sigma * 0.995)
    assert 13 * found.share_sigma < 2**20


def test_a_budget_whose_noise_would_drown_the_grid_is_refused():
    with pytest.raises(BudgetError, match="drown the grid"):
        plan_steps(Budget(0.01, DELTA), rate=1.0, steps=5_000, shares=2, tolerated=1,
                   dimension=10**6)  # fmt: skip
