"""Clipped sums: their sensitivity on random neighbours, known faults, and noise on a grid."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

from siloweave.errors import InputError
from siloweave.models.gan_networks import Critic, critic_losses, layered_losses
from siloweave.models.nets import MLP, Dense
from siloweave.privacy import gradients, mechanisms
from siloweave.privacy.gradients import factors
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.privacy.shared_steps import quantised

KEY = jax.random.key(3)
CLIP = 0.7
SIZE = 6


class Model(eqx.Module):
    """Two parts, a number outside of dense layers, and one layer that runs twice."""

    encoder: MLP
    decoder: MLP
    scale: jax.Array
    name: str = eqx.field(static=True, default="model")

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.encoder = MLP(4, (5,), 3, key=a, act="tanh")
        self.decoder = MLP(3, (3, 3), 4, key=b, act="silu")
        self.scale = jnp.array([1.0, 0.5, 2.0])


def reconstruct(model, row, key):
    latent = model.encoder(row) * model.scale + 0.1 * jax.random.normal(key, (3,))
    again = model.decoder.layers[0](jnp.tanh(model.decoder.layers[0](latent)))
    return jnp.sum((model.decoder(again) - row) ** 2)


def twice(model, row, key):
    """Two draws of noise for one row, as a matrix."""
    latent = model.encoder(row) + jax.random.normal(key, (2, 3))
    return jnp.mean((model.decoder(latent) - row) ** 2)


MODEL = Model(jax.random.key(0))
LOSSES = {"reconstruct": reconstruct, "twice": twice}


def rows_of(seed, scale=3.0):
    random = np.random.default_rng(seed)
    spread = scale * np.exp(random.normal(size=(SIZE, 1)))
    return jnp.asarray((random.normal(size=(SIZE, 4)) * spread).astype(np.float32))


def flat(tree):
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(tree)])


@eqx.filter_jit
def compiled(loss, model, rows, mask, clip, layer):
    return factors(loss, model, rows, mask, clip=clip, key=KEY, layer=layer)


def total(loss, rows, mask, layer=Dense, clip=CLIP, model=MODEL):
    """The clipped sum of the rows of a mask, each at its own place, and the norms."""
    found = compiled(loss, model, rows, jnp.asarray(mask), jnp.float32(clip), layer)
    order = gradients._order_of(model, layer)
    with jax.enable_x64(True):
        start = np.zeros(gradients.flat_size(model))
        made = gradients._added(start, found.dense, found.rest, found.scale, order=order)
    return np.asarray(made), np.asarray(found.norms)


@eqx.filter_jit
def gradients_of(loss, model, rows):
    return jax.vmap(eqx.filter_grad(loss), (None, 0, 0))(
        model, rows, jax.random.split(KEY, len(rows))
    )


def per_row(loss, rows, model=MODEL):
    """A gradient per row, (rows, size), by what JAX does of its own."""
    found = jax.tree.leaves(gradients_of(loss, model, rows))
    return np.concatenate([np.asarray(x, np.float64).reshape(len(rows), -1) for x in found], 1)


def oracle(loss, rows, mask, clip=CLIP, model=MODEL):
    every = per_row(loss, rows, model)
    norms = np.linalg.norm(every, axis=1)
    scale = np.minimum(1.0, clip / np.maximum(norms, 1e-30)) * np.asarray(mask)
    return scale @ every, norms * np.asarray(mask)


@pytest.mark.parametrize("clip", [1e-3, CLIP, 1e6])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_book_keeping_equals_a_gradient_per_row(loss, clip):
    mask = np.array([True, True, False, True, True, False])
    booked, norms = total(loss, rows_of(0), mask, Dense, clip)
    wanted, exact = oracle(loss, rows_of(0), mask, clip)
    np.testing.assert_allclose(booked, wanted, rtol=2e-3, atol=1e-5 * clip)
    np.testing.assert_allclose(norms, exact, rtol=2e-3)
    assert (norms >= exact * (1 - 1e-5)).all()
    assert (norms[~mask] == 0).all()


def test_layers_of_equinox_are_known_too():
    net = eqx.nn.MLP(4, 3, 5, 2, key=KEY)

    def loss(net, row, key):
        return jnp.sum(net(row) ** 2)

    mask = np.ones(SIZE, bool)
    booked, _ = total(loss, rows_of(1), mask, eqx.nn.Linear, model=net)
    np.testing.assert_allclose(booked, oracle(loss, rows_of(1), mask, model=net)[0], rtol=2e-3,
                               atol=1e-5)  # fmt: skip


def farthest(make):
    """The largest distance between neighbours: one row less, and one row replaced."""
    removed, replaced = 0.0, 0.0
    for seed in range(8):
        rows = rows_of(seed, scale=10.0 ** (seed % 4 - 1))
        place = seed % SIZE
        rows = rows.at[place].multiply(1000.0 if seed > 3 else 1.0)  # one row that outshines all
        all_, without = np.ones(SIZE, bool), np.arange(SIZE) != place
        other = rows.at[place].set(-5 * rows[place])
        whole = make(rows, all_)
        removed = max(removed, np.linalg.norm(whole - make(rows, without)))
        replaced = max(replaced, np.linalg.norm(whole - make(other, all_)))
    return removed, replaced


def test_the_clipped_sum_has_the_sensitivity_that_is_paid_for():
    removed, replaced = farthest(lambda rows, mask: total(reconstruct, rows, mask)[0])
    assert 0.98 * CLIP < removed <= CLIP
    assert removed < replaced <= 2 * CLIP


def shrunk(vector, clip=CLIP):
    return vector * min(1.0, clip / max(np.linalg.norm(vector), 1e-30))


def clip_of_the_sum(rows, mask):
    """Mutant: the batch is clipped, not the row."""
    return shrunk(per_row(reconstruct, rows)[mask].sum(0))


def clip_per_layer(rows, mask):
    """Mutant: every array gets the whole clip."""
    cuts = np.cumsum([x.size for x in jax.tree.leaves(eqx.filter(MODEL, eqx.is_inexact_array))])
    found = per_row(reconstruct, rows)[mask]
    return sum(np.concatenate([shrunk(x) for x in np.split(g, cuts[:-1])]) for g in found)


def no_clip(rows, mask):
    return per_row(reconstruct, rows)[mask].sum(0)


@pytest.mark.parametrize("mutant", [clip_of_the_sum, clip_per_layer, no_clip])
def test_mutants_that_clip_something_else_move_further(mutant):
    assert farthest(mutant)[0] > CLIP * 1.05


def test_the_mutant_that_clips_the_mean_of_a_batch_moves_by_twice_the_clip():
    """One huge row turns the clipped mean around, whatever the batch: DP-TLDM's clip is no clip."""
    frame = np.array([[0.0, 1.0]] * 5 + [[0.0, -1e6]])
    whole, without = (shrunk(part.mean(0)) for part in (frame, frame[:5]))
    assert np.linalg.norm(whole - without) > 1.99 * CLIP


