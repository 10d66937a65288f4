"""Resemblance column by column, and of the associations between columns; all from 0 to 1.

The rows of a real and a synthetic table are not paired, so "the correlation of a real column with
the synthetic one" means nothing before a rule pairs their values: shuffle either table's rows and
the number changes while neither table does. `column_similarity` states its rule.
"""

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.evaluate.dependence import associations, entropy
from siloweave.evaluate.shares import BINS, column_shares, numbers, quantiles, require_tables
from siloweave.tables.aligned import Aligned, AlignedColumn

__all__ = [
    "column_similarity",
    "correlation_similarity",
    "jensen_shannon_similarity",
    "kolmogorov_smirnov_similarity",
    "statistical_similarity",
]

Floats = NDArray[np.float64]


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
