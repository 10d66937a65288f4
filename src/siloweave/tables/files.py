"""Files that hold tables: names are checked before anything is read; a table is written whole."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siloweave.errors import DataError

if TYPE_CHECKING:
    pass

__all__ = [
    "check_names",
    "csv_header",
    "table_file",
    "unreadable",
    "write",
]


def table_file(path: str | os.PathLike[str]) -> Path:
    """Return a table's path.

    Raises:
        DataError: When there is no such file, or it is neither CSV nor Parquet.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no file {str(file)!r}; check the path")
    if file.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"cannot read {file.name!r}: the name must end in .csv or .parquet")
    return file


def unreadable(file: Path, error: Exception) -> DataError:
    """Say why a file cannot be read. What a reader says of CSV lines quotes them, so not that."""
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    if file.suffix.lower() == ".csv" and not isinstance(error, OSError):
        if isinstance(error, UnicodeDecodeError) or "utf-8" in why.lower():
            why = "it is not UTF-8; save it as UTF-8"
        elif "more fields" in why:
            why = "a line has more fields than the first one; put values that hold commas in quotes"
        else:
            why = "a line cannot be parsed; look for a quotation mark that is not closed"
    return DataError(f"cannot read {str(file)!r} as a table: {why}")


def csv_header(file: Path) -> None:
    """Check a CSV file's first line.

    Raises:
        DataError: When the file is empty, its fields are divided by something else than commas, or
            a column name repeats or is missing.
    """
    with file.open(encoding="utf-8-sig", newline="") as lines:
        names = next(csv.reader(lines), [])
    if not names:
        raise DataError(f"{str(file)!r} is empty; it needs a first line of column names")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise DataError(f"{str(file)!r} has one column, {names[0]!r}; divide its fields by commas")
    check_names(names, repr(str(file)))


def check_names(names: Sequence[Any], where: str) -> None:
    """Check that column names are text and distinct.

    Raises:
        DataError: Naming those that are not.
    """
    twice = sorted({str(name) for name in names if list(names).count(name) > 1})
    if twice:
        raise DataError(f"{where} has column names twice: {', '.join(twice)}; rename them")
    odd = [name for name in names if not isinstance(name, str) or not name]
    if odd:
        raise DataError(f"{where} has column names that are no text: {odd}; rename them")


def write(table: Any, path: str | os.PathLike[str]) -> None:
    """Write a table as CSV or Parquet: whole or not at all.

    Args:
        table: What to write: a `Table` or a frame.
        path: Ends in ``.csv`` or ``.parquet``; an existing file is replaced.

    Raises:
        DataError: When the folder is missing or the name ends otherwise.
    """
    from siloweave.tables.read import read

    table, target = read(table), Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise DataError(f"cannot write {target.name!r}: the name must end in .csv or .parquet")
    if not target.parent.is_dir():
        raise DataError(f"cannot write {target}: its folder does not exist; create it first")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if suffix == ".csv":
            table._frame.write_csv(temporary)
        else:
            table._frame.write_parquet(temporary, compression="zstd")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
