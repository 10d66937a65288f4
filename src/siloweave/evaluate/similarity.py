"""How alike two tables are, measured without a model: similarities, distances, percentages.

Each measure takes tables that `siloweave.tables.align` put side by side and the names of the real
and the synthetic table among them. It raises `InputError` where there is no such table, and where
the tables have no column that it applies to. Similarities are from 0 to 1 (a copy), the two quoted
percentages from 0 to 100; of distances, less is better.

The rows of a real and a synthetic table are not paired, so "the correlation of a real column with
the synthetic one" means nothing before a rule pairs their values: shuffle either table's rows and
the number changes while neither table does. `column_similarity` states its rule.

The two percentages that people quote, column shapes and column pair trends, are those of the
quality report of SDMetrics 0.32 (2026), thresholds and bins included. Independent columns score
high on both, so quote them with their floor.
"""

from __future__ import annotations

from itertools import combinations
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.shares import (
    coded,
    column_shares,
    numbers,
    overlap,
    quantiles,
    require_tables,
)
from siloweave.evaluate.workload import WorkloadError, tvd, workload_errors
from siloweave.statistics.marginals import random_workload
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.keys import Key

DENSE_TO = 1 << 18
"""Pairs with more cells than this are counted over the cells that have rows."""
TREND_BINS = 10
"""Cells of a numeric column in column pair trends."""
CORRELATED, ASSOCIATED = 0.5, 0.3
"""A pair counts as strong above these: absolute Pearson correlation, Cramer's V."""


INDEPENDENT = 0.05
"""A pair of real columns does not go together if Cramer's V without its bias is below this."""


INFORMATION_BINS = 10
"""Cells of a numeric column for mutual information; a column of fewer values has one for each."""


# How strongly columns of one table go together


def associations(tables: Aligned, table: str) -> Floats:
    """Association of every ordered pair of a table's columns.

    Two numeric columns: Pearson's correlation, from -1 to 1. Two categorical columns: Theil's U,
    the share of the row's uncertainty that the column takes away, from 0 to 1 and not symmetric.
    One of each: the correlation ratio, from 0 to 1. Rows with a missing number are left out pair
    by pair; a missing category is a category of its own.

    Args:
        tables: Where the table is.
        table: Its name.

    Returns:
        float64 matrix in the order of the columns; the entry (i, j) says how much of column i
        column j explains. The diagonal is 1. A pair with a column of one value has 0.

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
    matrix = np.eye(len(tables.columns))
    own = [0.0 if c.numeric else entropy(np.bincount(c.values[table])) for c in tables.columns]
    for (i, first), (j, second) in combinations(enumerate(tables.columns), 2):
        if first.numeric and second.numeric:
            found = pearson(first.values[table], second.values[table]) or 0.0
            matrix[i, j] = matrix[j, i] = found
        elif first.numeric or second.numeric:
            groups, values = (second, first) if first.numeric else (first, second)
            found = _correlation_ratio(groups.values[table], values.values[table])
            matrix[i, j] = matrix[j, i] = found
        else:
            joint = entropy(_pair_counts(first, second, table))
            shared = max(0.0, own[i] + own[j] - joint)
            for place, whole in (((i, j), own[i]), ((j, i), own[j])):
                matrix[place] = min(1.0, shared / whole) if whole > 0 else 0.0
    return matrix


def entropy(counts: Ints | Floats) -> float:
    """Entropy in nats of counts or weights that need not sum to 1; empty cells add nothing."""
    from scipy.special import entr

    return abs(float(entr(counts / counts.sum()).sum()))


def _pair_counts(first: AlignedColumn, second: AlignedColumn, table: str) -> Ints:
    """Rows in each occupied cell of two categorical columns, in no stated order."""
    cells = first.values[table].astype(np.int64) * second.levels + second.values[table]
    if first.levels * second.levels <= DENSE_TO:
        return np.bincount(cells)
    counts: Ints = np.unique(cells, return_counts=True)[1]
    return counts


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


def _correlation_ratio(labels: NDArray[np.integer], values: Floats) -> float:
    """Root of the share of the numbers' variance that lies between the groups."""
    known = ~np.isnan(values)
    values, labels = values[known], labels[known]
    if len(values) < 2 or np.ptp(values) == 0:
        return 0.0
    values = _standard(values)
    counts = np.bincount(labels)
    sums = np.bincount(labels, weights=values)
    seen = counts > 0
    between = float((sums[seen] ** 2 / counts[seen]).sum()) / len(values)
    return float(np.sqrt(np.clip(between, 0.0, 1.0)))


