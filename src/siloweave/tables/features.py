"""Tables as vectors of real numbers, and back, for neural models.

Every column but ids becomes blocks of a row's vector: a one-hot categorical for what is
categorical, a number for what is continuous, both for a column that mixes spikes, gaps or modes
with a continuum. What is learned is plain data that goes to JSON and back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import CapacityError, DataError
from siloweave.tables.bins import BINNED
from siloweave.tables.codes import Encoder, codes_of, labels_of, options_of, running
from siloweave.tables.encodings import (
    CategoricalEncoding,
    ColumnEncoding,
    Floats,
    Numeric,
    Points,
    ascending,
    check_numeric,
    counted,
    declared,
    encoding_of_bounds,
    encoding_of_options,
    learned,
    resolution_of,
)
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.read import Table
from siloweave.tables.schema import VERSION, Column, Schema, check_columns, versioned

_CHUNK = 4096  # rows that are read at once, so that they stay in the processor's cache
_Ints = NDArray[np.int64]
_Reals = NDArray[np.floating]


@dataclass(frozen=True)
class Block:
    """Part of a row's vector: a real ``number``, or a ``categorical`` of `size` one-hot options."""

    column: str
    start: int
    size: int
    kind: Literal["number", "categorical"]

    @property
    def stop(self) -> int:
        """Where the next block starts."""
        return self.start + self.size


def _blocks(encodings: Sequence[ColumnEncoding]) -> tuple[Block, ...]:
    """The blocks of some columns, in order; a column's number comes before its categoricals."""
    blocks: list[Block] = []
    start = 0
    for encoding in encodings:
        if encoding.number:
            blocks.append(Block(encoding.column, start, 1, "number"))
            start += 1
        for size in encoding.sizes:
            blocks.append(Block(encoding.column, start, size, "categorical"))
            start += size
    return tuple(blocks)


def _read_vectors(
    vectors: _Reals, encodings: Sequence[ColumnEncoding], key: Key
) -> list[tuple[_Ints, Floats]]:
    """Read which option each row has of every column, and its number.

    The option is the rank for digits, and 0 without a categorical; a column without a number
    has 0. The key decides which of several equal largest entries is taken.
    """
    blocks = _blocks(encodings)
    _check_finite(vectors, blocks)
    options = [np.zeros(len(vectors), dtype=np.int64) for _ in encodings]
    numbers = [np.zeros(len(vectors)) if one.number else np.zeros(0) for one in encodings]
    randoms = [generator(fold_in(key, "decode", one.column)) for one in encodings]
    for start in range(0, len(vectors), _CHUNK):
        rows = slice(start, start + _CHUNK)
        chunk = np.array(vectors[rows].T, order="C", copy=True)
        parts = iter([chunk[block.start : block.stop] for block in blocks])
        for i, one in enumerate(encodings):
            if one.number:
                numbers[i][rows] = next(parts)[0]
            if one.sizes:
                options[i][rows] = _chosen(one, [next(parts) for _ in one.sizes], randoms[i])
    return list(zip(options, numbers, strict=True))


