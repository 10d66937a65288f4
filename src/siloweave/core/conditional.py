"""Rows with conditions: what is wanted, and how models of both kinds follow it.

A graphical model draws the other columns from its exact conditional distribution. A model of
feature vectors is asked where it can be (a copula's conditional normal distribution, Patki, Wedge &
Veeramachaneni 2016; a GAN's condition, Xu et al. 2019; a diffusion's label or replaced columns,
Lugmayr et al. 2022). Rows that do not match are rejected and drawn again.

**Guarantee**: none of its own: this reads a model and nothing else, so it is post-processing of
what the model's fit released (Dwork & Roth 2014, proposition 2.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from siloweave.errors import DataError, InputError, SchemaError
from siloweave.models.evidence import complete
from siloweave.models.mrf import MRF
from siloweave.tables.arrays import Bools, Floats, Ints, Matrix
from siloweave.tables.bins import BINNED, as_written
from siloweave.tables.cells import codes_of, labels_of, numbers_of, options_of
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.encodings import encoding_of_bounds
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Column, Schema

_WHOLE = ("integer", "datetime")
_CHUNK = 2_000  # rows drawn at once when some were rejected
_LEAST = 10_000  # rows that may be drawn however few are wanted
_FEW_GIVEN = 64  # different evidence, each of which takes a pass over a graphical model
_SEEN = 2_000  # rows that show which classes a model makes, where it does not say


# What is wanted of a model, and what models are


class Wanted(msgspec.Struct, frozen=True):
    """What is asked of a model: the arguments of `Fit.sample`, checked."""

    num_rows: int | None
    seed: Key
    given: Any = None
    balanced: str | bool = False
    tries: int = 100
    raked: bool = True
    missing: bool = True

    @property
    def free(self) -> bool:
        """Whether rows are drawn without conditions."""
        return self.given is None and self.balanced is False

    @property
    def named(self) -> tuple[str, ...]:
        """The columns in which something is asked for."""
        balanced = (self.balanced,) if isinstance(self.balanced, str) else ()
        if self.given is None or isinstance(self.given, Mapping):
            return (*(self.given or ()), *balanced)
        return (*read(self.given).names, *balanced)


class Model(Protocol):
    """Draws synthetic tables. Conforming: `MarginalModel`, `FeatureModel`."""

    @property
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""

    def draw(self, wanted: Wanted, num_rows: int | None, like: Table | None) -> Table:
        """Synthetic rows of the modelled columns; `num_rows` is how many where that is open."""

    def with_values(self, names: Sequence[str]) -> Model:
        """Return the model given that some columns have a value, or itself where it cannot."""

    def save(self, folder: Path) -> None:
        """Write the model's files into a folder, as data only."""


