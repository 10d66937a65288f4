"""What attacks compare rows by: the same values as whole numbers, and distances over mixed columns.

`ordinals` numbers each column's values over all tables together: numbers by size, categories as
they are, and missing last. So every predicate is an interval, and equal rows are found.

`space` and `nearest` measure Gower, Hamming or Euclidean distances. They are exact, and computed
for a few thousand pairs at a time, so memory does not grow with the number of pairs. What makes it
quick is arithmetic in small types that a processor does many at a time: categories are compared as
8-bit or 16-bit codes and mismatches counted in 8 bits. Gower numbers are whole multiples of 2^-26
of a column's range (fewer with more than 30 columns), so that sums do not depend on their order,
and one column can be taken out of a sum without loss.

A missing value is a value of its own: it equals a missing one, and is as far as can be from others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Ordinals:
    """Tables with the same columns as whole numbers.

    Attributes:
        names: The columns.
        levels: For each column, the values that occur, in order; their places for categories.
        numeric: For each column, whether its order means something.
        codes: Per table, int32 (columns, rows): places in `levels`, and their number if missing.
    """

    names: tuple[str, ...]
    levels: tuple[NDArray[Any], ...]
    numeric: tuple[bool, ...]
    codes: Mapping[str, NDArray[np.int32]]

    def missing(self, column: int) -> int:
        """The code of a missing value."""
        return len(self.levels[column])


def ordinals(tables: Aligned) -> Ordinals:
    """Number the values of every column."""
    levels: list[NDArray[Any]] = []
    codes: list[dict[str, NDArray[np.int32]]] = []
    for column in tables.columns:
        values, known = column.values, np.arange(len(column.labels))
        if column.numeric:
            pooled = np.unique(np.concatenate(list(values.values())))
            known = pooled[~np.isnan(pooled)]
            values = {table: np.searchsorted(known, v) for table, v in values.items()}
        levels.append(known)
        codes.append({table: v.astype(np.int32) for table, v in values.items()})
    return Ordinals(
        tables.names,
        tuple(levels),
        tuple(column.numeric for column in tables.columns),
        {table: np.stack([of[table] for of in codes]) for table in tables.num_rows},
    )


def row_ids(values: Ordinals) -> dict[str, Ints]:
    """Per table, one number for each row; equal rows of any tables have equal numbers."""
    stacked = np.concatenate(list(values.codes.values()), axis=1)
    ids = np.zeros(stacked.shape[1], np.int64)
    for column, codes in enumerate(stacked):
        width = values.missing(column) + 1
        ids = np.unique(ids * width + codes, return_inverse=True)[1].astype(np.int64)
    ends = np.cumsum([codes.shape[1] for codes in values.codes.values()])
    return dict(zip(values.codes, np.split(ids, ends[:-1]), strict=True))


Metric = Literal["gower", "hamming", "l2"]
"""Gower: mean over columns of the numbers' difference in ranges, or 1 for categories that differ.
Hamming: share of columns that differ. L2: Euclidean over standardised numbers and one-hot codes."""

_TARGETS, _AMONG = 16, 4096  # pairs of a block, whose numbers stay in a processor's cache
_FAR = 3  # a missing number, in ranges from 0: further than any, before it is cut to 1
_MOST_BITS = 26


@dataclass(frozen=True, eq=False)
class EmbeddedRows:
    """Some rows of one table, in a space.

    Attributes:
        numbers: One array for each column of numbers: int32 (Gower) or float32 (L2).
        codes: One array of unsigned whole numbers for each column of codes.
        num_rows: How many rows.
    """

    numbers: tuple[NDArray[Any], ...]
    codes: tuple[NDArray[Any], ...]
    num_rows: int

    def take(self, rows: Ints) -> EmbeddedRows:
        """Some of the rows; places may repeat."""
        numbers = tuple(values[rows] for values in self.numbers)
        return EmbeddedRows(numbers, tuple(values[rows] for values in self.codes), len(rows))


@dataclass(frozen=True, eq=False)
class Space:
    """How far rows are from each other.

    Attributes:
        metric: The distance.
        names: The columns it is over: those of numbers, then those of codes.
        points: The rows of each table.
        unit: Gower: what 1 is in whole numbers. Other metrics: 1.
        capped: For each column of numbers, whether values may be missing.
        features: L2: how many numbers stand for a row, one-hot codes counted.
    """

    metric: Metric
    names: tuple[str, ...]
    points: dict[str, EmbeddedRows]
    unit: int
    capped: tuple[bool, ...]
    features: int

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.names)

    def scaled(self, totals: NDArray[Any]) -> Floats:
        """Turn what blocks hold into distances."""
        values = np.asarray(totals, dtype=np.float64)
        return np.sqrt(values) if self.metric == "l2" else values / (self.unit * self.width)


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest row of each target, and how far it is; of equally near ones the first."""

    places: Ints
    distances: Floats


