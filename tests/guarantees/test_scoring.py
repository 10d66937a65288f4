"""Federated scores: record and replay over random neighbours, and mutants that must be caught."""

from dataclasses import dataclass

import numpy as np
import pytest

from siloweave.errors import BudgetError, WireError
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.federation.site import MemoryStore, Site
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget, Relation, rho_for
from siloweave.privacy.events import Gaussian
from siloweave.privacy.ledger import Ledger
from siloweave.privacy.mechanisms import OSEntropy
from siloweave.protocols import scoring
from siloweave.protocols.scoring import HANDLERS, Judgement, ScoredRows, ScoreTable, ask_scores
from siloweave.statistics.marginals import marginal
from tests.federation.sites import Sites
from tests.guarantees.whole import BUDGET, budget_of, codes, random_rows, rosters, run_of, twins

QUERIES = [("a",), ("c",), ("a", "b"), ("b", "c")]
RELATIONS = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]
JUDGED = codes(random_rows(np.random.default_rng(99), 40))


@dataclass(frozen=True)
class Study:
    """Scores over a roster."""

    budget: Budget = BUDGET
    handlers: object = None

    def __call__(self, roster, seed=0):
        rows = {name: ScoredRows(one, self.budget) for name, one in roster.items()}
        run = run_of(rows, self.handlers or HANDLERS, budget=self.budget, seed=seed)
        parties = Session(tuple(roster), run.wire, run="r")
        price = scoring.price_for(self.budget, 1)
        run.found = ask_scores(parties, JUDGED, QUERIES, price, self.budget.neighbours)
        return run


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("parties", [1, 3])
def test_what_neighbours_cost_is_paid(relation, parties):
    study = Study(budget_of(relation))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        twins(study, *rosters(rng, relation, parties=parties), seed=seed).check()


def test_the_budget_is_spent_and_no_more():
    roster = {f"p{k}": codes(random_rows(np.random.default_rng(k), 50)) for k in range(3)}
    run = Study()(roster)
    for name in roster:
        ledger = run.ledger(name)
        assert len(ledger.entries) == 2
        assert 0.95 * rho_for(BUDGET) <= ledger.rho <= rho_for(BUDGET) * (1 + 1e-9)


def judged_with(site, request, size, part, charge):
    """The party's side with one thing wrong."""
    codes = site.rows.codes
    *size_event, right = scoring._events(request, site)
    noisy, public = scoring._size(size_event, site)
    tables = [np.asarray(t.numpy(), dtype=float) for t in request.shares]
    n = codes.num_rows if size == "exact" else max(1, noisy[0].value)
    sigma, sensitivity = right.sigma * part, right.sensitivity * part

    def draw():
        gaps = [
            np.abs(marginal(codes, q) - n * p).sum()
            for q, p in zip(request.queries, tables, strict=True)
        ]
        exact = int(scoring.GRID * sum(gaps) / (len(gaps) if size != "sum" else 1))
        return int(mechanisms.add_gaussian(np.array([exact]), sigma, entropy=site.entropy)[0])

    event = Gaussian(sigma=sigma if charge is None else charge * sigma, sensitivity=sensitivity)
    return Judgement(site.release(event, "distance", draw), noisy, public)


