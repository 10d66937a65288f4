"""Sketches follow their law, and what they are worth is what algorithms.md computed by hand."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from siloweave.errors import InputError
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.privacy.sketches import (
    LARGEST,
    SketchNoise,
    encode_rows,
    losses,
    sketch_epsilon,
)

DELTA = 1 / 21_574
KEY = bytes(range(32))


def noise_of(epsilon, attributes):
    return SketchNoise.published(epsilon, DELTA, repetitions=2000, attributes=attributes)


@pytest.mark.parametrize(
    ("epsilon", "attributes", "at_claim", "at_five", "low", "high"),
    [
        (0.32, 2, 6.3e-4, 1.6e-6, 1.7, 1.9),
        (0.32, 4, 0.048, 0.0072, 19, 22),
        (0.32, 8, 0.12, 0.058, 60, 70),
        (0.32, 16, 0.18, 0.11, 120, 140),
        (1.28, 4, 0.16, 0.054, 25, 30),
        (1.28, 16, 0.51, 0.41, 140, 200),
    ],
)
def test_the_exact_composition_is_far_above_the_published_claim(
    epsilon, attributes, at_claim, at_five, low, high
):
    noise, times = noise_of(epsilon, attributes), {"repetitions": 2000, "attributes": attributes}
    for claimed, delta in ((epsilon, at_claim), (5, at_five)):
        least, most = (sketch_epsilon(noise, delta=delta * x, **times) for x in (1.04, 0.96))
        assert least < claimed < most
    assert low < sketch_epsilon(noise, delta=DELTA, **times) < high


def test_one_attribute_alone_keeps_the_claim():
    noise = noise_of(0.32, 1)
    assert sketch_epsilon(noise, repetitions=2000, attributes=1, delta=DELTA) < 0.32
    loss, _ = losses(noise, 1)
    assert np.abs(loss).max() <= noise.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("attributes", [1, 3])
def test_the_masses_of_all_cases_are_those_of_a_table(attributes):
    """By hand: all sketches of `attributes` values one by one, for a mechanism that is small."""
    noise = SketchNoise(0.4)
    values = np.arange(noise.floor, LARGEST + 1)
    below = (1 - 2.0**-values) ** noise.phantoms
    below[-1] = 1.0
    mass = np.diff(below, prepend=0)
    z_most = 1 - 2.0**-values
    z_most[-1] = 1.0
    grids = np.meshgrid(*[np.arange(values.size)] * attributes, indexing="ij")
    without = np.prod([mass[g] for g in grids], axis=0)
    # max(A, Z) <= a in every entry: differences of the distribution function along every axis
    together = z_most[np.min(grids, axis=0)] * np.prod([below[g] for g in grids], axis=0)
    for axis in range(attributes):
        together = np.diff(together, axis=axis, prepend=0)
    direct = np.maximum(together - np.exp(0.5) * without, 0).sum()
    loss, weights = losses(noise, attributes)
    assert np.exp(weights).sum() == pytest.approx(1)
    assert np.exp(weights + loss).sum() == pytest.approx(1)
    assert np.maximum(np.exp(weights + loss) - np.exp(0.5 + weights), 0).sum() == pytest.approx(
        direct, abs=1e-9
    )


def fits_the_law(sketches, phantoms, floor):
    """The p-value of a chi-squared test of the sketches of no rows."""
    values = np.arange(floor, floor + 12)
    below = np.append((1 - 2.0 ** -values[:-1]) ** phantoms, 1.0)
    seen = [np.sum(np.minimum(sketches, values[-1]) == v) for v in values]
    return stats.chisquare(seen, sketches.size * np.diff(below, prepend=0)).pvalue


def test_sketches_of_no_rows_have_the_largest_phantoms_law():
    noise = SketchNoise(0.002)
    drawn = noise.draw(200_000, entropy=SeededEntropy(3))
    assert fits_the_law(drawn, noise.phantoms, noise.floor) > 1e-3
    assert fits_the_law(drawn, int(noise.phantoms * 0.95), noise.floor) < 1e-6


def test_a_row_has_the_number_of_its_place_in_the_keyed_stream():
    rows, repetitions = 300, 40
    column = np.random.default_rng(0).integers(0, 5, rows)
    found = encode_rows([column], [6], key=KEY, repetitions=repetitions)
    for h in range(repetitions):
        nonce = bytes(8) + h.to_bytes(8, "little")
        stream = Cipher(algorithms.ChaCha20(KEY, nonce), mode=None).encryptor().update(bytes(2400))
        words = [int.from_bytes(stream[i : i + 8], "little") for i in range(0, 2400, 8)]
        numbers = np.array([LARGEST - word.bit_length() for word in words])
        assert [numbers[column == v].max() for v in range(5)] == found[h, :5].tolist()
    assert not found[:, 5].any()


def test_equal_columns_of_two_parties_have_equal_sketches_under_one_key_only():
    column = np.random.default_rng(1).integers(0, 3, 500)
    one, two, other = (
        encode_rows([column], [3], key=key, repetitions=50) for key in (KEY, KEY, bytes(32))
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_sketches_count_rows():
    sizes = [700, 100, 3000]
    found = encode_rows([np.repeat([0, 1, 2], sizes)], [3], key=KEY, repetitions=4000)
    counts = 0.7213 * 4000 / (0.5 ** found.astype(float)).sum(0)
    assert counts == pytest.approx(sizes, rel=5 * 1.04 / np.sqrt(4000))


def test_no_rows_have_no_number():
    none = [np.zeros(0, np.int64)] * 2
    assert not encode_rows(none, [2, 3], key=KEY, repetitions=4).any()


def test_a_budget_too_small_for_sketches_is_refused():
    with pytest.raises(InputError, match="fewer repetitions"):
        SketchNoise.published(1e-4, 1e-5, repetitions=10**6, attributes=10)
