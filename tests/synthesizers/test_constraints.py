"""Whatever a method learned, every row that it draws keeps the constraints of the schema."""

import dataclasses
import re
from functools import cache

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

import siloweave as sw
from siloweave.app.report import record_of
from siloweave.core.conditional import UnseenValueError, Wanted
from siloweave.core.constrained import constrained_rows
from siloweave.errors import InputError, SchemaError
from siloweave.methods.registry import METHODS
from siloweave.tables import write
from siloweave.tables.modelled import Modelled
from tests.synthesizers.networked import fit_over_frames
from tests.synthesizers.processes import in_processes, opened_by
from tests.synthesizers.properties import check_like_the_frame
from tests.synthesizers.test_visibility import CASES, GRAPHICAL

TOWNS = (("Ulm", "DE", 89), ("Bonn", "DE", 53), ("Linz", "AT", 40), ("Graz", "AT", 80))
LONG = 10_000_000  # numbers among which 100,000 different ones are found


def schema(serials=LONG):
    return sw.Schema(
        (
            sw.Column("town", "categorical", categories=tuple(row[0] for row in TOWNS)),
            sw.Column("admission", "datetime", low="2020-01-01", high="2020-12-31"),
            sw.Column("country", "categorical", categories=("AT", "DE")),
            sw.Column("discharge", "datetime", low="2020-01-01", high="2021-01-31", missing=True),
            sw.Column("prefix", "integer", low=40, high=89),
            sw.Column("wage", "continuous", low=0.0, high=50.0, decimals=1),
            sw.Column("bonus", "continuous", low=0.0, high=20.0, decimals=1),
            sw.Column("pay", "continuous", low=0.0, high=60.0, decimals=1),
            sw.Column("status", "categorical", categories=("child", "adult")),
            sw.Column("age", "integer", low=0, high=99),
            sw.Column("test", "categorical", categories=("a", "b"), missing=True),
            sw.Column("result", "integer", low=0, high=30, missing=True),
            sw.Column("serial", "integer", low=0, high=serials),
        ),
        (
            sw.FixedCombinations(("town", "country", "prefix"), TOWNS),
            sw.Inequality("admission", "discharge", most=60),
            sw.ColumnSum(("wage", "bonus"), "pay"),
            sw.CategoryRanges("age", "status", (("child", 0, 17), ("adult", 18, None))),
            sw.MissingTogether(("test", "result")),
            sw.Unique(("serial",)),
        ),
    ).with_fallbacks()


def frame(rows=60, serials=LONG, seed=0):
    rng = np.random.default_rng(seed)
    towns = rng.integers(0, len(TOWNS), rows)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 366, rows), unit="D")
    stay = pd.to_timedelta(rng.integers(0, 30, rows), unit="D")
    gone, tested = rng.random(rows) < 0.2, rng.random(rows) < 0.6
    wage, bonus = rng.integers(0, 401, rows), rng.integers(0, 151, rows)
    adult = rng.random(rows) < 0.7
    ages = np.where(adult, rng.integers(18, 99, rows), rng.integers(0, 18, rows))
    return pd.DataFrame({
        "town": [TOWNS[i][0] for i in towns], "admission": day,
        "country": [TOWNS[i][1] for i in towns],
        "discharge": (day + stay).where(~gone), "prefix": [TOWNS[i][2] for i in towns],
        "wage": wage / 10, "bonus": bonus / 10, "pay": (wage + bonus) / 10,
        "status": np.where(adult, "adult", "child"), "age": ages,
        "test": pd.Series(rng.choice(["a", "b"], rows)).where(tested),
        "result": pd.Series(rng.integers(0, 31, rows), dtype="Int64").where(tested),
        "serial": rng.choice(serials + 1, rows, replace=False),
    })  # fmt: skip


def parts_of(split, table):
    """The table as a method wants it; columns of two constraints are at two parties."""
    if split == "central":
        return table
    if split == "rows":
        return [table[:20], table[20:40], table[40:]]
    cut = [
        "town",
        "country",
        "prefix",
        "admission",
        "discharge",
        "wage",
        "bonus",
        "pay",
        "age",
        "test",
    ]
    return {"north": table[cut], "south": table[[n for n in table.columns if n not in cut]]}


