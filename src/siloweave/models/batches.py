"""Which rows are in which batch: drawn on the host, from the key and the step alone.

A stretch of steps needs a small table of row numbers; the compiled loop gathers the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.tables.keys import fold_in, generator

__all__ = ["BatchPlan", "plan_of"]


class BatchPlan(NamedTuple):
    """How batches are made.

    Attributes:
        name: For the checkpoint, which goes on only with the same plan.
        most: Steps of the longest stretch.
        picks: Row numbers of `count` steps from `step` on, (most, batch); None with a sampler.
        sampler: A function `(rows, key) -> batch`, or None.
    """

    name: str
    most: int
    picks: Callable[[int, int], NDArray[np.int32] | None]
    sampler: Callable[[Any, jax.Array], Any] | None = None


def plan_of(
    sampler: str | Callable[[Any, jax.Array], Any],
    rows: Any,
    *,
    batch: int,
    key: jax.Array,
    most: int,
) -> BatchPlan:
    """The plan that `sampler` names; see `siloweave.models.train.train`.

    Raises:
        InputError: No rows, rows of unequal number, NaN, more rows in a batch than there are, or
            an unknown name.
    """
    if callable(sampler):
        return BatchPlan("own", most, lambda step, count: None, sampler)
    _finite(rows)
    count = _count(rows)
    if sampler == "shuffled":
        return BatchPlan("shuffled", most, _Shuffled(count, batch, key, most))
    raise InputError(
        f"train: sampler = {sampler!r} is not known. Give 'shuffled', or a function of rows and "
        "key."
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


def _seeds(key: jax.Array) -> np.random.SeedSequence:
    words = np.asarray(jax.random.key_data(key)).ravel()
    return np.random.SeedSequence([int(word) for word in words])


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

    def __call__(self, step: int, count: int) -> NDArray[np.int32]:
        index = np.zeros((self.most, self.batch), np.int32)
        for i in range(count):
            epoch, place = divmod(step + i, self.epoch)
            start = place * self.batch
            index[i] = self._order(epoch)[start : start + self.batch]
        return index
