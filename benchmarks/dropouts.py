"""One masked sum of many integers whose parties vanish: seconds and bytes, by number of parties.

Run: ``python benchmarks/dropouts.py`` runs what is missing in results/dropouts.jsonl, prints the
table, and fills docs/reference/scaling.md. Each point is a process of its own, all parties of which
share it; frames pass the wire as on a network. Half of those that vanish do so before they mask,
half before they open the sum.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "dropouts.jsonl"
PAGE = HERE.parent / "docs" / "reference" / "scaling.md"
CELLS = (400, 250)
POINTS = [(4, 0), (4, 1), (10, 0), (10, 2), (30, 0), (30, 5), (100, 0), (100, 10), (100, 30)]


def one(parties: int, gone: int, rows: int = 1000) -> dict[str, float]:
    """Keys, one sum of 100,000 integers, and what opens it."""
    from siloweave.errors import RosterError
    from siloweave.federation import InProcess, MemoryStore, Session, Site, messages
    from siloweave.federation.messages import Envelope
    from siloweave.federation.site import Terms
    from siloweave.privacy import Budget, Ledger
    from siloweave.privacy.ledger import Identity
    from siloweave.privacy.mechanisms import OSEntropy
    from siloweave.protocols.secure_sums import (
        HANDLERS,
        Count,
        OpenSum,
        SumNoise,
        exchange_keys,
        noisy_marginals,
    )
    from siloweave.statistics.marginals import marginal
    from siloweave.tables import Codes
    from siloweave.tables.codes import Domain

    domain, clique = Domain(("a", "b"), CELLS), ("a", "b")
    names, rng = [f"party-{i:03d}" for i in range(parties)], np.random.default_rng(0)
    people = {n: Identity.create() for n in names}
    held = {
        n: Codes(domain, tuple(rng.integers(0, s, rows).astype(np.uint16) for s in CELLS))
        for n in names
    }
    roster = {n: p.public for n, p in people.items()}
    limit, terms = Budget(10.0, 1e-6), Terms(roster, dropouts=gone)
    sites = {
        n: Site(n, held[n], ledger=Ledger(n, limit=limit, identity=people[n]), terms=terms,
                entropy=OSEntropy(), store=MemoryStore())
        for n in names
    }  # fmt: skip
    early, late = names[: gone // 2], names[gone // 2 : gone]

    class Vanishing(InProcess):
        def send(self, name, frame):
            kind = type(messages.decode_request(messages.decode(frame, Envelope).body, HANDLERS))
            if (kind is Count and name in early) or (kind is OpenSum and name in late):
                raise RosterError(f"{name} is gone")
            return super().send(name, frame)

    session = Session(names, Vanishing(sites, HANDLERS), run="bench", dropouts=gone)
    began, marks = (time.perf_counter(), time.process_time()), {}
    keys = exchange_keys(session, domain)
    marks["keys"] = time.perf_counter() - began[0]
    noise = SumNoise(50.0, 1, gone)
    (table,), sigma, counted = noisy_marginals(session, keys, domain, [clique], noise)
    seconds, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    wrong = table - np.sum([marginal(held[n], clique) for n in counted], axis=0)
    if len(counted) != parties - len(early) or not 0.95 < wrong.std() / sigma < 1.05:
        raise SystemExit(f"the sum is wrong: {wrong.std()} of {sigma}, {len(counted)} parties")
    traffic = session.traffic[names[-1]]
    return {
        "parties": parties, "vanish": gone, "counted": len(counted), "seconds": seconds,
        "processor": processor, "sent": traffic.bytes_from_party, "got": traffic.bytes_to_party,
        "messages": traffic.messages, "sigma": sigma, "load": os.getloadavg()[0],
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
    every = [head, ["---:"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in every)


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
    table = lines(found)
    print(table)
    head, _, rest = PAGE.read_text().partition("<!-- dropouts -->")
    _, mark, tail = rest.partition("<!-- /dropouts -->")
    if mark:
        PAGE.write_text(f"{head}<!-- dropouts -->\n\n{table}\n\n{mark}{tail}")


if __name__ == "__main__":
    main()
