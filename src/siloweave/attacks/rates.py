"""How often an attack succeeds, and what that says: rates, risks and receiver curves.

Every attack reports through these functions, so that an interval means the same everywhere. They
take counts and scores, never tables, and return values with intervals. A score is one number per
row, higher for a row that looks more like a member; *members* are rows that the generator was
fitted to, *others* are rows that it never saw. A confidence lies in (0, 1). Scores that are missing
or NaN, and impossible counts, raise `InputError`.
"""

from math import hypot, inf, nextafter, sqrt

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from siloweave.errors import InputError, number, whole
from siloweave.tables.arrays import Bools, Floats, Ints
from siloweave.tables.keys import Key, generator

FALSE_POSITIVES = (0.001, 0.01)
"""False positive rates at which the share of members found is reported."""


class Rate(msgspec.Struct, frozen=True):
    """A share with its interval.

    Attributes:
        value: The estimate, 0 to 1.
        low: Lower end of the interval.
        high: Upper end.
        successes: What was counted; a fraction where a count was rescaled or is an expectation.
        trials: Out of how many; a fraction where trials depend on each other.
    """

    value: float
    low: float
    high: float
    successes: float
    trials: float

    def holds(self, value: float) -> bool:
        """Whether a value lies in the interval."""
        return self.low <= value <= self.high


class Risk(msgspec.Struct, frozen=True):
    """How much better an attack does on training rows than on rows the generator never saw.

    Attributes:
        value: (train - control) / (1 - control), cut to [0, 1].
        low: Lower end of the interval, cut to [0, 1].
        high: Upper end, cut to [0, 1].
        excess: The same as `value` before it is cut; negative where the control does better.
        train: The rate on training rows.
        control: The rate on control rows.
    """

    value: float
    low: float
    high: float
    excess: float
    train: Rate
    control: Rate


class Operating(msgspec.Struct, frozen=True):
    """One point of a receiver curve.

    Attributes:
        asked: The largest false positive rate that was allowed.
        threshold: Scores above it are called members, and of those equal to it as many as `asked`
            allows; infinite where no row may be called one.
        tpr: Share of members found.
        fpr: Share of others called members, at most `asked`.
        chance: The mean share found by scores that know nothing, at this many false positives.
    """

    asked: float
    threshold: float
    tpr: Rate
    fpr: Rate
    chance: float


class Roc(msgspec.Struct, frozen=True):
    """A receiver curve, from no row called a member to all.

    Attributes:
        fpr: False positive rates, rising from 0 to 1; corners of the curve only.
        tpr: True positive rates at the same points.
        thresholds: Scores at or above are called members; the first is infinite.
        auc: Area under the curve with its interval; 0.5 is chance.
        members: How many scores of members.
        others: How many scores of others.
        confidence: Of every interval.
    """

    fpr: tuple[float, ...]
    tpr: tuple[float, ...]
    thresholds: tuple[float, ...]
    auc: Rate
    members: int
    others: int
    confidence: float

    def tpr_at(self, fpr: float) -> Operating:
        """Return the best point with at most this false positive rate.

        Among rows of equal score some are called members by chance, as many as the rate allows.
        Intervals are Clopper and Pearson's at the threshold found; that the same others set the
        threshold is what `Operating.chance` allows for.
        """
        number("fpr", fpr, 0, 1)
        allowed = nextafter(fpr, 1)
        place = int(np.searchsorted(np.asarray(self.fpr), allowed, side="right")) - 1
        found, called, threshold = self.tpr[place], self.fpr[place], self.thresholds[place]
        if place + 1 < len(self.fpr) and self.tpr[place + 1] > found:  # equal scores on both sides
            part = (fpr - called) / (self.fpr[place + 1] - called)
            found, called = found + part * (self.tpr[place + 1] - found), fpr
            threshold = self.thresholds[place + 1] if part > 0 else threshold
        return Operating(
            fpr,
            threshold,
            clopper_pearson(found * self.members, self.members, self.confidence),
            clopper_pearson(called * self.others, self.others, self.confidence),
            min(1.0, (int(allowed * self.others) + 1) / (self.others + 1)),
        )


class ThresholdRisk(msgspec.Struct, frozen=True):
    """A membership guess with a threshold that was chosen on other rows than it is judged on.

    Attributes:
        risk: 2 * accuracy - 1, negative values as 0.
        low: Lower end of the interval of `risk`.
        high: Upper end.
        threshold: Scores at or above it are called members.
        accuracy: Share of right guesses, as many members as others.
        tpr: Share of the judged members that are found.
        fpr: Share of the judged others that are called members.
        test_sets: How many guesses were judged.
    """

    risk: float
    low: float
    high: float
    threshold: float
    accuracy: Rate
    tpr: Rate
    fpr: Rate
    test_sets: int


class AboveAll(msgspec.Struct, frozen=True):
    """Members that no other row comes near: the worst records, not the mean one.

    Attributes:
        count: Members whose score is above every other's.
        share: Their share of all members.
        p_value: Chance of so many or more if scores were random.
        places: Which members, highest score first.
    """

    count: int
    share: Rate
    p_value: float
    places: tuple[int, ...]


