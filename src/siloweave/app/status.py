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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from hashlib import blake2b
from logging.handlers import RotatingFileHandler
from pathlib import Path
from shlex import quote
from shutil import get_terminal_size
from textwrap import fill
from typing import Any, NamedTuple, TextIO

import msgspec

from siloweave import __version__
from siloweave.app.presence import ERROR, PRESENCE, SeenProcess, look
from siloweave.errors import of_system, printable
from siloweave.federation import course
from siloweave.federation.exchanges import (
    NONCES,
    PARTING,
    REFUSAL,
    Exchange,
    exchanges_in,
    finished_at,
)
from siloweave.privacy.journal import for_its_owner, write_whole
from siloweave.progress import duration
from siloweave.report import words
from siloweave.report.text_table import TextRow, TextTable, text_table

LOG = "log.txt"
"""In an end's folder: what it did, for its owner alone: it may name values and counts of rows."""
FACTS = "status.facts"
"""In an end's folder: what `known_status` need not compute again."""
ENGINE = "engine"
"""In an end's folder: what the network engine keeps."""
PROGRAMS = (
    # Python's modules, and what it finds or imports them by.
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
    # Libraries, programs and scripts of a system.
    ".so",
    ".dylib",
    ".dll",
    ".exe",
    ".sh",
    ".bat",
    ".cmd",
    ".ps1",
)
"""How names end of what Python or a system may run or load."""
LOG_BYTES = 10 * 2**20
"""Bytes of a log that is written, before it is put aside."""
LOGS = 3
"""How many logs that were put aside are kept."""
# Seconds after which a party that is awaited counts as late.
_LATE_S = 30.0
# Files that change with every question, and from which no facts follow.
_CHANGING = (LOG, FACTS, NONCES, PRESENCE, "party.sock", "rows.seen")
NEVER_STARTED = "never started"
"""The state of a party that may take part, and has not been started."""
WAITING = "waiting for the coordinator"
"""The state of a party that runs, and has not been asked anything for a while."""
NOT_RUNNING = "not running"
"""The state of a party whose process is gone."""
FAILED = "ended with an error"
"""The state of a party whose process an error ended."""
STOPPED = "stopped"
"""The state of a coordinator whose process is gone."""
_DELETED = "its answers were deleted, so it cannot continue"
ENDED_BY = "ended by "
INTERRUPTED = f"{ENDED_BY}KeyboardInterrupt"


class PartyLine(msgspec.Struct, frozen=True):
    """One party as the coordinator sees it; `waited` seconds for an answer that is still due.

    `refused` is why it did not answer the last question, or what hinders it; empty if it did.
    `epsilon` is what its ledger cost a row, which the coordinator has once the run has finished.
    """

    name: str
    messages: int
    bytes_sent: int
    bytes_received: int
    payments: int
    waited: float | None
    refused: str
    epsilon: float | None = None


class CoordinatorStatus(msgspec.Struct, frozen=True):
    """How far a study is at its coordinator.

    Attributes:
        state: "not begun", "running", "stopped" (start the coordinator again to continue), "ended
            by" with the kind of error, "finishing", or "finished"; see `state_words`.
        stage: What runs: a stage before the method, or the method.
        question, step: The last question, by its tag, and its number in the stage.
        questions, at_most: How many were asked, and may be asked in all.
        epsilon: Most that a row will have cost, at `delta`; spent once a run has finished.
        allowed: What the study allows a row to cost, at `delta`.
        seconds: Since the process began.
        left: Seconds that all other questions would take, if each took as long as those before;
            None where that is not known, or it does not run.
        ended: When it was seen last, UTC, if it does not run.
        why: What continues it, if it does not run.
        running: Whether its process runs here.
    """

    study: str
    state: str
    stage: str
    question: str
    step: int
    questions: int
    at_most: int
    epsilon: float
    allowed: float
    delta: float
    seconds: float
    left: float | None
    parties: tuple[PartyLine, ...]
    ended: str = ""
    why: str = ""
    running: bool = False


