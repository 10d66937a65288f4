"""The one run: parties are opened, a method's stages follow each other, and a fit is returned.

A user calls `Synthesizer.fit`. Rows are checked, every party's ledger is opened with the budget as
its limit, the method's coordinator asks the parties over the wire, and a closing message brings the
ledgers. The parties and the coordinator are those of McKenna, Sheldon & Miklau's
select-measure-generate (2019 to 2022) and of Maddock, Cormode & Maple 2024; `Method.paper` names
the source of each run.

**Guarantee**: none of its own; a method's record states one. A release beyond a ledger's limit is
refused (Dwork & Roth 2014, "The algorithmic foundations of differential privacy"). A party gets the
operating system's entropy; seeded noise, a test mode, marks the whole fit as not private. A release
is paid for before it is drawn and stored before it is sent, see federation/site.py. What a method
promises of the rows that it trains from holds for the whole table, where these are a sample
(`tables.read.sampled`, decision 0050): epsilon is computed as if they were all, and a private
number of rows decides nothing (`share_drawn`).
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from math import inf
from pathlib import Path
from shutil import rmtree
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np

from siloweave.core.fit import Cost, Fit
from siloweave.core.method import Case, Forecast, Info, Method, Place, Setup, Stage, Task
from siloweave.errors import (
    BudgetError,
    InputError,
    LedgerError,
    RosterError,
    SchemaError,
    StudyError,
    count_of,
    naming_party,
    number,
    whole,
)
from siloweave.federation import course, records
from siloweave.federation.session import Closing, InProcess, Session, Transport
from siloweave.federation.site import FolderStore, Handlers, MemoryStore, Site, Store, Terms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import ROW, Budget, Relation, rho_for
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import KEY_FILE, LEDGER_FILE, Entry, Identity, Ledger
from siloweave.privacy.mechanisms import Entropy, OSEntropy, SeededEntropy
from siloweave.progress import Progress, Stopwatch, shows_progress, silent
from siloweave.tables.cells import moved_cells, moved_note
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.constraints import ColumnSum, Computed
from siloweave.tables.database import Database
from siloweave.tables.ids import id_texts
from siloweave.tables.read import Table, Unread, beside, digest_of, read, rows_of, sampled, unread
from siloweave.tables.schema import Schema, outline
from siloweave.tables.units import bounded_rows, check_unit

SEEDED = "seeded"
"""Noise that anyone can repeat; and in a party's folder the file that says so."""
_FACTS = "facts"  # what a training began with, beside its checkpoints
_BEGUN = "begun.mark"
_UNITS = "units"  # there, too: what decides which rows of each unit take part
_DRAWN = "sample"  # what a party draws its rows by, in its store
_NEIGHBOURS = "neighbours"  # there, too: which ones its ledger's sensitivities are of
_log = logging.getLogger("siloweave")

SAMPLE = 1_000_000.0
"""Rows of a table in a database or a Parquet file, about, that are loaded if it has more."""

FEW = 100.0
"""Rows times epsilon below which noise is as large as the counts."""

NAMING_DELTA = 0.1
"""Share of delta with which a value of one unit may be named, where categories are learned."""

TRANSCRIPT = Path("coordinator") / "transcript.msgpack"
"""Where a run's folder holds what the coordinator saw."""


class PartyData(Protocol):
    """What a party works with in a run. Conforming: `Codes`, and every method's own class."""

    def digest(self) -> bytes:
        """Of its rows and of how they are read; see `Site`."""


@dataclass(frozen=True)
class OwnerData:
    """What an owner of rows works with.

    Attributes:
        table: Its rows.
        schema: Facts about its columns.
        progress: Called with a text and the share that is done of its work.
        store: Folder for an interrupted training, of this run alone; or None.
    """

    table: Table
    schema: Schema
    progress: Progress = silent
    store: Path | None = None

    def digest(self) -> bytes:
        """Recognises the same rows when a run is resumed; see `Site`."""
        return digest_of(self.table, self.schema.digest())


Data = TypeVar("Data", bound=PartyData)
_Settings = TypeVar("_Settings")
PartyStores = tuple[Ledger, Store]
"""What a party has beside its rows: its ledger, and its replies."""


# Settings


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a message carries them: lists for tuples, and mappings for dataclasses."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return found


def settings_of(kind: Callable[..., _Settings], values: Any, path: str = "settings") -> _Settings:
    """A dataclass of settings from a mapping; settings within settings are mappings too.

    Args:
        kind: The dataclass. Where one of its fields may be one of several dataclasses, the one
            that knows most of the names is taken, the first of equals.
        values: Its fields that differ from the defaults.
        path: What `values` is called, for errors.

    Raises:
        InputError: A name is unknown, a value has another type or is out of bounds; says where.

    Example:
        >>> from siloweave.models.settings import LatentSettings
        >>> settings_of(LatentSettings, {"diffusion": {"step": 10}})
        Traceback (most recent call last):
        ...
        siloweave.errors.InputError: settings.diffusion.step is no setting; ...
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{path}={values!r} must be a mapping from names to values")
    own: Any = kind
    hints = get_type_hints(own)
    known = {one.name: hints[one.name] for one in fields(own)}
    made: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise InputError(
                f"{path}.{name} is no setting; {path} may have {', '.join(sorted(known))}"
            )
        inner = [one for one in (known[name], *get_args(known[name])) if is_dataclass(one)]
        if inner and not is_dataclass(value) and not hasattr(kind, "method"):
            best: Any = max(inner, key=partial(_names_known, value))
            made[name] = settings_of(best, value, f"{path}.{name}")
            continue
        try:
            made[name] = value if inner else msgspec.convert(value, known[name])
        except msgspec.ValidationError as error:
            raise InputError(f"{path}.{name}={value!r} cannot be used: {error}") from None
    try:
        return kind(**made)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _names_known(values: Any, kind: Any) -> int:
    """How many of the names a dataclass has."""
    names = set(values) if isinstance(values, Mapping) else set()
    return len(names & {one.name for one in fields(kind)})


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two mappings as one; `above` wins, and mappings within are merged the same way.

    Example:
        >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}})
        {'a': 1, 'b': {'c': 4, 'd': 3}}
    """
    both = dict(below)
    for name, value in above.items():
        old = both.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merged(old, value)
        both[name] = value
    return both


def part_of(kind: type[_Settings], synth: Any) -> _Settings:
    """Those settings of a synthesizer that belong to a dataclass which it extends."""
    own: Any = kind
    return kind(**{one.name: getattr(synth, one.name) for one in fields(own)})


# What a user calls


