"""What Gaussian steps on Poisson samples cost: privacy loss distributions, rounded upwards.

The dominating pair of one step is N(0, s^2) against (1 - q) N(0, s^2) + q N(1, s^2), in either
order (Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic
Function", 2022), for neighbours by adding or removing a row. For a replaced row no pair is known
to dominate under composition (Lebeda, Regehr, Kamath and Steinke, "Avoiding Pitfalls for Privacy
Accounting of Subsampled Mechanisms under Composition", 2024, shows that the obvious one may not
be taken for granted), so it is priced as a removal followed by an addition: if one of them is
(e, d), both are (2 e, d (1 + e^e)).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

__all__ = ["FINE", "Kinds", "from_rdp", "from_replacing", "from_sampling", "separation_of"]

#: (noise multiplier, sampling rate) and the number of such steps, sorted.
Kinds = tuple[tuple[tuple[float, float], int], ...]
#: Points that the losses of one step are rounded up to; the answer is within some 0.1 percent.
FINE = 8_000
_ORDERS = (*(1 + i / 8 for i in range(1, 80)), *range(11, 64), 80, 96, 128, 192, 256, 512)


@lru_cache(maxsize=64)
def _curve(kinds: Kinds, points: int) -> Any:
    """The composed privacy loss distribution, pessimistic."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    least = min(multiplier for (multiplier, _), _ in kinds)
    interval = (0.5 / least**2 + 8 / least) / points
    total: Any = None
    for (multiplier, rate), count in kinds:
        step = pld.from_gaussian_mechanism(
            multiplier, sampling_prob=rate, value_discretization_interval=interval
        ).self_compose(count)
        total = step if total is None else total.compose(step)
    return total


@lru_cache(maxsize=4096)
def from_sampling(kinds: Kinds, delta: float, points: int = FINE) -> float:
    """Epsilon at ``delta`` for neighbours by adding or removing a row.

    **Guarantee**: an upper bound; losses are rounded up, and what is cut off counts as infinite.

    Example:
        >>> round(from_sampling((((1.0, 0.0125), 80),), 1e-5), 2)
        0.84
    """
    return float(_curve(kinds, points).get_epsilon_for_delta(delta)) if delta > 0 else math.inf


@lru_cache(maxsize=4096)
def from_replacing(kinds: Kinds, delta: float, points: int = FINE) -> float:
    """Epsilon at ``delta`` for neighbours by replacing a row: a removal, then an addition.

    **Guarantee**: an upper bound, about 2 percent above the least that this way gives.
    """
    best, share = math.inf, 0.5
    for _ in range(200):  # the largest part of delta, within a factor 0.9, that suffices
        once = from_sampling(kinds, delta * share, points)
        if once < 600 and share * (1 + math.exp(once)) <= 1:
            best = 2 * once
            break
        share *= 0.9 if once < 3 else 0.5
    return best


@lru_cache(maxsize=4096)
def from_rdp(rho: float, kinds: Kinds, delta: float) -> float:
    """Epsilon at ``delta`` of ``rho`` zCDP and sampled steps, by Renyi divergences.

    **Guarantee**: an upper bound (Mironov, Talwar and Zhang, "Renyi Differential Privacy of the
    Sampled Gaussian Mechanism", 2019, for the steps).
    """
    import dp_accounting as dpa

    accountant = dpa.rdp.RdpAccountant([*_ORDERS])
    accountant.compose(dpa.ZCDpEvent(rho))
    for (multiplier, rate), count in kinds:
        event = dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(multiplier))
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=4096)
def separation_of(kinds: Kinds, points: int = FINE) -> float:
    """How far the steps' trade-off curve is from that of perfect privacy, in [0, sqrt(2)/2].

    The curve f of the smallest type II error for a type I error has one point with f(a) = a, and
    the separation is sqrt(2) abs(a - 1/2). As neighbours may be swapped, f is symmetric, so the
    line of slope -1 touches it there: a = (1 - t) / 2 with t = delta(0), the total variation
    distance, and the separation is t / sqrt(2).

    **Guarantee**: an upper bound, as delta is; for adding or removing a row.
    """
    return float(_curve(kinds, points).get_delta_for_epsilon(0.0)) / math.sqrt(2)
