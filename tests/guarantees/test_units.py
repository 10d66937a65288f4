"""A person with several rows: whole runs with and without them, and mutants that forget them.

`twins` of whole.py takes tables that differ in one person's rows as it takes those that differ in
one row; fits are replayed with the bound at the parties, where the person has more rows than that.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.errors import BudgetError
from siloweave.methods.aim import party as aim_party
from siloweave.methods.aim.method import AIM
from siloweave.methods.flaim import party as flaim_party
from siloweave.methods.flaim.method import FLAIM
from siloweave.methods.two_round.method import TwoRound
from siloweave.privacy import budget as budgets
from siloweave.privacy import events
from siloweave.privacy.budget import Budget, Neighbours, rho_for
from siloweave.protocols import random_fields, secure_sums
from siloweave.protocols.secure_marginals import plan as secure_plan
from siloweave.tables import Column, Schema
from tests.guarantees import test_secure_two_round as secure_runs
from tests.guarantees.opened import cost_of_opened
from tests.guarantees.replay import record, replay
from tests.guarantees.swapped import swap
from tests.guarantees.test_privmrf import study as privmrf
from tests.guarantees.test_two_round import Study as TwoRoundStudy
from tests.guarantees.whole import (
    AIMStudy,
    FLAIMStudy,
    codes,
    paid_calls,
    random_rows,
    real_cost,
    twins,
)

ROWS = 4


def of_person(rows=ROWS, epsilon=4.0):
    return Budget(epsilon, 1e-5, unit="who", rows_per_unit=rows)


STUDIES = {
    "aim": AIMStudy(AIM(rounds_per_column=1, sweeps=2, final_sweeps=2), of_person()),
    "two_round": TwoRoundStudy(TwoRound(final_sweeps=1), of_person()),
    "flaim": FLAIMStudy(FLAIM(rounds=2, participation=1.0, sweeps=1, final_sweeps=1), of_person()),
    "flaim that measures locally": FLAIMStudy(
        FLAIM(rounds=1, participation=1.0, sweeps=1, final_sweeps=1, local_steps=2), of_person()
    ),
    "privmrf": replace(privmrf(), budget=of_person()),
}
CENTRAL = ("aim", "privmrf")


def with_person(rng, name, *, alike):
    """A roster, and the same with a person of up to ROWS rows more at the first party."""
    parties = 1 if name in CENTRAL else 3
    held = [random_rows(rng, int(rng.integers(0, 6))) for _ in range(parties)]
    new = random_rows(rng, 1) * ROWS if alike else random_rows(rng, int(rng.integers(1, ROWS + 1)))
    roster = {f"p{k}": codes(rows) for k, rows in enumerate(held)}
    return roster, {**roster, "p0": codes([*held[0], *new])}


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("name", STUDIES)
def test_a_persons_rows_cost_no_more_than_the_ledger_says(name, alike):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        twins(STUDIES[name], *with_person(rng, name, alike=alike), seed=seed).check()


@pytest.mark.parametrize("name", ["aim", "two_round", "privmrf"])
def test_a_person_whose_rows_are_alike_costs_nearly_all_of_it(name):
    """Else the check would have no power: all rows of one person in an empty table."""
    parties = {f"p{k}": codes([]) for k in range(1 if name in CENTRAL else 3)}
    pair = twins(STUDIES[name], parties, {**parties, "p0": codes([(0, 0, 0)] * ROWS)})
    pair.check()
    assert pair.costs()["p0"] > 0.7 * pair.first.ledger("p0").rho


FORGETFUL = {
    "aim": [aim_party, secure_sums],
    "two_round": [secure_sums],
    "flaim": [flaim_party, secure_sums],
    "privmrf": [random_fields, secure_sums],
}


def forget(patch, where):
    """Let one file, and no other, take a party's rows for those of as many persons."""

    def of_rows(site):
        return Neighbours()

    if where in (aim_party, flaim_party):
        swap(patch, where, "secure_sums", neighbours_of=of_rows)
        return
    for party in (aim_party, flaim_party):
        swap(patch, party, "secure_sums")
    patch.setattr(where, "neighbours_of", of_rows)


@pytest.mark.parametrize(
    ("name", "where"), [(name, where) for name, found in FORGETFUL.items() for where in found]
)
def test_a_party_that_forgets_a_persons_rows_is_caught(name, where, monkeypatch):
    forget(monkeypatch, where)
    with pytest.raises(AssertionError):
        test_a_persons_rows_cost_no_more_than_the_ledger_says(name, alike=True)


