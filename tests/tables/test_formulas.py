"""Columns that follow from others: right values, by hand, and one source that gives a result."""

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.errors import InputError, SchemaError
from siloweave.tables.modelled import Modelled

BORN = sw.Column("born", "datetime", low="1900-01-01", high="2024-12-31", missing=True)
VISIT = sw.Column("visit", "datetime", low="2000-01-01T00:00:00", high="2025-12-31T00:00:00")
LEFT = sw.Column("left", "datetime", low="2000-01-01", high="2025-12-31")
AGE = sw.Column("age", "integer", low=-30, high=120, missing=True)
STAY = sw.Column("stay", "integer", low=0, high=4000)
HOURS = sw.Column("hours", "continuous", low=0, high=200_000, decimals=1)
KG = sw.Column("kg", "continuous", low=30, high=200, decimals=1)
CM = sw.Column("cm", "integer", low=120, high=210)
BMI = sw.Column("bmi", "continuous", low=5, high=140, decimals=1)
A, B = (sw.Column(name, "integer", low=0, high=50) for name in "ab")
DIFFERENCE = sw.Column("difference", "integer", low=-50, high=50)
RATIO = sw.Column("ratio", "continuous", low=0, high=50, decimals=2, missing=True)
PRODUCT = sw.Column("product", "integer", low=0, high=2500)
CELSIUS = sw.Column("celsius", "continuous", low=30, high=45, decimals=1)
FAHRENHEIT = sw.Column("fahrenheit", "continuous", low=80, high=120, decimals=1)
INCHES = sw.Column("inches", "continuous", low=40, high=90, decimals=1)
ARRIVED = sw.Column("arrived", "datetime", low="2000-01-01", high="2025-12-31")
YEAR = sw.Column("year", "integer", low=1900, high=2100, missing=True)
QUARTER = sw.Column("quarter", "integer", low=1, high=4)
MONTH = sw.Column("month", "integer", low=1, high=12)
SECONDS = sw.Column("seconds", "integer", low=0, high=2_000_000_000)
MILLISECONDS = sw.Column("milliseconds", "integer", low=0, high=2_000_000_000_000)

CASES = {
    # Birthdays: the day itself counts; who was born on 29 February has the first of March, too.
    "years": (
        sw.Computed("age", "years", ("born", "visit")), (BORN, VISIT, AGE),
        [("1980-06-15", "2020-06-14 23:59", 39), ("1980-06-15", "2020-06-15 00:00", 40),
         ("2000-02-29", "2021-02-28 12:00", 20), ("2000-02-29", "2021-03-01 12:00", 21),
         ("2000-02-29", "2024-02-29 00:00", 24), ("2020-01-02", "2020-01-01 10:00", -1),
         (None, "2020-01-01 10:00", None)],
    ),
    # Calendar days, whatever the time of day, over a leap day too.
    "days": (
        sw.Computed("stay", "days", ("visit", "left")), (VISIT, LEFT, STAY),
        [("2021-03-01 10:27", "2021-03-01", 0), ("2021-03-01 23:59", "2021-03-02", 1),
         ("2020-02-28 00:00", "2020-03-01", 2)],
    ),
    # As some registers count: 365 days a year, rounded down.
    "years of 365 days": (
        sw.Computed("age", "days", ("born", "visit"), factor=1 / 365, rounding="down"),
        (BORN, VISIT, AGE),
        [("2019-01-01", "2020-01-01 08:00", 1), ("2019-01-02", "2020-01-01 08:00", 0),
         ("1979-01-11", "2019-01-01 08:00", 40)],
    ),
    "hours at the coarser resolution": (
        sw.Computed("hours", "hours", ("visit", "left")), (VISIT, LEFT, HOURS),
        [("2021-03-01 10:27", "2021-03-01", 0.0), ("2021-03-01 10:27", "2021-03-03", 48.0)],
    ),
    "bmi of centimetres": (
        sw.Computed("bmi", "bmi", ("kg", "cm"), factor=10_000), (KG, CM, BMI),
        [(80.0, 180, 24.7), (50.6, 175, 16.5)],
    ),
    "difference": (
        sw.Computed("difference", "difference", ("a", "b")), (A, B, DIFFERENCE),
        [(3, 5, -2), (50, 0, 50)],
    ),
    "ratio": (
        sw.Computed("ratio", "ratio", ("a", "b")), (A, B, RATIO),
        [(1, 3, 0.33), (0, 4, 0.0), (4, 0, None), (0, 0, None)],
    ),
    "product": (
        sw.Computed("product", "product", ("a", "b")), (A, B, PRODUCT), [(7, 6, 42), (0, 50, 0)],
    ),
    "copy in another unit": (
        sw.Computed("inches", "copy", ("cm",), factor=1 / 2.54), (CM, INCHES),
        [(180, 70.9), (127, 50.0)],
    ),
    "copy from another zero": (
        sw.Computed("fahrenheit", "copy", ("celsius",), factor=1.8, offset=32),
        (CELSIUS, FAHRENHEIT), [(37.0, 98.6), (40.1, 104.2)],
    ),
    "copy of large whole numbers, of which each counts": (
        sw.Computed("milliseconds", "copy", ("seconds",), factor=1000), (SECONDS, MILLISECONDS),
        [(1_600_000_000, 1_600_000_000_000), (0, 0)],
    ),
    "day of a time": (
        sw.Computed("arrived", "copy", ("visit",)), (VISIT, ARRIVED),
        [("2021-03-01 10:27", "2021-03-01"), ("2000-02-29 23:59", "2000-02-29")],
    ),
    "year": (
        sw.Computed("year", "year", ("born",)), (BORN, YEAR),
        [("1969-12-31", 1969), ("1970-01-01", 1970), ("1924-02-29", 1924), (None, None)],
    ),
    "quarter": (
        sw.Computed("quarter", "quarter", ("visit",)), (VISIT, QUARTER),
        [("2020-03-31 23:59", 1), ("2020-04-01 00:00", 2)],
    ),
    "month": (
        sw.Computed("month", "month", ("left",)), (LEFT, MONTH),
        [("2020-02-29", 2), ("2020-12-31", 12)],
    ),
}  # fmt: skip


