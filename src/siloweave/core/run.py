"""The one run: a method's stages follow each other over a carrier, and a fit is returned.

A user calls `Synthesizer.fit`. Rows are checked, every party's ledger is opened with the budget as
its limit, the method's coordinator asks the parties over the wire, and a closing message brings the
ledgers. The parties and the coordinator are those of McKenna, Sheldon & Miklau's
select-measure-generate (2019 to 2022) and of Maddock, Cormode & Maple 2024; `Method.paper` names
the source of each run.

A fit in one process has its parties behind the carrier `Direct`. Between organisations they are the
same parties behind another one, and the run is the same (`run_study`).

**Guarantee**: none of its own; a method's record states one. A release beyond a ledger's limit is
refused (Dwork & Roth 2014, "The algorithmic foundations of differential privacy"). A party gets the
operating system's entropy; seeded noise, a test mode, marks the whole fit as not private. A release
is paid for before it is drawn and stored before it is sent, see federation/site.py.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec

from siloweave.core.fit import Cost, Fit
from siloweave.core.method import (
    COORDINATOR_TRAINING,
    REPLIES,
    Forecast,
    Method,
    MethodSettings,
    Setup,
    Stage,
    Task,
    job_for,
)
from siloweave.core.party import (
    StageFacts,
    StudySide,
    check_same_people,
    direct_parties,
    own_columns,
    parties_of,
    require_row,
    required_rows,
    rows_of_units,
    rows_to_learn,
    sample_words,
    samples,
    too_few,
    training_name,
    training_store,
)
from siloweave.core.settings import SAMPLE, TRANSCRIPT, Job
from siloweave.errors import InputError, RosterError, SchemaError, naming_party, whole
from siloweave.federation import course, messages, records
from siloweave.federation.carriers.carrier import Carrier
from siloweave.federation.session import Closing, Session
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import LEDGER_FILE
from siloweave.privacy.mechanisms import Entropy, OSEntropy, SeededEntropy
from siloweave.progress import Progress, shows_progress, silent
from siloweave.tables.bins import value_count
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.constraints import (
    ColumnSum,
    Computed,
    Constraint,
    FixedCombinations,
)
from siloweave.tables.database import Database
from siloweave.tables.files import user_path
from siloweave.tables.joining import beside
from siloweave.tables.moved import moved_cells, moved_note
from siloweave.tables.read import Unread, read, rows_of, unread
from siloweave.tables.schema import Schema, outline
from siloweave.tables.table import Table
from siloweave.tables.units import check_unit

_LOCAL_STUDY = b"{}"
"""What parties of this process compare as the study: they have its very objects."""
# Where fewer than one in so many numbers of a column is in a combination, a drawn one hardly is.
_RARE = 10

Opener = Callable[[Setup, Mapping[str, Any], Job], Carrier]
"""Opens the parties of a fit: from the setup, every party's table by name, and the job."""


# What a user calls


@dataclass(frozen=True)
class Synthesizer(MethodSettings):
    """A method with its settings, ready to be fitted: a frozen dataclass with a field per setting.

    A setting that is a dataclass may be given as a mapping of what differs from its default.
    """

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
        encoder = schema if isinstance(schema, Encoder) else None
        facts = schema if encoder is None else encoder.schema
        party_columns = {name: tuple(names) for name, names in (columns or {}).items()}
        roster = tuple(party_columns) or tuple(f"party-{i}" for i in range(parties))
        setup = Setup(self, facts, allowed, roster, party_columns, encoder, learn)
        check_named(setup)
        return self.method.forecast(setup, rows)

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
                a text and the share that is done, 1 at the end.

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
            raise InputError(
                f"{self.method.title} learns no schema; leave learn={learn!r} out"
            )
        schema = _needed_schema(self.info.title, schema, encoder=self.method.learns)
        if at_once is None:
            at_once = os.cpu_count() or 1
        job = job_for(
            self,
            budget,
            seed=seed,
            folder=_folder_of_run(folder),
            run=run,
            noise=noise,
            progress=progress,
            sample=sample,
            at_once=whole("at_once", at_once, 1),
        )
        fitted = fit_parties(self, data, schema, job, names, learn=learn)
        job.progress("done", 1.0)
        return fitted


