"""A party over a network: it holds its rows, its ledger and its keys, and answers questions.

The coordinator has no table. The first question of a stage comes with the stage's facts: the study
as the coordinator knows it, and what the stages before have found. The party compares the study
with its own copy, prepares its side, and remembers the facts, so that it continues after a restart.

**Guarantee**: none of its own; see federation/site.py, which answers. What the stages before have
found is all that a party takes from the coordinator: values for what the study's schema leaves
open, and where columns are cut into bins. Neither changes what is paid for, or how far a row moves
what is counted: a party that is sent bins that follow from nothing counts rows in them as in any
others. Everything else a party has from its own copy of the study.

An error's text leaves the party if its class names no row (`errors.NAMES_NO_ROW`), without the path
of the party's folder. Of any other error the coordinator learns the class alone: rows that do not
fit are neither counted nor named, and a policy is not shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Protocol

import msgspec

from siloweave.core import run as runs
from siloweave.core.method import Keep, Method, Setup, Stage, Task
from siloweave.errors import (
    NAMES_NO_ROW,
    LedgerError,
    SiloweaveError,
    StudyError,
    WireError,
    shortened,
)
from siloweave.federation import messages
from siloweave.federation.alignment_party import PARTY, AlignmentData, common_rows
from siloweave.federation.course import FINISHED, STATUS, StatusFile
from siloweave.federation.frames import Opened, Seals
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Close, Part, Parted, Session, with_closing
from siloweave.federation.site import Handlers, Site, Terms, places
from siloweave.privacy.ledger import LEDGER_FILE, Ledger
from siloweave.tables.codes import Encoder
from siloweave.tables.read import Table, Unread, read
from siloweave.tables.schema import Schema

ALIGNMENT = "alignment"
"""The stage before all others, where parties hold different columns; and its folder."""
PARTING = "parting"
"""What a coordinator's word that it has its result is called, as a stage."""
_CLOSE = messages.encode(Close())
_log = logging.getLogger("siloweave")


class StageFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What comes with the first question of a stage.

    Attributes:
        study: Everything public that the study is, as JSON; see `agreed`.
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

    def found_in(self, setup: Setup) -> Setup:
        """A setup with what the stages before have found."""
        encoder = Encoder.from_json(self.encoder) if self.encoder else None
        return replace(setup, schema=Schema.from_json(self.schema), encoder=encoder)


def agreed(facts: Mapping[str, Any]) -> bytes:
    """Everything public that a study is, as bytes, which are the same wherever the study is."""
    return msgspec.json.encode(facts, order="sorted")


def side_of(setup: Setup) -> Method | Stage:
    """The method, or the stage before it, that a setup is for."""
    method = setup.synth.method
    return next((stage for stage in method.before if stage.name == setup.stage), method)


# A party


