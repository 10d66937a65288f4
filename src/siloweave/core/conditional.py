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
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from siloweave.errors import DataError, InputError, SchemaError
from siloweave.models.evidence import complete
from siloweave.models.mrf import MRF
from siloweave.tables.arrays import Bools, Floats, Ints, Matrix
from siloweave.tables.bins import as_written
from siloweave.tables.cells import codes_of, labels_of, numbers_of, options_of
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.column import Column
from siloweave.tables.display import listed
from siloweave.tables.encodings import encoding_of_bounds
from siloweave.tables.features import Features
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

_CHUNK = 2_000
"""Rows drawn at once when some were rejected."""
_LEAST = 10_000
"""Rows that may be drawn however few are wanted."""
_MOST_PATTERNS = 64
"""Different evidence for which a graphical model takes one pass each."""
_PILOT_ROWS = 2_000
"""Rows that show which classes a model makes, where it does not say."""


# What is wanted of a model, and what models are


class Wanted(msgspec.Struct, frozen=True):
    """The conditions on rows that are to be drawn: the arguments of `Fit.sample`, checked."""

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
        """The columns that have a condition."""
        balanced = (self.balanced,) if isinstance(self.balanced, str) else ()
        if self.given is None:
            return balanced
        if isinstance(self.given, Mapping):
            return (*self.given, *balanced)
        return (*read(self.given).names, *balanced)


class Model(Protocol):
    """A model that draws synthetic tables. Conforming: `MarginalModel`, `FeatureModel`."""

    @property
    def schema(self) -> Schema:
        """Facts about every column of a synthetic table."""

    def draw(self, wanted: Wanted, num_rows: int | None, like: Table | None) -> Table:
        """Draw rows of the modelled columns.

        Where the model does not fix the number of rows, `num_rows` is that number.
        """

    def with_values(self, names: Sequence[str]) -> Model:
        """Return the model given that some columns have a value, or itself if it cannot be so."""

    def save(self, folder: Path) -> None:
        """Write the model's files into a folder, as data only."""


class Generator(Protocol):
    """A generator of feature vectors. Conforming: all `NetworkModel`, `JoinedGenerator`."""

    @property
    def takes(self) -> frozenset[str]:
        """The columns that a caller of `sample` may condition on."""

    @property
    def keeps(self) -> bool:
        """Whether a drawn row always has the values it is given; else they are only frequent."""

    def shares(self, column: str) -> tuple[float, ...] | None:
        """Return how frequent each option of a column was in the rows; None if that is unknown."""

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw feature vectors under conditions; `given` is NaN wherever a row is free."""

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""


# Conditions


class UnseenValueError(InputError):
    """A condition asks for a category that no training row had."""


@dataclass(frozen=True)
class Condition:
    """The values that drawn rows must have in one column.

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
        """Return the condition that rows have certain values of a column.

        Raises:
            SchemaError: A value is not in the schema.
        """
        fixed = places >= 0
        values = np.full(len(places), np.nan)
        whole = np.zeros(len(places), dtype=np.int64)
        if table.num_rows:
            try:
                values[fixed] = values_in(column, table)[places[fixed]]
                if column.is_binned and not column.is_continuous:
                    numbers, _ = numbers_of(column, table)
                    whole[fixed] = numbers[places[fixed]]
            except SchemaError as error:
                raise SchemaError(f"given: {error}") from None
        return cls(column, table, places, values, whole)

    def take(self, rows: Ints) -> Condition:
        """Return the condition on a selection of its rows, in which a row may repeat."""
        return Condition(
            self.column,
            self.table,
            self.places[rows],
            self.values[rows],
            self.whole[rows],
        )

    @property
    def free(self) -> Bools:
        """The rows that may have any value in the column, as a mask."""
        return self.places < 0

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    def imposed(self, table: Table, like: Table | None) -> tuple[Any, Any]:
        """Return a drawn table's column with the wanted values in place, and its missing cells."""
        column = self.column
        if not column.is_binned or column.is_continuous:
            values = np.where(self.free, values_in(column, table), self.values)
            return self.written(values, like)
        drawn_numbers, drawn_missing = numbers_of(column, table)
        numbers = np.where(self.free, drawn_numbers, self.whole)
        missing = np.where(self.free, drawn_missing, np.isnan(self.values))
        return as_written(column, numbers, like), missing if column.missing else None

    def written(self, values: Floats, like: Table | None) -> tuple[Any, Any]:
        """Return values as the schema writes them, and which are missing."""
        column = self.column
        if not column.is_binned:
            return labels_of(column, values.astype(np.int64))
        missing = np.isnan(values)
        bounds = encoding_of_bounds(column)
        # A missing number needs some value; the low bound is one that is always allowed.
        typed = bounds.typed(column, np.where(missing, bounds.low, values), like)
        return typed, missing if column.missing else None


