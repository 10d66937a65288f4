"""How often a class of few rows is drawn beside codes that it does not depend on.

    python benchmarks/invented_links.py                       # what is missing; an hour for all
    python benchmarks/invented_links.py --before ../other/src # another checkout, same seeds
    python benchmarks/results_page.py

Made tables of five columns: `code` has eight frequent values, which share nine tenths of the rows,
and many rare ones; `died` is a class of few rows; sex, age in 16 bins and ward are beside them. No
column depends on another. Each method has its defaults and draws 200,000 rows. A line holds, for
real and for drawn rows, the share of the class in rare codes and elsewhere; the sampling error of
the real rows' share in rare codes; and, over all pairs of columns, the mean and the largest
Cramer's V without its bias (Bergsma 2013, "A bias-correction for Cramer's V and Tschuprow's T"),
which is 0 where columns are independent. There are eight cases, which another checkout can run as
well, and a grid of 27 (`grid`).

The guarantee is of add/remove neighbours and delta 1e-6. Noise is new in each run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).parent / "results" / "invented_links.jsonl"
METHODS = ("AIM", "TwoRound", "SecureTwoRound", "DistAIM")
FREQUENT = 8
DRAWN = 200_000
CASES: tuple[dict[str, Any], ...] = (
    {"rows": 7_000, "codes": 256, "share": 0.03, "epsilon": 1.0, "parties": 2},
    {"rows": 7_000, "codes": 256, "share": 0.03, "epsilon": 4.0, "parties": 2},
    {"rows": 30_000, "codes": 256, "share": 0.03, "epsilon": 1.0, "parties": 2},
    {"rows": 7_000, "codes": 60, "share": 0.03, "epsilon": 1.0, "parties": 4},
    {"rows": 2_000, "codes": 20, "share": 0.1, "epsilon": 0.5, "parties": 2},
    {"rows": 50_000, "codes": 256, "share": 0.01, "epsilon": 2.0, "parties": 8},
    {"rows": 7_000, "codes": 300, "share": 0.03, "epsilon": 1.0, "parties": 2},
    {"rows": 7_000, "codes": 300, "share": 0.03, "epsilon": 4.0, "parties": 2},
)
LEVELS: dict[str, tuple[float, ...]] = {
    "rows": (2_000, 10_000, 50_000),
    "codes": (20, 60, 256),
    "epsilon": (0.5, 1.0, 4.0),
    "share": (0.01, 0.03, 0.1),
    "parties": (1, 2, 8),
}
KEY = ("method", "rows", "codes", "share", "epsilon", "parties", "seed", "side")


def grid() -> tuple[dict[str, Any], ...]:
    """Return 27 cases: all of rows, codes and epsilon, with every pair of other levels in balance.

    Share and number of parties are sums of the places of the first three, modulo 3 (the orthogonal
    array L27), so that each of their levels meets each level of the others equally often.
    """
    places = product(range(3), repeat=3)
    return tuple(
        {
            "rows": LEVELS["rows"][i],
            "codes": LEVELS["codes"][j],
            "share": LEVELS["share"][(i + j + k) % 3],
            "epsilon": LEVELS["epsilon"][k],
            "parties": LEVELS["parties"][(i + 2 * j + k) % 3],
        }
        for i, j, k in places
    )


def made_table(case: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Return independent columns, as whole numbers."""
    rng = np.random.default_rng(seed)
    rows, codes = case["rows"], case["codes"]
    frequent = np.full(FREQUENT, 0.9 / FREQUENT)
    rare = np.full(codes - FREQUENT, 0.1 / (codes - FREQUENT))
    return {
        "code": rng.choice(codes, rows, p=np.r_[frequent, rare]),
        "died": (rng.random(rows) < case["share"]).astype(int),
        "sex": rng.integers(0, 2, rows),
        "age": rng.integers(0, 16, rows),
        "ward": rng.integers(0, 5, rows),
    }


def sizes_of(case: dict[str, Any]) -> dict[str, int]:
    """Return how many values each column may have."""
    return {"code": case["codes"], "died": 2, "sex": 2, "age": 16, "ward": 5}


def association(first: np.ndarray, second: np.ndarray, shape: tuple[int, int]) -> float:
    """Return Cramer's V of two columns of codes, without its bias."""
    flat = np.ravel_multi_index((first, second), shape)
    counts = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape).astype(float)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    rows = counts.sum()
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / rows
    square = float(((counts - expected) ** 2 / expected).sum()) / rows
    n, m = counts.shape
    square = max(0.0, square - (n - 1) * (m - 1) / (rows - 1))
    least = min(n - (n - 1) ** 2 / (rows - 1), m - (m - 1) ** 2 / (rows - 1)) - 1
    return float(np.sqrt(square / least)) if least > 0 else 0.0


