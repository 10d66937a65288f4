"""CTGAN whose critic can be trained privately: nothing but the critic's gradient reads real rows.

Xie, Lin, Wang, Wang & Zhou, Differentially Private Generative Adversarial Network, 2018, for the
idea; Xu et al., Modeling Tabular Data using Conditional GAN, NeurIPS 2019, for the networks.

What differs from CTGAN, and why:

* One row in a pack, and a loss of one row: its own score, that of one generated row out of a pool,
  and the gradient penalty between the two. A real row's condition is its own category in a column
  that the row's key picks, so it is a function of that row.
* The pool has a fixed size, whatever the batch, and its batch normalisation sees generated rows
  only. Its conditions follow counts that the caller paid for, and so do those of the generator.
* Conditions are drawn by frequency and not by its logarithm, for real rows are drawn so too.
* The generator reads the critic and the paid counts: post-processing.
* Several critic steps to one of the generator (Bie, Kamath & Zhang, Private GANs, Revisited, 2023):
  a noisy critic needs them.

Who holds the rows, one owner or several, answers one step at a time (`GANSteps`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from siloweave.models.conditional import GAN, Conditions, Drawing, RowTable, draw, draw_by, drawing
from siloweave.models.gan import Generator, check_numbers, conditional_columns
from siloweave.models.gan_networks import Critic, Heads, Running, generator_of, layered_losses
from siloweave.models.layout import Layout
from siloweave.models.nets import averaged, fresh
from siloweave.models.rounds import Keys
from siloweave.models.settings import PrivateGANSettings
from siloweave.models.stepwise import Stepwise
from siloweave.models.train import Loss
from siloweave.tables.features import Block

__all__ = ["CriticRowLoss", "Duel", "GANSteps", "PrivateGANSettings"]

Array = jax.Array
Matrix = NDArray[np.float32]
_SETTLING = 10_000
_SCALE = 1_000_000  # what shares are multiplied with to become the counts that a GAN stores


class PrivateGANState(NamedTuple):
    """What training changes."""

    generator: Generator
    critic: Critic
    generator_moments: optax.OptState
    critic_moments: optax.OptState
    average: Generator
    step: Array


class Made(NamedTuple):
    """Generated rows.

    Attributes:
        rows: (n, width), in inner order.
        raw: The logits behind them, alike.
        places: (n,), which condition each was asked for.
        running: Batch statistics.
    """

    rows: Array
    raw: Array
    places: Array
    running: Running


class CriticRowLoss(eqx.Module):
    """The critic's loss of one real row.

    Attributes:
        heads: What a row is made of.
        penalty: Weight of the gradient penalty.
        pool: Generated rows with their conditions behind them, which no real row has a part in.
    """

    heads: Heads = eqx.field(static=True)
    penalty: float = eqx.field(static=True)
    pool: Array

    def __call__(self, critic: Critic, row: Array, key: Array) -> Array:
        """The loss.

        Args:
            critic: The critic.
            row: (width,), in inner order.
            key: Picks the row's condition, its partner, and where between the two the slope is.
        """
        a, b, c = jax.random.split(key, 3)
        sizes = [block.size for block in self.heads.conditional.choices]
        met = row[row.shape[0] - sum(sizes) :]
        if sizes:
            column = jax.random.randint(a, (), 0, len(sizes))
            met = met * (jnp.asarray(np.repeat(np.arange(len(sizes)), sizes)) == column)
        fake = self.pool[jax.random.randint(b, (), 0, self.pool.shape[0])]
        real = jnp.concatenate([row, met])[None]
        return layered_losses(critic, real, fake[None], weight=self.penalty, key=c)[0]


class Duel(eqx.Module):
    """A critic that follows real rows, and a generator that follows the critic.

    Attributes:
        settings: Sizes and rates.
        heads: Outputs of the generator.
        law: How conditions are drawn; public, or paid for. An array: other counts need no other
            program.
    """

    settings: PrivateGANSettings = eqx.field(static=True)
    heads: Heads = eqx.field(static=True)
    law: Drawing

    @classmethod
    def of(cls, settings: PrivateGANSettings, heads: Heads, conditions: Conditions) -> Duel:
        """With conditions drawn by their frequency."""
        nobody = np.zeros((0, len(conditions.sizes)), np.int32)
        made = replace(settings, steps=1, pool=settings.generated, batch=1)  # no part of a step
        return cls(made, heads, drawing(RowTable(nobody, conditions), "real"))

    @eqx.filter_jit
    def start(self, key: Array) -> PrivateGANState:
        """Fresh networks."""
        s = self.settings
        generator, critic = fresh(_networks, s, self.heads, key=key)
        moments = self._adam(s.generator_rate).init(eqx.filter(generator, eqx.is_inexact_array))
        own = self._adam(s.critic_rate).init(eqx.filter(critic, eqx.is_inexact_array))
        return PrivateGANState(generator, critic, moments, own, generator, jnp.array(0))

    def _adam(self, rate: float) -> optax.GradientTransformation:
        return optax.adam(rate, b1=self.settings.betas[0], b2=self.settings.betas[1])

    def made(self, generator: Generator, key: Array, count: int | None = None) -> Made:
        """Generate rows, as many as a step takes."""
        a, b = jax.random.split(key)
        uniform = jax.random.uniform(a, (count or self.settings.generated,))
        places = draw_by(self.law, uniform)
        rows, raw, running = draw(
            self.settings.plain, self.heads, generator, self._asked(places), b
        )
        return Made(rows, raw, places, running)

    def _asked(self, places: Array) -> Array:
        return jax.nn.one_hot(places, self.heads.condition_width)

    def whole(self, rows: Array, places: Array) -> Array:
        """Generated rows as the critic sees them, their conditions behind them."""
        return jnp.concatenate([rows.astype(jnp.float32), self._asked(places)], axis=1)

    def loss(self, rows: Array, places: Array) -> CriticRowLoss:
        """The critic's loss beside these generated rows."""
        return CriticRowLoss(self.heads, self.settings.penalty, self.whole(rows, places))

    def moved(self, state: PrivateGANState, slope: Any, key: Array) -> PrivateGANState:
        """A step of the critic along a slope, and every `ratio` times one of the generator."""
        s = self.settings
        change, own = self._adam(s.critic_rate).update(slope, state.critic_moments)
        critic = eqx.apply_updates(state.critic, change)
        learned = (state.generator, state.generator_moments, state.average)
        turn = state.step % s.ratio == s.ratio - 1
        generator, moments, average = jax.lax.cond(
            turn, lambda: self._follow(learned, critic, key), lambda: learned
        )
        return PrivateGANState(generator, critic, moments, own, average, state.step + 1)

    def _follow(self, learned: Any, critic: Critic, key: Array) -> Any:
        """One step of the generator, which sees no row."""
        generator, moments, average = learned

        def loss(generator: Generator) -> Array:
            made = self.made(generator, key)
            value = -critic(self.whole(made.rows, made.places)).mean()
            if self.heads.condition_width:
                value += self.heads.cross_entropy(made.raw, self._asked(made.places)).mean()
            return value

        slope = eqx.filter_grad(loss)(generator)
        step = optax.tree_utils.tree_get(moments, "count")  # its own, not the critic's
        change, moments = self._adam(self.settings.generator_rate).update(slope, moments)
        generator = eqx.apply_updates(generator, change)
        return generator, moments, averaged(average, generator, self.settings.average, step)


