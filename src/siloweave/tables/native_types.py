"""Types of values: the few that a table has, and those of pandas, arrow and polars.

Frames of other libraries are converted to text, whole numbers, numbers, booleans, datetimes in UTC
and durations, and back to the types that they had, if the values fit. Pandas and pyarrow are
imported only for frames of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AnySet
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from enum import Enum
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from siloweave.errors import DataError
from siloweave.tables.nested import NESTED_ADVICE
from siloweave.tables.parsing import (
    DATETIME,
    DURATION,
    UNITS,
    WHOLE,
    in_utc,
    texts_of_mixed,
)

# The types that a table has


POLARS_TYPES: dict[type, Any] = {
    bool: pl.Boolean,
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
    datetime: DATETIME,
    timedelta: DURATION,
}
"""The type in which a table holds the values of each Python type."""
# What holds several values. Texts and bytes are sequences, too, and are one value each.
_NESTED = (Mapping, Sequence, AnySet, np.ndarray)
_SINGLE = (str, bytes, bytearray)


def first_nested(values: Sequence[Any]) -> int | None:
    """Find the first of some objects that holds several values; None if each holds one.

    Example:
        >>> first_nested([1, "a", (1, 2), {"b": 3}])
        2
    """
    types = set(map(type, values))
    nested_types = {
        object_type
        for object_type in types
        if issubclass(object_type, _NESTED) and not issubclass(object_type, _SINGLE)
    }
    if not nested_types:
        return None
    return next(row for row, value in enumerate(values) if type(value) in nested_types)


def normal_frame(columns: Iterable[pl.Series]) -> pl.DataFrame:
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
        # Types of 64 and 128 bits hold more than int64. Such long numbers are those of identifiers,
        # which a CSV has as text, too.
        narrowed = series.cast(pl.Int64, strict=False)
        has_room = narrowed.null_count() == series.null_count()
        return narrowed if has_room else series.cast(pl.String)
    advice = "convert it to text, numbers, booleans or datetimes, or drop it"
    if dtype.is_nested():
        advice = NESTED_ADVICE
    raise DataError(
        f"column {series.name!r} has type {dtype}, which a table cannot hold; {advice}"
    )


def series_of(
    name: str, values: Any, mask: np.ndarray | None, *, mixed: bool = False
) -> pl.Series:
    """Build a column from an array or a series; mixed types become text where that is allowed."""
    if isinstance(values, pl.Series):
        return values.alias(name)
    array = np.asarray(values)
    if array.dtype.kind in "OUS":
        return _series_of_objects(name, array, mask, mixed=mixed)

    # NumPy's letters: M and m are datetimes and durations, O, U and S objects and texts.
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
    """Build a column from texts or other objects, see `series_of`."""
    items = array.tolist()
    if mask is not None:
        for place, is_missing in zip(range(len(items)), mask, strict=True):
            if is_missing:
                items[place] = None
    if mixed:
        items = list(map(_plain_value, items))
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


# Objects of these very types are values of a table as they are.
_PLAIN = {type(None), bool, int, float, str, date, datetime}
# 64 bits hold more microseconds than so many days have.
_LONGEST = timedelta(days=99_999_999)


def _plain_value(value: Any) -> Any:
    """Return a cell's object as one of Python's few types; by itself, whatever stands beside it.

    What a table has no type for is its text.

    Example:
        >>> _plain_value(np.float32(0.1)), _plain_value((1, 2))
        (0.1, '(1, 2)')
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return _plain_value(value.value)
    if isinstance(value, np.bool_):
        return bool(value)
    # Before whole numbers, among which NumPy counts its durations.
    if isinstance(value, np.timedelta64):
        return str(value)
    if isinstance(value, int | np.integer):
        return int(value)
    # By its digits, as in a column of such numbers: 0.1 and not 0.10000000149.
    if isinstance(value, np.float32 | np.float16):
        return float(str(value))
    if isinstance(value, Decimal) and value.is_nan():
        return None
    if isinstance(value, float | np.floating | Decimal):
        return float(value)
    # Subclasses, such as those of pandas, may write themselves in other ways.
    if isinstance(value, timedelta):
        plain = timedelta(value.days, value.seconds, value.microseconds)
        return plain if abs(plain) <= _LONGEST else str(plain)
    if isinstance(value, datetime):
        return value
    return _text_of_object(value)


