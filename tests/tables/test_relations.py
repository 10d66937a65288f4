"""Constraints that rows keep are proposed, with what was seen, and chance is not."""

import re

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.tables import Column, Table
from siloweave.tables.relations import proposed
from siloweave.tables.schema import Schema

ROWS = 400


def rules_of(frame, kind=None):
    """What is proposed, by kind; the schema is detected without constraints."""
    table = sw.read(frame)
    found = proposed(table, Schema.detect(table, constraints=False).columns)
    assert all(rule.from_data and rule.why for rule in found)
    return [rule for rule in found if kind is None or isinstance(rule, kind)]


def days(rng, first, count, rows=ROWS):
    return pd.Timestamp(first) + pd.to_timedelta(rng.integers(0, count, rows), unit="D")


def test_detect_proposes_what_is_found():
    rng = np.random.default_rng(0)
    came = days(rng, "2020-01-01", 300)
    frame = pd.DataFrame(
        {"came": came, "left": came + pd.to_timedelta(rng.integers(0, 9, ROWS), unit="D")}
    )
    detected = Schema.detect(frame)
    assert [rule.words for rule in detected.constraints] == ["came <= left"]
    assert detected.constraints == tuple(rules_of(frame))
    assert Schema.detect(frame, constraints=False).constraints == ()
    assert Schema.detect(frame, constraints=False).columns == detected.columns


def test_a_column_with_the_same_days_hides_no_order():
    rng = np.random.default_rng(0)
    came = days(rng, "2020-01-01", 300)
    left = came + pd.to_timedelta(rng.integers(0, 9, ROWS), unit="D")
    clock = came + pd.to_timedelta(rng.integers(0, 1440, ROWS), unit="min")
    frame = pd.DataFrame({"came": came, "left": left, "due": came, "clock": clock})
    rules = rules_of(frame, sw.Inequality)
    lows = {"came", "due", "clock"}
    assert {rule.words for rule in rules} == {f"{low} <= left" for low in lows}


def test_an_order_that_two_others_say_is_not_proposed():
    rng = np.random.default_rng(0)
    came = days(rng, "2020-01-01", 300)
    seen = came + pd.to_timedelta(rng.integers(0, 9, ROWS), unit="D")
    left = seen + pd.to_timedelta(rng.integers(0, 9, ROWS), unit="D")
    rules = rules_of(pd.DataFrame({"came": came, "seen": seen, "left": left}), sw.Inequality)
    assert [rule.words for rule in rules] == ["came <= seen", "seen <= left"]


@pytest.mark.parametrize("codes", [(0, 1), (False, True), ("no", "yes")])
def test_dummy_variables_of_a_category_are_fixed_combinations(codes):
    rng = np.random.default_rng(0)
    soil, area = rng.integers(0, 5, ROWS), rng.integers(0, 3, ROWS)
    marked = np.array(codes, dtype=object if isinstance(codes[0], str) else None)
    before = rng.integers(0, 2, ROWS)
    frame = pd.DataFrame(
        {"owned": marked[before]}
        | {f"soil {level}": marked[(soil == level).astype(int)] for level in range(5)}
        | {f"area {level}": marked[(area == level).astype(int)] for level in range(3)}
        | {"height": rng.normal(size=ROWS)}
    )
    rules = rules_of(frame, sw.FixedCombinations)
    assert [rule.columns for rule in rules] == [
        tuple(f"soil {level}" for level in range(5)),
        tuple(f"area {level}" for level in range(3)),
    ]
    assert [len(rule.rows) for rule in rules] == [5, 3]


