"""Clipped sums: their sensitivity on random neighbours, and their noise, beside known faults."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from siloweave.errors import InputError
from siloweave.models.batches import Sampled, capacity, plan_of
from siloweave.models.critic import Critic, critic_losses, layered_losses
from siloweave.models.nets import MLP, Dense
from siloweave.models.train import Poisson
from siloweave.privacy import OSEntropy, SampledGaussian, SeededEntropy
from siloweave.privacy import accountants as ac
from siloweave.privacy.gradients import (
    BatchClipped,
    Private,
    batch_multiplier,
    batch_sensitivity,
    clipped_sum,
    rounding,
    secret_key,
)
from siloweave.privacy.normal import add_normal, normal

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
    return clipped_sum(loss, model, rows, mask, clip=clip, key=KEY, layer=layer)


def total(loss, rows, mask, layer=Dense, clip=CLIP, model=MODEL):
    return compiled(loss, model, rows, mask, jnp.float32(clip), layer)


@pytest.mark.parametrize("clip", [1e-3, CLIP, 1e6])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_book_keeping_equals_a_gradient_per_row(loss, clip):
    mask = jnp.array([True, True, False, True, True, False])
    booked = total(loss, rows_of(0), mask, Dense, clip)
    oracle = total(loss, rows_of(0), mask, None, clip)
    assert jax.tree.structure(booked.total) == jax.tree.structure(oracle.total)
    np.testing.assert_allclose(flat(booked.total), flat(oracle.total), rtol=2e-3, atol=1e-5 * clip)
    np.testing.assert_allclose(booked.losses, oracle.losses, rtol=1e-4)
    np.testing.assert_allclose(booked.norms, oracle.norms, rtol=2e-3)
    assert (np.asarray(booked.norms) >= np.asarray(oracle.norms) * (1 - 1e-5)).all()
    assert (np.asarray(booked.norms)[~np.asarray(mask)] == 0).all()


def test_layers_of_equinox_are_known_too():
    net = eqx.nn.MLP(4, 3, 5, 2, key=KEY)

    def loss(net, row, key):
        return jnp.sum(net(row) ** 2)

    mask = jnp.ones(SIZE, bool)
    booked = total(loss, rows_of(1), mask, eqx.nn.Linear, model=net)
    oracle = total(loss, rows_of(1), mask, None, model=net)
    np.testing.assert_allclose(flat(booked.total), flat(oracle.total), rtol=2e-3, atol=1e-5)


def farthest(make):
    """The largest distance between neighbours: one row less, and one row replaced."""
    removed, replaced = 0.0, 0.0
    for seed in range(8):
        rows = rows_of(seed, scale=10.0 ** (seed % 4 - 1))
        place = seed % SIZE
        rows = rows.at[place].multiply(1000.0 if seed > 3 else 1.0)  # one row that outshines all
        all_, without = jnp.ones(SIZE, bool), jnp.arange(SIZE) != place
        other = rows.at[place].set(-5 * rows[place])
        whole = flat(make(rows, all_))
        removed = max(removed, np.linalg.norm(whole - flat(make(rows, without))))
        replaced = max(replaced, np.linalg.norm(whole - flat(make(other, all_))))
    return removed, replaced


@pytest.mark.parametrize("layer", [Dense, None])
def test_the_clipped_sum_has_the_sensitivity_that_is_paid_for(layer):
    removed, replaced = farthest(lambda rows, mask: total(reconstruct, rows, mask, layer).total)
    assert 0.98 * CLIP < removed <= CLIP
    assert removed < replaced <= 2 * CLIP


def alike(count, seed):
    """A linear loss, rows that all pull one way, and how far taking one out moves their sum."""
    random = np.random.default_rng(seed)
    layer = Dense(64, 1, key=KEY)
    rows = jnp.asarray(np.tile(random.choice(random.uniform(5, 20, 64), 64), (count, 1)))
    rows, clip = rows.astype(jnp.float32), float(np.float32(random.uniform(0.5, 2)))

    def found(mask):
        return flat(total(linear, rows, mask, Dense, clip, layer).total) / clip

    whole = found(jnp.ones(count, bool))
    gone = (0, count // 2, count - 1)
    return max(np.linalg.norm(whole - found(jnp.arange(count) != place)) for place in gone)


def linear(layer, row, key):
    return layer(row).sum()


@pytest.mark.parametrize("count", [64, 4096])
def test_rounding_of_a_32_bit_sum_takes_less_than_half_of_what_the_clip_leaves_free(count):
    far = max(alike(count, seed) for seed in range(6))
    assert 1 - 2 * rounding(count) < far <= 1 - rounding(count) / 2


@jax.jit
def every_row(rows):
    return jax.vmap(eqx.filter_grad(reconstruct), (None, 0, 0))(
        MODEL, rows, jax.random.split(KEY, SIZE)
    )


def per_row(rows, mask):
    gradients = jax.tree.map(np.asarray, every_row(rows))
    return [jax.tree.map(lambda x, i=i: x[i], gradients) for i in np.flatnonzero(mask)]


def shrunk(tree, clip=CLIP):
    factor = min(1.0, clip / max(np.linalg.norm(flat(tree)), 1e-30))
    return jax.tree.map(lambda x: x * factor, tree)


def added(trees):
    return jax.tree.map(lambda *xs: sum(xs), *trees)


def clip_of_the_sum(rows, mask):
    """Mutant: the batch is clipped, not the row."""
    return shrunk(added(per_row(rows, mask)))


def clip_per_layer(rows, mask):
    """Mutant: every array gets the whole clip."""
    return added([jax.tree.map(shrunk, g) for g in per_row(rows, mask)])


def no_clip(rows, mask):
    return added(per_row(rows, mask))


def true_batch_size(rows, mask):
    """Mutant: the divisor tells how many rows were drawn (scaled back to compare)."""
    return jax.tree.map(lambda x: x * SIZE / mask.sum(), total(reconstruct, rows, mask).total)


@pytest.mark.parametrize("mutant", [clip_of_the_sum, clip_per_layer, no_clip])
def test_mutants_that_clip_something_else_move_further(mutant):
    assert farthest(mutant)[0] > CLIP * 1.05


def test_the_mutant_that_divides_by_the_true_batch_size_moves_further():
    """All gradients alike: with the constant divisor a removal moves by C, with the mutant's by 0
    or by more; opposite ones by more than C."""
    rows = jnp.concatenate([jnp.tile(rows_of(0)[:1], (SIZE - 1, 1)), -9 * rows_of(0)[:1]])
    mask, without = jnp.ones(SIZE, bool), jnp.arange(SIZE) != SIZE - 1
    sound = [flat(total(reconstruct, rows, m).total) for m in (mask, without)]
    mutant = [flat(true_batch_size(rows, m)) for m in (mask, without)]
    assert np.linalg.norm(sound[0] - sound[1]) <= CLIP
    assert np.linalg.norm(mutant[0] - mutant[1]) > 1.2 * CLIP


def test_batch_clipping_really_moves_by_twice_the_clip():
    """One huge row turns the clipped mean around: C is not enough, 2 C is, for one part."""
    w = jnp.zeros(2)
    frame = jnp.array([[0.0, 1.0]] * 5 + [[0.0, -1e6]])

    def linear(w, row, key):
        return (w * row).sum()

    noiseless = eqx.filter_jit(BatchClipped(KEY, clip=CLIP, sigma=1e-6))
    whole, _ = noiseless(linear, w, Sampled(frame, jnp.ones(6, bool)), KEY)
    without, _ = noiseless(linear, w, Sampled(frame, jnp.arange(6) < 5), KEY)
    distance = float(np.linalg.norm(flat(whole) - flat(without)))
    assert 1.99 * CLIP < distance <= batch_sensitivity(CLIP) * (1 + 1e-4)
    assert distance > CLIP  # the mutant without the factor 2 would be caught
    two = eqx.filter_jit(BatchClipped(KEY, clip=CLIP, sigma=1e-6, parts=2))

    def both(w, row, key):
        return (w[0] * row).sum() + (w[1] * row).sum()

    whole, _ = two(both, (w, w), Sampled(frame, jnp.ones(6, bool)), KEY)
    without, _ = two(both, (w, w), Sampled(frame, jnp.arange(6) < 5), KEY)
    distance = float(np.linalg.norm(flat(whole) - flat(without)))
    assert 2.8 * CLIP < distance <= batch_sensitivity(CLIP, parts=2) * (1 + 1e-4)
    assert batch_multiplier(0.5, parts=2) == pytest.approx(0.5 / (2 * 2**0.5))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, 1e30])
@pytest.mark.parametrize("layer", [Dense, None])
def test_a_row_whose_gradient_is_not_finite_counts_nothing(bad, layer):
    rows, mask = rows_of(2).at[1, 2].set(bad), jnp.ones(SIZE, bool)
    found = total(reconstruct, rows, mask, layer)
    without = total(reconstruct, rows, jnp.arange(SIZE) != 1, layer)
    np.testing.assert_array_equal(flat(found.total), flat(without.total))
    assert np.isfinite(flat(found.total)).all()


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_a_row_that_is_not_finite_counts_nothing_in_a_clipped_batch_either(bad):
    batch = eqx.filter_jit(BatchClipped(KEY, clip=CLIP, sigma=1e-6))
    rows, mask = rows_of(2), jnp.ones(SIZE, bool)
    given, loss = batch(reconstruct, MODEL, Sampled(rows.at[1, 2].set(bad), mask), KEY)
    without, _ = batch(reconstruct, MODEL, Sampled(rows, jnp.arange(SIZE) != 1), KEY)
    np.testing.assert_allclose(flat(given), flat(without), rtol=1e-4, atol=1e-5)
    assert np.linalg.norm(flat(given)) == pytest.approx(CLIP, rel=1e-3)
    assert np.isfinite(loss)
    nobody, _ = batch(reconstruct, MODEL, Sampled(rows.at[:].set(bad), mask), KEY)
    assert np.linalg.norm(flat(nobody)) < 1e-4


def private(noise=1.0, batch=4.0, entropy=None, layer=Dense):
    secret = secret_key(OSEntropy() if entropy is None else entropy)
    return Private(secret, clip=CLIP, noise_multiplier=noise, batch=batch, layer=layer)


def test_another_noise_or_divisor_needs_no_other_program():
    once, again = (eqx.partition(private(*x), eqx.is_array) for x in ((1.0, 4.0), (2.5, 7.0)))
    assert eqx.tree_equal(once[1], again[1]) is True
    assert float(private(2.5).noise_multiplier) > 2.5  # rounded up, never down


@eqx.filter_jit
def noisy(gradient, rows, mask, key):
    return gradient(reconstruct, MODEL, Sampled(rows, mask), key)[0]


def test_an_empty_batch_is_pure_noise_divided_by_the_expected_batch():
    nobody = jnp.zeros(SIZE, bool)
    given = [
        noisy(private(2.0, 4.0, entropy=SeededEntropy(i)), rows_of(0), nobody, jax.random.key(i))
        for i in range(60)
    ]
    numbers = np.stack([flat(g) for g in given])
    deviation = CLIP * 2.0 / 4.0
    assert kstest(numbers.ravel() / deviation, "norm").pvalue > 1e-3
    for wrong in (deviation / 2, deviation * 4.0, deviation / CLIP, deviation * 1.25):
        assert kstest(numbers.ravel() / wrong, "norm").pvalue < 1e-6  # a wrong scale is rejected
    assert independent(numbers)


def independent(numbers):
    """Whether the noise of no two steps is correlated."""
    correlation = np.corrcoef(numbers) - np.eye(len(numbers))
    return np.abs(correlation).max() < 6 / np.sqrt(numbers.shape[1])


def test_the_mutant_that_uses_a_key_twice_is_noticed():
    one = private()
    nobody = jnp.zeros(SIZE, bool)
    keys = [jax.random.key(i) for i in range(20)]
    fresh = np.stack([flat(noisy(one, rows_of(0), nobody, key)) for key in keys])
    again = np.stack([flat(noisy(one, rows_of(0), nobody, keys[0 if i == 7 else i]))
                      for i in range(20)])  # fmt: skip
    assert independent(fresh)
    assert not independent(again)


def test_noise_comes_from_the_operating_system_and_not_from_the_users_key():
    nobody, key = jnp.zeros(SIZE, bool), jax.random.key(0)
    first, second = (flat(noisy(private(), rows_of(0), nobody, key)) for _ in range(2))
    assert np.abs(first - second).min() > 0
    seeded = [flat(noisy(private(entropy=SeededEntropy(5)), rows_of(0), nobody, key))
              for _ in range(2)]  # fmt: skip
    np.testing.assert_array_equal(*seeded)


def test_a_secret_key_is_kept_for_an_interrupted_run_and_for_its_owner_only(tmp_path):
    first = secret_key(OSEntropy(), store=tmp_path)
    again = secret_key(OSEntropy(), store=tmp_path)
    assert (jax.random.key_data(first) == jax.random.key_data(again)).all()
    assert (jax.random.key_data(secret_key(OSEntropy())) != jax.random.key_data(first)).any()
    assert (tmp_path / "secret.json").stat().st_mode & 0o077 == 0


def test_no_two_numbers_share_noise_and_tails_reach_far():
    zeros = {"a": jnp.zeros((300, 40)), "b": jnp.zeros(12_000), "c": jnp.zeros(())}
    drawn = add_normal(zeros, 2.0, key=KEY)
    assert len(np.unique(flat(drawn))) > 23_000
    assert abs(np.corrcoef(np.ravel(drawn["a"]), drawn["b"])[0, 1]) < 0.05
    many = np.asarray(jax.jit(lambda: normal(KEY, (2_000_000,)))())
    assert kstest(many, "norm").pvalue > 1e-3
    assert abs((many**4).mean() - 3) < 0.05


def test_the_generator_is_threefry_and_its_quantiles_are_those_of_the_normal_law():
    from jax.extend.random import threefry_2x32
    from scipy.special import ndtri

    from siloweave.privacy.normal import _lower, threefry

    key = jax.random.key_data(KEY)
    counter = jnp.arange(50, dtype=jnp.uint32)
    ours = jnp.concatenate(threefry(key, counter, jnp.uint32(4)))
    theirs = threefry_2x32(key, jnp.concatenate([counter, jnp.full(50, 4, jnp.uint32)]))
    np.testing.assert_array_equal(ours, theirs)
    p = np.geomspace(2.0**-65, 0.5, 20_000).astype(np.float32)
    exact = ndtri(p.astype(np.float64))
    assert np.abs(np.asarray(_lower(jnp.asarray(p))) - exact).max() < 1e-3
    assert exact[0] < -9


def penalty(model, row, key):
    slope = jax.grad(lambda x: model.encoder(x).sum())(row)
    return (jnp.linalg.norm(slope) - 1) ** 2 + model.encoder(row).sum()


def test_a_gradient_penalty_is_refused_by_book_keeping_and_right_per_row():
    mask = jnp.ones(SIZE, bool)
    with pytest.raises(InputError, match="layer=None"):
        clipped_sum(penalty, MODEL, rows_of(0), mask, clip=CLIP, key=KEY, layer=Dense)
    found = total(penalty, rows_of(0), mask, None, clip=1e9)

    @jax.jit
    def whole(model):
        return jax.vmap(lambda row: penalty(model, row, KEY))(rows_of(0)).sum()

    sums = eqx.filter_grad(whole)(MODEL)
    np.testing.assert_allclose(flat(found.total), flat(sums), rtol=1e-3, atol=1e-5)


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
    mask = jnp.array([True, True, False, True, True, True])
    booked = total(written_out, rows_of(0, 1.0), mask, Dense, clip, CRITIC)
    oracle = total(nested, rows_of(0, 1.0), mask, None, clip, CRITIC)
    np.testing.assert_allclose(booked.losses, oracle.losses, rtol=1e-4)
    np.testing.assert_allclose(flat(booked.total), flat(oracle.total), rtol=5e-3, atol=1e-4 * clip)
    assert (np.asarray(booked.norms) >= np.asarray(oracle.norms) * (1 - 1e-5)).all()
    np.testing.assert_allclose(booked.norms, oracle.norms, rtol=2e-2)


def test_a_weight_used_outside_its_layer_is_refused():
    def decay(model, row, key):
        return jnp.sum(model.encoder.layers[0].weight ** 2)

    with pytest.raises(TypeError):
        clipped_sum(decay, MODEL, rows_of(0), jnp.ones(SIZE, bool), clip=1.0, key=KEY, layer=Dense)


def test_what_cannot_be_private_is_refused():
    with pytest.raises(InputError, match="Poisson sampling"):
        private()(reconstruct, MODEL, rows_of(0), KEY)
    with pytest.raises(InputError, match="noise_multiplier = 0"):
        private(noise=0.0)
    with pytest.raises(InputError, match="no such layer"):
        clipped_sum(
            reconstruct, jnp.zeros(3), rows_of(0), jnp.ones(SIZE, bool), clip=1.0, key=KEY,
            layer=Dense,
        )  # fmt: skip


def test_a_wrong_sampling_rate_is_noticed():
    """What the loop draws fits the rate that is charged, and no other."""
    count, rate, steps = 2000, 0.05, 200
    plan = plan_of(Poisson(rate), jnp.zeros((count, 1)), batch=1, key=KEY, most=steps)
    drawn = int(plan.picks(0, steps).sizes.sum())

    def plausible(claimed):
        spread = (count * steps * claimed * (1 - claimed)) ** 0.5
        return abs(drawn - count * steps * claimed) < 5 * spread

    assert plausible(rate)
    assert not plausible(rate / 2)
    assert not plausible(rate * 1.1)
    honest = ac.epsilon([SampledGaussian(1.0, rate, count=steps)], 1e-5)
    mutant = ac.epsilon([SampledGaussian(1.0, rate / 2, count=steps)], 1e-5)
    assert honest > 1.5 * mutant
    assert capacity(count, rate) > count * rate
