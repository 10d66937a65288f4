"""AIM here and AIM of mbi's authors, turn about in one run: seconds, memory, error.

The reference is mechanisms/aim.py of mbi (https://github.com/ryan112358/mbi, once private-pgm). It
runs in an environment of its own; nothing of it is imported here. Both sides get that repository's
own table and domain (data/adult.csv, 14 columns), the same workload (every pair of columns with up
to 10,000 cells), epsilon = 1, delta = 1e-5 and 80 MB for the model; the error is the reference's:
mean over the workload of half the L1 distance between shares, on synthetic rows.

    git clone https://github.com/ryan112358/mbi && git -C mbi checkout 361705d
    python3.11 -m venv peer && peer/bin/pip install mbi==2.0.0 "pandas<3" matplotlib
    python benchmarks/reference_aim.py --reference mbi --python peer/bin/python --limit 1500

Where the environment has no mbi, the checkout's own src/mbi is used (commit 4d2b3c5, as before):

    git clone https://github.com/ryan112358/private-pgm && git -C private-pgm checkout 4d2b3c5
    python3.11 -m venv peer && peer/bin/pip install "jax==0.6.2" "jaxlib==0.6.2" "pandas<3" \
        "chex<0.1.91" optax attrs scipy networkx matplotlib
    python benchmarks/reference_aim.py --reference private-pgm --python peer/bin/python

Runs go into the JSON file as they end, so a run that is stopped loses only the one in progress. A
reference that takes longer than `--limit` is ended, and is recorded with what it took until then.
mbi compiles every candidate of every round; `--without-compiling` computes the same tables without.
`--from-scratch` forgets the runs of an earlier call.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import sources

EPSILON, DELTA, MODEL_MB, MOST_CELLS = 1.0, 1e-5, 80.0, 10_000
HERE = Path(__file__).parent
RESULTS = HERE / "results" / "reference_aim.json"


class LimitReachedError(Exception):
    """A command was ended at its limit; `used` is what it took until then."""

    def __init__(self, used: dict[str, float]) -> None:
        super().__init__(f"stopped after {used['seconds']:.0f} s")
        self.used = used


def measured(command: list[str], log: Path, limit: float, **more: Any) -> dict[str, float]:
    """Run a command; wall and processor seconds, and the peak memory of the whole process."""
    before = os.getloadavg()[0]
    start = time.perf_counter()
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **more)
        status, usage, was_stopped = _wait(child.pid, start + limit)
        # The child is collected by wait4, for its usage, and Popen must not wait for it again.
        child.returncode = code = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    used = {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss * 1024 / 1e6,
        "load_before": before,
        "load_after": os.getloadavg()[0],
    }
    if was_stopped:
        raise LimitReachedError(used)
    if code:
        tail = log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{command[0]} ended with {code} after {seconds:.0f} s:\n{tail}")
    return used


def _wait(pid: int, deadline: float) -> tuple[int, Any, bool]:
    """Return a child's status and usage, and whether it was ended at the deadline."""
    was_stopped = False
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage, was_stopped
        if time.perf_counter() > deadline:
            os.kill(pid, 9)
            was_stopped = True
        time.sleep(0.05)


def table_of(data: Path, domain):
    """Coded rows, as the reference's files have them."""
    import polars as pl

    from siloweave.tables import Codes

    frame = pl.read_csv(data)
    return Codes(domain, tuple(frame[n].cast(pl.Int64).to_numpy() for n in domain.names))


def domain_of(folder: Path):
    from siloweave.tables import Domain

    sizes = json.loads((folder / "adult-domain.json").read_text())
    return Domain(tuple(sizes), tuple(sizes.values()))


def workload_of(domain) -> list[tuple[str, ...]]:
    return [pair for pair in combinations(domain.names, 2) if domain.size(pair) <= MOST_CELLS]


def error(real, synthetic, workload) -> float:
    """The reference's "Average Error"."""
    from siloweave.statistics.marginals import marginal

    gaps = [
        abs(marginal(real, q) / real.num_rows - marginal(synthetic, q) / synthetic.num_rows).sum()
        for q in workload
    ]
    return 0.5 * mean(gaps)


