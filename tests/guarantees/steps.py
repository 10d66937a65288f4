"""Record the noisy sums of a private training, and replay them on a table that lacks the last row.

The recipe of `replay`, for steps that run inside a compiled loop: the function that adds noise to a
clipped sum is replaced by one that asks the tape. Who is in a batch is a fixed table of coins, one
for each step and row, so that neighbours draw the same rows but for the one that only one of them
has; its place in a batch is the last, so what the other rows draw stays the same as well. What may
differ then is each sum, by no more than the clip, and nothing else: the same noisy sums must lead
to the same model, bit for bit.

Programs are compiled for a tape and would be found again without one: give each test settings of
its own (a rate or a penalty that nobody else uses; a clip is no part of a program).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from siloweave.models import batches
from siloweave.privacy import gradients


@dataclass
class Steps:
    """Noisy sums of one training, in order.

    Attributes:
        exact: The sum of each step, before noise.
        noisy: After it.
        widths: Standard deviation of each step's noise.
        moved: In a replay, how far each sum moved.
    """

    exact: list[np.ndarray] = field(default_factory=list)
    noisy: list[np.ndarray] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    recorded: Steps | None = None

    def answer(self, exact: np.ndarray, width: np.ndarray) -> np.ndarray:
        place = len(self.exact)
        self.exact.append(np.array(exact))
        self.widths.append(float(width))
        if self.recorded is None:
            noise = np.random.default_rng(place).normal(size=exact.shape)
            self.noisy.append((exact + width * noise).astype(np.float32))
        else:
            then = self.recorded
            assert place < len(then.exact), "a step more than on the recorded table"
            assert float(width) == then.widths[place], "the noise depends on the rows"
            self.moved.append(float(np.linalg.norm(exact.astype(float) - then.exact[place])))
            self.noisy.append(then.noisy[place])
        return self.noisy[-1]


def _coins(self: batches._PoissonDraws, step: int) -> np.ndarray:
    coins = np.random.default_rng((7, step)).random(10_000)[: self.count]
    return np.flatnonzero(coins < self.rate)


@contextmanager
def taped(recorded: Steps | None = None) -> Iterator[Steps]:
    """Send the noise of every private step through a tape: a new one, or a replay of another."""
    tape = Steps(recorded=recorded)
    kept = gradients.add_normal, batches._PoissonDraws._draw

    def add(tree, deviation, *, key):
        leaves, structure = jax.tree.flatten(tree)
        flat = jnp.concatenate([leaf.reshape(-1) for leaf in leaves])
        shape = jax.ShapeDtypeStruct(flat.shape, jnp.float32)
        noisy = io_callback(_asked, shape, flat, jnp.float32(deviation))
        cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = jnp.split(noisy, cuts)
        made = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(structure, made)

    _TAPES.append(tape)
    try:
        gradients.add_normal, batches._PoissonDraws._draw = add, _coins
        yield tape
    finally:
        gradients.add_normal, batches._PoissonDraws._draw = kept
        _TAPES.pop()


_TAPES: list[Steps] = []


def _asked(exact: np.ndarray, width: np.ndarray) -> np.ndarray:
    """A compiled program keeps the function that it was compiled with: this finds the tape."""
    return _TAPES[-1].answer(np.asarray(exact), np.asarray(width))
