import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from siloweave.attacks.noisy_counts import (
    best_risk,
    judged,
    membership_scores,
    transcript_attack,
)
from siloweave.errors import InputError
from siloweave.federation.masking import unmask_sum
from siloweave.models.estimate import Measurement
from siloweave.privacy.budget import rho_for
from siloweave.privacy.mechanisms import SeededEntropy, add_gaussian
from siloweave.protocols import secure_sums
from siloweave.statistics.marginals import marginal
from siloweave.tables import Codes, Domain
from siloweave.tables.keys import generator
from tests.attacks.repeated import repeated_attack
from tests.guarantees.whole import AIMStudy, budget_of

DOMAIN = Domain(("a", "b", "c"), (3, 4, 2))
CLIQUES = (("a",), ("a", "b"), ("b", "c"))
SIGMA = 2.0
RHO = len(CLIQUES) / (2 * SIGMA**2)  # add/remove: every clique moves by 1 in one cell


def rows(seed, count):
    rng = np.random.default_rng(seed)
    return Codes(DOMAIN, tuple(rng.integers(size, size=count) for size in DOMAIN.sizes))


OTHERS, TARGET = rows(0, 40), rows(1, 1)


def entropy(key):
    return SeededEntropy(int(generator(key).integers(2**62)))


def noisy(drawn=SIGMA, said=SIGMA):
    """A mechanism that says one noise and draws another."""

    def measure(codes, key):
        source = entropy(key)
        return [
            Measurement(c, add_gaussian(marginal(codes, c), drawn, entropy=source), said)
            for c in CLIQUES
        ]

    return measure


def attacked(measure, draws):
    return repeated_attack(measure, OTHERS, TARGET, rho=RHO, key=5, draws=draws)


def test_honest_noise_stays_below_what_the_ledger_allows_and_comes_near():
    found = attacked(noisy(), draws=1200)
    risk, allowed = found.risk, found.risk.mu_allowed
    assert not found.exceeded
    assert 0.7 * allowed < found.mu_low <= allowed
    assert found.mu_exact == pytest.approx(allowed)
    assert risk.low <= risk.allowed <= risk.high
    assert risk.allowed == pytest.approx(best_risk(allowed))
    for point in risk.at:
        assert point.tpr.low <= ndtr(ndtri(point.fpr.high) + allowed)
    assert risk.at_allowed[1] == pytest.approx(ndtr(ndtri(0.01) + allowed))


def test_half_the_noise_is_caught():
    found = attacked(noisy(drawn=SIGMA / 2), draws=400)
    assert found.exceeded
    assert found.risk.low > found.risk.allowed


def test_scores_have_the_distribution_that_theory_says():
    mu2 = 2 * RHO
    inside = Codes.concat([OTHERS, TARGET])
    for world, sign in ((inside, 1), (OTHERS, -1)):
        scores = np.array(
            [membership_scores(noisy()(world, k), TARGET, OTHERS)[0][0] for k in range(800)]
        )
        assert scores.mean() == pytest.approx(sign * mu2 / 2, abs=4 * np.sqrt(mu2 / 800))
        assert scores.var() == pytest.approx(mu2, rel=0.15)


def shared(share_sigma, parties=3):
    """Three parties add shares of noise; the first colludes and tells its rows and its noise."""
    own = rows(7, 15)
    others = OTHERS.take(range(25))

    def measure(codes, key):
        source = entropy(key)
        seen = []
        for c in CLIQUES:
            zero = np.zeros(DOMAIN.shape(c), dtype=np.int64)
            shares = [add_gaussian(zero, share_sigma, entropy=source) for _ in range(parties)]
            counts = marginal(own, c) + marginal(codes, c) + sum(shares)
            left = counts - marginal(own, c) - shares[0]  # its rows and its noise are taken out
            seen.append(Measurement(c, left, share_sigma * np.sqrt(parties - 1)))
        return seen

    return repeated_attack(measure, others, TARGET, rho=RHO, key=3, draws=500)


