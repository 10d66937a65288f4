"""The noise is what the Guarantee blocks say, and broken noise would be noticed.

Exact first (mass functions and divergences, no sampling), then statistics under a fixed key, then
mutants: every check is shown to fail on an implementation with a known fault.
"""

import math
from decimal import Context, Decimal, localcontext
from itertools import accumulate

import numpy as np
import pytest
from scipy.stats import chi2

from siloweave.privacy import (
    Exponential,
    Gaussian,
    Laplace,
    Ledger,
    OSEntropy,
    Relation,
    SeededEntropy,
    SharedGaussian,
    marginal_sensitivity,
    mechanisms,
)
from siloweave.privacy.events import rho_once
from tests.guarantees.replay import DivergenceError, record, replay

DEEP = Context(prec=70)
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620900")


@pytest.fixture(autouse=True)
def _digits():
    """Operators on decimals round to 70 digits here, not to 28."""
    with localcontext(DEEP):
        yield


def masses_of(table):
    """P(abs(X) = k) as exact integers of 2^-127."""
    high, low = table.high.tolist(), table.low.tolist()
    sums = [(h << 64) + l for h, l in zip(high, low, strict=True)]
    return [after - before for before, after in zip([0, *sums], sums, strict=False)]


def gaussian_weight(k, sigma):
    square = DEEP.multiply(Decimal(sigma), Decimal(sigma))
    return DEEP.exp(DEEP.divide(Decimal(-k * k), 2 * square))


def laplace_weight(k, scale):
    return DEEP.exp(DEEP.divide(Decimal(-k), Decimal(scale)))


def distance(masses, weight):
    """Total variation between a table and the distribution with these weights, tails included."""
    weights = [weight(k) for k in range(len(masses) + 40)]
    total = 2 * sum(weights) - weights[0]
    exact = [(1 if k == 0 else 2) * w / total for k, w in enumerate(weights)]
    given = [Decimal(m) / 2**127 for m in masses] + [Decimal(0)] * 40
    return float(sum(abs(p - q) for p, q in zip(exact, given, strict=True)) / 2)


# Exact mass functions.


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, math.pi, 50.0, 300.0])
def test_the_gaussian_table_has_the_mass_function_of_the_paper(sigma):
    masses = masses_of(mechanisms._gaussian_table(sigma))
    assert sum(masses) == 2**127
    assert min(masses) >= 0
    assert distance(masses, lambda k: gaussian_weight(k, sigma)) < mechanisms.TV_PER_DRAW
    for wrong in (0.999, 1.001):
        assert distance(masses, lambda k, s=sigma * wrong: gaussian_weight(k, s)) > 1e-24


@pytest.mark.parametrize("scale", [0.1, 1.0, 7.7, 40.0])
def test_the_laplace_table_has_the_mass_function_of_the_paper(scale):
    masses = masses_of(mechanisms._laplace_table(scale))
    assert distance(masses, lambda k: laplace_weight(k, scale)) < mechanisms.TV_PER_DRAW


def test_the_largest_tables_are_right_at_every_scale():
    """Poisson summation gives P(X = 0) = 1 / (sigma sqrt(2 pi)) up to e^(-2 pi^2 sigma^2)."""
    sigma = 80_000.0
    masses = masses_of(mechanisms._gaussian_table(sigma))
    assert len(masses) <= mechanisms.LARGEST_TABLE
    at_zero = 1 / (Decimal(sigma) * DEEP.sqrt(2 * PI))
    for k in (0, 1, 2, 1000, 80_000, 400_000, 800_000):
        exact = (1 if k == 0 else 2) * at_zero * gaussian_weight(k, sigma)
        assert abs(Decimal(masses[k]) / 2**127 - exact) < Decimal(2) ** -125
    assert masses[-1] == 0 or len(masses) > 13 * sigma


def renyi(p, q, alpha):
    """Divergence of order alpha of two mass functions on the same points, in nats."""
    both = (p > 0) & (q > 0)
    log_p, log_q = np.log(p[both]), np.log(q[both])
    terms = alpha * log_p + (1 - alpha) * log_q
    top = terms.max()
    return (top + math.log(np.exp(terms - top).sum())) / (alpha - 1)


def float_masses(sigma, reach):
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x.astype(float) ** 2) / (2 * sigma**2))
    return p / p.sum()


def sum_of_shares(sigma, shares):
    """Mass function of the sum of independent discrete Gaussians."""
    one = float_masses(sigma, math.ceil(25 * sigma))
    return list(accumulate([one] * shares, np.convolve))[-1]


