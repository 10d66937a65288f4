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
        """Return whether a value lies in the interval."""
        return self.low <= value <= self.high


class Risk(msgspec.Struct, frozen=True):
    """The gain of an attack on training rows over rows that the generator never saw.

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
    """One point of a receiver operating curve.

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
    """A receiver operating curve, from no row called a member to all rows.

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
        """Return the point of the highest true positive rate with at most this false positive rate.

        Among rows of equal score some are called members by chance, as many as the rate allows.
        Intervals are Clopper and Pearson's at the threshold found; that the same others set the
        threshold is what `Operating.chance` allows for.
        """
        number("fpr", fpr, 0, 1)
        # One float above: a rate of 3/1000 is not always the float 0.003.
        allowed = nextafter(fpr, 1)
        corner = int(np.searchsorted(np.asarray(self.fpr), allowed, side="right")) - 1
        reached_tpr = self.tpr[corner]
        reached_fpr = self.fpr[corner]
        threshold = self.thresholds[corner]

        # On a slope between two corners lie rows of equal score: take as many as fit.
        following = corner + 1
        if following < len(self.fpr) and self.tpr[following] > reached_tpr:
            part = (fpr - reached_fpr) / (self.fpr[following] - reached_fpr)
            reached_tpr += part * (self.tpr[following] - reached_tpr)
            reached_fpr = fpr
            if part > 0:
                threshold = self.thresholds[following]

        # Of random scores, so many others above the threshold leave this share of members above it.
        allowed_others = int(allowed * self.others)
        chance = min(1.0, (allowed_others + 1) / (self.others + 1))
        return Operating(
            asked=fpr,
            threshold=threshold,
            tpr=clopper_pearson(
                reached_tpr * self.members, self.members, self.confidence
            ),
            fpr=clopper_pearson(
                reached_fpr * self.others, self.others, self.confidence
            ),
            chance=chance,
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
    """The members whose scores no other row reaches: the worst records, not the average one.

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
    centre = (successes + z * z / 2) / scale
    # trials * p * (1 - p) for the share p.
    spread = successes * max(0.0, trials - successes) / trials
    half_width = z / scale * sqrt(spread + z * z / 4)
    low = max(0.0, centre - half_width)
    high = min(1.0, centre + half_width)
    return Rate(centre, low, high, successes, trials)


def clopper_pearson(successes: float, trials: float, confidence: float = 0.95) -> Rate:
    """Estimate a rate with its exact interval; the value is the share.

    Clopper, C.J. and Pearson, E.S. (1934), "The use of confidence or fiducial limits illustrated in
    the case of the binomial", Biometrika 26(4). `successes` may be a mean, where chance decides
    between ties.
    """
    from scipy.stats import beta

    _check_counts(successes, trials, confidence)
    tail = (1 - confidence) / 2
    failures = trials - successes
    # Without successes or failures the beta distribution has no such quantile; the end is 0 or 1.
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
    train_rate = wilson(*train, confidence)
    control_rate = wilson(*control, confidence)
    room = 1 - control_rate.value
    excess = (train_rate.value - control_rate.value) / room

    # |dR/dtrain| = 1 / (1 - control) and |dR/dcontrol| = (1 - train) / (1 - control)^2.
    train_error = (train_rate.high - train_rate.low) / 2 / room
    control_error = (
        (control_rate.high - control_rate.low) / 2 * (1 - train_rate.value) / room**2
    )
    error = hypot(train_error, control_error)
    return Risk(
        value=_cut(excess),
        low=_cut(excess - error),
        high=_cut(excess + error),
        excess=excess,
        train=train_rate,
        control=control_rate,
    )