def fitted(name, serials=LONG, rows=60, **named):
    case = CASES[name]
    settings = {k: v for k, v in case.settings.items() if k not in ("workload", "target")}
    synth = METHODS[case.name](**settings)
    data = parts_of(synth.method.split, frame(rows, serials))
    # Seeded, since noise may crowd so few rows into values that are too few for unique ones.
    return synth.fit(data, schema(serials), **{"noise": "seeded"} | case.fit | named)


once = cache(fitted)
APART = {name for name, case in CASES.items() if case.settings.get("shared") is False}
SOONER = {*GRAPHICAL, "gaussian_copula", "silofuse"}
slow = pytest.mark.slow
together = [n if n in SOONER else pytest.param(n, marks=slow) for n in CASES if n not in APART]
each = pytest.mark.parametrize("name", together)
kinds = pytest.mark.parametrize("name", ["aim", "gaussian_copula"])


def broken(drawn, serials=LONG):
    """How many rows break each constraint, where any does."""
    found = Modelled(schema(serials)).broken(sw.read(drawn))
    assert len(found) == len(schema().constraints)
    return {words: int(wrong.sum()) for words, wrong in found.items() if wrong.any()}


class OnlyChildrenAreRight:
    """A model whose adults are 5 years old, and who draws adults first."""

    decoded_apart = True
    schema = sw.Schema(
        (
            sw.Column("status", "categorical", categories=("child", "adult")),
            sw.Column("age", "integer", low=0, high=99),
        ),
        (sw.CategoryRanges("age", "status", (("child", 0, 17), ("adult", 18, None))),),
    ).with_fallbacks()
    drawn = 0

    def draw(self, wanted, num_rows, like):
        status = "child" if self.drawn else "adult"
        self.drawn += wanted.num_rows
        return sw.Table.from_columns({
            "status": (np.full(wanted.num_rows, status, object), None),
            "age": (np.full(wanted.num_rows, 5), None),
        })  # fmt: skip


def test_half_the_tries_are_for_rows_of_any_category():
    model = OnlyChildrenAreRight()
    modelled = Modelled(model.schema)
    rows = constrained_rows(modelled, model, Wanted(300, 0), None, None)
    assert set(rows.values("status")) == {"child"}
    assert model.drawn <= 300 + 100 * 300


class AdultsWereNeverSeen(OnlyChildrenAreRight):
    """A model that draws adults at first, and refuses to be asked for one."""

    decoded_apart = False

    def draw(self, wanted, num_rows, like):
        if wanted.given is not None:
            raise UnseenValueError("given asks for column 'status' to be 'adult'")
        return super().draw(wanted, num_rows, like)


def test_a_category_that_a_model_draws_but_never_saw_is_not_asked_for():
    model = AdultsWereNeverSeen()
    rows = constrained_rows(Modelled(model.schema), model, Wanted(300, 0), None, None)
    assert set(rows.values("status")) == {"child"}


@each
def test_every_row_keeps_every_constraint(name):
    model = once(name)
    drawn = model.sample(300, seed=0)
    assert (len(drawn), broken(drawn)) == (300, {})
    pd.testing.assert_frame_equal(drawn, model.sample(300, seed=0))
    check_like_the_frame(drawn, 300, schema=schema(), dtypes=drawn.dtypes)
    assert model.schema.names == schema().names
    assert model.schema.constraints == schema().constraints


@slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in APART])
def test_100_000_rows_keep_every_constraint(name):
    drawn = once(name).sample(100_000, seed=0)
    assert (len(drawn), broken(drawn)) == (100_000, {})


@pytest.mark.parametrize("name", sorted(APART))
def test_columns_that_stay_apart_keep_no_constraint_on_both(name):
    with pytest.raises(InputError, match=r"range of age by status: .* stay apart"):
        fitted(name)


@slow
@pytest.mark.parametrize("name", sorted(APART))
def test_100_000_rows_of_columns_that_stay_apart_keep_combinations_of_one_party(name):
    case, towns = (
        CASES[name],
        sw.Schema(schema().columns, schema().constraints[:1]).with_fallbacks(),
    )
    settings = {k: v for k, v in case.settings.items() if k != "target"}
    fit = METHODS[case.name](**settings).fit(parts_of("columns", frame()), towns, **case.fit)
    drawn = sw.read(fit.sample_parts(100_000, seed=0)["north"])
    (wrong,) = Modelled(towns.select(drawn.names)).broken(drawn).values()
    assert (len(wrong), wrong.any()) == (100_000, False)


