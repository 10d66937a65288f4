"""What noise is expected to do to a table, from public facts alone, and what it did."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

import siloweave as sw
from siloweave.errors import BudgetError, InputError, SchemaError
from siloweave.protocols import workloads
from siloweave.protocols.accuracy import (
    Bought,
    aim_rounds,
    error_forecast,
    pairs_planned,
    small_pair,
    two_round_buys,
)
from siloweave.protocols.workloads import cheap_triples, refused_triples
from siloweave.tables.codes import Domain

BUDGET = sw.Budget(epsilon=1.0, delta=1e-6)


def schema(*sizes):
    columns = [sw.Column(f"c{i}", "integer", low=0, high=m - 1) for i, m in enumerate(sizes)]
    return sw.Schema(tuple(columns)).with_fallbacks()


def table(rows, *sizes):
    rng = np.random.default_rng(1)
    hidden = rng.random(rows)
    values = {}
    for i, size in enumerate(sizes):
        mixed = np.where(rng.random(rows) < 0.4, hidden, rng.random(rows))
        values[f"c{i}"] = (np.floor(size * mixed**2).astype(int), None)
    return sw.tables.Table.from_columns(values)


SIZES = (2, 4, 6, 6, 8, 8, 10, 12)


@pytest.mark.parametrize("synth", [sw.AIM(), sw.TwoRound()])
def test_errors_fall_with_rows_and_epsilon_and_rise_with_columns(synth):
    def error(rows=20_000, epsilon=1.0, sizes=SIZES):
        budget = sw.Budget(epsilon, 1e-6)
        return synth.forecast(schema(*sizes), rows=rows, budget=budget).error

    usual = error()
    assert error(rows=40_000).share == pytest.approx(usual.share / 2, rel=0.1)
    assert error(epsilon=4.0).share < usual.share / 2
    assert error(sizes=SIZES * 3).share > 1.3 * usual.share
    for other in (error(rows=40_000), error(epsilon=4.0)):
        assert other.pair < usual.pair
    assert [one.name for one in usual.columns] == [f"c{i}" for i in range(8)]


@pytest.mark.parametrize(("synth", "count"), [(sw.AIM(), 1), (sw.TwoRound(), 3)])
def test_runs_err_about_as_foreseen(synth, count):
    facts, rows = schema(*SIZES), table(5_000, *SIZES)
    found = synth.forecast(facts, rows=5_000, budget=BUDGET, parties=count).error
    data = rows if count == 1 else sw.split_rows(rows, count, seed=0)
    shares, pairs = [], []
    for seed in range(3):
        model = synth.fit(data, facts, budget=BUDGET, noise="seeded", seed=seed).model
        codes = model.encoder.encode(rows)
        for names in [(n,) for n in facts.names] + list(combinations(facts.names, 2)):
            (counts,) = codes.count([names])
            off = np.abs(model.mrf.marginal(names) / model.mrf.total - counts / 5_000).mean()
            (shares if len(names) == 1 else pairs).append(off)
    assert 0.5 < found.share / np.mean(shares) < 2.0
    assert 0.5 < found.pair / np.mean(pairs) < 2.0


def test_a_table_of_more_noise_than_rows_is_named():
    wide = schema(*[16, 2] * 40)
    found = sw.AIM().forecast(wide, rows=176, budget=BUDGET).error
    assert found.noise
    assert found.wrong > 0.25
    (sentence,) = found.warnings
    assert sentence.startswith("the table would be noise")
    enough = sw.AIM().forecast(wide, rows=1_000_000, budget=BUDGET).error
    assert not enough.noise
    assert enough.warnings == ()


def test_a_column_of_many_codes_is_named_where_the_others_are_right():
    categories = tuple(f"code {k}" for k in range(3_000))
    few = schema(2, 3, 4).columns
    facts = sw.Schema((*few, sw.Column("code", "categorical", categories=categories)))
    found = sw.AIM().forecast(facts.with_fallbacks(), rows=20_000, budget=BUDGET).error
    assert [one.name for one in found.columns if one.noise] == ["code"]
    (sentence,) = found.warnings
    assert sentence.startswith("noise would drown code:")


def test_drawing_more_rows_is_apart_from_noise():
    found = sw.AIM().forecast(schema(*SIZES), rows=1_000, budget=BUDGET).error
    assert 0 < found.share_drawn < found.pair_drawn
    assert found.pair_drawn < found.pair


def test_a_mean_errs_in_the_units_of_its_column():
    def mean(high):
        columns = (sw.Column("x", "integer", low=0, high=high), *schema(3, 3).columns)
        facts = sw.Schema(columns).with_fallbacks()
        return sw.AIM(bins=8, counts_share=0).forecast(facts, rows=9_000, budget=BUDGET).error

    near, far = (mean(high).columns[0].mean for high in (800, 8_000))
    assert far == pytest.approx(10 * near)
    assert 0 < near < 400


@pytest.mark.parametrize(
    ("named", "error", "words"),
    [
        ({}, InputError, "rows is missing.*rows=10_000.*nothing is released"),
        ({"rows": 0}, InputError, "rows=0"),
        ({"rows": 2.5}, InputError, "rows=2.5"),
        ({"rows": 100, "parties": 0}, InputError, "parties=0"),
    ],
)
def test_what_a_forecast_cannot_do_without_is_named(named, error, words):
    with pytest.raises(error, match=words):
        sw.AIM().forecast(schema(2, 3), budget=BUDGET, **named)


def test_a_forecast_needs_a_schema_and_a_budget():
    with pytest.raises(SchemaError, match="schema is missing"):
        sw.AIM().forecast(rows=100, budget=BUDGET)
    with pytest.raises(BudgetError, match="budget is missing"):
        sw.AIM().forecast(schema(2, 3), rows=100)


def test_a_method_without_a_forecast_of_error_has_none():
    assert sw.CTGAN().forecast(schema(2, 3), rows=1_000).error is None
    assert sw.FLAIM().forecast(schema(2, 3), rows=1_000, budget=BUDGET).error is None


def test_hundreds_of_columns_are_foreseen_without_their_triples():
    """All triples of 400 columns are ten million, which took gigabytes and minutes."""
    found = sw.AIM().forecast(schema(*[6] * 400), rows=1_000, budget=BUDGET)
    assert found.workload_queries == comb(400, 2)
    assert found.domain_cells == 6**400
    assert found.error.noise


def test_triples_of_two_codes_each_are_candidates_and_no_others():
    names = tuple("abcde")
    domain = Domain(names, (2, 2, 2, 2, 3))
    assert cheap_triples(sw.AIM(), domain) == list(combinations("abcd", 3))
    for other in (sw.TwoRound(), sw.AIM(target="a"), sw.AIM(degree=2), sw.AIM(max_model_mb=1e-5)):
        assert cheap_triples(other, domain) == []
    many = Domain(tuple(f"c{i}" for i in range(200)), (2,) * 200)
    assert cheap_triples(sw.AIM(), many) == []
    assert refused_triples(sw.AIM(), many) == comb(200, 3)
    assert refused_triples(sw.AIM(), domain) == refused_triples(sw.AIM(target="c1"), many) == 0


@pytest.mark.parametrize(("columns", "refused"), [(107, 0), (108, comb(108, 3))])
def test_triples_that_are_too_many_are_named(columns, refused):
    """The forecast says it before a run, and the settings that a report shows after it."""
    (note,) = sw.AIM().forecast(schema(*[2] * columns), rows=1_500, budget=BUDGET).notes
    assert (f"the {comb(columns, 3):,} triples" in note) == bool(refused)
    assert ("no candidates" in note) == bool(refused)
    assert ("a triple is a candidate" in note) == (not refused)


def test_rounds_are_few_where_noise_must_be_halved_often():
    def rounds(columns, size, rows):
        domain = Domain(tuple(f"c{i}" for i in range(columns)), (size,) * columns)
        return aim_rounds(domain, frozenset(), rows, 0.015, 0.9, 16)

    assert rounds(60, 13, 1_500) < 20  # of at most 960
    assert rounds(60, 2, 1_000_000) > 60
    assert rounds(60, 13, 1) > 1


def test_more_pairs_are_planned_where_noise_is_small_beside_the_rows():
    domain = Domain(tuple(f"c{i}" for i in range(20)), (8,) * 20)

    def planned(rows=10_000, noise=1.0, numbers=frozenset()):
        return pairs_planned(domain, numbers, rows, 300 * noise, 12 * noise)

    usual = planned()
    assert 5 < usual < planned(rows=40_000) < 190
    assert planned(noise=0.25) == pytest.approx(planned(rows=40_000))
    assert planned(noise=4.0) < usual
    assert planned(noise=1e-6) == pytest.approx(190, rel=0.01)
    # Numbers are taken to depend more than categories.
    assert planned(numbers=frozenset(domain.names)) > 1.5 * usual
    assert pairs_planned(Domain(("a",), (8,)), frozenset(), 100, 3.0, 2.0) == 0


def test_noise_alone_plans_some_pairs():
    """One of 24 independent answers is taken for dependent, so it is no fewer of faint ones."""
    domain = Domain(tuple(f"c{i}" for i in range(55)), (2,) * 55)
    assert 1485 / 60 < pairs_planned(domain, frozenset(), 1_000, 2_000.0, 5.0) < 1485 / 12


def test_measured_pairs_imply_some_of_what_others_lack():
    """Without noise, a pair that no table covers lacks what no third column explains."""
    names = tuple(f"c{i}" for i in range(40))
    domain = Domain(names, (8,) * 40)

    def lacks(pairs):
        bought = Bought(1e12, 0.0, pairs, sigma=1e-9, shrinkage=0.5, covered=50)
        return error_forecast(schema(*domain.sizes), domain, 10_000, bought).pair

    # Each column is measured with 10 others, and a pair has 10 * 10 / 40 of them in common.
    assert lacks(200) == pytest.approx(lacks(0) / 3.5, rel=1e-3)
    assert lacks(0) > 1e-4


def test_columns_that_no_planned_pair_holds_are_measured_alone():
    domain = Domain(tuple(f"c{i}" for i in range(9)), (8,) * 9)
    few = two_round_buys(domain, frozenset(), 700, 0.002, 0.3, 0.5)
    assert few.pairs < 9
    assert few.alone > few.more > few.first


def test_a_denser_model_draws_its_columns_less_evenly():
    def drawn(epsilon):
        budget = sw.Budget(epsilon, 1e-6)
        error = sw.TwoRound().forecast(schema(*SIZES), rows=20_000, budget=budget).error
        return error.share_drawn, error.pair_drawn

    (share, pair), (dense_share, dense_pair) = drawn(0.1), drawn(8.0)
    assert share < dense_share
    assert dense_pair < pair  # more pairs lie in a clique


def test_a_small_pair_is_smaller_than_nine_in_ten():
    assert small_pair((4,)) == 1
    assert small_pair((4, 5)) == 20
    sizes = (2, *[10] * 9)
    cells = sorted(a * b for a, b in combinations(sizes, 2))
    assert small_pair(sizes) == cells[len(cells) // 10]


def test_a_fit_stores_how_many_triples_were_no_candidates(monkeypatch):
    rows = table(200, 2, 2, 2, 2)
    fitted = sw.AIM().fit(rows, schema(2, 2, 2, 2), budget=BUDGET)
    assert "triples_left_out" not in fitted.settings
    monkeypatch.setattr(workloads, "MOST_TRIPLES", 3)
    fitted = sw.AIM().fit(rows, schema(2, 2, 2, 2), budget=BUDGET)
    assert fitted.settings["triples_left_out"] == comb(4, 3)
