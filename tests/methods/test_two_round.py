"""TwoRound: what it plans, how it shares out noise, and how close it comes."""

from itertools import combinations

import numpy as np
import pytest

from siloweave.datasets import adult, adult_schema
from siloweave.errors import CapacityError, InputError
from siloweave.evaluate.workload import workload_errors
from siloweave.methods.secure_two_round.method import SecureTwoRound
from siloweave.methods.two_round.method import TwoRound
from siloweave.models.estimate import Measurement
from siloweave.models.junction_tree import tree_cells
from siloweave.privacy.budget import Budget, Relation
from siloweave.protocols import two_rounds
from siloweave.protocols.two_rounds import design, plan, plan_and_fit
from siloweave.statistics.marginals import marginal
from siloweave.tables import Codes, Column, Encoder, Schema
from siloweave.tables.codes import Domain

DOMAIN = Domain(("a", "b", "c", "d"), (4, 4, 3, 2))
PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]


def chained(number, seed=0):
    """Rows in which b follows a, d follows c, and nothing else is related."""
    rng = np.random.default_rng(seed)
    a, c = rng.integers(4, size=number), rng.integers(3, size=number)
    b = np.where(rng.random(number) < 0.9, a, rng.integers(4, size=number))
    d = np.where(rng.random(number) < 0.9, c % 2, rng.integers(2, size=number))
    return Codes(DOMAIN, tuple(x.astype(np.uint8) for x in (a, b, c, d)))


def noisy(rows, sigma, seed=0):
    rng = np.random.default_rng(seed)
    cliques = [(x,) for x in DOMAIN.names] + PAIRS
    return [
        Measurement(c, marginal(rows, c) + rng.normal(size=DOMAIN.shape(c)) * sigma, sigma)
        for c in cliques
    ]


def weights():
    return {(x,): 1.0 for x in DOMAIN.names} | dict.fromkeys(PAIRS, 2.0)


def test_the_plan_takes_what_is_related_first():
    chosen = plan(DOMAIN, weights(), noisy(chained(20_000), 60.0), 0.001, TwoRound())
    assert set(chosen[:2]) == {("a", "b"), ("c", "d")}


def test_the_plan_leaves_what_is_not_related():
    settings = TwoRound()
    chosen = plan(DOMAIN, weights(), noisy(chained(20_000), 5.0), 1e-4, settings)
    assert sorted(c for c in chosen if len(c) == 2) == [("a", "b"), ("c", "d")]


def test_the_plan_falls_back_to_one_ways_where_noise_hides_all():
    answers = two_rounds._cleaned_answers(noisy(chained(50), 500.0), None)
    chosen = plan(DOMAIN, weights(), answers, 1e-6, TwoRound())
    assert chosen == [(x,) for x in DOMAIN.names]


def test_the_plan_keeps_to_the_size_of_the_model():
    small = TwoRound(max_model_mb=8e-6 * 21)  # 21 cells: one pair of a and b, not two
    chosen = plan(DOMAIN, weights(), noisy(chained(20_000), 10.0), 0.1, small)
    assert sum(len(c) == 2 for c in chosen) == 1


def test_a_pair_that_turns_out_to_be_worth_more_takes_the_room_of_another(monkeypatch):
    """x and y hardly depend on each other; their pair needs least room, and is in the way."""
    domain, rng = Domain(("w", "x", "y", "z"), (4, 3, 3, 5)), np.random.default_rng(0)
    x, y = rng.integers(3, size=20_000), rng.integers(3, size=20_000)
    y = np.where(rng.random(20_000) < 0.05, x, y)
    w = np.where(rng.random(20_000) < 0.15, (x + y) % 4, rng.integers(4, size=20_000))
    rows = Codes(domain, tuple(c.astype(np.uint8) for c in (w, x, y, x + y)))
    weights = {(c,): 1.0 for c in domain.names} | {
        ("x", "z"): 2.0, ("y", "z"): 2.0, ("w", "z"): 2.0, ("x", "y"): 2.0
    }  # fmt: skip
    pairs = [Measurement(c, marginal(rows, c).astype(float), 10.0) for c in weights]
    ends = {cells: plan(domain, weights, pairs, 0.1, TwoRound(max_model_mb=8e-6 * cells))
            for cells in (40, 65)}  # fmt: skip
    assert sorted(c for c in ends[40] if len(c) == 2) == [("x", "z"), ("y", "z")]
    assert sorted(c for c in ends[65] if len(c) == 2) == sorted(c for c in weights if len(c) == 2)
    monkeypatch.setattr(two_rounds, "_EXCHANGES", 0)
    assert ("x", "y") in plan(domain, weights, pairs, 0.1, TwoRound(max_model_mb=8e-6 * 40))


