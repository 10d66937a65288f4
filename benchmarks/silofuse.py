"""SiloFuse and E2EDistr over parties that hold different columns: quality, privacy, bytes.

    python benchmarks/silofuse.py --list                       # what is missing
    python benchmarks/silofuse.py --table abalone diabetes     # some tables, everything asked for
    python benchmarks/silofuse.py --limit-minutes 120          # go on where it was
    python benchmarks/silofuse.py --table abalone --rows 800 --steps 200 --label trial
    python benchmarks/results_page.py

Every run has a process of its own and is kept as it ends in results/silofuse.jsonl. Rows, schemas
and splits of rows are those of neural.py (neural_tables.py), so the central runs in
neural_quality.jsonl are on the same rows; the page puts them beside.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

import sources
from flaim_adult import commit
from neural_run import attacked, machine, peak_mb, scored, since, spent
from neural_tables import SHORT, arguments, prepare

import siloweave as sw
from siloweave.tables.split import split_columns

Row = dict[str, Any]
HERE = Path(__file__).parent
OUT = HERE / "results" / "silofuse.jsonl"
TABLES = (
    *("abalone", "adult", "churn", "covertype", "diabetes", "heloc"),
    "intrusion_nslkdd_test",
)
SEEDS = {"adult": 3}  # one, with the score's own interval, elsewhere
# Name, parties, order of the columns. The last three are those of the paper's Figure 11: with
# autoencoders, since sphere codes code a column by itself, whoever holds it.
SETTINGS = (
    ("silofuse", 4, "contiguous"),
    ("silofuse_autoencoders", 4, "contiguous"),
    ("e2e_distr", 4, "contiguous"),
    ("silofuse_autoencoders", 8, "contiguous"),
    ("silofuse_autoencoders", 4, "permuted"),
    ("silofuse_autoencoders", 8, "permuted"),
)
# Class, arguments, and the central model whose settings on a table it takes.
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "silofuse": ("SiloFuse", {}, "point_diff"),
    "silofuse_autoencoders": ("SiloFuse", {"coder": "autoencoders"}, "latent_diff"),
    "e2e_distr": ("E2EDistr", {}, "e2e"),
}
ATTACKS = ("singling_out", "linkability", "inference")
KEYS = ("table", "model", "parties", "order", "seed", "label")


def key(row: Row) -> tuple[Any, ...]:
    """What tells one run from another."""
    return tuple(row.get(name) for name in KEYS)


def lines(path: Path) -> list[Row]:
    """What a file of results holds."""
    return [json.loads(x) for x in path.read_text().splitlines()] if path.is_file() else []


def made(job: Row, target: str | None) -> Any:
    """The method of a job; its target is that of the central runs."""
    kind, given, central = MODELS[job["model"]]
    settings = arguments(central, job["table"], {})
    if job["model"] == "e2e_distr":  # half the steps: a step over the wire takes twice as long
        whole = getattr(sw, kind)(**settings).settings()["diffusion"]["steps"]
        settings["diffusion"] = {**settings.get("diffusion", {}), "steps": whole // 2}
    settings.update(job["settings"])
    if job["steps"]:
        settings["diffusion"] = {**settings.get("diffusion", {}), "steps": job["steps"]}
        if job["model"] == "silofuse_autoencoders":
            settings["autoencoder"] = {"steps": job["steps"], **settings.get("autoencoder", {})}
    return getattr(sw, kind)(target=target, **settings, **given)


def resistance(risks: list[Row]) -> float:
    """Mean over attacks of 100 (1 - risk), variants of an attack averaged: SiloFuse's score."""
    per_attack = [
        mean(100.0 * (1.0 - max(part["risk"] or 0.0, 0.0)) for part in risks if part["attack"] == a)
        for a in ATTACKS
    ]
    return mean(per_attack)


def moved(fitted: Any, steps: int) -> Row:
    """Bytes and messages of each party, on the wire; and what a step of a training in steps is."""
    parties = {
        name: {"sent": t.bytes_from_party, "received": t.bytes_to_party, "messages": t.messages}
        for name, t in fitted.cost.parties.items()
    }
    total = sum(party["sent"] + party["received"] for party in parties.values())
    stepwise = fitted.info.name == "e2e_distr"
    return {
        "bytes": total,
        "bytes_per_party": parties,
        "rounds": fitted.cost.rounds,
        "latents": fitted.model.net.joint.net.latent,
        "bytes_per_step": total / steps if stepwise else None,
    }


