"""The benchmark of neural generators: what it lists and what it writes, from lines made here."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from siloweave.errors import WireError
from siloweave.evaluate.predictive import SHORT, Trees
from siloweave.tables import Column, Encoder, Schema, Table

HERE = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def load(monkeypatch):
    """Import a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(HERE))
    return import_module


def line(**changed):
    judge = import_module("neural_tables").JUDGE
    part = {"value": 90.0, "ceiling": 97.5, "floor": 50.0, "interval": [89.0, 91.0]}
    names = ("resemblance (DP-TLDM)", "resemblance (SiloFuse)", "propensity", "utility",
             "logistic detection")  # fmt: skip
    scores = {name: dict(part) for name in names}
    scores["utility"]["judge"] = judge
    made = {
        "table": "adult", "model": "ctgan", "seed": 0, "label": "", "rows_asked": None,
        "rows": 39074, "columns": 15, "scores": scores,
        "given": {}, "settings": {}, "fit_seconds": 12.0, "peak_mb": 800.0, "steps": 1000,
        "load": [0.5, 1.0], "commit": "abc1234", "machine": "2 cores", "raked": True,
    }  # fmt: skip
    return made | changed


def turn(side, pace, call="2026-01-01T00:00:00"):
    fits = [{"steps": 1, "seconds": 1.0, "cpu": 1.0}, {"steps": 11, "seconds": 2.0, "cpu": 3.0}]
    return {
        "part": "ctgan-steps", "call": call, "commit": "abc1234", "side": side, "fits": fits,
        "batch": 500, "threads": 1, "load": [0.1, 0.2], "steps_a_second": pace,
    }  # fmt: skip


def written(folder, name, rows):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(text, start):
    return [one for one in text.splitlines() if one.startswith(f"| {start} |")]


def test_a_page_without_runs_invents_nothing(load, tmp_path):
    text = load("neural_page").page(tmp_path)
    # Published for housing: all else is missing.
    missing = ["not run"] * 4
    for measure, published in (
        ("resemblance", "98"), ("discr.", "98"), ("logistic", "–"), ("utility", "85")
    ):  # fmt: skip
        (_, _, *cells) = rows_of(text, f"{measure} | tldm")[0].strip("| ").split(" | ")
        assert cells == [published, *missing]
    assert rows_of(text, "tldm")[0] == "| tldm | 0 | not run | not run | not run | not run |"
    assert len(rows_of(text, "0.2")) == 8  # four methods, two tables
    assert all("not run" in one for one in rows_of(text, "0.2"))


def test_a_page_shows_published_ours_and_ceiling(load, tmp_path):
    other = line(seed=1, commit="def5678")
    other["scores"]["utility"]["value"] = 94.0
    trial = line(seed=2, rows_asked=100, commit="0000000")
    written(tmp_path, "neural_quality.jsonl", [line(), line(), other, trial])
    text = load("neural_page").page(tmp_path)
    for measure, figures in (
        ("resemblance", "90 | 90.0 ± 0.0"),
        ("discr.", "79 | 90.0 ± 0.0"),
        ("logistic", "– | 90.0 ± 0.0"),
        ("utility", "83 | 92.0 ± 2.8"),
    ):
        row = f"| {measure} | ctgan | {figures} | not run | 50.0 | 97.5 |"
        assert rows_of(text, f"{measure} | ctgan")[1] == row
    assert rows_of(text, "ctgan")[1] == "| ctgan | 2 | 12 | 800 | 1,000 | yes |"
    assert "Source: commit abc1234, def5678; 2 cores, load average 0.5 to 1.0." in text


def test_what_is_below_the_published_figure_is_counted(load, tmp_path):
    better = line(model="tabddpm")
    for part in better["scores"].values():
        part["value"] = 99.0
    written(tmp_path, "neural_quality.jsonl", [line(), better])
    text = load("neural_page").page(tmp_path)
    # Of ctgan on adult 90/79/83 are reached by 90; tabddpm's 99 is above all five of its own.
    assert "Of 92 published cells, ours is at or above 8, below 0 and not run for 84." in text
    # Discriminability has two definitions, so its cells are counted apart from the others.
    assert rows_of(text, "discr. | 12")[0].startswith("| discr. | 12 | 0 | 2 | 0 | 10 | 0 of 0 |")
    assert rows_of(text, "resemblance | 40")[0].startswith("| resemblance | 40 | 0 | 3 | 0 | 37 |")
    written(tmp_path, "neural_quality.jsonl", [line(model="tldm")])
    text = load("neural_page").page(tmp_path)
    assert "| adult | tldm | utility | 100 | 90.0 (89.0–91.0) | not run | 50.0 | 97.5 |  |" in text
    assert "at or above 1, below 2 and not run for 89." in text
    assert "What raking adds" not in text


