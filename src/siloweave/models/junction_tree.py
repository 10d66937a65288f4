"""Junction trees: which cliques a set of marginals needs, and how they hang together.

Cliques are kept as bit masks while the graph is triangulated, because AIM asks for the size of a
few hundred candidate trees every round. The elimination order is greedy on the size of the clique
that it creates (the "min-weight" rule of Koller & Friedman 2009, section 9.4.3), ties broken by
the order of the domain, so that the same cliques always give the same tree.

Sum-product message passing on a junction tree, without compilation and without logarithms.

mbi's oracle compiles anew for every clique set; AIM makes a new clique set every round. Here a
plan of reshapes is laid out once per tree (a millisecond), and an iteration is then a sequence of
NumPy products and sums into buffers that are kept. Potentials are exponentiated where they are
small, in their own scope, after their maximum is taken out; messages are normalised, so a table
underflows only in cells of negligible probability. Where it could take more of a table, because
potentials contradict each other by hundreds, both passes are done again in logarithms.

Inside this module the attributes are ordered by size, largest last, because NumPy's inner loop
runs over the last axis; `Propagation.table` and `Propagation.inner` translate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from siloweave.tables.codes import Clique, Domain


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


Array = npt.NDArray[np.float64]
_SMALL = 1024  # cells
_TINY = 1e-50  # a table whose sum is below may have lost cells that matter
_LOWEST = float(np.finfo(np.float64).min)  # stands in for the logarithm of nought as a maximum


def inner_order(domain: Domain, clique: Clique) -> Clique:
    """The attributes of a clique, smallest first; ties in domain order."""
    return tuple(sorted(clique, key=lambda a: (domain.size_of(a), domain.names.index(a))))


def _groups(shape: Sequence[int], kept: Sequence[bool]) -> list[tuple[int, bool]]:
    """Merge neighbouring axes that share their fate: [(length, kept), ...]."""
    merged: list[tuple[int, bool]] = []
    for length, keep in zip(shape, kept, strict=True):
        if merged and merged[-1][1] == keep:
            merged[-1] = (merged[-1][0] * length, keep)
        else:
            merged.append((length, keep))
    return merged


def _sum_middle(a: int, k: int, b: int) -> Callable[[Array], Array]:
    ones = np.ones(k)
    if b == 1:
        return lambda x: x.reshape(a, k) @ ones
    if k >= 8:
        return lambda x: np.matmul(ones, x.reshape(a, k, b))
    return lambda x: np.einsum("akb->ab", x.reshape(a, k, b))


def _reducer(shape: Sequence[int], kept: Sequence[bool]) -> Callable[[Array], Array]:
    """A function that sums the axes which are not kept, longest run first; its result is flat."""
    groups = _groups(shape, kept)
    steps: list[Callable[[Array], Array]] = []
    while any(not keep for _, keep in groups):
        at = max((i for i, g in enumerate(groups) if not g[1]), key=lambda i: groups[i][0])
        before = int(np.prod([g[0] for g in groups[:at]], dtype=np.int64))
        after = int(np.prod([g[0] for g in groups[at + 1 :]], dtype=np.int64))
        steps.append(_sum_middle(before, groups[at][0], after))
        groups = [g for i, g in enumerate(groups) if i != at]

    def reduce(x: Array) -> Array:
        for step in steps:
            x = step(x)
        return x.reshape(-1)

    return reduce


class Link:
    """How a clique's table meets the table of one of its subsets: multiply in, sum out.

    Tables are flat, attributes in inner order.
    """

    def __init__(self, domain: Domain, clique: Clique, subset: Clique) -> None:
        shape = [domain.size_of(a) for a in clique]
        kept = [a in subset for a in clique]
        groups = _groups(shape, kept)
        self._full = tuple(length for length, _ in groups)
        self._thin = tuple(length if keep else 1 for length, keep in groups)
        self._gone = tuple(i for i, (_, keep) in enumerate(groups) if not keep)
        self.reduce = _reducer(shape, kept)
        """Sum the clique's table down to the subset's."""

    @classmethod
    def between(cls, domain: Domain, clique: Clique, subset: Clique) -> Link:
        """The link, laid out once for small cliques: they come back round after round."""
        make = _small_link if domain.size(clique) <= _SMALL else cls
        return make(domain, clique, subset)

    def multiply(self, table: Array, factor: Array) -> None:
        """table *= factor, in place; both flat."""
        view = table.reshape(self._full)
        np.multiply(view, factor.reshape(self._thin), out=view)

    def log_multiply(self, table: Array, factor: Array) -> None:
        """The same for logarithms: table += factor."""
        view = table.reshape(self._full)
        np.add(view, factor.reshape(self._thin), out=view)

    def log_reduce(self, table: Array) -> Array:
        """Logarithms of what `reduce` sums, from the table's logarithms."""
        view = table.reshape(self._full)
        top = np.maximum(view.max(axis=self._gone, keepdims=True), _LOWEST)
        sums: Array = np.log(self.reduce(np.exp(view - top).reshape(-1)))
        sums += top.reshape(-1)
        return sums


@lru_cache(maxsize=4096)
def _small_link(domain: Domain, clique: Clique, subset: Clique) -> Link:
    return Link(domain, clique, subset)


@dataclass(frozen=True)
class Calibrated:
    """Probabilities after message passing: `beliefs` per clique, `scopes` per potential (flat)."""

    beliefs: list[Array]
    scopes: list[Array]
    log_z: float


