"""What all GANs here are made of: outputs of a generator, generators, critics, and their steps.

Inside a GAN the parts of a row stand in another order than in its feature vector: numbers first,
then choices that are no condition (a number's mode, a missing value), then choices that are, each
kind sorted by size. So every head is a plain slice, whatever the table, and the conditional vector
has the layout of the last part of a row.

Generators: CTGAN's residual network (Xu, Skoularidou, Cuesta-Infante & Veeramachaneni, Modeling
Tabular Data using Conditional GAN, NeurIPS 2019), plain dense layers, and CTAB-GAN's convolutions
(Zhao, Kunar, Birke & Chen, ACML 2021, with the layers of DCGAN, Radford, Metz & Chintala 2016).

The Wasserstein critic reads packs of rows. Its losses are per pack and never averaged here, because
a pack is what private training clips: one row moves the gradient of one pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from siloweave.errors import InputError
from siloweave.models.nets import MLP, Array, Dense, Options, averaged
from siloweave.models.settings import CTABSettings, GANSettings
from siloweave.tables.arrays import Ints, Matrix
from siloweave.tables.features import Block, Layout

Running = tuple[tuple[Array, Array], ...]
"""Mean and variance of each batch normalisation, for rows that are drawn one by one."""
_Net = TypeVar("_Net")

# Uniform draws stay this far from 0 and 1.
_TINY = 2.0**-24
# Sides of CTAB-GAN's squares, as in the authors' code.
SIDES = (4, 8, 16, 24, 32)
# A convolutional network has so many stages at most, the image among them.
_LAYERS = 4
# Added to the variance of a batch normalisation.
_EPSILON = 1e-5
# Added to a squared norm: the root has no slope at 0.
_FLAT = 1e-12


@dataclass(frozen=True)
class Heads:
    """The outputs of a generator: tanh for numbers, Gumbel-softmax for choices."""

    blocks: tuple[Block, ...]  # parts of a row's feature vector
    columns: tuple[str, ...]  # columns whose choice is a condition

    @cached_property
    def free(self) -> Layout:
        """The layout of numbers, and of choices that are no condition."""
        blocks = [block for block in self.blocks if not self._is_condition(block)]
        return Layout(tuple(blocks))

    @cached_property
    def conditional(self) -> Layout:
        """The layout of choices that are conditions."""
        blocks = [block for block in self.blocks if self._is_condition(block)]
        return Layout(tuple(blocks))

    def _is_condition(self, block: Block) -> bool:
        return block.kind == "categorical" and block.column in self.columns

    @cached_property
    def parts(self) -> tuple[Block, ...]:
        """The blocks of all choices, in inner order."""
        return (*self.free.categoricals, *self.conditional.categoricals)

    @cached_property
    def order(self) -> Ints:
        """The position in the feature vector of each inner position."""
        positions = list(self.free.numbers)
        for block in self.parts:
            positions += range(block.start, block.stop)
        return np.array(positions, dtype=np.int64)

    @property
    def width(self) -> int:
        """Length of a row."""
        return len(self.order)

    @property
    def condition_width(self) -> int:
        """Length of the conditional vector, the last part of a row."""
        return sum(block.size for block in self.conditional.categoricals)

    @cached_property
    def options(self) -> Options:
        """The options of all choices, in inner order."""
        return Options.of(block.size for block in self.parts)

    def outputs(self, raw: Array, temperature: float, uniform: Array) -> Array:
        """Turn a network's last layer, (n, width) in inner order, into rows.

        Numbers go through tanh; each choice is a softmax of its logits with Gumbel noise, divided
        by the temperature (Jang, Gu & Poole 2017), soft and differentiable. `uniform`, (n, width),
        is from the open interval (0, 1).
        """
        num_numbers = len(self.free.numbers)
        if num_numbers == self.width:
            return jnp.tanh(raw)
        gumbel = -jnp.log(-jnp.log(uniform[:, num_numbers:]))
        logits = (raw[:, num_numbers:] + gumbel) / temperature
        choices = jnp.exp(self.options.log_softmax(logits))
        return jnp.concatenate([jnp.tanh(raw[:, :num_numbers]), choices], axis=1)

    def cross_entropy(self, raw: Array, condition: Array) -> Array:
        """Return the cross-entropy, (n,), of logits before `outputs` with the one-hot condition."""
        logs = self.options.log_softmax(raw[:, len(self.free.numbers) :])
        # Choices that are conditions come last.
        condition_logs = logs[:, logs.shape[1] - self.condition_width :]
        return -jnp.sum(condition_logs * condition, axis=1)

    def vectors(self, rows: Matrix) -> Matrix:
        """Return feature vectors of rows in inner order, a choice's likeliest option as one-hot."""
        start = len(self.free.numbers)
        X = np.zeros((len(rows), self.width), dtype=np.float32)
        X[:, list(self.free.numbers)] = rows[:, :start]
        row_places = np.arange(len(X))
        for block in self.parts:
            codes = rows[:, start : start + block.size].argmax(axis=1)
            X[row_places, block.start + codes] = 1.0
            start += block.size
        return X


