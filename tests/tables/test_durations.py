"""Durations are numbers of a declared unit, and come back as durations."""

from datetime import timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.tables.databases import STAYS, check_intervals, duckdb, needs_duckdb

import siloweave as sw
from siloweave.errors import SchemaError
from siloweave.tables import Column, Encoder, Schema, read, write
from siloweave.tables.database import Database
from siloweave.tables.joining import stacked

DAYS = [timedelta(days=n % 9) for n in range(60)]
WAITS = [None if n % 10 == 0 else timedelta(seconds=30 * n + 0.25 * (n % 4)) for n in range(60)]


def frames():
    columns = {"stay": DAYS, "wait": WAITS}
    polars = pl.DataFrame(columns)
    return {"pandas": pd.DataFrame(columns), "polars": polars, "arrow": polars.to_arrow()}


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_proposal_names_the_unit(kind):
    schema = Schema.detect(frames()[kind])
    stay, wait = schema["stay"], schema["wait"]
    assert (stay.kind, stay.format, stay.low, stay.high) == ("integer", "days", 0, 8)
    assert (wait.kind, wait.format, wait.decimals) == ("continuous", "seconds", 2)
    assert wait.missing
    assert "durations, in days" in stay.why


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_drawn_rows_have_durations_again(kind):
    frame = frames()[kind]
    schema = Schema.detect(frame).declared()
    budget = sw.Budget(epsilon=5.0, delta=1e-5)
    for fit in (sw.AIM().fit(frame, schema, budget=budget), sw.GaussianCopula().fit(frame, schema)):
        drawn = fit.sample(50, seed=1)
        assert type(drawn) is type(frame)
        stays = read(drawn)
        assert stays.unit("stay") is not None
        days = Encoder(schema, 16).encode(stays).column("stay")
        assert days.max() <= 8
        values = drawn["stay"].to_pylist() if kind == "arrow" else drawn["stay"].to_list()
        assert {one % timedelta(days=1) for one in values} == {timedelta(0)}


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_durations_beside_an_id_a_constraint_and_a_condition_keep_their_unit(kind):
    columns = {
        "case": range(1, 61),
        "ward": ["a", "b"] * 30,
        "stay": DAYS,
        "fee": [30, 40] * 30,
        "until": [timedelta(days=n % 9 + 3) for n in range(60)],
    }
    frame = pl.DataFrame(columns)
    frame = {"polars": frame, "pandas": frame.to_pandas(), "arrow": frame.to_arrow()}[kind]
    schema = Schema.detect(frame).declared()
    fee = Column("fee", "integer", low=30, high=40, fallback="low")
    fees = sw.CategoryRanges("fee", "ward", (("a", 30, 30), ("b", 40, 40)))
    order = sw.Inequality("stay", "until")
    others = [column for column in schema if column.name != "fee"]
    schema = Schema((*others, fee), (fees, order))
    fit = sw.AIM().fit(frame, schema, budget=sw.Budget(epsilon=50.0, delta=1e-5))
    for drawn in (fit.sample(50, seed=1), fit.sample(50, seed=1, given={"ward": "a"})):
        stays = pl.Series(read(drawn).cells("stay"))
        assert stays.dtype == pl.Duration("us")
        assert set(stays.dt.total_days().to_list()) - {0} <= set(range(1, 9))
        assert stays.dt.total_days().max() > 1


def test_types_are_durations_in_each_frame():
    schema = Schema.detect(frames()["pandas"]).declared()
    budget = sw.Budget(epsilon=5.0, delta=1e-5)
    drawn = {k: sw.AIM().fit(f, schema, budget=budget).sample(5) for k, f in frames().items()}
    assert drawn["pandas"]["stay"].dtype.kind == "m"
    assert drawn["polars"].schema["stay"] == pl.Duration("us")
    assert pa.types.is_duration(drawn["arrow"].schema.field("stay").type)


def test_a_csv_has_numbers_of_the_unit_and_parquet_durations(tmp_path):
    schema = Schema.detect(frames()["polars"])
    for name in ("rows.csv", "rows.parquet"):
        write(frames()["polars"], tmp_path / name)
    whole = Encoder(schema, 16).encode(frames()["polars"])
    for name in ("rows.csv", "rows.parquet"):
        again = Encoder(schema, 16).encode(tmp_path / name)
        assert (again.column("stay") == whole.column("stay")).all()
        assert (again.column("wait") == whole.column("wait")).all()
    assert pl.read_parquet(tmp_path / "rows.parquet").schema["stay"] == pl.Duration("us")
    assert pl.read_csv(tmp_path / "rows.csv")["stay"].to_list() == [n % 9 for n in range(60)]


def test_the_declared_unit_counts_and_not_that_of_the_rows():
    """One duration of some seconds more makes no day of another row anything else."""
    column = Column("stay", "integer", low=0, high=8, format="days", missing=True)
    encoder = Encoder(Schema((column,)).placed(), 16)
    before = encoder.encode(pl.DataFrame({"stay": DAYS})).column("stay")
    odd = [timedelta(seconds=1), timedelta(days=-400), timedelta(microseconds=1), None]
    after = encoder.encode(pl.DataFrame({"stay": [*DAYS, *odd]})).column("stay")
    assert (after[: len(before)] == before).all()
    assert after[len(before) :].tolist() == [0, 0, 0, 9]


def test_hours_of_one_party_and_days_of_another_are_pooled():
    hours = pl.DataFrame({"stay": [timedelta(hours=5), timedelta(hours=24)]})
    pooled = stacked([read(pl.DataFrame({"stay": DAYS})), read(hours)])
    assert Schema.detect(pooled)["stay"].format == "hours"
    assert pooled.values("stay")[-2:].tolist() == [5, 24]


def test_durations_in_text_are_left_out_and_a_number_takes_a_unit():
    texts = [f"{n} days 02:03:{n:02}" for n in range(40)]
    column = Schema.detect(pl.DataFrame({"stay": texts}))["stay"]
    assert column.kind == "text"
    assert "write each as a number" in column.why
    with pytest.raises(SchemaError, match="format"):
        Column("stay", "integer", low=0, high=8, format="weeks")


def test_conditions_are_in_the_unit():
    frame = frames()["pandas"]
    schema = Schema.detect(frame).declared()
    fit = sw.AIM().fit(frame, schema, budget=sw.Budget(epsilon=5.0, delta=1e-5))
    drawn = fit.sample(5, given={"stay": 3})
    assert (drawn["stay"] == np.timedelta64(3, "D")).all()


@needs_duckdb
def test_intervals_of_duckdb_are_durations(tmp_path):
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute(f"CREATE TABLE t AS {STAYS}")
    database = Database(f"duckdb:///{tmp_path / 'a.duckdb'}", table="t")
    check_intervals(database)
    assert Schema.detect(database)["stay"].format == "seconds"