@dataclass(frozen=True)
class Synthesizer:
    """A method with its settings: a frozen dataclass whose fields they are; see `Method`.

    A setting that is a dataclass may be given as a mapping of what differs from its default.
    """

    method: ClassVar[Method]

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Raise InputError where a named argument is no setting."""
        known = [one.name for one in fields(cls) if one.init]
        for name, value in named.items():
            if name not in known:
                raise InputError(
                    f"{cls.__name__} takes no {name}; leave {name}={value!r} out. It takes "
                    f"{', '.join(known)}"
                )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Build settings that were given as mappings, then let every part check its own."""
        hints = get_type_hints(type(self))
        for one in fields(self):
            value, hint, factory = getattr(self, one.name), hints[one.name], one.default_factory
            default = one.default if factory is MISSING else factory()
            if is_dataclass(default):
                object.__setattr__(self, one.name, built(hint, one.name, value, default))
            elif hint is bool or get_origin(hint) is Literal:
                few = get_args(hint) or (True, False)
                if value not in few:
                    names = ", ".join(map(str, few))
                    raise InputError(f"{one.name}={value!r} must be one of {names}")
        for kind in type(self).__mro__:
            if kind is not Synthesizer and "__post_init__" in vars(kind):
                vars(kind)["__post_init__"](self)
        self.method.check(self)

    @property
    def info(self) -> Info:
        """What it is, guarantees and shows at these settings."""
        return self.method.info(self)

    def settings(self) -> dict[str, Any]:
        """All settings, as plain values."""
        return plain(asdict(self))

    def forecast(
        self,
        schema: Any = None,
        *,
        rows: int | None = None,
        budget: Budget | None = None,
        parties: int = 1,
        columns: Mapping[str, Sequence[str]] | None = None,
        learn: float = 0.0,
    ) -> Forecast:
        """Forecast what a fit would take and how far its table would be from the rows.

        No row is read. `siloweave check` does the same for a study.

        Args:
            schema: Public facts about all columns.
            rows: How many rows all parties have together, as declared, public or guessed. With
                split columns, how many people.
            budget: As of `fit`.
            parties: How many there are.
            columns: With split columns, every party's, where they are known; `parties` follows.
            learn: As of `fit`.

        Returns:
            Memory in MB, seconds of a core, bytes, questions, and in `error` the error that noise
            and the drawing of rows are expected to make: mean absolute errors of shares from 0 to
            1. A method without a forecast of it has None there.

        Raises:
            InputError: `rows` is missing or below 1: what noise means to a share depends on it.
            BudgetError: The budget is missing, or asks for what these settings do not give.
            SchemaError: There is no schema, or it has columns that cannot be learned.
            CapacityError: A query does not fit into the model's memory.

        Example:
            >>> from siloweave.datasets import adult_schema
            >>> from siloweave.methods.aim.method import AIM
            >>> error = AIM().forecast(adult_schema(), rows=10_000, budget=Budget(1.0, 1e-6)).error
            >>> 0.001 < error.share < 0.01, error.noise
            (True, False)
        """
        title = self.info.title
        if rows is None:
            raise InputError(
                f"rows is missing; how far {title}'s noise moves a share depends on it. Give the "
                "number of rows that all parties have together, such as rows=10_000: one that is "
                "declared or public, or a guess. No row is read, and nothing is released"
            )
        whole("rows", rows, 1)
        whole("parties", parties, 1)
        schema = _needed_schema(title, schema, encoder=self.method.learns)
        allowed = self.method.allowed(self, budget)
        facts = schema.schema if isinstance(schema, Encoder) else schema
        held = {name: tuple(own) for name, own in (columns or {}).items()}
        roster = tuple(held) or tuple(f"party-{i}" for i in range(parties))
        encoder = schema if isinstance(schema, Encoder) else None
        setup = Setup(self, facts, allowed, roster, held, encoder)
        check_named(setup, learn)
        known = setup.encoder or setup.schema
        case = Case(known, allowed, len(roster), rows, learn, setup.columns)
        return self.method.forecast(self, case)

    @shows_progress
    def fit(
        self,
        data: Any,
        schema: Any = None,
        *,
        budget: Budget | None = None,
        seed: int = 0,
        names: Sequence[str] | None = None,
        folder: Path | str | None = None,
        run: str = "run",
        noise: str = "os",
        learn: float = 0.0,
        sample: float = SAMPLE,
        at_once: int | None = None,
        progress: Any = None,
    ) -> Fit:
        """Fit to the parties' tables.

        Args:
            data: The tables. For a central method one table: a frame, a `Table` or a path, or a
                mapping from the owner's name to it. For split rows or columns one table per party,
                as a list or by name; with split columns, row i is one person in all of them. For
                split rows a single table is that of one party, "party-1", whose sums no other
                party's masks hide.
            schema: Public facts about all columns.
            budget: The most that any row may cost, over all parties that hold a part of it. None,
                or one without a bound, for a method without a guarantee.
            seed: Everything random but the noise that protects: cohorts, first weights, batches.
            names: Of the parties, where `data` is a list.
            folder: Stores ledgers, replies and trainings; the same folder and run resume. In
                memory if None.
            run: Name of the run.
            noise: "os" for the operating system's entropy; "seeded" protects nothing.
            learn: Share of the budget for facts that the schema leaves open: the categories of a
                column that names its `other` alone, and bounds that are not there. Only for methods
                of marginals.
            sample: What is loaded for a method that needs rows, and does not only count them: up
                to 1 the chance with which each row of each party takes part. Above 1 a number of
                rows: of a larger table in a database or a Parquet file about so many are drawn,
                unless parties hold different columns, or the number of rows is private.
            at_once: Parties that this process simulates at the same time, where they train
                networks; as many as there are cores if None. The result does not depend on it.
            progress: Whether to show a bar (None: in a terminal and a notebook), or a function of
                a text and the share that is done.

        Returns:
            A fit, which samples and holds the ledgers.

        Raises:
            BudgetError: The budget is missing, too small, spent, or asks for a guarantee that
                these settings do not give. Nothing is released.
            InputError: A setting or argument is wrong. Nothing is released. Or the run was stopped
                with other settings or rows.
            SchemaError, DataError, RosterError: The tables do not fit the schema or each other;
                the message names the party.
            CapacityError: A query does not fit into the model's memory.
        """
        if learn and not self.method.learns:
            raise InputError(f"{self.method.title} learns no schema; leave learn={learn!r} out")
        schema = _needed_schema(self.info.title, schema, encoder=self.method.learns)
        job = job_for(
            self, budget, seed=seed, folder=None if folder is None else Path(folder), run=run,
            noise=noise, progress=progress, learn=learn, sample=sample,
            at_once=whole("at_once", (os.cpu_count() or 1) if at_once is None else at_once, 1),
        )  # fmt: skip
        return run_method(self, data, schema, job, names)


