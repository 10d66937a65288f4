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

_WIDE = 1.0  # TAPAS's bandwidth, in standard deviations
_NARROW = 0.1  # a bandwidth at which single rows stand out on a crowded table
# Exponents below add nothing to a sum that holds 1, and are slow.
_LEAST = np.float32(-80)
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
    scores_by_attack: dict[str, dict[str, Floats]] = {name: {} for name in names}
    hamming = space(tables, "hamming")
    euclidean = space(tables, "l2")
    for table, places in targets.items():
        rows = hamming.points[table].take(places)
        closest = nearest(hamming, rows, hamming.points["synthetic"])
        scores_by_attack["hamming"][table] = -closest.distances

        rows = euclidean.points[table].take(places)
        synthetic = euclidean.points["synthetic"]
        distances, wide_density = _kernel(euclidean, rows, synthetic, _WIDE)
        _, narrow_density = _kernel(euclidean, rows, synthetic, _NARROW)
        scores_by_attack["l2"][table] = -distances
        scores_by_attack["density"][table] = wide_density
        scores_by_attack["narrow density"][table] = narrow_density

    if len(reference):
        densities = scores_by_attack["density"]
        scores_by_attack["density ratio"] = _density_ratio(
            euclidean, targets, densities, reference
        )
        scores_by_attack["classifier"] = _classified(tables, targets, reference, key)
        scores_by_attack["neighbours"] = _synthetic_neighbours(
            euclidean, targets, reference, key
        )
    return scores_by_attack


def _density_ratio(
    euclidean: Space,
    targets: dict[str, Ints],
    densities: dict[str, Floats],
    reference: Ints,
) -> dict[str, Floats]:
    """Return each target's log density among synthetic rows less that among reference rows."""
    reference_rows = euclidean.points["control"].take(reference)
    ratios = {}
    for table, places in targets.items():
        rows = euclidean.points[table].take(places)
        _, reference_density = _kernel(euclidean, rows, reference_rows, _WIDE)
        ratios[table] = densities[table] - reference_density
    return ratios


def _classified(
    tables: Aligned, targets: dict[str, Ints], reference: Ints, key: Key
) -> dict[str, Floats]:
    """Return the log odds of each target to be synthetic and not one of the reference rows."""
    synthetic_rows = np.arange(tables.num_rows["synthetic"])
    synthetic = features(tables, "synthetic", synthetic_rows)
    references = features(tables, "control", reference)
    X = np.concatenate([synthetic, references])
    y = np.concatenate([np.ones(len(synthetic)), np.zeros(len(references))])
    log_odds = {}
    with one_thread():
        judge = boosted(X, y, fold_in(key, "classifier"), LONG)
        for table, places in targets.items():
            rows = features(tables, table, places)
            log_odds[table] = np.asarray(judge.decision_function(rows))
    return log_odds


def _synthetic_neighbours(
    euclidean: Space, targets: dict[str, Ints], reference: Ints, key: Key
) -> dict[str, Floats]:
    """Return how many of a target's nearest rows are synthetic, of as many of either kind.

    Between -1/2 and 1/2 is added by how much nearer the synthetic rows are, which decides between
    targets with as many.
    """
    # As many of either kind, or the larger table would be nearer by number alone.
    synthetic = euclidean.points["synthetic"]
    count = min(synthetic.num_rows, len(reference))
    rng = generator(fold_in(key, "neighbours"))
    synthetic = synthetic.take(
        np.sort(rng.choice(synthetic.num_rows, count, replace=False))
    )
    references = euclidean.points["control"].take(rng.permutation(reference)[:count])

    scores_by_table = {}
    for table, places in targets.items():
        rows = euclidean.points[table].take(places)
        to_synthetic = _nearest_squares(euclidean, rows, synthetic)
        to_reference = _nearest_squares(euclidean, rows, references)

        # The distance of the 20th neighbour among both kinds; there may be fewer rows than that.
        squares = np.concatenate([to_synthetic, to_reference], axis=1)
        bound = np.partition(squares, _NEIGHBOURS - 1, axis=1)[
            :, _NEIGHBOURS - 1 : _NEIGHBOURS
        ]
        is_near = (to_synthetic <= bound) & np.isfinite(to_synthetic)
        num_synthetic = is_near.sum(axis=1)

        synthetic_distance = np.sqrt(to_synthetic.min(axis=1))
        reference_distance = np.sqrt(to_reference.min(axis=1))
        distance_sum = np.maximum(synthetic_distance + reference_distance, _TINY)
        nearer = (reference_distance - synthetic_distance) / distance_sum
        scores_by_table[table] = num_synthetic + nearer / 2
    return scores_by_table


def _nearest_squares(
    within: Space, targets: EmbeddedRows, among: EmbeddedRows
) -> Floats:
    """Return the squared distances to each target's nearest rows, (targets, 20), not in order."""
    nearest_squares = np.full((targets.num_rows, _NEIGHBOURS), np.inf)
    for rows, _, squares in Blocks(within, targets, among):
        candidates = np.concatenate([nearest_squares[rows], squares], axis=1)
        nearest_squares[rows] = np.partition(candidates, _NEIGHBOURS - 1, axis=1)[
            :, :_NEIGHBOURS
        ]
    return nearest_squares


