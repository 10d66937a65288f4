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
from math import ceil
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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
# Steps of owners who differ, between two means of their networks.
_SHORTEST_ROUND = 5
# A latent that spreads less is a constant, and stays as it is, as in `latent.fit`.
_LEAST_SPREAD = 1e-4
# By how much sums of floats may be off, as a share and for a value near 0.
_ROUNDING = 1e-6


class Keys(NamedTuple):
    """Keys of a training."""

    initial: Array  # for first weights
    steps: Array
    end: Array  # for what is drawn after the last step


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
        squares = exact**2
        least = exact.min(0)
        largest = exact.max(0)
        sums = np.stack([exact.sum(0), squares.sum(0), least, largest])
        if not np.isfinite(sums).all():
            raise InputError(
                "rows hold NaN or an infinity; encode missing values first"
            )
        return cls(len(V), sums)

    @classmethod
    def together(cls, parts: Sequence[Facts]) -> Facts:
        """Return facts about all owners' vectors."""
        stacked = np.stack([part.sums for part in parts])
        totals = stacked[:, :2].sum(0)
        least = stacked[:, 2].min(0)
        largest = stacked[:, 3].max(0)
        rows = sum(part.rows for part in parts)
        return cls(rows, np.stack([*totals, least, largest]))

    @property
    def moments(self) -> tuple[Floats, Floats]:
        """The mean and the standard deviation of each entry; each (width,)."""
        total, squares, _, _ = self.sums
        mean = total / self.rows
        mean_square = squares / self.rows
        # Rounding can leave a constant's variance just below 0.
        variance = np.maximum(mean_square - mean**2, 0.0)
        return mean, np.sqrt(variance)

    def possible(self, layout: Layout, size: float) -> bool:
        """Return whether any rows of this layout add up to this, but for rounding.

        Each row has one option of a choice; no number is larger than `size`.
        """
        extremes = self.sums[2:]
        if np.abs(extremes).max(initial=0.0) > size:
            return False
        for block in layout.categoricals:
            if not self._holds_choice(block):
                return False
        return self._is_within_extremes()

    def _holds_choice(self, block: Block) -> bool:
        """Return whether entries of a choice are 0 to 1, and each row has one option."""
        total, _, least, largest = self.sums[:, block.start : block.stop]
        in_range = (least >= 0).all() and (largest <= 1).all()
        # One option a row: over all options the entries add up to the rows.
        miss = abs(total.sum() - self.rows)
        return bool(in_range and miss <= _ROUNDING * self.rows)

    def _is_within_extremes(self) -> bool:
        """Return whether sums are of so many numbers from the least to the largest."""
        total, squares, least, largest = self.sums
        magnitude = np.maximum(np.abs(least), np.abs(largest))
        bound = self.rows * magnitude
        slack = _ROUNDING * bound + _ROUNDING

        # Comparisons with NaN are false, so that NaN is refused.
        above_least = self.rows * least - slack <= total
        below_largest = total <= self.rows * largest + slack
        # x^2 <= |x| max |x|: squares add up to at most the bound times the magnitude.
        squares_bound = magnitude * (bound + slack)
        squares_fit = (squares >= 0) & (squares <= squares_bound + slack)
        return bool((above_least & below_largest & squares_fit).all())

    def share(self, block: Block) -> tuple[float, ...]:
        """Return how frequent each option of a choice is."""
        # Options are one-hot: the sum of an entry counts the rows that have it.
        counts = self.sums[0, block.start : block.stop]
        return tuple((counts / self.rows).tolist())


def own_key(key: Array, place: int) -> Array:
    """Return the key of the owner at this place of the roster.

    The first owner has the key itself, so that one owner alone draws what a training in one piece
    draws. Keys of the others come from a child that is no step's and no part of a split:
    `split(key)[i]` is `fold_in(key, i)`, so a bare place would share its draws with either.
    """
    if place == 0:
        return key
    owners = jax.random.fold_in(key, _OWNERS)
    return jax.random.fold_in(owners, place)


