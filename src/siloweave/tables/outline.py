"""What is known of a table's columns without looking at its rows."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

__all__ = ["outline"]

_TYPES: dict[str, type] = {
    "integer": int,
    "continuous": float,
    "boolean": bool,
    "datetime": datetime,
    "id": int,
}


def outline(table: Table, schema: Schema | None = None) -> Table:
    """Return an empty table of the same kind of frame and columns.

    Without a schema, columns have the types that the frame or Parquet file declares. These can
    depend on one row: pandas holds whole numbers as floats where one value is missing. A CSV
    declares none, and what `read` finds its columns to be depends on rows too; here they are text,
    as they are written.

    With a schema, nothing but the kind of frame is taken from the table:

    ===========================  =====================  ===========  ==================
    column of the schema         pandas (missing=True)  polars       arrow
    ===========================  =====================  ===========  ==================
    integer, id, whole category  int64 (Int64)          Int64        int64
    continuous, other number     float64                Float64      double
    boolean, such a category     bool (boolean)         Boolean      bool
    text category                text as pandas has it  String       string
    datetime (UTC)               datetime64[us]         Datetime     timestamp[us]
    datetime with a format       text as pandas has it  String       string
    ===========================  =====================  ===========  ==================

    A CSV holds text, whatever its rows are: there, ids and all datetimes are text.

    Args:
        table: Any.
        schema: Public facts about its columns; a column that it lacks is left out.

    **Guarantee**: with a schema, the result depends on the schema, the table's column names and
    its kind of frame alone, so drawing rows like it says nothing of the table's rows.

    Example:
        >>> import numpy as np
        >>> table = Table.from_columns({"age": (np.array([30.0, 40.0]), np.array([True, False]))})
        >>> outline(table).kind("age")
        'numbers'
        >>> outline(table, Schema((Column("age", "integer", missing=True),))).kind("age")
        'whole numbers'
    """
    if schema is not None:
        there = [column for column in schema.columns if column.name in table.names]
        text = table.frame == "csv"
        return Table.empty({c.name: (_type(c, text), c.missing) for c in there}, table.frame)
    empty = table.take([])
    if not table._origin.text:
        return empty
    written: dict[Any, type[str]] = dict.fromkeys(empty.names, str)
    return replace(empty, _frame=empty._frame.cast(written))


def _type(column: Column, text: bool) -> type:
    if column.kind == "categorical":
        return type(column.categories[0])
    if column.kind == "datetime" and column.format is not None:
        return str
    return str if text and column.kind in ("id", "datetime") else _TYPES[column.kind]
