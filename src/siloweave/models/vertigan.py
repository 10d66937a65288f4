"""One generator over several parties: a shared trunk, and a head and a critic for each of them.

Jiang, Zhang, Zhou & Grossklags, Distributed GAN-Based Privacy-Preserving Publication of
Vertically-Partitioned Data, PoPETs 2023(2) (VertiGAN). Here is one round of it as pure functions of
either side, and the parts that draw rows in the end; `methods.vertigan` has the messages.

In a round the trunk turns noise into hidden rows. A party turns them into rows of its own columns,
compares these with real rows by several steps of its critic, then moves its head once against the
critic and returns how the hidden rows should move. The trunk follows the sum of all these.

* The gradient penalty is that of one real row against one generated row, so a row moves its own
  clipped gradient and no other.
* Only the critic's gradient reads real rows; head and hidden rows follow the critic. Whoever takes
  its steps with noise asks for the loss (`beside`), and moves the critic by the answer (`judged`).
* No batch normalisation: a hidden row becomes the same row whatever it stands beside.
* Rows of different parties are never compared.

**Guarantee**: none by itself; `play` trains without noise. Gradients of `beside` that are clipped
and noised have the guarantee of that mechanism, and all else here is post-processing of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from siloweave.errors import DataError, whole
from siloweave.models.gan_networks import (
    Critic,
    GANState,
    Heads,
    RowLoss,
    adam,
    normal,
    stepped,
    stepped_average,
    uniform_draws,
)
from siloweave.models.nets import MLP, Array, load_arrays, save_arrays
from siloweave.models.settings import VertiGANSettings
from siloweave.models.train import mean_gradient, train
from siloweave.tables.arrays import Matrix
from siloweave.tables.features import Block

# Rows drawn at once, one compiled shape.
_CHUNK = 2_000
# The least share that a category starts with.
_RARE = 1e-4


def _generator_adam(settings: VertiGANSettings) -> optax.GradientTransformation:
    return adam(settings.generator_rate, settings.betas)


def _critic_adam(settings: VertiGANSettings) -> optax.GradientTransformation:
    return adam(settings.critic_rate, settings.betas)


# The server's side


class TrunkState(NamedTuple):
    """The trunk, the state of its optimiser, and its moving average."""

    trunk: MLP
    moments: optax.OptState
    average: MLP


def _fresh_trunk(settings: VertiGANSettings, key: Array) -> MLP:
    return MLP(settings.noise, settings.trunk[:-1], settings.trunk[-1], key=key)


@eqx.filter_jit
def shared_start(settings: VertiGANSettings, key: Array) -> TrunkState:
    """Build a fresh trunk with its optimiser."""
    trunk = _fresh_trunk(settings, key)
    return TrunkState(trunk, _generator_adam(settings).init(trunk), trunk)


def _hidden(settings: VertiGANSettings, trunk: MLP, count: int, key: Array) -> Array:
    noise = normal(key, (count, settings.noise))
    return jax.nn.relu(trunk(noise))


_hidden_chunk = eqx.filter_jit(_hidden)


@eqx.filter_jit
def hidden_rows(settings: VertiGANSettings, trunk: MLP, key: Array) -> Array:
    """Draw the hidden rows of a round, (made, units of the trunk's last layer)."""
    return _hidden(settings, trunk, settings.made, key)


@eqx.filter_jit
def follow(
    settings: VertiGANSettings, shared: TrunkState, slope: Array, key: Array
) -> TrunkState:
    """Take one step of the trunk along the summed slopes of all parties at the hidden rows.

    The key is the one that these hidden rows were made with.
    """

    # Drawn again by the same key, the rows are those that the slopes are of.
    def hidden_of(trunk: MLP) -> Array:
        return _hidden(settings, trunk, settings.made, key)

    _, gradient_of = eqx.filter_vjp(hidden_of, shared.trunk)
    (gradient,) = gradient_of(slope)
    trunk, moments, average = stepped_average(
        _generator_adam(settings),
        shared.trunk,
        gradient,
        shared.moments,
        shared.average,
        settings.average,
    )
    return TrunkState(trunk, moments, average)


# A party's side; its generator is its head


def heads_of(blocks: Sequence[Block]) -> Heads:
    """Return a party's columns without their names, so that equal shapes share programs."""
    return Heads(tuple(replace(block, column="") for block in blocks), ())


def own_start(
    settings: VertiGANSettings,
    heads: Heads,
    shares: Mapping[int, Sequence[float]],
    key: Array,
) -> GANState:
    """Build a fresh head and critic.

    `shares` is how frequent each option of each choice is, by where its block starts; public, or
    paid for. It is not read unless `settings.informed`.
    """
    logs = np.zeros(heads.width, dtype=np.float32)
    if settings.informed and heads.parts:
        num_numbers = len(heads.free.numbers)
        all_shares = []
        for block in heads.parts:
            all_shares.append(np.asarray(shares[block.start], dtype=np.float64))
        joined = np.concatenate(all_shares)
        logs[num_numbers:] = np.log(np.maximum(joined, _RARE))
    return _state_with(settings, heads, jnp.asarray(logs), key)


def critic_size(settings: VertiGANSettings, heads: Heads) -> int:
    """Count the trained numbers of a party's critic."""
    sizes = (heads.width, *settings.critic, 1)
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))


