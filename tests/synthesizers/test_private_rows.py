"""What every private network over parties with different rows promises its user."""

import math
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest

import siloweave as sw
from siloweave.algorithms.private_rows_split import PRIVATE_ROW_METHODS
from siloweave.errors import BudgetError, InputError, RosterError, WireError
from siloweave.federation import FolderStore, InProcess, wire
from siloweave.federation.messages import Envelope
from siloweave.methods import check_budget, listed, method_of, unbounded
from siloweave.models.rounds import packed
from siloweave.privacy import Budget, Ledger, Relation, SampledSharedGaussian, SharedGaussian
from tests.synthesizers.cases import SCHEMA, pandas_frame, polars_frame

BUDGET = Budget(5.0, 1e-5)
_DIFFUSION = {"hidden": [6], "embed": 6, "timesteps": 5, "steps": 3, "batch": 30}
FAST = {"dp_fed_tabddpm": _DIFFUSION, "dp_fed_point_diff": {"diffusion": _DIFFUSION}}
_SLOW = pytest.mark.slow
every = pytest.mark.parametrize(
    "name",
    ["dp_fed_tabddpm", pytest.param("dp_fed_point_diff", marks=pytest.mark.slow)],
)


def made(name, **changes):
    kept = {"target": "member", "settings": FAST[name], "bins": 8} | changes
    return PRIVATE_ROW_METHODS[name](**kept)


def parts_of(frame):
    return [frame[:20], frame[20:40], frame[40:]]


def fit(name, data=None, *, budget=BUDGET, changes=None, **named):
    return made(name, **(changes or {})).fit(
        parts_of(pandas_frame()) if data is None else data, SCHEMA, budget=budget,
        **{"noise": "seeded"} | named,
    )  # fmt: skip


@cache
def fitted_once(name):
    return fit(name)


def weights_in(fitted):
    net = fitted.model.net
    return packed(getattr(net, "diffusion", net).net)


# What is promised


@every
@pytest.mark.parametrize("relation", Relation)
def test_every_party_pays_for_one_look_and_every_step_and_no_more(name, relation):
    budget = Budget(5.0, 1e-5, relation=relation)
    fitted = fitted_once(name) if relation is BUDGET.relation else fit(name, budget=budget)
    for entries in fitted.ledgers.values():
        events = [entry.event for entry in entries]
        assert [type(e) for e in events] == [SharedGaussian] + 3 * [SampledSharedGaussian]
        assert {e.replace_one for e in events[1:]} == {relation is Relation.REPLACE_ONE}
        assert {e.tolerated for e in events} == {1}
    assert 0.98 * 5.0 < fitted.epsilon <= 5.0
    assert len(set(fitted.epsilons.values())) == 1


@every
def test_what_it_says_about_itself(name):
    info = listed()[name]
    assert (info.split, info.trust, info.guarantee) == ("rows", "secure-sum", "dp")
    assert fitted_once(name).info == info
    synth = method_of({"name": name, "clip": 0.5, "settings": FAST[name]})
    assert not unbounded(synth)
    check_budget(synth, BUDGET)
    with pytest.raises(BudgetError, match="trained with noise"):
        check_budget(synth, Budget(math.inf, 1e-5))
    assert not fitted_once(name).private  # noise from a seed
    assert fit(name, noise="os").private


def test_noise_of_the_operating_system_is_never_the_same():
    one, other = (fit("dp_fed_tabddpm", noise="os") for _ in range(2))
    assert weights_in(one) != weights_in(other)


# What is made


@every
def test_samples_keep_the_schema_the_types_and_gaps(name):
    sample = fitted_once(name).sample(60)
    assert list(sample.columns) == list(SCHEMA.names)
    pd.testing.assert_series_equal(sample.dtypes, pandas_frame().dtypes)
    for column in SCHEMA.columns:
        values = sample[column.name].dropna()
        if column.kind == "categorical":
            assert set(values) <= set(column.categories)
        elif column.kind in ("integer", "continuous"):
            assert column.low <= values.min()
            assert values.max() <= column.high


