"""What is known of a table's columns without looking at its rows."""

from dataclasses import replace
from typing import Any

from siloweave.tables.read import Table

__all__ = ["outline"]


def outline(table: Table) -> Table:
    """Return an empty table of the same kind of frame and columns.

    Columns have the types that the frame or Parquet file declares. A CSV declares none, and what
    `read` finds its columns to be can hang on one row; here they are text, as they are written.

    Args:
        table: Any.

    Example:
        >>> import numpy as np
        >>> outline(Table.from_columns({"age": (np.array([30, 40]), None)})).kind("age")
        'whole numbers'
    """
    empty = table.take([])
    if not table._origin.text:
        return empty
    text: dict[Any, type[str]] = dict.fromkeys(empty.names, str)
    return replace(empty, _frame=empty._frame.cast(text))
