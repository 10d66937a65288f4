"""The generators of GANs: their outputs, and the residual network of CTGAN.

Inside a GAN a row's parts stand in another order than in its feature vector: numbers first, then
choices that are no condition (a number's mode, a missing value), then choices that are, each kind
sorted by size. So every head is a plain slice, whatever the table, and the conditional vector is
laid out like the last part of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from siloweave.models.layout import Layout
from siloweave.models.nets import MLP, Dense
from siloweave.models.options import Options
from siloweave.tables.features import Block

__all__ = ["Heads", "PlainGenerator", "ResidualGenerator", "Running"]

Array = jax.Array
Running = tuple[tuple[Array, Array], ...]
"""Mean and variance of each batch normalisation, for rows that are drawn one by one."""


@dataclass(frozen=True)
class Heads:
    """Outputs of a generator: tanh for numbers, Gumbel-softmax for choices.

    Attributes:
        blocks: Parts of a row's feature vector.
        columns: Columns whose choice is a condition.

    Example:
        >>> blocks = (Block("sex", 0, 2, "choice"), Block("age", 2, 1, "number"))
        >>> heads = Heads(blocks, ("sex",))
        >>> heads.order.tolist(), heads.width, heads.condition_width
        ([2, 0, 1], 3, 2)
    """

    blocks: tuple[Block, ...]
    columns: tuple[str, ...]

    @cached_property
    def free(self) -> Layout:
        """Numbers, and choices that are no condition."""
        return Layout(tuple(b for b in self.blocks if not self._is_condition(b)))

    @cached_property
    def conditional(self) -> Layout:
        """Choices that are conditions."""
        return Layout(tuple(b for b in self.blocks if self._is_condition(b)))

    def _is_condition(self, block: Block) -> bool:
        return block.kind == "choice" and block.column in self.columns

    @cached_property
    def parts(self) -> tuple[Block, ...]:
        """All choices in inner order."""
        return (*self.free.choices, *self.conditional.choices)

    @cached_property
    def order(self) -> NDArray[np.int64]:
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
        return sum(b.size for b in self.conditional.choices)

    @cached_property
    def options(self) -> Options:
        """Those of all choices, in inner order."""
        return Options.of(b.size for b in self.parts)

    def outputs(self, raw: Array, temperature: float, uniform: Array) -> Array:
        """Turn a network's last layer into rows.

        Numbers go through tanh; each choice is a softmax of its logits with Gumbel noise, divided
        by the temperature (Jang, Gu & Poole 2017), soft and differentiable.

        Args:
            raw: (n, width), in inner order.
            temperature: Towards 0 choices become one-hot.
            uniform: (n, width) draws between 0 and 1, neither included, which become the noise.

        Returns:
            (n, width).
        """
        d = len(self.free.numbers)
        if d == self.width:
            return jnp.tanh(raw)
        gumbel = -jnp.log(-jnp.log(uniform[:, d:]))
        soft = jnp.exp(self.options.log_softmax((raw[:, d:] + gumbel) / temperature))
        return jnp.concatenate([jnp.tanh(raw[:, :d]), soft], axis=1)

    def cross_entropy(self, raw: Array, condition: Array) -> Array:
        """Surprise of the logits at the condition, (n,).

        Args:
            raw: (n, width), before `outputs`.
            condition: (n, condition_width), one 1 in each row.
        """
        logs = self.options.log_softmax(raw[:, len(self.free.numbers) :])
        asked = logs[:, logs.shape[1] - self.condition_width :]
        return -jnp.sum(asked * condition, axis=1)

    def codes(self, rows: NDArray[np.float32]) -> NDArray[np.int32]:
        """Each choice's most likely category, (n, choices), of rows in inner order."""
        found, start = [], len(self.free.numbers)
        for block in self.parts:
            found.append(rows[:, start : start + block.size].argmax(axis=1))
            start += block.size
        return np.stack(found, 1).astype(np.int32) if found else np.zeros((len(rows), 0), np.int32)

    def join(self, numbers: NDArray[np.float32], codes: NDArray[np.int32]) -> NDArray[np.float32]:
        """Feature vectors from numbers and codes, both in inner order."""
        X = np.zeros((len(numbers), self.width), dtype=np.float32)
        X[:, list(self.free.numbers)] = numbers
        for j, block in enumerate(self.parts):
            X[np.arange(len(X)), block.start + codes[:, j]] = 1.0
        return X


class ResidualGenerator(eqx.Module):
    """CTGAN's generator: dense, batch normalisation, ReLU, joined to the block's own input.

    Attributes:
        layers: One per block, and the last.
        scales: Of the batch normalisations.
        shifts: Of the batch normalisations.

    Example:
        >>> net = ResidualGenerator(4, (8, 8), 3, key=jax.random.key(0))
        >>> rows, running = net(jnp.ones((5, 4)))
        >>> rows.shape, len(running), net.layers[-1].weight.shape
        ((5, 3), 2, (20, 3))
    """

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
        """Map (n, fan_in) to (n, fan_out).

        Args:
            x: Noise and condition.
            running: Statistics to normalise with; the batch's own if None.

        Returns:
            What the last layer gives, and the statistics that were used.
        """
        # What a layer reads of x is kept apart: its slope with respect to x is wanted by nobody.
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
    """Dense layers with ReLU, the generator where layers are not joined.

    Attributes:
        net: The layers.
    """

    net: MLP

    def __init__(
        self, fan_in: int, hidden: Sequence[int], fan_out: int, *, key: Array, dropout: float = 0.0
    ) -> None:
        self.net = MLP(fan_in, hidden, fan_out, key=key, dropout=dropout)

    def __call__(self, x: Array, running: Running | None = None) -> tuple[Array, Running]:
        """Map (n, fan_in) to (n, fan_out); there are no statistics."""
        return self.net(x), ()

    def start(self) -> Running:
        """Return no statistics."""
        return ()
