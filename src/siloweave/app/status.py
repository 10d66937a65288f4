"""How far a study is, at either end, from files alone: safe while it runs, and after a crash.

The coordinator writes down whom it asks and who answers (federation/records.py). A party's folder
shows what it has answered and paid for. Times are those of the machine that is asked.

It is asked often, so that nothing here imports an array or a method: what follows from the study,
the policy and the ledger is computed by status_facts.py, and stored until one of these changes.

**Guarantee**: nothing here reads a row, and nothing is changed but the file of these facts.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from hashlib import blake2b
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import msgspec

from siloweave import __version__
from siloweave.errors import of_system, printable
from siloweave.federation import course
from siloweave.federation.exchanges import LAST, NONCES, PARTING, REFUSAL, exchanges_in
from siloweave.privacy.journal import for_its_owner, write_whole

LOG = "log.txt"
"""In an end's folder: what it did, without any value of a row."""
FACTS = "status.facts"
"""In an end's folder: what `known_status` need not compute again."""
ENGINE = "engine"
"""In an end's folder: what the network engine keeps."""
PROGRAMS = (
    *(
        ".py",
        ".pyc",
        ".pyo",
        ".pyd",
        ".pyw",
        ".pth",
        ".egg-link",
        ".zip",
        ".whl",
        ".egg",
    ),
    *(".so", ".dylib", ".dll", ".exe", ".sh", ".bat", ".cmd", ".ps1"),
)
"""How names end of what Python or a system may run or load."""
_CHANGING = (LOG, FACTS, NONCES, "party.sock")  # from which no facts follow
LOG_BYTES, LOGS = 10 * 2**20, 3
"""Bytes of a log that is written, and how many older ones are kept."""
_ENDED = {
    LAST: (course.FINISHED, ""),
    REFUSAL: ("refused a question", "its terminal says why"),
}


class PartyLine(msgspec.Struct, frozen=True):
    """One party as the coordinator sees it; `waited` seconds for an answer that is still due.

    `refused` is why it did not answer the last question, or what hinders it; empty if it did.
    """

    name: str
    messages: int
    bytes_sent: int
    bytes_received: int
    payments: int
    waited: float | None
    refused: str


class CoordinatorStatus(msgspec.Struct, frozen=True):
    """How far a study is at its coordinator.

    Attributes:
        state: "not begun", "running", "stopped" (start the coordinator again to continue), the kind
            of error that ended it, or "finished".
        stage: What runs: a stage before the method, or the method.
        question, step: The last question, by its tag, and its number in the stage.
        questions, at_most: How many were asked, and may be asked in all.
        epsilon: Most that a row will have cost, at `delta`; spent once a run has finished.
        seconds: Since the process began.
        left: Seconds that all other questions would take, if each took as long as those before.
    """

    study: str
    state: str
    stage: str
    question: str
    step: int
    questions: int
    at_most: int
    epsilon: float
    delta: float
    seconds: float
    left: float | None
    parties: tuple[PartyLine, ...]


class PartyStatus(msgspec.Struct, frozen=True):
    """How far a study is at a party.

    Attributes:
        state: "its account cannot be used", "its ledger is gone", "not approved", "refused by the
            policy", "waiting for questions", "answering", "refused a question" or "finished".
        why: What is refused, or where that stands; empty otherwise.
        ended: When it answered with a refusal or to the study's end, if that was the last answer.
        answered, at_most: Questions; None where that follows from rows that are not given.
        run, step: Of the last payment in the ledger.
        epsilon, allowed: What a row has cost by the ledger, and may cost, at `delta`.
        releases: Lines of the ledger.
        stored: Bytes of answers that are kept.
        quiet: Seconds since the last question was answered; None before the first.
        received, sent: Bytes of frames of questions that it answered, and of its answers.
        computing: Seconds that its answers took, and what they needed. It stays at the party.
        sealing: Seconds of sealing, opening and signing.
        left: Seconds of all other questions at the pace so far; None where that is not known.
        unexpected: Files in the folder that siloweave has no use for; the party does not start
            beside them. Its rows are one, if they lie there and are not named.
    """

    study: str
    party: str
    state: str
    why: str
    ended: str
    answered: int
    at_most: int | None
    run: str
    step: str
    epsilon: float
    allowed: float
    delta: float
    releases: int
    stored: int
    quiet: float | None
    received: int
    sent: int
    computing: float
    sealing: float
    left: float | None
    unexpected: tuple[str, ...]


class EndedRun(msgspec.Struct, frozen=True):
    """What a coordinator's status takes of a finished run."""

    run: str
    epsilon: float
    seconds: float
    rounds: int
    traffic: dict[str, course.Traffic]