def test_the_mutant_that_divides_by_the_true_batch_size_moves_further():
    """All gradients alike: with the constant divisor a removal moves by C, with the mutant's by 0
    or by more; opposite ones by more than C."""
    rows = jnp.concatenate([jnp.tile(rows_of(0)[:1], (SIZE - 1, 1)), -9 * rows_of(0)[:1]])
    masks = np.ones(SIZE, bool), np.arange(SIZE) != SIZE - 1
    sound = [total(reconstruct, rows, mask)[0] for mask in masks]
    mutant = [one * SIZE / mask.sum() for one, mask in zip(sound, masks, strict=True)]
    assert np.linalg.norm(sound[0] - sound[1]) <= CLIP
    assert np.linalg.norm(mutant[0] - mutant[1]) > 1.2 * CLIP


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, 1e30])
def test_a_row_whose_gradient_is_not_finite_counts_nothing(bad):
    rows = rows_of(2).at[1, 2].set(bad)
    found, _ = total(reconstruct, rows, np.ones(SIZE, bool))
    without, _ = total(reconstruct, rows, np.arange(SIZE) != 1)
    np.testing.assert_array_equal(found, without)
    assert np.isfinite(found).all()


def penalty(model, row, key):
    slope = jax.grad(lambda x: model.encoder(x).sum())(row)
    return (jnp.linalg.norm(slope) - 1) ** 2 + model.encoder(row).sum()