def test_what_raking_adds_is_the_mean_of_the_runs_that_were_scored_both_ways(load, tmp_path):
    better = line(seed=1)
    other = line()
    for run, drawn in ((better, 88.0), (other, 60.0)):
        run["as_drawn"] = deepcopy(run["scores"])
        for part in run["as_drawn"].values():
            part["value"] = drawn
    written(tmp_path, "neural_quality.jsonl", [better, other, line(seed=2)])
    text = load("neural_page").page(tmp_path)
    # The mean of 88 and 60 is below all that ctgan is published with; the third run is no part.
    assert rows_of(text, "discr. | 12")[0].startswith("| discr. | 12 | 0 | 1 | 0 | 11 | 0 of 1 |")
    assert "of the 2 runs that were" in text
    assert "+16.0 (+2.0 to +30.0) to discr." in " ".join(text.split())


def test_utilities_of_older_trees_are_marked_and_not_averaged_with_newer_ones(load, tmp_path):
    oldest, both, older = line(seed=1), line(seed=2), line(seed=3)
    for one in (oldest, both, older):
        del one["scores"]["utility"]["judge"]
        one["scores"]["utility"]["value"] = 10.0
    for one in (oldest, both):
        del one["scores"]["logistic detection"]
    both["scores"]["utility (squared errors)"] = older["scores"]["utility"] | {"value": 92.0}

    def utility(*rows):
        written(tmp_path, "neural_quality.jsonl", rows)
        return rows_of(load("neural_page").page(tmp_path), "utility | ctgan")[1].split(" | ")[3]

    assert utility(oldest) == "10.0† (89.0–91.0)"
    assert utility(oldest, older) == "10.0‡ (89.0–91.0)"
    assert utility(oldest, both, older) == "51.0 ± 58.0‡"
    assert utility(oldest, both, older, line(seed=4)) == "90.0 (89.0–91.0)"


def test_a_mean_is_over_seeds_with_the_newest_settings(load, tmp_path):
    made = {"autoencoder": {"hidden": [8]}, "diffusion": {"loss_weight": 0.5, "choices": "bound"}}
    today = {**made, "diffusion": {"loss_weight": 0.0, "choices": "cross-entropy"}}
    alike = {"autoencoder": {"hidden": [8], "heads": "draw"}, "diffusion": {"loss_weight": 0.0}}
    lines = [line(seed=s, settings=x) for s, x in enumerate((made, made, today, alike))]
    written(tmp_path, "neural_quality.jsonl", lines)
    assert rows_of(load("neural_page").page(tmp_path), "ctgan")[1].startswith("| ctgan | 2 |")
    written(tmp_path, "neural_quality.jsonl", lines[:2])
    assert rows_of(load("neural_page").page(tmp_path), "ctgan")[1].startswith("| ctgan | 2 |")
    written(tmp_path, "neural_quality.jsonl", lines[:3])
    assert rows_of(load("neural_page").page(tmp_path), "ctgan")[1].startswith("| ctgan | 1 |")
    drawn = [line(seed=s, settings=x) for s, x in enumerate(({"timesteps": 9}, {"timesteps": 9}))]
    drawn[1]["settings"]["choices"] = "cross-entropy"
    written(tmp_path, "neural_quality.jsonl", drawn)
    assert rows_of(load("neural_page").page(tmp_path), "ctgan")[1].startswith("| ctgan | 1 |")


def test_a_run_beside_other_work_keeps_no_times(load, tmp_path, monkeypatch):
    module, out = load("neural"), tmp_path / "neural_quality.jsonl"

    def fitted(words, **_):
        Path(words[-1]).write_text(json.dumps(line()))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", fitted)
    for busy in (False, True):
        module.run({"busy": busy}, out)
    alone, beside = module.lines(out)
    assert {*alone} - {*beside} == {"fit_seconds"}
    for row, shown in ((alone, "12"), (beside, "–")):
        written(tmp_path, out.name, [row])
        (_, found, *_) = rows_of(load("neural_page").page(tmp_path), "ctgan")
        assert found.endswith(f"| {shown} | 800 | 1,000 | yes |")


def test_a_private_run_with_other_settings_has_a_row_of_its_own(load, tmp_path):
    private = {"model": "aim", "separation": 0.1, "epsilon": 1.0, "risks": []}
    rows = [line(**private), line(**private, seed=1), line(**private | {"label": "64 triples"})]
    written(tmp_path, "neural_privacy.jsonl", rows)
    text = load("neural_page").page(tmp_path)
    assert [one.split(" | ")[1:3] for one in rows_of(text, "0.1") if " | aim" in one][1:] == [
        ["aim", "2"], ["aim (64 triples)", "1"],
    ]  # fmt: skip


def test_private_runs_of_unequal_noisy_counts_are_shown_raked_and_as_drawn(load, tmp_path):
    private = {"model": "dp_tldm", "separation": 0.1, "epsilon": 1.0, "risks": []}
    rows = [line(**private), line(**private, seed=1)]
    for row, rate in zip(rows, (0.026, 0.028), strict=True):
        row["settings"] = {"rate": rate, "levels": round(1 / rate), "noise_multiplier": 60 * rate}
        row["as_drawn"] = {"utility": {**row["scores"]["utility"], "value": 1000 * rate}}
    written(tmp_path, "neural_privacy.jsonl", rows)
    text = load("neural_page").page(tmp_path)
    assert any("| dp_tldm | 2 | 1.00 |" in one for one in rows_of(text, "0.1"))
    # Of the first table that has such runs: scores that are missing were not run.
    drawn = rows_of(text, "0.1 | dp_tldm | 90.0 ± 0.0")[0]
    assert drawn.endswith("| 90.0 ± 0.0 | not run | 90.0 ± 0.0 | 27.0 ± 1.4 |")


