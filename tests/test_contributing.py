"""What CONTRIBUTING shows works as it stands there: a method, a measure, a carrier."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

import siloweave as sw
from siloweave.core.method import job_for
from siloweave.core.run import fit_parties, open_here
from siloweave.evaluate import scoring
from siloweave.evaluate.score_sheet import Heading
from siloweave.evaluate.scoring import Measure
from siloweave.federation.carriers.direct import Direct
from siloweave.tables import Column, Schema, Table
from tests.methods.direct.method import Direct as Counted

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def block(heading):
    """The code below a heading."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


def people(rows, seed, share=0.5):
    rng = np.random.default_rng(seed)
    return Table.from_columns(
        {"sex": (rng.choice(["f", "m"], rows, p=[share, 1 - share]), None),
         "age": (rng.integers(18, 90, rows), None)}
    )  # fmt: skip


SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m")),
        Column("age", "integer", low=18, high=90),
    )
).with_fallbacks()


def test_the_method_is_the_one_that_the_shared_suite_runs():
    file = ROOT / "tests/methods/direct/method.py"
    assert block("A new method") == file.read_text()


def test_the_methods_forecast_can_be_made():
    synth = Counted()
    budget = sw.Budget(epsilon=1.0, delta=1e-5)
    assert synth.forecast(SCHEMA, rows=100, budget=budget, parties=3).rounds > 0


def test_the_measure_is_scored_beside_its_ceiling_and_floor(monkeypatch):
    names = {"Measure": Measure, "Heading": Heading, "np": np}
    exec(block("A new measure"), names)
    listed = scoring._measures
    monkeypatch.setattr(scoring, "_measures", lambda key: [*listed(key), names["MEASURE"]])
    real, other = people(2_000, 0, 0.5), people(2_000, 1, 0.8)
    found = sw.score(real, other, schema=SCHEMA)
    assert found["largest share gap"].value == pytest.approx(0.3, abs=0.05)
    assert found["largest share gap"].ceiling < 0.05


def test_the_carrier_carries_a_whole_run():
    budget = sw.Budget(epsilon=4.0, delta=1e-5)
    names = {
        "time": time, "Direct": Direct, "open_here": open_here, "fit_parties": fit_parties,
        "job_for": job_for, "sw": sw, "parties": [people(200, i) for i in range(2)],
        "schema": SCHEMA, "budget": budget,
    }  # fmt: skip
    exec(block("A new carrier"), names)
    fitted = names["fitted"]
    assert fitted.epsilon <= 4.0
    assert len(fitted.sample(7)) == 7