def _fresh_head(settings: VertiGANSettings, heads: Heads, key: Array) -> MLP:
    return MLP(settings.trunk[-1], settings.head, heads.width, key=key)


@eqx.filter_jit
def _state_with(
    settings: VertiGANSettings, heads: Heads, logs: Array, key: Array
) -> GANState:
    """Return a fresh state, with logarithms of shares added to the head's last bias."""
    head_key, critic_key = jax.random.split(key)
    head = _fresh_head(settings, heads, head_key)
    # The softmax of logarithms of shares has these shares.
    bias = head.layers[-1].bias + logs
    head = eqx.tree_at(lambda net: net.layers[-1].bias, head, bias)
    critic = Critic(heads.width, settings.critic, pac=1, dropout=0.0, key=critic_key)
    head_moments = _generator_adam(settings).init(head)
    critic_moments = _critic_adam(settings).init(critic)
    return GANState(head, critic, head_moments, critic_moments, head)


def _rows(
    settings: VertiGANSettings, heads: Heads, head: MLP, hidden: Array, key: Array
) -> Array:
    """Return rows of one party's columns, in inner order."""
    raw = head(hidden)
    uniform = uniform_draws(key, (hidden.shape[0], heads.width))
    return heads.outputs(raw, settings.temperature, uniform)


_rows_chunk = eqx.filter_jit(_rows)


class _CriticStep(eqx.Module):
    """One step of the critic without noise, against a head that stands still."""

    settings: VertiGANSettings = eqx.field(static=True)
    heads: Heads = eqx.field(static=True)
    head: MLP
    hidden: Array

    def __call__(
        self,
        state: tuple[Critic, Any],
        batch: Array,
        key: Array,
    ) -> tuple[tuple[Critic, Any], Array]:
        """Update the critic; the loss is of real rows, and so not private."""
        critic, moments = state
        pool_key, row_key = jax.random.split(key)
        loss = _beside(self.settings, self.heads, self.head, self.hidden, pool_key)
        slope, value = mean_gradient(loss, critic, batch, row_key)
        return stepped(_critic_adam(self.settings), critic, slope, moments), value


def _beside(
    settings: VertiGANSettings,
    heads: Heads,
    head: MLP,
    hidden: Array,
    key: Array,
) -> RowLoss:
    pool = _rows(settings, heads, head, hidden, key)
    return RowLoss(settings.penalty, pool)


@eqx.filter_jit
def beside(
    settings: VertiGANSettings,
    heads: Heads,
    state: GANState,
    hidden: Array,
    key: Array,
) -> RowLoss:
    """Build the loss of a critic step, with rows that the head makes of the hidden ones."""
    return _beside(settings, heads, state.generator, hidden, key)


@eqx.filter_jit
def judged(settings: VertiGANSettings, state: GANState, slope: Any) -> GANState:
    """Return the networks after a step of the critic along a slope."""
    optimiser = _critic_adam(settings)
    critic, moments = stepped(optimiser, state.critic, slope, state.critic_moments)
    return state._replace(critic=critic, critic_moments=moments)


def play(
    settings: VertiGANSettings,
    heads: Heads,
    state: GANState,
    hidden: Array,
    rows: Any,
    *,
    key: Array,
) -> tuple[GANState, Array]:
    """Play a party's round without noise: several critic steps, then one step of the head.

    `rows` are real rows in inner order, (rows, width). Returns the networks afterwards, and the
    slope of the head's loss at the hidden rows. Raises TrainingError where training diverged.
    """
    critic_key, head_key = jax.random.split(key)
    critic, moments = train(
        (state.critic, state.critic_moments),
        _CriticStep(settings, heads, state.generator, hidden),
        rows,
        steps=settings.critic_steps,
        batch=min(settings.batch, rows.shape[0]),
        key=critic_key,
        epoch_steps=settings.critic_steps,
    )
    state = state._replace(critic=critic, critic_moments=moments)
    return answered(settings, heads, state, hidden, head_key)


