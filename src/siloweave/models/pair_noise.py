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
become independent, frequent ones stay.

**Guarantee**: none of its own; everything here reads noisy counts that were paid for
(post-processing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from siloweave.models.estimate import (
    Measurement,
    combine,
    interaction,
    shrink_interactions,
    single_columns,
    solve_block,
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
_MOST_EXACT = 1024
"""Values of a column whose eigenvectors are computed; each of more is taken for one of them."""


@dataclass(frozen=True)
class SingleColumn:
    """A single column's counts, as all measurements together have them.

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
        """Rows of each value, shape (n,), all above 0, that sum to the total and are nearest."""
        slack = max(_HELD * self.sigma, 1e-6)
        even = self.total / len(self.counts)
        table = solve_block(self.counts / slack + np.log(even / slack), slack, self.total)
        return np.asarray(table)

    @cached_property
    def contrasts(self) -> tuple[Floats, Floats]:
        """Variances a_k, shape (n,), and eigenvectors as columns, shape (n, n), of D_p - p p'."""
        shares = self.possible / self.total
        if len(shares) > _MOST_EXACT:
            return shares, np.eye(len(shares))
        variances, axes = np.linalg.eigh(np.diag(shares) - np.outer(shares, shares))
        return np.maximum(variances, 0.0), axes

    @cached_property
    def noise(self) -> Floats:
        """Variance, shape (n,), that this column's shares give to the noise of the other one."""
        _, axes = self.contrasts
        along: Floats = (axes.T @ (self.possible / self.total)) ** 2
        return along

    def measurement(self, column: str) -> Measurement:
        """Return the column as a measurement that a fit holds to."""
        return Measurement((column,), self.possible, _HELD * self.sigma)


def margins_of(measurements: Sequence[Measurement], total: float | None) -> dict[str, SingleColumn]:
    """Return every single column of noisy marginals, averaged over all that hold it.

    Args:
        measurements: Noisy marginals.
        total: Number of rows; as they say themselves if None.
    """
    singles = single_columns(measurements)
    rows = float(singles[0].counts.sum()) if total is None else total
    rows = max(1.0, rows)
    return {m.clique[0]: SingleColumn(m.counts, m.sigma, rows) for m in singles}


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
    entries, noise, reach = _entries(pair, margins)
    square, ratio = entries**2 / noise, reach / noise
    best, evidence = 0.0, EVIDENCE
    for variance in _VARIANCES:
        signal = variance * ratio
        gain = float((square * signal / (1 + signal) - np.log1p(signal)).sum())
        if gain > evidence:
            best, evidence = float(variance), gain
    return best


def cleaned(pair: Measurement, margins: Mapping[str, SingleColumn], variance: float) -> Measurement:
    """Return a pair's table whose dependence is only what its noise does not explain.

    Args:
        pair: Noisy counts of two columns.
        margins: Single columns.
        variance: Of the pair's correlations, as `dependence` estimates it.
    """
    first, second = (margins[column] for column in pair.clique)
    counts = np.outer(first.possible, second.possible) / first.total
    if variance > 0:
        entries, noise, reach = _entries(pair, margins)
        # The fit shrinks, too: s / (1 + s), the optimum alone, would shrink strong ones twice.
        weights = np.minimum(1.0, variance * reach / noise)
        (_, rows), (_, columns) = first.contrasts, second.contrasts
        counts = counts + rows @ (weights * entries) @ columns.T
    return Measurement(pair.clique, counts, pair.sigma)


def _entries(pair: Measurement, margins: Mapping[str, SingleColumn]) -> tuple[Array, Array, Array]:
    """Return a pair's E in contrasts, the variance of its noise, and of its signal where t = 1."""
    first, second = (margins[column] for column in pair.clique)
    (a, rows), (b, columns) = first.contrasts, second.contrasts
    # Unbiased counts: a product of counts above 0 is no estimate of what independence would give.
    independent = np.outer(first.counts, second.counts) / first.total
    rest = interaction(pair.counts - independent)
    noise = (
        max(pair.sigma, 1e-9) ** 2
        + first.sigma**2 * second.noise[None, :]
        + second.sigma**2 * first.noise[:, None]
    )
    return rows.T @ rest @ columns, noise, np.outer(a, b) * first.total**2


def without_noise(
    first: Sequence[Measurement],
    second: Sequence[Measurement],
    total: float | None,
    refit: Callable[[Sequence[Measurement]], MRF],
) -> list[Measurement]:
    """Return measurements whose dependences are what noise does not explain.

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
    pairs: dict[Clique, Measurement] = {}
    for clique in dict.fromkeys(q for m in measured for q in combinations(m.clique, 2)):
        (whole,) = _onto(clique, measured)
        (judge,) = _onto(clique, second) or [whole]
        variance = dependence(judge, margins)
        if variance > 0:
            pairs[clique] = cleaned(whole, margins, variance)

    singles = [margin.measurement(column) for column, margin in margins.items()]
    wide = [m for m in second if len(m.clique) > 2]
    if not wide:
        return singles + list(pairs.values())
    alone = {m.clique for m in measured if len(m.clique) == 2}
    tables = [pair for clique, pair in pairs.items() if clique in alone]
    model = refit(singles + list(pairs.values()))
    return singles + tables + shrink_interactions(model, wide, pairs)


def _onto(pair: Clique, measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return what measurements say of a pair, averaged; nothing where none holds it."""
    holding = [m for m in measurements if set(pair) <= set(m.clique)]
    return combine(m.onto(pair) for m in holding)
