"""Which queries AIM, FLAIM and TwoRound get right when nobody names any, and in how many bins."""

import re
from dataclasses import replace
from itertools import combinations
from math import inf, sqrt

import numpy as np
import pytest

import siloweave as sw
from siloweave.core.method import Setup
from siloweave.errors import CapacityError, InputError, WireError
from siloweave.federation.expected import MOST_ROWS
from siloweave.methods.aim import coordinator
from siloweave.models.estimate import fit
from siloweave.models.junction_tree import tree_cells
from siloweave.privacy.budget import rho_for
from siloweave.protocols.histograms import BINS
from siloweave.protocols.workloads import (
    COARSE,
    bins_for,
    expected_l1,
    fours_with_target,
    queries_of,
    shortlist,
    too_large,
    unseen_relations,
    weights_of,
    without_costly_sets,
    workload_for,
)
from siloweave.statistics.marginals import marginal, random_workload
from siloweave.tables.bins import Cuts
from siloweave.tables.codes import Codes, Domain, Encoder
from siloweave.tables.table import Table
from tests.synthesizers.families import SYNTHESIZERS

NAMES = ("a", "b", "c", "d", "e")
PAIRS = list(combinations(NAMES, 2))
BUDGET = sw.Budget(4.0, 1e-5)


def schema(*wide):
    """Five columns of three values, but for wide ones of 200."""
    return sw.Schema(tuple(
        sw.Column(n, "integer", low=0, high=199 if n in wide else 2) for n in NAMES
    )).with_fallbacks()  # fmt: skip


def table():
    rng = np.random.default_rng(0)
    return sw.Table.from_columns({name: (rng.integers(0, 3, 60), None) for name in NAMES})


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_every_pair_is_a_query_by_default(name):
    kind = SYNTHESIZERS[name]
    data = table() if kind.method.split == "central" else [table(), table()]
    if kind.method.split == "columns":
        data = [table().select(NAMES[:2]), table().select(NAMES[2:])]
    extra = {"participation": 1.0, "rounds": 2} if name == "flaim" else {}
    fitted = kind(bins=4, **extra).fit(data, schema(), budget=BUDGET)
    found = list(fitted.model.workload)
    assert found[: len(PAIRS)] == PAIRS
    met = {clique for one in fitted.model.measured for clique in one.cliques}
    assert set(found[len(PAIRS) :]) == {q for q in met if len(q) == 3 and name == "aim"}
    three = kind(bins=4, degree=3, **extra).fit(data, schema(), budget=BUDGET)
    assert list(three.model.workload) == list(combinations(NAMES, 3))


def test_the_published_setting_is_the_random_triples_of_before():
    domain = Domain(tuple(f"c{i}" for i in range(14)), (3,) * 14)
    drawn = workload_for(domain, 3, 64, "auto", 80.0)
    assert drawn == random_workload(domain, 3, 64, seed=123)
    assert len(drawn) == 64


def test_pairs_that_do_not_fit_are_left_out_and_said():
    wide, limit = ("a", "b"), 8 * 2_000e-6  # 2,000 cells: 200 x 200 do not fit, 200 x 3 do
    aim = sw.FLAIM(bins=200, counts_share=0, participation=1.0, rounds=2, max_model_mb=limit)
    fitted = aim.fit([table(), table()], schema(*wide), budget=BUDGET)
    assert list(fitted.model.workload) == [q for q in combinations(NAMES, 2) if q != wide]
    (note,) = aim.forecast(schema(*wide), rows=1, budget=BUDGET, parties=2).notes
    assert "1 set of 2 columns is not in the workload, for which 0.016 MB have no room" in note
    assert not sw.FLAIM(bins=9).forecast(schema(*wide), rows=1, budget=BUDGET, parties=2).notes


def test_what_many_parties_choose_at_once_stays_within_the_model():
    parts = [table().take(range(i, i + 6)) for i in range(0, 54, 2)]  # 3^5 cells at most
    limit = 8 * 60e-6
    flaim = sw.FLAIM(participation=1.0, rounds=2, local_steps=2, max_model_mb=limit)
    fitted = flaim.fit(parts, schema(), budget=sw.Budget(0.1, 1e-5))
    model = fitted.model
    measured = [q for one in model.measured for q in one.cliques]
    assert tree_cells(model.encoder.domain, measured) <= 60
    assert {len(q) for q in measured} == {1, 2}
    everything = sw.FLAIM(participation=1.0, rounds=2, local_steps=2)
    model = everything.fit(parts, schema(), budget=sw.Budget(0.1, 1e-5)).model
    chosen = [q for one in model.measured for q in one.cliques]
    assert tree_cells(model.encoder.domain, chosen) > 60  # the same parties choose more than fits


