"""How fine a column's times are is its own fact, and so is their time zone."""

import warnings

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siloweave as sw
from siloweave.errors import SchemaError
from siloweave.tables import Column, Schema, read, write
from siloweave.tables.bins import as_datetimes, last_of, step_of
from siloweave.tables.cells import placed_cells
from siloweave.tables.moved import moved_cells
from siloweave.tables.schema import outline
from siloweave.tables.table import Table

DAY = 86_400_000_000
DATES = {"low": "2022-01-01", "high": "2023-12-31"}
ROWS = 400


def rng():
    return np.random.default_rng(0)


def more(high, unit):
    return pd.to_timedelta(rng().integers(0, high, ROWS), unit=unit)


def hours(rows=ROWS):
    """Shifts that begin at 6, 14 and 22, all the year."""
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng().integers(0, 365, rows), unit="D")
    return days + pd.to_timedelta(rng().choice([6, 14, 22], rows), unit="h")


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        ({}, DAY),
        ({"format": "%d.%m.%Y"}, DAY),
        ({"format": "%-d.%-m.%Y %-H:%M"}, DAY // 1440),
        ({"format": "%Y-%m-%d %H:%M:%S"}, 1_000_000),
        ({"format": "%d/%m/%Y %I:%M %p"}, DAY // 1440),
        ({"format": "%Y-%m-%dT%H:%M:%S.%f"}, 1),
        ({"format": "%Y-%m-%d %H:%M", "resolution": "hour"}, DAY // 24),
        ({"resolution": "15 minutes"}, DAY // 96),
        ({"resolution": "millisecond"}, 1_000),
    ],
)
def test_bounds_that_are_days_leave_the_resolution_alone(facts, step):
    assert step_of(Column("x", "datetime", **facts, **DATES)) == step


def test_public_bounds_that_are_days_include_the_last_day_and_keep_times():
    times = ["2022-01-01 00:07", "2023-12-31 23:59", "2022-06-01 10:27"]
    table = read(pl.DataFrame({"x": times}))
    facts = {"format": "%Y-%m-%d %H:%M", "outside": "move", "fallback": "low"}
    column = Column("x", "datetime", **facts, **DATES)
    cells = placed_cells(column, table)
    assert not cells.moved.any()
    assert as_datetimes(column, cells.values, table).tolist() == times
    assert cells.values[1] == last_of(column)
    late = Column("x", "datetime", **DATES, resolution="hour", fallback="2023-12-31T23:00:00")
    assert late.fallback == "2023-12-31T23:00:00"


def test_times_of_day_in_days_that_nobody_declared_are_named():
    table = read(pl.DataFrame({"x": pl.Series(["2022-03-01T10:27:00"]).str.to_datetime()}))
    column = Column("x", "datetime", **DATES)
    with pytest.raises(SchemaError, match="1 row has a time of day"):
        placed_cells(column, table)
    moving = Column("x", "datetime", **DATES, outside="move", fallback="low")
    assert moved_cells(table, Schema((moving,))) == {"x": 1}
    days = Column("x", "datetime", **DATES, resolution="day", outside="move", fallback="low")
    assert moved_cells(table, Schema((days,))) == {}


def test_a_fit_under_a_guarantee_says_that_times_of_day_are_lost_and_how_to_have_them():
    frame = pd.DataFrame({"x": hours(), "y": rng().integers(0, 3, ROWS)})
    number = Column("y", "integer", low=0, high=2, missing=True)
    budget = sw.Budget(epsilon=4.0, delta=1e-6)
    column = Column("x", "datetime", low="2021-01-01", high="2021-12-31", missing=True)
    with pytest.warns(UserWarning, match="time of day in x becomes midnight.*'minute', or 'day'"):
        sw.AIM().fit(frame, Schema((column, number)), budget=budget)
    for resolution in ("day", "hour"):
        fine = msgspec.structs.replace(column, resolution=resolution)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            sw.AIM().fit(frame, Schema((fine, number)), budget=budget)


def test_a_column_of_which_most_cells_cannot_be_read_is_named_with_a_count():
    frame = pd.DataFrame({"x": ["02.01.2022 18:00"] * 30 + [None] * 10, "y": [*range(39), -1]})
    facts = {"missing": True, "outside": "move", "resolution": "minute"}
    number = Column("y", "integer", low=0, high=99, outside="move", fallback="low")
    schema = Schema((Column("x", "datetime", **DATES, **facts), number))
    with pytest.warns(UserWarning, match="30 in 'x', 1 in 'y'") as noted:
        sw.GaussianCopula().fit(frame, schema)
    (note,) = [str(warning.message) for warning in noted]
    assert "Most rows have no place in 'x' (30 of 40 rows; declared datetime without a form" in note
    assert "'y' (" not in note


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"kind": "datetime", "resolution": "week"}, "resolution='week' is unknown"),
        ({"kind": "integer", "resolution": "day"}, "takes no resolution"),
        ({"kind": "integer", "zone": "UTC"}, "takes no zone"),
        ({"kind": "datetime", "zone": "Europe/Nowhere"}, "no time zone"),
        (
            {"kind": "datetime", "resolution": "second", "format": "%H:%M"},
            "is finer than '%H:%M' writes; use 'minute'",
        ),
    ],
)
def test_a_resolution_or_zone_that_is_none_is_refused(facts, words):
    with pytest.raises(SchemaError, match=words):
        Column("x", **facts)


