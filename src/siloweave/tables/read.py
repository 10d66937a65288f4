"""Tables in: from frames, files and databases, whole or in pieces, all rows or a sample.

Each kind of source has its own file beside this one; what the rows were made from is stored in the
table's `Origin`. Names of columns are checked before a file is read.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import shake_256
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from siloweave.errors import DataError, InputError
from siloweave.tables.column_names import check_name, check_names
from siloweave.tables.database import Database
from siloweave.tables.dialect import Dialect, csv_header
from siloweave.tables.files import (
    EXCEL,
    JSON_LINES,
    UNREADABLE,
    file_kind,
    is_text_file,
    table_file,
    unreadable,
)
from siloweave.tables.forks import check_process
from siloweave.tables.native_types import (
    first_nested,
    normal_frame,
    objects_of,
    pandas_values,
    plain_types,
    series_of,
    zones_of,
)
from siloweave.tables.nested import keys_of_lines, nested_in_lines
from siloweave.tables.origin import CodedColumn, Origin, TextFileColumn, units_of
from siloweave.tables.spreadsheets import read_sheet
from siloweave.tables.statistical_files import (
    PROGRAMS,
    names_and_rows,
    read_statistical,
)
from siloweave.tables.table import Table
from siloweave.tables.text_encoding import word_readings
from siloweave.tables.text_files import scan_text, wide_lines, without_texts

_log = logging.getLogger("siloweave")
# Rows of a piece of a Parquet file.
_BATCH_ROWS = 1_000_000
# What pandas and pyarrow call an index without a name where they store it as a column.
_INDEX = re.compile(r"__index_level_\d+__")
# Rows that are drawn by one digest. Another size would draw other rows for the same secret.
_BLOCK_ROWS = 1 << 16


def read(
    source: Any,
    *,
    table: str = "",
    query: str = "",
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    decimal: str = ".",
    missing: Sequence[str] = (),
    short_lines: bool = False,
    skip: int | None = None,
    names: Sequence[str] = (),
) -> Table:
    """Read a table.

    Args:
        source: A path, a pandas, polars or arrow frame, a `Table`, or a `Database` or its address.
            Files are CSV or TSV (also compressed: ``.csv.gz``, ``.csv.zst``), JSON lines, Arrow,
            Parquet or a folder of Parquet files, or Excel: ``file.xlsx``, and
            ``file.xlsx#Sheet`` where it has several sheets. In a CSV an empty field is missing;
            types are those that every value of a column fits. Files of SPSS (.sav, .zsav, .por),
            Stata (.dta) and SAS (.xpt, .sas7bdat) are read with their value labels, and codes that
            they declare as missing are missing.
        table: The table of a database, where an address is given.
        query: A SELECT instead. Rows are in its order.
        columns: Which columns to take, in this order; all when None.
        separator: What divides the fields of a CSV; decided from the file when None.
        encoding: The encoding of its characters; UTF-8 when None, or UTF-16 if the file begins
            with its mark. Bytes that are not in it become U+FFFD, and a warning is logged;
            `encoding_of` guesses which one it is.
        header: Whether its first line has names; decided from the file when None.
        decimal: The mark before decimals.
        missing: Texts that stand for a missing value in every column.
        short_lines: Whether a line may leave off empty fields at its end, as Excel writes some.
        skip: How many lines lie above the names; decided from the file when None.
            `Table.dialect` holds all seven as they were used.
        names: The columns' names, as a schema has them: the separator and the line of names of a
            CSV are then found by these, and no row has a say in it.

    Returns:
        The table. Text stays text. An index of pandas is no column, of a frame or, if it has no
        name, of a file; a warning says so.

    Raises:
        DataError: When the file is missing, unreadable or no table, a column name repeats or is
            no text, a table cannot hold a column's type, or a database does not answer.
        InputError: When an option is not one, or a package for Excel, a database, or files of SPSS,
            Stata and SAS is missing.

    Example:
        >>> read(pl.DataFrame({"age": [30, None]})).missing("age").tolist()
        [False, True]
    """
    if table or query:
        source = Database(str(source), table, query)
    dialect = Dialect(
        separator=separator,
        encoding=encoding,
        header=header,
        decimal=decimal,
        missing=tuple(missing),
        short_lines=short_lines,
        skip=skip,
        names=tuple(names),
    )
    whole_table = read_as(source, dialect, columns)
    if whole_table.hint and isinstance(source, str | os.PathLike):
        _log.warning("%s was read as one column: %s", source, whole_table.hint)
    if not isinstance(source, Table):
        for note in whole_table.notes:
            _log.warning("%s: %s", source, note)
    # A table that was read before has been warned of; a study says so itself.
    is_new = not names and not isinstance(source, Table | ParquetFile)
    if whole_table.has_index and is_new:
        warnings.warn(
            "the index of pandas in this table has no name, is no column, and drawn rows lack it; "
            "name it before the table is written, or leave it out: to_parquet(path, index=False)",
            stacklevel=2,
        )
    if columns is None:
        return whole_table
    return whole_table.select(columns)


def read_as(
    source: Any, dialect: Dialect, columns: Sequence[str] | None = None
) -> Table:
    """Read a source of any kind, see `read`; it is for the caller to say what `Table.hint` says."""
    check_process()
    if isinstance(source, Table):
        return source
    if isinstance(source, Database):
        return Table(normal_frame(source.read()), Origin())
    if isinstance(source, ParquetFile):
        return _read_file(source.path, dialect, source.columns)
    if isinstance(source, str | os.PathLike):
        # Refuses the address of a database without a table.
        unread(source)
        return _read_file(table_file(source), dialect, columns)
    if isinstance(source, pl.DataFrame):
        check_names(source.columns, "the frame")
        return _read_arrays(source, "polars", dict(source.schema))

    # Pandas and pyarrow are recognised by their names: they may not be installed.
    package = type(source).__module__.partition(".")[0]
    if package == "pandas" and type(source).__name__ == "DataFrame":
        return _read_pandas(source)
    # A series of pandas or polars, a single column, has such a stream, too.
    is_series = type(source).__name__ == "Series"
    if hasattr(source, "__arrow_c_stream__") and not is_series:
        return _read_arrow_stream(source, package)
    example = "pandas.DataFrame(data)"
    if isinstance(source, pl.LazyFrame):
        example = "frame.collect()"
    raise DataError(
        f"cannot read a {type(source).__name__}; give a path (.csv, .parquet) or a pandas, polars "
        f"or arrow frame, such as {example}"
    )


def _read_pandas(source: Any) -> Table:
    """Return the table of a frame of pandas."""
    check_names(list(source.columns), "the frame")
    _warn_of_index(source)
    columns = []
    types = dict(source.dtypes)
    nested = {}
    for name in source.columns:
        values, is_missing = pandas_values(source[name])
        columns.append(series_of(name, values, is_missing, mixed=True))
        first_row = first_nested(values) if values.dtype == object else None
        if first_row is not None:
            nested[name] = first_row
        if str(types[name]) == "object":
            types[name] = objects_of(values[~is_missing]) or types[name]
    frame = normal_frame(columns)
    origin = Origin("pandas", types, units=units_of(frame), nested=nested)
    return Table(frame, origin)


def _warn_of_index(source: Any) -> None:
    """Warn of a named index of pandas, such as dates or ids, that is no column of the table."""
    labels = [name for name in source.index.names if name is not None]
    lost = [repr(name) for name in labels if name not in source.columns]
    if lost:
        warnings.warn(
            f"the frame's index {' and '.join(lost)} is no column, and drawn rows lack it; "
            "frame.reset_index() makes it one",
            stacklevel=5,  # the line that called `read`
        )


def _read_arrow_stream(source: Any, package: str) -> Table:
    """Return the table of an arrow frame, or of a library's frame that arrow can read."""
    check_names(list(getattr(source, "column_names", ())), "the frame")
    kind: Literal["arrow", "polars"] = "polars"
    dtypes = {}
    if package == "pyarrow":
        kind = "arrow"
        dtypes = {column.name: column.type for column in source.schema}
    return _read_arrays(pl.DataFrame(source), kind, dtypes)


