"""CTAB-GAN: rows as small square images, and a convolutional GAN of them.

Zhao, Kunar, Birke & Chen, CTAB-GAN: Effective Table Data Synthesizing, ACML 2021. A row and its
condition are padded with zeros to a square; conditions cover the modes of numeric columns too. To
the logarithmic GAN loss come the condition's cross-entropy, the distance between mean and spread of
the critic's last features (information loss, L1), and, where a label column is named, a
classifier's disagreement with generated labels.

One departure: the classifier's loss is added to the generator's other losses and takes part in
the same step, where the authors' code takes a step of its own for it.

**Guarantee**: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from siloweave.models.gan import GAN, Batch, Seen, draw
from siloweave.models.gan_networks import (
    ConvCritic,
    Generator,
    Heads,
    adam,
    generator_of,
    stepped,
    stepped_average,
)
from siloweave.models.nets import MLP, Array, fresh
from siloweave.models.settings import CTABSettings
from siloweave.progress import Progress, silent
from siloweave.tables.arrays import Matrix
from siloweave.tables.features import Block, Layout

_LEAST = 1e-4  # added inside logarithms


def entries(blocks: Sequence[Block]) -> int:
    """How many entries a row has together with its condition, which names all its choices."""
    layout = Layout(tuple(blocks))
    return layout.width + sum(block.size for block in layout.categoricals)


class _State(NamedTuple):
    generator: Generator
    critic: ConvCritic
    classifier: MLP | None
    moments: tuple[optax.OptState, optax.OptState, optax.OptState]
    average: Generator


@dataclass(frozen=True)
class _Step:
    """One critic step, one classifier step, one generator step."""

    settings: CTABSettings  # of the GAN
    heads: Heads  # outputs of the generator
    label: tuple[int, int] | None  # where the label lies in a row, (start, size)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        s = self.settings
        return adam(s.rate, s.betas, epsilon=s.epsilon, decay=s.decay)

    @eqx.filter_jit
    def start(self, key: Array) -> _State:
        generator, critic, classifier = fresh(_networks, self, key=key)
        init, nothing = self._optimiser.init, optax.EmptyState()
        moments = (init(generator), init(critic), init(classifier) if classifier else nothing)
        return _State(generator, critic, classifier, moments, generator)

    def __call__(self, state: _State, batch: Batch, key: Array) -> tuple[_State, Array]:
        a, b, c, d = jax.random.split(key, 4)
        adam, (first, second, third) = self._optimiser, state.moments
        fake = draw(self.settings, self.heads, state.generator, batch.asked, a)[0]
        loss, slope = eqx.filter_value_and_grad(self.critic_loss)(state.critic, batch, fake)
        critic, second = stepped(adam, state.critic, slope, second)
        classifier = state.classifier
        if classifier is not None:
            slope = eqx.filter_grad(self.disagreement)(classifier, batch.real, c)
            classifier, third = stepped(adam, classifier, slope, third)
        slope = eqx.filter_grad(self.generator_loss)(
            state.generator, critic, state.classifier, batch, b, d
        )
        generator, first, average = stepped_average(
            adam, state.generator, slope, first, state.average, self.settings.average
        )
        return _State(generator, critic, classifier, (first, second, third), average), loss

    def critic_loss(self, critic: ConvCritic, batch: Batch, fake: Array) -> Array:
        """Binary cross-entropy of real and generated rows."""
        real, _ = critic(jnp.concatenate([batch.real, batch.met], axis=1))
        made, _ = critic(jnp.concatenate([fake, batch.asked], axis=1))
        return -jnp.log(real + _LEAST).mean() - jnp.log(1.0 - made + _LEAST).mean()

    def disagreement(self, classifier: MLP, rows: Array, key: Array) -> Array:
        """Cross-entropy of the classifier with the label in the rows."""
        assert self.label is not None
        start, size = self.label
        rest = jnp.concatenate([rows[:, :start], rows[:, start + size :]], axis=1)
        logs = jax.nn.log_softmax(classifier(rest, key=key), axis=1)
        return -(logs * rows[:, start : start + size]).sum(1).mean()

    def generator_loss(
        self, generator: Generator, critic: ConvCritic, classifier: MLP | None, batch: Batch,
        drawing: Array, dropping: Array,
    ) -> Array:  # fmt: skip
        """Adversarial, condition, information and classifier loss."""
        fake, raw, _ = draw(self.settings, self.heads, generator, batch.again, drawing)
        chance, ours = critic(jnp.concatenate([fake, batch.again], axis=1))
        _, theirs = critic(jnp.concatenate([batch.real, batch.met], axis=1))
        loss = -jnp.log(chance + _LEAST).mean() + information(theirs, ours)
        if self.heads.condition_width:
            loss += self.heads.cross_entropy(raw, batch.again).mean()
        if classifier is not None:
            loss += self.disagreement(classifier, fake, dropping)
        return loss


def _networks(step: _Step, *, key: Array) -> tuple[Generator, ConvCritic, MLP | None]:
    a, b, c = jax.random.split(key, 3)
    s, heads, classifier = step.settings, step.heads, None
    critic = ConvCritic(heads.width + heads.condition_width, s.channels, key=b)
    if step.label is not None:
        size = step.label[1]
        hidden = (256, 256, 256, 256)
        classifier = MLP(heads.width - size, hidden, size, key=c, act="leaky_relu", dropout=0.5)
    return generator_of(s, heads, a), critic, classifier


def information(real: Array, fake: Array) -> Array:
    """L1 distance of the means plus that of the standard deviations of two sets of features."""

    def spread(x: Array) -> Array:
        return jnp.sqrt(x.var(0) + 1e-12)  # the root has no slope at 0, where a feature is constant

    return jnp.abs(real.mean(0) - fake.mean(0)).sum() + jnp.abs(spread(real) - spread(fake)).sum()


def fit_ctab(
    X: Matrix,
    blocks: Sequence[Block],
    settings: CTABSettings | None = None,
    *,
    key: Array,
    labels: str | None = None,
    progress: Progress = silent,
    store: Path | None = None,
) -> GAN:
    """Train a CTAB-GAN on feature vectors; the arguments are those of `gan.fit_gan`.

    `labels` is the column of the classifier's loss; None for no such loss. Raises InputError also
    where rows with their conditions are too wide for 32 x 32.
    """
    layout, label = Layout(tuple(blocks)), None
    seen = Seen.of(X, layout, tuple(dict.fromkeys(b.column for b in layout.categoricals)))
    if labels is not None:
        block = layout.categorical_of(labels)
        label = (int(np.flatnonzero(seen.heads.order == block.start)[0]), block.size)
    return seen.fit(_Step(settings or CTABSettings(), seen.heads, label), key, progress, store)
