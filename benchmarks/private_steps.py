"""Seconds a step and a fit of private networks on Adult: this version beside another checkout.

Run: ``python benchmarks/private_steps.py --before ../other/src``. Each run is a process of its own,
and both versions take turns, so that a busy machine slows both; medians are printed.
Steps are timed behind the first two fifths of a run, so that nothing is compiled meanwhile.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

METHODS = ("ctgan", "tabddpm", "tldm", "vertigan")
STEP = re.compile(r"(?:step|round) ([\d,]+) of")


def made(name, steps):
    import siloweave as sw

    if name == "ctgan":
        return sw.DPCTGAN(steps=steps)
    if name == "tabddpm":
        return sw.DPTabDDPM(steps=steps, target="income")
    if name == "tldm":
        half: Any = {"steps": steps // 2}
        return sw.DPTLDM(autoencoder=half, diffusion=half, target="income")
    return sw.VertiGAN(rounds=max(2, steps // 10))


def one(name, steps):
    """One fit, timed; a line of JSON."""
    import siloweave as sw
    from siloweave.datasets import adult, adult_schema

    table, marks = adult(), []
    halves = {"a": table.select(table.names[:8]), "b": table.select(table.names[8:])}

    def heard(text, done):
        found = STEP.search(text)
        if found:
            marks.append((time.perf_counter(), int(found[1].replace(",", ""))))

    began = time.perf_counter()
    data = halves if name == "vertigan" else table
    made(name, steps).fit(data, adult_schema(), budget=sw.Budget(1.0, 1e-5), progress=heard)
    whole = time.perf_counter() - began
    stage = [marks[-1]]  # the last one, where there are two
    for mark in reversed(marks[:-1]):
        if mark[1] >= stage[-1][1]:
            break
        stage.append(mark)
    end, before = stage[0], stage[:0:-1]
    start = next((mark for mark in before if mark[1] >= 0.4 * end[1]), before[-1])
    pace = (end[0] - start[0]) / max(end[1] - start[1], 1)
    print(json.dumps({"seconds": whole, "step": pace, "cpu": time.process_time()}))


def run(source, name, steps):
    """In a process of its own, by the code below `source`."""
    own = {**os.environ, "PYTHONPATH": str(source)}
    words = [sys.executable, __file__, "--one", name, "--steps", str(steps)]
    done = subprocess.run(words, env=own, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the src folder of another checkout")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--one", help="one fit in this process")
    given = parser.parse_args()
    if given.one:
        one(given.one, given.steps)
        return
    here = Path(__file__).resolve().parent.parent / "src"
    versions = {"now": here} | ({"before": given.before.resolve()} if given.before else {})
    result: dict[str, Any] = {}
    for name in given.methods:
        found: dict[str, list[Any]] = {version: [] for version in versions}
        for _ in range(given.repeats):
            for version, source in versions.items():
                found[version].append(run(source, name, given.steps))
        for version, runs in found.items():
            for kind in ("step", "seconds", "cpu"):
                values = [each[kind] for each in runs]
                result.setdefault(name, {}).setdefault(version, {})[kind] = values
            middle = {kind: statistics.median(result[name][version][kind]) for kind in runs[0]}
            print(f"{name:9} {version:6} {middle['step'] * 1e3:7.1f} ms a step, "
                  f"{middle['seconds']:6.1f} s a fit, {middle['cpu']:6.1f} s of processors",
                  flush=True)  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
