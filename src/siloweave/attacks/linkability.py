"""Linkability: do two sets of known columns lead to the same synthetic row?

After Giomi et al. (2023), "A unified framework for quantifying privacy risk in synthetic data",
PoPETs 2023(2)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.neighbours import Blocks, EmbeddedRows, Space, nearest
from siloweave.attacks.results import RiskPart, compared

__all__ = ["chance_to_meet", "linkability"]

Ints = NDArray[np.int64]


def linkability(
    left: Space,
    right: Space,
    targets: dict[str, Ints],
    *,
    k: int = 1,
    confidence: float = 0.95,
) -> tuple[RiskPart, RiskPart]:
    """Link the two halves of real rows through the synthetic table.

    For each target the k synthetic rows nearest to it under Gower's distance are found twice, by
    the columns of either side. The first part counts a link where the two sets meet; among
    equally near rows the first in the table is taken, which is arbitrary. The second part takes
    all rows that are as near as the nearest, so that a copied row always links.

    Args:
        left: Gower's distance over some columns.
        right: The same over others.
        targets: Which rows of ``train`` and of ``control`` are attacked.
        k: How many neighbours, at most as many as there are synthetic rows.
        confidence: Of intervals.

    Returns:
        The risk with k neighbours, and with all nearest ones.
    """
    rows = left.points["synthetic"].num_rows
    met, tied, chance = {}, {}, 0.0
    for table, places in targets.items():
        sides = [(side, side.points[table].take(places)) for side in (left, right)]
        found = [nearest(side, points, side.points["synthetic"], k) for side, points in sides]
        one, two = (item.places for item in found)
        met[table] = int((one[:, :, None] == two[:, None, :]).any(axis=(1, 2)).sum())
        meets, sizes = _ties(sides, [item.distances[:, 0] for item in found])
        tied[table] = int(meets.sum())
        if table == "train":
            chance = float(chance_to_meet(rows, *sizes).sum())
    tries = {table: len(places) for table, places in targets.items()}
    each = tries["train"]
    guess = float(chance_to_meet(rows, np.array(k), np.array(k))) * each
    return (
        _part(f"nearest {k}", met, tries, guess, confidence),
        _part("all nearest", tied, tries, chance, confidence),
    )


def _part(
    variant: str, found: dict[str, int], tries: dict[str, int], guess: float, confidence: float
) -> RiskPart:
    return compared(
        "linkability",
        variant,
        (found["train"], tries["train"]),
        (found["control"], tries["control"]),
        (guess, tries["train"]),
        attacks=tries["train"],
        confidence=confidence,
    )


def _ties(
    sides: list[tuple[Space, EmbeddedRows]], shortest: list[NDArray[np.float64]]
) -> tuple[NDArray[np.bool_], list[Ints]]:
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


def _bound(side: Space, distances: NDArray[np.float64]) -> NDArray[Any]:
    """Totals up to which a row is as near as the nearest, numbers being exact to a unit each."""
    totals = np.rint(distances * side.unit * side.width)
    return (totals + 2 * len(side.capped)).astype(np.int32)


def chance_to_meet(rows: int, one: NDArray[Any], two: NDArray[Any]) -> NDArray[np.float64]:
    """Chance that two random sets of rows have one in common.

    Args:
        rows: How many rows there are.
        one: Sizes of the first set.
        two: Sizes of the second.

    Example:
        >>> float(chance_to_meet(10, np.array(2), np.array(3)).round(3))
        0.533
    """
    from scipy.special import gammaln

    apart = one + two <= rows
    left = np.where(apart, rows - one - two, 0)
    log = gammaln(rows - one + 1) - gammaln(left + 1)
    log += gammaln(rows - two + 1) - gammaln(rows + 1)
    chance: NDArray[np.float64] = np.where(apart, -np.expm1(np.minimum(log, 0)), 1.0)
    return chance
