"""Rows that a generator draws have the ids and types that the schema says."""

import math
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siloweave as sw
from siloweave.tables.features import Features
from siloweave.tables.schema import outline


def test_ids_run_from_1_in_raked_rows_too():
    schema = sw.Schema(
        (sw.Column("who", "id"), sw.Column("x", "integer", low=0, high=9))
    ).with_fallbacks()
    rows = {"who": (np.arange(900, 1_300), None), "x": (np.arange(400) % 10, None)}
    fitted = sw.GaussianCopula().fit(sw.Table.from_columns(rows), schema)
    for count in (20, 300):
        assert fitted.sample_table(count, seed=0).values("who").tolist() == list(
            range(1, count + 1)
        )


def test_given_rows_list_the_declared_categories_and_not_those_of_the_rows():
    schema = sw.Schema((
        sw.Column("c", "categorical", categories=("a", "b", "z")),
        sw.Column("x", "integer", low=0, high=9),
    )).with_fallbacks()  # fmt: skip
    frame = pd.DataFrame({"c": pd.Categorical(["a", "b"] * 100), "x": np.arange(200) % 10})
    fitted = sw.GaussianCopula().fit(frame, schema)
    for drawn in (fitted.sample(120, seed=0), fitted.sample(5, given={"x": 3}, seed=0)):
        assert list(drawn["c"].cat.categories) == ["a", "b", "z"]


DAYS = [date(2020, 1, 1) + timedelta(days=row % 90) for row in range(200)]
TYPED = {
    "pandas": pd.DataFrame(
        {
            "c": pd.Categorical(["a", "b"] * 100, ordered=True),
            "n": (np.arange(200) % 10).astype("int8"),
            "gaps": pd.array([1, None] * 100, dtype="Int16"),
            "x": np.linspace(0, 1, 200).astype("float32"),
            "day": DAYS,
            "paid": [Decimal(row % 7) / 4 + Decimal("0.00") for row in range(200)],
            "seen": pd.date_range("2020-01-01", periods=200, tz="Europe/Berlin"),
        }
    ),
    "polars": pl.DataFrame(
        {
            "c": pl.Series(["a", "b"] * 100, dtype=pl.Enum(["a", "b"])),
            "n": pl.Series(range(200), dtype=pl.UInt8),
            "x": pl.Series(np.linspace(0, 1, 200), dtype=pl.Float32),
            "day": DAYS,
        }
    ),
    "arrow": pa.table(
        {
            "n": pa.array(range(100), pa.int16()),
            "x": pa.array(np.linspace(0, 1, 100), pa.float32()),
            "day": pa.array(DAYS[:100], pa.date32()),
        }
    ),
}


def types_in(frame):
    """The types of a frame's columns, and of the objects in them, as text."""
    if isinstance(frame, pa.Table):
        return [str(field.type) for field in frame.schema]
    first = frame.head(1)
    return [(str(frame[name].dtype), type(first[name].to_list()[0])) for name in frame.columns]


@pytest.mark.parametrize("kind", TYPED)
def test_a_fit_that_is_read_again_draws_the_types_that_were_given(kind, tmp_path):
    frame = TYPED[kind]
    fitted = sw.GaussianCopula().fit(frame, sw.Schema.detect(frame))
    fitted.save(tmp_path / "fit")
    drawn = sw.load(tmp_path / "fit").sample(50, seed=0)
    assert types_in(drawn) == types_in(fitted.sample(50, seed=0))
    if kind != "pandas":  # which has NaN as its first value, or a number
        assert types_in(drawn) == types_in(frame)


def test_types_of_an_unknown_name_are_general_ones(tmp_path):
    frame = TYPED["pandas"][["n", "x"]]
    sw.GaussianCopula().fit(frame, sw.Schema.detect(frame)).save(tmp_path / "fit")
    file = tmp_path / "fit" / "fit.json"
    file.write_text(file.read_text().replace('"int8"', '"int7"'))
    assert sw.load(tmp_path / "fit").sample(5)["n"].dtype == np.int64


def test_no_type_of_a_frame_is_in_a_fit_with_a_guarantee(tmp_path):
    frame = TYPED["pandas"][["n", "x"]]
    fitted = sw.AIM().fit(frame, sw.Schema.detect(frame), budget=sw.Budget(8.0, 1e-5), seed=0)
    fitted.save(tmp_path / "fit")
    assert '"types":{}' in (tmp_path / "fit" / "fit.json").read_text()
    assert list(sw.load(tmp_path / "fit").sample(5).dtypes) == [np.int64, np.float64]


def test_numbers_that_are_all_missing_are_not_taken_for_whole_ones():
    schema = sw.Schema((
        sw.Column("x", "continuous", low=-3.0, high=3.0, missing=True),
        sw.Column("y", "integer", low=0, high=9),
    )).with_fallbacks()  # fmt: skip
    rows = {"x": (np.zeros(60), np.ones(60, dtype=bool)), "y": (np.arange(60) % 10, None)}
    features = Features.fit(sw.Table.from_columns(rows), schema, key=0)
    assert (features.encodings[0].column, features.encodings[0].resolution) == ("x", 0.0)


