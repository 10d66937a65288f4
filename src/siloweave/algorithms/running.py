"""Starting a run: rows are coded, ledgers opened, parties started, and what is left collected.

**Guarantee**: none of its own; a synthesizer's file states its own. This file opens every party's
ledger with the budget as its limit, so that a release beyond it is refused, and gives the party
the operating system's entropy; seeded noise (a test mode) marks the whole fit as not private.
A release is paid for before it is drawn and kept before it is sent, see federation/site.py. The
parties and the coordinator are those of McKenna, Sheldon & Miklau's select-measure-generate
(2019 to 2022) and of Maddock, Cormode & Maple 2024; `Info.paper` names the source of each run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from siloweave.algorithms.aim import Round
from siloweave.algorithms.fitted import Cost, Fitted, Info
from siloweave.errors import DataError, RosterError
from siloweave.federation.inprocess import InProcess
from siloweave.federation.parties import Parties
from siloweave.federation.site import FolderStore, Handlers, MemoryStore, Site, Store
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Ledger
from siloweave.privacy.mechanisms import Entropy, OSEntropy, SeededEntropy
from siloweave.tables.codes import Clique, Codes, Encoder
from siloweave.tables.read import read

__all__ = ["Job", "Progress", "Result", "named_parties", "run_job", "silent"]

Progress = Callable[[str, float], None]
"""Called with a text and the share that is done."""

Result = tuple[MRF, list[Round]]
"""A model, and what each round measured."""


def silent(text: str, done: float) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Job:
    """One run: what is allowed, where it keeps things, and where its noise comes from.

    Attributes:
        budget: Most that any row may cost.
        seed: Everything that is not noise: cohorts, samples.
        folder: Run folder; in memory only if None. The same folder and run resume.
        run: Name of the run.
        noise: "os" for the operating system's entropy; "seeded" protects nothing and is marked.
        progress: Called with a text and the share that is done.
        limited: Whether ledgers enforce the budget; only a method without guarantee runs without.
    """

    budget: Budget
    seed: int = 0
    folder: Path | None = None
    run: str = "run"
    noise: str = "os"
    progress: Progress = silent
    limited: bool = True


def named_parties(data: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """One table per party, by name.

    Args:
        data: A mapping from name to table, or a list of tables.
        names: For a list; "party-1" and so on if not given.

    Raises:
        RosterError: `data` is one table, or there are more or fewer names than tables.
    """
    if names is not None and not isinstance(data, Mapping):
        parts = list(data)
        if len(parts) != len(names):
            raise RosterError(f"names has {len(names)} entries for {len(parts)} tables")
        return dict(zip(names, parts, strict=True))
    if isinstance(data, Mapping):
        return {str(name): part for name, part in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        width = len(str(len(data)))
        return {f"party-{i + 1:0{width}d}": part for i, part in enumerate(data)}
    raise RosterError(
        f"data is a {type(data).__name__}; give one table per party, as a list or by name"
    )


def _coded(name: str, part: Any, encoder: Encoder) -> Codes:
    if isinstance(part, Codes):
        return part
    try:
        return encoder.encode(read(part))
    except DataError as error:
        raise DataError(f"party {name!r}: {error}") from error


def _site(name: str, rows: Codes, job: Job, index: int) -> Site[Codes]:
    if rows.num_rows == 0:
        raise RosterError(f"party {name!r} has no rows; leave it out of the roster")
    entropy: Entropy = OSEntropy()
    if job.noise == "seeded":
        entropy = SeededEntropy(f"{job.seed}/{index}".encode())
    store: Store = MemoryStore()
    path = None
    if job.folder is not None:
        home = job.folder / "parties" / f"{index:04d}"
        store, path = FolderStore(home / "store"), home / "ledger.jsonl"
    ledger = Ledger(name, path=path, limit=job.budget if job.limited else None)
    return Site(name, rows, ledger=ledger, entropy=entropy, store=store)


@dataclass
class _Clock:
    phases: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start


def run_job(
    info: Info,
    settings: Mapping[str, Any],
    data: Mapping[str, Any],
    encoder: Encoder,
    job: Job,
    handlers: Handlers,
    queries: Sequence[Clique],
    coordinate: Callable[[Parties], Result],
) -> Fitted:
    """Code the rows, open the sites, let the coordinator run, and collect what it left.

    Args:
        info: What is run.
        settings: Its public settings.
        data: One table per party, by name.
        encoder: Codes all rows alike.
        job: The run.
        handlers: A party's side.
        queries: The workload.
        coordinate: The coordinator's side.

    Raises:
        RosterError: A party has no rows.
        DataError: A party's rows do not fit the schema; the message names the party.
        BudgetError: A party's ledger refuses a release.
    """
    clock = _Clock()
    with clock.phase("coding rows"):
        coded = {name: _coded(name, part, encoder) for name, part in data.items()}
    sites = {n: _site(n, rows, job, i) for i, (n, rows) in enumerate(coded.items())}
    try:
        parties = Parties(tuple(sites), InProcess(sites, handlers), run=job.run)
        with clock.phase("rounds with the parties"):
            model, measured = coordinate(parties)
        ledgers = {n: tuple(s.ledger.entries) for n, s in sites.items()}
        heads = {n: s.ledger.head for n, s in sites.items()}
    finally:
        for site in sites.values():
            site.ledger.close()
    first = next(iter(data.values()))
    like = None if isinstance(first, Codes) else read(first).take([])
    return Fitted(
        model,
        encoder,
        info,
        job.budget,
        job.noise == "os" and info.guarantee == "dp",
        settings,
        ledgers,
        heads,
        Cost(parties.traffic, parties.rounds, clock.phases),
        measured,
        tuple(queries),
        like,
    )
