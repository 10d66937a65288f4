"""What one cell says: its text, and the number, the time or the flag that a text stands for.

Every function maps the cells of a column one by one: what a cell becomes depends on that cell and
on declared arguments, never on the other cells. The reading of a column under a schema
(`tables.cells`) is made of these functions alone, so one row more changes no other row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from siloweave.errors import SchemaError
from siloweave.tables.forms import number_form

WHOLE = frozenset(
    {pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32}
)
"""Types of whole numbers that a table holds."""
DATETIME = pl.Datetime("us")
"""The type of datetimes, in UTC."""
DURATION = pl.Duration("us")
"""The type of durations."""
UNITS = {
    "days": 86_400_000_000,
    "hours": 3_600_000_000,
    "minutes": 60_000_000,
    "seconds": 1_000_000,
    "milliseconds": 1000,
    "microseconds": 1,
}
"""Microseconds in each unit of durations."""
LARGEST = 2**62
"""Whole numbers are smaller than this in size."""
# ISO-8601: a day, or a day and a time behind T or a blank, with or without seconds and offset.
_ISO = (
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S%.f%#z",
    "%Y-%m-%d %H:%M:%S%.f%#z",
    "%Y-%m-%dT%H:%M%#z",
    "%Y-%m-%d %H:%M%#z",
)
_FLAGS = {"true": True, "false": False, "1": True, "0": False}
# 1.234 where a comma stands before decimals.
_GROUPED = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?$"
# A duration as Python writes it: 1:05:00, or -1 day, 23:59:59.500000.
_DURATION_TEXT = r"^(?:(-?\d{1,8}) days?, )?(\d{1,2}):(\d\d):(\d\d)(?:\.(\d{6}))?$"
# A duration as it comes from Excel, which counts from 1899-12-31 on: 36:00:00 is this.
_SHEET_DURATION = r"^(?:1899-12-31|190\d-\d\d-\d\d) \d\d:\d\d:\d\d(?:\.\d+)?$"
_SHEET_START = datetime(1899, 12, 31)  # noqa: DTZ001  a sheet has no zones
# Excel has a day between these two, of which no calendar knows.
_SHEET_LEAP_DAY = datetime(1900, 3, 1)  # noqa: DTZ001
# Codes of a time of day alone lack all of these, which name a day.
_DAY_CODES = "%[YymdbBjcxDFsUWGVuA]"


def texts_of(series: pl.Series) -> pl.Series:
    """Return every cell as text; null where there is no value.

    A number that is whole is its digits, whatever type holds it, so that 1 and 1.0 have one text.
    A boolean is "true" or "false", a datetime its ISO-8601 text, and a midnight its day; a duration
    is written as Python has it.

    Example:
        >>> texts_of(pl.Series([1.0, 2.5, None])).to_list()
        ['1', '2.5', None]
    """
    if series.dtype == pl.String:
        return series
    if series.dtype == pl.Float64:
        values = series.fill_nan(None)
        is_small = values.abs() < LARGEST
        is_whole = (values == values.round()) & is_small
        whole_values = values.set(~is_whole, None)
        digits = whole_values.cast(pl.Int64, strict=False).cast(pl.String)
        return digits.fill_null(values.cast(pl.String))
    if series.dtype == DATETIME:
        written = series.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f")
        # A fraction loses the zeros at its end, and its point; a midnight loses its time.
        shortened = written.str.replace(r"\.?0*$", "")
        return shortened.str.replace("T00:00:?0?0?$", "")
    if series.dtype == DURATION:
        return pl.Series(series.name, texts_of_mixed(series.to_list()), dtype=pl.String)
    return series.cast(pl.String)


def texts_of_mixed(values: Sequence[Any]) -> list[str | None]:
    """Return every value of a list of several types as text, as `texts_of` writes it.

    Example:
        >>> texts_of_mixed([7, 7.0, True, None, "x"])
        ['7', '7', 'true', None, 'x']
    """
    texts: list[str | None] = [None] * len(values)
    floats: dict[int, float] = {}
    times: dict[int, datetime] = {}
    for place, value in enumerate(values):
        if _is_missing(value):
            continue
        if isinstance(value, bool | np.bool_):
            texts[place] = str(value).lower()
        elif isinstance(value, np.float32 | np.float16):
            # By its digits, as in a column of such numbers: 0.1 and not 0.10000000149.
            floats[place] = float(str(value))
        elif isinstance(value, float | np.floating | Decimal):
            floats[place] = float(value)
        elif isinstance(value, datetime):
            if value.tzinfo:
                value = value.astimezone(UTC).replace(tzinfo=None)
            times[place] = value
        else:
            texts[place] = str(value)

    # Numbers and times have the text that a column of such values has.
    for values_by_place, dtype in ((floats, pl.Float64), (times, DATETIME)):
        typed_values = list(values_by_place.values())
        series = pl.Series(typed_values, dtype=dtype)
        series_texts = texts_of(series).to_list()
        for place, text in zip(values_by_place, series_texts, strict=True):
            texts[place] = text
    return texts


def _is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN or NaT."""
    # A signalling NaN of Python's decimals refuses to be compared.
    if isinstance(value, Decimal):
        return value.is_nan()
    # NaN and NaT differ from themselves.
    return bool(value is None or value != value)


