"""The parts of a row's feature vector, and what a model's vectors say in them.

Tables as vectors of real numbers, and back, for neural models.

Every column but ids becomes blocks of a row's vector: a choice (one-hot) for what is categorical,
a number for what is continuous, both for a column that mixes spikes, gaps or modes with a
continuum. What is learned is plain data that goes to JSON and back unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import CapacityError, DataError, SchemaError
from siloweave.tables.bins import BINNED
from siloweave.tables.codes import Encoder, running
from siloweave.tables.columns import (
    blank,
    check_columns,
    check_rows,
    codes_of,
    counted_plan,
    declared_plan,
    grain_of,
    labels_of,
    options_of,
    typed,
    values_of,
    whole_range,
)
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.plans import (
    Categories,
    Floats,
    Numeric,
    Plan,
    Points,
    Settings,
    ascending,
    learned,
    ranked,
)
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

_CHUNK = 4096  # rows that are read at once, so that they stay in the processor's cache
_Ints = NDArray[np.int64]
_Reals = NDArray[np.floating]


@dataclass(frozen=True)
class Block:
    """Part of a row's vector.

    Args:
        column: The column that it belongs to.
        start: Where it starts in the vector.
        size: How many entries it has; 1 for a number.
        kind: ``number`` for one real number, ``choice`` for a one-hot choice among `size`.
    """

    column: str
    start: int
    size: int
    kind: Literal["number", "choice"]

    @property
    def stop(self) -> int:
        """Where the next block starts."""
        return self.start + self.size


def blocks_of(plans: Sequence[Plan]) -> tuple[Block, ...]:
    """Return the blocks of some plans, in order; a column's number comes before its choices."""
    blocks: list[Block] = []
    start = 0
    for plan in plans:
        if plan.number:
            blocks.append(Block(plan.column, start, 1, "number"))
            start += 1
        for size in plan.sizes:
            blocks.append(Block(plan.column, start, size, "choice"))
            start += size
    return tuple(blocks)


def read_vectors(vectors: _Reals, plans: Sequence[Plan], key: Key) -> list[tuple[_Ints, Floats]]:
    """Read what vectors choose, and their numbers.

    Args:
        vectors: (rows, width) real numbers.
        plans: The plans whose blocks they are made of.
        key: Which of several equal largest entries is chosen.

    Returns:
        For each plan the option of each row (the rank, for digits; 0 where there is no choice)
        and its number (0 where there is none).

    Raises:
        DataError: When an entry is NaN or infinite; says in which column.
    """
    _check_finite(vectors, plans)
    options = [np.zeros(len(vectors), dtype=np.int64) for _ in plans]
    numbers = [np.zeros(len(vectors)) if plan.number else np.zeros(0) for plan in plans]
    randoms = [generator(fold_in(key, "decode", plan.column)) for plan in plans]
    blocks = blocks_of(plans)
    for start in range(0, len(vectors), _CHUNK):
        rows = slice(start, start + _CHUNK)
        chunk = np.array(vectors[rows].T, order="C", copy=True)
        parts = iter([chunk[block.start : block.stop] for block in blocks])
        for i, plan in enumerate(plans):
            if plan.number:
                numbers[i][rows] = next(parts)[0]
            if plan.sizes:
                options[i][rows] = _chosen(plan, [next(parts) for _ in plan.sizes], randoms[i])
    return list(zip(options, numbers, strict=True))