class Host:
    """One party of one study, for as long as its process lives.

    Args:
        name: In the roster.
        setup: The study's public facts, from the party's own copy.
        study: The same, as `agreed`.
        table: Its rows, or where they are counted.
        job: Budget, name of the run, where noise comes from, and the party's private key.
        home: Its folder: ledger, key, and what it remembers.
        roster: Every party's public key for signatures, in the study's order.
        allow: Called before anything is paid for, and before every stage, with the ledger; raises
            what forbids the study.
        aligned: What it brings to find the rows that all parties have, where that is done first;
            a ledger of its own, below `home`, has what that releases.
        asked: How often it answers each question at most, by stage and tag; None for no bound.
        keep: Takes synthetic columns that stay with the party, and their seed.
        end: Called before the study's last answer is given.
        part: Called once the coordinator says that it has its result, with what it sends along.
        note: Called with the ledger before an answer is given that it may have paid for; raises
            what keeps the answer here, such as lines that are missing.

    Raises:
        BudgetError: Another run has spent the party's budget.
        LedgerError: The ledger was changed.
        SiloweaveError: Rows do not fit the study, or `allow` forbids it.
    """

    def __init__(
        self,
        name: str,
        setup: Setup,
        study: bytes,
        table: Table | Unread,
        job: runs.Job,
        home: Path,
        roster: Mapping[str, bytes],
        allow: Callable[[Ledger], None] = lambda ledger: None,
        aligned: AlignmentData | None = None,
        asked: Mapping[str, Mapping[str, float]] | None = None,
        keep: Keep | None = None,
        end: Callable[[], object] = lambda: None,
        part: Callable[[Part], object] = lambda message: None,
        note: Callable[[Ledger], object] = lambda ledger: None,
    ) -> None:
        self.name, self._setup, self._study, self._table = name, setup, study, table
        self._job, self._roster = job, roster
        self._home = home = home.absolute()  # as errors about its files begin
        self._sites: dict[str, tuple[Site[Any], Handlers]] = {}
        self._aligned, self._asked, self._keep = aligned, asked, keep
        self._aligning: Site[AlignmentData] | None = None
        self._busy = Lock()  # one question at a time, whoever carries it
        self._allow, self._end, self._part = allow, end, part
        self._note = note
        new = not (home / LEDGER_FILE).exists()
        self._stores: runs.PartyStores = runs.open_stores(name, job, home)
        try:
            allow(self.ledger)
        except BaseException:
            self.close()
            if new:  # a study that never began counts for nothing
                (home / LEDGER_FILE).unlink()
            raise

    @property
    def ledger(self) -> Ledger:
        """What it has released."""
        return self._stores[0]

    def close(self) -> None:
        """Close the ledgers."""
        self._stores[0].close()
        if self._aligning is not None:
            self._aligning.ledger.close()

    def reply(self, question: Opened) -> bytes:
        """The answer to a question, as `Seals.answered` takes it.

        Raises:
            StudyError: The coordinator's study is another one; says where. Or the policy forbids
                it, or it was begun with other rows or settings.
            BudgetError, LedgerError, WireError: What the site refuses the question with. Any other
                error ends as WireError, which has no text of it.
            OSError: The disk is full, or broken: the party must be started again.
        """
        with self._busy:
            asked = messages.decode(question.data, Envelope)
            run = asked.run
            if run == self._job.named(PARTING):  # of no site: it reads no row and no ledger
                self._part(messages.decode(asked.body, Part))
                return messages.encode(asked.answered(messages.encode(Parted())))
            try:
                if run not in self._sites or question.facts:
                    self._begin(run, question.facts)
                site, handlers = self._sites[run]
                answer = site.answer(question.data, handlers)
            except OSError:
                raise
            except Exception as error:
                raise self._refused(run, error) from error
            self._note_ledger()
            if run == self._job.run and _CLOSE in (asked.body, asked.then):
                self._end()
            sizes = len(question.data), len(answer)
            _log.info("run %s: a question of %d bytes, answered with %d", run, *sizes)
            return answer

    def _begin(self, run: str, facts: bytes) -> None:
        """Prepare a stage, with the facts that it began with the first time."""
        store, key = self._stores[1], f"stage/{run}"
        if (known := store.get(key)) is None and not facts:
            raise WireError(
                f"party {self.name!r}: knows of no run {run!r}, and was not sent what its stage "
                "begins with; start the coordinator again"
            )
        if facts and known not in (None, facts):
            odd = "; ".join(runs.differences(_shown(known or b""), _shown(facts))[:3])
            raise WireError(f"party {self.name!r}: run {run!r} began with other facts: {odd}")
        if run in self._sites:
            return
        self._check_allowed()
        self._sites[run] = self._prepared(run, messages.decode(facts or known or b"", StageFacts))
        store.put(key, facts or known or b"")

    def _check_allowed(self) -> None:
        try:
            self._allow(self.ledger)
        except SiloweaveError as error:  # its text may name other studies
            _log.warning("%s", error)
            raise StudyError(
                f"party {self.name!r}: its policy does not allow the study any more. Nothing was "
                "released; its owner sees why by `siloweave status`"
            ) from error

    def _note_ledger(self) -> None:
        try:
            self._note(self.ledger)
        except SiloweaveError as error:  # its text may name a folder of this user
            _log.warning("%s", error)
            raise LedgerError(
                f"party {self.name!r}: its ledger lacks lines that its machine has seen, or cannot "
                "be compared with them. The answer was not sent; its owner sees why in its log"
            ) from error

    def _refused(self, run: str, error: Exception) -> SiloweaveError:
        """What the coordinator is sent of an error."""
        if isinstance(error, NAMES_NO_ROW):
            text = str(error).replace(str(self._home), "its folder")
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

    def _prepared(self, run: str, facts: StageFacts) -> tuple[Site[Any], Handlers]:
        job, base = self._job, self._setup
        if odd := runs.differences(self._study, facts.study):
            raise StudyError(
                f"party {self.name!r} has another study than the coordinator: {'; '.join(odd[:5])}."
                " Agree on one study.toml and schema.json, and start both ends again"
            )
        if facts.noise != job.noise:  # else the coordinator's report would call it private
            raise StudyError(
                f"party {self.name!r}: its noise = {job.noise!r}, and the coordinator's report "
                f"would say noise = {facts.noise!r}. Start all ends alike; seeded noise protects "
                "nothing"
            )
        if facts.stage == ALIGNMENT and self._aligned is not None:
            return self._alignment(run), with_closing(PARTY)
        setup, method = base, base.synth.method
        names = [stage.name for stage in method.before]
        if facts.stage not in (*names, "method"):
            raise WireError(f"party {self.name!r}: the study has no stage {facts.stage!r}")
        found = facts.found_in(base)
        for stage in method.before:
            if stage.name == facts.stage:
                break
            setup = stage.accepts(setup, found)
        if (setup.schema, setup.encoder) != (found.schema, found.encoder):
            raise WireError(
                f"party {self.name!r} was sent columns that are coded otherwise than its study says"
            )
        if facts.stage in names:
            if (planned := method.before[names.index(facts.stage)].plan(setup, job.learn)) is None:
                raise WireError(f"party {self.name!r}: nothing is open in stage {facts.stage!r}")
            setup = planned
        if run != job.named(setup.stage):
            raise WireError(f"party {self.name!r}: {run!r} is no run of the study {job.run!r}")
        side = side_of(setup)
        keep = None if self._keep is None else self._keep_declared
        place = replace(runs.place_of(setup, side, job, self.name, self._home), keep=keep)
        rows = side.prepare(self._rows(), setup, place)
        most, told = self._most_asked(facts.stage), side.facts(setup)
        terms = Terms(
            self._roster, job.tolerated, told, job.dropouts, job.run, most, setup.smallest_cohort
        )
        index = setup.roster.index(self.name)
        site = runs.site_of(self.name, rows, job, index, self._stores, terms)
        return site, with_closing(side.handlers(setup.synth))

    def _keep_declared(self, rows: Table, seed: int) -> None:
        """Keep synthetic columns, as the study declares them."""
        assert self._keep is not None
        modelled, index = self._setup.modelled, self._setup.roster.index(self.name)
        self._keep(rows if modelled is None else modelled.own(rows, index), seed)

    def _most_asked(self, stage: str) -> Mapping[str, float] | None:
        return None if self._asked is None else self._asked.get(stage, {})

    def _alignment(self, run: str) -> Site[AlignmentData]:
        """Its side of finding common rows, whose releases no budget covers."""
        if run != self._job.named(ALIGNMENT):
            raise WireError(f"party {self.name!r}: {run!r} aligns no rows of {self._job.run!r}")
        if self._aligning is None and self._aligned is not None:
            job, home = replace(self._job, limited=False), self._home / ALIGNMENT
            if self._stores[1].get(f"stage/{run}") and not (home / LEDGER_FILE).exists():
                raise runs.lost_ledger(home / LEDGER_FILE, "is gone")
            stores = runs.open_stores(self.name, job, home)
            index, most = self._setup.roster.index(self.name), self._most_asked(ALIGNMENT)
            terms = Terms(self._roster, asked=most)
            self._aligning = runs.site_of(self.name, self._aligned, job, index, stores, terms)
        assert self._aligning is not None
        return self._aligning

    def _rows(self) -> Table | Unread:
        """Its table: where rows are aligned first, those that all parties have, without the ids."""
        modelled = self._setup.modelled
        if self._aligned is None:
            return self._table if modelled is None else modelled.inside(read(self._table))
        run, schema = self._job.named(ALIGNMENT), self._setup.declared
        found = common_rows(self._alignment(run), run)
        found = read(
            runs.rows_of_units(
                found, self._setup.synth.method.split, schema, self._job,
                self._setup.roster.index(self.name), self._home,
            )
        )  # fmt: skip
        gone = {c for c in self._aligned.columns if c not in schema.names or schema[c].kind == "id"}
        found = found.select([name for name in found.names if name not in gone])
        return found if modelled is None else modelled.inside(found)


