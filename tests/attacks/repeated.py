"""One record attacked in many runs of a mechanism: whether less noise is drawn than accounted."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from siloweave.attacks.noisy_counts import NoisyCountsRisk, judged, membership_scores
from siloweave.models.estimate import Measurement
from siloweave.tables import Codes
from siloweave.tables.keys import fold_in

Measure = Callable[[Codes, np.random.SeedSequence], Sequence[Measurement]]
"""A mechanism: what it lets the adversary see of some rows, drawn anew for every key."""


class Repeated(NamedTuple):
    """What the attack found; `mu_exact` is what the noise that was stated allows.

    `mu_low` is a lower bound of mu: the probit of the least TPR minus that of the greatest FPR. The
    two ends of Clopper and Pearson's intervals fail with half of their error each, so it holds with
    the intervals' confidence. Nasr et al., *Tight auditing of differentially private machine
    learning*, USENIX Security 2023, section 4.
    """

    risk: NoisyCountsRisk
    mu_exact: float

    @property
    def mu_low(self):
        tpr, fpr = self.risk.tpr, self.risk.fpr
        if tpr.low <= 0 or fpr.high >= 1:
            return 0.0
        return max(0.0, float(ndtri(tpr.low) - ndtri(fpr.high)))

    @property
    def exceeded(self):
        return self.mu_low > self.risk.mu_allowed


def repeated_attack(measure: Measure, known: Codes, target: Codes, *, rho, key, draws=1000):
    """Attack one record in many runs, half of them with it, by a threshold at even odds."""
    worlds = {"with": Codes.concat([known, target]), "without": known}
    scores, squares = {}, np.zeros(1)
    for world, rows in worlds.items():
        found = []
        for i in range(draws):
            seen = measure(rows, fold_in(fold_in(key, world, i), "noise"))
            score, squares = membership_scores(seen, target, known)
            found.append(score)
        scores[world] = np.concatenate(found)
    risk = judged(scores["with"], scores["without"], 0.0, rho=rho)
    return Repeated(risk, float(np.sqrt(squares).mean()))