@every
def test_a_file_gives_the_same_rows(name, tmp_path):
    one, other = fitted_once(name), fit(name)
    assert weights_in(one) == weights_in(other)
    one.save(tmp_path)
    again = sw.load(tmp_path)
    pd.testing.assert_frame_equal(again.sample(40).astype(str), one.sample(40).astype(str))
    assert (again.info, again.ledgers, again.epsilon) == (one.info, one.ledgers, one.epsilon)
    assert fitted_once(name).sample(40, given={"member": True})["member"].all()


def test_polars_gives_polars_and_one_party_is_enough():
    fitted = fit("dp_fed_tabddpm", [polars_frame()])
    assert isinstance(fitted.sample(50), pl.DataFrame)
    assert fitted.epsilon <= 5.0
    assert {e.event.shares for es in fitted.ledgers.values() for e in es} == {1}


def test_a_party_sends_four_bytes_a_weight_and_step():
    fitted = fitted_once("dp_fed_tabddpm")
    weights = fitted.ledgers["party-1"][-1].event.dimension
    steps = FAST["dp_fed_tabddpm"]["steps"]
    for traffic in fitted.cost.parties.values():
        assert 4 * weights * steps < traffic.bytes_from_party < 4 * weights * steps + 20_000
    assert fitted.cost.rounds == 3 + steps


# What is refused


