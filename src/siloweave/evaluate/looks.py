"""What plots of a synthetic table need: small, and the same cells for both tables."""

import numpy as np
from numpy.typing import NDArray

from siloweave.evaluate.dependence import associations
from siloweave.evaluate.scores import Associations, ColumnLook
from siloweave.evaluate.shares import column_shares, numbers, require_tables
from siloweave.evaluate.similarity import jensen_shannon
from siloweave.tables.aligned import Aligned, AlignedColumn

__all__ = ["association_look", "column_looks"]

CELLS = 30
Floats = NDArray[np.float64]


def column_looks(tables: Aligned, real: str, synthetic: str) -> tuple[ColumnLook, ...]:
    """Each column's spread over at most 30 cells in both tables.

    Numbers: cells of equal width, one per value of a short range of whole numbers, else between the
    real 0.5% and 99.5% quantiles; what lies outside is in the outer cells. Categories: the most
    frequent real ones; the last cell holds all others.

    Args:
        tables: Both tables, aligned.
        real: The real table's name.
        synthetic: The synthetic table's name.

    Returns:
        One look per column.

    Raises:
        InputError: There is no such table.

    Example:
        >>> from siloweave.tables import Table, align
        >>> one = Table.from_columns({"x": (np.array([1, 2, 2]), None)})
        >>> column_looks(align({"a": one, "b": one}), "a", "b")[0].edges
        (0.5, 1.5, 2.5)
    """
    require_tables(tables, real, synthetic)
    return tuple(_look(column, real, synthetic) for column in tables.columns)


def association_look(tables: Aligned, real: str, synthetic: str) -> Associations:
    """Both tables' association matrices, as plain numbers."""
    ours, theirs = (
        tuple(map(tuple, associations(tables, table).tolist())) for table in (real, synthetic)
    )
    return Associations(tables.names, ours, theirs)


def _look(column: AlignedColumn, real: str, synthetic: str) -> ColumnLook:
    missing = [float(column.missing(table).mean()) for table in (real, synthetic)]
    if column.numeric:
        edges = _edges(column, real)
        cells: tuple[str, ...] = ()
        counts = [_histogram(numbers(column, t), edges) for t in (real, synthetic)]
    else:
        edges = np.empty(0)
        cells, counts = _frequencies(column, real, synthetic)
    ours, theirs = (
        tuple((found / len(column.values[table])).tolist())
        for found, table in zip(counts, (real, synthetic), strict=True)
    )
    return ColumnLook(
        column.name, column.kind, cells, tuple(edges.tolist()), ours, theirs,
        (missing[0], missing[1]), jensen_shannon(*column_shares(column, real, synthetic)),
        column.moments,
    )  # fmt: skip


def _edges(column: AlignedColumn, real: str) -> Floats:
    values = numbers(column, real)
    low, high = float(values.min()), float(values.max())
    if column.whole and high - low < CELLS:
        return np.arange(low - 0.5, high + 1.0)
    inner = np.quantile(values, (0.005, 0.995))
    if inner[0] < inner[1]:
        low, high = float(inner[0]), float(inner[1])
    edges: Floats = np.histogram_bin_edges(np.array([low, high]), bins=CELLS)
    return edges


def _histogram(values: Floats, edges: Floats) -> NDArray[np.int64]:
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(places, minlength=len(edges) - 1)


def _frequencies(
    column: AlignedColumn, real: str, synthetic: str
) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    counts = [
        np.bincount(column.values[t], minlength=column.levels)[:-1] for t in (real, synthetic)
    ]
    order = np.argsort(-counts[0], kind="stable")
    if len(order) <= CELLS:
        return tuple(str(column.labels[i]) for i in order), [c[order] for c in counts]
    shown, rest = order[: CELLS - 1], order[CELLS - 1 :]
    names = tuple(str(column.labels[i]) for i in shown)
    return (*names, f"{len(rest)} others"), [np.append(c[shown], c[rest].sum()) for c in counts]
