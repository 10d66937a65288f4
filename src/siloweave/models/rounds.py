"""Training in rounds: what owners of different rows exchange, and how one model comes of it.

Every owner trains a copy of the networks for an epoch of its own rows and sends them; their
weighted mean is what the next round starts from (McMahan, Moore, Ramage, Hampson & Agüera y Arcas,
Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017). Moments of
the optimiser stay with the owner. With one owner a training in rounds is the training in one piece,
update for update: `Learner.run` draws the batches and keys of `fit_gan` and of `diffusion.fit`.

**Guarantee**: none. Networks and `Facts` that an owner sends are computed from its rows without
noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from optax.tree_utils import tree_get, tree_set
from safetensors import SafetensorError
from safetensors.numpy import load, save

from siloweave.errors import InputError
from siloweave.models import diffusion
from siloweave.models.coders import RowCoder, rest_of
from siloweave.models.conditional import Conditions
from siloweave.models.denoiser import Evidence
from siloweave.models.diffusion import TabDDPMModel
from siloweave.models.gan import GAN, GANStep, Matching, Seen, conditional_columns
from siloweave.models.gan_networks import GANState, Heads
from siloweave.models.latent import (
    LABEL,
    LatentDiffusion,
    LatentDistribution,
    latent_blocks,
)
from siloweave.models.nets import Array
from siloweave.models.settings import (
    DiffusionSettings,
    GANSettings,
    LatentSettings,
    SphereCodeSettings,
)
from siloweave.models.sphere_codes import SphereCodeCoder, sphere_codes_of
from siloweave.models.train import State as Descended
from siloweave.models.train import train
from siloweave.tables.arrays import Floats, Matrix
from siloweave.tables.features import Block, Layout

_OWNERS = 2**32 - 1  # more than there are steps
_MOMENTS = ("mu", "nu")  # what optax calls Adam's mean gradient and mean square


class Keys(NamedTuple):
    """Keys of a training: for first weights, for steps, and for what is drawn at the end."""

    initial: Array
    steps: Array
    end: Array


class Lap(NamedTuple):
    """A part of an owner's steps."""

    batch: int  # rows of the owner in a step
    first: int  # steps behind it before
    last: int  # steps behind it afterwards
    total: int  # steps of its whole training


class Facts(NamedTuple):
    """What an owner's vectors add up to, exactly."""

    rows: int  # how many
    # (4, width): of each entry the sum, the sum of squares, the least and the largest
    sums: Floats

    @classmethod
    def of(cls, V: Matrix) -> Facts:
        """Return facts about one owner's vectors; raises InputError if one is not finite."""
        exact = V.astype(np.float64)
        sums = np.stack([exact.sum(0), (exact**2).sum(0), exact.min(0), exact.max(0)])
        if not np.isfinite(sums).all():
            raise InputError(
                "rows hold NaN or an infinity; encode missing values first"
            )
        return cls(len(V), sums)

    @classmethod
    def together(cls, parts: Sequence[Facts]) -> Facts:
        """Return facts about all owners' vectors."""
        stacked = np.stack([part.sums for part in parts])
        ends = [stacked[:, 2].min(0), stacked[:, 3].max(0)]
        return cls(
            sum(part.rows for part in parts), np.stack([*stacked[:, :2].sum(0), *ends])
        )

    def possible(self, layout: Layout, size: float) -> bool:
        """Return whether any rows of this layout add up to this, but for rounding.

        Each row has one option of a choice; no number is larger than `size`.
        """
        total, squares, least, most = self.sums
        if np.abs(self.sums[2:]).max(initial=0.0) > size:
            return False
        for block in layout.categoricals:
            part = slice(block.start, block.stop)
            one = (least[part] >= 0).all() and (most[part] <= 1).all()
            if not (one and abs(total[part].sum() - self.rows) <= 1e-6 * self.rows):
                return False
        largest = self.rows * np.maximum(np.abs(least), np.abs(most))
        slack = 1e-6 * largest + 1e-6
        inside = (self.rows * least - slack <= total) & (
            total <= self.rows * most + slack
        )
        bound = np.maximum(np.abs(least), np.abs(most)) * (largest + slack)
        return bool((inside & (squares >= 0) & (squares <= bound + slack)).all())

    def share(self, block: Block) -> tuple[float, ...]:
        """Return how frequent each option of a choice is."""
        return tuple((self.sums[0, block.start : block.stop] / self.rows).tolist())