# Similarities of two tables, from 0 to 1


def column_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Mean over columns of how well values go together once they are paired.

    Numeric: both columns are sorted and paired at equal quantiles, then Pearson's correlation; it
    does not see a shift or a scale. Categorical: as many rows as possible are paired with an equal
    value (the shares min(p, q)), the rest at random, then Theil's U: the share of the real value's
    uncertainty that the synthetic one takes away. Neither rule depends on the order of rows or of
    categories. A missing number is left out, a missing category is a category. A column of one
    value is 1 where the other table holds only that value too, and else the share of equal rows
    (categorical) or 0 (numeric).

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
    found = [
        _quantile_correlation(numbers(column, real), numbers(column, synthetic))
        if column.numeric
        else _coupled_theils_u(*column_shares(column, real, synthetic))
        for column in tables.columns
    ]
    return float(np.mean(found))


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
    """Pearson's correlation of the two tables' `associations` over all pairs of columns.

    Negative numbers count as 0; 0 too where no synthetic coefficient differs from another.

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
    ours, theirs = associations(tables, real), associations(tables, synthetic)
    if len(ours) < 3:
        raise InputError(
            f"{len(ours)} columns have too few pairs to correlate their associations; it takes 3"
        )
    apart = ~np.eye(len(ours), dtype=bool)
    x, y = ours[apart], theirs[apart]
    if np.ptp(x) < 1e-12:
        raise InputError("all pairs of real columns go together equally; nothing to correlate")
    return 0.0 if np.ptp(y) < 1e-12 else float(np.clip(np.corrcoef(x, y)[0, 1], 0.0, 1.0))


def jensen_shannon_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """One minus the Jensen-Shannon distance, averaged over all columns.

    The distance is the square root of the divergence to base 2. Numeric columns are cut at real
    quantiles into at most 20 cells; a missing value is a cell of its own. 0: no cell is shared.

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
    found = [jensen_shannon(*column_shares(c, real, synthetic)) for c in tables.columns]
    return 1.0 - float(np.mean(found))


def jensen_shannon(p: Floats, q: Floats) -> float:
    """Square root of the Jensen-Shannon divergence to base 2: a distance from 0 to 1."""
    from scipy.spatial.distance import jensenshannon

    if np.array_equal(p, q):
        return 0.0
    return float(np.nan_to_num(jensenshannon(p, q, base=2)))


def kolmogorov_smirnov_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """One minus the two-sample Kolmogorov-Smirnov statistic, averaged over numeric columns.

    Categories have no order, so categorical columns have no such statistic. Missing values are
    left out.

    Source:
        SiloFuse, ICDE 2024, evaluation.

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> kolmogorov_smirnov_similarity(align({"a": one, "b": one}), "a", "b")
        1.0
    """
    require_tables(tables, real, synthetic)
    _require(tables, "numeric")
    return float(np.mean([1.0 - _kolmogorov_smirnov(c, real, synthetic) for c in tables.numeric]))


def _kolmogorov_smirnov(column: AlignedColumn, real: str, synthetic: str) -> float:
    """Largest gap between the two distribution functions of a numeric column, 0 to 1."""
    from scipy.stats import ks_2samp

    with np.errstate(divide="ignore"):  # of its p-value, for tables of one row
        found = ks_2samp(numbers(column, real), numbers(column, synthetic), method="asymp")
    return float(found.statistic)


def _require(tables: Aligned, kind: Literal["numeric", "categorical"]) -> None:
    if not any(column.kind == kind for column in tables.columns):
        raise InputError(f"the tables have no {kind} column")