def _folder_of_run(folder: Path | str | None) -> Path | None:
    """Return the folder of a run's ledgers and answers; InputError for a file."""
    if folder is None:
        return None
    path = user_path(folder)
    if path.is_file():
        raise InputError(
            f"folder={str(folder)!r} is a file; name a new folder, or that of the run to continue"
        )
    return path


def _needed_schema(title: str, schema: Any, *, encoder: bool) -> Any:
    """Return the schema of a fit, or its encoder for a method that takes one, once checked.

    Raises:
        SchemaError: It is missing, or something else.
    """
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


# A fit in one process


def open_here(setup: Setup, tables: Mapping[str, Any], job: Job) -> Carrier:
    """Open the parties of a fit in this process; see `Opener`."""
    return direct_parties(open_sides(setup, tables, job), job)


def open_sides(
    setup: Setup, tables: Mapping[str, Any], job: Job, study: bytes = _LOCAL_STUDY
) -> dict[str, StudySide]:
    """Return a function that makes every party's side of a stage in this process."""
    share = setup.synth.method.party_share(setup.synth)
    return {
        name: StudySide(
            setup,
            study,
            table,
            progress=_party_progress(job, share, index, len(tables)),
        )
        for index, (name, table) in enumerate(tables.items())
    }


def _party_progress(job: Job, share: float, index: int, parties: int) -> Progress:
    """Return a progress function that shows one party's work as a part of the whole run."""
    if not share:
        return silent

    def progress(text: str, done: float) -> None:
        label = text if parties == 1 else f"party {index + 1} of {parties}: {text}"
        job.progress(label, share * (index + done) / parties)

    return progress


def fit_parties(
    synth: MethodSettings,
    data: Any,
    schema: Schema | Encoder,
    job: Job,
    names: Sequence[str] | None,
    opener: Opener = open_here,
    *,
    learn: float = 0.0,
) -> Fit:
    """Fit to the parties' tables.

    Args:
        synth: The method with its settings.
        data: The tables, as of `Synthesizer.fit`.
        schema: Public facts about all columns, or an encoder.
        job: The run.
        names: Of the parties, where `data` is a list.
        opener: Opens the parties.
        learn: As of `Synthesizer.fit`.
    """
    method = synth.method
    encoder = None
    facts = schema.schema if isinstance(schema, Encoder) else schema
    facts = facts.without_reasons()
    if isinstance(schema, Encoder):
        if facts.constraints:
            raise SchemaError(
                "an Encoder keeps no constraints; give its Schema instead of it"
            )
        encoder = replace(schema, schema=facts)

    # What can be refused is refused before anything is read.
    check_named(Setup(synth, facts, job.budget, (), {}, encoder, learn))
    parts = parties_of(method, data, names)
    setup = Setup(synth, facts, job.budget, tuple(parts), {}, encoder, learn)
    method.affordable(setup)

    tables: dict[str, Any] = {}
    for index, (name, part) in enumerate(parts.items()):
        tables[name] = _read(name, part, setup, job, index)
    if method.split == "columns":
        columns = own_columns(
            {name: table.names for name, table in tables.items()}, facts
        )
        setup = Setup(synth, facts, job.budget, tuple(parts), columns, learn=learn)
        check_named(setup)
        method.affordable(setup)
    for sentence in check_tables(setup, tables, job):
        # To whoever gave the rows, and nobody else.
        warnings.warn(sentence, stacklevel=4)
    carrier = opener(setup, tables, job)
    try:
        is_coded = any(isinstance(table, Codes) for table in tables.values())
        fitted = run_study(setup, job, carrier, coded=is_coded)
    finally:
        carrier.close()
    return with_tables(fitted, tables, setup, job)


def check_tables(
    setup: Setup, tables: Mapping[str, Any], job: Job, *, aligned: bool = False
) -> list[str]:
    """Refuse tables that do not fit each other, and return warnings about those that do.

    Args:
        setup: The run's public facts.
        tables: Every party's rows, by name.
        job: The run.
        aligned: Whether the parties find their common rows first.

    Raises:
        RosterError: Parties that hold the same people have other rows; or a party has none, where
            that may be said.
    """
    if setup.synth.method.split == "columns":
        # Where neighbours differ by a row, a refusal of empty tables would show the first row.
        is_count_private = job.limited and job.budget.relation is Relation.ADD_REMOVE
        if not aligned:
            check_same_people(tables, setup.declared, empty=is_count_private)
    elif not job.limited:
        for name, table in tables.items():
            required_rows(name, table.num_rows)
    sentences: list[str] = []
    for name, table in tables.items():
        sentences += moved_notes(name, table, setup)
    if not job.is_seeded:
        counts = [table.num_rows for table in tables.values()]
        sentences += too_few("the data have", counts, setup.synth, job.budget)
    return sentences


