"""Separate the dependence of two columns from the noise of their counts.

A fit turns noise into links: the logarithm of a cell with few rows moves with the noise, and its
mean share grows, since exp is convex. A class of 3 % so became 15 % among rare values of another
column. Here a table of two columns is split into what its single columns say, and the rest, and
of the rest only what noise does not explain is kept.

Let p and q be the shares of the values of two columns, and N the rows. The rest, E = counts -
N p q', sums to 0 over either column. In correspondence analysis (Benzecri 1973) it is
N D_p F D_q, where F holds correlations of functions of the two columns. Correlations of orthonormal
functions are taken to be independent, with one variance t for the pair, so that

    Cov E = t N^2 (D_p - p p') x (D_q - q q')        (x: Kronecker's product)

In the eigenvectors of both factors all entries of E are independent, with variances t N^2 a_k b_l.
Noise adds to each its own variance, and that of the single columns in N p q'. The variance t is
that of the largest likelihood, and 0 where this is hardly larger than without dependence
(`dependence`).
Each entry is then multiplied by its ratio of signal to noise, at most by 1 (`cleaned`): rare values
become independent, frequent ones stay. What wider tables have beyond pairs is split in the same way
(`without_wide_noise`).

Where tables were counted over other rows than the single columns, they are first raked to these
(`raked_to_columns`): by iterative proportional fitting (Deming & Stephan 1940, "On a least squares
adjustment of a sampled frequency table").

**Guarantee**: none of its own; everything here reads noisy counts that were paid for
(post-processing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import NamedTuple

import numpy as np

from siloweave.models.estimate import (
    Measurement,
    assemble,
    combine,
    effect,
    interaction,
    single_columns,
    solve_block,
    subsets,
)
from siloweave.models.junction_tree import Array
from siloweave.models.mrf import MRF
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique

_HELD = 0.02
"""Weight of entropy in single columns: these are known well, and entropy would make values of few
rows more frequent in each column, and the columns look dependent."""
EVIDENCE = 3.0
"""Twice the logarithm of how much likelier dependence must make the counts. Of independent pairs
one in 24 gets there: half a chi-square of one degree of freedom."""
_VARIANCES = np.geomspace(1e-9, 1.0, 37)
"""Of correlations between functions of two columns, which are at most 1; a factor of 1.8 apart."""
_SLACK = 0.5
"""Weight of entropy where a noisy table is made possible: that of a fit."""
_SMALLEST = 1e-9
"""Rows of a cell, at least: raking multiplies."""
_MAX_PASSES = 50
"""Of raking over a table's columns."""
_RAKED = 1e-6
"""Share of the rows by which a table's columns may be wrong once it is raked."""
_MOST_EXACT = 1024
"""Values of a column whose eigenvectors are computed; each of more is taken for one of them."""


class _Entries(NamedTuple):
    """The entries of E in contrasts, where all are independent, as arrays of one shape."""

    values: Array
    noise: Array  # variance of each entry's noise
    reach: Array  # variance of its signal where t = 1


@dataclass(frozen=True)
class SingleColumn:
    """The counts of a single column, from all measurements together.

    Attributes:
        counts: Rows of each value, shape (n,), unbiased: noise may bring them below 0.
        sigma: Standard deviation of the noise of each.
        total: Rows in all.
    """

    counts: Floats
    sigma: float
    total: float

    @cached_property
    def possible(self) -> Floats:
        """The nearest counts of the values, (n,), that are positive and sum to the total."""
        slack = max(_HELD * self.sigma, 1e-6)
        even_count = self.total / len(self.counts)
        base = self.counts / slack + np.log(even_count / slack)
        return np.asarray(solve_block(base, slack, self.total))

    @cached_property
    def contrasts(self) -> tuple[Floats, Floats]:
        """The variances a_k, (n,), and the eigenvectors as columns, (n, n), of D_p - p p'."""
        p = self.possible / self.total
        if len(p) > _MOST_EXACT:
            # Each value is taken for an eigenvector, as if p p' were 0.
            return p, np.eye(len(p))
        variances, axes = np.linalg.eigh(np.diag(p) - np.outer(p, p))
        return np.maximum(variances, 0.0), axes

    @cached_property
    def noise(self) -> Floats:
        """The variance, (n,), that this column's shares give to the noise of the other one."""
        _, axes = self.contrasts
        p = self.possible / self.total
        variances: Floats = (axes.T @ p) ** 2
        return variances

    def measurement(self, column: str) -> Measurement:
        """Return the column as a measurement that a fit keeps to."""
        return Measurement((column,), self.possible, _HELD * self.sigma)