def test_a_column_whose_every_pair_is_too_large_is_a_query_by_itself():
    domain = Domain(NAMES, (200, 3, 3, 3, 3))
    found = workload_for(domain, 2, None, "auto", 8 * 300e-6)
    assert found == [*combinations(NAMES[1:], 2), ("a",)]
    with pytest.raises(CapacityError, match=r"the query over a \(200\)"):
        workload_for(domain, 2, None, "auto", 8 * 100e-6)


def test_what_is_asked_for_must_fit():
    domain = Domain(NAMES, (200, 200, 3, 3, 3))
    with pytest.raises(CapacityError, match="a \\(200\\), b \\(200\\)"):
        workload_for(domain, 2, None, [("a", "b")], 8 * 2_000e-6)
    with pytest.raises(CapacityError, match="a \\(200\\), b \\(200\\)"):
        workload_for(domain, 2, 10, "auto", 8 * 2_000e-6)


def test_many_columns_stay_within_the_model():
    names = tuple(f"c{i}" for i in range(55))
    domain = Domain(names, (16,) * 55)
    rng = np.random.default_rng(0)
    codes = Codes(domain, tuple(rng.integers(0, 16, 40) for _ in names))
    columns = tuple(sw.Column(n, "integer", low=0, high=15) for n in names)
    encoder = Encoder(sw.Schema(columns).with_fallbacks(), bins=16)
    fitted = sw.TwoRound(max_model_mb=1.0).fit([codes, codes], encoder, budget=BUDGET)
    assert len(fitted.model.workload) == 55 * 54 // 2
    assert fitted.model.mrf.tree.cells * 8 <= 1e6


def linked(rows, seed=0):
    """Three columns, the third the parity of the others, and a fourth apart."""
    rng = np.random.default_rng(seed)
    a, b, d = rng.integers(0, 2, (3, rows))
    columns = {"a": a, "b": b, "c": (a + b + (rng.random(rows) < 0.2)) % 2, "d": d}
    columns["b"] = np.where(rng.random(rows) < 0.3, a, b)
    return sw.Table.from_columns({name: (values, None) for name, values in columns.items()})


BINARY = sw.Schema(tuple(sw.Column(n, "integer", low=0, high=1) for n in "abcd")).with_fallbacks()


def error(fitted, rows):
    """Of the counts of a, b and c, as a share of the rows."""
    encoder = Encoder(BINARY)
    real = marginal(encoder.encode(rows), ("a", "b", "c"))
    return abs(
        fitted.model.mrf.marginal(("a", "b", "c")) / rows.num_rows - real / rows.num_rows
    ).sum()


def test_aim_measures_triples_of_two_codes_each_and_so_sees_what_pairs_hide():
    rows, budget = linked(20_000), sw.Budget(1.0, 1e-6)
    fitted = sw.AIM().fit(rows, BINARY, budget=budget, noise="seeded")
    pairs = sw.AIM(degree=2).fit(rows, BINARY, budget=budget, noise="seeded")
    assert ("a", "b", "c") in fitted.model.workload
    assert error(fitted, rows) < 0.5 * error(pairs, rows)


def test_the_last_fit_is_held_less_towards_entropy_unless_a_workload_is_named(monkeypatch):
    for named, last in (
        ({}, 0.2),
        ({"target": "a"}, 0.2),
        ({"degree": 2}, 0.5),
        ({"workload": PAIRS}, 0.5),
    ):
        held = []

        def recorded(*given, shrinkage, held=held, **rest):
            held.append(shrinkage)
            return fit(*given, shrinkage=shrinkage, **rest)

        monkeypatch.setattr(coordinator, "fit", recorded)
        sw.AIM(**named).fit(table(), schema(), budget=BUDGET, noise="seeded")
        assert held[-1] == last
        assert set(held[:-1]) == {0.5}


def test_triples_of_two_codes_each_pay():
    domain = Domain(NAMES, (2, 2, 2, 2, 3))
    triples = [("a", "b", "c"), ("a", "c", "d"), ("a", "b", "e"), ("a", "d", "e")]
    offered = dict.fromkeys([("a",), ("a", "b"), *triples], 1.0)
    assert list(without_costly_sets(domain, offered)) == [("a",), ("a", "b"), *triples[:2]]


