"""One step of training: AdamW with a falling rate, and the moving average of the weights."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from siloweave.models.multinomial import Groups
from siloweave.models.nets import Array, averaged

__all__ = ["Descent", "State"]


class Pace(Protocol):
    """What a step needs of the settings."""

    @property
    def steps(self) -> int:
        """Steps in all."""

    @property
    def learning_rate(self) -> float:
        """At the start; it falls linearly to 0."""

    @property
    def weight_decay(self) -> float:
        """Of AdamW."""

    @property
    def decay(self) -> float:
        """Of the moving average."""


class State(eqx.Module):
    """What training carries from step to step.

    Attributes:
        net: The network that is trained.
        average: Its moving average, which is what samples.
        moments: State of the optimiser.
        step: Steps taken.
    """

    net: Any
    average: Any
    moments: optax.OptState
    step: Array


class Descent(eqx.Module):
    """A step; equal ones share a compiled program. A model overrides `losses`.

    Attributes:
        settings: Rate, length and the model's own settings; hashable.
        groups: (how many, of which size) of the choices.
    """

    settings: Any = eqx.field(static=True)
    groups: Groups = eqx.field(static=True)

    @abstractmethod
    def losses(self, net: Any, rows: Any, key: Array) -> Array:
        """The loss of each row of a batch, (batch,)."""

    def one(self, net: Any, row: Any, key: Array) -> Array:
        """The loss of one row, as private gradients need it."""
        return self.losses(net, jax.tree.map(lambda x: x[None], row), key)[0]

    def mean(self, net: Any, batch: Any, key: Array) -> Array:
        """The mean loss of a batch."""
        return self.losses(net, batch, key).mean()

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """AdamW, its rate falling linearly to 0."""
        s: Pace = self.settings
        rate = optax.linear_schedule(s.learning_rate, 0.0, s.steps)
        return optax.adamw(rate, weight_decay=s.weight_decay)

    @eqx.filter_jit  # one program, not one for each shape
    def start(self, net: Any) -> State:
        """The state before the first step."""
        moments = self.optimiser.init(eqx.filter(net, eqx.is_inexact_array))
        return State(net, net, moments, jnp.array(0))

    def __call__(self, state: State, batch: Any, key: Array) -> tuple[State, Array]:
        """Take one step; returns the loss too."""
        loss, slope = eqx.filter_value_and_grad(self.mean)(state.net, batch, key)
        return self.moved(state, slope), loss

    def moved(self, state: State, slope: Any) -> State:
        """The state after a step along a slope."""
        moves, moments = self.optimiser.update(slope, state.moments, state.net)
        net = eqx.apply_updates(state.net, moves)
        average = averaged(state.average, net, self.settings.decay, state.step)
        return State(net, average, moments, state.step + 1)
