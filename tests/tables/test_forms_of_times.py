"""Dates and times as other programs write them: read, and drawn in the same form."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from siloweave.tables import Schema, read
from siloweave.tables.bins import as_datetimes, step_of
from siloweave.tables.kinds.texts import looks_dated

ROWS = 120
RNG = np.random.default_rng(3)
#: UTC, since no zone is written.
TIMES = [datetime(2019, 1, 1) + timedelta(seconds=int(s)) for s in RNG.integers(0, 10**8, ROWS)]  # noqa: DTZ001


def written(form):
    return [when.strftime(form) for when in TIMES]


def upper(form):
    return [text.upper() for text in written(form)]


def short(form):
    """Without zeros before days, months and hours of twelve."""
    return [
        form.format(
            year=when.year, month=when.month, day=when.day, hour=when.hour % 12 or 12,
            minute=when.minute, half="am" if when.hour < 12 else "pm",
        )
        for when in TIMES
    ]  # fmt: skip


#: What writes such texts -> the texts, and the format by which they are read and drawn.
FORMS = {
    "SAS, days": (upper("%d%b%Y"), "%d%^b%Y"),
    "SAS, datetimes": (upper("%d%b%Y:%H:%M:%S"), "%d%^b%Y:%H:%M:%S"),
    "Oracle": (upper("%d-%b-%y"), "%d-%^b-%y"),
    "basic ISO 8601": (written("%Y%m%dT%H%M%SZ"), "%Y%m%dT%H%M%SZ"),
    "a log of Python": (written("%Y-%m-%d %H:%M:%S,%f"), "%Y-%m-%d %H:%M:%S,%f"),
    "a web server": (written("%d/%b/%Y:%H:%M:%S +0000"), "%d/%b/%Y:%H:%M:%S %z"),
    "Unix": (written("%a %b %d %H:%M:%S %Y"), "%a %b %d %H:%M:%S %Y"),
    "JavaScript": (
        written("%a %b %d %Y %H:%M:%S GMT+0100 (CET)"), "%a %b %d %Y %H:%M:%S GMT+0100 (CET)",
    ),
    "a name of a zone": (written("%Y-%m-%d %H:%M:%S EST"), "%Y-%m-%d %H:%M:%S EST"),
    "an American sheet": (
        short("{month}/{day}/{year} {hour}:{minute:02d}{half}"), "%-m/%-d/%Y %-I:%M%P",
    ),
    "Japanese": (short("{year}年{month}月{day}日"), "%Y年%-m月%-d日"),
    "Korean": (short("{year}. {month}. {day}."), "%Y. %-m. %-d."),
    "a bank": (written("%d%m%Y"), "%d%m%Y"),
}  # fmt: skip


def schema_of(texts, name="x"):
    return Schema.detect(read(pd.DataFrame({name: texts})))


@pytest.mark.parametrize("writer", FORMS)
def test_times_are_read_and_drawn_as_they_are_written(writer):
    texts, form = FORMS[writer]
    column = schema_of(texts)["x"]
    assert (column.kind, column.format) == ("datetime", form)
    # A form reads what it writes: the texts come back.
    steps, _ = read(pd.DataFrame({"x": texts})).datetimes("x", form)
    drawn = as_datetimes(column, steps // step_of(column), None)
    assert drawn.tolist() == texts


@pytest.mark.parametrize("digits", [7, 9])
def test_nanoseconds_are_read_as_microseconds(digits):
    fractions = RNG.integers(0, 10**digits, ROWS)
    stamps = written("%Y-%m-%dT%H:%M:%S")
    texts = [f"{s}.{f:0{digits}d}Z" for s, f in zip(stamps, fractions, strict=True)]
    column = schema_of(texts)["x"]
    assert (column.kind, column.format) == ("datetime", "%Y-%m-%dT%H:%M:%S.%fZ")
    steps, is_missing = read(pd.DataFrame({"x": texts})).datetimes("x", column.format)
    assert not is_missing.any()
    assert (steps % 10**6 == fractions // 10 ** (digits - 6)).all()


def test_days_of_six_digits_are_dates_in_a_column_named_as_one_of_dates():
    """The day is the part with many values: all years of 150221 would be the 21st else."""
    assert schema_of(written("%y%m%d"), "visit_date")["visit_date"].format == "%y%m%d"
    assert schema_of(written("%d%m%y"), "birth_date")["birth_date"].format == "%d%m%y"
    numbers = [int(text) for text in written("%y%m%d")]
    assert schema_of(numbers, "visit_date")["visit_date"].format == "%y%m%d"
    assert schema_of(numbers, "lot")["lot"].kind == "integer"


def test_days_with_and_without_a_time_are_dates_of_no_single_form():
    texts = [*written("%Y-%m-%d %H:%M:%S")[:90], *written("%Y-%m-%d")[90:]]
    column = schema_of(texts)["x"]
    assert (column.kind, column.format) == ("datetime", None)
    assert "drawn ones all have a time" in column.why


@pytest.mark.parametrize(
    "texts",
    [
        [*written("%Y-%m-%d")[:60], *written("%d/%m/%Y")[60:]],
        [*written("%d/%m/%Y")[:60], *written("%m/%d/%Y")[60:]],
        [*written("%Y-%m-%d %H:%M:%S CET")[:60], *written("%Y-%m-%d %H:%M:%S CEST")[60:]],
        written("%Y-%m-%dT%H:%M:%S+01:00[Europe/Berlin]"),
        short("{day}. Januar {year}"),
        short("{year}/{month:02d}/{day:02d} {hour}時{minute:02d}分"),
    ],
    ids=["two forms", "days first and months first", "two zones", "Java", "German", "Japanese"],
)
def test_dates_that_are_not_read_are_no_identifiers(texts):
    column = schema_of(texts)["x"]
    assert (column.kind, column.format) == ("text", None)
    assert "dates in several forms, or in one that is not read" in column.why


def test_few_months_in_an_odd_form_are_categories():
    column = schema_of([f"{when.year}m{when.month}" for when in TIMES for _ in range(4)])["x"]
    assert column.kind == "categorical"


@pytest.mark.parametrize("text", ["INV-2024-01", "2024-0017", "2024/45/7", "V2.2024", "a 2024", ""])
def test_what_has_other_parts_is_no_date(text):
    assert not looks_dated(text)


def test_ratios_and_scores_are_no_times_of_day():
    ratios = [f"{a}:{b}" for a, b in RNG.integers(0, 6, (ROWS, 2))]
    assert schema_of(ratios)["x"].kind == "categorical"
    verses = [f"{a}:{b}" for a, b in RNG.integers(1, 60, (ROWS, 2))]
    assert "several numbers in one field" in schema_of(verses)["x"].why
    laps = [f"{a}:{b:02d}.{c:02d}" for a, b, c in RNG.integers(0, 60, (ROWS, 3))]
    assert "durations" in schema_of(laps)["x"].why


def test_flags_in_one_field_are_no_identifiers():
    flags = schema_of([f"{n:08b}" for n in RNG.integers(0, 256, ROWS)])["x"]
    assert flags.kind == "text"
    assert "flags of 0 and 1 in one field" in flags.why
    # Few combinations are categories, whatever their width.
    few = schema_of([f"{n:06b}" for n in np.repeat(RNG.integers(0, 64, 25), 8)])["x"]
    assert few.kind == "categorical"


def test_seconds_from_1970_on_are_named_whatever_the_column_is_called():
    seconds = RNG.integers(1_500_000_000, 1_700_000_000, ROWS)
    for scale, unit in ((1, "seconds"), (1000, "milliseconds")):
        column = schema_of(seconds * scale + RNG.integers(0, scale, ROWS))["x"]
        assert column.kind == "id"
        assert f"if they are times in {unit} from 1970 on" in column.why
    # All whole minutes are no numbers that are given out.
    minutes = schema_of(seconds // 60 * 60)["x"]
    assert minutes.kind == "integer"
    assert "seconds from 1970 on" in minutes.why
    # Other numbers of ten digits are no times.
    assert "1970" not in schema_of(RNG.integers(10**9, 9 * 10**9, ROWS))["x"].why


@pytest.mark.parametrize(
    "form", ["%Y-%m-01", "01.%m.%Y", "%m/01/%Y", "01%b%Y", "%Y-%m-01 00:00:00"]
)
def test_months_that_are_written_as_their_first_day_are_drawn_so(form):
    column = schema_of(written(form))["x"]
    assert (column.kind, column.format) == ("datetime", form)
    assert "first days of months" in column.why
    days = np.arange("2021-01-05", "2021-03-05", dtype="datetime64[D]").astype(int)
    steps = days * 86_400 * 10**6 // step_of(column)
    drawn = as_datetimes(column, steps, None)
    firsts = [datetime(2021, month, 1) for month in (1, 2, 3)]  # noqa: DTZ001
    assert set(drawn.tolist()) == {first.strftime(form) for first in firsts}


def test_months_in_a_frame_are_named():
    months = pd.to_datetime(written("%Y-%m-01"))
    assert "all are the first day of a month" in schema_of(months)["x"].why
    assert "month" not in schema_of(pd.Series(TIMES))["x"].why


def test_multiples_of_a_number_are_named():
    numbers = RNG.integers(100, 900, ROWS)
    assert "all are multiples of 50" in schema_of(numbers * 50)["x"].why
    assert "multiples" not in schema_of(numbers)["x"].why