@pytest.mark.parametrize(
    ("times", "resolution", "words"),
    [
        (hours(), "hour", "all on whole hours"),
        (hours() + pd.Timedelta("5min"), "5 minutes", "multiples of 5 minutes"),
        (hours() + 15 * more(4, "min"), "15 minutes", "15"),
        (hours() + more(3600, "s"), "second", "datetimes"),
        (hours() + more(10**6, "ms"), "millisecond", ""),
        (hours().normalize(), None, "datetimes"),
        (hours(1), "second", "datetimes"),  # by chance
    ],
)
def test_how_fine_the_times_of_a_frame_are_is_written_down(times, resolution, words):
    column = Schema.detect(pd.DataFrame({"x": times}))["x"]
    assert column.resolution == resolution
    assert ("resolution" in column.from_data) == (resolution is not None)
    assert words in column.why


@pytest.mark.parametrize(
    ("form", "times", "resolution"),
    [
        ("%Y-%m-%d %H:%M", hours(), "hour"),
        ("%Y-%m-%d %H:%M", hours() + more(60, "min"), None),
        ("%Y-%m-%d %H:%M:%S", hours().normalize(), "day"),
        ("%d.%m.%Y", hours(), None),
        ("%H:%M", hours(), "hour"),
    ],
)
def test_how_fine_written_times_are_is_written_down_where_their_format_does_not_say_it(
    form, times, resolution
):
    column = Schema.detect(pl.DataFrame({"x": times.strftime(form).tolist()}))["x"]
    assert (column.format, column.resolution) == (form, resolution)


def zoned(kind, zone="Europe/Berlin"):
    frame = pl.DataFrame({"x": hours(), "y": rng().integers(0, 3, ROWS)})
    frame = frame.with_columns(pl.col("x").dt.replace_time_zone(zone))
    if kind == "polars":
        return frame
    return frame.to_arrow() if kind == "arrow" else frame.to_arrow().to_pandas()


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_times_of_a_zone_come_back_in_it_under_a_guarantee(kind):
    frame = zoned(kind)
    schema = Schema.detect(frame)
    assert (schema["x"].zone, schema["x"].resolution) == ("Europe/Berlin", "hour")
    assert "time zone Europe/Berlin" in schema["x"].why
    fitted = sw.AIM().fit(frame, schema, budget=sw.Budget(epsilon=4.0, delta=1e-6))
    drawn = fitted.sample(50, seed=0)
    found = {"pandas": lambda: drawn["x"].dt.tz, "polars": lambda: drawn["x"].dtype.time_zone,
             "arrow": lambda: drawn["x"].type.tz}[kind]()  # fmt: skip
    assert str(found) == "Europe/Berlin"
    local = pl.DataFrame(drawn)["x"]
    assert (local.dt.minute() == 0).all()
    assert local.dt.hour().n_unique() > 1


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_an_outline_has_the_zones_of_the_schema(kind):
    like = outline(read(zoned(kind)), Schema((Column("x", "datetime", zone="Asia/Tokyo"),)))
    when = np.array(["2024-01-01T00:00"], dtype="datetime64[us]")
    made = Table.from_columns({"x": (when, None)}, like).to_native()
    assert pl.DataFrame(made)["x"].dt.to_string("%H:%M").to_list() == ["09:00"]


def test_a_zone_that_is_an_offset_comes_back_too(tmp_path):
    times = pd.DataFrame({"x": hours().tz_localize("+05:30")})
    assert Schema.detect(times)["x"].zone == "+05:30"
    like = outline(read(times), Schema((Column("x", "datetime", zone="+05:30"),)))
    when = np.array(["2024-01-01T00:00"], dtype="datetime64[us]")
    made = Table.from_columns({"x": (when, None)}, like)
    assert str(made.to_native()["x"][0]) == "2024-01-01 05:30:00+05:30"
    write(made, tmp_path / "x.csv")
    assert "2024-01-01T05:30:00+05:30" in (tmp_path / "x.csv").read_text()


def test_a_csv_has_no_more_of_a_time_than_a_column_has(tmp_path):
    texts = {
        "day": ["2024-01-31", None],
        "minute": ["2024-01-31T06:00", "2024-02-01T06:15"],
        "fraction": ["2024-01-31T06:00", "2024-02-01T06:15:00.5"],
    }
    times = {name: np.array(values, dtype="datetime64[us]") for name, values in texts.items()}
    write(read(pl.DataFrame(times)), tmp_path / "x.csv")
    first, second = (tmp_path / "x.csv").read_text().splitlines()[1:]
    assert first == "2024-01-31,2024-01-31T06:00:00,2024-01-31T06:00:00.000000"
    assert second == ",2024-02-01T06:15:00,2024-02-01T06:15:00.500000"


def test_files_keep_the_zone_of_times(tmp_path):
    table = read(zoned("polars"))
    for name in ("x.csv", "x.parquet"):
        write(table, tmp_path / name)
    first = (tmp_path / "x.csv").read_text().splitlines()[1]
    assert first.split(",")[0].endswith(("+01:00", "+02:00"))
    again = read(tmp_path / "x.parquet")
    assert again.zone("x") == "Europe/Berlin"
    assert Schema.detect(again)["x"].zone == "Europe/Berlin"
    assert again.to_native()["x"].dtype.tz is not None
    offsets = Schema.detect(read(tmp_path / "x.csv"))["x"]
    assert offsets.format == "%Y-%m-%dT%H:%M:%S%z"
    assert "drawn in UTC" in offsets.why
    assert pa.table(read(zoned("arrow")).to_native())["x"].type.tz == "Europe/Berlin"
