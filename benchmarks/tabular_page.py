"""The part of docs/reference/results/ on TabSyn's protocol; written by results_page.py.

Cells without a run say so. Figures are means over seeds, and of runs with the same key the last
line counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev
from textwrap import fill
from typing import Any

from marked import table as markdown
from tabular import OURS, PEERS, PRIVATE_PEERS, SEEDS, failed, key
from tabular_picture import draw
from tabular_run import AGAIN, APART, BINS, BOUNDS, CEILING, FLOOR, SUPPORT_ROWS, TABLES

Row = dict[str, Any]
NOT_RUN = "not run"
MEASURES = {
    "XGB-C2ST": 1,
    "LightGBM-C2ST": 1,
    "Shape": 2,
    "Trend": 2,
    "alpha-precision": 1,
    "beta-recall": 1,
    "information error": 4,
    "three-way": 4,
    "every column": 1,
    "XGB utility": 3,
    "utility": 3,
    "leak": 1,
}
"""Measures in the order in which they are shown, and their decimals."""
CUT = 9
"""Columns of a table's first part: method, rows, runs and six measures. All would be too wide."""
TEXT = f"""
## Tables by TabSyn's protocol

From `tabular.py`. Nine tenths of the rows are learnt from (Adult: its own split), as many rows are
drawn, and all of them are judged against the training rows, and by models that learn from them, on
the test rows. Covertype, intrusion and census: 50,000 rows, drawn once. Identifiers are left out.
Where a method rakes its rows, a second line has them as drawn. Detectors find raked rows too good
([how far](#how-far-raking-deceives-a-detector)), so compare those with other figures.

- **XGB-C2ST**, **LightGBM-C2ST**: 100 for rows that a detector cannot distinguish from the
  training rows, 0 for rows that it always recognises
  ([beside XGBoost](#xgb-c2st-by-scikit-learns-trees)).
- **Shape**, **Trend**: SDMetrics' column shapes, and pair trends over all pairs.
- **alpha-precision**, **beta-recall**: {SUPPORT_ROWS:,} rows of either table at most.
- **information error**: of the mutual information of pairs, weighted; 0 is best.
- **three-way**: total variation of 300 triples of columns at most, numbers in {BINS} equal bins.
- **every column**: how well each column is learnt from all others, beside real rows (100).
- **XGB utility**: area under the curve of the trees of XGB-C2ST for a target of classes, the mean
  of one against the rest; for a number the root mean squared error in standard deviations, where
  less is better. Runs before 2026-12-01 do not have it.
- **utility**: the same with trees whose leaves are not shrunk. With more than two classes it
  depends on chance (decision 0020): the training rows of covertype teach .951, and the same rows
  drawn again .975.
- **leak**: training rows that the best of seven membership attacks finds at 1 % false alarms, in
  per cent; chance is 1 to 3.
- *{FLOOR}* is the floor. *{CEILING}* are the test rows, and the ceiling: there are fewer of them,
  which moves Shape and Trend down; its utility is that of the training rows.
- *{AGAIN}* are as many as there are, with repetitions. Chance keeps a perfect generator to
  the same Shape and Trend. Other measures would find the repeated rows, so they are left out.
- *fed_point_diff* trains over five parties, each with rows that are alike. For *point_diff at each
  party* every one of them is fitted alone, and their drawn rows are put together.

Seconds are of a fit, wall and processor, on a machine that other work shared. Numbers that a peer
draws beyond the bounds are set to the nearer one. Two fits of peers to california_housing end in
errors of their own: ARF's in a distribution of width 0, NRGBoost's in an assertion on its bins.
"""


PICTURE = "tabular.svg"
PICTURED = f"""![XGB-C2ST by seconds and by leak](images/{PICTURE})

Every dot is one run with the usual settings: rows as drawn, processor seconds of the fit, and the
training rows that the best of seven membership attacks finds at 1 % false alarms.

Settings of `point_diff` were chosen on california_housing, heloc and census, the rate of its blocks
and its steps on covertype too, and constraints that are proposed on bank_marketing and covertype.
Adult and churn judge. Intrusion no longer does: when the rate of other weights was chosen, by
census and california_housing, its runs with both were known, and quotients are drawn exactly since
detectors used them there.
"""

DETECTOR_NOTES = {
    "bank_marketing": """
Two fits with *three layers of 384* differ by 9 points, and each by 3 at most when its rows are
drawn or judged again. Detectors use `euribor3m`, with the day of the week and the other rates of a
month. In 22 % of one fit's rows as drawn, and in 18 % of the other's, no real row has that rate on
that day of the week. This was looked up by hand: `tabular.py` has no command for it.
""",
}
"""What detectors use on a table, where it was looked up."""

OUR_DIFFUSIONS = ("point_diff", "silofuse", "fed_point_diff")

