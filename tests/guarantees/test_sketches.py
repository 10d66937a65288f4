"""The attacks on VertiMRF's sketches: equal and unusually high ones reveal a row; so does the key.

A (0.32, 1/21574)-DP release would let nobody be right about a row much more often than wrong.
Theorem 2 of the paper claims this of the sketches; whoever sees them tells rows that are there
from rows that are not, with certainty, one time in ten.
"""

import numpy as np
import pytest

from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.privacy.sketches import SketchNoise, encode_rows

EPSILON, DELTA = 0.32, 1 / 21_574
REPETITIONS, ATTRIBUTES, TRIALS = 2000, 16, 120


def evidence(sketches, noise):
    """Logarithm of how much more likely sketches are, (repetitions, d), if one row has them all."""
    below = lambda m: (1 - 2.0**-m) ** noise.phantoms  # noqa: E731
    least = sketches.min(axis=1).astype(float)
    mass = np.where(least > noise.floor, below(least) - below(least - 1), below(least))
    equal = (sketches == sketches.min(axis=1, keepdims=True)).sum(axis=1)
    there = (1 - 2.0 ** (1 - least)) + 2.0**-least * (below(least) / mass) ** equal
    return float(np.log(there).sum())


def view(trial, noise, *, present):
    """What the server sees of the values of one row, which no other row has."""
    others = np.zeros(40, dtype=np.int64)
    column = np.append(others, 1) if present else others
    key = trial.to_bytes(32, "little")
    rows = encode_rows([column], [2], key=key, repetitions=REPETITIONS)[:, 1:]
    drawn = noise.draw(REPETITIONS * ATTRIBUTES, entropy=SeededEntropy(trial))
    return np.maximum(rows, drawn.reshape(REPETITIONS, ATTRIBUTES))


@pytest.fixture(scope="module")
def seen():
    noise = SketchNoise.published(EPSILON, DELTA, repetitions=REPETITIONS, attributes=ATTRIBUTES)
    return {
        present: np.array(
            [
                evidence(view(k + TRIALS * present, noise, present=present), noise)
                for k in range(TRIALS)
            ]
        )
        for present in (True, False)
    }


def test_a_row_is_recognised_far_more_often_than_the_claim_allows(seen):
    there, absent = (np.mean(seen[present] > EPSILON) for present in (True, False))
    assert there > 2 * (np.exp(EPSILON) * absent + DELTA)


def test_some_views_leave_no_doubt(seen):
    assert np.sum(seen[True] > 5) >= 6
    assert not np.any(seen[False] > 5)


def test_a_server_that_one_party_helps_knows_who_is_not_there():
    """With the key, even where the claim holds without it: for a person of one column.

    A person's number is in the sketch of each value she has. One sketch below it, in any
    repetition, proves that she does not have the value; phantoms hide that only mostly.
    """
    noise = SketchNoise.published(EPSILON, DELTA, repetitions=REPETITIONS, attributes=1)
    excluded = []
    for trial in range(40):
        key = trial.to_bytes(32, "little")
        own = encode_rows([np.zeros(1, np.int64)], [1], key=key, repetitions=REPETITIONS)
        seen = noise.draw(REPETITIONS, entropy=SeededEntropy(trial))
        excluded.append(bool(np.any(seen < own[:, 0])))
        assert not np.any(np.maximum(seen, own[:, 0]) < own[:, 0])  # never of one who has it
    assert np.mean(excluded) > 0.4  # a claim of 0.32 allows 1 in 21,574
