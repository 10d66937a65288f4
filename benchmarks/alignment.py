"""What it costs to find common rows: seconds, processor seconds, messages and bytes.

    python benchmarks/alignment.py
    python benchmarks/alignment.py --ids 1000000 --parties 2 --workers 8
    python benchmarks/alignment.py --ids 45000 --peer-python peer/bin/python

Two parties with 45,000 ids each, half of them common, with one process and with two; then three and
five parties. Each line is added to `results/alignment.jsonl`. All parties run in one process here,
one after the other, so a study over the network waits for about the largest of them instead of all.
With `--peer-python`, an interpreter that has the package openmined-psi, it compares the same ids
right after, and both results must be the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import sources

import siloweave as sw

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "alignment.jsonl"
CASES = [(45_000, 2, 1), (45_000, 2, 2), (45_000, 3, 2), (45_000, 5, 2)]


def processor() -> float:
    """Processor seconds of this process and of those that it started."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, who))


def tables(ids: int, parties: int) -> list[sw.Table]:
    """Parties with `ids` rows each, of which half are common to all."""
    rng = np.random.default_rng(0)
    common = np.arange(ids // 2)
    made = []
    for party in range(parties):
        own = 10**9 * (party + 1) + np.arange(ids - len(common))
        mixed = rng.permutation(np.concatenate([common, own]))
        made.append(sw.Table.from_columns({"id": (mixed, None)}))
    return made


def peer(data: list[sw.Table], python: str, ours: set[int]) -> dict[str, object]:
    """The same two parties by OpenMined's package; refuses another result."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("one", "two")]
        for file, table in zip(files, data, strict=True):
            Path(file).write_text("\n".join(map(str, table.values("id"))))
        script = str(HERE / "peers" / "openmined_psi.py")
        done = subprocess.run([python, script, *files], capture_output=True, check=True)
    told = json.loads(done.stdout)
    if set(map(int, told.pop("common"))) != ours:
        raise SystemExit("the peer found other common ids")
    return {"peer": "openmined-psi", **{f"peer_{name}": one for name, one in told.items()}}


def measured(ids: int, parties: int, workers: int, python: str | None) -> dict[str, object]:
    """One alignment."""
    data, busy, start = tables(ids, parties), processor(), time.perf_counter()
    found = sw.align_rows(data, ["id"], workers=workers)
    wall, busy = time.perf_counter() - start, processor() - busy
    traffic = list(found.cost.parties.values())
    if found.report.common != ids // 2:
        raise SystemExit(f"{found.report.common} common rows where {ids // 2} were expected")
    return {
        "ids": ids,
        "parties": parties,
        "workers": workers,
        "seconds": round(wall, 2),
        "processor_seconds": round(busy, 2),
        "load_before": round(os.getloadavg()[0], 1),
        "questions": found.cost.rounds,
        "messages": sum(one.messages for one in traffic),
        "bytes_sent_by_parties": [one.bytes_from_party for one in traffic],
        "bytes_received_by_parties": [one.bytes_to_party for one in traffic],
        "bytes_of_points_in_a_message": 32 * min(ids, 2**16),
        "python": platform.python_version(),
        **(peer(data, python, set(found.tables["party-1"].values("id"))) if python else {}),
    }


def main() -> None:
    """Run the cases, print and keep a line of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ids", type=int)
    parser.add_argument("--parties", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--peer-python")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where lines are kept")
    given = parser.parse_args()
    if given.peer_python:
        sources.require_path(Path(given.peer_python), "the peer's interpreter")
    cases = [(given.ids, given.parties, given.workers)] if given.ids else CASES
    for case in cases:
        ids, parties, workers = case
        line = measured(ids, parties, workers, given.peer_python)
        print(json.dumps(line), flush=True)
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
