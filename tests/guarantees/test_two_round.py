"""TwoRound whole: record and replay over random neighbours, and mutants that must be caught."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from siloweave.federation.session import Session
from siloweave.methods.two_round import coordinator as two_round
from siloweave.methods.two_round.method import TwoRound
from siloweave.privacy.budget import Budget, Relation, marginal_sensitivity, rho_for
from siloweave.protocols import secure_sums, two_rounds
from siloweave.protocols.secure_sums import HANDLERS, Count, Counts, masked_reply
from siloweave.protocols.workloads import StudyWorkload
from siloweave.statistics.marginals import marginal
from tests.guarantees.replay import DivergenceError, record
from tests.guarantees.whole import (
    BUDGET,
    WORKLOAD,
    budget_of,
    claimed_sigma,
    codes,
    random_rows,
    rosters,
    run_of,
    sums_of,
    twins,
)

RELATIONS = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]


@dataclass(frozen=True)
class Study:
    """TwoRound over a roster."""

    settings: TwoRound = field(default_factory=lambda: TwoRound(final_sweeps=2))
    budget: Budget = BUDGET
    handlers: object = None

    def __call__(self, roster, seed=0):
        run = run_of(
            roster, self.handlers or HANDLERS, budget=self.budget, seed=seed,
            tolerated=self.settings.tolerated,
            facts={"workload": StudyWorkload(tuple(WORKLOAD), self.settings.max_model_mb)},
        )  # fmt: skip
        unit = marginal_sensitivity(self.budget.neighbours, norm="l2")
        domain = next(iter(roster.values())).domain
        run.model, run.rounds = two_round.two_round(
            Session(tuple(roster), run.wire, run="r"), domain, list(WORKLOAD),
            rho_for(self.budget), self.settings, unit=unit,
        )  # fmt: skip
        return run


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("tolerated", [1, 2])
def test_what_neighbours_cost_is_paid(relation, tolerated):
    study = Study(TwoRound(final_sweeps=1, tolerated=tolerated), budget_of(relation))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        twins(study, *rosters(rng, relation), seed=seed).check()


def check_some(study, parties=3):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        twins(study, *rosters(rng, Relation.ADD_REMOVE, parties=parties), seed=seed).check()


def test_one_party_is_the_central_case():
    check_some(Study(), parties=1)


def test_the_budget_is_spent_and_no_more():
    roster = {f"p{k}": codes(random_rows(np.random.default_rng(k), 50)) for k in range(3)}
    run = Study()(roster)
    for name in roster:
        ledger = run.ledger(name)
        assert len(ledger.entries) == 2
        assert 0.95 * rho_for(BUDGET) <= ledger.rho <= rho_for(BUDGET) * (1 + 1e-9)
        assert ledger.epsilon() <= BUDGET.epsilon


def test_the_coordinator_sees_sums_under_the_noise_that_is_claimed():
    roster = {f"p{k}": codes(random_rows(np.random.default_rng(k), 20)) for k in range(4)}
    runs = []
    gaps = []
    for seed in range(40):
        tape = record(lambda seed=seed: runs.append(Study()(roster, seed)))
        gaps += [(s.noise, s.shares, s.event) for s in sums_of(runs[-1], tape)]
    noise = np.concatenate([n / claimed_sigma(event) for n, _, event in gaps])
    assert 0.95 < noise.std() * np.sqrt(3 / 4) < 1.05  # four shares, of which one may be known
    known = np.concatenate([(n - s[0]) / claimed_sigma(event) for n, s, event in gaps])
    assert 0.95 < known.std() < 1.05


def count_charged_once(request, site):
    """Counts tables `times` over and pays as if each was counted once."""
    tables = [
        k * marginal(site.rows, c) for c, k in zip(request.cliques, request.times, strict=True)
    ]
    return masked_reply(request, site, tables, "sums", contributes=len(tables))


def count_charged_by_sum(request, site):
    """Takes times, where their squares are due."""
    tables = [
        k * marginal(site.rows, c) for c, k in zip(request.cliques, request.times, strict=True)
    ]
    return masked_reply(request, site, tables, "sums", contributes=sum(request.times))


def count_free(request, site):
    """Forgets the root of the number of tables."""
    tables = [
        k * marginal(site.rows, c) for c, k in zip(request.cliques, request.times, strict=True)
    ]
    return masked_reply(request, site, tables, "sums", contributes=1)


@pytest.mark.parametrize("mutant", [count_charged_once, count_charged_by_sum, count_free])
def test_a_wrong_sensitivity_is_caught(mutant):
    study = Study(handlers={**HANDLERS, Count: mutant})
    with pytest.raises(AssertionError):
        check_some(study)


def test_a_plan_that_looks_at_rows_is_caught(monkeypatch):
    honest = two_rounds.plan
    seen = []

    def peeking(domain, weights, pairs, *args, **named):
        chosen = honest(domain, weights, pairs, *args, **named)
        return chosen[: 1 + seen[-1] % 2]

    def count(request, site):
        seen.append(site.rows.num_rows)
        return secure_sums.count(request, site)

    monkeypatch.setattr(two_rounds, "plan", peeking)
    study = Study(handlers={**HANDLERS, Count: count})
    with pytest.raises((AssertionError, DivergenceError)):
        check_some(study, parties=1)


def test_replies_are_masked_counts():
    run = Study()({"p0": codes([(0, 1, 1)]), "p1": codes([(1, 2, 0)])})
    kinds = {type(reply) for _, _, reply in run.messages()}
    assert Counts in kinds
    assert len(kinds) == 2  # greetings and counts