@pytest.mark.parametrize("name", STUDIES)
def test_a_coordinator_that_forgets_a_persons_rows_is_refused(name, monkeypatch):
    """It plans noise for single rows; each party computes what that costs a person."""
    study = STUDIES[name]
    roster, _ = with_person(np.random.default_rng(0), name, alike=True)
    generous = rho_for(replace_rows(study.budget)) * ROWS**2
    honest = budgets.rho_for
    for module in ("aim", "flaim", "two_round", "privmrf"):
        monkeypatch.setattr(f"tests.guarantees.{HOME[module]}.rho_for", lambda budget: generous)
    with pytest.raises(BudgetError, match="more than its limit"):
        study(roster)
    assert honest is budgets.rho_for


HOME = {"aim": "whole", "flaim": "whole", "two_round": "test_two_round", "privmrf": "test_privmrf"}


def replace_rows(budget):
    return Budget(budget.epsilon, budget.delta)


# Whole fits, in which parties bound the rows


SCHEMA = Schema(
    (
        *(Column(name, "categorical", categories=("u", "v", "w"), missing=True) for name in "abc"),
        Column("age", "integer", low=0, high=9999, missing=True),
        Column("who", "id"),
    )
).with_fallbacks()
PATIENT = "p"


def visits(seed=0, people=40):
    """Rows of people with up to three each, and 100 of one patient somewhere between them."""
    rng = np.random.default_rng(seed)
    who = [f"x{i}" for i in rng.integers(0, people, people)]
    who = rng.permutation([*who, *[PATIENT] * 100])
    frame = pd.DataFrame({name: rng.choice(list("uvw"), len(who)) for name in "abc"})
    return frame.assign(age=rng.integers(0, 10_000, len(who)), who=who)


def without_patient(frame):
    return frame[frame["who"] != PATIENT].reset_index(drop=True)


FITS = {
    "aim": (AIM(rounds_per_column=1, sweeps=2, final_sweeps=2), None),
    "two_round": (TwoRound(final_sweeps=2), 3),
    "flaim": (FLAIM(rounds=2, participation=1.0, sweeps=1, final_sweeps=1), 3),
    "privmrf": (sw.PrivMRF(sweeps=1, final_sweeps=1), None),
}


def fitted(name, frame, *, rows=5, **named):
    """One fit; all rows of the patient are at the first party."""
    synth, parties = FITS[name]
    data = frame
    if parties:
        others = visits(seed=9)
        data = {"north": frame, "south": without_patient(others), "west": without_patient(others)}
    budget = of_person(rows, epsilon=1.0)
    return synth.fit(data, SCHEMA, budget=budget, noise="seeded", at_once=1, **named)


@pytest.mark.parametrize("name", FITS)
def test_a_patient_with_a_hundred_rows_moves_no_count_by_more_than_five(name):
    """The released counts have the noise that is paid for five rows, and differ by no more."""
    frame, fits = visits(), []
    tape = record(lambda: fits.append(fitted(name, frame)))
    twin = replay(tape, lambda: fits.append(fitted(name, without_patient(frame))))
    far = 0.0
    for paid, (call, moved) in zip(paid_calls(tape), twin.moved, strict=True):
        assert paid.call is call
        if call.name == "add_gaussian":
            moved_by = float(np.linalg.norm(moved.astype(float)))
            assert moved_by <= paid.event.sensitivity * (1 + 1e-9)
            far = max(far, real_cost(paid, moved) / paid.event.rho)
        assert real_cost(paid, moved) <= paid.event.rho * (1 + 1e-9)
    one, other = ({n: [e.event for e in es] for n, es in fit.ledgers.items()} for fit in fits)
    assert one == other
    assert far > 0.05, "the patient takes part"
    assert max(fit.epsilon for fit in fits) <= 1.0


def every_row(table, column, most, secret, *, ordered=True):
    return table


def one_by_one(ids, secret):
    """Rows are drawn by their place in the whole table, which another person's rows move."""
    return np.array([hash((i, len(ids))) & (2**63 - 1) for i in range(len(ids))], dtype=np.uint64)


@pytest.mark.parametrize("name", ["aim", "two_round"])
def test_a_party_that_bounds_nothing_is_caught(name, monkeypatch):
    monkeypatch.setattr("siloweave.core.party.bounded_rows", every_row)
    with pytest.raises(AssertionError):
        test_a_patient_with_a_hundred_rows_moves_no_count_by_more_than_five(name)


