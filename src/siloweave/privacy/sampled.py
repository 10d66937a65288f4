"""What steps on Poisson samples cost under noise of discrete Gaussians: Renyi divergences.

A sample is of units: rows, or persons with all their rows. "A row" below is one unit: what is added
or removed as a whole, and moves a sum by at most one clip if it is drawn (gradients.py).

They are those of whole orders, for the reasons in `step_rdp`: no distribution of the privacy loss
is known to dominate such steps. For a replaced row no pair is known to dominate under composition
either (Lebeda, Regehr, Kamath and Steinke, "Avoiding Pitfalls for Privacy Accounting of Subsampled
Mechanisms under Composition", 2024, shows that the obvious one may not be taken for granted), so it
is priced as a removal followed by an addition: if one of them is (e, d), both are
(2 e, d (1 + e^e)).

Steps whose noise and rate follow from a noisy number of rows are read at one order, with all else:
`at_order`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple


class SampledStep(NamedTuple):
    """The facts on which the price of a noisy sum over a Poisson sample of units depends.

    Args:
        multiplier: noise over the largest L2 distance that adding or removing a unit makes, > 0.
        excess: bound on the logarithm of the ratio of the noise's mass to one Gaussian's, for all
            numbers together; 0 for one Gaussian.
        rate: probability of each unit to be in a step, in (0, 1].
        replaced: whether neighbours replace a row.
    """

    multiplier: float
    excess: float
    rate: float
    replaced: bool


#: (noise multiplier, excess of the noise, sampling rate) and the number of such steps, sorted.
Whole = tuple[tuple[tuple[float, float, float], int], ...]
#: By what delta is divided where a list is read at one order: in ledgers that were written before
#: the order was fixed beforehand it was chosen by a noisy number of rows (decision 0014).
CHOICE = 9 / 8
#: Renyi orders at which noise of integers is read.
WHOLE_ORDERS = (
    *range(2, 65),
    72,
    80,
    96,
    112,
    128,
    160,
    192,
    256,
    384,
    512,
    768,
    1024,
    2048,
)
# Of the logarithm of a moment; what its sum of floats may lose, and far more.
_SLACK = 1e-11

# The search of `_removed_and_added` for a part of delta.
_MOST_TRIES = 200
_FINE_STEP = 0.9
_COARSE_STEP = 0.5
# Epsilons above this one take coarse steps: there the part that suffices is far below 1.
_COARSE_FROM = 3
# An epsilon above this one is never accepted; exp overflows at 709.
_LARGEST_EPSILON = 600


def _removed_and_added(epsilon_at: Callable[[float], float], delta: float) -> float:
    """Return the epsilon of a removal and an addition, of which each costs ``epsilon_at`` a delta.

    If one of them is (e, d), both are (2 e, d (1 + e^e)). So the epsilon is twice that of the
    largest part of delta, within a factor 0.9, with which d (1 + e^e) does not exceed delta. It is
    infinite if no part is.
    """
    share = 0.5
    for _ in range(_MOST_TRIES):
        epsilon = epsilon_at(delta * share)
        if epsilon < _LARGEST_EPSILON and share * (1 + math.exp(epsilon)) <= 1:
            return 2 * epsilon
        share *= _FINE_STEP if epsilon < _COARSE_FROM else _COARSE_STEP
    return math.inf


@lru_cache(maxsize=1024)
def step_rdp(multiplier: float, excess: float, rate: float) -> tuple[float, ...]:
    """Return the Renyi divergences of one step with shared discrete noise, at `WHOLE_ORDERS`.

    Let Y be a vector of independent discrete Gaussians of parameter s, v a vector of integers no
    longer than s / ``multiplier``, and L(x) = P(Y = x - v) / P(Y = x). For whole k the k-th moment
    of L under Y is exactly exp(k (k - 1) v^2 / (2 s^2)), as with continuous noise, since completing
    the square moves the sum over integers by k v, which are integers. So for whole alpha, with q
    the ``rate``, E (1 - q + q L)^alpha is at most

        A = sum_k binom(alpha, k) (1 - q)^(alpha - k) q^k exp(k (k - 1) / (2 multiplier^2)),

    and the divergence of the mixture from Y is at most log A / (alpha - 1): the formula of
    Mironov, Talwar and Zhang (2019), section 3.3, without an appeal to continuous noise.

    Let W be the sum of several discrete Gaussians, whose mass is that of Y within factors
    exp(+-``excess``). Its moment has one factor of the mass and alpha of a ratio of two, so it is
    at most exp((2 alpha + 1) excess) A.

    In the other direction, of Y (or W) from the mixture: the noise is symmetric, so P(v - x) =
    P(x - v) = L(x) P(x), which pairs a point x of ratio l with the point v - x, of ratio 1/l and l
    times as likely. With a = 1 - q
    + q l, b = 1 - q + q/l and l >= 1, a pair adds to the difference of the two moments a
    multiple of a^alpha - a^(1-alpha) + l (b^alpha - b^(1-alpha)) = 2 (sqrt(a) sinh(c log a) - l
    sqrt(b) sinh(c log 1/b)), c = alpha - 1/2. For c = 1/2 this is 0; a b >= 1, hence log a >=
    log 1/b >= 0; and sinh(c t) / sinh(t / 2) grows with t. So the first direction is the larger.

    **Guarantee**: an upper bound for adding or removing a row, whatever other rows are drawn (joint
    quasi-convexity); rounded upwards.
    """
    return tuple(rdp_at(multiplier, excess, rate, order) for order in WHOLE_ORDERS)


@lru_cache(maxsize=16384)
def rdp_at(multiplier: float, excess: float, rate: float, order: int) -> float:
    """Return the Renyi divergence of one step (`step_rdp`) at one whole order.

    That is of one Gaussian where ``excess`` is 0.
    """
    ratio = 0.5 / multiplier**2
    # A mixture is no further apart than its parts, so sampling never costs more than no sampling.
    unsampled = order * ratio
    sampled = _sampled_moment(order, ratio, rate) / (order - 1)
    one_gaussian = min(unsampled, sampled)
    # From one Gaussian to shares: exp((2 alpha + 1) excess) of the moment, see `step_rdp`.
    shares = excess * (2 * order + 1) / (order - 1)
    return (one_gaussian + _SLACK) * (1 + _SLACK) + shares


@lru_cache(maxsize=512)
def _log_binomials(order: int) -> tuple[float, ...]:
    """Return the logarithms of the binomial coefficients."""
    return tuple(math.log(math.comb(order, k)) for k in range(order + 1))


def _sampled_moment(order: int, ratio: float, rate: float) -> float:
    """Return log A of :func:`step_rdp`, from the logarithms of its terms."""
    # With everyone in the sample only the last term is not 0; log(1 - rate) has no value.
    if rate == 1:
        return order * (order - 1) * ratio

    log_out = math.log1p(-rate)
    log_in = math.log(rate)
    terms = [
        log_binomial + (order - k) * log_out + k * log_in + k * (k - 1) * ratio
        for k, log_binomial in enumerate(_log_binomials(order))
    ]
    # The largest term is taken out, so that exp does not overflow; fsum rounds only once.
    largest = max(terms)
    rest = math.fsum(math.exp(term - largest) for term in terms)
    return largest + math.log(rest)


@lru_cache(maxsize=4096)
def from_whole_orders(rho: float, added: Whole, replaced: Whole, delta: float) -> float:
    """Return epsilon at ``delta`` of ``rho`` zCDP and steps, from divergences at whole orders.

    Steps are for neighbours by adding or removing a row, or by replacing one; ``delta`` is halved
    where both are there.

    **Guarantee**: an upper bound; the divergences of `step_rdp` add up.
    """
    once = _summed(rho, added)
    if not replaced:
        return _epsilon_of(once, delta)

    change = _summed(0.0, replaced)

    def change_epsilon(part: float) -> float:
        return _epsilon_of(change, part)

    if not (added or rho):
        return _removed_and_added(change_epsilon, delta)
    half = delta / 2
    return _epsilon_of(once, half) + _removed_and_added(change_epsilon, half)


def at_order(order: int, rho: float, steps: Whole, delta: float) -> float:
    """Return epsilon at ``delta`` of ``rho`` zCDP and steps, read at one Renyi order.

    **Guarantee**: let noise, rate and number of steps follow from all that was released before.
    At an order fixed beforehand the divergences, each given what came before it, add up, whatever
    followed from what (the bound on the moment exp((a - 1) loss) of every event holds for all that
    came before). That is not so for the least epsilon over several orders: which order that is
    depends on the outputs too. Here one order is read, which shared_steps.py fixes beforehand; and
    delta is divided by :data:`CHOICE`, which covers older ledgers. Delta from the
    moment: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
    Proposition 12.
    """
    of_steps = sum(count * rdp_at(*kind, order) for kind, count in steps)
    divergence = rho * order + of_steps
    allowed = delta / CHOICE
    # A delta so small that dividing it leaves 0.
    if allowed <= 0:
        return math.inf
    # Proposition 12, with alpha the order: D + log(1 - 1/alpha) - log(delta alpha) / (alpha - 1).
    of_delta = math.log(allowed * order) / (order - 1)
    # The other terms may add up to less than 0, which no epsilon is.
    return max(0.0, divergence + math.log1p(-1 / order) - of_delta)


def _summed(rho: float, steps: Whole) -> list[float]:
    """Add up the divergences of ``rho`` zCDP and of all steps, at the whole orders."""
    totals = [rho * order for order in WHOLE_ORDERS]
    for kind, count in steps:
        divergences = step_rdp(*kind)
        totals = [a + count * b for a, b in zip(totals, divergences, strict=True)]
    return totals


def _epsilon_of(divergences: list[float], delta: float) -> float:
    """Return the least epsilon that divergences at whole orders give; infinite at delta 0."""
    # Imported here, as it takes seconds and most commands read no ledger.
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    if delta <= 0:
        return math.inf
    epsilon, _ = compute_epsilon(WHOLE_ORDERS, divergences, delta)
    return float(epsilon)
