"""How each column becomes part of a row's feature vector: plain data that encodes and decodes.

An encoding turns a column into codes of one-hot blocks and at most one number, and back. It is
learned from distinct values with weights (counts of rows, or noisy counts over declared bins), or
follows from the schema alone. Whole numbers and datetimes are counted from the column's low bound,
so that float64 distinguishes them as long as the bounds are less than 2**53 apart.

A scale maps float64 values to a number of order one and, where it has modes, to the mode that the
number is relative to. `fit_mixture` fits the modes of a column to weighted points: its distinct
values, groups of them, or bins with (noisy) counts. So parties that share only counts fit the same
mixture as one that has the rows. What is stored in JSON is what is computed with.

Sources:
    Xu, Skoularidou, Cuesta-Infante & Veeramachaneni 2019, *Modeling Tabular Data using Conditional
    GAN* (NeurIPS): mode-specific normalisation. Blei & Jordan 2006, *Variational inference for
    Dirichlet process mixtures* (Bayesian Analysis 1): the coordinate ascent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import msgspec
import numpy as np
from msgspec.structs import replace

from siloweave.errors import DataError, SchemaError
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.bins import (
    SPIKE_SHARE,
    as_written,
    edges_of,
    last_of,
    new_densities,
    spike_bins,
    with_decimals,
    without_spikes,
)
from siloweave.tables.cells import check_values, numbers_of, options_of
from siloweave.tables.column import Column
from siloweave.tables.decimals import decimals_of
from siloweave.tables.table import Table

_Modes = Ints

# Scales

# The number 1 stands for so many standard deviations.
_REACH = 4.0
# The largest number, so that a tanh can reach it.
_MOST = 0.99
# A value lies at most so many deviations from a mode: their square is finite.
_FAR = 1e100
# A number that float32 holds, and that may be added up.
_LARGE = 1e30
# A draw keeps this share of a step away from the step's ends.
_MARGIN = 0.01
# A curve has so many knots between its ends.
_KNOTS = 1000
# So many smallest and largest values are knots themselves.
_ENDS = 16
# Modes with a smaller weight are dropped.
_SMALLEST = 0.005
# More points than this are gathered before a mixture is fitted.
_GROUPS = 1024
# So many widest gaps always part two points.
_GAPS = 256
ATOM_ROWS = 5
"""Rows that share a value for it to be drawn exactly by ranks."""
# More atoms of a column would make a model's file large.
_MOST_ATOMS = 16_384
# An atom's knots leave out this share of its levels.
_APART = 1e-4
# The smallest variance of a mode, as a share of the column's.
_FLOOR = 1e-6
# Of the Dirichlet process, as CTGAN has it.
_CONCENTRATION = 1e-3
# The prior mean counts for so many observations.
_BETA = 1.0
# The prior variance counts for so many observations.
_NU = 1.0


class Mixture(msgspec.Struct, frozen=True, tag="modes"):
    """A mode-specific normalisation: the mode of a value, and its distance from the mode's mean.

    The number is ``(value - mean) / (4 * scale)`` of a mode that is drawn by how likely it made
    the value, among those that reach it; it is clipped to 0.99 (Xu et al. 2019). Means ascend,
    scales are standard deviations, weights sum to 1.
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def modes(self) -> int:
        """The number of modes."""
        return len(self.means)

    def takes(self, low: float, high: float) -> bool:
        """Return whether all values between two bounds become finite numbers."""
        has_modes = 0 < len(self.means) == len(self.scales) == len(self.weights)
        if not has_modes or not min(*self.scales, *self.weights) > 0:
            return False
        ends = np.array([[low], [high]])
        deviations = (ends - np.array(self.means)) / np.array(self.scales)
        is_near = (np.abs(deviations) <= _FAR).all()
        return bool(is_near and np.isfinite(self.weights).all())

    def split(
        self, values: Floats, random: np.random.Generator
    ) -> tuple[_Modes, Floats]:
        """Encode values: draw a mode for each, and return modes and numbers."""
        means = np.array(self.means)
        scales = np.array(self.scales)
        weights = np.array(self.weights)

        # Xu et al. 2019, section 4.2, step 2: how likely each mode made each value.
        deviations = (values[:, None] - means) / scales
        is_reached = np.abs(deviations) <= _REACH * _MOST
        logs = np.log(weights / scales) - deviations**2 / 2.0
        # Where no mode reaches, the one that comes closest is taken.
        is_candidate = is_reached | ~is_reached.any(axis=1, keepdims=True)
        logs = np.where(is_candidate, logs, -np.inf)

        # Step 3: a mode is drawn by where a uniform number falls among the summed likelihoods.
        largest = logs.max(axis=1, keepdims=True)
        likelihoods = np.exp(logs - largest)
        summed = np.cumsum(likelihoods, axis=1)
        draws = random.random(len(values)) * summed[:, -1]
        is_below = summed <= draws[:, None]
        # Rounding must not lead behind the last mode.
        modes = is_below.sum(axis=1).clip(max=self.modes - 1)
        rows = np.arange(len(values))
        numbers = deviations[rows, modes] / _REACH
        return modes, np.clip(numbers, -_MOST, _MOST)

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Decode modes and numbers to values."""
        means = np.array(self.means)[modes]
        scales = np.array(self.scales)[modes]
        return means + scales * _REACH * numbers


class _OneMode(msgspec.Struct, frozen=True):
    """A scale with a single mode, for which `split` returns zeros."""

    modes: ClassVar[int] = 0


class Line(_OneMode, frozen=True, tag="line"):
    """A straight line: ``(value - centre) / scale``, with a positive scale."""

    centre: float
    scale: float

    def takes(self, low: float, high: float) -> bool:
        """Return whether all values between two bounds become finite numbers."""
        if not self.scale > 0:
            return False
        ends = [low - self.centre, high - self.centre]
        return _small(*(end / self.scale for end in ends))

    def split(
        self, values: Floats, random: np.random.Generator
    ) -> tuple[_Modes, Floats]:
        """Encode values: return zeros for the modes, and the numbers."""
        no_modes = np.zeros(len(values), dtype=np.int64)
        return no_modes, (values - self.centre) / self.scale

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Decode numbers to values."""
        return numbers * self.scale + self.centre


