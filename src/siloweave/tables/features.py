"""Tables as vectors of real numbers, and back, for neural models.

Every column but ids becomes blocks of a row's vector: a one-hot categorical for what is
categorical, a number for what is continuous, both for a column that mixes spikes, gaps or modes
with a continuum. What is learned is plain data that goes to JSON and back unchanged. A `Layout`
says which entries are numbers and which are options; categoricals of equal size stand side by side
in it, so that a column of 3 and a column of 40 categories need no padding and 300 binary columns
are one array.

`OneWay` is how the values of single columns are distributed, as plain data that drawn rows can be
held to. Categories are themselves; numbers and datetimes are cut at quantiles, and where a value is
frequent it has a cell of its own. What is rare is one cell, so that no cell describes a few rows.
Numbers whose distribution is far from the known one are moved, in their order, until it is that
one.

Sources:
    Quantile mapping: Panofsky & Brier 1968, *Some applications of statistics to meteorology*; on
    the line no map to that distribution moves less (Villani 2003, *Topics in optimal
    transportation*, theorem 2.18).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import CapacityError, DataError, InputError, count_of
from siloweave.tables.arrays import Bools, Floats, Ints, Matrix
from siloweave.tables.bins import as_written, with_decimals
from siloweave.tables.cells import (
    codes_of,
    labels_of,
    missing_cells,
    numbers_of,
    options_of,
)
from siloweave.tables.codes import Encoder
from siloweave.tables.column import Category, Column
from siloweave.tables.encodings import (
    CategoricalEncoding,
    ColumnEncoding,
    LinkedEncoding,
    Numeric,
    NumericEncoding,
    Points,
    ascending,
    check_numeric,
    counted,
    declared,
    encoding_of_bounds,
    encoding_of_options,
    learned,
    resolution_of,
    rounded,
)
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.links import holds, with_links
from siloweave.tables.schema import VERSION, Schema, check_columns, versioned
from siloweave.tables.table import Table

# So many rows are read at once, so that they stay in the processor's cache.
_CHUNK = 4096
_MOST_BYTES = 2**34
# Of a column of numbers: modes, frequent values, and a missing one.
_MOST_OPTIONS = 256
_Reals = NDArray[np.floating]
_Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Block:
    """Part of a row's vector: a real ``number``, or a ``categorical`` of `size` one-hot options."""

    column: str
    start: int
    size: int
    kind: Literal["number", "categorical"]

    @property
    def stop(self) -> int:
        """The place in the vector where the next block starts."""
        return self.start + self.size


class SphereCode(NamedTuple):
    """The place of a categorical's vector among a row's numbers, see `sphere_codes`."""

    start: int
    dimensions: int
    options: int


SphereCodes = tuple[SphereCode, ...]
"""All of a row's; they do not overlap."""


