"""Choosing among drawn rows so that single columns are distributed as they should be.

Rows are given probabilities whose margins are known shares: survey statisticians call it raking,
here in the form of a calibration with bounded weights (Deville & Särndal 1992, "Calibration
estimators in survey sampling", the multiplicative distance), which changes the distribution of the
rows as little as the margins allow. Where they cannot all be met at once, as with a poor generator,
each column gives way by a penalty (Rao & Singh 1997, "A ridge-shrinkage method for range-restricted
weight calibration in survey sampling"). Rows are taken by systematic sampling with those
probabilities (Madow 1949, "On the theory of systematic sampling, II"), each at most once. Counts
are then still random, so only half of the rows are sampled at a time, and the probabilities of the
others are computed anew for what is still wanted (decision 0025).

**Guarantee**: none of its own; it reads drawn rows and shares that were released, so it is
post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from siloweave.errors import InputError
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.keys import Key, fold_in, generator

_LOOSE, _STEPS = 3e-4, 60  # how far a column gives way; steps towards the least of the dual
_LAST = 8  # so few rows are sampled at once


def weights(codes: Sequence[Ints], shares: Sequence[Floats], count: int) -> Floats:
    """Probabilities of rows to be taken, (rows,), so that margins of what is taken are `shares`.

    With p a row's probability, c = count / rows, m a cell's expected and t its wanted number of
    rows, they minimise the sum over rows of p log(p / c) - p with p at most 1, plus per column the
    sum over cells of (m - t)² / (2 a t), with a = 0.0003 (cells - 1): all columns count the same,
    however many cells they have. Where p < 1 it is a product of one factor per column, so that odds
    between columns stay as they are. A cell without rows cannot be filled, and where more rows of a
    cell are wanted than there are, nearly all of them are taken.

    Args:
        codes: Per column, the cell of every row, (rows,).
        shares: Per column, the wanted share of each cell.
        count: How many rows will be taken, the sum of the probabilities; at most all.
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
    columns, wanted, loose = [], [], []
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

    It is 1 where no cell lacks more rows than chance explains (two standard deviations), else what
    the worst of them needs. A cell without rows is taken to have one. Arguments as in `weights`.
    """
    most = 1.0
    for places, wanted in zip(codes, shares, strict=True):
        have = np.bincount(places, minlength=len(wanted)).astype(np.float64)
        ratio = count * wanted / np.maximum(have, 1.0)
        short = count * wanted - have > 2.0 * np.sqrt(have)
        most = max(most, float(ratio[short].max(initial=1.0)))
    return most


def chosen(codes: Sequence[Ints], shares: Sequence[Floats], count: int, *, key: Key) -> Ints:
    """Places, (count,), in random order, of rows whose columns are distributed as `shares`.

    Rows are halved at random. The first half is sampled with the `weights` of all rows, each at
    most once; then those of the other half are computed anew for what is missing of the expected
    counts, and it is halved again. At every turn a row's probability is a product of one factor per
    column where it is below 1. Counts are within a few rows of what is expected, where there are
    rows to choose among; if all were sampled at once, they would be off by the square root of their
    size. Raises InputError where there are fewer rows than `count`.
    """
    random = generator(fold_in(key, "raking"))
    kept = weights(codes, shares, count)
    wanted = [np.bincount(cells, kept, len(s)) for cells, s in zip(codes, shares, strict=True)]
    left, taken = random.permutation(len(kept)), [np.empty(0, np.int64)]
    kept = kept[left]
    while count:
        turn = left if len(left) <= _LAST else left[: len(left) // 2]
        ends = np.cumsum(kept[: len(turn)])
        last = count if len(turn) == len(left) else ends[-1]  # the same but for rounding
        marks = np.arange(random.random(), last, 1.0)
        found = turn[np.minimum(np.searchsorted(ends, marks, side="right"), len(turn) - 1)]
        wanted = [
            rows - np.bincount(cells[found], minlength=len(rows))
            for rows, cells in zip(wanted, codes, strict=True)
        ]
        taken.append(found)
        left, count = left[len(turn) :], count - len(found)
        if len(left):
            rest = [np.maximum(rows, 0.0) for rows in wanted]
            kept = weights([cells[left] for cells in codes], rest, count)
    return random.permutation(np.concatenate(taken))
