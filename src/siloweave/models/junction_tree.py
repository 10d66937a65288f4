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
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from siloweave.models.threads import each
from siloweave.tables.arrays import Bools, Floats
from siloweave.tables.codes import Clique, Domain

Array = Floats
_Words = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.intp]

# In triangulations, v and u are places of attributes in the domain.


def _bits(mask: int) -> list[int]:
    """Return the positions of the bits that are set in a mask, the lowest first."""
    places = []
    while mask:
        lowest = mask & -mask
        places.append(lowest.bit_length() - 1)
        mask ^= lowest
    return places


def _eliminate(neighbours: list[int], log_sizes: Sequence[float]) -> list[int]:
    """Eliminate attributes greedily, and return the cliques met as masks; consumes `neighbours`."""

    def weight(v: int) -> float:
        return log_sizes[v] + sum(log_sizes[u] for u in _bits(neighbours[v]))

    remaining = set(range(len(neighbours)))
    weights = [weight(v) for v in remaining]
    cliques = []
    while remaining:
        v = min(remaining, key=lambda u: (weights[u], u))
        around = neighbours[v]
        cliques.append(around | 1 << v)
        remaining.remove(v)
        # Link the neighbours of v to each other, and none to v or itself.
        for u in _bits(around):
            neighbours[u] = (neighbours[u] | around) & ~(1 << u | 1 << v)
        # Only now: the weight of u needs all its new neighbours.
        for u in _bits(around):
            weights[u] = weight(u)
    return cliques


def _log_sizes(domain: Domain) -> list[float]:
    """Return the logarithms of sizes in steps of 2^-30, so that sums are exact in any order."""
    steps = np.rint(np.log(domain.sizes) * 2.0**30)
    log_sizes: list[float] = (steps / 2.0**30).tolist()
    return log_sizes


@lru_cache(maxsize=256)
def _triangulated(domain: Domain, cliques: frozenset[Clique]) -> tuple[int, ...]:
    """Triangulate the graph of some cliques; return its maximal cliques as masks."""
    position = {name: i for i, name in enumerate(domain.names)}
    neighbours = [0] * len(domain.names)
    for clique in cliques:
        mask = sum(1 << position[name] for name in clique)
        for name in clique:
            neighbours[position[name]] |= mask & ~(1 << position[name])

    # Larger cliques come first, so one that lies in another meets it in `maximal`.
    masks = set(_eliminate(neighbours, _log_sizes(domain)))
    maximal: list[int] = []
    for mask in sorted(masks, key=lambda m: (-m.bit_count(), m)):
        if not any(mask & larger == mask for larger in maximal):
            maximal.append(mask)
    return tuple(maximal)


def _names(domain: Domain, mask: int) -> Clique:
    return tuple(domain.names[v] for v in _bits(mask))


