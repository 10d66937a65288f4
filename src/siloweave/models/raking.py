"""Choosing among drawn rows so that single columns come out as they should.

Rows are given probabilities whose margins are known shares: survey statisticians call it raking,
here in the form of a calibration with bounded weights (Deville & Särndal 1992, "Calibration
estimators in survey sampling", the multiplicative distance), which changes the rows' law as little
as the margins allow. Where they cannot all be met at once, as with a poor generator, each column
gives way by a penalty (Rao & Singh 1997, "A ridge-shrinkage method for range-restricted weight
calibration in survey sampling"). Then systematic sampling with those probabilities (Madow 1949, "On
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

_LOOSE, _STEPS = 3e-4, 60  # how far a column gives way; steps towards the least of the dual


def weights(codes: Sequence[Ints], shares: Sequence[Floats], count: int) -> Floats:
    """Probabilities of rows to be taken, so that the margins of what is taken are `shares`.

    With p a row's probability, c = count / rows, m a cell's expected and t its wanted number of
    rows, they minimise the sum over rows of p log(p / c) - p with p at most 1, plus per column the
    sum over cells of (m - t)² / (2 a t), with a = 0.0003 (cells - 1): all columns count the same,
    however many cells they have. Where p < 1 it is a product of one factor per column, so that
    odds between columns stay as they are.

    Args:
        codes: Per column, the cell of every row, (rows,).
        shares: Per column, the wanted share of each cell.
        count: How many rows will be taken; at most all.

    Returns:
        (rows,), each in [0, 1], with the sum `count`. A cell without rows cannot be filled, and
        where more rows of a cell are wanted than there are, nearly all of them are taken.

    Example:
        >>> one = weights([np.array([0, 0, 0, 1])], [np.array([0.5, 0.5])], 2)
        >>> one.round(2).tolist()
        [0.33, 0.33, 0.33, 1.0]
    """
    from scipy.optimize import minimize  # late: fits are listed without it

    rows = len(codes[0])
    if not 0 <= count <= rows:
        raise InputError(f"count={count} rows cannot be chosen among {rows}")
    columns, wanted, loose = _targets(codes, shares, count)
    if count in (0, rows) or not columns:
        return np.full(rows, count / max(rows, 1))
    ends = np.cumsum([len(cells) for cells in wanted])[:-1]
    target, ridge = np.concatenate(wanted), np.concatenate(loose)
    unit = 1.0 / np.sqrt(np.maximum(target, 1.0))  # of a step: cells of all sizes move alike
    base = float(np.log(count / rows))

    def factors(steps: Floats) -> Floats:
        """Logarithm of every row's product of its columns' factors."""
        logs = np.zeros(rows)
        for places, part in zip(columns, np.split(unit * steps, ends), strict=True):
            logs += part[places]
        return logs

    def dual(steps: Floats) -> tuple[float, Floats]:
        """What the multipliers minimise, and its gradient; the last one is all rows'."""
        logs = factors(steps[:-1]) + base + steps[-1] / np.sqrt(count)
        p = _bounded(logs)
        have = [np.bincount(c, p, len(w)) for c, w in zip(columns, wanted, strict=True)]
        gap = np.concatenate(have) - target
        by = unit * steps[:-1]
        value = (p + np.maximum(logs, 0.0)).sum() - count * steps[-1] / np.sqrt(count) - target @ by
        slope = np.append(unit * (gap + ridge * by), (p.sum() - count) / np.sqrt(count))
        return float(value + 0.5 * ridge @ by**2), slope

    start = np.zeros(len(target) + 1)
    found = minimize(dual, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    return _summing(factors(found.x[:-1]), count)


def _targets(
    codes: Sequence[Ints], shares: Sequence[Floats], count: int
) -> tuple[list[Ints], list[Floats], list[Floats]]:
    """Columns of which some rows are wanted, how many of each cell, and what a miss weighs."""
    columns: list[Ints] = []
    wanted: list[Floats] = []
    loose: list[Floats] = []
    for places, share in zip(codes, shares, strict=True):
        there = np.where(np.bincount(places, minlength=len(share)) > 0, share, 0.0)
        if there.sum() > 0:
            columns.append(places)
            wanted.append(count * there / there.sum())
            freedom = max(int(np.count_nonzero(there)) - 1, 1)
            loose.append(_LOOSE * freedom * np.maximum(wanted[-1], 1.0))
    return columns, wanted, loose


def _summing(logs: Floats, count: int) -> Floats:
    """Probabilities with one more factor for all rows, so that their sum is `count`."""
    from scipy.optimize import brentq

    far = np.abs(logs).max() + 40.0
    shift = brentq(lambda x: float(_bounded(logs + x).sum()) - count, -far, far, xtol=1e-12)
    return _bounded(logs + shift)


def _bounded(logs: Floats) -> Floats:
    return np.exp(np.minimum(logs, 0.0))


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
