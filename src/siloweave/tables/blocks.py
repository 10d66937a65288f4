"""The parts of a row's feature vector, and what a model's vectors say in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError
from siloweave.tables.keys import Key, fold_in, generator
from siloweave.tables.plans import Categories, Plan
from siloweave.tables.scales import Floats

__all__ = ["Block", "blocks_of", "read_vectors"]

_CHUNK = 4096  # rows that are read at once, so that they stay in the processor's cache
_Ints = NDArray[np.int64]
_Reals = NDArray[np.floating]


@dataclass(frozen=True)
class Block:
    """Part of a row's vector.

    Args:
        column: The column that it belongs to.
        start: Where it starts in the vector.
        size: How many entries it has; 1 for a number.
        kind: ``number`` for one real number, ``choice`` for a one-hot choice among `size`.
    """

    column: str
    start: int
    size: int
    kind: Literal["number", "choice"]

    @property
    def stop(self) -> int:
        """Where the next block starts."""
        return self.start + self.size


def blocks_of(plans: Sequence[Plan]) -> tuple[Block, ...]:
    """Return the blocks of some plans, in order; a column's number comes before its choices."""
    blocks: list[Block] = []
    start = 0
    for plan in plans:
        if plan.number:
            blocks.append(Block(plan.column, start, 1, "number"))
            start += 1
        for size in plan.sizes:
            blocks.append(Block(plan.column, start, size, "choice"))
            start += size
    return tuple(blocks)


def read_vectors(vectors: _Reals, plans: Sequence[Plan], key: Key) -> list[tuple[_Ints, Floats]]:
    """Read what vectors choose, and their numbers.

    Args:
        vectors: (rows, width) real numbers.
        plans: The plans whose blocks they are made of.
        key: Which of several equal largest entries is chosen.

    Returns:
        For each plan the option of each row (the rank, for digits; 0 where there is no choice)
        and its number (0 where there is none).

    Raises:
        DataError: When an entry is NaN or infinite; says in which column.
    """
    _check_finite(vectors, plans)
    options = [np.zeros(len(vectors), dtype=np.int64) for _ in plans]
    numbers = [np.zeros(len(vectors)) if plan.number else np.zeros(0) for plan in plans]
    randoms = [generator(fold_in(key, "decode", plan.column)) for plan in plans]
    blocks = blocks_of(plans)
    for start in range(0, len(vectors), _CHUNK):
        rows = slice(start, start + _CHUNK)
        chunk = np.array(vectors[rows].T, order="C", copy=True)
        parts = iter([chunk[block.start : block.stop] for block in blocks])
        for i, plan in enumerate(plans):
            if plan.number:
                numbers[i][rows] = next(parts)[0]
            if plan.sizes:
                options[i][rows] = _chosen(plan, [next(parts) for _ in plan.sizes], randoms[i])
    return list(zip(options, numbers, strict=True))


def _check_finite(vectors: _Reals, plans: Sequence[Plan]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(vectors.sum()):
            return
    for block in blocks_of(plans):
        part = vectors[:, block.start : block.stop]
        wild = int(np.count_nonzero(~np.isfinite(part).all(axis=1)))
        if wild:
            raise DataError(
                f"values: {wild} rows are NaN or infinite in the {block.kind} of column "
                f"{block.column!r}; a model that makes them has diverged"
            )


def _chosen(plan: Plan, parts: list[_Reals], random: np.random.Generator) -> _Ints:
    """The number that the digits make, each the largest among those that some category has."""
    ranks = np.zeros(parts[0].shape[1], dtype=np.int64)
    for block, part in enumerate(parts):
        if isinstance(plan, Categories) and len(parts) > 1:
            limits = plan.limits(ranks, block)
            tight = np.flatnonzero(limits < len(part) - 1)
            beyond = np.arange(len(part))[:, None] > limits[tight]
            part[:, tight] = np.where(beyond, -np.inf, part[:, tight])
        ranks = ranks * len(part) + _largest(part, random)
    return ranks


def _largest(part: _Reals, random: np.random.Generator) -> _Ints:
    """Where each column's largest entry stands; one of them at random where there are several."""
    top = part == part.max(axis=0)
    found: _Ints = top.argmax(axis=0)
    tied = np.flatnonzero(np.count_nonzero(top, axis=0) > 1)
    if len(tied):
        drawn = random.random((len(part), len(tied)))
        found[tied] = np.where(top[:, tied], drawn, -1.0).argmax(axis=0)
    return found
