"""How time, bytes and memory grow with parties, rows, columns, domain size; and a stream of rows.

Every point runs in a process of its own, so its peak memory is its own (libraries included, about
150 MB). Points go into the JSON file as they end; a second call runs only the missing ones.

    python benchmarks/scaling.py              run what is missing, then draw
    python benchmarks/scaling.py --draw       draw the pictures and fill the page's tables

Pictures go to docs/reference/images/, the page that explains them is docs/reference/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marked import fill

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "scaling.json"
PAGE = ROOT / "docs" / "reference" / "scaling.md"
IMAGES = ROOT / "docs" / "reference" / "images"
EPSILON, DELTA, SEED = 1.0, 1e-5, 571
ROWS = 48_842
REPLY_BYTES = 150  # names, kinds and lengths around what a reply says
ENTRY_BYTES = 600  # of a ledger, which is sent at the end; every answer but two has an entry

Point = dict[str, Any]


# Points


def points() -> Iterator[Point]:
    """Every sweep moves one number and holds the others."""
    for k in (1, 3, 10, 30, 100, 300, 1000):
        yield {"sweep": "parties", "series": "p = 0.1", "at": k, "parties": k}
    for k in (1, 3, 10, 30, 100):
        every = {"parties": k, "participation": 1.0}
        yield {"sweep": "parties", "series": "everyone", "at": k, **every}
    for n in (1_000, 10_000, 100_000, 1_000_000):
        for method in ("flaim", "aim"):
            yield {"sweep": "rows", "series": method, "at": n, "rows": n, "method": method}
    for d in (5, 10, 20, 40):
        for method in ("flaim", "aim"):
            made = {"columns": d, "bins": 8, "rows": 10_000, "method": method}
            yield {"sweep": "columns", "series": method, "at": d, **made}
    for b in (2, 4, 8, 16, 32, 64):
        for method in ("flaim", "aim"):
            made = {"columns": 10, "bins": b, "rows": 10_000, "method": method}
            yield {"sweep": "bins", "series": method, "at": b, **made}
    for n in (100_000, 1_000_000, 10_000_000):
        for kind in ("parquet", "csv"):
            yield {"sweep": "stream", "series": kind, "at": n}


def name_of(point: Point) -> str:
    return f"{point['sweep']}/{point['series']}/{point['at']}"


def made_codes(columns: int, bins: int, rows: int):
    """A table whose neighbouring columns depend on each other, with uneven codes."""
    import numpy as np

    from siloweave.tables import Codes, Column, Encoder, Schema, generator

    rng = generator(SEED)
    weights = 1.0 / np.arange(1, bins + 1)
    draws = rng.choice(bins, size=(columns, rows), p=weights / weights.sum())
    for j in range(1, columns):
        same = rng.random(rows) < 0.5
        draws[j][same] = (draws[j - 1][same] + 1) % bins
    names = [f"c{j:02d}" for j in range(columns)]
    encoder = Encoder(
        Schema(tuple(Column(n, "integer", low=0, high=bins - 1) for n in names)).with_fallbacks(),
        bins,
    )
    return Codes(encoder.domain, tuple(draws)), encoder


def adult_codes(rows: int):
    """Adult in 32 bins, drawn again and again where more rows are asked for than it has."""
    from siloweave.datasets import adult, adult_schema
    from siloweave.tables import Encoder, generator

    encoder = Encoder(adult_schema())
    codes = encoder.encode(adult())
    if rows != codes.num_rows:
        codes = codes.take(generator(SEED).integers(codes.num_rows, size=rows))
    return codes, encoder


def fit(point: Point) -> Point:
    import numpy as np

    from siloweave.methods.aim.method import AIM
    from siloweave.methods.flaim.method import FLAIM
    from siloweave.privacy.budget import Budget
    from siloweave.tables import generator

    rows, parties = int(point.get("rows", ROWS)), int(point.get("parties", 100))
    if "columns" in point:
        codes, encoder = made_codes(int(point["columns"]), int(point["bins"]), rows)
    else:
        codes, encoder = adult_codes(rows)
    budget = Budget(EPSILON, DELTA)
    start = time.perf_counter()
    if point.get("method") == "aim":
        parties = 1
        fitted = AIM().fit(codes, encoder, budget=budget)
    else:
        order = generator(SEED).permutation(codes.num_rows)
        parts = [codes.take(p) for p in np.array_split(order, parties)]
        share = float(point.get("participation", 0.1))
        fitted = FLAIM(participation=share).fit(parts, encoder, budget=budget)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    fitted.model.codes(ROWS, 0)
    return {
        "seconds": seconds,
        "sample_seconds": time.perf_counter() - start,
        "epsilon": fitted.epsilon,
        **traffic_of(fitted, parties),
    }


def traffic_of(fitted, parties: int) -> Point:
    """Bytes on the wire, and what the formula says for those that parties send."""
    traffic = list(fitted.cost.parties.values())
    sent = [t.bytes_from_party for t in traffic]
    got = [t.bytes_to_party for t in traffic]
    messages = [t.messages for t in traffic]
    model = fitted.model
    domain = model.encoder.domain
    cells = [sum(domain.size(c) for c in r.cliques) for r in model.measured]
    masked = fitted.info.name == "flaim"
    per_round = 3 if masked else 2
    rounds = len(model.measured) // 2 if masked else len(model.measured) - 1
    besides = 2 if masked else 3  # what is asked once, and the closing message
    joined = (sum(messages) / parties - besides) / per_round
    return {
        "parties": parties,
        "rounds": rounds,
        "joined": joined,
        "sent": sum(sent) / parties,
        "sent_most": max(sent),
        "received": sum(got) / parties,
        "received_most": max(got),
        "messages": sum(messages) / parties,
        "cells": sum(cells),
        "sent_formula": 4 * sum(cells) * (joined / rounds if masked else 1.0),
        "model_cells": model.mrf.tree.cells,
        "potentials": sum(t.size for t in model.mrf.potentials.values()),
        "queries": len(model.workload),
    }


def make_stream(folder: Path, rows: int) -> None:
    """The embedded table over and over, as CSV and as Parquet."""
    import polars as pl

    from siloweave.datasets import adult
    from siloweave.tables import write

    once = folder / "once.csv"
    write(adult(), once)
    header, *lines = once.read_bytes().splitlines(keepends=True)
    with (folder / f"{rows}.csv").open("wb") as out:
        out.write(header)
        for _ in range(rows // len(lines)):
            out.writelines(lines)
        out.writelines(lines[: rows % len(lines)])
    pl.scan_csv(folder / f"{rows}.csv").sink_parquet(folder / f"{rows}.parquet")


def stream(point: Point, file: Path) -> Point:
    """Count 64 random 3-way marginals of a file, 200,000 rows at a time."""
    import numpy as np

    from siloweave.datasets import adult_schema
    from siloweave.statistics.marginals import random_workload
    from siloweave.tables import Encoder, read_batches

    encoder = Encoder(adult_schema())
    workload = random_workload(encoder.domain, 3, 64, seed=123)
    start = time.perf_counter()
    counts = [np.zeros(encoder.domain.shape(query), np.int64) for query in workload]
    for piece in read_batches(file, 200_000):
        for total, found in zip(counts, encoder.encode(piece).count(workload), strict=True):
            total += found
    seconds = time.perf_counter() - start
    if int(counts[0].sum()) != point["at"]:
        raise SystemExit(f"{int(counts[0].sum())} rows were counted instead of {point['at']}")
    return {"seconds": seconds, "file_mb": file.stat().st_size / 1e6}


# Running


def one(point: Point, folder: Path | None) -> None:
    if point["sweep"] == "stream" and folder is not None:
        result = stream(point, folder / f"{point['at']}.{point['series']}")
    else:
        result = fit(point)
    used = resource.getrusage(resource.RUSAGE_SELF)
    result["cpu_seconds"] = used.ru_utime + used.ru_stime
    result["peak_mb"] = used.ru_maxrss * 1024 / 1e6
    print(json.dumps(result))


def run(point: Point, folder: Path, limit: float) -> Point:
    if point["sweep"] == "stream" and not (folder / f"{point['at']}.csv").exists():
        make = [sys.executable, __file__, "--make", str(point["at"]), "--folder", str(folder)]
        subprocess.run(make, check=True, timeout=limit)
    command = [sys.executable, __file__, "--one", json.dumps(point), "--folder", str(folder)]
    load = os.getloadavg()[0]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode:
        raise SystemExit(f"{name_of(point)}: {done.stderr[-2000:]}")
    return {**point, **json.loads(done.stdout.splitlines()[-1]), "load": load}


def run_missing(output: Path, limit: float, only: str | None) -> dict[str, Point]:
    found: dict[str, Point] = json.loads(output.read_text()) if output.exists() else {}
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for point in points():
            name = name_of(point)
            if name in found or (only and not name.startswith(only)):
                continue
            found[name] = made = run(point, Path(scratch), limit)
            output.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{name}: {made['seconds']:.1f} s, {made['peak_mb']:.0f} MB", flush=True)
    return found


# Pictures

LABELS = {
    "flaim": "FLAIM, 100 parties",
    "aim": "AIM",
    "parquet": "Parquet",
    "csv": "CSV",
}


def label_of(point: Point) -> str:
    return LABELS.get(str(point["series"]), str(point["series"]))


def curves(found: dict[str, Point], sweep: str, value) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for point in points():
        made = found.get(name_of(point))
        if made and point["sweep"] == sweep:
            lines.setdefault(label_of(point), []).append((float(point["at"]), value(made)))
    return lines


def sent_formula(made: Point) -> float:
    """Bytes that a party sends: numbers of 32 bits, a frame around every reply, and its ledger."""
    replies = float(made["messages"])
    return float(made["sent_formula"]) + REPLY_BYTES * replies + ENTRY_BYTES * (replies - 2)


def rising(line: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A constant and a share that grows with what is swept, through the first and last point."""
    (first, low), (last, high) = line[0], line[-1]
    steps = [first * (last / first) ** (i / 24) for i in range(25)]
    return [(a, low + (high - low) * (a - first) / (last - first)) for a in steps]


