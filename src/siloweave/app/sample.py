"""Open a finished run's model for the command line, and read the conditions that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from siloweave.app.ledgers import open_run
from siloweave.app.study import close_match
from siloweave.core.fit import Fit
from siloweave.errors import InputError, SchemaError
from siloweave.methods.registry import load
from siloweave.tables.cells import missing_cells
from siloweave.tables.column import Column
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

# How a value of each kind of column is written.
_SPELLINGS = {
    "boolean": "true or false",
    "datetime": "an ISO-8601 time",
    "integer": "a whole number",
    "continuous": "a number",
}
# How a cell that is written in a column's format is read.
_READERS = {
    "integer": Table.integers,
    "continuous": Table.floats,
    "datetime": Table.datetimes,
}


def open_model(run: Path) -> Fit:
    """Return the model in the folder of a finished run.

    Raises:
        InputError: There is no finished run, or a file of its model is gone or damaged.
    """
    open_run(run)
    try:
        return load(run / "model")
    except InputError as error:
        raise type(error)(
            f"{run / 'model'}: {error}. Put its files back from a backup; a model can be copied "
            "from wherever it was sent."
        ) from error


def parse_given(items: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Return values by column, from texts such as "age=40"; an empty value means missing, None.

    Numbers and dates may be written plainly, or as the column's format says.

    Raises:
        InputError: A column is unknown or given twice, or its value does not fit.

    Example:
        >>> parse_given(["age=40"], Schema((Column("age", "integer", low=0, high=99),)))
        {'age': 40}
    """
    values: dict[str, Any] = {}
    for item in items:
        name, value = _split(item, schema)
        if name in values:
            raise InputError(f"--given names column {name!r} twice; give one value.")
        values[name] = value
    return values


def _split(item: str, schema: Schema) -> tuple[str, Any]:
    """Return a column's name and its value; either may have "=" in it, and the longest name counts.

    Raises:
        InputError: No column has that name, its value does not fit, or the text fits two columns.
    """
    if "=" not in item:
        raise InputError(f"--given {item!r} must read column=value.")
    names = [name for name in schema.names if item.startswith(f"{name}=")]
    names.sort(key=len, reverse=True)
    if not names:
        name = item.partition("=")[0]
        raise InputError(
            f"--given {item!r}: there is no column {name!r}{close_match(name, schema.names)}"
        )

    # "a=b=c" is "b=c" of a column "a", or "c" of one that is called "a=b".
    fitting: dict[str, Any] = {}
    for name in names:
        with suppress(InputError):
            fitting[name] = _value(schema[name], item[len(name) + 1 :], item)
    if len(fitting) > 1:
        columns = " and ".join(repr(name) for name in fitting)
        raise InputError(
            f"--given {item!r} fits the columns {columns}; draw in Python, where each is named: "
            "sw.load(folder).sample(given={name: value})"
        )
    if fitting:
        return fitting.popitem()

    # No column takes the value. The one with the longest name says why, by its error.
    longest = names[0]
    return longest, _value(schema[longest], item[len(longest) + 1 :], item)


def filled_cells(schema: Schema, before: Table, after: Table) -> int:
    """Return how many cells of the same rows held no value before, and hold one after."""
    cells = 0
    for column in schema.coded:
        if column.name in before.names:
            was_missing = missing_cells(column, before)
            is_missing = missing_cells(column, after)
            cells += int(np.count_nonzero(was_missing & ~is_missing))
    return cells


def numbered_ids(schema: Schema) -> str:
    """Return a line on ids that count from 1 in every file; empty where the schema has none."""
    ids = [column for column in schema.columns if column.is_id]
    names = [column.name for column in ids if column.format is None]
    if not names:
        return ""
    verb = "counts" if len(names) == 1 else "count"
    return (
        f"\n{', '.join(names)} {verb} from 1 in every file: number the rows anew where you put "
        "files together, or declare a format"
    )


def _value(column: Column, text: str, item: str) -> Any:
    """Return the value of a column that a text stands for.

    Args:
        column: Facts about it.
        text: The value, as it was typed.
        item: The whole of --given, for errors.

    Raises:
        InputError: The text is no value of the column.
    """
    if not column.modelled:
        raise InputError(f"--given {item!r}: this column is drawn anew; leave it out.")
    if text == "" and "" not in column.categories:
        if not column.missing:
            raise InputError(
                f"--given {item!r}: this column has no missing values; give one."
            )
        return None
    if column.categories:
        return _category(column, text, item)

    kind = column.kind
    try:
        if kind == "boolean":
            return {"true": True, "false": False}[text.lower()]
        number = _number_in_format(column, text)
        if kind == "datetime":
            time = text if number is None else number
            return np.datetime64(time, "us")
        if number is None:
            number = int(text) if column.is_whole else float(text)
    except (ValueError, KeyError):
        or_format = f", or written like {column.format}" if column.format else ""
        raise InputError(
            f"--given {item!r}: the value must be {_SPELLINGS[kind]}{or_format}."
        ) from None

    low = column.low
    high = column.high
    if low is None or high is None:
        return number
    if not float(low) <= number <= float(high):
        raise InputError(
            f"--given {item!r}: the value must lie between {low} and {high}."
        )
    return number


def _category(column: Column, text: str, item: str) -> Any:
    """Return the category that a text stands for; InputError if the column has no such one."""
    categories = {str(category): category for category in column.categories}
    if text not in categories:
        proposal = close_match(text, categories)
        raise InputError(
            f"--given {item!r}: not a category of {column.name!r}{proposal} "
            f"It has {', '.join(categories)}."
        )
    return categories[text]


def _number_in_format(column: Column, text: str) -> Any:
    """Return the number that a text in the column's format stands for.

    A time is the microseconds since 1970. None if the column has no format, or the text another.
    """
    if column.format is None:
        return None
    table = Table.from_columns({column.name: ([text], None)})
    read_column = _READERS[column.kind]
    try:
        numbers, _ = read_column(table, column.name, column.format)
    except SchemaError:
        return None
    return numbers[0].item()
