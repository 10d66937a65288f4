"""Exact functions of codes, not private: marginals, workloads and their closure, association.

Source of Cramer's V:
    Bergsma 2013, *A bias-correction for Cramer's V and Tschuprow's T* (Journal of the Korean
    Statistical Society 42).
Source of R-scores:
    Cai, Lei, Wei & Xiao 2021, *Data synthesis via differentially private Markov random fields*
    (VLDB 14(11)).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

import numpy as np

from siloweave.errors import InputError
from siloweave.tables.arrays import Floats, Ints
from siloweave.tables.codes import Clique, Codes, CountedRows, Domain
from siloweave.tables.keys import Key, generator


def marginal(rows: CountedRows, clique: Sequence[str]) -> Ints:
    """Count the rows in every cell of a clique.

    The result is int64 of shape ``rows.domain.shape(clique)``, axes in the clique's order.

    Example:
        >>> codes = Codes(Domain(("a", "b"), (2, 2)), (np.array([0, 1, 1]), np.array([0, 1, 1])))
        >>> marginal(codes, ("a", "b")).tolist()
        [[1, 0], [0, 2]]
    """
    (counts,) = rows.count([clique])
    return counts


def sparse_marginal(rows: CountedRows, clique: Sequence[str]) -> tuple[Ints, Ints]:
    """Count the rows in the non-empty cells of a clique: for few rows in a huge domain.

    Returns int64 cells, numbered in C order and ascending, and their int64 counts, at least 1.
    """
    if not isinstance(rows, Codes):
        counts = marginal(rows, clique).reshape(-1)
        cells = np.flatnonzero(counts)
        return cells, counts[cells]

    cells = np.sort(rows.flat(clique))
    if not len(cells):
        return cells, cells.copy()

    # Where a run of equal cells ends. A run's count is what lies between two ends; the first one
    # begins before all rows.
    changes = np.flatnonzero(cells[1:] != cells[:-1])
    ends = np.append(changes, len(cells) - 1)
    counts = ends + 1
    counts[1:] -= ends[:-1] + 1
    return cells[ends], counts


def closure(workload: Iterable[Sequence[str]], domain: Domain) -> list[Clique]:
    """Return all non-empty subsets of a workload's cliques, each once, sorted by size.

    Those of one size are in the order of the domain.

    Raises:
        SchemaError: A clique has a column that the domain lacks.

    Example:
        >>> closure([("a", "b"), ("b", "c")], Domain(("a", "b", "c"), (2, 2, 2)))
        [('a',), ('b',), ('c',), ('a', 'b'), ('b', 'c')]
    """
    # Wide tables have many pairs, and positions are sorted much faster than names are by them.
    by_size: dict[int, set[tuple[int, ...]]] = {}
    for clique in set(map(tuple, workload)):
        positions = tuple(sorted({domain.position(name) for name in clique}))
        by_size.setdefault(len(positions), set()).add(positions)
    by_size.pop(0, None)

    # The largest first: the subsets of a set are those of what it has without one of its columns.
    for size in range(max(by_size, default=0), 1, -1):
        smaller = by_size.setdefault(size - 1, set())
        for positions in by_size.get(size, ()):
            smaller.update(combinations(positions, size - 1))

    cliques: list[Clique] = []
    for size in sorted(by_size):
        for positions in sorted(by_size[size]):
            cliques.append(tuple([domain.names[position] for position in positions]))
    return cliques


def random_workload(
    domain: Domain, degree: int, count: int, *, seed: Key
) -> list[Clique]:
    """Draw distinct cliques of `degree` attributes uniformly, in lexicographic domain order.

    There are `count` of them, or all where fewer exist.

    Raises:
        InputError: When ``degree`` or ``count`` is out of range.
    """
    width = len(domain.names)
    if not 1 <= degree <= width:
        raise InputError(
            f"degree={degree} must be from 1 to the number of attributes, {width}"
        )
    if count < 1:
        raise InputError(f"count={count} must be 1 or more")
    total = comb(width, degree)
    if count >= total:
        return list(combinations(domain.names, degree))

    # Ranks are drawn and not cliques, of which a wide table has more than fit in memory.
    ranks = generator(seed).choice(total, size=count, replace=False)
    return [_unranked(domain.names, degree, int(rank)) for rank in np.sort(ranks)]


def _unranked(names: Sequence[str], degree: int, rank: int) -> Clique:
    """Return the combination that stands at a place of the lexicographic order."""
    clique: list[str] = []
    for i, name in enumerate(names):
        missing = degree - len(clique)
        if missing == 0:
            break
        # Combinations that continue with this name come before all that leave it out.
        with_name = comb(len(names) - i - 1, missing - 1)
        if rank < with_name:
            clique.append(name)
        else:
            rank -= with_name
    return tuple(clique)


def cramers_v(codes: Codes) -> Floats:
    """Return the bias-corrected Cramer's V of every pair of attributes (Bergsma 2013).

    The float64 matrix is symmetric, in domain order, 0 (independent) to 1; the diagonal is 1. A
    pair with an attribute of one value only has 0.

    Example:
        >>> from siloweave.tables.codes import Domain
        >>> same = np.tile([0, 1], 50)
        >>> cramers_v(Codes(Domain(("a", "b"), (2, 2)), (same, same))).round(2).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    names = codes.domain.names
    matrix = np.eye(len(names))
    for i, j in combinations(range(len(names)), 2):
        counts = marginal(codes, (names[i], names[j]))
        # Values that no row has would have an expected count of 0.
        occurring = counts[counts.any(axis=1)][:, counts.any(axis=0)]
        value = 0.0
        if min(occurring.shape) > 1:
            value = _corrected(occurring)
        matrix[i, j] = value
        matrix[j, i] = value
    return matrix


def r_score(rows: CountedRows, pair: Sequence[str]) -> int:
    """Return how far two attributes are from independent: (n / 2) ||P_ij - P_i x P_j||_1.

    That is how many rows would have to move, from 0 to n, rounded down to whole rows. It is
    computed in integers: 2 n times the score is the sum of |n c_ij - c_i c_j|.

    Example:
        >>> same = np.tile([0, 1], 50)
        >>> r_score(Codes(Domain(("a", "b"), (2, 2)), (same, same)), ("a", "b"))
        50
    """
    counts = marginal(rows, pair)
    n = int(counts.sum())
    independent = np.outer(counts.sum(axis=1), counts.sum(axis=0))
    apart = np.abs(n * counts - independent)
    # Rounded down, as the bound on how far a unit moves it assumes (budget.r_score_sensitivity).
    return int(apart.sum()) // max(1, 2 * n)


def _corrected(counts: Ints) -> float:
    """Return the bias-corrected Cramer's V of counts, in which no row or column is empty.

    Bergsma 2013: with r rows and c columns, max(0, phi^2 - (r - 1)(c - 1) / (n - 1)) is divided by
    min(r', c') - 1, where r' = r - (r - 1)^2 / (n - 1), and c' likewise.
    """
    n = float(counts.sum())
    if n < 2:
        return 0.0

    rows, columns = counts.shape
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / n
    phi_squared = float(((counts - expected) ** 2 / expected).sum()) / n
    bias = (rows - 1) * (columns - 1) / (n - 1)
    corrected = max(0.0, phi_squared - bias)

    sizes = (size - (size - 1) ** 2 / (n - 1) for size in (rows, columns))
    largest = min(sizes) - 1
    # Fewer rows than values leave nothing to divide by.
    if largest <= 0:
        return 0.0
    return min(1.0, float(np.sqrt(corrected / largest)))
