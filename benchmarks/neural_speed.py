"""Speed beside the peers: CTGAN's reference package, and TabDDPM's authors' code.

    python3.11 -m venv peer && peer/bin/pip install ctgan==0.12.1 pyarrow safetensors
    python benchmarks/neural.py speed --peer-python peer/bin/python --part ctgan-steps
    python benchmarks/neural.py speed --peer-python peer/bin/python --part ctgan-whole --epochs 300
    python benchmarks/neural.py speed --peer-python peer/bin/python --part tabddpm --draws 2000 \\
        --checkout tab-ddpm

Sides take turns within one call, each turn in a process of its own, at the same batch, layers and
threads. Steps a second come from two fits of a process that did both before (a program may depend
on the number of steps): the difference of their steps over that of their seconds, so neither
compilation nor preprocessing counts.
A whole run counts everything from the call of fit to the last row, compilation included: ours is
started without any compiled programs kept. Nothing is extrapolated.
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
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from flaim_adult import commit
from neural_tables import Prepared, prepare

import siloweave as sw
from siloweave.tables import write
from siloweave.tables.features import Features

HERE = Path(__file__).parent
ADULT = "adult"
HIDDEN, TIMESTEPS, RATE, DECAY = (512, 512, 512), 1000, 2e-3, 1e-4


def environment(threads: int, cold: bool) -> dict[str, str]:
    """So many threads for both sides, and no compiled programs if `cold`."""
    kept = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        kept[name] = str(threads)
    kept.pop("XLA_FLAGS", None)
    if threads == 1:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        kept["XLA_FLAGS"] = flags
    if cold:
        kept.pop("JAX_COMPILATION_CACHE_DIR", None)
    return kept


def child(told: list[str], job: dict[str, Any], threads: int, cold: bool = True) -> dict[str, Any]:
    """What a side's script prints last."""
    done = subprocess.run(
        [*told, json.dumps(job)], env=environment(threads, cold), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(told)} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def sides(args: argparse.Namespace, name: str) -> dict[str, list[str]]:
    """How either side is started."""
    return {
        "ours": [sys.executable, str(HERE / "neural_fits.py"), name],
        "peer": [str(args.peer_python), str(HERE / "peers" / f"{name}_fits.py")],
    }


def pace(fits: list[dict[str, float]], of: str = "seconds") -> float:
    """Steps a second between a process's last two fits."""
    short, long = fits[-2:]
    return (long["steps"] - short["steps"]) / (long[of] - short[of])


def without_gaps(table: Prepared, folder: Path) -> tuple[Prepared, dict[str, str]]:
    """The table with gaps of text as a category "?", as the raw file has it, and its files."""
    for part, name in ((table.train, "train"), (table.holdout, "holdout")):
        write(part, folder / f"{name}.parquet")
        frame = pl.read_parquet(folder / f"{name}.parquet")
        frame.with_columns(pl.col(pl.String).fill_null("?")).write_parquet(
            folder / f"{name}.parquet"
        )
    columns = []
    for column in table.schema.columns:
        categories = (*column.categories, "?") if column.missing else column.categories
        columns.append(sw.Column(
            column.name, column.kind, low=column.low, high=column.high, categories=categories,
        ))  # fmt: skip
    schema = sw.Schema(tuple(columns)).with_fallbacks()
    (folder / "schema.json").write_text(schema.to_json())
    found = Prepared(
        schema, sw.read(folder / "train.parquet"), sw.read(folder / "holdout.parquet"),
        table.target, table.classes, table.share,
    )  # fmt: skip
    return found, {"table": str(folder / "train.parquet"), "schema": str(folder / "schema.json")}


def scored(table: Prepared, file: str) -> dict[str, Any]:
    """The scores of a sample, with their ceilings."""
    rows = sw.read(file)
    rows = rows.select(list(table.schema.names))
    found = sw.score(
        table.train, rows, holdout=table.holdout, target=table.target, schema=table.schema
    )
    wanted = ("resemblance", "discriminability", "utility")
    return {
        p.name: {"value": p.value, "ceiling": p.ceiling} for p in found.parts if p.family in wanted
    }


