"""GANs of rows: CTGAN, and ADS-GAN with both readings of identifiability.

CTGAN: Xu, Skoularidou, Cuesta-Infante & Veeramachaneni, Modeling Tabular Data using Conditional
GAN, NeurIPS 2019, with the layers and rates of its release 0.12. Numbers come as modes
(``Features.fit(..., numeric="modes")``), conditions from `models.conditional`.

ADS-GAN: Yoon, Drumright & van der Schaar, Anonymization through Data Synthesis using GANs, IEEE
JBHI 2020: the generator is also paid for keeping its distance from real rows. Two readings of
that distance are in use. ``"nearest"`` is the paper's: from a generated row to its nearest real
row, features weighted by the inverse of their entropy (here among the rows of a batch). ``"pairs"``
is synthcity's: from each generated row to one arbitrary real row, without weights. The second
rewards spread, and says nothing about the nearest row. Neither is a privacy guarantee.

One update is one critic step and one generator step, compiled into the loop of `models.train`.

A GAN with one generator and several critics that never meet: MD-GAN's two halves, with CTGAN.

Hardy, Le Merrer & Sericola, MD-GAN: Multi-discriminator generative adversarial networks for
distributed datasets, IPDPS 2019, Algorithm 1; the networks and losses are those of `models.gan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.models.conditional import (
    GAN,
    Conditions,
    Drawing,
    draw,
    draw_by,
    draw_rows,
    drawing,
    row_table,
    settle,
)
from siloweave.models.gan_networks import (
    Critic,
    Heads,
    PlainGenerator,
    ResidualGenerator,
    critic_losses,
    generator_of,
    packed,
)
from siloweave.models.layout import Layout
from siloweave.models.nets import averaged, fresh
from siloweave.models.settings import GANSettings
from siloweave.models.train import Progress, train
from siloweave.tables.features import Block

Array = jax.Array
Matrix = NDArray[np.float32]
Generator = ResidualGenerator | PlainGenerator


class GANState(NamedTuple):
    """What training changes."""

    generator: Generator
    critic: Critic
    generator_moments: optax.OptState
    critic_moments: optax.OptState
    average: Generator


class Batch(NamedTuple):
    """What one update is given, all with `batch` rows.

    Attributes:
        real: Real rows in inner order.
        met: The conditions that they were drawn by.
        asked: The conditions of the rows generated for the critic: the same, moved by half a
            batch, so that they meet in other packs. As draws are independent, that is as good as
            a random order.
        again: The conditions of the rows generated for the generator's own step.
    """

    real: Array
    met: Array
    asked: Array
    again: Array


@dataclass(frozen=True)
class Matching:
    """Draws conditions, and real rows that meet them in another order.

    Attributes:
        sizes: Categories of each column that is a condition; without any, rows are drawn
            uniformly with replacement.
        batch: Rows.
    """

    sizes: tuple[int, ...]
    batch: int

    def __call__(self, rows: tuple[Array, Drawing], key: Array) -> Batch:
        """Draw from (rows in inner order, what they are drawn by)."""
        X, law = rows
        width = sum(self.sizes)
        uniform = jax.random.uniform(key, (3, self.batch))
        if width == 0:
            index = (uniform[0] * X.shape[0]).astype(jnp.int32)
            nothing = jnp.zeros((self.batch, 0))
            return Batch(X[jnp.minimum(index, X.shape[0] - 1)], nothing, nothing, nothing)
        columns = np.repeat(np.arange(len(self.sizes)), self.sizes)
        asked = draw_by(law, uniform[0])
        met = jnp.roll(asked, self.batch // 2 + 1)
        real = X[draw_rows(columns, law, met, uniform[1])]
        again = draw_by(law, uniform[2])
        vectors = (jax.nn.one_hot(places, width) for places in (met, asked, again))
        return Batch(real, *vectors)


@dataclass(frozen=True)
class GANStep:
    """One critic step, then one generator step.

    Attributes:
        settings: Of the GAN.
        heads: Outputs of the generator.
        weights: Of each feature in the distance to the nearest row, in inner order.
    """

    settings: GANSettings
    heads: Heads
    weights: tuple[float, ...] = ()

    @eqx.filter_jit
    def start(self, key: Array) -> GANState:
        """The state before the first step."""
        generator, critic = fresh(_networks, self, key=key)
        moments = self._adam(self.settings.clip).init(generator)
        return GANState(generator, critic, moments, self._adam(None).init(critic), generator)

    def _adam(self, clip: float | None) -> optax.GradientTransformation:
        s = self.settings
        bound = [] if clip is None else [optax.clip_by_global_norm(clip)]
        return optax.chain(
            *bound,
            optax.add_decayed_weights(s.decay),
            optax.adam(s.rate, b1=s.betas[0], b2=s.betas[1]),
        )

    def __call__(self, state: GANState, batch: Batch, key: Array) -> tuple[GANState, Array]:
        """Update both networks; the loss is the critic's."""
        a, b, c, d = jax.random.split(key, 4)
        fake, _, _ = draw(self.settings, self.heads, state.generator, batch.asked, a)
        loss, slope = eqx.filter_value_and_grad(self.critic_loss)(state.critic, batch, fake, b)
        critic, critic_moments = self.moved(state.critic, slope, state.critic_moments, None)
        slope = eqx.filter_grad(self.generator_loss)(state.generator, critic, batch, c, d)
        step = optax.tree_utils.tree_get(state.generator_moments, "count")
        generator, moments = self.moved(
            state.generator, slope, state.generator_moments, self.settings.clip
        )
        average = averaged(state.average, generator, self.settings.average, step)
        return GANState(generator, critic, moments, critic_moments, average), loss

    def moved(self, net: Any, slope: Any, moments: Any, clip: float | None) -> tuple[Any, Any]:
        """A network after a step of Adam, its gradient bounded by `clip`, and the new moments."""
        change, moments = self._adam(clip).update(slope, moments, net)
        return eqx.apply_updates(net, change), moments

    def critic_loss(self, critic: Critic, batch: Batch, fake: Array, key: Array) -> Array:
        """Mean Wasserstein loss of the packs, with gradient penalty."""
        real = packed(jnp.concatenate([batch.real, batch.met], axis=1), self.settings.pac)
        made = packed(jnp.concatenate([fake, batch.asked], axis=1), self.settings.pac)
        return critic_losses(critic, real, made, weight=self.settings.penalty, key=key).mean()

    def generator_loss(
        self, generator: Generator, critic: Critic, batch: Batch, drawing: Array, dropping: Array
    ) -> Array:
        """The critic's dislike, what was asked for and not made, and identifiability."""
        fake, raw, _ = draw(self.settings, self.heads, generator, batch.again, drawing)
        made = packed(jnp.concatenate([fake, batch.again], axis=1), self.settings.pac)
        loss = -critic(made, masks=critic.masks(made.shape[0], dropping)).mean()
        if self.heads.condition_width:
            loss += self.heads.cross_entropy(raw, batch.again).mean()
        if self.settings.identifiability is not None:
            apart = distance(batch.real, fake, self.settings.identifiability, self.weights)
            loss -= self.settings.identifiability_weight * apart.mean()
        return loss


