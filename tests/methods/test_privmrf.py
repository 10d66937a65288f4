"""PrivMRF on real rows: how near it comes, what its settings do, and what it refuses."""

from itertools import combinations
from math import nan

import numpy as np
import pytest

import siloweave as sw
from siloweave.datasets import adult, adult_schema
from siloweave.errors import CapacityError, InputError
from siloweave.methods.privmrf import coordinator
from siloweave.privacy.budget import Budget, Relation
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Codes, Domain, Encoder

BUDGET = Budget(1.0, 1e-6)
NAMES = ("workclass", "education", "marital-status", "occupation", "race", "sex", "income")


@pytest.fixture(scope="module")
def rows():
    """Categorical columns of the embedded Adult table."""
    schema = adult_schema()
    some = type(schema)(tuple(schema[name] for name in NAMES))
    return adult().select(list(NAMES)), some


def tvd(fitted, rows, schema, degree):
    codes = Encoder(schema, 16).encode(rows)
    gaps = [
        np.abs(fitted.model.mrf.marginal(q) / fitted.model.mrf.total
               - marginal(codes, q) / codes.num_rows).sum() / 2
        for q in combinations(codes.domain.names, degree)
    ]  # fmt: skip
    return float(np.mean(gaps))


@pytest.mark.parametrize("relation", list(Relation))
def test_triples_of_adult_are_near_and_nearer_for_more(rows, relation):
    """Independent columns are .09 off; one-ways alone are exact there."""
    table, schema = rows
    found = {
        epsilon: tvd(
            sw.PrivMRF().fit(
                table, schema, budget=Budget(epsilon, 1e-6, relation=relation), seed=0,
                noise="seeded",
            ), table, schema, 3,
        )
        for epsilon in (0.5, 8.0)
    }  # fmt: skip
    assert found[8.0] < 0.03 < found[0.5] < 0.12


def test_a_pair_that_no_query_holds_is_not_scored(rows, monkeypatch):
    table, schema = rows
    asked = []
    honest = coordinator.private_field

    def heard(answers, domain, pairs, *more, **named):
        asked.extend(pairs)
        return honest(answers, domain, pairs, *more, **named)

    monkeypatch.setattr(coordinator, "private_field", heard)
    workload = [("race", "sex", "income"), ("education",)]
    fitted = sw.PrivMRF(workload=workload).fit(table.take(range(500)), schema, budget=BUDGET)
    assert set(asked) == set(combinations(("race", "sex", "income"), 2))
    assert fitted.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-3)
    assert {q for q in fitted.model.mrf.potentials if "education" in q} == {("education",)}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scores_share": 0.0}, r"scores_share=0.0 must be a number in \(0, 0.5\)"),
        ({"errors_share": 0.5}, r"errors_share=0.5 must be a number in \(0, 0.5\)"),
        ({"theta": 0}, r"theta=0 must be a number in \(0, inf\)"),
        ({"theta": nan}, "theta=nan"),
        ({"size_penalty": -1e-8}, "size_penalty=-1e-08"),
        ({"clique_cells": 0.5}, r"clique_cells=0.5 must be a number in \[1, inf\)"),
        ({"graph_cells": "many"}, "graph_cells='many'"),
        ({"refined": -0.1}, "refined=-0.1"),
        ({"refine_steps": 0}, "refine_steps=0 must be a whole number, 1 or more"),
        ({"candidates": 2.5}, "candidates=2.5 must be a whole number"),
        ({"widest": True}, "widest=True must be a whole number"),
        ({"sweeps": 0}, "sweeps=0"),
        ({"final_sweeps": 0}, "final_sweeps=0"),
        ({"shrinkage": 0.0}, "shrinkage=0.0"),
        ({"bins": 0}, "bins=0"),
        ({"max_model_mb": -1}, "max_model_mb=-1"),
    ],
)
def test_a_wrong_setting_is_named(wrong, words):
    with pytest.raises(InputError, match=words):
        sw.PrivMRF(**wrong)


def test_a_query_that_does_not_fit_is_refused_before_anything_is_released(rows, tmp_path):
    table, schema = rows
    with pytest.raises(CapacityError, match="raise max_model_mb"):
        sw.PrivMRF(workload=[("education", "occupation")], max_model_mb=0.0005).fit(
            table, schema, budget=BUDGET, folder=tmp_path
        )
    assert not list(tmp_path.glob("parties/*/ledger.jsonl"))


def test_what_check_promises_of_memory_bounds_the_model(rows):
    """The graph grows to the limit, so that the forecast must assume that it does."""
    table, schema = rows
    for megabytes in (0.002, 0.02, 80.0):
        synth = sw.PrivMRF(max_model_mb=megabytes)
        fitted = synth.fit(table, schema, budget=Budget(20.0, 1e-6))
        cells = fitted.model.mrf.tree.cells
        assert 8e-6 * cells <= megabytes
        promised = synth.forecast(schema, rows=1, budget=BUDGET).memory_mb
        assert promised >= 230 + 8e-6 * cells


def test_what_a_coordinator_learns_of_rows_can_be_attacked(tmp_path):
    rng = np.random.default_rng(0)
    encoder = Encoder(sw.Schema(tuple(
        sw.Column(name, "categorical", categories=("x", "y")) for name in "abc"
    )).with_fallbacks(), 2)  # fmt: skip
    codes, others = (
        Codes(Domain(tuple("abc"), (2, 2, 2)), tuple(rng.integers(0, 2, (3, 60)))) for _ in "io"
    )
    sw.PrivMRF().fit(codes, encoder, budget=BUDGET, folder=tmp_path).save(tmp_path / "model")
    (exposure,) = sw.attack_run(tmp_path, codes, others, seed=0)
    assert exposure.risk is not None
