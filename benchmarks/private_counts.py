"""What private methods keep of counts: of Adult, and of every table by default and as before.

    python benchmarks/private_counts.py            # all of Adult that is missing, fifteen minutes
    python benchmarks/private_counts.py --part rows --method TwoRound
    python benchmarks/private_counts.py --part tables --table heloc churn --seed 0 1 2
    python benchmarks/private_counts.py --part tables --table covertype --label "all rows"
    python benchmarks/private_counts.py --part tables --table covertype --label "160 MB"
    python benchmarks/results_page.py

`central`: mean L1 error of 64 random three-way tables (seed 123) in 32 equal bins, at the epsilon
of separation 0.1. `rows`: five parties, separation 0.2; mean total variation of all one-
and two-way tables in 20 bins, and the AUC of boosted trees that learn income from synthetic rows,
on rows held out. Rows are those of neural.py, and every method has its defaults.

`tables`: a random half of a table's rows, epsilon 1, delta 1 / rows. Mean total variation of 150
random tables of three columns and of 150 of two, to the half that was fitted: of as many rows
drawn, and of the other half. Whole numbers of up to 32 values stand for themselves, others are cut
into 20 bins of equal mass over the whole table. `auc`: boosted trees that distinguish rows drawn
from the half that was fitted, on rows that they did not see. Kinds are those of datasets.json, and
bounds are read off the table. Decimals are declared unless a line's label denies it. With
`all rows` the whole table is fitted, so that seconds and memory are those of a table of its size.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import combinations, product
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any
from unittest.mock import patch

import numpy as np
import sources
from flaim_adult import commit
from msgspec.structs import replace
from neural_page import Row, lines, table
from neural_tables import DELTA, Prepared, prepare
from tables import column_of as tables_column

import siloweave as sw
from siloweave.privacy.budget import budget_of_separation
from siloweave.protocols import histograms
from siloweave.tables.bins import Cuts
from siloweave.tables.codes import Encoder

TABLES = ("abalone", "churn", "heloc", "adult", "diabetes", "nltcs", "br2000_privmrf",
          "california_housing", "adult_privmrf", "intrusion_nslkdd_test", "credit_fraud",
          "bank_marketing", "census_income_kdd", "covertype", "intrusion_kdd99_10pct")  # fmt: skip
TUNED = TABLES[:4]
"""On which the factor of `bins_for` was chosen."""
BEFORE = {"degree": 2, "bins": 16, "counts_share": 0.1}
FIRST = {"degree": 3, "queries": 64, "bins": 16, "counts_share": 0.1}
WHOLE = "all rows"
ALIKE = "default, fits alike"
"""AIM's, before its last fit had less entropy than the others (decision 0053)."""
LINKS = "default before 0060"
"""TwoRound's, before a pair is judged by what noise does not explain (decision 0036, which decision
0060 became a part of)."""
SHOWN = {LINKS: "default before 0036"}
"""What a label of the lines is called on the page, where the two differ."""
FIXED = "default, size fixed"
"""TwoRound's, before its plan's model grew (decision 0049): beside equal bins alone."""
LARGER = {f"{size} MB": {"max_model_mb": float(size)} for size in (80, 160, 320)}
SETTINGS: dict[str, dict[str, Any]] = {
    "before": BEFORE, "default": {}, "first": FIRST, "before, no decimals": BEFORE, "target": {},
    WHOLE: {}, **LARGER,
}  # fmt: skip
TIMES = ("seconds", "cpu", "load")
_FEW, _EQUAL, _DRAWN = 32, 20, 150
OUT = Path(__file__).parent / "results" / "private_counts.jsonl"
PARTS = {
    "central": ("AIM", "DPCTGAN", "DPTabDDPM", "DPTLDM"),
    "rows": ("TwoRound", "DPFedPointDiff", "DPFedTabDDPM", "DPFedTGAN"),
}
SIZES, COMPARED = {"three-way": 3, "two-way": 2}, ("equal bins", "now", "other half")
HELD_OUT, TARGET = "rows held out", "income"
HEAD = """
### Counts under a bound

Adult, one run each, defaults. Seconds are of the processor.

The first table is of methods at one place, at separation 0.1: the mean L1 error of 64 random
three-way tables in 32 equal bins. AIM is asked for these queries, in bins of its own.

The second is of methods over five parties, at separation 0.2: the mean total variation of all one-
and two-way tables in 20 equal bins, and the AUC of trees that learn income from synthetic rows.
Beside the rows held out it is that of the real training rows.

"""
TABLES_HEAD = """
### Workload and bins

A random half of each table is fitted, at ε = 1 and δ = 1 / rows. Errors are mean total variations
of 150 random tables of three columns to that half, of as many rows drawn and of the other half.
Whole numbers of up to 32 values stand for themselves, others are cut into 20 bins of equal mass.
FLAIM's rows are spread over five parties at random; AIM and TwoRound have one.

- *First*: 64 random triples in 16 bins, the published workload, which was the first default.
- *Before*: all pairs in 16 bins, the default before decision 0042. As with *first*, noisy
  histograms had bins of equal width (before decision 0052) and a tenth of the budget.
- *Default*: the default now. Its histograms have a fifth of the budget (0027). AIM's last fit has
  less entropy than its other fits (0053), and TwoRound keeps of a pair what noise does not explain
  (0036).

TwoRound's *first* and *before* have the plan of decision 0051; on adult_privmrf and tables of 31
columns and more pairs come back, too (0036). The last line below the table compares its default
with the one before it, with the same seeds.

Lines of AIM with ‡ are from before decision 0053. Seconds are – where others used the machine. The
factor of the rule for bins was chosen on the tables with *. What is above 1 in the lines below the
table has a standard error over the seeds.

AIM's default was 0.5 to 1.4 % behind *before* on adult, br2000_privmrf and california_housing until
its last fit had less entropy. What is left on adult is within the noise; its histogram has a
fifth of the budget there, which gains most where rows are few (0027).

"""
WHY = """
#### Where errors stay above the other half's

Tables of 30,000 rows or more that are above 1.5 times the other half, and why:

- bank_marketing, adult_privmrf and intrusion_kdd99_10pct by noise: AIM at ε = 20, seed 0, has
  0.061, 0.032 and 0.0039. So is intrusion_nslkdd_test, of fewer rows (0.040).
- Both intrusion tables, until decision 0052, by long tails: `src_bytes` goes up to 62 and 693
  million, and most values are below 3,000. With bins of equal width this column alone was off by
  0.54 and more.
- census_income_kdd and covertype have models as large as they may be, 80 MB. Decision 0042 has what
  that costs on census_income_kdd.

On covertype size is not why errors are twice the other half's: with larger models pairs gain 7 and
10 %, and triples what errors vary from seed to seed (AIM before decision 0053, seed 0):

| model of at most | three-way | two-way | cpu s |
| --- | --- | --- | --- |
| 80 MB | .0104 | .0043 | 56 |
| 160 MB | .0104 | .0040 | 102 |
| 320 MB | .0100 | .0039 | 196 |

"""
WHOLE_HEAD = """
#### All rows of large tables

AIM by default (before decision 0053), fitted to all rows of a table at ε = 1: errors as above, to
the rows that were fitted, seconds by the clock and of the processor, and the most memory that the
process held until then, with Python, the libraries and the table. Means over seeds; the load is
that of the machine's two cores before each run.

"""
UTILITY_HEAD = """
#### A target learned from drawn rows

AUC of boosted trees that learn the table's target from AIM's rows and predict it in the other half:
by default, with `target` named (both before decision 0053), and of trees that learn from the real
rows. Means of the seeds, and their standard deviation.

In credit_fraud 2 % of the rows are of the smaller class, so what depends on the target weighs
little beside other pairs. By default 5, 1 and 11 of some 38 pairs that AIM measured had the target,
and with a single one (seed 1) the AUC is 0.54. With the target named there were 13 to 20. So name
what is rare and matters.

"""
APART_HEAD = """
#### Drawn rows recognised by trees

AUC of boosted trees that distinguish AIM's rows from the half that was fitted, with the same seeds:
.5 is that of real rows. AIM's rows are not raked. In these runs trees that learnt from more than
10,000 rows (bank_marketing and california_housing) could stop early; newer runs take all rounds.

"""
EQUAL_HEAD = """
#### Narrower bins near 0

The default on tables with a column that the noisy histogram counts in narrower bins near 0
(decision 0052), and with bins of equal width, the default before, with the same seeds; both from
before decisions 0049 and 0053. † The histogram of equal bins had a tenth of the budget, not a fifth
(decision 0027).

"""
NAMES = {"three-way": "three-way L1", "one-way": "one-way", "two-way": "two-way", "auc": "AUC"}


