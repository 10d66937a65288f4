"""Distances between tables as Fed-TGAN, VertiMRF and FLAIM report them; lower is better."""

from typing import NamedTuple

import numpy as np

from siloweave.errors import InputError
from siloweave.evaluate.shares import BINS, coded, column_shares, numbers, require_tables
from siloweave.evaluate.similarity import jensen_shannon, require_categorical, require_numeric
from siloweave.evaluate.workload import WorkloadError, tvd, workload_errors
from siloweave.statistics.marginals import random_workload
from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key

__all__ = ["Wasserstein", "average_jsd", "average_wasserstein", "marginal_error", "marginal_tvd"]


class Wasserstein(NamedTuple):
    """Mean Wasserstein distance.

    Args:
        mean: Over the columns that could be scaled, in shares of the real column's range.
        left_out: Numeric columns of one real value, which have no range to scale by.
    """

    mean: float
    left_out: tuple[str, ...]


def average_jsd(tables: Aligned, real: str, synthetic: str) -> float:
    """Mean Jensen-Shannon distance of the categorical columns.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.

    Returns:
        Mean square root of the divergence to base 2, 0 to 1. A missing value is a category.

    Raises:
        InputError: There is no such table, or no categorical column.

    Source:
        Zhao et al., *Fed-TGAN*, 2021, evaluation (Avg-JSD).

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"c": (np.array([True, False]), None)})
        >>> average_jsd(align({"real": one, "synthetic": one}), "real", "synthetic")
        0.0
    """
    require_tables(tables, real, synthetic)
    require_categorical(tables)
    found = [jensen_shannon(*column_shares(c, real, synthetic)) for c in tables.categorical]
    return float(np.mean(found))


def average_wasserstein(tables: Aligned, real: str, synthetic: str) -> Wasserstein:
    """Mean Wasserstein distance of the numeric columns, scaled to the real columns' ranges.

    Args:
        tables: Both tables, aligned.
        real: The real table's name; its smallest and largest values become 0 and 1.
        synthetic: The synthetic table's name.

    Returns:
        The mean, 0 or more, and the columns that have no real range. Missing values are left out.

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
    require_numeric(tables)
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


def marginal_tvd(
    tables: Aligned,
    real: str,
    synthetic: str,
    ways: int,
    *,
    key: Key,
    bins: int = BINS,
    max_cliques: int = 300,
) -> float:
    """Mean total variation distance over random marginals of some columns at a time.

    Numeric columns are cut at quantiles of the real table into at most `bins` cells; the rarest
    values of a categorical column beyond 1,000 share one. With few rows for so many cells, even
    two real samples are far apart: compare with the ceiling, not with 0.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.
        ways: Columns per marginal.
        key: Which marginals.
        bins: Cells of a numeric column, at most.
        max_cliques: How many marginals; all when there are no more.

    Returns:
        The mean, 0 to 1.

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
    _require_columns(tables, ways)
    ours, theirs = coded(tables, real, synthetic, bins=bins)
    return tvd(ours, theirs, ways, max_cliques=max_cliques, key=key)


def marginal_error(
    tables: Aligned,
    real: str,
    synthetic: str,
    *,
    key: Key,
    ways: int = 3,
    queries: int = 64,
    bins: int = BINS,
) -> WorkloadError:
    """Mean L1 distance over a random workload of marginals, under both readings.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.
        key: Which marginals.
        ways: Columns per query; fewer where the tables have fewer.
        queries: How many queries, at most.
        bins: Cells of a numeric column, at most.

    Returns:
        The mean over the workload's closure and over its queries, each 0 to 2.

    Raises:
        InputError: There is no such table.

    Source:
        Maddock, Cormode and Maple, *FLAIM*, KDD 2024 (64 random 3-way queries).

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([0.5, 2.5]), None)})
        >>> marginal_error(align({"a": one, "b": one}), "a", "b", key=0)
        WorkloadError(closure=0.0, queries=0.0)
    """
    ours, theirs = coded(tables, real, synthetic, bins=bins)
    degree = min(ways, len(tables.columns))
    return workload_errors(ours, theirs, random_workload(ours.domain, degree, queries, seed=key))


def _require_columns(tables: Aligned, ways: int) -> None:
    if len(tables.columns) < ways:
        raise InputError(f"{ways}-way marginals take {ways} columns; the tables have "
                         f"{len(tables.columns)}")  # fmt: skip
