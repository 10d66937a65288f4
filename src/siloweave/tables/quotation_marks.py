"""Quotation marks of a text file: cells that a reader of CSV would not read as they were meant.

A cell that begins with a quotation mark ends with the next one, and a mark within it is doubled
(RFC 4180). Where a file has it otherwise, polars drops marks, or takes rows for a part of a cell,
so that the text is looked at before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from siloweave.errors import DataError
from siloweave.tables.text_encoding import open_file

TextSource = Path | BytesIO
"""A text file in UTF-8, or its text in memory."""
# Bytes that are looked at together.
_CHUNK_BYTES = 1 << 22
_MARK = b'"'
# A mark behind a backslash that is no escaped backslash itself.
_ESCAPED_MARK = re.compile(rb'(?<!\\)(?:\\\\)*\\"')


@dataclass(frozen=True)
class _Oddity:
    """A quotation mark that is not where RFC 4180 has one.

    Attributes:
        offset: Its place among the bytes.
        opening: The place of the mark that opens its cell.
        kind: "inner" if its cell does not begin with a mark, "early" if text stands behind a mark
            that closes a cell, "open" if none closes it.
    """

    offset: int
    opening: int
    kind: str


@dataclass(frozen=True)
class TextLines:
    """How the lines of a text file are divided.

    Attributes:
        separator: Between cells.
        line_end: The last character of a line.
        skip: Lines above the names.
    """

    separator: str
    line_end: str
    skip: int


def with_plain_marks(file: Path, source: TextSource, lines: TextLines) -> TextSource:
    """Return a text whose quotation marks polars reads; mostly it is the one that was given.

    A mark in a cell that does not begin with one, such as in 5" pipe, is a character like others:
    such a cell is put in quotes, each by itself.

    Raises:
        DataError: A mark that closes a cell has text behind it, or no mark closes a cell.
    """
    if _are_plain(source, lines):
        return source
    text = _all_bytes(source)
    start = _start(text, lines)
    oddity = _oddity(text, start, lines)
    if oddity is not None and oddity.kind == "inner":
        text = text[:start] + _with_quoted_cells(text[start:], lines)
        source = BytesIO(text)
        oddity = _oddity(text, start, lines)
    if oddity is not None:
        raise _error(file, text, oddity, lines)
    return source


def _all_bytes(source: TextSource) -> bytes:
    """Return all bytes of a text."""
    with bytes_of(source) as data:
        return bytes(data.read())


def bytes_of(source: TextSource) -> Any:
    """Open the bytes of a text."""
    if isinstance(source, Path):
        return open_file(source)
    return BytesIO(source.getvalue())


def _start(text: bytes, lines: TextLines) -> int:
    """Return where the line of names begins."""
    start = 0
    for _ in range(lines.skip):
        start = text.index(lines.line_end.encode(), start) + 1
    # The mark of UTF-8 is no part of the first cell.
    if text.startswith(b"\xef\xbb\xbf") and not start:
        return 3
    return start


def _neighbours(lines: TextLines) -> Any:
    """Return which bytes may stand before the first mark of a cell, or behind its last."""
    may_be_beside = np.zeros(256, dtype=np.bool_)
    may_be_beside[[*lines.separator.encode(), *b"\r\n"]] = True
    return may_be_beside


def _are_plain(source: TextSource, lines: TextLines) -> bool:
    """Return whether all quotation marks are where RFC 4180 has them.

    Marks open a cell and close it in turn; a doubled one closes and opens it again.
    """
    is_opening = True
    may_be_beside = _neighbours(lines)
    mark = ord(_MARK)
    for piece in _pieces(source, lines):
        if _MARK not in piece:
            continue
        # The first and the last byte are neighbours alone, which another piece has within it.
        codes = np.frombuffer(piece, dtype=np.uint8)
        places = np.flatnonzero(codes[1:-1] == mark) + 1
        openings = places[0 if is_opening else 1 :: 2]
        closings = places[1 if is_opening else 0 :: 2]
        before = codes[openings - 1]
        behind = codes[closings + 1]
        if not (may_be_beside[before] | (before == mark)).all():
            return False
        if not (may_be_beside[behind] | (behind == mark)).all():
            return False
        if len(places) % 2:
            is_opening = not is_opening
    return is_opening


def _pieces(source: TextSource, lines: TextLines) -> Iterator[bytes]:
    """Yield a text from the line of names on, with a neighbour at each end of a piece."""
    with bytes_of(source) as data:
        chunk = data.read(_CHUNK_BYTES)
        piece = b"\n" + chunk[_start(chunk, lines) :]
        while chunk:
            chunk = data.read(_CHUNK_BYTES)
            # What the last byte is beside is known once the next ones are read.
            yield piece + (chunk[:1] or b"\n")
            piece = piece[-1:] + chunk


def _oddity(text: bytes, start: int, lines: TextLines) -> _Oddity | None:
    """Return the first mark that is not where RFC 4180 has one, if there is one."""
    codes = np.frombuffer(text + b"\n", dtype=np.uint8)
    may_be_beside = _neighbours(lines)
    mark = ord(_MARK)
    places = np.flatnonzero(codes[start:] == mark) + start
    openings = places[::2]
    closings = places[1::2]

    before = codes[openings - 1]
    begins_cell = may_be_beside[before] | (openings == start)
    is_inner = ~begins_cell & (before != mark)
    behind = codes[closings + 1]
    is_early = ~may_be_beside[behind] & (behind != mark)

    # Places count from the end where there is none, so that one is always there.
    inner = openings[is_inner].min(initial=len(codes))
    early = closings[is_early].min(initial=len(codes))
    offset = int(min(inner, early))
    first_openings = openings[begins_cell & (openings <= offset)]
    opening = int(first_openings.max(initial=start))
    if offset < len(codes):
        return _Oddity(offset, opening, "inner" if inner < early else "early")
    if len(places) % 2:
        return _Oddity(int(places[-1]), opening, "open")
    return None


def _with_quoted_cells(text: bytes, lines: TextLines) -> bytes:
    """Put cells in quotes that hold a mark and do not begin with one."""
    separator = re.escape(lines.separator.encode())
    within = rb"[^" + separator + rb"\r\n]"
    quoted_cell = rb'"[^"]*+(?:""[^"]*+)*+"'
    inner_cell = (
        rb'(?P<inner>[^"' + separator + rb"\r\n]" + within + rb'*"' + within + rb"*)"
    )
    cells = re.compile(
        rb"(?<!" + within + rb")(?:" + quoted_cell + rb"|" + inner_cell + rb")"
    )

    def in_quotes(cell: re.Match[bytes]) -> bytes:
        if cell["inner"] is None:
            return cell[0]
        return _MARK + cell["inner"].replace(_MARK, 2 * _MARK) + _MARK

    return cells.sub(in_quotes, text)


def _error(file: Path, text: bytes, oddity: _Oddity, lines: TextLines) -> DataError:
    """Return the error about a mark that leaves open where its cell ends."""
    line_end = lines.line_end.encode()
    line = text.count(line_end, 0, oddity.offset) + 1
    first_line = text.count(line_end, 0, oddity.opening) + 1
    name = repr(str(file))
    if oddity.kind == "open":
        return DataError(
            f"line {first_line} of {name} holds a quotation mark that is not closed: close it, or "
            "write it twice within quotes if it is part of a cell"
        )
    if _ESCAPED_MARK.search(text, oddity.opening, oddity.offset + 1):
        return DataError(
            f'line {line} of {name} writes a quotation mark within a quoted cell as \\", as some '
            "databases do, where a CSV has it twice. Convert the file, such as by "
            "pandas.read_csv(path, escapechar='\\\\', dtype=str, keep_default_na=False)"
            ".to_csv(path, index=False)"
        )
    if line > first_line:
        return DataError(
            f"a quotation mark in line {first_line} of {name} opens a cell, which ends in line "
            f"{line} with text behind it. Look for a quotation mark that is not closed, and write "
            "one that is part of a cell twice"
        )
    return DataError(
        f"line {line} of {name} has text behind the quotation mark that closes a cell. Write a "
        "mark that is part of the cell twice, and no blank between the last one and the separator"
    )
