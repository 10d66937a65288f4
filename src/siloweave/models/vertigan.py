"""One generator over several parties: a shared trunk, and a head and a critic for each of them.

Jiang, Zhang, Karakus & Unsal, Distributed GAN-Based Privacy-Preserving Publication of
Vertically-Partitioned Data, VLDB 2023 (VertiGAN). Here is one round of it as two pure functions,
one for either side, and what is left in the end; who sends what is `algorithms.vertigan`'s.

In a round the trunk turns noise into hidden rows. A party turns them into rows of its own columns,
shows these and real rows to its critic several times, then moves its head once against the critic
and returns how the hidden rows should move. The trunk follows the sum of all these.

* The gradient penalty is that of one real row against one generated row, so a row moves its own
  clipped gradient and nobody else's. (A penalty that is a mean over the batch, added to each row's
  loss, lets every row move all of them.)
* Only the critic's gradient reads real rows; head and hidden rows follow the critic. Whoever takes
  its steps with noise asks for the loss (`beside`), and moves the critic by what comes (`judged`).
* No batch normalisation: a hidden row becomes the same row whatever it stands beside.
* Rows of different parties are never compared. That two columns of different parties go together
  can only come from what the trunk learns of each alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from siloweave.errors import DataError, InputError
from siloweave.models.gan_networks import Critic, Heads, layered_losses, normal
from siloweave.models.nets import MLP, averaged, load_arrays, save_arrays
from siloweave.models.settings import VertiGANSettings
from siloweave.models.train import mean_gradient, train
from siloweave.tables.features import Block

__all__ = [
    "Head",
    "Own",
    "RowLoss",
    "Trunk",
    "TrunkState",
    "VertiGANSettings",
    "answered",
    "beside",
    "critic_size",
    "follow",
    "heads_of",
    "hidden_rows",
    "judged",
    "own_start",
    "play",
    "shared_start",
]

Array = jax.Array
Matrix = NDArray[np.float32]
_Tree = TypeVar("_Tree")
_CHUNK = 2_000  # rows drawn at once, one compiled shape
_TINY = 2.0**-24
_RARE = 1e-4  # the least share that a category starts with


def _adam(settings: VertiGANSettings, rate: float) -> optax.GradientTransformation:
    return optax.adam(rate, b1=settings.betas[0], b2=settings.betas[1])


def _moments(settings: VertiGANSettings, rate: float, net: Any) -> optax.OptState:
    return _adam(settings, rate).init(eqx.filter(net, eqx.is_inexact_array))


def _moved(
    settings: VertiGANSettings, rate: float, net: _Tree, slope: Any, moments: Any
) -> tuple[_Tree, Any]:
    change, moments = _adam(settings, rate).update(slope, moments)
    return eqx.apply_updates(net, change), moments


# The server's side


class TrunkState(NamedTuple):
    """The trunk, the state of its optimiser, and its moving average."""

    trunk: MLP
    moments: optax.OptState
    average: MLP


def fresh_trunk(settings: VertiGANSettings, key: Array) -> MLP:
    """A trunk that knows nothing yet."""
    return MLP(settings.noise, settings.trunk[:-1], settings.trunk[-1], key=key)


@eqx.filter_jit
def shared_start(settings: VertiGANSettings, key: Array) -> TrunkState:
    """A fresh trunk."""
    trunk = fresh_trunk(settings, key)
    return TrunkState(trunk, _moments(settings, settings.generator_rate, trunk), trunk)


def _hidden(settings: VertiGANSettings, trunk: MLP, count: int, key: Array) -> Array:
    return jax.nn.relu(trunk(normal(key, (count, settings.noise))))


@eqx.filter_jit
def hidden_rows(settings: VertiGANSettings, trunk: MLP, key: Array) -> Array:
    """The hidden rows of a round, (made, units of the trunk's last layer)."""
    return _hidden(settings, trunk, settings.made, key)


@eqx.filter_jit
def follow(settings: VertiGANSettings, shared: TrunkState, slope: Array, key: Array) -> TrunkState:
    """One step of the trunk.

    Args:
        settings: Rates and sizes.
        shared: The trunk before.
        slope: How the losses of all parties change with the hidden rows, summed.
        key: The key that these hidden rows were made with.
    """
    _, back = eqx.filter_vjp(
        lambda trunk: _hidden(settings, trunk, settings.made, key), shared.trunk
    )
    (gradient,) = back(slope)
    trunk, moments = _moved(
        settings, settings.generator_rate, shared.trunk, gradient, shared.moments
    )
    step = optax.tree_utils.tree_get(shared.moments, "count")
    return TrunkState(trunk, moments, averaged(shared.average, trunk, settings.average, step))


# A party's side


class Own(NamedTuple):
    """A party's head and critic, the states of their optimisers, and the head's moving average."""

    head: MLP
    critic: Critic
    head_moments: optax.OptState
    critic_moments: optax.OptState
    average: MLP


def heads_of(blocks: Sequence[Block]) -> Heads:
    """What a party's columns are, without their names: equal shapes share compiled programs.

    Example:
        >>> sex, ill = (Block(name, 0, 2, "categorical") for name in ("sex", "ill"))
        >>> heads_of([sex]) == heads_of([ill])
        True
    """
    return Heads(tuple(replace(block, column="") for block in blocks), ())


def own_start(
    settings: VertiGANSettings,
    heads: Heads,
    shares: Mapping[int, Sequence[float]],
    key: Array,
) -> Own:
    """A fresh head and critic.

    Args:
        settings: Rates and sizes.
        heads: What the party's columns are.
        shares: How frequent each option of each choice is, by where its block starts; public, or
            paid for. Not read unless `settings.informed`.
        key: First weights.
    """
    d, law = len(heads.free.numbers), np.zeros(heads.width, dtype=np.float32)
    if settings.informed and heads.parts:
        laws = [np.asarray(shares[block.start], dtype=np.float64) for block in heads.parts]
        law[d:] = np.log(np.maximum(np.concatenate(laws), _RARE))
    return _own_start(settings, heads, jnp.asarray(law), key)


def critic_size(settings: VertiGANSettings, heads: Heads) -> int:
    """How many numbers of a party's critic are trained."""
    sizes = (heads.width, *settings.critic, 1)
    return sum((a + 1) * b for a, b in pairwise(sizes))


def fresh_head(settings: VertiGANSettings, heads: Heads, key: Array) -> MLP:
    """A head that knows nothing yet."""
    return MLP(settings.trunk[-1], settings.head, heads.width, key=key)


@eqx.filter_jit
def _own_start(settings: VertiGANSettings, heads: Heads, law: Array, key: Array) -> Own:
    a, b = jax.random.split(key)
    head = fresh_head(settings, heads, a)
    head = eqx.tree_at(lambda net: net.layers[-1].bias, head, head.layers[-1].bias + law)
    critic = Critic(heads.width, settings.critic, pac=1, dropout=0.0, key=b)
    return Own(
        head,
        critic,
        _moments(settings, settings.generator_rate, head),
        _moments(settings, settings.critic_rate, critic),
        head,
    )


def _rows(settings: VertiGANSettings, heads: Heads, head: MLP, hidden: Array, key: Array) -> Array:
    """Rows of one party's columns, in inner order."""
    shape = (hidden.shape[0], heads.width)
    uniform = jax.random.uniform(key, shape, minval=_TINY, maxval=1.0 - _TINY)
    return heads.outputs(head(hidden), settings.temperature, uniform)


class RowLoss(eqx.Module):
    """The critic's loss of one real row.

    Attributes:
        penalty: Weight of the gradient penalty.
        pool: Generated rows, which no real row has a part in.
    """

    penalty: float = eqx.field(static=True)
    pool: Array

    def __call__(self, critic: Critic, row: Array, key: Array) -> Array:
        """The loss.

        Args:
            critic: The critic.
            row: (width,), in inner order.
            key: Picks the row's partner in the pool, and where between the two the slope is.
        """
        a, b = jax.random.split(key)
        fake = self.pool[jax.random.randint(a, (), 0, self.pool.shape[0])]
        return layered_losses(critic, row[None], fake[None], weight=self.penalty, key=b)[0]


class _CriticStep(eqx.Module):
    """One critic step without noise, against a head that stands still."""

    settings: VertiGANSettings = eqx.field(static=True)
    heads: Heads = eqx.field(static=True)
    head: MLP
    hidden: Array

    def __call__(
        self, state: tuple[Critic, Any], batch: Array, key: Array
    ) -> tuple[tuple[Critic, Any], Array]:
        """Update; the loss is of real rows, and not private."""
        critic, moments = state
        a, b = jax.random.split(key)
        loss = _beside(self.settings, self.heads, self.head, self.hidden, a)
        slope, value = mean_gradient(loss, critic, batch, b)
        return _moved(self.settings, self.settings.critic_rate, critic, slope, moments), value


def _beside(
    settings: VertiGANSettings, heads: Heads, head: MLP, hidden: Array, key: Array
) -> RowLoss:
    return RowLoss(settings.penalty, _rows(settings, heads, head, hidden, key))


@eqx.filter_jit
def beside(
    settings: VertiGANSettings, heads: Heads, own: Own, hidden: Array, key: Array
) -> RowLoss:
    """The loss of a critic step, beside rows that the head makes of the hidden ones."""
    return _beside(settings, heads, own.head, hidden, key)


@eqx.filter_jit
def judged(settings: VertiGANSettings, own: Own, slope: Any) -> Own:
    """The networks after a step of the critic along a slope."""
    critic, moments = _moved(settings, settings.critic_rate, own.critic, slope, own.critic_moments)
    return own._replace(critic=critic, critic_moments=moments)


def play(
    settings: VertiGANSettings, heads: Heads, own: Own, hidden: Array, rows: Any, *, key: Array
) -> tuple[Own, Array]:
    """A party's round without noise: several critic steps, then one step of the head.

    Args:
        settings: Rates and sizes.
        heads: What the party's columns are.
        own: Its networks before.
        hidden: The round's hidden rows.
        rows: (rows, width), real rows in inner order.
        key: Batches, and what else is drawn.

    Returns:
        The networks afterwards, and how the head's loss changes with the hidden rows.

    Raises:
        TrainingError: Training diverged.
    """
    a, b = jax.random.split(key)
    critic, moments = train(
        (own.critic, own.critic_moments),
        _CriticStep(settings, heads, own.head, hidden),
        rows,
        steps=settings.critic_steps,
        batch=min(settings.batch, rows.shape[0]),
        key=a,
        epoch_steps=settings.critic_steps,
    )
    return answered(settings, heads, own._replace(critic=critic, critic_moments=moments), hidden, b)


@eqx.filter_jit
def answered(
    settings: VertiGANSettings, heads: Heads, own: Own, hidden: Array, key: Array
) -> tuple[Own, Array]:
    """One step of the head against the critic, and the slope at the hidden rows."""

    def loss(both: tuple[MLP, Array]) -> Array:
        head, hidden = both
        return -own.critic(_rows(settings, heads, head, hidden, key)).mean()

    slope, back = eqx.filter_grad(loss)((own.head, hidden))
    head, moments = _moved(settings, settings.generator_rate, own.head, slope, own.head_moments)
    step = optax.tree_utils.tree_get(own.head_moments, "count")
    average = averaged(own.average, head, settings.average, step)
    return own._replace(head=head, head_moments=moments, average=average), back


# What is left


def _facts(kind: str, settings: VertiGANSettings, **own: Any) -> dict[str, Any]:
    return {"format": f"siloweave-vertigan-{kind}", "settings": asdict(settings), **own}


def _checked(facts: Mapping[str, Any], kind: str, path: Path) -> VertiGANSettings:
    if facts.get("format") != f"siloweave-vertigan-{kind}":
        raise DataError(f"{path} is no stored {kind} of VertiGAN; it holds {facts.get('format')!r}")
    return VertiGANSettings(**facts["settings"])


@dataclass(frozen=True)
class Trunk:
    """A trained trunk: makes the hidden rows that every head turns into its own columns.

    Attributes:
        settings: How it was trained.
        net: The network.
        parties: How many heads it has.
    """

    settings: VertiGANSettings
    net: MLP
    parties: int

    def sample(self, n: int, *, key: Array) -> Matrix:
        """Draw hidden rows, (n, units of the trunk's last layer)."""
        if n < 0:
            raise InputError(f"n={n} rows cannot be drawn; give 0 or more")
        keys = [jax.random.fold_in(key, i) for i in range(-(-n // _CHUNK))]
        drawn = [np.asarray(_hidden_chunk(self.settings, self.net, own)) for own in keys]
        empty = np.zeros((0, self.settings.trunk[-1]), dtype=np.float32)
        return np.concatenate([empty, *drawn])[:n]

    def save(self, path: Path | str) -> None:
        """Write it as one safetensors file."""
        save_arrays(Path(path), self.net, _facts("trunk", self.settings, parties=self.parties))

    @classmethod
    def load(cls, path: Path | str) -> Trunk:
        """Read what `save` wrote.

        Raises:
            DataError: When the file is missing or no such file.
        """
        found: list[tuple[VertiGANSettings, int]] = []

        def build(facts: dict[str, Any]) -> MLP:
            found.append((_checked(facts, "trunk", Path(path)), int(facts["parties"])))
            return fresh_trunk(found[0][0], jax.random.key(0))

        net = load_arrays(Path(path), build)
        return cls(found[0][0], net, found[0][1])


@dataclass(frozen=True)
class Head:
    """A party's trained head.

    Attributes:
        settings: How it was trained.
        heads: What the party's columns are.
        net: The network.
    """

    settings: VertiGANSettings
    heads: Heads
    net: MLP

    def rows(self, hidden: Matrix, *, key: Array) -> Matrix:
        """Turn hidden rows into feature vectors of the party's columns, choices as one-hot."""
        made = []
        for i, start in enumerate(range(0, len(hidden), _CHUNK)):
            part = hidden[start : start + _CHUNK]
            whole = np.zeros((_CHUNK, hidden.shape[1]), np.float32)
            whole[: len(part)] = part
            own = jax.random.fold_in(key, i)
            told = np.asarray(
                _rows_chunk(self.settings, self.heads, self.net, jnp.asarray(whole), own)
            )
            made.append(told[: len(part)])
        rows = np.concatenate([np.zeros((0, self.heads.width), np.float32), *made])
        return self.heads.join(rows[:, : len(self.heads.free.numbers)], self.heads.codes(rows))

    def written(self) -> bytes:
        """One safetensors file."""
        blocks = [asdict(block) for block in self.heads.blocks]
        with TemporaryDirectory() as folder:
            path = Path(folder) / "head.safetensors"
            save_arrays(path, self.net, _facts("head", self.settings, blocks=blocks))
            return path.read_bytes()

    @classmethod
    def read(cls, data: bytes) -> Head:
        """Read what `written` made.

        Raises:
            DataError: When it is no such file.
        """
        found: list[tuple[VertiGANSettings, Heads]] = []

        def build(facts: dict[str, Any]) -> MLP:
            blocks = tuple(Block(**block) for block in facts.get("blocks", ()))
            found.append((_checked(facts, "head", path), Heads(blocks, ())))
            return fresh_head(*found[0], jax.random.key(0))

        with TemporaryDirectory() as folder:
            path = Path(folder) / "head.safetensors"
            path.write_bytes(data)
            net = load_arrays(path, build)
        return cls(*found[0], net)


@eqx.filter_jit
def _hidden_chunk(settings: VertiGANSettings, trunk: MLP, key: Array) -> Array:
    return _hidden(settings, trunk, _CHUNK, key)


@eqx.filter_jit
def _rows_chunk(
    settings: VertiGANSettings, heads: Heads, head: MLP, hidden: Array, key: Array
) -> Array:
    return _rows(settings, heads, head, hidden, key)
