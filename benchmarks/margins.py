"""Shares of single columns as so many rows drawn at random would have them."""

from __future__ import annotations

import msgspec
import numpy as np

from siloweave.tables.features import OneWay
from siloweave.tables.keys import Key, generator


def resampled(one_way: OneWay, rows: int, key: Key) -> OneWay:
    """Return the shares that so many rows have when each draws its cell of every column by chance.

    Rows that are raked to what is returned have single columns as right as rows of a perfect
    generator have them, and no more.
    """
    random = generator(key)
    columns = []
    for cells in one_way.cells:
        shares = np.asarray(cells.shares)
        counts = random.multinomial(rows, shares / shares.sum())
        columns.append(msgspec.structs.replace(cells, shares=tuple((counts / rows).tolist())))
    return OneWay(tuple(columns))