def facts_of(columns: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, float]:
    """Return the class's shares, and associations over all pairs of columns."""
    is_rare = columns["code"] >= FREQUENT
    links = [association(columns[a], columns[b], (sizes[a], sizes[b]))
             for a, b in combinations(sizes, 2)]  # fmt: skip
    return {
        "rare": float(columns["died"][is_rare].mean()),
        "elsewhere": float(columns["died"][~is_rare].mean()),
        "mean_link": float(np.mean(links)),
        "largest_link": float(np.max(links)),
    }


def run(method: str, case: dict[str, Any], seed: int) -> dict[str, Any]:
    """Fit and draw in this process."""
    import polars as pl

    import siloweave as sw

    real, sizes = made_table(case, seed), sizes_of(case)
    frame = pl.DataFrame({name: values.astype(str) for name, values in real.items()})
    columns = [sw.Column(name, "categorical", categories=tuple(map(str, range(size))))
               for name, size in sizes.items()]  # fmt: skip
    schema = sw.Schema(tuple(columns)).with_fallbacks()
    budget = sw.Budget(case["epsilon"], 1e-6)
    parties: Any = frame
    if method == "SecureTwoRound":
        budget = sw.Budget(case["epsilon"], 1e-6)
        halves = (("code", "sex"), ("died", "age", "ward"))
        parties = {f"p{i}": frame.select(half) for i, half in enumerate(halves)}
    elif method != "AIM":
        count = case["parties"]
        parties = [frame[i::count] for i in range(count)]
    start = time.process_time()
    fitted = getattr(sw, method)().fit(parties, schema, budget=budget, progress=False)
    drawn = pl.DataFrame(fitted.sample(DRAWN))
    cpu = time.process_time() - start
    numbers = {name: drawn[name].cast(pl.Int64).to_numpy() for name in sizes}
    is_rare = real["code"] >= FREQUENT
    share = real["died"].mean()
    return {
        "real": facts_of(real, sizes),
        "drawn": facts_of(numbers, sizes),
        "error": float(np.sqrt(share * (1 - share) / is_rare.sum())),
        "cpu": cpu,
    }


def missing_runs(out: Path, side: str, seeds: int) -> list[tuple[str, dict[str, Any], int]]:
    """Return runs that are not in the results."""
    lines = out.read_text().splitlines() if out.is_file() else []
    there = {tuple(json.loads(line)[name] for name in KEY) for line in lines}
    cases = CASES if side == "before" else CASES + grid()
    wanted = [(m, case, seed) for case in cases for seed in range(seeds) for m in METHODS]
    return [
        (method, case, seed)
        for method, case, seed in wanted
        if (method, *case.values(), seed, side) not in there
    ]


TEXT = """
## Invented links

No column of these made tables depends on another. `code` has eight frequent values with nine tenths
of the rows and many rare ones; the class has few rows. A method has invented a link where the
class's share in rare codes is far from the real rows' share.

- *Real*, *before* and *now*: the share of the class in rare codes, in percent, of 200,000 drawn
  rows. After ± is twice the sampling error of the real rows' share.
- *Mean V* and *largest V*: Cramér's V without its bias, over all ten pairs of columns, of drawn
  rows, before and now. Real rows have at most {most:.2f}.
- *Before*: commit d98445d3, with the same tables ([decision
  0036](../decisions/0036-two-rounds.md)).

Means of {seeds} seeds, new noise in each run, δ = 1e-6. Rows are split evenly over the parties of
TwoRound and DistAIM. AIM has one party. SecureTwoRound has two: one with the codes, the other with
the class.

| rows, codes, ε, parties | real | method | before | now | mean V | largest V |
|---|---:|---|---:|---:|---:|---:|
{rows}

AIM chooses pairs by comparing exact counts, in noise, and has no part in the change.

### Over a grid

{cases} cases, {seeds} seeds each: all combinations of 2,000, 10,000 and 50,000 rows, 20, 60 and 256
codes, and ε of .5, 1 and 4. Classes of 1, 3 and 10 % and 1, 2 and 8 parties are in balance over
them (the orthogonal array L27).

- *Runs* and *cases* count shares of the class in rare codes that lie within twice the sampling
  error of the real rows' share. A case is the mean of its seeds. Noise moves the class's share as a
  whole, too: at ε = .5 and 2,000 rows a class of 1 % is hardly there.
- A *link* is what is left: the share in rare codes less that in the others, in sampling errors. Of
  independent real rows one in twenty is beyond 2.

| method | runs | cases | links within 2 | mean link | largest link | largest V: mean, of all |
|---|---:|---:|---:|---:|---:|---:|
{grid}

By what the cases have, the mean link and how many of the links lie within 2:

| | {methods} |
|---|{rules}|
{levels}

    python benchmarks/invented_links.py --before ../other/src
"""


