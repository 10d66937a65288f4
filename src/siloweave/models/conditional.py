"""Training by sampling: a condition on one choice, and real rows that meet it.

A conditional generator is conditioned on one category of one column. While it learns, the column is
drawn uniformly and the category in proportion to ln(count + 1), so that rare ones occur, and the
critic reads real rows of that category (Xu, Skoularidou, Cuesta-Infante & Veeramachaneni, Modeling
Tabular Data using Conditional GAN, NeurIPS 2019). Rows are found through one table of row numbers
per column, sorted by category: two gathers a draw, so that whole epochs stay compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from siloweave.errors import InputError
from siloweave.models.nets import Array
from siloweave.tables.arrays import Floats, Ints

Frequency = Literal["log", "real"]
"""By what conditions are drawn: in proportion to ln(count + 1), or to the counts."""


@dataclass(frozen=True)
class Conditions:
    """The conditions that a table offers: all categories of some columns, side by side."""

    sizes: tuple[int, ...]  # categories of each column
    counts: tuple[int, ...]  # real rows of each category, columns one after the other

    @classmethod
    def of(cls, codes: Ints, sizes: Sequence[int]) -> Conditions:
        """Count the category of each row in each column; codes are (rows, columns)."""
        counts = [np.bincount(codes[:, j], minlength=size) for j, size in enumerate(sizes)]
        return cls(tuple(sizes), tuple(n for part in counts for n in part.tolist()))

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

    def distribution(self, by: Frequency) -> Floats:
        """Probability of each condition: columns equally likely, and within one by counts.

        With ``"log"`` in proportion to ln(count + 1), how a generator is trained and how the
        reference samples; with ``"real"`` to the counts, so that all conditions mix as in the real
        rows. Another word raises InputError.
        """
        if by not in ("log", "real"):
            raise InputError(f"by={by!r} is unknown; use 'log' or 'real'")
        counts = np.array(self.counts, dtype=np.float64)
        weights = np.log1p(counts) if by == "log" else counts
        sums = np.bincount(self.columns, weights, minlength=len(self.sizes))
        return np.asarray(weights / sums[self.columns] / max(len(self.sizes), 1))

    def shares(self, column: int) -> tuple[float, ...]:
        """Share of the real rows that each category of a column has."""
        counts = np.array(self.counts, dtype=np.float64)[self.columns == column]
        return tuple((counts / counts.sum()).tolist())


class Drawing(NamedTuple):
    """What rows and their conditions are drawn by; arrays, so tables of a shape share a program."""

    order: Array  # (rows, columns): row numbers, sorted by the category in each column
    ends: Array  # (conditions,), where each ends in [0, 1] by the distribution of training
    last: Array  # the last condition that has any probability
    counts: Array  # (conditions,), rows of each
    before: Array  # (conditions,), rows of the column's conditions before it


def drawing(conditions: Conditions, by: Frequency = "log", codes: Ints | None = None) -> Drawing:
    """Draw columns equally often, and conditions by their counts as in `Conditions.distribution`.

    `codes` are the category of each row, (rows, columns); None where no row will be drawn.
    """
    order = np.zeros((0, len(conditions.sizes))) if codes is None else codes.argsort(0, "stable")
    counts = np.array(conditions.counts, dtype=np.int64)
    ends, last, before = np.zeros(0), 0, counts
    if counts.size:
        distribution = conditions.distribution(by)
        last = int(np.flatnonzero(distribution)[-1])
        ends = np.cumsum(distribution)
        ends[last:] = 1.0
        before = np.concatenate([[0], np.cumsum(counts)])[:-1]
        before = before - before[conditions.starts][conditions.columns]
    whole = (x.astype(np.int32) for x in (order, np.array(last), counts, before))
    rows, *others = (jnp.asarray(x) for x in whole)
    return Drawing(rows, jnp.asarray(ends.astype(np.float32)), *others)


def draw_places(drawing: Drawing, uniform: Array) -> Array:
    """Draw places in the conditional vector, from uniform draws."""
    places = jnp.searchsorted(drawing.ends, uniform, "right")
    return jnp.minimum(places, drawing.last).astype(jnp.int32)


def draw_rows(columns: Ints, drawing: Drawing, places: Array, uniform: Array) -> Array:
    """Numbers of real rows that meet the conditions at these places, one each, drawn uniformly.

    `columns` are `Conditions.columns`, each place has a real row, `uniform` is from [0, 1).
    """
    many = drawing.counts[places]
    pick = jnp.minimum((uniform * many).astype(jnp.int32), many - 1)
    return drawing.order[drawing.before[places] + pick, jnp.asarray(columns, jnp.int32)[places]]
