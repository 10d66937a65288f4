"""At which Renyi order a private training is read, when a noisy number of rows decides its noise.

A training that hides the number of rows first pays for a noisy one, y. The sampling rate, and with
it the noise that the budget needs, follow from y. Divergences of one order add up whatever follows
from what; the least epsilon over several orders is no such sum, as which order gives it depends on
y. So every training is read at one order (sampled.py, `at_order`), and this file says which: a
public function of y that never falls when the rate grows, made of budget, steps and the price of
the look before anything is read. One order for all rates would be simpler, and costs up to 14
percent more noise (decision 0014).

**Guarantee** (of `order_for`): the chosen order raises delta by a factor of at most
`sampled.CHOICE`. Let y be the number of rows n plus discrete Gaussian noise of parameter s, and let
neighbours have n and n - v rows, v = 1 or -1. The loss of y alone is l = log P(y) / Q(y), and its
divergence of order a is a r, r = 1 / (2 s^2). Given y, everything else (other noisy counts, which
are independent of y, and all steps) has divergences of order a(y) that sum up, with a r, to at most
what `at_order` counts for the order a(y) and the delta d that it is read at. By its inequality,
outcome by outcome, delta is at most d F,

    F = E_P exp((a(y) - 1) l - a(y) (a(y) - 1) r).

Completing the square, P(y) exp((a - 1) l - a (a - 1) r) is the mass of the same noise at
y - n - (a - 1) v: for whole a the noise moved by a whole number. So F sums, over the stretches of y
on which a(y) is constant, the mass of noise moved by (a - 1) v. If all a(y) were equal, F = 1. At
every border between stretches F gains at most the difference of the two orders times the largest
mass of the noise, which is below 1 / (s sqrt(2 pi)). As a(y) is monotone, F <= 1 + (a_max -
a_min) / (s sqrt(2 pi)), and orders are kept so close together that this is at most 9/8.

The same holds for the masked sum of the shares of several parties, whose mass is that of one
discrete Gaussian but for factors that its price contains (`events.shared_rho`; for shares of
parameter 3 or more they are within 1e-30 of 1, and with narrower ones there is one order for all
y); and for those who know some of the shares: they see y less a constant, and s counts what
is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import floor, inf, log, log1p, log2, pi, sqrt

from siloweave.errors import InputError
from siloweave.privacy.accountants import rho as total_rho
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import Event, delta_once
from siloweave.privacy.sampled import CHOICE, rdp_at

__all__ = ["order_for"]

_LEAST_RATE = 2.0**-12  # smaller ones are read like this one
_HALVINGS = 8  # of the logarithm of the rate, from the least one to 1: 3 percent of a rate
_LARGEST = 2048
_CLOSE = 1e-4  # relative; of the noise by which two orders are compared


def order_for(
    budget: Budget, *, rate: float, steps: int, looks: Sequence[Event], rows_sigma: float
) -> int | None:
    """The order at which a training is read whose rate follows from a noisy number of rows.

    Args:
        budget: the promise.
        rate: probability of each row to be in a step, in (0, 1]; falls when the noisy number of
            rows grows, and depends on nothing else that was released.
        steps: how many, >= 1.
        looks: events that are paid from the same budget, the number of rows among them.
        rows_sigma: parameter of the discrete Gaussian noise of that number; 0 where its noise is
            not one Gaussian's.

    Returns:
        A whole order for the events of all steps; None where neighbours have the same number of
        rows, so that its noisy value has the same law on both and tells nothing: all readings
        hold there for each value of it.

    Raises:
        InputError: there are no steps, or the rate is no probability.

    **Guarantee**: see the head of this module.

    Example:
        >>> from siloweave.privacy.events import Gaussian
        >>> look = Gaussian(sigma=60.0, sensitivity=1.0)
        >>> facts = {"steps": 500, "looks": [look], "rows_sigma": 60.0}
        >>> [order_for(Budget(1.0, 1e-5), rate=rate, **facts) for rate in (0.001, 0.01, 0.3)]
        [10, 13, 18]
    """
    if not (0 < rate <= 1 and steps >= 1):
        raise InputError(
            f"order_for: rate = {rate} must lie in (0, 1], and steps = {steps} be at least 1."
        )
    if budget.relation is Relation.REPLACE_ONE:
        return None
    delta = (budget.delta - sum(map(delta_once, looks))) / CHOICE
    facts = (budget.epsilon, delta, steps, total_rho(looks))
    apart = max(0, floor((CHOICE - 1) * rows_sigma * sqrt(2 * pi)))
    return _order_for(facts, apart, max(-log2(rate), 0.0))


_Facts = tuple[float, float, int, float]


@lru_cache(maxsize=4096)
def _order_for(facts: _Facts, apart: int, halved: float) -> int:
    """By halving the logarithm of the rate: what lies between two rates has an order between."""
    low, high = -log2(_LEAST_RATE), 0.0  # how often the rate was halved, at both ends
    below = _best(facts, low)
    above = min(max(_best(facts, high), below), below + apart)
    for _ in range(_HALVINGS):
        if below == above:
            break
        middle = (low + high) / 2
        order = min(max(_best(facts, middle), below), above)
        if halved >= middle:
            high, above = middle, order
        else:
            low, below = middle, order
    return below


@lru_cache(maxsize=4096)
def _best(facts: _Facts, halved: float) -> int:
    """The order with which steps of this rate need the least noise."""
    orders = _affordable(facts)
    low, high = orders[0], orders[-1]
    while high - low > 2:
        third = (high - low) // 3
        first, second = low + third, high - third
        if _noise(facts, first, halved) <= _noise(facts, second, halved):
            high = second - 1 if second - 1 > first else first
        else:
            low = first + 1
    return min(range(low, high + 1), key=lambda order: _noise(facts, order, halved))


@lru_cache(maxsize=256)
def _affordable(facts: _Facts) -> range:
    """Orders at which the looks alone keep to the budget: neighbours, as what is left is concave.

    Where there are none, the order that is nearest to it; no noise is enough then.
    """
    left = [_left(facts, order) for order in range(2, _LARGEST + 1)]
    fit = [order for order, value in enumerate(left, start=2) if value > 0]
    return range(fit[0], fit[-1] + 1) if fit else range(2 + left.index(max(left)), _LARGEST)[:1]


def _left(facts: _Facts, order: int) -> float:
    """What an order leaves of epsilon for the divergences of all steps."""
    epsilon, delta, _, rho = facts
    if delta <= 0:
        return -inf
    return epsilon - order * rho - log1p(-1 / order) + log(delta * order) / (order - 1)


@lru_cache(maxsize=16384)
def _noise(facts: _Facts, order: int, halved: float) -> float:
    """The least noise multiplier with which all steps fit into that."""
    left = _left(facts, order) / facts[2]
    if left <= 0:
        return inf
    high = sqrt(order / (2 * left))  # as if nothing was sampled
    low, rate = high * 1e-4, 2.0**-halved
    while high > low * (1 + _CLOSE):
        middle = sqrt(low * high)
        low, high = (low, middle) if rdp_at(middle, 0.0, rate, order) <= left else (middle, high)
    return high
