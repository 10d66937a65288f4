"""Markov random fields over a finite domain: marginals, densities and samples.

A model is its potentials on a few cliques. Everything else, the junction tree and the calibrated
beliefs, is derived when first needed and never stored or sent.

* **Marginals outside the cliques** touch only the part of the tree between the wanted attributes:
  other cliques sum to one given their separator and are cut off (Koller & Friedman 2009, section
  10.3.3).
* **Rows** are drawn down the tree. Rows that share a separator value form a stratum; each stratum
  draws the clique's other attributes by systematic sampling (one uniform offset, evenly spaced
  points), so a clique's counts are within one of their expectation given the separator's, instead
  of multinomially spread. Each row by itself still has exactly the model's distribution.

Oracle: the tests hold `MRF.marginal` against brute force and against mbi 2.x.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, groupby, product
from math import prod
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from siloweave.errors import DataError, SchemaError
from siloweave.models.junction_tree import Array, JunctionTree, Propagation
from siloweave.models.threads import each, single_blas
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.codes import Clique, Codes, Domain
from siloweave.tables.keys import Key, fold_in, generator

# Cells of an intermediate table, 128 MB.
_CELLS = 1 << 24
# A probability whose inverse float32 still holds.
_RARE = 1e-30
# Cells of the messages of `apart`, if one attribute does not need more.
_PAIR_CELLS = 1 << 24
_FORMAT = "siloweave-mrf-1"
Single = npt.NDArray[np.float32]

_Singles: TypeAlias = Mapping[Clique, Single]

# Below, a and b are attributes, and i and k are places of cliques in a tree.


@dataclass(frozen=True)
class _Table:
    names: Clique
    values: Array


def _sum_to(table: _Table, attributes: Collection[str]) -> _Table:
    """Sum a table over all but some attributes."""
    names = tuple(a for a in table.names if a in attributes)
    axes = _other_axes(table.names, attributes)
    return _Table(names, table.values.sum(axis=axes))


def _other_axes(names: Clique, attributes: Collection[str]) -> tuple[int, ...]:
    """Return the axes of all but some attributes, over which a table is summed to these."""
    return tuple(i for i, a in enumerate(names) if a not in attributes)


def _product_sum(left: _Table, right: _Table, attributes: Collection[str]) -> _Table:
    """Multiply two tables and sum to some attributes, as one matrix product per shared cell."""
    all_names = dict.fromkeys(left.names + right.names)
    letter = {a: i for i, a in enumerate(all_names)}
    names = tuple(a for a in letter if a in attributes)
    left_letters = [letter[a] for a in left.names]
    right_letters = [letter[a] for a in right.names]
    letters = [letter[a] for a in names]
    operands: list[Any] = [
        left.values,
        left_letters,
        right.values,
        right_letters,
        letters,
    ]
    return _Table(names, np.einsum(*operands, optimize=True))


def _smallest_subtree(tree: JunctionTree, wanted: set[str]) -> tuple[int, list[int]]:
    """Return the root and the members, parents first, of the smallest subtree with `wanted`."""
    is_member = [True] * len(tree.cliques)
    wanted_in = [wanted.intersection(clique) for clique in tree.cliques]
    num_children = [0] * len(tree.cliques)
    for parent in tree.parents[1:]:
        num_children[parent] += 1

    # Cut leaves that hold nothing wanted but what their parent holds too; children come first, so
    # that a parent whose children were cut is a leaf when its turn comes.
    for i in reversed(range(1, len(tree.cliques))):
        if not num_children[i] and wanted_in[i].issubset(tree.separators[i]):
            is_member[i] = False
            num_children[tree.parents[i]] -= 1
    members = list(compress(range(len(tree.cliques)), is_member))

    # The same from above: a root with one child is a leaf, too.
    root = 0
    while num_children[root] == 1:
        child = next(i for i in members if i != root and tree.parents[i] == root)
        if not wanted_in[root].issubset(tree.separators[child]):
            break
        members.remove(root)
        root = child
    return root, members


def project(tree: JunctionTree, beliefs: Sequence[Array], clique: Clique) -> Array:
    """Return the probabilities of `clique` (in domain order), from a tree's calibrated beliefs.

    An intermediate table holds the wanted attributes that it has met beside a separator; where that
    is more than 16 million cells, values of some wanted attributes are taken block by block.
    """
    wanted = set(clique)
    root, members = _smallest_subtree(tree, wanted)
    steps = _steps(tree, root, members, wanted)
    blocks = _blocks(tree, steps, clique)
    tables = {step.member: _conditional(tree, beliefs, step) for step in steps}

    # Messages that no block changes are computed once.
    unchanging: dict[int, _Table] = {}
    changing_steps = []
    for step in steps:
        has_blocks = bool(step.needed & blocks.keys())
        has_changing_child = any(child not in unchanging for child, _ in step.children)
        if has_blocks or has_changing_child:
            changing_steps.append(step)
        else:
            unchanging[step.member] = _message(step, tables[step.member], unchanging)

    probabilities = np.empty(tree.domain.shape(clique))
    for slices in product(*blocks.values()):
        values_of = dict(zip(blocks, slices, strict=True))
        messages = dict(unchanging)
        for step in changing_steps:
            table = tables[step.member]
            block = table.values[_index(table.names, values_of)]
            block_table = _Table(table.names, block)
            messages[step.member] = _message(step, block_table, messages)
        result = messages[root]
        axes = [result.names.index(a) for a in clique]
        place = _index(clique, values_of)
        probabilities[place] = np.transpose(result.values, axes)
    return probabilities


_Slice: TypeAlias = "slice[int, int, None]"


def _index(
    names: Clique, values_of: Mapping[str, _Slice]
) -> tuple[slice[Any, Any, Any], ...]:
    """Return the index of a block of a table: some values of some attributes, all of the others."""
    return tuple(values_of.get(a, slice(None)) for a in names)


@dataclass(frozen=True)
class _Step:
    """The work of one member of the subtree, after that of its children."""

    member: int  # its place in the tree
    parent: int | None  # its parent's; None for the root
    upward: frozenset[str]  # what it shares with the parent
    needed: frozenset[str]  # those of its own attributes that a later step needs
    # (place, attributes left once it is in)
    children: tuple[tuple[int, frozenset[str]], ...]
    met: tuple[frozenset[str], ...]  # attributes of its table after each child
    sent: frozenset[str]  # attributes of its message


def _steps(
    tree: JunctionTree, root: int, members: Sequence[int], wanted: set[str]
) -> list[_Step]:
    """Return the steps of the subtree's members, children before parents."""
    received: dict[int, list[tuple[int, frozenset[str]]]] = {i: [] for i in members}
    steps = []
    for i in reversed(members):
        parent = None if i == root else tree.parents[i]
        upward = frozenset[str]()
        if parent is not None:
            upward = frozenset(tree.separators[i])
        sets_received = [attributes for _, attributes in received[i]]
        needed = frozenset(tree.cliques[i]) & wanted.union(upward, *sets_received)

        # After each child, only what later children or the parent need stays in the table.
        met = [needed]
        children = []
        for position, (child, attributes) in enumerate(received[i]):
            later_sets = sets_received[position + 1 :]
            remaining = frozenset(wanted).union(upward, *later_sets)
            children.append((child, remaining))
            met.append((met[-1] | attributes) & remaining)

        sent = met[-1] & (wanted | upward)
        steps.append(
            _Step(i, parent, upward, needed, tuple(children), tuple(met), sent)
        )
        if parent is not None:
            received[parent].append((i, sent))
    return steps


