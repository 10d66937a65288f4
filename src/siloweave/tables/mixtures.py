"""Modes of a column: a variational mixture of normal distributions, fitted to weighted points.

The points may be the distinct values of a column, groups of them, or bins with (noisy) counts: each
has a mean, a weight and a variance, so parties that share only counts fit the same mixture as one
that has the rows.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["Mixture", "fit_mixture"]

_Floats = NDArray[np.float64]
_REACH = 4.0  # standard deviations that the number 1 stands for
_MOST = 0.99  # largest number, so that a tanh can reach it
_SMALLEST = 0.005  # modes with a smaller weight are dropped
_GROUPS = 1024
_GAPS = 256  # the widest gaps always part two points
_FAR = 1e100  # deviations that a value may lie from a mode: their square is finite
_FLOOR = 1e-6  # smallest variance of a mode, as a share of the column's
_CONCENTRATION = 1e-3
_BETA, _NU = 1.0, 1.0  # how many observations the prior mean and variance count for


class Mixture(msgspec.Struct, frozen=True, tag="modes"):
    """Mode-specific normalisation: a mode, and how far from its mean a value lies.

    The number is ``(value - mean) / (4 * scale)`` of a mode that is drawn by how likely it made
    the value, among those that reach it; it is clipped to 0.99 (Xu, Skoularidou, Cuesta-Infante
    and Veeramachaneni, Modeling Tabular Data using Conditional GAN, NeurIPS 2019).

    Args:
        means: One per mode, ascending.
        scales: Standard deviations, positive.
        weights: Shares, which sum to 1.

    Example:
        >>> mixture = Mixture((0.0, 10.0), (1.0, 1.0), (0.5, 0.5))
        >>> modes, numbers = mixture.split(np.array([0.0, 12.0]), np.random.default_rng(0))
        >>> modes.tolist(), numbers.tolist(), mixture.join(modes, numbers).tolist()
        ([0, 1], [0.0, 0.5], [0.0, 12.0])
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def modes(self) -> int:
        """How many modes there are."""
        return len(self.means)

    def takes(self, low: float, high: float) -> bool:
        """Whether every value between these becomes a finite number."""
        fit = 0 < len(self.means) == len(self.scales) == len(self.weights)
        if not fit or not min(*self.scales, *self.weights) > 0:
            return False
        away = (np.array([[low], [high]]) - np.array(self.means)) / np.array(self.scales)
        return bool((np.abs(away) <= _FAR).all() and np.isfinite(self.weights).all())

    def split(
        self, values: _Floats, random: np.random.Generator
    ) -> tuple[NDArray[np.int64], _Floats]:
        """Return the drawn modes and the numbers, one of each per value."""
        means, scales = np.array(self.means), np.array(self.scales)
        away = (values[:, None] - means) / scales
        reached = np.abs(away) <= _REACH * _MOST
        logs = np.log(np.array(self.weights) / scales) - away**2 / 2.0
        # Where no mode reaches, the one that comes closest is taken.
        logs = np.where(reached | ~reached.any(axis=1, keepdims=True), logs, -np.inf)
        odds = np.exp(logs - logs.max(axis=1, keepdims=True))
        summed = np.cumsum(odds, axis=1)
        drawn = random.random(len(values)) * summed[:, -1]
        modes = (summed <= drawn[:, None]).sum(axis=1).clip(max=self.modes - 1)
        numbers = away[np.arange(len(values)), modes] / _REACH
        return modes, np.clip(numbers, -_MOST, _MOST)

    def join(self, modes: NDArray[np.int64], numbers: _Floats) -> _Floats:
        """Return the values."""
        return np.array(self.means)[modes] + np.array(self.scales)[modes] * _REACH * numbers


