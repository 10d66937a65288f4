"""Columns of dates and times, as the rules see them: their figures, and the tests of the rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property, partial
from math import log
from typing import Any

import numpy as np

from siloweave.errors import SchemaError
from siloweave.tables.arrays import Ints
from siloweave.tables.forms import RESOLUTIONS, resolution_of, time_words, written_time
from siloweave.tables.kinds.names import (
    has_word,
    names_days,
    names_times,
    numbers_people,
    words_of,
)
from siloweave.tables.kinds.patterns import (
    BARE_CLOCKS,
    COMPACT_MOMENTS,
    DAYS,
    DIGIT,
    DIGIT_TIME,
    EDGES,
    FIRST_DAYS,
    MOMENTS,
    MONTHS,
    NAMED_DAYS,
    RARE_DAYS,
    SHORT_DAYS,
    WEEK_DAYS,
    WEEKS,
    WORD_CLOCKS,
    YEAR_DAYS,
    YEAR_LAST_DAYS,
    ZEROS,
    ZONE,
)
from siloweave.tables.kinds.thresholds import (
    ENOUGH,
    FEW_CODES,
    PROBE,
    STRAY,
    nearly_all,
)
from siloweave.tables.kinds.words import IDS
from siloweave.tables.parsing import texts_of, times_of
from siloweave.tables.table import Table

_SECOND = RESOLUTIONS["second"]
# So seldom would all of some times be on whole hours by chance.
_SURPRISE = log(1e5)
# In days.
_DECADE = 3652
# In microseconds.
_DAY = 86_400_000_000
# So many far dates are named at each end.
_ODD_DATES = 3
# More weeks than a year has are of several years.
_WEEKS = 53
# Fewer different days are all the first of a month by chance.
_FIRSTS = 6
# A year of two digits that is read as this or a later one is mostly one of a century before.
_LAST_YEAR = 2035
_MONTHS = 12
# Years of dates are mostly from the first of these to the second.
_FIRST_YEAR = 1900
_FAR_YEAR = 2100
# A written date or time has fewer characters.
_LONGEST = 80
# The name of a time zone, or its offset as JavaScript writes it.
_NAMED_ZONE = re.compile(r" (?:GMT[+-]\d+(?: \([^()]*\))?|[A-Z]{3,4})$")


@dataclass(frozen=True)
class TimeSteps:
    """How fine times are.

    Attributes:
        resolution: All times are multiples of this; None if their format says so already.
        note: What is said of it in the column's reason; may be empty.
    """

    resolution: str | None
    note: str


@dataclass(frozen=True)
class DigitTimes:
    """A column of times of digits alone, such as 20240131093000 of HL7.

    Numbers of a day's records, such as 202401310007, look like times too, but all in one hour.

    Attributes:
        name: The column's.
        forms: The formats of its times; none if it has no such times.
        when: The different times, in microseconds.
        texts: How these are written.
    """

    name: str
    forms: tuple[str, ...]
    when: Ints
    texts: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, name: str) -> DigitTimes:
        """Read the cells of a column that may hold such times."""
        no_times = cls(name, (), np.empty(0, dtype=np.int64), ())
        cells = texts_of(table.cells(name).drop_nulls()).str.strip_chars()
        probe = cells.head(PROBE).str.replace(ZEROS, "").to_list()
        words = words_of(name)
        has_id = has_word(words, IDS) or numbers_people(words)
        if has_id or not all(map(DIGIT_TIME.fullmatch, probe)):
            return no_times

        # Which digits each has, and how they are read.
        cells = cells.unique(maintain_order=True)
        if not cells.str.contains(r"\.0*[1-9]").any():
            cells = cells.str.replace(ZEROS, "")
        num_digits = cells.str.extract(f"^(?:{DIGIT_TIME.pattern})$").str.len_chars()
        has_zone = cells.str.contains(r"[+-]\d{4}$")
        shapes = num_digits * 2 + has_zone
        if len(cells) < 2 or shapes.has_nulls():
            return no_times
        forms = []
        times: Any = None
        for shape in shapes.unique():
            form = _digit_form(cells.filter(shapes == shape))
            forms.append(form)
            shape_times = times_of(cells.set(shapes != shape, None), form)
            times = shape_times if times is None else times.fill_null(shape_times)
        if times.has_nulls() or not _are_likely(times):
            return no_times
        when = times.to_numpy().astype(np.int64)
        return cls(name, tuple(sorted(forms)), when, tuple(cells.to_list()))

    @property
    def form(self) -> str:
        """The one format of all times."""
        return self.forms[0]

    @property
    def forms_in_words(self) -> str:
        """All formats."""
        return " or ".join(map(time_words, self.forms))

    @property
    def form_in_words(self) -> str:
        """The one format, with an example."""
        return time_words(self.form)

    @property
    def zone_note(self) -> str:
        """How times with a zone are drawn; empty without one."""
        return ", drawn in UTC" if "%z" in self.form else ""

    @cached_property
    def steps(self) -> TimeSteps:
        """How fine the times are."""
        return steps_of(np.unique(self.when), self.form)

    @property
    def far(self) -> str:
        """A note on times that are far from all others; empty without such."""
        return far_off(self.when, self.texts, "list it in missing_values")

    def have_one_form(self) -> bool:
        """Return whether there are such times, all of one format."""
        return len(self.forms) == 1

    def have_several_forms(self) -> bool:
        """Return whether there are such times, of several formats."""
        return len(self.forms) > 1


@dataclass(frozen=True)
class WrittenTimes:
    """A column of texts that may be dates or times of one form.

    Attributes:
        name: The column's.
        texts: Its different texts, without marks of missing values.
    """

    name: str
    texts: Sequence[str]

    @property
    def _probe(self) -> Sequence[str]:
        """Some of the texts, which rule out most forms."""
        return self.texts[:PROBE]

    @cached_property
    def _may_be_times(self) -> bool:
        """Whether texts have digits and are short."""
        return all(DIGIT.search(text) and len(text) < _LONGEST for text in self._probe)

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """The forms that fit all texts, the likeliest first."""
        if not self._may_be_times:
            return ()
        first = self._probe[0]
        forms: tuple[str, ...] = WORD_CLOCKS
        # Of so many days not all are the first of a month by chance.
        if len(self.texts) >= _FIRSTS:
            forms += FIRST_DAYS
        has_clock = ":" in first
        forms += (
            MOMENTS if has_clock else DAYS + NAMED_DAYS + WEEK_DAYS + COMPACT_MOMENTS
        )
        if names_times(words_of(self.name)):
            forms += BARE_CLOCKS
        # Months of few years, and weeks of one, are categories.
        if not has_clock and len(self.texts) > FEW_CODES:
            forms += MONTHS
        if not has_clock and len(self.texts) > _WEEKS:
            forms += WEEKS
        # Such as "... GMT+0200 (CEST)" or "... EST", which all dates of one season have.
        zone = _NAMED_ZONE.search(first)
        if has_clock and zone:
            forms += tuple(form + zone[0] for form in forms)

        # 2024-03-01 is of March: rare forms are looked at where no other one fits.
        return self._fitting(forms) or self._fitting_years(self._rare_forms)

    @property
    def _rare_forms(self) -> tuple[str, ...]:
        """Forms that few people write."""
        forms: tuple[str, ...] = RARE_DAYS
        # Few numbers of eight digits are days by chance.
        is_named = names_days(words_of(self.name))
        if is_named or len(self.texts) >= ENOUGH:
            forms += YEAR_LAST_DAYS
        # Numbers within a year, such as 2024-031, look like days of it.
        if is_named:
            forms += YEAR_DAYS + SHORT_DAYS
        return forms

    def _fitting(self, forms: Sequence[str]) -> tuple[str, ...]:
        """Return the forms that fit all texts."""
        # A few texts rule out most forms; a form must then fit all of them.
        likely = [form for form in forms if _is_likely(self._probe, form)]
        fits = [form for form in likely if fits_form(self._dates, self.name, form)]
        return tuple(fits)

    def _fitting_years(self, forms: Sequence[str]) -> tuple[str, ...]:
        """Return the forms that fit all texts, nearly all of them in likely years.

        Those by which the texts are of many days of a month come first: by another one, 150221 is
        of 2015, and all texts are of the 19th to the 24th.
        """
        likely = {}
        for form in self._fitting(forms):
            when, _ = self._dates.datetimes(self.name, form)
            days = when.astype("datetime64[us]").astype("datetime64[D]").tolist()
            num_far = sum(not _FIRST_YEAR <= day.year <= _FAR_YEAR for day in days)
            if num_far <= STRAY * len(days):
                num_days = len({day.day for day in days})
                likely[form] = num_days > _MONTHS
        return tuple(sorted(likely, key=likely.__getitem__, reverse=True))

    @cached_property
    def form(self) -> str:
        """The form that is proposed."""
        return _padded(self.forms[0], self._probe)

    @property
    def form_in_words(self) -> str:
        """The proposed form, with an example."""
        return time_words(self.form)

    @property
    def otherwise(self) -> str | None:
        """The form with day and month swapped, if no day is above 12; else None."""
        swapped = re.sub("%[dm]", _swapped, self.forms[0])
        if swapped in self.forms and swapped != self.forms[0]:
            return _padded(swapped, self._probe)
        return None

    @property
    def things(self) -> str:
        """What the times are, in words."""
        if self.forms[0] in FIRST_DAYS:
            return "first days of months"
        return "dates" if re.search("%[YyG]", self.form) else "times of day"

    @property
    def reading_note(self) -> str:
        """How times with a zone are read, and years of two digits; empty without these."""
        if "%z" in self.form:
            return ", read in UTC and drawn in UTC, with +00:00"
        last_year = self._when.max().astype("datetime64[us]").item().year
        if "%y" in self.form and last_year >= _LAST_YEAR:
            return f", with years up to {last_year}: write four digits if they are earlier ones"
        return ""

    @cached_property
    def _dates(self) -> Table:
        """The texts as a column of their own: in a frame, ISO texts are read beside any form."""
        return Table.from_columns({self.name: (self.texts, None)})

    @cached_property
    def _when(self) -> Ints:
        """The time of each text, in microseconds."""
        when, _ = self._dates.datetimes(self.name, self.form)
        return when

    @cached_property
    def steps(self) -> TimeSteps:
        """How fine the times are."""
        return steps_of(np.unique(self._when), self.form)

    @property
    def far(self) -> str:
        """A note on times that are far from all others; empty without such."""
        return far_off(self._when, self.texts, "list it in missing_values")

    @cached_property
    def num_zoned(self) -> int:
        """How many of the texts end with a time zone."""
        bare = _without_zones(self.texts)
        return sum(map(str.__ne__, bare, self.texts))

    @property
    def kinds(self) -> int:
        """How many different texts there are."""
        return len(self.texts)

    def have_one_form(self) -> bool:
        """Return whether one form fits all texts."""
        return bool(self.forms)

    @cached_property
    def _iso_times(self) -> Any:
        """The texts as ISO 8601 has days and times; null for a text that is neither."""
        return times_of(texts_of(self._dates.cells(self.name)))

    @property
    def iso_steps(self) -> TimeSteps:
        """How fine such times are."""
        when = self._iso_times.to_numpy().astype(np.int64)
        return steps_of(np.unique(when), None)

    def are_iso(self) -> bool:
        """Return whether texts are days and times of ISO 8601, in several of its forms."""
        if not self._may_be_times or self.num_zoned:
            return False
        # Some texts rule out most columns, before all are looked at.
        probe = texts_of(self._dates.cells(self.name)).head(PROBE)
        if times_of(probe).has_nulls():
            return False
        return not self._iso_times.has_nulls()

    def have_zones_in_part(self) -> bool:
        """Return whether only some of the times have a zone, so that they cannot be compared."""
        if not self._may_be_times:
            return False
        # Some texts rule out most columns, before all are looked at.
        if not _have_one_form(_without_zones(self._probe)):
            return False
        is_mixed = 0 < self.num_zoned < self.kinds
        return is_mixed and _have_one_form(_without_zones(self.texts))


def _are_likely(times: Any) -> bool:
    """Return whether times lie in likely years, at several hours unless they are whole days."""
    clock = times.dt.time().unique()
    is_one_hour = clock.dt.hour().n_unique() == 1 and len(clock) > 1
    years = times.dt.year()
    num_far = len(years.filter(~years.is_between(_FIRST_YEAR, _FAR_YEAR)))
    is_rarely_far = num_far <= max(1, int(STRAY * len(times)))
    return not is_one_hour and is_rarely_far


def _digit_form(cells: Any) -> str:
    """Return the format of compact times of as many digits, with zeros that all have."""
    parts = cells.str.extract_groups(r"^(\d+)(\.\d+)?([+-]\d{4})?$").struct
    digits = parts[0]
    fractions = parts[1]
    zones = parts[2]
    length = int(digits.str.len_chars().max())
    form = "%Y%m%d%H%M" if length == 12 else "%Y%m%d%H%M%S"
    behind_seconds = digits.str.slice(14)
    if length > 14 and behind_seconds.str.contains("^0+$").all():
        form += "0" * (length - 14)
    elif length > 14:
        # Microseconds, of which 20 digits have three more behind them.
        has_zeros = length == 20 and behind_seconds.str.ends_with("000").all()
        form += "%f000" if has_zeros else "%f"
    elif fractions.count():
        form += ".%f"
    if zones.count():
        form += "%z"
    return form


def _is_likely(texts: Sequence[str], form: str) -> bool:
    """Return whether nearly all texts are times of one form."""
    return nearly_all(texts, partial(follows, form=form))


def _swapped(code: re.Match[str]) -> str:
    """Return the code of a month for that of a day, and the other way round."""
    return "%m" if code[0] == "%d" else "%d"


def _without_zones(texts: Sequence[str]) -> list[str]:
    """Return texts without the time zones at their ends."""
    return [ZONE.sub("", text) for text in texts]


def _have_one_form(texts: Sequence[str]) -> bool:
    """Return whether all texts are times of one form."""

    def fits(form: str) -> bool:
        return all(follows(text, form) for text in texts)

    return any(map(fits, MOMENTS))


def steps_of(when: Ints, form: str | None) -> TimeSteps:
    """Return how fine times are.

    Their format says it, and the days of a frame do. Times are on whole hours, or the like, only if
    chance would hardly have put all of them there.
    """
    usual_name = "day"
    usual = _SECOND
    if form is not None:
        usual_name = resolution_of(form)
        usual = max(RESOLUTIONS[usual_name], _SECOND)
    name = "microsecond"
    for name, step in RESOLUTIONS.items():
        # How seldom chance would have put all times on multiples of the step.
        surprise = len(when) * log(step / usual)
        is_likely = name == "day" or step <= usual or surprise > _SURPRISE
        if is_likely and not (when % step).any():
            break
    if name == usual_name:
        return TimeSteps(None, "")
    if name == "day" or RESOLUTIONS[name] <= usual:
        return TimeSteps(name, "")
    whole = f"multiples of {name}" if " " in name else f"whole {name}s"
    why = f", all on {whole}, and drawn so: declare another resolution if others can occur"
    return TimeSteps(name, why)


def far_off(when: Ints, texts: Sequence[str], how: str) -> str:
    """Describe dates that are years away from all others; empty without such dates.

    First and last days of a year stand for no date, others are typing errors: 0198 for 1980.
    """
    days = when // _DAY
    places = np.argsort(days)
    edges: list[str] = []
    odd: list[str] = []
    # From the last days and the first in turn, as long as some are far from all that are left.
    for end in (-1, 0) * _ODD_DATES:
        num_far = _num_far(days[places], end)
        if num_far == 0:
            continue
        outer = places[-num_far:] if end else places[:num_far]
        rest = places[:-num_far] if end else places[num_far:]
        far_edges = []
        far_others = []
        for place in outer:
            day = np.datetime64(int(days[place]), "D").item()
            if (day.month, day.day) in EDGES:
                far_edges.append(repr(texts[place]))
            else:
                far_others.append(repr(texts[place]))
        # Of few dates, any may be far from the others.
        if far_others and len(rest) < ENOUGH:
            break
        edges += far_edges
        odd += far_others
        places = rest

    words = ""
    if edges:
        words += f"; far from all other dates: {' and '.join(edges)}; {how} "
        words += "if it stands for a missing date, and correct the bounds"
    if odd:
        words += (
            f"; years away from all other dates: {' and '.join(odd)}; correct the year "
        )
        words += "in the file if it is a typing error, and the bounds"
    return words


def _num_far(days: Ints, end: int) -> int:
    """Return how many days at an end are further from the others than these are from each other.

    Args:
        days: In ascending order.
        end: -1 for the last days, 0 for the first.

    Returns:
        The fewest of which that holds; 0 if it holds of no `_ODD_DATES` days or fewer.
    """
    for number in range(1, min(_ODD_DATES, len(days) - 1) + 1):
        rest = days[:-number] if end else days[number:]
        gap = days[-number] - rest[-1] if end else rest[0] - days[number - 1]
        if gap > max(np.ptp(rest), _DECADE):
            return number
    return 0


def _padded(form: str, texts: Sequence[str]) -> str:
    """Return the form with or without zeros before single digits, as most texts are written."""
    if "%f" in form:
        return form
    # Days and months without zeros, then hours without them as well.
    short_days = re.sub("%([dm])", r"%-\1", form)
    short_hours = re.sub("%([HI])", r"%-\1", form)
    short_both = re.sub("%([HI])", r"%-\1", short_days)
    forms = [form, short_days, short_hours, short_both]
    # Months and halves of a day are written as 31-JAN-24 and 6:05 pm, too.
    forms += [re.sub("%([bB])", r"%^\1", option) for option in forms]
    forms += [option.replace("%p", "%P") for option in forms]
    # Only their form counts.
    times = [_parsed(text, form) for text in texts]

    def num_equal(option: str) -> int:
        written = [written_time(when, option) for when in times]
        return sum(map(str.__eq__, written, texts))

    return max(dict.fromkeys(forms), key=num_equal)


def follows(text: str, form: str) -> bool:
    """Return whether a text is a date or time of one form."""
    if not re.search(r":\d\d\.\d", text):
        form = form.replace(".%f", "")  # some writers leave off zeros
    # Nanoseconds, and the seven digits of .NET: a datetime holds microseconds.
    text = re.sub(r"(:\d\d\.\d{6})\d{1,3}", r"\1", text)
    if not _outline(form).fullmatch(text):
        return False
    try:
        when = _parsed(text, form)
    except ValueError:
        return False
    # A year of two digits beside four others is none: 2024 would be read as 20 and a rest.
    has_four_digits = "%y" in form and re.search(r"(?<!\d)\d{4}(?!\d)", text)
    return when.year >= 1000 and not has_four_digits


def _parsed(text: str, form: str) -> datetime:
    """Read a date or time by its form; ValueError if it has another one."""
    # A week is its Monday, which Python wants to be written.
    if "%V" in form and "%u" not in form:
        text = f"{text} 1"
        form = f"{form} %u"
    return datetime.strptime(text, form)  # noqa: DTZ007


@cache
def _outline(form: str) -> re.Pattern[str]:
    """Build a pattern that every text of a form matches, and few others.

    `strptime` keeps the patterns of five forms, and we try sixty of them: each would be compiled
    again for each column.
    """
    parts = re.split(r"(%.|\s+)", form)
    pattern = "".join(map(_outlined, parts))
    return re.compile(pattern)


def _outlined(part: str) -> str:
    """Return the pattern of one code of a form, of blanks, or of a text between codes."""
    if part.startswith("%"):
        # 3:7 is a ratio or a score, and no time.
        if part[1] in "MS":
            return r"\d\d"
        has_digits = part[1] in "dmyYHIfjGVu"
        return r"[ \d]\d*" if has_digits else ".+"
    if part.isspace():
        return r"\s+"
    return f"(?i:{re.escape(part)})"


def fits_form(table: Table, name: str, form: str) -> bool:
    """Return whether all texts of a column are datetimes of one form."""
    try:
        table.datetimes(name, form)
    except SchemaError:
        return False
    return True