class Blocks:
    """Distances from targets to rows, a block at a time, in buffers that are used again."""

    def __init__(self, within: Space, targets: EmbeddedRows, among: EmbeddedRows) -> None:
        self.within, self.targets, self.among = within, targets, among
        shape = (min(_TARGETS, targets.num_rows), min(_AMONG, among.num_rows))
        count = np.uint8 if len(among.codes) < 256 else np.uint16
        kind = np.int32 if within.metric == "gower" else np.float32
        self._totals, self._scratch = np.empty(shape, kind), np.empty(shape, kind)
        self._counts, self._differ = np.empty(shape, count), np.empty(shape, np.bool_)

    def __iter__(self) -> Iterator[tuple[slice, slice, NDArray[Any]]]:
        """Yield places of targets, places of rows, and a view of their totals.

        Totals are sums over columns, not yet `Space.scaled`; for L2 they are squared distances.
        They are overwritten by the next block.
        """
        for i in range(0, self.targets.num_rows, _TARGETS):
            rows = slice(i, min(i + _TARGETS, self.targets.num_rows))
            for j in range(0, self.among.num_rows, _AMONG):
                columns = slice(j, min(j + _AMONG, self.among.num_rows))
                yield rows, columns, self._total(rows, columns)

    def part(self, column: int, rows: slice, columns: slice) -> NDArray[Any]:
        """One column's part of the totals of a block; overwritten by the next call."""
        scratch, differ = self._cut(rows, columns, self._scratch, self._differ)
        numbers = len(self.within.capped)
        if column < numbers:
            return self._number(column, rows, columns, scratch)
        self._code(column - numbers, rows, columns, differ)
        np.multiply(differ, scratch.dtype.type(self._weight), out=scratch)
        return scratch

    @staticmethod
    def _cut(rows: slice, columns: slice, *buffers: NDArray[Any]) -> list[NDArray[Any]]:
        """As much of each buffer as a block fills."""
        return [a[: rows.stop - rows.start, : columns.stop - columns.start] for a in buffers]

    @property
    def _weight(self) -> int:
        """What one mismatch of codes adds: two one-hot entries that are 1 off, or one unit."""
        return 2 if self.within.metric == "l2" else self.within.unit

    def _total(self, rows: slice, columns: slice) -> NDArray[Any]:
        buffers = (self._totals, self._scratch, self._counts, self._differ)
        total, scratch, counts, differ = self._cut(rows, columns, *buffers)
        if self.among.codes:
            counts.fill(0)
            for k in range(len(self.among.codes)):
                self._code(k, rows, columns, differ)
                np.add(counts, differ.view(np.uint8), out=counts)
            np.multiply(counts, total.dtype.type(self._weight), out=total, dtype=total.dtype)
        else:
            total.fill(0)
        for k in range(len(self.among.numbers)):
            np.add(total, self._number(k, rows, columns, scratch), out=total)
        return total

    def _code(self, k: int, rows: slice, columns: slice, out: Bools) -> None:
        targets, among = self.targets.codes[k][rows], self.among.codes[k][columns]
        np.not_equal(targets[:, None], among, out=out)

    def _number(self, k: int, rows: slice, columns: slice, out: NDArray[Any]) -> NDArray[Any]:
        targets, among = self.targets.numbers[k][rows], self.among.numbers[k][columns]
        np.subtract(targets[:, None], among, out=out)
        if self.within.metric == "l2":
            np.multiply(out, out, out=out)
            return out
        np.abs(out, out=out)
        if self.within.capped[k]:
            np.minimum(out, out.dtype.type(self.within.unit), out=out)
        return out


