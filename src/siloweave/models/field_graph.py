"""Which marginals a Markov random field should know, from noisy scores of all pairs of attributes.

Cai, Lei, Wei & Xiao 2021, "Data synthesis via differentially private Markov random fields" (VLDB
14(11)): a graph of dependent pairs that stays small once it is triangulated, and inside its maximal
cliques the marginals to measure. A marginal is *useful* if its mean count is at least theta times
the expected size of the noise on a cell.

Where this departs from the paper: cliques are those of the triangulation that the fit itself uses
(models/junction_tree.py: least weight first), so what fits here fits there. Least initial degree,
as published, needs 1.7 times the cells on random graphs over Adult's columns, 1.5 times on BR2000's
(medians of 200). The search for an edge trusts gains that were computed earlier until an edge comes
up; a Bayes net starts at the attribute that depends most on the others instead of a random one, and
its parents are found one by one (Hall 1999).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import pi, sqrt

import numpy as np

from siloweave.models.junction_tree import maximal_cliques
from siloweave.tables.codes import Clique, Domain

_MOST_CANDIDATES = 200_000


@dataclass(frozen=True)
class GraphLimits:
    """How large a graph's model may become.

    Attributes:
        clique_cells: Cells of its largest clique, at most.
        total_cells: Cells of all its maximal cliques, at most.
        penalty: What a cell costs, in the unit of the scores.
    """

    clique_cells: float
    total_cells: float
    penalty: float = 0.0


def most_useful_cells(rows: float, sigma: float, theta: float) -> float:
    """Cells of the largest marginal that is useful: n / cells >= theta sigma sqrt(2 / pi).

    The paper's rule; it is printed the wrong way round in Zhao et al.'s VertiMRF.

    Example:
        >>> round(most_useful_cells(45222, 26.6, 6.0))
        355
    """
    return rows / (theta * sigma * sqrt(2 / pi))


def grow_graph(
    domain: Domain, scores: Mapping[Clique, float], limits: GraphLimits
) -> tuple[list[Clique], list[Clique]]:
    """Edges whose triangulation holds as much dependence as the limits allow; greedy.

    The objective is the sum of the scores of all pairs inside a maximal clique, minus the penalty.
    While the limits allow, the best edge is added even if the objective falls, as the authors' code
    has it: noise makes scores negative, and a pair outside of all cliques can never be measured.

    Args:
        domain: Attributes and sizes.
        scores: Of the pairs that may become edges; noisy, maybe negative.
        limits: Of the model.

    Returns:
        The edges, in the order in which they were added, and the maximal cliques.

    Example:
        >>> domain = Domain(("a", "b", "c"), (2, 2, 2))
        >>> scores = {("a", "b"): 9.0, ("b", "c"): 5.0, ("a", "c"): 1.0}
        >>> grow_graph(domain, scores, GraphLimits(4, 8))
        ([('a', 'b'), ('b', 'c')], [('a', 'b'), ('b', 'c')])
    """
    edges: list[Clique] = []

    def value(added: Sequence[Clique]) -> float | None:
        cliques = maximal_cliques(domain, [*edges, *added])
        cells = [domain.size(c) for c in cliques]
        if max(cells) > limits.clique_cells or sum(cells) > limits.total_cells:
            return None
        inside = {pair for c in cliques for pair in combinations(c, 2)}
        return sum(scores.get(pair, 0.0) for pair in inside) - limits.penalty * sum(cells)

    gains = dict(scores)
    now, fresh = value([]) or 0.0, set[Clique]()
    while gains:
        edge = max(gains, key=gains.__getitem__)
        if edge in fresh:
            now += gains.pop(edge)
            edges.append(edge)
            fresh = set()
        elif (then := value([edge])) is None:
            del gains[edge]
        else:
            gains[edge] = then - now
            fresh.add(edge)
    return edges, maximal_cliques(domain, edges)


def families(
    domain: Domain,
    clique: Clique,
    scores: Mapping[Clique, float],
    most_cells: float,
    most_columns: int,
) -> Iterator[tuple[str, Clique, float]]:
    """A greedy Bayes net over a clique: each attribute but the first, with its parents.

    Args:
        domain: Attributes and sizes.
        clique: What the net is over.
        scores: Dependence of every pair, as a share of the rows.
        most_cells: Of a useful marginal.
        most_columns: Of a marginal.

    Yields:
        Attribute, marginal of it and its parents, and the merit of these parents p:
        sum R(a, p) / sqrt(max(1, k + sum R(p, p'))).
    """

    def r(one: str, other: str) -> float:
        return scores.get(domain.canonical((one, other)), 0.0)

    def parents_of(a: str) -> tuple[float, list[str]]:
        chosen: list[str] = []
        merit, relevance, shared = -np.inf, 0.0, 0.0
        while len(chosen) < most_columns - 1:
            room = most_cells / domain.size([a, *chosen])
            best = -np.inf
            for p in placed:
                if p in chosen or domain.size_of(p) > room:
                    continue
                up, among = relevance + r(a, p), shared + sum(r(p, c) for c in chosen)
                if (score := up / sqrt(max(1.0, len(chosen) + 1 + among))) > best:
                    best, found = score, (p, up, among)
            if best == -np.inf:
                break
            merit, (parent, relevance, shared) = best, found
            chosen.append(parent)
        return merit, chosen

    left = list(clique)
    placed = [max(left, key=lambda a: sum(r(a, b) for b in left if b != a))]
    left.remove(placed[0])
    while left:
        found = {a: parents_of(a) for a in left}
        a = max(left, key=lambda a: found[a][0])
        merit, parents = found[a]
        if not parents:
            return
        yield a, domain.canonical([a, *parents]), merit
        placed.append(a)
        left.remove(a)


def initial_marginals(
    domain: Domain,
    cliques: Sequence[Clique],
    scores: Mapping[Clique, float],
    most_cells: float,
    most_columns: int,
) -> list[Clique]:
    """The best useful marginal of each attribute over the nets of all cliques, and none twice.

    None is inside another one, and an attribute that is in none is one by itself. Where there are
    fewer than attributes, others of the nets are among them, those of the greatest merit first.

    Example:
        >>> domain = Domain(("a", "b", "c"), (2, 2, 2))
        >>> initial_marginals(domain, [("a", "b"), ("c",)], {("a", "b"): 0.4}, 8, 6)
        [('a', 'b'), ('c',)]
    """
    found = [
        (merit, a, family)
        for clique in cliques
        for a, family, merit in families(domain, clique, scores, most_cells, most_columns)
    ]
    best: dict[str, tuple[float, Clique]] = {}
    for merit, a, family in found:
        best[a] = max(best.get(a, (merit, family)), (merit, family))

    def lone(chosen: Sequence[Clique]) -> list[Clique]:
        covered = {a for q in chosen for a in q}
        return [(a,) for a in domain.names if a not in covered]

    kept: list[Clique] = []
    first = sorted({family for _, family in best.values()}, key=lambda q: (-len(q), q))
    for q in [*first, *(family for _, _, family in sorted(found, reverse=True))]:
        nested = any(set(q) <= set(other) or set(other) <= set(q) for other in kept)
        if not nested and len(kept) + 1 + len(lone([*kept, q])) <= len(domain.names):
            kept.append(q)
    return [*kept, *lone(kept)]


def candidate_weights(
    domain: Domain,
    cliques: Sequence[Clique],
    most_cells: float,
    most_columns: int,
    rng: np.random.Generator,
) -> dict[Clique, float]:
    """Useful marginals inside the cliques, each with the weight by which it is sampled.

    A clique of k attributes gives k^2, in equal parts to its marginals, so that large cliques do
    not crowd out small ones; one-way marginals are always useful. Where there are too many for
    memory, the widest of a clique are left out at random.
    """
    weights: dict[Clique, float] = {}
    for clique in cliques:
        names = rng.permutation(np.array(clique)).tolist()
        inside = _useful(domain, names, most_cells, most_columns)
        found = list(islice(inside, max(len(clique), _MOST_CANDIDATES // len(cliques))))
        for q in found:
            weights[q] = weights.get(q, 0.0) + len(clique) ** 2 / len(found)
    return weights


def _useful(
    domain: Domain, names: Sequence[str], most_cells: float, most_columns: int
) -> Iterator[Clique]:
    """Small marginals first; where none of a size is useful, no larger one is."""
    for size in range(1, min(most_columns, len(names)) + 1):
        useful = False
        for q in combinations(names, size):
            if size == 1 or domain.size(q) <= most_cells:
                useful = True
                yield domain.canonical(q)
        if not useful:
            return
