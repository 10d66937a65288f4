"""How a text file is written: its separator, its encoding and its line of names.

A `Dialect` declares it. What a declaration leaves open is decided from the first lines; where a
schema knows the columns' names, by these alone, so that no row has a say in it.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from siloweave.errors import DataError, InputError
from siloweave.tables.column_names import check_names
from siloweave.tables.files import SKIP_ADVICE
from siloweave.tables.text_encoding import (
    BYTE_ORDER_MARK,
    HEAD_BYTES,
    HEAD_ROWS,
    REPLACEMENT,
    encoding_advice,
    encoding_of_mark,
    read_bytes,
    undecided_encoding,
    unmarked_utf16,
)

# Lines that may lie above the names; and how many may without an empty line below them.
_MOST_LINES_ABOVE = 30
_MOST_TITLE_LINES = 3
# Separators that are found; the first of several that fit equally well.
_SEPARATORS = (";", "\t", "|", ",")
# These are read where they are declared, and named where they seem to divide a single column.
_RARE_SEPARATORS = ("^", "~")
# A comment, or Excel's line that names the separator.
_NOTE = re.compile(r'#|"?sep=."?\s*$')
# These are no names of columns: a row that lacks values has them.
_MISSING_WORDS = {"na", "n/a", "nan", "null", "none", "missing"}
# One line, whatever it says; it has the escapes of UTF-7 and of Python, and no backslash else.
_ONE_LINE = rb"+AAo- \n \u000a" + bytes({*range(32, 127)} - {92})
# A number as people write it: with a sign, with marks between its digits, as a percentage.
_NUMBER = re.compile(r"\s*[-+]?(\d[\d., ]*|[.,]\d+)([eE][-+]?\d+)?\s*%?\s*")
# A name that keeps its marks, as in: id, "name"
_QUOTED_NAME = re.compile('"([^"]+)"')


@dataclass(frozen=True)
class Dialect:
    """The way a text file is written; where no value is given, the file decides.

    Attributes:
        separator: What divides its fields.
        encoding: The encoding of its characters, by Python's name.
        header: Whether its first line has the columns' names; a column without one, as all are
            then, is column_1 and so on by its place.
        decimal: The mark before the decimals of its numbers.
        missing: Texts that stand for a missing value in every column, beside empty fields.
        short_lines: Whether a line may leave off empty fields at its end, as Excel writes some.
        skip: How many lines lie above the names, or above the rows if there are no names.
        names: The columns' names, where a schema knows them. The line of names and the separator
            are found by these alone, so that no row decides how the others are cut into cells.
    """

    separator: str | None = None
    encoding: str | None = None
    header: bool | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()
    short_lines: bool = False
    skip: int | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", tuple(self.missing))
        object.__setattr__(self, "names", tuple(self.names))

        self._check_separator()
        if self.skip is not None and self.skip < 0:
            raise InputError(
                f"skip={self.skip} must be how many lines lie above the names"
            )
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise InputError(
                f"decimal={self.decimal!r} must be '.' or ',', and not the separator as well"
            )
        self._check_encoding()

    def _check_separator(self) -> None:
        """Raise InputError unless the separator is one byte of UTF-8, as polars needs it."""
        mark = self.separator
        if mark is None:
            return
        if len(mark.encode()) != 1 or mark in '"\r\n':
            raise InputError(
                f"separator={mark!r} must be one character, such as ';', and no quote"
            )

    def _check_encoding(self) -> None:
        """Raise InputError unless Python knows the encoding, and no text gains lines by it."""
        try:
            text = _ONE_LINE.decode(self.encoding or "utf-8", "replace")
        except (LookupError, UnicodeError):
            raise InputError(
                f"encoding={self.encoding!r} is unknown; use a name such as 'utf-8' or 'latin-1'"
            ) from None

        # An encoding with escapes would make line breaks, and so rows, of a cell's text.
        if len(text.splitlines()) > 1:
            raise InputError(
                f"encoding={self.encoding!r} makes several lines of one; save the file as UTF-8"
            )


def csv_header(
    file: Path, requested: Dialect | None = None
) -> tuple[list[str], Dialect]:
    """Read a text file's column names and dialect, as requested or as it seems to be.

    Raises:
        DataError: When it is empty, its encoding cannot be decided, or a name repeats.
    """
    requested = requested or Dialect()
    data = read_bytes(file, HEAD_BYTES)
    encoding = requested.encoding or _assumed_encoding(file, data)
    head_lines = _head_lines(data, encoding)

    # Known names decide, if there are any; else what the lines look like.
    dialect = _by_names(head_lines, requested)
    skipped_lines = dialect.skip
    if skipped_lines is None:
        skipped_lines = _lines_above(head_lines, dialect)
    title = "".join(head_lines[:skipped_lines])
    lines = head_lines[skipped_lines:]
    _check_filled(file, lines)

    separator = dialect.separator or _separator(lines)
    reader = csv.reader(lines[:HEAD_ROWS], delimiter=separator)
    rows = [row for row in reader if row]
    header = dialect.header
    if header is None:
        header = _has_header(rows)
    names = _column_names(rows, header, has_known_names=bool(dialect.names))

    # A mark that ends a line for Python alone, such as a form feed, does not count here.
    num_above = title.count("\n") or skipped_lines
    # Who says that the line has names is believed.
    if header and dialect.header is None:
        _check_no_title(file, num_above + 1, rows[0], len(names))
    check_names(names, repr(str(file)))
    if REPLACEMENT in "".join(names):
        raise DataError(
            f"the names of {str(file)!r} are not in {encoding}; {encoding_advice(file)}, or "
            "store the file as UTF-8"
        )
    as_decided = replace(
        dialect,
        separator=separator,
        encoding=encoding,
        header=header,
        skip=num_above,
    )
    return names, as_decided


def _assumed_encoding(file: Path, head: bytes) -> str:
    """Return UTF-16 if a text file begins with its mark, else UTF-8 unless its zeros forbid it."""
    encoding = encoding_of_mark(file)
    if encoding == "utf-8" and unmarked_utf16(head) is not None:
        raise undecided_encoding(file)
    return encoding


def _check_filled(file: Path, lines: Sequence[str]) -> None:
    """Raise DataError if lines at the beginning of a text file have nothing but blanks."""
    if not "".join(lines).strip():
        raise DataError(
            f"{str(file)!r} is empty; it needs a first line of column names"
        )
    if not "".join(lines[:HEAD_ROWS]).strip():
        raise DataError(
            f"{str(file)!r}: its first {HEAD_ROWS} lines are blank; remove them, or declare how "
            "many lines stand above the column names: skip="
        )


def _check_no_title(
    file: Path, line: int, first_row: Sequence[str], num_columns: int
) -> None:
    """Raise DataError if the line of names seems to be a title, which names one column of many."""
    num_filled = _num_filled(first_row)
    if 2 * num_filled < num_columns > 2:
        raise DataError(
            f"line {line} of {str(file)!r} names {num_filled} of {num_columns} "
            f"columns: delete lines above the names, such as a title, {SKIP_ADVICE}; or give "
            "--header (header=True) if these are all names"
        )


def _head_lines(data: bytes, encoding: str) -> list[str]:
    """Read the lines at the beginning of a text file, without one that is cut off."""
    head = codecs.getincrementaldecoder(encoding)("replace").decode(data)
    lines = head.lstrip(BYTE_ORDER_MARK).splitlines(keepends=True)
    is_cut_off = len(head) > 1 and head[-1] not in "\r\n"
    if is_cut_off and len(lines) > 1:
        return lines[:-1]
    return lines


# The line of names


def _by_names(lines: Sequence[str], requested: Dialect) -> Dialect:
    """Find the line of names, and the separator, by known names; a dialect without any stays.

    It is the first line that can be one by itself, by the separator that finds most names in it:
    two of its fields are known names, or half of them. Else it is the first that has a name. Rows
    lie below it, so none is looked at, whatever names it holds.
    """
    if not requested.names or requested.header is False:
        return requested

    starts: Iterable[int] = range(min(_MOST_LINES_ABOVE, len(lines)))
    if requested.skip is not None:
        starts = [requested.skip] if requested.skip < len(lines) else []
    separators: Sequence[str] = _SEPARATORS
    if requested.separator:
        separators = [requested.separator]

    first_named = requested
    for start in starts:
        separator, num_names, num_filled = _names_in(
            lines[start], separators, set(requested.names)
        )
        if not num_names:
            continue
        dialect = replace(requested, separator=separator, header=True, skip=start)
        is_comment = bool(_NOTE.match(lines[start])) and num_names < num_filled
        if not is_comment and (num_names > 1 or num_filled <= 2 * num_names):
            return dialect
        if first_named is requested:
            first_named = dialect
    return first_named


def _names_in(
    line: str, separators: Sequence[str], known_names: set[str]
) -> tuple[str, int, int]:
    """Count the known names in a line's fields; return also the separator, and how many are filled.

    The separator is that by which most known names are found; the first of several.
    """
    separator = separators[0]
    num_names = 0
    num_filled = 0
    for mark in separators:
        fields = next(csv.reader([line], delimiter=mark), [])
        num_known = len(known_names.intersection(_plain_names(fields)))
        if num_known > num_names:
            separator = mark
            num_names = num_known
            num_filled = _num_filled(fields)
    return separator, num_names, num_filled


def _lines_above(lines: Sequence[str], dialect: Dialect) -> int:
    """Count the lines above the names: comments with #, a title, and empty lines.

    A line that begins with # is no comment if it has as many fields as the line below it, and at
    least half of them hold something; a title needs an empty line below it. Neither holds above a
    line that can only be names.
    """
    lines = lines[:HEAD_ROWS]
    marks_of_nothing = ' \t\r\n";,|'
    candidates = lines[:_MOST_LINES_ABOVE]
    is_empty = [not line.strip(marks_of_nothing) for line in candidates]
    is_note = []
    for line, line_is_empty in zip(lines, is_empty, strict=False):
        is_note.append(line_is_empty or bool(_NOTE.match(line)))

    # From below, so that the names are sought under all lines that may be notes.
    for start in range(len(is_note) - 1, 0, -1):
        is_below_note = is_note[start - 1]
        if is_note[start] or all(is_empty[:start]):
            continue
        if not is_below_note and start > _MOST_TITLE_LINES:
            continue

        mark = dialect.separator or _separator(lines[start:])
        # One by one: a quotation mark in a title must not swallow the lines below it.
        rows_above = [
            next(csv.reader([line], delimiter=mark)) for line in lines[:start]
        ]
        reader_below = csv.reader(lines[start:], delimiter=mark)
        rows_below = [row for row in reader_below if row]
        if _cannot_be_title(rows_above, rows_below, is_note, dialect):
            continue

        # An odd number of quotation marks above: the line lies within a value.
        is_within_quotes = "".join(lines[:start]).count('"') % 2
        if not is_within_quotes and are_names(rows_below):
            return start
        if is_below_note:
            width = len(rows_below[0])
            return _first_comment(lines, rows_above, is_empty, width)
    return 0


def _cannot_be_title(
    rows_above: Sequence[Sequence[str]],
    rows_below: Sequence[Sequence[str]],
    is_note: Sequence[bool],
    dialect: Dialect,
) -> bool:
    """Return whether lines above the names hold too much to be a title or notes."""
    title_widths = []
    for row, row_is_note in zip(rows_above, is_note, strict=False):
        if not row_is_note:
            title_widths.append(_num_filled(row))
    widest_title = max(title_widths, default=0)
    if not widest_title:
        return False

    num_names = _num_filled(rows_below[0])
    is_wide = num_names < 2 or 2 * widest_title >= max(3, num_names)
    # Where the first line is declared to have names, no line is a title.
    return bool(dialect.header) or is_wide


def _first_comment(
    lines: Sequence[str],
    rows_above: Sequence[Sequence[str]],
    is_empty: Sequence[bool],
    width: int,
) -> int:
    """Find the line of the names, counted from 0: a comment that has as many fields as they.

    If no line above begins with # and has these fields, the names follow the lines above.
    """
    names_line = len(rows_above)
    first_alike = names_line
    while first_alike:
        row = rows_above[first_alike - 1]
        is_alike = len(row) == width <= 2 * _num_filled(row)
        if not is_empty[first_alike - 1] and not is_alike:
            break
        first_alike -= 1

    for number in range(first_alike, names_line):
        if lines[number].startswith("#"):
            return number
    return names_line


def are_names(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row can be nothing but names.

    They are different texts, which no row below has, and at least one is over numbers.
    """
    first_row = rows[0]
    rows_below = [row for row in rows[1:] if len(row) == len(first_row)]
    columns = []
    for values in zip(*rows_below, strict=True):
        columns.append([value for value in values if value.strip()])

    names_with_letters = [name for name in first_row if re.search(r"[^\W\d_]", name)]
    words = {name.strip().lower() for name in names_with_letters}
    words -= _MISSING_WORDS
    has_number = any(map(_NUMBER.fullmatch, first_row))
    if has_number or len(words) < len(first_row):
        return False
    pairs = zip(first_row, columns, strict=False)
    are_new = all(name not in values for name, values in pairs)
    return are_new and any(map(_numbers_of, columns))


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row names columns: its fields do not look like those below.

    A number within the range of the column does, a text that the column holds again, and one with
    digits of the form that nearly all of its texts have. A text over numbers is a name.
    """
    first_row = list(rows[0])
    rows_below = [row for row in rows[1:] if len(row) == len(first_row)]
    # Where columns have no names, programs write their places, from 0 or from 1.
    from_zero = [str(place) for place in range(len(first_row))]
    from_one = [str(place + 1) for place in range(len(first_row))]
    if len(rows_below) < 2 or first_row in (from_zero, from_one):
        return True

    num_alike = 0
    columns = zip(*rows_below, strict=True)
    for name, values in zip(first_row, columns, strict=True):
        filled_values = [value for value in values if value.strip()]
        numbers = _numbers_of(filled_values)
        if numbers and not _NUMBER.fullmatch(name):
            return True
        if numbers:
            num_alike += min(numbers) <= _size_of(name) <= max(numbers)
        else:
            num_alike += name in filled_values or _has_form_of(name, filled_values)
    return 2 * num_alike < len(first_row)


def _has_form_of(name: str, values: Sequence[str]) -> bool:
    """Return whether a text has digits, and the form that nearly all of some texts have."""
    form = _form_of(name)
    if form.count("0") < 2:
        return False
    forms = [_form_of(value) for value in values]
    return forms.count(form) > 0.9 * len(forms)


def _form_of(text: str) -> str:
    """Replace all digits of a text by one digit, and all letters by one letter."""
    digits_alike = re.sub(r"\d", "0", text.strip())
    return re.sub(r"[^\W\d_]", "a", digits_alike)


# The columns' names


def _column_names(
    rows: Sequence[Sequence[str]], header: bool, *, has_known_names: bool
) -> list[str]:
    """Return the names of a text file's columns, without empty columns at the end.

    A column without a name is called by its place.
    """
    width = len(rows[0])
    first_fields = _plain_names(rows[0]) if header else [""] * width
    names = list(first_fields)
    for index, name in enumerate(first_fields):
        if not name.strip():
            names[index] = f"column_{index + 1}"
    if not header:
        return names

    # A row's value names no column that a schema lacks.
    rows_that_count = rows[:1] if has_known_names else rows
    num_named = max(map(filled_width, rows_that_count))
    if not num_named:
        return names
    return names[:num_named]


def _plain_names(fields: Sequence[str]) -> list[str]:
    """Return names without blanks around them, and without quotation marks behind a blank.

    Names of which two would then be equal stay as they are.

    Example:
        >>> _plain_names(["id", ' "age"', " sex"])
        ['id', 'age', 'sex']
    """
    names = []
    for field in fields:
        name = field.strip()
        quoted = _QUOTED_NAME.fullmatch(name)
        if quoted and name != field:
            name = quoted[1].strip()
        names.append(name)
    filled_names = [name for name in names if name]
    if len(set(filled_names)) < len(filled_names):
        return list(fields)
    return names


def filled_width(fields: Sequence[str]) -> int:
    """Return the place of the last field with a value, counted from 1; 0 if all are empty."""
    places = [place for place, text in enumerate(fields, 1) if text.strip()]
    return max(places, default=0)


def _num_filled(fields: Sequence[str]) -> int:
    """Count the fields that hold a value."""
    return sum(bool(text.strip()) for text in fields)


# Separators


def _separator(lines: Sequence[str]) -> str:
    """Return the mark that divides most lines into as many fields as the first, several."""
    separator = ","
    best = (0.0, 0)
    for mark in _SEPARATORS:
        reader = csv.reader(lines[:HEAD_ROWS], delimiter=mark)
        rows = [row for row in reader if row]
        width = len(rows[0])
        share_alike = sum(len(row) == width for row in rows) / len(rows)
        if width > 1 and (share_alike, width) > best:
            separator = mark
            best = (share_alike, width)
    return separator


def separator_hint(lines: Sequence[str]) -> str:
    """Describe an unusual mark that seems to divide fields; empty without a sign of one."""
    lines = [line.strip() for line in lines[:HEAD_ROWS] if line.strip()]
    for mark in _RARE_SEPARATORS:
        rows = [next(csv.reader([line], delimiter=mark), []) for line in lines]
        if _are_columns(rows):
            return (
                f"its fields seem to be divided by {mark!r}; give --separator {mark!r}, "
                f"separator = {mark!r} in the study, or read(separator={mark!r})"
            )

    rows = [line.split() for line in lines]
    # Blanks divide the words of a text, too: without a column of numbers they say nothing.
    columns = zip(*rows[1:], strict=False)
    if not _are_columns(rows) or not any(map(_numbers_of, columns)):
        return ""
    if any("  " in line for line in lines):
        return (
            "its fields seem to have fixed widths, or several blanks between them; write it with "
            "commas, such as by pandas.read_fwf(path).to_csv(path, index=False)"
        )
    return (
        "its fields seem to be divided by blanks; give --separator ' ', separator = ' ' in the "
        "study, or read(separator=' ')"
    )


def _are_columns(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether nearly all rows have as many fields as the first, which are several."""
    width = len(rows[0]) if rows else 0
    num_alike = sum(len(row) == width for row in rows)
    return width > 1 and len(rows) > 2 and num_alike >= 0.95 * len(rows)


# Numbers in texts


def _numbers_of(values: Sequence[str]) -> list[float]:
    """Return the sizes of numbers in texts, if nearly all texts are numbers; else none."""
    numbers = [_size_of(value) for value in values if _NUMBER.fullmatch(value)]
    # The others may be words for a missing value.
    if len(numbers) <= 0.8 * len(values):
        return []
    return numbers


def _size_of(number: str) -> float:
    """Return a rough size of a written number, whatever its marks mean."""
    mantissa = number.partition("e")[0]
    digits = re.sub(r"[^\d.+-]", "", mantissa)
    with suppress(ValueError):
        return float(digits)
    # Several points divide thousands.
    return float(re.sub(r"\D", "", digits) or 0)
