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
from itertools import groupby, product
from math import prod
from pathlib import Path
from typing import Any, TypeVar
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

_CELLS = 1 << 24  # of an intermediate table, 128 MB
_RARE = 1e-30  # a probability whose inverse float32 still holds
_PAIR_CELLS = 1 << 24  # of the messages of `apart`, if one attribute does not need more
_FORMAT = "siloweave-mrf-1"
Single = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Table:
    names: Clique
    values: Array


def _sum_to(table: _Table, kept: Collection[str]) -> _Table:
    names = tuple(a for a in table.names if a in kept)
    return _Table(names, table.values.sum(axis=_gone(table.names, kept)))


def _gone(names: Clique, kept: Collection[str]) -> tuple[int, ...]:
    """Axes of the attributes that are not kept."""
    return tuple(i for i, a in enumerate(names) if a not in kept)


def _product_sum(left: _Table, right: _Table, kept: Collection[str]) -> _Table:
    """Sum over the attributes not kept of left * right, as one matrix product per shared cell."""
    letter = {a: i for i, a in enumerate(dict.fromkeys(left.names + right.names))}
    names = tuple(a for a in letter if a in kept)
    operands: list[Any] = [left.values, [letter[a] for a in left.names]]
    operands += [right.values, [letter[a] for a in right.names], [letter[a] for a in names]]
    return _Table(names, np.einsum(*operands, optimize=True))


def _between(tree: JunctionTree, wanted: set[str]) -> tuple[int, list[int]]:
    """Root and members (parents before children) of the smallest subtree that holds `wanted`."""
    alive = list(range(len(tree.cliques)))
    held = [wanted & set(c) for c in tree.cliques]
    children = [0] * len(alive)
    for p in tree.parents[1:]:
        children[p] += 1
    for i in reversed(range(1, len(tree.cliques))):
        if not children[i] and held[i] <= set(tree.separators[i]):
            alive.remove(i)
            children[tree.parents[i]] -= 1
    root = 0
    while children[root] == 1:
        child = next(i for i in alive if i != root and tree.parents[i] == root)
        if not held[root] <= set(tree.separators[child]):
            break
        alive.remove(root)
        root = child
    return root, alive


def project(tree: JunctionTree, beliefs: Sequence[Array], clique: Clique) -> Array:
    """Probability table of `clique` (in domain order), by a tree and its calibrated beliefs.

    An intermediate table holds the wanted attributes that it has met beside a separator; where that
    is more than 16 million cells, values of some wanted attributes are taken block by block.
    """
    wanted = set(clique)
    root, alive = _between(tree, wanted)
    steps = _steps(tree, root, alive, wanted)
    blocks = _blocks(tree, steps, clique)
    tables = {step.member: _own(tree, beliefs, step) for step in steps}
    same: dict[int, _Table] = {}  # messages that are those of every block
    changing = []
    for step in steps:
        if step.needed & blocks.keys() or any(child not in same for child, _ in step.children):
            changing.append(step)
        else:
            same[step.member] = _message(step, tables[step.member], same)
    found = np.empty(tree.domain.shape(clique))
    for parts in product(*blocks.values()):
        at = dict(zip(blocks, parts, strict=True))
        messages = dict(same)
        for step in changing:
            names, values = tables[step.member].names, tables[step.member].values
            block = _Table(names, values[tuple(at.get(a, slice(None)) for a in names)])
            messages[step.member] = _message(step, block, messages)
        last = messages[root]
        place = tuple(at.get(a, slice(None)) for a in clique)
        found[place] = np.transpose(last.values, [last.names.index(a) for a in clique])
    return found


@dataclass(frozen=True)
class _Step:
    """What a member of the subtree does after its children."""

    member: int  # its place in the tree
    parent: int | None  # its parent's; None for the root
    upward: frozenset[str]  # what it shares with the parent
    needed: frozenset[str]  # those of its own attributes that a later step needs
    children: tuple[tuple[int, frozenset[str]], ...]  # (place, what is kept once it is in)
    met: tuple[frozenset[str], ...]  # attributes of its table after each child
    sent: frozenset[str]  # attributes of its message


