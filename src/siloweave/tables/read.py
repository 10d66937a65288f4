"""Tables in and out: the one place that knows dataframe libraries.

A `Table` wraps one polars frame with few types (text, whole numbers, numbers, booleans, datetimes)
and remembers what it was made from, so that pandas in gives pandas out. Pandas and pyarrow are
imported only for tables that came from them. Names of columns are checked before a file is read,
and a file is written whole or not at all.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from siloweave.errors import DataError, InputError, SchemaError
from siloweave.tables.display import MOST, html_table, listed

Frame = Literal["pandas", "polars", "arrow", "file", "csv"]
"""Where a table came from; "file" is a Parquet file, or arrays."""

_WHOLE = frozenset({pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32})
_DATETIME = pl.Datetime("us")
_ISO = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M")
_KINDS = {"String": "text", "Float64": "numbers", "Boolean": "booleans"}
_POLARS: dict[type, Any] = {
    bool: pl.Boolean,
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
    datetime: _DATETIME,
}
# Of each type: pandas without missing values, with them, and arrow.
_NAMED: dict[type, tuple[Any, Any, str]] = {
    bool: ("bool", "boolean", "bool"),
    int: ("int64", "Int64", "int64"),
    float: ("float64", "float64", "double"),
    str: (str, str, "string"),
    datetime: ("datetime64[us]", "datetime64[us]", "timestamp[us]"),
}
_PLAIN = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}


@dataclass(frozen=True)
class _Origin:
    """What a table was made from: the kind of frame, and its own types or declared ones."""

    kind: Frame = "file"
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, tuple[type, bool]] = field(default_factory=dict)

    @property
    def text(self) -> bool:
        return self.kind == "csv"

    def native_types(self, kind: str) -> dict[str, Any]:
        """Each column's type in a pandas, arrow or polars frame, where it is known."""
        found = dict(self.dtypes)
        for name, (python, missing) in self.types.items():
            plain, gaps, arrow = _NAMED[python]
            native = {"pandas": gaps if missing else plain, "arrow": arrow}
            found[name] = native.get(kind, _POLARS[python])
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

    def __repr__(self) -> str:
        return f"Table({self.num_rows} rows: {listed(self.names)})"

    def _repr_html_(self) -> str:
        rows = self._frame[:, :MOST].head(5).rows()
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
        if series.dtype in _WHOLE:
            return series.fill_null(0).cast(pl.Int64).to_numpy()
        if series.dtype == pl.Float64:
            return series.fill_null(float("nan")).to_numpy()
        if series.dtype == pl.Boolean:
            return series.fill_null(False).to_numpy()
        if series.dtype == _DATETIME:
            return series.to_numpy()
        values = np.empty(len(series), dtype=object)
        values[:] = series.to_list()
        return values

    def missing(self, name: str) -> np.ndarray:
        """Return a mask of one column's missing values, one boolean per row."""
        return self._series(name).is_null().to_numpy()

    def kind(self, name: str) -> str:
        """Return one column's type: text, whole numbers, numbers, booleans, datetimes, nothing."""
        dtype = self._series(name).dtype
        if dtype in _WHOLE:
            return "whole numbers"
        return "datetimes" if dtype == _DATETIME else _KINDS.get(str(dtype), "nothing")

    def levels(self, name: str) -> tuple[Any, ...] | None:
        """Return the declared values of a column that came as a categorical type, else None."""
        dtype = self._origin.dtypes.get(name)
        if isinstance(dtype, pl.Enum):
            return tuple(dtype.categories.to_list())
        if str(dtype) == "category" and dtype is not None:
            return tuple(dtype.categories.tolist())
        if isinstance(dtype, pl.Categorical) or str(dtype).startswith("dictionary"):
            return tuple(self._series(name).drop_nulls().unique().sort().to_list())
        return None

    def take(self, indices: np.ndarray | Sequence[int]) -> Table:
        """Return the rows at some positions, in that order; positions may repeat."""
        return Table(self._frame[np.asarray(indices, dtype=np.int64)], self._origin)

    def select(self, names: Sequence[str]) -> Table:
        """Return some columns, in the order given; DataError when one is not there."""
        for name in names:
            self._series(name)
        return Table(self._frame.select(list(names)), self._origin)

    @property
    def frame(self) -> Frame:
        """What the table was made from, and `to_native` makes again."""
        return self._origin.kind

    def framed(self, frame: Frame) -> Table:
        """Return the same rows, of which `to_native` makes another kind of frame."""
        return Table(self._frame, _Origin(frame))

    def without_rows(self) -> Table:
        """Return an empty table like this one; columns of a CSV are text, as they are written."""
        empty = self._frame.clear()
        text: dict[Any, type[str]] = dict.fromkeys(self.names, str)
        return replace(self, _frame=empty.cast(text) if self._origin.text else empty)

    def to_native(self) -> Any:
        """Return the same kind of frame as was given, with its types.

        A file or columns become pandas where it is installed, else polars. Whole numbers with
        missing values become ``Int64`` in pandas unless the frame given had another type.
        """
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
            return self._frame.with_columns(
                _in_polars(self._frame[name], dtypes[name]) for name in self.names if name in dtypes
            )
        arrow, compute = self._frame.to_arrow(), import_module("pyarrow.compute")
        columns = [_in_arrow(compute, arrow.column(n), dtypes.get(n)) for n in self.names]
        return import_module("pyarrow").table(columns, names=self._frame.columns)

    def _in_pandas(self, pandas: Any, name: str, dtype: Any) -> Any:
        """One column as a pandas series with a fresh index, of a type if its values fit."""
        values, mask = self.values(name), self.missing(name)
        if values.dtype.kind in "ib" and mask.any():
            whole = values.dtype.kind == "i"
            masked = pandas.arrays.IntegerArray if whole else pandas.arrays.BooleanArray
            plain = pandas.Series(masked(values.copy(), mask.copy()))
        elif values.dtype.kind == "O":
            plain = pandas.Series(values.tolist(), dtype=object if mask.all() else None)
        else:
            plain = pandas.Series(values.copy())
        if dtype is not None:
            with suppress(TypeError, ValueError, AttributeError):
                return _restored(pandas, plain, dtype)
        return plain

    @classmethod
    def empty(cls, types: Mapping[str, tuple[type, bool]], frame: Frame) -> Table:
        """Make a table without rows whose types are declared, not taken from a frame.

        Of each column: bool, int, float, str or datetime, and whether a value may be missing,
        which decides the type of whole numbers and booleans in pandas. `to_native` makes such a
        frame, also of tables that are made like this one.
        """
        schema = {name: _POLARS[python] for name, (python, _) in types.items()}
        return cls(pl.DataFrame(schema=schema), _Origin(frame, types=types))

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
                datetime64 or text, one per row.
            like: `to_native` returns the same kind of frame and types as this one's.
            categories: Each column's declared values: categorical types of `like` then list these.

        Raises:
            DataError: When lengths differ or values are of no usable type.
        """
        series = [_series_of(name, values, mask) for name, (values, mask) in columns.items()]
        if len(lengths := {len(one) for one in series}) > 1:
            raise DataError(f"columns have different lengths: {sorted(lengths)}")
        origin = like._origin if like else _Origin()
        if categories is not None:
            origin = replace(origin, dtypes=_with_declared(origin.dtypes, categories))
        return cls(_normal(series), origin)

    # What coding needs, vectorised here so that nothing else touches a dataframe library.

    def lookup(self, name: str, categories: Sequence[Any]) -> np.ndarray:
        """Return each value's position among distinct categories of one type, as int32.

        It is -1 where missing, -2 where not among them; SchemaError if the column cannot hold such.
        """
        series = self._series(name)
        absent = series.is_null()
        aligned = self._aligned(series, type(categories[0]))
        codes = aligned.replace_strict(
            pl.Series(list(categories), dtype=aligned.dtype),
            pl.Series(range(len(categories)), dtype=pl.Int32),
            default=-2,
            return_dtype=pl.Int32,
        )
        return np.where(absent.to_numpy(), np.int32(-1), codes.to_numpy())

    def integers(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as int64 and its mask of missing; SchemaError unless all are whole."""
        series = self._series(name)
        missing = series.is_null()
        if series.dtype not in _WHOLE:
            numbers = self._numeric(series, "whole numbers")
            missing = numbers.is_null()
            whole = numbers.is_null() | (numbers == numbers.round()) & (numbers.abs() < 2.0**62)
            if wrong := int((~whole).sum()):
                raise SchemaError(
                    f"column {name!r}: {wrong} rows hold no whole number; declare it continuous, "
                    "or round them"
                )
            series = numbers if series.dtype != pl.String else series.str.strip_chars()
            series = series.cast(pl.Int64, strict=False).fill_null(numbers.cast(pl.Int64))
        return series.fill_null(0).cast(pl.Int64).to_numpy(), missing.to_numpy()

    def floats(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as float64 and its mask of missing (0.0 there), or SchemaError."""
        series = self._series(name)
        numbers = self._numeric(series, "numbers")
        return numbers.fill_null(0.0).to_numpy(), numbers.is_null().to_numpy()

    def datetimes(self, name: str, pattern: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return one column as int64 microseconds since 1970 (UTC), and its mask of missing.

        Text is read by the pattern (``strptime`` codes), as ISO-8601 when None.

        Raises:
            SchemaError: When values are no datetimes, or text does not follow the format.
        """
        series = self._series(name)
        mask = series.is_null().to_numpy()
        if series.dtype == pl.String:
            series = _parsed(series, pattern)
            if wrong := int(series.is_null().sum()) - int(mask.sum()):
                raise SchemaError(
                    f"column {name!r}: {wrong} rows do not follow the datetime format "
                    f"{pattern or 'ISO-8601'!r}; correct the column's format in the schema"
                )
        elif series.dtype not in (_DATETIME, pl.Null):
            raise SchemaError(
                f"column {name!r} holds {self.kind(name)}, but the schema says datetime"
            )
        return series.cast(_DATETIME).cast(pl.Int64).fill_null(0).to_numpy(), mask

    def counts(self, name: str, kind: type | None = None) -> tuple[list[Any], list[int]]:
        """Return one column's distinct values, most frequent first (ties by value), and counts.

        With a kind, values are read as this type, as `lookup` reads them; those that it cannot
        hold are left out.

        Raises:
            SchemaError: When the column's type cannot hold such values.
        """
        series = self._series(name) if kind is None else self._aligned(self._series(name), kind)
        series = series.drop_nulls().rename("value")
        table = series.value_counts(name="count").sort("count", "value", descending=[True, False])
        return table["value"].to_list(), table["count"].to_list()

    def _series(self, name: str) -> pl.Series:
        if name not in self._frame.columns:
            raise DataError(f"the table has no column {name!r}; it has {', '.join(self.names)}")
        return self._frame[name]

    def _numeric(self, series: pl.Series, wanted: str) -> pl.Series:
        name, missing = series.name, series.null_count()
        if series.dtype == pl.String and self._origin.text:
            numbers = series.str.strip_chars().cast(pl.Float64, strict=False)
            wrong = numbers.null_count() - missing
            if wrong:
                raise SchemaError(
                    f"column {name!r}: {wrong} rows hold text, but the schema says {wanted}"
                )
            return numbers.fill_nan(None)
        if series.dtype not in _WHOLE and series.dtype not in (pl.Float64, pl.Null):
            raise SchemaError(
                f"column {name!r} holds {self.kind(name)}, but the schema says {wanted}"
            )
        return series.cast(pl.Float64)

    def _aligned(self, series: pl.Series, kind: type) -> pl.Series:
        target, found = _POLARS[kind], series.dtype
        whole = found in _WHOLE
        if found in (target, pl.Null) or (whole and kind in (int, float)):
            return series.cast(target)
        if found == pl.Float64 and kind is int:
            broken = (series != series.round()).fill_null(True)
            return series.cast(pl.Int64, strict=False).set(broken, None)
        if self._origin.text:
            if kind is bool and (found == pl.String or whole):
                return _flags(series.cast(pl.String))
            if found == pl.String:
                return series.str.strip_chars().cast(target, strict=False)
            if whole and kind is str:
                return series.cast(pl.String)
        wanted = {bool: "booleans", int: "whole numbers", float: "numbers", str: "text"}[kind]
        raise SchemaError(
            f"column {series.name!r} holds {self.kind(series.name)}, but the schema's categories "
            f"are {wanted}; write the categories in the column's type, or convert the column"
        )


def read(source: Any, *, columns: Sequence[str] | None = None) -> Table:
    """Read a table.

    Args:
        source: A path of a CSV or Parquet file, a pandas, polars or arrow frame, or a `Table`. In
            a CSV an empty field is missing; types are those that every value of a column fits.
        columns: Which columns to take, in this order; all when None.

    Returns:
        The table. Text stays text; a pandas index is dropped.

    Raises:
        DataError: When the file is missing, unreadable or no table, a column name repeats or is
            no text, or a table cannot hold a column's type.

    Example:
        >>> read(pl.DataFrame({"age": [30, None]})).missing("age").tolist()
        [False, True]
    """
    table = _read(source)
    return table if columns is None else table.select(columns)


def read_batches(
    path: str | os.PathLike[str], batch_rows: int, *, columns: Sequence[str] | None = None
) -> Iterator[Table]:
    """Read a CSV or Parquet file in pieces of some rows, in order, without holding it whole.

    Columns of a CSV stay text here, since no piece knows the types of the next; coding them by a
    schema reads the numbers.

    Raises:
        DataError: As `read`, or when ``batch_rows`` < 1.
    """
    if batch_rows < 1:
        raise DataError(f"batch_rows={batch_rows}: give 1 or more")
    return _batches(table_file(path), batch_rows, columns)


def _batches(file: Path, batch_rows: int, columns: Sequence[str] | None) -> Iterator[Table]:
    try:
        lazy, origin = _scanned(file)
        if columns is not None:
            lazy = lazy.select(list(columns))
        for frame in lazy.collect_batches(chunk_size=batch_rows, maintain_order=True, lazy=True):
            yield Table(_normal(_blank(frame) if origin.text else frame.get_columns()), origin)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None


def _scanned(file: Path) -> tuple[pl.LazyFrame, _Origin]:
    if file.suffix.lower() == ".parquet":
        return pl.scan_parquet(file, glob=False), _Origin()
    csv_header(file)
    return pl.scan_csv(file, infer_schema=False, glob=False), _Origin("csv")


def _read(source: Any) -> Table:
    if isinstance(source, Table):
        return source
    if isinstance(source, str | os.PathLike):
        return _read_file(table_file(source))
    if isinstance(source, pl.DataFrame):
        return Table(_normal(source.get_columns()), _Origin("polars", dict(source.schema)))
    package = type(source).__module__.partition(".")[0]
    if package == "pandas" and type(source).__name__ == "DataFrame":
        check_names(list(source.columns), "the frame")
        series = [_series_of(n, *_from_pandas(source[n])) for n in source.columns]
        return Table(_normal(series), _Origin("pandas", dict(source.dtypes)))
    if hasattr(source, "__arrow_c_stream__"):
        check_names(list(getattr(source, "column_names", ())), "the frame")
        kind: Literal["arrow", "polars"] = "arrow" if package == "pyarrow" else "polars"
        dtypes = {one.name: one.type for one in source.schema} if kind == "arrow" else {}
        return Table(_normal(pl.DataFrame(source).get_columns()), _Origin(kind, dtypes))
    raise DataError(
        f"cannot read a {type(source).__name__}; give a path (.csv, .parquet) or a pandas, polars "
        "or arrow frame"
    )


def _read_file(file: Path) -> Table:
    try:
        lazy, origin = _scanned(file)
        raw = lazy.collect()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None
    columns = map(_typed, _blank(raw)) if origin.text else raw.get_columns()
    return Table(_normal(columns), origin)


def table_file(path: str | os.PathLike[str]) -> Path:
    """Return a table's path; raises DataError unless it is a CSV or Parquet file that is there."""
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no file {str(file)!r}; check the path")
    if file.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"cannot read {file.name!r}: the name must end in .csv or .parquet")
    return file


