"""Rows of CSV and other text files: which lines are rows, and their cells as text.

The file is opened by its `Dialect`. Polars reads the rows, every cell as text; what it would get
wrong is seen to here: other encodings than UTF-8, blank lines, and lines of too few or too many
fields.
"""

from __future__ import annotations

import codecs
import csv
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path

import polars as pl

from siloweave.errors import DataError
from siloweave.tables.dialect import Dialect, csv_header, separator_hint
from siloweave.tables.files import SKIP_ADVICE, file_kind
from siloweave.tables.quotation_marks import (
    TextLines,
    TextSource,
    bytes_of,
    with_plain_marks,
)
from siloweave.tables.text_encoding import (
    BYTE_ORDER_MARK,
    HEAD_BYTES,
    REPLACEMENT,
    control_byte_in,
    decoding_error,
    encoding_advice,
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
    lines = TextLines(dialect.separator or ",", line_end, skip)
    scan = partial(
        pl.scan_csv,
        infer_schema=False,
        glob=False,
        has_header=bool(dialect.header),
        separator=lines.separator,
        eol_char=line_end,
        skip_lines=skip,
    )

    # Polars reads UTF-8 alone; anything else is decoded here.
    source = with_plain_marks(file, _utf8_source(file, encoding), lines)
    control_byte = control_byte_in(file, encoding)
    if control_byte is not None:
        _log.warning("%s", control_byte)
    hint = ""
    if len(names) == 1 and requested.separator is None:
        head_lines = head.decode(encoding, "replace").splitlines()
        hint = separator_hint(head_lines[skip:])

    # Polars makes a row of a blank line. Only where the last column lacks a value can there be one.
    lazy = scan(source)
    all_names = lazy.collect_schema().names()
    blank_lines = frozenset[int]()
    if len(names) > 1:
        last_column = pl.nth(len(names) - 1)
        if lazy.select(last_column.null_count()).collect().item():
            widths = _line_widths(source, lines)
            blank_lines = _blank_lines(file, widths, len(all_names), dialect)
    if blank_lines:
        lazy = scan(_without_lines(source, blank_lines, line_end))

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


def _utf8_source(file: Path, encoding: str) -> TextSource:
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
        return BytesIO(text.lstrip(BYTE_ORDER_MARK).encode())
    if codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig"):
        text = read_bytes(file).decode(encoding)
        return BytesIO(text.lstrip(BYTE_ORDER_MARK).encode())

    # Polars leaves out one mark; a program may have put another before a text with a mark.
    two_marks = 2 * BYTE_ORDER_MARK.encode()
    if read_bytes(file, len(two_marks)) == two_marks:
        text = read_bytes(file).decode()
        return BytesIO(text.lstrip(BYTE_ORDER_MARK).encode())
    return file


def _without_lines(source: TextSource, blank_lines: Set[int], line_end: str) -> BytesIO:
    """Return a text without some lines, which count from 1."""
    remaining_lines = []
    with TextIOWrapper(bytes_of(source), "utf-8-sig", newline=line_end) as text_lines:
        for number, line in enumerate(text_lines, 1):
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


def _line_widths(source: TextSource, lines: TextLines) -> _LineWidths:
    """Read how many fields each line of a text has, from the line of names on."""
    widths = _LineWidths([], {}, Counter())
    for line, row in _rows_in(source, lines):
        width = len(row)
        if width < 2 and not "".join(row).strip():
            widths.blank_lines.append(line)
        else:
            widths.first_lines.setdefault(width, line)
            widths.num_lines[width] += 1
    return widths


def _rows_in(source: TextSource, lines: TextLines) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line of each row of a text, and its fields, from the line of names on."""
    line_end = lines.line_end
    with TextIOWrapper(bytes_of(source), "utf-8-sig", newline=line_end) as text_lines:
        num_above = sum(1 for _ in islice(text_lines, lines.skip))
        marked_lines = (_one_line(line, line_end) for line in text_lines)
        reader = csv.reader(marked_lines, delimiter=lines.separator)
        line = num_above + 1
        for row in reader:
            yield line, row
            # A field with line breaks takes several lines, which the reader counts.
            line = num_above + reader.line_num + 1


def _blank_lines(
    file: Path, widths: _LineWidths, num_fields: int, dialect: Dialect
) -> frozenset[int]:
    """Return the numbers of a text file's empty lines, counted from 1.

    DataError where a line has fewer fields than others: it may be cut off. If all lines below the
    names have as few, or lines may be short, separators at their end were left off.
    """
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


def wide_lines(file: Path, requested: Dialect) -> DataError:
    """Return the error about lines of a text file with more fields than the first one."""
    _, dialect = csv_header(file, requested)
    encoding = dialect.encoding or "utf-8"
    head = read_bytes(file, HEAD_BYTES).decode(encoding, "replace")
    line_end = _line_end(head, dialect)
    lines = TextLines(dialect.separator or ",", line_end, dialect.skip or 0)
    source = with_plain_marks(file, _utf8_source(file, encoding), lines)
    rows = _rows_in(source, lines)
    _, names = next(rows)
    width = len(names)
    wide_lines = []
    num_rows = 0
    are_empty = True
    all_have_one_more = True
    first_fields = set()
    first_row: list[str] = []
    for line, row in rows:
        num_rows += bool(row)
        if len(row) <= width:
            continue
        wide_lines.append(line)
        first_row = first_row or row
        are_empty = are_empty and not "".join(row[width:]).strip()
        all_have_one_more = all_have_one_more and len(row) == width + 1
        first_fields.add(row[0])

    others = ""
    if len(wide_lines) > 1:
        others = f" ({len(wide_lines):,} lines have too many)"
    advice = _advice_on_cells(first_row)
    # R writes a name or number before each row, and none in the line of names.
    # A single field is rather a title.
    has_rows = num_rows > 1 and width > 1
    are_numbered = all_have_one_more and has_rows and len(first_fields) == num_rows
    if are_empty:
        advice = (
            "A separator at the end, which the first one lacks, makes an empty field: write one "
            "behind the names, too, or delete it in the rows"
        )
    elif not advice and are_numbered:
        advice = (
            "Each row begins with a field that no other has, as R writes them: write "
            f"{'row' + lines.separator!r} at the beginning of the first line to name that column"
        )
    elif not advice:
        advice = (
            "Put values that hold the separator in quotes, and delete lines above the names, such "
            f"as a title, {SKIP_ADVICE}"
        )
    return DataError(
        f"line {wide_lines[0]} of {str(file)!r} has more fields than the first one, "
        f"{len(first_row)} and not {width}{others}. {advice}"
    )


def _advice_on_cells(row: Sequence[str]) -> str:
    """Describe what to do about quotes that are not those of a CSV; empty without a sign of it."""
    is_begun = any(cell.lstrip().startswith("'") for cell in row)
    if is_begun and any(cell.rstrip().endswith("'") for cell in row):
        reason = "Its cells seem to be in single quotes, which are letters in a CSV"
        option = 'quotechar="\'"'
    elif any(cell.lstrip(" ").startswith('"') for cell in row):
        reason = "A blank stands before a quotation mark, which is a letter then"
        option = "skipinitialspace=True"
    else:
        return ""
    return (
        f"{reason}. Convert the file, such as by pandas.read_csv(path, {option}, dtype=str, "
        "keep_default_na=False).to_csv(path, index=False)"
    )


def without_texts(frame: pl.DataFrame, missing: Sequence[str]) -> pl.DataFrame:
    """Make certain texts missing, and texts of nothing but spaces."""
    text = pl.col(pl.String)
    is_blank = text.str.strip_chars().is_in(["", *missing])
    return frame.with_columns(pl.when(~is_blank).then(text))
