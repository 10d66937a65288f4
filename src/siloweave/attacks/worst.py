"""The worst record: rows that are given away, though the mean over rows may look harmless.

Also distances to the closest record, which show the same to the eye. Rows of the control say what
would be found without having seen the training rows: if the synthetic table were made without them,
either kind of row would be as likely to be in it, and which row belongs to which kind would be
chance. That is what every p value here is computed from.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.neighbours import nearest, space
from siloweave.attacks.ordinals import Ordinals, row_ids
from siloweave.attacks.rates import privacy_risk, wilson
from siloweave.attacks.results import ClosestRecords, Copies, Histogram, Membership, WorstRecord
from siloweave.tables.aligned import Aligned
from siloweave.tables.keys import Key, fold_in, generator

__all__ = ["closest_records", "copies", "worst_record"]

_SHOWN = 10  # rows that are named
_BINS = 40

Ints = NDArray[np.int64]


def copies(values: Ordinals, confidence: float = 0.95) -> tuple[tuple[Copies, ...], Ints]:
    """Count the real rows that the synthetic table holds exactly.

    Common rows come up by chance; rows that occur once in training and control together hardly do,
    so they are counted apart.

    Args:
        values: Tables ``train``, ``synthetic`` and ``control``.
        confidence: Of intervals.

    Returns:
        Copies of all rows, and of those that occur once if there are any of either kind; and the
        places of training rows that are copied, those that occur once first.
    """
    ids = row_ids(values)
    size = 1 + max(int(found.max()) for found in ids.values())
    held = np.zeros(size, np.bool_)
    held[ids["synthetic"]] = True
    times = np.bincount(ids["train"], minlength=size) + np.bincount(ids["control"], minlength=size)
    result = []
    for rows in ("all", "once"):
        kept = {t: i if rows == "all" else i[times[i] == 1] for t, i in ids.items()}
        if len(kept["train"]) and len(kept["control"]):
            result.append(_copied(rows, held[kept["train"]], held[kept["control"]], confidence))
    places = np.flatnonzero(held[ids["train"]])
    return tuple(result), places[np.argsort(times[ids["train"][places]], kind="stable")]


def _copied(
    rows: str, train: NDArray[np.bool_], control: NDArray[np.bool_], confidence: float
) -> Copies:
    from scipy.stats import hypergeom

    hits, others = int(train.sum()), int(control.sum())
    risk = privacy_risk((hits, len(train)), (others, len(control)), confidence)
    chance = hypergeom.sf(hits - 1, len(train) + len(control), hits + others, len(train))
    return Copies(
        rows, risk.train, risk.control, risk.value, risk.low, risk.high, float(min(1.0, chance))
    )


def worst_record(
    values: Ordinals,
    memberships: Sequence[Membership],
    members: Ints,
    confidence: float = 0.95,
) -> WorstRecord:
    """Tell whether any training row is given away.

    Args:
        values: Tables ``train``, ``synthetic`` and ``control``.
        memberships: Attacks whose highest scores are looked at; may be none.
        members: Places of the training rows that these scored.
        confidence: Of intervals; one less it is the chance of a false alarm.

    Returns:
        The smallest p value over all measures, and which rows they point at.
    """
    counted, copied = copies(values, confidence)
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

    As many rows of either kind are looked at, for more rows would be closer by number alone.

    Args:
        tables: Tables ``train``, ``synthetic`` and ``control``.
        targets: How many synthetic rows are measured, at most.
        key: Seeds the choice of rows.
        confidence: Of the interval.

    Returns:
        Histograms of Gower's distance over all columns, and the share closer to training rows.
    """
    rng = generator(fold_in(key, "closest"))
    within = space(tables, "gower")
    rows = min(tables.num_rows["train"], tables.num_rows["control"])
    asked = rng.permutation(tables.num_rows["synthetic"])[:targets]
    points = within.points["synthetic"].take(asked)
    found = {}
    for table in ("train", "control"):
        kept = within.points[table].take(np.sort(rng.permutation(tables.num_rows[table])[:rows]))
        found[table] = nearest(within, points, kept).distances[:, 0]
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


def _histogram(values: NDArray[Any], edges: NDArray[Any]) -> Histogram:
    counts = np.histogram(values, edges)[0]
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))
