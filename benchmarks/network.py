"""The network engine by number of parties and by size of a message: seconds, processor, memory.

Run, with the flower extra: ``python benchmarks/network.py`` runs what is missing in
results/network.jsonl, prints the tables, and fills docs/reference/scaling-network.md. All parties
share this process and answer with what they are sent; the SuperLink, what pairs it with the
coordinator, and each party's node are processes of their own, over TLS on this machine's loopback.

Of a masked sum, parties vanish with their nodes: half of those that do before they mask, half
before the sum is opened. The coordinator waits for them until its deadline.
"""

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sources
from marked import fill, table
from masked_sums import DOMAIN, MaskedSum

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sources.require_module("flwr", "flower")

from tests.federation.engines import (  # noqa: E402
    body_in,
    children,
    echo,
    envelope,
    free_port,
    provisioned,
    seals_of,
)

from siloweave.federation import engine  # noqa: E402
from siloweave.federation.carriers.sealed import SealedCarrier  # noqa: E402
from siloweave.federation.session import Session  # noqa: E402
from siloweave.protocols.secure_sums import exchange_keys  # noqa: E402

RESULTS = HERE / "results" / "network.jsonl"
PAGE = HERE.parent / "docs" / "reference" / "scaling-network.md"
NODES, MEGABYTES = (2, 10, 20, 100), (20, 100, 250)
SUM, VANISH = 100, (0, 10)  # parties of a sum, and of those that vanish
WAIT_S = 60.0  # deadline of a party of a sum, unless another is given
IDLE_S = 30.0
Names = tuple[str, ...]
Groups = dict[str, set[int]]


def processor(number: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(number: int, file: str, field: str) -> float:
    """MB of a process, by a line of a file of the system's."""
    lines = Path(f"/proc/{number}/{file}").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith(f"{field}:")) / 1024


def names_of(count: int) -> Names:
    return tuple(f"p{i:03d}" for i in range(count))


def echoes(name: str) -> Callable[[Any], bytes]:
    return echo


@contextmanager
def study(
    count: int, reply: Callable[[str], Callable[[Any], bytes]] = echoes
) -> Iterator[tuple[Any, dict[str, ExitStack], Groups]]:
    """A coordinator, its parties by name, each of which ends by itself, and all processes."""
    names = names_of(count)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        home, address = provisioned(Path(folder), names), f"127.0.0.1:{free_port()}"
        seals = seals_of("coordinator", names)
        link = stack.enter_context(engine.Engine(home / "office", seals, address, seconds=1500.0))
        told = link._heard
        while link._heard == told:  # until it admits all nodes, which would take its processor
            time.sleep(0.1)
        parties = {name: stack.enter_context(ExitStack()) for name in names}
        for name, own in parties.items():
            party = engine.answering(home / name, seals_of(name, names), reply(name), address)
            own.enter_context(own.enter_context(party))
        if reply is echoes:
            asked(link, names, 0, 100)
        superlink, pairing = (one.number for one in link.processes)
        nodes = children(os.getpid()) - {superlink, pairing}
        yield link, parties, {
            "superlink": {superlink}, "pairing": {pairing}, "nodes": nodes, "ends": {os.getpid()},
        }  # fmt: skip


def asked(link: Any, names: Names, step: int, size: int) -> None:
    """Ask all parties at the same time, and compare what comes back."""

    def one(name: str) -> None:
        body = secrets.token_bytes(size)
        if body_in(link.send(name, envelope(name, body, step))) != body:
            raise SystemExit(f"{name} answered something else")

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(one, names))


def measured(groups: Groups, work: Callable[[], None]) -> dict[str, float]:
    """Seconds of some work, and what each kind of process computed that is still there."""
    before = {one: processor(one) for ones in groups.values() for one in ones}
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    spent = {
        kind: sum(processor(n) - before[n] for n in ones if Path(f"/proc/{n}").exists())
        for kind, ones in groups.items()
    }
    return {"seconds": seconds, **spent, "load": os.getloadavg()[0]}


def of_nodes(count: int) -> dict[str, Any]:
    """The start of so many nodes, a while without a question, and rounds."""
    began = time.monotonic()
    with study(count) as (link, parties, groups):
        names = tuple(parties)
        found = {
            "nodes": count,
            "start": time.monotonic() - began,
            "started": sum(map(processor, groups["nodes"])),
            "nodes_mb": sum(memory(one, "smaps_rollup", "Pss") for one in groups["nodes"]),
            "idle": measured(groups, lambda: time.sleep(IDLE_S)),
        }
        for size, kind in ((100, "small"), (400_000, "large")):
            found[kind] = measured(groups, partial(asked, link, names, size, size))
    return found


def of_message(megabytes: int) -> dict[str, Any]:
    """One message and an answer of the same size."""
    with study(1) as (link, parties, groups):
        work = measured(groups, lambda: asked(link, tuple(parties), 1, megabytes * 10**6))
        peaks = [memory(one, "status", "VmHWM") for ones in groups.values() for one in ones]
    return {"megabytes": megabytes, **work, "peak_mb": max(peaks), "peaks_mb": sum(peaks)}