def test_settings_of_older_lines_are_compared_under_their_names_of_today(load):
    older = {"timesteps": 9, "reach": 4.0, "focus": 0.5, "choices": "surprise", "eta": 0.0}
    newer = {"clip_range": 4.0, "loss_weight": 0.5, "choices": "cross-entropy"}
    comparable = load("neural_tables").comparable
    assert comparable(older, 100) == comparable({"timesteps": 9, "eta": 0.0} | newer, 100)
    inner = comparable({"diffusion": older}, 100)["diffusion"]
    assert (
        inner == comparable({"diffusion": {"timesteps": 9, "eta": 0.0} | newer}, 100)["diffusion"]
    )


def test_who_changes_the_trees_of_utility_names_another_judge(load):
    """Lines are told apart by this name alone; let both change together."""
    assert Trees(30, 8, 0.2, shrink=1.0) == SHORT
    assert load("neural_tables").JUDGE == "squared errors, shrunken leaves"


def test_a_private_step_is_shown_from_the_last_call(load, tmp_path):
    calls = [
        {"call": "x", "commit": c, "threads": "1", "load": [0.1, 0.3],
         "found": {"no privacy": {"median": pace, "slower": 1.0}}}
        for c, pace in (("aaa", 5.0), ("bbb", 7.25))
    ]  # fmt: skip
    written(tmp_path, "neural_dp_step.jsonl", calls)
    text = load("neural_speed_page").page(tmp_path)
    assert rows_of(text, "no privacy") == ["| no privacy | 7.2 | 1.00 |"]
    assert "Source: commit bbb; threads: 1, load average 0.1 to 0.3." in text


def test_one_seed_shows_its_interval(load, tmp_path):
    written(tmp_path, "neural_quality.jsonl", [line()])
    text = load("neural_page").page(tmp_path)
    assert "90.0 (89.0–91.0)" in rows_of(text, "utility | ctgan")[1]


def test_private_runs_show_their_epsilon_and_highest_risk(load, tmp_path):
    risks = [{"attack": "membership", "variant": v, "risk": r} for v, r in (("a", 0.1), ("b", 0.2))]
    private = {"separation": 0.1, "epsilon": 1.4142, "risks": risks}
    unbounded = {"model": "dp_tldm", "separation": 0.15, "epsilon": None, "risks": []}
    written(tmp_path, "neural_privacy.jsonl", [line(model="aim", **private), line(**unbounded)])
    text = load("neural_page").page(tmp_path)
    aim = next(one for one in rows_of(text, "0.1") if "| aim | 1 |" in one)
    assert "| 1.41 |" in aim
    assert aim.endswith("| – | – | – | 20.0 |")
    assert any("| dp_tldm | 1 | ∞ |" in one for one in rows_of(text, "0.15"))


def test_ratios_are_of_medians_within_one_call(load, tmp_path):
    rows = [turn("ours", pace) for pace in (10.0, 30.0, 20.0)]
    rows += [turn("peer", pace) for pace in (5.0, 8.0, 99.0)]
    rows += [turn("ours", 1.0, call="2026-01-02T00:00:00")]  # its other side is missing
    written(tmp_path, "neural_speed.jsonl", rows)
    found = rows_of(load("neural_speed_page").page(tmp_path), "CTGAN training, steps a second")
    assert len(found) == 1
    assert found[0] == (
        "| CTGAN training, steps a second | 20.00 (10.00–30.00) | 8.00 (5.00–99.00) | 2.50 | 3 "
        "| 500 | 1 | 0.1 to 0.2 | abc1234 |"
    )


def test_the_rest_of_the_page_goes_a_level_down(load):
    assert load("results_page").deeper("## a\n\n## b\n### c\n") == "## a\n\n### b\n#### c\n"


def test_what_is_missing_is_listed(tmp_path):
    out = tmp_path / "lines.jsonl"
    asked = ["--table", "abalone", "--model", "gaussian_copula", "no_such", "--seed", "0", "1"]

    def listed():
        told = [sys.executable, str(HERE / "neural.py"), "quality", "--list", "--out", str(out)]
        return subprocess.run([*told, *asked], capture_output=True, text=True, check=True).stdout

    assert "4 runs are missing" in listed()
    assert "not in the package: no_such" in listed()
    kept = {"table": "abalone", "model": "gaussian_copula", "given": {}}
    stale = line(**kept, settings={"family": "norm"})
    fresh = line(**kept, seed=1, settings={"family": "beta", "target": None})
    written(tmp_path, out.name, [stale, fresh])
    assert "missing: abalone gaussian_copula seed 0" in listed()
    assert "missing: abalone gaussian_copula seed 1" not in listed()
    written(tmp_path, out.name, [fresh | {"raked": False}])  # from before rows were raked
    assert "missing: abalone gaussian_copula seed 1" in listed()