def roc(
    members_scores: ArrayLike, others_scores: ArrayLike, confidence: float = 0.95
) -> Roc:
    """Trace how well scores separate members from others.

    The area is the share of pairs in which the member's score is higher, a tie counting half. Its
    interval is that of DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44(3), which is empty
    where the scores separate the groups; there it is method 5 of Newcombe (2006), Statistics in
    Medicine 25(4).
    """
    members, others = _scores(members=members_scores, others=others_scores)

    # At each threshold, the highest first, how many scores of either side are at or above it.
    levels = np.unique(np.concatenate([members, others]))
    member_counts = len(members) - np.searchsorted(np.sort(members), levels)
    other_counts = len(others) - np.searchsorted(np.sort(others), levels)
    hits = np.r_[0, member_counts[::-1]]
    calls = np.r_[0, other_counts[::-1]]
    thresholds = np.r_[np.inf, levels[::-1]]

    is_corner = _corners(hits, calls)
    return Roc(
        fpr=tuple((calls[is_corner] / len(others)).tolist()),
        tpr=tuple((hits[is_corner] / len(members)).tolist()),
        thresholds=tuple(thresholds[is_corner].tolist()),
        auc=_area(members, others, confidence),
        members=len(members),
        others=len(others),
        confidence=confidence,
    )


def best_threshold(members_scores: ArrayLike, others_scores: ArrayLike) -> float:
    """Return the threshold between members and others with the largest gain, TPR - FPR.

    It lies halfway between two scores, and is the highest one of equal gain. Scores at or above it
    are called members; it is infinite where it is best to call no row a member.
    """
    members, others = _scores(members=members_scores, others=others_scores)
    levels = np.unique(np.concatenate([members, others]))[::-1]
    # TPR - FPR from the shares below each level: (1 - FPR) - (1 - TPR).
    others_below = np.searchsorted(np.sort(others), levels) / len(others)
    members_below = np.searchsorted(np.sort(members), levels) / len(members)
    gain = others_below - members_below
    best = int(np.argmax(gain))
    if gain[best] <= 0:
        return float("inf")

    # Halfway to the next lower score; halves, because a sum of two may overflow.
    score = float(levels[best])
    next_lower = float(levels[best + 1]) if best + 1 < len(levels) else score
    middle = score / 2 + next_lower / 2
    # Between two neighbouring floats there is no middle.
    return middle if next_lower < middle else score


