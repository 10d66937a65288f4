"""A party in a process of its own: started over a socket pair, it answers frames until that closes.

Bonawitz et al. 2017 and all other protocols here ask nothing else of a party: it holds its rows,
its ledger and its keys, and answers messages.

Frames cross, and before them the public facts of the study; no state is shared. It shows that a
coordinator needs no more than its session; a network replaces the pair by an engine. Each side
sends one byte for the kind and eight for the length before its data.

**Guarantee**: none of its own; see federation/site.py, which answers. The party gets its table and
the study's public facts when it starts, and nothing else but frames.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from siloweave.core.method import Place, Setup
from siloweave.core.party import side_of
from siloweave.core.run import Job, open_stores, settings_of, site_of
from siloweave.errors import InputError, RosterError, SiloweaveError, WireError
from siloweave.federation import messages
from siloweave.federation.messages import Refusal
from siloweave.federation.session import with_closing
from siloweave.federation.site import Handlers, Site, Terms
from siloweave.methods.registry import METHODS
from siloweave.privacy.budget import Budget
from siloweave.tables.codes import Encoder
from siloweave.tables.read import Table, parquet_of, read
from siloweave.tables.schema import Schema

START, KEY, ROSTER, FRAME, RECALL, REFUSED = (bytes([i]) for i in range(1, 7))
_HEAD = 9  # bytes before the data: its kind, and its length
_PATIENCE_S = 30.0  # for a process to end


class Channel:
    """One end of a pair of sockets that carries kinds of data; `close` closes the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, kind: bytes, data: bytes) -> None:
        """Send data of a kind."""
        self._end.sendall(kind + len(data).to_bytes(_HEAD - 1, "big") + data)

    def receive(self) -> tuple[bytes, bytes]:
        """The next kind and data; both are empty where the other end was closed."""
        head = self._exactly(_HEAD)
        if len(head) < _HEAD:
            return b"", b""
        return head[:1], self._exactly(int.from_bytes(head[1:], "big"))

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._end.recv(min(size - len(found), 2**20))
            if not piece:
                return b""
            found += piece
        return bytes(found)


class Processes:
    """A transport over processes of this machine, each ``python -m module FILE-DESCRIPTOR``.

    `starts` is what each party's process is started with, by name. RosterError if a process ended
    before it sent its key.
    """

    def __init__(self, starts: Mapping[str, bytes], module: str) -> None:
        self._lines: dict[str, Channel] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        try:
            for name, start in starts.items():
                self._lines[name] = self._started(module)
                self._lines[name].send(START, start)
            self.keys: Mapping[str, bytes] = {name: self._answer(name) for name in starts}
            """Every party's public key."""
        except BaseException:
            self.close()
            raise

    def _started(self, module: str) -> Channel:
        mine, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", module, str(theirs.fileno())]
            found = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            self._running.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], env=found))
        return Channel(mine)

    def introduce(self, terms: bytes) -> None:
        """Give every party what it must know of the study besides its own facts: the roster."""
        for name, line in self._lines.items():
            line.send(ROSTER, terms)
            self._answer(name)

    def send(self, name: str, frame: bytes) -> bytes:
        """The party's answer to `frame`."""
        if name not in self._lines:
            raise RosterError(f"party {name!r} is not there; present are {sorted(self._lines)}")
        try:
            self._lines[name].send(FRAME, frame)
            return self._answer(name)
        except OSError as error:
            raise RosterError(f"party {name!r} is gone; its process ended: {error}") from error

    def recall(self, name: str, key: str, run: str) -> bytes | None:
        """What a party remembers under `key` in a run; only a simulation may look."""
        self._lines[name].send(RECALL, msgspec.msgpack.encode((key, run)))
        return self._answer(name) or None

    def close(self) -> None:
        """End all processes."""
        for line in self._lines.values():
            line.close()
        for process in self._running:
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answer(self, name: str) -> bytes:
        kind, data = self._lines[name].receive()
        if kind == REFUSED:
            raise messages.decode(data, Refusal).error()
        if not kind:
            raise RosterError(f"party {name!r} is gone; its process ended without an answer")
        return data

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Start(msgspec.Struct, frozen=True):
    """What a party's process is started with: public facts of the study, its rows, and its place.

    Attributes:
        method, settings, stage, schema, encoder, columns, roster: Of the `Setup`, as plain values.
        epsilon, delta, unit, relation: Of the budget; no epsilon where there is no bound.
        name, index: In the roster.
        table: Its rows, as a Parquet file.
        seed, folder, run, noise, limited: Of the run.
    """

    method: str
    settings: dict[str, Any]
    stage: str
    schema: str
    encoder: str
    columns: dict[str, tuple[str, ...]]
    roster: tuple[str, ...]
    epsilon: float | None
    delta: float
    unit: str
    relation: str
    name: str
    index: int
    table: bytes
    seed: int
    folder: str
    run: str
    noise: str
    limited: bool


