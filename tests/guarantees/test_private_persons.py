"""Whole private trainings on D and on D without a person: paid for once, and mutants are seen."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from siloweave.core.method import Setup, Task
from siloweave.errors import DataError, WireError
from siloweave.federation.session import Session
from siloweave.methods.dp_sgd import party
from siloweave.methods.dp_sgd.coordinator import counts_event
from siloweave.methods.dp_sgd.messages import Step
from siloweave.privacy import gradients
from siloweave.privacy.budget import Budget, rho_for
from siloweave.privacy.events import SampledSharedGaussian, SharedGaussian
from siloweave.privacy.shared_steps import order_for, plan_steps
from siloweave.protocols import histograms, secure_sums
from siloweave.protocols.histograms import HistogramData
from siloweave.tables import Column, Schema
from siloweave.tables.codes import Encoder
from siloweave.tables.read import read
from tests.guarantees.swapped import swap
from tests.guarantees.test_private_generators import PAID, SETTINGS, weights_of
from tests.guarantees.test_private_rounds import coins
from tests.guarantees.whole import paid_calls, run_of, twins
from tests.synthesizers.families import PRIVATE_GENERATORS, PRIVATE_ROW_METHODS

UNIT = "patient"
SCHEMA = (
    Schema(
        (
            Column("patient", "id"),
            Column("size", "continuous", low=-4.0, high=4.0),
            Column("kind", "categorical", categories=("a", "b", "c")),
            Column("sex", "categorical", categories=("f", "m")),
        )
    )
    .with_fallbacks()
    .placed()
)
ENCODER = Encoder(SCHEMA, 6)
MOST = 3
CLIP = 0.01  # every row reaches it
DELTA = 1e-5
every = pytest.mark.parametrize("name", PRIVATE_GENERATORS)


def budget_of(most=MOST):
    return Budget(epsilon=5.0, delta=DELTA, unit=UNIT, rows_per_unit=most)


def visits(persons=16, most=MOST):
    """Up to so many rows of each person; all rows of the last one are far from all others."""
    rng = np.random.default_rng(1)
    owners = np.concatenate([np.full(1 + i % most, i) for i in range(persons)])
    owners = np.concatenate([rng.permutation(owners), np.full(most, persons)])
    rows = len(owners)
    made = pd.DataFrame(
        {
            "patient": [f"p{i}" for i in owners],
            "size": rng.uniform(-1, 0, rows),
            "kind": rng.choice(["a", "b"], rows),
            "sex": rng.choice(["f", "m"], rows),
        }
    )
    made.loc[rows - most :, ["size", "kind", "sex"]] = [4.0, "c", "f"]
    return made


def part(data):
    table = read(data)
    return HistogramData(table, ENCODER, ENCODER.encode(table))


def neighbours(most=MOST):
    """A table, and the same without its last person."""
    whole = visits(most=most)
    return {"curator": part(whole)}, {"curator": part(whole[:-most])}


@dataclass(frozen=True)
class Study:
    """The rounds of a private training over a roster, whose unit is a person."""

    name: str = "dp_tabddpm"
    most: int = MOST
    changes: tuple = ()

    @property
    def budget(self):
        return budget_of(self.most)

    @property
    def made(self):
        kind = {**PRIVATE_GENERATORS, **PRIVATE_ROW_METHODS}[self.name]
        settings = SETTINGS.get(self.name, SETTINGS["dp_tabddpm"])
        return kind(**settings | dict(self.changes), clip=CLIP, finest_bins=6)

    def opened(self, roster, seed=0):
        made = self.made
        setup = Setup(made, SCHEMA, self.budget, tuple(roster))
        facts = made.method.facts(setup)
        answers = made.method.handlers(made)
        tolerated = int(len(roster) > 1)
        run = run_of(roster, answers, budget=self.budget, seed=seed, facts=facts,
                     tolerated=tolerated)  # fmt: skip
        return run, setup

    def __call__(self, roster, seed=0):
        run, setup = self.opened(roster, seed)
        session = Session(tuple(roster), run.wire, run="r")
        run.model = setup.synth.method.coordinate(session, Task(setup, rho_for(self.budget), seed))
        return run


@pytest.fixture(autouse=True)
def same_coins(monkeypatch):
    """Here neighbours draw alike; the coins themselves are tested in test_persons.py."""
    monkeypatch.setattr(gradients, "drawn", coins)


def moved_of_clips(pair, owner="curator"):
    """How far every step moved, in units of what is paid for."""
    return [
        np.linalg.norm(moved.astype(float)) / p.event.sensitivity
        for p, (_, moved) in zip(paid_calls(pair.tape), pair.twin.moved, strict=True)
        if isinstance(p.event, SampledSharedGaussian) and p.owner == owner
    ]


@every
@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_person_moves_what_was_paid_for_and_nothing_else(name, most):
    pair = twins(Study(name, most), *neighbours(most))
    pair.check()
    counts, *steps = pair.first.ledger("curator").events
    assert isinstance(counts, SharedGaussian)
    assert [type(e) for e in steps] == PAID[name] * [SampledSharedGaussian]
    # A column is counted in one table here, and the rows in one: a person is k times in each.
    assert counts.sensitivity == pytest.approx(most * np.sqrt(len(SCHEMA.coded) + 1))
    assert 0.9 < max(moved_of_clips(pair)) <= 1  # one clip, and not k of them
    assert pair.first.ledger("curator").epsilon() > 0.9 * pair.budget.epsilon
    assert weights_of(pair.first) == weights_of(pair.second)


def test_the_noise_of_steps_is_that_of_rows_whatever_k_is():
    """At one rate: k costs noise in the histogram before the steps, and none in a step."""

    def planned(budget):
        setup = Setup(Study().made, SCHEMA, budget, ("curator",))
        counts = counts_event(setup)
        steps = plan_steps(
            budget, rate=0.1, steps=4, shares=1, tolerated=0, dimension=500, others=[counts],
            order=order_for(budget, steps=4, others=[counts]),
        )  # fmt: skip
        return counts, steps

    (by_row, rows), *persons = map(planned, (Budget(5.0, DELTA), budget_of(1), budget_of(5)))
    for counts, steps in persons:
        assert steps.multiplier == pytest.approx(rows.multiplier, rel=1e-2)
        assert counts.rho == pytest.approx(by_row.rho, rel=1e-2)
    assert persons[1][0].share_sigma == pytest.approx(5 * by_row.share_sigma, rel=1e-2)


@pytest.mark.parametrize("name", ["dp_fed_tabddpm"])
def test_one_partys_person_moves_what_that_party_paid_for(name):
    ours, theirs = (found["curator"] for found in neighbours())
    other = part(visits(persons=9))
    pair = twins(Study(name), {"a": ours, "b": other}, {"a": theirs, "b": other})
    pair.check()
    assert 0.9 < max(moved_of_clips(pair, "a")) <= 1


# Known faults are seen


def one_row(found):
    return type(found)(found.relation, 1)


def test_the_mutant_that_clips_rows_is_caught(monkeypatch):
    """Every row of a drawn person is clipped by itself: she moves a sum by k clips."""
    honest = gradients.summed

    def by_row(loss, model, rows, picked, **settings):
        places = picked.ravel()
        return honest(loss, model, rows, places[places >= 0], **settings)

    monkeypatch.setattr(gradients, "summed", by_row)
    with pytest.raises(AssertionError, match="above the declared"):
        twins(Study(), *neighbours()).check()


def test_the_mutant_that_draws_rows_instead_of_persons_is_caught(monkeypatch):
    monkeypatch.setattr(
        party, "_members_of", lambda site: np.arange(site.rows.table.num_rows)[:, None]
    )
    with pytest.raises(AssertionError, match="above the declared"):
        twins(Study(changes=(("batch", 99),)), *neighbours()).check()


def test_the_mutant_that_forgets_k_in_the_histogram_is_caught(monkeypatch):
    """It counts k rows of a person, and pays for one."""
    honest = secure_sums.neighbours_of
    for user in (histograms, party):
        swap(monkeypatch, user, "secure_sums")
    monkeypatch.setattr(secure_sums, "neighbours_of", lambda site: one_row(honest(site)))
    with pytest.raises(AssertionError, match=r"above|was charged"):
        twins(Study(), *neighbours()).check()


# What a party refuses


def test_a_person_with_more_rows_than_are_paid_for_is_refused_before_anything_is_paid():
    study, table = replace(Study(), most=2), read(visits(most=3))
    setup = Setup(study.made, SCHEMA, study.budget, ("curator",))
    with pytest.raises(DataError, match="more than rows_per_unit = 2 rows of one unit") as refused:
        party.party_data(table, setup, "curator")
    assert "3" not in str(refused.value)  # how many rows somebody has stays there
    run, setup = study.opened({"curator": part(visits(most=3))})
    session = Session(("curator",), run.wire, run="r")
    with pytest.raises(WireError, match=r"'curator'.*rows_per_unit = 2"):
        setup.synth.method.coordinate(session, Task(setup, rho_for(study.budget), 0))
    assert not [e for e in run.ledger("curator").events if isinstance(e, SampledSharedGaussian)]


def test_rows_without_an_id_are_persons_of_their_own():
    data = visits(most=2)
    data["patient"] = None
    optional = (
        Schema((Column("patient", "id", missing=True), *SCHEMA.columns[1:]))
        .with_fallbacks()
        .placed()
    )
    members = party._members(read(data), optional, budget_of(1))
    assert members.tolist() == [[i] for i in range(len(data))]


def test_the_unit_is_read_from_the_partys_own_budget_alone():
    """No message says who is a person, or how many rows one may have."""
    assert not {"unit", "rows_per_unit", "members"} & {*Step.__struct_fields__}
