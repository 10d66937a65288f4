"""Membership inference without shadow models, the worst record, and distances to the closest one.

The scores are those of TAPAS: Houssiau, F. et al. (2022), "TAPAS: a toolbox for adversarial privacy
auditing of synthetic data". One synthetic table is scored, and rows rather than tables are judged.

*The worst record*: rows that are given away, though the mean over rows may look harmless. Rows of
the control say what would be found without having seen the training rows: if the synthetic table
were made without them, either kind of row would be as likely to be in it, and which row belongs to
which kind would be chance. Every p value here is computed from that. *Distances to the closest
record* show the same to the eye.

Tables are ``train``, ``synthetic`` and ``control``; targets are, per table, the rows attacked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, pi
from typing import Any

import numpy as np

from siloweave.attacks.neighbours import (
    Blocks,
    EmbeddedRows,
    Ordinals,
    Space,
    nearest,
    row_ids,
    space,
)
from siloweave.attacks.rates import (
    FALSE_POSITIVES,
    above_all,
    noise_attacker,
    privacy_risk,
    roc,
    threshold_risk,
    wilson,
)
from siloweave.attacks.results import (
    ClosestRecords,
    Copies,
    Histogram,
    Membership,
    RiskPart,
    WorstRecord,
)
from siloweave.evaluate.predictive import LONG, boosted, features, one_thread
from siloweave.tables.aligned import Aligned
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.persons import relabelled

_WIDE, _NARROW = 1.0, 0.1  # bandwidths, in standard deviations
_LEAST = np.float32(-80)  # exponents below add nothing to a sum that holds 1, and are slow
_NEIGHBOURS = 20  # among which synthetic rows are counted
_TINY = 1e-12  # a distance that is no distance
_SHOWN = 10  # rows that are named
_BINS = 40


def scores(
    tables: Aligned, targets: dict[str, Ints], reference: Ints, *, key: Key
) -> dict[str, dict[str, Floats]]:
    """Score rows by how well the synthetic table fits them; higher says member.

    Per attack and table there is one score a target. ``hamming`` is less the smallest share of
    columns in which a synthetic row differs, ``l2`` less the smallest Euclidean distance over
    standardised numbers and one-hot categories, and ``density`` the log density of a Gaussian
    kernel of bandwidth 1 over the same, normalised as scikit-learn does. TAPAS compares one
    record's density between tables with and without it. Between records, density mostly separates
    common rows from rare ones: on a table as crowded as Adult it does not even see a full copy.
    ``narrow density`` therefore has a bandwidth of 0.1, and ``density ratio`` takes off the log
    density of further control rows, the `reference`, if there are any (van Breugel et al. 2023,
    "Membership inference attacks against synthetic data through overfitting detection", AISTATS).
    With a reference there are two more: ``classifier`` is the chance that a row is synthetic, by
    boosted trees that learned to distinguish synthetic rows from reference rows (Hayes, Melis,
    Danezis & De Cristofaro 2019, "LOGAN", PoPETs), and ``neighbours`` the share of synthetic rows
    among the 20 nearest of as many synthetic and reference rows (Ward, Lin, Wang & Cheng 2024,
    "Data plagiarism index"); of rows with equal shares the one that lies nearer to synthetic rows
    than to reference rows comes first.

    The key is that of the trees, and of which synthetic rows are compared with the reference.
    """
    names = ["hamming", "l2", "density", "narrow density"]
    found: dict[str, dict[str, Floats]] = {name: {} for name in names}
    equal, flat = space(tables, "hamming"), space(tables, "l2")
    for table, places in targets.items():
        points = equal.points[table].take(places)
        closest = nearest(equal, points, equal.points["synthetic"])
        found["hamming"][table] = -closest.distances
        points = flat.points[table].take(places)
        distance, density = _kernel(flat, points, flat.points["synthetic"], _WIDE)
        narrow = _kernel(flat, points, flat.points["synthetic"], _NARROW)[1]
        found["l2"][table], found["density"][table] = -distance, density
        found["narrow density"][table] = narrow
    if len(reference):
        found["density ratio"] = _density_ratio(flat, targets, found["density"], reference)
        found["classifier"] = _classified(tables, targets, reference, key)
        found["neighbours"] = _synthetic_neighbours(flat, targets, reference, key)
    return found


def _density_ratio(
    flat: Space, targets: dict[str, Ints], densities: dict[str, Floats], reference: Ints
) -> dict[str, Floats]:
    """Return each target's log density among synthetic rows less that among reference rows."""
    others = flat.points["control"].take(reference)
    return {
        table: densities[table] - _kernel(flat, flat.points[table].take(rows), others, _WIDE)[1]
        for table, rows in targets.items()
    }