def space(tables: Aligned, metric: Metric, names: Sequence[str] | None = None) -> Space:
    """Prepare tables for a distance.

    Ranges, means and deviations are over all tables, so that the distance of two rows does not
    depend on which others are asked for. A column with one value only adds nothing.

    The metric is ``gower`` (Gower 1971, Biometrics 27(4)), ``hamming`` or ``l2``. For L2 a missing
    number is the mean, and a code of its own says that it is missing.
    """
    if metric not in ("gower", "hamming", "l2"):
        raise InputError(f'metric={metric!r} must be "gower", "hamming" or "l2"')
    chosen = [tables.column(name) for name in (tables.names if names is None else names)]
    if not chosen:
        raise InputError("names is empty; give one column or more to measure distances over")
    if metric == "hamming":
        numeric, others = [], chosen
    else:
        numeric, others = [c for c in chosen if c.numeric], [c for c in chosen if not c.numeric]
    bits = min(_MOST_BITS, 30 - len(chosen).bit_length())
    unit = 1 << max(bits, 8) if metric == "gower" else 1
    numbers = [_whole(c, unit) if metric == "gower" else _standard(c) for c in numeric]
    gaps = [c for c in numeric if _has_gaps(c)]
    codes = [_codes(column) for column in others]
    if metric == "l2":
        codes += [{t: np.isnan(v).astype(np.uint8) for t, v in c.values.items()} for c in gaps]
    return Space(
        metric,
        tuple(column.name for column in (*numeric, *others)),
        {
            table: EmbeddedRows(
                tuple(of[table] for of in numbers), tuple(of[table] for of in codes), rows
            )
            for table, rows in tables.num_rows.items()
        },
        unit,
        tuple(column in gaps for column in numeric),
        len(numeric)
        + 2 * len(gaps)
        + sum(len(c.labels) + _has_gaps(c) for c in others if not c.numeric),
    )


def nearest(within: Space, targets: EmbeddedRows, among: EmbeddedRows) -> Nearest:
    """Find the nearest row of each target; there must be one."""
    gower = within.metric == "gower"
    most, kind = (np.iinfo(np.int32).max, np.int32) if gower else (np.inf, np.float32)
    best = np.full(targets.num_rows, most, kind)
    places = np.zeros(targets.num_rows, np.int64)
    for rows, columns, totals in Blocks(within, targets, among):
        found = totals.argmin(axis=1)
        values = totals[np.arange(len(found)), found]
        better = values < best[rows]
        best[rows] = np.where(better, values, best[rows])
        places[rows] = np.where(better, found + columns.start, places[rows])
    return Nearest(places, within.scaled(best))


def _has_gaps(column: AlignedColumn) -> bool:
    return any(bool(column.missing(table).any()) for table in column.values)


def _whole(column: AlignedColumn, unit: int) -> dict[str, NDArray[Any]]:
    """Numbers as multiples of a part of their range, and missing ones far off."""
    low = min(float(np.nanmin(v)) for v in column.values.values())
    high = max(float(np.nanmax(v)) for v in column.values.values())
    half = high / 2 - low / 2  # halves, because a range may be too large for a float
    scale = unit / half if half > 0 and np.isfinite(unit / half) else 0.0
    return {
        table: np.where(
            np.isnan(values), _FAR * unit, np.rint((np.nan_to_num(values) / 2 - low / 2) * scale)
        ).astype(np.int32)
        for table, values in column.values.items()
    }


def _standard(column: AlignedColumn) -> dict[str, NDArray[Any]]:
    """Numbers less their mean over their deviation, and missing ones at the mean."""
    pooled = np.concatenate([v[~np.isnan(v)] for v in column.values.values()])
    largest = float(np.abs(pooled).max()) or 1.0  # squares of large numbers would overflow
    mean, deviation = float((pooled / largest).mean()), float((pooled / largest).std())
    constant = deviation == 0 or pooled.min() == pooled.max()
    return {
        table: np.zeros(len(values), np.float32)
        if constant
        else np.nan_to_num((values / largest - mean) / deviation).astype(np.float32)
        for table, values in column.values.items()
    }


def _codes(column: AlignedColumn) -> dict[str, NDArray[Any]]:
    """Codes in the smallest type; numbers by their place among all that occur."""
    if not column.numeric:
        kind = np.min_scalar_type(column.levels - 1)
        return {table: values.astype(kind) for table, values in column.values.items()}
    pooled = np.unique(np.concatenate(list(column.values.values())))  # one NaN, at the end
    kind = np.min_scalar_type(len(pooled) - 1)
    return {table: np.searchsorted(pooled, v).astype(kind) for table, v in column.values.items()}
