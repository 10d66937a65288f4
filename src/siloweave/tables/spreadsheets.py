"""Sheets of Excel files: every cell as text, and the types that Excel's own cells have.

They are read through fastexcel, which is imported when the first such file is read.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import polars as pl

from siloweave.errors import DataError, InputError
from siloweave.tables.column_names import check_names
from siloweave.tables.dialect import Dialect, are_names, filled_width
from siloweave.tables.files import EXCEL, SKIP_ADVICE, first_line_of, stored
from siloweave.tables.native_types import plain_types
from siloweave.tables.parsing import DURATION
from siloweave.tables.text_encoding import HEAD_ROWS
from siloweave.tables.text_files import without_texts

_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z]+\d+:[A-Z]+(\d+))"')
# Bytes of a sheet's XML that are searched again with the next piece, for a range across both.
_OVERLAP_BYTES = 99
# A time of day, as text: Excel counts days from 1899-12-31, and a clock has none.
_CLOCK = r"^1899-12-31 (\d\d:\d\d:\d\d(?:\.\d+)?)$"
# The most rows that are looked at for names.
_MOST_ROWS_ABOVE = 30


def read_sheet(path: Path, dialect: Dialect) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Read a sheet of an Excel file, every cell as text, and the types of its columns.

    A row has names unless the dialect says that none has; titles may lie above it.
    """
    file = stored(path)
    sheet_name = _sheet_name(path, file)
    fastexcel = import_module("fastexcel")
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
        names = _sheet_columns(
            cells.row(start), where, start + 1, has_known_names=bool(dialect.names)
        )
    else:
        place = {"skip_rows": start}
        names = [f"column_{index + 1}" for index in range(cells.width)]
    merged_range = _merged_range(file, sheet_name, start)
    if merged_range:
        raise DataError(
            f"{where}: cells {merged_range} are merged, and only the first of them has the value. "
            "Split them, and write each value into each of its rows; names stand in one row"
        )

    # Read twice more: as text, and in the types that Excel's own cells have.
    texts = read_cells(has_header=has_header, read_options=as_text | place)
    texts = texts[:, : len(names)]
    texts.columns = names
    clock_names = _columns_of_clocks(texts)
    texts = texts.with_columns(pl.all().str.replace(_CLOCK, "${1}"))
    texts = without_texts(texts, dialect.missing)
    try:
        typed = read_cells(
            has_header=has_header, infer_schema_length=None, read_options=place
        )
    except (pl.exceptions.PolarsError, fastexcel.FastExcelError):
        # A number such as 1e308 in a column of whole ones, or a text in one of durations.
        return texts, {}
    types = dict(zip(names, typed.dtypes, strict=False))
    durations = [name for name, dtype in types.items() if dtype == pl.Duration]
    # What Excel has for a time of day is a datetime before its first day.
    for name in clock_names:
        types.pop(name, None)
    return texts, plain_types(types) | dict.fromkeys(durations, DURATION)


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
    head = [_texts_in(row) for row in cells.head(HEAD_ROWS).rows()]
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
    """Return the name of the sheet in a path, such as ``t.xlsx#Visits``, or of the only sheet."""
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
        sheet_name = str(sheet_names[0])
        problem = f"has {len(sheet_names)} sheets"
        is_clear = len(sheet_names) == 1
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
            f"column one name, in one row; if others lie above it, {SKIP_ADVICE}"
        )
    check_names(names, where)
    return names


def _merged_range(file: Path, sheet_name: str, num_above: int) -> str:
    """Return the first range of merged cells in a sheet, such as A1:A2; empty without one.

    Ranges in so many rows above the names do not count.
    """
    with ZipFile(file) as parts:
        sheet_part = _sheet_part(parts, sheet_name)
        with parts.open(sheet_part) as data:
            tail = b""
            while piece := data.read(1 << 20):
                for match in _MERGED.finditer(tail + piece):
                    if int(match[2]) > num_above:
                        return match[1].decode()
                tail = piece[-_OVERLAP_BYTES:]
    return ""


def _sheet_part(parts: ZipFile, sheet_name: str) -> str:
    """Return the part of an Excel file that holds a sheet, which the workbook links to."""
    links_xml = parts.read("xl/_rels/workbook.xml.rels")
    workbook_xml = parts.read("xl/workbook.xml")
    # expat bounds the entities of XML.
    links = ElementTree.fromstring(links_xml)  # noqa: S314
    workbook = ElementTree.fromstring(workbook_xml)  # noqa: S314
    targets = {link.get("Id"): link.get("Target", "") for link in links}

    sheets = workbook.iterfind(".//{*}sheet")
    sheet = next(sheet for sheet in sheets if sheet.get("name") == sheet_name)
    # The attribute r:id has the namespace of Excel's version before it.
    link_ids = [value for key, value in sheet.attrib.items() if key.endswith("}id")]
    target = targets[link_ids[0]]
    # A target is relative to xl, or begins with a slash.
    absolute_path = posixpath.normpath(posixpath.join("/xl", target))
    return absolute_path[1:]
