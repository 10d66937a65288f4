"""What a schema may ask of rows, and what is refused before a row is read."""

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.errors import SchemaError
from siloweave.tables.bins import last_of, step_of
from siloweave.tables.modelled import Modelled, broken
from siloweave.tables.relations import proposed

COLUMNS = (
    sw.Column("town", "categorical", categories=("Ulm", "Linz")),
    sw.Column("country", "categorical", categories=("DE", "AT"), missing=True),
    sw.Column("flag", "boolean", categories=(0, 1)),
    sw.Column("a", "integer", low=0, high=10),
    sw.Column("b", "integer", low=5, high=20, missing=True),
    sw.Column("c", "integer", low=0, high=30, missing=True),
    sw.Column("x", "continuous", low=-1.0, high=1.0, decimals=1),
    sw.Column("day", "datetime", low="2020-01-01", high="2020-12-31"),
    sw.Column("hour", "datetime", low="2020-01-01T00:00:00", high="2021-12-31T00:00:00"),
    sw.Column("who", "id"),
    sw.Column("tenths", "continuous", low=-1.0, high=3.0, decimals=1, missing=True),
)


def schema(*rules):
    return sw.Schema(COLUMNS, rules)


BAD = {
    "no column 'z'": sw.Inequality("a", "z"),
    "column 'who' is an id, which is not modelled": sw.Unique(("who",)),
    "names a column twice": sw.Unique(("a", "a")),
    "columns named: 1; name 2 or more": sw.FixedCombinations(("town",)),
    "combination 1 has 1 values for 2": sw.FixedCombinations(("town", "a"), (("Ulm",),)),
    "'Bonn' is not among the 2 categories": sw.FixedCombinations(("town", "a"), (("Bonn", 1),)),
    "column 'town' is never missing": sw.FixedCombinations(("town", "a"), ((None, 1),)),
    "11 is outside the bounds of column 'a', 0 to 10": sw.FixedCombinations(
        ("town", "a"), (("Ulm", 11),)
    ),
    "'1' must be a number": sw.FixedCombinations(("town", "a"), (("Ulm", "1"),)),
    "1.5 must be whole": sw.FixedCombinations(("town", "a"), (("Ulm", 1.5),)),
    "True is not among the 2": sw.FixedCombinations(("town", "flag"), (("Ulm", True),)),
    "listed twice": sw.FixedCombinations(("town", "a"), (("Ulm", 1), ("Ulm", 1))),
    "compares a datetime with a number": sw.Inequality("day", "a"),
    "is categorical, and must be integer": sw.Inequality("town", "a"),
    "most=0 must be 1 or more": sw.Inequality("a", "c", strict=True, most=0),
    "is never missing; leave most out": sw.Inequality("b", "c", most=3),
    "missing=True for it, or correct the parts": sw.ColumnSum(("a", "b"), "x"),
    "'c' is whole and some part is not": sw.ColumnSum(("x", "b"), "c"),
    "ranges is empty": sw.CategoryRanges("a", "town", ()),
    "a category has two ranges": sw.CategoryRanges("a", "town", (("Ulm", 0, 1), ("Ulm", 2, 3))),
    "at least 12 has no value between": sw.CategoryRanges("a", "town", (("Ulm", 12, None),)),
    "3 to 2 has no value": sw.CategoryRanges("a", "town", (("Ulm", 3, 2),)),
    "'2020' must be ISO|'soon' must be ISO": sw.CategoryRanges(
        "day", "town", (("Ulm", "soon", None),)
    ),
    "town may not be missing": sw.MissingTogether(("town", "b")),
    "a may not be missing": sw.MissingUnless(("a",), "town", ("Ulm",)),
    "'Bonn' is not among": sw.MissingUnless(("b",), "town", ("Bonn",)),
    "column 'town' is never missing$": sw.MissingUnless(("b",), "town", (None,)),
    "values is empty": sw.MissingUnless(("b",), "town", ()),
    "a value is listed twice": sw.MissingUnless(("b",), "town", ("Ulm", "Ulm")),
    "dependent is empty": sw.MissingUnless((), "town", ("Ulm",)),
    "'a' is integer, and must be categorical": sw.MissingUnless(("b",), "a", (1,)),
}


@pytest.mark.parametrize("words", BAD)
def test_what_no_column_or_row_can_keep_is_refused(words):
    with pytest.raises(SchemaError, match=words):
        schema(BAD[words])


