"""Points whose options a denoiser is told: Bayes' rule, and what follows from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.models.denoiser import NumberHead
from siloweave.models.layout import SphereCode
from siloweave.models.schedules import kept_variance
from siloweave.models.sphere_codes import curve

KEPT = kept_variance("cosine", 1000)
SPOTS = (
    SphereCode(1, 1, 2),
    SphereCode(2, 2, 4),
    SphereCode(5, 1, 2),
)  # and plain numbers at 0 and 4
READING = NumberHead(6, "velocity", SPOTS)
EVIDENCE = READING.evidence


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def places(spot):
    return slice(spot.start, spot.start + spot.dimensions)


def own(j):
    """Columns of spot j among all options."""
    return EVIDENCE.options.choice == j


def noisy(at, n=7):
    kept = jnp.full((n, 1), KEPT[at], jnp.float32)
    clean = np.array(normal(0, n, 6))
    for spot in SPOTS:
        clean[:, places(spot)] = curve(spot.options, spot.dimensions)[np.arange(n) % spot.options]
    noise = np.asarray(normal(1, n, 6))
    numbers = np.sqrt(KEPT[at]) * clean + np.sqrt(1 - KEPT[at]) * noise
    return jnp.asarray(clean), jnp.asarray(noise), jnp.asarray(numbers, jnp.float32), kept


@pytest.mark.parametrize("at", [0, 30, 500, 999])
def test_evidence_is_the_density_of_the_noise_up_to_a_constant(at):
    _, _, numbers, kept = noisy(at)
    for j, spot in enumerate(SPOTS):
        alone = EVIDENCE.alone(numbers, kept)[:, own(j)]
        found = np.asarray(jax.nn.log_softmax(alone), np.float64)
        x = np.asarray(numbers, np.float64)[:, places(spot)][:, None]
        a = float(np.float32(KEPT[at]))
        points = curve(spot.options, spot.dimensions)
        logs = -((x - np.sqrt(a) * points) ** 2).sum(-1) / (2 * (1 - a))
        logs -= logs.max(-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        np.testing.assert_allclose(found, logs, atol=1e-3 + 1e-5 * np.abs(logs).max())


def test_a_network_that_tells_nothing_leaves_the_posterior_of_independent_columns():
    """Two options at -1 and 1, equally likely: the mean is the hyperbolic tangent."""
    _, _, numbers, kept = noisy(500)
    clean = READING.clean(jnp.zeros((7, READING.outputs)), numbers, kept)
    a = KEPT[500]
    for place in (1, 5):
        wanted = np.tanh(np.sqrt(a) * np.asarray(numbers)[:, place] / (1 - a))
        np.testing.assert_allclose(clean[:, place], wanted, atol=1e-5)


def test_every_number_comes_back_at_its_place():
    clean, noise, numbers, kept = noisy(0)
    a = float(KEPT[0])
    told = np.zeros((7, READING.outputs), np.float32)
    told[:, :2] = (np.sqrt(a) * noise - np.sqrt(1 - a) * clean)[:, [0, 4]]
    np.testing.assert_allclose(READING.clean(jnp.asarray(told), numbers, kept), clean, atol=1e-3)


def test_losses_are_squared_errors_and_cross_entropies():
    clean, noise, numbers, kept = noisy(700)
    told = jnp.asarray(normal(2, 7, READING.outputs))
    found = READING.losses(told, clean, noise, numbers, kept, 0.5)
    a = KEPT[700]
    velocity = np.sqrt(a) * noise - np.sqrt(1 - a) * clean
    wanted = (1 - a) ** 0.5 * ((told[:, :2] - velocity[:, [0, 4]]) ** 2).sum(1)
    for j, spot in enumerate(SPOTS):
        before = told[:, 2:][:, own(j)] + EVIDENCE.alone(numbers, kept)[:, own(j)]
        wanted -= np.asarray(jax.nn.log_softmax(before))[np.arange(7), np.arange(7) % spot.options]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_what_is_no_part_of_a_point_is_a_number():
    assert READING.plain.tolist() == [0, 4]
    assert (READING.inputs, READING.outputs) == (6 + 2 + 2 + 4, 2 + 2 + 2 + 4)
    alone = NumberHead(2, "velocity", (SphereCode(1, 1, 1),))  # one option, wherever its point is
    assert alone.plain.tolist() == [0]
    bare = NumberHead(3)
    assert (bare.inputs, bare.outputs, bare.plain.tolist()) == (3, 3, [0, 1, 2])
