"""Times of digits alone, as HL7 has them, and whole numbers that came as floats."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

from siloweave.tables import Encoder, Schema, read

ROWS = 300
FIRST = datetime.fromisoformat("2022-08-01")


def times(seed=0):
    random = np.random.default_rng(seed)
    steps = random.integers(0, 360 * 86_400_000, ROWS)
    return [FIRST + timedelta(milliseconds=int(step)) for step in steps]


def written(form):
    """Times in a form; 3f is a fraction of three digits."""
    texts = []
    for when in times():
        text = when.strftime(form.replace("3f", "{:03d}"))
        texts.append(text.format(when.microsecond // 1000))
    return texts


FORMS = [
    ("%Y%m%d%H%M", "%Y%m%d%H%M"),
    ("%Y%m%d%H%M%S", "%Y%m%d%H%M%S"),
    ("%Y%m%d%H%M%S3f", "%Y%m%d%H%M%S%f"),
    ("%Y%m%d%H%M%S.3f", "%Y%m%d%H%M%S.%f"),
    ("%Y%m%d%H%M%S3f000", "%Y%m%d%H%M%S%f000"),
    ("%Y%m%d%H%M%S000", "%Y%m%d%H%M%S000"),
    ("%Y%m%d%H%M+0000", "%Y%m%d%H%M%z"),
    ("%Y%m%d%H%M%S.3f+0000", "%Y%m%d%H%M%S.%f%z"),
]


@pytest.mark.parametrize("source", ["csv", "frame", "numbers"])
@pytest.mark.parametrize(("form", "found"), FORMS)
def test_times_of_digits_are_datetimes_and_are_written_back_so(tmp_path, form, found, source):
    texts = written(form)
    if source == "csv":
        (tmp_path / "a.csv").write_text("x\n" + "".join(f"{text}\n" for text in texts))
        table = read(tmp_path / "a.csv")
    elif source == "frame":
        table = read(pl.DataFrame({"x": texts}))
    elif len(texts[0]) < 19 and texts[0].isdecimal():
        table = read(pl.DataFrame({"x": [int(text) for text in texts]}))
    else:
        return
    schema = Schema.detect(table)
    assert (schema["x"].kind, schema["x"].format) == ("datetime", found)
    encoder = Encoder(schema, 10**6)
    like = table.without_rows()
    drawn = encoder.decode(encoder.encode(table), key=0, like=like).values("x").tolist()
    assert {len(str(value)) for value in drawn} == {len(texts[0])}
    real = {len(text) for text in texts} == {len(texts[0])}
    assert real
    again = read(pl.DataFrame({"x": list(map(str, drawn))})).times("x", found)
    assert again.null_count() == 0
    assert again.min() >= FIRST
    assert again.dt.hour().n_unique() > 20


def test_a_fraction_that_some_lack_is_read_too():
    texts = [text.removesuffix(".000") for text in written("%Y%m%d%H%M%S.3f")]
    texts[5] = texts[5][:14]
    column = Schema.detect(pl.DataFrame({"x": texts}))["x"]
    assert (column.format, column.resolution) == ("%Y%m%d%H%M%S.%f", "millisecond")


def test_times_of_several_lengths_are_named_and_not_modelled():
    texts = written("%Y%m%d%H%M%S")[:200] + written("%Y%m%d%H%M")[200:]
    column = Schema.detect(pl.DataFrame({"x": texts}))["x"]
    assert column.kind == "text"
    assert "(%Y%m%d%H%M) or 20240131180500 (%Y%m%d%H%M%S): not modelled until all" in column.why


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("x", [f"20220315{n:04d}" for n in range(60)]),  # a day's records
        ("case_id", written("%Y%m%d%H%M")),
        ("x", [str(1_000_000_000_000 + 7 * n * n) for n in range(ROWS)]),
        ("x", [f"20221{n % 10}9912{n % 60:02d}" for n in range(ROWS)]),
        ("x", [f"4012{n:08d}" for n in range(ROWS)]),
    ],
)
def test_other_long_numbers_are_no_times(name, texts):
    numbers = [int(text) for text in texts]
    assert Schema.detect(pl.DataFrame({name: numbers}))[name].kind != "datetime"


def dates(gap=3):
    random = np.random.default_rng(2)
    days = 20200000 + random.integers(1, 13, ROWS) * 100 + random.integers(1, 29, ROWS)
    floats = days.astype(float)
    floats[gap] = np.nan
    return floats


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "csv", "parquet"])
def test_whole_dates_that_are_floats_are_dates_and_stay_what_they_were(tmp_path, kind):
    frame = pd.DataFrame({"day": dates(), "x": np.arange(ROWS) % 5})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    source = {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "arrow": pl.from_pandas(frame).to_arrow(),
        "csv": tmp_path / "a.csv",
        "parquet": tmp_path / "a.parquet",
    }[kind]
    table = read(source)
    schema = Schema.detect(table)
    column = schema["day"]
    assert (column.kind, column.format, column.missing) == ("datetime", "%Y%m%d", True)
    encoder = Encoder(schema, 10**4)
    drawn = encoder.decode(encoder.encode(table), key=0, like=table.without_rows())
    there = ~drawn.missing("day")
    assert there.sum() == ROWS - 1
    days = [str(value).removesuffix(".0") for value in drawn.values("day")[there]]
    assert days == [f"{value:.0f}" for value in dates() if value == value]
    if kind == "pandas":
        assert drawn.to_native()["day"].dtype == np.float64


def test_a_whole_number_that_no_text_of_digits_shows_is_no_date(tmp_path):
    text = "".join(f"{value:.7E}\n" for value in dates() if value == value)
    (tmp_path / "a.csv").write_text("day\n" + text)
    assert Schema.detect(read(tmp_path / "a.csv"))["day"].kind == "integer"


@pytest.mark.parametrize("name", ["patient_id", "x"])
@pytest.mark.parametrize("first", [1, 0, 100_000])
def test_numbers_of_rows_that_came_as_floats_are_ids(name, first):
    shuffled = np.random.default_rng(0).permutation(ROWS) + float(first)
    gaps = np.unique(np.random.default_rng(0).choice(3 * ROWS, ROWS)) + float(first)
    for values in (shuffled, np.sort(shuffled), gaps):
        floats = Schema.detect(pd.DataFrame({name: values}))[name]
        whole = Schema.detect(pd.DataFrame({name: values.astype(int)}))[name]
        assert (floats.kind, floats.format) == (whole.kind, whole.format)
        assert floats.kind == "id"


def day(year, month, number, form):
    parts = {"%Y": f"{year:04d}", "%m": f"{month:02d}", "%d": f"{number:02d}"}
    for code, text in parts.items():
        form = form.replace(code, text)
    return form


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y%m%d", "%d.%m.%Y"])
def test_years_that_are_typing_errors_are_named(form):
    born = [day(1930 + n % 80, n % 12 + 1, n % 28 + 1, form) for n in range(ROWS)]
    odd = [day(198, 3, 8, form), day(1555, 4, 21, form)]
    column = Schema.detect(pl.DataFrame({"born": [*born[:3], odd[0], *born[3:], odd[1]]}))["born"]
    assert (column.kind, column.low) == ("datetime", "0198-03-08")
    assert f"years away from all other dates: {odd[0]!r} and {odd[1]!r}; correct" in column.why
    assert "years away" not in Schema.detect(pl.DataFrame({"born": born}))["born"].why


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y%m%d", "%d.%m.%Y"])
def test_years_that_are_typing_errors_are_named_where_one_lies_between_another_and_the_rest(form):
    dates = [datetime.fromisoformat("1950-01-01") + timedelta(61 * n) for n in range(ROWS)]
    born = [day(date.year, date.month, date.day, form) for date in dates]
    odd = [day(1555, 3, 8, form), day(1656, 4, 21, form), day(1752, 3, 4, form)]
    column = Schema.detect(pl.DataFrame({"born": [*born[:3], *odd, *born[3:]]}))["born"]
    assert (column.kind, column.low) == ("datetime", "1555-03-08")
    named = " and ".join(map(repr, odd))
    assert f"years away from all other dates: {named}; correct" in column.why


@pytest.mark.parametrize(("first", "last"), [(1650, 1900), (1880, 1950), (2090, 2190)])
@pytest.mark.parametrize("kind", [int, str])
def test_days_of_other_centuries_that_are_written_as_eight_digits_are_dates(first, last, kind):
    random = np.random.default_rng(0)
    start = datetime.fromisoformat(f"{first}-01-01")
    steps = random.integers(0, 365 * (last - first), ROWS)
    days = [kind((start + timedelta(int(step))).strftime("%Y%m%d")) for step in steps]
    column = Schema.detect(pl.DataFrame({"x": days}))["x"]
    assert (column.kind, column.format) == ("datetime", "%Y%m%d")


def test_codes_of_households_that_look_like_days_of_other_centuries_are_none():
    codes = [1_000_000 * (n // 40) + 17_000_101 + 100 * (n % 12) + n % 9 for n in range(ROWS)]
    assert Schema.detect(pl.DataFrame({"x": codes}))["x"].kind != "datetime"
    random = np.random.default_rng(0).integers(17_000_000, 22_000_000, ROWS)
    assert Schema.detect(pl.DataFrame({"x": random}))["x"].kind != "datetime"


def test_one_year_of_whole_numbers_that_is_a_typing_error_leaves_dates():
    days = [20150101 + n % 28 + 100 * (n % 12) for n in range(ROWS)]
    column = Schema.detect(pl.DataFrame({"x": [*days, 15550421]}))["x"]
    assert (column.kind, column.low) == ("datetime", "1555-04-21")
    assert "'15550421'; correct the year" in column.why
