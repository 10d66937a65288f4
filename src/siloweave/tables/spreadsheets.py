"""Sheets of Excel files: every cell as text, and the types that Excel's own cells have.

They are read through fastexcel, which is imported when the first such file is read.
"""

from __future__ import annotations

import posixpath
import re
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import polars as pl

from siloweave.errors import DataError, InputError
from siloweave.tables.column_names import check_names
from siloweave.tables.dialect import Dialect, filled_width
from siloweave.tables.files import EXCEL, first_line_of, stored
from siloweave.tables.native_types import plain_types
from siloweave.tables.text_files import without_texts

_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z]+\d+:[A-Z]+\d+)"')
# Bytes of a sheet's XML that are searched again with the next piece, for a range across both.
_OVERLAP_BYTES = 99


def read_sheet(path: Path, dialect: Dialect) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Read a sheet of an Excel file, every cell as text, and the types of its columns.

    The first row has names unless the dialect says that none has.
    """
    file = stored(path)
    sheet_name = _sheet_name(path, file)
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
    cells = read_cells(has_header=False, read_options=as_text)
    fewest_rows = 2 if has_header else 1
    if not cells.width or cells.height < fewest_rows:
        raise DataError(
            f"{where} has no rows; it needs a row of column names, and rows below"
        )
    if has_header:
        names = _sheet_columns(cells, where, has_known_names=bool(dialect.names))
    else:
        names = [f"column_{place + 1}" for place in range(cells.width)]
    merged_range = _merged_range(file, sheet_name)
    if merged_range:
        raise DataError(
            f"{where}: cells {merged_range} are merged, and only the first of them has the value. "
            "Split them, and write each value into each of its rows; names stand in one row"
        )

    # Read twice more: as text, and in the types that Excel's own cells have.
    texts = read_cells(has_header=has_header, read_options=as_text)[:, : len(names)]
    texts.columns = names
    texts = without_texts(texts, dialect.missing)
    try:
        typed = read_cells(has_header=has_header, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        # A number such as 1e308 in a column of whole ones.
        return texts, {}
    types = dict(zip(names, typed.dtypes, strict=False))
    return texts, plain_types(types)


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
            f"cannot read {str(file)!r} as an Excel file: {first_line_of(error)}"
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
    cells: pl.DataFrame, where: str, *, has_known_names: bool
) -> list[str]:
    """Return the names in the first row of a sheet; DataError if they cannot be names."""
    names = []
    for value in cells.row(0):
        name = "" if value is None else str(value)
        names.append(name.strip())
    # What a row has beside the table is in no column that a schema knows.
    if has_known_names:
        names = names[: filled_width(names)] or names
    if "" in names:
        raise DataError(
            f"{where}: column {names.index('') + 1} has no name in the first row. Names that "
            "are merged over several cells, and titles above them, cannot be read: give each "
            "column one name, in the first row"
        )
    check_names(names, where)
    return names


def _merged_range(file: Path, sheet_name: str) -> str:
    """Return the first range of merged cells in a sheet, such as A1:A2; empty without one."""
    with ZipFile(file) as parts:
        sheet_part = _sheet_part(parts, sheet_name)
        with parts.open(sheet_part) as data:
            tail = b""
            while piece := data.read(1 << 20):
                match = _MERGED.search(tail + piece)
                if match:
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
