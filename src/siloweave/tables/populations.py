"""Whether two tables are samples of one population, judged by each column on its own.

A holdout, or a control of attacks, has to be drawn at random from the same rows. Where it was not,
a detector finds the difference between the two samples and calls it a leak, or a ceiling. Nor may
its rows be among those.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.arrays import Ints

# The chance, over all columns, that two samples of one population are found to differ.
_FALSE_ALARM = 1e-6
# What a column must differ by beyond chance, as a share of rows: less moves no conclusion.
_WORTH_SAYING = 0.05
# By how much more rows must be shared than chance explains: as a share, and in standard errors.
_WORTH_SHARING = 0.01
_ERRORS = 5


def differing_columns(tables: Aligned, first: str, second: str) -> dict[str, float]:
    """Return by how much columns differ between two tables, those alone that chance cannot explain.

    Numbers: the largest distance between both distribution functions (Kolmogorov and Smirnov).
    Categories: the total variation distance. Both are shares of rows, from 0 to 1, and the largest
    come first. Where owners are known, what is independent are persons and not rows.

    Example:
        >>> import polars as pl
        >>> from siloweave.tables.aligned import align
        >>> old = pl.DataFrame({"age": [60 + i / 10 for i in range(90)]})
        >>> young = pl.DataFrame({"age": [20 + i / 10 for i in range(90)]})
        >>> differing_columns(align({"old": old, "young": young}), "old", "young")
        {'age': 1.0}
    """
    inverse_size = 0.0
    for table in (first, second):
        owners = tables.owners.get(table)
        size = tables.num_rows[table] if owners is None else len(np.unique(owners))
        inverse_size += 1 / size

    differences = {}
    for column in tables.columns:
        chance = _by_chance(column, len(tables.columns), inverse_size)
        difference = _difference(column, first, second)
        if difference > chance + _WORTH_SAYING:
            differences[column.name] = difference
    return dict(sorted(differences.items(), key=lambda item: -item[1]))


def population_words(differences: dict[str, float], rows: str, others: str) -> str:
    """Say that some rows look as if they came from another population than others; else nothing.

    Example:
        >>> population_words({"age": 0.41}, "the holdout", "real rows")
        'The holdout looks like another population than real rows: age differs by 0.41 of 1'
    """
    if not differences:
        return ""
    name, largest = next(iter(differences.items()))
    text = (
        f"{rows[0].upper()}{rows[1:]} looks like another population than {others}: {name} differs "
        f"by {largest:.2f} of 1"
    )
    rest = len(differences) - 1
    if rest:
        columns = "column" if rest == 1 else "columns"
        text += f", and {rest} more {columns} by more than chance"
    return text


def shared_words(tables: Aligned, rows: str, others: str) -> str:
    """Say that rows of one table are also in another, if chance cannot explain it; else nothing.

    Rows of few columns may be alike. So the share of the rows that equal one of the others is held
    against the share of those others that equal another one of them. Rows of one person may be
    alike, too: where owners are known, nothing is said.

    Example:
        >>> import polars as pl
        >>> from siloweave.tables.aligned import align
        >>> real = pl.DataFrame({"age": [20 + i / 10 for i in range(90)]})
        >>> tables = align({"real": real, "holdout": real.head(30)})
        >>> shared_words(tables, "holdout", "real")
        '30 of 30 holdout rows equal a real row; 0.0% of real rows equal another one'
    """
    if tables.owners:
        return ""
    row_numbers = _row_numbers(tables, (rows, others))
    counts = np.bincount(row_numbers[others], minlength=row_numbers[rows].max() + 1)
    has_twin = counts[row_numbers[rows]] > 0
    share = float(has_twin.mean())
    # One of these is the row itself.
    expected = float((counts[row_numbers[others]] > 1).mean())

    inverse_size = sum(1 / tables.num_rows[table] for table in (rows, others))
    num_rows = tables.num_rows[rows] + tables.num_rows[others]
    pooled = share * tables.num_rows[rows] + expected * tables.num_rows[others]
    pooled /= num_rows
    error = sqrt(pooled * (1 - pooled) * inverse_size)
    if share - expected <= max(_WORTH_SHARING, _ERRORS * error):
        return ""
    return (
        f"{int(has_twin.sum()):,} of {tables.num_rows[rows]:,} {rows} rows equal a {others} row; "
        f"{expected:.1%} of {others} rows equal another one"
    )


def _row_numbers(tables: Aligned, names: tuple[str, ...]) -> dict[str, Ints]:
    """Number the rows of some tables; equal rows of any of them have equal numbers."""
    numbers = np.zeros(sum(tables.num_rows[name] for name in names), dtype=np.int64)
    for column in tables.columns:
        values = np.concatenate([column.values[name] for name in names])
        # A missing number is NaN, which counts as equal to another one here.
        levels, codes = np.unique(values, return_inverse=True)
        # Renumbered after each column, so that the product stays below rows times levels.
        _, numbers = np.unique(numbers * len(levels) + codes, return_inverse=True)
    ends = np.cumsum([tables.num_rows[name] for name in names])
    return dict(zip(names, np.split(numbers, ends[:-1]), strict=True))


def _difference(column: AlignedColumn, first: str, second: str) -> float:
    """Return how far apart the distributions of a column are in two tables, 0 to 1."""
    if not column.numeric:
        shares = []
        for table in (first, second):
            counts = np.bincount(column.values[table], minlength=column.levels)
            shares.append(counts / counts.sum())
        return float(np.abs(shares[0] - shares[1]).sum() / 2)

    # Missing values, which are NaN, are sorted to the end and count as the largest number.
    first_values = np.sort(column.values[first])
    second_values = np.sort(column.values[second])
    points = np.concatenate([first_values, second_values])
    first_shares = np.searchsorted(first_values, points, side="right") / len(
        first_values
    )
    second_shares = np.searchsorted(second_values, points, side="right") / len(
        second_values
    )
    return float(np.abs(first_shares - second_shares).max())


def _by_chance(column: AlignedColumn, num_columns: int, inverse_size: float) -> float:
    """Return a distance that two samples of one population exceed hardly ever."""
    margin = sqrt(log(2 * num_columns / _FALSE_ALARM) * inverse_size / 2)
    if column.numeric:
        # The inequality of Dvoretzky, Kiefer and Wolfowitz.
        return margin
    # The expected distance of two samples is at most this, and McDiarmid bounds what is beyond.
    return sqrt(column.levels * inverse_size) / 2 + margin