@pytest.mark.parametrize("kind", ["number", "text"])
def test_a_category_and_its_dummy_variables_are_one_combination(kind):
    rng = np.random.default_rng(0)
    year, area = rng.integers(0, 5, ROWS), rng.integers(0, 3, ROWS)
    frame = pd.DataFrame(
        {"half": np.where(year < 2, "early", "late")}
        | {f"year {level}": (year == level).astype(int) for level in range(5)}
        | {"owned": rng.integers(0, 2, ROWS)}
        | {"year": year + 1994 if kind == "number" else [f"y{level}" for level in year]}
        | {f"area {level}": area == level for level in range(3)}
    )
    rules = rules_of(frame, sw.FixedCombinations)
    assert [rule.columns for rule in rules] == [
        ("half", *(f"year {level}" for level in range(5)), "year"),
        tuple(f"area {level}" for level in range(3)),
    ]
    assert [len(rule.rows) for rule in rules] == [5, 3]


def test_marks_that_a_row_has_twice_or_lacks_are_no_dummy_variables():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 4, ROWS)
    frame = pd.DataFrame({f"mark {level}": (levels == level).astype(int) for level in range(4)})
    assert len(rules_of(frame, sw.FixedCombinations)) == 1
    for row, value in ((7, 1), (8, 0)):
        changed = frame.copy()
        changed.loc[row] = value
        assert rules_of(changed, sw.FixedCombinations) == []


def test_numbers_with_decimals_that_repeat_are_decided_too():
    rng = np.random.default_rng(0)
    month = rng.integers(0, 6, ROWS)
    rates = np.array([1.1, -0.1, 0.25, 3.5, -1.8, 0.7])
    frame = pd.DataFrame({"month": [f"m{code}" for code in month], "rate": rates[month]})
    (rule,) = rules_of(frame, sw.FixedCombinations)
    assert rule.columns == ("month", "rate")
    assert ("m3", 3.5) in rule.rows


def test_what_was_seen_is_no_fact():
    rng = np.random.default_rng(0)
    came = days(rng, "2020-01-01", 300)
    frame = pd.DataFrame(
        {"came": came, "left": came + pd.to_timedelta(rng.integers(0, 9, ROWS), unit="D")}
    )
    detected = Schema.detect(frame)
    (rule,) = detected.constraints
    assert rule.why.startswith("came <= left in all 400 rows that have both, and 4")
    assert Schema.from_json(detected.to_json()) == detected
    for bare in (detected.without_reasons(), detected.declared()):
        assert bare.constraints[0].why == ""
    assert detected.without_reasons().constraints[0].from_data
    assert detected.digest() == detected.without_reasons().digest()
    assert detected.differences(detected.declared()) == []


def test_a_time_is_in_order_with_the_date_of_its_day():
    rng = np.random.default_rng(0)
    due = days(rng, "2023-01-01", 300)
    early = pd.to_timedelta(rng.choice([0, 0, 1, 5], ROWS), unit="D")
    minutes = pd.to_timedelta(rng.integers(8 * 60, 23 * 60, ROWS), unit="min")
    text = (due - early + minutes).strftime("%Y-%m-%d %H:%M")
    frame = pd.DataFrame({"handed_in": text, "due": due.strftime("%Y-%m-%d")})
    assert [rule.words for rule in rules_of(frame)] == ["handed_in <= due"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("h", "min"), ("min", "h"), ("15min", "10min"), ("10min", "15min"), ("D", "h"), ("s", "D")],
)
def test_times_of_different_resolutions_are_in_order(first, second):
    rng = np.random.default_rng(0)
    came = days(rng, "2021-01-01", 300) + pd.to_timedelta(rng.integers(0, 86_400, ROWS), unit="s")
    left = came + pd.to_timedelta(rng.exponential(40, ROWS), unit="h")
    frame = pd.DataFrame({"came": came.floor(first), "left": left.floor(second)})
    detected = Schema.detect(frame)
    assert [rule.words for rule in detected.constraints] == ["came <= left"]
    declared = Schema(
        tuple(
            sw.Column(
                column.name, "datetime", resolution=column.resolution,
                low="2021-01-01", high="2022-12-31",
            )
            for column in detected.columns
        )
    )  # fmt: skip
    assert [rule.words for rule in proposed(sw.read(frame), declared.columns)] == ["came <= left"]
    reversed_order = frame.assign(left=frame["came"] - pd.Timedelta("4D"))
    assert [rule.words for rule in rules_of(reversed_order)] == ["left <= came"]