def column_of(table: sw.Table, name: str, numeric: bool, *, decimals: bool) -> sw.Column:
    """A column's public facts, read off the table."""
    column = tables_column(table, name, numeric)
    if column.kind != "continuous" or not decimals:
        return column
    values = np.asarray(table.values(name)[~table.missing(name)], dtype=float)
    for digits in range(1, 7):
        if np.array_equal(np.round(values, digits), values):
            return replace(column, decimals=digits)
    return column


def judge(schema: sw.Schema, table: sw.Table) -> Encoder:
    """Whole numbers of few values as they are, others in bins of equal mass."""
    cuts = {}
    for column in schema.columns:
        if column.kind not in ("integer", "continuous"):
            continue
        values = np.sort(table.values(column.name)[~table.missing(column.name)])
        starts = np.unique(values)
        if len(starts) > _FEW:
            starts = np.unique(values[len(values) * np.arange(1, _EQUAL) // _EQUAL])
        cuts[column.name] = Cuts(tuple(starts[starts > values[0]].tolist()))
    return Encoder(schema, _EQUAL, cuts=cuts)


def distance(encoder: Encoder, size: int, one: sw.Table, other: sw.Table) -> float:
    """Mean total variation of two tables over random tables of so many columns."""
    a, b = encoder.encode(one), encoder.encode(other)
    every, found = list(combinations(encoder.domain.names, size)), []
    drawn = np.random.default_rng(7).choice(len(every), min(_DRAWN, len(every)), replace=False)
    for clique in [every[i] for i in drawn]:
        _, cells = np.unique(np.concatenate([a.flat(clique), b.flat(clique)]), return_inverse=True)
        parts, most = (cells[: a.num_rows], cells[a.num_rows :]), cells.max() + 1
        shares = [np.bincount(part, minlength=most) / len(part) for part in parts]
        found.append(float(np.abs(shares[0] - shares[1]).sum()) / 2)
    return float(np.mean(found))


def told_apart(schema: sw.Schema, real: sw.Table, drawn: sw.Table) -> float:
    """AUC of boosted trees that learn from half of both which rows are real."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    numbers = [c.name for c in schema.columns if c.kind in ("integer", "continuous")]
    codes = Encoder(schema, 2)
    text = [n for n in schema.names if n not in numbers and codes.domain.size_of(n) <= 255]

    def read(rows: sw.Table) -> Any:
        given = [np.where(rows.missing(n), np.nan, rows.values(n).astype(float)) for n in numbers]
        coded = codes.encode(rows)
        return np.stack([*given, *(coded.column(n).astype(float) for n in text)], axis=1)

    X, y = np.concatenate([read(real), read(drawn)]), np.repeat([0, 1], real.num_rows)
    order = np.random.default_rng(0).permutation(len(y))
    learn, test = np.array_split(order, 2)
    places = list(range(len(numbers), len(numbers) + len(text)))
    trees = HistGradientBoostingClassifier(  # a fixed number of rounds: see raking_trap.py
        categorical_features=places, early_stopping=False, random_state=0
    )
    return float(roc_auc_score(y[test], trees.fit(X[learn], y[learn]).predict_proba(X[test])[:, 1]))


def run_table(name: str, method: str, label: str, seed: int, data: Path) -> Row:
    """One fit to half of a table, and what its rows keep."""
    facts, table = sources.facts(name), sources.read(name, data)
    table = table.select([n for n in table.names if n not in facts["identifiers"]])
    numeric, exact = set(facts["continuous"]), label != "before, no decimals"
    schema = sw.Schema(
        tuple(column_of(table, n, n in numeric, decimals=exact) for n in table.names)
    ).with_fallbacks()
    order = np.random.default_rng(1000 + seed).permutation(table.num_rows)
    real, other = (table.take(np.sort(half)) for half in np.array_split(order, 2))
    if label == WHOLE:
        real = other = table
    encoder, sizes = judge(schema, table), SIZES
    made: Row = {"part": "tables", "table": name, "method": method, "label": label, "seed": seed}
    made |= {"rows": real.num_rows, "columns": len(table.names)}
    made |= {"commit": commit(), "load": os.getloadavg()[0]}
    target = facts["target"] if facts["task"] == "classification" else None
    if method == HELD_OUT:
        if target:
            made["utility"] = auc(schema, real, other, target)
        return {**made, "errors": {n: distance(encoder, k, real, other) for n, k in sizes.items()}}
    start, cpu = time.perf_counter(), time.process_time()
    named = {"target": target} if label == "target" else {}
    synth = getattr(sw, method)(**SETTINGS[label], **named)
    budget, held = sw.Budget(1.0, 1 / table.num_rows), real if method == "AIM" else [real]
    if method == "FLAIM":
        held = sw.split_rows(real, 5, seed=seed)
    equal = patch.object(histograms, "octave_starts", return_value=())  # as before decision 0052
    with equal if "counts_share" in SETTINGS[label] else nullcontext():
        fitted = synth.fit(held, schema, budget=budget, seed=seed, noise="seeded", progress=False)
    made |= {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    made["peak_mb"] = getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6  # Linux counts KiB
    made["cells"], made["bins"] = fitted.model.mrf.tree.cells, fitted.settings["bins"]
    drawn = sw.read(fitted.sample(real.num_rows, seed=seed + 1))
    if method == "AIM" and label not in (WHOLE, *LARGER):  # the page has no other trees
        made["auc"] = told_apart(schema, real, drawn)
        if target:
            made["utility"] = auc(schema, drawn, other, target)
    return {**made, "errors": {n: distance(encoder, k, real, drawn) for n, k in sizes.items()}}


def error(encoder: Encoder, cliques: list[Any], real: sw.Table, other: sw.Table) -> float:
    """Mean L1 distance of two tables' shares in the cells of some cliques."""
    a, b, found = encoder.encode(real), encoder.encode(other), []
    for clique in cliques:
        cells = encoder.domain.size(clique)
        ours, theirs = (np.bincount(c.flat(clique), minlength=cells) / c.num_rows for c in (a, b))
        found.append(float(np.abs(ours - theirs).sum()))
    return float(np.mean(found))


def auc(schema: sw.Schema, synthetic: sw.Table, held_out: sw.Table, target: str = TARGET) -> float:
    """Of boosted trees that learn the target from synthetic rows; the mean over its classes."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    encoder = Encoder(schema, 200)
    names = [name for name in schema.names if name != target]
    text = [schema[name].kind == "categorical" for name in names]

    def read(rows: sw.Table) -> tuple[Any, Any]:
        codes = encoder.encode(rows)
        return np.stack([codes.column(n) for n in names], 1), codes.column(target)

    trees = HistGradientBoostingClassifier(categorical_features=text, random_state=0)
    X, y = read(held_out)
    A, z = read(synthetic)
    again = np.bincount(z)[z] > 1  # scikit-learn sets rows of every class aside
    made = trees.fit(A[again], z[again])
    chances = dict(zip(made.classes_.tolist(), made.predict_proba(X).T, strict=True))
    classes = [one for one in np.unique(y).tolist() if one in chances]
    return float(np.mean([roc_auc_score(y == one, chances[one]) for one in classes]))


def measured(part: str, prepared: Prepared, rows: sw.Table) -> dict[str, float]:
    """The errors of some rows."""
    real, schema = prepared.train, prepared.schema
    if part == "central":
        encoder = Encoder(schema, 32)
        every = list(combinations(encoder.domain.names, 3))
        drawn = np.random.default_rng(123).choice(len(every), 64, replace=False)
        return {"three-way": error(encoder, [every[i] for i in drawn], real, rows)}
    encoder = Encoder(schema, 20)
    found = {}
    for name, size in (("one-way", 1), ("two-way", 2)):
        found[name] = error(encoder, list(combinations(encoder.domain.names, size)), real, rows) / 2
    return {**found, "auc": auc(schema, rows, prepared.holdout)}


def run(part: str, method: str, prepared: Prepared) -> Row:
    """One fit, and what its rows keep."""
    start, cpu = time.perf_counter(), time.process_time()
    made: dict[str, Any] = {"part": part, "method": method, "commit": commit()}
    if method == HELD_OUT:
        errors = measured(part, prepared, prepared.holdout)
        if "auc" in errors:  # trees that learned from the rows they are judged on tell nothing
            errors["auc"] = auc(prepared.schema, prepared.train, prepared.holdout)
        return {**made, "errors": errors}
    published = {"degree": 3, "queries": 64} if method == "AIM" else {}
    real, synth = prepared.train, getattr(sw, method)(**published)
    budget = budget_of_separation(0.1 if part == "central" else 0.2, DELTA)
    data = real if part == "central" else sw.split_rows(real, 5, seed=0)
    fitted = synth.fit(data, prepared.schema, budget=budget, seed=0)
    made |= {"epsilon": fitted.epsilon, "seconds": time.perf_counter() - start}
    made["cpu"] = time.process_time() - cpu
    drawn = sw.read(fitted.sample(real.num_rows, seed=1))
    return {**made, "errors": measured(part, prepared, drawn)}


def beside(rows: list[Row], method: str, earlier: str) -> str:
    """How a method's three-way errors by default are to those with an earlier default."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if row["method"] == method and row["label"] in ("default", earlier):
            errors = found.setdefault((row["table"], row["label"]), {})
            errors[row["seed"]] = row["errors"]["three-way"]
    ratios, above = [], []
    for name in TABLES:
        now, old = (found.get((name, label), {}) for label in ("default", earlier))
        if seeds := sorted(now.keys() & old.keys()):
            ratio, error = ratio_of([now[s] for s in seeds], [old[s] for s in seeds])
            ratios.append(ratio)
            if ratio > 1.005:
                sure = f" ± {error:.3f}" if error is not None else " (one seed)"
                above.append(f"{ratio:.3f}{sure} on {name}")
    if not ratios:
        return ""
    return (
        f"* `{method}`, default over *{SHOWN.get(earlier, earlier)}*: {np.mean(ratios):.2f} on "
        f"average of {len(ratios)} tables; above 1: {', '.join(above) or 'none'}.\n"
    )


def ratio_of(now: list[float], old: list[float]) -> tuple[float, float | None]:
    """The ratio of two means over the same seeds, and its standard error to first order."""
    ratio = float(np.mean(now) / np.mean(old))
    if len(now) < 2:
        return ratio, None
    apart = np.subtract(now, ratio * np.asarray(old))
    return ratio, float(np.std(apart, ddof=1) / np.sqrt(len(now)) / np.mean(old))


def latest(rows: list[Row]) -> list[Row]:
    """Rows; where a table was not run by default again, the last earlier default stands for it."""
    run = {(row["table"], row["method"]) for row in rows if row["label"] == "default"}
    old = [r for r in rows if r["label"] == ALIKE and (r["table"], r["method"]) not in run]
    return rows + [row | {"label": "default"} for row in old]


def page_of_tables(rows: list[Row]) -> str:
    """Errors of all tables, before and by default; and how well trees tell rows apart."""
    held = {(row["table"], row["seed"]): row for row in rows if row["method"] == HELD_OUT}
    again = {(row["table"], row["method"]) for row in rows if row["label"] == "default"}
    rows = latest(rows)
    body, apart, useful, narrower = [], [], [], []

    def of(table: str, method: str, label: str) -> list[Row]:
        return [r for r in rows if (r["table"], r["method"], r["label"]) == (table, method, label)]

    def means(found: list[Row], name: str, digits: int) -> str:
        held = [row | row["errors"] for row in found]
        values = [row[name] for row in held if name in row]  # without times, where others worked
        return f"{np.mean(values):.{digits}f}" if values else "–"

    for name in TABLES:
        for method in ("AIM", "TwoRound", "FLAIM"):
            before, now = of(name, method, "before"), of(name, method, "default")
            seeds = {row["seed"] for row in before} & {row["seed"] for row in now}
            before, now = ([r for r in runs if r["seed"] in seeds] for runs in (before, now))
            real = [held[name, seed] for seed in sorted(seeds) if (name, seed) in held]
            if not seeds or not real:
                continue
            errors = [np.mean([r["errors"]["three-way"] for r in runs]) for runs in (now, real)]
            first = [r for r in of(name, method, "first") if r["seed"] in seeds]
            two = [means(runs, "two-way", 4) for runs in (before, now)]
            equal = [r for r in of(name, method, "default, equal bins") if r["seed"] in seeds]
            if equal:
                same = {row["seed"] for row in equal}
                then = of(name, method, FIXED) or of(name, method, ALIKE) or now
                kept = [[r for r in runs if r["seed"] in same] for runs in (equal, then, real)]
                both = [means(runs, n, 4) for n in SIZES for runs in kept]
                tenth = "" if all("counts_share" in row for row in equal) else " †"
                narrower.append([name + tenth, f"`{method}`", str(len(same)), *both])
            mark = " *" if name in TUNED else ""
            sized = "" if (name, method) in again else " ‡"
            body.append([
                f"{name}{mark}", f"{now[0]['rows']:,}", f"`{method}`{sized}", str(len(seeds)),
                means(first, "three-way", 4), means(before, "three-way", 4),
                means(now, "three-way", 4), means(real, "three-way", 4),
                f"{errors[0] / errors[1]:.2f}", *two,
                f"{means(before, 'cpu', 0)}, {means(now, 'cpu', 0)}",
            ])  # fmt: skip
        learned = [of(name, "AIM", ALIKE), of(name, "AIM", "target"), of(name, HELD_OUT, "")]
        found = [{r["seed"]: r["utility"] for r in one if "utility" in r} for one in learned]
        seeds = set.intersection(*(set(one) for one in found))
        if seeds:
            scores = [[one[seed] for seed in sorted(seeds)] for one in found]
            spread = [f"{np.mean(one):.3f} ± {np.std(one, ddof=1):.3f}" for one in scores]
            useful.append([name, str(len(seeds)), *spread])
        runs = [of(name, "AIM", label) for label in ("before, no decimals", "default")]
        seeds = {row["seed"] for row in runs[0]} & {row["seed"] for row in runs[1]}
        if seeds:
            kept = [[r for r in one if r["seed"] in seeds] for one in runs]
            apart.append([name, str(len(seeds)), *(means(one, "auc", 3) for one in kept)])
    head = ["table", "rows", "method", "seeds", "first", "before", "default", "other half",
            "default / other half", "two-way: before", "default",
            "cpu s: before, default"]  # fmt: skip
    text = TABLES_HEAD + (table(head, body) if body else "not run") + "\n"
    text += "".join(beside(rows, *one) for one in product(("AIM", "TwoRound"), ("first", "before")))
    text += beside(rows, "TwoRound", LINKS)
    text += WHY
    head = ["table", "method", "seeds", *(f"{n}, {one}" for n in SIZES for one in COMPARED)]
    text += EQUAL_HEAD + (table(head, narrower) if narrower else "not run") + "\n"
    head = ["table", "seeds", "all pairs, 16 bins, no decimals", "default, decimals"]
    text += APART_HEAD + (table(head, apart) if apart else "not run") + "\n"
    head = ["table", "seeds", "default", "`target` named", "real rows"]
    text += UTILITY_HEAD + (table(head, useful) if useful else "not run") + "\n"
    head = ["table", "rows", "columns", "seeds", "three-way", "two-way", "seconds", "cpu s", "MB",
            "load"]  # fmt: skip
    body = []
    for name in TABLES:
        if whole := of(name, "AIM", WHOLE):
            sizes = [f"{whole[0]['rows']:,}", str(whole[0]["columns"]), str(len(whole))]
            errors = [means(whole, one, 4) for one in ("three-way", "two-way")]
            cost = [means(whole, one, 0) for one in ("seconds", "cpu", "peak_mb")]
            body.append([name, *sizes, *errors, *cost, means(whole, "load", 1)])
    return text + WHOLE_HEAD + (table(head, body) if body else "not run") + "\n"


def page(results: Path) -> str:
    """The part of the results page."""
    every = lines(results / OUT.name)
    kept = {(row["part"], row["method"]): row for row in every}
    text = HEAD
    for part, methods in PARTS.items():
        found = [kept[part, name] for name in (*methods, HELD_OUT) if (part, name) in kept]
        names = list(found[0]["errors"]) if found else []
        head = ["method", "ε", *(NAMES[name] for name in names), "fit, s"]
        body = [
            [
                row["method"],
                f"{row['epsilon']:.2f}" if "epsilon" in row else "–",
                *(f"{row['errors'][name]:.3f}" for name in names),
                f"{row['cpu']:.0f}" if "cpu" in row else "–",
            ]
            for row in found
        ]
        text += table(head, body) + "\n" if found else "not run\n"
    return text + page_of_tables([row for row in every if row["part"] == "tables"])


def run_tables(args: argparse.Namespace) -> None:
    """What is missing of `tables`, each run in a process of its own, so that memory is its own."""
    done = {(r["table"], r["method"], r["label"], r["seed"])
            for r in lines(args.out) if r["part"] == "tables"}  # fmt: skip
    wanted = [(name, method, label, seed)
              for name in sources.present(args.table, args.data) for seed in args.seed
              for method in (HELD_OUT, *(args.method or ("AIM", "TwoRound")))
              for label in ([""] if method == HELD_OUT else args.label)]  # fmt: skip
    for one in wanted:
        if one in done:
            continue
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            row = pool.submit(run_table, *one, args.data).result()
        with args.out.open("a") as file:
            kept = {n: v for n, v in row.items() if not (args.busy and n in TIMES)}
            file.write(json.dumps(kept) + "\n")
        print(*one, row["errors"], row.get("auc", ""), flush=True)


def main() -> None:
    """Run what is missing."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--part", nargs="*", choices=(*PARTS, "tables"), default=list(PARTS))
    parse.add_argument("--table", nargs="*", choices=TABLES, default=list(TABLES))
    parse.add_argument("--label", nargs="*", choices=SETTINGS, default=list(SETTINGS)[:2])
    parse.add_argument("--seed", nargs="*", type=int, default=[0])
    parse.add_argument("--busy", action="store_true", help="others use the machine: keep no times")
    parse.add_argument("--method", nargs="*", help="names of classes; all if not given")
    parse.add_argument("--out", type=Path, default=OUT, help="where lines are kept")
    sources.add_data(parse)
    args = parse.parse_args()
    if "tables" in args.part:
        run_tables(args)
    parts = [part for part in args.part if part in PARTS]
    prepared: Any = prepare("adult", args.data) if parts else None
    done = {(row["part"], row["method"]) for row in lines(args.out)}
    for part in parts:
        for method in (*PARTS[part], HELD_OUT):
            if (part, method) in done or (args.method and method not in args.method):
                continue
            row = run(part, method, prepared)
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(part, method, row["errors"], flush=True)


if __name__ == "__main__":
    main()