def expected(found: dict[str, Point], sweep: str) -> tuple[list, list, list]:
    """What seconds, bytes and megabytes should be; docs/reference/scaling.md says why."""
    seconds = curves(found, sweep, lambda m: m["cpu_seconds"])
    memory = curves(found, sweep, lambda m: m["peak_mb"])
    sent = list(curves(found, sweep, sent_formula).values())
    if sweep == "parties":
        return [rising(v) for v in seconds.values()], sent, [rising(v) for v in memory.values()]
    if sweep == "rows":
        return [rising(seconds[LABELS["flaim"]])], sent, [rising(memory[LABELS["flaim"]])]
    return [], sent, []


def draw(found: dict[str, Point]) -> None:
    from log_plot import picture

    IMAGES.mkdir(parents=True, exist_ok=True)
    labels = {
        "parties": ("number of parties", 10),
        "rows": ("rows of all parties together", 10),
        "columns": ("columns, of 8 bins each", 2),
        "bins": ("bins of each of 10 columns", 2),
    }
    for sweep, (label, base) in labels.items():
        time_lines = curves(found, sweep, lambda m: m["cpu_seconds"])
        sent = curves(found, sweep, lambda m: m["sent"])
        memory = curves(found, sweep, lambda m: m["peak_mb"])
        if not time_lines:
            continue
        time_guides, sent_guides, memory_guides = expected(found, sweep)
        panels = [
            ("processor seconds", time_lines, time_guides),
            ("bytes that a party sends", sent, sent_guides),
            ("peak memory, MB", memory, memory_guides),
        ]
        picture(IMAGES / f"scaling-{sweep}.svg", label, panels, base, "expected")
    seconds = curves(found, "stream", lambda m: m["seconds"])
    if seconds:
        memory = curves(found, "stream", lambda m: m["peak_mb"])
        panels = [
            ("seconds", seconds, [rising(line) for line in seconds.values()]),
            ("peak memory, MB", memory, []),
        ]
        picture(IMAGES / "scaling-stream.svg", "rows of one file", panels, 10, "constant + linear")


