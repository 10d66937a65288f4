"""A party in a process of its own: started over a socket pair, it answers frames until that closes.

Frames come over the socket pair too, or sealed over a spool folder (`in_spool`).

Bonawitz et al. 2017 and all other protocols here ask nothing else of a party: it holds its rows,
its ledger and its keys, and answers messages.

**Guarantee**: none of its own; see federation/site.py, which answers. The party gets its table and
the study's public facts when it starts, and nothing else but frames.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from siloweave.core.method import Method, Place, Setup, Stage
from siloweave.core.run import Job, open_stores, settings_of, site_of
from siloweave.errors import InputError, SiloweaveError, WireError
from siloweave.federation import session
from siloweave.federation.frames import (
    ROSTER_FILE,
    Nonces,
    PublicKeys,
    Seals,
    keys_for,
    read_roster,
    signed_roster,
)
from siloweave.federation.masking import KEY
from siloweave.federation.messages import Refusal
from siloweave.federation.session import Channel, Processes, with_closing
from siloweave.federation.site import Handlers, Site, Terms
from siloweave.federation.spool import Spool, serve, stop
from siloweave.methods.registry import METHODS
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Identity
from siloweave.tables.codes import Encoder
from siloweave.tables.read import Table, parquet_of, table_in
from siloweave.tables.schema import Schema

_NONCES = "nonces"  # beside a party's ledger
_PATIENCE_S, _PAUSE_S = 600.0, 0.01  # for an answer over a spool folder; between two looks for it


class Start(msgspec.Struct, frozen=True):
    """What a party's process is started with: public facts of the study, its rows, and its place.

    Attributes:
        method, settings, stage, schema, encoder, columns, roster: Of the `Setup`, as plain values.
        epsilon, delta, unit, relation: Of the budget; no epsilon where there is no bound.
        name, index: In the roster.
        table: Its rows, as a Parquet file.
        seed, folder, run, noise, limited: Of the run.
        spool: Folder over which frames come; over the socket pair if empty.
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
    spool: str


def _start(setup: Setup, name: str, table: Table, job: Job, spool: str = "") -> bytes:
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
        spool=spool,
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


def _side(setup: Setup) -> Method | Stage:
    """The method, or the stage before it, that a party takes part in."""
    method = setup.synth.method
    return next((stage for stage in method.before if stage.name == setup.stage), method)


def _opened(line: Channel) -> tuple[Site[Any], Handlers, Seals | None, Path]:
    """The party, once it knows the roster; its seals and folder, where frames are files."""
    kind, data = line.receive()
    if kind != session.START:
        raise WireError("a party's process was not sent what it starts with")
    start = msgspec.msgpack.decode(data, type=Start)
    setup = _setup(start)
    job = Job(
        setup.budget, start.seed, Path(start.folder), start.run, start.noise, limited=start.limited
    )
    side = _side(setup)
    rows = side.prepare(table_in(start.table), setup, Place(start.name))
    stores = open_stores(start.name, job, Path(start.folder) / "parties" / f"{start.index:04d}")
    ledger = stores[0]
    assert ledger.identity is not None
    assert ledger.path is not None
    sealing = keys_for(start.run, ledger.identity).sealing if start.spool else b""
    line.send(session.KEY, ledger.key + sealing)
    _, data = line.receive()
    kinds = tuple[dict[str, bytes], int, bytes]
    roster, tolerated, coordinator = msgspec.msgpack.decode(data, type=kinds)
    seals = None
    if start.spool:
        signed = read_roster(Path(start.spool) / ROSTER_FILE, coordinator)
        nonces = Nonces(ledger.path.with_name(_NONCES))
        seals = Seals(start.name, ledger.identity, signed, nonces)
        roster = signed.parties
    terms = Terms(roster, tolerated, side.facts(setup))
    site = site_of(start.name, rows, job, start.index, stores, terms)
    line.send(session.ROSTER, b"")
    return site, with_closing(side.handlers(setup.synth)), seals, Path(start.spool)


def _served(line: Channel, site: Site[Any], handlers: Handlers) -> None:
    while True:
        kind, data = line.receive()
        if not kind:
            return
        if kind == session.RECALL:
            key, run = msgspec.msgpack.decode(data, type=tuple[str, str])
            line.send(kind, site.recall(key, run) or b"")
            continue
        try:
            line.send(kind, site.answer(data, handlers))
        except SiloweaveError as error:
            _refused(line, error)


def _refused(line: Channel, error: SiloweaveError) -> None:
    line.send(session.REFUSED, msgspec.msgpack.encode(Refusal(type(error).__name__, str(error))))


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
        line.introduce(msgspec.msgpack.encode((line.keys, job.tolerated, b"")))
        yield line


@dataclass(frozen=True)
class Carried:
    """Parties in processes of their own, whose frames go over a spool folder.

    Attributes:
        spool: The coordinator's end.
        line: The socket pairs, for what only a simulation does.
        keys: Every party's public key.
    """

    spool: Spool
    line: Processes
    keys: Mapping[str, bytes]

    def send(self, name: str, frame: bytes) -> bytes:
        """The party's answer to `frame`."""
        return self.spool.send(name, frame)

    def recall(self, name: str, key: str, run: str) -> bytes | None:
        """What a party stores under a key; only a simulation reads it."""
        return self.line.recall(name, key, run)


@contextmanager
def in_spool(setup: Setup, tables: Mapping[str, Table], job: Job, run: str) -> Iterator[Carried]:
    """Start every party in a process of its own, and carry sealed frames over a spool folder.

    The folder is `spool` in the run's; see `core.run.parties_in` and federation/spool.py.

    Raises:
        InputError: The run has no folder.
    """
    if job.folder is None:
        raise InputError("parties over a spool folder need folder=..., where it lies")
    office = Identity.load_or_create(job.folder / "coordinator" / "coordinator.key")
    folder = job.folder / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    starts = {name: _start(setup, name, table, job, str(folder)) for name, table in tables.items()}
    with Processes(starts, __name__) as line:
        keys = {n: PublicKeys(both[:KEY], both[KEY:]) for n, both in line.keys.items()}
        roster = signed_roster(job.run, office, keys)
        roster.store(folder / ROSTER_FILE)
        line.introduce(msgspec.msgpack.encode((roster.parties, job.tolerated, office.public)))
        seals = Seals(roster.coordinator, office, roster)
        spool = Spool(folder, seals, seconds=_PATIENCE_S, pause=_PAUSE_S)
        yield Carried(spool, line, roster.parties)


def _recalled(line: Channel, site: Site[Any], handlers: Handlers, folder: Path) -> None:
    """Answer what a simulation asks until the coordinator ends, and then stop the party."""
    try:
        _served(line, site, handlers)
    finally:
        stop(folder, site.name)


def main(descriptor: int) -> None:
    """Answer frames over a socket until its other end closes."""
    line = Channel(socket.socket(fileno=descriptor))
    try:
        site, handlers, seals, folder = _opened(line)
    except SiloweaveError as error:
        _refused(line, error)
        return
    try:
        if seals is None:
            _served(line, site, handlers)
        else:
            asked = (line, site, handlers, folder)
            Thread(target=_recalled, args=asked, daemon=True).start()
            serve(folder, seals, lambda q: site.answer(q.data, handlers), pause=_PAUSE_S)
    finally:
        site.ledger.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
