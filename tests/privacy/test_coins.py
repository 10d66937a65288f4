"""Noise of coins: masses by enumeration, cost by brute force, and what ledgers make of it."""

from itertools import product
from math import exp, inf, nan

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import logsumexp

from siloweave.errors import BudgetError, InputError
from siloweave.privacy import accountants
from siloweave.privacy import coins as coins_module
from siloweave.privacy.budget import Budget, Relation, rho_for
from siloweave.privacy.coins import MOST_SIGMA, Coins, coins_for, cost_of, cost_of_rows, masses
from siloweave.privacy.events import (
    Gaussian,
    SharedCoins,
    UnitSharedCoins,
    UnitUpperBound,
    UpperBound,
)

TAIL = 2.0**-40
DELTA = 1 / 45_222


@pytest.mark.parametrize("coins", [Coins((1,), 2), Coins((1, 3), 4), Coins((1, 2, 4, 3), 2)])
def test_masses_are_those_of_every_way_that_coins_fall(coins):
    weights = np.array(coins.weights * coins.copies)
    found = np.zeros(2 * coins.half + 1)
    for bits in product((0, 1), repeat=coins.number):
        found[weights @ np.array(bits)] += 2.0**-coins.number
    np.testing.assert_array_equal(masses(coins), found)
    places = np.arange(-coins.half, coins.half + 1)
    assert np.sqrt(places**2 @ found) == pytest.approx(coins.sigma, rel=1e-12)


def cut_off(coins, tail):
    """Distributions of N + 1 and N: all that both may be, but for the ends, which are returned."""
    every = masses(coins)
    ends = max(1, int((np.cumsum(every) <= tail).sum()))
    q, p = np.append(every, 0.0), np.append(0.0, every)
    inside = slice(ends, len(q) - ends)
    return p[inside], q[inside], max(1 - p[inside].sum(), 1 - q[inside].sum())


def divergence(p, q, alpha):
    p, q = np.log(p / p.sum()), np.log(q / q.sum())
    return float(logsumexp(alpha * p + (1 - alpha) * q) / (alpha - 1))


CASES = [
    (Coins((1,), 64), 4, TAIL), (Coins((1, 2), 24), 4, TAIL), (Coins((1, 2, 4, 5), 12), 12, TAIL),
    (coins_for(26.0, 12, TAIL), 12, TAIL), (coins_for(95.0, 41, TAIL), 41, TAIL),
    (Coins((1, 5), 8), 3, 2.0**-20),
]  # fmt: skip


@pytest.mark.parametrize(("coins", "order", "tail"), CASES)
def test_the_cost_is_an_upper_bound_and_tight(coins, order, tail):
    cost = cost_of(coins, order, tail)
    p, q, _ = cut_off(coins, tail)
    orders = 1 + np.geomspace(1e-4, order - 1, 1500)
    for one, other in ((p, q), (q, p)):
        ratios = [divergence(one, other, alpha) / alpha for alpha in orders]
        assert max(ratios) <= cost.rho * (1 + 1e-7)
        assert max(ratios) > cost.rho * (1 - 2e-3)


def rho_in_blocks(monkeypatch, *facts):
    monkeypatch.setattr("siloweave.privacy.coins._BLOCKS", 64)
    return cost_of.__wrapped__(*facts).rho


@pytest.mark.parametrize(("coins", "order", "tail"), CASES[3:5])
def test_neighbouring_numbers_are_taken_together_upwards(coins, order, tail, monkeypatch):
    """Of noise as wide as this, in blocks of two and eight numbers, as wider noise is."""
    alone = cost_of(coins, order, tail).rho
    assert len(masses(coins)) > 2 * 64
    assert alone < rho_in_blocks(monkeypatch, coins, order, tail) < alone * (1 + 5e-3)


