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
from math import inf, pi, sqrt
from typing import NamedTuple

import numpy as np

from siloweave.models.junction_tree import maximal_cliques
from siloweave.tables.codes import Clique, Domain

# So many marginals of all cliques together are sampled from, at most.
_MOST_CANDIDATES = 200_000


@dataclass(frozen=True)
class GraphLimits:
    """The limits on the size of a graph's model.

    Attributes:
        clique_cells: Cells of its largest clique, at most.
        total_cells: Cells of all its maximal cliques, at most.
        penalty: What a cell costs, in the unit of the scores.
    """

    clique_cells: float
    total_cells: float
    penalty: float = 0.0


def most_useful_cells(rows: float, sigma: float, theta: float) -> float:
    """Return the cells of the largest useful marginal, where n / cells >= theta sigma sqrt(2 / pi).

    The paper's rule; it is printed the wrong way round in Zhao et al.'s VertiMRF.

    Example:
        >>> round(most_useful_cells(45222, 26.6, 6.0))
        355
    """
    return rows / (theta * sigma * sqrt(2 / pi))


def grow_graph(
    domain: Domain,
    scores: Mapping[Clique, float],
    limits: GraphLimits,
) -> tuple[list[Clique], list[Clique]]:
    """Add edges greedily whose triangulation holds as much dependence as the limits allow.

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

    def objective(more: Sequence[Clique]) -> float | None:
        """Return the objective with more edges; None where the limits do not allow them."""
        cliques = maximal_cliques(domain, [*edges, *more])
        cells = [domain.size(clique) for clique in cliques]
        if max(cells) > limits.clique_cells or sum(cells) > limits.total_cells:
            return None
        inside: set[Clique] = set()
        for clique in cliques:
            inside.update(combinations(clique, 2))
        score = sum(scores.get(pair, 0.0) for pair in inside)
        return score - limits.penalty * sum(cells)

    # Gains are of earlier graphs until an edge comes up; `fresh` are those of this graph.
    gains = dict(scores)
    fresh: set[Clique] = set()
    current = objective([]) or 0.0
    while gains:
        edge = max(gains, key=gains.__getitem__)
        if edge in fresh:
            current += gains.pop(edge)
            edges.append(edge)
            fresh = set()
            continue
        with_edge = objective([edge])
        if with_edge is None:
            del gains[edge]
        else:
            gains[edge] = with_edge - current
            fresh.add(edge)
    return edges, maximal_cliques(domain, edges)


def families(
    domain: Domain,
    clique: Clique,
    scores: Mapping[Clique, float],
    most_cells: float,
    most_columns: int,
) -> Iterator[tuple[str, Clique, float]]:
    """Yield a greedy Bayes net over a clique: each attribute but the first, with its parents.

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

    def r(a: str, b: str) -> float:
        return scores.get(domain.canonical((a, b)), 0.0)

    def extended(a: str, family: _Family, parent: str) -> _Family:
        relevance = family.relevance + r(a, parent)
        redundancy = family.redundancy + sum(
            r(parent, other) for other in family.parents
        )
        return _Family((*family.parents, parent), relevance, redundancy)

    def best_family(a: str) -> _Family:
        """Find parents of an attribute one by one, among those already in the net (Hall 1999)."""
        family = _Family((), 0.0, 0.0)
        while len(family.parents) < most_columns - 1:
            room = most_cells / domain.size([a, *family.parents])
            larger = [
                extended(a, family, parent)
                for parent in placed
                if parent not in family.parents and domain.size_of(parent) <= room
            ]
            if not larger:
                break
            family = max(larger, key=lambda candidate: candidate.merit)
        return family

    # The first attribute is the one that depends most on all others.
    remaining = list(clique)

    def dependence(a: str) -> float:
        return sum(r(a, b) for b in remaining if b != a)

    placed = [max(remaining, key=dependence)]
    remaining.remove(placed[0])
    while remaining:
        best = {a: best_family(a) for a in remaining}
        a = max(remaining, key=lambda a: best[a].merit)
        if not best[a].parents:
            return
        yield a, domain.canonical([a, *best[a].parents]), best[a].merit
        placed.append(a)
        remaining.remove(a)


