"""A GAN with one generator and several critics that never meet: MD-GAN's two halves, with CTGAN.

Hardy, Le Merrer & Sericola, MD-GAN: Multi-discriminator generative adversarial networks for
distributed datasets, IPDPS 2019, Algorithm 1; the networks and losses are those of `models.gan`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from siloweave.models.conditional import Drawing, draw_by
from siloweave.models.critic import packed
from siloweave.models.draws import draw
from siloweave.models.gan import Batch, GANStep, Matching

__all__ = ["AskedRows", "Critics", "MadeRows", "asked_rows", "followed", "judged"]

Array = jax.Array


class AskedRows(NamedTuple):
    """What generated rows were asked for: places in the conditional vector, (batch,) int32."""

    places: Array
    again: Array


class MadeRows(NamedTuple):
    """Rows for the critics to learn from, and rows for them to judge, (batch, width)."""

    fake: Array
    again: Array


class Critics(NamedTuple):
    """One critic and the moments of its optimiser."""

    net: Any
    moments: Any


def _vectors(step: GANStep, places: Array) -> Array:
    return jax.nn.one_hot(places, step.heads.condition_width)


@eqx.filter_jit
def asked_rows(
    step: GANStep, generator: Any, law: Drawing, key: Array
) -> tuple[AskedRows, MadeRows]:
    """Draw conditions by the law of training, and rows for them.

    Args:
        step: Settings and heads.
        generator: The one generator.
        law: Conditions of all rows together.
        key: Of this update; `followed` is given the same.
    """
    a, b, c, d = jax.random.split(key, 4)
    size = (step.settings.batch,)
    if step.heads.condition_width:
        asked = AskedRows(*(draw_by(law, jax.random.uniform(k, size)) for k in (a, b)))
    else:
        asked = AskedRows(jnp.zeros(size, jnp.int32), jnp.zeros(size, jnp.int32))
    made = [
        draw(step.settings, step.heads, generator, _vectors(step, places), k)[0]
        for places, k in zip(asked, (c, d), strict=True)
    ]
    return asked, MadeRows(*made)


@eqx.filter_jit
def judged(
    step: GANStep,
    sampler: Matching,
    state: Critics,
    rows: Any,
    asked: AskedRows,
    made: MadeRows,
    key: Array,
) -> tuple[Critics, Array]:
    """One step of a critic on its owner's rows, then its feedback.

    Args:
        step: Settings and heads.
        sampler: Draws the owner's rows with conditions of their own.
        state: The critic.
        rows: What `sampler` reads.
        asked: What generated rows were asked for.
        made: Generated rows.
        key: Of this owner and update.

    Returns:
        The critic, and how its dislike changes with every entry of ``made.again``, (batch, width).
    """
    a, b, c = jax.random.split(key, 3)
    own: Batch = sampler(rows, a)
    batch = Batch(own.real, own.met, _vectors(step, asked.places), _vectors(step, asked.again))
    slope = eqx.filter_grad(step.critic_loss)(state.net, batch, made.fake, b)
    net, moments = step.moved(state.net, slope, state.moments, None)

    def dislike(again: Array) -> Array:
        rows = packed(jnp.concatenate([again, batch.again], axis=1), step.settings.pac)
        value: Array = -net(rows, masks=net.masks(rows.shape[0], c)).mean()
        return value

    return Critics(net, moments), jax.grad(dislike)(made.again)


@eqx.filter_jit
def followed(
    step: GANStep, state: Critics, asked: AskedRows, feedback: Array, key: Array
) -> tuple[Critics, Array]:
    """One step of the generator along the critics' mean feedback.

    Args:
        step: Settings and heads.
        state: The generator and its moments.
        asked: What its rows were asked for.
        feedback: (batch, width), of `judged`.
        key: The one of `asked_rows`.

    Returns:
        The generator, and whether it is finite.
    """
    condition, drawing = _vectors(step, asked.again), jax.random.split(key, 4)[3]

    def loss(generator: Any) -> Array:
        fake, raw, _ = draw(step.settings, step.heads, generator, condition, drawing)
        value = (fake * feedback).sum()
        if step.heads.condition_width:
            value += step.heads.cross_entropy(raw, condition).mean()
        return value

    slope = eqx.filter_grad(loss)(state.net)
    net, moments = step.moved(state.net, slope, state.moments, step.settings.clip)
    finite = [jnp.isfinite(x).all() for x in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array))]
    return Critics(net, moments), jnp.stack(finite).all()