def own_key(key: Array, place: int) -> Array:
    """The key of the owner at this place of the roster; the first one's is that of a lone owner.

    Others' come from a child that is no step's and no part of a split: `split(key)[i]` is
    `fold_in(key, i)`, so a bare place would share its draws with either.
    """
    return (
        key
        if place == 0
        else jax.random.fold_in(jax.random.fold_in(key, _OWNERS), place)
    )


def packed(tree: Any) -> bytes:
    """Return the arrays of a tree as safetensors bytes."""
    leaves = [
        np.asarray(x, order="C")
        for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    ]
    return save({f"{i:04d}": x for i, x in enumerate(leaves)})


def unpacked(data: bytes, like: Any) -> Any:
    """Return a tree like another one, with the arrays that `packed` wrote.

    Raises InputError for other bytes, and arrays of another shape or type, with NaN or an infinity.
    """
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"these bytes are no arrays: {error}") from error
    dynamic, static = eqx.partition(like, eqx.is_array)
    leaves, structure = jax.tree.flatten(dynamic)
    found = [arrays[name] for name in sorted(arrays)]
    shapes = [(x.shape, x.dtype.name) for x in found]
    if shapes != [(x.shape, x.dtype.name) for x in leaves]:
        raise InputError(
            f"the arrays have other shapes than this model's: {shapes[:4]} and so on"
        )
    for x in found:
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise InputError("an array holds NaN or an infinity")
    return eqx.combine(jax.tree.unflatten(structure, found), static)