def _classified(
    tables: Aligned, targets: dict[str, Ints], reference: Ints, key: Key
) -> dict[str, Floats]:
    """Return the log odds of each target to be synthetic and not one of the reference rows."""
    synthetic_rows = np.arange(tables.num_rows["synthetic"])
    synthetic = features(tables, "synthetic", synthetic_rows)
    others = features(tables, "control", reference)
    X = np.concatenate([synthetic, others])
    y = np.concatenate([np.ones(len(synthetic)), np.zeros(len(others))])
    with one_thread():
        judge = boosted(X, y, fold_in(key, "classifier"), LONG)
        return {
            table: np.asarray(judge.decision_function(features(tables, table, rows)))
            for table, rows in targets.items()
        }


def _synthetic_neighbours(
    flat: Space, targets: dict[str, Ints], reference: Ints, key: Key
) -> dict[str, Floats]:
    """Return how many of a target's nearest rows are synthetic, of as many of either kind.

    Between -1/2 and 1/2 is added by how much nearer the synthetic rows are, which decides between
    targets with as many.
    """
    synthetic = flat.points["synthetic"]
    count = min(synthetic.num_rows, len(reference))
    rng = generator(fold_in(key, "neighbours"))
    compared = synthetic.take(np.sort(rng.choice(synthetic.num_rows, count, replace=False)))
    others = flat.points["control"].take(rng.permutation(reference)[:count])
    scores_by_table = {}
    for table, rows in targets.items():
        points = flat.points[table].take(rows)
        to_synthetic = _nearest_squares(flat, points, compared)
        to_others = _nearest_squares(flat, points, others)
        both = np.concatenate([to_synthetic, to_others], axis=1)
        bound = np.partition(both, _NEIGHBOURS - 1, axis=1)[:, _NEIGHBOURS - 1 : _NEIGHBOURS]
        # There may be fewer rows than neighbours that are wanted.
        is_near = (to_synthetic <= bound) & np.isfinite(to_synthetic)
        shares = is_near.sum(axis=1)
        first, second = np.sqrt(to_synthetic.min(axis=1)), np.sqrt(to_others.min(axis=1))
        nearer = (second - first) / np.maximum(first + second, _TINY)
        scores_by_table[table] = shares + nearer / 2
    return scores_by_table


def _nearest_squares(within: Space, targets: EmbeddedRows, among: EmbeddedRows) -> Floats:
    """Return the squared distances to each target's nearest rows, (targets, 20), not in order."""
    nearest_squares = np.full((targets.num_rows, _NEIGHBOURS), np.inf)
    for rows, _, squares in Blocks(within, targets, among):
        candidates = np.concatenate([nearest_squares[rows], squares], axis=1)
        nearest_squares[rows] = np.partition(candidates, _NEIGHBOURS - 1, axis=1)[:, :_NEIGHBOURS]
    return nearest_squares


