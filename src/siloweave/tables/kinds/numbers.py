"""Columns of numbers, as the rules see them: their figures, and the tests of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np

from siloweave.errors import count_of
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.decimals import MOST_DECIMALS, decimals_but_errors, decimals_of
from siloweave.tables.forms import pattern_words
from siloweave.tables.kinds import names
from siloweave.tables.kinds.patterns import EDGES
from siloweave.tables.kinds.thresholds import (
    ENOUGH,
    FEW_CODES,
    FEW_ROWS_EACH,
    FLOAT_BITS,
    HUGE,
    LONG,
    MOST_CODES,
    NEARLY_ALL,
    STRAY,
)
from siloweave.tables.kinds.times import far_off, fits_form
from siloweave.tables.kinds.unknown_codes import num_high_codes
from siloweave.tables.kinds.words import (
    CODE_SYSTEMS,
    CODES,
    COUNTS,
    HOW_MANY,
    IDS,
    NUMBERED,
    PERSON_ALONE,
    POSTCODES,
)
from siloweave.tables.table import Table

# Days and months as whole numbers: an example of each format.
_EXAMPLES = {
    "%Y%m%d": "20240131",
    "%Y%m": "202401",
    "%Y%j": "2024031",
    "%y%m%d": "240131",
}
_MONTHS = 12
# Numbers of so many values are a scale, beside codes of a missing value.
_SCALE = 10
# Order in other columns is judged by so many rows.
_ORDER_ROWS = 5000
# Columns beside a column by which its order is judged: those of a questionnaire stand together, and
# all pairs of a table of thousands would take minutes.
_BESIDE = 60
# Days of a spreadsheet, counted from 1900 on: from 1927 to 2119.
_SHEET_DAYS = (10_000, 80_000)
# Seconds from 1970 on: from 2001 to 2039.
_INSTANTS = (1_000_000_000, 2_200_000_000)
# Times of people's doings are mostly between these seconds: from 2001 to 2033.
_LIKELY_INSTANTS = (1_000_000_000, 2_000_000_000)
# The first year of today's calendar, and the last to which hospitals move dates.
_CALENDAR_YEARS = (1582, 2300)
# Of so many months and days of a month are twenty days or more that are spread over a year.
_MANY_MONTHS = 7
_MANY_DAYS = 10
# So many decimals of a double, all but the last of them 0 or 9, stand before a rounding error.
_FAR_BEHIND = 6
# How many of each unit are a second.
_INSTANT_UNITS = {
    "seconds": 1,
    "milliseconds": 10**3,
    "microseconds": 10**6,
    "nanoseconds": 10**9,
}


@dataclass(frozen=True)
class RealNumbers:
    """A column of numbers of which some are not whole, without missing values."""

    name: str
    values: Floats

    @cached_property
    def distinct(self) -> Floats:
        """The different numbers, ascending."""
        return np.unique(self.values)

    @property
    def kinds(self) -> int:
        """The number of different numbers."""
        return len(self.distinct)

    def is_constant(self) -> bool:
        """Return whether all rows have the same number."""
        return self.kinds == 1

    @cached_property
    def _exact_decimals(self) -> int | None:
        """The most decimals of a number as a double has it; None if more than are modelled."""
        return decimals_of(self.distinct, MOST_DECIMALS, FLOAT_BITS)

    @cached_property
    def _decimals_but_errors(self) -> int | None:
        """The most decimals of a number, but for rounding errors; None without such errors."""
        decimals = decimals_but_errors(self.distinct)
        if decimals is None or self._exact_decimals is None:
            return decimals
        # An error is at the end of a double's digits, far behind the number's own.
        has_errors = self._exact_decimals >= decimals + _FAR_BEHIND
        return decimals if has_errors else None

    @property
    def decimals(self) -> int | None:
        """The most decimals of a number; None if that is more than are modelled."""
        if self._decimals_but_errors is not None:
            return self._decimals_but_errors
        return self._exact_decimals

    @property
    def decimals_in_words(self) -> str:
        """How many decimals the numbers have."""
        if self.decimals is None:
            return "more than 15 decimals"
        words = f"up to {count_of(self.decimals, 'decimal', 'decimals')}"
        if self._decimals_but_errors is not None:
            words += ", but for rounding errors such as 0.30000000000000004, which drawn ones lack"
        return words

    def are_few(self) -> bool:
        """Return whether few different numbers have many rows each."""
        return 4 * self.kinds <= len(self.values) and self.kinds <= FEW_CODES

    @property
    def spread(self) -> str:
        """The number of different numbers and of rows, in words."""
        return f"{self.kinds:,} different numbers in {len(self.values):,} rows"

    @property
    def _is_named_as_codes(self) -> bool:
        """Whether the column is named as a list of codes, such as icd9."""
        return names.has_word(names.words_of(self.name), CODE_SYSTEMS)

    def are_codes(self) -> bool:
        """Return whether numbers are codes of a list, such as 250.0, of several rows each."""
        are_few = 4 * self.kinds <= len(self.values) and self.kinds <= MOST_CODES
        return are_few and self._is_named_as_codes

    def are_rare_codes(self) -> bool:
        """Return whether numbers are codes of a list, with few rows each."""
        return self._is_named_as_codes and not self.are_codes()

    def may_be_sheet_times(self) -> bool:
        """Return whether numbers may be times of a spreadsheet, by their size and name."""
        words = names.words_of(self.name)
        is_between = _are_sheet_days(self.distinct[0], self.distinct[-1])
        return is_between and (names.names_days(words) or names.names_times(words))

    def may_be_instants(self) -> bool:
        """Return whether numbers may be seconds from 1970 on, by their size."""
        first, last = _LIKELY_INSTANTS
        return bool(first <= self.distinct[0] and self.distinct[-1] < last)


@dataclass(frozen=True)
class WholeNumbers:
    """A column of whole numbers, without missing values.

    Attributes:
        name: The column's.
        words: Of its name.
        table: All columns.
        values: Of each row with a number.
        distinct: The different ones, ascending.
        counts: How many rows have each of these.
    """

    name: str
    words: Sequence[str]
    table: Table
    values: Ints
    distinct: Ints
    counts: Ints

    @classmethod
    def of(cls, name: str, values: Ints, table: Table) -> WholeNumbers:
        """Count the values of a column."""
        distinct, counts = np.unique(values, return_counts=True)
        return cls(name, names.words_in(table, name), table, values, distinct, counts)

    # Figures

    @property
    def rows(self) -> int:
        """The number of rows with a number."""
        return len(self.values)

    @property
    def kinds(self) -> int:
        """The number of different numbers."""
        return len(self.distinct)

    @property
    def low(self) -> int:
        """The smallest number."""
        return int(self.distinct[0])

    @property
    def high(self) -> int:
        """The largest number."""
        return int(self.distinct[-1])

    @property
    def width(self) -> int:
        """How many whole numbers there are from the smallest to the largest."""
        return self.high - self.low + 1

    @property
    def spread(self) -> str:
        """The number of different values and of rows, in words."""
        return f"{self.kinds:,} different whole numbers in {self.rows:,} rows"

    @property
    def digits(self) -> int:
        """How many digits all numbers have; 0 if they differ, or if one is not positive."""
        shortest = len(str(self.low))
        longest = len(str(self.high))
        if self.low <= 0 or shortest != longest:
            return 0
        return shortest

    @property
    def pattern(self) -> str | None:
        """A regular expression of the numbers, if all have as many digits and enough; else None."""
        if self.digits < LONG:
            return None
        return f"[1-9][0-9]{{{self.digits - 1}}}"

    @property
    def shape(self) -> str:
        """That regular expression with an example, in words; empty without one."""
        return f" of the form {pattern_words(self.pattern)}" if self.pattern else ""

    @cached_property
    def is_even(self) -> bool:
        """Whether the different numbers are evenly spread (Kolmogorov-Smirnov)."""
        levels = (self.distinct - self.distinct[0] + 0.5) / self.width
        expected = (np.arange(self.kinds) + 0.5) / self.kinds
        distance = np.abs(levels - expected).max()
        # 1.4 is about the test's critical value at 4 %.
        return bool(distance < 1.4 / self.kinds**0.5)

    @cached_property
    def counts_up(self) -> bool:
        """Whether the numbers rise from row to row, more evenly than at random."""
        steps = np.diff(self.values)
        if len(steps) < ENOUGH or steps.min() <= 0:
            return False
        # Rows left out by chance make steps geometric, whose variance is mean * (mean - 1).
        steps = steps // np.gcd.reduce(steps)
        mean = steps.mean()
        chance_variance = mean * (mean - 1.0)
        return bool(mean > 4.0 and 2.0 * steps.var() < chance_variance)

    # Numbers that say it themselves

    def is_constant(self) -> bool:
        """Return whether all rows have the same number."""
        return self.kinds == 1

    def is_zero_and_one(self) -> bool:
        """Return whether the numbers are 0 and 1, and nothing else."""
        return bool(self.distinct.tolist() == [0, 1])

    # Days, months and postcodes

    @cached_property
    def day_form(self) -> str | None:
        """The format of the days or months that the numbers are, such as 20240131; else None."""
        days = self.distinct
        form = "%Y%m%d"
        # Months of a few years are codes.
        if self.kinds > FEW_CODES and 0 < self.low <= self.high < 10**6:
            days = self.distinct * 100 + 1
            form = "%Y%m"
        elif self._may_be_year_days:
            starts = self.distinct // 1000 * 10_000 + 101
            is_day = _are_days(starts, self.counts)
            return (
                "%Y%j" if is_day and fits_form(self.table, self.name, "%Y%j") else None
            )
        is_day = _are_days(days, self.counts) and fits_form(self.table, self.name, form)
        if is_day:
            return form
        return "%y%m%d" if self._are_short_days else None

    @property
    def _are_short_days(self) -> bool:
        """Whether numbers are days without a century, in a column named as one of days."""
        has_six_digits = 10**5 <= self.low <= self.high < 10**6
        if not has_six_digits or not names.names_days(self.words):
            return False
        # 150221 may as well be of 2021: then the last two digits are few.
        num_days = len(np.unique(self.distinct % 100))
        return num_days > _MONTHS and fits_form(self.table, self.name, "%y%m%d")

    @property
    def _may_be_year_days(self) -> bool:
        """Whether numbers may be days that are counted within their year, such as 2024031."""
        has_seven_digits = 10**6 <= self.low <= self.high < 10**7
        if not has_seven_digits or not names.names_days(self.words):
            return False
        days = self.distinct % 1000
        return bool(days.min() >= 1 and days.max() <= 366)

    @property
    def day_example(self) -> str:
        """A day or month as the numbers have it."""
        return _EXAMPLES[self.day_form or "%Y%m%d"]

    @property
    def far_days(self) -> str:
        """A note on days that are far from all others; empty without such."""
        texts = list(map(str, self.distinct.tolist()))
        dates = Table.from_columns({self.name: (texts, None)})
        when, _ = dates.datetimes(self.name, self.day_form)
        return far_off(when, texts, "name it as missing where the file is read")

    def are_days(self) -> bool:
        """Return whether the numbers are days or months, such as 20240131 or 202401."""
        return self.day_form is not None

    def are_postcodes(self) -> bool:
        """Return whether the column's name calls the numbers postcodes."""
        is_count = names.has_word(self.words, COUNTS)
        return names.has_word(self.words, POSTCODES) and not is_count

    def are_rare_postcodes(self) -> bool:
        """Return whether the numbers are postcodes, with too few rows each for categories."""
        most_categories = min(0.2 * self.rows, MOST_CODES)
        return self.are_postcodes() and self.kinds > most_categories

    # Identifiers, by the column's name

    @property
    def _is_nearly_unique(self) -> bool:
        """Whether nearly all numbers are different."""
        return self.kinds >= NEARLY_ALL * self.rows

    @property
    def _numbers_people(self) -> bool:
        """Whether the column's name says that it numbers people."""
        is_alone = len(self.words) == 1 and self.words[0] in PERSON_ALONE
        return names.numbers_people(self.words) or is_alone

    def are_ids_by_name(self) -> bool:
        """Return whether nearly all numbers differ, in a column named as an identifier."""
        has_id = names.has_word(self.words, IDS)
        is_numbered = self.words[-1] in NUMBERED
        has_name = self._numbers_people or has_id or is_numbered
        return self.rows > 1 and self._is_nearly_unique and has_name

    def are_too_large(self) -> bool:
        """Return whether a number has more digits than a schema's bounds may have."""
        return max(-self.low, self.high) >= HUGE

    def are_people_by_name(self) -> bool:
        """Return whether the column's name says that it numbers people."""
        return self._numbers_people and self.kinds > 2

    @property
    def instant_unit(self) -> str | None:
        """The unit in which numbers may be times that are counted from 1970 on; else None."""
        first, last = _INSTANTS
        for unit, size in _INSTANT_UNITS.items():
            if first * size <= self.low and self.high < last * size:
                return unit
        return None

    @property
    def _are_whole_minutes(self) -> bool:
        """Whether all of enough numbers are whole minutes, where they are times from 1970 on."""
        if self.instant_unit is None or self.kinds < ENOUGH:
            return False
        minute = 60 * _INSTANT_UNITS[self.instant_unit]
        return not (self.distinct % minute).any()

    def may_be_instants(self) -> bool:
        """Return whether numbers may be times that are counted from 1970 on.

        Their size says so, and the column's name or that all are whole minutes.
        """
        has_id = names.has_word(self.words, IDS) or self._numbers_people
        is_likely = names.names_instants(self.words) or self._are_whole_minutes
        return is_likely and not has_id and self.instant_unit is not None

    @property
    def instants_note(self) -> str:
        """What is to be done if identifiers may be times from 1970 on; else empty."""
        if self.instant_unit is None:
            return ""
        first, last = _LIKELY_INSTANTS
        size = _INSTANT_UNITS[self.instant_unit]
        if self.low < first * size or self.high >= last * size:
            return ""
        return f"; if they are times in {self.instant_unit} from 1970 on, write dates into the file"

    # Identifiers, by the numbers' form

    @cached_property
    def _may_be_ids_by_form(self) -> bool:
        """Whether numbers may be identifiers by their form: enough, and no counts or counter."""
        is_count = names.has_word(self.words, COUNTS)
        return self.rows >= ENOUGH and not is_count and not self.counts_up

    @cached_property
    def _may_be_units(self) -> bool:
        """Whether numbers may be identifiers of something that has several rows."""
        has_repeats = self.kinds < self.rows
        has_many = self.kinds >= max(ENOUGH, FEW_ROWS_EACH * self.rows)
        are_things = names.names_things(self.words)
        return self._may_be_ids_by_form and has_repeats and has_many and not are_things

    @property
    def _may_be_rows(self) -> bool:
        """Whether numbers may be identifiers of rows: all differ."""
        return self._may_be_ids_by_form and self.kinds == self.rows

    def are_long_and_differ(self) -> bool:
        """Return whether they look like numbers of cards, phones or people."""
        is_long = self.low >= 10**9 and self.high < 20 * self.low
        return self._may_be_ids_by_form and self._is_nearly_unique and is_long

    def are_units_by_name(self) -> bool:
        """Return whether the column is named as an identifier, and each has several rows."""
        has_id = names.has_word(self.words, IDS)
        is_named = names.names_id(self.words) and (has_id or self.digits >= LONG)
        return self._may_be_units and is_named

    def are_even_units(self) -> bool:
        """Return whether numbers are as evenly spread as if they had been given out.

        They also repeat more often than chance could repeat a measure.
        """
        if not self._may_be_units:
            return False
        # Four times the equal pairs that chance gives.
        most_by_chance = 2.0 * self.rows * self.rows / self.width
        num_repeats = self.rows - self.kinds
        is_sparse = self.width > 20 * self.kinds and most_by_chance < num_repeats
        is_balanced = self.counts.max() * self.kinds < 10 * self.rows
        return self.digits > 5 and is_sparse and bool(is_balanced) and self.is_even

    def have_no_gap(self) -> bool:
        """Return whether all numbers differ, without a gap between them."""
        return self._may_be_rows and self.width == self.rows

    def rise(self) -> bool:
        """Return whether numbers rise from row to row, as they are given out."""
        return self._may_be_rows and bool((np.diff(self.values) > 0).all())

    def differ_beyond_chance(self) -> bool:
        """Return whether all numbers differ, where chance would have repeated some."""
        # Chance gives so many pairs of equal numbers (the birthday problem).
        num_equal_pairs = self.rows * self.rows / (2.0 * self.width)
        return self._may_be_rows and num_equal_pairs > 8.0

    def are_even(self) -> bool:
        """Return whether all numbers differ, have as many digits, and are evenly spread."""
        is_dense = self.rows * self.rows > 8.0 * self.width
        least_digits = 4 if is_dense else 5
        return self._may_be_rows and self.digits >= least_digits and self.is_even

    # Codes of categories

    @property
    def _may_be_codes(self) -> bool:
        """Whether numbers may be codes: few, of several rows each, and not negative."""
        return self.kinds * 4 <= self.rows and self.low >= 0

    def are_rare_codes(self) -> bool:
        """Return whether numbers are codes of a list such as SNOMED, with few rows each."""
        is_named = names.has_word(self.words, CODE_SYSTEMS)
        are_few = self._may_be_codes and self.kinds <= MOST_CODES
        return is_named and self.rows >= ENOUGH and not are_few

    @property
    def _is_count(self) -> bool:
        """Whether the column's name says that it counts or measures something."""
        is_number_of = self.words[0] in HOW_MANY
        names_codes = self.words[-1] in CODES and not is_number_of
        return names.has_word(self.words, COUNTS) and not names_codes

    @property
    def _may_be_codes_by_form(self) -> bool:
        """Whether numbers may be codes, whatever the column is called."""
        are_few = self.kinds <= FEW_CODES and self.rows >= ENOUGH
        return self._may_be_codes and not self._is_count and are_few

    def are_two_codes(self) -> bool:
        """Return whether there are just two different numbers."""
        return self._may_be_codes and self.kinds == 2

    def are_codes_by_name(self) -> bool:
        """Return whether the column's name calls the numbers codes."""
        are_few = self.kinds <= MOST_CODES
        is_named = names.has_word(self.words, CODES | CODE_SYSTEMS)
        return self._may_be_codes and not self._is_count and are_few and is_named

    def are_codes_with_gaps(self) -> bool:
        """Return whether there are gaps between numbers that counts do not have."""
        return self._may_be_codes_by_form and self._has_gaps

    def are_codes_without_order(self) -> bool:
        """Return whether other columns depend on the numbers, but not on their order."""
        return self._may_be_codes_by_form and _without_order(self)

    @cached_property
    def _has_gaps(self) -> bool:
        """Whether a number is far rarer than its neighbours, or the last stand far above."""
        return _has_valley(self) or _has_unknown(self)

    # A scale

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The codes above a scale that look like codes of a missing value."""
        num_codes = num_high_codes(self.distinct, self.counts)
        return tuple(map(str, self.distinct[self.kinds - num_codes :].tolist()))

    @property
    def unknown_in_words(self) -> str:
        """The codes above a scale."""
        return " and ".join(self.unknown)

    @property
    def scale_end(self) -> int:
        """The largest number below the codes."""
        return int(self.distinct[-1 - len(self.unknown)])

    def are_scale(self) -> bool:
        """Return whether numbers are a scale of ten values or more, with a few codes far above it.

        Scales of surveys go from 0 to 10, say, and 77 and 88 are refusals. Of fewer values they may
        as well be categories: nothing between them is drawn then.
        """
        if not self.are_codes_with_gaps():
            return False
        size = self.kinds - len(self.unknown)
        scale = self.distinct[:size]
        if not self.unknown or size < _SCALE or (np.diff(scale) != 1).any():
            return False

        # What is left of the scale must not look like codes itself.
        plain = self.table.blanked(self.name, self.unknown)
        values, is_missing = plain.integers(self.name)
        rest = replace(
            self,
            table=plain,
            values=values[~is_missing],
            distinct=scale,
            counts=self.counts[:size],
        )
        are_codes = (
            rest.are_two_codes()
            or rest.are_codes_by_name()
            or rest.are_codes_with_gaps()
            or rest.are_codes_without_order()
        )
        return not are_codes

    # Really numbers

    def are_few(self) -> bool:
        """Return whether there are so few different numbers that they may be codes."""
        return self.kinds <= FEW_CODES

    @property
    def multiples_note(self) -> str:
        """A note on numbers that are all multiples of another one; empty for others."""
        divisor = int(np.gcd.reduce(self.distinct))
        if self.kinds < ENOUGH or divisor < 2:
            return ""
        return (
            f"; all are multiples of {divisor:,}, and drawn ones need not be: divide them by that "
            "in the file if it matters"
        )

    def may_count_rows(self) -> bool:
        """Return whether numbers rise from row to row as counters do."""
        return self.counts_up

    def may_be_sheet_days(self) -> bool:
        """Return whether numbers may be days of a spreadsheet, in a column named as one of days."""
        return names.names_days(self.words) and _are_sheet_days(self.low, self.high)


def _are_sheet_days(low: float, high: float) -> bool:
    """Return whether numbers between two others may be days that a spreadsheet counts."""
    first_day, last_day = _SHEET_DAYS
    return first_day < low <= high < last_day


def _are_days(distinct: Ints, counts: Ints) -> bool:
    """Return whether whole numbers are days written as 20240131.

    Years are those of our time, but for typing errors, and for first and last days of a year; or
    days are of all parts of a year, as births of a century before are, and visits that were moved
    to a later one.
    """
    if distinct[0] < 1000_01_01 or distinct[-1] > 9999_12_31:
        return False
    days = []
    for number in distinct.tolist():
        try:
            day = datetime.strptime(str(number), "%Y%m%d")  # noqa: DTZ007
        except ValueError:
            return False
        days.append(day)

    if _have_all_days(days):
        return True
    years = np.array([day.year for day in days])
    is_far = (years < 1900) | (years > 2100)
    if is_far.sum() >= min(3, len(days) - 1):
        return False
    far_days = [days[place] for place in np.flatnonzero(is_far)]
    are_edges = {(day.month, day.day) for day in far_days} <= {*EDGES}
    num_far = counts[is_far].sum()
    return are_edges or bool(num_far <= STRAY * counts.sum())


def _have_all_days(days: Sequence[datetime]) -> bool:
    """Return whether days are of many months and days, in years that people write about.

    Codes of a household, its village and its members look like days, too, but not like the 29th,
    30th or 31st, and of December.
    """
    if len(days) < ENOUGH:
        return False
    first_year, last_year = _CALENDAR_YEARS
    num_odd = sum(not first_year <= day.year <= last_year for day in days)
    have_years = num_odd <= STRAY * len(days)
    months = {day.month for day in days}
    month_days = {day.day for day in days}
    is_varied = len(months) >= _MANY_MONTHS and len(month_days) >= _MANY_DAYS
    return have_years and is_varied and max(months) == 12 and max(month_days) > 28


def _has_valley(numbers: WholeNumbers) -> bool:
    """Return whether a value is far rarer than values on both of its sides, or never occurs."""
    # 99 and 999 may stand for no answer; many numbers are 0 more often than 1.
    texts = list(map(str, numbers.distinct.tolist()))
    is_ordinary = np.array([len(text) < 2 or set(text) != {"9"} for text in texts])
    is_ordinary &= (numbers.distinct > 0) | (len(texts) <= 12)
    distinct = numbers.distinct[is_ordinary]
    if len(distinct) < 3 or distinct[-1] - distinct[0] > 10_000:
        return False

    # How many rows each whole number has, those between included.
    places = distinct - distinct[0]
    counts = np.zeros(int(places[-1]) + 1)
    counts[places] = numbers.counts[is_ordinary]
    most_before = np.maximum.accumulate(counts)
    most_after = np.maximum.accumulate(counts[::-1])[::-1]
    beside = np.minimum(most_before, most_after)
    # Less than half, and by four deviations of a count.
    is_half = counts < beside / 2.0
    is_rare = is_half & (beside - counts > 4.0 * np.sqrt(beside))
    return bool(is_rare.any())


def _has_unknown(numbers: WholeNumbers) -> bool:
    """Return whether the last of few numbers look like codes: 7, 8, 9, 98, 99, far above the rest.

    Surveys write unknown answers so. Values between them would not all be absent by chance.
    """
    distinct = numbers.distinct
    # One number written with a unit, such as $5.00, has none beside it.
    if len(distinct) < 2:
        return False
    gaps = np.diff(distinct) - 1
    place = int(gaps.argmax()) + 1
    gap = gaps[place - 1]
    texts_above = map(str, distinct[place:].tolist())
    digits = {*"".join(texts_above)}
    is_far = digits <= {*"789"} and gap > 1
    is_short = len(distinct) <= 12 and distinct[place - 1] < 12
    rows_above = numbers.counts[place:].sum()
    return bool(is_far and is_short and rows_above > 2 and gap * rows_above > 16)


def _without_order(numbers: WholeNumbers) -> bool:
    """Return whether other columns depend on these values, but not on their order.

    A column of numbers is explained by them as categories (the correlation ratio) or as numbers
    (the squared correlation); it counts where the first is beyond chance and far larger.
    """
    table = numbers.table
    rows = np.flatnonzero(~table.missing(numbers.name))[:_ORDER_ROWS]
    num_rows = len(rows)
    kinds = numbers.kinds
    place = np.searchsorted(numbers.distinct, numbers.values[:num_rows])
    sizes = np.bincount(place, minlength=kinds)
    if num_rows < 20 * kinds:
        return False

    verdicts = []
    # Ranks in the first rows are those of all columns without a missing value there.
    num_first = min(_ORDER_ROWS, table.num_rows)
    are_first = num_rows == num_first and bool(rows[-1] == num_first - 1)
    for column in _columns_beside(table, numbers.name):
        ranks = table.ranks(column, rows, are_first=are_first)
        if ranks is None:
            continue

        # The share of the variance between categories, and what chance gives of it.
        sums = np.bincount(place, ranks, kinds)
        squares = sums**2 / np.maximum(sizes, 1)
        between = float(squares.sum()) / num_rows
        chance = (kinds - 1) / num_rows
        deviation = (2.0 * chance / num_rows) ** 0.5
        if between < chance + 0.02 + 5.0 * deviation:
            continue
        linear = 0.0
        if kinds > 1:
            correlation = float(np.corrcoef(place, ranks)[0, 1])
            linear = correlation**2
        verdicts.append(linear < 0.4 * (between - chance))
    return len(verdicts) > 0 and sum(verdicts) > 0.5 * len(verdicts)


def _columns_beside(table: Table, name: str) -> list[str]:
    """Return the other columns of a table, of a wide one those nearest to a column."""
    all_names = table.names
    place = all_names.index(name)
    first = max(min(place - _BESIDE // 2, len(all_names) - _BESIDE - 1), 0)
    columns = all_names[first : first + _BESIDE + 1]
    return [column for column in columns if column != name]