class _Family(NamedTuple):
    """The parents of an attribute, and the sums of which their merit is made."""

    parents: tuple[str, ...]
    relevance: float  # sum R(a, p)
    redundancy: float  # sum R(p, p')

    @property
    def merit(self) -> float:
        if not self.parents:
            return -inf
        return self.relevance / sqrt(max(1.0, len(self.parents) + self.redundancy))


def initial_marginals(
    domain: Domain,
    cliques: Sequence[Clique],
    scores: Mapping[Clique, float],
    most_cells: float,
    most_columns: int,
) -> list[Clique]:
    """Return each attribute's best useful marginal over the nets of all cliques, none twice.

    None is inside another one, and an attribute that is in none is one by itself. Where there are
    fewer than attributes, others of the nets are among them, those of the greatest merit first.

    Example:
        >>> domain = Domain(("a", "b", "c"), (2, 2, 2))
        >>> initial_marginals(domain, [("a", "b"), ("c",)], {("a", "b"): 0.4}, 8, 6)
        [('a', 'b'), ('c',)]
    """
    nets: list[tuple[float, str, Clique]] = []
    for clique in cliques:
        for a, family, merit in families(
            domain, clique, scores, most_cells, most_columns
        ):
            nets.append((merit, a, family))
    best: dict[str, tuple[float, Clique]] = {}
    for merit, a, family in nets:
        best[a] = max(best.get(a, (merit, family)), (merit, family))

    def uncovered(marginals: Sequence[Clique]) -> list[Clique]:
        covered = set[str]().union(*marginals)
        return [(a,) for a in domain.names if a not in covered]

    # The best of each attribute come first, large ones before those inside them; then all others.
    distinct = {family for _, family in best.values()}
    best_marginals = sorted(distinct, key=lambda marginal: (-len(marginal), marginal))
    others = [family for _, _, family in sorted(nets, reverse=True)]
    marginals: list[Clique] = []
    for marginal in [*best_marginals, *others]:
        attributes = set(marginal)
        is_nested = any(attributes <= set(q) or set(q) <= attributes for q in marginals)
        if is_nested:
            continue
        # Room must be left for a marginal of each attribute that is in none.
        num_marginals = len(marginals) + 1 + len(uncovered([*marginals, marginal]))
        if num_marginals <= len(domain.names):
            marginals.append(marginal)
    return [*marginals, *uncovered(marginals)]


def candidate_weights(
    domain: Domain,
    cliques: Sequence[Clique],
    most_cells: float,
    most_columns: int,
    rng: np.random.Generator,
) -> dict[Clique, float]:
    """Return useful marginals inside the cliques, each with the weight by which it is sampled.

    A clique of k attributes gives k^2, in equal parts to its marginals, so that large cliques do
    not crowd out small ones; one-way marginals are always useful. Where there are too many for
    memory, the widest of a clique are left out at random.
    """
    weights: dict[Clique, float] = {}
    for clique in cliques:
        # In random order, so that what is left out of the widest is random.
        names = rng.permutation(np.array(clique)).tolist()
        useful = _useful(domain, names, most_cells, most_columns)
        most = max(len(clique), _MOST_CANDIDATES // len(cliques))
        marginals = list(islice(useful, most))
        for marginal in marginals:
            before = weights.get(marginal, 0.0)
            weights[marginal] = before + len(clique) ** 2 / len(marginals)
    return weights


def _useful(
    domain: Domain,
    names: Sequence[str],
    most_cells: float,
    most_columns: int,
) -> Iterator[Clique]:
    """Yield useful marginals, small ones first; if none of a size is useful, no larger one is."""
    for size in range(1, min(most_columns, len(names)) + 1):
        has_useful = False
        for attributes in combinations(names, size):
            if size == 1 or domain.size(attributes) <= most_cells:
                has_useful = True
                yield domain.canonical(attributes)
        if not has_useful:
            return