def test_parties_cannot_add_up_each_others_columns():
    table = frame()
    parts = {"north": table[["wage"]], "south": table.drop(columns="wage")}
    with pytest.raises(InputError, match=r"wage \+ bonus = pay: .* computed by none of them"):
        sw.SecureTwoRound().fit(
            parts, schema(), budget=sw.Budget(1.0, 1e-6, relation=sw.Relation.REPLACE_ONE)
        )


def test_combinations_of_two_parties_with_rare_numbers_are_refused_before_anything_is_paid():
    """Their numbers are drawn inside bins, and hardly one of them is in a combination."""
    prices = (30.5, 48.2, 60.1)
    frame = pd.DataFrame({"year": [1971, 1975, 1979] * 40, "price": prices * 40})
    year = sw.Column("year", "integer", low=1970, high=1980)
    price = sw.Column("price", "continuous", low=0, high=90, decimals=1)
    pairs = ((1971, prices[0]), (1975, prices[1]), (1979, prices[2]))
    rule = sw.FixedCombinations(("year", "price"), pairs)
    facts = sw.Schema((year, price), (rule,)).with_fallbacks()
    parts = {"north": frame[["year"]], "south": frame[["price"]]}
    with pytest.raises(InputError, match=r"of which 'price' may be many other numbers"):
        sw.SecureTwoRound().fit(
            parts, facts, budget=sw.Budget(9.0, 1e-6, relation=sw.Relation.REPLACE_ONE)
        )


GIVEN = {
    "one of a combination": {"prefix": 80},
    "all of it": {"town": "Graz", "country": "AT", "prefix": 80},
    "one that several have": {"country": "AT"},
    "the larger one": {"discharge": "2020-06-01"},
    "both": {"admission": "2020-05-01", "discharge": "2020-06-01"},
    "no discharge": {"discharge": None},
    "the smaller one": {"admission": "2020-05-01"},
    "the total": {"pay": 30.5},
    "the total and a part": {"pay": 30.5, "bonus": 1.5},
    "a number in a range": {"age": 7},
    "a category": {"status": "child"},
    "missing by the second": {"result": None},
    "there": {"result": 3},
    "of several": {"country": "DE", "discharge": "2020-03-01", "pay": 12.0, "test": None},
}


@kinds
@pytest.mark.parametrize("asked", GIVEN)
def test_rows_have_what_is_given_and_keep_constraints(name, asked):
    given = {k: pd.Timestamp(v) if k[:2] in ("ad", "di") and v else v
             for k, v in GIVEN[asked].items()}  # fmt: skip
    drawn = once(name).sample(40, given=given, seed=1)
    assert broken(drawn) == {}
    for column, value in given.items():
        found = drawn[column]
        assert found.isna().all() if value is None else (found == value).all(), column


@kinds
def test_every_row_of_a_frame_has_what_it_gives(name):
    asked = frame(30, seed=5)[["town", "discharge", "pay", "result"]]
    drawn = once(name).sample(given=asked, seed=1)
    assert broken(drawn) == {}
    for column in asked:
        there = asked[column].notna()
        assert (drawn[column][there] == asked[column][there]).all(), column


@kinds
def test_what_contradicts_a_constraint_is_refused_by_name(name):
    wrong = {
        "fixed combinations of town": {"town": "Ulm", "country": "AT"},
        "admission <= discharge": {
            "admission": pd.Timestamp("2020-05-02"), "discharge": pd.Timestamp("2020-05-01")
        },
        "range of age by status": {"age": 7, "status": "adult"},
        "missing together": {"test": "a", "result": None},
    }  # fmt: skip
    for words, given in wrong.items():
        with pytest.raises(InputError, match=words):
            once(name).sample(5, given=given, seed=0, tries=1)


@kinds
def test_classes_of_a_combination_can_be_balanced(name):
    drawn = once(name).sample(80, balanced="country", seed=0)
    assert drawn["country"].value_counts().tolist() == [40, 40]
    assert broken(drawn) == {}


@kinds
def test_a_fit_is_read_again_with_its_constraints(name, tmp_path):
    model = once(name)
    model.save(tmp_path)
    again = sw.load(tmp_path)
    assert again.schema == model.schema
    pd.testing.assert_frame_equal(again.sample(50, seed=3), model.sample(50, seed=3))