class ResidualGenerator(eqx.Module):
    """CTGAN's generator: dense, batch normalisation, ReLU, joined to the block's own input."""

    layers: tuple[Dense, ...]
    scales: tuple[Array, ...]
    shifts: tuple[Array, ...]

    def __init__(
        self, fan_in: int, hidden: Sequence[int], fan_out: int, *, key: Array
    ) -> None:
        keys = jax.random.split(key, len(hidden) + 1)
        layers = []
        for size, layer_key in zip(hidden, keys, strict=False):
            layers.append(Dense(fan_in, size, key=layer_key))
            fan_in += size  # a block's output is joined to its input
        self.layers = (*layers, Dense(fan_in, fan_out, key=keys[-1]))
        self.scales = tuple(jnp.ones(size) for size in hidden)
        self.shifts = tuple(jnp.zeros(size) for size in hidden)

    def __call__(
        self, x: Array, running: Running | None = None
    ) -> tuple[Array, Running]:
        """Map noise and condition, (n, fan_in), to (n, fan_out), and return the statistics used.

        The statistics are those of the batch unless `running` is given.
        """
        # What a layer reads of x is kept apart, because nobody needs its slope with respect to x.
        outputs = jnp.zeros((len(x), 0))  # of all blocks, the last first
        statistics = []
        for i in range(len(self.layers) - 1):
            pre = self._layer_on(i, outputs, x)
            if running is None:
                mean = pre.mean(0)
                var = pre.var(0)
            else:
                mean, var = running[i]
            statistics.append((mean, var))
            scale = self.scales[i] * jax.lax.rsqrt(var + _EPSILON)
            h = jax.nn.relu((pre - mean) * scale + self.shifts[i])
            outputs = jnp.concatenate([h, outputs], axis=1)
        return self._layer_on(-1, outputs, x), tuple(statistics)

    def _layer_on(self, i: int, outputs: Array, x: Array) -> Array:
        """Apply a layer to x joined with the outputs of the blocks before it."""
        layer = self.layers[i]
        num_outputs = outputs.shape[1]
        from_outputs = outputs @ layer.weight[:num_outputs]
        return from_outputs + x @ layer.weight[num_outputs:] + layer.bias

    def start(self) -> Running:
        """Return running statistics before the first step."""
        statistics = []
        for scale in self.scales:
            statistics.append((jnp.zeros_like(scale), jnp.ones_like(scale)))
        return tuple(statistics)


class PlainGenerator(eqx.Module):
    """Dense layers with ReLU, the generator where layers are not joined."""

    net: MLP

    def __init__(
        self, fan_in: int, hidden: Sequence[int], fan_out: int, *, key: Array
    ) -> None:
        self.net = MLP(fan_in, hidden, fan_out, key=key)

    def __call__(
        self, x: Array, running: Running | None = None
    ) -> tuple[Array, Running]:
        """Map (n, fan_in) to (n, fan_out); there are no statistics."""
        return self.net(x), ()

    def start(self) -> Running:
        """Return no statistics."""
        return ()