def fed_line(**changed):
    near, far = {"jsd": 0.05, "wd": 0.01}, {"jsd": 0.1, "wd": 0.02}
    distances = {"table": near, "pooled": far, "raw": far}
    made = {
        "part": "quality", "table": "adult", "scenario": "copies", "method": "fed_tgan", "seed": 0,
        "label": "", "rows": [40_000] * 5, "rounds": 40, "distances": distances,
    }  # fmt: skip
    return made | changed


def test_networks_over_split_rows_stand_beside_published_figures(load, tmp_path):
    other = {"table": {"jsd": 0.07, "wd": 0.03}}
    rows = [fed_line(), fed_line(seed=1, distances=other, rounds=44)]
    rows += [fed_line(label="trial", distances=other), fed_line(seed=2, rows=[900], rounds=7)]
    call = {"part": "peer", "call": "2026-01-01T00:00:00"}
    rows += [
        {**call, "method": "fed_tgan", "at_once": None, "seconds": [10.0, 12.0]},
        {**call, "method": "ctgan package", "seconds": [33.0]},
    ]
    written(tmp_path, "fed_tgan.jsonl", rows)
    text = load("fed_tgan_page").page(tmp_path)
    (counted,) = rows_of(text, "fed_tgan")
    raw, raked, imbalanced, *_ = rows_of(text, "adult | fed_tgan")
    assert raw == "| adult | fed_tgan | 0.100 / 0.059 | 0.020 / 0.012 | 40 to 44 |"
    # Published figures are not of raked rows, so none stands beside those.
    assert raked == "| adult | fed_tgan | 0.060 ± 0.014 | 0.020 ± 0.014 | 40 to 44 |"
    assert imbalanced.startswith("| adult | fed_tgan | not run / 0.062 |")
    assert (
        rows_of(text, "credit | fed_tgan")[1]
        == "| credit | fed_tgan | not run | not run | not run |"
    )
    nothing = "0 of 24 (22 not run) | 0 of 24 (22 not run)"
    assert counted == f"| fed_tgan | {nothing} | 0 of 18 (16 not run) | 0 of 18 (16 not run) |"
    assert rows_of(text, "a round, parties in threads") == [
        "| a round, parties in threads | 11.00 | 3.00 |"
    ]


def test_one_run_shows_the_interval_of_its_drawn_rows(load, tmp_path):
    near = {"jsd": 0.05, "wd": 0.01, "jsd_interval": [0.04, 0.06], "wd_interval": None}
    written(tmp_path, "fed_tgan.jsonl", [fed_line(distances={"table": near, "raw": near})])
    text = load("fed_tgan_page").page(tmp_path)
    (counted,) = rows_of(text, "fed_tgan")
    assert counted.startswith("| fed_tgan | 2 of 24 (22 not run) | 2 of 24 (22 not run) |")
    drawn = rows_of(text, "adult | fed_tgan")[0]
    assert drawn.startswith("| adult | fed_tgan | 0.050 (0.040–0.060) / 0.059 | 0.010 / 0.012 |")


def cells_of(page):
    """The means of the page's Fed-TGAN tables by scenario and method, and the published figures."""
    found, published, scenario, drawn = {}, {}, "", ""
    for one in page.splitlines():
        if one.startswith("## "):
            scenario, drawn = one, ""
        elif one.startswith(("As the networks", "Raked")):
            drawn = "raw" if one.startswith("As") else "raked"
        elif drawn and re.match(r"\| (?!table |---)", one):
            table, method, *cells, _ = one.strip("| ").split(" | ")
            for measure, cell in zip(("jsd", "wd"), cells, strict=True):
                mean, *told = cell.split(" / ")
                key = (drawn, scenario, method, table, measure)
                if mean != "not run":
                    found[key] = float(mean.split()[0])
                if told:
                    published[key] = float(told[0])
    return found, published


def test_the_page_counts_what_its_tables_show_raked_and_unraked():
    """Counted from the page itself, not by the code that wrote it."""
    page = (HERE.parent / "docs/reference/results/rows-split-networks.md").read_text("utf-8")
    found, published = cells_of(page)
    assert {drawn for drawn, *_ in published} == {"raw"}
    for method in {method for _, _, method, *_ in published}:
        cells = [key for key in published if key[2] == method]
        said = rows_of(page, method)
        (said,) = [one for one in said if " of " in one]
        counts = []
        for chosen in (cells, [key for key in cells if key[3] != "credit"]):
            for drawn in ("raw", "raked"):
                near = [found[(drawn, *key[1:])] <= published[key] for key in chosen]
                counts.append(f"{sum(near)} of {len(near)}")
        assert said == f"| {method} | {' | '.join(counts)} |"
    assert "Fed-TGAN reaches 7 of 24 published cells as it draws rows, and 24 of 24 raked." in page


