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
WIDTH = 620.0
NAMES, FIGURES = 250.0, 70.0
"""Pixels to the left of the bars, for their names, and to the right, for their figures."""
TOP, PITCH, THICK = 34.0, 24.0, 14.0
OURS, OTHERS, BOUNDS = "f0", "f1", "bound"
"""Classes of bars: ours, another's or a published method's, and a floor or a ceiling."""
EXTRA = ".bound{fill:#8a8f9a}@media(prefers-color-scheme:dark){.bound{fill:#6c7380}}"
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
    """One headline: its picture, what it says, and where all of it is."""

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
    height = TOP + PITCH * len(bars) + 12
    room = WIDTH - NAMES - FIGURES
    most = max(bar.value for bar in bars)
    body = f"<style>{STYLE}{EXTRA}</style>" + svg.rect(0, 0, WIDTH, height, "paper")
    body += svg.text(NAMES, 20, axis, "ax")
    for place, bar in enumerate(bars):
        y = TOP + PITCH * place
        figure = f"{bar.value:.{decimals}f}"
        body += svg.text(NAMES - 8, y + THICK - 2, bar.name, anchor="end")
        body += svg.rect(NAMES, y, room * bar.value / most, THICK, bar.colour)
        body += svg.text(NAMES + room * bar.value / most + 6, y + THICK - 2, figure)
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
        "one place, at the same ε. FLAIM has more error than exact single columns have.",
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
        "Parties with different columns, under a guarantee",
        "distance of three columns on Adult, ε = 0.8 (less is better)",
        [*bars, Bar("columns without any link", mean(floor["3way"]), BOUNDS)],
        3,
        f"SecureTwoRound over two parties has {ratio:.2f} times the error of TwoRound with all "
        "columns at one place. VertiMRF and VertiGAN are about as far off as no link at all.",
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
        "Parties with different columns, without a guarantee",
        "resemblance on Adult, of 100; rows raked (more is better)",
        [first, *bars, Bar("shuffled columns", floor or 0.0, BOUNDS)],
        1,
        "A network over four parties comes to the figure of one that has the whole table, with "
        "two questions to every party. It guarantees nothing.",
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
    return Headline(
        "headline-budget.svg",
        "One table, ε = 1: counts or a network",
        "XGB-C2ST on Adult (100: a detector cannot distinguish the rows)",
        bars,
        1,
        "Models of noisy counts are harder to distinguish from real rows than networks with "
        "noise in their gradients, at the same ε.",
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
        "XGB-C2ST as drawn (100: a detector cannot distinguish the rows)",
        bars,
        1,
        f"{ours} deceives a detector more than {peer} on {ahead} of {len(tables)} tables, on two "
        "shared cores (authors' rows of Adult: 67.9 to 72.5).",
        "tabsyns-protocol",
    )


def of_forecasts(results: Path) -> Headline:
    """Return how the error that `check` forecasts compares with the error of a run."""
    found = [ratio for line in forecast.lines() for ratio in [forecast.ratios(line)]]
    low, middle, high = np.percentile([ratio for ratio, _ in found], (10, 50, 90))
    pair_low, pair_middle, pair_high = np.percentile([ratio for _, ratio in found], (10, 50, 90))
    bars = [
        Bar("single columns: lowest tenth", float(low)),
        Bar("single columns: median", float(middle)),
        Bar("single columns: highest tenth", float(high)),
        Bar("pairs: lowest tenth", float(pair_low), OTHERS),
        Bar("pairs: median", float(pair_middle), OTHERS),
        Bar("pairs: highest tenth", float(pair_high), OTHERS),
    ]
    return Headline(
        "headline-forecasts.svg",
        "What ε buys, known before it is spent",
        "error forecast by check, divided by that of a run (1 is exact)",
        bars,
        2,
        f"Over {len(found)} runs of AIM and TwoRound at ε = 0.3, 1 and 3, the median forecast of "
        f"a share is {middle:.2f} times the error that came out.",
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
    return Headline(
        "headline-persons.svg",
        "A patient with a hundred rows",
        "AUC of an attack at ε = 1, by what a unit is (.5 is chance)",
        bars,
        2,
        "With a row as the unit, a patient with a hundred rows is always found. With a person as "
        "the unit, the attack is near chance.",
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
        "times as fast as the authors' or SDV's code, last measured",
        bars,
        1,
        "[Speed](speed.md) has AIM beside mbi, and [scaling](scaling.md) how cost grows.",
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
        "Refuted are guarantees that do not hold as published; the default here is a sound "
        "version. *Exceeded* is often the work of raking.",
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

Written by `benchmarks/results_page.py` from the runs in `benchmarks/results/`. Figures are means
over runs. `siloweave check` forecasts the error on your own table.
"""


def page(results: Path) -> str:
    """Return the page of headlines."""
    parts = [TOP_TEXT]
    for make in CHARTS:
        headline = make(results)
        parts.append(
            f"## {headline.title}\n\n{headline.text} "
            f"[All figures](results/{headline.appendix}.md).\n\n"
            f"![{headline.axis}](images/{headline.file})\n"
        )
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
