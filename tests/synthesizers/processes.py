"""Every party in a process of its own: a carrier over socket pairs.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from siloweave.core import run
from siloweave.core.method import Setup
from siloweave.core.party import Party, StudySide
from siloweave.core.settings import Job, settings_of
from siloweave.errors import InputError, RosterError, SiloweaveError, WireError
from siloweave.federation import messages
from siloweave.federation.messages import Refusal
from siloweave.methods.registry import METHODS
from siloweave.privacy.budget import Budget
from siloweave.progress import Stopwatch
from siloweave.tables.codes import Encoder
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table
from siloweave.tables.write import from_parquet, parquet_of

START, KEY, ROSTER, OPEN, FRAME, RECALL, REFUSED = (bytes([i]) for i in range(1, 8))
_HEAD = 9  # bytes before the data: its kind, and its length
_PATIENCE_S = 30.0  # for a process to end
_STUDY = b"{}"


class Channel:
    """One end of a pair of sockets that carries kinds of data; `close` closes the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, kind: bytes, data: bytes) -> None:
        """Send data of a kind."""
        self._end.sendall(kind + len(data).to_bytes(_HEAD - 1, "big") + data)

    def receive(self) -> tuple[bytes, bytes]:
        """Return the next kind and data; both are empty where the other end was closed."""
        head = self._exactly(_HEAD)
        if len(head) < _HEAD:
            return b"", b""
        return head[:1], self._exactly(int.from_bytes(head[1:], "big"))

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._end.recv(min(size - len(data), 2**20))
            if not piece:
                return b""
            data += piece
        return bytes(data)


