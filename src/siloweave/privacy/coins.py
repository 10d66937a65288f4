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

# The grid of orders: its first point lies this far above 1.
_FIRST = 5e-4
# Every point of the grid is this many times as far from 1 as the point before it.
_RATIO = 1.06
# Relative; more than floats lose in this file, also where noise is widest.
_FLOATS = 1e-9
# Noise of more numbers than twice this is taken together in at least so many blocks.
_BLOCKS = 2**12
# Numbers of copies that are tried, fewest first. Each is even, so that half of the sum of all
# weights is whole.
_COPIES = (
    8,
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
    36,
    40,
    44,
    48,
    52,
    56,
    60,
    64,
    72,
    80,
    96,
    128,
)
# Coins are priced up to this many times the order that a budget is read at.
_ORDERS = 1.5
# Tries to find a width, and the smallest and the largest step from one to the next.
_TRIES = 12
_STEP = 1.0005
_WIDER = 1.1
# A variance this close to that of the Gaussian ends the search for coins: 1.5 percent of it are
# three quarters of a percent of the standard deviation.
_CLOSE = 1.015
MOST_SIGMA = 2.0**15
"""Widest noise of coins: its masses are computed one by one."""


class CoinCost(NamedTuple):
    """The cost of one number under such noise, or of a table of such numbers."""

    rho: float  # D_alpha <= rho alpha at orders up to the largest
    escape: float  # probability that this does not hold


class Coins(NamedTuple):
    """The coins that make a noise: `copies` of every weight."""

    weights: tuple[int, ...]
    copies: int

    @property
    def number(self) -> int:
        """The number of coins."""
        return self.copies * len(self.weights)

    @property
    def half(self) -> int:
        """Half of the sum of all weights, which is the largest number that the noise can be."""
        return self.copies * sum(self.weights) // 2

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise."""
        # A fair coin of weight w has the variance w^2 / 4.
        squares = sum(w * w for w in self.weights)
        return sqrt(self.copies * squares) / 2


def largest_order_for(rho: float, delta: float) -> int:
    """Return the largest Renyi order that coins are priced at.

    A Gaussian of this rho is read at about 1 + sqrt(log(1 / delta) / rho), where rho alpha +
    log(1 / delta) / (alpha - 1) is smallest. Coins are priced up to half above it.
    """
    best_order = 1 + sqrt(log(1 / delta) / rho)
    return max(4, ceil(_ORDERS * best_order))


@lru_cache(maxsize=64)
def masses(coins: Coins) -> Masses:
    """Return the probability of every number from -half to half.

    Example:
        >>> masses(Coins((1,), 2)).tolist()
        [0.25, 0.5, 0.25]
    """
    # Small weights come first, while the list of numbers is still short.
    probabilities = np.ones(1)
    for weight in sorted(coins.weights * coins.copies):
        count = len(probabilities)
        tossed = np.zeros(count + weight)
        tossed[:count] = probabilities / 2
        tossed[weight:] += probabilities / 2
        probabilities = tossed
    return probabilities


@lru_cache(maxsize=4096)
def cost_of(coins: Coins, largest_order: int, tail: float, moved: int = 1) -> CoinCost:
    """Compute the cost of one number under the noise of coins; see the top of this file.

    Args:
        coins: The noise.
        largest_order: Order up to which the claim holds.
        tail: Probability of what is left out at each end, at most; where a single number at the
            end has more, that is left out.
        moved: By how much the number moves.
    """
    all_masses = masses(coins)
    below = np.cumsum(all_masses)

    # At least `moved` numbers at each end: only one of two neighbours may be those.
    ends = max(moved, int(np.searchsorted(below, tail, side="right")))
    size = len(below)
    if size <= 2 * ends:
        return CoinCost(np.inf, 1.0)

    # P is the noise moved upwards, Q the noise itself, both on the same numbers.
    q = all_masses[ends : size - ends + moved]
    p = all_masses[ends - moved : size - ends]
    # A number that only one of two neighbours may be shows which of them it is.
    if len(p) < 2 or not (p.all() and q.all()):
        return CoinCost(np.inf, 1.0)
    escape = min(1.0, float(2 * below[ends - 1]) * (1 + _FLOATS))

    # Restricted to what is not left out, both are distributions again.
    p = p / p.sum()
    q = q / q.sum()
    loss = np.log(p) - np.log(q)
    p, loss = _in_blocks(p, loss)

    # K and g of the top of this file, at alpha = 1 + step. D_alpha(P || Q) is the logarithm of the
    # mean under P of exp((alpha - 1) loss), divided by alpha - 1.
    steps = np.geomspace(_FIRST, largest_order - 1, _points(largest_order))
    K = np.array([_log_mean(p, s * loss) for s in steps])
    g = steps * (steps + 1)

    # Between two points of the grid: r (1 + (b - a)^2 / (4 g(a))).
    r = np.maximum(K[1:] / g[1:], K[:-1] / g[:-1])
    between = r * (1 + np.diff(steps) ** 2 / (4 * g[:-1]))
    # Below the first point: D_alpha is at most what it is there, and alpha at least 1.
    below_first = float(K[0] / steps[0])
    rho = max(float(between.max()), below_first)
    return CoinCost(rho * (1 + _FLOATS), escape)


@lru_cache(maxsize=4096)
def cost_of_rows(coins: Coins, largest_order: int, tail: float, rows: int) -> CoinCost:
    """Compute the cost of a table in whose cells one person has up to so many rows.

    The top of this file has the proof.

    Example:
        >>> once, five = (cost_of_rows(Coins((1, 2, 4, 8), 64), 16, 1e-9, k) for k in (1, 5))
        >>> round(five.rho / once.rho, 1)
        25.6
    """
    by_move = [cost_of(coins, largest_order, tail, a) for a in range(1, rows + 1)]

    # The largest cost over all ways to write `total` as a sum, for every total up to `rows`: the
    # last number of the sum is a, and the rest is the worst way to write total - a. Rho and escape
    # may have different worst ways; each is bounded on its own.
    rho = [0.0]
    escape = [0.0]
    for total in range(1, rows + 1):
        parts = range(1, total + 1)
        rho.append(max(by_move[a - 1].rho + rho[total - a] for a in parts))
        escape.append(max(by_move[a - 1].escape + escape[total - a] for a in parts))
    return CoinCost(rho[rows], min(1.0, escape[rows]))


def _in_blocks(p: Masses, loss: Masses) -> tuple[Masses, Masses]:
    """Merge losses into fewer ones, with their masses, so that no mean of exp(s loss) falls."""
    size = len(p) // _BLOCKS
    if size < 2:
        return p, loss

    starts = np.arange(0, len(p), size)
    mass = np.add.reduceat(p, starts)
    mean = np.add.reduceat(p * loss, starts)
    least = np.minimum.reduceat(loss, starts)
    most = np.maximum.reduceat(loss, starts)

    # A block's mass goes to its least and its largest loss, so that its mean stays where it was:
    # exp lies below its chord between the two, so no mean of exp gets smaller. One mean loss for a
    # whole block would be too cheap.
    gap = most - least
    above = np.divide(mean - mass * least, gap, out=mass.copy(), where=gap > 0)
    above = above.clip(0, mass)
    return np.concatenate([mass - above, above]), np.concatenate([least, most])


def _log_mean(p: Masses, exponents: Masses) -> float:
    """Return the logarithm of the mean of exp(exponents), with masses p."""
    largest = float(exponents.max())
    # Wide noise at low orders has a mean of 1 + 1e-13: the 1 is left out, so that it does not round
    # the rest away.
    if largest < 1:
        return log1p(p @ np.expm1(exponents))
    # The largest exponent is taken out, so that exp does not overflow.
    return largest + log(p @ np.exp(exponents - largest))


def _points(largest_order: int) -> int:
    """Return how many points the grid of orders needs for the ratio `_RATIO` or less."""
    return int(np.log((largest_order - 1) / _FIRST) / np.log(_RATIO)) + 2


@lru_cache(maxsize=4096)
def coins_for(sigma: float, largest_order: int, tail: float, rows: int = 1) -> Coins:
    """Find few coins whose noise costs no more than Gaussian noise of `sigma`.

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
    narrowest = None
    if 0 < sigma <= MOST_SIGMA:
        for copies in _COPIES:
            candidate = _narrowest(sigma, copies, largest_order, tail, rows)
            if candidate is not None and (
                narrowest is None or candidate.sigma < narrowest.sigma
            ):
                narrowest = candidate
            # More copies mean more coins to toss, and could gain 1.5 percent of the variance.
            if narrowest is not None and narrowest.sigma**2 <= _CLOSE * sigma**2:
                return narrowest
    if narrowest is None:
        raise BudgetError(
            f"noise of sigma = {sigma:g} at orders up to {largest_order} cannot be made of coins; "
            f"sigma must be above 0, at most {MOST_SIGMA:,.0f}, and not far below the order. Ask "
            "for more tables or fewer, or change the budget"
        )
    return narrowest