def _shown(facts: bytes) -> bytes:
    found = messages.decode(facts, StageFacts)
    return agreed({"stage": found.stage, "schema": found.schema, "encoder": found.encoder})


# The coordinator's side


class Carrier(Protocol):
    """A transport that carries sealed frames. Conforming: `spool.Spool`, `engine.Engine`."""

    noticed: Callable[[str, str], object]
    """Called with a party and what hinders it, while its answer is awaited."""

    def send(self, name: str, frame: bytes, facts: bytes = b"") -> bytes:
        """The party's answer to `frame`; with facts where a stage begins with it."""

    def await_for(self, seconds: float) -> None:
        """Await answers to later questions for so long."""


@dataclass
class _Line:
    """A carrier during a stage: the first question to every party has the stage's facts."""

    carrier: Carrier
    facts: bytes
    seals: Seals
    sizes: dict[str, tuple[int, int]]  # of the last exchange with a party, in bytes

    def send(self, name: str, frame: bytes) -> bytes:
        facts = b"" if name in self.sizes else self.facts
        sealed, opened = self.seals.sealed[name], self.seals.opened[name]
        answer = self.carrier.send(name, frame, facts)
        there, back = self.seals.sealed[name] - sealed, self.seals.opened[name] - opened
        self.sizes[name] = there or len(frame), back  # it may have lain there
        return answer