class Steps(_OneMode, frozen=True, tag="steps"):
    """Few distinct values, each an interval of the normal distribution as wide as its share.

    A value becomes a normal quantile drawn inside its interval, so the numbers are standard
    normal whatever the shares are; a number becomes the value in whose interval it lies. An
    unknown value counts as the nearest known one. Values ascend; levels, one fewer, are the
    cumulative shares between them, ascending inside (0, 1).
    """

    values: tuple[float, ...]
    levels: tuple[float, ...]

    def takes(self, low: float, high: float) -> bool:
        """Return whether all values between two bounds become finite numbers."""
        levels = (0.0, *self.levels, 1.0)
        has_levels = len(levels) == len(self.values) + 1
        return has_levels and ascending(self.values) and ascending(levels)

    def split(
        self, values: Floats, random: np.random.Generator
    ) -> tuple[_Modes, Floats]:
        """Encode values: return zeros for the modes, and the numbers."""
        from scipy.special import ndtri

        places = nearest(np.array(self.values), values)
        levels = np.array((0.0, *self.levels, 1.0))
        low = levels[places]
        high = levels[places + 1]
        # A share strictly inside the step: at its ends it would be the neighbour's, or infinite.
        draws = random.random(len(values))
        share = _MARGIN + (1.0 - 2.0 * _MARGIN) * draws
        drawn_levels = low + (high - low) * share
        no_modes = np.zeros(len(values), dtype=np.int64)
        return no_modes, ndtri(drawn_levels)

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Decode numbers to values."""
        from scipy.special import ndtri

        inner = ndtri(np.array(self.levels))
        places = np.searchsorted(inner, numbers)
        values: Floats = np.array(self.values)[places]
        return values


class _Knots(_OneMode, frozen=True):
    """Ascending values, each with a normal score."""

    values: tuple[float, ...]
    scores: tuple[float, ...]

    def takes(self, low: float, high: float) -> bool:
        """Return whether all values between two bounds become finite numbers."""
        has_knots = 0 < len(self.values) == len(self.scores)
        if not has_knots or not _small(*self.scores):
            return False
        return ascending(self.scores) and _rising(self.values)


class Curve(_Knots, frozen=True, tag="curve"):
    """A map from quantiles to normal scores: straight lines between knots (value, score).

    Values beyond the knots become the scores of the outermost knots, and scores beyond them their
    values. Values ascend; scores strictly, each a float32, so that a knot comes back exactly.
    """

    def split(
        self, values: Floats, random: np.random.Generator
    ) -> tuple[_Modes, Floats]:
        """Encode values: return zeros for the modes, and the numbers."""
        knots = np.array(self.values)
        scores = np.array(self.scores)
        no_modes = np.zeros(len(values), dtype=np.int64)
        return no_modes, np.interp(values, knots, scores)

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Decode numbers to values."""
        knots = np.array(self.values)
        scores = np.array(self.scores)
        values: Floats = np.interp(numbers, scores, knots)
        return values


class Ranks(_Knots, frozen=True, tag="ranks"):
    """A map from quantiles to normal scores, in which a repeated value keeps its share of scores.

    Knots are (value, normal score), with straight lines between them. A value of two knots is an
    atom: it becomes a score drawn between them, and every score there is that value again, so it is
    drawn exactly and as often as it was seen. Values rise, scores ascend, each a float32.
    """

    def split(
        self, values: Floats, random: np.random.Generator
    ) -> tuple[_Modes, Floats]:
        """Encode values: return zeros for the modes, and the numbers."""
        from scipy.special import ndtr, ndtri

        knots = np.array(self.values)
        scores = np.array(self.scores)
        first = np.searchsorted(knots, values, side="left")
        last = np.searchsorted(knots, values, side="right") - 1
        numbers = np.interp(values, knots, scores)

        # Scores of an atom are uniform in the levels of the distribution between its knots.
        draws = random.random(len(values))
        is_atom = last > first
        low_scores = scores[first[is_atom]]
        high_scores = scores[last[is_atom]]
        low = ndtr(low_scores)
        high = ndtr(high_scores)
        share = _MARGIN + (1.0 - 2.0 * _MARGIN) * draws[is_atom]
        level = low + (high - low) * share
        # Rounding must not lead beyond the atom's knots.
        numbers[is_atom] = np.clip(ndtri(level), low_scores, high_scores)
        no_modes = np.zeros(len(values), dtype=np.int64)
        return no_modes, numbers

    def join(self, modes: _Modes, numbers: Floats) -> Floats:
        """Decode numbers to values; between two atoms without a knot between them, the nearer."""
        knots = np.array(self.values)
        scores = np.array(self.scores)
        values: Floats = np.interp(numbers, scores, knots)
        if len(knots) < 2:
            return values

        is_repeated = knots[1:] == knots[:-1]
        is_atom = np.append(is_repeated, False) | np.insert(is_repeated, 0, False)
        upper = np.searchsorted(scores, numbers).clip(1, len(knots) - 1)
        lower = upper - 1
        is_between = (numbers > scores[0]) & (numbers < scores[-1])
        is_between &= is_atom[lower] & is_atom[upper]
        is_lower_nearer = numbers - scores[lower] <= scores[upper] - numbers
        nearer = np.where(is_lower_nearer, lower, upper)
        values[is_between] = knots[nearer[is_between]]
        return values


Scale = Line | Steps | Curve | Ranks | Mixture
"""Any of the ways to make a number of a value."""


def _small(*numbers: float) -> bool:
    """Return whether numbers are finite, with much room, also as float32."""
    return bool((np.abs(numbers) <= _LARGE).all())


def _rising(numbers: Sequence[float]) -> bool:
    """Return whether numbers are finite, and none is below the one before."""
    if not np.isfinite(numbers).all():
        return False
    return bool((np.diff(numbers) >= 0).all())


