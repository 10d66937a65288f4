"""PrivMRF whole: record and replay over neighbours, the worst ones too, and mutants to be caught.

The same steps run at a party that learns from its own rows (`OwnAnswers`), and are held alike.
"""

from dataclasses import dataclass, field
from itertools import combinations
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from siloweave.errors import BudgetError, InputError, RosterError, WireError
from siloweave.federation import site as site_file
from siloweave.federation.messages import Array, Released
from siloweave.federation.session import Session
from siloweave.federation.site import Site
from siloweave.methods.privmrf import coordinator, party
from siloweave.methods.privmrf.messages import ModelErrors, ScorePairs
from siloweave.methods.privmrf.method import PrivMRF
from siloweave.models import field_graph
from siloweave.models.field_graph import most_useful_cells
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget, Relation, marginal_sensitivity, rho_for
from siloweave.privacy.events import Gaussian, SharedGaussian
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.protocols import random_fields, secure_sums
from siloweave.protocols.random_fields import OwnAnswers, private_field
from siloweave.tables.codes import Domain
from tests.federation.rosters import site_with, terms_of
from tests.guarantees.replay import DivergenceError, record
from tests.guarantees.whole import (
    BUDGET,
    DOMAIN,
    budget_of,
    codes,
    facts_of,
    neighbour,
    paid_calls,
    random_rows,
    require_fresh_noise,
    run_of,
    twins,
)

RELATIONS = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]
CUBE = Domain(("a", "b", "c"), (3, 3, 3))
SMALL = {"theta": 0.01, "refined": 0.34, "candidates": 3, "widest": 2}  # one step of one table


@dataclass(frozen=True)
class Study:
    """PrivMRF at a curator."""

    settings: PrivMRF = field(default_factory=lambda: PrivMRF(**SMALL, sweeps=2, final_sweeps=2))
    budget: Budget = BUDGET
    workload: tuple = tuple(combinations(DOMAIN.names, 2))

    def __call__(self, roster, seed=0):
        run = run_of(roster, party.HANDLERS, budget=self.budget, seed=seed, facts=facts_of(self))
        neighbours = self.budget.neighbours
        run.model, run.rounds = coordinator.privmrf(
            Session(tuple(roster), run.wire, run="r"), next(iter(roster.values())).domain,
            list(self.workload), rho_for(self.budget), self.settings, neighbours=neighbours,
            unit=marginal_sensitivity(neighbours, norm="l2"),
        )  # fmt: skip
        return run


def study(relation=Relation.ADD_REMOVE, **named):
    settings = SMALL | {"sweeps": 2, "final_sweeps": 1} | named
    return Study(PrivMRF(**settings), budget_of(relation))


def curator(rows, domain=DOMAIN):
    return {"curator": codes(rows, domain)}


def tables(rng, relation):
    rows = random_rows(rng, int(rng.integers(relation is Relation.REPLACE_ONE, 6)))
    return curator(rows), curator(neighbour(rng, rows, relation))


def worst(relation):
    """Neighbours of whom the R-score of every pair moves by all that is claimed: 2, or 3."""
    if relation is Relation.ADD_REMOVE:
        rows = [(0, 0, 0)] * 6 + [(1, 1, 1)]
        return curator(rows, CUBE), curator([*rows, (1, 1, 1)], CUBE)
    rows = [(2, 2, 2)] * 100 + [(0, 2, 2), (2, 0, 2), (2, 2, 0)] * 20
    return curator([(0, 0, 0), *rows], CUBE), curator([(1, 1, 1), *rows], CUBE)


# Record and replay


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("settings", [{}, {"refined": 0.0}, {"refined": 9.0}, {"widest": 3}])
def test_neighbours_cost_no_more_than_the_ledger_says(relation, settings):
    rng = np.random.default_rng(0)
    for i in range(8):
        twins(study(relation, **settings), *tables(rng, relation), seed=i).check()


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_worst_neighbours_of_r_scores_cost_all_that_is_paid_for_them(relation):
    pair = twins(study(relation), *worst(relation))
    pair.check()
    scored = next(p for p in paid_calls(pair.tape) if isinstance(p.event, Gaussian))
    (moved,) = (m for call, m in pair.twin.moved if call is scored.call)
    assert set(np.abs(moved).tolist()) == {2 if relation is Relation.ADD_REMOVE else 3}
    assert np.sqrt(float((moved**2).sum())) == pytest.approx(scored.event.sensitivity)


def test_the_worst_neighbours_of_counts_cost_nearly_all_of_it():
    """Else the check would have no power: one row in an empty table."""
    pair = twins(study(), curator([]), curator([(0, 0, 0)]))
    pair.check()
    assert pair.costs()["curator"] > 0.75 * pair.first.ledger("curator").rho


