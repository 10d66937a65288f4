"""How values are written: numbers, by an example, ids, by a regular expression, and times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import chain
from math import prod
from string import ascii_letters, digits
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import SchemaError

_EXAMPLE = re.compile(
    r"(?P<plus>\+?)(?P<prefix>\D*)(?:1(?P<thousands>\D?)234|12(?P<lakhs>\D)34(?P=lakhs)567)"
    r"(?:(?P<decimal>[.,])5)?(?P<suffix>\D*(?:/\d+\D*)?)"
)
_SPACES = " \u00a0\u202f"
_MINUTE = 60_000_000
SEMANTIC = (
    "email",
    "phone",
    "name",
    "address",
    "postcode",
    "iban",
    "url",
    "ip",
    "uuid",
)
"""What texts may be that are not modelled; a schema's ``format`` of a ``text`` column."""
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
    ("hour", "HIklpP"),
)  # what a format writes at least, by its codes
_SIGN = r"[-+\u2212]?\s?"


@dataclass(frozen=True)
class NumberForm:
    """The parts of a written number other than its digits; an unused mark is empty.

    Example:
        >>> form = number_form("1.234,5 €")
        >>> form.thousands, form.decimal, form.suffix
        ('.', ',', ' €')
        >>> form.written(np.array([-12345.6]), 2).tolist()
        ['-12.345,60 €']
        >>> number_form("+12,34,567").written(np.array([9876543, -5]), 0).tolist()
        ['+98,76,543', '-5']

    Attributes:
        has_lakhs: Whether marks stand as in India, before the last three digits and every two then.
        has_plus: Whether numbers above 0 have a plus sign.
    """

    prefix: str = ""
    thousands: str = ""
    decimal: str = ""
    suffix: str = ""
    has_lakhs: bool = False
    has_plus: bool = False

    @cached_property
    def pattern(self) -> str:
        """A regular expression whose only group is the number without its sign and unit."""
        is_space = self.thousands in tuple(_SPACES)
        mark = f"[{_SPACES}]" if is_space else re.escape(self.thousands)
        digits = r"\d+"
        if self.has_lakhs:
            digits = rf"\d{{1,2}}(?:{mark}\d{{2}})*{mark}\d{{3}}|\d+"
        elif self.thousands:
            digits = rf"\d{{1,3}}(?:{mark}\d{{3}})+|\d+"
        if self.decimal:
            point = re.escape(self.decimal)
            digits = rf"(?:{digits})(?:{point}\d+)?|{point}\d+"
        before = re.escape(self.prefix.strip())
        behind = re.escape(self.suffix.strip())
        # A sign before the unit, behind it, or after the number; brackets mean a negative one.
        return rf"^[(]?{_SIGN}{before}\s?{_SIGN}({digits})[-\u2212]?\s?{behind}[)]?$"

    def written(
        self, values: NDArray[Any], decimals: int | None, padded: int | None = None
    ) -> NDArray[np.object_]:
        """Write numbers as text with so many decimals, or with all that they have.

        Where `padded` is given, zeros at the end are left off beyond so many decimals.
        """
        if not self.decimal:
            decimals = 0
            padded = None
        marks = str.maketrans({",": self.thousands, ".": self.decimal})
        texts = np.empty(len(values), dtype=object)
        for i, value in enumerate(values.tolist()):
            digits = _plain_digits(abs(value), decimals)
            if self.has_lakhs:
                digits = _in_lakhs(digits)
            if padded is not None:
                whole, _, fraction = digits.partition(".")
                fraction = fraction.rstrip("0").ljust(padded, "0")
                digits = f"{whole}.{fraction}" if fraction else whole
            sign = "-" if value < 0 else ""
            if self.has_plus and value > 0:
                sign = "+"
            texts[i] = f"{sign}{self.prefix}{digits.translate(marks)}{self.suffix}"
        return texts


def _plain_digits(size: float, decimals: int | None) -> str:
    """Write a number with commas and a point, with so many decimals or all that it has."""
    if decimals is not None:
        return format(size, f",.{decimals}f")
    # Decimal writes 1e-7 without an exponent.
    return format(Decimal(repr(size)), ",f")


