"""Files of SPSS, Stata and SAS: cells as codes, and what the file's dictionary says of them.

Such a file has rows and a *dictionary*: the variables' names and formats, which codes stand for a
missing value, and value labels such as 1 "male". Both are read through pyreadstat, which is
imported when the first such file is read. Numbers stay as the file has them, whatever the others
of their column are; the variable's format says which of them are dates.

**Guarantee**: a cell is read by itself and by its variable's entry in the dictionary. The
dictionary is public, as names of columns are: tables that differ by a row are taken to have one
dictionary. Labels that a program made from the rows (``encode`` of Stata, ``AUTORECODE`` of SPSS)
number the texts that occur; a cell's label is then its text all the same, its code is not. So
declare such a column by its labels, as `Schema.detect` does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from siloweave.errors import DataError, InputError
from siloweave.tables.parsing import DATETIME, DURATION

PROGRAMS: Mapping[str, str] = {
    ".sav": "SPSS",
    ".zsav": "SPSS",
    ".por": "SPSS",
    ".dta": "Stata",
    ".xpt": "SAS",
    ".sas7bdat": "SAS",
}
"""The program of each ending of a file's name."""
# What pyreadstat calls its readers, where that is not the file's ending.
_READERS = {".sav": "sav", ".zsav": "sav", ".xpt": "xport"}

# In microseconds.
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_EPOCH = date(1970, 1, 1).toordinal()
_ORIGINS = {
    "SPSS": date(1582, 10, 14).toordinal() - _EPOCH,
    "Stata": date(1960, 1, 1).toordinal() - _EPOCH,
    "SAS": date(1960, 1, 1).toordinal() - _EPOCH,
}
"""Where each program begins to count days and seconds, in days from 1970."""

# Names of formats, by what they show. Those that show a part alone, such as MONTH, are numbers.
_SPSS_DATES = {
    *("DATE", "ADATE", "EDATE", "JDATE", "SDATE"),
    *("MOYR", "QYR", "WKYR", "DATETIME", "YMDHMS"),
}
_SAS_TIMES = {
    *("TIME", "HHMM", "TOD", "TIMEAMPM"),
    *("IS8601TM", "E8601TM", "B8601TM"),
}
_SAS_DATETIMES = {
    *("DATETIME", "DATEAMPM", "MDYAMPM", "DTDATE"),
    *("IS8601DT", "E8601DT", "B8601DT", "B8601DN"),
}
_SAS_DATES = re.compile(
    r"(DATE|(DDMMYY|MMDDYY|YYMMDD)[BCDNPS]?|WEEKDAT[EX]|MONYY|YYMM|[IE]S?8601DA|B8601DA|JULIAN)"
)
# Months in each unit of Stata that is counted from January 1960.
_MONTHS = {"%tm": 1, "%tq": 3, "%th": 6}
# Stata's formats that show the time of day alone.
_CLOCK = re.compile(r"%tc(HH|hh):MM(:SS)?")


@dataclass(frozen=True)
class Variable:
    """The entry of one variable in a file's dictionary.

    Attributes:
        labels: Texts of codes, in the codes' order; codes that stand for a missing value are not
            among them.
        missing: Codes and ranges that stand for a missing value, as text. Their cells are missing.
    """

    labels: Mapping[float | str, str]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class StatisticalFile:
    """The rows of a file as codes, with its dictionary by column."""

    frame: pl.DataFrame
    variables: Mapping[str, Variable]


def read_statistical(
    file: Path,
    kind: str,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
) -> StatisticalFile:
    """Read a file of SPSS, Stata or SAS.

    Args:
        file: Where it is.
        kind: How its name ends, such as ".sav".
        columns: Which columns to take, in the file's order; all when None.
        encoding: The encoding of its texts, where the file does not say it or says it wrongly.

    Returns:
        Numbers as float64, texts, times of day as text, datetimes, and durations. A blank text is
        missing, since these programs have no other mark of a missing text.

    Raises:
        DataError: The file is damaged, of another program, or of a version that is not known.
        InputError: pyreadstat is not installed.
    """
    options: dict[str, Any] = {}
    if columns is not None:
        options["usecols"] = list(columns)
    raw, facts = _parsed(
        file,
        kind,
        encoding,
        disable_datetime_conversion=True,
        output_format="polars",
        **options,
    )
    # Read again without rows: with declared missing values, rows would hold their codes.
    _, dictionary = _parsed(
        file, kind, encoding, metadataonly=True, **_with_ranges(kind), **options
    )
    labels = facts.variable_value_labels
    if kind == ".sas7bdat":
        labels = _labels_beside(file, facts.original_variable_types, encoding)

    series = []
    variables = {}
    for name in facts.column_names:
        storage = facts.readstat_variable_types[name]
        form = facts.original_variable_types[name] or ""
        series.append(_cells(raw[name], PROGRAMS[kind], storage, form))
        variables[name] = _variable(
            labels.get(name, {}),
            dictionary.missing_ranges.get(name, []),
            is_text=storage == "string",
        )
    return StatisticalFile(pl.DataFrame(series), variables)