class Told(NamedTuple):
    """A step's message.

    Attributes:
        critic: Whose gradient is asked for.
        rows: (pool, width), generated rows in half precision.
        places: (pool,), the condition that each was asked for.
    """

    critic: Critic
    rows: Array
    places: Array


@dataclass(frozen=True)
class GANSteps(Stepwise):
    """The GAN step by step; a message is the critic and a pool of rows.

    A pool is fewer bytes than the generator, and who has the rows draws nothing for it.

    Attributes:
        settings: Of the GAN.
        blocks: Of a feature vector.
        shares: For every choice, by where its block starts, how frequent each category is: public,
            or paid for. Where they are None all are taken for equal: whoever generates nothing
            needs none.
    """

    settings: PrivateGANSettings
    blocks: tuple[Block, ...]
    shares: Mapping[int, Sequence[float]] | None

    @property
    def steps(self) -> int:
        """Of the critic."""
        return self.settings.steps

    @cached_property
    def heads(self) -> Heads:
        """Outputs of the generator."""
        layout = Layout(self.blocks)
        return Heads(layout.blocks, conditional_columns(layout, None))

    @cached_property
    def conditions(self) -> Conditions:
        """The shares as counts."""
        return _conditions(self.heads, self.shares)

    @cached_property
    def duel(self) -> Duel:
        """Steps of both networks."""
        with jax.ensure_compile_time_eval():  # kept, so no part of what is being traced
            return Duel.of(self.settings, self.heads, self.conditions)

    def keys(self, key: Array) -> Keys:
        """For first weights, steps, and batch statistics."""
        return Keys(*jax.random.split(key, 3))

    def rows(self, X: Matrix) -> Matrix:
        """Vectors in inner order; raises InputError where they do not fit."""
        layout = Layout(self.blocks)
        X = layout.check(X, least=0)
        check_numbers(X, layout)
        return np.ascontiguousarray(X[:, self.heads.order])

    def start(self, born: Array) -> PrivateGANState:
        """Fresh networks."""
        started: PrivateGANState = self.duel.start(born)
        return started

    def message(self, state: PrivateGANState, key: Array) -> Told:
        """The critic, and rows that the generator makes."""
        return Told(state.critic, *_pool(self.duel, state.generator, jax.random.fold_in(key, 0)))

    def task(self, message: Told) -> tuple[Critic, Loss]:
        """The critic, and its loss of one row beside these generated ones."""
        rows, places = (jnp.asarray(x) for x in message[1:])
        return message.critic, self.duel.loss(rows, places)

    def moved(self, state: PrivateGANState, slope: Any, key: Array) -> PrivateGANState:
        """The critic along the slope, and the generator where it is its turn."""
        return _moved(self.duel, state, slope, jax.random.fold_in(key, 1))

    def finish(self, state: PrivateGANState, rows: int, key: Array) -> GAN:
        """The generator's moving average, with batch statistics of its own rows."""
        running = _settled(self.duel, state.average, key)
        return GAN(self.settings.plain, self.heads, self.conditions, state.average, running)