def worst_rho(p, shift=1):
    """The least rho for which neighbours ``shift`` apart are rho-zCDP, at many orders."""
    p = np.pad(p, shift)
    q = np.roll(p, shift)
    alphas = (1.01, 1.1, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0)
    return max(renyi(p, q, alpha) / alpha for alpha in alphas)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.5, 10.0])
def test_the_price_of_a_gaussian_covers_its_divergence(sigma):
    """The largest shift that keeps the tails of these mass functions in range is 1."""
    real = worst_rho(float_masses(sigma, math.ceil(25 * sigma)))
    price = rho_once(Gaussian(sigma=sigma, sensitivity=1.0))
    assert real <= price * (1 + 1e-9)
    assert real > 0.99 * price or sigma < 1


@pytest.mark.parametrize("shares", [2, 3, 5])
@pytest.mark.parametrize("sigma", [1.0, 1.5, 4.0])
def test_the_price_of_shared_noise_covers_its_divergence(sigma, shares):
    real = worst_rho(sum_of_shares(sigma, shares))
    event = SharedGaussian(
        share_sigma=sigma, shares=shares + 2, tolerated=2, sensitivity=1.0, dimension=1
    )
    assert real <= rho_once(event) * (1 + 1e-9)
    assert real > 0.95 * rho_once(event)


def test_narrow_shares_would_break_the_price_without_its_correction():
    """Why shares below 1 are refused: their sum is not a Gaussian of the summed variance."""
    real = worst_rho(sum_of_shares(0.4, 3))
    assert real > 1.02 / (2 * 3 * 0.4**2)


def selection_masses(scores, sensitivity, epsilon):
    sums = mechanisms._sums(np.array(scores), sensitivity=sensitivity, epsilon=epsilon)
    return [Decimal(b - a) / sums[-1] for a, b in zip([0, *sums], sums, strict=False)]