def joined(row_scores: Floats, owners: Ints) -> Floats:
    """Join the scores of each person's rows to one score per person, ordered by her number.

    A person's score is the highest of her rows': she is found by the row that gives her away, and
    it does not matter how well her other rows are hidden. Measured on rows of Adult under ids, 1 to
    8 rows a person, alike or not, with a generator that copies 5% of its rows, or changes 30% or
    50% of all cells: at a false positive rate of 1% the Hamming score finds 14% to 58% of the
    members by the highest, 3% to 23% by the mean, 2% to 6% by the sum, and 3% to 12% by the sum of
    likelihoods. By the area under the curve the mean is at most .03 better, where no single row
    stands out; the sum mostly shows who has many rows.
    """
    num_persons = int(owners.max(initial=-1)) + 1
    highest = np.full(num_persons, -np.inf)
    np.maximum.at(highest, owners, row_scores)
    return highest


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
    scores_by_attack = scores(tables, targets, reference, key=key)
    if owners is not None:
        for table, table_owners in owners.items():
            unit_of_target, _ = relabelled(table_owners)
            for table_scores in scores_by_attack.values():
                table_scores[table] = joined(table_scores[table], unit_of_target)

    memberships = []
    for attack, table_scores in scores_by_attack.items():
        result = judged(
            attack,
            table_scores["train"],
            table_scores["control"],
            attacks=len(scores_by_attack),
            key=fold_in(key, "membership", attack),
            confidence=confidence,
        )
        memberships.append(result)
    return tuple(memberships)


def judged(
    attack: str,
    members: Floats,
    others: Floats,
    *,
    attacks: int,
    key: Key,
    confidence: float = 0.95,
) -> Membership:
    """Judge the scores of one attack, where `attacks` of them were made on the same rows."""
    curve = roc(members, others, confidence)
    guess = threshold_risk(members, others, key=key, confidence=confidence)
    return Membership(
        attack=attack,
        roc=curve,
        at=tuple(curve.tpr_at(rate) for rate in FALSE_POSITIVES),
        threshold=guess,
        noise=noise_attacker(guess.test_sets, attacks),
        above_all=above_all(members, others, confidence),
    )


def membership_part(result: Membership) -> RiskPart:
    """Show a membership attack as a line among the others."""
    guess = result.threshold
    note = ""
    if guess.risk <= result.noise:
        note = (
            f"random guesses reach a risk of {result.noise:.3f}, so this shows no leak"
        )
    elif guess.low == 0:
        note = "its interval holds guessing at random"

    # Half of the judged rows are members, of which a coin finds half.
    num_members = guess.test_sets // 2
    baseline = wilson(num_members / 2, num_members, result.roc.confidence)
    return RiskPart(
        attack="membership",
        variant=result.attack,
        risk=guess.risk,
        low=guess.low,
        high=guess.high,
        train=guess.tpr,
        control=guess.fpr,
        baseline=baseline,
        attacks=guess.test_sets,
        note=note,
    )


def _kernel(
    within: Space, targets: EmbeddedRows, among: EmbeddedRows, bandwidth: float
) -> tuple[Floats, Floats]:
    """Return each target's smallest distance, and its log density under a Gaussian kernel."""
    scale = 0.5 / bandwidth**2
    least_squares = np.full(targets.num_rows, np.inf)
    log_sums = np.full(targets.num_rows, -np.inf)
    scratch = np.empty(0, np.float32)
    for rows, _, squares in Blocks(within, targets, among):
        if scratch.shape != squares.shape:
            scratch = np.empty_like(squares)
        block_least = squares.min(axis=1)
        least_squares[rows] = np.minimum(least_squares[rows], block_least)

        # Exponents less the largest of the block, so that the sum is at least 1.
        np.subtract(block_least[:, None], squares, out=scratch)
        np.multiply(scratch, np.float32(scale), out=scratch)
        np.maximum(scratch, _LEAST, out=scratch)
        np.exp(scratch, out=scratch)
        log_sum = np.log(scratch.sum(axis=1, dtype=np.float64)) - block_least * scale
        log_sums[rows] = np.logaddexp(log_sums[rows], log_sum)

    # As scikit-learn normalises: over the rows, and the volume of the kernel.
    log_norm = log(among.num_rows) + within.features / 2 * log(2 * pi * bandwidth**2)
    return within.scaled(least_squares), log_sums - log_norm


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
    num_ids = 1 + max(int(table_ids.max()) for table_ids in ids.values())
    is_synthetic = np.zeros(num_ids, np.bool_)
    is_synthetic[ids["synthetic"]] = True
    num_holders = _num_holders(ids, owners, num_ids)

    counts = []
    for rows in ("all", "once"):
        copied_by_table = []
        for table in ("train", "control"):
            counted = np.ones(len(ids[table]), np.bool_)
            if rows == "once":
                counted = num_holders[ids[table]] == 1
            copied = is_synthetic[ids[table][counted]]
            if owners is not None:
                copied = _any_of(copied, owners[table][counted])
            copied_by_table.append(copied)
        train, control = copied_by_table
        if len(train) and len(control):
            counts.append(_copies_of(rows, train, control, confidence))

    places = np.flatnonzero(is_synthetic[ids["train"]])
    order = np.argsort(num_holders[ids["train"][places]], kind="stable")
    return tuple(counts), places[order]