def _start(setup: Setup, name: str, table: Table, job: Job) -> bytes:
    """What starts a party's process, as bytes."""
    budget, encoder = setup.budget, setup.encoder
    start = Start(
        method=setup.synth.method.name,
        settings=setup.synth.settings(),
        stage=setup.stage,
        schema=setup.schema.to_json(),
        encoder=encoder.to_json() if encoder else "",
        columns=dict(setup.columns),
        roster=setup.roster,
        epsilon=budget.epsilon if budget.private else None,
        delta=budget.delta,
        unit=budget.unit,
        relation=str(budget.relation),
        name=name,
        index=setup.roster.index(name),
        table=parquet_of(table),
        seed=job.seed,
        folder=str(job.folder),
        run=job.run,
        noise=job.noise,
        limited=job.limited,
    )
    return msgspec.msgpack.encode(start)


def _setup(start: Start) -> Setup:
    """The study's public facts as the party reads them."""
    epsilon = float("inf") if start.epsilon is None else start.epsilon
    facts = {"delta": start.delta, "unit": start.unit, "relation": start.relation}
    return Setup(
        settings_of(METHODS[start.method], start.settings),
        Schema.from_json(start.schema),
        msgspec.convert({"epsilon": epsilon, **facts}, Budget),
        start.roster,
        start.columns,
        Encoder.from_json(start.encoder) if start.encoder else None,
        start.stage,
    )


def _opened(line: Channel) -> tuple[Site[Any], Handlers]:
    """The party, once it knows the roster."""
    kind, data = line.receive()
    if kind != START:
        raise WireError("a party's process was not sent what it starts with")
    start = msgspec.msgpack.decode(data, type=Start)
    setup = _setup(start)
    job = Job(
        setup.budget, start.seed, Path(start.folder), start.run, start.noise, limited=start.limited
    )
    side = side_of(setup)
    rows = side.prepare(read(pl.read_parquet(BytesIO(start.table))), setup, Place(start.name))
    home = Path(start.folder) / "parties" / f"{start.index:04d}"
    stores = open_stores(start.name, job, home)
    line.send(KEY, stores[0].key)
    _, data = line.receive()
    roster, tolerated = msgspec.msgpack.decode(data, type=tuple[dict[str, bytes], int])
    dropouts = int(getattr(setup.synth, "dropouts", 0))
    terms = Terms(roster, tolerated, side.facts(setup), dropouts, job.run)
    site = site_of(start.name, rows, job, start.index, stores, terms)
    line.send(ROSTER, b"")
    return site, with_closing(side.handlers(setup.synth))


def _served(line: Channel, site: Site[Any], handlers: Handlers) -> None:
    while True:
        kind, data = line.receive()
        if not kind:
            return
        if kind == RECALL:
            key, run = msgspec.msgpack.decode(data, type=tuple[str, str])
            line.send(kind, site.recall(key, run) or b"")
            continue
        try:
            line.send(kind, site.answer(data, handlers))
        except SiloweaveError as error:
            _refused(line, error)


def _refused(line: Channel, error: SiloweaveError) -> None:
    line.send(REFUSED, msgspec.msgpack.encode(Refusal(type(error).__name__, str(error))))


@contextmanager
def in_processes(
    setup: Setup, tables: Mapping[str, Table], job: Job, run: str
) -> Iterator[Processes]:
    """Start every party in a process of its own; see `core.run.parties_in`.

    Raises:
        InputError: The run has no folder: a ledger in a process's memory would end with it.
    """
    if job.folder is None:
        raise InputError("parties in processes of their own need folder=..., for their ledgers")
    starts = {name: _start(setup, name, table, job) for name, table in tables.items()}
    with Processes(starts, __name__) as line:
        line.introduce(msgspec.msgpack.encode((line.keys, job.tolerated)))
        yield line


def main(descriptor: int) -> None:
    """Answer frames over a socket until its other end closes."""
    line = Channel(socket.socket(fileno=descriptor))
    try:
        site, handlers = _opened(line)
    except SiloweaveError as error:
        _refused(line, error)
        return
    try:
        _served(line, site, handlers)
    finally:
        site.ledger.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
