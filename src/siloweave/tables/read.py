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


class _Threads:
    """Whether this process was forked from one whose threads compute, which a fork does not copy.

    Polars, and JAX, hand their work to threads that start with the first use. A forked child has
    their queues and no one who works them off: it would wait for ever.
    """

    names = re.compile(
        r"polars-[0-9]|tf_XLA|pjrt"
    )  # of the threads that compute, as Linux has them
    started = False  # in the process that forks, as the fork begins
    lost = False  # in this process

    @classmethod
    def before_fork(cls) -> None:
        names = []
        for file in Path("/proc/self/task").glob("*/comm"):
            with suppress(OSError):  # the thread has ended meanwhile
                names.append(file.read_text())
        # Without names, where the system is no Linux, threads may run.
        cls.started = not names or any(map(cls.names.match, names))

    @classmethod
    def after_fork(cls) -> None:
        cls.lost = cls.lost or cls.started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_Threads.before_fork, after_in_child=_Threads.after_fork)


def check_process() -> None:
    """Refuse to work in a process that was forked after its parent had used tables.

    Raises:
        InputError: This process would wait for ever for threads that it does not have.
    """
    if _Threads.lost:
        raise InputError(
            f"this process ({os.getpid()}) was forked from one that had already used siloweave, "
            "and the threads that read and draw tables do not survive a fork. Start it afresh: "
            'multiprocessing.get_context("spawn"), or "forkserver"; or fork before any table is '
            "read or drawn"
        )


MOST_DECIMALS = 15
"""That a double holds."""
Frame = Literal["pandas", "polars", "arrow", "file", "csv"]
"""Where a table came from; "file" is a Parquet file, or arrays."""

_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".csv.zst", ".tsv.zst")
_EXCEL = ".xlsx"
_FILES = (
    *_TEXT, ".parquet", ".arrow", ".feather", ".ipc", ".jsonl", ".ndjson", _EXCEL, *PROGRAMS
)  # fmt: skip
_KNOWN_FILES = (
    ".csv, .tsv (or these with .gz, .zst), .txt, .jsonl, .ndjson, .arrow, .parquet, .xlsx, .sav, "
    ".zsav, .por, .dta, .xpt or .sas7bdat"
)
_STRAY = 0.02  # share of rows whose codes may lack a label in a column of labelled ones
_BATCH = 1_000_000  # rows of a piece of a Parquet file
_BLOCK = 1 << 16  # rows that are drawn by one digest
_HEAD, _HEAD_ROWS = 1 << 18, 200  # bytes and rows by which a file's form is decided
_ABOVE, _TITLES = 30, 3  # lines that may lie above the names, and without an empty line below
_SKIP = "or count them: --skip, skip = ... in the study, or read(skip=...)"
_SEPARATORS = (";", "\t", "|", ",")
_RARE_SEPARATORS = ("^", "~")  # which are read where they are declared
# What few words of a Western code page have: three marked letters in a row, a capital behind a
# small letter or within small ones, a sign between letters.
_ODD = re.compile(
    r"[^\x00-\x7f]{3,}|(?<=[a-zß-ÿ])[ŠŒŽŸÀ-Þ]|(?<=[A-Z])[ŠŒŽŸÀ-ÖØ-Þ](?=[a-z])|"
    r"(?<=[^\W\d_])[€‚„…†‡ˆ‰‹“”•˜™›¡-¬®-´¶¸-¿](?=[^\W\d_])"
)
_NOTE = re.compile(r'#|"?sep=."?\s*$')  # Excel's line that names the separator, too
_NOTHING = {"na", "n/a", "nan", "null", "none", "missing"}  # no names, but values that are missing
_LOST = "\ufffd"  # stands for bytes that are not in the encoding
_TEXT_BYTES = bytes(byte for byte in range(256) if byte >= 32 or byte in b"\t\n\v\f\r\x1b")
_CONTROLS = {
    0x00: "a NUL byte, which is in no text",
    0x1A: "Ctrl-Z (byte 1A), with which old programs end a file",
}
_MOST_CONTROL = 0.01  # share of a text's bytes that are in no text
_ONE_LINE = rb"+AAo- \n \u000a" + bytes({*range(32, 127)} - {92})  # whatever a text says
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z]+\d+:[A-Z]+\d+)"')
_NUMBER = re.compile(r"\s*[-+]?(\d[\d., ]*|[.,]\d+)([eE][-+]?\d+)?\s*%?\s*")
_UNREADABLE = (pl.exceptions.PolarsError, OSError, UnicodeError, csv.Error)
_KINDS = {"String": "text", "Float64": "numbers", "Boolean": "booleans"}
_POLARS: dict[type, Any] = {
    bool: pl.Boolean,
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
    datetime: DATETIME,
    timedelta: DURATION,
}
# Of each type: pandas without missing values, with them, and arrow.
_NAMED: dict[type, tuple[Any, Any, str]] = {
    bool: ("bool", "boolean", "bool"),
    int: ("int64", "Int64", "int64"),
    float: ("float64", "float64", "double"),
    str: (str, str, "string"),
    datetime: ("datetime64[us]", "datetime64[us]", "timestamp[us]"),
    timedelta: ("timedelta64[us]", "timedelta64[us]", "duration[us]"),
}
_PLAIN = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}


@dataclass(frozen=True)
class Dialect:
    """How a text file is written; where a value is missing, it is decided from the file.

    Attributes:
        separator: What divides its fields.
        encoding: Of its characters, by Python's name.
        header: Whether its first line has the columns' names; a column without one, as all are
            then, is column_1 and so on by its place.
        decimal: The mark before the decimals of its numbers.
        missing: Texts that stand for a missing value in every column, beside empty fields.
        short_lines: Whether a line may leave off empty fields at its end, as Excel writes some.
        skip: How many lines lie above the names, or above the rows if there are no names.
        names: Of the columns, where a schema knows them. The line of names and the separator are
            found by these alone, so that no row decides how the others are cut into cells.
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
        mark = self.separator
        if mark is not None and (len(mark.encode()) != 1 or mark in '"\r\n'):
            raise InputError(f"separator={mark!r} must be one character, such as ';', and no quote")
        if self.skip is not None and self.skip < 0:
            raise InputError(f"skip={self.skip} must be how many lines lie above the names")
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise InputError(
                f"decimal={self.decimal!r} must be '.' or ',', and not the separator as well"
            )
        try:
            lines = _ONE_LINE.decode(self.encoding or "utf-8", "replace").splitlines()
        except (LookupError, UnicodeError):
            raise InputError(
                f"encoding={self.encoding!r} is unknown; use a name such as 'utf-8' or 'latin-1'"
            ) from None
        if len(lines) > 1:
            raise InputError(
                f"encoding={self.encoding!r} makes several lines of one; save the file as UTF-8"
            )


@dataclass(frozen=True, eq=False)
class _Written:
    """A column of a text file: all its cells as they are written, and the type that these fit.

    The type is for whoever looks at a table without a schema. Under a schema a cell is read from
    its text and its declared column, see `tables.cells`, so that no other cell matters.

    Attributes:
        cells: Of all rows of the file, as text.
        decimal: The mark before decimals.
        type: What the file itself says of the column; else the narrowest that every cell fits.
    """

    cells: pl.Series
    decimal: str = "."
    type: Any = None

    @cached_property
    def dtype(self) -> Any:
        """The column's type."""
        return _typed(self.cells, self.decimal).dtype if self.type is None else self.type

    @cached_property
    def padded(self) -> int | None:
        """The fewest decimals of numbers, see `_padded`; None for a column without numbers."""
        return _padded(self.cells, self.decimal) if self.dtype == pl.Float64 else None

    def seen(self, cells: pl.Series) -> pl.Series:
        """Return some of the cells in the column's type."""
        if self.dtype in WHOLE:
            return cells.str.strip_chars().cast(self.dtype)
        if self.dtype == pl.Float64:
            return numbers_of(cells, decimal=self.decimal).fill_nan(None)
        if self.dtype == pl.Boolean:
            return flags_of(cells)
        if self.dtype == pl.Null:
            return pl.Series(cells.name, [None] * len(cells), dtype=pl.Null)
        return times_of(cells) if self.dtype == DATETIME else cells


@dataclass(frozen=True, eq=False)
class _Coded:
    """A column of a file of SPSS, Stata or SAS: all its cells as codes, and what labels these have.

    Under a schema a cell is read from its code, or its label, and its declared column. What looks
    at all cells here is the view of whoever has no schema.

    Attributes:
        cells: Of all rows of the file: numbers as float64, texts, datetimes.
        variable: The entry of the file's dictionary.
        is_recoded: Whether some codes were replaced by texts; values are then their labels.
    """

    cells: pl.Series
    variable: Variable
    is_recoded: bool = False

    @cached_property
    def _unlabelled(self) -> list[Any]:
        """Values without a label, in their order."""
        values = self.cells.drop_nulls().unique().sort().to_list()
        return [value for value in values if value not in self.variable.labels]

    @cached_property
    def is_labelled(self) -> bool:
        """Whether values are their labels: nearly all rows hold a code that has one.

        Where labels are at the ends of a scale alone, or name only missing values, they are not.
        """
        if not self.variable.labels or self.is_recoded:
            return self.is_recoded
        unlabelled = self._unlabelled
        rows = self.cells.is_in(unlabelled).sum() if unlabelled else 0
        few_values = 2 * len(unlabelled) <= self.cells.drop_nulls().n_unique()
        return few_values and int(rows) <= _STRAY * self.cells.count()

    @cached_property
    def levels(self) -> tuple[str, ...] | None:
        """Labels in the order of their codes, also of codes in no row, and texts of other codes."""
        if not self.is_labelled:
            return None
        strays = pl.Series(self._unlabelled, dtype=self.cells.dtype)
        texts = [*self.variable.labels.values(), *texts_of(strays).to_list()]
        return tuple(dict.fromkeys(texts))

    def texts(self, cells: pl.Series) -> pl.Series:
        """Return the label of each code, or the text of one without a label."""
        labels = self.variable.labels
        if not labels:
            return texts_of(cells)
        codes = cells.str.strip_chars() if cells.dtype == pl.String else cells
        found = codes.replace_strict(
            pl.Series(list(labels), dtype=codes.dtype),
            pl.Series(list(labels.values())),
            default=None,
            return_dtype=pl.String,
        )
        return found.fill_null(texts_of(cells))

    def seen(self, cells: pl.Series) -> pl.Series:
        """Return some of the cells as labels, or numbers without decimals as whole ones."""
        if self.is_labelled:
            return self.texts(cells)
        if self.cells.dtype != pl.Float64:
            return cells
        filled = self.cells.drop_nulls()
        has_whole = bool(((filled == filled.round()) & (filled.abs() < 2.0**53)).all())
        return cells.cast(pl.Int64) if has_whole and len(filled) else cells