def margins_of(
    measurements: Sequence[Measurement], total: float | None
) -> dict[str, SingleColumn]:
    """Return every single column of noisy marginals, averaged over all that hold it.

    Args:
        measurements: Noisy marginals.
        total: Number of rows; as they say themselves if None.
    """
    singles = single_columns(measurements)
    if total is None:
        total = float(singles[0].counts.sum())
    num_rows = max(1.0, total)
    return {m.clique[0]: SingleColumn(m.counts, m.sigma, num_rows) for m in singles}


def dependence(pair: Measurement, margins: Mapping[str, SingleColumn]) -> float:
    """Estimate the variance of correlations between two columns; 0 if noise may explain them.

    Example:
        >>> import numpy as np
        >>> counts = np.array([[50.0, 20.0], [10.0, 40.0]])
        >>> ones = margins_of([Measurement(("a", "b"), counts, 3.0)], None)
        >>> dependence(Measurement(("a", "b"), counts, 3.0), ones) > 0
        True
        >>> dependence(Measurement(("a", "b"), counts, 60.0), ones)
        0.0
    """
    return _likeliest_variance([_entries(pair, margins)])


def _likeliest_variance(parts: Sequence[_Entries]) -> float:
    """Return the variance of correlations that makes all entries likeliest, 0 if hardly so."""
    values = np.concatenate([np.ravel(part.values) for part in parts])
    noise = np.concatenate([np.ravel(part.noise) for part in parts])
    reach = np.concatenate([np.ravel(part.reach) for part in parts])
    square = values**2 / noise
    ratio = reach / noise

    # With s = t * reach / noise, an entry has the variance noise (1 + s). The gain is twice the
    # logarithm of how much likelier that makes all entries than the variance of noise alone.
    likeliest = 0.0
    largest_gain = EVIDENCE
    for variance in _VARIANCES:
        signal = variance * ratio
        gain = float((square * signal / (1 + signal) - np.log1p(signal)).sum())
        if gain > largest_gain:
            likeliest = float(variance)
            largest_gain = gain
    return likeliest


def cleaned(
    pair: Measurement, margins: Mapping[str, SingleColumn], variance: float
) -> Measurement:
    """Remove from a pair's table the dependence that its noise explains.

    Args:
        pair: Noisy counts of two columns.
        margins: Single columns.
        variance: Of the pair's correlations, as `dependence` estimates it.
    """
    first, second = (margins[column] for column in pair.clique)
    counts = np.outer(first.possible, second.possible) / first.total
    if variance > 0:
        values, noise, reach = _entries(pair, margins)
        # The fit shrinks, too: s / (1 + s), the optimum alone, would shrink strong ones twice.
        weights = np.minimum(1.0, variance * reach / noise)
        _, row_axes = first.contrasts
        _, column_axes = second.contrasts
        counts = counts + row_axes @ (weights * values) @ column_axes.T
    return Measurement(pair.clique, counts, pair.sigma)


def raked_to_columns(
    measurements: Sequence[Measurement], total: float
) -> list[Measurement]:
    """Rake noisy tables to the counts of their single columns, for a fit that keeps to these.

    Noise makes cells negative, and a table over a part of the rows has columns of its own. So each
    table is moved to the nearest possible one (entropy weighs half of the noise, towards
    independent columns), raked to the single columns, and, if it is a pair, cleaned of the
    dependence that noise explains. What was measured of single columns alone then decides on them.

    Args:
        measurements: Noisy marginals; every column of a table is there by itself, too.
        total: Number of rows that all of them stand for.

    Returns:
        In the same order, with the same noise, but for single columns: a fit holds to these.

    Example:
        >>> import numpy as np
        >>> table = Measurement(("a", "b"), np.array([[8.0, -1.0], [1.0, 2.0]]), 1.0)
        >>> singles = [Measurement((c,), np.array([5.0, 5.0]), 0.1) for c in "ab"]
        >>> *_, raked = raked_to_columns([*singles, table], 10.0)
        >>> raked.counts.sum(axis=0).round(3).tolist(), bool(raked.counts.min() > 0)
        ([5.0, 5.0], True)
    """
    singles = [m for m in measurements if len(m.clique) == 1]
    margins = margins_of(singles, total)
    raked_tables = []
    for measurement in measurements:
        columns = [margins[column] for column in measurement.clique]
        if len(columns) == 1:
            (name,) = measurement.clique
            raked_tables.append(columns[0].measurement(name))
            continue
        table = _raked(measurement, columns)
        if len(columns) == 2:
            variance = dependence(table, margins)
            table = _raked(cleaned(table, margins, variance), columns)
        raked_tables.append(table)
    return raked_tables


