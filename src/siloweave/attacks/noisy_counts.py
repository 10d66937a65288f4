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

from collections.abc import Callable, Iterable, Sequence
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
from siloweave.tables.keys import Key, fold_in

Measure = Callable[[Codes, np.random.SeedSequence], Sequence[Measurement]]
"""A mechanism: what it lets the adversary see of some rows, drawn anew for every key."""


class NoisyCountsRisk(msgspec.Struct, frozen=True):
    """What membership guesses from noisy counts are worth, beside what the ledger allows.

    Attributes:
        risk: TPR - FPR at the threshold, which equals 2 * accuracy - 1 for even odds; negative
            values as 0.
        low: Lower end of the interval of `raw`.
        high: Upper end.
        raw: The same as `risk`, negative values kept.
        allowed: Most that any attack may reach under the accounted rho: 2 Phi(mu / 2) - 1.
        tpr: Share of members found at the threshold.
        fpr: Share of others called members.
        threshold: Fixed at 0, even odds, for repeated runs; for one transcript chosen on every
            other score, which is then not judged.
        curve: Receiver curve of all scores judged.
        at: Best points at FPR 0.1% and 1%.
        at_allowed: TPR that the accounted rho allows at the same FPRs.
        mu_low: Lower bound of mu from the threshold's errors: no mechanism with a smaller mu makes
            as few, at the given confidence. None for one transcript, which is one draw.
        mu_allowed: sqrt(2 rho).
        mu_exact: What the noise that was stated allows, on average over the records; None for one
            transcript.
        exceeded: Whether `mu_low` is above `mu_allowed`: less noise was drawn than accounted. None
            for one transcript.
        confidence: Of every interval and bound.
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
    mu_low: float | None
    mu_allowed: float
    mu_exact: float | None
    exceeded: bool | None
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
    instead: Codes | None = None,
) -> tuple[Floats, Floats]:
    """Log-likelihood ratio of each record being counted against not, and the mu^2 of each record.

    `known` are all rows of the study but those that are attacked. `suspects` are all records whose
    membership the adversary does not know, these included; each of the others is expected to be
    there with chance `prior`. Leave them out where one record is attacked at a time. Under
    replace-one, the row `instead` stands in a record's place if it is not there.
    """
    scores, squares = np.zeros(records.num_rows), np.zeros(records.num_rows)
    for one in measurements:
        if not one.sigma > 0:
            raise InputError(
                f"the measurement of {', '.join(one.clique)} has sigma={one.sigma}; counts without "
                "noise give everything away, and no attack is needed"
            )
        expected = marginal(known, one.clique).astype(np.float64)
        variance = np.zeros_like(expected)
        if suspects is not None:
            unsure = marginal(suspects, one.clique)
            expected = expected + prior * unsure
            variance = variance + prior * (1 - prior) * unsure
        off = (np.asarray(one.counts, dtype=np.float64) - expected).reshape(-1)
        spread, cells = (one.sigma**2 + variance).reshape(-1), records.flat(one.clique)
        own = 0.0 if suspects is None else 1.0
        weight = 1 / (spread[cells] - own * prior * (1 - prior))
        score, square = weight * (off[cells] + own * prior - 0.5), weight
        if instead is not None:
            other = np.broadcast_to(instead.flat(one.clique), cells.shape)
            moved = cells != other
            score = moved * (score - (off[other] - 0.5) / spread[other])
            square = moved * (square + 1 / spread[other])
        scores += score
        squares += square
    return scores, squares


def transcript_attack(
    measurements: Sequence[Measurement],
    members: Codes,
    others: Codes,
    known: Codes,
    *,
    rho: float,
    confidence: float = 0.95,
) -> NoisyCountsRisk:
    """Attack one run as it happened: many records, one draw of the noise.

    One adversary suspects all these records alike, so what it does not know of the others counts
    as noise. Records of a cell meet the same noise, so intervals are a little too narrow, and one
    draw is no test of the noise: `repeated_attack` is. Takes four records or more that were in the
    study and as many that were not; `known` are the study's rows without `members`, and `rho` is
    the zCDP that the ledger says a row paid.
    """
    if not measurements:
        raise InputError("there are no measurements; give those of a run's transcript")
    suspects = Codes.concat([members, others])
    prior = members.num_rows / max(1, suspects.num_rows)
    inside, outside = (
        membership_scores(measurements, records, known, suspects=suspects, prior=prior)[0]
        for records in (members, others)
    )
    return _judged(inside, outside, rho, confidence)


def repeated_attack(
    measure: Measure,
    known: Codes,
    target: Codes,
    *,
    rho: float,
    key: Key,
    draws: int = 1000,
    instead: Codes | None = None,
    confidence: float = 0.95,
) -> NoisyCountsRisk:
    """Attack one record in many runs of a mechanism, half of them with the record.

    A mechanism that adds less noise than accounted is `exceeded`, given enough draws: at least 4
    with the record, and as many without. `known` are all other rows, and `rho` is the zCDP that a
    run is accounted for. Under replace-one, `instead` is the row in the record's place.
    """
    if draws < 4:
        raise InputError(f"draws={draws} must be at least 4")
    if target.num_rows != 1:
        raise InputError(f"target has {target.num_rows} rows; attack one record at a time")
    scores: dict[str, list[Floats]] = {"with": [], "without": []}
    squares = np.zeros(1)
    for world, found in scores.items():
        added = target if world == "with" else instead
        rows = known if added is None else Codes.concat([known, added])
        for i in range(draws):
            seen = measure(rows, fold_in(fold_in(key, world, i), "noise"))
            score, squares = membership_scores(seen, target, known, instead=instead)
            found.append(score)
    inside, outside = (np.concatenate(scores[world]) for world in ("with", "without"))
    return _judged(inside, outside, rho, confidence, float(np.sqrt(squares).mean()))


def _judged(
    inside: Floats, outside: Floats, rho: float, confidence: float, mu_exact: float | None = None
) -> NoisyCountsRisk:
    """Compare scores of members and others with what rho allows; `mu_exact` for repeated runs."""
    from scipy.special import ndtr, ndtri

    if not rho > 0:
        raise InputError(f"rho={rho} must be greater than 0: what the ledger says a row paid")
    if min(len(inside), len(outside)) < 4:
        raise InputError(f"{len(inside)} members, {len(outside)} others: give at least 4 of each")
    threshold, repeated = 0.0, mu_exact is not None
    if not repeated:
        threshold = best_threshold(inside[::2], outside[::2])
        inside, outside = inside[1::2], outside[1::2]
    mu = sqrt(2 * rho)
    curve = roc(inside, outside, confidence)
    tpr = clopper_pearson(int((inside >= threshold).sum()), len(inside), confidence)
    fpr = clopper_pearson(int((outside >= threshold).sum()), len(outside), confidence)
    raw = tpr.value - fpr.value
    # Newcombe (1998), "Interval estimation for the difference between independent proportions",
    # Statistics in Medicine 17(8), method 10, from the rates' own intervals.
    down = float(np.hypot(tpr.value - tpr.low, fpr.high - fpr.value))
    up = float(np.hypot(tpr.high - tpr.value, fpr.value - fpr.low))
    mu_low = _mu_low(tpr, fpr) if repeated else None
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
        at_allowed=tuple(float(ndtr(ndtri(rate) + mu)) for rate in FALSE_POSITIVES),
        mu_low=mu_low,
        mu_allowed=mu,
        mu_exact=mu_exact,
        exceeded=None if mu_low is None else mu_low > mu,
        confidence=confidence,
    )


def _mu_low(tpr: Rate, fpr: Rate) -> float:
    """Probit of the least TPR minus that of the greatest FPR, 0 if negative.

    The two ends of Clopper and Pearson's intervals fail with half of their error each, so the
    bound holds with the intervals' confidence. Nasr et al., *Tight auditing of differentially
    private machine learning*, USENIX Security 2023, section 4.
    """
    from scipy.special import ndtri

    if tpr.low <= 0 or fpr.high >= 1:
        return 0.0
    return max(0.0, float(ndtri(tpr.low) - ndtri(fpr.high)))
