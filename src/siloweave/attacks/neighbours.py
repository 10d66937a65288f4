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
        """Return the code of a missing value."""
        return len(self.levels[column])


def ordinals(tables: Aligned) -> Ordinals:
    """Number the values of every column."""
    levels: list[NDArray[Any]] = []
    codes_by_table: dict[str, list[NDArray[np.int32]]] = {
        table: [] for table in tables.num_rows
    }
    for column in tables.columns:
        codes = column.values
        column_levels = np.arange(len(column.labels))
        if column.numeric:
            pooled = np.unique(np.concatenate(list(column.values.values())))
            column_levels = pooled[~np.isnan(pooled)]
            # NaN comes after all levels, so that a missing value has their number.
            codes = {
                table: np.searchsorted(column_levels, values)
                for table, values in column.values.items()
            }
        levels.append(column_levels)
        for table, columns in codes_by_table.items():
            columns.append(codes[table].astype(np.int32))
    return Ordinals(
        names=tables.names,
        levels=tuple(levels),
        numeric=tuple(column.numeric for column in tables.columns),
        codes={table: np.stack(columns) for table, columns in codes_by_table.items()},
    )


def row_ids(values: Ordinals) -> dict[str, Ints]:
    """Number each table's rows; equal rows of any tables have equal numbers."""
    stacked = np.concatenate(list(values.codes.values()), axis=1)
    ids = np.zeros(stacked.shape[1], np.int64)
    for column, codes in enumerate(stacked):
        # Renumbered after each column, so that the product stays below rows times levels.
        width = values.missing(column) + 1
        _, ids = np.unique(ids * width + codes, return_inverse=True)
        ids = ids.astype(np.int64)
    ends = np.cumsum([codes.shape[1] for codes in values.codes.values()])
    return dict(zip(values.codes, np.split(ids, ends[:-1]), strict=True))


Metric = Literal["gower", "hamming", "l2"]
"""Gower: mean over columns of the numbers' difference in ranges, or 1 for categories that differ.
Hamming: share of columns that differ. L2: Euclidean over standardised numbers and one-hot codes."""

# Targets and rows of a block, whose numbers stay in a processor's cache.
_TARGETS = 16
_AMONG = 4096
_FAR = 3  # a missing number, in ranges from 0: further than any, before it is cut to 1
_MOST_BITS = 26


@dataclass(frozen=True, eq=False)
class EmbeddedRows:
    """The rows of one table, or some of them, as points of a space.

    Attributes:
        numbers: One array for each column of numbers: int32 (Gower) or float32 (L2).
        codes: One array of unsigned whole numbers for each column of codes.
        num_rows: How many rows.
    """

    numbers: tuple[NDArray[Any], ...]
    codes: tuple[NDArray[Any], ...]
    num_rows: int

    def take(self, rows: Ints) -> EmbeddedRows:
        """Select some of the rows by place; places may repeat."""
        numbers = tuple(values[rows] for values in self.numbers)
        codes = tuple(values[rows] for values in self.codes)
        return EmbeddedRows(numbers, codes, len(rows))


@dataclass(frozen=True, eq=False)
class Space:
    """The points of some tables' rows, and the distance between them.

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
        """The number of columns."""
        return len(self.names)

    def scaled(self, totals: NDArray[Any]) -> Floats:
        """Turn the totals of blocks into distances."""
        values = np.asarray(totals, dtype=np.float64)
        return (
            np.sqrt(values)
            if self.metric == "l2"
            else values / (self.unit * self.width)
        )


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest row of each target, and how far it is; of equally near ones the first."""

    places: Ints
    distances: Floats


