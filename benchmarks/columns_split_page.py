"""The part of docs/reference/results/ on private synthesis over split columns.

Lines are columns_split.py's. Published: Zhao et al. 2024, "VertiMRF" (KDD 2024), whose figures are
plots but for table 2 (NLTCS, epsilon = 0.8) and its costs on Adult.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from log_plot import picture
from neural_page import table

Row = dict[str, Any]
NAMES = {
    "secure_two_round": "SecureTwoRound",
    "two_round": "TwoRound, all columns at one place",
    "aim": "AIM, one place",
    "aim_triples": "AIM, all triples, one place",
    "privmrf": "PrivMRF, one place",
    "privmrf_wide": "PrivMRF, `widest=10`, one place",
    "vertimrf_fo": "VertiMRF-FO",
    "vertimrf_fm": "VertiMRF-FM (guarantee refuted)",
    "vertigan": "VertiGAN",
}
PUBLISHED = {  # 10⁴ times the distance over VertiBench's splits of NLTCS at ε = 0.8
    "vertimrf_fm": "524 to 735",
    "vertimrf_fo": "2,340 to 2,960",
    "vertigan": "4,010 to 4,650",
}
# Megabits of a party, and time, on Adult.
PUBLISHED_COSTS = {
    "privmrf": ("–", "16 min"),
    "vertimrf_fo": ("18", "2.5 min"),
    "vertimrf_fm": ("15", "23.1 min a party, 67 min server"),
    "vertimrf_fm_8000": ("22", "93 min"),
    "vertigan": ("112", "8.3 min"),
}
ABLATIONS = {
    "vertimrf_fm": "VertiMRF-FM as it is: 4 bins, t = 2000",
    "vertimrf_fm_unbinned": "every code sketched, no bins",
    "vertimrf_fm_consistent": "with the consistency step",
    "vertimrf_fm_8000": "t = 8000 repetitions",
}
EPSILON = 0.8
RESAMPLED = "resampled"
FLOORS = {  # lines of columns_split_floors.py, by what their parties are called there
    "*floor*: independent columns, exact shares": "each",
    "*floor*: independent parties, exact joint shares": 2,
    "*floor*: independent parties, exact joint shares, 4": 4,
    "*floor*: independent parties, exact joint shares, 8": 8,
    "*ceiling*: real rows, drawn with repetition": RESAMPLED,
}
BESIDE_FLOORS = """
### Beside no link at all

10⁴ times the mean distance over three columns, two parties, ε = 0.8.

- **Independent columns** have the exact shares of every column and no link. A method that is worse
  is no better than knowing no pair at all.
- **Independent parties** have the exact joint shares of each party's columns, and no link between
  parties. A method that is worse gains nothing from linked rows.

Only VertiMRF-FM on NLTCS is better than both, and its guarantee is refuted.

Both are computed without drawing a row, on the marginals of the runs and, in brackets, on all of
three columns. With an odd number of columns our second party has one more; the last column but one
is for the first party having one more, as in the paper.

**The paper has VertiMRF-FM ahead of VertiMRF-FO everywhere. That is not reproduced**: at two
parties FO is ahead at three of four ε on BR2000 and on Adult (all but 3.2). FO's ε is for rows
that are replaced, and FM's does not hold. On NLTCS FM is ahead at all four, as in the paper.

VertiBench's splits of NLTCS have published ranges. FM's is far below the floor of independent
columns, and FO's reaches from below it to above it. VertiGAN's is above it: more error than exact
single columns have.

"""
PICTURE, PARTIES, COLUMNS = (f"columns-split-{by}.svg" for by in ("rows", "parties", "columns"))
# The paper's tables, and their rows.
PAPER = {"nltcs": 21_574, "br2000_privmrf": 38_000, "adult_privmrf": 45_222}
WANTED = {"two_round": 1.02, "aim": 1.1, "aim_triples": 1.1}
PHASES = """### Where a run's time goes

Shares of processor time at ε = 0.8, of parties and coordinator together, in percent: mean ±
standard deviation over the runs, and no part below 1 %. Older runs did not record it.

