"""From shadow sets to risks: thresholds and forests from one half, accuracy on the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from siloweave.attacks.groundhog import forest_scores
from siloweave.attacks.rates import (
    Operating,
    Rate,
    Roc,
    best_threshold,
    clopper_pearson,
    noise_attacker,
    roc,
)
from siloweave.tables.display import html_table
from siloweave.tables.frames import frame_of
from siloweave.tables.keys import Key, fold_in
from siloweave.tables.read import Frame

__all__ = ["FPRS", "ShadowRisk", "ShadowRisks", "Split", "judged"]

FPRS = (0.001, 0.01)
"""False positive rates at which the share of members found is told."""


@dataclass(frozen=True, eq=False)
class Split:
    """What the shadow sets of one half told.

    Attributes:
        members: (sets, records): which set held which record.
        summaries: Per attack (sets, summaries).
        near: Per attack (records, sets): scores, greater for nearer.
    """

    members: NDArray[np.bool_]
    summaries: Mapping[str, NDArray[np.float64]]
    near: Mapping[str, NDArray[np.float64]]


class ShadowRisk(msgspec.Struct, frozen=True):
    """One attack on one record.

    Attributes:
        attack: Its name.
        record: Which of the targets, from 0.
        risk: 2 * accuracy - 1 on the test sets, negative values as 0.
        low: Lower end of the interval of `raw`.
        high: Upper end.
        raw: The same as `risk`, negative values kept.
        accuracy: Share of test sets told right, with its exact interval.
        threshold: From which score on a set is said to hold the record; chosen on training sets.
        curve: Receiver curve over the test sets, with AUC and its interval.
        at: Share of the sets with the record that are found at FPR 0.1% and 1%.
    """

    attack: str
    record: int
    risk: float
    low: float
    high: float
    raw: float
    accuracy: Rate
    threshold: float
    curve: Roc
    at: tuple[Operating, ...]


class ShadowRisks(msgspec.Struct, frozen=True):
    """All attacks on all records.

    Attributes:
        risks: One per attack and record.
        records: How many records.
        train_sets: Fits that thresholds and forests were learned from.
        test_sets: Fits that they are judged on, half of them with the record.
        twins: Auxiliary rows that were left out because they equal a record.
        confidence: Of every interval.
        noise: Mean risk that a guessing attacker shows with so many test sets.
        noise_record: The same for the best of all attacks on one record.
        noise_worst: The same for the best of all attacks on all records: what `worst` shows where
            there is nothing to find. Attacks that agree with each other show less.
        worst_low: Lower end of the interval of `worst`, as wide as the best of so many needs
            (Bonferroni); above 0 only if something was found.
        worst_high: Upper end.
    """

    risks: tuple[ShadowRisk, ...]
    records: int
    train_sets: int
    test_sets: int
    twins: int
    confidence: float
    noise: float
    noise_record: float
    noise_worst: float
    worst_low: float
    worst_high: float

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks, in order."""
        return tuple(dict.fromkeys(one.attack for one in self.risks))

    @property
    def worst(self) -> ShadowRisk:
        """The attack and record of the highest risk; ties go to the higher AUC."""
        return max(self.risks, key=lambda one: (one.raw, one.curve.auc.value))

    def to_frame(self, kind: Frame | None = None) -> Any:
        """Return one row per attack and record.

        Args:
            kind: ``pandas``, ``polars`` or ``arrow``; pandas where it is installed, else polars, if
                None.
        """
        names = ("attack", "record", "risk", "low", "high", "raw", "threshold")
        rows = [
            {
                **msgspec.structs.asdict(one),
                "accuracy": one.accuracy.value,
                "auc": one.curve.auc.value,
            }
            for one in self.risks
        ]
        return frame_of(rows, (*names, "accuracy", "auc"), kind)

    def __repr__(self) -> str:
        worst = f"worst {self.worst.risk:.3f}"
        return f"ShadowRisks({len(self.attacks)} attacks on {self.records} records: {worst})"

    def _repr_html_(self) -> str:
        rows = [
            (one.attack, one.record, f"{one.risk:.3f}", f"{one.low:.3f} to {one.high:.3f}")
            for one in self.risks
        ]
        return html_table(repr(self), ["attack", "record", "risk", "interval"], rows)

    def __str__(self) -> str:
        lines = [f"{'attack':<24}{'record':>7}{'risk':>8}  interval"]
        lines += [
            f"{one.attack:<24}{one.record:>7}{one.risk:>8.3f}  {one.low:.3f} to {one.high:.3f}"
            for one in self.risks
        ]
        lines.append(
            f"noise: with {self.test_sets} test sets a guess shows a risk of {self.noise:.3f}, the "
            f"best of all attacks {self.noise_record:.3f} on a record and {self.noise_worst:.3f} "
            f"on the worst; found there {self.worst_low:.3f} to {self.worst_high:.3f}"
        )
        return "\n".join(lines)

    def of(self, attack: str) -> tuple[ShadowRisk, ...]:
        """One attack's risks, record by record."""
        return tuple(one for one in self.risks if one.attack == attack)

    def mean(self, attack: str) -> float:
        """One attack's risk, averaged over records with negative values kept, then cut at 0."""
        return max(0.0, float(np.mean([one.raw for one in self.of(attack)])))

    @property
    def mean_of_best(self) -> float:
        """Each record's best attack, averaged: DP-TLDM's figure; compare with `noise_record`."""
        best = [
            max(one.risk for one in self.risks if one.record == record)
            for record in range(self.records)
        ]
        return float(np.mean(best))