def _num_holders(
    ids: Mapping[str, Ints], owners: Mapping[str, Ints] | None, num_ids: int
) -> Ints:
    """Count the units of training and control that have each row; without owners, the rows."""
    num_holders = np.zeros(num_ids, np.int64)
    for table in ("train", "control"):
        holders = np.arange(len(ids[table])) if owners is None else owners[table]
        # A unit with a row twice is one holder.
        pairs = np.unique(np.stack([ids[table], holders]), axis=1)
        num_holders += np.bincount(pairs[0], minlength=num_ids)
    return num_holders


def _any_of(is_copied: Bools, owners: Ints) -> Bools:
    """Return whether any row of a unit is copied, for every unit that has rows here."""
    unit_of_row, counts = relabelled(owners)
    num_copied = np.bincount(unit_of_row[is_copied], minlength=len(counts))
    has_copy: Bools = num_copied > 0
    return has_copy


def _copies_of(rows: str, train: Bools, control: Bools, confidence: float) -> Copies:
    """Compare how many training rows are copied with how many control rows are."""
    from scipy.stats import hypergeom

    train_copies = int(train.sum())
    control_copies = int(control.sum())
    train_counts = (train_copies, len(train))
    control_counts = (control_copies, len(control))
    risk = privacy_risk(train_counts, control_counts, confidence)

    # Fisher's exact test: if neither kind were favoured, which rows are copied would be chance.
    num_rows = len(train) + len(control)
    num_copies = train_copies + control_copies
    p_value = hypergeom.sf(train_copies - 1, num_rows, num_copies, len(train))
    return Copies(
        rows=rows,
        train=risk.train,
        control=risk.control,
        risk=risk.value,
        low=risk.low,
        high=risk.high,
        p_value=float(min(1.0, p_value)),
    )


def worst_record(
    values: Ordinals,
    memberships: Sequence[Membership],
    members: Ints,
    confidence: float = 0.95,
    owners: Mapping[str, Ints] | None = None,
) -> WorstRecord:
    """Judge whether any training row is given away, by copies or by the highest scores.

    `members` are the places of the training rows that `memberships` scored, or with `owners` of a
    row of each unit; 1 - `confidence` is the chance of a false alarm.
    """
    copy_counts, copied_rows = copies(values, confidence, owners)
    p_values = {
        f"copies of rows ({count.rows})": count.p_value for count in copy_counts
    }
    for result in memberships:
        p_values[f"{result.attack} above all"] = result.above_all.p_value

    # Bonferroni: the smallest of so many p values is small by chance as often.
    smallest = min(p_values, key=lambda name: p_values[name])
    p_value = min(1.0, p_values[smallest] * len(p_values))

    # Copied rows first, then those of the highest scores, each once.
    rows = copied_rows.tolist()
    for result in memberships:
        rows += [int(members[place]) for place in result.above_all.places]
    named_rows = tuple(dict.fromkeys(rows))[:_SHOWN]
    return WorstRecord(
        caught=p_value < 1 - confidence,
        p_value=p_value,
        measures=len(p_values),
        by=smallest,
        copies=copy_counts,
        rows=named_rows,
    )


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
    # One generator draws all three samples, so their order is part of the result.
    synthetic_places = rng.permutation(tables.num_rows["synthetic"])[:targets]
    synthetic = within.points["synthetic"].take(synthetic_places)
    distances = {}
    for table in ("train", "control"):
        places = np.sort(rng.permutation(tables.num_rows[table])[:rows])
        real_rows = within.points[table].take(places)
        distances[table] = nearest(within, synthetic, real_rows).distances

    to_train = distances["train"]
    to_control = distances["control"]
    farthest = float(max(to_train.max(), to_control.max())) or 1.0
    edges = np.linspace(0, farthest, _BINS + 1)
    num_closer = float(
        (to_train < to_control).sum() + (to_train == to_control).sum() / 2
    )
    return ClosestRecords(
        to_train=_histogram(to_train, edges),
        to_control=_histogram(to_control, edges),
        closer_to_train=wilson(num_closer, len(synthetic_places), confidence),
        median_to_train=float(np.median(to_train)),
        median_to_control=float(np.median(to_control)),
        rows=rows,
    )


def _histogram(values: Floats, edges: Floats) -> Histogram:
    """Count values between edges."""
    counts, _ = np.histogram(values, edges)
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))
