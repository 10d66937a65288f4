"""Rows of a graphical model that are given some of their columns, from Python."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from siloweave.app.sample import parse_given
from siloweave.errors import InputError, SchemaError
from siloweave.privacy.budget import Budget
from tests.synthesizers.cases import fit, pandas_frame, seeded
from tests.synthesizers.families import SYNTHESIZERS


@pytest.fixture(scope="module")
def fitted():
    return seeded("aim")


@pytest.mark.parametrize("name", SYNTHESIZERS)
def test_every_graphical_model_draws_what_is_given_to_the_letter(name):
    model = fit(name)
    rows = model.sample(
        20, given={"town": "Jena", "pay": 0.125, "visits": None}, balanced="member", seed=0
    )
    assert list(rows.columns) == list(model.schema.names)
    assert set(rows["town"]) == {"Jena"}
    assert rows["pay"].tolist() == [0.125] * 20
    assert rows["visits"].isna().all()
    assert rows["member"].sum() == 10


def test_a_frame_gives_each_row_its_own_and_its_empty_cells_are_free(fitted):
    wanted = pd.DataFrame({
        "town": ["Ulm", None, "Bonn", None] * 50,
        "age": pd.array([30, 40, None, None] * 50, dtype="Int64"),
    })  # fmt: skip
    rows = fitted.sample(given=wanted, seed=0)
    assert len(rows) == 200
    assert rows["town"][0::4].eq("Ulm").all()
    assert rows["town"][2::4].eq("Bonn").all()
    assert rows["age"][0::4].eq(30).all()
    assert rows["age"][1::4].eq(40).all()
    assert rows["town"][1::4].nunique() > 1
    assert rows["age"][3::4].nunique() > 1
    polars = fitted.sample(given=pl.from_pandas(wanted), seed=3)
    assert polars.equals(fitted.sample(given=wanted, seed=3))


def test_the_other_columns_follow_the_exact_conditional_distribution():
    fitted = seeded("aim", pandas_frame(600), budget=Budget(epsilon=500.0, delta=1e-5))
    table = fitted.model.mrf.marginal(("sex", "town"))
    expected = table[0] / table[0].sum()
    towns = fitted.sample(20_000, given={"sex": "f"}, seed=0)["town"]
    shares = towns.value_counts(normalize=True).reindex(["Ulm", "Bonn", "Jena", "elsewhere"])
    assert np.allclose(shares.fillna(0.0), expected, atol=0.001)
    free = fitted.model.mrf.marginal(("town",)) / fitted.model.mrf.total
    assert np.abs(free - expected).max() > 0.01  # else the check above says nothing


def test_many_different_rows_follow_the_conditional_distribution_too():
    fitted = seeded("aim", pandas_frame(600), budget=Budget(epsilon=500.0, delta=1e-5))
    rng = np.random.default_rng(0)
    count = 20_000
    wanted = pd.DataFrame({"sex": "f", "age": rng.integers(18, 91, count)})
    wanted["pay"] = rng.uniform(-3, 3, count)
    wanted["visits"] = rng.integers(0, 10, count)
    rows = fitted.sample(given=wanted, seed=0)
    for name in wanted:
        assert (rows[name] == wanted[name]).all()
    assert rows.equals(fitted.sample(given=wanted, seed=0))
    shares = fitted.predict_proba(wanted, "town")
    drawn = rows["town"].value_counts(normalize=True).reindex(list(shares)).fillna(0.0)
    assert np.allclose(drawn, shares.mean(), atol=0.02)
    free = fitted.model.mrf.marginal(("town",)) / fitted.model.mrf.total
    assert np.abs(free - shares.mean()).max() > 0.02  # else the check above says nothing


def test_the_command_line_draws_the_same_rows(fitted):
    asked = parse_given(["age=40", "sex="], fitted.schema)
    drawn = fitted.sample_table(12, seed=5, given=asked, balanced="town").to_native()
    rows = fitted.sample(12, given={"age": 40, "sex": None}, balanced="town", seed=5)
    pd.testing.assert_frame_equal(drawn, rows)


@pytest.mark.parametrize(
    ("error", "words", "wanted"),
    [
        (InputError, "given names 'height', and rows can be given only sex", {"height": 3}),
        (InputError, "'town' has several values", {"town": ["Ulm", "Bonn"]}),
        (SchemaError, "given: column 'age': 1 row is outside its bounds", {"age": 120}),
        (
            SchemaError,
            "'town': 'Rome' is not one of its categories; choose from 'Ulm', 'Bonn'",
            {"town": "Rome"},
        ),
        (
            SchemaError,
            "'member': 'yes' is not one of its categories; choose from False, True",
            {"member": "yes"},
        ),
        (SchemaError, "'age' has no missing values", {"age": None}),
        (InputError, "num_rows=5, but given has 60 rows", pandas_frame()[["sex"]]),
    ],
)
def test_what_cannot_be_given_is_named(fitted, error, words, wanted):
    with pytest.raises(error, match=words):
        fitted.sample(5, given=wanted, seed=0)


@pytest.mark.filterwarnings("error")
def test_a_time_with_a_zone_is_given_without_a_warning(fitted):
    time = pd.Timestamp("2021-06-01 02:00", tz="Europe/Berlin")
    for value in (time, time.to_pydatetime()):
        rows = fitted.sample(3, given={"seen": value}, seed=0)
        assert set(rows["seen"]) == {pd.Timestamp("2021-06-01")}


def test_what_cannot_be_balanced_is_named(fitted):
    with pytest.raises(InputError, match="balanced='pay' is no column of classes"):
        fitted.sample(5, balanced="pay", seed=0)
    with pytest.raises(InputError, match="balanced=True needs a target"):
        fitted.sample(5, balanced=True, seed=0)
    with pytest.raises(InputError, match="given and balanced both name 'sex'"):
        fitted.sample(5, given={"sex": "f"}, balanced="sex", seed=0)
    for tries in (0, 2.5, "9", True):
        with pytest.raises(InputError, match=r"tries=.* must be a whole number, 1 or more"):
            fitted.sample(5, given={"sex": "f"}, tries=tries)


def test_no_rows_and_nothing_given_are_drawn_too(fitted):
    assert len(fitted.sample(0, given={"sex": "f"}, seed=0)) == 0
    assert len(fitted.sample(7, given={}, seed=0)) == 7
