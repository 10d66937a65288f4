from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.errors import InputError
from siloweave.models.ctab import entries, fit_ctab, information
from siloweave.models.gan import GAN
from siloweave.models.gan_networks import (
    ConvCritic,
    ConvGenerator,
    Heads,
    _doubled,
    _halved,
    side_of,
)
from siloweave.models.settings import CTABSettings
from siloweave.tables.keys import generator
from tests.models.test_gan import BLOCKS, one_hot, table

KEY = jax.random.key(5)
SMALL = CTABSettings(noise=8, channels=4, batch=64, epochs=120, rate=4e-3)


@pytest.mark.parametrize(("width", "side"), [(16, 4), (17, 8)])
def test_a_row_is_padded_to_the_smallest_square(width, side):
    assert side_of(width) == side

    @eqx.filter_jit
    def made():
        net = ConvGenerator(5, width, 2, key=KEY)
        raw, running = net(jnp.ones((3, 5)))
        return net, raw, running, *ConvCritic(width, 2, key=KEY)(raw)

    net, raw, running, chance, features = made()
    assert raw.shape == (3, width)
    assert [m.shape for m, _ in running] == [n.scale.shape for n in net.norms]
    assert chance.shape == (3,)
    assert features.shape[0] == 3


@pytest.mark.parametrize("side", [2, 6])
def test_convolutions_are_those_of_the_library(side):
    x, kernel = (generator(i).random(shape).astype(np.float32)
                 for i, shape in enumerate([(3, side, side, 5), (4, 4, 5, 7)]))  # fmt: skip
    order = ("NHWC", "HWIO", "NHWC")
    down = jax.lax.conv_general_dilated(
        x, kernel, (2, 2), [(1, 1), (1, 1)], dimension_numbers=order
    )
    up = jax.lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=order)
    np.testing.assert_allclose(_halved(jnp.asarray(x), jnp.asarray(kernel)), down, rtol=1e-4)
    np.testing.assert_allclose(_doubled(jnp.asarray(x), jnp.asarray(kernel)), up, rtol=1e-4)


def test_a_row_that_is_too_wide_is_refused():
    assert [side_of(n) for n in (1, 257, 577, 1024)] == [4, 24, 32, 32]
    with pytest.raises(InputError, match="1,025"):
        side_of(1025)
    columns = tuple(dict.fromkeys(b.column for b in BLOCKS if b.kind == "categorical"))
    heads = Heads(BLOCKS, columns)
    assert entries(BLOCKS) == heads.width + heads.condition_width


def test_the_padding_says_nothing():
    rows = generator(1).random((6, 20)).astype(np.float32)
    padded = np.concatenate([rows, np.zeros((6, 44), np.float32)], axis=1)

    @eqx.filter_jit
    def scores():
        critic = ConvCritic(20, 4, key=KEY)
        return critic(jnp.asarray(rows))[0], critic(jnp.asarray(padded))[0]

    np.testing.assert_allclose(*scores(), rtol=1e-5)


def test_the_information_loss_is_zero_for_equal_features_only():
    x = generator(1).random((50, 4)).astype(np.float32)
    assert float(information(x, x[::-1])) == pytest.approx(0.0, abs=1e-5)
    y = 2 * x + 1
    want = np.abs(x.mean(0) - y.mean(0)).sum() + np.abs(x.std(0) - y.std(0)).sum()
    assert float(information(x, y)) == pytest.approx(want, rel=1e-4)
    slope = jax.grad(information, argnums=1)(jnp.ones((4, 2)), jnp.ones((4, 2)))
    assert np.isfinite(slope).all()


@pytest.mark.slow
def test_a_convolutional_gan_learns_draws_and_comes_back(tmp_path):
    gan = fit_ctab(table(), BLOCKS, SMALL, key=KEY, labels="flag")
    X = gan.sample(2_000, key=KEY)
    assert one_hot(X)
    assert X[:, 10].mean() == pytest.approx(table()[:, 10].mean(), abs=0.1)
    given = np.full((100, 11), np.nan, np.float32)
    given[:, 9:] = np.eye(2)[np.arange(100) % 2]
    told = gan.attempt(given, key=KEY)
    assert (told[:, 9:] == given[:, 9:]).mean() > 0.8
    sides = [np.sign(told[told[:, 9 + flag] == 1, 0]).mean() for flag in (0, 1)]
    assert sides[0] < sides[1] - 0.5
    gan.save(tmp_path / "gan")
    again = GAN.load(tmp_path / "gan")
    np.testing.assert_array_equal(again.sample(9, key=KEY), gan.sample(9, key=KEY))


def test_rows_are_drawn_by_the_average_of_the_weights():
    X = table()
    few = replace(SMALL, batch=len(X), epochs=1)
    made = [replace(few, epochs=0), few, replace(few, average=0.5)]
    first, last, mean = (fit_ctab(X, BLOCKS, one, key=KEY).generator.kernels for one in made)
    for a, b, c in zip(first, last, mean, strict=True):
        assert not np.allclose(a, b)
        np.testing.assert_allclose(c, 0.1 * a + 0.9 * b, rtol=1e-4, atol=1e-6)  # of step 0


def test_bad_settings_and_rows_are_refused():
    for field, value in (("noise", 0), ("batch", 1), ("rate", 0.0), ("epsilon", np.inf)):
        with pytest.raises(InputError, match=field):
            CTABSettings(**{field: value})
    X = table()
    X[2, 8] = np.nan
    with pytest.raises(InputError, match="'flat', row 2"):
        fit_ctab(X, BLOCKS, SMALL, key=KEY)
    with pytest.raises(InputError, match="labels"):
        fit_ctab(table(), BLOCKS, SMALL, key=KEY, labels="x")
