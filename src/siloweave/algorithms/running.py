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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from siloweave.algorithms.fitted import Fitted
from siloweave.algorithms.outcome import Cost, Info
from siloweave.core.fit import Measured
from siloweave.errors import BudgetError, InputError, RosterError, naming_party, whole
from siloweave.federation.records import RECEIPTS, FolderTranscript, Receipts
from siloweave.federation.session import Session, Transport
from siloweave.federation.site import FolderStore, Handlers, MemoryStore, Site, Store, Terms
from siloweave.federation.transports import InProcess
from siloweave.models.mrf import MRF
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget
from siloweave.privacy.calibrate import rho_for
from siloweave.privacy.identity import KEY_FILE, Identity
from siloweave.privacy.ledger import Entry, Ledger
from siloweave.privacy.mechanisms import Entropy, OSEntropy, SeededEntropy
from siloweave.progress import Progress, silent
from siloweave.tables.codes import Clique, Codes, Encoder
from siloweave.tables.read import Table, read
from siloweave.tables.schema import Schema, outline

__all__ = [
    "TRANSCRIPT",
    "Job",
    "PartySide",
    "PartyStores",
    "Progress",
    "Recipe",
    "Result",
    "coded_rows",
    "in_process",
    "named_parties",
    "open_stores",
    "opened",
    "parties_in",
    "plain",
    "require_unspent",
    "required_rows",
    "run_job",
    "silent",
    "site_of",
]


class Held(Protocol):
    """What a party brings to a run. Conforming: `Codes`, and every method's own holding."""

    def digest(self) -> bytes:
        """Of its rows and of how they are read; see `Site`."""


Rows = TypeVar("Rows", bound=Held)

_SEEDED = "seeded"  # a file in a party's folder whose noise anyone can repeat

TRANSCRIPT = Path("coordinator") / "transcript.msgpack"
"""Where, in a run's folder, lies what the coordinator saw."""

Result = tuple[MRF, list[Measured]]
"""A model, and what each round measured."""


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a message carries them: lists for tuples, and mappings for dataclasses."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return found


