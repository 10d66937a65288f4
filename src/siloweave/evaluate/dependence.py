"""How strongly columns go together, of any two kinds, in one matrix.

Two numeric columns: Pearson's correlation, from -1 to 1. Two categorical columns: Theil's U, the
share of the row's uncertainty that the column takes away, from 0 to 1 and not symmetric. One of
each: the correlation ratio, from 0 to 1. Rows with a missing number are left out pair by pair; a
missing category is a category of its own.
"""

import numpy as np
from numpy.typing import NDArray

from siloweave.evaluate.shares import require_tables
from siloweave.tables.aligned import Aligned, AlignedColumn

__all__ = ["associations", "entropy", "pair_counts"]

Floats = NDArray[np.float64]
DENSE_TO = 1 << 18
"""Pairs with more cells than this are counted over the cells that have rows."""


def associations(tables: Aligned, table: str) -> Floats:
    """Association of every ordered pair of a table's columns.

    Args:
        tables: Where the table is.
        table: Its name.

    Returns:
        float64 matrix in the order of the columns; the entry (i, j) says how much column j tells
        about column i. The diagonal is 1. A pair with a column of one value has 0.

    Raises:
        InputError: There is no such table.

    Source:
        Theil, *Statistical Decomposition Analysis*, 1972 (U); Fisher, *Statistical Methods for
        Research Workers*, 1925 (correlation ratio); the mixture after Zhu et al., *DP-TLDM*,
        2024, evaluation.

    Example:
        >>> from siloweave.tables import Table, align
        >>> x = np.array([1.0, 2.0, 3.5, 4.5])
        >>> one = Table.from_columns({"x": (x, None), "y": (-x, None)})
        >>> associations(align({"real": one}), "real").round(6).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    require_tables(tables, table)
    width = len(tables.columns)
    matrix = np.eye(width)
    own = [_entropy_of(column, table) for column in tables.columns]
    for i in range(width):
        for j in range(i + 1, width):
            first, second = tables.columns[i], tables.columns[j]
            if first.numeric and second.numeric:
                found = pearson(first.values[table], second.values[table]) or 0.0
                matrix[i, j] = matrix[j, i] = found
            elif first.numeric or second.numeric:
                groups, values = (second, first) if first.numeric else (first, second)
                found = _correlation_ratio(groups, values.values[table], table)
                matrix[i, j] = matrix[j, i] = found
            else:
                joint = entropy(pair_counts(first, second, table))
                shared = max(0.0, own[i] + own[j] - joint)
                matrix[i, j] = min(1.0, shared / own[i]) if own[i] > 0 else 0.0
                matrix[j, i] = min(1.0, shared / own[j]) if own[j] > 0 else 0.0
    return matrix


def entropy(counts: NDArray[np.int64] | Floats) -> float:
    """Entropy in nats of counts or weights that need not sum to 1; empty cells add nothing.

    Example:
        >>> round(entropy(np.array([5, 5, 0])), 4)
        0.6931
    """
    from scipy.special import entr

    return abs(float(entr(counts / counts.sum()).sum()))


def pair_counts(first: AlignedColumn, second: AlignedColumn, table: str) -> NDArray[np.int64]:
    """Rows in each occupied cell of two categorical columns, in no stated order."""
    cells = first.values[table].astype(np.int64) * second.levels + second.values[table]
    if first.levels * second.levels <= DENSE_TO:
        return np.bincount(cells)
    counts: NDArray[np.int64] = np.unique(cells, return_counts=True)[1]
    return counts


def _entropy_of(column: AlignedColumn, table: str) -> float:
    return 0.0 if column.numeric else entropy(np.bincount(column.values[table]))


def pearson(x: Floats, y: Floats) -> float | None:
    """Correlation over the rows that have both numbers; None where a column holds one value."""
    both = ~(np.isnan(x) | np.isnan(y))
    x, y = x[both], y[both]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    x, y = _standard(x), _standard(y)
    return float(np.clip((x * y).mean(), -1.0, 1.0))


def _standard(x: Floats) -> Floats:
    """Standardise, first to the unit range so that squares neither over- nor underflow."""
    x = x / np.abs(x).max()
    x = (x - x.min()) / np.ptp(x)
    x = x - x.mean()
    out: Floats = x / np.sqrt((x * x).mean())
    return out


def _correlation_ratio(groups: AlignedColumn, values: Floats, table: str) -> float:
    """Root of the share of the numbers' variance that lies between the groups."""
    known = ~np.isnan(values)
    values, labels = values[known], groups.values[table][known]
    if len(values) < 2 or np.ptp(values) == 0:
        return 0.0
    values = _standard(values)
    counts = np.bincount(labels)
    sums = np.bincount(labels, weights=values)
    seen = counts > 0
    between = float((sums[seen] ** 2 / counts[seen]).sum()) / len(values)
    return float(np.sqrt(np.clip(between, 0.0, 1.0)))
