"""Columns of pandas and arrow frames as arrays, and back; `read` hands the libraries in."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["arrow_column", "declared", "from_pandas", "named", "to_pandas"]

_PLAIN = {"i": np.int64, "u": np.uint64, "f": np.float64, "b": np.bool_}
# Of each type: pandas without missing values, with them, and arrow.
_NAMED: dict[type, tuple[Any, Any, str]] = {
    bool: ("bool", "boolean", "bool"),
    int: ("int64", "Int64", "int64"),
    float: ("float64", "float64", "double"),
    str: (str, str, "string"),
    datetime: ("datetime64[us]", "datetime64[us]", "timestamp[us]"),
}


def named(kind: str, types: Mapping[str, tuple[type, bool]]) -> dict[str, Any]:
    """Return the types of pandas or arrow columns by what is declared of them.

    Args:
        kind: "pandas" or "arrow"; nothing is returned for any other.
        types: Each column's type, and whether a value may be missing.

    Example:
        >>> named("pandas", {"age": (int, True), "old": (bool, False)})
        {'age': 'Int64', 'old': 'bool'}
    """
    if kind == "pandas":
        return {name: _NAMED[python][missing] for name, (python, missing) in types.items()}
    return {name: _NAMED[p][2] for name, (p, _) in types.items()} if kind == "arrow" else {}


def from_pandas(frame: Any) -> dict[str, tuple[Any, NDArray[np.bool_]]]:
    """Return each column's values and which are missing.

    Args:
        frame: A pandas frame with distinct column names.

    Returns:
        Name to (values, mask): int64, uint64, float64, bool, datetime64[us] (UTC) or object.
    """
    return {name: _column(frame[name]) for name in frame.columns}


def _column(series: Any) -> tuple[Any, NDArray[np.bool_]]:
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


def to_pandas(
    pandas: Any,
    columns: Mapping[str, tuple[NDArray[Any], NDArray[np.bool_]]],
    dtypes: Mapping[str, Any],
) -> Any:
    """Return a pandas frame.

    Args:
        pandas: The pandas module.
        columns: Name to (values, mask of missing).
        dtypes: The types columns had before, restored where the values fit.

    Returns:
        A frame with a fresh index.
    """
    made = {name: _plain(pandas, values, mask) for name, (values, mask) in columns.items()}
    return pandas.DataFrame(
        {name: _restored(pandas, one, dtypes.get(name)) for name, one in made.items()}
    )


def _plain(pandas: Any, values: NDArray[Any], mask: NDArray[np.bool_]) -> Any:
    kind = values.dtype.kind
    if kind in "ib" and mask.any():
        masked = pandas.arrays.IntegerArray if kind == "i" else pandas.arrays.BooleanArray
        return pandas.Series(masked(values.copy(), mask.copy()))
    if kind == "O":
        return pandas.Series(values.tolist(), dtype=object if mask.all() else None)
    return pandas.Series(values.copy())


def _restored(pandas: Any, plain: Any, dtype: Any) -> Any:
    if dtype is None:
        return plain
    try:
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
    except (TypeError, ValueError, AttributeError):
        return plain


def declared(
    dtypes: Mapping[str, Any], categories: Mapping[str, Sequence[Any]] | None
) -> Mapping[str, Any]:
    """Return the types of a frame of which none lists a value that was found in rows.

    Args:
        dtypes: By column; types of any library.
        categories: Each column's public values, none for a column that is not categorical; None
            leaves all types as they are.

    Returns:
        The same, but a categorical type or enum lists the public values in their order and no
        others, and is left out where there are none.
    """
    if categories is None:
        return dtypes
    found = dict(dtypes)
    for name, dtype in dtypes.items():
        values = list(categories.get(name, ()))
        if str(dtype) == "category":
            found[name] = type(dtype)(values, ordered=dtype.ordered)
        elif type(dtype).__name__ == "Enum":
            found[name] = type(dtype)(values)
        else:
            continue
        if not values:
            del found[name]
    return found


def arrow_column(compute: Any, column: Any, dtype: Any) -> Any:
    """Return an arrow column with the type it had before, where its values fit.

    Args:
        compute: The ``pyarrow.compute`` module.
        column: A chunked array; moments are UTC without a time zone.
        dtype: The type to restore, or None.

    Returns:
        The column, converted if it could be.
    """
    if dtype is None:
        return column
    try:
        if getattr(dtype, "tz", None) is not None:
            return compute.assume_timezone(column, "UTC").cast(dtype)
        return column.cast(dtype)
    except (ValueError, NotImplementedError):
        return column