def ours(folder: Path) -> None:
    """Fit, sample and score in this process; the last line is the result."""
    start = time.perf_counter()
    sys.path.insert(0, str(HERE.parent))
    from tests.federation.sites import Sites

    from siloweave.federation.session import Session
    from siloweave.federation.site import MemoryStore, Site, Terms
    from siloweave.methods.aim.coordinator import aim
    from siloweave.methods.aim.method import AIM
    from siloweave.methods.aim.party import HANDLERS
    from siloweave.privacy.budget import Budget, rho_for
    from siloweave.privacy.ledger import Ledger
    from siloweave.privacy.mechanisms import OSEntropy
    from siloweave.protocols.workloads import StudyWorkload
    from siloweave.statistics.marginals import marginal

    domain = domain_of(folder)
    real, workload = table_of(folder / "adult.csv", domain), workload_of(domain)
    budget = Budget(EPSILON, DELTA)
    ledger = Ledger("curator", limit=budget)
    settings = AIM(max_model_mb=MODEL_MB)
    facts = {"workload": StudyWorkload(tuple(workload), MODEL_MB)}
    terms = Terms({"curator": ledger.key}, facts=facts)
    site = Site(
        "curator", real, ledger=ledger, entropy=OSEntropy(), store=MemoryStore(), terms=terms,
    )  # fmt: skip
    parties = Session(["curator"], Sites({"curator": site}, HANDLERS), run="benchmark")
    ready = time.perf_counter()
    model, rounds = aim(parties, domain, workload, rho_for(budget), settings)
    fitted = time.perf_counter()
    synthetic = model.sample(key=0)
    sampled = time.perf_counter()
    shares = [
        0.5 * abs(marginal(real, q) / real.num_rows - model.marginal(q) / model.total).sum()
        for q in workload
    ]
    result = {
        "error": float(error(real, synthetic, workload)),
        "error_of_model": float(mean(shares)),
        "rounds": len(rounds) - 1,
        "rho": rho_for(budget),
        "epsilon": ledger.epsilon(),
        "rows": synthetic.num_rows,
        "model_mb": model.tree.cells * 8 / 1e6,
        "phases": {"start": ready - start, "fit": fitted - ready, "sample": sampled - fitted},
    }
    print(json.dumps(result))