class Blocks:
    """Distances from targets to rows, a block at a time, in buffers that are used again."""

    def __init__(
        self, within: Space, targets: EmbeddedRows, among: EmbeddedRows
    ) -> None:
        self.within = within
        self.targets = targets
        self.among = among
        shape = (min(_TARGETS, targets.num_rows), min(_AMONG, among.num_rows))
        total_type = np.int32 if within.metric == "gower" else np.float32
        # Mismatches of fewer than 256 columns fit into 8 bits, of which many are added at a time.
        count_type = np.uint8 if len(among.codes) < 256 else np.uint16
        self._totals = np.empty(shape, total_type)
        self._scratch = np.empty(shape, total_type)
        self._counts = np.empty(shape, count_type)
        self._differ = np.empty(shape, np.bool_)

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
        """Return one column's part of the totals of a block; the next call overwrites it."""
        scratch, differ = self._cut(rows, columns, self._scratch, self._differ)
        num_numbers = len(self.within.capped)
        if column < num_numbers:
            return self._number(column, rows, columns, scratch)
        self._code(column - num_numbers, rows, columns, differ)
        np.multiply(differ, scratch.dtype.type(self._weight), out=scratch)
        return scratch

    @staticmethod
    def _cut(rows: slice, columns: slice, *buffers: NDArray[Any]) -> list[NDArray[Any]]:
        """Return as much of each buffer as a block fills."""
        height = rows.stop - rows.start
        width = columns.stop - columns.start
        return [buffer[:height, :width] for buffer in buffers]

    @property
    def _weight(self) -> int:
        """The distance of one mismatch of codes: two one-hot entries off by 1, or one unit."""
        return 2 if self.within.metric == "l2" else self.within.unit

    def _total(self, rows: slice, columns: slice) -> NDArray[Any]:
        """Return the sum over all columns of a block: mismatches of codes, then numbers."""
        buffers = (self._totals, self._scratch, self._counts, self._differ)
        total, scratch, counts, differ = self._cut(rows, columns, *buffers)
        if self.among.codes:
            counts.fill(0)
            for k in range(len(self.among.codes)):
                self._code(k, rows, columns, differ)
                np.add(counts, differ.view(np.uint8), out=counts)
            np.multiply(
                counts, total.dtype.type(self._weight), out=total, dtype=total.dtype
            )
        else:
            total.fill(0)
        for k in range(len(self.among.numbers)):
            np.add(total, self._number(k, rows, columns, scratch), out=total)
        return total

    def _code(self, k: int, rows: slice, columns: slice, out: Bools) -> None:
        """Compare one column of codes."""
        targets = self.targets.codes[k][rows]
        among = self.among.codes[k][columns]
        np.not_equal(targets[:, None], among, out=out)

    def _number(
        self, k: int, rows: slice, columns: slice, out: NDArray[Any]
    ) -> NDArray[Any]:
        """Measure how far one column of numbers is apart."""
        targets = self.targets.numbers[k][rows]
        among = self.among.numbers[k][columns]
        np.subtract(targets[:, None], among, out=out)
        if self.within.metric == "l2":
            np.multiply(out, out, out=out)
            return out
        np.abs(out, out=out)
        # A missing number is farther off than any, and counts as one range.
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
    chosen_names = tables.names if names is None else names
    columns = [tables.column(name) for name in chosen_names]
    if not columns:
        raise InputError(
            "names is empty; give one column or more to measure distances over"
        )
    # Hamming's distance sees whether numbers are equal, so they are codes to it.
    numeric = [column for column in columns if column.numeric and metric != "hamming"]
    coded = [column for column in columns if column not in numeric]

    unit = 1
    if metric == "gower":
        # The sum over all columns has to fit into 32 bits.
        bits = min(_MOST_BITS, 30 - len(columns).bit_length())
        unit = 1 << max(bits, 8)
        numbers = [_whole(column, unit) for column in numeric]
    else:
        numbers = [_standard(column) for column in numeric]

    codes = [_codes(column) for column in coded]
    with_gaps = [column for column in numeric if _has_gaps(column)]
    if metric == "l2":
        codes += [_gap_codes(column) for column in with_gaps]

    points = {}
    for table, rows in tables.num_rows.items():
        table_numbers = tuple(by_table[table] for by_table in numbers)
        table_codes = tuple(by_table[table] for by_table in codes)
        points[table] = EmbeddedRows(table_numbers, table_codes, rows)
    return Space(
        metric=metric,
        names=tuple(column.name for column in (*numeric, *coded)),
        points=points,
        unit=unit,
        capped=tuple(column in with_gaps for column in numeric),
        features=len(numeric) + 2 * len(with_gaps) + _num_one_hot(coded),
    )


