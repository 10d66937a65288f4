"""Noised latents: what neighbours cost is paid, by all parties together; and mutants are caught."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.core.party import OwnerData
from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation.session import Session
from siloweave.methods.silofuse import coordinator, party
from siloweave.methods.silofuse.messages import (
    CodeNoised,
    declared_coder,
    radius,
    released_together,
)
from siloweave.methods.silofuse.party import bounded
from siloweave.privacy.budget import Budget, Relation, gaussian_sigma, rho_for
from siloweave.privacy.events import Gaussian
from siloweave.tables import Column, Schema
from tests.federation.rosters import roster_of
from tests.federation.sites import Sites
from tests.guarantees.replay import record, replay
from tests.guarantees.swapped import swap

BUDGET = Budget(epsilon=3.0, delta=1e-5, relation=Relation.REPLACE_ONE)
SCHEMA = Schema(
    (
        Column("size", "continuous", low=-4.0, high=4.0),
        Column("kind", "categorical", categories=("a", "b", "c", "d", "e")),
        Column("sex", "boolean"),
        Column("pay", "continuous", low=0.0, high=1.0, missing=True),
    )
).with_fallbacks()
SPLIT = (["size", "sex"], ["kind"], ["pay"])


def frame(last, rows=25):
    rng = np.random.default_rng(1)
    made = pd.DataFrame(
        {
            "size": rng.uniform(-4, 4, rows),
            "kind": rng.choice(list("abcde"), rows),
            "sex": rng.random(rows) < 0.5,
            "pay": np.where(rng.random(rows) < 0.3, np.nan, rng.random(rows)),
        }
    )
    made.loc[rows - 1] = last
    return made.astype({"sex": bool, "size": float, "pay": float})


ENDS = [-4.0, "a", False, 0.0]
NEIGHBOURS = [[4.0, "e", True, 1.0], [4.0, "a", True, np.nan], [0.1, "b", False, 0.5], ENDS]


@pytest.fixture(autouse=True)
def untrained(monkeypatch):
    """Nothing is trained: what leaves the parties is what counts."""

    def trained(rows, task):
        assert not rows.codes, "noised latents are no sphere codes"
        return SimpleNamespace(facts=rows.facts)

    monkeypatch.setattr(coordinator, "trained", trained)


def run(rows, clip=1.0, budget=BUDGET, **named):
    parts = [rows[columns] for columns in SPLIT]
    return sw.SiloFuse(privacy="latents", clip=clip).fit(parts, SCHEMA, budget=budget, **named)


def events_of(fitted):
    return [entry.event for entries in fitted.ledgers.values() for entry in entries]


def check(last, clip=1.0):
    """Replay a run on a neighbour, and hold each party and all together to what was charged."""
    found = []
    tape = record(lambda: found.append(run(frame(ENDS), clip)))
    twin = replay(tape, lambda: run(frame(last), clip))
    events = events_of(found[0])
    for event, moved in zip(events, twin.distances("l2"), strict=True):
        assert moved <= event.sensitivity
    twin.require_paid(events)
    assert twin.rho() <= rho_for(BUDGET) * (1 + 1e-9)
    return max(m / e.sensitivity for e, m in zip(events, twin.distances("l2"), strict=True))


@pytest.mark.parametrize("last", NEIGHBOURS, ids=str)
@pytest.mark.parametrize("clip", [1.0, 0.3])
def test_what_neighbours_cost_is_paid(last, clip):
    check(last, clip)


def test_the_bound_is_tight():
    assert check(NEIGHBOURS[0]) > 0.95


def test_all_parties_together_spend_the_budget_and_no_more():
    fitted = run(frame(ENDS))
    assert fitted.private
    assert fitted.info.guarantee == "dp"
    assert BUDGET.epsilon * 0.99 < fitted.epsilon <= BUDGET.epsilon
    assert max(fitted.epsilons.values()) < fitted.epsilon
    assert all(isinstance(event, Gaussian) for event in events_of(fitted))
    assert fitted.cost.rounds == 2
    assert not run(frame(ENDS), noise="seeded").private


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("bounded", lambda Z, grid, most: np.rint(Z / grid).astype(np.int64)),
        ("Gaussian", lambda sigma, sensitivity: Gaussian(sigma, sensitivity / 2)),
    ],
)
def test_mutants_are_caught(name, mutant, monkeypatch):
    monkeypatch.setattr(party, name, mutant)
    with pytest.raises(AssertionError):
        check(NEIGHBOURS[0], clip=0.3)


def test_a_party_refuses_noise_that_keeps_to_its_limit_for_itself_alone(monkeypatch):
    def alone(sigma, parts, synth):
        """Of the party of the largest radius, and so enough for each by itself."""
        most = max(radius(declared_coder(part, synth), synth.clip) for part in parts.values())
        return Gaussian(sigma, 2.0 * most)

    swap(monkeypatch, coordinator, "messages", released_together=alone)
    with pytest.raises(BudgetError, match="'party-1': all parties together would release epsilon"):
        run(frame(ENDS))
    monkeypatch.setattr(party, "_check_together", lambda synth, request, site: None)
    assert run(frame(ENDS)).epsilon > BUDGET.epsilon  # no ledger notices it


def test_noise_has_the_scale_that_was_charged():
    calls = record(lambda: run(frame(ENDS, rows=2_000), noise="seeded", seed=4)).calls
    noisy = [call for call in calls if call.name == "add_gaussian"]
    assert len(noisy) == len(SPLIT)
    for call in noisy:
        ratio = np.std(call.answer - call.values) / call.settings["sigma"]
        assert abs(ratio - 1) < 4 / np.sqrt(2 * call.values.size)


def test_rows_are_bounded_one_by_one_whatever_they_hold():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 7)) * 10.0 ** rng.integers(-3, 9, size=(200, 1))
    Z[0, 0], Z[1] = np.nan, np.inf
    K = bounded(Z.astype(np.float32), 2.0**-6, 300)
    assert K.dtype == np.int64
    assert ((K**2).sum(1) <= 300**2).all()
    assert ((K**2).sum(1) > 290**2).any()
    alone = np.concatenate([bounded(row[None], 2.0**-6, 300) for row in Z.astype(np.float32)])
    assert np.array_equal(K, alone)
    small = np.array([[0.5, -1.0]], np.float32)
    assert bounded(small, 0.25, 300).tolist() == [[2, -4]]


def test_neighbours_of_other_sizes_and_half_promises_are_refused():
    with pytest.raises(BudgetError, match=r"number is known to all.*REPLACE_ONE"):
        run(frame(ENDS), budget=Budget(1.0, 1e-5))
    with pytest.raises(BudgetError, match="budget is missing"):
        run(frame(ENDS), budget=None)
    with pytest.raises(InputError, match=r"clip=0.0 must be a number in \(0, 1\]"):
        run(frame(ENDS), clip=0.0)
    with pytest.raises(InputError, match="leave coder and target out"):
        sw.SiloFuse(privacy="latents", target="sex")


def test_latents_are_sent_once_a_run():
    """All parties together are held to a limit for one sending of each."""
    synth, names = sw.SiloFuse(privacy="latents"), [f"p{i}" for i in range(len(SPLIT))]
    parts = {name: SCHEMA.select(own) for name, own in zip(names, SPLIT, strict=True)}
    rows = frame(ENDS)
    data = {name: OwnerData(sw.read(rows[list(part.names)]), part) for name, part in parts.items()}
    distance = released_together(1.0, parts, synth).sensitivity
    asked = CodeNoised(gaussian_sigma(rho_for(BUDGET), distance))
    sites = roster_of(data, limit=BUDGET, facts={"parts": parts})
    parties = Session(tuple(sites), Sites(sites, party.handlers(synth)), run="r")
    assert len(parties.ask(asked)) == len(SPLIT)
    with pytest.raises(WireError, match=r"party 'p0'.*may only come first"):
        parties.ask(asked)
    assert all(len(site.ledger.entries) == 1 for site in sites.values())