def _in_lakhs(digits: str) -> str:
    """Move the commas of a number, as 9,876,543.5 has them, to where India has them.

    Example:
        >>> _in_lakhs("9,876,543.5"), _in_lakhs("876")
        ('98,76,543.5', '876')
    """
    whole, point, fraction = digits.partition(".")
    whole = whole.replace(",", "")
    pairs = re.sub(r"(?<=\d)(?=(?:\d\d)+$)", ",", whole[:-3])
    grouped = f"{pairs},{whole[-3:]}" if pairs else whole
    return f"{grouped}{point}{fraction}"


@lru_cache(maxsize=256)
def number_form(example: str) -> NumberForm:
    """Read a format, which is how 1234.5, or 1234, is written; SchemaError for other texts.

    Where marks of thousands stand as in India, it is how 1234567 is written: 12,34,567.

    Example:
        >>> number_form("$1,234.5").prefix
        '$'
    """
    match = _EXAMPLE.fullmatch(str(example))  # which a message may have as a number
    parts = {} if match is None else match.groupdict("")
    decimal = parts.get("decimal", "")
    lakhs = parts.get("lakhs", "")
    thousands = parts.get("thousands", "") or lakhs
    if match is None or (decimal and decimal == thousands):
        raise SchemaError(
            f"format={example!r} must show how 1234.5 (or 1234) is written, such as '1.234,5 €'"
        )
    return NumberForm(
        prefix=parts["prefix"],
        thousands=thousands,
        decimal=decimal,
        suffix=parts["suffix"],
        has_lakhs=bool(lakhs),
        has_plus=bool(parts["plus"]),
    )


def numbers_among(texts: Iterable[str]) -> list[float]:
    """Return the numbers that some texts plainly are, such as 999 or -99.9."""
    plain = re.compile(r"[-+]?\d+(\.\d+)?")
    return [float(text) for text in texts if plain.fullmatch(text.strip())]


@lru_cache(maxsize=256)
def resolution_of(pattern: str) -> str:
    """Return the finest resolution that a format of datetimes writes.

    Example:
        >>> resolution_of("%d.%m.%Y %H:%M"), resolution_of("%Y-%m")
        ('minute', 'day')
    """
    codes = set(re.findall(r"%[-#^]?([A-Za-z])", pattern))
    for resolution, resolution_codes in _FINEST:
        if not codes.isdisjoint(resolution_codes):
            return resolution
    return "day"


def written_time(when: datetime, pattern: str, digits: int = 6) -> str:
    """Write a UTC time as `strftime` does, with four digits of the year.

    A second's fraction has so many `digits`. ``%-d``, ``%-m``, ``%-H`` and ``%-I`` are without a
    leading zero, ``%^b`` and ``%^B`` are a month in capital letters, and ``%P`` is am or pm. An
    offset has a colon where the clock has.

    Example:
        >>> written_time(datetime(2020, 1, 3), "%-d.%-m.%Y")
        '3.1.2020'
        >>> written_time(datetime(2020, 1, 3), "%d%^b%Y")
        '03JAN2020'
    """
    fraction = f"{when.microsecond:06d}"[:digits]
    offset = "+00:00" if ":" in pattern else "+0000"
    year = f"{when.year:04d}"
    codes = {" %z": " +0000", "%z": offset, "%Y": year, "%f": fraction}
    # Not all systems' strftime has these.
    hour = when.hour % 12 or 12
    short = {"d": when.day, "m": when.month, "H": when.hour, "I": hour}
    codes |= {f"%-{code}": str(value) for code, value in short.items()}
    for code in ("%b", "%B"):
        codes[code.replace("%", "%^")] = when.strftime(code).upper()
    codes["%P"] = when.strftime("%p").lower()
    filled = re.sub(" %z|%[-^]?.", lambda code: codes.get(code[0], code[0]), pattern)
    return when.strftime(filled)


# What no reader takes for another one: no month has this day's number, and no clock this hour's.
_SHOWN_TIME = datetime(2024, 1, 31, 18, 5)  # noqa: DTZ001  only how it is written counts


