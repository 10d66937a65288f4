"""Noise from a budget: always with the events and the accountant that the ledger will use."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from statistics import NormalDist

from msgspec import UNSET

from siloweave.errors import BudgetError, InputError
from siloweave.privacy.accountants import Tally, epsilon, epsilon_of_rho, round_up
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import (
    Event,
    Exponential,
    Gaussian,
    SampledGaussian,
    rho_once,
    shared_rho,
)
from siloweave.privacy.sampled import from_rdp, separation_of

__all__ = [
    "budget_of_separation",
    "exponential_epsilon",
    "falls_to",
    "gaussian_sigma",
    "gdp_epsilon",
    "mu_of_separation",
    "rho_for",
    "sampled_multiplier",
    "sampled_steps",
    "separated_multiplier",
    "separated_steps",
    "share_sigma",
]

_CLOSE = 1e-3  # relative; how much more noise than needed a calibrated step may have
_CLOSEST = 1e-11  # relative; more than what a search for a root may be below it
_WIDEST = 1e6  # noise multiplier; nothing is learned from less signal
_MOST_STEPS = 2**31
_SPARE = 1e-9  # relative part of rho kept back, so that adding up shares of it cannot overshoot


def rho_for(budget: Budget) -> float:
    """The largest zCDP that a ledger reads as at most ``budget.epsilon`` at ``budget.delta``.

    Args:
        budget: the promise.

    Returns:
        rho; infinite for a budget without privacy.

    Raises:
        BudgetError: the budget is too small to release anything.

    **Guarantee**: ``epsilon`` of any events with this total zCDP is never above
    ``budget.epsilon``. One part in a billion is kept back for the rounding of sums.

    Example:
        >>> round(rho_for(Budget(epsilon=1.0, delta=1e-5)), 4)
        0.0306
    """
    if not budget.private:
        return math.inf
    return _rho_for(budget.epsilon, budget.delta)


@lru_cache(maxsize=4096)
def _rho_for(epsilon: float, delta: float) -> float:
    low, high = 0.0, min(1.0, epsilon)
    while epsilon_of_rho(high, delta) <= epsilon:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if high - low <= 1e-12 * high or middle in (low, high):
            break
        if epsilon_of_rho(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    if low == 0:
        raise BudgetError(
            f"rho_for: epsilon = {epsilon} at delta = {delta} leaves no zCDP to spend. "
            "Raise epsilon or delta."
        )
    return low * (1 - _SPARE)


def _usable(name: str, rho: float) -> None:
    if not (math.isfinite(rho) and rho > 0):
        raise InputError(
            f"{name}: rho = {rho} must be finite and greater than 0. "
            "A run without privacy adds no noise and records a NonPrivate event."
        )


def gaussian_sigma(rho: float, sensitivity: float) -> float:
    """The least discrete Gaussian noise that costs at most ``rho``: sensitivity / sqrt(2 rho).

    Args:
        rho: zCDP to spend on one release, > 0.
        sensitivity: L2 sensitivity of the release, > 0.

    Returns:
        sigma, in the unit of the numbers released.

    **Guarantee**: ``Gaussian(sigma, sensitivity)`` is priced at no more than ``rho``.

    Example:
        >>> gaussian_sigma(0.5, 3.0)
        3.0
    """
    _usable("gaussian_sigma", rho)
    sigma = sensitivity / math.sqrt(2 * rho)
    while rho_once(Gaussian(sigma=sigma, sensitivity=sensitivity)) > rho:
        sigma = math.nextafter(sigma, math.inf)
    return sigma


def exponential_epsilon(rho: float) -> float:
    """The largest parameter of an exponential mechanism that costs at most ``rho``: sqrt(8 rho).

    **Guarantee**: ``Exponential(epsilon)`` is priced at no more than ``rho``.

    Example:
        >>> exponential_epsilon(0.125)
        1.0
    """
    _usable("exponential_epsilon", rho)
    epsilon = math.sqrt(8 * rho)
    while rho_once(Exponential(epsilon=epsilon)) > rho:
        epsilon = math.nextafter(epsilon, 0)
    return epsilon


@lru_cache(maxsize=4096)
def share_sigma(
    rho: float, *, sensitivity: float, shares: int, tolerated: int, dimension: int
) -> float:
    """The noise each party adds so that what remains without ``tolerated`` of them costs ``rho``.

    Args:
        rho: zCDP to spend on one masked sum, > 0.
        sensitivity: L2 sensitivity of the sum, > 0.
        shares: parties that add noise.
        tolerated: shares that may be missing or known to colluders, below ``shares``.
        dimension: numbers in the sum.

    Returns:
        sigma of one share, at least 1 (so a generous ``rho`` is not used up entirely).

    **Guarantee**: ``SharedGaussian`` with these values is priced at no more than ``rho``.

    Example:
        >>> round(share_sigma(0.005, sensitivity=1.0, shares=5, tolerated=1, dimension=10), 6)
        5.0
    """
    _usable("share_sigma", rho)
    left = shares - tolerated
    if not 0 <= tolerated < shares:
        raise InputError(
            f"share_sigma: tolerated = {tolerated} must be at least 0 and below shares = {shares}."
        )
    low = max(1.0, sensitivity / math.sqrt(2 * rho * left))
    if shared_rho(low, left, sensitivity, dimension) <= rho:
        return low
    high = low
    while shared_rho(high, left, sensitivity, dimension) > rho:
        low, high = high, high * 1.01
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if shared_rho(middle, left, sensitivity, dimension) <= rho:
            high = middle
        else:
            low = middle
    return high


def sampled_multiplier(
    budget: Budget,
    *,
    rate: float,
    steps: int,
    others: Sequence[Event] = (),
    order: int | None = None,
) -> float:
    """The least noise multiplier with which ``steps`` Poisson sampled steps cost the budget.

    Args:
        budget: the promise; its relation decides how steps are priced.
        rate: probability of each row to be in a step, in (0, 1].
        steps: how many, >= 1.
        others: events that are paid from the same budget.
        order: where the rate follows from a noisy number of rows: the Renyi order to read at, from
            `shared_steps.order_for`. None for a rate that was fixed beforehand.

    Returns:
        The multiplier, at most 0.1 percent above the least one.

    Raises:
        BudgetError: no noise is enough; the message says what is left by ``others``.

    **Guarantee**: the event with this multiplier and order, together with ``others``, reads at
    most ``budget.epsilon`` at ``budget.delta``.

    Example:
        >>> round(sampled_multiplier(Budget(epsilon=1.0, delta=1e-5), rate=0.01, steps=100), 1)
        0.9
    """

    def whole(multiplier: float) -> float:
        return epsilon([*others, _step(budget, multiplier, rate, steps, order)], budget.delta)

    with _quiet():
        quick = _by_renyi(budget, rate, steps, others) if order is None else None
        found = falls_to(quick or whole, budget.epsilon)
        if quick and (found is None or not 0.98 <= whole(found) / budget.epsilon <= 1):
            found = falls_to(whole, budget.epsilon, found or 1.0)
    if found is None:
        raise BudgetError(
            f"sampled_multiplier: epsilon = {budget.epsilon} at delta = {budget.delta} cannot pay "
            f"for {steps} steps with any noise: the other releases cost "
            f"{epsilon(others, budget.delta)}. Raise epsilon or delta, or leave others out."
        )
    return found


def _by_renyi(
    budget: Budget, rate: float, steps: int, others: Sequence[Event]
) -> Callable[[float], float] | None:
    """The reading that is mostly the least one beside others, without the slower ones."""
    tally = Tally(others)
    sampled_too = any(event.step is not None for event in others)
    replaced = budget.relation is Relation.REPLACE_ONE
    if replaced or sampled_too or tally.delta or not 0 < tally.rho < math.inf:
        return None
    return lambda multiplier: round_up(
        from_rdp(tally.rho, (((multiplier, rate), steps),), budget.delta)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Orders at which a series does not converge are left out, which needs no message."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def falls_to(cost: Callable[[float], float], target: float, start: float = 1.0) -> float | None:
    """A number whose cost is at most the target, and 0.1 percent less of it would be more.

    The cost falls, nearly as a power: a line through two points on logarithmic axes is tried
    first, between bounds that halve when it does not help.
    """
    low, high = start, start
    while cost(high) > target:
        low, high = high, 2 * high
        if high > _WIDEST:
            return None
    while low >= high:
        low /= 2
        if cost(low) <= target:
            high = low
        if high < 1e-3:
            return high
    while high > low * (1 + _CLOSE):
        above, below = (math.log(max(cost(x) / target, 1e-300)) for x in (low, high))
        part = above / (above - below) if math.isfinite(above) and above > below else 0.5
        base, width = low, math.log(high / low)
        for share in (part + 0.3 * _CLOSE / width, part - 0.3 * _CLOSE / width, 0.5):
            middle = base * math.exp(width * share)
            done = share == 0.5 and high < low * math.exp(width / 2)
            if not done and low < middle < high:
                low, high = (low, middle) if cost(middle) <= target else (middle, high)
    return high


def sampled_steps(
    budget: Budget, *, rate: float, multiplier: float, others: Sequence[Event] = ()
) -> int:
    """The most Poisson sampled steps that a noise multiplier can pay for; all fixed beforehand.

    Args:
        budget: the promise; its relation decides how steps are priced.
        rate: probability of each row to be in a step, in (0, 1].
        multiplier: noise multiplier, > 0.
        others: events that are paid from the same budget.

    Returns:
        How many, >= 1; at most 0.1 percent fewer than the most.

    Raises:
        BudgetError: not even one step fits; the message says what would.

    **Guarantee**: the event with these steps, together with ``others``, reads at most
    ``budget.epsilon`` at ``budget.delta``.

    Example:
        >>> sampled_steps(Budget(epsilon=1.0, delta=1e-5), rate=0.01, multiplier=2.0) > 1000
        True
    """

    def fits(steps: int) -> bool:
        event = _step(budget, multiplier, rate, steps)
        return epsilon([*others, event], budget.delta) <= budget.epsilon

    if not fits(1):
        one = epsilon([*others, _step(budget, multiplier, rate, 1)], budget.delta)
        needed = sampled_multiplier(budget, rate=rate, steps=1, others=others)
        raise BudgetError(
            f"sampled_steps: epsilon = {budget.epsilon} at delta = {budget.delta} is too small "
            f"for a single step with noise multiplier {multiplier:g} at rate {rate:g}, which "
            f"costs {one}. Feasible: a multiplier of at least {needed:.4g} for one step, or "
            f"epsilon = {one} for this one."
        )
    return _most(fits)


def mu_of_separation(separation: float) -> float:
    """The mu of Gaussian differential privacy whose trade-off curve has this separation.

    The curve meets the diagonal at a = Phi(-mu/2), and separation = sqrt(2) abs(a - 1/2) (Dong,
    Roth and Su, "Gaussian Differential Privacy", 2022, for the curve).

    Args:
        separation: in (0, sqrt(2)/2).

    Example:
        >>> [round(mu_of_separation(s), 4) for s in (0.1, 0.15, 0.2)]
        [0.3564, 0.5382, 0.7245]
    """
    if not 0 < separation < math.sqrt(0.5):
        raise InputError(
            f"mu_of_separation: separation = {separation} must lie between 0 (perfect privacy) "
            "and 0.7071 (none)."
        )
    return -2 * NormalDist().inv_cdf(0.5 - separation / math.sqrt(2))


def budget_of_separation(
    separation: float, delta: float, *, relation: Relation = Relation.ADD_REMOVE
) -> Budget:
    """The budget whose epsilon a Gaussian mechanism of this separation has at ``delta``.

    Separation 0.1, 0.15 and 0.2 are how Zhu et al. ("Quantifying and Mitigating Privacy Risks for
    Tabular Generative Models", 2024) state budgets. This is the exchange rate: mu of
    :func:`mu_of_separation`, and epsilon of :func:`gdp_epsilon`.

    What it means and what not: one number stands for a whole trade-off curve, and so does the
    other. A run that keeps to the budget has *this* epsilon at *this* delta; its own curve is not
    that of a Gaussian, so its separation may be below or above the one asked for. What follows
    from (epsilon, delta) alone is a separation of at most sqrt(1/2) (e^epsilon - 1 + 2 delta) /
    (e^epsilon + 1). For steps that keep to the separation itself use
    :func:`separated_multiplier`.

    Args:
        separation: in (0, sqrt(2)/2).
        delta: of the budget, in (0, 1).
        relation: which tables are neighbours.

    Example:
        >>> [round(budget_of_separation(s, 1e-5).epsilon, 2) for s in (0.1, 0.15, 0.2)]
        [1.37, 2.16, 3.03]
    """
    return Budget(gdp_epsilon(mu_of_separation(separation), delta), delta, relation=relation)


def gdp_epsilon(mu: float, delta: float) -> float:
    """The epsilon at ``delta`` of mu-Gaussian differential privacy.

    **Guarantee**: exact up to rounding, which is upwards.

    Example:
        >>> round(gdp_epsilon(mu_of_separation(0.1), 1e-5), 3)
        1.368
    """
    from dp_accounting import get_epsilon_gaussian

    return round_up(get_epsilon_gaussian(1 / mu, delta) * (1 + _CLOSEST))


def separated_multiplier(separation: float, *, rate: float, steps: int) -> float:
    """The least noise multiplier with which ``steps`` sampled steps keep to a separation.

    Args:
        separation: sqrt(2) abs(a - 1/2), in (0, sqrt(2)/2); see :func:`mu_of_separation`.
        rate: probability of each row to be in a step, in (0, 1].
        steps: how many, >= 1.

    **Guarantee**: for neighbours by adding or removing a row, computed from the privacy loss
    distribution and not from a limit theorem.

    Example:
        >>> round(separated_multiplier(0.1, rate=1.0, steps=1), 2)
        2.81
    """
    mu_of_separation(separation)
    found = _least(lambda m: separation_of((((m, rate), steps),)) <= separation, _WIDEST)
    if found is None:
        raise BudgetError(
            f"separated_multiplier: separation = {separation} cannot pay for {steps} steps with "
            "any noise. Take fewer steps, or a larger separation."
        )
    return found


def separated_steps(separation: float, *, rate: float, multiplier: float) -> int:
    """The most sampled steps with which a noise multiplier keeps to a separation.

    Raises:
        BudgetError: not even one step fits; the message says what would.

    **Guarantee**: that of :func:`separated_multiplier`.
    """
    mu_of_separation(separation)

    def fits(steps: int) -> bool:
        return separation_of((((multiplier, rate), steps),)) <= separation

    if not fits(1):
        needed = separated_multiplier(separation, rate=rate, steps=1)
        raise BudgetError(
            f"separated_steps: separation = {separation} is too small for a single step with "
            f"noise multiplier {multiplier:g} at rate {rate:g}, whose separation is "
            f"{separation_of((((multiplier, rate), 1),)):.4g}. Feasible: a multiplier of at least "
            f"{needed:.4g} for one step."
        )
    return _most(fits)


def _step(
    budget: Budget, multiplier: float, rate: float, steps: int, order: int | None = None
) -> SampledGaussian:
    return SampledGaussian(
        noise_multiplier=multiplier,
        sampling_rate=rate,
        replace_one=budget.relation is Relation.REPLACE_ONE,
        count=steps,
        order=UNSET if order is None else order,
    )


def _least(fits: Callable[[float], bool], most: float) -> float | None:
    """The least positive number that fits, within 0.1 percent; None if ``most`` does not."""
    high = 1.0
    while not fits(high):
        high *= 2
        if high > most:
            return None
    low = high / 2
    while fits(low):
        low, high = low / 2, low
        if high < 1e-3:
            return high
    while high > low * (1 + _CLOSE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _most(fits: Callable[[int], bool]) -> int:
    """The largest whole number that fits, when 1 does; within 0.1 percent."""
    low, high = 1, 2
    while high <= _MOST_STEPS and fits(high):
        low, high = high, 2 * high
    while high - low > max(1, int(_CLOSE * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
