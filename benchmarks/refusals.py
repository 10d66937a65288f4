"""How long each refusal takes: what is malformed, forged, repeated or too large, at both ends.

Run: ``python benchmarks/refusals.py`` tries what is missing in results/refusals.jsonl, prints the
table, and fills docs/reference/scaling-network.md. Frames go to a party's socket, as an engine
hands them over, answers to a coordinator in process, and connections to a server with TLS, all on
this machine. A frame of the party's coordinator is answered between two that are refused: what
refuses must go on. Nodes with unknown keys, and orders of strangers, are tried by ``make engine``.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from marked import fill, table

from siloweave.errors import SiloweaveError
from siloweave.federation import certificates, frames, local, messages
from siloweave.federation.frames import Seals
from siloweave.federation.messages import Array, Envelope
from siloweave.federation.site import MemoryStore, Site, Terms
from siloweave.methods.aim.messages import SelectQuery
from siloweave.methods.aim.party import HANDLERS
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Identity, Ledger
from siloweave.protocols.secure_sums import Count, KeyRequest, ModelMessage
from siloweave.protocols.workloads import StudyWorkload
from siloweave.tables.codes import Codes, Domain

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.federation.tls import server  # noqa: E402

RESULTS = HERE / "results" / "refusals.jsonl"
PAGE = HERE.parent / "docs" / "reference" / "scaling-network.md"
DOMAIN = Domain(tuple("abcd"), (1200, 1200, 1200, 2))
TIMES = 10_000
"""How often something is tried at most; less where a try takes long."""
FACTS = {"workload": StudyWorkload((("a", "b"), ("c", "d")), 80.0)}
Try = Callable[[int], object]
"""Does something that must be refused, by its number."""


class Ends:
    """A coordinator, a party that answers at its socket, and what a stranger can make."""

    def __init__(self, folder: Path) -> None:
        office, clinic, stranger = (Identity.create() for _ in range(3))
        parties = {"clinic": frames.keys_for("flu", clinic)}
        roster = frames.signed_roster("flu", office, parties)
        self.office = Seals("coordinator", office, roster)
        self.clinic = Seals("clinic", clinic, roster)
        self.forger = Seals("coordinator", office, roster)
        self.forger._identity = stranger  # who knows the roster, and has a key of its own
        other = frames.signed_roster(
            "asthma", office, {"clinic": frames.keys_for("asthma", clinic)}
        )
        self.elsewhere = Seals("coordinator", office, other)
        rng = np.random.default_rng(0)
        columns = tuple(rng.integers(0, n, 1000).astype(np.uint16) for n in DOMAIN.sizes)
        self.site = Site(
            "clinic", Codes(DOMAIN, columns), store=MemoryStore(), entropy=mechanisms.OSEntropy(),
            ledger=Ledger("clinic", limit=Budget(1e3, 1e-6), identity=clinic),
            terms=Terms({"clinic": clinic.public}, tolerated=0, facts=FACTS),
        )  # fmt: skip
        self.path = folder / "party.sock"
        self.steps = iter(range(10**9))

    def answer(self, frame: bytes) -> bytes:
        """The party's, as `engine.answering` makes it."""
        with self.clinic.answered(frame, lambda one: self.site.answer(one.data, HANDLERS)) as found:
            return found

    def envelope(self, request: messages.Request, step: int | None = None) -> bytes:
        """A question of the coordinator's, at the next step if none is named."""
        step = next(self.steps) if step is None else step
        return messages.encode(
            Envelope("r", step, "coordinator", "clinic", messages.encode(request))
        )

    def sealed(self, request: messages.Request, step: int | None = None) -> bytes:
        """It, sealed."""
        return self.office.ask("clinic", self.envelope(request, step))

    def sent(self, frame: bytes) -> bytes:
        """A frame at the party's socket, and its answer."""
        return local.ask(self.path, frame, 60.0)

    def asked(self, request: messages.Request, step: int | None = None) -> bytes:
        """What the party answers to a question of its coordinator; raises what it refuses with."""
        frame = self.sealed(request, step)
        nonce = self.office.checked(frame, "coordinator", "clinic").nonce
        return self.office.open(self.sent(frame), "clinic", nonce).envelope()


def flipped(frame: bytes, number: int) -> bytes:
    """The frame with one bit changed, another one for each number."""
    bit = (number * 7919) % (8 * len(frame))
    return frame[: bit // 8] + bytes([frame[bit // 8] ^ 1 << bit % 8]) + frame[bit // 8 + 1 :]


def over_the_limit(path: Path) -> None:
    """Announce a frame of more bytes than are read; the party closes."""
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(path))
        end.sendall(b"\1" + (local.LIMIT + 1).to_bytes(8, "big"))
        if not end.recv(1):
            raise SiloweaveError("it was closed")