def run_ours(folder: Path, limit: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        command = [sys.executable, __file__, "--one", str(folder)]
        used = measured(command, log, limit)
        return {**used, **json.loads(log.read_text().strip().splitlines()[-1])}


def script_command(checkout: Path, python: str, saved: Path) -> list[str]:
    """Return the call of a checkout's own script, which its own src/mbi serves."""
    folder = checkout / "data"
    command = [python, "-u", "aim.py", "--dataset", str(folder / "adult.csv")]
    command += ["--domain", str(folder / "adult-domain.json"), "--save", str(saved)]
    command += ["--epsilon", str(EPSILON), "--delta", str(DELTA), "--degree", "2"]
    return [*command, "--max_model_size", str(MODEL_MB), "--max_cells", str(MOST_CELLS)]


def release_command(
    checkout: Path, python: str, saved: Path, seed: int, compiles: bool
) -> list[str]:
    """Return the call of a checkout's mechanism, which the installed mbi serves."""
    folder = checkout / "data"
    job = {
        "checkout": str(checkout), "table": str(folder / "adult.csv"),
        "domain": str(folder / "adult-domain.json"), "epsilon": EPSILON, "delta": DELTA,
        "max_model_size": MODEL_MB, "max_cells": MOST_CELLS, "compile_candidates": compiles,
        "seed": seed, "save": str(saved),
    }  # fmt: skip
    return [python, "-u", str(HERE / "peers" / "mbi_aim.py"), json.dumps(job)]


def run_reference(
    checkout: Path, python: str, limit: float, known: dict[str, str], seed: int, compiles: bool
) -> dict[str, object]:
    """Run the reference, and score its rows; what it took until then where it was stopped."""
    about = {"versions": known, "compiles_candidates": compiles}
    folder = checkout / "data"
    with tempfile.TemporaryDirectory() as scratch:
        log, saved = Path(scratch) / "log", Path(scratch) / "synthetic.csv"
        command, paths = script_command(checkout, python, saved), dict(os.environ)
        if "mbi" in known:
            command = release_command(checkout, python, saved, seed, compiles)
        else:
            paths["PYTHONPATH"] = str(checkout / "src")
        try:
            used = measured(command, log, limit, cwd=checkout / "mechanisms", env=paths)
        except LimitReachedError as reached:
            text = log.read_text(errors="replace")
            return {**reached.used, "stopped": True, **about, **progress(text)}
        text = log.read_text(errors="replace")
        domain = domain_of(folder)
        real, synthetic = (table_of(p, domain) for p in (folder / "adult.csv", saved))
        return {
            **used, **about, **progress(text),
            "error": float(error(real, synthetic, workload_of(domain))),
            "rows": synthetic.num_rows,
        }  # fmt: skip


def progress(text: str) -> dict[str, float]:
    """Return the rounds that the script reports, its budget, and how much of it is spent."""
    spent = re.findall(r"Budget Used (\S+) / (\S+)", text)
    found: dict[str, float] = {"rounds": text.count("Measuring Clique")}
    if spent:
        found |= {"rho_spent": float(spent[-1][0]), "rho": float(spent[-1][1])}
    return found


def versions(checkout: Path, python: str) -> dict[str, str]:
    """Return the commit of the checkout, and the releases of its environment."""
    ask = (
        "import json, sys, importlib.metadata as m;"
        "there = {d.metadata['Name'].lower(): d.version for d in m.distributions()};"
        "names = ('mbi', 'jax', 'jaxlib', 'numpy', 'optax');"
        "known = {n: there[n] for n in names if n in there};"
        "print(json.dumps(known | {'python': sys.version.split()[0]}))"
    )
    known = json.loads(subprocess.check_output([python, "-c", ask], text=True))
    head = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {"commit": head.stdout.strip() or "unknown", **known}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=Path, help="a checkout of mbi")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the reference")
    parser.add_argument("--repeats", type=int, default=3, help="runs of ours")
    parser.add_argument("--reference-repeats", type=int, default=1)
    parser.add_argument(
        "--without-compiling", action="store_true",
        help="mbi compiles every candidate of every round: compute their tables without",
    )  # fmt: skip
    parser.add_argument("--limit", type=float, default=4 * 3600.0, help="seconds for a run")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--from-scratch", action="store_true")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        ours(arguments.one)
        return
    if arguments.reference is None:
        parser.error("--reference PATH is needed")
    sources.require_path(arguments.reference, "a checkout of mbi")
    sources.require_path(Path(arguments.python), "the reference's interpreter")
    checkout, python = arguments.reference.resolve(), str(Path(arguments.python).absolute())
    record: dict[str, Any] = {"ours": [], "reference": []}
    if arguments.output.exists() and not arguments.from_scratch:
        record = json.loads(arguments.output.read_text())
    record["machine"] = {"cores": os.cpu_count(), "system": platform.system()}
    known = versions(checkout, python)
    for side in turns(arguments.repeats, arguments.reference_repeats):
        if side == "ours":
            run = run_ours(checkout / "data", arguments.limit)
        else:
            seed = len(record["reference"])
            compiles = not arguments.without_compiling
            run = run_reference(checkout, python, arguments.limit, known, seed, compiles)
        record[side].append(run)
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
        end = "stopped" if run.get("stopped") else f"error {run['error']:.4f}"
        print(f"{side}: {run['seconds']:.1f} s, {run['peak_mb']:.0f} MB, {end}", flush=True)
    summary(record)


def turns(ours_runs: int, reference_runs: int) -> list[str]:
    """Ours spread evenly before, between and after the reference's runs."""
    gaps = reference_runs + 1
    share = [ours_runs // gaps + (i < ours_runs % gaps) for i in range(gaps)]
    order = []
    for i, count in enumerate(share):
        order += ["ours"] * count + ["reference"] * (i < reference_runs)
    return order


def summary(record: dict[str, list[dict[str, float]]]) -> None:
    for side in ("ours", "reference"):
        for name in ("seconds", "cpu_seconds", "peak_mb", "error"):
            values = [run[name] for run in record[side] if name in run]
            if values:
                spread = f"{min(values):.4g} to {max(values):.4g}"
                print(f"{side:10}{name:12} mean {mean(values):.4g}  ({spread}, {len(values)} runs)")
    if record["ours"] and record["reference"]:
        for name in ("seconds", "cpu_seconds", "peak_mb"):
            theirs, mine = (mean(r[name] for r in record[s]) for s in ("reference", "ours"))
            print(f"reference / ours, {name}: {theirs / mine:.1f}")


if __name__ == "__main__":
    main()