def built(hint: Any, name: str, value: Any, default: Any) -> Any:
    """A setting that is a dataclass: as it is, or from a mapping of what differs from a default."""
    kinds = [one for one in (hint, *get_args(hint)) if is_dataclass(one)]
    if isinstance(value, tuple(kinds)):  # type: ignore[arg-type]
        return value
    if not isinstance(value, Mapping):
        names = " or ".join(one.__name__ for one in kinds)  # type: ignore[union-attr]
        raise InputError(f"{name}={value!r} must be a mapping from names to values, or {names}")
    fits = [one for one in kinds if set(value) <= {f.name for f in fields(one)}]
    if fits and type(default) not in fits:
        return settings_of(fits[0], value, name)  # type: ignore[arg-type]
    return settings_of(type(default), merged(asdict(default), value), name)


def _needed_schema(title: str, schema: Any, *, encoder: bool) -> Any:
    """The schema of a fit, or an encoder where a method takes one; raises SchemaError."""
    if isinstance(schema, Schema) or (encoder and isinstance(schema, Encoder)):
        return schema
    if schema is None:
        wrong = "schema is missing"
    elif isinstance(schema, Encoder):
        wrong = "schema is an Encoder, and this method makes its own"
    else:
        wrong = f"schema is a {type(schema).__name__}"
    raise SchemaError(
        f"{wrong}; {title} needs public facts about every column: give a Schema, for example "
        "Schema.detect(table) once you have reviewed it"
    )


# The run


@dataclass(frozen=True)
class Job:
    """One run: what is allowed, where it is stored, and where its noise comes from.

    Attributes:
        budget, seed, folder, run, noise, learn, at_once, sample: As of `Synthesizer.fit`.
        progress: Called with a text and the share that is done.
        limited: Whether ledgers enforce the budget: under the guarantee "dp" alone. Elsewhere a
            party without rows is refused by name.
        tolerated: Parties that may pool what they know with the coordinator.
        dropouts: Parties of a masked sum that may vanish.
        stores: Without a folder, what every party has, which the job's stages share.
        total: Most that all runs in a party's ledger may cost together; None for a run that needs
            the ledger for itself.
        rows: How many to draw, where that takes the parties; as many as were fitted if None.
        identity: A party's key over a network; that of its folder if None.
        proofs: What the job's stages share of masked sums, see `Session`.
        asking, sealing: Of a coordinator's seconds, in which it awaits an answer, and seals.
    """

    budget: Budget
    seed: int = 0
    folder: Path | None = None
    run: str = "run"
    noise: str = "os"
    progress: Progress = silent
    limited: bool = True
    learn: float = 0.0
    tolerated: int = 1
    dropouts: int = 0
    stores: dict[str, PartyStores] = field(default_factory=dict, repr=False, compare=False)
    total: Budget | None = None
    at_once: int = 1
    rows: int | None = None
    sample: float = SAMPLE
    identity: Identity | None = None
    proofs: dict[str, dict[str, bytes]] = field(default_factory=dict, repr=False, compare=False)
    asking: Stopwatch = field(default_factory=Stopwatch, repr=False, compare=False)
    sealing: Stopwatch = field(default_factory=Stopwatch, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_sample("sample", self.sample)
        if not isinstance(self.budget, Budget):
            raise InputError(f"budget={self.budget!r} is no Budget; give Budget(epsilon, delta)")
        whole("seed", self.seed)
        if self.noise not in ("os", SEEDED):
            raise InputError(
                f"noise={self.noise!r} must be 'os', the operating system's entropy, or "
                f"{SEEDED!r}, which protects nothing"
            )
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))
        number("learn", self.learn, 0, 1, "[)", ": the share of the budget for open facts")

    @property
    def runs(self) -> tuple[str, str, str]:
        """Names under which it releases: for its schema, for its bins, and for the rest."""
        return self.named("schema"), self.named("bins"), self.run

    @property
    def secret(self) -> bytes:
        """By which a party knows what it stored itself, where others make its folder."""
        return self.identity.sign(b"siloweave store", b"") if self.identity else b""

    def named(self, stage: str) -> str:
        """The name under which a stage releases."""
        return self.run if stage == "method" else f"{self.run}-{stage}"

    @property
    def rho(self) -> float:
        """zCDP of the whole run; with `learn`, a tenth of delta pays for naming categories."""
        if not self.budget.private:
            return inf
        delta = self.budget.delta * (1 - NAMING_DELTA if self.learn else 1.0)
        return rho_for(msgspec.structs.replace(self.budget, delta=delta))


def job_for(synth: Synthesizer, budget: Budget | None, **facts: Any) -> Job:
    """A run of a synthesizer with this budget; `facts` are further fields of `Job`.

    BudgetError if the budget is missing, or asks for what these settings do not give.
    """
    tolerated, dropouts = (
        int(getattr(synth, n, d)) for n, d in (("tolerated", 1), ("dropouts", 0))
    )
    limited = synth.info.guarantee == "dp"
    allowed = synth.method.allowed(synth, budget)
    return Job(allowed, limited=limited, tolerated=tolerated, dropouts=dropouts, **facts)


def run_method(
    synth: Synthesizer, data: Any, schema: Schema | Encoder, job: Job, names: Sequence[str] | None
) -> Fit:
    """Run all stages of a method, the method last; the arguments are those of `Synthesizer.fit`."""
    method = synth.method
    facts = (schema.schema if isinstance(schema, Encoder) else schema).without_reasons()
    encoder = replace(schema, schema=facts) if isinstance(schema, Encoder) else None
    if encoder is not None and facts.constraints:
        raise SchemaError("an Encoder keeps no constraints; give its Schema instead of it")
    check_named(Setup(synth, facts, job.budget, (), {}, encoder), job.learn)
    parts = parties_of(method, data, names)
    setup = Setup(synth, facts, job.budget, tuple(parts), {}, encoder)
    method.affordable(setup, job.learn)  # before anything is read
    tables = {
        name: _read(name, part, setup, job, i) for i, (name, part) in enumerate(parts.items())
    }
    drawn = any(isinstance(one, Table) and one.drawn_of is not None for one in tables.values())
    given, columns = tables, {}
    if method.split == "columns":
        columns = {name: table.names for name, table in tables.items()}
        hidden = job.limited and job.budget.relation is Relation.ADD_REMOVE
        own = columns_of(tables, facts, empty=hidden)
        setup = Setup(synth, facts, job.budget, tuple(parts), own)
        check_named(setup, job.learn)
        method.affordable(setup, job.learn)
    elif not job.limited:
        for name, table in tables.items():
            required_rows(name, table.num_rows)
    counts = [table.num_rows for table in tables.values()]
    for said in too_few("the data have", counts, synth, job.budget) if job.noise != SEEDED else ():
        warnings.warn(said, stacklevel=4)  # to whoever gave the rows, and nobody else
    tables = {name: _inside(name, table, setup) for name, table in tables.items()}
    coded = any(isinstance(table, Codes) for table in tables.values())
    fitted, _ = _run(setup, job, partial(_opened, tables=tables), coded=coded)
    return replace(
        fitted,
        like=None if coded else _like(given, setup),
        columns=columns,
        declared=None if setup.modelled is None else setup.declared,
        settings={**fitted.settings, **({"sample": sample_words(job.sample)} if drawn else {})},
    )


