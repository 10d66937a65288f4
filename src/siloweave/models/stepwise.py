"""Training whose every step follows a sum over rows that others hold.

DP-SGD (Abadi et al., Deep Learning with Differential Privacy, 2016) from the side of whoever holds
the weights: a step asks for a sum of rows' gradients, gets it with noise, and moves. A model says
here what a step's message carries, what a row's loss is given that message, and how the weights
move; the holder of the rows clips, sums and hides their gradients.

**Guarantee**: none by itself. A message reads no row but through the sums before it, so clipped and
noisy sums protect the rows as their own mechanism says (methods/dp_sgd).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models import autoencoder, diffusion
from siloweave.models.autoencoder import Coder, latent_size
from siloweave.models.coders import RowCoder, coder_of, rest_of
from siloweave.models.denoiser import Denoiser, Rows, inputs
from siloweave.models.latent import LatentDiffusion, latent_layout
from siloweave.models.nets import MLP, Array, Groups
from siloweave.models.rounds import DiffusionLearner, Facts, Keys
from siloweave.models.settings import LatentSettings
from siloweave.models.train import Descent, Loss, State, finite
from siloweave.tables.arrays import Matrix
from siloweave.tables.features import Block, Layout


class Stepwise(ABC):
    """A model that is trained by sums of rows' gradients. Conforming: the three in use.

    A message and what follows from it must read no row: what a row's loss is given besides the row
    is the message alone.
    """

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many steps there are."""

    @property
    def stages(self) -> tuple[int, ...]:
        """The steps at which messages change their shape; the first is 0."""
        return (0,)

    def stage(self, step: int) -> int:
        """Return the stage that a step belongs to, as the number of its first step."""
        return max(first for first in self.stages if first <= step)

    def keys(self, key: Array) -> Keys:
        """Return how a key of the whole training is divided."""
        return Keys(*jax.random.split(key, 3))

    @abstractmethod
    def rows(self, X: Matrix) -> Any:
        """Return rows as losses read them, with equal leading axis.

        Raises InputError for rows that do not fit.
        """

    @abstractmethod
    def start(self, initial: Array) -> Any:
        """Return the state before the first step."""

    def opened(self, stage: int, initial: Array) -> Any:
        """Return a state in which a stage may begin, for its shapes."""
        return self.start(initial)

    @abstractmethod
    def message(self, state: Any, key: Array) -> Any:
        """Return what a step's message carries: a tree of arrays."""

    @abstractmethod
    def task(self, message: Any) -> tuple[Any, Loss]:
        """Return the network whose gradient a message asks for, and the loss of one row.

        The network is made of dense layers, and the loss calls them, so that gradients can be
        book-kept. Losses of all messages share a compiled program.
        """

    @abstractmethod
    def moved(self, state: Any, slope: Any, key: Array) -> Any:
        """Return the state after a step along the mean gradient."""

    @abstractmethod
    def finish(self, state: Any, rows: int, key: Array) -> Any:
        """Return the model that samples, learned from so many rows as far as is known."""

    def shapes(self, stage: int = 0) -> Any:
        """Return shapes and types of a stage's messages; nothing is computed for them."""

        def first_message(key: Array) -> Any:
            return self.message(self.opened(stage, key), key)

        return eqx.filter_eval_shape(first_message, jax.random.key(0))

    def empty(self, stage: int = 0) -> Any:
        """Return a message of zeros, with shapes and types of any other of its stage."""
        return jax.tree.map(_zeros, self.shapes(stage))


