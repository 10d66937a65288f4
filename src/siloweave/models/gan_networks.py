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

_TINY = 2.0**-24  # uniform draws stay this far from 0 and 1
SIDES = (4, 8, 16, 24, 32)
_LAYERS = 4


@dataclass(frozen=True)
class Heads:
    """Outputs of a generator: tanh for numbers, Gumbel-softmax for choices."""

    blocks: tuple[Block, ...]  # parts of a row's feature vector
    columns: tuple[str, ...]  # columns whose choice is a condition

    @cached_property
    def free(self) -> Layout:
        """Numbers, and choices that are no condition."""
        return Layout(tuple(b for b in self.blocks if not self._is_condition(b)))

    @cached_property
    def conditional(self) -> Layout:
        """Choices that are conditions."""
        return Layout(tuple(b for b in self.blocks if self._is_condition(b)))

    def _is_condition(self, block: Block) -> bool:
        return block.kind == "categorical" and block.column in self.columns

    @cached_property
    def parts(self) -> tuple[Block, ...]:
        """All choices in inner order."""
        return (*self.free.categoricals, *self.conditional.categoricals)

    @cached_property
    def order(self) -> Ints:
        """For each inner position the position in the feature vector."""
        choices = [i for b in self.parts for i in range(b.start, b.start + b.size)]
        return np.array([*self.free.numbers, *choices], dtype=np.int64)

    @property
    def width(self) -> int:
        """Length of a row."""
        return len(self.order)

    @property
    def condition_width(self) -> int:
        """Length of the conditional vector, the last part of a row."""
        return sum(b.size for b in self.conditional.categoricals)

    @cached_property
    def options(self) -> Options:
        """Those of all choices, in inner order."""
        return Options.of(b.size for b in self.parts)

    def outputs(self, raw: Array, temperature: float, uniform: Array) -> Array:
        """Turn a network's last layer, (n, width) in inner order, into rows.

        Numbers go through tanh; each choice is a softmax of its logits with Gumbel noise, divided
        by the temperature (Jang, Gu & Poole 2017), soft and differentiable. `uniform`, (n, width),
        is from the open interval (0, 1).
        """
        d = len(self.free.numbers)
        if d == self.width:
            return jnp.tanh(raw)
        gumbel = -jnp.log(-jnp.log(uniform[:, d:]))
        soft = jnp.exp(self.options.log_softmax((raw[:, d:] + gumbel) / temperature))
        return jnp.concatenate([jnp.tanh(raw[:, :d]), soft], axis=1)

    def cross_entropy(self, raw: Array, condition: Array) -> Array:
        """Cross-entropy, (n,), of logits before `outputs` with the one-hot condition."""
        logs = self.options.log_softmax(raw[:, len(self.free.numbers) :])
        asked = logs[:, logs.shape[1] - self.condition_width :]
        return -jnp.sum(asked * condition, axis=1)

    def vectors(self, rows: Matrix) -> Matrix:
        """Feature vectors of rows in inner order, the likeliest option of a choice as one-hot."""
        start = len(self.free.numbers)
        X = np.zeros((len(rows), self.width), dtype=np.float32)
        X[:, list(self.free.numbers)] = rows[:, :start]
        for block in self.parts:
            codes = rows[:, start : start + block.size].argmax(axis=1)
            X[np.arange(len(X)), block.start + codes] = 1.0
            start += block.size
        return X


