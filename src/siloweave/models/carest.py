"""Counts of cross-party marginals from what parties encoded: sketches, or randomised answers.

Zhao, Li, Ren, Ding, Yang & Li 2024, "VertiMRF: Differentially Private Vertical Federated Data
Synthesis" (KDD): CarEst (section 4), HisRec (binning) and the consistency step; counts of
randomised answers by inverse matrices. Union sizes by the estimator of Flajolet, Fusy, Gandouet &
Meunier 2007, "HyperLogLog", as the paper's code has it.

A row lies in a cell of a marginal unless it has another value of one of the attributes. So a cell's
count is the number of rows less the size of a union of complements, and a union's sketch is the
largest of its parts' sketches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from siloweave.models.junction_tree import Array
from siloweave.tables.arrays import Ints
from siloweave.tables.codes import Clique

_SPREAD = 1.04  # standard deviation of a union's size, relative, times the root of repetitions
_PASSES = 4  # of the consistency step


def bins_of(size: int, bins: int | None) -> Ints:
    """The bin of every value of an attribute: as many bins as `bins` says, equally wide.

    Example:
        >>> bins_of(6, 4).tolist(), bins_of(3, 4).tolist()
        ([0, 0, 1, 2, 2, 3], [0, 1, 2])
    """
    values = np.arange(size)
    return values if bins is None or size <= bins else values * bins // size


def union_sizes(sketches: npt.NDArray[np.integer]) -> Array:
    """How many different things sketches saw, from the repetitions along the first axis."""
    times = len(sketches)
    scale = times * 0.7213 / (1 + 1.079 / times)
    sizes: Array = scale / np.sum(np.exp2(-sketches.astype(np.float64)), axis=0)
    return sizes


def carest(
    sketches: Sequence[npt.NDArray[np.uint8]], phantoms: int, rows: float
) -> tuple[Array, float]:
    """A marginal of attributes whose values have sketches under the same keys.

    Args:
        sketches: Of each attribute, shape (repetitions, values).
        phantoms: In each sketch.
        rows: How many there are, noisy or not.

    Returns:
        Counts, with as many axes as attributes, none below 0, which sum to `rows`; and the standard
        deviation of a cell before that, on average.

    The union of complements holds `phantoms` for each value that is not the cell's, of every
    attribute with its own number of values.

    Example:
        >>> one = np.array([[3, 9], [4, 10], [3, 9]], np.uint8)
        >>> table, _ = carest([one], phantoms=0, rows=100)
        >>> bool(table[1] > table[0])
        True
    """
    sizes = [s.shape[1] for s in sketches]
    seen = _unions(*map(_of_others, sketches))
    noise = phantoms * (sum(sizes) - len(sizes))
    sigma = _SPREAD * float(np.sqrt(np.mean(seen**2) / len(sketches[0])))
    return scaled(rows - (seen - noise), rows), sigma


def _unions(first: npt.NDArray[np.uint8], *rest: npt.NDArray[np.uint8]) -> Array:
    """Sizes of the unions of every value with every other attribute's, a value after the other."""
    if not rest:
        return union_sizes(first)
    return np.stack([_unions(np.maximum(one[:, None], rest[0]), *rest[1:]) for one in first.T])


