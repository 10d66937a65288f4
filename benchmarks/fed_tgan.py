"""Fed-TGAN and what trains beside it, in the three scenarios of the paper, one run at a time.

    python benchmarks/fed_tgan.py quality --list
    python benchmarks/fed_tgan.py quality --table adult --scenario copies --method fed_tgan
    python benchmarks/fed_tgan.py quality --limit-minutes 300
    python benchmarks/fed_tgan.py rounds --parties 5 10 20
    python benchmarks/fed_tgan.py peer --peer-python peer/bin/python
    python benchmarks/results_page.py

40,000 rows of each table, five parties: `copies` gives all of them all rows; `imbalanced` gives
four of them 500 of the rows and one all; `repeated` gives four of them 10,000 each, and one a
single row 40,000 times. `central` trains CTGAN where all parties' rows are at one place. Every
method may take the same wall time (10 minutes unless --minutes says otherwise), all parties
together: three rounds are timed first, and the number of rounds follows, 500 at most; --rounds
fixes it. Distances are to the table's 40,000 rows (Avg-JSD of categorical, Avg-WD of numeric
columns), and beside them to the pooled rows of all parties, which differ where a row is repeated;
`raw` are those of rows that are not raked to the columns' shares, which all methods know alike.

`rounds` times a round of Fed-TGAN and of MD-TGAN with 5, 10 and 20 parties; `peer` a round of five
parties and five epochs of the CTGAN package (see neural_speed.py), in turn. Runs have a process of
their own and are kept as they end.
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
import sources
from flaim_adult import commit
from neural import lines
from neural_run import machine, peak_mb
from neural_tables import column

import siloweave as sw
from siloweave.evaluate.score_sheet import GROUPS, jackknife
from siloweave.evaluate.similarity import average_jsd, average_wasserstein
from siloweave.tables import Aligned, align, write
from siloweave.tables.keys import fold_in, generator

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "fed_tgan.jsonl"
ROWS, PARTIES, SMALL, SEED = 40_000, 5, 500, 2026
TABLES = {
    "adult": "adult",
    "covertype": "covertype",
    "intrusion": "intrusion_kdd99_10pct",
    "credit": "credit_fraud",
}
SCENARIOS = ("copies", "imbalanced", "repeated")
# Class and arguments of every method; `central` is one party with all rows.
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "fed_tgan": (sw.FedTGAN, {}),
    "vanilla": (sw.FedTGAN, {"weights": "equal"}),
    "no similarity": (sw.FedTGAN, {"weights": "size"}),
    "no size": (sw.FedTGAN, {"weights": "similarity"}),
    "md_tgan": (sw.MDTGAN, {}),
    "typical": (sw.FedTGAN, {"weights": "typical"}),
    "central": (sw.FedTGAN, {}),
    "fed_tabddpm": (sw.FedTabDDPM, {"weights": "typical", "batch": 512}),
    "fed_point_diff": (
        sw.FedPointDiff,
        {"weights": "typical", "diffusion": {"batch": 512}},
    ),
}
KEY = ("part", "table", "scenario", "method", "seed", "label")


def prepare(name: str, data: Path, rows: int = ROWS) -> tuple[sw.Table, sw.Schema]:
    """Rows of a table, drawn once, and the schema of these rows."""
    facts = sources.facts(TABLES[name])
    table = sources.read(TABLES[name], data)
    order = generator(SEED).permutation(table.num_rows)[:rows]
    used = table.take(np.sort(order))
    numbers = {n for n in used.names if used.kind(n) in ("numbers", "whole numbers")}
    numbers -= set(facts["categorical"])
    return used, sw.Schema(
        tuple(column(used, n, n in numbers) for n in used.names)
    ).with_fallbacks()


def split(n: int, scenario: str, parties: int = PARTIES) -> list[Any]:
    """Row numbers of the parties in a scenario."""
    rng = generator(fold_in(SEED, scenario))
    if scenario == "copies":
        return [np.arange(n)] * parties
    if scenario == "imbalanced":
        few = [np.sort(rng.permutation(n)[: min(SMALL, n)]) for _ in range(parties - 1)]
        return [*few, np.arange(n)]
    quarters = np.array_split(rng.permutation(n), parties - 1)
    return [*(np.sort(part) for part in quarters), np.full(n, int(rng.integers(n)))]


def parts_of(job: dict[str, Any], table: sw.Table) -> list[sw.Table]:
    """The parties of a job; one with all rows where it is central."""
    parts = split(table.num_rows, job["scenario"])
    if job["method"] == "central":
        return [table.take(np.concatenate(parts))]
    return [table.take(part) for part in parts]


class Clock:
    """Seconds at which rounds began."""

    def __init__(self) -> None:
        self.starts: list[float] = []

    def __call__(self, text: str, done: float) -> None:
        """Note the start of a round."""
        if text.startswith("round "):
            self.starts.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        """Of every round but the first, which compiles, and the last, whose end is not told."""
        return np.diff(self.starts)[1:].tolist()


def fit(job: dict[str, Any], parts: list[sw.Table], schema: sw.Schema, rounds: int) -> Any:
    """A fit, and its clock."""
    kind, given = METHODS[job["method"]]
    clock = Clock()
    settings = {**given, **job["settings"], "rounds": rounds}
    if kind is sw.FedPointDiff:
        # Its rounds do not say how long it trains. An epoch a round, as the others take.
        diffusion = settings["diffusion"]
        epoch = max(sum(part.num_rows for part in parts) // diffusion["batch"], 1)
        length = {"steps": rounds * epoch, "passes": None, "work": None}
        settings["diffusion"] = diffusion | length
    made = kind(**settings)
    fitted = made.fit(parts, schema, seed=job["seed"], progress=clock, at_once=job.get("at_once"))
    return fitted, clock


def planned(job: dict[str, Any], parts: list[sw.Table], schema: sw.Schema) -> int:
    """Rounds that fit the time that a method may take."""
    if job["rounds"]:
        return int(job["rounds"])
    _, clock = fit(job, parts, schema, 4)
    return int(np.clip(60 * job["minutes"] / median(clock.seconds), 1, 500))


def distances(both: Aligned, seed: int) -> dict[str, Any]:
    """Avg-JSD and Avg-WD, and their intervals by the jackknife over groups of the drawn rows.

    The real rows stay as they are: the table is what distances are to, and its range scales them.
    """
    measures = {
        "jsd": lambda t: average_jsd(t, "real", "synthetic"),
        "wd": lambda t: average_wasserstein(t, "real", "synthetic").mean,
    }
    groups = generator(fold_in(seed, "groups")).permutation(both.num_rows["synthetic"]) % GROUPS
    less = [
        both.with_rows("synthetic", "synthetic", np.flatnonzero(groups != g)) for g in range(GROUPS)
    ]
    found: dict[str, Any] = {name: of(both) for name, of in measures.items()}
    for name, of in measures.items():
        found[f"{name}_interval"] = jackknife(found[name], [of(t) for t in less], 1.0)
    return found


def quality_line(job: dict[str, Any]) -> dict[str, Any]:
    """One run: fit, sample, distances."""
    table, schema = prepare(job["table"], Path(job["data"]), job["rows"])
    parts, load = parts_of(job, table), os.getloadavg()[0]
    rounds = planned(job, parts, schema)
    start, own = time.perf_counter(), time.process_time()
    fitted, _ = fit(job, parts, schema, rounds)
    taken, cpu = time.perf_counter() - start, time.process_time() - own
    raked, raw = (
        fitted.sample_table(table.num_rows, seed=job["seed"], raked=way) for way in (True, False)
    )
    pooled = table.take(np.concatenate(split(table.num_rows, job["scenario"])))
    beside = {"table": (table, raked), "pooled": (pooled, raked), "raw": (table, raw)}
    found = {
        name: distances(align({"real": real, "synthetic": synthetic}, schema), job["seed"])
        for name, (real, synthetic) in beside.items()
    }
    traffic = list(fitted.cost.parties.values())
    return {n: job[n] for n in KEY} | {
        "rows": [part.num_rows for part in parts], "rounds": rounds, "distances": found,
        "party_weights": fitted.settings["party_weights"], "settings": dict(fitted.settings),
        "fit_seconds": taken, "fit_cpu": cpu, "minutes": job["minutes"], "peak_mb": peak_mb(),
        "questions": fitted.cost.rounds,
        "bytes": [traffic[0].bytes_from_party, traffic[0].bytes_to_party],
        "load": [load, os.getloadavg()[0]], "commit": commit(), "machine": machine(),
    }  # fmt: skip


def rounds_line(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a round with so many parties that all have the table."""
    table, schema = prepare(job["table"], Path(job["data"]), job["rows"])
    load = os.getloadavg()[0]
    fitted, clock = fit(job, [table] * job["parties"], schema, job["rounds"])
    traffic = next(iter(fitted.cost.parties.values()))
    return {n: job[n] for n in (*KEY, "parties", "at_once", "call")} | {
        "rows": table.num_rows, "seconds": clock.seconds, "questions": fitted.cost.rounds,
        "bytes": [traffic.bytes_from_party, traffic.bytes_to_party], "peak_mb": peak_mb(),
        "load": [load, os.getloadavg()[0]], "commit": commit(), "machine": machine(),
    }  # fmt: skip