class Critic(eqx.Module):
    """A critic that scores packs of rows: dense layers with leaky ReLU (0.2) and dropout."""

    layers: tuple[Dense, ...]  # from `pac` rows joined to one number
    # Rows in a pack (PacGAN: Lin, Khetan, Fanti & Oh 2018)
    pac: int = eqx.field(static=True)
    dropout: float = eqx.field(static=True)  # share of hidden units that `masks` drops

    def __init__(
        self,
        width: int,
        hidden: Sequence[int],
        *,
        pac: int,
        dropout: float,
        key: Array,
    ) -> None:
        sizes = list(pairwise([width * pac, *hidden, 1]))
        keys = jax.random.split(key, len(sizes))
        layers = []
        for (fan_in, fan_out), layer_key in zip(sizes, keys, strict=True):
            layers.append(Dense(fan_in, fan_out, key=layer_key))
        self.layers = tuple(layers)
        self.pac = pac
        self.dropout = dropout

    def masks(self, packs: int, key: Array) -> Array | None:
        """Draw dropout, (packs, all hidden units); None where nothing is dropped.

        All layers share one draw: a random draw costs as much to compile as to run.
        """
        units = sum(layer.bias.shape[0] for layer in self.layers[:-1])
        if self.dropout == 0.0 or units == 0:
            return None
        is_kept = jax.random.uniform(key, (packs, units)) >= self.dropout
        scaled = is_kept / (1.0 - self.dropout)
        # Without the barrier the draw is fused into all that uses it, and drawn again for each.
        masks: Array = jax.lax.optimization_barrier(scaled)  # type: ignore[no-untyped-call]
        return masks

    def __call__(self, x: Array, *, masks: Array | None = None) -> Array:
        """Score packs, (packs, pac x width) -> (packs,)."""
        return self.above(self.layers[0](x), masks=masks)

    def above(self, pre: Array, *, masks: Array | None = None) -> Array:
        """Score packs from the first layer's values before activation: (packs, units) -> (packs,).

        The first layer is the widest by far, and it is affine: its value for a mixture of packs is
        the mixture of its values for them, so no pack passes it twice.
        """
        start = 0  # of the layer's units in the masks
        for layer in self.layers[1:]:
            x = jax.nn.leaky_relu(pre, 0.2)
            if masks is not None:
                x = x * masks[:, start : start + x.shape[1]]
                start += x.shape[1]
            pre = layer(x)
        return pre[:, 0]

    def slopes(self, x: Array) -> Array:
        """Return each score's gradient with respect to its pack, (packs, pac x width).

        There is no dropout.

        It is computed by calls of the layers alone: leaky ReLU is linear on either side of 0, so
        its own slope is a constant there.
        """
        # Forwards for the slopes of the activations, then backwards through the layers.
        hidden_layers = self.layers[:-1]
        relu_slopes = []
        for layer in hidden_layers:
            pre = layer(x)
            relu_slopes.append(jnp.where(pre >= 0, 1.0, 0.2))
            x = pre * relu_slopes[-1]
        slope = self.layers[-1].transposed(jnp.ones((x.shape[0], 1)))
        pairs = zip(hidden_layers, relu_slopes, strict=True)
        for layer, relu_slope in reversed(list(pairs)):
            slope = layer.transposed(slope * relu_slope)
        return slope