@dataclass(frozen=True)
class Layout:
    """The blocks of a feature vector; models order them: numbers, then categoricals by size."""

    blocks: tuple[Block, ...]
    sphere_codes: SphereCodes = ()

    @cached_property
    def width(self) -> int:
        """Length of a feature vector."""
        stops = [block.stop for block in self.blocks]
        return max(stops, default=0)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The position of every number in the feature vector."""
        return tuple(b.start for b in self.blocks if b.kind == "number")

    @cached_property
    def categoricals(self) -> tuple[Block, ...]:
        """The blocks that are categoricals, smallest first."""
        categoricals = [b for b in self.blocks if b.kind == "categorical"]
        return tuple(sorted(categoricals, key=lambda b: b.size))

    @cached_property
    def groups(self) -> tuple[tuple[int, int], ...]:
        """The runs of categoricals of equal size, as (how many, of which size)."""
        sizes = [b.size for b in self.categoricals]
        distinct = sorted(set(sizes))
        return tuple((sizes.count(size), size) for size in distinct)

    def check(self, X: Matrix, what: str = "X", *, least: int = 1) -> Matrix:
        """Refuse a matrix whose rows are not such feature vectors.

        Raises:
            InputError: For another shape, too few rows, NaN or infinities, or a categorical that is
                not one-hot; the message names the column.
        """
        X = np.asarray(X, dtype=np.float32)
        if X.ndim != 2 or X.shape[1] != self.width:
            raise InputError(
                f"{what} has shape {X.shape}, but its blocks need (rows, {self.width}): encode the "
                "table with the features these blocks belong to"
            )
        if len(X) < least:
            raise InputError(f"{what} has no rows: give at least one")
        for block in self.blocks:
            part = X[:, block.start : block.stop]
            is_finite = np.isfinite(part).all(1)
            if not is_finite.all():
                row = int(np.argmin(is_finite))
                raise InputError(
                    f"{what} is not finite in column {block.column!r}, row {row}: fill or encode "
                    "missing values before fitting"
                )
            if block.kind == "categorical" and not _is_one_hot(part):
                raise InputError(
                    f"{what} is not one-hot in column {block.column!r}: each row needs one 1 and "
                    f"{block.size - 1} times 0"
                )
        return X

    def split(self, X: Matrix) -> tuple[Matrix, _Codes]:
        """Return the numbers (n, d), and the option of each categorical (n, c), in layout order."""
        numbers = np.ascontiguousarray(X[:, list(self.numbers)])
        codes = np.zeros((len(X), len(self.categoricals)), np.int32)
        for place, block in enumerate(self.categoricals):
            codes[:, place] = X[:, block.start : block.stop].argmax(1)
        return numbers, codes

    def join(self, numbers: Matrix, codes: _Codes, width: int | None = None) -> Matrix:
        """Undo `split`: return one-hot rows, with zeros where `width` leaves room for others."""
        X = np.zeros((len(numbers), width or self.width), dtype=np.float32)
        X[:, list(self.numbers)] = numbers
        rows = np.arange(len(X))
        for place, block in enumerate(self.categoricals):
            options = block.start + codes[:, place]
            X[rows, options] = 1.0
        return X

    def known(self, given: Matrix) -> tuple[Bools, Bools]:
        """Return which numbers (n, d) and categoricals (n, c) of a matrix are not NaN.

        Raises InputError when some options of a categorical are NaN and others are not.
        """
        is_set = ~np.isnan(given)
        has_option = np.zeros((len(given), len(self.categoricals)), dtype=np.bool_)
        for place, block in enumerate(self.categoricals):
            part = is_set[:, block.start : block.stop]
            has_all = part.all(1)
            if (part.any(1) != has_all).any():
                raise InputError(
                    f"given names some categories of column {block.column!r} and leaves others "
                    "open: set its whole block, or none of it"
                )
            has_option[:, place] = has_all
        return is_set[:, list(self.numbers)], has_option

    def without(self, block: Block | None) -> Layout:
        """Return the layout of the other blocks, whose places in the vector stay."""
        others = tuple(b for b in self.blocks if b != block)
        return replace(self, blocks=others)

    def label_of(self, column: str | None) -> Block | None:
        """Return the block of a label column; None without a label, or if nothing else is there."""
        # The only block cannot be the condition of others.
        if column is None or len(self.blocks) == 1:
            return None
        return self.categorical_of(column)

    def categorical_of(self, column: str) -> Block:
        """Return the block of a column that is one categorical; InputError for any other column."""
        blocks = [b for b in self.blocks if b.column == column]
        if len(blocks) == 1 and blocks[0].kind == "categorical":
            return blocks[0]
        names = sorted({b.column for b in self.categoricals})
        raise InputError(
            f"labels={column!r} is not a column that is one categorical: give one of {names}, or "
            "None"
        )

    def facts(self, label: Block | None) -> dict[str, Any]:
        """Return the facts that a model's file has about its blocks and its label."""
        blocks = [asdict(block) for block in self.blocks]
        column = None if label is None else label.column
        return {"blocks": blocks, "label": column}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> tuple[Layout, Block | None]:
        """Read a layout and its label from `facts`."""
        blocks = tuple(Block(**block) for block in facts["blocks"])
        layout = cls(blocks)
        column = facts["label"]
        if column is None:
            return layout, None
        return layout, layout.categorical_of(column)


def _is_one_hot(part: Matrix) -> bool:
    """Return whether every row has a single 1 and is 0 elsewhere."""
    has_flags = np.isin(part, (0.0, 1.0)).all()
    return bool(has_flags and (part.sum(1) == 1.0).all())


def _blocks(encodings: Sequence[ColumnEncoding]) -> tuple[Block, ...]:
    """Build the blocks of some columns, in order; a column's number precedes its categoricals."""
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
) -> list[tuple[Ints, Floats]]:
    """Read each row's option of every column, and its number.

    The option is the rank for digits, and 0 without a categorical; a column without a number
    has 0. The key decides which of several equal largest entries is taken.
    """
    blocks = _blocks(encodings)
    _check_finite(vectors, blocks)
    options = [np.zeros(len(vectors), dtype=np.int64) for _ in encodings]
    numbers = [np.zeros(len(vectors) * encoding.number) for encoding in encodings]
    names = [encoding.column for encoding in encodings]
    randoms = [generator(fold_in(key, "decode", name)) for name in names]
    for start in range(0, len(vectors), _CHUNK):
        rows = slice(start, start + _CHUNK)
        # A copy, since digits are masked in it.
        chunk = np.array(vectors[rows].T, order="C", copy=True)
        # In the order of blocks: a column's number, then its categoricals.
        parts = iter([chunk[block.start : block.stop] for block in blocks])
        for i, encoding in enumerate(encodings):
            if encoding.number:
                numbers[i][rows] = next(parts)[0]
            if encoding.sizes:
                digits = [next(parts) for _ in encoding.sizes]
                options[i][rows] = _chosen(encoding, digits, randoms[i])
    return list(zip(options, numbers, strict=True))