def test_birth_comes_before_death_though_unrelated_rows_seldom_break_it():
    rng = np.random.default_rng(0)
    rows = 300
    born = days(rng, "1920-01-01", 36_000, rows)
    died = born + pd.to_timedelta((rng.beta(6, 2, rows) * 33_000).astype(int), unit="D")
    gone = died > pd.Timestamp("2024-12-31")
    crossed = (born[~gone] > np.roll(died[~gone], 70)).mean()
    assert crossed < 0.05
    frame = pd.DataFrame({"born": born, "died": pd.Series(died).mask(gone)})
    assert [rule.words for rule in rules_of(frame)] == ["born <= died"]
    years = pd.DataFrame(
        {"born": born.year, "died": pd.Series(died.year, dtype="Int64").mask(gone)}
    )
    assert [rule.words for rule in rules_of(years)] == ["born <= died"]
    assert rules_of(frame.rename(columns={"born": "first", "died": "last"})) == []
    frame.loc[0, ["born", "died"]] = pd.Timestamp("2000-01-02"), pd.Timestamp("2000-01-01")
    assert rules_of(frame) == []


def test_numbers_that_are_no_years_need_a_name_in_common():
    rng = np.random.default_rng(0)
    low = rng.integers(0, 1000, ROWS)
    high = low + rng.integers(0, 500, ROWS)
    assert rules_of(pd.DataFrame({"rent": low, "wage": high})) == []
    found = rules_of(pd.DataFrame({"pay_low": low, "pay_high": high}))
    assert [rule.words for rule in found] == ["pay_low <= pay_high"]


def test_a_total_is_the_sum_of_two_columns_or_of_neighbours():
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 500, ROWS) for _ in range(3))
    frame = pd.DataFrame({
        "total": a + b + c, "drugs": a / 10, "x": rng.integers(0, 900, ROWS), "care": b / 10,
        "bill": (a + b) / 10, "p": a, "q": b, "r": c,
    })  # fmt: skip
    found = rules_of(frame, sw.ColumnSum)
    assert [(rule.parts, rule.total) for rule in found] == [
        (("p", "q", "r"), "total"), (("drugs", "care"), "bill"),
    ]  # fmt: skip
    assert found[1].why.startswith("drugs + care = bill in all 400 rows that have them")
    assert not rules_of(frame, sw.Inequality)  # each part is at most its total by the sum
    frame.loc[7, "bill"] += 0.1
    assert [rule.total for rule in rules_of(frame, sw.ColumnSum)] == ["total"]


def test_a_total_is_missing_where_a_part_is_or_is_no_sum():
    rng = np.random.default_rng(0)
    parts = pd.DataFrame(rng.integers(0, 500, (ROWS, 2)), columns=["a", "b"], dtype="Int64")
    parts.loc[rng.random(ROWS) < 0.3, "a"] = pd.NA
    parts.loc[rng.random(ROWS) < 0.3, "b"] = pd.NA
    kept = parts.assign(total=parts["a"] + parts["b"])
    assert [rule.words for rule in rules_of(kept, sw.ColumnSum)] == ["a + b = total"]
    filled = parts.assign(total=parts["a"].fillna(0) + parts["b"].fillna(0))
    assert rules_of(filled, sw.ColumnSum) == []


def test_a_part_that_is_nearly_always_0_makes_no_sum():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 500, ROWS)
    rare = np.where(np.arange(ROWS) % 50 == 0, 7, 0)
    frame = pd.DataFrame(
        {"gross": a, "fee": rare * np.arange(ROWS), "net": a + rare * np.arange(ROWS)}
    )
    assert rules_of(frame, sw.ColumnSum) == []


