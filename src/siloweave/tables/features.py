"""Tables as vectors of real numbers, and back, for neural models.

Every column but ids becomes blocks of a row's vector: a choice (one-hot) for what is categorical,
a number for what is continuous, both for a column that mixes spikes, gaps or modes with a
continuum. What is learned is plain data that goes to JSON and back unchanged.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import CapacityError, DataError, SchemaError
from siloweave.tables.bins import BINNED
from siloweave.tables.columns import (
    blank,
    check_columns,
    codes_of,
    grain_of,
    labels_of,
    options_of,
    running,
    typed,
    values_of,
    whole_range,
)
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.plans import (
    Categories,
    Numeric,
    Plan,
    Points,
    Settings,
    learned,
    ranked,
)
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

__all__ = ["Block", "Features"]

_VERSION = 1
_MOST_BYTES = 2**34


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
      first, two or more blocks of at most 128 options: 100,000 categories take 141 entries, not
      100,000. Digits are decoded from the left, each among those that some category has after the
      digits before it, so every vector decodes to a category.
    * A column of integers, numbers or moments is a number. Values that hold 2 % of the rows or
      more (and ten times their even share) are spikes, with an option of their own; so is
      ``missing``, and so is everything where there are at most ten distinct values. Where a spike
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
        blocks: list[Block] = []
        start = 0
        for plan in self.plans:
            sizes = plan.sizes if isinstance(plan, Categories) else (plan.options,)
            parts = [("number", 1)] if plan.number else []
            for kind, size in [*parts, *(("choice", size) for size in sizes if size)]:
                blocks.append(Block(plan.column, start, size, kind))  # type: ignore[arg-type]
                start += size
        return tuple(blocks)

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
        few_values: int = 10,
        wide: int = 256,
    ) -> "Features":
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

    def encode(self, table: Table, *, key: Key) -> NDArray[np.float32]:
        """Turn rows into vectors.

        Args:
            table: Rows of the schema's columns.
            key: Which mode a value is said to come from, and where in its interval of the normal
                distribution a frequent value lies.

        Returns:
            (rows, width); a number that was never fitted counts as the nearest that was.

        Raises:
            CapacityError: When the vectors would take more than 16 GiB.
            DataError: When the table has no rows, or holds infinite numbers.
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
            like: The result's frame and types are this table's.

        Returns:
            A table with the schema's columns in order; ids run from 1.

        Raises:
            DataError: When the shape is wrong or an entry is NaN or infinite.
        """
        vectors = self._checked(values)
        blocks = iter(self.blocks)
        found: dict[str, tuple[Any, NDArray[np.bool_] | None]] = {}
        for plan in self.plans:
            column = self.schema[plan.column]
            random = generator(fold_in(key, "decode", column.name))
            if isinstance(plan, Categories):
                parts = [_part(vectors, next(blocks)) for _ in plan.sizes]
                found[column.name] = labels_of(column, plan.codes(_ranks(plan, parts, random)))
                continue
            numbers = np.zeros(len(vectors))
            if plan.number:
                numbers = vectors[:, next(blocks).start].astype(np.float64)
            options = np.zeros(len(vectors), dtype=np.int64)
            if plan.options:
                options = _largest(_part(vectors, next(blocks)), random)
            numbers, gone = plan.join(options, numbers)
            found[column.name] = (
                typed(column, plan, numbers, like),
                gone if plan.missing else None,
            )
        for column in self.schema.columns:
            if column.kind == "id":
                found[column.name] = (running(len(vectors), column.name, like), None)
        return Table.from_columns({name: found[name] for name in self.schema.names}, like)

    def _checked(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        vectors = np.asarray(values)
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise DataError(
                f"values has shape {vectors.shape}; these features decode (rows, {self.width})"
            )
        if vectors.dtype.kind != "f":
            raise DataError(f"values has type {vectors.dtype}; give real numbers")
        for block in self.blocks:
            wild = int(np.count_nonzero(~np.isfinite(_part(vectors, block)).all(axis=1)))
            if wild:
                raise DataError(
                    f"values: {wild} rows are NaN or infinite in the {block.kind} of column "
                    f"{block.column!r}; a model that makes them has diverged"
                )
        return vectors

    def to_json(self) -> str:
        """Return the features as JSON text, with a version; `from_json` reads it back."""
        file = _File("siloweave-features", _VERSION, self.schema.columns, self.plans)
        return msgspec.json.encode(file).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Features":
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


def _part(vectors: NDArray[np.floating], block: Block) -> NDArray[np.floating]:
    return vectors[:, block.start : block.stop]


def _largest(part: NDArray[np.floating], random: np.random.Generator) -> NDArray[np.int64]:
    """Where each row's largest entry stands; one of them at random where there are several."""
    found: NDArray[np.int64] = part.argmax(axis=1)
    top = part == part[np.arange(len(part)), found][:, None]
    tied = np.flatnonzero(np.count_nonzero(top, axis=1) > 1)
    found[tied] = np.where(top[tied], random.random((len(tied), part.shape[1])), -1).argmax(axis=1)
    return found


def _ranks(
    plan: Categories, parts: list[NDArray[np.floating]], random: np.random.Generator
) -> NDArray[np.int64]:
    """The number that the digits make, each the largest among those that some category has."""
    ranks = np.zeros(len(parts[0]), dtype=np.int64)
    for block, part in enumerate(parts):
        limits = plan.limits(ranks, block)
        tight = np.flatnonzero(limits < part.shape[1] - 1)
        if len(tight):
            part = part.copy()
            beyond = np.arange(part.shape[1]) > limits[tight, None]
            part[tight] = np.where(beyond, -np.inf, part[tight])
        ranks = ranks * part.shape[1] + _largest(part, random)
    return ranks
