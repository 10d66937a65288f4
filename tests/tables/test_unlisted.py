"""A category that stands for values that are not listed is drawn in no table."""

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.tables import Column, Schema, Table
from siloweave.tables.constraints import FixedCombinations
from siloweave.tables.drawn import listed_instead
from siloweave.tables.schema import UNLISTED

TOWN = Column("town", "categorical", ("Bonn", "Ghent", UNLISTED), other=UNLISTED, missing=True)


def towns(bonn, ghent, others, gaps=0):
    values = np.array(["Bonn"] * bonn + ["Ghent"] * ghent + [UNLISTED] * others + [None] * gaps)
    missing = np.array([value is None for value in values])
    return Table.from_columns({"town": (values, missing), "x": (np.arange(len(values)), None)})


def test_listed_values_stand_there_by_their_shares_and_nothing_else_changes():
    rows = towns(300, 100, 4000, gaps=50)
    found = listed_instead(rows, Schema((TOWN,)), key=3)
    values = found.values("town")
    assert values[:400].tolist() == rows.values("town")[:400].tolist()
    assert found.missing("town").tolist() == rows.missing("town").tolist()
    assert set(values[400:4400]) == {"Bonn", "Ghent"}
    assert (values[400:4400] == "Bonn").mean() == pytest.approx(0.75, abs=0.03)
    assert found.values("x").tolist() == rows.values("x").tolist()
    assert listed_instead(rows, Schema((TOWN,)), key=3).values("town").tolist() == values.tolist()
    none_listed = listed_instead(towns(0, 0, 200), Schema((TOWN,)), key=3).values("town")
    assert set(none_listed) == {"Bonn", "Ghent"}


def test_what_was_declared_asked_for_or_is_constrained_stays():
    rows = towns(3, 2, 5)
    declared = Column("town", "categorical", ("Bonn", "Ghent", "other"), other="other")
    mixed = Table.from_columns({"town": (np.array(["Bonn", "other"], object), None)})
    assert listed_instead(mixed, Schema((declared,)), key=0) is mixed
    assert listed_instead(rows, Schema((TOWN,)), key=0, kept=("town",)) is rows
    pairs = FixedCombinations(("town", "x"), ((UNLISTED, 1), ("Bonn", 2)))
    ruled = Schema((TOWN, Column("x", "integer", low=0, high=9)), (pairs,))
    assert listed_instead(rows, ruled, key=0) is rows


def test_no_postcode_is_drawn_that_is_no_postcode():
    random = np.random.default_rng(0)
    codes = np.minimum(random.geometric(0.01, 4000), 600)
    frame = pd.DataFrame({"town": [f"town {code}" for code in codes], "x": codes % 3})
    schema = Schema.detect(frame, max_categories=20)
    assert "the 19 most frequent are listed, and" in schema["town"].why
    for fitted in (
        sw.AIM().fit(frame, schema, budget=sw.Budget(epsilon=8.0, delta=1e-6)),
        sw.GaussianCopula().fit(frame, schema),
    ):
        drawn = fitted.sample(500, seed=1)
        assert set(drawn["town"]) <= set(schema["town"].categories) - {UNLISTED}
        asked = fitted.sample(20, seed=1, given={"town": UNLISTED})
        assert set(asked["town"]) == {UNLISTED}