def _grouped(values: _Floats, weights: _Floats) -> tuple[_Floats, _Floats, _Floats]:
    """Gather ascending values into some 1,024 points of about equal weight, split at wide gaps.

    Returns:
        Means, weights and variances of the points.
    """
    middle = np.cumsum(weights) - weights / 2.0
    group = (middle / weights.sum() * _GROUPS).astype(np.int64)
    fresh = np.concatenate([[True], np.diff(group) > 0])
    fresh[np.argsort(np.diff(values))[-_GAPS:] + 1] = True  # no point spans two heaps
    starts = np.flatnonzero(fresh)
    sums = np.add.reduceat(weights, starts)
    means = np.add.reduceat(weights * values, starts) / sums
    index = np.repeat(np.arange(len(starts)), np.diff([*starts.tolist(), len(values)]))
    spreads = np.add.reduceat(weights * (values - means[index]) ** 2, starts) / sums
    return means, sums, spreads


def fit_mixture(
    values: _Floats,
    weights: _Floats,
    spreads: _Floats | None = None,
    *,
    components: int = 10,
    steps: int = 200,
    tolerance: float = 1e-5,
) -> Mixture:
    """Fit a mixture of normals by variational inference with a Dirichlet process over weights.

    Coordinate ascent after Blei and Jordan, Variational inference for Dirichlet process mixtures,
    Bayesian Analysis 2006, started from one-dimensional k-means; nothing is drawn. Priors are
    those of CTGAN's mixture: concentration 0.001, the mean and the variance of the column as one
    observation each (of values within 30 robust deviations, so that an outlier does not set them).

    Args:
        values: Points, ascending; at least one.
        weights: Weight of each, 0 or more; a noisy count below 0 counts as 0.
        spreads: Variance inside each point, of a uniform distribution; none when None.
        components: Most modes, at least 1; those below half a percent are dropped.
        steps: Most steps.
        tolerance: Stop when no mode gains or loses a larger share of all points in a step.

    Returns:
        The modes, ascending. Where these do not reach every point within 3.96 standard deviations,
        one more, wide mode does.

    Example:
        >>> values = np.concatenate([np.linspace(-1, 1, 99), np.linspace(9, 11, 99)])
        >>> mixture = fit_mixture(values, np.ones(198), components=4)
        >>> bool(max(mixture.means) > 9), bool(min(mixture.means) < 1)
        (True, True)
    """
    weights = np.maximum(weights, 0.0)
    if not weights.sum() > 0:
        weights = np.ones(len(values))
    halves = np.zeros(len(values)) if spreads is None else np.sqrt(3.0 * spreads)
    used = weights > 0
    values, weights, halves = values[used], weights[used], halves[used]
    all_weights = weights
    points, spreads = values, halves**2 / 3.0
    if len(values) > _GROUPS and not halves.any():
        points, weights, spreads = _grouped(values, weights)
    centre, scale = _robust(points, weights, spreads)
    x, v = (points - centre) / scale, spreads / scale**2
    groups = _kmeans(x, weights, components)
    groups = np.argsort(np.argsort(-np.bincount(groups, weights)))[groups]  # largest first
    found = _ascend(x, weights, v, np.eye(int(groups.max()) + 1)[groups], steps, tolerance)
    means, variances, shares = (part[np.argsort(found[0])] for part in found)
    kept = shares > min(_SMALLEST, float(shares.max()) / 2.0)
    means, scales, shares = means[kept], np.sqrt(variances[kept]), shares[kept]
    means, scales = means * scale + centre, scales * scale
    means, scales, shares = _reaching(values, halves, all_weights, means, scales, shares)
    shares = shares / shares.sum()
    return Mixture(tuple(means.tolist()), tuple(scales.tolist()), tuple(shares.tolist()))


def _robust(x: _Floats, weights: _Floats, spreads: _Floats) -> tuple[float, float]:
    """Mean and deviation of the points, those far out pulled in."""
    levels = (np.cumsum(weights) - weights / 2.0) / weights.sum()
    low, middle, high = np.interp((0.25, 0.5, 0.75), levels, x)
    wide = 30.0 * (high - low) / 1.35
    near = np.clip(x, middle - wide, middle + wide) if wide > 0 else x
    inside = near == x
    mean = float(np.average(near, weights=weights))
    variance = float(np.average((near - mean) ** 2 + spreads * inside, weights=weights))
    return mean, variance**0.5 if variance > 0 else max(abs(mean), 1.0) * 1e-6