A run is the sum of its questions, named as in the method's `messages.py`. *Before* one the
coordinator works, and ahead of the first the parties code their rows. Until all have answered it,
the parties work. What VertiMRF-FM does before its first question is mostly the price of a sketch,
which a process reckons once for all its runs.
"""
TIMES = {
    "seconds": "seconds",
    "core_seconds": "of a core",
    "wide_area": "wide area, s",
    "engine": "engine, s",
}
TRAFFIC = {
    "megabytes_up": "MB sent by the busiest party",
    "megabytes_down": "MB received",
    "rounds": "questions",
}
ALONE = 1.5  # the most load of a machine that a run has to itself
ORDER = ("1", "2", "4", "8", "each")
HEAD = """## Private synthesis over split columns

Written from `columns_split.py`. The setting is that of Zhao et al. 2024, "VertiMRF" (KDD 2024),
section 7: mean total variation distance over 300 random marginals of three, four and five columns
(all, where there are fewer), as many synthetic rows as real ones, δ = 1/n. Figures are 10⁴ times
the distance: the mean of the runs, and their standard deviation where there are several.

Parties hold neighbouring columns, equally many; *each* is a party for every column. A method that
is published with an ε that does not hold stands here under that ε, marked, to compare with.

The methods are not alike in everything:

- VertiMRF-FO's ε is for rows that are replaced, all others' for rows added or removed.
- VertiMRF here is ours after the paper. Its file says where it departs, above all in weighting
  estimates by their noise.
- The rule by which TwoRound and SecureTwoRound choose wider tables was chosen on other tables, but
  figures of these three had been seen (decision 0036).

Every line in `results/` names the commit that it was run at. Methods were run again when they
changed:

- TwoRound and SecureTwoRound, when a pair came to keep only what noise does not explain (0036;
  [before and after](#before-a-pair-kept-only-what-noise-does-not-explain));
- AIM with its own workload, when its triples came to weigh less (0042) and when its last fit had
  less entropy (0053);
- PrivMRF and VertiMRF, when PrivMRF's last fit had less entropy (0055).

Older runs are kept in `columns_split_before.jsonl` with a label, and shown in that comparison
alone; the oldest are in the history. No other run is left out: some seeds were run twice, with
fresh noise, and both runs count.

The paper's distances are plots, but for those on NLTCS at ε = 0.8 over VertiBench's splits. These
and its costs on Adult stand beside ours. The last lines of each table are **floors**, exact
tables that link no columns or no parties, and a **ceiling**, as many real rows drawn with
repetition (`columns_split_floors.py`); they have no ε. Rows of none of these methods are raked.

*Refused*: the method says before it reads a row that this ε is too small. VertiGAN takes 1,000
noisy steps at every party, and the more steps, the more noise in each.

PrivMRF measures marginals of at most six columns here, its default for `widest`. The paper has six,
and ten where columns are binary, as all of NLTCS are: `widest=10` is a line of its own there, and
worse.

PrivMRF's graph grows until the limits are reached, as in the authors' code. Before, it stopped
where no edge had a positive score, and at ε = 0.8 three columns were 79 on NLTCS and 358 on BR2000.
Its last fit has a fifth of the entropy of its other fits (0055), since the authors' code stops
later there, too. Before, Adult had 489 at ε = 0.8.

The authors' code, github.com/caicre/PrivMRF, was run on a processor, at ε = 0.8 and δ = 1/n, and
measured as all lines here. *As it is*, its noise for the number of rows costs ten times the budget.
*Put right*, that number has a hundredth of the scores' share, as the code means to. The code takes
all marginals to have that noisy sum, where ours weighs the sums of all.

| PrivMRF, the authors' code | table | runs | 3 / 4 / 5 columns |
| --- | --- | --- | --- |
| as it is | NLTCS | 4 | 52 ± 12 / 80 ± 14 / 119 ± 18 |
| put right | NLTCS | 4 | 75 ± 4 / 105 ± 4 / 144 ± 7 |
| put right, cliques of at most 200,000 cells and 1,000,000 in all | BR2000 | 1 | 317 / 566 / 908 |
| put right, cliques of at most 200,000 cells and 1,000,000 in all | Adult | 1 | 444 / 797 / 1289 |
"""
RATIO = """### What splitting costs

Ratios of mean distances, SecureTwoRound's above a central method's: three / four / five columns.
Wanted: at most 1.02 above TwoRound with all columns at one place, and at most 1.1 above AIM, which
is run with its own workload of all pairs and with all triples. **Bold**, as printed, is above that.
The last column is the largest standard error of the line's ratios, from the spread over runs; a
ratio nearer than that to what is wanted says little.
"""
OTHERS = """### Other tables with at most 30 columns

Three columns alone, in the setting of [the paper's
tables](#private-synthesis-over-split-columns). Numbers with more than 40 values have 16 bins
between their ends, which are taken as public; identifiers (churn) are left out. Some of these
tables had a part in choosing constants of TwoRound's second round (churn, abalone,
california_housing, bank_marketing, heloc; decisions 0036, 0051 and 0054), which both sides share.
"""
OTHER_RATIOS = """Ratios of mean distances on these tables, SecureTwoRound's above a central
method's, for three / four / five columns, as under [what splitting costs](#what-splitting-costs).
**Bold** is above what is wanted there.
"""
BEFORE = """### Before a pair kept only what noise does not explain

Mean distances over three columns, after that change / before it, of runs with the same table,
parties, ε and seed; below 1 is better now. The noise is drawn anew, so the ratios vary; the
standard error is that of a line's mean, over seeds and ε.

"""
SPLITS = """### Uneven splits

Columns go to two parties in VertiBench's ways, drawn anew with the seed of each run: the less
`alpha`, the more uneven the parties' shares; the more `beta`, the more columns of different parties
correlate.
"""
SVM = """### Errors of SVMs

Written from `columns_split_svm.py`. An SVM that was trained on synthetic rows predicts a column of
real rows, which are held out from synthesizer and SVM alike. Figures are the shares of these rows
that it gets wrong, in percent: the mean over all columns, each predicted from all others, and then
mean ± standard deviation over the runs. Run k holds out the fifth k of the rows. Methods over
parties have two parties.

The last column is the mean ± standard deviation of differences between runs with the same rows held
out.

The SVM is that of the code of PrivMRF and VertiMRF: codes as numbers, standardised, radial kernel,
C = 1, γ = 1 / columns. Here 5,000 rows train an SVM of br2000 and adult, also of real rows, since
its time grows with their square; on nltcs all do.

That code predicts columns drawn at random, does not name the paper's eight, and synthesizes from
all rows, those held out included. The paper's figures are plots. Of VertiGAN it says that about
40 % are wrong at ε = 3.2.
"""
COST = """### What a run costs

Figures go from the least to the most over all runs of a line, whatever their ε.

- *Seconds* are those on this machine, of parties and coordinator together.
- *Of a core* (newer runs have it) is what the method itself used. Plans differ with ε, and with
  them these seconds.
- *Wide area* is what the same messages would take over a network with 50 ms each way and 100 Mbit/s
  at the coordinator, and *engine* over an engine that takes 5 s for every question. Both are the
  seconds of the run and then the messages'.
- *Load* is how many processes wanted a core in the minute before the fastest and the slowest run
  ended.

**The machine has two cores, and others worked on it during most runs**, so the most seconds are
what a busy machine took, not what the method needs. Where three runs or more had the machine to
themselves (a load of at most 1.5, the run included), the line has the times of these alone, and
*timed* says of how many, and of which ε if not of all. Runs whose times others would have spoiled
altogether name none.
"""


def page(results: Path) -> str:
    """The part, from the lines that are there; empty without any."""
    file = results / "columns_split.jsonl"
    if not file.is_file():
        return ""
    lines = _lines(file)
    rows = [row for row in lines if "refused" not in row]
    refused = [row for row in lines if "refused" in row]
    plain = [row for row in rows if not {"split", "columns"} & row.keys()]
    paper = [row for row in plain if PAPER.get(row["table"]) == row["rows"]]
    others = [row for row in plain if row["table"] not in PAPER]
    floors = _floors(results)
    text = HEAD
    for name in [name for name in PAPER if any(row["table"] == name for row in paper)]:
        ours, no = ([row for row in some if row["table"] == name] for some in (paper, refused))
        text += "\n" + _distances(name, ours, no, floors)
    text += _beside_floors(paper, floors)
    text += "\n" + RATIO + "\n" + _ratios(paper)
    text += _beside_before(plain, results / "columns_split_before.jsonl")
    text += _others(others) + _splits([row for row in rows if "split" in row], floors)
    text += _ablations([row for row in paper if row["epsilon"] == EPSILON])
    text += _utility(results / "columns_split_svm.jsonl")
    told = [r for r in plain if r["table"] in PAPER or r["method"] == "secure_two_round"]
    text += "\n" + COST + "\n" + _costs([r for r in told if r["method"] in NAMES])
    text += _beside_published([r for r in paper if r["table"] == "adult_privmrf"])
    return text + _phases([r for r in paper if r["epsilon"] == EPSILON and r["method"] in NAMES])


def _beside_before(rows: list[Row], file: Path) -> str:
    """Three columns' distances now and before pairs were cleaned, of the runs that both have."""
    if not file.is_file():
        return ""
    keys = ("table", "rows", "method", "parties", "epsilon", "seed")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    before = _grouped([r for r in lines if "3way" in r and "split" not in r], *keys)
    both = [case for case in _grouped(rows, *keys) if case in before]
    now = _grouped(rows, *keys)
    ratios: dict[tuple[str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for case in both:
        three_now, three_before = (mean(r["3way"] for r in side[case]) for side in (now, before))
        ratios[case[0], case[2]][case[4]].append(three_now / three_before)
    epsilons = sorted({epsilon for line in ratios.values() for epsilon in line})
    body = []
    for (name, method), line in sorted(ratios.items()):
        every = [ratio for of_one in line.values() for ratio in of_one]
        cells = [f"{mean(line[e]):.3f}" if e in line else "–" for e in epsilons]
        error = f" ± {stdev(every) / math.sqrt(len(every)):.3f}" if len(every) > 1 else ""
        body.append([name, NAMES[method], str(len(every)), *cells, f"{mean(every):.3f}{error}"])
    heads = ["table", "method", "runs", *(f"ε = {e:g}" for e in epsilons), "all"]
    return "\n" + BEFORE + table(heads, body) if body else ""


def _floors(results: Path) -> list[Row]:
    """Lines of columns_split_floors.py: tables without noise, and real rows drawn again."""
    file = results / "columns_split_floors.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def _floor_cells(floors: list[Row], name: str, parties: Any) -> str:
    """A floor's mean distances over three, four and five columns; a dash where it was not run."""
    found = [row for row in floors if (row["table"], row["parties"]) == (name, parties)]
    if not found:
        return "–"
    return " / ".join(f"{1e4 * mean(found[0][f'{k}way']):.0f}" for k in (3, 4, 5))


def _floor_lines(name: str, floors: list[Row], epsilons: int) -> list[list[str]]:
    """Lines of a table of distances that hold whatever epsilon is: floors, and the ceiling."""
    lines = []
    for title, parties in FLOORS.items():
        cells = _floor_cells(floors, name, parties)
        if cells != "–":
            held = str(parties) if parties in (2, 4, 8) else "–"
            lines.append([title, held, "no noise", *[cells] * epsilons])
    return lines


def _beside_floors(rows: list[Row], floors: list[Row]) -> str:
    """VertiMRF and VertiGAN at one epsilon, beside tables that link no columns or no parties."""
    if not floors:
        return ""
    runs = _grouped([r for r in rows if r["epsilon"] == EPSILON and r["parties"] == 2],
                    "table", "method")  # fmt: skip
    body = []
    for name in PAPER:
        every = {row["parties"]: row["all3"] for row in floors
                 if row["table"] == name and "all3" in row}  # fmt: skip
        for method in ("vertimrf_fm", "vertimrf_fo", "vertigan"):
            found = runs.get((name, method), [])
            if not found or not every:
                continue
            ours = mean(row["3way"] for row in found)
            columns, parties = (
                mean(next(r for r in floors if (r["table"], r["parties"]) == (name, p))["3way"])
                for p in ("each", 2)
            )
            told = "worse than both" if ours > columns else "better than both"
            if parties < ours <= columns:
                told = "better than columns, worse than parties"
            body.append([name, NAMES[method], _figure([r["3way"] for r in found]),
                         f"{1e4 * columns:.0f} ({1e4 * every['each']:.0f})",
                         f"{1e4 * parties:.0f} ({1e4 * every[2]:.0f})",
                         f"{1e4 * every['2, larger first']:.0f}", told])  # fmt: skip
    heads = ["table", "method", "three columns, ε = 0.8", "independent columns (all triples)",
             "independent parties (all triples)", "the larger party first: all triples",
             "the method"]  # fmt: skip
    return BESIDE_FLOORS + table(heads, body) if body else ""


def _lines(file: Path) -> list[Row]:
    """All runs but those of code that has changed since, which bear a label."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if "label" not in row]


def _grouped(rows: list[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


def _placed(one: tuple[tuple[Any, ...], list[Row]]) -> tuple[Any, ...]:
    """The order of a table's lines, from what they are grouped by: table, rows, method, parties."""
    name, n, method, parties = one[0]
    first = list(PAPER).index(name) if name in PAPER else len(PAPER)
    return first, name, n, list(NAMES).index(method), ORDER.index(str(parties))


def _figure(values: list[float], times: float = 1e4, digits: int = 0) -> str:
    spread = f" ± {times * stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{times * mean(values):.{digits}f}{spread}"


def _counts(cells: Iterable[list[Any]]) -> str:
    """The runs of each of a line's cells, once where all have the same number."""
    counts = [str(len(one)) for one in cells]
    return ", ".join(counts if len({*counts}) > 1 else counts[:1])


def _distances(name: str, rows: list[Row], refused: list[Row], floors: list[Row]) -> str:
    epsilons = sorted({row["epsilon"] for row in rows})
    runs = _grouped(rows, "method", "parties", "epsilon")
    lines = []
    for method, title in NAMES.items():
        for parties in ORDER:
            mine = {e: r for (m, p, e), r in runs.items() if m == method and str(p) == parties}
            no = {row["epsilon"] for row in refused
                  if row["method"] == method and str(row["parties"]) == parties}  # fmt: skip
            if not mine and not no:
                continue
            cells = [
                " / ".join(_figure([row[f"{k}way"] for row in mine[e]]) for k in (3, 4, 5))
                if e in mine
                else "refused"
                if e in no
                else "–"
                for e in epsilons
            ]
            lines.append([title, parties, _counts(mine.get(e, []) for e in epsilons), *cells])
    lines += _floor_lines(name, floors, len(epsilons))
    heads = ["method", "parties", "runs", *(f"ε = {e:g}: 3 / 4 / 5 columns" for e in epsilons)]
    return f"### {name}, private: {PAPER[name]:,} rows\n\n" + table(heads, lines) + "\n"


def _ratio(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """A ratio of means, and its standard error (NaN where a side was run once)."""
    ratio = mean(ours) / mean(theirs)
    if min(len(ours), len(theirs)) < 2:
        return ratio, math.nan
    parts = [stdev(one) / mean(one) / math.sqrt(len(one)) for one in (ours, theirs)]
    return ratio, ratio * math.hypot(*parts)


def _compared(rows: list[Row]) -> Iterator[tuple[str, str, str, dict[float, list[Any]]]]:
    """Table, parties, central method, and by epsilon the ratios for three to five columns."""
    runs = _grouped(rows, "table", "method", "parties", "epsilon")
    epsilons = sorted({row["epsilon"] for row in rows})
    for name in dict.fromkeys(row["table"] for row in rows):
        for method in WANTED:
            for parties in (2, 4, 8, "each"):
                found = {
                    e: [
                        _ratio(*([r[f"{k}way"] for r in side] for side in sides)) for k in (3, 4, 5)
                    ]
                    for e in epsilons
                    if all(
                        sides := (
                            runs.get((name, "secure_two_round", parties, e), []),
                            runs.get((name, method, 1, e), []),
                        )
                    )
                }
                if found:
                    yield name, str(parties), method, found


def _ratios(rows: list[Row]) -> str:
    epsilons = sorted({row["epsilon"] for row in rows})
    lines: list[list[str]] = []
    judged: dict[str, list[Any]] = defaultdict(list)
    for name, parties, method, found in _compared(rows):
        most = WANTED[method]
        cells = [
            " / ".join(f"**{r:.2f}**" if round(r, 2) > most else f"{r:.2f}" for r, _ in found[e])
            if e in found
            else "–"
            for e in epsilons
        ]
        errors = [error for one in found.values() for _, error in one if not math.isnan(error)]
        lines.append(
            [name, NAMES[method], parties, *cells, f"{max(errors):.2f}" if errors else "–"]
        )
        judged[method] += [(*one, name, parties, e) for e, three in found.items() for one in three]
    if not lines:
        return ""
    heads = ["table", "beside", "parties", *(f"ε = {e:g}" for e in epsilons), "standard error"]
    told = [_judgement(method, WANTED[method], one) for method, one in judged.items()]
    return table(heads, lines) + "\n" + "\n".join(told) + "\n"


def _judgement(method: str, most: float, found: list[tuple[float, float, str, str, float]]) -> str:
    """How many ratios are above what is wanted, and how many clearly."""
    above = [one for one in found if round(one[0], 2) > most]
    clear = [one for one in above if one[0] - most > 2 * one[1]]
    once = sum(math.isnan(one[1]) for one in above)
    told = f", {once} of a single run, whose spread is unknown" if once else ""
    text = f"* {NAMES[method]}: {len(above)} of {len(found)} ratios are above {most}"
    if not above:
        exact = [one for one in found if one[0] > most]
        if exact:
            ratio, error = max(exact)[:2]
            text += f" as printed, and {len(exact)} before they are rounded"
            text += f", at most {ratio:.4f} (standard error {error:.4f})"
        return text + f"; the mean is {mean(one[0] for one in found):.3f}."
    ratio, _, name, parties, epsilon = max(above)
    return (
        f"{text}, {len(clear)} by more than two standard errors{told}; the mean is "
        f"{mean(one[0] for one in found):.3f}, the largest {ratio:.2f} ({name}, ε = {epsilon:g}, "
        f"parties: {parties})."
    )


def _others(rows: list[Row]) -> str:
    if not rows:
        return ""
    epsilons = sorted({row["epsilon"] for row in rows})
    runs = _grouped(rows, "table", "rows", "method", "parties")
    lines = []
    for (name, n, method, parties), found in sorted(runs.items(), key=_placed):
        by = {e: [row["3way"] for row in found if row["epsilon"] == e] for e in epsilons}
        cells = [_figure(by[e]) if by[e] else "–" for e in epsilons]
        lines.append([name, f"{n:,}", NAMES[method], str(parties), _counts(by.values()), *cells])
    heads = ["table", "rows", "method", "parties", "runs", *(f"ε = {e:g}" for e in epsilons)]
    ratios = _ratios(rows)
    said = f"{OTHER_RATIOS}\n{ratios}" if ratios else ""
    return f"\n{OTHERS}\n{table(heads, lines)}\n{said}"


def _ablations(rows: list[Row]) -> str:
    runs = {key: one for key, one in _grouped(rows, "table", "method", "parties").items()
            if key[1] in ABLATIONS and key[2] == 2}  # fmt: skip
    several = {name for name, method, _ in runs if method != "vertimrf_fm"}
    if not several:
        return ""
    lines = [
        [name, ABLATIONS[method], str(len(one)),
         " / ".join(_figure([row[f"{k}way"] for row in one]) for k in (3, 4, 5)),
         _range(one, "seconds"), _range(one, "megabytes_up")]
        for (name, method, _), one in sorted(runs.items()) if name in several
    ]  # fmt: skip
    heads = ["table", "VertiMRF-FM (guarantee refuted)", "runs", "3 / 4 / 5 columns", "seconds",
             "MB sent by the busiest party"]  # fmt: skip
    top = (
        "### VertiMRF's parts\n\nTwo parties, ε = 0.8. A table without codes to bin has no bins. "
        "**The paper's consistency step is\nnot reproduced as a gain**: on Adult three columns "
        "have 1958 with it and 1645 without, and on NLTCS\n353 and 362, which is less than their "
        "spread."
    )
    return f"\n{top}\n\n{table(heads, lines)}"


def _splits(rows: list[Row], floors: list[Row]) -> str:
    if not rows:
        return ""
    lines = []
    for (name, method), found in _grouped(rows, "table", "method").items():
        for setting in ("alpha", "beta"):
            own = [row for row in found if setting in row["split"]]
            by = defaultdict(list)
            for row in own:
                by[row["split"][setting]].append(row["3way"])
            cells = ", ".join(f"{value:g}: {_figure(by[value])}" for value in sorted(by))
            counts = _counts(by[value] for value in sorted(by))
            published = PUBLISHED.get(method, "–") if name == "nltcs" else "–"
            sides = [_floor_cells(floors, name, of).split(" / ")[0] for of in ("each", RESAMPLED)]
            lines.append([name, NAMES[method], setting, counts, cells, published, *sides])
    heads = ["table", "method", "VertiBench's", "runs of a value", "value: 3 columns, ε = 0.8",
             "published, over all values", "floor: independent columns",
             "ceiling: resampled rows"]  # fmt: skip
    return f"\n{SPLITS}\n{table(heads, lines)}\n"


def _utility(file: Path) -> str:
    if not file.is_file():
        return ""
    rows = _lines(file)
    runs = _grouped(rows, "table", "method", "epsilon")
    lines = []
    for name in [name for name in PAPER if (name, "real", None) in runs]:
        real = {row["seed"]: row for row in runs[name, "real", None]}
        floor = [{"seed": seed, "errors": row["commonest"]} for seed, row in real.items()]
        shown = [("real rows", "–", [*real.values()]), ("always the commonest value", "–", floor)]
        shown += [
            (NAMES[method], f"{epsilon:g}", runs[name, method, epsilon])
            for epsilon in sorted({row["epsilon"] for row in rows if row["epsilon"]})
            for method in NAMES
            if (name, method, epsilon) in runs
        ]
        for title, epsilon, found in shown:
            errors = {row["seed"]: mean(row["errors"].values()) for row in found}
            more = [errors[k] - mean(real[k]["errors"].values()) for k in errors]
            wrong = _figure([*errors.values()], 100, 1)
            beside = _figure(more, 100, 1) if any(more) else "–"
            lines.append([name, title, epsilon, str(len(found)), wrong, beside])
    heads = ["table", "trained on", "ε", "runs", "wrong, %", "above real rows"]
    return f"\n{SVM}\n{table(heads, lines)}\n"


def _costs(rows: list[Row]) -> str:
    times, traffic = [], []
    runs = _grouped(rows, "table", "rows", "method", "parties")
    for (name, n, method, parties), found in sorted(runs.items(), key=_placed):
        timed = sorted((row for row in found if "seconds" in row), key=lambda row: row["seconds"])
        alone = [row for row in timed if row["load"] <= ALONE]
        timed = alone if len(alone) >= 3 else timed
        load = " and ".join(f"{row['load']:.1f}" for row in timed[:: len(timed) - 1 or 1]) or "–"
        of = {row["epsilon"] for row in timed}
        some = of and of < {row["epsilon"] for row in found}
        at = f" (ε = {', '.join(f'{e:g}' for e in sorted(of))})" if some else ""
        counts = [str(len(found)), f"{len(timed)}{at}"]
        line = [name, f"{n:,}", NAMES[method], str(parties)]
        times.append([*line, *counts, *(_range(timed, key) for key in TIMES), load])
        traffic.append([*line, *(_range(found, key) for key in TRAFFIC)])
    heads = ["table", "rows", "method", "parties"]
    time_heads = ["runs", "timed", *TIMES.values(), "load: fastest and slowest run"]
    return f"{table([*heads, *time_heads], times)}\n{table([*heads, *TRAFFIC.values()], traffic)}\n"


def _beside_published(rows: list[Row]) -> str:
    runs = _grouped([row for row in rows if row["parties"] in (1, 2)], "method")
    lines = []
    for method, (megabits, spent) in PUBLISHED_COSTS.items():
        found = runs.get((method,), [])
        if found:
            sent = [row | {"megabits": 8 * row["megabytes_up"]} for row in found]
            lines.append([NAMES.get(method) or f"VertiMRF-FM, {ABLATIONS[method]}", megabits,
                          spent, str(len(found)), _range(sent, "megabits"),
                          _range(found, "core_seconds")])  # fmt: skip
    heads = ["method", "published: Mbit a party", "time", "runs", "ours: Mbit a party, at most",
             "processor s of the whole run"]  # fmt: skip
    top = "Beside the costs that VertiMRF's paper has for Adult, two parties, other machines:"
    return f"\n{top}\n\n{table(heads, lines)}" if lines else ""


def _phases(rows: list[Row]) -> str:
    lines = []
    runs = _grouped([row for row in rows if "phases" in row], "table", "rows", "method", "parties")
    for (name, _, method, parties), found in sorted(runs.items(), key=_placed):
        names = dict.fromkeys(phase for row in found for phase in row["phases"])
        shares = {phase: [row["phases"].get(phase, 0.0) for row in found] for phase in names}
        cells = [f"{phase}: {_figure(some, 100)}" for phase, some in shares.items()
                 if mean(some) >= 0.01]  # fmt: skip
        lines.append([name, NAMES[method], str(parties), str(len(found)), ", ".join(cells)])
    heads = ["table", "method", "parties", "runs", "% of a run's processor time"]
    return f"\n{PHASES}\n{table(heads, lines)}" if lines else ""


def _range(rows: list[Row], key: str) -> str:
    """The least and the most over the runs that have a figure."""
    values = [row[key] for row in rows if key in row]
    if not values:
        return "–"
    low, high = min(values), max(values)
    return f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"


def draw(results: Path, folder: Path) -> None:
    """Draw how seconds and bytes grow with rows and columns, and bytes with parties."""
    file = results / "columns_split.jsonl"
    if not file.is_file():
        return
    rows = [row for row in _lines(file) if "seconds" in row]
    adult = [
        row
        for row in rows
        if row["table"] == "adult_privmrf"
        and row["method"] == "secure_two_round"
        and row["epsilon"] == EPSILON
        and "split" not in row
    ]
    two = [{"columns": 15} | row for row in adult if row["parties"] == 2]
    whole = [row for row in adult if row["rows"] == PAPER["adult_privmrf"]]
    every = [row for row in two if row["columns"] == 15]
    _growth(folder / PICTURE, "rows", every, 10)
    _growth(folder / COLUMNS, "columns", [row for row in two if row["rows"] == whole[0]["rows"]], 2)
    by_parties = _grouped([row for row in whole if "columns" not in row], "parties")
    parties = sorted((15 if n == "each" else n, one) for (n,), one in by_parties.items())
    each = {
        "sent, at most": [(n, mean(r["megabytes_up"] for r in one)) for n, one in parties],
        "received, at most": [(n, mean(r["megabytes_down"] for r in one)) for n, one in parties],
    }
    picture(folder / PARTIES, "parties", [("MB of a party, 45,222 rows", each, [])], 2)


def _growth(file: Path, by: str, rows: list[Row], base: int) -> None:
    """Bytes and seconds of runs with two parties; the fewest seconds, since others slow a run."""
    found = sorted(_grouped(rows, by).items())
    seconds = [(n, min(r["seconds"] for r in one)) for (n,), one in found]
    sent, got = (
        [(n, mean(r[key] for r in one)) for (n,), one in found]
        for key in ("megabytes_up", "megabytes_down")
    )
    panels: list[tuple[Any, ...]] = [
        ("MB of a party, 2 parties", {"sent": sent, "received": got}, []),
        ("seconds of a run, 2 parties", {"": seconds}, []),
    ]
    picture(file, by, panels, base)