def _of_others(sketches: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """For every value the largest sketch of all other values; 0 where there is no other."""
    size = sketches.shape[1]
    if size == 1:
        return np.zeros_like(sketches)
    top = np.argmax(sketches, axis=1)
    each = np.arange(len(sketches))
    rest = sketches.copy()
    rest[each, top] = 0
    others = np.repeat(sketches[each, top][:, None], size, axis=1)
    others[each, top] = rest.max(axis=1)
    return others


def scaled(counts: Array, rows: float) -> Array:
    """Counts of which none is negative, with the sum `rows`; equal ones where nothing is left."""
    inside = np.maximum(counts, 0.0)
    total = float(inside.sum())
    if total <= 0:
        return np.full(counts.shape, rows / counts.size)
    return inside * (rows / total)


def unrandomised(counts: Array, kept: Sequence[float]) -> tuple[Array, float]:
    """A marginal from counts of randomised answers: the inverse of one matrix for each axis.

    Args:
        counts: Of answers, one axis an attribute.
        kept: With which probability an answer of each attribute is the true value.

    Returns:
        Unbiased counts, which may be negative, and the standard deviation of a cell.

    Example:
        >>> unrandomised(np.array([60.0, 40.0]), [0.6])[0].round(6).tolist()
        [100.0, 0.0]
    """
    found, signal = counts.astype(np.float64), 1.0
    for axis, (size, keep) in enumerate(zip(counts.shape, kept, strict=True)):
        other = (1 - keep) / max(1, size - 1)
        found = (found - other * found.sum(axis=axis, keepdims=True)) / (keep - other)
        signal *= keep - other
    return found, float(np.sqrt(counts.sum() / counts.size)) / signal


def histogram_recovered(table: Array, bins: Sequence[Ints], values: Sequence[Array]) -> Array:
    """HisRec: a marginal of values, from one of bins and how values spread inside each bin.

    Args:
        table: Counts of bins.
        bins: Of each attribute, the bin of every value.
        values: Of each attribute, a noisy histogram of its values.

    Example:
        >>> table = np.array([10.0, 20.0])
        >>> histogram_recovered(table, [bins_of(4, 2)], [np.array([1.0, 3, -2, 5])]).tolist()
        [2.5, 7.5, 0.0, 20.0]
    """
    for axis, (where, histogram) in enumerate(zip(bins, values, strict=True)):
        weights = np.maximum(histogram, 0.0)
        weights = np.where(np.bincount(where, weights)[where] > 0, weights, 1.0)
        share = weights / np.bincount(where, weights)[where]
        shape = [1] * axis + [-1] + [1] * (table.ndim - axis - 1)
        table = np.take(table, where, axis=axis) * share.reshape(shape)
    return table


def made_consistent(
    estimated: Mapping[Clique, Array], local: Mapping[Clique, Array]
) -> tuple[dict[Clique, Array], dict[Clique, Array]]:
    """Marginals of both kinds that agree better on the attributes they share, in some passes.

    Of each pair the projections on common attributes are averaged, the differences spread evenly
    over the cells, negative cells set to 0, and the sums restored. All have one sum.

    Example:
        >>> estimated = {("a", "b"): np.array([[3.0, 3.0], [2.0, 2.0]])}
        >>> local = {("a",): np.array([4.0, 6.0])}
        >>> made_consistent(estimated, local)[0]["a", "b"].sum(axis=1).tolist()
        [5.0, 5.0]
    """
    kinds = dict(estimated), dict(local)
    for _ in range(_PASSES):
        for q in estimated:
            for r in local:
                shared = [a for a in q if a in r]
                if not shared:
                    continue
                ones, others = (
                    _sum_to(t[c], c, shared) for t, c in zip(kinds, (q, r), strict=True)
                )
                middle = (ones + others) / 2
                for tables, c, now in zip(kinds, (q, r), (ones, others), strict=True):
                    tables[c] = _moved(tables[c], c, shared, middle - now)
    return kinds


def _sum_to(table: Array, clique: Clique, kept: Sequence[str]) -> Array:
    total: Array = table.sum(axis=tuple(i for i, a in enumerate(clique) if a not in kept))
    return total


def _moved(table: Array, clique: Clique, shared: Sequence[str], change: Array) -> Array:
    """A table whose projection on shared attributes changed, evenly over their cells."""
    shape = [n if a in shared else 1 for a, n in zip(clique, table.shape, strict=True)]
    spread = table + change.reshape(shape) * (change.size / table.size)
    return scaled(spread, float(table.sum()))