def parties_over(carrier: Carrier, study: bytes, seals: Seals) -> runs.Parties:
    """Opens sessions with parties that a carrier reaches.

    Args:
        carrier: Seals and carries frames.
        study: As `agreed`; every party compares it with its own.
        seals: The carrier's, with every party's keys in the study's order.
    """
    keys = seals.roster.parties

    @contextmanager
    def opened(
        setup: Setup, side: Method | Stage, job: runs.Job
    ) -> Iterator[tuple[Session, Task, runs.Recall | None]]:
        encoder = setup.encoder.to_json() if setup.encoder and setup.stage == "method" else ""
        facts = StageFacts(study, setup.stage, setup.schema.to_json(), encoder, job.noise)
        seals.sealing = job.sealing
        line = _Line(carrier, messages.encode(facts), seals, {})
        transcribed, run = setup.synth.method.transcribed, job.named(setup.stage)
        status = None if job.folder is None else StatusFile(job.folder / STATUS, run)
        if status is not None:
            carrier.noticed = status.refused
        session = runs.session_with(
            line, keys, job, run, transcribed=transcribed, at_once=len(keys), status=status,
            sizes=line.sizes,
        )  # fmt: skip
        try:
            yield session, runs.task_of(setup, side, job), None
        except BaseException as error:
            if status is not None:
                with suppress(OSError):  # which would hide the error
                    status.end(type(error).__name__)
            raise
        if status is not None and setup.stage == "method":
            status.end(FINISHED)

    return opened


def part_from(carrier: Carrier, names: Sequence[str], run: str, message: Part) -> list[str]:
    """Let parties know that the coordinator has its result; the names of those that answered.

    Args:
        carrier: As of `parties_over`, which awaits each answer for as long as `await_for` says.
        names: Of the parties.
        run: Name of the study's run, with `PARTING` as its stage.
        message: What they are sent.
    """
    body, heard = messages.encode(message), list[str]()

    def tell(name: str) -> None:
        frame = messages.encode(Envelope(run, 0, "coordinator", name, body))
        with suppress(SiloweaveError):  # who is not there learns of it from its owner
            carrier.send(name, frame)
            heard.append(name)

    threads = [Thread(target=tell, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(heard)
