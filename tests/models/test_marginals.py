from itertools import combinations

import numpy as np
import pytest
from hypothesis import given

from siloweave.models import mrf
from siloweave.models.junction_tree import JunctionTree, Propagation
from siloweave.models.mrf import MRF
from tests.models import oracle
from tests.models.small import all_rows, domain_of, joint, models, random_model, summed


def all_cliques(domain):
    return [c for r in range(1, len(domain.names) + 1) for c in combinations(domain.names, r)]


@given(models())
def test_every_marginal_is_that_of_the_joint_table(model):
    p = joint(model)
    for clique in all_cliques(model.domain):
        expected = model.total * summed(p, model.domain, clique)
        found = model.marginal(clique)
        assert found.shape == model.domain.shape(clique)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@given(models())
def test_log_density_is_that_of_the_joint_table(model):
    p = joint(model).reshape(-1)
    found = model.log_density(all_rows(model.domain))
    np.testing.assert_allclose(np.exp(found), p, rtol=1e-8, atol=1e-240)
    seen = p > 1e-200
    np.testing.assert_allclose(found[seen], np.log(p[seen]), rtol=1e-9, atol=1e-9)


@given(models())
def test_a_propagation_gives_the_distribution_of_every_clique(model):
    cliques = tuple(model.potentials)
    plan = Propagation(JunctionTree.build(model.domain, cliques), cliques)
    found = plan.run([plan.inner(i, model.potentials[c]) for i, c in enumerate(cliques)])
    for clique, flat in zip(plan.tree.cliques, found, strict=True):
        expected = summed(joint(model), model.domain, clique)
        np.testing.assert_allclose(plan.table(clique, flat), expected, rtol=1e-9, atol=1e-12)


def in_a_large_clique(spread):
    """All pairs of six attributes, and a clique that hangs on two of them, and one on none."""
    domain = domain_of(3, 4, 5, 6, 7, 8, 3, 2)
    pairs = [*combinations(domain.names[:6], 2), ("a", "d", "g"), ("h",)]
    return random_model(domain, pairs, 6, spread=spread)


@pytest.mark.parametrize("spread", [2.0, 300.0])
def test_cliques_inside_a_large_one_change_no_distribution(spread):
    model = in_a_large_clique(spread)
    cliques = tuple(model.potentials)
    plan = Propagation(JunctionTree.build(model.domain, cliques), cliques)
    sizes = [model.domain.size(c) for c in plan.cliques]
    inner = range(len(plan.tree.cliques), len(sizes))
    assert inner
    assert not plan.homed[0]  # all potentials are held by what is smaller
    assert all(sizes[i] <= sizes[plan.parents[i]] / 8 for i in inner)
    found = plan.run([plan.inner(i, model.potentials[c]) for i, c in enumerate(cliques)])
    for clique, flat in zip(plan.cliques, found, strict=True):
        expected = np.transpose(
            summed(joint(model), model.domain, model.domain.canonical(clique)),
            [model.domain.canonical(clique).index(a) for a in clique],
        )
        np.testing.assert_allclose(flat, expected.reshape(-1), rtol=1e-9, atol=1e-12)


def test_marginals_far_apart_in_a_long_chain():
    domain = domain_of(3, 2, 4, 2, 3, 2, 3)
    chain = list(zip(domain.names[:-1], domain.names[1:], strict=True))
    model = random_model(domain, chain, 5, spread=2.0)
    for clique in [("a", "g"), ("a", "d", "g"), ("b", "f"), domain.names]:
        expected = model.total * summed(joint(model), domain, clique)
        np.testing.assert_allclose(model.marginal(clique), expected, rtol=1e-10)
    assert model.tree.home(("a", "g")) is None


@given(models())
def test_marginals_made_block_by_block_are_the_same(model):
    whole = {c: MRF.marginal(model, c) for c in all_cliques(model.domain)}
    again = MRF(model.domain, model.potentials, model.total)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mrf, "_CELLS", 1)
        for clique, expected in whole.items():
            np.testing.assert_allclose(again.marginal(clique), expected, rtol=1e-9, atol=1e-9)


@given(models())
@pytest.mark.parametrize("cells", [1, 1 << 22])
def test_pairs_that_share_no_clique_are_those_of_the_joint_table(cells, model):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mrf, "_PAIR_CELLS", cells)
        pairs = list(combinations(model.domain.names, 2))
        far = [pair for pair in pairs if model.tree.home(pair) is None]
        found = dict(mrf.apart(model.tree, model.beliefs, far))
    assert set(found) == set(far)
    p = joint(model)
    for pair, table in found.items():
        np.testing.assert_allclose(table, summed(p, model.domain, pair), rtol=1e-5, atol=1e-8)


def test_pairs_beyond_separators_that_float32_cannot_hold_are_right():
    domain = domain_of(3, 3, 3, 3)
    chain = list(zip(domain.names[:-1], domain.names[1:], strict=True))
    model = random_model(domain, chain, 5, spread=40.0)
    assert min(b.min() for b in model.beliefs) < np.finfo(np.float32).tiny
    for pair, table in mrf.apart(model.tree, model.beliefs, [("a", "c"), ("a", "d"), ("b", "d")]):
        expected = summed(joint(model), domain, pair)
        np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-8)