class Generator(Protocol):
    """A generator of feature vectors. Conforming: all `NetworkModel`, `JoinedGenerator`."""

    @property
    def takes(self) -> frozenset[str]:
        """Columns that `given` may name."""

    @property
    def keeps(self) -> bool:
        """Whether rows have what is given in those columns; else only more often."""

    def shares(self, column: str) -> tuple[float, ...] | None:
        """How frequent each option of a column was in the rows, where the model knows."""

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows; `given` is NaN wherever a row is free."""

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""


# Conditions


class UnseenValueError(InputError):
    """A condition asks for a category that no training row had."""


@dataclass(frozen=True)
class Condition:
    """What drawn rows must have in one column.

    Attributes:
        column: The column.
        table: Some values of it.
        places: For each row the place of its value in `table`, -1 where it is free.
        values: One per row: code, or number less the column's origin; NaN for a missing number, and
            in free rows.
        whole: One per row of a column of whole numbers or datetimes: the number, or its step, which
            a float may be unable to hold.
    """

    column: Column
    table: Table
    places: Ints
    values: Floats
    whole: Ints

    @classmethod
    def of(cls, column: Column, table: Table, places: Ints) -> Condition:
        """Cells of one column.

        Raises:
            SchemaError: A value is not in the schema.
        """
        count, fixed = len(places), places >= 0
        values, whole = np.full(count, np.nan), np.zeros(count, dtype=np.int64)
        if table.num_rows:
            try:
                values[fixed] = values_in(column, table)[places[fixed]]
                if column.kind in _WHOLE:
                    whole[fixed] = numbers_of(column, table)[0][places[fixed]]
            except SchemaError as error:
                raise SchemaError(f"given: {error}") from None
        return cls(column, table, places, values, whole)

    def take(self, rows: Ints) -> Condition:
        """Return the same for some of its rows, which may repeat."""
        return Condition(
            self.column, self.table, self.places[rows], self.values[rows], self.whole[rows]
        )

    @property
    def free(self) -> Bools:
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
            made = as_written(column, made, like)
            return made, gone if column.missing else None
        return self.written(np.where(self.free, values_in(self.column, table), self.values), like)

    def written(self, values: Floats, like: Table | None) -> tuple[Any, Any]:
        """Values as the schema writes them, and which are missing."""
        if self.column.kind not in BINNED:
            return labels_of(self.column, values.astype(np.int64))
        gone, bounds = np.isnan(values), encoding_of_bounds(self.column)
        made = bounds.typed(self.column, np.where(gone, bounds.low, values), like)
        return made, gone if self.column.missing else None


def values_in(column: Column, table: Table) -> Floats:
    """A column of a table as codes or numbers, NaN for a missing number.

    Raises:
        SchemaError: A value is outside the schema; a category is not taken for `other`.
    """
    # What somebody asks for is not moved to where it fits.
    strict = msgspec.structs.replace(column, outside="refuse", fallback=None, other=None)
    if column.kind not in BINNED:
        return codes_of(strict, table).astype(np.float64)
    values, gone = encoding_of_bounds(column).values_of(strict, table)
    return np.where(gone, np.nan, values)


def imposed(table: Table, cells: Sequence[Condition], like: Table | None) -> Table:
    """Return a drawn table with what was given in it as it was given."""
    if not cells or not table.num_rows:
        return table
    columns = {name: (table.values(name), table.missing(name)) for name in table.names}
    columns |= {one.name: one.imposed(table, like) for one in cells}
    return Table.from_columns(columns, table)  # its types list the declared categories


def conditions(
    schema: Schema, known: Sequence[str], given: Any, num_rows: int | None, otherwise: int
) -> tuple[int, tuple[Condition, ...]]:
    """What `given` asks for.

    Args:
        schema: Facts about every column.
        known: Columns that the model knows.
        given: A mapping of column to value, None for a missing one; or a frame with one row per
            wanted row, where a cell without a value is free; or a tuple of conditions; or None.
        num_rows: How many rows; a frame's length, or `otherwise`, if None.
        otherwise: How many rows without a frame.

    Returns:
        How many rows, and one entry per column that is given.

    Raises:
        InputError: A column or value is not the schema's, or `num_rows` is not the frame's length.
    """
    if isinstance(given, tuple):  # of conditions, as core/constrained.py has them
        return len(given[0].places), given
    if given is None or isinstance(given, Mapping):
        count = otherwise if num_rows is None else num_rows
        _check_known(given or (), known)
        return count, tuple(
            Condition.of(schema[name], _cell(schema[name], value), np.zeros(count, dtype=np.int64))
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
        fixed = np.flatnonzero(~frame.missing(name))
        places = np.full(frame.num_rows, -1, dtype=np.int64)
        places[fixed] = np.arange(len(fixed))
        made.append(Condition.of(schema[name], frame.select([name]).take(fixed), places))
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
    dated = isinstance(value, date | np.datetime64)  # a datetime is a date
    array = np.array([np.datetime64(value, "us") if dated else value])
    return Table.from_columns({name: (array, None)})


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA of pandas, which is neither equal to itself nor different
        return True


def balanced_column(
    schema: Schema, balanced: str | bool, target: str | None, cells: Sequence[Condition]
) -> Column:
    """The column whose classes are to be equally frequent.

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


