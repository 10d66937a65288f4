"""Files of tables: the kinds that are known by the end of a name, and errors about a file.

A path may name a sheet of an Excel file, as in ``t.xlsx#Visits``, and a folder holds Parquet files.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import polars as pl

from siloweave.errors import DataError
from siloweave.tables.statistical_files import PROGRAMS

# Ends of names of files that can be read, by their kinds.
_TEXT_FILES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst")
_ARROW = (".arrow", ".feather", ".ipc")
JSON_LINES = (".jsonl", ".ndjson")
"""Ends of names of files of JSON lines."""
EXCEL = ".xlsx"
"""The end of an Excel file's name."""
_FILES = (*_TEXT_FILES, ".parquet", *_ARROW, *JSON_LINES, EXCEL, *PROGRAMS)
# The same for a reader.
_FILES_IN_ERRORS = (
    ".csv, .tsv (or these with .gz, .zst), .txt, .jsonl, .ndjson, .arrow, .parquet, .xlsx, .sav, "
    ".zsav, .por, .dta, .xpt or .sas7bdat"
)
# What can be done with other files that tables are often in.
_ADVICE = {
    ".zip": "unpack it",
    ".json": "write one object a line, as .jsonl",
    ".xls": "save it as .xlsx",
    ".xlsm": "save it as .xlsx",
    ".xlsb": "save it as .xlsx",
    ".ods": "save it as .xlsx",
    ".arff": "write a CSV, in Weka or from scipy.io.arff.loadarff",
    ".rds": "write a CSV, by write.csv in R",
    ".rdata": "write a CSV, by write.csv in R",
    ".bz2": "unpack it, or store it as .gz",
    ".xz": "unpack it, or store it as .gz",
}
SKIP_ADVICE = "or count them: --skip, skip = ... in the study, or read(skip=...)"
"""How lines above the names are declared."""
UNREADABLE = (pl.exceptions.PolarsError, OSError, UnicodeError, csv.Error)
"""Errors of readers about a file, which `unreadable` turns into one of ours."""


def file_kind(path: Path) -> str:
    """Return the end of a file's name that says its kind, such as ".csv.gz"; empty if unknown.

    A folder is taken to hold Parquet files.
    """
    if path.is_dir():
        return ".parquet"
    name = stored(path).name.lower()
    return next((end for end in _FILES if name.endswith(end)), "")


def stored(path: Path) -> Path:
    """Return the path without the sheet of an Excel file that it may name."""
    stem, mark, _ = str(path).partition(f"{EXCEL}#")
    # A file may have such a name itself.
    if mark and not path.is_file():
        return Path(stem + EXCEL)
    return path


def is_text_file(path: Path) -> bool:
    """Return whether a path names a CSV or a TSV, compressed or not."""
    return file_kind(path) in _TEXT_FILES


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path with the user's home folder for a ``~`` at its beginning.

    A shell does so before a program sees the path, and polars where it opens a file. Names such as
    ``~$a.xlsx`` stay.

    Example:
        >>> user_path("~/model") == Path.home() / "model", str(user_path("~$a.xlsx"))
        (True, '~$a.xlsx')
    """
    place = Path(path)
    if place.parts[:1] == ("~",):
        return place.expanduser()
    return place


def table_file(path: str | os.PathLike[str]) -> Path:
    """Return a table's path; raises DataError unless it is a file of a known kind that is there."""
    file = user_path(path)
    if file.is_dir() and any(file.glob("**/*.parquet")):
        return file
    if not stored(file).is_file():
        if file.is_dir():
            raise DataError(
                f"{str(file)!r} is a folder without .parquet files; name a file in it"
            )
        raise DataError(f"there is no file {str(file)!r}; check the path")
    if not file_kind(file):
        advice = _ADVICE.get(file.suffix.lower())
        rest = "" if advice is None else f"; {advice}"
        raise DataError(
            f"cannot read {file.name!r}: the name must end in {_FILES_IN_ERRORS}{rest}"
        )
    return file


def unreadable(file: Path, error: Exception) -> DataError:
    """Return the error which says why a file cannot be read.

    It goes without the reader's own message where that quotes lines of a CSV.
    """
    reason = getattr(error, "strerror", None) or first_line_of(error)
    if is_text_file(file) and not isinstance(error, OSError):
        reason = _text_reason(file, error, reason)
    elif file.is_dir() and isinstance(error, pl.exceptions.SchemaError):
        # What polars suggests behind it are arguments that a user cannot give here.
        mismatch = reason.partition(", hint")[0]
        reason = f"its files must have the same columns, of the same types ({mismatch})"
    return DataError(f"cannot read {str(file)!r} as a table: {reason}")


def _text_reason(file: Path, error: Exception, message: str) -> str:
    """Explain why a text file cannot be read, without quoting its text."""
    if isinstance(error, UnicodeError) or "utf" in message.lower():
        if file_kind(file).endswith(".zst"):
            return "text in a .zst file must be UTF-8, and this is not; store it so, or as .gz"
        return "it is not in the encoding that was given; leave it out, or name another"
    return "a line cannot be parsed; look for a quotation mark that is not closed"


def first_line_of(error: Exception) -> str:
    """Return the first line of an error's message, or its class if it has none."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