def _raked(m: Measurement, columns: Sequence[SingleColumn]) -> Measurement:
    """Return the possible table nearest to noisy counts that has these single columns."""
    total = columns[0].total
    independent = np.ones(())
    for column in columns:
        independent = np.multiply.outer(independent, column.possible / total)

    # The nearest table without a negative cell.
    slack = max(_SLACK * m.sigma, 1e-6)
    expected = np.maximum(independent * total, _SMALLEST)
    base = m.counts / slack + np.log(expected / slack)
    table = np.maximum(solve_block(base.reshape(-1), slack, total), _SMALLEST)
    table = table.reshape(m.counts.shape)

    # Iterative proportional fitting.
    for _ in range(_MAX_PASSES):
        distance = 0.0
        for axis, column in enumerate(columns):
            other_axes = tuple(i for i in range(table.ndim) if i != axis)
            counts = table.sum(axis=other_axes, keepdims=True)
            target = column.possible.reshape(counts.shape)
            distance += float(np.abs(counts - target).sum())
            table = table * (target / counts)
        if distance <= _RAKED * total:
            break
    return Measurement(m.clique, table, m.sigma)


def _entries(pair: Measurement, margins: Mapping[str, SingleColumn]) -> _Entries:
    """Return a pair's E in contrasts, with the variances of its noise, and its signal at t = 1."""
    first, second = (margins[column] for column in pair.clique)
    a, row_axes = first.contrasts
    b, column_axes = second.contrasts
    # Unbiased counts: a product of counts above 0 is no estimate of what independence would give.
    independent = np.outer(first.counts, second.counts) / first.total
    rest = interaction(pair.counts - independent)
    noise = (
        max(pair.sigma, 1e-9) ** 2
        + first.sigma**2 * second.noise[None, :]
        + second.sigma**2 * first.noise[:, None]
    )
    values = row_axes.T @ rest @ column_axes
    reach = np.outer(a, b) * first.total**2  # N^2 a_k b_l
    return _Entries(values, noise, reach)


def without_noise(
    first: Sequence[Measurement],
    second: Sequence[Measurement],
    total: float | None,
    refit: Callable[[Sequence[Measurement]], MRF],
) -> list[Measurement]:
    """Remove from measurements the dependences that noise explains.

    A pair is judged by the second round alone, where that measured it: it was chosen because the
    first answer looked dependent, so that answer is no evidence. Both give its counts.

    Args:
        first: Of the first round, all single columns and the pairs that were planned.
        second: Of the second round, pairs and wider tables.
        total: Number of rows where it is public.
        refit: Fits a model to measurements of single columns and pairs; wider tables are shrunk
            towards it.
    """
    measured = [*first, *second]
    margins = margins_of(measured, total)
    cliques: dict[Clique, None] = {}  # of all pairs, without doubles, in order
    for m in measured:
        cliques |= dict.fromkeys(combinations(m.clique, 2))
    pairs: dict[Clique, Measurement] = {}
    for clique in cliques:
        (whole,) = _onto(clique, measured)
        (judge,) = _onto(clique, second) or [whole]
        variance = dependence(judge, margins)
        if variance > 0:
            pairs[clique] = cleaned(whole, margins, variance)

    singles = [margin.measurement(column) for column, margin in margins.items()]
    wide = [m for m in second if len(m.clique) > 2]
    if not wide:
        return singles + list(pairs.values())

    # A pair that only a wider table holds enters through that table, not by itself as well.
    measured_pairs = {m.clique for m in measured if len(m.clique) == 2}
    tables = [pair for clique, pair in pairs.items() if clique in measured_pairs]
    model = refit(singles + list(pairs.values()))
    return singles + tables + without_wide_noise(model, wide, pairs, margins)