def with_tables(fitted: Fit, tables: Mapping[str, Any], setup: Setup, job: Job) -> Fit:
    """Add to a fit of parties in this process what their tables show about its samples."""
    if any(isinstance(table, Codes) for table in tables.values()):
        return fitted
    columns: Mapping[str, tuple[str, ...]] = {}
    if setup.columns:
        columns = {name: table.names for name, table in tables.items()}
    settings = dict(fitted.settings)
    if any(
        isinstance(table, Table) and table.drawn_of is not None
        for table in tables.values()
    ):
        settings["sample"] = sample_words(job.sample)
    return replace(
        fitted, like=_like(tables, setup), columns=columns, settings=settings
    )


def _read(name: str, part: Any, setup: Setup, job: Job, index: int) -> Any:
    """Open a party's table. A table that is only counted stays in its database or file."""
    if isinstance(part, Codes):
        require_row(name, job.budget)
        return part
    with naming_party(name):
        home = job.home(index)
        unread_part = unread(part)
        rows = unread_part or read(part, names=setup.declared.names)
        if not setup.counts:
            rows = rows_to_learn(name, rows, setup.synth, job, index, home)
        return rows_of_units(
            rows,
            setup.synth.method.split,
            setup.declared,
            job,
            index,
            home,
            ordered=not isinstance(unread_part, Database),
        )


def moved_notes(name: str, table: Table | Unread, setup: Setup) -> Iterator[str]:
    """Yield notes about values that did not fit the schema and are moved into it.

    They are for whoever gave the rows and for nobody else.

    Cells in a database are counted when the method prepares it, see `protocols.marginals`.
    """
    if isinstance(table, Database | Codes):
        return
    moved = Counter[str]()
    for piece in [table] if isinstance(table, Table) else table.batches():
        moved.update(moved_cells(piece, setup.declared))
    if moved:
        yield f"{name}: {moved_note(moved, setup.declared, table.num_rows)}"
    if not isinstance(table, Table):
        return
    for words, count in setup.modelled.moved_rows(table).items():
        rows = f"{count:,} of {table.num_rows:,} rows break {words}"
        yield f"{name}: {rows}, and count as the nearest that keep it"


def _like(tables: Mapping[str, Any], setup: Setup) -> Table:
    """Return an empty table of the kind that the user gave, with all columns."""
    if not setup.columns:
        return outline(rows_of(next(iter(tables.values())), 0))
    empty = beside([outline(table) for table in tables.values()])
    return empty.select([name for name in setup.declared.names if name in empty.names])


# What a schema and settings must be, before anything runs


def check_named(setup: Setup, *, far: bool = False) -> None:
    """Check that a method can learn a setup's columns, and that its settings name no others.

    Args:
        setup: The run's public facts.
        far: Whether parties are elsewhere, so that nobody sees columns that stay apart.

    Raises:
        SchemaError, InputError: As of `Method.check_schema`; combinations are open and `learn` is
            0, the share of the budget that would pay for them; a setting names a column that is
            learned as a part of another; or a constraint needs rows of several parties, whose
            columns are to stay apart, or rows that nobody could draw again; or the budget's unit is
            no id column.
    """
    synth = setup.synth
    modelled = setup.modelled
    if not setup.budget.by_row:
        check_unit(setup.budget.unit, setup.declared)
    modelled.check_open(setup.learn)
    workload = getattr(synth, "workload", None) or ()
    queries = () if isinstance(workload, str) else workload
    for name in (setup.target, *chain(*queries)):
        if name in setup.declared.names and name not in setup.schema.names:
            names = ", ".join(setup.schema.names)
            raise InputError(
                f"settings name column {name!r}, which is learned as a part of another because "
                f"of a constraint; name one of {names}"
            )
    apart = not setup.shared
    split_rules = modelled.declared.constraints if setup.columns else ()
    for rule in split_rules:
        why = "" if modelled.local(rule) else _why_not_split(rule, setup, apart=apart)
        if why:
            raise InputError(
                f"constraint {rule.words}: names columns of several parties, {why}. Take it out of "
                "the schema"
            )
        if far and apart and not modelled.always(rule):
            raise InputError(
                f"constraint {rule.words}: over a network, where columns stay apart "
                "(shared=False), rows that break it cannot be drawn again: whoever draws them "
                "would learn which these are, and that follows from columns that stay. Take "
                "it out of the schema, or share the columns"
            )
    synth.method.check_schema(synth, setup.schema)


