"""Time AIM's fit beside another checkout, and its last estimate beside mbi's.

    python benchmarks/aim_speed.py fits --table adult --repeats 3
    python benchmarks/aim_speed.py fits --before ../other/src --threads 1 2
    python benchmarks/aim_speed.py estimates --table adult

`fits`: all pairs of a table's columns (`degree=2`), epsilon 1, delta 1 / rows, all rows, seeded
noise, then as many rows drawn. Each run is a process of its own, sides and numbers of threads take
turns, and the digest of the model says whether they found the same one. Memory is the process's
peak: Python, the libraries and the table are in it.

`estimates`: the noisy marginals of one such run are fitted once here and once by mirror descent of
mbi 2.0.0, the package of AIM's authors, at its default of 1,000 steps or as `--steps` says. Each
gets a process; mbi computes in 64 bits, as here. The loss is mbi's own: half the squared residual
over the variance of the noise, summed over all cells.

Kinds of columns are those of `datasets.json`; bounds and categories are read off the table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

TABLES = ("adult", "census_income_kdd", "covertype")
OUT = Path(__file__).parent / "results" / "aim_speed.jsonl"
MBI = "2.0.0"


def peak_mb() -> float:
    """Return the largest memory that this process held, in MB."""
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6  # Linux counts KiB


def table_of(name: str, data: Path) -> Any:
    """Return a table without its identifiers, and its schema."""
    import sources
    from tables import column_of

    import siloweave as sw

    facts = sources.facts(name)
    table = sources.read(name, data)
    table = table.select([n for n in table.names if n not in facts["identifiers"]])
    numeric = set(facts["continuous"])
    columns = [column_of(table, column, column in numeric) for column in table.names]
    schema = sw.Schema(tuple(columns))
    if hasattr(schema, "with_fallbacks"):  # another checkout may be from before
        schema = schema.with_fallbacks()
    return table, schema


def run_fit(name: str, data: Path, measured: Path | None) -> dict[str, Any]:
    """Fit and draw in this process; store the measurements where they are asked for."""
    import siloweave as sw
    from siloweave.methods.aim import coordinator as imported

    coordinator: Any = imported  # whose fit is listened to
    table, schema = table_of(name, data)
    last: list[Any] = []
    fit = coordinator.fit

    def noted(domain: Any, measurements: Any, **rest: Any) -> Any:
        last[:] = [domain, list(measurements)]
        return fit(domain, measurements, **rest)

    coordinator.fit = noted
    start_mb = peak_mb()
    start, cpu = time.perf_counter(), time.process_time()
    budget = sw.Budget(1.0, 1 / table.num_rows)
    fitted = sw.AIM(degree=2).fit(
        table, schema, budget=budget, seed=0, noise="seeded", progress=False
    )
    fit_seconds, fit_cpu = time.perf_counter() - start, time.process_time() - cpu
    fit_mb = peak_mb()
    if measured is not None:
        store(measured, *last)

    start, cpu = time.perf_counter(), time.process_time()
    rows = fitted.sample(seed=1)
    draw_seconds, draw_cpu = time.perf_counter() - start, time.process_time() - cpu
    model = fitted.model.mrf
    digest = hashlib.sha256()
    for clique, potential in model.potentials.items():
        digest.update(repr(clique).encode() + potential.tobytes())
    return {
        "rows": len(rows), "columns": len(table.names), "cells": model.tree.cells,
        "fit_seconds": fit_seconds, "fit_cpu": fit_cpu, "draw_seconds": draw_seconds,
        "draw_cpu": draw_cpu, "start_mb": start_mb, "fit_mb": fit_mb, "peak_mb": peak_mb(),
        "digest": digest.hexdigest()[:16],
    }  # fmt: skip


def store(path: Path, domain: Any, measurements: list[Any]) -> None:
    """Write noisy marginals, averaged where a clique was measured twice, as both sides fit them."""
    from siloweave.models.estimate import combine, estimate_total

    combined = combine(measurements)
    facts = {
        "names": domain.names,
        "sizes": domain.sizes,
        "cliques": [m.clique for m in combined],
        "sigmas": [m.sigma for m in combined],
        "total": estimate_total(combined),
    }
    counts = {str(i): np.ascontiguousarray(m.counts) for i, m in enumerate(combined)}
    save_file(counts, path, metadata={"facts": json.dumps(facts)})


def loaded(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Read what `store` wrote."""
    with safe_open(path, framework="numpy") as file:
        facts = json.loads(file.metadata()["facts"])
        return facts, [file.get_tensor(str(i)) for i in range(len(facts["cliques"]))]