def _check_finite(vectors: _Reals, blocks: Sequence[Block]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(vectors.sum()):
            return
    for block in blocks:
        part = vectors[:, block.start : block.stop]
        if wild := int(np.count_nonzero(~np.isfinite(part).all(axis=1))):
            raise DataError(
                f"values: {wild} rows are NaN or infinite in the {block.kind} part of column "
                f"{block.column!r}; a model that makes them has diverged"
            )


def _chosen(encoding: ColumnEncoding, parts: list[_Reals], random: np.random.Generator) -> _Ints:
    """The number that the digits make, each the largest among those that some category has."""
    ranks = np.zeros(parts[0].shape[1], dtype=np.int64)
    for block, part in enumerate(parts):
        if isinstance(encoding, CategoricalEncoding) and len(parts) > 1:
            limits = encoding.limits(ranks, block)
            tight = np.flatnonzero(limits < len(part) - 1)
            beyond = np.arange(len(part))[:, None] > limits[tight]
            part[:, tight] = np.where(beyond, -np.inf, part[:, tight])
        ranks = ranks * len(part) + _largest(part, random)
    return ranks


def _largest(part: _Reals, random: np.random.Generator) -> _Ints:
    """The position of each column's largest entry; one of them at random if there are several."""
    top = part == part.max(axis=0)
    found: _Ints = top.argmax(axis=0)
    tied = np.flatnonzero(np.count_nonzero(top, axis=0) > 1)
    if len(tied):
        drawn = random.random((len(part), len(tied)))
        found[tied] = np.where(top[:, tied], drawn, -1.0).argmax(axis=0)
    return found


_MOST_BYTES = 2**34
_MOST_OPTIONS = 256  # of a column of numbers: modes, frequent values, and a missing one


class _File(msgspec.Struct, frozen=True):
    format: Literal["siloweave-features"]
    version: int
    columns: tuple[Column, ...]
    encodings: tuple[ColumnEncoding, ...]


@dataclass(frozen=True)
class Features:
    """How a table's rows become vectors, and back; made by `fit`, `from_counts` or `declared`.

    * A categorical or boolean column is one categorical; ``missing`` adds a last option. With more
      than 256 options it is the digits of the category's rank by frequency, most significant
      first, two or more blocks of at most 128 options: 100,000 categories take 140 entries, not
      100,000. Digits are decoded from the left, each among those that some category has after the
      digits before it, so every vector decodes to a category.
    * A column of integers, numbers or datetimes is a number. Values that hold 2 % of the rows or
      more (and ten times their even share) are spikes, with an option of their own; so is
      ``missing``, and so is everything where there are at most 20 distinct values. Where a spike
      or a missing value is chosen the number is 0.
    * Columns of kind ``id`` are left out and come back as running numbers.

    Numbers are float32, so a value comes back within about a millionth of its distance to the
    neighbours that were seen; on decode it is clipped to the schema's bounds and rounded to the
    column's resolution (whole, as many decimals as every fitted value had, or one of the fitted
    values where each occurs ten times on average).

    Example:
        >>> schema = Schema((Column("sex", "categorical", ("f", "m"), missing=True),))
        >>> table = Table.from_columns({"sex": (np.array(["m", ""]), np.array([False, True]))})
        >>> features = Features.fit(table, schema, key=0)
        >>> features.encode(table, key=0).tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """

    schema: Schema
    encodings: tuple[ColumnEncoding, ...]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The parts of the vector, in order; a column's number comes before its categoricals."""
        return _blocks(self.encodings)

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
    ) -> Features:
        """Learn encoders from rows; nothing here is private.

        Args:
            table: At least one row of the schema's columns.
            schema: Facts about every column; numbers and datetimes need both bounds.
            numeric: What a continuum becomes: ``quantile``, its normal score (values that occur
                often are spread over their share of the distribution); ``modes``, a mode of a
                variational mixture and the place in it; ``standard``, deviations from the mean.
            key: No fit draws from it as yet: mixtures start from quantiles and use all rows.

        Raises:
            DataError: When the table has no rows.
            SchemaError: When rows do not fit the schema, or a bound is not declared.
        """
        check_numeric(numeric)
        check_rows(schema, table)
        encodings: list[ColumnEncoding] = []
        for column in schema.coded:
            if column.kind not in BINNED:
                options = options_of(column)
                weights = np.bincount(codes_of(column, table), minlength=options).astype(np.float64)
                encodings.append(encoding_of_options(column.name, weights, options))
                continue
            bounds = encoding_of_bounds(column)
            values, gone = bounds.values_of(column, table)
            seen, counts = np.unique(values[~gone], return_counts=True)
            bounds = msgspec.structs.replace(
                bounds, resolution=bounds.resolution or resolution_of(seen)
            )
            points = Points(seen, counts.astype(np.float64))
            points = points.with_every_whole_number(bounds)
            encodings.append(learned(bounds, points, numeric))
        return cls(schema, tuple(encodings))

    @classmethod
    def declared(cls, schema: Schema) -> Features:
        """Make encoders of public facts alone: a number lies between -1 (``low``) and 1 (``high``).

        **Guarantee.** No row is read: the result depends on the schema only, so a private fit owes
        nothing for it as long as the schema is public.

        Raises:
            SchemaError: When a bound of a number or datetime is not declared.

        Example:
            >>> schema = Schema((Column("age", "integer", low=0, high=100),))
            >>> table = Table.from_columns({"age": (np.array([0, 75]), None)})
            >>> Features.declared(schema).encode(table, key=0).tolist()
            [[-1.0], [0.5]]
        """
        return cls(schema, tuple(declared(column) for column in schema.coded))

    @classmethod
    def from_counts(
        cls,
        encoder: Encoder,
        counts: Mapping[str, NDArray[np.integer] | NDArray[np.floating]],
        *,
        numeric: Numeric = "modes",
    ) -> Features:
        """Learn encoders from counts over an encoder's codes, exact or noisy.

        Parties that do not pool rows share sums of counts; the result is the same whoever held
        the rows. Spikes are found where each bin holds a single value, and at 0 and the bounds
        where bins are narrow (`bins.spike_bins`).

        **Guarantee.** The result depends on the schema, the encoder's bins and the counts only:
        it is post-processing of them, and as private as they are.

        Args:
            encoder: Its bins are what was counted.
            counts: Column name to one count per code (``encoder.domain``); a noisy count below 0
                counts as 0. A column without counts is encoded as by `declared`.
            numeric: What a continuum becomes, as in `fit`.

        Raises:
            DataError: When counts are of no such column, of another length, or not finite.
        """
        check_numeric(numeric)
        known = encoder.domain.names
        if wrong := sorted(set(counts) - set(known)):
            raise DataError(f"counts names {', '.join(wrong)}; it may name only {', '.join(known)}")
        encodings: list[ColumnEncoding] = []
        for column in encoder.schema.coded:
            if column.name not in counts:
                encodings.append(declared(column))
                continue
            weights = _weights(encoder, column.name, counts[column.name])
            if column.kind in BINNED:
                encodings.append(counted(column, weights, numeric))
            else:
                encodings.append(encoding_of_options(column.name, weights, len(weights)))
        return cls(encoder.schema, tuple(encodings))

    def cover(self, schema: Schema) -> bool:
        """Whether rows of a schema can be encoded whatever they hold, in vectors of bounded width.

        A party asks this before it encodes by features that it received: whether its rows fit, or
        become finite numbers, or how many of them fit into memory, would reveal them.
        """
        names = [column.name for column in schema.coded]
        if self.schema != schema or [one.column for one in self.encodings] != names:
            return False
        return all(_covers(one, schema[one.column]) for one in self.encodings)

    def encode(self, table: Table, *, key: Key) -> NDArray[np.float32]:
        """Turn rows into (rows, width) float32; a number never fitted counts as the nearest.

        Args:
            table: Rows of the schema's columns.
            key: Which mode a value is said to come from, and where in its interval of the normal
                distribution a frequent value lies.

        Raises:
            CapacityError: When the vectors would take more than 16 GiB.
            DataError: When the table holds infinite numbers.
            SchemaError: When rows hold a value outside the schema.
        """
        check_columns(self.schema, table)
        needed = 4 * table.num_rows * self.width
        if needed > _MOST_BYTES:
            raise CapacityError(
                f"{table.num_rows} rows of {self.width} numbers take {needed / 2**30:.0f} GiB; "
                "encode a sample of the rows"
            )
        made = np.zeros((table.num_rows, self.width), dtype=np.float32)
        rows = np.arange(table.num_rows)
        blocks = iter(self.blocks)
        for encoding in self.encodings:
            column = self.schema[encoding.column]
            if isinstance(encoding, CategoricalEncoding):
                chosen = encoding.digits(codes_of(column, table))
            else:
                values, gone = encoding.values_of(column, table)
                random = generator(fold_in(key, "encode", column.name))
                options, numbers = encoding.split(values, gone, random)
                chosen = [options] if encoding.options else []
                if encoding.number:
                    made[:, next(blocks).start] = numbers
            for digit in chosen:
                made[rows, next(blocks).start + digit] = 1.0
        return made

    def decode(self, values: NDArray[np.floating], *, key: Key, like: Table | None = None) -> Table:
        """Turn vectors into a table with the schema's columns in order; ids run from 1.

        Args:
            values: (rows, width) real numbers; of a categorical the largest entry counts.
            key: Which of several equal largest entries is taken.
            like: The result's frame and types are this table's; a categorical type lists the
                schema's categories, whatever the table's own type lists.

        Raises:
            DataError: When the shape is wrong or an entry is NaN or infinite.
        """
        vectors = np.asarray(values)
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise DataError(
                f"values has shape {vectors.shape}; these features decode (rows, {self.width})"
            )
        if vectors.dtype.kind != "f":
            raise DataError(f"values has type {vectors.dtype}; give real numbers")
        found: dict[str, tuple[Any, NDArray[np.bool_] | None]] = {}
        read = _read_vectors(vectors, self.encodings, key)
        for encoding, (options, numbers) in zip(self.encodings, read, strict=True):
            column = self.schema[encoding.column]
            if isinstance(encoding, CategoricalEncoding):
                found[column.name] = labels_of(column, encoding.codes(options))
                continue
            joined, gone = encoding.join(options, numbers)
            made = encoding.typed(column, joined, like)
            found[column.name] = (made, gone if encoding.missing else None)
        for column in self.schema.columns:
            if column.kind == "id":
                found[column.name] = (running(len(vectors), column.name, like), None)
        categories = {column.name: column.categories for column in self.schema.columns}
        in_order = {name: found[name] for name in self.schema.names}
        return Table.from_columns(in_order, like, categories)

    def to_json(self) -> str:
        """Return the features as JSON text, with a version; `from_json` reads it back."""
        file = _File("siloweave-features", VERSION, self.schema.columns, self.encodings)
        return msgspec.json.encode(file).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Features:
        """Read features that `to_json` wrote; SchemaError names the field that is wrong."""
        file = versioned(text, _File, "a features file")
        return cls(Schema(file.columns), file.encodings)


