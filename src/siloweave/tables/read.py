"""Tables in and out: the one place that knows dataframe libraries.

A `Table` wraps one polars frame with few types (text, whole numbers, numbers, booleans, datetimes)
and remembers what it was made from, so that pandas in gives pandas out. Pandas and pyarrow are
imported only for tables that came from them. Names of columns are checked before a file is read,
and a file is written whole or not at all.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import logging
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from hashlib import blake2b, shake_256
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, get_args
from xml.etree import ElementTree
from zipfile import ZipFile

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from siloweave.errors import DataError, InputError, SchemaError, count_of
from siloweave.tables.database import Database
from siloweave.tables.display import MOST, html_table, listed
from siloweave.tables.forms import numbers_among
from siloweave.tables.parsing import (
    DATETIME,
    DURATION,
    UNITS,
    WHOLE,
    durations_in,
    flags_of,
    in_utc,
    numbers_of,
    texts_of,
    texts_of_mixed,
    times_of,
    whole_numbers_of,
)
from siloweave.tables.statistical_files import (
    PROGRAMS,
    Variable,
    names_and_rows,
    read_statistical,
)

_log = logging.getLogger("siloweave")


class _ForkedThreads:
    """Whether this process was forked while its parent's threads computed: a fork lacks them.

    Polars, and JAX, hand their work to threads that start with the first use. A forked child has
    their queues and no one who works them off: it would wait for ever.
    """

    # Names of threads that compute, as Linux has them.
    compute_names = re.compile(r"polars-[0-9]|tf_XLA|pjrt")
    # Whether threads compute in the process that forks, as the fork begins.
    are_running = False
    # Whether this process lacks threads that its parent had.
    are_lost = False

    @classmethod
    def before_fork(cls) -> None:
        """Note whether threads compute in the process that is about to fork."""
        thread_names = []
        for file in Path("/proc/self/task").glob("*/comm"):
            # A thread may end after its folder was listed.
            with suppress(OSError):
                thread_names.append(file.read_text())

        # Without names, where the system is no Linux, threads may run.
        has_names = bool(thread_names)
        are_computing = any(map(cls.compute_names.match, thread_names))
        cls.are_running = are_computing or not has_names

    @classmethod
    def after_fork(cls) -> None:
        """Note in the child that its parent's threads are missing."""
        cls.are_lost = cls.are_lost or cls.are_running


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_ForkedThreads.before_fork, after_in_child=_ForkedThreads.after_fork
    )


def check_process() -> None:
    """Refuse to work in a process that was forked after its parent had used tables.

    Raises:
        InputError: This process would wait for ever for threads that it does not have.
    """
    if _ForkedThreads.are_lost:
        raise InputError(
            f"this process ({os.getpid()}) was forked from one that had already used siloweave, "
            "and the threads that read and draw tables do not survive a fork. Start it afresh: "
            'multiprocessing.get_context("spawn"), or "forkserver"; or fork before any table is '
            "read or drawn"
        )


MOST_DECIMALS = 15
"""Decimals of a number, at most: a double holds no more digits."""
Frame = Literal["pandas", "polars", "arrow", "file", "csv"]
"""Where a table came from; "file" is a Parquet file, or arrays."""

# Ends of names of files that can be read.
_TEXT_FILES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst")
_JSON_LINES = (".jsonl", ".ndjson")
_EXCEL = ".xlsx"
_FILES = (
    *_TEXT_FILES,
    ".parquet",
    ".arrow",
    ".feather",
    ".ipc",
    *_JSON_LINES,
    _EXCEL,
    *PROGRAMS,
)
_FILES_IN_ERRORS = (
    ".csv, .tsv (or these with .gz, .zst), .txt, .jsonl, .ndjson, .arrow, .parquet, .xlsx, .sav, "
    ".zsav, .por, .dta, .xpt or .sas7bdat"
)
_SKIP_ADVICE = "or count them: --skip, skip = ... in the study, or read(skip=...)"

# Share of rows whose codes may lack a label in a column of labelled ones.
_MOST_UNLABELLED = 0.02
# Rows of a piece of a Parquet file.
_BATCH_ROWS = 1_000_000
# Rows that are drawn by one digest. Another size would draw other rows for the same secret.
_BLOCK_ROWS = 1 << 16
# Bytes that are decompressed, decoded or searched at once.
_CHUNK_BYTES = 1 << 22

# Bytes and rows by which a file's form is decided.
_HEAD_BYTES = 1 << 18
_HEAD_ROWS = 200
# Lines that may lie above the names; and how many may without an empty line below them.
_MOST_LINES_ABOVE = 30
_MOST_TITLE_LINES = 3

_SEPARATORS = (";", "\t", "|", ",")
# These are read where they are declared, and named where they seem to divide a single column.
_RARE_SEPARATORS = ("^", "~")
# What few words of a Western code page have: three marked letters in a row, a capital behind a
# small letter or within small ones, a sign between letters.
_ODD_LETTERS = re.compile(
    r"[^\x00-\x7f]{3,}|(?<=[a-zß-ÿ])[ŠŒŽŸÀ-Þ]|(?<=[A-Z])[ŠŒŽŸÀ-ÖØ-Þ](?=[a-z])|"
    r"(?<=[^\W\d_])[€‚„…†‡ˆ‰‹“”•˜™›¡-¬®-´¶¸-¿](?=[^\W\d_])"
)
# A comment, or Excel's line that names the separator.
_NOTE = re.compile(r'#|"?sep=."?\s*$')
# These are no names of columns: a row that lacks values has them.
_MISSING_WORDS = {"na", "n/a", "nan", "null", "none", "missing"}
# U+FFFD stands for bytes that are not in the encoding.
_REPLACEMENT = "\ufffd"
# Bytes that occur in texts of any code page: no control characters but white space and escape.
_TEXT_BYTES = bytes(
    byte for byte in range(256) if byte >= 32 or byte in b"\t\n\v\f\r\x1b"
)
_CONTROLS = {
    0x00: "a NUL byte, which is in no text",
    0x1A: "Ctrl-Z (byte 1A), with which old programs end a file",
}
# Share of a text's bytes that may be in no text; with more, its encoding is in doubt.
_MOST_CONTROL = 0.01
# One line, whatever it says; it has the escapes of UTF-7 and of Python, and no backslash else.
_ONE_LINE = rb"+AAo- \n \u000a" + bytes({*range(32, 127)} - {92})
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z]+\d+:[A-Z]+\d+)"')
# Bytes of a sheet's XML that are searched again with the next piece, for a range across both.
_OVERLAP_BYTES = 99
_NUMBER = re.compile(r"\s*[-+]?(\d[\d., ]*|[.,]\d+)([eE][-+]?\d+)?\s*%?\s*")
_UNREADABLE = (pl.exceptions.PolarsError, OSError, UnicodeError, csv.Error)
_KINDS = {"String": "text", "Float64": "numbers", "Boolean": "booleans"}


@dataclass(frozen=True)
class _NativeTypes:
    """The types in which other libraries hold the values of one Python type.

    Attributes:
        pandas: The type where no value is missing.
        nullable_pandas: The type where some are.
        arrow: The name of arrow's type.
    """

    pandas: Any
    nullable_pandas: Any
    arrow: str


_NATIVE_TYPES: dict[type, _NativeTypes] = {
    bool: _NativeTypes("bool", "boolean", "bool"),
    int: _NativeTypes("int64", "Int64", "int64"),
    float: _NativeTypes("float64", "float64", "double"),
    str: _NativeTypes(str, str, "string"),
    datetime: _NativeTypes("datetime64[us]", "datetime64[us]", "timestamp[us]"),
    timedelta: _NativeTypes("timedelta64[us]", "timedelta64[us]", "duration[us]"),
}
_POLARS_TYPES: dict[type, Any] = {
    bool: pl.Boolean,
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
    datetime: DATETIME,
    timedelta: DURATION,
}
# By NumPy's letter for a kind of types: the type of that kind that holds a column of pandas.
_NUMPY_TYPES = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}


@dataclass(frozen=True)
class Dialect:
    """The way a text file is written; where no value is given, the file decides.

    Attributes:
        separator: What divides its fields.
        encoding: The encoding of its characters, by Python's name.
        header: Whether its first line has the columns' names; a column without one, as all are
            then, is column_1 and so on by its place.
        decimal: The mark before the decimals of its numbers.
        missing: Texts that stand for a missing value in every column, beside empty fields.
        short_lines: Whether a line may leave off empty fields at its end, as Excel writes some.
        skip: How many lines lie above the names, or above the rows if there are no names.
        names: The columns' names, where a schema knows them. The line of names and the separator
            are found by these alone, so that no row decides how the others are cut into cells.
    """

    separator: str | None = None
    encoding: str | None = None
    header: bool | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()
    short_lines: bool = False
    skip: int | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", tuple(self.missing))
        object.__setattr__(self, "names", tuple(self.names))

        self._check_separator()
        if self.skip is not None and self.skip < 0:
            raise InputError(
                f"skip={self.skip} must be how many lines lie above the names"
            )
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise InputError(
                f"decimal={self.decimal!r} must be '.' or ',', and not the separator as well"
            )
        self._check_encoding()

    def _check_separator(self) -> None:
        """Raise InputError unless the separator is one byte of UTF-8, as polars needs it."""
        mark = self.separator
        if mark is None:
            return
        if len(mark.encode()) != 1 or mark in '"\r\n':
            raise InputError(
                f"separator={mark!r} must be one character, such as ';', and no quote"
            )

    def _check_encoding(self) -> None:
        """Raise InputError unless Python knows the encoding, and no text gains lines by it."""
        try:
            text = _ONE_LINE.decode(self.encoding or "utf-8", "replace")
        except (LookupError, UnicodeError):
            raise InputError(
                f"encoding={self.encoding!r} is unknown; use a name such as 'utf-8' or 'latin-1'"
            ) from None

        # An encoding with escapes would make line breaks, and so rows, of a cell's text.
        if len(text.splitlines()) > 1:
            raise InputError(
                f"encoding={self.encoding!r} makes several lines of one; save the file as UTF-8"
            )


@dataclass(frozen=True, eq=False)
class _TextColumn:
    """A column of a text file: its cells as they are written, and the type that all of them fit.

    The type is for whoever looks at a table without a schema. Under a schema a cell is read from
    its text and its declared column, see `tables.cells`, so that no other cell matters.

    Attributes:
        cells: The cells of all rows of the file, as text.
        decimal: The mark before decimals.
        type: What the file itself says of the column; else the narrowest that every cell fits.
    """

    cells: pl.Series
    decimal: str = "."
    type: Any = None

    @cached_property
    def dtype(self) -> Any:
        """The column's type."""
        if self.type is not None:
            return self.type
        return _narrowest(self.cells, self.decimal).dtype

    @cached_property
    def padded(self) -> int | None:
        """The fewest decimals of a number, see `_padded`; None for a column without numbers."""
        if self.dtype != pl.Float64:
            return None
        return _padded(self.cells, self.decimal)

    def typed(self, cells: pl.Series) -> pl.Series:
        """Return some of the cells in the column's type."""
        if self.dtype in WHOLE:
            return cells.str.strip_chars().cast(self.dtype)
        if self.dtype == pl.Float64:
            return numbers_of(cells, decimal=self.decimal).fill_nan(None)
        if self.dtype == pl.Boolean:
            return flags_of(cells)
        if self.dtype == pl.Null:
            return pl.Series(cells.name, [None] * len(cells), dtype=pl.Null)
        if self.dtype == DATETIME:
            return times_of(cells)
        return cells


@dataclass(frozen=True, eq=False)
class _CodedColumn:
    """A column of a file of SPSS, Stata or SAS: its cells as codes, and the codes' labels.

    Under a schema a cell is read from its code, or its label, and its declared column. What looks
    at all cells here is the view of whoever has no schema.

    Attributes:
        cells: The cells of all rows of the file: numbers as float64, texts, datetimes.
        variable: The entry of the file's dictionary.
        is_recoded: Whether some codes were replaced by texts; values are then their labels.
    """

    cells: pl.Series
    variable: Variable
    is_recoded: bool = False

    @cached_property
    def _unlabelled_values(self) -> list[Any]:
        """The values without a label, in order."""
        labels = self.variable.labels
        values = self.cells.drop_nulls().unique().sort().to_list()
        return [value for value in values if value not in labels]

    @cached_property
    def is_labelled(self) -> bool:
        """Whether the values are labels: nearly all rows hold a code that has a label.

        Where labels are at the ends of a scale alone, or name only missing values, they are not.
        """
        if self.is_recoded:
            return True
        if not self.variable.labels:
            return False

        unlabelled = self._unlabelled_values
        unlabelled_rows = 0
        if unlabelled:
            unlabelled_rows = int(self.cells.is_in(unlabelled).sum())

        # At the ends of a scale alone, most values lack a label, in however few rows.
        num_values = self.cells.drop_nulls().n_unique()
        has_few_unlabelled = 2 * len(unlabelled) <= num_values
        most_rows = _MOST_UNLABELLED * self.cells.count()
        return has_few_unlabelled and unlabelled_rows <= most_rows

    @cached_property
    def levels(self) -> tuple[str, ...] | None:
        """The labels in the order of their codes (used or not), and the texts of other codes."""
        if not self.is_labelled:
            return None
        labels = self.variable.labels.values()
        unlabelled = pl.Series(self._unlabelled_values, dtype=self.cells.dtype)
        texts = [*labels, *texts_of(unlabelled).to_list()]
        # Two codes may have the same label; the first decides its place.
        return tuple(dict.fromkeys(texts))

    def texts(self, cells: pl.Series) -> pl.Series:
        """Return the label of each code; of one without a label, its text."""
        labels = self.variable.labels
        if not labels:
            return texts_of(cells)

        codes = cells
        if cells.dtype == pl.String:
            codes = cells.str.strip_chars()
        cell_labels = codes.replace_strict(
            pl.Series(list(labels), dtype=codes.dtype),
            pl.Series(list(labels.values())),
            default=None,
            return_dtype=pl.String,
        )
        return cell_labels.fill_null(texts_of(cells))

    def typed(self, cells: pl.Series) -> pl.Series:
        """Return some of the cells as labels, or numbers without decimals as whole ones."""
        if self.is_labelled:
            return self.texts(cells)
        if self.cells.dtype != pl.Float64:
            return cells

        # These programs store all numbers as doubles. Beyond 2^53 a double skips whole numbers.
        values = self.cells.drop_nulls()
        is_whole = (values == values.round()) & (values.abs() < 2.0**53)
        if len(values) and bool(is_whole.all()):
            return cells.cast(pl.Int64)
        return cells