def _narrowest(
    sigma: float, copies: int, largest_order: int, tail: float, rows: int
) -> Coins | None:
    """Find about the narrowest noise of so many copies that costs no more than Gaussian noise.

    None where no such noise is near.
    """
    # What Gaussian noise of this sigma costs where a number moves by `rows`.
    allowed = rows**2 / (2 * sigma**2)
    # Each of a person's numbers may escape at two ends, at most `rows` numbers in all.
    allowed_escape = 2 * rows * tail * (1 + _FLOATS)

    width = sigma
    coins = None
    for _ in range(_TRIES):
        # Weights are whole, so a slightly larger width may give the same coins once more.
        wider = _of_width(width, copies)
        while wider == coins:
            width *= _STEP
            wider = _of_width(width, copies)
        coins = wider

        cost = cost_of_rows(coins, largest_order, tail, rows)
        escapes = cost.escape > allowed_escape
        if cost.rho <= allowed and not escapes:
            return coins

        # Rho falls with about the square of the width.
        factor = 1.0 if escapes else sqrt(cost.rho / allowed)
        width = max(width * min(factor, _WIDER), coins.sigma)
    return None


def _of_width(sigma: float, copies: int) -> Coins:
    """Return weights 1, 2, 4, ... and a rest, whose `copies` have about a given deviation."""
    # The squares of the weights have to add up to this: the noise has a quarter of it per copy.
    squares = 4 * sigma**2 / copies
    weights = [1]
    while 4 ** len(weights) <= squares - weights[-1] ** 2:
        squares -= weights[-1] ** 2
        weights.append(2 ** len(weights))

    # The last weight may be any whole number, so that the width need not be a power of 2.
    rest = round(sqrt(max(squares - weights[-1] ** 2, 0.0)))
    if rest:
        weights.append(rest)
    return Coins(tuple(weights), copies)
