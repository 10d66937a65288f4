"""What parties say of a synthetic table."""

import numpy as np
import pytest

from siloweave.algorithms.running import Job
from siloweave.algorithms.score import pooled, score_parties
from siloweave.algorithms.secure_sum import PARTY
from siloweave.errors import BudgetError, InputError, RosterError, SchemaError
from siloweave.evaluate import workload_error
from siloweave.federation import InProcess, MemoryStore, Parties, Site
from siloweave.privacy import Budget, Ledger, OSEntropy, Relation
from siloweave.tables import Column, Encoder, Schema, Table

SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m")),
        Column("town", "categorical", categories=("Ulm", "Bonn", "Jena")),
        Column("age", "integer", low=0, high=99),
    )
)
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


def roster(parts, budget=BUDGET):
    sites = {
        name: Site(name, ENCODER.encode(part), ledger=Ledger(name, limit=budget),
                   entropy=OSEntropy(), store=MemoryStore())
        for name, part in parts.items()
    }  # fmt: skip
    return Parties(tuple(sites), InProcess(sites, PARTY), run="score")


def test_pooled_rows_are_one_table():
    parts = {"a": people(5000, 1, share=0.0), "b": people(5000, 2, share=1.0)}
    judged = people(10_000, 3)
    apart = score_parties(parts, judged, ENCODER, budget=BUDGET, queries=QUERIES)
    together, noise = pooled(roster(parts), ENCODER.encode(judged), QUERIES, rho=0.02, unit=1.0)
    assert apart.error > 0.5
    assert noise < together + 0.01 < noise + 0.1


def test_a_score_is_charged_and_stays_within_the_budget(tmp_path):
    parts = {"a": people(100, 1), "b": people(100, 2)}
    job = Job(BUDGET, folder=tmp_path, run="score")
    first = score_parties(parts, people(100, 3), ENCODER, budget=BUDGET, job=job)
    again = score_parties(parts, people(100, 3), ENCODER, budget=BUDGET, job=job)
    assert again.parties == first.parties  # asked again: the stored answer, nothing paid twice
    assert [len(events) for events in again.ledgers.values()] == [2, 2]
    other = Job(BUDGET, folder=tmp_path, run="another")
    with pytest.raises(BudgetError, match="already spent"):
        score_parties(parts, people(100, 4), ENCODER, budget=BUDGET, job=other)


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
    given = {"data": [people(50)], "synthetic": people(50), "schema": ENCODER, "budget": BUDGET}
    given |= change
    with pytest.raises(error, match=words):
        score_parties(given.pop("data"), given.pop("synthetic"), given.pop("schema"), **given)
