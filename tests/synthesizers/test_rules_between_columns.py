"""Dates and times, gaps by a category, and computed columns: kept by what each kind of model draws.

`test_constraints.py` has every method with the constraints that were there before.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.core.method import Setup
from siloweave.errors import InputError, SchemaError
from siloweave.methods.registry import METHODS
from siloweave.tables import Encoder
from siloweave.tables.modelled import Modelled

COLUMNS = (
    sw.Column("born", "datetime", low="1920-01-01", high="2019-12-31"),
    sw.Column("came", "datetime", low="2020-01-01T00:00:00", high="2020-12-31T23:59:59"),
    sw.Column("left", "datetime", low="2020-01-01", high="2021-03-31"),
    sw.Column("age", "integer", low=0, high=110),
    sw.Column("stay", "integer", low=0, high=400),
    sw.Column("kg", "continuous", low=30, high=180, decimals=1, missing=True),
    sw.Column("cm", "integer", low=120, high=210, missing=True),
    sw.Column("bmi", "continuous", low=6, high=130, decimals=1, missing=True),
    sw.Column("sex", "categorical", categories=("f", "m")),
    sw.Column("pregnant", "categorical", categories=("no", "yes"), missing=True),
    sw.Column("week", "integer", low=1, high=42, missing=True),
)
RULES = (
    sw.Inequality("came", "left", most=60),
    sw.Computed("age", "years", ("born", "came")),
    sw.Computed("stay", "days", ("came", "left")),
    sw.MissingTogether(("kg", "cm", "bmi")),
    sw.Computed("bmi", "bmi", ("kg", "cm"), factor=10_000),
    sw.MissingUnless(("pregnant",), "sex", ("f",), required=True),
    sw.MissingUnless(("week",), "pregnant", ("yes",)),
)
SCHEMA = sw.Schema(COLUMNS, RULES).with_fallbacks()
LEARNED = ("born", "came", "left - came", "kg", "cm", "sex", "pregnant", "week")


def frame(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    born = pd.Timestamp("1920-01-01") + pd.to_timedelta(rng.integers(0, 36_000, rows), unit="D")
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 366, rows), unit="D")
    came = day + pd.to_timedelta(rng.integers(0, 1440, rows), unit="min")
    stay = rng.choice([0, 0, 1, 5], rows)
    birthday = (born.month * 100 + born.day) > (day.month * 100 + day.day)
    weighed = rng.random(rows) < 0.7
    kg, cm = rng.normal(75, 13, rows).clip(35, 170).round(1), rng.integers(140, 200, rows)
    female = rng.random(rows) < 0.5
    pregnant = female & (rng.random(rows) < 0.3)
    week = pd.Series(rng.integers(1, 43, rows), dtype="Int64")
    return pd.DataFrame({
        "born": born, "came": came, "left": day + pd.to_timedelta(stay, unit="D"),
        "age": np.asarray(day.year - born.year - birthday, dtype=np.int64), "stay": stay,
        "kg": pd.Series(kg).where(weighed), "cm": pd.Series(cm, dtype="Int64").where(weighed),
        "bmi": pd.Series((kg / (cm / 100) ** 2).round(1)).where(weighed),
        "sex": np.where(female, "f", "m"),
        "pregnant": pd.Series(np.where(pregnant, "yes", "no")).where(female),
        "week": week.where(pregnant & (rng.random(rows) < 0.8)),
    })  # fmt: skip


class Independent:
    """A model whose columns have nothing to do with each other."""

    def __init__(self, schema):
        self.schema = schema

    def rows(self, count):
        rng = np.random.default_rng(0)
        values = {}
        for column in self.schema.columns:
            gone = rng.random(count) < 0.6 if column.missing else None
            if column.options:
                drawn = np.array(column.options, object)[
                    rng.integers(0, len(column.options), count)
                ]
            elif column.kind == "datetime":
                ends = pd.to_datetime([column.low, column.high]).to_numpy().astype("datetime64[us]")
                span = int((ends[1] - ends[0]).astype(np.int64))
                drawn = ends[0] + rng.integers(0, span, count).astype("timedelta64[us]")
                drawn = drawn.astype("datetime64[D]") if len(column.low) == 10 else drawn
            elif column.kind == "integer":
                drawn = rng.integers(column.low, column.high + 1, count)
            else:
                drawn = rng.uniform(column.low, column.high, count).round(column.decimals)
            values[column.name] = drawn, gone
        return sw.Table.from_columns(values)


def broken(rows, schema=SCHEMA):
    found = Modelled(schema).broken(rows)
    assert len(found) == len(schema.constraints)
    return {words: int(wrong.sum()) for words, wrong in found.items() if wrong.any()}


@cache
def fitted(name):
    budget = {"budget": sw.Budget(10.0, 1e-6), "noise": "seeded"} if name == "aim" else {}
    return METHODS[name]().fit(frame(), SCHEMA, **budget, seed=0)


kinds = pytest.mark.parametrize("name", ["aim", "gaussian_copula"])


def test_the_real_rows_keep_the_rules_and_methods_learn_no_computed_column():
    table = sw.read(frame())
    assert broken(table) == {}
    assert Modelled(SCHEMA).schema.names == LEARNED
    assert set(Modelled(SCHEMA).inside(table).names) == set(LEARNED)


@kinds
def test_every_drawn_row_keeps_every_rule(name):
    drawn = fitted(name).sample_table(2_000, seed=0)
    assert broken(drawn) == {}
    same_day = (drawn.values("stay") == 0).mean()
    assert 0.3 < same_day < 0.7  # half of the real rows


def test_what_independent_columns_draw_keeps_the_rules():
    """No row has to be drawn again for a gap: what is missing is filled or blanked."""
    modelled = Modelled(SCHEMA)
    drawn = Independent(modelled.schema).rows(3_000)
    made, bad = modelled.outside(drawn, modelled.schema, None)
    assert not any(mask.any() for mask in bad.values())
    assert broken(made) == {}


@kinds
@pytest.mark.parametrize(
    "given",
    [
        {"week": 20}, {"pregnant": "yes"}, {"pregnant": None}, {"sex": "m"}, {"age": 40},
        {"stay": 5}, {"bmi": 25.0}, {"bmi": None}, {"left": pd.Timestamp("2020-06-01")},
    ],
    ids=str,
)  # fmt: skip
def test_rows_have_what_is_given_and_keep_the_rules(name, given):
    drawn = fitted(name).sample(30, given=given, seed=1)
    assert broken(sw.read(drawn)) == {}
    for column, value in given.items():
        assert drawn[column].isna().all() if value is None else (drawn[column] == value).all()


def test_a_fit_is_read_again_with_its_rules(tmp_path):
    fitted("gaussian_copula").save(tmp_path)
    again = sw.load(tmp_path)
    assert again.schema == fitted("gaussian_copula").schema
    pd.testing.assert_frame_equal(
        again.sample(50, seed=3), fitted("gaussian_copula").sample(50, seed=3)
    )


ODD = {
    "an age that is none": {"age": 7},
    "an age beyond its bounds": {"age": 500},
    "discharged before": {"left": pd.Timestamp("2020-01-01"), "stay": 3},
    "discharged years after": {"left": pd.Timestamp("2021-03-31")},
    "weighed without a height": {"cm": None},
    "another body mass": {"bmi": 99.9},
    "a pregnant man": {"sex": "m", "pregnant": "yes", "week": 4},
    "a woman of whom nothing is known": {"sex": "f", "pregnant": None, "week": 4},
    "nothing fits": {"born": None, "came": None, "left": None, "sex": "?"},
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["aim", "two_round", "dp_ctgan"])
def test_an_odd_row_under_a_guarantee_moves_itself_alone(name, odd):
    """What a party prepares of one row more differs by one row, in every column."""
    setup = Setup(METHODS[name](), SCHEMA, sw.Budget(epsilon=1.0, delta=1e-6), ("north",), {})
    row = frame(1, seed=9).astype(object)
    for column, value in ODD[odd].items():
        row[column] = value
    before, after = frame(40), pd.concat([frame(40).astype(object), row], ignore_index=True)
    counts = [prepared_counts(setup, table) for table in (before, after)]
    for old, new in zip(*counts, strict=True):
        assert (new - old).min() >= 0
        assert (new - old).sum() == 1


def prepared_counts(setup, table):
    inside = setup.modelled.inside(sw.read(table))
    assert set(inside.names) == set(LEARNED)
    prepared = setup.synth.method.prepare(inside, setup, "north")
    assert prepared is not None
    codes = Encoder(setup.schema, 16).encode(inside)
    return [
        np.bincount(codes.column(name), minlength=size)
        for name, size in zip(codes.domain.names, codes.domain.sizes, strict=True)
    ]


def test_the_owner_reads_how_many_rows_were_moved():
    table = frame(60)
    table.loc[[3, 5], "age"] = 109
    with pytest.warns(UserWarning, match="2 of 60 rows break age = years from born to came"):
        sw.AIM(degree=1).fit(table, SCHEMA, budget=sw.Budget(1.0, 1e-6))
    with pytest.raises(SchemaError, match=r"age = years .*: 2 of 60 rows break it \(rows 4, 6,"):
        sw.GaussianCopula().fit(table, SCHEMA.refusing())


def test_a_column_is_not_computed_from_another_partys():
    """Nobody has both sources before rows are drawn, and the one who has the result learns it."""
    table = frame(60)
    parts = {"north": table[["born", "sex"]], "south": table[["came", "age", "kg"]]}
    held = sw.Schema(
        tuple(SCHEMA[name] for name in ("born", "sex", "came", "age", "kg")), (RULES[1],)
    )
    budget = sw.Budget(1.0, 1e-6, relation=sw.Relation.REPLACE_ONE)
    words = "age = years from born to came: .* can be computed by none of them"
    with pytest.raises(InputError, match=words):
        sw.SecureTwoRound().fit(parts, held, budget=budget)


def test_columns_of_one_party_are_computed_there():
    table = frame(60)
    parts = {
        "north": table[["sex", "pregnant"]],
        "south": table[["came", "left", "stay", "born", "age"]],
    }
    names = [name for part in parts.values() for name in part]
    held = SCHEMA.select(names)
    assert len(held.constraints) == 4
    budget = sw.Budget(1.0, 1e-6, relation=sw.Relation.REPLACE_ONE)
    model = sw.SecureTwoRound().fit(parts, held, budget=budget, noise="seeded", seed=0)
    assert broken(model.sample_table(300, seed=0), held) == {}
