"""The noisy histogram that cuts columns into bins: what a neighbour moves is what was paid for."""

from dataclasses import dataclass

import numpy as np
import pytest

from siloweave.federation.session import Session
from siloweave.privacy.budget import Budget, Relation, rho_for
from siloweave.privacy.events import SharedGaussian
from siloweave.protocols.histograms import (
    HANDLERS,
    CountColumns,
    HistogramData,
    histogram_event,
    noisy_histogram,
)
from siloweave.protocols.secure_sums import exchange_keys, masked_reply
from siloweave.tables import Column, Encoder, Schema, Table
from siloweave.tables.bins import cuts_of
from siloweave.tables.codes import ResolutionLevels
from tests.guarantees.replay import DivergenceError
from tests.guarantees.whole import BUDGET, budget_of, paid_calls, run_of, twins

SCHEMA = Schema(
    (
        Column("pay", "continuous", low=0.0, high=100.0, missing=True),
        Column("age", "integer", low=0, high=5_000),
    )
)
FINE = Encoder(SCHEMA, 4096)
RELATIONS = [Relation.ADD_REMOVE, Relation.REPLACE_ONE]


def part(number, seed, last=None):
    rng = np.random.default_rng(seed)
    pay, age = rng.exponential(3.0, number).clip(0, 100), rng.integers(0, 4_000, number)
    if last is not None:
        pay[-1], age[-1] = last
    table = Table.from_columns({"pay": (pay, np.isnan(pay)), "age": (age, None)})
    return HistogramData(table, FINE, FINE.encode(table))


def neighbours(relation):
    """Three parties, of which the first has a row more, or another one."""
    others = {"p1": part(40, 1), "p2": part(30, 2)}
    odd = part(50, 0, last=(99.0, 5_000))
    if relation is Relation.REPLACE_ONE:
        return {"p0": odd, **others}, {"p0": part(50, 0, last=(np.nan, 0)), **others}
    fewer = odd.table.take(range(49))
    return {"p0": odd, **others}, {"p0": HistogramData(fewer, FINE, FINE.encode(fewer)), **others}


@dataclass(frozen=True)
class Study:
    """A noisy histogram over a roster, and the cuts that follow."""

    budget: Budget = BUDGET
    tolerated: int = 1
    handlers: object = None

    def __call__(self, roster, seed=0):
        run = run_of(
            roster, self.handlers or HANDLERS, budget=self.budget, seed=seed,
            tolerated=self.tolerated,
        )  # fmt: skip
        rho = rho_for(self.budget)
        event = histogram_event(FINE, self.budget.neighbours, rho, len(roster), self.tolerated)
        session = Session(tuple(roster), run.wire, run="r")
        keys = exchange_keys(session, FINE.domain)
        counts = noisy_histogram(session, keys, FINE, event, seed).columns
        run.model = {
            c.name: cuts_of(c, FINE.edges(c.name), counts[c.name], 8) for c in FINE.schema.columns
        }
        return run


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("tolerated", [1, 2])
def test_a_row_moves_what_was_paid_for_and_nothing_else(relation, tolerated):
    study = Study(budget_of(relation), tolerated)
    for seed in range(3):
        pair = twins(study, *neighbours(relation), seed=seed)
        pair.check()
        assert {type(p.event) for p in paid_calls(pair.tape)} == {SharedGaussian}
        assert pair.first.model == pair.second.model
        ledger = pair.first.ledger("p0")
        assert len(ledger.entries) == 1
        assert 0.95 * rho_for(study.budget) <= ledger.rho <= rho_for(study.budget) * (1 + 1e-9)


def charged_as(contributes):
    def count(request, site):
        rows = np.array([site.rows.table.num_rows], dtype=np.int64)
        counts = ResolutionLevels(site.rows.encoder).count(site.rows.codes)
        return masked_reply(request, site, [counts, rows], "counts", contributes=contributes)

    return count


def exact_rows(request, site):
    """Leaves the number of rows out of the price."""
    return charged_as(ResolutionLevels(site.rows.encoder).number)(request, site)


@pytest.mark.parametrize("mutant", [charged_as(1), exact_rows])
def test_a_wrong_sensitivity_is_caught(mutant):
    study = Study(handlers={**HANDLERS, CountColumns: mutant})
    with pytest.raises((AssertionError, DivergenceError)):
        twins(study, *neighbours(Relation.ADD_REMOVE), seed=0).check()
