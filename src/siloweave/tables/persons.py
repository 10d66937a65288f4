"""Whose rows are whose: rows with one id in one or several tables are one unit's, a person's.

The unit is "row", or the name of an id column. Ids are compared as `tables.ids` reads them, so that
the number 7 and the text "7" are one person. A row without an id is a person of its own, since
nothing says whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from siloweave.errors import DataError, InputError
from siloweave.tables.arrays import Ints
from siloweave.tables.ids import check_exact, id_texts
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table
from siloweave.tables.units import check_unit

ROW = "row"
"""The unit that needs no column: every row is one."""


def numbered(
    ids: Sequence[str | None], numbers: dict[str, int] | None = None, first: int = 0
) -> Ints:
    """Number the person of each row; a row without an id is a person of its own.

    Args:
        ids: Whose each row is, as `units.rows_by_unit` reads it.
        numbers: Numbers of ids of earlier tables; those of new ids are added.
        first: The least number that is free.

    Example:
        >>> numbered(["ana", "ben", "ana", None, None]).tolist()
        [0, 1, 0, 2, 3]
    """
    if numbers is None:
        numbers = {}
    owners = np.empty(len(ids), dtype=np.int64)
    next_number = first
    for row, row_id in enumerate(ids):
        number = next_number
        if row_id is not None:
            number = numbers.setdefault(row_id, next_number)
        # It is used up by a new id, and by a row without any.
        if number == next_number:
            next_number += 1
        owners[row] = number
    return owners


def owners_in(
    tables: Mapping[str, Table], unit: str, schema: Schema | None = None
) -> dict[str, Ints]:
    """Number the unit that each row belongs to, over several tables together.

    Args:
        tables: What each is called in messages, and its rows.
        unit: "row", or the name of an id column that all of them have.
        schema: Says how a missing id is written; without one only an empty cell is missing.

    Returns:
        Per table a number for each row; rows of any tables with one id have one number.

    Raises:
        InputError: `unit` is no text.
        SchemaError: The schema declares the column as something else than an id.
        DataError: A table has no such column, or one that holds no ids.

    Example:
        >>> visits = Table.from_columns({"patient": (np.array([7, 8, 7]), None)})
        >>> owners_in({"visits": visits}, "patient")["visits"].tolist()
        [0, 1, 0]
    """
    _check_named(unit)
    if schema is not None and unit != ROW:
        check_unit(unit, schema)
    numbers: dict[str, int] = {}
    owners_by_table = {}
    first = 0
    for name, table in tables.items():
        if unit == ROW:
            owners = np.arange(first, first + table.num_rows)
        else:
            ids = ids_in(name, table, unit, schema)
            owners = numbered(ids, numbers, first)
        owners_by_table[name] = owners
        first = max(first, int(owners.max(initial=-1)) + 1)
    return owners_by_table


def _check_named(unit: object) -> None:
    """Raise InputError unless a unit is a name."""
    if not isinstance(unit, str) or not unit:
        raise InputError(f"unit={unit!r} must be 'row', or the name of an id column")


def ids_in(
    name: str, table: Table, unit: str, schema: Schema | None = None
) -> list[str | None]:
    """Read the ids that say whose the rows of a named table are; None for a missing id.

    DataError where there is no such column, or it holds no ids.
    """
    if unit not in table.names:
        raise DataError(
            f"{name} has no column {unit!r}, which unit={unit!r} names; it has "
            f"{', '.join(table.names)}. Name the id column that all tables have, or use unit='row'"
        )
    if schema is not None:
        table = table.blanked(unit, schema[unit].missing_values)
    try:
        check_exact(table, unit)
        texts = id_texts(table, unit)
    except DataError as error:
        raise DataError(f"{name}: unit={unit!r}: {error}") from None
    return [text or None for text in texts]


def without_ids(table: Table, unit: str) -> Table:
    """Leave out the column that says whose a row is: nobody is compared by an id."""
    if unit == ROW or unit not in table.names:
        return table
    return table.select([name for name in table.names if name != unit])


def refuse_shared(
    owners: Mapping[str, Ints], first: str, second: str, unit: str
) -> None:
    """Refuse two tables that share a person.

    Args:
        owners: The number of each row's unit, by table.
        first: The table that the generator saw.
        second: The table that it must not have seen.
        unit: What the tables share, for the message.

    Raises:
        DataError: With how many they share, and never which.
    """
    num_shared = len(np.intersect1d(owners[first], owners[second]))
    if num_shared:
        people = "person has" if num_shared == 1 else "persons have"
        raise DataError(
            f"{num_shared} {people} rows in both {first} and {second} (unit={unit!r}), so "
            f"{second} holds people that the generator saw. Hold out persons and not rows: leave "
            f"all their rows out of one of the two, as split_rows(..., unit={unit!r}) does"
        )


def places_of(owners: Ints, *, most: int) -> Ints:
    """Return the places of each unit's rows.

    Args:
        owners: The number of each row's unit, in any order.
        most: Rows that a unit may have.

    Returns:
        (units, most): places in ascending order, -1 after a unit's last row. Units are in the order
        of their numbers.

    Raises:
        InputError: A unit has more rows.

    Example:
        >>> places_of(np.array([4, 9, 4]), most=2).tolist()
        [[0, 2], [1, -1]]
    """
    numbers, counts = np.unique(owners, return_counts=True)
    most_rows = int(counts.max(initial=0))
    if most_rows > most:
        raise InputError(
            f"most={most}: a unit has {most_rows} rows. Leave out what is above the bound before "
            "rows are gathered"
        )

    # Rows of a unit stand together in this order, and the first of them at its start.
    by_unit = np.argsort(owners, kind="stable")
    starts = np.cumsum(counts) - counts
    unit_places = np.repeat(np.arange(len(numbers)), counts)
    ranks = np.arange(len(owners)) - np.repeat(starts, counts)
    places = np.full((len(numbers), most), -1, dtype=np.int64)
    places[unit_places, ranks] = by_unit
    return places


def relabelled(owners: Ints) -> tuple[Ints, Ints]:
    """Number units from 0 without gaps, and count the rows of each.

    Returns:
        The new number of each row, and how many rows each unit has.
    """
    _, numbers, counts = np.unique(owners, return_inverse=True, return_counts=True)
    # In NumPy 2.0 the inverse has the shape of its argument.
    return numbers.reshape(-1).astype(np.int64), counts.astype(np.int64)


def rows_of_units(owners: Ints, units: Sequence[int] | Ints) -> Ints:
    """Return the rows of some units, in ascending order."""
    return np.flatnonzero(np.isin(owners, units))