def _check_finite(vectors: _Reals, blocks: Sequence[Block]) -> None:
    """Raise DataError for NaN and infinities, with the column that has them first."""
    # The sum of all is finite only if each is, and costs a fraction of looking at each.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(vectors.sum()):
            return
    for block in blocks:
        part = vectors[:, block.start : block.stop]
        num_wild = int(np.count_nonzero(~np.isfinite(part).all(axis=1)))
        if num_wild:
            raise DataError(
                f"values: {count_of(num_wild, 'row is', 'rows are')} NaN or infinite in the "
                f"{block.kind} part of column {block.column!r}; their model has diverged"
            )


def _chosen(
    encoding: ColumnEncoding, parts: list[_Reals], random: np.random.Generator
) -> Ints:
    """Return the rank that digits make, each the most likely digit with which a category exists."""
    ranks = np.zeros(parts[0].shape[1], dtype=np.int64)
    for block, part in enumerate(parts):
        if isinstance(encoding, CategoricalEncoding) and len(parts) > 1:
            # After some digits not every digit leads to a category.
            limits = encoding.limits(ranks, block)
            tight = np.flatnonzero(limits < len(part) - 1)
            digits = np.arange(len(part))[:, None]
            is_beyond = digits > limits[tight]
            part[:, tight] = np.where(is_beyond, -np.inf, part[:, tight])
        ranks = ranks * len(part) + _largest(part, random)
    return ranks


def _largest(part: _Reals, random: np.random.Generator) -> Ints:
    """Return the position of each column's largest entry, one at random among equal ones."""
    is_largest = part == part.max(axis=0)
    places: Ints = is_largest.argmax(axis=0)
    num_largest = np.count_nonzero(is_largest, axis=0)
    tied = np.flatnonzero(num_largest > 1)
    if len(tied):
        draws = random.random((len(part), len(tied)))
        places[tied] = np.where(is_largest[:, tied], draws, -1.0).argmax(axis=0)
    return places


class _FeaturesFile(msgspec.Struct, frozen=True):
    """A features file."""

    format: Literal["siloweave-features"]
    version: int
    columns: tuple[Column, ...]
    encodings: tuple[ColumnEncoding, ...]


def _as_numbers(options: Sequence[Category]) -> Floats | None:
    """Return options as numbers, if all are numbers: 1 and 0 for booleans; else None."""
    try:
        numbers = np.array([float(option) for option in options])
    except ValueError:
        return None
    if not len(numbers) or not np.isfinite(numbers).all():
        return None
    return numbers


