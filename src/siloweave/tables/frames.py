"""Results as frames."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from siloweave.errors import InputError
from siloweave.tables.read import Frame, Table

__all__ = ["frame_of"]


def frame_of(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], kind: Frame | None = None
) -> Any:
    """Make a frame of rows that map names to values.

    Args:
        rows: What each row holds; None is missing.
        names: The columns, in order.
        kind: ``pandas``, ``polars`` or ``arrow``; pandas where it is installed, else polars, if
            None.

    Raises:
        InputError: There is no such kind.

    Example:
        >>> frame_of([{"a": 1, "b": None}, {"a": 2, "b": 0.5}], ["a", "b"], "polars").shape
        (2, 2)
    """
    if kind is not None and kind not in get_args(Frame):
        raise InputError(f"kind={kind!r} must be 'pandas', 'polars' or 'arrow'")
    columns = {}
    for name in names:
        values = [row[name] for row in rows]
        gone = np.array([value is None for value in values], dtype=bool)
        known = next((value for value in values if value is not None), 0.0)
        filled = [known if value is None else value for value in values]
        text = isinstance(known, str)
        columns[name] = (np.array(filled, dtype=object if text else type(known)), gone)
    return Table.from_columns(columns).framed(kind or "file").to_native()
