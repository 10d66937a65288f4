"""The properties that every synthesizer shares; a new one gets these tests by being listed."""

from contextlib import suppress

import numpy as np
import pandas as pd
import polars as pl
import pytest

from siloweave.core.fit import key_for
from siloweave.core.party import parties_of as tables_of
from siloweave.errors import BudgetError, DataError, InputError, RosterError, SchemaError
from siloweave.methods.registry import METHODS, load
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.ledger import Ledger
from siloweave.tables import Column, Schema
from tests.synthesizers.cases import (
    BUDGET,
    ROWS,
    SCHEMA,
    WORKLOAD,
    fit,
    info_of,
    pandas_frame,
    parties_of,
    polars_frame,
    seeded,
)
from tests.synthesizers.families import SYNTHESIZERS
from tests.synthesizers.properties import (
    BY_SCHEMA,
    NAMED,
    check_like_the_frame,
    every_fault,
    spoilt,
)

pytestmark = pytest.mark.parametrize("name", SYNTHESIZERS)


@pytest.fixture(autouse=True)
def registered(name, monkeypatch):
    """The method of CONTRIBUTING is in the registry while a test of it runs."""
    monkeypatch.setitem(METHODS, name, SYNTHESIZERS[name])


def simple(*columns, **values):
    return Schema(columns).with_fallbacks(), pd.DataFrame(values)


# Rows out are like rows in


def test_pandas_gives_pandas_of_the_schemas_types(name):
    sample = seeded(name).sample(300, seed=0)
    assert isinstance(sample, pd.DataFrame)
    check_like_the_frame(sample, 300, dtypes=BY_SCHEMA)
    for column in SCHEMA.columns:
        assert bool(sample[column.name].isna().any()) is column.missing, column.name


def test_polars_gives_polars_of_the_schemas_types(name):
    frame = polars_frame()  # whose visits are Int16
    sample = seeded(name, parties_of(name, frame)).sample(300, seed=0)
    assert isinstance(sample, pl.DataFrame)
    types = {**frame.schema, "visits": pl.Int64, "seen": pl.Datetime("us")}
    assert sample.schema == types
    for column in SCHEMA.columns:
        assert bool(sample[column.name].null_count()) is column.missing, column.name


def test_a_sample_has_as_many_rows_as_were_asked_for(name):
    fitted = fit(name)
    assert 0 < len(fitted.sample(seed=0)) < 10 * ROWS  # the number of rows is an estimate
    for rows in (0, 1, 7):
        sample = fitted.sample(rows, seed=0)
        assert len(sample) == rows
        assert list(sample.columns) == list(SCHEMA.names)


def test_integers_stay_integers(name):
    schema, frame = simple(
        Column("few", "integer", low=0, high=3),
        Column("many", "integer", low=-1000, high=100_000),
        few=np.arange(ROWS) % 4,
        many=np.arange(ROWS) * 1000 - 1000,
    )
    workload = [("few", "many")]
    sample = fit(name, parties_of(name, frame), schema=schema, workload=workload).sample(
        100, seed=0
    )
    assert [sample[c].dtype.kind for c in ("few", "many")] == ["i", "i"]
    assert set(sample["few"]) <= {0, 1, 2, 3}
    assert sample["many"].between(-1000, 100_000).all()
    assert sample["many"].nunique() > 20  # drawn inside the bins, not their middle


def test_samples_follow_the_data_when_the_budget_allows(name):
    """Not a benchmark: a column that is all one value, and one that equals another."""
    schema, frame = simple(
        Column("a", "categorical", categories=("x", "y")),
        Column("b", "categorical", categories=("x", "y")),
        Column("c", "categorical", categories=("x", "y")),
        a=["x", "y"] * 500,
        b=["x", "y"] * 500,
        c=["x"] * 1000,
    )
    generous = Budget(epsilon=30.0, delta=1e-5)
    workload = [("a", "b"), ("c",)]
    data = parties_of(name, frame)
    sample = fit(name, data, schema=schema, workload=workload, budget=generous).sample(1000, seed=0)
    assert (sample["a"] == sample["b"]).mean() > 0.9
    assert (sample["c"] == "x").mean() > 0.9
    assert 0.3 < (sample["a"] == "x").mean() < 0.7


# Seeds


def test_the_same_seed_gives_the_same_rows_and_is_not_private(name, tmp_path):
    first, second = seeded(name), seeded(name)
    pd.testing.assert_frame_equal(first.sample(50, seed=0), second.sample(50, seed=0))
    assert first.private is second.private is False
    first.save(tmp_path)
    assert load(tmp_path).private is False


def test_another_seed_gives_other_rows(name):
    one, other = seeded(name, seed=0), seeded(name, seed=1)
    assert not one.sample(50, seed=0).equals(other.sample(50, seed=0))
    fitted = fit(name)
    assert not fitted.sample(50, seed=0).equals(fitted.sample(50, seed=1))
    pd.testing.assert_frame_equal(fitted.sample(50, seed=1), fitted.sample(50, seed=1))


