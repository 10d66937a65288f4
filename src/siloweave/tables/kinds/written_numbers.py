"""Columns of numbers that are written as text, as the rules see them.

A number may have a sign or brackets, marks of thousands and decimals, and a unit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from siloweave.errors import count_of
from siloweave.tables.arrays import Floats
from siloweave.tables.decimals import MOST_DECIMALS, fewest_decimals
from siloweave.tables.forms import pattern_words
from siloweave.tables.kinds.numbers import WholeNumbers
from siloweave.tables.kinds.patterns import E164, NUMBER, UNIT
from siloweave.tables.kinds.texts import Texts
from siloweave.tables.kinds.thresholds import (
    ENOUGH,
    FEW_CODES,
    NEARLY_ALL,
    PROBE,
    STRAY,
    nearly_all,
)
from siloweave.tables.kinds.words import UNITS

BRACKETS = "in brackets"
"""What the reason of a column has whose numbers in brackets are taken for negative ones."""
# An int64 holds all numbers of so many digits.
_MOST_DIGITS = 18
# So many texts must be numbers at first sight.
_MOST_NUMBERS = 0.9


@dataclass(frozen=True)
class Affixes:
    """What numbers have before and behind their digits, such as a unit; and which numbers do."""

    prefix: str
    suffix: str
    numbers: list[re.Match[str]]


@dataclass(frozen=True)
class Marks:
    """The marks of written numbers; a mark that they lack is empty.

    Attributes:
        thousands: Between groups of three digits.
        decimal: Before decimals.
        has_lakhs: Whether all groups but the last have two digits, as in India.
    """

    thousands: str
    decimal: str
    has_lakhs: bool = False


@dataclass(frozen=True)
class WrittenNumbers:
    """A column of texts that may be written numbers."""

    column: Texts

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    @cached_property
    def _affixes(self) -> Affixes:
        """The commonest unit of the numbers."""
        return _commonest_affixes(self.column.counts)

    @cached_property
    def strays(self) -> tuple[str, ...]:
        """Texts that are no number of the commonest unit."""
        numbers = {match.string for match in self._affixes.numbers}
        return tuple(set(self.column.counts) - numbers)

    @cached_property
    def _num_stray(self) -> int:
        """How many rows hold such texts."""
        return sum(self.column.counts[text] for text in self.strays)

    @cached_property
    def _bodies(self) -> list[str]:
        """The digits and marks of each number."""
        return [match["body"] for match in self._affixes.numbers]

    @property
    def _may_be_numbers(self) -> bool:
        """Whether most texts look like numbers, but not like phone numbers."""
        probe = self.column.texts[:PROBE]
        are_phones = nearly_all(probe, E164.fullmatch)
        num_numbers = sum(bool(NUMBER.fullmatch(text)) for text in probe)
        return not are_phones and num_numbers >= _MOST_NUMBERS * len(probe)

    @property
    def _have_one_unit(self) -> bool:
        """Whether numbers have no unit, or one that looks like a unit, and no text has another.

        A number without the unit may be a slip; in 12 ml beside 12 mg the unit is a value, too.
        """
        prefix = self._affixes.prefix.strip()
        suffix = self._affixes.suffix.strip()
        if not prefix and not suffix:
            return True
        other_units = units_among(self.strays)
        return is_unit(suffix) and not other_units

    @cached_property
    def _marks(self) -> Marks | None:
        """The marks of the numbers; None if the texts are no numbers."""
        if not self._may_be_numbers or self._num_stray > STRAY * self.column.rows:
            return None
        if not self._have_one_unit:
            return None
        dialect = self.column.table.dialect
        has_semicolons = dialect is not None and dialect.separator == ";"
        return _marks_of(
            self._bodies,
            comma=has_semicolons,
            has_decimals_elsewhere=self._has_decimals_elsewhere,
        )

    def _has_decimals_elsewhere(self, mark: str) -> bool:
        """Return whether another column of a text file surely has a mark before decimals."""
        table = self.column.table
        if table.frame != "csv":
            return False
        number = re.compile(rf"[-+]?\d+(?:{re.escape(mark)}\d+)?")
        # Behind a mark of thousands there are three digits.
        decimals = re.compile(rf"{re.escape(mark)}(?:\d{{1,2}}|\d{{4,}})$")
        for name in table.names:
            if name == self.name:
                continue
            kind = table.kind(name)
            if kind == "numbers" and table.decimal(name) == mark:
                return True
            if kind != "text":
                continue
            texts = list(table.text_counts(name))[:PROBE]
            if any(map(decimals.search, texts)) and nearly_all(texts, number.fullmatch):
                return True
        return False

    @cached_property
    def _decimals(self) -> tuple[int, int]:
        """The most decimals without final zeros, and the fewest with these."""
        assert self._marks is not None
        return _written_decimals(self._bodies, self._marks.decimal)

    @property
    def decimals(self) -> int | None:
        """The most decimals of a number; None if that is more than are modelled."""
        decimals, _ = self._decimals
        return decimals if decimals <= MOST_DECIMALS else None

    @property
    def padded(self) -> int:
        """The fewest decimals that a number is written with, zeros at the end among them."""
        _, padded = self._decimals
        return padded

    @cached_property
    def form(self) -> str | None:
        """How 1234.5 or 1234 is written; None for the usual numbers of a CSV."""
        assert self._marks is not None
        decimal = self._marks.decimal
        tenth = f"{decimal}5" if decimal else ""
        mark = self._marks.thousands
        number = f"12{mark}34{mark}567" if self._marks.has_lakhs else f"1{mark}234"
        plus = "+" if _have_plus(self._affixes.numbers) else ""
        form = f"{plus}{self._affixes.prefix}{number}{tenth}{self._affixes.suffix}"

        # Read as a CSV's numbers are, these need no word.
        table = self.column.table
        is_point = form == "1234.5" and table.decimal(self.name) == "."
        is_odd = any(map(_is_odd, self._affixes.numbers))
        if (form == "1234" or is_point) and table.frame == "csv" and not is_odd:
            return None
        return form

    @property
    def form_in_words(self) -> str:
        """How the numbers are written."""
        return f"numbers written like {self.form}" if self.form else "numbers"

    @property
    def decimals_in_words(self) -> str:
        """How many decimals the numbers have."""
        decimals, _ = self._decimals
        return count_of(decimals, "decimal", "decimals")

    @cached_property
    def note(self) -> str:
        """What is to be corrected: texts that are no number, and brackets; empty without these."""
        note = ""
        if self._num_stray:
            rows = self.column.rows
            note = f"; other text in {self._num_stray:,} of {rows:,} rows: correct it"
        if self._decimals[0] and 4 * self.column.kinds <= self.column.rows:
            note = f"{self._few_in_words}{note}"
        return note + _brackets_in_words(self._affixes.numbers, self.column.counts)

    @property
    def _few_in_words(self) -> str:
        """What is said of numbers with decimals of which there are few; empty for many."""
        kinds = self.column.kinds
        if kinds > FEW_CODES:
            return ""
        return (
            f", {kinds} different ones; if no other can occur, declare it categorical"
        )

    @property
    def spread(self) -> str:
        """The number of different numbers and of rows, in words."""
        column = self.column
        return f"{column.kinds:,} different whole numbers in {column.rows:,} rows"

    @property
    def pattern(self) -> str | None:
        """A regular expression of the numbers, if nearly all differ and are alike."""
        if self.column.kinds < NEARLY_ALL * self.column.rows:
            return None
        return self.column.pattern

    @property
    def shape(self) -> str:
        """That regular expression with an example, in words; empty without one."""
        return f" of the form {pattern_words(self.pattern)}" if self.pattern else ""

    @cached_property
    def whole_numbers(self) -> WholeNumbers:
        """The numbers themselves, where they are digits alone."""
        no_numbers = (*self.column.marks, *self.strays)
        plain = self.column.table.blanked(self.name, no_numbers)
        values, is_missing = plain.integers(self.name, self.form)
        return WholeNumbers.of(self.name, values[~is_missing], plain)

    @property
    def powers(self) -> Floats:
        """The number of each row, where some have a power of ten."""
        numbers = [float(text) for text in self.column.counts]
        powers: Floats = np.repeat(numbers, [*self.column.counts.values()])
        return powers

    def have_powers(self) -> bool:
        """Return whether a CSV's texts are numbers, some with a power of ten, such as 1.2E-05."""
        return self.column.table.frame == "csv" and self.column.are_powers()

    @cached_property
    def _are_long(self) -> bool:
        """Whether the texts are digits alone, of which an int64 cannot hold some."""
        if self._marks != Marks("", ""):
            return False
        return any(len(body) > _MOST_DIGITS for body in self._bodies)

    @property
    def _are_few_codes(self) -> bool:
        """Whether the texts are few, of several rows each, as codes and their categories are."""
        column = self.column
        return column.kinds <= FEW_CODES and 4 * column.kinds <= column.rows

    def are_too_long(self) -> bool:
        """Return whether the texts are digits alone, too long for numbers and no few codes."""
        return self._are_long and not self._are_few_codes

    @cached_property
    def are_digits(self) -> bool:
        """Whether the texts are whole numbers without marks and unit, in a CSV or a frame."""
        if self._marks is None or self._are_long:
            return False
        decimals, _ = self._decimals
        return decimals == 0 and self.form in (None, "1234")

    def are_zero_and_one(self) -> bool:
        """Return whether a frame's texts are 0 and 1."""
        is_flag = set(self.column.counts) == {"0", "1"}
        return is_flag and self.are_digits and self.form is not None

    def are_whole(self) -> bool:
        """Return whether the texts are whole numbers with marks or a unit."""
        if self._marks is None or self.are_digits or self._are_long:
            return False
        return self._decimals[0] == 0 and not self._are_codes

    @property
    def _are_codes(self) -> bool:
        """Whether whole numbers with a unit are codes of categories, as numbers alone may be.

        Doses of 5, 10 and 20 mg have gaps, and no dose of 13 mg is given.
        """
        numbers = self.whole_numbers
        return numbers.are_two_codes() or numbers.are_codes_with_gaps()

    def are_numbers(self) -> bool:
        """Return whether the texts are numbers with decimals."""
        if self._marks is None or self.are_digits or self._are_long:
            return False
        return self._decimals[0] > 0

    def have_several_marks(self) -> bool:
        """Return whether the texts are numbers, some with a comma before decimals, some a point."""
        column = self.column
        if self._marks is not None or column.kinds < ENOUGH:
            return False
        marks = [_decimal_mark(text) for text in column.texts]
        has_both = "," in marks and "." in marks
        return has_both and sum(mark is None for mark in marks) <= STRAY * column.kinds


