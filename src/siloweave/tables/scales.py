"""How the continuum of a column becomes one real number, and back.

A scale maps float64 values to a number of order one and, where it has modes, to the mode that the
number is relative to. All are plain data: what is stored in JSON is what is computed with.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.tables.mixtures import Mixture

__all__ = ["Bins", "Curve", "Floats", "Line", "Scale", "Steps", "curve_of_edges", "curve_of_values"]

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