def _read_arrays(
    source: pl.DataFrame, kind: Literal["arrow", "polars"], dtypes: dict[str, Any]
) -> Table:
    """Return the table of arrays of arrow, in which pandas may have stored its index."""
    index_names = _index_names(source.columns)
    frame = normal_frame(source.drop(index_names).get_columns())
    has_index = bool(index_names)
    return Table(
        frame, Origin(kind, dtypes, units=units_of(frame), has_index=has_index)
    )


def _index_names(names: Sequence[str]) -> list[str]:
    """Return the columns in which pandas stored an index without a name."""
    return [name for name in names if _INDEX.fullmatch(name)]


def _read_file(file: Path, dialect: Dialect, columns: Sequence[str] | None) -> Table:
    """Return the table of a file, of some columns or all."""
    try:
        lazy, origin = _scan(file, dialect)
        if columns is not None:
            file_names = lazy.collect_schema().names()
            for name in columns:
                check_name(name, file_names)
            lazy = lazy.select(*dict.fromkeys(columns))
        cells = lazy.collect()
    except UNREADABLE as error:
        raise _unreadable(file, error, dialect) from None

    blanked_columns = _blanked_columns(cells, origin)
    if origin.is_text or origin.has_keys:
        text_columns = {}
        for column in blanked_columns:
            if column.dtype == pl.String:
                file_type = origin.file_types.get(column.name)
                text_column = TextFileColumn(column, dialect.decimal, file_type)
                text_columns[column.name] = text_column
        origin = replace(origin, text_columns=text_columns)
    frame = normal_frame(blanked_columns)
    nested = {}
    if origin.has_keys:
        nested = nested_in_lines(file, _like_nested(frame))
    return Table(frame, replace(origin, units=units_of(frame), nested=nested))