def _why_not_split(rule: Constraint, setup: Setup, *, apart: bool) -> str:
    """Say why drawn rows cannot keep a constraint on columns of several parties; else empty."""
    if apart:
        return "which stay apart (shared=False)"
    if isinstance(rule, ColumnSum | Computed):
        return "which can be computed by none of them"
    if isinstance(rule, FixedCombinations) and rule.rows:
        for name, values in zip(
            rule.columns, zip(*rule.rows, strict=True), strict=True
        ):
            column = setup.declared[name]
            if column.is_binned and _RARE * len({*values}) < value_count(column):
                return (
                    f"of which {name!r} may be many other numbers: hardly any drawn row would be "
                    "one of the combinations"
                )
    return ""


# The run


def run_study(
    setup: Setup,
    job: Job,
    carrier: Carrier,
    *,
    study: bytes = _LOCAL_STUDY,
    coded: bool = False,
) -> Fit:
    """Run all stages of a study, the method itself last.

    Args:
        setup: The run's public facts, with every party's columns where they are split.
        job: Budget, folder and name of the run.
        carrier: Asks the parties.
        study: What the parties compare with their own copy of the study; see `settings.agreed`.
        coded: Whether parties have their rows as codes, so that no stage before is needed.

    Raises:
        SiloweaveError: As of `Synthesizer.fit`.
    """
    synth = setup.synth
    method = synth.method
    info = synth.info
    check_named(setup, far=not carrier.simulated)
    method.affordable(setup)
    cost = Cost({}, 0, {})

    # The stages before: each spends its share of what those before it left.
    remaining_rho: float | None = None
    for stage in () if coded else method.before:
        planned = stage.plan(setup)
        if planned is None:
            # Without open facts, no share of delta names categories.
            if stage.name == "schema":
                setup = replace(setup, learn=0.0)
            continue
        start = time.perf_counter()
        if remaining_rho is None:
            remaining_rho = setup.rho
        share = stage.share(setup)
        with _stage_of(planned, stage, job, carrier, study) as (session, task):
            answer = stage.coordinate(session, replace(task, rho=remaining_rho * share))
        remaining_rho *= 1 - share
        info = msgspec.structs.replace(
            info, visibility=stage.views(info.visibility, setup)
        )
        setup = stage.refine(setup, answer)
        seconds = time.perf_counter() - start
        cost += Cost(session.traffic, session.rounds, {stage.phase: seconds})

    # The method itself, which gets the rest.
    start = time.perf_counter()
    rho = setup.rho if remaining_rho is None else remaining_rho
    with _stage_of(setup, method, job, carrier, study) as (session, task):
        result = method.coordinate(session, replace(task, rho=rho))
        model = result.model
        if method.decode is not None:
            model = method.decode(session, task, result, job.rows)
        vanished = sorted(session.gone)
        closing = session.close()
    seconds = time.perf_counter() - start
    cost += Cost(session.traffic, session.rounds, {method.phase: seconds})

    if job.folder is not None:
        for store in job.folder.glob(f"*/**/{training_name(job)}"):
            rmtree(store, ignore_errors=True)  # replies and model are stored now
    settings = {**synth.settings(), **result.facts}
    if vanished:
        settings["vanished"] = vanished
    if not carrier.simulated:
        write_ledgers(job, setup.roster, closing)
        if samples(synth, job.budget.relation, job.sample) and not setup.counts:
            settings["sample"] = sample_words(job.sample)
    return Fit(
        model,
        info,
        job.budget,
        private=job.noise == "os" and info.guarantee == "dp",
        settings=settings,
        ledgers=closing.ledgers,
        heads=closing.heads,
        cost=cost,
        num_rows=result.num_rows,
        columns=setup.held,
        declared=None if setup.modelled.is_identity else setup.declared,
        simulated=carrier.simulated,
    )