class PartyStatus(msgspec.Struct, frozen=True):
    """How far a study is at a party.

    Attributes:
        state: "its account cannot be used", "its ledger cannot be used", "an old or second copy",
            "not approved", "refused by the policy", "never started", "takes no part", "waiting for
            questions", "answering", "waiting for the coordinator", "refused a question", "not
            running", "ended with an error" or "finished"; see `state_words`.
        why: What is refused, or where that stands, or what continues it; empty otherwise.
        ended: When it answered with a refusal or to the study's end, if that was the last answer;
            or when it was seen last, UTC, if it does not run.
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
        running: Whether its process runs here.
        repeated: How many of the questions were asked again, at least.
        approved: Whether its owner's yes is there.
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
    running: bool = False
    repeated: int = 0
    approved: bool = False


class EndedRun(msgspec.Struct, frozen=True):
    """What a coordinator's status takes of a finished run."""

    run: str
    epsilon: float
    seconds: float
    rounds: int
    traffic: dict[str, course.Traffic]
    spent: dict[str, float]


class CoordinatorFacts(msgspec.Struct, frozen=True, tag=True):
    """What a coordinator's status says beside the course of the run; see `known_status`.

    Attributes:
        key: Digest of the files that it follows from; see `key_of`.
        folder: Of the run.
        names: Of the parties.
        run: Name of the study's run.
        at_most: Questions in all.
        allowed: Of epsilon, by the study.
        ended: A finished run, of whichever study.
    """

    key: bytes
    folder: str
    study: str
    names: tuple[str, ...]
    run: str
    at_most: int
    epsilon: float
    allowed: float
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
    is_approved: bool = False


def party_table(status: CoordinatorStatus) -> TextTable:
    """Return what each party did, as the terminal and the page of a study show it."""
    rows = []
    for party in status.parties:
        state, tone = _state_of(party)
        # What its ledger cost is known here once the run has finished.
        spent = f"≤ {words.epsilon(status.epsilon)}"
        if party.epsilon is not None:
            spent = words.epsilon(party.epsilon)
        cells = (
            party.name,
            state,
            f"{party.messages:,}",
            f"{party.payments:,}",
            spent,
            words.size(party.bytes_sent),
            words.size(party.bytes_received),
        )
        rows.append(TextRow(cells, tone=tone))
    heads = ("party", "now", ">answers", ">payments", ">ε spent", ">sent", ">received")
    return text_table(heads, rows)


def _state_of(party: PartyLine) -> tuple[str, str]:
    """Return what a party does now, in words, and whether that is bad."""
    # A party that refused a question is not awaited.
    if party.refused:
        return party.refused, "bad"
    if party.waited is None:
        return "answered" if party.messages else "not asked yet", ""
    waited = f"awaited for {duration(party.waited)}"
    if is_late(party):
        return f"late: {waited}", "bad"
    return waited, ""


def key_of(folder: Path, data: str | Path | None, run: str = "") -> bytes:
    """Return a digest of the sizes and times of all files from which an end's facts follow.

    Names of folders, programs and the engine's files are in it, too: an unexpected one is a fact.

    Args:
        folder: The end's.
        data: A party's rows, as its owner names them.
        run: A coordinator's folder of the run.
    """
    files = [file for file in folder.glob("*") if file.name not in _CHANGING]
    # A party's key, policy and account may lie above its studies.
    above = folder.absolute().parent
    for pattern in ("*.toml", "*.key", "*/*.toml", "*/*.json", "account.jsonl"):
        files += above.glob(pattern)
    if run:
        files.append(Path(run) / "run.json")
    if data is not None:
        files.append(Path(data))

    digest = blake2b(f"{__version__} {data}".encode(), digest_size=16)
    for file in sorted(set(files)):
        # From a file that is removed meanwhile no facts follow.
        with suppress(OSError):
            metadata = file.stat()
            if stat.S_ISREG(metadata.st_mode):
                marks = (metadata.st_ino, metadata.st_size, metadata.st_mtime_ns)
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
    """Store facts for the next call; where they cannot be written, that computes them again."""
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
    if facts.key != key_of(folder, data, run):
        return None
    return status_by(folder, facts)