def packed(tree: Any) -> bytes:
    """Return the arrays of a tree as safetensors bytes."""
    arrays = [np.asarray(leaf, order="C") for leaf in _arrays_of(tree)]
    # `unpacked` sorts by name: zeros in front make that the order of the tree.
    return save({f"{i:04d}": array for i, array in enumerate(arrays)})


def _arrays_of(tree: Any) -> list[Any]:
    """Return the arrays of a tree, in its order."""
    # One walk through its modules, which take longer than their arrays.
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf)]


def unpacked(data: bytes, like: Any) -> Any:
    """Return a tree like another one, with the arrays that `packed` wrote.

    Raises InputError for other bytes, and arrays of another shape or type, with NaN or an infinity.
    """
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"these bytes are no arrays: {error}") from error
    leaves, structure = jax.tree.flatten(like)
    places = [place for place, leaf in enumerate(leaves) if eqx.is_array(leaf)]
    wanted = [leaves[place] for place in places]
    received = [arrays[name] for name in sorted(arrays)]

    # Both checks are of a peer's bytes: other shapes would be broadcast, NaN would spread.
    shapes = [(array.shape, array.dtype.name) for array in received]
    if shapes != [(array.shape, array.dtype.name) for array in wanted]:
        raise InputError(
            f"the arrays have other shapes than this model's: {shapes[:4]} and so on"
        )
    for array in received:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError("an array holds NaN or an infinity")

    for place, array in zip(places, received, strict=True):
        leaves[place] = array
    return jax.tree.unflatten(structure, leaves)


def mean_of(trees: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return the weighted mean of networks, array by array, in float64; weights have the sum 1.

    With weights n_k / n it is the server's step of FederatedAveraging (McMahan et al. 2017,
    Algorithm 1).
    """

    def mean(*leaves: Any) -> Any:
        first = leaves[0]
        if not eqx.is_array(first):
            return first
        total = np.zeros(first.shape, np.float64)
        for leaf, weight in zip(leaves, weights, strict=True):
            total += weight * np.asarray(leaf, np.float64)
        return total.astype(np.asarray(first).dtype)

    return jax.tree.map(mean, *trees)


def _bytes_of(tree: Any) -> int:
    """Return the bytes of a tree's arrays, or of arrays of its shapes."""
    # Shapes are no arrays, but have a type as arrays do.
    filled = eqx.filter(tree, lambda leaf: hasattr(leaf, "dtype"))
    arrays = jax.tree.leaves(filled)
    return sum(array.size * array.dtype.itemsize for array in arrays)


