"""The synthesizers a user meets: public settings with a `fit`.

**Guarantee**: each class names its own in `info`, and the file of its algorithm states it (aim.py,
flaim.py); this file codes rows, opens ledgers and starts the parties. Sources: McKenna et al. 2022
(AIM); Maddock, Cormode & Maple 2024 (FLAIM).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import comb
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from siloweave.algorithms import aim as aim_file
from siloweave.algorithms import flaim as flaim_file
from siloweave.algorithms.aim import AIMSettings, Round, aim
from siloweave.algorithms.fitted import Cost, Fitted, Info
from siloweave.algorithms.flaim_rounds import flaim
from siloweave.algorithms.flaim_settings import FLAIMSettings, Variant
from siloweave.errors import DataError, RosterError
from siloweave.federation.inprocess import InProcess
from siloweave.federation.parties import Parties
from siloweave.federation.site import FolderStore, Handlers, MemoryStore, Site, Store
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import Budget, marginal_sensitivity
from siloweave.privacy.calibrate import rho_for
from siloweave.privacy.ledger import Ledger
from siloweave.privacy.mechanisms import Entropy, OSEntropy, SeededEntropy
from siloweave.statistics.marginals import random_workload
from siloweave.tables.codes import Clique, Codes, Domain, Encoder
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

__all__ = ["AIM", "FLAIM", "SYNTHESIZERS", "Job", "workload_for"]

Progress = Callable[[str, float], None]
Result = tuple[MRF, list[Round]]
_WORKLOAD_SEED = 123


def _silent(text: str, done: float) -> None:
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
    progress: Progress = _silent
    limited: bool = True


def workload_for(
    domain: Domain, degree: int, queries: int, workload: Sequence[Sequence[str]] | None
) -> list[Clique]:
    """The queries to get right: those named, else random sets of `degree` columns.

    Args:
        domain: Attributes and sizes.
        degree: Columns in a random query.
        queries: How many random queries, fewer where the table has fewer.
        workload: Named queries.
    """
    if workload is not None:
        return [domain.canonical(q) for q in workload]
    degree = min(degree, len(domain.names))
    count = min(queries, comb(len(domain.names), degree))
    return random_workload(domain, degree, count, seed=_WORKLOAD_SEED)


def _named(data: Any, names: Sequence[str] | None) -> dict[str, Any]:
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


def _run(
    info: Info,
    settings: Mapping[str, Any],
    data: Mapping[str, Any],
    encoder: Encoder,
    job: Job,
    handlers: Handlers,
    queries: Sequence[Clique],
    coordinate: Callable[[Parties], Result],
) -> Fitted:
    """Code the rows, open the sites, let the coordinator run, and collect what it left."""
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


def _encoder(schema: Schema | Encoder, bins: int) -> Encoder:
    return schema if isinstance(schema, Encoder) else Encoder(schema, bins)


_ROWS = "every row of every party, against the coordinator, the other parties and readers"


@dataclass(frozen=True)
class AIM:
    """Central AIM: one curator holds all rows.

    Args:
        degree, queries: Random queries of so many columns, when `workload` is not given.
        workload: Sets of columns whose joint distribution shall be right.
        bins: Equal-width bins of a numeric column.
        settings: Of the algorithm itself, see aim.py.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> workload = [("sex", "income"), ("race", "income")]
        >>> fitted = AIM(workload=workload, bins=8).fit(
        ...     adult().take(range(500)), adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0
        True
    """

    degree: int = 3
    queries: int = 64
    workload: Sequence[Sequence[str]] | None = None
    bins: int = 32
    settings: AIMSettings = field(default_factory=AIMSettings)
    info: ClassVar[Info] = Info(
        "aim",
        "AIM",
        "graphical model",
        "central",
        "curator",
        "dp",
        "McKenna, Mullins, Sheldon & Miklau 2022, AIM, VLDB 15(11)",
        "Every row, against readers of the model and the table; the curator sees all rows.",
    )

    def fit(
        self,
        data: Any,
        schema: Schema | Encoder,
        *,
        budget: Budget,
        seed: int = 0,
        names: Sequence[str] | None = None,
        folder: Path | None = None,
        run: str = "run",
        noise: str = "os",
        progress: Progress = _silent,
    ) -> Fitted:
        """Fit to one table; see `Job` for the other arguments."""
        job = Job(budget, seed, folder, run, noise, progress)
        encoder = _encoder(schema, self.bins)
        domain = encoder.domain
        queries = workload_for(domain, self.degree, self.queries, self.workload)
        unit = marginal_sensitivity(budget.relation, norm="l2")

        def coordinate(parties: Parties) -> Result:
            rho = rho_for(budget)
            return aim(parties, domain, queries, rho, self.settings, unit=unit, progress=progress)

        alone = names[0] if names else "curator"
        named = _named(data, None) if isinstance(data, Mapping) else {alone: data}
        settings = {"bins": self.bins, "queries": len(queries), **asdict(self.settings)}
        return _run(self.info, settings, named, encoder, job, aim_file.PARTY, queries, coordinate)


@dataclass(frozen=True)
class FLAIM:
    """AIM over parties that hold different rows, under masked sums.

    Args:
        variant: "private" (AugFLAIM Private), "naive", "random", "naive_bayes", or "oracle".
        rounds: T; None anneals.
        participation: Probability with which a party joins a round.
        cap: Most rounds that a party joins; its rows pay for those only.
        local_steps: Choices per party and round.
        tolerated: Parties of a cohort that may pool what they know with the coordinator.
        degree, queries, workload, bins: As in `AIM`.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> tables = [adult().take(range(i, 900, 3)) for i in range(3)]
        >>> flaim = FLAIM(rounds=2, participation=1.0, bins=8, workload=[("sex", "income")])
        >>> fitted = flaim.fit(tables, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> fitted.epsilon <= 1.0, len(fitted.ledgers)
        (True, 3)
    """

    variant: Variant = "private"
    rounds: int | None = 10
    participation: float = 0.1
    cap: int | None = None
    local_steps: int = 1
    tolerated: int = 1
    degree: int = 3
    queries: int = 64
    workload: Sequence[Sequence[str]] | None = None
    bins: int = 32
    info: ClassVar[Info] = Info(
        "flaim",
        "FLAIM",
        "graphical model",
        "rows",
        "secure-sum",
        "dp",
        "Maddock, Cormode & Maple 2024, FLAIM, KDD 2024",
        f"Protected: {_ROWS}; the coordinator sees only masked, noisy sums and noisy choices.",
    )

    def algorithm(self) -> FLAIMSettings:
        """The settings as the algorithm's file has them."""
        return FLAIMSettings(
            variant=self.variant,
            rounds=self.rounds,
            participation=self.participation,
            local_steps=self.local_steps,
            cap=self.cap,
            tolerated=self.tolerated,
        )

    def fit(
        self,
        data: Any,
        schema: Schema | Encoder,
        *,
        budget: Budget,
        seed: int = 0,
        names: Sequence[str] | None = None,
        folder: Path | None = None,
        run: str = "run",
        noise: str = "os",
        progress: Progress = _silent,
    ) -> Fitted:
        """Fit to one table per party; see `Job` for the other arguments."""
        settings = self.algorithm()
        oracle = self.variant == "oracle"
        job = Job(budget, seed, folder, run, noise, progress, limited=not oracle)
        info = msgspec.structs.replace(self.info, **_ORACLE) if oracle else self.info
        encoder = _encoder(schema, self.bins)
        domain = encoder.domain
        queries = workload_for(domain, self.degree, self.queries, self.workload)
        unit = marginal_sensitivity(budget.relation, norm="l2")

        def coordinate(parties: Parties) -> Result:
            rho = rho_for(budget)
            return flaim(
                parties, domain, queries, rho, settings, key=seed, unit=unit, progress=progress
            )

        public = {"bins": self.bins, "queries": len(queries), **asdict(settings)}
        return _run(
            info, public, _named(data, names), encoder, job, flaim_file.PARTY, queries, coordinate
        )


_ORACLE = {
    "title": "AugFLAIM (Oracle)",
    "guarantee": "none",
    "statement": "Nothing is protected: true heterogeneity is used. A baseline only.",
}

# Every synthesizer by the name that studies use.
SYNTHESIZERS: dict[str, type[AIM] | type[FLAIM]] = {"aim": AIM, "flaim": FLAIM}
