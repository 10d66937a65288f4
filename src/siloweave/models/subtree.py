"""Marginals of attributes that no single clique of a calibrated tree holds.

Only the part of the tree between the wanted attributes is touched: other cliques sum to one given
their separator and are cut off (Koller & Friedman 2009, section 10.3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from siloweave.models.junction_tree import JunctionTree
from siloweave.models.propagation import Array
from siloweave.tables.codes import Clique

__all__ = ["project"]


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

    Args:
        tree: The junction tree.
        beliefs: Calibrated probabilities of its cliques, axes in domain order.
        clique: Attributes in domain order.

    Returns:
        Array of shape `domain.shape(clique)` that sums to 1.
    """
    wanted = set(clique)
    root, alive = _between(tree, wanted)
    messages: dict[int, list[_Table]] = {i: [] for i in alive}
    for i in reversed(alive):
        below = [m.names for m in messages[i]]
        upward: set[str] = set() if i == root else set(tree.separators[i])
        needed = wanted.union(upward, *below)
        table = _sum_to(_Table(tree.cliques[i], beliefs[i]), tuple(needed))
        if upward:
            table = _condition(table, upward)
        for at, message in enumerate(messages[i]):
            later = set().union(*below[at + 1 :])
            table = _product_sum(table, message, tuple(wanted | upward | later))
        if i == root:
            order = [table.names.index(a) for a in clique]
            return np.ascontiguousarray(np.transpose(table.values, order))
        messages[tree.parents[i]].append(_sum_to(table, tuple(wanted | upward)))
    raise AssertionError("a subtree has a root")


def _condition(table: _Table, given: set[str]) -> _Table:
    gone = tuple(i for i, a in enumerate(table.names) if a not in given)
    shared = table.values.sum(axis=gone, keepdims=True)
    values = np.divide(table.values, shared, out=np.zeros_like(table.values), where=shared > 0)
    return _Table(table.names, values)