def test_the_pages_of_results_are_what_their_lines_give(load):
    tool = load("results_page")
    pages = tool.pages()
    assert set(pages) == {tool.PAGE, *tool.APPENDICES.glob("*.md")}
    for path, text in pages.items():
        assert text == path.read_text("utf-8"), path.name


def test_every_line_that_was_measured_stands_on_one_page_of_results(load):
    """Cutting the text into appendices loses nothing; only headings and links differ."""

    def bare(text):
        without_links = re.sub(r"\]\([^)\s]+\)", "]()", text)
        return Counter(
            line for line in without_links.splitlines() if line and not line.startswith("#")
        )

    tool = load("results_page")
    appendices = load("results_split").pages(tool.measured())
    note = bare(load("results_split").NOTE)
    written = sum((bare(text) - note for text in appendices.values()), Counter())
    assert written == bare(tool.measured())


def test_a_picture_of_growth_has_three_points_a_line(load):
    tool = load("columns_split_page")
    images = load("results_page").PAGE.parent / "images"
    for name in (tool.PICTURE, tool.PARTIES, tool.COLUMNS):
        drawn = (images / name).read_text("utf-8")
        lines = drawn.count('class="curve')
        points = drawn.count('r="3"')
        assert lines > 0
        assert points >= 3 * lines, name


def test_the_headlines_are_one_screen_with_a_chart_each(load):
    tool = load("results_headlines")
    page = load("results_page").PAGE
    text = page.read_text("utf-8")
    assert len(re.findall(r"\S*\w\S*", text)) <= 600
    charts = re.findall(r"!\[.+\]\((images/headline-\S+)\)", text)
    assert len(charts) == len(tool.CHARTS)
    for make in tool.CHARTS:
        headline = make(HERE / "results")
        # One sentence of two or three lines on a card, and a heading of a chart that fits into it.
        assert re.fullmatch(r"[^.]+(?:\.\d[^.]*)*\.", headline.text), headline.text
        assert len(headline.text.split()) <= 25
        assert len(headline.axis) <= 52
        assert re.search(r"\d", headline.text)
        drawn = tool.chart(headline.title, headline.axis, headline.bars, headline.decimals)
        assert drawn == (page.parent / "images" / headline.file).read_text("utf-8")


def test_a_chart_is_readable_in_both_colour_schemes(load):
    tool = load("results_headlines")
    drawn = tool.chart("T", "error", [tool.Bar("a", 2.0), tool.Bar("b", 1.0, tool.BOUNDS)], 1)
    assert "prefers-color-scheme:dark" in drawn
    widths = [float(w) for w in re.findall(rf'width="([\d.]+)" height="{tool.THICK:g}"', drawn)]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.1)
    # A long name takes room from the bars, and is not cut.
    long = tool.chart("T", "error", [tool.Bar("california_housing, TabularARGN", 2.0)], 1)
    (start,) = [float(x) for x in re.findall(rf'x="([\d.]+)"[^>]*height="{tool.THICK:g}"', long)]
    assert start > tool.svg.text_width("california_housing, TabularARGN", tool.LETTERS)


def test_risks_with_shadow_models_stand_apart_from_those_without(load, tmp_path):
    text = load("neural_page").page(tmp_path)
    heads = [one for one in text.splitlines() if one.startswith("| separation |")]
    assert [one.rsplit(" | ", 1)[1] for one in heads] == [
        "membership, no shadow models |", "membership, shadow models |"
    ] * 2  # fmt: skip
    after = text[text.index("membership, shadow models |") :]
    assert after.splitlines()[2].startswith("| 0.1 by its own count | dp_ctgan |")


def test_scenarios_are_those_of_the_paper(load):
    split = load("fed_tgan").split
    assert [len(part) for part in split(40_000, "copies")] == [40_000] * 5
    assert [len(part) for part in split(40_000, "imbalanced")] == [500] * 4 + [40_000]
    *quarters, one = split(40_000, "repeated")
    assert sorted(i for part in quarters for i in part) == list(range(40_000))
    assert len(one) == 40_000
    assert len(set(one.tolist())) == 1


def test_counts_under_a_bound_are_shown_or_said_to_be_missing(load, tmp_path):
    page = load("private_counts").page
    assert page(tmp_path).count("not run") == 7
    row = {"part": "central", "method": "AIM", "epsilon": 1.37, "cpu": 27.6, "commit": "abc1234"}
    written(tmp_path, "private_counts.jsonl", [{**row, "errors": {"three-way": 0.1226}}])
    text = page(tmp_path)
    assert rows_of(text, "AIM") == ["| AIM | 1.37 | 0.123 | 28 |"]
    assert text.count("not run") == 6


def test_a_ratio_of_means_has_the_error_of_its_seeds(load):
    ratio_of = load("private_counts").ratio_of
    assert ratio_of([2.0, 6.0], [1.0, 3.0]) == (2.0, 0.0)
    assert ratio_of([1.0, 3.0], [1.0, 1.0]) == (2.0, pytest.approx(1.0))
    assert ratio_of([3.0], [2.0]) == (1.5, None)