BUDGET = "ε = 1"
"""Label of the runs that are shown beside each other."""
BUDGET_TEXT = f"""
### Under a budget, by TabSyn's protocol

{BUDGET}, δ = 1e-6, add/remove one row; rows as they are released. Each run had one of two cores,
but for the networks, which shared them; so only processor seconds of the fit are shown. Noise is
that of the system, so a run again has other figures.

*AIM of mbi* is the script of mbi's repository on mbi 2.0.0, with its defaults: pairs of columns of
up to 10,000 cells, and 80 MB for the model. It gets the same bounds and categories as ours.

Its users cut numbers themselves: here into 32 bins of equal width, drawn evenly inside a bin and
rounded to the column's decimals. mbi compiles every candidate of every round; here its tables are
computed without, which gives the same figures in a fraction of the seconds.

On heloc 5.6 % of the rows have -9 in every column of numbers, where one category allows nothing
else. `aim` draws 5.7 % of them (seed 0): the one value that a category allows is written into
drawn rows of that category.
"""
COMPARED = {"three-way": 4, "XGB-C2ST": 1, "XGB utility": 3}
"""Measures that are shown under a budget, and their decimals."""


def lines(results: Path) -> list[Row]:
    """Return the runs that count: the last of each key, none of a trial on fewer rows."""
    return counted(results / "tabular.jsonl")


def failures(results: Path) -> list[Row]:
    """Return the runs that ended without a result, the last of each key."""
    return counted(failed(results / "tabular.jsonl"))


def counted(file: Path) -> list[Row]:
    """Return the last line of each key in a file, none of a trial on fewer rows."""
    if not file.is_file():
        return []
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return list({key(row): row for row in rows if row["rows_asked"] is None}.values())


def figure(values: list[float], decimals: int) -> str:
    """Return a mean, and the standard deviation where there are several runs."""
    if not values:
        return "–"
    text = f"{mean(values):.{decimals}f}"
    if len(values) > 1:
        text += f" ± {stdev(values):.{decimals}f}"
    return text


def cells(runs: list[Row], scores: str) -> list[str]:
    """Return the figures of a method's runs, of rows raked or as drawn."""
    found = [run[scores] for run in runs]
    figures = [
        figure([row[name] for row in found if name in row], decimals)
        for name, decimals in MEASURES.items()
    ]
    seconds = [
        figure([run[name] for run in runs if name in run], 0) for name in ("fit_seconds", "fit_cpu")
    ]
    return [str(len(runs)), *figures, " / ".join(seconds)]


def table_of(name: str, rows: list[Row]) -> str:
    """Return one table's heading and figures."""
    here = [row for row in rows if row["table"] == name]
    title = f"### {name}, by TabSyn's protocol\n\n"
    if not here:
        return title + "Not run.\n"
    first = here[0]
    whole = first["rows"][1]
    title += (
        f"{first['train']:,} training rows and {first['test']:,} test rows of {whole:,}, "
        f"{first['columns']} columns.\n"
    )
    title += DETECTOR_NOTES.get(name, "") + "\n"
    head = ["method", "rows", "runs", *MEASURES, "fit, s / processor"]
    labels = sorted({row["label"] for row in here} - {""})
    body = []
    missing_methods = []
    known = (*BOUNDS, *OURS, *PEERS)
    others = sorted({row["method"] for row in here} - set(known))
    for method in (*known, *others):
        for label in ("", *labels):
            runs = [row for row in here if (row["method"], row["label"]) == (method, label)]
            shown = f"{method}, {label}" if label else method
            if not runs:
                if not label and method in known:
                    missing_methods.append(method)
                continue
            raked = all(run.get("raked") for run in runs)
            body.append([shown, "raked" if raked else "", *cells(runs, "scores")])
            if raked:
                body.append(["", "as drawn", *cells(runs, "as_drawn")[:-1], "–"])
    upper = [row[:CUT] for row in (head, *body)]
    lower = [[*row[:2], *row[CUT:]] for row in (head, *body)]
    parts = [markdown(first, rest, words=2) for first, *rest in (upper, lower)]
    text = title + "\n\n".join(parts) + "\n"
    if missing_methods:
        text += f"\nNot run here: {', '.join(missing_methods)}.\n"
    return text


def under_a_budget(rows: list[Row], ended: list[Row]) -> str:
    """Return what methods with a guarantee score on every table, and what is ahead.

    Args:
        rows: Runs that have scores.
        ended: Runs that ended without.
    """
    here = [row for row in rows if row["label"] == BUDGET]
    if not here:
        return ""
    always = ("aim", "two_round", *PRIVATE_PEERS)
    others = sorted({row["method"] for row in here} - set(always))
    head = ["table", "method", "runs", *COMPARED, "fit, processor s"]
    body = []
    for table in TABLES:
        for method in (*always, *others):
            runs = [row for row in here if (row["table"], row["method"]) == (table, method)]
            stops = [
                row for row in ended
                if (row["table"], row["method"], row["label"]) == (table, method, BUDGET)
            ]  # fmt: skip
            if runs:
                body.append([table, method, str(len(runs)), *compared(runs)])
            elif method in always:
                reason = stops[-1]["reason"] if stops else NOT_RUN
                body.append([table, method, "0", *["–"] * len(COMPARED), reason])
    text = markdown(head, body, words=2)
    return "\n\n".join([BUDGET_TEXT.rstrip(), text, *standing(here)]) + "\n"


