"""A private Markov random field that a party learns from its own rows."""

from itertools import combinations
from math import sqrt

import numpy as np
import pytest

from siloweave.errors import BudgetError
from siloweave.models.estimate import fit
from siloweave.privacy.budget import Budget, Neighbours, Relation, rho_for
from siloweave.privacy.events import Gaussian
from siloweave.protocols.random_fields import FieldSettings, OwnAnswers, private_field
from siloweave.statistics.marginals import marginal, r_score
from siloweave.tables.codes import Codes, Domain
from tests.federation.rosters import site_with, terms_of

DOMAIN = Domain(tuple("abcdef"), (2, 2, 3, 2, 2, 4))
PAIRS = list(combinations(DOMAIN.names, 2))
RELATIONS = list(Relation)


def rows_of(number, seed=0):
    """A chain: each column is a noisy copy of the one before; the last is alone."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, 2, number)]
    for size in DOMAIN.sizes[1:5]:
        noise = rng.integers(0, size, number)
        columns.append(np.where(rng.random(number) < 0.8, columns[-1] % size, noise))
    columns.append(rng.integers(0, 4, number))
    return Codes(DOMAIN, tuple(columns))


def answers_of(rows, budget):
    return OwnAnswers(site_with("me", rows, terms_of(["me"]), limit=budget))


def learn(answers, rho, **settings):
    return private_field(
        answers, DOMAIN, PAIRS, rho, FieldSettings(**settings), megabytes=1.0, key=0
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("settings", [{}, {"refined": 0.0}, {"refined": 9.0}, {"widest": 2}])
def test_the_share_is_spent_and_no_more(relation, settings):
    budget = Budget(1.0, 1e-6, relation=relation)
    answers = answers_of(rows_of(500), budget)
    learn(answers, rho_for(budget), **settings)
    ledger = answers.site.ledger
    assert 0.97 < ledger.rho / rho_for(budget) <= 1 + 1e-12
    assert ledger.epsilon() <= budget.epsilon


def test_a_share_above_the_owners_limit_is_refused():
    budget = Budget(1.0, 1e-6)
    answers = answers_of(rows_of(100), budget)
    with pytest.raises(BudgetError, match="Nothing was released"):
        learn(answers, 3 * rho_for(budget))
    assert answers.site.ledger.epsilon() <= budget.epsilon


@pytest.mark.parametrize("relation", RELATIONS)
def test_budgets_parts_are_those_of_the_paper(relation):
    """0.10 for scores and rows, 0.10 for errors, and the rest for marginals, with equal noise."""
    budget = Budget(1.0, 1e-6, relation=relation)
    answers = answers_of(rows_of(5000), budget)
    found = learn(answers, rho_for(budget))
    spent = {"R-scores": 0.0, "L1 errors": 0.0, "marginals": 0.0}
    entries = answers.site.ledger.entries
    for entry in entries:
        assert isinstance(entry.event, Gaussian)
        kind = next(name for name in spent if name in entry.what)
        spent["R-scores" if entry is entries[0] else kind] += entry.event.rho / rho_for(budget)
    assert spent["R-scores"] == pytest.approx(0.1)
    assert spent["L1 errors"] == pytest.approx(0.1)
    assert spent["marginals"] == pytest.approx(0.8)
    assert len({r.sigma for r in found.rounds[1:]}) == 1
    assert len(entries) == len(found.rounds) + 1 + 3  # d / 2 steps ask for errors


def test_the_graph_and_the_model_follow_the_rows():
    rows = rows_of(20_000)
    found = learn(answers_of(rows, None), 5.0)
    chain = set(combinations("abcde", 2))
    assert set(found.edges[:4]) < chain
    for a, b in [("a", "b"), ("b", "c"), ("d", "e"), ("a", "e"), ("c", "f")]:
        gap = np.abs(found.model.marginal((a, b)) - marginal(rows, (a, b))).sum() / 2
        assert gap < 0.01 * rows.num_rows, (a, b)
    assert found.model.total == pytest.approx(20_000, rel=0.01)


class Seeded:
    """Answers whose noise a seed decides, of rows of which column a has 97 in 100 in one code."""

    neighbours = Neighbours()
    domain = Domain(tuple("abcdefgh"), (8,) * 8)

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        common, odd = rng.integers(0, 8, 20_000), rng.integers(0, 8, 20_000)
        columns = [np.where(rng.random(20_000) < 0.97, 0, odd)]
        for _ in self.domain.names[1:]:
            own = rng.integers(0, 8, 20_000)
            columns.append(np.where(rng.random(20_000) < 0.5, common, own))
        self.rows = Codes(self.domain, tuple(columns))

    def noisy(self, exact, sigma):
        return exact + self.rng.normal(0, sigma, np.shape(exact))

    def scores(self, pairs, sigma):
        return self.noisy([r_score(self.rows, pair) for pair in pairs], sigma)

    def errors(self, model, cliques, sigma):
        gaps = [np.abs(marginal(self.rows, q) - model.marginal(q)).sum() for q in cliques]
        return self.noisy(gaps, sigma)

    def tables(self, cliques, sigma):
        return [self.noisy(marginal(self.rows, q), sigma) for q in cliques]


def test_cells_that_noise_alone_fills_do_not_take_a_columns_commonest_code_its_rows():
    """Each table of column a has 56 cells with hardly a row, which entropy lifts above 0."""
    lost = []
    for seed in range(6):
        answers = Seeded(seed)
        pairs = list(combinations(answers.domain.names, 2))
        found = private_field(
            answers, answers.domain, pairs, 0.02, FieldSettings(), megabytes=1.0, key=0
        )
        share = found.model.marginal(("a",))[0] / found.model.total
        lost.append(marginal(answers.rows, ("a",))[0] - share * answers.rows.num_rows)
    sigma = found.rounds[-1].sigma
    assert abs(np.mean(lost)) < 2 * sigma, (lost, sigma)


def test_r_scores_and_errors_are_what_they_say():
    rows = rows_of(3000)
    answers = answers_of(rows, None)
    model = fit(DOMAIN, [], total=3000.0)
    sigma = 0.5
    errors = answers.errors(model, [("a", "b"), ("f",)], sigma)
    for q, found in zip([("a", "b"), ("f",)], errors, strict=True):
        exact = np.abs(marginal(rows, q) - np.rint(model.marginal(q))).sum()
        assert abs(found - exact) < 10 * sigma
    (score,) = answers.scores([("a", "b")], sigma)
    counts = marginal(rows, ("a", "b"))
    apart = np.abs(counts - np.outer(counts.sum(1), counts.sum(0)) / 3000).sum() / 2
    assert abs(score - apart) < 10 * sigma
    paid = [event.sensitivity for event in answers.site.ledger.events]
    assert paid == pytest.approx([sqrt(2), 2.0])


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_hardly_any_rows(rows):
    budget = Budget(1.0, 1e-6)
    found = learn(answers_of(rows_of(rows), budget), rho_for(budget))
    assert found.model.total >= 1


def test_a_model_stays_within_memory():
    found = private_field(
        answers_of(rows_of(5000), None), DOMAIN, PAIRS, 5.0, FieldSettings(),
        megabytes=40 * 8e-6, key=0,
    )  # fmt: skip
    assert sum(map(DOMAIN.size, found.cliques)) <= 40
    assert found.model.tree.cells <= 40