class CoordinatorFacts(msgspec.Struct, frozen=True, tag=True):
    """What a coordinator's status says beside the course of the run; see `known_status`.

    Attributes:
        key: By which it is seen that nothing it follows from has changed.
        folder: Of the run.
        names: Of the parties.
        run: Name of the study's run.
        at_most: Questions in all.
        ended: A finished run, of whichever study.
    """

    key: bytes
    folder: str
    study: str
    names: tuple[str, ...]
    run: str
    at_most: int
    epsilon: float
    delta: float
    ended: EndedRun | None


class PartyFacts(msgspec.Struct, frozen=True, tag=True):
    """What a party's status says beside the questions that it answered; see `PartyStatus`."""

    key: bytes
    study: str
    party: str
    state: str
    why: str
    count: int
    is_guessed: bool
    run: str
    step: str
    epsilon: float
    allowed: float
    delta: float
    releases: int
    unexpected: tuple[str, ...]


def key_of(folder: Path, data: str | Path | None, run: str = "") -> bytes:
    """Return a digest of the sizes and times of all files from which an end's facts follow.

    Names of folders, programs and the engine's files are in it, too: an unexpected one is a fact.

    Args:
        folder: The end's.
        data: A party's rows, as its owner names them.
        run: A coordinator's folder of the run.
    """
    above = folder.absolute().parent
    files = [one for one in folder.glob("*") if one.name not in _CHANGING]
    for pattern in ("*.toml", "*.key", "*/*.toml", "*/*.json", "account.jsonl"):
        files += above.glob(pattern)  # of the party's key, policy and account
    files += [Path(run) / "run.json"] if run else []
    files += [Path(data)] if data is not None else []
    digest = blake2b(f"{__version__} {data}".encode(), digest_size=16)
    for file in sorted(set(files)):
        with suppress(OSError):
            facts = file.stat()
            if stat.S_ISREG(facts.st_mode):
                marks = facts.st_ino, facts.st_size, facts.st_mtime_ns
                digest.update(f"{file.absolute()} {marks}\n".encode())
    for name in sorted(_telling_names(folder)):
        digest.update(os.fsencode(name) + b"\n")
    return digest.digest()


def _telling_names(folder: Path) -> Iterator[str]:
    """Yield the paths in a folder that may be unexpected; a party's many answers are no such."""
    for place, folders, files in os.walk(folder):
        inside = Path(place).relative_to(folder).parts
        for name in (*folders, *files):
            is_listed = name in folders or inside[:1] == (ENGINE,)
            if is_listed or Path(name).suffix.lower() in PROGRAMS:
                yield str(Path(place) / name)


def store_facts(folder: Path, facts: CoordinatorFacts | PartyFacts) -> None:
    """Keep facts for the next call; where they cannot be written, that computes them again."""
    with suppress(OSError):
        write_whole(folder / FACTS, msgspec.msgpack.encode(facts), forced=False)


def known_status(
    folder: Path, data: str | Path | None = None
) -> CoordinatorStatus | PartyStatus | None:
    """Return how far the study in an end's folder is, if nothing changed that is slow to read.

    What follows from the study, the policy and the ledger was stored by an earlier call, with the
    sizes and times of the files that it follows from. None where one of these has changed since.
    """
    try:
        facts = msgspec.msgpack.decode(
            (folder / FACTS).read_bytes(), type=CoordinatorFacts | PartyFacts
        )
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    run = facts.folder if isinstance(facts, CoordinatorFacts) else ""
    return status_by(folder, facts) if facts.key == key_of(folder, data, run) else None


def status_by(
    folder: Path, facts: CoordinatorFacts | PartyFacts
) -> CoordinatorStatus | PartyStatus:
    """Return how far a study is, by facts and by what its ends write down while it runs."""
    if isinstance(facts, PartyFacts):
        return _at_party(folder, facts)
    return _at_coordinator(facts)


def _at_coordinator(facts: CoordinatorFacts) -> CoordinatorStatus:
    folder, ended = Path(facts.folder), facts.ended
    places = (folder, folder / course.ALIGNED)  # the second before there is the first
    seen = (course.read_status(place / course.STATUS) for place in places)
    found = next(filter(None, seen), None)
    at = time.time()
    now = found or course.Status("", 0, at)
    if found is not None and (now.ended or not _alive(now.process)):
        at = now.written
    due = {
        name: at - asked
        for name, asked in now.asked.items()
        if name not in now.answered
    }
    done = ended is not None and ended.run == facts.run
    if done and ended and found is None:  # its parties were in one process
        began = at - ended.seconds
        now = course.Status("", 0, began, questions=ended.rounds, traffic=ended.traffic)
    seconds, left = at - now.began, 0.0 if done else None
    if now.questions and not done:
        left = max(facts.at_most - now.questions, 0) * seconds / now.questions
    stage = now.run.removeprefix(facts.run).removeprefix("-")
    return CoordinatorStatus(
        study=facts.study,
        state=course.FINISHED if done else _state(found),
        stage=stage or ("method" if now.run else ""),
        question=now.question,
        step=now.step if found else 0,
        questions=now.questions,
        at_most=facts.at_most,
        epsilon=ended.epsilon if done and ended else facts.epsilon,
        delta=facts.delta,
        seconds=seconds,
        left=left,
        parties=tuple(_lines(facts, now, due)),
    )