def test_repeated_rows_are_drawn_again_and_more_than_there_are_values_refused_at_once():
    budget = sw.Budget(epsilon=100.0, delta=1e-5)
    model = fitted("aim", serials=1_999, budget=budget, noise="seeded", seed=7)
    assert model.sample(1_500, seed=0)["serial"].is_unique
    with pytest.raises(InputError, match="2,000 combinations of values, and 2,001 rows"):
        model.sample(2_001)


def test_rows_that_hardly_ever_keep_a_constraint_are_an_error_that_names_it():
    plain = schema()
    rule = sw.CategoryRanges("age", "status", (("child", 3, 4), ("adult", 98, 99)))
    table = frame(40)
    table["age"] = np.where(table["status"] == "child", 3, 99)
    strict = sw.Schema(plain.columns, (rule,)).with_fallbacks()
    budget = sw.Budget(epsilon=1e-3, delta=1e-6)
    aim = sw.AIM(bins=3, workload=[("status",), ("age",)])
    # Seeded: of 20 seeds, one has so many rows that keep it that 5,000 are drawn.
    model = aim.fit(table, strict, budget=budget, noise="seeded", seed=2)
    with pytest.raises(InputError, match=r"range of age by status: .* rows that keep it are too"):
        model.sample(5_000, tries=1, seed=0)


def test_a_category_that_leaves_numbers_one_value_stays_as_frequent_as_it_is():
    """Numbers are drawn inside bins, so that no row of the category would have -9 in all."""
    rows, names = 3_000, [f"months_{i}" for i in range(8)]
    none = np.arange(rows) % 18 == 0
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"record": np.where(none, "none", "some")})
    for name in names:
        table[name] = np.where(none, -9, rng.integers(0, 97, rows))
    numbers = [sw.Column(name, "integer", low=-9, high=96) for name in names]
    record = sw.Column("record", "categorical", categories=("none", "some"))
    ranges = (("none", -9, -9), ("some", 0, None))
    rules = [sw.CategoryRanges(name, "record", ranges) for name in names]
    declared = sw.Schema((record, *numbers), tuple(rules)).with_fallbacks()
    budget = sw.Budget(epsilon=3.0, delta=1e-6)
    aim = sw.AIM(bins=4, counts_share=0.0)
    drawn = aim.fit(table, declared, budget=budget, noise="seeded").sample(seed=0)
    without_record = drawn[drawn["record"] == "none"]
    assert 0.045 < len(without_record) / len(drawn) < 0.065
    assert (without_record[names] == -9).all(axis=None)
    assert (drawn[drawn["record"] == "some"][names] >= 0).all(axis=None)


def test_combinations_that_are_left_open_are_learned_and_paid_for():
    plain = schema()
    rule = sw.FixedCombinations(("town", "country", "prefix"))
    declared = sw.Schema(plain.columns, (rule, *plain.constraints[1:])).with_fallbacks()
    table = frame(3_000)
    budget = sw.Budget(epsilon=4.0, delta=1e-5)
    model = sw.FLAIM(rounds=2, participation=1.0, bins=5).fit(
        [table[:1500], table[1500:]], declared, budget=budget, learn=0.3
    )
    assert set(model.schema.constraints[0].rows) == set(TOWNS)
    assert any("frequent values of town+country" in e.what for e in model.ledgers["party-1"])
    facts = [f for f in record_of(model, "a").schema_facts if f.kind == "constraint"]
    assert [f.how for f in facts] == ["paid", *["declared"] * (len(facts) - 1)]
    drawn = model.sample(200, seed=0)
    assert broken(drawn) == {}
    assert model.sample(5, given={"town": "Linz"}, seed=0)["prefix"].tolist() == [40] * 5


def test_open_combinations_need_something_that_learns_them():
    declared = sw.Schema(
        schema().columns, (sw.FixedCombinations(("town", "country")),)
    ).with_fallbacks()
    with pytest.raises(SchemaError, match=r"lists no combinations\. List them, or let a method"):
        sw.GaussianCopula().fit(frame(), declared)


def test_what_came_from_rows_and_nobody_reviewed_is_amber(tmp_path):
    taken = replace(schema().constraints[0], from_data=True)
    model = sw.AIM(bins=5, degree=1).fit(
        frame(), sw.Schema(schema().columns, (taken,)).with_fallbacks(), budget=sw.Budget(1.0, 1e-6)
    )
    page = sw.write_report(model, tmp_path / "a.html").read_text()
    assert (
        "Facts of 1 constraint were taken from the rows and paid by nobody (town + country" in page
    )
    assert not model.schema.declared().constraints[0].from_data


