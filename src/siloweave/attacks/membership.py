"""Membership inference: scores that should tell training rows from rows the generator never saw.

The scores are those of TAPAS: Houssiau, F. et al. (2022), "TAPAS: a toolbox for adversarial privacy
auditing of synthetic data". They need no shadow models: one synthetic table is scored, and rows
rather than tables are judged.
"""

from math import log, pi

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.neighbours import Blocks, EmbeddedRows, Space, nearest, space
from siloweave.attacks.rates import (
    Roc,
    ThresholdRisk,
    above_all,
    noise_attacker,
    roc,
    threshold_risk,
    wilson,
)
from siloweave.attacks.results import Membership, RiskPart
from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key, fold_in

__all__ = ["FALSE_POSITIVES", "judged", "membership", "membership_part", "scores"]

FALSE_POSITIVES = (0.001, 0.01)
"""False positive rates at which the share of members found is reported."""

_WIDE, _NARROW = 1.0, 0.1  # bandwidths, in standard deviations

_LEAST = np.float32(-80)  # exponents below add nothing to a sum that holds 1, and are slow

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def scores(
    tables: Aligned, targets: dict[str, Ints], reference: Ints
) -> dict[str, dict[str, Floats]]:
    """Score rows by how well the synthetic table fits them.

    ``hamming`` is less the smallest share of columns in which a synthetic row differs, ``l2`` less
    the smallest Euclidean distance over standardised numbers and one-hot categories, and
    ``density`` the log density of a Gaussian kernel of bandwidth 1 over the same, normalised as
    scikit-learn does. TAPAS compares one record's density between tables with and without it.
    Between records, density mostly tells common rows from rare ones: on a table as crowded as
    Adult it does not even see a full copy. ``narrow density`` therefore has a bandwidth of 0.1, and
    ``density ratio`` takes off the log density of further control rows (van Breugel et al. 2023,
    "Membership inference attacks against synthetic data through overfitting detection", AISTATS).

    Args:
        tables: Tables ``synthetic``, ``control`` and those of the targets.
        targets: Per table, the rows to score.
        reference: Further rows of ``control``; without any there is no density ratio.

    Returns:
        Per attack and table, one score a target; higher says member.
    """
    names = ["hamming", "l2", "density", "narrow density"]
    names += ["density ratio"] if len(reference) else []
    found: dict[str, dict[str, Floats]] = {name: {} for name in names}
    equal, flat = space(tables, "hamming"), space(tables, "l2")
    for table, places in targets.items():
        points = equal.points[table].take(places)
        closest = nearest(equal, points, equal.points["synthetic"])
        found["hamming"][table] = -closest.distances[:, 0]
        points = flat.points[table].take(places)
        distance, density = _kernel(flat, points, flat.points["synthetic"], _WIDE)
        narrow = _kernel(flat, points, flat.points["synthetic"], _NARROW)[1]
        found["l2"][table], found["density"][table] = -distance, density
        found["narrow density"][table] = narrow
        if len(reference):
            others = _kernel(flat, points, flat.points["control"].take(reference), _WIDE)[1]
            found["density ratio"][table] = density - others
    return found


def membership(
    tables: Aligned,
    targets: dict[str, Ints],
    reference: Ints,
    *,
    key: Key,
    confidence: float = 0.95,
) -> tuple[Membership, ...]:
    """Attack rows of ``train`` as members and rows of ``control`` as others.

    Args:
        tables: Tables ``train``, ``synthetic`` and ``control``.
        targets: Which rows of ``train`` and of ``control``; two or more of each.
        reference: Further rows of ``control``, for the density ratio; may be none.
        key: Says which rows choose thresholds and which judge them.
        confidence: Of intervals.

    Returns:
        One result for each of the scores.
    """
    found = scores(tables, targets, reference)
    return tuple(
        judged(
            name,
            of["train"],
            of["control"],
            attacks=len(found),
            key=fold_in(key, "membership", name),
            confidence=confidence,
        )
        for name, of in found.items()
    )


def judged(
    attack: str,
    members: Floats,
    others: Floats,
    *,
    attacks: int,
    key: Key,
    confidence: float = 0.95,
) -> Membership:
    """Judge one attack's scores.

    Args:
        attack: Its name.
        members: Scores of members; higher says member.
        others: Scores of others.
        attacks: Of how many attacks the best is looked at, for the noise that it shows.
        key: Says which scores choose the threshold.
        confidence: Of intervals.

    Raises:
        InputError: There are fewer than two scores on a side, or a score is NaN.

    Example:
        >>> found = judged("a", np.arange(50.0), np.arange(50.0), attacks=1, key=0)
        >>> round(found.roc.auc.value, 6), found.above_all.count
        (0.5, 0)
    """
    curve: Roc = roc(members, others, confidence)
    guess: ThresholdRisk = threshold_risk(members, others, key=key, confidence=confidence)
    return Membership(
        attack,
        curve,
        tuple(curve.tpr_at(rate) for rate in FALSE_POSITIVES),
        guess,
        noise_attacker(guess.test_sets, attacks),
        above_all(members, others, confidence),
    )


def membership_part(found: Membership) -> RiskPart:
    """Show a membership attack as a line among the others."""
    guess, judged_rows = found.threshold, found.threshold.test_sets // 2
    note = ""
    if guess.risk <= found.noise:
        note = f"no more than coins show ({found.noise:.3f}), so it says nothing about the rows"
    elif guess.low == 0:
        note = "its interval holds guessing at random"
    return RiskPart(
        "membership",
        found.attack,
        guess.risk,
        guess.low,
        guess.high,
        guess.tpr,
        guess.fpr,
        wilson(judged_rows / 2, judged_rows, found.roc.confidence),
        guess.test_sets,
        note,
    )


def _kernel(
    within: Space, targets: EmbeddedRows, among: EmbeddedRows, bandwidth: float
) -> tuple[Floats, Floats]:
    """Smallest distance, and log density of a Gaussian kernel."""
    scale = 0.5 / bandwidth**2
    best = np.full(targets.num_rows, np.inf)
    total = np.full(targets.num_rows, -np.inf)
    scratch = np.empty(0, np.float32)
    for rows, _, squares in Blocks(within, targets, among):
        if scratch.shape != squares.shape:
            scratch = np.empty_like(squares)
        least = squares.min(axis=1)
        best[rows] = np.minimum(best[rows], least)
        np.subtract(least[:, None], squares, out=scratch)
        np.multiply(scratch, np.float32(scale), out=scratch)
        np.maximum(scratch, _LEAST, out=scratch)
        np.exp(scratch, out=scratch)
        inside = np.log(scratch.sum(axis=1, dtype=np.float64)) - least * scale
        total[rows] = np.logaddexp(total[rows], inside)
    norm = log(among.num_rows) + within.features / 2 * log(2 * pi * bandwidth**2)
    return within.scaled(best), total - norm