def split_line(method, parties, seed, distance, **more):
    row = {
        "table": "nltcs", "rows": 21574, "method": method, "parties": parties, "epsilon": 0.8,
        "seed": seed, "seconds": 1.0, "rounds": 5, "wide_area": 2.0, "engine": 26.0,
        "megabytes_up": 2.0, "megabytes_down": 3.0, "load": 0.1, "commit": "abc1234",
    }  # fmt: skip
    return row | {f"{k}way": k / 3 * distance for k in (3, 4, 5)} | more


def test_a_run_of_the_published_protocol_is_measured(load):
    table = Table.from_columns({name: ([0, 1, 2, 3] * 50, None) for name in "abcd"})
    kinds = [Column(name, "categorical", categories=(0, 1, 2, 3)) for name in "abcd"]
    encoder = Encoder(Schema(tuple(kinds)).with_fallbacks(), 4)
    codes = encoder.encode(table)
    split = {name: codes.take(range(k, 200, 3)) for k, name in enumerate("xyz")}
    module = load("flaim_adult")
    row = module.one("AugFLAIM (Private)", 0, load("tables").Prepared(encoder, codes, codes), split)
    assert row["epsilon"] <= 1.0
    assert 0 < row["queries"] <= 2
    assert row["rounds"] > 10


def test_ratios_of_split_columns_are_judged_by_their_spread(load, tmp_path):
    rows = [split_line("two_round", 1, seed, d) for seed, d in enumerate((0.0099, 0.0101))]
    rows += [split_line("aim", 1, seed, 0.02) for seed in range(2)]
    for parties, mid in ((2, 0.0102), (4, 0.0103), (8, 0.012)):
        for seed, by in enumerate((0.99, 1.01)):
            rows.append(split_line("secure_two_round", parties, seed, by * mid))
    rows.append(split_line("secure_two_round", 2, 2, 0.5, label="before a change"))
    rows.append(split_line("secure_two_round", 2, 2, 0.5, columns=4))
    written(tmp_path, "columns_split.jsonl", rows)
    text = load("columns_split_page").page(tmp_path)
    found = rows_of(text, "nltcs | TwoRound, all columns at one place")[:3]
    assert [one.split(" | ")[3] for one in found] == [
        "1.02 / 1.02 / 1.02", "**1.03** / **1.03** / **1.03**", "**1.20** / **1.20** / **1.20**",
    ]  # fmt: skip
    assert found[0].endswith("| 0.01 |")
    assert (
        "* TwoRound, all columns at one place: 6 of 9 ratios are above 1.02, 3 by more than two "
        "standard errors; the mean is 1.083, the largest 1.20 (nltcs, ε = 0.8, parties: 8)."
    ) in text
    assert "* AIM, one place: 0 of 9 ratios are above 1.1; the mean is 0.542." in text
    assert "| SecureTwoRound | 2 | 2 | 102 ± 1 /" in text


def test_an_svm_of_alike_rows_is_that_of_all_rows(load):
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    made = np.random.default_rng(0)
    train, test = made.binomial(6, 0.15, (2, 300, 4))
    for side in (train, test):
        side[:, 0] = (side[:, 1] > side[:, 2]) ^ (made.random(300) < 0.2)
    scale = StandardScaler().fit(train[:, 1:])
    model = SVC(gamma="auto").fit(scale.transform(train[:, 1:]), train[:, 0])
    error = 1 - model.score(scale.transform(test[:, 1:]), test[:, 0])
    wrong = load("columns_split_svm").wrong
    assert 0.1 < error < 0.3
    assert wrong(train, test, 0) == pytest.approx(error)
    train[:, 0] = 2  # nothing to tell apart: it is what is guessed
    assert wrong(train, test, 0) == pytest.approx(np.mean(test[:, 0] != 2))


def test_rows_that_an_svm_is_tried_on_are_held_out_from_the_synthesizer(load):
    table = Table.from_columns({"a": (list(range(12)), None)})
    schema = Schema((Column("a", "categorical", categories=tuple(range(12))),)).with_fallbacks()
    data = load("columns_split").Coded(table, schema)
    found = [load("columns_split_svm").folds(data, seed) for seed in range(5)]
    for kept, held in found:
        both = [*kept.table.values("a"), *held.table.values("a")]
        assert sorted(both) == list(range(12))
    assert sorted(v for _, held in found for v in held.table.values("a")) == list(range(12))


def test_errors_of_svms_stand_beside_those_after_real_rows(load, tmp_path):
    def svm(method, epsilon, seed, wrong, **more):
        errors = {"a": wrong - 0.1, "b": wrong + 0.1}
        row = {"table": "nltcs", "method": method, "epsilon": epsilon, "seed": seed}
        return row | {"errors": errors} | more

    floor = {"commonest": {"a": 0.5, "b": 0.3}}
    rows = [svm("real", None, k, w, **floor) for k, w in enumerate((0.20, 0.22))]
    rows += [svm("two_round", 0.8, k, w) for k, w in enumerate((0.21, 0.25))]
    rows.append(svm("two_round", 0.8, 0, 0.9, label="of code that has changed since"))
    written(tmp_path, "columns_split.jsonl", [split_line("two_round", 1, 0, 0.01)])
    written(tmp_path, "columns_split_svm.jsonl", rows)
    text = load("columns_split_page").page(tmp_path)
    assert "| nltcs | real rows | – | 2 | 21.0 ± 1.4 | – |" in text
    assert "| nltcs | always the commonest value | – | 2 | 40.0 ± 0.0 | 19.0 ± 1.4 |" in text
    assert "one place | 0.8 | 2 | 23.0 ± 2.8 | 2.0 ± 1.4 |" in text


