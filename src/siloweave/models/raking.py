"""Choosing among drawn rows so that single columns come out as they should.

Iterative proportional fitting of the weights of rows to known margins (Deming & Stephan 1940, "On a
least squares adjustment of a sampled frequency table when the expected marginal totals are known";
survey statisticians call it raking), then systematic sampling with those weights (Madow 1949, "On
the theory of systematic sampling, II"), so that every row is taken at most once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from siloweave.errors import InputError
from siloweave.tables.keys import Key, fold_in, generator

__all__ = ["chosen", "enough", "weights"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PASSES = 20


def weights(codes: Sequence[Ints], shares: Sequence[Floats], count: int) -> Floats:
    """Probabilities of rows to be taken, so that the margins of what is taken are `shares`.

    Args:
        codes: Per column, the cell of every row, (rows,).
        shares: Per column, the wanted share of each cell.
        count: How many rows will be taken; at most all.

    Returns:
        (rows,), each in [0, 1], with the sum `count`. A cell without rows cannot be filled, and
        where more rows of a cell are wanted than there are, all of them are taken.

    Example:
        >>> one = weights([np.array([0, 0, 0, 1])], [np.array([0.5, 0.5])], 2)
        >>> one.round(2).tolist()
        [0.33, 0.33, 0.33, 1.0]
    """
    rows = len(codes[0])
    if not 0 <= count <= rows:
        raise InputError(f"count={count} rows cannot be chosen among {rows}")
    kept = np.full(rows, count / max(rows, 1))
    for _ in range(_PASSES):
        for places, wanted in zip(codes, shares, strict=True):
            have = np.bincount(places, kept, minlength=len(wanted))
            there = np.where(have > 0, wanted, 0.0)
            total = there.sum()
            if total > 0:
                ratio = count * there / total / np.where(have > 0, have, 1.0)
                kept *= ratio[places]
        kept = _capped(kept, count)
    return kept


def enough(codes: Sequence[Ints], shares: Sequence[Floats], count: int) -> float:
    """How many times as many rows it takes until every cell has as many as are wanted.

    Args:
        codes: Per column, the cell of every row drawn so far, (rows,).
        shares: Per column, the wanted share of each cell.
        count: How many rows will be taken.

    Returns:
        1 where no cell lacks more rows than chance explains (two standard deviations), else what
        the worst of them needs. A cell without rows is taken to have one.

    Example:
        >>> enough([np.array([0] * 11 + [1])], [np.array([0.5, 0.5])], 8)
        4.0
    """
    most = 1.0
    for places, wanted in zip(codes, shares, strict=True):
        have = np.bincount(places, minlength=len(wanted)).astype(np.float64)
        ratio = count * wanted / np.maximum(have, 1.0)
        short = count * wanted - have > 2.0 * np.sqrt(have)
        most = max(most, float(ratio[short].max(initial=1.0)))
    return most


def _capped(kept: Floats, count: int) -> Floats:
    """Weights of at most 1 with the sum `count`, others keeping their ratios."""
    kept = np.maximum(kept, 1e-12)
    full = np.zeros(len(kept), dtype=bool)
    while True:
        left = count - full.sum()
        rest = kept[~full].sum()
        scaled = np.where(full, 1.0, kept * (left / rest if rest > 0 else 0.0))
        over = scaled > 1.0
        if not over.any():
            return scaled
        full |= over


def chosen(codes: Sequence[Ints], shares: Sequence[Floats], count: int, *, key: Key) -> Ints:
    """Places of rows whose columns are distributed as `shares`, each at most once.

    Args:
        codes: Per column, the cell of every row, (rows,).
        shares: Per column, the wanted share of each cell.
        count: How many rows.
        key: Random key.

    Returns:
        (count,), in random order.
    """
    kept = weights(codes, shares, count)
    random = generator(fold_in(key, "raking"))
    order = random.permutation(len(kept))
    ends = np.cumsum(kept[order])
    marks = (random.random() + np.arange(count)) * (ends[-1] / max(count, 1) if count else 1.0)
    places = np.searchsorted(ends, marks, side="right")
    return order[np.minimum(places, len(order) - 1)]
