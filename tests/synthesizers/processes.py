"""A party in a process of its own: started over a socket pair, it answers frames until that closes.

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
from pathlib import Path
from typing import Any

import msgspec

from siloweave.core.method import Place, Setup
from siloweave.core.party import side_of
from siloweave.core.run import Job, open_stores, settings_of, site_of
from siloweave.errors import InputError, SiloweaveError, WireError
from siloweave.federation import session
from siloweave.federation.messages import Refusal
from siloweave.federation.session import Channel, Processes, with_closing
from siloweave.federation.site import Handlers, Site, Terms
from siloweave.methods.registry import METHODS
from siloweave.privacy.budget import Budget
from siloweave.tables.codes import Encoder
from siloweave.tables.read import Table, parquet_of, table_in
from siloweave.tables.schema import Schema


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
    if kind != session.START:
        raise WireError("a party's process was not sent what it starts with")
    start = msgspec.msgpack.decode(data, type=Start)
    setup = _setup(start)
    job = Job(
        setup.budget, start.seed, Path(start.folder), start.run, start.noise, limited=start.limited
    )
    side = side_of(setup)
    rows = side.prepare(table_in(start.table), setup, Place(start.name))
    home = Path(start.folder) / "parties" / f"{start.index:04d}"
    stores = open_stores(start.name, job, home)
    line.send(session.KEY, stores[0].key)
    _, data = line.receive()
    roster, tolerated = msgspec.msgpack.decode(data, type=tuple[dict[str, bytes], int])
    dropouts = int(getattr(setup.synth, "dropouts", 0))
    terms = Terms(roster, tolerated, side.facts(setup), dropouts, job.run)
    site = site_of(start.name, rows, job, start.index, stores, terms)
    line.send(session.ROSTER, b"")
    return site, with_closing(side.handlers(setup.synth))


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