def test_a_line_of_runs_counts_them_and_its_times_bear_the_load(load, tmp_path):
    rows = [split_line("aim", 1, seed, 0.02, seconds=t, load=busy)
            for seed, (t, busy) in enumerate(((9.0, 7.0), (3.0, 0.5)))]  # fmt: skip
    rows.append(split_line("aim", 1, 0, 0.02, epsilon=1.6))
    for key in ("seconds", "wide_area", "engine", "load"):
        del rows[-1][key]
    written(tmp_path, "columns_split.jsonl", rows)
    text = load("columns_split_page").page(tmp_path)
    assert "| AIM, one place | 1 | 2, 1 | 200 ± 0 /" in text
    assert "AIM, one place | 1 | 3 | 2 (ε = 0.8) | 3 to 9 | – | 2 | 26 | 0.5 and 7.0 |" in text
    assert "AIM, one place | 1 | 2 | 3 | 5 |" in text

    alone = [split_line("aim", 1, k, 0.02, seconds=2.0 + k, load=1.0) for k in range(2, 5)]
    written(tmp_path, "columns_split.jsonl", rows + alone)
    text = load("columns_split_page").page(tmp_path)
    assert "AIM, one place | 1 | 6 | 4 (ε = 0.8) | 3 to 6 | – | 2 | 26 |" in text


def test_phases_are_the_questions_of_a_run_and_what_is_between(load, tmp_path):
    module = load("columns_split")
    values = np.random.default_rng(0).integers(0, 2, (3, 200))
    table = Table.from_columns({name: (v, None) for name, v in zip("abc", values, strict=True)})
    kinds = [Column(name, "categorical", categories=(0, 1)) for name in "abc"]
    ask = module.Session.ask_each
    fitted, times = module.one(
        module.Coded(table, Schema(tuple(kinds)).with_fallbacks()), "two_round", 1, 2.0, 0, {}
    )
    assert module.Session.ask_each is ask
    assert [*times["phases"]] == [
        "before KeyRequest", "KeyRequest", "before Count", "Count", "after the last",
    ]  # fmt: skip
    assert sum(times["phases"].values()) == pytest.approx(1, abs=0.001)
    assert module.described(fitted, times, True)["phases"] == times["phases"]
    assert "seconds" not in module.described(fitted, times, True)

    parts = (
        {"before Count": 0.6, "Count": 0.4},
        {"before Count": 0.4, "Count": 0.596, "end": 4e-3},
    )
    rows = [split_line("two_round", 1, seed, 0.01, phases=one) for seed, one in enumerate(parts)]
    written(tmp_path, "columns_split.jsonl", [*rows, split_line("two_round", 1, 2, 0.01)])
    text = load("columns_split_page").page(tmp_path)
    assert "one place | 1 | 2 | before Count: 50 ± 14, Count: 50 ± 14 |" in text


def test_costs_on_adult_stand_beside_published_ones(load, tmp_path):
    adult = {"table": "adult_privmrf", "rows": 45222}
    rows = [
        split_line("vertigan", 2, k, 0.2, core_seconds=t, **adult) for k, t in enumerate((3, 4))
    ]
    rows.append(split_line("vertigan", 4, 0, 0.2, core_seconds=9, **adult))
    written(tmp_path, "columns_split.jsonl", rows)
    text = load("columns_split_page").page(tmp_path)
    assert rows_of(text, "VertiGAN | 112") == ["| VertiGAN | 112 | 8.3 min | 2 | 16 | 3 to 4 |"]


def test_a_budget_that_is_refused_stands_in_the_table_and_ends_no_run(load, tmp_path, monkeypatch):
    module, made = load("columns_split"), tmp_path / "columns_split.jsonl"
    table = Table.from_columns({name: ([0, 1] * 20, None) for name in "abcde"})
    kinds = [Column(name, "categorical", categories=(0, 1)) for name in "abcde"]
    monkeypatch.setattr(
        module, "coded", lambda *_: module.Coded(table, Schema(tuple(kinds)).with_fallbacks())
    )
    monkeypatch.setattr(
        sys, "argv", ["columns_split.py", "--methods", "vertigan", "two_round", "--parties", "2",
                      "--epsilons", "0.001", "--runs", "1", "--out", str(made)],
    )  # fmt: skip
    module.main()
    first, second = (json.loads(one) for one in made.read_text().splitlines())
    assert "too small" in first["refused"]
    assert "refused" not in second

    rows = [split_line("vertigan", 2, 0, 0.2, epsilon=1.6), split_line("aim", 1, 0, 0.1)]
    rows.append({"table": "nltcs", "rows": 21574, "method": "vertigan", "parties": 2,
                 "epsilon": 0.8, "seed": 0, "refused": "too small"})  # fmt: skip
    written(tmp_path, "columns_split.jsonl", rows)
    text = load("columns_split_page").page(tmp_path)
    assert "| VertiGAN | 2 | 0, 1 | refused | 2000 / 2667 / 3333 |" in text