def equally(column: Column, shares: Sequence[float], count: int, key: Key) -> Condition:
    """Cells of `count` rows in which every class of a column is equally frequent, but for one row.

    Classes are the options whose share in the model is above 0; a missing value is no class.

    Raises:
        InputError: The model makes no class of it.
    """
    options = 2 if column.kind == "boolean" else len(column.categories)
    seen = np.flatnonzero(np.array(shares)[:options] > 0.0)
    if not seen.size:
        raise InputError(f"balanced={column.name!r}: the model makes no value of it but missing")
    table = Table.from_columns({column.name: labels_of(column, seen)})
    order = generator(fold_in(key, "balanced")).permutation(count)
    return Condition.of(column, table, order % len(seen))


# Graphical models


def completed(
    model: MRF, encoder: Encoder, count: int, cells: Sequence[Condition], key: Key
) -> Codes:
    """Draw rows of a graphical model whose given columns are fixed, the others conditionally.

    A given number is taken for its bin.

    Raises:
        InputError: The model gives a combination of values probability 0.
    """
    codes = {one.name: _codes_of(one, encoder) for one in cells}
    names = ", ".join(codes)
    try:
        if not _are_few(codes):
            return complete(model, codes, key=fold_in(key, "given"))
        return _completed_by_pattern(model, encoder, count, codes, key)
    except DataError as error:
        raise InputError(
            f"given: the model gives some of these values of {names} together probability 0; give "
            "fewer columns or other values"
        ) from error


def _are_few(codes: Mapping[str, Ints]) -> bool:
    """Whether rows are given few different things, for each of which a pass over the model pays.

    Rows of one pass are drawn with low variance, see models/mrf.py.
    """
    return not codes or len(np.unique(np.stack(list(codes.values())), axis=1).T) <= _FEW_GIVEN