class Recipe(msgspec.Struct, frozen=True):
    """How a party's side of one session is made: public facts, that any process can read.

    Attributes:
        method: Name of the method, as studies write it.
        settings: Fields of its class, as plain values.
        stage: The method itself, or what comes before it: open facts of the schema, and bins.
        schema: The study's, as JSON; with split columns of all parties.
        encoder: How rows are coded, as JSON, where a method of marginals needs it.
        columns: Every party's columns, where they are split.
    """

    method: str
    settings: dict[str, Any]
    stage: Literal["method", "schema", "bins"]
    schema: str
    encoder: str = ""
    columns: dict[str, tuple[str, ...]] = {}

    @classmethod
    def of(
        cls,
        synth: Any,
        schema: Schema,
        stage: Literal["method", "schema", "bins"] = "method",
        *,
        encoder: Encoder | None = None,
        columns: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Recipe:
        """The recipe of a synthesizer with its settings."""
        settings, coded = plain(asdict(synth)), encoder.to_json() if encoder else ""
        name = synth.info.name
        return cls(name, settings, stage, schema.to_json(), coded, dict(columns or {}))


class Elsewhere(Protocol):
    """A transport to parties outside this process. Conforming: `processes.Processes`."""

    keys: Mapping[str, bytes]

    def send(self, name: str, frame: bytes) -> bytes:
        """The party's answer to `frame`."""

    def recall(self, name: str, key: str, run: str) -> bytes | None:
        """What a party remembers; only a simulation may look."""


Recall = Callable[[str, str], bytes | None]
Opener = Callable[[Recipe, Mapping[str, "Table"], "Job", str], AbstractContextManager[Elsewhere]]
_ELSEWHERE: ContextVar[Opener | None] = ContextVar("where parties run", default=None)

PartySide = tuple[Any, Handlers, dict[str, Any]]
"""A party's data, its handlers, and the facts that it is given of the study."""

PartyStores = tuple[Ledger, Store]
"""What a party keeps beside its rows: its ledger, and its replies."""


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
        learn: Share of the budget for facts that the schema leaves open.
        look: Share of the rest for the look by which columns are cut into bins.
        tolerated: Parties that may pool what they know with the coordinator.
        facts: What else every party is given of the study, see `Terms`.
        homes: Without a folder, what every party has, which the job's runs share.
        total: Most that all runs in a party's ledger may cost together; None for a run that needs
            the ledger for itself.
        at_once: Parties that this process simulates at the same time.
    """

    budget: Budget
    seed: int = 0
    folder: Path | None = None
    run: str = "run"
    noise: str = "os"
    progress: Progress = silent
    limited: bool = True
    learn: float = 0.0
    look: float = 0.0
    tolerated: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)
    homes: dict[str, PartyStores] = field(default_factory=dict, repr=False, compare=False)
    total: Budget | None = None
    at_once: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.budget, Budget):
            raise InputError(f"budget={self.budget!r} is no Budget; give Budget(epsilon, delta)")
        whole("seed", self.seed)
        if self.noise not in ("os", _SEEDED):
            raise InputError(
                f"noise={self.noise!r} must be 'os', the operating system's entropy, or "
                f"{_SEEDED!r}, which protects nothing"
            )
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))
        if not 0 <= self.learn < 1:
            raise InputError(
                f"learn={self.learn} must lie in [0, 1): it is the share of the budget for facts "
                "that the schema leaves open"
            )

    @property
    def runs(self) -> tuple[str, str, str]:
        """Names under which it releases: for its schema, for its bins, and for the rest."""
        return f"{self.run}-schema", f"{self.run}-bins", self.run

    @property
    def rho(self) -> float:
        """zCDP of the whole run; with `learn`, a tenth of delta is left for naming categories."""
        delta = self.budget.delta * (0.9 if self.learn else 1.0)
        return rho_for(msgspec.structs.replace(self.budget, delta=delta))

    @property
    def rest(self) -> float:
        """What of it is left for the run itself."""
        return self.rho * (1 - self.learn) * (1 - self.look)


def named_parties(data: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """One table per party, by name.

    Args:
        data: A mapping from name to table, or a list of tables.
        names: For a list; "party-1" and so on if not given.

    Raises:
        RosterError: `data` is one table, there are more or fewer names than tables, or two
            parties have one name.
    """
    if isinstance(names, str):
        raise RosterError(f"names={names!r} is one text; give a list with a name for every table")
    if isinstance(data, Mapping):
        parts, called = list(data.values()), [str(name) for name in data]
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        parts, width = list(data), len(str(len(data)))
        called = [f"party-{i + 1:0{width}d}" for i in range(len(parts))]
        if names is not None:
            called = [str(name) for name in names]
    else:
        raise RosterError(
            f"data is a {type(data).__name__}; give one table per party, as a list or by name"
        )
    if len(parts) != len(called):
        raise RosterError(f"names has {len(called)} entries for {len(parts)} tables")
    twice = [name for name, count in Counter(called).items() if count > 1]
    if twice:
        raise RosterError(f"two parties are called {twice[0]!r}; give each a name of its own")
    return dict(zip(called, parts, strict=True))


def coded_rows(name: str, part: Any, encoder: Encoder) -> Codes:
    """A party's rows as codes, if they are not; raises what names it if they do not fit."""
    if isinstance(part, Codes):
        return part
    with naming_party(name):
        return encoder.encode(read(part))


def site_of(
    name: str, rows: Rows, job: Job, index: int, home: PartyStores, terms: Terms
) -> Site[Rows]:
    """A party, once its ledger is open and the roster is known."""
    entropy: Entropy = OSEntropy()
    if job.noise == "seeded":
        entropy = SeededEntropy(f"{job.seed}/{index}".encode())
    return Site(
        name,
        rows,
        ledger=home[0],
        entropy=entropy,
        store=home[1],
        digest=rows.digest,
        terms=terms,
    )


def open_stores(name: str, job: Job, index: int) -> PartyStores:
    """What a party has: in the job's folder, or in memory for all runs of the job.

    Raises:
        BudgetError: Another run has spent the party's budget.
        LedgerError: The ledger was changed.
    """
    limit = job.total or job.budget
    if not job.limited:  # no bound, and yet the relation in which events are stated
        limit = msgspec.structs.replace(limit, epsilon=inf)
    if job.folder is None:
        fresh = Ledger(name, limit=limit, identity=_seeded_identity(name, job)), MemoryStore()
        found = job.homes.setdefault(name, fresh)
    else:
        home = job.folder / "parties" / f"{index:04d}"
        store = FolderStore(home / "store")
        _mark(home / _SEEDED, name, job)
        kept = (home / KEY_FILE).exists()  # of an earlier run with noise of the system's
        file, identity = home / "ledger.jsonl", None if kept else _seeded_identity(name, job)
        found = Ledger(name, path=file, limit=limit, identity=identity), store
    try:
        if job.limited and job.total is None:
            require_unspent(name, found[0].entries, job.runs, job.budget)
    except BudgetError:
        found[0].close()
        raise
    return found


def _seeded_identity(name: str, job: Job) -> Identity | None:
    """With seeded noise a key that anyone can make again, else the party's own."""
    return Identity.seeded(f"{job.seed}/{name}".encode()) if job.noise == "seeded" else None


def _mark(mark: Path, name: str, job: Job) -> None:
    """Keep for good that replies in a party's folder are made with seeded noise.

    Raises:
        InputError: They are, and this run would repeat them as if nobody knew their noise.
    """
    if job.noise == "seeded":
        mark.touch(mode=0o600)
    elif mark.exists():
        raise InputError(
            f"party {name!r}: noise = {job.noise!r}, but what it keeps in {mark.parent} has noise "
            "from a seed, and would be sent again. Use a folder of its own."
        )


def require_unspent(
    party: str, entries: Sequence[Entry], runs: Sequence[str], budget: Budget
) -> None:
    """Refuse to start where other runs have spent what this one is planned with.

    A run that has begun may go on after a score was charged to the same ledger: what it has yet to
    release is held to the ledger's limit.

    Args:
        party: Whose ledger it is.
        entries: What is in it.
        runs: Names under which this run releases.
        budget: What this run asks for.

    Raises:
        BudgetError: Another run was in the ledger first.
    """
    begun = next((i for i, entry in enumerate(entries) if entry.run in runs), len(entries))
    others = entries[:begun]
    if others:
        before = epsilon([entry.event for entry in others], budget.delta)
        named = ", ".join(sorted({entry.run for entry in others}))
        raise BudgetError(
            f"party {party!r} has already spent epsilon = {before} of {budget.epsilon} at delta "
            f"= {budget.delta} (run {named}), and this run asks for all of it. Nothing was "
            "released. Go on with the study as it was, or agree on a new budget and keep it in a "
            "folder of its own: what both release adds up."
        )


@contextmanager
def in_process(
    held: Mapping[str, Rows], handlers: Handlers, job: Job, run: str, *, transcribed: bool = True
) -> Iterator[tuple[Session, dict[str, Site[Rows]]]]:
    """Open a site for every party and a roster over them; ledgers are closed at the end.

    Args:
        held: What each party holds, by name.
        handlers: A party's side.
        job: Budget, folder and noise.
        run: Name under which it releases, one of `job.runs`.
        transcribed: Whether the coordinator writes down what it hears, where there is a folder;
            networks of thousands of rounds would fill a disk.

    Raises:
        BudgetError: Another run has spent a party's budget.
        LedgerError: A ledger was changed, or the coordinator knows a party by another key.
        InputError: A party is asked to go on with a run that began with other rows; once asked.
    """
    homes: dict[str, PartyStores] = {}
    try:
        for i, name in enumerate(held):
            homes[name] = open_stores(name, job, i)
        keys = {name: ledger.key for name, (ledger, _) in homes.items()}
        terms = Terms(keys, job.tolerated, job.facts)
        sites = {
            name: site_of(name, rows, job, i, homes[name], terms)
            for i, (name, rows) in enumerate(held.items())
        }
        yield _session(InProcess(sites, handlers), keys, job, run, transcribed), sites
    finally:
        for ledger, _ in homes.values():
            ledger.close()


def _session(
    transport: Transport, keys: Mapping[str, bytes], job: Job, run: str, transcribed: bool
) -> Session:
    """What a coordinator holds: the roster, the line to it, and what is kept of its answers."""
    heard = receipts = None
    if job.folder is not None:
        heard = FolderTranscript(job.folder / TRANSCRIPT) if transcribed else None
        receipts = Receipts(job.folder / RECEIPTS, keys)
    return Session(tuple(keys), transport, run=run, transcript=heard, receipts=receipts)


@contextmanager
def opened(
    held: Mapping[str, Rows],
    handlers: Handlers,
    job: Job,
    run: str,
    recipe: Recipe,
    tables: Mapping[str, Table],
    *,
    transcribed: bool = True,
) -> Iterator[tuple[Session, Recall]]:
    """Start a method's parties, wherever they run, and a session with them.

    Args:
        held: What each party holds, by name, for parties in this process.
        handlers: A party's side, alike.
        job: Budget, folder and noise.
        run: Name under which it releases, one of `job.runs`.
        recipe: How a party's side is made in another process.
        tables: Every party's rows, for that.
        transcribed: Whether the coordinator stores the replies, where there is a folder.

    Yields:
        The session, and what a simulation reads at a party after the run: it takes the party's
        name and a key, see `Site.recall`.
    """
    if (elsewhere := _ELSEWHERE.get()) is None:
        with in_process(held, handlers, job, run, transcribed=transcribed) as (session, sites):
            yield session, lambda name, key: sites[name].recall(key, run)
        return
    with elsewhere(recipe, tables, job, run) as line:
        session = _session(line, line.keys, job, run, transcribed)
        yield session, lambda name, key: line.recall(name, key, run)


@contextmanager
def parties_in(opener: Opener) -> Iterator[None]:
    """Let parties of all methods that are fitted meanwhile run elsewhere than in this process.

    Args:
        opener: Opens a transport from a recipe, tables, a job and a run's name.
    """
    token = _ELSEWHERE.set(opener)
    try:
        yield
    finally:
        _ELSEWHERE.reset(token)


def required_rows(name: str, number: int) -> None:
    """Refuse a party without rows.

    Not for a run under a guarantee: whether it starts would show a table of one row apart from an
    empty one.
    """
    if number == 0:
        raise RosterError(f"party {name!r} has no rows; leave it out of the roster")


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
    coordinate: Callable[[Session], Result],
    before: Cost,
    recipe: Recipe,
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
        before: What was done before the run itself, and counts to its cost.
        recipe: How a party's side is made in another process.

    Raises:
        RosterError: A party has no rows, and the run has no guarantee.
        DataError, SchemaError: A party's rows do not fit the schema; the message names the party.
        BudgetError: A party's ledger refuses a release.
    """
    clock = _Clock()
    with clock.phase("coding rows"):
        coded = {name: coded_rows(name, part, encoder) for name, part in data.items()}
    if not job.limited:
        for name, rows in coded.items():
            required_rows(name, rows.num_rows)
    tables = {n: read(part) for n, part in data.items() if not isinstance(part, Codes)}
    line = opened(coded, handlers, job, job.run, recipe, tables)
    with line as (parties, _), clock.phase("rounds with the parties"):
        model, measured = coordinate(parties)
        closing = parties.close()
    first = next(iter(data.values()))
    like = None if isinstance(first, Codes) else outline(read(first))
    return Fitted(
        model,
        encoder,
        info,
        job.budget,
        job.noise == "os" and info.guarantee == "dp",
        settings,
        closing.ledgers,
        closing.heads,
        before + Cost(parties.traffic, parties.rounds, clock.phases),
        measured,
        tuple(queries),
        like,
    )