def numbers_of(
    text: pl.Series, form: str | None = None, decimal: str = "."
) -> pl.Series:
    """Read each text as a number; null for a text that is no number.

    Args:
        text: Cells as text; blanks around a number do not count.
        form: How numbers are written, as `forms.number_form` reads it.
        decimal: The mark before decimals where there is no form. With a comma, points divide
            thousands, and "1.5" is no number.

    Example:
        >>> numbers_of(pl.Series(["1.234", "1,5", "1.5"]), decimal=",").to_list()
        [1234.0, 1.5, None]
    """
    text = text.str.strip_chars()
    if form is not None:
        return _numbers_in_form(text, form)
    if decimal == ",":
        has_point = text.str.contains(".", literal=True)
        is_grouped = text.str.contains(_GROUPED)
        is_readable = (~has_point | is_grouped).fill_null(True)
        text = text.set(~is_readable, None)
        # The order counts: points of thousands go before the comma becomes one.
        without_points = text.str.replace_all(".", "", literal=True)
        text = without_points.str.replace(",", ".", literal=True)
    return text.cast(pl.Float64, strict=False)


def _numbers_in_form(text: pl.Series, form: str) -> pl.Series:
    """Read each text as a number in a form such as "1.234,5 €"; null for other texts."""
    parts = number_form(form)
    digits = text.str.extract(parts.pattern)
    if parts.thousands:
        mark = re.escape(parts.thousands)
        # A blank may be written as any other: U+00A0 and U+202F do not break lines.
        if parts.thousands.isspace():
            mark = r"\s"
        digits = digits.str.replace_all(mark, "")
    if parts.decimal == ",":
        digits = digits.str.replace(",", ".", literal=True)
    sizes = digits.cast(pl.Float64, strict=False)

    # In parentheses, as accounts have it; with a minus before it, or behind.
    is_negative = text.str.contains(r"^[(]|^[^0-9]*[-\u2212]|\d[-\u2212]")
    sign = pl.when(is_negative).then(-1.0).otherwise(1.0)
    signs = pl.select(sign).to_series()
    return (sizes * signs).alias(text.name)


def whole_numbers_of(
    numbers: pl.Series, text: pl.Series | None = None
) -> tuple[pl.Series, pl.Series]:
    """Round numbers to int64 (half to even); return them, and which of them were whole.

    Args:
        numbers: The number in each cell, float64. Where it is null or NaN, there is no number,
            and the result is null. What is larger than `LARGEST` in size becomes that bound, and is
            not whole.
        text: The same cells as text, from which digits are taken that float64 does not hold.
    """
    numbers = numbers.fill_nan(None)
    bound = float(LARGEST)
    bounded = numbers.clip(-bound, bound)
    rounded = bounded.round(mode="half_to_even")
    rounded = rounded.cast(pl.Int64, strict=False)
    is_small = numbers.abs() < bound
    is_whole = (numbers == numbers.round()) & is_small
    if text is not None:
        # A cell is a number only where it was read as one: here are its digits alone.
        exact = text.str.strip_chars().cast(pl.Int64, strict=False)
        exact = exact.set(numbers.is_null(), None)
        rounded = exact.fill_null(rounded)
        is_whole |= exact.is_not_null()
    return rounded, is_whole.fill_null(False)


def times_of(text: pl.Series, pattern: str | None = None) -> pl.Series:
    """Read each text as a datetime in UTC; null for a text that is no datetime.

    Args:
        text: Cells as text. Where the pattern has no point, digits with ``.0`` behind them are the
            whole number that they stand for, such as 20240131.
        pattern: ``strptime`` codes; ISO-8601 when None: a day, or a day and a time behind T or a
            blank, with or without seconds, and with or without an offset.

    Raises:
        SchemaError: The pattern is no format of datetimes.

    Example:
        >>> times_of(pl.Series(["20240131.0", "2024-01-31"]), "%Y%m%d").to_list()
        [datetime.datetime(2024, 1, 31, 0, 0), None]
    """
    text = text.str.strip_chars()
    # 20240131.0, as a column of floats was written.
    if pattern is not None and "." not in pattern:
        text = text.str.replace(r"^(\d+)\.0*$", "${1}")

    # The first of the formats that reads a cell decides.
    parsed = pl.Series(text.name, [None] * len(text), dtype=DATETIME)
    formats = _ISO if pattern is None else _polars_patterns(pattern)
    for codes in formats:
        full_text, full_codes = _completed(text, codes)
        try:
            times = full_text.str.to_datetime(
                full_codes, strict=False, time_unit="us", exact=True
            )
        except pl.exceptions.PolarsError:
            raise SchemaError(
                f"column {text.name!r}: {pattern!r} is not a datetime format; use strptime codes"
            ) from None
        parsed = parsed.fill_null(in_utc(times))
        if parsed.null_count() == text.null_count():
            break
    return parsed


