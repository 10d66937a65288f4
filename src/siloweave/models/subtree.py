"""Marginals of attributes that no single clique of a calibrated tree holds.

Only the part of the tree between the wanted attributes is touched: other cliques sum to one given
their separator and are cut off (Koller & Friedman 2009, section 10.3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from siloweave.models.junction_tree import JunctionTree
from siloweave.models.propagation import Array
from siloweave.tables.codes import Clique

__all__ = ["project"]

_CELLS = 1 << 24  # of a table on the way, 128 MB


@dataclass(frozen=True)
class _Table:
    names: Clique
    values: Array


def _sum_to(table: _Table, kept: Sequence[str]) -> _Table:
    gone = tuple(i for i, a in enumerate(table.names) if a not in kept)
    return _Table(tuple(a for a in table.names if a in kept), table.values.sum(axis=gone))


def _product_sum(left: _Table, right: _Table, kept: Sequence[str]) -> _Table:
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
    """Probability table of `clique`.

    A table on the way holds the wanted attributes that it has met beside a separator; where that
    is more than 16 million cells, values of some wanted attributes are taken block by block.

    Args:
        tree: The junction tree.
        beliefs: Calibrated probabilities of its cliques, axes in domain order.
        clique: Attributes in domain order.

    Returns:
        Array of shape `domain.shape(clique)` that sums to 1.
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
            messages[step.member] = _message(step, _part(tables[step.member], at), messages)
        last = messages[root]
        place = tuple(at.get(a, slice(None)) for a in clique)
        found[place] = np.transpose(last.values, [last.names.index(a) for a in clique])
    return found


@dataclass(frozen=True)
class _Step:
    """What a member of the subtree does once its children have spoken.

    Attributes:
        member: Its place in the tree.
        parent: That of who hears it; None for the root.
        upward: What it shares with the parent.
        needed: Of its own attributes, those that anyone still asks for.
        children: Per child, its place and what is kept once it has been multiplied in.
        met: Attributes of its table after each child.
        sent: Attributes of its message.
    """

    member: int
    parent: int | None
    upward: frozenset[str]
    needed: frozenset[str]
    children: tuple[tuple[int, frozenset[str]], ...]
    met: tuple[frozenset[str], ...]
    sent: frozenset[str]


def _steps(tree: JunctionTree, root: int, alive: Sequence[int], wanted: set[str]) -> list[_Step]:
    """The subtree's members, children before parents."""
    told: dict[int, list[tuple[int, frozenset[str]]]] = {i: [] for i in alive}
    steps = []
    for i in reversed(alive):
        parent = None if i == root else tree.parents[i]
        upward = frozenset(() if parent is None else tree.separators[i])
        needed = frozenset(tree.cliques[i]) & wanted.union(upward, *(said for _, said in told[i]))
        met, children = [needed], []
        for at, (child, said) in enumerate(told[i]):
            kept = frozenset(wanted).union(upward, *(late for _, late in told[i][at + 1 :]))
            children.append((child, kept))
            met.append((met[-1] | said) & kept)
        sent = met[-1] & (wanted | upward)
        steps.append(_Step(i, parent, upward, needed, tuple(children), tuple(met), sent))
        if parent is not None:
            told[parent].append((i, sent))
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
    """What a member says of the attributes that are needed, given what its parent knows."""
    table = _sum_to(_Table(tree.cliques[step.member], beliefs[step.member]), tuple(step.needed))
    return table if step.parent is None else _condition(table, set(step.upward))


def _part(table: _Table, at: Mapping[str, slice[int, int, None]]) -> _Table:
    """Some values of some attributes."""
    return _Table(table.names, table.values[tuple(at.get(a, slice(None)) for a in table.names)])


def _message(step: _Step, table: _Table, messages: Mapping[int, _Table]) -> _Table:
    """What a member tells its parent; at the root, the table of the wanted attributes."""
    for child, kept in step.children:
        table = _product_sum(table, messages[child], tuple(kept))
    return _sum_to(table, tuple(step.sent))


def _condition(table: _Table, given: set[str]) -> _Table:
    gone = tuple(i for i, a in enumerate(table.names) if a not in given)
    shared = table.values.sum(axis=gone, keepdims=True)
    values = np.divide(table.values, shared, out=np.zeros_like(table.values), where=shared > 0)
    return _Table(table.names, values)
