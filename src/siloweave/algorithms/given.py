"""Rows that are given some of their columns: what is wanted, and drawing until it is met.

A model that can be asked (a copula's conditional normal law, Patki, Wedge & Veeramachaneni 2016;
a GAN's condition, Xu et al. 2019; a diffusion's label or replaced columns, Lugmayr et al. 2022) is
asked; what it does not keep to, or cannot be asked for, is met by rejection.

**Guarantee**: none of its own: this reads a model and nothing else, so it is post-processing of
what the model's fit released.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import InputError, SchemaError
from siloweave.tables.bins import BINNED, as_moments, numbers_of
from siloweave.tables.columns import blank, codes_of, labels_of, typed, values_of
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Column, Schema

if TYPE_CHECKING:
    from siloweave.algorithms.generated import Model

__all__ = ["Cells", "Wishes", "balanced_column", "equally", "wishes"]

_Matrix = npt.NDArray[np.float32]
_Floats = npt.NDArray[np.float64]
_WHOLE = ("integer", "datetime")
_CHUNK = 2_000  # rows drawn at once when some were rejected
_LEAST = 10_000  # rows that may be drawn however few are wanted
_LOOK = 2_000  # rows that tell which classes a model makes, where it does not say


@dataclass(frozen=True)
class Cells:
    """What rows shall have in one column.

    Attributes:
        column: The column.
        features: Of this column alone.
        start: Where it starts in a row's vector.
        vectors: (rows, width of the column), NaN in rows that are free.
        values: One per row: code, or number less the column's origin; NaN for a missing number.
        whole: One per row where the column is of whole numbers or moments: the number, or its step,
            which a float need not hold.
        free: Rows that may have any value.
    """

    column: Column
    features: Features
    start: int
    vectors: _Matrix
    values: _Floats
    whole: npt.NDArray[np.int64]
    free: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        features: Features,
        name: str,
        table: Table,
        places: npt.NDArray[np.int64],
        key: Key,
    ) -> Cells:
        """Cells of one column.

        Args:
            features: Of all columns.
            name: The column.
            table: Some values of it.
            places: For each row the place of its value in `table`, -1 where it is free.
            key: Which mode a number is said to come from.

        Raises:
            InputError: There is no such column, or a value is not in the schema.
        """
        plans = [plan for plan in features.plans if plan.column == name]
        if not plans:
            known = ", ".join(plan.column for plan in features.plans)
            raise InputError(f"given names {name!r}, and rows can be given only {known}")
        column = features.schema[name]
        alone = Features(Schema((column,)), tuple(plans))
        start = next(block.start for block in features.blocks if block.column == name)
        free, count = places < 0, len(places)
        vectors = np.full((count, alone.width), np.nan, dtype=np.float32)
        values, whole = np.full(count, np.nan), np.zeros(count, dtype=np.int64)
        if table.num_rows:
            try:
                values[~free] = values_in(column, table)[places[~free]]
                vectors[~free] = alone.encode(table, key=key)[places[~free]]
                if column.kind in _WHOLE:
                    whole[~free] = numbers_of(column, table)[0][places[~free]]
            except SchemaError as error:
                raise SchemaError(f"given: {error}") from None
        return cls(column, alone, start, vectors, values, whole, free)

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    def check(self, shares: Sequence[float] | None) -> None:
        """Refuse what no row had that was trained on; nothing is known where `shares` is None."""
        asked = self.vectors[~self.free]
        if shares is None or not len(asked):
            return
        never = np.flatnonzero(np.array(shares)[asked.argmax(axis=1)] <= 0.0)
        if never.size:
            first = self.written(self.values[~self.free][never[:1]], None)
            label = first[0][0] if first[1] is None or not first[1][0] else None
            raise InputError(
                f"given asks for column {self.name!r} to be {label!r}, which no row had that the "
                "model was trained on; ask for another"
            )

    def met(self, X: _Matrix, rows: npt.NDArray[np.int64], key: Key) -> npt.NDArray[np.bool_]:
        """Which vectors have what these rows shall have."""
        part = X[:, self.start : self.start + self.features.width]
        made = values_in(self.column, self.features.decode(part, key=key))
        wanted = self.values[rows]
        same = (made == wanted) | (np.isnan(made) & np.isnan(wanted))
        return np.asarray(same | self.free[rows])

    def imposed(self, table: Table, like: Table | None) -> tuple[Any, Any]:
        """The column of a table, with these cells as they are wanted, and what is missing."""
        column = self.column
        if column.kind in _WHOLE:
            drawn, absent = numbers_of(column, table)
            made: Any = np.where(self.free, drawn, self.whole)
            gone = np.where(self.free, absent, np.isnan(self.values))
            if column.kind == "datetime":
                made = as_moments(column, made, like)
            return made, gone if column.missing else None
        return self.written(np.where(self.free, values_in(self.column, table), self.values), like)

    def written(self, values: _Floats, like: Table | None) -> tuple[Any, Any]:
        """Values as the schema writes them, and which are missing."""
        if self.column.kind not in BINNED:
            return labels_of(self.column, values.astype(np.int64))
        gone, plan = np.isnan(values), blank(self.column)
        made = typed(self.column, plan, np.where(gone, plan.low, values), like)
        return made, gone if self.column.missing else None


def values_in(column: Column, table: Table) -> _Floats:
    """A column of a table as codes or numbers, NaN for a missing number.

    Raises:
        SchemaError: A value is outside the schema; a category is not taken for `other`.
    """
    if column.kind not in BINNED:
        return codes_of(msgspec.structs.replace(column, other=None), table).astype(np.float64)
    values, gone = values_of(column, blank(column), table)
    return np.where(gone, np.nan, values)


@dataclass(frozen=True)
class Wishes:
    """Rows that are wanted.

    Attributes:
        features: Vectors to table and back.
        count: How many rows.
        cells: What they shall have, one entry per column that is given.
    """

    features: Features
    count: int
    cells: tuple[Cells, ...] = ()

    def also(self, cells: Cells) -> Wishes:
        """The same, and one column more."""
        return replace(self, cells=(*self.cells, cells))

    def drawn(self, model: Model, like: Table | None, *, tries: int, seed: Key) -> Table:
        """Draw the rows.

        Args:
            model: What draws.
            like: The result's frame and types are this table's.
            tries: Rows that are drawn at most for each that is wanted.
            seed: Everything random.

        Raises:
            InputError: Something is given that the model never saw, or matching rows are too rare.
        """
        if tries < 1:
            raise InputError(f"tries={tries} must be 1 or more")
        for cells in self.cells:
            cells.check(model.shares(cells.name))
        X = self._accepted(model, tries, seed)
        table = self.features.decode(X, key=fold_in(seed, "values"), like=like)
        if not self.count:
            return table
        columns = {name: (table.values(name), table.missing(name)) for name in table.names}
        columns |= {cells.name: cells.imposed(table, like) for cells in self.cells}
        return Table.from_columns(columns, table)  # its types list the declared categories

    def _accepted(self, model: Model, tries: int, seed: Key) -> _Matrix:
        """Vectors that meet every wish; what a model keeps to is not looked at again."""
        asked = self._asked(model)
        kept = model.takes if model.keeps else frozenset()
        checked = [cells for cells in self.cells if cells.name not in kept]
        X = np.zeros((self.count, self.features.width), dtype=np.float32)
        missed, made, good = np.arange(self.count), 0, 0
        while missed.size and made < max(tries * self.count, _LEAST):
            rows = np.resize(missed, max(missed.size, _CHUNK)) if made else missed
            key = fold_in(seed, "rows", made)
            Y = model.sample(len(rows), key=key, given=None if asked is None else asked[rows])
            fits = np.ones(len(rows), dtype=np.bool_)
            for cells in checked:
                fits &= cells.met(Y, rows, key)
            X[rows[fits]] = Y[fits]
            missed = np.setdiff1d(missed, rows[fits])
            made, good = made + len(rows), good + int(fits.sum())
        if missed.size:
            names = ", ".join(cells.name for cells in checked)
            raise InputError(
                f"given: {missed.size} of {self.count} rows were not met. Of {made:,} rows drawn "
                f"{good:,} ({good / made:.2%}) matched in {names}. Give fewer columns or more "
                f"frequent values, or raise tries={tries}"
            )
        return X

    def _asked(self, model: Model) -> _Matrix | None:
        cells = [one for one in self.cells if one.name in model.takes]
        if not cells:
            return None
        asked = np.full((self.count, self.features.width), np.nan, dtype=np.float32)
        for one in cells:
            asked[:, one.start : one.start + one.features.width] = one.vectors
        return asked


def wishes(
    features: Features, given: Any, num_rows: int | None, otherwise: int, seed: Key
) -> Wishes:
    """What `given` asks for.

    Args:
        features: Vectors to table and back.
        given: A mapping of column to value, None for a missing one; or a frame with one row per
            wanted row, where a cell without a value is free; or None.
        num_rows: How many rows; a frame's length, or `otherwise`, if None.
        otherwise: How many rows without a frame.
        seed: Which mode a number is said to come from.

    Raises:
        InputError: A column or value is not the schema's, or `num_rows` is not the frame's length.
    """
    if given is None or isinstance(given, Mapping):
        count = otherwise if num_rows is None else num_rows
        made = Wishes(features, count)
        for name, value in (given or {}).items():
            table = _cell(features.schema, name, value)
            key, places = fold_in(seed, "given", name), np.zeros(count, dtype=np.int64)
            made = made.also(Cells.of(features, name, table, places, key))
        return made
    frame = read(given)
    if num_rows not in (None, frame.num_rows):
        raise InputError(
            f"num_rows={num_rows}, but given has {frame.num_rows} rows; leave num_rows out"
        )
    made = Wishes(features, frame.num_rows)
    for name in frame.names:
        told = np.flatnonzero(~frame.missing(name))
        places = np.full(frame.num_rows, -1, dtype=np.int64)
        places[told] = np.arange(len(told))
        table, key = frame.select([name]).take(told), fold_in(seed, "given", name)
        made = made.also(Cells.of(features, name, table, places, key))
    return made


def _cell(schema: Schema, name: str, value: Any) -> Table:
    """A table of one value, which may be a missing one."""
    if np.ndim(value):
        raise InputError(f"given: {name!r} has several values; give one, or a frame of rows")
    if name not in schema.names:
        return Table.from_columns({})
    if _is_missing(value):
        column = schema[name]
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
    schema: Schema, balanced: str | bool, target: str | None, wanted: Wishes
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
    if name in [cells.name for cells in wanted.cells]:
        raise InputError(f"given and balanced both name {name!r}; leave one out")
    return schema[str(name)]


def equally(model: Model, features: Features, column: Column, count: int, seed: Key) -> Cells:
    """Cells in which every class of a column is equally frequent, but for one row.

    Classes are those that rows had which the model was trained on; where it does not say, those in
    2,000 rows that it draws. A missing value is no class.
    """
    options = 2 if column.kind == "boolean" else len(column.categories)
    shares = model.shares(column.name)
    if shares is None:
        X = model.sample(_LOOK, key=fold_in(seed, "look"))
        made = features.decode(X, key=fold_in(seed, "look")).select([column.name])
        seen = np.unique(values_in(column, made)).astype(np.int64)
    else:
        seen = np.flatnonzero(np.array(shares) > 0.0)
    seen = seen[seen < options]
    if not seen.size:
        raise InputError(f"balanced={column.name!r}: the model makes no value of it but missing")
    table = Table.from_columns({column.name: labels_of(column, seen)})
    order = generator(fold_in(seed, "balanced")).permutation(count)
    return Cells.of(features, column.name, table, order % len(seen), fold_in(seed, "given"))