class Learner(ABC):
    """A model that is trained in rounds. Conforming: the four below.

    A state has two parts: `shared` is averaged over owners, `local` stays with an owner.
    """

    blocks: tuple[Block, ...]
    """The blocks of a vector."""

    @cached_property
    def layout(self) -> Layout:
        """The blocks, as rows are laid out."""
        return Layout(self.blocks)

    def keys(self, key: Array) -> Keys:
        """Return how a key of the whole training is divided, as a training in one piece does."""
        initial, steps, end = jax.random.split(key, 3)
        return Keys(initial, steps, end)

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
        """Return an owner's rows as its steps read them, and the sampler of batches.

        `V` is what `vectors` returned; `facts` are about the vectors of all owners.
        """

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
        """Return (shared, local)."""

    @abstractmethod
    def joined(self, shared: Any, local: Any) -> Any:
        """Return the state of both parts."""

    @abstractmethod
    def finish(self, shared: Any, facts: Facts, key: Array) -> Any:
        """Return the model that samples."""

    def result(self, state: Any) -> Any:
        """Return what is averaged after the last step, and what `finish` takes."""
        shared, _ = self.split(state)
        return shared

    def sizes(self) -> list[int]:
        """Return the bytes of each network that is shared; nothing is computed."""
        shared, _ = self.split(self._shapes)
        return [_bytes_of(network) for network in shared]

    def result_size(self) -> int:
        """Return the bytes of what is averaged after the last step; nothing is computed."""
        return _bytes_of(self.result(self._shapes))

    @cached_property
    def _shapes(self) -> Any:
        """A state whose arrays are shapes, by the code that makes the arrays."""

        def start(key: Array) -> Any:
            return self.start(key, 1)

        return eqx.filter_eval_shape(start, jax.random.key(0))

    def epoch(self, rows: int) -> int:
        """Return the steps of an epoch of an owner's rows, at least one."""
        batches = rows // self.batch(rows, rows)
        return max(batches, 1)

    def steps(self, rows: int, all_rows: int, epochs: int) -> int:
        """Return the steps of an owner's whole training, with `rows` of the `all_rows` of all.

        They are so many epochs of its rows, unless the learner's settings say how long it trains.
        """
        return epochs * self.epoch(rows)

    def num_rounds(self, most: int, all_rows: int) -> int:
        """Return how many rounds the training has, of at most so many: as many, in general."""
        return most

    def run(self, state: Any, rows: tuple[Any, Any], lap: Lap, key: Array) -> Any:
        """Take a part of an owner's steps; one compiled program serves all owners of a size.

        `rows` are what `rows` returned, and `key` is the owner's key for steps. Raises
        TrainingError where training diverged.
        """
        data, sampler = rows
        return train(
            state,
            self.update(lap.total),
            data,
            steps=lap.last,
            first=lap.first,
            batch=lap.batch,
            key=key,
            sampler=sampler,
        )


