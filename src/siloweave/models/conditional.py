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
        counts: list[int] = []
        for column, size in enumerate(sizes):
            column_counts = np.bincount(codes[:, column], minlength=size)
            counts += column_counts.tolist()
        return cls(tuple(sizes), tuple(counts))

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
        """Return each condition's probability: columns equally likely, and within one by counts.

        With ``"log"`` in proportion to ln(count + 1), how a generator is trained and how the
        reference samples; with ``"real"`` to the counts, so that all conditions mix as in the real
        rows. Another word raises InputError.
        """
        if by not in ("log", "real"):
            raise InputError(f"by={by!r} is unknown; use 'log' or 'real'")
        counts = np.array(self.counts, dtype=np.float64)
        weights = np.log1p(counts) if by == "log" else counts
        sums = np.bincount(self.columns, weights, minlength=len(self.sizes))
        shares = weights / sums[self.columns]  # within each column
        return np.asarray(shares / max(len(self.sizes), 1))

    def shares(self, column: int) -> tuple[float, ...]:
        """Return the share of the real rows that each category of a column has."""
        all_counts = np.array(self.counts, dtype=np.float64)
        counts = all_counts[self.columns == column]
        return tuple((counts / counts.sum()).tolist())


class Drawing(NamedTuple):
    """What rows and their conditions are drawn by; arrays, so tables of a shape share a program."""

    order: Array  # (rows, columns): row numbers, sorted by the category in each column
    # (conditions,), where each ends in [0, 1] by the distribution of training
    ends: Array
    last: Array  # the last condition that has any probability
    counts: Array  # (conditions,), rows of each
    before: Array  # (conditions,), rows of the column's conditions before it


def drawing(
    conditions: Conditions, by: Frequency = "log", codes: Ints | None = None
) -> Drawing:
    """Draw columns equally often, and conditions by their counts as in `Conditions.distribution`.

    `codes` are the category of each row, (rows, columns); None where no row will be drawn.
    """
    order = np.zeros((0, len(conditions.sizes)), dtype=np.int64)
    if codes is not None:
        order = codes.argsort(0, "stable")

    counts = np.array(conditions.counts, dtype=np.int64)
    ends = np.zeros(0)
    last = 0
    before = counts
    if counts.size:
        distribution = conditions.distribution(by)
        last = int(np.flatnonzero(distribution)[-1])
        ends = np.cumsum(distribution)
        ends[last:] = 1.0  # rounding must not leave a gap below 1
        # Rows of all conditions before, less those of other columns.
        cumulative = np.concatenate([[0], np.cumsum(counts)])[:-1]
        before = cumulative - cumulative[conditions.starts][conditions.columns]

    return Drawing(
        order=jnp.asarray(order.astype(np.int32)),
        ends=jnp.asarray(ends.astype(np.float32)),
        last=jnp.asarray(np.array(last).astype(np.int32)),
        counts=jnp.asarray(counts.astype(np.int32)),
        before=jnp.asarray(before.astype(np.int32)),
    )


def draw_places(drawing: Drawing, uniform: Array) -> Array:
    """Draw places in the conditional vector, from uniform draws."""
    places = jnp.searchsorted(drawing.ends, uniform, "right")
    # A condition without probability may stand after the last one that has any.
    return jnp.minimum(places, drawing.last).astype(jnp.int32)


def draw_rows(columns: Ints, drawing: Drawing, places: Array, uniform: Array) -> Array:
    """Draw numbers of real rows that meet the conditions at these places, one each, uniformly.

    `columns` are `Conditions.columns`, each place has a real row, `uniform` is from [0, 1).
    """
    counts = drawing.counts[places]
    picks = jnp.minimum((uniform * counts).astype(jnp.int32), counts - 1)
    positions = drawing.before[places] + picks
    column_of_place = jnp.asarray(columns, jnp.int32)[places]
    return drawing.order[positions, column_of_place]
