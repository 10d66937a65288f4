"""A party in a process of its own: started over a socket pair, it answers frames until that closes.

Bonawitz et al. 2017 and all other protocols here ask nothing else of a party: it holds its rows,
its ledger and its keys, and answers messages.

**Guarantee**: none of its own; see federation/site.py, which answers.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from siloweave.algorithms.registry import METHODS
from siloweave.algorithms.running import Job, PartySide, Recipe, open_stores, site_of
from siloweave.errors import InputError, SiloweaveError, WireError
from siloweave.federation import transports
from siloweave.federation.messages import Refusal
from siloweave.federation.session import with_closing
from siloweave.federation.site import Handlers, Site, Terms
from siloweave.federation.transports import Channel, Processes
from siloweave.privacy.budget import Budget
from siloweave.tables.codes import Encoder
from siloweave.tables.read import Table, parquet_of, table_in
from siloweave.tables.schema import Schema

__all__ = ["in_processes", "main"]


class Start(msgspec.Struct, frozen=True):
    """What a party's process is started with.

    Attributes:
        recipe: Its side.
        name: Its name in the roster.
        index: Its place there.
        parties: Of the run, with it.
        table: Its rows, as a Parquet file.
        budget: Its ledger's limit; without a bound where the method has no guarantee.
        seed, folder, run, runs, noise, limited: Of the run.
    """

    recipe: Recipe
    name: str
    index: int
    parties: int
    table: bytes
    epsilon: float | None
    delta: float
    unit: str
    relation: str
    seed: int
    folder: str
    run: str
    noise: str
    limited: bool


def start_of(recipe: Recipe, name: str, index: int, parties: int, table: Table, job: Job) -> bytes:
    """What starts a party's process, as bytes."""
    budget = job.total or job.budget
    bound = budget.epsilon if budget.private else None
    return msgspec.msgpack.encode(
        Start(
            recipe, name, index, parties, parquet_of(table), bound,
            budget.delta, budget.unit, str(budget.relation), job.seed, str(job.folder), job.run,
            job.noise, job.limited,
        )
    )  # fmt: skip


def built(recipe: Recipe, name: str, table: Table, budget: Budget, parties: int) -> PartySide:
    """A party's data, its handlers, and the facts that it is given."""
    kind = METHODS[recipe.method]
    synth = msgspec.convert(recipe.settings, kind)
    encoder = Encoder.from_json(recipe.encoder) if recipe.encoder else None
    schema = Schema.from_json(recipe.schema)
    side: Callable[..., PartySide] = synth.party_side
    return side(
        recipe.stage, name, table, schema, encoder=encoder, columns=recipe.columns,
        budget=budget, parties=parties,
    )  # fmt: skip


def _opened(line: Channel) -> tuple[Site[Any], Handlers]:
    """The party, once it knows the roster."""
    kind, data = line.receive()
    if kind != transports.START:
        raise WireError("a party's process was not told with what to start")
    start = msgspec.msgpack.decode(data, type=Start)
    epsilon = float("inf") if start.epsilon is None else start.epsilon
    budget = msgspec.convert(
        {"epsilon": epsilon, "delta": start.delta, "unit": start.unit, "relation": start.relation},
        Budget,
    )
    job = Job(budget, start.seed, Path(start.folder), start.run, start.noise, limited=start.limited)
    table = table_in(start.table)
    rows, handlers, facts = built(start.recipe, start.name, table, budget, start.parties)
    stores = open_stores(start.name, job, start.index)
    line.send(transports.KEY, stores[0].key)
    _, data = line.receive()
    roster, tolerated = msgspec.msgpack.decode(data, type=tuple[dict[str, bytes], int])
    site = site_of(start.name, rows, job, start.index, stores, Terms(roster, tolerated, facts))
    line.send(transports.ROSTER, b"")
    return site, with_closing(handlers)


def _served(line: Channel, site: Site[Any], handlers: Handlers) -> None:
    while True:
        kind, data = line.receive()
        if not kind:
            return
        if kind == transports.RECALL:
            key, run = msgspec.msgpack.decode(data, type=tuple[str, str])
            line.send(kind, site.recall(key, run) or b"")
            continue
        try:
            line.send(kind, site.answer(data, handlers))
        except SiloweaveError as error:
            _refused(line, error)


def _refused(line: Channel, error: SiloweaveError) -> None:
    line.send(transports.REFUSED, msgspec.msgpack.encode(Refusal(type(error).__name__, str(error))))


@contextmanager
def in_processes(
    recipe: Recipe, tables: Mapping[str, Table], job: Job, run: str
) -> Iterator[Processes]:
    """Start every party in a process of its own; see `running.parties_in`.

    Raises:
        InputError: The run has no folder: a ledger in a process's memory would end with it.
    """
    if job.folder is None:
        raise InputError("parties in processes of their own need folder=..., for their ledgers")
    starts = {
        name: start_of(recipe, name, i, len(tables), table, job)
        for i, (name, table) in enumerate(tables.items())
    }
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