def test_pairs_that_need_little_room_come_before_one_that_takes_it_all():
    """The pair of u and v improves most; beside its 64 cells there is no room for another."""
    domain, rng = Domain(tuple("uvabcd"), (8, 8, 2, 2, 2, 2)), np.random.default_rng(0)
    u = rng.integers(8, size=20_000)
    v = np.where(rng.random(20_000) < 0.9, u, rng.integers(8, size=20_000))
    bits = [np.where(rng.random(20_000) < 0.8, w >> k & 1, 0) for w in (u, v) for k in (0, 1)]
    rows = Codes(domain, tuple(c.astype(np.uint8) for c in (u, v, *bits)))
    small = [("u", "a"), ("u", "b"), ("v", "c"), ("v", "d")]
    weights = {(c,): 1.0 for c in domain.names} | dict.fromkeys([("u", "v"), *small], 2.0)
    answers = [Measurement(c, marginal(rows, c).astype(float), 10.0) for c in weights]
    ends = {cells: plan(domain, weights, answers, 0.1, TwoRound(max_model_mb=8e-6 * cells))
            for cells in (80, 800)}  # fmt: skip
    assert sorted(ends[80]) == small
    assert sorted(ends[800]) == [*small[:2], ("u", "v"), *small[2:]]


@pytest.mark.parametrize(
    ("named", "words"),
    [({"pairs_share": 0.0}, "pairs_share=0.0"), ({"pairs_share": 1.0}, "pairs_share=1.0"),
     ({"tolerated": -1}, "tolerated=-1"), ({"max_model_mb": 0}, "max_model_mb=0")],
)  # fmt: skip
def test_settings_out_of_range_are_named(named, words):
    with pytest.raises(InputError, match=words):
        TwoRound(**named).algorithm()


def test_every_way_of_measuring_gets_the_noise_that_the_budget_pays_for():
    rounds = []

    def measure(cliques, sigmas, rho):
        rounds.append((cliques, np.array(sigmas), rho))
        return [
            Measurement(c, marginal(chained(20_000), c).astype(float), s)
            for c, s in zip(cliques, sigmas, strict=True)
        ]

    _, measured = plan_and_fit(
        DOMAIN,
        PAIRS,
        0.01,
        TwoRound(),
        measure,
        unit=2.0,
        allowed=lambda cliques: ("a", "b") not in cliques,
    )
    assert [rho for _, _, rho in rounds] == pytest.approx([0.003, 0.007])
    for cliques, sigmas, rho in rounds:
        assert sum(2.0**2 / (2 * sigmas**2)) == pytest.approx(rho)
        assert ("a", "b") not in cliques
    assert sorted(c for m in measured for c in m.cliques) == sorted([*rounds[0][0], *rounds[1][0]])


