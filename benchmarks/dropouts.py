"""One masked sum of many integers whose parties vanish: seconds and bytes, by number of parties.

Run: ``python benchmarks/dropouts.py`` runs what is missing in results/dropouts.jsonl, prints the
table, and fills docs/reference/scaling-network.md. Each point is a process of its own, all parties
of which share it; frames pass the wire as on a network. Half of those that vanish do so before they
mask, half before they open the sum.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from marked import fill, table
from masked_sums import MaskedSum

from siloweave.federation.session import Session

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "dropouts.jsonl"
PAGE = HERE.parent / "docs" / "reference" / "scaling-network.md"
POINTS = [(4, 0), (4, 1), (10, 0), (10, 2), (30, 0), (30, 5), (100, 0), (100, 10), (100, 30)]


def one(parties: int, gone: int) -> dict[str, float]:
    """Keys, one sum of 100,000 integers, and what opens it."""
    names = [f"party-{i:03d}" for i in range(parties)]
    sums = MaskedSum(names, gone)
    session = Session(names, sums.carrier, run="bench", dropouts=gone)
    began = time.perf_counter(), time.process_time()
    found = sums.run(session)
    seconds, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    traffic = session.traffic[names[-1]]
    return {
        "parties": parties, "vanish": gone, "counted": found["counted"], "seconds": seconds,
        "processor": processor, "sent": traffic.bytes_from_party, "got": traffic.bytes_to_party,
        "messages": traffic.messages, "sigma": found["sigma"], "load": os.getloadavg()[0],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def lines(found: list[dict[str, float]]) -> str:
    """The table of a page."""
    head = ["parties", "may vanish", "counted", "seconds", "processor s", "peak MB", "messages",
            "kB sent", "kB received", "σ of the noise"]  # fmt: skip
    rows = [
        [f"{r['parties']}", f"{r['vanish']}", f"{r['counted']}", f"{r['seconds']:.1f}",
         f"{r['processor']:.1f}", f"{r['peak_mb']:.0f}", f"{r['messages']}",
         f"{r['sent'] / 1e3:.0f}", f"{r['got'] / 1e3:.0f}", f"{r['sigma']:.2f}"]
        for r in sorted(found, key=lambda r: (r["parties"], r["vanish"]))
    ]  # fmt: skip
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(*asked.one)))
        return
    text = RESULTS.read_text() if RESULTS.exists() else ""
    found = [json.loads(line) for line in text.splitlines()]
    for parties, gone in POINTS:
        if any((r["parties"], r["vanish"]) == (parties, gone) for r in found):
            continue
        command = [sys.executable, __file__, "--one", str(parties), str(gone)]
        made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(made))
        with RESULTS.open("a") as file:
            file.write(made)
    made = lines(found)
    print(made)
    fill(PAGE, "dropouts", made)


if __name__ == "__main__":
    main()
