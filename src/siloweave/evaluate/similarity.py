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

from functools import partial
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
CORRELATED = 0.5
"""A pair of numeric columns counts as strong above this absolute Pearson correlation."""
ASSOCIATED = 0.3
"""Any other pair counts as strong above this Cramer's V."""
INDEPENDENT = 0.05
"""A pair of real columns does not go together if Cramer's V without its bias is below this."""
INFORMATION_BINS = 10
"""Cells of a numeric column for mutual information; a column of fewer values has one for each."""


# How strongly columns of one table go together


def associations(tables: Aligned, table: str) -> Floats:
    """Compute the association of every ordered pair of a table's columns.

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
        >>> real = Table.from_columns({"x": (x, None), "y": (-x, None)})
        >>> associations(align({"real": real}), "real").round(6).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    require_tables(tables, table)
    matrix = np.eye(len(tables.columns))
    # Each column's entropy is part of all its pairs; numeric columns need none.
    entropies = []
    for column in tables.columns:
        if column.numeric:
            entropies.append(0.0)
        else:
            counts = np.bincount(column.values[table])
            entropies.append(entropy(counts))

    for (i, first), (j, second) in combinations(enumerate(tables.columns), 2):
        if first.numeric or second.numeric:
            association = _association_with_numbers(first, second, table)
            matrix[i, j] = association
            matrix[j, i] = association
        else:
            # Theil's U: the share of a column's entropy that the other one explains.
            joint = entropy(_pair_counts(first, second, table))
            shared = max(0.0, entropies[i] + entropies[j] - joint)
            matrix[i, j] = _share_explained(shared, entropies[i])
            matrix[j, i] = _share_explained(shared, entropies[j])
    return matrix


def _association_with_numbers(
    first: AlignedColumn, second: AlignedColumn, table: str
) -> float:
    """Return the association of two columns, at least one of them numeric; it is symmetric."""
    first_values = first.values[table]
    second_values = second.values[table]
    if first.numeric and second.numeric:
        return pearson(first_values, second_values) or 0.0
    if first.numeric:
        return _correlation_ratio(second_values, first_values)
    return _correlation_ratio(first_values, second_values)


def _share_explained(shared: float, entropy_of_column: float) -> float:
    """Return shared information as a share of a column's entropy; 0 for a constant column."""
    if entropy_of_column <= 0:
        return 0.0
    # Rounding can lift the shared information above the whole.
    return min(1.0, shared / entropy_of_column)


def entropy(counts: Ints | Floats) -> float:
    """Return the entropy in nats of counts or weights that need not sum to 1.

    Empty cells add nothing.
    """
    from scipy.special import entr

    shares = counts / counts.sum()
    return abs(float(entr(shares).sum()))


def _pair_counts(first: AlignedColumn, second: AlignedColumn, table: str) -> Ints:
    """Count the rows in each occupied cell of two categorical columns, in no stated order."""
    cells = first.values[table].astype(np.int64) * second.levels + second.values[table]
    if first.levels * second.levels <= DENSE_TO:
        return np.bincount(cells)
    _, counts = np.unique(cells, return_counts=True)
    return counts.astype(np.int64, copy=False)


def pearson(x: Floats, y: Floats) -> float | None:
    """Return the Pearson correlation of two columns over the rows that have both numbers.

    None where a column holds one value.
    """
    is_complete = ~(np.isnan(x) | np.isnan(y))
    x = x[is_complete]
    y = y[is_complete]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    mean_product = (_standard(x) * _standard(y)).mean()
    return float(np.clip(mean_product, -1.0, 1.0))


def _standard(values: Floats) -> Floats:
    """Standardise, first to the unit range so that squares neither over- nor underflow."""
    values = _unit_range(values)
    values = values - values.mean()
    standardised: Floats = values / np.sqrt((values * values).mean())
    return standardised