def threshold_risk(
    members_scores: ArrayLike,
    others_scores: ArrayLike,
    *,
    key: Key,
    confidence: float = 0.95,
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

    # Learn the threshold on one half.
    rng = generator(key)
    members = rng.permutation(members)[:size]
    others = rng.permutation(others)[:size]
    half = size // 2
    threshold = best_threshold(members[:half], others[:half])

    # Judge it on the other.
    num_judged = size - half
    num_hits = int((members[half:] >= threshold).sum())
    num_calls = int((others[half:] >= threshold).sum())
    num_right = num_hits + num_judged - num_calls
    accuracy = clopper_pearson(num_right, 2 * num_judged, confidence)
    return ThresholdRisk(
        risk=_cut(2 * accuracy.value - 1),
        low=_cut(2 * accuracy.low - 1),
        high=_cut(2 * accuracy.high - 1),
        threshold=threshold,
        accuracy=accuracy,
        tpr=clopper_pearson(num_hits, num_judged, confidence),
        fpr=clopper_pearson(num_calls, num_judged, confidence),
        test_sets=2 * num_judged,
    )


def noise_attacker(test_sets: int, attacks: int = 1) -> float:
    """Return the mean risk that is reported for the best of several attackers who toss coins.

    The exact mean of max(0, 2 * accuracy - 1), where each accuracy is that of `test_sets` fair
    coins and `attacks` of them are independent. Attacks on the same rows depend on each other, so
    their own noise is at most about this.
    """
    from scipy.special import bdtr

    whole("test_sets", test_sets, 1)
    whole("attacks", attacks, 1)
    num_right = np.arange(test_sets + 1)
    # The best of several is at most k where each of them is.
    distribution = bdtr(num_right, test_sets, 0.5) ** attacks
    probability = np.diff(np.r_[0.0, distribution])
    risk = np.maximum(0.0, 2 * num_right / test_sets - 1)
    return float((probability * risk).sum())


def above_all(
    members_scores: ArrayLike, others_scores: ArrayLike, confidence: float = 0.95
) -> AboveAll:
    """Count the members whose score is above every other's.

    If scores were random, every order of all scores would be equally likely, and the k highest
    would all be members with chance C(m, k) / C(m + n, k). Ties with the highest other do not
    count, which can only raise the chance that is given.
    """
    members, others = _scores(members=members_scores, others=others_scores)
    m = len(members)
    n = len(others)
    places = np.flatnonzero(members > others.max())
    places = places[np.argsort(-members[places], kind="stable")]

    # The binomials' ratio as a product of (m - i) / (m + n - i), in logarithms.
    i = np.arange(len(places))
    log_factors = np.log(m - i) - np.log(m + n - i)
    return AboveAll(
        count=len(places),
        share=clopper_pearson(len(places), m, confidence),
        p_value=float(np.exp(log_factors.sum())),
        places=tuple(places.tolist()),
    )


def _area(members: Floats, others: Floats, confidence: float) -> Rate:
    """Estimate the area under the curve, from the share of others that each member beats."""
    m = len(members)
    n = len(others)
    # DeLong's structural components of either side; their mean is the area.
    member_shares = _beaten(members, others) / n
    other_shares = 1 - _beaten(others, members) / m
    area = float(member_shares.mean())

    variance = 0.0
    for shares in (member_shares, other_shares):
        if len(shares) > 1:
            variance += shares.var(ddof=1) / len(shares)
    if variance > 0:
        half_width = _probit(confidence) * sqrt(variance)
        low = _cut(area - half_width)
        high = _cut(area + half_width)
    else:
        low, high = _newcombe(area, m, n, confidence)
    return Rate(area, low, high, area * m * n, m * n)


def _newcombe(area: float, m: int, n: int, confidence: float) -> tuple[float, float]:
    """Return an interval of areas from which `area` is z standard errors off, open at 0 and 1."""
    z = _probit(confidence)
    candidates = np.linspace(0, 1, 20_001)
    # Hanley and McNeil's variance of each area, with both sizes as their mean.
    half = (m + n) / 2 - 1
    variances = candidates * (1 - candidates) / (m * n)
    variances = variances * (
        1 + half * ((1 - candidates) / (2 - candidates) + candidates / (1 + candidates))
    )
    is_inside = np.abs(candidates - area) <= z * np.sqrt(variances)
    inside = candidates[is_inside]
    return float(min(inside, default=area)), float(max(inside, default=area))


def _beaten(scores: Floats, opponents: Floats) -> Floats:
    """Count, for each score, the opponents' scores below it; a tie counts half."""
    ordered = np.sort(opponents)
    num_below = np.searchsorted(ordered, scores)
    num_up_to = np.searchsorted(ordered, scores, side="right")
    return (num_below + num_up_to) / 2


def _corners(hits: Ints, calls: Ints) -> Bools:
    """Return which points of a curve are not on the line between their neighbours."""
    is_corner = np.ones(len(hits), bool)
    up = np.diff(hits)
    right = np.diff(calls)
    # Slopes before and after a point, compared by products of whole numbers.
    is_corner[1:-1] = up[:-1] * right[1:] != up[1:] * right[:-1]
    return is_corner


def _scores(**sides: ArrayLike) -> list[Floats]:
    """Return each side's scores as an array; refuse an empty side, and NaN, which has no order."""
    checked = []
    for side, values in sides.items():
        scores = np.asarray(values, dtype=np.float64).ravel()
        if len(scores) == 0:
            raise InputError(f"there are no scores of {side}; give one or more")
        num_nan = int(np.isnan(scores).sum())
        if num_nan:
            raise InputError(f"{num_nan} scores of {side} are NaN; replace them")
        checked.append(scores)
    return checked


def _check_counts(successes: float, trials: float, confidence: float) -> None:
    """Refuse counts of successes and trials that no attack can have."""
    number("trials", trials, 0, inf, "()")
    number("successes", successes, 0, trials)
    number("confidence", confidence, 0, 1, "()")


def _probit(confidence: float) -> float:
    """Return how many standard errors an interval reaches to either side."""
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))


def _cut(value: float) -> float:
    """Clip a number to the range from 0 to 1."""
    return min(1.0, max(0.0, value))