def of_sum(gone: int, count: int = SUM, wait: float = WAIT_S) -> dict[str, Any]:
    """Keys, one masked sum of 100,000 integers, and what opens it, once all nodes are there."""
    names = names_of(count)
    sums = MaskedSum(names, gone)

    def reply(name: str) -> Callable[[Any], bytes]:
        return lambda question: sums.carrier.parties[name].answer(question.data)

    with study(count, reply) as (link, parties, groups):

        class Leaving(SealedCarrier):
            """Carries frames over the engine, where parties vanish."""

            def send(self, name: str, frame: bytes) -> bytes:
                if sums.vanishes(name, frame):
                    parties[name].close()
                return super().send(name, frame)

        transport = Leaving(link, link._seals)
        there = Session(names, transport, run="first", at_once=count, dropouts=gone)
        exchange_keys(there, DOMAIN)  # once all nodes are there
        session = Session(names, transport, run="sum", at_once=count, dropouts=gone)
        link._seconds = wait
        made: dict[str, float] = {}
        spent = measured(groups, lambda: made.update(sums.run(session)))
        traffic = session.traffic[names[-1]]
    return {
        "sum": count, "vanish": gone, "wait": wait, "keys": made["keys"], **spent,
        "messages": traffic.messages, "sent": traffic.bytes_from_party,
        "got": traffic.bytes_to_party,
    }  # fmt: skip


def tables(found: list[dict[str, Any]]) -> str:
    """Those of the page."""
    head = ["parties", "first round, s", "processor s of a node's start", "MB of a node",
            "idle: SuperLink, processor", "a round, s", "its processor s", "of 400 kB, s",
            "its processor s", "load"]  # fmt: skip
    rows = [
        [f"{r['nodes']}", f"{r['start']:.0f}", f"{r['started'] / r['nodes']:.1f}",
         f"{r['nodes_mb'] / r['nodes']:.0f}", f"{r['idle']['superlink'] / IDLE_S:.0%}",
         f"{r['small']['seconds']:.1f}", f"{total(r['small']):.1f}",
         f"{r['large']['seconds']:.1f}", f"{total(r['large']):.1f}", f"{r['large']['load']:.0f}"]
        for r in sorted((r for r in found if "start" in r), key=lambda r: r["nodes"])
    ]  # fmt: skip
    first = table(head, rows)
    kinds = ("superlink", "pairing", "nodes", "ends")
    head = ["MB there and back", "seconds", "SuperLink, processor s", "pairing", "node",
            "coordinator and party", "largest process, MB", "load"]  # fmt: skip
    rows = [
        [f"{r['megabytes']}", f"{r['seconds']:.1f}", *(f"{r[kind]:.1f}" for kind in kinds),
         f"{r['peak_mb']:.0f}", f"{r['load']:.0f}"]
        for r in sorted((r for r in found if "megabytes" in r), key=lambda r: r["megabytes"])
    ]  # fmt: skip
    second = table(head, rows)
    head = ["parties", "that vanish", "deadline, s", "seconds", "for keys", "processor s",
            "messages", "kB sent", "kB received", "load"]  # fmt: skip
    rows = [
        [f"{r['sum']}", f"{r['vanish']}", f"{r['wait']:.0f}", f"{r['seconds']:.0f}",
         f"{r['keys']:.0f}", f"{total(r):.0f}", f"{r['messages']}", f"{r['sent'] / 1e3:.0f}",
         f"{r['got'] / 1e3:.0f}", f"{r['load']:.0f}"]
        for r in sorted((r for r in found if "sum" in r), key=lambda r: (r["sum"], r["vanish"]))
    ]  # fmt: skip
    return f"{first}\n\n{second}\n\n{table(head, rows)}"


def total(spent: dict[str, float]) -> float:
    return sum(spent[kind] for kind in ("superlink", "pairing", "nodes", "ends"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=NODES)
    parser.add_argument("--megabytes", type=int, nargs="*", default=MEGABYTES)
    parser.add_argument("--sums", type=int, nargs="*", default=VANISH)
    parser.add_argument("--parties", type=int, default=SUM, help="of a sum")
    parser.add_argument("--wait", type=float, default=WAIT_S, help="deadline of a party of a sum")
    wanted = parser.parse_args()
    text = RESULTS.read_text() if RESULTS.exists() else ""
    found = [json.loads(line) for line in text.splitlines()]
    points: list[tuple[str, str, int, Callable[[int], dict[str, Any]]]]
    points = [("start", "nodes", n, of_nodes) for n in wanted.nodes]
    points += [("megabytes", "megabytes", n, of_message) for n in wanted.megabytes]
    summed = partial(of_sum, count=wanted.parties, wait=wanted.wait)
    points += [("sum", "vanish", gone, summed) for gone in wanted.sums]
    this = {"sum": wanted.parties, "wait": wanted.wait}
    for mark, field, number, work in points:
        same = {field: number} | (this if mark == "sum" else {})
        if any(mark in r and same.items() <= r.items() for r in found):
            continue
        found.append(work(number))
        with RESULTS.open("a") as file:
            file.write(json.dumps(found[-1]) + "\n")
    made = tables(found)
    print(made)
    fill(PAGE, "network", made)


if __name__ == "__main__":
    main()