def time_words(pattern: str) -> str:
    """Show how a format writes a time, and its codes as a schema has them.

    Example:
        >>> time_words("%d.%m.%Y")
        '31.01.2024 (%d.%m.%Y)'
        >>> time_words("%Y%m%d%H%M%S%f000")
        '20240131180500000000 (%Y%m%d%H%M%S%f000)'
    """
    # Milliseconds, where zeros stand for the microseconds behind them.
    digits = 3 if pattern.endswith("%f000") else 6
    return f"{written_time(_SHOWN_TIME, pattern, digits)} ({pattern})"


def pattern_words(pattern: str) -> str:
    """Describe the texts of a regular expression by the first of them, which is no row's.

    Example:
        >>> pattern_words("P[0-9]{3}")
        'P[0-9]{3}, such as P000'
        >>> pattern_words("[0-9]{20}")
        '[0-9]{20}, such as 00000000000000000000'
    """
    # As Python's number: a form may have more texts than 64 bits can count.
    first = text_form(pattern).texts(np.zeros(1, dtype=object))[0]
    return f"{pattern}, such as {first}"


# Texts of a regular expression

# Of *, + and {2,}: how often they repeat something beyond the fewest.
_MORE = 8
# A text has at most so many characters.
_LONGEST = 1000
_SETS = {"d": digits, "w": f"{ascii_letters}{digits}_", "s": " "}
_TIMES = re.compile(r"[?*+]|\{(?:(\d+)|(\d*),(\d*))\}")


@dataclass(frozen=True)
class TextForm:
    """A numbered list of texts: alternative forms, or several forms one after the other.

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
        """Build a form from its parts, and count its texts."""
        parts = tuple(parts)
        sizes = [_size(part) for part in parts]
        lengths = [_longest(part) for part in parts]
        if either:
            return cls(parts, True, sum(sizes), max(lengths))
        return cls(parts, False, prod(sizes), sum(lengths))

    def texts(self, numbers: NDArray[Any]) -> NDArray[np.object_]:
        """Return the texts with certain numbers, from 0 to `size` - 1."""
        if self.either and self.size == len(self.parts):
            # Each part is one text: look them up.
            options = [_first_text(part) for part in self.parts]
            return np.array(options, dtype=object)[numbers.astype(np.int64)]

        texts = np.full(len(numbers), "", dtype=object)
        if self.either:
            # The first part has the lowest numbers, the next one those that follow.
            for part in self.parts:
                is_part = (numbers >= 0) & (numbers < _size(part))
                texts[is_part] = _texts(part, numbers[is_part])
                numbers = numbers - _size(part)
            return texts

        # The last part is the last digit of a number whose digits have as many values as parts.
        for part in reversed(self.parts):
            places = numbers % _size(part)
            numbers = numbers // _size(part)
            texts = _texts(part, places) + texts
        return texts

    def with_digit(self) -> TextForm:
        """Return the form with one more digit at its end."""
        return self.of((self, _one_of(digits)), either=False)


_FIRST = np.zeros(1, dtype=np.int64)


def _size(part: TextForm | str) -> int:
    """Count the texts of a part."""
    return 1 if isinstance(part, str) else part.size


def _longest(part: TextForm | str) -> int:
    """Return the length of a part's longest text."""
    return len(part) if isinstance(part, str) else part.longest


def _texts(part: TextForm | str, numbers: NDArray[Any]) -> Any:
    """Return a part's texts with some numbers; a part that is a fixed text is the same in all."""
    return part if isinstance(part, str) else part.texts(numbers)


def _first_text(part: TextForm | str) -> Any:
    """Return a part's first text."""
    return part if isinstance(part, str) else part.texts(_FIRST)[0]


def _one_of(characters: Iterable[str]) -> TextForm:
    """Build the form of one of some characters, each once."""
    return TextForm.of(dict.fromkeys(characters), either=True)