def _correlation_ratio(labels: NDArray[np.integer], values: Floats) -> float:
    """Return the root of the share of the numbers' variance that lies between the groups."""
    has_value = ~np.isnan(values)
    values = values[has_value]
    labels = labels[has_value]
    if len(values) < 2 or np.ptp(values) == 0:
        return 0.0

    # Of standardised values the mean is 0 and the variance 1, so that a group adds the square of
    # its sum over its count, and the total is divided by the rows alone.
    values = _standard(values)
    counts = np.bincount(labels)
    sums = np.bincount(labels, weights=values)
    is_occupied = counts > 0
    squares = sums[is_occupied] ** 2 / counts[is_occupied]
    between_groups = float(squares.sum()) / len(values)
    return float(np.sqrt(np.clip(between_groups, 0.0, 1.0)))


# Similarities of two tables, from 0 to 1


def column_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Return the mean over columns of how well values go together once they are paired.

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
        >>> ascending = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> descending = Table.from_columns({"x": (np.array([9.0, 2.0, 1.5]), None)})
        >>> tables = align({"real": ascending, "synthetic": descending})
        >>> round(column_similarity(tables, "real", "synthetic"), 6)
        1.0
    """
    require_tables(tables, real, synthetic)
    similarities = []
    for column in tables.columns:
        if column.numeric:
            real_values = numbers(column, real)
            synthetic_values = numbers(column, synthetic)
            similarities.append(_quantile_correlation(real_values, synthetic_values))
        else:
            shares = column_shares(column, real, synthetic)
            similarities.append(_coupled_theils_u(*shares))
    return float(np.mean(similarities))


def _quantile_correlation(x: Floats, y: Floats) -> float:
    """Return the correlation of two numeric columns whose values are paired at equal quantiles."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        is_same_value = np.array_equal(np.unique(x), np.unique(y))
        return float(is_same_value)

    # Pair both at the quantiles of the shorter column.
    x = np.sort(x)
    y = np.sort(y)
    if len(x) != len(y):
        size = min(len(x), len(y))
        levels = (np.arange(size) + 0.5) / size
        x = quantiles(x, levels)
        y = quantiles(y, levels)
        # The few values that vary fell between the levels.
        if np.ptp(x) == 0 or np.ptp(y) == 0:
            return 0.0

    x = _unit_range(x)
    y = _unit_range(y)
    correlation = np.corrcoef(x, y)[0, 1]
    return float(np.clip(correlation, 0.0, 1.0))


def _unit_range(values: Floats) -> Floats:
    """Scale numbers to run from 0 to 1, dividing by the largest first against overflow."""
    values = values / np.abs(values).max()
    scaled: Floats = (values - values.min()) / np.ptp(values)
    return scaled


def _coupled_theils_u(p: Floats, q: Floats) -> float:
    """Return Theil's U of the pairing of two columns' values that agrees most.

    No table of pairs is needed.

    Takes the shares of each value in the real and in the synthetic column.
    """
    equal = np.minimum(p, q)
    equal_share = float(equal.sum())
    rest = max(0.0, 1.0 - equal_share)
    uncertainty = entropy(p)
    if uncertainty == 0:
        return equal_share

    # Joint entropy: the cells on the diagonal, then the rest of both columns paired at random,
    # that is with the cell (p - equal)_i (q - equal)_j / rest.
    diagonal = equal[equal > 0]
    joint = -float((diagonal * np.log(diagonal)).sum())
    if rest > 1e-12:  # below, the rest is rounding
        joint += rest * (entropy(p - equal) + entropy(q - equal) - np.log(rest))
    mutual_information = uncertainty + entropy(q) - joint
    return float(np.clip(mutual_information / uncertainty, 0.0, 1.0))


