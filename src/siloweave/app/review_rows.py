"""What an owner's rows hold of a column under review: for pictures, and beside bounds.

**Guarantee**: none: numbers of cells are counted exactly, and nobody paid for them. They are shown
on the owner's machine alone, and nothing here is refused or written because of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.tables.bins import is_date
from siloweave.tables.cells import without_errors_at_bounds
from siloweave.tables.column import Column
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table


class ColumnValues(NamedTuple):
    """A column's values in a table.

    Attributes:
        present: Those that are there: numbers, datetimes, or whatever else the table holds.
        missing_share: The share of all cells that hold none.
    """

    present: NDArray[Any]
    missing_share: float

    @property
    def have_order(self) -> bool:
        """Whether they are numbers or datetimes, of which one is the smallest."""
        return self.present.dtype.kind in "iufM"


def values_of(column: Column, table: Table) -> ColumnValues:
    """Return a column's values, read by the form that it declares where they are texts.

    Texts of which none is in that form, and categories, stay texts.
    """
    cells = table.blanked(column.name, column.missing_values)
    values = cells.values(column.name)
    is_missing = cells.missing(column.name)
    if values.dtype == object and not column.is_choice:
        # In a form such as "1.234,5 €" or 31.12.2020.
        with suppress(InputError):
            if column.is_datetime:
                converted = cells.times(column.name, column.format)
            else:
                converted = cells.numbers(column.name, column.format)
            if converted.null_count() < len(converted):
                is_missing = converted.is_null().to_numpy()
                values = converted.to_numpy()

    present = values[~is_missing]
    missing_share = float(is_missing.mean()) if len(is_missing) else 0.0
    if present.dtype.kind == "f":
        present = present[np.isfinite(present)]
    return ColumnValues(present, missing_share)


def beyond_bounds(schema: Schema, table: Table) -> tuple[str, ...]:
    """Describe, in a sentence each, the columns with cells beyond their bounds.

    Example:
        >>> import polars
        >>> table = Table(polars.DataFrame({"loans": [3, 25, 126]}))
        >>> beyond_bounds(Schema((Column("loans", "integer", low=0, high=20),)), table)
        ('2 of 3 cells of loans are above 20',)
    """
    sentences: list[str] = []
    for column in schema.columns:
        if column.name in table.names and column.kind in (
            "integer",
            "continuous",
            "datetime",
        ):
            sentences += _beyond(column, table)
    return tuple(sentences)


def _beyond(column: Column, table: Table) -> Iterator[str]:
    """Yield how many cells of a column are below its bounds, and above them."""
    values = values_of(column, table)
    present = values.present
    if not values.have_order or (present.dtype.kind == "M") != column.is_datetime:
        return
    if column.is_continuous:
        present = without_errors_at_bounds(column, present)
    for side, bound in (("below", column.low), ("above", column.high)):
        if bound is None:
            continue
        if side == "below":
            is_beyond = present < _number(bound, present)
        elif column.is_datetime and is_date(bound):
            # A bound that is a date includes that whole day.
            is_beyond = present >= _number(bound, present) + np.timedelta64(1, "D")
        else:
            is_beyond = present > _number(bound, present)
        count = int(is_beyond.sum())
        if count:
            verb = "is" if count == 1 else "are"
            yield f"{count:,} of {table.num_rows:,} cells of {column.name} {verb} {side} {bound}"


def _number(bound: object, values: NDArray[Any]) -> Any:
    """Return a bound as values of its column are compared with it."""
    return np.datetime64(str(bound)) if values.dtype.kind == "M" else bound
