"""How fast networks train and draw on this machine's card, or on its processor: absolute figures.

    pip install ".[cuda]"                 # see docs/guides/on-a-gpu.md
    python benchmarks/device.py --out card.jsonl  # on a machine with a card, some minutes
    JAX_PLATFORMS=cpu python benchmarks/device.py --rows 5000 --out processor.jsonl
    python benchmarks/device.py --quick           # proves the script, a few minutes anywhere

The table is Adult, which comes with the package, by default all of its rows. Each method runs in a
process of its own, which fits three times: a few steps, the same few again, and many. The first fit
compiles. Steps a second are the difference of steps between the last two over that of their
seconds, so neither compilation nor preprocessing counts; `fit_s` is the long fit as a whole.
`sample_s` is the second of two draws of as many rows as were fitted. Memory is the card's peak, as
it counts itself; `process_mb` is the process's, at most. Where no time is left, no method is
started: `--minutes` is 8 by default. A processor draws all of Adult too slowly for that, so it has
fewer rows above: give a card as many, to compare. Figures are of one run, and of the device that is
named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from flaim_adult import commit

FEW, MANY, QUICK = 200, 2_000, (20, 60)
QUICK_ROWS = 2_000
_LEAST_S = 20.0  # that a method is given, at least


def _of_steps(name: str) -> Callable[[int, int], Any]:
    """A method's settings for so many steps; of GANs whole epochs, of 500 rows a step."""
    import siloweave as sw

    def synthesizer(steps: int, rows: int) -> Any:
        if name == "CTGAN":
            return sw.CTGAN(epochs=max(1, round(steps / steps_of_epoch(rows))))
        if name == "TabDDPM":
            return sw.TabDDPM(steps=steps)
        return getattr(sw, name)(diffusion={"steps": steps})

    return synthesizer


METHODS = ("TabDDPM", "PointDiff", "SiloFuse", "CTGAN")


def steps_of_epoch(rows: int) -> int:
    """CTGAN's steps in an epoch, with its batch of 500."""
    return max(1, rows // 500)


def steps_taken(name: str, steps: int, rows: int) -> int:
    """How many steps a fit takes that was asked for `steps`."""
    if name != "CTGAN":
        return steps
    epoch = steps_of_epoch(rows)
    return epoch * max(1, round(steps / epoch))


def measure(name: str, few: int, many: int, rows: int) -> dict[str, Any]:
    """Fit one method three times, draw twice, and return what it took."""
    import jax

    import siloweave as sw
    from siloweave.datasets import adult, adult_schema

    device = jax.devices()[0]
    table, schema = adult(), adult_schema()
    rows = min(rows or table.num_rows, table.num_rows)
    table = table.take(range(rows))
    data: Any = table
    if name == "SiloFuse":
        half = len(table.names) // 2
        data = [table.select(list(table.names[:half])), table.select(list(table.names[half:]))]
    synthesizer = _of_steps(name)
    seconds = []
    for steps in (few, few, many):
        start = time.perf_counter()
        fitted = synthesizer(steps, rows).fit(data, schema, seed=0, progress=False)
        seconds.append(time.perf_counter() - start)
    draws = []
    for seed in (1, 2):
        start = time.perf_counter()
        drawn = sw.read(fitted.sample(rows, seed=seed))
        draws.append(time.perf_counter() - start)
    assert drawn.num_rows == rows
    more = steps_taken(name, many, rows) - steps_taken(name, few, rows)
    memory = device.memory_stats() or {}  # a processor has none
    peak = memory.get("peak_bytes_in_use")
    return {
        "method": name,
        "device": device.device_kind,
        "platform": device.platform,
        "jax": jax.__version__,
        "commit": commit(),
        "rows": rows,
        "columns": len(table.names),
        "steps": steps_taken(name, many, rows),
        "first_fit_s": seconds[0],
        "fit_s": seconds[2],
        "steps_a_second": more / (seconds[2] - seconds[1]) if seconds[2] > seconds[1] else None,
        "sample_s": draws[1],
        "device_mb": None if peak is None else peak / 1e6,
        "process_mb": getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6,  # Linux counts KiB
        "load": os.getloadavg()[0],
    }


def line(row: dict[str, Any]) -> str:
    """One line for a reader."""
    pace, memory = row["steps_a_second"], row["device_mb"]
    return (
        f"{row['method']:10} {row['device']}: "
        f"{'too fast to tell' if pace is None else f'{pace:,.0f} steps a second'}, "
        f"{row['steps']:,} steps in {row['fit_s']:.1f} s (first fit {row['first_fit_s']:.1f} s), "
        f"{row['rows']:,} rows drawn in {row['sample_s']:.2f} s, "
        f"{'no count of its memory' if memory is None else f'{memory:,.0f} MB on it'}, "
        f"process {row['process_mb']:,.0f} MB"
    )


def main() -> None:
    """Measure each method in a process of its own."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parse.add_argument("--few", type=int, default=FEW, help="steps of the short fits")
    parse.add_argument("--many", type=int, default=MANY, help="steps of the long fit")
    parse.add_argument("--rows", type=int, default=0, help="rows of Adult; 0 is all")
    parse.add_argument("--minutes", type=float, default=8.0, help="for all methods together")
    parse.add_argument("--quick", action="store_true", help="few rows and steps, to try the script")
    parse.add_argument("--out", type=Path, help="file that lines of JSON are added to")
    parse.add_argument("--one", choices=METHODS, help="measure this one in this process")
    args = parse.parse_args()
    if args.quick:
        (args.few, args.many), args.rows = QUICK, QUICK_ROWS
    if not 0 < args.few < args.many:
        parse.error(f"--few {args.few} must be at least 1 and below --many {args.many}")
    if args.one:
        print(json.dumps(measure(args.one, args.few, args.many, args.rows)))
        return
    end = time.monotonic() + 60 * args.minutes
    sizes = ["--few", str(args.few), "--many", str(args.many), "--rows", str(args.rows)]
    for name in args.methods:
        left = end - time.monotonic()
        if left < _LEAST_S:
            print(f"{name:10} not started: {args.minutes:g} minutes are over")
            continue
        command = [sys.executable, __file__, "--one", name, *sizes]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            print(f"{name:10} stopped: {args.minutes:g} minutes are over")
            continue
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:]
            print(f"{name:10} failed: {' '.join(reason)}")
            continue
        row = json.loads(done.stdout.strip().splitlines()[-1])
        print(line(row), flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
