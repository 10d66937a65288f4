"""What parties say of a synthetic table."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from msgspec import structs

import siloweave as sw
from siloweave.errors import BudgetError, InputError, RosterError, SchemaError
from siloweave.evaluate.workload import workload_error
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.ledger import Ledger
from siloweave.protocols.scoring import score_parties
from siloweave.tables import Column, Encoder, Schema, Table

SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m")),
        Column("town", "categorical", categories=("Ulm", "Bonn", "Jena")),
        Column("age", "integer", low=0, high=99),
    )
).with_fallbacks()
BUDGET = Budget(epsilon=1.0, delta=1e-6)
ENCODER = Encoder(SCHEMA, 8)


def people(number, seed=0, share=0.5):
    rng = np.random.default_rng(seed)
    sex = rng.random(number) < share
    age = np.clip(rng.normal(40 + 20 * sex, 12, number), 0, 99).astype(int)
    text = lambda values: np.array(values, dtype=object)  # noqa: E731
    return Table.from_columns(
        {
            "sex": (text(np.where(sex, "f", "m").tolist()), None),
            "town": (text(rng.choice(["Ulm", "Bonn", "Jena"], number).tolist()), None),
            "age": (age, None),
        }
    )


def with_patients(table, number=10):
    """The rows with an id of ten people, who have them in turn."""
    columns = {name: (table.values(name), table.missing(name)) for name in table.names}
    return Table.from_columns({**columns, "patient": (np.arange(table.num_rows) % number, None)})


QUERIES = [("sex",), ("sex", "age"), ("town", "age")]


@pytest.mark.parametrize("relation", list(Relation))
def test_each_partys_error_is_about_its_own_rows(relation):
    budget = Budget(1.0, 1e-6, relation=relation)
    parts = {"north": people(4000, 1), "south": people(6000, 2, share=0.8)}
    judged = people(5000, 3)
    found = score_parties(parts, judged, ENCODER, budget=budget, queries=QUERIES)
    for one in found.parties:
        true = workload_error(ENCODER.encode(parts[one.party]), ENCODER.encode(judged), QUERIES)
        assert abs(one.error - true) < 2.5 * (one.high - one.error) + 1e-3
        assert one.high - one.low < 0.02
        assert one.rows == pytest.approx(parts[one.party].num_rows, abs=40)
    assert found.parties[1].error > found.parties[0].error + 0.1
    weights = [one.rows for one in found.parties]
    errors = [one.error for one in found.parties]
    assert found.error == pytest.approx(np.average(errors, weights=weights))
    assert 0.9 < found.epsilon <= 1.0
    assert found.unmeasured == ()


def test_parties_with_different_columns_answer_what_they_hold():
    whole = people(5000, 4)
    parts = {"clinic": whole.select(["sex", "age"]), "town hall": whole.select(["town"])}
    found = score_parties(parts, whole, ENCODER, budget=BUDGET, split="columns")
    assert found.unmeasured == (("sex", "town"), ("town", "age"))
    assert [one.queries for one in found.parties] == [3, 1]
    assert all(abs(one.error) < 2.5 * (one.high - one.error) for one in found.parties)
    swapped = {**parts, "clinic": people(5000, 5, share=0.1).select(["sex", "age"])}
    worse = score_parties(swapped, whole, ENCODER, budget=BUDGET, split="columns")
    assert worse.parties[0].error > 0.3
    assert abs(worse.parties[1].error) < 0.02


def test_a_score_is_charged_and_stays_within_the_budget(tmp_path):
    parts = {"a": people(100, 1), "b": people(100, 2)}
    asked = {"budget": BUDGET, "folder": tmp_path}
    first = score_parties(parts, people(100, 3), ENCODER, **asked)
    again = score_parties(parts, people(100, 3), ENCODER, **asked)
    assert again.parties == first.parties  # asked again: the stored answer, nothing paid twice
    assert [len(entries) for entries in again.ledgers.values()] == [2, 2]
    with pytest.raises(BudgetError, match="already spent"):
        score_parties(parts, people(100, 4), ENCODER, run="another", **asked)
    assert {len(Ledger.read(f).entries) for f in tmp_path.glob("parties/*/ledger.jsonl")} == {2}


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_the_budget_that_is_given_is_what_a_score_costs(split, tmp_path):
    whole = people(300, 1)
    parts = {"rows": [whole, whole], "columns": [whole.select(["sex", "age"]),
                                                 whole.select(["town"])]}[split]  # fmt: skip
    wide = Budget(5.0, 1e-6)
    for folder in (None, tmp_path):
        found = score_parties(parts, whole, ENCODER, budget=Budget(0.25, 1e-6), split=split,
                              total=wide, folder=folder, run="mine")  # fmt: skip
        assert 0.24 < found.epsilon <= 0.25
        assert found.total_epsilon == found.epsilon
        assert {e.run for entries in found.ledgers.values() for e in entries} == {"mine"}


def test_parties_that_hold_the_same_people_share_one_budget():
    whole = people(400, 4)
    parts = [whole.select([name]) for name in ("sex", "town", "age")]
    found = score_parties(parts, whole, ENCODER, budget=BUDGET, split="columns")
    events = [entry.event for entries in found.ledgers.values() for entry in entries]
    assert len(events) == 6
    assert 0.99 < epsilon(events, BUDGET.delta) == found.epsilon <= BUDGET.epsilon
    alone = [epsilon([e.event for e in es], BUDGET.delta) for es in found.ledgers.values()]
    assert max(alone) < 0.65


# One ledger for a fit and its scores

TWO = {"north": people(300, 1), "south": people(300, 2)}
FIT = sw.TwoRound(bins=4, counts_share=0.0, workload=[("sex", "age")])
HALF, BOTH = Budget(0.5, 1e-6), Budget(1.2, 1e-6)


def test_a_fit_and_its_scores_add_up_in_the_folder_of_the_fit(tmp_path):
    fitted = FIT.fit(TWO, SCHEMA, budget=BUDGET, folder=tmp_path)
    made = fitted.sample_table(300)
    asked = {"budget": HALF, "folder": tmp_path}
    with pytest.raises(BudgetError, match=r"already spent epsilon = 1\.0.*total=Budget\(epsilon="):
        score_parties(TWO, made, ENCODER, **asked)
    with pytest.raises(BudgetError, match="everything together may cost is 1"):
        score_parties(TWO, made, ENCODER, total=Budget(1.1, 1e-6), **asked)
    found = score_parties(TWO, made, ENCODER, total=BOTH, **asked)
    files = [Ledger.read(file) for file in sorted(tmp_path.glob("parties/*/ledger.jsonl"))]
    assert found.total_epsilon == max(one.epsilon(1e-6) for one in files)
    assert fitted.epsilon < found.total_epsilon <= 1.2
    assert 0.49 < found.epsilon <= 0.5
    assert str(found.total_epsilon) in str(found)
    assert str(found.epsilon) in str(found)
    assert {e.run for e in files[0].entries} == {"run", "score"}
    with pytest.raises(BudgetError, match="run run, score"):  # a second one is beyond the total
        score_parties(TWO, made, ENCODER, total=BOTH, run="again", **asked)
    more = score_parties(TWO, made, ENCODER, total=Budget(2.0, 1e-6), run="again", **asked)
    assert more.total_epsilon > found.total_epsilon


def test_a_fit_may_be_run_again_after_its_score(tmp_path):
    fitted = FIT.fit(TWO, SCHEMA, budget=BUDGET, folder=tmp_path)
    score_parties(TWO, fitted.sample_table(9), ENCODER, budget=HALF, total=BOTH, folder=tmp_path)
    again = FIT.fit(TWO, SCHEMA, budget=BUDGET, folder=tmp_path)
    assert again.sample_table(50, seed=1).values("age").tolist() == (
        fitted.sample_table(50, seed=1).values("age").tolist()
    )
    with pytest.raises(BudgetError, match="already spent"):
        FIT.fit(TWO, SCHEMA, budget=BUDGET, folder=tmp_path, run="another fit")


@pytest.mark.parametrize("kept", ["folder", "memory"])
@pytest.mark.parametrize("other", [{"relation": Relation.REPLACE_ONE}, {"unit": "patient"}])
def test_what_is_priced_for_other_neighbours_is_not_added_up(other, kept, tmp_path):
    """An entry of the fit moves twice as far where a row is replaced: 1.47 instead of 1.03."""
    home = {"folder": tmp_path} if kept == "folder" else {}
    fitted = FIT.fit(TWO, SCHEMA, budget=BUDGET, **home)
    asked = {"budget": HALF, "total": BOTH} | (home or {"after": fitted})
    asked |= {name: structs.replace(asked[name], **other) for name in ("budget", "total")}
    encoder = Encoder(Schema((*SCHEMA.columns, Column("patient", "id"))).with_fallbacks(), 8)
    parts = {name: with_patients(table) for name, table in TWO.items()}
    before = [file.read_bytes() for file in tmp_path.glob("parties/*/ledger.jsonl")]
    with pytest.raises(BudgetError, match="do not add up"):
        score_parties(parts, fitted.sample_table(9), encoder, **asked)
    assert before == [file.read_bytes() for file in tmp_path.glob("parties/*/ledger.jsonl")]


def test_a_score_is_of_the_rows_of_each_person_that_take_part(tmp_path):
    """Ten people with 30 rows each, of whom three count: the score sees 30 rows, and pays for 3."""
    encoder = Encoder(Schema((*SCHEMA.columns, Column("patient", "id"))).with_fallbacks(), 8)
    budget = Budget(9.0, 1e-3, unit="patient", rows_per_unit=3)
    parts = {"north": with_patients(people(300)), "south": with_patients(people(300, 1))}
    found = score_parties(parts, people(50), encoder, budget=budget, folder=tmp_path)
    assert [one.rows for one in found.parties] == pytest.approx([30, 30], abs=20)
    for entries in found.ledgers.values():
        size, distance = (entry.event for entry in entries)
        assert (size.sensitivity, distance.sensitivity) == (3.0, 3 * 1024 + 1)
    with pytest.raises(SchemaError, match="codes, which do not say whose"):
        score_parties([ENCODER.encode(people(9))], people(9), encoder, budget=budget)
    with pytest.raises(SchemaError, match="unit = 'patient' is no column"):
        score_parties(parts, people(50), ENCODER, budget=budget)


def test_scores_continue_where_a_fit_in_memory_ended():
    fitted = FIT.fit(TWO, SCHEMA, budget=BUDGET)
    made = fitted.sample_table(300)
    with pytest.raises(BudgetError, match="already spent"):
        score_parties(TWO, made, ENCODER, budget=HALF, after=fitted)
    first = score_parties(TWO, made, ENCODER, budget=HALF, total=BOTH, after=fitted)
    assert first.ledgers["north"][: len(fitted.ledgers["north"])] == fitted.ledgers["north"]
    assert fitted.epsilon < first.total_epsilon <= 1.2
    with pytest.raises(InputError, match="run='score' is in the ledgers already"):
        score_parties(TWO, made, ENCODER, budget=HALF, total=BOTH, after=first)
    with pytest.raises(BudgetError, match="run run, score"):
        score_parties(TWO, made, ENCODER, budget=HALF, total=BOTH, after=first, run="two")
    with pytest.raises(RosterError, match="north, south"):
        score_parties([*TWO.values()], made, ENCODER, budget=HALF, total=BOTH, after=fitted)


def test_a_fit_without_a_guarantee_leaves_nothing_to_add_up(tmp_path):
    fitted = sw.FLAIM(variant="oracle", rounds=1, bins=4, counts_share=0.0,
                      workload=[("sex", "age")]).fit(TWO, SCHEMA, budget=BUDGET)  # fmt: skip
    made = fitted.sample_table(300)
    with pytest.raises(BudgetError, match="already spent epsilon = inf"):
        score_parties(TWO, made, ENCODER, budget=HALF, total=BOTH, after=fitted)
    endless = Budget(float("inf"), 1e-6)
    found = score_parties(TWO, made, ENCODER, budget=HALF, total=endless, after=fitted)
    assert (found.total_epsilon, found.epsilon <= 0.5) == (float("inf"), True)


@pytest.mark.parametrize("kept", ["folder", "memory"])
def test_over_split_columns_everything_about_a_person_adds_up(kept, tmp_path):
    whole, relation = people(200, 6), Relation.REPLACE_ONE
    parts = {"clinic": whole.select(["sex", "age"]), "town hall": whole.select(["town"])}
    budget = Budget(1.0, 1e-6, relation=relation)
    home = {"folder": tmp_path} if kept == "folder" else {}
    tiny = {"hidden": [8], "steps": 2, "batch": 16, "timesteps": 5}
    fitted = sw.SiloFuse(privacy="latents", diffusion=tiny).fit(
        parts, SCHEMA, budget=budget, **home
    )
    made, after = fitted.sample_table(100), home or {"after": fitted}
    asked = {"budget": Budget(0.5, 1e-6, relation=relation), "split": "columns", **after}
    alone = Budget(1.1, 1e-6, relation=relation)  # each ledger would allow it
    for total in ({}, {"total": alone}):
        with pytest.raises(BudgetError, match="over 2 parties that hold the same people"):
            score_parties(parts, made, ENCODER, **asked, **total)
    both = Budget(1.2, 1e-6, relation=relation)
    found = score_parties(parts, made, ENCODER, total=both, **asked)
    events = [entry.event for entries in found.ledgers.values() for entry in entries]
    assert alone.epsilon < epsilon(events, 1e-6) == found.total_epsilon <= 1.2
    assert max(epsilon([e.event for e in es], 1e-6) for es in found.ledgers.values()) < 1.1


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames_go_in_and_come_out(kind):
    frame = kind({"sex": ["f", "m"] * 50, "town": ["Ulm", "Bonn"] * 50, "age": [30, 40] * 50})
    found = score_parties([frame, frame], frame, SCHEMA, budget=BUDGET, names=["n", "s"])
    table = found.to_frame()
    assert isinstance(table, kind)
    assert list(table["party"]) == ["n", "s"]
    assert list(table["error"]) == [one.error for one in found.parties]
    assert list(table["columns"]) == ["sex, town, age"] * 2
    assert repr(found).startswith("FederatedScore(2 parties: error ")
    assert len(repr(found)) < 100


def test_seeded_noise_is_marked():
    asked = {"budget": BUDGET, "noise": "seeded"}
    one, two = (score_parties([people(60)], people(60), ENCODER, seed=7, **asked) for _ in "ab")
    assert one.parties == two.parties
    assert not one.private
    assert "NOT PRIVATE" in str(one)


def test_progress_is_reported():
    seen = []
    score_parties([people(60)] * 2, people(60), ENCODER, budget=BUDGET,
                  progress=lambda text, done: seen.append(done))  # fmt: skip
    assert seen == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("number", [0, 1])
def test_a_party_answers_whether_it_has_a_row_or_none(number):
    data = {"many": people(50), "few": people(9).take(range(number))}
    found = score_parties(data, people(50), ENCODER, budget=BUDGET)
    assert [one.party for one in found.parties] == ["many", "few"]
    assert found.epsilon <= BUDGET.epsilon


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"queries": []}, InputError, "queries is empty"),
        ({"queries": [()]}, InputError, "queries is empty, or one of them"),
        ({"budget": Budget(float("inf"), 1e-6)}, BudgetError, "needs a finite epsilon"),
        ({"budget": 1.0}, BudgetError, "budget=1.0 is no Budget"),
        ({"total": 2.0}, BudgetError, "total=2.0 is no Budget"),
        (
            {"total": Budget(2.0, 1e-6, relation=Relation.REPLACE_ONE)},
            BudgetError,
            "their costs do not add up",
        ),
        ({"after": "fit"}, InputError, "after is a str"),
        ({"split": "diagonal"}, InputError, "'diagonal' must be"),
        ({"data": people(9)}, RosterError, "one table per party"),
        ({"synthetic": people(9).take([])}, InputError, "synthetic has 0 rows"),
        ({"data": [people(9).select(["sex"])] * 2, "split": "columns"}, SchemaError, "held by"),
        ({"data": [people(9).select(["sex"])]}, SchemaError, "lacks columns"),
        (
            {"data": [people(9).select(["sex"])], "split": "columns", "queries": [("age",)]},
            InputError,
            "columns of no query",
        ),
    ],
)
def test_bad_input(change, error, words):
    arguments = {"data": [people(50)], "synthetic": people(50), "schema": ENCODER, "budget": BUDGET}
    arguments |= change
    with pytest.raises(error, match=words):
        score_parties(
            arguments.pop("data"), arguments.pop("synthetic"), arguments.pop("schema"), **arguments
        )