def statistical_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Spearman's rank correlation of the numeric columns' summary statistics.

    Minimum, maximum, median, mean and standard deviation of every numeric column, ranked together:
    it sees whether columns of different scale were mixed up and little else, so read it beside its
    floor. Negative numbers count as 0; 0 too where the synthetic statistics are all equal.

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
    _require(tables, "numeric")
    summaries = (np.min, np.max, np.median, np.mean, np.std)
    x, y = (
        np.array([float(of(numbers(c, table))) for c in tables.numeric for of in summaries])
        for table in (real, synthetic)
    )
    if np.ptp(x) == 0:
        raise InputError("all summary statistics of the real table are equal; nothing to rank")
    return 0.0 if np.ptp(y) == 0 else float(np.clip(spearmanr(x, y).statistic, 0.0, 1.0))


# Distances of two tables; lower is better


class Wasserstein(NamedTuple):
    """Mean distance in shares of the real columns' ranges, without columns of one real value."""

    mean: float
    left_out: tuple[str, ...]


def average_jsd(tables: Aligned, real: str, synthetic: str) -> float:
    """Mean Jensen-Shannon distance of the categorical columns, 0 to 1.

    The square root of the divergence to base 2. A missing value is a category.

    Source:
        Zhao et al., *Fed-TGAN*, 2021, evaluation (Avg-JSD).

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"c": (np.array([True, False]), None)})
        >>> average_jsd(align({"real": one, "synthetic": one}), "real", "synthetic")
        0.0
    """
    require_tables(tables, real, synthetic)
    _require(tables, "categorical")
    found = [jensen_shannon(*column_shares(c, real, synthetic)) for c in tables.categorical]
    return float(np.mean(found))


def average_wasserstein(tables: Aligned, real: str, synthetic: str) -> Wasserstein:
    """Mean Wasserstein distance of the numeric columns, scaled to the real columns' ranges.

    The smallest and largest real value of a column become 0 and 1. Missing values are left out.

    Raises:
        InputError: There is no such table, no numeric column, or none with two real values.

    Source:
        Zhao et al., *Fed-TGAN*, 2021, evaluation (Avg-WD).

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([0.5, 2.5]), None)})
        >>> two = Table.from_columns({"x": (np.array([1.5, 3.5]), None)})
        >>> average_wasserstein(align({"real": one, "synthetic": two}), "real", "synthetic").mean
        0.5
    """
    from scipy.stats import wasserstein_distance

    require_tables(tables, real, synthetic)
    _require(tables, "numeric")
    found, left_out = [], []
    for column in tables.numeric:
        ours, theirs = numbers(column, real), numbers(column, synthetic)
        low, span = ours.min(), np.ptp(ours)
        if span == 0:
            left_out.append(column.name)
        else:
            found.append(wasserstein_distance((ours - low) / span, (theirs - low) / span))
    if not found:
        raise InputError("every numeric column holds one real value; there is no range to scale by")
    return Wasserstein(float(np.mean(found)), tuple(left_out))


def marginal_tvd(tables: Aligned, real: str, synthetic: str, ways: int, *, key: Key) -> float:
    """Mean total variation distance, 0 to 1, over random marginals of `ways` columns at a time.

    The key draws 300 of them; all count where there are no more. Numeric columns are cut
    at quantiles of the real table into at most 20 cells; the rarest values of a categorical
    column beyond 1,000 share one. With few rows for so many cells, even two real samples are far
    apart: compare with the ceiling, not with 0.

    Raises:
        InputError: There is no such table, or fewer than `ways` columns.

    Source:
        VertiMRF, 2024, experiments (300 random 3- and 4-way marginals).

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([0.5, 2.5]), None)})
        >>> marginal_tvd(align({"real": one, "synthetic": one}), "real", "synthetic", 1, key=0)
        0.0
    """
    if len(tables.columns) < ways:
        raise InputError(
            f"{ways}-way marginals take {ways} columns; the tables have {len(tables.columns)}"
        )
    return tvd(*coded(tables, real, synthetic), ways, key=key)