def test_rows_that_break_a_constraint_stop_a_fit_at_their_party():
    table = frame()
    table.loc[[3, 41], "pay"] += 1.0
    with pytest.raises(SchemaError, match=r"party 'party-3'.*1 of 19 rows break it \(row 1,"):
        sw.TwoRound().fit(
            parts_of("rows", table.drop(index=3).reset_index(drop=True)),
            schema().refusing(), budget=sw.Budget(1.0, 1e-6),
        )  # fmt: skip


@slow
def test_parties_in_processes_draw_the_same_rows(tmp_path):
    here = fitted("two_round", folder=tmp_path / "here", noise="seeded")
    with opened_by(in_processes):
        far = fitted("two_round", folder=tmp_path / "there", noise="seeded")
    pd.testing.assert_frame_equal(here.sample(50, seed=0), far.sample(50, seed=0))


@pytest.mark.parametrize("name", ["two_round", "secure_two_round"])
def test_a_run_with_constraints_is_attacked_from_its_coordinators_place(name, tmp_path):
    case = CASES[name]
    settings = {k: v for k, v in case.settings.items() if k != "workload"}
    synth, table = METHODS[name](**settings), frame(600)
    parts = parts_of("columns", table) if name != "two_round" else [table[:300], table[300:]]
    model = synth.fit(parts, schema(), folder=tmp_path, **case.fit)
    model.save(tmp_path / "model")
    data = parts if isinstance(parts, dict) else dict(zip(model.ledgers, parts, strict=True))
    found = sw.attack_run(tmp_path, data, frame(600, seed=1), targets=200)
    assert all(one.risk is not None for one in found)


def test_latents_of_a_run_with_constraints_are_inverted(tmp_path):
    case, parts = CASES["silofuse"], parts_of("columns", frame(200))
    settings = {k: v for k, v in case.settings.items() if k != "target"}
    model = METHODS["silofuse"](**settings).fit(parts, schema(), folder=tmp_path, **case.fit)
    model.save(tmp_path / "model")
    found = sw.invert_run(tmp_path, parts, known=20, pairs=100, most=100)
    columns = {c.name for c in found[0].leaked.columns}
    assert {"town+country+prefix", "discharge - admission"} <= columns


def test_settings_cannot_name_a_part_of_a_combination():
    budget = sw.Budget(1.0, 1e-6)
    with pytest.raises(InputError, match=r"'town', which is learned as a part of another"):
        sw.AIM(workload=[("town", "age")]).fit(frame(), schema(), budget=budget)
    with pytest.raises(SchemaError, match="an Encoder keeps no constraints"):
        sw.AIM().fit(frame(), sw.Encoder(schema()), budget=budget)


def test_a_report_says_that_drawn_rows_keep_constraints(tmp_path):
    model = once("aim")
    page = sw.write_report(model, tmp_path / "a.html", audience="owner", data=frame()).read_text()
    assert "admission &lt;= discharge, by at most 60: 0 of " in page
    assert "over the queries" in page


FAR = ("secure_two_round", "silofuse", "vertimrf", "vertigan", "e2e_distr", "silofuse with noise")


@pytest.mark.parametrize("name", [n if n in SOONER else pytest.param(n, marks=slow) for n in FAR])
def test_a_run_over_frames_draws_the_rows_of_one_process(name, tmp_path):
    """Constraints at one party and across two, and enough rows to be raked and drawn again."""
    plain = CASES[name]
    settings = {k: v for k, v in plain.settings.items() if k not in ("workload", "target")}
    data = parts_of("columns", frame(200))
    case = dataclasses.replace(plain, settings=settings, schema=schema(), data=lambda seed: data)
    here = case.synth.fit(data, schema(), noise="seeded", **case.fit)
    there, _ = fit_over_frames(case, tmp_path / "net", rows=300)
    texts = []
    for i, model in enumerate((here, there)):
        write(model.sample_table(300, seed=0), tmp_path / f"{i}.csv")
        texts.append((tmp_path / f"{i}.csv").read_text())
    assert texts[0] == texts[1]
    assert there.schema == here.schema
    assert broken(there.sample(300, seed=0)) == {}
    page = sw.write_report(there, tmp_path / "a.html").read_text()
    assert len(re.findall(r": 0 of [\d,]+ drawn rows break it", page)) == 6