def _blocks(
    tree: JunctionTree, steps: Sequence[_Step], clique: Clique
) -> dict[str, list[_Slice]]:
    """Split the values of attributes into blocks, as far as tables need it to stay small."""
    size = dict(zip(tree.domain.names, tree.domain.sizes, strict=True))
    length = dict(size)  # of a block

    def cells(names: frozenset[str]) -> int:
        return prod(length[a] for a in names)

    tables: list[frozenset[str]] = []
    for step in steps:
        tables += step.met
    largest = max(tables, key=cells)
    while cells(largest) > _CELLS:
        candidates = [a for a in clique if a in largest and length[a] > 1]
        if not candidates:  # a separator alone is so large
            break
        longest = max(candidates, key=length.__getitem__)
        length[longest] = max(1, length[longest] * _CELLS // cells(largest))
        largest = max(tables, key=cells)

    blocks = {}
    for a in clique:
        if length[a] < size[a]:
            starts = range(0, size[a], length[a])
            blocks[a] = [slice(start, start + length[a]) for start in starts]
    return blocks


def _conditional(tree: JunctionTree, beliefs: Sequence[Array], step: _Step) -> _Table:
    """Return a member's table of the needed attributes, conditional on those of its parent."""
    belief = _Table(tree.cliques[step.member], beliefs[step.member])
    table = _sum_to(belief, step.needed)
    if step.parent is None:
        return table
    axes = _other_axes(table.names, step.upward)
    return _Table(table.names, given_others(table.values, axes))


def given_others(values: Array, axes: tuple[int, ...]) -> Array:
    """Return conditional probabilities along some axes; 0 for impossible conditions."""
    shared = values.sum(axis=axes, keepdims=True)
    conditional: Array = np.zeros_like(values)
    np.divide(values, shared, out=conditional, where=shared > 0)
    return conditional


def _message(step: _Step, table: _Table, messages: Mapping[int, _Table]) -> _Table:
    """Return a member's message to its parent; the root's is the table of the wanted attributes."""
    for child, remaining in step.children:
        table = _product_sum(table, messages[child], remaining)
    return _sum_to(table, step.sent)


def apart(
    tree: JunctionTree,
    beliefs: Sequence[Array],
    pairs: Iterable[Clique],
) -> Iterator[tuple[Clique, Single]]:
    """Yield float32 probabilities of attribute pairs that share no clique of the tree.

    What is known of one attribute, that of fewer values, travels from separator to separator to
    the nearest clique that holds the other. Its messages serve all pairs that it is in, and one
    matrix product moves all attributes that pass the same two separators. So many travel together
    as leave messages small.
    """
    routes = _Routes(tree, pairs)

    def small_tables(i: int) -> dict[Clique, Single]:
        clique = tree.cliques[i]
        belief = beliefs[i].astype(np.float32)
        return dict(_sums(belief, clique, clique, routes.wanted[i]))

    tables = each(small_tables, range(len(tree.cliques)))

    # Attributes travel in groups whose messages fit into memory together.
    groups: list[list[str]] = [[]]
    group_cells = 0
    for a, steps in routes.steps.items():
        separators = [routes.shared(*step) for step in steps]
        separator_cells = sum(tree.domain.size(separator) for separator in separators)
        message_cells = tree.domain.size_of(a) * separator_cells
        if group_cells + message_cells > _PAIR_CELLS:
            groups.append([])
            group_cells = 0
        groups[-1].append(a)
        group_cells += message_cells
    for group in groups:
        yield from routes.travel(group, tables)


_Real = TypeVar("_Real", np.float32, np.float64)


def _sums(
    table: npt.NDArray[_Real],
    names: Clique,
    undecided: Clique,
    wanted: Collection[Clique],
) -> Iterator[tuple[Clique, npt.NDArray[_Real]]]:
    """Sum a table to each of some sets of its attributes, in the order of its axes.

    The largest of the `undecided` attributes is summed out first, once for all sets without it, so
    that nearly all sums are of small tables.
    """
    if not wanted:
        return
    if not undecided:
        yield names, table
        return
    largest = max(undecided, key=lambda a: table.shape[names.index(a)])
    rest = tuple(a for a in undecided if a != largest)

    without = [clique for clique in wanted if largest not in clique]
    if without:
        smaller = table.sum(axis=names.index(largest))
        smaller_names = tuple(a for a in names if a != largest)
        yield from _sums(smaller, smaller_names, rest, without)
    with_largest = [clique for clique in wanted if largest in clique]
    yield from _sums(table, names, rest, with_largest)


_Edge = tuple[int, int]
"""A step from a clique of a tree to a neighbour."""


def _places(names: Sequence[str], domain: Domain) -> dict[str, _Slice]:
    """Return the slice of each attribute's values, where all stand one after the other."""
    ends = np.cumsum([domain.size_of(a) for a in names]).tolist()
    starts = [0, *ends][: len(ends)]
    bounds = zip(names, starts, ends, strict=True)
    return {a: slice(start, end) for a, start, end in bounds}


@dataclass(frozen=True)
class _Rows:
    """P(. | separator) of some attributes, with a row for each value and a column for each cell.

    Separators have many cells and attributes often two values, so that rows are long.
    """

    names: Clique  # the attributes
    order: Clique  # the separator's, the last fastest
    values: Single

    def runs(self, wanted: Collection[str], domain: Domain) -> Iterator[_Rows]:
        """Yield the rows of the wanted attributes; those that stand together come as one."""
        places = _places(self.names, domain)
        for is_wanted, run in groupby(self.names, lambda a: a in wanted):
            names = tuple(run)
            if is_wanted:
                rows = slice(places[names[0]].start, places[names[-1]].stop)
                yield _Rows(names, self.order, self.values[rows])


_Arrived: TypeAlias = Mapping[_Edge, Sequence[_Rows]]
"""What is known of attributes after each step that they took."""


@dataclass(frozen=True)
class _Move:
    """The attributes that take one step of the tree together, as all came by the same step."""

    step: _Edge
    before: int  # the clique before; -1 where the attributes are the clique's own
    names: Sequence[str]


class _Routes:
    """The routes on which attributes travel through a tree to meet others; see `apart`."""

    def __init__(self, tree: JunctionTree, pairs: Iterable[Clique]) -> None:
        self.tree = tree
        self.steps: dict[str, dict[_Edge, int]] = {}
        """Of each attribute that travels: its steps, and the clique before; -1 at its own."""
        self.ends: dict[_Edge, list[Clique]] = {}
        """After which step pairs meet: one that travelled, and one of the clique reached."""
        self.wanted: list[set[Clique]] = [set() for _ in tree.cliques]
        """Sets of attributes whose tables each clique gives."""

        # Of a pair, the attribute of fewer values travels.
        partners: dict[str, list[str]] = {}
        for pair in pairs:
            a, b = sorted(pair, key=tree.domain.size_of)
            partners.setdefault(a, []).append(b)

        neighbours: list[list[int]] = [[] for _ in tree.cliques]
        for i, parent in enumerate(tree.parents[1:], start=1):
            neighbours[i].append(parent)
            neighbours[parent].append(i)
        for a, names in partners.items():
            self._add_routes(a, names, neighbours)

    def _add_routes(
        self,
        a: str,
        partners: Sequence[str],
        neighbours: Sequence[Sequence[int]],
    ) -> None:
        """Plan the steps of one attribute to the nearest clique of each of its partners."""
        # Breadth first from all cliques that hold a; `order` grows while it is gone through.
        before = {i: -1 for i, clique in enumerate(self.tree.cliques) if a in clique}
        order = list(before)
        for i in order:
            unvisited = [k for k in neighbours[i] if k not in before]
            before |= dict.fromkeys(unvisited, i)
            order += unvisited

        self.steps.setdefault(a, {})
        for b in partners:
            nearest = next(i for i in order if b in self.tree.cliques[i])
            last_step = (before[nearest], nearest)
            self.ends.setdefault(last_step, []).append((a, b))
            self._want(nearest, (*self.shared(*last_step), b))
            self._add_steps(a, nearest, before)

    def _add_steps(self, a: str, end: int, before: Mapping[int, int]) -> None:
        """Add the steps of a route from its end back, up to steps that are planned already."""
        steps = self.steps[a]
        k = end
        i = before[k]
        while i >= 0 and (i, k) not in steps:
            steps[i, k] = before[i]
            source: Clique = (a,)
            if before[i] >= 0:
                source = self.shared(before[i], i)
            self._want(i, (*source, *self.shared(i, k)))
            k = i
            i = before[k]

    def shared(self, i: int, k: int) -> Clique:
        """Return the separator of two neighbouring cliques."""
        # That of the child, which comes after its parent.
        return self.tree.separators[max(i, k)]

    def _want(self, i: int, names: Iterable[str]) -> None:
        distinct = dict.fromkeys(names)
        self.wanted[i].add(self.tree.domain.canonical(distinct))

    def travel(
        self,
        group: Collection[str],
        tables: Sequence[_Singles],
    ) -> Iterator[tuple[Clique, Single]]:
        """Yield the tables of all pairs to which these attributes travel."""
        arrived: dict[_Edge, list[_Rows]] = {}

        # Moves of one wave need those of earlier waves alone.
        for wave in self._waves(group):
            moved = each(lambda move: self._move(move, arrived, tables), wave)
            for move, rows in zip(wave, moved, strict=True):
                arrived.setdefault(move.step, []).append(rows)

        travelling = set(group)
        ends = []
        for step, pairs in self.ends.items():
            group_pairs = [(a, b) for a, b in pairs if a in travelling]
            if group_pairs:
                ends.append((step, group_pairs))

        def tables_at(
            end: tuple[_Edge, Sequence[Clique]],
        ) -> list[tuple[Clique, Single]]:
            step, pairs = end
            return self._pair_tables(step, pairs, arrived, tables)

        for pair_tables in each(tables_at, ends):
            yield from pair_tables

    def _waves(self, group: Collection[str]) -> list[list[_Move]]:
        """Return a group's moves in waves; a move needs what earlier waves brought."""
        names: dict[tuple[_Edge, int], list[str]] = {}
        for a in group:
            for step, before in self.steps[a].items():
                names.setdefault((step, before), []).append(a)

        # Parents come before their children: up from the last clique, then down from the first.
        upward = [move for move in names if move[0][0] > move[0][1]]
        downward = [move for move in names if move[0][0] < move[0][1]]
        upward.sort(reverse=True)
        downward.sort(key=lambda move: move[0][1])

        waves: list[list[_Move]] = []
        # The last wave in which something takes a step.
        last_wave: dict[_Edge, int] = {}
        for step, before in (*upward, *downward):
            wave = 0
            if before >= 0:
                wave = last_wave[before, step[0]] + 1
            last_wave[step] = max(wave, last_wave.get(step, 0))
            while len(waves) <= wave:
                waves.append([])
            waves[wave].append(_Move(step, before, names[step, before]))
        return waves

    def _move(
        self,
        move: _Move,
        arrived: _Arrived,
        tables: Sequence[_Singles],
    ) -> _Rows:
        """Return P(. | separator) of a move's attributes after the move."""
        i, k = move.step
        after = self.shared(i, k)
        if move.before < 0:
            return self._start(tables[i], move.names, after)
        rows = arrived[move.before, i]
        before = self.shared(move.before, i)
        return self._moved(tables[i], rows, move.names, before, after)

    def _start(
        self, tables: _Singles, names: Sequence[str], separator: Clique
    ) -> _Rows:
        """Return P(. | separator) of attributes in a clique which holds the separator as well."""
        parts = []
        for a in names:
            joint = self._matrix(tables, (a,), separator)
            parts.append(joint * _inverse(joint.sum(axis=0)))
        return _Rows(tuple(names), separator, np.concatenate(parts))

    def _moved(
        self,
        tables: _Singles,
        arrived: Sequence[_Rows],
        names: Collection[str],
        before: Clique,
        after: Clique,
    ) -> _Rows:
        """Return P(. | after) from P(. | before), two separators within one clique.

        It is the sum of P(. | before) P(before, after) / P(after) over all that `before` alone has.
        """
        domain = self.tree.domain
        common = tuple(a for a in before if a in after)
        before_only = tuple(a for a in before if a not in common)
        after_only = tuple(a for a in after if a not in common)
        cells = domain.size(common)
        joint = self._matrix(tables, (*common, *before_only), after_only)
        joint = joint.reshape(cells, -1, joint.shape[1])
        rows = self._beside(arrived, names, (*common, *before_only))
        conditional = rows.values.reshape(-1, cells, joint.shape[1])

        # One product for each cell of what both separators share.
        values = np.empty((len(conditional), cells, joint.shape[2]), np.float32)
        by_cell = conditional.transpose(1, 0, 2)
        np.matmul(by_cell, joint, out=values.transpose(1, 0, 2))
        values *= _inverse(joint.sum(axis=1))
        order = (*common, *after_only)
        return _Rows(rows.names, order, values.reshape(len(values), -1))

    def _beside(
        self, arrived: Sequence[_Rows], names: Collection[str], order: Clique
    ) -> _Rows:
        """Stack the rows of attributes, all given the cells of one separator in one order."""
        domain = self.tree.domain
        wanted = set(names)
        runs: list[_Rows] = []
        for rows in arrived:
            runs += rows.runs(wanted, domain)
        joined: Clique = ()
        for run in runs:
            joined += run.names
        num_values = sum(map(domain.size_of, joined))
        values = np.empty((num_values, *domain.shape(order)), np.float32)
        start = 0
        for run in runs:
            end = start + len(run.values)
            axes = [0, *(1 + run.order.index(a) for a in order)]
            shaped = run.values.reshape(-1, *domain.shape(run.order))
            values[start:end] = shaped.transpose(axes)
            start = end
        return _Rows(joined, order, values.reshape(len(values), -1))

    def _pair_tables(
        self,
        step: _Edge,
        pairs: Sequence[Clique],
        arrived: _Arrived,
        tables: Sequence[_Singles],
    ) -> list[tuple[Clique, Single]]:
        """Return the tables of pairs whose first attribute has arrived by a step."""
        domain = self.tree.domain
        separator = self.shared(*step)
        travellers = list(dict.fromkeys(a for a, _ in pairs))
        residents = list(dict.fromkeys(b for _, b in pairs))

        # P(a, b) is the sum over the separator of P(a | separator) P(separator, b), all at once.
        conditional = self._beside(arrived.get(step, ()), travellers, separator)
        joint = [self._matrix(tables[step[1]], (b,), separator) for b in residents]
        joined = conditional.values @ np.concatenate(joint).T
        rows = _places(conditional.names, domain)
        columns = _places(residents, domain)

        pair_tables: list[tuple[Clique, Single]] = []
        for a, b in pairs:
            table = joined[rows[a], columns[b]]
            if domain.position(a) > domain.position(b):
                pair_tables.append(((b, a), table.T))
            else:
                pair_tables.append(((a, b), table))
        return pair_tables

    def _matrix(self, tables: _Singles, rows: Clique, columns: Clique) -> Single:
        """Return a clique's table of these attributes, with a row for each cell of the first."""
        domain = self.tree.domain
        names = domain.canonical((*rows, *columns))
        axes = [names.index(a) for a in (*rows, *columns)]
        shape = (domain.size(rows), domain.size(columns))
        return np.transpose(tables[names], axes).reshape(shape)


def _inverse(sums: Single) -> Single:
    """Return 1 over each probability; 0 where that is too large for float32."""
    inverse: Single = np.zeros_like(sums)
    np.divide(1, sums, out=inverse, where=sums > _RARE)
    return inverse


def _spread(strata: Ints, rng: np.random.Generator) -> Array:
    """Draw a uniform number per row, evenly spaced within a stratum, in random order."""
    shuffled = rng.permutation(strata.size)
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    ordered = strata[order]
    _, starts, counts = np.unique(ordered, return_index=True, return_counts=True)
    rank = np.arange(strata.size) - np.repeat(starts, counts)
    offset = np.repeat(rng.random(starts.size), counts)
    uniform = np.empty(strata.size)
    uniform[order] = (rank + offset) / np.repeat(counts, counts)
    return uniform


def _draw(table: Array, strata: Ints, rng: np.random.Generator) -> Ints:
    """Draw a column for each row, from the row of `table` (unnormalised) that is its stratum."""
    used_strata, positions = np.unique(strata, return_inverse=True)
    weights = table[used_strata]
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]

    # One search for all strata: the cumulative shares of stratum s lie between s and s + 1.
    offsets = np.arange(used_strata.size)[:, None]
    thresholds = (cumulative + offsets).reshape(-1)
    marks = positions + _spread(positions, rng)
    cells = np.searchsorted(thresholds, marks, side="right")
    columns = cells - positions * table.shape[1]

    # Rounding must not lead beyond the last possible column.
    is_possible = weights > 0
    last = np.max(np.where(is_possible, np.arange(table.shape[1]), 0), axis=1)
    return np.asarray(np.clip(columns, 0, last[positions]), dtype=np.int64)


