"""What a coordinator writes down of a run: the transcript, receipts of payments, and who vanished.

The transcript holds every question and every answer's bytes, in the order they came. Nothing in it
is secret from the coordinator: whoever wants to know what the coordinator could learn can attack
this file afterwards. It belongs to the coordinator and is never published.

Receipts hold the parties' keys and the hash of every ledger entry that paid for a value in a reply.
A hash covers everything in the ledger up to its entry, so its holder notices later that this part
of the ledger was changed, cut off or written anew, also by the party itself.

The status says which question is asked, who was asked it and has answered, and how many bytes
crossed; it is a file that is written whole, so anyone may read it while a run goes on.

**Guarantee**: transcript and receipts hold nothing of rows but what the replies brought, status and
log nothing of them at all. A record is one write; when the coordinator's machine stops suddenly the
last ones may be missing, and with a receipt what it would have shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from siloweave.errors import InputError, LedgerError, WireError, naming_file
from siloweave.federation import messages
from siloweave.federation.course import Receipt, read_receipts
from siloweave.federation.messages import Masked, Released, Reply, items
from siloweave.privacy.journal import for_its_owner, write_whole
from siloweave.privacy.ledger import fingerprint

_LENGTH = 8  # bytes before each record


class TranscriptRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of a party, with its question.

    Attributes:
        run: Name of the run.
        step: Step of the run, from 0.
        party: Who answered.
        question: The request's bytes; empty where they are those of the record before.
        answer: The reply's bytes, as they crossed the wire inside their envelope.
    """

    run: str
    step: int
    party: str
    question: bytes
    answer: bytes