def test_columns_of_an_instrument_are_missing_together():
    rng = np.random.default_rng(0)
    there = rng.random(ROWS) < 0.4
    frame = pd.DataFrame({
        "age": rng.integers(0, 90, ROWS),
        "crp": pd.Series(rng.normal(5, 1, ROWS).round(1)).where(there),
        "lab_day": pd.Series(days(rng, "2020-01-01", 300)).where(there),
        "other": pd.Series(rng.normal(5, 1, ROWS).round(1)).where(rng.random(ROWS) < 0.4),
    })  # fmt: skip
    (rule,) = rules_of(frame)
    assert isinstance(rule, sw.MissingTogether)
    assert rule.columns == ("crp", "lab_day")
    lost = int((~there).sum())
    assert rule.why.startswith(f"crp and lab_day are missing together in {lost} of 400 rows")
    frame.loc[there.argmax(), "crp"] = None
    assert rules_of(frame) == []


@pytest.mark.parametrize("lost", [1, 9])
def test_a_few_gaps_in_the_same_rows_show_nothing(lost):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(0, 1, (ROWS, 2)).round(2), columns=["a", "b"])
    frame.loc[: lost - 1] = None
    assert rules_of(frame) == []


def test_columns_that_a_category_rules_out_are_named():
    rng = np.random.default_rng(0)
    event = rng.choice(["base", "month 3", "month 6"], ROWS)
    due = pd.Series(rng.normal(50, 9, ROWS).round(1)).where(event != "base")
    note = pd.Series(rng.integers(0, 900, ROWS), dtype="Int64").where(
        (event == "base") & (rng.random(ROWS) < 0.5)
    )
    frame = pd.DataFrame(
        {"event": event, "crp": due, "note": note, "x": rng.integers(0, 900, ROWS)}
    )
    assert [rule.words for rule in rules_of(frame)] == [
        "crp missing unless event is 'month 3' or 'month 6', and there where it is",
        "note missing unless event is 'base'",
    ]


def test_columns_are_named_that_another_instrument_rules_out():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, ROWS)
    frame = pd.DataFrame({
        "term": pd.Series(rng.choice(["rash", "fever"], ROWS)).where(kind == 1),
        "onset": pd.Series(days(rng, "2020-01-01", 300)).where(kind == 1),
        "weight": pd.Series(rng.normal(70, 9, ROWS).round(1)).where(kind == 0),
    })  # fmt: skip
    assert [rule.words for rule in rules_of(frame)] == [
        "missing together: term, onset", "weight missing unless term is missing",
    ]  # fmt: skip


