"""Junction trees, and sum-product message passing on them.

Which cliques a set of marginals needs: cliques are bit masks while the graph is triangulated,
because AIM needs the sizes of a few hundred candidate trees every round. The elimination order is
greedy on the size of the clique that it creates (the "min-weight" rule of Koller & Friedman 2009,
section 9.4.3), ties broken by the order of the domain, so the same cliques always give the same
tree.

Message passing needs no compilation: mbi's oracle compiles anew for every clique set, and AIM makes
a new one every round. Here a plan of reshapes is laid out once per tree (a millisecond), and a pass
is a sequence of NumPy products and sums. Potentials are exponentiated where they are small, in
their own scope, after their maximum is subtracted, and messages are normalised, so a table
underflows only in cells of negligible probability. Where it could lose more, because potentials
contradict each other by hundreds, both passes are repeated in logarithms. A large clique also gets
small ones inside it, which hold its potentials, so that its own table is seldom passed over.

Tables of a plan are flat, their attributes ordered by size with the largest last, because NumPy's
inner loop runs over the last axis; `Propagation.table` and `Propagation.inner` convert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from siloweave.models.threads import each
from siloweave.tables.arrays import Bools, Floats
from siloweave.tables.codes import Clique, Domain

Array = Floats
_Words = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.intp]


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


def _log_sizes(domain: Domain) -> list[float]:
    """Logarithms in steps of 2^-30, so that their sums are exact in whatever order."""
    steps: list[float] = (np.rint(np.log(domain.sizes) * 2.0**30) / 2.0**30).tolist()
    return steps


@lru_cache(maxsize=256)
def _triangulated(domain: Domain, cliques: frozenset[Clique]) -> tuple[int, ...]:
    """Masks of the maximal cliques of a triangulation."""
    position = {name: i for i, name in enumerate(domain.names)}
    neighbours = [0] * len(domain.names)
    for clique in cliques:
        mask = sum(1 << position[name] for name in clique)
        for name in clique:
            neighbours[position[name]] |= mask & ~(1 << position[name])
    kept: list[int] = []
    met = set(_eliminate(neighbours, _log_sizes(domain)))
    for mask in sorted(met, key=lambda m: (-m.bit_count(), m)):
        if not any(mask & other == mask for other in kept):
            kept.append(mask)
    return tuple(kept)


def _names(domain: Domain, mask: int) -> Clique:
    return tuple(domain.names[v] for v in _bits(mask))


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
    return [_names(domain, mask) for mask in _triangulated(domain, frozenset(cliques))]


def tree_cells(domain: Domain, cliques: Iterable[Clique]) -> int:
    """Total number of cells over the maximal cliques of a triangulation (8 bytes each)."""
    masks = _triangulated(domain, frozenset(cliques))
    return sum(prod(domain.sizes[v] for v in _bits(mask)) for mask in masks)


def cells_in(megabytes: float) -> float:
    """How many cells take so much memory, of 8 bytes each."""
    return megabytes * 1e6 / 8


def inside(domain: Domain, cliques: Iterable[Clique], more: Sequence[Clique]) -> Bools:
    """Whether each of some sets lies in one of the `maximal_cliques` of others, (len(more),)."""
    masks, width = _Masks(domain), 8 * -(-len(domain.names) // 64)
    held = b"".join(m.to_bytes(width, "little") for m in _triangulated(domain, frozenset(cliques)))
    wanted = masks.sets(masks.places(more))[:, None]
    missing = wanted & ~np.frombuffer(held, np.uint64).reshape(-1, wanted.shape[-1])
    return np.asarray((missing == 0).all(axis=-1).any(axis=1))


def many_tree_cells(domain: Domain, cliques: Iterable[Clique], more: Sequence[Clique]) -> Floats:
    """`tree_cells` of some cliques with one more, for each of many, (len(more),).

    All graphs are triangulated at once, by the same rule. Until an attribute of the one more is
    eliminated, a graph has the steps of the graph without it, as only these attributes weigh more.
    """
    masks, found = _Masks(domain), [np.empty(0)]
    base = np.zeros_like(masks.bits)
    places = masks.places(list(cliques))
    for v in places.T:
        np.bitwise_or.at(base, v, masks.sets(places) & ~masks.bits[v])
    for start in range(0, len(more), _GRAPHS):
        found.append(_cells_with(masks, base, masks.places(more[start : start + _GRAPHS])))
    return np.concatenate(found)


class _Masks:
    """Sets of attributes as rows of 64-bit words, and what is added over each."""

    def __init__(self, domain: Domain) -> None:
        self.positions = domain.positions
        self.log_sizes = np.asarray(_log_sizes(domain))
        width = 8 * -(-len(domain.names) // 64)
        bits = np.zeros((len(domain.names), width), np.uint8)
        self._sums, self._products = np.zeros((width, 256)), np.ones((width, 256))
        for v, size in enumerate(domain.sizes):
            bits[v, v // 8] = 1 << v % 8
            held = np.arange(256) >> v % 8 & 1 == 1
            self._sums[v // 8, held] += self.log_sizes[v]
            self._products[v // 8, held] *= size
        self.bits = bits.view(np.uint64)

    def places(self, cliques: Sequence[Clique]) -> _Places:
        """Positions of the attributes, a row for each clique; short ones repeat their last."""
        most = max(map(len, cliques), default=0)
        named = [[*q, *q[-1:] * (most - len(q))] for q in cliques]
        found = np.asarray([[self.positions[a] for a in q] for q in named], np.intp)
        return found.reshape(len(cliques), most)

    def sets(self, places: _Places) -> _Words:
        """The attributes of each row of `places` as a set."""
        return np.asarray(np.bitwise_or.reduce(self.bits[places], axis=1))

    def join(self, graphs: _Words, places: _Places) -> None:
        """Link the attributes of a row of `places` to each other, each in its own graph."""
        rows, around = np.arange(len(graphs)), self.sets(places)
        for v in places.T:
            graphs[rows, v] |= around & ~self.bits[v]

    def sums(self, sets: _Words) -> Array:
        """Logarithms of sizes, added over each set."""
        return np.asarray(self._looked_up(self._sums, sets).sum(axis=-1))

    def products(self, sets: _Words) -> Array:
        """Sizes, multiplied over each set."""
        return np.asarray(self._looked_up(self._products, sets).prod(axis=-1))

    def _looked_up(self, values: Array, sets: _Words) -> Array:
        places = sets.view(np.uint8) + 256 * np.arange(len(values))
        return values.reshape(-1).take(places)


def _cells_with(masks: _Masks, base: _Words, places: _Places) -> Array:
    """Cells of the maximal cliques of a graph's triangulation, with each row of `places` linked."""
    number, count = len(base), 1 + len(places)  # the first graph has nothing more
    graphs, weights = np.empty((count, *base.shape), np.uint64), np.empty((count, number))
    graphs[0], weights[0] = base, masks.sums(base | masks.bits)
    met = np.zeros((number, count, base.shape[1]), np.uint64)
    left, order = np.ones(len(places), np.bool_), np.empty(count - 1, np.intp)
    begun = 1
    for step in range(number):
        new = np.flatnonzero(left & (places == weights[0].argmin()).any(axis=1))
        if len(new):
            left[new], end = False, begun + len(new)
            order[begun - 1 : end - 1] = new
            graphs[begun:end], weights[begun:end] = graphs[0], weights[0]
            met[:step, begun:end] = met[:step, :1]
            masks.join(graphs[begun:end], places[new])
            for own in places[new].T:
                at = np.arange(begun, end), own
                weights[at] = masks.sums(graphs[at] | masks.bits[own])
            begun = end
        rows = np.arange(begun)
        v = weights[:begun].argmin(axis=1)
        around = graphs[rows, v]
        met[step, :begun] = around | masks.bits[v]
        weights[rows, v] = np.inf
        linked = np.unpackbits(around.view(np.uint8), bitorder="little").view(np.bool_)
        graph, u = np.divmod(np.flatnonzero(linked), 64 * base.shape[1])
        before = graphs[graph, u]
        joined = (before | around[graph]) & ~masks.bits[u]
        graphs[graph, u] = joined & ~masks.bits[v[graph]]
        more = joined & ~before
        weights[graph, u] += masks.sums(more) - masks.log_sizes[v[graph]]
    within = np.zeros((number, count), np.bool_)
    for step in range(1, number):  # a clique lies in another if in one that was met before
        within[step] = (met[step] & ~met[:step] == 0).all(axis=-1).any(axis=0)
    total, found = np.where(within, 0.0, masks.products(met)).sum(axis=0), np.empty(len(places))
    found[order] = total[1:]
    return found


