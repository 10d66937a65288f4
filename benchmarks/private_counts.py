"""What private methods keep of counts, on Adult: workloads at one place, marginals over parties.

    python benchmarks/private_counts.py            # all that is missing, some fifteen minutes
    python benchmarks/private_counts.py --part rows --method TwoRound
    python benchmarks/results_page.py

`central`: mean L1 error of 64 random three-way tables (seed 123) in 32 equal bins, at the epsilon
of separation 0.1. `rows`: five parties, separation 0.2; mean total variation of all one-
and two-way tables in 20 bins, and the AUC of boosted trees that learn income from synthetic rows,
on rows held out. Rows are those of neural.py, and every method has its defaults.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from flaim_adult import commit
from neural_page import Row, lines, table
from neural_tables import DELTA, Prepared, prepare

import siloweave as sw
from siloweave.privacy.budget import budget_of_separation
from siloweave.tables.codes import Encoder

OUT = Path(__file__).parent / "results" / "private_counts.jsonl"
PARTS = {
    "central": ("AIM", "DPCTGAN", "DPTabDDPM", "DPTLDM"),
    "rows": ("TwoRound", "DPFedPointDiff", "DPFedTabDDPM", "DPFedTGAN"),
}
HELD_OUT, TARGET = "rows held out", "income"
HEAD = """
### Counts under a bound

Adult, one run each, defaults. At one place, separation 0.1: mean L1 error of 64 random three-way
tables in 32 equal bins, which are the queries that AIM is asked for, in bins of its own. Over five
parties, separation 0.2: mean total variation of all one- and two-way tables in 20 equal bins, and
the AUC of trees that learn income from synthetic rows; beside the rows held out it is that of the
real training rows. Seconds are of the processor.

"""
NAMES = {"three-way": "three-way L1", "one-way": "one-way", "two-way": "two-way", "auc": "AUC"}


def error(encoder: Encoder, cliques: list[Any], real: sw.Table, other: sw.Table) -> float:
    """Mean L1 distance of two tables' shares in the cells of some cliques."""
    a, b, found = encoder.encode(real), encoder.encode(other), []
    for clique in cliques:
        cells = encoder.domain.size(clique)
        ours, theirs = (np.bincount(c.flat(clique), minlength=cells) / c.num_rows for c in (a, b))
        found.append(float(np.abs(ours - theirs).sum()))
    return float(np.mean(found))


def auc(schema: sw.Schema, synthetic: sw.Table, held_out: sw.Table) -> float:
    """Of boosted trees that learn the target from synthetic rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    encoder = Encoder(schema, 200)
    names = [name for name in schema.names if name != TARGET]
    text = [schema[name].kind == "categorical" for name in names]

    def read(rows: sw.Table) -> tuple[Any, Any]:
        codes = encoder.encode(rows)
        return np.stack([codes.column(n) for n in names], 1), codes.column(TARGET)

    trees = HistGradientBoostingClassifier(categorical_features=text, random_state=0)
    X, y = read(held_out)
    return float(roc_auc_score(y, trees.fit(*read(synthetic)).predict_proba(X)[:, 1]))


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


def page(results: Path) -> str:
    """The part of the results page."""
    kept = {(row["part"], row["method"]): row for row in lines(results / OUT.name)}
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
    return text


def main() -> None:
    """Run what is missing."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parse.add_argument("--method", nargs="*", help="names of classes; all if not given")
    parse.add_argument("--out", type=Path, default=OUT, help="where lines are kept")
    parse.add_argument("--data", type=Path, default=Path("../shared/data"))
    args = parse.parse_args()
    prepared = prepare("adult", args.data)
    done = {(row["part"], row["method"]) for row in lines(args.out)}
    for part in args.part:
        for method in (*PARTS[part], HELD_OUT):
            if (part, method) in done or (args.method and method not in args.method):
                continue
            row = run(part, method, prepared)
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(part, method, row["errors"], flush=True)


if __name__ == "__main__":
    main()