def _steps(tree: JunctionTree, root: int, alive: Sequence[int], wanted: set[str]) -> list[_Step]:
    """The subtree's members, children before parents."""
    received: dict[int, list[tuple[int, frozenset[str]]]] = {i: [] for i in alive}
    steps = []
    for i in reversed(alive):
        parent = None if i == root else tree.parents[i]
        upward = frozenset(() if parent is None else tree.separators[i])
        needed = frozenset(tree.cliques[i]) & wanted.union(upward, *(a for _, a in received[i]))
        met, children = [needed], []
        for at, (child, attributes) in enumerate(received[i]):
            kept = frozenset(wanted).union(upward, *(later for _, later in received[i][at + 1 :]))
            children.append((child, kept))
            met.append((met[-1] | attributes) & kept)
        sent = met[-1] & (wanted | upward)
        steps.append(_Step(i, parent, upward, needed, tuple(children), tuple(met), sent))
        if parent is not None:
            received[parent].append((i, sent))
    return steps


def _blocks(
    tree: JunctionTree, steps: Sequence[_Step], clique: Clique
) -> dict[str, list[slice[int, int, None]]]:
    """Attributes of the clique that are taken in blocks, so that tables stay small, and these."""
    size = dict(zip(tree.domain.names, tree.domain.sizes, strict=True))
    length = dict(size)

    def cells(names: frozenset[str]) -> int:
        return prod(length[a] for a in names)

    while cells(largest := max((met for step in steps for met in step.met), key=cells)) > _CELLS:
        left = [a for a in clique if a in largest and length[a] > 1]
        if not left:  # a separator alone is so large
            break
        a = max(left, key=length.__getitem__)
        length[a] = max(1, length[a] * _CELLS // cells(largest))
    return {
        a: [slice(i, i + length[a]) for i in range(0, size[a], length[a])]
        for a in clique
        if length[a] < size[a]
    }


def _own(tree: JunctionTree, beliefs: Sequence[Array], step: _Step) -> _Table:
    """A member's distribution of the needed attributes, given those that its parent has too."""
    table = _sum_to(_Table(tree.cliques[step.member], beliefs[step.member]), step.needed)
    if step.parent is None:
        return table
    return _Table(table.names, given_others(table.values, _gone(table.names, step.upward)))


def given_others(values: Array, gone: tuple[int, ...]) -> Array:
    """Return conditional probabilities along the axes `gone`; 0 where nothing is possible."""
    shared = values.sum(axis=gone, keepdims=True)
    ratio: Array = np.divide(values, shared, out=np.zeros_like(values), where=shared > 0)
    return ratio


def _message(step: _Step, table: _Table, messages: Mapping[int, _Table]) -> _Table:
    """A member's message to its parent; at the root, the table of the wanted attributes."""
    for child, kept in step.children:
        table = _product_sum(table, messages[child], kept)
    return _sum_to(table, step.sent)


def apart(
    tree: JunctionTree, beliefs: Sequence[Array], pairs: Iterable[Clique]
) -> Iterator[tuple[Clique, Single]]:
    """Probability tables, in float32, of pairs of attributes that share no clique of a tree.

    What is known of one attribute, that of fewer values, travels from separator to separator to
    the nearest clique that holds the other. Its messages serve all pairs that it is in, and one
    matrix product moves all attributes that pass the same two separators. So many travel together
    as leave messages small.
    """
    routes = _Routes(tree, pairs)

    def summed(i: int) -> dict[Clique, Single]:
        clique = tree.cliques[i]
        return dict(_sums(beliefs[i].astype(np.float32), clique, clique, routes.wanted[i]))

    tables = each(summed, range(len(tree.cliques)))
    groups, cells = [list[str]()], 0
    for a, steps in routes.steps.items():
        more = tree.domain.size_of(a) * sum(tree.domain.size(routes.shared(*e)) for e in steps)
        if cells + more > _PAIR_CELLS:
            groups, cells = [*groups, []], 0
        groups[-1].append(a)
        cells += more
    for group in groups:
        yield from routes.travel(group, tables)


_Real = TypeVar("_Real", np.float32, np.float64)


def _sums(
    table: npt.NDArray[_Real], names: Clique, left: Clique, wanted: Collection[Clique]
) -> Iterator[tuple[Clique, npt.NDArray[_Real]]]:
    """A table summed to each of some sets of its attributes, in the order of its axes.

    The largest attribute of those `left` is summed out first, once for all sets without it, so
    that nearly all sums are of small tables.
    """
    if not wanted:
        return
    if not left:
        yield names, table
        return
    a = max(left, key=lambda b: table.shape[names.index(b)])
    rest = tuple(b for b in left if b != a)
    others = [q for q in wanted if a not in q]
    if others:
        smaller = table.sum(axis=names.index(a))
        yield from _sums(smaller, tuple(b for b in names if b != a), rest, others)
    yield from _sums(table, names, rest, [q for q in wanted if a in q])


_Edge = tuple[int, int]
"""A step from a clique of a tree to a neighbour."""


def _places(names: Sequence[str], domain: Domain) -> dict[str, slice[int, int, None]]:
    """Where each attribute's values are, one attribute after the other."""
    ends = np.cumsum([domain.size_of(a) for a in names]).tolist()
    parts = zip([0, *ends], ends, strict=False)
    return {a: slice(*part) for a, part in zip(names, parts, strict=True)}


@dataclass(frozen=True)
class _Rows:
    """P(. | separator) of some attributes: a row for each value, a column for each cell.

    Separators have many cells and attributes often two values, so that rows are long.
    """

    names: Clique  # the attributes
    order: Clique  # the separator's, the last fastest
    values: Single

    def runs(self, wanted: Collection[str], domain: Domain) -> Iterator[_Rows]:
        """The wanted attributes, those that stand together in one."""
        places = _places(self.names, domain)
        for keep, run in groupby(self.names, lambda a: a in wanted):
            names = tuple(run)
            if keep:
                rows = slice(places[names[0]].start, places[names[-1]].stop)
                yield _Rows(names, self.order, self.values[rows])


@dataclass(frozen=True)
class _Move:
    """Attributes that take a step together, since all came by the same one before."""

    step: _Edge
    before: int  # the clique before; -1 where the attributes are the clique's own
    names: Sequence[str]


class _Routes:
    """How attributes travel through a tree to meet others; see `apart`."""

    def __init__(self, tree: JunctionTree, pairs: Iterable[Clique]) -> None:
        self.tree = tree
        self.steps: dict[str, dict[_Edge, int]] = {}
        """Of each attribute that travels: its steps, and the clique before; -1 at its own."""
        self.ends: dict[_Edge, list[Clique]] = {}
        """After which step pairs meet: one that travelled, and one of the clique reached."""
        self.wanted: list[set[Clique]] = [set() for _ in tree.cliques]
        """Sets of attributes whose tables each clique gives."""
        partners: dict[str, list[str]] = {}
        for pair in pairs:
            a, b = sorted(pair, key=tree.domain.size_of)
            partners.setdefault(a, []).append(b)
        around: list[list[int]] = [[] for _ in tree.cliques]
        for i, parent in enumerate(tree.parents[1:], start=1):
            around[i].append(parent)
            around[parent].append(i)
        for a, others in partners.items():
            before = {i: -1 for i, clique in enumerate(tree.cliques) if a in clique}
            met, steps = list(before), self.steps.setdefault(a, {})
            for i in met:
                more = [k for k in around[i] if k not in before]
                before |= dict.fromkeys(more, i)
                met += more
            for b in others:
                k = next(i for i in met if b in tree.cliques[i])
                self.ends.setdefault((before[k], k), []).append((a, b))
                self._want(k, (*self.shared(before[k], k), b))
                while (i := before[k]) >= 0 and (i, k) not in steps:
                    steps[i, k] = before[i]
                    came = (a,) if before[i] < 0 else self.shared(before[i], i)
                    self._want(i, (*came, *self.shared(i, k)))
                    k = i

    def shared(self, i: int, k: int) -> Clique:
        """The separator of two neighbours."""
        return self.tree.separators[max(i, k)]

    def _want(self, i: int, names: Iterable[str]) -> None:
        self.wanted[i].add(self.tree.domain.canonical(dict.fromkeys(names)))

    def travel(
        self, group: Collection[str], tables: Sequence[Mapping[Clique, Single]]
    ) -> Iterator[tuple[Clique, Single]]:
        """Tables of the pairs to which these attributes travel."""
        known: dict[_Edge, list[_Rows]] = {}

        # Moves of one wave need those of earlier waves alone.
        for wave in self._waves(group):
            moved = each(lambda move: self._move(move, known, tables), wave)
            for move, rows in zip(wave, moved, strict=True):
                known.setdefault(move.step, []).append(rows)

        travelling = set(group)
        ends = []
        for step, pairs in self.ends.items():
            here = [(a, b) for a, b in pairs if a in travelling]
            if here:
                ends.append((step, here))
        for found in each(lambda end: self._met(*end, known, tables), ends):
            yield from found

    def _waves(self, group: Collection[str]) -> list[list[_Move]]:
        """Every move of a group; a move needs what moves of earlier waves brought."""
        names: dict[tuple[_Edge, int], list[str]] = {}
        for a in group:
            for step, before in self.steps[a].items():
                names.setdefault((step, before), []).append(a)

        # Parents come before their children: up from the last clique, then down from the first.
        up = sorted((move for move in names if move[0][0] > move[0][1]), reverse=True)
        down = sorted((move for move in names if move[0][0] < move[0][1]), key=lambda m: m[0][1])
        waves: list[list[_Move]] = []
        last: dict[_Edge, int] = {}  # the last wave in which something takes a step
        for step, before in (*up, *down):
            wave = 0 if before < 0 else last[before, step[0]] + 1
            last[step] = max(wave, last.get(step, 0))
            waves += [[] for _ in range(wave + 1 - len(waves))]
            waves[wave].append(_Move(step, before, names[step, before]))
        return waves

    def _move(
        self,
        move: _Move,
        known: Mapping[_Edge, Sequence[_Rows]],
        tables: Sequence[Mapping[Clique, Single]],
    ) -> _Rows:
        """What a move's attributes are known by after it."""
        i, k = move.step
        shared = self.shared(i, k)
        if move.before < 0:
            return self._start(tables[i], move.names, shared)
        came = known[move.before, i]
        return self._moved(tables[i], came, move.names, self.shared(move.before, i), shared)

    def _start(
        self, tables: Mapping[Clique, Single], names: Sequence[str], shared: Clique
    ) -> _Rows:
        """P(. | shared) of attributes of a clique that holds what is shared, too."""
        parts = [self._matrix(tables, (a,), shared) for a in names]
        scaled = [part * _inverse(part.sum(axis=0)) for part in parts]
        return _Rows(tuple(names), shared, np.concatenate(scaled))

    def _moved(
        self, tables: Mapping[Clique, Single], came: Sequence[_Rows], names: Collection[str],
        given: Clique, shared: Clique,
    ) -> _Rows:  # fmt: skip
        """P(. | shared) from P(. | given), both within one clique."""
        domain = self.tree.domain
        both = tuple(a for a in given if a in shared)
        first, last = (tuple(a for a in part if a not in both) for part in (given, shared))
        cells = domain.size(both)
        table = self._matrix(tables, (*both, *first), last)
        table = table.reshape(cells, -1, table.shape[1])
        rows = self._beside(came, names, (*both, *first))
        left = rows.values.reshape(-1, cells, table.shape[1])

        # One product for each cell of what both separators share.
        values = np.empty((len(left), cells, table.shape[2]), np.float32)
        np.matmul(left.transpose(1, 0, 2), table, out=values.transpose(1, 0, 2))
        values *= _inverse(table.sum(axis=1))
        return _Rows(rows.names, (*both, *last), values.reshape(len(left), -1))

    def _beside(self, came: Sequence[_Rows], names: Collection[str], order: Clique) -> _Rows:
        """Some attributes one after the other, given the cells of a separator in one order."""
        domain = self.tree.domain
        runs = [run for rows in came for run in rows.runs(set(names), domain)]
        joined = tuple(a for run in runs for a in run.names)
        values = np.empty((sum(map(domain.size_of, joined)), *domain.shape(order)), np.float32)
        start = 0
        for run in runs:
            end = start + len(run.values)
            axes = [0, *(1 + run.order.index(a) for a in order)]
            shaped = run.values.reshape(-1, *domain.shape(run.order))
            values[start:end] = shaped.transpose(axes)
            start = end
        return _Rows(joined, order, values.reshape(len(values), -1))

    def _met(
        self, step: _Edge, pairs: Sequence[Clique],
        known: Mapping[_Edge, Sequence[_Rows]], tables: Sequence[Mapping[Clique, Single]],
    ) -> list[tuple[Clique, Single]]:  # fmt: skip
        """Tables of pairs whose first attribute has come by a step."""
        domain, shared = self.tree.domain, self.shared(*step)
        came, there = (list(dict.fromkeys(names)) for names in zip(*pairs, strict=True))
        left = self._beside(known.get(step, ()), came, shared)
        right = [self._matrix(tables[step[1]], (b,), shared) for b in there]
        product = left.values @ np.concatenate(right).T
        rows, columns = _places(left.names, domain), _places(there, domain)
        found: list[tuple[Clique, Single]] = []
        for a, b in pairs:
            table = product[rows[a], columns[b]]
            swap = domain.position(a) > domain.position(b)
            found.append(((b, a), table.T) if swap else ((a, b), table))
        return found

    def _matrix(self, tables: Mapping[Clique, Single], rows: Clique, columns: Clique) -> Single:
        """A clique's table of these attributes, with a row for each cell of the first."""
        names = self.tree.domain.canonical((*rows, *columns))
        axes = [names.index(a) for a in (*rows, *columns)]
        cells = self.tree.domain.size(rows), self.tree.domain.size(columns)
        return np.transpose(tables[names], axes).reshape(cells)


def _inverse(sums: Single) -> Single:
    """Return 1 over each probability; 0 where float32 does not hold that."""
    ratio: Single = np.divide(1, sums, out=np.zeros_like(sums), where=sums > _RARE)
    return ratio


def _spread(strata: Ints, rng: np.random.Generator) -> Array:
    """One uniform number per row; within a stratum they are evenly spaced, in random order."""
    shuffled = rng.permutation(strata.size)
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    _, first, counts = np.unique(strata[order], return_index=True, return_counts=True)
    rank = np.arange(strata.size) - np.repeat(first, counts)
    offset = np.repeat(rng.random(first.size), counts)
    uniform = np.empty(strata.size)
    uniform[order] = (rank + offset) / np.repeat(counts, counts)
    return uniform


def _draw(table: Array, strata: Ints, rng: np.random.Generator) -> Ints:
    """Column index for each row, from the row of `table` (unnormalised) that its stratum names."""
    seen, where = np.unique(strata, return_inverse=True)
    cumulative = np.cumsum(table[seen], axis=1)
    cumulative /= cumulative[:, -1:]
    steps = (cumulative + np.arange(seen.size)[:, None]).reshape(-1)
    found = np.searchsorted(steps, where + _spread(where, rng), side="right")
    columns = found - where * table.shape[1]
    last = np.max(np.where(table[seen] > 0, np.arange(table.shape[1]), 0), axis=1)
    return np.asarray(np.clip(columns, 0, last[where]), dtype=np.int64)


def _codes(domain: Domain, columns: Mapping[str, npt.NDArray[np.integer]]) -> Codes:
    sizes = zip(domain.names, domain.sizes, strict=True)
    return Codes(domain, tuple(_small(columns[a], size) for a, size in sizes))


def _small(codes: npt.NDArray[np.integer], size: int) -> npt.NDArray[np.unsignedinteger]:
    """Return codes below `size` in the smallest type that holds them."""
    found: npt.NDArray[np.unsignedinteger] = codes.astype(np.min_scalar_type(size - 1), copy=False)
    return found


def sample_rows(tree: JunctionTree, beliefs: Sequence[Array], num_rows: int, *, key: Key) -> Codes:
    """Draw rows of the whole domain by a tree and its calibrated beliefs."""
    if num_rows < 0:
        raise DataError(f"num_rows is {num_rows}; ask for 0 rows or more")
    drawn: dict[str, npt.NDArray[np.integer]] = {}  # of the smallest type: rows may be millions
    for i, (clique, shared) in enumerate(zip(tree.cliques, tree.separators, strict=True)):
        rng = generator(fold_in(key, i))
        new = tuple(a for a in clique if a not in shared)
        axes = [clique.index(a) for a in shared + new]
        cells = tree.domain.size(shared) if shared else 1
        table = np.transpose(beliefs[i], axes).reshape(cells, -1)
        strata = np.zeros(num_rows, dtype=np.int64)
        if shared:
            index = np.ravel_multi_index([drawn[a] for a in shared], tree.domain.shape(shared))
            strata = np.asarray(index, dtype=np.int64)
        columns = _draw(table, strata, rng) if num_rows else strata
        split = np.unravel_index(columns, tree.domain.shape(new))
        for a, codes in zip(new, split, strict=True):
            drawn[a] = _small(codes, tree.domain.size_of(a))
    return _codes(tree.domain, drawn)


def _fixed(domain: Domain, names: Clique, known: Mapping[str, Ints]) -> Ints:
    if not names:
        raise DataError("known is empty; name at least one column, or use sample()")
    lengths = {a: len(known[a]) for a in names}
    if len(set(lengths.values())) != 1:
        raise DataError(f"known has columns of different lengths: {lengths}")
    for a in names:
        values = np.asarray(known[a])
        if values.size and not 0 <= values.min() <= values.max() < domain.size_of(a):
            raise DataError(f"known[{a!r}] has codes outside 0..{domain.size_of(a) - 1}")
    return np.stack([np.asarray(known[a], dtype=np.int64) for a in names], axis=1)


def _conditioned(
    plan: Propagation, potentials: Mapping[Clique, Array], value: Mapping[str, int]
) -> list[Array]:
    """Beliefs over the free attributes once the known ones have their values."""
    domain = plan.tree.domain
    sliced = {scope: np.zeros(domain.shape(scope)) for scope in plan.scopes}
    for clique, table in potentials.items():
        part = table[tuple(value.get(a, slice(None)) for a in clique)]
        scope = tuple(a for a in clique if a not in value)
        if scope:
            sliced[scope] = sliced[scope] + part
        elif not np.isfinite(part):
            raise DataError(f"the model gives {dict(value)} probability 0; change known")
    tables = [plan.inner(i, sliced[scope]) for i, scope in enumerate(plan.scopes)]
    try:
        return _beliefs(plan, tables)
    except FloatingPointError as error:
        raise DataError(f"the model gives {dict(value)} probability 0; change known") from error


def _beliefs(plan: Propagation, tables: Sequence[Array]) -> list[Array]:
    """Probability tables of a tree's cliques, axes in domain order, by potentials of the scopes."""
    pairs = zip(plan.tree.cliques, plan.run(tables), strict=False)  # inner cliques come last
    return [plan.table(clique, flat) for clique, flat in pairs]


_calibrated: WeakSet[MRF] = WeakSet()
"""Models in use that have their beliefs."""


def _known_beliefs(model: MRF) -> list[Array] | None:
    """Return the beliefs of a model in use whose potentials are the same, or None."""
    for other in list(_calibrated):
        beliefs: list[Array] | None = vars(other).get("beliefs")
        if beliefs is not None and _same_potentials(model, other):
            return beliefs
    return None


def _same_potentials(model: MRF, other: MRF) -> bool:
    """Whether two models have equal potentials on the same cliques, in the same order."""
    if model.domain != other.domain or list(model.potentials) != list(other.potentials):
        return False
    pairs = zip(model.potentials.values(), other.potentials.values(), strict=True)
    return all(np.array_equal(table, known) for table, known in pairs)


class MRF:
    """A Markov random field that stands for `total` rows.

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

    def __init__(self, domain: Domain, potentials: Mapping[Clique, Array], total: float) -> None:
        for clique, table in potentials.items():
            if table.shape != domain.shape(clique):
                raise ValueError(
                    f"potentials[{clique}] has shape {table.shape}; "
                    f"the domain needs {domain.shape(clique)}"
                )
        self.domain = domain
        self.potentials = dict(potentials)
        self.total = float(total)
        self._known: dict[Clique, Array] = {}

    @classmethod
    def uniform(cls, domain: Domain, total: float) -> MRF:
        """The model in which every cell of the domain is equally likely."""
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
        beliefs = _known_beliefs(self)
        if beliefs is None:
            plan = self._plan
            potentials = [plan.inner(i, self.potentials[c]) for i, c in enumerate(plan.scopes)]
            with single_blas():
                beliefs = _beliefs(plan, potentials)
        _calibrated.add(self)
        return beliefs

    def forget(self) -> None:
        """Drop beliefs and marginals, which take most of the memory; they are made again if needed.

        A fit that starts from this model needs its potentials alone.
        """
        vars(self).pop("beliefs", None)
        self._known.clear()

    def marginal(self, clique: Clique, *, keep: bool = True) -> Floats:
        """Expected counts of the cells of a clique, whose attributes are in domain order.

        They need not lie in one clique of the tree. The float64 array sums to `total`; it is
        read-only, and if it is to be kept the same object when asked again.
        """
        if clique not in self._known:
            home = self.tree.home(clique)
            if home is None:
                table = project(self.tree, self.beliefs, clique)
            else:
                table = self.beliefs[home].sum(axis=_gone(self.tree.cliques[home], clique))
            table = table * self.total
            table.flags.writeable = False
            if not keep:
                return table
            self._known[clique] = table
        return self._known[clique]

    def marginals(self, cliques: Sequence[Clique]) -> list[Floats]:
        """`marginal` of each; pairs that share no clique of the tree to the accuracy of float32."""
        new = [q for q in dict.fromkeys(cliques) if q not in self._known]
        tree, beliefs = self.tree, self.beliefs
        inside: dict[int, list[Clique]] = {}
        far = []
        for q in new:
            home = tree.home(q)
            if home is not None:
                inside.setdefault(home, []).append(q)
            elif len(q) == 2:
                far.append(q)

        def summed(i: int) -> list[tuple[Clique, Array]]:
            clique = tree.cliques[i]
            return list(_sums(beliefs[i], clique, clique, inside[i]))

        with single_blas():
            found = {q: t.astype(np.float64) for q, t in apart(tree, beliefs, far)}
        for sums in each(summed, list(inside)):
            found |= sums
        for q, table in found.items():
            known = table * self.total
            known.flags.writeable = False
            self._known[q] = known
        return [self.marginal(q) for q in cliques]

    def log_density(self, codes: Codes) -> Floats:
        """Natural logarithm of the model's probability of each row, shape (num_rows,)."""
        result = np.zeros(codes.num_rows)
        with np.errstate(divide="ignore"):
            for clique, separator, belief in zip(
                self.tree.cliques, self.tree.separators, self.beliefs, strict=True
            ):
                ratio = given_others(belief, _gone(clique, separator))
                result += np.log(ratio).reshape(-1)[codes.flat(clique)]
        return result

    def sample(self, num_rows: int | None = None, *, key: Key) -> Codes:
        """Draw rows with low variance: counts of every tree clique are rounded, not multinomial.

        There are `total` rows, rounded, if `num_rows` is not given; they are in random order.
        """
        rows = round(self.total) if num_rows is None else num_rows
        return sample_rows(self.tree, self.beliefs, rows, key=key)

    def sample_given(self, known: Mapping[str, Ints], *, key: Key) -> Codes:
        """Complete rows of which some columns are fixed, each drawn from the exact conditional.

        `known` holds codes of the fixed columns, one entry per row wanted.

        Raises:
            DataError: if a column is unknown, codes lie outside the domain, lengths differ, or
                the model gives a combination probability 0.
        """
        names = self.domain.canonical(known)
        fixed = _fixed(self.domain, names, known)
        patterns, where = np.unique(fixed, axis=0, return_inverse=True)
        where = where.reshape(-1)
        rest = tuple(a for a in self.domain.names if a not in names)
        columns = {a: fixed[:, i].copy() for i, a in enumerate(names)}
        columns |= {a: np.empty(len(fixed), dtype=np.int64) for a in rest}
        if rest:
            free = Domain(rest, self.domain.shape(rest))
            cliques = [tuple(a for a in c if a in rest) for c in self.potentials]
            scopes = list(dict.fromkeys(c for c in cliques if c))
            plan = Propagation.over(free, tuple(scopes))
            for i, pattern in enumerate(patterns):
                value = dict(zip(names, pattern.tolist(), strict=True))
                beliefs = _conditioned(plan, self.potentials, value)
                rows = np.flatnonzero(where == i)
                drawn = sample_rows(plan.tree, beliefs, rows.size, key=fold_in(key, i))
                for a in rest:
                    columns[a][rows] = drawn.column(a)
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
        """Read a model written by `save`; raises DataError where the file holds no such model."""
        try:
            with safe_open(str(path), framework="numpy") as file:
                header: dict[str, str] = file.metadata() or {}
                if header.get("format") != _FORMAT:
                    raise DataError(f"{path} is no model file of format {_FORMAT}")
                cliques = [tuple(c) for c in json.loads(header["cliques"])]
                tables = {c: file.get_tensor(str(i)) for i, c in enumerate(cliques)}
            return cls._of_file(header, tables)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, SchemaError) as error:
            raise DataError(f"{path} cannot be read as a model: {error}") from error

    @classmethod
    def _of_file(cls, header: Mapping[str, str], tables: Mapping[Clique, Array]) -> MRF:
        """A model from a file's contents; ValueError where they contradict each other."""
        names, sizes = (tuple(json.loads(header[part])) for part in ("names", "sizes"))
        domain, total = Domain(names, sizes), float(header["total"])
        if not all(isinstance(name, str) for name in names):
            raise ValueError("a column's name is not text")
        if not 0.0 <= total < math.inf:
            raise ValueError(f"it stands for {total} rows")
        for clique, table in tables.items():
            if clique != domain.canonical(clique):
                raise ValueError(f"{clique} is not in the order of the columns")
            if table.dtype != np.float64 or np.isnan(table).any() or np.isposinf(table).any():
                raise ValueError(f"the table of {clique} is not of numbers")
        return cls(domain, tables, total)