def marginal_error(tables: Aligned, real: str, synthetic: str, *, key: Key) -> WorkloadError:
    """Mean L1 distance over a random workload of marginals, under both readings, each 0 to 2.

    The key draws at most 64 queries of three columns each, or of all where the tables have fewer; a
    numeric column has at most 20 cells, cut at real quantiles.

    Source:
        Maddock, Cormode and Maple, *FLAIM*, KDD 2024 (64 random 3-way queries).

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([0.5, 2.5]), None)})
        >>> marginal_error(align({"a": one, "b": one}), "a", "b", key=0)
        WorkloadError(closure=0.0, queries=0.0)
    """
    ours, theirs = coded(tables, real, synthetic)
    degree = min(3, len(tables.columns))
    return workload_errors(ours, theirs, random_workload(ours.domain, degree, 64, seed=key))


# The two percentages that people quote


class PairTrends(NamedTuple):
    """Mean similarity of the trends of pairs of columns, 0 to 100, and of how many pairs."""

    percent: float
    pairs: int


def column_shapes(tables: Aligned, real: str, synthetic: str) -> float:
    """Mean similarity of each column's shape, in percent.

    Numeric: 1 - Kolmogorov-Smirnov statistic. Categorical: 1 - total variation distance. Missing
    values are left out.

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
        return 1.0 - _kolmogorov_smirnov(column, real, synthetic)
    p, q = (np.bincount(column.values[t], minlength=column.levels)[:-1] for t in (real, synthetic))
    return 1.0 - float(np.abs(p / p.sum() - q / q.sum()).sum()) / 2


# Per pair of columns: similarity of the trends, the real table's strength, and the strength
# above which a pair counts as strong.
_Trend = tuple[float, float, float]
# All readings and their notes ask for the same pairs, so these are stored as long as the tables.
_KNOWN: WeakKeyDictionary[Aligned, dict[tuple[str, str], list[_Trend]]] = WeakKeyDictionary()


def column_pair_trends(
    tables: Aligned, real: str, synthetic: str, *, strong: bool = True
) -> PairTrends:
    """Mean similarity of the trends of all pairs of columns, in percent.

    Two numeric columns: 1 - |a - b|/2 of both Pearson correlations. All other pairs: 1 - total
    variation distance of the joint counts, numeric columns in 10 bins of equal width, a missing
    value as a category. Bins are cut between each table's own extremes, so that a column that was
    stretched or moved is not seen. A numeric pair with a column of one value is left out.

    `strong`: only pairs count that go together in the real table: absolute correlation above 0.5,
    Cramer's V (not corrected) above 0.3. SDMetrics does so since 2026; the percentages of older
    reports are over all pairs.

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
    known = _KNOWN.setdefault(tables, {})
    if (real, synthetic) not in known:
        known[real, synthetic] = _trends(tables, real, synthetic)
    trends = known[real, synthetic]
    found = [value for value, strength, least in trends if not strong or strength > least]
    if not found:
        raise InputError(
            f"none of the {len(tables.columns) * (len(tables.columns) - 1) // 2} pairs of columns "
            + ("goes together strongly in the real table" if strong else "can be compared")
        )
    return PairTrends(100.0 * float(np.mean(found)), len(found))