def joined(found: Floats, owners: Ints) -> Floats:
    """Join the scores of each person's rows to one score of hers, in the order of her number.

    A person's score is the highest of her rows': she is found by the row that gives her away, and
    it does not matter how well her other rows are hidden. Measured on rows of Adult under ids, 1 to
    8 rows a person, alike or not, with a generator that copies 5% of its rows, or changes 30% or
    50% of all cells: at a false positive rate of 1% the Hamming score finds 14% to 58% of the
    members by the highest, 3% to 23% by the mean, 2% to 6% by the sum, and 3% to 12% by the sum of
    likelihoods. By the area under the curve the mean is at most .03 better, where no single row
    stands out; the sum mostly shows who has many rows.
    """
    best = np.full(int(owners.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(best, owners, found)
    return best


def membership(
    tables: Aligned,
    targets: dict[str, Ints],
    reference: Ints,
    *,
    key: Key,
    owners: Mapping[str, Ints] | None = None,
    confidence: float = 0.95,
) -> tuple[Membership, ...]:
    """Attack rows of ``train`` as members and rows of ``control`` as others, with each score.

    With `owners`, whose each target is, units are attacked: all targets of one number together, by
    the scores that `joined` makes.
    """
    found = scores(tables, targets, reference, key=key)
    if owners is not None:
        whose = {table: relabelled(numbers)[0] for table, numbers in owners.items()}
        found = {
            name: {table: joined(of[table], whose[table]) for table in of}
            for name, of in found.items()
        }
    settings: Any = {"attacks": len(found), "confidence": confidence}
    return tuple(
        judged(name, of["train"], of["control"], key=fold_in(key, "membership", name), **settings)
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
    """Judge the scores of one attack, which is one of so many `attacks` on the same rows."""
    curve = roc(members, others, confidence)
    guess = threshold_risk(members, others, key=key, confidence=confidence)
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


def copies(
    values: Ordinals, confidence: float = 0.95, owners: Mapping[str, Ints] | None = None
) -> tuple[tuple[Copies, ...], Ints]:
    """Count the real rows that the synthetic table holds exactly.

    Common rows come up by chance; rows that occur once in training and control together hardly do,
    so they are counted apart. Returns copies of all rows, and of those that occur once if there are
    any of either kind; and the places of copied training rows, those that occur once first.

    With `owners`, numbers of units from 0, units are counted that have such a row; and a row occurs
    once if one unit alone has it.
    """
    ids = row_ids(values)
    size = 1 + max(int(found.max()) for found in ids.values())
    held = np.zeros(size, np.bool_)
    held[ids["synthetic"]] = True
    times = np.zeros(size, np.int64)
    for table in ("train", "control"):
        holders = np.arange(len(ids[table])) if owners is None else owners[table]
        pairs = np.unique(np.stack([ids[table], holders]), axis=1)
        times += np.bincount(pairs[0], minlength=size)
    result = []
    for rows in ("all", "once"):
        sides = []
        for table in ("train", "control"):
            kept = times[ids[table]] == 1 if rows == "once" else np.ones(len(ids[table]), np.bool_)
            copied = held[ids[table][kept]]
            if owners is not None:
                copied = _any_of(copied, owners[table][kept])
            sides.append(copied)
        if len(sides[0]) and len(sides[1]):
            result.append(_copied(rows, sides[0], sides[1], confidence))
    places = np.flatnonzero(held[ids["train"]])
    return tuple(result), places[np.argsort(times[ids["train"][places]], kind="stable")]


def _any_of(found: Bools, owners: Ints) -> Bools:
    """Whether any row of each unit that has rows here was found."""
    whose, counts = relabelled(owners)
    hits = np.bincount(whose[found], minlength=len(counts))
    any_row: Bools = hits > 0
    return any_row


def _copied(rows: str, train: Bools, control: Bools, confidence: float) -> Copies:
    from scipy.stats import hypergeom

    hits, others = int(train.sum()), int(control.sum())
    risk = privacy_risk((hits, len(train)), (others, len(control)), confidence)
    chance = hypergeom.sf(hits - 1, len(train) + len(control), hits + others, len(train))
    found = (risk.train, risk.control, risk.value, risk.low, risk.high)
    return Copies(rows, *found, float(min(1.0, chance)))


def worst_record(
    values: Ordinals,
    memberships: Sequence[Membership],
    members: Ints,
    confidence: float = 0.95,
    owners: Mapping[str, Ints] | None = None,
) -> WorstRecord:
    """Whether any training row is given away, by copies or by the highest membership scores.

    `members` are the places of the training rows that `memberships` scored, or with `owners` of a
    row of each unit; 1 - `confidence` is the chance of a false alarm.
    """
    counted, copied = copies(values, confidence, owners)
    chances = {f"copies of rows ({item.rows})": item.p_value for item in counted}
    chances |= {f"{item.attack} above all": item.above_all.p_value for item in memberships}
    by = min(chances, key=lambda name: chances[name])
    p_value = min(1.0, chances[by] * len(chances))
    near = [int(members[place]) for item in memberships for place in item.above_all.places]
    rows = tuple(dict.fromkeys([*copied.tolist(), *near]))[:_SHOWN]
    return WorstRecord(p_value < 1 - confidence, p_value, len(chances), by, counted, rows)


def closest_records(
    tables: Aligned, targets: int, *, key: Key, confidence: float = 0.95
) -> ClosestRecords:
    """Compare synthetic rows' distances to training rows with those to control rows.

    Distances are Gower's over all columns, of at most `targets` synthetic rows. As many rows of
    either kind are looked at, for more rows would be closer by number alone.
    """
    rng = generator(fold_in(key, "closest"))
    within = space(tables, "gower")
    rows = min(tables.num_rows["train"], tables.num_rows["control"])
    asked = rng.permutation(tables.num_rows["synthetic"])[:targets]
    points = within.points["synthetic"].take(asked)
    found = {}
    for table in ("train", "control"):
        kept = within.points[table].take(np.sort(rng.permutation(tables.num_rows[table])[:rows]))
        found[table] = nearest(within, points, kept).distances
    ours, theirs = found["train"], found["control"]
    top = float(max(ours.max(), theirs.max())) or 1.0
    edges = np.linspace(0, top, _BINS + 1)
    closer = float((ours < theirs).sum() + (ours == theirs).sum() / 2)
    return ClosestRecords(
        _histogram(ours, edges),
        _histogram(theirs, edges),
        wilson(closer, len(asked), confidence),
        float(np.median(ours)),
        float(np.median(theirs)),
        rows,
    )


def _histogram(values: Floats, edges: Floats) -> Histogram:
    return Histogram(tuple(edges.tolist()), tuple(np.histogram(values, edges)[0].tolist()))
