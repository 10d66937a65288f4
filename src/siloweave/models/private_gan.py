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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.models.conditional import Conditions, draw_conditions
from siloweave.models.critic import Critic, critic_losses
from siloweave.models.descent import Gradient
from siloweave.models.draws import GAN, draw
from siloweave.models.gan import GANSettings, Generator, check_numbers, conditional_columns
from siloweave.models.generator import Heads, Running
from siloweave.models.layout import Layout
from siloweave.models.nets import averaged
from siloweave.models.train import Poisson, Progress, Sampled, train
from siloweave.tables.features import Block

__all__ = ["PrivateGANSettings", "fit_private_gan"]

Array = jax.Array
Matrix = NDArray[np.float32]
_SETTLING = 10_000
_SCALE = 1_000_000  # what shares are multiplied with to become the counts that a GAN stores


@dataclass(frozen=True)
class PrivateGANSettings:
    """Settings of a GAN whose critic is trained privately.

    Attributes:
        noise: Random inputs of the generator.
        generator: Units of its hidden layers.
        critic: Units of the critic's hidden layers.
        temperature: Of the Gumbel-softmax.
        penalty: Weight of the gradient penalty.
        critic_rate: Of the critic's Adam.
        generator_rate: Of the generator's Adam.
        betas: Of Adam.
        batch: Expected number of real rows in a critic step, and rows of a generator step.
        steps: Critic steps.
        ratio: Critic steps to one of the generator.
        average: Share of the old weights in the moving average of the generator.

    Raises:
        InputError: A value is out of bounds.
    """

    noise: int = 64
    generator: tuple[int, ...] = (128, 128)
    critic: tuple[int, ...] = (64, 64)
    temperature: float = 0.2
    penalty: float = 10.0
    critic_rate: float = 1e-3
    generator_rate: float = 5e-4
    betas: tuple[float, float] = (0.5, 0.9)
    batch: int = 512
    steps: int = 1_000
    ratio: int = 5
    average: float = 0.99

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        for name in ("generator", "critic", "betas"):  # JSON knows lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("noise", "batch", "steps", "ratio"):
            if not getattr(self, name) >= 1:
                raise InputError(f"{name}={getattr(self, name)!r} must be 1 or more")
        for name in ("temperature", "critic_rate", "generator_rate"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name}={getattr(self, name)!r} must be above 0")
        if not 0 <= self.average < 1:
            raise InputError(f"average={self.average!r} must be in [0, 1)")
        if not 0 <= self.penalty < float("inf"):
            raise InputError(f"penalty={self.penalty!r} must be 0 or more")
        if not all(size >= 1 for size in (*self.generator, *self.critic)):
            raise InputError("generator and critic list units of hidden layers, each 1 or more")

    @property
    def plain(self) -> GANSettings:
        """What the generator that is left samples with."""
        return GANSettings(
            noise=self.noise,
            generator=self.generator,
            critic=self.critic,
            pac=1,
            dropout=0.0,
            temperature=self.temperature,
            batch=self.batch,
            average=self.average,
        )


class _State(NamedTuple):
    generator: Generator
    critic: Critic
    generator_moments: optax.OptState
    critic_moments: optax.OptState
    average: Generator
    step: Array