def without_wide_noise(
    model: MRF,
    wide: Sequence[Measurement],
    pairs: Mapping[Clique, Measurement],
    margins: Mapping[str, SingleColumn],
) -> list[Measurement]:
    """Remove from tables of three columns or more the interactions that noise explains.

    A pair's interaction is that of its cleaned table, or the model's where none is left. What the
    tables have beyond the model in more columns is averaged over all tables. It is split into
    contrasts and cleaned as a pair's is, with one variance for all interactions of as many columns;
    and no contrast keeps a larger share than all of them together have of signal to noise.

    Args:
        model: Of single columns and cleaned pairs, over the same rows.
        wide: The tables, of one clique each.
        pairs: Cleaned tables of the pairs that depend on each other.
        margins: Single columns.
    """
    beyond = []
    for m in wide:
        rest = m.counts - model.marginal(m.clique)
        beyond.append(Measurement(m.clique, rest, m.sigma))
    cleaned_effects = _cleaned_effects(beyond, margins)

    shrunk = []
    for m in wide:
        expected_counts = np.asarray(model.marginal(m.clique))
        expected = Measurement(m.clique, expected_counts, m.sigma)
        effects = {}
        for part in subsets(m.clique):
            effects[part] = effect(pairs.get(part, expected), part)
            if part in cleaned_effects:
                effects[part] = effects[part] + cleaned_effects[part]
        shrunk.append(Measurement(m.clique, assemble(m, effects), m.sigma))
    return shrunk


def _cleaned_effects(
    beyond: Sequence[Measurement],
    margins: Mapping[str, SingleColumn],
) -> dict[Clique, Array]:
    """Return the interactions of three columns or more that noise does not explain, by clique."""
    parts: dict[Clique, None] = {}  # of all tables, without doubles, in order
    for m in beyond:
        parts |= dict.fromkeys(part for part in subsets(m.clique) if len(part) > 2)
    entries = {}
    for part in parts:
        (rest,) = _onto(part, beyond)
        entries[part] = _wide_entries(rest, margins)

    effects: dict[Clique, Array] = {}
    widths = {len(part) for part in parts}
    for num_columns in widths:
        same_width = [part for part in parts if len(part) == num_columns]
        variance = _likeliest_variance([entries[part] for part in same_width])
        largest_share = _signal_share([entries[part] for part in same_width])
        for part in same_width:
            values, noise, reach = entries[part]
            table = np.minimum(largest_share, variance * reach / noise) * values
            # Back from contrasts to cells.
            for axis, column in enumerate(part):
                _, axes = margins[column].contrasts
                table = _along(axes, table, axis)
            effects[part] = table
    return effects


def _signal_share(parts: Sequence[_Entries]) -> float:
    """Return the ratio of signal to noise over all entries, from 0 to 1."""
    square = sum(float((part.values**2 / part.noise).sum()) for part in parts)
    # Noise alone would make the sum of squares as large as the entries' degrees of freedom.
    freedom = 0
    for part in parts:
        freedom += prod(length - 1 for length in part.values.shape)
    return min(1.0, max(0.0, square / max(freedom, 1) - 1.0))


def _wide_entries(rest: Measurement, margins: Mapping[str, SingleColumn]) -> _Entries:
    """Return the interaction of several columns in contrasts, as `_entries` does for a pair."""
    values = interaction(rest.counts)
    noise = np.full(values.shape, max(rest.sigma, 1e-9) ** 2)
    reach = np.ones(values.shape)
    for axis, column in enumerate(rest.clique):
        margin = margins[column]
        variances, axes = margin.contrasts
        shape = [1] * values.ndim
        shape[axis] = -1
        values = _along(axes.T, values, axis)
        reach = reach * variances.reshape(shape)
    return _Entries(values, noise, reach * margin.total**2)


def _along(matrix: Array, table: Array, axis: int) -> Array:
    """Multiply a table by a matrix along one axis."""
    # Whose first axis is the new one.
    product = np.tensordot(matrix, table, axes=(1, axis))
    return np.moveaxis(product, 0, axis)


def _onto(pair: Clique, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Sum measurements to a pair, and average them; an empty list if none holds the pair."""
    holding = [m for m in measurements if set(pair) <= set(m.clique)]
    return combine(m.onto(pair) for m in holding)
