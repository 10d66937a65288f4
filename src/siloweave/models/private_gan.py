"""CTGAN whose critic can be trained privately: only the critic's gradient reads real rows.

Xie, Lin, Wang, Wang & Zhou, Differentially Private Generative Adversarial Network, 2018, for the
idea; Xu et al., Modeling Tabular Data using Conditional GAN, NeurIPS 2019, for the networks.

What differs from CTGAN, and why:

* One row in a pack, and a loss of one row: its own score, that of one generated row out of a pool,
  and the gradient penalty between the two. A real row's condition is its own category in a column
  that the row's key picks, so it is a function of that row.
* The pool has a fixed size, whatever the batch, and its batch normalisation sees generated rows
  only. Its conditions follow counts that the caller paid for, and so do those of the generator.
* Conditions are drawn by frequency and not by its logarithm, because real rows are drawn so too.
* Several critic steps to one of the generator (Bie, Kamath & Zhang, Private GANs, Revisited, 2023):
  a noisy critic needs them.

**Guarantee**: none by itself. Whoever clips the gradients of `GANSteps.task` and adds noise to
their sums, as `methods.dp_sgd` does, gets that mechanism's guarantee for the rows; it
assumes that the shares are public or paid for.
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

from siloweave.models.conditional import Conditions, Drawing, draw_places, drawing
from siloweave.models.gan import GAN, checked_numbers, conditional_columns, draw
from siloweave.models.gan_networks import (
    Critic,
    GANState,
    Generator,
    Heads,
    RowLoss,
    adam,
    generator_of,
    stepped,
    stepped_average,
)
from siloweave.models.nets import Array, fresh
from siloweave.models.settings import PrivateGANSettings
from siloweave.models.stepwise import Stepwise
from siloweave.models.train import Loss
from siloweave.tables.arrays import Matrix
from siloweave.tables.features import Block, Layout

# A share of 1 becomes this count in a GAN, which stores counts.
_SCALE = 1_000_000


class ConditionalRowLoss(RowLoss):
    """The critic's loss of one real row, whose condition is one of its own categories.

    Rows of the pool have their conditions behind them.
    """

    heads: Heads = eqx.field(static=True)

    def __call__(self, critic: Critic, row: Array, key: Array) -> Array:
        """Return the loss of one row; the key also picks the row's condition."""
        column_key, partner_key, slope_key = jax.random.split(key, 3)
        sizes = [block.size for block in self.heads.conditional.categoricals]
        # Choices that are conditions come last in a row.
        condition = row[row.shape[0] - sum(sizes) :]
        if sizes:
            picked_column = jax.random.randint(column_key, (), 0, len(sizes))
            column_of = jnp.asarray(np.repeat(np.arange(len(sizes)), sizes))
            condition = condition * (column_of == picked_column)
        whole = jnp.concatenate([row, condition])
        return self.beside(critic, whole, partner_key, slope_key)


class PrivateGANStep(eqx.Module):
    """A critic that follows real rows, and a generator that follows the critic.

    Frequencies of conditions are public, or paid for. They are arrays, so that other counts need no
    other program.
    """

    settings: PrivateGANSettings = eqx.field(static=True)
    heads: Heads = eqx.field(static=True)
    frequencies: Drawing

    @eqx.filter_jit
    def start(self, key: Array) -> GANState:
        """Return fresh networks."""
        s = self.settings
        generator, critic = fresh(_networks, s, self.heads, key=key)
        generator_moments = self._adam(s.generator_rate).init(generator)
        critic_moments = self._adam(s.critic_rate).init(critic)
        return GANState(generator, critic, generator_moments, critic_moments, generator)

    def _adam(self, rate: float) -> optax.GradientTransformation:
        return adam(rate, self.settings.betas)

    def _generated(
        self, generator: Generator, key: Array
    ) -> tuple[Array, Array, Array]:
        """Draw rows in inner order; return them, the logits behind, and places of conditions."""
        place_key, row_key = jax.random.split(key)
        uniform = jax.random.uniform(place_key, (self.settings.generated,))
        places = draw_places(self.frequencies, uniform)
        condition = self._vectors(places)
        rows, raw, _ = draw(
            self.settings.plain, self.heads, generator, condition, row_key
        )
        return rows, raw, places

    def _vectors(self, places: Array) -> Array:
        return jax.nn.one_hot(places, self.heads.condition_width)

    def whole(self, rows: Array, places: Array) -> Array:
        """Join generated rows and their conditions, as the critic reads them."""
        return jnp.concatenate(
            [rows.astype(jnp.float32), self._vectors(places)], axis=1
        )

    @eqx.filter_jit
    def pool(self, generator: Generator, key: Array) -> tuple[Array, Array]:
        """Draw generated rows, in half precision, with the place of each one's condition."""
        rows, _, places = self._generated(generator, key)
        return rows.astype(jnp.float16), places

    @eqx.filter_jit
    def moved(self, state: GANState, slope: Any, key: Array) -> GANState:
        """Take a step of the critic along a slope, and every `ratio` times one of the generator."""
        s = self.settings
        # Before this one.
        num_steps = optax.tree_utils.tree_get(state.critic_moments, "count")
        critic, critic_moments = stepped(
            self._adam(s.critic_rate), state.critic, slope, state.critic_moments
        )
        before = (state.generator, state.generator_moments, state.average)
        generator, generator_moments, average = jax.lax.cond(
            num_steps % s.ratio == s.ratio - 1,
            lambda: self._follow(before, critic, key),
            lambda: before,
        )
        return GANState(generator, critic, generator_moments, critic_moments, average)

    def _follow(self, before: Any, critic: Critic, key: Array) -> Any:
        """Take one step of the generator, which reads no real row."""
        generator, moments, average = before

        def loss(generator: Generator) -> Array:
            rows, raw, places = self._generated(generator, key)
            value = -critic(self.whole(rows, places)).mean()
            if self.heads.condition_width:
                value += self.heads.cross_entropy(raw, self._vectors(places)).mean()
            return value

        slope = eqx.filter_grad(loss)(generator)
        s = self.settings
        return stepped_average(
            self._adam(s.generator_rate), generator, slope, moments, average, s.average
        )


