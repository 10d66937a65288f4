"""A run that learns what its schema leaves open, on the ledger of the run itself."""

import numpy as np
import pandas as pd
import pytest

from siloweave.errors import CapacityError, InputError, SchemaError
from siloweave.methods.two_round.method import TwoRound
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import SharedGaussian
from siloweave.privacy.ledger import Ledger
from siloweave.protocols.schema import coded_part
from siloweave.tables import Column, Encoder, Schema, Table, read, write
from tests.synthesizers.families import SYNTHESIZERS
from tests.tables.databases import in_sqlite

OPEN = Schema(
    (
        Column("sex", "categorical", categories=("f", "m")),
        Column("town", "categorical", categories=("?",), other="?"),
        Column("age", "integer"),
    )
).with_fallbacks()
BUDGET = Budget(epsilon=2.0, delta=1e-5)


def tables(parties=3, number=2000):
    rng = np.random.default_rng(5)
    return [
        Table.from_columns(
            {
                "sex": (rng.choice(["f", "m"], size=number).astype(object), None),
                "town": (rng.choice(["Ulm", "Bonn"], size=number).astype(object), None),
                "age": (rng.integers(20, 80, size=number), None),
            }
        )
        for _ in range(parties)
    ]


def test_open_facts_of_rows_that_are_counted_where_they_are_are_those_of_a_table(tmp_path):
    """A Parquet file and a database; what is declared is checked before anything is paid for."""
    (table,) = tables(1)
    write(table, tmp_path / "a.parquet")
    synth = TwoRound(workload=[("sex", "town"), ("town", "age")], bins=8)
    drawn = []
    for data in (table, tmp_path / "a.parquet", in_sqlite(table, tmp_path)):
        fit = synth.fit([data], OPEN, budget=BUDGET, learn=0.2, noise="seeded")
        write(fit.sample_table(500, seed=1), tmp_path / "drawn.csv")
        drawn.append((fit.epsilon, (tmp_path / "drawn.csv").read_text()))
    assert drawn[0] == drawn[1] == drawn[2]
    narrow = Schema(
        (Column("sex", "categorical", categories=("f",), outside="refuse"), *OPEN.columns[1:])
    )
    for data in (tmp_path / "a.parquet", in_sqlite(table, tmp_path, "again")):
        with pytest.raises(SchemaError, match="column 'sex'"):
            synth.fit([data], narrow, budget=BUDGET, learn=0.2, noise="seeded", folder=tmp_path)
        assert all(not Ledger.read(file).entries for file in tmp_path.rglob("ledger.jsonl"))


@pytest.mark.parametrize("name", ["flaim", "two_round"])
def test_open_facts_are_learned_within_the_budget(name, tmp_path):
    synthesizer = SYNTHESIZERS[name](workload=[("sex", "town"), ("town", "age")], bins=8)
    fit = synthesizer.fit(tables(), OPEN, budget=BUDGET, learn=0.2, folder=tmp_path)
    town, age = (fit.model.encoder.schema[n] for n in ("town", "age"))
    assert set(town.categories) == {"?", "Ulm", "Bonn"}
    assert town.learned == ("categories",)
    assert set(age.learned) == {"low", "high"}
    assert age.low <= 20
    assert age.high >= 79
    assert all(0 < cost <= BUDGET.epsilon for cost in fit.epsilons.values())
    steps = [entry.what for entry in fit.ledgers["party-1"]]
    assert any("town" in what for what in steps)
    assert len(list(tmp_path.rglob("ledger.jsonl"))) == 3
    assert set(fit.sample_table(200, seed=0).values("town").tolist()) <= {"?", "Ulm", "Bonn"}


def test_a_run_without_a_folder_learns_too():
    fit = TwoRound(workload=[("sex", "town")]).fit(tables(), OPEN, budget=BUDGET, learn=0.2)
    assert all(len(entries) == 4 for entries in fit.ledgers.values())


def test_open_facts_need_a_share_of_the_budget():
    with pytest.raises(SchemaError, match="'age' has no declared low and high"):
        TwoRound().fit(tables(), OPEN, budget=BUDGET)
    with pytest.raises(InputError, match=r"learn=1 must be a number in \[0, 1\)"):
        TwoRound().fit(tables(), OPEN, budget=BUDGET, learn=1)


@pytest.mark.parametrize("tolerated", [1, 2])
def test_every_sum_of_a_run_tolerates_as_many(tolerated):
    two = TwoRound(workload=[("sex", "age")], tolerated=tolerated)
    fit = two.fit(tables(4), OPEN, budget=BUDGET, learn=0.3)
    for entries in fit.ledgers.values():
        sums = [e.event.tolerated for e in entries if isinstance(e.event, SharedGaussian)]
        assert len(sums) >= 3
        assert set(sums) == {tolerated}


