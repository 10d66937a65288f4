"""One party of a run: it holds its rows, its ledger and its keys, and answers questions.

The coordinator has no table. A stage begins with facts: the study as the coordinator knows it, and
what the stages before have found. The party compares the study with its own copy and prepares its
side. It is the same object whoever carries its answers: another part of this process, a spool
folder, or a network.

**Guarantee**: none of its own; see federation/site.py, which answers. What the stages before have
found is all that a party takes from the coordinator: values for what the study's schema leaves
open, and where columns are cut into bins. Neither changes what is paid for, or how far a row moves
what is counted: a party that is sent bins that follow from nothing counts rows in them as in any
others. Everything else a party has from its own copy of the study.

What a method promises of the rows that it learns from holds for the whole table, where these are a
sample (`tables.read.sampled`, decision 0044): epsilon is computed as if they were all, and a
private number of rows decides nothing (`share_drawn`).

An error's text leaves the party over a network if its class names no row (`errors.NAMES_NO_ROW`),
without the path of the party's folder. Of any other error the coordinator learns the class alone:
rows that do not fit are neither counted nor named, and a policy is not shown.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import msgspec
import numpy as np

from siloweave.core.method import (
    PARTY_TRAINING,
    Method,
    MethodSettings,
    Setup,
    Stage,
)
from siloweave.core.settings import SEEDED, Job, agreed, differences
from siloweave.errors import (
    NAMES_NO_ROW,
    BudgetError,
    InputError,
    LedgerError,
    RosterError,
    SchemaError,
    SiloweaveError,
    StudyError,
    WireError,
    count_of,
    naming_party,
    shortened,
)
from siloweave.federation import messages
from siloweave.federation.alignment_party import PARTY, AlignmentData, common_rows
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.frames import Opened
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Close, Part, Parted, with_closing
from siloweave.federation.site import (
    FolderStore,
    Handlers,
    MemoryStore,
    Site,
    Store,
    Terms,
    places,
)
from siloweave.privacy.accountants import epsilon, round_up
from siloweave.privacy.budget import ROW, Budget, Relation
from siloweave.privacy.ledger import KEY_FILE, LEDGER_FILE, Entry, Identity, Ledger
from siloweave.privacy.mechanisms import Entropy, OSEntropy, SeededEntropy
from siloweave.progress import Progress, silent
from siloweave.tables.codes import Codes, Encoder
from siloweave.tables.database import Database
from siloweave.tables.ids import id_texts
from siloweave.tables.read import Unread, read, sampled, unread
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table, digest_of
from siloweave.tables.units import bounded_rows
from siloweave.tables.write import from_parquet, parquet_of

ALIGNMENT = "alignment"
"""The stage before all others, where parties hold different columns; and its folder."""
PARTING = "parting"
"""What a coordinator's word that it has its result is called, as a stage."""

FEW = 100.0
"""Rows times epsilon below which noise is as large as the counts."""

_CLOSE = messages.encode(Close())
# Names in a party's store: which neighbours its ledger's sensitivities are of; what a training
# began with, beside its checkpoints; synthetic columns that stay.
_NEIGHBOURS = "neighbours"
_TRAINING_FACTS = "facts"
_SYNTHETIC = "synthetic columns"
# What decides which rows of each unit, and which rows of a large table, take part.
_UNITS = "units"
_SAMPLED = "sample"
_SECRET_BYTES = 32
_BEGUN = "begun.mark"
"""Beside the coordinator's checkpoints: its run has begun with these settings."""
_log = logging.getLogger("siloweave")


# What a party has


class PartyData(Protocol):
    """The data of a party in a run. Conforming: `Codes`, and every method's own class."""

    def digest(self) -> bytes:
        """Return a digest of the party's rows and of how they are read; see `Site`."""


PartyStores = tuple[Ledger, Store]
"""What a party has beside its rows: its ledger, and its replies."""


@dataclass(frozen=True)
class OwnerData:
    """The data of an owner of whole rows in a run.

    Attributes:
        table: Its rows.
        schema: Facts about its columns.
    """

    table: Table
    schema: Schema

    def digest(self) -> bytes:
        """Return a digest of rows and schema, by which a resumed run knows them; see `Site`."""
        return digest_of(self.table, self.schema.digest())


@dataclass(frozen=True)
class PartySide:
    """A party's side of one stage.

    Attributes:
        data: What it works with.
        handlers: Which function answers which question.
        facts: What it was given of the study, and checks requests against.
        smallest_cohort: Fewest parties of a sum that it takes part in.
        apart: Whether the stage has a ledger of its own, which no budget covers: an alignment's.
        progress: Called with a text and the share that is done of its work.
        checkpoints: Folder for an interrupted training, of this run alone; or None.
    """

    data: PartyData
    handlers: Handlers
    facts: Mapping[str, Any] = field(default_factory=dict)
    smallest_cohort: int = 1
    apart: bool = False
    progress: Progress = silent
    checkpoints: Path | None = None