@lru_cache(maxsize=256)
def text_form(pattern: str) -> TextForm:
    r"""Build the form of the texts that a regular expression matches as a whole.

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
        raise SchemaError(
            f"format={pattern!r} is no regular expression: {error}"
        ) from None
    return _Reader(pattern).either()


class _Reader:
    """A reader of regular expressions that Python can compile, with a method for each part."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0  # of the next character

    def either(self) -> TextForm:
        """Read alternatives between ``|``, up to a closing bracket or the end."""
        options = [self.sequence()]
        while self.passes("|"):
            options.append(self.sequence())
        return options[0] if len(options) == 1 else TextForm.of(options, either=True)

    def sequence(self) -> TextForm:
        """Read parts that follow each other."""
        parts = []
        while self.place < len(self.text) and self.text[self.place] not in "|)":
            parts.append(self.repeated(self.atom()))
        return TextForm.of(parts, either=False)

    def atom(self) -> TextForm | str:
        """Read a character, a class or a group."""
        first = self.next()
        if first == "(":
            return self.group()
        if first == "[":
            return self.one_of()
        if first == "\\":
            characters = self.escaped()
            return characters if len(characters) == 1 else _one_of(characters)
        # A text is matched as a whole, so these say nothing at its ends.
        if first == "^" and self.place == 1:
            return ""
        if first == "$" and self.place == len(self.text):
            return ""
        if first in "^$.":
            self.refuse(first)
        return first

    def group(self) -> TextForm:
        """Read a group behind its opening bracket."""
        if self.passes("?") and not self.passes(":"):
            self.refuse("(?" + self.text[self.place : self.place + 1])
        inner = self.either()
        self.next()  # the closing bracket
        return inner

    def one_of(self) -> TextForm:
        """Read a class behind its opening bracket."""
        if self.passes("^"):
            self.refuse("[^")
        characters: list[str] = []
        # A bracket that closes is a character itself where it comes first.
        while not characters or not self.passes("]"):
            start = self.member()
            if self.text[self.place] == "-" and self.text[self.place + 1] != "]":
                self.next()
                stop = ord(self.member()) + 1
                characters.extend(map(chr, range(ord(start), stop)))
            else:
                characters.append(start)
        return _one_of(chain.from_iterable(characters))

    def member(self) -> str:
        """Read one member of a class: a character, or the characters of an escape."""
        first = self.next()
        return self.escaped() if first == "\\" else first

    def escaped(self) -> str:
        """Read the character behind a backslash, and return all that the escape stands for."""
        letter = self.next()
        if letter.isalnum() and letter not in _SETS:
            self.refuse("\\" + letter)
        return _SETS.get(letter, letter)

    def repeated(self, part: TextForm | str) -> TextForm | str:
        """Read how often a part is repeated, and return its repetitions."""
        match = _TIMES.match(self.text, self.place)
        if match is None:
            return part
        self.place = match.end()
        exact, least, most = match.groups()
        low = int(exact or least or match[0] == "+")
        high = 1 if match[0] == "?" else low + _MORE
        high = int(exact or most or high)
        # These would change what is matched first, or whether at all.
        if self.text[self.place : self.place + 1] in ("?", "+"):
            self.refuse(f"{self.text[self.place]} behind a repeat")
        if high * max(_longest(part), 1) > _LONGEST:
            self.refuse(
                f"a repeat that gives texts of more than {_LONGEST:,} characters"
            )
        counts = range(low, high + 1)
        repeats = [TextForm.of([part] * count, either=False) for count in counts]
        return repeats[0] if len(repeats) == 1 else TextForm.of(repeats, either=True)

    def next(self) -> str:
        """Read one character."""
        self.place += 1
        return self.text[self.place - 1]

    def passes(self, mark: str) -> bool:
        """Read past a mark if it comes next; return whether it does."""
        is_next = self.text[self.place : self.place + 1] == mark
        self.place += is_next
        return is_next

    def refuse(self, part: str) -> NoReturn:
        """Raise SchemaError for a part for which no texts can be drawn."""
        raise SchemaError(
            f"format={self.text!r}: texts cannot be drawn from {part}; use characters, classes "
            "such as [A-Z0-9], \\d, \\w, groups, | and repeats such as {7}"
        )
