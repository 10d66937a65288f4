"""Sheets of Excel files: every cell as text, and the types that Excel's own cells have.

They are read through fastexcel, which is imported when the first such file is read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from siloweave.errors import DataError, InputError
from siloweave.tables.column_names import check_names
from siloweave.tables.dialect import Dialect, are_names, filled_width
from siloweave.tables.files import EXCEL, SKIP_ADVICE, first_line_of, stored
from siloweave.tables.native_types import plain_types
from siloweave.tables.parsing import DURATION
from siloweave.tables.sheet_parts import SheetFacts, hidden_sheets
from siloweave.tables.text_encoding import HEAD_ROWS
from siloweave.tables.text_files import without_texts

# A time of day, as text: Excel counts days from 1899-12-31, and a clock has none.
_CLOCK = r"^1899-12-31 (\d\d:\d\d:\d\d(?:\.\d+)?)$"
# A date, as text. What Excel has for a duration is one before 1910, see `parsing.durations_of`.
_MIDNIGHT = r"^((?:19[1-9]|[2-9]\d\d)\d-\d\d-\d\d) 00:00:00$"
# The most rows that are looked at for names.
_MOST_ROWS_ABOVE = 30


@dataclass(frozen=True)
class ExcelSheet:
    """A sheet of an Excel file.

    Attributes:
        cells: Its rows, every cell as text.
        types: The types that Excel's own cells have, by column.
        other_lines: Rows of the sheet, from 1, that are no rows of the table, in order.
        notes: What reads otherwise than Excel shows it, a sentence each.
    """

    cells: pl.DataFrame
    types: dict[str, Any]
    other_lines: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def read_sheet(path: Path, dialect: Dialect) -> ExcelSheet:
    """Read a sheet of an Excel file.

    A row has names unless the dialect says that none has; titles may lie above it.
    """
    file = stored(path)
    sheet_name = _sheet_name(path, file)
    fastexcel = import_module("fastexcel")
    # Such a column is said to be empty, by its name, where a schema is proposed.
    logging.getLogger("fastexcel.types.dtype").addFilter(_is_no_guess)
    where = f"sheet {sheet_name!r} of {str(file)!r}"
    has_header = dialect.header is not False
    read_cells = partial(
        pl.read_excel,
        file,
        sheet_name=sheet_name,
        engine="calamine",
        raise_if_empty=False,
    )

    # As text: a number that fits no type of the others must not decide whether there are rows.
    as_text = {"dtypes": "string"}
    # With its empty rows above and between others, so that places are those of the sheet.
    cells = read_cells(
        has_header=False,
        drop_empty_rows=False,
        read_options={**as_text, "skip_rows": 0},
    )
    start = dialect.skip or 0
    if has_header and dialect.skip is None:
        start = _names_row(cells, dialect.names)
    is_filled = cells[start:].select(pl.any_horizontal(pl.all().is_not_null()))
    fewest_rows = 2 if has_header else 1
    if not cells.width or is_filled.to_series().sum() < fewest_rows:
        raise DataError(
            f"{where} has no rows; it needs a row of column names, and rows below"
        )
    place = {"header_row": start}
    if has_header:
        first_row = _with_days(cells[start : start + 1]).row(0)
        names = _sheet_columns(
            first_row, where, start + 1, has_known_names=bool(dialect.names)
        )
    else:
        place = {"skip_rows": start}
        names = [f"column_{index + 1}" for index in range(cells.width)]
    facts = SheetFacts(file, sheet_name, num_above=start, has_header=has_header)
    if facts.merged:
        raise DataError(
            f"{where}: cells {facts.merged} are merged, and only the first of them has the value. "
            "Split them, and write each value into each of its rows; names stand in one row"
        )

    # Read twice more: as text, and in the types that Excel's own cells have.
    texts = read_cells(has_header=has_header, read_options=as_text | place)
    other_lines = _other_lines(cells, start + has_header, texts.height)
    texts = texts[:, : len(names)]
    texts.columns = names
    clock_names = _columns_of_clocks(texts)
    texts = texts.with_columns(pl.all().str.replace(_CLOCK, "${1}"))
    texts = _with_days(texts)
    texts = without_texts(texts, dialect.missing)
    try:
        typed = read_cells(
            has_header=has_header, infer_schema_length=None, read_options=place
        )
    except (pl.exceptions.PolarsError, fastexcel.FastExcelError):
        # A number such as 1e308 in a column of whole ones, or a text in one of durations.
        return ExcelSheet(texts, {}, other_lines, facts.notes)
    types = {}
    for name, column in zip(names, typed.get_columns(), strict=False):
        # Texts such as "n/a" are no value of a type: the column is then one of texts.
        if column.count() >= texts[name].count():
            types[name] = column.dtype
    durations = [name for name, dtype in types.items() if dtype == pl.Duration]
    # What Excel has for a time of day is a datetime before its first day.
    for name in clock_names:
        types.pop(name, None)
    column_types = plain_types(types) | dict.fromkeys(durations, DURATION)
    return ExcelSheet(texts, column_types, other_lines, facts.notes)


def _other_lines(cells: pl.DataFrame, num_above: int, num_rows: int) -> tuple[int, ...]:
    """Return the rows of a sheet, from 1, that are no rows of the table.

    Args:
        cells: All rows of the sheet, also empty ones.
        num_above: How many lie above the table's rows.
        num_rows: How many rows the table has.
    """
    is_empty = cells.select(~pl.any_horizontal(pl.all().is_not_null())).to_series()
    lines = pl.Series(range(1, cells.height + 1))
    empty_lines = lines.filter(is_empty & (lines > num_above)).to_list()
    # Empty rows at the end are below every row.
    num_below = cells.height - num_above - len(empty_lines)
    if num_below != num_rows:
        return ()
    return (*range(1, num_above + 1), *empty_lines)


def _is_no_guess(record: logging.LogRecord) -> bool:
    """Return whether fastexcel logs more than that a column has no value."""
    return "Could not determine dtype" not in record.getMessage()


def _with_days(texts: pl.DataFrame) -> pl.DataFrame:
    """Write dates without their midnight, which Excel's own cells of dates do not show."""
    return texts.with_columns(pl.all().str.replace(_MIDNIGHT, "${1}"))


