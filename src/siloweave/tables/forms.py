"""How values are written: numbers, by an example, ids, by a regular expression, and times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import chain
from string import ascii_letters, digits
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError

_EXAMPLE = re.compile(
    r"(?P<prefix>\D*)1(?P<thousands>\D?)234(?:(?P<decimal>[.,])5)?(?P<suffix>\D*(?:/\d+\D*)?)"
)
_SPACES = " \u00a0\u202f"
_MINUTE = 60_000_000
RESOLUTIONS: Mapping[str, int] = MappingProxyType(
    {
        "day": 1440 * _MINUTE,
        "hour": 60 * _MINUTE,
        "30 minutes": 30 * _MINUTE,
        "15 minutes": 15 * _MINUTE,
        "10 minutes": 10 * _MINUTE,
        "5 minutes": 5 * _MINUTE,
        "minute": _MINUTE,
        "second": 1_000_000,
        "millisecond": 1_000,
        "microsecond": 1,
    }
)
"""Resolutions of a column of datetimes, coarse ones first, in microseconds."""
_FINEST = (
    ("microsecond", "f"),
    ("second", "STXcrs"),
    ("minute", "MR"),
    ("hour", "HIklp"),
)  # what a format writes at least, by its codes
_SIGN = r"[-+\u2212]?\s?"


@dataclass(frozen=True)
class NumberForm:
    """The parts of a written number, digits apart; a mark that is not used is empty.

    Example:
        >>> form = number_form("1.234,5 €")
        >>> form.thousands, form.decimal, form.suffix
        ('.', ',', ' €')
        >>> form.written(np.array([-12345.6]), 2).tolist()
        ['-12.345,60 €']
    """

    prefix: str = ""
    thousands: str = ""
    decimal: str = ""
    suffix: str = ""

    @cached_property
    def pattern(self) -> str:
        """A regular expression whose only group is the number without its sign and unit."""
        mark = f"[{_SPACES}]" if self.thousands in tuple(_SPACES) else re.escape(self.thousands)
        whole = rf"\d{{1,3}}(?:{mark}\d{{3}})+|\d+" if self.thousands else r"\d+"
        if self.decimal:
            point = re.escape(self.decimal)
            whole = rf"(?:{whole})(?:{point}\d+)?|{point}\d+"
        before, behind = re.escape(self.prefix.strip()), re.escape(self.suffix.strip())
        return rf"^[(]?{_SIGN}{before}\s?{_SIGN}({whole})[-\u2212]?\s?{behind}[)]?$"

    def written(
        self, values: NDArray[Any], decimals: int | None, padded: int | None = None
    ) -> NDArray[np.object_]:
        """Numbers as text, of so many decimals; without a number, of as many as they have.

        Where `padded` is given, zeros at the end are left off beyond so many decimals.
        """
        marks = str.maketrans({",": self.thousands, ".": self.decimal})
        if not self.decimal:
            decimals, padded = 0, None
        spec = ",f" if decimals is None else f",.{decimals}f"
        found = np.empty(len(values), dtype=object)
        for i, value in enumerate(values.tolist()):
            digits = format(Decimal(repr(abs(value))) if decimals is None else abs(value), spec)
            if padded is not None:
                whole, _, tail = digits.partition(".")
                tail = tail.rstrip("0").ljust(padded, "0")
                digits = f"{whole}.{tail}" if tail else whole
            digits = digits.translate(marks)
            found[i] = f"{'-' if value < 0 else ''}{self.prefix}{digits}{self.suffix}"
        return found


@lru_cache(maxsize=256)
def number_form(example: str) -> NumberForm:
    """The form of a number in which 1234.5, or 1234, is written so; SchemaError otherwise.

    Example:
        >>> number_form("$1,234.5").prefix
        '$'
    """
    found = _EXAMPLE.fullmatch(str(example))  # which a message may have as a number
    parts = {} if found is None else found.groupdict("")
    if found is None or (parts["decimal"] and parts["decimal"] == parts["thousands"]):
        raise SchemaError(
            f"format={example!r} must show how 1234.5 (or 1234) is written, such as '1.234,5 €'"
        )
    return NumberForm(**parts)


def numbers_among(texts: Iterable[str]) -> list[float]:
    """Those of some texts that are plain numbers, such as 999 or -99.9."""
    return [float(text) for text in texts if re.fullmatch(r"[-+]?\d+(\.\d+)?", text.strip())]


def resolution_of(pattern: str) -> str:
    """Return the finest resolution that a format of datetimes writes.

    Example:
        >>> resolution_of("%d.%m.%Y %H:%M"), resolution_of("%Y-%m")
        ('minute', 'day')
    """
    codes = set(re.findall(r"%[-#]?([A-Za-z])", pattern))
    return next((finest for finest, those in _FINEST if codes & set(those)), "day")


def written_time(when: datetime, pattern: str, digits: int = 6) -> str:
    """A UTC time as `strftime` writes it; a year has four digits, a second's fraction `digits`.

    ``%-d``, ``%-m``, ``%-H`` and ``%-I`` are without a leading zero. An offset has a colon where
    the clock has.

    Example:
        >>> written_time(datetime(2020, 1, 3), "%-d.%-m.%Y")
        '3.1.2020'
    """
    fraction = f"{when.microsecond:06d}"[:digits]
    offset = "+00:00" if ":" in pattern else "+0000"
    codes = {" %z": " +0000", "%z": offset, "%Y": f"{when.year:04d}", "%f": fraction}
    short = {"d": when.day, "m": when.month, "H": when.hour, "I": when.hour % 12 or 12}
    codes |= {f"%-{code}": str(value) for code, value in short.items()}
    return when.strftime(re.sub(" %z|%-?.", lambda code: codes.get(code[0], code[0]), pattern))


# Texts of a regular expression

_MORE = 8  # times that * and + and {2,} repeat something beyond the fewest
_LONGEST = 1000  # characters of a text
_SETS = {"d": digits, "w": f"{ascii_letters}{digits}_", "s": " "}
_TIMES = re.compile(r"[?*+]|\{(?:(\d+)|(\d*),(\d*))\}")


@dataclass(frozen=True)
class TextForm:
    """A numbered list of texts: one of several forms, or several one after the other.

    Attributes:
        parts: Forms, or texts that stand for themselves.
        either: Whether a text has one of the parts; else all of them, in order.
        size: How many numbers there are. Different numbers may have the same text.
        longest: Characters of the longest text.

    Example:
        >>> form = text_form("P[0-9]{3}")
        >>> form.size, form.texts(np.array([0, 17])).tolist()
        (1000, ['P000', 'P017'])
    """

    parts: tuple[TextForm | str, ...]
    either: bool
    size: int
    longest: int

    @classmethod
    def of(cls, parts: Iterable[TextForm | str], *, either: bool) -> TextForm:
        """Count the texts of the parts."""
        parts = tuple(parts)
        lengths = [len(one) if isinstance(one, str) else one.longest for one in parts]
        if either:
            return cls(parts, True, sum(map(_size, parts)), max(lengths))
        size = 1
        for one in parts:
            size *= _size(one)
        return cls(parts, False, size, sum(lengths))

    def texts(self, numbers: NDArray[Any]) -> NDArray[np.object_]:
        """The texts of numbers from 0 to `size` - 1, which are objects where int64 is too small."""
        found = np.full(len(numbers), "", dtype=object)
        if self.either and self.size == len(self.parts):
            ones = [one if isinstance(one, str) else one.texts(_FIRST)[0] for one in self.parts]
            return np.array(ones, dtype=object)[numbers.astype(np.int64)]
        for one in self.parts if self.either else self.parts[::-1]:
            size = _size(one)
            if not self.either:
                numbers, places = numbers // size, numbers % size
                found = _texts(one, places) + found
                continue
            own = (numbers >= 0) & (numbers < size)
            found[own] = _texts(one, numbers[own])
            numbers = numbers - size
        return found

    def with_digit(self) -> TextForm:
        """The form with one more digit at its end."""
        return self.of((self, _one_of(digits)), either=False)


_FIRST = np.zeros(1, dtype=np.int64)


def _size(part: TextForm | str) -> int:
    return 1 if isinstance(part, str) else part.size


def _texts(part: TextForm | str, numbers: NDArray[Any]) -> Any:
    return part if isinstance(part, str) else part.texts(numbers)


def _one_of(characters: Iterable[str]) -> TextForm:
    return TextForm.of(dict.fromkeys(characters), either=True)


@lru_cache(maxsize=256)
def text_form(pattern: str) -> TextForm:
    r"""The texts that a regular expression matches as a whole.

    It may have characters, classes such as ``[A-Z0-9]``, ``\d``, ``\w`` (both ASCII) and ``\s`` (a
    space), groups, ``|`` and repeats. What has no upper bound (``*``, ``+``, ``{2,}``) repeats at
    most 8 times beyond the fewest.

    Raises:
        SchemaError: It is no regular expression, has anything else, or texts of more than 1,000
            characters.

    Example:
        >>> text_form("(A|B-)[12]").texts(np.arange(4)).tolist()
        ['A1', 'A2', 'B-1', 'B-2']
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise SchemaError(f"format={pattern!r} is no regular expression: {error}") from None
    return _Reader(pattern).either()


