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
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError

__all__ = [
    "Conditions",
    "Drawing",
    "RowTable",
    "draw_by",
    "draw_conditions",
    "draw_rows",
    "drawing",
    "row_table",
]

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


class Drawing(NamedTuple):
    """What rows and their conditions are drawn by; arrays, so tables of a shape share a program.

    Attributes:
        order: `RowTable.order`.
        ends: (conditions,), where each ends in [0, 1] by the law of training.
        last: The last condition that has any probability.
        counts: (conditions,), rows of each.
        before: (conditions,), rows of the column's conditions before it.
    """

    order: Array
    ends: Array
    last: Array
    counts: Array
    before: Array


def drawing(table: RowTable, law: Literal["log", "real"] = "log") -> Drawing:
    """What a row table is drawn by: columns equally often, conditions by a law of their counts."""
    conditions = table.conditions
    counts = np.array(conditions.counts, dtype=np.int64)
    if not counts.size:
        nothing = np.zeros(0, np.int32)
        ends, last, before = np.zeros(0, np.float32), 0, nothing
    else:
        ends, last = _ends(conditions.law(law))
        before = np.concatenate([[0], np.cumsum(counts)])[:-1]
        before = before - before[conditions.starts][conditions.columns]
    whole = (np.int32(last), counts.astype(np.int32), before.astype(np.int32))
    return Drawing(*(jnp.asarray(x) for x in (table.order, ends, *whole)))


def _ends(law: NDArray[np.float64]) -> tuple[NDArray[np.float32], int]:
    """Where each place ends in [0, 1], and the last that has any probability."""
    ends = np.cumsum(law)
    last = int(np.flatnonzero(law)[-1])
    ends[last:] = 1.0
    return ends.astype(np.float32), last


def draw_conditions(law: NDArray[np.float64], uniform: Array) -> Array:
    """Draw places in the conditional vector by a law over them, from uniform draws.

    Example:
        >>> draw_conditions(np.array([0.0, 0.5, 0.0, 0.5]), jnp.array([0.0, 0.49, 0.5])).tolist()
        [1, 1, 3]
    """
    ends, last = _ends(law)
    return _placed(jnp.asarray(ends), jnp.int32(last), uniform)


def draw_by(drawing: Drawing, uniform: Array) -> Array:
    """Draw places by the law of training, from uniform draws."""
    return _placed(drawing.ends, drawing.last, uniform)


def _placed(ends: Array, last: Array, uniform: Array) -> Array:
    return jnp.minimum(jnp.searchsorted(ends, uniform, "right"), last).astype(jnp.int32)


def draw_rows(columns: Ints, drawing: Drawing, places: Array, uniform: Array) -> Array:
    """Draw for each condition one real row that meets it, uniformly.

    Args:
        columns: `Conditions.columns`.
        drawing: What is drawn by.
        places: Conditions that one real row or more meets.
        uniform: Which of them: a draw from [0, 1) for each place.

    Returns:
        Row numbers, as many as places.
    """
    many = drawing.counts[places]
    pick = jnp.minimum((uniform * many).astype(jnp.int32), many - 1)
    return drawing.order[drawing.before[places] + pick, jnp.asarray(columns, jnp.int32)[places]]