@dataclass(frozen=True)
class _Origin:
    """The source of a table, and facts about it that its frame does not hold.

    Attributes:
        kind: The kind of frame or file.
        dtypes: Types of a frame's columns, as its library has them.
        types: Declared types instead, and whether a value may be missing.
        dialect: How a text file was written.
        blank_lines: Lines of a text file that are no rows.
        num_unnamed: How many columns at the end of a text file have neither name nor value.
        row_counts: How many rows each row stands for; None for one.
        source_rows: How many rows the table has that these were drawn from; None if they were not.
        text_columns: All cells of the columns that are text in the file.
        padded: Decimals of numbers that have few.
        has_keys: Whether each row names its columns, so that one may lack some.
        file_types: Types that the file gives its columns.
        zones: Time zones of datetimes, which a table has in UTC.
        hint: How the one column of a text file seems to be divided.
        coded_columns: All cells of the columns of SPSS, Stata or SAS.
        units: Units in which durations are seen as numbers.
    """

    kind: Frame = "file"
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, tuple[type, bool]] = field(default_factory=dict)
    dialect: Dialect | None = None
    blank_lines: tuple[int, ...] = ()
    num_unnamed: int = 0
    row_counts: NDArray[np.int64] | None = None
    source_rows: int | None = None
    text_columns: Mapping[str, _TextColumn] = field(default_factory=dict)
    padded: Mapping[str, int] = field(default_factory=dict)
    has_keys: bool = False
    file_types: Mapping[str, Any] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    coded_columns: Mapping[str, _CodedColumn] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether the source holds nothing but text, as a CSV or a sheet of Excel does."""
        return self.kind == "csv"

    @property
    def is_sheet(self) -> bool:
        """Whether the source is a sheet of Excel, whose dates come as ISO-8601 text."""
        return self.is_text and self.dialect is None

    def native_types(self, kind: str) -> dict[str, Any]:
        """Return each column's type in a pandas, arrow or polars frame, if it is known."""
        types = dict(self.dtypes)
        for name, (python_type, may_miss) in self.types.items():
            native = _NATIVE_TYPES[python_type]
            if kind == "pandas":
                types[name] = native.nullable_pandas if may_miss else native.pandas
            elif kind == "arrow":
                types[name] = native.arrow
            else:
                types[name] = _POLARS_TYPES[python_type]

        for name, zone in self.zones.items():
            types[name] = _zoned_type(kind, zone)
        return types


def _text_or_empty(value: Any) -> Any:
    """Return a value; of a missing one, an empty text."""
    return "" if value is None else value


