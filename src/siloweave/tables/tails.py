"""The far end of a skewed column, of which noisy counts say little: amounts, claims, bytes.

A few rows hold much of such a column's total, and noise leaves a few rows in bins that are empty. A
row that noise puts a thousand times too far counts a thousand rows: unmended, a total came out two
to seven times too large at epsilon = 1. So beyond the last octave (the values up to a number's
double) that stands out of the noise, counts thin out from octave to octave.

**Guarantee**: none of its own: this reads noisy counts and public facts, so it is post-processing
of what was paid for (Dwork & Roth 2014, proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siloweave.tables.arrays import Floats

_SHARE = 0.5
"""Of an octave's rows the next one has no more: a tail that thins out more slowly has no mean."""
_STANDS_OUT = 3.5  # deviations of noise; some twenty octaves are looked at
_SINGLE = 4.5  # the same of one counted bin, of which there are more
_INNER = 64  # fine bins next to 0 in which no octave begins


class LevelCounts(NamedTuple):
    """Noisy counts of a column's bins on one level.

    Attributes:
        width: Fine bins in each bin of this level; the last one may hold fewer.
        counts: One for each bin.
    """

    width: int
    counts: NDArray[Any]


def thinned(
    fine: Floats, levels: Sequence[LevelCounts], edges: NDArray[Any], sigma: float
) -> Floats:
    """Return a column's counts whose far ends thin out where noise hides how many rows they have.

    Args:
        fine: Counts of the fine bins as far as the levels show them, 0 or more.
        levels: The noisy counts, coarsest level first; the last has width 1.
        edges: Of the fine bins, one more than these.
        sigma: Standard deviation of the noise.

    Example:
        >>> edges = np.concatenate([np.arange(64), 2.0 ** np.linspace(6, 16, 641)])
        >>> exact = np.where(edges[:-1] < 100, 50.0, 0.0)
        >>> noisy = exact + np.random.default_rng(0).normal(0, 5, len(exact))
        >>> clipped = np.maximum(noisy, 0)
        >>> found = thinned(clipped, [LevelCounts(1, noisy)], edges, 5.0)
        >>> middles = (edges[:-1] + edges[1:]) / 2
        >>> [round(float(counts @ middles / counts.sum())) for counts in (exact, clipped, found)]
        [51, 1874, 240]
    """
    for octaves in (_octaves(edges, sign=1), _octaves(edges, sign=-1)):
        if len(octaves) > 2:
            fine = _thinned_side(fine, levels, octaves, sigma)
    return fine


def _octaves(edges: NDArray[Any], sign: int) -> list[int]:
    """Return the fine bins between octaves on one side of 0, from near 0 to the end."""
    values = np.asarray(edges, dtype=np.float64)
    far = float(values[-1] if sign > 0 else -values[0])
    first_beyond_0 = int(np.searchsorted(values, 0.0))
    bounds = [len(values) - 1 if sign > 0 else 0]
    while far > 0:
        far /= 2
        place = int(np.searchsorted(values, sign * far))
        if abs(place - first_beyond_0) <= _INNER or place == bounds[-1]:
            break
        bounds.append(place)
    return bounds[::-1]


def _thinned_side(
    fine: Floats, levels: Sequence[LevelCounts], octaves: Sequence[int], sigma: float
) -> Floats:
    """Thin one side out, beyond the furthest octave that stands out of the noise."""
    last = _last_that_stands_out(levels, octaves, float(fine.sum()), sigma)
    bins = [slice(*sorted(pair)) for pair in pairwise(octaves)]
    tail = bins[last + 1 :]
    if not tail:
        return fine

    rows = float(fine[bins[last]].sum())
    rows_before = float(fine[bins[last - 1]].sum()) if last else 0.0
    share = min(_SHARE, rows / rows_before) if rows_before > 0 else _SHARE
    expected = rows * share ** np.arange(1, len(tail) + 1)
    # What noise leaves there is seldom less than there is, and mostly more.
    tail_rows = sum(float(fine[octave].sum()) for octave in tail)
    if expected.sum() > tail_rows:
        expected *= tail_rows / expected.sum()

    total = float(fine.sum())
    changed = fine.copy()
    for octave in tail:
        changed[octave] = 0.0
    nearer = float(changed.sum())
    if nearer <= 0:
        return fine
    changed *= (total - float(expected.sum())) / nearer
    for octave, count in zip(tail, expected, strict=True):
        changed[octave] = count / (octave.stop - octave.start)
    return changed


def _last_that_stands_out(
    levels: Sequence[LevelCounts], octaves: Sequence[int], rows: float, sigma: float
) -> int:
    """Return the furthest octave of which rows stand out of the noise; 0 if none does.

    Rows do where there are many from the octave on, or many in one bin of the second coarsest
    level.
    """
    middle = levels[min(1, len(levels) - 1)]
    is_upper = octaves[-1] > octaves[0]
    for octave in range(len(octaves) - 2, 0, -1):
        beyond = _Sums(levels, rows).from_bin(octaves[octave])
        if not is_upper:
            beyond = _Sum(rows - beyond.rows, beyond.bins)
        if beyond.rows > _STANDS_OUT * sigma * beyond.bins**0.5:
            return octave
        first, stop = sorted(octaves[octave : octave + 2])
        inside = middle.counts[-(-first // middle.width) : -(-stop // middle.width)]
        if len(inside) and inside.max() > _SINGLE * sigma:
            return octave
    return 0


class _Sum(NamedTuple):
    """A noisy number of rows, and how many counted bins it is made of."""

    rows: float
    bins: int


@dataclass(frozen=True)
class _Sums:
    """Sums of noisy counts, each of as few counted bins as there are: their noise adds up."""

    levels: Sequence[LevelCounts]
    rows: float

    def from_bin(self, place: int) -> _Sum:
        """Return how many rows there are from a fine bin on to the last."""
        size = len(self.levels[-1].counts)
        return self._within(0, 0, size, _Sum(self.rows, 0), place)

    def _within(self, depth: int, first: int, stop: int, whole: _Sum, place: int) -> _Sum:
        """Return the rows in [place, stop), of which [first, stop) has `whole`.

        They are the bins beyond, or what is left of the whole without the bins before.
        """
        if place <= first:
            return whole
        if place >= stop or depth == len(self.levels):
            return _Sum(0.0, 0)
        width, counts = self.levels[depth]
        cut = place // width
        bins = range(first // width, -(-stop // width))
        beyond = [bin_ for bin_ in bins if bin_ * width >= place]
        before = [bin_ for bin_ in bins if (bin_ + 1) * width <= place]
        part = _Sum(0.0, 0)
        rest = _Sum(0.0, 0)
        if place % width:
            bin_ = _Sum(float(counts[cut]), 1)
            part = self._within(depth + 1, cut * width, min((cut + 1) * width, stop), bin_, place)
            rest = _Sum(bin_.rows - part.rows, part.bins + 1)
        direct = _Sum(float(counts[beyond].sum()) + part.rows, len(beyond) + part.bins)
        left = _Sum(
            whole.rows - float(counts[before].sum()) - rest.rows,
            whole.bins + len(before) + rest.bins,
        )
        return min(direct, left, key=lambda found: found.bins)