def correlation_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Correlate the two tables' `associations` over all pairs of columns, after Pearson.

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
        >>> real = Table.from_columns({"x": (x, None), "y": (x + y, None), "z": (z, None)})
        >>> tables = align({"real": real, "synthetic": real})
        >>> round(correlation_similarity(tables, "real", "synthetic"), 6)
        1.0
    """
    real_matrix = associations(tables, real)
    synthetic_matrix = associations(tables, synthetic)
    num_columns = len(real_matrix)
    if num_columns < 3:
        raise InputError(
            f"{num_columns} columns have too few pairs to correlate their associations; it takes 3"
        )

    # Without the diagonal, on which both tables have 1.
    is_pair = ~np.eye(num_columns, dtype=bool)
    x = real_matrix[is_pair]
    y = synthetic_matrix[is_pair]
    if np.ptp(x) < 1e-12:
        raise InputError(
            "all pairs of real columns go together equally; nothing to correlate"
        )
    if np.ptp(y) < 1e-12:
        return 0.0
    correlation = np.corrcoef(x, y)[0, 1]
    return float(np.clip(correlation, 0.0, 1.0))


def jensen_shannon_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Return one minus the Jensen-Shannon distance, averaged over all columns.

    The distance is the square root of the divergence to base 2. Numeric columns are cut at real
    quantiles into at most 20 cells; a missing value is a cell of its own. 0: no cell is shared.

    Source:
        SiloFuse, ICDE 2024, evaluation; Lin, *Divergence measures based on the Shannon entropy*,
        1991.

    Example:
        >>> from siloweave.tables import Table, align
        >>> table = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> jensen_shannon_similarity(align({"a": table, "b": table}), "a", "b")
        1.0
    """
    require_tables(tables, real, synthetic)
    distances = [
        jensen_shannon(*column_shares(c, real, synthetic)) for c in tables.columns
    ]
    return 1.0 - float(np.mean(distances))


def jensen_shannon(p: Floats, q: Floats) -> float:
    """Return the square root of the Jensen-Shannon divergence to base 2: a distance, 0 to 1."""
    from scipy.spatial.distance import jensenshannon

    if np.array_equal(p, q):
        return 0.0
    # NaN where rounding makes the divergence of almost equal shares negative.
    distance = np.nan_to_num(jensenshannon(p, q, base=2))
    return float(distance)


