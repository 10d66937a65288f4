"""Graphs, nets and candidates of a Markov random field, from scores that are given."""

from itertools import combinations
from math import pi, sqrt

import numpy as np
import pytest

from siloweave.models.field_graph import (
    GraphLimits,
    candidate_weights,
    families,
    grow_graph,
    initial_marginals,
    most_useful_cells,
)
from siloweave.models.junction_tree import maximal_cliques
from siloweave.tables.codes import Domain

DOMAIN = Domain(tuple("abcdef"), (2, 3, 4, 2, 5, 3))


def random_scores(seed, low=-0.2):
    rng = np.random.default_rng(seed)
    return {pair: float(rng.uniform(low, 1)) for pair in combinations(DOMAIN.names, 2)}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("clique", "total"), [(24, 10_000), (10_000, 60), (40, 100)])
def test_a_graph_keeps_to_both_limits_and_cannot_grow(seed, clique, total):
    scores = random_scores(seed)
    edges, cliques = grow_graph(DOMAIN, scores, GraphLimits(clique, total))

    def fits(found):
        cells = [DOMAIN.size(c) for c in found]
        return max(cells) <= clique and sum(cells) <= total

    assert edges
    assert fits(cliques)
    assert cliques == maximal_cliques(DOMAIN, edges)
    inside = {pair for c in cliques for pair in combinations(c, 2)}
    for pair in scores:
        assert pair in inside or not fits(maximal_cliques(DOMAIN, [*edges, pair]))


def test_the_strongest_edge_comes_first_and_a_cell_has_its_price():
    scores = random_scores(3)
    (first, *_), _ = grow_graph(DOMAIN, scores, GraphLimits(1e6, 1e6))
    assert scores[first] == max(scores.values())
    (cheapest, *_), _ = grow_graph(DOMAIN, scores, GraphLimits(1e6, 1e6, penalty=9.0))
    assert cheapest == ("a", "d")  # 2 and 2 cells apart, 4 together


def test_noise_below_0_leaves_no_pair_out_that_there_is_room_for():
    scores = dict.fromkeys(random_scores(0), -1.0)
    _, cliques = grow_graph(DOMAIN, scores, GraphLimits(1e6, 1e6, penalty=0.05))
    assert cliques == [DOMAIN.names]
    assert grow_graph(DOMAIN, scores, GraphLimits(3, 99))[0] == []


def test_a_marginal_is_useful_where_its_mean_count_is_theta_times_its_noise():
    """The direction that the paper means: fewer cells, or more rows, are more useful."""
    rows, sigma, theta = 1000.0, 2.0, 6.0
    cells = most_useful_cells(rows, sigma, theta)
    noise = np.abs(np.random.default_rng(0).normal(0, sigma, 10**6)).mean()
    assert rows / cells == pytest.approx(theta * noise, rel=0.01)
    assert rows / cells == pytest.approx(theta * sigma * sqrt(2 / pi))
    assert most_useful_cells(2 * rows, sigma, theta) > cells > most_useful_cells(rows, 3.0, theta)


def test_parents_are_those_of_the_greatest_merit():
    """a depends on b and c, which are the same column: the second of them adds little."""
    domain = Domain(tuple("abcd"), (2, 2, 2, 2))
    scores = {("a", "b"): 0.4, ("a", "c"): 0.38, ("b", "c"): 0.5, ("a", "d"): 0.3}
    found = {a: (q, merit) for a, q, merit in families(domain, domain.names, scores, 8, 3)}
    assert set(found) == set("bcd")  # a depends most on the others, and the net starts there
    assert found["b"] == (("a", "b"), 0.4)
    (clique, merit) = found["c"]
    assert clique == ("a", "b", "c")
    assert merit == pytest.approx((0.38 + 0.5) / sqrt(2 + 0.4))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most_cells", [1, 6, 30, 500])
def test_initial_marginals_are_useful_cover_all_and_do_not_repeat(seed, most_cells):
    scores = random_scores(seed)
    _, cliques = grow_graph(DOMAIN, scores, GraphLimits(200, 500))
    found = initial_marginals(DOMAIN, cliques, scores, most_cells, 4)
    assert {a for q in found for a in q} == set(DOMAIN.names)
    assert len(found) <= len(DOMAIN.names)
    for q in found:
        assert len(q) == 1 or (DOMAIN.size(q) <= most_cells and len(q) <= 4)
        assert any(set(q) <= set(c) for c in cliques)
        assert not any(set(q) <= set(other) for other in found if other != q)


def test_room_for_more_is_filled_by_marginals_of_the_greatest_merit():
    """Three nets of two columns: the best marginal of a and of c is the same one."""
    domain = Domain(tuple("abcd"), (2, 2, 2, 2))
    scores = {("a", "b"): 0.4, ("b", "c"): 0.3, ("a", "c"): 0.35}
    cliques = [("a", "b"), ("b", "c"), ("a", "c"), ("d",)]
    assert {q for c in cliques for _, q, _ in families(domain, c, scores, 4, 2)} == set(cliques[:3])
    found = initial_marginals(domain, cliques, scores, 4, 2)
    assert found == [("a", "b"), ("a", "c"), ("b", "c"), ("d",)]
    assert initial_marginals(domain, cliques[1:], scores, 4, 2)[0] == ("a", "c")


def test_candidates_are_all_useful_marginals_of_the_cliques():
    cliques = [("a", "b", "c"), ("c", "d"), ("e",), ("f",)]
    rng = np.random.default_rng(0)
    weights = candidate_weights(DOMAIN, cliques, 12, 3, rng)
    assert set(weights) == {
        ("a",), ("b",), ("c",), ("d",), ("e",), ("f",),
        ("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"),
    }  # fmt: skip
    assert weights["a", "b"] == pytest.approx(9 / 6)  # of six useful ones; (a, b, c) has 24 cells
    assert weights["c",] == pytest.approx(9 / 6 + 4 / 3)
    assert sum(weights.values()) == pytest.approx(9 + 4 + 1 + 1)
    assert max(map(len, candidate_weights(DOMAIN, [tuple("abcdef")], 1e9, 4, rng))) == 4


def test_candidates_of_many_columns_stay_few_enough(monkeypatch):
    monkeypatch.setattr("siloweave.models.field_graph._MOST_CANDIDATES", 40)
    weights = candidate_weights(DOMAIN, [tuple("abcdef")], 1e9, 6, np.random.default_rng(0))
    assert len(weights) == 40
    assert {(a,) for a in DOMAIN.names} <= set(weights)
