"""The benchmark of tables by TabSyn's protocol: its rows, its judges and its page."""

import json
import re
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
    for name in ("utility", "XGB utility"):
        assert ceiling[name] == pytest.approx(fresh[name], abs=0.03)
    again = run.bound({"method": run.AGAIN, "seed": 0}, table)["scores"]
    assert set(again) == {"Shape", "Trend", "information error", "three-way"}
    assert 95 < again["Shape"] < 100  # as many rows by chance, and not the rows themselves
    assert 0 < again["three-way"] < mixed["three-way"]


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
    assert "0 of 264 runs are there" in text
    assert "Not run." in load("detector_agreement").page(tmp_path)


def test_a_page_shows_raked_rows_rows_as_drawn_and_what_was_not_run(load, tmp_path):
    rows = [line(), line(seed=1, fit_seconds=70.0), line(rows_asked=10), line(method="newer")]
    (tmp_path / "tabular.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = load("tabular_page").page(tmp_path)
    cells = row_of(text, "| tabddpm | raked")
    assert cells[3:5] == ["2", "50.0 ± 0.0"]
    lower = text[text.index("| information error |") :]
    assert row_of(lower, "| tabddpm | raked")[-2] == "65 ± 7 / 90 ± 0"
    assert row_of(text, "|  | as drawn")[4] == "40.0 ± 0.0"
    (missing,) = re.findall(r"^Not run here: (.+)\.$", text, re.MULTILINE)
    assert "ARF" in missing.split(", ")
    assert "tabddpm" not in missing.split(", ")
    assert "| ARF |" not in text
    assert row_of(text, "| newer |")[3] == "1"
    assert text.count("Not run.") == 7
    assert "2 of 264 runs are there" in text


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
    failure = module.lines(tmp_path / "tabular_failed.jsonl")[0]
    assert (failure["method"], failure["reason"]) == ("tabddpm", "ValueError: no rows")
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


def test_a_schema_has_the_decimals_that_init_writes(load):
    run = load("tabular_run")
    table = sw.Table.from_columns({"rate": (np.array([0.25, 1.5, 0.0]), np.array([0, 0, 1], bool))})
    declared = sw.Column("rate", "continuous", low=0.0, high=2.0, missing=True)
    assert run.with_decimals(declared, table).decimals == 2
    whole = sw.Column("rate", "integer", low=0, high=2)
    assert run.with_decimals(whole, table) is whole


def test_a_peer_that_knows_codes_gets_public_domains_and_gives_values_back(load, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(HERE / "peers"))
    run, coded = load("tabular_run"), load("tabular_peers").coded
    random = np.random.default_rng(0)

    word = run.domain_of(sw.Column("word", "categorical", categories=("a", "b", "c")))
    values = pandas.Series(["c", None, "a"], name="word", dtype=object)
    codes, count, decode = coded(values, word, False)
    assert (codes.tolist(), count) == ([2, 3, 0], 4)
    assert decode(codes, random).tolist() == ["c", None, "a"]
    with pytest.raises(ValueError, match="'word' has a value outside"):
        coded(pandas.Series(["d"], name="word", dtype=object), word, False)

    few = run.domain_of(sw.Column("few", "integer", low=1, high=4))
    codes, count, decode = coded(pandas.Series([1.0, 4.0, 2.0]), few, True)
    assert (codes.tolist(), count) == ([0, 3, 1], 4)
    assert decode(codes, random).round().tolist() == [1, 4, 2]

    rate = run.domain_of(sw.Column("rate", "continuous", low=0.0, high=3.2, decimals=1))
    codes, count, decode = coded(pandas.Series([0.0, 3.2, np.nan, 1.65]), rate, False)
    assert (codes.tolist(), count) == ([0, 31, 32, 16], 33)
    drawn = decode(np.repeat(codes, 50), random).reshape(4, 50)
    assert np.isnan(drawn[2]).all()
    assert set(drawn[3]) <= {1.6, 1.7}
    assert drawn[1].max() <= 3.2


def test_a_peer_under_a_budget_wants_a_budget_and_a_checkout(load, tmp_path, monkeypatch):
    words = ["tabular.py", "--method", "AIM of mbi", "--out", str(tmp_path / "out.jsonl")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="AIM of mbi takes --epsilon and --checkout"):
        load("tabular").main()
    monkeypatch.setattr(sys, "argv", [*words, "--epsilon", "1", "--checkout", "mbi"])
    asked = load("tabular").parser().parse_args()
    job = load("tabular").jobs(asked)[0]
    assert (job["peer"], job["checkout"], job["label"]) == (True, "mbi", "ε = 1")


def test_a_page_compares_what_ran_under_a_budget_and_says_what_was_stopped(load, tmp_path):
    page, label = load("tabular_page"), "ε = 1"
    better = dict.fromkeys(page.MEASURES, 50.0) | {"three-way": 0.1, "XGB utility": 0.9}
    worse = better | {"three-way": 0.2, "XGB utility": 0.8, "XGB-C2ST": 60.0}
    rows = [
        line(method="aim", label=label, scores=better, raked=False),
        line(method="AIM of mbi", label=label, scores=worse, raked=False, peer=True),
    ]
    for houses in (better, worse):
        method = "aim" if houses is better else "AIM of mbi"
        rows.append(
            line(table="california_housing", method=method, label=label, scores=houses,
                 raked=False, classes=False)
        )  # fmt: skip
    stop = {
        "table": "heloc", "method": "AIM of mbi", "label": label, "seed": 0, "rows_asked": None,
        "reason": "stopped at --limit-seconds 900, 80 of the processor", "seconds": 910.0,
    }  # fmt: skip
    (tmp_path / "tabular.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tabular_failed.jsonl").write_text(json.dumps(stop) + "\n")
    text = page.page(tmp_path)
    assert row_of(text, "| churn | aim |")[3:8] == ["1", "0.1000", "50.0", "0.900", "90"]
    assert row_of(text, "| heloc | AIM of mbi |")[-2].startswith("stopped at --limit-seconds 900")
    assert row_of(text, "| heloc | two_round |")[-2] == "not run"
    # Of a number the utility is an error, so the lower one is ahead.
    assert (
        "`aim` beside `AIM of mbi`: three-way: ahead on 2 of 2; XGB-C2ST: ahead on 0 of 2, behind "
        "on churn, california_housing; XGB utility: ahead on 1 of 2, behind on "
        "california_housing."
    ) in text
