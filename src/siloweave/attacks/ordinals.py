"""Tables as small whole numbers, so that every predicate is an interval and equal rows are found.

Each column's values are numbered over all tables together: numbers by size, categories as they are,
and missing last.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.tables.aligned import Aligned

__all__ = ["Ordinals", "ordinals", "row_ids"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ordinals:
    """Tables with the same columns as whole numbers.

    Attributes:
        names: The columns.
        levels: For each column, the values that occur, in order; their places for categories.
        numeric: For each column, whether its order means something.
        codes: Per table, int32 (columns, rows): places in `levels`, and their number if missing.
    """

    names: tuple[str, ...]
    levels: tuple[NDArray[Any], ...]
    numeric: tuple[bool, ...]
    codes: Mapping[str, NDArray[np.int32]]

    def missing(self, column: int) -> int:
        """The code of a missing value."""
        return len(self.levels[column])


def ordinals(tables: Aligned) -> Ordinals:
    """Number the values of every column.

    Args:
        tables: The tables.

    Returns:
        Their values as whole numbers.

    Example:
        >>> from siloweave.tables.aligned import align
        >>> from siloweave.tables.read import Table
        >>> x = Table.from_columns({"x": (np.array([2.5, 1.5, 2.5]), None)})
        >>> ordinals(align({"a": x})).codes["a"].tolist()
        [[1, 0, 1]]
    """
    levels: list[NDArray[Any]] = []
    codes: dict[str, list[NDArray[Any]]] = {table: [] for table in tables.num_rows}
    for column in tables.columns:
        if column.numeric:
            pooled = np.unique(np.concatenate(list(column.values.values())))
            known = pooled[~np.isnan(pooled)]
            found = {t: np.searchsorted(known, values) for t, values in column.values.items()}
        else:
            known = np.arange(len(column.labels))
            found = dict(column.values)
        levels.append(known)
        for table, values in found.items():
            codes[table].append(values.astype(np.int32))
    return Ordinals(
        tables.names,
        tuple(levels),
        tuple(column.numeric for column in tables.columns),
        {table: np.stack(values) for table, values in codes.items()},
    )


def row_ids(values: Ordinals) -> dict[str, Ints]:
    """Give equal rows equal numbers, over all tables.

    Args:
        values: The tables.

    Returns:
        Per table, one number for each row.
    """
    tables = list(values.codes)
    stacked = np.concatenate([values.codes[table] for table in tables], axis=1)
    ids = np.zeros(stacked.shape[1], np.int64)
    for column, codes in enumerate(stacked):
        width = values.missing(column) + 1
        ids = np.unique(ids * width + codes, return_inverse=True)[1].astype(np.int64)
    ends = np.cumsum([values.codes[table].shape[1] for table in tables])
    return dict(zip(tables, np.split(ids, ends[:-1]), strict=True))
