from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siloweave.models import junction_tree
from siloweave.models.estimate import (
    Measurement,
    combine,
    consistent,
    estimate_total,
    fit,
    moved_towards,
    solve_block,
)
from siloweave.models.mrf import MRF
from siloweave.tables.keys import generator
from tests.models import oracle
from tests.models.small import domain_of, domains, joint, random_model, summed

DOMAIN = domain_of(4, 3, 5, 2)
CIRCLE = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
LINE = [("a", "b"), ("b", "c"), ("c", "d"), ("b",)]
ROWS = 5000.0


def measured(cliques, sigma, seed=11, domain=DOMAIN):
    """Noisy marginals of a random table of ROWS rows, and the exact ones."""
    truth = random_model(domain, [("a", "b"), ("b", "c"), ("c", "d")], seed, total=ROWS)
    rng = generator(seed)
    exact = [summed(joint(truth), domain, c) * ROWS for c in cliques]
    noisy = [
        Measurement(c, y + sigma * rng.normal(size=y.shape), sigma)
        for c, y in zip(cliques, exact, strict=True)
    ]
    return noisy, exact


def loss(tables, noisy):
    return sum(
        0.5 * float(((t - m.counts) ** 2).sum()) / m.sigma**2
        for t, m in zip(tables, noisy, strict=True)
    )


@pytest.fixture(scope="module")
def mbi_fits():
    """mbi's fits of overlapping marginals: a tree and a circle, nearly exact and noisy."""
    questions = [(cliques, sigma) for cliques, sigma in product([LINE, CIRCLE], [0.5, 40.0])]
    cases = []
    for cliques, sigma in questions:
        noisy, _ = measured(cliques, sigma)
        triples = [(m.clique, m.counts, m.sigma) for m in noisy]
        cases.append(oracle.case(DOMAIN, ROWS, cliques, measured=triples))
    return dict(zip([(tuple(c), s) for c, s in questions], oracle.ask(cases), strict=True))


@pytest.mark.parametrize("cliques", [LINE, CIRCLE], ids=["line", "circle"])
def test_little_entropy_reaches_the_residual_of_mirror_descent(mbi_fits, cliques):
    """Both minimise the same residual; ours may end 2 % (and 0.05) above mbi's, or below it."""
    noisy, _ = measured(cliques, 40.0)
    ours = fit(DOMAIN, noisy, total=ROWS, shrinkage=0.01, sweeps=400, tolerance=1e-7)
    theirs = mbi_fits[tuple(cliques), 40.0]
    assert (
        loss([ours.marginal(m.clique) for m in noisy], noisy) <= 1.02 * loss(theirs, noisy) + 0.05
    )
    for clique, table in zip(cliques, theirs, strict=True):
        assert np.abs(ours.marginal(clique) - table).max() < 0.25 * 40.0


@pytest.mark.parametrize("cliques", [LINE, CIRCLE], ids=["line", "circle"])
def test_with_little_noise_both_reproduce_the_marginals(mbi_fits, cliques):
    noisy, exact = measured(cliques, 0.5)
    ours = fit(DOMAIN, noisy, total=ROWS, shrinkage=0.1, sweeps=200, tolerance=1e-7)
    for clique, y, table in zip(cliques, exact, mbi_fits[tuple(cliques), 0.5], strict=True):
        assert np.abs(ours.marginal(clique) - y).max() < 5 * 0.5
        assert np.abs(ours.marginal(clique) - table).max() < 2 * 0.5


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_with_default_shrinkage_the_model_is_nearer_to_the_truth_than_the_measurements(seed):
    noisy, exact = measured(CIRCLE, 60.0, seed)
    model = fit(DOMAIN, noisy, sweeps=60)
    ours = sum(np.abs(model.marginal(c) - y).sum() for c, y in zip(CIRCLE, exact, strict=True))
    raw = sum(np.abs(m.counts - y).sum() for m, y in zip(noisy, exact, strict=True))
    assert ours < raw