def test_the_whole_budget_is_planned_for_and_never_passed():
    rng = np.random.default_rng(2)
    for relation in RELATIONS:
        for seed in range(5):
            run = study(relation)(curator(random_rows(rng, 5)), seed)
            ledger = run.ledger("curator")
            assert 0.97 * rho_for(BUDGET) < ledger.rho <= rho_for(BUDGET) * (1 + 1e-9)
            assert ledger.epsilon() <= BUDGET.epsilon


def test_no_two_draws_share_their_noise():
    wide = Domain(DOMAIN.names, (4, 4, 4))
    thin = Study(study(candidates=5).settings, budget_of(Relation.ADD_REMOVE, 0.1))
    require_fresh_noise(record(lambda: thin(curator([(0, 0, 0)], wide))))


def test_events_are_what_the_docstring_says():
    """Rows, R-scores, first marginals, errors, and the worst marginal."""
    kinds = [type(event) for event in study()(curator([(0, 0, 0)]), 2).ledger("curator").events]
    assert kinds == [SharedGaussian, Gaussian, SharedGaussian, Gaussian, SharedGaussian]


def test_many_parties_are_refused():
    with pytest.raises(RosterError, match="PrivMRF runs at one curator"):
        study()({"a": codes([(0, 0, 0)]), "b": codes([(0, 0, 0)])})


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ScorePairs((), 9.0), "0 sets of columns"),
        (ScorePairs((("a",),), 9.0), "single column"),
        (ScorePairs((("a", "b", "c"),), 9.0), "at most 2 columns"),
        (ScorePairs((("b", "a"),), 9.0), "in this order"),
        (ScorePairs((("a", "b"), ("a", "b")), 9.0), "twice"),
        (ModelErrors(secure_sums.ModelMessage((), (), 5.0), (("a", "b", "c"),), 9.0), "2 columns"),
        (ModelErrors(secure_sums.ModelMessage((), (), 0.0), (("a",),), 9.0), "model of 0 rows"),
        (
            ModelErrors(
                secure_sums.ModelMessage((), (), 5.0), (("a",), ("b",), ("c",), ("a", "b")), 9.0
            ),
            "4 sets of columns",
        ),
    ],
)
def test_a_request_beyond_the_study_is_refused(request_, words):
    one = study()
    run = run_of(curator([(0, 0, 0)]), party.HANDLERS, facts=facts_of(one))
    with pytest.raises(WireError, match=words):
        Session(("curator",), run.wire, run="r").ask(request_)
    assert not run.ledger("curator").entries


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("inf"), 1e300])
def test_noise_that_cannot_be_drawn_is_not_paid_for(sigma):
    run = run_of(curator([(0, 0, 0)]), party.HANDLERS, facts=facts_of(study()))
    with pytest.raises(InputError, match="sigma = "):
        Session(("curator",), run.wire, run="r").ask(ScorePairs((("a", "b"),), sigma))
    assert not run.ledger("curator").entries


# A party that learns from its own rows


@dataclass(frozen=True)
class _OwnRun:
    site: Site
    messages: tuple

    @property
    def sites(self):
        return {"curator": self.site}

    def ledger(self, name):
        return self.sites[name].ledger

    def said(self):
        return self.messages


@dataclass(frozen=True)
class OwnStudy:
    """The steps at a party; what it would send on is the model."""

    budget: Budget

    def __call__(self, roster, seed=0):
        site = site_with(
            "curator", roster["curator"], terms_of(roster), limit=self.budget,
            entropy=SeededEntropy(seed),
        )  # fmt: skip
        settings = PrivMRF(**SMALL, sweeps=2, final_sweeps=1)
        domain = roster["curator"].domain
        found = private_field(
            OwnAnswers(site), domain, list(combinations(domain.names, 2)), rho_for(self.budget),
            settings, megabytes=1.0, key=0,
        )  # fmt: skip
        tables = {c: t.tobytes() for c, t in found.model.potentials.items()}
        return _OwnRun(site, (tables, tuple(found.edges), tuple(found.cliques)))


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_partys_own_answers_cost_no_more_than_its_ledger_says(relation):
    rng = np.random.default_rng(0)
    own = OwnStudy(budget_of(relation))
    for i in range(8):
        twins(own, *tables(rng, relation), seed=i).check()
    twins(own, *worst(relation)).check()


def test_a_party_that_allows_less_stops():
    rich, poor = budget_of(Relation.ADD_REMOVE), budget_of(Relation.ADD_REMOVE, 1.0)
    site = site_with("me", codes([(0, 0, 0)]), terms_of(["me"]), limit=poor)
    with pytest.raises(BudgetError, match="Nothing was released"):
        private_field(
            OwnAnswers(site), DOMAIN, [("a", "b")], rho_for(rich), PrivMRF(),
            megabytes=1.0, key=0,
        )  # fmt: skip
    assert site.ledger.rho <= rho_for(poor)