def table(found: dict[str, Point], sweep: str) -> str:
    """One sweep as Markdown."""
    streaming = sweep == "stream"
    more = (
        ["file MB"] if streaming else ["rounds", "model MB", "kB sent", "expected", "kB received"]
    )
    head = [sweep, "", "seconds", "processor s", "peak MB", *more]
    lines = ["| " + " | ".join(head) + " |", "|---:|---|" + "---:|" * (len(head) - 2)]
    for point in points():
        made = found.get(name_of(point))
        if not made or point["sweep"] != sweep:
            continue
        row = [f"{point['at']:,}", label_of(point)]
        row += [f"{made[k]:.1f}" for k in ("seconds", "cpu_seconds")]
        row.append(f"{made['peak_mb']:,.0f}")
        if streaming:
            row.append(f"{made['file_mb']:,.0f}")
        else:
            row += [str(made["rounds"]), f"{8e-6 * made['model_cells']:,.3f}"]
            sizes = (made["sent"], sent_formula(made), made["received"])
            row += [f"{size / 1e3:,.1f}" for size in sizes]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def fill_all(page: Path, found: dict[str, Point]) -> None:
    """Put the tables between the page's marks."""
    for sweep in dict.fromkeys(str(p["sweep"]) for p in points()):
        fill(page, sweep, table(found, sweep))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="run nothing")
    parser.add_argument("--only", help="points whose name starts so, such as parties/")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one point")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--make", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        make_stream(arguments.folder, arguments.make)
        return
    if arguments.one:
        one(json.loads(arguments.one), arguments.folder)
        return
    if arguments.draw:
        found = json.loads(arguments.output.read_text())
    else:
        found = run_missing(arguments.output, arguments.limit, arguments.only)
    draw(found)
    fill_all(PAGE, found)


if __name__ == "__main__":
    main()