def test_sets_of_four_with_a_target_are_no_candidates_where_they_are_too_many():
    def fours(columns, **settings):
        domain = Domain(tuple(f"c{i}" for i in range(columns)), (2,) * columns)
        return len(fours_with_target(sw.AIM(target="c3", **settings), domain))

    assert (fours(4), fours(11), fours(64), fours(65)) == (1, 120, 39_711, 0)
    assert fours(11, degree=2) == fours(11, max_model_mb=1e-4) == 0
    domain = Domain(NAMES, (2,) * 5)
    assert fours_with_target(sw.AIM(target="a"), domain) == [
        ("a", *rest) for rest in combinations("bcde", 3)
    ]
    assert fours_with_target(sw.AIM(target="e"), Domain(NAMES, (2, 2, 3, 2, 2))) == [
        ("a", "b", "d", "e")
    ]
    assert fours_with_target(sw.AIM(target="c"), Domain(NAMES, (2, 2, 3, 2, 2))) == []
    assert fours_with_target(sw.AIM(), domain) == []
    assert fours_with_target(sw.TwoRound(target="a"), domain) == []


def test_every_set_with_a_target_is_offered_in_some_round():
    names = tuple(f"c{i:02}" for i in range(40))
    fours = [(*rest, "y") for rest in combinations(names, 3)]
    offered = dict.fromkeys([("c00", "c01"), *fours], 1.0)
    rounds = [shortlist(offered, [("c00", "c01")], turn, has_target=True) for turn in range(16)]
    assert set().union(*rounds) == set(offered)
    assert max(map(len, rounds)) == 1 + 1024 + 256
    assert len(shortlist(offered, [("c00", "c01")])) == 1 + 256


def test_aim_learns_a_parity_of_three_columns_with_the_target():
    """No pair and no triple shows it: only all four columns do."""
    data = np.random.default_rng(2).integers(0, 2, (6_000, 7))
    parity = data[:, :3].sum(axis=1) % 2
    columns = {f"c{i}": (data[:, i], None) for i in range(7)} | {"y": (parity, None)}
    described = sw.Schema(
        tuple(sw.Column(name, "integer", low=0, high=1) for name in columns)
    ).with_fallbacks()
    table = sw.Table.from_columns(columns)
    budget = sw.Budget(2.0, 1e-6)

    def share_right(synth):
        fitted = synth.fit(table, described, budget=budget, noise="seeded", progress=False)
        rows = sw.read(fitted.sample(4_000, seed=1))
        expected = sum(rows.values(f"c{i}") for i in range(3)) % 2
        return (expected == rows.values("y")).mean()

    assert share_right(sw.AIM(target="y")) > 0.95
    assert share_right(sw.AIM()) < 0.6


@pytest.mark.parametrize(
    ("synth", "sizes", "part"),
    [
        (sw.AIM(target="a"), (2,) * 5, "more than four columns with 'a' could not be seen, unless"),
        (sw.AIM(target="a"), (2, 2, 2, 2, 3), "nor one of three or four columns of which one has"),
        (sw.AIM(target="a"), (5,) * 5, "more than three columns with 'a' could not be seen, nor"),
        (sw.FLAIM(target="a"), (2,) * 5, "more than three columns with 'a' could not be seen, unl"),
        (sw.TwoRound(target="a"), (2,) * 5, "more than two columns with 'a' could not be seen"),
    ],
)
def test_a_check_warns_of_relations_with_the_target_that_it_cannot_see(synth, sizes, part):
    described = sw.Schema(tuple(
        sw.Column(name, "integer", low=0, high=size - 1)
        for name, size in zip(NAMES, sizes, strict=True)
    )).with_fallbacks()  # fmt: skip
    (warning,) = synth.forecast(described, rows=1_000, budget=BUDGET).warnings
    assert part in warning


def test_nothing_is_said_of_relations_where_all_are_seen_or_named():
    four = Domain(NAMES[:4], (2,) * 4)
    assert list(unseen_relations(sw.AIM(target="a"), four)) == []
    for synth in (sw.AIM(), sw.AIM(target="a", degree=2), sw.AIM(target="a", workload=PAIRS)):
        assert list(unseen_relations(synth, Domain(NAMES, (2,) * 5))) == []


def test_of_many_triples_those_are_taken_whose_pairs_were_measured():
    names = tuple(f"c{i:02}" for i in range(20))
    triples = list(combinations(names, 3))
    known = [(names[17], names[18]), (names[18], names[19])]
    found = list(shortlist(dict.fromkeys(triples, 1.0), known))
    assert len(found) == 256
    assert (names[17], names[18], names[19]) in found
    assert sum(set(pair) <= set(q) for q in found for pair in known) == 36


