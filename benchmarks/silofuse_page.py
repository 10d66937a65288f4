"""The part of docs/reference/results/ on parties that hold different columns.

Lines are silofuse.py's; central runs on the same rows are those of neural.py. Published: Shankar et
al. 2024, "SiloFuse" (ICDE), its tables of resemblance, utility and privacy.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from textwrap import fill
from typing import Any

from log_plot import picture
from neural_page import (
    BESIDE,
    BYTES,
    NOT_RUN,
    beside,
    figure,
    latest,
    lines,
    mean_floor,
    setting,
    table,
)
from neural_published import SILOFUSE
from risk_ends import risks_at
from silofuse import resistance

Row = dict[str, Any]
RESEMBLANCE, UTILITY = "resemblance (SiloFuse)", "utility"
ITERATIONS = (50_000, 500_000, 5_000_000)
DRAWN = ("adult", "churn", "intrusion_nslkdd_test")
PICTURE = "silofuse-bytes.svg"

# Table, then method: resemblance, utility, privacy (None where the paper prints none). The paper's
# SiloFuse has an autoencoder at every party, so its figures stand beside `silofuse_autoencoders`,
# which is the nearest of ours and not the same model.
PUBLISHED: dict[str, dict[str, tuple[float, float, float | None]]] = {
    "abalone": {"silofuse_autoencoders": (91.0, 97.2, 55.9), "e2e_distr": (56.4, 70.8, None)},
    "adult": {"silofuse_autoencoders": (73.0, 96.6, 92.1), "e2e_distr": (46.0, 33.6, None)},
    "churn": {"silofuse_autoencoders": (87.0, 90.4, 92.3), "e2e_distr": (78.0, 87.0, None)},
    "covertype": {"silofuse_autoencoders": (89.0, 96.4, 65.1), "e2e_distr": (40.8, 56.8, None)},
    "diabetes": {"silofuse_autoencoders": (84.0, 95.2, 78.1), "e2e_distr": (61.8, 89.0, None)},
    "heloc": {"silofuse_autoencoders": (79.0, 74.8, 56.4), "e2e_distr": (61.0, 39.2, None)},
    "intrusion_nslkdd_test": {
        "silofuse_autoencoders": (67.0, 64.2, 70.5),
        "e2e_distr": (37.0, 24.2, None),
    },
}
MEASURES = (("resemblance", RESEMBLANCE, 0), ("utility", UTILITY, 1))
"""A measure, its name among the scores, and its place among a paper's figures."""
NOTHING = (None, None, None)
CENTRAL = ("point_diff", "latent_diff", "e2e", "tabddpm")

HEAD = """## Columns split

Parties hold different columns of the same people. There are four parties with neighbouring
columns, unless a row says otherwise; *permuted* columns are in the order of seed 12343. Rows,
splits of rows, scores and the central runs in these tables are those of the
[neural generators](#neural-generators); so are floors, ceilings and ▽.

- **silofuse, autoencoders (ours)** has an autoencoder at every party and one diffusion of their
  latents, as SiloFuse's paper has. The figures published for SiloFuse stand in its row.
- **silofuse, sphere codes (ours)** is our variant and the package's default, which no paper has.
  `point_diff` is the same on the pooled table.
- **e2e_distr** is trained over the wire, for half the steps, since a step there costs about twice
  as much. It has networks of the same sizes, and gives the clean latent.

**Our SiloFuse with autoencoders is not the model of the paper.** These are the main differences;
`methods/silofuse/method.py` lists every one:

| | ours | the paper's |
| --- | --- | --- |
| widths, in all | 512 | 1,024 |
| denoiser | two layers of 512 units with SiLU | eight bilinear layers with GELU, a dropout of .01 |
| T | 1,000 | 200 |
| what the network gives | a velocity | the clean latent or the noise |
| steps in which rows are drawn | 50 | 25 |
| training steps, autoencoders | 4,000 to 12,000 | 500,000 with those of the diffusion |
| training steps, diffusion | 1,200 to 60,000, 10,000 or more but on small tables | see above |
| latents of a row | 17 on Adult, 64 on intrusion | one for each column |
| class | sent in the clear on every table but abalone | coded, as every column is |

Our rows are raked to single columns, unless **as drawn** is said, and much of resemblance is about
single columns. The published rows are not raked. {not drawn}On covertype the utility of our
autoencoders is below the published one, within its interval.

{floors}

**Privacy** is the mean resistance to singling out, linkability and attribute inference: 100 (1 -
risk), with the variants of an attack averaged (attacks of `sw.attack`). It judges the table, not
what the coordinator sees: for that see the owners' reports and `audit/transcripts.py`.

Our privacy and the published one are not the same measure, so no figure is marked. Ours takes a
fifth of the rows as control, so what is learned about everybody is no risk. Whether and how the
published figures subtract it is not known to us.

The floor of privacy is a copy of the training rows. Its ceiling are rows held out (`risk_ends.py`):
half of them are published, and the other half is the control, so the table has an eighth as many
rows as there are for training. Attacks on few rows scatter by some points, so a figure above the
ceiling is no better than the ceiling.

Seconds are wall time of the fit, parties one after the other, on two cores that other work shared.
"""