def events_and_forms():
    """An export: a form and adverse events of one visit, and labs of two others."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 4, ROWS)
    return pd.DataFrame({
        "visit": np.where(kind < 2, "base", np.where(kind == 2, "month 3", "month 6")),
        "event": pd.Series(["adverse"] * ROWS).where(kind == 1),
        "sex": pd.Series(rng.choice(["f", "m"], ROWS)).where(kind == 0),
        "weight": pd.Series(rng.normal(70, 9, ROWS).round(1)).where(kind == 0),
        "onset": pd.Series(days(rng, "2020-01-01", 300)).where(kind == 1),
        "crp": pd.Series(rng.normal(5, 1, ROWS).round(1)).where(kind > 1),
    })  # fmt: skip


def test_a_visit_and_an_event_decide_together_which_rows_have_a_form():
    frame = events_and_forms()
    (rule,) = rules_of(frame, sw.FixedCombinations)
    assert rule.columns == ("visit", "event", "sex")
    assert set(rule.rows) == {
        ("base", None, "f"), ("base", None, "m"), ("base", "adverse", None),
        ("month 3", None, None), ("month 6", None, None),
    }  # fmt: skip
    drawn = sw.GaussianCopula().fit(frame, Schema.detect(frame)).sample(300, seed=0)
    has_form = (drawn["visit"] == "base") & drawn["event"].isna()
    assert (drawn["sex"].notna() == has_form).all()
    assert (drawn["weight"].notna() == has_form).all()
    assert (drawn["onset"].notna() == drawn["event"].notna()).all()


def test_a_form_with_columns_that_decide_each_other_is_one_combination_with_its_visit():
    frame = events_and_forms()
    frame["title"] = frame["sex"].map({"f": "Mrs", "m": "Mr"})
    frame["smokes"] = pd.Series(np.arange(ROWS) % 3 == 0).where(frame["sex"].notna())
    (rule,) = rules_of(frame, sw.FixedCombinations)
    assert rule.columns == ("visit", "event", "sex", "title")
    (together,) = (r for r in rules_of(frame, sw.MissingTogether) if "sex" in r.columns)
    assert together.columns == ("sex", "weight", "title", "smokes")


def test_one_row_without_its_form_leaves_a_visit_and_an_event_apart():
    frame = events_and_forms()
    frame.loc[frame["sex"].notna().argmax(), ["sex", "weight"]] = None
    assert rules_of(frame, sw.FixedCombinations) == []


def test_a_category_decides_a_range():
    rng = np.random.default_rng(0)
    sex, adult = rng.choice(["f", "m"], ROWS), rng.random(ROWS) < 0.7
    frame = pd.DataFrame({
        "sex": sex,
        "births": np.where(sex == "f", rng.integers(0, 9, ROWS), 0),
        "ward": np.where(adult, rng.choice(["surgery", "eyes"], ROWS), "children"),
        "age": np.where(adult, rng.integers(18, 95, ROWS), rng.integers(0, 18, ROWS)),
        "noise": rng.integers(0, 900, ROWS),
    })  # fmt: skip
    births, age = rules_of(frame, sw.CategoryRanges)
    assert (births.column, births.by, births.ranges) == ("births", "sex", (("m", 0, 0),))
    assert (age.column, age.by) == ("age", "ward")
    assert {r[0]: r[1:] for r in age.ranges} == {
        "children": (None, 17), "surgery": (18, None), "eyes": (18, None),
    }  # fmt: skip
    assert births.why.startswith("births is 0 where sex is 'm', in all ")
    frame.loc[adult.argmax(), "age"] = 3
    assert [rule.column for rule in rules_of(frame, sw.CategoryRanges)] == ["births"]


def test_ranges_of_days_are_described_as_days_and_all_of_them():
    rng = np.random.default_rng(0)
    cohort = rng.integers(0, 6, ROWS)
    day = np.datetime64("2020-01-01") + 100 * cohort + rng.integers(0, 90, ROWS)
    names = np.array(["first", "second", "third", "fourth", "fifth", "sixth"])
    frame = pd.DataFrame({"cohort": names[cohort], "day": day.astype("datetime64[s]")})
    (rule,) = rules_of(frame, sw.CategoryRanges)
    assert "T00:00:00" not in rule.why
    days_of_second = r"2020-0\d-\d\d to 2020-0\d-\d\d where cohort is 'second', "
    assert re.search(
        rf"day is at most 2020-03-\d\d where cohort is 'first', {days_of_second}", rule.why
    )
    assert all(f"is {name!r}" in rule.why for name in names.tolist())


def test_an_edge_with_many_rows_is_a_range_and_a_thin_end_is_none():
    rng = np.random.default_rng(0)
    rows = 8_000
    driver = rng.random(rows) < 0.5
    ages = np.where(driver, rng.integers(18, 60, rows), rng.integers(0, 60, rows))
    frame = pd.DataFrame({"licence": np.where(driver, "yes", "no"), "age": ages})
    (rule,) = rules_of(frame)
    assert (rule.column, rule.ranges) == ("age", (("yes", 18, None),))
    taller = pd.DataFrame({
        "sex": np.where(driver, "m", "f"),
        "height": np.rint(rng.normal(166, 6, rows) + 20 * driver).astype(int),
    })  # fmt: skip
    assert rules_of(taller) == []


@pytest.mark.parametrize("seed", range(5))
def test_unrelated_columns_of_every_kind_have_no_rule(seed):
    rng = np.random.default_rng(seed)
    rows = 300
    frame = pd.DataFrame({
        "day": days(rng, "2020-01-01", 300, rows), "date": days(rng, "2020-01-01", 300, rows),
        "town": rng.choice(list("abcdef"), rows), "sex": rng.choice(["f", "m"], rows),
        "n_low": rng.integers(0, 90, rows), "n_high": rng.integers(20, 120, rows),
        "scale": rng.integers(1, 25, rows), "money": rng.lognormal(5, 1, rows).round(2),
        "skewed": np.where(rng.random(rows) < 0.9, 0, rng.integers(1, 90, rows)),
        "gaps": pd.Series(rng.normal(0, 1, rows).round(2)).where(rng.random(rows) < 0.5),
        "holes": pd.Series(rng.normal(0, 1, rows).round(2)).where(rng.random(rows) < 0.9),
    })  # fmt: skip
    assert rules_of(frame) == []


def stays(rows=ROWS):
    """Persons, when they came and left, and what a hospital's program computes of it."""
    rng = np.random.default_rng(0)
    born = days(rng, "1930-01-01", 30_000, rows)
    came = days(rng, "2020-01-01", 1400, rows)
    nights = rng.integers(0, 40, rows)
    left = came + pd.to_timedelta(nights, unit="D")
    had_birthday = (came.month * 31 + came.day) >= (born.month * 31 + born.day)
    kilograms = rng.normal(75, 13, rows).round(1)
    centimetres = rng.normal(170, 9, rows).round()
    return pd.DataFrame({
        "born": born, "came": came, "left": left,
        "age": came.year - born.year - ~had_birthday, "stay": nights,
        "weeks": (nights / 7).round(2), "kg": kilograms, "cm": centimetres,
        "bmi": (kilograms / (centimetres / 100) ** 2).round(1),
        "unrelated": rng.integers(0, 40, rows),
    })  # fmt: skip