def ascending(numbers: Sequence[float]) -> bool:
    """Return whether numbers are finite, and each is above the one before."""
    return _rising(numbers) and bool((np.diff(numbers) > 0).all())


def nearest(points: Floats, values: Floats) -> Ints:
    """Return the position of the nearest of some ascending points to each value."""
    middles = (points[1:] + points[:-1]) / 2.0
    return np.searchsorted(middles, values).astype(np.int64)


def curve_of_values(values: Floats, weights: Floats) -> Curve:
    """Fit a curve to strictly ascending values and their frequencies.

    It goes through the middle of each value's step of the distribution, or through 1,000 levels
    of it and the 16 values at either end when there are more values.
    """
    summed = np.cumsum(weights)
    levels = (summed - weights / 2.0) / summed[-1]
    if len(values) > _KNOTS:
        first = slice(_ENDS + 1)
        last = slice(-_ENDS - 1, None)
        # The ends of the inner levels are knots already.
        low = levels[_ENDS]
        high = levels[-_ENDS - 1]
        inner_levels = np.linspace(low, high, _KNOTS)[1:-1]
        inner_values = np.interp(inner_levels, levels, values)
        values = np.concatenate([values[first], inner_values, values[last]])
        levels = np.concatenate([levels[first], inner_levels, levels[last]])
    return _curve(values, levels)


def ranks_of_values(values: Floats, weights: Floats) -> Ranks:
    """Fit ranks to strictly ascending values and their frequencies.

    What five rows or more share is an atom, at most 16,384 of them, the most frequent first. Of the
    other values, those that follow an atom, 1,000 more and the 16 at either end are knots.

    **What an atom protects.** A value that is drawn exactly and more often than by chance was held
    by five rows; it is a fact about them together. Values of fewer rows are between knots.
    """
    summed = np.cumsum(weights)
    total = summed[-1]
    upper = summed / total
    lower = (summed - weights) / total
    is_atom = weights >= ATOM_ROWS
    if np.count_nonzero(is_atom) > _MOST_ATOMS:
        least = np.sort(weights[is_atom])[-_MOST_ATOMS]
        is_atom = weights > least

    singles = np.flatnonzero(~is_atom)
    if len(singles) > _KNOTS:
        inner = singles[_ENDS:-_ENDS]
        evenly = np.linspace(0, len(inner) - 1, _KNOTS).astype(np.int64)
        follows_atom = is_atom[singles - 1] & (singles > 0)
        ends = [singles[:_ENDS], singles[-_ENDS:]]
        few = [*ends, inner[evenly], singles[follows_atom]]
        singles = np.unique(np.concatenate(few))

    # An atom's knots leave out a ten-thousandth of its share, so that scores of neighbours differ.
    atoms = np.flatnonzero(is_atom)
    margin = _APART * (upper[atoms] - lower[atoms])
    starts = lower[atoms] + margin
    stops = upper[atoms] - margin
    knots = np.concatenate([values[singles], values[atoms], values[atoms]])
    middle = (lower[singles] + upper[singles]) / 2.0
    levels = np.concatenate([middle, starts, stops])
    order = np.lexsort((levels, knots))
    # Levels of 0 and 1 would have infinite scores.
    outside = 0.25 / total
    inside_levels = np.clip(levels[order], outside, 1.0 - outside)
    curve = _curve(knots[order], inside_levels)
    return Ranks(curve.values, curve.scores)


def curve_of_edges(edges: Floats, weights: Floats) -> Curve:
    """Fit a curve through the edges of bins with counts; an empty bin gets a millionth of all."""
    total = max(float(weights.sum()), 1.0)
    filled = weights + total * 1e-6
    filled_total = filled.sum()
    levels = np.concatenate([[0.0], np.cumsum(filled) / filled_total])
    # Outermost levels of 0 and 1 would have infinite scores.
    smallest = float(filled.min() / filled_total)
    tail = min(0.5 / total, 0.25 * smallest)
    tail = max(tail, 1e-9)
    return _curve(edges, np.clip(levels, tail, 1.0 - tail))


def _curve(values: Floats, levels: Floats) -> Curve:
    """Build the curve through ascending values at levels of the distribution.

    Of knots whose scores are one float32, the first stays.
    """
    from scipy.special import ndtri

    # As float32 holds them, so that a network's numbers lead back to the knots.
    scores = ndtri(levels).astype(np.float32).astype(np.float64)
    is_knot = np.concatenate([[True], np.diff(scores) > 0])
    if not is_knot[-1]:  # the largest value stays, whatever it ties with
        last_knot = np.flatnonzero(is_knot)[-1]
        is_knot[last_knot] = False
        is_knot[-1] = True
    knots = values[is_knot].tolist()
    knot_scores = scores[is_knot].tolist()
    return Curve(tuple(knots), tuple(knot_scores))


