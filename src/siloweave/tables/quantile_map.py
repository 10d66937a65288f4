"""Moving numbers, in their order, until their distribution is the one that is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["far_off", "quantile_mapped"]

Floats = NDArray[np.float64]

_GAP, _NOISE = 0.05, 0.4  # of what is left in place; what chance explains, per root (cells / rows)


def far_off(values: Floats, ends: Floats, shares: Floats) -> bool:
    """Whether values are distributed otherwise than chance explains, and by more than 5 %.

    Args:
        values: (n,) numbers.
        ends: (cells,) upper ends of ranges, ascending.
        shares: (cells,) of the values that should lie in each range; their sum is 1.

    Returns:
        Whether the total variation distance between the shares there are and those there should be
        is above 0.05 + 0.4 √(cells / n).

    Example:
        >>> far_off(np.arange(1000.0), np.array([499.0, 999.0]), np.array([0.5, 0.5]))
        False
    """
    if not len(values):
        return False
    places = np.minimum(np.searchsorted(ends, values, side="left"), len(ends) - 1)
    have = np.bincount(places, minlength=len(ends)) / len(values)
    gap = 0.5 * float(np.abs(have - shares).sum())
    return gap > _GAP + _NOISE * float(np.sqrt(len(ends) / len(values)))


def quantile_mapped(
    values: Floats, ends: Floats, shares: Floats, alone: NDArray[np.bool_]
) -> Floats:
    """Move numbers so that each range holds its share; their order stays, but equal ones may part.

    Between the ends of ranges the map is linear; below the first and above the last but one it
    shifts, so that tails keep their shape. Numbers of a range of one value become it.

    Args:
        values: (n,) numbers.
        ends: (cells,) upper ends of two ranges or more, ascending; no number is moved beyond the
            last.
        shares: (cells,) of the values that should lie in each range; their sum is 1.
        alone: (cells,) whether a range has one value, its end.

    Returns:
        (n,) numbers.

    Source:
        Quantile mapping: Panofsky & Brier 1968, *Some applications of statistics to meteorology*;
        on the line no map to that distribution moves less (Villani 2003, *Topics in optimal
        transportation*, theorem 2.18).

    Example:
        >>> x, halves = np.arange(5.0), np.array([0.5, 0.5])
        >>> ends = np.array([10.0, 20.0])
        >>> quantile_mapped(x, ends, halves, np.array([False, False])).tolist()
        [8.0, 9.0, 10.0, 11.0, 12.0]
        >>> quantile_mapped(x, ends, halves, np.array([False, True])).tolist()
        [8.0, 9.0, 10.0, 20.0, 20.0]
    """
    values = _apart(values)
    inner, at = ends[:-1], np.quantile(values, np.minimum(np.cumsum(shares)[:-1], 1.0))
    moved = np.interp(values, at, inner)
    moved = np.where(values < at[0], values + (inner[0] - at[0]), moved)
    moved = np.where(values > at[-1], values + (inner[-1] - at[-1]), moved)
    into = np.searchsorted(at, values, side="left")
    return np.asarray(np.where(alone[into], ends[into], np.minimum(moved, ends[-1])), np.float64)


def _apart(values: Floats) -> Floats:
    """Spread equal numbers, in the order they come, halfway to the nearest other one."""
    known, place, times = np.unique(values, return_inverse=True, return_counts=True)
    if len(known) < 2 or times.max() == 1:
        return values
    halves = np.diff(known) / 2
    width = np.minimum(np.append(halves, halves[-1]), np.insert(halves, 0, halves[0]))
    turn = np.empty(len(values))
    turn[np.argsort(place, kind="stable")] = np.concatenate([np.arange(n) for n in times])
    spread: Floats = values + width[place] * ((2.0 * turn + 1.0) / times[place] - 1.0)
    return spread
