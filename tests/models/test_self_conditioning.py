"""A denoiser that reads its last estimate of sphere codes, and that learns to begin without."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.models import diffusion, latent
from siloweave.models.denoiser import NumberHead, Rows, row_losses
from siloweave.models.diffusion import (
    ReverseKind,
    ReverseWalk,
    denoise,
    kept_variance,
    table,
    walk,
)
from siloweave.models.latent import LatentDiffusion
from siloweave.models.settings import DiffusionSettings, LatentSettings, SphereCodeSettings
from siloweave.tables.features import SphereCode
from tests.models.test_diffusion import SMALL, TINY, assert_like_the_toy
from tests.models.toys import BLOCKS, toy

KEY = jax.random.key(8)
SHOWN = replace(TINY, self_conditioned=True)
BARS = kept_variance("cosine", SHOWN.timesteps)
CODES = (SphereCode(1, 1, 2),)  # after a plain number, two options of one dimension
HEAD = NumberHead(2, "velocity", CODES, self_conditioned=True)
POINTS = HEAD.evidence.expected(jnp.log(jnp.eye(2) + 1e-30))[:, 1]  # of either option


class Other(eqx.Module):
    """A network that is sure of the first option, and then of the one that it is not shown."""

    def __call__(self, x, t, labels, *, key=None):
        shown = x[:, -1:]
        is_first = shown * POINTS[0] <= 0
        sure = jnp.where(is_first, jnp.array([[1e4, 0.0]]), jnp.array([[0.0, 1e4]]))
        return jnp.concatenate([jnp.zeros((len(x), 1)), sure], -1)


@pytest.mark.parametrize(("steps", "option"), [(2, 1), (3, 0), (7, 0), (8, 1)])
def test_a_walk_shows_the_estimate_of_the_step_before(steps, option):
    plan = table(walk(BARS, "solver", steps, 1.0), 1, SHOWN.timesteps)
    ends = (jnp.full(2, -9.0), jnp.full(2, 9.0))
    start = ReverseWalk(Other(), plan, KEY, jnp.zeros(5, jnp.int32), ends)
    numbers, _ = denoise(start, None, ReverseKind(5, HEAD, ()))
    # Nothing is shown at the first step, and the last one ends at its estimate.
    assert np.asarray(numbers[:, 1]) == pytest.approx(float(POINTS[option]), abs=1e-5)


class Follower(eqx.Module):
    """A network that is sure of the first code's second option, and of what it is shown of it."""

    def __call__(self, x, t, labels, *, key=None):
        second = jnp.tile(jnp.array([0.0, 1e4]), (len(x), 1))
        follows = jnp.where(x[:, -2:-1] * POINTS[0] > 0, second[:, ::-1], second)
        return jnp.concatenate([second, follows], -1)


@pytest.mark.parametrize("sampler", ["ddim", "solver"])
def test_a_given_code_is_shown_as_the_network_estimates_it_and_not_as_it_is_given(sampler):
    head = NumberHead(2, "velocity", (SphereCode(0, 1, 2), CODES[0]), self_conditioned=True)
    plan = table(walk(BARS, sampler, 4, 1.0), 1, SHOWN.timesteps)
    ends = (jnp.full(2, -9.0), jnp.full(2, 9.0))
    start = ReverseWalk(Follower(), plan, KEY, jnp.zeros(5, jnp.int32), ends)
    no_codes = jnp.zeros((5, 0))
    given = jnp.tile(jnp.array([POINTS[0], 0.0]), (5, 1))
    is_given = jnp.tile(jnp.array([True, False]), (5, 1))
    fixed = diffusion._FixedCells(given, no_codes.astype(int), is_given, no_codes.astype(bool))
    numbers, _ = denoise(start, fixed, ReverseKind(5, head, ()))
    assert np.asarray(numbers[:, 0]) == pytest.approx(float(POINTS[0]), abs=1e-5)
    # It was given the first option, says the second, and is shown what it said.
    assert np.asarray(numbers[:, 1]) == pytest.approx(float(POINTS[1]), abs=1e-5)