def _check_finite(vectors: _Reals, plans: Sequence[Plan]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(vectors.sum()):
            return
    for block in blocks_of(plans):
        part = vectors[:, block.start : block.stop]
        wild = int(np.count_nonzero(~np.isfinite(part).all(axis=1)))
        if wild:
            raise DataError(
                f"values: {wild} rows are NaN or infinite in the {block.kind} of column "
                f"{block.column!r}; a model that makes them has diverged"
            )


def _chosen(plan: Plan, parts: list[_Reals], random: np.random.Generator) -> _Ints:
    """The number that the digits make, each the largest among those that some category has."""
    ranks = np.zeros(parts[0].shape[1], dtype=np.int64)
    for block, part in enumerate(parts):
        if isinstance(plan, Categories) and len(parts) > 1:
            limits = plan.limits(ranks, block)
            tight = np.flatnonzero(limits < len(part) - 1)
            beyond = np.arange(len(part))[:, None] > limits[tight]
            part[:, tight] = np.where(beyond, -np.inf, part[:, tight])
        ranks = ranks * len(part) + _largest(part, random)
    return ranks


def _largest(part: _Reals, random: np.random.Generator) -> _Ints:
    """Where each column's largest entry stands; one of them at random where there are several."""
    top = part == part.max(axis=0)
    found: _Ints = top.argmax(axis=0)
    tied = np.flatnonzero(np.count_nonzero(top, axis=0) > 1)
    if len(tied):
        drawn = random.random((len(part), len(tied)))
        found[tied] = np.where(top[:, tied], drawn, -1.0).argmax(axis=0)
    return found


_VERSION = 1
_MOST_BYTES = 2**34
_MOST_OPTIONS = 256  # of a column of numbers: modes, frequent values, and a missing one


class _File(msgspec.Struct, frozen=True):
    format: Literal["siloweave-features"]
    version: int
    columns: tuple[Column, ...]
    plans: tuple[Plan, ...]


@dataclass(frozen=True)
class Features:
    """How a table's rows become vectors, and back; made by `fit`, `from_counts` or `declared`.

    * A categorical or boolean column is one choice; ``missing`` adds a last option. With more than
      ``wide`` options it is the digits of the category's rank by frequency, most significant
      first, two or more blocks of at most 128 options: 100,000 categories take 140 entries, not
      100,000. Digits are decoded from the left, each among those that some category has after the
      digits before it, so every vector decodes to a category.
    * A column of integers, numbers or moments is a number. Values that hold 2 % of the rows or
      more (and ten times their even share) are spikes, with an option of their own; so is
      ``missing``, and so is everything where there are at most 20 distinct values. Where a spike
      or nothing is chosen the number is 0.
    * Columns of kind ``id`` are left out and come back as running numbers.

    Numbers are float32, so a value comes back within about a millionth of its distance to the
    neighbours that were seen; on decode it is clipped to the schema's bounds and put on the
    column's grain (whole, as many decimals as every fitted value had, or one of the fitted values
    where each occurs ten times on average).

    Args:
        schema: Facts about every column; numbers and datetimes need both bounds.
        plans: What becomes of each column but ids, in the schema's order.

    Example:
        >>> schema = Schema((Column("sex", "categorical", ("f", "m"), missing=True),))
        >>> table = Table.from_columns({"sex": (np.array(["m", ""]), np.array([False, True]))})
        >>> features = Features.fit(table, schema, key=0)
        >>> features.encode(table, key=0).tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    schema: Schema
    plans: tuple[Plan, ...]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The parts of the vector, in order; a column's number comes before its choices."""
        return blocks_of(self.plans)

    @property
    def width(self) -> int:
        """How many entries a row's vector has."""
        return self.blocks[-1].stop if self.blocks else 0

    @classmethod
    def fit(
        cls,
        table: Table,
        schema: Schema,
        *,
        numeric: Numeric = "quantile",
        key: Key,
        spike_share: float = 0.02,
        few_values: int = 20,
        wide: int = 256,
    ) -> Features:
        """Learn encoders from rows; nothing here is private.

        Args:
            table: At least one row of the schema's columns.
            schema: Facts about every column; numbers and datetimes need both bounds.
            numeric: What a continuum becomes: ``quantile``, its normal score (values that occur
                often are spread over their share of the distribution); ``modes``, a mode of a
                variational mixture and the place in it; ``standard``, deviations from the mean.
            key: No fit draws from it as yet: mixtures start from quantiles and use all rows.
            spike_share: Share of rows that makes a value a spike, above 0.
            few_values: Up to so many distinct numbers are a plain choice, at least 1.
            wide: Categorical columns with more options become digits, at least 1.

        Raises:
            DataError: When the table has no rows.
            SchemaError: When rows do not fit the schema, or a bound is not declared.
        """
        settings = _settings(numeric, spike_share, few_values, wide)
        check_columns(schema, table)
        check_rows(table)
        plans: list[Plan] = []
        for column in _coded(schema):
            if column.kind not in BINNED:
                options = options_of(column)
                counts = np.bincount(codes_of(column, table), minlength=options)
                plans.append(ranked(column.name, counts.astype(np.float64), options, wide))
                continue
            plan = blank(column)
            values, gone = values_of(column, plan, table)
            seen, counts = np.unique(values[~gone], return_counts=True)
            plan = msgspec.structs.replace(plan, grain=plan.grain or grain_of(seen))
            points = Points(seen, counts.astype(np.float64))
            plans.append(learned(plan, whole_range(plan, points, few_values), settings))
        return cls(schema, tuple(plans))

    @classmethod
    def declared(
        cls,
        schema: Schema,
        *,
        bins: int = 1,
        spikes: Mapping[str, Sequence[float]] | None = None,
        few_values: int = 20,
        wide: int = 256,
    ) -> Features:
        """Make encoders of public facts alone.

        **Guarantee.** No row is read: the result depends on the schema and the arguments only, so
        a private fit owes nothing for it as long as these are public.

        Args:
            schema: Facts about every column; numbers and datetimes need both bounds.
            bins: With 1 a number lies between -1 (``low``) and 1 (``high``); with more it is a
                choice of an equal-width bin between the bounds and the place in it, -1 to 1.
            spikes: Values of columns of integers or continuous numbers that are known to be
                frequent, each an option of its own, such as ``{"capital-gain": [0]}``.
            few_values: Whole numbers with at most so many values are a plain choice.
            wide: Categorical columns with more options become digits, in the schema's order.

        Raises:
            DataError: When an argument is out of range, or a spike is out of bounds.
            SchemaError: When a bound is not declared.

        Example:
            >>> schema = Schema((Column("age", "integer", low=0, high=100),))
            >>> features = Features.declared(schema)
            >>> table = Table.from_columns({"age": (np.array([0, 75]), None)})
            >>> features.encode(table, key=0).tolist()
            [[-1.0], [0.5]]
        """
        settings = _settings("standard", 1.0, few_values, wide)
        if bins < 1:
            raise DataError(f"bins={bins!r} must be 1 or more")
        spikes = spikes or {}
        _check_names("spikes", spikes, [c.name for c in _coded(schema) if c.kind in BINNED])
        plans = [
            declared_plan(column, bins, spikes.get(column.name, ()), settings)
            for column in _coded(schema)
        ]
        return cls(schema, tuple(plans))

    @classmethod
    def from_counts(
        cls,
        encoder: Encoder,
        counts: Mapping[str, NDArray[np.integer] | NDArray[np.floating]],
        *,
        numeric: Numeric = "modes",
        spike_share: float = 0.02,
        few_values: int = 20,
        wide: int = 256,
    ) -> Features:
        """Learn encoders from counts over an encoder's codes, exact or noisy.

        Parties that do not pool rows share sums of counts; the result is the same whoever held
        the rows.

        **Guarantee.** The result depends on the schema, the encoder's bins and the counts only:
        it is post-processing of them, and as private as they are.

        Args:
            encoder: Its bins are what was counted.
            counts: Column name to one count per code (``encoder.domain``); a noisy count below 0
                counts as 0. A column without counts is encoded as by `declared`.
            numeric: What a continuum becomes, as in `fit`.
            spike_share: As in `fit`; spikes are found where each bin holds a single value, and
                at 0 and the bounds where bins are narrow (`columns.landmarks`).
            few_values: As in `fit`.
            wide: As in `fit`.

        Raises:
            DataError: When counts are of no such column, of another length, or not finite.

        Example:
            >>> encoder = Encoder(Schema((Column("age", "integer", low=0, high=99),)), bins=20)
            >>> counts = {"age": np.array([0.0, 9.1, -2.0, *[4.0] * 17])}
            >>> Features.from_counts(encoder, counts, numeric="quantile").width
            1
        """
        settings = _settings(numeric, spike_share, few_values, wide)
        _check_names("counts", counts, encoder.domain.names)
        plans: list[Plan] = []
        for column in _coded(encoder.schema):
            weights = _weights(encoder, column.name, counts.get(column.name))
            if weights is None:
                plans.append(declared_plan(column, 1, (), settings))
            elif column.kind not in BINNED:
                plans.append(ranked(column.name, weights, len(weights), wide))
            else:
                plans.append(counted_plan(column, weights, settings))
        return cls(encoder.schema, tuple(plans))

    def cover(self, schema: Schema) -> bool:
        """Whether rows of a schema can be encoded whatever they hold, in vectors of bounded width.

        A party asks this before it encodes by features that it was told: whether its rows fit, or
        become finite numbers, or how many of them fit into memory, would tell of them.
        """
        if self.schema != schema or [p.column for p in self.plans] != [
            column.name for column in _coded(schema)
        ]:
            return False
        return all(_covers(plan, schema[plan.column]) for plan in self.plans)

    def encode(self, table: Table, *, key: Key) -> NDArray[np.float32]:
        """Turn rows into vectors.

        Args:
            table: Rows of the schema's columns.
            key: Which mode a value is said to come from, and where in its interval of the normal
                distribution a frequent value lies.

        Returns:
            (rows, width), also where there are no rows; a number that was never fitted counts as
            the nearest that was.

        Raises:
            CapacityError: When the vectors would take more than 16 GiB.
            DataError: When the table holds infinite numbers.
            SchemaError: When rows hold a value outside the schema.
        """
        check_columns(self.schema, table)
        _check_size(table.num_rows, self.width)
        made = np.zeros((table.num_rows, self.width), dtype=np.float32)
        rows = np.arange(table.num_rows)
        blocks = iter(self.blocks)
        for plan in self.plans:
            column = self.schema[plan.column]
            if isinstance(plan, Categories):
                chosen = plan.digits(codes_of(column, table))
            else:
                values, gone = values_of(column, plan, table)
                random = generator(fold_in(key, "encode", column.name))
                options, numbers = plan.split(values, gone, random)
                chosen = [options] if plan.options else []
                if plan.number:
                    made[:, next(blocks).start] = numbers
            for digit in chosen:
                made[rows, next(blocks).start + digit] = 1.0
        return made

    def decode(self, values: NDArray[np.floating], *, key: Key, like: Table | None = None) -> Table:
        """Turn vectors into rows.

        Args:
            values: (rows, width) real numbers; a choice is its block's largest entry.
            key: Which of several equal largest entries is chosen.
            like: The result's frame and types are this table's; a categorical type lists the
                schema's categories, whatever the table's own type lists.

        Returns:
            A table with the schema's columns in order; ids run from 1.

        Raises:
            DataError: When the shape is wrong or an entry is NaN or infinite.
        """
        vectors = self._checked(values)
        found: dict[str, tuple[Any, NDArray[np.bool_] | None]] = {}
        read = read_vectors(vectors, self.plans, key)
        for plan, (options, numbers) in zip(self.plans, read, strict=True):
            column = self.schema[plan.column]
            if isinstance(plan, Categories):
                found[column.name] = labels_of(column, plan.codes(options))
                continue
            joined, gone = plan.join(options, numbers)
            made = typed(column, plan, joined, like)
            found[column.name] = (made, gone if plan.missing else None)
        for column in self.schema.columns:
            if column.kind == "id":
                found[column.name] = (running(len(vectors), column.name, like), None)
        categories = {column.name: column.categories for column in self.schema.columns}
        in_order = {name: found[name] for name in self.schema.names}
        return Table.from_columns(in_order, like, categories)

    def _checked(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        vectors = np.asarray(values)
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise DataError(
                f"values has shape {vectors.shape}; these features decode (rows, {self.width})"
            )
        if vectors.dtype.kind != "f":
            raise DataError(f"values has type {vectors.dtype}; give real numbers")
        return vectors

    def to_json(self) -> str:
        """Return the features as JSON text, with a version; `from_json` reads it back."""
        file = _File("siloweave-features", _VERSION, self.schema.columns, self.plans)
        return msgspec.json.encode(file).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Features:
        """Read features that `to_json` wrote.

        Raises:
            SchemaError: When the text is not such JSON, names the field that is wrong.
        """
        try:
            file = msgspec.json.decode(text, type=_File)
        except msgspec.DecodeError as error:
            raise SchemaError(f"not a features file: {error}") from None
        if file.version != _VERSION:
            raise SchemaError(
                f"features file version {file.version}; this siloweave reads {_VERSION}: "
                "write it again with this version"
            )
        return cls(Schema(file.columns), file.plans)


def _coded(schema: Schema) -> list[Column]:
    return [column for column in schema.columns if column.kind != "id"]


def _covers(plan: Plan, column: Column) -> bool:
    if isinstance(plan, Categories):
        if column.kind in BINNED or plan.options != options_of(column):
            return False
        every = list(range(plan.options))
        sized = min(plan.sizes, default=0) >= 1 and prod(plan.sizes) >= plan.options
        return (
            sized
            and sum(plan.sizes) <= plan.options
            and (not plan.order or sorted(plan.order) == every)
        )
    if column.kind not in BINNED:
        return False
    own = blank(column)
    if any(getattr(plan, n) != getattr(own, n) for n in ("low", "high", "origin", "missing")):
        return False
    if plan.options > _MOST_OPTIONS or not ascending(plan.spikes):
        return False
    return bool(plan.spikes) if plan.scale is None else plan.scale.takes(plan.low, plan.high)


def _settings(numeric: Numeric, spike_share: float, few_values: int, wide: int) -> Settings:
    if numeric not in get_args(Numeric):
        known = ", ".join(get_args(Numeric))
        raise DataError(f"numeric={numeric!r} is unknown; use one of {known}")
    if not spike_share > 0:
        raise DataError(f"spike_share={spike_share!r} must be above 0; 1.1 makes no spikes")
    for name, value in (("few_values", few_values), ("wide", wide)):
        if value < 1:
            raise DataError(f"{name}={value!r} must be 1 or more")
    return Settings(numeric, spike_share, few_values, wide)


def _check_size(rows: int, width: int) -> None:
    needed = 4 * rows * width
    if needed > _MOST_BYTES:
        raise CapacityError(
            f"{rows} rows of {width} numbers take {needed / 2**30:.0f} GiB; encode a sample of the "
            "rows, or lower wide so that more columns become digits"
        )


def _check_names(argument: str, given: Iterable[str], known: Sequence[str]) -> None:
    wrong = sorted(set(given) - set(known))
    if wrong:
        raise DataError(f"{argument} names {', '.join(wrong)}; it may name only {', '.join(known)}")


def _weights(
    encoder: Encoder, name: str, counts: NDArray[np.integer] | NDArray[np.floating] | None
) -> Floats | None:
    if counts is None:
        return None
    weights = np.asarray(counts, dtype=np.float64)
    size = encoder.domain.size_of(name)
    if weights.shape != (size,):
        raise DataError(
            f"counts of column {name!r} have shape {weights.shape}; its codes are {size}"
        )
    if not np.isfinite(weights).all():
        raise DataError(f"counts of column {name!r} are not all finite numbers")
    return np.maximum(weights, 0.0)