def packed(rows: Array, pac: int) -> Array:
    """Join each run of `pac` rows: (n, width) -> (n / pac, pac x width)."""
    return rows.reshape(rows.shape[0] // pac, pac * rows.shape[1])


def gradient_penalty(
    critic: Critic,
    real: Array,
    fake: Array,
    *,
    key: Array,
    masks: Array | None = None,
) -> Array:
    """Return squared differences of 1 and the slope between real and generated packs, (packs,).

    Gulrajani, Ahmed, Arjovsky, Dumoulin & Courville, Improved Training of Wasserstein GANs, NeurIPS
    2017. One interpolation coefficient per pack, one norm per pack. `real` and `fake` are what the
    critic's first layer gave, before the activation, (packs, units); `masks` are its dropout.

    Where a pack is a single number only slopes above 1 are penalised (Petzka, Fischer & Lukovnikov,
    On the regularization of Wasserstein GANs, ICLR 2018). With several numbers a slope of the wrong
    direction turns while its norm stays 1; with a single one it would have to pass 0, and the
    penalty there held critics at slope -1, so that all generated values moved to one end.
    """
    slope_of = jax.grad(lambda pre: critic.above(pre, masks=masks).sum())
    mixture = _mixture(real, fake, key)
    # Back through the first layer, by the chain rule.
    slope = critic.layers[0].transposed(slope_of(mixture))
    return _penalty_of(slope)


def _mixture(real: Array, fake: Array, key: Array) -> Array:
    """Mix each real pack with a generated one, by a random share."""
    share = jax.random.uniform(key, (real.shape[0], 1))
    return share * real + (1.0 - share) * fake


def _penalty_of(slope: Array) -> Array:
    """Return the squared difference between each slope's norm and 1."""
    # The square root has no slope at 0; a critic that is flat there is pushed by nothing else.
    norm = jnp.sqrt(jnp.sum(slope**2, axis=-1) + _FLAT)
    excess = norm - 1.0
    if slope.shape[1] == 1:
        excess = jax.nn.relu(excess)
    return excess**2


def critic_losses(
    critic: Critic, real: Array, fake: Array, *, weight: float, key: Array
) -> Array:
    """Return each pack's Wasserstein loss: score(fake) - score(real) + weight x penalty, (packs,).

    Real and generated packs are (packs, pac x width), as many of either; the key draws dropout and
    interpolation.
    """
    mask_key, penalty_key = jax.random.split(key)
    num_packs = real.shape[0]

    # One draw of dropout for the scores of both, and for the penalty.
    masks = critic.masks(3 * num_packs, mask_key)
    score_masks = None
    penalty_masks = None
    if masks is not None:
        score_masks = masks[: 2 * num_packs]
        penalty_masks = masks[2 * num_packs :]

    pre = critic.layers[0](jnp.concatenate([fake, real]))
    real_pre = pre[num_packs:]
    fake_pre = pre[:num_packs]
    penalty = gradient_penalty(
        critic, real_pre, fake_pre, key=penalty_key, masks=penalty_masks
    )
    scores = critic.above(pre, masks=score_masks)
    return scores[:num_packs] - scores[num_packs:] + weight * penalty


def layered_losses(
    critic: Critic, real: Array, fake: Array, *, weight: float, key: Array
) -> Array:
    """Return `critic_losses` of a critic without dropout, as calls of its layers alone.

    No gradient is taken inside, so that a private training can book-keep each pack's gradient
    (siloweave.privacy.gradients) instead of forming it.
    """
    num_packs = real.shape[0]
    # The second key, as in `critic_losses`, whose first one draws dropout.
    penalty_key = jax.random.split(key)[1]
    penalty = _penalty_of(critic.slopes(_mixture(real, fake, penalty_key)))
    scores = critic(jnp.concatenate([fake, real]))
    return scores[:num_packs] - scores[num_packs:] + weight * penalty


class RowLoss(eqx.Module):
    """A critic's loss of one real row beside a random one of a pool of generated rows."""

    penalty: float = eqx.field(static=True)  # weight of the gradient penalty
    pool: Array  # generated rows, (rows, width); no real row has a part in them

    def __call__(self, critic: Critic, row: Array, key: Array) -> Array:
        """Return the loss; `row` is (width,), in inner order."""
        return self.beside(critic, row, *jax.random.split(key))

    def beside(self, critic: Critic, row: Array, picking: Array, key: Array) -> Array:
        """Return the loss, given the keys for the row's partner and for the place of the slope."""
        place = jax.random.randint(picking, (), 0, self.pool.shape[0])
        fake = self.pool[place]
        losses = layered_losses(
            critic, row[None], fake[None], weight=self.penalty, key=key
        )
        return losses[0]


def side_of(width: int) -> int:
    """Return the side of the smallest square that holds a row; InputError beyond 32 x 32."""
    for side in SIDES:
        if side * side >= width:
            return side
    raise InputError(
        f"a row and its condition take {width:,} entries, above 32 x 32 = 1,024: CTAB-GAN cannot "
        "hold it; group categories, or use another GAN"
    )


def uniform_draws(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw uniform numbers, inside (0, 1)."""
    return jax.random.uniform(key, shape, minval=_TINY, maxval=1.0 - _TINY)


def to_normal(uniform: Array) -> Array:
    """Turn uniform draws into standard normal ones."""
    draws: Array = 2.0**0.5 * jax.lax.erf_inv(2.0 * uniform - 1.0)
    return draws


def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw standard normal numbers."""
    return to_normal(uniform_draws(key, shape))


class _Norm(eqx.Module):
    """Batch normalisation over rows and places: a scale and a shift per channel."""

    scale: Array
    shift: Array

    def __init__(self, deviation: Array) -> None:
        self.scale = 1.0 + deviation
        self.shift = jnp.zeros(deviation.shape)

    def __call__(
        self,
        x: Array,
        running: tuple[Array, Array] | None = None,
    ) -> tuple[Array, tuple[Array, Array]]:
        if running is None:
            mean = x.mean((0, 1, 2))
            var = x.var((0, 1, 2))
        else:
            mean, var = running
        scale = self.scale * jax.lax.rsqrt(var + _EPSILON)
        return (x - mean) * scale + self.shift, (mean, var)


class _Stage(NamedTuple):
    """An image between two convolutions."""

    channels: int
    side: int


def _stages(side: int, channels: int) -> list[_Stage]:
    """Return the image's sizes at each stage, inwards: sides are halved, channels doubled."""
    stages = [_Stage(1, side), _Stage(channels, side // 2)]
    while stages[-1].side > 3 and len(stages) < _LAYERS:
        innermost = stages[-1]
        stages.append(_Stage(innermost.channels * 2, innermost.side // 2))
    return stages


def _fresh_weights(
    kernel_shapes: Sequence[tuple[int, ...]],
    norm_sizes: Sequence[int],
    key: Array,
) -> tuple[tuple[Array, ...], tuple[_Norm, ...]]:
    """Draw kernels and normalisations at once, with DCGAN's standard deviation of .02."""
    sizes = [prod(shape) for shape in kernel_shapes] + list(norm_sizes)
    weights = 0.02 * normal(key, (sum(sizes),))
    parts = jnp.split(weights, np.cumsum(sizes)[:-1])
    kernel_parts = parts[: len(kernel_shapes)]
    norm_parts = parts[len(kernel_shapes) :]
    shaped = zip(kernel_parts, kernel_shapes, strict=True)
    kernels = tuple(part.reshape(shape) for part, shape in shaped)
    return kernels, tuple(_Norm(part) for part in norm_parts)


def _halved(x: Array, kernel: Array) -> Array:
    """Convolve with a 4 x 4 kernel, stride 2 and a border of 1, as one product of matrices.

    Where channels are many, gradients of the library's convolutions take up to five times as long
    on a processor. (n, side, side, fan_in) with an even side becomes (n, side / 2, side / 2,
    fan_out); the kernel is (4, 4, fan_in, fan_out).
    """
    n, full_side, _, fan_in = x.shape
    side = full_side // 2

    # Cut the padded image into squares of 2 x 2: the kernel covers four of them at each place.
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    lines = padded.reshape(n, side + 1, 2, side + 1, 2, fan_in)
    squares = lines.transpose(0, 1, 3, 2, 4, 5)
    corners = []
    for i in (0, 1):
        for j in (0, 1):
            corners.append(squares[:, i : i + side, j : j + side])
    flat_corners = [corner.reshape(n, side, side, -1) for corner in corners]
    patches = jnp.concatenate(flat_corners, axis=-1)

    # The kernel's entries in the order of the patches'.
    lines = kernel.reshape(2, 2, 2, 2, fan_in, -1)
    quarters = lines.transpose(0, 2, 1, 3, 4, 5)
    return patches @ quarters.reshape(16 * fan_in, -1)


def _doubled(x: Array, kernel: Array) -> Array:
    """Convolve with a transposed 4 x 4 kernel and stride 2, which doubles an image's sides."""
    n = x.shape[0]
    side = x.shape[1]
    fan_out = kernel.shape[3]
    turned = kernel[::-1, ::-1].swapaxes(2, 3)
    image = jnp.zeros((n, 2 * side, 2 * side, fan_out))

    def halved(image: Array) -> Array:
        return _halved(image, turned)

    transpose = jax.linear_transpose(halved, image)
    doubled: Array = transpose(x)[0]
    return doubled


class ConvCritic(eqx.Module):
    """A critic of rows as images, which halves an image until one number is left."""

    kernels: tuple[Array, ...]
    norms: tuple[_Norm, ...]
    side: int = eqx.field(static=True)

    def __init__(self, width: int, channels: int, *, key: Array) -> None:
        self.side = side_of(width)
        stages = _stages(self.side, channels)
        shapes = []
        for stage, inner in pairwise(stages):
            shapes.append((4, 4, stage.channels, inner.channels))
        # The last kernel covers all places that are left.
        last = stages[-1]
        shapes.append((last.side, last.side, last.channels, 1))
        norm_sizes = [stage.channels for stage in stages[1:]]
        self.kernels, self.norms = _fresh_weights(shapes, norm_sizes, key)

    def __call__(self, rows: Array) -> tuple[Array, Array]:
        """Return the chance that each row is real, (n,), and the last features.

        These are (n, places x channels).
        """
        # A row fills the square line by line; the rest is 0.
        missing = self.side**2 - rows.shape[1]
        squares = jnp.pad(rows, ((0, 0), (0, missing)))
        x = squares.reshape(-1, self.side, self.side, 1)
        for kernel, norm in zip(self.kernels[:-1], self.norms, strict=True):
            normalised, _ = norm(_halved(x, kernel))
            x = jax.nn.leaky_relu(normalised, 0.2)
        features = x.reshape(x.shape[0], -1)
        last_kernel = self.kernels[-1].reshape(-1)
        return jax.nn.sigmoid(features @ last_kernel), features


class ConvGenerator(eqx.Module):
    """A generator of rows as images, which doubles an image until a row fits into it."""

    kernels: tuple[Array, ...]
    norms: tuple[_Norm, ...]
    start_side: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, fan_in: int, width: int, channels: int, *, key: Array) -> None:
        stages = _stages(side_of(width), channels)[::-1]
        innermost = stages[0]
        self.start_side = innermost.side
        self.width = width
        num_inner = innermost.side**2 * innermost.channels
        shapes: list[tuple[int, ...]] = [(fan_in, num_inner)]
        for stage, outer in pairwise(stages):
            shapes.append((4, 4, stage.channels, outer.channels))
        norm_sizes = [stage.channels for stage in stages[:-1]]
        self.kernels, self.norms = _fresh_weights(shapes, norm_sizes, key)

    def __call__(
        self, x: Array, running: Running | None = None
    ) -> tuple[Array, Running]:
        """Map noise and condition, (n, fan_in), to (n, width); statistics as in CTGAN."""
        n = x.shape[0]
        # The first kernel is a dense layer that makes the innermost image.
        first_kernel, *kernels = self.kernels
        x = (x @ first_kernel).reshape(n, self.start_side, self.start_side, -1)
        statistics = []
        for i, (kernel, norm) in enumerate(zip(kernels, self.norms, strict=True)):
            norm_running = None if running is None else running[i]
            x, norm_statistics = norm(x, norm_running)
            statistics.append(norm_statistics)
            x = _doubled(jax.nn.relu(x), kernel)
        return x.reshape(n, -1)[:, : self.width], tuple(statistics)

    def start(self) -> Running:
        """Return statistics before the first step."""
        statistics = []
        for norm in self.norms:
            statistics.append((jnp.zeros_like(norm.shift), jnp.ones_like(norm.scale)))
        return tuple(statistics)


Generator = ResidualGenerator | PlainGenerator | ConvGenerator


def generator_of(
    settings: GANSettings | CTABSettings, heads: Heads, key: Array
) -> Generator:
    """Return a fresh generator."""
    fan_in = settings.noise + heads.condition_width
    if isinstance(settings, CTABSettings):
        return ConvGenerator(fan_in, heads.width, settings.channels, key=key)
    if settings.residual:
        return ResidualGenerator(fan_in, settings.generator, heads.width, key=key)
    return PlainGenerator(fan_in, settings.generator, heads.width, key=key)


class GANState(NamedTuple):
    """All that training changes: two networks, their optimisers' states, and the average."""

    generator: Any  # makes rows; of a VertiGAN's party it is the head
    critic: Any  # compares real rows with generated ones
    generator_moments: optax.OptState  # state of the generator's optimiser
    critic_moments: optax.OptState  # state of the critic's optimiser
    average: Any  # moving average of the generator, which draws the rows in the end


def adam(
    rate: float,
    betas: tuple[float, float],
    *,
    epsilon: float = 1e-8,
    decay: float | None = None,
    clip: float | None = None,
) -> optax.GradientTransformation:
    """Return Adam after a bound on the gradient's norm and weight decay, where given."""
    steps = []
    if clip is not None:
        steps.append(optax.clip_by_global_norm(clip))
    if decay is not None:
        steps.append(optax.add_decayed_weights(decay))
    b1, b2 = betas
    return optax.chain(*steps, optax.adam(rate, b1=b1, b2=b2, eps=epsilon))


def stepped(
    optimiser: optax.GradientTransformation,
    net: _Net,
    slope: Any,
    moments: Any,
) -> tuple[_Net, Any]:
    """Take an optimiser's step along a slope; return the network and the optimiser's state."""
    change, moments = optimiser.update(slope, moments, net)
    return eqx.apply_updates(net, change), moments


def stepped_average(
    optimiser: optax.GradientTransformation,
    net: _Net,
    slope: Any,
    moments: Any,
    average: _Net,
    share: float,
) -> tuple[_Net, Any, _Net]:
    """Do as `stepped`, and return the moving average, too; `share` is the old weights' share."""
    # The count of steps before this one.
    count = optax.tree_utils.tree_get(moments, "count")
    net, moments = stepped(optimiser, net, slope, moments)
    return net, moments, averaged(average, net, share, count)