def maximal_cliques(domain: Domain, cliques: Iterable[Clique]) -> list[Clique]:
    """Return the maximal cliques of a triangulation of the graph that joins each clique.

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
    masks = _triangulated(domain, frozenset(cliques))
    return [_names(domain, mask) for mask in masks]


def tree_cells(domain: Domain, cliques: Iterable[Clique]) -> int:
    """Count the cells of the maximal cliques of a triangulation (8 bytes each)."""
    masks = _triangulated(domain, frozenset(cliques))
    cells = 0
    for mask in masks:
        cells += prod(domain.sizes[v] for v in _bits(mask))
    return cells


def cells_in(megabytes: float) -> float:
    """Return the number of cells, of 8 bytes each, that fit into so many megabytes."""
    return megabytes * 1e6 / 8


def inside(domain: Domain, cliques: Iterable[Clique], more: Sequence[Clique]) -> Bools:
    """Return whether each of `more` lies in one of the cliques of others' triangulation.

    That is one of `maximal_cliques`; the result is (len(more),).
    """
    masks = _Masks(domain)
    num_bytes = 8 * _words_for(domain)
    maximal = _triangulated(domain, frozenset(cliques))
    joined = b"".join(mask.to_bytes(num_bytes, "little") for mask in maximal)
    wanted = masks.sets(masks.places(more))[:, None]
    holders = np.frombuffer(joined, np.uint64).reshape(-1, wanted.shape[-1])
    missing = wanted & ~holders
    return np.asarray((missing == 0).all(axis=-1).any(axis=1))


def many_tree_cells(
    domain: Domain, cliques: Iterable[Clique], more: Sequence[Clique]
) -> Floats:
    """Return the `tree_cells` of some cliques with each of many added alone, (len(more),).

    All graphs are triangulated at once, by the same rule. Until an attribute of the one more is
    eliminated, a graph has the steps of the graph without it, as only these attributes weigh more.
    """
    masks = _Masks(domain)
    base = np.zeros_like(masks.bits)
    places = masks.places(list(cliques))
    for v in places.T:
        np.bitwise_or.at(base, v, masks.sets(places) & ~masks.bits[v])

    cells = [np.empty(0)]
    for start in range(0, len(more), _GRAPHS):
        some = masks.places(more[start : start + _GRAPHS])
        cells.append(_cells_with(masks, base, some))
    return np.concatenate(cells)


def _words_for(domain: Domain) -> int:
    """Return how many 64-bit words hold one bit for each attribute."""
    return -(-len(domain.names) // 64)


class _Masks:
    """Sets of attributes as rows of 64-bit words, with sums and products of sizes over each."""

    def __init__(self, domain: Domain) -> None:
        self.positions = domain.positions
        self.log_sizes = np.asarray(_log_sizes(domain))
        num_bytes = 8 * _words_for(domain)
        bits = np.zeros((len(domain.names), num_bytes), np.uint8)
        # What each of the 256 values of each byte of a set adds to a sum, or a product.
        self._sums = np.zeros((num_bytes, 256))
        self._products = np.ones((num_bytes, 256))
        for v, size in enumerate(domain.sizes):
            byte = v // 8
            bit = v % 8
            bits[v, byte] = 1 << bit
            has_bit = np.arange(256) >> bit & 1 == 1
            self._sums[byte, has_bit] += self.log_sizes[v]
            self._products[byte, has_bit] *= size
        self.bits = bits.view(np.uint64)

    def places(self, cliques: Sequence[Clique]) -> _Places:
        """Return the attributes' positions, a row per clique; a short row repeats its last."""
        longest = max(map(len, cliques), default=0)
        places = []
        for clique in cliques:
            missing = longest - len(clique)
            padded = (*clique, *clique[-1:] * missing)
            places.append([self.positions[a] for a in padded])
        return np.asarray(places, np.intp).reshape(len(cliques), longest)

    def sets(self, places: _Places) -> _Words:
        """Return the attributes of each row of `places` as a set."""
        return np.asarray(np.bitwise_or.reduce(self.bits[places], axis=1))

    def join(self, graphs: _Words, places: _Places) -> None:
        """Link all attributes in each row of `places` to each other, in the graph of that row."""
        rows = np.arange(len(graphs))
        around = self.sets(places)
        for v in places.T:
            graphs[rows, v] |= around & ~self.bits[v]

    def sums(self, sets: _Words) -> Array:
        """Return the sum of the logarithms of sizes over each set."""
        return np.asarray(self._per_byte(self._sums, sets).sum(axis=-1))

    def products(self, sets: _Words) -> Array:
        """Return the product of sizes over each set."""
        return np.asarray(self._per_byte(self._products, sets).prod(axis=-1))

    def _per_byte(self, values: Array, sets: _Words) -> Array:
        """Look up each byte of each set in a table of (bytes, 256)."""
        places = sets.view(np.uint8) + 256 * np.arange(len(values))
        return values.reshape(-1).take(places)