def status_by(
    folder: Path, facts: CoordinatorFacts | PartyFacts
) -> CoordinatorStatus | PartyStatus:
    """Return how far a study is, by facts and by what its ends write down while it runs."""
    if isinstance(facts, PartyFacts):
        return _at_party(folder, facts)
    return _at_coordinator(folder, facts)


def _at_coordinator(folder: Path, facts: CoordinatorFacts) -> CoordinatorStatus:
    """Return how far a study is at its coordinator, by the course that its process wrote down."""
    # A run of another study in this folder says nothing of this one.
    ended = facts.ended
    if ended is not None and ended.run != facts.run:
        ended = None
    course_now = _read_course(Path(facts.folder))
    process = look(folder)
    is_running = _is_running(course_now, process)
    shown_at = _shown_at(course_now, is_running=is_running)
    state = _state(course_now, process, is_running=is_running)
    if course_now is None:
        course_now = _unwritten_course(ended, shown_at)
    seconds = shown_at - course_now.began
    lines = tuple(_lines(facts, course_now, shown_at, ended))

    epsilon = facts.epsilon
    seconds_left = None
    why = ""
    ended_at = ""
    if ended is not None:
        state = course.FINISHED
        epsilon = ended.epsilon
        seconds_left = 0.0
    elif state == "running" and course_now.questions and not _absent(lines):
        questions_left = max(facts.at_most - course_now.questions, 0)
        seconds_left = questions_left * seconds / course_now.questions
    elif state == STOPPED:
        last_seen = course_now.written
        if process is not None:
            last_seen = max(last_seen, process.presence.seen)
        ended_at = _in_utc(last_seen)
        why = f"start it with siloweave coordinator {quote(str(folder))} ..."
    elif state.startswith(ENDED_BY):
        ended_at = _in_utc(course_now.written)

    # Runs of stages before the method are called by the study's run and the stage.
    stage = course_now.run.removeprefix(facts.run).removeprefix("-")
    if course_now.run and not stage:
        stage = "method"
    return CoordinatorStatus(
        study=facts.study,
        state=state,
        stage=stage,
        question=course_now.question,
        step=course_now.step,
        questions=course_now.questions,
        at_most=facts.at_most,
        epsilon=epsilon,
        allowed=facts.allowed,
        delta=facts.delta,
        seconds=seconds,
        left=seconds_left,
        parties=lines,
        ended=ended_at,
        why=why,
        running=is_running,
    )


def _read_course(folder: Path) -> course.Status | None:
    """Read the course of a run, or of its alignment until the run begins; None before both."""
    status = course.read_status(folder / course.STATUS)
    if status is None:
        status = course.read_status(folder / course.ALIGNED / course.STATUS)
    return status


def _unwritten_course(ended: EndedRun | None, shown_at: float) -> course.Status:
    """Return the course of a run that wrote none: its parties were in one process, if it ended."""
    if ended is None:
        return course.Status("", 0, began=shown_at, step=0)
    return course.Status(
        "",
        0,
        began=shown_at - ended.seconds,
        step=0,
        questions=ended.rounds,
        traffic=ended.traffic,
    )


def _is_running(course_now: course.Status | None, process: SeenProcess | None) -> bool:
    """Return whether a coordinator's process runs here."""
    if process is not None:
        return process.is_running
    # One that another program started has no file of its process; its number may be another's.
    if course_now is None or course_now.ended:
        return False
    return _alive(course_now.process)


def _shown_at(course_now: course.Status | None, *, is_running: bool) -> float:
    """Return the time that a course is shown for: that of its end, once nobody continues it."""
    if course_now is None:
        return time.time()
    if course_now.ended or not is_running:
        return course_now.written
    return time.time()