def _text_of_object(value: Any) -> str:
    """Return an object as text; bytes, as pandas reads texts of SAS, are UTF-8."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def plain_types(types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types that a file declares for columns, as far as a table can hold them."""
    plain_types: dict[str, Any] = {}
    for name, dtype in types.items():
        if dtype in WHOLE or dtype in (pl.Float64, pl.Boolean, pl.Null):
            plain_types[name] = dtype
        elif isinstance(dtype, pl.Datetime | pl.Date):
            plain_types[name] = DATETIME
    return plain_types


def numpy_values(series: pl.Series) -> np.ndarray:
    """Return a table's column as an array; a missing value is 0, NaN, False, NaT or None."""
    if series.dtype in WHOLE:
        return series.fill_null(0).cast(pl.Int64).to_numpy()
    if series.dtype == pl.Boolean:
        return series.fill_null(False).to_numpy()
    if series.dtype in (pl.Float64, DATETIME):
        return series.to_numpy()
    return _objects_of(series)


def _objects_of(series: pl.Series) -> np.ndarray:
    """Convert a column of text to an array of objects, None for a missing one.

    Equal texts are one object where they are few, which saves most of the memory.
    """
    distinct_texts = series.drop_nulls().unique().to_list()
    has_few_texts = len(distinct_texts) * 8 <= len(series)
    if not distinct_texts or not has_few_texts:
        return np.array(series.to_list(), dtype=object)

    objects = np.array([*distinct_texts, None], dtype=object)
    places = places_among(series, distinct_texts).to_numpy()
    # A missing text has no place: it becomes the None behind the last one.
    object_places = np.where(places < 0, len(distinct_texts), places)
    column: np.ndarray = objects[object_places]
    return column


def places_among(labels: pl.Series, categories: Sequence[Any]) -> pl.Series:
    """Find each label's position among categories, as int32; -2 for an unknown one."""
    return labels.replace_strict(
        pl.Series(list(categories), dtype=labels.dtype),
        pl.Series(range(len(categories)), dtype=pl.Int32),
        default=-2,
        return_dtype=pl.Int32,
    )


# Columns of pandas


# By NumPy's letter for a kind of types: the type of that kind that holds a column of pandas.
_NUMPY_TYPES = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}


@dataclass(frozen=True)
class ObjectsOf:
    """The type of a pandas column that holds objects of one of Python's classes.

    Attributes:
        python_type: Their class: date, time or Decimal.
        decimals: The decimals that every decimal number is written with; None if they differ.
    """

    python_type: type
    decimals: int | None = None

    def __str__(self) -> str:
        """Return the type that pandas has for such a column."""
        return "object"


# Classes of objects that a table has no type for, and that come back as they were.
_OBJECTS = (date, time, Decimal)


def objects_of(values: Any) -> ObjectsOf | None:
    """Return the class of some objects, if all are dates, times of day or decimal numbers.

    Example:
        >>> objects_of([date(2024, 1, 31), date(2024, 2, 1)]).python_type.__name__
        'date'
    """
    python_type = type(values[0]) if len(values) else None
    # A datetime is a date, too, and pandas has a type for it.
    if python_type not in _OBJECTS or any(type(v) is not python_type for v in values):
        return None
    if python_type is not Decimal:
        return ObjectsOf(python_type)
    exponents = {value.as_tuple().exponent for value in values}
    exponent = exponents.pop()
    has_places = not exponents and isinstance(exponent, int) and exponent <= 0
    return ObjectsOf(Decimal, -exponent if has_places else None)


def _as_objects(column: Any, dtype: ObjectsOf) -> Any:
    """Convert drawn values of a pandas column to the objects of one class that it had."""

    def as_object(value: Any) -> Any:
        if dtype.python_type is date:
            return value.date()
        if dtype.python_type is time:
            return time.fromisoformat(value)
        number = Decimal(str(value))
        if dtype.decimals is None:
            return Decimal(int(value)) if number == int(value) else number
        return number.quantize(Decimal(1).scaleb(-dtype.decimals))

    items = [as_object(value) for value in column.dropna()]
    objects = np.full(len(column), None, dtype=object)
    objects[column.notna().to_numpy()] = items
    return type(column)(objects, dtype=object)


