"""Modes of a column: a variational mixture of normal distributions, fitted to weighted points.

The points may be the distinct values of a column, groups of them, or bins with (noisy) counts: each
has a mean, a weight and a variance, so parties that share only counts fit the same mixture as one
that has the rows.

How the continuum of a column becomes one real number, and back.

A scale maps float64 values to a number of order one and, where it has modes, to the mode that the
number is relative to. All are plain data: what is stored in JSON is what is computed with.

How each column becomes part of a row's feature vector: plain data that encodes and decodes.

A plan turns a column into codes of choice blocks and at most one number, and back. It is learned
from distinct values with weights (counts of rows, or noisy counts over declared bins), or declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

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


Floats = NDArray[np.float64]
"""Real numbers, one per row or per knot."""
_Modes = NDArray[np.int64]
_KNOTS = 1000
_ENDS = 16  # so many smallest and largest values are knots themselves
_LARGE = 1e30  # a number that float32 holds, and that may be added up
_MARGIN = 0.01  # a draw keeps this share of a step away from the step's ends


class Line(msgspec.Struct, frozen=True, tag="line"):
    """A straight line: ``(value - centre) / scale``.

    Args:
        centre: What becomes 0.
        scale: What becomes 1 above the centre, positive.
    """

    centre: float
    scale: float

    @property
    def modes(self) -> int:
        """How many modes the scale has: none."""
        return 0

    def takes(self, low: float, high: float) -> bool:
        """Whether every value between these becomes a finite number."""
        ends = [low - self.centre, high - self.centre]
        return self.scale > 0 and small(*(end / self.scale for end in ends))

    def split(self, values: Floats, random: np.random.Generator) -> tuple[_Modes, Floats]:
        """Return no modes (zeros) and the numbers."""
        return np.zeros(len(values), dtype=np.int64), (values - self.centre) / self.scale

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Return the values."""
        return numbers * self.scale + self.centre


class Steps(msgspec.Struct, frozen=True, tag="steps"):
    """Few distinct values, each an interval of the normal distribution as wide as its share.

    A value becomes a normal quantile drawn inside its interval, so the numbers are standard
    normal whatever the shares are; a number becomes the value in whose interval it lies.

    Args:
        values: Distinct values, ascending.
        levels: Cumulative shares between them, ascending inside (0, 1), one fewer.
    """

    values: tuple[float, ...]
    levels: tuple[float, ...]

    @property
    def modes(self) -> int:
        """How many modes the scale has: none."""
        return 0

    def takes(self, low: float, high: float) -> bool:
        """Whether every value between these becomes a finite number."""
        levels = (0.0, *self.levels, 1.0)
        fit = len(levels) == len(self.values) + 1
        return fit and ascending(self.values) and ascending(levels)

    def split(self, values: Floats, random: np.random.Generator) -> tuple[_Modes, Floats]:
        """Return no modes (zeros) and the numbers; an unknown value counts as the nearest."""
        from scipy.special import ndtri

        found = nearest(np.array(self.values), values)
        levels = np.array((0.0, *self.levels, 1.0))
        low, high = levels[found], levels[found + 1]
        share = _MARGIN + (1.0 - 2.0 * _MARGIN) * random.random(len(values))
        return np.zeros(len(values), dtype=np.int64), ndtri(low + (high - low) * share)

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Return the values."""
        from scipy.special import ndtri

        inner = ndtri(np.array(self.levels))
        values: Floats = np.array(self.values)[np.searchsorted(inner, numbers)]
        return values


class Curve(msgspec.Struct, frozen=True, tag="curve"):
    """Quantile to normal: straight lines between knots of (value, normal score).

    Values beyond the knots become the scores of the outermost knots, and scores beyond them their
    values.

    Args:
        values: Ascending.
        scores: Strictly ascending, each a float32, so that what lies on a knot comes back exactly.
    """

    values: tuple[float, ...]
    scores: tuple[float, ...]

    @property
    def modes(self) -> int:
        """How many modes the scale has: none."""
        return 0

    def takes(self, low: float, high: float) -> bool:
        """Whether every value between these becomes a finite number."""
        fit = 0 < len(self.values) == len(self.scores)
        return fit and small(*self.scores) and ascending(self.scores) and rising(self.values)

    def split(self, values: Floats, random: np.random.Generator) -> tuple[_Modes, Floats]:
        """Return no modes (zeros) and the numbers."""
        numbers = np.interp(values, np.array(self.values), np.array(self.scores))
        return np.zeros(len(values), dtype=np.int64), numbers

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Return the values."""
        values: Floats = np.interp(numbers, np.array(self.scores), np.array(self.values))
        return values


