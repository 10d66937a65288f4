"""The two percentages that people quote: column shapes and column pair trends.

The definitions are those of the quality report of SDMetrics 0.32 (2026), thresholds and bins
included. Independent columns score high on both, so quote them with their floor.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.dependence import pearson
from siloweave.evaluate.shares import numbers, require_tables
from siloweave.evaluate.similarity import kolmogorov_smirnov
from siloweave.tables.aligned import Aligned, AlignedColumn

__all__ = ["PairTrends", "column_pair_trends", "column_shapes"]

BINS = 10
CORRELATED, ASSOCIATED = 0.5, 0.3
"""A pair counts as strong above these: absolute Pearson correlation, Cramer's V."""
Codes = NDArray[np.int64]
Cells = Callable[[AlignedColumn, str], Codes]
Pair = tuple[float, float, float]
_KNOWN: "WeakKeyDictionary[Aligned, dict[tuple[str, str, str], list[Pair]]]" = WeakKeyDictionary()


class PairTrends(NamedTuple):
    """Mean similarity of the trends of pairs of columns, in percent.

    Args:
        percent: 0 to 100.
        pairs: How many pairs the mean is over.
    """

    percent: float
    pairs: int


def column_shapes(tables: Aligned, real: str, synthetic: str) -> float:
    """Mean similarity of each column's shape, in percent.

    Numeric: 1 - Kolmogorov-Smirnov statistic. Categorical: 1 - total variation distance. Missing
    values are left out.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.

    Returns:
        0 to 100.

    Raises:
        InputError: There is no such table.

    Source:
        SDMetrics 0.32 (2026), quality report: KSComplement and TVComplement.

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([1.5, 2.5]), None)})
        >>> two = Table.from_columns({"x": (np.array([1.5, 1.5]), None)})
        >>> column_shapes(align({"real": one, "synthetic": two}), "real", "synthetic")
        50.0
    """
    require_tables(tables, real, synthetic)
    return 100.0 * float(np.mean([_shape(c, real, synthetic) for c in tables.columns]))


def _shape(column: AlignedColumn, real: str, synthetic: str) -> float:
    if column.numeric:
        return 1.0 - kolmogorov_smirnov(column, real, synthetic)
    p, q = (np.bincount(column.values[t], minlength=column.levels)[:-1] for t in (real, synthetic))
    return 1.0 - float(np.abs(p / p.sum() - q / q.sum()).sum()) / 2


def column_pair_trends(
    tables: Aligned,
    real: str,
    synthetic: str,
    *,
    strong: bool = True,
    edges: Literal["own", "real"] = "own",
) -> PairTrends:
    """Mean similarity of the trends of all pairs of columns, in percent.

    Two numeric columns: 1 - |a - b|/2 of both Pearson correlations. All other pairs: 1 - total
    variation distance of the joint counts, numeric columns in 10 bins of equal width, a missing
    value as a category. A numeric pair with a column of one value is left out.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.
        strong: Whether only pairs count that go together in the real table: absolute correlation
            above 0.5, Cramer's V (not corrected) above 0.3. SDMetrics does so since 2026; the
            percentages of older reports are over all pairs.
        edges: ``"own"`` cuts each table between its own extremes, as the report does, so that it
            cannot see a column that was stretched or moved; ``"real"`` cuts both at the real ones,
            as SDMetrics' stand-alone measure does.

    Returns:
        The percentage and over how many pairs.

    Raises:
        InputError: There is no such table, fewer than two columns, or no pair that counts.

    Source:
        SDMetrics 0.32 (2026), quality report: CorrelationSimilarity and ContingencySimilarity.

    Example:
        >>> from siloweave.tables import Table, align
        >>> x = np.array([1.0, 2.0, 3.5])
        >>> one = Table.from_columns({"x": (x, None), "y": (x, None)})
        >>> two = Table.from_columns({"x": (x, None), "y": (-x, None)})
        >>> column_pair_trends(align({"real": one, "synthetic": two}), "real", "synthetic")
        PairTrends(percent=0.0, pairs=1)
    """
    require_tables(tables, real, synthetic)
    pairs = _pairs(tables, real, synthetic, edges)
    found = [value for value, strength, least in pairs if not strong or strength > least]
    if not found:
        raise InputError(
            f"none of the {len(tables.columns) * (len(tables.columns) - 1) // 2} pairs of columns "
            + ("goes together strongly in the real table" if strong else "can be compared")
        )
    return PairTrends(100.0 * float(np.mean(found)), len(found))