def test_means_of_blocks_would_be_too_cheap(monkeypatch):
    """Else the test above could not fail."""
    real = coins_module._in_blocks

    def means(p, loss):
        p, loss = (one.reshape(2, -1) for one in real(p, loss))
        return p.sum(axis=0), (p * loss).sum(axis=0) / p.sum(axis=0)

    monkeypatch.setattr(coins_module, "_in_blocks", means)
    coins, order, tail = CASES[4]
    assert rho_in_blocks(monkeypatch, coins, order, tail) < cost_of(coins, order, tail).rho


@pytest.mark.parametrize("sigma", [300.0, 3_000.0, MOST_SIGMA])
def test_the_widest_noise_costs_what_a_gaussian_does(sigma):
    """Where K is 1e-13 at the smallest order, far below what 1 + K could hold."""
    coins = Coins((1, *(2**k for k in range(1, round(np.log2(sigma)) - 1))), 12)
    cost = cost_of(coins, 8, TAIL)
    assert 1 <= cost.rho * 2 * coins.sigma**2 < 1.02


@pytest.mark.parametrize(("coins", "order", "tail"), CASES)
def test_what_escapes_is_no_more_than_is_said(coins, order, tail):
    *_, outside = cut_off(coins, tail)
    cost = cost_of(coins, order, tail)
    assert outside <= cost.escape + 1e-15
    ends = max(tail, masses(coins)[0])
    assert 0 < cost.escape <= 2 * ends * (1 + 1e-9)


def test_weights_that_leave_gaps_hide_nothing():
    """A number that only one of two neighbours can be shows which it is."""
    assert cost_of(Coins((2,), 8), 4, 2.0**-20) == (inf, 1.0)


@pytest.mark.parametrize("sigma", [26.0, 55.0, 95.0, 250.0])
@pytest.mark.parametrize("order", [4, 8, 16])
def test_few_coins_cost_what_a_gaussian_does_and_are_hardly_wider(sigma, order):
    coins = coins_for(sigma, order, TAIL)
    cost = cost_of(coins, order, TAIL)
    assert cost.rho <= 1 / (2 * sigma**2)
    assert cost.escape <= 2 * TAIL * (1 + 1e-9)
    assert 1 <= coins.sigma / sigma < 1.0075
    assert coins.copies % 2 == 0
    assert coins.number <= 160


@pytest.mark.parametrize(
    ("sigma", "order", "most"), [(3.0, 4, 1.06), (5.0, 8, 1.03), (8.0, 16, 1.02), (26.0, 41, 1.02)]
)
def test_narrow_noise_costs_more_coins_and_little_width(sigma, order, most):
    coins = coins_for(sigma, order, TAIL)
    assert cost_of(coins, order, TAIL).rho <= 1 / (2 * sigma**2)
    assert coins.sigma / sigma < most


@pytest.mark.parametrize("sigma", [0.0, -1.0, nan, inf, MOST_SIGMA * 1.01])
def test_a_width_that_no_coins_have_is_refused(sigma):
    with pytest.raises(BudgetError, match=f"sigma = {sigma:g} at orders up to 8 cannot"):
        coins_for(sigma, 8, TAIL)


# Several rows of a person


def spread_over_cells(total, most=None):
    """All ways to write a number as a sum of numbers that fall."""
    if total == 0:
        yield ()
    for first in range(min(total, most or total), 0, -1):
        yield from ((first, *rest) for rest in spread_over_cells(total - first, first))