def _columns_of_clocks(texts: pl.DataFrame) -> list[str]:
    """Return the columns in which a cell is a time of day."""
    clocks = texts.select(pl.all().str.contains(_CLOCK).any())
    return [name for name in clocks.columns if clocks[name][0]]


def _names_row(cells: pl.DataFrame, known_names: Sequence[str]) -> int:
    """Find the row of the columns' names, counted from 0, below a title if there is one.

    With known names it is the first row in which two of them, or half of what it holds, are known:
    rows lie below it, so none is looked at. Else it is the first row, unless the rows above another
    one hold one text at most, and that one can only be names.
    """
    head_cells = _with_days(cells.head(HEAD_ROWS))
    head = [_texts_in(row) for row in head_cells.rows()]
    first_filled = next((place for place, row in enumerate(head) if any(row)), 0)
    starts = range(first_filled, min(first_filled + _MOST_ROWS_ABOVE, len(head)))
    if known_names:
        for start in starts:
            filled = [text for text in head[start] if text]
            num_known = len({*known_names}.intersection(filled))
            if num_known > 1 or 0 < len(filled) <= 2 * num_known:
                return start
        return first_filled

    for start in starts:
        row = head[start]
        width = filled_width(row)
        rows = [below[:width] for below in head[start:] if any(below)]
        is_complete = width > 1 and "" not in row[:width]
        if start > first_filled and is_complete and are_names(rows):
            return start
        # A title is one text.
        if sum(map(bool, row)) > 1:
            break
    return first_filled


def _texts_in(row: Sequence[Any]) -> list[str]:
    """Return a row's cells as texts without blanks around them; empty for a missing one."""
    texts = []
    for value in row:
        text = "" if value is None else str(value)
        texts.append(text.strip())
    return texts


def _sheet_name(path: Path, file: Path) -> str:
    """Return the name of the sheet in a path, such as ``t.xlsx#Visits``.

    Else it is that of the only sheet, or of the only one that Excel shows.
    """
    try:
        fastexcel = import_module("fastexcel")
    except ModuleNotFoundError:
        raise InputError(
            f"{path.name}: Excel files need the package fastexcel: pip install '.[excel]' in the "
            "clone"
        ) from None
    try:
        sheet_names = fastexcel.read_excel(str(file)).sheet_names
    except fastexcel.FastExcelError as error:
        raise DataError(
            f"cannot read {str(file)!r} as an Excel file: {first_line_of(error)}. See that Excel "
            "opens it, or save the table as a CSV"
        ) from None

    has_sheet_in_path = path != file
    if has_sheet_in_path:
        sheet_name = str(path).partition(f"{EXCEL}#")[2]
        problem = f"has no sheet {sheet_name!r}"
        is_clear = sheet_name in sheet_names
    else:
        hidden = hidden_sheets(file)
        # Lists of a form and the like are hidden: they are named last.
        sheet_names = sorted(sheet_names, key=lambda name: name in hidden)
        sheet_name = str(sheet_names[0])
        problem = f"has {len(sheet_names)} sheets"
        num_shown = sum(name not in hidden for name in sheet_names)
        is_clear = len(sheet_names) == 1 or num_shown == 1
    if not is_clear:
        raise DataError(
            f"{str(file)!r} {problem}; write {file.name}#{sheet_names[0]}, or another of "
            f"{', '.join(sheet_names)}"
        )
    return sheet_name


def _sheet_columns(
    first_row: Sequence[Any], where: str, row: int, *, has_known_names: bool
) -> list[str]:
    """Return the names in a row of a sheet; DataError if they cannot be names."""
    names = _texts_in(first_row)
    # What a row has beside the table is in no column that a schema knows.
    if has_known_names:
        names = names[: filled_width(names)] or names
    if "" in names:
        raise DataError(
            f"{where}: column {names.index('') + 1} has no name in row {row}. Names that are "
            "merged over several cells, or stand in several rows, cannot be read: give each "
            f"column one name, in one row; if others lie above it, delete them, "
            f"{SKIP_ADVICE}"
        )
    check_names(names, where)
    return names