def run_estimate(side: str, path: Path, steps: int) -> dict[str, Any]:
    """Estimate a model from stored marginals in this process, and compute its loss."""
    facts, counts = loaded(path)
    cliques = [tuple(clique) for clique in facts["cliques"]]
    start, cpu = time.perf_counter(), time.process_time()
    if side == "siloweave":
        from siloweave.models.estimate import Measurement, fit
        from siloweave.tables.codes import Domain

        domain = Domain(tuple(facts["names"]), tuple(facts["sizes"]))
        each = zip(cliques, counts, facts["sigmas"], strict=True)
        measurements = [Measurement(*parts) for parts in each]
        # AIM's own setting: the last fit, started from nothing.
        model = fit(domain, measurements, total=facts["total"], sweeps=60)
        answers = [model.marginal(clique) for clique in cliques]
    else:
        import mbi

        mbi_domain = mbi.Domain(facts["names"], facts["sizes"])
        flat = [np.asarray(table).reshape(-1) for table in counts]
        released = zip(flat, cliques, facts["sigmas"], strict=True)
        noisy = [mbi.LinearMeasurement(y, c, stddev=s) for y, c, s in released]
        descent = mbi.estimation.MirrorDescent()
        estimated = descent.estimate(mbi_domain, noisy, known_total=facts["total"], iters=steps)
        answers = [
            np.asarray(estimated.project(clique).datavector()).reshape(y.shape)
            for clique, y in zip(cliques, counts, strict=True)
        ]
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    loss = sum(
        0.5 * float(((answer - y) ** 2).sum()) / sigma**2
        for answer, y, sigma in zip(answers, counts, facts["sigmas"], strict=True)
    )
    return {"seconds": seconds, "cpu": used, "peak_mb": peak_mb(), "loss": loss}


def child(arguments: list[str], settings: dict[str, str]) -> dict[str, Any]:
    """Run one part in a process of its own, and return what it found."""
    load = os.getloadavg()[0]
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {**found, "load": load}


def written(line: dict[str, Any], out: Path) -> None:
    """Append a line to the results, and show it."""
    with out.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def threads_of(count: int | None) -> dict[str, str]:
    """Return the settings of a process with so many threads; none where it may use all cores."""
    if count is None:
        return {}
    return {"OPENBLAS_NUM_THREADS": str(count), "OMP_NUM_THREADS": str(count)}


def fits(arguments: argparse.Namespace) -> None:
    """Run every table with each side and number of threads, in turns."""
    here = str(Path(__file__).resolve().parents[1] / "src")
    sides = {"before": arguments.before, "now": here} if arguments.before else {"now": here}
    for name in arguments.table:
        for _ in range(arguments.repeats):
            for side, source in sides.items():
                for count in arguments.threads:
                    settings = {**threads_of(count), "PYTHONPATH": str(source)}
                    command = ["fit", "--table", name, "--data", str(arguments.data)]
                    line = {"part": "fits", "table": name, "side": side, "threads": count}
                    written(line | child(command, settings), arguments.out)


def estimates(arguments: argparse.Namespace) -> None:
    """Estimate the model of one run's marginals here and with mbi, in turns."""
    if version("mbi") != MBI:
        raise SystemExit(f"mbi is {version('mbi')}; install mbi=={MBI}, with which this compares")
    wide = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    source = {"PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src")}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.table:
            path = Path(folder) / f"{name}.safetensors"
            ours = ["fit", "--table", name, "--data", str(arguments.data), "--measured", str(path)]
            child(ours, source)
            for _ in range(arguments.repeats):
                for side, settings in (("siloweave", {}), (f"mbi {MBI}", wide)):
                    steps = arguments.steps if side != "siloweave" else None
                    command = ["estimate", "--side", side, "--measured", str(path)]
                    found = child([*command, "--steps", str(arguments.steps)], settings | source)
                    line = {"part": "estimates", "table": name, "side": side, "steps": steps}
                    written(line | found, arguments.out)


def main() -> None:
    """Read the command line and run a part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("fits", "estimates", "fit", "estimate"))
    import sources  # not above: a child that is timed imports the package itself

    sources.add_data(parser)
    parser.add_argument("--table", nargs="+", default=list(TABLES))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, nargs="+", default=[None], help="all cores if left")
    parser.add_argument("--before", type=Path, help="src of another checkout, to run in turns")
    parser.add_argument("--steps", type=int, default=1000, help="of mbi's mirror descent")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--measured", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part in ("fits", "estimates"):
        arguments.table = sources.present(arguments.table, arguments.data)
    if arguments.part == "fits":
        fits(arguments)
    elif arguments.part == "estimates":
        estimates(arguments)
    elif arguments.part == "fit":
        print(json.dumps(run_fit(arguments.table[0], arguments.data, arguments.measured)))
    else:
        print(json.dumps(run_estimate(arguments.side, arguments.measured, arguments.steps)))


if __name__ == "__main__":
    main()