@pytest.mark.parametrize(("coins", "order", "tail"), CASES[1:5])
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_the_cost_of_a_person_covers_every_way_to_spread_her_rows_over_cells(
    coins, order, tail, rows
):
    """Divergences and escapes of numbers that move by a, from the masses, added up over cells."""
    cost, every = cost_of_rows(coins, order, tail, rows), masses(coins)
    alphas = 1 + np.geomspace(1e-3, order - 1, 60)
    found, escapes = {}, {}
    for a in range(1, rows + 1):
        ends = max(a, int((np.cumsum(every) <= tail).sum()))
        q, p = np.append(every, np.zeros(a)), np.append(np.zeros(a), every)
        inside = slice(ends, len(q) - ends)
        found[a] = np.array([divergence(p[inside], q[inside], alpha) for alpha in alphas])
        escapes[a] = max(1 - p[inside].sum(), 1 - q[inside].sum())
    spreads = list(spread_over_cells(rows))
    worst = max(float((sum(found[a] for a in one) / alphas).max()) for one in spreads)
    assert worst <= cost.rho * (1 + 1e-9) < 1.2 * worst
    assert max(sum(escapes[a] for a in one) for one in spreads) <= cost.escape * (1 + 1e-9)


@pytest.mark.parametrize("rows", [1, 2, 5, 10])
def test_coins_for_a_person_cost_what_a_gaussian_of_all_her_rows_does(rows):
    coins = coins_for(95.0 * rows, 41, TAIL, rows)
    made = UnitSharedCoins(coins.weights, coins.copies, 41, TAIL, "pairs", rows=rows)
    gaussian = Gaussian(95.0 * rows, float(rows))
    assert 0.97 * gaussian.rho < made.rho <= gaussian.rho
    assert made.delta <= 2 * rows * TAIL * (1 + 1e-6)
    forgotten = SharedCoins(coins.weights, coins.copies, 41, TAIL, "pairs")
    assert forgotten.rho * rows**2 == pytest.approx(made.rho, rel=0.03)


# In a ledger


def event(sigma, count, name, order=41):
    coins = coins_for(sigma, order, TAIL)
    return SharedCoins(coins.weights, coins.copies, order, TAIL, name, count)


def exact(events, delta):
    """Epsilon of many tables, from the masses themselves, pessimistic by dp_accounting's grid."""
    total = None
    for one in events:
        log = dict(enumerate(np.log(masses(one.coins)).tolist()))
        single = pld.from_two_probability_mass_functions(log, {i + 1: x for i, x in log.items()})
        many = single.self_compose(one.count)
        total = many if total is None else total.compose(many)
    return total.get_epsilon_for_delta(delta)


def test_a_ledger_of_coins_is_above_the_exact_loss_and_reads_what_gaussians_would():
    events = [event(95.0, 120, "all pairs"), event(55.0, 56, "planned")]
    ours, true = accountants.epsilon(events, DELTA), exact(events, DELTA)
    plain = [
        Gaussian(sigma=95.0, sensitivity=1.0, count=120),
        Gaussian(sigma=55.0, sensitivity=1.0, count=56),
    ]
    assert true < ours < 1.1 * true  # what the conversion of zCDP loses, of Gaussians too
    assert ours == pytest.approx(accountants.epsilon(plain, DELTA), rel=0.015)
    assert accountants.Tally(events).delta < 1e-3 * DELTA


def test_orders_above_the_largest_are_not_read():
    """Else a small delta would be read where nothing is claimed."""
    low, high = event(95.0, 4, "a", order=4), event(95.0, 4, "a", order=64)
    assert accountants.epsilon([low], 1e-6) > 2 * accountants.epsilon([high], 1e-6)
    mixed = accountants.epsilon([low, Gaussian(sigma=200.0, sensitivity=1.0)], 1e-6)
    assert mixed > accountants.epsilon([low], 1e-6)
    assert accountants.epsilon([high], accountants.Tally([high]).delta) == inf
    exact_rho = accountants.Tally([low]).rho
    alpha = 4.0  # the order of the reading, by hand
    spent = exact_rho * alpha + np.log1p(-1 / alpha) - np.log(1e-6 * alpha) / (alpha - 1)
    assert spent <= accountants.epsilon([low], 1e-6) < 1.04 * spent  # the orders are a grid


