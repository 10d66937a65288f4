"""Events carry their own costs: one class is all that a new one needs."""

import math
import re
from dataclasses import replace
from pathlib import Path

import dp_accounting
import msgspec
import numpy as np
import pytest

from siloweave.app.report import record_of
from siloweave.errors import BudgetError, LedgerError
from siloweave.methods.central.method import GaussianCopula
from siloweave.privacy import accountants as ac
from siloweave.privacy import events as ev
from siloweave.privacy import sampled
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import (
    Exponential,
    Gaussian,
    Laplace,
    NonPrivate,
    PaidAhead,
    RandomisedResponse,
    SampledSharedGaussian,
    SharedCoins,
    SharedGaussian,
    ThresholdGaussian,
    UnitSharedCoins,
    UnitThresholdGaussian,
    UnitUpperBound,
    UpperBound,
)
from siloweave.privacy.ledger import Ledger
from siloweave.report.page import render
from siloweave.tables import Column, Schema
from siloweave.tables.table import Table
from tests.privacy.composed import composed, translated

DELTA = 1e-5
GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"

MASKED = (300.0, 5, 1, 400.0, 10, 0.05)
COINS = ((1, 2, 4, 8, 16, 32, 41), 12, 41, 2.0**-40)
#: Event, rho, pure epsilon and escape of one release, epsilon of all at DELTA: never to change.
PRICES = [
    (Gaussian(3.0, 1.4142, 12), 0.11110898, math.inf, 0.0, 8.395981),
    (SharedGaussian(1.0, 5, 2, 3.0, 400, 7), 1.5186425859769341, math.inf, 0.0, 31.38721),
    (SharedGaussian(4.0, 1, 0, 1.0, 1), 0.03125, math.inf, 0.0, 1.012559),
    (Exponential(0.3, 9), 0.01125, 0.3, 0.0, 1.927436),
    (Laplace(9.1, 2.0, 6), 0.024151672503320853, 0.21978021978021978, 0.0, 1.318336),
    (Laplace(9.1, 1.5, 6), 0.01358531578311798, 0.16483516483516483, 0.0, 0.989011),
    (RandomisedResponse(0.02, 15), 0.0002, 0.02, 0.0, 0.2848305),
    (ThresholdGaussian(6.0, 1.0, 60, 3), 1 / 72, math.inf, 2.088818198231129e-22, 1.184211),
    (SampledSharedGaussian(*MASKED, False, 40), 2 / 9, math.inf, 0.0, 1.286121),
    (SampledSharedGaussian(*MASKED, True, 40), 8 / 9, math.inf, 0.0, 2.921591),
    (SampledSharedGaussian(*MASKED, False, 40, 14), 2 / 9, math.inf, 0.0, 2.654985),
    (
        SharedCoins(*COINS, "r", 120),
        5.502407884965907e-05,
        math.inf,
        1.5887014633154261e-12,
        0.4361611,
    ),
    (UpperBound(30.0, 270), 0.0005555555770937855, math.inf, 2.0668092895796042e-19, 0.1144848),
    (PaidAhead(0.02, 1e-8, 40, 1), 0.02, math.inf, 1e-8, 0.7943795),
    (
        UnitThresholdGaussian(30.0, 5.0, 260, 5, 3),
        0.013888888888888888,
        math.inf,
        1.992902481426089e-17,
        1.184211,
    ),
    (
        UnitSharedCoins(*COINS, "r", 20, 3),
        0.0005128391881111239,
        math.inf,
        4.766104394235773e-12,
        0.5533447,
    ),
    (
        UnitUpperBound(150.0, 1354, 5),
        0.000555555572466988,
        math.inf,
        1.274210490764179e-19,
        0.1144848,
    ),
    (NonPrivate("x"), math.inf, math.inf, 0.0, math.inf),
]


@pytest.mark.parametrize(("event", "rho", "pure", "escape", "epsilon"), PRICES)
def test_what_an_event_costs_never_changes(event, rho, pure, escape, epsilon):
    one = event.rho, event.pure, event.delta
    assert one == pytest.approx((rho, pure, escape), rel=1e-12)
    assert ac.epsilon([event], DELTA) == epsilon


def test_every_event_is_priced_here_and_has_a_name_and_a_tag_of_its_own():
    kinds = ev.Event.__args__
    assert {type(event) for event, *_ in PRICES} == set(kinds)
    assert all(issubclass(kind, ev.BaseEvent) for kind in kinds)
    assert len({kind.mechanism for kind in kinds}) == len(kinds)
    assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds)


@pytest.fixture(scope="module")
def toy():
    """The event of the guide, defined nowhere else."""
    (text,) = re.findall(r"```python\n(class PermuteAndFlip.*?)```", GUIDE.read_text(), re.DOTALL)
    names = {"BaseEvent": ev.BaseEvent}
    exec(text, names)
    return names["PermuteAndFlip"]


def test_a_new_event_is_priced_and_composed(toy):
    event = toy(epsilon=0.4, count=6)
    assert (event.pure, event.delta, event.count) == (0.4, 0.0, 6)
    assert event.rho == pytest.approx(0.08)
    assert ac.epsilon([event], DELTA) == ac.epsilon([toy(epsilon=0.4)] * 6, DELTA) == 2.4
    assert ac.rho([event, Gaussian(5.0, 1.0)]) == pytest.approx(6 * 0.08 + 1 / 50)
    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(composed([event]))
    assert 2.4 < accountant.get_epsilon(DELTA) < 6


