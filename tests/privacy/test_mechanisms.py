import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siloweave.errors import InputError
from siloweave.privacy import mechanisms
from siloweave.privacy.mechanisms import OSEntropy, SeededEntropy


class FixedEntropy:
    """Hands out prepared bytes."""

    private = False

    def __init__(self, *words):
        self.left = b"".join(int(word).to_bytes(8, "little") for word in words)

    def bytes(self, n):
        taken, self.left = self.left[:n], self.left[n:]
        assert len(taken) == n, "more entropy was drawn than prepared"
        return taken


def thresholds(table):
    return [(int(h) << 64) + int(l) for h, l in zip(table.high, table.low, strict=True)]


@pytest.mark.parametrize("sigma", [0.5, 2.0, 10.0])
def test_the_second_word_decides_ties_exactly(sigma):
    """A uniform just below, at and above every threshold gives the magnitude that it must."""
    table = mechanisms._gaussian_table(sigma)
    exact = thresholds(table)
    for k, threshold in enumerate(exact[:-1]):
        for uniform in (threshold - 1, threshold, threshold + 1):
            if uniform >= 2**127:
                continue
            right = sum(t <= uniform for t in exact)
            for sign in (0, 1):
                entropy = FixedEntropy((uniform >> 64) * 2 + sign, uniform & (2**64 - 1))
                drawn = mechanisms.discrete_gaussian(sigma, 1, entropy=entropy)
                assert drawn[0] == (-right if sign else right), (k, uniform - threshold)


def test_without_a_tie_one_word_is_drawn():
    entropy = FixedEntropy(2**63, 3)
    drawn = mechanisms.discrete_gaussian(5.0, 2, entropy=entropy)
    assert drawn.tolist() == [3, 0]
    assert entropy.left == b""


def test_a_seed_repeats_and_the_system_does_not():
    draw = mechanisms.discrete_gaussian
    first = draw(9.0, 1000, entropy=SeededEntropy(4))
    assert (first == draw(9.0, 1000, entropy=SeededEntropy(4))).all()
    assert (first != draw(9.0, 1000, entropy=SeededEntropy(5))).any()
    stream = SeededEntropy(4)
    assert (draw(9.0, 1000, entropy=stream) == first).all()
    assert (draw(9.0, 1000, entropy=stream) != first).any()
    system = OSEntropy()
    assert (draw(9.0, 1000, entropy=system) != draw(9.0, 1000, entropy=system)).any()


def test_seeded_noise_never_changes():
    """Recorded once: a run that is repeated years later gives the same table."""
    drawn = mechanisms.discrete_gaussian(100.0, 6, entropy=SeededEntropy(0))
    assert drawn.tolist() == [-10, -218, -106, -133, 104, -78]


def test_no_word_of_the_system_ends_a_stream_of_noise(monkeypatch):
    """ChaCha20 counts its blocks in 32 bits, and must not begin at a count that was drawn."""
    monkeypatch.setattr(mechanisms.os, "urandom", lambda n: b"\xff" * n)
    assert len({*OSEntropy().bytes(1_000_000)}) == 256


def test_entropy_says_whether_it_is_private():
    assert OSEntropy().private is True
    assert SeededEntropy(0).private is False
    for entropy in (OSEntropy(), SeededEntropy(b"seed")):
        assert len(entropy.bytes(3)) == 3
        assert len(entropy.bytes(0)) == 0
        assert mechanisms._words(entropy, 5).dtype == np.uint64


def test_words_of_the_system_look_uniform():
    words = mechanisms._words(OSEntropy(), 200_000)
    assert np.unique(words).size == words.size
    ones = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0)
    assert np.abs(ones.astype(float) - 100_000).max() < 7 * math.sqrt(200_000) / 2


@pytest.mark.parametrize("name", ["add_gaussian", "add_laplace"])
def test_noise_is_added_to_integers_of_any_shape(name):
    add = getattr(mechanisms, name)
    values = np.arange(12, dtype=np.uint16).reshape(3, 4)
    noisy = add(values, 2.0, entropy=SeededEntropy(1))
    assert noisy.dtype == np.int64
    assert noisy.shape == values.shape
    assert add(np.zeros((0, 3), dtype=int), 2.0, entropy=SeededEntropy(1)).shape == (0, 3)
    assert add(7, 2.0, entropy=SeededEntropy(1)).shape == ()
    same = add(values, 2.0, entropy=SeededEntropy(1)) - values
    assert (same == noisy - values).all()


