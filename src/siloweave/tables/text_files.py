"""Rows of CSV and other text files: which lines are rows, and their cells as text.

The file is opened by its `Dialect`. Polars reads the rows, every cell as text; what it would get
wrong is seen to here: other encodings than UTF-8, blank lines, and lines that are cut off.
"""

from __future__ import annotations

import codecs
import csv
import logging
import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from siloweave.errors import DataError
from siloweave.tables.dialect import Dialect, csv_header, separator_hint
from siloweave.tables.files import file_kind
from siloweave.tables.text_encoding import (
    HEAD_BYTES,
    REPLACEMENT,
    control_byte_in,
    decoding_error,
    encoding_advice,
    open_file,
    read_bytes,
)

_log = logging.getLogger("siloweave")


@dataclass(frozen=True)
class TextRows:
    """The rows of a text file, which are not read yet, and what was found about the file.

    Attributes:
        frame: The rows, every cell as text.
        dialect: How the file is written.
        blank_lines: Lines that are no rows, counted from 1.
        num_unnamed: How many columns at the end have neither name nor value.
        hint: How the one column seems to be divided; empty without a sign of it.
    """

    frame: pl.LazyFrame
    dialect: Dialect
    blank_lines: tuple[int, ...]
    num_unnamed: int
    hint: str


def scan_text(file: Path, requested: Dialect) -> TextRows:
    """Open a text file without reading its rows, if possible, and log what looks wrong."""
    names, dialect = csv_header(file, requested)
    encoding = dialect.encoding or "utf-8"
    skip = dialect.skip or 0
    head = read_bytes(file, HEAD_BYTES)
    line_end = _line_end(head.decode(encoding, "replace"), dialect)
    scan = partial(
        pl.scan_csv,
        infer_schema=False,
        glob=False,
        has_header=bool(dialect.header),
        separator=dialect.separator or ",",
        eol_char=line_end,
        skip_lines=skip,
    )

    # Polars reads UTF-8 alone; anything else is decoded here.
    source = _utf8_source(file, encoding)
    control_byte = control_byte_in(file, encoding)
    if control_byte is not None:
        _log.warning("%s", control_byte)
    hint = ""
    if len(names) == 1 and requested.separator is None:
        head_lines = head.decode(encoding, "replace").splitlines()
        hint = separator_hint(head_lines[skip:])
    if hint:
        _log.warning("%s was read as one column: %s", file, hint)

    # Polars makes a row of a blank line. Only where the last column lacks a value can there be one.
    lazy = scan(source)
    all_names = lazy.collect_schema().names()
    blank_lines = frozenset[int]()
    if len(names) > 1:
        last_column = pl.nth(len(names) - 1)
        if lazy.select(last_column.null_count()).collect().item():
            blank_lines = _blank_lines(file, len(all_names), dialect, line_end)
    if blank_lines:
        lazy = scan(_without_lines(file, dialect.encoding, blank_lines, line_end))

    # Columns at the end without a name are left out, if they are empty.
    unnamed = all_names[len(names) :]
    if unnamed and not dialect.names:
        _check_unnamed(file, lazy, unnamed, len(names))
    named_columns = []
    for file_name, name in zip(all_names, names, strict=False):
        named_columns.append(pl.col(file_name).alias(name))
    return TextRows(
        frame=lazy.select(named_columns),
        dialect=dialect,
        blank_lines=tuple(sorted(blank_lines)),
        num_unnamed=len(unnamed),
        hint=hint,
    )


def _line_end(head: str, dialect: Dialect) -> str:
    """Return the character that ends the lines of a text file, by its beginning.

    It is what ends the line of names, or the first row: a line break within a later cell has no say
    in it. Old programs of the Macintosh end lines with a carriage return alone.
    """
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)", head)[dialect.skip or 0 :]
    # A name in quotes may have a line break, too.
    reader = csv.reader(lines, delimiter=dialect.separator or ",")
    next(reader, None)
    if not reader.line_num:
        return "\n"
    last_line: str = lines[reader.line_num - 1]
    return last_line[-1]


def _utf8_source(file: Path, encoding: str) -> Any:
    """Return a text file, or its text in UTF-8 if the file's encoding is another, or has errors."""
    # Polars decompresses a .zst file, and refuses what is not UTF-8 itself.
    is_zst = file_kind(file).endswith(".zst")
    if not is_zst and decoding_error(file, encoding) is not None:
        _log.warning(
            "%s: some bytes are not in %s, and %r stands for them; %s",
            file,
            encoding,
            REPLACEMENT,
            encoding_advice(file),
        )
        text = read_bytes(file).decode(encoding, "replace")
        return BytesIO(text.encode())
    if codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig"):
        text = read_bytes(file).decode(encoding)
        return BytesIO(text.encode())
    return file