@pytest.mark.parametrize("method", [sw.AIM, sw.GaussianCopula])
def test_whole_numbers_that_name_a_row_keep_their_digits_and_type(method):
    rng = np.random.default_rng(0)
    staff = rng.permutation(np.arange(10_000, 100_000))[:200]
    frame = pd.DataFrame({"staff_id": staff, "x": np.arange(200) % 4})
    schema = sw.Schema.detect(frame)
    assert (schema["staff_id"].kind, schema["staff_id"].format) == ("id", "[1-9][0-9]{4}")
    budget = sw.Budget(math.inf if method is sw.GaussianCopula else 8.0, 1e-5)
    drawn = method().fit(frame, schema, budget=budget, seed=0).sample(150, seed=0)["staff_id"]
    assert drawn.dtype == np.int64
    assert drawn.is_unique
    assert drawn.between(10_000, 99_999).all()
    few = pd.DataFrame({"staff_id": np.arange(90, 190), "x": np.arange(100) % 4})
    assert sw.Schema.detect(few)["staff_id"].format is None  # running numbers


CSV = sw.Schema((
    sw.Column("who", "id"),
    sw.Column("day", "datetime", low="2020-01-01", high="2020-12-31", missing=True),
    sw.Column("x", "integer", low=0, high=9, missing=True),
)).with_fallbacks()  # fmt: skip


def csv(path, first):
    """Sixty rows of a CSV, of which the first row alone differs."""
    rows = [first, *(f"{i},2020-02-{i % 28 + 1:02d},{i % 10}" for i in range(1, 60))]
    path.write_text("\n".join(["who,day,x", *rows, ""]))
    return path


@pytest.mark.parametrize("method", [sw.AIM, sw.GaussianCopula, sw.TwoRound])
def test_no_row_of_a_csv_decides_the_types_of_what_is_drawn(method, tmp_path):
    firsts = {"whole": "0,2020-02-01,0", "text": "A-0,,7.0", "gone": "0,2020-02-01,"}
    drawn = {}
    for name, first in firsts.items():
        rows = csv(tmp_path / f"{name}.csv", first)
        parties = [rows] if method is sw.TwoRound else rows
        budget = sw.Budget(math.inf if method is sw.GaussianCopula else 1.0, 1e-5)
        fitted = method().fit(parties, CSV, budget=budget)
        fitted.save(tmp_path / name)
        for one in (fitted, sw.load(tmp_path / name)):
            table = one.sample_table(30, seed=0)
            drawn[name, one is fitted] = [table.kind(column) for column in CSV.names]
            assert table.values("who")[0] == "1"
            assert isinstance(table.to_native(), pd.DataFrame)
    assert set(map(tuple, drawn.values())) == {("text", "text", "whole numbers")}


@pytest.mark.parametrize("method", [sw.AIM, sw.GaussianCopula])
@pytest.mark.parametrize("missing", [False, True])
def test_days_of_whole_numbers_come_back_as_whole_numbers(method, missing, tmp_path):
    days = pd.date_range("2021-01-01", periods=80).strftime("%Y%m%d").astype("Int64").to_series()
    days.iloc[0] = pd.NA if missing else days.iloc[0]
    days = days.reset_index(drop=True).astype("Int64" if missing else "int64")
    frame = pd.DataFrame({"day": days, "x": np.arange(80) % 4})
    schema = sw.Schema((
        sw.Column("day", "datetime", low="2021-01-01", high="2021-12-31", missing=missing,
                  format="%Y%m%d"),
        sw.Column("x", "integer", low=0, high=3),
    )).with_fallbacks()  # fmt: skip
    budget = sw.Budget(math.inf if method is sw.GaussianCopula else 8.0, 1e-5)
    fitted = method().fit(frame, schema, budget=budget, seed=0)
    drawn = fitted.sample(60, seed=0)
    assert drawn["day"].dtype == frame["day"].dtype
    assert drawn["day"].dropna().between(20210101, 20211231).all()
    assert set(fitted.sample(5, seed=0, given={"day": 20210304})["day"]) == {20210304}
    frame.to_csv(tmp_path / "days.csv", index=False)  # where all is text
    text = method().fit(tmp_path / "days.csv", schema, budget=budget).sample_table(5)
    assert text.kind("day") == "text"


def test_an_outline_keeps_what_a_frame_declares():
    frame = pd.DataFrame({"who": [1, 2], "day": pd.to_datetime(["2020-01-01", None])})
    empty = outline(sw.read(frame))
    assert (empty.num_rows, empty.kind("who"), empty.kind("day")) == (
        0,
        "whole numbers",
        "datetimes",
    )
    assert empty.to_native().dtypes.equals(frame.dtypes)
