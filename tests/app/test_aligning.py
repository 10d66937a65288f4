"""A study whose parties are aligned first."""

import msgspec
import polars as pl
import pytest

from siloweave.app import run
from siloweave.app.check import forecast
from siloweave.app.ledgers import ledger_files
from siloweave.app.plan import _aligning, most_asked
from siloweave.app.run import execute
from siloweave.app.study import Study
from siloweave.core.party import common_tables
from siloweave.errors import BudgetError, DataError, InputError, RosterError
from siloweave.tables.column import Column
from siloweave.tables.schema import Schema

SCHEMA = Schema(
    (
        Column("id", "id"),
        Column("age", "integer", low=0, high=99),
        Column("sex", "categorical", categories=("f", "m")),
    )
).with_fallbacks()
NORTH = pl.DataFrame({"id": ["A-3", "A-1", "A-2", "A-9"], "age": [30, 10, 20, 90]})
SOUTH = pl.DataFrame({"id": [1, 2, 3, 4], "sex": ["f", "m", "m", "f"]})
FILE = {
    "study": {"name": "columns"},
    "schema": {"file": "schema.json"},
    "method": {"name": "silofuse"},
    "alignment": {"on": ["id"], "rules": {"id": ["digits"]}},
    "parties": [{"name": "north", "data": "north.csv"}, {"name": "south", "data": "south.csv"}],
}


@pytest.fixture
def study(tmp_path):
    def made(**changed):
        NORTH.write_csv(tmp_path / "north.csv")
        SOUTH.write_csv(tmp_path / "south.csv")
        (tmp_path / "schema.json").write_text(SCHEMA.to_json())
        return Study.parse(FILE | changed, base=tmp_path)

    return made


class StoppedError(RuntimeError):
    """What was fitted is seen; no network is needed."""


@pytest.fixture
def fitted_on(monkeypatch):
    """The tables that a method is given; it then stops."""
    seen = {}

    def stopped(setup, job, carrier, **named):
        seen.update({n: table.to_native() for n, table in common_tables(carrier).items()})
        raise StoppedError

    monkeypatch.setattr(run, "run_study", stopped)
    return seen


def test_a_method_gets_common_rows_in_one_order_and_no_ids(study, fitted_on):
    with pytest.raises(StoppedError):
        execute(study())
    pairs = dict(zip(fitted_on["north"]["age"], fitted_on["south"]["sex"], strict=True))
    assert pairs == {10: "f", 20: "m", 30: "m"}
    assert [list(fitted_on[name].columns) for name in ("north", "south")] == [["age"], ["sex"]]


def test_a_plan_bounds_every_question_where_the_study_says_how_many_ids_there_are(study):
    """Else it says "about": how many ids parties have is what they find out first."""
    rules = FILE["alignment"]
    guessed = {one.tag for one in _aligning(study(), [4, 4]) if one.guessed}
    assert guessed == {
        f"alignment/{name}"
        for name in ("hide", "store-table", "blind", "raise", "unblind", "name-rows", "store-rows")
    }
    declared = list(_aligning(study(alignment=rules | {"most": 100_000}), [4, 4]))
    assert not any(one.guessed for one in declared)
    most = most_asked(declared)["alignment"]
    assert (most["alignment/greet"], most["alignment/blind"], most["alignment/hide"]) == (1, 2, 3)


def test_what_was_released_stays_in_the_folder_when_the_method_fails(study, fitted_on):
    for _ in range(2):
        with pytest.raises(StoppedError):
            execute(study())
    folder = study().folder
    assert set(ledger_files(folder / "alignment")) == {"north", "south"}
    assert forecast(study()).resumes > 4
    found = msgspec.json.decode((folder / "alignment" / "alignment.json").read_bytes())
    assert (found["common"], found["ids"]) == (3, {"north": 4, "south": 4})
    assert found["parties"]["north"]["bytes_sent"] > 100


