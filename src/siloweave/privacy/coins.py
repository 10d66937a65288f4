"""Noise of weighted coins: its exact distribution, what it costs, and which coins have a width.

In protocols/secure_products.py a number gets the noise

    N = sum over coins of w (b - 1/2),        b = 0 or 1 with probability 1/2 each,

and nobody knows a coin alone. Weights come as `copies` of one list 1, 2, 4, ..., rest, so that N is
a sum of that many nearly uniform integers (after Dwork, Kenthapadi, McSherry, Mironov and Naor
2006, "Our data, ourselves: privacy via distributed noise generation", whose coins all weigh 1).
Such a sum is bounded, so it has no concentrated privacy. It has truncated concentrated privacy
(Bun, Dwork, Rothblum and Steinke 2018, "Composable and versatile privacy via truncated CDP"): but
for a small probability, D_alpha <= rho alpha at all orders below a largest one. That composes by
adding up rho, also where a width is chosen after earlier answers.

**Guarantee**: `CoinCost.rho` and `CoinCost.escape` are upper bounds, from the exact masses of N.
With P the distribution of N + 1 and Q that of N, both are restricted to the numbers that both may
be and that are not in the outermost tails; `escape` is at least the probability of all others. Let
K(alpha) = (alpha - 1) D_alpha(P || Q) of the restricted pair, which is convex in alpha, and
g(alpha) = alpha (alpha - 1). K is computed on a grid. Between two points a < b of it, K lies below
its chord, which is at most r times the chord of g, r the larger of K/g at both; and the chord of g
exceeds g by (b - a)^2 / 4 at most. Hence D_alpha / alpha <= r (1 + (b - a)^2 / (4 g(a))) there.
Below the first point a, D_alpha <= D_a as D grows with alpha, and alpha >= 1. N has the same
distribution as -N, so D_alpha(Q || P) is the same. Of wide noise, neighbouring numbers are taken
together in blocks: exp is below its chord, so K grows where a block's mass is moved to the least
and the largest loss in it, as much to each as leaves the mean where it was.

A person has up to k rows, which add whole numbers a_1, a_2, ... with a sum of at most k to the
cells of a table. Cells have independent noise, so divergences add up, and so do escapes. With rho_a
the rho of a number that moves by a (the same computation with N + a in place of N + 1), the table
costs at most the largest sum of rho_a over all ways to write k as a sum, which `cost_of_rows`
computes, and likewise for the escape. The rows of a person mostly cost most in one cell, as with
Gaussian noise, where rho_a is a^2 rho_1; but that is computed and not assumed.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log, log1p, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from siloweave.errors import BudgetError

Masses = npt.NDArray[np.float64]

_FIRST = 5e-4  # of the grid of orders, above 1
_RATIO = 1.06  # of two neighbours in it, of the distance from 1
_FLOATS = 1e-9  # relative; more than floats lose here, also of the widest noise
_BLOCKS = 2**12  # of neighbouring numbers, at least, where noise is wider than that
_COPIES = (8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 96, 128)
_ORDERS = 1.5  # times the order that a budget is read at
_TRIES, _STEP, _WIDER = 12, 1.0005, 1.1  # of a width; smallest and largest step to the next
_CLOSE = 1.015  # of rho, to that of a Gaussian of the same variance
MOST_SIGMA = 2.0**15
"""Widest noise of coins: its masses are computed one by one."""


class CoinCost(NamedTuple):
    """What one number costs that moves under such noise, or a table whose numbers move."""

    rho: float  # D_alpha <= rho alpha at orders up to the largest
    escape: float  # probability that this does not hold


class Coins(NamedTuple):
    """Which coins make a noise: `copies` of every weight."""

    weights: tuple[int, ...]
    copies: int

    @property
    def number(self) -> int:
        """How many coins there are."""
        return self.copies * len(self.weights)

    @property
    def half(self) -> int:
        """Half of the sum of all weights: the largest number that the noise can be."""
        return self.copies * sum(self.weights) // 2

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise."""
        return sqrt(self.copies * sum(w * w for w in self.weights)) / 2


def largest_order_for(rho: float, delta: float) -> int:
    """Up to which Renyi order coins are priced: half above the one that a budget is read at."""
    return max(4, ceil(_ORDERS * (1 + sqrt(log(1 / delta) / rho))))


@lru_cache(maxsize=64)
def masses(coins: Coins) -> Masses:
    """Probability of every number from -half to half.

    Example:
        >>> masses(Coins((1,), 2)).tolist()
        [0.25, 0.5, 0.25]
    """
    found = np.ones(1)
    for weight in sorted(coins.weights * coins.copies):
        moved = np.zeros(len(found) + weight)
        moved[: len(found)] = found / 2
        moved[weight:] += found / 2
        found = moved
    return found