def test_a_share_for_nothing_stays_with_the_run():
    declared = Schema((Column("sex", "categorical", categories=("f", "m")),)).with_fallbacks()
    data = [table.select(["sex"]) for table in tables()]
    one, other = (
        TwoRound(workload=[("sex",)]).fit(data, declared, budget=BUDGET, learn=share)
        for share in (0.0, 0.9)
    )
    assert one.epsilons == other.epsilons


def odd(column, values):
    one = tables()[1]
    columns = {n: (one.values(n), None) for n in one.names}
    columns[column] = (np.array(values * 1000, dtype=object), None)
    return Table.from_columns(columns)


@pytest.mark.parametrize(
    ("method", "second", "error", "said"),
    [
        ({"workload": [("sex", "twon")]}, None, SchemaError, "workload: .*'twon'"),
        ({"workload": [("sex", "age")], "max_model_mb": 1e-5}, None, CapacityError, "sex"),
        ({}, odd("sex", ["f", "x"]), SchemaError, "party 'party-2': column 'sex'"),
        ({}, odd("age", ["a", "b"]), SchemaError, "party 'party-2': column 'age'"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_learned(
    method, second, error, said, tmp_path
):
    data = [tables()[0], second or tables()[1]]
    with pytest.raises(error, match=said):
        TwoRound(**method).fit(data, OPEN.refusing(), budget=BUDGET, learn=0.2, folder=tmp_path)
    for ledger in tmp_path.rglob("ledger.jsonl"):
        assert not Ledger.read(ledger).entries


@pytest.mark.parametrize("number", [0, 1])
def test_a_schema_is_learned_beside_a_party_with_few_rows_or_none(number):
    parties = [tables()[0], tables()[0].take(range(number))]
    fit = TwoRound(workload=[("sex", "town")]).fit(parties, OPEN, budget=BUDGET, learn=0.2)
    assert set(fit.model.encoder.schema["town"].categories) == {"?", "Ulm", "Bonn"}
    assert fit.epsilon <= BUDGET.epsilon


@pytest.mark.parametrize("gap", [0, None], ids=["a value", "a gap"])
def test_categories_are_learned_as_the_declared_type_whatever_a_frames_column_is(gap):
    """In pandas one missing value makes floats of whole numbers."""
    town = Column("town", "categorical", categories=(0,), other=0, missing=True)
    frame = pd.DataFrame({"town": pd.Series([gap, *[1, 2] * 1000])})
    assert frame["town"].dtype == ("int64" if gap == 0 else "float64")
    method = TwoRound(workload=[("town",)])
    fit = method.fit([frame, frame], Schema((town,)).with_fallbacks(), budget=BUDGET, learn=0.2)
    assert fit.model.encoder.schema["town"].categories == (1, 2, 0)
    assert fit.sample(5)["town"].dtype == "Int64"


@pytest.mark.parametrize(
    ("column", "written"),
    [
        ({"kind": "continuous", "low": 2.0**-20, "high": 1.0, "format": "1.234,5"}, "0"),
        ({"kind": "continuous", "low": 2.0**-8, "high": 1.0, "decimals": 2}, "0,00"),
        ({"kind": "continuous", "low": 0.0, "high": 2.0**-6, "decimals": 2}, "0,50"),
        ({"kind": "continuous", "low": 0.0, "high": 2.0**62, "format": "1.234,5"}, "9" * 25),
        ({"kind": "integer", "low": 1, "high": 2**20 - 1, "format": "1.234"}, "-5"),
    ],
)
def test_a_row_beyond_learned_bounds_is_coded_however_it_is_written(column, written):
    """A refusal would show it, unpaid: bounds are where many rows are, and one may be beyond."""
    facts = {"format": "1.234,5", "learned": ("low", "high"), **column}
    schema = Schema((Column("x", **facts),)).with_fallbacks()
    frame = pd.DataFrame({"x": ["2", "3", "3", written]})
    codes = coded_part(read(frame), Encoder(schema, bins=4))
    assert codes.num_rows == 4


def test_a_file_of_grouped_numbers_is_read_once_where_bounds_were_learned(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n12.345,1\n12.400,2\n99.000,1\n")
    facts = {"format": "1.234", "learned": ("low", "high")}
    schema = Schema((
        Column("x", "continuous", low=0.0, high=2.0**16, **facts),
        Column("y", "integer", low=1, high=2),
    )).with_fallbacks()  # fmt: skip
    codes = coded_part(read(tmp_path / "a.csv"), Encoder(schema, bins=8))
    assert codes.column("x").tolist() == [1, 1, 7]