class Uneven(ev.BaseEvent, frozen=True, tag="uneven"):
    """Continuous Laplace noise, which no party adds: an event with a loss distribution."""

    mechanism = "continuous Laplace"

    scale: float
    count: int = 1

    @property
    def pure(self):
        return 1 / self.scale

    def dp_event(self):
        return dp_accounting.LaplaceDpEvent(self.scale)


def test_an_event_with_a_loss_distribution_is_read_by_it():
    event = Uneven(scale=5.0, count=20)
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(translated(event))
    read = ac.epsilon([event], DELTA)
    assert read == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-6)
    assert read < 0.95 * ac.epsilon([Laplace(5.0, 1.0, 20), Gaussian(1e6, 1.0)], DELTA)


class Halved(ev.BaseEvent, frozen=True, tag="halved"):
    """A noisy sum over every second row on average: an event that is a step."""

    mechanism = "half of the rows"

    sigma: float
    count: int = 1

    @property
    def rho(self):
        return 1 / (2 * self.sigma**2)

    @property
    def step(self):
        return sampled.SampledStep(self.sigma, 0.0, 0.5, False)


def test_a_step_of_a_new_kind_is_read_as_one():
    known = SampledSharedGaussian(300.0, 1, 0, 100.0, 1, 0.5, count=30)
    sigma, some = known.multiplier, msgspec.structs.replace(known, count=20)
    assert ac.epsilon([Halved(sigma, 30)], DELTA) == ac.epsilon([known], DELTA)
    assert ac.epsilon([Halved(sigma, 10), some], DELTA) == ac.epsilon([known], DELTA)


def test_a_new_event_is_charged_and_listed(toy):
    event = toy(epsilon=0.4, count=6)
    ledger = Ledger("north", limit=Budget(7.0, DELTA))
    entry = ledger.charge(event, run="r", step="0", what="a column", to="c")
    assert ledger.events == (event,)
    line = msgspec.json.encode(entry)
    assert b'"event":{"type":"permute_and_flip","epsilon":0.4,"count":6}' in line
    assert ledger.epsilon() == 2.4
    with pytest.raises(BudgetError, match="Nothing was released"):
        ledger.charge(toy(epsilon=4.7), run="r", step="1", what="a column", to="c")


def test_a_new_event_is_shown_in_the_report(toy):
    schema = Schema((Column("ill", "boolean"),)).with_fallbacks()
    rows = Table.from_columns({"ill": (np.arange(40) % 3 == 0, None)})
    fitted = GaussianCopula().fit(rows, schema)
    ledger = Ledger("north")
    ledger.charge(toy(epsilon=0.4, count=6), run="r", step="0", what="a column", to="c")
    (row,) = record_of(replace(fitted, ledgers={"curator": ledger.entries}), "a").ledgers
    assert (row.mechanism, row.parameters) == ("permute-and-flip", "epsilon 0.4, count 6")
    assert row.rho == pytest.approx(6 * 0.08)
    page = render(record_of(replace(fitted, ledgers={"curator": ledger.entries}), "a"))
    assert "permute-and-flip" in page


def test_a_fact_that_an_event_does_not_have_is_not_shown():
    schema = Schema((Column("ill", "boolean"),)).with_fallbacks()
    rows = Table.from_columns({"ill": (np.arange(40) % 3 == 0, None)})
    fitted = GaussianCopula().fit(rows, schema)
    ledger = Ledger("north")
    step = SampledSharedGaussian(200.0, 1, 0, 100.0, 1, 0.01)
    ledger.charge(step, run="r", step="0", what="steps", to="c")
    (row,) = record_of(replace(fitted, ledgers={"curator": ledger.entries}), "a").ledgers
    assert row.parameters == (
        "share sigma 200, shares 1, tolerated 0, sensitivity 100, dimension 1, sampling rate 0.01, "
        "replace one no, count 1"
    )


def test_an_event_that_states_no_cost_costs_infinity():
    class Silent(ev.BaseEvent, frozen=True, tag="silent"):
        mechanism = "unknown"

    assert ac.epsilon([Silent()], DELTA) == ac.rho([Silent()]) == math.inf


def test_what_is_no_event_is_refused_by_name():
    class Invented(msgspec.Struct, frozen=True):
        rho: float = 0.0
        count: int = 1

    for price in (ac.rho, ac.Tally, lambda events: ac.epsilon(events, DELTA)):
        with pytest.raises(LedgerError, match="event of type Invented is unknown"):
            price([Invented()])
    ledger = Ledger("north", limit=Budget(7.0, DELTA))
    with pytest.raises(LedgerError, match="event of type Invented is unknown"):
        ledger.charge(Invented(), run="r", step="0", what="w", to="c")
    assert ledger.entries == ()
    with pytest.raises(LedgerError, match="permute_and_flip"):
        ev.decode(b'{"type":"permute_and_flip","epsilon":0.4,"count":6}')
