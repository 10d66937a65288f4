"""Generators by TabSyn's protocol on eight tables, ours and peers, beside floor and ceiling.

    python benchmarks/tabular.py --list
    python benchmarks/tabular.py --table churn --method tabddpm --seed 0
    python benchmarks/tabular.py --table churn --method TabularARGN --peer-python peer/bin/python
    python benchmarks/tabular.py --method tabddpm --settings '{"steps": 60000}' --label longer
    python benchmarks/tabular.py --method silofuse fed_point_diff "point_diff at each party"
    python benchmarks/tabular.py --method aim two_round --epsilon 1
    python benchmarks/tabular.py --method "AIM of mbi" --epsilon 1 --peer-python aim/bin/python \\
        --checkout mbi --limit-seconds 900
    python benchmarks/results_page.py

Nine tenths of the rows are learnt from (Adult: its own split), and as many rows are drawn and
judged against them. Columns are split over four parties, and rows over five, each with rows that
are alike. Every run has a process of its own and is one line of the results; runs that are there
are not repeated. How rows are split and judged is in tabular_run.py. The peers run in an
environment of their own, and nothing of them is imported here:

    python -m venv peer
    peer/bin/pip install mostlyai-engine==2.7.3 arfpy==0.1.1 nrgboost==0.0.3 utrees==0.3.0 \\
        ForestDiffusion==1.0.6 pyarrow "numpy<2.3" "pandas<3" "scikit-learn<1.7"

Peers with a guarantee have another one, and a checkout of their mechanism: see peers/mbi_aim.py.
(arfpy and utrees use what later numpy, pandas and scikit-learn lack. Where PyTorch is the build for
processors, torchvision and torchaudio of other builds must be removed again.)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import sources
from tabular_run import BOUNDS, TABLES

HERE = Path(__file__).parent
OUT = HERE / "results" / "tabular.jsonl"
SEEDS = (0, 1, 2)
OURS = ("tabddpm", "point_diff", "gaussian_copula")
PEERS = ("TabularARGN", "ARF", "NRGBoost", "UnmaskingTrees", "ForestFlow")
PRIVATE_PEERS = ("AIM of mbi",)
KEY = ("table", "method", "label", "seed", "rows_asked")
"""What distinguishes one run from another."""
Job = dict[str, Any]


def lines(path: Path) -> list[dict[str, Any]]:
    """Return what a file of results holds."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what distinguishes one run from another."""
    return tuple(row[name] for name in KEY)


def failed(out: Path) -> Path:
    """Return the file of runs that ended without a line, beside the file of results."""
    return out.with_name(f"{out.stem}_failed{out.suffix}")


def append(file: Path, row: dict[str, Any]) -> None:
    """Add a line to a file of results."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(json.dumps(row) + "\n")


def label_of(asked: argparse.Namespace) -> str:
    """Return the name of runs with other settings, or with a budget."""
    if asked.label or asked.epsilon is None:
        return str(asked.label)
    return f"ε = {asked.epsilon:g}"


def jobs(asked: argparse.Namespace) -> list[Job]:
    """Return every run that was asked for, the bounds of a table before its methods."""
    return [
        {
            "table": table, "method": method, "label": label_of(asked), "seed": seed,
            "rows_asked": asked.rows, "settings": json.loads(asked.settings),
            "epsilon": asked.epsilon,
            "peer": method in (*PEERS, *PRIVATE_PEERS),
            "peer_python": str(asked.peer_python or ""), "checkout": str(asked.checkout or ""),
            "limit_seconds": asked.limit_seconds, "threads": asked.threads,
            "data": str(asked.data),
        }
        for seed in asked.seed
        for table in asked.table
        for method in asked.method
    ]  # fmt: skip


def run(job: Job, out: Path) -> None:
    """Run in a process of its own, and store the line; beside them, why there is none."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "line.json"
        command = [sys.executable, str(HERE / "tabular_run.py"), json.dumps(job), str(file)]
        done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
        name = f"{job['table']}, {job['method']} {job['label']}, seed {job['seed']}"
        if done.returncode or not file.is_file():
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:300]
            seconds = time.monotonic() - start
            print(f"{name}: failed after {seconds:.0f} s: {reason}", flush=True)
            failure = {part: job[part] for part in KEY} | {"reason": reason, "seconds": seconds}
            append(failed(out), failure)
            return
        row = json.loads(file.read_text())
    append(out, row)
    scores = ", ".join(f"{measure} {value:.3g}" for measure, value in row["scores"].items())
    print(f"{name}: {scores}; fit {row.get('fit_seconds', 0):.0f} s", flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [*BOUNDS, *OURS, *PEERS]  # those that --method has by default
    parse.add_argument("--table", nargs="*", choices=TABLES, default=list(TABLES))
    parse.add_argument(
        "--method", nargs="*", default=every, help=", ".join([*every, *PRIVATE_PEERS])
    )
    parse.add_argument("--seed", nargs="*", type=int, default=list(SEEDS))
    parse.add_argument("--settings", default="{}", help="JSON: arguments of the method's class")
    parse.add_argument("--label", default="", help="name of runs with other settings")
    parse.add_argument("--epsilon", type=float, help="of methods with a guarantee")
    parse.add_argument("--rows", type=int, help="rows used at most, for trials")
    parse.add_argument("--peer-python", type=Path, help="an interpreter that has the peers")
    parse.add_argument("--checkout", type=Path, help="of the mechanism of a peer with a guarantee")
    parse.add_argument("--limit-seconds", type=float, help="of a peer's fit and drawing")
    parse.add_argument("--threads", type=int, default=2, help="of a peer")
    parse.add_argument("--list", action="store_true", help="what is missing")
    parse.add_argument("--out", type=Path, default=OUT)
    sources.add_data(parse)
    return parse


def main() -> None:
    """Run what is missing, or list it."""
    asked = parser().parse_args()
    private = [method for method in asked.method if method in PRIVATE_PEERS]
    if private and (asked.epsilon is None or asked.checkout is None):
        raise SystemExit(f"{private[0]} takes --epsilon and --checkout")
    done = {key(row) for row in lines(asked.out)}
    missing = [job for job in jobs(asked) if key(job) not in done]
    if asked.list:
        for job in missing:
            print(f"missing: {job['table']} {job['method']} {job['label']} seed {job['seed']}")
        print(f"{len(missing)} runs are missing from {asked.out.name}")
        return
    if not missing:
        print(f"nothing is missing from {asked.out.name}")
        return
    if asked.peer_python is None and any(job["peer"] for job in missing):
        print("left out: peers, which take --peer-python")
        missing = [job for job in missing if not job["peer"]]
    elif asked.peer_python is not None:
        sources.require_path(asked.peer_python, "the peers' interpreter")
    files = sources.present((TABLES[job["table"]].file for job in missing), asked.data)
    for job in missing:
        if TABLES[job["table"]].file in files:
            run(job, asked.out)


if __name__ == "__main__":
    main()
