"""A rehearsal on a thousand made-up rows beside the forecast of `check`: which is nearer to a run?

    python benchmarks/rehearsal.py --data ../shared/data
    python benchmarks/rehearsal.py --data ../shared/data --show

A rehearsal fits rows whose cells follow from the schema alone: every code of a column is equally
likely, and columns are independent. Epsilon is larger by as much as rows are fewer, so that noise
is to a count what it is in the run. Two rehearsals, of 500 and 1,000 rows, are continued along a
line to the run's rows. Each fit is a process of its own; its seconds are the processor's without
the imports, its megabytes the largest that it held, its bytes those of the busiest party.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import sources

import siloweave as sw
from siloweave.app.plan import around, messages_over
from siloweave.core.method import Setup
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.keys import generator

RESULTS = Path(__file__).parent / "results" / "rehearsal.jsonl"
METHODS: dict[str, tuple[Any, int]] = {
    "AIM": (sw.AIM(), 1),
    "FLAIM": (sw.FLAIM(rounds=10), 4),
    "TwoRound": (sw.TwoRound(), 4),
    "SecureTwoRound": (sw.SecureTwoRound(), 2),
}
"""By name, a method and for how many parties it runs."""
TABLES = ("adult", "churn", "heloc")
FEW = (500, 1000)
EPSILON, DELTA, SEED = 1.0, 1e-6, 0
UNITS = ("seconds", "mb", "bytes")
STARTS = 6.0
"""Seconds of a forecast that are for starting and for the report, which a fit does not have."""


def made_up(schema: sw.Schema, rows: int) -> sw.Table:
    """Make rows of a schema of which nothing else is known."""
    encoder = Encoder(schema, 32)
    rng = generator(SEED)
    codes = [rng.integers(0, size, rows, dtype=np.uint32) for size in encoder.domain.sizes]
    return encoder.decode(Codes(encoder.domain, tuple(codes)), key=SEED)


def parts_of(table: sw.Table, split: str, parties: int) -> Any:
    """Divide a table over parties, by rows or by columns."""
    if parties == 1:
        return table
    if split == "columns":
        return sw.split_columns(table, parties)
    return sw.split_rows(table, parties, seed=SEED)


def measured(job: dict[str, Any], data: Path) -> dict[str, float]:
    """Fit a table, or so many made-up rows of its schema, and measure what that takes."""
    synth, parties = METHODS[job["method"]]
    table = sources.read(job["table"], data)
    schema = sw.Schema.detect(table)
    table = table.select([column.name for column in schema.columns if column.modelled])
    schema = schema.select(table.names)
    epsilon = EPSILON
    if job["rows"]:
        epsilon *= table.num_rows / job["rows"]
        table = made_up(schema, job["rows"])
    parts = parts_of(table, synth.method.split, parties)
    budget = sw.Budget(epsilon, DELTA)
    start = time.process_time()
    cost = synth.fit(parts, schema, budget=budget, progress=False).cost
    seconds = time.process_time() - start
    busiest = max(one.bytes_to_party + one.bytes_from_party for one in cost.parties.values())
    # The largest that this program held: `getrusage` would begin with its parent's.
    status = Path("/proc/self/status").read_text()
    peak_mb = float(status.partition("VmHWM:")[2].split()[0]) / 1e3
    return {"seconds": seconds, "mb": peak_mb, "bytes": float(busiest)}


def forecast(job: dict[str, Any], data: Path) -> dict[str, float | None]:
    """Return what `check` would say of the run on the whole table."""
    synth, parties = METHODS[job["method"]]
    table = sources.read(job["table"], data)
    schema = sw.Schema.detect(table)
    budget = sw.Budget(EPSILON, DELTA)
    roster = tuple(f"party-{number}" for number in range(parties))
    setup = Setup(synth, schema, budget, roster)
    found = synth.method.forecast(setup, table.num_rows)
    # As `check` prints it: with what is around messages, and with the ledger.
    sent = found.bytes_per_party + around(list(messages_over(setup, found)))
    seconds = (found.seconds or 0.0) - STARTS
    return {
        "seconds": seconds, "mb": found.memory_mb, "bytes": float(sent),
        "rows": float(table.num_rows),
    }  # fmt: skip


def in_process(job: dict[str, Any], data: Path) -> dict[str, float]:
    """Measure a fit in a process of its own."""
    command = [sys.executable, __file__, "--data", str(data), "--job", json.dumps(job)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compared(table: str, method: str, data: Path) -> dict[str, Any]:
    """Measure a run and its two rehearsals, and continue these to the run's rows."""
    job = {"table": table, "method": method}
    foreseen = forecast({**job, "rows": 0}, data)
    run = in_process({**job, "rows": 0}, data)
    few, more = (in_process({**job, "rows": rows}, data) for rows in FEW)
    rehearsed = {}
    for unit in UNITS:
        slope = (more[unit] - few[unit]) / (FEW[1] - FEW[0])
        rows = foreseen["rows"] or 0.0
        rehearsed[unit] = max(more[unit] + slope * (rows - FEW[1]), more[unit])
    took = few["seconds"] + more["seconds"]
    return {
        **job, "run": run, "forecast": foreseen, "rehearsal": rehearsed, "rehearsal_took": took,
    }  # fmt: skip


def show() -> None:
    """Print ratios of both to the run, and how often each is nearer."""
    nearer = dict.fromkeys(UNITS, 0)
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    for line in lines:
        ratios = []
        for unit in UNITS:
            by_forecast = line["forecast"][unit] / line["run"][unit]
            by_rehearsal = line["rehearsal"][unit] / line["run"][unit]
            nearer[unit] += abs(np.log(by_rehearsal)) < abs(np.log(by_forecast))
            ratios.append(f"{unit} {by_forecast:.2f} and {by_rehearsal:.2f}")
        took = f"rehearsals took {line['rehearsal_took']:.0f} s"
        print(f"{line['table']}, {line['method']}: {'; '.join(ratios)}; {took}")
    for unit, times in nearer.items():
        print(f"{unit}: a rehearsal is nearer in {times} of {len(lines)}")


def main() -> None:
    """Make the comparisons that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources.add_data(parser)
    parser.add_argument("--show", action="store_true", help="print what was measured")
    parser.add_argument("--job", help="measure one fit, for the script itself")
    asked = parser.parse_args()
    if asked.job:
        print(json.dumps(measured(json.loads(asked.job), asked.data)))
        return
    if asked.show:
        show()
        return
    made = set()
    if RESULTS.is_file():
        for line in map(json.loads, RESULTS.read_text().splitlines()):
            made.add((line["table"], line["method"]))
    for table in TABLES:
        for method in METHODS:
            if (table, method) not in made:
                row = compared(table, method, asked.data)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    show()


if __name__ == "__main__":
    main()