def _gap_codes(column: AlignedColumn) -> dict[str, NDArray[Any]]:
    """Return 1 for each missing number and 0 for all others, per table."""
    return {
        table: np.isnan(values).astype(np.uint8)
        for table, values in column.values.items()
    }


def _num_one_hot(columns: Sequence[AlignedColumn]) -> int:
    """Count the one-hot codes of all categorical columns."""
    total = 0
    for column in columns:
        if not column.numeric:
            total += len(column.labels) + _has_gaps(column)
    return total


def nearest(within: Space, targets: EmbeddedRows, among: EmbeddedRows) -> Nearest:
    """Find the nearest of some rows for each target; there must be at least one row."""
    if within.metric == "gower":
        least = np.full(targets.num_rows, np.iinfo(np.int32).max, np.int32)
    else:
        least = np.full(targets.num_rows, np.inf, np.float32)
    places = np.zeros(targets.num_rows, np.int64)
    for rows, columns, totals in Blocks(within, targets, among):
        nearest_places = totals.argmin(axis=1)
        nearest_totals = totals[np.arange(len(nearest_places)), nearest_places]
        # Only what is nearer replaces: of equally near rows the first one stays.
        is_nearer = nearest_totals < least[rows]
        least[rows] = np.where(is_nearer, nearest_totals, least[rows])
        places[rows] = np.where(is_nearer, nearest_places + columns.start, places[rows])
    return Nearest(places, within.scaled(least))


def _has_gaps(column: AlignedColumn) -> bool:
    """Return whether a column has a missing value in any table."""
    return any(bool(column.missing(table).any()) for table in column.values)


def _whole(column: AlignedColumn, unit: int) -> dict[str, NDArray[Any]]:
    """Return numbers as whole multiples of a part of their range, with missing ones far off."""
    low = min(float(np.nanmin(values)) for values in column.values.values())
    high = max(float(np.nanmax(values)) for values in column.values.values())
    # Halves, because a range may be too large for a float.
    half_range = high / 2 - low / 2
    has_scale = half_range > 0 and np.isfinite(unit / half_range)
    scale = unit / half_range if has_scale else 0.0
    multiples = {}
    for table, values in column.values.items():
        scaled = np.rint((np.nan_to_num(values) / 2 - low / 2) * scale)
        with_far = np.where(np.isnan(values), _FAR * unit, scaled)
        multiples[table] = with_far.astype(np.int32)
    return multiples


def _standard(column: AlignedColumn) -> dict[str, NDArray[Any]]:
    """Standardise numbers by mean and deviation; a missing one is the mean."""
    pooled = np.concatenate(
        [values[~np.isnan(values)] for values in column.values.values()]
    )
    # Squares of large numbers would overflow.
    largest = float(np.abs(pooled).max()) or 1.0
    scaled = pooled / largest
    mean = float(scaled.mean())
    deviation = float(scaled.std())
    is_constant = deviation == 0 or pooled.min() == pooled.max()
    standardised: dict[str, NDArray[Any]] = {}
    for table, values in column.values.items():
        if is_constant:
            standardised[table] = np.zeros(len(values), np.float32)
        else:
            numbers = np.nan_to_num((values / largest - mean) / deviation)
            standardised[table] = numbers.astype(np.float32)
    return standardised


def _codes(column: AlignedColumn) -> dict[str, NDArray[Any]]:
    """Return codes in the smallest integer type; numbers are coded by their rank in all tables."""
    if not column.numeric:
        code_type = np.min_scalar_type(column.levels - 1)
        return {
            table: values.astype(code_type) for table, values in column.values.items()
        }
    # One NaN, at the end.
    pooled = np.unique(np.concatenate(list(column.values.values())))
    code_type = np.min_scalar_type(len(pooled) - 1)
    return {
        table: np.searchsorted(pooled, values).astype(code_type)
        for table, values in column.values.items()
    }
