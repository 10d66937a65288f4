"""Tables joined to one: columns of the same rows side by side, or rows under each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from siloweave.errors import DataError
from siloweave.tables.decimals import with_zeros
from siloweave.tables.origin import CodedColumn, Frame, Origin, TextFileColumn
from siloweave.tables.parsing import WHOLE
from siloweave.tables.statistical_files import Variable
from siloweave.tables.table import Table


def beside(tables: Sequence[Table]) -> Table:
    """Join tables of the same rows column by column; of equal names, the first column counts.

    The result is of the first one's kind of frame; where all are of that kind, each column keeps
    its type. DataError if numbers of rows differ.
    """
    row_counts = sorted({table.num_rows for table in tables})
    if len(row_counts) > 1:
        raise DataError(f"tables have different numbers of rows: {row_counts}")

    joined = tables[0]
    for table in tables[1:]:
        new_names = [name for name in table.names if name not in joined.names]
        frame = joined._frame.hstack(table.select(new_names)._frame)
        first = joined._origin
        second = table._origin
        # Types of one library mean nothing to another.
        dtypes: Mapping[str, Any] = {}
        if first.kind == second.kind:
            dtypes = {**second.dtypes, **first.dtypes}
        # Of a name that both have, the first one's facts count, as its cells do.
        origin = replace(
            first,
            dtypes=dtypes,
            types={**second.types, **first.types},
            text_columns={**second.text_columns, **first.text_columns},
            zones={**second.zones, **first.zones},
            coded_columns={**second.coded_columns, **first.coded_columns},
            units={**second.units, **first.units},
            nested={**second.nested, **first.nested},
        )
        joined = replace(joined, _frame=frame, _origin=origin)
    return joined


def stacked(tables: Sequence[Table]) -> Table:
    """Stack the rows of tables with the same columns; types that differ become text."""
    if len(tables) == 1:
        return tables[0]

    columns: list[pl.Series] = []
    text_columns: dict[str, TextFileColumn] = {}
    coded_columns: dict[str, CodedColumn] = {}
    padded: dict[str, int] = {}
    for name in tables[0].names:
        column = _stacked_column(tables, name)
        columns.append(column.cells)
        if column.text is not None:
            text_columns[name] = column.text
        if column.coded is not None:
            coded_columns[name] = column.coded
        if column.padded is not None:
            padded[name] = column.padded

    dialects = {table.dialect for table in tables}
    dialect = dialects.pop() if len(dialects) == 1 else None
    are_text = all(table.frame == "csv" for table in tables)
    kind: Frame = "csv" if are_text else "file"
    origin = Origin(
        kind,
        dialect=dialect,
        text_columns=text_columns,
        padded=padded,
        zones=_common_zones(tables),
        coded_columns=coded_columns,
    )
    return Table(pl.DataFrame(columns), origin)


@dataclass(frozen=True)
class _StackedColumn:
    """A column of several tables, and what is remembered of its source.

    Attributes:
        cells: The cells of all tables.
        text: All cells as text, if the column is text in all files.
        coded: All cells as codes, if all files have one dictionary.
        padded: The fewest decimals of a number in any of the files.
    """

    cells: pl.Series
    text: TextFileColumn | None = None
    coded: CodedColumn | None = None
    padded: int | None = None


def _stacked_column(tables: Sequence[Table], name: str) -> _StackedColumn:
    """Stack a column's cells, as the sources have them where these agree."""
    coded_parts = [table._origin.coded_columns.get(name) for table in tables]
    variable = _common_variable(coded_parts)
    if variable is not None:
        cells = _all_cells(tables, name)
        return _StackedColumn(cells, coded=CodedColumn(cells, variable))

    # Durations, whose types are one.
    if all(table.unit(name) is not None for table in tables):
        return _StackedColumn(_all_cells(tables, name))

    text_parts = [table._origin.text_columns.get(name) for table in tables]
    decimal = _common_decimal(text_parts)
    if decimal is not None:
        text = TextFileColumn(_all_cells(tables, name), decimal)
        padded = _common_padding(text, text_parts)
        return _StackedColumn(text.cells, text=text, padded=padded)

    typed_parts = [table._typed_column(name) for table in tables]
    return _StackedColumn(_joined_cells(typed_parts, text_parts))


def _common_padding(
    text: TextFileColumn, parts: Sequence[TextFileColumn | None]
) -> int | None:
    """Return the fewest decimals of a number in any of a column's parts; None without numbers."""
    if text.dtype != pl.Float64:
        return None
    # A part without any number says nothing of decimals.
    filled_parts = [part for part in parts if part is not None and part.cells.count()]
    return min(part.padded or 0 for part in filled_parts)


def _all_cells(tables: Sequence[Table], name: str) -> pl.Series:
    """Stack a column's cells of all tables."""
    return pl.concat([table.cells(name) for table in tables])


def _common_zones(tables: Sequence[Table]) -> dict[str, str]:
    """Return the time zones of columns, where all tables have the same one."""
    zones = {}
    for name in tables[0].names:
        table_zones = {table.zone(name) for table in tables}
        zone = table_zones.pop()
        if not table_zones and zone is not None:
            zones[name] = zone
    return zones


def _common_variable(parts: Sequence[CodedColumn | None]) -> Variable | None:
    """Return a column's dictionary entry, if all tables have the same one and one type."""
    first_part = parts[0]
    if first_part is None:
        return None
    for part in parts:
        if part is None or part.variable != first_part.variable:
            return None
        if part.cells.dtype != first_part.cells.dtype:
            return None
    return first_part.variable


def _common_decimal(parts: Sequence[TextFileColumn | None]) -> str | None:
    """Return the decimal mark of a column that is text in all tables, if they share one."""
    if any(part is None for part in parts):
        return None
    marks = {part.decimal for part in parts if part is not None}
    if len(marks) > 1:
        return None
    return marks.pop()


def _joined_cells(
    parts: Sequence[pl.Series], text_parts: Sequence[TextFileColumn | None]
) -> pl.Series:
    """Stack parts of a column, as text if their types cannot be one."""
    # A part without any value fits every type.
    types = {part.dtype for part in parts} - {pl.Null}
    are_numbers = types <= {*WHOLE, pl.Float64}
    if len(types) > 1 and not are_numbers:
        texts = []
        for part, text_part in zip(parts, text_parts, strict=True):
            digits = 0
            if text_part is not None:
                digits = text_part.padded or 0
            texts.append(with_zeros(part, digits))
        parts = texts
    frames = [part.to_frame() for part in parts]
    return pl.concat(frames, how="vertical_relaxed").to_series()