@dataclass(frozen=True)
class _Origin:
    """What a table was made from: the kind of frame, and its own types or declared ones."""

    kind: Frame = "file"
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, tuple[type, bool]] = field(default_factory=dict)
    dialect: Dialect | None = None
    blank: tuple[int, ...] = ()  # lines of a text file that are no rows
    empty: int = 0  # columns at the end of a text file with neither name nor value
    times: NDArray[np.int64] | None = None  # how many rows each row stands for
    drawn_of: int | None = None
    written: Mapping[str, _Written] = field(default_factory=dict)  # columns that are text there
    padded: Mapping[str, int] = field(default_factory=dict)  # decimals of numbers that have few
    keyed: bool = False  # whether each row names its columns, so that one may lack some
    file_types: Mapping[str, Any] = field(default_factory=dict)  # that a file gives its columns
    zones: Mapping[str, str] = field(default_factory=dict)  # of datetimes, which are held in UTC
    hint: str = ""  # how the one column of a text file seems to be divided
    coded: Mapping[str, _Coded] = field(default_factory=dict)  # columns of SPSS, Stata or SAS
    units: Mapping[str, str] = field(default_factory=dict)  # in which durations are seen as numbers

    @property
    def text(self) -> bool:
        return self.kind == "csv"

    @property
    def is_sheet(self) -> bool:
        """Whether it is a sheet of Excel, whose dates come as ISO-8601 text."""
        return self.text and self.dialect is None

    def native_types(self, kind: str) -> dict[str, Any]:
        """Each column's type in a pandas, arrow or polars frame, where it is known."""
        found = dict(self.dtypes)
        for name, (python, missing) in self.types.items():
            plain, gaps, arrow = _NAMED[python]
            native = {"pandas": gaps if missing else plain, "arrow": arrow}
            found[name] = native.get(kind, _POLARS[python])
        for name, zone in self.zones.items():
            found[name] = _zoned_type(kind, zone)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows and named columns, read-only; made by `read` or `Table.from_columns`.

    Example:
        >>> table = Table.from_columns({"age": (np.array([30, 0]), np.array([False, True]))})
        >>> table.names, table.num_rows, table.missing("age").tolist()
        (('age',), 2, [False, True])
    """

    _frame: pl.DataFrame
    _origin: _Origin = field(default_factory=_Origin)
    _seen: dict[str, pl.Series] = field(init=False, default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Table({self.num_rows} rows: {listed(self.names)})"

    def _repr_html_(self) -> str:
        rows = self.select(self.names[:MOST]).take(range(min(5, self.num_rows)))._view.rows()
        some = [["" if value is None else value for value in row] for row in rows]
        caption = f"{self.num_rows:,} rows, {len(self.names):,} columns"
        return html_table(caption, self.names[:MOST], some)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._frame.columns)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self._frame.height

    def values(self, name: str) -> np.ndarray:
        """Return one column's values, one per row.

        They are int64, float64, bool, datetime64[us] or object (text). Where `missing` is true the
        value is meaningless (0, NaN, False, NaT, None).

        Raises:
            DataError: When there is no such column.
        """
        series = self._series(name)
        if series.dtype in WHOLE:
            return series.fill_null(0).cast(pl.Int64).to_numpy()
        if series.dtype == pl.Boolean:
            return series.fill_null(False).to_numpy()
        if series.dtype in (pl.Float64, DATETIME):
            return series.to_numpy()
        return _objects(series)

    def missing(self, name: str) -> np.ndarray:
        """Return a mask of one column's missing values, one boolean per row."""
        return self._series(name).is_null().to_numpy()

    @property
    def drawn_of(self) -> int | None:
        """How many rows the table has that these were drawn from; None if they were not."""
        return self._origin.drawn_of

    def rows_of(self, mask: NDArray[np.bool_]) -> int:
        """Return how many rows a mask of the table's rows stands for."""
        times = self._origin.times
        return int(np.count_nonzero(mask) if times is None else times[mask].sum())

    def kind(self, name: str) -> str:
        """Return one column's type: text, whole numbers, numbers, booleans, datetimes, nothing."""
        dtype = self._series(name).dtype
        if dtype in WHOLE:
            return "whole numbers"
        return "datetimes" if dtype == DATETIME else _KINDS.get(str(dtype), "nothing")

    @property
    def dialect(self) -> Dialect | None:
        """How the text file was written that the table was read from; None for anything else."""
        return self._origin.dialect

    def zone(self, name: str) -> str | None:
        """Return the time zone of a column of a frame or file, whose times are held in UTC here."""
        if (declared := self._origin.zones.get(name)) is not None:
            return declared
        dtype = self._origin.dtypes.get(name)
        zone = getattr(dtype, "tz", None) or getattr(dtype, "time_zone", None)
        return None if zone is None else str(zone).removeprefix("UTC") or "UTC"

    def padded(self, name: str) -> int | None:
        """Return the fewest decimals that a CSV has of a number, zeros at the end among them."""
        if name in self._origin.padded:
            return self._origin.padded[name]
        written = self._origin.written.get(name)
        return None if written is None else written.padded

    @property
    def hint(self) -> str:
        """How the fields of a text file seem to be divided that was read as one column."""
        return self._origin.hint

    @property
    def keyed(self) -> bool:
        """Whether each row names its own columns, as in JSON lines."""
        return self._origin.keyed

    @property
    def left_out(self) -> int:
        """How many columns at the end of a text file have neither a name nor a value."""
        return self._origin.empty

    def line(self, row: int) -> int:
        """Return the line of a text file where a row is, as if no field held a line break."""
        found = self.dialect or Dialect()
        line = row + 1 + bool(found.header) + (found.skip or 0)
        for blank in self._origin.blank:
            line += blank <= line
        return line

    def blanked(self, name: str, spellings: Sequence[str]) -> Table:
        """Return the same rows, where these texts of a column, or numbers, are missing values."""
        series = self._series(name) if spellings else pl.Series(dtype=pl.Null)
        if series.dtype == pl.String:
            return self._without(name, series.str.strip_chars().is_in(list(spellings)))
        numbers = numbers_among(spellings)
        if numbers and (series.dtype in WHOLE or series.dtype == pl.Float64):
            return self._without(name, series.cast(pl.Float64).is_in(numbers))
        return self

    def finite(self, name: str) -> Table:
        """Return the same rows, where infinite numbers of a column are missing."""
        series = self._series(name)
        return self._without(name, series.is_infinite()) if series.dtype == pl.Float64 else self

    def _without(self, name: str, blank: pl.Series) -> Table:
        """The same rows, where some cells of a column are missing."""
        cells = self.cells(name).set(blank.fill_null(False), None)
        return replace(self, _frame=self._frame.with_columns(cells))

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Return the same rows, some of whose columns have new names.

        Raises:
            DataError: There is no such column, or two would have one name.
        """
        if not names:
            return self
        if self._origin.keyed:  # whose rows may all lack a column
            names = {old: new for old, new in names.items() if old in self.names}
        names_after(self.names, names, "the table")
        origin = self._origin
        by_column = (
            "dtypes", "types", "written", "padded", "file_types", "zones", "coded", "units",
        )  # fmt: skip
        facts: dict[str, Any] = {
            fact: {names.get(name, name): value for name, value in getattr(origin, fact).items()}
            for fact in by_column
        }
        return Table(self._frame.rename(dict(names)), replace(origin, **facts))

    def recoded(self, name: str, values: Mapping[Any, Any]) -> Table:
        """Return the same rows, where some values of a column are others.

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
            raise InputError(
                f"column {name!r} holds {'durations' if cells.dtype == DURATION else 'datetimes'}, "
                "which are not recoded; leave it out of recode"
            )
        olds = [str(text).strip() for text in texts_of_mixed(list(values))]
        news = [text or None for text in texts_of_mixed(list(values.values()))]
        places = _places(texts_of(cells).str.strip_chars(), olds)
        coded = self._origin.coded.get(name)
        if coded is not None and coded.variable.labels:  # a label goes before a code
            by_label = _places(coded.texts(cells).str.strip_chars(), olds)
            places = by_label.set(by_label == -2, None).fill_null(places)
        is_listed = (places >= 0).fill_null(False)
        mapped = pl.Series(name, [*news, None], dtype=pl.String).gather(
            places.set(~is_listed, len(news))
        )
        texts = texts_of(cells).alias(name)
        recoded = (
            texts.to_frame()
            .select(pl.when(is_listed).then(mapped).otherwise(pl.col(name)).alias(name))
            .to_series()
        )

        origin = self._origin
        written, labels = dict(origin.written), dict(origin.coded)
        labels.pop(name, None)
        if coded is not None and coded.variable.labels:
            # Whatever other rows hold, a code that is not listed keeps its label.
            codes = texts_of(pl.Series(list(coded.variable.labels))).to_list()
            variable = Variable(dict(zip(codes, coded.variable.labels.values(), strict=True)))
            labels[name] = _Coded(recoded, variable, is_recoded=coded.is_labelled)
        if coded is None or not coded.is_labelled:  # the view of whoever has no schema
            written[name] = _Written(recoded, self.decimal(name))
        dtypes = {column: dtype for column, dtype in origin.dtypes.items() if column != name}
        frame = self._frame.with_columns(recoded)
        return Table(frame, replace(origin, written=written, coded=labels, dtypes=dtypes))

    def filled(self, name: str, rows: NDArray[np.int64], cells: pl.Series) -> Table:
        """Return the same rows, where some cells of a column are others and all else stays.

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
        old, origin = self.cells(name), self._origin
        new = _as_type_of(old, cells, origin.written.get(name), self.decimal(name))
        dtypes = dict(origin.dtypes)
        if new.dtype != old.dtype:
            # Whole numbers take decimals, and a column without any value takes all.
            old = old.cast(new.dtype)
            dtypes.pop(name, None)
        column = old.scatter(rows, new).alias(name)
        written, coded = dict(origin.written), dict(origin.coded)
        if name in written:
            written[name] = _Written(column, written[name].decimal)
        if name in coded:
            coded[name] = replace(coded[name], cells=column)
        facts: dict[str, Any] = {"dtypes": dtypes, "written": written, "coded": coded}
        return Table(self._frame.with_columns(column), replace(origin, **facts))

    def verbatim(self) -> Table:
        """Return the same rows, whose columns of a text file are the text that is written there."""
        return Table(self._frame, replace(self._origin, written={}))

    def levels(self, name: str) -> tuple[Any, ...] | None:
        """Return the declared values of a categorical type, or a variable's labels; else None.

        Labels are those of a file of SPSS, Stata or SAS in which nearly every row has one.
        """
        if (coded := self._origin.coded.get(name)) is not None:
            return coded.levels
        dtype = self._origin.dtypes.get(name)
        if isinstance(dtype, pl.Enum):
            return tuple(dtype.categories.to_list())
        if str(dtype) == "category" and dtype is not None:
            values = dtype.categories.tolist()
            # A scale with labels at its ends alone, as pandas reads it from Stata: "None", 1, 2.
            if any(isinstance(value, str) for value in values):
                return tuple(text for text in texts_of_mixed(values) if text is not None)
            return tuple(values)
        if isinstance(dtype, pl.Categorical) or str(dtype).startswith("dictionary"):
            return tuple(self._series(name).drop_nulls().unique().sort().to_list())
        return None

    def take(self, indices: np.ndarray | Sequence[int]) -> Table:
        """Return the rows at some positions, in that order; positions may repeat."""
        return Table(self._frame[np.asarray(indices, dtype=np.int64)], self._origin)

    def select(self, names: Sequence[str]) -> Table:
        """Return some columns, in the order given; DataError when one is not there."""
        return Table(pl.DataFrame([self._stored(name) for name in names]), self._origin)

    @property
    def frame(self) -> Frame:
        """What the table was made from, and `to_native` makes again."""
        return self._origin.kind

    def framed(self, frame: Frame) -> Table:
        """Return the same rows, of which `to_native` makes another kind of frame."""
        return Table(self._typed_view, _Origin(frame, units=self._origin.units))

    def without_rows(self) -> Table:
        """Return an empty table like this one; columns of a CSV are text, as they are written."""
        empty = self._frame.clear()
        text: dict[Any, type[str]] = dict.fromkeys(self.names, str)
        if self._origin.coded:
            empty = self._view.clear()
        origin = replace(self._origin, written={}, coded={})
        return Table(empty.cast(text) if self._origin.text else empty, origin)

    def to_native(self) -> Any:
        """Return the same kind of frame as was given, with its types.

        A file or columns become pandas where it is installed, else polars. Whole numbers with
        missing values become ``Int64`` in pandas unless the frame given had another type.
        """
        check_process()
        kind = self._origin.kind
        if kind in ("file", "csv"):
            kind = "pandas" if find_spec("pandas") else "polars"
        dtypes = self._origin.native_types(kind)
        if kind == "pandas":
            pandas = import_module("pandas")
            return pandas.DataFrame(
                {n: self._in_pandas(pandas, n, dtypes.get(n)) for n in self.names}
            )
        if kind == "polars":
            view = self._typed_view
            return view.with_columns(
                _in_polars(view[name], dtypes[name]) for name in self.names if name in dtypes
            )
        arrow, compute = self._typed_view.to_arrow(), import_module("pyarrow.compute")
        columns = [_in_arrow(compute, arrow.column(n), dtypes.get(n)) for n in self.names]
        return import_module("pyarrow").table(columns, names=self._frame.columns)

    def _in_pandas(self, pandas: Any, name: str, dtype: Any) -> Any:
        """One column as a pandas series with a fresh index, of a type if its values fit."""
        series = self._series(name)
        if self.unit(name) is not None:
            plain = pandas.Series(self.cells(name).to_numpy())
        elif series.dtype == pl.String:
            plain = _texts_in_pandas(pandas, series)
        else:
            values, mask = self.values(name), self.missing(name)
            plain = pandas.Series(_masked(pandas, values, mask))
        if dtype is not None:
            with suppress(TypeError, ValueError, AttributeError):
                return _restored(pandas, plain, dtype)
        return plain

    @classmethod
    def of_counts(cls, name: str, frame: pl.DataFrame) -> Table:
        """Make a table of one column from its values ``v``, each of which stands for ``n`` rows."""
        times = frame["n"].cast(pl.Int64).to_numpy()
        return cls(_normal([frame["v"].alias(name)]), _Origin(times=times))

    @classmethod
    def empty(
        cls,
        types: Mapping[str, tuple[type, bool]],
        frame: Frame,
        zones: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Table:
        """Make a table without rows whose types are declared, not taken from a frame.

        Of each column: bool, int, float, str, datetime or timedelta, and whether a value may be
        missing, which decides the type of whole numbers and booleans in pandas. Datetimes may have
        a time zone. Durations are seen as numbers of `units`. `to_native` makes such a frame, also
        of tables that are made like this one.
        """
        schema = {name: _POLARS[python] for name, (python, _) in types.items()}
        timed = {n: zone for n, zone in (zones or {}).items() if types[n][0] is datetime}
        origin = _Origin(frame, types=types, zones=timed, units=units or {})
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
        series = [_series_of(name, values, mask) for name, (values, mask) in columns.items()]
        if len(lengths := {len(one) for one in series}) > 1:
            raise DataError(f"columns have different lengths: {sorted(lengths)}")
        origin = replace(like._origin, written={}, coded={}) if like else _Origin()
        if categories is not None:
            origin = replace(origin, dtypes=_with_declared(origin.dtypes, categories))
        return cls(_normal(series), origin)

    # What coding needs, vectorised here so that nothing else touches a dataframe library.

    def cells(self, name: str) -> pl.Series:
        """Return one column's cells as the source has them: a text file's as text.

        A column that no row of JSON lines names has no value in any.
        """
        cells = self._stored(name)
        return cells.cast(pl.String) if cells.dtype == pl.Enum else cells

    def _stored(self, name: str) -> pl.Series:
        """Return one column's cells as the table stores them: drawn texts as places in a list.

        A text takes 16 bytes a cell, a place among few texts one.
        """
        check_process()
        if self._origin.keyed and name not in self.names:
            return pl.Series(name, [None] * self.num_rows, dtype=pl.String)
        _check_there(name, self.names)
        return self._frame[name]

    def value_labels(self, name: str) -> dict[str, str]:
        """Return what a file of SPSS, Stata or SAS calls a column's codes, by the codes' texts."""
        coded = self._origin.coded.get(name)
        if coded is None or not coded.variable.labels:
            return {}
        codes = texts_of(pl.Series(list(coded.variable.labels)))
        return dict(zip(codes.to_list(), coded.variable.labels.values(), strict=True))

    def declared_missing(self, name: str) -> tuple[str, ...]:
        """Return the codes, and ranges, that SPSS takes for missing; their cells are missing."""
        coded = self._origin.coded.get(name)
        return () if coded is None else coded.variable.missing

    def decimal(self, name: str) -> str:
        """Return the mark before decimals of a column's numbers, as it is declared."""
        if (written := self._origin.written.get(name)) is not None:
            return written.decimal
        return self.dialect.decimal if self.dialect else "."

    def labels(self, name: str, kind: type) -> pl.Series:
        """Return each cell as a value of a kind: str, int, float or bool.

        It is null where the cell is no such value. A cell is read by itself, as
        `siloweave.tables.parsing` says.
        """
        cells = self.cells(name)
        if kind is str:
            coded = self._origin.coded.get(name)
            return texts_of(cells) if coded is None else coded.texts(cells)
        if kind is bool:
            return cells if cells.dtype == pl.Boolean else flags_of(texts_of(cells))
        if kind is int and cells.dtype in WHOLE:
            return cells.cast(pl.Int64)
        if kind is float:
            return self.numbers(name)
        values, is_whole = self.whole_numbers(name)
        return values.set(~is_whole, None)

    def holds_whole(self, name: str) -> bool:
        """Whether a column's type holds whole numbers alone."""
        return self.cells(name).dtype in WHOLE

    def whole_numbers(self, name: str, form: str | None = None) -> tuple[pl.Series, pl.Series]:
        """Return the nearest whole number to that in each cell as int64, and whether it is whole.

        Both are those of `parsing.whole_numbers_of`; null where a cell holds no number.
        """
        cells = self.cells(name)
        if cells.dtype in WHOLE:
            return cells.cast(pl.Int64), cells.is_not_null()
        is_plain = cells.dtype == pl.String and (form is None or form in UNITS)
        return whole_numbers_of(self.numbers(name, form), cells if is_plain else None)

    def numbers(self, name: str, form: str | None = None) -> pl.Series:
        """Return the number in each cell as float64; null where a cell holds no number.

        Text is read as `forms.number_form` of `form` says. A duration is a number of the unit that
        `form` names, else of seconds. Booleans and datetimes are no numbers.
        """
        cells = self.cells(name)
        if cells.dtype == pl.String:
            return numbers_of(cells, None if form in UNITS else form, self.decimal(name))
        if cells.dtype == DURATION:
            return durations_in(cells, form if form in UNITS else "seconds")
        if cells.dtype in WHOLE or cells.dtype == pl.Float64:
            return cells.cast(pl.Float64)
        return pl.Series(name, [None] * len(cells), dtype=pl.Float64)

    def times(self, name: str, pattern: str | None = None) -> pl.Series:
        """Return the datetime in each cell, in UTC; null where a cell holds no datetime.

        Text is read by the pattern (``strptime`` codes), as ISO-8601 when None; with a pattern,
        so are the digits of whole numbers, such as 20240131.
        """
        cells = self.cells(name)
        if cells.dtype == DATETIME:
            return cells
        has_digits = cells.dtype in WHOLE or cells.dtype == pl.Float64
        if cells.dtype == pl.String or (has_digits and pattern is not None):
            text = texts_of(cells)
            times = times_of(text, pattern)
            return times.fill_null(times_of(text)) if self._origin.is_sheet else times
        return pl.Series(name, [None] * len(cells), dtype=DATETIME)

    def lookup(self, name: str, categories: Sequence[Any]) -> np.ndarray:
        """Return each value's position among distinct categories of one type, as int32.

        It is -1 where missing, and -2 where not among them. A text is also found without the
        blanks around it, where no two categories differ in these alone.
        """
        kind = type(categories[0])
        labels = self.labels(name, kind)
        codes = _places(labels, categories)
        if codes.min() in range(len(categories)):  # all are among the categories
            return codes.to_numpy(writable=True)
        if kind is str:
            stripped = [category.strip() for category in categories]
            is_unknown = (codes == -2) & labels.is_not_null()
            if is_unknown.any() and len(set(stripped)) == len(stripped):
                codes = codes.set(is_unknown, None)
                codes = codes.fill_null(_places(labels.str.strip_chars(), stripped))
        is_missing = self.cells(name).is_null() | (labels.is_nan() if kind is float else False)
        return np.where(is_missing.fill_null(False).to_numpy(), np.int32(-1), codes.to_numpy())

    def integers(self, name: str, form: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as int64 and its mask of missing; SchemaError unless all are whole.

        Text is read as `forms.number_form` of `form` says.
        """
        numbers = self._required_numbers(name, "whole numbers", form)
        values, is_whole = self.whole_numbers(name, form)
        is_missing = numbers.is_null()
        is_wild = numbers.is_infinite() & ~is_missing
        is_broken = ~is_whole & ~is_missing
        check_numbers(name, *(self.rows_of(bad.to_numpy()) for bad in (is_wild, is_broken)))
        return values.fill_null(0).to_numpy(), is_missing.to_numpy()

    def floats(self, name: str, form: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as float64 and its mask of missing (0.0 there), or SchemaError.

        Text is read as `forms.number_form` of `form` says.
        """
        numbers = self._required_numbers(name, "numbers", form)
        return numbers.fill_null(0.0).to_numpy(), numbers.is_null().to_numpy()

    def datetimes(self, name: str, pattern: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as int64 microseconds since 1970 (UTC), and its mask of missing.

        Text is read by the pattern (``strptime`` codes), as ISO-8601 when None.

        Raises:
            SchemaError: When values are no datetimes, or text does not follow the format.
        """
        cells, times = self.cells(name), self.times(name, pattern)
        is_missing = cells.is_null().to_numpy()
        wrong = self.rows_of(times.is_null().to_numpy() & ~is_missing)
        self.check_times(name, wrong, pattern)
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
        raise SchemaError(f"column {name!r} holds {self.kind(name)}, but the schema says datetime")

    def counts(self, name: str, kind: type | None = None) -> tuple[list[Any], list[int]]:
        """Return one column's distinct values, most frequent first (ties by value), and counts.

        With a kind, each cell is read as a value of it, see `labels`; text without the blanks
        around it. Cells that are no such value are left out.
        """
        series = self._series(name) if kind is None else self.labels(name, kind)
        series = series.str.strip_chars() if kind is str else series
        series = series.fill_nan(None) if series.dtype == pl.Float64 else series
        series = series.drop_nulls().rename("value")
        table = series.value_counts(name="count").sort("count", "value", descending=[True, False])
        return table["value"].to_list(), table["count"].to_list()

    def text_counts(self, name: str) -> dict[str, int]:
        """Return a text column's distinct values, without spaces around them, and counts."""
        series = self._series(name).drop_nulls().str.strip_chars().rename("value")
        table = series.value_counts(sort=True, name="count")
        return dict(zip(table["value"].to_list(), table["count"].to_list(), strict=True))

    def row_keys(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Return a hash of each row's values in some columns, the same in every table."""
        numbers = (*WHOLE, pl.Float64, pl.Boolean)
        alike = [
            series.cast(pl.Float64) if series.dtype in numbers else series.cast(pl.String)
            for series in map(self._series, names)
        ]
        return pl.DataFrame(alike).hash_rows(seed=0).to_numpy()

    def unread(self, name: str, form: str | None = None) -> np.ndarray:
        """Return rows with a text that is no number, plainly or in a form, or an infinite one."""
        series = self._series(name)
        if series.dtype != pl.String:
            return np.flatnonzero(self.finite(name).missing(name) & ~self.missing(name))
        form = None if form in UNITS else form
        numbers = numbers_of(series, form, self.decimal(name))
        return np.flatnonzero((series.is_not_null() & numbers.is_null()).to_numpy())

    @property
    def _view(self) -> pl.DataFrame:
        """The rows as whoever has no schema sees them, each column in one type."""
        return pl.DataFrame([self._series(name) for name in self.names])

    @property
    def _typed_view(self) -> pl.DataFrame:
        """The same, with durations as such and not as numbers."""
        durations = [self.cells(name) for name in self.names if self.unit(name) is not None]
        return self._view.with_columns(durations)

    def unit(self, name: str) -> str | None:
        """Return the unit in which a column's durations are seen as numbers; None without any.

        It is declared, or the largest one of days, hours, minutes and seconds of which all of them
        are whole multiples.
        """
        cells = self.cells(name)
        if cells.dtype != DURATION:
            return None
        if (declared := self._origin.units.get(name)) is not None:
            return declared
        return _whole_unit(cells)

    def _series(self, name: str) -> pl.Series:
        """One column in the type that all cells of its source fit."""
        cells = self.cells(name)
        if cells.dtype == DURATION:
            unit = self.unit(name) or "seconds"
            if name not in self._seen:
                numbers = durations_in(cells, unit)
                is_whole = bool((numbers == numbers.round()).all())
                self._seen[name] = numbers.cast(pl.Int64) if is_whole else numbers
            return self._seen[name]
        source = self._origin.written.get(name) or self._origin.coded.get(name)
        if source is None:
            return cells
        if name not in self._seen:
            self._seen[name] = source.seen(cells)
        return self._seen[name]

    def _required_numbers(self, name: str, wanted: str, form: str | None) -> pl.Series:
        """One column's numbers, null where a value is missing; SchemaError for anything else."""
        cells, numbers = self.cells(name), self.numbers(name, form)
        is_unread = numbers.is_null() & cells.is_not_null()
        self.check_read(name, self.rows_of(is_unread.to_numpy()), wanted, form)
        return numbers.fill_nan(None)

    def check_read(self, name: str, wrong: int, wanted: str, form: str | None) -> None:
        """Raise SchemaError where so many rows, if any, hold no number."""
        if not wrong:
            return
        if self.cells(name).dtype == pl.String:
            written = f" written like {form!r}" if form and form not in UNITS else ""
            raise SchemaError(
                f"column {name!r}: {count_of(wrong, 'row holds', 'rows hold')} text, but the "
                f"schema says {wanted}{written}; correct it, or list it in missing_values"
            )
        raise SchemaError(f"column {name!r} holds {self.kind(name)}, but the schema says {wanted}")


def _objects(series: pl.Series) -> np.ndarray:
    """A column of text as an array of objects, None where missing.

    Equal texts are one object where they are few, which saves most of the memory.
    """
    distinct = series.drop_nulls().unique().to_list()
    if not distinct or len(distinct) * 8 > len(series):
        return np.array(series.to_list(), dtype=object)
    places = _places(series, distinct).to_numpy()
    texts = np.array([*distinct, None], dtype=object)
    found: np.ndarray = texts[np.where(places < 0, len(distinct), places)]
    return found


def _places(labels: pl.Series, categories: Sequence[Any]) -> pl.Series:
    """Each label's position among categories, as int32; -2 where it is not among them."""
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
        encoding: Of its characters; UTF-8 when None, or UTF-16 if the file begins with its mark.
            Bytes that are not in it become U+FFFD, and a warning is logged; `encoding_of` guesses
            which one it is.
        header: Whether its first line has names; decided from the file when None.
        decimal: The mark before decimals.
        missing: Texts that stand for a missing value in every column.
        short_lines: Whether a line may leave off empty fields at its end, as Excel writes some.
        skip: How many lines lie above the names; decided from the file when None.
            `Table.dialect` holds all seven as they were used.
        names: Of the columns, as a schema has them: the separator and the line of names of a CSV
            are then found by these, and no row has a say in it.

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
    asked = Dialect(
        separator, encoding, header, decimal, tuple(missing), short_lines, skip, tuple(names)
    )
    found = _read(source, asked, columns)
    return found if columns is None else found.select(columns)


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file, or a folder of them, that is read piece by piece; see `unread`."""

    path: Path
    columns: tuple[str, ...] | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return self.columns or tuple(self._lazy.collect_schema().names())

    @cached_property
    def num_rows(self) -> int:
        """How many rows there are, as the file says."""
        return int(self._lazy.select(pl.len()).collect().item())

    @property
    def _lazy(self) -> pl.LazyFrame:
        try:
            lazy, _ = _scanned(self.path, Dialect())
            lazy.collect_schema()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise unreadable(self.path, error) from None
        return lazy

    def select(self, names: Sequence[str]) -> ParquetFile:
        """The same rows, some columns."""
        return replace(self, columns=tuple(names))

    def batches(self) -> Iterator[Table]:
        """The rows in their order, a million at a time; one empty table if the file has no row."""
        yield from (
            read_batches(self.path, _BATCH, columns=self.columns)
            if self.num_rows
            else [rows_of(self, 0)]
        )


Unread = Database | ParquetFile
"""What can be counted, or sampled, without being held in memory."""


def unread(source: Any) -> Unread | None:
    """Return what stays where it is: a database, or a path to Parquet; None for anything else."""
    if isinstance(source, Database | ParquetFile):
        return source
    if isinstance(source, str) and re.match(r"\w+://", source):
        raise InputError(f"{source}: give Database(address, table=...) or (address, query=...)")
    path = isinstance(source, str | os.PathLike)
    file = table_file(source) if path else None
    return ParquetFile(file) if file and file_kind(file) == ".parquet" else None


def rows_of(source: Table | Unread, most: int) -> Table:
    """Return a table as it is, and about `most` random rows of what is larger and not read.

    They are for their owner's eyes: which they are is no secret, and the same each time.
    """
    if isinstance(source, Table):
        return source
    if most:
        share = most / max(source.num_rows, 1)
        return sampled(source, share, bytes(32)) if share < 1 else read(source)
    if isinstance(source, Database):
        return Table(_normal(source.read(0)), _Origin())
    rows = source._lazy.select(source.names).head(0).collect()
    return Table(_normal(rows), _Origin(zones=_zones(rows.schema)))


def sampled(source: Table | Unread, share: float, secret: bytes) -> Table:
    """Return rows of a table, each of which is there with the same chance, whatever others do.

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
        return Table(_normal(source.read(share, secret)), _Origin(drawn_of=source.num_rows))
    kept, start, origin = [], 0, _Origin()
    for piece in [source] if isinstance(source, Table) else source.batches():
        kept.append(piece._frame.filter(_drawn(secret, start, piece.num_rows, share)))
        start += piece.num_rows
        origin = piece._origin
    return Table(pl.concat(kept), replace(origin, drawn_of=start))


def _drawn(secret: bytes, start: int, count: int, share: float) -> pl.Series:
    """Which of the rows from `start` on are drawn."""
    first, last = start // _BLOCK, (start + count) // _BLOCK
    blocks = (secret + block.to_bytes(8, "big") for block in range(first, last + 1))
    bits = b"".join(shake_256(block).digest(8 * _BLOCK) for block in blocks)
    words = np.frombuffer(bits, "<u8")[start - first * _BLOCK :][:count]
    return pl.Series(words < np.uint64(int(share * 2**64)))


def read_batches(
    path: str | os.PathLike[str],
    batch_rows: int,
    *,
    columns: Sequence[str] | None = None,
    dialect: Dialect | None = None,
) -> Iterator[Table]:
    """Read a file in pieces of some rows, in order, without holding it whole.

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
        lazy, origin = _scanned(file, dialect)
        if columns is not None:
            lazy = lazy.select(list(columns))
        for frame in lazy.collect_batches(chunk_size=batch_rows, maintain_order=True, lazy=True):
            yield Table(_normal(_blank(frame, origin)), origin)
    except _UNREADABLE as error:
        raise unreadable(file, error) from None


def _scanned(file: Path, asked: Dialect) -> tuple[pl.LazyFrame, _Origin]:
    kind = file_kind(file)
    if kind == ".parquet":
        lazy = pl.scan_parquet(file / "**/*.parquet" if file.is_dir() else file)
        return lazy, _Origin(zones=_zones(lazy.collect_schema()))
    if kind == _EXCEL:
        sheet, types = _sheet(file, asked)
        return sheet.lazy(), _Origin("csv", file_types=types)
    if kind in (".jsonl", ".ndjson"):
        types = pl.scan_ndjson(file, infer_schema_length=None).collect_schema()
        texts = dict.fromkeys(types, pl.String)
        origin = _Origin(keyed=True, file_types=_plain_types(types))
        return pl.scan_ndjson(file, schema=texts), origin
    if kind in PROGRAMS:
        parsed = read_statistical(file, kind, encoding=asked.encoding)
        check_names(parsed.frame.columns, repr(str(file)))
        cells = parsed.frame.get_columns()
        coded = {one.name: _Coded(one, parsed.variables[one.name]) for one in cells}
        return parsed.frame.lazy(), _Origin(coded=coded)
    if kind not in _TEXT:
        lazy = pl.scan_ipc(file)
        return lazy, _Origin(zones=_zones(lazy.collect_schema()))
    return _scanned_text(file, asked)


def _scanned_text(file: Path, asked: Dialect) -> tuple[pl.LazyFrame, _Origin]:
    names, found = csv_header(file, asked)
    head = _bytes(file, _HEAD)
    end = "\r" if b"\r" in head and b"\n" not in head else "\n"
    scan = partial(pl.scan_csv, infer_schema=False, glob=False, has_header=bool(found.header))
    scan = partial(scan, separator=found.separator or ",", eol_char=end, skip_lines=found.skip or 0)
    source: Any = file
    encoding = found.encoding or "utf-8"
    if not file_kind(file).endswith(".zst") and _undecodable(file, encoding) is not None:
        _log.warning(
            "%s: some bytes are not in %s, and %r stands for them; %s",
            file, encoding, _LOST, _advice(file),
        )  # fmt: skip
        source = BytesIO(_bytes(file).decode(encoding, "replace").encode())
    elif codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig"):
        source = BytesIO(_bytes(file).decode(encoding).encode())
    if (control := _control_in(file, encoding)) is not None:
        _log.warning("%s", control)
    hint = ""
    if len(names) == 1 and asked.separator is None:
        hint = _divided_by(head.decode(encoding, "replace").splitlines()[found.skip or 0 :])
    if hint:
        _log.warning("%s was read as one column: %s", file, hint)
    lazy, blank = scan(source), frozenset[int]()
    given = lazy.collect_schema().names()
    if len(names) > 1 and lazy.select(pl.nth(len(names) - 1).null_count()).collect().item():
        blank = _blank_lines(file, len(given), found)
    if blank:
        with TextIOWrapper(_opened(file), found.encoding, "replace", newline="") as lines:
            kept = "".join(line for i, line in enumerate(lines, 1) if i not in blank)
        lazy = scan(BytesIO(kept.encode()))
    if (empty := given[len(names) :]) and not found.names:
        held = lazy.select(pl.col(empty).str.strip_chars().ne("").any()).collect().row(0)
        if any(held):
            raise DataError(
                f"column {len(names) + held.index(True) + 1} of {str(file)!r} has no name, and no "
                "value in the first rows, but in others; name it, or delete what it holds"
            )
    blanks = tuple(sorted(blank))
    origin = _Origin("csv", dialect=found, blank=blanks, empty=len(empty), hint=hint)
    return lazy.select(pl.col(a).alias(b) for a, b in zip(given, names, strict=False)), origin


def _zones(types: Mapping[str, Any]) -> dict[str, str]:
    """The time zones of columns of datetimes that have one."""
    zoned = {name: getattr(dtype, "time_zone", None) for name, dtype in types.items()}
    return {name: zone for name, zone in zoned.items() if zone}


def _read(source: Any, dialect: Dialect, columns: Sequence[str] | None) -> Table:
    if isinstance(source, Table):
        return source
    if isinstance(source, Database):
        return Table(_normal(source.read()), _Origin())
    if isinstance(source, ParquetFile):
        return _read_file(source.path, dialect, source.columns)
    if isinstance(source, str | os.PathLike):
        unread(source)  # refuses the address of a database alone
        return _read_file(table_file(source), dialect, columns)
    if isinstance(source, pl.DataFrame):
        frame = _normal(source.get_columns())
        return Table(frame, _Origin("polars", dict(source.schema), units=_units_of(frame)))
    package = type(source).__module__.partition(".")[0]
    if package == "pandas" and type(source).__name__ == "DataFrame":
        check_names(list(source.columns), "the frame")
        series = [_series_of(n, *_from_pandas(source[n]), mixed=True) for n in source.columns]
        frame = _normal(series)
        return Table(frame, _Origin("pandas", dict(source.dtypes), units=_units_of(frame)))
    if hasattr(source, "__arrow_c_stream__"):
        check_names(list(getattr(source, "column_names", ())), "the frame")
        kind: Literal["arrow", "polars"] = "arrow" if package == "pyarrow" else "polars"
        dtypes = {one.name: one.type for one in source.schema} if kind == "arrow" else {}
        frame = _normal(pl.DataFrame(source).get_columns())
        return Table(frame, _Origin(kind, dtypes, units=_units_of(frame)))
    raise DataError(
        f"cannot read a {type(source).__name__}; give a path (.csv, .parquet) or a pandas, polars "
        "or arrow frame"
    )


def _read_file(file: Path, dialect: Dialect, columns: Sequence[str] | None) -> Table:
    try:
        lazy, origin = _scanned(file, dialect)
        if columns is not None:
            there = lazy.collect_schema().names()
            for name in columns:
                _check_there(name, there)
            lazy = lazy.select(*dict.fromkeys(columns))
        raw = lazy.collect()
    except _UNREADABLE as error:
        raise unreadable(file, error) from None
    columns_read = _blank(raw, origin)
    if origin.text or origin.keyed:
        written = {
            column.name: _Written(column, dialect.decimal, origin.file_types.get(column.name))
            for column in columns_read
            if column.dtype == pl.String
        }
        origin = replace(origin, written=written)
    frame = _normal(columns_read)
    return Table(frame, replace(origin, units=_units_of(frame)))


def _units_of(frame: pl.DataFrame) -> dict[str, str]:
    """The unit in which each column of durations is seen as numbers."""
    return {one.name: _whole_unit(one) for one in frame.get_columns() if one.dtype == DURATION}


def _whole_unit(durations: pl.Series) -> str:
    """The largest unit of which all durations are whole multiples, down to seconds."""
    micros = durations.drop_nulls().cast(pl.Int64)
    if not (micros != 0).any():  # nothing says which
        return "seconds"
    units = ("days", "hours", "minutes")
    return next((unit for unit in units if not (micros % UNITS[unit] != 0).any()), "seconds")


def _padded(text: pl.Series, decimal: str) -> int:
    """The fewest decimals that a number has, zeros at the end among them; powers have none."""
    values = text.filter(text.str.contains(r"^[^a-zA-Z]+$"))
    tails = values.str.extract(rf"{re.escape(decimal)}(\d+)\s*$").fill_null("")
    counts = tails.str.len_chars()
    padded = counts.filter(tails.str.ends_with("0"))
    return fewest_decimals({*counts.unique()}, {*padded.unique()})


def fewest_decimals(counts: Set[int], zeros: Set[int]) -> int:
    """The fewest decimals of numbers that have so many, and of those that end with a zero.

    Whole numbers without a mark are passed over where two or more are padded: 80 beside 80.50.
    """
    shown = min(counts - {0}, default=0)
    return min(MOST_DECIMALS, shown if shown in zeros - {1} else min(counts, default=0))


def decimals_of(numbers: NDArray[np.float64], most: int, bits: int) -> int | None:
    """The fewest decimals, at most so many, that all numbers of so many bits have; else None."""
    largest = float(np.abs(numbers).max(initial=0.0))
    for decimals in range(most + 1):
        if not largest * 10.0**decimals < 2.0**bits:
            break
        if (np.round(numbers, decimals) == numbers).all():
            return decimals
    return None


def _check_there(name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise DataError(f"the table has no column {name!r}; it has {', '.join(names)}")


def check_numbers(name: str, wild: int, wrong: int = 0) -> None:
    """Raise SchemaError where so many rows, if any, hold infinite numbers, or no whole number."""
    for count, what in (
        (wild, "infinite numbers; correct them, or leave them empty"),
        (wrong, "no whole number; declare it continuous, or round its values"),
    ):
        if count:
            held = count_of(count, "row holds", "rows hold")
            raise SchemaError(f"column {name!r}: {held} {what}")


def file_kind(path: Path) -> str:
    """Return the end of a table's name that says what it is, such as ".csv.gz"; empty if unknown.

    A folder is taken to hold Parquet files.
    """
    if path.is_dir():
        return ".parquet"
    return next((end for end in _FILES if stored(path).name.lower().endswith(end)), "")


def stored(path: Path) -> Path:
    """Return the file that a path names, without the sheet of an Excel file."""
    name, mark, _ = str(path).partition(f"{_EXCEL}#")
    return Path(name + _EXCEL) if mark and not path.is_file() else path


def rows_declared(path: Path) -> int | None:
    """Return how many rows a file of SPSS, Stata or SAS says that it has; None for any other."""
    kind = file_kind(path)
    return names_and_rows(table_file(path), kind)[1] if kind in PROGRAMS else None


def is_text_file(path: Path) -> bool:
    """Whether it is a CSV or a TSV, compressed or not."""
    return file_kind(path) in _TEXT


def table_file(path: str | os.PathLike[str]) -> Path:
    """Return a table's path; raises DataError unless it is a file of a known kind that is there."""
    file = Path(path)
    if file.is_dir() and any(file.glob("**/*.parquet")):
        return file
    if not stored(file).is_file():
        parquet = " with .parquet files" if file.is_dir() else ""
        raise DataError(f"there is no file {str(file)!r}{parquet}; check the path")
    if not file_kind(file):
        raise DataError(f"cannot read {file.name!r}: the name must end in {_KNOWN_FILES}")
    return file


def unreadable(file: Path, error: Exception) -> DataError:
    """Say why a file cannot be read, without the reader's own message, which quotes CSV lines."""
    why = getattr(error, "strerror", None) or _first_line(error)
    if is_text_file(file) and not isinstance(error, OSError):
        if isinstance(error, UnicodeError) or "utf" in why.lower():
            why = "it is not in the encoding that was given; leave it out, or name another"
            if file_kind(file).endswith(".zst"):
                why = "text in a .zst file must be UTF-8, and this is not; store it so, or as .gz"
        elif "more fields" in why:
            why = (
                "a line has more fields than the first one; put values that hold the separator in "
                f"quotes, and delete lines above the names, such as a title, {_SKIP}"
            )
        else:
            why = "a line cannot be parsed; look for a quotation mark that is not closed"
    elif file.is_dir() and isinstance(error, pl.exceptions.SchemaError):
        why = why.partition(", hint")[0]
        why = f"its files must have the same columns, of the same types ({why})"
    return DataError(f"cannot read {str(file)!r} as a table: {why}")


def names_in(path: str | os.PathLike[str], dialect: Dialect) -> tuple[str, ...]:
    """Return a file's column names, also of columns that a table cannot hold; DataError as `read`.

    Of a text file no more than the head is read.
    """
    file = table_file(path)
    try:
        if is_text_file(file):
            return tuple(csv_header(file, dialect)[0])
        if file_kind(file) in PROGRAMS:
            return tuple(names_and_rows(file, file_kind(file), dialect.encoding)[0])
        lazy, origin = _scanned(file, dialect)
        names = lazy.collect_schema().names()
        if origin.keyed and dialect.names:  # a key that one line alone has is no column
            names = [name for name in names if name in dialect.names]
        return tuple(names)
    except _UNREADABLE as error:
        raise unreadable(file, error) from None


# How a text file is written


def csv_header(file: Path, asked: Dialect | None = None) -> tuple[list[str], Dialect]:
    """Return a text file's column names, and how it is written: as asked, or as it seems to be.

    Raises:
        DataError: When it is empty, its encoding cannot be decided, or a name repeats.
    """
    asked = asked or Dialect()
    encoding = asked.encoding or _marked_encoding(file)
    data = _bytes(file, _HEAD)
    if asked.encoding is None and encoding == "utf-8" and any(_has_zeros(data)):
        raise _undecided(file)
    head = codecs.getincrementaldecoder(encoding)("replace").decode(data)
    lines = head.removeprefix("\ufeff").splitlines(keepends=True)
    lines = lines[: len(lines) - (len(head) > 1 and len(lines) > 1 and head[-1] not in "\r\n")]
    asked = _by_names(lines, asked)
    skipped = _lines_above(lines, asked) if asked.skip is None else asked.skip
    title, lines = "".join(lines[:skipped]), lines[skipped:]
    above = title.count("\n") or skipped  # a mark that ends a line for Python alone is none here
    if not "".join(lines).strip():
        raise DataError(f"{str(file)!r} is empty; it needs a first line of column names")
    separator = asked.separator or _separator(lines)
    rows = [row for row in csv.reader(lines[:_HEAD_ROWS], delimiter=separator) if row]
    header = _has_header(rows) if asked.header is None else asked.header
    first = rows[0] if header else [""] * len(rows[0])
    names = [name if name.strip() else f"column_{i + 1}" for i, name in enumerate(first)]
    there = sum(map(bool, map(str.strip, first)))
    named = [first] if asked.names else rows  # a row's value names no column that a schema lacks
    filled = [i + 1 for row in named for i, text in enumerate(row) if text.strip()]
    names = names[: max(filled, default=len(names))] if header else names
    if header and asked.header is None and 2 * there < len(names) > 2:
        raise DataError(
            f"line {above + 1} of {str(file)!r} names {there} of {len(names)} columns: delete "
            f"lines above the names, such as a title, {_SKIP}; or give --header (header=True) if "
            "these are all names"
        )
    check_names(names, repr(str(file)))
    if _LOST in "".join(names):
        raise DataError(
            f"the names of {str(file)!r} are not in {encoding}; {_advice(file)}, or store the "
            "file as UTF-8"
        )
    found = replace(asked, separator=separator, encoding=encoding, header=header, skip=above)
    return names, found


def _by_names(lines: Sequence[str], asked: Dialect) -> Dialect:
    """Find the line of names and the separator by names that are known, if they are there.

    It is the first line that has most of them, by the separator that divides it so. Rows lie below
    it, so none is looked at.
    """
    if not asked.names or asked.header is False:
        return asked
    most, where = 0, asked
    wanted = set(asked.names)
    starts = range(_ABOVE) if asked.skip is None else [asked.skip]
    for start, line in ((start, lines[start]) for start in starts if start < len(lines)):
        for mark in [asked.separator] if asked.separator else _SEPARATORS:
            fields = next(csv.reader([line], delimiter=mark), [])
            count = len(wanted.intersection(fields))
            if count > most:
                most = count
                where = replace(asked, separator=mark, header=True, skip=start)
    return where


def _lines_above(lines: Sequence[str], asked: Dialect) -> int:
    """How many lines lie above the names: comments that begin with #, a title and empty lines.

    A line that begins with # is no comment if it has as many fields as the line below it, and at
    least half of them hold something; a title needs an empty line below it. Neither holds above a
    line that can only be names.
    """
    lines = lines[:_HEAD_ROWS]
    empty = [not line.strip(' \t\r\n";,|') for line in lines[:_ABOVE]]
    notes = [n or bool(_NOTE.match(line)) for n, line in zip(empty, lines, strict=False)]
    for i in range(len(notes) - 1, 0, -1):
        if notes[i] or all(empty[:i]) or not (notes[i - 1] or i <= _TITLES):
            continue
        mark = asked.separator or _separator(lines[i:])
        rows = [next(csv.reader([line], delimiter=mark)) for line in lines[:i]]
        below = [row for row in csv.reader(lines[i:], delimiter=mark) if row]
        *held, there = (sum(map(bool, map(str.strip, row))) for row in (*rows, below[0]))
        title = max((n for n, note in zip(held, notes, strict=False) if not note), default=0)
        if title and (asked.header or there < 2 or 2 * title >= max(3, there)):
            continue
        within_quotes = "".join(lines[:i]).count('"') % 2
        if not within_quotes and _are_names(below):
            return i
        if not notes[i - 1]:
            continue
        alike = [len(row) == len(below[0]) <= 2 * n for row, n in zip(rows, held, strict=True)]
        start = i
        while start and (empty[start - 1] or alike[start - 1]):
            start -= 1
        return next((j for j in range(start, i) if lines[j].startswith("#")), i)
    return 0


def _are_names(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row can only be names: different texts, new ones, and one over numbers."""
    first, rest = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = [[value for value in values if value.strip()] for values in zip(*rest, strict=True)]
    texts = {name.strip().lower() for name in first if re.search(r"[^\W\d_]", name)} - _NOTHING
    if len(texts) < len(first) or any(map(_NUMBER.fullmatch, first)):
        return False
    new = all(name not in values for name, values in zip(first, columns, strict=False))
    return new and any(map(_numbers_of, columns))


def _numbers_of(values: Sequence[str]) -> list[float]:
    """Sizes of the written numbers among some texts, if nearly all are such; else none."""
    numbers = [_plain(value) for value in values if _NUMBER.fullmatch(value)]
    return numbers if len(numbers) > 0.8 * len(values) else []


def packed_lines(file: Path) -> int:
    """How many lines a compressed text file has; DataError if it cannot be decompressed."""
    try:
        return int(pl.scan_lines(file).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError):
        why = "it cannot be decompressed; copy it again, it may be cut off"
        raise DataError(f"cannot read {str(file)!r} as a table: {why}") from None


def _bytes(file: Path, most: int = -1) -> bytes:
    """The first bytes of a file, or all, decompressed."""
    with _opened(file, _HEAD_ROWS if most > 0 else None) as data:
        return bytes(data.read(most))


def _opened(file: Path, rows: int | None = None) -> Any:
    """A file's bytes, decompressed; of a .zst file no more than so many lines."""
    kind = file_kind(file)
    if kind.endswith(".zst"):  # polars decompresses it; it must be UTF-8
        lines = pl.scan_lines(file, n_rows=rows).collect().to_series().to_list()
        return BytesIO("".join(f"{line}\n" for line in lines).encode())
    return gzip.open(file) if kind.endswith(".gz") else file.open("rb")


def _blank_lines(file: Path, fields: int, found: Dialect) -> frozenset[int]:
    """Which lines of a text file hold nothing, counted from 1.

    DataError where a line has fewer fields than others: it may be cut off. If all lines below the
    names have as few, or lines may be short, separators at their end were left off.
    """
    blank, first, counts, mark = [], dict[int, int](), Counter[int](), found.separator or ","
    with TextIOWrapper(_opened(file), found.encoding, "replace", newline="") as lines:
        above = sum(1 for _ in islice(lines, found.skip))
        reader, line = csv.reader(lines, delimiter=mark), above + 1
        for row in reader:
            if not "".join(row).strip() and len(row) < 2:
                blank.append(line)
            else:
                first.setdefault(len(row), line)
                counts[len(row)] += 1
            line = above + reader.line_num + 1
    counts[fields] -= bool(found.header)
    most = max((width for width in counts if counts[width] and width <= fields), default=0)
    short = sorted((line, width) for width, line in first.items() if width < most)
    if short and not found.short_lines:
        (line, width), many = short[0], sum(counts[width] for _, width in short)
        control = _control_in(file, found.encoding or "utf-8")
        if control is not None and f"line {line} of " in control:
            raise DataError(control)
        raise DataError(
            f"line {line} of {str(file)!r} has {width} of {most} fields"
            f"{f' ({many:,} lines have too few)' if many > 1 else ''}. Complete it, or delete it "
            "if the file was cut off there or it is a note below the rows; put a value that holds "
            "a line break in quotes. If empty fields at the end were left off, as Excel does, say "
            "that lines may be short: "
            "short_lines = true in the study, --short-lines, or read(short_lines=True)"
        )
    return frozenset(blank)


def _marked_encoding(file: Path) -> str:
    """UTF-16 where the file begins with its mark, else UTF-8; no row has a say in it."""
    if file_kind(file).endswith(".zst"):
        return "utf-8"
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return "utf-16" if _bytes(file, 2).startswith(marks) else "utf-8"


def _has_zeros(head: bytes) -> list[bool]:
    """Whether bytes at even and at odd places are mostly zeros, as of UTF-16 without a mark."""
    return [head[i::2].count(0) * 2 > 0.3 * len(head) for i in (0, 1)] if len(head) > 1 else []


def encoding_of(path: str | os.PathLike[str]) -> str:
    """Guess the encoding of a text file from all its bytes, for somebody to declare it.

    It is UTF-16 by its mark or its zeros, else UTF-8 if all bytes are, else a Western code page.

    Raises:
        DataError: It cannot be decided; names the first line that is not UTF-8, or that holds a
            byte that is in no text, such as NUL.
    """
    file = Path(path)
    if (marked := _marked_encoding(file)) != "utf-8" or file_kind(file).endswith(".zst"):
        return marked
    head = _bytes(file, _HEAD)
    zeros = _has_zeros(head)
    if any(zeros):
        return "utf-16-be" if zeros[0] else "utf-16-le"
    error = _undecodable(file, "utf-8")
    if (control := _control_in(file)) is not None:
        if len(head.translate(None, _TEXT_BYTES)) > _MOST_CONTROL * len(head):
            raise _undecided(file)
        raise DataError(f"{control}; or give its encoding, to read it as it is")
    if error is None:
        return "utf-8"
    sample = head + error.object[error.start : error.start + _HEAD]
    if not re.search(rb"[\x00-\x08\x0e-\x1f\x81\x8d\x8f\x90\x9d]", sample):
        text = sample.decode("cp1252")
        if 5 * sum(map(len, _ODD.findall(text))) <= sum(not mark.isascii() for mark in text):
            return "cp1252"
    raise _undecided(file)


def _undecodable(file: Path, encoding: str) -> UnicodeDecodeError | None:
    """The first error of decoding a file, if there is one."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with _opened(file) as data:
        try:
            while chunk := data.read(1 << 22):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            return error
    return None


def _control_in(file: Path, encoding: str = "utf-8") -> str | None:
    """Say where a text file holds a byte that is in no text, such as NUL; None if it has none."""
    if file_kind(file).endswith(".zst") or "\x1a".encode(encoding, "replace") != b"\x1a":
        return None  # UTF-16 has such bytes everywhere
    line = 1
    with _opened(file) as data:
        while chunk := data.read(1 << 22):
            if found := chunk.translate(None, _TEXT_BYTES):
                line += chunk.count(b"\n", 0, chunk.index(found[:1]))
                what = _CONTROLS.get(found[0], f"a control character (byte {found[0]:02X})")
                return (
                    f"line {line} of {str(file)!r} holds {what}. Delete it, or store the file as "
                    "text again"
                )
            line += chunk.count(b"\n")
    return None


def _advice(file: Path) -> str:
    """What to do about bytes that are not in an encoding, with a guess at the right one."""
    try:
        likely = encoding_of(file)
    except DataError:
        likely = "latin-1"
    return (
        f"declare the encoding, such as {likely}: encoding = {likely!r} in the study, --encoding "
        f"{likely}, or read(encoding={likely!r})"
    )


def _undecided(file: Path) -> DataError:
    data, where = _bytes(file), ""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = f" (line {line} is the first that is not UTF-8)"
    likely = min(("mac-roman", "cp850"), key=lambda one: len(_ODD.findall(data.decode(one))))
    return DataError(
        f"the encoding of {str(file)!r} cannot be decided: it is not UTF-8 or UTF-16 throughout"
        f"{where}, and holds bytes that no Western code page has, or that make no words in it. "
        f"Name it, such as {likely} (of old text in a Western language), koi8-r or shift-jis: "
        "encoding = ... in the study, --encoding, or read(encoding=...); or store the file as UTF-8"
    )


def readings(table: Table) -> tuple[str, ...]:
    """How a word is read in a text file whose encoding was taken to be cp1252; else empty.

    A second one is that of mac-roman, where it makes no more odd words of these bytes.
    """
    if table.dialect is None or table.dialect.encoding != "cp1252":
        return ()
    columns = [table.text_counts(name) for name in table.names if table.kind(name) == "text"]
    texts = " ".join(chain(table.names, *columns))
    words = [word for word in texts.split() if not word.isascii()]
    others = [word.encode("cp1252").decode("mac-roman") for word in words]
    pairs = sorted(zip(words, others, strict=True), key=lambda pair: not _ODD.search(pair[0]))
    odd, odd_then = (sum(map(bool, map(_ODD.search, found))) for found in (words, others))
    return pairs[0][: 1 + (odd_then <= odd)] if pairs else ()


def _separator(lines: Sequence[str]) -> str:
    """The mark by which most lines have as many fields as the first, of those that divide it."""
    best, most = ",", (0.0, 0)
    for mark in _SEPARATORS:
        counts = [len(row) for row in csv.reader(lines[:_HEAD_ROWS], delimiter=mark) if row]
        alike = sum(count == counts[0] for count in counts) / len(counts)
        if counts[0] > 1 and (alike, counts[0]) > most:
            best, most = mark, (alike, counts[0])
    return best


def _divided_by(lines: Sequence[str]) -> str:
    """Say by what else than usual the fields of a text seem to be divided; empty if by nothing."""
    lines = [line.strip() for line in lines[:_HEAD_ROWS] if line.strip()]
    for mark in _RARE_SEPARATORS:
        if _are_columns([next(csv.reader([line], delimiter=mark), []) for line in lines]):
            return (
                f"its fields seem to be divided by {mark!r}; give --separator {mark!r}, "
                f"separator = {mark!r} in the study, or read(separator={mark!r})"
            )
    rows = [line.split() for line in lines]
    if not _are_columns(rows) or not any(map(_numbers_of, zip(*rows[1:], strict=False))):
        return ""  # texts of several words
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
    """Whether nearly all rows have as many fields as the first, which are several."""
    width = len(rows[0]) if rows else 0
    alike = sum(len(row) == width for row in rows)
    return width > 1 and len(rows) > 2 and alike >= 0.95 * len(rows)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: no, if half of its fields look like those below.

    A number within the range of the column does, a text that the column holds again, and one with
    digits of the form that nearly all of its texts have. A text over numbers is a name.
    """
    first, rest = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    counted = [str(i) for i in range(len(first))], [str(i + 1) for i in range(len(first))]
    if len(rest) < 2 or list(first) in counted:
        return True
    alike = 0
    for name, values in zip(first, zip(*rest, strict=True), strict=True):
        below = [value for value in values if value.strip()]
        if numbers := _numbers_of(below):
            if not _NUMBER.fullmatch(name):
                return True
            alike += min(numbers) <= _plain(name) <= max(numbers)
        else:
            forms = [_shape(value) for value in below]
            digits = sum(mark == "0" for mark in _shape(name)) > 1
            alike += name in below or (digits and forms.count(_shape(name)) > 0.9 * len(forms))
    return 2 * alike < len(first)


def _shape(text: str) -> str:
    """A text in which all digits are alike, and all letters."""
    return re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "0", text.strip()))


def _plain(number: str) -> float:
    """Some size of a written number, whatever its marks mean."""
    digits = re.sub(r"[^\d.+-]", "", number.partition("e")[0])
    with suppress(ValueError):
        return float(digits)
    return float(re.sub(r"\D", "", digits) or 0)


def names_after(names: Sequence[str], rename: Mapping[str, str], where: str) -> tuple[str, ...]:
    """Return column names after a `rename`.

    Args:
        names: The table's own.
        rename: Own names and new ones.
        where: Whose table it is, for errors.

    Raises:
        DataError: There is no such column, or a new name is there already.
    """
    if absent := [name for name in rename if name not in names]:
        raise DataError(
            f"{where} has no column {absent[0]!r}, which rename names; it has {listed(names)}"
        )
    new = tuple(rename.get(name, name) for name in names)
    if repeated := [name for name in rename.values() if new.count(name) > 1]:
        raise DataError(
            f"{where}: rename makes a second column {repeated[0]!r}. Rename the other one too, or "
            "leave it out"
        )
    return new


def check_names(names: Sequence[Any], where: str) -> None:
    """Raise DataError unless column names are text and distinct."""
    if twice := sorted({str(name) for name in names if list(names).count(name) > 1}):
        raise DataError(f"{where} has column names twice: {', '.join(twice)}; rename them")
    if odd := [name for name in names if not isinstance(name, str) or not name]:
        raise DataError(f"{where} has column names that are no text: {odd}; rename them")


def _blank(frame: pl.DataFrame, origin: _Origin) -> list[pl.Series]:
    """Make empty fields of a text file missing, quoted or not, and what is declared so."""
    if not origin.text:
        return frame.get_columns()
    missing = origin.dialect.missing if origin.dialect else ()
    return _without(frame, missing).get_columns()


def _without(frame: pl.DataFrame, missing: Sequence[str]) -> pl.DataFrame:
    """Make texts without a character but spaces missing, and some others."""
    text = pl.col(pl.String)
    blank = text.str.strip_chars().is_in(["", *missing])
    return frame.with_columns(pl.when(~blank).then(text))


def _plain_types(types: Mapping[str, Any]) -> dict[str, Any]:
    """Types that a file gives its columns and a table holds; text and all others are left out."""
    plain: dict[str, Any] = {}
    for name, dtype in types.items():
        if dtype in WHOLE or dtype in (pl.Float64, pl.Boolean, pl.Null):
            plain[name] = dtype
        elif isinstance(dtype, pl.Datetime | pl.Date):
            plain[name] = DATETIME
    return plain


def _sheet(path: Path, asked: Dialect) -> tuple[pl.DataFrame, dict[str, Any]]:
    """A sheet of an Excel file, every cell as text, and the types that Excel gives its columns.

    The first row has names unless it is said that none has.
    """
    try:
        fastexcel = import_module("fastexcel")
    except ModuleNotFoundError:
        raise InputError(
            f"{path.name}: Excel files need the package fastexcel: pip install 'siloweave[excel]'"
        ) from None
    file = stored(path)
    try:
        sheets = fastexcel.read_excel(str(file)).sheet_names
    except fastexcel.FastExcelError as error:
        raise DataError(
            f"cannot read {str(file)!r} as an Excel file: {_first_line(error)}"
        ) from None
    name = str(path).partition(f"{_EXCEL}#")[2] if path != file else sheets[0]
    if name not in sheets or (path == file and len(sheets) > 1):
        wrong = f"has no sheet {name!r}" if path != file else f"has {len(sheets)} sheets"
        raise DataError(f"{str(file)!r} {wrong}; write {file.name}#{sheets[0]}, or another of "
                        f"{', '.join(sheets)}")  # fmt: skip
    where, header = f"sheet {name!r} of {str(file)!r}", asked.header is not False
    facts: Any = {"sheet_name": name, "engine": "calamine", "raise_if_empty": False}
    frame = pl.read_excel(file, has_header=False, infer_schema_length=None, **facts)
    if not frame.width or frame.height < (2 if header else 1):
        raise DataError(f"{where} has no rows; it needs a row of column names, and rows below")
    if header:
        names = ["" if value is None else str(value).strip() for value in frame.row(0)]
        if "" in names:
            raise DataError(
                f"{where}: column {names.index('') + 1} has no name in the first row. Names that "
                "are merged over several cells, and titles above them, cannot be read: give each "
                "column one name, in the first row"
            )
        check_names(names, where)
    else:
        names = [f"column_{i + 1}" for i in range(frame.width)]
    if merged := _merged_cells(file, name):
        raise DataError(
            f"{where}: cells {merged} are merged, and only the first of them has the value. Split "
            "them, and write each value into each of its rows; names stand in one row"
        )
    texts = pl.read_excel(file, has_header=header, read_options={"dtypes": "string"}, **facts)
    texts.columns = names
    try:
        typed = pl.read_excel(file, has_header=header, infer_schema_length=None, **facts)
    except pl.exceptions.PolarsError:  # a number such as 1e308 in a column of whole ones
        return _without(texts, asked.missing), {}
    types = dict(zip(names, typed.dtypes, strict=True))
    return _without(texts, asked.missing), _plain_types(types)


def _merged_cells(file: Path, name: str) -> str:
    """The first range of merged cells of a sheet, such as A1:A2, or an empty text."""
    with ZipFile(file) as parts:
        links, book = (
            ElementTree.fromstring(parts.read(f"xl/{part}"))  # noqa: S314  expat bounds entities
            for part in ("_rels/workbook.xml.rels", "workbook.xml")
        )
        paths = {one.get("Id"): one.get("Target", "") for one in links}
        sheets = book.iterfind(".//{*}sheet")
        facts = next(one.attrib for one in sheets if one.get("name") == name)
        path = next(paths[value] for key, value in facts.items() if key.endswith("}id"))
        with parts.open(posixpath.normpath(posixpath.join("/xl", path))[1:]) as data:
            end = b""
            while piece := data.read(1 << 20):
                if found := _MERGED.search(end + piece):
                    return found[1].decode()
                end = piece[-99:]
    return ""


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _typed(text: pl.Series, decimal: str = ".") -> pl.Series:
    """Give a CSV column the narrowest type that every value fits and no text is lost by."""
    few = text.drop_nulls().head(_HEAD_ROWS).str.strip_chars()
    odd = few.cast(pl.Float64, strict=False).is_null() & flags_of(few).is_null()
    if decimal == "." and odd.any():
        return text  # whatever the others are
    stripped = text.str.strip_chars()
    values = stripped.drop_nulls()
    if values.is_empty() or values.str.contains(r"^[+-]?0\d|^\+").any():
        return text
    if values.cast(pl.Int64, strict=False).null_count() == 0:
        return stripped.cast(pl.Int64)
    if values.str.contains(r"^[+-]?\d{17,}$").any():
        return text  # digits of an identifier, which no double holds
    if decimal != ".":
        pointed = values.filter(values.str.contains(".", literal=True))
        if not pointed.str.contains(r"^[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?$").all():
            return text
        stripped = stripped.str.replace_all(".", "", literal=True).str.replace(",", ".")
    elif _has_thousands(values):
        return text  # 1.234 beside 567
    if stripped.drop_nulls().cast(pl.Float64, strict=False).null_count() == 0:
        return stripped.cast(pl.Float64)
    spelled = values.unique()
    lower = spelled.str.to_lowercase()
    kept = not lower.equals(spelled) and lower.n_unique() == len(spelled)  # TRUE, drawn so again
    return text if kept or flags_of(spelled).has_nulls() else flags_of(text)


def _has_thousands(values: pl.Series) -> bool:
    """Whether points divide thousands: three digits behind each, and no more before any."""
    marked = values.filter(values.str.contains(".", literal=True))
    plain = values.filter(~values.str.contains(".", literal=True))
    grouped = marked.str.contains(r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    return bool(len(marked) and len(plain) and grouped.all()) and bool(
        plain.str.contains(r"^[+-]?\d{1,3}$").all()
    )


def _normal(columns: Iterable[pl.Series]) -> pl.DataFrame:
    return pl.DataFrame([_normal_series(column) for column in columns])


def _normal_series(series: pl.Series) -> pl.Series:
    if series.dtype == pl.Float32:  # by its digits: 8.9, not 8.899999618530273
        series = series.cast(pl.String).cast(pl.Float64)
    dtype = series.dtype
    if dtype == pl.Float64 or isinstance(dtype, pl.Decimal):
        return series.cast(pl.Float64).fill_nan(None)
    if dtype in WHOLE or dtype in (pl.String, pl.Boolean, pl.Null) or dtype == DATETIME:
        return series
    if dtype == pl.Enum:
        return series  # `Table.cells` gives its texts
    if isinstance(dtype, pl.Categorical | pl.Time):
        return series.cast(pl.String)
    if isinstance(dtype, pl.Datetime):
        return in_utc(series)
    if isinstance(dtype, pl.Duration):
        return series.cast(DURATION)
    if dtype == pl.Date:
        return series.cast(DATETIME)
    if dtype.is_integer():
        small = series.cast(pl.Int64, strict=False)
        if small.null_count() == series.null_count():
            return small
    raise DataError(
        f"column {series.name!r} has type {dtype}, which a table cannot hold; convert it to text, "
        "numbers, booleans or datetimes, or drop it"
    )


def _series_of(
    name: str, values: Any, mask: np.ndarray | None, *, mixed: bool = False
) -> pl.Series:
    """A column of an array, or a series; what mixes types is text where that is allowed."""
    if isinstance(values, pl.Series):
        return values.alias(name)
    array = np.asarray(values)
    if array.dtype.kind == "O" or array.dtype.kind in "US":
        items = array.tolist()
        if mask is not None:
            items = [None if gone else item for item, gone in zip(items, mask, strict=True)]
        try:
            return pl.Series(name, items, strict=True)
        except (TypeError, pl.exceptions.PolarsError):
            if mixed:
                return pl.Series(name, texts_of_mixed(items), dtype=pl.String)
            raise DataError(f"column {name!r} mixes types; convert it to one type") from None
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
    elif array.dtype.kind == "m":
        array = array.astype("timedelta64[us]")
    elif array.dtype.kind not in "iufb":
        raise DataError(f"column {name!r} has type {array.dtype}, which a table cannot hold")
    series = pl.Series(name, array)
    return series if mask is None else series.set(pl.Series(np.asarray(mask, dtype=bool)), None)


def _from_pandas(series: Any) -> tuple[Any, NDArray[np.bool_]]:
    """A column's values (int64, uint64, float64, bool, datetime64[us] in UTC, object) and mask."""
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
    if kind in _PLAIN:
        filled = series.fillna(kind != "b" and 0) if mask.any() else series
        plain = np.float32 if str(series.dtype).lower() == "float32" else _PLAIN[kind]
        return filled.to_numpy(dtype=plain), mask
    return series.astype(str if str(series.dtype)[:6] == "period" else object).to_numpy(), mask


def _texts_in_pandas(pandas: Any, texts: pl.Series) -> Any:
    """Return texts as a pandas series, of the type that pandas itself would choose."""
    if texts.null_count() == len(texts):
        return pandas.Series([None] * len(texts), dtype=object)
    chosen = pandas.Series([""]).dtype
    if getattr(chosen, "storage", "") != "pyarrow":
        return pandas.Series(_objects(texts).tolist())
    # Arrow's text goes over as it is. A list of objects would take several times the memory.
    return pandas.Series(pandas.array(texts.to_arrow(), dtype=chosen))


def _masked(pandas: Any, values: np.ndarray, is_missing: np.ndarray) -> Any:
    """Return values as an array for pandas, of a type that has room for missing ones if any are."""
    if not is_missing.any() or values.dtype.kind not in "ib":
        return values.copy()
    masked = pandas.arrays.IntegerArray if values.dtype.kind == "i" else pandas.arrays.BooleanArray
    return masked(values.copy(), is_missing.copy())


def _restored(pandas: Any, plain: Any, dtype: Any) -> Any:
    """A pandas series in the type it had before; raises where its values do not fit."""
    if str(dtype) == "category":
        known = list(dtype.categories)
        seen = set(known)
        new = [value for value in plain.dropna().unique() if value not in seen]
        return plain.astype(pandas.CategoricalDtype(known + new, ordered=dtype.ordered))
    if getattr(dtype, "tz", None) is not None:
        return plain.dt.tz_localize("UTC").dt.tz_convert(dtype.tz).astype(dtype)
    if dtype is str:
        dtype = pandas.Series([""]).dtype
    made = plain.astype(dtype)
    if str(dtype) == "object":
        made[plain.isna()] = None
    return made


def _zoned_type(kind: str, zone: str) -> Any:
    """The type of datetimes of a time zone in a frame, or None where it knows no such zone."""
    if kind == "polars":
        return pl.Datetime("us", zone)
    if kind == "arrow":
        return import_module("pyarrow").timestamp("us", tz=zone)
    with suppress(KeyError, ValueError):  # a machine without a list of time zones
        return import_module("pandas").DatetimeTZDtype("us", _offset(zone) or zone)
    return None


def _offset(zone: str) -> timezone | None:
    """A time zone that is an offset, such as +01:00; None for any other."""
    if (parts := re.fullmatch(r"([+-])(\d\d):(\d\d)", zone)) is None:
        return None
    size = timedelta(hours=int(parts[2]), minutes=int(parts[3]))
    return timezone(-size if parts[1] == "-" else size)


def _in_zone(series: pl.Series, zone: str) -> pl.Series:
    """Datetimes of UTC as ISO-8601 text of a time zone, each with its offset."""
    form = "%Y-%m-%dT%H:%M:%S%.6f"
    if (offset := _offset(zone)) is not None:
        shift = offset.utcoffset(None)
        return (series + shift).dt.strftime(form) + zone
    zoned = series.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return zoned.dt.strftime(f"{form}%:z")


def _in_polars(series: pl.Series, dtype: pl.DataType) -> pl.Series:
    try:
        if isinstance(dtype, pl.Datetime) and dtype.time_zone and series.dtype == DATETIME:
            zoned = series.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
            return zoned.cast(dtype)
        return series.cast(dtype)
    except pl.exceptions.PolarsError:
        return series


def _in_arrow(compute: Any, column: Any, dtype: Any) -> Any:
    """An arrow column, whose datetimes are UTC without a time zone, of a type if its values fit."""
    try:
        if getattr(dtype, "tz", None) is not None:
            return compute.assume_timezone(column, "UTC").cast(dtype)
        return column if dtype is None else column.cast(dtype)
    except (ValueError, NotImplementedError):
        return column


def _with_declared(
    dtypes: Mapping[str, Any], categories: Mapping[str, Sequence[Any]]
) -> Mapping[str, Any]:
    """Types of a frame without values that were found in rows.

    A categorical type or enum lists the column's public values in their order and no others, and
    is left out without such values.
    """
    found = dict(dtypes)
    for name, dtype in dtypes.items():
        values = list(categories.get(name, ()))
        pandas, enum = str(dtype) == "category", type(dtype).__name__ == "Enum"
        if (pandas or enum) and not values:
            del found[name]
        elif pandas:
            found[name] = type(dtype)(values, ordered=dtype.ordered)
        elif enum:
            found[name] = type(dtype)(values)
    return found


def write(
    table: Any, path: str | os.PathLike[str], padded: Mapping[str, int] | None = None
) -> None:
    """Write a table or a frame as CSV or Parquet, whole or not at all, in place of an older file.

    Datetimes of a time zone keep it: in a CSV each has its offset, as 2024-01-31T06:00:00+01:00.

    Args:
        table: What to write.
        path: The file.
        padded: Columns whose numbers have so many decimals at least in a CSV, zeros among them,
            and no further zeros at their end.

    Raises:
        DataError: The folder is missing, the name ends otherwise, or the file cannot be written.
    """
    table, target = read(table), Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise DataError(f"cannot write {target.name!r}: the name must end in .csv or .parquet")
    if not target.parent.is_dir():
        raise DataError(f"cannot write {target}: its folder does not exist; create it first")
    zones = {n: z for n in table.names if (z := table.zone(n)) and table.kind(n) == "datetimes"}
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if suffix == ".csv":
            digits = {n: d for n, d in (padded or {}).items() if n in table.names}
            texts = [_with_zeros(table._series(n), d) for n, d in digits.items()]
            texts += [_in_zone(table._series(n), zone) for n, zone in zones.items()]
            table._view.with_columns(texts).write_csv(temporary)
        else:
            view = table._typed_view
            zoned = [_in_polars(view[n], pl.Datetime("us", zone)) for n, zone in zones.items()]
            view.with_columns(zoned).write_parquet(temporary, compression="zstd")
        temporary.replace(target)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"{target}: cannot be written ({error}), and is as it was. See that the disk has room"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _as_type_of(
    old: pl.Series, new: pl.Series, written: _Written | None, decimal: str
) -> pl.Series:
    """New cells of a column in the type of its old ones, or in one that holds both."""
    if old.dtype == new.dtype or old.dtype == pl.Null:
        return new
    if old.dtype == pl.String:
        digits = written.padded or 0 if written is not None else 0
        return _with_zeros(new, digits).str.replace(".", decimal, literal=True)
    if old.dtype in WHOLE and new.dtype == pl.Float64:
        is_whole = bool((new == new.round()).all())
        return new.cast(old.dtype) if is_whole else new
    return new.cast(old.dtype)


def _with_zeros(series: pl.Series, digits: int) -> pl.Series:
    """Values as text; numbers have so many decimals at least, and no further zeros behind."""
    if not series.dtype.is_numeric():
        return series.cast(pl.String)
    text = series.cast(pl.String).str.replace("^-0.0$", "0.0")
    tail = text.str.extract(r"\.(\d*?)0*$").fill_null("").str.pad_end(digits, "0")
    plain = text.str.extract(r"^(-?\d+)(?:\.\d+)?$") + tail.str.replace("^(.)", ".$1")
    powers = text.filter(plain.is_null()).drop_nulls()  # such as 9e-6 and 1e16
    fixed = {p: f for p in powers if float(f := f"{float(p):.{digits}f}") == float(p)}
    return plain.fill_null(text.replace(fixed))


def parquet_of(table: Table) -> bytes:
    """A table as the bytes of a Parquet file."""
    file = BytesIO()
    table._view.write_parquet(file)
    return file.getvalue()


def from_parquet(data: bytes) -> Table:
    """Read a table from the bytes of a Parquet file, as `parquet_of` gives them."""
    return read(pl.read_parquet(BytesIO(data)))


def beside(tables: Sequence[Table]) -> Table:
    """Put columns of tables of the same rows side by side; a name that repeats counts once.

    The result is of the first one's kind of frame; where all are of that kind, each column keeps
    its type. DataError if numbers of rows differ.
    """
    if len(rows := sorted({table.num_rows for table in tables})) > 1:
        raise DataError(f"tables have different numbers of rows: {rows}")
    whole = tables[0]
    for table in tables[1:]:
        new = [name for name in table.names if name not in whole.names]
        frame = whole._frame.hstack(table.select(new)._frame)
        mine, theirs = whole._origin, table._origin
        dtypes = {**theirs.dtypes, **mine.dtypes} if theirs.kind == mine.kind else {}
        types = {**theirs.types, **mine.types}
        written = {**theirs.written, **mine.written}
        zones = {**theirs.zones, **mine.zones}
        coded = {**theirs.coded, **mine.coded}
        units = {**theirs.units, **mine.units}
        origin = replace(
            mine,
            dtypes=dtypes,
            types=types,
            written=written,
            zones=zones,
            coded=coded,
            units=units,
        )
        whole = replace(whole, _frame=frame, _origin=origin)
    return whole


def stacked(tables: Sequence[Table]) -> Table:
    """All rows of tables with the same columns; a column is text where types cannot be one."""
    if len(tables) == 1:
        return tables[0]
    columns: list[pl.Series] = []
    written: dict[str, _Written] = {}
    coded: dict[str, _Coded] = {}
    padded: dict[str, int] = {}
    for name in tables[0].names:
        variables = [table._origin.coded.get(name) for table in tables]
        if (variable := _common_variable(variables)) is not None:
            cells = pl.concat([table.cells(name) for table in tables])
            coded[name] = _Coded(cells, variable)
            columns.append(cells)
            continue
        if all(table.unit(name) is not None for table in tables):
            columns.append(pl.concat([table.cells(name) for table in tables]))
            continue
        sources = [table._origin.written.get(name) for table in tables]
        marks = {None if source is None else source.decimal for source in sources}
        if None not in marks and len(marks) == 1:
            cells = pl.concat([table.cells(name) for table in tables])
            written[name] = _Written(cells, str(marks.pop()))
            columns.append(cells)
            if written[name].dtype == pl.Float64:
                parts = [source for source in sources if source and source.cells.count()]
                padded[name] = min(part.padded or 0 for part in parts)
        else:
            columns.append(_joined([table._series(name) for table in tables], sources))
    dialects = {table.dialect for table in tables}
    dialect = dialects.pop() if len(dialects) == 1 else None
    kind: Frame = "csv" if all(table.frame == "csv" for table in tables) else "file"
    everywhere = {name: {table.zone(name) for table in tables} for name in tables[0].names}
    alike = {name: found.pop() for name, found in everywhere.items() if len(found) == 1}
    zones = {name: zone for name, zone in alike.items() if zone is not None}
    origin = _Origin(
        kind, dialect=dialect, written=written, padded=padded, zones=zones, coded=coded
    )
    return Table(pl.DataFrame(columns), origin)


def _common_variable(parts: Sequence[_Coded | None]) -> Variable | None:
    """The dictionary's entry of a column that all tables have alike, and hold in one type."""
    first = parts[0]
    alike = first is not None and all(
        part is not None
        and part.variable == first.variable
        and part.cells.dtype == first.cells.dtype
        for part in parts
    )
    return first.variable if alike and first is not None else None


def _joined(parts: Sequence[pl.Series], sources: Sequence[_Written | None]) -> pl.Series:
    """Parts of a column one below the other, as text where their types cannot be one."""
    types = {part.dtype for part in parts} - {pl.Null}
    if len(types) > 1 and not types <= {*WHOLE, pl.Float64}:
        digits = [source.padded or 0 if source else 0 for source in sources]
        parts = [_with_zeros(part, d) for part, d in zip(parts, digits, strict=True)]
    frames = [part.to_frame() for part in parts]
    return pl.concat(frames, how="vertical_relaxed").to_series()


def frame_of(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], kind: Frame | None = None
) -> Any:
    """Make a frame of rows that map names to values; None is missing.

    Without a kind it is pandas where it is installed, else polars; InputError for an unknown kind.
    """
    if kind is not None and kind not in get_args(Frame):
        raise InputError(f"kind={kind!r} must be 'pandas', 'polars' or 'arrow'")
    columns = {}
    for name in names:
        values = [row[name] for row in rows]
        known = next((value for value in values if value is not None), 0.0)
        filled = [known if value is None else value for value in values]
        dtype = object if isinstance(known, str) else type(known)
        columns[name] = (np.array(filled, dtype), np.array([value is None for value in values]))
    return Table.from_columns(columns).framed(kind or "file").to_native()


def digest_of(*facts: Any) -> bytes:
    """Return 32 bytes that agree when the facts do, and otherwise differ.

    A party recognises its rows by them; they never leave it. Facts are tables, whose rows and
    columns count in their order, whatever frame they came from; arrays; and what MessagePack can
    write.
    """
    digest = blake2b(digest_size=32)
    for fact in facts:
        for piece in _pieces(fact):
            digest.update(len(piece).to_bytes(8, "big"))
            digest.update(piece)
    return digest.digest()


def _pieces(fact: Any) -> Iterator[bytes]:
    if isinstance(fact, Table):
        for name in fact.names:
            yield msgspec.msgpack.encode((name, fact.kind(name)))
            yield from _pieces(fact.values(name))
            yield from _pieces(fact.missing(name))
    elif isinstance(fact, np.ndarray) and fact.dtype.kind != "O":
        yield f"{fact.dtype.str}{fact.shape}".encode()
        yield fact.tobytes()
    else:
        yield msgspec.msgpack.encode(fact.tolist() if isinstance(fact, np.ndarray) else fact)