def selection_loss(select, k=100, epsilon=1.0, sensitivity=1.0):
    """Worst neighbours: one score rises by the sensitivity, all others fall by it."""
    p = select([0.0] * k, sensitivity, epsilon)
    q = select([sensitivity] + [-sensitivity] * (k - 1), sensitivity, epsilon)
    return max(abs(float(DEEP.ln(a / b))) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_a_selection_loses_no_more_than_epsilon_and_nearly_that(epsilon):
    loss = selection_loss(selection_masses, epsilon=epsilon)
    assert 0.95 * epsilon < loss <= epsilon + mechanisms.EXPONENTIAL_SLACK


def test_a_selection_has_the_mass_function_of_the_paper():
    scores = [0.0, -3.5, 12.25, 400.0, 399.0, 1e-3]
    epsilon = 0.1
    exact = [DEEP.exp((Decimal(s) - 400) * Decimal(epsilon) / 2) for s in scores]
    ours = selection_masses(scores, 1.0, epsilon)
    for p, w in zip(ours, exact, strict=True):
        assert abs(float(DEEP.ln(p * sum(exact) / w))) < mechanisms.EXPONENTIAL_SLACK


def test_lifting_far_candidates_costs_nothing():
    """Gaps beyond the reach, just at it, and across it when the neighbour moves."""
    for gap in (511.0, 512.0, 513.0, 514.0, 1e6):
        for up in (1.0, -1.0):
            p = selection_masses([0.0, -gap, -gap], 1.0, 1.0)
            q = selection_masses([-up, -gap + up, -gap - up], 1.0, 1.0)
            losses = [float(DEEP.ln(a / b)) for a, b in zip(p, q, strict=True)]
            assert max(losses) - min(losses) <= 1 + mechanisms.EXPONENTIAL_SLACK


# Statistics, under a fixed key; both directions must be rejected.


def fits(draws, masses, level=1e-6):
    """Whether signed draws fit P(abs(X) = k) = masses[k] with a fair sign (chi-squared test)."""
    n = draws.size
    expected, observed = [], []
    rest_expected, rest_observed = float(n), n
    for k, mass in enumerate(masses):
        for sign in (0,) if k == 0 else (-1, 1):
            mean = n * mass if k == 0 else n * mass / 2
            if mean >= 8:
                expected.append(mean)
                observed.append(int(np.count_nonzero(draws == (k * sign if k else 0))))
                rest_expected -= mean
                rest_observed -= observed[-1]
    expected.append(max(rest_expected, 1e-9))
    observed.append(rest_observed)
    e, o = np.array(expected), np.array(observed)
    if e[-1] < 5:
        e, o = np.append(e[:-2], e[-2:].sum()), np.append(o[:-2], o[-2:].sum())
    return bool(chi2.sf(((o - e) ** 2 / e).sum(), e.size - 1) > level)


def gaussian_masses(sigma):
    p = float_masses(sigma, math.ceil(13 * sigma))
    half = p[p.size // 2 :] * 2
    half[0] /= 2
    return half


def laplace_masses(scale):
    p = 2 * np.exp(-np.arange(math.ceil(60 * scale)) / scale) * math.tanh(0.5 / scale)
    p[0] /= 2
    return p


N = 40_000


@pytest.mark.parametrize("sigma", [0.5, 1.7, 20.0])
def test_gaussian_draws_fit_and_other_widths_are_rejected(sigma):
    draws = mechanisms.discrete_gaussian(sigma, N, entropy=SeededEntropy(11))
    assert fits(draws, gaussian_masses(sigma))
    assert not fits(draws, gaussian_masses(0.9 * sigma))
    assert not fits(draws, gaussian_masses(1.1 * sigma))


@pytest.mark.parametrize("scale", [0.6, 3.0, 20.0])
def test_laplace_draws_fit_and_other_widths_are_rejected(scale):
    draws = mechanisms.discrete_laplace(scale, N, entropy=SeededEntropy(12))
    assert fits(draws, laplace_masses(scale))
    assert not fits(draws, laplace_masses(0.9 * scale))
    assert not fits(draws, laplace_masses(1.1 * scale))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_opendp_draws_the_same_distribution(kind):
    """An independent sampler, with its own entropy: hence a level that chance does not reach."""
    masses = {"gaussian": gaussian_masses, "laplace": laplace_masses}[kind]
    draws = mechanisms._opendp(kind, 3.0, 20_000)
    assert fits(draws, masses(3.0), level=1e-12)
    assert not fits(draws, masses(2.7), level=1e-12)
    assert not fits(draws, masses(3.3), level=1e-12)


def test_draws_with_the_systems_entropy_fit():
    draws = mechanisms.discrete_gaussian(3.0, N, entropy=OSEntropy())
    assert fits(draws, gaussian_masses(3.0), level=1e-12)


def test_selections_fit():
    entropy, scores = SeededEntropy(13), [0.0, 1.0, 3.0, 2.5]
    chosen = [
        mechanisms.exponential(scores, sensitivity=1.0, epsilon=2.0, entropy=entropy)
        for _ in range(20_000)
    ]
    observed = np.bincount(chosen, minlength=4)
    for epsilon, right in ((2.0, True), (2.4, False), (1.6, False)):
        w = np.exp(np.array(scores) * epsilon / 2)
        expected = 20_000 * w / w.sum()
        p = chi2.sf(((observed - expected) ** 2 / expected).sum(), 3)
        assert bool(p > 1e-4) is right


def noise_is_independent(add):
    """Whether the cells of one call, and two calls, get noise of their own."""
    cells = add(np.zeros((2000, 2), dtype=int), 5.0, entropy=SeededEntropy(14))
    again = add(np.zeros((2000, 2), dtype=int), 5.0, entropy=SeededEntropy(15))
    pairs = [(cells[:, 0], cells[:, 1]), (cells[:-1, 0], cells[1:, 0]), (cells[:, 0], again[:, 0])]
    variances = [float(np.var(a - b)) / (2 * 25) for a, b in pairs]
    return all(0.85 < v < 1.15 for v in variances)


def test_every_cell_gets_noise_of_its_own():
    assert noise_is_independent(mechanisms.add_gaussian)


# Record and replay.

DOMAIN = 5


def release(rows, *, relation=Relation.ADD_REMOVE, ledger=None, claim=None, tables=2):
    """A small algorithm: count tables with noise, then select the worst-fitted cell."""
    ledger = Ledger("party") if ledger is None else ledger
    entropy, counts = SeededEntropy(0), np.bincount(rows, minlength=DOMAIN)
    sensitivity = marginal_sensitivity(relation, norm="l2") if claim is None else claim
    noisy = counts
    for step in range(tables):
        event = Gaussian(sigma=4.0, sensitivity=sensitivity)
        ledger.charge(event, run="r", step=f"count{step}", what="counts", to="all")
        noisy = mechanisms.add_gaussian(counts, 4.0, entropy=entropy)
    ledger.charge(Exponential(epsilon=0.5), run="r", step="select", what="cell", to="all")
    mechanisms.exponential(np.abs(counts - noisy), sensitivity=1.0, epsilon=0.5, entropy=entropy)
    return ledger


def neighbours(count, *, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rows = rng.integers(DOMAIN, size=rng.integers(0, 6))
        yield rows, np.append(rows, rng.integers(DOMAIN)), Relation.ADD_REMOVE
        if rows.size:
            changed = rows.copy()
            changed[0] = (changed[0] + 1) % DOMAIN
            yield rows, changed, Relation.REPLACE_ONE


def pair(rows, other, **named):
    first, second = [Ledger("party") for _ in range(2)]
    tape = record(lambda: release(rows, ledger=first, **named))
    twin = replay(tape, lambda: release(other, ledger=second, **named))
    assert first.events == second.events
    return tape, twin, first.events


def test_replay_finds_the_sensitivities_exactly():
    worst = dict.fromkeys(Relation, 0.0)
    for rows, other, relation in neighbours(40):
        tape, twin, events = pair(rows, other, relation=relation)
        twin.require(l2=marginal_sensitivity(relation, norm="l2"), score=1.0)
        twin.require_paid(events)
        worst[relation] = max(worst[relation], *twin.distances("l2"))
        assert len(tape.charges) == 3
    assert worst == {Relation.ADD_REMOVE: 1.0, Relation.REPLACE_ONE: math.sqrt(2)}


def test_replay_gives_back_what_was_recorded():
    tape = record(lambda: release(np.array([1, 2])))
    seen = []

    def watch():
        seen.append(mechanisms.add_gaussian([0] * DOMAIN, 4.0, entropy=OSEntropy()))

    real = mechanisms.add_gaussian
    with pytest.raises(DivergenceError, match=r"charge .* became add_gaussian"):
        replay(tape, watch)
    assert mechanisms.add_gaussian is real
    noise_only = record(lambda: mechanisms.add_gaussian([3] * DOMAIN, 4.0, entropy=OSEntropy()))
    replay(noise_only, watch)
    assert (seen[0] == noise_only.calls[0].answer).all()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"tables": 3}, "became"),
        ({"tables": 1}, "became"),
        ({"claim": 2.0}, "became"),
    ],
)
def test_replay_notices_another_course(other, words):
    tape = record(lambda: release(np.array([1, 2])))
    with pytest.raises(DivergenceError, match=words):
        replay(tape, lambda: release(np.array([1, 2]), **other))