@dataclass(frozen=True)
class Features:
    """The mapping from a table's rows to vectors and back.

    It is made by `fit`, `from_counts` or `declared`.

    * A categorical or boolean column is one categorical; ``missing`` adds a last option. With more
      than 256 options it is the digits of the category's rank by frequency, most significant
      first, two or more blocks of at most 128 options: 100,000 categories take 140 entries, not
      100,000. Digits are decoded from the left, each among those that some category has after the
      digits before it, so every vector decodes to a category.
    * A column of integers, numbers or datetimes is a number. Values that hold 2 % of the rows or
      more (and ten times their even share) are spikes, with an option of their own; so is
      ``missing``, and so is everything where there are at most 20 distinct values. Where a spike
      or a missing value is chosen the number is 0.
    * Columns of kind ``id`` and ``text`` are left out.

    Numbers are float32, so a value comes back within about a millionth of its distance to the
    neighbours that were seen, and a smallest or largest one that a single row has a tenth nearer to
    the next (`quantile`); on decode it is clipped to the schema's bounds and rounded to the
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
        """The blocks of the vector, in order; a column's number comes before its categoricals."""
        return _blocks(self.encodings)

    @cached_property
    def orders(self) -> dict[str, tuple[int, ...]]:
        """The codes in order, by column, for columns that are one block of ordered values.

        These are numbers and datetimes of few values, booleans, and categories that are numbers or
        texts of numbers. A missing value has no place in an order.
        """
        orders: dict[str, tuple[int, ...]] = {}
        for encoding in self.encodings:
            if len(encoding.sizes) != 1 or encoding.number:
                continue
            if isinstance(encoding, NumericEncoding):
                orders[encoding.column] = tuple(range(len(encoding.spikes)))
                continue
            numbers = _as_numbers(self.schema[encoding.column].options)
            if numbers is not None:
                order = np.argsort(numbers, kind="stable").tolist()
                orders[encoding.column] = tuple(order)
        return orders

    @property
    def width(self) -> int:
        """The number of entries in a row's vector."""
        if not self.blocks:
            return 0
        return self.blocks[-1].stop

    @cached_property
    def _terms(self) -> frozenset[str]:
        """The columns from which others are computed."""
        names: set[str] = set()
        for encoding in self._linked:
            for link in encoding.relations:
                names |= {*link.columns}
        return frozenset(names)

    @property
    def _linked(self) -> list[LinkedEncoding]:
        """The columns that are computed from others in some rows."""
        return [e for e in self.encodings if isinstance(e, LinkedEncoding)]

    def _numbers(self, table: Table) -> dict[str, tuple[Floats, Bools]]:
        """Return the values of all columns that links name, and which of them are missing.

        A column that the table lacks, as where a condition gives one column alone, is missing in
        all rows.
        """
        numbers = {}
        linked_names = {encoding.column for encoding in self._linked}
        for name in self._terms | linked_names:
            if name in table.names and name in self.schema.names:
                values, is_missing = numbers_of(self.schema[name], table)
                numbers[name] = values.astype(np.float64), is_missing
            else:
                is_missing = np.ones(table.num_rows, dtype=np.bool_)
                numbers[name] = np.zeros(table.num_rows), is_missing
        return numbers

    @classmethod
    def fit(
        cls, table: Table, schema: Schema, *, numeric: Numeric = "quantile", key: Key
    ) -> Features:
        """Learn encoders from rows, without any privacy.

        Args:
            table: At least one row of the schema's columns.
            schema: Facts about every column; numbers and datetimes need both bounds.
            numeric: What a continuum becomes: ``quantile``, its normal score (values that occur
                often are spread over their share of the distribution where the column has no
                others); ``ranks``, its normal score, where every value that five rows share is
                spread over its share, and columns that equal another or a sum or quotient of two in
                some rows get an option for it; ``modes``, a mode of a variational mixture and the
                place in it; ``standard``, deviations from the mean.
            key: No fit draws from it as yet: mixtures start from quantiles and use all rows.

        Raises:
            DataError: When the table has no rows.
            SchemaError: When rows do not fit the schema, or a bound is not declared.
        """
        check_numeric(numeric)
        check_rows(schema, table)
        encodings: list[ColumnEncoding] = []
        for column in schema.coded:
            if column.is_binned:
                encodings.append(_fitted_numeric(column, table, numeric))
                continue
            options = options_of(column)
            codes = codes_of(column, table)
            weights = np.bincount(codes, minlength=options).astype(np.float64)
            encodings.append(encoding_of_options(column.name, weights, options))
        # Links need the scales of all columns, so they come last.
        if numeric == "ranks":
            numbers, spikes = _numbers_with_links(table, schema, encodings)
            if len(numbers) > 1:
                encodings = with_links(encodings, numbers, spikes)
        return cls(schema, tuple(encodings))

    @classmethod
    def declared(cls, schema: Schema) -> Features:
        """Make encoders from public facts alone: numbers lie between -1 (``low``) and 1 (``high``).

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
        encodings = [declared(column) for column in schema.coded]
        return cls(schema, tuple(encodings))

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
        check_numeric(numeric, of_rows=False)
        names = encoder.domain.names
        unknown = sorted(set(counts) - set(names))
        if unknown:
            raise DataError(
                f"counts names {', '.join(unknown)}; it may name only {', '.join(names)}"
            )
        encodings: list[ColumnEncoding] = []
        for column in encoder.schema.coded:
            if column.name not in counts:
                encodings.append(declared(column))
                continue
            weights = _weights(encoder, column.name, counts[column.name])
            encoding: ColumnEncoding
            if column.is_binned:
                encoding = counted(column, weights, numeric)
            else:
                encoding = encoding_of_options(column.name, weights, len(weights))
            encodings.append(encoding)
        return cls(encoder.schema, tuple(encodings))

    def cover(self, schema: Schema) -> bool:
        """Return whether all rows that a schema allows have bounded vectors.

        A party asks this before it encodes by features that it received: whether its rows fit, or
        become finite numbers, or how many of them fit into memory, would reveal them.
        """
        names = [column.name for column in schema.coded]
        encoded_names = [encoding.column for encoding in self.encodings]
        if self.schema != schema or encoded_names != names:
            return False
        columns = [schema[name] for name in names]
        return all(map(_covers, self.encodings, columns))

    def encode(self, table: Table, *, key: Key, bounded: bool = True) -> Matrix:
        """Turn rows into vectors, (rows, width) float32; an unknown number counts as the nearest.

        Args:
            table: Rows of the schema's columns.
            key: Which mode a value is said to come from, and where in its interval of the normal
                distribution a frequent value lies.
            bounded: Whether vectors of more than 16 GiB are refused; not where the number of rows
                is private, as whoever chooses the width would learn it from the error.

        Raises:
            CapacityError: When the vectors would take more than 16 GiB.
            SchemaError: When rows hold a value outside the schema, or an infinite number.
        """
        check_columns(self.schema, table)
        needed = 4 * table.num_rows * self.width
        if bounded and needed > _MOST_BYTES:
            raise CapacityError(
                f"{table.num_rows} rows of {self.width} numbers take {needed / 2**30:.0f} GiB; "
                "encode a sample of the rows"
            )
        vectors = np.zeros((table.num_rows, self.width), dtype=np.float32)
        rows = np.arange(table.num_rows)
        blocks = iter(self.blocks)
        numbers_by_name: dict[str, tuple[Floats, Bools]] = {}
        for encoding in self.encodings:
            column = self.schema[encoding.column]
            if isinstance(encoding, CategoricalEncoding):
                chosen = encoding.digits(codes_of(column, table))
            else:
                values, is_missing = encoding.values_of(column, table)
                random = generator(fold_in(key, "encode", column.name))
                links = encoding.relations
                if links and not numbers_by_name:
                    numbers_by_name = self._numbers(table)
                linked = []
                for link in links:
                    linked.append(holds(link, column.name, numbers_by_name))
                options, numbers = encoding.split(values, is_missing, random, linked)
                chosen = [options] if encoding.options else []
                if encoding.number:
                    vectors[:, next(blocks).start] = numbers
            for digits in chosen:
                places = next(blocks).start + digits
                vectors[rows, places] = 1.0
        return vectors

    def decode(
        self, values: NDArray[np.floating], *, key: Key, like: Table | None = None
    ) -> Table:
        """Turn vectors into a table with the schema's modelled columns in order.

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

        columns: dict[str, tuple[Any, Bools | None]] = {}
        entries = _read_vectors(vectors, self.encodings, key)
        terms = self._terms
        decoded: dict[str, tuple[Floats, Bools]] = {}
        for encoding, (options, numbers) in zip(self.encodings, entries, strict=True):
            column = self.schema[encoding.column]
            if isinstance(encoding, CategoricalEncoding):
                codes = encoding.codes(options)
                columns[column.name] = labels_of(column, codes)
                continue
            joined, is_missing = encoding.join(options, numbers)
            # It is computed from columns before this one, which are decoded by now.
            if encoding.relations:
                joined = encoding.computed_into(joined, options, decoded)
            if encoding.column in terms:
                decoded[encoding.column] = joined + encoding.origin, is_missing
            gaps = is_missing if encoding.missing else None
            columns[column.name] = (encoding.typed(column, joined, like), gaps)
        categories = {column.name: column.categories for column in self.schema.columns}
        in_order = {column.name: columns[column.name] for column in self.schema.coded}
        return Table.from_columns(in_order, like, categories)

    def to_json(self) -> str:
        """Return the features as JSON text, with a version; `from_json` reads it back."""
        columns = self.schema.columns
        file = _FeaturesFile("siloweave-features", VERSION, columns, self.encodings)
        return msgspec.json.encode(file).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Features:
        """Read features that `to_json` wrote; SchemaError names the field that is wrong."""
        file = versioned(text, _FeaturesFile, "a features file")
        return cls(Schema(file.columns), file.encodings)