def _networks(step: GANStep, *, key: Array) -> tuple[Generator, Critic]:
    a, b = jax.random.split(key)
    s, width = step.settings, step.heads.width + step.heads.condition_width
    critic = Critic(width, s.critic, pac=s.pac, dropout=s.dropout, key=b)
    return generator_of(s, step.heads, a), critic


def distance(
    real: Array,
    fake: Array,
    reading: Literal["nearest", "pairs"],
    weights: Sequence[float] = (),
) -> Array:
    """How far each generated row is from real rows, (n,).

    Args:
        real: (n, width).
        fake: (n, width).
        reading: ``"pairs"``: from the real row in the same place. ``"nearest"``: from the nearest
            real row, features weighted.
        weights: One per feature, for ``"nearest"``.

    Example:
        >>> real, fake = jnp.array([[0.0], [5.0]]), jnp.array([[4.0], [4.0]])
        >>> [[round(float(d), 3) for d in distance(real, fake, r, (1.0,))]
        ...  for r in ("pairs", "nearest")]
        [[4.0, 1.0], [1.0, 1.0]]
    """
    if reading == "pairs":
        return jnp.sqrt(jnp.sum((real - fake) ** 2, axis=1) + 1e-12)
    scale = jnp.asarray(weights, jnp.float32)
    x, y = jax.lax.stop_gradient(real) * scale, fake * scale
    gaps = jnp.sum(y**2, 1)[:, None] - 2.0 * y @ x.T + jnp.sum(x**2, 1)[None, :]
    near = jnp.argmin(jax.lax.stop_gradient(gaps), axis=1)
    return jnp.sqrt(jnp.sum((y - x[near]) ** 2, axis=1) + 1e-12)


def entropy_weights(X: Matrix, heads: Heads) -> tuple[float, ...]:
    """Inverse entropy of the block of each feature, scaled to mean 1, in inner order.

    Numbers are cut into 20 bins of equal width. A block that never varies has weight 0: no
    distance in it can tell rows apart.
    """
    found = np.zeros(heads.width)
    for block in heads.blocks:
        part = X[:, block.start : block.start + block.size]
        counts = np.histogram(part, bins=20)[0] if block.kind == "number" else part.sum(axis=0)
        p = counts[counts > 0] / counts.sum()
        entropy = -float((p * np.log(p)).sum())
        found[block.start : block.start + block.size] = 1.0 / entropy if entropy > 1e-9 else 0.0
    mean = found.mean()
    scaled = found[heads.order] / (mean if mean > 0 else 1.0)
    return tuple(scaled.tolist())