def test_plain_numbers_are_not_shown():
    assert HEAD.shown.tolist() == [1]
    assert HEAD.inputs == replace(HEAD, self_conditioned=False).inputs + 1
    assert NumberHead(3, self_conditioned=True).inputs == 3


class Weighed(eqx.Module):
    """A network of one weight that keeps what it was called with."""

    weight: jax.Array
    calls: list = eqx.field(static=True)

    def __call__(self, x, t, labels, *, key=None):
        self.calls.append((x, t))
        # A number, and the logits of both options, that depend on all that is shown.
        logit = self.weight * (x[:, :1] + 2 * x[:, 1:2] + 3 * x[:, -1:])
        return jnp.concatenate([0 * logit, logit, -logit], -1)


def rows_of_one_code(count):
    values = jax.random.normal(KEY, (count,))
    options = jnp.arange(count) // 2 % 2
    numbers = jnp.stack([values, POINTS[options]], -1)
    return Rows(numbers, jnp.zeros((count, 0), jnp.int32), jnp.zeros(count, jnp.int32))


def losses(net, rows):
    with jax.disable_jit():
        return row_losses(net, rows, KEY, (), BARS, SHOWN, CODES)


def test_every_second_row_of_a_batch_is_learned_with_an_estimate():
    net = Weighed(jnp.array(0.3), [])
    losses(net, rows_of_one_code(7))
    (first, first_times), (second, times) = net.calls
    assert first_times.tolist() == times[::2].tolist()
    assert (first[:, -1] == 0).all()
    assert (second[1::2, -1] == 0).all()
    assert np.array_equal(second[::2, :-1], first[:, :-1])
    # What the first answers say of the clean codes.
    bars = jnp.asarray(BARS, jnp.float32)[
        jnp.round(first_times * SHOWN.timesteps / 1000).astype(int)
    ]
    again = Weighed(net.weight, [])
    clean = HEAD.clean(again(first, first_times, None), first[:, :2], bars[:, None])
    assert np.asarray(second[::2, -1]) == pytest.approx(np.asarray(clean[:, 1]), rel=1e-4)
    assert np.abs(clean[:, 1]).min() > 0


def test_no_gradient_passes_through_an_estimate():
    rows = rows_of_one_code(6)
    net = Weighed(jnp.array(0.3), [])
    losses(net, rows)
    _, (second, _) = net.calls

    class Fixed(Weighed):
        """One that reads that second input, whatever it is given."""

        def __call__(self, x, t, labels, *, key=None):
            return super().__call__(second if len(x) == len(second) else x, t, labels, key=key)

    def mean(net):
        return losses(net, rows).mean()

    found, expected = (eqx.filter_grad(mean)(made(net.weight, [])) for made in (Weighed, Fixed))
    assert float(found.weight) == pytest.approx(float(expected.weight), rel=1e-5)
    assert abs(float(found.weight)) > 1e-4


def test_without_sphere_codes_it_is_the_network_that_it_was():
    made = [diffusion.fit(toy(30), BLOCKS, settings, key=KEY) for settings in (TINY, SHOWN)]
    a, b = (model.sample(50, key=KEY) for model in made)
    assert np.array_equal(a, b)


def test_it_learns_mixture_and_joint_and_is_stored(tmp_path):
    own = replace(SMALL, residual=True, block_rate=0.5, self_conditioned=True, waves=2)
    settings = LatentSettings(SphereCodeSettings(), own)
    fitted = latent.fit(toy(4000), BLOCKS, settings, key=KEY, labels="y")
    drawn = fitted.sample(2000, key=KEY)
    assert_like_the_toy(drawn)
    fitted.save(tmp_path / "model.safetensors")
    again = LatentDiffusion.load(tmp_path / "model.safetensors")
    assert again.settings.diffusion.self_conditioned
    assert np.array_equal(again.sample(2000, key=KEY), drawn)


def test_the_second_look_counts_as_work():
    settings = DiffusionSettings(steps=10**6, batch=100, passes=None, work=42.0)
    assert settings.taken(10**6, weights=10**6) == 70_000
    assert replace(settings, self_conditioned=True).taken(10**6, weights=10**6) == 60_000