def pandas_values(series: Any) -> tuple[Any, NDArray[np.bool_]]:
    """Return a pandas column's values, and which are missing.

    Values are int64, uint64, float64, bool, datetime64[us] in UTC, timedelta64[us] or objects.

    Raises:
        DataError: They are complex numbers.
    """
    if str(series.dtype) == "category":
        series = series.astype(object).infer_objects()
    kind = getattr(series.dtype, "kind", "O")
    if kind == "c":
        raise DataError(
            f"column {series.name!r} has type {series.dtype}, which a table cannot hold; make one "
            "column of the real parts and one of the imaginary parts"
        )
    try:
        is_missing = series.isna()
    except InvalidOperation:
        # A signalling NaN of Python's decimals, which pandas compares. The others stay the objects
        # that they are: pandas would make floats of whole numbers beside a missing value.
        values = [_without_signal(value) for value in series]
        series = type(series)(values, dtype=object)
        is_missing = series.isna()
    mask: NDArray[np.bool_] = is_missing.to_numpy(dtype=bool)

    # NumPy's letters, see `series_of`.
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


def _without_signal(value: Any) -> Any:
    """Return a value, or None for a NaN of Python's decimals."""
    if isinstance(value, Decimal) and value.is_nan():
        return None
    return value


def pandas_series(series: pl.Series, dtype: Any) -> Any:
    """Return a table's column as a pandas series with a fresh index, in a type if its values fit.

    Without a type it is the one that pandas would choose.
    """
    pandas = import_module("pandas")
    if series.dtype == DURATION:
        column = pandas.Series(series.to_numpy())
    elif series.dtype == pl.String:
        column = _texts_in_pandas(pandas, series)
    else:
        is_missing = series.is_null().to_numpy()
        column = pandas.Series(_masked_array(pandas, numpy_values(series), is_missing))

    if dtype is not None:
        # Generated values may not fit the type that the real ones had.
        with suppress(TypeError, ValueError, AttributeError, ArithmeticError):
            return _restored_column(pandas, column, dtype)
    return column


def _texts_in_pandas(pandas: Any, texts: pl.Series) -> Any:
    """Build a pandas series of texts, in the type that pandas itself would choose."""
    if texts.null_count() == len(texts):
        return pandas.Series([None] * len(texts), dtype=object)
    text_type = pandas.Series([""]).dtype
    if getattr(text_type, "storage", "") != "pyarrow":
        return pandas.Series(_objects_of(texts).tolist())
    # Arrow's text goes over as it is. A list of objects would take several times the memory.
    return pandas.Series(pandas.array(texts.to_arrow(), dtype=text_type))


def _masked_array(pandas: Any, values: np.ndarray, is_missing: np.ndarray) -> Any:
    """Build an array for pandas, in a type with room for missing values if there are any."""
    has_room = values.dtype.kind not in "ib"
    if has_room or not is_missing.any():
        return values.copy()
    if values.dtype.kind == "i":
        return pandas.arrays.IntegerArray(values.copy(), is_missing.copy())
    return pandas.arrays.BooleanArray(values.copy(), is_missing.copy())


def _restored_column(pandas: Any, column: Any, dtype: Any) -> Any:
    """Convert a pandas series to the type it had before; raises if its values do not fit."""
    if isinstance(dtype, ObjectsOf):
        return _as_objects(column, dtype)
    if str(dtype) == "category":
        # No value was declared: those that were drawn are of another type.
        if not len(dtype.categories) and column.notna().any():
            return column
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


# Frames of polars and arrow


def without_index(source: Any) -> Any:
    """Return a frame of pandas with numbers from 0 as row labels; any other source as it is.

    For whoever returns an answer for each row, and no drawn rows that would lack the labels.
    """
    if not _is_pandas(source):
        return source
    return source.reset_index(drop=True)


