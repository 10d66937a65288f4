"""Every method's plan, held against what really crossed: it is an upper end, and lists all."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from siloweave.app.plan import _INFINITE, _decoding, forecast_of, messages_of
from siloweave.core.method import Setup, job_for
from siloweave.methods.registry import METHODS
from siloweave.tables import Column, Schema
from tests.synthesizers.cases import BUDGET
from tests.synthesizers.networked import fit_over_frames, setup_of
from tests.synthesizers.test_visibility import CASES, crossed

ROWS = 60


def planned(name):
    """The forecast of a case, and the messages of its plan."""
    fitted, _, _ = crossed(name)
    case, parties = CASES[name], tuple(fitted.ledgers)
    learn = case.fit.get("learn", 0.0)
    budget = job_for(case.synth, case.fit.get("budget")).budget
    setup = Setup(case.synth, case.schema, budget, parties, learn=learn)
    split = setup.synth.method.split == "columns"
    found = forecast_of(setup, [ROWS if split else ROWS // len(parties)] * len(parties))
    return found, list(messages_of(setup, found))


def sent(name):
    """Per stage and tag, how often a party was asked at most; and how often to close the run."""
    most = Counter()
    for (run, _, tag), times in crossed(name)[1].asked.items():
        stage = run.removeprefix("run-") if run != "run" else "method"
        most[stage, tag] = max(most[stage, tag], times)
    closes = most.pop(("method", "run/close"), 0)
    parties = len(crossed(name)[0].ledgers)
    assert closes * parties + crossed(name)[1].along == parties
    return most, closes


@pytest.mark.parametrize("name", CASES)
def test_a_run_sends_what_its_plan_lists_and_no_more_often(name):
    found, messages = planned(name)
    plan = {(one.stage, one.tag): one.times for one in messages}
    real, closes = sent(name)
    assert closes <= 1 - found.closes
    assert real.keys() <= plan.keys()
    assert plan.keys() - real.keys() <= {("method", "privmrf/errors")}  # if there is a choice
    too_often = {
        key: f"sent {real[key]}, planned {plan[key]}" for key in plan if real[key] > plan[key]
    }
    assert not too_often
    assert {one.tag for one in messages if one.guessed} <= {"secure/share", "md_tgan/judge"}
    fitted = crossed(name)[0]
    count = closes + sum(plan.values())
    assert all(one.messages <= count for one in fitted.cost.parties.values())
    before = sum(one.times for one in messages if one.stage != "method")
    assert fitted.cost.rounds <= before + found.rounds


@pytest.mark.parametrize("name", CASES)
def test_the_ledger_holds_no_more_than_the_plan_says(name):
    found, messages = planned(name)
    fitted = crossed(name)[0]
    bare = any(one.ledger == _INFINITE for one in messages)
    assert bare == math.isinf(max(fitted.epsilons.values()))
    if not bare:
        assert max(fitted.epsilons.values()) <= found.epsilon_per_party


@pytest.mark.parametrize("name", CASES)
def test_every_part_of_a_reply_is_listed_with_what_protects_it(name):
    """Those that are paid for; what follows from no row is listed besides."""
    listed = {part.name: part.protected_by for one in planned(name)[1] for part in one.fields}
    for part, kinds in crossed(name)[1].replies.items():
        bare = listed[part.partition(".")[2]].startswith("nothing")
        assert bare == ("nothing" in kinds), part


def test_two_rounds_are_four_messages_in_all():
    assert {one.messages for one in crossed("two_round")[0].cost.parties.values()} == {4}


def test_flaim_takes_three_messages_in_a_round():
    asked = sent("flaim")[0]
    assert sum(asked[key] for key in asked if key[0] == "method") == 1 + 3 * 2  # and one for keys


def test_so_it_is_with_ten_parties_and_ten_rounds():
    """Besides, two messages cut columns, one is for keys, and one ends the run."""
    case = CASES["flaim"]
    many = replace(
        case,
        settings=case.settings | {"rounds": 10, "participation": 1.0},
        data=lambda seed: [one[i::5] for one in case.data(seed)[:2] for i in range(5)],
    )
    fitted, _ = many.run()
    assert {one.messages for one in fitted.cost.parties.values()} == {2 + 1 + 3 * 10 + 1}
    assert len(fitted.ledgers) == 10


def test_open_bounds_are_planned_for_as_if_they_were_wide():
    schema = Schema((Column("age", "integer"), Column("ill", "boolean"))).with_fallbacks()
    setup = Setup(METHODS["two_round"](), schema, BUDGET, ("a", "b"), learn=0.2)
    found = forecast_of(setup, [60, 60])
    messages = {(one.stage, one.tag): one.times for one in messages_of(setup, found)}
    assert messages == {
        ("schema", "schema/declare"): 1, ("schema", "schema/magnitudes"): 1,
        ("bins", "sum/send_key"): 1, ("bins", "bins/columns"): 1,
        ("method", "sum/send_key"): 1, ("method", "sum/count"): 2,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "count"), [("silofuse", 3), ("two_round", 4)])
def test_messages_over_a_network(name, count, tmp_path):
    """SiloFuse trains in two; the one that draws rows closes the run."""
    fitted, _ = fit_over_frames(CASES[name], tmp_path)
    assert {one.messages for one in fitted.cost.parties.values()} == {count}
    setup, _ = setup_of(CASES[name])
    found = planned(name)[0]
    assert found.rounds == count - (0 if name == "silofuse" else 2)  # and two to cut columns
    assert [one.tag for one in _decoding(setup)] == ["columns/decode"] * (name == "silofuse")


def test_a_plan_lists_the_question_of_columns_that_stay():
    setup, _ = setup_of(CASES["silofuse apart"])
    (one,) = _decoding(setup)
    assert one.tag == "columns/keep"
    assert [field.name for field in one.fields] == ["rows"]


def test_a_plan_counts_the_questions_that_open_sums():
    case = CASES["two_round"]
    many = replace(
        case,
        settings=case.settings | {"dropouts": 1},
        data=lambda seed: [case.data(seed)[0][i::6] for i in range(6)],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CASES, "two_round that survives", many)
        test_a_run_sends_what_its_plan_lists_and_no_more_often("two_round that survives")
        asked = {(one.stage, one.tag): one.times for one in planned("two_round that survives")[1]}
    assert (asked["bins", "sum/open"], asked["method", "sum/open"]) == (1, 2)


def test_a_plan_bounds_how_often_tables_are_measured():
    asked = {one.tag: one.times for one in planned("secure_two_round")[1]}
    assert asked["secure/measure"] == 4
