"""Cells that hold several values, such as a list or a mapping, in frames and in JSON lines.

Under a schema such a cell is a text like any other, so that no row decides whether a table is read.
Without one, nobody has said what the column is: a schema is proposed for single values alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from pathlib import Path
from typing import Any

import msgspec

from siloweave.errors import DataError

NESTED_ADVICE = "make one column for each part, or drop it"
"""What to do with a column of nested values."""


def nested_in_lines(file: Path, names: AnySet[str]) -> dict[str, int]:
    """Find which columns of JSON lines have nested values, and the first row of each."""
    first_rows: dict[str, int] = {}
    if not names:
        return first_rows
    for row, line in enumerate(_json_lines(file)):
        for name in names - first_rows.keys():
            if isinstance(line.get(name), list | dict):
                first_rows[name] = row
        if len(first_rows) == len(names):
            break
    return first_rows


def keys_of_lines(file: Path) -> list[str]:
    """Return the keys of JSON lines in their order."""
    keys: dict[str, None] = {}
    for line in _json_lines(file):
        keys.update(dict.fromkeys(line))
    return list(keys)


def _json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; an empty one for any other line."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    with file.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            # Whether such a line can be read is for polars to say, which reads the rows.
            try:
                yield decoder.decode(line)
            except msgspec.MsgspecError:
                yield {}


def check_single_values(names: Sequence[str], nested: Mapping[str, int]) -> None:
    """Raise DataError for the first column that holds nested values.

    Args:
        names: The table's columns.
        nested: The first row of nested values, from 0, by column.
    """
    for name in names:
        if name in nested:
            raise DataError(
                f"column {name!r} holds lists or other nested values (first in row "
                f"{nested[name] + 1}, counted from 1), which a table cannot hold; {NESTED_ADVICE}"
            )