def _fitted_numeric(column: Column, table: Table, numeric: Numeric) -> NumericEncoding:
    """Learn the encoding of a column of numbers or datetimes from rows."""
    bounds = encoding_of_bounds(column)
    values, is_missing = bounds.values_of(column, table)
    distinct, counts = np.unique(values[~is_missing], return_counts=True)
    resolution = bounds.resolution or resolution_of(distinct)
    bounds = msgspec.structs.replace(bounds, resolution=resolution)
    points = Points(distinct, counts.astype(np.float64))
    return learned(bounds, points.with_every_whole_number(bounds), numeric)


def _numbers_with_links(
    table: Table, schema: Schema, encodings: Sequence[ColumnEncoding]
) -> tuple[dict[str, tuple[Floats, Bools]], dict[str, Bools]]:
    """Return the numeric columns between which links are searched for, in order, and their spikes.

    These columns have a continuum. Values and gaps come first, and then which rows have a spike.
    """
    columns: dict[str, tuple[Floats, Bools]] = {}
    spikes: dict[str, Bools] = {}
    for encoding in encodings:
        column = schema[encoding.column]
        if not isinstance(encoding, NumericEncoding) or not encoding.number:
            continue
        if column.is_datetime:
            continue
        values, is_missing = numbers_of(column, table)
        numbers = values.astype(np.float64)
        columns[column.name] = numbers, is_missing
        spikes[column.name] = np.isin(
            numbers, np.array(encoding.spikes) + encoding.origin
        )
    return columns, spikes