@dataclass(frozen=True)
class JunctionTree:
    """A rooted forest of cliques with the running intersection property."""

    domain: Domain  # the attributes and their sizes
    cliques: tuple[Clique, ...]  # maximal cliques, every parent before its children
    parents: tuple[int, ...]  # index of each clique's parent, -1 at the root
    separators: tuple[Clique, ...]  # shared with the parent; empty at the root and across gaps

    @classmethod
    def build(cls, domain: Domain, cliques: Iterable[Clique]) -> JunctionTree:
        """Triangulate, then join the maximal cliques by a heaviest spanning tree (Prim)."""
        masks = _triangulated(domain, frozenset(cliques))
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
        found, separators = (
            tuple(_names(domain, mask) for mask in masks) for masks in (ordered, shared)
        )
        return cls(domain, found, tuple(parents), separators)

    @property
    def cells(self) -> int:
        """Number of cells over all cliques; a table of float64 takes 8 bytes each."""
        return sum(self.domain.size(clique) for clique in self.cliques)

    def home(self, clique: Clique) -> int | None:
        """Index of the smallest clique of the tree that holds `clique`, or None."""
        wanted = set(clique)
        holders = [i for i, members in enumerate(self._members) if wanted <= members]
        return min(holders, key=lambda i: self.domain.size(self.cliques[i]), default=None)

    @cached_property
    def _members(self) -> list[frozenset[str]]:
        return [frozenset(clique) for clique in self.cliques]

    def home_of(self, scope: Clique) -> int:
        """`home`, where there must be one."""
        home = self.home(scope)
        if home is None:
            raise ValueError(f"scope {scope} lies in no clique of the tree; build the tree with it")
        return home


