"""One run of the neural benchmark: read, fit, sample, score; started by neural.py.

    python benchmarks/neural_run.py JOB LINE

JOB is JSON text, LINE the file that the result is written to.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from flaim_adult import commit
from neural_tables import arguments, prepare

import siloweave as sw
from siloweave.algorithms.generators import GENERATORS


def steps(settings: Any, rows: int) -> int:
    """Steps that settings amount to: their own and those of the settings within."""
    if not isinstance(settings, dict):
        return 0
    own = settings.get("steps") or 0
    if "epochs" in settings:
        own = settings["epochs"] * max(rows // settings["batch"], 1)
    return own + sum(steps(part, rows) for part in settings.values())


def spent() -> tuple[float, float]:
    """Wall and processor seconds, to be taken away from later ones."""
    return time.perf_counter(), time.process_time()


def peak_mb() -> float:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def scored(real, synthetic, table, seed: int, max_rows: int) -> dict[str, dict[str, Any]]:
    """Every score with its ceiling, floor and interval."""
    found = sw.score(
        real, synthetic, holdout=table.holdout, target=table.target, schema=table.schema,
        seed=seed, max_rows=max_rows,
    )  # fmt: skip
    names = ("value", "ceiling", "floor", "interval")
    return {part.name: {name: getattr(part, name) for name in names} for part in found.parts}


def fit_and_score(job: dict[str, Any]) -> dict[str, Any]:
    """The line of one run."""
    table = prepare(job["table"], Path(job["data"]), job["rows_asked"])
    kind = GENERATORS[job["model"]]
    given = arguments(job["model"], job["table"], job["settings"])
    if kind.takes_target and table.classes:
        given.setdefault("target", table.target)
    load = os.getloadavg()[0]
    wall, own = spent()
    fitted = kind(**given).fit(table.train, table.schema, seed=job["seed"])
    fit_wall, fit_own = (now - then for now, then in zip(spent(), (wall, own), strict=True))
    wall, own = spent()
    synthetic = fitted.sample_table(table.train.num_rows, seed=job["seed"])
    sample_wall, sample_own = (now - then for now, then in zip(spent(), (wall, own), strict=True))
    peak = peak_mb()
    wall, _ = spent()
    scores = scored(table.train, synthetic, table, job["seed"], job["max_rows"])
    return {
        **{name: job[name] for name in ("table", "model", "seed", "label", "rows_asked")},
        "rows": table.train.num_rows, "holdout": table.holdout.num_rows, "share": table.share,
        "columns": len(table.schema.names), "given": given, "settings": dict(fitted.settings),
        "steps": steps(fitted.settings, table.train.num_rows), "fit_seconds": fit_wall,
        "fit_cpu": fit_own, "sample_seconds": sample_wall, "sample_cpu": sample_own,
        "peak_mb": peak, "score_seconds": time.perf_counter() - wall,
        "max_rows": job["max_rows"], "scores": scores, "load": [load, os.getloadavg()[0]],
        "commit": commit(), "machine": f"{os.cpu_count()} cores",
    }  # fmt: skip


if __name__ == "__main__":
    line = fit_and_score(json.loads(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(line))
