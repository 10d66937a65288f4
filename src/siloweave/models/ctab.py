"""CTAB-GAN: rows as small square images, and a convolutional GAN of them.

Zhao, Kunar, Birke & Chen, CTAB-GAN: Effective Table Data Synthesizing, ACML 2021; the layers are
DCGAN's (Radford, Metz & Chintala 2016). A row and its condition are padded with zeros to a square;
conditions cover the modes of numeric columns too. To the logarithmic GAN loss come the condition's
cross-entropy, the distance between mean and spread of the critic's last features (information
loss, L1), and, where a label column is named, a classifier's disagreement with generated labels.

One departure: the classifier's loss is added to the generator's other losses and takes part in
the same step, where the authors' code takes a step of its own for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.models import bounds
from siloweave.models.draws import GAN, draw, normal, settle
from siloweave.models.gan import Batch, Seen
from siloweave.models.generator import Heads, Running
from siloweave.models.layout import Layout
from siloweave.models.nets import MLP, averaged, fresh
from siloweave.models.train import Progress
from siloweave.tables.features import Block

__all__ = ["CTABSettings", "ConvCritic", "ConvGenerator", "entries", "fit_ctab", "side_of"]

Array = jax.Array
Matrix = NDArray[np.float32]
SIDES = (4, 8, 16, 24, 32)
_LAYERS = 4
_LEAST = 1e-4  # added inside logarithms


def side_of(width: int) -> int:
    """Side of the smallest square that holds a row.

    Raises:
        InputError: A row is longer than 32 x 32.

    Example:
        >>> side_of(16), side_of(17)
        (4, 8)
    """
    for side in SIDES:
        if side * side >= width:
            return side
    raise InputError(
        f"a row and its condition take {width:,} entries, above 32 x 32 = 1,024: CTAB-GAN cannot "
        "hold it; group categories, or use another GAN"
    )


def entries(blocks: Sequence[Block]) -> int:
    """How many entries a row has together with its condition, which tells all its choices."""
    layout = Layout(tuple(blocks))
    return layout.width + sum(block.size for block in layout.choices)


@dataclass(frozen=True)
class CTABSettings:
    """How a CTAB-GAN is made and trained; the defaults are the authors'.

    Attributes:
        noise: Random inputs of the generator.
        channels: Of the critic's first convolution; doubled from layer to layer.
        temperature: Of the Gumbel-softmax.
        rate: Of Adam.
        betas: Of Adam.
        epsilon: Of Adam.
        decay: Times a parameter, added to its gradient.
        batch: Rows in a step.
        epochs: Passes over the rows.
        average: Share of the old weights in the moving average of the generator that rows are
            drawn by; 0 takes the last weights.

    Raises:
        InputError: A value is out of bounds.
    """

    noise: int = 100
    channels: int = 64
    temperature: float = 0.2
    rate: float = 2e-4
    betas: tuple[float, float] = (0.5, 0.9)
    epsilon: float = 1e-3
    decay: float = 1e-5
    batch: int = 500
    epochs: int = 150
    average: float = 0.0

    def __post_init__(self) -> None:
        bounds.check(
            self,
            noise=bounds.COUNT,
            channels=bounds.COUNT,
            temperature=bounds.POSITIVE,
            rate=bounds.POSITIVE,
            betas=bounds.BETAS,
            epsilon=bounds.POSITIVE,
            decay=bounds.AMOUNT,
            batch=bounds.at_least(2),
            epochs=bounds.at_least(0),
            average=bounds.SHARE,
        )

    def steps(self, rows: int) -> int:
        """How many updates a fit to so many rows takes."""
        return self.epochs * max(rows // self.batch, 1)

    def network(self, heads: Heads, key: Array) -> ConvGenerator:
        """A fresh generator."""
        fan_in = self.noise + heads.condition_width
        return ConvGenerator(fan_in, heads.width, self.channels, key=key)


class _Norm(eqx.Module):
    """Batch normalisation over rows and places: a scale and a shift per channel."""

    scale: Array
    shift: Array

    def __init__(self, drawn: Array) -> None:
        self.scale, self.shift = 1.0 + drawn, jnp.zeros(drawn.shape)

    def __call__(
        self, x: Array, known: tuple[Array, Array] | None = None
    ) -> tuple[Array, tuple[Array, Array]]:
        mean, var = (x.mean((0, 1, 2)), x.var((0, 1, 2))) if known is None else known
        scale = self.scale * jax.lax.rsqrt(var + 1e-5)
        return (x - mean) * scale + self.shift, (mean, var)


def _stages(side: int, channels: int) -> list[tuple[int, int]]:
    """(channels, side) from the image inwards."""
    stages = [(1, side), (channels, side // 2)]
    while stages[-1][1] > 3 and len(stages) < _LAYERS:
        stages.append((stages[-1][0] * 2, stages[-1][1] // 2))
    return stages


def _first(kernels: Sequence[tuple[int, ...]], norms: Sequence[int], key: Array) -> Any:
    """First kernels and normalisations, from one draw with a standard deviation of .02."""
    sizes = [prod(shape) for shape in kernels] + list(norms)
    drawn = jnp.split(0.02 * normal(key, (sum(sizes),)), np.cumsum(sizes)[:-1])
    shaped = (x.reshape(shape) for x, shape in zip(drawn, kernels, strict=False))
    return tuple(shaped), tuple(_Norm(x) for x in drawn[len(kernels) :])


def _halved(x: Array, kernel: Array) -> Array:
    """A convolution by 4 x 4 with stride 2 and a border of 1, as one product of matrices.

    Where channels are many, gradients of the library's convolutions take up to five times as long
    on a processor.

    Args:
        x: (n, side, side, fan_in), side even.
        kernel: (4, 4, fan_in, fan_out).

    Returns:
        (n, side / 2, side / 2, fan_out).
    """
    n, side, fan_in = x.shape[0], x.shape[1] // 2, x.shape[3]
    pairs = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    pairs = pairs.reshape(n, side + 1, 2, side + 1, 2, fan_in).transpose(0, 1, 3, 2, 4, 5)
    near = [pairs[:, i : i + side, j : j + side] for i in (0, 1) for j in (0, 1)]
    patches = jnp.concatenate([part.reshape(n, side, side, -1) for part in near], axis=-1)
    quarters = kernel.reshape(2, 2, 2, 2, fan_in, -1).transpose(0, 2, 1, 3, 4, 5)
    return patches @ quarters.reshape(16 * fan_in, -1)


def _doubled(x: Array, kernel: Array) -> Array:
    """The transposed convolution by 4 x 4 with stride 2: what `_halved` is, turned round.

    Args:
        x: (n, side, side, fan_in).
        kernel: (4, 4, fan_in, fan_out).

    Returns:
        (n, 2 side, 2 side, fan_out).
    """
    n, side, fan_out = x.shape[0], x.shape[1], kernel.shape[3]
    turned = kernel[::-1, ::-1].swapaxes(2, 3)
    image = jnp.zeros((n, 2 * side, 2 * side, fan_out))
    doubled: Array = jax.linear_transpose(lambda image: _halved(image, turned), image)(x)[0]
    return doubled


class ConvCritic(eqx.Module):
    """Halves an image until one number is left.

    Example:
        >>> critic = ConvCritic(20, 4, key=jax.random.key(0))
        >>> chance, features = critic(jnp.ones((3, 20)))
        >>> chance.shape, features.shape
        ((3,), (3, 32))
    """

    kernels: tuple[Array, ...]
    norms: tuple[_Norm, ...]
    side: int = eqx.field(static=True)

    def __init__(self, width: int, channels: int, *, key: Array) -> None:
        self.side = side_of(width)
        stages = _stages(self.side, channels)
        sizes = [4] * (len(stages) - 1) + [stages[-1][1]]
        outs = [c for c, _ in stages[1:]] + [1]
        shapes = [(k, k, a, b) for k, (a, _), b in zip(sizes, stages, outs, strict=True)]
        self.kernels, self.norms = _first(shapes, outs[:-1], key)

    def __call__(self, rows: Array) -> tuple[Array, Array]:
        """Chance that each row is real, (n,), and the last features, (n, places x channels)."""
        full = jnp.pad(rows, ((0, 0), (0, self.side**2 - rows.shape[1])))
        x = full.reshape(-1, self.side, self.side, 1)
        for kernel, norm in zip(self.kernels[:-1], self.norms, strict=True):
            x = jax.nn.leaky_relu(norm(_halved(x, kernel))[0], 0.2)
        features = x.reshape(x.shape[0], -1)
        last = self.kernels[-1].reshape(-1)
        return jax.nn.sigmoid(features @ last), features


class ConvGenerator(eqx.Module):
    """Doubles an image from one place until a row fits into it.

    Example:
        >>> net = ConvGenerator(6, 20, 4, key=jax.random.key(0))
        >>> raw, running = net(jnp.ones((3, 6)))
        >>> raw.shape, len(running)
        ((3, 20), 2)
    """

    kernels: tuple[Array, ...]
    norms: tuple[_Norm, ...]
    start_side: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, fan_in: int, width: int, channels: int, *, key: Array) -> None:
        stages = _stages(side_of(width), channels)[::-1]
        channels_of = [c for c, _ in stages]
        self.start_side, self.width = stages[0][1], width
        shapes = [(4, 4, a, b) for a, b in pairwise(channels_of)]
        start = (fan_in, self.start_side**2 * channels_of[0])
        self.kernels, self.norms = _first([start, *shapes], channels_of[:-1], key)

    def __call__(self, x: Array, running: Running | None = None) -> tuple[Array, Running]:
        """Map noise and condition, (n, fan_in), to (n, width); statistics as in CTGAN."""
        used, n = [], x.shape[0]
        x = (x @ self.kernels[0]).reshape(n, self.start_side, self.start_side, -1)
        for i, norm in enumerate(self.norms):
            x, seen = norm(x, None if running is None else running[i])
            used.append(seen)
            x = _doubled(jax.nn.relu(x), self.kernels[i + 1])
        return x.reshape(n, -1)[:, : self.width], tuple(used)

    def start(self) -> Running:
        """Statistics before the first step."""
        return tuple((jnp.zeros_like(m.shift), jnp.ones_like(m.scale)) for m in self.norms)


class _State(NamedTuple):
    generator: ConvGenerator
    critic: ConvCritic
    classifier: MLP | None
    moments: tuple[optax.OptState, optax.OptState, optax.OptState]
    average: ConvGenerator


@dataclass(frozen=True)
class _Step:
    """One critic step, one classifier step, one generator step.

    Attributes:
        settings: Of the GAN.
        heads: Outputs of the generator.
        label: Where the label's categories lie in a row, (start, size); None without a label.
    """

    settings: CTABSettings
    heads: Heads
    label: tuple[int, int] | None

    def _adam(self) -> optax.GradientTransformation:
        s = self.settings
        return optax.chain(
            optax.add_decayed_weights(s.decay),
            optax.adam(s.rate, b1=s.betas[0], b2=s.betas[1], eps=s.epsilon),
        )

    @eqx.filter_jit
    def start(self, key: Array) -> _State:
        generator, critic, classifier = fresh(_networks, self, key=key)
        init, nothing = self._adam().init, optax.EmptyState()
        moments = (init(generator), init(critic), init(classifier) if classifier else nothing)
        return _State(generator, critic, classifier, moments, generator)

    def __call__(self, state: _State, batch: Batch, key: Array) -> tuple[_State, Array]:
        a, b, c, d = jax.random.split(key, 4)
        fake = draw(self.settings, self.heads, state.generator, batch.asked, a)[0]
        loss, slope = eqx.filter_value_and_grad(self.critic_loss)(state.critic, batch, fake)
        critic, second = self._stepped(state.critic, slope, state.moments[1])
        classifier, third = state.classifier, state.moments[2]
        if classifier is not None:
            slope = eqx.filter_grad(self.disagreement)(classifier, batch.real, c)
            classifier, third = self._stepped(classifier, slope, third)
        slope = eqx.filter_grad(self.generator_loss)(
            state.generator, critic, state.classifier, batch, b, d
        )
        count = optax.tree_utils.tree_get(state.moments[0], "count")
        generator, first = self._stepped(state.generator, slope, state.moments[0])
        average = averaged(state.average, generator, self.settings.average, count)
        return _State(generator, critic, classifier, (first, second, third), average), loss

    def _stepped(self, net: Any, slope: Any, moments: Any) -> tuple[Any, Any]:
        change, moments = self._adam().update(slope, moments, net)
        return eqx.apply_updates(net, change), moments

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
        self, generator: ConvGenerator, critic: ConvCritic, classifier: MLP | None, batch: Batch,
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


def _networks(step: _Step, *, key: Array) -> tuple[ConvGenerator, ConvCritic, MLP | None]:
    a, b, c = jax.random.split(key, 3)
    s, heads, classifier = step.settings, step.heads, None
    critic = ConvCritic(heads.width + heads.condition_width, s.channels, key=b)
    if step.label is not None:
        size = step.label[1]
        hidden = (256, 256, 256, 256)
        classifier = MLP(heads.width - size, hidden, size, key=c, act="leaky_relu", dropout=0.5)
    return s.network(heads, a), critic, classifier


def information(real: Array, fake: Array) -> Array:
    """L1 distance of the means plus that of the standard deviations of two sets of features.

    Example:
        >>> float(information(jnp.zeros((2, 3)), jnp.ones((2, 3))))
        3.0
    """

    def spread(x: Array) -> Array:
        # The root has no slope at 0, where a feature is the same in all rows.
        return jnp.sqrt(x.var(0) + 1e-12)

    return jnp.abs(real.mean(0) - fake.mean(0)).sum() + jnp.abs(spread(real) - spread(fake)).sum()


def fit_ctab(
    X: Matrix,
    blocks: Sequence[Block],
    settings: CTABSettings | None = None,
    *,
    key: Array,
    labels: str | None = None,
    progress: Progress = lambda text, done: None,
    store: Path | None = None,
) -> GAN:
    """Train a CTAB-GAN on feature vectors.

    Args:
        X: (rows, width), finite, numbers within -1 and 1 (``numeric="modes"`` gives such).
        blocks: What its columns are.
        settings: The authors' if None.
        key: A jax key, for everything random.
        labels: A column for the classifier's loss; None for none.
        progress: Told how far training is.
        store: Folder for checkpoints; a call that finds one goes on from it.

    Raises:
        InputError: `X` does not fit, or is too wide for 32 x 32 with its conditions.
        TrainingError: Training diverged.
    """
    settings, layout = settings or CTABSettings(), Layout(tuple(blocks))
    seen = Seen.of(X, layout, tuple(dict.fromkeys(b.column for b in layout.choices)))
    label = None
    if labels is not None:
        block = layout.choice_of(labels)
        label = (int(np.flatnonzero(seen.heads.order == block.start)[0]), block.size)
    a, b, c = jax.random.split(key, 3)
    step = _Step(settings, seen.heads, label)
    state = seen.run(step, settings, (a, b), progress, store)
    running = settle(settings, seen.heads, state.average, seen.conditions, c)
    return GAN(settings, seen.heads, seen.conditions, state.average, running)
