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

# Relative standard deviation of a union's size, times the root of the repetitions.
_SPREAD = 1.04
_PASSES = 4  # of the consistency step


def bins_of(size: int, bins: int | None) -> Ints:
    """Return the bin of every value of an attribute, in at most `bins` bins of equal width.

    Example:
        >>> bins_of(6, 4).tolist(), bins_of(3, 4).tolist()
        ([0, 0, 1, 2, 2, 3], [0, 1, 2])
    """
    values = np.arange(size)
    if bins is None or size <= bins:
        return values
    return values * bins // size


def union_sizes(sketches: npt.NDArray[np.integer]) -> Array:
    """Estimate how many different items sketches saw; repetitions are along the first axis."""
    repetitions = len(sketches)
    # Flajolet et al. have alpha_m m^2 over the sum of 2^-M. Here it is m times smaller, since every
    # repetition sees all things, and not one in m of them.
    scale = repetitions * 0.7213 / (1 + 1.079 / repetitions)
    powers = np.exp2(-sketches.astype(np.float64))
    sizes: Array = scale / np.sum(powers, axis=0)
    return sizes


def carest(
    sketches: Sequence[npt.NDArray[np.uint8]],
    phantoms: int,
    rows: float,
) -> tuple[Array, float]:
    """Estimate a marginal of attributes from sketches of their values under the same keys.

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
        >>> sketch = np.array([[3, 9], [4, 10], [3, 9]], np.uint8)
        >>> table, _ = carest([sketch], phantoms=0, rows=100)
        >>> bool(table[1] > table[0])
        True
    """
    # The complement of a value is the union of all others of its attribute.
    complements = [_of_others(sketch) for sketch in sketches]
    unions = _unions(*complements)
    sizes = [sketch.shape[1] for sketch in sketches]
    num_phantoms = phantoms * (sum(sizes) - len(sizes))
    counts = rows - (unions - num_phantoms)
    sigma = _SPREAD * float(np.sqrt(np.mean(unions**2) / len(sketches[0])))
    return scaled(counts, rows), sigma


def _unions(first: npt.NDArray[np.uint8], *rest: npt.NDArray[np.uint8]) -> Array:
    """Return the sizes of all unions of one sketch per attribute, with an axis per attribute."""
    if not rest:
        return union_sizes(first)
    second, *others = rest
    # A value after the other: all unions at once would take the repetitions times the cells.
    sizes = []
    for sketch in first.T:
        joined = np.maximum(sketch[:, None], second)
        sizes.append(_unions(joined, *others))
    return np.stack(sizes)


