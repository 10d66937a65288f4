"""VertiGAN over parties: what is paid together, resumption, and what a party refuses."""

import math
from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.app.report import record_of
from siloweave.core.method import Setup
from siloweave.core.party import OwnerData
from siloweave.errors import BudgetError, InputError, RosterError, WireError
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.methods.vertigan import party
from siloweave.methods.vertigan.messages import (
    BeginVertiGAN,
    CountOwnColumns,
    TrainCritics,
    VertiGANPlan,
)
from siloweave.methods.vertigan.method import VertiGAN
from siloweave.methods.vertigan.party import handlers, plan_of
from siloweave.privacy.accountants import epsilon, epsilon_to_parties
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import Gaussian, NonPrivate, SampledSharedGaussian
from siloweave.privacy.mechanisms import SeededEntropy
from siloweave.tables import Column, Schema, Table
from tests.core.kills import WHERE, KilledError, Tap
from tests.federation.rosters import roster_of
from tests.federation.sites import Sites
from tests.synthesizers.cases import SCHEMA, pandas_frame
from tests.synthesizers.properties import BY_SCHEMA

NET = {
    "noise": 4, "trunk": (8,), "head": (8,), "critic": (4,), "batch": 99, "made": 8, "rounds": 3,
    "critic_steps": 2,
}  # fmt: skip
BUDGET = Budget(epsilon=4.0, delta=1e-5)
# Two parties whose columns have the same shape share all compiled programs.
SAME = Schema(
    tuple(
        Column(f"{party} {name}", "categorical", categories=options)
        for party in ("north", "south")
        for name, options in (("kind", ("a", "b", "c")), ("sex", ("f", "m")))
    )
).with_fallbacks()
SPLIT = {"north": ["town", "age", "seen"], "south": ["sex", "pay", "member", "visits"]}


