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
_READERS = {".sav": "sav", ".zsav": "sav", ".xpt": "xport"}  # of pyreadstat; others as they end

_SECOND = 1_000_000  # in microseconds
_DAY = 86_400 * _SECOND
_EPOCH = date(1970, 1, 1).toordinal()
_ORIGINS = {
    "SPSS": date(1582, 10, 14).toordinal() - _EPOCH,
    "Stata": date(1960, 1, 1).toordinal() - _EPOCH,
    "SAS": date(1960, 1, 1).toordinal() - _EPOCH,
}
"""Where each program begins to count days and seconds, in days from 1970."""

# Names of formats, by what they show. Those that show a part alone, such as MONTH, are numbers.
_SPSS_DATES = {"DATE", "ADATE", "EDATE", "JDATE", "SDATE", "MOYR", "QYR", "WKYR", "DATETIME",
               "YMDHMS"}  # fmt: skip
_SAS_TIMES = {"TIME", "HHMM", "TOD", "TIMEAMPM", "IS8601TM", "E8601TM", "B8601TM"}
_SAS_DATETIMES = {"DATETIME", "E8601DT", "DATEAMPM", "MDYAMPM", "IS8601DT", "B8601DT", "B8601DN",
                  "DTDATE"}  # fmt: skip
_SAS_DATES = re.compile(
    r"(DATE|(DDMMYY|MMDDYY|YYMMDD)[BCDNPS]?|WEEKDAT[EX]|MONYY|YYMM|[IE]S?8601DA|B8601DA|JULIAN)"
)
_MONTHS = {"%tm": 1, "%tq": 3, "%th": 6}  # of Stata: units counted from January 1960
_CLOCK = re.compile(r"%tc(HH|hh):MM(:SS)?")


@dataclass(frozen=True)
class Variable:
    """What a file's dictionary says of one variable.

    Attributes:
        labels: Texts of codes, in the codes' order; codes that stand for a missing value are not
            among them.
        missing: Codes and ranges that stand for a missing value, as text. Their cells are missing.
    """

    labels: Mapping[float | str, str]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class StatisticalFile:
    """The rows of a file as codes, and its dictionary, by column."""

    frame: pl.DataFrame
    variables: Mapping[str, Variable]


def read_statistical(
    file: Path, kind: str, columns: Sequence[str] | None = None, encoding: str | None = None
) -> StatisticalFile:
    """Read a file of SPSS, Stata or SAS.

    Args:
        file: Where it is.
        kind: How its name ends, such as ".sav".
        columns: Which columns to take, in the file's order; all when None.
        encoding: Of its texts, where the file does not say it or says it wrongly.

    Returns:
        Numbers as float64, texts, times of day as text, datetimes, and durations. A blank text is
        missing, since these programs have no other mark of a missing text.

    Raises:
        DataError: The file is damaged, of another program, or of a version that is not known.
        InputError: pyreadstat is not installed.
    """
    options: dict[str, Any] = {} if columns is None else {"usecols": list(columns)}
    raw, facts = _parsed(
        file, kind, encoding, disable_datetime_conversion=True, output_format="polars", **options
    )
    _, dictionary = _parsed(
        file, kind, encoding, metadataonly=True, **_with_ranges(kind), **options
    )
    series = [
        _cells(
            raw[name],
            PROGRAMS[kind],
            facts.readstat_variable_types[name],
            facts.original_variable_types[name] or "",
        )
        for name in facts.column_names
    ]
    labels = facts.variable_value_labels
    if kind == ".sas7bdat":
        labels = _labels_beside(file, facts.original_variable_types, encoding)
    variables = {
        name: _variable(
            labels.get(name, {}),
            dictionary.missing_ranges.get(name, []),
            is_text=facts.readstat_variable_types[name] == "string",
        )
        for name in facts.column_names
    }
    return StatisticalFile(pl.DataFrame(series), variables)


def _labels_beside(
    file: Path, formats: Mapping[str, str | None], encoding: str | None
) -> dict[str, Mapping[Any, Any]]:
    """Return value labels of a SAS table, which are in a catalogue of formats beside it.

    SAS writes formats of its user into a file of its own: that of the table's name, or `formats`.

    Args:
        file: The table.
        formats: Of its variables, by name.
        encoding: As of `read_statistical`.
    """
    for catalogue in (file.with_suffix(".sas7bcat"), file.with_name("formats.sas7bcat")):
        if catalogue.is_file():
            _, facts = _parsed(catalogue, ".sas7bcat", encoding)
            names = {name: _format_name(form or "") for name, form in formats.items()}
            return {name: facts.value_labels.get(form, {}) for name, form in names.items()}
    return {}


def names_and_rows(
    file: Path, kind: str, encoding: str | None = None
) -> tuple[list[str], int | None]:
    """Return the columns' names and how many rows a file declares; None if it does not say it.

    Raises:
        DataError, InputError: As `read_statistical`.
    """
    _, facts = _parsed(file, kind, encoding, metadataonly=True)
    rows = facts.number_rows
    return list(facts.column_names), rows if rows is not None and rows >= 0 else None