def too_few(held: str, parts: Sequence[int], synth: Synthesizer, budget: Budget) -> Iterator[str]:
    """A sentence about parties' rows that are too few for the budget.

    It shows a number of rows that may be private, so it is for whoever holds all of them.
    """
    rows = max(parts) if synth.method.split == "columns" else sum(parts)
    paid = budget.private and synth.method.needs_budget(synth)
    if paid and rows * budget.epsilon < FEW:
        yield (
            f"{held} {count_of(rows, 'row', 'rows')}: at epsilon = {budget.epsilon:g} the noise is "
            "as large as any count of so few, so no table that is drawn from it can be useful. Use "
            "more rows"
        )


def check_named(setup: Setup, learn: float, *, far: bool = False) -> None:
    """Check that a method can learn the columns of a setup, and that its settings name these.

    Args:
        setup: The run's public facts.
        learn: Share of the budget for facts that the schema leaves open.
        far: Whether parties are elsewhere, so that nobody sees columns that stay apart.

    Raises:
        SchemaError, InputError: As of `Method.check_schema`; combinations are open and `learn` is
            0, the share of the budget that would pay for them; a setting names a column that is
            learned as a part of another; or a constraint needs rows of several parties, whose
            columns are to stay apart, or rows that nobody could draw again; or the budget's unit is
            no id column.
    """
    synth, modelled = setup.synth, setup.modelled
    if not setup.budget.by_row:
        check_unit(setup.budget.unit, setup.declared)
    if modelled is not None:
        modelled.check_open(learn)
        workload = getattr(synth, "workload", None) or ()
        queries = () if isinstance(workload, str) else workload
        for name in (getattr(synth, "target", None), *chain(*queries)):
            if name in setup.declared.names and name not in setup.schema.names:
                known = ", ".join(setup.schema.names)
                raise InputError(
                    f"settings name column {name!r}, which is learned as a part of another because "
                    f"of a constraint; name one of {known}"
                )
        apart = not getattr(synth, "shared", True)
        for one in modelled.declared.constraints if setup.columns else ():
            if not modelled.local(one) and (apart or isinstance(one, ColumnSum | Computed)):
                why = "stay apart (shared=False)" if apart else "can be computed by none of them"
                raise InputError(
                    f"constraint {one.words}: names columns of several parties, which {why}. Take "
                    "it out of the schema"
                )
            if far and apart and not modelled.always(one):
                raise InputError(
                    f"constraint {one.words}: over a network, where columns stay apart "
                    "(shared=False), rows that break it cannot be drawn again: whoever draws them "
                    "would learn which these are, and that follows from columns that stay. Take "
                    "it out of the schema, or share the columns"
                )
    synth.method.check_schema(synth, setup.schema)


def _inside(name: str, table: Any, setup: Setup) -> Any:
    """A party's table as the method learns it."""
    if setup.modelled is None or isinstance(table, Codes):
        return table
    with naming_party(name):
        return setup.modelled.inside(table)


def run_over(setup: Setup, job: Job, parties: Parties) -> Fit:
    """Run all stages of a method with parties elsewhere, of whose rows nothing is here.

    Args:
        setup: The run's public facts, with every party's columns where they are split.
        job: Budget, folder and name of the run.
        parties: Opens a session with them for a stage.

    Raises:
        SiloweaveError: As of `Synthesizer.fit`.
    """
    check_named(setup, job.learn, far=True)
    setup.synth.method.affordable(setup, job.learn)
    fitted, closing = _run(setup, job, parties)
    write_ledgers(job, setup.roster, closing)
    declared = None if setup.modelled is None else setup.declared
    settings = dict(fitted.settings)
    if samples(setup.synth, job.budget.relation, job.sample) and not setup.counts:
        settings["sample"] = sample_words(job.sample)
    return replace(
        fitted, columns=setup.held, simulated=False, declared=declared, settings=settings
    )


def write_ledgers(job: Job, roster: Sequence[str], closing: Closing) -> None:
    """Write copies of ledgers of parties elsewhere, by which anyone can check an epsilon."""
    for i, name in enumerate(roster):
        home = _home(job, i)
        if home is not None and name in closing.files:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(home / LEDGER_FILE, closing.files[name])


def _run(setup: Setup, job: Job, parties: Parties, *, coded: bool = False) -> tuple[Fit, Closing]:
    """All stages of a method, the method last; rows that are coded need no stage before."""
    synth, cost, rho = setup.synth, Cost({}, 0, {}), None
    method, info = synth.method, synth.info
    for stage in () if coded else method.before:
        if (planned := stage.plan(setup, job.learn)) is None:
            job = replace(job, learn=0.0) if stage.name == "schema" else job
            continue
        start, share = time.perf_counter(), stage.share(synth, job.learn)
        rho = job.rho if rho is None else rho
        with parties(planned, stage, job) as (session, task, _):
            found = stage.coordinate(session, replace(task, rho=rho * share))
        rho *= 1 - share
        info = msgspec.structs.replace(info, visibility=stage.views(info.visibility, setup))
        setup = stage.refine(setup, found)
        seconds = {stage.phase: time.perf_counter() - start}
        cost += Cost(session.traffic, session.rounds, seconds)
    start = time.perf_counter()
    with parties(setup, method, job) as (session, task, recall):
        result = method.coordinate(session, replace(task, rho=job.rho if rho is None else rho))
        model = result.model
        if recall is not None and method.gather is not None:
            model = method.gather(model, setup, recall)
        elif method.decode is not None:
            model = method.decode(session, task, result, job.rows)
        gone = sorted(session.gone)
        closing = session.close()
    for store in job.folder.glob(f"*/**/{_training(job)}") if job.folder else ():
        rmtree(store, ignore_errors=True)  # replies and model are stored now
    cost += Cost(session.traffic, session.rounds, {method.phase: time.perf_counter() - start})
    facts = {**result.facts, "vanished": gone} if gone else result.facts
    fitted = Fit(
        model, info, job.budget, job.noise == "os" and info.guarantee == "dp",
        {**synth.settings(), **facts}, closing.ledgers, closing.heads, cost,
        result.num_rows,
    )  # fmt: skip
    return fitted, closing