def test_columns_that_follow_from_others_are_named():
    found = rules_of(stays(), sw.Computed)
    assert [rule.words for rule in found] == [
        "age = years from born to came",
        "stay = days from came to left",
        "weeks = stay, divided by 7",
        "bmi = kg / cm squared, times 10000",
    ]
    assert found[0].why.startswith("age = years from born to came in all 400 rows that have them")


@pytest.mark.parametrize("name", ["age", "stay", "weeks", "bmi"])
def test_one_row_that_differs_leaves_a_computed_column_free(name):
    frame = stays()
    frame.loc[17, name] += 1
    found = [rule.column for rule in rules_of(frame, sw.Computed)]
    assert found == [other for other in ("age", "stay", "weeks", "bmi") if other != name]


def test_a_computed_column_is_missing_where_a_source_is_or_follows_from_none():
    frame = stays()
    lost = np.random.default_rng(1).random(ROWS) < 0.2
    frame["left"] = frame["left"].mask(lost)
    assert "stay" not in [rule.column for rule in rules_of(frame, sw.Computed)]
    frame["stay"] = frame["stay"].astype("Int64").mask(lost)
    rules = {rule.column: rule.words for rule in rules_of(frame, sw.Computed)}
    assert rules["stay"] == "stay = days from came to left"


def test_an_amount_is_one_product_and_no_ratio_besides():
    rng = np.random.default_rng(0)
    pieces, price = rng.integers(1, 30, ROWS), rng.integers(100, 3000, ROWS) / 100
    amount = (pieces * price).round(2)
    (rule,) = rules_of(pd.DataFrame({"pieces": pieces, "price": price, "amount": amount}))
    assert rule.words == "amount = pieces * price"
    share = pd.DataFrame({"ill": pieces, "seen": pieces + rng.integers(1, 400, ROWS)})
    share["per_cent"] = (share["ill"] / share["seen"] * 100).round(1)
    rules = [rule.words for rule in rules_of(share, sw.Computed)]
    assert rules == ["per_cent = ill / seen, times 100"]