class Processes:
    """A carrier over processes of this machine, each ``python -m module FILE-DESCRIPTOR``.

    `starts` is what each party's process is started with, by name. RosterError if a process ended
    before it sent its key.
    """

    simulated = True
    at_once = 1

    def __init__(self, starts: Mapping[str, bytes], module: str = __name__) -> None:
        self._lines: dict[str, Channel] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        self.sizes: Mapping[str, tuple[int, int]] = {}
        self.sealing = Stopwatch()
        self.noticed: Callable[[str, str], object] = lambda name, why: None
        try:
            for name, start in starts.items():
                self._lines[name] = self._started(module)
                self._lines[name].send(START, start)
            self.keys: Mapping[str, bytes] = {name: self._answer(name) for name in starts}
            self._tell_all(ROSTER, msgspec.msgpack.encode(self.keys))
        except BaseException:
            self.close()
            raise

    def _started(self, module: str) -> Channel:
        mine, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", module, str(theirs.fileno())]
            path = os.pathsep.join(path for path in sys.path if path)
            environment = os.environ | {"PYTHONPATH": path}
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
            self._running.append(process)
        return Channel(mine)

    def _tell_all(self, kind: bytes, data: bytes) -> None:
        for name, line in self._lines.items():
            line.send(kind, data)
            self._answer(name)

    def open(self, run: str, facts: bytes) -> None:
        """Let every party prepare a stage."""
        self._tell_all(OPEN, msgspec.msgpack.encode((run, facts)))

    def send(self, name: str, frame: bytes) -> bytes:
        """Return the party's answer to `frame`."""
        if name not in self._lines:
            raise RosterError(f"party {name!r} is not there; present are {sorted(self._lines)}")
        try:
            self._lines[name].send(FRAME, frame)
            return self._answer(name)
        except OSError as error:
            raise RosterError(f"party {name!r} is gone; its process ended: {error}") from error

    def recall(self, name: str, run: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return what a party has stored in a run under some names."""
        self._lines[name].send(RECALL, msgspec.msgpack.encode((run, names)))
        return msgspec.msgpack.decode(self._answer(name), type=dict[str, bytes])

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


class Start(msgspec.Struct, frozen=True):
    """What a party's process is started with: public facts of the study, its rows, and its place.

    Attributes:
        method, settings, schema, encoder, columns, roster, learn: Of the `Setup`, as plain values.
        epsilon, delta, unit, relation: Of the budget; no epsilon where there is no bound.
        name, index: In the roster.
        table: Its rows, as a Parquet file.
        seed, folder, run, noise, limited, tolerated, dropouts: Of the job.
    """

    method: str
    settings: dict[str, Any]
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
    learn: float
    tolerated: int
    dropouts: int


def _start(setup: Setup, name: str, table: Table, job: Job) -> bytes:
    """Return what starts a party's process, as bytes."""
    budget, encoder = setup.budget, setup.encoder
    plain = setup.synth.settings()
    given = [setting.name for setting in fields(setup.synth) if setting.init]
    start = Start(
        method=setup.synth.method.name,
        settings={name: plain[name] for name in given},
        schema=setup.declared.to_json(),
        encoder=encoder.to_json() if encoder else "",
        columns=dict(setup.held),
        roster=setup.roster,
        epsilon=budget.epsilon if budget.private else None,
        delta=budget.delta,
        unit=budget.unit,
        relation=str(budget.relation),
        name=name,
        index=setup.roster.index(name),
        table=parquet_of(read(table)),
        seed=job.seed,
        folder=str(job.folder),
        run=job.run,
        noise=job.noise,
        limited=job.limited,
        learn=setup.learn,
        tolerated=job.tolerated,
        dropouts=job.dropouts,
    )
    return msgspec.msgpack.encode(start)


def _setup(start: Start) -> Setup:
    """Return the study's public facts as the party reads them."""
    epsilon = float("inf") if start.epsilon is None else start.epsilon
    facts = {"delta": start.delta, "unit": start.unit, "relation": start.relation}
    return Setup(
        settings_of(METHODS[start.method], start.settings),
        Schema.from_json(start.schema),
        msgspec.convert({"epsilon": epsilon, **facts}, Budget),
        start.roster,
        start.columns,
        Encoder.from_json(start.encoder) if start.encoder else None,
        start.learn,
    )


def _opened(line: Channel) -> Party:
    """Return the party, once it knows the roster."""
    kind, data = line.receive()
    if kind != START:
        raise WireError("a party's process was not sent what it starts with")
    start = msgspec.msgpack.decode(data, type=Start)
    setup = _setup(start)
    job = Job(
        setup.budget,
        start.seed,
        Path(start.folder),
        start.run,
        start.noise,
        limited=start.limited,
        tolerated=start.tolerated,
        dropouts=start.dropouts,
    )
    home = job.home(start.index)
    side = StudySide(setup, _STUDY, from_parquet(start.table))
    party = Party(start.name, job, start.index, side, home=home)
    line.send(KEY, party.key)
    _, data = line.receive()
    party.roster = msgspec.msgpack.decode(data, type=dict[str, bytes])
    line.send(ROSTER, b"")
    return party


def _served(line: Channel, party: Party) -> None:
    while True:
        kind, data = line.receive()
        if not kind:
            return
        try:
            if kind == OPEN:
                party.begin(*msgspec.msgpack.decode(data, type=tuple[str, bytes]))
                line.send(kind, b"")
            elif kind == RECALL:
                run_name, names = msgspec.msgpack.decode(data, type=tuple[str, list[str]])
                line.send(kind, msgspec.msgpack.encode(party.recall(run_name, names)))
            else:
                line.send(kind, party.answer(data))
        except SiloweaveError as error:
            _refused(line, error)


def _refused(line: Channel, error: SiloweaveError) -> None:
    line.send(REFUSED, msgspec.msgpack.encode(Refusal(type(error).__name__, str(error))))


def in_processes(setup: Setup, tables: Mapping[str, Table], job: Job) -> Processes:
    """Start every party in a process of its own; an `Opener` of `core.run`.

    Raises:
        InputError: The run has no folder: a ledger in a process's memory would end with it.
    """
    if job.folder is None:
        raise InputError("parties in processes of their own need folder=..., for their ledgers")
    return Processes({name: _start(setup, name, table, job) for name, table in tables.items()})


@contextmanager
def opened_by(opener: run.Opener) -> Iterator[None]:
    """Let an opener open the parties of every fit meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "fit_parties", partial(run.fit_parties, opener=opener))
        yield


def main(descriptor: int) -> None:
    """Answer frames over a socket until its other end closes."""
    line = Channel(socket.socket(fileno=descriptor))
    try:
        party = _opened(line)
    except SiloweaveError as error:
        _refused(line, error)
        return
    try:
        _served(line, party)
    finally:
        party.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
