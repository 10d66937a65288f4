"""Tables side by side: the same columns as numbers or as shared codes, for comparing any two.

Nothing here is private and nothing is declared: kinds come from the first table unless a schema
names them, and categories are those that any of the tables holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError, SchemaError
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.bins import BINNED
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Column, Schema

_ANY = 1 << 40  # categories: as many as there are
_DAY = 86_400_000_000.0  # microseconds


@dataclass(frozen=True, eq=False)
class AlignedColumn:
    """One column of every table.

    Attributes:
        name: The column's name.
        kind: ``numeric``, or ``categorical`` for everything with categories.
        values: Per table, one entry per row. Numeric: float64, NaN where missing; datetimes are
            days since 1970. Categorical: int32 places in `labels`, ``len(labels)`` where missing.
        labels: Categories of all tables, those of the first table first, most frequent first;
            empty for a numeric column.
        whole: Whether the first table's numbers are whole.
        datetimes: Whether the numbers stand for datetimes.
    """

    name: str
    kind: Literal["numeric", "categorical"]
    values: Mapping[str, NDArray[Any]]
    labels: tuple[Any, ...] = ()
    whole: bool = False
    datetimes: bool = False

    @property
    def numeric(self) -> bool:
        """Whether values are numbers."""
        return self.kind == "numeric"

    @property
    def levels(self) -> int:
        """Codes of a categorical column: its categories and one for a missing value."""
        return len(self.labels) + 1

    def missing(self, table: str) -> Bools:
        """Which of a table's rows have no value."""
        values = self.values[table]
        mask: Bools = np.isnan(values) if self.numeric else values == len(self.labels)
        return mask


@dataclass(frozen=True, eq=False)
class Aligned:
    """Tables with the same columns, in the order of the first; ids and texts are left out.

    Example:
        >>> one = Table.from_columns({"x": (np.array([1.5, 2.0]), None)})
        >>> both = align({"real": one, "synthetic": one})
        >>> both.columns[0].kind, both.num_rows["real"]
        ('numeric', 2)
    """

    columns: tuple[AlignedColumn, ...]
    num_rows: Mapping[str, int]
    left_out: tuple[str, ...] = ()
    owners: Mapping[str, Ints] = field(default_factory=dict)  # whose each row is; none: its own

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def numeric(self) -> tuple[AlignedColumn, ...]:
        """The columns of numbers."""
        return tuple(column for column in self.columns if column.numeric)

    @property
    def categorical(self) -> tuple[AlignedColumn, ...]:
        """The columns of codes."""
        return tuple(column for column in self.columns if not column.numeric)

    @cached_property
    def _places(self) -> dict[str, AlignedColumn]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> AlignedColumn:
        """Return a column by its name; DataError when it is not there."""
        if name not in self._places:
            raise DataError(f"there is no column {name!r}; there are {', '.join(self.names)}")
        return self._places[name]

    def with_rows(self, table: str, like: str, rows: Ints) -> Aligned:
        """The same, with a further table of some rows, perhaps repeated, of one that is there."""
        columns = [
            replace(c, values={**c.values, table: c.values[like][rows]}) for c in self.columns
        ]
        counts = {**self.num_rows, table: len(rows)}
        owners = dict(self.owners)
        if like in owners:
            owners[table] = owners[like][rows]
        return Aligned(tuple(columns), counts, self.left_out, owners)

    def owners_of(self, table: str) -> Ints:
        """Whose each row of a table is; of a table without owners every row is a unit."""
        return self.owners.get(table, np.arange(self.num_rows[table]))


def align(tables: Mapping[str, Any], schema: Schema | None = None) -> Aligned:
    """Put tables side by side.

    Args:
        tables: What each is called in messages, and a `Table`, frame or path. The first sets the
            order of columns and, without a schema, their kinds.
        schema: Kinds of the columns; the categories and bounds that it declares are not used.

    Raises:
        SchemaError: Tables have different columns, or types that do not match.
        DataError: A table has no rows, or a column has no value in one of them.
    """
    read_in = {name: read(table) for name, table in tables.items()}
    first, main = next(iter(read_in.items()))
    for name, table in read_in.items():
        _check(first, main, name, table)
    columns, left_out = [], []
    facts = _facts(main, schema)
    for name in main.names:
        column = facts[name]
        if not column.modelled:
            left_out.append(name)
            continue
        marked = {w: table.blanked(name, column.missing_values) for w, table in read_in.items()}
        for which, table in marked.items():
            if table.missing(name).all():
                raise DataError(
                    f"column {name!r} has no value in any row of {which}; leave it out everywhere"
                )
        if column.kind in BINNED:
            columns.append(_numeric(column, marked))
        else:
            columns.append(_categorical(name, marked))
    if not columns:
        names = ", ".join(left_out)
        raise DataError(f"{first} has no column to compare: all hold ids or texts ({names})")
    counts = {name: table.num_rows for name, table in read_in.items()}
    return Aligned(tuple(columns), counts, tuple(left_out))


def _check(first: str, main: Table, name: str, table: Table) -> None:
    if table.num_rows == 0:
        raise DataError(f"{name} has no rows; there is nothing to compare")
    lacking = [column for column in main.names if column not in table.names]
    extra = [column for column in table.names if column not in main.names]
    if lacking or extra:
        parts = [f"{name} lacks {', '.join(map(repr, lacking))}"] if lacking else []
        parts += [f"{first} lacks {', '.join(map(repr, extra))}"] if extra else []
        raise SchemaError(
            f"{first} and {name} have different columns: {'; '.join(parts)}. Compare tables with "
            "the same columns, or take those they share with Table.select"
        )


def _facts(table: Table, schema: Schema | None) -> Schema:
    if schema is None:
        return Schema.detect(table, max_categories=_ANY, constraints=False)
    for name in table.names:
        if name not in schema.names:
            raise SchemaError(f"the schema lacks column {name!r}; declare it, or leave it out")
    return schema


def floats_of(column: Column, table: Table) -> Floats:
    """A column of numbers, NaN where one is missing; datetimes are days since 1970."""
    table = table.blanked(column.name, column.missing_values)
    if column.kind == "datetime":
        steps, mask = table.datetimes(column.name, column.format)
        found = steps / _DAY
    else:
        found, mask = table.floats(column.name, column.format)
    return np.where(mask, np.nan, found)


def _numeric(column: Column, tables: Mapping[str, Table]) -> AlignedColumn:
    name, kind = column.name, column.kind
    values = {}
    for which, table in tables.items():
        try:
            values[which] = floats_of(column, table)
        except SchemaError as error:
            raise SchemaError(f"{which}: {error}") from None
        if np.isinf(values[which]).any():
            raise DataError(f"{which}: column {name!r} holds infinite numbers; replace them")
    return AlignedColumn(
        name, "numeric", values, whole=kind == "integer", datetimes=kind == "datetime"
    )


def _categorical(name: str, tables: Mapping[str, Table]) -> AlignedColumn:
    kinds = {table.kind(name) for table in tables.values()}
    if "text" in kinds and len(kinds) > 1:
        held = ", ".join(f"{table.kind(name)} in {which}" for which, table in tables.items())
        raise SchemaError(
            f"column {name!r} holds {held}; convert one of them, so that equal values are equal"
        )
    labels = tuple(dict.fromkeys(v for table in tables.values() for v in table.counts(name)[0]))
    values = {which: table.lookup(name, labels) for which, table in tables.items()}
    for codes in values.values():
        codes[codes < 0] = len(labels)
    return AlignedColumn(name, "categorical", values, labels)