def time_of(name: str, text: str, pattern: str | None = None) -> datetime | None:
    """Read one text as a UTC time, as `times_of` reads the column of that name.

    None where the text is no time of the pattern.

    Example:
        >>> time_of("born", "31.01.2024", "%d.%m.%Y")
        datetime.datetime(2024, 1, 31, 0, 0)
    """
    when: datetime | None = times_of(pl.Series(name, [text]), pattern).item()
    return when


def _polars_patterns(pattern: str) -> tuple[str, ...]:
    """Return the patterns with which polars reads the datetimes of one of Python's formats.

    A fraction without a point before it has three digits or six.
    """
    # Polars has codes of its own for a fraction with its point, and for all kinds of offsets. It
    # reads months in small and capital letters.
    codes = pattern.replace(".%f", "%.f").replace("%z", "%#z").replace("%^", "%")
    if "%f" not in codes:
        return (codes,)
    return codes.replace("%f", "%3f"), codes.replace("%f", "%6f")


def _completed(text: pl.Series, codes: str) -> tuple[pl.Series, str]:
    """Add to cells and codes the parts of a date that polars needs and the text lacks."""
    has_month = re.search("%-?[mbB]", codes)
    has_day_of_month = re.search("%-?[dejxDFcs]", codes)
    # A time of day is one of 1970-01-01.
    if not re.search(_DAY_CODES, codes):
        text = "1970-01-01 " + text
        codes = f"%Y-%m-%d {codes}"
    # A month is its first day.
    elif has_month and not has_day_of_month:
        text = text + " 1"
        codes = f"{codes} %d"
    # A week is its Monday.
    elif "%V" in codes and not re.search("%[uwaA]", codes):
        text = text + " 1"
        codes = f"{codes} %u"
    # The date says which day of the week it is.
    if codes.startswith("%a"):
        text = text.str.replace(r"^\w+,? ", "")
        codes = codes[2:].lstrip(", ")
    return text, codes


def in_utc(times: pl.Series) -> pl.Series:
    """Convert datetimes to UTC in microseconds, without a time zone."""
    zone = getattr(times.dtype, "time_zone", None)
    if zone:
        times = times.dt.convert_time_zone("UTC")
    return times.dt.replace_time_zone(None).cast(DATETIME)


def check_zone(where: str, zone: str) -> None:
    """Raise SchemaError unless a text names a time zone, such as Europe/Berlin or +01:00."""
    if re.fullmatch(r"[+-]\d\d:\d\d", zone):
        return
    try:
        pl.Series([0], dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
    except pl.exceptions.PolarsError:
        raise SchemaError(
            f"{where}: zone={zone!r} is no time zone; give a name such as 'Europe/Berlin', or an "
            "offset such as '+01:00'"
        ) from None


def durations_in(cells: pl.Series, unit: str) -> pl.Series:
    """Count how many units each duration lasts, as float64; null for an empty cell.

    Example:
        >>> durations_in(pl.Series([90_000_000], dtype=DURATION), "minutes").to_list()
        [1.5]
    """
    return cells.cast(pl.Int64).cast(pl.Float64) / UNITS[unit]


def durations_of(text: pl.Series) -> pl.Series:
    """Read each text as a duration, as `texts_of` writes one; null for any other text.

    What Excel has for a duration is one, too: the time of so many days after 1899-12-31.

    Example:
        >>> durations_of(pl.Series(["1:30:00", "-1 day, 23:00:00", "90"])).to_list()
        [datetime.timedelta(seconds=5400), datetime.timedelta(days=-1, seconds=82800), None]
        >>> durations_of(pl.Series(["1900-01-01 12:00:00"])).item().total_seconds() / 3600
        36.0
    """
    parts = text.str.extract_groups(_DURATION_TEXT).struct.unnest()
    numbers = parts.with_columns(pl.all().cast(pl.Int64))
    days, hours, minutes, seconds, micros = numbers.get_columns()
    total = (
        days.fill_null(0) * UNITS["days"]
        + hours * UNITS["hours"]
        + minutes * UNITS["minutes"]
        + seconds * UNITS["seconds"]
        + micros.fill_null(0)
    )
    durations = total.cast(DURATION).alias(text.name)
    is_of_sheet = text.str.contains(_SHEET_DURATION)
    if not is_of_sheet.any():
        return durations
    times = times_of(text.set(~is_of_sheet, None))
    of_sheet = (times - _SHEET_START).cast(DURATION)
    is_late = (times >= _SHEET_LEAP_DAY).fill_null(False)
    of_sheet = of_sheet.zip_with(~is_late, of_sheet + timedelta(days=1))
    return durations.fill_null(of_sheet)


def flags_of(text: pl.Series) -> pl.Series:
    """Read each text as a boolean: true, false, 1 or 0, in any case; null for others."""
    lower = text.str.strip_chars().str.to_lowercase()
    return lower.replace_strict(_FLAGS, default=None, return_dtype=pl.Boolean)
