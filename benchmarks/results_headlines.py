"""Count and draw the headlines of docs/reference/results.md, one screen of figures.

Each chart is drawn from the lines in results/ that the appendix linked beside it is made of.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import columns_split_page
import forecast
import neural_page
import neural_speed_page
import numpy as np
import results_split
import tabular_page
import units
import verdicts
from log_plot import STYLE
from tabular_run import TABLES

from siloweave.report import svg

Row = dict[str, Any]
WIDTH = 300.0
"""Pixels; three cards stand side by side, so a picture is shown at about this width."""
FIGURES = 40.0
"""Pixels to the right of the longest bar, for its figure."""
TOP, PITCH, THICK = 19.0, 15.0, 10.0
OURS, OTHERS, BOUNDS = "f0", "f1", "bound"
"""Classes of bars: ours, another's or a published method's, and a floor or a ceiling."""
EXTRA = ".bound{fill:#8a8f9a}@media(prefers-color-scheme:dark){.bound{fill:#6c7380}}"
LETTERS = 10.5
SMALL = f"text,.ax{{font-size:{LETTERS}px}}"
"""What cards change of the style of larger pictures."""
RESEMBLANCE = "resemblance (SiloFuse)"
GENERATORS = ("point_diff", "TabularARGN")
"""Ours, and the peer that runs on every table in minutes."""
MOST_TABLES = 4  # in the chart of both


class Bar(NamedTuple):
    """One line of a chart."""

    name: str
    value: float
    colour: str = OURS


class Headline(NamedTuple):
    """One headline: its picture, a sentence with the figure, and where all of it is."""

    file: str
    title: str
    axis: str
    bars: list[Bar]
    decimals: int
    text: str
    appendix: str


def rows_of(file: Path) -> list[Row]:
    """Return the lines of a file of results, but those of code that has changed since."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if not row.get("label")]


def average(rows: Sequence[Row], value: str, /, **asked: object) -> float:
    """Return the mean of a figure over the runs that have what is asked."""
    return mean(row[value] for row in rows if all(row.get(k) == v for k, v in asked.items()))


def chart(title: str, axis: str, bars: Sequence[Bar], decimals: int) -> str:
    """Return one chart of bars, readable on light and on dark pages."""
    height = TOP + PITCH * len(bars)
    names = max(svg.text_width(bar.name, LETTERS) for bar in bars) + 14
    room = WIDTH - names - FIGURES
    most = max(bar.value for bar in bars)
    body = f"<style>{STYLE}{EXTRA}{SMALL}</style>" + svg.rect(0, 0, WIDTH, height, "paper")
    body += svg.text(4, 12, axis, "ax")
    for place, bar in enumerate(bars):
        y = TOP + PITCH * place
        figure = f"{bar.value:.{decimals}f}"
        body += svg.text(names - 8, y + THICK - 1, bar.name, anchor="end")
        body += svg.rect(names, y, room * bar.value / most, THICK, bar.colour)
        body += svg.text(names + room * bar.value / most + 6, y + THICK - 1, figure)
    listed = ", ".join(f"{bar.name} {bar.value:.{decimals}f}" for bar in bars)
    drawn = svg.figure(WIDTH, height, body, title=title, desc=f"{axis}: {listed}.")
    return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def of_rows_split(results: Path) -> Headline:
    """Return what splitting rows costs under a guarantee."""
    rows = rows_of(results / "flaim_adult.jsonl")
    floors = [row for row in rows_of(results / "flaim_floors.jsonl") if row["table"] == "adult"]
    methods = {
        "AIM": "AIM, all rows at one place",
        "TwoRound": "TwoRound",
        "DistAIM": "DistAIM",
        "AugFLAIM (Private), cap=1": "FLAIM, one round a party",
        "AugFLAIM (Private)": "FLAIM, its paper's rounds",
    }
    bars = [Bar(shown, average(rows, "closure", method=name)) for name, shown in methods.items()]
    floor = floors[0]["floor"]["closure"]
    by_name = {bar.name: bar.value for bar in bars}
    times = by_name["TwoRound"] / by_name["AIM, all rows at one place"]
    return Headline(
        "headline-rows.svg",
        "A hundred parties with different rows",
        "error of marginals on Adult, ε = 1 (less is better)",
        [*bars, Bar("columns without any link", floor, BOUNDS)],
        3,
        f"TwoRound over a hundred parties has {times:.2f} times the error of AIM with all rows at "
        "one place.",
        "rows-split",
    )