def _without_lines(
    file: Path, encoding: str | None, blank_lines: Set[int], line_end: str
) -> BytesIO:
    """Return a text file's text in UTF-8 without some lines, which count from 1."""
    remaining_lines = []
    with TextIOWrapper(open_file(file), encoding, "replace", newline=line_end) as lines:
        for number, line in enumerate(lines, 1):
            if number not in blank_lines:
                remaining_lines.append(line)
    return BytesIO("".join(remaining_lines).encode())


def _check_unnamed(
    file: Path, lazy: pl.LazyFrame, unnamed: Sequence[str], num_named: int
) -> None:
    """Raise DataError if a nameless column at the end has a value in some row."""
    is_filled = pl.col(unnamed).str.strip_chars().ne("").any()
    are_filled = lazy.select(is_filled).collect().row(0)
    if any(are_filled):
        place = num_named + are_filled.index(True) + 1
        raise DataError(
            f"column {place} of {str(file)!r} has no name, and no "
            "value in the first rows, but in others; name it, or delete what it holds"
        )


@dataclass(frozen=True)
class _LineWidths:
    """How many fields the lines of a text file have.

    Attributes:
        blank_lines: Lines without any field, counted from 1.
        first_lines: The first line of each width.
        num_lines: How many lines have each width.
    """

    blank_lines: list[int]
    first_lines: dict[int, int]
    num_lines: Counter[int]


def _line_widths(file: Path, dialect: Dialect, line_end: str) -> _LineWidths:
    """Read how many fields each line of a text file has, from the line of names on."""
    widths = _LineWidths([], {}, Counter())
    text = TextIOWrapper(open_file(file), dialect.encoding, "replace", newline=line_end)
    with text as lines:
        num_above = sum(1 for _ in islice(lines, dialect.skip))
        marked_lines = (_one_line(line, line_end) for line in lines)
        reader = csv.reader(marked_lines, delimiter=dialect.separator or ",")
        line = num_above + 1
        for row in reader:
            width = len(row)
            if width < 2 and not "".join(row).strip():
                widths.blank_lines.append(line)
            else:
                widths.first_lines.setdefault(width, line)
                widths.num_lines[width] += 1
            # A field with line breaks takes several lines, which the reader counts.
            line = num_above + reader.line_num + 1
    return widths


def _blank_lines(
    file: Path, num_fields: int, dialect: Dialect, line_end: str
) -> frozenset[int]:
    """Return the numbers of a text file's empty lines, counted from 1.

    DataError where a line has fewer fields than others: it may be cut off. If all lines below the
    names have as few, or lines may be short, separators at their end were left off.
    """
    widths = _line_widths(file, dialect, line_end)
    blank_lines = frozenset(widths.blank_lines)
    if dialect.short_lines:
        return blank_lines

    # The line of names, which has all fields, is no row.
    num_rows = widths.num_lines.copy()
    num_rows[num_fields] -= bool(dialect.header)
    row_widths = [
        width for width in num_rows if width <= num_fields and num_rows[width]
    ]
    widest = max(row_widths, default=0)
    short_widths = [width for width in widths.first_lines if width < widest]
    if short_widths:
        num_short = sum(num_rows[width] for width in short_widths)
        width = min(short_widths, key=widths.first_lines.__getitem__)
        line = widths.first_lines[width]
        raise _short_line(file, dialect, line, f"{width} of {widest}", num_short)
    return blank_lines


def _one_line(line: str, line_end: str) -> str:
    """Return a line of a text file for a reader that ends lines at other marks, too.

    Such a mark within the line is part of a cell: a letter stands for it.
    """
    content = line.removesuffix(line_end).rstrip("\r")
    return content.replace("\r", "_").replace("\n", "_") + "\n"


def _short_line(
    file: Path, dialect: Dialect, line: int, fields: str, num_short: int
) -> DataError:
    """Return the error about a line with too few fields, and about others like it."""
    # A byte that is in no text, such as NUL, may have cut the line off.
    control_byte = control_byte_in(file, dialect.encoding or "utf-8")
    if control_byte is not None and f"line {line} of " in control_byte:
        return DataError(control_byte)
    others = ""
    if num_short > 1:
        others = f" ({num_short:,} lines have too few)"
    return DataError(
        f"line {line} of {str(file)!r} has {fields} fields{others}. Complete it, or delete it "
        "if the file was cut off there or it is a note below the rows; put a value that holds "
        "a line break in quotes. If empty fields at the end were left off, as Excel does, say "
        "that lines may be short: "
        "short_lines = true in the study, --short-lines, or read(short_lines=True)"
    )


def without_texts(frame: pl.DataFrame, missing: Sequence[str]) -> pl.DataFrame:
    """Make certain texts missing, and texts of nothing but spaces."""
    text = pl.col(pl.String)
    is_blank = text.str.strip_chars().is_in(["", *missing])
    return frame.with_columns(pl.when(~is_blank).then(text))