def test_a_source_that_hardly_matters_makes_no_computed_column():
    """A factor that is nearly always 1 leaves a copy, which is no product."""
    rng = np.random.default_rng(0)
    pieces = np.where(np.arange(ROWS) % 50 == 0, np.arange(ROWS) % 7 + 1, 1)
    price = rng.integers(100, 3000, ROWS)
    frame = pd.DataFrame({"pieces": pieces, "price": price, "amount": pieces * price})
    assert rules_of(frame, sw.Computed) == []


def test_a_column_of_tiny_numbers_follows_from_no_other():
    """What floats lose is a share of its own numbers, and not of 1."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        name: np.exp(rng.normal(-40 * place, 1, ROWS)) for place, name in enumerate("abcdef", 1)
    })  # fmt: skip
    assert rules_of(frame, sw.Computed) == []
    frame["copy"] = frame["b"] * 1.8
    assert [rule.words for rule in rules_of(frame, sw.Computed)] == ["copy = b, times 1.8"]


def test_of_two_ways_to_round_the_simpler_factor_is_named():
    """What stands before the last three digits: rounded to the nearest, 1006 would do, too."""
    rng = np.random.default_rng(0)
    thousands = np.arange(ROWS) % 56 + 1
    pay = thousands * 1000 + rng.integers(0, 400 + 5 * thousands)
    found = rules_of(pd.DataFrame({"pay": pay, "thousands": thousands}), sw.Computed)
    assert [rule.words for rule in found] == ["thousands = pay, divided by 1000, rounded down"]


def two_units(rows=ROWS):
    """What exports have twice: in two units, with an offset, and dates with their parts."""
    rng = np.random.default_rng(0)
    came = days(rng, "2018-01-01", 1400, rows) + pd.to_timedelta(rng.integers(0, 1440, rows), "min")
    metres = rng.normal(1.7, 0.1, rows).round(3)
    celsius = rng.normal(37, 0.6, rows).round(1)
    age_days = rng.integers(0, 36_000, rows)
    pay = rng.lognormal(8, 1, rows).round(2)
    return pd.DataFrame({
        "inches": (metres * 100 / 2.54).round(1), "metres": metres,
        "came": came, "day": came.normalize(), "month": came.month, "quarter": came.quarter,
        "year": came.year, "celsius": celsius, "fahrenheit": (celsius * 1.8 + 32).round(1),
        "age_days": age_days, "age": age_days // 365, "born": 2024 - age_days // 365,
        "pay": pay, "pay again": pay, "dollars": (pay * 1.0852).round(2),
    })  # fmt: skip


def test_copies_and_other_units_are_named():
    found = rules_of(two_units(), sw.Computed)
    assert [rule.words for rule in found] == [
        "inches = metres, times 39.37",
        "day = came",
        "month = month of came",
        "quarter = quarter of came",
        "year = year of came",
        "fahrenheit = celsius, times 1.8, plus 32",
        "age = age_days, divided by 365, rounded down",
        "born = age, times -1, plus 2024",
        "pay again = pay",
        "dollars = pay, times 1.0852",
    ]
    # Nothing else is left to say of these columns, such as an order of a copy and its source.
    assert rules_of(two_units()) == found


@pytest.mark.parametrize("name", ["inches", "day", "fahrenheit", "born", "pay again"])
def test_one_row_that_differs_is_no_copy(name):
    frame = two_units()
    is_time = name == "day"
    frame.loc[17, name] += pd.Timedelta(days=1) if is_time else 1
    assert name not in [rule.column for rule in rules_of(frame, sw.Computed)]


@pytest.mark.parametrize("order", [("total", "a", "b"), ("a", "b", "total")])
def test_halves_and_their_sum_go_round_in_no_circle(order):
    half = np.random.default_rng(0).integers(0, 5000, ROWS)
    frame = pd.DataFrame({"a": half, "b": half, "total": half * 2})[list(order)]
    first, *others = order
    rules = rules_of(frame)
    assert [rule.columns for rule in rules] == [(first, other) for other in others]


def test_large_whole_numbers_that_differ_by_a_few_are_no_copies():
    """Such as milliseconds since 1970 of a request and of its answer."""
    rng = np.random.default_rng(0)
    request = rng.integers(1_600_000_000_000, 1_700_000_000_000, ROWS)
    frame = pd.DataFrame({"request_ms": request, "answer_ms": request + rng.integers(1, 900, ROWS)})
    assert rules_of(frame, sw.Computed) == []


def test_a_copy_is_missing_where_its_source_is():
    frame = two_units()[["celsius", "fahrenheit"]]
    lost = np.random.default_rng(1).random(ROWS) < 0.2
    frame["celsius"] = frame["celsius"].mask(lost)
    assert rules_of(frame, sw.Computed) == []
    frame["fahrenheit"] = frame["fahrenheit"].mask(lost)
    (rule,) = rules_of(frame, sw.Computed)
    assert rule.words == "fahrenheit = celsius, times 1.8, plus 32"


def test_whole_numbers_that_a_category_follows_too_stay_one_combination():
    """A group of columns is not torn apart for a copy of one of them."""
    rng = np.random.default_rng(0)
    exact = rng.normal(30, 9, ROWS).round(1)
    grade = np.floor(exact / 5).astype(int)
    frame = pd.DataFrame({"exact": exact, "grade": grade, "name": [f"grade {g}" for g in grade]})
    (rule,) = rules_of(frame, sw.FixedCombinations)
    assert rule.columns == ("grade", "name")
    assert rules_of(frame, sw.Computed) == []


@pytest.mark.parametrize("alone", [True, False])
def test_of_two_forms_exactly_one_is_filled(alone):
    rng = np.random.default_rng(0)
    first = rng.random(ROWS) < 0.4
    frame = pd.DataFrame({
        "age": rng.integers(0, 90, ROWS),
        "cause": pd.Series(rng.choice(["fall", "burn"], ROWS)).where(first),
        "day": pd.Series(days(rng, "2020-01-01", 300)).where(first),
        "crp": pd.Series(rng.normal(5, 1, ROWS).round(1)).where(~first),
        "lab_day": pd.Series(days(rng, "2020-01-01", 300)).where(~first),
    })  # fmt: skip
    if alone:
        frame = frame.drop(columns=["day", "lab_day"])
    dependent = ("crp",) if alone else ("crp", "lab_day")
    (rule,) = rules_of(frame, sw.MissingUnless)
    assert (rule.dependent, rule.by, rule.values, rule.required) == (
        dependent, "cause", (None,), True,
    )  # fmt: skip
    assert f"missing in all {first.sum()} rows that have a cause, and there in all" in rule.why
    fitted = sw.GaussianCopula().fit(frame, Schema.detect(frame))
    drawn = fitted.sample(200, seed=0)
    assert (drawn["cause"].isna() == drawn["crp"].notna()).all()
    frame.loc[np.flatnonzero(~first)[3], list(dependent)] = None
    rest = rules_of(frame, sw.MissingUnless)
    assert not any(rule.required for rule in rest)
    assert bool(rest) != alone  # two forms still rule each other out


def test_columns_of_a_wide_table_are_compared_with_their_neighbours(monkeypatch):
    low = np.arange(200) % 50
    columns = {}
    for number in range(6):
        columns[f"begin_{number}"] = (low + 7 * number, None)
        columns[f"end_{number}"] = (np.roll(low, number) % 3 + low + 7 * number, None)
    table = Table.from_columns(columns)
    declared = [Column(name, "integer", low=0, high=99) for name in columns]
    monkeypatch.setattr("siloweave.tables.relations.WIDE", 4)
    monkeypatch.setattr("siloweave.tables.relations.BLOCK", 2)
    blocks = [declared[start : start + 2] for start in range(0, 12, 2)]
    alone = [rule for block in blocks for rule in proposed(table, block)]
    assert list(proposed(table, declared)) == alone
