"""Whoever fits too few rows for a budget is warned, in a sentence; seeded noise is for tests."""

import warnings

import pandas as pd
import pytest

import siloweave as sw

SCHEMA = sw.Schema(
    (
        sw.Column("age", "integer", low=0, high=120),
        sw.Column("sex", "categorical", categories=("f", "m")),
    )
).with_fallbacks()
BUDGET = sw.Budget(epsilon=1.0, delta=1e-6)


def people(rows):
    return pd.DataFrame(
        {"age": [30 + i % 50 for i in range(rows)], "sex": ["f", "m"] * (rows // 2)}
    )


def warned_of(synth, data, **facts):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        synth.fit(data, SCHEMA, **{"budget": BUDGET, **facts})
    return [one for one in seen if "the noise is as large" in str(one.message)]


@pytest.mark.parametrize("rows", [2, 98])
def test_a_table_of_few_rows_is_warned_of_where_fit_is_called(rows):
    (warning,) = warned_of(sw.AIM(), people(rows))
    assert str(warning.message) == (
        f"the data have {rows} rows: at epsilon = 1 the noise is as large as any count of so few, "
        "so no table that is drawn from it can be useful. Use more rows"
    )
    assert warning.filename == __file__


def test_rows_of_all_parties_count():
    assert not warned_of(sw.TwoRound(), [people(50), people(50)])
    assert warned_of(sw.TwoRound(), [people(50), people(48)])


def test_people_whose_columns_are_split_count_once():
    table = people(60)
    (warning,) = warned_of(sw.SecureTwoRound(), [table[["age"]], table[["sex"]]])
    assert "the data have 60 rows" in str(warning.message)


def test_no_warning_without_a_guarantee_or_with_a_large_budget_or_seeded_noise():
    assert not warned_of(sw.GaussianCopula(), people(4), budget=None)
    assert not warned_of(sw.AIM(), people(20), budget=sw.Budget(epsilon=5.0, delta=1e-6))
    assert not warned_of(sw.AIM(), people(4), noise="seeded")