class FolderTranscript:
    """A file that only its owner may read, to which each answer is appended once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._question = b""
        self._known: set[tuple[str, int, str]] = set()
        if path.is_file():
            # A record that was cut short by a kill would make all after it unreadable.
            with path.open("r+b") as file:
                whole_bytes = sum(_LENGTH + len(data) for data in _records(file))
                file.truncate(whole_bytes)
            self._known = {
                (record.run, record.step, record.party)
                for record in read_transcript(path)
            }

    def record(self, received: TranscriptRecord) -> None:
        """Append one answer; a question that equals the last one is not written again."""
        # A run that is started again asks its first steps anew, and has the same answers.
        place = (received.run, received.step, received.party)
        if place in self._known:
            return
        self._known.add(place)

        if received.question == self._question:
            received = msgspec.structs.replace(received, question=b"")
        else:
            self._question = received.question
        data = msgspec.msgpack.encode(received)
        # Length and data in one write: a kill leaves at most one record cut short, at the end.
        _append(self._path, len(data).to_bytes(_LENGTH, "big") + data)


def _append(path: Path, data: bytes) -> None:
    """Append to a file that its owner alone can read; OSError, which names it, if that fails."""
    with naming_file(path), open(path, "ab", opener=for_its_owner) as file:
        file.write(data)


def read_transcript(path: Path) -> Iterator[TranscriptRecord]:
    """Read all answers of a transcript, with their questions.

    A record that was being written when the process died is left out. Raises InputError if there
    is no such file, and WireError if it is damaged.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: there is no transcript; only a run that was given a folder keeps one, and "
            "networks trained over many rounds (E2EDistr too) keep none"
        )
    question = b""
    with path.open("rb") as file:
        for data in _records(file):
            try:
                record = messages.decode(data, TranscriptRecord)
            except WireError as error:
                raise WireError(
                    f"{path}: {error}; the transcript is damaged"
                ) from error
            # Without a question a record answers that of the record before.
            question = record.question or question
            yield msgspec.structs.replace(record, question=question)


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yield the complete records of a file; an incomplete one ends it."""
    bytes_left = os.fstat(file.fileno()).st_size
    while len(header := file.read(_LENGTH)) == _LENGTH:
        size = int.from_bytes(header, "big")
        bytes_left -= _LENGTH
        # A damaged length may announce terabytes, which `read` would allocate.
        if size > bytes_left:
            return
        bytes_left -= size
        yield file.read(size)


_HASH = re.compile("[0-9a-f]{64}")


class Receipts:
    """A file of receipts that only its owner may read, to which each payment is appended once.

    LedgerError if a party had another public key before, or the file is damaged.
    """

    def __init__(self, path: Path, keys: Mapping[str, bytes]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._keys = dict(keys)
        receipts = read_receipts(path)

        # A party that lost its ledger and began a new one, with a new key, would spend its budget
        # a second time, and nothing else would show it.
        keys_before = {receipt.party: receipt.key for receipt in receipts}
        for party, key in keys.items():
            if keys_before.get(party, key) != key:
                raise LedgerError(
                    f"party {party!r} has the key {fingerprint(key)}; before, it had "
                    f"{fingerprint(keys_before[party])} ({path}). Its key and its ledger were "
                    "removed or replaced. Put them back from a backup, or run in a folder of its "
                    "own."
                )

        if path.is_file():
            with path.open("r+b") as file:  # a line that was cut short is written over
                end_of_lines = file.read().rfind(b"\n") + 1
                file.truncate(end_of_lines)
        self._runs = {
            (receipt.party, receipt.entry): receipt.run for receipt in receipts
        }
        for party in keys:
            self._append(Receipt(party, keys[party]))

    def record(self, run: str, step: int, party: str, reply: Reply) -> None:
        """Store the payments that a reply carries; WireError if one is not a hash."""
        for field, item in items(reply):
            if not isinstance(item, Released | Masked):
                continue
            # The text comes from a party: as a receipt, anything else could never be verified.
            if not _HASH.fullmatch(item.entry):
                raise WireError(
                    f"{field} names {item.entry[:64]!r} as the ledger entry that paid for it, "
                    "and that is no hash; check which software this party runs"
                )
            self._append(Receipt(party, self._keys[party], run, step, item.entry))

    def paid(self, party: str, run: str) -> set[str]:
        """Return the hashes of the entries with which a party paid in a run and its stages.

        A later run over the same folder, such as a score, is another's: a ledger that was sent
        before it has nothing of it.
        """
        stage_prefix = f"{run}-"
        entries = set()
        for (name, entry), paid_in in self._runs.items():
            is_of_run = paid_in == run or paid_in.startswith(stage_prefix)
            # A party's first receipt holds its key, and no entry.
            if name == party and entry and is_of_run:
                entries.add(entry)
        return entries

    def _append(self, receipt: Receipt) -> None:
        """Append a receipt, unless the file has it."""
        if (receipt.party, receipt.entry) in self._runs:
            return
        self._runs[receipt.party, receipt.entry] = receipt.run
        _append(self._path, msgspec.json.encode(receipt) + b"\n")


ABSENCES = Path("coordinator") / "absences.json"
"""Where, in a run's folder, a coordinator notes who vanished from masked sums."""


class Absences:
    """A file of the steps in which parties vanished from runs.

    A coordinator that starts again must ask the same parties as before: a sum is opened once, for
    one list of parties. InputError if the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            data = path.read_bytes() if path.is_file() else b"{}"
            self._steps = msgspec.json.decode(data, type=dict[str, dict[str, int]])
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{path}: is damaged ({error}); put it back from a backup"
            ) from error

    @property
    def names(self) -> set[str]:
        """The names of all parties that vanished from any run."""
        return {name for steps in self._steps.values() for name in steps}

    def of(self, run: str) -> dict[str, int]:
        """Return the step in which each absent party vanished from a run, by name."""
        return dict(self._steps.get(run, {}))

    def record(self, run: str, step: int, party: str) -> None:
        """Note that a party vanished, and force the note to disk."""
        # The first step counts: from there on the party is in no sum of the run.
        self._steps.setdefault(run, {}).setdefault(party, step)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self._path, msgspec.json.encode(self._steps))


# All of a run


@dataclass(frozen=True)
class RunRecords:
    """The files of what a coordinator received in a run; None for what it does not store.

    Attributes:
        transcript: Every answer.
        receipts: The payments in answers.
        absences: Who vanished, and when.
    """

    transcript: FolderTranscript | None = None
    receipts: Receipts | None = None
    absences: Absences | None = None
