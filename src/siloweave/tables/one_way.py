"""How the values of single columns are distributed, as plain data: counts that rows can be held to.

Categories are themselves; numbers and moments are cut at quantiles, and where a value is frequent
it has a cell of its own. What is rare is one cell, so that no cell tells of a few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError
from siloweave.tables.bins import BINNED
from siloweave.tables.read import Table
from siloweave.tables.schema import Column, Schema

__all__ = ["OneWay"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CUTS, _MOST, _RARE = 50, 200, 20.0  # quantiles; categories kept apart; rows of a cell at least


class _Cells(msgspec.Struct, frozen=True):
    """Cells of one column: its frequent categories, or the upper ends of its ranges.

    The last two shares are of all else and of missing values.
    """

    column: Column
    labels: tuple[Any, ...]
    ends: tuple[float, ...]
    shares: tuple[float, ...]


class _File(msgspec.Struct, frozen=True):
    format: Literal["siloweave-one-way"]
    version: int
    cells: tuple[_Cells, ...]


def _numbers(column: Column, table: Table) -> tuple[Floats, NDArray[np.bool_]]:
    if column.kind == "datetime":
        moments, gone = table.moments(column.name, column.format)
        return moments.astype(np.float64), gone
    values, gone = table.floats(column.name)
    return np.asarray(values, dtype=np.float64), gone


def _codes(cells: _Cells, table: Table) -> Ints:
    """The cell of every row."""
    if cells.column.kind in BINNED:
        values, gone = _numbers(cells.column, table)
        found = np.searchsorted(np.asarray(cells.ends), np.where(gone, 0.0, values), side="left")
        found = np.minimum(found, len(cells.ends))
    else:
        found = np.full(table.num_rows, -1)
        if cells.labels:
            found = table.lookup(cells.column.name, cells.labels).astype(np.int64)
        found, gone = (
            np.where(found < 0, len(cells.labels), found),
            table.missing(cells.column.name),
        )
    return np.where(gone, len(cells.shares) - 1, found).astype(np.int64)


def _cells(column: Column, table: Table) -> _Cells:
    labels: tuple[Any, ...] = ()
    ends: tuple[float, ...] = ()
    if column.kind in BINNED:
        values, gone = _numbers(column, table)
        if not gone.all():
            levels = np.linspace(0.0, 1.0, _CUTS + 1)[1:]
            cuts = np.quantile(values[~gone], levels, method="inverted_cdf")
            ends = tuple(np.unique(cuts).tolist())
    else:
        kinds, counts = table.counts(column.name)
        frequent = [kind for kind, count in zip(kinds, counts, strict=True) if count >= _RARE]
        labels = tuple(frequent[:_MOST])
    blank = _Cells(column, labels, ends, (0.0,) * (len(labels) + len(ends) + 2))
    counted = np.bincount(_codes(blank, table), minlength=len(blank.shares))
    shares = tuple((counted / max(table.num_rows, 1)).tolist())
    return _Cells(column, labels, ends, shares)


@dataclass(frozen=True)
class OneWay:
    """Shares of every column's cells.

    Attributes:
        cells: Of each column but ids.

    Example:
        >>> table = Table.from_columns({"x": (np.array([1, 1, 1, 2]), None)})
        >>> law = OneWay.of(table, Schema((Column("x", "integer"),)))
        >>> [shares.tolist() for shares in law.shares]
        [[0.75, 0.25, 0.0, 0.0]]
        >>> law.codes(table)[0].tolist()
        [0, 0, 0, 1]
    """

    cells: tuple[_Cells, ...]

    @classmethod
    def of(cls, table: Table, schema: Schema) -> OneWay:
        """Count the rows of a table; exact, and so a release of them."""
        held = [c for c in schema.columns if c.kind != "id" and c.name in table.names]
        return cls(tuple(_cells(column, table) for column in held))

    @property
    def shares(self) -> list[Floats]:
        """Per column, the share of each cell; all else and missing values are the last two."""
        return [np.asarray(one.shares) for one in self.cells]

    def codes(self, table: Table) -> list[Ints]:
        """Per column, the cell of every row."""
        return [_codes(one, table) for one in self.cells]

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