def _decimal_mark(text: str) -> str | None:
    """Return the mark before a number's decimals; empty without one, and None for other texts."""
    number = re.fullmatch(r"[-+\u2212]?\d{1,9}(?:([.,])\d{1,6})?", text)
    if number is None:
        return None
    return number[1] or ""


def _commonest_affixes(texts: Iterable[str]) -> Affixes:
    """Return what most written numbers have before and behind them, and the numbers that do.

    A space between number and unit makes no difference.
    """
    matches = [match for match in map(NUMBER.fullmatch, texts) if match is not None]
    affixes = [_affixes_of(match) for match in matches]
    (prefix, suffix), _ = Counter(affixes).most_common(1)[0]
    same = []
    for match, (before, behind) in zip(matches, affixes, strict=True):
        if before.strip() == prefix.strip() and behind.strip() == suffix.strip():
            same.append(match)
    return Affixes(prefix, suffix, same)


def is_unit(text: str) -> bool:
    """Return whether a text behind a number looks like a unit, or is empty.

    Words of small letters do, whatever they are, and so do words of scripts without capitals. A
    capital letter is that of a name, such as Berlin, or of a code, such as AB in a postcode, unless
    the unit is known.
    """
    if text == text.lower() or UNIT.fullmatch(text):
        return True
    return text.strip(".").lower() in UNITS