def test_the_triples_of_a_target_are_queries_after_all_pairs():
    domain = Domain(NAMES, (3,) * 5)
    found = workload_for(domain, None, None, "auto", 80.0, target="c")
    assert found == PAIRS + [q for q in combinations(NAMES, 3) if "c" in q]
    weights = weights_of(domain, found)
    assert weights[("b", "c")] > weights[("a", "b")]
    with pytest.raises(InputError, match="target='age' is no column of the model; choose from a, "):
        queries_of(sw.TwoRound(target="age"), Encoder(schema(), 4))


def test_the_weight_of_a_query_is_what_it_shares_with_all_of_them():
    domain = Domain(NAMES, (2,) * 5)
    workload = [("a", "b", "c"), ("b", "d"), ("e",)]
    for r, weight in weights_of(domain, workload).items():
        assert weight == sum(len(set(r) & set(s)) for s in workload)
    assert weights_of(domain, workload, 2)["a", "b", "c"] == 3  # of b and another
    weights = weights_of(domain, workload, 2, [("b", "c", "d")])  # a candidate is no query
    assert list(weights)[-1] == ("b", "c", "d")
    assert weights["b", "c", "d"] == weights["b", "d"]


def numbers(rows):
    """A whole number of 1,001 values, one of 21, and one with a decimal and 16 values."""
    rng = np.random.default_rng(rows)
    values = {"w": rng.integers(0, 1001, rows), "k": rng.integers(0, 21, rows)}
    values["x"] = np.round(rng.integers(0, 18, rows) / 10, 1)
    return sw.Table.from_columns({name: (column, None) for name, column in values.items()})


NUMBERS = sw.Schema((
    sw.Column("w", "integer", low=0, high=1000),
    sw.Column("k", "integer", low=0, high=20),
    sw.Column("x", "continuous", low=0.0, high=1.7, decimals=1),
)).with_fallbacks()  # fmt: skip


@pytest.mark.parametrize("method", [sw.AIM, sw.TwoRound])
def test_bins_follow_rows_and_a_column_of_few_values_has_one_for_each(method):
    found = {}
    for rows in (400, 20_000):
        data = numbers(rows)
        fitted = method().fit(
            data if method is sw.AIM else [data, data], NUMBERS, budget=sw.Budget(1.0, 1e-6),
            noise="seeded",
        )  # fmt: skip
        found[rows] = fitted.settings["bins"]
        codes = fitted.model.encoder.encode(data)
        assert codes.domain.size_of("w") == found[rows]["w"]
    few, many = found[400], found[20_000]
    assert 4 <= few["w"] < many["w"] <= 32
    assert few["k"] == few["w"]
    assert (many["k"], many["x"]) == (21, 18)
    drawn = sw.read(fitted.sample(500, seed=0))
    assert set(np.rint(10 * drawn.values("x")) / 10) >= set(drawn.values("x"))


def test_more_bins_need_more_rows_or_budget_and_fewer_codes_in_other_columns():
    continuous = [sw.Column(n, "continuous", low=0.0, high=1.0) for n in NAMES]
    numbers = sw.Schema(tuple(continuous)).with_fallbacks()
    assert bins_for(numbers, 1, 1e-9) == 4
    assert bins_for(numbers, 1e12, 1.0) == bins_for(numbers, 1e3, inf) == 16
    few = bins_for(numbers, 1_000, 0.03)
    assert bins_for(numbers, 8_000, 0.03) == pytest.approx(2 * few, abs=1)
    assert bins_for(numbers, 1_000, 0.03 * 64) == pytest.approx(2 * few, abs=1)
    classes = [sw.Column(n, "boolean") for n in ("f", "g", "h", "i", "j")]
    assert (
        bins_for(sw.Schema((*continuous, *classes)).with_fallbacks(), 1_000 * sqrt(2), 0.03) > few
    )


def test_a_check_says_what_was_chosen_and_why():
    budget = sw.Budget(1.0, 1e-6)

    def notes_of(synth, schema=NUMBERS):
        return synth.forecast(schema, rows=20_000, budget=budget).notes

    bins, triples = notes_of(sw.AIM())
    rho = rho_for(budget)
    assert f"numbers are cut into about {bins_for(NUMBERS, 20_000, rho)} bins each" in bins
    assert "about 20,000 rows" in bins
    one = sw.Schema((NUMBERS["w"], sw.Column("b", "boolean"))).with_fallbacks()
    (bins,) = notes_of(sw.AIM(), one)[:1]
    assert re.match(r"1 column of numbers is cut into about \d+ bins; a column with", bins)
    assert "a triple is a candidate where its columns have two codes each" in triples
    assert not notes_of(sw.AIM(degree=2, bins=16))
    (target,) = notes_of(sw.TwoRound(target="k", bins=16))
    assert "the triples with 'k', the target" in target


