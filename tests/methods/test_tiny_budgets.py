"""What methods whose noise is made of coins do where it would have to be wider than coins are."""

import re
from functools import partial

import pytest
from msgspec.structs import replace

from siloweave import DistAIM, SecureTwoRound
from siloweave.core.method import Setup
from siloweave.datasets import adult, adult_schema
from siloweave.errors import BudgetError, InputError
from siloweave.methods.distaim import coordinator
from siloweave.privacy.budget import Budget, Relation
from siloweave.protocols.secure_marginals import coordinator as secure_coordinator
from siloweave.protocols.secure_marginals import plan as secure_plan
from siloweave.tables.codes import Encoder

NAMES = ("sex", "income", "race", "age")
SCHEMA = adult_schema().select(NAMES)
TINY = Budget(2e-4, 1e-9, relation=Relation.REPLACE_ONE)


def rows(start, step=1):
    return adult().select(list(NAMES)).take(range(start, 600, step))


def split():
    return {"tax": rows(0).select(["sex", "income"]), "town": rows(0).select(["race", "age"])}


@pytest.mark.parametrize("learn", [0.0, 0.2])
def test_distaim_says_before_it_reads_anything_which_epsilon_is_enough(learn):
    parties = dict.fromkeys("abc", "nowhere.csv")
    with pytest.raises(BudgetError, match=r"for 120 tables.*No party shared") as refused:
        DistAIM().fit(parties, adult_schema(), budget=TINY, learn=learn)
    enough = float(re.search(r"epsilon = (\S+) or more", str(refused.value))[1])
    enough_budget = replace(TINY, epsilon=enough)
    fits = Setup(DistAIM(), adult_schema(), enough_budget, tuple(parties), learn=learn)
    DistAIM.method.affordable(fits)
    close_budget = replace(TINY, epsilon=0.85 * enough)
    close = Setup(DistAIM(), adult_schema(), close_budget, tuple(parties), learn=learn)
    with pytest.raises(BudgetError):
        DistAIM.method.affordable(close)


def test_distaim_checks_once_more_before_any_party_is_asked():
    domain = Encoder(SCHEMA, 4).domain
    workload = [(a, b) for a in NAMES for b in NAMES if a < b]
    run = partial(coordinator.distaim, None, domain, workload, settings=DistAIM(), secret=b"")
    with pytest.raises(BudgetError, match="for 10 tables"):
        run(rho=1e-9, key=0, budget=TINY)


def test_distaim_names_the_epsilon_that_would_do_for_the_smallest_one():
    """No price could be made of so small an epsilon, and the error spoke of that alone."""
    parties = {name: rows(i, 3) for i, name in enumerate("abc")}
    with pytest.raises(BudgetError, match=r"epsilon = 1e-06 .* Give epsilon = 0\.000\d+ or more"):
        DistAIM().fit(parties, SCHEMA, budget=Budget(1e-6, 1e-6))


def test_distaim_leaves_tables_closed_that_need_wider_noise(monkeypatch):
    parties = {name: rows(i, 3) for i, name in enumerate("abc")}
    plan = DistAIM(rounds=1, participation=1.0, bins=4, pairs_share=0.95)
    monkeypatch.setattr(coordinator, "MOST_SIGMA", 30.0)
    fitted = plan.fit(parties, SCHEMA, budget=Budget(1.0, 1e-6))
    assert fitted.model.measured
    assert fitted.epsilon <= 1.0
    assert all(one.sigma <= 31.0 for one in fitted.model.measured)


def test_secure_two_round_measures_what_one_party_holds_and_says_so(caplog):
    fitted = SecureTwoRound(bins=4).fit(split(), SCHEMA, budget=TINY)
    assert fitted.settings["joint_tables"] == 0
    assert "is too small for tables of columns of several parties" in caplog.text
    measured = {clique for one in fitted.model.measured for clique in one.cliques}
    assert measured == {(name,) for name in NAMES} | {("sex", "income"), ("race", "age")}
    assert 0.9 * TINY.epsilon < fitted.epsilon <= TINY.epsilon


def test_rows_that_nothing_is_opened_of_are_not_shared():
    """How many there are is hidden by millions that are missing, and took minutes to share."""
    budget = Budget(1e-4, 1e-6)
    fitted = SecureTwoRound(bins=4).fit(split(), SCHEMA, budget=budget)
    assert fitted.epsilon <= budget.epsilon
    assert max(one.bytes_from_party for one in fitted.cost.parties.values()) < 100_000
    foreseen = SecureTwoRound().forecast(SCHEMA, rows=600, budget=budget, parties=2)
    assert foreseen.bytes_per_party < 100_000


def test_a_party_refuses_a_table_of_two_parties_where_no_rows_are_shared():
    """Of few tables each could be paid for with noise that coins make; nothing would be counted."""
    parts = {name: SCHEMA.select(table.names) for name, table in split().items()}
    tiny, enough = (
        secure_plan.SecurePlan(SecureTwoRound(bins=4), SCHEMA, parts, Budget(e, 1e-6))
        for e in (1e-4, 1.0)
    )
    table = enough.table_for(("sex", "race"), 100.0)
    assert enough.price(table) > 0
    assert (enough.shared(700), tiny.shared(700)) == (700, 0)
    with pytest.raises(InputError, match="'sex', 'race'"):
        tiny.price(table)


def test_the_forecast_of_secure_two_round_says_which_epsilon_is_enough():
    def note(budget, parties=2):
        found = SecureTwoRound().forecast(SCHEMA, rows=600, budget=budget, parties=parties)
        return " ".join(found.notes)

    said = re.search(r"of different parties are independent .* epsilon = (\S+) all", note(TINY))
    assert "too small" not in note(replace(TINY, epsilon=float(said[1])))
    assert "too small" not in note(TINY, parties=1)


def test_secure_two_round_leaves_out_tables_that_need_wider_noise(monkeypatch):
    for module in (secure_plan, secure_coordinator):
        monkeypatch.setattr(module, "MOST_SIGMA", 30.0)
    synth = SecureTwoRound(bins=4, pairs_share=0.95)
    fitted = synth.fit(split(), SCHEMA, budget=Budget(1.0, 1e-6))
    joint = [(q, m.sigma) for m in fitted.model.measured for q in m.cliques if len(q) == 2]
    crossing = [sigma for q, sigma in joint if set(q) not in ({"sex", "income"}, {"race", "age"})]
    assert crossing
    assert max(crossing) <= 31.0