def ctgan_steps(args: argparse.Namespace, keep: Any) -> None:
    """Steps a second, turn about."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, files = without_gaps(prepare(ADULT, args.data, args.rows or 12_500), folder)
        per_epoch = max(table.train.num_rows // args.batch, 1)
        long = 1 + max(round(args.steps / per_epoch), 1)
        job = {
            **files, "discrete": discrete(table), "batch": args.batch, "epochs": [long, 1, 1, long],
            "threads": args.threads, "seed": 0, "rows": 0, "sample": "",
        }  # fmt: skip
        turns(args, "ctgan", job, keep, lambda side, found: {"steps_a_second": pace(found["fits"])})


def ctgan_whole(args: argparse.Namespace, keep: Any) -> None:
    """Fit and sample on Adult, and what the samples are worth."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, files = without_gaps(prepare(ADULT, args.data, args.rows), folder)
        job = {
            **files, "discrete": discrete(table), "batch": args.batch, "epochs": [args.epochs],
            "threads": args.threads, "seed": 0, "rows": table.train.num_rows,
            "sample": str(folder / "sample.parquet"),
        }  # fmt: skip

        def told(side: str, found: dict[str, Any]) -> dict[str, Any]:
            whole = found["fits"][0]["seconds"] + found["sample_seconds"]
            cpu = found["fits"][0]["cpu"] + found["sample_cpu"]
            return {
                "whole_seconds": whole, "whole_cpu": cpu, "epochs": args.epochs,
                "rows": table.train.num_rows, "scores": scored(table, job["sample"]),
            }  # fmt: skip

        turns(args, "ctgan", job, keep, told)


def discrete(table: Prepared) -> list[str]:
    """Columns that the peer is told are discrete."""
    return [c.name for c in table.schema.columns if c.kind == "categorical"]


def tabddpm(args: argparse.Namespace, keep: Any) -> None:
    """Training steps a second, seconds to draw rows, and what these are worth."""
    from safetensors.numpy import load_file, save_file

    from siloweave.tables.features import Layout

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table, files = without_gaps(prepare(ADULT, args.data, args.rows or 25_000), folder)
        features = Features.fit(table.train, table.schema, numeric="quantile", key=0)
        layout = Layout(tuple(features.blocks))
        label = layout.categorical_of(table.target)
        rest = layout.without(label)
        X = features.encode(table.train, key=1)
        numbers, codes = rest.split(X)
        labels = X[:, label.start : label.start + label.size].argmax(1).astype(np.int32)
        save_file({"numbers": numbers, "codes": codes, "labels": labels}, folder / "rows.st")
        job = {
            **files, "rows": str(folder / "rows.st"), "sizes": [b.size for b in rest.categoricals],
            "classes": label.size, "target": table.target, "hidden": HIDDEN,
            "timesteps": TIMESTEPS, "batch": args.batch or 1024, "rate": RATE, "decay": DECAY,
            "steps": [5 + args.steps, 5, 5, 5 + args.steps], "threads": args.threads, "seed": 0,
            "draws": args.draws, "sample": str(folder / "sample"), "checkout": str(args.checkout),
        }  # fmt: skip

        def told(side: str, found: dict[str, Any]) -> dict[str, Any]:
            line = {"steps_a_second": pace(found["fits"]), "draws": args.draws, "scores": {}}
            if side == "ours":
                for sampler, made in found["samplers"].items():
                    line["scores"][sampler] = scored(table, made.pop("rows"))
            elif args.draws:
                drawn = load_file(job["sample"])
                Y = rest.join(drawn["numbers"], drawn["codes"], layout.width)
                Y[np.arange(len(Y)), label.start + drawn["labels"]] = 1.0
                write(features.decode(Y, key=0, like=table.train), folder / "peer.parquet")
                line["scores"]["peer"] = scored(table, str(folder / "peer.parquet"))
            return line

        turns(args, "tabddpm", job, keep, told)


def turns(args: argparse.Namespace, name: str, job: dict[str, Any], keep: Any, told: Any) -> None:
    """Both sides in turn, each line kept as it comes."""
    for repeat in range(args.repeats):
        order = list(sides(args, name).items())
        for side, command in order if repeat % 2 == 0 else order[::-1]:
            before = os.getloadavg()[0]
            found = child(command, job, args.threads, cold=args.part == "ctgan-whole")
            keep({
                "side": side, "repeat": repeat, "threads": args.threads, "batch": job["batch"],
                "load": [before, os.getloadavg()[0]], **found, **told(side, found),
            })  # fmt: skip


PARTS = {"ctgan-steps": ctgan_steps, "ctgan-whole": ctgan_whole, "tabddpm": tabddpm}


def speed(args: argparse.Namespace) -> None:
    """Run one part and say the ratio."""
    out = args.out or HERE / "results" / "neural_speed.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    call = {"part": args.part, "call": time.strftime("%Y-%m-%dT%H:%M:%S"), "commit": commit()}
    if args.batch is None:
        args.batch = 1024 if args.part == "tabddpm" else 500
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append({**call, **row})
        with out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        shown = {n: row[n] for n in ("steps_a_second", "whole_seconds", "load") if n in row}
        print(row["side"], row["repeat"], shown, flush=True)

    PARTS[args.part](args, keep)
    for name in ("steps_a_second", "whole_seconds"):
        middle = {
            side: median([r[name] for r in rows if r["side"] == side])
            for side in ("ours", "peer")
            if any(name in r for r in rows)
        }
        if middle:
            print(f"{name}: ours {middle['ours']:.2f}, peer {middle['peer']:.2f}")
