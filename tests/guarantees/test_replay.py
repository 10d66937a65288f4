"""Record and replay finds sensitivities exactly, and the mutants that get them wrong."""

import math

import numpy as np
import pytest

from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Neighbours, Relation, marginal_sensitivity
from siloweave.privacy.events import Exponential, Gaussian, Laplace
from siloweave.privacy.ledger import Ledger
from siloweave.privacy.mechanisms import OSEntropy, SeededEntropy
from tests.guarantees.replay import DivergenceError, record, replay

DOMAIN = 5


def release(rows, *, relation=Relation.ADD_REMOVE, ledger=None, claim=None, tables=2):
    """A small algorithm: count tables with noise, then select the worst-fitted cell."""
    ledger = Ledger("party") if ledger is None else ledger
    entropy, counts = SeededEntropy(0), np.bincount(rows, minlength=DOMAIN)
    sensitivity = marginal_sensitivity(Neighbours(relation), norm="l2") if claim is None else claim
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
        twin.require(l2=marginal_sensitivity(Neighbours(relation), norm="l2"), score=1.0)
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


def test_the_mutant_that_forgets_the_square_root_of_two_is_noticed():
    rows, changed = np.array([0, 1, 1]), np.array([2, 1, 1])
    _, twin, events = pair(rows, changed, relation=Relation.REPLACE_ONE, claim=1.0, tables=9)
    with pytest.raises(AssertionError, match=r"l2 distance 1\.41"):
        twin.require(l2=1.0)
    with pytest.raises(AssertionError, match="was charged"):
        twin.require_paid(events[:-1])


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
