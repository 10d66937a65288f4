"""Every method's lines of visibility, held against the messages that really crossed."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import msgspec
import pytest

from siloweave.core.method import Guarantee, Method, names_of
from siloweave.core.views import NOISE, View
from siloweave.methods.registry import METHODS
from siloweave.privacy.budget import Budget, Relation
from siloweave.tables import Column, Schema
from tests.methods.test_vertigan import NET, SAME, halves
from tests.synthesizers import (
    test_columns,
    test_generators,
    test_private_generators,
    test_private_rows,
    test_row_networks,
)
from tests.synthesizers.cases import BUDGET, SCHEMA, WORKLOAD, pandas_frame
from tests.synthesizers.crossed import Crossed, problems
from tests.synthesizers.families import takes_target

REPLACE = Budget(50.0, 1e-5, relation=Relation.REPLACE_ONE)
OPEN = Schema(
    tuple(
        Column("town", "categorical", categories=("elsewhere",), other="elsewhere")
        if column.name == "town"
        else column
        for column in SCHEMA.columns
    )
).with_fallbacks()


def whole(seed):
    return pandas_frame(seed=seed)


def rows(seed):
    frame = pandas_frame(seed=seed)
    return [frame[:20], frame[20:40], frame[40:]]


def columns(seed):
    return test_columns.split(pandas_frame(seed=seed))


@dataclass(frozen=True)
class Case:
    """A method with settings, and rows to fit."""

    name: str
    settings: dict[str, Any]
    data: Any
    schema: Schema = SCHEMA
    fit: dict[str, Any] = field(default_factory=dict)

    @property
    def synth(self):
        return METHODS[self.name](**self.settings)

    def run(self, seed=0):
        """What it states after a fit to some rows, and the messages."""
        messages = Crossed()
        with pytest.MonkeyPatch.context() as patch:
            messages.listen(patch)
            fitted = self.synth.fit(self.data(seed), self.schema, **self.fit)
        return fitted, messages


def network(name, settings, data, **more):
    """A case of a network: with a target, where one is taken."""
    target = {"target": "member"} if takes_target(METHODS[name]) else {}
    return Case(name, settings | target | more, data)


def paid(case, budget):
    return replace(case, fit={"budget": budget})


TABLES = {"workload": WORKLOAD, "bins": 5}
ROUNDS = {"rounds": 2, "participation": 1.0}
OWNERS = {"gaussian_copula": Case("gaussian_copula", {}, whole)} | {
    name: network(name, settings, whole) for name, settings in test_generators.FAST.items()
}
PRIVATE_OWNERS = {
    name: paid(network(name, settings, whole, finest_bins=8), test_private_generators.BUDGET)
    for name, settings in test_private_generators.FAST.items()
}
ROWS = {
    name: network(name, settings, rows, rounds=2)
    for name, settings in test_row_networks.FAST.items()
}
PRIVATE_ROWS = {
    name: paid(network(name, settings, rows, finest_bins=8), test_private_rows.BUDGET)
    for name, settings in test_private_rows.FAST.items()
}
COLUMNS = {name: network(name, settings, columns) for name, settings in test_columns.FAST.items()}
GRAPHICAL = {
    "aim": Case("aim", TABLES, whole),
    "aim that learns": Case("aim", TABLES, whole, OPEN, {"learn": 0.3}),
    "privmrf": Case("privmrf", TABLES | {"refined": 0.5}, whole),
    "flaim": Case("flaim", TABLES | ROUNDS, rows),
    "flaim that learns": Case("flaim", TABLES | ROUNDS, rows, OPEN, {"learn": 0.3}),
    "distaim": Case("distaim", TABLES | ROUNDS, rows),
    "distaim simulated": Case("distaim", TABLES | ROUNDS | {"selection": "simulated"}, rows),
    "two_round": Case("two_round", TABLES, rows),
    "secure_two_round": Case("secure_two_round", TABLES, columns),
} | {
    f"flaim {variant}": Case("flaim", TABLES | ROUNDS | {"variant": variant}, rows)
    for variant in ("naive", "oracle", "random", "naive_bayes")
}
VERTIMRF = Case("vertimrf", {"bins": 6, "repetitions": 20, "refine_steps": 1}, columns)
VERTIGAN = Case("vertigan", NET | {"finest_bins": 8}, lambda seed: halves(seed=seed), SAME)
CASES = (
    {name: replace(case, fit={"budget": BUDGET} | case.fit) for name, case in GRAPHICAL.items()}
    | OWNERS
    | PRIVATE_OWNERS
    | ROWS
    | PRIVATE_ROWS
    | COLUMNS
    | {
        "dp_tldm of the paper": replace(
            PRIVATE_OWNERS["dp_tldm"],
            settings=PRIVATE_OWNERS["dp_tldm"].settings | {"scope": "autoencoder"},
        ),
        "md_tgan in one round": replace(
            ROWS["md_tgan"], settings=ROWS["md_tgan"].settings | {"rounds": 1}
        ),
        "silofuse apart": Case(
            "silofuse", test_columns.FAST["silofuse"] | {"shared": False}, columns
        ),
        "silofuse with noise": Case(
            "silofuse",
            test_columns.FAST["silofuse"] | {"privacy": "latents"},
            columns,
            fit={"budget": REPLACE},
        ),
        "e2e_distr apart": Case(
            "e2e_distr", test_columns.FAST["e2e_distr"] | {"shared": False}, columns
        ),
        "vertimrf": paid(VERTIMRF, REPLACE),
        "vertimrf of the paper": replace(
            VERTIMRF, settings=VERTIMRF.settings | {"encoding": "fm"}, fit={"budget": BUDGET}
        ),
        "vertigan": paid(VERTIGAN, BUDGET),
        "vertigan without noise": replace(
            VERTIGAN, settings=VERTIGAN.settings | {"private": False}
        ),
    }
)


@cache
def crossed(name):
    """What a method states, the messages of a run, and of one with other rows and other parties."""
    case = CASES[name]
    fitted, one = case.run()
    other = case.run(1)[1] if fitted.info.split != "central" else None
    return fitted, one, other


def test_every_method_is_here():
    assert {case.name for case in CASES.values()} == set(METHODS)


@pytest.mark.parametrize("name", CASES)
def test_what_a_method_declares_is_what_crosses(name):
    fitted, one, other = crossed(name)
    assert problems(fitted.info, one, other) == []
    assert fitted.simulated


def four(seed):
    frame = pandas_frame(seed=seed)
    return [frame[:15], frame[15:30], frame[30:45], frame[45:]]


@pytest.mark.parametrize("name", ["two_round", "flaim", "dp_fed_tgan"])
def test_so_it_is_where_parties_may_vanish(name):
    base = CASES[name]
    case = replace(base, settings=base.settings | {"dropouts": 1}, data=four)
    fitted, one = case.run()
    other = case.run(1)[1]
    assert problems(fitted.info, one, other) == []
    before = METHODS[name](**base.settings).info.visibility
    assert "no line covers OpenSum" in problems(declared(fitted.info, *before), one, other)


@pytest.mark.parametrize("name", CASES)
def test_one_party_that_helps_is_no_plural(name):
    case = CASES[name]
    info = METHODS[case.name](**case.settings).info
    texts = [info.statement, *(view.protected_by for view in info.visibility)]
    assert not [text for text in texts if "1 parties" in text]


# Lines that are not true are found


def declared(info, *views):
    return msgspec.structs.replace(info, visibility=views)


def test_an_oracle_that_says_noise_is_found():
    """What reports said of FLAIM's oracle before: noise for readers, and nothing of its own."""
    fitted, one, other = crossed("flaim oracle")
    private = METHODS["flaim"](**TABLES, **ROUNDS).info.visibility
    found = problems(declared(fitted.info, *private), one, other)
    assert "no line covers ExactCounts.tables" in found
    assert "readers are shown what nothing protects" in found
    assert "the other parties are shown what nothing protects" in found