@pytest.mark.parametrize("seed", range(3))
def test_fewer_pairs_that_only_noise_relates_are_measured_again(seed):
    domain = Domain(tuple("abcdefgh"), (4,) * 8)
    rng = np.random.default_rng(seed)
    values = rng.integers(4, size=(8, 10_000), dtype=np.uint8)
    values[1] = np.where(rng.random(10_000) < 0.7, values[0], values[1])
    rows, rounds = Codes(domain, tuple(values)), []

    def measure(cliques, sigmas, rho):
        rounds.append(cliques)
        return [
            Measurement(c, marginal(rows, c) + sigma * rng.normal(size=domain.shape(c)), sigma)
            for c, sigma in zip(cliques, sigmas, strict=True)
        ]

    pairs = list(combinations(domain.names, 2))
    plan_and_fit(domain, pairs, 0.005, TwoRound(), measure)
    again = {pair for c in rounds[1] for pair in combinations(c, 2)}
    assert ("a", "b") in again
    assert len(again) < 0.9 * len(pairs)  # with the answers as they are, 27 or 28 of 28


COLUMNS = Domain(tuple("abcdefgh"), (2,) * 8)
EVERY_PAIR = list(combinations(COLUMNS.names, 2))


def planned(rows, sigma, domain=COLUMNS, pairs=EVERY_PAIR):
    even = [np.full(domain.shape(q), rows / domain.size(q)) for q in pairs]
    return [Measurement(q, y, sigma) for q, y in zip(pairs, even, strict=True)]


@pytest.mark.parametrize("rho", [1e-4, 0.1])
def test_noise_is_smaller_where_cells_and_queries_are_many(rho):
    domain = Domain(("a", "b", "c", "d"), (2, 3, 20, 30))
    pairs = [("a", "b"), ("c", "d")]
    found = design(domain, pairs, planned(1000.0, 50.0, domain, pairs), rho, TwoRound())
    assert sum(1 / (2 * s**2) for s in found.values()) == pytest.approx(rho)
    assert found[("c", "d")] < found[("a", "b")]
    often = [("a", "b")] * 5000 + [("c", "d")]
    turned = design(domain, often, planned(1000.0, 50.0, domain, pairs), rho, TwoRound())
    assert turned[("c", "d")] > turned[("a", "b")]


def test_narrow_columns_are_measured_in_tables_that_hold_every_triple():
    found = design(COLUMNS, EVERY_PAIR, planned(50_000.0, 80.0), 0.05, TwoRound())
    assert sum(1 / (2 * s**2) for s in found.values()) == pytest.approx(0.05)
    triples = {t for q in found for t in combinations(q, 3)}
    assert triples == set(combinations(COLUMNS.names, 3))
    assert len(found) < len(triples)
    assert max(map(len, found)) <= 5


def test_wide_columns_stay_pairs():
    domain = Domain(COLUMNS.names, (16,) * 8)
    found = design(domain, EVERY_PAIR, planned(50_000.0, 80.0, domain), 0.01, TwoRound())
    assert set(found) == set(EVERY_PAIR)


def test_only_tables_that_can_be_measured_are_asked_for():
    halves = [set("abcd"), set("efgh")]
    found = design(COLUMNS, EVERY_PAIR, planned(50_000.0, 80.0), 0.05, TwoRound(),
                   lambda cliques: all(any(set(q) <= half for half in halves)
                                       for q in cliques if len(q) > 2))  # fmt: skip
    wide = [set(q) for q in found if len(q) > 2]
    assert wide
    assert all(any(q <= half for half in halves) for q in wide)


def test_tables_are_asked_for_as_long_as_they_can_be_measured_together():
    def cells(cliques):
        return sum(COLUMNS.size(q) for q in cliques if len(q) > 2)

    facts = COLUMNS, EVERY_PAIR, planned(50_000.0, 80.0), 0.05, TwoRound()
    assert cells(design(*facts)) > 400
    found = design(*facts, lambda cliques: cells(cliques) <= 100)
    assert 60 < cells(found) <= 100
    assert sum(0.5 * sigma**-2 for sigma in found.values()) == pytest.approx(0.05)


