"""Exact counts of codes: marginals, workloads and their closure, counting in a stream.

How strongly each pair of attributes goes together, from codes: exact, not private.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from siloweave.errors import InputError
from siloweave.tables.codes import Clique, Codes, Domain
from siloweave.tables.keys import Key, generator


def marginal(codes: Codes, clique: Sequence[str]) -> NDArray[np.int64]:
    """Count the rows in every cell of a clique.

    Args:
        codes: The rows.
        clique: Attributes, in the order of the result's axes.

    Returns:
        int64 counts of shape ``codes.domain.shape(clique)``; they sum to the number of rows.

    Example:
        >>> codes = Codes(Domain(("a", "b"), (2, 2)), (np.array([0, 1, 1]), np.array([0, 1, 1])))
        >>> marginal(codes, ("a", "b")).tolist()
        [[1, 0], [0, 2]]
    """
    shape = codes.domain.shape(clique)
    counts = np.bincount(codes.flat(clique), minlength=codes.domain.size(clique))
    return counts.reshape(shape)


def sparse_marginal(
    codes: Codes, clique: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the rows in a clique's cells that have any: for few rows in a huge domain.

    Args:
        codes: The rows.
        clique: Attributes; cells are numbered in C order of them.

    Returns:
        Cells (int64, ascending) and their counts (int64, at least 1).

    Example:
        >>> codes = Codes(Domain(("a", "b"), (2, 2)), (np.array([0, 1, 1]), np.array([0, 1, 1])))
        >>> [array.tolist() for array in sparse_marginal(codes, ("a", "b"))]
        [[0, 3], [1, 2]]
    """
    cells = np.sort(codes.flat(clique))
    if not len(cells):
        return cells, cells.copy()
    ends = np.append(np.flatnonzero(cells[1:] != cells[:-1]), len(cells) - 1)
    counts = ends + 1
    counts[1:] -= ends[:-1] + 1
    return cells[ends], counts


def closure(workload: Iterable[Sequence[str]], domain: Domain | None = None) -> list[Clique]:
    """Return every non-empty subset of a workload's cliques, each once.

    Args:
        workload: Cliques, each in domain order.
        domain: Settles the order; without it cliques of one size are sorted by their names.

    Returns:
        Cliques sorted by size, then lexicographically in domain order.

    Example:
        >>> closure([("a", "b"), ("b", "c")])
        [('a',), ('b',), ('c',), ('a', 'b'), ('b', 'c')]
    """
    below: set[Clique] = set()
    for clique in set(map(tuple, workload)):
        ordered = domain.canonical(clique) if domain else clique
        for size in range(1, len(ordered) + 1):
            below.update(combinations(ordered, size))
    if domain is None:
        return sorted(below, key=lambda clique: (len(clique), clique))
    return sorted(below, key=lambda c: (len(c), tuple(map(domain.position, c))))