def _absent(lines: Sequence[PartyLine]) -> list[str]:
    """Return the parties without whose answer a run does not go on, and that may not be there."""
    return [line.name for line in lines if _is_absent(line)]


def is_late(line: PartyLine) -> bool:
    """Return whether a party has not answered its question for long."""
    return line.waited is not None and line.waited > _LATE_S


def _is_absent(line: PartyLine) -> bool:
    """Return whether a party refused its question, or has not answered it for long."""
    return is_late(line) or bool(line.refused)


def _lines(
    facts: CoordinatorFacts,
    course_now: course.Status,
    shown_at: float,
    ended: EndedRun | None,
) -> Iterator[PartyLine]:
    """Yield what every party has sent, received and paid for, and how long it is awaited."""
    spent = {} if ended is None else ended.spent
    receipts = course.read_receipts(Path(facts.folder) / course.RECEIPTS)
    # A party's first receipt has its key alone, and pays for nothing.
    payments = Counter(receipt.party for receipt in receipts if receipt.entry)
    for name in facts.names:
        traffic = course_now.traffic.get(name, course.Traffic())
        waited = None
        if name in course_now.asked and name not in course_now.answered:
            waited = shown_at - course_now.asked[name]
        yield PartyLine(
            name=name,
            messages=traffic.messages,
            bytes_sent=traffic.bytes_from_party,
            bytes_received=traffic.bytes_to_party,
            payments=payments[name],
            waited=waited,
            refused=course_now.refused.get(name, ""),
            epsilon=spent.get(name),
        )


def _state(
    course_now: course.Status | None, process: SeenProcess | None, *, is_running: bool
) -> str:
    """Say what became of a run by its course; that it has finished, its summary says alone."""
    if course_now is None:
        if process is None:
            return "not begun"
        return "running" if is_running else STOPPED
    # What an earlier process wrote down says nothing of one that has asked nothing yet.
    is_earlier = process is not None and course_now.written < process.presence.began
    if course_now.ended and not (is_running and is_earlier):
        if course_now.ended == course.FINISHED:
            # Its last question is answered, and it was killed, or its summary is gone.
            is_gone = process is not None and not is_running
            return STOPPED if is_gone else "finishing"
        return f"{ENDED_BY}{course_now.ended}"
    return "running" if is_running else STOPPED