class _Reader:
    """Reads a regular expression that Python can compile."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def either(self) -> TextForm:
        options = [self.sequence()]
        while self.taken("|"):
            options.append(self.sequence())
        return options[0] if len(options) == 1 else TextForm.of(options, either=True)

    def sequence(self) -> TextForm:
        parts = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self.repeated(self.atom()))
        return TextForm.of(parts, either=False)

    def atom(self) -> TextForm | str:
        first = self.next()
        if first == "(":
            if self.taken("?") and not self.taken(":"):
                self.refuse("(?" + self.text[self.at : self.at + 1])
            inner = self.either()
            self.next()
            return inner
        if first == "[":
            return self.one_of()
        if first == "\\":
            found = self.escaped()
            return found if len(found) == 1 else _one_of(found)
        if (first == "^" and self.at == 1) or (first == "$" and self.at == len(self.text)):
            return ""
        if first in "^$.":
            self.refuse(first)
        return first

    def one_of(self) -> TextForm:
        if self.taken("^"):
            self.refuse("[^")
        found: list[str] = []
        while not found or not self.taken("]"):
            start = self.member()
            if self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                self.next()
                found.extend(map(chr, range(ord(start), ord(self.member()) + 1)))
            else:
                found.append(start)
        return _one_of(chain.from_iterable(found))

    def member(self) -> str:
        first = self.next()
        return self.escaped() if first == "\\" else first

    def escaped(self) -> str:
        """The characters that a backslash and the next character stand for."""
        letter = self.next()
        if letter.isalnum() and letter not in _SETS:
            self.refuse("\\" + letter)
        return _SETS.get(letter, letter)

    def repeated(self, part: TextForm | str) -> TextForm | str:
        if (found := _TIMES.match(self.text, self.at)) is None:
            return part
        self.at = found.end()
        low = int(found[1] or found[2] or found[0] == "+")
        high = int(found[1] or found[3] or (low + _MORE if found[0] != "?" else 1))
        if self.text[self.at : self.at + 1] in ("?", "+"):
            self.refuse(f"{self.text[self.at]} behind a repeat")
        longest = len(part) if isinstance(part, str) else part.longest
        if high * max(longest, 1) > _LONGEST:
            self.refuse(f"a repeat that gives texts of more than {_LONGEST:,} characters")
        times = [TextForm.of([part] * count, either=False) for count in range(low, high + 1)]
        return times[0] if len(times) == 1 else TextForm.of(times, either=True)

    def next(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

    def taken(self, mark: str) -> bool:
        """Whether this comes next; it is then passed."""
        found = self.text[self.at : self.at + 1] == mark
        self.at += found
        return found

    def refuse(self, what: str) -> NoReturn:
        raise SchemaError(
            f"format={self.text!r}: texts cannot be drawn from {what}; use characters, classes "
            "such as [A-Z0-9], \\d, \\w, groups, | and repeats such as {7}"
        )
