"""What the attacks find in tables that give nothing away, and in one that gives everything away.

    python benchmarks/risk_ends.py
    python benchmarks/risk_ends.py --data FOLDER --table abalone
    python benchmarks/results_page.py

Published risks, and ours beside them, say little without both ends. Three tables need no training:

*shuffled*: the training rows, each column shuffled on its own, so that nothing links two columns;
*held out*: one half of the rows held out, with the other half as the control;
*copy*: the training rows themselves.

Rows, splits and attacks are those of neural.py and silofuse.py. Each table is a line of
results/risk_ends.jsonl; what is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sources
from flaim_adult import commit
from forecast import shuffled
from neural_run import attacked, since, spent
from neural_tables import Prepared, prepare

import siloweave as sw
from siloweave.tables.keys import generator

OUT = Path(__file__).parent / "results" / "risk_ends.jsonl"
TABLES = (
    "abalone",
    "adult",
    "california_housing",
    "churn",
    "covertype",
    "diabetes",
    "heloc",
    "intrusion_nslkdd_test",
)
ENDS = ("shuffled", "held out", "copy")
SEED = 0


def published_end(prepared: Prepared, end: str) -> tuple[sw.Table, Prepared]:
    """Return the table that is published as if it were synthetic, and the rows that attack it."""
    if end == "copy":
        return prepared.train, prepared
    if end == "shuffled":
        return shuffled(prepared.train), prepared

    # Rows held out are halved: one half is published, and the other one says what anybody knows.
    places = generator(SEED).permutation(prepared.holdout.num_rows)
    half = len(places) // 2
    published = prepared.holdout.take(np.sort(places[:half]))
    control = prepared.holdout.take(np.sort(places[half:]))
    return published, replace(prepared, holdout=control)


def risks_of(name: str, end: str, data: Path) -> dict[str, Any]:
    """Attack one of the tables that need no training, and return its line."""
    prepared = prepare(name, data)
    published, attacked_rows = published_end(prepared, end)
    start = spent()
    risks = attacked(attacked_rows, published, SEED)
    seconds, _ = since(start)
    return {
        "table": name, "end": end, "seed": SEED, "rows": published.num_rows, "risks": risks,
        "seconds": seconds, "commit": commit(),
    }  # fmt: skip


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results; none without one."""
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


def risks_at(end: str, table: str, file: Path) -> list[dict[str, Any]]:
    """Return the risks of one end of a table; none where it was not attacked."""
    for line in lines(file):
        if (line["table"], line["end"]) == (table, end):
            risks: list[dict[str, Any]] = line["risks"]
            return risks
    return []


def main() -> None:
    """Attack the tables that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    sources.add_data(parser)
    parser.add_argument("--table", choices=TABLES, nargs="*", default=TABLES)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    attacked_before = {(line["table"], line["end"]) for line in lines(args.out)}
    for name in args.table:
        for end in ENDS:
            if (name, end) in attacked_before:
                continue
            line = risks_of(name, end, args.data)
            with args.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{name}, {end}: {line['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