def values_in(column: Column, table: Table) -> Floats:
    """Return a column of a table as codes or numbers, NaN for a missing number.

    Raises:
        SchemaError: A value is outside the schema; a category is not taken for `other`.
    """
    # What somebody asks for is not moved to where it fits.
    strict = msgspec.structs.replace(
        column, outside="refuse", fallback=None, other=None
    )
    if not column.is_binned:
        return codes_of(strict, table).astype(np.float64)
    values, missing = encoding_of_bounds(column).values_of(strict, table)
    return np.where(missing, np.nan, values)


def imposed(table: Table, cells: Sequence[Condition], like: Table | None) -> Table:
    """Write the values that were given into a drawn table, exactly as they were given."""
    if not cells or not table.num_rows:
        return table
    columns: dict[str, Any] = {name: table.with_gaps(name) for name in table.names}
    columns |= {condition.name: condition.imposed(table, like) for condition in cells}
    return Table.from_columns(columns, table)  # its types list the declared categories


def conditions(
    schema: Schema,
    names: Sequence[str],
    given: Any,
    num_rows: int | None,
    otherwise: int,
) -> tuple[int, tuple[Condition, ...]]:
    """Return the number of rows to draw, and the conditions that `given` stands for.

    Args:
        schema: Facts about every column.
        names: Columns that the model knows.
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
        return count, tuple(_conditions_of_values(schema, names, given or {}, count))
    frame = read(given)
    if num_rows not in (None, frame.num_rows):
        raise InputError(
            f"num_rows={num_rows}, but given has {frame.num_rows} rows; leave num_rows out"
        )
    return frame.num_rows, tuple(_conditions_of_rows(schema, names, frame))


def _conditions_of_values(
    schema: Schema, names: Sequence[str], values: Mapping[str, Any], count: int
) -> list[Condition]:
    """Return conditions that give all of `count` rows the same values."""
    _check_known(values, names)
    first_place = np.zeros(count, dtype=np.int64)
    conditions = []
    for name, value in values.items():
        column = schema[name]
        table = _cell(column, value)
        try:
            conditions.append(Condition.of(column, table, first_place))
        except SchemaError as error:
            if not column.is_choice:
                raise
            # Whoever typed the value may see it, and needs to know what to type instead.
            options = listed([repr(option) for option in column.options])
            raise SchemaError(
                f"given: column {name!r}: {value!r} is not one of its categories; choose from "
                f"{options}"
            ) from error
    return conditions


def _conditions_of_rows(
    schema: Schema, names: Sequence[str], frame: Table
) -> list[Condition]:
    """Return the conditions that each drawn row has the values of the same row of a frame."""
    _check_known(frame.names, names)
    cells = []
    for name in frame.names:
        filled = np.flatnonzero(~frame.missing(name))
        places = np.full(frame.num_rows, -1, dtype=np.int64)
        places[filled] = np.arange(len(filled))
        values = frame.select([name]).take(filled)
        cells.append(Condition.of(schema[name], values, places))
    return cells


def _check_known(given_names: Iterable[str], names: Sequence[str]) -> None:
    """Raise InputError for a condition on a column that the model does not draw."""
    for name in given_names:
        if name not in names:
            raise InputError(
                f"given names {name!r}, and rows can be given only {', '.join(names)}"
            )


_STAND_INS: Mapping[str, Any] = {
    "integer": 0,
    "continuous": 0.0,
    "boolean": False,
    "datetime": np.datetime64(0, "us"),
}
"""By kind of column, a value of its type that stands where one is missing; else a text."""


def _cell(column: Column, value: Any) -> Table:
    """Return a table with a single cell, whose value may be a missing one."""
    name = column.name
    if np.ndim(value):
        raise InputError(
            f"given: {name!r} has several values; give one, or a frame of rows"
        )
    if _is_missing(value):
        if not column.missing:
            raise SchemaError(
                f"given: column {name!r} has no missing values in the schema; give it a value"
            )
        stand_in = np.array([_STAND_INS.get(column.kind, "")])
        return Table.from_columns({name: (stand_in, np.array([True]))})
    if isinstance(value, datetime) and value.tzinfo is not None:
        # Times of a table are in UTC. NumPy knows no zones, and would warn.
        value = value.astimezone(UTC).replace(tzinfo=None)
    is_date = isinstance(value, date | np.datetime64)  # a datetime is a date
    values = np.array([value], dtype="datetime64[us]") if is_date else np.array([value])
    return Table.from_columns({name: (values, None)})


def _is_missing(value: Any) -> bool:
    """Return whether a value stands for a missing one: None, NaN, or NA of pandas."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA of pandas, which is neither equal to itself nor different
        return True