def _completed_by_pattern(
    model: MRF, encoder: Encoder, count: int, codes: Mapping[str, Ints], key: Key
) -> Codes:
    """Draw rows that are given the same columns together."""
    columns = {name: np.empty(count, dtype=np.int64) for name in encoder.domain.names}
    free = np.array([given < 0 for given in codes.values()]).reshape(len(codes), count).T
    patterns, where = np.unique(free, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        rows = np.flatnonzero(where.reshape(-1) == i)
        pairs = zip(codes.items(), pattern, strict=True)
        known = {name: given[rows] for (name, given), gone in pairs if not gone}
        own = fold_in(key, "given", i)
        drawn = model.sample_given(known, key=own) if known else model.sample(len(rows), key=own)
        for name in columns:
            columns[name][rows] = drawn.column(name)
    return Codes(encoder.domain, tuple(columns[n].astype(np.uint64) for n in encoder.domain.names))


def _codes_of(cells: Condition, encoder: Encoder) -> Ints:
    """A column's codes, -1 in free rows."""
    if not cells.table.num_rows:
        return cells.places
    codes = encoder.select([cells.name]).encode(cells.table).columns[0].astype(np.int64)
    return np.where(cells.free, np.int64(-1), codes[cells.places])


@dataclass(frozen=True)
class VectorCondition:
    """Cells of one column as a model of feature vectors takes them.

    Attributes:
        cells: What rows must have.
        features: Of this column alone.
        start: Where it starts in a row's vector.
        vectors: (rows, width of the column), NaN in rows that are free.
    """

    cells: Condition
    features: Features
    start: int
    vectors: Matrix

    @classmethod
    def of(cls, cells: Condition, features: Features, key: Key) -> VectorCondition:
        """Cells as vectors of all columns' features; `key` draws the mode of each number."""
        encodings = tuple(one for one in features.encodings if one.column == cells.name)
        alone = Features(Schema((cells.column,)), encodings)
        start = next(block.start for block in features.blocks if block.column == cells.name)
        vectors = np.full((len(cells.places), alone.width), np.nan, dtype=np.float32)
        if cells.table.num_rows:
            fixed = ~cells.free
            vectors[fixed] = alone.encode(cells.table, key=key)[cells.places[fixed]]
        return cls(cells, alone, start, vectors)

    @property
    def name(self) -> str:
        """The column's name."""
        return self.cells.name

    def check(self, shares: Sequence[float] | None) -> None:
        """Refuse what no training row had, if `shares` of the options are known."""
        asked = self.vectors[~self.cells.free]
        if shares is None or not len(asked):
            return
        never = np.flatnonzero(np.array(shares)[asked.argmax(axis=1)] <= 0.0)
        if never.size:
            first = self.cells.written(self.cells.values[~self.cells.free][never[:1]], None)
            label = first[0][0] if first[1] is None or not first[1][0] else None
            raise UnseenValueError(
                f"given asks for column {self.name!r} to be {label!r}, which no row had that the "
                "model was trained on; ask for another"
            )

    def met(self, X: Matrix, rows: Ints, key: Key) -> Bools:
        """Which vectors have what is asked of these rows."""
        part = X[:, self.start : self.start + self.features.width]
        made = values_in(self.cells.column, self.features.decode(part, key=key))
        wanted = self.cells.values[rows]
        same = (made == wanted) | (np.isnan(made) & np.isnan(wanted))
        return np.asarray(same | self.cells.free[rows])


def shares_in(model: Generator, features: Features, column: Column, key: Key) -> Sequence[float]:
    """How frequent each option of a column is: by the model, else in 2,000 rows that it draws."""
    if (shares := model.shares(column.name)) is not None:
        return shares
    X = model.sample(_SEEN, key=fold_in(key, "look"))
    made = features.decode(X, key=fold_in(key, "look")).select([column.name])
    codes = values_in(column, made).astype(np.int64)
    return tuple(np.bincount(codes, minlength=options_of(column)).tolist())


def accepted(
    model: Generator,
    features: Features,
    count: int,
    asked: Sequence[VectorCondition],
    *,
    tries: int,
    key: Key,
) -> Matrix:
    """Draw vectors that have what is given; only what a model does not guarantee is checked.

    Args:
        model: What draws.
        features: Vectors to table and back.
        count: How many rows.
        asked: What they must have, one entry per column that is given.
        tries: Rows that are drawn at most for each that is wanted.
        key: Everything random.

    Raises:
        InputError: Something is given that no training row had, or matching rows are too rare.
    """
    if tries < 1:
        raise InputError(f"tries={tries} must be 1 or more")
    for one in asked:
        one.check(model.shares(one.name))
    given = _given(model, features, count, asked)
    kept = model.takes if model.keeps else frozenset()
    checked = [one for one in asked if one.name not in kept]
    X = np.zeros((count, features.width), dtype=np.float32)
    missed, made, good = np.arange(count), 0, 0
    while missed.size and made < max(tries * count, _LEAST):
        rows = np.resize(missed, max(missed.size, _CHUNK)) if made else missed
        own = fold_in(key, "rows", made)
        Y = model.sample(len(rows), key=own, given=None if given is None else given[rows])
        fits = np.ones(len(rows), dtype=np.bool_)
        for one in checked:
            fits &= one.met(Y, rows, own)
        X[rows[fits]] = Y[fits]
        missed = np.setdiff1d(missed, rows[fits])
        made, good = made + len(rows), good + int(fits.sum())
    if missed.size:
        names = ", ".join(one.name for one in checked)
        raise InputError(
            f"given: {missed.size} of {count} rows were not met. Of {made:,} rows drawn "
            f"{good:,} ({good / made:.2%}) matched in {names}. Give fewer columns or more "
            f"frequent values, or raise tries={tries}"
        )
    return X


def _given(
    model: Generator, features: Features, count: int, asked: Sequence[VectorCondition]
) -> Matrix | None:
    """What the model itself is conditioned on: NaN wherever a row is free; None if nothing."""
    taken = [one for one in asked if one.name in model.takes]
    if not taken:
        return None
    given = np.full((count, features.width), np.nan, dtype=np.float32)
    for one in taken:
        given[:, one.start : one.start + one.features.width] = one.vectors
    return given
