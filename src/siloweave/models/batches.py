"""Which rows are in which batch: drawn on the host, from the key and the step alone.

A stretch of steps needs a small table of row numbers; the compiled loop gathers the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.tables.keys import fold_in, generator

__all__ = ["OVERFLOW", "Picks", "Plan", "Poisson", "Sampled", "capacity", "plan_of"]

#: Probability with which a batch is larger than the room that is compiled for it, at most.
OVERFLOW = 1e-12
_OFTEN = 0.07  # part of the batches that the larger of two programs runs
_ROUND = 8  # capacities are multiples of it


class Sampled(NamedTuple):
    """A batch of Poisson sampling.

    Attributes:
        rows: As many rows as there is room for; those beyond the mask are copies of some row.
        mask: (capacity,), which of them were drawn; maybe none.
    """

    rows: Any
    mask: jax.Array


@dataclass(frozen=True)
class Poisson:
    """Every row is in a batch with probability `rate`, independently of every other row.

    Attributes:
        rate: In (0, 1].
        key: What the draws come from, with the key of the loop: two trainings on one sampler draw
            apart, as the price of both together needs. The key of the loop alone if None.
            Amplification by sampling holds only against those who do not know which rows were
            drawn: for a private run this key, or the loop's, must come from
            `siloweave.privacy.gradients.secret_key`.
    """

    rate: float
    key: jax.Array | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(
                f"Poisson: rate = {self.rate} must lie in (0, 1]. It is the expected batch "
                "divided by the number of rows."
            )


class Picks(NamedTuple):
    """Row numbers of a stretch of steps.

    Attributes:
        rows: (steps, room), int32.
        sizes: (steps,), how many of them count; None where all do.
        tight: Room that suffices for most steps.
    """

    rows: NDArray[np.int32]
    sizes: NDArray[np.int32] | None
    tight: int = 0


class Plan(NamedTuple):
    """How batches are made.

    Attributes:
        name: For the checkpoint, which goes on only with the same plan.
        most: Steps of the longest stretch.
        picks: Row numbers of `count` steps from `step` on; None with a sampler.
        sampler: A function `(rows, key) -> batch`, or None.
    """

    name: str
    most: int
    picks: Callable[[int, int], Picks | None]
    sampler: Callable[[Any, jax.Array], Any] | None = None


def plan_of(
    sampler: str | Poisson | Callable[[Any, jax.Array], Any],
    rows: Any,
    *,
    batch: int,
    key: jax.Array,
    most: int,
) -> Plan:
    """The plan that `sampler` names; see `siloweave.models.train.train`.

    Raises:
        InputError: No rows, rows of unequal number, NaN, more rows in a batch than there are, or
            an unknown name.
    """
    if callable(sampler):
        return Plan("own", most, lambda step, count: None, sampler)
    _finite(rows)
    count = _count(rows)
    if sampler == "shuffled":
        return Plan("shuffled", most, _Shuffled(count, batch, key, most))
    if sampler == "poisson":
        sampler = Poisson(min(batch / count, 1.0))
    if isinstance(sampler, Poisson):
        keys = (key,) if sampler.key is None else (sampler.key, key)
        draws = _PoissonDraws(count, sampler.rate, keys, most)
        return Plan(f"poisson {sampler.rate!r}", most, draws)
    raise InputError(
        f"train: sampler = {sampler!r} is not known. Give 'shuffled', 'poisson', a Poisson(rate), "
        "or a function of rows and key."
    )


def _finite(rows: Any) -> None:
    for leaf in jax.tree.leaves(rows):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue
        values = np.asarray(leaf)
        if np.isfinite(values).all():
            continue
        bad = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InputError(
            f"train: rows hold NaN or an infinity, first in row {bad}. Encode missing values, or "
            "leave such rows out."
        )


def _count(rows: Any) -> int:
    counts = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(rows)}
    if len(counts) != 1:
        raise InputError(
            f"train: the arrays of rows have {sorted(counts)} rows. All need one leading axis of "
            "the same length."
        )
    count = counts.pop()
    if count == 0:
        raise InputError("train: there are no rows. Give at least one.")
    return count


def _seeds(*keys: jax.Array) -> np.random.SeedSequence:
    words = [np.asarray(jax.random.key_data(key)).ravel() for key in keys]
    return np.random.SeedSequence([int(word) for part in words for word in part])


class _Shuffled:
    """One permutation per epoch, cut into whole batches."""

    def __init__(self, count: int, batch: int, key: jax.Array, most: int) -> None:
        if batch > count:
            raise InputError(
                f"train: batch = {batch} is more than the {count} rows there are. Use a batch of "
                f"at most {count}."
            )
        self.count, self.batch, self.most = count, batch, most
        self.epoch = count // batch  # in batches
        self.seeds = _seeds(key)
        self._order = lru_cache(maxsize=2)(self._permutation)

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        return generator(fold_in(self.seeds, "epoch", epoch)).permutation(self.count)

    def __call__(self, step: int, count: int) -> Picks:
        index = np.zeros((self.most, self.batch), np.int32)
        for i in range(count):
            epoch, place = divmod(step + i, self.epoch)
            start = place * self.batch
            index[i] = self._order(epoch)[start : start + self.batch]
        return Picks(index, None)


class _PoissonDraws:
    """A binomial number of rows, each set of that size equally likely: exactly Poisson sampling."""

    def __init__(self, count: int, rate: float, keys: tuple[jax.Array, ...], most: int) -> None:
        self.count, self.rate, self.most = count, rate, most
        self.seeds = _seeds(*keys)
        self.room, self.tight = capacity(count, rate), capacity(count, rate, _OFTEN)

    def _draw(self, step: int) -> NDArray[np.int64]:
        random = generator(fold_in(self.seeds, "poisson", step))
        size = int(random.binomial(self.count, self.rate))
        return random.choice(self.count, size, replace=False, shuffle=False)

    def __call__(self, step: int, count: int) -> Picks:
        drawn = [self._draw(step + i) for i in range(count)]
        size = np.zeros(self.most, np.int32)
        size[:count] = [len(rows) for rows in drawn]
        room = self.room
        while room < int(size.max()):  # then, and only then, this stretch is compiled again
            room = _rounded(2 * room)
        index = np.zeros((self.most, room), np.int32)
        for i, rows in enumerate(drawn):
            index[i, : len(rows)] = rows
        return Picks(index, size, self.tight)


def _rounded(value: int) -> int:
    return _ROUND * math.ceil(value / _ROUND)


def capacity(count: int, rate: float, overflow: float = OVERFLOW) -> int:
    """Room for a batch: a multiple of 8 that a batch exceeds with probability below `overflow`.

    Args:
        count: Rows there are.
        rate: Probability of each to be drawn.
        overflow: In (0, 1).

    Example:
        >>> capacity(40_000, 0.0125)
        664
    """
    from scipy.special import bdtrc

    low, high = -1, count  # more than `high` are drawn with probability below `overflow`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bdtrc(middle, count, rate) < overflow else (middle, high)
    return _rounded(max(high, 1))