def _renamed_keys(facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return facts about columns by the columns' new names."""
    return {names.get(name, name): fact for name, fact in facts.items()}


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows in named columns, read-only; made by `read` or `Table.from_columns`.

    Example:
        >>> table = Table.from_columns({"age": (np.array([30, 0]), np.array([False, True]))})
        >>> table.names, table.num_rows, table.missing("age").tolist()
        (('age',), 2, [False, True])
    """

    _frame: pl.DataFrame
    _origin: _Origin = field(default_factory=_Origin)
    # Columns that were looked at without a schema, in the types that their cells fit.
    _typed_columns: dict[str, pl.Series] = field(
        init=False, default_factory=dict, repr=False
    )

    def __repr__(self) -> str:
        return f"Table({self.num_rows} rows: {listed(self.names)})"

    def _repr_html_(self) -> str:
        names = self.names[:MOST]
        first_rows = range(min(5, self.num_rows))
        view = self.select(names).take(first_rows)._view
        cells = [[*map(_text_or_empty, row)] for row in view.rows()]
        caption = f"{self.num_rows:,} rows, {len(self.names):,} columns"
        return html_table(caption, names, cells)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._frame.columns)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._frame.height

    def values(self, name: str) -> np.ndarray:
        """Return one column's values, one per row.

        They are int64, float64, bool, datetime64[us] or object (text). Where `missing` is true the
        value is meaningless (0, NaN, False, NaT, None).

        Raises:
            DataError: When there is no such column.
        """
        series = self._typed_column(name)
        if series.dtype in WHOLE:
            return series.fill_null(0).cast(pl.Int64).to_numpy()
        if series.dtype == pl.Boolean:
            return series.fill_null(False).to_numpy()
        if series.dtype in (pl.Float64, DATETIME):
            return series.to_numpy()
        return _objects(series)

    def missing(self, name: str) -> np.ndarray:
        """Return a mask of one column's missing values, one boolean per row."""
        return self._typed_column(name).is_null().to_numpy()

    @property
    def drawn_of(self) -> int | None:
        """The number of rows that these were drawn from; None if they were not drawn."""
        return self._origin.source_rows

    def rows_of(self, mask: NDArray[np.bool_]) -> int:
        """Count the rows that a mask of the table's rows stands for."""
        row_counts = self._origin.row_counts
        if row_counts is None:
            return int(np.count_nonzero(mask))
        return int(row_counts[mask].sum())

    def kind(self, name: str) -> str:
        """Return a column's type in words.

        It is text, whole numbers, numbers, booleans, datetimes or nothing.
        """
        dtype = self._typed_column(name).dtype
        if dtype in WHOLE:
            return "whole numbers"
        if dtype == DATETIME:
            return "datetimes"
        return _KINDS.get(str(dtype), "nothing")

    @property
    def dialect(self) -> Dialect | None:
        """The way the table's text file is written; None for a table from anything else."""
        return self._origin.dialect

    def zone(self, name: str) -> str | None:
        """Return the time zone of a column of a frame or file, whose times are held in UTC here."""
        declared_zone = self._origin.zones.get(name)
        if declared_zone is not None:
            return declared_zone

        dtype = self._origin.dtypes.get(name)
        # Pandas and arrow call it `tz`, polars `time_zone`.
        zone = getattr(dtype, "tz", None) or getattr(dtype, "time_zone", None)
        if zone is None:
            return None
        # Python calls an offset "UTC+01:00"; the name of such a zone is "+01:00" here.
        return str(zone).removeprefix("UTC") or "UTC"

    def padded(self, name: str) -> int | None:
        """Return the fewest decimals of a number in a CSV's column, counting zeros at the end."""
        if name in self._origin.padded:
            return self._origin.padded[name]
        column = self._origin.text_columns.get(name)
        return None if column is None else column.padded

    @property
    def hint(self) -> str:
        """A guess at how the fields of a text file that was read as one column are divided.

        It is empty for other tables.
        """
        return self._origin.hint

    @property
    def keyed(self) -> bool:
        """Whether each row names its own columns, as in JSON lines."""
        return self._origin.has_keys

    @property
    def left_out(self) -> int:
        """The number of columns at the end of a text file without a name or any value."""
        return self._origin.num_unnamed

    def line(self, row: int) -> int:
        """Return a row's line in its text file, as if no field held a line break."""
        dialect = self.dialect or Dialect()
        line = row + 1 + bool(dialect.header) + (dialect.skip or 0)
        # Blank lines are in order: each one before the row moves it down.
        for blank_line in self._origin.blank_lines:
            if blank_line <= line:
                line += 1
        return line

    def blanked(self, name: str, spellings: Sequence[str]) -> Table:
        """Return the table with certain texts or numbers of a column as missing values."""
        if not spellings:
            return self
        series = self._typed_column(name)
        if series.dtype == pl.String:
            is_blank = series.str.strip_chars().is_in(list(spellings))
            return self._without_cells(name, is_blank)

        numbers = numbers_among(spellings)
        has_numbers = series.dtype in WHOLE or series.dtype == pl.Float64
        if numbers and has_numbers:
            is_blank = series.cast(pl.Float64).is_in(numbers)
            return self._without_cells(name, is_blank)
        return self

    def finite(self, name: str) -> Table:
        """Return the table with infinite numbers of a column as missing values."""
        series = self._typed_column(name)
        if series.dtype != pl.Float64:
            return self
        return self._without_cells(name, series.is_infinite())

    def _without_cells(self, name: str, is_blank: pl.Series) -> Table:
        """Return the table with some cells of a column missing."""
        cells = self.cells(name).set(is_blank.fill_null(False), None)
        return replace(self, _frame=self._frame.with_columns(cells))

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Return the table with new names for some columns.

        Raises:
            DataError: There is no such column, or two would have one name.
        """
        if not names:
            return self
        # In JSON lines a column may be in no row at all; there is then nothing to rename.
        if self._origin.has_keys:
            names = {old: new for old, new in names.items() if old in self.names}
        names_after(self.names, names, "the table")

        origin = self._origin
        new_origin = replace(
            origin,
            dtypes=_renamed_keys(origin.dtypes, names),
            types=_renamed_keys(origin.types, names),
            text_columns=_renamed_keys(origin.text_columns, names),
            padded=_renamed_keys(origin.padded, names),
            file_types=_renamed_keys(origin.file_types, names),
            zones=_renamed_keys(origin.zones, names),
            coded_columns=_renamed_keys(origin.coded_columns, names),
            units=_renamed_keys(origin.units, names),
        )
        return Table(self._frame.rename(dict(names)), new_origin)

    def recoded(self, name: str, values: Mapping[Any, Any]) -> Table:
        """Return the table with some values of a column replaced by others.

        Args:
            name: The column.
            values: What a cell of some text becomes; an empty text or None for a missing value. A
                code of SPSS, Stata or SAS is named by its text or its label. Other cells stay.

        Raises:
            DataError: There is no such column.
            InputError: It holds datetimes or durations.
        """
        cells = self.cells(name)
        if cells.dtype in (DATETIME, DURATION):
            content = "durations" if cells.dtype == DURATION else "datetimes"
            raise InputError(
                f"column {name!r} holds {content}, which are not recoded; leave it out of recode"
            )
        recoded_cells = self._recoded_cells(name, values)

        origin = self._origin
        text_columns = dict(origin.text_columns)
        coded_columns = dict(origin.coded_columns)
        coded = coded_columns.pop(name, None)
        if coded is not None and coded.variable.labels:
            # Whatever other rows hold, a code that is not listed keeps its label.
            labels = coded.variable.labels
            code_texts = texts_of(pl.Series(list(labels))).to_list()
            labels_by_text = dict(zip(code_texts, labels.values(), strict=True))
            variable = Variable(labels_by_text)
            coded_columns[name] = _CodedColumn(
                recoded_cells, variable, is_recoded=coded.is_labelled
            )
        # The view of whoever has no schema.
        if coded is None or not coded.is_labelled:
            text_columns[name] = _TextColumn(recoded_cells, self.decimal(name))

        dtypes = dict(origin.dtypes)
        dtypes.pop(name, None)
        new_origin = replace(
            origin,
            text_columns=text_columns,
            coded_columns=coded_columns,
            dtypes=dtypes,
        )
        return Table(self._frame.with_columns(recoded_cells), new_origin)

    def _recoded_cells(self, name: str, values: Mapping[Any, Any]) -> pl.Series:
        """Return a column's cells as text, with some of them replaced, see `recoded`."""
        cells = self.cells(name)
        cell_texts = texts_of(cells).alias(name)
        old_values = texts_of_mixed(list(values))
        new_values = texts_of_mixed(list(values.values()))
        old_texts = [str(text).strip() for text in old_values]
        new_texts = [text or None for text in new_values]

        places = _places(cell_texts.str.strip_chars(), old_texts)
        coded = self._origin.coded_columns.get(name)
        if coded is not None and coded.variable.labels:
            # A label goes before a code: where a text is both, the label's place counts.
            labels = coded.texts(cells).str.strip_chars()
            label_places = _places(labels, old_texts)
            label_places = label_places.set(label_places == -2, None)
            places = label_places.fill_null(places)

        is_listed = (places >= 0).fill_null(False)
        # Cells that are not listed look up the None behind the last new text; it is not used.
        lookup_places = places.set(~is_listed, len(new_texts))
        replacements = pl.Series(name, [*new_texts, None], dtype=pl.String)
        new_cells = replacements.gather(lookup_places)
        recoded = pl.when(is_listed).then(new_cells).otherwise(pl.col(name))
        frame = cell_texts.to_frame()
        return frame.select(recoded.alias(name)).to_series()

    def filled(self, name: str, rows: NDArray[np.int64], cells: pl.Series) -> Table:
        """Return the table with some cells of a column replaced, and all else as it is.

        The column keeps its type, unless the new cells do not fit it.

        Args:
            name: The column.
            rows: Places of the cells that change.
            cells: What they become, one for each place.

        Example:
            >>> table = Table.from_columns({"age": (np.array([30, 0]), np.array([False, True]))})
            >>> table.filled("age", np.array([1]), pl.Series([41])).values("age").tolist()
            [30, 41]
        """
        origin = self._origin
        old_cells = self.cells(name)
        text_column = origin.text_columns.get(name)
        decimal = self.decimal(name)
        new_cells = _as_type_of(old_cells, cells, text_column, decimal)

        dtypes = dict(origin.dtypes)
        if new_cells.dtype != old_cells.dtype:
            # Whole numbers take decimals, and a column without any value takes all.
            old_cells = old_cells.cast(new_cells.dtype)
            dtypes.pop(name, None)
        column = old_cells.scatter(rows, new_cells).alias(name)

        text_columns = dict(origin.text_columns)
        if text_column is not None:
            text_columns[name] = _TextColumn(column, text_column.decimal)
        coded_columns = dict(origin.coded_columns)
        if name in coded_columns:
            coded_columns[name] = replace(coded_columns[name], cells=column)
        new_origin = replace(
            origin,
            dtypes=dtypes,
            text_columns=text_columns,
            coded_columns=coded_columns,
        )
        return Table(self._frame.with_columns(column), new_origin)

    def verbatim(self) -> Table:
        """Return the table with the columns of a text file as the text that stands there."""
        return Table(self._frame, replace(self._origin, text_columns={}))

    def levels(self, name: str) -> tuple[Any, ...] | None:
        """Return the declared values of a categorical type, or a variable's labels; None without.

        Labels are those of a file of SPSS, Stata or SAS in which nearly every row has one.
        """
        coded = self._origin.coded_columns.get(name)
        if coded is not None:
            return coded.levels

        dtype = self._origin.dtypes.get(name)
        if isinstance(dtype, pl.Enum):
            return tuple(dtype.categories.to_list())
        if str(dtype) == "category" and dtype is not None:
            values = dtype.categories.tolist()
            # A scale with labels at its ends alone, as pandas reads it from Stata: "None", 1, 2.
            if any(isinstance(value, str) for value in values):
                texts = texts_of_mixed(values)
                return tuple(text for text in texts if text is not None)
            return tuple(values)

        # A dictionary of arrow, and a categorical of polars, say no more than the rows do.
        is_dictionary = str(dtype).startswith("dictionary")
        if is_dictionary or isinstance(dtype, pl.Categorical):
            values = self._typed_column(name).drop_nulls()
            return tuple(values.unique().sort().to_list())
        return None

    def take(self, indices: np.ndarray | Sequence[int]) -> Table:
        """Return the rows at some positions, in that order; positions may repeat."""
        positions = np.asarray(indices, dtype=np.int64)
        return Table(self._frame[positions], self._origin)

    def select(self, names: Sequence[str]) -> Table:
        """Return some columns, in the order given; DataError when one is not there."""
        columns = [self._stored_column(name) for name in names]
        return Table(pl.DataFrame(columns), self._origin)

    @property
    def frame(self) -> Frame:
        """The kind of source that the table was made from, which `to_native` makes again."""
        return self._origin.kind

    def framed(self, frame: Frame) -> Table:
        """Return the table as one from which `to_native` makes another kind of frame."""
        origin = _Origin(frame, units=self._origin.units)
        return Table(self._typed_view, origin)

    def without_rows(self) -> Table:
        """Return an empty table like this one; a CSV's columns are text, as they are written."""
        empty_frame = self._frame.clear()
        if self._origin.coded_columns:
            empty_frame = self._view.clear()
        if self._origin.is_text:
            text_types: dict[Any, type[str]] = dict.fromkeys(self.names, str)
            empty_frame = empty_frame.cast(text_types)
        origin = replace(self._origin, text_columns={}, coded_columns={})
        return Table(empty_frame, origin)

    def to_native(self) -> Any:
        """Return a frame of the kind that the table was made from, with its types.

        A file or columns become pandas where it is installed, else polars. Whole numbers with
        missing values become ``Int64`` in pandas unless the frame given had another type.
        """
        check_process()
        kind: str = self._origin.kind
        if kind in ("file", "csv"):
            kind = "pandas" if find_spec("pandas") else "polars"
        dtypes = self._origin.native_types(kind)

        if kind == "pandas":
            return self._to_pandas(dtypes)
        if kind == "polars":
            return self._to_polars(dtypes)
        return self._to_arrow(dtypes)

    def _to_pandas(self, dtypes: Mapping[str, Any]) -> Any:
        """Return the rows as a frame of pandas, each column in a type if its values fit."""
        pandas = import_module("pandas")
        columns = {}
        for name in self.names:
            columns[name] = self._in_pandas(pandas, name, dtypes.get(name))
        return pandas.DataFrame(columns)

    def _to_polars(self, dtypes: Mapping[str, Any]) -> pl.DataFrame:
        """Return the rows as a frame of polars, each column in a type if its values fit."""
        view = self._typed_view
        columns = []
        for name in self.names:
            if name in dtypes:
                columns.append(_in_polars(view[name], dtypes[name]))
        return view.with_columns(columns)

    def _to_arrow(self, dtypes: Mapping[str, Any]) -> Any:
        """Return the rows as a table of arrow, each column in a type if its values fit."""
        pyarrow = import_module("pyarrow")
        compute = import_module("pyarrow.compute")
        table = self._typed_view.to_arrow()
        columns = []
        for name in self.names:
            column = table.column(name)
            columns.append(_in_arrow(compute, column, dtypes.get(name)))
        return pyarrow.table(columns, names=self._frame.columns)

    def _in_pandas(self, pandas: Any, name: str, dtype: Any) -> Any:
        """Return a column as a pandas series with a fresh index, in a type if its values fit."""
        series = self._typed_column(name)
        if self.unit(name) is not None:
            column = pandas.Series(self.cells(name).to_numpy())
        elif series.dtype == pl.String:
            column = _texts_in_pandas(pandas, series)
        else:
            values = self.values(name)
            column = pandas.Series(_masked(pandas, values, self.missing(name)))

        if dtype is not None:
            # Generated values may not fit the type that the real ones had.
            with suppress(TypeError, ValueError, AttributeError):
                return _restored(pandas, column, dtype)
        return column

    @classmethod
    def of_counts(cls, name: str, frame: pl.DataFrame) -> Table:
        """Make a table of one column from its values ``v``, each of which is in ``n`` rows."""
        row_counts = frame["n"].cast(pl.Int64).to_numpy()
        values = frame["v"].alias(name)
        return cls(_normal_frame([values]), _Origin(row_counts=row_counts))

    @classmethod
    def empty(
        cls,
        types: Mapping[str, tuple[type, bool]],
        frame: Frame,
        zones: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Table:
        """Make a table without rows from declared types, not from those of a frame.

        Of each column: bool, int, float, str, datetime or timedelta, and whether a value may be
        missing, which decides the type of whole numbers and booleans in pandas. Datetimes may have
        a time zone. Durations are seen as numbers of `units`. `to_native` makes such a frame, also
        of tables that are made like this one.
        """
        schema = {}
        for name, (python_type, _) in types.items():
            schema[name] = _POLARS_TYPES[python_type]
        time_zones = {}
        for name, zone in (zones or {}).items():
            if schema[name] == DATETIME:
                time_zones[name] = zone
        origin = _Origin(frame, types=types, zones=time_zones, units=units or {})
        return cls(pl.DataFrame(schema=schema), origin)

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, tuple[Any, np.ndarray | None]],
        like: Table | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
    ) -> Table:
        """Make a table from arrays.

        Args:
            columns: Name to (values, mask of missing or None): whole numbers, numbers, booleans,
                datetime64, timedelta64 or text, one per row.
            like: `to_native` returns the same kind of frame and types as this one's.
            categories: Each column's declared values: categorical types of `like` then list these.

        Raises:
            DataError: When lengths differ or values are of no usable type.
        """
        check_process()
        all_series = []
        for name, (values, mask) in columns.items():
            all_series.append(_series_of(name, values, mask))
        lengths = {len(series) for series in all_series}
        if len(lengths) > 1:
            raise DataError(f"columns have different lengths: {sorted(lengths)}")

        origin = _Origin()
        if like is not None:
            origin = replace(like._origin, text_columns={}, coded_columns={})
        if categories is not None:
            dtypes = _with_declared(origin.dtypes, categories)
            origin = replace(origin, dtypes=dtypes)
        return cls(_normal_frame(all_series), origin)

    # What coding needs, vectorised here so that nothing else touches a dataframe library.

    def cells(self, name: str) -> pl.Series:
        """Return a column's cells as the source has them; those of a text file are text.

        A column that no row of JSON lines names has no value in any.
        """
        cells = self._stored_column(name)
        if cells.dtype == pl.Enum:
            return cells.cast(pl.String)
        return cells

    def _stored_column(self, name: str) -> pl.Series:
        """Return a column's cells as the table stores them; drawn texts are places in a list.

        A text takes 16 bytes a cell, a place among few texts one.
        """
        check_process()
        if self._origin.has_keys and name not in self.names:
            return pl.Series(name, [None] * self.num_rows, dtype=pl.String)
        _check_name(name, self.names)
        return self._frame[name]

    def value_labels(self, name: str) -> dict[str, str]:
        """Return the labels of a column's codes in a file of SPSS, Stata or SAS, by code.

        The codes are texts.
        """
        coded = self._origin.coded_columns.get(name)
        if coded is None or not coded.variable.labels:
            return {}
        labels = coded.variable.labels
        code_texts = texts_of(pl.Series(list(labels))).to_list()
        return dict(zip(code_texts, labels.values(), strict=True))

    def declared_missing(self, name: str) -> tuple[str, ...]:
        """Return the codes, and ranges of them, that SPSS takes for missing, as texts."""
        coded = self._origin.coded_columns.get(name)
        return () if coded is None else coded.variable.missing

    def decimal(self, name: str) -> str:
        """Return the mark before decimals of a column's numbers, as it is declared."""
        column = self._origin.text_columns.get(name)
        if column is not None:
            return column.decimal
        return self.dialect.decimal if self.dialect else "."

    def labels(self, name: str, kind: type) -> pl.Series:
        """Return each cell as a value of one type: str, int, float or bool.

        It is null where the cell is no such value. A cell is read by itself, as
        `siloweave.tables.parsing` says.
        """
        cells = self.cells(name)
        if kind is str:
            coded = self._origin.coded_columns.get(name)
            return texts_of(cells) if coded is None else coded.texts(cells)
        if kind is bool and cells.dtype == pl.Boolean:
            return cells
        if kind is bool:
            return flags_of(texts_of(cells))
        if kind is int and cells.dtype in WHOLE:
            return cells.cast(pl.Int64)
        if kind is float:
            return self.numbers(name)
        values, is_whole = self.whole_numbers(name)
        return values.set(~is_whole, None)

    def holds_whole(self, name: str) -> bool:
        """Return whether a column's type holds whole numbers alone."""
        return self.cells(name).dtype in WHOLE

    def whole_numbers(
        self, name: str, form: str | None = None
    ) -> tuple[pl.Series, pl.Series]:
        """Round the numbers in cells to int64, and return also which of them were whole.

        Both are those of `parsing.whole_numbers_of`; null where a cell holds no number.
        """
        cells = self.cells(name)
        if cells.dtype in WHOLE:
            return cells.cast(pl.Int64), cells.is_not_null()

        # Digits of plain text may be more than a double holds; a form has other marks in them.
        is_plain = form is None or form in UNITS
        exact_texts = cells if is_plain and cells.dtype == pl.String else None
        return whole_numbers_of(self.numbers(name, form), exact_texts)

    def numbers(self, name: str, form: str | None = None) -> pl.Series:
        """Read each cell as a number, float64; null for a cell without a number.

        Text is read as `forms.number_form` of `form` says. A duration is a number of the unit that
        `form` names, else of seconds. Booleans and datetimes are no numbers.
        """
        cells = self.cells(name)
        if cells.dtype == pl.String:
            text_form = None if form in UNITS else form
            return numbers_of(cells, text_form, self.decimal(name))
        if cells.dtype == DURATION:
            unit = form if form in UNITS else "seconds"
            return durations_in(cells, unit)
        if cells.dtype in WHOLE or cells.dtype == pl.Float64:
            return cells.cast(pl.Float64)
        return pl.Series(name, [None] * len(cells), dtype=pl.Float64)

    def times(self, name: str, pattern: str | None = None) -> pl.Series:
        """Read each cell as a datetime in UTC; null for a cell without a datetime.

        Text is read by the pattern (``strptime`` codes), as ISO-8601 when None; with a pattern,
        so are the digits of whole numbers, such as 20240131.
        """
        cells = self.cells(name)
        if cells.dtype == DATETIME:
            return cells

        has_digits = cells.dtype in WHOLE or cells.dtype == pl.Float64
        if cells.dtype == pl.String or (has_digits and pattern is not None):
            texts = texts_of(cells)
            times = times_of(texts, pattern)
            # Excel's own dates are ISO-8601 text here, beside those that were typed as text; so are
            # those of pandas in a column that holds anything else.
            if self._origin.is_sheet or self._origin.kind == "pandas":
                times = times.fill_null(times_of(texts))
            return times
        return pl.Series(name, [None] * len(cells), dtype=DATETIME)

    def lookup(self, name: str, categories: Sequence[Any]) -> np.ndarray:
        """Find each value's position among distinct categories of one type, as int32.

        It is -1 where missing, and -2 where not among them. A text is also found without the
        blanks around it, where no two categories differ in these alone.
        """
        kind = type(categories[0])
        labels = self.labels(name, kind)
        codes = _places(labels, categories)
        # All are among the categories: none is missing, and none needs a second look.
        if codes.min() in range(len(categories)):
            return codes.to_numpy(writable=True)

        if kind is str:
            stripped = [category.strip() for category in categories]
            are_distinct = len(set(stripped)) == len(stripped)
            is_unknown = (codes == -2) & labels.is_not_null()
            if is_unknown.any() and are_distinct:
                stripped_codes = _places(labels.str.strip_chars(), stripped)
                codes = codes.set(is_unknown, None).fill_null(stripped_codes)

        is_missing = self.cells(name).is_null()
        if kind is float:
            is_missing = is_missing | labels.is_nan()
        missing_mask = is_missing.fill_null(False).to_numpy()
        return np.where(missing_mask, np.int32(-1), codes.to_numpy())

    def integers(
        self, name: str, form: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as int64 and its mask of missing; SchemaError unless all are whole.

        Text is read as `forms.number_form` of `form` says.
        """
        numbers = self._required_numbers(name, "whole numbers", form)
        values, is_whole = self.whole_numbers(name, form)
        is_missing = numbers.is_null()
        is_infinite = numbers.is_infinite() & ~is_missing
        is_broken = ~is_whole & ~is_missing

        infinite_rows = self.rows_of(is_infinite.to_numpy())
        broken_rows = self.rows_of(is_broken.to_numpy())
        check_numbers(name, infinite_rows, broken_rows)
        return values.fill_null(0).to_numpy(), is_missing.to_numpy()

    def floats(
        self, name: str, form: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as float64 and its mask of missing (0.0 there), or SchemaError.

        Text is read as `forms.number_form` of `form` says.
        """
        numbers = self._required_numbers(name, "numbers", form)
        is_missing = numbers.is_null().to_numpy()
        return numbers.fill_null(0.0).to_numpy(), is_missing

    def datetimes(
        self, name: str, pattern: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as int64 microseconds since 1970 (UTC), and its mask of missing.

        Text is read by the pattern (``strptime`` codes), as ISO-8601 when None.

        Raises:
            SchemaError: When values are no datetimes, or text does not follow the format.
        """
        times = self.times(name, pattern)
        is_missing = self.cells(name).is_null().to_numpy()
        is_unread = times.is_null().to_numpy() & ~is_missing
        self.check_times(name, self.rows_of(is_unread), pattern)
        return times.cast(pl.Int64).fill_null(0).to_numpy(), is_missing

    def check_times(self, name: str, wrong: int, pattern: str | None) -> None:
        """Raise SchemaError where so many rows, if any, hold no datetime."""
        if not wrong:
            return
        if self.cells(name).dtype == pl.String or pattern is not None:
            raise SchemaError(
                f"column {name!r}: {count_of(wrong, 'row does', 'rows do')} not follow the "
                f"datetime format {pattern or 'ISO-8601'!r}; correct the column's format in "
                "the schema"
            )
        raise SchemaError(
            f"column {name!r} holds {self.kind(name)}, but the schema says datetime"
        )

    def counts(
        self, name: str, kind: type | None = None
    ) -> tuple[list[Any], list[int]]:
        """Return one column's distinct values, most frequent first (ties by value), and counts.

        With a kind, each cell is read as a value of it, see `labels`; text without the blanks
        around it. Cells that are no such value are left out.
        """
        series = self._typed_column(name) if kind is None else self.labels(name, kind)
        if kind is str:
            series = series.str.strip_chars()
        if series.dtype == pl.Float64:
            series = series.fill_nan(None)

        values = series.drop_nulls().rename("value")
        table = values.value_counts(name="count")
        table = table.sort("count", "value", descending=[True, False])
        return table["value"].to_list(), table["count"].to_list()

    def text_counts(self, name: str) -> dict[str, int]:
        """Return a text column's distinct values, without spaces around them, and counts."""
        texts = self._typed_column(name).drop_nulls().str.strip_chars()
        table = texts.rename("value").value_counts(sort=True, name="count")
        values = table["value"].to_list()
        counts = table["count"].to_list()
        return dict(zip(values, counts, strict=True))

    def row_keys(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Return a hash of each row's values in some columns, the same in every table."""
        # One type for all numbers, so that 1 and 1.0 of two tables have the same hash.
        number_types = (*WHOLE, pl.Float64, pl.Boolean)
        columns = []
        for name in names:
            series = self._typed_column(name)
            if series.dtype in number_types:
                columns.append(series.cast(pl.Float64))
            else:
                columns.append(series.cast(pl.String))
        return pl.DataFrame(columns).hash_rows(seed=0).to_numpy()

    def unread(self, name: str, form: str | None = None) -> np.ndarray:
        """Return the rows whose text is no number, plainly or in a form, or an infinite one."""
        series = self._typed_column(name)
        if series.dtype != pl.String:
            is_infinite = self.finite(name).missing(name) & ~self.missing(name)
            return np.flatnonzero(is_infinite)
        text_form = None if form in UNITS else form
        numbers = numbers_of(series, text_form, self.decimal(name))
        is_unread = series.is_not_null() & numbers.is_null()
        return np.flatnonzero(is_unread.to_numpy())

    @property
    def _view(self) -> pl.DataFrame:
        """The rows as they are seen without a schema, each column in one type."""
        return pl.DataFrame([self._typed_column(name) for name in self.names])

    @property
    def _typed_view(self) -> pl.DataFrame:
        """The rows as in `_view`, with durations in their type and not as numbers."""
        durations = []
        for name in self.names:
            if self.unit(name) is not None:
                durations.append(self.cells(name))
        return self._view.with_columns(durations)

    def unit(self, name: str) -> str | None:
        """Return the unit in which a column's durations count as numbers; None without durations.

        It is declared, or the largest one of days, hours, minutes and seconds of which all of them
        are whole multiples.
        """
        cells = self.cells(name)
        if cells.dtype != DURATION:
            return None
        declared_unit = self._origin.units.get(name)
        if declared_unit is not None:
            return declared_unit
        return _whole_unit(cells)

    def _typed_column(self, name: str) -> pl.Series:
        """Return a column in the type that all cells of its source fit."""
        cells = self.cells(name)
        if cells.dtype == DURATION:
            if name not in self._typed_columns:
                unit = self.unit(name) or "seconds"
                numbers = durations_in(cells, unit)
                if (numbers == numbers.round()).all():
                    numbers = numbers.cast(pl.Int64)
                self._typed_columns[name] = numbers
            return self._typed_columns[name]

        text_column = self._origin.text_columns.get(name)
        source_column = text_column or self._origin.coded_columns.get(name)
        if source_column is None:
            return cells
        if name not in self._typed_columns:
            self._typed_columns[name] = source_column.typed(cells)
        return self._typed_columns[name]

    def _required_numbers(self, name: str, wanted: str, form: str | None) -> pl.Series:
        """Return a column's numbers, null for missing values; SchemaError for other cells."""
        numbers = self.numbers(name, form)
        is_unread = numbers.is_null() & self.cells(name).is_not_null()
        unread_rows = self.rows_of(is_unread.to_numpy())
        self.check_read(name, unread_rows, wanted, form)
        return numbers.fill_nan(None)

    def check_read(self, name: str, wrong: int, wanted: str, form: str | None) -> None:
        """Raise SchemaError where so many rows, if any, hold no number."""
        if not wrong:
            return
        if self.cells(name).dtype == pl.String:
            form_text = ""
            if form and form not in UNITS:
                form_text = f" written like {form!r}"
            raise SchemaError(
                f"column {name!r}: {count_of(wrong, 'row holds', 'rows hold')} text, but the "
                f"schema says {wanted}{form_text}; correct it, or list it in missing_values"
            )
        raise SchemaError(
            f"column {name!r} holds {self.kind(name)}, but the schema says {wanted}"
        )


def _objects(series: pl.Series) -> np.ndarray:
    """Convert a column of text to an array of objects, None for a missing one.

    Equal texts are one object where they are few, which saves most of the memory.
    """
    distinct_texts = series.drop_nulls().unique().to_list()
    has_few_texts = len(distinct_texts) * 8 <= len(series)
    if not distinct_texts or not has_few_texts:
        return np.array(series.to_list(), dtype=object)

    objects = np.array([*distinct_texts, None], dtype=object)
    places = _places(series, distinct_texts).to_numpy()
    # A missing text has no place: it becomes the None behind the last one.
    object_places = np.where(places < 0, len(distinct_texts), places)
    column: np.ndarray = objects[object_places]
    return column


def _places(labels: pl.Series, categories: Sequence[Any]) -> pl.Series:
    """Find each label's position among categories, as int32; -2 for an unknown one."""
    return labels.replace_strict(
        pl.Series(list(categories), dtype=labels.dtype),
        pl.Series(range(len(categories)), dtype=pl.Int32),
        default=-2,
        return_dtype=pl.Int32,
    )


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
        The table. Text stays text; a pandas index is dropped.

    Raises:
        DataError: When the file is missing, unreadable or no table, a column name repeats or is
            no text, a table cannot hold a column's type, or a database does not answer.
        InputError: When an option is not one, or a package for Excel, a database, or files of SPSS,
            Stata and SAS is missing.

    Example:
        >>> read(pl.DataFrame({"age": [30, None]})).missing("age").tolist()
        [False, True]
    """
    check_process()
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
    whole_table = _read(source, dialect, columns)
    if columns is None:
        return whole_table
    return whole_table.select(columns)


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
    return ParquetFile(file) if file_kind(file) == ".parquet" else None


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
    if isinstance(source, Database):
        return Table(_normal_frame(source.read(0)), _Origin())
    no_rows = source._lazy_frame.select(source.names).head(0).collect()
    zones = _zones(no_rows.schema)
    return Table(_normal_frame(no_rows), _Origin(zones=zones))


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
        drawn_rows = _normal_frame(source.read(share, secret))
        return Table(drawn_rows, _Origin(source_rows=source.num_rows))

    pieces = [source] if isinstance(source, Table) else source.batches()
    drawn_frames = []
    first_row = 0
    origin = _Origin()
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
    try:
        lazy, origin = _scan(file, dialect)
        if columns is not None:
            lazy = lazy.select(list(columns))
        frames = lazy.collect_batches(
            chunk_size=batch_rows, maintain_order=True, lazy=True
        )
        for frame in frames:
            yield Table(_normal_frame(_blanked_columns(frame, origin)), origin)
    except _UNREADABLE as error:
        raise unreadable(file, error) from None


def _scan(file: Path, requested: Dialect) -> tuple[pl.LazyFrame, _Origin]:
    """Open a file without reading its rows, if possible; return them, and their origin."""
    kind = file_kind(file)
    if kind == ".parquet":
        pattern = file / "**/*.parquet" if file.is_dir() else file
        lazy = pl.scan_parquet(pattern)
        return lazy, _Origin(zones=_zones(lazy.collect_schema()))

    if kind == _EXCEL:
        sheet, types = _sheet(file, requested)
        return sheet.lazy(), _Origin("csv", file_types=types)

    if kind in _JSON_LINES:
        types = _key_types(file, requested.names)
        # Scanned again as text: a value is then read by itself, whatever the others are.
        text_types = dict.fromkeys(types, pl.String)
        origin = _Origin(has_keys=True, file_types=_plain_types(types))
        return pl.scan_ndjson(file, schema=text_types), origin

    if kind in PROGRAMS:
        parsed = read_statistical(file, kind, encoding=requested.encoding)
        check_names(parsed.frame.columns, repr(str(file)))
        coded_columns = {}
        for cells in parsed.frame.get_columns():
            variable = parsed.variables[cells.name]
            coded_columns[cells.name] = _CodedColumn(cells, variable)
        return parsed.frame.lazy(), _Origin(coded_columns=coded_columns)

    if kind not in _TEXT_FILES:
        lazy = pl.scan_ipc(file)
        return lazy, _Origin(zones=_zones(lazy.collect_schema()))
    return _scan_text(file, requested)


def _key_types(file: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the keys of JSON lines and the type that fits all values of each.

    Where none fits, as with a number here and a list there, the known names count: one value must
    not decide whether a table is read.
    """
    try:
        types = pl.scan_ndjson(file, infer_schema_length=None).collect_schema()
    except pl.exceptions.PolarsError:
        if not names:
            raise
        return dict.fromkeys(names, pl.String)
    return dict(types)


def _scan_text(file: Path, requested: Dialect) -> tuple[pl.LazyFrame, _Origin]:
    """Open a text file; return its rows and its dialect, and log what looks wrong."""
    names, dialect = csv_header(file, requested)
    encoding = dialect.encoding or "utf-8"
    skip = dialect.skip or 0
    head = _read_bytes(file, _HEAD_BYTES)
    line_end = _line_end(head.decode(encoding, "replace"), dialect)
    scan = partial(
        pl.scan_csv,
        infer_schema=False,
        glob=False,
        has_header=bool(dialect.header),
        separator=dialect.separator or ",",
        eol_char=line_end,
        skip_lines=skip,
    )

    # Polars reads UTF-8 alone; anything else is decoded here.
    source = _utf8_source(file, encoding)
    control_byte = _control_byte_in(file, encoding)
    if control_byte is not None:
        _log.warning("%s", control_byte)
    hint = ""
    if len(names) == 1 and requested.separator is None:
        head_lines = head.decode(encoding, "replace").splitlines()
        hint = _divided_by(head_lines[skip:])
    if hint:
        _log.warning("%s was read as one column: %s", file, hint)

    # Polars makes a row of a blank line. Only where the last column lacks a value can there be one.
    lazy = scan(source)
    all_names = lazy.collect_schema().names()
    blank_lines = frozenset[int]()
    if len(names) > 1:
        last_column = pl.nth(len(names) - 1)
        if lazy.select(last_column.null_count()).collect().item():
            blank_lines = _blank_lines(file, len(all_names), dialect, line_end)
    if blank_lines:
        lazy = scan(_without_lines(file, dialect.encoding, blank_lines, line_end))

    unnamed = all_names[len(names) :]
    if unnamed and not dialect.names:
        _check_unnamed(file, lazy, unnamed, len(names))
    origin = _Origin(
        "csv",
        dialect=dialect,
        blank_lines=tuple(sorted(blank_lines)),
        num_unnamed=len(unnamed),
        hint=hint,
    )
    named_columns = []
    for file_name, name in zip(all_names, names, strict=False):
        named_columns.append(pl.col(file_name).alias(name))
    return lazy.select(named_columns), origin


def _line_end(head: str, dialect: Dialect) -> str:
    """Return the character that ends the lines of a text file, by its beginning.

    It is what ends the line of names, or the first row: a line break within a later cell has no say
    in it. Old programs of the Macintosh end lines with a carriage return alone.
    """
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)", head)[dialect.skip or 0 :]
    # A name in quotes may have a line break, too.
    reader = csv.reader(lines, delimiter=dialect.separator or ",")
    next(reader, None)
    if not reader.line_num:
        return "\n"
    last_line: str = lines[reader.line_num - 1]
    return last_line[-1]


def _utf8_source(file: Path, encoding: str) -> Any:
    """Return a text file, or its text in UTF-8 if the file's encoding is another, or has errors."""
    # Polars decompresses a .zst file, and refuses what is not UTF-8 itself.
    is_zst = file_kind(file).endswith(".zst")
    if not is_zst and _decoding_error(file, encoding) is not None:
        _log.warning(
            "%s: some bytes are not in %s, and %r stands for them; %s",
            file,
            encoding,
            _REPLACEMENT,
            _encoding_advice(file),
        )
        text = _read_bytes(file).decode(encoding, "replace")
        return BytesIO(text.encode())
    if codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig"):
        text = _read_bytes(file).decode(encoding)
        return BytesIO(text.encode())
    return file


def _without_lines(
    file: Path, encoding: str | None, blank_lines: Set[int], line_end: str
) -> BytesIO:
    """Return a text file's text in UTF-8 without some lines, which count from 1."""
    remaining_lines = []
    with TextIOWrapper(_opened(file), encoding, "replace", newline=line_end) as lines:
        for number, line in enumerate(lines, 1):
            if number not in blank_lines:
                remaining_lines.append(line)
    return BytesIO("".join(remaining_lines).encode())


def _check_unnamed(
    file: Path, lazy: pl.LazyFrame, unnamed: Sequence[str], num_named: int
) -> None:
    """Raise DataError if a nameless column at the end has a value in some row."""
    is_filled = pl.col(unnamed).str.strip_chars().ne("").any()
    are_filled = lazy.select(is_filled).collect().row(0)
    if any(are_filled):
        place = num_named + are_filled.index(True) + 1
        raise DataError(
            f"column {place} of {str(file)!r} has no name, and no "
            "value in the first rows, but in others; name it, or delete what it holds"
        )


def _zones(types: Mapping[str, Any]) -> dict[str, str]:
    """Return the time zones of columns of datetimes that have one."""
    zones = {}
    for name, dtype in types.items():
        zone = getattr(dtype, "time_zone", None)
        if zone:
            zones[name] = zone
    return zones


def _read(source: Any, dialect: Dialect, columns: Sequence[str] | None) -> Table:
    """Return the table of a source of any kind, see `read`."""
    if isinstance(source, Table):
        return source
    if isinstance(source, Database):
        return Table(_normal_frame(source.read()), _Origin())
    if isinstance(source, ParquetFile):
        return _read_file(source.path, dialect, source.columns)
    if isinstance(source, str | os.PathLike):
        # Refuses the address of a database without a table.
        unread(source)
        return _read_file(table_file(source), dialect, columns)
    if isinstance(source, pl.DataFrame):
        frame = _normal_frame(source.get_columns())
        origin = _Origin("polars", dict(source.schema), units=_units_of(frame))
        return Table(frame, origin)

    # Pandas and pyarrow are recognised by their names: they may not be installed.
    package = type(source).__module__.partition(".")[0]
    if package == "pandas" and type(source).__name__ == "DataFrame":
        return _read_pandas(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _read_arrow_stream(source, package)
    raise DataError(
        f"cannot read a {type(source).__name__}; give a path (.csv, .parquet) or a pandas, polars "
        "or arrow frame"
    )


def _read_pandas(source: Any) -> Table:
    """Return the table of a frame of pandas."""
    check_names(list(source.columns), "the frame")
    columns = []
    for name in source.columns:
        values, is_missing = _pandas_values(source[name])
        columns.append(_series_of(name, values, is_missing, mixed=True))
    frame = _normal_frame(columns)
    origin = _Origin("pandas", dict(source.dtypes), units=_units_of(frame))
    return Table(frame, origin)


def _read_arrow_stream(source: Any, package: str) -> Table:
    """Return the table of an arrow frame, or of a library's frame that arrow can read."""
    check_names(list(getattr(source, "column_names", ())), "the frame")
    kind: Literal["arrow", "polars"] = "polars"
    dtypes = {}
    if package == "pyarrow":
        kind = "arrow"
        dtypes = {column.name: column.type for column in source.schema}
    frame = _normal_frame(pl.DataFrame(source).get_columns())
    return Table(frame, _Origin(kind, dtypes, units=_units_of(frame)))


def _read_file(file: Path, dialect: Dialect, columns: Sequence[str] | None) -> Table:
    """Return the table of a file, of some columns or all."""
    try:
        lazy, origin = _scan(file, dialect)
        if columns is not None:
            file_names = lazy.collect_schema().names()
            for name in columns:
                _check_name(name, file_names)
            lazy = lazy.select(*dict.fromkeys(columns))
        cells = lazy.collect()
    except _UNREADABLE as error:
        raise unreadable(file, error) from None

    blanked_columns = _blanked_columns(cells, origin)
    if origin.is_text or origin.has_keys:
        text_columns = {}
        for column in blanked_columns:
            if column.dtype == pl.String:
                file_type = origin.file_types.get(column.name)
                text_column = _TextColumn(column, dialect.decimal, file_type)
                text_columns[column.name] = text_column
        origin = replace(origin, text_columns=text_columns)
    frame = _normal_frame(blanked_columns)
    return Table(frame, replace(origin, units=_units_of(frame)))


def _units_of(frame: pl.DataFrame) -> dict[str, str]:
    """Return the unit in which each column of durations counts as numbers, by column."""
    units = {}
    for column in frame.get_columns():
        if column.dtype == DURATION:
            units[column.name] = _whole_unit(column)
    return units


def _whole_unit(durations: pl.Series) -> str:
    """Return the largest unit of which all durations are whole multiples, down to seconds."""
    micros = durations.drop_nulls().cast(pl.Int64)
    # A duration of 0 is a multiple of every unit.
    if not (micros != 0).any():
        return "seconds"
    for unit in ("days", "hours", "minutes"):
        if not (micros % UNITS[unit] != 0).any():
            return unit
    return "seconds"


def _padded(texts: pl.Series, decimal: str) -> int:
    """Return the fewest decimals of a number, counting zeros at its end.

    Numbers with a power, such as 1e-3, do not count.
    """
    is_plain = texts.str.contains(r"^[^a-zA-Z]+$")
    tail_pattern = rf"{re.escape(decimal)}(\d+)\s*$"
    tails = texts.filter(is_plain).str.extract(tail_pattern).fill_null("")
    counts = tails.str.len_chars()
    zero_counts = counts.filter(tails.str.ends_with("0"))
    return fewest_decimals({*counts.unique()}, {*zero_counts.unique()})


def fewest_decimals(counts: Set[int], zeros: Set[int]) -> int:
    """Return the fewest decimals that any number of a column is written with.

    Whole numbers without a mark are passed over where two or more are padded: 80 beside 80.50.

    Args:
        counts: How many decimals numbers have.
        zeros: How many those have that end with a zero.
    """
    fewest = min(counts, default=0)
    fewest_with_mark = min(counts - {0}, default=0)
    # One decimal that is 0, as in 80.0, is how programs write a whole number in a double.
    if fewest_with_mark in zeros - {1}:
        fewest = fewest_with_mark
    return min(MOST_DECIMALS, fewest)


def decimals_of(numbers: NDArray[np.float64], most: int, bits: int) -> int | None:
    """Return the fewest decimals, up to a limit, that write all numbers of so many bits exactly.

    None if they have more.
    """
    largest = float(np.abs(numbers).max(initial=0.0))
    for decimals in range(most + 1):
        # Beyond so many bits, a double has no place for the last decimal.
        if not largest * 10.0**decimals < 2.0**bits:
            break
        if (np.round(numbers, decimals) == numbers).all():
            return decimals
    return None


def _check_name(name: str, names: Sequence[str]) -> None:
    """Raise DataError unless a table has a column of this name."""
    if name not in names:
        raise DataError(f"the table has no column {name!r}; it has {', '.join(names)}")


def check_numbers(name: str, wild: int, wrong: int = 0) -> None:
    """Raise SchemaError if rows hold infinite numbers, or none that are whole where they must.

    `wild` and `wrong` are the numbers of such rows.
    """
    problems = (
        (wild, "infinite numbers; correct them, or leave them empty"),
        (wrong, "no whole number; declare it continuous, or round its values"),
    )
    for num_rows, problem in problems:
        if num_rows:
            rows_hold = count_of(num_rows, "row holds", "rows hold")
            raise SchemaError(f"column {name!r}: {rows_hold} {problem}")


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
    stem, mark, _ = str(path).partition(f"{_EXCEL}#")
    # A file may have such a name itself.
    if mark and not path.is_file():
        return Path(stem + _EXCEL)
    return path


def rows_declared(path: Path) -> int | None:
    """Return the number of rows that a file of SPSS, Stata or SAS declares; None for others."""
    kind = file_kind(path)
    if kind not in PROGRAMS:
        return None
    _, num_rows = names_and_rows(table_file(path), kind)
    return num_rows


def is_text_file(path: Path) -> bool:
    """Return whether a path names a CSV or a TSV, compressed or not."""
    return file_kind(path) in _TEXT_FILES


def table_file(path: str | os.PathLike[str]) -> Path:
    """Return a table's path; raises DataError unless it is a file of a known kind that is there."""
    file = Path(path)
    if file.is_dir() and any(file.glob("**/*.parquet")):
        return file
    if not stored(file).is_file():
        parquet = " with .parquet files" if file.is_dir() else ""
        raise DataError(f"there is no file {str(file)!r}{parquet}; check the path")
    if not file_kind(file):
        raise DataError(
            f"cannot read {file.name!r}: the name must end in {_FILES_IN_ERRORS}"
        )
    return file


def unreadable(file: Path, error: Exception) -> DataError:
    """Return the error which says why a file cannot be read.

    It goes without the reader's own message where that quotes lines of a CSV.
    """
    reason = getattr(error, "strerror", None) or _first_line(error)
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
    if "more fields" in message:
        return (
            "a line has more fields than the first one; put values that hold the separator in "
            f"quotes, and delete lines above the names, such as a title, {_SKIP_ADVICE}"
        )
    return "a line cannot be parsed; look for a quotation mark that is not closed"


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
    except _UNREADABLE as error:
        raise unreadable(file, error) from None


# How a text file is written


def csv_header(
    file: Path, requested: Dialect | None = None
) -> tuple[list[str], Dialect]:
    """Read a text file's column names and dialect, as requested or as it seems to be.

    Raises:
        DataError: When it is empty, its encoding cannot be decided, or a name repeats.
    """
    requested = requested or Dialect()
    encoding = requested.encoding or _marked_encoding(file)
    data = _read_bytes(file, _HEAD_BYTES)
    is_assumed = requested.encoding is None and encoding == "utf-8"
    if is_assumed and any(_has_zeros(data)):
        raise _undecided(file)
    lines = _head_lines(data, encoding)

    dialect = _by_names(lines, requested)
    skipped_lines = dialect.skip
    if skipped_lines is None:
        skipped_lines = _lines_above(lines, dialect)
    title = "".join(lines[:skipped_lines])
    lines = lines[skipped_lines:]
    # A mark that ends a line for Python alone, such as a form feed, does not count here.
    num_above = title.count("\n") or skipped_lines
    if not "".join(lines).strip():
        raise DataError(
            f"{str(file)!r} is empty; it needs a first line of column names"
        )
    if not "".join(lines[:_HEAD_ROWS]).strip():
        raise DataError(
            f"{str(file)!r}: its first {_HEAD_ROWS} lines are blank; remove them, or declare how "
            "many lines stand above the column names: skip="
        )

    separator = dialect.separator or _separator(lines)
    reader = csv.reader(lines[:_HEAD_ROWS], delimiter=separator)
    rows = [row for row in reader if row]
    header = dialect.header
    if header is None:
        header = _has_header(rows)
    names = _column_names(rows, header, has_known_names=bool(dialect.names))

    # A title would name one column of many. Who says that the line has names is believed.
    if header and dialect.header is None:
        num_filled = _num_filled(rows[0])
        if 2 * num_filled < len(names) > 2:
            raise DataError(
                f"line {num_above + 1} of {str(file)!r} names {num_filled} of {len(names)} "
                f"columns: delete lines above the names, such as a title, {_SKIP_ADVICE}; or give "
                "--header (header=True) if these are all names"
            )
    check_names(names, repr(str(file)))
    if _REPLACEMENT in "".join(names):
        raise DataError(
            f"the names of {str(file)!r} are not in {encoding}; {_encoding_advice(file)}, or "
            "store the file as UTF-8"
        )
    as_decided = replace(
        dialect,
        separator=separator,
        encoding=encoding,
        header=header,
        skip=num_above,
    )
    return names, as_decided


def _head_lines(data: bytes, encoding: str) -> list[str]:
    """Read the lines at the beginning of a text file, without one that is cut off."""
    head = codecs.getincrementaldecoder(encoding)("replace").decode(data)
    lines = head.removeprefix("\ufeff").splitlines(keepends=True)
    is_cut_off = len(head) > 1 and head[-1] not in "\r\n"
    if is_cut_off and len(lines) > 1:
        return lines[:-1]
    return lines


def _column_names(
    rows: Sequence[Sequence[str]], header: bool, *, has_known_names: bool
) -> list[str]:
    """Return the names of a text file's columns, without empty columns at the end.

    A column without a name is called by its place.
    """
    width = len(rows[0])
    first_fields = rows[0] if header else [""] * width
    names = list(first_fields)
    for index, name in enumerate(first_fields):
        if not name.strip():
            names[index] = f"column_{index + 1}"
    if not header:
        return names

    # A row's value names no column that a schema lacks.
    rows_that_count = rows[:1] if has_known_names else rows
    filled_width = max(map(_filled_width, rows_that_count))
    return names[:filled_width] if filled_width else names


def _filled_width(fields: Sequence[str]) -> int:
    """Return the place of the last field with a value, counted from 1; 0 if all are empty."""
    places = [place for place, text in enumerate(fields, 1) if text.strip()]
    return max(places, default=0)


def _num_filled(fields: Sequence[str]) -> int:
    """Count the fields that hold a value."""
    return sum(bool(text.strip()) for text in fields)


def _by_names(lines: Sequence[str], requested: Dialect) -> Dialect:
    """Find the line of names, and the separator, by known names; a dialect without any stays.

    It is the first line that has most of them, by the separator that divides it so. Rows lie below
    it, so none is looked at.
    """
    if not requested.names or requested.header is False:
        return requested

    wanted_names = set(requested.names)
    starts: Iterable[int] = range(_MOST_LINES_ABOVE)
    if requested.skip is not None:
        starts = [requested.skip]
    separators: Iterable[str] = _SEPARATORS
    if requested.separator:
        separators = [requested.separator]

    most_names = 0
    dialect = requested
    for start in starts:
        if start >= len(lines):
            continue
        for mark in separators:
            fields = next(csv.reader([lines[start]], delimiter=mark), [])
            num_names = len(wanted_names.intersection(fields))
            if num_names > most_names:
                most_names = num_names
                dialect = replace(requested, separator=mark, header=True, skip=start)
    return dialect


def _lines_above(lines: Sequence[str], dialect: Dialect) -> int:
    """Count the lines above the names: comments with #, a title, and empty lines.

    A line that begins with # is no comment if it has as many fields as the line below it, and at
    least half of them hold something; a title needs an empty line below it. Neither holds above a
    line that can only be names.
    """
    lines = lines[:_HEAD_ROWS]
    marks_of_nothing = ' \t\r\n";,|'
    candidates = lines[:_MOST_LINES_ABOVE]
    is_empty = [not line.strip(marks_of_nothing) for line in candidates]
    is_note = []
    for line, line_is_empty in zip(lines, is_empty, strict=False):
        is_note.append(line_is_empty or bool(_NOTE.match(line)))

    # From below, so that the names are sought under all lines that may be notes.
    for start in range(len(is_note) - 1, 0, -1):
        is_below_note = is_note[start - 1]
        if is_note[start] or all(is_empty[:start]):
            continue
        if not is_below_note and start > _MOST_TITLE_LINES:
            continue

        mark = dialect.separator or _separator(lines[start:])
        # One by one: a quotation mark in a title must not swallow the lines below it.
        rows_above = [
            next(csv.reader([line], delimiter=mark)) for line in lines[:start]
        ]
        reader_below = csv.reader(lines[start:], delimiter=mark)
        rows_below = [row for row in reader_below if row]
        if _cannot_be_title(rows_above, rows_below, is_note, dialect):
            continue

        # An odd number of quotation marks above: the line lies within a value.
        is_within_quotes = "".join(lines[:start]).count('"') % 2
        if not is_within_quotes and _are_names(rows_below):
            return start
        if is_below_note:
            width = len(rows_below[0])
            return _first_comment(lines, rows_above, is_empty, width)
    return 0


def _cannot_be_title(
    rows_above: Sequence[Sequence[str]],
    rows_below: Sequence[Sequence[str]],
    is_note: Sequence[bool],
    dialect: Dialect,
) -> bool:
    """Return whether lines above the names hold too much to be a title or notes."""
    title_widths = []
    for row, row_is_note in zip(rows_above, is_note, strict=False):
        if not row_is_note:
            title_widths.append(_num_filled(row))
    widest_title = max(title_widths, default=0)
    if not widest_title:
        return False

    num_names = _num_filled(rows_below[0])
    is_wide = num_names < 2 or 2 * widest_title >= max(3, num_names)
    # Where the first line is declared to have names, no line is a title.
    return bool(dialect.header) or is_wide


def _first_comment(
    lines: Sequence[str],
    rows_above: Sequence[Sequence[str]],
    is_empty: Sequence[bool],
    width: int,
) -> int:
    """Find the line of the names, counted from 0: a comment that has as many fields as they.

    If no line above begins with # and has these fields, the names follow the lines above.
    """
    names_line = len(rows_above)
    first_alike = names_line
    while first_alike:
        row = rows_above[first_alike - 1]
        is_alike = len(row) == width <= 2 * _num_filled(row)
        if not is_empty[first_alike - 1] and not is_alike:
            break
        first_alike -= 1

    for number in range(first_alike, names_line):
        if lines[number].startswith("#"):
            return number
    return names_line


def _are_names(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row can be nothing but names.

    They are different texts, which no row below has, and at least one is over numbers.
    """
    first_row = rows[0]
    rows_below = [row for row in rows[1:] if len(row) == len(first_row)]
    columns = []
    for values in zip(*rows_below, strict=True):
        columns.append([value for value in values if value.strip()])

    names_with_letters = [name for name in first_row if re.search(r"[^\W\d_]", name)]
    words = {name.strip().lower() for name in names_with_letters}
    words -= _MISSING_WORDS
    has_number = any(map(_NUMBER.fullmatch, first_row))
    if has_number or len(words) < len(first_row):
        return False
    pairs = zip(first_row, columns, strict=False)
    are_new = all(name not in values for name, values in pairs)
    return are_new and any(map(_numbers_of, columns))


def _numbers_of(values: Sequence[str]) -> list[float]:
    """Return the sizes of numbers in texts, if nearly all texts are numbers; else none."""
    numbers = [_size_of(value) for value in values if _NUMBER.fullmatch(value)]
    return numbers if len(numbers) > 0.8 * len(values) else []


def packed_lines(file: Path) -> int:
    """Count the lines of a compressed text file; DataError if it cannot be decompressed."""
    try:
        return int(pl.scan_lines(file).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError):
        reason = "it cannot be decompressed; copy it again, it may be cut off"
        raise DataError(f"cannot read {str(file)!r} as a table: {reason}") from None


def _read_bytes(file: Path, most: int = -1) -> bytes:
    """Read the first bytes of a file, or all of them, decompressed."""
    most_lines = _HEAD_ROWS if most > 0 else None
    with _opened(file, most_lines) as data:
        return bytes(data.read(most))


def _opened(file: Path, most_lines: int | None = None) -> Any:
    """Open a file's bytes, decompressed; of a .zst file, only so many lines."""
    kind = file_kind(file)
    # Python 3.11 has no reader of this compression; that of polars takes UTF-8 alone.
    if kind.endswith(".zst"):
        scanned_lines = pl.scan_lines(file, n_rows=most_lines).collect()
        lines = scanned_lines.to_series().to_list()
        text = "".join(f"{line}\n" for line in lines)
        return BytesIO(text.encode())
    if kind.endswith(".gz"):
        return gzip.open(file)
    return file.open("rb")


def _blank_lines(
    file: Path, num_fields: int, dialect: Dialect, line_end: str
) -> frozenset[int]:
    """Return the numbers of a text file's empty lines, counted from 1.

    DataError where a line has fewer fields than others: it may be cut off. If all lines below the
    names have as few, or lines may be short, separators at their end were left off.
    """
    blank_lines = []
    first_lines: dict[int, int] = {}
    line_counts: Counter[int] = Counter()
    with TextIOWrapper(
        _opened(file), dialect.encoding, "replace", newline=line_end
    ) as lines:
        num_above = sum(1 for _ in islice(lines, dialect.skip))
        reader = csv.reader(
            (_one_line(line, line_end) for line in lines),
            delimiter=dialect.separator or ",",
        )
        line = num_above + 1
        for row in reader:
            width = len(row)
            if width < 2 and not "".join(row).strip():
                blank_lines.append(line)
            else:
                first_lines.setdefault(width, line)
                line_counts[width] += 1
            # A field with line breaks takes several lines, which the reader counts.
            line = num_above + reader.line_num + 1

    # The line of names, which has all fields, is no row.
    line_counts[num_fields] -= bool(dialect.header)
    widths = []
    for width, count in line_counts.items():
        if count and width <= num_fields:
            widths.append(width)
    widest = max(widths, default=0)
    short_lines = []
    for width, line in first_lines.items():
        if width < widest:
            short_lines.append((line, width))
    short_lines.sort()
    if short_lines and not dialect.short_lines:
        num_short = sum(line_counts[width] for _, width in short_lines)
        line, width = short_lines[0]
        raise _short_line(file, dialect, line, f"{width} of {widest}", num_short)
    return frozenset(blank_lines)


def _one_line(line: str, line_end: str) -> str:
    """Return a line of a text file for a reader that ends lines at other marks, too.

    Such a mark within the line is part of a cell: a letter stands for it.
    """
    content = line.removesuffix(line_end).rstrip("\r")
    return content.replace("\r", "_").replace("\n", "_") + "\n"


def _short_line(
    file: Path, dialect: Dialect, line: int, fields: str, num_short: int
) -> DataError:
    """Return the error about a line with too few fields, and about others like it."""
    # A byte that is in no text, such as NUL, may have cut the line off.
    control_byte = _control_byte_in(file, dialect.encoding or "utf-8")
    if control_byte is not None and f"line {line} of " in control_byte:
        return DataError(control_byte)
    others = ""
    if num_short > 1:
        others = f" ({num_short:,} lines have too few)"
    return DataError(
        f"line {line} of {str(file)!r} has {fields} fields{others}. Complete it, or delete it "
        "if the file was cut off there or it is a note below the rows; put a value that holds "
        "a line break in quotes. If empty fields at the end were left off, as Excel does, say "
        "that lines may be short: "
        "short_lines = true in the study, --short-lines, or read(short_lines=True)"
    )


def _marked_encoding(file: Path) -> str:
    """Return UTF-16 if the file begins with its mark, else UTF-8; no row can change that."""
    if file_kind(file).endswith(".zst"):
        return "utf-8"
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return "utf-16" if _read_bytes(file, 2).startswith(marks) else "utf-8"


def _has_zeros(head: bytes) -> list[bool]:
    """Return whether bytes look like UTF-16 without a mark: zeros at even or at odd places.

    An empty list where there are no two bytes.
    """
    if len(head) < 2:
        return []
    zero_counts = [head[first::2].count(0) for first in (0, 1)]
    return [count * 2 > 0.3 * len(head) for count in zero_counts]


def encoding_of(path: str | os.PathLike[str]) -> str:
    """Guess the encoding of a text file from all its bytes, for someone to declare it.

    It is UTF-16 by its mark or its zeros, else UTF-8 if all bytes are, else a Western code page.

    Raises:
        DataError: It cannot be decided; names the first line that is not UTF-8, or that holds a
            byte that is in no text, such as NUL.
    """
    file = Path(path)
    marked_encoding = _marked_encoding(file)
    if marked_encoding != "utf-8" or file_kind(file).endswith(".zst"):
        return marked_encoding
    head = _read_bytes(file, _HEAD_BYTES)
    has_zeros = _has_zeros(head)
    if any(has_zeros):
        # In big-endian order the zero of a Latin letter comes first.
        return "utf-16-be" if has_zeros[0] else "utf-16-le"

    error = _decoding_error(file, "utf-8")
    control_byte = _control_byte_in(file)
    if control_byte is not None:
        num_control = len(head.translate(None, _TEXT_BYTES))
        if num_control > _MOST_CONTROL * len(head):
            raise _undecided(file)
        raise DataError(f"{control_byte}; or give its encoding, to read it as it is")
    if error is None:
        return "utf-8"
    # The head may have no such byte; those behind the first one have.
    odd_bytes = error.object[error.start : error.start + _HEAD_BYTES]
    if _is_cp1252(head + odd_bytes):
        return "cp1252"
    raise _undecided(file)


def _is_cp1252(sample: bytes) -> bool:
    """Return whether bytes are words of a Western language in Windows' code page."""
    # Control characters, and bytes that the code page lacks.
    if re.search(rb"[\x00-\x08\x0e-\x1f\x81\x8d\x8f\x90\x9d]", sample):
        return False
    text = sample.decode("cp1252")
    num_odd = sum(map(len, _ODD_LETTERS.findall(text)))
    num_marked = sum(not mark.isascii() for mark in text)
    return 5 * num_odd <= num_marked


def _decoding_error(file: Path, encoding: str) -> UnicodeDecodeError | None:
    """Return the first error of decoding a file, if there is one."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with _opened(file) as data:
        try:
            while chunk := data.read(_CHUNK_BYTES):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            return error
    return None


def _control_byte_in(file: Path, encoding: str = "utf-8") -> str | None:
    """Describe where a text file holds a byte that no text has, such as NUL; None if nowhere."""
    # UTF-16 has such bytes everywhere.
    has_ascii_bytes = "\x1a".encode(encoding, "replace") == b"\x1a"
    if file_kind(file).endswith(".zst") or not has_ascii_bytes:
        return None

    line = 1
    with _opened(file) as data:
        while chunk := data.read(_CHUNK_BYTES):
            control_bytes = chunk.translate(None, _TEXT_BYTES)
            if control_bytes:
                byte = control_bytes[0]
                line += chunk.count(b"\n", 0, chunk.index(control_bytes[:1]))
                name = _CONTROLS.get(byte, f"a control character (byte {byte:02X})")
                return (
                    f"line {line} of {str(file)!r} holds {name}. Delete it, or store the file as "
                    "text again"
                )
            line += chunk.count(b"\n")
    return None


def _encoding_advice(file: Path) -> str:
    """Describe how to declare the encoding of a file, with a guess at the right one."""
    try:
        likely = encoding_of(file)
    except DataError:
        likely = "latin-1"
    return (
        f"declare the encoding, such as {likely}: encoding = {likely!r} in the study, --encoding "
        f"{likely}, or read(encoding={likely!r})"
    )


def _undecided(file: Path) -> DataError:
    """Return the error about a file whose encoding cannot be decided."""
    data = _read_bytes(file)
    first_line = ""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        first_line = f" (line {line} is the first that is not UTF-8)"

    def num_odd(encoding: str) -> int:
        return len(_ODD_LETTERS.findall(data.decode(encoding)))

    likely = min(("mac-roman", "cp850"), key=num_odd)
    return DataError(
        f"the encoding of {str(file)!r} cannot be decided: it is not UTF-8 or UTF-16 throughout"
        f"{first_line}, and holds bytes that no Western code page has, or that make no words in "
        f"it. Name it, such as {likely} (of old text in a Western language), koi8-r or shift-jis: "
        "encoding = ... in the study, --encoding, or read(encoding=...); or store the file as UTF-8"
    )


def readings(table: Table) -> tuple[str, ...]:
    """Return readings of a word from a text file whose encoding was taken to be cp1252.

    The result is empty for other files.

    A second one is that of mac-roman, where it makes no more odd words of these bytes.
    """
    if table.dialect is None or table.dialect.encoding != "cp1252":
        return ()
    text_names = [name for name in table.names if table.kind(name) == "text"]
    columns = [table.text_counts(name) for name in text_names]
    texts = " ".join(chain(table.names, *columns))
    words = [word for word in texts.split() if not word.isascii()]
    if not words:
        return ()

    # An odd word, if there is one, shows best that the encoding is wrong.
    odd_words = [word for word in words if _ODD_LETTERS.search(word)]
    word = odd_words[0] if odd_words else words[0]
    mac_words = [_in_mac_roman(word) for word in words]
    if _num_odd_words(mac_words) <= len(odd_words):
        return word, _in_mac_roman(word)
    return (word,)


def _in_mac_roman(word: str) -> str:
    """Read a word of cp1252 in the Macintosh's old code page."""
    return word.encode("cp1252").decode("mac-roman")


def _num_odd_words(words: Iterable[str]) -> int:
    """Count the words with letters that few Western words have."""
    return sum(bool(_ODD_LETTERS.search(word)) for word in words)


def _separator(lines: Sequence[str]) -> str:
    """Return the mark that divides most lines into as many fields as the first, several."""
    separator = ","
    best = (0.0, 0)
    for mark in _SEPARATORS:
        reader = csv.reader(lines[:_HEAD_ROWS], delimiter=mark)
        rows = [row for row in reader if row]
        width = len(rows[0])
        share_alike = sum(len(row) == width for row in rows) / len(rows)
        if width > 1 and (share_alike, width) > best:
            separator = mark
            best = (share_alike, width)
    return separator


def _divided_by(lines: Sequence[str]) -> str:
    """Describe an unusual mark that seems to divide fields; empty without a sign of one."""
    lines = [line.strip() for line in lines[:_HEAD_ROWS] if line.strip()]
    for mark in _RARE_SEPARATORS:
        rows = [next(csv.reader([line], delimiter=mark), []) for line in lines]
        if _are_columns(rows):
            return (
                f"its fields seem to be divided by {mark!r}; give --separator {mark!r}, "
                f"separator = {mark!r} in the study, or read(separator={mark!r})"
            )

    rows = [line.split() for line in lines]
    # Blanks divide the words of a text, too: without a column of numbers they say nothing.
    columns = zip(*rows[1:], strict=False)
    if not _are_columns(rows) or not any(map(_numbers_of, columns)):
        return ""
    if any("  " in line for line in lines):
        return (
            "its fields seem to have fixed widths, or several blanks between them; write it with "
            "commas, such as by pandas.read_fwf(path).to_csv(path, index=False)"
        )
    return (
        "its fields seem to be divided by blanks; give --separator ' ', separator = ' ' in the "
        "study, or read(separator=' ')"
    )


def _are_columns(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether nearly all rows have as many fields as the first, which are several."""
    width = len(rows[0]) if rows else 0
    num_alike = sum(len(row) == width for row in rows)
    return width > 1 and len(rows) > 2 and num_alike >= 0.95 * len(rows)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row names columns: its fields do not look like those below.

    A number within the range of the column does, a text that the column holds again, and one with
    digits of the form that nearly all of its texts have. A text over numbers is a name.
    """
    first_row = list(rows[0])
    rows_below = [row for row in rows[1:] if len(row) == len(first_row)]
    # Where columns have no names, programs write their places, from 0 or from 1.
    from_zero = [str(place) for place in range(len(first_row))]
    from_one = [str(place + 1) for place in range(len(first_row))]
    if len(rows_below) < 2 or first_row in (from_zero, from_one):
        return True

    num_alike = 0
    columns = zip(*rows_below, strict=True)
    for name, values in zip(first_row, columns, strict=True):
        filled_values = [value for value in values if value.strip()]
        numbers = _numbers_of(filled_values)
        if numbers and not _NUMBER.fullmatch(name):
            return True
        if numbers:
            num_alike += min(numbers) <= _size_of(name) <= max(numbers)
        else:
            num_alike += name in filled_values or _has_form_of(name, filled_values)
    return 2 * num_alike < len(first_row)


def _has_form_of(name: str, values: Sequence[str]) -> bool:
    """Return whether a text has digits, and the form that nearly all of some texts have."""
    form = _form_of(name)
    if form.count("0") < 2:
        return False
    forms = [_form_of(value) for value in values]
    return forms.count(form) > 0.9 * len(forms)


def _form_of(text: str) -> str:
    """Replace all digits of a text by one digit, and all letters by one letter."""
    digits_alike = re.sub(r"\d", "0", text.strip())
    return re.sub(r"[^\W\d_]", "a", digits_alike)


def _size_of(number: str) -> float:
    """Return a rough size of a written number, whatever its marks mean."""
    mantissa = number.partition("e")[0]
    digits = re.sub(r"[^\d.+-]", "", mantissa)
    with suppress(ValueError):
        return float(digits)
    # Several points divide thousands.
    return float(re.sub(r"\D", "", digits) or 0)


def names_after(
    names: Sequence[str], rename: Mapping[str, str], where: str
) -> tuple[str, ...]:
    """Return the column names after a `rename`.

    Args:
        names: The table's own.
        rename: Own names and new ones.
        where: Whose table it is, for errors.

    Raises:
        DataError: There is no such column, or a new name is there already.
    """
    absent_names = [name for name in rename if name not in names]
    if absent_names:
        raise DataError(
            f"{where} has no column {absent_names[0]!r}, which rename names; it has {listed(names)}"
        )
    new_names = tuple(rename.get(name, name) for name in names)
    num_named = Counter(new_names)
    repeated_names = [name for name in rename.values() if num_named[name] > 1]
    if repeated_names:
        raise DataError(
            f"{where}: rename makes a second column {repeated_names[0]!r}. Rename the other one "
            "too, or leave it out"
        )
    return new_names


def check_names(names: Sequence[Any], where: str) -> None:
    """Raise DataError unless column names are text and distinct."""
    all_names = list(names)
    repeated = {str(name) for name in all_names if all_names.count(name) > 1}
    repeated_names = sorted(repeated)
    if repeated_names:
        repeated_text = ", ".join(repeated_names)
        raise DataError(f"{where} has column names twice: {repeated_text}; rename them")
    odd_names = []
    for name in all_names:
        if not isinstance(name, str) or not name:
            odd_names.append(name)
    if odd_names:
        raise DataError(
            f"{where} has column names that are no text: {odd_names}; rename them"
        )


def _blanked_columns(frame: pl.DataFrame, origin: _Origin) -> list[pl.Series]:
    """Make empty fields of a text file missing, quoted or not, and texts declared as missing."""
    if not origin.is_text:
        return frame.get_columns()
    missing = origin.dialect.missing if origin.dialect else ()
    return _without_texts(frame, missing).get_columns()


def _without_texts(frame: pl.DataFrame, missing: Sequence[str]) -> pl.DataFrame:
    """Make certain texts missing, and texts of nothing but spaces."""
    text = pl.col(pl.String)
    is_blank = text.str.strip_chars().is_in(["", *missing])
    return frame.with_columns(pl.when(~is_blank).then(text))


def _plain_types(types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types that a file declares for columns, as far as a table can hold them."""
    plain_types: dict[str, Any] = {}
    for name, dtype in types.items():
        if dtype in WHOLE or dtype in (pl.Float64, pl.Boolean, pl.Null):
            plain_types[name] = dtype
        elif isinstance(dtype, pl.Datetime | pl.Date):
            plain_types[name] = DATETIME
    return plain_types


def _sheet(path: Path, dialect: Dialect) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Read a sheet of an Excel file, every cell as text, and the types of its columns.

    The first row has names unless the dialect says that none has.
    """
    file = stored(path)
    sheet_name = _sheet_name(path, file)
    where = f"sheet {sheet_name!r} of {str(file)!r}"
    has_header = dialect.header is not False
    read_sheet = partial(
        pl.read_excel,
        file,
        sheet_name=sheet_name,
        engine="calamine",
        raise_if_empty=False,
    )

    # As text: a number that fits no type of the others must not decide whether there are rows.
    as_text = {"dtypes": "string"}
    cells = read_sheet(has_header=False, read_options=as_text)
    fewest_rows = 2 if has_header else 1
    if not cells.width or cells.height < fewest_rows:
        raise DataError(
            f"{where} has no rows; it needs a row of column names, and rows below"
        )
    if has_header:
        names = _sheet_columns(cells, where, has_known_names=bool(dialect.names))
    else:
        names = [f"column_{place + 1}" for place in range(cells.width)]
    merged_range = _merged_range(file, sheet_name)
    if merged_range:
        raise DataError(
            f"{where}: cells {merged_range} are merged, and only the first of them has the value. "
            "Split them, and write each value into each of its rows; names stand in one row"
        )

    # Read twice more: as text, and in the types that Excel's own cells have.
    texts = read_sheet(has_header=has_header, read_options=as_text)[:, : len(names)]
    texts.columns = names
    texts = _without_texts(texts, dialect.missing)
    try:
        typed = read_sheet(has_header=has_header, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        # A number such as 1e308 in a column of whole ones.
        return texts, {}
    types = dict(zip(names, typed.dtypes, strict=False))
    return texts, _plain_types(types)


def _sheet_name(path: Path, file: Path) -> str:
    """Return the name of the sheet in a path, such as ``t.xlsx#Visits``, or of the only sheet."""
    try:
        fastexcel = import_module("fastexcel")
    except ModuleNotFoundError:
        raise InputError(
            f"{path.name}: Excel files need the package fastexcel: pip install '.[excel]' in the "
            "clone"
        ) from None
    try:
        sheet_names = fastexcel.read_excel(str(file)).sheet_names
    except fastexcel.FastExcelError as error:
        raise DataError(
            f"cannot read {str(file)!r} as an Excel file: {_first_line(error)}"
        ) from None

    has_sheet_in_path = path != file
    if has_sheet_in_path:
        sheet_name = str(path).partition(f"{_EXCEL}#")[2]
        problem = f"has no sheet {sheet_name!r}"
        is_clear = sheet_name in sheet_names
    else:
        sheet_name = str(sheet_names[0])
        problem = f"has {len(sheet_names)} sheets"
        is_clear = len(sheet_names) == 1
    if not is_clear:
        raise DataError(
            f"{str(file)!r} {problem}; write {file.name}#{sheet_names[0]}, or another of "
            f"{', '.join(sheet_names)}"
        )
    return sheet_name


def _sheet_columns(
    cells: pl.DataFrame, where: str, *, has_known_names: bool
) -> list[str]:
    """Return the names in the first row of a sheet; DataError if they cannot be names."""
    values = map(_text_or_empty, cells.row(0))
    names = [str(value).strip() for value in values]
    # What a row has beside the table is in no column that a schema knows.
    if has_known_names:
        names = names[: _filled_width(names)] or names
    if "" in names:
        raise DataError(
            f"{where}: column {names.index('') + 1} has no name in the first row. Names that "
            "are merged over several cells, and titles above them, cannot be read: give each "
            "column one name, in the first row"
        )
    check_names(names, where)
    return names


def _merged_range(file: Path, sheet_name: str) -> str:
    """Return the first range of merged cells in a sheet, such as A1:A2; empty without one."""
    with ZipFile(file) as parts:
        sheet_part = _sheet_part(parts, sheet_name)
        with parts.open(sheet_part) as data:
            tail = b""
            while piece := data.read(1 << 20):
                match = _MERGED.search(tail + piece)
                if match:
                    return match[1].decode()
                tail = piece[-_OVERLAP_BYTES:]
    return ""


def _sheet_part(parts: ZipFile, sheet_name: str) -> str:
    """Return the part of an Excel file that holds a sheet, which the workbook links to."""
    links_xml = parts.read("xl/_rels/workbook.xml.rels")
    workbook_xml = parts.read("xl/workbook.xml")
    # expat bounds the entities of XML.
    links = ElementTree.fromstring(links_xml)  # noqa: S314
    workbook = ElementTree.fromstring(workbook_xml)  # noqa: S314
    targets = {link.get("Id"): link.get("Target", "") for link in links}

    sheets = workbook.iterfind(".//{*}sheet")
    sheet = next(sheet for sheet in sheets if sheet.get("name") == sheet_name)
    # The attribute r:id has the namespace of Excel's version before it.
    link_ids = [value for key, value in sheet.attrib.items() if key.endswith("}id")]
    target = targets[link_ids[0]]
    # A target is relative to xl, or begins with a slash.
    absolute_path = posixpath.normpath(posixpath.join("/xl", target))
    return absolute_path[1:]


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its class if it has none."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _narrowest(texts: pl.Series, decimal: str = ".") -> pl.Series:
    """Convert a CSV column to the narrowest type that all values fit without losing a text."""
    # Most columns of text are recognised by their first rows: whatever the others are, it is text.
    first_texts = texts.drop_nulls().head(_HEAD_ROWS).str.strip_chars()
    is_no_number = first_texts.cast(pl.Float64, strict=False).is_null()
    is_neither = is_no_number & flags_of(first_texts).is_null()
    if decimal == "." and is_neither.any():
        return texts

    stripped = texts.str.strip_chars()
    values = stripped.drop_nulls()
    # Leading zeros and plus signs would be lost.
    if values.is_empty() or values.str.contains(r"^[+-]?0\d|^\+").any():
        return texts
    if values.cast(pl.Int64, strict=False).null_count() == 0:
        return stripped.cast(pl.Int64)
    # Digits of an identifier, which no double holds.
    if values.str.contains(r"^[+-]?\d{17,}$").any():
        return texts

    if decimal != ".":
        pointed = values.filter(values.str.contains(".", literal=True))
        is_grouped = pointed.str.contains(r"^[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?$")
        if not is_grouped.all():
            return texts
        without_points = stripped.str.replace_all(".", "", literal=True)
        stripped = without_points.str.replace(",", ".")
    elif _has_thousands(values):
        # 1.234 beside 567
        return texts
    numbers = stripped.drop_nulls().cast(pl.Float64, strict=False)
    if numbers.null_count() == 0:
        return stripped.cast(pl.Float64)
    return _flags_or_texts(texts, values)


def _flags_or_texts(texts: pl.Series, values: pl.Series) -> pl.Series:
    """Convert a column to booleans if all its values are such, and would be written alike.

    Args:
        texts: All cells.
        values: Those that hold something, without blanks around them.
    """
    spellings = values.unique()
    lower = spellings.str.to_lowercase()
    has_capitals = not lower.equals(spellings)
    # Where each value has one spelling, such as TRUE, a text is drawn with its capitals again.
    keeps_capitals = has_capitals and lower.n_unique() == len(spellings)
    if keeps_capitals or flags_of(spellings).has_nulls():
        return texts
    return flags_of(texts)


def _has_thousands(values: pl.Series) -> bool:
    """Return whether points divide thousands: three digits behind each, at most three before."""
    has_point = values.str.contains(".", literal=True)
    pointed = values.filter(has_point)
    plain = values.filter(~has_point)
    if not len(pointed) or not len(plain):
        return False
    is_grouped = pointed.str.contains(r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    is_short = plain.str.contains(r"^[+-]?\d{1,3}$")
    return bool(is_grouped.all()) and bool(is_short.all())


def _normal_frame(columns: Iterable[pl.Series]) -> pl.DataFrame:
    """Convert columns to a frame of the few types that a table has."""
    return pl.DataFrame([_normal_series(column) for column in columns])


def _normal_series(series: pl.Series) -> pl.Series:
    """Convert a column to one of the few types that a table has; DataError if none holds it."""
    # A number of four bytes is read by its digits: 8.9, not 8.899999618530273.
    if series.dtype == pl.Float32:
        series = series.cast(pl.String).cast(pl.Float64)

    dtype = series.dtype
    if dtype == pl.Float64 or isinstance(dtype, pl.Decimal):
        return series.cast(pl.Float64).fill_nan(None)
    if dtype in WHOLE or dtype in (pl.String, pl.Boolean, pl.Null):
        return series
    # `Table.cells` gives the texts of an enum.
    if dtype == DATETIME or dtype == pl.Enum:
        return series
    if isinstance(dtype, pl.Categorical | pl.Time):
        return series.cast(pl.String)
    if isinstance(dtype, pl.Datetime):
        return in_utc(series)
    if isinstance(dtype, pl.Duration):
        return series.cast(DURATION)
    if dtype == pl.Date:
        return series.cast(DATETIME)
    if dtype.is_integer():
        # Types of 64 and 128 bits hold more than int64; a number that does not fit becomes null.
        narrowed = series.cast(pl.Int64, strict=False)
        if narrowed.null_count() == series.null_count():
            return narrowed
    raise DataError(
        f"column {series.name!r} has type {dtype}, which a table cannot hold; convert it to text, "
        "numbers, booleans or datetimes, or drop it"
    )


def _series_of(
    name: str, values: Any, mask: np.ndarray | None, *, mixed: bool = False
) -> pl.Series:
    """Build a column from an array or a series; mixed types become text where that is allowed."""
    if isinstance(values, pl.Series):
        return values.alias(name)
    array = np.asarray(values)
    if array.dtype.kind == "O" or array.dtype.kind in "US":
        return _series_of_objects(name, array, mask, mixed=mixed)

    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
    elif array.dtype.kind == "m":
        array = array.astype("timedelta64[us]")
    elif array.dtype.kind not in "iufb":
        raise DataError(
            f"column {name!r} has type {array.dtype}, which a table cannot hold"
        )
    series = pl.Series(name, array)
    if mask is None:
        return series
    is_missing = pl.Series(np.asarray(mask, dtype=bool))
    return series.set(is_missing, None)


def _series_of_objects(
    name: str, array: np.ndarray, mask: np.ndarray | None, *, mixed: bool
) -> pl.Series:
    """Build a column from texts or other objects, see `_series_of`."""
    items = array.tolist()
    if mask is not None:
        for place, is_missing in zip(range(len(items)), mask, strict=True):
            if is_missing:
                items[place] = None
    try:
        series = pl.Series(name, items, strict=True)
        # A number that no table holds must not decide whether there is one.
        return _normal_series(series) if mixed else series
    except (TypeError, OverflowError, DataError, pl.exceptions.PolarsError):
        if mixed:
            return pl.Series(name, texts_of_mixed(items), dtype=pl.String)
        raise DataError(
            f"column {name!r} mixes types; convert it to one type"
        ) from None


def _pandas_values(series: Any) -> tuple[Any, NDArray[np.bool_]]:
    """Return a pandas column's values, and which are missing.

    Values are int64, uint64, float64, bool, datetime64[us] in UTC, timedelta64[us] or objects.
    """
    if str(series.dtype) == "category":
        series = series.astype(object).infer_objects()
    kind = getattr(series.dtype, "kind", "O")
    mask: NDArray[np.bool_] = series.isna().to_numpy(dtype=bool)

    if kind == "M":
        if getattr(series.dtype, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return series.to_numpy("datetime64[us]"), mask
    if kind == "m":
        return series.to_numpy("timedelta64[us]"), mask
    if kind in _NUMPY_TYPES:
        # Float32 stays: `_normal_series` reads it by its digits.
        is_float32 = str(series.dtype).lower() == "float32"
        numpy_type = np.float32 if is_float32 else _NUMPY_TYPES[kind]
        if mask.any():
            filler = False if kind == "b" else 0
            series = series.fillna(filler)
        return series.to_numpy(dtype=numpy_type), mask

    # A period, such as a month, is known by its text alone.
    is_period = str(series.dtype).startswith("period")
    python_type = str if is_period else object
    return series.astype(python_type).to_numpy(), mask


def _texts_in_pandas(pandas: Any, texts: pl.Series) -> Any:
    """Build a pandas series of texts, in the type that pandas itself would choose."""
    if texts.null_count() == len(texts):
        return pandas.Series([None] * len(texts), dtype=object)
    text_type = pandas.Series([""]).dtype
    if getattr(text_type, "storage", "") != "pyarrow":
        return pandas.Series(_objects(texts).tolist())
    # Arrow's text goes over as it is. A list of objects would take several times the memory.
    return pandas.Series(pandas.array(texts.to_arrow(), dtype=text_type))


def _masked(pandas: Any, values: np.ndarray, is_missing: np.ndarray) -> Any:
    """Build an array for pandas, in a type with room for missing values if there are any."""
    if not is_missing.any() or values.dtype.kind not in "ib":
        return values.copy()
    if values.dtype.kind == "i":
        return pandas.arrays.IntegerArray(values.copy(), is_missing.copy())
    return pandas.arrays.BooleanArray(values.copy(), is_missing.copy())


def _restored(pandas: Any, column: Any, dtype: Any) -> Any:
    """Convert a pandas series to the type it had before; raises if its values do not fit."""
    if str(dtype) == "category":
        # New values become further categories, behind those that there were.
        categories = list(dtype.categories)
        category_set = set(categories)
        for value in column.dropna().unique():
            if value not in category_set:
                categories.append(value)
        wider_type = pandas.CategoricalDtype(categories, ordered=dtype.ordered)
        return column.astype(wider_type)

    if getattr(dtype, "tz", None) is not None:
        utc = column.dt.tz_localize("UTC")
        return utc.dt.tz_convert(dtype.tz).astype(dtype)
    # What pandas takes for text depends on its version.
    if dtype is str:
        dtype = pandas.Series([""]).dtype
    restored = column.astype(dtype)
    if str(dtype) == "object":
        restored[column.isna()] = None
    return restored


def _zoned_type(kind: str, zone: str) -> Any:
    """Return the type of datetimes with a zone in a kind of frame; None if that lacks the zone."""
    if kind == "polars":
        return pl.Datetime("us", zone)
    if kind == "arrow":
        return import_module("pyarrow").timestamp("us", tz=zone)
    # A machine may have no list of time zones.
    with suppress(KeyError, ValueError):
        return import_module("pandas").DatetimeTZDtype("us", _offset(zone) or zone)
    return None


def _offset(zone: str) -> timezone | None:
    """Return a time zone that is an offset, such as +01:00; None for any other zone."""
    parts = re.fullmatch(r"([+-])(\d\d):(\d\d)", zone)
    if parts is None:
        return None
    size = timedelta(hours=int(parts[2]), minutes=int(parts[3]))
    if parts[1] == "-":
        size = -size
    return timezone(size)


def _in_zone(series: pl.Series, zone: str) -> pl.Series:
    """Write datetimes of UTC as ISO-8601 text in a time zone, each with its offset."""
    form = "%Y-%m-%dT%H:%M:%S%.6f"
    offset = _offset(zone)
    if offset is not None:
        shift = offset.utcoffset(None)
        return (series + shift).dt.strftime(form) + zone
    utc = series.dt.replace_time_zone("UTC")
    zoned = utc.dt.convert_time_zone(zone)
    return zoned.dt.strftime(f"{form}%:z")


def _in_polars(series: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Convert a polars series to a type if its values fit; else leave it as it is."""
    try:
        if (
            isinstance(dtype, pl.Datetime)
            and dtype.time_zone
            and series.dtype == DATETIME
        ):
            utc = series.dt.replace_time_zone("UTC")
            return utc.dt.convert_time_zone(dtype.time_zone).cast(dtype)
        return series.cast(dtype)
    except pl.exceptions.PolarsError:
        return series


def _in_arrow(compute: Any, column: Any, dtype: Any) -> Any:
    """Convert an arrow column to a type if its values fit; datetimes become UTC without a zone."""
    try:
        if getattr(dtype, "tz", None) is not None:
            return compute.assume_timezone(column, "UTC").cast(dtype)
        return column if dtype is None else column.cast(dtype)
    except (ValueError, NotImplementedError):
        return column


def _with_declared(
    dtypes: Mapping[str, Any], categories: Mapping[str, Sequence[Any]]
) -> Mapping[str, Any]:
    """Replace in a frame's types the values that were found in rows by declared ones.

    A categorical type or enum lists the column's public values in their order and no others, and
    is left out without such values.
    """
    declared_types = dict(dtypes)
    for name, dtype in dtypes.items():
        values = list(categories.get(name, ()))
        is_pandas = str(dtype) == "category"
        is_enum = type(dtype).__name__ == "Enum"
        if not is_pandas and not is_enum:
            continue
        if not values:
            del declared_types[name]
        elif is_pandas:
            declared_types[name] = type(dtype)(values, ordered=dtype.ordered)
        else:
            declared_types[name] = type(dtype)(values)
    return declared_types


def write(
    table: Any, path: str | os.PathLike[str], padded: Mapping[str, int] | None = None
) -> None:
    """Write a table or a frame as CSV or Parquet, replacing an older file whole or not at all.

    Datetimes of a time zone keep it: in a CSV each has its offset, as 2024-01-31T06:00:00+01:00.

    Args:
        table: What to write.
        path: The file.
        padded: Columns whose numbers have so many decimals at least in a CSV, zeros among them,
            and no further zeros at their end.

    Raises:
        DataError: The folder is missing, the name ends otherwise, or the file cannot be written.
    """
    table = read(table)
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise DataError(
            f"cannot write {target.name!r}: the name must end in .csv or .parquet"
        )
    if not target.parent.is_dir():
        raise DataError(
            f"cannot write {target}: its folder does not exist; create it first"
        )

    zones = {}
    for name in table.names:
        zone = table.zone(name)
        if zone and table.kind(name) == "datetimes":
            zones[name] = zone
    # The file appears under its name when it is complete: renaming is one step.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if suffix == ".csv":
            _write_csv(table, temporary, padded or {}, zones)
        else:
            _write_parquet(table, temporary, zones)
        temporary.replace(target)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"{target}: cannot be written ({error}), and is as it was. See that the disk has room"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _write_csv(
    table: Table, file: Path, padded: Mapping[str, int], zones: Mapping[str, str]
) -> None:
    """Write a table as CSV; numbers have their decimals, and datetimes their offsets."""
    texts = []
    for name, digits in padded.items():
        if name in table.names:
            texts.append(_with_zeros(table._typed_column(name), digits))
    for name, zone in zones.items():
        texts.append(_in_zone(table._typed_column(name), zone))
    table._view.with_columns(texts).write_csv(file)


def _write_parquet(table: Table, file: Path, zones: Mapping[str, str]) -> None:
    """Write a table as Parquet; datetimes have their time zones."""
    view = table._typed_view
    zoned = []
    for name, zone in zones.items():
        zoned_type = pl.Datetime("us", zone)
        zoned.append(_in_polars(view[name], zoned_type))
    view.with_columns(zoned).write_parquet(file, compression="zstd")


def _as_type_of(
    old_cells: pl.Series, new_cells: pl.Series, column: _TextColumn | None, decimal: str
) -> pl.Series:
    """Convert new cells of a column to the type of its old ones, or to one that holds both."""
    if old_cells.dtype == new_cells.dtype or old_cells.dtype == pl.Null:
        return new_cells
    if old_cells.dtype == pl.String:
        digits = 0
        if column is not None:
            digits = column.padded or 0
        texts = _with_zeros(new_cells, digits)
        return texts.str.replace(".", decimal, literal=True)
    if old_cells.dtype in WHOLE and new_cells.dtype == pl.Float64:
        is_whole = bool((new_cells == new_cells.round()).all())
        return new_cells.cast(old_cells.dtype) if is_whole else new_cells
    return new_cells.cast(old_cells.dtype)


def _with_zeros(series: pl.Series, digits: int) -> pl.Series:
    """Write values as text; numbers have at least so many decimals, and no further zeros."""
    if not series.dtype.is_numeric():
        return series.cast(pl.String)
    texts = series.cast(pl.String).str.replace("^-0.0$", "0.0")
    decimals = texts.str.extract(r"\.(\d*?)0*$").fill_null("")
    decimals = decimals.str.pad_end(digits, "0")
    whole_parts = texts.str.extract(r"^(-?\d+)(?:\.\d+)?$")
    plain = whole_parts + decimals.str.replace("^(.)", ".$1")

    # Numbers with a power, such as 9e-6 and 1e16, are written out where that says the same.
    powers = texts.filter(plain.is_null()).drop_nulls()
    written_out = {}
    for power in powers:
        fixed = f"{float(power):.{digits}f}"
        if float(fixed) == float(power):
            written_out[power] = fixed
    return plain.fill_null(texts.replace(written_out))


def parquet_of(table: Table) -> bytes:
    """Write a table as the bytes of a Parquet file."""
    file = BytesIO()
    table._view.write_parquet(file)
    return file.getvalue()


def from_parquet(data: bytes) -> Table:
    """Read a table from the bytes of a Parquet file that `parquet_of` wrote."""
    return read(pl.read_parquet(BytesIO(data)))


def beside(tables: Sequence[Table]) -> Table:
    """Join tables of the same rows column by column; of equal names, the first column counts.

    The result is of the first one's kind of frame; where all are of that kind, each column keeps
    its type. DataError if numbers of rows differ.
    """
    row_counts = sorted({table.num_rows for table in tables})
    if len(row_counts) > 1:
        raise DataError(f"tables have different numbers of rows: {row_counts}")

    joined = tables[0]
    for table in tables[1:]:
        new_names = [name for name in table.names if name not in joined.names]
        frame = joined._frame.hstack(table.select(new_names)._frame)
        first = joined._origin
        second = table._origin
        # Types of one library mean nothing to another.
        dtypes: Mapping[str, Any] = {}
        if first.kind == second.kind:
            dtypes = {**second.dtypes, **first.dtypes}
        # Of a name that both have, the first one's facts count, as its cells do.
        origin = replace(
            first,
            dtypes=dtypes,
            types={**second.types, **first.types},
            text_columns={**second.text_columns, **first.text_columns},
            zones={**second.zones, **first.zones},
            coded_columns={**second.coded_columns, **first.coded_columns},
            units={**second.units, **first.units},
        )
        joined = replace(joined, _frame=frame, _origin=origin)
    return joined


def stacked(tables: Sequence[Table]) -> Table:
    """Stack the rows of tables with the same columns; types that differ become text."""
    if len(tables) == 1:
        return tables[0]
    names = tables[0].names

    columns: list[pl.Series] = []
    text_columns: dict[str, _TextColumn] = {}
    coded_columns: dict[str, _CodedColumn] = {}
    padded: dict[str, int] = {}
    for name in names:
        coded_parts = [table._origin.coded_columns.get(name) for table in tables]
        variable = _common_variable(coded_parts)
        text_parts = [table._origin.text_columns.get(name) for table in tables]
        decimal = _common_decimal(text_parts)
        if variable is not None:
            cells = _all_cells(tables, name)
            coded_columns[name] = _CodedColumn(cells, variable)
        elif all(table.unit(name) is not None for table in tables):
            cells = _all_cells(tables, name)
        elif decimal is not None:
            cells = _all_cells(tables, name)
            text_columns[name] = _TextColumn(cells, decimal)
            if text_columns[name].dtype == pl.Float64:
                # A part without any number says nothing of decimals.
                parts = [part for part in text_parts if part is not None]
                filled_parts = [part for part in parts if part.cells.count()]
                padded[name] = min(part.padded or 0 for part in filled_parts)
        else:
            typed_parts = [table._typed_column(name) for table in tables]
            cells = _joined_cells(typed_parts, text_parts)
        columns.append(cells)

    dialects = {table.dialect for table in tables}
    dialect = dialects.pop() if len(dialects) == 1 else None
    are_text = all(table.frame == "csv" for table in tables)
    kind: Frame = "csv" if are_text else "file"
    origin = _Origin(
        kind,
        dialect=dialect,
        text_columns=text_columns,
        padded=padded,
        zones=_common_zones(tables),
        coded_columns=coded_columns,
    )
    return Table(pl.DataFrame(columns), origin)


def _all_cells(tables: Sequence[Table], name: str) -> pl.Series:
    """Stack a column's cells of all tables."""
    return pl.concat([table.cells(name) for table in tables])


def _common_zones(tables: Sequence[Table]) -> dict[str, str]:
    """Return the time zones of columns, where all tables have the same one."""
    zones = {}
    for name in tables[0].names:
        table_zones = {table.zone(name) for table in tables}
        zone = table_zones.pop()
        if not table_zones and zone is not None:
            zones[name] = zone
    return zones


def _common_variable(parts: Sequence[_CodedColumn | None]) -> Variable | None:
    """Return a column's dictionary entry, if all tables have the same one and one type."""
    first_part = parts[0]
    if first_part is None:
        return None
    for part in parts:
        if part is None or part.variable != first_part.variable:
            return None
        if part.cells.dtype != first_part.cells.dtype:
            return None
    return first_part.variable


def _common_decimal(parts: Sequence[_TextColumn | None]) -> str | None:
    """Return the decimal mark of a column that is text in all tables, if they share one."""
    if any(part is None for part in parts):
        return None
    marks = {part.decimal for part in parts if part is not None}
    return marks.pop() if len(marks) == 1 else None


def _joined_cells(
    parts: Sequence[pl.Series], text_parts: Sequence[_TextColumn | None]
) -> pl.Series:
    """Stack parts of a column, as text if their types cannot be one."""
    types = {part.dtype for part in parts} - {pl.Null}
    are_numbers = types <= {*WHOLE, pl.Float64}
    if len(types) > 1 and not are_numbers:
        texts = []
        for part, text_part in zip(parts, text_parts, strict=True):
            digits = 0 if text_part is None else text_part.padded or 0
            texts.append(_with_zeros(part, digits))
        parts = texts
    frames = [part.to_frame() for part in parts]
    return pl.concat(frames, how="vertical_relaxed").to_series()


def frame_of(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], kind: Frame | None = None
) -> Any:
    """Make a frame from rows that map names to values; None is a missing value.

    Without a kind it is pandas where it is installed, else polars; InputError for an unknown kind.
    """
    if kind is not None and kind not in get_args(Frame):
        raise InputError(f"kind={kind!r} must be 'pandas', 'polars' or 'arrow'")
    columns = {}
    for name in names:
        values = [row[name] for row in rows]
        # A column without any value is one of numbers.
        example = next((value for value in values if value is not None), 0.0)
        dtype = object if isinstance(example, str) else type(example)
        is_missing = np.array([value is None for value in values])
        for place in np.flatnonzero(is_missing):
            values[place] = example
        columns[name] = (np.array(values, dtype), is_missing)
    return Table.from_columns(columns).framed(kind or "file").to_native()


def digest_of(*facts: Any) -> bytes:
    """Hash facts to 32 bytes, which are equal for equal facts and differ otherwise.

    A party recognises its rows by them; they never leave it. Facts are tables, whose rows and
    columns count in their order, whatever frame they came from; arrays; and what MessagePack can
    write.
    """
    digest = blake2b(digest_size=32)
    for fact in facts:
        for piece in _pieces(fact):
            # Its length goes first: otherwise "ab", "c" and "a", "bc" would agree.
            digest.update(len(piece).to_bytes(8, "big"))
            digest.update(piece)
    return digest.digest()


def _pieces(fact: Any) -> Iterator[bytes]:
    """Yield the bytes of a table, an array, or anything that MessagePack can write."""
    if isinstance(fact, Table):
        for name in fact.names:
            yield msgspec.msgpack.encode((name, fact.kind(name)))
            yield from _pieces(fact.values(name))
            yield from _pieces(fact.missing(name))
    elif isinstance(fact, np.ndarray) and fact.dtype.kind != "O":
        yield f"{fact.dtype.str}{fact.shape}".encode()
        yield fact.tobytes()
    else:
        # An array of objects has addresses for bytes.
        values = fact.tolist() if isinstance(fact, np.ndarray) else fact
        yield msgspec.msgpack.encode(values)