def test_a_colluding_party_subtracts_its_share():
    sized_for_one_colluder = shared(SIGMA / np.sqrt(2))
    allowed = sized_for_one_colluder.risk.mu_allowed
    assert not sized_for_one_colluder.exceeded
    assert sized_for_one_colluder.mu_exact == pytest.approx(allowed)
    sized_for_none = shared(SIGMA / np.sqrt(3))
    assert sized_for_none.mu_exact == pytest.approx(np.sqrt(1.5) * allowed)
    assert sized_for_none.exceeded


WIDE = Domain(("x", "y"), (60, 60))


def wide(seed, count):
    rng = np.random.default_rng(seed)
    return Codes(WIDE, tuple(rng.integers(size, size=count) for size in WIDE.sizes))


@pytest.mark.parametrize(("sigma", "low", "high"), [(0.2, 0.8, 1.0), (30.0, -0.2, 0.2)])
def test_one_transcript(sigma, low, high):
    members, others, base = wide(1, 300), wide(2, 300), wide(3, 2000)
    counts = marginal(Codes.concat([base, members]), ("x", "y"))
    noisy_counts = np.random.default_rng(4).standard_normal(counts.shape) * sigma + counts
    seen = [Measurement(("x", "y"), noisy_counts, sigma)]
    found = transcript_attack(seen, members, others, base, rho=1 / (2 * sigma**2))
    assert low <= found.raw <= high
    assert found.raw <= found.high
    if sigma > 1:
        assert found.low <= 0 <= found.high


def test_one_cell_for_all_gives_nobody_away():
    """Members and others in one cell meet the same noise; no threshold may tell them apart."""
    everyone = Codes(Domain(("a",), (1,)), (np.zeros(60, dtype=int),))
    members, others = everyone.take(range(20)), everyone.take(range(20, 40))
    seen = [Measurement(("a",), np.array([43.0]), 3.0)]
    known = everyone.take(range(40, 60))
    found = transcript_attack(seen, members, others, known, rho=1.0)
    assert found.curve.auc.value == 0.5
    assert found.raw == 0


def wire_of(study, codes, seed):
    """What AIM's coordinator saw, read from the bytes of the wire."""
    run, seen = study({"curator": codes}, seed), []
    for _, request, reply in run.messages():
        if isinstance(request, secure_sums.Cohort):
            flat = unmask_sum([reply.sums.words.numpy()])
            sizes = [codes.domain.size(c) for c in request.cliques]
            for clique, part in zip(request.cliques, np.split(flat, np.cumsum(sizes)[:-1])):  # noqa: B905
                counts = part.reshape(codes.domain.shape(clique)).astype(float)
                seen.append(Measurement(clique, counts, request.share_sigma))
    return seen


def test_a_coordinator_that_watches_aim(monkeypatch):
    study = AIMStudy()
    domain = Domain(("a", "b", "c"), (2, 3, 2))
    others = Codes(domain, tuple(np.array([0, 1]) for _ in range(3)))
    target = Codes(domain, (np.array([1]), np.array([2]), np.array([0])))
    rho = rho_for(budget_of(study.budget.relation))

    def measure(codes, key):
        return wire_of(study, codes, int(generator(key).integers(2**31)))

    honest = repeated_attack(measure, others, target, rho=rho, key=1, draws=60)
    assert not honest.exceeded
    assert 0.5 * honest.risk.mu_allowed < honest.mu_exact < honest.risk.mu_allowed
    assert honest.risk.low > 0

    real = add_gaussian

    def weak(values, sigma, *, entropy):
        return real(values, sigma / 3, entropy=entropy)

    monkeypatch.setattr("siloweave.privacy.mechanisms.add_gaussian", weak)
    mutant = repeated_attack(measure, others, target, rho=rho, key=1, draws=60)
    assert mutant.exceeded


def test_bad_input():
    with pytest.raises(InputError, match="rho=0"):
        judged(np.ones(4), np.zeros(4), 0.0, rho=0)
    with pytest.raises(InputError, match="sigma=0"):
        membership_scores([Measurement(("a",), np.zeros(3), 0.0)], TARGET, OTHERS)
    with pytest.raises(InputError, match="no measurements"):
        transcript_attack([], OTHERS, TARGET, OTHERS, rho=1.0)
    with pytest.raises(InputError, match="at least 4"):
        transcript_attack(noisy()(OTHERS, 0), OTHERS, TARGET, OTHERS, rho=1.0)