def test_replay_notices_a_run_that_stops_early_or_goes_on():
    def noise(count):
        for _ in range(count):
            mechanisms.add_laplace([1], 2.0, entropy=SeededEntropy(1))

    tape = record(lambda: noise(2))
    with pytest.raises(DivergenceError, match="on the recorded table only"):
        replay(tape, lambda: noise(1))
    with pytest.raises(DivergenceError, match="was not called on the recorded table"):
        replay(tape, lambda: noise(3))
    assert replay(tape, lambda: noise(2)).distances("l1") == [0.0, 0.0]


def test_replay_measures_laplace_noise():
    def noise(value):
        mechanisms.add_laplace([value, 1], 2.0, entropy=SeededEntropy(1))

    twin = replay(record(lambda: noise(5)), lambda: noise(8))
    assert twin.distances("l1") == [3.0]
    twin.require(l1=3.0)
    with pytest.raises(AssertionError, match=r"l1 distance 3\.0 is above the declared 2"):
        twin.require(l1=2.0)
    twin.require_paid([Laplace(scale=2.0, sensitivity=3.0)])
    with pytest.raises(AssertionError, match="was charged"):
        twin.require_paid([Laplace(scale=2.0, sensitivity=2.9)])


# Mutants: each must be caught by one of the checks above.


def half_noise(values, sigma, *, entropy):
    return np.asarray(values) + mechanisms.discrete_gaussian(
        sigma / 2, np.size(values), entropy=entropy
    )


def variance_as_deviation(values, sigma, *, entropy):
    noise = mechanisms.discrete_gaussian(math.sqrt(sigma), np.size(values), entropy=entropy)
    return np.asarray(values) + noise


def one_sided(values, sigma, *, entropy):
    noise = mechanisms.discrete_gaussian(sigma, np.size(values), entropy=entropy)
    return np.asarray(values) + np.abs(noise)


def never_zero(values, sigma, *, entropy):
    noise = mechanisms.discrete_gaussian(sigma, np.size(values), entropy=entropy)
    return np.asarray(values) + np.where(noise == 0, 1, noise)


def rounded_floats(values, sigma, *, entropy):
    """Close to the discrete Gaussian for wide noise, clearly not for narrow noise."""
    key = int.from_bytes(entropy.bytes(8), "little")
    return np.asarray(values) + np.rint(
        np.random.default_rng(key).normal(0, sigma, np.size(values))
    )