def units_among(texts: Iterable[str]) -> list[str]:
    """Return what numbers among some texts have before and behind them, each once, in order."""
    affixes = set()
    for match in filter(None, map(NUMBER.fullmatch, texts)):
        prefix, suffix = _affixes_of(match)
        affixes |= {prefix.strip(), suffix.strip()}
    return sorted(affixes - {""})


def _written_decimals(bodies: Sequence[str], mark: str) -> tuple[int, int]:
    """Return the most decimals of numbers without final zeros, and the fewest with these."""
    fractions = [""] * len(bodies)
    if mark:
        fractions = [body.partition(mark)[2] for body in bodies]
    decimals = max(len(fraction.rstrip("0")) for fraction in fractions)
    lengths = {*map(len, fractions)}
    lengths_with_zero = {len(f) for f in fractions if f[-1:] == "0"}
    return decimals, fewest_decimals(lengths, lengths_with_zero)


def _affixes_of(number: re.Match[str]) -> tuple[str, str]:
    """Return what a written number has before and behind its digits, such as a unit."""
    return number["prefix"] or "", number["suffix"] or ""


def _is_odd(number: re.Match[str]) -> bool:
    """Return whether a number is written as no CSV's are: in brackets, or with another minus."""
    return bool(number["open"] or number["behind"] or "\u2212" in number.string)


