"""Steps of DP-SGD as masked sums of integers: their grid, their sensitivity, and the noise to plan.

DP-SGD (Abadi et al. 2016) with the distributed discrete Gaussian of Kairouz, Liu and Steinke, "The
Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation" (2021). They
rotate and clip one vector of each client; here a party holds many units, rows or persons, its
vector is the sum of their clipped gradients, and neighbours differ in one unit.

A training that hides the number of rows first pays for a noisy one, from which the sampling rate
and the noise follow. Divergences of one order add up whatever follows from what; the least epsilon
over several orders is no such sum, as which order gives it depends on what was released. So every
such training is read at one order (sampled.py, `at_order`), and `order_for` names it: the best one
for a reference rate, from the budget, the steps and the price of the releases before them. All of
these are public before anything is read (decision 0014).

**Guarantee** (of `quantised`): let the exact clipped sum move by at most `clip` in L2 when a unit
is added or removed. In units of clip / levels that is `levels`. Each number is then rounded to the
nearest integer, and two numbers that are t apart become integers at most abs(t) + 1 apart, equal
ones stay equal, so the vectors are at most levels + sqrt(dimension) apart (triangle inequality:
rounding moves each by at most sqrt(dimension) / 2). Cutting off at plus and minus `span` brings no
two numbers further apart. `moved` adds a 1024th of `levels` for the arithmetic that led to the sum:
products and sums in 64-bit floats, of which a batch of n rows loses less than 2 n^2 2^-52 (and 100
times as much where the rows of a person pull against each other: what cancels is at most 100 clips
long, since her norm is taken for at least a hundredth of it), and last bits of a row's own gradient
that may depend on its place in a batch. n rows that move a place each may change by 2^-10 / n of
the clip: on CPUs not one bit was seen to change; of GPUs nothing is known, and no such claim is
made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, sqrt

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from siloweave.errors import BudgetError, InputError
from siloweave.privacy.accountants import Tally, epsilon
from siloweave.privacy.budget import Budget, Relation, falls_to
from siloweave.privacy.events import Event, SampledSharedGaussian
from siloweave.privacy.mechanisms import LARGEST_TABLE
from siloweave.privacy.sampled import WHOLE_ORDERS, at_order

#: The least and the largest clip: within them squares of norms stay within 32-bit floats.
CLIPS = (1e-6, 1e6)

#: The widest noise of a share: the most that a table holds, so that a draw is below 2^20. A table
#: ends at 13 sigma and has 2^20 entries at most (mechanisms.py).
WIDEST = 80_000.0
#: The most levels; finer ones gain nothing and leave sums less room.
FINEST = 2**18

# Part of a clip, for the arithmetic that leads to a sum; the head of this file says what it covers.
_ARITHMETIC = 2.0**-10
# Reference sampling rate: a batch of 1024 out of 16,384 rows; decision 0014 has what other rates
# pay.
_RATE = 1 / 16
# Noise multiplier with which steps cost next to nothing, so that what is left is the price of the
# releases before them.
_DROWNED = 1e6
# Relative; more than floats lose between a width of noise and its multiplier.
_ROUNDING = 1e-12
# Relative; a width above `WIDEST` by less than this is rounding, not another width.
_WIDTH_SLACK = 1e-9


def order_for(budget: Budget, *, steps: int, others: Sequence[Event]) -> int | None:
    """Return the Renyi order of a training whose sampling rate follows from a noisy row count.

    It is a whole one, for the events of all steps; None where neighbours have the same number of
    rows, so that its noisy value has the same distribution on both: all readings hold there for
    each value of it. `others` are paid from the same budget, the number of rows among them.

    **Guarantee**: the order is a function of budget, steps and `others`, all of which are fixed
    before anything is read. So the reading at this order (`sampled.at_order`) is an upper bound,
    however rate and noise follow from what was released.
    """
    if steps < 1:
        raise InputError(f"order_for: steps = {steps} must be at least 1.")
    # Under replaced rows the noisy number of rows distinguishes no neighbours: no order is needed.
    if budget.relation is Relation.REPLACE_ONE:
        return None
    paid = Tally(others)
    return _best(budget.epsilon, budget.delta - paid.delta, steps, paid.rho)


@lru_cache(maxsize=256)
def _best(epsilon: float, delta: float, steps: int, rho: float) -> int:
    """Return the order at which steps at the reference rate need the least noise."""

    def readings(multiplier: float) -> list[float]:
        price = (((multiplier, 0.0, _RATE), steps),)
        return [at_order(order, rho, price, delta) for order in WHOLE_ORDERS]

    def least_reading(multiplier: float) -> float:
        return min(readings(multiplier))

    # Where no noise is enough, the order that suits the releases before the steps: a plan for such
    # a budget is refused later, with the reason.
    multiplier = falls_to(least_reading, epsilon) or _DROWNED
    by_order = readings(multiplier)
    best: int = WHOLE_ORDERS[by_order.index(min(by_order))]
    return best


def moved(levels: int, dimension: int) -> float:
    """Return how far one unit moves `quantised` at most, in L2, with so many levels to one clip.

    **Guarantee**: see the head of this module.
    """
    # The clip, the arithmetic that led to the sum, and rounding: half a level for each number of
    # both vectors.
    return levels * (1 + _ARITHMETIC) + sqrt(dimension)


def span(parties: int) -> int:
    """Return the largest integer that a party may send, so that noisy sums stay within 32 bits.

    Noise from a table is below 2^20. InputError if so many parties leave nothing.
    """
    # A party has an equal part of 2^31, and its noise comes out of that part.
    room = 2**31 // parties - LARGEST_TABLE - 2
    if room < 2 * LARGEST_TABLE:
        raise InputError(
            f"masked sums of gradients hold at most {2**31 // (3 * LARGEST_TABLE + 2)} parties, "
            f"and {parties} were named. Put small parties together."
        )
    return room


def quantised(
    total: NDArray[np.float64], *, clip: float, levels: int, parties: int
) -> NDArray[np.int64]:
    """Round a finite clipped sum to whole units of clip / levels, which add up over parties.

    **Guarantee**: moves by at most `moved(levels, dimension)`, see the head of this module.
    """
    bound = span(parties)
    # Rounded first, then cut off: both bring no two numbers further apart than `moved` says.
    units = np.rint(total * (levels / clip))
    return np.clip(units, -bound, bound).astype(np.int64)


@dataclass(frozen=True)
class SharedSteps:
    """The plan of the noise in all steps of a training.

    Attributes:
        levels: Units of the grid that make one clip.
        share_sigma: Of each party's noise, in units.
        multiplier: Noise that the claim counts with, in units of the sensitivity.
    """

    levels: int
    share_sigma: float
    multiplier: float


def plan_steps(
    budget: Budget,
    *,
    rate: float,
    steps: int,
    shares: int,
    tolerated: int,
    dimension: int,
    others: Sequence[Event] = (),
    order: int | None = None,
) -> SharedSteps:
    """Find the least noise with which ``steps`` masked steps on Poisson samples fit the budget.

    Args:
        budget: the promise; its relation decides how steps are priced.
        rate: probability of each unit to be in a step, in (0, 1].
        steps: how many, >= 1.
        shares: parties that add noise.
        tolerated: how many of them the claim can do without.
        dimension: numbers in a step.
        others: events that are paid from the same budget.
        order: where the rate follows from a noisy number of rows: the Renyi order to read at, from
            `order_for`. None for a rate that was fixed beforehand, or is the same for neighbours.

    Raises:
        BudgetError: no noise is enough, or so much that the grid is lost in it.

    **Guarantee**: the event of these steps, with sensitivity `moved` and this order, reads together
    with ``others`` at most ``budget.epsilon`` at ``budget.delta``. With a rate that does not
    distinguish neighbours (replaced rows: the noisy number of rows has the same distribution on
    both), what follows from other noisy counts is ``dimension``, which moves levels and shares.
    Given the rate, the divergences of all such plans are those of the one with the least
    multiplier, or below, at every order at once, and that one keeps to the budget: so all readings
    hold, without an order.
    """
    noisy_shares = shares - tolerated
    read_at = UNSET if order is None else order

    def event(levels: int, sigma: float) -> SampledSharedGaussian:
        return SampledSharedGaussian(
            share_sigma=sigma,
            shares=shares,
            tolerated=tolerated,
            sensitivity=moved(levels, dimension),
            dimension=dimension,
            sampling_rate=rate,
            replace_one=budget.relation is Relation.REPLACE_ONE,
            count=steps,
            order=read_at,
        )

    def fitted(multiplier: float) -> tuple[int, float]:
        # As many levels as the widest noise allows at this multiplier: `moved` and the noise of the
        # remaining shares, solved for levels.
        room = WIDEST * sqrt(noisy_shares) / multiplier - sqrt(dimension)
        levels = max(1, min(FINEST, floor(room / (1 + _ARITHMETIC))))

        sigma = (
            multiplier * moved(levels, dimension) / sqrt(noisy_shares) * (1 + _ROUNDING)
        )
        # One width for all plans where there is a choice: one table serves them.
        if levels not in (1, FINEST):
            sigma = max(sigma, WIDEST)
        # An event of shares below 1 is refused: their sum is too far from a Gaussian.
        return levels, max(1.0, sigma)

    def cost(multiplier: float) -> float:
        levels, sigma = fitted(multiplier)
        return epsilon([*others, event(levels, sigma)], budget.delta)

    multiplier = falls_to(cost, budget.epsilon)
    levels, sigma = (0, 0.0) if multiplier is None else fitted(multiplier)

    # Levels below sqrt(dimension) would move less by a clip than by rounding.
    is_drowned = sigma > WIDEST * (1 + _WIDTH_SLACK) or levels < sqrt(dimension)
    if multiplier is None or is_drowned:
        raise BudgetError(
            f"epsilon = {budget.epsilon} at delta = {budget.delta} is too small for {steps} "
            f"steps of {dimension:,} numbers: the noise would drown the grid that they are "
            "rounded to. Take fewer steps, smaller networks, or a larger epsilon."
        )
    return SharedSteps(levels, sigma, multiplier)
