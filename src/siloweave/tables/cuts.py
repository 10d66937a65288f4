"""Where to cut a column of numbers into bins, by counts of narrow ones.

Bins of equal width leave nearly all rows of a skewed column in one of them. Here bins hold rows as
evenly as their number allows, and rows lie inside a bin as the counts say. What many rows share has
a bin of its own: 0 and the bounds exactly, all else as narrowly as was counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from siloweave.tables.bins import Cuts, Edges, above, edges_of, last_of
from siloweave.tables.columns import beside, landmarks
from siloweave.tables.scales import Floats
from siloweave.tables.schema import Column

__all__ = ["cuts_of"]

_HALVINGS = 40  # of the range in which the heaviest bin is sought
_EMPTY = 1e-9  # share of the rows that empty bins are taken to hold together


def cuts_of(column: Column, weights: Floats, bins: int) -> Cuts:
    """Cut a column so that its heaviest bin of several values is as light as can be.

    Args:
        column: Integer, continuous or datetime, with both bounds.
        weights: Counts of equally wide bins, and of missing values where it may have some; 0 or
            more.
        bins: How many there may be.

    Returns:
        Cuts with which 0 and the bounds have bins of their own where they are landmarks
        (`columns.landmarks`), and so has any single bin of `weights` that is heavier than others
        are together.

    Example:
        >>> pay = Column("pay", "integer", low=0, high=7)
        >>> cuts_of(pay, np.array([50.0, 0, 0, 9, 1, 1, 1, 2]), 4).starts
        (1, 3, 4)
    """
    marks = landmarks(column, weights)
    starts = _fitting(column, weights, marks, bins)
    if starts is None:  # not even the landmarks have room
        marks = {}
        starts = _fitting(column, weights, marks, bins)
    return Cuts(starts or (), *_knots(column, beside(column, weights, marks)))


def _fitting(
    column: Column, weights: Floats, marks: Mapping[int, float], bins: int
) -> tuple[int | float, ...] | None:
    """Where bins begin but the first; None if there are more than wanted however they are cut."""
    known = weights[: len(weights) - column.missing]
    edges = edges_of(column, len(known))
    low, high = 0.0, float(known.sum())
    found = _begun(column, edges, known, marks, high)
    if len(found) >= bins:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        tried = _begun(column, edges, known, marks, middle)
        if len(tried) < bins:
            high, found = middle, tried
        else:
            low = middle
    return found


def _begun(
    column: Column, edges: Edges, weights: Floats, marks: Mapping[int, float], most: float
) -> tuple[int | float, ...]:
    """Beginnings of bins of no more than `most` rows, single values and narrow bins excepted."""
    found = {
        edges[i].item()
        for i in _groups(weights.tolist(), marks, most)
        if i not in marks and i - 1 not in marks
    }
    for value in marks.values():
        found |= {value, above(value).item() if column.kind == "continuous" else value + 1}
    return tuple(sorted(value for value in found if edges[0] < value <= last_of(column)))


def _groups(weights: list[float], alone: Collection[int], most: float) -> list[int]:
    """Where groups of bins begin, from left to right: each takes what it can."""
    starts, held, single = [0], 0.0, False
    for i, weight in enumerate(weights):
        before, single = single, i in alone or weight >= most
        if i and (single or before or held + weight > most):
            starts.append(i)
            held = 0.0
        held += weight
    return starts


def _knots(column: Column, weights: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The distribution function of bins in which rows lie evenly; neighbours alike are one."""
    edges = edges_of(column, len(weights)).astype(np.float64)
    filled = weights + max(float(weights.sum()), 1.0) * _EMPTY / len(weights)
    density = filled / np.diff(edges)
    bends = np.concatenate([[True], ~np.isclose(density[1:], density[:-1], rtol=1e-9), [True]])
    levels = np.concatenate([[0.0], np.cumsum(filled) / filled.sum()])
    return tuple(edges[bends].tolist()), tuple(levels[bends].tolist())