def fit_gan(
    X: Matrix,
    blocks: Sequence[Block],
    settings: GANSettings | None = None,
    *,
    key: Array,
    labels: str | None = None,
    progress: Progress = lambda text, done: None,
    store: Path | None = None,
    note: Mapping[str, Any] | None = None,
) -> GAN:
    """Train a GAN on feature vectors.

    Args:
        X: (rows, width), finite, numbers within -1 and 1 (``numeric="modes"`` gives such).
        blocks: What its columns are.
        settings: CTGAN's if None; `ads_gan_settings` gives ADS-GAN's.
        key: A jax key, for everything random.
        labels: The only column whose categories are conditions; all choices that are not a part
            of a numeric column if None.
        progress: Told how far training is.
        store: Folder for checkpoints; a call that finds one goes on from it.
        note: What shall be kept in the GAN's file, as JSON holds it.

    Raises:
        InputError: `X` does not fit, or a setting cannot be used.
        TrainingError: Training diverged.
    """
    settings = settings or GANSettings()
    layout = Layout(tuple(blocks))
    columns = conditional_columns(layout, labels) if settings.conditional else ()
    seen = Seen.of(X, layout, columns)
    weights: tuple[float, ...] = ()
    if settings.identifiability == "nearest":
        weights = entropy_weights(X, seen.heads)
    step = GANStep(settings, seen.heads, weights)
    a, b, c = jax.random.split(key, 3)
    state = seen.run(step, settings, (a, b), progress, store)
    running = settle(settings, seen.heads, state.average, seen.conditions, c)
    return GAN(settings, seen.heads, seen.conditions, state.average, running, note or {})


@dataclass(frozen=True)
class Seen:
    """What training reads: rows in inner order, and which of them meet each condition.

    Attributes:
        heads: Outputs of the generator.
        rows: (rows, width), in inner order.
        drawing: What rows and conditions are drawn by.
        conditions: What rows are sorted by.
    """

    heads: Heads
    rows: Matrix
    drawing: Drawing
    conditions: Conditions

    @classmethod
    def of(cls, X: Matrix, layout: Layout, columns: tuple[str, ...]) -> Seen:
        """Prepare rows.

        Args:
            X: (rows, width), finite, numbers within -1 and 1.
            layout: What its columns are.
            columns: Columns whose choices are conditions.

        Raises:
            InputError: `X` does not fit.
        """
        X = layout.check(X)
        check_numbers(X, layout)
        heads = Heads(layout.blocks, columns)
        codes = heads.conditional.split(X)[1].astype(np.int64)
        table = row_table(codes, [b.size for b in heads.conditional.choices])
        inner = np.ascontiguousarray(X[:, heads.order])
        return cls(heads, inner, drawing(table), table.conditions)

    def run(
        self,
        step: Any,
        settings: Any,
        keys: tuple[Array, Array],
        progress: Progress,
        store: Path | None,
    ) -> Any:
        """Train; `keys` are for the first weights and for the steps.

        A batch may have more rows than there are: they are drawn with replacement.

        Raises:
            TrainingError: Training diverged.
        """
        return train(
            step.start(keys[0]),
            step,
            (self.rows, self.drawing),
            steps=settings.steps(len(self.rows)),
            batch=settings.batch,
            key=keys[1],
            sampler=Matching(self.conditions.sizes, settings.batch),
            progress=progress,
            store=store,
        )


def conditional_columns(layout: Layout, labels: str | None) -> tuple[str, ...]:
    """Columns whose choices are conditions: `labels`, or all that have no number."""
    if labels is not None:
        return (layout.choice_of(labels).column,)
    numbers = {b.column for b in layout.blocks if b.kind == "number"}
    return tuple(dict.fromkeys(b.column for b in layout.choices if b.column not in numbers))


def check_numbers(X: Matrix, layout: Layout) -> None:
    """Refuse numbers beyond 1, which tanh cannot make.

    Raises:
        InputError: Naming the column.
    """
    for block in layout.blocks:
        sizes = np.abs(X[:, block.start])
        if block.kind == "number" and (most := float(sizes.max(initial=0.0))) > 1.0:
            raise InputError(
                f"column {block.column!r} has a number of size {most:.4g}, and this GAN's numbers "
                'lie between -1 and 1: fit the features with numeric="modes"'
            )


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
