from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from siloweave.models import junction_tree
from siloweave.models.junction_tree import (
    JunctionTree,
    inside,
    many_tree_cells,
    maximal_cliques,
    tree_cells,
)
from siloweave.tables.codes import Domain
from tests.models.small import cliques_of, domain_of, domains


@st.composite
def questions(draw):
    domain = draw(domains(10))
    return domain, draw(cliques_of(domain))


def is_connected(members, parents):
    """In a rooted tree, a set of nodes is connected if just one has its parent outside."""
    return sum(parents[i] not in members for i in members) == 1


@given(questions())
def test_running_intersection(question):
    domain, cliques = question
    tree = JunctionTree.build(domain, cliques)
    for name in domain.names:
        members = {i for i, clique in enumerate(tree.cliques) if name in clique}
        assert members, f"{name} is in no clique"
        assert is_connected(members, tree.parents)


@given(questions())
def test_parents_and_separators(question):
    domain, cliques = question
    tree = JunctionTree.build(domain, cliques)
    assert tree.parents[0] == -1
    assert tree.separators[0] == ()
    for i, parent in enumerate(tree.parents[1:], start=1):
        assert 0 <= parent < i
        shared = set(tree.cliques[i]) & set(tree.cliques[parent])
        assert tree.separators[i] == domain.canonical(shared)


@given(questions())
def test_cliques_are_maximal_and_hold_what_was_asked(question):
    domain, cliques = question
    tree = JunctionTree.build(domain, cliques)
    sets = [set(c) for c in tree.cliques]
    assert all(tree.home(c) is not None for c in cliques)
    assert not any(
        a < b or (a == b and i != j) for i, a in enumerate(sets) for j, b in enumerate(sets)
    )
    assert sorted(tree.cliques) == sorted(maximal_cliques(domain, cliques))
    assert tree.cells == tree_cells(domain, cliques)


@given(questions(), st.randoms())
def test_the_order_of_the_cliques_does_not_matter(question, random):
    domain, cliques = question
    shuffled = list(cliques)
    random.shuffle(shuffled)
    assert JunctionTree.build(domain, shuffled) == JunctionTree.build(domain, cliques)


@given(questions())
def test_many_trees_have_the_cells_that_each_has_alone(question):
    domain, cliques = question
    more = [q for r in (1, 2, 3) for q in combinations(domain.names, r)]
    found = many_tree_cells(domain, cliques, more)
    assert found.tolist() == [tree_cells(domain, [*cliques, q]) for q in more]


@given(questions())
def test_inside_are_sets_that_a_maximal_clique_holds(question):
    domain, cliques = question
    more = [q for r in (1, 2, 3) for q in combinations(domain.names, r)]
    held = [set(c) for c in maximal_cliques(domain, cliques)]
    assert inside(domain, cliques, more).tolist() == [any(set(q) <= c for c in held) for q in more]
    assert inside(domain, cliques, []).shape == (0,)


def test_many_trees_of_many_attributes_come_in_batches(monkeypatch):
    domain = Domain(tuple(f"c{i:02}" for i in range(70)), tuple(2 + i % 7 for i in range(70)))
    chain = list(zip(domain.names, domain.names[1:], strict=False))
    more = [(domain.names[0], name) for name in domain.names[2::9]]
    monkeypatch.setattr(junction_tree, "_GRAPHS", 3)
    found = many_tree_cells(domain, chain, more)
    assert found.tolist() == [tree_cells(domain, [*chain, q]) for q in more]
    assert many_tree_cells(domain, chain, []).shape == (0,)


def test_a_circle_is_triangulated_at_its_small_attributes():
    domain = domain_of(100, 2, 100, 2)
    circle = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
    assert tree_cells(domain, circle) == 2 * (100 * 2 * 2)
    assert set(maximal_cliques(domain, circle)) == {("a", "b", "d"), ("b", "c", "d")}


def test_without_cliques_every_attribute_stands_alone():
    tree = JunctionTree.build(domain_of(2, 3), [])
    assert tree.cliques == (("a",), ("b",))
    assert tree.home(("a", "b")) is None
