"""How strongly columns go together, of any two kinds, in one matrix.

Two numeric columns: Pearson's correlation, from -1 to 1. Two categorical columns: Theil's U, the
share of the row's uncertainty that the column takes away, from 0 to 1 and not symmetric. One of
each: the correlation ratio, from 0 to 1. Rows with a missing number are left out pair by pair; a
missing category is a category of its own.

Resemblance column by column, and of the associations between columns; all from 0 to 1.

The rows of a real and a synthetic table are not paired, so "the correlation of a real column with
the synthetic one" means nothing before a rule pairs their values: shuffle either table's rows and
the number changes while neither table does. `column_similarity` states its rule.

The two percentages that people quote: column shapes and column pair trends.

The definitions are those of the quality report of SDMetrics 0.32 (2026), thresholds and bins
included. Independent columns score high on both, so quote them with their floor.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.shares import BINS, column_shares, numbers, quantiles, require_tables
from siloweave.tables.aligned import Aligned, AlignedColumn

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


def column_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Mean over columns of how well values go together once they are paired.

    Numeric: both columns are sorted and paired at equal quantiles, then Pearson's correlation; it
    does not see a shift or a scale. Categorical: as many rows as possible are paired with an equal
    value (the shares min(p, q)), the rest at random, then Theil's U: the share of the real value's
    uncertainty that the synthetic one takes away. Neither rule depends on the order of rows or of
    categories. A missing number is left out, a missing category is a category. A column of one
    value is 1 where the other table holds only that value too, and else the share of equal rows
    (categorical) or 0 (numeric).

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.

    Returns:
        The mean, 0 to 1; 1 for a copy.

    Raises:
        InputError: There is no such table.

    Source:
        Shankar et al., *SiloFuse*, ICDE 2024, evaluation: Pearson for numeric columns and Theil's U
        for categorical ones; the pairing is ours, the paper states none.

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> two = Table.from_columns({"x": (np.array([9.0, 2.0, 1.5]), None)})
        >>> both = align({"real": one, "synthetic": two})
        >>> round(column_similarity(both, "real", "synthetic"), 6)
        1.0
    """
    require_tables(tables, real, synthetic)
    return float(np.mean([_column(c, real, synthetic) for c in tables.columns]))


def _column(column: AlignedColumn, real: str, synthetic: str) -> float:
    if column.numeric:
        return _quantile_correlation(numbers(column, real), numbers(column, synthetic))
    return _coupled_theils_u(*column_shares(column, real, synthetic))


def _quantile_correlation(x: Floats, y: Floats) -> float:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float(np.array_equal(np.unique(x), np.unique(y)))
    x, y = np.sort(x), np.sort(y)
    if len(x) != len(y):
        levels = (np.arange(min(len(x), len(y))) + 0.5) / min(len(x), len(y))
        x, y = quantiles(x, levels), quantiles(y, levels)
        if np.ptp(x) == 0 or np.ptp(y) == 0:  # the few values that vary fell between the levels
            return 0.0
    x, y = ((v - v.min()) / np.ptp(v) for v in (x / np.abs(x).max(), y / np.abs(y).max()))
    return float(np.clip(np.corrcoef(x, y)[0, 1], 0.0, 1.0))


def _coupled_theils_u(p: Floats, q: Floats) -> float:
    """Theil's U of the pairing that agrees most; needs no table of pairs."""
    same = np.minimum(p, q)
    rest = max(0.0, 1.0 - float(same.sum()))
    uncertainty = entropy(p)
    if uncertainty == 0:
        return float(same.sum())
    joint = -float((same[same > 0] * np.log(same[same > 0])).sum())
    if rest > 1e-12:
        joint += rest * (entropy(p - same) + entropy(q - same) - np.log(rest))
    return float(np.clip((uncertainty + entropy(q) - joint) / uncertainty, 0.0, 1.0))


