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
from siloweave.tables.column import Column
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

# As many categories as there are: what is compared need not be modelled.
_ANY_CATEGORIES = 1 << 40
# In microseconds.
_DAY = 86_400_000_000.0


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
        """The number of codes of a categorical column: of its categories, and a missing value."""
        return len(self.labels) + 1

    def missing(self, table: str) -> Bools:
        """Return which rows of a table have no value in the column, as a mask."""
        values = self.values[table]
        if self.numeric:
            is_missing: Bools = np.isnan(values)
        else:
            is_missing = values == len(self.labels)
        return is_missing


@dataclass(frozen=True, eq=False)
class Aligned:
    """Tables with the same columns, in the order of the first; ids and texts are left out.

    Attributes:
        columns: Columns that all tables have.
        num_rows: How many rows each table has.
        left_out: Names of columns that are not compared.
        owners: Whose each row of a table is; of a table that is not named, every row is a unit.

    Example:
        >>> one = Table.from_columns({"x": (np.array([1.5, 2.0]), None)})
        >>> both = align({"real": one, "synthetic": one})
        >>> both.columns[0].kind, both.num_rows["real"]
        ('numeric', 2)
    """

    columns: tuple[AlignedColumn, ...]
    num_rows: Mapping[str, int]
    left_out: tuple[str, ...] = ()
    owners: Mapping[str, Ints] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
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
    def _columns_by_name(self) -> dict[str, AlignedColumn]:
        return {column.name: column for column in self.columns}

    def column(self, name: str) -> AlignedColumn:
        """Return a column by its name; DataError when it is not there."""
        if name not in self._columns_by_name:
            raise DataError(
                f"there is no column {name!r}; there are {', '.join(self.names)}"
            )
        return self._columns_by_name[name]

    def with_rows(self, table: str, like: str, rows: Ints) -> Aligned:
        """Add a table that consists of some rows of another one, which may repeat."""
        columns = []
        for column in self.columns:
            values = {**column.values, table: column.values[like][rows]}
            columns.append(replace(column, values=values))
        num_rows = {**self.num_rows, table: len(rows)}
        owners = dict(self.owners)
        if like in owners:
            owners[table] = owners[like][rows]
        return Aligned(tuple(columns), num_rows, self.left_out, owners)

    def owners_of(self, table: str) -> Ints:
        """Return whose each row of a table is, as numbers; without owners every row is a unit."""
        return self.owners.get(table, np.arange(self.num_rows[table]))


def align(tables: Mapping[str, Any], schema: Schema | None = None) -> Aligned:
    """Put tables side by side, with their columns as numbers or as codes that all tables share.

    Args:
        tables: What each is called in messages, and a `Table`, frame or path. The first sets the
            order of columns and, without a schema, their kinds.
        schema: Kinds of the columns; the categories and bounds that it declares are not used.

    Raises:
        SchemaError: Tables have different columns, or types that do not match.
        DataError: A table has no rows, or a column has no value in one of them.
    """
    tables_read = {name: read(table) for name, table in tables.items()}
    first_name = next(iter(tables_read))
    first_table = tables_read[first_name]
    for name, table in tables_read.items():
        _check_columns(first_name, first_table, name, table)

    columns = []
    left_out = []
    kinds = _kinds_of(first_table, schema)
    for name in first_table.names:
        column = kinds[name]
        if not column.modelled:
            left_out.append(name)
            continue
        # Declared spellings of a missing value are missing in every table.
        blanked_tables = {}
        for table_name, table in tables_read.items():
            blanked_tables[table_name] = table.blanked(name, column.missing_values)
        _check_values(name, blanked_tables)
        if column.is_binned:
            columns.append(_numeric(column, blanked_tables))
        else:
            columns.append(_categorical(name, blanked_tables))
    if not columns:
        names_text = ", ".join(left_out)
        raise DataError(
            f"{first_name} has no column to compare: all hold ids or texts ({names_text})"
        )
    num_rows = {name: table.num_rows for name, table in tables_read.items()}
    return Aligned(tuple(columns), num_rows, tuple(left_out))