def _alive(process: int) -> bool:
    """Return whether there is such a process on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # Another user's process may not be asked, and is there.
        return True
    return True


def _at_party(folder: Path, facts: PartyFacts) -> PartyStatus:
    """Return how far a study is at a party, by the questions that it answered."""
    exchanges = exchanges_in(folder / NONCES)
    # That the coordinator has its result was no question of the study.
    answers = [exchange for exchange in exchanges if exchange.kind != PARTING]
    process = look(folder)
    is_running = process is not None and process.is_running
    state = _PartyState(facts.state, facts.why)
    if not facts.state:
        ended = finished_at(exchanges)
        state = _PartyState(course.FINISHED, "", ended)
        if not ended:
            state = _party_state(folder, answers, process, facts.releases)
    repeated = 0
    if not facts.is_guessed:
        repeated = max(len(answers) - facts.count, 0)

    quiet = time.time() - answers[-1].ended if answers else None
    return PartyStatus(
        study=facts.study,
        party=facts.party,
        state=state.name,
        why=state.why,
        ended=_in_utc(state.ended) if state.ended else "",
        answered=len(answers),
        at_most=None if facts.is_guessed else facts.count,
        run=facts.run,
        step=facts.step,
        epsilon=facts.epsilon,
        allowed=facts.allowed,
        delta=facts.delta,
        releases=facts.releases,
        stored=_bytes_in(folder / "store"),
        quiet=quiet,
        received=sum(answer.received for answer in answers),
        sent=sum(answer.sent for answer in answers),
        computing=sum(answer.computing for answer in answers),
        sealing=sum(answer.sealing for answer in answers),
        left=_seconds_left(facts, answers, state.name),
        unexpected=facts.unexpected,
        running=is_running,
        repeated=repeated,
        approved=facts.is_approved,
    )


class _PartyState(NamedTuple):
    """What a party does: its state, where that stands, and when it ended; 0 if it did not."""

    name: str
    why: str = ""
    ended: float = 0.0


def _party_state(
    folder: Path,
    answers: Sequence[Exchange],
    process: SeenProcess | None,
    releases: int,
) -> _PartyState:
    """Say what a party does that nothing hinders and whose study has not finished."""
    is_running = process is not None and process.is_running
    last = answers[-1] if answers else None
    # A party that was started again has refused nothing since.
    is_earlier = (
        is_running
        and process is not None
        and last is not None
        and last.ended < process.presence.began
    )
    if last is not None and last.kind == REFUSAL and not is_earlier:
        return _PartyState("refused a question", "its terminal says why", last.ended)
    if process is not None and is_running:
        return _PartyState(*_running_state(last, process))

    # By its ledger it has answered; after the study its owner deletes the answers.
    if releases and not (folder / "store").is_dir():
        last_seen = process.presence.seen if process is not None else 0.0
        return _PartyState(NOT_RUNNING, _DELETED, last_seen)
    call = f"start it with siloweave party start {quote(str(folder))} ..."
    if process is None:
        if last is None:
            return _PartyState(NEVER_STARTED)
        return _PartyState(NOT_RUNNING, call, last.ended)
    presence = process.presence
    if presence.how == ERROR:
        return _PartyState(FAILED, "its terminal said why", presence.ended)
    return _PartyState(NOT_RUNNING, call, presence.ended or presence.seen)


def _running_state(last: Exchange | None, process: SeenProcess) -> tuple[str, str]:
    """Say what a party does that runs, and where more of it stands."""
    if process.presence.declines:
        return "takes no part", "its terminal says why"
    if last is None:
        return "waiting for questions", ""
    is_quiet = time.time() - last.ended > _LATE_S
    if is_quiet and not process.presence.is_busy:
        return WAITING, ""
    return "answering", ""


def _in_utc(seconds: float) -> str:
    """Return a time as a status has it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")


def _clock(text: str) -> str:
    """Return a time of a status as `clock` has it."""
    return clock(datetime.fromisoformat(text))


def clock(time: datetime) -> str:
    """Return a time by this machine's clock; with the day, if that is not today."""
    at = time.astimezone()
    is_today = at.date() == datetime.now().astimezone().date()
    return at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")


def state_words(status: CoordinatorStatus | PartyStatus) -> str:
    """Return a study's state at an end in words for people; `status.state` is for programs."""
    if isinstance(status, CoordinatorStatus):
        return _coordinator_words(status)
    state = status.state
    if state == NEVER_STARTED and status.approved:
        return f"approved, {NEVER_STARTED}"
    if state == WAITING and status.quiet is not None:
        quiet = duration(status.quiet)
        return f"running, waits for the coordinator: nothing asked for {quiet}"
    if state == NOT_RUNNING:
        when = f"last seen {_clock(status.ended)}; " if status.ended else ""
        return f"not running here ({when}{status.why})"
    if state == FAILED:
        return f"not running: ended at {_clock(status.ended)} with an error"
    if status.ended:
        state += f" at {_clock(status.ended)}"
    if status.why:
        state += f": {status.why}"
    return state


def _coordinator_words(status: CoordinatorStatus) -> str:
    """Return a coordinator's state in words for people."""
    state = status.state
    if state == STOPPED and status.ended:
        return f"not running here (last seen {_clock(status.ended)}; {status.why})"
    if not state.startswith(ENDED_BY):
        return state
    if state == INTERRUPTED:
        return f"stopped by Ctrl-C at {_clock(status.ended)}"
    # A party that did not answer in time ends a run by this error alone.
    if state == f"{ENDED_BY}RosterError":
        silent = [line.name for line in status.parties if line.waited is not None]
        if silent:
            return f"ended: {in_a_sentence(silent)} did not answer"
    refusing = [line.name for line in status.parties if line.refused]
    if refusing:
        return f"ended: {in_a_sentence(refusing)} refused"
    kind = state.removeprefix(ENDED_BY)
    return f"ended with an error ({kind}), which its terminal and {LOG} tell"