def test_bounds_that_contradict_a_constraint_are_refused():
    low, high = (sw.Column(n, "integer", low=a, high=b) for n, a, b in (("l", 8, 9), ("h", 1, 8)))
    assert sw.Schema((low, high), (sw.Inequality("l", "h"),)).constraints
    for rule in (sw.Inequality("l", "h", strict=True), sw.ColumnSum(("l", "h"), "t")):
        total = sw.Column("t", "integer", low=0, high=8)
        with pytest.raises(SchemaError, match="no row can keep it"):
            sw.Schema((low, high, total), (rule,))
    with pytest.raises(SchemaError, match="other inequalities say that 'c' is at most 'a'"):
        schema(sw.Inequality("a", "c", strict=True), sw.Inequality("c", "a"))


ALL = (
    sw.FixedCombinations(("town", "country"), (("Ulm", "DE"), ("Linz", None))),
    sw.Inequality("a", "b", strict=True),
    sw.Inequality("day", "hour"),
    sw.ColumnSum(("a", "b"), "c"),
    sw.CategoryRanges("x", "flag", ((1, 0.0, None),)),
    sw.MissingTogether(("b", "c")),
    sw.Unique(("a", "day")),
    sw.MissingUnless(("b", "c"), "town", ("Ulm",), required=True),
    sw.Computed("tenths", "difference", ("c", "a"), factor=0.1),
)


def frame():
    return pd.DataFrame({
        "town": ["Ulm", "Linz", "Ulm"], "country": ["DE", None, "DE"], "flag": [1, 0, 1],
        "a": [1, 2, 3], "b": pd.array([5, None, 7], dtype="Int64"),
        "c": pd.array([6, None, 10], dtype="Int64"), "x": [0.5, -0.5, 0.0],
        "day": pd.to_datetime(["2020-02-01"] * 3),
        "hour": pd.to_datetime(["2020-02-01 00:00", "2020-02-01 10:00", "2020-03-01 00:00"]),
        "who": [7, 8, 9], "tenths": [0.5, None, 0.7],
    })  # fmt: skip


def test_a_schema_is_written_and_read_with_its_constraints():
    whole = schema(*ALL)
    assert sw.Schema.from_json(whole.to_json()) == whole
    assert sw.Schema.from_sdv(whole.to_sdv(version=1)) == whole
    assert "constraints" not in sw.Schema(COLUMNS).to_json()
    assert whole.digest() != sw.Schema(COLUMNS).digest()
    assert whole.differences(schema(*ALL[1:])) == [
        "constraint fixed combinations of town, country: only in the first"
    ]
    assert whole.select(["b", "a"]).constraints == (ALL[1],)
    with pytest.raises(SchemaError, match="constraint"):
        sw.Schema.from_json(whole.to_json().replace('"inequality"', '"equality"'))


def test_rows_are_turned_into_what_methods_learn_and_back():
    modelled = Modelled(schema(*ALL))
    table = sw.read(frame())
    inside = modelled.inside(table)
    assert set(inside.names) == {
        "town+country", "flag", "a", "b - a", "x", "day", "hour - day", "who"
    }  # fmt: skip
    assert modelled.schema["b - a"].low == 1
    assert modelled.schema["town+country"].categories == ('["Ulm","DE"]', '["Linz",null]')
    back, bad = modelled.outside(inside, modelled.schema, table)
    assert not any(mask.any() for mask in bad.values())
    pd.testing.assert_frame_equal(back.to_native(), frame().drop(columns="who"), check_dtype=False)


SPOILT = {
    "fixed combinations of town, country": ("country", "AT"),
    "a < b": ("a", 5),
    "day <= hour": ("hour", pd.Timestamp("2020-01-31 23:00")),
    "a \\+ b = c": ("c", 7),
    "range of x by flag": ("x", -0.1),
    "tenths = c - a, divided by 10": ("tenths", 0.7),
}


@pytest.mark.parametrize("words", SPOILT)
def test_a_row_that_breaks_a_constraint_is_refused_with_its_place(words):
    column, value = SPOILT[words]
    rows = frame()
    rows.loc[0, column] = value
    with pytest.raises(SchemaError, match=rf"{words}: 1 of 3 rows break it \(row 1,"):
        Modelled(schema(*ALL)).inside(sw.read(rows))