def compared(runs: list[Row]) -> list[str]:
    """Return the figures of a method's runs under a budget."""
    figures = [
        figure([run["scores"][name] for run in runs if name in run["scores"]], decimals)
        for name, decimals in COMPARED.items()
    ]
    return [*figures, figure([run["fit_cpu"] for run in runs], 0)]


def standing(rows: list[Row]) -> list[str]:
    """Return sentences: against each other method, where AIM is ahead and where it is behind."""
    others = sorted({row["method"] for row in rows} - {"aim"})
    return [sentence for other in others if (sentence := beside(rows, other))]


def beside(rows: list[Row], other: str) -> str:
    """Return where AIM is ahead of another method, measure by measure; of tables that both have."""

    def means(method: str, name: str) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for row in rows:
            if row["method"] == method and name in row["scores"]:
                found.setdefault(row["table"], []).append(row["scores"][name])
        return {table: mean(values) for table, values in found.items()}

    parts = []
    for name in COMPARED:
        mine, theirs = means("aim", name), means(other, name)
        common = [table for table in TABLES if table in mine and table in theirs]
        classes = {row["table"]: row["classes"] for row in rows}
        ahead = []
        for table in common:
            is_less_better = name == "three-way" or (name == "XGB utility" and not classes[table])
            gap = mine[table] - theirs[table]
            if gap < 0 if is_less_better else gap > 0:
                ahead.append(table)
        behind = [table for table in common if table not in ahead]
        if common:
            parts.append(
                f"{name}: ahead on {len(ahead)} of {len(common)}"
                + (f", behind on {', '.join(behind)}" if behind else "")
            )
    return f"`aim` beside `{other}`: " + "; ".join(parts) + "." if parts else ""


def missing(rows: list[Row]) -> str:
    """Say how many of the runs that the protocol asks for are there, and which failed to be."""
    asked = [
        (table, method, seed)
        for table in TABLES
        for method in (*BOUNDS, *OURS, *PEERS)
        for seed in SEEDS
    ]
    there = {(row["table"], row["method"], row["seed"]) for row in rows if not row["label"]}
    count = sum(run in there for run in asked)
    return (
        f"{count} of {len(asked)} runs are there ({len(TABLES)} tables, three seeds); "
        "`tabular.py --list` names the others, and a further call runs them.\n"
    )


def older_networks(rows: list[Row]) -> str:
    """Name the runs of our diffusions that have another network; nothing where none has."""
    dense = set()
    unshown = set()
    for row in ours(rows):
        diffusion = row["settings"]["diffusion"]
        label = f"*{row['label']}*"
        if not diffusion["residual"]:
            dense.add(label)
        elif not diffusion.get("self_conditioned"):
            unshown.add(label)

    paragraphs = []
    if dense:
        paragraphs.append(
            "Since 2026-11-30 the networks of `point_diff`, `silofuse` and `fed_point_diff` have "
            "residual blocks (decision 0007). Runs of before that have three dense layers of 384 "
            f"units: {', '.join(sorted(dense))}."
        )
    if unshown:
        paragraphs.append(
            "Blocks of some runs learned at the same rate as other weights, and these networks "
            f"were not shown their estimates of categories: {', '.join(sorted(unshown))}."
        )
    return "\n\n".join(fill(text, 100) for text in paragraphs) + "\n"


def ours(rows: list[Row]) -> list[Row]:
    """Return the runs of our own diffusion, whoever holds the rows."""
    return [row for row in rows if row["method"].removesuffix(APART) in OUR_DIFFUSIONS]


def source(rows: list[Row]) -> str:
    """Return the releases, commits and machines behind the figures."""
    if not rows:
        return ""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    machines = "; ".join(sorted({row["machine"] for row in rows}))
    releases = ", ".join(sorted({row["release"] for row in rows if "release" in row}))
    load = [value for row in rows for value in row["load"]]
    text = f"Source: commit {commits}; {machines}, load average {min(load):.1f} to {max(load):.1f}"
    return text + (f"; {releases}" if releases else "") + ".\n"


def page(results: Path) -> str:
    """Return the section, with a table for every table, run or not."""
    rows = lines(results)
    parts = [TEXT, missing(rows), older_networks(rows)]
    parts.append(PICTURED if any("fit_cpu" in row for row in rows) else "")
    parts.append(under_a_budget(rows, failures(results)))
    parts += [*(table_of(name, rows) for name in TABLES), source(rows)]
    return "\n".join(part for part in parts if part)


def draw_picture(results: Path, images: Path) -> None:
    """Draw what runs cost and leak beside their fidelity; nothing where there are no runs."""
    rows = [row for row in lines(results) if row["label"] in ("", BUDGET)]
    if any("fit_cpu" in row for row in rows):
        draw(images / PICTURE, rows)