def check_rows(schema: Schema, table: Table) -> None:
    """Raise SchemaError for a table of other columns than the schema's, DataError without rows."""
    check_columns(schema, table)
    if table.num_rows == 0:
        raise DataError("the table has no rows; features need at least one")


def _covers(encoding: ColumnEncoding, column: Column) -> bool:
    if isinstance(encoding, CategoricalEncoding):
        if column.kind in BINNED or encoding.options != options_of(column):
            return False
        sizes, every = encoding.sizes, list(range(encoding.options))
        sized = min(sizes, default=0) >= 1 and sum(sizes) <= encoding.options <= prod(sizes)
        return sized and (not encoding.order or sorted(encoding.order) == every)
    if column.kind not in BINNED:
        return False
    own = encoding_of_bounds(column)
    if any(getattr(encoding, n) != getattr(own, n) for n in ("low", "high", "origin", "missing")):
        return False
    if encoding.options > _MOST_OPTIONS or not ascending(encoding.spikes):
        return False
    if encoding.scale is None:
        return bool(encoding.spikes)
    return encoding.scale.takes(encoding.low, encoding.high)


def _weights(encoder: Encoder, name: str, counts: NDArray[Any]) -> Floats:
    weights = np.asarray(counts, dtype=np.float64)
    size = encoder.domain.size_of(name)
    if weights.shape != (size,):
        raise DataError(
            f"counts of column {name!r} have shape {weights.shape}; its codes are {size}"
        )
    if not np.isfinite(weights).all():
        raise DataError(f"counts of column {name!r} are not all finite numbers")
    return np.maximum(weights, 0.0)
