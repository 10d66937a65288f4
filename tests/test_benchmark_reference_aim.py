"""The benchmark beside the reference AIM: what it records of runs, stopped ones too."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def module(monkeypatch):
    """Import the benchmark."""
    monkeypatch.syspath_prepend(str(HERE))
    return import_module("reference_aim")


def test_a_command_past_its_limit_is_ended_and_what_it_took_is_known(module, tmp_path):
    used = module.measured([sys.executable, "-c", "print('done')"], tmp_path / "log", 60)
    assert used["cpu_seconds"] > 0
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(module.LimitReachedError) as reached:
        module.measured(sleeps, tmp_path / "log", 0.2)
    assert 0.2 < reached.value.used["seconds"] < 60
    with pytest.raises(SystemExit, match="ended with 3"):
        module.measured([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log", 60)


def test_rounds_and_budget_are_read_from_what_the_script_prints(module):
    text = "Budget Used 0.1 / 0.4\nMeasuring Clique ('a', 'b')\nBudget Used 0.2 / 0.4\n"
    assert module.progress(text) == {"rounds": 1, "rho_spent": 0.2, "rho": 0.4}
    assert module.progress("") == {"rounds": 0}


def test_a_stopped_reference_is_a_run_with_its_versions_and_without_an_error(
    module, tmp_path, monkeypatch
):
    def slow(command, log, limit, **_):
        assert json.loads(command[-1])["compile_candidates"] is True
        log.write_text("Budget Used 0.1 / 0.4\nMeasuring Clique ('a', 'b')\n")
        raise module.LimitReachedError({"seconds": limit, "cpu_seconds": 5.0, "peak_mb": 1.0})

    monkeypatch.setattr(module, "measured", slow)
    known = {"commit": "abc1234", "mbi": "2.0.0"}
    run = module.run_reference(tmp_path, "python", 10.0, known, seed=0, compiles=True)
    assert run["stopped"] is True
    assert (run["rounds"], run["cpu_seconds"], run["versions"]) == (1, 5.0, known)
    assert "error" not in run
    module.summary({"ours": [], "reference": [run]})
