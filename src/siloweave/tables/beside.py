"""Tables of the same rows, put side by side."""

from collections.abc import Sequence
from dataclasses import replace

from siloweave.errors import DataError
from siloweave.tables.read import Table

__all__ = ["beside"]


def beside(tables: Sequence[Table]) -> Table:
    """Put columns of several tables side by side; of a name that repeats, the first is taken.

    Args:
        tables: At least one, with equally many rows in the same order.

    Returns:
        A table of the first one's kind of frame; where all are of that kind, each column keeps
        its type.

    Raises:
        DataError: When numbers of rows differ.

    Example:
        >>> import numpy as np
        >>> a = Table.from_columns({"age": (np.array([30, 40]), None)})
        >>> b = Table.from_columns({"old": (np.array([False, True]), None)})
        >>> beside([a, b]).names
        ('age', 'old')
    """
    rows = sorted({table.num_rows for table in tables})
    if len(rows) > 1:
        raise DataError(f"tables have different numbers of rows: {rows}")
    whole = tables[0]
    for table in tables[1:]:
        new = [name for name in table.names if name not in whole.names]
        frame = whole._frame.hstack(table.select(new)._frame)
        mine, theirs = whole._origin, table._origin
        dtypes = {**theirs.dtypes, **mine.dtypes} if theirs.kind == mine.kind else {}
        types = {**theirs.types, **mine.types}
        whole = replace(whole, _frame=frame, _origin=replace(mine, dtypes=dtypes, types=types))
    return whole