def at_the_party(ends: Ends) -> Iterator[tuple[str, str, int, Try]]:
    """Frames at a party's socket."""
    good = ends.sealed(KeyRequest())
    old = ends.sealed(KeyRequest())
    ends.sent(old)
    ends.asked(KeyRequest(), step=10**6)
    yield (
        "no frame: random bytes",
        "was refused",
        2000,
        lambda i: ends.sent(os.urandom(1 + i % 999)),
    )
    yield (
        "a key that the roster does not know",
        "was refused",
        2000,
        lambda i: ends.sent(ends.forger.ask("clinic", ends.envelope(KeyRequest()))),
    )
    yield (
        "of another study",
        "was refused",
        2000,
        lambda i: ends.sent(ends.elsewhere.ask("clinic", ends.envelope(KeyRequest()))),
    )
    yield "a frame that was answered before", "was refused", 10_000, lambda i: ends.sent(old)
    yield "one bit flipped", "was refused", 10_000, lambda i: ends.sent(flipped(good, i))
    yield "cut short", "was refused", 2000, lambda i: ends.sent(good[: i * 7919 % len(good)])
    yield "over the limit of 256 MiB", "was closed", 200, lambda i: over_the_limit(ends.path)
    yield (
        "a step that was answered, for another question",
        "a step is asked once",
        1000,
        lambda i: ends.asked(Count({"clinic": b""}, 50.0, 0, (("d",),)), step=10**6),
    )
    nan = ModelMessage((("d",),), (Array("<f4", (2,), np.full(2, np.nan, "<f4").tobytes()),), 9.0)
    yield (
        "NaN in a model",
        "not finite",
        1000,
        lambda i: ends.asked(SelectQuery(nan, (("d",),), 50.0, 1.0)),
    )
    wide = Count({"clinic": b""}, 50.0, 0, (("a", "b", "c"),))
    yield "a table of 13.8 GB, in 100 bytes", "cells at most", 1000, lambda i: ends.asked(wide)


def at_the_coordinator(ends: Ends) -> Iterator[tuple[str, str, int, Try]]:
    """Answers that come to a coordinator."""
    frame = ends.sealed(KeyRequest())
    nonce = ends.office.checked(frame, "coordinator", "clinic").nonce
    answer = ends.sent(frame)
    body = messages.decode(ends.envelope(KeyRequest(), 3), Envelope)
    late = messages.encode(msgspec.structs.replace(body.answered(b""), step=2))
    nan = messages.encode(Array("<f8", (1,), np.full(1, np.nan).tobytes()))
    yield (
        "an answer with one bit flipped",
        "",
        10_000,
        lambda i: ends.office.open(flipped(answer, i), "clinic", nonce),
    )
    yield (
        "an answer to another question",
        "answers another question",
        2000,
        lambda i: ends.office.open(answer, "clinic", os.urandom(32)),
    )
    yield (
        "an answer of another round",
        "of another step",
        2000,
        lambda i: messages.answer_to(body, late),
    )
    yield "NaN in an answer", "not finite", 2000, lambda i: messages.decode(nan, Array).numpy()


def over_tls(folder: Path) -> Iterator[tuple[str, str, int, Try]]:
    """What a party finds where its coordinator should be."""
    for name in ("office", "other", "expired"):
        certificates.make_certificates(folder / name, [])
    own, expired = (folder / name / certificates.AUTHORITY for name in ("office", "expired"))
    certificates.make_certificates(folder / "expired", [], days=0)
    for what, words, home, authority, host in (
        ("plaintext", "speaks no TLS", "", own, "127.0.0.1"),
        ("a certificate of another authority", "was not issued by", "other", own, "127.0.0.1"),
        ("an expired certificate", "has expired", "expired", expired, "127.0.0.1"),
        ("a certificate for another name", "is not for", "office", own, "127.0.0.2"),
    ):
        with server(folder / (home or "office"), plain=not home) as port:

            def asked(i: int, found=(host, port, authority)) -> None:
                certificates.check_server(*found)

            yield what, words, 200, asked


def measured(
    what: str, words: str, number: int, refused: Try, lives: Callable[[], object]
) -> dict[str, Any]:
    """Try something so often; an error that says something else than these words is a crash."""
    walls, processor, accepted, crashed = [], [], 0, 0
    number = min(number, TIMES)
    for i in range(number):
        began = time.perf_counter(), time.process_time()
        try:
            refused(i)
            accepted += 1
        except Exception as error:  # noqa: BLE001 - counted
            if not isinstance(error, SiloweaveError) or words not in str(error):
                crashed += 1
                print(what, repr(error))
        walls.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
        if i % 100 == 0:
            lives()
    return {
        "what": what, "tried": number, "accepted": accepted, "crashed": crashed,
        "mean_ms": 1e3 * sum(walls) / number, "longest_ms": 1e3 * max(walls),
        "processor_ms": 1e3 * max(processor), "load": os.getloadavg()[0],
    }  # fmt: skip


def lines(found: list[dict[str, Any]]) -> str:
    """The table of a page."""
    head = ["what is refused", "tried", "accepted", "crashed", "mean ms", "longest ms",
            "longest, processor ms", "load"]  # fmt: skip
    rows = [
        [str(r["what"]), f"{r['tried']:,}", f"{r['accepted']}", f"{r['crashed']}",
         f"{r['mean_ms']:.2f}", f"{r['longest_ms']:.0f}", f"{r['processor_ms']:.0f}",
         f"{r['load']:.0f}"]
        for r in found
    ]  # fmt: skip
    return table(head, rows, words=1)


def run(folder: Path, known: set[str]) -> Iterator[dict[str, Any]]:
    """Every kind that is not known."""
    ends = Ends(folder)
    with local.Server(ends.path, ends.answer):
        for kinds in (at_the_party(ends), at_the_coordinator(ends), over_tls(folder)):
            for what, words, number, refused in kinds:
                if what not in known:
                    lives = partial(ends.asked, KeyRequest())
                    yield measured(what, words, number, refused, lives)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    text = RESULTS.read_text() if RESULTS.exists() else ""
    found = [json.loads(line) for line in text.splitlines()]
    with tempfile.TemporaryDirectory() as folder, RESULTS.open("a") as file:
        for one in run(Path(folder), {str(r["what"]) for r in found}):
            found.append(one)
            file.write(json.dumps(one) + "\n")
    made = lines(found)
    print(made)
    fill(PAGE, "refusals", made)


if __name__ == "__main__":
    main()