class Bins(msgspec.Struct, frozen=True, tag="bins"):
    """Declared bins: the bin is the mode, the place inside it the number, from -1 to 1.

    Args:
        edges: Strictly ascending; at least two.
    """

    edges: tuple[float, ...]

    @property
    def modes(self) -> int:
        """How many bins there are."""
        return len(self.edges) - 1

    def takes(self, low: float, high: float) -> bool:
        """Whether every value between these becomes a finite number."""
        return len(self.edges) > 1 and ascending(self.edges)

    def split(self, values: Floats, random: np.random.Generator) -> tuple[_Modes, Floats]:
        """Return bins and places."""
        edges = np.array(self.edges)
        found = np.searchsorted(edges[1:-1], values, side="right").astype(np.int64)
        low, high = edges[found], edges[found + 1]
        return found, np.clip(2.0 * (values - low) / (high - low) - 1.0, -1.0, 1.0)

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Return the values; a place outside its bin counts as the bin's end."""
        edges = np.array(self.edges)
        low, high = edges[modes], edges[modes + 1]
        values: Floats = low + (high - low) * (np.clip(numbers, -1.0, 1.0) + 1.0) / 2.0
        return values


Scale = Line | Steps | Curve | Bins | Mixture
"""Any of the ways to make a number of a value."""


def small(*numbers: float) -> bool:
    """Whether numbers are finite, with much room, also as float32."""
    return bool((np.abs(numbers) <= _LARGE).all())


def rising(numbers: Sequence[float]) -> bool:
    """Whether numbers are finite, and none is below the one before."""
    return bool(np.isfinite(numbers).all() and (np.diff(numbers) >= 0).all())


def ascending(numbers: Sequence[float]) -> bool:
    """Whether numbers are finite, and each is above the one before."""
    return rising(numbers) and bool((np.diff(numbers) > 0).all())


def nearest(known: Floats, values: Floats) -> NDArray[np.int64]:
    """Return where the nearest of some ascending values stands, for each value."""
    between = (known[1:] + known[:-1]) / 2.0
    return np.searchsorted(between, values).astype(np.int64)


def curve_of_values(values: Floats, weights: Floats) -> Curve:
    """Fit a curve to weighted distinct values.

    Args:
        values: Strictly ascending.
        weights: How often each occurs, positive.

    Returns:
        A curve through the middle of each value's step of the distribution, or through 1,000
        levels of it and the 16 values at either end when there are more values.
    """
    summed = np.cumsum(weights)
    levels = (summed - weights / 2.0) / summed[-1]
    if len(values) > _KNOTS:
        wanted = np.linspace(levels[_ENDS], levels[-_ENDS - 1], _KNOTS)[1:-1]
        between = np.interp(wanted, levels, values)
        ends, starts = slice(-_ENDS - 1, None), slice(_ENDS + 1)
        values = np.concatenate([values[starts], between, values[ends]])
        levels = np.concatenate([levels[starts], wanted, levels[ends]])
    return _curve(values, levels)


def curve_of_edges(edges: Floats, weights: Floats) -> Curve:
    """Fit a curve to counts over bins.

    Args:
        edges: Strictly ascending, one more than weights.
        weights: Count of each bin, 0 or more; an empty bin counts as a millionth of all.

    Returns:
        A curve through the edges.
    """
    total = max(float(weights.sum()), 1.0)
    filled = weights + total * 1e-6
    levels = np.concatenate([[0.0], np.cumsum(filled) / filled.sum()])
    tail = min(0.5 / total, 0.25 * float(filled.min() / filled.sum()))
    return _curve(edges, np.clip(levels, max(tail, 1e-9), 1.0 - max(tail, 1e-9)))


def _curve(values: Floats, levels: Floats) -> Curve:
    from scipy.special import ndtri

    scores = ndtri(levels).astype(np.float32).astype(np.float64)
    kept = np.concatenate([[True], np.diff(scores) > 0])
    if not kept[-1]:  # the largest value stays, whatever it ties with
        kept[np.flatnonzero(kept)[-1]], kept[-1] = False, True
    return Curve(tuple(values[kept].tolist()), tuple(scores[kept].tolist()))


Numeric = Literal["quantile", "modes", "standard"]
"""How the continuum of a column becomes a number."""
_Ints = NDArray[np.int64]
_ATOMS = 1024  # more distinct values than this are a continuum
_SUPPORT = 10  # rows per distinct value, for the values to be all there is
_BASE = 128  # a wide column gets as few digits as keep each below so many options


@dataclass(frozen=True)
class Settings:
    """How plans are learned.

    Args:
        numeric: What the continuum becomes.
        spike_share: Share of rows from which one value of a continuum gets its own choice.
        few_values: A column with at most so many distinct numbers becomes a plain choice.
        wide: A categorical column with more options becomes digits.
    """

    numeric: Numeric = "quantile"
    spike_share: float = 0.02
    few_values: int = 20
    wide: int = 256


