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
# Units of the classifier's layers.
_HIDDEN = (256, 256, 256, 256)


def entries(blocks: Sequence[Block]) -> int:
    """Count the entries of a row together with its condition, which has all its choices."""
    layout = Layout(tuple(blocks))
    return layout.width + sum(block.size for block in layout.categoricals)


class _Moments(NamedTuple):
    """The states of the three optimisers."""

    generator: optax.OptState
    critic: optax.OptState
    classifier: optax.OptState


class _State(NamedTuple):
    """All that training changes."""

    generator: Generator
    critic: ConvCritic
    classifier: MLP | None
    moments: _Moments
    average: Generator  # moving average of the generator


class _Label(NamedTuple):
    """The place of the label in a row."""

    start: int
    size: int


@dataclass(frozen=True)
class _Step:
    """One critic step, one classifier step, one generator step."""

    settings: CTABSettings  # of the GAN
    heads: Heads  # outputs of the generator
    label: _Label | None  # None without a classifier

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        s = self.settings
        return adam(s.rate, s.betas, epsilon=s.epsilon, decay=s.decay)

    @eqx.filter_jit
    def start(self, key: Array) -> _State:
        generator, critic, classifier = fresh(_networks, self, key=key)
        optimiser = self._optimiser
        classifier_moments: optax.OptState = optax.EmptyState()
        generator_moments = optimiser.init(generator)
        critic_moments = optimiser.init(critic)
        if classifier is not None:
            classifier_moments = optimiser.init(classifier)
        moments = _Moments(generator_moments, critic_moments, classifier_moments)
        return _State(generator, critic, classifier, moments, generator)

    def __call__(self, state: _State, batch: Batch, key: Array) -> tuple[_State, Array]:
        fake_key, drawing_key, classifier_key, dropping_key = jax.random.split(key, 4)
        optimiser = self._optimiser
        moments = state.moments

        # The critic.
        fake, _, _ = draw(
            self.settings, self.heads, state.generator, batch.asked, fake_key
        )
        critic_gradient = eqx.filter_value_and_grad(self.critic_loss)
        loss, slope = critic_gradient(state.critic, batch, fake)
        critic, critic_moments = stepped(optimiser, state.critic, slope, moments.critic)

        # The classifier, which learns from real rows alone.
        classifier = state.classifier
        classifier_moments = moments.classifier
        if classifier is not None:
            classifier_gradient = eqx.filter_grad(self.disagreement)
            slope = classifier_gradient(classifier, batch.real, classifier_key)
            classifier, classifier_moments = stepped(
                optimiser, classifier, slope, classifier_moments
            )

        # The generator, by the critic after its step and the classifier before it.
        generator_gradient = eqx.filter_grad(self.generator_loss)
        slope = generator_gradient(
            state.generator, critic, state.classifier, batch, drawing_key, dropping_key
        )
        generator, generator_moments, average = stepped_average(
            optimiser,
            state.generator,
            slope,
            moments.generator,
            state.average,
            self.settings.average,
        )
        moments = _Moments(generator_moments, critic_moments, classifier_moments)
        return _State(generator, critic, classifier, moments, average), loss

    def critic_loss(self, critic: ConvCritic, batch: Batch, fake: Array) -> Array:
        """Return the binary cross-entropy of real and generated rows."""
        real_chance, _ = critic(jnp.concatenate([batch.real, batch.met], axis=1))
        fake_chance, _ = critic(jnp.concatenate([fake, batch.asked], axis=1))
        real_loss = -jnp.log(real_chance + _LEAST).mean()
        return real_loss - jnp.log(1.0 - fake_chance + _LEAST).mean()

    def disagreement(self, classifier: MLP, rows: Array, key: Array) -> Array:
        """Return the cross-entropy of the classifier with the label in the rows."""
        assert self.label is not None
        start = self.label.start
        stop = start + self.label.size
        rest = jnp.concatenate([rows[:, :start], rows[:, stop:]], axis=1)
        logs = jax.nn.log_softmax(classifier(rest, key=key), axis=1)
        return -(logs * rows[:, start:stop]).sum(1).mean()

    def generator_loss(
        self,
        generator: Generator,
        critic: ConvCritic,
        classifier: MLP | None,
        batch: Batch,
        drawing: Array,
        dropping: Array,
    ) -> Array:
        """Return the sum of adversarial, condition, information and classifier loss."""
        fake, raw, _ = draw(self.settings, self.heads, generator, batch.again, drawing)
        chance, fake_features = critic(jnp.concatenate([fake, batch.again], axis=1))
        _, real_features = critic(jnp.concatenate([batch.real, batch.met], axis=1))
        adversarial = -jnp.log(chance + _LEAST).mean()
        loss = adversarial + information(real_features, fake_features)
        if self.heads.condition_width:
            loss += self.heads.cross_entropy(raw, batch.again).mean()
        if classifier is not None:
            loss += self.disagreement(classifier, fake, dropping)
        return loss


def _networks(step: _Step, *, key: Array) -> tuple[Generator, ConvCritic, MLP | None]:
    generator_key, critic_key, classifier_key = jax.random.split(key, 3)
    s = step.settings
    heads = step.heads
    critic = ConvCritic(heads.width + heads.condition_width, s.channels, key=critic_key)
    classifier = None
    if step.label is not None:
        size = step.label.size
        classifier = MLP(
            heads.width - size,
            _HIDDEN,
            size,
            key=classifier_key,
            act="leaky_relu",
            dropout=0.5,
        )
    return generator_of(s, heads, generator_key), critic, classifier


def information(real: Array, fake: Array) -> Array:
    """Return how far two sets of features differ: the L1 distances of means and of deviations."""

    def spread(x: Array) -> Array:
        # The root has no slope at 0, where a feature is constant.
        return jnp.sqrt(x.var(0) + 1e-12)

    between_means = jnp.abs(real.mean(0) - fake.mean(0)).sum()
    return between_means + jnp.abs(spread(real) - spread(fake)).sum()


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
    layout = Layout(tuple(blocks))
    columns = tuple(dict.fromkeys(block.column for block in layout.categoricals))
    rows = Seen.of(X, layout, columns)
    label = None
    if labels is not None:
        block = layout.categorical_of(labels)
        places = np.flatnonzero(rows.heads.order == block.start)
        label = _Label(int(places[0]), block.size)
    step = _Step(settings or CTABSettings(), rows.heads, label)
    return rows.fit(step, key, progress, store)