def _zeros(leaf: Any) -> Any:
    """Return zeros of an array's shape and type; what is no array stays as it is."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    return jnp.zeros(leaf.shape, leaf.dtype)


def check_finite(state: Any, step: int) -> None:
    """Refuse a state that diverged in a step, which is counted from 1; raises InputError."""
    if not finite(state):
        raise InputError(
            f"training diverged in step {step}: weights hold NaN or an infinity. Steps up to this "
            "one are paid. Lower the learning rate in settings, or its kin, before the next run"
        )


@eqx.filter_jit
def _moved(descent: Any, state: Any, slope: Any) -> Any:
    """Return the state after a step of the optimiser along a gradient, as one program."""
    return descent.moved(state, slope)


@dataclass(frozen=True)
class DiffusionSteps(Stepwise):
    """A diffusion; a step's message is its network."""

    # The diffusion; its settings say how many steps there are.
    learner: DiffusionLearner
    # Of labels, public or paid for; None if not known.
    shares: Sequence[float] | None = None

    @property
    def steps(self) -> int:
        """How many steps there are, as the settings say."""
        return self.learner.settings.steps

    def keys(self, key: Array) -> Keys:
        """Return the keys as the learner has them."""
        return self.learner.keys(key)

    def rows(self, X: Matrix) -> Any:
        """Return numbers, codes and labels."""
        # Facts matter where latents are scaled, which a private training never does: any will do.
        rows, _ = self.learner.rows(self.learner.vectors(X), self._facts(1))
        return rows

    def start(self, initial: Array) -> Any:
        """Return a fresh network."""
        return self.learner.start(initial, self.learner.settings.steps)

    def message(self, state: Any, key: Array) -> Any:
        """Return the network."""
        return state.net

    def task(self, message: Any) -> tuple[Any, Loss]:
        """Return the network, and the diffusion's loss."""
        return message, self.learner.update(1).one

    def moved(self, state: Any, slope: Any, key: Array) -> Any:
        """Return the state after one step of the optimiser."""
        update = self.learner.update(self.learner.settings.steps)
        return _moved(update, state, slope)

    def finish(self, state: Any, rows: int, key: Array) -> Any:
        """Return the model of the moving average."""
        shared, _ = self.learner.split(state)
        return self.learner.finish(shared, self._facts(rows), key)

    def _facts(self, rows: int) -> Facts:
        """Return what is known about all rows: how many, and how frequent labels are."""
        sums = np.zeros((4, self.learner.layout.width))
        label = self.learner.label_block
        if self.shares is not None and label is not None:
            # The first line is the sum of each entry: of flags, how many rows have the option.
            counts = rows * np.asarray(self.shares)
            sums[0, label.start : label.stop] = counts
        return Facts(rows, sums)


class Second(NamedTuple):
    """The state of a latent diffusion's second stage."""

    coder: Coder  # the trained autoencoder
    state: State  # of the diffusion


class CodedRows(NamedTuple):
    """A message of the second stage."""

    encoder: MLP  # of the trained autoencoder
    net: Denoiser  # the denoiser, whose gradient is asked for


class CodedLoss(eqx.Module):
    """The loss of one row's latent, which a trained encoder makes of the row."""

    encoder: MLP  # as it came in the message; nothing moves it
    # How many of its outputs are latent means.
    latent: int = eqx.field(static=True)
    # (how many, of which size) of the row's choices.
    groups: Groups = eqx.field(static=True)
    descent: Descent  # the diffusion of latents

    def __call__(self, net: Denoiser, row: Rows, key: Array) -> Array:
        """Return the diffusion's loss."""
        batch = Rows(*(array[None] for array in row))  # of one row
        out = self.encoder(inputs(self.groups, batch.numbers, batch.codes))
        z = out[:, : self.latent]
        no_codes = jnp.zeros((1, 0), jnp.int32)
        latent_row = Rows(z, no_codes, batch.labels)
        return self.descent.losses(net, latent_row, key)[0]