def unreadable(file: Path, error: Exception) -> DataError:
    """Say why a file cannot be read, without the reader's own message, which quotes CSV lines."""
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
    """Raise DataError unless a CSV file's first line has distinct names, divided by commas."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        names = next(csv.reader(lines), [])
    if not names:
        raise DataError(f"{str(file)!r} is empty; it needs a first line of column names")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise DataError(f"{str(file)!r} has one column, {names[0]!r}; divide its fields by commas")
    check_names(names, repr(str(file)))


def check_names(names: Sequence[Any], where: str) -> None:
    """Raise DataError unless column names are text and distinct."""
    if twice := sorted({str(name) for name in names if list(names).count(name) > 1}):
        raise DataError(f"{where} has column names twice: {', '.join(twice)}; rename them")
    if odd := [name for name in names if not isinstance(name, str) or not name]:
        raise DataError(f"{where} has column names that are no text: {odd}; rename them")


def _blank(frame: pl.DataFrame) -> list[pl.Series]:
    """Make empty fields missing, quoted or not."""
    return frame.with_columns(pl.all().replace("", None)).get_columns()


def _typed(text: pl.Series) -> pl.Series:
    """Give a CSV column the narrowest type that every value fits and no text is lost by."""
    values = text.drop_nulls().str.strip_chars()
    if values.is_empty() or values.str.contains(r"^[+-]?0\d|^\+").any():
        return text
    for dtype in (pl.Int64, pl.Float64):
        if values.cast(dtype, strict=False).null_count() == 0:
            return text.str.strip_chars().cast(dtype)
    flags = _flags(text)
    return flags if flags.null_count() == text.null_count() else text


def _flags(text: pl.Series) -> pl.Series:
    lower = text.str.strip_chars().str.to_lowercase()
    flags = {"true": True, "false": False, "1": True, "0": False}
    return lower.replace_strict(flags, default=None, return_dtype=pl.Boolean)


def _normal(columns: Iterable[pl.Series]) -> pl.DataFrame:
    return pl.DataFrame([_normal_series(column) for column in columns])


def _normal_series(series: pl.Series) -> pl.Series:
    dtype = series.dtype
    if dtype == pl.Float64 or dtype == pl.Float32 or isinstance(dtype, pl.Decimal):
        return series.cast(pl.Float64).fill_nan(None)
    if dtype in _WHOLE or dtype in (pl.String, pl.Boolean, pl.Null) or dtype == _DATETIME:
        return series
    if isinstance(dtype, pl.Enum | pl.Categorical):
        return series.cast(pl.String)
    if isinstance(dtype, pl.Datetime):
        utc = series.dt.convert_time_zone("UTC") if dtype.time_zone else series
        return utc.dt.replace_time_zone(None).cast(_DATETIME)
    if dtype == pl.Date:
        return series.cast(_DATETIME)
    if dtype.is_integer():
        small = series.cast(pl.Int64, strict=False)
        if small.null_count() == series.null_count():
            return small
    raise DataError(
        f"column {series.name!r} has type {dtype}, which a table cannot hold; convert it to text, "
        "numbers, booleans or datetimes, or drop it"
    )


def _series_of(name: str, values: Any, mask: np.ndarray | None) -> pl.Series:
    array = np.asarray(values)
    if array.dtype.kind == "O" or array.dtype.kind in "US":
        items = array.tolist()
        if mask is not None:
            items = [None if gone else item for item, gone in zip(items, mask, strict=True)]
        try:
            return pl.Series(name, items, strict=True)
        except (TypeError, pl.exceptions.PolarsError):
            raise DataError(f"column {name!r} mixes types; convert it to one type") from None
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
    elif array.dtype.kind not in "iufb":
        raise DataError(f"column {name!r} has type {array.dtype}, which a table cannot hold")
    series = pl.Series(name, array)
    return series if mask is None else series.set(pl.Series(np.asarray(mask, dtype=bool)), None)


def _parsed(series: pl.Series, pattern: str | None) -> pl.Series:
    text = series.str.strip_chars()
    parsed = pl.Series(series.name, [None] * len(series), dtype=_DATETIME)
    for one in _ISO if pattern is None else (pattern.replace(".%f", "%.f"),):
        try:
            found = text.str.to_datetime(one, strict=False, time_unit="us", exact=True)
        except pl.exceptions.PolarsError:
            raise SchemaError(
                f"column {series.name!r}: {pattern!r} is not a datetime format; use strptime codes"
            ) from None
        parsed = parsed.fill_null(found)
        if parsed.null_count() == series.null_count():
            break
    return parsed


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
    if kind in _PLAIN:
        filled = series.fillna(kind != "b" and 0) if mask.any() else series
        return filled.to_numpy(dtype=_PLAIN[kind]), mask
    return series.astype(object).to_numpy(), mask


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


def _in_polars(series: pl.Series, dtype: pl.DataType) -> pl.Series:
    try:
        if isinstance(dtype, pl.Datetime) and dtype.time_zone and series.dtype == _DATETIME:
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


def write(table: Any, path: str | os.PathLike[str]) -> None:
    """Write a table or a frame as CSV or Parquet, whole or not at all, in place of an older file.

    Raises:
        DataError: When the folder is missing or the name ends otherwise.
    """
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


def parquet_of(table: Table) -> bytes:
    """A table as the bytes of a Parquet file; `table_in` reads them."""
    file = BytesIO()
    table._frame.write_parquet(file)
    return file.getvalue()


def table_in(data: bytes) -> Table:
    """The table in the bytes of a Parquet file."""
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
        whole = replace(whole, _frame=frame, _origin=replace(mine, dtypes=dtypes, types=types))
    return whole


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