def mean_of(trees: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return the weighted mean of networks, array by array, in float64; weights have the sum 1."""

    def mean(*arrays: Any) -> Any:
        if not eqx.is_array(arrays[0]):
            return arrays[0]
        total = np.zeros(arrays[0].shape, np.float64)
        for array, weight in zip(arrays, weights, strict=True):
            total += weight * np.asarray(array, np.float64)
        return total.astype(np.asarray(arrays[0]).dtype)

    return jax.tree.map(mean, *trees)


def _bytes_of(tree: Any) -> int:
    """Return the bytes of a tree's arrays, or of arrays of its shapes."""
    arrays = jax.tree.leaves(eqx.filter(tree, lambda x: hasattr(x, "dtype")))
    return sum(x.size * x.dtype.itemsize for x in arrays)


class Learner(ABC):
    """A model that is trained in rounds. Conforming: the four below.

    `shared` is what is averaged, `kept` what stays with an owner, both parts of a state.
    """

    blocks: tuple[Block, ...]
    """Of a vector."""

    @cached_property
    def layout(self) -> Layout:
        """The blocks, as rows are laid out."""
        return Layout(self.blocks)

    def keys(self, key: Array) -> Keys:
        """Return how a key of the whole training is divided, as a training in one piece does."""
        return Keys(*jax.random.split(key, 3))

    def vectors(self, X: Matrix, place: int = 0) -> Matrix:
        """Return what is learned of the feature vectors of the owner at this place of the roster.

        Raises InputError where they do not fit.
        """
        return X

    def together(self, parts: Sequence[Any], weights: Sequence[float]) -> Any:
        """Return what the owners' parts of a state are together; weights have the sum 1."""
        return mean_of(parts, weights)

    @abstractmethod
    def rows(self, V: Matrix, facts: Facts) -> tuple[Any, Any]:
        """An owner's rows as its steps read them, and the sampler; `facts` are about all owners."""

    @abstractmethod
    def batch(self, rows: int, all_rows: int) -> int:
        """Return the rows in a step of an owner that has `rows` of the `all_rows` of all owners."""

    @abstractmethod
    def update(self, steps: int) -> Any:
        """Return one step, of so many in an owner's whole training."""

    @abstractmethod
    def start(self, initial: Array, steps: int) -> Any:
        """Return the state before the first step."""

    @abstractmethod
    def split(self, state: Any) -> tuple[Any, Any]:
        """Return (shared, kept)."""

    @abstractmethod
    def joined(self, shared: Any, kept: Any) -> Any:
        """Return the state of both parts."""

    @abstractmethod
    def finish(self, shared: Any, facts: Facts, key: Array) -> Any:
        """Return the model that samples."""

    def result(self, state: Any) -> Any:
        """Return what is averaged after the last step, and what `finish` takes."""
        shared, _ = self.split(state)
        return shared

    def fault(self, shared: Any) -> str | None:
        """What no training leaves in a part of a state that is shared; None if nothing is wrong."""
        return None

    def sizes(self) -> list[int]:
        """Bytes of each network that is shared, by the code that makes it; nothing is computed."""
        shared, _ = self.split(self._shapes())
        return [_bytes_of(network) for network in shared]

    def result_size(self) -> int:
        """Return the bytes of what is averaged after the last step; nothing is computed."""
        return _bytes_of(self.result(self._shapes()))

    def _shapes(self) -> Any:
        """Return a state whose arrays are shapes."""
        return eqx.filter_eval_shape(lambda key: self.start(key, 1), jax.random.key(0))

    def epoch(self, rows: int) -> int:
        """Return the steps of an epoch of an owner's rows, at least one."""
        return max(rows // self.batch(rows, rows), 1)

    def steps(self, rows: int, all_rows: int, epochs: int) -> int:
        """Steps of the whole training of an owner that has `rows` of the `all_rows` of all owners.

        They are so many epochs of its rows, unless the learner's settings say how long it trains.
        """
        return epochs * self.epoch(rows)

    def run(self, state: Any, rows: tuple[Any, Any], lap: Lap, key: Array) -> Any:
        """Take a part of an owner's steps; one compiled program serves all owners of a size.

        `rows` are what `rows` returned, and `key` is the owner's key for steps. Raises
        TrainingError where training diverged.
        """
        data, sampler = rows
        return train(
            state, self.update(lap.total), data, steps=lap.last, first=lap.first,
            batch=lap.batch, key=key, sampler=sampler,
        )  # fmt: skip


@dataclass(frozen=True)
class GANLearner(Learner):
    """CTGAN in rounds: generator and critic are shared, Adam's moments stay with the owner."""

    settings: GANSettings  # of the GAN; its epochs do not count
    blocks: tuple[Block, ...]  # of a feature vector

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns whose choices are conditions."""
        return conditional_columns(self.layout) if self.settings.conditional else ()

    @cached_property
    def step(self) -> GANStep:
        """One critic step and one of the generator."""
        return GANStep(self.settings, Heads(self.blocks, self.columns))

    def rows(self, V: Matrix, facts: Facts) -> tuple[Any, Any]:
        """Return rows in inner order, drawn with the owner's own conditions."""
        seen = Seen.of(V, self.layout, self.columns)
        data = jax.tree.map(jnp.asarray, (seen.rows, seen.frequencies))
        return data, Matching(seen.conditions.sizes, self.settings.batch)

    def batch(self, rows: int, all_rows: int) -> int:
        """Return the same for all: rows are drawn with replacement."""
        return self.settings.batch

    def update(self, steps: int) -> Any:
        """Return the step; its rate does not depend on how many there are."""
        return self.step

    def start(self, initial: Array, steps: int) -> GANState:
        """Return fresh networks."""
        started: GANState = self.step.start(initial)
        return started

    def split(self, state: GANState) -> tuple[Any, Any]:
        """Return generator, critic (and moving average, where there is one); both moments."""
        average = (state.average,) if self.settings.average else ()
        kept = (state.generator_moments, state.critic_moments)
        return (state.generator, state.critic, *average), kept

    def joined(self, shared: Any, kept: Any) -> GANState:
        """Return the state; without a moving average it is the generator."""
        generator, critic, *average = shared
        ours, theirs = kept
        return GANState(
            generator, critic, ours, theirs, average[0] if average else generator
        )

    def conditions(self, facts: Facts) -> Conditions:
        """Return everyone's conditions, and how many rows meet each."""
        choices = self.step.heads.conditional.categoricals
        counts = [
            facts.sums[0, b.start : b.stop].round().astype(int).tolist()
            for b in choices
        ]
        return Conditions(
            tuple(b.size for b in choices), tuple(n for part in counts for n in part)
        )

    def finish(self, shared: Any, facts: Facts, key: Array) -> GAN:
        """The generator, with batch statistics of its own rows under everyone's conditions."""
        average = self.joined(shared, (None, None)).average
        return GAN.of(
            self.settings, self.step.heads, self.conditions(facts), average, key=key
        )


@dataclass(frozen=True)
class DiffusionLearner(Learner):
    """TabDDPM in rounds: network and moving average are shared, moments stay with the owner."""

    settings: DiffusionSettings  # of the diffusion; its steps do not count
    blocks: tuple[Block, ...]  # of a vector
    label: str | None = None  # column that the network is conditioned on, or None

    @cached_property
    def label_block(self) -> Block | None:
        """The block of the label; None where it is the only one."""
        return self.layout.label_of(self.label)

    def keys(self, key: Array) -> Keys:
        """Return two keys, as `diffusion.fit` has them; nothing is drawn at the end."""
        initial, steps = jax.random.split(key)
        return Keys(initial, steps, steps)

    def frame(self, facts: Facts) -> tuple[Matrix, Matrix]:
        """Return what is taken from each entry, and what it is divided by: nothing, and 1."""
        width = facts.sums.shape[1]
        return np.zeros(width, np.float32), np.ones(width, np.float32)

    def rows(self, V: Matrix, facts: Facts) -> tuple[Any, Any]:
        """Return numbers, codes and labels."""
        shift, scale = self.frame(facts)
        rows = self.layout.check((V - shift) / scale, least=0)
        return diffusion.rows_of(rows, self.layout, self.label_block), None

    def batch(self, rows: int, all_rows: int) -> int:
        """Return at most all rows of the owner."""
        return min(self.settings.batch, rows)

    def update(self, steps: int) -> Any:
        """Return a step whose rate falls to 0 over the owner's whole training."""
        settings = replace(self.settings, steps=max(steps, 1))
        return diffusion.descent(settings, self.layout, self.label_block)

    def start(self, initial: Array, steps: int) -> Descended:
        """Return a fresh network."""
        net = diffusion.network(self.layout, self.settings, self.label_block, initial)
        state: Descended = self.update(steps).start(net)
        return state

    def split(self, state: Descended) -> tuple[Any, Any]:
        """Return network and average; moments and the number of steps."""
        return (state.net, state.average), (state.moments, state.step)

    def joined(self, shared: Any, kept: Any) -> Descended:
        """Return the state."""
        return Descended(*shared, *kept)

    def finish(self, shared: Any, facts: Facts, key: Array) -> Any:
        """Return a `TabDDPMModel`; ranges of numbers and shares of labels are everyone's."""
        shift, scale = self.frame(facts)
        ends = ((facts.sums[2:] - shift) / scale).astype(np.float32)
        ranges = [(float(ends[0, i]), float(ends[1, i])) for i in self.layout.numbers]
        if self.settings.clip_range is not None:
            ranges = [(-self.settings.clip_range, self.settings.clip_range)] * len(
                ranges
            )
        label = self.label_block
        shares = () if label is None else facts.share(label)
        return TabDDPMModel(
            shared[1], self.layout, self.settings, label, shares, tuple(ranges)
        )


@dataclass(frozen=True)
class SphereCodeLearner(DiffusionLearner):
    """A latent diffusion in rounds, whose coder is sphere codes and learns nothing."""

    latent: LatentSettings = field(kw_only=True)  # settings of the whole
    # Of a feature vector, not a latent row.
    features: tuple[Block, ...] = field(kw_only=True)
    target: str | None = field(kw_only=True)  # column of the label

    @classmethod
    def of(
        cls, settings: LatentSettings, features: tuple[Block, ...], target: str | None
    ) -> SphereCodeLearner:
        """The learner of these settings; raises InputError where the coder is no sphere codes."""
        coder = _coder(settings, features, target)
        blocks = latent_blocks(coder.latent, coder.label.size if coder.label else 0)
        label = LABEL if coder.label else None
        return cls(
            settings.diffusion,
            blocks,
            label,
            latent=settings,
            features=features,
            target=target,
        )

    @cached_property
    def layout(self) -> Layout:
        """The blocks, and which latents are sphere codes; read while a program is traced."""
        _, _, rest, settings = _coded(self.latent, self.features, self.target)
        return Layout(self.blocks, sphere_codes_of(rest, settings))

    @cached_property
    def coder(self) -> RowCoder:
        """Rows to latent rows and back."""
        return _coder(self.latent, self.features, self.target)

    def keys(self, key: Array) -> Keys:
        """Return the keys of the diffusion within `latent.fit`."""
        return super().keys(jax.random.split(key)[1])

    def vectors(self, X: Matrix, place: int = 0) -> Matrix:
        """Return latent rows, the label behind them."""
        return self.coder.encode(Layout(self.features).check(X, least=0))

    def frame(self, facts: Facts) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation of each latent over all owners, where they are scaled."""
        shift, scale = super().frame(facts)
        if self.latent.scaled:
            mean = facts.sums[0] / facts.rows
            spread = np.sqrt(np.maximum(facts.sums[1] / facts.rows - mean**2, 0.0))
            plain = Evidence(len(self.layout.numbers), self.layout.sphere_codes).plain
            shift[plain] = mean[plain]
            scale[plain] = np.where(spread > 1e-4, spread, 1.0)[plain]
        return shift, scale

    def finish(self, shared: Any, facts: Facts, key: Array) -> Any:
        """Return a `LatentDiffusion` of sphere codes."""
        numbers = list(self.layout.numbers)
        shift, scale = (part[numbers] for part in self.frame(facts))
        ddpm, rows = super().finish(shared, facts, key), self.coder
        return LatentDiffusion(
            rows, LatentDistribution(ddpm, shift, scale), self.latent
        )


@dataclass(frozen=True)
class PooledPointLearner(SphereCodeLearner):
    """A latent diffusion of sphere codes whose owners take the steps of a fit to all rows together.

    What keeps the mean of the owners' networks near that fit, where their rows differ:

    1. The network is conditioned on the owner of a row, as on a class, and draws owners by rows. So
       an owner's rows teach what is peculiar to them as such, where a network without it would
       unlearn the other owners' rows within ten steps. The weights that belong to an owner alone
       are not averaged; theirs are taken.
    2. A step's batch is divided among the owners by their rows, and all take as many steps as that
       fit, with its falling rate. (With batches of one size for all, an owner of twice the rows
       takes twice the steps besides twice the weight.)
    3. Adam's moments are averaged like the network. With second moments of its own an owner scales
       directions by its own rows, and where owners differ, such steps do not cancel in the mean.
    4. The rate is larger by the root of the number of owners: gradients of a divided batch are
       noisier, so that the mean of their squares is larger by about that number.

    The moving average is linear in the networks, so it stays with its owner, and the owners'
    averages are averaged once, at the end. One owner alone has no such label.
    """

    owners: int = field(kw_only=True)  # how many there are

    @classmethod
    def of(
        cls,
        settings: LatentSettings,
        features: tuple[Block, ...],
        target: str | None,
        owners: int = 1,
    ) -> PooledPointLearner:
        """The learner of these settings; raises InputError where the coder is no sphere codes."""
        coder = _coder(settings, features, target)
        classes = coder.label.size if coder.label else 0
        options = max(classes, 1) * owners if owners > 1 else classes
        return cls(
            settings.diffusion, latent_blocks(coder.latent, options), LABEL if options else None,
            latent=settings, features=features, target=target, owners=owners,
        )  # fmt: skip

    def vectors(self, X: Matrix, place: int = 0) -> Matrix:
        """Return latent rows, their class and owner as one label behind them."""
        rows = super().vectors(X)
        if self.owners == 1:
            return rows
        latent = self.coder.latent
        classes = (
            rows[:, latent:]
            if self.coder.label
            else np.ones((len(rows), 1), np.float32)
        )
        options = np.zeros((*classes.shape, self.owners), np.float32)
        options[:, :, place] = classes
        return np.concatenate(
            [rows[:, :latent], options.reshape(len(rows), -1)], axis=1
        )

    def batch(self, rows: int, all_rows: int) -> int:
        """Return the owner's part of a batch of all rows, at least one row."""
        whole_batch = super().batch(all_rows, all_rows)
        return max(round(whole_batch * rows / all_rows), 1)

    def steps(self, rows: int, all_rows: int, epochs: int) -> int:
        """Return the steps of a fit to all rows, the same for every owner."""
        network, *_ = self.sizes()
        weights = network // np.dtype(np.float32).itemsize
        return self.settings.taken(all_rows, weights)

    def together(self, parts: Sequence[Any], weights: Sequence[float]) -> Any:
        """Return the mean, but each owner's own weights of its label."""
        mean = mean_of(parts, weights)
        if self.owners == 1:
            return mean
        tables = []
        for number, network in enumerate(mean):
            table = np.array(network.label.weight)
            for place, part in enumerate(parts):
                # A label counts owners first: those of one owner are `owners` apart.
                table[place :: self.owners] = part[number].label.weight[
                    place :: self.owners
                ]
            tables.append(table)
        return eqx.tree_at(
            lambda networks: [one.label.weight for one in networks], mean, tables
        )

    def update(self, steps: int) -> Any:
        """A step of the whole training, whose rate makes up for the noise of a divided batch.

        An owner's batch has its share w of all rows, so its squares are 1 / w times as large where
        noise is most of a gradient; their mean, weighted by w, is as many times as there are
        owners. Adam divides by the root of it.
        """
        rate = self.settings.learning_rate * self.owners**0.5
        settings = replace(self.settings, learning_rate=rate, steps=max(steps, 1))
        return diffusion.descent(settings, self.layout, self.label_block)

    def split(self, state: Descended) -> tuple[Any, Any]:
        """Return network and moments; moving average and number of steps."""
        first, second = (tree_get(state.moments, name) for name in _MOMENTS)
        return (state.net, first, second), (state.average, state.step)

    def joined(self, shared: Any, kept: Any) -> Descended:
        """Return the state; the optimiser's counters are the number of steps."""
        net, first, second = shared
        average, step = kept
        fresh = self.update(1).optimiser.init(eqx.filter(net, eqx.is_inexact_array))
        moments = tree_set(
            fresh, mu=first, nu=second, count=jnp.asarray(step, jnp.int32)
        )
        return Descended(net, average, moments, step)

    def result(self, state: Descended) -> Any:
        """Return the moving average."""
        return (state.average,)

    def fault(self, shared: Any) -> str | None:
        """Name second moments below 0, of which no root can be taken."""
        _, _, second = shared
        least = min(np.min(array, initial=0.0) for array in jax.tree.leaves(second))
        return (
            "second moments of gradients are below 0; squares never are"
            if least < 0
            else None
        )

    def finish(self, shared: Any, facts: Facts, key: Array) -> Any:
        """Return a `LatentDiffusion` of the averaged moving average."""
        (average,) = shared
        return super().finish((average, average), facts, key)


def _coder(
    settings: LatentSettings, features: tuple[Block, ...], target: str | None
) -> RowCoder:
    """Return the coder of feature vectors whose choices are sphere codes."""
    layout, label, rest, codes = _coded(settings, features, target)
    return RowCoder(SphereCodeCoder.of(rest, codes), layout, label, settings.numbers)


def _coded(
    settings: LatentSettings, features: tuple[Block, ...], target: str | None
) -> tuple[Layout, Block | None, Layout, SphereCodeSettings]:
    """Return all blocks, the label, the blocks that are coded, and how."""
    if not isinstance(settings.autoencoder, SphereCodeSettings):
        raise InputError(
            "settings.autoencoder must be sphere codes, {'per_bit': 1.0}: a coder that is trained "
            "on rows would have to be trained in rounds of its own"
        )
    layout = Layout(tuple(features))
    label = layout.label_of(target)
    return layout, label, rest_of(layout, label), settings.autoencoder
