"""Sphere codes instead of an autoencoder: the codes, their evidence, and their diffusion."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.errors import DataError, InputError
from siloweave.models import latent
from siloweave.models.coders import RowCoder
from siloweave.models.denoiser import Evidence, NumberHead
from siloweave.models.diffusion import kept_variance
from siloweave.models.latent import LatentDiffusion
from siloweave.models.settings import (
    AutoencoderSettings,
    DiffusionSettings,
    LatentSettings,
    SphereCodeSettings,
)
from siloweave.models.sphere_codes import SphereCodeCoder, curve
from siloweave.tables.features import Block, Layout, SphereCode
from tests.models.toys import BLOCKS, JOINT, joint_of, toy

KEY = jax.random.key(3)
NOISE = DiffusionSettings(
    hidden=(64,), embed=32, timesteps=100, steps=800, batch=256, learning_rate=4e-3, decay=0.98
)
SETTINGS = LatentSettings(SphereCodeSettings(), NOISE)
KEPT = kept_variance("cosine", 1000)
CODES = (
    SphereCode(1, 1, 2),
    SphereCode(2, 2, 4),
    SphereCode(5, 1, 2),
)  # and plain numbers at 0 and 4
READING = NumberHead(6, "velocity", CODES)
EVIDENCE = READING.evidence


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def places(code):
    return slice(code.start, code.start + code.dimensions)


def own(j):
    """Columns of code j among all options."""
    return EVIDENCE.options.categorical == j


def noisy(at, n=7):
    kept = jnp.full((n, 1), KEPT[at], jnp.float32)
    clean = np.array(normal(0, n, 6))
    for code in CODES:
        clean[:, places(code)] = curve(code.options, code.dimensions)[np.arange(n) % code.options]
    noise = np.asarray(normal(1, n, 6))
    numbers = np.sqrt(KEPT[at]) * clean + np.sqrt(1 - KEPT[at]) * noise
    return jnp.asarray(clean), jnp.asarray(noise), jnp.asarray(numbers, jnp.float32), kept


@pytest.mark.parametrize("at", [0, 30, 500, 999])
def test_evidence_is_the_density_of_the_noise_up_to_a_constant(at):
    _, _, numbers, kept = noisy(at)
    for j, code in enumerate(CODES):
        alone = EVIDENCE.alone(numbers, kept)[:, own(j)]
        found = np.asarray(jax.nn.log_softmax(alone), np.float64)
        x = np.asarray(numbers, np.float64)[:, places(code)][:, None]
        a = float(np.float32(KEPT[at]))
        points = curve(code.options, code.dimensions)
        logs = -((x - np.sqrt(a) * points) ** 2).sum(-1) / (2 * (1 - a))
        logs -= logs.max(-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        np.testing.assert_allclose(found, logs, atol=1e-3 + 1e-5 * np.abs(logs).max())


def test_a_network_of_zeros_leaves_the_posterior_of_independent_columns():
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
    for j, code in enumerate(CODES):
        before = told[:, 2:][:, own(j)] + EVIDENCE.alone(numbers, kept)[:, own(j)]
        wanted -= np.asarray(jax.nn.log_softmax(before))[np.arange(7), np.arange(7) % code.options]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_what_is_no_part_of_a_code_is_a_number():
    assert READING.plain.tolist() == [0, 4]
    assert (READING.inputs, READING.outputs) == (6 + 2 + 2 + 4, 2 + 2 + 2 + 4)
    alone = NumberHead(2, "velocity", (SphereCode(1, 1, 1),))  # one option, wherever its point is
    assert alone.plain.tolist() == [0]
    bare = NumberHead(3)
    assert (bare.inputs, bare.outputs, bare.plain.tolist()) == (3, 3, [0, 1, 2])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 42, 256, 2900])
def test_codes_lie_in_order_evenly_on_a_sphere(size):
    dimensions = SphereCodeSettings().dimensions(size)
    points = curve(size, dimensions)
    assert points.shape == (size, dimensions)
    if size > 2:
        assert np.allclose((points**2).sum(1), dimensions)
        gaps = np.linalg.norm(points[:, None] - points[None], axis=2) + 9 * np.eye(size)
        steps = np.diag(gaps, 1)
        assert steps.max() < 1.06 * steps.min()
        assert gaps.min() > 0.75 * steps.min()  # the curve comes nowhere near itself
        if size > 5:  # fewer are about as far from one another
            assert (np.abs(gaps.argmin(1) - np.arange(size)) == 1).all()
        sent = points.astype(np.float16)  # as a party's latents travel
        assert np.abs(sent - points).max() < 0.02 * steps.min()
    assert points is curve(size, dimensions)
    assert not points.flags.writeable


def test_rows_come_back_and_noise_up_to_half_a_gap_does_no_harm():
    parts = [("a", 0, 5, "categorical"), ("b", 5, 1, "number"), ("c", 6, 40, "categorical")]
    layout = Layout(tuple(Block(*part) for part in [*parts, ("d", 46, 1, "categorical")]))
    draw = np.random.default_rng(0)
    codes = [draw.integers(b.size, size=300) for b in layout.blocks]
    X = np.zeros((300, 47), np.float32)
    for b, code in zip(layout.blocks, codes, strict=True):
        X[np.arange(300), b.start + code] = 1.0
    X[:, 5] = draw.uniform(size=300)
    coder = SphereCodeCoder.of(layout, SphereCodeSettings())
    Z = coder.encode(X)
    assert Z.shape == (300, coder.net.latent) == (300, 3 + 1 + 6 + 1)
    moved = Z + draw.uniform(-0.15, 0.15, Z.shape).astype(np.float32)
    assert np.array_equal(coder.decode(Z, key=KEY), X)
    choices = [i for i in range(47) if i != 5]
    assert np.array_equal(coder.decode(moved, key=KEY)[:, choices], X[:, choices])
    kept = [b for b in layout.blocks if b.kind == "categorical"]
    of = dict(zip([b.column for b in layout.blocks], codes, strict=True))
    for b, spot in zip(
        kept, coder.sphere_codes, strict=True
    ):  # what a denoiser is told is what is sent
        told = curve(spot.options, spot.dimensions)[of[b.column]]
        there = Z[:, spot.start : spot.start + spot.dimensions]
        np.testing.assert_array_equal(there, told.astype(np.float32))
    X[3, :5] = np.nan
    assert np.isnan(coder.encode(X)[3, :3]).all()
    assert np.isnan(coder.encode(X)).sum() == 3


@pytest.fixture(scope="module")
def fitted():
    return latent.fit(toy(2000), BLOCKS, SETTINGS, key=KEY)


def test_the_joint_distribution_is_recovered_and_kept(fitted, tmp_path):
    X = fitted.sample(2000, key=KEY, steps=25)
    assert joint_of(X) == pytest.approx(JOINT, abs=0.07)
    assert X[X[:, 4] == 1, 0].mean() == pytest.approx(-2.0, abs=0.2)
    assert X[X[:, 5] == 1, 0].mean() == pytest.approx(1.0, abs=0.2)
    fitted.save(tmp_path / "model.safetensors")
    again = LatentDiffusion.load(tmp_path / "model.safetensors")
    assert again.settings == fitted.settings
    assert np.array_equal(X, again.sample(2000, key=KEY, steps=25))


def matched_fit(X, blocks):
    brief = replace(NOISE, steps=60, matched=1024)
    settings = LatentSettings(SphereCodeSettings(), brief)
    return latent.fit(X, blocks, settings, key=KEY).distribution.diffusion


def test_only_plain_numbers_are_matched():
    model = matched_fit(toy(2000), BLOCKS)
    gain, shift = (np.asarray(model.scaling[name]) for name in ("gain", "shift"))
    plain = Evidence(gain.shape[1], model.layout.sphere_codes).plain
    assert 0 < len(plain) < gain.shape[1]
    assert (gain[:, plain] != 1).all()
    assert (shift[:, plain] != 0).all()
    # Codes of rare options would be moved by what chance does to a few rows of a pilot.
    assert (np.delete(gain, plain, axis=1) == 1).all()
    assert (np.delete(shift, plain, axis=1) == 0).all()


def test_without_plain_numbers_nothing_is_matched():
    blocks = (Block("a", 0, 3, "categorical"), Block("b", 3, 2, "categorical"))
    X = np.eye(3, 5, dtype=np.float32)[np.arange(60) % 3]
    X[:, 3] = 1.0
    assert not matched_fit(X, blocks).scaling


def test_codes_that_were_saved_elsewhere_are_refused(fitted, tmp_path):
    older = eqx.tree_at(lambda m: m.rows.coder.net.tables[0], fitted, replace_fn=lambda x: -x)
    for model, kind in ((older, LatentDiffusion), (older.rows, RowCoder)):
        model.save(tmp_path / "model.safetensors")
        with pytest.raises(DataError, match="sphere codes lay elsewhere: fit it again"):
            kind.load(tmp_path / "model.safetensors")


def test_any_column_can_be_given(fitted):
    given = np.full((2000, 6), np.nan, np.float32)
    given[:, 4:] = [0, 1]
    X = fitted.sample(2000, key=KEY, given=given, resamples=4, sampler="ddim", steps=25, eta=1.0)
    assert (X[:, 5] == 1).all()
    assert X[:, 0].mean() == pytest.approx(1.0, abs=0.35)
    given = np.full((100, 6), np.nan, np.float32)
    given[:, 0] = 1.25
    X = fitted.sample(100, key=KEY, given=given)
    assert X[:, 0] == pytest.approx(1.25, abs=1e-4)


def test_wrong_settings():
    with pytest.raises(InputError, match="per_bit"):
        SphereCodeSettings(per_bit=0.5)
    with pytest.raises(InputError, match="sphere codes learn nothing"):
        LatentSettings(SphereCodeSettings(), DiffusionSettings(prediction="clean"), joint=True)
    with pytest.raises(InputError, match="sphere codes leave numbers as they are"):
        LatentSettings(SphereCodeSettings(), DiffusionSettings(prediction="clean"), numbers="draw")
    assert isinstance(LatentSettings().autoencoder, AutoencoderSettings)
