"""Rates, risks and curves against independent computations."""

import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from siloweave.attacks import rates
from siloweave.errors import InputError


@pytest.mark.parametrize(
    ("successes", "trials"),
    [(0, 1), (1, 1), (0, 7), (3, 7), (7, 7), (499, 1000), (1, 100_000), (100_000, 100_000)],
)
def test_wilson_and_clopper_pearson_are_those_of_scipy(successes, trials):
    for name, ours in (("wilson", rates.wilson), ("exact", rates.clopper_pearson)):
        for confidence in (0.5, 0.9, 0.95, 0.99, 1 - 1e-6):
            theirs = stats.binomtest(successes, trials).proportion_ci(confidence, method=name)
            found = ours(successes, trials, confidence)
            assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
            assert found.low <= found.value <= found.high
            assert (found.successes, found.trials) == (successes, trials)


def test_wilson_takes_rescaled_counts():
    low, middle, high = (rates.wilson(x, 100).value for x in (10, 10.5, 11))
    assert low < middle < high


@pytest.mark.parametrize("bad", [(-1, 5, 0.95), (6, 5, 0.95), (1, 0, 0.95), (1, 5, 1.0)])
@pytest.mark.parametrize("rate", [rates.wilson, rates.clopper_pearson])
def test_impossible_counts_are_refused(rate, bad):
    with pytest.raises(InputError, match="must be"):
        rate(*bad)


def test_privacy_risk_propagates_both_errors():
    """Monte Carlo of the ratio of two noisy rates has the spread that the interval states."""
    risk = rates.privacy_risk((700, 1000), (300, 1000))
    rng = np.random.default_rng(0)
    train, control = (rng.binomial(1000, p, 200_000) / 1000 for p in (0.7, 0.3))
    spread = np.quantile((train - control) / (1 - control), [0.025, 0.975])
    assert (risk.low, risk.high) == pytest.approx(tuple(spread), abs=0.003)
    assert risk.value == pytest.approx(4 / 7, abs=0.002)
    assert risk.value == risk.excess


def test_privacy_risk_is_cut_but_its_excess_is_not():
    risk = rates.privacy_risk((100, 1000), (300, 1000))
    assert (risk.value, risk.low, risk.high) == (0, 0, 0)
    assert risk.excess < -0.2


def test_privacy_risk_covers_zero_as_often_as_it_says():
    rng = np.random.default_rng(1)
    excluded = [
        rates.privacy_risk((a, 500), (b, 500)).low > 0 for a, b in rng.binomial(500, 0.3, (2000, 2))
    ]
    assert 0.01 < np.mean(excluded) < 0.04  # one side of 95%


def scored(seed, shift=0.7, ties=False):
    rng = np.random.default_rng(seed)
    members, others = rng.normal(shift, 1, 150), rng.normal(0, 1, 220)
    return (members.round(1), others.round(1)) if ties else (members, others)


@pytest.mark.parametrize("ties", [False, True])
def test_curve_is_that_of_scikit_learn(ties):
    members, others = scored(0, ties=ties)
    curve = rates.roc(members, others)
    labels = np.r_[np.ones(len(members)), np.zeros(len(others))]
    scores = np.r_[members, others]
    assert curve.auc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    fpr, tpr, thresholds = roc_curve(labels, scores, drop_intermediate=False)
    for asked in (0.0, 0.001, 0.01, 0.1, 0.5, 1.0):
        best = np.flatnonzero(fpr <= asked)[-1]
        found = curve.tpr_at(asked)
        assert found.fpr.value <= asked
        sure, tied = (f(members, found.threshold).mean() for f in (np.greater, np.equal))
        assert sure - 1e-9 <= found.tpr.value <= sure + tied + 1e-9
        if not ties:
            assert found.tpr.value == pytest.approx(tpr[best])
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(curve.auc.value)
    assert len(curve.fpr) <= len(thresholds)


