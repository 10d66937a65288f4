"""Linkability and attribute inference: what the nearest synthetic row shows of a real row.

*Linkability*: do two sets of known columns lead to the same synthetic row? *Inference*: guess a
secret value from the synthetic row that is nearest by the other columns. Both after Giomi et al.
(2023), "A unified framework for quantifying privacy risk in synthetic data", PoPETs 2023(2), under
Gower's distance. Targets are the rows of ``train`` and of ``control`` that are attacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.neighbours import Blocks, EmbeddedRows, Space, nearest
from siloweave.attacks.results import RiskPart, compared
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.arrays import Bools, Floats, Ints

TOLERANCE = 0.05
"""A guess of a number is right within this share of the truth."""


def linkability(
    left: Space, right: Space, targets: dict[str, Ints], *, confidence: float = 0.95
) -> tuple[RiskPart, RiskPart]:
    """Link the two halves of real rows through the synthetic table.

    For each target the synthetic row nearest to it is found twice, by the columns of either side.
    The first part counts a link where both are one row; among equally near rows the first in the
    table is taken, which is arbitrary. The second part takes all rows that are as near as the
    nearest, so that a copied row always links.
    """
    rows = left.points["synthetic"].num_rows
    met, tied, chance = {}, {}, 0.0
    for table, places in targets.items():
        sides = [(side, side.points[table].take(places)) for side in (left, right)]
        one, two = (nearest(side, points, side.points["synthetic"]) for side, points in sides)
        links = int((one.places == two.places).sum())
        meets, sizes = _ties(sides, [one.distances, two.distances])
        met[table], tied[table] = (links, len(places)), (int(meets.sum()), len(places))
        if table == "train":
            chance = float(chance_to_meet(rows, *sizes).sum())
    tries = len(targets["train"])
    first, every = (
        compared(
            *("linkability", variant, links["train"], links["control"], (by_chance, tries)),
            attacks=tries,
            confidence=confidence,
        )
        for variant, links, by_chance in (
            ("nearest 1", met, tries / rows),
            ("all nearest", tied, chance),
        )
    )
    return first, every


def _ties(
    sides: list[tuple[Space, EmbeddedRows]], shortest: list[Floats]
) -> tuple[Bools, list[Ints]]:
    """Whether some row is nearest on both sides, and how many are nearest on each."""
    bounds = [_bound(side, d) for (side, _), d in zip(sides, shortest, strict=True)]
    count = len(shortest[0])
    meets, sizes = np.zeros(count, np.bool_), [np.zeros(count, np.int64) for _ in sides]
    walks = [Blocks(side, points, side.points["synthetic"]) for side, points in sides]
    for (rows, _, one), (_, _, two) in zip(*walks, strict=True):
        near = [total <= bound[rows, None] for total, bound in zip((one, two), bounds, strict=True)]
        meets[rows] |= (near[0] & near[1]).any(axis=1)
        for size, found in zip(sizes, near, strict=True):
            size[rows] += found.sum(axis=1)
    return meets, sizes


def _bound(side: Space, distances: Floats) -> NDArray[Any]:
    """Totals up to which a row is as near as the nearest, numbers being exact to a unit each."""
    totals = np.rint(distances * side.unit * side.width)
    return (totals + 2 * len(side.capped)).astype(np.int32)


def chance_to_meet(rows: int, one: NDArray[Any], two: NDArray[Any]) -> Floats:
    """Chance that two random sets of `one` and `two` of so many rows have one in common."""
    from scipy.special import gammaln

    apart = one + two <= rows
    rest = np.where(apart, rows - one - two, 0)
    log = gammaln(rows - one + 1) - gammaln(rest + 1)
    log += gammaln(rows - two + 1) - gammaln(rows + 1)
    chance: Floats = np.where(apart, -np.expm1(np.minimum(log, 0)), 1.0)
    return chance


def inference(
    tables: Aligned,
    known: Space,
    secrets: Sequence[str],
    targets: dict[str, Ints],
    *,
    confidence: float = 0.95,
) -> tuple[RiskPart, ...]:
    """Guess secrets of real rows by their nearest synthetic row.

    The nearest row is found over the known columns without the secret; of equally near ones the
    first in the table is taken. Guessing at random means taking the secret of a synthetic row at
    random; its success is exact, not drawn. Returns one part a secret; with two or more, first one
    over all of them, where every row counts as much as its guesses are worth: guesses about one row
    depend on each other.
    """
    right: dict[str, list[Bools]] = {}
    for table, places in targets.items():
        found = without_each(known, table, places, secrets)
        right[table] = [
            guessed(tables.column(name), "synthetic", found[:, s], table, places)
            for s, name in enumerate(secrets)
        ]
    train, control = right["train"], right["control"]
    chance = [_by_chance(tables.column(name), targets["train"]) for name in secrets]
    parts = [
        (name, train[s : s + 1], control[s : s + 1], chance[s]) for s, name in enumerate(secrets)
    ]
    if len(secrets) > 1:
        parts.insert(0, ("all secrets", train, control, float(np.mean(chance))))
    tries = len(targets["train"])
    return tuple(
        compared(
            *("inference", name, _effective(ours), _effective(theirs), (share * tries, tries)),
            attacks=tries * len(ours),
            confidence=confidence,
        )
        for name, ours, theirs, share in parts
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


def without_each(known: Space, table: str, places: Ints, secrets: Sequence[str]) -> Ints:
    """Find the nearest synthetic row of each target, once for each secret, which is left out.

    Returns places, (targets, secrets). A secret that is not among the known columns is left out
    already.
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
    """Whether each guess is right: a row of the table `source` for a row of `table`.

    A category must be equal. A number must be within `TOLERANCE` of the truth's size: |guess -
    truth| <= 0.05 * |truth|. Dividing by the guess instead, sign and all, calls every negative
    guess right. A datetime's size is its distance from the earliest one of all tables. That a
    value is missing is right where it is.
    """
    guess, truth = column.values[source][guesses], column.values[table][places]
    if not column.numeric:
        same: Bools = guess == truth
        return same
    with np.errstate(invalid="ignore"):
        near = np.abs(guess - truth) <= _slack(column, truth)
    right: Bools = near | (np.isnan(guess) & np.isnan(truth))
    return right


def _slack(column: AlignedColumn, truth: Floats) -> Floats:
    """How far off a right guess of each number may be."""
    start = 0.0
    if column.datetimes:
        start = min(float(np.nanmin(values)) for values in column.values.values())
    slack: Floats = TOLERANCE * np.abs(truth - start)
    return slack


def _by_chance(column: AlignedColumn, places: Ints) -> float:
    """Mean share of synthetic rows whose value would be a right guess of a training row's."""
    truth, pool = column.values["train"][places], column.values["synthetic"]
    if not column.numeric:
        return float((np.bincount(pool, minlength=column.levels) / len(pool))[truth].mean())
    slack, gaps = _slack(column, truth), int(np.isnan(pool).sum())
    ordered = np.sort(pool)[: len(pool) - gaps]  # missing ones are last
    hits = np.searchsorted(ordered, truth + slack, side="right")
    hits = hits - np.searchsorted(ordered, truth - slack)
    counts: NDArray[Any] = np.where(np.isnan(truth), gaps, hits)
    return float(counts.mean() / len(pool))
