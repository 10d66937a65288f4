"""Linkability and attribute inference: what the nearest synthetic row shows of a real row.

*Linkability*: do two sets of known columns lead to the same synthetic row? *Inference*: guess a
secret value from the synthetic row that is nearest by the other columns. Both after Giomi et al.
(2023), "A unified framework for quantifying privacy risk in synthetic data", PoPETs 2023(2), under
Gower's distance. Targets are the rows of ``train`` and of ``control`` that are attacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.neighbours import Blocks, EmbeddedRows, Nearest, Space, nearest
from siloweave.attacks.results import RiskPart, compared
from siloweave.tables.aligned import Aligned, AlignedColumn
from siloweave.tables.arrays import Bools, Floats, Ints

TOLERANCE = 0.05
"""A guess of a number is right within this share of the truth."""


def linkability(
    left_space: Space,
    right_space: Space,
    targets: dict[str, Ints],
    *,
    confidence: float = 0.95,
) -> tuple[RiskPart, RiskPart]:
    """Link the two halves of real rows through the synthetic table.

    For each target the synthetic row nearest to it is found twice, by the columns of either side.
    The first part counts a link where both are one row; among equally near rows the first in the
    table is taken, which is arbitrary. The second part takes all rows that are as near as the
    nearest, so that a copied row always links.
    """
    num_synthetic = left_space.points["synthetic"].num_rows
    first_links: dict[str, tuple[float, float]] = {}
    all_links: dict[str, tuple[float, float]] = {}
    chance = 0.0
    for table, places in targets.items():
        sides = [_Side.of(space, table, places) for space in (left_space, right_space)]
        is_linked = sides[0].nearest.places == sides[1].nearest.places
        first_links[table] = (int(is_linked.sum()), len(places))

        ties = _ties(*sides)
        all_links[table] = (int(ties.meets.sum()), len(places))
        if table == "train":
            chances = chance_to_meet(num_synthetic, ties.left_count, ties.right_count)
            chance = float(chances.sum())

    num_targets = len(targets["train"])
    first_part = compared(
        "linkability",
        "nearest 1",
        first_links["train"],
        first_links["control"],
        (num_targets / num_synthetic, num_targets),  # a row at random, for each target
        attacks=num_targets,
        confidence=confidence,
    )
    all_part = compared(
        "linkability",
        "all nearest",
        all_links["train"],
        all_links["control"],
        (chance, num_targets),
        attacks=num_targets,
        confidence=confidence,
    )
    return first_part, all_part


class _Side(NamedTuple):
    """The targets by the columns of one side, and their nearest synthetic rows.

    Attributes:
        space: The distance over these columns.
        rows: The targets.
        nearest: The nearest synthetic row of each.
    """

    space: Space
    rows: EmbeddedRows
    nearest: Nearest

    @classmethod
    def of(cls, space: Space, table: str, places: Ints) -> _Side:
        """Find the synthetic row nearest to each of some rows of a table."""
        rows = space.points[table].take(places)
        return cls(space, rows, nearest(space, rows, space.points["synthetic"]))


class _Ties(NamedTuple):
    """All synthetic rows that are as near to a target as the nearest one, for each target.

    Attributes:
        meets: Whether a row is among them on both sides.
        left_count: How many there are on the left side.
        right_count: How many there are on the right side.
    """

    meets: Bools
    left_count: Ints
    right_count: Ints


def _ties(left_side: _Side, right_side: _Side) -> _Ties:
    """Count the synthetic rows nearest to each target on either side, and find those on both."""
    left_bounds = _bound(left_side.space, left_side.nearest.distances)
    right_bounds = _bound(right_side.space, right_side.nearest.distances)
    num_targets = left_side.rows.num_rows
    ties = _Ties(
        meets=np.zeros(num_targets, np.bool_),
        left_count=np.zeros(num_targets, np.int64),
        right_count=np.zeros(num_targets, np.int64),
    )

    # Both sides have as many targets and synthetic rows, so their blocks are of the same rows.
    left_blocks = Blocks(
        left_side.space, left_side.rows, left_side.space.points["synthetic"]
    )
    right_blocks = Blocks(
        right_side.space, right_side.rows, right_side.space.points["synthetic"]
    )
    for left_block, right_block in zip(left_blocks, right_blocks, strict=True):
        rows, _, left_totals = left_block
        _, _, right_totals = right_block
        is_left_near = left_totals <= left_bounds[rows, None]
        is_right_near = right_totals <= right_bounds[rows, None]
        ties.meets[rows] |= (is_left_near & is_right_near).any(axis=1)
        ties.left_count[rows] += is_left_near.sum(axis=1)
        ties.right_count[rows] += is_right_near.sum(axis=1)
    return ties


def _bound(side: Space, distances: Floats) -> NDArray[Any]:
    """Return the largest total at which a row counts as near as the nearest, despite rounding."""
    totals = np.rint(distances * side.unit * side.width)
    # Each of two numbers was rounded, in each column of numbers.
    return (totals + 2 * len(side.capped)).astype(np.int32)


def chance_to_meet(rows: int, first: NDArray[Any], second: NDArray[Any]) -> Floats:
    """Return the chance that random sets of `first` and of `second` rows have a row in common."""
    from scipy.special import gammaln

    # They share none with the chance C(rows - first, second) / C(rows, second), in logarithms.
    may_be_apart = first + second <= rows
    rest = np.where(may_be_apart, rows - first - second, 0)
    log_apart = gammaln(rows - first + 1) - gammaln(rest + 1)
    log_apart += gammaln(rows - second + 1) - gammaln(rows + 1)
    chance: Floats = np.where(may_be_apart, -np.expm1(np.minimum(log_apart, 0)), 1.0)
    return chance


def inference(
    tables: Aligned,
    within: Space,
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
    # Per table and secret, whether the guess about each target is right.
    is_right: dict[str, list[Bools]] = {}
    for table, places in targets.items():
        nearest_rows = without_each(within, table, places, secrets)
        is_right[table] = []
        for s, name in enumerate(secrets):
            column = tables.column(name)
            guesses = nearest_rows[:, s]
            is_right[table].append(guessed(column, "synthetic", guesses, table, places))

    num_targets = len(targets["train"])
    train = is_right["train"]
    control = is_right["control"]
    chances = [_by_chance(tables.column(name), targets["train"]) for name in secrets]

    def part_of(name: str, secret_places: slice) -> RiskPart:
        """Compare the guesses of some secrets on training rows with those on control rows."""
        chance = float(np.mean(chances[secret_places]))
        return compared(
            "inference",
            name,
            _effective(train[secret_places]),
            _effective(control[secret_places]),
            (chance * num_targets, num_targets),
            attacks=num_targets * len(train[secret_places]),
            confidence=confidence,
        )

    parts = []
    if len(secrets) > 1:
        parts.append(part_of("all secrets", slice(None)))
    parts += [part_of(name, slice(s, s + 1)) for s, name in enumerate(secrets)]
    return tuple(parts)


def _effective(right: list[Bools]) -> tuple[float, float]:
    """Return how many independent successes and trials the guesses of all secrets are worth."""
    shares = np.mean(right, axis=0)
    rate = float(shares.mean())
    num_rows = len(shares)
    num_secrets = len(right)
    if num_secrets == 1 or num_rows < 2 or not 0 < rate < 1:
        return rate * num_rows, num_rows

    # Independent guesses would give a row's share the variance rate (1 - rate) / secrets; it is
    # larger where guesses depend on each other, and then there are fewer effective ones.
    variance = float(shares.var(ddof=1))
    guesses_per_row: float = num_secrets
    if variance:
        guesses_per_row = min(num_secrets, rate * (1 - rate) / variance)
    trials = num_rows * guesses_per_row
    return rate * trials, trials


def without_each(
    within: Space, table: str, places: Ints, secrets: Sequence[str]
) -> Ints:
    """Find the nearest synthetic row of each target, once for each secret, which is left out.

    Returns places, (targets, secrets). A secret that is not among the known columns is left out
    already.
    """
    targets = within.points[table].take(places)
    synthetic = within.points["synthetic"]
    # Where each secret is among the columns; -1 for one that is not known.
    place_of_name = {name: place for place, name in enumerate(within.names)}
    columns = [place_of_name.get(name, -1) for name in secrets]
    shape = (len(places), len(secrets))
    least = np.full(shape, np.iinfo(np.int32).max)
    nearest_places = np.zeros(shape, np.int64)
    blocks = Blocks(within, targets, synthetic)
    for rows, span, totals in blocks:
        for s, column in enumerate(columns):
            remaining = totals
            if column >= 0:
                # Numbers are whole, so taking a column out of a sum loses nothing.
                part = blocks.part(column, rows, span)
                remaining = np.subtract(totals, part, out=part)
            block_places = remaining.argmin(axis=1)
            block_least = remaining[np.arange(len(block_places)), block_places]
            is_nearer = block_least < least[rows, s]
            least[rows, s] = np.where(is_nearer, block_least, least[rows, s])
            nearest_places[rows, s] = np.where(
                is_nearer, block_places + span.start, nearest_places[rows, s]
            )
    return nearest_places


def guessed(
    column: AlignedColumn, source: str, guesses: Ints, table: str, places: Ints
) -> Bools:
    """Return whether each guess is right: a row of the table `source` for a row of `table`.

    A category must be equal. A number must be within `TOLERANCE` of the truth's size: |guess -
    truth| <= 0.05 * |truth|. Dividing by the guess instead, sign and all, calls every negative
    guess right. A datetime's size is its distance from the earliest one of all tables. That a
    value is missing is right where it is.
    """
    guess = column.values[source][guesses]
    truth = column.values[table][places]
    if not column.numeric:
        is_equal: Bools = guess == truth
        return is_equal
    with np.errstate(invalid="ignore"):
        is_near = np.abs(guess - truth) <= _slack(column, truth)
    are_missing = np.isnan(guess) & np.isnan(truth)
    is_right: Bools = is_near | are_missing
    return is_right


def _slack(column: AlignedColumn, truth: Floats) -> Floats:
    """Return how far a guess of each number may be off and still count as right."""
    start = 0.0
    if column.datetimes:
        start = min(float(np.nanmin(values)) for values in column.values.values())
    slack: Floats = TOLERANCE * np.abs(truth - start)
    return slack


def _by_chance(column: AlignedColumn, places: Ints) -> float:
    """Return how often a random synthetic row has the right value of a training row, on average."""
    truth = column.values["train"][places]
    pool = column.values["synthetic"]
    if not column.numeric:
        shares = np.bincount(pool, minlength=column.levels) / len(pool)
        return float(shares[truth].mean())
    slack = _slack(column, truth)
    num_missing = int(np.isnan(pool).sum())
    present = np.sort(pool)[: len(pool) - num_missing]  # missing ones are last
    up_to_high = np.searchsorted(present, truth + slack, side="right")
    below_low = np.searchsorted(present, truth - slack)
    counts: NDArray[Any] = np.where(
        np.isnan(truth), num_missing, up_to_high - below_low
    )
    return float(counts.mean() / len(pool))
