"""What others propose for private tables, written from the papers for private_ideas.py alone.

PrivTree: Zhang, Xiao & Xie 2016, "PrivTree: A differentially private algorithm for hierarchical
decompositions" (SIGMOD), in one dimension. Rare values: merged as in Chen et al. 2025,
"Benchmarking differentially private tabular data synthesis" (SIGMOD, 2504.14061). Residuals:
Mullins et al. 2024, "Efficient and private marginal reconstruction with local non-negativity"
(2410.01091).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt

import numpy as np
import numpy.typing as npt

from siloweave.models.estimate import Measurement
from siloweave.tables.codes import Clique, Codes, Domain

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_CHILDREN = 2
_STEPS = 2_000
_NEGATIVE = 0.05  # counts below 0 that a cell may have at the end


# PrivTree


@dataclass(frozen=True)
class Leaves:
    """Intervals that PrivTree did not split: where each begins, where the last ends."""

    edges: Ints

    def counts(self, values: Ints) -> Floats:
        """Return how many of the sorted values lie in each leaf."""
        return np.diff(np.searchsorted(values, self.edges)).astype(np.float64)


def privtree(values: Ints, stop: int, epsilon: float, rng: np.random.Generator) -> Leaves:
    """Split an interval in halves as long as a noisy, biased count is above 0.

    **Guarantee**: epsilon-DP for one value more or less (the paper's condition: noise of scale
    (2 b - 1) / (b - 1) / epsilon for b children, and a bias of ln b times that at every level), so
    epsilon^2 / 2 zCDP. The tree is released and no count is.

    Args:
        values: Sorted whole numbers from 0 to stop - 1.
        stop: Where the interval ends; public.
        epsilon: What the tree costs.
        rng: Of the noise, in floating point: for trials alone.
    """
    scale = (2 * _CHILDREN - 1) / (_CHILDREN - 1) / epsilon
    bias = scale * log(_CHILDREN)
    starts = []
    open_nodes = [(0, stop, 0)]
    while open_nodes:
        low, high, depth = open_nodes.pop()
        count = float(np.searchsorted(values, high) - np.searchsorted(values, low))
        # Counts fall to the same bias below 0 where nothing is left, so that noise ends the tree.
        biased = max(count - depth * bias, -bias)
        if high - low > 1 and biased + rng.laplace(0.0, scale) > 0.0:
            middle = (low + high) // 2
            open_nodes += [(low, middle, depth + 1), (middle, high, depth + 1)]
        else:
            starts.append(low)
    return Leaves(np.array([*sorted(starts), stop], dtype=np.int64))


def thinned_leaves(leaves: Leaves, noisy: Floats, clean: Floats, sigma: float) -> Floats:
    """Return counts of leaves of which the far end thins out, as decision 0042 has it for bins.

    An octave, the values up to a number's double, stands out where its leaves hold 3.5 deviations
    of their noise together. Beyond the furthest that does, each has at most half of the one before.

    Args:
        leaves: From `privtree`, of values that begin at 0.
        noisy: Their noisy counts.
        clean: The same, none below 0.
        sigma: Standard deviation of the noise.
    """
    bounds = [int(leaves.edges[-1])]
    while bounds[-1] > 1 and bounds[-1] // 2 in leaves.edges:
        bounds.append(bounds[-1] // 2)
    places = np.searchsorted(leaves.edges, bounds[::-1])
    octaves = [slice(first, last) for first, last in pairwise(places.tolist())]
    stands_out = [
        i
        for i, octave in enumerate(octaves)
        if noisy[octave].sum() > 3.5 * sigma * sqrt(octave.stop - octave.start)
    ]
    if not stands_out:
        return clean
    thinned = clean.copy()
    most = float(clean[octaves[stands_out[-1]]].sum()) / 2
    for octave in octaves[stands_out[-1] + 1 :]:
        held = float(thinned[octave].sum())
        if held > most:
            thinned[octave] *= most / held
        most = min(most, held) / 2
    return thinned


# Rare values


@dataclass(frozen=True)
class Merged:
    """Codes of which the rare ones of a column are one, the last."""

    codes: Codes
    frequent: dict[str, Ints]
    rare: dict[str, Ints]

    def split(self, drawn: Codes, domain: Domain, rng: np.random.Generator) -> Codes:
        """Return drawn rows in the codes of `domain`; rare ones are drawn evenly."""
        columns = []
        for name in domain.names:
            values, rare = drawn.column(name).astype(np.int64), self.rare[name]
            known = np.append(self.frequent[name], 0) if len(rare) else self.frequent[name]
            original = known[values]
            if len(rare):
                is_rare = values == len(known) - 1
                original[is_rare] = rng.choice(rare, int(is_rare.sum()))
            columns.append(original.astype(np.uint64))
        return Codes(domain, tuple(columns))


def merged(codes: Codes, rho: float, rng: np.random.Generator, least_share: float = 0.0) -> Merged:
    """Merge values whose noisy count is below three deviations of its noise.

    **Guarantee**: rho zCDP for one row more or less: every column is counted once, with equal
    Gaussian noise, in floating point (for trials alone).

    Args:
        codes: Rows.
        rho: What the counts cost.
        rng: Of the noise.
        least_share: Of the rows, below which values are merged, too.
    """
    sigma = sqrt(len(codes.domain.names) / (2 * rho))
    frequent, rare, columns, sizes = {}, {}, [], []
    for name, size in zip(codes.domain.names, codes.domain.sizes, strict=True):
        noisy = codes.count([(name,)])[0] + rng.normal(0.0, sigma, size)
        is_rare = noisy < max(3 * sigma, least_share * float(noisy.sum()))
        if is_rare.sum() < 2 or is_rare.all():
            is_rare[:] = False
        frequent[name] = np.flatnonzero(~is_rare)
        rare[name] = np.flatnonzero(is_rare)
        places = np.full(size, len(frequent[name]))
        places[frequent[name]] = np.arange(len(frequent[name]))
        columns.append(places[codes.column(name)].astype(np.uint64))
        sizes.append(len(frequent[name]) + bool(is_rare.any()))
    domain = Domain(codes.domain.names, tuple(sizes))
    return Merged(Codes(domain, tuple(columns)), frequent, rare)


# Residuals


class Residuals:
    """All pairs that were measured with equal noise, and the pairs nearest to them that agree.

    A table is its total, its two single columns and an interaction; these are orthogonal. Tables
    that agree on totals and single columns are therefore those in which these are averaged over
    all tables, weighted by how well each knows them, and interactions stay as they were measured.

    Args:
        domain: Columns.
        pairs: One measurement of every pair, all of equal noise.
    """

    def __init__(self, domain: Domain, pairs: Sequence[Measurement]) -> None:
        self.cliques: list[Clique] = [m.clique for m in pairs]
        self.shapes = [m.counts.shape for m in pairs]
        self.measured = [m.counts.astype(np.float64) for m in pairs]
        self.domain = domain

    def agreeing(self, tables: Sequence[Floats]) -> list[Floats]:
        """Return the tables that agree, nearest to these by the sum of squares."""
        cells = np.array([table.size for table in tables], dtype=np.float64)
        totals = np.array([table.sum() for table in tables])
        # A total's noise grows with the cells that were summed, as does a single column's.
        total = float((totals / cells).sum() / (1.0 / cells).sum())
        effects = {
            name: (np.zeros(size), 0.0)
            for name, size in zip(self.domain.names, self.domain.sizes, strict=True)
        }
        sides = []
        for clique, table in zip(self.cliques, tables, strict=True):
            side = tuple(_centred(table.sum(axis=1 - axis)) for axis in (0, 1))
            sides.append(side)
            for axis in (0, 1):
                weight = 1.0 / table.shape[1 - axis]
                added, weights = effects[clique[axis]]
                effects[clique[axis]] = (added + weight * side[axis], weights + weight)
        means = {name: added / weights for name, (added, weights) in effects.items()}

        found = []
        parts = zip(self.cliques, tables, sides, totals, strict=True)
        for clique, table, side, own_total in parts:
            first = (means[clique[0]] - side[0]) / table.shape[1]
            second = (means[clique[1]] - side[1]) / table.shape[0]
            shift = (total - own_total) / table.size
            found.append(table + first[:, None] + second[None, :] + shift)
        return found

    def least_squares(self) -> list[Floats]:
        """Return the tables that agree and are nearest to what was measured."""
        return self.agreeing(self.measured)

    def nonnegative(self) -> list[Floats]:
        """Return the tables that agree, have no cell below 0 and are nearest to what was measured.

        A multiplier for each cell pushes it up as long as it is below 0: gradient steps on the
        dual, with momentum (Beck & Teboulle 2009). The step is 1, since to agree is a projection.
        """
        multipliers = [np.zeros(shape) for shape in self.shapes]
        ahead = [table.copy() for table in multipliers]
        pace = 1.0
        tables = self.least_squares()
        for _ in range(_STEPS):
            moved = [table + push for table, push in zip(self.measured, ahead, strict=True)]
            tables = self.agreeing(moved)
            if min(float(table.min()) for table in tables) > -_NEGATIVE:
                break
            pushed = [
                np.maximum(push - table, 0.0) for push, table in zip(ahead, tables, strict=True)
            ]
            next_pace = (1 + sqrt(1 + 4 * pace * pace)) / 2
            momentum = (pace - 1) / next_pace
            ahead = [
                new + momentum * (new - old) for new, old in zip(pushed, multipliers, strict=True)
            ]
            multipliers, pace = pushed, next_pace
        return [np.maximum(table, 0.0) for table in tables]


def _centred(values: Floats) -> Floats:
    """Return values less their mean."""
    centred: Floats = values - values.mean()
    return centred