class StageFacts(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The public facts that every party is sent when a stage begins.

    Attributes:
        study: Everything public that the study is, as JSON; see `settings.agreed`.
        stage: Its name.
        schema: As JSON, with what was learned.
        encoder: As JSON; empty where the stages before have made none.
        noise: Where the coordinator says that noise comes from, as of `Job`.
    """

    study: bytes
    stage: str
    schema: str
    encoder: str
    noise: str = "os"

    @classmethod
    def of(cls, setup: Setup, job: Job, study: bytes) -> StageFacts:
        """Return the facts with which the stage of a setup begins."""
        encoder = (
            setup.encoder.to_json() if setup.encoder and setup.stage == "method" else ""
        )
        return cls(study, setup.stage, setup.schema.to_json(), encoder, job.noise)

    def found_in(self, setup: Setup) -> Setup:
        """Return a setup to which the results of the earlier stages were added."""
        encoder = _encoder_in(self.encoder) if self.encoder else setup.encoder
        return replace(setup, schema=_schema_in(self.schema), encoder=encoder)

    def shown(self) -> bytes:
        """Return the facts that must not change when a stage is begun again, as bytes."""
        return agreed(
            {"stage": self.stage, "schema": self.schema, "encoder": self.encoder}
        )


# In a simulation every party is sent the same text.
_schema_in = lru_cache(maxsize=2)(Schema.from_json)
_encoder_in = lru_cache(maxsize=2)(Encoder.from_json)


def side_of(setup: Setup) -> Method | Stage:
    """Return whose functions a setup is for: the method, or the stage before it of that name."""
    method = setup.synth.method
    return next((stage for stage in method.before if stage.name == setup.stage), method)


# A party


@dataclass(frozen=True)
class OwnerHooks:
    """Functions of the owner of a party's rows, which are called while a study runs.

    Attributes:
        allow: Called before every stage, with the ledger; raises what forbids the study. None
            allows it.
        note: Called before an answer is given, with the ledger and the hash of the line that paid
            for it or for what went before; raises what keeps the answer here, such as lines that
            are missing.
        answered: Returns the last such hash; empty where nobody notes it.
        end: Called with the party, before the study's last answer is given.
        part: Called once the coordinator says that it has its result, with what it sends along.
    """

    allow: Callable[[Ledger], None] | None = None
    note: Callable[[Ledger, str], object] = lambda ledger, paid: None
    answered: Callable[[], str] = str
    end: Callable[[Party], object] = lambda party: None
    part: Callable[[Part], object] = lambda message: None


class Party:
    """One party of one run, for as long as its process lives.

    Args:
        name: In the roster.
        job: Budget, name of the run, where noise comes from, and the party's private key.
        index: Its place in the roster.
        prepare: Makes its side of a stage, from itself, the name of the stage's run, and facts.
        stores: Its ledger and its store; if None, they are opened once its rows are known to fit.
        home: Its folder: ledger, key, and what it remembers; in memory if None.
        apart: Where it has the ledger of an alignment; in memory if None.
        roster: Every party's public key for signatures, in the study's order.
        question_limits: How often it answers each question at most, by stage and tag; None for no
            bound.
        owner: Functions of the owner of its rows; see `OwnerHooks`.
    """

    def __init__(
        self,
        name: str,
        job: Job,
        index: int,
        prepare: Prepare,
        *,
        stores: PartyStores | None = None,
        home: Path | None = None,
        apart: Path | None = None,
        roster: Mapping[str, bytes] | None = None,
        question_limits: Mapping[str, Mapping[str, float]] | None = None,
        owner: OwnerHooks | None = None,
    ) -> None:
        self.name = name
        self.job = job
        self.index = index
        self.home = home
        self._apart = apart
        self.roster = roster or {}
        self.question_limits = question_limits
        self._opened = stores
        self._sides: dict[str, PartySide] = {}
        self.prepare = prepare
        self.owner = owner or OwnerHooks()
        self._sites: dict[str, tuple[Site[Any], Handlers]] = {}
        self._aligning: PartyStores | None = None
        self._busy = Lock()  # one question at a time, whoever carries it

    @property
    def stores(self) -> PartyStores:
        """The party's ledger and its store."""
        if self._opened is None:
            self._opened = open_stores(self.name, self.job, self.home)
        return self._opened

    @property
    def ledger(self) -> Ledger:
        """The ledger of everything that the party has released."""
        return self.stores[0]

    @property
    def key(self) -> bytes:
        """The party's public key, which checks its signatures."""
        return self.ledger.key

    def site(self, run: str) -> Site[Any]:
        """Return the party's site for a stage that has begun, by the name of the stage's run."""
        return self._answering(run)[0]

    def close(self) -> None:
        """Close the party's ledgers."""
        for stores in (self._opened, self._aligning):
            if stores is not None:
                stores[0].close()

    def begin(self, run: str, facts: bytes) -> None:
        """Prepare a stage from the facts that begin it; a stage that has begun stays as it is.

        Raises:
            StudyError: The coordinator's study is another one, or it was begun with other settings.
            WireError: The facts do not follow from the study.
            SiloweaveError: Rows do not fit the study, or its owner forbids it.
        """
        if run in self._sides:
            return
        self._check_allowed()
        side = self.prepare(self, run, facts)
        if side.apart:  # before anything is noted of the stage
            self._stores_apart(run)
        self._sides[run] = side

    def answer(self, frame: bytes) -> bytes:
        """Answer a frame of a stage that has begun; errors are those of `Site`."""
        site, handlers = self._answering(messages.decode(frame, Envelope).run)
        return site.answer(frame, handlers)

    def recall(self, run: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return values that a stage has stored, by name; only a simulation looks at these."""
        site = self.site(run)
        stored = {name: site.recall(name, run) for name in names}
        return {name: value for name, value in stored.items() if value is not None}

    def reply(self, question: Opened) -> bytes:
        """Answer a coordinator's question, as `Seals.answered` takes it.

        Raises:
            StudyError: The coordinator's study is another one; says where. Or the policy forbids
                it, or it was begun with other rows or settings.
            BudgetError, LedgerError, WireError: What the site refuses the question with. Any other
                error ends as WireError, which has no text of it.
            OSError: The disk is full, or broken: the party must be started again.
        """
        with self._busy:
            envelope = messages.decode(question.data, Envelope)
            # Of no site: it reads no row and no ledger.
            if envelope.run == self.job.named(PARTING):
                self.owner.part(messages.decode(envelope.body, Part))
                return messages.encode(envelope.answered(messages.encode(Parted())))
            try:
                self._begin_from(envelope.run, question.facts)
                answer = self.answer(question.data)
            except OSError:
                raise
            except Exception as error:
                raise self._as_shown(envelope.run, error) from error
            self._note_ledger(self.site(envelope.run).answered_by)
            if envelope.run == self.job.run and _CLOSE in (
                envelope.body,
                envelope.then,
            ):
                self.owner.end(self)
            _log.info(
                "run %s: a question of %d bytes, answered with %d",
                envelope.run, len(question.data), len(answer),
            )  # fmt: skip
            return answer

    # Stages

    def _begin_from(self, run: str, facts: bytes) -> None:
        """Prepare a stage from the facts that were sent, or from those stored when it began."""
        if run in self._sides and not facts:
            return
        store = self.stores[1]
        key = f"stage/{run}"
        first_facts = store.get(key)
        if first_facts is None and not facts:
            raise WireError(
                f"party {self.name!r}: knows of no run {run!r}, and was not sent what its stage "
                "begins with; start the coordinator again"
            )
        if facts and first_facts not in (None, facts):
            before = messages.decode(first_facts or b"", StageFacts).shown()
            now = messages.decode(facts, StageFacts).shown()
            odd = "; ".join(differences(before, now)[:3])
            raise WireError(
                f"party {self.name!r}: run {run!r} began with other facts: {odd}"
            )
        self.begin(run, facts or first_facts or b"")
        # Stored last: facts that could not be prepared from are forgotten.
        store.put(key, facts or first_facts or b"")

    def has_begun(self, run: str) -> bool:
        """Return whether a stage has begun, in this process or in an earlier one."""
        return self.stores[1].get(f"stage/{run}") is not None

    def _answering(self, run: str) -> tuple[Site[Any], Handlers]:
        """Return the site that answers a stage's questions, and the functions that do it."""
        if run not in self._sides:
            raise WireError(f"party {self.name!r}: knows of no run {run!r}")
        if run not in self._sites:
            side = self._sides[run]
            self._sites[run] = self._site_of(run, side), with_closing(side.handlers)
        return self._sites[run]

    def _site_of(self, run: str, side: PartySide) -> Site[Any]:
        stage = run.removeprefix(self.job.run).removeprefix("-") or "method"
        stage_limits = None
        if self.question_limits is not None:
            stage_limits = self.question_limits.get(stage, {})
        if side.apart:
            stores = self._stores_apart(run)
            terms = Terms(self.roster, question_limits=stage_limits)
        else:
            stores = self.stores
            terms = Terms(
                self.roster,
                self.job.tolerated,
                side.facts,
                self.job.dropouts,
                self.job.run,
                stage_limits,
                side.smallest_cohort,
            )
        ledger, store = stores
        return Site(
            self.name,
            side.data,
            ledger=ledger,
            entropy=party_entropy(self.job, self.index),
            store=store,
            digest=side.data.digest,
            terms=terms,
            answered=str if side.apart else self.owner.answered,
            progress=side.progress,
            checkpoints=side.checkpoints,
        )

    def _stores_apart(self, run: str) -> PartyStores:
        """Open the ledger and the store of an alignment, below the party's folder."""
        if self._aligning is None:
            folder = self._apart
            is_lost = folder is not None and not (folder / LEDGER_FILE).exists()
            if folder is not None and is_lost and self.has_begun(run):
                raise lost_ledger(folder / LEDGER_FILE, "is gone")
            # No budget covers it. Its entries are signed with the party's one key.
            job = replace(self.job, limited=False, identity=self.ledger.identity)
            self._aligning = open_stores(self.name, job, folder)
        return self._aligning

    # Errors, as far as they leave the party

    def _check_allowed(self) -> None:
        if self.owner.allow is None:
            return
        try:
            self.owner.allow(self.ledger)
        except SiloweaveError as error:  # its text may name other studies
            _log.warning("%s", error)
            raise StudyError(
                f"party {self.name!r}: its policy does not allow the study any more. Nothing was "
                "released; its owner sees why by `siloweave status`"
            ) from error

    def _note_ledger(self, paid: str) -> None:
        try:
            self.owner.note(self.ledger, paid)
        except SiloweaveError as error:  # its text may name a folder of this user
            _log.warning("%s", error)
            raise LedgerError(
                f"party {self.name!r}: its ledger lacks lines that its machine has seen, or cannot "
                "be compared with them. The answer was not sent; its owner sees why in its log"
            ) from error

    def _as_shown(self, run: str, error: Exception) -> SiloweaveError:
        """Turn an error into the one that the coordinator is sent, in which nothing names a row."""
        if isinstance(error, NAMES_NO_ROW):
            text = str(error)
            if self.home is not None:
                text = text.replace(str(self.home), "its folder")
            text = shortened(text, messages.LONGEST_TEXT)
            _log.warning("run %s: a question was refused: %s", run[:99], text)
            return type(error)(text)
        kind, place = places(error)
        _log.warning("run %s: a question failed: %s in %s", run[:99], kind, place)
        return WireError(
            f"party {self.name!r}: a question of run {run[:99]!r} failed with {kind}, and its text "
            "may name rows, so that it stays there. The party's log says where it failed; see that "
            "its rows fit the study, and that all ends have one study"
        )


Prepare = Callable[[Party, str, bytes], PartySide]
"""Makes a party's side of a stage from the party, the name of the stage's run, and its facts."""


def direct_parties(
    sides: Mapping[str, Prepare],
    job: Job,
    stores: Mapping[str, PartyStores] | None = None,
    apart: Path | None = None,
) -> Direct[Party]:
    """Open all parties of a run in this process.

    Args:
        sides: What makes each party's side of a stage, by name, in the order of the roster.
        job: The run; its folder has the parties' folders.
        stores: Ledgers and stores of parties that have some already.
        apart: Folder of the run's alignment, where parties have ledgers of their own for it.

    Returns:
        A carrier of their questions and answers; closing it closes the parties. Ledgers are opened
        when a stage has been prepared at all of them.
    """
    parties = {}
    for index, (name, prepare) in enumerate(sides.items()):
        home = job.home(index)
        parties[name] = Party(
            name,
            job,
            index,
            prepare,
            stores=None if stores is None else stores.get(name),
            home=home,
            apart=None if apart is None else replace(job, folder=apart).home(index),
        )
    return Direct(parties)


def study_party(
    name: str,
    setup: Setup,
    study: bytes,
    table: Table | Unread,
    job: Job,
    home: Path,
    roster: Mapping[str, bytes],
    *,
    owner: OwnerHooks | None = None,
    question_limits: Mapping[str, Mapping[str, float]] | None = None,
    aligned: AlignmentData | None = None,
) -> Party:
    """Open the party of a study whose other parties run elsewhere.

    Args:
        name: In the roster.
        setup: The study's public facts, from the party's own copy.
        study: The same, as `settings.agreed`.
        table: Its rows, or where they are counted.
        job: Budget, name of the run, where noise comes from, and the party's private key.
        home: Its folder.
        roster: Every party's public key for signatures, in the study's order.
        owner: As of `Party`; it allows the study before anything is paid for, too.
        question_limits: As of `Party`.
        aligned: What it brings to find the rows that all parties have, where that is done first;
            a ledger of its own, below `home`, has what that releases.

    Raises:
        BudgetError: Another run has spent the party's budget.
        LedgerError: The ledger was changed.
        SiloweaveError: The owner forbids the study.
    """
    home = home.absolute()  # as errors about its files begin
    is_new = not (home / LEDGER_FILE).exists()
    stores = open_stores(name, job, home)
    try:
        if owner is not None and owner.allow is not None:
            owner.allow(stores[0])
    except BaseException:
        stores[0].close()
        if is_new:  # a study that never began counts for nothing
            (home / LEDGER_FILE).unlink()
        raise
    prepare = StudySide(setup, study, table, aligned)
    index = setup.roster.index(name)
    return Party(
        name,
        job,
        index,
        prepare,
        stores=stores,
        home=home,
        apart=home / ALIGNMENT,
        roster=roster,
        question_limits=question_limits,
        owner=owner,
    )


# A party's side of every stage of a study


@dataclass
class StudySide:
    """A function that makes a party's side of a stage from the party's own copy of the study.

    Attributes:
        setup: The study's public facts.
        study: The same, as `settings.agreed`; compared with the coordinator's.
        table: The party's rows, or where they are counted.
        aligned: What it brings to find the rows that all parties have; None where that is not done.
        progress: Called with a text and the share that is done of its work.
    """

    setup: Setup
    study: bytes
    table: Any
    aligned: AlignmentData | None = None
    progress: Progress = silent
    _learned: Any = None

    def __call__(self, party: Party, run: str, facts: bytes) -> PartySide:
        """Build the party's side of a stage; see `Party.begin` for what it raises."""
        stage_facts = messages.decode(facts, StageFacts)
        self._check_same_study(party, stage_facts)
        if stage_facts.stage == ALIGNMENT and self.aligned is not None:
            return self._alignment_side(party, run)
        setup = self._setup_of(party, stage_facts)
        if run != party.job.named(setup.stage):
            raise WireError(
                f"party {party.name!r}: {run!r} is no run of the study {party.job.run!r}"
            )
        side = side_of(setup)
        # Refused before rows are read: a training that was stopped had other settings.
        checkpoints = None
        if isinstance(side, Method) and PARTY_TRAINING in side.stores and party.home:
            checkpoints = training_store(setup, party.job, party.home)
        return PartySide(
            side.prepare(self._rows(party), setup, party.name),
            side.handlers(setup.synth),
            side.facts(setup),
            setup.smallest_cohort,
            progress=self.progress,
            checkpoints=checkpoints,
        )

    def _check_same_study(self, party: Party, facts: StageFacts) -> None:
        """Raise StudyError where the coordinator has another study, or another source of noise."""
        odd = differences(self.study, facts.study) if self.study != facts.study else []
        if odd:
            raise StudyError(
                f"party {party.name!r} has another study than the coordinator: "
                f"{'; '.join(odd[:5])}. Agree on one study.toml and schema.json, and start "
                f"{party.name} and the coordinator again"
            )
        # Else the coordinator's report would call it private.
        if facts.noise != party.job.noise:
            raise StudyError(
                f"party {party.name!r}: its noise = {party.job.noise!r}, and the coordinator's "
                f"report would say noise = {facts.noise!r}. Start all ends alike; seeded noise "
                "protects nothing"
            )

    def _setup_of(self, party: Party, facts: StageFacts) -> Setup:
        """Return the setup of a stage, with the results of the stages before it.

        Raises:
            WireError: The study has no such stage, or what was found cannot have been found.
        """
        stages = self.setup.synth.method.before
        names = [stage.name for stage in stages]
        if facts.stage not in (*names, "method"):
            raise WireError(
                f"party {party.name!r}: the study has no stage {facts.stage!r}"
            )
        sent_setup = facts.found_in(self.setup)
        # The party goes the coordinator's way from its own study, one stage after the other.
        setup = self.setup
        for stage in stages:
            if stage.name == facts.stage:
                break
            setup = stage.accepts(setup, sent_setup)
        if (setup.schema, setup.encoder) != (sent_setup.schema, sent_setup.encoder):
            raise WireError(
                f"party {party.name!r} was sent columns that are coded otherwise than its study "
                "says"
            )
        if facts.stage == "method":
            return setup
        planned = stages[names.index(facts.stage)].plan(setup)
        if planned is None:
            raise WireError(
                f"party {party.name!r}: nothing is open in stage {facts.stage!r}"
            )
        return planned

    def _alignment_side(self, party: Party, run: str) -> PartySide:
        """Return the party's side of finding common rows, whose releases no budget covers."""
        assert self.aligned is not None
        if run != party.job.named(ALIGNMENT):
            raise WireError(
                f"party {party.name!r}: {run!r} aligns no rows of {party.job.run!r}"
            )
        return PartySide(self.aligned, PARTY, apart=True)

    def _rows(self, party: Party) -> Any:
        """Return the party's rows as the method learns them, the same in every stage."""
        if self._learned is None:
            rows = self.table if self.aligned is None else self.common_rows(party)
            modelled = self.setup.modelled
            # Without constraints rows are not read here: a database only counts them.
            if not modelled.is_identity:
                rows = modelled.inside(read(rows))
            self._learned = rows
        return self._learned

    def common_rows(self, party: Party) -> Table:
        """Return the rows that all parties have, without the ids that matched them.

        Ids that are no id in the schema remain, since the method learns them.
        """
        assert self.aligned is not None
        run = party.job.named(ALIGNMENT)
        schema = self.setup.declared
        party.begin(
            run,
            messages.encode(StageFacts(self.study, ALIGNMENT, "", "", party.job.noise)),
        )
        rows = read(
            rows_of_units(
                common_rows(party.site(run), run),
                self.setup.synth.method.split,
                schema,
                party.job,
                party.index,
                party.home,
            )
        )
        matched_by = {
            name
            for name in self.aligned.columns
            if name not in schema.names or schema[name].kind == "id"
        }
        return rows.select([name for name in rows.names if name not in matched_by])


def common_tables(carrier: Direct[Party]) -> dict[str, Table]:
    """Return each party's rows that all parties have, where all parties are in this process."""
    tables = {}
    for name, party in carrier.parties.items():
        side: Any = party.prepare
        tables[name] = side.common_rows(party)
    return tables


# Synthetic columns that stay with their party


def keep_synthetic(site: Site[Any], rows: Table, seed: int) -> None:
    """Store a party's synthetic columns, as the model drew them, with the seed of the run."""
    site.remember(_SYNTHETIC, msgspec.msgpack.encode((seed, parquet_of(rows))))


def synthetic_columns(party: Party, setup: Setup) -> tuple[Table, int] | None:
    """Return the synthetic columns stored with a party, as the study declares them, and the seed.

    None where the run has none, or has not come so far.
    """
    stored = party.site(party.job.run).recall(_SYNTHETIC, party.job.run)
    if stored is None:
        return None
    seed, parquet = msgspec.msgpack.decode(stored, type=tuple[int, bytes])
    rows = from_parquet(parquet)
    return setup.modelled.own(rows, party.index), seed


# Ledgers and stores


def party_entropy(job: Job, index: int) -> Entropy:
    """Return the source of a party's noise: the operating system, or the seed of a test."""
    if job.is_seeded:
        return SeededEntropy(f"{job.seed}/{index}".encode())
    return OSEntropy()


def open_stores(name: str, job: Job, home: Path | None) -> PartyStores:
    """Open a party's ledger and store: in its folder, or in memory for all stages of the run.

    LedgerError if the ledger was changed, or lacks what paid for a reply in the store; BudgetError
    if another run has spent the budget, or what it released is about other neighbours.
    """
    limit = job.total or job.budget
    if not job.limited:  # no bound, and yet the relation in which events are stated
        limit = msgspec.structs.replace(limit, epsilon=inf)
    if home is None:
        seeded = _seeded_identity(name, job)
        return Ledger(name, limit=limit, identity=seeded), MemoryStore()
    store = FolderStore(home / "store", job.secret)
    _mark(home / SEEDED, name, job)
    identity = job.identity
    # A key that is there is of an earlier run with noise of the system's, and stays.
    if identity is None and not (home / KEY_FILE).exists():
        identity = _seeded_identity(name, job)
    ledger = Ledger(name, path=home / LEDGER_FILE, limit=limit, identity=identity)
    try:
        if job.limited and job.total is None:
            require_unspent(name, ledger.entries, job.runs, job.budget)
        paid = {"", *(entry.hash for entry in ledger.entries)}
        if not paid.issuperset(store.payments()):
            raise lost_ledger(
                home / LEDGER_FILE, "lacks what paid for answers in the store beside"
            )
        if job.limited:
            _require_alike(ledger, store, limit)
    except BaseException:  # a full disk, too
        ledger.close()
        raise
    return ledger, store


def _require_alike(ledger: Ledger, store: Store, limit: Budget) -> None:
    """Refuse a budget of other neighbours than those for which the ledger's entries were priced.

    An entry has a distance of neighbours, and not which neighbours these are.
    """
    now = [limit.unit, str(limit.relation), limit.rows_per_unit]
    stored = store.get(_NEIGHBOURS)
    priced_for: Any = now if stored is None else msgspec.json.decode(stored)
    # Written before units were bounded: a row was protected, by any name.
    if len(priced_for) == 2:
        priced_for = [ROW, priced_for[1], 1]
    if ledger.entries and priced_for != now:
        unit, relation, rows_per_unit = priced_for
        priced = Budget(1.0, limit.delta, unit, Relation(relation), rows_per_unit)
        raise BudgetError(
            f"budget: protects {limit.protected}, and the ledger of party {ledger.owner!r} holds "
            f"what {priced.protected} costs, so these do not add up. Nothing was released. Give a "
            "budget of the same unit, rows_per_unit and relation, or use a folder of its own."
        )
    if stored is None or priced_for != now:
        store.put(_NEIGHBOURS, msgspec.json.encode(now))


def lost_ledger(file: Path, loss: str) -> LedgerError:
    """Return the error about a ledger that is gone, or was replaced by an old copy."""
    return LedgerError(
        f"{file}: {loss}. More was released than it says, and nothing will be now. Put the last "
        "copy of this file back, or count the study as spent in full and agree on a new one"
    )


def _seeded_identity(name: str, job: Job) -> Identity | None:
    """Return a key that anyone can make again, for seeded noise; else None: the party's own."""
    return Identity.seeded(f"{job.seed}/{name}".encode()) if job.is_seeded else None


def _mark(mark: Path, name: str, job: Job) -> None:
    """Mark a party's folder for good as one whose replies have seeded noise.

    Raises InputError where a folder with this mark is used for a run whose noise is not seeded.
    """
    if job.is_seeded:
        mark.touch(mode=0o600)
    elif mark.exists():
        raise InputError(
            f"party {name!r}: noise = {job.noise!r}, but what it stores in {mark.parent} has noise "
            "from a seed, and would be sent again. Use a folder of its own."
        )


def require_unspent(
    party: str,
    entries: Sequence[Entry],
    runs: Sequence[str],
    budget: Budget,
    new_folder: str = "agree on a new budget in a folder of its own",
) -> None:
    """Raise BudgetError where another run was in the ledger before these `runs` began.

    A run that has begun may continue after a score was charged to the same ledger: what it has yet
    to release is held to the ledger's limit.

    Args:
        party: Whose ledger it is.
        entries: The ledger's.
        runs: The names of this run, and of those that it continues.
        budget: What this run asks for.
        new_folder: What to do for another folder, as the error says it.
    """
    places_of_runs = (place for place, entry in enumerate(entries) if entry.run in runs)
    first = next(places_of_runs, len(entries))
    others = entries[:first]
    if others:
        before = epsilon([entry.event for entry in others], budget.delta)
        names = ", ".join(sorted({entry.run for entry in others}))
        # Of two runs one after the other, epsilons add up, and so do deltas.
        both_epsilon = round_up(before + budget.epsilon)
        both_delta = 2 * budget.delta
        raise BudgetError(
            f"The ε of this study is spent. To run again, {new_folder} and keep the first folder: "
            f"both tables together then cost ε = {both_epsilon:.7g} at δ = {both_delta:.7g}. Or "
            f"continue the study as it was: party {party!r} has already spent epsilon = {before} "
            f"of {budget.epsilon} at delta = {budget.delta} (run {names}), and this run asks for "
            "all of it. Nothing was released."
        )


# Unfinished trainings


def training_name(job: Job) -> str:
    """Return the name of the folders in which the unfinished trainings of a run are stored."""
    return f"training-{blake2b(job.run.encode(), digest_size=8).hexdigest()}"


def training_store(setup: Setup, job: Job, home: Path) -> Path:
    """Open the folder for checkpoints of a training, inside that of a party or the coordinator.

    It records everything but the rows that decides what is trained.

    Raises:
        StudyError: What is stored there began with something else; the message names it.
    """
    folder = home / training_name(job)
    store = FolderStore(folder)
    facts = {
        "method": setup.synth.method.name,
        "settings": setup.synth.settings(),
        "budget": job.budget,
        "noise": job.noise,
        "seed": job.seed,
    }
    now = msgspec.json.encode(facts)
    before = store.get(_TRAINING_FACTS)
    if before != now:
        files_of_facts = 0 if before is None else 1
        if len(list(folder.iterdir())) > files_of_facts:  # there are checkpoints, too
            odd = "; ".join(differences(before or b"{}", now, "now"))
            raise StudyError(
                f"run {job.run!r} was stopped while it trained with {odd}. Continue with "
                "what it began with, or start another run; to begin this training anew, remove "
                f"{folder}."
            )
        store.put(_TRAINING_FACTS, now)
    if home.name == "coordinator":
        (folder / _BEGUN).touch()  # from here on other settings are refused by name
    return folder


# The parties of a run, and their rows


def parties_of(
    method: Method, data: Any, names: Sequence[str] | None
) -> dict[str, Any]:
    """Return the parties' tables, by name; the only owner's table for a central method.

    A single table is that of one party, "party-1", where parties hold different rows.

    Raises:
        RosterError: There is no party, or more than a method takes.
    """
    is_single = not isinstance(data, Mapping | list | tuple)
    if method.split == "rows" and is_single:
        return named_parties([data], names)
    if method.split == "columns" and is_single:
        raise RosterError(
            f"data is one {type(data).__name__}, and {method.title} is for parties that hold "
            "different columns; give one table per party, as a list or by name, or divide it: "
            "sw.split_columns(data, 2)"
        )
    if method.split != "central":
        tables = named_parties(data, names)
        if not tables:
            raise RosterError(
                "data has no party; give one table per party, as a list or by name"
            )
        return tables
    if not isinstance(data, Mapping):
        return named_parties([data], ["curator"] if names is None else names)
    if len(data) != 1:
        raise RosterError(
            f"data has {len(data)} parties, and {method.title} takes one that holds all rows"
        )
    return named_parties(data, None)


def named_parties(data: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the parties' tables, by name; without names they are "party-1" and so on.

    Raises:
        RosterError: `data` is one table, there are more or fewer names than tables, or two
            parties have one name.
    """
    if isinstance(names, str):
        raise RosterError(
            f"names={names!r} is one text; give a list with a name for every table"
        )
    if isinstance(data, Mapping):
        tables = list(data.values())
        party_names = [str(name) for name in data]
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        tables = list(data)
        party_names = (
            _numbered(len(tables)) if names is None else [str(name) for name in names]
        )
    else:
        raise RosterError(
            f"data is a {type(data).__name__}; give one table per party, as a list or by name"
        )
    if len(tables) != len(party_names):
        raise RosterError(
            f"names has {len(party_names)} entries for {len(tables)} tables"
        )
    repeated = [name for name, count in Counter(party_names).items() if count > 1]
    if repeated:
        raise RosterError(
            f"two parties are called {repeated[0]!r}; give each a name of its own"
        )
    return dict(zip(party_names, tables, strict=True))


def _numbered(count: int) -> list[str]:
    """Return the names "party-1" and so on, padded with zeros so that they sort by number."""
    width = len(str(count))
    return [f"party-{number:0{width}d}" for number in range(1, count + 1)]


def required_rows(name: str, number: int) -> None:
    """Refuse a party without rows, unless a guarantee hides whether there is a first row."""
    if number == 0:
        raise RosterError(f"party {name!r} has no rows; leave it out of the roster")


def too_few(
    owner: str, parts: Sequence[int], synth: MethodSettings, budget: Budget
) -> Iterator[str]:
    """Yield a warning if all parties' rows together are too few for the budget.

    It shows a number of rows that may be private, so it is for whoever holds all of them.

    Args:
        owner: Who has the rows, with its verb, as the sentence begins.
        parts: The number of rows at every party.
        synth: The method with its settings.
        budget: Of the run.
    """
    # Parties with different columns hold the same rows.
    rows = max(parts) if synth.method.split == "columns" else sum(parts)
    is_paid = budget.private and synth.method.needs_budget(synth)
    if is_paid and rows * budget.epsilon < FEW:
        yield (
            f"{owner} {count_of(rows, 'row', 'rows')}: at epsilon = {budget.epsilon:g} the noise "
            "is as large as any count of so few, so no table that is drawn from it can be useful. "
            "Use more rows"
        )


def coded_rows(name: str, part: Any, encoder: Encoder) -> Codes:
    """Encode a party's rows as codes; an error about rows that do not fit names the party."""
    if isinstance(part, Codes):
        return part
    with naming_party(name):
        return encoder.encode(read(part))


# Samples of rows


def samples(synth: MethodSettings, relation: Relation, sample: float) -> bool:
    """Return whether a method that needs the rows themselves may learn from a sample of them.

    Parties with different columns must have the same rows. Where a method keeps a bound and a row
    more or less makes a neighbour, a chance that follows from the number of rows would show it, so
    that only a share is drawn, which does not depend on the table.
    """
    if synth.method.split == "columns" or sample == 1:
        return False
    is_count_private = (
        synth.method.needs_budget(synth) and relation is Relation.ADD_REMOVE
    )
    return sample < 1 or not is_count_private


def share_drawn(
    part: Unread | None, synth: MethodSettings, relation: Relation, sample: float
) -> float:
    """Return the probability with which each row of a party is drawn into the sample.

    Args:
        part: Rows that are not read yet; None for rows in memory, of which a number is not drawn.
        synth: The method with its settings.
        relation: Of the budget.
        sample: As of `Synthesizer.fit`.
    """
    if not samples(synth, relation, sample):
        return 1.0
    if sample < 1:
        return sample
    if part is None:
        return 1.0
    return min(1.0, sample / max(part.num_rows, 1))


def sample_words(sample: float) -> str:
    """Describe how rows were sampled, in words that give no party's number of rows."""
    if sample < 1:
        return f"each row took part with a chance of {sample:g}"
    return f"of a larger table in a database or a Parquet file about {sample:,.0f} rows were drawn"


def rows_to_learn(
    name: str,
    part: Table | Unread,
    synth: MethodSettings,
    job: Job,
    index: int,
    home: Path | None,
) -> Table:
    """Return the rows that a party gives to a method that needs the rows: all, or a sample.

    The sample is the same when a run continues: what it is drawn by is in the party's folder.
    """
    is_drawn_before = isinstance(part, Table) and part.drawn_of is not None
    unread_part = None if isinstance(part, Table) else part
    share = share_drawn(unread_part, synth, job.budget.relation, job.sample)
    if share == 1 or is_drawn_before:
        return read(part)
    table = sampled(part, share, _secret_for(_SAMPLED, job, index, home))
    _log.info(
        "%s: a sample of %s of %s rows takes part",
        name, f"{table.num_rows:,}", f"{table.drawn_of:,}",
    )  # fmt: skip
    return table


def _secret_for(purpose: str, job: Job, index: int, home: Path | None) -> bytes:
    """Return a party's own secret for a purpose; in the party's folder it stays the same."""
    if job.noise == SEEDED:
        return SeededEntropy(f"{job.seed}/{index}/{purpose}".encode()).bytes(
            _SECRET_BYTES
        )
    store = FolderStore(home / "store", job.secret) if home else MemoryStore()
    secret = store.get(purpose) or OSEntropy().bytes(_SECRET_BYTES)
    store.put(purpose, secret)
    return secret


# Rows of each unit


def require_row(name: str, budget: Budget) -> None:
    """Refuse rows that came as codes where the unit is not a row: codes do not say whose."""
    if not budget.by_row:
        raise SchemaError(
            f"party {name!r}: its rows are codes, which do not say whose they are; give its table "
            f"with the column {budget.unit!r}"
        )


def rows_taking_part(
    part: Any, split: str, schema: Schema, job: Job, index: int
) -> Table:
    """Read a party's rows that take part; arguments and errors are as of `rows_of_units`."""
    is_ordered = not isinstance(unread(part), Database)
    home = job.home(index)
    rows = rows_of_units(
        read(part), split, schema, job, index, home, ordered=is_ordered
    )
    return read(rows)


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
    """Keep a party's rows that take part: at most so many of each unit, where that is not a row.

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
        # All parties must keep the same rows, so that what decides it is known to all.
        secret = blake2b(
            job.run.encode(), digest_size=_SECRET_BYTES, person=b"siloweave units"
        ).digest()
    else:
        secret = _secret_for(_UNITS, job, index, home)
    most = job.budget.neighbours.rows
    table = read(rows)
    bounded = bounded_rows(
        table, schema[job.budget.unit], most, secret, ordered=ordered
    )
    omitted = table.num_rows - bounded.num_rows
    if omitted:
        _log.info(
            "%s of %s rows are left out: at most %d of each %s take part",
            f"{omitted:,}", f"{table.num_rows:,}", most, job.budget.unit,
        )  # fmt: skip
    return bounded


# Columns split: row i is the same person at every party


def columns_of(
    tables: Mapping[str, Table], schema: Schema, *, empty: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return the columns without ids of every party, where parties hold columns of the same people.

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
    columns = own_columns({name: table.names for name, table in tables.items()}, schema)
    check_same_people(tables, schema, empty=empty)
    return columns


def check_same_people(
    tables: Mapping[str, Table], schema: Schema, *, empty: bool = False
) -> None:
    """Refuse tables in which the same row is not the same person.

    Arguments and errors are those of `columns_of`.
    """
    if not empty:
        for name, table in tables.items():
            required_rows(name, table.num_rows)
    _check_numbers(tables)
    _check_ids(tables, schema)


def own_columns(
    columns: Mapping[str, Sequence[str]], schema: Schema
) -> dict[str, tuple[str, ...]]:
    """Return the columns without ids of every party, each column at one party, from all names.

    Raises:
        RosterError: A party has no column but ids.
        SchemaError: A column is in no schema, at no party, or at two; the message names parties.
    """
    owners = _owners_of(columns, schema)
    absent = [column.name for column in schema.coded if column.name not in owners]
    if absent:
        raise SchemaError(
            f"no party holds the schema's columns {', '.join(map(repr, absent))}; add them to a "
            "party's table, or take them out of the schema."
        )
    parts = {
        party: tuple(name for name in names if name in owners)
        for party, names in columns.items()
    }
    for party, names in parts.items():
        if not names:
            raise RosterError(
                f"party {party!r} has no column but ids; leave it out of the roster"
            )
    return parts


def _owners_of(columns: Mapping[str, Sequence[str]], schema: Schema) -> dict[str, str]:
    """Return which party holds each learned column; SchemaError where two do, or none knows it."""
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
    return owners


def _check_numbers(tables: Mapping[str, Table]) -> None:
    """Refuse tables whose numbers of rows differ from that of the first."""
    (first_name, first), *others = tables.items()
    for name, table in others:
        if table.num_rows != first.num_rows:
            raise RosterError(
                f"party {name!r} has {table.num_rows:,} rows and party {first_name!r} has "
                f"{first.num_rows:,}; row i must be one person at every party. Align the tables "
                "on an id first."
            )


def _check_ids(tables: Mapping[str, Table], schema: Schema) -> None:
    """Refuse tables whose shared ids show that rows stand in another order."""
    id_names = [column.name for column in schema.columns if column.is_id]
    for id_name in id_names:
        holders = [name for name, table in tables.items() if id_name in table.names]
        texts: list[str | None] = []
        for name in holders:
            with naming_party(name):
                party_texts = id_texts(tables[name], id_name)
            texts = texts or party_texts
            if party_texts != texts:
                pairs = zip(texts, party_texts, strict=True)
                row = int(np.argmax([mine != theirs for mine, theirs in pairs]))
                raise RosterError(
                    f"parties {holders[0]!r} and {name!r} differ in id {id_name!r} at row {row}; "
                    "row i must be one person at every party. Align the tables first."
                )
