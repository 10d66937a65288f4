"""Autoencoders: what comes back, what a latent's law is, what is stored and refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.errors import DataError, InputError
from siloweave.models import autoencoder, coders
from siloweave.models.autoencoder import reconstruction
from siloweave.models.coders import RowCoder
from siloweave.models.denoiser import Rows
from siloweave.models.settings import AutoencoderSettings
from siloweave.tables.features import Block, Layout
from tests.models.toys import BLOCKS, toy

KEY = jax.random.key(2)
SETTINGS = AutoencoderSettings(
    hidden=(32,), latent=4, steps=600, batch=128, learning_rate=5e-3, decay=0.95
)
TINY = AutoencoderSettings(hidden=(8,), steps=3, batch=8)


@pytest.fixture(scope="module")
def fitted():
    return autoencoder.fit(toy(1000), BLOCKS, SETTINGS, key=KEY)


def test_rows_come_back(fitted):
    X = toy(500, seed=1)
    back = fitted.decode(fitted.encode(X), key=KEY)
    assert (back[:, 1:] == X[:, 1:]).all(1).mean() > 0.95
    assert np.abs(back[:, 0] - X[:, 0]).mean() < 0.2


def test_numbers_are_means_or_draws_around_them(fitted):
    Z = np.repeat(fitted.encode(toy(1)), 400, axis=0)
    means, drawn = (fitted.decode(Z, key=KEY, numbers=how)[:, 0] for how in ("mean", "draw"))
    assert np.ptp(means) == pytest.approx(0.0, abs=1e-5)
    assert drawn.std() > 0.02
    assert drawn.mean() == pytest.approx(means.mean(), abs=float(drawn.std() / 5))


def test_choices_are_draws_or_the_likeliest_option(fitted):
    """Half way between latents of two rows that differ, draws differ and the likeliest does not."""
    ends = fitted.encode(toy(40))
    Z = np.repeat((ends[:20] + ends[20:]) / 2, 50, axis=0)
    likeliest = replace(fitted, settings=replace(fitted.settings, heads="likeliest"))
    drawn, sure = (one.decode(Z, key=KEY)[:, 1:].reshape(20, 50, -1) for one in (fitted, likeliest))
    assert (drawn != drawn[:, :1]).any()
    np.testing.assert_array_equal(sure, np.repeat(sure[:, :1], 50, axis=1))
    assert (drawn.mean(1)[sure[:, 0] == 1] > 0.3).all()  # what is likeliest is drawn often


def test_the_reconstruction_is_the_likelihood_of_the_heads():
    """One number with mean 0.5 and variance e, one choice with shares 1/4 and 3/4."""
    out = jnp.array([[0.5, 1.0, 0.0, jnp.log(3.0)]])
    rows = Rows(jnp.array([[2.0]]), jnp.array([[1]]), jnp.zeros(1, jnp.int32))
    number = 0.5 * (np.log(2 * np.pi) + 1.0 + 1.5**2 / np.e)
    expected = (number - np.log(0.75)) / 2
    assert float(reconstruction(out, rows, ((1, 2),))[0]) == pytest.approx(expected, rel=1e-5)
    unused = rows._replace(numbers=jnp.array([[0.0]]))
    alone = float(reconstruction(out, unused, ((1, 2),))[0])
    assert alone == pytest.approx(-np.log(0.75) / 2, rel=1e-5)  # the head's 0 tells nothing


def test_the_divergence_is_that_of_normal_laws():
    """Zero weights: latents N(0, 1), so the divergence is nothing; a shifted mean costs μ²/2."""
    settings = AutoencoderSettings(hidden=(8,), latent=3, divergence=2.0)
    layout = Layout(BLOCKS)
    net = jax.tree.map(jnp.zeros_like, autoencoder.Coder(layout, settings, key=KEY))
    numbers, codes = layout.split(toy(5))
    rows = Rows(jnp.asarray(numbers), jnp.asarray(codes), jnp.zeros(5, jnp.int32))

    @jax.jit
    def loss(shift):
        bias = net.encoder.layers[-1].bias.at[:3].set(shift)
        moved = autoencoder.eqx.tree_at(lambda n: n.encoder.layers[-1].bias, net, bias)
        return autoencoder.row_losses(moved, rows, KEY, layout.groups, settings)

    plain = reconstruction(jnp.zeros((5, 7)), rows, layout.groups)
    assert np.asarray(loss(0.0)) == pytest.approx(np.asarray(plain), abs=1e-5)
    assert np.asarray(loss(2.0) - plain) == pytest.approx(2.0 * 3 * 2.0, abs=1e-4)


def test_a_stored_autoencoder_gives_the_same(tmp_path):
    model = coders.fit(toy(30), Layout(BLOCKS), TINY, key=KEY)
    model.save(tmp_path / "a.safetensors")
    again = RowCoder.load(tmp_path / "a.safetensors")
    Z = model.encode(toy(30))
    assert Z.shape == (30, 3)
    assert np.array_equal(Z, again.encode(toy(30)))
    assert np.array_equal(model.decode(Z, key=KEY), again.decode(Z, key=KEY))
    with pytest.raises(DataError, match="not a stored model"):
        RowCoder.load(tmp_path / "missing.safetensors")


def test_what_cannot_be_encoded_is_refused():
    X = toy(30)
    X[4, 0] = np.nan
    with pytest.raises(InputError, match="column 'x', row 4"):
        autoencoder.fit(X, BLOCKS, TINY, key=KEY)
    with pytest.raises(InputError, match=r"shape \(30, 5\)"):
        autoencoder.fit(toy(30)[:, :5], BLOCKS, TINY, key=KEY)


def test_a_column_of_one_value():
    X = np.zeros((20, 1), np.float32)
    model = autoencoder.fit(X, (Block("x", 0, 1, "number"),), TINY, key=KEY)
    assert np.isfinite(model.decode(model.encode(X), key=KEY)).all()
    assert model.decode(np.zeros((0, 1), np.float32), key=KEY).shape == (0, 1)