def _have_plus(numbers: Sequence[re.Match[str]]) -> bool:
    """Return whether all numbers above 0 have a plus sign, and others are below 0."""
    signs = [number["sign"] or number["sign2"] for number in numbers]
    has_minus = [
        bool(_is_odd(n) or s == "-") for n, s in zip(numbers, signs, strict=True)
    ]
    are_zero = [not re.search("[1-9]", number["body"]) for number in numbers]
    unsigned = [
        sign
        for sign, is_minus, is_zero in zip(signs, has_minus, are_zero, strict=True)
        if sign != "+" and not is_minus and not is_zero
    ]
    return "+" in signs and not unsigned


def _brackets_in_words(
    numbers: Sequence[re.Match[str]], counts: Mapping[str, int]
) -> str:
    """Describe numbers in brackets: negative ones in accounts, uncertain ones in statistics."""
    bracketed = [number for number in numbers if number["open"]]
    if not bracketed:
        return ""
    rows = sum(counts[number.string] for number in bracketed)
    others = ""
    if any(n["sign"] or n["sign2"] or n["behind"] for n in numbers):
        others = ", and others have a sign"
    return (
        f"; {count_of(rows, 'row is', 'rows are')} {BRACKETS}{others}: "
        "read as negative, as accounts write them. If they mark what is uncertain, "
        "as official statistics do, delete the brackets in the file"
    )


def _marks_of(
    bodies: Sequence[str], *, comma: bool, has_decimals_elsewhere: Callable[[str], bool]
) -> Marks | None:
    """Return the thousands and decimal marks of written numbers; None if they are no numbers.

    Args:
        bodies: The digits and marks of each number.
        comma: Whether a comma is a decimal mark, as in files of semicolons, if both may be.
        has_decimals_elsewhere: Whether another column has a mark before decimals.
    """
    characters = {*"".join(bodies)}
    marks = characters - {*"0123456789"}
    points = [mark for mark in marks if mark in ".,"]
    spaces = [mark for mark in marks if mark not in ".,"]
    if len(spaces) > 1:
        return None
    if len(points) == 2:
        # A number with both says which is the decimal mark: the last one.
        with_both = [body for body in bodies if "." in body and "," in body]
        if not with_both or spaces:
            return None
        decimal = max(points, key=with_both[0].rfind)
        thousands = "," if decimal == "." else "."
    elif (
        len(points) == 1
        and not spaces
        and _groups(bodies, points[0], comma, has_decimals_elsewhere)
    ):
        thousands = points[0]
        decimal = ""
    else:
        thousands = "".join(spaces)
        decimal = "".join(points)

    # A number with thousands in other places, or with a leading zero, is an identifier.
    mark = re.escape(thousands)
    shapes = {False: r"(?:0|[1-9]\d*)"}
    if thousands:
        shapes = {
            False: rf"(?:[1-9]\d{{0,2}}(?:{mark}\d{{3}})+|0|[1-9]\d*)",
            # 12,34,567, as India has it.
            True: rf"(?:[1-9]\d?(?:{mark}\d{{2}})*{mark}\d{{3}}|0|[1-9]\d{{0,2}})",
        }
    fraction = rf"?(?:{re.escape(decimal)}\d+)?" if decimal else ""
    for has_lakhs, shape in shapes.items():
        if all(map(re.compile(shape + fraction).fullmatch, bodies)):
            return Marks(thousands, decimal, has_lakhs)
    return None


def _groups(
    bodies: Sequence[str],
    mark: str,
    comma: bool,
    has_decimals_elsewhere: Callable[[str], bool],
) -> bool:
    """Return whether a mark surely divides thousands; in 1,234 it could be a decimal mark."""
    marked = [body for body in bodies if mark in body]
    if any(body.count(mark) > 1 for body in marked):
        return True
    one_thousand = re.compile(rf"[1-9]\d{{0,2}}[{mark}]\d{{3}}")
    if not all(map(one_thousand.fullmatch, marked)) or has_decimals_elsewhere(mark):
        return False
    unmarked = [body for body in bodies if mark not in body]
    # 1234 beside 1,234 has no mark where one of thousands would be.
    if any(len(body) > 3 for body in unmarked):
        return False
    is_english = mark == "," and not comma
    return is_english or bool(unmarked)
