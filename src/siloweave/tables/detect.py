"""A proposed schema from data: every fact that came from rows says so."""

from datetime import datetime
from typing import Any

import numpy as np

from siloweave.errors import DataError, SchemaError
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Column, Kind

__all__ = ["describe", "detect"]

_OTHER = "__other__"
_PROBE = 50  # rows
_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f")


def detect(source: object, max_categories: int) -> tuple[Column, ...]:
    """Propose columns from data; see `Schema.detect`."""
    table = read(source)
    if max_categories < 2:
        raise SchemaError(f"max_categories={max_categories}: give 2 or more")
    if table.num_rows == 0 or not table.names:
        raise DataError("the table is empty; detecting a schema needs rows and columns")
    return tuple(describe(table, name, max_categories=max_categories) for name in table.names)


def describe(
    table: Table,
    name: str,
    *,
    kind: Kind | None = None,
    pattern: str | None = None,
    max_categories: int = 256,
) -> Column:
    """Describe one column from its values.

    Args:
        table: The rows.
        name: The column.
        kind: What the column is known to be; proposed from the values when None.
        pattern: How a datetime column is written as text; proposed when None.
        max_categories: Text with more values gets a category for the rest.

    Returns:
        The column; ``from_data`` names what was taken from values.

    Raises:
        SchemaError: When no value is there to describe, or values do not fit ``kind``.
    """
    mask = table.missing(name)
    if mask.all() and kind != "id":
        raise SchemaError(
            f"column {name!r} has no value in any row; drop it, or declare it by hand with "
            "missing=True"
        )
    if kind is None:
        kind, pattern = _kind(table, name, mask)
    some = bool(mask.any())
    if kind == "id":
        return Column(name, "id", from_data=("kind",))
    if kind == "boolean":
        return Column(name, "boolean", missing=some, from_data=("kind", "missing"))
    if kind == "categorical":
        categories, other = _categories(table, name, max_categories)
        learned = ("kind", "categories", "missing")
        return Column(name, kind, categories, missing=some, other=other, from_data=learned)
    low, high = _bounds(table, name, kind, pattern)
    facts = ("kind", "low", "high", "missing")
    return Column(name, kind, (), low, high, some, format=pattern, from_data=facts)


def _kind(table: Table, name: str, mask: np.ndarray) -> tuple[Kind, str | None]:
    found = table.kind(name)
    if table.levels(name) is not None:
        return "categorical", None
    if found == "booleans":
        return "boolean", None
    if found == "moments":
        return "datetime", None
    if found == "whole numbers":
        return "integer", None
    if found == "numbers":
        # A pandas column of whole numbers with a gap arrives as floats.
        values = table.values(name)[~mask]
        whole = mask.any() and bool((values == np.round(values)).all()) and _small(values)
        return ("integer" if whole else "continuous"), None
    for form in _FORMATS:
        if _fits(table, name, form):
            return "datetime", form
    distinct, _ = table.counts(name)
    if table.num_rows > 1 and len(distinct) == table.num_rows:
        return "id", None
    return "categorical", None


def _small(values: np.ndarray) -> bool:
    return bool((np.abs(values) < 2.0**53).all())


def _fits(table: Table, name: str, form: str) -> bool:
    first = table.select([name]).take(range(min(table.num_rows, _PROBE)))
    try:
        first.moments(name, form)  # most text is refused here, at no cost
        table.moments(name, form)
    except SchemaError:
        return False
    return True


def _categories(table: Table, name: str, limit: int) -> tuple[tuple[Any, ...], Any]:
    levels = table.levels(name)
    if levels and len(levels) <= limit:
        return levels, None
    distinct, _ = table.counts(name)
    if len(distinct) <= limit or not isinstance(distinct[0], str):
        return tuple(sorted(distinct)), None
    kept = sorted(value for value in distinct[: limit - 1] if value != _OTHER)
    return (*kept, _OTHER), _OTHER


def _bounds(table: Table, name: str, kind: Kind, pattern: str | None) -> tuple[Any, Any]:
    if kind == "continuous":
        values, mask = table.floats(name)
    elif kind == "integer":
        values, mask = table.integers(name)
    else:
        values, mask = table.moments(name, pattern)
    low, high = values[~mask].min().item(), values[~mask].max().item()
    if kind == "continuous" and not (abs(low) < np.inf and abs(high) < np.inf):
        raise SchemaError(f"column {name!r} holds infinite numbers; replace them or drop the rows")
    if kind != "datetime":
        return low, high
    first, last = np.array([low, high]).astype("datetime64[us]").tolist()
    step = values[~mask]
    if not (step % 86_400_000_000).any():
        return first.date().isoformat(), last.date().isoformat()
    return _iso(first, step), _iso(last, step)


def _iso(moment: datetime, steps: np.ndarray) -> str:
    whole = not (steps % 1_000_000).any()
    return moment.isoformat(timespec="seconds" if whole else "microseconds")
