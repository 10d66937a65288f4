"""Training whose every step follows a sum over rows that lie with others.

DP-SGD (Abadi et al., Deep Learning with Differential Privacy, 2016) from the side of whoever holds
the weights: a step asks for a sum of rows' gradients, gets it with noise, and moves. A model says
here what a step's message carries, what a row's loss is given that message, and how the weights
move; who holds the rows, and how their gradients are clipped, summed and hidden, is for others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models.layout import Matrix
from siloweave.models.rounds import DiffusionLearner, Facts, Keys
from siloweave.models.train import Loss

__all__ = ["DiffusionSteps", "Stepwise", "check_finite"]

Array = jax.Array


class Stepwise(ABC):
    """A model that is trained by sums of rows' gradients. Conforming: the two in use.

    A message and what follows from it must read no row: what a row's loss is given besides the row
    is the message alone.
    """

    @abstractmethod
    def keys(self, key: Array) -> Keys:
        """How a key of the whole training is divided."""

    @abstractmethod
    def rows(self, X: Matrix) -> Any:
        """Rows as losses read them, with equal leading axis; InputError where they do not fit."""

    @abstractmethod
    def start(self, born: Array) -> Any:
        """The state before the first step."""

    @abstractmethod
    def message(self, state: Any, key: Array) -> Any:
        """What a step's message carries: a tree of arrays."""

    @abstractmethod
    def task(self, message: Any) -> tuple[Any, Loss]:
        """The network whose gradient a message asks for, and the loss of one row.

        The network is made of dense layers, and the loss calls them, so that gradients can be
        book-kept. Losses of all messages share a compiled program.
        """

    @abstractmethod
    def moved(self, state: Any, slope: Any, key: Array) -> Any:
        """The state after a step along the mean gradient."""

    @abstractmethod
    def finish(self, state: Any, rows: int, key: Array) -> Any:
        """The model that samples, learned from so many rows as far as is known."""

    def empty(self) -> Any:
        """A message of zeros, with shapes and types of any other; nothing is computed for it."""

        def made(key: Array) -> Any:
            return self.message(self.start(key), key)

        shapes = eqx.filter_eval_shape(made, jax.random.key(0))
        return jax.tree.map(_zeros, shapes)


def check_finite(state: Any, step: int) -> None:
    """Refuse a state that diverged.

    Args:
        state: After a step.
        step: Which, counted from 1.

    Raises:
        InputError: A number in it is not finite.
    """
    if not bool(_finite(eqx.filter(state, eqx.is_inexact_array))):
        raise InputError(
            f"training diverged in step {step}: weights hold NaN or an infinity. Steps up to this "
            "one are paid. Lower the learning rate in settings, or its kin, before the next run"
        )


@eqx.filter_jit
def _finite(state: Any) -> Array:
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(state)]).all()


def _zeros(x: Any) -> Any:
    return jnp.zeros(x.shape, x.dtype) if isinstance(x, jax.ShapeDtypeStruct) else x


@dataclass(frozen=True)
class DiffusionSteps(Stepwise):
    """A diffusion; a step's message is its network.

    Attributes:
        learner: The diffusion; its settings say how many steps there are.
        law: How frequent each label is, public or paid for; None without one, or where it is not
            known.
    """

    learner: DiffusionLearner
    law: Sequence[float] | None = None

    def keys(self, key: Array) -> Keys:
        """As the learner has them."""
        return self.learner.keys(key)

    def rows(self, X: Matrix) -> Any:
        """Numbers, codes and labels."""
        found, _ = self.learner.rows(self.learner.vectors(X), self._facts(1))
        return found

    def start(self, born: Array) -> Any:
        """A fresh network."""
        return self.learner.start(born, self.learner.settings.steps)

    def message(self, state: Any, key: Array) -> Any:
        """The network."""
        return state.net

    def task(self, message: Any) -> tuple[Any, Loss]:
        """The network, and the diffusion's loss."""
        return message, self.learner.update(1).one

    def moved(self, state: Any, slope: Any, key: Array) -> Any:
        """One step of the optimiser."""
        return _moved(self.learner.update(self.learner.settings.steps), state, slope)

    def finish(self, state: Any, rows: int, key: Array) -> Any:
        """The moving average."""
        shared, _ = self.learner.split(state)
        return self.learner.finish(shared, self._facts(rows), key)

    def _facts(self, rows: int) -> Facts:
        """What a learner is told about all rows: how many, and how frequent labels are."""
        sums, told = np.zeros((4, self.learner.layout.width)), self.learner.told
        if self.law is not None and told is not None:
            sums[0, told.start : told.stop] = rows * np.asarray(self.law)
        return Facts(rows, sums)


@eqx.filter_jit
def _moved(descent: Any, state: Any, slope: Any) -> Any:
    return descent.moved(state, slope)
