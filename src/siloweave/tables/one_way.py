"""How the values of single columns are distributed, as plain data that rows can be held to.

Categories are themselves; numbers and datetimes are cut at quantiles, and where a value is frequent
it has a cell of its own. What is rare is one cell, so that no cell describes a few rows. Numbers
whose distribution is far from the known one are moved, in their order, until it is that one.

Sources:
    Quantile mapping: Panofsky & Brier 1968, *Some applications of statistics to meteorology*; on
    the line no map to that distribution moves less (Villani 2003, *Topics in optimal
    transportation*, theorem 2.18).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError
from siloweave.tables.bins import BINNED, edges_of, last_of, numbers_of
from siloweave.tables.codes import codes_of, options_of
from siloweave.tables.encodings import resolution_of, rounded
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CUTS, _MOST, _RARE = 50, 200, 20.0  # quantiles; categories kept apart; rows of a cell at least
_EXACT = 2.0**53  # whole numbers beyond are not all float64
_FREQUENT = 2.0  # times a quantile's share: a cell that holds more is of one value
_GAP, _NOISE = 0.05, 0.4  # of what is left in place; what chance explains, per root (cells / rows)


def far_off(values: Floats, ends: Floats, shares: Floats) -> bool:
    """Whether values are distributed otherwise than chance explains, and by more than 5 %.

    That is, whether the total variation distance between the shares of ranges (with upper `ends`,
    ascending) and those that they should hold is above 0.05 + 0.4 √(cells / n).
    """
    if not len(values):
        return False
    places = np.minimum(np.searchsorted(ends, values, side="left"), len(ends) - 1)
    have = np.bincount(places, minlength=len(ends)) / len(values)
    gap = 0.5 * float(np.abs(have - shares).sum())
    return gap > _GAP + _NOISE * float(np.sqrt(len(ends) / len(values)))


def quantile_mapped(
    values: Floats, ends: Floats, shares: Floats, alone: NDArray[np.bool_]
) -> Floats:
    """Move numbers so that each range holds its share; their order stays, but equal ones may part.

    Between the ends of ranges the map is linear; below the first and above the last but one it
    shifts, so that tails keep their shape. No number is moved beyond the last end; numbers of a
    range that is `alone`, which has one value, become it. There are two ranges or more; `ends` are
    their upper ends, ascending, and `shares` of the values sum to 1.
    """
    values = _apart(values)
    inner, at = ends[:-1], np.quantile(values, np.minimum(np.cumsum(shares)[:-1], 1.0))
    moved = np.interp(values, at, inner)
    moved = np.where(values < at[0], values + (inner[0] - at[0]), moved)
    moved = np.where(values > at[-1], values + (inner[-1] - at[-1]), moved)
    into = np.searchsorted(at, values, side="left")
    return np.asarray(np.where(alone[into], ends[into], np.minimum(moved, ends[-1])), np.float64)


def _apart(values: Floats) -> Floats:
    """Spread equal numbers, in the order they come, halfway to the nearest other one."""
    known, place, times = np.unique(values, return_inverse=True, return_counts=True)
    if len(known) < 2 or times.max() == 1:
        return values
    halves = np.diff(known) / 2
    width = np.minimum(np.append(halves, halves[-1]), np.insert(halves, 0, halves[0]))
    turn = np.empty(len(values))
    turn[np.argsort(place, kind="stable")] = np.concatenate([np.arange(n) for n in times])
    spread: Floats = values + width[place] * ((2.0 * turn + 1.0) / times[place] - 1.0)
    return spread


class Cells(msgspec.Struct, frozen=True):
    """Cells of one column.

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
        cells, own = max(len(self.labels), len(self.ends)) + 2, (*self.shares, *self.ends)
        if len(self.shares) != cells or not np.isfinite(own).all() or min(self.shares) < 0:
            raise DataError(
                f"these are no shares of column {self.column.name!r}: {cells} of 0 or more are "
                f"wanted for its cells, all finite, and there are {len(self.shares)}"
            )

    @classmethod
    def of_options(cls, column: Column, weights: Floats, rows: int) -> Cells:
        """Of a categorical or boolean column.

        Weights are of every option, and of missing values behind them if the column has them; they
        stand for so many rows.
        """
        options = column.options
        shares = np.asarray(weights, dtype=np.float64) / max(float(np.sum(weights)), 1e-300)
        known, gone = shares[: len(options)], float(shares[len(options) :].sum())
        order = np.argsort(-known, kind="stable")[:_MOST]
        kept = np.sort(order[known[order] * rows >= _RARE])
        own = known[kept].tolist()
        rest = max(1.0 - gone - sum(own), 0.0)
        return cls(column, tuple(options[i] for i in kept), (), (*own, rest, gone))

    @classmethod
    def of_numbers(cls, column: Column, values: Floats, weights: Floats, gone: float) -> Cells:
        """Of a column of numbers, or of datetimes in the steps of bins.py.

        Values are distinct and ascending, each with a weight; `gone` is that of missing values.
        """
        total = float(np.sum(weights))
        if total <= 0:
            return cls(column, (), (), (0.0, 1.0))
        below = np.cumsum(weights) / total
        levels = np.linspace(0.0, 1.0, _CUTS + 1)[1:]
        places = np.unique(np.minimum(np.searchsorted(below, levels - 1e-9), len(values) - 1))
        own = np.diff(np.append(0.0, below[places])) * total / (total + gone)
        ends = tuple(np.asarray(values, dtype=np.float64)[places].tolist())
        return cls(column, (), ends, (*own.tolist(), 0.0, gone / (total + gone)))

    def check(self, column: Column) -> None:
        """Raise DataError unless these can be shares of a column."""
        fits = self.column == column and abs(sum(self.shares) - 1.0) <= 1e-6
        if column.kind in BINNED:  # as floats: ends were rounded as the bounds are here
            bounds = float(edges_of(column, 1)[0]), *self.ends, float(last_of(column))
            fits = fits and not self.labels and bool((np.diff(bounds) >= 0).all())
        else:
            options = column.options
            places = {options.index(one) for one in self.labels if one in options}
            fits = fits and not self.ends and len(places) == len(self.labels)
        if not fits:
            raise DataError(f"these are no shares of column {column.name!r}, as the study has it")

    def codes(self, table: Table) -> Ints:
        """The cell of every row of a table."""
        name = self.column.name
        if self.column.kind in BINNED:
            values, gone = numbers_of(self.column, table)
            near = np.searchsorted(np.asarray(self.ends), np.where(gone, 0, values), side="left")
            found = np.minimum(near, len(self.ends))
        else:
            gone, found = table.missing(name), np.full(table.num_rows, -1)
            if self.labels:  # all may be rare
                found = table.lookup(name, self.labels)
            found = np.where(found < 0, len(self.labels), found)
        return np.where(gone, len(self.shares) - 1, found).astype(np.int64)

    def moved(self, table: Table, pool: Table) -> Floats | Ints | None:
        """Numbers of a table's column, moved until their shares are right; None if they stay."""
        if self.column.kind not in ("integer", "continuous") or len(self.ends) < 2:
            return None
        shares, ends = np.asarray(self.shares[: len(self.ends)]), np.asarray(self.ends)
        if np.abs(ends).max() > _EXACT:
            return None
        shares = shares / shares.sum()
        values, gone = numbers_of(self.column, table)
        numbers = values.astype(np.float64)
        if not far_off(numbers[~gone], ends, shares):
            return None
        low, high = float(self.column.low or 0.0), float(self.column.high or 0.0)
        alone = shares >= _FREQUENT / _CUTS
        moved = quantile_mapped(numbers[~gone], ends, shares, alone)
        others, out = numbers_of(self.column, pool)
        if self.column.kind == "continuous":
            tidy = _tidy(moved, others[~out].astype(np.float64))
            numbers[~gone] = np.clip(np.where(np.isin(moved, ends[alone]), moved, tidy), low, high)
            return numbers
        numbers[~gone] = np.clip(np.ceil(moved), low, high)
        return numbers.astype(np.int64)


