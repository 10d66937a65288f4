"""What the command line asks of a finished run's model, read from its texts."""

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
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

_VALUES = {
    "boolean": "true or false",
    "datetime": "an ISO-8601 time",
    "integer": "a whole number",
    "continuous": "a number",
}
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
    given: dict[str, Any] = {}
    for item in items:
        name, value = _split(item, schema)
        if name in given:
            raise InputError(f"--given names column {name!r} twice; give one value.")
        given[name] = value
    return given


def _split(item: str, schema: Schema) -> tuple[str, Any]:
    """Return a column's name and its value; either may have "=" in it, and the longest name counts.

    Raises:
        InputError: No column has that name, its value does not fit, or the text fits two columns.
    """
    if "=" not in item:
        raise InputError(f"--given {item!r} must read column=value.")
    names = sorted(
        (name for name in schema.names if item.startswith(f"{name}=")),
        key=len,
        reverse=True,
    )
    if not names:
        name = item.partition("=")[0]
        raise InputError(
            f"--given {item!r}: there is no column {name!r}{close_match(name, schema.names)}"
        )
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
    # Which refuses it.
    return names[0], _value(schema[names[0]], item[len(names[0]) + 1 :], item)


def filled_cells(schema: Schema, before: Table, after: Table) -> int:
    """Return how many cells of the same rows held no value before, and hold one after."""
    counts = [
        int(
            np.count_nonzero(
                missing_cells(column, before) & ~missing_cells(column, after)
            )
        )
        for column in schema.coded
        if column.name in before.names
    ]
    return sum(counts)


def numbered_ids(schema: Schema) -> str:
    """Return a line on ids that count from 1 in every file; empty where the schema has none."""
    names = [
        one.name for one in schema.columns if one.kind == "id" and one.format is None
    ]
    if not names:
        return ""
    verb = "counts" if len(names) == 1 else "count"
    return (
        f"\n{', '.join(names)} {verb} from 1 in every file: number the rows anew where you put "
        "files together, or declare a format"
    )


def _value(column: Column, text: str, item: str) -> Any:
    if not column.modelled:
        raise InputError(f"--given {item!r}: this column is drawn anew; leave it out.")
    if text == "" and "" not in column.categories:
        if not column.missing:
            raise InputError(
                f"--given {item!r}: this column has no missing values; give one."
            )
        return None
    if column.categories:
        known = {str(category): category for category in column.categories}
        if text not in known:
            end = close_match(text, known)
            raise InputError(
                f"--given {item!r}: not a category of {column.name!r}{end} "
                f"It has {', '.join(known)}."
            )
        return known[text]
    kind = column.kind
    try:
        if kind == "boolean":
            return {"true": True, "false": False}[text.lower()]
        number = _written(column, text)
        if kind == "datetime":
            return np.datetime64(text if number is None else number, "us")
        if number is None:
            number = int(text) if kind == "integer" else float(text)
    except (ValueError, KeyError):
        like = f", or written like {column.format}" if column.format else ""
        raise InputError(
            f"--given {item!r}: the value must be {_VALUES[kind]}{like}."
        ) from None
    low, high = column.low, column.high
    if low is not None and high is not None and not float(low) <= number <= float(high):
        raise InputError(
            f"--given {item!r}: the value must lie between {low} and {high}."
        )
    return number


def _written(column: Column, text: str) -> Any:
    """Return a number, or a time in microseconds since 1970; None if the text is neither."""
    cell, found = Table.from_columns({column.name: ([text], None)}), None
    if column.format is not None:
        with suppress(SchemaError):
            found = _READERS[column.kind](cell, column.name, column.format)[0].item()
    return found