def _of_others(sketches: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return, for every value, the largest sketch of all other values; 0 if there is no other."""
    size = sketches.shape[1]
    if size == 1:
        return np.zeros_like(sketches)
    # For all values but one, the largest sketch is that of another value.
    repetitions = np.arange(len(sketches))
    largest = np.argmax(sketches, axis=1)
    without_largest = sketches.copy()
    without_largest[repetitions, largest] = 0
    largest_sketches = sketches[repetitions, largest]
    complements = np.repeat(largest_sketches[:, None], size, axis=1)
    complements[repetitions, largest] = without_largest.max(axis=1)
    return complements


def scaled(counts: Array, rows: float) -> Array:
    """Cut off negative counts, and scale the rest to the sum `rows`.

    If nothing is left, all counts are equal.
    """
    nonnegative = np.maximum(counts, 0.0)
    total = float(nonnegative.sum())
    if total <= 0:
        return np.full(counts.shape, rows / counts.size)
    return nonnegative * (rows / total)


def unrandomised(counts: Array, kept: Sequence[float]) -> tuple[Array, float]:
    """Estimate a marginal from counts of randomised answers, by one inverse matrix for each axis.

    Args:
        counts: Of answers, one axis an attribute.
        kept: With which probability an answer of each attribute is the true value.

    Returns:
        Unbiased counts, which may be negative, and the standard deviation of a cell.

    Example:
        >>> unrandomised(np.array([60.0, 40.0]), [0.6])[0].round(6).tolist()
        [100.0, 0.0]
    """
    table = counts.astype(np.float64)
    signal = 1.0
    pairs = zip(counts.shape, kept, strict=True)
    for axis, (size, true_share) in enumerate(pairs):
        # The matrix has p on its diagonal and q everywhere else, so that with the axis' sum n a
        # count of answers is (p - q) times the true one, plus q n.
        false_share = (1 - true_share) / max(1, size - 1)
        difference = true_share - false_share
        sums = table.sum(axis=axis, keepdims=True)
        table = (table - false_share * sums) / difference
        signal *= difference
    sigma = float(np.sqrt(counts.sum() / counts.size)) / signal
    return table, sigma


def histogram_recovered(
    table: Array, bins: Sequence[Ints], values: Sequence[Array]
) -> Array:
    """Spread a marginal of bins over values, by their histograms inside each bin (HisRec).

    Args:
        table: Counts of bins.
        bins: Of each attribute, the bin of every value.
        values: Of each attribute, a noisy histogram of its values.

    Example:
        >>> table = np.array([10.0, 20.0])
        >>> histogram_recovered(table, [bins_of(4, 2)], [np.array([1.0, 3, -2, 5])]).tolist()
        [2.5, 7.5, 0.0, 20.0]
    """
    pairs = zip(bins, values, strict=True)
    for axis, (bin_of_value, histogram) in enumerate(pairs):
        weights = np.maximum(histogram, 0.0)
        bin_weights = np.bincount(bin_of_value, weights)[bin_of_value]
        # Noise may leave nothing of a bin.
        weights = np.where(bin_weights > 0, weights, 1.0)
        shares = weights / np.bincount(bin_of_value, weights)[bin_of_value]
        shape = [1] * table.ndim
        shape[axis] = -1
        table = np.take(table, bin_of_value, axis=axis) * shares.reshape(shape)
    return table


def made_consistent(
    estimated: Mapping[Clique, Array],
    local: Mapping[Clique, Array],
) -> tuple[dict[Clique, Array], dict[Clique, Array]]:
    """Return marginals of two kinds, changed so that they agree better on shared attributes.

    Of each pair the projections on common attributes are averaged, the differences spread evenly
    over the cells, negative cells set to 0, and the sums restored. All have one sum.

    Example:
        >>> estimated = {("a", "b"): np.array([[3.0, 3.0], [2.0, 2.0]])}
        >>> local = {("a",): np.array([4.0, 6.0])}
        >>> made_consistent(estimated, local)[0]["a", "b"].sum(axis=1).tolist()
        [5.0, 5.0]
    """
    estimated_tables = dict(estimated)
    local_tables = dict(local)
    for _ in range(_PASSES):
        for q in estimated:
            for r in local:
                shared = [a for a in q if a in r]
                if not shared:
                    continue
                # Both before either is moved.
                of_q = _sum_to(estimated_tables[q], q, shared)
                of_r = _sum_to(local_tables[r], r, shared)
                mean = (of_q + of_r) / 2
                estimated_tables[q] = _moved(
                    estimated_tables[q], q, shared, mean - of_q
                )
                local_tables[r] = _moved(local_tables[r], r, shared, mean - of_r)
    return estimated_tables, local_tables


def _sum_to(table: Array, clique: Clique, attributes: Sequence[str]) -> Array:
    axes = tuple(i for i, a in enumerate(clique) if a not in attributes)
    sums: Array = table.sum(axis=axes)
    return sums


def _moved(table: Array, clique: Clique, shared: Sequence[str], change: Array) -> Array:
    """Return a table whose projection on shared attributes was changed, evenly over their cells."""
    shape = [1] * table.ndim
    for axis, a in enumerate(clique):
        if a in shared:
            shape[axis] = table.shape[axis]
    moved = table + change.reshape(shape) * (change.size / table.size)
    return scaled(moved, float(table.sum()))