class Categories(msgspec.Struct, frozen=True, tag="categories"):
    """A choice among codes, as one block or as the digits of a rank, most significant first.

    Args:
        column: Name of the column.
        options: How many codes there are, a missing one (the last) included.
        sizes: Options of each block; their digits count ranks.
        order: The code of each rank, most frequent first; none when ranks are codes.
    """

    column: str
    options: int
    sizes: tuple[int, ...]
    order: tuple[int, ...] = ()

    @property
    def number(self) -> bool:
        """Whether the column has a number: never."""
        return False

    def digits(self, codes: _Ints) -> list[_Ints]:
        """Return each block's options, one per row."""
        ranks = codes
        if self.order:
            place = np.empty(self.options, dtype=np.int64)
            place[np.array(self.order)] = np.arange(self.options)
            ranks = place[codes]
        found = []
        for size in self.sizes[:0:-1]:
            found.append(ranks % size)
            ranks = ranks // size
        return [ranks, *found[::-1]]

    def codes(self, ranks: _Ints) -> _Ints:
        """Return the code of each rank."""
        return np.array(self.order, dtype=np.int64)[ranks] if self.order else ranks

    def limits(self, prefix: _Ints, block: int) -> _Ints:
        """Return the largest digit that a block may have after the digits before it.

        Args:
            prefix: The number that the digits before it make, one per row.
            block: Which block.
        """
        below = int(np.prod(self.sizes[block + 1 :], dtype=np.int64))
        most = (self.options - 1) // below - prefix * self.sizes[block]
        return np.minimum(most, self.sizes[block] - 1)