def test_a_party_refuses_more_bins_than_a_study_may_have():
    synth = sw.TwoRound()
    setup = Setup(synth, NUMBERS, BUDGET, ("north", "south"))
    most = Encoder(setup.schema, COARSE, cuts={"w": Cuts(tuple(range(1, 32)))})
    assert BINS.accepts(setup, replace(setup, encoder=most)).encoder == most
    more = Encoder(NUMBERS, COARSE, cuts={"w": Cuts(tuple(range(1, 33)))})
    with pytest.raises(WireError, match="into 33 bins; by the study these are 32 at most"):
        BINS.accepts(setup, replace(setup, encoder=more))


@pytest.mark.parametrize(
    "wrong", [{"queries": 0}, {"degree": 0}, {"queries": "all"}, {"workload": "all"}]
)
def test_settings_out_of_bounds_are_named(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        sw.AIM(**wrong)


def test_noise_in_a_score_leaves_room_for_what_a_row_moves():
    """A score of 2^53 or more is a multiple of two: one row would move it by two, or not at all."""
    noise = expected_l1(float(MOST_ROWS), 10**7)
    assert all((gap + 1 - noise) - (gap - noise) == 1 for gap in range(9))


@pytest.mark.parametrize("sizes", [(6,) * 8, (2, 3, 5, 8, 12, 16, 20, 30)])
def test_the_forecast_of_flaim_follows_how_its_model_grows(sizes):
    """Pairs of equally many codes are chosen by noise alone, until all hang together."""
    names, rng = "abcdefgh", np.random.default_rng(0)
    domain = Domain(tuple(names), sizes)
    columns = [
        sw.Column(n, "integer", low=0, high=m - 1) for n, m in zip(names, sizes, strict=True)
    ]
    encoder, budget = Encoder(sw.Schema(tuple(columns)).with_fallbacks(), 30), sw.Budget(1.0, 1e-6)
    parts = [Codes(domain, tuple(rng.integers(m, size=20) for m in sizes)) for _ in range(40)]
    synth = sw.FLAIM(participation=0.5, rounds=4)
    runs = [synth.fit(parts, encoder, budget=budget, seed=i, noise="seeded") for i in range(5)]
    grown = np.mean([tree_cells(domain, list(one.model.mrf.potentials)) for one in runs])
    found = synth.forecast(encoder, rows=800, budget=budget, parties=40)
    foreseen = (found.memory_mb - 232.0) / 8 / 8e-6
    assert 0.3 * grown < foreseen < 3.0 * grown
    queries = sum(domain.size(q) for q in weights_of(domain, queries_of(synth, encoder)))
    assert (foreseen > 10 * queries) == (len(set(sizes)) == 1)


def test_a_column_of_one_code_is_in_no_pair_that_nobody_asked_for():
    """How many codes a column has is public; its pairs would be other columns' counts again."""
    domain = Domain(("a", "same", "b", "c"), (3, 1, 4, 2))
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    assert workload_for(domain, None, None, "auto", 80.0) == [*pairs, ("same",)]
    found = workload_for(domain, None, None, "auto", 80.0, target="b")
    assert found == [*pairs, ("same",), ("a", "b", "c")]
    assert workload_for(domain, 2, 3, "auto", 80.0) == pairs
    assert too_large(domain, 2, 80.0) == 0
    assert workload_for(domain, 2, None, [("a", "same")], 80.0) == [("a", "same")]
    alone = Domain(("same", "too"), (1, 1))
    assert workload_for(alone, None, None, "auto", 80.0) == [("same", "too")]
    assert workload_for(Domain(("a", "same"), (3, 1)), None, None, "auto", 80.0) == [
        ("a",),
        ("same",),
    ]


def test_no_choice_of_aim_is_a_pair_with_a_column_of_one_code():
    rng = np.random.default_rng(0)
    a = rng.integers(3, size=300)
    columns = {"a": a, "b": (a + rng.integers(2, size=300)) % 3, "same": np.full(300, 7)}
    table = Table.from_columns({name: (values, None) for name, values in columns.items()})
    kinds = [(name, (7,) if name == "same" else (0, 1, 2)) for name in columns]
    known = sw.Schema(
        tuple(sw.Column(name, "categorical", values) for name, values in kinds)
    ).with_fallbacks()
    fitted = sw.AIM().fit(table, known, budget=sw.Budget(1.0, 1e-6))
    measured = {clique for one in fitted.model.measured for clique in one.cliques}
    assert ("a", "b") in measured
    assert {clique for clique in measured if "same" in clique} == {("same",)}
    assert set(fitted.sample(50, seed=0)["same"]) == {7}
