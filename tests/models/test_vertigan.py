"""VertiGAN's maths: what a row moves, what the trunk follows, what is kept."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.errors import DataError, InputError
from siloweave.models import vertigan
from siloweave.models.gan_networks import RowLoss, gradient_penalty
from siloweave.models.settings import VertiGANSettings
from siloweave.models.vertigan import (
    Head,
    Trunk,
    follow,
    heads_of,
    hidden_rows,
    own_start,
    play,
    shared_start,
)
from siloweave.tables.features import Block

SMALL = VertiGANSettings(
    noise=3, trunk=(4, 4), head=(4,), critic=(4,), batch=8, made=6, rounds=2, critic_steps=2,
    average=0.0,
)  # fmt: skip
HEADS = heads_of([Block("age", 0, 1, "number"), Block("town", 1, 3, "categorical")])
LAW = [0.7, 0.25, 0.05]
KEY = jax.random.key(0)


def real(count, seed=0):
    rng = np.random.default_rng(seed)
    towns = np.eye(3)[rng.choice(3, count, p=LAW)]
    return jnp.asarray(np.c_[rng.uniform(-1, 1, count), towns], jnp.float32)


def start(settings=SMALL):
    return own_start(settings, HEADS, {1: LAW}, KEY)


# What a row moves


def summed(loss, rows, seen):
    """The clipped sum over those rows that count, as one vector, in units of the clip."""
    keys = jax.random.split(KEY, len(rows))
    every = jax.vmap(eqx.filter_grad(loss), (None, 0, 0))(start().critic, rows, keys)
    flat = jnp.concatenate([x.reshape(len(rows), -1) for x in jax.tree.leaves(every)], 1)
    norms = jnp.linalg.norm(flat, axis=1)
    return (jnp.minimum(1.0, 0.01 / norms) * seen) @ flat / 0.01


def test_a_row_moves_its_own_clipped_gradient_only():
    rows, pool = real(8), real(6, seed=1)
    others = rows.at[0].set(100.0)  # beyond all bounds: the fault at its worst

    def ours(batch):
        return RowLoss(SMALL.penalty, pool)

    def replica(batch):
        """The penalty's mean over the batch, added to the loss of each row."""

        def loss(critic, row, key):
            both = (critic.layers[0](x) for x in (batch, pool[:1] + 0.0 * batch))
            penalty = gradient_penalty(critic, *both, key=KEY).mean()
            return critic(pool[:1])[0] - critic(row[None])[0] + SMALL.penalty * penalty

        return loss

    @jax.jit
    def moved(seen):
        return [
            jnp.linalg.norm(summed(loss(others), others, seen) - summed(loss(rows), rows, seen))
            for loss in (ours, replica)
        ]

    everyone = jnp.ones(8, bool)
    assert 0.0 < moved(everyone)[0] <= 2.0 * (1 + 1e-5)
    own, fault = moved(everyone.at[0].set(False))  # what the other rows' gradients do
    assert own < 1e-5
    assert fault > 0.1


# What the trunk follows


def test_trunk_and_head_move_as_one_network_would():
    """The slopes that travel are the chain rule, cut in two."""
    shared, own = shared_start(SMALL, jax.random.key(1)), start()
    hidden = hidden_rows(SMALL, shared.trunk, KEY)
    after, slope = play(SMALL, HEADS, own, hidden, real(8), key=KEY)
    _, drawing = jax.random.split(KEY)

    def whole(both):
        trunk, head = both
        made = vertigan._rows(SMALL, HEADS, head, hidden_rows(SMALL, trunk, KEY), drawing)
        return -after.critic(made).mean()

    wanted, _ = eqx.filter_jit(eqx.filter_grad(whole))((shared.trunk, own.generator))
    _, back = eqx.filter_vjp(lambda trunk: hidden_rows(SMALL, trunk, KEY), shared.trunk)
    leaves = [jax.tree.leaves(tree) for tree in (wanted, back(slope)[0])]
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    step = follow(SMALL, shared, slope, KEY)  # Adam's first step is against the sign
    for new, old, down in zip(
        *map(jax.tree.leaves, (step.trunk, shared.trunk)), leaves[0], strict=True
    ):
        moved = np.abs(down) > 1e-6
        np.testing.assert_array_equal(np.sign(new - old)[moved], -np.sign(down)[moved])
    assert not np.array_equal(after.critic.layers[0].weight, own.critic.layers[0].weight)