def run(job: dict[str, Any], out: Path) -> dict[str, Any] | None:
    """One job in a process of its own; its line is kept."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "line.json"
        command = [sys.executable, __file__, "child", json.dumps(job), str(file)]
        done = subprocess.run(command, check=False)
        if done.returncode or not file.is_file():
            print(f"{job}: failed", flush=True)
            return None
        row: dict[str, Any] = json.loads(file.read_text())
    keep(row, out)
    return row


def keep(row: dict[str, Any], out: Path) -> None:
    """Append a line."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as kept:
        kept.write(json.dumps(row, default=str) + "\n")


def base(args: argparse.Namespace, part: str) -> dict[str, Any]:
    """What all jobs of a part share."""
    settings = json.loads(getattr(args, "settings", "{}"))
    return {"part": part, "seed": 0, "label": "", "settings": settings, "rows": args.rows,
            "data": str(args.data)}  # fmt: skip


def quality(args: argparse.Namespace) -> None:
    """Run what is missing, or list it."""
    every = [
        {**base(args, "quality"), "table": table, "scenario": scenario, "method": method,
         "seed": seed, "label": args.label, "rounds": args.rounds, "minutes": args.minutes}
        for table in args.table or TABLES
        for seed in args.seed or (range(3) if table == "adult" else range(1))
        for scenario in args.scenario or SCENARIOS
        for method in args.method or METHODS
    ]  # fmt: skip
    every.sort(key=lambda job: job["seed"])  # one seed of all first
    done = {tuple(row.get(n) for n in KEY) for row in lines(args.out)}
    missing = [job for job in every if tuple(job[n] for n in KEY) not in done]
    if args.list:
        for job in missing:
            print("missing:", job["table"], job["scenario"], job["method"], "seed", job["seed"])
        print(f"{len(missing)} runs are missing from {args.out.name}")
        return
    start = time.monotonic()
    if missing:
        there = sources.present((TABLES[job["table"]] for job in missing), args.data)
        missing = [job for job in missing if TABLES[job["table"]] in there]
    for job in missing:
        if time.monotonic() - start > 60 * args.limit_minutes:
            print("stopped: --limit-minutes is over")
            return
        row = run(job, args.out)
        if row:
            near = row["distances"]["table"]
            print(
                f"{job['table']} {job['scenario']} {job['method']} seed {job['seed']}: JSD "
                f"{near['jsd']:.3f}, WD {near['wd']:.3f}; {row['rounds']} rounds in "
                f"{row['fit_seconds']:.0f} s ({row['fit_cpu']:.0f} s of processor)",
                flush=True,
            )


