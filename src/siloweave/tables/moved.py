"""Cells that a schema moves since they fit no value of their column, for the owner of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from siloweave.tables.bins import has_implied_days
from siloweave.tables.cells import placed_cells
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


def moved_note(counts: Mapping[str, int], schema: Schema | None = None) -> str:
    """Describe how many cells were moved, for the owner of the rows.

    Args:
        counts: Of each column.
        schema: By which it is known in which columns times of day became midnight.
    """
    parts = [f"{count:,} in {name!r}" for name, count in counts.items()]
    cells = ", ".join(parts)
    midnights = ""
    if schema is not None:
        midnights = _midnights(counts, schema)
    return (
        f"cells that do not fit the schema, and were moved to where it has a place for them: "
        f"{cells}. `siloweave check --rows` shows which rows; correct them, or the schema"
        f"{midnights}"
    )


def _midnights(names: Iterable[str], schema: Schema) -> str:
    """Name the columns in which times of day are cut off, as no resolution is declared."""
    days = []
    for name in names:
        column = schema[name]
        if column.kind == "datetime" and has_implied_days(column):
            days.append(name)
    if not days:
        return ""
    return (
        f". A time of day in {listed(days)} becomes midnight, since the bounds are dates and "
        "nothing else says how fine its times are: declare its resolution, such as 'minute', or "
        "'day' if times of day shall be left out"
    )