FIGURE_11 = (", 8 parties", ", 4 parties, permuted", ", 8 parties, permuted")
"""How settings of the paper's Figure 11 differ from four parties with neighbouring columns."""
ROBUST = """### Other numbers of parties, and permuted columns

Figure 11 of the paper asks whether these harm SiloFuse. Ours has autoencoders here, on the five
smaller tables, one seed each. Resemblance falls by 2.5 points at most (3.5 as drawn). Utility falls
on heloc, by 11 points with permuted columns, and on intrusion by 4. Sphere codes code every column
by itself, whoever holds it, so with them there is nothing to ask.
"""
SPHERE_CODES = "silofuse, sphere codes (ours)"
AUTOENCODERS = "silofuse, autoencoders (ours)"
NAMES = {"silofuse": SPHERE_CODES, "silofuse_autoencoders": AUTOENCODERS}


def shown(method: str) -> str:
    """A method as the page calls it; both SiloFuses of the lines are ours."""
    name, *rest = method.split(", ", 1)
    return ", ".join([NAMES.get(name, name), *rest])


def below_floor(rows: list[Row]) -> str:
    """Which of the resemblances published for SiloFuse itself lie below the floor."""
    found = []
    for name, methods in PUBLISHED.items():
        for method, (told, _, _) in methods.items():
            runs = [row for row in rows if (row["table"], setting(row)) == (name, method)]
            floor = mean_floor(runs, RESEMBLANCE)
            if floor is not None and told < floor:
                found.append((method, f"{name} ({told:g}, floor {floor:.1f})"))
    own = [text for method, text in found if method == "silofuse_autoencoders"]
    stepwise = [text for method, text in found if method == "e2e_distr"]
    text = (
        f"Of the {len(PUBLISHED)} resemblances published for SiloFuse itself that stand here, "
        f"{len(own)} lie below the floor of shuffled columns: {', '.join(own)}. Of E2EDistr's "
        f"{len(stepwise)} do: {', '.join(stepwise)}. To be above such a figure shows nothing."
    )
    return fill(text, 100) if found else ""


def spread(values: list[float]) -> str:
    """Mean, and deviation where there are several."""
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def told(value: float | None) -> str:
    """A published figure, or a dash."""
    return "–" if value is None else f"{value:g}"


def privacy_end(end: str, name: str, results: Path) -> str:
    """The score of a table that needs no training; a dash where it was not attacked."""
    risks = risks_at(end, name, results / "risk_ends.jsonl")
    return f"{resistance(risks):.1f}" if risks else "–"


def section(name: str, rows: list[Row], central: list[Row], results: Path) -> str:
    """One table: published, ours, and what a party sends."""
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        runs[setting(row)].append(row)
    over_parties: list[tuple[str, list[Row], Any]] = [
        (shown(method), runs.get(method, []), PUBLISHED[name].get(method, NOTHING))
        for method in dict.fromkeys([*PUBLISHED[name], *runs])
    ]
    at_one_place: list[tuple[str, list[Row], Any]] = []
    for model in CENTRAL:
        found = [row for row in central if (row["table"], row["model"]) == (name, model)]
        found = [row for row in found if not row["label"]]
        paper = SILOFUSE.get(name, {}).get(model)
        if found or paper:
            at_one_place.append((f"central {model}", found, paper or NOTHING))
    methods = over_parties + at_one_place

    # Other parties and orders stand in a table of their own, see `robustness`.
    figures = [
        [measure, method, *beside(paper[place], found, score)]
        for measure, score, place in MEASURES
        for method, found, paper in methods
        if not method.endswith(FIGURE_11)
    ]
    # Central runs were not attacked.
    ends = [privacy_end(end, name, results) for end in ("copy", "held out")]
    for method, found, paper in over_parties:
        ours = spread([row["resistance"] for row in found]) if found else NOT_RUN
        figures.append(["privacy", method, told(paper[2]), ours, "–", *ends])
    quality = table(["measure", "method", *BESIDE], figures)

    heads = ["method", "runs", "MB of all parties", "questions", "fit s"]
    costs = table(heads, [[method, *cost(found)] for method, found, _ in methods])
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    source = f"\nSource: commit {commits}.\n" if commits else ""
    return f"### {name}\n\n{quality}\n{costs}{source}"


