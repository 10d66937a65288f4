"""Attribute inference: guess a secret value from the synthetic row that is nearest by the others.

After Giomi et al. (2023), "A unified framework for quantifying privacy risk in synthetic data",
PoPETs 2023(2)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.neighbours import Blocks, Space
from siloweave.attacks.results import RiskPart, compared
from siloweave.tables.aligned import Aligned, AlignedColumn

__all__ = ["TOLERANCE", "guessed", "inference", "without_each"]

TOLERANCE = 0.05
"""A guess of a number is right within this share of the truth."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def inference(
    tables: Aligned,
    known: Space,
    secrets: Sequence[str],
    targets: dict[str, Ints],
    *,
    confidence: float = 0.95,
) -> tuple[RiskPart, ...]:
    """Guess secrets of real rows by their nearest synthetic row.

    The nearest row is found by Gower's distance over the known columns without the secret; of
    equally near ones the first in the table is taken. Guessing at random means taking the secret
    of a synthetic row at random; its success is exact, not drawn.

    Args:
        tables: The tables.
        known: Gower's distance over the columns that the attacker knows.
        secrets: What is guessed, one after the other.
        targets: Which rows of ``train`` and of ``control`` are attacked.
        confidence: Of intervals.

    Returns:
        One part a secret; with two or more, first one over all of them. There every row counts as
        much as it tells: guesses about one row depend on each other.
    """
    right: dict[str, list[Bools]] = {}
    for table, places in targets.items():
        found = without_each(known, table, places, secrets)
        right[table] = [
            guessed(tables.column(name), "synthetic", found[:, s], table, places)
            for s, name in enumerate(secrets)
        ]
    chance = [_by_chance(tables.column(name), targets["train"]) for name in secrets]
    parts = [
        _part(name, [right["train"][s]], [right["control"][s]], chance[s], confidence)
        for s, name in enumerate(secrets)
    ]
    if len(secrets) > 1:
        mean = float(np.mean(chance))
        parts.insert(0, _part("all secrets", right["train"], right["control"], mean, confidence))
    return tuple(parts)


def _part(
    variant: str, train: list[Bools], control: list[Bools], chance: float, confidence: float
) -> RiskPart:
    tries = len(train[0])
    return compared(
        "inference",
        variant,
        _effective(train),
        _effective(control),
        (chance * tries, tries),
        attacks=tries * len(train),
        confidence=confidence,
    )


def _effective(right: list[Bools]) -> tuple[float, float]:
    """Successes and trials that are worth as much as all guesses about each row together."""
    shares = np.mean(right, axis=0)
    rate, rows = float(shares.mean()), len(shares)
    if len(right) == 1 or rows < 2 or not 0 < rate < 1:
        return rate * rows, rows
    spread = float(shares.var(ddof=1))
    trials = rows * min(len(right), rate * (1 - rate) / spread) if spread else rows * len(right)
    return rate * trials, trials


def without_each(
    known: Space, table: str, places: Ints, secrets: Sequence[str]
) -> NDArray[np.int64]:
    """Find the nearest synthetic row of each target, once for each secret, which is left out.

    Args:
        known: Gower's distance over what the attacker knows.
        table: Whose rows are the targets.
        places: Which rows.
        secrets: Columns; one that is not among the known is left out already.

    Returns:
        Places of synthetic rows, (targets, secrets).
    """
    targets, among = known.points[table].take(places), known.points["synthetic"]
    columns = [known.names.index(s) if s in known.names else -1 for s in secrets]
    shape = (len(places), len(secrets))
    best, found = np.full(shape, np.iinfo(np.int32).max), np.zeros(shape, np.int64)
    blocks = Blocks(known, targets, among)
    for rows, span, totals in blocks:
        for s, column in enumerate(columns):
            rest = totals
            if column >= 0:
                part = blocks.part(column, rows, span)
                rest = np.subtract(totals, part, out=part)
            place = rest.argmin(axis=1)
            value = rest[np.arange(len(place)), place]
            better = value < best[rows, s]
            best[rows, s] = np.where(better, value, best[rows, s])
            found[rows, s] = np.where(better, place + span.start, found[rows, s])
    return found


def guessed(column: AlignedColumn, source: str, guesses: Ints, table: str, places: Ints) -> Bools:
    """Tell which guesses are right.

    A category must be equal. A number must be within `TOLERANCE` of the truth's size: |guess -
    truth| <= 0.05 * |truth|. Dividing by the guess instead, sign and all, calls every negative
    guess right. A moment's size is its distance from the earliest moment of all tables. That a
    value is missing is right where it is.

    Args:
        column: The secret.
        source: The table that guesses come from.
        guesses: Rows of it.
        table: The targets' table.
        places: Rows of it, one for each guess.

    Returns:
        One answer a guess.
    """
    guess, truth = column.values[source][guesses], column.values[table][places]
    if not column.numeric:
        same: Bools = guess == truth
        return same
    start = _start(column)
    with np.errstate(invalid="ignore"):
        near = np.abs(guess - truth) <= TOLERANCE * np.abs(truth - start)
    right: Bools = near | (np.isnan(guess) & np.isnan(truth))
    return right


def _start(column: AlignedColumn) -> float:
    if not column.moments:
        return 0.0
    return min(float(np.nanmin(values)) for values in column.values.values())


def _by_chance(column: AlignedColumn, places: Ints) -> float:
    """Mean share of synthetic rows whose value would be a right guess of a training row's."""
    truth, pool = column.values["train"][places], column.values["synthetic"]
    if not column.numeric:
        return float((np.bincount(pool, minlength=column.levels) / len(pool))[truth].mean())
    ordered = np.sort(pool)  # missing ones last
    slack = TOLERANCE * np.abs(truth - _start(column))
    gaps = int(np.isnan(pool).sum())
    ordered = ordered[: len(pool) - gaps]
    hits = np.searchsorted(ordered, truth + slack, side="right")
    hits = hits - np.searchsorted(ordered, truth - slack)
    counts: NDArray[Any] = np.where(np.isnan(truth), gaps, hits)
    return float(counts.mean() / len(pool))