def test_wide_tables_stay_inside_a_model_that_must_stay_small():
    pairs = [(a, b) for a, b in EVERY_PAIR if abs(ord(a) - ord(b)) < 3]  # a band: cliques of three
    small = TwoRound(max_model_mb=8e-6 * 64)
    found = design(COLUMNS, EVERY_PAIR, planned(50_000.0, 80.0, pairs=pairs), 0.05, small)
    assert {t for q in found for t in combinations(q, 2)} == set(pairs)
    assert tree_cells(COLUMNS, list(found)) == tree_cells(COLUMNS, pairs) <= 64
    assert max(map(len, found)) == 3


def parity(number, seed=0):
    """Rows in which c follows a and b, but neither alone, and b follows a a little."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=number)
    b, c = (np.where(rng.random(number) < 0.2, x, rng.integers(2, size=number)) for x in (a, a))
    d = np.where(rng.random(number) < 0.8, b ^ c, a)
    rest = [np.where(rng.random(number) < 0.3, a, rng.integers(2, size=number)) for _ in range(4)]
    return Codes(COLUMNS, tuple(x.astype(np.uint8) for x in (a, b, c, d, *rest)))


@pytest.mark.parametrize("budget", [0.3, 3.0])
def test_what_only_three_columns_show_is_in_the_model(budget):
    rows = parity(20_000)
    columns = tuple(Column(n, "categorical", categories=("0", "1")) for n in COLUMNS.names)
    fitted = TwoRound().fit(
        [rows],
        Encoder(Schema(columns).with_fallbacks()),
        budget=Budget(budget, 1e-6),
        noise="seeded",
        seed=1,
    )
    triple = ("b", "c", "d")
    far = np.abs(fitted.model.mrf.marginal(triple) - marginal(rows, triple)).sum() / 20_000
    assert far < (0.15 if budget < 1 else 0.03)


def encoder():
    columns = [
        Column(n, "categorical", categories=tuple(str(v) for v in range(s)))
        for n, s in zip(DOMAIN.names, DOMAIN.sizes, strict=True)
    ]
    return Encoder(Schema(tuple(columns)).with_fallbacks())


def test_more_parties_cost_little_at_the_same_budget():
    rows = chained(20_000)
    errors = []
    for parties in (1, 10):
        parts = [rows.take(np.arange(k, 20_000, parties)) for k in range(parties)]
        fit = TwoRound(workload=PAIRS).fit(
            parts, encoder(), budget=Budget(1.0, 1e-6), noise="seeded", seed=3
        )
        assert fit.epsilon <= 1.0
        errors.append(workload_errors(rows, fit.model.mrf, PAIRS).queries)
    assert max(errors) < 0.05


def test_a_query_that_is_too_large_is_refused_before_anything_is_paid(tmp_path):
    columns = tuple(Column(n, "integer", low=0, high=9999) for n in ("x", "y"))
    rows = Encoder(Schema(columns).with_fallbacks(), 5000)
    table = Codes(rows.domain, (np.zeros(3, np.int16), np.zeros(3, np.int16)))
    with pytest.raises(CapacityError, match=r"x \(5000\), y \(5000\) has 25,000,000 cells"):
        TwoRound(workload=[("x", "y")]).fit(
            [table, table], rows, budget=Budget(1.0, 1e-6), folder=tmp_path
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("relation", Relation)
def test_a_model_of_split_columns_has_all_people_where_their_number_is_public(relation):
    table = adult().take(range(400))
    parts = [table.select(["sex", "race"]), table.select(["income"])]
    schema = adult_schema().select(["sex", "race", "income"])
    budget = Budget(0.05, 1e-6, relation=relation)
    fitted = SecureTwoRound().fit(parts, schema, budget=budget, noise="seeded")
    known = relation is Relation.REPLACE_ONE
    assert (fitted.sample_table(seed=0).num_rows == 400) is known


def test_a_single_table_is_that_of_one_party():
    rows, schema = adult().take(range(200)), adult_schema()
    method = TwoRound(bins=4, workload=[("sex", "income")])
    fitted = method.fit(rows, schema, budget=Budget(1.0, 1e-6))
    assert list(fitted.ledgers) == ["party-1"]
    assert fitted.epsilon <= 1.0