def halves(rows=40, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({c.name: rng.choice(c.categories, rows) for c in SAME.columns})
    return {p: frame[[n for n in frame if n.startswith(p)]] for p in ("north", "south")}


def fit(data=None, schema=SAME, *, budget=BUDGET, noise="seeded", method=None, **named):
    private = budget is not None and budget.private
    method = VertiGAN(**NET, finest_bins=8, private=private) if method is None else method
    data = halves() if data is None else data
    return method.fit(data, schema, budget=budget, noise=noise, **named)


@cache
def fitted_once(budget=BUDGET):
    return fit(budget=budget)


def same(one, other):
    pd.testing.assert_frame_equal(
        one.sample(30, seed=0).astype(str), other.sample(30, seed=0).astype(str)
    )


def test_all_parties_together_spend_the_budget_and_each_its_share():
    fitted = fitted_once()
    assert 0.98 * BUDGET.epsilon < fitted.epsilon <= BUDGET.epsilon
    assert all(0.3 < own / fitted.epsilon < 0.95 for own in fitted.epsilons.values())
    kinds = {
        name: [type(entry.event) for entry in entries] for name, entries in fitted.ledgers.items()
    }
    steps = [SampledSharedGaussian] * NET["rounds"]
    assert kinds == {"north": [Gaussian, Gaussian, *steps], "south": [Gaussian, *steps]}
    events = [entry.event for entries in fitted.ledgers.values() for entry in entries]
    (step,) = {event for event in events if isinstance(event, SampledSharedGaussian)}
    assert step.count == NET["critic_steps"]
    less = msgspec.structs.replace(step, share_sigma=step.share_sigma * 0.997)
    cheaper = [less if event == step else event for event in events]
    assert epsilon(cheaper, BUDGET.delta) > BUDGET.epsilon
    assert fitted.info.guarantee == "dp"
    assert not fitted.private  # seeded
    assert fitted.num_rows == len(fitted.sample(seed=0))


def test_a_fit_states_what_its_ledgers_cost_towards_another_party(tmp_path):
    fitted = fit(folder=tmp_path / "one")
    most = fitted.ledger.epsilon_to_parties
    assert fitted.epsilon < most < 2.5 * fitted.epsilon
    assert f"towards another party: epsilon {most:.2f}"[:-1] in str(fitted.ledger)
    known = {n: own for n, own in fitted.ledgers.items() if n == "north"}
    only = replace(fitted.ledger, entries=known)  # there is nobody else
    assert only.epsilon_to_parties is None
    assert "towards" not in str(only)
    assert fitted_once(None).ledger.epsilon_to_parties is None
    other = msgspec.structs.replace(fitted.ledgers["north"][0], run="another")
    longer = fitted.ledgers | {"north": (other, *fitted.ledgers["north"])}
    # With an earlier run, or a score, nothing is known of it but what it cost, for a changed row.
    both = replace(fitted.ledger, entries=longer)
    assert both.epsilon_to_parties > max(most, both.epsilon)
    assert "towards another party" in str(both)


@pytest.mark.parametrize("total", [0.5, 1.0, 4.0])
def test_a_forecast_bounds_what_it_costs_towards_another_party(total):
    """For every number of rows, which decides a row's chance and the noise of a step."""
    columns = {name: tuple(part) for name, part in halves().items()}
    said = "towards another party, which knows whose rows these are, epsilon is at most "
    parts = {name: SAME.select(list(part)) for name, part in columns.items()}
    budget, synth = Budget(total, 1e-6), VertiGAN(rounds=20, critic_steps=2)
    stated, costs = set(), []
    for rows in [2, *(int(synth.batch * 2 ** (k / 2)) for k in range(-2, 24))]:
        found = synth.forecast(SAME, rows=rows, budget=budget, columns=columns)
        (note,) = (n for n in found.notes if said in n)
        assert found.epsilon_to_parties <= float(note.removeprefix(said))
        stated.add(found.epsilon_to_parties)
        plan = VertiGANPlan.of(synth, parts, budget)
        ledgers = plan.ledgers(plan.begin(0, rows, 1), synth.steps)
        costs.append(epsilon_to_parties(ledgers.values(), budget.delta))
    (most,) = stated
    assert max(costs) <= most < 1.4 * max(costs)
    assert min(costs) > total
    rows = VertiGAN().batch * 2**12
    setup = Setup(VertiGAN(), SAME, budget, tuple(columns), columns)
    for other in (
        replace(setup, columns={}),
        replace(setup, budget=Budget(1.0, 1e-6, relation=Relation.REPLACE_ONE)),
        replace(setup, roster=("all",), columns={"all": SAME.names}),
        replace(setup, budget=Budget(0.01, 1e-6)),  # of which no step can be paid
    ):
        notes = VertiGAN.method.forecast(other, rows).notes
        assert not any(said in note for note in notes)


def test_a_forecast_has_a_time_that_grows_with_rounds():
    def seconds(**settings):
        synth = VertiGAN(**settings)
        setup = Setup(synth, SAME, Budget(8.0, 1e-6), ("north", "south"))
        return synth.method.forecast(setup, 1_000).seconds

    ten, hundred, plain = (
        seconds(rounds=rounds, private=private)
        for rounds, private in ((10, True), (100, True), (100, False))
    )
    assert 0 < ten < hundred
    assert plain < hundred


def test_a_budget_that_is_too_small_is_refused_by_the_study_alone():
    """So `check` refuses it, and ids are not compared in vain."""
    method, columns = VertiGAN.method, {name: tuple(part) for name, part in halves().items()}
    setup = Setup(VertiGAN(), SAME, Budget(0.05, 1e-6), tuple(columns), columns)
    with pytest.raises(BudgetError, match="is too small for 2000 steps of 512 rows"):
        method.affordable(setup)
    method.affordable(replace(setup, budget=Budget(8.0, 1e-6)))
    method.affordable(replace(setup, synth=VertiGAN(private=False)))


@pytest.mark.slow
def test_under_replace_one_the_number_of_rows_is_public():
    fitted = fitted_once(Budget(4.0, 1e-5, relation=Relation.REPLACE_ONE))
    assert fitted.num_rows == 40
    assert fitted.epsilon <= 4.0
    first = fitted.ledgers["north"][0].event
    assert first.sensitivity == pytest.approx(math.sqrt(2 * 2))
    assert fitted.ledgers["south"][-1].event.replace_one
    assert fitted.ledger.epsilon_to_parties is None  # it is the same


def test_a_round_is_one_message_of_the_size_of_its_hidden_rows():
    fitted = fitted_once()
    assert fitted.cost.rounds == 4 + NET["rounds"]  # two counts, the beginning
    rows = 4 * NET["made"] * NET["trunk"][-1]
    for traffic in fitted.cost.parties.values():
        assert traffic.messages == 3 + NET["rounds"]
        assert (
            0 < traffic.bytes_from_party - NET["rounds"] * rows < 1_200 * traffic.messages
        )  # ledgers, too
        assert 0 < traffic.bytes_to_party - NET["rounds"] * rows < 600 * traffic.messages
    synth = VertiGAN(**NET, finest_bins=8)
    forecast = synth.forecast(SAME, rows=40, budget=BUDGET, parties=2)
    assert forecast.rounds == fitted.cost.rounds
    assert forecast.bytes_per_party == 2 * NET["rounds"] * rows


@pytest.mark.parametrize("budget", [None, pytest.param(BUDGET, marks=pytest.mark.slow)])
def test_every_kind_of_column_comes_back(budget, tmp_path):
    """Also: it is kept as data, each party's head with its party."""
    frame = pandas_frame()
    fitted = fit({n: frame[c] for n, c in SPLIT.items()}, SCHEMA, budget=budget)
    sample = fitted.sample(200, seed=0)
    pd.testing.assert_series_equal(sample.dtypes, BY_SCHEMA if budget else frame.dtypes)
    for column in SCHEMA.columns:
        values = sample[column.name].dropna()
        assert len(values) == 200 or column.missing
        if column.kind in ("integer", "continuous"):
            assert column.low <= values.min()
            assert values.max() <= column.high
    assert fitted.sample(20, given={"member": True}, seed=0)["member"].all()
    fitted.save(tmp_path)
    same(sw.load(tmp_path), fitted)


def test_its_report_says_that_no_real_row_is_heard_of_by_itself():
    sights = {sight.who: sight for sight in record_of(fitted_once(), "a").visibility}
    assert "generated rows" in sights["the coordinator"].sees
    assert "row by row" not in sights["the coordinator"].sees
    assert "order" not in sights["the other parties"].sees
    assert "for rows replaced only" in sights["the other parties"].protected_by
    bare = {sight.who: sight for sight in record_of(fitted_once(None), "a").visibility}
    assert "counts of each party's columns" not in bare["the coordinator"].sees
    assert "without noise" in bare["the other parties"].protected_by
    assert "the other parties, who hold the same people, only" in fitted_once().info.statement


def test_without_a_bound_every_ledger_says_so():
    for fitted in (fitted_once(None), fit(budget=Budget(math.inf, 1e-6))):
        assert fitted.epsilon == math.inf
        assert fitted.info.guarantee == "none"
        assert not fitted.private
        for entries in fitted.ledgers.values():
            assert [type(entry.event) for entry in entries] == [NonPrivate]
        assert fitted.num_rows == 40
    with pytest.raises(BudgetError, match="adds no noise"):
        fit(method=VertiGAN(**NET, private=False))
    for budget in (None, Budget(math.inf, 1e-6)):  # nobody goes without noise unasked
        with pytest.raises(BudgetError, match=r"adds noise"):
            fit(method=VertiGAN(**NET), budget=budget)


def test_one_party_is_the_central_case_and_columns_may_stay_at_home():
    whole = pd.concat(halves().values(), axis=1)[[c.name for c in SAME.columns[:2]]]
    alone = fit({"all": whole}, SAME.select(whole.columns))
    assert 0.98 * BUDGET.epsilon < alone.epsilon <= BUDGET.epsilon
    apart = fit(method=VertiGAN(**NET, finest_bins=8, shared=False))
    assert {n: list(p) for n, p in apart.sample_parts(5, seed=0).items()} == {
        n: list(p) for n, p in halves().items()
    }
    with pytest.raises(InputError, match="stay with their parties"):
        apart.sample(5, seed=0)


def test_real_noise_differs_between_runs_of_one_seed():
    one, other = (fit(noise="os", seed=3) for _ in range(2))
    assert one.private
    assert not one.sample(30, seed=0).equals(other.sample(30, seed=0))


# Killed


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("at", [1, 3, 6, 10])  # a count, the beginning, the first and last round
def test_a_killed_run_goes_on_to_the_same_end(at, where, tmp_path):
    whole = fitted_once()
    with pytest.MonkeyPatch.context() as patch:
        first = Tap(patch, at, where)
        with pytest.raises(KilledError):
            fit(folder=tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        second = Tap(patch)
        again = fit(folder=tmp_path)
    assert all(second.answers[step] == answer for step, answer in first.answers.items())
    events = [
        [[entry.event for entry in ledger] for ledger in run.ledgers.values()]
        for run in (again, whole)
    ]
    assert events[0] == events[1]
    same(again, whole)


def test_with_real_noise_nothing_is_drawn_twice(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        first = Tap(patch, 7, WHERE[1])
        with pytest.raises(KilledError):
            fit(folder=tmp_path, noise="os")
    with pytest.MonkeyPatch.context() as patch:
        second = Tap(patch)
        fitted = fit(folder=tmp_path, noise="os")
    assert all(second.answers[step] == answer for step, answer in first.answers.items())
    assert fitted.private
    assert all(len(ledger) <= 2 + NET["rounds"] for ledger in fitted.ledgers.values())


# What a party refuses


def alone(limit=BUDGET):
    """One party and the way to it."""
    frame = Table.from_columns({n: (c.to_numpy(), None) for n, c in halves()["north"].items()})
    made = VertiGAN(**NET, private=limit is not None, finest_bins=8)
    schema = SAME.select(frame.names)
    sites = roster_of(
        {"north": OwnerData(frame, schema)}, limit=limit, entropy=SeededEntropy(b"x"),
        facts={"parts": {"north": schema}},
    )  # fmt: skip
    session = Session(("north",), Sites(sites, handlers(made)), run="r")
    return session, sites["north"], made


def hidden(shape=(NET["made"], NET["trunk"][-1]), value=0.0):
    return Array.of(np.full(shape, value), "<f4")


def test_rounds_come_in_their_order_and_shape():
    parties, _, _ = alone(limit=None)
    with pytest.raises(WireError, match="before the beginning"):
        parties.ask(TrainCritics(0, hidden()))
    parties.ask(BeginVertiGAN(0))
    for wrong, words in (
        (TrainCritics(1, hidden()), "round 2 of 3 .* round 0"),
        (TrainCritics(0, hidden((2, 2))), r"shape \(2, 2\).*\(8, 8\)"),
        (TrainCritics(0, hidden(value=np.nan)), "not finite"),
    ):
        with pytest.raises(WireError, match=words):
            parties.ask(wrong)
    for number in range(3):
        parties.ask(TrainCritics(number, hidden()))
    for stale in (0, 1, 3):
        with pytest.raises(WireError, match=f"party 'north': round {stale + 1} of 3"):
            parties.ask(TrainCritics(stale, hidden()))


def test_a_party_trains_only_within_what_all_pay_together():
    parties, site, made = alone()
    planned = plan_of(made, site)
    noise = planned.noise(40, 200)
    asked = BeginVertiGAN(0, 40, noise.levels, noise.share_sigma, 200)
    with pytest.raises(WireError, match=r"'north' trains once, right after it has counted"):
        parties.ask(asked)
    parties.ask(CountOwnColumns())
    poor = msgspec.structs.replace(asked, share_sigma=noise.share_sigma / 4)
    with pytest.raises(BudgetError, match=r"'north': all parties together .*limit"):
        parties.ask(poor)
    for wrong in (
        {"levels": 0}, {"levels": 2**40}, {"share_sigma": 2.0**40}, {"share_sigma": 0.0},
        {"dimension": 0}, {"dimension": 2**40}, {"rows": 0}, {"rows": 2**31},
    ):  # fmt: skip
        with pytest.raises(WireError, match="party 'north'"):
            parties.ask(msgspec.structs.replace(asked, **wrong))
    with pytest.raises(WireError, match="party 'north'"):  # nor without noise
        parties.ask(BeginVertiGAN(0))
    parties.ask(asked)


def test_networks_that_no_party_takes_are_refused():
    for wrong in ({"made": 2**31 - 1, "trunk": (60_000,)}, {"critic_steps": 2**30}):
        with pytest.raises(InputError, match="more than a party takes"):
            VertiGAN(**{**NET, **wrong})


def test_a_slope_that_does_not_fit_names_the_party(monkeypatch):
    monkeypatch.setattr(
        party, "_played",
        lambda state, site, *_: hidden((2, 2)) if site.name == "south" else hidden(),
    )  # fmt: skip
    with pytest.raises(WireError, match=r"'south' sent slope of shape \(2, 2\)"):
        fit()


def test_what_cannot_be_paid_or_used_is_refused_before_anything_is_released(tmp_path):
    with pytest.raises(BudgetError, match=r"too small .*Not even a single step"):
        fit(budget=Budget(1e-3, 1e-5), folder=tmp_path)
    for wrong in (
        {"clip": 0.0},
        {"counts_share": 1.0},
        {"finest_bins": 0},
        {"target": "north sex"},
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            VertiGAN(**wrong)
    with pytest.raises(InputError, match="VertiGAN takes no wings"):
        VertiGAN(wings=2)
    short = halves()
    short["south"] = short["south"][:9]
    with pytest.raises(RosterError, match="'south' has 9 rows"):
        fit(short, folder=tmp_path)
    assert not any(path.stat().st_size > 300 for path in tmp_path.rglob("ledger.jsonl"))


def test_a_constant_column_and_one_row():
    one = {name: part[:1] for name, part in halves().items()}
    sample = fit(one, budget=None).sample(20, seed=0)
    assert len(sample) == 20


def test_counts_are_sent_once_a_run():
    """What all parties send together is held to a limit for one sending of each."""
    parts = {name: SAME.select(list(part)) for name, part in halves().items()}
    rows = {name: OwnerData(sw.read(part), parts[name]) for name, part in halves().items()}
    sites = roster_of(rows, limit=BUDGET, facts={"parts": parts})
    made = VertiGAN(**NET, finest_bins=8)
    parties = Session(tuple(sites), Sites(sites, handlers(made)), run="r")
    head, *others = sites
    parties.ask(CountOwnColumns(), [head])
    parties.ask(CountOwnColumns(), others)
    before = {name: len(site.ledger.entries) for name, site in sites.items()}
    with pytest.raises(WireError, match=r"party 'south'.*may only come first"):
        parties.ask(CountOwnColumns(), others)
    assert {name: len(site.ledger.entries) for name, site in sites.items()} == before