def random_workload(domain: Domain, degree: int, count: int, *, seed: Key) -> list[Clique]:
    """Draw distinct cliques of one size, uniformly.

    Args:
        domain: The attributes to choose from.
        degree: Attributes per clique, from 1 to the domain's.
        count: How many cliques; all there are when fewer exist.
        seed: A key; the same one gives the same workload.

    Returns:
        Cliques in lexicographic domain order.

    Raises:
        InputError: When ``degree`` or ``count`` is out of range.

    Example:
        >>> random_workload(Domain(("a", "b", "c"), (2, 2, 2)), 2, 9, seed=0)
        [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    width = len(domain.names)
    if not 1 <= degree <= width:
        raise InputError(f"degree={degree} must be from 1 to the number of attributes, {width}")
    if count < 1:
        raise InputError(f"count={count} must be 1 or more")
    total = comb(width, degree)
    if count >= total:
        return list(combinations(domain.names, degree))
    ranks = generator(seed).choice(total, size=count, replace=False)
    return [_unranked(domain.names, degree, int(rank)) for rank in np.sort(ranks)]


def _unranked(names: Sequence[str], degree: int, rank: int) -> Clique:
    """Return the combination at a place of the lexicographic order."""
    chosen: list[str] = []
    for i, name in enumerate(names):
        needed = degree - len(chosen)
        if needed == 0:
            break
        with_it = comb(len(names) - i - 1, needed - 1)
        if rank < with_it:
            chosen.append(name)
        else:
            rank -= with_it
    return tuple(chosen)


def count_batches(
    batches: Iterable[Codes], cliques: Sequence[Sequence[str]]
) -> list[NDArray[np.int64]]:
    """Count many cliques over rows that come in pieces, holding one piece at a time.

    Args:
        batches: Codes of one domain; at least one piece.
        cliques: What to count.

    Returns:
        One int64 array per clique, as `marginal` of all rows.

    Raises:
        InputError: When there is no piece, or domains differ.
    """
    domain: Domain | None = None
    totals: list[NDArray[np.int64]] = []
    for i, codes in enumerate(batches):
        if domain is None:
            domain = codes.domain
            totals = [np.zeros(domain.shape(clique), dtype=np.int64) for clique in cliques]
        elif codes.domain != domain:
            raise InputError(f"piece {i} is coded in another domain than piece 0")
        for total, clique in zip(totals, cliques, strict=True):
            total += marginal(codes, clique)
    if domain is None:
        raise InputError("nothing to count: the stream has no piece")
    return totals


Counts = NDArray[np.int64] | NDArray[np.float64]


def cramers_v(codes: Codes) -> NDArray[np.float64]:
    """Return the bias-corrected Cramer's V of every pair of attributes.

    Bergsma, W. (2013), "A bias-correction for Cramer's V and Tschuprow's T", Journal of the Korean
    Statistical Society 42(3).

    Args:
        codes: The rows.

    Returns:
        Symmetric float64 matrix in domain order, 0 (independent) to 1; the diagonal is 1. A pair
        with an attribute of one value only has 0.

    Example:
        >>> from siloweave.tables.codes import Domain
        >>> same = np.tile([0, 1], 50)
        >>> cramers_v(Codes(Domain(("a", "b"), (2, 2)), (same, same))).round(2).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    return _pairs(codes, _v)


def mutual_information(codes: Codes) -> NDArray[np.float64]:
    """Return the normalised mutual information of every pair of attributes.

    Args:
        codes: The rows.

    Returns:
        Symmetric float64 matrix in domain order: mutual information over the geometric mean of
        both entropies, 0 (independent) to 1; the diagonal is 1. A pair with an attribute of one
        value only has 0.

    Example:
        >>> from siloweave.tables.codes import Domain
        >>> a, b = np.tile([0, 1], 50), np.tile([0, 0, 1, 1], 25)
        >>> float(mutual_information(Codes(Domain(("a", "b"), (2, 2)), (a, b)))[0, 1])
        0.0
    """
    return _pairs(codes, _nmi)


def _pairs(codes: Codes, measure: Callable[[Counts], float]) -> NDArray[np.float64]:
    width = len(codes.domain.names)
    matrix = np.eye(width)
    for i, j in combinations(range(width), 2):
        counts = marginal(codes, (codes.domain.names[i], codes.domain.names[j]))
        kept = counts[counts.any(axis=1)][:, counts.any(axis=0)]
        matrix[i, j] = matrix[j, i] = measure(kept) if min(kept.shape) > 1 else 0.0
    return matrix


def _v(counts: Counts) -> float:
    n = float(counts.sum())
    if n < 2:
        return 0.0
    rows, columns = counts.shape
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / n
    phi = float(((counts - expected) ** 2 / expected).sum()) / n
    phi = max(0.0, phi - (rows - 1) * (columns - 1) / (n - 1))
    rows_left = rows - (rows - 1) ** 2 / (n - 1)
    columns_left = columns - (columns - 1) ** 2 / (n - 1)
    left = min(rows_left, columns_left) - 1
    return min(1.0, float(np.sqrt(phi / left))) if left > 0 else 0.0


def _nmi(counts: Counts) -> float:
    from scipy.special import entr

    joint = counts / counts.sum()
    rows, columns = (float(entr(joint.sum(axis=axis)).sum()) for axis in (1, 0))
    information = rows + columns - float(entr(joint).sum())
    scale = float(np.sqrt(rows * columns))
    return min(1.0, max(0.0, information / scale)) if scale > 0 else 0.0