class CriticMessage(NamedTuple):
    """The message of one step: the critic, and generated rows."""

    critic: Critic  # whose gradient is asked for
    rows: Array  # (pool, width), generated rows in half precision
    places: Array  # (pool,), the condition that each was drawn under


@dataclass(frozen=True)
class GANSteps(Stepwise):
    """The GAN step by step; a message is the critic and a pool of rows.

    A pool is fewer bytes than the generator, and who has the rows draws nothing for it. `shares`
    are how frequent each category of a choice is, by where its block starts: public, or paid for.
    Without them all are taken to be equal: who only has rows needs no shares.
    """

    settings: PrivateGANSettings  # of the GAN
    blocks: tuple[Block, ...]  # of a feature vector
    shares: Mapping[int, Sequence[float]] | None

    @property
    def steps(self) -> int:
        """The number of steps of the critic."""
        return self.settings.steps

    @cached_property
    def heads(self) -> Heads:
        """The outputs of the generator."""
        layout = Layout(self.blocks)
        return Heads(layout.blocks, conditional_columns(layout))

    @cached_property
    def conditions(self) -> Conditions:
        """The conditions, with the paid shares as counts."""
        return _conditions(self.heads, self.shares)

    @cached_property
    def step(self) -> PrivateGANStep:
        """The steps of both networks, equal for all settings that a step does not read."""
        # Settings are part of what a compiled program is found by: those it does not read are set
        # to the same values, so that runs of other lengths and batches share it.
        s = replace(self.settings, steps=1, pool=self.settings.generated, batch=1)
        # Cached, so no part of what is being traced.
        with jax.ensure_compile_time_eval():
            return PrivateGANStep(s, self.heads, drawing(self.conditions, "real"))

    def rows(self, X: Matrix) -> Matrix:
        """Return vectors in inner order; raises InputError where they do not fit."""
        layout = Layout(self.blocks)
        X = checked_numbers(layout.check(X, least=0), layout)
        return np.ascontiguousarray(X[:, self.heads.order])

    def start(self, initial: Array) -> GANState:
        """Return fresh networks."""
        state: GANState = self.step.start(initial)
        return state

    def message(self, state: GANState, key: Array) -> CriticMessage:
        """Return the critic, and rows that the generator draws."""
        # 0 for the pool; `moved` takes 1, so that the generator learns from other rows.
        rows, places = self.step.pool(state.generator, jax.random.fold_in(key, 0))
        return CriticMessage(state.critic, rows, places)

    def task(self, message: CriticMessage) -> tuple[Critic, Loss]:
        """Return the critic, and its loss of one row beside these generated ones."""
        rows = jnp.asarray(message.rows)
        places = jnp.asarray(message.places)
        pool = self.step.whole(rows, places)
        loss = ConditionalRowLoss(self.settings.penalty, pool, self.heads)
        return message.critic, loss

    def moved(self, state: GANState, slope: Any, key: Array) -> GANState:
        """Move the critic along the slope, and the generator where it is its turn."""
        step_key = jax.random.fold_in(key, 1)
        state_after: GANState = self.step.moved(state, slope, step_key)
        return state_after

    def finish(self, state: GANState, rows: int, key: Array) -> GAN:
        """Return the generator's moving average, with batch statistics of its own rows."""
        return GAN.of(
            self.settings.plain,
            self.heads,
            self.conditions,
            state.average,
            key=key,
            by="real",
        )


def _networks(
    settings: PrivateGANSettings,
    heads: Heads,
    *,
    key: Array,
) -> tuple[Generator, Critic]:
    generator_key, critic_key = jax.random.split(key)
    width = heads.width + heads.condition_width
    # One row in a pack: a private step clips the gradient of a pack.
    critic = Critic(width, settings.critic, pac=1, dropout=0.0, key=critic_key)
    return generator_of(settings.plain, heads, generator_key), critic


def _conditions(
    heads: Heads, shares: Mapping[int, Sequence[float]] | None
) -> Conditions:
    """Return the paid shares as counts, at least one in each column."""
    sizes: list[int] = []
    counts: list[int] = []
    for block in heads.conditional.categoricals:
        p = np.zeros(block.size)
        if shares is not None:
            p = np.maximum(np.asarray(shares[block.start], dtype=np.float64), 0.0)
        # Noise may leave nothing of a column: then its options are equally frequent.
        equal = np.full(block.size, 1.0 / block.size)
        p = p / p.sum() if p.sum() > 0 else equal
        sizes.append(block.size)
        counts += np.rint(_SCALE * p).astype(int).tolist()
    return Conditions(tuple(sizes), tuple(counts))