def _cells_with(masks: _Masks, base: _Words, places: _Places) -> Array:
    """Count the cells of a graph's maximal cliques with each row of `places` linked, in turn."""
    num_attributes = len(base)
    num_graphs = 1 + len(places)  # the first graph has nothing more
    graphs = np.empty((num_graphs, *base.shape), np.uint64)
    weights = np.empty((num_graphs, num_attributes))
    graphs[0] = base
    weights[0] = masks.sums(base | masks.bits)
    # Of each step.
    cliques = np.zeros((num_attributes, num_graphs, base.shape[1]), np.uint64)

    # A graph waits, as a copy of the first, until one of its own attributes is eliminated there.
    is_waiting = np.ones(len(places), np.bool_)
    row_of_graph = np.empty(len(places), np.intp)
    begun = 1
    for step in range(num_attributes):
        next_v = weights[0].argmin()
        rows = np.flatnonzero(is_waiting & (places == next_v).any(axis=1))
        if len(rows):
            end = begun + len(rows)
            is_waiting[rows] = False
            row_of_graph[begun - 1 : end - 1] = rows
            graphs[begun:end] = graphs[0]
            weights[begun:end] = weights[0]
            cliques[:step, begun:end] = cliques[:step, :1]
            masks.join(graphs[begun:end], places[rows])
            for linked in places[rows].T:
                index = (np.arange(begun, end), linked)
                weights[index] = masks.sums(graphs[index] | masks.bits[linked])
            begun = end
        cliques[step, :begun] = _eliminate_next(masks, graphs[:begun], weights[:begun])

    # A clique lies in another if in one that was met before.
    is_within = np.zeros((num_attributes, num_graphs), np.bool_)
    for step in range(1, num_attributes):
        missing = cliques[step] & ~cliques[:step]
        is_within[step] = (missing == 0).all(axis=-1).any(axis=0)
    totals = np.where(is_within, 0.0, masks.products(cliques)).sum(axis=0)

    cells = np.empty(len(places))
    cells[row_of_graph] = totals[1:]
    return cells


def _eliminate_next(masks: _Masks, graphs: _Words, weights: Array) -> _Words:
    """Eliminate the lightest attribute of every graph, in place, and return the cliques met."""
    rows = np.arange(len(graphs))
    v = weights.argmin(axis=1)
    around = graphs[rows, v]
    cliques: _Words = around | masks.bits[v]
    weights[rows, v] = np.inf

    # All neighbours u of all graphs at once: each is linked to the others, and no longer to v.
    bits = np.unpackbits(around.view(np.uint8), bitorder="little")
    places = np.flatnonzero(bits.view(np.bool_))
    graph, u = np.divmod(places, 64 * graphs.shape[2])
    before = graphs[graph, u]
    joined = (before | around[graph]) & ~masks.bits[u]
    graphs[graph, u] = joined & ~masks.bits[v[graph]]
    new = joined & ~before
    weights[graph, u] += masks.sums(new) - masks.log_sizes[v[graph]]
    return cliques