def check_rows(schema: Schema, table: Table) -> None:
    """Raise SchemaError for a table of other columns than the schema's, DataError without rows."""
    check_columns(schema, table)
    if table.num_rows == 0:
        raise DataError("the table has no rows; features need at least one")


def _covers(encoding: ColumnEncoding, column: Column) -> bool:
    """Return whether a received encoding has a place for every value of a column."""
    if isinstance(encoding, CategoricalEncoding):
        if column.is_binned:
            return False
        return _covers_options(encoding, options_of(column))
    if not column.is_binned:
        return False
    # A party's own features have links, and none that it is sent.
    if isinstance(encoding, LinkedEncoding):
        return False
    bounds = encoding_of_bounds(column)
    facts = ("low", "high", "origin", "missing")
    if any(getattr(encoding, fact) != getattr(bounds, fact) for fact in facts):
        return False
    if encoding.options > _MOST_OPTIONS or not ascending(encoding.spikes):
        return False
    if encoding.scale is None:
        return bool(encoding.spikes)
    return encoding.scale.takes(encoding.low, encoding.high)


def _covers_options(encoding: CategoricalEncoding, options: int) -> bool:
    """Return whether an encoding has a place for each of so many codes, and is not large."""
    if encoding.options != options:
        return False
    sizes = encoding.sizes
    # Without these bounds a few bytes could ask for vectors of any width.
    has_sizes = min(sizes, default=0) >= 1
    if not has_sizes or not sum(sizes) <= options <= prod(sizes):
        return False
    if not encoding.order:
        return True
    return sorted(encoding.order) == list(range(options))


def _weights(encoder: Encoder, name: str, counts: NDArray[Any]) -> Floats:
    """Return the counts of a column's codes as weights, with negative ones as 0.

    DataError if they have another shape, or are not finite.
    """
    weights = np.asarray(counts, dtype=np.float64)
    size = encoder.domain.size_of(name)
    if weights.shape != (size,):
        raise DataError(
            f"counts of column {name!r} have shape {weights.shape}; its codes are {size}"
        )
    if not np.isfinite(weights).all():
        raise DataError(f"counts of column {name!r} are not all finite numbers")
    return np.maximum(weights, 0.0)


# How single columns are distributed

# So many quantiles cut a column of numbers.
_CUTS = 50
# A cell of a category has at least so many rows.
_RARE = 20.0
# So many categories have a cell of their own; a cell is sent as one byte.
_MOST_APART = 200
# Whole numbers beyond are not all float64.
_EXACT = 2.0**53
# A cell of more than so many times a quantile's share is of one value.
_FREQUENT = 2.0
# A distance that is left as it is.
_GAP = 0.05
# What chance explains of a distance, per root of cells / rows.
_NOISE = 0.4


def far_off(column: Column, codes: Ints, shares: Floats) -> bool:
    """Return whether numbers are distributed otherwise than chance explains, by over 5 %.

    That is, whether the total variation distance between the shares of ranges and those that they
    should hold is above 0.05 + 0.4 √(ranges / n). Codes and shares are those of `Cells`: numbers
    beyond the last range count as in it, and missing ones do not count. False for other columns.
    """
    if not column.is_number or len(shares) < 4:
        return False
    counts = np.bincount(codes, minlength=len(shares)).astype(np.float64)
    # The last two cells are of other numbers, which count as in the last range, and of gaps.
    counts[-3] += counts[-2]
    counts = counts[:-2]
    wanted = shares[:-2]
    if not counts.any():
        return False
    differences = np.abs(counts / counts.sum() - wanted / wanted.sum())
    distance = 0.5 * float(differences.sum())
    chance = float(np.sqrt(len(counts) / counts.sum()))
    return distance > _GAP + _NOISE * chance


def quantile_mapped(
    values: Floats, ends: Floats, shares: Floats, alone: Bools
) -> Floats:
    """Move numbers so that each range gets its share; their order stays, but equal ones may part.

    Between the ends of ranges the map is linear; below the first and above the last but one it
    shifts, so that tails keep their shape, but for an upper tail that would reach the last end,
    which is made shorter. Numbers of a range that is `alone`, which has one value, become it; no
    other becomes an end, since that may be one row's value. There are two ranges or more; `ends`
    are their upper ends, ascending, and `shares` of the values sum to 1.
    """
    values = _apart(values)
    distinct = np.unique(values)
    # There is no order to keep.
    if distinct.size < 2:
        return values

    # Where each inner end lies among the values: between two of them, so that none is on it.
    inner = ends[:-1]
    last = len(distinct) - 1
    levels = np.minimum(np.cumsum(shares)[:-1], 1.0)
    places = (levels * last).astype(np.int64)
    below = np.minimum(places, last - 1)
    cuts = (distinct[below] + distinct[below + 1]) / 2

    # Linear between the cuts; the lower tail is shifted.
    mapped = np.interp(values, cuts, inner)
    shifted = values + (inner[0] - cuts[0])
    mapped = np.where(values < cuts[0], shifted, mapped)

    # The upper tail is shifted, too, or made shorter where it has no room.
    over = values - cuts[-1]
    room = ends[-1] - inner[-1]
    is_over = over > 0  # at least one is
    # A little longer than it is, so that none reaches the last end.
    longest = over.max() * (1 + 1 / np.count_nonzero(is_over))
    shortened = inner[-1] + over * min(1.0, room / longest)
    mapped = np.where(is_over, shortened, mapped)

    ranges = np.searchsorted(cuts, values, side="left")
    moved = np.where(alone[ranges], ends[ranges], mapped)
    return np.asarray(moved, np.float64)


