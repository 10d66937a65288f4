"""FLAIM's table of results: workload error and held-out NLL of every variant, over 100 parties.

Maddock, Cormode & Maple 2024, "FLAIM: AIM-based synthetic data generation in the federated
setting" (KDD 2024), tables 1 and 2: K=100 parties by clusters, p=0.1, T=10, s=1, epsilon=1,
delta=1e-5, 64 random three-way marginals (seed 123), 32 bins, 90/10 split (seed 571).

    python benchmarks/flaim_adult.py --runs 5
    python benchmarks/flaim_adult.py --table marketing --runs 3
    python benchmarks/results_page.py

Every run is kept as it ends, so a run that was stopped goes on where it was. A line that bears a
`label`, by hand, is of code that has changed since: it is kept, and no longer shown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import sources
from tables import TABLES, Prepared, parties, prepare

import siloweave as sw
from siloweave.evaluate.workload import negative_log_likelihood, workload_errors
from siloweave.protocols.workloads import workload_for
from siloweave.tables.codes import Codes

HERE = Path(__file__).parent
BUDGET = sw.Budget(epsilon=1.0, delta=1e-5)
# The published protocol: 64 random queries of three columns.
PUBLISHED: dict[str, Any] = {"degree": 3, "queries": 64}
METHODS: dict[str, Callable[[], Any]] = {
    "AIM": lambda: sw.AIM(**PUBLISHED),
    "TwoRound": lambda: sw.TwoRound(**PUBLISHED),
    "AugFLAIM (Private)": lambda: sw.FLAIM(**PUBLISHED),
    "AugFLAIM (Private), cap=1": lambda: sw.FLAIM(cap=1, **PUBLISHED),
    "AugFLAIM (Private), cap=2": lambda: sw.FLAIM(cap=2, **PUBLISHED),
    "DistAIM": lambda: sw.DistAIM(**PUBLISHED),
    "DistAIM (simulated)": lambda: sw.DistAIM(selection="simulated", **PUBLISHED),
    "AugFLAIM (Oracle)": lambda: sw.FLAIM(variant="oracle", **PUBLISHED),
    "NaiveFLAIM": lambda: sw.FLAIM(variant="naive", **PUBLISHED),
    "FLAIM (Random)": lambda: sw.FLAIM(variant="random", **PUBLISHED),
    "FedNaiveBayes": lambda: sw.FLAIM(variant="naive_bayes", **PUBLISHED),
}


def commit() -> str:
    """The last commit that touched the package, with a + where its files differ from it."""

    def git(*words: str) -> str:
        told = ["git", *words, "--", "src"]
        return subprocess.run(
            told, cwd=HERE.parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("log", "-1", "--format=%h") + ("+" if git("status", "--porcelain") else "")


def one(name: str, seed: int, table: Prepared, split: dict[str, Codes]) -> dict[str, object]:
    """Fit once and measure."""
    method = METHODS[name]()
    data = table.train if name == "AIM" else split
    start = time.perf_counter()
    fitted = method.fit(data, table.encoder, budget=BUDGET, seed=seed)
    seconds = time.perf_counter() - start
    domain = table.encoder.domain
    degree, number = PUBLISHED["degree"], PUBLISHED["queries"]
    queries = workload_for(domain, degree, number, "auto", method.max_model_mb)
    error = workload_errors(table.train, fitted.model.mrf, queries)
    carried = [t.bytes_to_party + t.bytes_from_party for t in fitted.cost.parties.values()]
    return {
        "method": name,
        "seed": seed,
        "queries": error.queries,
        "closure": error.closure,
        "nll": negative_log_likelihood(fitted.model.mrf, table.test),
        "epsilon": fitted.epsilon,
        "seconds": seconds,
        "megabytes": max(carried) / 1e6,
        "median_megabytes": median(carried) / 1e6,
        "megacells": fitted.model.mrf.tree.cells / 1e6,
        "rounds": fitted.cost.rounds,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Run what is missing."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parse)
    parse.add_argument("--table", choices=sorted(TABLES), default="adult")
    parse.add_argument("--runs", type=int, default=5)
    parse.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parse.add_argument("--split", choices=["umap", "pca"], default="umap")
    parse.add_argument("--parties", type=int, default=100)
    parse.add_argument("--cache", type=Path, default=HERE / "cache")
    parse.add_argument("--out", type=Path, default=HERE / "results")
    args = parse.parse_args()
    table = prepare(args.table, args.data)
    split = parties(args.table, table.train, args.parties, args.split, args.cache)
    out = args.out / f"flaim_{args.table}.jsonl"
    args.out.mkdir(parents=True, exist_ok=True)
    lines = out.read_text().splitlines() if out.is_file() else []
    shown = [row for row in map(json.loads, lines) if "label" not in row]
    done = {(row["method"], row["seed"]) for row in shown}
    running = commit()
    print(f"{args.table}: {table.train.num_rows} rows, {len(table.encoder.domain.names)} columns")
    for seed in range(args.runs):
        for name in args.methods:
            if (name, seed) in done:
                continue
            row = {"table": args.table, "rows": table.train.num_rows, "split": args.split}
            row["commit"] = running
            row |= one(name, seed, table, split)
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{name:28} seed {seed}: queries {row['queries']:.3f}, closure "
                f"{row['closure']:.3f}, NLL {row['nll']:.2f}, {row['seconds']:.0f} s, "
                f"{row['megabytes']:.1f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