def judged(
    train: Split, test: Split, attacks: Sequence[str], *, confidence: float, twins: int, key: Key
) -> ShadowRisks:
    """Learn on one half of the shadow sets, judge on the other.

    Args:
        train: To learn from.
        test: To judge on.
        attacks: Which attacks.
        confidence: Of every interval.
        twins: Rows left out, for the record.
        key: Of the forests.

    Returns:
        One risk per attack and record, and what guessing would show.
    """
    records = train.members.shape[1]
    risks = tuple(
        _one(attack, record, train, test, confidence, fold_in(key, attack, record))
        for attack in dict.fromkeys(attacks)
        for record in range(records)
    )
    sets, kinds = len(test.members), len(risks) // records
    most = max(one.accuracy.successes for one in risks)
    worst = clopper_pearson(int(most), sets, 1 - (1 - confidence) / len(risks))
    return ShadowRisks(
        risks,
        records,
        len(train.members),
        sets,
        twins,
        confidence,
        noise=noise_attacker(sets),
        noise_record=noise_attacker(sets, kinds),
        noise_worst=noise_attacker(sets, len(risks)),
        worst_low=2 * worst.low - 1,
        worst_high=2 * worst.high - 1,
    )


def _one(
    attack: str, record: int, train: Split, test: Split, confidence: float, key: Key
) -> ShadowRisk:
    held, holds = train.members[:, record], test.members[:, record]
    if attack in train.summaries:
        scores, threshold = forest_scores(
            train.summaries[attack], held, test.summaries[attack], key=key
        )
    else:
        seen, scores = train.near[attack][record], test.near[attack][record]
        threshold = best_threshold(seen[held], seen[~held])
    right = int(((scores >= threshold) == holds).sum())
    accuracy = clopper_pearson(right, len(holds), confidence)
    raw = 2 * accuracy.value - 1
    curve = roc(scores[holds], scores[~holds], confidence)
    return ShadowRisk(
        attack,
        record,
        max(0.0, raw),
        2 * accuracy.low - 1,
        2 * accuracy.high - 1,
        raw,
        accuracy,
        threshold,
        curve,
        tuple(curve.tpr_at(fpr) for fpr in FPRS),
    )