@contextmanager
def _stage_of(
    setup: Setup, side: Method | Stage, job: Job, carrier: Carrier, study: bytes
) -> Iterator[tuple[Session, Task]]:
    """Begin a stage at all parties; return its session, and the task without its rho."""
    with open_session(setup, job, carrier, study) as session:
        share = 0.0
        # Parties show their progress here.
        if carrier.simulated and isinstance(side, Method):
            share = side.party_share(setup.synth)
        yield session, _task_of(setup, side, job, share)


@contextmanager
def open_session(
    setup: Setup, job: Job, carrier: Carrier, study: bytes
) -> Iterator[Session]:
    """Begin a stage at all parties, and yield the session in which the coordinator asks them.

    The run's folder notes how far the stage is, and how it ended.
    """
    run = job.named(setup.stage)
    carrier.open(run, messages.encode(StageFacts.of(setup, job, study)))
    status = None
    if job.folder is not None and not carrier.simulated:
        status = course.StatusFile(job.folder / course.STATUS, run)
        carrier.noticed = status.refused
    is_transcribed = REPLIES in setup.synth.method.stores
    try:
        yield session_with(carrier, job, run, transcribed=is_transcribed, status=status)
    except BaseException as error:
        if status is not None:
            with suppress(OSError):  # which would hide the error
                status.end(type(error).__name__)
        raise
    if status is not None and setup.stage == "method":
        status.end(course.FINISHED)


def session_with(
    carrier: Carrier,
    job: Job,
    run: str,
    *,
    transcribed: bool = True,
    status: course.StatusFile | None = None,
) -> Session:
    """Build the session in which a coordinator asks the parties and stores their replies.

    Args:
        carrier: Asks the parties.
        job: The run.
        run: Name of the stage's run, one of `Job.runs`.
        transcribed: Whether the coordinator stores the replies in the folder; those of thousands of
            rounds would fill a disk.
        status: Where it is written down who was asked and who answered; nowhere if None.
    """
    if not carrier.keys:
        raise RosterError(
            "the carrier has no keys after open(); it must give every party's, see "
            "federation/carriers/carrier.py"
        )
    stored = records.RunRecords()
    if job.folder is not None:
        transcript = None
        if transcribed:
            transcript = records.FolderTranscript(job.folder / TRANSCRIPT)
        receipts = records.Receipts(job.folder / course.RECEIPTS, carrier.keys)
        absences = None
        if job.dropouts:
            absences = records.Absences(job.folder / records.ABSENCES)
        stored = records.RunRecords(transcript, receipts, absences)
    return Session(
        tuple(carrier.keys),
        carrier,
        run=run,
        stored=stored,
        at_once=carrier.at_once,
        tolerated=job.tolerated,
        dropouts=job.dropouts,
        status=status,
        proofs=job.proofs,
        asking=job.asking,
    )


def _task_of(setup: Setup, side: Method | Stage, job: Job, share: float) -> Task:
    """Return the task of a stage's coordinator; parties do `share` of the work before it.

    Raises StudyError if it was stopped during a training that had other settings.
    """
    run = job.named(setup.stage)

    def progress(text: str, done: float) -> None:
        job.progress(text, share + (1.0 - share) * done)

    store = None
    if (
        isinstance(side, Method)
        and COORDINATOR_TRAINING in side.stores
        and job.folder is not None
    ):
        store = training_store(setup, job, job.folder / "coordinator")
    entropy: Entropy = OSEntropy()
    if job.is_seeded:
        entropy = SeededEntropy(f"{job.seed}/{run}".encode())
    at_once = min(len(setup.roster), job.at_once)
    return Task(setup, inf, job.seed, progress, store, at_once, entropy)


def write_ledgers(job: Job, roster: Sequence[str], closing: Closing) -> None:
    """Write copies of the other parties' ledgers, from which anyone can check an epsilon."""
    for index, name in enumerate(roster):
        home = job.home(index)
        if home is not None and name in closing.files:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(home / LEDGER_FILE, closing.files[name])