def cost(runs: list[Row]) -> list[str]:
    """How many runs a method has, and what they cost; dashes for bytes of runs at one place."""
    if not runs:
        return ["0", "–", "–", "–"]
    sent_bytes = [row["bytes"] for row in runs if "bytes" in row]
    return [
        str(len(runs)),
        f"{mean(sent_bytes) / 1e6:.2f}" if sent_bytes else "–",
        f"{runs[0]['rounds']:,}" if sent_bytes else "–",
        f"{mean(row['fit_seconds'] for row in runs):.0f}",
    ]


def sent(rows: list[Row], name: str) -> tuple[list[Row], float | None]:
    """Runs of SiloFuse over four parties, and the bytes of a step of E2EDistr's longest run."""
    four = [r for r in rows if (r["table"], r["parties"]) == (name, 4)]
    steps = [r for r in four if r["model"] == "e2e_distr" and r["label"] in ("", BYTES)]
    each = max(steps, key=lambda r: r["steps"])["bytes_per_step"] if steps else None
    return [r for r in four if setting(r) == "silofuse"], each


def draw(results: Path, folder: Path) -> None:
    """Bytes against iterations, as a picture."""
    rows = latest(lines(results / "silofuse.jsonl"))
    panels: list[Any] = []
    for name in DRAWN:
        once, each = sent(rows, name)
        if once and each:
            kept = [(float(n), once[0]["bytes"] / 1e6) for n in ITERATIONS]
            grown = [(float(n), each * n / 1e6) for n in ITERATIONS]
            title = f"{name.split('_')[0]}: MB of four parties"
            panels.append((title, {SPHERE_CODES: kept, "e2e_distr": grown}, []))
    if panels:
        picture(folder / PICTURE, "iterations", panels, 10)


def communication(rows: list[Row]) -> str:
    """What all parties send and receive, by iterations: measured once, or per step."""
    head = ["table", "rows", f"{SPHERE_CODES}: latents", "MB, whatever the iterations",
            "e2e_distr: kB a step", *(f"MB at {n:,}" for n in ITERATIONS)]  # fmt: skip
    body = []
    for name in PUBLISHED:
        once, each = sent(rows, name)
        if not once and not each:
            continue
        known = [
            (f"{r['rows']:,}", str(r["latents"]), f"{r['bytes'] / 1e6:.2f}") for r in once[:1]
        ] or [("not run",) * 3]
        grown = [f"{each * n / 1e6:,.0f}" if each else "not run" for n in ITERATIONS]
        body.append(
            [name, *known[0], f"{each / 1e3:.1f}" if each else "not run",
             *grown]
        )  # fmt: skip
    text = (
        "### Bytes\n\nOf all four parties together, both ways, measured on the wire. SiloFuse\n"
        "sends its latents once, in half precision; E2EDistr four matrices a step, so its columns\n"
        "are the measured bytes of a step times the iterations (of a run of 300 steps where the\n"
        "table has no whole one).\n\n"
        f"![Bytes against iterations](images/{PICTURE})\n\n"
    )
    return text + (table(head, body) if body else "not run\n")


def not_drawn(rows: list[Row]) -> str:
    """Which runs were raked alone, in a sentence with a blank behind it; empty without such."""
    names = sorted({f"{shown(setting(r))} on {r['table']}" for r in rows if not r["as_drawn"]})
    return f"Not scored as drawn: {'; '.join(names)}. " if names else ""


def robustness(rows: list[Row]) -> str:
    """The paper's Figure 11: other numbers of parties and permuted columns, where all were run."""
    model = "silofuse_autoencoders"
    settings = [f"{model}{rest}" for rest in ("", *FIGURE_11)]
    body = []
    for name in PUBLISHED:
        runs = [[r for r in rows if (r["table"], setting(r)) == (name, own)] for own in settings]
        if not all(runs):
            continue
        for measure, score, _ in MEASURES:
            raked = [figure(own, score) for own in runs]
            as_drawn = [figure(own, score, of="as_drawn") for own in runs]
            body += [[name, measure, *raked], ["", f"{measure}, as drawn", *as_drawn]]
    if not body:
        return ""
    heads = ["table", "measure", "4", *(rest.removeprefix(", ") for rest in FIGURE_11)]
    return f"{ROBUST}\n{table(heads, body)}"


def page(results: Path) -> str:
    """The whole part."""
    rows = latest(lines(results / "silofuse.jsonl"))
    central = latest(lines(results / "neural_quality.jsonl"))
    whole = [r for r in rows if r["label"] != BYTES]
    parts = [
        section(name, [r for r in whole if r["table"] == name], central, results)
        for name in PUBLISHED
    ]
    floors = below_floor(whole)
    head = HEAD.replace("{floors}\n\n", f"{floors}\n\n" if floors else "")
    head = head.replace("{not drawn}", not_drawn(whole))
    return "\n".join([head, communication(rows), robustness(whole), *parts])
