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
        weights = counts
        if by == "log":
            # Xu et al. 2019, section 4.3 (training by sampling): the logarithm of the frequency.
            weights = np.log1p(counts)

        num_columns = len(self.sizes)
        sums = np.bincount(self.columns, weights, minlength=num_columns)
        shares = weights / sums[self.columns]  # within each column
        return np.asarray(shares / max(num_columns, 1))

    def shares(self, column: int) -> tuple[float, ...]:
        """Return the share of the real rows that each category of a column has."""
        all_counts = np.array(self.counts, dtype=np.float64)
        counts = all_counts[self.columns == column]
        return tuple((counts / counts.sum()).tolist())


class Drawing(NamedTuple):
    """What rows and their conditions are drawn by; arrays, so tables of a shape share a program."""

    # (rows, columns): row numbers, sorted by the category in each column.
    order: Array
    # (conditions,): where each ends in [0, 1] by the distribution of training.
    ends: Array
    # The last condition that has any probability.
    last: Array
    # (conditions,): rows of each.
    counts: Array
    # (conditions,): rows of the column's conditions before it.
    before: Array


def drawing(
    conditions: Conditions, by: Frequency = "log", codes: Ints | None = None
) -> Drawing:
    """Draw columns equally often, and conditions by their counts as in `Conditions.distribution`.

    `codes` are the category of each row, (rows, columns); None where no row will be drawn.
    """
    num_columns = len(conditions.sizes)
    order = np.zeros((0, num_columns), dtype=np.int64)
    if codes is not None:
        # Stable: among equal categories the rows keep their order on every machine.
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
        before_column = cumulative[conditions.starts]
        before = cumulative - before_column[conditions.columns]

    return Drawing(
        order=_int32(order),
        ends=jnp.asarray(ends.astype(np.float32)),
        last=_int32(np.array(last)),
        counts=_int32(counts),
        before=_int32(before),
    )


def _int32(values: Ints) -> Array:
    """Return integers as jax holds them."""
    return jnp.asarray(values.astype(np.int32))


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
    # In float32 a draw just below 1, times a count, can be rounded up to the count.
    picks = (uniform * counts).astype(jnp.int32)
    picks = jnp.minimum(picks, counts - 1)

    # Rows of a condition stand together in its column's order, behind those of conditions before.
    positions = drawing.before[places] + picks
    condition_columns = jnp.asarray(columns, jnp.int32)
    return drawing.order[positions, condition_columns[places]]