_SMALL = 1024  # cells
_LARGE = 8192  # cells
_GRAPHS = 1024  # triangulated at once
_SHARED = 1 << 17  # cells of a table that threads share: smaller ones take less than 0.1 ms
_PIECES = 4  # of such a table
_LINE = 8  # cells in a line of a processor's cache
_ALIGNED = 16  # rows: BLAS adds those that are left over in another order
_TINY = 1e-50  # a table whose sum is below may have lost cells that matter
_LOWEST = float(np.finfo(np.float64).min)  # stands in for the logarithm of 0 as a maximum


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


def _reducer(groups: Sequence[tuple[int, bool]]) -> Callable[[Array], Array]:
    """A function that sums the axes which are not kept, longest run first; its result is flat."""
    left, steps = list(groups), list[Callable[[Array], Array]]()
    while any(not keep for _, keep in left):
        at = max((i for i, g in enumerate(left) if not g[1]), key=lambda i: left[i][0])
        before, after = (prod(length for length, _ in part) for part in (left[:at], left[at + 1 :]))
        steps.append(_sum_middle(before, left.pop(at)[0], after))
    if not steps:
        return np.copy  # never a view: what is summed goes on changing

    def reduce(x: Array) -> Array:
        for step in steps:
            x = step(x)
        return x.reshape(-1)

    return reduce


_Piece: TypeAlias = "tuple[slice[int | None, int | None, None], ...]"
"""An index of some consecutive places of one axis, after whole axes."""


