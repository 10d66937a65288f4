"""Private synthesis over split columns: how well SVMs trained on synthetic rows predict real ones.

The protocol of Zhao et al. 2024, "VertiMRF" (KDD 2024), as its code has it, which is PrivMRF's:
rows in five folds, codes standardised, an SVM with a radial kernel (C = 1, gamma = 1 / columns)
trained on synthetic rows to predict one column from all others, and the share of the rows held out
that it gets wrong. Three departures:

* Every column is predicted in turn and counts alike. That code draws columns at random; the paper's
  eight are not named there.
* Run k holds out fold k from the synthesizer too. That code holds it out from nobody but the SVM:
  what it synthesizes from are all folds.
* At most 5,000 rows train an SVM (`TRAINED`), real ones alike; all do for nltcs, most of whose rows
  are copies of others. That code trains on as many as were synthesized.

    python benchmarks/columns_split_svm.py --table nltcs --runs 5
    python benchmarks/results_page.py

Every run is one line of `results/columns_split_svm.jsonl`; what is there is not run again. A line
that bears a `label`, by hand, is of code that has changed since: it is kept, and no longer shown.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sources
from columns_split import METHODS, Coded, coded, one
from flaim_adult import commit
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

OUT = Path(__file__).parent / "results" / "columns_split_svm.jsonl"
FOLDS = 5
TRAINED = {"adult": 5_000, "adult_privmrf": 5_000, "br2000_privmrf": 5_000}
SHOWN = [
    "secure_two_round", "two_round", "aim", "privmrf", "vertimrf_fo", "vertimrf_fm", "vertigan",
]  # fmt: skip
REAL = "real"

Rows = NDArray[np.integer[Any]]


def folds(data: Coded, seed: int) -> tuple[Coded, Coded]:
    """Rows to synthesize from, and those held out: one fold of five, which all methods share."""
    order = np.random.default_rng(0).permutation(data.table.num_rows)
    held = np.array_split(order, FOLDS)[seed]
    kept = np.setdiff1d(order, held)
    known, asked = (replace(data, table=data.table.take(r.tolist())) for r in (kept, held))
    return known, asked


def wrong(train: Rows, test: Rows, column: int) -> float:
    """The share of test rows whose column an SVM of the training rows gets wrong.

    Alike rows are one with a weight, which leaves the SVM what it is and costs much less.
    """
    (rows, weights), (asked, times) = (
        np.unique(side, axis=0, return_counts=True) for side in (train, test)
    )
    known, answers = rows[:, column], asked[:, column]
    found = np.full(len(asked), known[0])
    if len(np.unique(known)) > 1:
        others, questions = (np.delete(side, column, axis=1) for side in (rows, asked))
        scale = StandardScaler().fit(others, sample_weight=weights)
        model = SVC(gamma="auto", cache_size=500)
        model.fit(scale.transform(others), known, sample_weight=weights)
        found = model.predict(scale.transform(questions))
    return float(np.average(found != answers, weights=times))


def errors(train: Coded, held: Coded, most: int | None) -> dict[str, float]:
    """The error of every column, by name, after at most so many rows, whatever their order."""
    known, asked = (np.stack(side.codes.columns, axis=1) for side in (train, held))
    known = np.random.default_rng(0).permutation(known)[:most]
    return {name: wrong(known, asked, at) for at, name in enumerate(train.table.names)}


def commonest(train: Coded, held: Coded) -> dict[str, float]:
    """The same for a guess that looks at no other column: always the commonest value."""
    sides = zip(train.table.names, train.codes.columns, held.codes.columns, strict=True)
    return {name: float(np.mean(asked != np.bincount(known).argmax()))
            for name, known, asked in sides}  # fmt: skip


def main() -> None:
    """Run what is missing."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parse)
    parse.add_argument("--table", default="nltcs", choices=list(sources.FACTS))
    parse.add_argument("--runs", type=int, default=FOLDS, choices=range(1, FOLDS + 1))
    parse.add_argument("--methods", nargs="*", choices=(REAL, *METHODS), default=[REAL, *SHOWN])
    parse.add_argument("--epsilons", nargs="*", type=float, default=[0.8])
    parse.add_argument("--out", type=Path, default=OUT)
    args = parse.parse_args()
    data = coded(args.table, args.data)
    lines = args.out.read_text().splitlines() if args.out.is_file() else []
    done = [row for row in map(json.loads, lines) if "label" not in row]
    asked = [
        {"table": args.table, "method": method, "epsilon": epsilon, "seed": seed}
        for seed in range(args.runs)
        for method in args.methods
        for epsilon in ([None] if method == REAL else args.epsilons)
    ]
    for case in asked:
        if any(case.items() <= row.items() for row in done):
            continue
        kept, held = folds(data, case["seed"])
        trained = kept
        if case["method"] != REAL:
            fitted, _ = one(kept, case["method"], 2, case["epsilon"], case["seed"], {})
            drawn = fitted.sample_table(kept.table.num_rows, seed=case["seed"])
            trained = replace(kept, table=drawn)
        found = errors(trained, held, TRAINED.get(args.table))
        row = case | {"rows": kept.table.num_rows, "errors": found, "commit": commit()}
        if case["method"] == REAL:
            row["commonest"] = commonest(kept, held)
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(*case.values(), f"{np.mean(list(found.values())):.4f}", flush=True)


if __name__ == "__main__":
    main()