def _labels_beside(
    file: Path, formats: Mapping[str, str | None], encoding: str | None
) -> dict[str, Mapping[Any, Any]]:
    """Read the value labels of a SAS table from the catalogue of formats beside it.

    SAS writes formats of its user into a file of its own: that of the table's name, or `formats`.

    Args:
        file: The table.
        formats: The formats of its variables, by name.
        encoding: The encoding of its texts, see `read_statistical`.
    """
    own_catalogue = file.with_suffix(".sas7bcat")
    shared_catalogue = file.with_name("formats.sas7bcat")
    for catalogue in (own_catalogue, shared_catalogue):
        if catalogue.is_file():
            _, facts = _parsed(catalogue, ".sas7bcat", encoding)
            labels = {}
            for name, form in formats.items():
                format_name = _format_name(form or "")
                labels[name] = facts.value_labels.get(format_name, {})
            return labels
    return {}


def names_and_rows(
    file: Path, kind: str, encoding: str | None = None
) -> tuple[list[str], int | None]:
    """Read a file's column names, and the number of rows that it declares (None if it does not).

    Raises:
        DataError, InputError: As `read_statistical`.
    """
    _, facts = _parsed(file, kind, encoding, metadataonly=True)
    num_rows = facts.number_rows
    # Where a file does not say it, it may be -1.
    if num_rows is not None and num_rows < 0:
        num_rows = None
    return list(facts.column_names), num_rows


def _parsed(
    file: Path, kind: str, encoding: str | None, **options: Any
) -> tuple[Any, Any]:
    """Read the rows and the dictionary of a file with pyreadstat.

    Raises:
        DataError, InputError: As `read_statistical`.
    """
    try:
        pyreadstat = import_module("pyreadstat")
    except ModuleNotFoundError:
        raise InputError(
            f"{file.name}: files of SPSS, Stata and SAS need the package pyreadstat: pip install "
            "'.[stats]' in the clone. Or store the file as CSV"
        ) from None
    ending = _READERS.get(kind, kind.removeprefix("."))
    reader: Callable[..., Any] = getattr(pyreadstat, f"read_{ending}")
    if encoding is not None:
        options["encoding"] = encoding
    try:
        result: tuple[Any, Any] = reader(os.fspath(file), **options)
    except (
        pyreadstat.ReadstatError,
        pyreadstat.PyreadstatError,
        UnicodeError,
    ) as error:
        # A catalogue of formats is no kind of table; only SAS has such files.
        program = PROGRAMS.get(kind, "SAS")
        raise _unreadable(file, program, error) from None
    return result


def _unreadable(file: Path, program: str, error: Exception) -> DataError:
    """Return the error about a file that pyreadstat cannot read."""
    lines = str(error).splitlines() or [type(error).__name__]
    reason = lines[0].rstrip(".")
    if isinstance(error, UnicodeError) or "convert" in reason:
        advice = (
            "name the encoding of its texts, such as cp1252: encoding = 'cp1252' in the study, "
            "--encoding, or read(encoding='cp1252')"
        )
    else:
        advice = (
            f"it is damaged or cut off, of another program, or of a version of {program} that "
            f"is not known here. Open it in {program} and store it again (in Stata: saveold), "
            "or store it as CSV"
        )
    return DataError(
        f"cannot read {str(file)!r} as a file of {program}: {reason}; {advice}"
    )


def _with_ranges(kind: str) -> dict[str, Any]:
    """Return the option of pyreadstat that lists the codes SPSS takes for missing."""
    return {"user_missing": True} if kind in (".sav", ".zsav") else {}


def _variable(
    labels: Mapping[Any, Any], ranges: Sequence[Mapping[str, Any]], *, is_text: bool
) -> Variable:
    """Build a variable's entry, without labels of missing values, in the order of codes."""
    code_type: Any = str if is_text else (int, float)
    labels_by_code: dict[Any, str] = {}
    for code, label in labels.items():
        label_text = str(label).strip()
        # Stata's and SAS's special missing values, such as .a, are letters among numbers.
        if not isinstance(code, code_type) or not label_text:
            continue
        if any(_is_within(code, codes["lo"], codes["hi"]) for codes in ranges):
            continue
        plain_code = code.strip() if isinstance(code, str) else float(code)
        labels_by_code[plain_code] = label_text

    in_order = {code: labels_by_code[code] for code in sorted(labels_by_code)}
    range_texts = [_range_text(codes["lo"], codes["hi"]) for codes in ranges]
    return Variable(in_order, tuple(dict.fromkeys(range_texts)))


def _is_within(code: Any, low: Any, high: Any) -> bool:
    """Return whether a code is in a range; texts have single codes and no ranges."""
    if isinstance(low, str) or isinstance(code, str):
        return str(code).strip() == str(low).strip()
    return bool(low <= code <= high)


