"""The parts of a GAN, each against its definition."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, softmax

from siloweave import ADSGAN
from siloweave.core.settings import part_of
from siloweave.errors import InputError
from siloweave.models.conditional import (
    Conditions,
    draw_places,
    draw_rows,
    drawing,
)
from siloweave.models.gan import (
    GANStep,
    Matching,
    conditional_columns,
    distance,
    draw,
    entropy_weights,
)
from siloweave.models.gan_networks import (
    Critic,
    Heads,
    ResidualGenerator,
    critic_losses,
    gradient_penalty,
    packed,
)
from siloweave.models.settings import GANSettings
from siloweave.tables.features import Block, Layout
from siloweave.tables.keys import generator

KEY = jax.random.key(7)
BLOCKS = (
    Block("big", 0, 5, "categorical"),
    Block("x", 5, 1, "number"),
    Block("x", 6, 3, "categorical"),
    Block("flag", 9, 2, "categorical"),
    Block("y", 11, 1, "number"),
    Block("one", 12, 1, "categorical"),
    Block("other", 13, 2, "categorical"),
)
HEADS = Heads(BLOCKS, ("big", "flag", "one", "other"))
WIDTH = 15
COUNTS = {"big": [500, 100, 10, 1, 0], "flag": [300, 311], "one": [611], "other": [1, 610]}


def normal(seed, *shape):
    return stats.norm.ppf(generator(seed).random(shape)).astype(np.float32)


def table(rng=None):
    """Rows whose choices have the counts above, and numbers in [-1, 1]."""
    rng = rng or generator(0)
    X = np.zeros((611, WIDTH), np.float32)
    for block in BLOCKS:
        if block.kind == "number":
            X[:, block.start] = rng.random(611) * 2 - 1
            continue
        if block.column in COUNTS:
            codes = np.repeat(np.arange(block.size), COUNTS[block.column])
        else:
            codes = np.arange(611) % 3
        X[np.arange(611), block.start + rng.permutation(codes)] = 1
    return X


def rows_of(X, heads=HEADS):
    sizes = [b.size for b in heads.conditional.categoricals]
    codes = heads.conditional.split(X)[1].astype(np.int64)
    conditions = Conditions.of(codes, sizes)
    return (jnp.asarray(X[:, heads.order]), drawing(conditions, codes=codes)), conditions


# The critic


def plain_critic(pac=2, width=3, dropout=0.0):
    return Critic(width, (6, 5), pac=pac, dropout=dropout, key=KEY)


@eqx.filter_jit
def losses(critic, real, fake, weight):
    return critic_losses(critic, real, fake, weight=weight, key=KEY)


@eqx.filter_jit
def penalties(critic, real, fake, key):
    bottom = critic.layers[0]
    return gradient_penalty(critic, bottom(real), bottom(fake), key=key)


def test_a_pack_is_a_run_of_rows():
    rows = np.arange(12.0).reshape(6, 2)
    assert packed(jnp.asarray(rows), 3).tolist() == [list(range(6)), list(range(6, 12))]


def test_the_penalty_is_that_of_finite_differences():
    critic, real, fake = plain_critic(), normal(1, 4, 6), normal(2, 4, 6)
    found = penalties(critic, jnp.asarray(real), jnp.asarray(fake), KEY)
    share = np.asarray(jax.random.uniform(KEY, (4, 1)))
    between, h = share * real + (1 - share) * fake, 1e-3
    score = eqx.filter_jit(critic)
    up, down = (
        np.stack([score(between + s * h * np.eye(6)[i]) for i in range(6)], 1) for s in (1, -1)
    )
    slopes = (up - down) / (2 * h)
    np.testing.assert_allclose(found, (np.sqrt((slopes**2).sum(1)) - 1) ** 2, rtol=0.02)


def test_the_penalty_moves_weights_as_finite_differences_say():
    critic, real, fake = plain_critic(), jnp.asarray(normal(1, 4, 6)), jnp.asarray(normal(2, 4, 6))

    def penalty(critic):
        return penalties(critic, real, fake, KEY).sum()

    def moved(h):
        return eqx.tree_at(
            lambda c: c.layers[0].weight, critic, replace_fn=lambda w: w.at[1, 2].add(h)
        )

    slope = eqx.filter_grad(penalty)(critic).layers[0].weight[1, 2]
    numeric = (penalty(moved(1e-2)) - penalty(moved(-1e-2))) / 2e-2
    assert abs(float(slope)) > 1e-3
    assert float(slope) == pytest.approx(float(numeric), rel=0.05)


def test_a_flat_critic_is_penalised_without_nan():
    zero = jax.tree.map(lambda x: 0 * x if eqx.is_inexact_array(x) else x, plain_critic())
    x = jnp.ones((2, 6))
    loss = eqx.filter_jit(lambda c: penalties(c, x, x, KEY).mean())
    assert float(loss(zero)) == pytest.approx(1.0, abs=1e-5)
    assert all(
        bool(jnp.isfinite(g).all())
        for g in jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(loss))(zero))
    )


def test_a_critic_of_a_single_number_finds_the_right_sign():
    """It starts at slope -1, where a penalty for slopes below 1 as well would hold it for good."""
    critic = Critic(1, (), pac=1, dropout=0.0, key=jax.random.key(0))
    critic = eqx.tree_at(lambda net: net.layers[0].weight, critic, jnp.array([[-1.0]]))
    real, fake = jnp.full((8, 1), 0.8), jnp.full((8, 1), -0.8)

    def step(i, critic):
        key = jax.random.key(i)
        slope = eqx.filter_grad(
            lambda net: critic_losses(net, real, fake, weight=10.0, key=key).mean()
        )(critic)
        return jax.tree.map(lambda x, g: x - 0.01 * g, critic, slope)

    after = jax.jit(lambda net: jax.lax.fori_loop(0, 400, step, net))(critic)
    assert 0.9 < float(after.layers[0].weight[0, 0]) < 1.3


def test_losses_are_per_pack_and_a_row_moves_its_own_pack_only():
    critic, real, fake = plain_critic(), normal(1, 8, 3), normal(2, 8, 3)
    other = real.copy()
    other[5] += 1.0
    a, b = (
        critic_losses(
            critic, packed(jnp.asarray(r), 2), packed(jnp.asarray(fake), 2), weight=10.0, key=KEY
        )
        for r in (real, other)
    )
    assert a.shape == (4,)
    assert (np.asarray(a) != np.asarray(b)).tolist() == [False, False, True, False]


def test_losses_are_scores_and_penalty():
    critic, real, fake = plain_critic(), jnp.asarray(normal(1, 4, 6)), jnp.asarray(normal(2, 4, 6))
    with_, without = (losses(critic, real, fake, w) for w in (10.0, 0.0))
    np.testing.assert_allclose(without, critic(fake) - critic(real), rtol=1e-5, atol=1e-6)
    penalty = penalties(critic, real, fake, jax.random.split(KEY)[1])
    np.testing.assert_allclose(with_ - without, 10 * penalty, rtol=1e-3, atol=1e-5)


def test_dropout_drops_its_share_and_keeps_the_mean():
    masks = np.asarray(plain_critic(dropout=0.3).masks(5_000, KEY))
    assert masks.shape == (5_000, 11)
    assert set(np.unique(masks).round(4)) == {0.0, np.float32(1 / 0.7).round(4)}
    np.testing.assert_allclose(masks.mean(0), 1.0, atol=0.04)
    assert plain_critic().masks(5, KEY) is None


# Conditions


def test_categories_are_drawn_by_the_logarithm_of_their_counts():
    conditions = Conditions((5, 2), (500, 100, 10, 1, 0, 300, 311))
    weights = np.log1p([500, 100, 10, 1, 0])
    p, wrong = conditions.distribution("log"), conditions.distribution("real")
    np.testing.assert_allclose(p[:5], weights / weights.sum() / 2)
    np.testing.assert_allclose(wrong[:5], np.array([500, 100, 10, 1, 0]) / 611 / 2)
    drawn = np.asarray(draw_places(drawing(conditions), jax.random.uniform(KEY, (40_000,))))
    found = np.bincount(drawn, minlength=7)
    assert found[4] == 0
    assert stats.chisquare(found[p > 0], 40_000 * p[p > 0]).pvalue > 1e-3
    assert stats.chisquare(found[wrong > 0], 40_000 * wrong[wrong > 0]).pvalue < 1e-9


def test_draws_at_the_ends_stay_inside():
    frequencies = drawing(Conditions((5,), (0, 3, 0, 7, 0)), "real")
    ends = jnp.array([0.0, np.float32(1.0) - np.float32(6e-8), 0.2999, 0.3001])
    assert draw_places(frequencies, ends).tolist() == [1, 3, 1, 3]


def test_real_rows_meet_their_condition_and_all_of_them_are_reached():
    X = table()
    rows, conditions = rows_of(X)
    batch = jax.jit(Matching(conditions.sizes, 30_000))(rows, KEY)
    ours = np.asarray(batch.real)[:, -HEADS.condition_width :]
    assert ((ours * np.asarray(batch.met)).sum(1) == 1).all()
    assert (np.asarray(batch.met).sum(1) == 1).all()
    place = int(np.flatnonzero(np.array(conditions.counts) == 10)[0])
    picked = draw_rows(
        conditions.columns, rows[1], jnp.full(5_000, place), jax.random.uniform(KEY, (5_000,))
    )
    seen, many = np.unique(np.asarray(picked), return_counts=True)
    assert set(seen) == set(np.flatnonzero(X[:, 2] == 1))
    assert stats.chisquare(many).pvalue > 1e-3


def test_generated_rows_are_asked_for_the_same_conditions_in_other_packs():
    X = table()
    rows, conditions = rows_of(X)
    batch = jax.jit(Matching(conditions.sizes, 500))(rows, KEY)
    met, asked = (np.asarray(x).argmax(1) for x in (batch.met, batch.asked))
    assert sorted(met) == sorted(asked)
    assert not any(
        sorted(a) == sorted(b)
        for a, b in zip(met.reshape(-1, 10), asked.reshape(-1, 10), strict=True)
    )
    assert (np.asarray(batch.again).argmax(1) != asked).any()


def test_without_conditions_rows_are_drawn_uniformly():
    heads = Heads(BLOCKS, ())
    X = table()[:20]
    rows, conditions = rows_of(X, heads)
    batch = jax.jit(Matching(conditions.sizes, 8_000))(rows, KEY)
    assert batch.met.shape == (8_000, 0)
    _, many = np.unique(np.asarray(batch.real), axis=0, return_counts=True)
    assert many.size == 20
    assert stats.chisquare(many).pvalue > 1e-3


def test_an_unknown_frequency_is_refused():
    with pytest.raises(InputError, match="by='flat'"):
        Conditions((3, 2), (5, 0, 9, 1, 1)).distribution("flat")


# Heads


@eqx.filter_jit
def outputs(heads, raw, uniform):
    return heads.outputs(raw, 0.2, uniform)


@jax.jit
def slope_of_squares(raw, uniform):
    return jax.grad(lambda r: (HEADS.outputs(r, 0.2, uniform) ** 2).sum())(raw)


def test_inner_order_is_numbers_then_free_choices_then_conditions():
    names = [b.column for b in HEADS.parts]
    assert names == ["x", "one", "flag", "other", "big"]
    assert HEADS.order[:2].tolist() == [5, 11]
    assert sorted(HEADS.order.tolist()) == list(range(WIDTH))
    X = table()
    inner = X[:, HEADS.order]
    np.testing.assert_array_equal(HEADS.vectors(inner), X)


def test_a_choice_that_belongs_to_a_number_is_no_condition():
    assert conditional_columns(Layout(BLOCKS)) == ("one", "flag", "other", "big")


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_each_choice_is_the_softmax_of_noisy_logits(scale):
    raw = scale * normal(3, 50, WIDTH)
    u = generator(4).random((50, WIDTH)).astype(np.float32) * 0.98 + 0.01
    out = np.asarray(outputs(HEADS, jnp.asarray(raw), jnp.asarray(u)))
    np.testing.assert_allclose(out[:, :2], np.tanh(raw[:, :2]), rtol=1e-4, atol=1e-6)
    start = 2
    for block in HEADS.parts:
        part = slice(start, start + block.size)
        want = softmax((raw[:, part] - np.log(-np.log(u[:, part]))) / 0.2, axis=1)
        np.testing.assert_allclose(out[:, part], want, atol=1e-4)
        np.testing.assert_allclose(out[:, part].sum(1), 1.0, atol=1e-5)
        start += block.size
    assert np.isfinite(slope_of_squares(jnp.asarray(raw), jnp.asarray(u))).all()


def test_categories_are_drawn_by_their_shares():
    shares = np.array([0.5, 0.3, 0.2])
    heads = Heads((Block("c", 0, 3, "categorical"),), ("c",))
    raw = jnp.tile(jnp.log(jnp.asarray(shares, jnp.float32)), (30_000, 1))
    u = jax.random.uniform(KEY, raw.shape, minval=1e-7, maxval=1 - 1e-7)
    codes = heads.vectors(np.asarray(outputs(heads, raw, u))).argmax(1)
    assert stats.chisquare(np.bincount(codes), 30_000 * shares).pvalue > 1e-3


def test_cross_entropy_is_that_of_the_column_asked_for():
    raw = normal(5, 60, WIDTH) * 5
    places = np.arange(60) % HEADS.condition_width
    found = jax.jit(HEADS.cross_entropy)(jnp.asarray(raw), np.eye(HEADS.condition_width)[places])
    start, logs = WIDTH - HEADS.condition_width, []
    for block in HEADS.conditional.categoricals:
        logs.append(log_softmax(raw[:, start : start + block.size], axis=1))
        start += block.size
    want = -np.concatenate(logs, axis=1)[np.arange(60), places]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_the_generator_normalises_by_batch_or_by_given_statistics():
    net, x = ResidualGenerator(3, (4,), 2, key=KEY), jnp.asarray(normal(6, 9, 3))
    pre = np.asarray(net.layers[0](x))
    h = np.maximum((pre - pre.mean(0)) / np.sqrt(pre.var(0) + 1e-5), 0)
    raw, running = net(x)
    want = np.concatenate([h, x], 1) @ np.asarray(net.layers[1].weight) + net.layers[1].bias
    np.testing.assert_allclose(raw, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net(x[:1], running)[0], raw[:1], rtol=1e-4, atol=1e-5)


def test_noise_is_normal():
    settings = GANSettings(noise=40, generator=(), residual=False)
    heads = Heads((Block("x", 0, 1, "number"),), ())
    read = lambda x, running: (x[:, :1], ())  # noqa: E731
    raw = draw(settings, heads, read, jnp.zeros((20_000, 0)), KEY)[1]
    assert stats.kstest(np.asarray(raw)[:, 0], "norm").pvalue > 1e-3


# Identifiability


def test_both_readings_of_the_distance():
    real, fake = normal(1, 30, 4), normal(2, 30, 4)
    weights = np.array([0.5, 2.0, 1.0, 0.0], np.float32)
    apart = np.sqrt((((real[None] - fake[:, None]) * weights) ** 2).sum(-1))
    near = distance(jnp.asarray(real), jnp.asarray(fake), "nearest", weights)
    np.testing.assert_allclose(near, apart.min(1), rtol=1e-4)
    pairs = distance(jnp.asarray(real), jnp.asarray(fake), "pairs")
    np.testing.assert_allclose(pairs, np.sqrt(((real - fake) ** 2).sum(1)), rtol=1e-5)


def test_features_that_say_less_weigh_more():
    weights = dict(zip(HEADS.order.tolist(), entropy_weights(table(), HEADS), strict=True))
    p = np.array([500, 100, 10, 1]) / 611
    flag = np.array([300, 311]) / 611
    ratio = (flag @ np.log(flag)) / (p @ np.log(p))
    assert weights[0] / weights[9] == pytest.approx(ratio, rel=1e-6)
    assert weights[12] == 0.0  # one category never tells rows apart
    assert np.mean(list(weights.values())) == pytest.approx(1.0)


READINGS = ("pairs", "nearest")


def small(reading):
    return part_of(
        GANSettings,
        ADSGAN(identifiability=reading, generator=(8,), critic=(8,), dropout=0.0, batch=20),
    )


def test_the_generator_is_paid_for_its_distance():
    X = table()
    heads = Heads(BLOCKS, ())
    rows, conditions = rows_of(X, heads)
    batch = jax.jit(Matching(conditions.sizes, 20))(rows, KEY)
    step = GANStep(small(None), heads)
    state = eqx.filter_jit(step.start)(KEY)

    @jax.jit
    def at_once():
        found = []
        for reading in (None, *READINGS):
            step = GANStep(small(reading), heads, entropy_weights(X, heads))
            loss = step.generator_loss(state.generator, state.critic, batch, KEY, KEY)
            found.append(loss)
        fake = draw(step.settings, heads, state.generator, batch.again, KEY)[0]
        return found, [distance(batch.real, fake, r, step.weights).mean() for r in READINGS]

    (free, *found), apart = at_once()
    for loss, far in zip(found, apart, strict=True):
        assert float(free - loss) == pytest.approx(0.1 * float(far), rel=1e-3)


# Settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batch", 505), ("pac", 0), ("dropout", 1.0), ("temperature", 0.0), ("rate", -1.0),
        ("identifiability", "far"), ("generator", (0,)), ("epochs", -1), ("penalty", np.nan),
        ("average", 1.0), ("decay", np.inf),
    ],
)  # fmt: skip
def test_settings_out_of_bounds_are_named(field, value):
    with pytest.raises(InputError, match=field):
        GANSettings(**{field: value})


def test_settings_know_their_steps_and_take_lists():
    assert GANSettings(epochs=3).steps(1_600) == 9
    assert GANSettings(epochs=3).steps(20) == 3
    assert GANSettings(generator=[256, 256]) == GANSettings()
