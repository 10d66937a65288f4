"""What pictures of two tables need: how columns, and pairs of them, spread over the same cells.

The real table chooses the cells. The counts are small, whatever the tables are, and are of both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from siloweave.evaluate import similarity
from siloweave.evaluate.scores import Associations, ColumnHistogram, PairHistogram
from siloweave.evaluate.shares import column_shares, numbers, require_tables
from siloweave.report.words import spans
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.bins import growing_starts, zero_apart

Pair = tuple[str, str]
"""Names of the real and of the synthetic table."""
CELLS = 30
"""Cells of a column's histogram, at most."""
PAIR_CELLS = 10
"""Cells of each column in a picture of two, at most, without those of missing values."""
PAIRS = 3
"""Pairs of columns that are drawn: those whose associations differ most."""


# One column


def column_histograms(
    tables: Aligned, real: str, synthetic: str
) -> tuple[ColumnHistogram, ...]:
    """Count how each column spreads over at most 30 cells in both tables.

    Numbers: cells of equal width, one per value of a short range of whole numbers, else between the
    real 0.5% and 99.5% quantiles; what lies outside is counted on its own. Cells of whole numbers
    begin and end at whole numbers. Cells of numbers that are skewed grow by a factor
    (`growing_starts`). Categories: the most frequent real ones; the last cell holds all others.
    """
    require_tables(tables, real, synthetic)
    return tuple(
        _column_histogram(column, (real, synthetic)) for column in tables.columns
    )


def _column_histogram(column: AlignedColumn, names: Pair) -> ColumnHistogram:
    """Count how one column spreads over the same cells in both tables."""
    if column.numeric:
        return _numeric_histogram(column, names)
    real, synthetic = names
    cells, (real_counts, synthetic_counts) = _frequencies(column, names)
    # Shares of all rows: those without a value are in no cell.
    real_shares = real_counts / len(column.values[real])
    synthetic_shares = synthetic_counts / len(column.values[synthetic])
    others = 0
    if len(column.labels) > CELLS:
        others = len(column.labels) - CELLS + 1
    return ColumnHistogram(
        name=column.name,
        kind=column.kind,
        cells=cells,
        edges=(),
        real=tuple(real_shares.tolist()),
        synthetic=tuple(synthetic_shares.tolist()),
        missing=_missing_shares(column, names),
        distance=similarity.jensen_shannon(*column_shares(column, *names)),
        others=others,
    )


def _numeric_histogram(column: AlignedColumn, names: Pair) -> ColumnHistogram:
    """Count how a column of numbers spreads over the same cells in both tables."""
    real, _ = names
    edges, growing = _edges(column, real, CELLS)
    shares = []
    for table in names:
        counts = _counts(numbers(column, table), edges, whole=column.whole)
        shares.append((counts / len(column.values[table])).tolist())

    (real_below, *real_shares, real_above) = shares[0]
    (synthetic_below, *synthetic_shares, synthetic_above) = shares[1]
    return ColumnHistogram(
        name=column.name,
        kind=column.kind,
        cells=(),
        edges=tuple(edges.tolist()),
        real=tuple(real_shares),
        synthetic=tuple(synthetic_shares),
        missing=_missing_shares(column, names),
        distance=similarity.jensen_shannon(*column_shares(column, *names)),
        datetimes=column.datetimes,
        whole=column.whole,
        growing=growing,
        below=(real_below, synthetic_below),
        above=(real_above, synthetic_above),
    )


def _missing_shares(column: AlignedColumn, names: Pair) -> tuple[float, float]:
    """Return the shares of missing values, of the real and of the synthetic table."""
    real, synthetic = names
    real_share = float(column.missing(real).mean())
    synthetic_share = float(column.missing(synthetic).mean())
    return real_share, synthetic_share


def _edges(column: AlignedColumn, real: str, cells: int) -> tuple[Floats, bool]:
    """Return edges of cells, with one for 0 if many numbers are, and whether cells grow."""
    values = numbers(column, real)
    edges, growing = _plain_edges(column, real, cells)
    apart = zero_apart(edges, values, whole=column.whole)
    if len(apart) > len(edges):
        # A cell for 0 may cut another one into two.
        edges, growing = _plain_edges(column, real, cells - 2)
        apart = zero_apart(edges, values, whole=column.whole)
    return apart, growing


def _plain_edges(column: AlignedColumn, real: str, cells: int) -> tuple[Floats, bool]:
    """Return the edges of at most so many cells of numbers, and whether these grow by a factor.

    The real table chooses them. Edges of whole numbers are whole: cells such as 7 to 7.767 and
    7.767 to 8.533 would hold a whole number and none, which looks like a peak and a gap.
    """
    values = numbers(column, real)
    low = float(values.min())
    high = float(values.max())

    # Whole numbers of a short range: a cell for each.
    if column.whole and high - low < cells:
        return np.arange(low, high + 2.0), False

    # Skewed numbers: cells that grow, or most rows would be in the first one.
    starts = growing_starts(values, low, high, cells - 1, whole=column.whole)
    if starts:
        stop = high + 1.0 if column.whole else high
        return np.array([low, *starts, stop]), True

    # Others: equal cells over all but the outermost rows, which would stretch them.
    inner_low, inner_high = np.quantile(values, (0.005, 0.995))
    if inner_low < inner_high:
        low = float(inner_low)
        high = float(inner_high)
    if column.whole:
        # The last cell ends where the numbers do, and may be narrower than the others.
        first = np.floor(low)
        stop = np.floor(high) + 1
        width = np.ceil((stop - first) / cells)
        return np.append(np.arange(first, stop, width), stop), False
    edges: Floats = np.histogram_bin_edges(np.array([low, high]), bins=cells)
    return edges, False