def _read(name: str, part: Any, setup: Setup, job: Job, index: int) -> Any:
    """A party's rows; where a method only counts them, what is large stays where it is."""
    if isinstance(part, Codes):
        require_row(name, job.budget)
        return part
    with naming_party(name):
        kept, home = unread(part), _home(job, index)
        rows = kept or read(part, names=setup.declared.names)
        if not setup.counts:
            rows = rows_to_learn(name, rows, setup.synth, job, index, home)
        elif kept and _ELSEWHERE.get() is not None:
            rows = read(kept)
        ordered = not isinstance(kept, Database)
        split, schema = setup.synth.method.split, setup.declared
        rows = rows_of_units(rows, split, schema, job, index, home, ordered=ordered)
        _note_moved(name, rows, setup)
        return rows


def _note_moved(name: str, table: Table | Unread, setup: Setup) -> None:
    """Warn whoever gave the rows, and nobody else, of what did not fit the schema and was moved.

    Cells in a database are counted when the method prepares it, see `protocols.marginals`.
    """
    if isinstance(table, Database):
        return
    moved = Counter[str]()
    for piece in [table] if isinstance(table, Table) else table.batches():
        moved.update(moved_cells(piece, setup.declared))
    if moved:
        warnings.warn(f"{name}: {moved_note(moved, setup.declared)}", stacklevel=5)
    if setup.modelled is None or not isinstance(table, Table):
        return
    for words, count in setup.modelled.moved_rows(table).items():
        rows = f"{count:,} of {table.num_rows:,} rows break {words}"
        text = f"{name}: {rows}, and count as the nearest that keep it"
        warnings.warn(text, stacklevel=5)


def check_sample(name: str, sample: float) -> None:
    """Raise InputError for what is neither a share of the rows nor a number of rows."""
    number(name, sample, 0, inf, "()")
    if sample > 1 and sample != int(sample):
        raise InputError(
            f"{name}={sample!r} must be a share of the rows, up to 1, or a whole number of rows"
        )


def samples(synth: Synthesizer, relation: Relation, sample: float) -> bool:
    """Whether rows may be drawn for a method that does not only count them.

    Parties with different columns must have the same rows. Where a method keeps a bound and a row
    more or less makes a neighbour, a chance that follows from the number of rows would show it, so
    that only a share is drawn, which does not depend on the table.
    """
    hidden = synth.method.needs_budget(synth) and relation is Relation.ADD_REMOVE
    return synth.method.split != "columns" and sample != 1 and (sample < 1 or not hidden)


def share_drawn(
    part: Unread | None, synth: Synthesizer, relation: Relation, sample: float
) -> float:
    """The chance with which each row of a party takes part; rows in memory have no `part`."""
    if not samples(synth, relation, sample):
        return 1.0
    if sample < 1:
        return sample
    return 1.0 if part is None else min(1.0, sample / max(part.num_rows, 1))


def sample_words(sample: float) -> str:
    """How rows were drawn, in words that name no number of rows of a party."""
    if sample < 1:
        return f"each row took part with a chance of {sample:g}"
    return f"of a larger table in a database or a Parquet file about {sample:,.0f} rows were drawn"


def rows_to_learn(
    name: str, part: Table | Unread, synth: Synthesizer, job: Job, index: int, home: Path | None
) -> Table:
    """The rows that a party gives to a method that needs them: all, or a sample.

    The sample is the same when a run continues: what it is drawn by is in the party's folder.
    """
    kept = None if isinstance(part, Table) else part
    share = share_drawn(kept, synth, job.budget.relation, job.sample)
    if share == 1 or (isinstance(part, Table) and part.drawn_of is not None):
        return read(part)
    table = sampled(part, share, _secret_for(_DRAWN, job, index, home))
    taken = f"{table.num_rows:,} of {table.drawn_of:,}"
    _log.info("%s: a sample of %s rows takes part", name, taken)
    return table


def _secret_for(purpose: str, job: Job, index: int, home: Path | None) -> bytes:
    """A party's own secret for a purpose; from its folder, so that it stays the same."""
    if job.noise == SEEDED:
        return SeededEntropy(f"{job.seed}/{index}/{purpose}".encode()).bytes(32)
    store = FolderStore(home / "store", job.secret) if home else MemoryStore()
    secret = store.get(purpose) or OSEntropy().bytes(32)
    store.put(purpose, secret)
    return secret


def require_row(name: str, budget: Budget) -> None:
    """Refuse a party's codes where the unit is not a row: they do not say whose they are."""
    if not budget.by_row:
        raise SchemaError(
            f"party {name!r}: its rows are codes, which do not say whose they are; give its table "
            f"with the column {budget.unit!r}"
        )


def rows_taking_part(part: Any, split: str, schema: Schema, job: Job, index: int) -> Table:
    """Read a party's rows that take part; arguments and errors are those of `rows_of_units`."""
    kept, home = unread(part), _home(job, index)
    ordered = not isinstance(kept, Database)
    return read(rows_of_units(read(part), split, schema, job, index, home, ordered=ordered))


def rows_of_units(
    rows: Table | Unread,
    split: str,
    schema: Schema,
    job: Job,
    index: int,
    home: Path | None,
    *,
    ordered: bool = True,
) -> Table | Unread:
    """Keep the rows that take part: at most so many of each unit, where that is not a row.

    Rows that were bounded before stay as they are. See `tables.units` for what is kept, and why it
    may follow from a public key where parties hold different columns.

    Args:
        rows: A party's rows, with the id column.
        split: How the table is spread over parties, as of `Method`.
        schema: The declared schema.
        job: The budget and the run.
        index: Place of the party in the roster.
        home: Its folder; a resumed run keeps the same rows.
        ordered: Whether the rows have an order that lasts; not where a database gave them.

    Raises:
        SchemaError: The table lacks the id column, or rows lack an id that none may lack.
    """
    if job.budget.by_row:
        return rows
    if split == "columns":
        secret = blake2b(job.run.encode(), digest_size=32, person=b"siloweave units").digest()
    else:
        secret = _secret_for(_UNITS, job, index, home)
    most, table = job.budget.neighbours.rows, read(rows)
    kept = bounded_rows(table, schema[job.budget.unit], most, secret, ordered=ordered)
    if left_out := table.num_rows - kept.num_rows:
        _log.info(
            "%s of %s rows are left out: at most %d of each %s take part",
            f"{left_out:,}", f"{table.num_rows:,}", most, job.budget.unit,
        )  # fmt: skip
    return kept


