"""Junction trees: which cliques a set of marginals needs, and how they hang together.

Cliques are kept as bit masks while the graph is triangulated, because AIM asks for the size of a
few hundred candidate trees every round. The elimination order is greedy on the size of the clique
that it creates (the "min-weight" rule of Koller & Friedman 2009, section 9.4.3), ties broken by
the order of the domain, so that the same cliques always give the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from siloweave.tables.codes import Clique, Domain

__all__ = ["JunctionTree", "maximal_cliques", "tree_cells"]


def _masks(domain: Domain, cliques: Iterable[Clique]) -> list[int]:
    position = {name: i for i, name in enumerate(domain.names)}
    return [sum(1 << position[name] for name in clique) for clique in cliques]


def _bits(mask: int) -> list[int]:
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low.bit_length() - 1)
        mask ^= low
    return bits


def _eliminate(neighbours: list[int], log_sizes: Sequence[float]) -> list[int]:
    """Masks of the cliques met while eliminating greedily; `neighbours` is consumed."""

    def weight(v: int) -> float:
        return log_sizes[v] + sum(log_sizes[u] for u in _bits(neighbours[v]))

    left = set(range(len(neighbours)))
    weights = [weight(v) for v in left]
    met = []
    while left:
        v = min(left, key=lambda u: (weights[u], u))
        around = neighbours[v]
        met.append(around | 1 << v)
        left.remove(v)
        for u in _bits(around):
            neighbours[u] = (neighbours[u] | around) & ~(1 << u | 1 << v)
        for u in _bits(around):
            weights[u] = weight(u)
    return met


def _maximal(masks: Iterable[int]) -> list[int]:
    kept: list[int] = []
    for mask in sorted(set(masks), key=lambda m: (-m.bit_count(), m)):
        if not any(mask & other == mask for other in kept):
            kept.append(mask)
    return kept


def _maximal_masks(domain: Domain, cliques: Iterable[Clique]) -> tuple[int, ...]:
    return _triangulated(domain, frozenset(cliques))


@lru_cache(maxsize=256)
def _triangulated(domain: Domain, cliques: frozenset[Clique]) -> tuple[int, ...]:
    neighbours = [0] * len(domain.names)
    for mask in _masks(domain, cliques):
        for v in _bits(mask):
            neighbours[v] |= mask & ~(1 << v)
    return tuple(_maximal(_eliminate(neighbours, np.log(domain.sizes).tolist())))


def maximal_cliques(domain: Domain, cliques: Iterable[Clique]) -> list[Clique]:
    """Maximal cliques of a triangulation of the graph whose edges the given cliques hold.

    Every attribute of the domain is in at least one clique, if need be alone.

    Args:
        domain: The attributes and their sizes.
        cliques: Sets of attributes that must each lie inside one clique of the answer.

    Returns:
        Cliques in domain order of their attributes.

    Example:
        >>> from siloweave.tables.codes import Domain
        >>> domain = Domain(("a", "b", "c", "d"), (2, 3, 4, 5))
        >>> maximal_cliques(domain, [("a", "b"), ("b", "c"), ("a", "c")])
        [('a', 'b', 'c'), ('d',)]
    """
    return [tuple(domain.names[v] for v in _bits(mask)) for mask in _maximal_masks(domain, cliques)]


def tree_cells(domain: Domain, cliques: Iterable[Clique]) -> int:
    """Total number of cells over the maximal cliques of a triangulation (8 bytes each)."""
    sizes = domain.sizes
    total = 0
    for mask in _maximal_masks(domain, cliques):
        cells = 1
        for v in _bits(mask):
            cells *= sizes[v]
        total += cells
    return total


@dataclass(frozen=True)
class JunctionTree:
    """A rooted forest of cliques with the running intersection property.

    Attributes:
        domain: The attributes and their sizes.
        cliques: Maximal cliques, every parent before its children.
        parents: Index of each clique's parent, -1 at the root.
        separators: What each clique shares with its parent; empty at the root and between
            parts that share nothing.
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]
    separators: tuple[Clique, ...]

    @classmethod
    def build(cls, domain: Domain, cliques: Iterable[Clique]) -> JunctionTree:
        """Triangulate, then join the maximal cliques by a heaviest spanning tree (Prim)."""
        masks = _maximal_masks(domain, cliques)
        order, parents = [0], [-1]
        best = {i: (masks[i] & masks[0], 0) for i in range(1, len(masks))}
        while best:
            i = max(best, key=lambda j: (best[j][0].bit_count(), -j))
            parents.append(best.pop(i)[1])
            order.append(i)
            for j, (known, _) in best.items():
                both = masks[j] & masks[i]
                if both.bit_count() > known.bit_count():
                    best[j] = (both, len(order) - 1)
        ordered = [masks[i] for i in order]
        shared = [0] + [ordered[i] & ordered[parents[i]] for i in range(1, len(ordered))]

        def names(mask: int) -> Clique:
            return tuple(domain.names[v] for v in _bits(mask))

        return cls(domain, tuple(map(names, ordered)), tuple(parents), tuple(map(names, shared)))

    @property
    def cells(self) -> int:
        """Number of cells over all cliques; a table of float64 takes 8 bytes each."""
        return sum(self.domain.size(clique) for clique in self.cliques)

    def home(self, clique: Clique) -> int | None:
        """Index of the smallest clique of the tree that holds `clique`, or None."""
        wanted = set(clique)
        holders = [i for i, c in enumerate(self.cliques) if wanted <= set(c)]
        return min(holders, key=lambda i: self.domain.size(self.cliques[i]), default=None)
