"""`sample(missing=False)`: rows of the model given that no value is missing."""

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.errors import InputError
from siloweave.tables import Column, Schema

COLUMNS = (
    Column("age", "integer", low=0, high=49, missing=True),
    Column("side", "categorical", ("x", "y"), fallback="y"),
    Column("size", "continuous", low=-5.0, high=5.0, missing=True),
)


def frame(rows=3000):
    rng = np.random.default_rng(0)
    made = pd.DataFrame(
        {
            "age": rng.integers(0, 50, rows).astype(float),
            "side": rng.choice(["x", "y"], rows),
            "size": rng.normal(size=rows).clip(-4, 4),
        }
    )
    made.loc[rng.random(rows) < 0.4, "age"] = np.nan
    made.loc[(made["side"] == "x") & (rng.random(rows) < 0.6), "size"] = np.nan
    return made


def fitted(method, rules=(), rows=None):
    budget = {"budget": sw.Budget(20.0, 1e-6)} if isinstance(method, sw.AIM) else {}
    return method.fit(frame() if rows is None else rows, Schema(COLUMNS, rules), seed=0, **budget)


@pytest.fixture(scope="module", params=["graphical model", "generator", "with a constraint"])
def model(request):
    if request.param == "generator":
        return fitted(sw.GaussianCopula())
    rules = (sw.MissingTogether(("age", "size")),) if "constraint" in request.param else ()
    rows = frame()
    if rules:
        rows[["age", "size"]] = rows[["age", "size"]].where(rows["age"].notna(), np.nan)
        rows = rows[rows["age"].isna() == rows["size"].isna()].reset_index(drop=True)
    return fitted(sw.AIM(bins=8, workload=[("side", "size"), ("side", "age")]), rules, rows)


def test_rows_are_complete_and_as_many_as_asked(model):
    drawn = model.sample(1500, seed=1, missing=False)
    assert drawn.notna().all().all()
    assert len(drawn) == 1500
    pd.testing.assert_frame_equal(drawn, model.sample(1500, seed=1, missing=False))
    assert model.sample(1500, seed=1).isna().any().any()


def test_complete_rows_have_conditions_too(model):
    drawn = model.sample(60, seed=1, missing=False, given={"side": "x"})
    assert drawn.notna().all().all()
    assert set(drawn["side"]) == {"x"}
    assert sorted(model.sample(60, missing=False, balanced="side")["side"].value_counts()) == [
        30,
        30,
    ]


@pytest.mark.parametrize(
    "method", [sw.AIM(bins=8, workload=[("side", "size")]), sw.GaussianCopula()]
)
def test_they_follow_the_model_given_that_no_value_is_missing(method):
    drawn = fitted(method).sample(3000, seed=1, missing=False)
    real = (frame().dropna()["side"] == "x").mean()
    assert (frame()["side"] == "x").mean() > real + 0.15  # what a wrong draw would have
    assert (drawn["side"] == "x").mean() == pytest.approx(real, abs=0.05)


def test_a_value_that_is_given_as_missing_is_refused(model):
    with pytest.raises(InputError, match="'age' is to be missing"):
        model.sample(5, missing=False, given={"age": None})


def test_a_column_without_any_value_is_named():
    rows, schema = frame(300), Schema((*COLUMNS, Column("note", "boolean", missing=True)))
    rows["note"] = None
    with pytest.raises(InputError, match="'note' is missing in every row"):
        sw.GaussianCopula().fit(rows, schema, seed=0).sample(5, missing=False)