def of_columns_split(results: Path) -> Headline:
    """Return what splitting columns costs under a guarantee."""
    every = rows_of(results / "columns_split.jsonl")
    runs = [
        row
        for row in every
        if "refused" not in row and not {"split", "columns"} & row.keys() and "3way" in row
    ]
    size = columns_split_page.PAPER["adult_privmrf"]
    asked = {"table": "adult_privmrf", "epsilon": columns_split_page.EPSILON, "rows": size}
    methods = {
        ("two_round", 1): Bar("TwoRound, one place", 0.0),
        ("secure_two_round", 2): Bar("SecureTwoRound", 0.0),
        ("secure_two_round", 8): Bar("SecureTwoRound, 8 parties", 0.0),
        ("aim", 1): Bar("AIM, one place", 0.0),
        ("vertimrf_fo", 2): Bar("VertiMRF-FO", 0.0, OTHERS),
        ("vertigan", 2): Bar("VertiGAN", 0.0, OTHERS),
    }
    bars = [
        bar._replace(value=average(runs, "3way", method=name, parties=parties, **asked))
        for (name, parties), bar in methods.items()
    ]
    floors = rows_of(results / "columns_split_floors.jsonl")
    (floor,) = [
        row for row in floors if (row["table"], row["parties"]) == ("adult_privmrf", "each")
    ]
    ratio = bars[1].value / bars[0].value
    return Headline(
        "headline-columns.svg",
        "Different columns, under a guarantee",
        "3-column distance on Adult, ε = 0.8 (less is better)",
        [*bars, Bar("columns without any link", mean(floor["3way"]), BOUNDS)],
        3,
        f"SecureTwoRound over two parties has {ratio:.2f} times the error of TwoRound with all "
        "columns at one place.",
        "private-columns",
    )


def of_silofuse(results: Path) -> Headline:
    """Return how near networks over split columns come to one table."""
    runs = neural_page.latest(neural_page.lines(results / "silofuse.jsonl"))
    central = neural_page.latest(neural_page.lines(results / "neural_quality.jsonl"))
    here = [run for run in runs if run["table"] == "adult"]
    settings = {
        "silofuse": Bar("silofuse, sphere codes", 0.0),
        "silofuse_autoencoders": Bar("silofuse, autoencoders", 0.0),
        "e2e_distr": Bar("e2e_distr", 0.0, OTHERS),
    }
    bars = []
    for setting, bar in settings.items():
        found = [run for run in here if neural_page.setting(run) == setting]
        bars.append(bar._replace(value=mean(score(run) for run in found)))
    whole = [
        run
        for run in central
        if (run["table"], run["model"], run["label"]) == ("adult", "point_diff", "")
    ]
    first = Bar("point_diff, one place", mean(score(run) for run in whole))
    floor = neural_page.mean_floor([run for run in here if RESEMBLANCE in run["scores"]],
                                     RESEMBLANCE)  # fmt: skip
    return Headline(
        "headline-silofuse.svg",
        "Different columns, without a guarantee",
        "resemblance of raked rows, Adult (more is better)",
        [first, *bars, Bar("shuffled columns", floor or 0.0, BOUNDS)],
        1,
        f"A network over four parties, asked twice each, has a resemblance of {bars[0].value:.1f} "
        f"of 100; with the whole table it has {first.value:.1f}.",
        "columns-split",
    )


def score(run: Row) -> float:
    """Return the resemblance of a run."""
    found = run["scores"][RESEMBLANCE]
    return float(found["value"] if isinstance(found, dict) else found)