def test_many_marginals_are_the_same_as_one_after_the_other():
    domain = domain_of(3, 2, 4, 2, 3, 2, 3)
    chain = list(zip(domain.names[:-1], domain.names[1:], strict=True))
    model = random_model(domain, chain, 5, spread=2.0)
    again = MRF(domain, model.potentials, model.total)
    cliques = [c for c in all_cliques(domain) if len(c) < 4]
    for clique, table in zip(cliques, again.marginals(cliques), strict=True):
        np.testing.assert_allclose(table, model.marginal(clique), rtol=1e-5)
        assert not table.flags.writeable


def test_no_table_on_the_way_to_a_marginal_is_too_large(monkeypatch):
    """Two wanted attributes met beside a separator of 36 cells, then the third."""
    domain = domain_of(5, 6, 6, 7, 6, 6, 8)
    cliques = [("a", "b", "c"), ("b", "c", "d", "e"), ("d", "e", "f"), ("e", "f", "g")]
    model = random_model(domain, cliques, 3)
    clique = ("a", "d", "g")
    expected = model.total * summed(joint(model), domain, clique)
    sizes = []

    def noted(*args, product=mrf._product_sum):
        sizes.append(product(*args))
        return sizes[-1]

    monkeypatch.setattr(mrf, "_product_sum", noted)
    for cells in (10**6, 300):
        sizes.clear()
        monkeypatch.setattr(mrf, "_CELLS", cells)
        fresh = MRF(domain, model.potentials, model.total)
        np.testing.assert_allclose(fresh.marginal(clique), expected, rtol=1e-10)
        largest = max(table.values.size for table in sizes)
        assert largest <= 300 if cells == 300 else largest > 300


def test_attributes_that_share_no_clique_are_independent():
    domain = domain_of(2, 3, 2)
    model = random_model(domain, [("a",), ("b",)], 1, total=10.0)
    outer = np.multiply.outer(model.marginal(("a",)), model.marginal(("b",))) / 10.0
    np.testing.assert_allclose(model.marginal(("a", "b")), outer)
    np.testing.assert_allclose(model.marginal(("c",)), [5.0, 5.0])


def test_impossible_cells_stay_impossible():
    domain = domain_of(2, 2, 2)
    table = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    model = MRF(domain, {("a", "b"): table, ("b", "c"): table}, 4.0)
    np.testing.assert_array_equal(model.marginal(("a", "c")), [[2.0, 0.0], [0.0, 2.0]])
    found = model.log_density(all_rows(domain))
    np.testing.assert_allclose(np.exp(found), joint(model).reshape(-1))
    assert np.isneginf(found).sum() == 6


def test_a_model_in_which_nothing_is_possible_is_an_error():
    model = MRF(domain_of(2), {("a",): np.full(2, -800.0)}, 1.0)
    np.testing.assert_allclose(model.marginal(("a",)), [0.5, 0.5])
    split = {("a", "b"): np.array([[0.0], [-np.inf]]), ("a", "c"): np.array([[-np.inf], [0.0]])}
    with pytest.raises(FloatingPointError, match="no cell possible"):
        MRF(domain_of(2, 1, 1), split, 1.0).marginal(("a",))


@pytest.mark.parametrize("size", [300.0, 800.0, 20000.0])
def test_potentials_that_contradict_each_other_by_more_than_float64_can_hold(size):
    domain = domain_of(2, 2, 2)
    rising, falling = np.array([[0.0, size], [0.0, size]]), np.array([[0.0, 0.0], [-size, -size]])
    split = {("a", "b"): rising, ("b", "c"): falling + np.array([[0.0, 1.0], [0.0, 2.0]])}
    model = MRF(domain, {**split, ("b",): np.array([-size, -size])}, 4.0)
    np.testing.assert_allclose(
        model.marginal(("b", "c")), 4.0 * summed(joint(model), domain, ("b", "c")), rtol=1e-9
    )
    within = {("a",): np.array([size, -size]), ("a", "b"): np.array([[-size, -size], [size, size]])}
    np.testing.assert_allclose(MRF(domain, within, 4.0).marginal(("a",)), [2.0, 2.0])


def test_a_marginal_cannot_be_changed_from_outside():
    model = random_model(domain_of(2, 2), [("a", "b")], 3)
    with pytest.raises(ValueError, match="read-only"):
        model.marginal(("a",))[0] = 0.0
    with pytest.raises(ValueError, match="shape"):
        MRF(domain_of(2, 3), {("a", "b"): np.zeros((3, 2))}, 1.0)


def test_marginals_are_those_of_mbi():
    domain = domain_of(3, 2, 4, 3, 2)
    circle = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("e",)]
    model = random_model(domain, circle, 7, total=1234.5)
    wanted = [("a", "b"), ("c", "d"), ("a", "c"), ("b", "d", "e"), ("e",)]
    potentials = list(model.potentials.items())
    (answer,) = oracle.ask([oracle.case(domain, model.total, wanted, potentials=potentials)])
    for clique, table in zip(wanted, answer, strict=True):
        np.testing.assert_allclose(model.marginal(clique), table, rtol=1e-9)