@dataclass(frozen=True)
class GANLearner(Learner):
    """CTGAN in rounds: generator and critic are shared, Adam's moments stay with the owner."""

    settings: GANSettings  # of the GAN; its epochs do not count
    blocks: tuple[Block, ...]  # of a feature vector

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns whose choices are conditions."""
        if not self.settings.conditional:
            return ()
        return conditional_columns(self.layout)

    @cached_property
    def step(self) -> GANStep:
        """One critic step and one of the generator."""
        return GANStep(self.settings, Heads(self.blocks, self.columns))

    def rows(self, V: Matrix, facts: Facts) -> tuple[Any, Any]:
        """Return rows in inner order, drawn with the owner's own conditions."""
        prepared = Seen.of(V, self.layout, self.columns)
        data = jax.tree.map(jnp.asarray, (prepared.rows, prepared.frequencies))
        sampler = Matching(prepared.conditions.sizes, self.settings.batch)
        return data, sampler

    def batch(self, rows: int, all_rows: int) -> int:
        """Return the batch of the settings, for every owner: rows are drawn with replacement."""
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
        networks = [state.generator, state.critic]
        if self.settings.average:
            networks.append(state.average)
        local = (state.generator_moments, state.critic_moments)
        return tuple(networks), local

    def joined(self, shared: Any, local: Any) -> GANState:
        """Return the state; without a moving average it is the generator."""
        generator, critic, *averages = shared
        average = averages[0] if averages else generator
        generator_moments, critic_moments = local
        return GANState(generator, critic, generator_moments, critic_moments, average)

    def conditions(self, facts: Facts) -> Conditions:
        """Return everyone's conditions, and how many rows meet each."""
        choices = self.step.heads.conditional.categoricals
        counts: list[int] = []
        for block in choices:
            # Options are one-hot: the sum of an entry counts the rows that have it.
            block_counts = facts.sums[0, block.start : block.stop]
            counts += block_counts.round().astype(int).tolist()
        sizes = tuple(block.size for block in choices)
        return Conditions(sizes, tuple(counts))

    def finish(self, shared: Any, facts: Facts, key: Array) -> GAN:
        """Return the generator, with batch statistics of its own rows.

        These rows are drawn under everyone's conditions.
        """
        # Which of the shared networks draws is read from a state; moments do not matter for it.
        average = self.joined(shared, (None, None)).average
        conditions = self.conditions(facts)
        return GAN.of(self.settings, self.step.heads, conditions, average, key=key)


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
        """Return what is subtracted from each entry, and what it is divided by: 0, and 1."""
        width = facts.sums.shape[1]
        return np.zeros(width, np.float32), np.ones(width, np.float32)

    def rows(self, V: Matrix, facts: Facts) -> tuple[Any, Any]:
        """Return numbers, codes and labels."""
        shift, scale = self.frame(facts)
        scaled = (V - shift) / scale
        checked = self.layout.check(scaled, least=0)
        rows = diffusion.rows_of(checked, self.layout, self.label_block)
        return rows, None

    def batch(self, rows: int, all_rows: int) -> int:
        """Return the batch of the settings, or all rows of the owner if they are fewer."""
        return min(self.settings.batch, rows)

    def update(self, steps: int) -> Any:
        """Return a step whose rate falls to 0 over the owner's whole training."""
        settings = replace(self.settings, steps=max(steps, 1))
        return diffusion.descent(settings, self.layout, self.label_block)

    def start(self, initial: Array, steps: int) -> Descended:
        """Return a fresh network."""
        net = diffusion.network(self.layout, self.settings, self.label_block, initial)
        update = self.update(steps)
        state: Descended = update.start(net)
        return state

    def split(self, state: Descended) -> tuple[Any, Any]:
        """Return network and average; moments and the number of steps."""
        shared = (state.net, state.average)
        local = (state.moments, state.step)
        return shared, local

    def joined(self, shared: Any, local: Any) -> Descended:
        """Return the state."""
        net, average = shared
        moments, step = local
        return Descended(net, average, moments, step)

    def finish(self, shared: Any, facts: Facts, key: Array) -> Any:
        """Return a `TabDDPMModel`; ranges of numbers and shares of labels are everyone's.

        So are the mean and spread to which drawn numbers are matched.
        """
        _, average = shared
        label = self.label_block
        label_shares: tuple[float, ...] = ()
        if label is not None:
            label_shares = facts.share(label)
        model = TabDDPMModel(
            net=average,
            layout=self.layout,
            settings=self.settings,
            label=label,
            label_shares=label_shares,
            ranges=self._ranges(facts),
        )
        if not self.settings.matched:
            return model
        numbers = list(self.layout.numbers)
        shift, scale = self.frame(facts)
        mean, spread = facts.moments
        scaled_mean = ((mean - shift) / scale)[numbers]
        scaled_spread = (spread / scale)[numbers]
        return model.matched_to(facts.rows, scaled_mean, scaled_spread, key=key)

    def _ranges(self, facts: Facts) -> tuple[tuple[float, float], ...]:
        """Return the range in which each number is drawn: as set, or from least to largest."""
        clip = self.settings.clip_range
        if clip is not None:
            return ((-clip, clip),) * len(self.layout.numbers)
        shift, scale = self.frame(facts)
        extremes = (facts.sums[2:] - shift) / scale
        least, largest = extremes.astype(np.float32)
        return tuple((float(least[i]), float(largest[i])) for i in self.layout.numbers)