def test_rows_may_not_change_once_they_were_aligned(study, fitted_on):
    begun = study()
    with pytest.raises(StoppedError):
        execute(begun)
    NORTH.head(3).write_csv(begun.source(begun.parties[0]))
    with pytest.raises(InputError, match="its rows changed since this run began"):
        execute(begun)


def test_a_run_that_cannot_be_aligned_stops_and_keeps_its_ledgers(study, fitted_on):
    strict = study(alignment={"on": ["id"], "rules": {"id": ["no-leading-zeros"]}})
    with pytest.raises(DataError, match=r"no id in id is common to all 2 parties.*give rules"):
        execute(strict)
    assert ledger_files(strict.folder / "alignment"), "what ids look like was released"
    short = study(alignment={"on": ["id"], "rules": {"id": ["digits"]}, "most": 3})
    with pytest.raises(RosterError, match="lets nobody bring more than most = 3 ids"):
        execute(short)


def test_what_a_budget_does_not_pay_for_is_refused_before_ids_are_compared(study):
    """Which rows are common is covered by no epsilon, so nobody learns it in vain."""
    small = {"budget": {"epsilon": 0.05, "delta": 1e-6}, "method": {"name": "vertigan"}}
    asked = study(**small)
    for step in (forecast, execute):
        with pytest.raises(BudgetError, match="too small for 2000 steps"):
            step(asked)
    assert not ledger_files(asked.folder / "alignment")
    assert not asked.folder.exists()


@pytest.mark.parametrize("method", ["silofuse", "secure_two_round", "vertimrf"])
def test_a_party_of_ids_alone_is_named_before_ids_are_compared(method, study, tmp_path):
    west = {"name": "west", "data": "west.csv", "columns": ["id"]}
    terms = {"epsilon": 1.0, "delta": 1e-6, "relation": "replace_one"}
    budget = {} if method == "silofuse" else {"budget": terms}
    asked = study(parties=[*FILE["parties"], west], method={"name": method}, **budget)
    NORTH.select("id").write_csv(tmp_path / "west.csv")
    for step in (forecast, execute):
        with pytest.raises(RosterError, match="'west' has no column but ids; leave it out"):
            step(asked)
    assert not asked.folder.exists()


def test_one_common_row_is_too_few(study, fitted_on, tmp_path):
    begun = study()
    SOUTH.with_columns(id=pl.Series([1, 20, 30, 40])).write_csv(tmp_path / "south.csv")
    with pytest.raises(DataError, match="1 row is common to all parties; a study needs 2"):
        execute(begun)


def test_check_says_that_no_epsilon_covers_it(study):
    assert any("found by comparing id" in one for one in forecast(study()).warnings)


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"alignment": {"on": []}}, InputError, r"\[alignment\] on=\(\) must be a list"),
        ({"alignment": {"on": ["id"], "rules": {"id": ["up"]}}}, InputError, "rule 'up' of 'id'"),
        ({"alignment": {"on": ["id"], "most": 0}}, InputError, r"\[alignment\] most=0"),
        ({"alignment": {"on": ["id"], "missing": "x"}}, InputError, r"\[alignment\] missing"),
        ({"alignment": {"on": ["id"], "rule": {}}}, InputError, "rule is unknown; did you mean"),
        ({"alignment": {}}, InputError, r"\[alignment\] on is missing"),
        ({"alignment": {"on": ["nr"]}}, DataError, "party 'north' has no column 'nr'"),
        ({"method": {"name": "fed_tgan"}}, InputError, "is for parties that hold different"),
        ({"parties": FILE["parties"][:1]}, RosterError, "needs two .*one has nobody to align"),
    ],
    ids=str,
)
def test_bad_input_names_what_is_wrong(study, changed, kind, words):
    with pytest.raises(kind, match=words):
        forecast(study(**changed))


def test_an_alignment_makes_another_run_and_none_leaves_its_name(study):
    plain = study(alignment=None)
    assert plain.alignment is None
    assert study().run_name != plain.run_name
    other = study(alignment={"on": ["id"]})
    assert len({study().run_name, plain.run_name, other.run_name}) == 3