def kolmogorov_smirnov_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Return one minus the two-sample Kolmogorov-Smirnov statistic, averaged over numeric columns.

    Categories have no order, so categorical columns have no such statistic. Missing values are
    left out.

    Source:
        SiloFuse, ICDE 2024, evaluation.

    Example:
        >>> from siloweave.tables import Table, align
        >>> table = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> kolmogorov_smirnov_similarity(align({"a": table, "b": table}), "a", "b")
        1.0
    """
    require_tables(tables, real, synthetic)
    _require(tables, "numeric")
    similarities = [
        1.0 - _kolmogorov_smirnov(c, real, synthetic) for c in tables.numeric
    ]
    return float(np.mean(similarities))


def _kolmogorov_smirnov(column: AlignedColumn, real: str, synthetic: str) -> float:
    """Return the largest gap between the distribution functions of a numeric column, 0 to 1."""
    from scipy.stats import ks_2samp

    real_values = numbers(column, real)
    synthetic_values = numbers(column, synthetic)
    with np.errstate(divide="ignore"):  # of its p-value, for tables of one row
        test = ks_2samp(real_values, synthetic_values, method="asymp")
    return float(test.statistic)


def _require(tables: Aligned, kind: Literal["numeric", "categorical"]) -> None:
    """Refuse tables without a column of a kind, over which a mean would be NaN."""
    if not any(column.kind == kind for column in tables.columns):
        raise InputError(f"the tables have no {kind} column")


def statistical_similarity(tables: Aligned, real: str, synthetic: str) -> float:
    """Return Spearman's rank correlation of the numeric columns' summary statistics.

    Minimum, maximum, median, mean and standard deviation of every numeric column, ranked together:
    it sees whether columns of different scale were mixed up and little else, so read it beside its
    floor. Negative numbers count as 0; 0 too where the synthetic statistics are all equal.

    Raises:
        InputError: There is no such table, no numeric column, or all real statistics are equal.

    Source:
        Zhu et al., *DP-TLDM*, 2024, evaluation (statistical similarity).

    Example:
        >>> from siloweave.tables import Table, align
        >>> table = Table.from_columns({"x": (np.array([1.5, 2.0, 9.0]), None)})
        >>> round(statistical_similarity(align({"a": table, "b": table}), "a", "b"), 6)
        1.0
    """
    from scipy.stats import spearmanr

    require_tables(tables, real, synthetic)
    _require(tables, "numeric")
    x = _summary_statistics(tables, real)
    y = _summary_statistics(tables, synthetic)
    if np.ptp(x) == 0:
        raise InputError(
            "all summary statistics of the real table are equal; nothing to rank"
        )
    if np.ptp(y) == 0:
        return 0.0
    correlation = spearmanr(x, y).statistic
    return float(np.clip(correlation, 0.0, 1.0))


def _summary_statistics(tables: Aligned, table: str) -> Floats:
    """Return minimum, maximum, median, mean and deviation of each numeric column, in a row."""
    statistics: list[float] = []
    for column in tables.numeric:
        values = numbers(column, table)
        for statistic in (np.min, np.max, np.median, np.mean, np.std):
            statistics.append(float(statistic(values)))
    return np.array(statistics)


# Distances of two tables; lower is better


class Wasserstein(NamedTuple):
    """The mean Wasserstein distance in shares of the real ranges, and the columns left out."""

    mean: float
    left_out: tuple[str, ...]


def average_jsd(tables: Aligned, real: str, synthetic: str) -> float:
    """Return the mean Jensen-Shannon distance of the categorical columns, 0 to 1.

    The square root of the divergence to base 2. A missing value is a category.

    Source:
        Zhao et al., *Fed-TGAN*, 2021, evaluation (Avg-JSD).

    Example:
        >>> from siloweave.tables import Table, align
        >>> table = Table.from_columns({"c": (np.array([True, False]), None)})
        >>> average_jsd(align({"real": table, "synthetic": table}), "real", "synthetic")
        0.0
    """
    require_tables(tables, real, synthetic)
    _require(tables, "categorical")
    distances = [
        jensen_shannon(*column_shares(c, real, synthetic)) for c in tables.categorical
    ]
    return float(np.mean(distances))


def average_wasserstein(tables: Aligned, real: str, synthetic: str) -> Wasserstein:
    """Return the mean Wasserstein distance of numeric columns, scaled to the real ranges.

    The smallest and largest real value of a column become 0 and 1. Missing values are left out.

    Raises:
        InputError: There is no such table, no numeric column, or none with two real values.

    Source:
        Zhao et al., *Fed-TGAN*, 2021, evaluation (Avg-WD).

    Example:
        >>> from siloweave.tables import Table, align
        >>> real = Table.from_columns({"x": (np.array([0.5, 2.5]), None)})
        >>> synthetic = Table.from_columns({"x": (np.array([1.5, 3.5]), None)})
        >>> tables = align({"real": real, "synthetic": synthetic})
        >>> average_wasserstein(tables, "real", "synthetic").mean
        0.5
    """
    from scipy.stats import wasserstein_distance

    require_tables(tables, real, synthetic)
    _require(tables, "numeric")
    distances = []
    left_out = []
    for column in tables.numeric:
        real_values = numbers(column, real)
        synthetic_values = numbers(column, synthetic)
        low = real_values.min()
        span = np.ptp(real_values)
        if span == 0:
            left_out.append(column.name)
            continue
        real_scaled = (real_values - low) / span
        synthetic_scaled = (synthetic_values - low) / span
        distances.append(wasserstein_distance(real_scaled, synthetic_scaled))
    if not distances:
        raise InputError(
            "every numeric column holds one real value; there is no range to scale by"
        )
    return Wasserstein(float(np.mean(distances)), tuple(left_out))


def marginal_tvd(
    tables: Aligned, real: str, synthetic: str, ways: int, *, key: Key
) -> float:
    """Return the mean total variation distance over random marginals of `ways` columns, 0 to 1.

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
        >>> table = Table.from_columns({"x": (np.array([0.5, 2.5]), None)})
        >>> tables = align({"real": table, "synthetic": table})
        >>> marginal_tvd(tables, "real", "synthetic", 1, key=0)
        0.0
    """
    if len(tables.columns) < ways:
        raise InputError(
            f"{ways}-way marginals take {ways} columns; the tables have {len(tables.columns)}"
        )
    real_codes, synthetic_codes = coded(tables, real, synthetic)
    return tvd(real_codes, synthetic_codes, ways, key=key)


def marginal_error(
    tables: Aligned, real: str, synthetic: str, *, key: Key
) -> WorkloadError:
    """Return the mean L1 distance over a random workload, under both readings, each 0 to 2.

    The key draws at most 64 queries of three columns each, or of all where the tables have fewer; a
    numeric column has at most 20 cells, cut at real quantiles.

    Source:
        Maddock, Cormode and Maple, *FLAIM*, KDD 2024 (64 random 3-way queries).

    Example:
        >>> from siloweave.tables import Table, align
        >>> table = Table.from_columns({"x": (np.array([0.5, 2.5]), None)})
        >>> marginal_error(align({"a": table, "b": table}), "a", "b", key=0)
        WorkloadError(closure=0.0, queries=0.0)
    """
    real_codes, synthetic_codes = coded(tables, real, synthetic)
    degree = min(3, len(tables.columns))
    queries = random_workload(real_codes.domain, degree, 64, seed=key)
    return workload_errors(real_codes, synthetic_codes, queries)


# The two percentages that people quote


class PairTrends(NamedTuple):
    """The mean similarity of the trends of column pairs, 0 to 100, and the number of pairs."""

    percent: float
    pairs: int


def column_shapes(tables: Aligned, real: str, synthetic: str) -> float:
    """Return the mean similarity of each column's shape, in percent.

    Numeric: 1 - Kolmogorov-Smirnov statistic. Categorical: 1 - total variation distance. Missing
    values are left out.

    Source:
        SDMetrics 0.32 (2026), quality report: KSComplement and TVComplement.

    Example:
        >>> from siloweave.tables import Table, align
        >>> real = Table.from_columns({"x": (np.array([1.5, 2.5]), None)})
        >>> synthetic = Table.from_columns({"x": (np.array([1.5, 1.5]), None)})
        >>> tables = align({"real": real, "synthetic": synthetic})
        >>> column_shapes(tables, "real", "synthetic")
        50.0
    """
    require_tables(tables, real, synthetic)
    similarities = [_shape(column, real, synthetic) for column in tables.columns]
    return 100.0 * float(np.mean(similarities))


def _shape(column: AlignedColumn, real: str, synthetic: str) -> float:
    """Return how alike the distribution of a column is in both tables, 0 to 1."""
    if column.numeric:
        return 1.0 - _kolmogorov_smirnov(column, real, synthetic)
    real_shares = _category_shares(column, real)
    synthetic_shares = _category_shares(column, synthetic)
    return 1.0 - float(np.abs(real_shares - synthetic_shares).sum()) / 2


def _category_shares(column: AlignedColumn, table: str) -> Floats:
    """Return each category's share of the rows that have one."""
    counts = np.bincount(column.values[table], minlength=column.levels)
    present = counts[:-1]  # the last code stands for a missing value
    shares: Floats = present / present.sum()
    return shares


