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
from typing import NamedTuple

import numpy as np

from siloweave.errors import InputError
from siloweave.models.threads import single_blas
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.keys import Key, fold_in, generator

# How far a column gives way: the factor of a in `weights`.
_LOOSE = 3e-4
# Steps towards the least of the dual, at most.
_STEPS = 60
# So few rows are sampled at once, and not halved again.
_LAST = 8


def weights(
    codes: Sequence[Ints],
    shares: Sequence[Floats],
    count: int,
) -> Floats:
    """Return probabilities of rows, (rows,), by which those taken have the margins `shares`.

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

    num_rows = len(codes[0])
    if not 0 <= count <= num_rows:
        raise InputError(f"count={count} rows cannot be chosen among {num_rows}")
    columns = _target_columns(codes, shares, count)
    mean_share = count / max(num_rows, 1)
    if count in (0, num_rows) or not columns:
        return np.full(num_rows, mean_share)

    # Cells of all columns, one after the other.
    target = np.concatenate([column.wanted for column in columns])
    ridge = np.concatenate([column.ridge for column in columns])
    sizes = [len(column.wanted) for column in columns]
    ends = np.cumsum(sizes)[:-1]
    # A step is counted in these units, so that cells of all sizes move alike.
    unit = 1.0 / np.sqrt(np.maximum(target, 1.0))
    count_unit = np.sqrt(count)
    base = float(np.log(mean_share))

    def log_factors(steps: Floats) -> Floats:
        """Return the logarithm of every row's product of its columns' factors."""
        multipliers = np.split(unit * steps, ends)
        logs = np.zeros(num_rows)
        for column, part in zip(columns, multipliers, strict=True):
            logs += part[column.cells]
        return logs

    def dual(steps: Floats) -> tuple[float, Floats]:
        """Return what the multipliers minimise, and its gradient; the last one is all rows'."""
        cell_steps = steps[:-1]
        count_step = steps[-1]
        multipliers = unit * cell_steps
        logs = log_factors(cell_steps) + base + count_step / count_unit
        p = _bounded(logs)
        expected = []
        for column in columns:
            rows = np.bincount(column.cells, p, len(column.wanted))
            expected.append(rows)
        gap = np.concatenate(expected) - target

        # exp(x) up to x = 0 and its tangent beyond, which keeps p at most 1.
        bounded_sum = (p + np.maximum(logs, 0.0)).sum()
        # Less each multiplier times what it is to reach: rows in all, and rows of each cell.
        reached = bounded_sum - count * count_step / count_unit
        without_ridge = reached - target @ multipliers
        # The ridge of Rao & Singh: without it margins that contradict each other have no optimum.
        value = float(without_ridge + 0.5 * ridge @ multipliers**2)

        slope = unit * (gap + ridge * multipliers)
        count_slope = (p.sum() - count) / count_unit
        return value, np.append(slope, count_slope)

    with single_blas():
        optimum = minimize(
            dual,
            np.zeros(len(target) + 1),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _STEPS},
        )
    cell_steps = optimum.x[:-1]
    return _summing(log_factors(cell_steps), count)


class _TargetColumn(NamedTuple):
    """A column of which some rows are wanted."""

    cells: Ints  # of every row, (rows,)
    wanted: Floats  # rows of each cell
    ridge: Floats  # a t of `weights` for each cell: the larger, the less a miss weighs


def _target_columns(
    codes: Sequence[Ints],
    shares: Sequence[Floats],
    count: int,
) -> list[_TargetColumn]:
    """Return columns of which some rows are wanted, and how many of each cell that has rows."""
    columns = []
    for cells, share in zip(codes, shares, strict=True):
        has_rows = np.bincount(cells, minlength=len(share)) > 0
        possible = np.where(has_rows, share, 0.0)
        if possible.sum() > 0:
            wanted = count * possible / possible.sum()
            num_cells = int(np.count_nonzero(possible))
            freedom = max(num_cells - 1, 1)
            ridge = _LOOSE * freedom * np.maximum(wanted, 1.0)
            columns.append(_TargetColumn(cells, wanted, ridge))
    return columns


