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
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema
from siloweave.tables.units import check_unit

ROW = "row"
"""The unit that needs no column: every row is one."""


def numbered(
    ids: Sequence[str | None], known: dict[str, int] | None = None, first: int = 0
) -> Ints:
    """Number whose each row is; a row without an id has a number of its own.

    Args:
        ids: Whose each row is, as `units.rows_by_unit` reads it.
        known: Numbers of ids of earlier tables; those of new ids are added.
        first: The least number that is free.

    Example:
        >>> numbered(["ana", "ben", "ana", None, None]).tolist()
        [0, 1, 0, 2, 3]
    """
    numbers = {} if known is None else known
    found = np.empty(len(ids), dtype=np.int64)
    free = first
    for row, one in enumerate(ids):
        number = free if one is None else numbers.setdefault(one, free)
        if number == free:  # an id that was not seen before, or none
            free += 1
        found[row] = number
    return found


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
    known: dict[str, int] = {}
    found = {}
    first = 0
    for name, table in tables.items():
        if unit == ROW:
            owners = np.arange(first, first + table.num_rows)
        else:
            owners = numbered(ids_in(name, table, unit, schema), known, first)
        found[name] = owners
        first = max(first, int(owners.max(initial=-1)) + 1)
    return found


def _check_named(unit: object) -> None:
    if not isinstance(unit, str) or not unit:
        raise InputError(f"unit={unit!r} must be 'row', or the name of an id column")


def ids_in(name: str, table: Table, unit: str, schema: Schema | None = None) -> list[str | None]:
    """Read whose the rows of a named table are; None where an id is missing.

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
    """Leave out the column that says whose row it is: nobody is compared by an id."""
    if unit == ROW or unit not in table.names:
        return table
    return table.select([name for name in table.names if name != unit])


def refuse_shared(owners: Mapping[str, Ints], one: str, other: str, unit: str) -> None:
    """Refuse two tables that share a person.

    Raises:
        DataError: With how many they share, and never which.
    """
    shared = len(np.intersect1d(owners[one], owners[other]))
    if shared:
        people = "person has" if shared == 1 else "persons have"
        raise DataError(
            f"{shared} {people} rows in both {one} and {other} (unit={unit!r}), so {other} holds "
            f"people that the generator saw. Hold out persons and not rows: leave all their rows "
            f"out of one of the two, as split_rows(..., unit={unit!r}) does"
        )


def places_of(owners: Ints, *, most: int) -> Ints:
    """Gather the places of each unit's rows.

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
    longest = int(counts.max(initial=0))
    if longest > most:
        raise InputError(
            f"most={most}: a unit has {longest} rows. Leave out what is above the bound before "
            "rows are gathered"
        )
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(counts)
    column = np.arange(len(owners)) - np.repeat(ends - counts, counts)
    places = np.full((len(numbers), most), -1, dtype=np.int64)
    places[np.repeat(np.arange(len(numbers)), counts), column] = order
    return places


def relabelled(owners: Ints) -> tuple[Ints, Ints]:
    """Number units from 0 without gaps.

    Returns:
        The new number of each row, and how many rows each unit has.
    """
    _, found, counts = np.unique(owners, return_inverse=True, return_counts=True)
    return found.reshape(-1).astype(np.int64), counts.astype(np.int64)


def rows_of_units(owners: Ints, units: Sequence[int] | Ints) -> Ints:
    """Find the rows of some units, in ascending order."""
    return np.flatnonzero(np.isin(owners, units))