def _codes(domain: Domain, columns: Mapping[str, npt.NDArray[np.integer]]) -> Codes:
    """Return columns of codes by name, each in the smallest type."""
    sizes = zip(domain.names, domain.sizes, strict=True)
    return Codes(domain, tuple(_small(columns[a], size) for a, size in sizes))


def _small(
    codes: npt.NDArray[np.integer], size: int
) -> npt.NDArray[np.unsignedinteger]:
    """Convert codes below `size` to the smallest type that holds them."""
    smallest = np.min_scalar_type(size - 1)
    small_codes: npt.NDArray[np.unsignedinteger] = codes.astype(smallest, copy=False)
    return small_codes


def sample_rows(
    tree: JunctionTree, beliefs: Sequence[Array], num_rows: int, *, key: Key
) -> Codes:
    """Draw rows of the whole domain by a tree and its calibrated beliefs."""
    if num_rows < 0:
        raise DataError(f"num_rows is {num_rows}; ask for 0 rows or more")
    domain = tree.domain
    # Of the smallest type: rows may be millions.
    columns: dict[str, npt.NDArray[np.integer]] = {}
    # Parents come first: a clique's other attributes are drawn given what it shares with its own.
    members = zip(tree.cliques, tree.separators, strict=True)
    for i, (clique, separator) in enumerate(members):
        rng = generator(fold_in(key, i))
        new = tuple(a for a in clique if a not in separator)
        axes = [clique.index(a) for a in separator + new]
        num_strata = domain.size(separator) if separator else 1
        table = np.transpose(beliefs[i], axes).reshape(num_strata, -1)

        strata = np.zeros(num_rows, dtype=np.int64)
        if separator:
            codes = [columns[a] for a in separator]
            cells = np.ravel_multi_index(codes, domain.shape(separator))
            strata = np.asarray(cells, dtype=np.int64)
        new_cells = strata
        if num_rows:
            new_cells = _draw(table, strata, rng)
        new_codes = np.unravel_index(new_cells, domain.shape(new))
        for a, codes_of_a in zip(new, new_codes, strict=True):
            columns[a] = _small(codes_of_a, domain.size_of(a))
    return _codes(domain, columns)


