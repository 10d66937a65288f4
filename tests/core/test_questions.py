"""What a fit answers besides rows: missing cells, probabilities of rows, predictions."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siloweave as sw
from siloweave.errors import InputError, QuestionError, SchemaError
from siloweave.protocols.columns import DrawnRows
from siloweave.tables import Column, Schema
from siloweave.tables.table import Table

SCHEMA = Schema(
    (
        Column("sex", "categorical", ("f", "m"), missing=True),
        Column("town", "categorical", ("Ulm", "Bonn", "else"), other="else"),
        Column("age", "integer", low=0, high=9),
        Column("flag", "boolean"),
        Column("who", "id"),
    )
).with_fallbacks()
BUDGET = sw.Budget(epsilon=100.0, delta=1e-6)


def frame(rows=2000, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, rows)
    town = np.where(rng.random(rows) < 0.5 + 0.3 * sex, "Ulm", "Bonn")
    age = np.clip(rng.poisson(2 + 3 * sex), 0, 9)
    flag = rng.random(rows) < np.where(age > 3, 0.8, 0.1)
    gone = rng.random(rows) < np.where(flag, 0.5, 0.1)
    return pd.DataFrame(
        {
            "sex": pd.Series(np.where(gone, None, np.array(["f", "m"])[sex]), dtype="str"),
            "town": town,
            "age": age,
            "flag": flag,
            "who": np.arange(rows),
        }
    )


def aim(data=None, schema=SCHEMA, **named):
    settings = {"bins": 5, "workload": [("sex", "age"), ("town", "sex"), ("age", "flag")], **named}
    method = sw.AIM(**settings)
    return method.fit(frame() if data is None else data, schema, budget=BUDGET, seed=0)


@pytest.fixture(scope="module")
def model():
    return aim()


@pytest.fixture(scope="module")
def every_row():
    """All rows that the schema allows."""
    parts = [["f", "m", None], ["Ulm", "Bonn", "else"], range(10), [False, True]]
    return pd.DataFrame(itertools.product(*parts), columns=["sex", "town", "age", "flag"])


@pytest.fixture(scope="module")
def drawn(model):
    return model.sample(40_000, seed=3)


def gaps_in(data, share=0.3, seed=1):
    mask = np.random.default_rng(seed).random(data.shape) < share
    kinds = {"age": "Int64", "flag": "boolean"}
    return data.astype(kinds).mask(pd.DataFrame(mask, columns=data.columns, index=data.index))


# Probabilities


def test_probabilities_of_all_rows_sum_to_1(model, every_row):
    assert np.exp(model.log_prob(every_row)).sum() == pytest.approx(1.0, abs=1e-9)


def test_rows_are_drawn_as_often_as_they_are_likely(model, every_row, drawn):
    def texts(rows):
        filled = rows[list(every_row.columns)].astype(object).fillna("")
        return filled.astype("str").agg("|".join, axis=1)

    expected = np.exp(model.log_prob(every_row)) * len(drawn)
    counts = texts(drawn).value_counts()
    seen = counts.reindex(texts(every_row)).fillna(0).to_numpy()
    assert seen.sum() == len(drawn)
    common = expected > 5.0
    chi_squared = ((seen - expected)[common] ** 2 / expected[common]).sum()
    assert chi_squared < common.sum() + 5.0 * np.sqrt(2.0 * common.sum())
    entropy = -(expected / len(drawn) * model.log_prob(every_row)).sum()
    assert -model.log_prob(drawn).mean() == pytest.approx(entropy, abs=0.02)


def test_what_is_unknown_or_left_out_is_summed_out(model, every_row):
    p = np.exp(model.log_prob(every_row))
    some = pd.DataFrame({"age": pd.array([4, None], dtype="Int64"), "sex": ["f", "f"]})
    women = (every_row["sex"] == "f").to_numpy()
    expected = [p[women & (every_row["age"] == 4)].sum(), p[women].sum()]
    assert np.allclose(np.exp(model.log_prob(some, blanks="unknown")), expected)
    blank = pd.DataFrame({"sex": [None, "f"]}, dtype="str")
    expected = [p[every_row["sex"].isna()].sum(), p[women].sum()]
    assert np.allclose(np.exp(model.log_prob(blank)), expected)
    assert np.allclose(np.exp(model.log_prob(blank, blanks="unknown")), [1.0, expected[1]])


def test_a_value_outside_the_schema_has_probability_0(model):
    rows = pd.DataFrame(
        {
            "sex": ["f", "x", "f", "f", "f", None],
            "town": ["Ulm", "Ulm", "Rome", "Ulm", "Ulm", None],
            "age": [3.0, 3.0, 3.0, 10.0, 2.5, np.nan],
        }
    )
    found = model.log_prob(rows)
    assert np.isfinite(found).tolist() == [True, False, True, False, False, False]
    # A town that is not listed counts as the other one; a missing one is unknown if asked so.
    assert found[2] == model.log_prob(rows.iloc[2:3].assign(town="else"))[0]
    assert model.log_prob(rows, blanks="unknown")[5] == 0.0


def test_a_continuum_has_a_density_that_integrates_to_1():
    schema = Schema((Column("x", "continuous", low=0.0, high=10.0), Column("flag", "boolean")))
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.beta(1, 6, 3000) * 10, "flag": rng.random(3000) < 0.5})
    data.loc[rng.random(3000) < 0.3, "x"] = 0.0  # has a bin of its own, and so a probability
    fitted = sw.AIM(bins=8).fit(data, schema.with_fallbacks(), budget=BUDGET, seed=0)
    places = (np.arange(20_000) + 0.5) / 2_000.0
    spike = np.exp(fitted.log_prob(pd.DataFrame({"x": [0.0]})))[0]
    rest = np.exp(fitted.log_prob(pd.DataFrame({"x": places}))).mean() * 10.0
    drawn = fitted.sample(20_000, seed=0)["x"]
    assert spike == pytest.approx((drawn == 0.0).mean(), abs=0.02)
    assert spike > 0.2
    assert spike + rest == pytest.approx(1.0, abs=0.01)


# Missing cells


def test_what_is_there_stays_and_what_is_missing_is_filled(model):
    holes = gaps_in(frame(300)[["town", "sex", "flag", "age"]])
    filled = model.impute(holes, seed=0)
    assert filled.notna().all().all()
    assert list(filled.columns) == list(holes.columns)
    assert (filled.dtypes == holes.dtypes).all()
    for name in holes:
        there = holes[name].notna()
        assert (filled[name][there] == holes[name][there]).all()
    pd.testing.assert_frame_equal(filled, model.impute(holes, seed=0))
    assert not filled.equals(model.impute(holes, seed=1))


def test_missing_cells_follow_the_conditional_distribution(model, every_row):
    count = 30_000
    asked = pd.DataFrame({"sex": [None] * count, "age": 5, "flag": [None] * count})
    filled = model.impute(asked.astype({"flag": "boolean", "sex": "str"}), seed=0)
    p = np.exp(model.log_prob(every_row))
    able = (every_row["age"] == 5) & every_row["sex"].notna()
    for sex, flag in itertools.product("fm", [False, True]):
        here = able & (every_row["sex"] == sex) & (every_row["flag"] == flag)
        expected = p[here].sum() / p[able].sum()
        seen = ((filled["sex"] == sex) & (filled["flag"] == flag)).mean()
        assert seen == pytest.approx(expected, abs=5.0 * np.sqrt(0.25 / count))
    # Else the check above could not tell whether what is known matters.
    free = p[every_row["sex"].notna() & every_row["flag"]].sum() / p[every_row["sex"].notna()].sum()
    assert abs(filled["flag"].mean() - free) > 0.1


def test_missing_cells_of_other_columns_count_as_missing_values(model, every_row):
    count = 20_000
    asked = pd.DataFrame({"sex": [None] * count, "flag": [None] * count})
    asked = asked.astype({"flag": "boolean", "sex": "str"})
    some = model.impute(asked, columns=["flag"], seed=0)
    assert some["sex"].isna().all()
    p = np.exp(model.log_prob(every_row))
    gone = every_row["sex"].isna()
    assert some["flag"].mean() == pytest.approx(
        p[gone & every_row["flag"]].sum() / p[gone].sum(), abs=0.02
    )
    assert abs(some["flag"].mean() - model.impute(asked, seed=0)["flag"].mean()) > 0.1


@pytest.mark.parametrize("index", [pd.Index([7, 3, 3, 9], name="patient"), [3, 2, 1, 0]])
@pytest.mark.filterwarnings("error")
def test_answers_have_the_index_of_a_frame_of_pandas(model, index):
    rows = gaps_in(frame(4)).set_axis(index)
    filled = model.impute(rows, seed=1)
    pd.testing.assert_index_equal(filled.index, rows.index)
    # Pandas matches rows by their labels: with other labels, other rows would be filled.
    in_order = model.impute(rows.reset_index(drop=True), seed=1)
    assert filled["sex"].tolist() == in_order["sex"].tolist()

    shares = model.predict_proba(rows, "sex")
    pd.testing.assert_index_equal(shares.index, rows.index)
    assert len(model.predict(rows, "age")) == len(model.log_prob(rows)) == 4


def test_odd_tables_are_imputed_too(model):
    whole = frame(5).dropna().reset_index(drop=True)
    pd.testing.assert_frame_equal(model.impute(whole), whole)
    assert len(model.impute(whole.iloc[:0])) == 0
    nothing = pl.DataFrame({name: [None] * 3 for name in ("sex", "town", "age", "flag")})
    filled = model.impute(nothing, seed=0)
    assert filled.null_count().sum_horizontal().item() == 0
    assert filled["age"].dtype.is_integer()
    arrow = model.impute(pa.table({"age": [None, 3], "town": ["Ulm", None]}), seed=0)
    assert isinstance(arrow, pa.Table)
    assert arrow["age"].to_pylist()[1] == 3


def test_a_file_keeps_its_spelling(model, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("who,age,flag,town,note\n007,03,1,Ulm,\n008,,0,,\n009, 4,,Bonn,\n")
    with pytest.raises(InputError, match="no column 'note'"):
        model.impute(path)
    path.write_text("who,age,flag,town\n007,03,1,Ulm\n008,,0,\n009, 4,,Bonn\n")
    filled = model.impute_table(path, seed=0)
    assert filled.cells("who").to_list() == ["007", "008", "009"]
    assert filled.cells("age").to_list()[0::2] == ["03", " 4"]
    assert filled.cells("age")[1] in [str(age) for age in range(10)]
    assert filled.cells("flag")[2] in ("0", "1")
    assert isinstance(model.impute(path), pd.DataFrame)


def test_a_value_that_stands_for_others_is_no_imputed_value():
    rng = np.random.default_rng(0)
    towns = rng.choice(["Ulm", "Bonn", "Rome", "Oslo"], 600, p=[0.3, 0.2, 0.3, 0.2])
    data = pd.DataFrame({"town": towns, "flag": rng.random(600) < 0.5})
    listed = ("Ulm", "Bonn", "__other__")
    columns = (
        Column("town", "categorical", listed, other="__other__", missing_values=("n/a",)),
        Column("flag", "boolean"),
    )
    fitted = aim(data, Schema(columns).with_fallbacks(), workload="auto")
    rows = pd.DataFrame({"town": ["n/a", "Oslo"] * 300, "flag": [True, False] * 300})
    filled = fitted.impute(rows, seed=0)
    assert set(filled["town"][0::2]) == {"Ulm", "Bonn"}
    assert set(filled["town"][1::2]) == {"Oslo"}
    shares = fitted.predict_proba(rows.head(2), "town")
    assert list(shares.columns) == list(listed)
    assert shares["__other__"][0] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("error", "words", "table", "columns"),
    [
        (InputError, "no column 'height'", {"height": [None]}, None),
        (InputError, "columns: 'sex' is no column of the model", {"age": [None]}, ["sex"]),
        (InputError, "columns='age' must be a list", {"age": [None]}, "age"),
        (SchemaError, "column 'age': 1 row is outside", {"age": [10], "sex": [None]}, None),
        (SchemaError, "column 'sex': 1 row holds none", {"age": [None], "sex": ["x"]}, None),
    ],
)
def test_what_cannot_be_imputed_is_named(model, error, words, table, columns):
    with pytest.raises(error, match=words):
        model.impute(pl.DataFrame(table), columns=columns)


# Predictions


def test_shares_are_those_of_the_model(model, every_row):
    p = np.exp(model.log_prob(every_row))
    asked = pd.DataFrame(
        {"age": pd.array([5, 1, None], dtype="Int64"), "town": ["Ulm", None, None], "flag": True}
    )
    found = model.predict_proba(asked, "sex")
    assert list(found.columns) == ["f", "m"]
    for row, (age, town) in enumerate([(5, "Ulm"), (1, None), (None, None)]):
        here = every_row["flag"] & every_row["sex"].notna()
        here &= True if age is None else every_row["age"] == age
        here &= True if town is None else every_row["town"] == town
        share = p[here & (every_row["sex"] == "m")].sum() / p[here].sum()
        assert found["m"][row] == pytest.approx(share)
    assert model.predict(asked, "sex").tolist() == [
        "m" if share > 0.5 else "f" for share in found["m"]
    ]


def test_a_mean_is_that_of_the_model(model, every_row):
    p = np.exp(model.log_prob(every_row))
    found = model.predict(pl.DataFrame({"flag": [True, False]}), "age")
    for flag, mean in zip([True, False], found, strict=True):
        here = (every_row["flag"] == flag).to_numpy()
        assert mean == pytest.approx((p * every_row["age"])[here].sum() / p[here].sum())


def test_a_target_in_the_table_is_not_looked_at(model):
    rows = frame(50)
    blind = model.predict_proba(rows.drop(columns="flag"), "flag")
    pd.testing.assert_frame_equal(model.predict_proba(rows, "flag"), blind)
    assert list(blind.columns) == ["False", "True"]
    assert np.allclose(blind.sum(axis=1), 1.0)
    assert (model.predict(rows, "flag") == (blind["True"] > 0.5)).all()


def test_missing_values_tell_something_if_they_are_taken_for_such(model):
    rows = pd.DataFrame({"sex": [None]}, dtype="str")
    unknown = model.predict_proba(rows, "flag")["True"][0]
    missing = model.predict_proba(rows, "flag", blanks="missing")["True"][0]
    assert missing > unknown + 0.1  # half of the flagged rows have no sex, a tenth of the others


def test_few_draws_tell_what_the_model_says(model):
    rows = pd.DataFrame({"age": [1, 8]})
    exact = model.predict_proba(rows, "flag")["True"].to_numpy()
    copula = sw.GaussianCopula().fit(frame(), SCHEMA)
    found = copula.predict_proba(rows, "flag", draws=300, seed=0)["True"].to_numpy()
    assert np.allclose(found, exact, atol=0.2)
    assert copula.predict(rows, "age", draws=3, seed=0).shape == (2,)
    assert copula.predict_proba(rows.iloc[:0], "flag").shape == (0, 2)
    with pytest.raises(InputError, match="draws=0"):
        copula.predict(rows, "flag", draws=0)


@pytest.mark.parametrize(
    ("words", "ask"),
    [
        ("target='height' is no column", lambda fit, rows: fit.predict(rows, "height")),
        ("target='who' is no column", lambda fit, rows: fit.predict(rows, "who")),
        ("'age' is a column of numbers", lambda fit, rows: fit.predict_proba(rows, "age")),
        ("blanks='none' must be", lambda fit, rows: fit.predict(rows, "age", blanks="none")),
        ("blanks='none' must be", lambda fit, rows: fit.log_prob(rows, blanks="none")),
        ("no column 'z'", lambda fit, rows: fit.log_prob(rows.assign(z=1))),
        ("no column 'z'", lambda fit, rows: fit.predict(rows.assign(z=1), "age")),
        ("column 'age': 2 rows are outside", lambda fit, r: fit.predict(r.assign(age=99), "flag")),
    ],
)
def test_what_cannot_be_asked_is_named(model, words, ask):
    with pytest.raises(InputError, match=words):
        ask(model, frame(2))


# Constraints


def with_rules():
    rng = np.random.default_rng(0)
    count = 1500
    low = rng.integers(0, 20, count)
    gap = rng.integers(0, 10, count)
    due = np.where(rng.random(count) < 0.5, rng.integers(0, 9, count), -1)
    data = pd.DataFrame(
        {
            "low": low,
            "high": low + gap,
            "sum": 2 * low + gap,
            "kind": np.where(due < 0, "no", "yes"),
            "due": pd.array(due, dtype="Int64"),
        }
    )
    data.loc[due < 0, "due"] = pd.NA
    schema = Schema(
        (
            Column("low", "integer", low=0, high=19),
            Column("high", "integer", low=0, high=30),
            Column("sum", "integer", low=0, high=49),
            Column("kind", "categorical", ("no", "yes")),
            Column("due", "integer", low=0, high=9, missing=True),
        ),
        (
            sw.Inequality("low", "high"),
            sw.ColumnSum(("low", "high"), "sum"),
            sw.MissingUnless(("due",), "kind", ("yes",), required=True),
        ),
    )
    return data, schema


@pytest.fixture(scope="module", params=["graphical model", "generator"])
def ruled(request):
    data, schema = with_rules()
    if request.param == "generator":
        return sw.GaussianCopula().fit(data, schema)
    return sw.AIM(bins=10).fit(data, schema.with_fallbacks(), budget=BUDGET, seed=0)


def test_imputed_rows_keep_the_constraints(ruled):
    data, _ = with_rules()
    rows = data.head(120).astype({"low": "Int64", "high": "Int64", "sum": "Int64"})
    rows["kind"] = rows["kind"].astype("str")
    rows.loc[0:29, "sum"] = pd.NA
    rows.loc[30:59, "high"] = pd.NA
    rows.loc[60:89, "kind"] = None
    rows.loc[90:119, "due"] = pd.NA
    filled = ruled.impute(rows, seed=0)
    assert (filled["sum"] == filled["low"] + filled["high"]).all()
    assert (filled["low"] <= filled["high"]).all()
    # A cell that has to be missing stays so, and only such a cell.
    assert (filled["due"].isna() == (filled["kind"] == "no")).all()
    for name in rows:
        there = rows[name].notna()
        assert (filled[name][there] == rows[name][there]).all()


def test_probabilities_under_constraints_are_refused_and_predictions_drawn(ruled):
    data, _ = with_rules()
    with pytest.raises(QuestionError, match="log_prob"):
        ruled.log_prob(data.head(2))
    rows = data.head(3)[["low", "high", "due"]]
    found = ruled.predict(rows, "sum", draws=2, seed=0)
    assert found.tolist() == (rows["low"] + rows["high"]).tolist()
    kinds = ruled.predict(rows, "kind", draws=5, seed=0, blanks="missing")
    assert kinds.tolist() == np.where(rows["due"].isna(), "no", "yes").tolist()


def test_combinations_formulas_and_gaps_that_belong_together_are_kept():
    rng = np.random.default_rng(0)
    count = 1200
    town = rng.integers(0, 3, count)
    start = rng.integers(0, 20, count).astype(float)
    start[rng.random(count) < 0.3] = np.nan
    data = pd.DataFrame(
        {
            "town": np.array(["Ulm", "Bonn", "Jena"])[town],
            "state": np.array(["BW", "NW", "TH"])[town],
            "start": start,
            "stop": np.where(np.isnan(start), np.nan, rng.integers(0, 30, count)),
            "pay": rng.integers(1, 9, count),
            "hours": rng.integers(1, 5, count),
        }
    )
    data["wage"] = data["pay"] * data["hours"]
    schema = Schema(
        (
            Column("town", "categorical", ("Ulm", "Bonn", "Jena")),
            Column("state", "categorical", ("BW", "NW", "TH")),
            Column("start", "integer", low=0, high=19, missing=True),
            Column("stop", "integer", low=0, high=29, missing=True),
            Column("pay", "integer", low=1, high=8),
            Column("hours", "integer", low=1, high=4),
            Column("wage", "integer", low=1, high=32),
        ),
        (
            sw.FixedCombinations(
                ("town", "state"), (("Ulm", "BW"), ("Bonn", "NW"), ("Jena", "TH"))
            ),
            sw.MissingTogether(("start", "stop")),
            sw.Computed("wage", "product", ("pay", "hours")),
        ),
    ).with_fallbacks()
    fitted = aim(data, schema, bins=8, workload="auto")
    holes = data.head(200).mask(rng.random((200, 7)) < 0.25)
    holes["wage"] = data["wage"].where(rng.random(count) < 0.5)
    holes[["pay", "hours"]] = data[["pay", "hours"]]
    holes.loc[holes["wage"].isna() & (holes["pay"] > 4), "hours"] = np.nan
    filled = fitted.impute(holes, seed=0)
    assert filled.notna().all().all()
    states = dict(zip(["Ulm", "Bonn", "Jena"], ["BW", "NW", "TH"], strict=True))
    assert (filled["town"].map(states) == filled["state"]).all()
    assert (filled["wage"] == filled["pay"] * filled["hours"]).all()
    for name in holes:
        there = holes[name].notna()
        assert (filled[name][there] == holes[name][there]).all()
    # Where both are taken for what they are, they stay missing.
    kept = fitted.impute(data.head(50).assign(town=None), columns=["town"], seed=0)
    assert (kept["start"].isna() == data["start"].head(50).isna()).all()
    assert (kept["town"] == data["town"].head(50)).all()


# Other models


def test_a_copula_draws_from_its_conditional_normal():
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], 4000).clip(-4, 4)
    schema = Schema(tuple(Column(name, "continuous", low=-5.0, high=5.0) for name in "xy"))
    fitted = sw.GaussianCopula(family="norm").fit(pd.DataFrame(z, columns=list("xy")), schema)
    given = np.repeat([-1.0, 1.5], 3000)
    filled = fitted.impute(pd.DataFrame({"x": given, "y": np.nan}), seed=0)
    assert (filled["x"] == given).all()
    for x in (-1.0, 1.5):
        own = filled["y"][filled["x"] == x]
        assert own.mean() == pytest.approx(0.8 * x, abs=0.06)
        assert own.std() == pytest.approx(0.6, abs=0.04)
    mean = fitted.predict(pd.DataFrame({"x": [1.5]}), "y", draws=100, seed=0)
    assert mean == pytest.approx([1.2], abs=0.3)  # five standard deviations


def test_a_target_that_is_always_missing_is_not_predicted():
    data = frame(200).assign(sex=pd.Series([None] * 200, dtype="str"))
    generator = sw.GaussianCopula().fit(data, SCHEMA)
    with pytest.raises(InputError, match=r"a missing value is likelier there\. Predict another"):
        generator.predict(data.head(2), "sex")
    with pytest.raises(
        InputError, match=r"Leave such cells missing \(columns=\), or raise tries=9"
    ):
        generator.impute(data.head(2), tries=9)


def test_a_model_without_a_formula_says_so():
    copula = sw.GaussianCopula().fit(frame(100), SCHEMA)
    with pytest.raises(QuestionError, match="has no formula"):
        copula.log_prob(frame(3))
    with pytest.raises(NotImplementedError):
        copula.log_prob(frame(3))


def test_rows_that_break_a_constraint_are_refused():
    data, schema = with_rules()
    fitted = aim(data, schema.with_fallbacks(), bins=10, workload="auto")
    wrong = pl.DataFrame({"low": [9], "high": [3], "sum": [None]})
    with pytest.raises(InputError, match="impute: "):
        fitted.impute(wrong, tries=1)


def test_rows_whose_decoders_are_elsewhere_are_not_asked(model):
    rows = model.sample_table(5, seed=0)
    far = replace(model, model=DrawnRows(5, SCHEMA, rows))
    with pytest.raises(InputError, match="impute: what decodes rows stays with the parties"):
        far.impute(pl.DataFrame({"sex": ["f"], "age": [None]}))
    with pytest.raises(InputError, match="predict: what decodes rows stays with the parties"):
        far.predict(pl.DataFrame({"sex": ["f"]}), "age")
    with pytest.raises(QuestionError, match="log_prob"):
        far.log_prob(frame(2))


def test_columns_that_stay_apart_are_not_asked(model):
    apart = replace(model, settings={**model.settings, "shared": False})
    for ask in (apart.impute, apart.log_prob, lambda t: apart.predict(t, "sex")):
        with pytest.raises(InputError, match="stay with their parties"):
            ask(frame(3))


def test_a_saved_fit_gives_the_same_answers(model, tmp_path):
    model.save(tmp_path / "fit")
    again = sw.load(tmp_path / "fit")
    rows = gaps_in(frame(40)[["sex", "town", "age", "flag"]])
    assert np.array_equal(again.log_prob(rows), model.log_prob(rows))
    pd.testing.assert_frame_equal(again.impute(rows, seed=2), model.impute(rows, seed=2))
    table = Table.from_columns({"age": (np.array([3]), None)})
    assert again.predict(table, "town").tolist() == model.predict(table, "town").tolist()