def test_among_equal_scores_chance_decides():
    """One of four equal others may be called a member, so one in four of equal members is."""
    curve = rates.roc([3.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    found = curve.tpr_at(1 / 8)
    assert found.tpr.value == pytest.approx(1 / 3 + 2 / 3 / 4)
    assert (found.fpr.value, found.threshold) == (1 / 8, 1.0)
    assert curve.tpr_at(0).tpr.value == pytest.approx(1 / 3)
    assert curve.tpr_at(0).threshold == 3.0


def test_area_covers_its_true_value_as_often_as_it_says():
    truth = stats.norm.cdf(0.7 / math.sqrt(2))
    covered = [rates.roc(*scored(seed)).auc.holds(truth) for seed in range(400)]
    assert 0.92 < np.mean(covered) < 0.98


def test_area_of_separated_scores_has_an_open_interval():
    found = rates.roc(np.arange(10, 20), np.arange(10)).auc
    assert found.value == found.high == 1
    assert 0.6 < found.low < 0.95
    flat = rates.roc(np.zeros(30), np.zeros(30)).auc
    assert flat.value == 0.5
    assert flat.low < 0.4 < 0.6 < flat.high


def test_chance_at_a_false_positive_rate_is_the_mean_of_noise():
    rng = np.random.default_rng(3)
    found = [rates.roc(rng.random(200), rng.random(200)).tpr_at(0.01) for _ in range(1500)]
    assert np.mean([f.tpr.value for f in found]) == pytest.approx(found[0].chance, rel=0.1)


def test_threshold_is_the_point_of_largest_gain():
    members, others = scored(5, shift=1.5)
    threshold = rates.best_threshold(members, others)
    gain = np.mean(members >= threshold) - np.mean(others >= threshold)
    assert gain == pytest.approx(stats.ks_2samp(members, others, alternative="less").statistic)
    assert rates.best_threshold([1.0], [2.0]) == math.inf


def test_threshold_is_judged_on_rows_that_did_not_choose_it():
    rng = np.random.default_rng(0)
    noise = [
        rates.threshold_risk(rng.random(40), rng.random(40), key=i).accuracy.value
        for i in range(400)
    ]
    assert abs(np.mean(noise) - 0.5) < 0.02
    found = rates.threshold_risk(rng.random(41) + 1, rng.random(60), key=1)
    assert (found.risk, found.test_sets, found.tpr.value, found.fpr.value) == (1, 42, 1, 0)
    assert 0.7 < found.low < 1


def test_threshold_risk_is_seeded():
    members, others = scored(2)
    one, same = (rates.threshold_risk(members, others, key=4) for _ in range(2))
    assert one == same
    assert one != rates.threshold_risk(members, others, key=5)


@pytest.mark.parametrize(("test_sets", "attacks"), [(1, 1), (20, 1), (70, 5), (1000, 3)])
def test_noise_attacker_is_the_mean_of_tossed_coins(test_sets, attacks):
    rng = np.random.default_rng(0)
    right = rng.binomial(test_sets, 0.5, (100_000, attacks)).max(axis=1)
    simulated = np.maximum(0, 2 * right / test_sets - 1)
    error = 5 * simulated.std() / math.sqrt(len(simulated)) + 1e-12
    assert rates.noise_attacker(test_sets, attacks) == pytest.approx(simulated.mean(), abs=error)


def test_chance_of_members_above_all_is_exact():
    """Of all orders of 3 members and 4 others, the share with so many members in front."""
    orders = list(permutations([1, 1, 1, 0, 0, 0, 0]))
    for count in range(4):
        scores = np.r_[np.arange(count) + 10, np.full(3 - count, -1)]
        found = rates.above_all(scores, np.zeros(4))
        assert found.count == count
        expected = np.mean([all(order[:count]) for order in orders])
        assert found.p_value == pytest.approx(expected)


def test_ties_with_the_highest_other_do_not_count():
    found = rates.above_all([2.0, 3.0, 3.0, 5.0, 4.0], [3.0, 1.0])
    assert (found.count, found.places) == (2, (3, 4))


def test_scores_must_be_numbers():
    with pytest.raises(InputError, match="no scores of members"):
        rates.roc([], [1.0])
    with pytest.raises(InputError, match="1 scores of others are NaN"):
        rates.above_all([1.0], [math.nan])
    with pytest.raises(InputError, match="two scores on each side"):
        rates.threshold_risk([1.0], [1.0, 2.0], key=0)
    with pytest.raises(InputError, match="attacks=0"):
        rates.noise_attacker(10, 0)
    with pytest.raises(InputError, match=r"fpr=1.5 must be a number in \[0, 1\]"):
        rates.roc([1.0], [0.0]).tpr_at(1.5)