def of_networks(results: Path) -> Headline:
    """Return which generators detectors recognise under the same budget."""
    runs = [
        row
        for row in tabular_page.lines(results)
        if (row["table"], row["label"]) == ("adult", tabular_page.BUDGET)
    ]
    names = ("aim", "two_round", "dp_ctgan", "dp_tabddpm", "dp_tldm")
    bars = []
    for name in names:
        scores = [row["scores"]["XGB-C2ST"] for row in runs if row["method"] == name]
        bars.append(Bar(name, mean(scores), OURS if name in names[:2] else OTHERS))
    best = max(bar.value for bar in bars[2:])
    return Headline(
        "headline-budget.svg",
        "One table, ε = 1: counts or a network",
        "XGB-C2ST on Adult (100: rows that pass as real)",
        bars,
        1,
        f"A detector rates rows of noisy counts {bars[0].value:.0f} and {bars[1].value:.0f} of "
        f"100, and rows of networks with noise {best:.0f} at most.",
        "tabsyns-protocol",
    )


def of_generators(results: Path) -> Headline:
    """Return how detectors fare with our generator and with a peer, without a guarantee."""
    scores: dict[tuple[str, str], list[float]] = {}
    for row in tabular_page.lines(results):
        if row["label"] or row["method"] not in GENERATORS:
            continue
        # Ours as it is drawn, since the peer does not rake its rows.
        figures = row.get("as_drawn") or row["scores"]
        scores.setdefault((row["table"], row["method"]), []).append(figures["XGB-C2ST"])
    ours, peer = GENERATORS
    tables = [table for table in TABLES if all((table, name) in scores for name in GENERATORS)]
    bars = []
    for table in tables[:MOST_TABLES]:
        bars.append(Bar(f"{table}, {ours}", mean(scores[table, ours])))
        bars.append(Bar(f"{table}, {peer}", mean(scores[table, peer]), OTHERS))
    ahead = sum(mean(scores[table, ours]) > mean(scores[table, peer]) for table in tables)
    return Headline(
        "headline-generators.svg",
        "One table, without a guarantee",
        "XGB-C2ST as drawn (100: rows that pass as real)",
        bars,
        1,
        f"{ours} deceives a detector more than {peer} on {ahead} of {len(tables)} tables.",
        "tabsyns-protocol",
    )


def of_forecasts(results: Path) -> Headline:
    """Return how the error that `check` forecasts compares with the error of a run."""
    found = [ratio for line in forecast.lines() for ratio in [forecast.ratios(line)]]
    low, middle, high = np.percentile([ratio for ratio, _ in found], (10, 50, 90))
    pair_low, pair_middle, pair_high = np.percentile([ratio for _, ratio in found], (10, 50, 90))
    bars = [
        Bar("columns: lowest tenth", float(low)),
        Bar("columns: median", float(middle)),
        Bar("columns: highest tenth", float(high)),
        Bar("pairs: lowest tenth", float(pair_low), OTHERS),
        Bar("pairs: median", float(pair_middle), OTHERS),
        Bar("pairs: highest tenth", float(pair_high), OTHERS),
    ]
    return Headline(
        "headline-forecasts.svg",
        "What ε buys, known before it is spent",
        "error by check / error of a run (1 is exact)",
        bars,
        2,
        f"Over {len(found)} runs the median forecast of a share's error is {middle:.2f} times the "
        "error that came out.",
        "forecasts",
    )


def of_persons(results: Path) -> Headline:
    """Return whether a patient with a hundred rows is found."""
    found = units.lines("audit")
    bars = []
    for method in ("AIM", "TwoRound", "SecureTwoRound"):
        for unit, colour in (("person", OURS), ("row", OTHERS)):
            hits, others = (
                np.array(
                    [
                        line["rows"]
                        for line in found
                        if (line["method"], line["unit"]) == (method, unit)
                        and line["patient"] is there
                    ]
                )
                for there in (True, False)
            )
            size = min(len(hits), len(others))
            bars.append(Bar(f"{method}, a {unit}", units.auc(hits[:size], others[:size]), colour))
    by_row = min(bar.value for bar in bars if bar.colour == OTHERS)
    by_person = max(bar.value for bar in bars if bar.colour == OURS)
    return Headline(
        "headline-persons.svg",
        "A patient with a hundred rows",
        "AUC of an attack at ε = 1, by unit (.5 is chance)",
        bars,
        2,
        f"With a row as the unit an attack on a patient has an AUC of {by_row:.2f}, with a person "
        f"{by_person:.2f} at most.",
        "persons",
    )