def table_of(columns, rows):
    frame = pd.DataFrame(rows, columns=[column.name for column in columns])
    for column in columns:
        if column.kind == "datetime":
            frame[column.name] = pd.to_datetime(frame[column.name], format="mixed")
        elif column.kind == "integer":
            frame[column.name] = frame[column.name].astype("Int64")
    return sw.read(frame)


@pytest.mark.parametrize("name", CASES)
def test_a_column_follows_from_its_sources(name):
    rule, columns, rows = CASES[name]
    modelled = Modelled(sw.Schema(columns, (rule,)))
    table = table_of(columns, rows)
    assert modelled.schema.names == tuple(column.name for column in columns[:-1])
    assert not modelled.broken(table)[rule.words].any()
    inside = modelled.inside(table)
    assert set(inside.names) == set(modelled.schema.names)
    back, bad = modelled.outside(inside, modelled.schema, table)
    assert not any(mask.any() for mask in bad.values())
    wanted = [row[-1] for row in rows]
    if columns[-1].kind == "datetime":
        wanted = [pd.Timestamp(day) for day in wanted]
    values, gone = back.values(rule.column).tolist(), back.missing(rule.column)
    assert [None if g else v for v, g in zip(values, gone, strict=True)] == wanted


@pytest.mark.parametrize("name", CASES)
def test_rows_with_another_value_break_it(name):
    rule, columns, rows = CASES[name]
    modelled = Modelled(sw.Schema(columns, (rule,)))
    step = 1 if columns[-1].kind == "integer" else 0.1
    if columns[-1].kind == "datetime":
        step = pd.Timedelta(days=1)
        rows = [(*row[:-1], pd.Timestamp(row[-1])) for row in rows]
    last = [7 if row[-1] is None else row[-1] + step for row in rows]
    table = table_of(columns, [(*row[:-1], value) for row, value in zip(rows, last, strict=True)])
    assert modelled.broken(table)[rule.words].all()


@pytest.mark.parametrize("name", CASES)
def test_a_result_that_is_given_has_sources_that_give_it(name):
    """Rows are drawn at random between the bounds; what is given is a result that some have."""
    rule, columns, rows = CASES[name]
    schema = sw.Schema(columns, (rule,))
    wanted = next(row[-1] for row in rows if row[-1] not in (None, 0, 0.0) or len(rows) == 2)
    rng = np.random.default_rng(0)
    base = table_of(columns, [rows[i] for i in rng.integers(0, len(rows), 200)])
    model = sw.GaussianCopula().fit(base, schema, seed=0)
    drawn = model.sample(40, given={rule.column: wanted}, seed=1)
    assert (drawn[rule.column] == wanted).all()
    assert not Modelled(schema).broken(sw.read(drawn))[rule.words].any()