def _pieces(shape: Sequence[int]) -> list[_Piece]:
    """Parts of a large table that threads take, nearly alike; one where it is small.

    There are as many however many threads there are.
    """
    if prod(shape) < _SHARED:
        return [()]
    # The first axis that can be divided alike: its parts have the longest rows.
    long = [i for i, length in enumerate(shape) if length >= 4 * _PIECES or length % _PIECES == 0]
    axis = long[0] if long else max(range(len(shape)), key=shape.__getitem__)
    count = min(_PIECES, shape[axis])
    ends = [shape[axis] * i // count for i in range(count + 1)]
    before = (slice(None),) * axis
    return [(*before, slice(*part)) for part in pairwise(ends)]


def _reducer_of_pieces(groups: Sequence[tuple[int, bool]]) -> Callable[[Array], Array]:
    """`_reducer`, with parts of a large table summed by several threads, each sum by one."""
    shape = [length for length, _ in groups]
    whole = _reducer(groups)
    if prod(shape) < _SHARED or all(keep for _, keep in groups):
        return whole
    (first, is_kept), *rest = groups
    if is_kept and first >= _PIECES * _ALIGNED:
        bounds = [first * i // _PIECES // _ALIGNED * _ALIGNED for i in range(_PIECES)] + [first]
        parts = list(pairwise(bounds))
        reducers = {end - start: _reducer([(end - start, True), *rest]) for start, end in parts}

        def reduce_rows(x: Array) -> Array:
            rows = x.reshape(first, -1)
            sums = each(lambda p: reducers[p[1] - p[0]](rows[p[0] : p[1]].reshape(-1)), parts)
            return np.concatenate(sums)

        return reduce_rows
    return whole


class Link:
    """How a clique's flat table meets that of one of its subsets: multiply in, sum out."""

    def __init__(self, domain: Domain, clique: Clique, subset: Clique) -> None:
        groups = _groups([domain.size_of(a) for a in clique], [a in subset for a in clique])
        self._full = tuple(length for length, _ in groups)
        self._thin = tuple(length if keep else 1 for length, keep in groups)
        self._gone = tuple(i for i, (_, keep) in enumerate(groups) if not keep)
        self._pieces = _pieces(self._full)
        self.reduce = _reducer_of_pieces(groups)
        """Sum the clique's table down to the subset's."""

    @classmethod
    def between(cls, domain: Domain, clique: Clique, subset: Clique) -> Link:
        """The link, laid out once for small cliques, which recur round after round."""
        make = _small_link if domain.size(clique) <= _SMALL else cls
        return make(domain, clique, subset)

    def multiply(self, table: Array, factor: Array) -> None:
        """table *= factor, in place; both flat."""
        view, thin = table.reshape(self._full), factor.reshape(self._thin)
        if len(self._pieces) < 2:
            np.multiply(view, thin, out=view)
            return
        axis = len(self._pieces[0]) - 1

        def multiplied(piece: _Piece) -> None:
            part = thin[piece] if self._thin[axis] > 1 else thin
            np.multiply(view[piece], part, out=view[piece])

        each(multiplied, self._pieces)

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


_small_link = lru_cache(maxsize=4096)(Link)


def _inner_cliques(
    domain: Domain, clique: Clique, parts: Mapping[int, Clique]
) -> Iterator[tuple[Clique, list[int]]]:
    """Sets inside a large clique, each with two or more of its parts, by their keys.

    The large table is then passed over once for each set, not for each part. A part joins the set
    that stays smallest with it; none has more than an eighth of the clique's cells.
    """
    room, found = domain.size(clique) / 8, dict[Clique, list[int]]()
    for q, part in parts.items():
        joined = {domain.canonical((*c, *part)): c for c in found}
        best = min((c for c in joined if domain.size(c) <= room), key=domain.size, default=part)
        if domain.size(best) <= room:
            held = found.pop(joined[best], []) if best in joined else []
            found[best] = [*found.get(best, []), *held, q]
    yield from ((inner, held) for inner, held in found.items() if len(held) > 1)


class Propagation:
    """A plan for message passing on one tree with potentials on scopes, each inside a clique."""

    def __init__(self, tree: JunctionTree, scopes: Sequence[Clique]) -> None:
        domain = tree.domain
        self.tree = tree
        self.scopes = tuple(scopes)
        self.cliques = [inner_order(domain, c) for c in tree.cliques]  # then those inside them
        parts = [*scopes, *tree.separators]  # what the table of a clique is summed to
        holders = [*map(tree.home_of, scopes), *tree.parents]  # and which clique that is
        for i, clique in enumerate(self.cliques):  # also over the cliques that it appends
            if domain.size(clique) >= _LARGE:
                own = [q for q, holder in enumerate(holders) if holder == i]
                for inner, held in _inner_cliques(domain, clique, {q: parts[q] for q in own}):
                    for q in held:
                        holders[q] = len(self.cliques)
                    self.cliques.append(inner_order(domain, inner))
                    parts.append(inner)
                    holders.append(i)
        links = [
            Link.between(domain, self.cliques[max(holder, 0)], part)
            for holder, part in zip(holders, parts, strict=True)
        ]
        self.links = links[: len(scopes)]
        """Per scope, the link from the clique that holds it."""
        self.down = links[len(scopes) :]
        """Per clique, its parent's link to what they share; meaningless at the root."""
        self.up = [
            Link.between(domain, c, s)
            for c, s in zip(self.cliques, parts[len(scopes) :], strict=True)
        ]
        """Per clique, its own link to what it shares with its parent."""
        self._homes, self.parents = holders[: len(scopes)], holders[len(scopes) :]
        self.homed: list[list[int]] = [[] for _ in self.cliques]
        """Scopes that each clique holds."""
        for q, home in enumerate(self._homes):
            self.homed[home].append(q)
        self.children: list[list[int]] = [[] for _ in self.cliques]
        for i, parent in enumerate(self.parents[1:], start=1):
            self.children[parent].append(i)
        self._order = [0]
        for i in self._order:
            self._order += self.children[i]

    @classmethod
    @lru_cache(maxsize=2)
    def over(cls, domain: Domain, scopes: tuple[Clique, ...]) -> Propagation:
        """The plan on the tree of the scopes; laid out once where a model is fitted and asked."""
        return cls(JunctionTree.build(domain, scopes), scopes)

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

    def run(self, potentials: Sequence[Array]) -> list[Array]:
        """Pass messages up and down: from logarithms of potentials to probabilities of the cliques.

        Both are flat inner tables, one per scope, and one per clique that sums to 1. Raises
        FloatingPointError if no cell is possible, or a potential is not a number.
        """
        tables = self._tables(1.0)
        messages = self._collect(tables, potentials)
        if messages is None:
            return self._in_logarithms(potentials)
        for i in self._order[1:]:
            wanted = self.down[i].reduce(tables[self.parents[i]])
            ratio = np.divide(wanted, messages[i], out=np.zeros_like(wanted), where=wanted > 0)
            self.up[i].multiply(tables[i], ratio)
        return tables

    def _tables(self, cell: float) -> list[Array]:
        """Return a flat table for each clique, parts of one array, with the same number in each.

        An array that is so large goes back to the system as a whole once no part of it is used.
        """
        lengths = [self.tree.domain.size(clique) for clique in self.cliques]
        aligned = [-(-length // _LINE) * _LINE for length in lengths]
        starts = [0, *accumulate(aligned)]
        cells = np.full(starts[-1], cell)
        return [cells[s : s + n] for s, n in zip(starts, lengths, strict=False)]

    def _collect(self, tables: list[Array], potentials: Sequence[Array]) -> list[Array] | None:
        """The pass upwards: a message per clique; None if a table underflowed."""
        for home, link, theta in zip(self._homes, self.links, potentials, strict=True):
            link.multiply(tables[home], np.exp(theta - float(theta.max())))
        messages: list[Array] = [np.empty(0)] * len(tables)
        for i in reversed(self._order):
            message = self.up[i].reduce(tables[i])
            scale = float(message.sum())
            if not _TINY < scale < np.inf:
                return None
            messages[i] = message / scale
            tables[i] *= 1.0 / scale
            if i:
                self.down[i].multiply(tables[self.parents[i]], messages[i])
        return messages

    @np.errstate(divide="ignore")
    def _in_logarithms(self, potentials: Sequence[Array]) -> list[Array]:
        """`run`, with nothing exponentiated before its scale is known."""
        tables = self._tables(0.0)
        for home, link, theta in zip(self._homes, self.links, potentials, strict=True):
            link.log_multiply(tables[home], theta)
        messages: list[Array] = [np.empty(0)] * len(tables)
        for i in reversed(self._order):
            messages[i] = self.up[i].log_reduce(tables[i])
            if i:
                self.down[i].log_multiply(tables[self.parents[i]], messages[i])
        log_z = float(messages[0][0])
        if not np.isfinite(log_z):
            raise FloatingPointError("potentials that leave no cell possible, or are not numbers")
        for i in self._order[1:]:
            wanted = self.down[i].log_reduce(tables[self.parents[i]])
            known = np.isfinite(messages[i])
            ratio = np.subtract(wanted, messages[i], out=np.zeros_like(wanted), where=known)
            self.up[i].log_multiply(tables[i], ratio)
        return [np.exp(table - log_z) for table in tables]
