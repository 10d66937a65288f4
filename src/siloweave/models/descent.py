"""One step of training: AdamW with a falling rate, and the moving average of the weights."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from siloweave.models.multinomial import Groups
from siloweave.models.nets import Array, averaged


class State(eqx.Module):
    """What training carries from step to step; the average is what samples."""

    net: Any
    average: Any
    moments: optax.OptState
    step: Array


class Descent(eqx.Module):
    """A step; equal ones share a compiled program. A model overrides `losses`.

    Attributes:
        settings: Those of a diffusion or an autoencoder.
        groups: (how many, of which size) of the categoricals.
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
        rate = optax.linear_schedule(self.settings.learning_rate, 0.0, self.settings.steps)
        return optax.adamw(rate, weight_decay=self.settings.weight_decay)

    @eqx.filter_jit  # one program, not one for each shape
    def start(self, net: Any) -> State:
        """The state before the first step."""
        moments = self.optimiser.init(eqx.filter(net, eqx.is_inexact_array))
        return State(net, net, moments, jnp.array(0))

    def __call__(self, state: State, batch: Any, key: Array) -> tuple[State, Array]:
        """Take one step; returns the loss too."""
        loss, gradient = eqx.filter_value_and_grad(self.mean)(state.net, batch, key)
        return self.moved(state, gradient), loss

    def moved(self, state: State, gradient: Any) -> State:
        """The state after a step along a gradient."""
        updates, moments = self.optimiser.update(gradient, state.moments, state.net)
        net = eqx.apply_updates(state.net, updates)
        average = averaged(state.average, net, self.settings.decay, state.step)
        return State(net, average, moments, state.step + 1)