@dataclass(frozen=True)
class LatentSteps(Stepwise):
    """An autoencoder, then a diffusion of its latent rows; latents keep the scale they have.

    A message of the first stage is the autoencoder; one of the second is the denoiser with the
    trained encoder, so that a row's latent is made where its gradient is.
    """

    settings: LatentSettings  # of both
    blocks: tuple[Block, ...]  # of a feature vector
    # Column that the diffusion is conditioned on, or None.
    target: str | None = None
    # Of its options, public or paid for; None without.
    shares: Sequence[float] | None = None
    # Whether the diffusion is trained; else the autoencoder alone.
    both: bool = True

    @property
    def first(self) -> int:
        """How many steps the autoencoder takes."""
        return self.settings.dense.steps

    @property
    def steps(self) -> int:
        """How many steps both stages take."""
        if not self.both:
            return self.first
        return self.first + self.settings.diffusion.steps

    @property
    def stages(self) -> tuple[int, ...]:
        """The autoencoder's first step, and the diffusion's."""
        return (0, self.first) if self.both else (0,)

    @cached_property
    def layout(self) -> Layout:
        """The layout of a feature vector."""
        return Layout(self.blocks)

    @cached_property
    def label(self) -> Block | None:
        """The block of the target; None where it is the only one."""
        return self.layout.label_of(self.target)

    @cached_property
    def rest(self) -> Layout:
        """The blocks that are encoded."""
        return rest_of(self.layout, self.label)

    @cached_property
    def coding(self) -> Descent:
        """A step of the autoencoder."""
        return autoencoder.descent(self.settings.dense, self.rest)

    def _latents(self, size: int) -> tuple[Layout, Block | None]:
        """Return the layout of a latent row, and the label's block."""
        options = self.label.size if self.label else 0
        return latent_layout(size, options)

    def diffusing(self, size: int) -> Descent:
        """Return a step of the diffusion."""
        latents, label = self._latents(size)
        return diffusion.descent(self.settings.diffusion, latents, label)

    def rows(self, X: Matrix) -> Rows:
        """Return numbers, codes and labels; raises InputError where they do not fit."""
        checked = self.layout.check(X, least=0)
        return diffusion.rows_of(checked, self.layout, self.label)

    def start(self, initial: Array) -> State:
        """Return a fresh autoencoder."""
        coder = coder_of(self.rest, self.settings.dense, key=initial)
        state: State = self.coding.start(coder.net)
        return state

    def opened(self, stage: int, initial: Array) -> State | Second:
        """Return a fresh autoencoder, or a fresh denoiser beside it."""
        coded = self.start(initial)
        if stage == 0:
            return coded
        return self._second(coded.net, initial)

    def _second(self, coder: Coder, initial: Array) -> Second:
        """Return the state in which the second stage begins, after a trained autoencoder."""
        latents, label = self._latents(coder.latent)
        net = diffusion.network(latents, self.settings.diffusion, label, initial)
        state = self.diffusing(coder.latent).start(net)
        return Second(coder, state)

    def message(self, state: State | Second, key: Array) -> Any:
        """Return the autoencoder; or its encoder, and the denoiser."""
        if isinstance(state, Second):
            return CodedRows(state.coder.encoder, state.state.net)
        return state.net

    def task(self, message: Any) -> tuple[Any, Loss]:
        """Return the network that is trained, and its loss."""
        if not isinstance(message, CodedRows):
            return message, self.coding.one
        size = latent_size(self.settings.dense, self.rest)
        update = self.diffusing(size)
        groups = self.rest.groups
        loss = CodedLoss(message.encoder, size, groups, update)
        return message.net, loss

    def moved(self, state: State | Second, slope: Any, key: Array) -> State | Second:
        """Return the state after a step of the optimiser.

        After the autoencoder's last one it is the state in which the diffusion begins.
        """
        if isinstance(state, Second):
            update = self.diffusing(state.coder.latent)
            denoiser_state: State = _moved(update, state.state, slope)
            return Second(state.coder, denoiser_state)
        coder_state: State = _moved(self.coding, state, slope)
        if not self.both or int(coder_state.step) != self.first:
            return coder_state
        # From here on the averaged encoder makes the latents, and nothing moves it.
        return self._second(coder_state.average, jax.random.fold_in(key, 1))

    def finish(
        self, state: State | Second, rows: int, key: Array
    ) -> LatentDiffusion | RowCoder:
        """Return the whole model, or the trained autoencoder."""
        if not isinstance(state, Second):
            coder = coder_of(self.rest, self.settings.dense, state.average)
            numbers = self.settings.numbers
            return RowCoder(coder, self.layout, self.label, numbers)
        bound = self.settings.diffusion.clip_range
        # A private fit has a bound: no range is read from rows.
        assert bound is not None
        shares: tuple[float, ...] = ()
        if self.label and self.shares:
            shares = tuple(self.shares)
        return LatentDiffusion.of_networks(
            state.coder,
            state.state.average,
            self.layout,
            self.settings,
            self.label,
            shares,
            bound,
        )