def test_a_gradient_inside_a_loss_is_refused_by_book_keeping():
    with pytest.raises(InputError, match="layered_losses"):
        factors(penalty, MODEL, rows_of(0), jnp.ones(SIZE, bool), clip=CLIP, key=KEY, layer=Dense)


CRITIC = Critic(4, (5, 3), pac=1, dropout=0.0, key=KEY)


def judged(losses):
    def loss(critic, row, key):
        a, b = jax.random.split(key)
        fake = jax.random.normal(a, (1, 4))
        return losses(critic, row[None], fake, weight=10.0, key=b)[0]

    return loss


nested, written_out = judged(critic_losses), judged(layered_losses)


@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_a_critics_penalty_that_is_written_out_is_book_kept(clip):
    mask = np.array([True, True, False, True, True, True])
    booked, norms = total(written_out, rows_of(0, 1.0), mask, Dense, clip, CRITIC)
    wanted, exact = oracle(nested, rows_of(0, 1.0), mask, clip, CRITIC)
    np.testing.assert_allclose(booked, wanted, rtol=5e-3, atol=1e-4 * min(clip, 1.0))
    assert (norms >= exact * (1 - 1e-5)).all()
    np.testing.assert_allclose(norms, exact, rtol=2e-2)


def test_a_weight_used_outside_its_layer_is_refused():
    def decay(model, row, key):
        return jnp.sum(model.encoder.layers[0].weight ** 2)

    with pytest.raises(TypeError):
        total(decay, rows_of(0), np.ones(SIZE, bool))


def test_a_model_without_dense_layers_is_refused():
    with pytest.raises(InputError, match="no such layer"):
        total(reconstruct, rows_of(0), np.ones(SIZE, bool), model=jnp.zeros(3))


# Noise on the grid

LEVELS, SIGMA = 4096, 5000.0


def released(rows, mask, seed):
    """A noisy sum as it leaves, in units of the grid; and the exact one."""
    exact, _ = total(reconstruct, rows, mask)
    whole = quantised(exact, clip=CLIP, levels=LEVELS, parties=1)
    return mechanisms.add_gaussian(whole, SIGMA, entropy=SeededEntropy(seed)), whole


def test_coordinates_whose_clipped_sum_is_0_look_like_all_others():
    """Float noise tells them: x + noise rounds to x's own grid, and 0 + noise to a finer one."""
    rows = rows_of(0).at[:, 3].set(0.0)  # an input that is always 0: its weights get no gradient
    noisy, exact = (
        np.stack(both)
        for both in zip(*(released(rows, np.ones(SIZE, bool), k) for k in range(400)), strict=True)
    )
    still = (exact == 0).all(0)
    assert 3 <= still.sum() < still.size / 2
    assert noisy.dtype == np.int64  # whole numbers of units, wherever they are
    at_zero, elsewhere = (noisy - exact)[:, still], (noisy - exact)[:, ~still]
    assert ks_2samp(at_zero.ravel(), elsewhere.ravel()).pvalue > 1e-3
    for bits in range(1, 4):  # the lowest digits, where floats betray what was rounded
        last = noisy[:, still] % 2**bits, noisy[:, ~still] % 2**bits
        assert ks_2samp(last[0].ravel(), last[1].ravel()).pvalue > 1e-3
    floats = (exact * np.float32(CLIP / LEVELS)).astype(np.float32)  # the fault, for comparison
    drawn = np.random.default_rng(0).normal(size=floats.shape).astype(np.float32) * 2.0**-10
    finer = np.float32(2.0**-34)
    odd = (floats + drawn) % finer != 0
    assert odd[:, still].mean() > 5 * max(odd[:, np.abs(floats).max(0) > 0.1].mean(), 1e-3)


def test_a_wrong_width_of_the_noise_is_rejected():
    nobody = np.zeros(SIZE, bool)
    numbers = np.concatenate([released(rows_of(0), nobody, 100 + k)[0] for k in range(60)])
    assert kstest(numbers / SIGMA, "norm").pvalue > 1e-3
    for wrong in (SIGMA / 2, SIGMA * 4.0, SIGMA * 1.25):
        assert kstest(numbers / wrong, "norm").pvalue < 1e-6