def fit_and_score(job: Row) -> Row:
    """The line of one run."""
    table = prepare(job["table"], Path(job["data"]), job["rows_asked"])
    method = made(job, table.target if table.classes else None)
    parts = split_columns(table.train, job["parties"], by=job["order"])
    load, start = os.getloadavg()[0], spent()
    fitted = method.fit(parts, table.schema, seed=job["seed"])
    fit_wall, fit_own = since(start)
    start = spent()
    synthetic = fitted.sample_table(table.train.num_rows, seed=job["seed"])
    sample_wall, sample_own = since(start)
    peak, start = peak_mb(), spent()
    scores = scored(table.train, synthetic, table, job["seed"], job["max_rows"])
    raw = fitted.sample_table(table.train.num_rows, seed=job["seed"], raked=False)
    as_drawn = scored(table.train, raw, table, job["seed"], job["max_rows"])
    risks = [part for part in attacked(table, synthetic, job["seed"]) if part["attack"] in ATTACKS]
    settings = json.loads(json.dumps(dict(fitted.settings), default=str))
    return {name: job[name] for name in (*KEYS, "rows_asked")} | {
        "rows": table.train.num_rows, "holdout": table.holdout.num_rows, "share": table.share,
        "columns": len(table.schema.names), "settings": settings,
        "steps": settings["diffusion"]["steps"], "fit_seconds": fit_wall, "fit_cpu": fit_own,
        "sample_seconds": sample_wall, "sample_cpu": sample_own, "peak_mb": peak,
        "score_seconds": since(start)[0], "scores": scores, "as_drawn": as_drawn, "risks": risks,
        "resistance": resistance(risks), **moved(fitted, settings["diffusion"]["steps"]),
        "load": [load, os.getloadavg()[0]], "commit": commit(), "machine": machine(),
    }  # fmt: skip


def run(job: Row, out: Path) -> Row | None:
    """One run in a process of its own; keeps its line, or says what went wrong."""
    name = f"{job['table']} {job['model']} {job['parties']} {job['order']} seed {job['seed']}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "line.json"
        told = [sys.executable, str(HERE / "silofuse.py"), "--job", json.dumps(job), str(file)]
        done = subprocess.run(told, check=False)
        if done.returncode or not file.is_file():
            print(f"{name}: failed", flush=True)
            return None
        row: Row = json.loads(file.read_text())
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as kept:
        kept.write(json.dumps(row) + "\n")
    shown = {n: row["scores"][n]["value"] for n in ("resemblance (SiloFuse)", "utility")
             if n in row["scores"]}  # fmt: skip
    told_scores = ", ".join(f"{n} {value:.1f}" for n, value in shown.items() if value is not None)
    print(
        f"{name}: {told_scores}, privacy {row['resistance']:.1f}; fit {row['fit_seconds']:.0f} s "
        f"({row['fit_cpu']:.0f} s of processor), {row['bytes'] / 1e6:.2f} MB in {row['rounds']} "
        "questions",
        flush=True,
    )
    return row


def jobs(args: argparse.Namespace) -> list[Row]:
    """Every run that was asked for, the small tables first."""
    found = []
    for named in args.table or TABLES:
        table = SHORT.get(named, named)
        for model, parties, order in SETTINGS:
            if args.model and model not in args.model:
                continue
            if args.order and order not in args.order:
                continue
            if args.parties and parties not in args.parties:
                continue
            seeds = args.seed if args.seed is not None else range(SEEDS.get(table, 1))
            robust = (parties, order) != (4, "contiguous")
            found += [
                {
                    "table": table, "model": model, "parties": parties, "order": order,
                    "seed": seed, "label": args.label, "settings": json.loads(args.settings),
                    "steps": args.steps, "rows_asked": args.rows, "max_rows": args.max_rows,
                    "data": str(args.data),
                }
                for seed in (seeds if not robust else list(seeds)[:1])
            ]  # fmt: skip
    return found


def work(args: argparse.Namespace) -> None:
    """Run what is missing, or list it."""
    done = {key(row) for row in lines(args.out)}
    missing = [job for job in jobs(args) if key(job) not in done]
    if args.list:
        for job in missing:
            print("missing:", *(job[name] for name in KEYS))
        print(f"{len(missing)} runs are missing from {args.out.name}")
        return
    start = time.monotonic()
    if missing:
        there = sources.present((job["table"] for job in missing), args.data)
        missing = [job for job in missing if job["table"] in there]
    for job in missing:
        if time.monotonic() - start > 60 * args.limit_minutes:
            print("stopped: --limit-minutes is over")
            return
        run(job, args.out)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--table", nargs="*", choices=[*TABLES, *SHORT])
    parse.add_argument("--model", nargs="*", choices=[*MODELS])
    parse.add_argument("--parties", nargs="*", type=int)
    parse.add_argument("--order", nargs="*", choices=("contiguous", "permuted"))
    parse.add_argument("--seed", nargs="*", type=int)
    parse.add_argument("--settings", default="{}", help="JSON: of the networks")
    parse.add_argument("--steps", type=int, help="of training, for trials")
    parse.add_argument("--label", default="", help="name of runs with other settings")
    parse.add_argument("--rows", type=int, help="rows used at most, for trials")
    parse.add_argument("--max-rows", type=int, default=6_000, help="of a boosting fit of scores")
    parse.add_argument("--limit-minutes", type=float, default=float("inf"))
    parse.add_argument("--list", action="store_true", help="what is missing")
    parse.add_argument("--out", type=Path, default=OUT, help="where lines are kept")
    sources.add_data(parse)
    parse.add_argument("--job", nargs=2, metavar=("JOB", "LINE"), help=argparse.SUPPRESS)
    return parse


if __name__ == "__main__":
    args = parser().parse_args()
    if args.job:
        Path(args.job[1]).write_text(json.dumps(fit_and_score(json.loads(args.job[0]))))
    else:
        work(args)