class ResidualGenerator(eqx.Module):
    """CTGAN's generator: dense, batch normalisation, ReLU, joined to the block's own input."""

    layers: tuple[Dense, ...]
    scales: tuple[Array, ...]
    shifts: tuple[Array, ...]

    def __init__(self, fan_in: int, hidden: Sequence[int], fan_out: int, *, key: Array) -> None:
        keys, layers = jax.random.split(key, len(hidden) + 1), []
        for size, k in zip(hidden, keys, strict=False):
            layers.append(Dense(fan_in, size, key=k))
            fan_in += size
        self.layers = (*layers, Dense(fan_in, fan_out, key=keys[-1]))
        self.scales = tuple(jnp.ones(size) for size in hidden)
        self.shifts = tuple(jnp.zeros(size) for size in hidden)

    def __call__(self, x: Array, running: Running | None = None) -> tuple[Array, Running]:
        """Map noise and condition, (n, fan_in), to (n, fan_out), and return the statistics used.

        The statistics are those of the batch unless `running` is given.
        """
        # What a layer reads of x is kept apart, because nobody needs its slope with respect to x.
        used, made = [], jnp.zeros((len(x), 0))
        for i in range(len(self.layers) - 1):
            pre = self._joined(i, made, x)
            mean, var = (pre.mean(0), pre.var(0)) if running is None else running[i]
            used.append((mean, var))
            scale = self.scales[i] * jax.lax.rsqrt(var + 1e-5)
            h = jax.nn.relu((pre - mean) * scale + self.shifts[i])
            made = jnp.concatenate([h, made], axis=1)
        return self._joined(-1, made, x), tuple(used)

    def _joined(self, i: int, made: Array, x: Array) -> Array:
        """A layer of what the blocks before it made, joined to x."""
        layer, cut = self.layers[i], made.shape[1]
        return made @ layer.weight[:cut] + x @ layer.weight[cut:] + layer.bias

    def start(self) -> Running:
        """Running statistics before the first step."""
        return tuple((jnp.zeros_like(s), jnp.ones_like(s)) for s in self.scales)


class PlainGenerator(eqx.Module):
    """Dense layers with ReLU, the generator where layers are not joined."""

    net: MLP

    def __init__(self, fan_in: int, hidden: Sequence[int], fan_out: int, *, key: Array) -> None:
        self.net = MLP(fan_in, hidden, fan_out, key=key)

    def __call__(self, x: Array, running: Running | None = None) -> tuple[Array, Running]:
        """Map (n, fan_in) to (n, fan_out); there are no statistics."""
        return self.net(x), ()

    def start(self) -> Running:
        """Return no statistics."""
        return ()


class Critic(eqx.Module):
    """Scores packs of rows: dense layers with leaky ReLU (0.2) and dropout."""

    layers: tuple[Dense, ...]  # from `pac` rows joined to one number
    pac: int = eqx.field(static=True)  # rows in a pack (PacGAN: Lin, Khetan, Fanti & Oh 2018)
    dropout: float = eqx.field(static=True)  # share of hidden units that `masks` drops

    def __init__(
        self, width: int, hidden: Sequence[int], *, pac: int, dropout: float, key: Array
    ) -> None:
        sizes = list(pairwise([width * pac, *hidden, 1]))
        keys = jax.random.split(key, len(sizes))
        self.layers = tuple(Dense(*size, key=k) for size, k in zip(sizes, keys, strict=True))
        self.pac, self.dropout = pac, dropout

    def masks(self, packs: int, key: Array) -> Array | None:
        """Dropout of each hidden unit, (packs, all hidden units); None where nothing is dropped.

        All layers share one draw: a random draw costs as much to compile as to run.
        """
        units = sum(layer.bias.shape[0] for layer in self.layers[:-1])
        if self.dropout == 0.0 or units == 0:
            return None
        kept = jax.random.uniform(key, (packs, units)) >= self.dropout
        # Without the barrier the draw is fused into all that uses it, and drawn again for each.
        scaled: Array = jax.lax.optimization_barrier(  # type: ignore[no-untyped-call]
            kept / (1.0 - self.dropout)
        )
        return scaled

    def __call__(self, x: Array, *, masks: Array | None = None) -> Array:
        """Score packs, (packs, pac x width) -> (packs,)."""
        return self.above(self.layers[0](x), masks=masks)

    def above(self, pre: Array, *, masks: Array | None = None) -> Array:
        """Scores by the first layer's values before their activation: (packs, units) -> (packs,).

        The first layer is the widest by far, and it is affine: its value for a mixture of packs is
        the mixture of its values for them, so no pack passes it twice.
        """
        start = 0
        for layer in self.layers[1:]:
            x = jax.nn.leaky_relu(pre, 0.2)
            if masks is not None:
                x = x * masks[:, start : start + x.shape[1]]
                start += x.shape[1]
            pre = layer(x)
        return pre[:, 0]

    def slopes(self, x: Array) -> Array:
        """The gradient of each score with respect to its pack, (packs, pac x width), no dropout.

        It is computed by calls of the layers alone: leaky ReLU is linear on either side of 0, so
        its own slope is a constant there.
        """
        marks = []
        for layer in self.layers[:-1]:
            pre = layer(x)
            marks.append(jnp.where(pre >= 0, 1.0, 0.2))
            x = pre * marks[-1]
        back = self.layers[-1].transposed(jnp.ones((x.shape[0], 1)))
        for layer, mark in zip(reversed(self.layers[:-1]), reversed(marks), strict=True):
            back = layer.transposed(back * mark)
        return back