def _range_text(low: Any, high: Any) -> str:
    """Write a code, or a range of codes, as text."""
    if isinstance(low, str):
        return low.strip()
    # Of the digits of a double, all that a decimal number keeps.
    if low == high:
        return f"{low:.15g}"
    return f"{low:.15g} to {high:.15g}"


# Cells


def _cells(raw: pl.Series, program: str, storage: str, form: str) -> pl.Series:
    """Convert a column's cells, each by itself, by the variable's storage and format."""
    if storage == "string":
        texts = raw.cast(pl.String)
        is_blank = texts.str.strip_chars() == ""
        return texts.set(is_blank.fill_null(False), None)

    numbers = raw.cast(pl.Float64).fill_nan(None)
    # A number of four bytes is read by its digits: 0.1 and not 0.10000000149.
    if storage == "float":
        numbers = numbers.cast(pl.Float32).cast(pl.String).cast(pl.Float64)
    if program == "Stata":
        return _of_stata(numbers, form)
    if program == "SPSS":
        return _of_spss(numbers, form)
    return _of_sas(numbers, form)


def _format_name(form: str) -> str:
    """Return the name in a format of SPSS or SAS without width and decimals, such as DATE."""
    return re.sub(r"[\d.]+$", "", form).upper()


def _of_spss(numbers: pl.Series, form: str) -> pl.Series:
    """Convert numbers of SPSS to what their format shows; its dates are seconds."""
    name = _format_name(form)
    if name == "DTIME":
        return _microseconds(numbers, _SECOND).cast(DURATION)
    if name == "TIME":
        return _clock_texts(numbers)
    if name in _SPSS_DATES:
        return _since(numbers, "SPSS", _SECOND)
    return numbers


def _of_sas(numbers: pl.Series, form: str) -> pl.Series:
    """Convert numbers of SAS to what their format shows; its dates are days."""
    name = _format_name(form)
    if name in _SAS_TIMES:
        return _clock_texts(numbers)
    if name in _SAS_DATETIMES:
        return _since(numbers, "SAS", _SECOND)
    if _SAS_DATES.fullmatch(name):
        return _since(numbers, "SAS", _DAY)
    return numbers


def _of_stata(numbers: pl.Series, form: str) -> pl.Series:
    """Convert numbers of Stata to what their format shows: milliseconds, days or months."""
    if _CLOCK.fullmatch(form):
        return _clock_texts(numbers / 1000.0)
    # A minus in a format puts values to the left.
    kind = form[:3].replace("%-t", "%t")
    if kind in ("%tc", "%tC"):
        return _since(numbers, "Stata", 1000)
    if kind == "%td" or form[:2] == "%d":
        return _since(numbers, "Stata", _DAY)
    if kind not in _MONTHS:
        return numbers

    # Months, quarters and half years are their first day.
    months = (numbers.floor() * _MONTHS[kind]).cast(pl.Int64, strict=False)
    years = 1960 + months // 12
    months_of_year = months % 12 + 1
    is_year = years.is_between(date.min.year, date.max.year).fill_null(False)
    parts = pl.DataFrame({"year": years.set(~is_year, None), "month": months_of_year})
    first_days = parts.select(pl.datetime("year", "month", 1, time_unit="us"))
    return first_days.to_series().alias(numbers.name)


def _microseconds(numbers: pl.Series, size: int) -> pl.Series:
    """Convert numbers of a unit, given in microseconds, to microseconds; null beyond int64."""
    return (numbers * size).round().cast(pl.Int64, strict=False)


def _since(numbers: pl.Series, program: str, size: int) -> pl.Series:
    """Return the datetimes that lie so many units of `size` microseconds after an origin."""
    micros = _microseconds(numbers, size) + _ORIGINS[program] * _DAY
    # What lies beyond the years 1 to 9999 is no datetime, and a code that was entered for one.
    first_day = date.min.toordinal() - _EPOCH
    last_day = date.max.toordinal() - _EPOCH
    earliest = first_day * _DAY
    latest = (last_day + 1) * _DAY - 1
    is_time = micros.is_between(earliest, latest).fill_null(False)
    return micros.set(~is_time, None).cast(DATETIME)


def _clock_texts(seconds: pl.Series) -> pl.Series:
    """Write times of day as text, such as 10:27:00, without fractions of a second."""
    whole_seconds = seconds.round().cast(pl.Int64, strict=False)
    hours = _two_digits(whole_seconds // 3600)
    minutes = _two_digits(whole_seconds // 60 % 60)
    rest = _two_digits(whole_seconds % 60)
    texts = hours + ":" + minutes + ":" + rest
    return texts.alias(seconds.name)


def _two_digits(numbers: pl.Series) -> pl.Series:
    """Write numbers as text of at least two digits."""
    return numbers.cast(pl.String).str.zfill(2)