def _like_nested(frame: pl.DataFrame) -> set[str]:
    """Return the columns of JSON lines in which a cell is written like a list or an object.

    It may be a text in quotation marks, which a cell has no more: the line itself decides.
    """
    names = set()
    for column in frame.get_columns():
        is_like_one = column.cast(pl.String).str.contains(r"^\s*[\[{]")
        if is_like_one.any():
            names.add(column.name)
    return names


def _unreadable(file: Path, error: Exception, dialect: Dialect) -> DataError:
    """Return the error which says why a file cannot be read, of a text file with its lines."""
    if is_text_file(file) and "more fields" in str(error):
        return wide_lines(file, dialect)
    return unreadable(file, error)


def _blanked_columns(frame: pl.DataFrame, origin: Origin) -> list[pl.Series]:
    """Make empty fields of a text file missing, quoted or not, and texts declared as missing."""
    if not origin.is_text:
        return frame.get_columns()
    # Those of a sheet were made missing as it was read.
    missing: tuple[str, ...] = ()
    if origin.dialect is not None:
        missing = origin.dialect.missing
    return without_texts(frame, missing).get_columns()


def _scan(file: Path, requested: Dialect) -> tuple[pl.LazyFrame, Origin]:
    """Open a file without reading its rows, if possible; return them, and their origin."""
    kind = file_kind(file)
    if kind == ".parquet":
        pattern = file / "**/*.parquet" if file.is_dir() else file
        return _scan_arrays(pl.scan_parquet(pattern))

    if kind == EXCEL:
        # Like a CSV, a sheet is text, and has no dialect.
        sheet = read_sheet(file, requested)
        origin = Origin(
            "csv",
            file_types=sheet.types,
            blank_lines=sheet.other_lines,
            notes=sheet.notes,
        )
        return sheet.cells.lazy(), origin

    if kind in JSON_LINES:
        return _scan_json_lines(file, requested.names)
    if kind in PROGRAMS:
        return _scan_statistical(file, kind, requested.encoding)
    if is_text_file(file):
        return _scan_text_file(file, requested)
    return _scan_arrays(pl.scan_ipc(file))


def _scan_arrays(lazy: pl.LazyFrame) -> tuple[pl.LazyFrame, Origin]:
    """Leave out the index of pandas, and return the other columns and their origin."""
    types = lazy.collect_schema()
    index_names = _index_names(types.names())
    origin = Origin(zones=zones_of(types), has_index=bool(index_names))
    return lazy.drop(index_names), origin


def _scan_json_lines(file: Path, names: Sequence[str]) -> tuple[pl.LazyFrame, Origin]:
    """Open a file of JSON lines, see `_scan`."""
    types = _key_types(file, names)
    # Scanned again as text: a value is then read by itself, whatever the others are.
    text_types = dict.fromkeys(types, pl.String)
    lazy = pl.scan_ndjson(file, schema=text_types)
    return lazy, Origin(has_keys=True, file_types=plain_types(types))


