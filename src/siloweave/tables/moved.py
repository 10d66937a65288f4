"""Cells that a schema moves since they fit no value of their column, for the owner of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from siloweave.tables.bins import has_implied_days
from siloweave.tables.cells import placed_cells
from siloweave.tables.column import Column
from siloweave.tables.display import listed
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table


def moved_cells(table: Table, schema: Schema) -> dict[str, int]:
    """Count, by column, the cells that have no place in it and are moved; only columns with any.

    It is for the owner of the rows alone. Columns that the table lacks are left out.

    Raises:
        SchemaError: Cells have no place in a column that does not move them.
    """
    counts = {}
    for column in schema.coded:
        name = column.name
        if name in table.names and column.outside == "move":
            cells = placed_cells(column, table)
            counts[name] = table.rows_of(cells.moved)
    return without_others(counts, schema)


def without_others(counts: Mapping[str, int], schema: Schema) -> dict[str, int]:
    """Leave out columns without a moved cell, and columns with an `other` category.

    That is a place of its own for whatever is not among a column's categories.
    """
    moved = {}
    for name, count in counts.items():
        if count and schema[name].other is None:
            moved[name] = count
    return moved


def moved_note(
    counts: Mapping[str, int],
    schema: Schema,
    rows: int,
    command: str = "siloweave check --rows",
) -> str:
    """Describe how many cells were moved, for the owner of the rows.

    Args:
        counts: Of each column.
        schema: By which it is known how columns are read, and in which of them times of day became
            midnight.
        rows: All rows, by which a column is known of which hardly a cell can be read.
        command: What shows in which rows these cells are.
    """
    parts = [f"{count:,} in {name!r}" for name, count in counts.items()]
    cells = ", ".join(parts)
    return (
        f"cells that do not fit the schema, and were moved to where it has a place for them: "
        f"{cells}. `{command}` shows which rows; correct them, or the schema"
        f"{_mostly_moved(counts, schema, rows)}{_midnights(counts, schema)}"
    )


def _mostly_moved(counts: Mapping[str, int], schema: Schema, rows: int) -> str:
    """Name the columns in which most rows were moved: their declaration is wrong, and not rows."""
    parts = []
    for name, count in counts.items():
        if 2 * count > rows:
            declared = _declared_in_words(schema[name])
            parts.append(f"{name!r} ({count:,} of {rows:,} rows; declared {declared})")
    if not parts:
        return ""
    columns = " and ".join(parts)
    return f". Most rows have no place in {columns}: its declaration seems to be wrong"


def _declared_in_words(column: Column) -> str:
    """Say how a column's cells are read."""
    if column.format is not None:
        return f"{column.kind}, written as {column.format!r}"
    if column.is_datetime:
        return "datetime without a format, so written as ISO-8601, such as 2024-01-31 18:00"
    return column.kind


def _midnights(names: Iterable[str], schema: Schema) -> str:
    """Name the columns in which times of day are cut off, as no resolution is declared."""
    days = []
    for name in names:
        column = schema[name]
        if column.is_datetime and has_implied_days(column):
            days.append(name)
    if not days:
        return ""
    return (
        f". A time of day in {listed(days)} becomes midnight, since the bounds are dates and "
        "nothing else says how fine its times are: declare its resolution, such as 'minute', or "
        "'day' if times of day shall be left out"
    )