def correlation_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Correlation of the two tables' association coefficients over all pairs of columns.

    Coefficients as `associations`: Pearson, Theil's U in both directions, correlation ratio.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.

    Returns:
        Pearson's correlation of the coefficients, with negative numbers as 0; 0 too where no
        synthetic coefficient differs from another.

    Raises:
        InputError: There is no such table, there are fewer than three columns, or all coefficients
            of the real table are equal, so that there is nothing to correlate.

    Source:
        SiloFuse, ICDE 2024, evaluation; with the correlation ratio for mixed pairs after Zhu et
        al., *DP-TLDM*, 2024.

    Example:
        >>> from siloweave.tables import Table, align
        >>> x, y, z = np.random.default_rng(0).random((3, 50))
        >>> one = Table.from_columns({"x": (x, None), "y": (x + y, None), "z": (z, None)})
        >>> both = align({"real": one, "synthetic": one})
        >>> round(correlation_similarity(both, "real", "synthetic"), 6)
        1.0
    """
    require_tables(tables, real, synthetic)
    return similarity_of(associations(tables, real), associations(tables, synthetic))


def similarity_of(ours: Floats, theirs: Floats) -> float:
    """Correlate two association matrices; the part of `correlation_similarity` after them."""
    if len(ours) < 3:
        raise InputError(
            f"{len(ours)} columns have too few pairs to correlate their associations; it takes 3"
        )
    apart = ~np.eye(len(ours), dtype=bool)
    x, y = ours[apart], theirs[apart]
    if np.ptp(x) < 1e-12:
        raise InputError("all pairs of real columns go together equally; nothing to correlate")
    if np.ptp(y) < 1e-12:
        return 0.0
    return float(np.clip(np.corrcoef(x, y)[0, 1], 0.0, 1.0))


def jensen_shannon_similarity(
    tables: Aligned, real: str, synthetic: str, *, bins: int = BINS
) -> float:
    """One minus the Jensen-Shannon distance, averaged over all columns.

    The distance is the square root of the divergence to base 2. Numeric columns are cut at real
    quantiles; a missing value is a cell of its own.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.
        bins: Cells of a numeric column, at most.

    Returns:
        The mean, 0 (no cell shared) to 1.

    Raises:
        InputError: There is no such table.

    Source:
        SiloFuse, ICDE 2024, evaluation; Lin, *Divergence measures based on the Shannon entropy*,
        1991.

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> jensen_shannon_similarity(align({"a": one, "b": one}), "a", "b")
        1.0
    """
    require_tables(tables, real, synthetic)
    found = [jensen_shannon(*column_shares(c, real, synthetic, bins=bins)) for c in tables.columns]
    return 1.0 - float(np.mean(found))


def jensen_shannon(p: Floats, q: Floats) -> float:
    """Square root of the Jensen-Shannon divergence to base 2: a distance from 0 to 1."""
    from scipy.spatial.distance import jensenshannon

    if np.array_equal(p, q):
        return 0.0
    return float(np.nan_to_num(jensenshannon(p, q, base=2)))


def kolmogorov_smirnov_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """One minus the two-sample Kolmogorov-Smirnov statistic, averaged over numeric columns.

    Categories have no order, so categorical columns have no such statistic.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.

    Returns:
        The mean, 0 to 1. Missing values are left out.

    Raises:
        InputError: There is no such table, or no numeric column.

    Source:
        SiloFuse, ICDE 2024, evaluation.

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> kolmogorov_smirnov_similarity(align({"a": one, "b": one}), "a", "b")
        1.0
    """
    require_tables(tables, real, synthetic)
    require_numeric(tables)
    return float(np.mean([1.0 - kolmogorov_smirnov(c, real, synthetic) for c in tables.numeric]))


def kolmogorov_smirnov(column: AlignedColumn, real: str, synthetic: str) -> float:
    """Largest gap between the two distribution functions of a numeric column, 0 to 1."""
    from scipy.stats import ks_2samp

    with np.errstate(divide="ignore"):  # of its p-value, for tables of one row
        found = ks_2samp(numbers(column, real), numbers(column, synthetic), method="asymp")
    return float(found.statistic)


def require_numeric(tables: Aligned) -> None:
    """Refuse tables without a numeric column."""
    if not tables.numeric:
        raise InputError("the tables have no numeric column")


def require_categorical(tables: Aligned) -> None:
    """Refuse tables without a categorical column."""
    if not tables.categorical:
        raise InputError("the tables have no categorical column")


def statistical_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Spearman's rank correlation of the numeric columns' summary statistics.

    Minimum, maximum, median, mean and standard deviation of every numeric column, ranked together:
    it tells columns of different scale apart and little else, so read it beside its floor.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.

    Returns:
        The correlation, with negative numbers as 0; 0 where the synthetic statistics are all equal.

    Raises:
        InputError: There is no such table, no numeric column, or all real statistics are equal.

    Source:
        Zhu et al., *DP-TLDM*, 2024, evaluation (statistical similarity).

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> round(statistical_similarity(align({"a": one, "b": one}), "a", "b"), 6)
        1.0
    """
    from scipy.stats import spearmanr

    require_tables(tables, real, synthetic)
    require_numeric(tables)
    x, y = (np.concatenate([_summary(numbers(c, t)) for c in tables.numeric])
            for t in (real, synthetic))  # fmt: skip
    if np.ptp(x) == 0:
        raise InputError("all summary statistics of the real table are equal; nothing to rank")
    if np.ptp(y) == 0:
        return 0.0
    return float(np.clip(spearmanr(x, y).statistic, 0.0, 1.0))


def _summary(values: Floats) -> list[float]:
    measures = (np.min, np.max, np.median, np.mean, np.std)
    return [float(measure(values)) for measure in measures]


BINS = 10
CORRELATED, ASSOCIATED = 0.5, 0.3
"""A pair counts as strong above these: absolute Pearson correlation, Cramer's V."""
Codes = NDArray[np.int64]
Cells = Callable[[AlignedColumn, str], Codes]
Pair = tuple[float, float, float]
_KNOWN: WeakKeyDictionary[Aligned, dict[tuple[str, str, str], list[Pair]]] = WeakKeyDictionary()


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