@dataclass(frozen=True)
class JunctionTree:
    """A rooted forest of cliques with the running intersection property."""

    domain: Domain  # the attributes and their sizes
    cliques: tuple[Clique, ...]  # maximal cliques, every parent before its children
    parents: tuple[int, ...]  # index of each clique's parent, -1 at the root
    # Shared with the parent; empty at the root and across gaps.
    separators: tuple[Clique, ...]

    @classmethod
    def build(cls, domain: Domain, cliques: Iterable[Clique]) -> JunctionTree:
        """Triangulate, then join the maximal cliques by a heaviest spanning tree (Prim)."""
        masks = _triangulated(domain, frozenset(cliques))
        order = [0]
        parents = [-1]
        # Of each clique outside the tree, the most that it shares with one inside, and with which.
        best = {i: (masks[i] & masks[0], 0) for i in range(1, len(masks))}
        while best:
            i = max(best, key=lambda j: (best[j][0].bit_count(), -j))
            _, parent = best.pop(i)
            parents.append(parent)
            order.append(i)
            for j, (largest, _) in best.items():
                shared = masks[j] & masks[i]
                if shared.bit_count() > largest.bit_count():
                    best[j] = (shared, len(order) - 1)

        ordered = [masks[i] for i in order]
        shared_masks = [0]
        for i in range(1, len(ordered)):
            shared_masks.append(ordered[i] & ordered[parents[i]])
        members = tuple(_names(domain, mask) for mask in ordered)
        separators = tuple(_names(domain, mask) for mask in shared_masks)
        return cls(domain, members, tuple(parents), separators)

    @property
    def cells(self) -> int:
        """Number of cells over all cliques; a table of float64 takes 8 bytes each."""
        return sum(self.domain.size(clique) for clique in self.cliques)

    def home(self, clique: Clique) -> int | None:
        """Return the index of the smallest clique in the tree that holds `clique`, or None."""
        wanted = set(clique)
        holders = [i for i, members in enumerate(self._members) if wanted <= members]

        def cells(i: int) -> int:
            return self.domain.size(self.cliques[i])

        return min(holders, key=cells, default=None)

    @cached_property
    def _members(self) -> list[frozenset[str]]:
        return [frozenset(clique) for clique in self.cliques]

    def home_of(self, scope: Clique) -> int:
        """Return the index of the smallest clique that holds `scope`; ValueError if none does."""
        home = self.home(scope)
        if home is None:
            raise ValueError(
                f"scope {scope} lies in no clique of the tree; build the tree with it"
            )
        return home


# Links of a clique of so many cells or fewer are laid out once.
_SMALL = 1024
# A clique of so many cells gets small ones inside it.
_LARGE = 8192
_GRAPHS = 1024  # triangulated at once
# Threads share a table of so many cells: smaller ones take less than 0.1 ms.
_SHARED = 1 << 17
_PIECES = 4  # of such a table
# Cells in a line of a processor's cache.
_LINE = 8
# Parts have a multiple of so many rows: BLAS adds those left over in another order.
_ALIGNED = 16
# A table whose sum is below may have lost cells that matter.
_TINY = 1e-50
# Stands in for the logarithm of 0 as a maximum.
_LOWEST = float(np.finfo(np.float64).min)


def inner_order(domain: Domain, clique: Clique) -> Clique:
    """Return the attributes of a clique, smallest first; ties in domain order."""

    def rank(a: str) -> tuple[int, int]:
        return domain.size_of(a), domain.names.index(a)

    return tuple(sorted(clique, key=rank))


class _Axes(NamedTuple):
    """Neighbouring axes of a table, taken as one, which are all kept or all summed over."""

    length: int  # the product of theirs
    is_kept: bool

    @property
    def broadcast_length(self) -> int:
        return self.length if self.is_kept else 1


def _merged_axes(shape: Sequence[int], are_kept: Sequence[bool]) -> list[_Axes]:
    """Merge neighbouring axes that are all kept, or all summed over."""
    merged: list[_Axes] = []
    for length, is_kept in zip(shape, are_kept, strict=True):
        if merged and merged[-1].is_kept == is_kept:
            merged[-1] = _Axes(merged[-1].length * length, is_kept)
        else:
            merged.append(_Axes(length, is_kept))
    return merged


def _sum_middle(a: int, k: int, b: int) -> Callable[[Array], Array]:
    """Return a function that sums the middle axis of tables (a, k, b) in the fastest way."""
    ones = np.ones(k)
    if b == 1:
        return lambda x: x.reshape(a, k) @ ones
    if k >= 8:
        return lambda x: np.matmul(ones, x.reshape(a, k, b))
    return lambda x: np.einsum("akb->ab", x.reshape(a, k, b))