def packed(rows: Array, pac: int) -> Array:
    """Join each run of `pac` rows: (n, width) -> (n / pac, pac x width)."""
    return rows.reshape(rows.shape[0] // pac, pac * rows.shape[1])


def gradient_penalty(
    critic: Critic, real: Array, fake: Array, *, key: Array, masks: Array | None = None
) -> Array:
    """The squared difference between 1 and the slope between real and generated packs, (packs,).

    Gulrajani, Ahmed, Arjovsky, Dumoulin & Courville, Improved Training of Wasserstein GANs, NeurIPS
    2017. One interpolation coefficient per pack, one norm per pack. `real` and `fake` are what the
    critic's first layer gave, before the activation, (packs, units); `masks` are its dropout.

    Where a pack is a single number only slopes above 1 are penalised (Petzka, Fischer & Lukovnikov,
    On the regularization of Wasserstein GANs, ICLR 2018). With several numbers a slope of the wrong
    direction turns while its norm stays 1; with a single one it would have to pass 0, and the
    penalty there held critics at slope -1, so that all generated values moved to one end.
    """
    slope = jax.grad(lambda pre: critic.above(pre, masks=masks).sum())
    return _excess(critic.layers[0].transposed(slope(_between(real, fake, key))))


def _between(real: Array, fake: Array, key: Array) -> Array:
    share = jax.random.uniform(key, (real.shape[0], 1))
    return share * real + (1.0 - share) * fake


def _excess(slope: Array) -> Array:
    # The square root has no slope at 0; a critic that is flat there is pushed by nothing else.
    norm = jnp.sqrt(jnp.sum(slope**2, axis=-1) + 1e-12)
    excess = norm - 1.0 if slope.shape[1] > 1 else jax.nn.relu(norm - 1.0)
    return excess**2


def critic_losses(critic: Critic, real: Array, fake: Array, *, weight: float, key: Array) -> Array:
    """Wasserstein loss of each pack: score(fake) - score(real) + weight x penalty, (packs,).

    Real and generated packs are (packs, pac x width), as many of either; the key draws dropout and
    interpolation.
    """
    a, b = jax.random.split(key)
    many = real.shape[0]
    masks = critic.masks(3 * many, a)
    pair = slice(2 * many), slice(2 * many, None)
    first, last = (None, None) if masks is None else (masks[part] for part in pair)
    pre = critic.layers[0](jnp.concatenate([fake, real]))
    penalty = gradient_penalty(critic, pre[many:], pre[:many], key=b, masks=last)
    scores = critic.above(pre, masks=first)
    return scores[:many] - scores[many:] + weight * penalty


def layered_losses(critic: Critic, real: Array, fake: Array, *, weight: float, key: Array) -> Array:
    """`critic_losses` of a critic without dropout, as calls of its layers alone.

    No gradient is taken inside, so that a private training can book-keep each pack's gradient
    (siloweave.privacy.gradients) instead of forming it.
    """
    many = real.shape[0]
    penalty = _excess(critic.slopes(_between(real, fake, jax.random.split(key)[1])))
    scores = critic(jnp.concatenate([fake, real]))
    return scores[:many] - scores[many:] + weight * penalty


class RowLoss(eqx.Module):
    """A critic's loss of one real row beside a random one of a pool of generated rows."""

    penalty: float = eqx.field(static=True)  # weight of the gradient penalty
    pool: Array  # generated rows, (rows, width); no real row has a part in them

    def __call__(self, critic: Critic, row: Array, key: Array) -> Array:
        """The loss; `row` is (width,), in inner order."""
        return self.beside(critic, row, *jax.random.split(key))

    def beside(self, critic: Critic, row: Array, picking: Array, key: Array) -> Array:
        """The loss, by the keys for the row's partner and for the place of the slope."""
        fake = self.pool[jax.random.randint(picking, (), 0, self.pool.shape[0])]
        return layered_losses(critic, row[None], fake[None], weight=self.penalty, key=key)[0]


def side_of(width: int) -> int:
    """Side of the smallest square that holds a row; raises InputError above 32 x 32."""
    for side in SIDES:
        if side * side >= width:
            return side
    raise InputError(
        f"a row and its condition take {width:,} entries, above 32 x 32 = 1,024: CTAB-GAN cannot "
        "hold it; group categories, or use another GAN"
    )


def uniform_draws(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform draws, inside (0, 1)."""
    return jax.random.uniform(key, shape, minval=_TINY, maxval=1.0 - _TINY)


def to_normal(uniform: Array) -> Array:
    """Standard normal draws from uniform ones."""
    draws: Array = 2.0**0.5 * jax.lax.erf_inv(2.0 * uniform - 1.0)
    return draws


def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Standard normal draws."""
    return to_normal(uniform_draws(key, shape))


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
    """A 4 x 4 convolution with stride 2 and a border of 1, as one product of matrices.

    Where channels are many, gradients of the library's convolutions take up to five times as long
    on a processor. (n, side, side, fan_in) with an even side becomes (n, side / 2, side / 2,
    fan_out); the kernel is (4, 4, fan_in, fan_out).
    """
    n, side, fan_in = x.shape[0], x.shape[1] // 2, x.shape[3]
    pairs = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    pairs = pairs.reshape(n, side + 1, 2, side + 1, 2, fan_in).transpose(0, 1, 3, 2, 4, 5)
    near = [pairs[:, i : i + side, j : j + side] for i in (0, 1) for j in (0, 1)]
    patches = jnp.concatenate([part.reshape(n, side, side, -1) for part in near], axis=-1)
    quarters = kernel.reshape(2, 2, 2, 2, fan_in, -1).transpose(0, 2, 1, 3, 4, 5)
    return patches @ quarters.reshape(16 * fan_in, -1)


def _doubled(x: Array, kernel: Array) -> Array:
    """The transposed 4 x 4 convolution with stride 2: the sides of an image double."""
    n, side, fan_out = x.shape[0], x.shape[1], kernel.shape[3]
    turned = kernel[::-1, ::-1].swapaxes(2, 3)
    image = jnp.zeros((n, 2 * side, 2 * side, fan_out))
    doubled: Array = jax.linear_transpose(lambda image: _halved(image, turned), image)(x)[0]
    return doubled


class ConvCritic(eqx.Module):
    """Halves an image until one number is left."""

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
    """Doubles an image from one place until a row fits into it."""

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


Generator = ResidualGenerator | PlainGenerator | ConvGenerator


def generator_of(settings: GANSettings | CTABSettings, heads: Heads, key: Array) -> Generator:
    """A fresh generator."""
    fan_in = settings.noise + heads.condition_width
    if isinstance(settings, CTABSettings):
        return ConvGenerator(fan_in, heads.width, settings.channels, key=key)
    kind = ResidualGenerator if settings.residual else PlainGenerator
    return kind(fan_in, settings.generator, heads.width, key=key)


class GANState(NamedTuple):
    """What training changes: two networks, the states of their optimisers, and the average."""

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
    """Adam, after a bound on the gradient's norm and after weight decay where these are given."""
    first = [] if clip is None else [optax.clip_by_global_norm(clip)]
    if decay is not None:
        first.append(optax.add_decayed_weights(decay))
    return optax.chain(*first, optax.adam(rate, b1=betas[0], b2=betas[1], eps=epsilon))


def stepped(
    optimiser: optax.GradientTransformation, net: _Net, slope: Any, moments: Any
) -> tuple[_Net, Any]:
    """A network after a step of its optimiser along a slope, and the optimiser's next state."""
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
    """`stepped`, and the moving average of the network; `share` is that of the old weights."""
    count = optax.tree_utils.tree_get(moments, "count")
    net, moments = stepped(optimiser, net, slope, moments)
    return net, moments, averaged(average, net, share, count)