REFUSED = {
    "the schema has no column 'birthday'": sw.Computed("age", "years", ("birthday", "visit")),
    "'stay' is missing where born may be; declare": sw.Computed("stay", "days", ("born", "visit")),
    "formula='months' is unknown": sw.Computed("age", "months", ("born", "visit")),
    "rounding='even' is unknown": sw.Computed("age", "years", ("born", "visit"), rounding="even"),
    "factor=0 must be": sw.Computed("age", "years", ("born", "visit"), factor=0),
    "is integer, and must be datetime": sw.Computed("age", "years", ("a", "visit")),
    "is datetime, and must be integer or continuous": sw.Computed("stay", "product", ("a", "left")),
    "sources named: 2; name one": sw.Computed("product", "copy", ("a", "b")),
    "a copied datetime has factor=1": sw.Computed("left", "copy", ("visit",), factor=2),
    "offset=inf must be finite": sw.Computed("b", "copy", ("a",), offset=float("inf")),
    "'stay' is integer, and must be datetime": sw.Computed("stay", "copy", ("visit",)),
    "the sources give 100 to 150, and 'b' is 0 to 50": sw.Computed(
        "b", "copy", ("a",), offset=100
    ),
    "sources named: 1; name two": sw.Computed("age", "days", ("born",)),
    "sources named: 3; name two": sw.Computed("product", "ratio", ("a", "b", "cm")),
    "sources named: 1; name two or more": sw.Computed("product", "product", ("a",)),
    "names a column twice": sw.Computed("age", "years", ("born", "born")),
    "'b' may be 0, where 'stay' has no value": sw.Computed("stay", "ratio", ("a", "b")),
    "no row can keep it: the sources give 680272 to": sw.Computed(
        "stay", "bmi", ("kg", "cm"), factor=1e9
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_a_column_that_its_sources_cannot_give_is_refused_before_a_row_is_read(words):
    columns = (BORN, VISIT, LEFT, AGE, STAY, KG, CM, BMI, A, B, PRODUCT)
    with pytest.raises(SchemaError, match=words):
        sw.Schema(columns, (REFUSED[words],))


def test_a_column_is_computed_once_and_never_from_itself():
    columns = (A, B, DIFFERENCE, PRODUCT)
    first = sw.Computed("product", "product", ("a", "b"))
    with pytest.raises(SchemaError, match="'product' is computed by another constraint"):
        sw.Schema(columns, (first, sw.Computed("product", "difference", ("a", "b"))))
    with pytest.raises(SchemaError, match="'product' is computed by another constraint"):
        sw.Schema(columns, (first, sw.ColumnSum(("a", "b"), "product")))
    ring = (
        sw.Computed("product", "product", ("difference", "b")),
        sw.Computed("difference", "difference", ("product", "b")),
    )
    with pytest.raises(SchemaError, match="goes round in a circle, since 'product' is among"):
        sw.Schema(columns, ring)


def test_a_computed_column_may_be_a_source():
    columns = (A, B, DIFFERENCE, sw.Column("area", "integer", low=-2500, high=2500))
    rules = (
        sw.Computed("area", "product", ("difference", "b")),
        sw.Computed("difference", "difference", ("a", "b")),
    )
    modelled = Modelled(sw.Schema(columns, rules))
    assert modelled.schema.names == ("a", "b")
    table = table_of((A, B), [(9, 4), (3, 5)])
    back, bad = modelled.outside(table, modelled.schema, table)
    assert back.values("area").tolist() == [20, -10]
    assert not any(mask.any() for mask in bad.values())


def test_rows_whose_result_leaves_the_bounds_are_drawn_again():
    columns = (A, B, sw.Column("product", "integer", low=0, high=100))
    rule = sw.Computed("product", "product", ("a", "b"))
    modelled = Modelled(sw.Schema(columns, (rule,)))
    table = table_of((A, B), [(50, 50), (2, 3)])
    _, bad = modelled.outside(table, modelled.schema, table)
    assert bad[rule.words].tolist() == [True, False]


def test_the_error_of_rows_that_are_too_rare_names_what_they_break_and_the_bounds():
    columns = (A, B, sw.Column("product", "integer", low=0, high=1), sw.Column("c", "boolean"))
    pairs = sw.FixedCombinations(("c", "d"), ((False, "x"), (True, "y")))
    columns = (*columns, sw.Column("d", "categorical", categories=("x", "y")))
    rule = sw.Computed("product", "product", ("a", "b"))
    schema = sw.Schema(columns, (pairs, rule)).with_fallbacks()
    frame = pd.DataFrame({"a": [0, 1, 1, 40] * 50, "b": [1, 0, 1, 0] * 50})
    frame = frame.assign(product=frame.a * frame.b, c=[False, True] * 100, d=["x", "y"] * 100)
    fitted = sw.AIM().fit(frame, schema, budget=sw.Budget(8.0, 1e-5), seed=0)
    said = r"constraint product = a \* b: .* break it or the bounds of 'product': .*loosen"
    with pytest.raises(InputError, match=said):
        fitted.sample(5, given={"a": 40, "b": 1}, seed=0)