def balanced_column(
    schema: Schema, balanced: str | bool, target: str | None, cells: Sequence[Condition]
) -> Column:
    """Return the column whose classes are to be equally frequent.

    Raises:
        InputError: There is no target, no such column, or it has no classes.
    """
    if balanced is True and target is None:
        raise InputError(
            "balanced=True needs a target, and this fit has none; name a column, or fit with target"
        )
    name = target if balanced is True else balanced
    classes = [column.name for column in schema.columns if column.is_choice]
    if balanced is not True and name not in classes:
        raise InputError(
            f"balanced={name!r} is no column of classes; choose from {', '.join(classes)}"
        )
    if name in [condition.name for condition in cells]:
        raise InputError(f"given and balanced both name {name!r}; leave one out")
    return schema[str(name)]


def equally(column: Column, shares: Sequence[float], count: int, key: Key) -> Condition:
    """Return cells in which all classes of a column are equally frequent, give or take one row.

    Classes are the options whose share in the model is above 0; a missing value is no class.

    Raises:
        InputError: The model makes no class of it.
    """
    options = 2 if column.kind == "boolean" else len(column.categories)
    classes = np.flatnonzero(np.array(shares)[:options] > 0.0)
    if not classes.size:
        raise InputError(
            f"balanced={column.name!r}: the model makes no value of it but missing"
        )
    table = Table.from_columns({column.name: labels_of(column, classes)})
    order = generator(fold_in(key, "balanced")).permutation(count)
    return Condition.of(column, table, order % len(classes))


# Graphical models


def completed(
    model: MRF, encoder: Encoder, count: int, cells: Sequence[Condition], key: Key
) -> Codes:
    """Draw rows of a graphical model with some columns fixed; the others follow conditionally.

    A given number is taken for its bin.

    Raises:
        InputError: The model gives a combination of values probability 0.
    """
    codes = {condition.name: _codes_of(condition, encoder) for condition in cells}
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
    """Return whether the rows have so few different conditions that a pass over the model pays.

    Rows of one pass are drawn with low variance, see models/mrf.py.
    """
    if not codes:
        return True
    patterns = np.unique(np.stack(list(codes.values())), axis=1)
    return bool(patterns.shape[1] <= _MOST_PATTERNS)


def _completed_by_pattern(
    model: MRF, encoder: Encoder, count: int, codes: Mapping[str, Ints], key: Key
) -> Codes:
    """Draw rows group by group, where the rows of a group have the same columns fixed."""
    names = encoder.domain.names
    columns = {name: np.empty(count, dtype=np.int64) for name in names}
    is_free = np.array([column_codes < 0 for column_codes in codes.values()])
    patterns, pattern_of_row = np.unique(
        is_free.reshape(len(codes), count).T, axis=0, return_inverse=True
    )
    for number, free_columns in enumerate(patterns):
        rows = np.flatnonzero(pattern_of_row.reshape(-1) == number)
        evidence = {
            name: codes[name][rows]
            for name, column_is_free in zip(codes, free_columns, strict=True)
            if not column_is_free
        }
        pattern_key = fold_in(key, "given", number)
        if evidence:
            sample = model.sample_given(evidence, key=pattern_key)
        else:
            sample = model.sample(len(rows), key=pattern_key)
        for name in names:
            columns[name][rows] = sample.column(name)
    return Codes(
        encoder.domain, tuple(columns[name].astype(np.uint64) for name in names)
    )


def _codes_of(cells: Condition, encoder: Encoder) -> Ints:
    """Return the codes of a condition's column, -1 in rows that are free."""
    if not cells.table.num_rows:
        return cells.places
    codes = encoder.select([cells.name]).encode(cells.table).columns[0].astype(np.int64)
    return np.where(cells.free, np.int64(-1), codes[cells.places])


