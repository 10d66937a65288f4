"""Federated scores: record and replay over random neighbours, and mutants that must be caught."""

from dataclasses import dataclass

import numpy as np
import pytest

from siloweave.algorithms import score
from siloweave.algorithms.running import Job
from siloweave.algorithms.score import PARTY, Judge, Judgement
from siloweave.federation import Parties
from siloweave.privacy import Budget, Gaussian, Relation, mechanisms
from siloweave.privacy.calibrate import gaussian_sigma, rho_for
from siloweave.statistics.marginals import marginal
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
        run = run_of(roster, self.handlers or PARTY, budget=self.budget, seed=seed)
        parties = Parties(tuple(roster), run.wire, run="r")
        run.found = score._ask(parties, JUDGED, QUERIES, Job(self.budget))
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


def judged_with(site, request, size, sensitivity, charge):
    """The party's side with one thing wrong."""
    noisy, public = score._size(request, site)
    tables = [np.asarray(t.numpy(), dtype=float) for t in request.shares]
    n = site.rows.num_rows if size == "exact" else max(1, noisy[0].value)
    sigma = gaussian_sigma(request.score_rho, sensitivity)

    def draw():
        gaps = [
            np.abs(marginal(site.rows, q) - n * p).sum()
            for q, p in zip(request.queries, tables, strict=True)
        ]
        exact = int(score._GRID * sum(gaps) / (len(gaps) if size != "sum" else 1))
        return int(mechanisms.add_gaussian(np.array([exact]), sigma, entropy=site.entropy)[0])

    event = Gaussian(sigma=sigma if charge is None else charge * sigma, sensitivity=sensitivity)
    return Judgement(site.release(event, "distance", draw), noisy, public)


MUTANTS = {
    "the exact number of rows scales the shares": ("exact", None, None),
    "the sum where the mean is charged": ("sum", None, None),
    "half the sensitivity": ("noisy", 0.5, None),
    "half the noise": ("noisy", None, 2.0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name):
    size, part, charge = MUTANTS[name]

    def judge(request, site):
        sensitivity = (part or 1.0) * score._moves(Relation.ADD_REMOVE)
        return judged_with(site, request, size, sensitivity, charge)

    with pytest.raises(AssertionError):
        check_many(Study(handlers={**PARTY, Judge: judge}))


def check_many(study):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        twins(study, *rosters(rng, Relation.ADD_REMOVE, parties=1), seed=seed).check()
