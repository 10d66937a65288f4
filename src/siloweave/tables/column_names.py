"""Names of columns: they are texts, distinct, and in the table that they are sought in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from siloweave.errors import DataError
from siloweave.tables.display import listed


def check_names(names: Sequence[Any], where: str) -> None:
    """Raise DataError unless column names are text and distinct."""
    all_names = list(names)
    repeated = {str(name) for name, count in Counter(all_names).items() if count > 1}
    repeated_names = sorted(repeated)
    if repeated_names:
        repeated_text = ", ".join(repeated_names)
        raise DataError(f"{where} has column names twice: {repeated_text}; rename them")
    odd_names = []
    for name in all_names:
        if not isinstance(name, str) or not name:
            odd_names.append(name)
    if odd_names:
        raise DataError(
            f"{where} has column names that are empty, or no text: {odd_names}; rename them"
        )


def check_name(name: str, names: Sequence[str]) -> None:
    """Raise DataError unless a table has a column of this name."""
    if name not in names:
        raise DataError(f"the table has no column {name!r}; it has {', '.join(names)}")


def names_after(
    names: Sequence[str], rename: Mapping[str, str], where: str
) -> tuple[str, ...]:
    """Return the column names after a `rename`.

    Args:
        names: The table's own.
        rename: Own names and new ones.
        where: Whose table it is, for errors.

    Raises:
        DataError: There is no such column, or a new name is there already.
    """
    absent_names = [name for name in rename if name not in names]
    if absent_names:
        raise DataError(
            f"{where} has no column {absent_names[0]!r}, which rename names; it has {listed(names)}"
        )
    new_names = tuple(rename.get(name, name) for name in names)
    num_named = Counter(new_names)
    repeated_names = [name for name in rename.values() if num_named[name] > 1]
    if repeated_names:
        raise DataError(
            f"{where}: rename makes a second column {repeated_names[0]!r}. Rename the other one "
            "too, or leave it out"
        )
    return new_names