@given(domains(4), st.integers(0, 999))
def test_consistent_tables_are_the_least_squares_projection(domain, seed):
    rng = generator(seed)
    pairs = [domain.names[i : i + 2] for i in range(max(1, len(domain.names) - 1))]
    cliques = list(dict.fromkeys([*pairs, domain.names[:1], domain.names[-1:]]))
    noisy = [
        Measurement(c, rng.normal(size=domain.shape(c)) * 9, float(rng.uniform(1, 5)))
        for c in cliques
    ]
    cells = np.eye(domain.size()).reshape(-1, *domain.sizes)
    sums = [np.stack([summed(e, domain, c).reshape(-1) for e in cells], axis=1) for c in cliques]
    weighted = np.concatenate([a / m.sigma for a, m in zip(sums, noisy, strict=True)])
    wanted = np.concatenate([m.counts.reshape(-1) / m.sigma for m in noisy])
    best = np.linalg.lstsq(weighted, wanted, rcond=None)[0]
    for table, a in zip(consistent(noisy), sums, strict=True):
        np.testing.assert_allclose(table.reshape(-1), a @ best, atol=1e-8)


@given(st.integers(1, 300), st.floats(-6, 4), st.floats(0, 6), st.floats(-2, 7), st.integers(0, 99))
def test_a_block_step_meets_its_total_and_its_equation(cells, log_s, log_total, spread, seed):
    s, total = 10.0**log_s, 10.0**log_total
    base = generator(seed).normal(size=cells) * 10.0**spread
    m = solve_block(base, s, total)
    assert m.sum() == pytest.approx(total, rel=2e-6)
    big = m > 1e-200
    shift = m[big] / s + np.log(m[big] / s) - base[big]  # log k, the same for every cell
    np.testing.assert_allclose(shift, shift[0], rtol=1e-6, atol=1e-6 * max(1, np.abs(base).max()))


def test_a_total_that_the_counts_contradict_is_met_by_shifting_them():
    counts = np.array([[3.0, 1.0], [0.0, 4.0]])
    model = fit(domain_of(2, 2), [Measurement(("a", "b"), counts, 1e-3)], total=16.0)
    np.testing.assert_allclose(model.marginal(("a", "b")), counts + 2.0, atol=0.01)


def test_repeated_measurements_are_averaged_by_precision():
    pair = [
        Measurement(("a",), np.array([0.0, 9.0]), 1.0),
        Measurement(("a",), np.array([3.0, 0.0]), 2.0),
    ]
    (one,) = combine(pair)
    np.testing.assert_allclose(one.counts, [0.6, 7.2])
    assert one.sigma == pytest.approx((1 + 1 / 4) ** -0.5)
    twice = fit(domain_of(2), pair, total=10.0)
    np.testing.assert_allclose(
        twice.marginal(("a",)), fit(domain_of(2), [one], total=10.0).marginal(("a",)), rtol=1e-6
    )


def test_the_total_is_estimated_from_the_sums():
    noisy = [
        Measurement(("a",), np.array([30.0, 70.0]), 1.0),
        Measurement(("a", "b"), np.full((2, 3), 20.0), 1.0),
    ]
    assert estimate_total(noisy) == pytest.approx((100 / 2 + 120 / 6) / (1 / 2 + 1 / 6))
    assert fit(domain_of(2, 3), noisy).total == pytest.approx(105.0)
    assert fit(domain_of(2, 3), noisy, total=50.0).marginal(("a",)).sum() == pytest.approx(50.0)


def test_without_measurements_the_model_is_uniform():
    model = fit(domain_of(2, 3), [], total=12.0)
    np.testing.assert_allclose(model.marginal(("a", "b")), np.full((2, 3), 2.0))
    assert fit(domain_of(2), []).total == 1.0