def _counts(values: Floats, edges: Floats, *, whole: bool) -> Ints:
    """Count the values below the first cell, in each cell, and above the last one."""
    places = _places(values, edges, whole=whole)
    return np.bincount(places, minlength=len(edges) + 1)


def _places(values: Floats, edges: Floats, *, whole: bool) -> Ints:
    """Return the cell of each value: 0 below the first one, and one more than cells above."""
    places = np.searchsorted(edges, values, side="right")
    if not whole:
        # A continuum ends at a value that is its last, and not at the one after it.
        places[values == edges[-1]] = len(edges) - 1
    return places


def _frequencies(
    column: AlignedColumn, names: Pair
) -> tuple[tuple[str, ...], tuple[Ints, Ints]]:
    """Return the labels of a categorical column's cells, and both tables' counts in them."""
    all_counts = []
    for table in names:
        code_counts = np.bincount(column.values[table], minlength=column.levels)
        # Without the last code, which stands for a missing value.
        all_counts.append(code_counts[:-1])
    real_counts, synthetic_counts = all_counts
    order = np.argsort(-real_counts, kind="stable")
    if len(order) <= CELLS:
        labels = tuple(str(column.labels[code]) for code in order)
        return labels, (real_counts[order], synthetic_counts[order])

    frequent = order[: CELLS - 1]
    rare = order[CELLS - 1 :]
    labels = tuple(str(column.labels[code]) for code in frequent)
    real_cells = np.append(real_counts[frequent], real_counts[rare].sum())
    synthetic_cells = np.append(
        synthetic_counts[frequent], synthetic_counts[rare].sum()
    )
    return (*labels, f"{len(rare)} others"), (real_cells, synthetic_cells)


# Pairs of columns


def worst_pairs(
    tables: Aligned, associations: Associations, real: str, synthetic: str
) -> tuple[PairHistogram, ...]:
    """Count how the three pairs of columns spread whose associations differ most.

    Each column has at most ten cells, and one for missing values where a table has any.
    """
    real_strengths = np.abs(np.array(associations.real))
    synthetic_strengths = np.abs(np.array(associations.synthetic))
    gaps = np.abs(real_strengths - synthetic_strengths)
    # Each pair once. Theil's U has a direction, so that both cells of a pair differ.
    rows, places = np.triu_indices(len(associations.names), k=1)
    pair_gaps = np.maximum(gaps[rows, places], gaps[places, rows])
    order = np.argsort(-pair_gaps, kind="stable")[:PAIRS]

    pairs = []
    for place in order:
        first = int(rows[place])
        second = int(places[place])
        cell = (first, second)
        if gaps[second, first] > gaps[first, second]:
            cell = (second, first)
        strengths = (float(real_strengths[cell]), float(synthetic_strengths[cell]))
        columns = (tables.columns[first], tables.columns[second])
        pairs.append(_pair_histogram(columns, (real, synthetic), strengths))
    return tuple(pairs)


def _pair_histogram(
    columns: tuple[AlignedColumn, AlignedColumn],
    names: Pair,
    strengths: tuple[float, float],
) -> PairHistogram:
    """Count how two columns spread over the same grid in both tables."""
    first, second = (_grid_cells(column, names) for column in columns)
    grids = []
    for table in names:
        shape = (len(first.labels), len(second.labels))
        flat = np.ravel_multi_index((first.places[table], second.places[table]), shape)
        counts = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)
        shares = counts / max(len(flat), 1)
        grids.append(tuple(tuple(row) for row in shares.tolist()))
    return PairHistogram(
        columns=(columns[0].name, columns[1].name),
        labels=(first.labels, second.labels),
        real=grids[0],
        synthetic=grids[1],
        strengths=strengths,
    )


class GridCells(NamedTuple):
    """The cells of a column in a grid, and the cell of every row by table."""

    labels: tuple[str, ...]
    places: dict[str, Ints]


def _grid_cells(column: AlignedColumn, names: Pair) -> GridCells:
    """Put the rows of both tables into at most ten cells, and one more for missing values."""
    real, _ = names
    places: dict[str, Ints] = {}
    if column.numeric:
        edges, _ = _edges(column, real, PAIR_CELLS)
        count = len(edges) - 1
        labels = spans(edges.tolist(), whole=column.whole, dates=column.datetimes)
        for table in names:
            # A value outside is in the outermost cell: a grid has no room for words.
            inside = _places(column.values[table], edges, whole=column.whole) - 1
            places[table] = np.clip(inside, 0, count - 1)
    else:
        labels, cell_of_code = _category_cells(column, real)
        count = len(labels)
        for table in names:
            places[table] = cell_of_code[column.values[table]]

    missing = {table: column.missing(table) for table in names}
    if any(mask.any() for mask in missing.values()):
        labels = (*labels, "missing")
        for table in names:
            places[table] = np.where(missing[table], count, places[table])
    return GridCells(labels, places)


def _category_cells(column: AlignedColumn, real: str) -> tuple[tuple[str, ...], Ints]:
    """Return the labels of a category's cells in a grid, and the cell of each code."""
    counts = np.bincount(column.values[real], minlength=column.levels)[:-1]
    order = np.argsort(-counts, kind="stable")
    shown = order
    labels = tuple(str(column.labels[code]) for code in order)
    if len(order) > PAIR_CELLS:
        shown = order[: PAIR_CELLS - 1]
        labels = (*labels[: PAIR_CELLS - 1], f"{len(order) - len(shown)} others")
    # Codes that are not shown, and that of missing values, get the last cell at first.
    cell_of_code = np.full(column.levels, len(labels) - 1)
    cell_of_code[shown] = np.arange(len(shown))
    return labels, cell_of_code
