"""Scores and attacks here and in the reference tools, on the same tables, turn about in one run.

The references are SDMetrics (column shapes, column pair trends) and anonymeter (singling out,
linkability, attribute inference). They run in an environment of their own; nothing of them is
imported here. anonymeter draws without a seed, so it is run several times.

    python3.11 -m venv peer && peer/bin/pip install anonymeter==1.1.0 sdmetrics==0.32.0 pyarrow
    python benchmarks/against_references.py --python peer/bin/python
    python benchmarks/comparison_page.py

Tables: 20,000 rows and 13 columns of the embedded Adult to train on, as many for control, and two
synthetic ones: AIM at epsilon = 1, and one that leaks, half training rows and half fresh rows.
Each call's results are kept as it ends.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import sources

import siloweave as sw
from siloweave.attacks.results import Risks
from siloweave.datasets import adult, adult_schema
from siloweave.tables import Table, write

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "against_references.json"
ROWS, ATTACKS = 20_000, 500
LEFT_OUT = ("fnlwgt", "education-num")


def tables() -> dict[str, dict[str, Table]]:
    """Train, control and synthetic, for each of both generators."""
    whole, schema = adult(), adult_schema()
    names = [n for n in whole.names if n not in LEFT_OUT]
    order = np.random.default_rng(0).permutation(whole.num_rows)
    train, control = (whole.select(names).take(np.sort(order[i : i + ROWS])) for i in (0, ROWS))
    aim = sw.AIM(degree=3, queries=64)
    fitted = aim.fit(train, schema.select(names), budget=sw.Budget(1.0, 1e-6), seed=0)
    rng = np.random.default_rng(1)
    fresh = whole.select(names).take(order[2 * ROWS :])
    half = [train.take(rng.choice(ROWS, ROWS // 2)), fresh]
    columns = {
        n: (
            np.concatenate([t.values(n) for t in half]),
            np.concatenate([t.missing(n) for t in half]),
        )
        for n in names
    }
    leak = Table.from_columns(columns)
    return {
        "AIM": {"train": train, "control": control, "synthetic": fitted.sample_table(ROWS, seed=1)},
        "half copied": {"train": train, "control": control, "synthetic": leak},
    }


def timed(make):
    """A value, wall seconds and processor seconds."""
    wall, own = time.perf_counter(), time.process_time()
    value = make()
    return value, time.perf_counter() - wall, time.process_time() - own


def ours(found: dict[str, Table], seed: int) -> dict[str, object]:
    """What siloweave says, attack by attack, each on its own as the reference does."""
    names = list(found["train"].names)
    risks: dict[str, object] = {}

    def keep(attack: str, parts: dict[str, str], **named) -> None:
        result, wall, own = timed(lambda: attacked(found, attack, seed, **named))
        for name, variant in parts.items():
            part = result.part(attack, variant)
            risks[name] = {
                **{k: getattr(part, k) for k in ("risk", "low", "high")},
                "train": part.train.value,
                "control": part.control.value,
                "tries": part.attacks,
                "seconds": wall,
                "cpu": own,
            }

    variants = ("univariate", "multivariate")
    keep("singling_out", {f"singling_out {v}": v for v in variants})
    sides = (tuple(names[::2]), tuple(names[1::2]))
    keep("linkability", {"linkability": "nearest 1"}, known=sides)
    for secret in names:
        keep("inference", {f"inference {secret}": secret}, secret=secret)
    scores, wall, _ = timed(lambda: sw.score(found["train"], found["synthetic"], seed=seed))
    told = {
        "Column Shapes": "column shapes",
        "Column Pair Trends": "column pair trends",
        "Column Pair Trends (all pairs)": "column pair trends (all pairs)",
    }
    shares = {theirs: scores[name].value / 100 for theirs, name in told.items()}
    return {"risks": risks, "scores": shares, "score_seconds": wall}


def attacked(found: dict[str, Table], attack: str, seed: int, **named) -> Risks:
    """One attack."""
    return sw.attack(
        found["train"],
        found["synthetic"],
        control=found["control"],
        attacks=[attack],
        targets=ATTACKS,
        seed=seed,
        **named,
    )


def theirs(found: dict[str, Table], python: Path) -> dict[str, object]:
    """What the references say."""
    with tempfile.TemporaryDirectory() as folder:
        for name, table in found.items():
            write(table, Path(folder) / f"{name}.parquet")
        script = HERE / "peers" / "quality_and_risk.py"
        command = [str(python), str(script), folder, str(ATTACKS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Run both sides in turn."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--python", type=Path, required=True, help="Of the peers' environment.")
    parse.add_argument("--runs", type=int, default=3)
    args = parse.parse_args()
    sources.require_path(args.python, "the peers' interpreter")
    found: list[dict[str, object]] = []
    for name, given in tables().items():
        for seed in range(args.runs):
            load = os.getloadavg()[0]
            for side, make in (
                ("siloweave", lambda given=given, seed=seed: ours(given, seed)),
                ("reference", lambda given=given: theirs(given, args.python)),
            ):
                row, wall, _ = timed(make)
                found.append({"table": name, "seed": seed, "side": side, "load": load, **row})
                print(f"{name}, run {seed}, {side}: {wall:.0f} s", flush=True)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
                RESULTS.write_text(json.dumps({"peak_mb": peak, "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