def fit_mixture(
    values: Floats,
    weights: Floats,
    spreads: Floats | None = None,
    *,
    components: int = 10,
    steps: int = 200,
    tolerance: float = 1e-5,
) -> Mixture:
    """Fit a mixture of normals by variational inference with a Dirichlet process over weights.

    Coordinate ascent after Blei & Jordan 2006, started from one-dimensional k-means; nothing is
    drawn. Priors are those of CTGAN's mixture: concentration 0.001, the mean and the variance of
    the column as one observation each (of values within 30 robust deviations, so that an outlier
    does not set them).

    Values ascend; a noisy weight below 0 counts as 0; `spreads` are variances inside each point, of
    a uniform distribution. Modes below half a percent are dropped. Steps end when no mode gains or
    loses a share of all points above `tolerance`. Returns the modes, ascending. Where these do not
    reach every point within 3.96 standard deviations, one more, wide mode does.
    """
    # A noisy count below 0 is 0; without any count, all points weigh the same.
    weights = np.maximum(weights, 0.0)
    if not weights.sum() > 0:
        weights = np.ones(len(values))
    # Half the width of a uniform distribution of this variance.
    halves = np.zeros(len(values))
    if spreads is not None:
        halves = np.sqrt(3.0 * spreads)
    is_used = weights > 0
    values = values[is_used]
    weights = weights[is_used]
    halves = halves[is_used]

    # Many points are gathered, and all are brought to mean 0 and variance 1.
    points = values
    point_weights = weights
    spreads = halves**2 / 3.0
    if len(values) > _GROUPS and not halves.any():
        points, point_weights, spreads = _grouped(values, weights)
    centre, scale = _robust(points, point_weights, spreads)
    x = (points - centre) / scale
    v = spreads / scale**2

    # Start from k-means, the largest group first, since sticks are broken in this order.
    groups = _kmeans(x, point_weights, components)
    group_weights = np.bincount(groups, point_weights)
    by_size = np.argsort(-group_weights)
    place_of_group = np.argsort(by_size)
    belongs = np.eye(len(group_weights))[place_of_group[groups]]
    means, variances, shares = _ascend(x, point_weights, v, belongs, steps, tolerance)

    # Modes in ascending order; small ones are dropped, but never all.
    order = np.argsort(means)
    means = means[order]
    variances = variances[order]
    shares = shares[order]
    least_share = min(_SMALLEST, float(shares.max()) / 2.0)
    is_large = shares > least_share
    means = means[is_large] * scale + centre
    scales = np.sqrt(variances[is_large]) * scale
    shares = shares[is_large]

    means, scales, shares = _reaching(values, halves, weights, means, scales, shares)
    shares = shares / shares.sum()
    return Mixture(
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        weights=tuple(shares.tolist()),
    )