def wilson(successes: float, trials: float, confidence: float = 0.95) -> Rate:
    """Estimate a rate by its Wilson score interval; the value is the interval's centre.

    Written out because `scipy.stats` takes whole numbers of successes only; for those it is the
    same interval.

    Wilson, E.B. (1927), Journal of the American Statistical Association 22(158).
    """
    _check_counts(successes, trials, confidence)
    z = _probit(confidence)
    scale = trials + z * z
    value = (successes + z * z / 2) / scale
    spread = successes * max(0.0, trials - successes) / trials
    error = z / scale * sqrt(spread + z * z / 4)
    return Rate(value, max(0.0, value - error), min(1.0, value + error), successes, trials)


def clopper_pearson(successes: float, trials: float, confidence: float = 0.95) -> Rate:
    """Estimate a rate with its exact interval; the value is the share.

    Clopper, C.J. and Pearson, E.S. (1934), "The use of confidence or fiducial limits illustrated in
    the case of the binomial", Biometrika 26(4). `successes` may be a mean, where chance decides
    between ties.
    """
    from scipy.stats import beta

    _check_counts(successes, trials, confidence)
    tail, failures = (1 - confidence) / 2, trials - successes
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, failures + 1))
    high = 1.0 if failures == 0 else float(beta.ppf(1 - tail, successes + 1, failures))
    return Rate(successes / trials, low, high, successes, trials)


def privacy_risk(
    train: tuple[float, float], control: tuple[float, float], confidence: float = 0.95
) -> Risk:
    """Compare an attack's successes and trials on training rows with those on control rows.

    R = (train - control) / (1 - control) from Wilson's estimates, with their errors propagated to
    first order; where the attack always succeeds on control rows, the interval is [0, 1] or close
    to it. Giomi, M., Boenisch, F., Wehmeyer, C. and Tasnadi, B. (2023), "A unified framework for
    quantifying privacy risk in synthetic data", PoPETs 2023(2).
    """
    hit, missed = wilson(*train, confidence), wilson(*control, confidence)
    room = 1 - missed.value
    excess = (hit.value - missed.value) / room
    error = hypot(
        (hit.high - hit.low) / 2 / room, (missed.high - missed.low) / 2 * (1 - hit.value) / room**2
    )
    return Risk(
        _cut(excess), _cut(excess - error), _cut(excess + error), excess, train=hit, control=missed
    )


def roc(members_scores: ArrayLike, others_scores: ArrayLike, confidence: float = 0.95) -> Roc:
    """Trace how well scores separate members from others.

    The area is the share of pairs in which the member's score is higher, a tie counting half. Its
    interval is that of DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44(3), which is empty
    where the scores separate the groups; there it is method 5 of Newcombe (2006), Statistics in
    Medicine 25(4).
    """
    members, others = _scores(members=members_scores, others=others_scores)
    levels = np.unique(np.concatenate([members, others]))
    hits = len(members) - np.searchsorted(np.sort(members), levels)
    calls = len(others) - np.searchsorted(np.sort(others), levels)
    hits, calls = np.r_[0, hits[::-1]], np.r_[0, calls[::-1]]
    kept = _corners(hits, calls)
    return Roc(
        tuple((calls[kept] / len(others)).tolist()),
        tuple((hits[kept] / len(members)).tolist()),
        tuple(np.r_[np.inf, levels[::-1]][kept].tolist()),
        _area(members, others, confidence),
        len(members),
        len(others),
        confidence,
    )


def best_threshold(members_scores: ArrayLike, others_scores: ArrayLike) -> float:
    """Return the score from which on calling rows members gains most, TPR - FPR.

    It lies halfway between two scores, and is the highest one of equal gain. Scores at or above it
    are called members; it is infinite where it is best to call no row a member.
    """
    members, others = _scores(members=members_scores, others=others_scores)
    levels = np.unique(np.concatenate([members, others]))[::-1]
    gain = np.searchsorted(np.sort(others), levels) / len(others)
    gain = gain - np.searchsorted(np.sort(members), levels) / len(members)
    place = int(np.argmax(gain))
    if gain[place] <= 0:
        return float("inf")
    below = levels[place + 1] if place + 1 < len(levels) else levels[place]
    middle = float(levels[place]) / 2 + float(below) / 2
    return middle if below < middle else float(levels[place])