@pytest.mark.parametrize(
    "mutant", [half_noise, variance_as_deviation, one_sided, never_zero, rounded_floats]
)
def test_mutants_of_the_noise_do_not_fit(mutant):
    sigma = 0.5 if mutant is rounded_floats else 3.0
    zeros = np.zeros(N, dtype=int)
    assert fits(
        mechanisms.add_gaussian(zeros, sigma, entropy=SeededEntropy(16)), gaussian_masses(sigma)
    )
    assert not fits(mutant(zeros, sigma, entropy=SeededEntropy(16)), gaussian_masses(sigma))


def test_the_mutant_with_half_the_noise_costs_four_times_the_price():
    price = rho_once(Gaussian(sigma=4.0, sensitivity=1.0))
    assert worst_rho(float_masses(2.0, 60)) > 3.9 * price


def shared_by_cells(values, sigma, *, entropy):
    array = np.asarray(values)
    noise = mechanisms.discrete_gaussian(sigma, len(array), entropy=entropy)
    return array + noise.reshape(-1, *[1] * (array.ndim - 1))


def one_number(values, sigma, *, entropy):
    return np.asarray(values) + mechanisms.discrete_gaussian(sigma, 1, entropy=entropy)[0]


def same_stream(values, sigma, *, entropy):
    fixed = SeededEntropy(99)
    return mechanisms.add_gaussian(values, sigma, entropy=fixed)


@pytest.mark.parametrize("mutant", [shared_by_cells, one_number, same_stream])
def test_mutants_that_share_noise_are_noticed(mutant):
    assert not noise_is_independent(mutant)


def test_the_mutant_that_forgets_the_square_root_of_two_is_noticed():
    rows, changed = np.array([0, 1, 1]), np.array([2, 1, 1])
    _, twin, events = pair(rows, changed, relation=Relation.REPLACE_ONE, claim=1.0, tables=9)
    with pytest.raises(AssertionError, match=r"l2 distance 1\.41"):
        twin.require(l2=1.0)
    with pytest.raises(AssertionError, match="was charged"):
        twin.require_paid(events[:-1])


def test_the_mutant_with_half_the_shares_missing_is_noticed():
    """Four shares claimed, two there: neighbours are twice as far apart as was paid for."""
    price = rho_once(
        SharedGaussian(share_sigma=2.0, shares=4, tolerated=0, sensitivity=1.0, dimension=1)
    )
    assert worst_rho(sum_of_shares(2.0, 4)) <= price * (1 + 1e-9)
    assert worst_rho(sum_of_shares(2.0, 2)) > 1.9 * price
    tolerant = SharedGaussian(share_sigma=2.0, shares=4, tolerated=2, sensitivity=1.0, dimension=1)
    assert worst_rho(sum_of_shares(2.0, 2)) <= rho_once(tolerant) * (1 + 1e-9)


def test_the_mutants_of_selection_are_noticed():
    def halved(scores, sensitivity, epsilon):
        return selection_masses(scores, sensitivity / 2, epsilon)

    def without_two(scores, sensitivity, epsilon):
        return selection_masses(scores, sensitivity, 2 * epsilon)

    def by_rank(scores, sensitivity, epsilon):  # a score that a neighbour can turn around
        order = np.argsort(np.argsort(scores)).astype(float)
        return selection_masses(list(order), sensitivity, epsilon)

    for mutant in (halved, without_two, by_rank):
        assert selection_loss(mutant) > 1.5


def test_a_score_that_moves_too_far_is_noticed():
    """Counts that are compared with a model scaled by the private number of rows move by 2."""

    def select(rows):
        counts = np.bincount(rows, minlength=DOMAIN)
        model = rows.size * np.array([1.0, 0.0, 0.0, 0.0, 0.0])
        scores = [np.abs(counts - model).sum(), 0.0]
        mechanisms.exponential(scores, sensitivity=1.0, epsilon=1.0, entropy=SeededEntropy(2))

    rows = np.array([0, 0, 0])
    twin = replay(record(lambda: select(rows)), lambda: select(np.append(rows, 4)))
    with pytest.raises(AssertionError, match=r"a score moved by 2\.0"):
        twin.require()
    with pytest.raises(AssertionError, match="score distance"):
        twin.require(score=1.0)


def test_a_mechanism_that_is_not_paid_for_is_noticed():
    def free(rows):
        mechanisms.add_gaussian(np.bincount(rows, minlength=DOMAIN), 4.0, entropy=OSEntropy())

    twin = replay(record(lambda: free(np.array([1]))), lambda: free(np.array([], dtype=int)))
    with pytest.raises(AssertionError, match=r"only 0\.0 was charged"):
        twin.require_paid([])