@every
@pytest.mark.parametrize("change", ["drop", "bound", "unseen", "empty"])
def test_rows_that_do_not_fit_are_refused_by_name(name, change):
    frame = pandas_frame()
    if change == "drop":
        frame = frame.drop(columns="age")
    elif change == "bound":
        frame.loc[0, "age"] = 17
    elif change == "unseen":
        frame["sex"] = pd.Series(["x"] * len(frame), dtype="str")
    else:
        frame = frame[:0]
    with pytest.raises(InputError, match="party 'b'"):
        fit(name, {"a": pandas_frame(), "b": frame})
    with pytest.raises(RosterError, match="one table per party"):
        fit(name, pandas_frame())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clip": 0.0}, "clip=0.0 must be above 0"),
        ({"counts_share": 0.95}, "counts_share=0.95"),
        ({"tolerated": -1}, "tolerated=-1"),
        ({"target": "nobody"}, "'nobody' is no column"),
        ({"settings": {"reach": None}}, "reach=None"),
        ({"settings": {"wings": 2}}, "settings.wings is no setting"),
        ({"settings": 3}, "must be a mapping"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_read(changes, said):
    with pytest.raises(InputError, match=said):
        made("dp_fed_tabddpm", **changes).fit("no.csv", SCHEMA, budget=BUDGET)


def test_point_diffusions_take_nothing_from_the_rows():
    for settings, said in (
        ({"scaled": True}, "scaled=True"),
        ({"diffusion": {"reach": None}}, "reach=None"),
        ({"autoencoder": {"hidden": [4]}}, "must be points|no setting"),
    ):
        with pytest.raises(InputError, match=said):
            made("dp_fed_point_diff", settings=settings, target=None).fit(
                parts_of(pandas_frame()), SCHEMA, budget=BUDGET
            )


@pytest.mark.parametrize("budget", [Budget(math.inf, 1e-5), Budget(0.05, 1e-7)])
def test_a_budget_without_bound_or_too_small_is_refused_before_anything_is_read(budget):
    with pytest.raises(BudgetError, match=r"finite epsilon|Nothing was read"):
        fit("dp_fed_tabddpm", "no.csv", budget=budget)


def test_a_budget_that_another_run_has_spent_is_refused(tmp_path):
    fit("dp_fed_tabddpm", folder=tmp_path)
    with pytest.raises(BudgetError, match="already spent"):
        fit("dp_fed_tabddpm", folder=tmp_path, run="again")


# A run that is killed


class KilledError(RuntimeError):
    """The process is gone."""


@pytest.mark.parametrize("where", ["before the answer", "before the reply is kept", "after it"])
@pytest.mark.parametrize("at", [1, 8, *(pytest.param(at, marks=_SLOW) for at in (5, 13, 18))])
def test_a_killed_run_goes_on_to_the_same_model(tmp_path, monkeypatch, where, at):
    send, put, count = InProcess.send, FolderStore.put, [0]

    def sent(transport, name, frame):
        count[0] += 1
        if count[0] == at and where == "before the answer":
            raise KilledError
        answer = send(transport, name, frame)
        if count[0] == at and where == "after it":
            raise KilledError
        return answer

    def kept(store, name, data):
        if count[0] == at and where == "before the reply is kept" and name.startswith("reply/"):
            raise KilledError
        put(store, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(InProcess, "send", sent)
        patch.setattr(FolderStore, "put", kept)
        with pytest.raises(KilledError):
            fit("dp_fed_tabddpm", folder=tmp_path)
    again = fit("dp_fed_tabddpm", folder=tmp_path)
    assert weights_in(again) == weights_in(fitted_once("dp_fed_tabddpm"))
    assert [len(entries) for entries in again.ledgers.values()] == [4, 4, 4]
    assert again.epsilon == fitted_once("dp_fed_tabddpm").epsilon


def test_the_ledger_is_written_before_anything_leaves(tmp_path, monkeypatch):
    send, seen = InProcess.send, []

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        step = wire.decode(frame, Envelope).step
        file = sorted(tmp_path.glob("parties/*/ledger.jsonl"))[0]
        seen.append((name, step, len(Ledger.read(file).entries)))
        return answer

    monkeypatch.setattr(InProcess, "send", sent)
    fit("dp_fed_tabddpm", folder=tmp_path)
    paid = {step: entries for name, step, entries in seen if name == "party-1"}
    assert paid == {0: 0, 1: 1, 2: 1, 3: 2, 4: 3, 5: 4}  # hello, look, begin, and three steps


# A coordinator that does not keep to the protocol


def test_requests_that_no_training_makes_are_refused(monkeypatch):
    from siloweave.algorithms import private_rounds as file

    def shorter(parties, plan, descent, state, asked, unit):
        parties.ask(asked(0, b"no weights"))

    monkeypatch.setattr(file, "_steps", shorter)
    with pytest.raises(WireError, match="party 'party-1', step 0"):
        fit("dp_fed_tabddpm")


def test_a_step_before_the_beginning_is_refused(monkeypatch):
    from siloweave.federation.parties import Parties

    ask = Parties.ask

    def skipping(self, request, *more, **named):
        if type(request).__name__ == "Begin":
            return []
        return ask(self, request, *more, **named)

    monkeypatch.setattr(Parties, "ask", skipping)
    with pytest.raises(WireError, match="never told what"):
        fit("dp_fed_tabddpm")


def test_more_steps_than_were_planned_meet_the_ledger(monkeypatch):
    from siloweave.algorithms import private_rounds as file

    honest = file._steps

    def longer(parties, plan, descent, state, asked, unit):
        state = honest(parties, plan, descent, state, asked, unit)
        return honest(parties, plan, descent, state, asked, unit)

    monkeypatch.setattr(file, "_steps", longer)
    with pytest.raises(BudgetError, match="Nothing was released"):
        fit("dp_fed_tabddpm")


def test_seeds_of_the_user_reach_first_weights_and_rows_alone():
    one, other = fit("dp_fed_tabddpm", seed=1), fit("dp_fed_tabddpm", seed=2)
    assert weights_in(one) != weights_in(other)
    assert np.isfinite(np.frombuffer(weights_in(one)[-4:], "<f4")).all()