def _tidy(values: Floats, pool: Floats) -> Floats:
    """The nearest numbers of a pool; beyond it, as many decimals as there."""
    known = np.unique(pool)
    nearest = known[np.searchsorted((known[:-1] + known[1:]) / 2, values)]
    inside = (values >= known[0]) & (values <= known[-1])
    return np.where(inside, nearest, rounded(values, resolution_of(pool)))


class _File(msgspec.Struct, frozen=True):
    format: Literal["siloweave-one-way"]
    version: int
    cells: tuple[Cells, ...]


def _counted(column: Column, table: Table) -> Cells:
    if column.kind in BINNED:
        values, gone = numbers_of(column, table)
        seen, times = np.unique(values[~gone], return_counts=True)
        return Cells.of_numbers(
            column, seen.astype(np.float64), times.astype(np.float64), float(gone.sum())
        )
    counts = np.bincount(codes_of(column, table), minlength=options_of(column))
    return Cells.of_options(column, counts.astype(np.float64), table.num_rows)


@dataclass(frozen=True)
class OneWay:
    """Shares of every column's cells, ids apart."""

    cells: tuple[Cells, ...]

    @classmethod
    def of(cls, table: Table, schema: Schema) -> OneWay:
        """Count the rows of a table; exact, and so a release of them."""
        held = [column for column in schema.coded if column.name in table.names]
        return cls(tuple(_counted(column, table) for column in held))

    def check(self, schema: Schema) -> OneWay:
        """Return it; raises DataError unless it can be of the schema's columns without ids."""
        names = [one.column.name for one in self.cells]
        wanted = [column.name for column in schema.coded]
        if sorted(names) != sorted(wanted):
            raise DataError(f"these are shares of {', '.join(names)}, not of {', '.join(wanted)}")
        for one in self.cells:
            one.check(schema[one.column.name])
        return self

    @property
    def shares(self) -> list[Floats]:
        """Per column, the share of each cell; other and missing values are the last two."""
        return [np.asarray(one.shares) for one in self.cells]

    def codes(self, table: Table) -> list[Ints]:
        """Per column, the cell of every row."""
        return [one.codes(table) for one in self.cells]

    def moved(self, table: Table, pool: Table) -> Table:
        """A table whose numbers are moved in columns that are further off than `far_off` allows.

        The rows were chosen for these shares, as far as possible, from a pool: numbers become
        numbers of the pool. Datetimes stay.
        """
        moved = {one.column.name: one.moved(table, pool) for one in self.cells}
        moved = {name: numbers for name, numbers in moved.items() if numbers is not None}
        if not moved:
            return table
        columns = {n: (moved.get(n, table.values(n)), table.missing(n)) for n in table.names}
        return Table.from_columns(columns, like=table)

    def to_json(self) -> str:
        """Plain data; `from_json` reads it."""
        return msgspec.json.encode(_File("siloweave-one-way", 1, self.cells)).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> OneWay:
        """Read what `to_json` wrote; raises DataError if it is something else."""
        try:
            return cls(msgspec.json.decode(text, type=_File).cells)
        except msgspec.MsgspecError as error:
            raise DataError(f"these are no shares of columns: {error}") from error
