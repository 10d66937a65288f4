"""Rows from a calibrated junction tree, with low variance and on condition.

Going down the tree, the rows that share a separator value form a stratum; each draws the clique's
other attributes by systematic sampling (one uniform offset per stratum, evenly spaced points), so
that a clique's counts are within one of what the separator's counts let expect, instead of
multinomially spread.
Each row by itself still has exactly the model's distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from siloweave.errors import DataError
from siloweave.models.junction_tree import JunctionTree
from siloweave.models.propagation import Array, Propagation
from siloweave.tables.codes import Clique, Codes, Domain
from siloweave.tables.keys import Key, fold_in, generator

__all__ = ["sample_given", "sample_rows"]

Ints = npt.NDArray[np.int64]


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


def _codes(domain: Domain, columns: Mapping[str, Ints]) -> Codes:
    return Codes(domain, tuple(columns[a].astype(np.uint64) for a in domain.names))


def sample_rows(tree: JunctionTree, beliefs: Sequence[Array], num_rows: int, *, key: Key) -> Codes:
    """Draw rows of the whole domain.

    Args:
        tree: The junction tree.
        beliefs: Calibrated probabilities of its cliques, axes in domain order.
        num_rows: How many rows; 0 gives none.
        key: Seed or key.
    """
    if num_rows < 0:
        raise DataError(f"num_rows is {num_rows}; ask for 0 rows or more")
    drawn: dict[str, Ints] = {}
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
        drawn |= {a: np.asarray(c, dtype=np.int64) for a, c in zip(new, split, strict=True)}
    return _codes(tree.domain, drawn)


def sample_given(
    domain: Domain,
    potentials: Mapping[Clique, Array],
    known: Mapping[str, Ints],
    *,
    key: Key,
) -> Codes:
    """Complete rows whose columns in `known` are fixed; see `MRF.sample_given`."""
    names = domain.canonical(known)
    fixed = _checked(domain, names, known)
    patterns, where = np.unique(fixed, axis=0, return_inverse=True)
    where = where.reshape(-1)
    rest = tuple(a for a in domain.names if a not in names)
    columns = {a: fixed[:, i].copy() for i, a in enumerate(names)}
    columns |= {a: np.empty(len(fixed), dtype=np.int64) for a in rest}
    if rest:
        free = Domain(rest, domain.shape(rest))
        cliques = [tuple(a for a in c if a in rest) for c in potentials]
        tree = JunctionTree.build(free, [c for c in cliques if c])
        scopes = list(dict.fromkeys(c for c in cliques if c))
        plan = Propagation(tree, scopes)
        for i, pattern in enumerate(patterns):
            value = dict(zip(names, pattern.tolist(), strict=True))
            beliefs = _conditioned(plan, potentials, value)
            rows = np.flatnonzero(where == i)
            drawn = sample_rows(tree, beliefs, rows.size, key=fold_in(key, i))
            for a in rest:
                columns[a][rows] = drawn.column(a)
    return _codes(domain, columns)


def _checked(domain: Domain, names: Clique, known: Mapping[str, Ints]) -> Ints:
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
        run = plan.run(tables, keep=True)
    except FloatingPointError as error:
        raise DataError(f"the model gives {dict(value)} probability 0; change known") from error
    pairs = zip(plan.tree.cliques, run.beliefs, strict=True)
    return [plan.table(clique, flat) for clique, flat in pairs]