def test_gaps_totals_and_rows_without_a_value():
    rows = sw.read(frame())
    repeated = frame().assign(a=[1, 1, 3], day=pd.to_datetime("2020-02-01"))
    assert broken(ALL[6], schema(), sw.read(repeated)).tolist() == [False, True, False]
    lost = frame()
    lost.loc[0, "c"] = pd.NA
    assert broken(ALL[5], schema(), sw.read(lost)).tolist() == [True, False, False]
    assert broken(ALL[3], schema(), sw.read(lost)).tolist() == [True, False, False]
    assert not broken(ALL[3], schema(), rows).any()
    far = sw.Inequality("a", "b", most=3)
    assert broken(far, schema(), rows).tolist() == [True, False, True]


STAYS = (
    sw.Column("came", "datetime", low="2021-01-01T00:00:00", high="2021-12-31T00:00:00"),
    sw.Column("left", "datetime", low="2021-01-01", high="2022-01-31"),
)
TIMES = {
    "came": ["2021-03-01 10:27", "2021-03-01 00:00", "2021-03-02 23:59", "2021-03-02 00:01"],
    "left": ["2021-03-01", "2021-03-01", "2021-03-01", "2021-03-05"],
}


def times(low, high):
    return sw.read(pd.DataFrame({low: TIMES["came"], high: TIMES["left"]}).apply(pd.to_datetime))


def test_a_time_and_a_date_are_compared_by_the_day():
    """An admission at 10:27 and a discharge on the same day without a time are in order."""
    rows = times("came", "left")
    for rule, wrong in (
        (sw.Inequality("came", "left"), [False, False, True, False]),
        (sw.Inequality("came", "left", strict=True), [True, True, True, False]),
        (sw.Inequality("came", "left", most=2), [False, False, True, True]),
        (sw.Inequality("left", "came"), [False, False, False, True]),
        (sw.Inequality("left", "came", strict=True), [True, True, False, True]),
    ):
        assert broken(rule, sw.Schema(STAYS, (rule,)), rows).tolist() == wrong, rule.words


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("most", [None, 1, 400])
@pytest.mark.parametrize("order", [("came", "left"), ("left", "came")])
def test_rows_of_a_time_and_a_date_are_learned_by_their_gap(order, most, strict):
    low, high = order
    rule = sw.Inequality(low, high, strict=strict, most=most)
    schema = sw.Schema(STAYS, (rule,))
    modelled = Modelled(schema)
    assert modelled.keeps(rule)
    rows = times("came", "left")
    kept = rows.take(np.flatnonzero(~broken(rule, schema, rows)))
    if kept.num_rows:
        inside = modelled.inside(kept)
        back, bad = modelled.outside(inside, modelled.schema, kept)
        assert not any(mask.any() for mask in bad.values())
        pd.testing.assert_frame_equal(back.to_native(), kept.to_native())

    # Every gap that methods may draw keeps it.
    column = modelled.schema[f"{high} - {low}"]
    rng = np.random.default_rng(0)
    drawn = sw.Table.from_columns({
        low: (rng.choice(rows.values(low), 500), None),
        column.name: (rng.integers(column.low, column.high + 1, 500), None),
    })  # fmt: skip
    made, bad = modelled.outside(drawn, modelled.schema, rows)
    is_met = ~np.logical_or.reduce([*bad.values()])
    assert not broken(rule, schema, made)[is_met].any()
    assert is_met.sum() > 100


SHIFTS = pd.Timestamp("2021-03-01") + pd.to_timedelta(np.arange(0, 2 * 1440, 7), unit="min")
PAIRS = [
    ("hour", "minute"), ("minute", "hour"), ("15 minutes", "10 minutes"), ("day", "minute"),
    ("10 minutes", "15 minutes"), ("minute", "day"), ("second", "30 minutes"),
]  # fmt: skip


