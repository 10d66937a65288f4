"""The options of all choices side by side, so that one program serves choices of every size.

A kernel for each size of choice takes a third of a second to compile, and a table has many sizes.
Here arithmetic with options is arithmetic with one wide array, and what belongs to the same choice
is added up by a product with a matrix of zeros and ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

__all__ = ["Groups", "Options"]

Array = jax.Array

Groups = tuple[tuple[int, int], ...]
"""(how many, of which size) of choices that follow one another."""


@dataclass(frozen=True)
class Options:
    """Where each option of each choice is.

    Attributes:
        groups: (how many, of which size) of the choices.

    Example:
        >>> options = Options(((1, 2), (1, 3)))
        >>> options.flags(jnp.array([[1, 0]])).astype(int).tolist()
        [[0, 1, 1, 0, 0]]
        >>> options.sums(jnp.arange(5.0)).tolist()
        [1.0, 9.0]
    """

    groups: Groups

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Options:
        """Choices of these sizes, in this order."""
        return cls(tuple((len(list(run)), size) for size, run in groupby(sizes)))

    @cached_property
    def sizes(self) -> npt.NDArray[np.int32]:
        """Of each choice, (choices,)."""
        counts, sizes = np.array(self.groups, np.int32).reshape(-1, 2).T
        return np.repeat(sizes, counts)

    @cached_property
    def choice(self) -> npt.NDArray[np.int32]:
        """Which choice each option belongs to, (options,)."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)

    @cached_property
    def place(self) -> npt.NDArray[np.int32]:
        """Its number in its choice, (options,)."""
        return np.concatenate([np.arange(0, dtype=np.int32), *map(np.arange, self.sizes)])

    def flags(self, codes: Array) -> Array:
        """One-hot choices: (..., choices) integers to (..., options) truth values."""
        return codes[..., self.choice] == self.place

    def sums(self, x: Array) -> Array:
        """Sums over the options of each choice: (..., options) to (..., choices)."""
        if len(self.groups) == 1:  # 300 binary columns need no product
            return x.reshape(*x.shape[:-1], *self.groups[0]).sum(-1)
        return jnp.matmul(x, self._member, precision="highest")

    def largest(self, x: Array) -> Array:
        """The largest entry of each choice: (..., options) to (..., choices)."""
        found, start = [x[..., :0]], 0
        for count, size in self.groups:
            part = x[..., start : start + count * size]
            found.append(part.reshape(*part.shape[:-1], count, size).max(-1))
            start += count * size
        return jnp.concatenate(found, axis=-1)

    def log_softmax(self, logits: Array) -> Array:
        """Logarithms of each choice's law, (..., options)."""
        low = logits - self.largest(jax.lax.stop_gradient(logits))[..., self.choice]
        total = jnp.log(self.sums(jnp.exp(low)))
        if len(self.groups) == 1:
            return low - jnp.repeat(total, self.groups[0][1], axis=-1)
        return low - jnp.matmul(total, self._member.T, precision="highest")

    @cached_property
    def _member(self) -> npt.NDArray[np.float32]:
        """(options, choices), 1 where an option belongs to a choice."""
        belongs: npt.NDArray[np.bool_] = self.choice[:, None] == np.arange(len(self.sizes))
        return belongs.astype(np.float32)