def _networks(
    settings: PrivateGANSettings, heads: Heads, *, key: Array
) -> tuple[Generator, Critic]:
    a, b = jax.random.split(key)
    width = heads.width + heads.condition_width
    critic = Critic(width, settings.critic, pac=1, dropout=0.0, key=b)
    return generator_of(settings.plain, heads, a), critic


@eqx.filter_jit
def _pool(duel: Duel, generator: Generator, key: Array) -> tuple[Array, Array]:
    made = duel.made(generator, key)
    return made.rows.astype(jnp.float16), made.places


@eqx.filter_jit
def _moved(duel: Duel, state: PrivateGANState, slope: Any, key: Array) -> PrivateGANState:
    return duel.moved(state, slope, key)


@eqx.filter_jit
def _settled(duel: Duel, generator: Generator, key: Array) -> Running:
    """Batch statistics for rows drawn one by one, from 10,000 generated rows."""
    return duel.made(generator, key, _SETTLING).running


def _conditions(heads: Heads, shares: Mapping[int, Sequence[float]] | None) -> Conditions:
    """The paid shares as counts, at least one in each column."""
    sizes, counts = [], []
    for block in heads.conditional.choices:
        law = np.zeros(block.size)
        if shares is not None:
            law = np.maximum(np.asarray(shares[block.start], dtype=np.float64), 0.0)
        law = law / law.sum() if law.sum() > 0 else np.full(block.size, 1.0 / block.size)
        sizes.append(block.size)
        counts += np.rint(_SCALE * law).astype(int).tolist()
    return Conditions(tuple(sizes), tuple(counts))