def test_a_party_whose_choice_depends_on_other_people_is_caught(monkeypatch):
    """With one row each: who else is in the table must not decide which row that is."""
    frame = visits(people=30)
    twice = pd.concat([frame, without_patient(visits(seed=3, people=30))], ignore_index=True)
    replayed_with_one_row_each(twice)
    monkeypatch.setattr("siloweave.tables.units._by_place", one_by_one)
    with pytest.raises(AssertionError):
        replayed_with_one_row_each(twice)


def replayed_with_one_row_each(frame):
    tape = record(lambda: fitted("aim", frame, rows=1))
    twin = replay(tape, lambda: fitted("aim", without_patient(frame), rows=1))
    for paid, (_, moved) in zip(paid_calls(tape), twin.moved, strict=True):
        assert real_cost(paid, moved) <= paid.event.rho * (1 + 1e-9)


# Columns at several parties


SPLIT = {"north": ["a", "b", "d", "who"], "south": ["c", "e", "f", "who"]}
WIDE = Schema((*secure_runs.SCHEMA.columns, Column("who", "id"))).with_fallbacks()


def wide_visits(seed=0):
    """Fourteen people with a row each, and twelve of one patient between them."""
    rng = np.random.default_rng(seed)
    frame = secure_runs.people(26, seed)
    who = [*[f"x{i}" for i in range(14)], *[PATIENT] * 12]
    return frame.assign(who=rng.permutation(who))


def secure_check(monkeypatch, rows, *, alike=False):
    """Replay SecureTwoRound with and without the patient; what she cost of what was paid."""
    monkeypatch.setattr(secure_runs, "budget_of", lambda relation, epsilon: of_person(rows, 4.0))
    frame, runs = wide_visits(), []
    if alike:
        frame.loc[frame["who"] == PATIENT, list("abcdef")] = ["u"] * 6
    named = {"split": SPLIT, "relation": None, "schema": WIDE, "degree": 3}
    tape = record(lambda: runs.append(secure_runs.run_of(frame, **named)))
    other = without_patient(frame)
    twin = replay(
        tape,
        lambda: runs.append(secure_runs.run_of(other, before=runs[0].opened, **named)),
    )
    first, second = runs
    for paid, (call, moved) in zip(paid_calls(tape), twin.moved, strict=True):
        assert paid.call is call
        assert real_cost(paid, moved) <= paid.event.rho * (1 + 1e-9)
    joint = cost_of_opened(first.opened, second.opened)
    events = [[e.event for e in entries] for entries in first.fitted.ledgers.values()]
    theirs = [[e.event for e in entries] for entries in second.fitted.ledgers.values()]
    assert events == theirs
    total = sum(e.rho * e.count for e in secure_runs.of_one_person(events))
    assert twin.rho() + joint <= total * (1 + 1e-9)
    assert first.said == second.said, "something unpaid depends on the rows"
    assert first.fitted.epsilon <= 4.0
    return (twin.rho() + joint) / total


@pytest.mark.parametrize("rows", [1, 3])
def test_a_patient_at_two_parties_with_her_columns_moves_what_is_paid_for(rows, monkeypatch):
    assert secure_check(monkeypatch, rows, alike=True) > 0.85
    secure_check(monkeypatch, rows)


def coins_of_one_row(patch):
    honest = secure_plan.SecurePlan.event

    def event(plan, kind, count, release):
        found = honest(plan, kind, count, release)
        return events.SharedCoins(*found.__reduce__()[1][:5], count) if kind.weights else found

    patch.setattr(secure_plan.SecurePlan, "event", event)


def own_counts_of_one_row(patch):
    patch.setattr(secure_plan.SecurePlan, "unit", 1.0)


def a_bound_of_one_row(patch):
    patch.setattr(secure_plan, "size_sensitivity", lambda neighbours: 1.0)

    def of_one_row(sigma, margin, rows):
        return events.UpperBound(sigma, margin)

    swap(patch, secure_plan, "events", UnitUpperBound=of_one_row)


@pytest.mark.parametrize("mutant", [coins_of_one_row, own_counts_of_one_row, a_bound_of_one_row])
def test_secure_marginals_that_forget_a_persons_rows_are_caught(mutant, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, BudgetError)):
        secure_check(monkeypatch, 3, alike=True)
