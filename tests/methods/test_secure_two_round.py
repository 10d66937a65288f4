"""SecureTwoRound says why columns of different parties stay apart, where they do."""

import logging

import numpy as np
import pytest

import siloweave as sw

ROOM = 0.0065  # megabytes: two pairs of twenty codes each, and no third


def warned(caplog, *, epsilon=50.0, parties=2, **settings):
    """What is said of four columns in two halves: equal in each, and half of the rows alike."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 20, 3000)
    c = np.where(rng.random(3000) < 0.5, a, rng.integers(0, 20, 3000))
    columns = {"a": a, "b": a, "c": c, "d": c}
    schema = sw.Schema(
        tuple(sw.Column(n, "categorical", categories=tuple(range(20))) for n in columns)
    ).with_fallbacks()
    table = sw.Table.from_columns({name: (one, None) for name, one in columns.items()})
    parts = [table] if parties == 1 else [table.select(["a", "b"]), table.select(["c", "d"])]
    noise = "seeded" if epsilon > 1e-3 else "os"  # which is not wide enough
    budget = sw.Budget(epsilon, 1e-5, relation=sw.Relation.REPLACE_ONE)  # so that no row is added
    with caplog.at_level(logging.WARNING, "siloweave"):
        fitted = sw.SecureTwoRound(final_sweeps=2, **settings).fit(
            parts, schema, budget=budget, seed=0, noise=noise
        )
    assert (fitted.settings["joint_tables"] == 0) == bool(caplog.text) or parties == 1
    return caplog.text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_model_mb": ROOM}, "max_model_mb = 0.0065 has no room for tables of columns of two"),
        ({"epsilon": 0.01}, "at epsilon = 0.01 no table of columns of two parties was worth its"),
        (
            {"epsilon": 2e-4},
            "epsilon = 0.0002 is too small for tables of columns of several",
        ),
        (
            {"workload": [("a", "b"), ("c",), ("d",)]},
            "the workload names no columns of two parties",
        ),
    ],
)
def test_why_columns_of_two_parties_stay_apart_is_said(settings, said, caplog):
    text = warned(caplog, **settings)
    assert said in text
    assert text.count("WARNING") == 1
    assert ("×" in text) == ("max_model_mb" in settings)


@pytest.mark.parametrize("settings", [{}, {"parties": 1}])
def test_nothing_is_said_where_they_are_measured_or_there_is_one_party(settings, caplog):
    assert warned(caplog, **settings) == ""