def test_pictures_of_split_columns_are_of_runs_with_times(load, tmp_path):
    def adult(seed, **more):
        row = split_line("secure_two_round", 2, seed, 0.1)
        return row | {"table": "adult_privmrf", "rows": 45222} | more

    rows = [adult(0), adult(0, rows=90000), adult(0, columns=8), adult(0, parties=4)]
    module = load("columns_split_page")
    pictures = []
    for more in ([], [adult(1)]):
        for row in more:
            del row["seconds"]
        written(tmp_path, "columns_split.jsonl", rows + more)
        module.draw(tmp_path, tmp_path)
        pictures.append([(tmp_path / one).read_text() for one in
                         (module.PICTURE, module.PARTIES, module.COLUMNS)])  # fmt: skip
    assert pictures[0] == pictures[1]


def test_the_page_of_refusals_has_what_was_measured_and_nothing_was_accepted(load):
    module = load("refusals")
    found = [json.loads(text) for text in module.RESULTS.read_text("utf-8").splitlines()]
    assert module.lines(found) in module.PAGE.read_text("utf-8")
    assert not [one for one in found if one["accepted"] or one["crashed"]]
    assert max(one["longest_ms"] for one in found) < 1000


@pytest.mark.parametrize(
    ("does", "counted"),
    [
        (WireError("as it must be"), (0, 0)),
        (WireError("for another reason"), (0, 1)),
        (KeyError("as it must be"), (0, 1)),
        (None, (1, 0)),
    ],
)
def test_a_refusal_for_another_reason_counts_as_a_crash(load, does, counted):
    def refused(i):
        if does is not None:
            raise does

    found = load("refusals").measured("a kind", "it must be", 3, refused, lambda: None)
    assert (found["accepted"], found["crashed"]) == tuple(3 * one for one in counted)


def test_every_kind_of_refusal_is_for_its_own_reason(load, tmp_path):
    """Each is tried twice; a party that refuses goes on."""
    module = load("refusals")
    module.TIMES = 2
    tmp_path.chmod(0o700)
    found = list(module.run(tmp_path, set()))
    written = [json.loads(text)["what"] for text in module.RESULTS.read_text("utf-8").splitlines()]
    assert [one["what"] for one in found] == written
    assert not [one for one in found if one["accepted"] or one["crashed"]]


def test_a_page_of_persons_shows_units_side_by_side_and_invents_nothing(load, tmp_path):
    steps = load("person_steps")
    assert steps.page(tmp_path) == ""
    one = {
        "table": "adult", "tvd": [0.1, 0.2, 0.3], "utility": 0.5, "real_utility": 0.7,
        "noise_multiplier": 2.5, "rate": 0.01, "epsilon": 0.9995,
    }  # fmt: skip
    runs = [one | {"most": most, "seed": seed} for most in (None, 5) for seed in (0, 1)]
    written(tmp_path, steps.FILE, runs)
    text = steps.page(tmp_path)
    assert len(rows_of(text, "adult")) == 2
    assert "| adult | person, k = 5 | 2 | 0.100 ± 0.000 |" in text


def test_rows_under_ids_are_all_there_and_persons_have_one_to_eight(load, tmp_path):
    rows = Table.from_columns({"age": (np.arange(500), None), "income": (np.arange(500) % 2, None)})
    from siloweave.tables import write

    write(rows, tmp_path / "adult.parquet")
    table, schema, target = load("person_steps").grouped("adult", tmp_path)
    assert sorted(table.values("age").tolist()) == list(range(500))
    counts = np.unique(table.values("person"), return_counts=True)[1]
    assert set(counts.tolist()) == set(range(1, 9))
    assert (schema["person"].kind, target) == ("id", "income")


ROOT = Path(__file__).resolve().parent.parent
UTILITIES = {("private_counts.py", "auc")}
"""Classifiers of a target whose old figures were made so; they judge no rows."""


def test_judges_of_boosted_trees_run_a_fixed_number_of_rounds():
    """Above 10,000 rows scikit-learn stops early unless told not to, and raked rows fool it."""
    checked, stopping = 0, set()
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]:
        text = file.read_text()
        functions = ast.walk(ast.parse(text)) if "HistGradientBoosting" in text else ()
        for function in functions:
            if not isinstance(function, ast.FunctionDef):
                continue
            if "HistGradientBoosting" not in ast.unparse(function):
                continue
            for call in ast.walk(function):
                given = call.keywords if isinstance(call, ast.Call) else ()
                named = {one.arg: ast.unparse(one.value) for one in given}
                if "random_state" not in named:
                    continue
                checked += 1
                if named.get("early_stopping") != "False":
                    stopping.add((file.name, function.name))
    assert checked >= 4
    assert stopping == UTILITIES