def _reducer(axes: Sequence[_Axes]) -> Callable[[Array], Array]:
    """Return a function that sums over axes, the longest first; its result is flat."""
    remaining = list(axes)
    steps: list[Callable[[Array], Array]] = []
    while not all(part.is_kept for part in remaining):
        summed = [i for i, part in enumerate(remaining) if not part.is_kept]
        longest = max(summed, key=lambda i: remaining[i].length)
        before = prod(part.length for part in remaining[:longest])
        after = prod(part.length for part in remaining[longest + 1 :])
        steps.append(_sum_middle(before, remaining.pop(longest).length, after))
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
    """Split a large table into nearly equal parts for threads; a small one is a single part.

    There are as many however many threads there are.
    """
    if prod(shape) < _SHARED:
        return [()]

    # The first axis that can be divided alike: its parts have the longest rows.
    axis = max(range(len(shape)), key=shape.__getitem__)
    for i, length in enumerate(shape):
        if length >= 4 * _PIECES or length % _PIECES == 0:
            axis = i
            break

    count = min(_PIECES, shape[axis])
    ends = [shape[axis] * i // count for i in range(count + 1)]
    before = (slice(None),) * axis
    return [(*before, slice(start, end)) for start, end in pairwise(ends)]


def _reducer_of_pieces(axes: Sequence[_Axes]) -> Callable[[Array], Array]:
    """Return a function like `_reducer`, in which threads sum parts of a large table."""
    whole = _reducer(axes)
    is_small = prod(part.length for part in axes) < _SHARED
    if is_small or all(part.is_kept for part in axes):
        return whole
    first, *rest = axes
    if not first.is_kept or first.length < _PIECES * _ALIGNED:
        return whole

    # Bounds are multiples of `_ALIGNED`, so that BLAS adds up rows of a part as those of the whole.
    bounds = [
        first.length * i // _PIECES // _ALIGNED * _ALIGNED for i in range(_PIECES)
    ]
    parts = list(pairwise([*bounds, first.length]))
    lengths = {end - start for start, end in parts}
    reducers = {}
    for length in lengths:
        reducers[length] = _reducer([_Axes(length, is_kept=True), *rest])

    def reduce_rows(x: Array) -> Array:
        rows = x.reshape(first.length, -1)

        def reduce_part(part: tuple[int, int]) -> Array:
            start, end = part
            return reducers[end - start](rows[start:end].reshape(-1))

        return np.concatenate(each(reduce_part, parts))

    return reduce_rows


class Link:
    """The link between a clique's flat table and that of one of its subsets.

    It multiplies the subset's table in, and sums the clique's table out.
    """

    def __init__(self, domain: Domain, clique: Clique, subset: Clique) -> None:
        shape = [domain.size_of(a) for a in clique]
        axes = _merged_axes(shape, [a in subset for a in clique])
        self._clique_shape = tuple(part.length for part in axes)
        self._subset_shape = tuple(part.broadcast_length for part in axes)
        self._summed_axes = tuple(i for i, part in enumerate(axes) if not part.is_kept)
        self._pieces = _pieces(self._clique_shape)
        self.reduce = _reducer_of_pieces(axes)
        """Sum the clique's table down to the subset's."""

    @classmethod
    def between(cls, domain: Domain, clique: Clique, subset: Clique) -> Link:
        """Return the link between two cliques; of small ones, which recur, it is laid out once."""
        make = _small_link if domain.size(clique) <= _SMALL else cls
        return make(domain, clique, subset)

    def multiply(self, table: Array, factor: Array) -> None:
        """Multiply a table by a factor, in place; both are flat."""
        view = table.reshape(self._clique_shape)
        broadcast = factor.reshape(self._subset_shape)
        if len(self._pieces) < 2:
            np.multiply(view, broadcast, out=view)
            return
        axis = len(self._pieces[0]) - 1
        has_axis = self._subset_shape[axis] > 1

        def multiply_piece(piece: _Piece) -> None:
            part = broadcast[piece] if has_axis else broadcast
            np.multiply(view[piece], part, out=view[piece])

        each(multiply_piece, self._pieces)

    def log_multiply(self, table: Array, factor: Array) -> None:
        """Multiply a table by a factor in place, where both are logarithms."""
        view = table.reshape(self._clique_shape)
        np.add(view, factor.reshape(self._subset_shape), out=view)

    def log_reduce(self, table: Array) -> Array:
        """Return the logarithms of the sums that `reduce` gives, from the table's logarithms."""
        view = table.reshape(self._clique_shape)
        # With the maximum taken out, no exponential overflows; the minimum float keeps a cell that
        # is impossible throughout from becoming inf - inf.
        top = np.maximum(view.max(axis=self._summed_axes, keepdims=True), _LOWEST)
        exponentials = np.exp(view - top).reshape(-1)
        sums: Array = np.log(self.reduce(exponentials))
        sums += top.reshape(-1)
        return sums


_small_link = lru_cache(maxsize=4096)(Link)


def _inner_cliques(
    domain: Domain,
    clique: Clique,
    parts: Mapping[int, Clique],
) -> Iterator[tuple[Clique, list[int]]]:
    """Yield sets inside a large clique, each with two or more of its parts, by their keys.

    The large table is then passed over once for each set, not for each part. A part joins the set
    that stays smallest with it; none has more than an eighth of the clique's cells.
    """
    max_cells = domain.size(clique) / 8
    keys_of: dict[Clique, list[int]] = {}
    for key, part in parts.items():
        # Each set with this part in it, and the set without.
        enlarged = {domain.canonical((*inner, *part)): inner for inner in keys_of}
        small = [inner for inner in enlarged if domain.size(inner) <= max_cells]
        smallest = min(small, key=domain.size, default=part)
        if domain.size(smallest) > max_cells:
            continue
        keys: list[int] = []
        if smallest in enlarged:
            keys = keys_of.pop(enlarged[smallest])
        keys_of[smallest] = [*keys_of.get(smallest, []), *keys, key]

    for inner, keys in keys_of.items():
        if len(keys) > 1:
            yield inner, keys


class Propagation:
    """A plan for passing messages on a tree, with potentials on scopes inside its cliques."""

    def __init__(self, tree: JunctionTree, scopes: Sequence[Clique]) -> None:
        domain = tree.domain
        self.tree = tree
        self.scopes = tuple(scopes)
        self.cliques = [inner_order(domain, clique) for clique in tree.cliques]
        """Those of the tree, then those inside them."""

        # What tables of cliques are summed to, and of which clique: at first one of the tree.
        parts = [*scopes, *tree.separators]
        holders = [*map(tree.home_of, scopes), *tree.parents]
        self._add_inner_cliques(parts, holders)

        links = [
            Link.between(domain, self.cliques[max(holder, 0)], part)
            for holder, part in zip(holders, parts, strict=True)
        ]
        self.links = links[: len(scopes)]
        """Per scope, the link from the clique that holds it."""
        self.down = links[len(scopes) :]
        """Per clique, its parent's link to what they share; meaningless at the root."""
        separators = parts[len(scopes) :]
        self.up = [
            Link.between(domain, clique, separator)
            for clique, separator in zip(self.cliques, separators, strict=True)
        ]
        """Per clique, its own link to what it shares with its parent."""

        self._homes = holders[: len(scopes)]
        self.parents = holders[len(scopes) :]
        self.homed: list[list[int]] = [[] for _ in self.cliques]
        """Scopes that each clique holds."""
        for q, home in enumerate(self._homes):
            self.homed[home].append(q)
        self.children: list[list[int]] = [[] for _ in self.cliques]
        for i, parent in enumerate(self.parents[1:], start=1):
            self.children[parent].append(i)
        # Parents before children; the list grows while it is gone through.
        self._order = [0]
        for i in self._order:
            self._order += self.children[i]

    def _add_inner_cliques(self, parts: list[Clique], holders: list[int]) -> None:
        """Add small cliques that hold parts of large ones; all three lists grow by them."""
        domain = self.tree.domain
        # Also over the cliques that it appends.
        for i, clique in enumerate(self.cliques):
            if domain.size(clique) < _LARGE:
                continue
            parts_inside = {
                q: parts[q] for q, holder in enumerate(holders) if holder == i
            }
            for inner, keys in _inner_cliques(domain, clique, parts_inside):
                for q in keys:
                    holders[q] = len(self.cliques)
                self.cliques.append(inner_order(domain, inner))
                parts.append(inner)
                holders.append(i)

    @classmethod
    @lru_cache(maxsize=2)
    def over(cls, domain: Domain, scopes: tuple[Clique, ...]) -> Propagation:
        """Return the plan of a scopes' tree; it is laid out once for fitting and asking."""
        return cls(JunctionTree.build(domain, scopes), scopes)

    def inner(self, i: int, table: Array) -> Array:
        """Return the flat inner table of scope `i`, from a table whose axes are in domain order."""
        scope = self.scopes[i]
        axes = [scope.index(a) for a in inner_order(self.tree.domain, scope)]
        return np.ascontiguousarray(np.transpose(table, axes)).reshape(-1)

    def table(self, clique: Clique, flat: Array) -> Array:
        """Return a clique's table with axes in domain order, from its flat inner table."""
        order = inner_order(self.tree.domain, clique)
        shape = [self.tree.domain.size_of(a) for a in order]
        axes = [order.index(a) for a in clique]
        return np.transpose(flat.reshape(shape), axes)

    def run(self, potentials: Sequence[Array]) -> list[Array]:
        """Pass messages up and down: from logarithms of potentials to probabilities of the cliques.

        Both are flat inner tables, one per scope, and one per clique that sums to 1. Raises
        FloatingPointError if no cell is possible, or a potential is not a number.
        """
        tables = self._tables(1.0)
        messages = self._collect(tables, potentials)
        if messages is None:
            return self._in_logarithms(potentials)

        # Downwards: what the parent now has, over what it was sent.
        for i in self._order[1:]:
            target = self.down[i].reduce(tables[self.parents[i]])
            ratio = np.zeros_like(target)
            np.divide(target, messages[i], out=ratio, where=target > 0)
            self.up[i].multiply(tables[i], ratio)
        return tables

    def _tables(self, cell: float) -> list[Array]:
        """Return a flat table for each clique, as parts of one array filled with one number.

        An array that is so large goes back to the system as a whole once no part of it is used.
        """
        lengths = [self.tree.domain.size(clique) for clique in self.cliques]
        aligned = [-(-length // _LINE) * _LINE for length in lengths]
        starts = [0, *accumulate(aligned)]
        cells = np.full(starts[-1], cell)
        bounds = zip(starts, lengths, strict=False)
        return [cells[start : start + length] for start, length in bounds]

    def _collect(
        self, tables: list[Array], potentials: Sequence[Array]
    ) -> list[Array] | None:
        """Pass messages upwards, and return one per clique; None if a table underflowed."""
        for home, link, theta in zip(self._homes, self.links, potentials, strict=True):
            factor = np.exp(theta - float(theta.max()))
            link.multiply(tables[home], factor)

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
        """Run as `run` does, but exponentiate nothing before its scale is known."""
        tables = self._tables(0.0)
        for home, link, theta in zip(self._homes, self.links, potentials, strict=True):
            link.log_multiply(tables[home], theta)

        # Upwards.
        messages: list[Array] = [np.empty(0)] * len(tables)
        for i in reversed(self._order):
            messages[i] = self.up[i].log_reduce(tables[i])
            if i:
                self.down[i].log_multiply(tables[self.parents[i]], messages[i])
        log_z = float(messages[0][0])
        if not np.isfinite(log_z):
            raise FloatingPointError(
                "potentials that leave no cell possible, or are not numbers"
            )

        # Downwards; an impossible cell has the logarithm -inf, of which no difference is taken.
        for i in self._order[1:]:
            target = self.down[i].log_reduce(tables[self.parents[i]])
            is_possible = np.isfinite(messages[i])
            ratio = np.zeros_like(target)
            np.subtract(target, messages[i], out=ratio, where=is_possible)
            self.up[i].log_multiply(tables[i], ratio)
        return [np.exp(table - log_z) for table in tables]