@pytest.mark.parametrize(("finer", "later"), PAIRS)
def test_times_of_any_two_resolutions_are_learned_by_their_gap_to_the_end_of_the_last_day(
    finer, later
):
    """Bounds that are dates include their whole day, whatever the resolution."""
    ends = {"low": "2021-03-01", "high": "2021-03-02"}
    columns = (
        sw.Column("came", "datetime", resolution=finer, **ends),
        sw.Column("left", "datetime", resolution=later, **ends),
    )
    rule = sw.Inequality("came", "left")
    schema = sw.Schema(columns, (rule,))
    steps = [step_of(column) for column in columns]
    cells = [SHIFTS.to_numpy().astype("datetime64[us]").astype(np.int64) // step for step in steps]
    stays = np.arange(len(SHIFTS)) * 7 % 1200 * 60_000_000 // steps[1]
    left = np.minimum(cells[1] + stays, last_of(columns[1]))
    frame = pd.DataFrame({
        "came": (cells[0] * steps[0]).astype("datetime64[us]"),
        "left": (left * steps[1]).astype("datetime64[us]"),
    })  # fmt: skip
    rows = sw.read(frame)
    assert not broken(rule, schema, rows).any()
    modelled = Modelled(schema)
    inside = modelled.inside(rows)
    column = modelled.schema["left - came"]
    assert column.low <= inside.values(column.name).min()
    assert inside.values(column.name).max() <= column.high
    back, bad = modelled.outside(inside, modelled.schema, rows)
    assert not any(mask.any() for mask in bad.values())
    pd.testing.assert_frame_equal(back.to_native(), frame)

    # Every gap that methods may draw keeps it.
    rng = np.random.default_rng(0)
    drawn = sw.Table.from_columns({
        "came": (rng.choice(rows.values("came"), 500), None),
        column.name: (rng.integers(column.low, column.high + 1, 500), None),
    })  # fmt: skip
    made, bad = modelled.outside(drawn, modelled.schema, rows)
    is_met = ~np.logical_or.reduce([*bad.values()])
    assert not broken(rule, schema, made)[is_met].any()
    assert is_met.sum() > 100


def test_a_bound_that_is_a_date_reaches_to_the_end_of_its_day_in_every_rule():
    came = sw.Column("came", "datetime", low="2021-03-01T10:00:00", high="2021-03-05T00:00:00")
    left = sw.Column("left", "datetime", low="2021-01-01", high="2021-03-01", resolution="hour")
    flag = sw.Column("flag", "boolean")
    rule = sw.Inequality("came", "left", strict=True)
    assert sw.Schema((came, left), (rule,)).constraints
    ranges = sw.CategoryRanges("left", "flag", ((True, "2021-03-01T10:00:00", None),))
    assert sw.Schema((left, flag), (ranges,)).constraints
    late = (("2021-03-01T23:00:00", True),)
    assert sw.Schema((left, flag), (sw.FixedCombinations(("left", "flag"), late),)).constraints


def test_a_time_may_begin_on_the_last_day_that_a_date_has():
    columns = (
        sw.Column("came", "datetime", low="2021-03-01T10:00:00", high="2021-12-31T00:00:00"),
        sw.Column("left", "datetime", low="2021-01-01", high="2021-03-01"),
    )
    assert sw.Schema(columns, (sw.Inequality("came", "left"),)).constraints
    with pytest.raises(SchemaError, match="no row can keep it"):
        sw.Schema(columns, (sw.Inequality("came", "left", strict=True),))


def test_a_range_that_ends_with_a_date_has_its_whole_day():
    rule = sw.CategoryRanges("hour", "flag", ((0, None, "2020-02-01"), (1, "2020-02-01", None)))
    assert broken(rule, schema(), sw.read(frame())).tolist() == [False, False, False]
    later = frame().assign(hour=pd.Timestamp("2020-02-02 00:00"))
    assert broken(rule, schema(), sw.read(later)).tolist() == [False, True, False]


VISITS = (
    sw.Column("event", "categorical", categories=("base", "later")),
    sw.Column("sex", "categorical", categories=("f", "m"), missing=True),
    sw.Column("weight", "integer", low=0, high=200, missing=True),
    sw.Column("note", "integer", low=0, high=9, missing=True),
)
DRAWN = {
    "event": (np.array(["base", "base", "later", "later"], object), None),
    "sex": (np.array(["f", "m", "f", "m"], object), np.array([False, True, False, True])),
    "weight": (np.array([60, 70, 80, 90]), np.array([True, False, False, True])),
    "note": (np.array([1, 2, 3, 4]), np.array([False, True, False, True])),
}


def gaps_after(*rules):
    modelled = Modelled(sw.Schema(VISITS, rules))
    made, bad = modelled.outside(sw.Table.from_columns(DRAWN), modelled.schema, None)
    assert not any(mask.any() for mask in bad.values())
    assert not any(wrong.any() for wrong in modelled.broken(made).values())
    return made, {name: made.missing(name).tolist() for name in made.names if name != "event"}


def test_columns_that_a_category_rules_out_are_blanked():
    _, gaps = gaps_after(sw.MissingUnless(("sex", "note"), "event", ("base",)))
    assert gaps == {
        "sex": [False, True, True, True],
        "weight": [True, False, False, True],
        "note": [False, True, True, True],
    }


def test_columns_that_a_category_requires_take_values_of_other_rows():
    rule = sw.MissingUnless(("sex", "weight"), "event", ("base",), required=True)
    made, gaps = gaps_after(rule)
    assert gaps["sex"] == gaps["weight"] == [False, False, True, True]
    assert made.values("sex")[:2].tolist() == ["f", "f"]
    assert made.values("weight")[:2].tolist() == [70, 70]
    assert gaps["note"] == [False, True, False, True]


def test_columns_that_are_missing_together_follow_the_first():
    made, gaps = gaps_after(sw.MissingTogether(("sex", "weight")))
    assert gaps["sex"] == gaps["weight"] == [False, True, False, True]
    assert made.values("weight")[[0, 2]].tolist() == [80, 80]


def test_a_missing_category_may_allow_columns():
    columns = (sw.Column("event", "categorical", ("base", "later"), missing=True), *VISITS[1:])
    rule = sw.MissingUnless(("sex",), "event", (None,))
    drawn = {**DRAWN, "event": (DRAWN["event"][0], np.array([True, False, False, False]))}
    modelled = Modelled(sw.Schema(columns, (rule,)))
    assert modelled.broken(sw.Table.from_columns(drawn))[rule.words].tolist() == [
        False, False, True, False,
    ]  # fmt: skip
    made, _ = modelled.outside(sw.Table.from_columns(drawn), modelled.schema, None)
    assert made.missing("sex").tolist() == [False, True, True, True]


def test_a_missing_category_of_a_fixed_combination_may_allow_columns():
    columns = (
        sw.Column("form", "categorical", ("adverse",), missing=True),
        sw.Column("grade", "categorical", ("mild", "severe"), missing=True),
        sw.Column("sex", "categorical", ("f", "m"), missing=True),
        sw.Column("term", "categorical", ("rash",), missing=True),
    )
    rows = ((None, None), ("adverse", "mild"), ("adverse", "severe"))
    fixed = sw.FixedCombinations(("form", "grade"), rows)
    no_form = sw.MissingUnless(("sex",), "form", (None,))
    form = sw.MissingUnless(("term",), "form", ("adverse",))
    modelled = Modelled(sw.Schema(columns, (fixed, no_form, form)))
    drawn = sw.Table.from_columns({
        "form+grade": (['[null,null]', '["adverse","mild"]'] * 2, None),
        "sex": (np.array(["f", "f", "m", "m"]), np.zeros(4, bool)),
        "term": (np.array(["rash"] * 4), np.zeros(4, bool)),
    })  # fmt: skip
    made, unmet = modelled.outside(drawn, modelled.schema, None)
    assert not any(mask.any() for mask in unmet.values())
    assert made.missing("form").tolist() == [True, False, True, False]
    assert made.missing("sex").tolist() == [False, True, False, True]
    assert made.missing("term").tolist() == [True, False, True, False]


def test_a_required_column_that_no_row_has_is_left_to_be_drawn_again():
    rule = sw.MissingUnless(("note",), "event", ("base",), required=True)
    modelled = Modelled(sw.Schema(VISITS, (rule,)))
    drawn = {**DRAWN, "note": (DRAWN["note"][0], np.ones(4, bool))}
    made, _ = modelled.outside(sw.Table.from_columns(drawn), modelled.schema, None)
    assert modelled.broken(made)[rule.words].tolist() == [True, True, False, False]


def test_a_smaller_column_that_is_missing_loses_nothing():
    """The gap is then counted from a public floor."""
    columns = (
        sw.Column("l", "integer", low=3, high=9, missing=True),
        sw.Column("h", "integer", low=0, high=12),
    )
    modelled = Modelled(sw.Schema(columns, (sw.Inequality("l", "h"),)))
    rows = pd.DataFrame({"l": pd.array([3, None, 9], dtype="Int64"), "h": [5, 0, 12]})
    inside = modelled.inside(sw.read(rows))
    assert inside.values("h - l").tolist() == [2, 0, 3]
    back, bad = modelled.outside(inside, modelled.schema, sw.read(rows))
    assert not any(mask.any() for mask in bad.values())
    pd.testing.assert_frame_equal(back.to_native(), rows)


def test_chains_are_undone_in_their_order():
    columns = [sw.Column(n, "integer", low=0, high=9) for n in "abc"]
    rules = (sw.Inequality("b", "c"), sw.Inequality("a", "b"), sw.Inequality("a", "c"))
    modelled = Modelled(sw.Schema(tuple(columns), rules))
    assert modelled.schema.names == ("a", "b - a", "c - b")
    rows = pd.DataFrame({"a": [0, 4], "b": [3, 4], "c": [3, 9]})
    inside = modelled.inside(sw.read(rows))
    assert inside.values("c - b").tolist() == [0, 5]
    back, _ = modelled.outside(inside, modelled.schema, sw.read(rows))
    pd.testing.assert_frame_equal(back.to_native(), rows)
    ring = (sw.Inequality("a", "b"), sw.Inequality("b", "a"))
    assert Modelled(sw.Schema(tuple(columns), ring)).schema.names == ("a", "b - a", "c")


def test_a_learned_column_may_not_have_a_declared_name():
    columns = [sw.Column(n, "integer", low=0, high=9) for n in ("a", "b", "b - a")]
    with pytest.raises(SchemaError, match="learn a column 'b - a'"):
        _ = Modelled(sw.Schema(tuple(columns), (sw.Inequality("a", "b"),))).schema


def test_constraints_of_sdv_are_mapped_or_named(caplog):
    metadata = {
        "columns": {n: {"sdtype": "numerical"} for n in "abc"},
        "constraints": [
            {"constraint_class": "Range", "constraint_parameters": {
                "low_column_name": "a", "middle_column_name": "b", "high_column_name": "c",
                "strict_boundaries": True}},
            {"constraint_class": "OneHotEncoding", "constraint_parameters": {}},
        ],
    }  # fmt: skip
    found = sw.Schema.from_sdv(metadata).constraints
    assert found == (sw.Inequality("a", "b", strict=True), sw.Inequality("b", "c", strict=True))
    assert "OneHotEncoding" in caplog.text
    # As SDV's constraints describe themselves today; a range that does not say is strict.
    metadata["constraints"] = [
        {"class_name": "Inequality", "parameters": {
            "low_column_name": "a", "high_column_name": "b", "strict_boundaries": False,
            "table_name": None}},
        {"class_name": "Range", "parameters": {
            "low_column_name": "a", "middle_column_name": "b", "high_column_name": "c"}},
    ]  # fmt: skip
    rules = sw.Schema.from_sdv(metadata).constraints
    assert rules == (sw.Inequality("a", "b"), *found)
    metadata["constraints"] = [{"constraint_class": "Inequality"}]
    with pytest.raises(SchemaError, match="constraint Inequality lacks"):
        sw.Schema.from_sdv(metadata)


def test_rules_that_rows_keep_are_proposed_and_chance_is_not():
    rng = np.random.default_rng(0)
    towns = rng.integers(0, 6, 400)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, 400), unit="D")
    rows = pd.DataFrame({
        "town": [f"t{i}" for i in towns], "country": ["AT" if i < 2 else "DE" for i in towns],
        "noise": rng.integers(0, 3, 400), "start": day,
        "stop": day + pd.to_timedelta(rng.integers(0, 9, 400), unit="D"),
        "rare": np.arange(400) == 7,
    })  # fmt: skip
    found = proposed(sw.read(rows), sw.Schema.detect(rows).columns)
    assert [one.words for one in found] == [
        "fixed combinations of town, country", "start <= stop"
    ]  # fmt: skip
    assert len(found[0].rows) == 6
    assert all(one.from_data for one in found)
    assert proposed(sw.read(rows[:40]), sw.Schema.detect(rows[:40]).columns) == ()
    for times in (2, 3, 4):  # one file for several parties
        again = pd.concat([rows[["start", "stop"]]] * times, ignore_index=True)
        (found,) = proposed(sw.read(again), sw.Schema.detect(again).columns)
        assert found.words == "start <= stop"