def _fixed_codes(domain: Domain, names: Clique, known: Mapping[str, Ints]) -> Ints:
    """Check the columns from which rows are completed, and return them, (rows, len(names))."""
    if not names:
        raise DataError("known is empty; name at least one column, or use sample()")
    lengths = {a: len(known[a]) for a in names}
    if len(set(lengths.values())) != 1:
        raise DataError(f"known has columns of different lengths: {lengths}")
    for a in names:
        codes = np.asarray(known[a])
        if codes.size and not 0 <= codes.min() <= codes.max() < domain.size_of(a):
            raise DataError(
                f"known[{a!r}] has codes outside 0..{domain.size_of(a) - 1}"
            )
    columns = [np.asarray(known[a], dtype=np.int64) for a in names]
    return np.stack(columns, axis=1)


def _conditioned(
    plan: Propagation,
    potentials: Mapping[Clique, Array],
    value: Mapping[str, int],
) -> list[Array]:
    """Return the beliefs about free attributes, given values of the fixed ones."""
    domain = plan.tree.domain
    # Potentials that differ in fixed attributes alone have the same scope: their slices are added.
    sliced = {scope: np.zeros(domain.shape(scope)) for scope in plan.scopes}
    for clique, table in potentials.items():
        index = tuple(value.get(a, slice(None)) for a in clique)
        part = table[index]
        scope = tuple(a for a in clique if a not in value)
        if scope:
            sliced[scope] = sliced[scope] + part
        elif not np.isfinite(part):
            raise DataError(
                f"the model gives {dict(value)} probability 0; change known"
            )

    tables = [plan.inner(i, sliced[scope]) for i, scope in enumerate(plan.scopes)]
    try:
        return _beliefs(plan, tables)
    except FloatingPointError as error:
        raise DataError(
            f"the model gives {dict(value)} probability 0; change known"
        ) from error