@dataclass(frozen=True)
class VectorCondition:
    """A condition on one column, as a model of feature vectors takes it.

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
        """Return a condition as feature vectors; `key` draws the mode of each number."""
        encodings = tuple(
            encoding for encoding in features.encodings if encoding.column == cells.name
        )
        alone = Features(Schema((cells.column,)), encodings)
        start = next(
            block.start for block in features.blocks if block.column == cells.name
        )
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
        """Refuse a value that no training row had, if `shares` of the options are known."""
        wanted_vectors = self.vectors[~self.cells.free]
        if shares is None or not len(wanted_vectors):
            return
        options = wanted_vectors.argmax(axis=1)
        unseen = np.flatnonzero(np.array(shares)[options] <= 0.0)
        if unseen.size:
            first = self.cells.values[~self.cells.free][unseen[:1]]
            labels, missing = self.cells.written(first, None)
            label = labels[0]
            if missing is not None and missing[0]:
                label = None
            raise UnseenValueError(
                f"given asks for column {self.name!r} to be {label!r}, which no row had that the "
                "model was trained on; ask for another"
            )

    def met(self, X: Matrix, rows: Ints, key: Key) -> Bools:
        """Return which vectors have the value that their row must have."""
        part = X[:, self.start : self.start + self.features.width]
        values = values_in(self.cells.column, self.features.decode(part, key=key))
        wanted = self.cells.values[rows]
        is_same = (values == wanted) | (np.isnan(values) & np.isnan(wanted))
        return np.asarray(is_same | self.cells.free[rows])


def shares_in(
    model: Generator, features: Features, column: Column, key: Key
) -> Sequence[float]:
    """Return how frequent each option of a column is, by the model or by rows that it draws."""
    shares = model.shares(column.name)
    if shares is not None:
        return shares
    X = model.sample(_PILOT_ROWS, key=fold_in(key, "look"))
    pilot = features.decode(X, key=fold_in(key, "look")).select([column.name])
    codes = values_in(column, pilot).astype(np.int64)
    return tuple(np.bincount(codes, minlength=options_of(column)).tolist())


def accepted(
    model: Generator,
    features: Features,
    count: int,
    conditions: Sequence[VectorCondition],
    *,
    tries: int,
    key: Key,
) -> Matrix:
    """Draw feature vectors that meet the conditions, and draw those again that do not.

    Only conditions that the model does not guarantee are checked.

    Args:
        model: What draws.
        features: Vectors to table and back.
        count: How many rows.
        conditions: What they must have, one entry per column that is given.
        tries: Rows that are drawn at most for each that is wanted.
        key: Everything random.

    Raises:
        InputError: Something is given that no training row had, or matching rows are too rare.
    """
    if tries < 1:
        raise InputError(f"tries={tries} must be 1 or more")
    for condition in conditions:
        condition.check(model.shares(condition.name))
    conditioned_on = _given(model, features, count, conditions)
    # A model that keeps what it is given needs no check of these columns.
    guaranteed = model.takes if model.keeps else frozenset()
    checked = [c for c in conditions if c.name not in guaranteed]

    X = np.zeros((count, features.width), dtype=np.float32)
    missed = np.arange(count)
    drawn_count = 0
    matching_count = 0
    while missed.size and drawn_count < max(tries * count, _LEAST):
        rows = missed
        if drawn_count:  # few rows are missed now: each is drawn several times
            rows = np.resize(missed, max(missed.size, _CHUNK))
        batch_key = fold_in(key, "rows", drawn_count)
        batch_vectors = None if conditioned_on is None else conditioned_on[rows]
        batch = model.sample(len(rows), key=batch_key, given=batch_vectors)
        fits = np.ones(len(rows), dtype=np.bool_)
        for condition in checked:
            fits &= condition.met(batch, rows, batch_key)
        X[rows[fits]] = batch[fits]
        missed = np.setdiff1d(missed, rows[fits])
        drawn_count += len(rows)
        matching_count += int(fits.sum())
    if missed.size:
        names = ", ".join(condition.name for condition in checked)
        share = matching_count / drawn_count
        raise InputError(
            f"given: {missed.size} of {count} rows were not met. Of {drawn_count:,} rows drawn "
            f"{matching_count:,} ({share:.2%}) matched in {names}. Give fewer columns or more "
            f"frequent values, or raise tries={tries}"
        )
    return X


def _given(
    model: Generator,
    features: Features,
    count: int,
    conditions: Sequence[VectorCondition],
) -> Matrix | None:
    """Return the vectors that the model itself is conditioned on, NaN wherever a row is free.

    None where it takes nothing of what is asked.
    """
    met_by_model = [c for c in conditions if c.name in model.takes]
    if not met_by_model:
        return None
    vectors = np.full((count, features.width), np.nan, dtype=np.float32)
    for condition in met_by_model:
        stop = condition.start + condition.features.width
        vectors[:, condition.start : stop] = condition.vectors
    return vectors
