"""Neural generators on the tables of the papers: quality, privacy and speed, one run at a time.

    python benchmarks/neural.py quality --list
    python benchmarks/neural.py quality --table abalone --model tabddpm --seed 0
    python benchmarks/neural.py quality --limit-minutes 60
    python benchmarks/results_page.py

Every run has a process of its own and is kept as it ends, so a benchmark that was stopped goes on
where it was. Tables, models and settings are in neural_tables.py. Settings are chosen with --inner
alone, which never reads a benchmark's holdout.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import sources
from neural_tables import (
    DELTA,
    PRIVATE,
    PRIVATE_TABLES,
    SEPARATIONS,
    SHORT,
    TABLES,
    kind_of,
    models,
    settled,
)

Row = dict[str, Any]
HERE = Path(__file__).parent
RESULTS = HERE / "results"
TIMES = ("fit_seconds", "fit_cpu", "sample_seconds", "sample_cpu", "score_seconds")


def lines(path: Path) -> list[dict[str, Any]]:
    """What a file of results holds."""
    return [json.loads(x) for x in path.read_text().splitlines()] if path.is_file() else []


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What tells one run from another."""
    names = ("table", "model", "seed", "label", "separation", "rows_asked")
    return tuple(row.get(name) for name in names)


def run(job: dict[str, Any], out: Path) -> dict[str, Any] | None:
    """One run in a process of its own; keeps its line, or says what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "line.json"
        told = [sys.executable, str(HERE / "neural_run.py"), json.dumps(job), str(file)]
        done = subprocess.run(told, check=False)
        if done.returncode or not file.is_file():
            print(f"{job['table']} {job['model']} seed {job['seed']}: failed", flush=True)
            return None
        row = json.loads(file.read_text())
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as kept:
        kept.write(json.dumps({n: v for n, v in row.items() if not (job["busy"] and n in TIMES)}))
        kept.write("\n")
    return row


def told(row: dict[str, Any]) -> str:
    """A line for the reader who waits."""
    shown = ("resemblance (SiloFuse)", "resemblance (DP-TLDM)", "propensity", "utility")
    found = ", ".join(
        f"{name} {row['scores'][name]['value']:.1f} (ceiling {row['scores'][name]['ceiling']:.1f})"
        for name in shown
        if name in row["scores"]
    )
    return (
        f"{row['table']} {row['model']} seed {row['seed']}: {found}; fit {row['fit_seconds']:.0f} s"
        f" ({row['fit_cpu']:.0f} s of processor), sample {row['sample_seconds']:.1f} s,"
        f" {row['peak_mb']:.0f} MB, {row['steps']} steps"
    )


def able(models: list[str]) -> set[str]:
    """Those models that the package has; says which it lacks."""
    lacking = [name for name in models if kind_of(name) is None]
    if lacking:
        print(f"not in the package: {', '.join(lacking)}")
    return set(models) - set(lacking)


def jobs(args: argparse.Namespace, usual: Sequence[str], tables: Sequence[str]) -> list[Row]:
    """Every run that was asked for."""
    found = []
    for table in args.table or tables:
        name = SHORT.get(table, table)
        seeds = args.seed if args.seed is not None else range(TABLES[name].seeds)
        found += [
            {
                "table": name, "model": model, "seed": seed, "label": args.label,
                "settings": json.loads(args.settings), "rows_asked": args.rows,
                "max_rows": args.max_rows, "data": str(args.data), "inner": args.inner,
                "busy": args.busy,
            }
            for seed in seeds
            for model in args.model or usual
        ]  # fmt: skip
    return found


def quality(args: argparse.Namespace) -> None:
    """Generators without a guarantee; trials of settings have a file of their own."""
    name = "neural_tuning.jsonl" if args.inner else "neural_quality.jsonl"
    work(args, jobs(args, models(), list(TABLES)), args.out or RESULTS / name)


def privacy(args: argparse.Namespace) -> None:
    """Private generators and AIM, at the budgets of three separations."""
    every = [
        {**job, "separation": separation, "delta": DELTA}
        for separation in args.separation or SEPARATIONS
        for job in jobs(args, PRIVATE, PRIVATE_TABLES)
    ]
    name = "neural_privacy_tuning.jsonl" if args.inner else "neural_privacy.jsonl"
    work(args, every, args.out or RESULTS / name)


def work(args: argparse.Namespace, every: list[Row], out: Path) -> None:
    """Run what is missing, or list it; a line made with other settings is made again."""
    done = {key(row): row for row in lines(out)}
    there = able(sorted({job["model"] for job in every}))
    missing = [
        job
        for job in every
        if key(job) not in done or (job["model"] in there and not settled(job, done[key(job)]))
    ]
    if args.list:
        for job in missing:
            at = f" separation {job['separation']}" if "separation" in job else ""
            print(f"missing: {job['table']} {job['model']} seed {job['seed']}{at} {job['label']}")
        print(f"{len(missing)} runs are missing from {out.name}")
        return
    start = time.monotonic()
    if not missing:
        print(f"nothing is missing from {out.name}")
    else:
        files = sources.present((TABLES[job["table"]].file for job in missing), args.data)
        missing = [job for job in missing if TABLES[job["table"]].file in files]
    for job in missing:
        if job["model"] not in there:
            continue
        if time.monotonic() - start > 60 * args.limit_minutes:
            print("stopped: --limit-minutes is over")
            return
        row = run(job, out)
        if row:
            print(told(row), flush=True)


def speed(args: argparse.Namespace) -> None:
    """Time ourselves and a peer in turn."""
    import neural_speed

    sources.require_path(args.peer_python, "the peer's interpreter")
    neural_speed.speed(args)


def memory(args: argparse.Namespace) -> None:
    """Largest resident set of a fit on tables of awkward shapes; what is there is not repeated."""
    from flaim_adult import commit
    from neural_memory import CASES, MODELS

    out = args.out or RESULTS / "neural_memory.jsonl"
    done = {(row["model"], row["case"]) for row in lines(out)}
    for model, case in product(args.model or MODELS, CASES):
        if (model, case) in done:
            continue
        told = [sys.executable, str(HERE / "neural_memory.py"), model, case]
        found = subprocess.run(told, check=True, stdout=subprocess.PIPE, text=True).stdout
        row = {**json.loads(found.splitlines()[-1]), "commit": commit()}
        with out.open("a") as kept:
            kept.write(json.dumps(row) + "\n")
        print(f"{model}, {case}: {row['peak_mb']:.0f} MB", flush=True)


def start(args: argparse.Namespace) -> None:
    """Seconds to the first step of a fit, in turns over the models."""
    from flaim_adult import commit
    from neural_start import MODELS

    out = args.out or RESULTS / "neural_start.jsonl"
    for _, model in product(range(args.repeats), args.model or MODELS):
        told = [sys.executable, str(HERE / "neural_start.py"), model]
        found = subprocess.run(told, check=True, stdout=subprocess.PIPE, text=True).stdout
        row = {**json.loads(found.splitlines()[-1]), "commit": commit()}
        with out.open("a") as kept:
            kept.write(json.dumps(row) + "\n")
        print(f"{model}: first step after {row['first_step']:.1f} s", flush=True)


def fits(part: argparse.ArgumentParser, do: Callable[[argparse.Namespace], None]) -> None:
    """Arguments of what fits and scores."""
    part.add_argument("--table", nargs="*", choices=[*TABLES, *SHORT])
    part.add_argument("--model", nargs="*")
    part.add_argument("--seed", nargs="*", type=int)
    part.add_argument("--settings", default="{}", help="JSON: arguments of the model's class")
    part.add_argument("--label", default="", help="name of runs with other settings")
    part.add_argument("--rows", type=int, help="rows used at most, for trials")
    part.add_argument("--max-rows", type=int, default=6_000, help="of a boosting fit of the scores")
    part.add_argument("--limit-minutes", type=float, default=float("inf"))
    part.add_argument("--list", action="store_true", help="what is missing")
    part.add_argument("--inner", action="store_true", help="split the training rows again; to tune")
    part.add_argument("--busy", action="store_true", help="others use the machine: keep no times")
    part.add_argument("--out", type=Path, help="where lines are kept")
    sources.add_data(part)
    part.set_defaults(do=do)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parse.add_subparsers(required=True)
    fits(parts.add_parser("quality", help="fit, sample and score"), quality)
    part = parts.add_parser("privacy", help="the same at equal budgets, and attack")
    part.add_argument("--separation", nargs="*", type=float, help="whose epsilon is spent")
    fits(part, privacy)
    part = parts.add_parser("memory", help="of fits of awkward shapes: see neural_memory.py")
    part.add_argument("--model", nargs="*")
    part.add_argument("--out", type=Path, help="where lines are kept")
    part.set_defaults(do=memory)
    part = parts.add_parser("start", help="seconds to the first step: see neural_start.py")
    part.add_argument("--model", nargs="*")
    part.add_argument("--repeats", type=int, default=3)
    part.add_argument("--out", type=Path, help="where lines are kept")
    part.set_defaults(do=start)
    part = parts.add_parser("speed", help="beside the peers, see neural_speed.py")
    part.add_argument("--part", choices=["ctgan-steps", "ctgan-whole", "tabddpm"], required=True)
    part.add_argument("--peer-python", type=Path, required=True, help="runs the peer")
    part.add_argument("--checkout", type=Path, help="of TabDDPM's authors' repository")
    part.add_argument("--repeats", type=int, default=3)
    part.add_argument("--steps", type=int, default=200, help="that are timed")
    part.add_argument("--epochs", type=int, default=10, help="of a whole run")
    part.add_argument("--batch", type=int)
    part.add_argument("--rows", type=int, help="rows used at most")
    part.add_argument("--draws", type=int, default=0, help="rows drawn by each sampler")
    part.add_argument("--threads", type=int, default=2)
    part.add_argument("--out", type=Path, help="where lines are kept")
    sources.add_data(part)
    part.set_defaults(do=speed)
    return parse


if __name__ == "__main__":
    args = parser().parse_args()
    args.do(args)