def rounds(args: argparse.Namespace) -> None:
    """Time a round of Fed-TGAN and of MD-TGAN."""
    call = time.strftime("%Y-%m-%dT%H:%M:%S")
    sources.present([TABLES[args.table]], args.data)
    for parties in args.parties:
        for method in ("fed_tgan", "md_tgan"):
            job = {**base(args, "rounds"), "table": args.table, "scenario": "copies",
                   "method": method, "rounds": args.rounds, "parties": parties,
                   "at_once": args.at_once, "call": call}  # fmt: skip
            row = run(job, args.out)
            if row:
                print(f"{parties} parties, {method}: {median(row['seconds']):.2f} s", flush=True)


def peer(args: argparse.Namespace) -> None:
    """A round of five parties beside five epochs of the CTGAN package, in turn."""
    from neural_speed import child

    sources.require_path(args.peer_python, "the peer's interpreter")
    call = time.strftime("%Y-%m-%dT%H:%M:%S")
    table, schema = prepare("adult", args.data, args.rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.parquet"
        write(table, file)
        discrete = [c.name for c in schema.columns if c.kind == "categorical"]
        script = str(HERE / "peers" / "ctgan_fits.py")
        for repeat in range(args.repeats):
            for at_once in (None, 1):
                job = {**base(args, "peer"), "table": "adult", "scenario": "copies",
                       "method": "fed_tgan", "rounds": args.rounds, "parties": PARTIES,
                       "at_once": at_once, "call": call}  # fmt: skip
                row = run(job, args.out)
                if row:
                    print(f"ours, at_once={at_once}: {median(row['seconds']):.2f} s", flush=True)
            job = {"table": str(file), "discrete": discrete, "batch": 500, "epochs": [PARTIES],
                   "threads": args.threads, "seed": 0, "rows": 0, "sample": ""}  # fmt: skip
            load = os.getloadavg()[0]
            (made,) = child([str(args.peer_python), script], job, args.threads)["fits"]
            five = made["epochs_seconds"]
            keep(
                {"part": "peer", "method": "ctgan package", "call": call, "repeat": repeat,
                 "rows": table.num_rows, "seconds": [five], "fits": [made],
                 "load": [load, os.getloadavg()[0]], "commit": commit()},
                args.out,
            )  # fmt: skip
            print(f"the package, five epochs: {five:.2f} s", flush=True)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parse.add_subparsers(required=True)

    def part(name: str, do: Any, about: str) -> argparse.ArgumentParser:
        made = parts.add_parser(name, help=about)
        made.add_argument("--rows", type=int, default=ROWS, help="of the table; fewer for trials")
        made.add_argument("--out", type=Path, default=RESULTS, help="where lines are kept")
        sources.add_data(made)
        made.set_defaults(do=do)
        return made

    made = part("quality", quality, "fit, sample, and measure distances")
    made.add_argument("--table", nargs="*", choices=list(TABLES))
    made.add_argument("--scenario", nargs="*", choices=SCENARIOS)
    made.add_argument("--method", nargs="*", choices=list(METHODS))
    made.add_argument("--seed", nargs="*", type=int)
    made.add_argument("--rounds", type=int, help="instead of a time")
    made.add_argument("--minutes", type=float, default=10.0, help="that a fit may take")
    made.add_argument("--settings", default="{}", help="JSON: arguments of the method's class")
    made.add_argument("--label", default="", help="name of runs with other settings")
    made.add_argument("--limit-minutes", type=float, default=float("inf"))
    made.add_argument("--list", action="store_true", help="what is missing")
    made = part("rounds", rounds, "seconds of a round, Fed-TGAN and MD-TGAN")
    made.add_argument("--table", default="adult", choices=list(TABLES))
    made.add_argument("--parties", nargs="*", type=int, default=[5, 10, 20])
    made.add_argument("--rounds", type=int, default=4)
    made.add_argument("--at-once", type=int, help="parties at work at the same time")
    made = part("peer", peer, "a round beside five epochs of the CTGAN package")
    made.add_argument("--peer-python", type=Path, required=True, help="runs the peer")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--rounds", type=int, default=4)
    made.add_argument("--threads", type=int, default=2, help="of the peer")
    return parse


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        asked = json.loads(sys.argv[2])
        made_line = quality_line(asked) if asked["part"] == "quality" else rounds_line(asked)
        Path(sys.argv[3]).write_text(json.dumps(made_line, default=str))
    else:
        found_args = arguments().parse_args()
        found_args.do(found_args)
