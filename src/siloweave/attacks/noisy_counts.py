"""What noisy counts show to those who see them: a curious coordinator, or a party that colludes.

A coordinator of a study with graphical models sees cliques, noisy counts and their noise. The
adversary here also knows every other row of the study. With a record in hand it asks of every
count how much likelier it is with the record than without (Neyman and Pearson 1933). The score of a
record is normal with mean -mu^2/2 without it and +mu^2/2 with it, where mu^2 is the sum of the
squared steps that the record makes over the squared noise: no attack on these counts does better,
and mu is at most sqrt(2 rho) for an accounted rho (Dong, Roth and Su, *Gaussian differential
privacy*, JRSS B 2022; Bun and Steinke, *Concentrated differential privacy*, TCC 2016).

Choices made by an exponential mechanism are not scored; they leak a further share of rho.
"""

from collections.abc import Iterable, Sequence
from math import sqrt

import msgspec
import numpy as np

from siloweave.attacks.rates import (
    FALSE_POSITIVES,
    Operating,
    Rate,
    Roc,
    best_threshold,
    clopper_pearson,
    roc,
)
from siloweave.errors import InputError
from siloweave.models.estimate import Measurement
from siloweave.statistics.marginals import marginal
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Codes


class NoisyCountsRisk(msgspec.Struct, frozen=True):
    """The success of membership guesses from noisy counts, beside the most that the ledger allows.

    Attributes:
        risk: TPR - FPR at the threshold, which equals 2 * accuracy - 1 for even odds; negative
            values as 0.
        low: Lower end of the interval of `raw`.
        high: Upper end.
        raw: The same as `risk`, negative values kept.
        allowed: Most that any attack may reach under the accounted rho: 2 Phi(mu / 2) - 1.
        tpr: Share of members found at the threshold.
        fpr: Share of others called members.
        threshold: Chosen on every other score, which is then not judged.
        curve: Receiver curve of all scores judged.
        at: Best points at FPR 0.1% and 1%.
        at_allowed: TPR that the accounted rho allows at the same FPRs.
        mu_allowed: sqrt(2 rho).
        confidence: Of every interval.
    """

    risk: float
    low: float
    high: float
    raw: float
    allowed: float
    tpr: Rate
    fpr: Rate
    threshold: float
    curve: Roc
    at: tuple[Operating, ...]
    at_allowed: tuple[float, ...]
    mu_allowed: float
    confidence: float


def best_risk(mu: float) -> float:
    """Return the largest TPR - FPR against two unit normals that are `mu` apart."""
    from scipy.special import ndtr

    return float(2 * ndtr(mu / 2) - 1)


def membership_scores(
    measurements: Iterable[Measurement],
    records: Codes,
    known: Codes,
    *,
    suspects: Codes | None = None,
    prior: float = 0.5,
) -> tuple[Floats, Floats]:
    """Return each record's log-likelihood ratio of being counted against not, and its mu^2.

    `known` are all rows of the study but those that are attacked. `suspects` are all records whose
    membership the adversary does not know, these included; each of the others is expected to be
    there with chance `prior`. Leave them out where one record is attacked at a time.
    """
    scores = np.zeros(records.num_rows)
    squares = np.zeros(records.num_rows)
    for measurement in measurements:
        clique = measurement.clique
        sigma = measurement.sigma
        if not sigma > 0:
            raise InputError(
                f"the measurement of {', '.join(clique)} has sigma={sigma}; counts without "
                "noise give everything away, and no attack is needed"
            )

        # What the adversary expects of every cell, and how far it may be off beside the noise.
        expected = marginal(known, clique).astype(np.float64)
        variance = np.zeros_like(expected)
        prior_of_record = 0.0
        if suspects is not None:
            suspect_counts = marginal(suspects, clique)
            expected = expected + prior * suspect_counts
            variance = variance + prior * (1 - prior) * suspect_counts
            prior_of_record = prior

        # A record is one of the suspects, so its own part is taken out of its cell again.
        cells = records.flat(clique)
        excess = (np.asarray(measurement.counts, dtype=np.float64) - expected).reshape(
            -1
        )
        total_variance = (sigma**2 + variance).reshape(-1)
        excess_of_cell = excess[cells] + prior_of_record
        variance_of_cell = total_variance[cells] - prior_of_record * (
            1 - prior_of_record
        )

        # With the record the mean is 1 higher: the ratio of two normals is (x - 1/2) / sigma^2.
        weight = 1 / variance_of_cell
        scores += weight * (excess_of_cell - 0.5)
        squares += weight
    return scores, squares


def transcript_attack(
    measurements: Sequence[Measurement],
    members: Codes,
    others: Codes,
    known: Codes,
    *,
    rho: float,
) -> NoisyCountsRisk:
    """Attack one run as it happened: many records, one draw of the noise.

    One adversary suspects all these records alike, so what it does not know of the others counts
    as noise. Records of a cell meet the same noise, so intervals are a little too narrow, and one
    draw is no test of the noise. Takes four records or more that were in the study and as many that
    were not; `known` are the study's rows without `members`, and `rho` is the zCDP that the ledger
    says a row paid.
    """
    if not measurements:
        raise InputError("there are no measurements; give those of a run's transcript")
    suspects = Codes.concat([members, others])
    prior = members.num_rows / max(1, suspects.num_rows)
    inside, _ = membership_scores(
        measurements, members, known, suspects=suspects, prior=prior
    )
    outside, _ = membership_scores(
        measurements, others, known, suspects=suspects, prior=prior
    )
    if min(len(inside), len(outside)) < 4:
        raise InputError(
            f"{len(inside)} members, {len(outside)} others: give at least 4 of each"
        )

    # Every other score sets the threshold; the rest are judged by it.
    threshold = best_threshold(inside[::2], outside[::2])
    return judged(inside[1::2], outside[1::2], threshold, rho=rho)


def judged(
    inside: Floats,
    outside: Floats,
    threshold: float,
    *,
    rho: float,
    confidence: float = 0.95,
) -> NoisyCountsRisk:
    """Judge scores of members and others, and one threshold for both, beside what rho allows."""
    from scipy.special import ndtr, ndtri

    if not rho > 0:
        raise InputError(
            f"rho={rho} must be greater than 0: what the ledger says a row paid"
        )
    mu = sqrt(2 * rho)
    curve = roc(inside, outside, confidence)
    num_inside = int((inside >= threshold).sum())
    num_outside = int((outside >= threshold).sum())
    tpr = clopper_pearson(num_inside, len(inside), confidence)
    fpr = clopper_pearson(num_outside, len(outside), confidence)
    raw = tpr.value - fpr.value

    # Newcombe (1998), "Interval estimation for the difference between independent proportions",
    # Statistics in Medicine 17(8), method 10, from the rates' own intervals.
    down = float(np.hypot(tpr.value - tpr.low, fpr.high - fpr.value))
    up = float(np.hypot(tpr.high - tpr.value, fpr.value - fpr.low))

    # The curve of two unit normals that are mu apart: TPR = Phi(Phi^-1(FPR) + mu).
    at_allowed = tuple(float(ndtr(ndtri(rate) + mu)) for rate in FALSE_POSITIVES)
    return NoisyCountsRisk(
        risk=max(0.0, raw),
        low=raw - down,
        high=raw + up,
        raw=raw,
        allowed=best_risk(mu),
        tpr=tpr,
        fpr=fpr,
        threshold=threshold,
        curve=curve,
        at=tuple(curve.tpr_at(rate) for rate in FALSE_POSITIVES),
        at_allowed=at_allowed,
        mu_allowed=mu,
        confidence=confidence,
    )