def _check_columns(
    first_name: str, first_table: Table, table_name: str, table: Table
) -> None:
    """Raise DataError for a table without rows, SchemaError for other columns than the first's."""
    if table.num_rows == 0:
        raise DataError(f"{table_name} has no rows; there is nothing to compare")
    absent_names = [repr(name) for name in first_table.names if name not in table.names]
    extra_names = [repr(name) for name in table.names if name not in first_table.names]
    differences = []
    if absent_names:
        differences.append(f"{table_name} lacks {', '.join(absent_names)}")
    if extra_names:
        differences.append(f"{first_name} lacks {', '.join(extra_names)}")
    if differences:
        raise SchemaError(
            f"{first_name} and {table_name} have different columns: {'; '.join(differences)}. "
            "Compare tables with the same columns, or take those they share with Table.select"
        )


def _check_values(name: str, tables: Mapping[str, Table]) -> None:
    """Raise DataError where a column has no value in one of the tables."""
    for table_name, table in tables.items():
        if table.missing(name).all():
            raise DataError(
                f"column {name!r} has no value in any row of {table_name}; leave it out everywhere"
            )


def _kinds_of(table: Table, schema: Schema | None) -> Schema:
    """Return the schema with the kinds of a table's columns: the declared or a detected one."""
    if schema is None:
        return Schema.detect(table, max_categories=_ANY_CATEGORIES, constraints=False)
    for name in table.names:
        if name not in schema.names:
            raise SchemaError(
                f"the schema lacks column {name!r}; declare it, or leave it out"
            )
    return schema


def floats_of(column: Column, table: Table) -> Floats:
    """Return a numeric column as floats, NaN for a missing value; datetimes are days since 1970."""
    table = table.blanked(column.name, column.missing_values)
    if column.is_datetime:
        micros, is_missing = table.datetimes(column.name, column.format)
        numbers = micros / _DAY
    else:
        numbers, is_missing = table.floats(column.name, column.format)
    return np.where(is_missing, np.nan, numbers)


def _numeric(column: Column, tables: Mapping[str, Table]) -> AlignedColumn:
    """Align a column of numbers or datetimes over all tables."""
    values = {}
    for table_name, table in tables.items():
        try:
            values[table_name] = floats_of(column, table)
        except SchemaError as error:
            raise SchemaError(f"{table_name}: {error}") from None
        if np.isinf(values[table_name]).any():
            raise DataError(
                f"{table_name}: column {column.name!r} holds infinite numbers; replace them"
            )
    return AlignedColumn(
        column.name,
        "numeric",
        values,
        whole=column.is_whole,
        datetimes=column.is_datetime,
    )


def _categorical(name: str, tables: Mapping[str, Table]) -> AlignedColumn:
    """Align a column of categories over all tables, as codes that all of them share."""
    kinds = {table_name: table.kind(name) for table_name, table in tables.items()}
    distinct_kinds = set(kinds.values())
    if "text" in distinct_kinds and len(distinct_kinds) > 1:
        places = [f"{kind} in {table_name}" for table_name, kind in kinds.items()]
        raise SchemaError(
            f"column {name!r} holds {', '.join(places)}; convert one of them, so that equal "
            "values are equal"
        )

    # Each value counts where it comes first: the first table's come before those of others.
    all_values = []
    for table in tables.values():
        distinct_values, _ = table.counts(name)
        all_values += distinct_values
    labels = tuple(dict.fromkeys(all_values))
    codes_by_table = {
        table_name: table.lookup(name, labels) for table_name, table in tables.items()
    }
    # No value is unknown here: below 0 is what is missing.
    for codes in codes_by_table.values():
        codes[codes < 0] = len(labels)
    return AlignedColumn(name, "categorical", codes_by_table, labels)