@pytest.mark.parametrize("name", ["add_gaussian", "add_laplace"])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.5, 1.0], "values have dtype float64"),
        ([True], "values have dtype bool"),
        (["a"], "values have dtype <U1"),
        ([2**62 + 1], "2\\*\\*62"),
        (np.array([2**63], dtype=np.uint64), "2\\*\\*62"),
    ],
)
def test_only_integers_that_cannot_overflow_get_noise(name, values, words):
    with pytest.raises(InputError, match=words):
        getattr(mechanisms, name)(values, 2.0, entropy=SeededEntropy(1))


@pytest.mark.parametrize("width", [0.0, -1.0, 0.01, 1e30, math.inf, math.nan])
def test_noise_of_impossible_width_is_refused(width):
    with pytest.raises(InputError, match="sigma = "):
        mechanisms.discrete_gaussian(width, 1, entropy=OSEntropy())
    with pytest.raises(InputError, match="scale = "):
        mechanisms.discrete_laplace(width, 1, entropy=OSEntropy())


def test_a_negative_size_is_refused():
    with pytest.raises(InputError, match="size = -1"):
        mechanisms.discrete_gaussian(1.0, -1, entropy=OSEntropy())


def test_noise_too_wide_for_a_table():
    wide = mechanisms.discrete_gaussian(1e6, 200, entropy=OSEntropy())
    assert 0.7e6 < wide.std() < 1.4e6
    with pytest.raises(InputError, match=r"seeded noise can do. Use OSEntropy"):
        mechanisms.discrete_gaussian(1e6, 4, entropy=SeededEntropy(0))
    with pytest.raises(InputError, match=r"seeded noise can do. Use OSEntropy"):
        mechanisms.discrete_laplace(1e6, 4, entropy=SeededEntropy(0))


SCORES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(SCORES, st.floats(1e-3, 10), st.floats(1e-2, 1e3), st.integers(0, 2**512 - 1))
def test_the_shortcut_of_a_selection_agrees_with_exact_sums(scores, epsilon, sensitivity, point):
    array = np.array(scores)
    quick = mechanisms._far_from_borders(array, epsilon / (2 * sensitivity), point)
    sums = mechanisms._sums(array, sensitivity=sensitivity, epsilon=epsilon)
    exact = next(i for i, total in enumerate(sums) if point * sums[-1] < total << 512)
    assert quick in (None, exact)
    words = [point >> (64 * i) & (2**64 - 1) for i in range(8)]
    chosen = mechanisms.exponential(
        scores, sensitivity=sensitivity, epsilon=epsilon, entropy=FixedEntropy(*words)
    )
    assert chosen == exact


def test_a_point_at_a_border_is_decided_by_integers():
    scores = np.array([0.0, 1.0, 2.0])
    sums = mechanisms._sums(scores, sensitivity=1.0, epsilon=1.0)
    for k, total in enumerate(sums[:-1]):
        at = -((-total << 512) // sums[-1])  # the least point that belongs to the next candidate
        for point, right in ((at - 1, k), (at, k + 1)):
            assert mechanisms._far_from_borders(scores, 0.5, point) is None
            words = [point >> (64 * i) & (2**64 - 1) for i in range(8)]
            chosen = mechanisms.exponential(
                scores, sensitivity=1.0, epsilon=1.0, entropy=FixedEntropy(*words)
            )
            assert chosen == right


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scores": []}, "scores is empty"),
        ({"scores": [1.0, math.nan]}, "scores must be finite"),
        ({"scores": [math.inf]}, "scores must be finite"),
        ({"sensitivity": 0.0}, "sensitivity = 0.0"),
        ({"epsilon": -1.0}, "epsilon = -1.0"),
        ({"epsilon": math.inf}, "epsilon = inf"),
    ],
)
def test_impossible_selections_are_refused(fields, words):
    fields = {"scores": [1.0], "sensitivity": 1.0, "epsilon": 1.0, **fields}
    with pytest.raises(InputError, match=words):
        mechanisms.exponential(fields.pop("scores"), entropy=OSEntropy(), **fields)


def test_extreme_scores_are_chosen_between():
    pick = mechanisms.exponential
    assert pick([-1e300, 1e300], sensitivity=1.0, epsilon=1.0, entropy=OSEntropy()) == 1
    assert pick([5.0], sensitivity=1e-300, epsilon=1e-9, entropy=OSEntropy()) == 0
    tie = [pick([1e300] * 2, sensitivity=1e-9, epsilon=9.0, entropy=OSEntropy()) for _ in range(60)]
    assert set(tie) == {0, 1}
