"""Training by sampling: a condition on one choice, and real rows that meet it.

A conditional generator is told one category of one column. While it learns, the column is drawn
uniformly and the category in proportion to ln(count + 1), so that rare ones are met, and the
critic is shown real rows of that category (Xu, Skoularidou, Cuesta-Infante & Veeramachaneni,
Modeling Tabular Data using Conditional GAN, NeurIPS 2019). Rows are found through one table of row
numbers per column, sorted by category: two gathers a draw, so that whole epochs stay compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError

__all__ = ["Conditions", "RowTable", "draw_conditions", "draw_rows", "row_table"]

Array = jax.Array
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Conditions:
    """The conditions that a table offers: all categories of some columns, side by side.

    Attributes:
        sizes: Categories of each column.
        counts: Real rows of each category, columns one after the other.

    Example:
        >>> conditions = Conditions((2, 2), (1, 3, 0, 4))
        >>> conditions.law("real").round(3).tolist()
        [0.125, 0.375, 0.0, 0.5]
        >>> conditions.law("log").round(3).tolist()
        [0.167, 0.333, 0.0, 0.5]
    """

    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of conditions: the length of a conditional vector."""
        return sum(self.sizes)

    @cached_property
    def starts(self) -> Ints:
        """Place of each column's first category."""
        return np.cumsum([0, *self.sizes[:-1]])[: len(self.sizes)]

    @cached_property
    def columns(self) -> Ints:
        """The column of each condition."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def law(self, law: Literal["log", "real"]) -> NDArray[np.float64]:
        """Probability of each condition: columns equally likely, and within one by counts.

        Args:
            law: ``"log"``: in proportion to ln(count + 1), how a generator is trained and how
                the reference samples. ``"real"``: in proportion to the counts, so that the mix
                of all conditions has the real frequencies.

        Raises:
            InputError: The law is unknown.
        """
        if law not in ("log", "real"):
            raise InputError(f"law={law!r} is unknown; use 'log' or 'real'")
        counts = np.array(self.counts, dtype=np.float64)
        weights = np.log1p(counts) if law == "log" else counts
        sums = np.bincount(self.columns, weights, minlength=len(self.sizes))
        return np.asarray(weights / sums[self.columns] / max(len(self.sizes), 1))

    def shares(self, column: int) -> tuple[float, ...]:
        """Share of the real rows that each category of a column has.

        Example:
            >>> Conditions((2, 2), (1, 3, 0, 4)).shares(0)
            (0.25, 0.75)
        """
        counts = np.array(self.counts, dtype=np.float64)[self.columns == column]
        return tuple((counts / counts.sum()).tolist())

    def within(
        self, column: int, weights: Literal["equal"] | Sequence[float]
    ) -> NDArray[np.float64]:
        """Probability of each condition where only one column's categories are drawn.

        Args:
            column: Which.
            weights: ``"equal"`` for all categories that real rows have, or one weight each.

        Raises:
            InputError: Weights are negative, none is above 0, their number is wrong, or one
                asks for a category that no real row has.
        """
        here = self.columns == column
        counts = np.array(self.counts)[here]
        chosen = (counts > 0).astype(float) if weights == "equal" else np.array(weights, float)
        if chosen.shape != counts.shape or not (chosen >= 0).all() or not 0 < chosen.sum() < np.inf:
            raise InputError(
                f"weights={weights!r}: give {counts.size} numbers >= 0, one above 0, one for each "
                "category of the column"
            )
        if (chosen[counts == 0] > 0).any():
            seen = np.flatnonzero(counts).tolist()
            raise InputError(
                f"weights={weights!r} ask for a category that no real row had; the codes seen "
                f"are {seen}"
            )
        law = np.zeros(self.width)
        law[here] = chosen / chosen.sum()
        return law


@dataclass(frozen=True)
class RowTable:
    """Where the real rows of each condition are.

    Attributes:
        order: (rows, columns): row numbers, sorted by the category in each column.
        conditions: What they are sorted by.
    """

    order: NDArray[np.int32]
    conditions: Conditions


def row_table(codes: Ints, sizes: Sequence[int]) -> RowTable:
    """Sort rows by the category of each column.

    Args:
        codes: (rows, columns), category of each row.
        sizes: Categories of each column.

    Example:
        >>> table = row_table(np.array([[1], [0], [1]]), (2,))
        >>> table.order[:, 0].tolist(), table.conditions.counts
        ([1, 0, 2], (1, 2))
    """
    counts = [np.bincount(codes[:, j], minlength=size) for j, size in enumerate(sizes)]
    flat = np.concatenate(counts) if counts else np.zeros(0, dtype=np.int64)
    order = np.argsort(codes, axis=0, kind="stable").astype(np.int32)
    return RowTable(order, Conditions(tuple(sizes), tuple(flat.tolist())))


def draw_conditions(law: NDArray[np.float64], uniform: Array) -> Array:
    """Draw places in the conditional vector by a law over them, from uniform draws.

    Example:
        >>> draw_conditions(np.array([0.0, 0.5, 0.0, 0.5]), jnp.array([0.0, 0.49, 0.5])).tolist()
        [1, 1, 3]
    """
    ends = np.cumsum(law)
    last = int(np.flatnonzero(law)[-1])
    ends[last:] = 1.0
    found = jnp.searchsorted(jnp.asarray(ends, jnp.float32), uniform, "right")
    return jnp.minimum(found, last).astype(jnp.int32)


def draw_rows(conditions: Conditions, order: Array, places: Array, uniform: Array) -> Array:
    """Draw for each condition one real row that meets it, uniformly.

    Args:
        conditions: What `order` is sorted by.
        order: `RowTable.order`, on the device.
        places: Conditions that one real row or more meets.
        uniform: Which of them: a draw from [0, 1) for each place.

    Returns:
        Row numbers, as many as places.
    """
    counts = np.array(conditions.counts, dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])[:-1]
    before = before - before[conditions.starts][conditions.columns]
    many = jnp.asarray(counts, jnp.int32)[places]
    pick = jnp.minimum((uniform * many).astype(jnp.int32), many - 1)
    return order[
        jnp.asarray(before, jnp.int32)[places] + pick,
        jnp.asarray(conditions.columns, jnp.int32)[places],
    ]