def _summing(logs: Floats, count: int) -> Floats:
    """Return probabilities with one more factor for all rows, so that their sum is `count`."""
    from scipy.optimize import brentq

    def excess(shift: float) -> float:
        p = _bounded(logs + shift)
        return float(p.sum()) - count

    # At the ends all rows have probability 1, or e^-40 at most.
    farthest = np.abs(logs).max() + 40.0
    shift = brentq(excess, -farthest, farthest, xtol=1e-12)
    return _bounded(logs + shift)


def _bounded(logs: Floats) -> Floats:
    """Return probabilities from their logarithms: 1 where these are above 0."""
    return np.exp(np.minimum(logs, 0.0))


def enough(
    codes: Sequence[Ints],
    shares: Sequence[Floats],
    count: int,
) -> float:
    """Return how many times as many rows it takes until every cell has as many as are wanted.

    It is 1 where no cell lacks more rows than chance explains (two standard deviations), else what
    the worst of them needs. A cell without rows is taken to have one. Arguments as in `weights`.
    """
    largest_ratio = 1.0
    for cells, share in zip(codes, shares, strict=True):
        counts = np.bincount(cells, minlength=len(share)).astype(np.float64)
        wanted = count * share
        ratio = wanted / np.maximum(counts, 1.0)
        # A count varies by about its square root.
        is_short = wanted - counts > 2.0 * np.sqrt(counts)
        worst = float(ratio[is_short].max(initial=1.0))
        largest_ratio = max(largest_ratio, worst)
    return largest_ratio


def chosen(
    codes: Sequence[Ints], shares: Sequence[Floats], count: int, *, key: Key
) -> Ints:
    """Choose rows whose columns are distributed as `shares`: their places, in random order.

    Rows are halved at random. The first half is sampled with the `weights` of all rows, each at
    most once; then those of the other half are computed anew for what is missing of the expected
    counts, and it is halved again. At every turn a row's probability is a product of one factor per
    column where it is below 1. Counts are within a few rows of what is expected, where there are
    rows to choose among; if all were sampled at once, they would be off by the square root of their
    size. There are `count` places. Raises InputError where there are fewer rows.
    """
    random = generator(fold_in(key, "raking"))
    p = weights(codes, shares, count)

    # Of each column's cells, the rows that are expected and not taken yet.
    missing = []
    for cells, share in zip(codes, shares, strict=True):
        missing.append(np.bincount(cells, p, len(share)))

    remaining = random.permutation(len(p))
    p = p[remaining]
    places = [np.empty(0, np.int64)]
    while count:
        # Half of the rows, or the last few, are sampled by their probabilities.
        turn = remaining
        if len(remaining) > _LAST:
            turn = remaining[: len(remaining) // 2]
        is_last = len(turn) == len(remaining)
        # Of the last rows all that are missing are taken: the same sum, but for rounding.
        total = count if is_last else None
        sampled = _systematic(turn, p[: len(turn)], total, random)
        places.append(sampled)

        # The others make up for what this half missed by chance.
        count -= len(sampled)
        for i, cells in enumerate(codes):
            counts = np.bincount(cells[sampled], minlength=len(missing[i]))
            missing[i] = missing[i] - counts
        remaining = remaining[len(turn) :]
        if len(remaining):
            # A cell with more rows than were expected wants no more.
            wanted = [np.maximum(rows, 0.0) for rows in missing]
            remaining_codes = [cells[remaining] for cells in codes]
            p = weights(remaining_codes, wanted, count)
    return random.permutation(np.concatenate(places))


def _systematic(
    rows: Ints, p: Floats, total: int | None, random: np.random.Generator
) -> Ints:
    """Sample rows at marks one apart along their cumulative p (Madow).

    `total` is the sum of p where that is a whole number; None where it is what p adds up to.
    """
    ends = np.cumsum(p)
    last = ends[-1] if total is None else total
    first_mark = random.random()
    marks = np.arange(first_mark, last, 1.0)
    places = np.searchsorted(ends, marks, side="right")
    # Rounding can put a mark behind the last end.
    return rows[np.minimum(places, len(rows) - 1)]