@eqx.filter_jit
def answered(
    settings: VertiGANSettings,
    heads: Heads,
    state: GANState,
    hidden: Array,
    key: Array,
) -> tuple[GANState, Array]:
    """Take one step of the head against the critic; return the slope at the hidden rows, too."""

    # Both slopes are of one draw, before the head's step.
    def loss(inputs: tuple[MLP, Array]) -> Array:
        head, hidden = inputs
        rows = _rows(settings, heads, head, hidden, key)
        score: Array = state.critic(rows).mean()
        return -score

    head_slope, hidden_slope = eqx.filter_grad(loss)((state.generator, hidden))
    head, moments, average = stepped_average(
        _generator_adam(settings),
        state.generator,
        head_slope,
        state.generator_moments,
        state.average,
        settings.average,
    )
    state = state._replace(generator=head, generator_moments=moments, average=average)
    return state, hidden_slope


# The parts that draw rows


def _facts(kind: str, settings: VertiGANSettings, **of_kind: Any) -> dict[str, Any]:
    return {
        "format": f"siloweave-vertigan-{kind}",
        "settings": asdict(settings),
        **of_kind,
    }


def _checked_settings(
    facts: Mapping[str, Any], kind: str, path: Path
) -> VertiGANSettings:
    if facts.get("format") != f"siloweave-vertigan-{kind}":
        raise DataError(
            f"{path} is no stored {kind} of VertiGAN; it holds {facts.get('format')!r}"
        )
    return VertiGANSettings(**facts["settings"])


@dataclass(frozen=True)
class Trunk:
    """A trained trunk, which draws the hidden rows that every head turns into its own columns."""

    settings: VertiGANSettings  # how it was trained
    net: MLP  # the network
    parties: int  # how many heads it has

    def sample(self, n: int, *, key: Array) -> Matrix:
        """Draw hidden rows, (n, units of the trunk's last layer)."""
        whole("n", n)
        num_chunks = -(-n // _CHUNK)
        # Without a chunk, where n is 0, there is still an array of that width.
        chunks = [np.zeros((0, self.settings.trunk[-1]), dtype=np.float32)]
        for i in range(num_chunks):
            chunk_key = jax.random.fold_in(key, i)
            hidden = _hidden_chunk(self.settings, self.net, _CHUNK, chunk_key)
            chunks.append(np.asarray(hidden))
        return np.concatenate(chunks)[:n]

    def save(self, path: Path | str) -> None:
        """Write the trunk as one safetensors file."""
        facts = _facts("trunk", self.settings, parties=self.parties)
        save_arrays(Path(path), self.net, facts)

    @classmethod
    def load(cls, path: Path | str) -> Trunk:
        """Read a trunk from its file; DataError for a missing file, or another kind of file."""

        def build(facts: dict[str, Any]) -> tuple[Any, ...]:
            settings = _checked_settings(facts, "trunk", Path(path))
            net = _fresh_trunk(settings, jax.random.key(0))
            return settings, net, int(facts["parties"])

        return cls(*load_arrays(Path(path), build))


@dataclass(frozen=True)
class Head:
    """A party's trained head."""

    settings: VertiGANSettings  # how it was trained
    heads: Heads  # what the party's columns are
    net: MLP  # the network

    @property
    def width(self) -> int:
        """The number of entries in a hidden row."""
        return self.settings.trunk[-1]

    def decode(self, hidden: Matrix, *, key: Array) -> Matrix:
        """Turn hidden rows into feature vectors of the party's columns, choices as one-hot."""
        X = np.zeros((len(hidden), self.heads.width), np.float32)
        for i, start in enumerate(range(0, len(hidden), _CHUNK)):
            # Whole chunks, so that one program decodes all of them; what is too much is cut off.
            part = X[start : start + _CHUNK]
            chunk = np.zeros((_CHUNK, hidden.shape[1]), np.float32)
            chunk[: len(part)] = hidden[start : start + _CHUNK]
            chunk_key = jax.random.fold_in(key, i)
            rows = _rows_chunk(
                self.settings, self.heads, self.net, jnp.asarray(chunk), chunk_key
            )
            part[:] = self.heads.vectors(np.asarray(rows)[: len(part)])
        return X

    def save(self, path: Path) -> None:
        """Write the head as one safetensors file."""
        blocks = [asdict(block) for block in self.heads.blocks]
        facts = _facts("head", self.settings, blocks=blocks)
        save_arrays(path, self.net, facts)

    @classmethod
    def load(cls, path: Path) -> Head:
        """Read a head from its file; DataError for a missing file, or another kind of file."""

        def build(facts: dict[str, Any]) -> tuple[Any, ...]:
            blocks = tuple(Block(**block) for block in facts.get("blocks", ()))
            heads = Heads(blocks, ())
            settings = _checked_settings(facts, "head", path)
            net = _fresh_head(settings, heads, jax.random.key(0))
            return settings, heads, net

        return cls(*load_arrays(path, build))
