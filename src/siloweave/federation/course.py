"""The course of a run, as a coordinator writes it down: its status and its receipts.

These files are read by `siloweave status`, which is called often, so that nothing here imports an
array or a method.

**Guarantee**: none of its own, see federation/records.py.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

import msgspec

from siloweave.errors import LedgerError
from siloweave.privacy.journal import write_whole

RECEIPTS = Path("coordinator") / "receipts.jsonl"
"""Where, in a run's folder, a coordinator keeps its receipts."""
STATUS = Path("coordinator") / "status.json"
"""Where, in a run's folder, a coordinator writes how far the run is."""
ALIGNED = "alignment"
"""Folder of a run in which its alignment stores what is its own."""
FINISHED = "finished"
"""How a run ends in its status, where no error ends it."""

_log = logging.getLogger("siloweave")


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One payment that a reply carried; the first of a party holds its key alone.

    Attributes:
        party: Who paid.
        key: Its public key.
        run: Name of the run; empty in a party's first receipt.
        step: Step of the run, from 0.
        entry: Hash of the ledger entry; empty in a party's first receipt.
    """

    party: str
    key: bytes
    run: str = ""
    step: int = 0
    entry: str = ""


def read_receipts(path: Path) -> tuple[Receipt, ...]:
    """Read the receipts that a coordinator has stored, or nothing without a file.

    A line that was being written when the process died is left out. LedgerError if the file is
    damaged, or names two keys of one party.
    """
    if not path.is_file():
        return ()
    receipts = []
    # What follows the last line's end is empty, or a line that was cut short.
    whole_lines = path.read_bytes().split(b"\n")[:-1]
    for number, line in enumerate(whole_lines, start=1):
        try:
            receipts.append(msgspec.json.decode(line, type=Receipt))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LedgerError(
                f"{path}, line {number}: is no receipt ({error}). Put back the file from a backup."
            ) from error

    # By two keys of one party, two ledgers could be its own.
    keys: dict[str, bytes] = {}
    for receipt in receipts:
        if keys.setdefault(receipt.party, receipt.key) != receipt.key:
            raise LedgerError(
                f"{path}: names two keys of party {receipt.party!r}. Put back the file from a "
                "backup."
            )
    return tuple(receipts)


class Traffic(msgspec.Struct, array_like=True, frozen=True):
    """The bytes and messages to and from one party, counted on the wire.

    `messages` are questions that it answered.
    """

    messages: int = 0
    bytes_to_party: int = 0
    bytes_from_party: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.messages + other.messages,
            self.bytes_to_party + other.bytes_to_party,
            self.bytes_from_party + other.bytes_from_party,
        )


class Status(msgspec.Struct):
    """The progress of a run over a network; times are in seconds of this machine's clock.

    Attributes:
        run: Name of the stage that runs.
        process: Number of the coordinator's process.
        began: When the process began with the run.
        step: Of the stage, from 0; -1 before the first.
        question: Tag of the question.
        questions: How many were asked in all stages, this one included.
        asked: When each party was asked it.
        answered: When each party answered it.
        refused: Why a party has not answered it, and will not; or what hinders it at the moment.
        traffic: What crossed to and from each party, in all stages.
        ended: Empty while it runs; `FINISHED`, or the kind of error that ended it.
        written: When this was written.
    """

    run: str
    process: int
    began: float
    step: int = -1
    question: str = ""
    questions: int = 0
    asked: dict[str, float] = {}
    answered: dict[str, float] = {}
    refused: dict[str, str] = {}
    traffic: dict[str, Traffic] = {}
    ended: str = ""
    written: float = 0.0


class StatusFile:
    """The file of a run's status, written at every question and answer, with a line of the log.

    A stage continues the numbers of those before it in the same process.
    """

    def __init__(self, path: Path, run: str) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._guard = Lock()  # parties are asked in several threads
        process = os.getpid()
        before = read_status(path)
        # What another process wrote, or an earlier run of this one, is not continued.
        if before is None or before.process != process or before.ended:
            before = Status(run, process, time.time())
        self._now = msgspec.structs.replace(before, run=run, step=-1)

    def asked(self, step: int, question: str, party: str) -> None:
        """Note that a party is being asked a question."""
        with self._changed() as now:
            if step != now.step:
                now.step = step
                now.question = question
                now.questions += 1
                now.asked = {}
                now.answered = {}
                now.refused = {}
            now.asked[party] = time.time()
            now.answered.pop(party, None)  # an earlier question, late
        _log.info("run %s, step %d: asked %s %s", now.run, step, party, question)

    def answered(self, party: str, sent: int, received: int) -> None:
        """Note that a party has answered its question, and how many bytes crossed."""
        with self._changed() as now:
            now.answered[party] = time.time()
            now.refused.pop(party, None)
            traffic = now.traffic.get(party, Traffic())
            now.traffic[party] = traffic + Traffic(1, sent, received)
        _log.info(
            "run %s, step %d: %s answered, %d bytes there and %d back",
            *(now.run, now.step, party, sent, received),
        )

    def refused(self, party: str, why: str) -> None:
        """Note that a party refused its question, is late, or is hindered.

        A full disk raises nothing here: it would hide the error that is noted.
        """
        with suppress(OSError), self._changed() as now:
            now.refused[party] = why
        _log.info("run %s, step %d: %s", now.run, now.step, why)

    def end(self, how: str) -> None:
        """Note that the run has ended, and how."""
        with self._changed() as now:
            now.ended = how
        _log.info("run %s, step %d: ended, %s", now.run, now.step, how)

    @contextmanager
    def _changed(self) -> Iterator[Status]:
        """Yield the status to be changed, then write it; after an error nothing is written."""
        with self._guard:
            yield self._now
            self._now.written = time.time()
            # Not forced to disk: a status that is lost with its machine is of no use.
            write_whole(self._path, msgspec.json.encode(self._now), forced=False)


def read_status(path: Path) -> Status | None:
    """Read the status that was written last; None if there is no file, or no status in it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
