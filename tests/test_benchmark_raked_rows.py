"""The benchmark of how far raking deceives a detector."""

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import siloweave as sw
from siloweave.tables.features import OneWay

HERE = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def load(monkeypatch):
    """Import a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(HERE))
    return import_module


def drawn(rows, run):
    """A table of 20 columns of four equally frequent codes, which know nothing of each other."""
    random = np.random.default_rng(0)
    names = "abcdefghijklmnopqrst"
    codes = tuple("1234")
    table = sw.Table.from_columns({name: (random.choice(codes, rows), None) for name in names})
    schema = sw.Schema(tuple(sw.Column(name, "categorical", categories=codes) for name in names))
    train, test = table.take(range(rows // 10, rows)), table.take(range(rows // 10))
    return run.Prepared(schema, train, test, "a", True, (rows, rows))


def test_shares_of_a_sample_are_whole_rows_and_differ_by_chance(load):
    table = drawn(2_000, load("tabular_run"))
    known = OneWay.of(table.train, table.schema)
    sample = load("margins").resampled(known, 500, 0)
    for before, after in zip(known.shares, sample.shares, strict=True):
        counts = after * 500
        assert np.allclose(counts, counts.round())
        assert counts.sum() == pytest.approx(500)
        assert 0 < np.abs(after - before).max() < 0.08
        assert (after[before == 0] == 0).all()
    assert [cells.column for cells in sample.cells] == [cells.column for cells in known.cells]


def test_a_detector_is_deceived_by_raked_real_rows_and_less_by_rows_raked_to_a_sample(load):
    module = load("raked_rows")
    table = drawn(1_400, load("tabular_run"))
    found = [module.areas(table, seed) for seed in range(4)]
    areas = {name: np.mean([areas[name] for areas in found]) for name in found[0]}
    assert areas["at random"] == pytest.approx(0.5, abs=0.03)
    assert areas["raked"] < 0.45
    assert areas["raked to a sample"] > areas["raked"] + 0.02


def test_rows_of_a_fit_are_judged_raked_to_a_sample_too(load):
    run = load("tabular_run")
    table = drawn(1_500, run)
    fitted = sw.GaussianCopula().fit(table.train, table.schema, seed=0)
    scores = run.raked_to_chance(fitted, table, 0)
    assert set(scores) == {"XGB-C2ST", "LightGBM-C2ST"}
    assert min(scores.values()) > 90


def test_the_page_shows_real_rows_and_drawn_ones_and_nothing_without_runs(load, tmp_path):
    module = load("raked_rows")
    assert module.page(tmp_path) == ""
    known = {"table": "heloc", "rows": 2_988, "commit": "abc1234"}
    auc = {"at random": 0.5, "raked": 0.45, "raked to a sample": 0.498}
    lines = [known | {"seed": seed, "auc": auc} for seed in (0, 1)]
    (tmp_path / "raked_rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    text = module.page(tmp_path)
    assert "of 2 seeds" in text
    assert "| heloc | 2,988 | 0.500 | 0.450 | 0.498 |" in text
    assert "by TabSyn's protocol" not in text.lower().split("| heloc")[1]
    run = {
        "table": "heloc", "method": "point_diff", "label": "", "seed": 2, "rows_asked": None,
        "scores": {"XGB-C2ST": 96.0}, "resampled": {"XGB-C2ST": 92.0},
        "as_drawn": {"XGB-C2ST": 89.5},
    }  # fmt: skip
    trial = run | {"rows_asked": 100}
    (tmp_path / "tabular.jsonl").write_text(f"{json.dumps(run)}\n{json.dumps(trial)}\n")
    text = module.page(tmp_path)
    assert text.count("| heloc | 2 | 96.0 | 92.0 | 89.5 |") == 1