def information_error(tables: Aligned, real: str, synthetic: str) -> float:
    """Mean error of the mutual information of two columns, weighted by how much they share.

    Mutual information is normalised by the mean entropy of both columns, so it is from 0 to 1. The
    weight of a pair is its sum over both tables: pairs that share nothing in either do not count.
    Numeric columns have 10 cells of equal width over the real range, or one per value where the
    real table has 11 different values at most. Missing values share a cell with what lies outside
    the real range and, in a column of so few values, with all that no real row has.

    Returns:
        0 (every pair shares as much in both tables) to 1.

    Raises:
        InputError: There is no such table, fewer than two columns, or none that share anything.

    Source:
        TabPC, 2026 (arXiv 2603.23016), and its code: the normalised, weighted L1 error.

    Example:
        >>> from siloweave.tables import Table, align
        >>> x, y = np.repeat([False, True], 50), np.tile([False, True], 50)
        >>> one = Table.from_columns({"x": (x, None), "y": (x, None)})
        >>> two = Table.from_columns({"x": (x, None), "y": (y, None)})
        >>> round(information_error(align({"a": one, "b": two}), "a", "b"), 6)
        1.0
    """
    require_tables(tables, real, synthetic)
    if len(tables.columns) < 2:
        raise InputError("one column shares no information with another; it takes two")
    cells = [_information_cells(column, real, synthetic) for column in tables.columns]
    errors, weights = [], []
    for (ours, theirs, _), (other_ours, other_theirs, levels) in combinations(cells, 2):
        known = _shared_information(ours, other_ours, levels)
        drawn = _shared_information(theirs, other_theirs, levels)
        errors.append(abs(known - drawn))
        weights.append(known + drawn)
    if not sum(weights) > 0:
        raise InputError("no two columns share information in either table; nothing to compare")
    return float(np.average(errors, weights=weights))


def _information_cells(column: AlignedColumn, real: str, synthetic: str) -> tuple[Ints, Ints, int]:
    """Return each row's cell in both tables, and how many cells there are."""
    tables = (real, synthetic)
    if not column.numeric:
        ours, theirs = (column.values[table].astype(np.int64) for table in tables)
        return ours, theirs, column.levels
    known = np.unique(numbers(column, real))
    if len(known) <= INFORMATION_BINS + 1:
        places = [np.searchsorted(known, column.values[table]) for table in tables]
        inside = [np.isin(column.values[table], known) for table in tables]
        size = len(known)
    else:
        edges = np.histogram_bin_edges(known, bins=INFORMATION_BINS)
        places = [np.searchsorted(edges, column.values[table]) - 1 for table in tables]
        # Cells are closed to the right, the lowest on both sides.
        places = [np.maximum(place, 0) for place in places]
        inside = [
            (column.values[table] >= edges[0]) & (column.values[table] <= edges[-1])
            for table in tables
        ]
        size = INFORMATION_BINS
    ours, theirs = (
        np.where(mask, place, size).astype(np.int64)
        for mask, place in zip(inside, places, strict=True)
    )
    return ours, theirs, size + 1


def _shared_information(first: Ints, second: Ints, levels: int) -> float:
    """Return mutual information over the mean entropy of both columns; 0 where one is constant."""
    entropies = [entropy(_counted(codes)) for codes in (first, second)]
    if min(entropies) <= 0:
        return 0.0
    shared = sum(entropies) - entropy(_counted(first * levels + second))
    return float(np.clip(2.0 * shared / sum(entropies), 0.0, 1.0))


def _counted(codes: Ints) -> Ints:
    """Return how many rows each code has, without order; codes far apart are not all visited."""
    if int(codes.max()) < DENSE_TO:
        return np.bincount(codes)
    counts: Ints = np.unique(codes, return_counts=True)[1]
    return counts


class InventedLinks(NamedTuple):
    """Associations drawn between columns that do not go together in the real table.

    Attributes:
        largest: Largest Cramer's V of a drawn pair, 0 to 1.
        mean: Mean over all such pairs.
        pairs: How many pairs do not go together in the real table.
        columns: The pair with the largest one.
    """

    largest: float
    mean: float
    pairs: int
    columns: tuple[str, str]