# Mutants of the implementation; every one must be caught by the checks above.


def first_check(relation, run):
    twins(run, *worst(relation)).check()
    if relation is Relation.ADD_REMOVE:
        for rows in ([], [(0, 0, 0)], [(1, 2, 1)] * 3, [(0, 0, 0), (1, 1, 0)] * 6):
            twins(run, curator(rows), curator([*rows, (0, 0, 0)])).check()
    rng = np.random.default_rng(0)
    for i in range(10):
        twins(run, *tables(rng, relation), seed=i).check()


def half(values, sigma, *, entropy):
    return mechanisms.add_gaussian(values, sigma / 2, entropy=entropy)


HALF = SimpleNamespace(add_gaussian=half)
ERRORS, SCORES, RELEASE = (
    random_fields.noisy_errors,
    random_fields.noisy_scores,
    random_fields.release_noisy,
)


def free(self, event, what, draw):
    value = draw()
    return Released(value, "", self._sealed("", value))


def charged_later(self, event, what, draw):
    value = draw()
    entry = self.pay(event, what)
    return Released(value, entry, self._sealed(entry, value))


def charged_as_one(site, event, what, exact):
    unit = event.sensitivity / float(np.sqrt(exact.size))
    return RELEASE(site, msgspec.structs.replace(event, sensitivity=unit), what, exact)


def errors_at_exact_n(model, cliques, sigma, site):
    """The model scaled to the true number of rows: a model that depends on rows."""
    rows = max(1.0, float(site.rows.num_rows))
    return ERRORS(type(model)(model.domain, model.potentials, 3 * rows), cliques, sigma, site)


def scores_in_an_order_of_their_own(pairs, sigma, site):
    """The pairs' order tells whether the number of rows is odd."""
    pairs = pairs[::-1] if site.rows.num_rows % 2 else pairs
    return SCORES(pairs, sigma, site)


def scores_that_name_n(pairs, sigma, site):
    found = SCORES(pairs, sigma, site)
    value = Array.of(found.value.numpy() + site.rows.num_rows, "<i8")
    return msgspec.structs.replace(found, value=value, seal=site._sealed(found.entry, value))


MUTANTS = {
    "half the noise of counts": (site_file, "mechanisms", HALF),
    "half the noise of scores": (secure_sums, "mechanisms", HALF),
    "many scores charged as one": (random_fields, "release_noisy", charged_as_one),
    "r-scores move by one": (random_fields, "r_score_sensitivity", lambda relation: 1.0),
    "scores are not charged": (Site, "release", free),
    "scores are charged after the draw": (Site, "release", charged_later),
    "exact n in errors": (party, "noisy_errors", errors_at_exact_n),
    "rows order the scores": (party, "noisy_scores", scores_in_an_order_of_their_own),
    "scores name n": (party, "noisy_scores", scores_that_name_n),
    "errors move by half": (random_fields, "l1_score_sensitivity", lambda relation: 0.5),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    first_check(Relation.ADD_REMOVE, study())
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises((AssertionError, DivergenceError)):
        first_check(Relation.ADD_REMOVE, study())


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (random_fields, "r_score_sensitivity", lambda relation: 2.0),  # the published one
        (random_fields, "l1_score_sensitivity", lambda relation: 1.0),
        (secure_sums, "marginal_sensitivity", lambda relation, norm: 1.0),
    ],
)
def test_the_forgotten_part_of_replace_one_is_caught(where, name, value, monkeypatch):
    first_check(Relation.REPLACE_ONE, study(Relation.REPLACE_ONE))
    monkeypatch.setattr(where, name, value)
    with pytest.raises(AssertionError, match=r"was charged for|is above"):
        first_check(Relation.REPLACE_ONE, study(Relation.REPLACE_ONE))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("marginal_sensitivity", lambda relation, norm: 0.5),
        ("mechanisms", HALF),
    ],
)
def test_mutants_of_own_answers_are_caught(name, value, monkeypatch):
    own = OwnStudy(BUDGET)
    first_check(Relation.ADD_REMOVE, own)
    monkeypatch.setattr(random_fields, name, value)
    with pytest.raises(AssertionError):
        first_check(Relation.ADD_REMOVE, own)


def test_a_count_of_rows_without_noise_is_caught(monkeypatch):
    """The reference code's own fault: n is used as it is, whatever was paid for."""
    seen = []

    def peeking(rows, sigma, theta):
        return most_useful_cells(float(seen[-1]), 0.1, 1.0)

    def scores(pairs, sigma, site):
        seen.append(site.rows.num_rows)
        return SCORES(pairs, sigma, site)

    monkeypatch.setattr(party, "noisy_scores", scores)
    monkeypatch.setattr(field_graph, "most_useful_cells", peeking)
    with pytest.raises((AssertionError, DivergenceError)):
        first_check(Relation.ADD_REMOVE, study())