@dataclass(frozen=True)
class SphereCodeLearner(DiffusionLearner):
    """A latent diffusion in rounds, whose coder is sphere codes and learns nothing."""

    # Settings of the whole.
    latent: LatentSettings = field(kw_only=True)
    # Of a feature vector, not a latent row.
    features: tuple[Block, ...] = field(kw_only=True)
    # Column of the label.
    target: str | None = field(kw_only=True)

    @classmethod
    def of(
        cls,
        settings: LatentSettings,
        features: tuple[Block, ...],
        target: str | None,
    ) -> SphereCodeLearner:
        """Return the learner of these settings; raises InputError where no sphere codes are."""
        coder = _coder(settings, features, target)
        options = _options(coder)
        label = LABEL if options else None
        return cls(
            settings.diffusion,
            latent_blocks(coder.latent, options),
            label,
            latent=settings,
            features=features,
            target=target,
        )

    @cached_property
    def layout(self) -> Layout:
        """The blocks, and which latents are sphere codes."""
        # Not by the coder, which holds arrays: a program that is traced reads this, perhaps first.
        coded = _coded(self.latent, self.features, self.target)
        codes = sphere_codes_of(coded.rest, coded.settings)
        return Layout(self.blocks, codes)

    @cached_property
    def coder(self) -> RowCoder:
        """Rows to latent rows and back."""
        return _coder(self.latent, self.features, self.target)

    def keys(self, key: Array) -> Keys:
        """Return the keys of the diffusion within `latent.fit`."""
        # The first half would train the coder.
        _, diffusion_key = jax.random.split(key)
        return super().keys(diffusion_key)

    def vectors(self, X: Matrix, place: int = 0) -> Matrix:
        """Return latent rows, the label behind them."""
        checked = Layout(self.features).check(X, least=0)
        return self.coder.encode(checked)

    def frame(self, facts: Facts) -> tuple[Matrix, Matrix]:
        """Return mean and standard deviation of each latent over all owners, where scaled."""
        shift, scale = super().frame(facts)
        if not self.latent.scaled:
            return shift, scale

        mean, spread = facts.moments
        divisor = np.where(spread > _LEAST_SPREAD, spread, 1.0)

        # Sphere codes have a known scale: only plain numbers are scaled.
        num_latents = len(self.layout.numbers)
        plain = Evidence(num_latents, self.layout.sphere_codes).plain
        shift[plain] = mean[plain]
        scale[plain] = divisor[plain]
        return shift, scale

    def finish(self, shared: Any, facts: Facts, key: Array) -> Any:
        """Return a `LatentDiffusion` of sphere codes."""
        numbers = list(self.layout.numbers)
        shift, scale = self.frame(facts)
        ddpm = super().finish(shared, facts, key)
        distribution = LatentDistribution(ddpm, shift[numbers], scale[numbers])
        return LatentDiffusion(self.coder, distribution, self.latent)


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
    3. The rate is larger by the root of the number of owners: gradients of a divided batch are
       noisier, so that the mean of their squares is larger by about that number.

    Networks are averaged every five steps, where there are rounds enough: the longer a round is,
    the farther apart the networks of owners who differ are at its end. Adam's moments stay with
    their owner, as they would take two thirds of the bytes (decision 0011).

    The moving average is linear in the networks, so it stays with its owner, and the owners'
    averages are averaged once, at the end. One owner alone has no such label.
    """

    # How many there are.
    owners: int = field(kw_only=True)

    @classmethod
    def of(
        cls,
        settings: LatentSettings,
        features: tuple[Block, ...],
        target: str | None,
        owners: int = 1,
    ) -> PooledPointLearner:
        """Return the learner of these settings; raises InputError where no sphere codes are."""
        coder = _coder(settings, features, target)
        options = _options(coder)
        if owners > 1:
            # One option for each class of each owner; without classes one for each owner.
            options = max(options, 1) * owners
        label = LABEL if options else None
        return cls(
            settings.diffusion,
            latent_blocks(coder.latent, options),
            label,
            latent=settings,
            features=features,
            target=target,
            owners=owners,
        )

    def vectors(self, X: Matrix, place: int = 0) -> Matrix:
        """Return latent rows, their class and owner as one label behind them."""
        rows = super().vectors(X)
        if self.owners == 1:
            return rows
        latents = rows[:, : self.coder.latent]
        classes = rows[:, self.coder.latent :]
        if self.coder.label is None:
            classes = np.ones((len(rows), 1), np.float32)

        # Option (class, owner) is at class * owners + owner, where `together` looks for it.
        options = np.zeros((*classes.shape, self.owners), np.float32)
        options[:, :, place] = classes
        label = options.reshape(len(rows), -1)
        return np.concatenate([latents, label], axis=1)

    def batch(self, rows: int, all_rows: int) -> int:
        """Return the owner's part of a batch of all rows, at least one row."""
        whole_batch = super().batch(all_rows, all_rows)
        share = round(whole_batch * rows / all_rows)
        return max(share, 1)

    def steps(self, rows: int, all_rows: int, epochs: int) -> int:
        """Return the steps of a fit to all rows, the same for every owner."""
        network_bytes, *_ = self.sizes()
        weights = network_bytes // np.dtype(np.float32).itemsize
        return self.settings.taken(all_rows, weights)

    def num_rounds(self, most: int, all_rows: int) -> int:
        """Return how many rounds the training has, of at most so many: few steps need no more."""
        steps = self.steps(all_rows, all_rows, 0)
        return min(most, ceil(steps / _SHORTEST_ROUND))

    def together(self, parts: Sequence[Any], weights: Sequence[float]) -> Any:
        """Return the mean, but each owner's own weights of its label."""
        mean = mean_of(parts, weights)
        if self.owners == 1:
            return mean
        tables = []
        for number, network in enumerate(mean):
            table = np.array(network.label.weight)
            for place, part in enumerate(parts):
                # A label counts owners first: options of an owner are `owners` apart.
                options = slice(place, None, self.owners)
                table[options] = part[number].label.weight[options]
            tables.append(table)

        def label_weights(networks: Any) -> list[Any]:
            return [network.label.weight for network in networks]

        return eqx.tree_at(label_weights, mean, tables)

    def update(self, steps: int) -> Any:
        """Return a step whose rate makes up for the noise of a divided batch.

        An owner's batch has its share w of all rows, so its squares are 1 / w times as large where
        noise is most of a gradient; their mean, weighted by w, is as many times as there are
        owners. Adam divides by the root of it.
        """
        rate = self.settings.learning_rate * self.owners**0.5
        settings = replace(self.settings, learning_rate=rate, steps=max(steps, 1))
        return diffusion.descent(settings, self.layout, self.label_block)

    def split(self, state: Descended) -> tuple[Any, Any]:
        """Return the network; moving average, moments and number of steps."""
        return (state.net,), (state.average, state.moments, state.step)

    def joined(self, shared: Any, local: Any) -> Descended:
        """Return the state."""
        (net,) = shared
        return Descended(net, *local)

    def result(self, state: Descended) -> Any:
        """Return the moving average."""
        return (state.average,)

    def finish(self, shared: Any, facts: Facts, key: Array) -> Any:
        """Return a `LatentDiffusion` of the averaged moving average."""
        (average,) = shared
        return super().finish((average, average), facts, key)