def with_index_of(frame: Any, source: Any) -> Any:
    """Return a frame with the row labels of its source, where both are frames of pandas.

    Pandas matches rows by their labels, so that an answer with other labels would go to other rows.
    """
    # A frame that has labels but no column is read as one without rows.
    if not _is_pandas(frame) or not _is_pandas(source) or len(frame) != len(source):
        return frame
    return frame.set_axis(source.index)


def _is_pandas(frame: Any) -> bool:
    """Return whether a value is a frame of pandas, which may not be installed."""
    package = type(frame).__module__.partition(".")[0]
    return package == "pandas" and type(frame).__name__ == "DataFrame"


def polars_frame(frame: pl.DataFrame, dtypes: Mapping[str, Any]) -> pl.DataFrame:
    """Return a table's rows as a frame of polars, columns in certain types if their values fit."""
    columns = []
    for name in frame.columns:
        if name in dtypes:
            columns.append(_in_polars(frame[name], dtypes[name]))
    return frame.with_columns(columns)


def _in_polars(series: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Convert a polars series to a type if its values fit; else leave it as it is."""
    zone = getattr(dtype, "time_zone", None)
    try:
        if zone and series.dtype == DATETIME:
            utc = series.dt.replace_time_zone("UTC")
            return utc.dt.convert_time_zone(zone).cast(dtype)
        if dtype == pl.Time and series.dtype == pl.String:
            return series.str.to_time("%H:%M:%S%.f")
        # An enum without values holds no drawn one.
        lists_no_value = isinstance(dtype, pl.Enum) and not len(dtype.categories)
        if lists_no_value and series.count():
            return series
        return series.cast(dtype)
    except pl.exceptions.PolarsError:
        return series


def arrow_table(frame: pl.DataFrame, dtypes: Mapping[str, Any]) -> Any:
    """Return a table's rows as a table of arrow, columns in certain types if their values fit."""
    pyarrow = import_module("pyarrow")
    compute = import_module("pyarrow.compute")
    table = frame.to_arrow()
    columns = []
    for name in frame.columns:
        column = table.column(name)
        columns.append(_in_arrow(compute, column, dtypes.get(name)))
    return pyarrow.table(columns, names=frame.columns)


def _in_arrow(compute: Any, column: Any, dtype: Any) -> Any:
    """Convert an arrow column to a type if its values fit; datetimes become UTC without a zone."""
    if dtype is None:
        return column
    try:
        if getattr(dtype, "tz", None) is not None:
            return compute.assume_timezone(column, "UTC").cast(dtype)
        return column.cast(dtype)
    except (ValueError, NotImplementedError):
        return column


# Types that are declared


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


def declared_type(kind: str, python_type: type, *, may_miss: bool) -> Any:
    """Return the type of a kind of frame that holds values of a Python type.

    Args:
        kind: "pandas", "arrow" or "polars".
        python_type: bool, int, float, str, datetime or timedelta.
        may_miss: Whether a value may be missing, which pandas has other types for.
    """
    native_types = _NATIVE_TYPES[python_type]
    if kind == "polars":
        return POLARS_TYPES[python_type]
    if kind == "arrow":
        return native_types.arrow
    return native_types.nullable_pandas if may_miss else native_types.pandas


def with_declared(
    dtypes: Mapping[str, Any], categories: Mapping[str, Sequence[Any]]
) -> Mapping[str, Any]:
    """Replace in a frame's types the values that were found in rows by declared ones.

    A categorical type or enum lists the column's public values in their order and no others. One
    that lists none is for a column without any value, see `pandas_series` and `polars_frame`.
    """
    declared_types = dict(dtypes)
    for name, dtype in dtypes.items():
        values = list(categories.get(name, ()))
        is_pandas = str(dtype) == "category"
        is_enum = type(dtype).__name__ == "Enum"
        if not is_pandas and not is_enum:
            continue
        if is_pandas:
            declared_types[name] = type(dtype)(values, ordered=dtype.ordered)
        else:
            declared_types[name] = type(dtype)(values)
    return declared_types


# Types by their names, as a saved fit has them


# Before the name of the class of a pandas column's objects.
_OBJECTS_OF = "objects of "
_ORDERED = "ordered category"


def type_name(dtype: Any) -> str:
    """Return the name by which `named_type` finds a type of a frame again.

    Example:
        >>> type_name(ObjectsOf(Decimal, 2)), type_name(np.dtype("int8"))
        ('objects of Decimal, 2', 'int8')
    """
    if isinstance(dtype, ObjectsOf):
        decimals = "" if dtype.decimals is None else f", {dtype.decimals}"
        return f"{_OBJECTS_OF}{dtype.python_type.__name__}{decimals}"
    if str(dtype) == "category" and dtype.ordered:
        return _ORDERED
    return str(dtype)


def named_type(kind: str, name: str) -> Any:
    """Return the type of a kind of frame that has a name, see `type_name`; None if it is unknown.

    Types that list values are found without them: a schema has these.

    Example:
        >>> named_type("pandas", "objects of Decimal, 2")
        ObjectsOf(python_type=<class 'decimal.Decimal'>, decimals=2)
    """
    finders = {"pandas": _pandas_type, "polars": _polars_type, "arrow": _arrow_type}
    with suppress(ImportError):
        return finders[kind](name) if kind in finders else None
    return None


def _pandas_type(name: str) -> Any:
    """Return the type of pandas that has a name, see `named_type`."""
    for python_type in _OBJECTS:
        prefix = _OBJECTS_OF + python_type.__name__
        if name == prefix:
            return ObjectsOf(python_type)
        decimals = name.removeprefix(f"{prefix}, ")
        if decimals != name and decimals.isdecimal():
            return ObjectsOf(python_type, int(decimals))
    pandas = import_module("pandas")
    if name in ("category", _ORDERED):
        return pandas.CategoricalDtype(ordered=name == _ORDERED)
    with suppress(TypeError, ValueError):
        return pandas.api.types.pandas_dtype(name)
    return None


def _polars_type(name: str) -> Any:
    """Return the type of polars that has a name, see `named_type`."""
    if name.startswith("Enum("):
        return pl.Enum([])
    dtype = getattr(pl, name, None)
    is_type = isinstance(dtype, type) and issubclass(dtype, pl.DataType)
    return dtype if is_type else None


def _arrow_type(name: str) -> Any:
    """Return the type of arrow that has a name, see `named_type`."""
    with suppress(ValueError):
        return import_module("pyarrow").type_for_alias(name)
    return None


# Time zones


def zones_of(types: Mapping[str, Any]) -> dict[str, str]:
    """Return the time zones of columns of datetimes that have one."""
    zones = {}
    for name, dtype in types.items():
        zone = getattr(dtype, "time_zone", None)
        if zone:
            zones[name] = zone
    return zones


def datetime_type(kind: str, zone: str) -> Any:
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


def time_form(times: pl.Series, *, has_zone: bool = False) -> str:
    """Return the codes of polars for ISO-8601 text of datetimes, as short as all of them allow.

    They are dates where no datetime has a time of day (an offset needs one), and have fractions
    where one has a fraction of a second.

    Example:
        >>> time_form(pl.Series([datetime(2024, 1, 31)]))
        '%Y-%m-%d'
    """
    micros = times.cast(DATETIME).cast(pl.Int64)
    if (micros % UNITS["seconds"] != 0).any():
        return "%Y-%m-%dT%H:%M:%S%.6f"
    if has_zone or (micros % UNITS["days"] != 0).any():
        return "%Y-%m-%dT%H:%M:%S"
    return "%Y-%m-%d"


def in_zone(series: pl.Series, zone: str) -> pl.Series:
    """Write datetimes of UTC as ISO-8601 text in a time zone, each with its offset."""
    form = time_form(series, has_zone=True)
    offset = _offset(zone)
    # A machine may have no list of time zones; an offset needs none.
    if offset is not None:
        shift = offset.utcoffset(None)
        return (series + shift).dt.strftime(form) + zone
    utc = series.dt.replace_time_zone("UTC")
    zoned = utc.dt.convert_time_zone(zone)
    return zoned.dt.strftime(f"{form}%:z")