def test_heads_start_from_the_frequencies_they_are_told():
    settings = VertiGANSettings(trunk=(4,), head=(4,))
    hidden = np.asarray(jax.random.uniform(KEY, (3000, 4)))
    known = own_start(settings, HEADS, {1: LAW}, KEY).generator
    rows = Head(settings, HEADS, known).decode(hidden, key=KEY)
    np.testing.assert_allclose(rows[:, 1:].mean(0), LAW, atol=0.12)
    assert set(np.unique(rows[:, 1:])) == {0.0, 1.0}
    assert np.abs(rows[:, 0]).max() <= 1.0
    blind = own_start(
        VertiGANSettings(trunk=(4,), head=(4,), informed=False), HEADS, {}, KEY
    ).generator
    gap = known.layers[-1].bias - blind.layers[-1].bias
    np.testing.assert_allclose(gap[1:], np.log(LAW), atol=1e-5)
    assert float(gap[0]) == 0.0


@pytest.mark.slow
def test_it_learns_one_partys_law():
    """Without noise, from a head that starts from chance."""
    settings = VertiGANSettings(
        noise=4, trunk=(16,), head=(16,), critic=(16,), batch=64, made=64, rounds=150,
        critic_steps=5, generator_rate=5e-3, critic_rate=5e-3, informed=False, average=0.5,
    )  # fmt: skip
    rows, shared = real(400), shared_start(settings, KEY)
    own = own_start(settings, HEADS, {}, KEY)
    rows = rows.at[:, 0].set(0.2 * rows[:, 0] - 0.6)
    for number in range(settings.rounds):
        key = jax.random.fold_in(KEY, number)
        hidden = hidden_rows(settings, shared.trunk, key)
        own, slope = play(settings, HEADS, own, hidden, rows, key=key)
        shared = follow(settings, shared, slope, key)
    trunk = Trunk(settings, shared.average, 1)
    made = Head(settings, HEADS, own.average).decode(trunk.sample(2500, key=KEY), key=KEY)
    assert np.abs(made[:, 1:].mean(0) - np.asarray(rows[:, 1:].mean(0))).sum() / 2 < 0.15
    assert abs(made[:, 0].mean() + 0.6) < 0.3  # from about 0


# What is kept


def test_networks_are_kept_as_data_and_read_again(tmp_path):
    shared, own = shared_start(SMALL, KEY), start()
    trunk, head = Trunk(SMALL, shared.trunk, 2), Head(SMALL, HEADS, own.generator)
    trunk.save(tmp_path / "trunk")
    head.save(tmp_path / "head")
    again, back = Trunk.load(tmp_path / "trunk"), Head.load(tmp_path / "head")
    hidden = trunk.sample(7, key=KEY)
    np.testing.assert_array_equal(again.sample(7, key=KEY), hidden)
    np.testing.assert_array_equal(back.decode(hidden, key=KEY), head.decode(hidden, key=KEY))
    assert again.parties == 2
    assert trunk.sample(0, key=KEY).shape == (0, 4)
    assert head.decode(hidden[:0], key=KEY).shape == (0, 4)
    with pytest.raises(DataError, match="no stored trunk"):
        Trunk.load(tmp_path / "head")
    (tmp_path / "head").write_bytes(b"")
    with pytest.raises(DataError, match="is not a stored model"):
        Head.load(tmp_path / "head")
    with pytest.raises(InputError, match="n=-1"):
        trunk.sample(-1, key=KEY)


def test_a_trunk_needs_a_layer():
    with pytest.raises(InputError, match=r"trunk=\(\) must have one layer"):
        VertiGANSettings(trunk=())