class _CodedBlocks(NamedTuple):
    """What of a feature vector becomes sphere codes."""

    layout: Layout  # all blocks
    label: Block | None  # that stays as it is, or None
    rest: Layout  # the blocks that are coded
    settings: SphereCodeSettings


def _coder(
    settings: LatentSettings,
    features: tuple[Block, ...],
    target: str | None,
) -> RowCoder:
    """Return the coder of feature vectors whose choices are sphere codes."""
    coded = _coded(settings, features, target)
    coder = SphereCodeCoder.of(coded.rest, coded.settings)
    return RowCoder(coder, coded.layout, coded.label, settings.numbers)


def _options(coder: RowCoder) -> int:
    """Return how many options the label of a latent row has; 0 without a label."""
    return 0 if coder.label is None else coder.label.size


def _coded(
    settings: LatentSettings,
    features: tuple[Block, ...],
    target: str | None,
) -> _CodedBlocks:
    """Return which blocks are coded, and how; no code is computed.

    Raises InputError where the settings' coder is no sphere codes.
    """
    if not isinstance(settings.autoencoder, SphereCodeSettings):
        raise InputError(
            "settings.autoencoder must be sphere codes, {'per_bit': 1.0}: a coder that is trained "
            "on rows would have to be trained in rounds of its own"
        )
    layout = Layout(tuple(features))
    label = layout.label_of(target)
    rest = rest_of(layout, label)
    return _CodedBlocks(layout, label, rest, settings.autoencoder)