def _like(tables: Mapping[str, Any], setup: Setup) -> Table:
    """An empty table of the kind that was given, with all columns."""
    if not setup.columns:
        return outline(rows_of(next(iter(tables.values())), 0))
    empty = beside([outline(table) for table in tables.values()])
    return empty.select([name for name in setup.declared.names if name in empty.names])


def parties_of(method: Method, data: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """One table per party, by name; the one owner's for a central method.

    A single table is that of one party, "party-1", where parties hold different rows.

    Raises:
        RosterError: There is no party, or more than a method takes.
    """
    several = isinstance(data, Mapping | list | tuple)
    if method.split == "rows" and not several:
        return named_parties([data], names)
    if method.split == "columns" and not several:
        raise RosterError(
            f"data is one {type(data).__name__}, and {method.title} is for parties that hold "
            "different columns; give one table per party, as a list or by name, or divide it: "
            "sw.split_columns(data, 2)"
        )
    if method.split != "central":
        found = named_parties(data, names)
        if not found:
            raise RosterError("data has no party; give one table per party, as a list or by name")
        return found
    if not isinstance(data, Mapping):
        return named_parties([data], ["curator"] if names is None else names)
    if len(data) != 1:
        raise RosterError(
            f"data has {len(data)} parties, and {method.title} takes one that holds all rows"
        )
    return named_parties(data, None)


def named_parties(data: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """One table per party, by name; parties of a list without names are "party-1" and so on.

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


def required_rows(name: str, number: int) -> None:
    """Refuse a party without rows; not under a guarantee, where a refusal would show the first."""
    if number == 0:
        raise RosterError(f"party {name!r} has no rows; leave it out of the roster")


def coded_rows(name: str, part: Any, encoder: Encoder) -> Codes:
    """A party's rows as codes, if they are not; raises what names it if they do not fit."""
    if isinstance(part, Codes):
        return part
    with naming_party(name):
        return encoder.encode(read(part))


# Columns split: row i is the same person at every party


def columns_of(
    tables: Mapping[str, Table], schema: Schema, *, empty: bool = False
) -> dict[str, tuple[str, ...]]:
    """Every party's columns without ids, where parties hold columns of the same people.

    Tables may be without rows if `empty`: where neighbours differ by a row, a refusal would show
    the first one.

    Raises:
        RosterError: Parties have other numbers of rows, ids in another order, or no rows; or as of
            `own_columns`, as is a SchemaError.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> table, schema = adult(), adult_schema().select(["sex", "income", "age"])
        >>> columns_of({"a": table.select(["age", "sex"]), "b": table.select(["income"])}, schema)
        {'a': ('age', 'sex'), 'b': ('income',)}
    """
    found = own_columns({name: table.names for name, table in tables.items()}, schema)
    _check_rows(tables, empty)
    _check_ids(tables, schema)
    return found


def own_columns(columns: Mapping[str, Sequence[str]], schema: Schema) -> dict[str, tuple[str, ...]]:
    """Every party's columns without ids, each at one party, from the names of all.

    Raises:
        RosterError: A party has no column but ids.
        SchemaError: A column is in no schema, at no party, or at two; the message names parties.
    """
    owners: dict[str, str] = {}
    for party, names in columns.items():
        for name in names:
            if name not in schema.names:
                raise SchemaError(
                    f"party {party!r}: the schema lacks its column {name!r}. Declare it, or leave "
                    "it out of the party's table."
                )
            if not schema[name].modelled:
                continue
            if name in owners:
                raise SchemaError(
                    f"parties {owners[name]!r} and {party!r} both hold column {name!r}; take it "
                    "from one of them. Only ids may be at several parties."
                )
            owners[name] = party
    absent = [c.name for c in schema.coded if c.name not in owners]
    if absent:
        raise SchemaError(
            f"no party holds the schema's columns {', '.join(map(repr, absent))}; add them to a "
            "party's table, or take them out of the schema."
        )
    found = {name: tuple(c for c in own if c in owners) for name, own in columns.items()}
    for name, own in found.items():
        if not own:
            raise RosterError(f"party {name!r} has no column but ids; leave it out of the roster")
    return found


def _check_rows(tables: Mapping[str, Table], empty: bool) -> None:
    (first, table), *others = tables.items()
    for name, one in () if empty else tables.items():
        required_rows(name, one.num_rows)
    for name, other in others:
        if other.num_rows != table.num_rows:
            raise RosterError(
                f"party {name!r} has {other.num_rows:,} rows and party {first!r} has "
                f"{table.num_rows:,}; row i must be one person at every party. Align the tables "
                "on an id first."
            )


def _check_ids(tables: Mapping[str, Table], schema: Schema) -> None:
    """Refuse tables whose shared ids show another order of rows."""
    for column in (c.name for c in schema.columns if c.kind == "id"):
        holders = [(name, table) for name, table in tables.items() if column in table.names]
        for (first, table), (name, other) in ((holders[0], one) for one in holders[1:]):
            with naming_party(first):
                mine = id_texts(table, column)
            with naming_party(name):
                theirs = id_texts(other, column)
            if mine != theirs:
                row = int(np.argmax([a != b for a, b in zip(mine, theirs, strict=True)]))
                raise RosterError(
                    f"parties {first!r} and {name!r} differ in id {column!r} at row {row}; row i "
                    "must be one person at every party. Align the tables first."
                )


# Unfinished trainings


def _training(job: Job) -> str:
    """Name of the folders in which a run's unfinished trainings are stored."""
    return f"training-{blake2b(job.run.encode(), digest_size=8).hexdigest()}"


def training_store(setup: Setup, job: Job, home: Path) -> Path:
    """A folder for checkpoints, in that of a party or the coordinator.

    It records everything but the rows that decides what is trained.

    Raises:
        StudyError: What is stored there began with something else; the message names it.
    """
    folder = home / _training(job)
    store = FolderStore(folder)
    synth = setup.synth
    facts = {"method": synth.method.name, "settings": synth.settings(), "budget": job.budget}
    facts |= {"noise": job.noise, "seed": job.seed}
    now, before = msgspec.json.encode(facts), store.get(_FACTS)
    if before != now:
        if len(list(folder.iterdir())) > (before is not None):  # there is more than the facts
            odd = "; ".join(differences(before or b"{}", now, "now"))
            raise StudyError(
                f"run {job.run!r} was stopped while it trained with {odd}. Continue with "
                "what it began with, or start another run; to begin this training anew, remove "
                f"{folder}."
            )
        store.put(_FACTS, now)
    if home.name == "coordinator":
        (folder / _BEGUN).touch()  # from here on other settings are refused by name
    return folder


def differences(mine: bytes, theirs: bytes, place: str = "there") -> list[str]:
    """What public facts have not alike, in words: ours, and what they are in another `place`.

    Example:
        >>> differences(b'{"seed": 1, "budget": {"epsilon": 1.0}}', b'{"seed": 2}')
        ["budget.epsilon = 1.0, and there 'nothing'", 'seed = 1, and there 2']
    """
    own, other = (_flat(msgspec.json.decode(one)) for one in (mine, theirs))
    return [
        f"{name} = {own.get(name, 'nothing')!r}, and {place} {other.get(name, 'nothing')!r}"
        for name in sorted(own.keys() | other.keys())
        if own.get(name) != other.get(name)
    ]


def _flat(facts: Any, head: str = "") -> dict[str, Any]:
    """Facts within facts as one level, by names such as budget.epsilon."""
    if isinstance(facts, list):
        facts = {str(i): one for i, one in enumerate(facts)}
    found: dict[str, Any] = {}
    for name, value in facts.items() if isinstance(facts, Mapping) else ():
        nested = isinstance(value, Mapping | list) and value
        found |= _flat(value, f"{head}{name}.") if nested else {f"{head}{name}": value}
    return found


# Parties, in this process or elsewhere


class Elsewhere(Transport, Protocol):
    """A transport to parties outside this process; tests start each in a process of its own."""

    keys: Mapping[str, bytes]

    def recall(self, name: str, key: str, run: str) -> bytes | None:
        """What a party stores under a key; only a simulation reads it."""


Recall = Callable[[str, str], bytes | None]
"""What a party stores: it takes the party's name and the key."""
Parties = Callable[
    [Setup, Method | Stage, Job], AbstractContextManager[tuple[Session, Task, "Recall | None"]]
]
"""Opens a session with the parties of a stage, the task without its rho, and `Recall`."""
Opener = Callable[[Setup, Mapping[str, Any], Job, str], AbstractContextManager[Elsewhere]]
"""Opens parties elsewhere, from a setup, their tables, a job and a run's name."""
_ELSEWHERE: ContextVar[Opener | None] = ContextVar("where parties run", default=None)


@contextmanager
def parties_in(opener: Opener) -> Iterator[None]:
    """Let parties of all methods that are fitted meanwhile run elsewhere than in this process."""
    token = _ELSEWHERE.set(opener)
    try:
        yield
    finally:
        _ELSEWHERE.reset(token)


def task_of(setup: Setup, side: Method | Stage, job: Job, *, share: float = 0.0) -> Task:
    """What a stage's coordinator is to do, without its rho; parties do `share` of the work first.

    StudyError if it was stopped while it trained, with other settings.
    """
    run = job.named(setup.stage)

    def progress(text: str, done: float) -> None:
        job.progress(text, share + (1.0 - share) * done)

    trains = "coordinator" in side.trains_at if isinstance(side, Method) else False
    own = training_store(setup, job, job.folder / "coordinator") if trains and job.folder else None
    entropy = SeededEntropy(f"{job.seed}/{run}".encode()) if job.noise == SEEDED else OSEntropy()
    at_once = min(len(setup.roster), job.at_once)
    return Task(setup, inf, job.seed, progress, own, at_once, entropy)


@contextmanager
def _opened(
    setup: Setup, side: Method | Stage, job: Job, tables: Mapping[str, Any]
) -> Iterator[tuple[Session, Task, Recall]]:
    """Start a stage's parties in this process, or where `parties_in` says."""
    method, run = setup.synth.method, job.named(setup.stage)
    share = method.party_share(setup.synth) if side is method else 0.0
    task = task_of(setup, side, job, share=share)
    if (elsewhere := _ELSEWHERE.get()) is not None:
        with elsewhere(setup, tables, job, run) as line:
            session = session_with(line, line.keys, job, run, transcribed=method.transcribed)
            yield session, task, lambda name, key: line.recall(name, key, run)
        return
    held = {}
    for i, (name, table) in enumerate(tables.items()):
        progress = _party_progress(job, share, i, len(tables))
        place = place_of(setup, side, job, name, _home(job, i), progress)
        with naming_party(name):
            held[name] = side.prepare(table, setup, place)
    given = in_process(
        held, side.handlers(setup.synth), job, run,
        facts=side.facts(setup), transcribed=method.transcribed,
        smallest_cohort=setup.smallest_cohort,
    )  # fmt: skip
    with given as (session, sites):
        yield session, task, lambda name, key: sites[name].recall(key, run)


def _home(job: Job, index: int) -> Path | None:
    return None if job.folder is None else job.folder / "parties" / f"{index:04d}"


def place_of(
    setup: Setup,
    side: Method | Stage,
    job: Job,
    name: str,
    home: Path | None,
    progress: Progress = silent,
) -> Place:
    """Where a party works on a stage, whose folder `home` is.

    StudyError if it was stopped while it trained, with other settings.
    """
    trains = "party" in side.trains_at if isinstance(side, Method) else False
    return Place(name, progress, training_store(setup, job, home) if trains and home else None)


def _party_progress(job: Job, share: float, index: int, parties: int) -> Progress:
    """A party's progress as part of the run's."""
    if not share:
        return silent

    def progress(text: str, done: float) -> None:
        named = text if parties == 1 else f"party {index + 1} of {parties}: {text}"
        job.progress(named, share * (index + done) / parties)

    return progress


@contextmanager
def in_process(
    held: Mapping[str, Data],
    handlers: Handlers,
    job: Job,
    run: str,
    *,
    facts: Mapping[str, Any] | None = None,
    transcribed: bool = True,
    smallest_cohort: int = 1,
) -> Iterator[tuple[Session, dict[str, Site[Data]]]]:
    """Open a site for every party and a session with them; ledgers are closed at the end.

    Args:
        held: Every party's data, by name.
        handlers: A party's side.
        job: Budget, folder and noise.
        run: Name under which it releases, one of `job.runs`.
        facts: What every party is given of the study, see `Terms`.
        smallest_cohort: The same.
        transcribed: Whether the coordinator stores the replies in the folder; those of thousands of
            rounds would fill a disk.

    Raises:
        BudgetError: Another run has spent a party's budget.
        LedgerError: A ledger was changed, or the coordinator knows a party by another key.
        InputError: A party is asked to continue a run that began with other rows; once asked.
    """
    stores: dict[str, PartyStores] = {}
    try:
        for i, name in enumerate(held):
            stores[name] = open_stores(name, job, _home(job, i))
        keys = {name: ledger.key for name, (ledger, _) in stores.items()}
        terms = Terms(
            keys, job.tolerated, facts or {}, job.dropouts, job.run,
            smallest_cohort=smallest_cohort,
        )  # fmt: skip
        sites = {
            name: site_of(name, data, job, i, stores[name], terms)
            for i, (name, data) in enumerate(held.items())
        }
        line = InProcess(sites, handlers)
        yield session_with(line, keys, job, run, transcribed=transcribed), sites
    finally:
        for ledger, _ in stores.values():
            ledger.close()


def session_with(
    transport: Transport,
    keys: Mapping[str, bytes],
    job: Job,
    run: str,
    *,
    transcribed: bool,
    at_once: int = 1,
    status: course.StatusFile | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> Session:
    """What a coordinator holds: the roster, the transport, and what is stored of replies."""
    transcript = receipts = absences = None
    if job.folder is not None:
        transcript = records.FolderTranscript(job.folder / TRANSCRIPT) if transcribed else None
        receipts = records.Receipts(job.folder / course.RECEIPTS, keys)
        absences = records.Absences(job.folder / records.ABSENCES) if job.dropouts else None
    return Session(
        tuple(keys),
        transport,
        run=run,
        transcript=transcript,
        receipts=receipts,
        at_once=at_once,
        tolerated=job.tolerated,
        dropouts=job.dropouts,
        status=status,
        absences=absences,
        sizes=sizes,
        proofs=job.proofs,
        asking=job.asking,
    )


def site_of(
    name: str, data: Data, job: Job, index: int, stores: PartyStores, terms: Terms
) -> Site[Data]:
    """A party, once its ledger is open and the roster is known."""
    entropy: Entropy = OSEntropy()
    if job.noise == SEEDED:
        entropy = SeededEntropy(f"{job.seed}/{index}".encode())
    ledger, store = stores
    return Site(
        name, data, ledger=ledger, entropy=entropy, store=store, digest=data.digest, terms=terms
    )


def open_stores(name: str, job: Job, home: Path | None) -> PartyStores:
    """What a party has: in its folder, or in memory for all stages of the job.

    LedgerError if the ledger was changed, or lacks what paid for a reply in the store; BudgetError
    if another run has spent the budget, or what it released is about other neighbours.
    """
    limit = job.total or job.budget
    if not job.limited:  # no bound, and yet the relation in which events are stated
        limit = msgspec.structs.replace(limit, epsilon=inf)
    if home is None:
        fresh = Ledger(name, limit=limit, identity=_seeded_identity(name, job)), MemoryStore()
        found = job.stores.setdefault(name, fresh)
    else:
        store = FolderStore(home / "store", job.secret)
        _mark(home / SEEDED, name, job)
        kept = (home / KEY_FILE).exists()  # of an earlier run with noise of the system's
        identity = job.identity or (None if kept else _seeded_identity(name, job))
        found = Ledger(name, path=home / LEDGER_FILE, limit=limit, identity=identity), store
    try:
        if job.limited and job.total is None:
            require_unspent(name, found[0].entries, job.runs, job.budget)
        paid = {"", *(entry.hash for entry in found[0].entries)}
        if home is not None and not paid.issuperset(store.payments()):
            raise lost_ledger(home / LEDGER_FILE, "lacks what paid for answers in the store beside")
        if home is not None and job.limited:
            _require_alike(found[0], store, limit)
    except BaseException:  # a full disk, too
        found[0].close()
        raise
    return found


def _require_alike(ledger: Ledger, store: Store, limit: Budget) -> None:
    """Refuse a limit of other neighbours than those for which the entries were priced.

    An entry has a distance of neighbours, and not which neighbours these are.
    """
    now = [limit.unit, str(limit.relation), limit.rows_per_unit]
    before = store.get(_NEIGHBOURS)
    known: Any = now if before is None else msgspec.json.decode(before)
    if len(known) == 2:  # written before units were bounded: a row was protected, by any name
        known = [ROW, known[1], 1]
    if ledger.entries and known != now:
        priced = Budget(1.0, limit.delta, known[0], Relation(known[1]), known[2])
        raise BudgetError(
            f"budget: protects {limit.protected}, and the ledger of party {ledger.owner!r} holds "
            f"what {priced.protected} costs, so these do not add up. Nothing was released. Give a "
            "budget of the same unit, rows_per_unit and relation, or use a folder of its own."
        )
    if before is None or known != now:
        store.put(_NEIGHBOURS, msgspec.json.encode(now))


def lost_ledger(file: Path, what: str) -> LedgerError:
    """The refusal of a ledger that is gone, or is an old copy."""
    return LedgerError(
        f"{file}: {what}. More was released than it says, and nothing will be now. Put the last "
        "copy of this file back, or count the study as spent in full and agree on a new one"
    )


def _seeded_identity(name: str, job: Job) -> Identity | None:
    """With seeded noise a key that anyone can make again, else the party's own."""
    return Identity.seeded(f"{job.seed}/{name}".encode()) if job.noise == SEEDED else None


def _mark(mark: Path, name: str, job: Job) -> None:
    """Record that replies in a party's folder have seeded noise; such a folder stays so marked."""
    if job.noise == SEEDED:
        mark.touch(mode=0o600)
    elif mark.exists():
        raise InputError(
            f"party {name!r}: noise = {job.noise!r}, but what it stores in {mark.parent} has noise "
            "from a seed, and would be sent again. Use a folder of its own."
        )


def require_unspent(
    party: str, entries: Sequence[Entry], runs: Sequence[str], budget: Budget
) -> None:
    """Raise BudgetError where another run was in the ledger before these `runs` began.

    A run that has begun may continue after a score was charged to the same ledger: what it has yet
    to release is held to the ledger's limit.
    """
    begun = next((i for i, entry in enumerate(entries) if entry.run in runs), len(entries))
    if others := entries[:begun]:
        before = epsilon([entry.event for entry in others], budget.delta)
        named = ", ".join(sorted({entry.run for entry in others}))
        raise BudgetError(
            f"party {party!r} has already spent epsilon = {before} of {budget.epsilon} at delta "
            f"= {budget.delta} (run {named}), and this run asks for all of it. Nothing was "
            "released. Continue the study as it was, or agree on a new budget and a folder of "
            "its own: what both release adds up."
        )