def invented_links(tables: Aligned, real: str, synthetic: str) -> InventedLinks:
    """Measure links that synthetic rows have between columns that are independent in real ones.

    Associations are Cramer's V without its bias, which is near 0 for independent columns however
    many values they have. Numeric columns are in 10 bins of equal width, a missing value is a
    category. Pairs count whose V in the real table is below 0.05, or below what chance gives
    independent columns of so few rows (two standard deviations).

    Raises:
        InputError: There is no such table, or no such pair.

    Source:
        Bergsma 2013, "A bias-correction for Cramer's V and Tschuprow's T" (Journal of the Korean
        Statistical Society 42(3)), equation 9.

    Example:
        >>> from siloweave.tables import Table, align
        >>> a, b = np.repeat([0, 1], 50), np.tile([0, 1], 50)
        >>> names = lambda codes: (np.array(["no", "yes"], object)[codes], None)
        >>> one = Table.from_columns({"sick": names(a), "smokes": names(b)})
        >>> two = Table.from_columns({"sick": names(a), "smokes": names(a)})
        >>> found = invented_links(align({"real": one, "synthetic": two}), "real", "synthetic")
        >>> round(found.largest, 2), found.pairs, found.columns
        (1.0, 1, ('sick', 'smokes'))
    """
    require_tables(tables, real, synthetic)
    cells = {
        (column.name, table): _bin(column, table)
        for column in tables.columns
        for table in (real, synthetic)
    }
    links: dict[tuple[str, str], float] = {}
    for first, second in combinations(tables.columns, 2):
        known, chance = _unbiased_v(cells[first.name, real], cells[second.name, real])
        if known < max(INDEPENDENT, chance):
            drawn, _ = _unbiased_v(cells[first.name, synthetic], cells[second.name, synthetic])
            links[first.name, second.name] = drawn
    if not links:
        raise InputError("every pair of columns goes together in the real table")
    strongest = max(links, key=links.__getitem__)
    mean = float(np.mean(list(links.values())))
    return InventedLinks(links[strongest], mean, len(links), strongest)


def _unbiased_v(first: Ints, second: Ints) -> tuple[float, float]:
    """Return Cramer's V of two columns of cells without its bias, and what chance may give.

    Chance is two standard deviations of chi-square over the V of independent columns. Both are 0
    with a column of one value.
    """
    rows, columns = (np.unique(codes, return_inverse=True)[1] for codes in (first, second))
    n, m = int(rows.max()) + 1, int(columns.max()) + 1
    others = len(rows) - 1
    if min(n, m) < 2 or others < 1:
        return 0.0, 0.0
    places, counts = np.unique(rows.astype(np.int64) * m + columns, return_counts=True)
    chi = cramers_v((places // m, places % m, counts)) ** 2 * (min(n, m) - 1)
    freedom = (n - 1) * (m - 1)
    least = min(n - (n - 1) ** 2 / others, m - (m - 1) ** 2 / others) - 1
    if least <= 0:
        return 0.0, 0.0
    corrected = max(0.0, chi - freedom / others)
    chance = 2 * np.sqrt(2 * freedom) / others
    return float(np.sqrt(corrected / least)), float(np.sqrt(chance / least))


def _trends(tables: Aligned, real: str, synthetic: str) -> list[_Trend]:
    """The trend of every pair of columns, but for pairs whose correlation is not defined."""
    cells = {
        (column.name, table): _bin(column, table)
        for column in tables.columns
        for table in (real, synthetic)
        if tables.categorical
    }
    found = []
    for first, second in combinations(tables.columns, 2):
        if first.numeric and second.numeric:
            x, y = (pearson(first.values[t], second.values[t]) for t in (real, synthetic))
            if x is not None and y is not None:
                found.append((1.0 - abs(x - y) / 2, abs(x), CORRELATED))
            continue
        width = TREND_BINS + 2 if second.numeric else second.levels
        ours, theirs = (
            np.unique(
                cells[first.name, table] * width + cells[second.name, table], return_counts=True
            )
            for table in (real, synthetic)
        )
        strength = cramers_v((ours[0] // width, ours[0] % width, ours[1]))
        found.append((overlap(ours, theirs), strength, ASSOCIATED))
    return found


def _bin(column: AlignedColumn, table: str) -> Ints:
    values = column.values[table]
    if not column.numeric:
        return values.astype(np.int64)
    edges = np.histogram_bin_edges(numbers(column, table), bins=TREND_BINS)
    found: Ints = np.digitize(values, edges).astype(np.int64)  # a missing value: the last
    return found


def cramers_v(joint: tuple[Ints, Ints, Ints]) -> float:
    """Cramer's V, not corrected for bias; 0 with a column of one value.

    Takes row, column and count of each occupied cell.
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
