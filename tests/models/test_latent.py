"""Latent diffusion in two stages and as one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from siloweave.errors import InputError
from siloweave.models import latent
from siloweave.models.denoiser import Rows
from siloweave.models.latent import LatentDiffusion, cross_entropy
from siloweave.models.settings import AutoencoderSettings, DiffusionSettings, LatentSettings
from tests.models.toys import BLOCKS, JOINT, joint_of, toy

KEY = jax.random.key(4)
CODER = AutoencoderSettings(
    hidden=(32,), latent=4, steps=400, batch=128, learning_rate=5e-3, decay=0.95
)
NOISE = DiffusionSettings(
    hidden=(64,), embed=32, timesteps=100, steps=800, batch=256, learning_rate=4e-3, decay=0.98,
    prediction="noise",
)  # fmt: skip
TINY = LatentSettings(
    AutoencoderSettings(hidden=(8,), steps=3, batch=8),
    DiffusionSettings(hidden=(8,), embed=8, timesteps=10, steps=3, batch=8, prediction="clean"),
)


@pytest.mark.parametrize("prediction", ["noise", "clean"])
def test_both_predictions_recover_the_toy(prediction):
    settings = LatentSettings(CODER, replace(NOISE, prediction=prediction))
    model = latent.fit(toy(2000), BLOCKS, settings, key=KEY)
    X = model.sample(2000, key=KEY, steps=25)
    assert joint_of(X) == pytest.approx(JOINT, abs=0.1)
    assert X[X[:, 4] == 1, 0].mean() == pytest.approx(-2.0, abs=0.2)
    assert X[X[:, 5] == 1, 0].mean() == pytest.approx(1.0, abs=0.2)


def test_trained_as_one_it_recovers_the_joint_and_obeys_labels(tmp_path):
    """The joint loss decodes the mean of what is denoised, so numbers are drawn too narrowly."""
    diffusion = replace(NOISE, prediction="clean")
    coder = AutoencoderSettings(hidden=(32,), latent=4)
    settings = LatentSettings(coder, diffusion, joint=True, numbers="draw")
    model = latent.fit(toy(2000), BLOCKS, settings, key=KEY, labels="y")
    X = model.sample(2000, key=KEY, steps=25)
    assert joint_of(X) == pytest.approx(JOINT, abs=0.1)
    draws_the_same_when_stored(model, tmp_path / "l.safetensors", 2000, 25)
    given = np.full((2000, 6), np.nan, np.float32)
    given[:, 4:] = [0, 1]
    told = model.sample(2000, key=KEY, steps=25, given=given)
    assert (told[:, 5] == 1).all()
    assert told[:, 0].mean() == pytest.approx(1.0, abs=0.5)


def test_trained_as_one_every_column_of_a_row_counts():
    """A mean over columns would let latents say nothing: the squared error is least there."""

    class Known:
        def decode(self, back):
            told = [0.0, 1.0, 0.0, np.log(4.0), 0.0, np.log(3.0), 0.0, 0.0, 0.0]
            return jnp.tile(jnp.array(told), (len(back), 1))

    rows = Rows(jnp.array([[0.5, -1.0]]), jnp.array([[1, 2]]), jnp.zeros(1, jnp.int32))
    found = cross_entropy(Known(), jnp.zeros((1, 3)), rows, ((1, 2), (1, 3)))
    of_numbers = -norm.logpdf(0.5, 0.0, 1.0) - norm.logpdf(-1.0, 1.0, 2.0)
    assert float(found[0]) == pytest.approx(of_numbers - np.log(3 / 4) - np.log(1 / 3), rel=1e-5)


def draws_the_same_when_stored(model, path, n, steps):
    model.save(path)
    again = LatentDiffusion.load(path)
    assert again.settings == model.settings
    X = model.sample(n, key=KEY, steps=steps)
    assert np.array_equal(X, again.sample(n, key=KEY, steps=steps))
    assert not np.array_equal(X, again.sample(n, key=jax.random.key(9), steps=steps))


def test_stored_and_read_it_draws_the_same_rows(tmp_path):
    model = latent.fit(toy(30), BLOCKS, TINY, key=KEY, labels="y")
    draws_the_same_when_stored(model, tmp_path / "l.safetensors", 200, 5)


def test_what_it_cannot_do_is_said():
    model = latent.fit(toy(30), BLOCKS, TINY, key=KEY, labels="y")
    given = np.full((4, 6), np.nan, np.float32)
    given[:, 0] = 1.0
    with pytest.raises(InputError, match="column 'x'"):
        model.sample(4, key=KEY, given=given)
    assert model.sample(0, key=KEY).shape == (0, 6)
    with pytest.raises(InputError, match="prediction='clean'"):
        LatentSettings(diffusion=DiffusionSettings(prediction="noise"), joint=True)
    with pytest.raises(InputError, match="divergence"):
        replace(TINY, autoencoder=AutoencoderSettings(divergence=0.1), joint=True)
    with pytest.raises(InputError, match="numbers='mode'"):
        LatentSettings(numbers="mode")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scaled", False),
        ("autoencoder.steps", 3),
        ("autoencoder.decay", 0.5),
        ("autoencoder.jitter", 0.1),
        ("diffusion.passes", None),
        ("diffusion.loss_weight", 0.5),
        ("diffusion.clip_range", 3.0),
        ("diffusion.self_conditioned", True),
    ],
)
def test_what_a_joint_training_makes_no_use_of_is_refused_by_name(name, value):
    joint = {"autoencoder": {"latent": 4}, "diffusion": {"prediction": "clean"}, "joint": True}
    latent.settings_of_facts(joint)
    part, _, inner = name.rpartition(".")
    odd = {part: {**joint[part], inner: value}} if part else {inner: value}
    with pytest.raises(InputError, match=rf"^{name}={value!r} has no effect where joint=True"):
        latent.settings_of_facts(joint | odd)