def test_critics_that_change_places_are_found():
    """What reports said of MD-TGAN before: the lines of Fed-TGAN."""
    fitted, one, other = crossed("md_tgan")
    found = problems(declared(fitted.info, *METHODS["fed_tgan"]().info.visibility), one, other)
    for name in ("Handed.critic", "Judged.feedback", "Take", "Judge"):
        assert f"no line covers {name}" in found
    assert "Trained.networks never crosses" in found
    assert "Round never crosses" in found


@pytest.mark.parametrize(
    ("name", "said", "wrong"),
    [
        ("two_round", "nothing", "Counts.sums is protected by 'nothing'"),
        ("two_round", NOISE, "Counts.sums is under {'masks'}"),
        ("silofuse apart", NOISE, "Coded.latents is protected by 'noise"),
        ("aim", "masks", "Choice.index is under {'noise'}"),
    ],
)
def test_a_wrong_protection_is_found(name, said, wrong):
    fitted, one, other = crossed(name)
    lines = [
        View(v.who, v.sees, said, v.carries) if any("." in carried for carried in v.carries) else v
        for v in fitted.info.visibility
    ]
    assert any(wrong in one for one in problems(declared(fitted.info, *lines), one, other))


def test_a_line_twice_and_a_wrong_guarantee_are_found():
    fitted, one, other = crossed("two_round")
    views = fitted.info.visibility
    assert "two lines cover Count" in problems(declared(fitted.info, *views, views[2]), one, other)
    none = msgspec.structs.replace(fitted.info, guarantee="none")
    assert "the guarantee is 'none'" in problems(none, one, other)


# What a record must have

_FACTS = {
    one: getattr(METHODS["aim"].method, one) for one in Method.__dataclass_fields__ if one != "name"
}


@pytest.mark.parametrize("fact", ["guarantee", "visibility", "prepare", "handlers", "forecast"])
def test_a_record_that_lacks_a_fact_is_refused_by_name(fact):
    assert Method(name="whole", **_FACTS).title == "AIM"
    with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{fact}'"):
        Method(name="bare", **{k: v for k, v in _FACTS.items() if k != fact})


def test_an_unknown_guarantee_and_a_name_twice_are_refused():
    odd = Method(name="odd", **_FACTS | {"guarantee": lambda synth: Guarantee("", "")})
    with pytest.raises(TypeError, match="method 'odd' has guarantee ''; it must be dp, partial"):
        odd.info(METHODS["aim"]())
    with pytest.raises(TypeError, match="two methods are called 'odd'"):
        names_of([odd, odd])
