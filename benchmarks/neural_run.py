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
from math import isfinite
from pathlib import Path
from typing import Any

from flaim_adult import commit
from neural_tables import JUDGE, Prepared, kind_of, prepare, taken, told

import siloweave as sw

KEPT = ("table", "model", "seed", "label", "rows_asked", "separation", "delta")


def steps(settings: Any, rows: int) -> int:
    """Steps that settings amount to: their own and those of the settings within."""
    if not isinstance(settings, dict):
        return 0
    if settings.get("joint"):  # one training, with the diffusion's steps
        return steps({**settings["diffusion"], "passes": None}, rows)
    own = settings.get("steps") or 0
    if "passes" in settings:
        own = taken(settings, rows)["steps"]
    if "epochs" in settings:
        own = settings["epochs"] * max(rows // settings["batch"], 1)
    return own + sum(steps(part, rows) for part in settings.values())


def spent() -> tuple[float, float]:
    """Wall and processor seconds, to be taken away from later ones."""
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> tuple[float, float]:
    """Wall and processor seconds since then."""
    now = spent()
    return now[0] - start[0], now[1] - start[1]


def machine() -> str:
    """Cores, threads that a step may use, and the accelerator if there is one."""
    import jax

    device = jax.devices()[0]
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    named = "" if device.platform == "cpu" else f", {device.device_kind}"
    return f"{os.cpu_count()} cores, {threads} threads{named}"


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
    scores = {part.name: {name: getattr(part, name) for name in names} for part in found.parts}
    for name in scores:
        if name.startswith("utility"):
            scores[name]["judge"] = JUDGE
    return scores


def budgeted(job: dict[str, Any], given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The generator, and what its fit is told besides table and seed."""
    if job.get("separation") is None:
        return kind_of(job["model"])(**given), {}
    from siloweave.privacy.budget import budget_of_separation

    budget = budget_of_separation(job["separation"], job["delta"])
    return kind_of(job["model"])(**given), {"budget": budget}


def attacked(table: Prepared, synthetic: sw.Table, seed: int) -> list[dict[str, Any]]:
    """Every attack without shadow models; the holdout is the control."""
    names = ("attack", "variant", "risk", "low", "high")
    found = sw.attack(
        table.train, synthetic, control=table.holdout, schema=table.schema, seed=seed,
        attacks=["singling_out", "linkability", "inference", "membership"],
    )  # fmt: skip
    return [{name: getattr(part, name) for name in names} for part in found.parts]


def fit_and_score(job: dict[str, Any]) -> dict[str, Any]:
    """The line of one run."""
    table = prepare(job["table"], Path(job["data"]), job["rows_asked"], job["inner"])
    given = told(job, table.target if table.classes else None)
    made, named = budgeted(job, given)
    load = os.getloadavg()[0]
    start = spent()
    fitted = made.fit(table.train, table.schema, seed=job["seed"], **named)
    fit_wall, fit_own = since(start)
    start = spent()
    synthetic = fitted.sample_table(table.train.num_rows, seed=job["seed"])
    sample_wall, sample_own = since(start)
    peak, start = peak_mb(), spent()
    scores = scored(table.train, synthetic, table, job["seed"], job["max_rows"])
    raked = getattr(fitted.model, "one_way", None) is not None
    as_drawn = {}
    if raked:  # the same model's rows without raking, which the papers do not have
        raw = fitted.sample_table(table.train.num_rows, seed=job["seed"], raked=False)
        as_drawn = scored(table.train, raw, table, job["seed"], job["max_rows"])
    settings = json.loads(json.dumps(dict(fitted.settings), default=str))
    line = {name: job.get(name) for name in KEPT} | {
        "rows": table.train.num_rows, "holdout": table.holdout.num_rows, "share": table.share,
        "columns": len(table.schema.names),
        "raked": raked,
        "given": given, "settings": settings,
        "steps": steps(settings, table.train.num_rows), "fit_seconds": fit_wall,
        "fit_cpu": fit_own, "sample_seconds": sample_wall, "sample_cpu": sample_own,
        "peak_mb": peak, "score_seconds": since(start)[0],
        "max_rows": job["max_rows"], "scores": scores, "as_drawn": as_drawn,
        "load": [load, os.getloadavg()[0]],
        "commit": commit(), "machine": machine(),
    }  # fmt: skip
    if job.get("separation") is not None:
        line["epsilon"] = fitted.epsilon if isfinite(fitted.epsilon) else None
        line["risks"] = attacked(table, synthetic, job["seed"])
    return line


if __name__ == "__main__":
    line = fit_and_score(json.loads(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(line))