def _beliefs(plan: Propagation, tables: Sequence[Array]) -> list[Array]:
    """Compute the probabilities of a tree's cliques from the scopes' potentials.

    Axes are in domain order.
    """
    # Inner cliques come last.
    pairs = zip(plan.tree.cliques, plan.run(tables), strict=False)
    return [plan.table(clique, flat) for clique, flat in pairs]


_calibrated: WeakSet[MRF] = WeakSet()
"""Models in use that have their beliefs."""


def _shared_beliefs(model: MRF) -> list[Array] | None:
    """Return the beliefs of another model in use with the same potentials, or None."""
    # A copy, since the set changes whenever a model is no longer used.
    for other in list(_calibrated):
        beliefs: list[Array] | None = vars(other).get("beliefs")
        if beliefs is not None and _same_potentials(model, other):
            return beliefs
    return None


def _same_potentials(model: MRF, other: MRF) -> bool:
    """Return whether two models have equal potentials on the same cliques, in the same order."""
    has_same_cliques = list(model.potentials) == list(other.potentials)
    if model.domain != other.domain or not has_same_cliques:
        return False
    pairs = zip(model.potentials.values(), other.potentials.values(), strict=True)
    return all(np.array_equal(table, other_table) for table, other_table in pairs)


class MRF:
    """A Markov random field, which stands for `total` rows.

    Args:
        domain: Attributes and their numbers of values.
        potentials: Logarithms of the potentials, one table per clique (axes in domain order).
        total: Number of rows that the marginals add up to.

    Example:
        >>> import numpy as np
        >>> from siloweave.tables.codes import Domain
        >>> model = MRF(Domain(("a", "b"), (2, 3)), {("a",): np.log([0.25, 0.75])}, total=8)
        >>> model.marginal(("a",)).round(9).tolist()
        [2.0, 6.0]
    """

    def __init__(
        self, domain: Domain, potentials: Mapping[Clique, Array], total: float
    ) -> None:
        for clique, table in potentials.items():
            if table.shape != domain.shape(clique):
                raise ValueError(
                    f"potentials[{clique}] has shape {table.shape}; "
                    f"the domain needs {domain.shape(clique)}"
                )
        self.domain = domain
        self.potentials = dict(potentials)
        self.total = float(total)
        self._marginals: dict[Clique, Array] = {}

    @classmethod
    def uniform(cls, domain: Domain, total: float) -> MRF:
        """Return the model in which every cell of the domain is equally likely."""
        return cls(domain, {}, total)

    @property
    def _plan(self) -> Propagation:
        return Propagation.over(self.domain, tuple(self.potentials))

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree of the cliques that carry potentials."""
        return self._plan.tree

    @cached_property
    def beliefs(self) -> list[Array]:
        """Probability tables of the tree's cliques (axes in domain order, each sums to 1).

        A model in this process with the same potentials, such as the one that a message was made
        of, has the same tables: they are shared, not made again.
        """
        beliefs = _shared_beliefs(self)
        if beliefs is None:
            plan = self._plan
            tables = [
                plan.inner(i, self.potentials[scope])
                for i, scope in enumerate(plan.scopes)
            ]
            with single_blas():
                beliefs = _beliefs(plan, tables)
        _calibrated.add(self)
        return beliefs

    def forget(self) -> None:
        """Drop beliefs and marginals, which take most memory; they are computed anew if needed.

        A fit that starts from this model needs its potentials alone.
        """
        vars(self).pop("beliefs", None)
        self._marginals.clear()

    def marginal(self, clique: Clique, *, keep: bool = True) -> Floats:
        """Return the expected counts of a clique's cells; its attributes are in domain order.

        They need not lie in one clique of the tree. The float64 array sums to `total`; it is
        read-only, and if it is to be kept the same object when asked again.
        """
        if clique in self._marginals:
            return self._marginals[clique]
        home = self.tree.home(clique)
        if home is None:
            probabilities = project(self.tree, self.beliefs, clique)
        else:
            axes = _other_axes(self.tree.cliques[home], clique)
            probabilities = self.beliefs[home].sum(axis=axes)
        counts = probabilities * self.total
        counts.flags.writeable = False
        if keep:
            self._marginals[clique] = counts
        return counts

    def marginals(self, cliques: Sequence[Clique]) -> list[Floats]:
        """Return the `marginal` of each clique; pairs apart in the tree have float32's accuracy."""
        tree = self.tree
        beliefs = self.beliefs
        new = [
            clique for clique in dict.fromkeys(cliques) if clique not in self._marginals
        ]
        # By the clique of the tree that holds them.
        inside: dict[int, list[Clique]] = {}
        far_pairs = []
        for clique in new:
            home = tree.home(clique)
            if home is not None:
                inside.setdefault(home, []).append(clique)
            elif len(clique) == 2:
                far_pairs.append(clique)

        def sums_of(i: int) -> list[tuple[Clique, Array]]:
            clique = tree.cliques[i]
            return list(_sums(beliefs[i], clique, clique, inside[i]))

        probabilities: dict[Clique, Array] = {}
        with single_blas():
            for pair, table in apart(tree, beliefs, far_pairs):
                probabilities[pair] = table.astype(np.float64)
        for tables in each(sums_of, list(inside)):
            probabilities |= tables
        for clique, probability in probabilities.items():
            counts = probability * self.total
            counts.flags.writeable = False
            self._marginals[clique] = counts
        # What is left, larger sets apart in the tree, is computed here.
        return [self.marginal(clique) for clique in cliques]

    def log_density(self, codes: Codes) -> Floats:
        """Return the natural logarithm of the model's probability of each row, (num_rows,)."""
        # The density is the product over cliques of P(clique | separator).
        tree = self.tree
        log_density = np.zeros(codes.num_rows)
        with np.errstate(divide="ignore"):
            members = zip(tree.cliques, tree.separators, self.beliefs, strict=True)
            for clique, separator, belief in members:
                axes = _other_axes(clique, separator)
                conditional = given_others(belief, axes)
                log_density += np.log(conditional).reshape(-1)[codes.flat(clique)]
        return log_density

    def sample(self, num_rows: int | None = None, *, key: Key) -> Codes:
        """Draw rows with low variance: counts of every tree clique are rounded, not multinomial.

        There are `total` rows, rounded, if `num_rows` is not given; they are in random order.
        """
        if num_rows is None:
            num_rows = round(self.total)
        return sample_rows(self.tree, self.beliefs, num_rows, key=key)

    def sample_given(self, known: Mapping[str, Ints], *, key: Key) -> Codes:
        """Complete rows of which some columns are fixed, each drawn from the exact conditional.

        `known` holds codes of the fixed columns, one entry per row wanted.

        Raises:
            DataError: if a column is unknown, codes lie outside the domain, lengths differ, or
                the model gives a combination probability 0.
        """
        names = self.domain.canonical(known)
        fixed = _fixed_codes(self.domain, names, known)
        free_names = tuple(a for a in self.domain.names if a not in names)
        columns = {a: fixed[:, i].copy() for i, a in enumerate(names)}
        columns |= {a: np.empty(len(fixed), dtype=np.int64) for a in free_names}
        if not free_names:
            return _codes(self.domain, columns)

        # One tree over the free attributes serves all rows.
        free = Domain(free_names, self.domain.shape(free_names))
        scopes: dict[Clique, None] = {}  # without doubles, in order
        for clique in self.potentials:
            scope = tuple(a for a in clique if a in free_names)
            if scope:
                scopes[scope] = None
        plan = Propagation.over(free, tuple(scopes))

        # Beliefs are the same for all rows that fix the same values.
        patterns, pattern_of_row = np.unique(fixed, axis=0, return_inverse=True)
        pattern_of_row = pattern_of_row.reshape(-1)
        for i, pattern in enumerate(patterns):
            value = dict(zip(names, pattern.tolist(), strict=True))
            beliefs = _conditioned(plan, self.potentials, value)
            rows = np.flatnonzero(pattern_of_row == i)
            completed = sample_rows(plan.tree, beliefs, rows.size, key=fold_in(key, i))
            for a in free_names:
                columns[a][rows] = completed.column(a)
        return _codes(self.domain, columns)

    def save(self, path: Path | str) -> None:
        """Write the model as one safetensors file: numbers and names, nothing that runs."""
        header = {
            "format": _FORMAT,
            "total": repr(self.total),
            "names": json.dumps(self.domain.names),
            "sizes": json.dumps(self.domain.sizes),
            "cliques": json.dumps(list(self.potentials)),
        }
        tables = {
            str(i): np.ascontiguousarray(table, np.float64)
            for i, table in enumerate(self.potentials.values())
        }
        save_file(tables, str(path), metadata=header)

    @classmethod
    def load(cls, path: Path | str) -> MRF:
        """Read a model from its file; raises DataError where the file holds no such model."""
        try:
            with safe_open(str(path), framework="numpy") as file:
                header: dict[str, str] = file.metadata() or {}
                if header.get("format") != _FORMAT:
                    raise DataError(f"{path} is no model file of format {_FORMAT}")
                cliques = [tuple(names) for names in json.loads(header["cliques"])]
                tables = {
                    clique: file.get_tensor(str(i)) for i, clique in enumerate(cliques)
                }
            return cls._of_file(header, tables)
        except (
            OSError,
            SafetensorError,
            KeyError,
            TypeError,
            ValueError,
            SchemaError,
        ) as error:
            raise DataError(f"{path} cannot be read as a model: {error}") from error

    @classmethod
    def _of_file(cls, header: Mapping[str, str], tables: Mapping[Clique, Array]) -> MRF:
        """Build a model from a file's contents; ValueError where they contradict each other."""
        names = tuple(json.loads(header["names"]))
        sizes = tuple(json.loads(header["sizes"]))
        domain = Domain(names, sizes)
        total = float(header["total"])
        if not all(isinstance(name, str) for name in names):
            raise ValueError("a column's name is not text")
        if not 0.0 <= total < math.inf:
            raise ValueError(f"it stands for {total} rows")
        for clique, table in tables.items():
            if clique != domain.canonical(clique):
                raise ValueError(f"{clique} is not in the order of the columns")
            # An entry of minus infinity is the logarithm of 0.
            if (
                table.dtype != np.float64
                or np.isnan(table).any()
                or np.isposinf(table).any()
            ):
                raise ValueError(f"the table of {clique} is not of numbers")
        return cls(domain, tables, total)