@pytest.mark.parametrize("sigma", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("level", [0.0, -50.0])
def test_counts_of_nobody(sigma, level):
    cliques = [("a", "b"), ("b", "c")]
    empty = [Measurement(c, np.full(DOMAIN.shape(c), level), sigma) for c in cliques]
    model = fit(DOMAIN, empty)
    assert model.total == 1.0
    for clique in [*cliques, ("a", "c", "d")]:
        table = model.marginal(clique)
        assert (table >= 0).all()
        assert table.sum() == pytest.approx(1.0)


def test_zero_counts_among_others_become_small_not_impossible():
    counts = np.array([[900.0, 0.0, 0.0], [0.0, 0.0, 100.0]])
    model = fit(domain_of(2, 3), [Measurement(("a", "b"), counts, 1.0)])
    table = model.marginal(("a", "b"))
    assert np.abs(table - counts).max() < 3.0
    assert (table > 0).all()


def test_columns_with_one_category():
    domain = domain_of(1, 3, 1)
    cliques = [("a",), ("a", "b"), ("b", "c"), ("a", "c")]
    noisy = [Measurement(c, np.ones(domain.shape(c)) * 12 / domain.size(c), 0.1) for c in cliques]
    model = fit(domain, noisy)
    np.testing.assert_allclose(model.marginal(domain.names), np.full((1, 3, 1), 4.0), atol=0.2)
    assert model.marginal(("a", "c")).tolist() == [[pytest.approx(12.0, abs=0.3)]]


def test_a_warm_start_changes_the_way_not_the_end():
    noisy, _ = measured(CIRCLE, 20.0)
    cold = fit(DOMAIN, noisy, sweeps=300, tolerance=1e-8)
    warm = fit(
        DOMAIN, noisy, sweeps=300, tolerance=1e-8, warm_start=fit(DOMAIN, noisy[:2], sweeps=3)
    )
    for clique in CIRCLE:
        np.testing.assert_allclose(warm.marginal(clique), cold.marginal(clique), atol=0.5)
    assert fit(DOMAIN, noisy, sweeps=1, warm_start=cold).potentials.keys() == set(CIRCLE)


def test_cliques_inside_a_large_one_change_the_way_not_the_end(monkeypatch):
    domain = domain_of(3, 4, 5, 6, 7, 8, 3)
    pairs = [*combinations(domain.names[:6], 2), ("a", "d", "g")]
    truth = random_model(domain, pairs, 3, total=1e5)
    noise = generator(4)
    measured = [
        Measurement(q, truth.marginal(q) + 20 * noise.normal(size=domain.shape(q)), 20)
        for q in pairs
    ]
    found = fit(domain, measured, sweeps=200)
    monkeypatch.setattr(junction_tree, "_LARGE", np.inf)
    junction_tree.Propagation.over.cache_clear()
    plain = fit(domain, measured, sweeps=200)
    junction_tree.Propagation.over.cache_clear()
    assert (
        0 < max(np.abs(found.marginal(q) - plain.marginal(q)).mean() for q in pairs) < 10
    )  # half the noise


def test_one_step_towards_a_measurement_is_the_fit_of_it_alone():
    noisy, _ = measured([("a", "b")], 5.0)
    start = MRF.uniform(DOMAIN, ROWS)
    moved = moved_towards(start, noisy[0])
    fitted = fit(DOMAIN, noisy, total=ROWS, sweeps=100, tolerance=1e-9)
    np.testing.assert_allclose(moved.marginal(("a", "b")), fitted.marginal(("a", "b")), rtol=1e-3)
    assert not start.potentials


def test_a_measurement_onto_fewer_attributes_keeps_the_noise_of_their_cells():
    (m,), _ = measured([("a", "b", "d")], 3.0)
    part = m.onto(("a", "d"))
    assert part.counts == pytest.approx(m.counts.sum(axis=1))
    assert part.sigma == pytest.approx(3.0 * 3**0.5)