def test_two_calls_without_a_seed_draw_different_rows(name):
    fitted = seeded(name)
    assert not fitted.sample(50).equals(fitted.sample(50))
    once, twice = (fitted.sample(50, given={"sex": "f"}) for _ in range(2))
    assert not once.equals(twice)
    one, other = (fitted.model.codes(50, key_for(None)).columns[0] for _ in range(2))
    assert not (one == other).all()


def test_real_noise_does_not_come_from_the_seed(name):
    one, other = fit(name, seed=5), fit(name, seed=5)
    assert one.private is other.private is (one.info.guarantee == "dp")
    assert not one.sample(50, seed=0).equals(other.sample(50, seed=0))


# Odd tables


def test_a_column_with_one_category(name):
    schema, frame = simple(
        Column("only", "categorical", categories=("x",)),
        Column("sex", "categorical", categories=("f", "m")),
        only=["x"] * ROWS,
        sex=["f", "m"] * (ROWS // 2),
    )
    workload = [("only", "sex")]
    fitted = fit(name, parties_of(name, frame), schema=schema, workload=workload)
    sample = fitted.sample(30, seed=0)
    assert set(sample["only"]) == {"x"}
    assert set(sample["sex"]) <= {"f", "m"}


def test_one_row_per_party(name):
    frame = pandas_frame(3)
    fitted = fit(name, parties_of(name, frame[: 2 if info_of(name).split == "rows" else 1], 2))
    assert len(fitted.sample(20, seed=0)) == 20
    assert fitted.epsilon <= BUDGET.epsilon


def test_a_party_alone(name):
    frame = pandas_frame()
    data = frame if info_of(name).split == "central" else [frame]
    fitted = fit(name, data)
    assert len(fitted.ledgers) == 1
    assert len(fitted.sample(20, seed=0)) == 20


def test_a_wide_categorical_goes_through_other(name):
    """900 places of which the schema names three; the fourth stands for the rest."""
    frame = pandas_frame()
    rng = np.random.default_rng(1)
    frame["town"] = [f"village {i}" if i < 900 else "Ulm" for i in rng.integers(0, 1800, ROWS)]
    sample = fit(name, parties_of(name, frame)).sample(500, seed=0)
    assert set(sample["town"]) <= {"Ulm", "Bonn", "Jena", "elsewhere"}
    assert (sample["town"] == "elsewhere").mean() > 0.1


def test_a_column_that_is_all_missing(name):
    frame = pandas_frame()
    frame["pay"] = np.nan
    sample = fit(name, parties_of(name, frame), budget=Budget(epsilon=30.0, delta=1e-5)).sample(
        200, seed=0
    )
    assert sample["pay"].isna().mean() > 0.5


# Errors: what was given, and nothing was released


def test_an_unseen_category_names_the_column(name):
    frame = pandas_frame()
    frame.loc[3, "sex"] = "unheard of"
    with pytest.raises((DataError, SchemaError), match="column 'sex'") as caught:
        fit(name, parties_of(name, frame), schema=SCHEMA.refusing())
    assert "unheard of" not in str(caught.value), "a value of a row is in the message"


def test_an_unseen_category_is_moved_and_its_owner_is_told(name):
    """Under a guarantee no row may decide whether there is a run."""
    frame = pandas_frame()
    frame.loc[3, "sex"] = "unheard of"
    with pytest.warns(UserWarning, match="were moved .*: 1 in 'sex'") as noted:
        fit(name, parties_of(name, frame))
    assert not any("unheard of" in str(one.message) for one in noted)


@every_fault
def test_rows_that_do_not_fit_the_schema_are_refused(name, fault):
    if fault == "empty":
        pytest.skip("no number of rows is refused under a guarantee, see test_neighbours.py")
    frame = spoilt(fault)
    rows = info_of(name).split == "rows"
    data = [pandas_frame(), frame] if rows else parties_of(name, frame)
    with pytest.raises(InputError, match=NAMED[fault]):
        fit(name, data, schema=SCHEMA.refusing())


def test_a_workload_of_unknown_columns_is_refused(name):
    with pytest.raises(SchemaError, match="no attribute 'shoe size'"):
        fit(name, workload=[("sex", "shoe size")])


def test_no_parties_or_wrong_names_are_refused(name):
    if info_of(name).split == "central":
        pytest.skip("one table has one curator")
    with pytest.raises(RosterError, match="data has no party"):
        fit(name, [])
    with pytest.raises(RosterError, match="names has 2 entries for 3 tables"):
        fit(name, names=["a", "b"])
    method, frame = METHODS[name].method, pandas_frame()
    if method.split == "rows":
        assert tables_of(method, frame, None) == {"party-1": frame}
        assert tables_of(method, "rows.csv", ["clinic"]) == {"clinic": "rows.csv"}
    else:
        with pytest.raises(RosterError, match=r"one table per party.*split_columns"):
            fit(name, frame)


# What is kept


def test_a_saved_fit_samples_the_same(name, tmp_path):
    fitted = fit(name)
    fitted.save(tmp_path / "fit")
    again = load(tmp_path / "fit")
    for a, b in zip(
        fitted.model.codes(100, 3).columns,
        again.model.codes(100, 3).columns,
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    one, other = (f.sample_table(100, seed=3) for f in (fitted, again))
    assert one.names == other.names
    for column in SCHEMA.columns:
        left, right = (t.to_native()[column.name] for t in (one, other))
        assert left.isna().tolist() == right.isna().tolist()
        kept = ~left.isna()
        assert left[kept].astype(str).tolist() == right[kept].astype(str).tolist()
    assert again.epsilons == fitted.epsilons
    assert again.ledgers == fitted.ledgers
    assert (again.info, again.budget, again.private) == (fitted.info, fitted.budget, True)
    assert again.model.measured == tuple(fitted.model.measured)


def test_a_saved_fit_that_was_damaged_is_refused(name, tmp_path):
    fit(name).save(tmp_path)
    for file in sorted(tmp_path.iterdir()):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
        with pytest.raises(InputError):
            load(tmp_path)
        file.unlink()
        with pytest.raises(InputError):
            load(tmp_path)
        file.write_bytes(data)
    assert load(tmp_path).epsilon <= BUDGET.epsilon


def test_columns_can_be_fixed(name):
    fitted = fit(name)
    fixed = np.full(40, SCHEMA["sex"].categories.index("m"), dtype=np.int64)
    codes = fitted.model.mrf.sample_given({"sex": fixed}, key=0)
    assert codes.num_rows == 40
    assert codes.domain == fitted.model.encoder.domain
    assert (codes.column("sex") == fixed).all()
    again = fitted.model.mrf.sample_given({"sex": fixed}, key=0)
    assert all((a == b).all() for a, b in zip(codes.columns, again.columns, strict=True))
    table = fitted.model.encoder.decode(codes, key=0)
    assert set(table.to_native()["sex"]) == {"m"}


# Privacy


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("epsilon", [0.3, 4.0, 30.0])
def test_no_ledger_passes_the_budget(name, epsilon, relation):
    budget = Budget(epsilon=epsilon, delta=1e-6, relation=relation)
    fitted = fit(name, budget=budget)
    assert 0 < fitted.epsilon <= epsilon
    if info_of(name).split == "columns":  # a row lies at all parties
        assert max(fitted.epsilons.values()) <= fitted.epsilon <= sum(fitted.epsilons.values())
    else:
        assert fitted.epsilon == max(fitted.epsilons.values())
    assert fitted.epsilon > 0.3 * epsilon, "a budget that is hardly used"
    assert all(fitted.ledgers.values())


def test_a_spent_budget_stops_a_run_before_it_writes(name, tmp_path):
    spent = fit(name, folder=tmp_path, run="first").epsilon
    paths = sorted(tmp_path.glob("parties/*/ledger.jsonl"))
    before = [path.read_bytes() for path in paths]
    assert spent > 0.8 * BUDGET.epsilon
    for budget in (BUDGET, Budget(epsilon=1.02 * BUDGET.epsilon, delta=BUDGET.delta)):
        with pytest.raises(BudgetError, match="Nothing was released"):
            fit(name, folder=tmp_path, run=f"at {budget.epsilon}", budget=budget)
        assert [path.read_bytes() for path in paths] == before
    assert not list(tmp_path.glob("**/*.safetensors"))


def test_what_earlier_runs_spent_counts(name, tmp_path):
    """A second run may be stopped or make do with what is left; the total holds either way."""
    fit(name, folder=tmp_path, run="first", budget=Budget(epsilon=1.0, delta=1e-5))
    paths = sorted(tmp_path.glob("parties/*/ledger.jsonl"))
    before = [Ledger.read(path).events for path in paths]
    with suppress(BudgetError):
        fit(name, folder=tmp_path, run="second", budget=Budget(epsilon=3.0, delta=1e-5))
    for path, events in zip(paths, before, strict=True):
        ledger = Ledger.read(path)
        assert ledger.events[: len(events)] == events
        assert 0.3 < ledger.epsilon(1e-5) <= 3.0


def test_settings_and_statement_are_told(name):
    fitted = fit(name)
    assert fitted.info == SYNTHESIZERS[name]().info
    assert fitted.info.guarantee in ("dp", "partial", "refuted", "none")
    assert fitted.info.trust in ("curator", "secure-sum", "mpc", "local")
    assert fitted.info.paper
    assert fitted.info.statement
    assert fitted.settings["bins"] == 5
    assert fitted.settings["queries"] == len(WORKLOAD)
    assert fitted.cost.rounds > 0
    assert all(t.bytes_from_party > 0 for t in fitted.cost.parties.values())
