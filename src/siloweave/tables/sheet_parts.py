"""What an Excel file says of a sheet beside its values: merged and hidden cells, formulas, errors.

The package that reads the values gives a missing value for a formula that was never computed and
for an error, and no format of a number; so the sheet's part of the file is searched itself.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

from siloweave.errors import count_of

# A range of merged cells, and the row that it ends in.
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z]+\d+:[A-Z]+(\d+))"')
# A formula without a value. Where its value is an empty text, the cell's type says so.
_UNCOMPUTED = re.compile(
    rb"<(?:\w+:)?c(\s[^>]*)?>\s*<(?:\w+:)?f\b[^>]*(?:/>|>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
_ERROR = re.compile(rb'<(?:\w+:)?c(\s[^>]*?\bt="e"[^>]*)>')
_HIDDEN = re.compile(rb'<(?:\w+:)?row(\s[^>]*?\bhidden="(?:1|true)"[^>]*)>')
# A cell with a number: text has a type.
_NUMBER = re.compile(rb'<(?:\w+:)?c(\s[^>]*?\bs="(\d+)"[^>]*)>\s*<(?:\w+:)?v>(\d+)<')
# Texts of which one is in whatever a pattern finds: most sheets have none of them.
_NEEDLES = {
    _MERGED: (b"mergeCell",),
    _UNCOMPUTED: (b"<f", b":f"),
    _ERROR: (b't="e"',),
    _HIDDEN: (b"hidden=",),
    _NUMBER: (b" s=",),
}
_PLACE = re.compile(rb'\br="([A-Z]*(\d+))"')
# A format such as 00000, by which Excel writes 00123 for 123.
_ZEROS = re.compile(r"0{2,}")
_PIECE_BYTES = 1 << 20
# Bytes that are searched again with the next piece: a formula has at most 8,192 characters.
_OVERLAP_BYTES = 1 << 14


@dataclass
class _Cells:
    """Cells of one sort below a sheet's names.

    Attributes:
        number: How many there are.
        first: The first one's place, such as C2; empty where the file gives none.
    """

    number: int = 0
    first: str = ""

    def add(self, place: str) -> None:
        """Count one more cell."""
        if not self.number:
            self.first = place
        self.number += 1

    @property
    def hold(self) -> str:
        """How many cells hold something, and where the first one is."""
        words = count_of(self.number, "cell", "cells")
        if self.first:
            words += f" (the first is {self.first})"
        verb = "holds" if self.number == 1 else "hold"
        return f"{words} {verb}"


class SheetFacts:
    """What a sheet holds, below the row of its names, beside values that can be read.

    Attributes:
        merged: The first range of merged cells, such as A1:A2; empty without one.
    """

    def __init__(
        self, file: Path, sheet_name: str, *, num_above: int, has_header: bool
    ) -> None:
        """Search the part of a file that holds a sheet.

        Args:
            file: The Excel file.
            sheet_name: The sheet.
            num_above: How many rows lie above the names, or the rows without names.
            has_header: Whether a row has names.
        """
        self.merged = ""
        self._num_above = num_above
        self._num_no_rows = num_above + has_header
        self._uncomputed = _Cells()
        self._errors = _Cells()
        self._hidden = _Cells()
        self._padded = _Cells()
        with ZipFile(file) as parts:
            sheet_part = _sheet_part(parts, sheet_name)
            padded_styles = _padded_styles(parts)
            patterns = [_MERGED, _UNCOMPUTED, _ERROR, _HIDDEN]
            if padded_styles:
                patterns.append(_NUMBER)
            for pattern, match in _matches(parts, sheet_part, patterns):
                self._add(pattern, match, padded_styles)

    def _add(
        self,
        pattern: re.Pattern[bytes],
        match: re.Match[bytes],
        padded_styles: Mapping[bytes, int],
    ) -> None:
        """Count what a pattern has found."""
        if pattern is _MERGED:
            # Ranges above the names do not count, and the first one is named.
            if int(match[2]) > self._num_above and not self.merged:
                self.merged = match[1].decode()
            return

        attributes = match[1] or b""
        place = _PLACE.search(attributes)
        # The names, and what lies above them, are no cells of rows.
        if place and int(place[2]) <= self._num_no_rows:
            return
        name = place[1].decode() if place else ""
        if pattern is _UNCOMPUTED and b't="str"' not in attributes:
            self._uncomputed.add(name)
        elif pattern is _ERROR:
            self._errors.add(name)
        elif pattern is _HIDDEN:
            self._hidden.add(name)
        elif pattern is _NUMBER and len(match[3]) < padded_styles.get(match[2], 0):
            self._padded.add(name)

    @property
    def notes(self) -> tuple[str, ...]:
        """What reads otherwise than Excel shows it, a sentence each."""
        notes = []
        if self._uncomputed.number:
            notes.append(
                f"{self._uncomputed.hold} a formula without a value, which counts as missing. If "
                "it was never computed, open the file in Excel and save it"
            )
        if self._errors.number:
            notes.append(
                f"{self._errors.hold} an error such as #N/A, which counts as missing"
            )
        if self._hidden.number:
            rows = count_of(self._hidden.number, "row is", "rows are")
            notes.append(f"{rows} hidden in Excel, and read like others")
        if self._padded.number:
            notes.append(
                f"{self._padded.hold} a number that Excel shows with zeros before it, and that is "
                "read without them. If it is a code, write it as text"
            )
        return tuple(notes)


def _matches(
    parts: ZipFile, part: str, patterns: Sequence[re.Pattern[bytes]]
) -> Iterator[tuple[re.Pattern[bytes], re.Match[bytes]]]:
    """Yield what each pattern finds in a part of a file, once each, without holding all of it."""
    ends = dict.fromkeys(patterns, 0)
    first = 0
    text = b""
    with parts.open(part) as data:
        while piece := data.read(_PIECE_BYTES):
            tail = text[-_OVERLAP_BYTES:]
            first += len(text) - len(tail)
            text = tail + piece
            for pattern in patterns:
                if not any(needle in text for needle in _NEEDLES[pattern]):
                    continue
                # What was found at the end of the last piece is not found again.
                start = max(ends[pattern] - first, 0)
                for match in pattern.finditer(text, start):
                    yield pattern, match
                    ends[pattern] = first + match.end()


def _sheet_part(parts: ZipFile, sheet_name: str) -> str:
    """Return the part of an Excel file that holds a sheet, which the workbook links to."""
    links = _xml(parts, "xl/_rels/workbook.xml.rels")
    workbook = _xml(parts, "xl/workbook.xml")
    targets = {link.get("Id"): link.get("Target", "") for link in links}

    sheets = workbook.iterfind(".//{*}sheet")
    sheet = next(sheet for sheet in sheets if sheet.get("name") == sheet_name)
    # The attribute r:id has the namespace of Excel's version before it.
    link_ids = [value for key, value in sheet.attrib.items() if key.endswith("}id")]
    target = targets[link_ids[0]]
    # A target is relative to xl, or begins with a slash.
    absolute_path = posixpath.normpath(posixpath.join("/xl", target))
    return absolute_path[1:]


def _padded_styles(parts: ZipFile) -> dict[bytes, int]:
    """Return the styles that write zeros before a number, and to how many digits.

    Cells name a style by its place in the list of styles.
    """
    if "xl/styles.xml" not in parts.namelist():
        return {}
    styles = _xml(parts, "xl/styles.xml")
    digits = {}
    for number_format in styles.iterfind(".//{*}numFmts/{*}numFmt"):
        code = number_format.get("formatCode", "")
        if _ZEROS.fullmatch(code):
            digits[number_format.get("numFmtId")] = len(code)

    padded = {}
    for index, style in enumerate(styles.iterfind(".//{*}cellXfs/{*}xf")):
        format_id = style.get("numFmtId")
        if format_id in digits:
            padded[str(index).encode()] = digits[format_id]
    return padded


def hidden_sheets(file: Path) -> frozenset[str]:
    """Return the names of the sheets of an Excel file that it does not show."""
    with ZipFile(file) as parts:
        workbook = _xml(parts, "xl/workbook.xml")
    hidden = set()
    for sheet in workbook.iterfind(".//{*}sheet"):
        if sheet.get("state", "visible") != "visible":
            hidden.add(sheet.get("name", ""))
    return frozenset(hidden)


def _xml(parts: ZipFile, name: str) -> ElementTree.Element:
    """Return the root of a small part of an Excel file."""
    # expat bounds the entities of XML.
    return ElementTree.fromstring(parts.read(name))  # noqa: S314