def of_speed(results: Path) -> Headline:
    """Return how often as fast ours is as the peers' code, by the last call of each part."""
    rows = neural_page.lines(results / "neural_speed.jsonl")
    parts = {
        "CTGAN: training": ("ctgan-steps", lambda row: row["steps_a_second"], False),
        "CTGAN: fit and sample": ("ctgan-whole", lambda row: row["whole_seconds"], True),
        "TabDDPM: training": ("tabddpm", lambda row: row["steps_a_second"], False),
    }
    bars = []
    for name, (part, of, is_less_better) in parts.items():
        last = [row for row in rows if row["part"] == part][-1]["call"]
        call = [row for row in rows if row["part"] == part and row["call"] == last]
        ours, peer = (float(np.median(neural_speed_page.middle(call, side, of)))
                      for side in ("ours", "peer"))  # fmt: skip
        bars.append(Bar(name, peer / ours if is_less_better else ours / peer))
    return Headline(
        "headline-speed.svg",
        "Networks on two cores",
        "times as fast as SDV's or the authors' code",
        bars,
        1,
        f"CTGAN trains {bars[0].value:.1f} times as fast as in SDV's code, and TabDDPM "
        f"{bars[2].value:.1f} times as fast as in its authors'.",
        "neural-speed",
    )


def of_verdicts(results: Path) -> Headline:
    """Return how many claims of the papers hold here."""
    claims = [claim for paper in verdicts.CLAIMS.values() for claim in paper]
    counted = Counter(claim.verdict for claim in claims)
    colours = {"not reproduced": OTHERS, "refuted": OTHERS, "not run": BOUNDS}
    bars = [Bar(word, counted[word], colours.get(word, OURS)) for word in verdicts.WORDS]
    return Headline(
        "headline-verdicts.svg",
        "What five papers claim",
        f"of {len(claims)} claims",
        bars,
        0,
        f"Of {len(claims)} claims {counted['reproduced'] + counted['exceeded']} are reproduced or "
        f"exceeded, {counted['not reproduced']} are not, and {counted['refuted']} are refuted.",
        "verdicts",
    )


CURVES = {
    ("two_round", 1): "TwoRound, one place",
    ("secure_two_round", 2): "SecureTwoRound, 2 parties",
    ("aim", 1): "AIM, one place",
    ("privmrf", 1): "PrivMRF, one place",
    ("vertimrf_fo", 2): "VertiMRF-FO, 2 parties",
    ("vertigan", 2): "VertiGAN, 2 parties",
}
"""Methods of the picture of errors by ε, and their names there."""
ERRORS_TOP, ERRORS_BOTTOM = 46.0, 260.0
COLOURS = ("#3f63d6", "#12806a", "#d9822b", "#a04bb8", "#b3323f", "#2b8fb3")


def error_height(error: float) -> float:
    """Return how far down an error between .001 and .3 is drawn, on a logarithmic axis."""
    share = math.log(error / 0.001) / math.log(0.3 / 0.001)
    return ERRORS_BOTTOM - (ERRORS_BOTTOM - ERRORS_TOP) * share