class Numbers(msgspec.Struct, frozen=True, tag="numbers"):
    """A number, a choice of what sort of value it is, or both.

    The choice's options are the modes of the scale (one option when it has none), then the
    spikes, then missing; with a single option there is no choice, unless there is no number.

    Args:
        column: Name of the column.
        low: Smallest value, after `origin` was taken off.
        high: Largest value, likewise.
        origin: What is taken off whole numbers and steps of datetimes; 0 for a continuous column.
        grain: Values are multiples of it, above `low` for whole ones; 0 when they are not.
        spikes: Values with an option of their own, ascending.
        scale: The continuum; None when the spikes are all there is.
        atoms: All values that the continuum has, ascending; empty when it has others.
        missing: Whether values may be missing.
    """

    column: str
    low: float
    high: float
    origin: int = 0
    grain: float = 0.0
    spikes: tuple[float, ...] = ()
    scale: Scale | None = None
    atoms: tuple[float, ...] = ()
    missing: bool = False

    @property
    def number(self) -> bool:
        """Whether the column has a number."""
        return self.scale is not None

    @property
    def _modes(self) -> int:
        return 0 if self.scale is None else max(self.scale.modes, 1)

    @property
    def options(self) -> int:
        """How many options the choice has; 0 when there is no choice."""
        count = self._modes + len(self.spikes) + self.missing
        return 0 if count == 1 and self.number else count

    @property
    def sizes(self) -> tuple[int, ...]:
        """Options of each block of choices: one block, or none."""
        return (self.options,) if self.options else ()

    def split(
        self, values: Floats, gone: NDArray[np.bool_], random: np.random.Generator
    ) -> tuple[_Ints, Floats]:
        """Return options and numbers; the number is 0 where a spike or nothing was chosen."""
        options = np.zeros(len(values), dtype=np.int64)
        numbers = np.zeros(len(values))
        spiked = np.zeros(len(values), dtype=bool)
        if self.spikes:
            spikes = np.array(self.spikes)
            place = nearest(spikes, values)
            spiked = (spikes[place] == values) | (self.scale is None)
            options[spiked] = self._modes + place[spiked]
        rest = ~spiked & ~gone
        if self.scale is not None:
            options[rest], numbers[rest] = self.scale.split(values[rest], random)
        options[gone] = self._modes + len(self.spikes)
        return options, numbers

    def join(self, options: _Ints, numbers: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return values and which are missing; values lie within the bounds and on the grain."""
        values = np.full(len(options), self.low)
        smooth = options < self._modes
        if self.scale is not None:
            values[smooth] = self._tidy(self.scale.join(options[smooth], numbers[smooth]))
        place = options - self._modes
        spiked = (place >= 0) & (place < len(self.spikes))
        if self.spikes:
            values[spiked] = np.array(self.spikes)[place[spiked]]
        return values, place == len(self.spikes)

    def _tidy(self, values: Floats) -> Floats:
        if self.atoms and not isinstance(self.scale, Steps):
            known = np.array(self.atoms)
            return known[nearest(known, values)]
        if self.grain == 1.0:
            values = np.rint(values)
        elif self.grain:
            # 10**-d: a quotient of whole numbers is the double that the decimals name.
            values = np.rint(values / self.grain) / np.rint(1.0 / self.grain)
        return np.clip(values, self.low, self.high)


Plan = Categories | Numbers
"""What becomes of one column."""


@dataclass(frozen=True, eq=False)
class Points:
    """What is known about the values of a column of numbers.

    Args:
        values: Ascending: distinct values, or means of bins.
        weights: How often each occurs, 0 or more.
        edges: Edges of the bins, one more than values; None when values are exact.
    """

    values: Floats
    weights: Floats
    edges: Floats | None = None

    def without(self, spikes: Sequence[float]) -> Points:
        """Return the points that are no spikes; bins are left as they are."""
        if self.edges is not None or not spikes:
            return self
        kept = ~np.isin(self.values, np.array(spikes))
        return Points(self.values[kept], self.weights[kept])


def ranked(column: str, weights: Floats | None, options: int, wide: int) -> Categories:
    """Plan a categorical column.

    Args:
        column: Its name.
        weights: How often each code occurs, which orders the ranks of a wide column; codes are
            ranks when None.
        options: How many codes there are.
        wide: From how many on they become digits.
    """
    if options <= wide:
        return Categories(column, options, (options,))
    digits = 2
    while _root(options, digits) > _BASE:
        digits += 1
    base = _root(options, digits)
    first = -(-options // base ** (digits - 1))
    order = () if weights is None else tuple(np.argsort(-weights, kind="stable").tolist())
    return Categories(column, options, (first, *(base,) * (digits - 1)), order)


def _root(number: int, degree: int) -> int:
    """The smallest base with as many digits' numbers."""
    base = max(int(float(number) ** (1.0 / degree)) - 1, 1)
    while base**degree < number:
        base += 1
    return base


def learned(blank: Numbers, points: Points, settings: Settings) -> Numbers:
    """Learn the plan of a column of numbers.

    Args:
        blank: Bounds, origin, grain and missing; its spikes are kept.
        points: The values; none makes a line between the bounds.
        settings: How.

    Returns:
        The plan.
    """
    total = float(points.weights.sum())
    count = len(points.values)
    exact = points.edges is None
    if not count:
        middle, half = (blank.low + blank.high) / 2.0, (blank.high - blank.low) / 2.0
        return msgspec.structs.replace(blank, scale=Line(middle, half or 1.0))
    whole_range = exact and blank.grain == 1.0 and count == blank.high - blank.low + 1
    supported = exact and (total >= _SUPPORT * count or count == 1 or whole_range)
    if supported and count <= settings.few_values:
        return msgspec.structs.replace(blank, spikes=tuple(points.values.tolist()))
    spikes = blank.spikes
    if exact:
        heavy = points.weights >= max(settings.spike_share, 10.0 / count) * total
        spikes = tuple(sorted({*spikes, *points.values[heavy].tolist()}))
    rest = points.without(spikes)
    if not len(rest.values):
        return msgspec.structs.replace(blank, spikes=spikes)
    rest_total = float(rest.weights.sum())
    atoms: tuple[float, ...] = ()
    if exact and len(rest.values) <= _ATOMS and rest_total >= _SUPPORT * len(rest.values):
        atoms = tuple(rest.values.tolist())
    scale = _scale(rest, bool(atoms), settings.numeric)
    return msgspec.structs.replace(blank, spikes=spikes, scale=scale, atoms=atoms)


def _scale(points: Points, atoms: bool, numeric: Numeric) -> Scale:
    values, weights, edges = points.values, points.weights, points.edges
    # What a noisy count left out may still occur.
    weights = np.maximum(weights, max(float(weights.sum()), 1.0) * 1e-6)
    if numeric == "quantile" and atoms:
        return Steps(tuple(values.tolist()), tuple(_levels(weights).tolist()))
    if numeric == "quantile":
        if edges is None:
            return curve_of_values(values, weights)
        return curve_of_edges(edges, points.weights)
    spreads = np.zeros(len(values)) if edges is None else np.diff(edges) ** 2 / 12.0
    if numeric == "standard":
        mean = float(np.average(values, weights=weights))
        variance = float(np.average((values - mean) ** 2 + spreads, weights=weights))
        return Line(mean, variance**0.5 if variance > 0 else 1.0)
    if edges is None:
        return fit_mixture(values, weights)
    return fit_mixture(values, points.weights, spreads)


def _levels(weights: Floats) -> Floats:
    levels: Floats = np.cumsum(weights)[:-1] / weights.sum()
    return levels