def test_a_joint_release_counts_once_and_a_repeated_one_twice():
    one, two, own = event(55.0, 3, "r/1"), event(55.0, 3, "r/2"), Gaussian(9.0, 1.0)
    assert accountants.of_one_person([[one, own], [one, own]]) == [own, own, one]
    together = accountants.of_one_person([[one, two], [one], [two, own]])
    assert sorted(map(repr, together)) == sorted(map(repr, [one, two, own]))
    assert accountants.of_one_person([[one, one], [one]]) == [one, one]
    other = event(55.0, 2, "r/1")  # of the same name, and not the same release
    assert len(accountants.of_one_person([[one], [other]])) == 2
    assert accountants.of_one_person([]) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"copies": 3}, "must be an even"),
        ({"weights": ()}, "weights = 0 must be at least 1"),
        ({"weights": (1, 0)}, "weights = 0 must be at least 1"),
        ({"weights": (2**23,), "copies": 8}, "all weights together at most"),
        ({"copies": 0}, "copies = 0"),
        ({"count": 0}, "count = 0"),
        ({"tail": 0.0}, "tail = 0.0"),
        ({"tail": 1e-3}, "tail = 0.001 must be at most"),
        ({"largest_order": 1}, "largest_order = 1 from 2"),
        ({"largest_order": 2**30}, "from 2 to 1,048,576"),
    ],
)
def test_coins_that_cannot_be_are_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        SharedCoins(**({"weights": (1, 2), "copies": 4, "largest_order": 8, "tail": 1e-9,
                        "release": "r"} | wrong))  # fmt: skip


# An upper bound of a number


@pytest.mark.parametrize("person", [1, 2, 5])
@pytest.mark.parametrize("sigma", [1.0, 2.5, 7.0])
@pytest.mark.parametrize("margin", [9, 12])
def test_an_upper_bound_of_rows_costs_no_more_than_is_said(sigma, margin, person):
    bound = UpperBound(sigma, int(margin * sigma))
    if person > 1:
        sigma *= person
        bound = UnitUpperBound(sigma, int(margin * sigma) + person - 1, person)
    reach = np.arange(-int(40 * sigma), int(40 * sigma) + 1)
    noise = np.exp(-(reach**2) / (2 * sigma**2))
    noise /= noise.sum()

    def of(rows, size=200 * int(sigma + 1)):
        found = np.zeros(size)
        np.add.at(found, np.maximum(rows, rows + bound.margin + reach), noise)
        return found

    p, q = of(5), of(5 + person)
    inside = (np.arange(len(p)) > 5 + person) & (p > 0) & (q > 0)
    shown = [1 - x[inside].sum() for x in (p, q)]
    assert max(shown) <= bound.delta + 1e-15
    for one, other in ((p, q), (q, p)):
        for alpha in 1 + np.geomspace(1e-6, 60, 200):
            found = divergence(one[inside], other[inside], alpha)
            assert found <= alpha * bound.rho * (1 + 1e-7) + 1e-9
    assert bound.rho < 1.01 * person**2 / (2 * sigma**2)
    epsilon = accountants.epsilon([bound], 1e-6)
    for one, other in ((p, q), (q, p)):
        assert np.maximum(one - exp(epsilon) * other, 0).sum() <= 1e-6


def test_a_bound_without_a_margin_is_refused():
    with pytest.raises(InputError, match=r"margin = 7 must be at least 8 sigma = 8\.0"):
        UpperBound(1.0, 7)
    with pytest.raises(InputError, match=r"sigma = 0\.0"):
        UpperBound(0.0, 7)


def test_coins_of_a_whole_budget_meet_it():
    """What a study would spend on pairs of one table, read from its ledger."""
    budget = Budget(1.0, 1e-6, relation=Relation.REPLACE_ONE)
    rho = rho_for(Budget(1.0, 1e-6 * (1 - 1e-3)))
    sigma = float(np.sqrt(2 * 50 / (2 * rho)))  # of 50 tables, in each of which two numbers move
    spent = accountants.epsilon([event(sigma, 2 * 50, "all")], budget.delta)
    assert 0.97 < spent <= 1.0
