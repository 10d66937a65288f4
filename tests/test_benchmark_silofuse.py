"""The benchmark over split columns: what it lists, and its page from lines made here."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import siloweave

HERE = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """Import a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(HERE))
    return import_module


def line(**changed):
    part = {"value": 91.25, "ceiling": 97.5, "floor": 50.0, "interval": [89.0, 92.0]}
    made = {
        "table": "adult", "model": "silofuse", "parties": 4, "order": "contiguous", "seed": 0,
        "label": "", "rows_asked": None, "rows": 39074, "latents": 40, "bytes": 3_000_000,
        "rounds": 2, "steps": 10_000, "bytes_per_step": None, "fit_seconds": 12.0,
        "commit": "abc1234", "settings": {},
        "scores": {name: dict(part) for name in ("resemblance (SiloFuse)", "utility")},
        "resistance": 97.0,
    }  # fmt: skip
    return made | changed


def test_the_page_puts_published_figures_beside_ours(load, tmp_path):
    rows = [
        line(seed=0, resistance=96.0),
        line(seed=1, resistance=98.0),
        line(parties=8, order="permuted"),
        line(model="e2e_distr", bytes=50_000_000, bytes_per_step=5_000.0, rounds=20_003),
        line(model="silofuse_autoencoders", bytes=1_000_000, resistance=95.0),
        line(rows_asked=100, bytes=1),
        line(model="e2e_distr", table="churn", label="bytes", steps=300, bytes_per_step=7_000.0),
        line(model="e2e_distr", label="bytes", steps=300, bytes_per_step=9_000.0),
    ]
    (tmp_path / "silofuse.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    copied = [
        {"attack": attack, "variant": "all", "risk": risk}
        for attack, risk in (("singling_out", 0.9), ("linkability", 1.0), ("inference", 0.8))
    ]
    ends = {"table": "adult", "end": "copy", "risks": copied}
    (tmp_path / "risk_ends.jsonl").write_text(json.dumps(ends) + "\n")
    page = load("silofuse_page").page(tmp_path)
    adult = page[page.index("### adult") : page.index("### churn")]
    nearest, ours = "silofuse, autoencoders (ours)", "silofuse, sphere codes (ours)"
    assert f"| resemblance | {nearest} | 73 | 91.2 (89.0–92.0) | not run | 50.0 | 97.5 |" in adult
    assert f"| utility | {nearest} | 96.6 | 91.2" in adult
    assert f"| privacy | {nearest} | 92.1 | 95.0 | – | 10.0 | – |" in adult
    assert f"| {nearest} | 1 | 1.00 | 2 | 12 |" in adult
    assert f"| resemblance | {ours} | – | 91.2 ± 0.0 | not run | 50.0 | 97.5 |" in adult
    assert f"| privacy | {ours} | – | 97.0 ± 1.4 | – | 10.0 | – |" in adult
    assert f"| {ours} | 2 | 3.00 | 2 | 12 |" in adult
    assert f"| {ours}, 8 parties, permuted | 1 | 3.00 |" in adult
    assert "| resemblance | central latent_diff | 78 | not run |" in adult
    assert "| central latent_diff | 0 | – | – | – |" in adult
    assert "| privacy | central" not in page
    assert "| adult | 39,074 | 40 | 3.00 | 5.0 | 250 | 2,500 | 25,000 |" in page
    assert "| churn | not run | not run | not run | 7.0 | 350 |" in page
    assert "e2e_distr (bytes)" not in page
    abalone = page[page.index("### abalone") : page.index("### adult")]
    assert "| resemblance | silofuse, autoencoders (ours) | 91 | not run |" in abalone
    assert "| silofuse, autoencoders (ours) | 0 | – | – | – |" in abalone
    assert "paper's architecture" not in page


def test_a_published_figure_below_the_floor_is_marked_and_named(load, tmp_path):
    shuffled = {"value": 95.0, "ceiling": 98.0, "floor": 80.0, "interval": [94.0, 96.0]}
    scores = {name: dict(shuffled) for name in ("resemblance (SiloFuse)", "utility")}
    row = line(model="silofuse_autoencoders", scores=scores)
    (tmp_path / "silofuse.jsonl").write_text(json.dumps(row) + "\n")
    page = load("silofuse_page").page(tmp_path)
    # 73 of resemblance is below the floor, and 96.6 of utility is above it.
    assert "| 73 ▽ | 95.0 (94.0–96.0) | not run | 80.0 | 98.0 |" in page
    assert "| 96.6 | 95.0" in page
    assert "1 lie below the floor of shuffled columns: adult (73, floor 80.0)" in " ".join(
        page.split()
    )


def test_rows_as_drawn_stand_beside_raked_ones(load, tmp_path):
    as_drawn = {"resemblance (SiloFuse)": {"value": 80.0, "ceiling": 97.5, "floor": 50.0,
                                           "interval": [79.0, 81.0]}}  # fmt: skip
    (tmp_path / "silofuse.jsonl").write_text(json.dumps(line(as_drawn=as_drawn)) + "\n")
    page = load("silofuse_page").page(tmp_path)
    assert "| – | 91.2 (89.0–92.0) | 80.0 (79.0–81.0) | 50.0 | 97.5 |" in page


@pytest.mark.parametrize(("table", "steps"), [("adult", 12_500), ("abalone", 5_000)])
def test_training_over_the_wire_takes_half_the_central_steps(load, table, steps):
    job = {"model": "e2e_distr", "table": table, "settings": {}, "steps": None}
    central = load("neural_tables").arguments("e2e", table, {})
    whole = siloweave.E2E(**central).settings()["diffusion"]["steps"]
    found = load("silofuse").made(job, None).settings()["diffusion"]["steps"]
    assert (found, whole) == (steps, 2 * steps)


def test_privacy_is_the_mean_resistance_of_three_attacks(load):
    risks = [
        {"attack": "singling_out", "risk": 0.2},
        {"attack": "singling_out", "risk": -0.1},
        {"attack": "linkability", "risk": 0.0},
        {"attack": "inference", "risk": 0.5},
    ]
    assert load("silofuse").resistance(risks) == pytest.approx((90 + 100 + 50) / 3)


def test_it_lists_what_is_missing(tmp_path):
    told = [sys.executable, str(HERE / "silofuse.py"), "--list", "--out", str(tmp_path / "x.jsonl")]
    done = subprocess.run(told, check=True, capture_output=True, text=True)
    assert "missing: abalone silofuse 4 contiguous 0" in done.stdout
    assert "missing: adult e2e_distr 4 contiguous 2" in done.stdout
    assert done.stdout.endswith("48 runs are missing from x.jsonl\n")