class _Trend(NamedTuple):
    """The similarity of the trend of one pair of columns in both tables.

    Attributes:
        similarity: 0 to 1.
        is_strong: Whether the pair goes together strongly in the real table.
    """

    similarity: float
    is_strong: bool


# All readings and their notes ask for the same pairs, so these are stored as long as the tables.
_TRENDS: WeakKeyDictionary[Aligned, dict[tuple[str, str], list[_Trend]]] = (
    WeakKeyDictionary()
)


def column_pair_trends(
    tables: Aligned, real: str, synthetic: str, *, strong: bool = True
) -> PairTrends:
    """Return the mean similarity of the trends of all pairs of columns, in percent.

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
        >>> real = Table.from_columns({"x": (x, None), "y": (x, None)})
        >>> synthetic = Table.from_columns({"x": (x, None), "y": (-x, None)})
        >>> tables = align({"real": real, "synthetic": synthetic})
        >>> column_pair_trends(tables, "real", "synthetic")
        PairTrends(percent=0.0, pairs=1)
    """
    require_tables(tables, real, synthetic)
    trends_by_pair = _TRENDS.setdefault(tables, {})
    if (real, synthetic) not in trends_by_pair:
        trends_by_pair[real, synthetic] = _trends(tables, real, synthetic)
    trends = trends_by_pair[real, synthetic]

    similarities = [
        trend.similarity for trend in trends if trend.is_strong or not strong
    ]
    if not similarities:
        pairs = len(tables.columns) * (len(tables.columns) - 1) // 2
        what_fails = (
            "goes together strongly in the real table" if strong else "can be compared"
        )
        raise InputError(f"none of the {pairs} pairs of columns {what_fails}")
    return PairTrends(100.0 * float(np.mean(similarities)), len(similarities))