class _Step(eqx.Module):
    """One critic step, and every `ratio` times one of the generator."""

    settings: PrivateGANSettings = eqx.field(static=True)
    heads: Heads = eqx.field(static=True)
    conditions: Conditions = eqx.field(static=True)
    gradient: Gradient

    def start(self, key: Array) -> _State:
        a, b = jax.random.split(key)
        s = self.settings
        width = self.heads.width + self.heads.condition_width
        generator = s.plain.network(self.heads, a)
        critic = Critic(width, s.critic, pac=1, dropout=0.0, key=b)
        moments = self._adam(s.generator_rate).init(eqx.filter(generator, eqx.is_inexact_array))
        own = self._adam(s.critic_rate).init(eqx.filter(critic, eqx.is_inexact_array))
        return _State(generator, critic, moments, own, generator, jnp.array(0))

    def _adam(self, rate: float) -> optax.GradientTransformation:
        return optax.adam(rate, b1=self.settings.betas[0], b2=self.settings.betas[1])

    def __call__(self, state: _State, batch: Sampled, key: Array) -> tuple[_State, Array]:
        """Update; the loss is the critic's, of real rows, and not private."""
        a, b, c = jax.random.split(key, 3)
        pool = jax.lax.stop_gradient(self._made(state.generator, a)[0])

        def loss(critic: Critic, row: Array, key: Array) -> Array:
            return self.row_loss(critic, row, pool, key)

        slope, value = self.gradient(loss, state.critic, batch, b)
        s = self.settings
        change, own = self._adam(s.critic_rate).update(slope, state.critic_moments)
        critic = eqx.apply_updates(state.critic, change)
        learned = (state.generator, state.generator_moments, state.average)
        turn = state.step % s.ratio == s.ratio - 1
        generator, moments, average = jax.lax.cond(
            turn, lambda: self._follow(learned, critic, c), lambda: learned
        )
        return _State(generator, critic, moments, own, average, state.step + 1), value

    def _made(self, generator: Generator, key: Array) -> tuple[Array, Array, Array]:
        """Generated rows with their conditions behind them, the logits, and the conditions."""
        a, b = jax.random.split(key)
        asked = jnp.zeros((self.settings.batch, 0))
        if self.conditions.width:
            uniform = jax.random.uniform(a, (self.settings.batch,))
            places = draw_conditions(self.conditions.law("real"), uniform)
            asked = jax.nn.one_hot(places, self.conditions.width)
        fake, raw, _ = draw(self.settings.plain, self.heads, generator, asked, b)
        return jnp.concatenate([fake, asked], axis=1), raw, asked

    def row_loss(self, critic: Critic, row: Array, pool: Array, key: Array) -> Array:
        """The critic's loss of one real row.

        Args:
            critic: The critic.
            row: (width,), in inner order.
            pool: Generated rows with their conditions, which no real row has a part in.
            key: Picks the row's condition, its partner, and where between the two the slope is.
        """
        a, b, c = jax.random.split(key, 3)
        width, conditions = self.heads.width, self.conditions
        met = row[width - conditions.width :]
        if conditions.width:
            column = jax.random.randint(a, (), 0, len(conditions.sizes))
            met = met * (jnp.asarray(conditions.columns) == column)
        fake = pool[jax.random.randint(b, (), 0, pool.shape[0])]
        real = jnp.concatenate([row, met])[None]
        return critic_losses(critic, real, fake[None], weight=self.settings.penalty, key=c)[0]

    def _follow(self, learned: Any, critic: Critic, key: Array) -> Any:
        """One step of the generator, which sees no row."""
        generator, moments, average = learned

        def loss(generator: Generator) -> Array:
            made, raw, asked = self._made(generator, key)
            value = -critic(made).mean()
            if self.conditions.width:
                value += self.heads.cross_entropy(raw, asked).mean()
            return value

        slope = eqx.filter_grad(loss)(generator)
        change, moments = self._adam(self.settings.generator_rate).update(slope, moments)
        generator = eqx.apply_updates(generator, change)
        return generator, moments, averaged(average, generator, self.settings.average)


def fit_private_gan(
    X: Matrix,
    blocks: Sequence[Block],
    settings: PrivateGANSettings | None = None,
    *,
    shares: Mapping[int, Sequence[float]],
    key: Array,
    gradient: Gradient,
    sampler: Poisson,
    progress: Progress = lambda text, done: None,
    store: Path | None = None,
) -> GAN:
    """Train a GAN on feature vectors, its critic by a private gradient.

    Args:
        X: (rows, width), finite, numbers within -1 and 1 (``numeric="modes"`` gives such).
        blocks: What its columns are.
        settings: Sizes and training.
        shares: For every choice, by where its block starts, how frequent each category is: public,
            or paid for.
        key: A jax key: first weights and what the generator draws. May be public.
        gradient: What the critic follows: a function of the loss of one row, the critic, a batch
            and a key. It is all that reads rows.
        sampler: How rows are drawn.
        progress: Told how far training is, and the mean loss, which is not private.
        store: Folder for checkpoints; a call that finds one goes on from it.

    Raises:
        InputError: `X` does not fit.
        TrainingError: Training diverged.
    """
    settings = settings or PrivateGANSettings()
    layout = Layout(tuple(blocks))
    X = layout.check(X)
    check_numbers(X, layout)
    heads = Heads(layout.blocks, conditional_columns(layout, None))
    conditions = _conditions(heads, shares)
    step = _Step(settings, heads, conditions, gradient)
    a, b, c = jax.random.split(key, 3)
    state = train(
        eqx.filter_jit(step.start)(a),  # one program, not one for each shape
        step,
        np.ascontiguousarray(X[:, heads.order]),
        steps=settings.steps,
        batch=min(settings.batch, len(X)),
        key=b,
        sampler=sampler,
        progress=progress,
        store=store,
    )
    running = _settled(settings.plain, heads, state.average, conditions, c)
    return GAN(settings.plain, heads, conditions, state.average, running)


def _conditions(heads: Heads, shares: Mapping[int, Sequence[float]]) -> Conditions:
    """The paid shares as counts, at least one in each column."""
    sizes, counts = [], []
    for block in heads.conditional.choices:
        law = np.maximum(np.asarray(shares[block.start], dtype=np.float64), 0.0)
        law = law / law.sum() if law.sum() > 0 else np.full(block.size, 1.0 / block.size)
        sizes.append(block.size)
        counts += np.rint(_SCALE * law).astype(int).tolist()
    return Conditions(tuple(sizes), tuple(counts))


@eqx.filter_jit
def _settled(
    settings: GANSettings, heads: Heads, generator: Generator, conditions: Conditions, key: Array
) -> Running:
    """Batch statistics for rows drawn one by one, from 10,000 generated rows."""
    a, b = jax.random.split(key)
    asked = jnp.zeros((_SETTLING, 0))
    if conditions.width:
        places = draw_conditions(conditions.law("real"), jax.random.uniform(a, (_SETTLING,)))
        asked = jax.nn.one_hot(places, conditions.width)
    return draw(settings, heads, generator, asked, b)[2]