def _lines(
    facts: CoordinatorFacts, now: course.Status, due: Mapping[str, float]
) -> Iterator[PartyLine]:
    receipts = course.read_receipts(Path(facts.folder) / course.RECEIPTS)
    paid = Counter(one.party for one in receipts if one.entry)
    for name in facts.names:
        seen, why = now.traffic.get(name, course.Traffic()), now.refused.get(name, "")
        counts = seen.messages, seen.bytes_from_party, seen.bytes_to_party
        yield PartyLine(name, *counts, paid[name], due.get(name), why)


def _state(now: Any) -> str:
    if now is None:
        return "not begun"
    if now.ended:
        return "finishing" if now.ended == course.FINISHED else f"ended by {now.ended}"
    return "running" if _alive(now.process) else "stopped"


def _alive(process: int) -> bool:
    """Return whether there is such a process on this machine."""
    try:
        os.kill(process, 0)
    except OSError as error:  # somebody else's may not be asked, and is there
        return not isinstance(error, ProcessLookupError)
    return True


def _at_party(folder: Path, facts: PartyFacts) -> PartyStatus:
    state, why, left, ended = facts.state, facts.why, None, ""
    # That the coordinator has its result was no question of the study.
    made = [one for one in exchanges_in(folder / NONCES) if one.kind != PARTING]
    if made and made[-1].kind in _ENDED and not state:
        state, why = _ENDED[made[-1].kind]
        left = 0.0 if made[-1].kind == LAST else None
        ended = datetime.fromtimestamp(made[-1].ended, UTC).isoformat(" ", "seconds")
    elif len(made) > 1 and not facts.is_guessed:
        pace = (made[-1].ended - made[0].ended) / (len(made) - 1)
        left = pace * max(facts.count - len(made), 0)
    state = state or ("answering" if made else "waiting for questions")
    store = folder / "store"
    return PartyStatus(
        study=facts.study,
        party=facts.party,
        state=state,
        why=why,
        ended=ended,
        answered=len(made),
        at_most=None if facts.is_guessed else facts.count,
        run=facts.run,
        step=facts.step,
        epsilon=facts.epsilon,
        allowed=facts.allowed,
        delta=facts.delta,
        releases=facts.releases,
        stored=sum(one.stat().st_size for one in store.iterdir())
        if store.is_dir()
        else 0,
        quiet=time.time() - made[-1].ended if made else None,
        received=sum(one.received for one in made),
        sent=sum(one.sent for one in made),
        computing=sum(one.computing for one in made),
        sealing=sum(one.sealing for one in made),
        left=left,
        unexpected=facts.unexpected,
    )


class OneLine(logging.Formatter):
    """A line for each record, whatever names in it came from another end."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text, with what is not printable escaped."""
        return printable(super().format(record), lines=False)


_STUDY: ContextVar[Path | None] = ContextVar(
    "folder of the study at work", default=None
)


@contextmanager
def logging_for(folder: Path) -> Iterator[None]:
    """Let the log of this folder alone have what is logged here, where there are several."""
    mark = _STUDY.set(folder)
    try:
        yield
    finally:
        _STUDY.reset(mark)


class _Log(RotatingFileHandler):
    """A log of an end's folder, of a bounded size.

    It is given up where it cannot be written, and says so once: the study goes on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        named: dict[str, Any] = {
            "maxBytes": LOG_BYTES,
            "backupCount": LOGS,
            "encoding": "utf-8",
        }
        super().__init__(folder / LOG, **named)

    def _open(self) -> Any:
        return open(
            self.baseFilename, self.mode, encoding=self.encoding, opener=for_its_owner
        )

    def filter(self, record: logging.LogRecord) -> Any:
        """Leave out what another study's thread logs."""
        return _STUDY.get() in (None, self._folder) and super().filter(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's
        self.setLevel(logging.CRITICAL + 1)
        error = sys.exception()
        why = of_system(error) if isinstance(error, OSError) else repr(error)
        sys.stderr.write(f"{self.baseFilename}: nothing more is logged there ({why})\n")


def log_into(folder: Path) -> logging.Handler:
    """Let this process write what it does into a file of its folder, which names no value.

    A file of `LOG_BYTES` is put aside, and `LOGS` of these are kept. Warnings, as of what a party
    refuses, are shown in the terminal too.
    """
    log, handler = logging.getLogger("siloweave"), _Log(folder)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    if not any(getattr(one, "siloweave_terminal", False) for one in log.handlers):
        shown = logging.StreamHandler()
        shown.setFormatter(OneLine())
        shown.setLevel(logging.WARNING)
        shown.siloweave_terminal = True  # type: ignore[attr-defined]
        log.addHandler(shown)
    log.setLevel(logging.INFO)
    return handler
