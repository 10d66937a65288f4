"""Noise from a budget: always with the events and the accountant that the ledger will use."""

import math
from functools import lru_cache

from siloweave.errors import BudgetError, InputError
from siloweave.privacy.accountants import epsilon_of_rho
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import Exponential, Gaussian, rho_once, shared_rho

__all__ = ["exponential_epsilon", "gaussian_sigma", "rho_for", "share_sigma"]

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