def _apart(values: Floats) -> Floats:
    """Spread equal numbers, in the order they come, halfway to the nearest different one."""
    distinct, place, times = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) < 2 or times.max() == 1:
        return values
    halves = np.diff(distinct) / 2
    # Halfway to the nearer of both neighbours; the outermost have one.
    above = np.append(halves, halves[-1])
    below = np.insert(halves, 0, halves[0])
    width = np.minimum(above, below)
    # Which of the equal ones each is, from 0 on.
    turn = np.empty(len(values))
    by_value = np.argsort(place, kind="stable")
    turns = [np.arange(number) for number in times]
    turn[by_value] = np.concatenate(turns)
    offset = (2.0 * turn + 1.0) / times[place] - 1.0
    spread: Floats = values + width[place] * offset
    return spread


class Cells(msgspec.Struct, frozen=True):
    """The cells of one column, with the share of rows in each.

    Attributes:
        column: Its public facts.
        labels: Categories that have a cell of their own.
        ends: Upper ends of ranges of numbers, or of steps of datetimes.
        shares: Of each cell; the last two are of all other values and of missing ones.
    """

    column: Column
    labels: tuple[Any, ...]
    ends: tuple[float, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        cells = max(len(self.labels), len(self.ends)) + 2
        is_finite = np.isfinite((*self.shares, *self.ends)).all()
        if len(self.shares) != cells or not is_finite or min(self.shares) < 0:
            raise DataError(
                f"these are no shares of column {self.column.name!r}: {cells} of 0 or more are "
                f"wanted for its cells, all finite, and there are {len(self.shares)}"
            )

    @classmethod
    def of_options(cls, column: Column, weights: Floats, rows: int) -> Cells:
        """Build the cells of a categorical or boolean column.

        Weights are of every option, and of missing values behind them if the column has them; they
        stand for so many rows.
        """
        options = column.options
        # Noisy counts may all be 0.
        total = max(float(np.sum(weights)), 1e-300)
        shares = np.asarray(weights, dtype=np.float64) / total
        option_shares = shares[: len(options)]
        missing_share = float(shares[len(options) :].sum())
        largest = np.argsort(-option_shares, kind="stable")[:_MOST_APART]
        is_frequent = option_shares[largest] * rows >= _RARE
        places = np.sort(largest[is_frequent])
        labels = tuple(options[place] for place in places)
        cell_shares = option_shares[places].tolist()
        rest = 1.0 - missing_share - sum(cell_shares)
        rest = max(rest, 0.0)  # but for rounding
        return cls(column, labels, (), (*cell_shares, rest, missing_share))

    @classmethod
    def of_numbers(
        cls, column: Column, values: Floats, weights: Floats, missing: float
    ) -> Cells:
        """Build the cells of a column of numbers, or of datetimes in the steps of bins.py.

        Values are distinct and ascending, each with a weight; `missing` is that of missing values.
        """
        total = float(np.sum(weights))
        if total <= 0:
            return cls(column, (), (), (0.0, 1.0))
        below = np.cumsum(weights) / total
        levels = np.linspace(0.0, 1.0, _CUTS + 1)[1:]
        # A hair lower, so that rounding moves no level to the next value.
        quantiles = np.searchsorted(below, levels - 1e-9)
        places = np.unique(np.minimum(quantiles, len(values) - 1))
        cell_shares = np.diff(np.append(0.0, below[places]))
        shares = (cell_shares * total / (total + missing)).tolist()
        missing_share = missing / (total + missing)
        ends = tuple(np.asarray(values, dtype=np.float64)[places].tolist())
        return cls(column, (), ends, (*shares, 0.0, missing_share))

    def codes(self, table: Table) -> Ints:
        """Return the cell of every row of a table."""
        name = self.column.name
        if self.column.is_binned:
            values, is_missing = numbers_of(self.column, table)
            numbers = np.where(is_missing, 0, values)
            places = np.searchsorted(np.asarray(self.ends), numbers, side="left")
            cells = np.minimum(places, len(self.ends))
        else:
            is_missing = missing_cells(self.column, table)
            cells = np.full(table.num_rows, -1)
            # All may be rare.
            if self.labels:
                cells = table.lookup(name, self.labels)
            cells = np.where(cells < 0, len(self.labels), cells)
        return np.where(is_missing, len(self.shares) - 1, cells).astype(np.int64)

    def moved(self, table: Table, pool: Table) -> Any:
        """Move the column's numbers in a table until their shares are right; None if they are."""
        column = self.column
        shares = np.asarray(self.shares)
        ends = np.asarray(self.ends)
        if not far_off(column, self.codes(table), shares):
            return None
        if np.abs(ends).max() > _EXACT:
            return None

        # Of ranges alone: other and missing values stay as they are.
        shares = shares[:-2] / shares[:-2].sum()
        values, is_missing = numbers_of(column, table)
        is_present = ~is_missing
        numbers = values.astype(np.float64)
        low = float(column.low or 0.0)
        high = float(column.high or 0.0)
        alone = shares >= _FREQUENT / _CUTS
        mapped = quantile_mapped(numbers[is_present], ends, shares, alone)
        if column.is_continuous:
            pool_values, is_absent = numbers_of(column, pool)
            pool_numbers = pool_values[~is_absent].astype(np.float64)
            tidy = _tidy(mapped, pool_numbers)
            # A value that has a range to itself is one already.
            is_frequent = np.isin(mapped, ends[alone])
            nearest = np.where(is_frequent, mapped, tidy)
            numbers[is_present] = np.clip(nearest, low, high)
            decimal_numbers = with_decimals(column, numbers, low, high)
            return as_written(column, decimal_numbers, table)
        numbers[is_present] = np.clip(np.ceil(mapped), low, high)
        return as_written(column, numbers.astype(np.int64), table)


def _tidy(values: Floats, pool: Floats) -> Floats:
    """Return the nearest number in a pool; beyond the pool, one with as many decimals."""
    points = np.unique(pool)
    middles = (points[:-1] + points[1:]) / 2
    nearest = points[np.searchsorted(middles, values)]
    is_inside = (values >= points[0]) & (values <= points[-1])
    multiples = rounded(values, resolution_of(pool))
    return np.where(is_inside, nearest, multiples)


class _SharesFile(msgspec.Struct, frozen=True):
    """A file of `OneWay`."""

    format: Literal["siloweave-one-way"]
    version: int
    cells: tuple[Cells, ...]


def _counted(column: Column, table: Table) -> Cells:
    """Build the cells of a column from a table's rows."""
    if column.is_binned:
        values, is_missing = numbers_of(column, table)
        distinct, counts = np.unique(values[~is_missing], return_counts=True)
        numbers = distinct.astype(np.float64)
        weights = counts.astype(np.float64)
        return Cells.of_numbers(column, numbers, weights, float(is_missing.sum()))
    codes = codes_of(column, table)
    counts = np.bincount(codes, minlength=options_of(column))
    return Cells.of_options(column, counts.astype(np.float64), table.num_rows)


@dataclass(frozen=True)
class OneWay:
    """The shares of every column's cells, without ids."""

    cells: tuple[Cells, ...]

    @classmethod
    def of(cls, table: Table, schema: Schema) -> OneWay:
        """Count the rows of a table, exactly: the result is a release about them."""
        columns = [column for column in schema.coded if column.name in table.names]
        cells = [_counted(column, table) for column in columns]
        return cls(tuple(cells))

    @property
    def shares(self) -> list[Floats]:
        """The share of each cell, by column; other and missing values have the last two cells."""
        return [np.asarray(cells.shares) for cells in self.cells]

    def codes(self, table: Table) -> list[Ints]:
        """Return the cell of every row, by column."""
        return [cells.codes(table) for cells in self.cells]

    def moved(self, table: Table, pool: Table) -> Table:
        """Move the numbers of a table in columns that `far_off` finds.

        The rows were chosen for these shares, as far as possible, from a pool: numbers become
        numbers of the pool. Datetimes stay.
        """
        moved = {}
        for cells in self.cells:
            numbers = cells.moved(table, pool)
            if numbers is not None:
                moved[cells.column.name] = numbers
        if not moved:
            return table
        columns = {}
        for name in table.names:
            values = moved.get(name, table.values(name))
            columns[name] = values, table.missing(name)
        return Table.from_columns(columns, like=table)

    def to_json(self) -> str:
        """Return the shares as JSON; `from_json` reads it."""
        file = _SharesFile("siloweave-one-way", 1, self.cells)
        return msgspec.json.encode(file).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> OneWay:
        """Read the shares from JSON that `to_json` wrote; raises DataError for anything else."""
        try:
            return cls(msgspec.json.decode(text, type=_SharesFile).cells)
        except msgspec.MsgspecError as error:
            raise DataError(f"these are no shares of columns: {error}") from error