def _kmeans(x: _Floats, weights: _Floats, most: int) -> NDArray[np.int64]:
    """Group ascending points around at most so many centres, by Lloyd's steps from quantiles."""
    levels = (np.cumsum(weights) - weights / 2.0) / weights.sum()
    centres = np.unique(np.interp((np.arange(most) + 0.5) / most, levels, x))
    group = np.zeros(len(x), dtype=np.int64)
    for _ in range(50):
        group = np.searchsorted((centres[1:] + centres[:-1]) / 2.0, x)
        group = np.unique(group, return_inverse=True)[1].astype(np.int64)
        sums = np.bincount(group, weights)
        moved = np.bincount(group, weights * x) / sums
        if len(moved) == len(centres) and np.abs(moved - centres).max() < 1e-6:
            break
        centres = moved
    return group


def _ascend(
    x: _Floats, weights: _Floats, v: _Floats, belongs: _Floats, steps: int, tolerance: float
) -> tuple[_Floats, _Floats, _Floats]:
    """Alternate posterior of parameters and responsibilities; x has mean 0 and variance 1."""
    from scipy.special import digamma

    old = np.full(belongs.shape[1], np.inf)
    for _ in range(steps):
        mass = weights[:, None] * belongs
        n = mass.sum(axis=0) + 10.0 * np.finfo(float).eps
        average = (mass * x[:, None]).sum(axis=0) / n
        away = (x[:, None] - average) ** 2 + v[:, None]
        within = (mass * away).sum(axis=0) / n + _FLOOR
        beta, nu = _BETA + n, _NU + n
        mean = n * average / beta
        variance = (1.0 + n * (within + _BETA / beta * average**2)) / nu
        # Sticks: how much of what is left each component takes.
        rest = np.concatenate([np.cumsum(n[::-1])[-2::-1], [0.0]]) + _CONCENTRATION
        both = digamma(1.0 + n + rest)
        left = np.cumsum(digamma(rest) - both)
        shares = digamma(1.0 + n) - both + np.concatenate([[0.0], left[:-1]])
        width = digamma(nu / 2.0) + np.log(2.0 / nu) - np.log(variance) - 1.0 / beta
        distance = ((x[:, None] - mean) ** 2 + v[:, None]) / variance
        logs = shares + (width - distance) / 2.0
        odds = np.exp(logs - logs.max(axis=1, keepdims=True))
        belongs = odds / odds.sum(axis=1, keepdims=True)
        if np.abs(n - old).max() < tolerance * weights.sum():
            break
        old = n
    taken = (1.0 + n) / (1.0 + n + rest)
    remaining = np.concatenate([[1.0], np.cumprod(1.0 - taken)[:-1]])
    share = taken * remaining
    return mean, variance, share / share.sum()


def _reaching(
    x: _Floats,
    halves: _Floats,
    weights: _Floats,
    means: _Floats,
    scales: _Floats,
    shares: _Floats,
) -> tuple[_Floats, _Floats, _Floats]:
    """Add a wide mode where the others leave points out."""
    far = np.abs(x[:, None] - means) + halves[:, None]
    out = (far > _REACH * _MOST * scales).all(axis=1)
    if not out.any():
        return means, scales, shares
    low, high = float((x - halves)[out].min()), float((x + halves)[out].max())
    width = max((high - low) / 2.0 / (_REACH * _MOST) * 1.01, float(scales.min()))
    share = float(weights[out].sum() / weights.sum())
    return (
        np.append(means, (low + high) / 2.0),
        np.append(scales, width),
        np.append(shares, share),
    )