def time_left_words(status: CoordinatorStatus | PartyStatus) -> str:
    """Say how long a study still takes at its pace; empty where it does not run."""
    seconds = status.left
    if seconds is not None:
        if not seconds:
            return "nothing is left to do"
        return f"questions still take at most {duration(seconds)} at this pace"
    if not status.running:
        return ""
    if isinstance(status, CoordinatorStatus):
        absent = _absent(status.parties)
        if absent:
            verb = "has" if len(absent) == 1 else "have"
            return (
                f"time left: not known, as {in_a_sentence(absent)} {verb} not answered"
            )
    return "time left: not known"


def in_a_sentence(names: Sequence[str]) -> str:
    """Write names in a sentence.

    Example:
        >>> in_a_sentence(["coordinator", "north", "south"])
        'coordinator, north and south'
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _seconds_left(
    facts: PartyFacts, answers: Sequence[Exchange], state: str
) -> float | None:
    """Return the seconds of all other questions at the pace so far; None where it is not known.

    A party that cannot take part any more has a pace all the same, so that its owner sees what
    it will take once that is mended.
    """
    if state == course.FINISHED:
        return 0.0
    if state in ("refused a question", NOT_RUNNING, FAILED):
        return None
    # The pace is one from answer to answer; and a guessed number has no rest.
    if len(answers) < 2 or facts.is_guessed:
        return None
    pace = (answers[-1].ended - answers[0].ended) / (len(answers) - 1)
    return pace * max(facts.count - len(answers), 0)


def _bytes_in(folder: Path) -> int:
    """Return the bytes of a folder's files; 0 where there is no folder."""
    if not folder.is_dir():
        return 0
    return sum(file.stat().st_size for file in folder.iterdir())


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
        super().__init__(
            folder / LOG, maxBytes=LOG_BYTES, backupCount=LOGS, encoding="utf-8"
        )

    def _open(self) -> Any:
        return open(
            self.baseFilename, self.mode, encoding=self.encoding, opener=for_its_owner
        )

    def filter(self, record: logging.LogRecord) -> Any:
        """Leave out what another study's thread logs."""
        return _STUDY.get() in (None, self._folder) and super().filter(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's
        # No record is as severe, so that this one is the last that is tried.
        self.setLevel(logging.CRITICAL + 1)
        error = sys.exception()
        why = of_system(error) if isinstance(error, OSError) else repr(error)
        sys.stderr.write(f"{self.baseFilename}: nothing more is logged there ({why})\n")


class _Terminal(logging.StreamHandler[TextIO]):
    """Shows warnings on standard error, where a log has all that was done."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(OneLine())
        self.setLevel(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record above the progress bar, which stands in for standard error."""
        # A bar that began after this handler was made has put itself in the way since.
        self.stream = sys.stderr
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text, wrapped at words to the terminal's width."""
        return fill(
            super().format(record),
            width=get_terminal_size().columns,
            break_long_words=False,
            break_on_hyphens=False,
        )


def log_into(folder: Path) -> logging.Handler:
    """Let this process write what it does into a file of its folder, for its owner alone.

    It may name values of rows that the study does not know, and counts of rows.

    A file of `LOG_BYTES` is put aside, and `LOGS` of these are kept. Warnings, as of what a party
    refuses, are shown in the terminal too.
    """
    log = logging.getLogger("siloweave")
    handler = _Log(folder)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    # A process of several studies has a log for each, and one terminal.
    if not any(isinstance(target, _Terminal) for target in log.handlers):
        log.addHandler(_Terminal())
    log.setLevel(logging.INFO)
    return handler
