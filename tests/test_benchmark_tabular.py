"""The benchmark of tables by TabSyn's protocol: its rows, its judges and its page."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import siloweave as sw

HERE = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def load(monkeypatch):
    """Import a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(HERE))
    return import_module


def linked(seed, rows, run):
    """A table of two numbers that go together and a class of both, ready to be judged."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    y = x + 0.3 * rng.normal(size=rows)
    side = np.array(["low", "high"], dtype=object)[(x + y > 0).astype(int)]
    table = sw.Table.from_columns({"x": (x, None), "y": (y, None), "side": (side, None)})
    schema = sw.Schema(
        (
            sw.Column("x", "continuous", low=-9.0, high=9.0),
            sw.Column("y", "continuous", low=-9.0, high=9.0),
            sw.Column("side", "categorical", categories=("high", "low")),
        )
    )
    train, test = table.take(range(rows // 4, rows)), table.take(range(rows // 4))
    return run.Prepared(schema, train, test, "side", True, (rows, rows))


def line(**changed):
    scores = dict.fromkeys(import_module("tabular_page").MEASURES, 50.0)
    made = {
        "table": "churn", "method": "tabddpm", "label": "", "seed": 0, "rows_asked": None,
        "train": 9000, "test": 1000, "rows": [10000, 10000], "columns": 11, "classes": True,
        "peer": False, "raked": True, "scores": scores, "as_drawn": {**scores, "XGB-C2ST": 40.0},
        "fit_seconds": 60.0, "fit_cpu": 90.0, "load": [1.0, 2.0], "commit": "abc1234",
        "machine": "2 cores",
    }  # fmt: skip
    return made | changed


def row_of(text, start):
    return [x.strip() for x in next(x for x in text.splitlines() if x.startswith(start)).split("|")]


def test_adult_has_its_own_split_and_other_tables_lose_a_tenth(load):
    run = load("tabular_run")
    adult = run.prepare("adult", HERE / "data")
    assert (adult.train.num_rows, adult.test.num_rows) == (32_561, 16_281)
    assert (adult.target, adult.classes) == ("income", True)
    first = [adult.train.values(name)[0] for name in ("age", "fnlwgt")]
    assert first == [39, 77516]
    few = run.prepare("adult", HERE / "data", 1_000)
    assert few.train.num_rows + few.test.num_rows == 1_000


def test_shuffled_columns_are_judged_worse_than_rows_of_the_same_source(load, monkeypatch):
    run = load("tabular_run")
    few = run.XGBOOST.__class__(20, 8, 0.2)
    for name in ("XGBOOST", "LIGHTGBM", "LONG"):
        monkeypatch.setattr(run, name, few)
    table = linked(0, 800, run)
    fresh = run.judged(table, linked(1, 800, run).train, seed=0)
    mixed = run.judged(table, run.shuffled(table.train, 0), seed=0)
    assert set(fresh) == set(load("tabular_page").MEASURES)
    for name in fresh:
        if name == "Shape":
            assert mixed[name] == pytest.approx(100)
        elif name in ("information error", "three-way"):
            assert mixed[name] > fresh[name] + 0.1
        elif name not in ("alpha-precision", "leak"):
            assert mixed[name] < fresh[name] - 0.1
    ceiling = run.bound({"method": run.CEILING, "seed": 0}, table)["scores"]
    assert "every column" not in ceiling
    assert "leak" not in ceiling
    assert ceiling["utility"] == pytest.approx(fresh["utility"], abs=0.03)


def test_a_class_that_was_not_learnt_counts_a_half(load):
    area = load("tabular_run").mean_area
    truth = np.array([0, 0, 1, 1])
    assert area(truth, {1: np.array([0.1, 0.2, 0.8, 0.9])}) == 1
    assert area(truth, {0: np.ones(4)}) == 0.5
    three = np.array([0, 1, 2])
    assert area(three, {0: np.array([1, 0, 0]), 1: np.array([0, 1, 0])}) == pytest.approx(2.5 / 3)


def test_a_page_without_runs_says_so(load, tmp_path):
    text = load("tabular_page").page(tmp_path)
    assert text.count("Not run.") == 8
    assert "0 of 240 runs are there" in text
    assert "Not run." in load("detector_agreement").page(tmp_path)


def test_a_page_shows_raked_rows_rows_as_drawn_and_what_was_not_run(load, tmp_path):
    rows = [line(), line(seed=1, fit_seconds=70.0), line(rows_asked=10), line(method="newer")]
    (tmp_path / "tabular.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = load("tabular_page").page(tmp_path)
    cells = row_of(text, "| tabddpm | raked")
    assert cells[3:5] == ["2", "50.0 ± 0.0"]
    assert cells[-2] == "65 ± 7 / 90 ± 0"
    assert row_of(text, "|  | as drawn")[4] == "40.0 ± 0.0"
    assert row_of(text, "| ARF |")[4] == "not run"
    assert row_of(text, "| newer |")[3] == "1"
    assert text.count("Not run.") == 7
    assert "2 of 240 runs are there" in text


def test_a_run_resumes_and_one_that_fails_leaves_no_line(load, tmp_path, monkeypatch, capsys):
    module, out = load("tabular"), tmp_path / "tabular.jsonl"

    def ended(command, **_):
        job = json.loads(command[-2])
        if job["method"] == "tabddpm":
            return subprocess.CompletedProcess(command, 1, "", "Traceback\nValueError: no rows")
        made = line(method=job["method"], label=job["label"])
        Path(command[-1]).write_text(json.dumps(made))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", ended)
    words = ["tabular.py", "--table", "churn", "--seed", "0", "--data", str(tmp_path)]
    (tmp_path / "churn.parquet").write_bytes(b"")
    words += ["--out", str(out), "--method", "tabddpm", "gaussian_copula", "ARF"]
    monkeypatch.setattr(sys, "argv", words)
    module.main()
    text = capsys.readouterr().out
    assert "left out: peers, which take --peer-python" in text
    assert "churn, tabddpm , seed 0: failed after 0 s: ValueError: no rows" in text
    assert [row["method"] for row in module.lines(out)] == ["gaussian_copula"]
    monkeypatch.setattr(sys, "argv", [*words, "--list"])
    module.main()
    text = capsys.readouterr().out
    assert "gaussian_copula" not in text
    assert "2 runs are missing" in text


def test_a_peer_that_takes_too_long_or_fails_is_ended_with_its_reason(load):
    output_of = load("tabular_run").output_of
    assert output_of([sys.executable, "-c", "print('done')"], 30).strip() == "done"
    with pytest.raises(SystemExit, match="ValueError: no rows"):
        output_of([sys.executable, "-c", "raise ValueError('no rows')"], 30)
    with pytest.raises(SystemExit, match="stopped at --limit-seconds"):
        output_of([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)