def _mean(lines: Sequence[Mapping[str, Any]], side: str, fact: str) -> float:
    """Return the mean of a fact over seeds; NaN where nothing was run."""
    values = [line[side][fact] for line in lines]
    return float(np.mean(values)) if values else float("nan")


def section() -> str:
    """Return the section of the results page."""
    lines = [json.loads(line) for line in OUT.read_text().splitlines()]
    rows = []
    for case in CASES:
        for method in METHODS:
            mine = [e for e in lines if e["method"] == method and case.items() <= e.items()]
            now = [line for line in mine if line["side"] == "now"]
            before = [line for line in mine if line["side"] == "before"]
            if not now:
                continue
            real = f"{100 * _mean(now, 'real', 'rare'):.1f} ± {200 * now[0]['error']:.1f}"
            shares = [_percent(_mean(side, "drawn", "rare")) for side in (before, now)]
            means = [_decimals(_mean(side, "drawn", "mean_link")) for side in (before, now)]
            links = [_decimals(_mean(side, "drawn", "largest_link")) for side in (before, now)]
            name = f"{case['rows']:,}, {case['codes']}, {case['epsilon']:g}, {case['parties']}"
            rows.append(
                f"| {name} | {real} | {method} | {shares[0]} | {shares[1]} "
                f"| {', '.join(means)} | {', '.join(links)} |"
            )
    cases = grid()
    now = [e for e in lines if e["side"] == "now" and any(c.items() <= e.items() for c in cases)]
    return TEXT.format(
        rows="\n".join(rows),
        most=max(line["real"]["largest_link"] for line in lines),
        seeds=len({line["seed"] for line in lines}),
        cases=len(cases),
        grid="\n".join(_grid_row(method, now) for method in METHODS),
        methods=" | ".join(METHODS),
        rules="|".join(["---:"] * len(METHODS)),
        levels="\n".join(_level_rows(now)),
    )


def _grid_row(method: str, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a method's row over all cases of the grid."""
    mine = [line for line in lines if line["method"] == method]
    by_case: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for line in mine:
        by_case.setdefault(tuple(line[name] for name in LEVELS), []).append(line)
    runs = [abs(_distance(line)) <= 2 for line in mine]
    means = [abs(np.mean([_distance(run) for run in case])) <= 2 for case in by_case.values()]
    links = np.array([_link(line) for line in mine])
    associations = [line["drawn"]["largest_link"] for line in mine]
    cells = [
        f"{sum(runs)} of {len(runs)}",
        f"{sum(means)} of {len(means)}",
        f"{int((abs(links) <= 2).sum())} of {len(links)}",
        f"{links.mean():+.2f}",
        f"{links[abs(links).argmax()]:+.1f}",
        f"{np.mean(associations):.2f}, {max(associations):.2f}",
    ]
    return f"| {method} | {' | '.join(cells)} |"


def _level_rows(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a row for each level of what the cases have."""
    rows = []
    for name, levels in LEVELS.items():
        for level in levels:
            cells = []
            for method in METHODS:
                mine = [e for e in lines if e["method"] == method and e[name] == level]
                links = np.array([_link(line) for line in mine])
                cells.append(f"{links.mean():+.2f}, {int((abs(links) <= 2).sum())} of {len(links)}")
            rows.append(f"| {name} {level:,g} | {' | '.join(cells)} |")
    return rows


def _distance(line: Mapping[str, Any]) -> float:
    """Return how far the class's share in rare codes is from the real one, in sampling errors."""
    distance: float = (line["drawn"]["rare"] - line["real"]["rare"]) / line["error"]
    return distance


def _link(line: Mapping[str, Any]) -> float:
    """Return what rare codes have more of the class than others, in sampling errors."""
    link: float = (line["drawn"]["rare"] - line["drawn"]["elsewhere"]) / line["error"]
    return link


def _percent(share: float) -> str:
    """Return a share in percent, or a dash where there is none."""
    return "–" if np.isnan(share) else f"{100 * share:.1f}"


def _decimals(value: float) -> str:
    """Return two decimals, or a dash where there is no value."""
    return "–" if np.isnan(value) else f"{value:.2f}"


def main() -> None:
    """Run what is missing, each in a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", type=Path, help="src of another checkout")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        method, case, seed = json.loads(arguments.one)
        print(json.dumps(run(method, case, seed)))
        return
    source = arguments.before or Path(__file__).resolve().parents[1] / "src"
    side = "before" if arguments.before else "now"
    for method, case, seed in missing_runs(arguments.out, side, arguments.seeds):
        command = [sys.executable, __file__, "--one", json.dumps([method, case, seed])]
        environment = os.environ | {"PYTHONPATH": str(source.resolve())}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{method} ended with {done.returncode}:\n{done.stderr}")
        line = {"method": method, **case, "seed": seed, "side": side}
        line |= json.loads(done.stdout.strip().splitlines()[-1])
        with arguments.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
