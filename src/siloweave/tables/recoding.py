"""A party's own names and values in those of the schema.

Parties write one thing in several ways: `geschlecht` for `sex`, 1 for "male". A recode says which
of a table's columns and values is which of the schema's, so that nobody has to change a file.

**Guarantee**: each cell is recoded by itself, by a mapping that is declared before rows are read
(`Table.recoded`). A value that the mapping does not list stays as it is, and is read by its column
as any other cell: where the column has no place for it, it goes where unknown cells of it go
(`tables.cells`). So one row more changes no other row, and under a guarantee none is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np

from siloweave.errors import InputError, count_of
from siloweave.tables.cells import missing_cells, placed_cells
from siloweave.tables.column import Category, Column
from siloweave.tables.display import listed
from siloweave.tables.parsing import texts_of_mixed
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

Values = Mapping[Any, Category | None]
"""A column's values, and what each is in the schema; an empty text or None for a missing value."""
# Values of a column that a message names.
_MOST_SHOWN = 5


def recode(
    table: Any,
    values: Mapping[str, Values] | None = None,
    *,
    rename: Mapping[str, str] | None = None,
) -> Table:
    """Replace a table's own names of columns and values by those of the schema.

    Args:
        table: A `Table`, frame or path.
        values: By column (its new name), what each of its values becomes: a value of the schema, or
            an empty text or None for a missing value. A value is named by its text, so "1" is also
            the number 1; in a file of SPSS, Stata or SAS by its code or its value label. Values
            that are not listed stay as they are.
        rename: The table's own names, and what each is in the schema.

    Returns:
        The same rows. A fit gives back the kind of frame that was given.

    Raises:
        DataError: The table has no such column, or has one of the new names already.
        InputError: Two columns get one name, or a column of datetimes or durations is recoded.

    Example:
        >>> rows = Table.from_columns({"geschlecht": (np.array([1, 2, 2]), None)})
        >>> coded = recode(rows, {"sex": {1: "male", 2: "female"}}, rename={"geschlecht": "sex"})
        >>> coded.values("sex").tolist()
        ['male', 'female', 'female']
    """
    # First the names, since `values` has the new ones.
    recoded = read(table).renamed(rename or {})
    for name, mapping in (values or {}).items():
        recoded = recoded.recoded(name, mapping)
    return recoded


def check_recode(values: Mapping[str, Values], schema: Schema) -> None:
    """Check that a recode leads to columns and values of a schema.

    Raises:
        InputError: It names a column that the schema lacks or that holds no categories and no
            numbers, or makes a value that is no category of its column.
    """
    for name, mapping in values.items():
        if name not in schema.names:
            raise InputError(
                f"recode names the column {name!r}, and the schema has {listed(schema.names)}. "
                'Write the schema\'s name; rename = {theirs = "ours"} maps a name of the file'
            )
        column = schema[name]
        if not column.modelled or column.is_datetime:
            raise InputError(
                f"recode of {name!r}: a column of kind {column.kind} is not recoded; recode "
                "categories, booleans and numbers"
            )
        # A column of numbers has no options, and any number may become any other.
        if not column.options or _is_open(column):
            continue
        _check_new_values(column, mapping.values())


def _check_new_values(column: Column, new_values: Collection[Category | None]) -> None:
    """Check that values are categories of a column, or stand for a missing one."""
    name = column.name
    options = Table.from_columns({name: (np.array(column.options), None)})
    option_texts = options.labels(name, str).to_list()
    allowed_texts = {*option_texts, *column.missing_values, ""}
    for value in new_values:
        # Each value by itself: the text of one does not depend on the types of others.
        text = texts_of_mixed([value])[0] or ""
        if text in allowed_texts:
            continue
        shown_options = [str(option) for option in column.options]
        options_text = listed(shown_options, _MOST_SHOWN)
        raise InputError(
            f"recode of {name!r} makes {text!r}, which is not among its categories: "
            f"{options_text}. Correct it, or add it to the schema"
        )


def unknown_values(
    values: Mapping[str, Values], table: Table, schema: Schema
) -> tuple[str, ...]:
    """Describe the values of recoded columns that neither the recode nor the schema knows.

    It names values and counts rows, so it is for the owner of the rows alone.
    """
    notes = []
    for name in values:
        if name not in table.names:
            continue
        column = schema[name]
        if _is_open(column):
            continue
        is_unknown = _is_unknown(column, table)
        if not is_unknown.any():
            continue

        unknown_rows = table.take(np.flatnonzero(is_unknown))
        texts, counts = unknown_rows.counts(name, str)
        pairs = []
        for text, count in zip(texts, counts, strict=True):
            pairs.append(f"{text!r} ({count:,})")
        num_rows = int(is_unknown.sum())
        rows_hold = count_of(num_rows, "row holds a value", "rows hold values")
        shown_pairs = listed(pairs, _MOST_SHOWN)
        notes.append(
            f"column {name!r}: {rows_hold} that neither the recode nor the schema knows: "
            f"{shown_pairs}. Add what it is to the recode, or to the schema"
        )
    return tuple(notes)


def _is_open(column: Column) -> bool:
    """Return whether a column's categories are still to be learned."""
    return column.other is not None and len(column.options) == 1


def _is_unknown(column: Column, table: Table) -> np.ndarray:
    """Return which cells hold a value that the column lacks."""
    is_missing = missing_cells(column, table)
    if column.is_binned:
        numbers = table.numbers(column.name, column.format)
        is_no_number: np.ndarray = numbers.is_null().to_numpy()
        return is_no_number & ~is_missing
    # Nothing but an unknown value is moved where a value may be missing.
    lenient = msgspec.structs.replace(column, outside="move", missing=True)
    placed = placed_cells(lenient, table)
    is_unknown: np.ndarray = placed.moved & ~is_missing
    return is_unknown