def _grouped(values: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Gather ascending values into some 1,024 points of about equal weight, split at wide gaps.

    Returns means, weights and variances of the points.
    """
    middle = np.cumsum(weights) - weights / 2.0
    group = (middle / weights.sum() * _GROUPS).astype(np.int64)
    is_start = np.concatenate([[True], np.diff(group) > 0])
    widest_gaps = np.argsort(np.diff(values))[-_GAPS:]
    is_start[widest_gaps + 1] = True  # no point spans two heaps

    starts = np.flatnonzero(is_start)
    sums = np.add.reduceat(weights, starts)
    means = np.add.reduceat(weights * values, starts) / sums
    index = np.cumsum(is_start) - 1  # the group of each value
    squares = weights * (values - means[index]) ** 2
    spreads = np.add.reduceat(squares, starts) / sums
    return means, sums, spreads


def _middle_levels(weights: Floats) -> Floats:
    """Return the distribution function in the middle of each point's step."""
    middles = np.cumsum(weights) - weights / 2.0
    levels: Floats = middles / weights.sum()
    return levels


def _robust(x: Floats, weights: Floats, spreads: Floats) -> tuple[float, float]:
    """Return the mean and deviation of points, with those far out pulled in."""
    levels = _middle_levels(weights)
    low, middle, high = np.interp((0.25, 0.5, 0.75), levels, x)
    # The quartiles of a normal distribution are 1.35 deviations apart.
    wide = 30.0 * (high - low) / 1.35
    near = x
    if wide > 0:
        near = np.clip(x, middle - wide, middle + wide)
    mean = float(np.average(near, weights=weights))
    is_inside = near == x
    squares = (near - mean) ** 2 + spreads * is_inside
    variance = float(np.average(squares, weights=weights))
    if variance > 0:
        return mean, variance**0.5
    return mean, max(abs(mean), 1.0) * 1e-6


def _kmeans(x: Floats, weights: Floats, most: int) -> Ints:
    """Group ascending points around at most so many centres, by Lloyd's steps from quantiles."""
    quantiles = (np.arange(most) + 0.5) / most
    starts = np.interp(quantiles, _middle_levels(weights), x)
    centres = np.unique(starts)
    group = np.zeros(len(x), dtype=np.int64)
    for _ in range(50):
        group = nearest(centres, x)
        # Centres without a point are dropped: the groups are numbered anew.
        _, group = np.unique(group, return_inverse=True)
        group = group.astype(np.int64)
        sums = np.bincount(group, weights * x)
        means = sums / np.bincount(group, weights)
        has_all = len(means) == len(centres)
        if has_all and np.abs(means - centres).max() < 1e-6:
            break
        centres = means
    return group


def _ascend(
    x: Floats, weights: Floats, v: Floats, belongs: Floats, steps: int, tolerance: float
) -> tuple[Floats, Floats, Floats]:
    """Alternate posterior of parameters and responsibilities; x has mean 0 and variance 1.

    Blei & Jordan 2006, section 3.2, with normals of unknown mean and variance.
    """
    from scipy.special import digamma

    old = np.full(belongs.shape[1], np.inf)
    for _ in range(steps):
        # Each component's weight, mean and variance, of the points as they belong to it.
        mass = weights[:, None] * belongs
        n = mass.sum(axis=0) + 10.0 * np.finfo(float).eps
        average = (mass * x[:, None]).sum(axis=0) / n
        squares = (x[:, None] - average) ** 2 + v[:, None]
        within = (mass * squares).sum(axis=0) / n + _FLOOR

        # The posterior of its mean and variance, under one observation of the prior.
        beta = _BETA + n
        nu = _NU + n
        mean = n * average / beta
        variance = (1.0 + n * (within + _BETA / beta * average**2)) / nu

        # Sticks: the share of the rest that each component takes, Beta(1 + n, rest).
        after = np.cumsum(n[::-1])[-2::-1]  # points of all later components
        rest = np.concatenate([after, [0.0]]) + _CONCENTRATION
        log_both = digamma(1.0 + n + rest)
        log_rest = np.cumsum(digamma(rest) - log_both)
        log_before = np.concatenate([[0.0], log_rest[:-1]])
        log_shares = digamma(1.0 + n) - log_both + log_before

        # How much each point belongs to each component, as probabilities.
        log_precision = digamma(nu / 2.0) + np.log(2.0 / nu) - np.log(variance)
        width = log_precision - 1.0 / beta
        squares = (x[:, None] - mean) ** 2 + v[:, None]
        distance = squares / variance
        logs = log_shares + (width - distance) / 2.0
        odds = np.exp(logs - logs.max(axis=1, keepdims=True))
        belongs = odds / odds.sum(axis=1, keepdims=True)
        if np.abs(n - old).max() < tolerance * weights.sum():
            break
        old = n

    # The mean of each stick, and what the sticks before leave of the whole.
    sticks = (1.0 + n) / (1.0 + n + rest)
    before = np.cumprod(1.0 - sticks)[:-1]
    share = sticks * np.concatenate([[1.0], before])
    return mean, variance, share / share.sum()


def _reaching(
    x: Floats,
    halves: Floats,
    weights: Floats,
    means: Floats,
    scales: Floats,
    shares: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Add a wide mode if the other modes leave points out."""
    farthest = np.abs(x[:, None] - means) + halves[:, None]
    is_left_out = (farthest > _REACH * _MOST * scales).all(axis=1)
    if not is_left_out.any():
        return means, scales, shares
    low = float((x - halves)[is_left_out].min())
    high = float((x + halves)[is_left_out].max())
    # A hundredth wider than needed, so that rounding leaves nothing out again.
    half = (high - low) / 2.0
    width = half / (_REACH * _MOST) * 1.01
    width = max(width, float(scales.min()))
    middle = (low + high) / 2.0
    share = float(weights[is_left_out].sum() / weights.sum())
    means = np.append(means, middle)
    scales = np.append(scales, width)
    shares = np.append(shares, share)
    return means, scales, shares


Numeric = Literal["quantile", "modes", "standard", "ranks"]
"""How the continuum of a column becomes a number."""
LARGEST = 1e100
"""Of a number, so that its square, and sums of many, are numbers too."""
FEW_VALUES = 20
"""Up to so many distinct numbers are a categorical."""
WIDE = 256
"""Categoricals of more options are digits."""
RESOLUTIONS = tuple(float(f"1e-{decimals}") for decimals in range(8))
"""What the values of a column may be multiples of."""
_Mask = Bools
# More distinct values than this are a continuum.
_LISTED = 1024
# Values that have so many rows each, on average, are all there is.
_SUPPORT = 10
# A wide column gets as few digits as keep each below so many options.
_BASE = 128


class CategoricalEncoding(msgspec.Struct, frozen=True, tag="categorical"):
    """The encoding of a column of codes, as one block or as the digits of a rank.

    The most significant digit comes first.

    Args:
        column: Name of the column.
        options: How many codes there are, a missing one (the last) included.
        sizes: Options of each block; their digits count ranks.
        order: The code of each rank, most frequent first; empty when ranks are codes.
    """

    column: str
    options: int
    sizes: tuple[int, ...]
    order: tuple[int, ...] = ()

    number: ClassVar[bool] = False

    def digits(self, codes: Ints) -> list[Ints]:
        """Return the options of each block, one per row."""
        ranks = codes
        if self.order:
            rank_of_code = np.empty(self.options, dtype=np.int64)
            rank_of_code[np.array(self.order)] = np.arange(self.options)
            ranks = rank_of_code[codes]
        last_first = []
        for size in self.sizes[:0:-1]:
            last_first.append(ranks % size)
            ranks = ranks // size
        return [ranks, *last_first[::-1]]

    def codes(self, ranks: Ints) -> Ints:
        """Return the code of each rank."""
        if not self.order:
            return ranks
        return np.array(self.order, dtype=np.int64)[ranks]

    def limits(self, prefix: Ints, block: int) -> Ints:
        """Return the largest digit in a block that gives a code, after the digits before it."""
        size = self.sizes[block]
        unit = int(np.prod(self.sizes[block + 1 :], dtype=np.int64))
        most = (self.options - 1) // unit - prefix * size
        return np.minimum(most, size - 1)


class NumberLink(msgspec.Struct, frozen=True):
    """A column that a value equals in some rows, or two columns of which it is the sum.

    Args:
        columns: One column or two, each before the linked one in the schema's order.
        signs: Of each column in the sum, 1 or -1.
    """

    columns: tuple[str, ...]
    signs: tuple[int, ...]

    def computed(
        self, values: Mapping[str, tuple[Floats, Bools]]
    ) -> tuple[Floats, Bools]:
        """Return the sum in every row, and where it is known, from values and their gaps."""
        terms = []
        gaps = []
        for name, sign in zip(self.columns, self.signs, strict=True):
            term, is_missing = values[name]
            terms.append(sign * term)
            gaps.append(is_missing)
        has_sum = ~np.any(gaps, axis=0)
        return np.where(has_sum, sum(terms), 0.0), has_sum


class Quotient(msgspec.Struct, frozen=True):
    """Two columns of which a value is the quotient in some rows, such as a rate of two counts.

    Args:
        columns: Dividend and divisor, both before the linked one in the schema's order.
        decimals: To which the quotient is rounded; None where it is exact.
    """

    columns: tuple[str, str]
    decimals: int | None = None

    def computed(
        self, values: Mapping[str, tuple[Floats, Bools]]
    ) -> tuple[Floats, Bools]:
        """Return the quotient in every row, not rounded, and where it is known."""
        (divided, no_divided), (by, no_by) = (values[name] for name in self.columns)
        has_quotient = ~no_divided & ~no_by & (by != 0)
        quotients = np.zeros(len(divided))
        with np.errstate(over="ignore"):  # one that is no float64 is not known
            np.divide(divided, by, out=quotients, where=has_quotient)
        return quotients, has_quotient & np.isfinite(quotients)


Relation = NumberLink | Quotient
"""From what a value may be computed."""


class NumericEncoding(msgspec.Struct, frozen=True, tag="numeric"):
    """The encoding of a number: a number, a categorical of the sort of value, or both.

    The categorical's options are the modes of the scale (one option when it has none), then the
    spikes, then the links, then missing; with a single option there is no categorical, unless there
    is no number.

    Args:
        column: Name of the column.
        low: Smallest value, after `origin` was subtracted.
        high: Largest value, likewise.
        origin: What is subtracted from whole numbers and steps of datetimes; 0 for a continuous
            column.
        resolution: Values are multiples of it, above `low` for whole ones; 0 when they are not.
        spikes: Values with an option of their own, ascending.
        scale: The continuum; None when the spikes are all there is.
        atoms: All values that the continuum has, ascending; empty when it has others.
        missing: Whether values may be missing.
    """

    column: str
    low: float
    high: float
    origin: int = 0
    resolution: float = 0.0
    spikes: tuple[float, ...] = ()
    scale: Scale | None = None
    atoms: tuple[float, ...] = ()
    missing: bool = False

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The links by which a value is computed in some rows: none but in `LinkedEncoding`."""
        return ()

    @property
    def number(self) -> bool:
        """Whether the column has a number."""
        return self.scale is not None

    @property
    def _modes(self) -> int:
        """The number of options of the continuum."""
        if self.scale is None:
            return 0
        return max(self.scale.modes, 1)

    @property
    def _first_link(self) -> int:
        """The option of the first link; the option of a missing value comes after the last link."""
        return self._modes + len(self.spikes)

    @property
    def options(self) -> int:
        """The number of options of the categorical; 0 without one."""
        num_values = self._first_link + len(self.relations)
        num_options = num_values + self.missing
        # A single option says nothing beside a number.
        if num_options == 1 and self.number:
            return 0
        return num_options

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of options in each one-hot block: of one block, or none."""
        return (self.options,) if self.options else ()

    def split(
        self,
        values: Floats,
        missing: _Mask,
        random: np.random.Generator,
        linked: Sequence[Bools] = (),
    ) -> tuple[Ints, Floats]:
        """Encode values as options and numbers; the number is 0 for a spike or a missing value.

        `linked` says of each link which rows have it.
        """
        num_rows = len(values)
        options = np.zeros(num_rows, dtype=np.int64)
        numbers = np.zeros(num_rows)
        is_spike = np.zeros(num_rows, dtype=bool)
        if self.spikes:
            spikes = np.array(self.spikes)
            place = nearest(spikes, values)
            is_spike = (spikes[place] == values) | (self.scale is None)
            options[is_spike] = self._modes + place[is_spike]
        is_smooth = ~is_spike & ~missing
        if self.scale is not None:
            modes, smooth_numbers = self.scale.split(values[is_smooth], random)
            options[is_smooth] = modes
            numbers[is_smooth] = smooth_numbers
        # From the last link to the first, which wins.
        for place_of_link in reversed(range(len(linked))):
            is_linked = is_smooth & linked[place_of_link]
            options[is_linked] = self._first_link + place_of_link
        options[missing] = self._first_link + len(self.relations)
        return options, numbers

    def join(self, options: Ints, numbers: Floats) -> tuple[Floats, _Mask]:
        """Decode to values, within the bounds and the resolution, and to which are missing."""
        values = np.full(len(options), self.low)
        after_links = self._first_link + len(self.relations)
        is_linked = (options >= self._first_link) & (options < after_links)
        is_smooth = (options < self._modes) | is_linked
        if self.scale is not None:
            # A linked value has a number as well, and its scale one mode.
            modes = np.where(is_linked, 0, options)
            joined = self.scale.join(modes[is_smooth], numbers[is_smooth])
            values[is_smooth] = self._tidy(joined)
        place = options - self._modes
        is_spike = (place >= 0) & (place < len(self.spikes))
        if self.spikes:
            spikes = np.array(self.spikes)
            values[is_spike] = spikes[place[is_spike]]
        is_missing = options == after_links
        return values, is_missing

    def computed_into(
        self, values: Floats, options: Ints, others: Mapping[str, tuple[Floats, _Mask]]
    ) -> Floats:
        """Replace joined values by what other columns make wherever a link was chosen.

        `others` are the columns before this one as they were decoded, with their origins. A row in
        which one of them is missing keeps its own value, and so does one whose sum or quotient is
        out of bounds; all rows do where a column is not there at all.
        """
        joined = values.copy()
        for place, link in enumerate(self.relations):
            if any(name not in others for name in link.columns):
                continue  # a condition decodes its column alone
            computed, is_known = link.computed(others)
            if isinstance(link, Quotient) and link.decimals is not None:
                computed = np.round(computed, link.decimals)
            computed = rounded(computed - self.origin, self.resolution)
            is_chosen = options == self._first_link + place
            is_inside = (self.low <= computed) & (computed <= self.high)
            joined = np.where(is_chosen & is_known & is_inside, computed, joined)
        return joined

    def _tidy(self, values: Floats) -> Floats:
        """Move decoded values to ones that the column can have: an atom, or a multiple."""
        if self.atoms and not isinstance(self.scale, Steps):
            atoms = np.array(self.atoms)
            return atoms[nearest(atoms, values)]
        multiples = rounded(values, self.resolution)
        return np.clip(multiples, self.low, self.high)

    def values_of(self, column: Column, table: Table) -> tuple[Floats, _Mask]:
        """Return a column's values, less the origin, and which are missing.

        SchemaError when they do not fit the schema.
        """
        raw, is_missing = numbers_of(column, table)
        # Whole numbers before they are floats: far from 0, floats would not tell them apart.
        if self.origin:
            raw = raw - self.origin
        values = raw.astype(np.float64)
        check_values(column, table, values, is_missing, self.low, self.high)
        return values, is_missing

    def typed(self, column: Column, values: Floats, like: Table | None) -> Any:
        """Convert values without the origin to the column's own values and type."""
        if column.is_continuous:
            numbers = with_decimals(column, values, self.low, self.high)
            return as_written(column, numbers, like)
        # The largest double below 2**63, which a rounded sum of bounds may exceed.
        whole = np.minimum(values, 2.0**63 - 1024.0).astype(np.int64)
        last = int(last_of(column)) - self.origin
        whole = np.minimum(whole, last) + self.origin
        return as_written(column, whole, like)


class LinkedEncoding(NumericEncoding, frozen=True, tag="linked"):
    """The encoding of a number that other columns determine in some rows.

    In these rows its number is there as well.

    Args:
        links: Columns or sums that a value may be computed from. The scale has no modes.
        quotients: Quotients that it may be computed from.
    """

    links: tuple[NumberLink, ...] = ()
    quotients: tuple[Quotient, ...] = ()

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The links by which a value is computed in some rows, quotients last."""
        return (*self.links, *self.quotients)


ColumnEncoding = CategoricalEncoding | NumericEncoding | LinkedEncoding
"""What becomes of one column."""


@dataclass(frozen=True, eq=False)
class Points:
    """The known values of a numeric column, with their weights.

    Values ascend: distinct values, or means of bins; each has a weight, 0 or more. Edges are those
    of the bins, one more than values, or None when values are exact.
    """

    values: Floats
    weights: Floats
    edges: Floats | None = None

    def without(self, spikes: Sequence[float]) -> Points:
        """Remove the points that are spikes; points of bins stay."""
        if self.edges is not None or not spikes:
            return self
        is_rest = ~np.isin(self.values, np.array(spikes))
        return Points(self.values[is_rest], self.weights[is_rest])

    def with_every_whole_number(self, encoding: NumericEncoding) -> Points:
        """Add the whole numbers within bounds that never occur, if there are few in all."""
        low = encoding.low
        high = encoding.high
        is_small = high - low + 1.0 <= FEW_VALUES
        if encoding.resolution != 1.0 or not is_small or low != round(low):
            return self
        count = int(high - low + 1.0)
        values = low + np.arange(count, dtype=np.float64)
        weights = np.zeros(count)
        places = np.searchsorted(values, self.values)
        weights[places] = self.weights
        return Points(values, weights)


def rounded(values: Floats, resolution: float) -> Floats:
    """Round values to multiples of a resolution; 0 changes nothing."""
    if not resolution:
        return values
    # 10**-d: a quotient of whole numbers is the double that the decimals name.
    multiples: Floats = np.rint(values / resolution) / np.rint(1.0 / resolution)
    return multiples


def resolution_of(values: Floats) -> float:
    """Return 10**-d for the fewest decimals d, up to 7, that all values have; 0 beyond."""
    if not len(values):
        return 0.0  # missing values alone have no known resolution
    decimals = decimals_of(values, len(RESOLUTIONS) - 1, 50)
    if decimals is None:
        return 0.0
    return RESOLUTIONS[decimals]


def check_numeric(numeric: str, *, of_rows: bool = True) -> None:
    """Raise DataError for a value that is not `Numeric`, or for one that needs rows without any."""
    if numeric not in get_args(Numeric):
        options = ", ".join(get_args(Numeric))
        raise DataError(f"numeric={numeric!r} is unknown; use one of {options}")
    if numeric == "ranks" and not of_rows:
        raise DataError(
            "numeric='ranks' needs the rows: counts of bins and summaries do not say which values "
            "five rows share; use 'quantile'"
        )


def encoding_of_options(
    column: str, weights: Floats | None, options: int
) -> CategoricalEncoding:
    """Build the encoding of a categorical column from its codes' weights, and its order."""
    if options <= WIDE:
        return CategoricalEncoding(column, options, (options,))
    # As few digits as keep each block below the base; the first may have fewer options.
    digits = 2
    while _root(options, digits) > _BASE:
        digits += 1
    base = _root(options, digits)
    others = (base,) * (digits - 1)
    first = -(-options // base ** len(others))  # rounded up
    sizes = (first, *others)
    if weights is None:
        return CategoricalEncoding(column, options, sizes)
    order = np.argsort(-weights, kind="stable").tolist()
    return CategoricalEncoding(column, options, sizes, tuple(order))


def _root(number: int, degree: int) -> int:
    """Return the smallest base in which so many digits count up to a number."""
    # From below: the root of a float may be off by one.
    root = int(float(number) ** (1.0 / degree))
    base = max(root - 1, 1)
    while base**degree < number:
        base += 1
    return base


def encoding_of_bounds(column: Column) -> NumericEncoding:
    """Build a numeric column's encoding from its schema alone: bounds, but no scale.

    SchemaError if a bound is not declared, or squares of its values would overflow.
    """
    if column.low is None or column.high is None:
        raise SchemaError(
            f"column {column.name!r} has no declared low and high; add both to the schema "
            "(Schema.detect proposes them from data)"
        )
    for name, bound in (("low", column.low), ("high", column.high)):
        if column.is_continuous and abs(float(bound)) > LARGEST:
            raise SchemaError(
                f"column {column.name!r}: {name}={bound!r} is beyond {LARGEST:g} in size, and "
                "float64 holds no sums of squares of such numbers; give the column in a larger "
                "unit, or as its logarithm"
            )
    low = edges_of(column, 1)[0].item()
    high = last_of(column)
    if column.is_continuous:
        return NumericEncoding(column.name, low, float(high), missing=column.missing)
    # Whole numbers are counted from the low bound, so that float64 tells them apart.
    width = float(high - low)
    return NumericEncoding(
        column.name, 0.0, width, int(low), 1.0, missing=column.missing
    )


def learned(
    bounds: NumericEncoding, points: Points, numeric: Numeric
) -> NumericEncoding:
    """Learn the encoding of a numeric column from its values; without a value it is a line.

    Bounds, origin, resolution and missing are those of `bounds`, whose spikes are kept.
    """
    total = float(points.weights.sum())
    count = len(points.values)
    is_exact = points.edges is None
    if not count:
        middle = (bounds.low + bounds.high) / 2.0
        half = (bounds.high - bounds.low) / 2.0
        return replace(bounds, scale=Line(middle, half or 1.0))

    # Few values that are all there is: each has an option, and there is no number.
    is_whole = bounds.resolution == 1.0
    has_whole_range = is_whole and count == bounds.high - bounds.low + 1
    has_all = total >= _SUPPORT * count or count == 1 or has_whole_range
    if is_exact and has_all and count <= FEW_VALUES:
        return replace(bounds, spikes=tuple(points.values.tolist()))

    # Values that very many rows share have an option beside the number.
    spikes = bounds.spikes
    if is_exact:
        # Ten times the mean, where there are few values.
        least_share = max(SPIKE_SHARE, 10.0 / count)
        is_heavy = points.weights >= least_share * total
        heavy = points.values[is_heavy].tolist()
        spikes = tuple(sorted({*spikes, *heavy}))
    rest = points.without(spikes)
    if not len(rest.values):
        return replace(bounds, spikes=spikes)

    # A continuum of few values gives no others.
    atoms: tuple[float, ...] = ()
    rest_total = float(rest.weights.sum())
    num_rest = len(rest.values)
    is_supported = num_rest <= _LISTED and rest_total >= _SUPPORT * num_rest
    # Ranks know themselves which values are shared.
    if is_exact and is_supported and numeric != "ranks":
        atoms = tuple(rest.values.tolist())
    scale = _scale(rest, bool(atoms), numeric, bounds.resolution)
    return replace(bounds, spikes=spikes, scale=scale, atoms=atoms)


def _ending_apart(points: Points, step: float) -> Floats:
    """Move an end that a single row holds a tenth of the gap towards the next value.

    Drawn numbers beyond those that were seen become a curve's ends, which are then no value of a
    row; these points are encoded as before. Values of neighbouring steps stay as they are.
    """
    values = points.values.copy()
    if len(values) < 2:
        return values
    for end, beside in ((0, 1), (-1, -2)):
        gap = values[beside] - values[end]
        if points.weights[end] == 1.0 and abs(gap) >= 2.0 * step:
            values[end] += np.sign(gap) * max(step, abs(gap) / 10.0)
    return values


def _scale(points: Points, atoms: bool, numeric: Numeric, step: float) -> Scale:
    """Fit the scale of a continuum.

    Args:
        points: Its values, without spikes.
        atoms: Whether these are all values that it has.
        numeric: How values become numbers.
        step: What values are multiples of; 0 for anything.
    """
    values = points.values
    edges = points.edges
    # What a noisy count left out may still occur.
    total = max(float(points.weights.sum()), 1.0)
    weights = np.maximum(points.weights, total * 1e-6)
    if numeric == "quantile" and atoms:
        levels = np.cumsum(weights)[:-1] / weights.sum()
        return Steps(tuple(values.tolist()), tuple(levels.tolist()))
    if numeric == "ranks" and edges is None:
        # Whole numbers that never occur are between knots.
        occurs = points.weights > 0
        points = Points(values[occurs], points.weights[occurs])
        ending_apart = _ending_apart(points, step)
        return ranks_of_values(ending_apart, points.weights)
    if numeric in ("quantile", "ranks"):
        if edges is None:
            return curve_of_values(_ending_apart(points, step), weights)
        return curve_of_edges(edges, points.weights)
    # A uniform distribution inside a bin has a twelfth of its width squared as variance.
    spreads = np.zeros(len(values))
    if edges is not None:
        spreads = np.diff(edges) ** 2 / 12.0
    if numeric == "standard":
        mean = float(np.average(values, weights=weights))
        squares = (values - mean) ** 2 + spreads
        variance = float(np.average(squares, weights=weights))
        if not variance > 0:
            return Line(mean, 1.0)
        return Line(mean, variance**0.5)
    if edges is None:
        return fit_mixture(values, weights)
    return fit_mixture(values, points.weights, spreads)


def declared(column: Column) -> ColumnEncoding:
    """Build a column's encoding from its schema alone; its number lies between -1 and 1."""
    if not column.is_binned:
        return encoding_of_options(column.name, None, options_of(column))
    bounds = encoding_of_bounds(column)
    if bounds.low == bounds.high:
        return replace(bounds, spikes=(bounds.low,))
    every = Points(np.zeros(0), np.zeros(0)).with_every_whole_number(bounds)
    if len(every.values):
        return replace(bounds, spikes=tuple(every.values.tolist()))
    return learned(bounds, every, "standard")


def counted(column: Column, weights: Floats, numeric: Numeric) -> NumericEncoding:
    """Build a numeric column's encoding from a count, 0 or more, for each declared bin."""
    bounds = encoding_of_bounds(column)
    num_bins = len(weights) - column.missing
    edges = edges_of(column, num_bins)
    heavy = spike_bins(column, edges, weights)
    spikes = sorted(value - bounds.origin for value in heavy.values())
    rest = without_spikes(column, weights, heavy)
    with_spikes = replace(bounds, spikes=tuple(spikes))
    return learned(with_spikes, binned(column, rest), numeric)


def binned(column: Column, weights: Floats) -> Points:
    """Turn counts of declared bins of equal width, less the missing ones, into points.

    They are less the encoding's origin, and exact where each bin holds one value.
    """
    bounds = encoding_of_bounds(column)
    if bounds.low == bounds.high:
        return Points(np.array([bounds.low]), weights)
    edges = edges_of(column, len(weights))
    if bounds.resolution != 1.0:
        return _middles(edges.astype(np.float64), weights)
    first = (edges - bounds.origin).astype(np.float64)
    if int(edges[-1] - edges[0]) == len(weights):
        return Points(first[:-1], weights)
    # A bin of whole numbers begins half a step before its first.
    return _middles(first - 0.5, weights)


def _middles(edges: Floats, weights: Floats) -> Points:
    """Turn bins into points in their middles, merging neighbours of equal density."""
    is_start = new_densities(edges, weights)
    starts = np.flatnonzero(is_start)
    wide_edges = np.append(edges[starts], edges[-1])
    summed = np.add.reduceat(weights, starts)
    middles = (wide_edges[1:] + wide_edges[:-1]) / 2.0
    return Points(middles, summed, wide_edges)