def draw_errors(results: Path, file: Path) -> None:
    """Draw the error of three columns by ε on the tables of columns_split.py, for choosing.md."""
    tables = {"adult_privmrf": "Adult, 45,222 rows", "nltcs": "NLTCS, 21,574 rows of 16 bits"}
    runs = [row for row in rows_of(results / "columns_split.jsonl") if "3way" in row]
    runs = [row for row in runs if not {"split", "columns"} & row.keys()]
    floors = rows_of(results / "columns_split_floors.jsonl")
    epsilons = sorted({row["epsilon"] for row in runs})
    width, height, top, bottom = 860.0, 310.0, ERRORS_TOP, ERRORS_BOTTOM
    body = f"<style>{STYLE}{EXTRA}</style>" + svg.rect(0, 0, width, height, "paper")
    for panel, (table, title) in enumerate(tables.items()):
        left, room = 60.0 + 320 * panel, 240.0
        here = [
            row
            for row in runs
            if (row["table"], row["rows"]) == (table, columns_split_page.PAPER[table])
        ]
        body += svg.text(left, top - 18, title, "title")
        for mark in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3):
            body += svg.line(left, error_height(mark), left + room, error_height(mark), "grid")
            body += svg.text(left - 6, error_height(mark) + 4, f"{mark:g}", "ax", "end")
        for place, epsilon in enumerate(epsilons):
            x = left + room * place / (len(epsilons) - 1)
            body += svg.text(x, bottom + 18, f"{epsilon:g}", "ax", "middle")
        (floor,) = [row for row in floors if (row["table"], row["parties"]) == (table, "each")]
        level = error_height(mean(floor["3way"]))
        body += svg.path([(left, level), (left + room, level)], "guide")
        for (method, parties), colour in zip(CURVES, COLOURS, strict=True):
            points = []
            for place, epsilon in enumerate(epsilons):
                found = [
                    row["3way"]
                    for row in here
                    if (row["method"], row["parties"], row["epsilon"]) == (method, parties, epsilon)
                ]
                if found:
                    x = left + room * place / (len(epsilons) - 1)
                    points.append((x, error_height(mean(found))))
            drawn = " ".join(f"{svg.num(x)},{svg.num(y)}" for x, y in points)
            body += f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
            for x, y in points:
                body += f'<circle cx="{svg.num(x)}" cy="{svg.num(y)}" r="3" fill="{colour}"/>'
        body += svg.text(left + room / 2, bottom + 38, "ε", "ax", "middle")
    for place, (name, colour) in enumerate(zip(CURVES.values(), COLOURS, strict=True)):
        y = top + 14 + 26 * place
        body += f'<circle cx="652" cy="{svg.num(y - 4)}" r="5" fill="{colour}"/>'
        body += svg.text(664, y, name)
    y = top + 14 + 26 * len(CURVES)
    body += svg.path([(642, y - 4), (660, y - 4)], "guide")
    body += svg.text(664, y, "columns without any link")
    desc = "Mean total variation distance of three columns, by ε, for six methods on two tables."
    drawn = svg.figure(width, height, body, title="Error by ε", desc=desc)
    file.write_text(drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n")


CHARTS = (
    of_rows_split,
    of_columns_split,
    of_silofuse,
    of_networks,
    of_generators,
    of_forecasts,
    of_persons,
    of_speed,
    of_verdicts,
)
TOP_TEXT = """# Results

Blue bars are ours, grey ones a floor, orange ones another method or a second measure.

<div class="grid cards headlines" markdown>
"""
READING = """</div>

Figures are means over runs, written by `benchmarks/results_page.py`. `siloweave check`
forecasts the error on your own table.

- FLAIM has more error than exact single columns; VertiMRF and VertiGAN about as much.
- XGB-C2ST is from two shared cores; the authors' rows of Adult have 67.9 to 72.5.
- Refuted guarantees do not hold as published; the default is sound. *Exceeded* is often the
  work of raking.
- [Speed](speed.md) has AIM beside mbi, and [scaling](scaling.md) how cost grows.
"""


def page(results: Path) -> str:
    """Return the page of headlines: a card each, then what their charts need to be read."""
    parts = [TOP_TEXT]
    for make in CHARTS:
        headline = make(results)
        parts.append(
            f"-   ## {headline.title}\n\n"
            f"    {headline.text} [Figures](results/{headline.appendix}.md)\n\n"
            f"    ![{headline.axis}](images/{headline.file})\n"
        )
    parts.append(READING)
    parts.append("## Everything that was measured\n")
    parts.append(
        "\n".join(
            f"- [{appendix.title}](results/{appendix.name}.md): {appendix.about}"
            for appendix in results_split.APPENDICES
        )
        + "\n"
    )
    return "\n".join(parts)


def draw(results: Path, images: Path) -> None:
    """Draw the charts."""
    for make in CHARTS:
        headline = make(results)
        drawn = chart(headline.title, headline.axis, headline.bars, headline.decimals)
        (images / headline.file).write_text(drawn)
    draw_errors(results, images / "error-by-epsilon.svg")