def _parsed(file: Path, kind: str, encoding: str | None, **options: Any) -> tuple[Any, Any]:
    """What pyreadstat makes of a file."""
    try:
        pyreadstat = import_module("pyreadstat")
    except ModuleNotFoundError:
        raise InputError(
            f"{file.name}: files of SPSS, Stata and SAS need the package pyreadstat: pip install "
            "'siloweave[stats]'. Or store the file as CSV"
        ) from None
    reader: Callable[..., Any] = getattr(
        pyreadstat, f"read_{_READERS.get(kind, kind.removeprefix('.'))}"
    )
    if encoding is not None:
        options["encoding"] = encoding
    program = PROGRAMS.get(kind, "SAS")  # which has its value labels in a file of their own
    try:
        result: tuple[Any, Any] = reader(os.fspath(file), **options)
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, UnicodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
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
        raise DataError(
            f"cannot read {str(file)!r} as a file of {program}: {reason}; {advice}"
        ) from None
    return result


def _with_ranges(kind: str) -> dict[str, Any]:
    """The option by which a dictionary names the codes that SPSS takes for missing values."""
    return {"user_missing": True} if kind in (".sav", ".zsav") else {}


def _variable(
    labels: Mapping[Any, Any], ranges: Sequence[Mapping[str, Any]], *, is_text: bool
) -> Variable:
    """A variable's labels without those of missing values, in the order of their codes."""

    def is_declared_missing(code: Any) -> bool:
        return any(_is_within(code, one["lo"], one["hi"]) for one in ranges)

    kind: Any = str if is_text else (int, float)
    codes = {
        (code.strip() if isinstance(code, str) else float(code)): str(label).strip()
        for code, label in labels.items()
        # Stata's and SAS's special missing values, such as .a, are letters among numbers.
        if isinstance(code, kind) and str(label).strip() and not is_declared_missing(code)
    }
    missing = tuple(dict.fromkeys(_range_text(one["lo"], one["hi"]) for one in ranges))
    return Variable({code: codes[code] for code in sorted(codes)}, missing)


def _is_within(code: Any, low: Any, high: Any) -> bool:
    if isinstance(low, str) or isinstance(code, str):
        return str(code).strip() == str(low).strip()
    return bool(low <= code <= high)


def _range_text(low: Any, high: Any) -> str:
    """A code, or a range of them, as text."""
    if isinstance(low, str):
        return low.strip()
    return f"{low:.15g}" if low == high else f"{low:.15g} to {high:.15g}"


# Cells


def _cells(raw: pl.Series, program: str, storage: str, form: str) -> pl.Series:
    """A column's cells, each by itself and by the variable's storage and format."""
    if storage == "string":
        text = raw.cast(pl.String)
        return text.set((text.str.strip_chars() == "").fill_null(False), None)
    numbers = raw.cast(pl.Float64).fill_nan(None)
    if storage == "float":  # of four bytes: by its digits, 0.1 and not 0.10000000149
        numbers = numbers.cast(pl.Float32).cast(pl.String).cast(pl.Float64)
    if program == "Stata":
        return _of_stata(numbers, form)
    name = _format_name(form)
    if program == "SPSS":
        if name == "DTIME":
            return _microseconds(numbers, _SECOND).cast(DURATION)
        if name == "TIME":
            return _clock_texts(numbers)
        return _since(numbers, program, _SECOND) if name in _SPSS_DATES else numbers
    if name in _SAS_TIMES:
        return _clock_texts(numbers)
    if name in _SAS_DATETIMES:
        return _since(numbers, program, _SECOND)
    return _since(numbers, program, _DAY) if _SAS_DATES.fullmatch(name) else numbers


def _format_name(form: str) -> str:
    """A format of SPSS or SAS without its width and decimals, such as DATE of DATE9."""
    return re.sub(r"[\d.]+$", "", form).upper()


def _of_stata(numbers: pl.Series, form: str) -> pl.Series:
    if _CLOCK.fullmatch(form):
        return _clock_texts(numbers / 1000.0)
    kind = form[:3].replace("%-t", "%t")
    if kind in ("%tc", "%tC"):
        return _since(numbers, "Stata", 1000)
    if kind == "%td" or form[:2] == "%d":
        return _since(numbers, "Stata", _DAY)
    if kind not in _MONTHS:
        return numbers
    months = (numbers.floor() * _MONTHS[kind]).cast(pl.Int64, strict=False)
    years = 1960 + months // 12
    is_year = years.is_between(date.min.year, date.max.year).fill_null(False)
    parts = pl.DataFrame({"year": years.set(~is_year, None), "month": months % 12 + 1})
    first_days = parts.select(pl.datetime("year", "month", 1, time_unit="us"))
    return first_days.to_series().alias(numbers.name)


def _microseconds(numbers: pl.Series, size: int) -> pl.Series:
    """Numbers of units of so many microseconds as whole microseconds; null beyond int64."""
    return (numbers * size).round().cast(pl.Int64, strict=False)


def _since(numbers: pl.Series, program: str, size: int) -> pl.Series:
    """Datetimes so many units of microseconds after a program's origin."""
    micros = _microseconds(numbers, size) + _ORIGINS[program] * _DAY
    # What lies beyond the years 1 to 9999 is no datetime, and a code that was entered for one.
    first = (date.min.toordinal() - _EPOCH) * _DAY
    last = (date.max.toordinal() - _EPOCH + 1) * _DAY - 1
    is_time = micros.is_between(first, last).fill_null(False)
    return micros.set(~is_time, None).cast(DATETIME)


def _clock_texts(seconds: pl.Series) -> pl.Series:
    """Times of day as text, such as 10:27:00; a fraction of a second is rounded away."""
    whole = seconds.round().cast(pl.Int64, strict=False)
    hours, minutes, rest = (whole // 3600, whole // 60 % 60, whole % 60)
    parts = [part.cast(pl.String).str.zfill(2) for part in (hours, minutes, rest)]
    return (parts[0] + ":" + parts[1] + ":" + parts[2]).alias(seconds.name)