@lru_cache(maxsize=4096)
def cost_of(coins: Coins, largest_order: int, tail: float, moved: int = 1) -> CoinCost:
    """What one number costs; see the top of this file.

    Args:
        coins: The noise.
        largest_order: Order up to which the claim holds.
        tail: Probability of what is left out at each end, at most; where a single number at the
            end has more, that is left out.
        moved: By how much the number moves.
    """
    all_masses = masses(coins)
    below = np.cumsum(all_masses)
    ends = max(moved, int(np.searchsorted(below, tail, side="right")))
    if len(below) <= 2 * ends:
        return CoinCost(np.inf, 1.0)
    q = all_masses[ends : len(below) - ends + moved]
    p = all_masses[ends - moved : len(below) - ends]
    if len(p) < 2 or not (p.all() and q.all()):  # a gap shows which of two neighbours it is
        return CoinCost(np.inf, 1.0)
    escape = min(1.0, float(2 * below[ends - 1]) * (1 + _FLOATS))
    p, q = p / p.sum(), q / q.sum()
    p, loss = _in_blocks(p, np.log(p) - np.log(q))
    steps = np.geomspace(_FIRST, largest_order - 1, _points(largest_order))
    K = np.array([_log_mean(p, s * loss) for s in steps])
    g = steps * (steps + 1)
    ratio = np.maximum(K[1:] / g[1:], K[:-1] / g[:-1])
    between = ratio * (1 + np.diff(steps) ** 2 / (4 * g[:-1]))
    rho = max(float(between.max()), float(K[0] / steps[0]))
    return CoinCost(rho * (1 + _FLOATS), escape)


@lru_cache(maxsize=4096)
def cost_of_rows(coins: Coins, largest_order: int, tail: float, rows: int) -> CoinCost:
    """What a table costs in whose cells a person has up to so many rows; see the top of this file.

    Example:
        >>> one, five = (cost_of_rows(Coins((1, 2, 4, 8), 64), 16, 1e-9, k) for k in (1, 5))
        >>> round(five.rho / one.rho, 1)
        25.6
    """
    by_move = [cost_of(coins, largest_order, tail, a) for a in range(1, rows + 1)]
    rho, escape = [0.0], [0.0]
    for total in range(1, rows + 1):
        # The last of the numbers that sum up to `total` is a, and the rest is the worst for it.
        parts = range(1, total + 1)
        rho.append(max(by_move[a - 1].rho + rho[total - a] for a in parts))
        escape.append(max(by_move[a - 1].escape + escape[total - a] for a in parts))
    return CoinCost(rho[rows], min(1.0, escape[rows]))


def _in_blocks(p: Masses, loss: Masses) -> tuple[Masses, Masses]:
    """Fewer losses with their masses, under which no mean of exp(s loss) is smaller."""
    if (size := len(p) // _BLOCKS) < 2:
        return p, loss
    starts = np.arange(0, len(p), size)
    mass, mean = np.add.reduceat(p, starts), np.add.reduceat(p * loss, starts)
    least, most = np.minimum.reduceat(loss, starts), np.maximum.reduceat(loss, starts)
    gap = most - least
    above = np.divide(mean - mass * least, gap, out=mass.copy(), where=gap > 0).clip(0, mass)
    return np.concatenate([mass - above, above]), np.concatenate([least, most])


def _log_mean(p: Masses, exponents: Masses) -> float:
    """Of exp of numbers with masses p; exact where it is near 0, too."""
    largest = float(exponents.max())
    if largest < 1:
        return log1p(p @ np.expm1(exponents))
    return largest + log(p @ np.exp(exponents - largest))


def _points(largest_order: int) -> int:
    return int(np.log((largest_order - 1) / _FIRST) / np.log(_RATIO)) + 2


@lru_cache(maxsize=4096)
def coins_for(sigma: float, largest_order: int, tail: float, rows: int = 1) -> Coins:
    """Few coins whose noise costs no more than Gaussian noise of `sigma`.

    That is rho <= rows^2 / (2 sigma^2), for a person of so many rows.

    Their own standard deviation is larger than `sigma`, by three quarters of a per
    cent at most where 128 copies or less can do that.

    Raises:
        BudgetError: No such noise is within the bounds of this file.

    Example:
        >>> coins = coins_for(95.0, 40, 2.0**-41)
        >>> coins.number, round(coins.sigma / 95, 3)
        (84, 1.006)
    """
    found = None
    if 0 < sigma <= MOST_SIGMA:
        for copies in _COPIES:
            made = _narrowest(sigma, copies, largest_order, tail, rows)
            if made is not None and (found is None or made.sigma < found.sigma):
                found = made
            if found is not None and found.sigma**2 <= _CLOSE * sigma**2:
                return found
    if found is None:
        raise BudgetError(
            f"noise of sigma = {sigma:g} at orders up to {largest_order} cannot be made of coins; "
            f"sigma must be above 0, at most {MOST_SIGMA:,.0f}, and not far below the order. Ask "
            "for more tables or fewer, or change the budget"
        )
    return found


def _narrowest(
    sigma: float, copies: int, largest_order: int, tail: float, rows: int
) -> Coins | None:
    """About the narrowest noise of so many copies that costs no more; None where none is near."""
    allowed, width, coins = rows**2 / (2 * sigma**2), sigma, None
    for _ in range(_TRIES):
        while (wider := _of_width(width, copies)) == coins:
            width *= _STEP
        coins = wider
        cost = cost_of_rows(coins, largest_order, tail, rows)
        escapes = cost.escape > 2 * rows * tail * (1 + _FLOATS)
        if cost.rho <= allowed and not escapes:
            return coins
        over = 1.0 if escapes else sqrt(cost.rho / allowed)
        width = max(width * min(over, _WIDER), coins.sigma)
    return None


def _of_width(sigma: float, copies: int) -> Coins:
    """1, 2, 4, ... and a rest, whose `copies` have about this standard deviation."""
    left, weights = 4 * sigma**2 / copies, [1]
    while 4 ** len(weights) <= left - weights[-1] ** 2:
        left -= weights[-1] ** 2
        weights.append(2 ** len(weights))
    rest = round(sqrt(max(left - weights[-1] ** 2, 0.0)))
    return Coins((*weights, rest) if rest else tuple(weights), copies)