MUTANTS = {
    "the exact number of rows scales the shares": ("exact", 1.0, None),
    "the sum where the mean is charged": ("sum", 1.0, None),
    "half the sensitivity": ("noisy", 0.5, None),
    "half the noise": ("noisy", 1.0, 2.0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name):
    size, part, charge = MUTANTS[name]

    def judge(request, site):
        return judged_with(site, request, size, part, charge)

    with pytest.raises(AssertionError):
        check_many(Study(handlers={**HANDLERS, ScoreTable: judge}))


def check_many(study):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        twins(study, *rosters(rng, Relation.ADD_REMOVE, parties=1), seed=seed).check()


# A coordinator that lies


@dataclass
class Ask:
    """One party, and a coordinator that sends it whatever it likes."""

    rows: ScoredRows
    limit: Budget = BUDGET

    def __post_init__(self):
        self.site = Site("clinic", self.rows, ledger=Ledger("clinic", limit=self.limit),
                         entropy=OSEntropy(), store=MemoryStore())  # fmt: skip
        self.parties = Session(("clinic",), Sites({"clinic": self.site}, HANDLERS), run="score")

    def __call__(self, **lie):
        size_rho, score_rho = scoring.price_for(self.rows.budget, self.rows.parties)
        queries = (("a",), ("a", "b"))
        honest = {
            "queries": queries,
            "shares": tuple(Array.of(marginal(JUDGED, q) / 40, "<f4") for q in queries),
            "size_rho": size_rho,
            "score_rho": score_rho,
        }
        return self.parties.ask(ScoreTable(**{**honest, **lie}))


ROWS = codes(random_rows(np.random.default_rng(5), 50))


def shares(*tables, dtype="<f4"):
    return tuple(Array.of(np.array(table), dtype) for table in tables)


HALF, SIXTH = np.full(2, 1 / 2), np.full((2, 3), 1 / 6)
LIES = {
    "a hundred thousand copies": {"shares": shares(np.full((100_000, 2), 0.5), SIXTH)},
    "copies along a new axis": {"shares": shares(HALF[None], SIXTH)},
    "one number for all cells": {"shares": shares(np.array(0.5), SIXTH)},
    "another query's shape": {"shares": shares(HALF, SIXTH.T)},
    "whole numbers": {"shares": shares([1, 0], np.eye(2, 3)[:1].repeat(2, 0) // 2, dtype="<i4")},
    "counts, not shares": {"shares": shares(HALF * 40, SIXTH)},
    "nothing at all": {"shares": shares(HALF * 0, SIXTH)},
    "a negative share": {"shares": shares([1.5, -0.5], SIXTH)},
    "no number": {"shares": shares([np.nan, 1.0], SIXTH)},
    "an endless share": {"shares": shares([np.inf, 0.0], SIXTH)},
    "a table too few": {"shares": shares(HALF)},
    "a table too many": {"shares": shares(HALF, SIXTH, HALF)},
    "no query": {"queries": (), "shares": ()},
    "a query twice": {"queries": (("a",), ("a",)), "shares": shares(HALF, HALF)},
    "a column twice": {"queries": (("a",), ("a", "a")), "shares": shares(HALF, SIXTH)},
    "columns turned round": {"queries": (("a",), ("b", "a")), "shares": shares(HALF, SIXTH.T)},
    "another's column": {"queries": (("z",), ("a", "b"))},
    "a query of no column": {"queries": ((), ("a", "b")), "shares": shares(np.array(1.0), SIXTH)},
    "no noise on the score": {"score_rho": float("inf")},
    "next to no noise on the score": {"score_rho": 1e300},
    "no price for the score": {"score_rho": 0.0},
    "a price that is no number": {"score_rho": float("nan")},
    "a negative price": {"size_rho": -0.01},
    "noise too wide to draw": {"size_rho": 1e-300},
    "no number of rows": {"size_rho": 0.0},
}


@pytest.mark.parametrize("name", LIES)
def test_a_malformed_request_is_refused_before_anything_is_paid(name):
    ask = Ask(ScoredRows(ROWS, BUDGET))
    with pytest.raises(WireError, match=r"party 'clinic'|not finite"):
        ask(**LIES[name])
    assert ask.site.ledger.entries == ()


def test_a_public_number_of_rows_has_no_price():
    ask = Ask(ScoredRows(ROWS, budget_of(Relation.REPLACE_ONE)))
    with pytest.raises(WireError, match="must be 0"):
        ask(size_rho=0.01)
    assert ask.site.ledger.entries == ()
    assert ask()[0].public_rows[0].value == 50


def test_a_score_costs_no_more_than_the_study_says_whatever_the_ledger_allows():
    ask = Ask(ScoredRows(ROWS, Budget(0.5, 1e-5)), limit=Budget(20.0, 1e-5))
    _, fair = scoring.price_for(ask.rows.budget, 1)
    with pytest.raises(BudgetError, match=r"its budget is 0\.5"):
        ask(score_rho=fair * 1.1)
    assert ask.site.ledger.entries == ()
    ask()
    with pytest.raises(WireError, match="may only come first"):
        ask()
    assert len(ask.site.ledger.entries) == 2


def test_a_party_counts_on_all_parties_that_hold_the_same_people():
    data = ScoredRows(ROWS, BUDGET, parties=3)
    size_rho, score_rho = scoring.price_for(BUDGET, 1)
    ask = Ask(data)
    with pytest.raises(BudgetError, match="over 3 parties"):
        ask(size_rho=size_rho / 2, score_rho=score_rho / 2)
    assert ask.site.ledger.entries == ()
    ask()
    assert 0.99 * BUDGET.epsilon < epsilon(ask.site.ledger.events * 3, BUDGET.delta) <= 4.0


def test_what_other_parties_spent_on_the_same_people_counts():
    spent = Gaussian(sigma=1.0, sensitivity=1.0)
    ask = Ask(ScoredRows(ROWS, BUDGET, parties=2, others=(spent,)))
    with pytest.raises(BudgetError, match="already spent"):
        ask()
    assert ask.site.ledger.entries == ()


def test_nothing_after_the_charge_depends_on_how_large_the_noisy_number_of_rows_is(monkeypatch):
    monkeypatch.setattr(mechanisms, "add_gaussian", lambda values, sigma, entropy: values + 2**61)
    reply = Ask(ScoredRows(ROWS, BUDGET))()[0]
    assert reply.noisy_rows[0].value > 2**60