def _pairs(tables: Aligned, real: str, synthetic: str, edges: Literal["own", "real"]) -> list[Pair]:
    """Similarity of each pair's trend, how strong it is and from where on it counts as strong.

    Kept as long as the tables are, because both readings and their notes ask for it.
    """
    known, place = _KNOWN.setdefault(tables, {}), (real, synthetic, edges)
    if place not in known:
        cells = _cells(real if edges == "real" else None)
        pairs = [
            _pair(cells, first, second, real, synthetic)
            for first, second in combinations(tables.columns, 2)
        ]
        known[place] = [pair for pair in pairs if pair is not None]
    return known[place]


def _pair(
    cells: Cells, first: AlignedColumn, second: AlignedColumn, real: str, synthetic: str
) -> Pair | None:
    """One pair, or None where a correlation is not defined."""
    if first.numeric and second.numeric:
        x, y = (pearson(first.values[t], second.values[t]) for t in (real, synthetic))
        return None if x is None or y is None else (1.0 - abs(x - y) / 2, abs(x), CORRELATED)
    ours, theirs = (_joint(cells, first, second, table) for table in (real, synthetic))
    return _overlap(ours, theirs), cramers_v(ours), ASSOCIATED


def _cells(edges_from: str | None) -> Cells:
    """How to code a column's rows; each column of each table is coded once."""
    known: dict[tuple[str, str], Codes] = {}

    def cells(column: AlignedColumn, table: str) -> Codes:
        place = (column.name, table)
        if place not in known:
            known[place] = _bin(column, table, edges_from)
        return known[place]

    return cells


def _bin(column: AlignedColumn, table: str, edges_from: str | None) -> Codes:
    values = column.values[table]
    if not column.numeric:
        return values.astype(np.int64)
    edges = np.histogram_bin_edges(numbers(column, edges_from or table), bins=BINS)
    if edges_from:  # what lies outside belongs to the outer bins
        edges[0], edges[-1] = -np.inf, np.inf
    found: Codes = np.digitize(values, edges).astype(np.int64)  # a missing value: the last
    return found


def _joint(
    cells: Cells, first: AlignedColumn, second: AlignedColumn, table: str
) -> tuple[Codes, Codes, Codes]:
    """Occupied pairs of codes, as two arrays, and their counts."""
    x, y = cells(first, table), cells(second, table)
    width = (BINS + 2) if second.numeric else second.levels
    places, counts = np.unique(x * width + y, return_counts=True)
    return places // width, places % width, counts


def _overlap(ours: tuple[Codes, Codes, Codes], theirs: tuple[Codes, Codes, Codes]) -> float:
    width = int(max(ours[1].max(), theirs[1].max())) + 1
    ids, others = (side[0] * width + side[1] for side in (ours, theirs))
    _, i, j = np.intersect1d(ids, others, assume_unique=True, return_indices=True)
    p, q = ours[2] / ours[2].sum(), theirs[2] / theirs[2].sum()
    return float(np.minimum(p[i], q[j]).sum())


def cramers_v(joint: tuple[Codes, Codes, Codes]) -> float:
    """Cramer's V, not corrected for bias, from occupied cells only; 0 with a column of one value.

    chi2/n = sum over cells of count^2 / (row total * column total) - 1, so that empty cells, of
    which two wide columns have billions, are never visited.
    """
    rows, columns = (np.unique(axis, return_inverse=True)[1] for axis in joint[:2])
    counts = joint[2].astype(np.float64)
    row_totals, column_totals = np.bincount(rows, counts), np.bincount(columns, counts)
    least = min(len(row_totals), len(column_totals)) - 1
    if least < 1:
        return 0.0
    chi = float((counts**2 / (row_totals[rows] * column_totals[columns])).sum()) - 1.0
    return float(np.sqrt(max(0.0, chi) / least))