def information_error(tables: Aligned, real: str, synthetic: str) -> float:
    """Return the mean error of two columns' mutual information, weighted by what they share.

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
        >>> equal = Table.from_columns({"x": (x, None), "y": (x, None)})
        >>> independent = Table.from_columns({"x": (x, None), "y": (y, None)})
        >>> tables = align({"real": equal, "synthetic": independent})
        >>> round(information_error(tables, "real", "synthetic"), 6)
        1.0
    """
    require_tables(tables, real, synthetic)
    if len(tables.columns) < 2:
        raise InputError("one column shares no information with another; it takes two")

    columns = [_information_cells(column, real, synthetic) for column in tables.columns]
    errors = []
    weights = []
    for first, second in combinations(columns, 2):
        real_information = _shared_information(first.real, second.real, second.size)
        synthetic_information = _shared_information(
            first.synthetic, second.synthetic, second.size
        )
        errors.append(abs(real_information - synthetic_information))
        weights.append(real_information + synthetic_information)
    if not sum(weights) > 0:
        raise InputError(
            "no two columns share information in either table; nothing to compare"
        )
    return float(np.average(errors, weights=weights))


class _InformationCells(NamedTuple):
    """The cell of one column in which each row is, in both tables.

    Attributes:
        real: Of the real rows, int64.
        synthetic: Of the synthetic rows, int64.
        size: How many cells there are.
    """

    real: Ints
    synthetic: Ints
    size: int


def _information_cells(
    column: AlignedColumn, real: str, synthetic: str
) -> _InformationCells:
    """Place both tables' rows in the cells of a column, which the real table cuts."""
    real_values = column.values[real]
    synthetic_values = column.values[synthetic]
    if not column.numeric:
        real_codes = real_values.astype(np.int64)
        synthetic_codes = synthetic_values.astype(np.int64)
        return _InformationCells(real_codes, synthetic_codes, column.levels)

    levels = np.unique(numbers(column, real))
    if len(levels) <= INFORMATION_BINS + 1:
        place = partial(_cells_of_levels, levels=levels)
        outside = len(levels)
    else:
        edges = np.histogram_bin_edges(levels, bins=INFORMATION_BINS)
        place = partial(_cells_between_edges, edges=edges)
        outside = INFORMATION_BINS
    # The cell after the last is for all values outside, and for missing ones.
    return _InformationCells(place(real_values), place(synthetic_values), outside + 1)


def _cells_of_levels(values: Floats, levels: Floats) -> Ints:
    """Place values in one cell per level, and all others in the cell after the last."""
    cells = np.searchsorted(levels, values)
    is_level = np.isin(values, levels)
    return np.where(is_level, cells, len(levels)).astype(np.int64)