def _key_types(file: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the keys of JSON lines and the type that fits all values of each.

    Where none fits, as with a number here and a list there, values are texts, of the known names or
    of all keys: one value must not decide whether a table is read.
    """
    try:
        types = pl.scan_ndjson(file, infer_schema_length=None).collect_schema()
    except pl.exceptions.PolarsError:
        text_names = names or keys_of_lines(file)
        if not text_names:
            raise
        return dict.fromkeys(text_names, pl.String)
    return dict(types)


def _scan_statistical(
    file: Path, kind: str, encoding: str | None
) -> tuple[pl.LazyFrame, Origin]:
    """Read a file of SPSS, Stata or SAS, see `_scan`."""
    parsed = read_statistical(file, kind, encoding=encoding)
    check_names(parsed.frame.columns, repr(str(file)))
    coded_columns = {}
    for cells in parsed.frame.get_columns():
        variable = parsed.variables[cells.name]
        coded_columns[cells.name] = CodedColumn(cells, variable)
    return parsed.frame.lazy(), Origin(coded_columns=coded_columns)


def _scan_text_file(file: Path, requested: Dialect) -> tuple[pl.LazyFrame, Origin]:
    """Open a text file, see `_scan`."""
    rows = scan_text(file, requested)
    origin = Origin(
        "csv",
        dialect=rows.dialect,
        blank_lines=rows.blank_lines,
        num_unnamed=rows.num_unnamed,
        hint=rows.hint,
    )
    return rows.frame, origin


# Tables in pieces


def read_batches(
    path: str | os.PathLike[str],
    batch_rows: int,
    *,
    columns: Sequence[str] | None = None,
    dialect: Dialect | None = None,
) -> Iterator[Table]:
    """Read a file in pieces of some rows, in order, without holding all of it in memory.

    Columns of a text file stay text here, since no piece knows the types of the next; coding them
    by a schema reads the numbers. A CSV in another encoding than UTF-8, or one with blank lines, is
    held whole.

    Raises:
        DataError: As `read`, or when ``batch_rows`` < 1.
    """
    check_process()
    if batch_rows < 1:
        raise DataError(f"batch_rows={batch_rows}: give 1 or more")
    return _batches(table_file(path), batch_rows, columns, dialect or Dialect())


def _batches(
    file: Path, batch_rows: int, columns: Sequence[str] | None, dialect: Dialect
) -> Iterator[Table]:
    """Yield a file in pieces, see `read_batches`."""
    try:
        lazy, origin = _scan(file, dialect)
        if columns is not None:
            lazy = lazy.select(list(columns))
        frames = lazy.collect_batches(
            chunk_size=batch_rows, maintain_order=True, lazy=True
        )
        for frame in frames:
            yield Table(normal_frame(_blanked_columns(frame, origin)), origin)
    except UNREADABLE as error:
        raise _unreadable(file, error, dialect) from None


# What need not be read whole


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file, or a folder of them, that is read in pieces; see `unread`."""

    path: Path
    columns: tuple[str, ...] | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        if self.columns:
            return self.columns
        return tuple(self._lazy_frame.collect_schema().names())

    @cached_property
    def num_rows(self) -> int:
        """The number of rows, by the file's own facts."""
        return int(self._lazy_frame.select(pl.len()).collect().item())

    @property
    def _lazy_frame(self) -> pl.LazyFrame:
        """The rows, not read yet; DataError if the file cannot be read."""
        try:
            lazy, _ = _scan(self.path, Dialect())
            # Files of a folder that do not fit each other are noticed only now.
            lazy.collect_schema()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise unreadable(self.path, error) from None
        return lazy

    def select(self, names: Sequence[str]) -> ParquetFile:
        """Return the file with some columns only."""
        return replace(self, columns=tuple(names))

    def batches(self) -> Iterator[Table]:
        """Yield the rows in order, a million at a time; one empty table if there is no row."""
        if self.num_rows:
            yield from read_batches(self.path, _BATCH_ROWS, columns=self.columns)
        else:
            yield rows_of(self, 0)


Unread = Database | ParquetFile
"""What can be counted, or sampled, without being held in memory."""


def unread(source: Any) -> Unread | None:
    """Return a source that need not be read whole: a database, or a path to Parquet; else None."""
    if isinstance(source, Database | ParquetFile):
        return source
    if isinstance(source, str) and re.match(r"\w+://", source):
        raise InputError(
            f"{source}: give Database(address, table=...) or (address, query=...)"
        )
    if not isinstance(source, str | os.PathLike):
        return None
    file = table_file(source)
    if file_kind(file) != ".parquet":
        return None
    return ParquetFile(file)


# Samples of rows


def rows_of(source: Table | Unread, most: int) -> Table:
    """Read about `most` random rows of a source that is not read yet; a table stays as it is.

    They are for their owner's eyes: which they are is no secret, and the same each time.
    """
    if isinstance(source, Table):
        return source
    if most:
        share = most / max(source.num_rows, 1)
        if share >= 1:
            return read(source)
        fixed_secret = bytes(32)
        return sampled(source, share, fixed_secret)

    # Of no rows, types and time zones alone are asked.
    if isinstance(source, Database):
        return Table(normal_frame(source.read(0)), Origin())
    no_rows = source._lazy_frame.select(source.names).head(0).collect()
    zones = zones_of(no_rows.schema)
    return Table(normal_frame(no_rows), Origin(zones=zones))


def sampled(source: Table | Unread, share: float, secret: bytes) -> Table:
    """Draw rows of a table, each with the same chance, whatever the other rows are.

    A row is drawn by its place and by 32 secret bytes, so the same secret gives the same rows
    again, if the table gives its rows in the same order. Of a database or a Parquet file, one piece
    and the drawn rows are in memory.

    **Guarantee**: for one secret, and one order of the rows, a table with one row more has the same
    drawn rows, or these and that one, with equal chances, to whoever does not know the secret: what
    keeps a bound for rows that are added or removed keeps it for the whole table, if `share` does
    not depend on the table. Of tables of one size in which a row differs, it may depend on the
    size. Bits are those of SHAKE-256, and in a database of SHA-256, over the secret and the row's
    place (NIST 2015, FIPS 202 and 180-4).
    """
    if isinstance(source, Database):
        drawn_rows = normal_frame(source.read(share, secret))
        return Table(drawn_rows, Origin(source_rows=source.num_rows))

    pieces = [source] if isinstance(source, Table) else source.batches()
    drawn_frames = []
    first_row = 0
    origin = Origin()
    for piece in pieces:
        is_drawn = _drawn_mask(secret, first_row, piece.num_rows, share)
        drawn_frames.append(piece._frame.filter(is_drawn))
        first_row += piece.num_rows
        origin = piece._origin
    drawn_rows = pl.concat(drawn_frames)
    return Table(drawn_rows, replace(origin, source_rows=first_row))


def _drawn_mask(
    secret: bytes, first_row: int, num_rows: int, share: float
) -> pl.Series:
    """Return which rows, from `first_row` on, are drawn, as a mask."""
    # A row's word depends on its place alone, so blocks begin at fixed places in the table.
    first_block = first_row // _BLOCK_ROWS
    last_block = (first_row + num_rows) // _BLOCK_ROWS
    digests = []
    for block in range(first_block, last_block + 1):
        message = secret + block.to_bytes(8, "big")
        digests.append(shake_256(message).digest(8 * _BLOCK_ROWS))
    words = np.frombuffer(b"".join(digests), "<u8")

    # A word of 64 bits is below this bound with probability `share`.
    bound = np.uint64(int(share * 2**64))
    offset = first_row - first_block * _BLOCK_ROWS
    return pl.Series(words[offset:][:num_rows] < bound)


# Facts of a file


def names_in(path: str | os.PathLike[str], dialect: Dialect) -> tuple[str, ...]:
    """Read a file's column names, even if a table cannot hold the columns; DataError as `read`.

    Of a text file no more than the head is read.
    """
    file = table_file(path)
    kind = file_kind(file)
    try:
        if is_text_file(file):
            names, _ = csv_header(file, dialect)
            return tuple(names)
        if kind in PROGRAMS:
            names, _ = names_and_rows(file, kind, dialect.encoding)
            return tuple(names)

        lazy, origin = _scan(file, dialect)
        names = lazy.collect_schema().names()
        # A key that one line alone has is no column.
        if origin.has_keys and dialect.names:
            names = [name for name in names if name in dialect.names]
        return tuple(names)
    except UNREADABLE as error:
        raise unreadable(file, error) from None


def rows_declared(path: Path) -> int | None:
    """Return the number of rows that a file of SPSS, Stata or SAS declares; None for others."""
    kind = file_kind(path)
    if kind not in PROGRAMS:
        return None
    _, num_rows = names_and_rows(table_file(path), kind)
    return num_rows


def readings(table: Table) -> tuple[str, ...]:
    """Return readings of a word from a text file whose encoding was taken to be cp1252.

    The result is empty for other files.
    """
    if table.dialect is None or table.dialect.encoding != "cp1252":
        return ()
    text_names = [name for name in table.names if table.kind(name) == "text"]
    columns = [table.text_counts(name) for name in text_names]
    return word_readings(chain(table.names, *columns))
