"""Seconds from the call of `fit` on Adult to its first word and its first step; kept by neural.py.

    python benchmarks/neural.py start
    python benchmarks/neural_start.py MODEL

Every measurement has a process of its own with no compiled program kept from before. Seconds count
from the call, so imports of JAX are among them; the table is read before.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import defaultdict
from statistics import median
from typing import Any

MODELS = (
    *("ctgan", "copula_gan", "ads_gan", "ctab_gan", "tabddpm", "latent_diff", "tldm", "e2e"),
    *("point_diff", "dp_ctgan", "dp_tabddpm", "dp_tldm"),
)
ASKED = 10.0


class FirstStep(BaseException):
    """The first step has begun; not an `Exception`, which a party would answer with a refusal."""


def measure(model: str) -> dict[str, Any]:
    """Fit until the first step."""
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    import siloweave as sw
    from siloweave.datasets import adult, adult_schema
    from siloweave.methods.registry import METHODS

    table, schema, told = adult(), adult_schema(), [0.0]
    budget = sw.Budget(3.0, 1e-5) if model.startswith("dp_") else None
    load, start = os.getloadavg()[0], time.perf_counter()

    def progress(text: str, done: float) -> None:
        told.append(time.perf_counter() - start)
        if "step " in text:
            raise FirstStep

    with contextlib.suppress(FirstStep):
        METHODS[model]().fit(table, schema, progress=progress, budget=budget)
    return {
        "model": model, "first_word": told[1], "first_step": told[-1],
        "load": [load, os.getloadavg()[0]], "threads": os.environ.get("OMP_NUM_THREADS", "all"),
    }  # fmt: skip


def page(rows: list[dict[str, Any]]) -> str:
    """The part of the results page."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        runs[row["model"], row["commit"]].append(row)
    body = ""
    for (model, commit), found in runs.items():
        steps = sorted(row["first_step"] for row in found)
        word = median(row["first_word"] for row in found)
        loads = [load for row in found for load in row["load"]]
        body += f"| {model} | {median(steps):.1f} ({steps[0]:.1f}–{steps[-1]:.1f}) | {word:.1f} | "
        body += f"{len(found)} | {min(loads):.1f} to {max(loads):.1f} | {commit} |\n"
    return (
        "\n### The first step\n\nSeconds from the call of `fit` on Adult with a model's defaults, "
        f"in a process of its own with nothing kept\nfrom before; the goal is a first step within "
        f"{ASKED:g} s. Median (least to most). The later commit is not faster:\nits machine is, "
        "about 2.7 times for the CTGAN package too (526 and 197 s for one fit).\n\n"
        "| model | first step | first word | turns | load | commit |\n"
        "| --- | --- | --- | --- | --- | --- |\n" + body
    )


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