def _cells_between_edges(values: Floats, edges: Floats) -> Ints:
    """Place values in the cells between edges, and those outside in the cell after the last."""
    # Cells are closed to the right, the lowest on both sides.
    cells = np.maximum(np.searchsorted(edges, values) - 1, 0)
    is_inside = (values >= edges[0]) & (values <= edges[-1])
    return np.where(is_inside, cells, len(edges) - 1).astype(np.int64)


def _shared_information(first: Ints, second: Ints, second_size: int) -> float:
    """Return mutual information over the mean entropy of both columns; 0 where one is constant."""
    first_entropy = entropy(_counted(first))
    second_entropy = entropy(_counted(second))
    if min(first_entropy, second_entropy) <= 0:
        return 0.0
    joint_entropy = entropy(_counted(first * second_size + second))
    total = first_entropy + second_entropy
    return float(np.clip(2.0 * (total - joint_entropy) / total, 0.0, 1.0))


def _counted(codes: Ints) -> Ints:
    """Return how many rows each occurring code has, in no stated order.

    Codes far apart are not all visited.
    """
    if int(codes.max()) < DENSE_TO:
        return np.bincount(codes)
    _, counts = np.unique(codes, return_counts=True)
    return counts.astype(np.int64, copy=False)


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
        >>> independent = Table.from_columns({"sick": names(a), "smokes": names(b)})
        >>> linked = Table.from_columns({"sick": names(a), "smokes": names(a)})
        >>> tables = align({"real": independent, "synthetic": linked})
        >>> links = invented_links(tables, "real", "synthetic")
        >>> round(links.largest, 2), links.pairs, links.columns
        (1.0, 1, ('sick', 'smokes'))
    """
    require_tables(tables, real, synthetic)
    real_cells = {column.name: _bin(column, real) for column in tables.columns}
    synthetic_cells = {
        column.name: _bin(column, synthetic) for column in tables.columns
    }

    links: dict[tuple[str, str], float] = {}
    for first, second in combinations(tables.names, 2):
        real_v, chance = _unbiased_v(real_cells[first], real_cells[second])
        if real_v < max(INDEPENDENT, chance):
            synthetic_v, _ = _unbiased_v(
                synthetic_cells[first], synthetic_cells[second]
            )
            links[first, second] = synthetic_v
    if not links:
        raise InputError("every pair of columns goes together in the real table")

    strongest = max(links, key=links.__getitem__)
    mean = float(np.mean(list(links.values())))
    return InventedLinks(links[strongest], mean, len(links), strongest)


def _unbiased_v(first: Ints, second: Ints) -> tuple[float, float]:
    """Return Cramer's V of two columns of cells, corrected for bias, and what chance may give.

    Chance is two standard deviations of chi-square over the V of independent columns. Both are 0
    with a column of one value.
    """
    _, rows = np.unique(first, return_inverse=True)
    _, columns = np.unique(second, return_inverse=True)
    r = int(rows.max()) + 1
    c = int(columns.max()) + 1
    others = len(rows) - 1  # n - 1 in the paper
    if min(r, c) < 2 or others < 1:
        return 0.0, 0.0

    # phi squared, chi-square over n, from the V that is not corrected.
    cells, counts = np.unique(rows.astype(np.int64) * c + columns, return_counts=True)
    biased_v = cramers_v((cells // c, cells % c, counts))
    phi_squared = biased_v**2 * (min(r, c) - 1)

    # Bergsma's corrections: phi squared has the mean (r-1)(c-1)/(n-1) under independence, and
    # r and c become r - (r-1)^2/(n-1) and c - (c-1)^2/(n-1).
    freedom = (r - 1) * (c - 1)
    corrected = max(0.0, phi_squared - freedom / others)
    corrected_rows = r - (r - 1) ** 2 / others
    corrected_columns = c - (c - 1) ** 2 / others
    least = min(corrected_rows, corrected_columns) - 1
    if least <= 0:
        return 0.0, 0.0

    # Chi-square with f degrees of freedom has the variance 2 f.
    chance = 2 * np.sqrt(2 * freedom) / others
    return float(np.sqrt(corrected / least)), float(np.sqrt(chance / least))


def _trends(tables: Aligned, real: str, synthetic: str) -> list[_Trend]:
    """Return the trend of every pair of columns, but for pairs without a correlation."""
    real_cells: dict[str, Ints] = {}
    synthetic_cells: dict[str, Ints] = {}
    if tables.categorical:  # tables of numbers alone need no cells
        real_cells = {column.name: _bin(column, real) for column in tables.columns}
        synthetic_cells = {
            column.name: _bin(column, synthetic) for column in tables.columns
        }

    trends = []
    for first, second in combinations(tables.columns, 2):
        if first.numeric and second.numeric:
            trend = _correlation_trend(first, second, real, synthetic)
            if trend is not None:
                trends.append(trend)
            continue
        # Ten bins, one for what is below them, and one for what is above and for missing numbers.
        width = TREND_BINS + 2 if second.numeric else second.levels
        real_joint = real_cells[first.name] * width + real_cells[second.name]
        synthetic_joint = (
            synthetic_cells[first.name] * width + synthetic_cells[second.name]
        )
        trends.append(_contingency_trend(real_joint, synthetic_joint, width))
    return trends


def _correlation_trend(
    first: AlignedColumn, second: AlignedColumn, real: str, synthetic: str
) -> _Trend | None:
    """Compare the correlations of two numeric columns; None where one is not defined."""
    real_correlation = pearson(first.values[real], second.values[real])
    synthetic_correlation = pearson(first.values[synthetic], second.values[synthetic])
    if real_correlation is None or synthetic_correlation is None:
        return None
    similarity = 1.0 - abs(real_correlation - synthetic_correlation) / 2
    return _Trend(similarity, abs(real_correlation) > CORRELATED)


def _contingency_trend(real_joint: Ints, synthetic_joint: Ints, width: int) -> _Trend:
    """Compare the joint counts of two columns in both tables.

    A cell's number is that of its row times `width`, plus that of its column.
    """
    real_counts = np.unique(real_joint, return_counts=True)
    synthetic_counts = np.unique(synthetic_joint, return_counts=True)
    cells, counts = real_counts
    strength = cramers_v((cells // width, cells % width, counts))
    return _Trend(overlap(real_counts, synthetic_counts), strength > ASSOCIATED)


def _bin(column: AlignedColumn, table: str) -> Ints:
    """Place a column's rows in bins of equal width over the table's own range, or in its codes."""
    values = column.values[table]
    if not column.numeric:
        return values.astype(np.int64)
    edges = np.histogram_bin_edges(numbers(column, table), bins=TREND_BINS)
    # A missing value: the last.
    cells: Ints = np.digitize(values, edges).astype(np.int64)
    return cells


def cramers_v(joint: tuple[Ints, Ints, Ints]) -> float:
    """Return Cramer's V, not corrected for bias; 0 if a column has one value.

    Takes row, column and count of each occupied cell.
    chi2/n = sum over cells of count^2 / (row total * column total) - 1, so that empty cells, of
    which two wide columns have billions, are never visited.
    """
    row_codes, column_codes, cell_counts = joint
    _, rows = np.unique(row_codes, return_inverse=True)
    _, columns = np.unique(column_codes, return_inverse=True)
    counts = cell_counts.astype(np.float64)
    row_totals = np.bincount(rows, counts)
    column_totals = np.bincount(columns, counts)
    least = min(len(row_totals), len(column_totals)) - 1
    if least < 1:
        return 0.0
    expected_counts = row_totals[rows] * column_totals[columns]
    phi_squared = float((counts**2 / expected_counts).sum()) - 1.0
    return float(np.sqrt(max(0.0, phi_squared) / least))