class Propagation:
    """A plan for message passing on one tree with potentials on given scopes.

    Args:
        tree: The junction tree.
        scopes: Cliques that carry a potential; each lies inside a clique of the tree.

    Attributes:
        up: Per clique, its link to the separator towards its parent.
        down: Per clique, its parent's link to the same separator (meaningless at the root).
        links: Per scope, the link from the clique that holds it.
        homed: Per clique, the scopes that it holds.
    """

    def __init__(self, tree: JunctionTree, scopes: Sequence[Clique]) -> None:
        domain = tree.domain
        self.tree = tree
        self.scopes = tuple(scopes)
        self.cliques = [inner_order(domain, c) for c in tree.cliques]
        self._buffers = [np.empty(domain.size(c)) for c in tree.cliques]
        self.up = [
            Link.between(domain, c, s) for c, s in zip(self.cliques, tree.separators, strict=True)
        ]
        self.down = [
            Link.between(domain, self.cliques[max(p, 0)], s)
            for p, s in zip(tree.parents, tree.separators, strict=True)
        ]
        self._homes = [_home(tree, s) for s in scopes]
        self.homed: list[list[int]] = [[] for _ in tree.cliques]
        for q, home in enumerate(self._homes):
            self.homed[home].append(q)
        self.links = [
            Link.between(domain, self.cliques[h], s)
            for h, s in zip(self._homes, scopes, strict=True)
        ]

    def inner(self, i: int, table: Array) -> Array:
        """Flat inner table of scope `i` from a table whose axes are in domain order."""
        scope = self.scopes[i]
        axes = [scope.index(a) for a in inner_order(self.tree.domain, scope)]
        return np.ascontiguousarray(np.transpose(table, axes)).reshape(-1)

    def table(self, clique: Clique, flat: Array) -> Array:
        """Table with axes in domain order from a flat inner table of `clique`."""
        order = inner_order(self.tree.domain, clique)
        shaped = flat.reshape([self.tree.domain.size_of(a) for a in order])
        return np.transpose(shaped, [order.index(a) for a in clique])

    def run(self, potentials: Sequence[Array], *, keep: bool = False) -> Calibrated:
        """Pass messages up and down.

        Args:
            potentials: Logarithms, one flat inner table per scope.
            keep: Copy the beliefs; without it they are views of buffers that the next run
                overwrites.

        Returns:
            Probabilities (each table sums to 1) and the logarithm of the normaliser.

        Raises:
            FloatingPointError: if no cell is possible, or a potential is not a number.
        """
        if (collected := self._collect(potentials)) is None:
            log_z = self._in_logarithms(potentials)
        else:
            log_z, messages = collected
            self._distribute(messages)
        scopes = [
            link.reduce(self._buffers[home])
            for home, link in zip(self._homes, self.links, strict=True)
        ]
        beliefs = [b.copy() for b in self._buffers] if keep else self._buffers
        return Calibrated(beliefs, scopes, log_z)

    def _collect(self, potentials: Sequence[Array]) -> tuple[float, list[Array]] | None:
        """The pass upwards: log_z and a message per clique; None if a table underflowed."""
        log_z = 0.0
        tables = self._buffers
        started = [False] * len(tables)
        for home, link, theta in zip(self._homes, self.links, potentials, strict=True):
            top = float(theta.max())
            log_z += top
            factor = np.exp(theta - top)
            if not started[home]:
                tables[home].fill(1.0)
                started[home] = True
            link.multiply(tables[home], factor)
        for home, begun in enumerate(started):
            if not begun:
                tables[home].fill(1.0)
        messages: list[Array] = [np.empty(0)] * len(tables)
        for i in range(len(tables) - 1, -1, -1):
            message = self.up[i].reduce(tables[i])
            scale = float(message.sum())
            if not _TINY < scale < np.inf:
                return None
            log_z += float(np.log(scale))
            messages[i] = message / scale
            tables[i] *= 1.0 / scale
            if i:
                self.down[i].multiply(tables[self.tree.parents[i]], messages[i])
        return log_z, messages

    def _distribute(self, messages: list[Array]) -> None:
        for i in range(1, len(self._buffers)):
            wanted = self.down[i].reduce(self._buffers[self.tree.parents[i]])
            ratio = np.divide(wanted, messages[i], out=np.zeros_like(wanted), where=wanted > 0)
            self.up[i].multiply(self._buffers[i], ratio)

    @np.errstate(divide="ignore")
    def _in_logarithms(self, potentials: Sequence[Array]) -> float:
        """Both passes with nothing exponentiated before its scale is known; returns log_z."""
        tables = [np.zeros(b.size) for b in self._buffers]
        for home, link, theta in zip(self._homes, self.links, potentials, strict=True):
            link.log_multiply(tables[home], theta)
        messages: list[Array] = [np.empty(0)] * len(tables)
        for i in range(len(tables) - 1, -1, -1):
            messages[i] = self.up[i].log_reduce(tables[i])
            if i:
                self.down[i].log_multiply(tables[self.tree.parents[i]], messages[i])
        log_z = float(messages[0][0])
        if not np.isfinite(log_z):
            raise FloatingPointError("potentials that leave no cell possible, or are not numbers")
        for i in range(1, len(tables)):
            wanted = self.down[i].log_reduce(tables[self.tree.parents[i]])
            known = np.isfinite(messages[i])
            ratio = np.subtract(wanted, messages[i], out=np.zeros_like(wanted), where=known)
            self.up[i].log_multiply(tables[i], ratio)
        for table, buffer in zip(tables, self._buffers, strict=True):
            np.exp(table - log_z, out=buffer)
        return log_z


def _home(tree: JunctionTree, scope: Clique) -> int:
    home = tree.home(scope)
    if home is None:
        raise ValueError(f"scope {scope} lies in no clique of the tree; build the tree with it")
    return home
