"""Rows that are given some of their columns: what is wanted, and how a graphical model meets it.

A graphical model draws the other columns from its exact conditional distribution; how models of
feature vectors meet it is in rejection.py.

**Guarantee**: none of its own: this reads a model and nothing else, so it is post-processing of
what the model's fit released (Dwork & Roth 2014, proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import DataError, InputError, SchemaError
from siloweave.models.mrf import MRF
from siloweave.tables.bins import BINNED, as_datetimes, numbers_of
from siloweave.tables.codes import Codes, Encoder, codes_of, labels_of
from siloweave.tables.encodings import encoding_of_bounds
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Column, Schema

if TYPE_CHECKING:
    pass

__all__ = [
    "GivenCells",
    "balanced_column",
    "completed",
    "conditions",
    "equally",
    "imposed",
    "values_in",
]

_Matrix = npt.NDArray[np.float32]
_Floats = npt.NDArray[np.float64]
_WHOLE = ("integer", "datetime")
_CHUNK = 2_000  # rows drawn at once when some were rejected
_LEAST = 10_000  # rows that may be drawn however few are wanted
_LOOK = 2_000  # rows that tell which classes a model makes, where it does not say


@dataclass(frozen=True)
class GivenCells:
    """What rows shall have in one column.

    Attributes:
        column: The column.
        table: Some values of it.
        places: For each row the place of its value in `table`, -1 where it is free.
        values: One per row: code, or number less the column's origin; NaN for a missing number, and
            in free rows.
        whole: One per row where the column is of whole numbers or moments: the number, or its step,
            which a float need not hold.
    """

    column: Column
    table: Table
    places: npt.NDArray[np.int64]
    values: _Floats
    whole: npt.NDArray[np.int64]

    @classmethod
    def of(cls, column: Column, table: Table, places: npt.NDArray[np.int64]) -> GivenCells:
        """Cells of one column.

        Raises:
            SchemaError: A value is not in the schema.
        """
        count, told = len(places), places >= 0
        values, whole = np.full(count, np.nan), np.zeros(count, dtype=np.int64)
        if table.num_rows:
            try:
                values[told] = values_in(column, table)[places[told]]
                if column.kind in _WHOLE:
                    whole[told] = numbers_of(column, table)[0][places[told]]
            except SchemaError as error:
                raise SchemaError(f"given: {error}") from None
        return cls(column, table, places, values, whole)

    @property
    def free(self) -> npt.NDArray[np.bool_]:
        """Rows that may have any value."""
        return self.places < 0

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    def imposed(self, table: Table, like: Table | None) -> tuple[Any, Any]:
        """The column of a table, with these cells as they are wanted, and what is missing."""
        column = self.column
        if column.kind in _WHOLE:
            drawn, absent = numbers_of(column, table)
            made: Any = np.where(self.free, drawn, self.whole)
            gone = np.where(self.free, absent, np.isnan(self.values))
            if column.kind == "datetime":
                made = as_datetimes(column, made, like)
            return made, gone if column.missing else None
        return self.written(np.where(self.free, values_in(self.column, table), self.values), like)

    def written(self, values: _Floats, like: Table | None) -> tuple[Any, Any]:
        """Values as the schema writes them, and which are missing."""
        if self.column.kind not in BINNED:
            return labels_of(self.column, values.astype(np.int64))
        gone, bounds = np.isnan(values), encoding_of_bounds(self.column)
        made = bounds.typed(self.column, np.where(gone, bounds.low, values), like)
        return made, gone if self.column.missing else None


def values_in(column: Column, table: Table) -> _Floats:
    """A column of a table as codes or numbers, NaN for a missing number.

    Raises:
        SchemaError: A value is outside the schema; a category is not taken for `other`.
    """
    if column.kind not in BINNED:
        return codes_of(msgspec.structs.replace(column, other=None), table).astype(np.float64)
    values, gone = encoding_of_bounds(column).values_of(column, table)
    return np.where(gone, np.nan, values)


def imposed(table: Table, cells: Sequence[GivenCells], like: Table | None) -> Table:
    """A drawn table with what was given in it as it was given."""
    if not table.num_rows:
        return table
    columns = {name: (table.values(name), table.missing(name)) for name in table.names}
    columns |= {one.name: one.imposed(table, like) for one in cells}
    return Table.from_columns(columns, table)  # its types list the declared categories


def conditions(
    schema: Schema, known: Sequence[str], given: Any, num_rows: int | None, otherwise: int
) -> tuple[int, tuple[GivenCells, ...]]:
    """What `given` asks for.

    Args:
        schema: Facts about every column.
        known: Columns that the model knows.
        given: A mapping of column to value, None for a missing one; or a frame with one row per
            wanted row, where a cell without a value is free; or None.
        num_rows: How many rows; a frame's length, or `otherwise`, if None.
        otherwise: How many rows without a frame.

    Returns:
        How many rows, and one entry per column that is given.

    Raises:
        InputError: A column or value is not the schema's, or `num_rows` is not the frame's length.
    """
    if given is None or isinstance(given, Mapping):
        count = otherwise if num_rows is None else num_rows
        _check_known(given or (), known)
        return count, tuple(
            GivenCells.of(schema[name], _cell(schema[name], value), np.zeros(count, dtype=np.int64))
            for name, value in (given or {}).items()
        )
    frame = read(given)
    if num_rows not in (None, frame.num_rows):
        raise InputError(
            f"num_rows={num_rows}, but given has {frame.num_rows} rows; leave num_rows out"
        )
    _check_known(frame.names, known)
    made = []
    for name in frame.names:
        told = np.flatnonzero(~frame.missing(name))
        places = np.full(frame.num_rows, -1, dtype=np.int64)
        places[told] = np.arange(len(told))
        made.append(GivenCells.of(schema[name], frame.select([name]).take(told), places))
    return frame.num_rows, tuple(made)


def _check_known(names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"given names {name!r}, and rows can be given only {', '.join(known)}")


def _cell(column: Column, value: Any) -> Table:
    """A table of one value, which may be a missing one."""
    name = column.name
    if np.ndim(value):
        raise InputError(f"given: {name!r} has several values; give one, or a frame of rows")
    if _is_missing(value):
        if not column.missing:
            raise SchemaError(
                f"given: column {name!r} has no missing values in the schema; give it a value"
            )
        stand_ins: dict[str, Any] = {"integer": 0, "continuous": 0.0, "boolean": False}
        stand_ins["datetime"] = np.datetime64(0, "us")
        known = stand_ins.get(column.kind, "")
        return Table.from_columns({name: (np.array([known]), np.array([True]))})
    moment = isinstance(value, date | np.datetime64)  # a datetime is a date
    array = np.array([np.datetime64(value, "us") if moment else value])
    return Table.from_columns({name: (array, None)})


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA of pandas, of which nobody can say whether it is itself
        return True


def balanced_column(
    schema: Schema, balanced: str | bool, target: str | None, cells: Sequence[GivenCells]
) -> Column:
    """The column whose classes shall be equally frequent.

    Raises:
        InputError: There is no target, no such column, or it has no classes.
    """
    if balanced is True and target is None:
        raise InputError(
            "balanced=True needs a target, and this fit has none; name a column, or fit with target"
        )
    name = target if balanced is True else balanced
    classes = [one.name for one in schema.columns if one.kind in ("categorical", "boolean")]
    if balanced is not True and name not in classes:
        raise InputError(
            f"balanced={name!r} is no column of classes; choose from {', '.join(classes)}"
        )
    if name in [one.name for one in cells]:
        raise InputError(f"given and balanced both name {name!r}; leave one out")
    return schema[str(name)]


def equally(column: Column, shares: Sequence[float], count: int, key: Key) -> GivenCells:
    """Cells in which every class of a column is equally frequent, but for one row.

    Args:
        column: Of categories or booleans.
        shares: How frequent each option is in the model; classes are those above 0, and a missing
            value is no class.
        count: How many rows.
        key: The order of the classes.

    Raises:
        InputError: The model makes no class of it.
    """
    options = 2 if column.kind == "boolean" else len(column.categories)
    seen = np.flatnonzero(np.array(shares)[:options] > 0.0)
    if not seen.size:
        raise InputError(f"balanced={column.name!r}: the model makes no value of it but missing")
    table = Table.from_columns({column.name: labels_of(column, seen)})
    order = generator(fold_in(key, "balanced")).permutation(count)
    return GivenCells.of(column, table, order % len(seen))


# Graphical models


def completed(
    model: MRF, encoder: Encoder, count: int, cells: Sequence[GivenCells], key: Key
) -> Codes:
    """Draw rows of a graphical model whose given columns are fixed, the others conditionally.

    A number stands for its bin here.

    Raises:
        InputError: The model gives a combination of values probability 0.
    """
    columns = {name: np.empty(count, dtype=np.int64) for name in encoder.domain.names}
    told = {one.name: _codes_of(one, encoder) for one in cells}
    free = np.array([one.free for one in cells]).reshape(len(cells), count).T
    patterns, where = np.unique(free, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        rows = np.flatnonzero(where.reshape(-1) == i)
        pairs = zip(cells, pattern, strict=True)
        known = {one.name: told[one.name][rows] for one, gone in pairs if not gone}
        own = fold_in(key, "given", i)
        try:
            drawn = (
                model.sample_given(known, key=own) if known else model.sample(len(rows), key=own)
            )
        except DataError as error:
            raise InputError(
                f"given: the model gives some of these values of {', '.join(known)} together "
                "probability 0; give fewer columns or other values"
            ) from error
        for name in columns:
            columns[name][rows] = drawn.column(name)
    return Codes(encoder.domain, tuple(columns[n].astype(np.uint64) for n in encoder.domain.names))


def _codes_of(cells: GivenCells, encoder: Encoder) -> npt.NDArray[np.int64]:
    """A column's codes, -1 in free rows."""
    if not cells.table.num_rows:
        return cells.places
    codes = encoder.select([cells.name]).encode(cells.table).columns[0].astype(np.int64)
    return np.where(cells.free, np.int64(-1), codes[cells.places])