def threshold_risk(
    members_scores: ArrayLike, others_scores: ArrayLike, *, key: Key, confidence: float = 0.95
) -> ThresholdRisk:
    """Guess membership with a threshold from one half of the scores, and judge the other half.

    The threshold maximises TPR - FPR, as TAPAS does on its training sets (Houssiau et al. 2022,
    "TAPAS: a toolbox for adversarial privacy auditing of synthetic data"). As many members as
    others are used, two or more of each, so that guessing blindly is right half of the time.
    Compare the risk with `noise_attacker` at its `test_sets`.
    """
    members, others = _scores(members=members_scores, others=others_scores)
    size = min(len(members), len(others))
    if size < 2:
        raise InputError(f"a threshold needs two scores on each side; there are {size}")
    rng = generator(key)
    members, others = rng.permutation(members)[:size], rng.permutation(others)[:size]
    half = size // 2
    threshold = best_threshold(members[:half], others[:half])
    hits, calls = members[half:] >= threshold, others[half:] >= threshold
    judged = size - half
    right = int(hits.sum()) + judged - int(calls.sum())
    accuracy = clopper_pearson(right, 2 * judged, confidence)
    return ThresholdRisk(
        _cut(2 * accuracy.value - 1),
        _cut(2 * accuracy.low - 1),
        _cut(2 * accuracy.high - 1),
        threshold,
        accuracy,
        clopper_pearson(int(hits.sum()), judged, confidence),
        clopper_pearson(int(calls.sum()), judged, confidence),
        2 * judged,
    )


def noise_attacker(test_sets: int, attacks: int = 1) -> float:
    """Return the risk that the best of some attackers who toss coins reports on average.

    The exact mean of max(0, 2 * accuracy - 1), where each accuracy is that of `test_sets` fair
    coins and `attacks` of them are independent. Attacks on the same rows depend on each other, so
    their own noise is at most about this.
    """
    from scipy.special import bdtr

    whole("test_sets", test_sets, 1)
    whole("attacks", attacks, 1)
    right = np.arange(test_sets + 1)
    below = bdtr(right, test_sets, 0.5) ** attacks
    chance = np.diff(np.r_[0.0, below])
    return float((chance * np.maximum(0.0, 2 * right / test_sets - 1)).sum())


def above_all(
    members_scores: ArrayLike, others_scores: ArrayLike, confidence: float = 0.95
) -> AboveAll:
    """Count the members whose score is above every other's.

    If scores were random, every order of all scores would be equally likely, and the k highest
    would all be members with chance C(m, k) / C(m + n, k). Ties with the highest other do not
    count, which can only raise the chance that is given.
    """
    members, others = _scores(members=members_scores, others=others_scores)
    places = np.flatnonzero(members > others.max())
    places = places[np.argsort(-members[places], kind="stable")]
    taken = np.arange(len(places))
    chance = np.log(len(members) - taken) - np.log(len(members) + len(others) - taken)
    return AboveAll(
        len(places),
        clopper_pearson(len(places), len(members), confidence),
        float(np.exp(chance.sum())),
        tuple(places.tolist()),
    )


def _area(members: Floats, others: Floats, confidence: float) -> Rate:
    """Area under the curve, from the share of others that each member beats and back."""
    m, n = len(members), len(others)
    beats = _beaten(members, others) / n
    beaten = 1 - _beaten(others, members) / m
    value = float(beats.mean())
    variance = sum(s.var(ddof=1) / len(s) for s in (beats, beaten) if len(s) > 1)
    if variance > 0:
        error = _probit(confidence) * sqrt(variance)
        low, high = _cut(value - error), _cut(value + error)
    else:
        low, high = _newcombe(value, m, n, confidence)
    return Rate(value, low, high, value * m * n, m * n)


def _newcombe(value: float, m: int, n: int, confidence: float) -> tuple[float, float]:
    """Interval of an area that stays open at 0 and 1: areas from which `value` is z errors off."""
    z, half = _probit(confidence), (m + n) / 2 - 1
    areas = np.linspace(0, 1, 20_001)
    spread = areas * (1 - areas) / (m * n)
    spread = spread * (1 + half * ((1 - areas) / (2 - areas) + areas / (1 + areas)))
    inside = areas[np.abs(areas - value) <= z * np.sqrt(spread)]
    return float(min(inside, default=value)), float(max(inside, default=value))


def _beaten(ours: Floats, theirs: Floats) -> Floats:
    """For each of our scores, how many of theirs it beats, ties counting half."""
    ordered = np.sort(theirs)
    return (np.searchsorted(ordered, ours) + np.searchsorted(ordered, ours, side="right")) / 2


def _corners(hits: Ints, calls: Ints) -> Bools:
    """Which points of a curve are not on the line between their neighbours."""
    kept = np.ones(len(hits), bool)
    up, right = np.diff(hits), np.diff(calls)
    kept[1:-1] = up[:-1] * right[1:] != up[1:] * right[:-1]
    return kept


def _scores(**sides: ArrayLike) -> list[Floats]:
    found = {side: np.asarray(values, dtype=np.float64).ravel() for side, values in sides.items()}
    for side, scores in found.items():
        if len(scores) == 0:
            raise InputError(f"there are no scores of {side}; give one or more")
        if gaps := int(np.isnan(scores).sum()):
            raise InputError(f"{gaps} scores of {side} are NaN; replace them")
    return list(found.values())


def _check_counts(successes: float, trials: float, confidence: float) -> None:
    number("trials", trials, 0, inf, "()")
    number("successes", successes, 0, trials)
    number("confidence", confidence, 0, 1, "()")


def _probit(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))


def _cut(value: float) -> float:
    return min(1.0, max(0.0, value))
