"""Records of a party's ledgers on this machine, by which a copy of a study's folder is noticed.

A copy of a study's folder has the mark of the first (`network.StudyMark`), a store and a ledger of
its own, and no line of its own in the party's account. Each of the two would spend the whole
budget. So this user's state folder has a small record of every ledger, by its number: how many
lines it had when the party last gave an answer, and the last one's hash.

A store that is older than its ledger is noticed by the same record. A paid line without a stored
reply is else that of a process which was killed before it drew, and pays for the next draw. At a
later step the ledger alone shows it (`Site`). Some answers are paid by no line, such as the one
that opens a masked sum: a store that forgot it would open the sum a second time, over other
parties. So the record also counts the answers that the store had.

**Guarantee**: no answer leaves a party whose ledger lacks a line that this machine has seen, or
whose store has fewer answers than it had, but for one that both of two copies give at the same
moment; and no line pays for a second answer. Copies that run on two machines, or as two users, are
not noticed, nor is whoever removes the record, or puts it back with the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from siloweave.app.account import read_state, state_folder
from siloweave.core.party import lost_ledger
from siloweave.errors import LedgerError
from siloweave.federation.site import answers_in
from siloweave.privacy.journal import folder_for_its_owner, write_whole
from siloweave.privacy.ledger import Ledger

_OLD = "lacks lines that this machine has seen, as in a copy of the study's folder, or in a backup"


class LedgerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a ledger, as this machine saw it last.

    Attributes:
        lines: How many lines it had, with the first.
        head: Hash of the last of them.
        answered: Hash of the last line that an answer was given for; empty before the first.
        answers: How many answers the party's stores had, paid or not.
    """

    lines: int
    head: str
    answered: str = ""
    answers: int = 0


def _record_file(number: str) -> Path:
    return state_folder() / "ledgers" / f"{number}.json"


def _read_record(number: str) -> LedgerRecord | None:
    return read_state(
        _record_file(number),
        LedgerRecord,
        "what this machine has seen of a study's ledger",
        "if it is damaged, and no copy of the study's folder was used, remove it",
    )


def _has_at(ledger: Ledger, lines: int, head: str) -> bool:
    """Return whether the line of a ledger with this number, from 1, has this hash."""
    # Every entry has the hash of the line before it, so the last line's own is added.
    hashes = [entry.previous for entry in ledger.entries]
    hashes.append(ledger.head)
    return 1 <= lines <= len(hashes) and hashes[lines - 1] == head


def require_newest(number: str, file: Path) -> None:
    """Refuse a study's folder whose ledger lacks lines that this machine has seen.

    Args:
        number: What the ledger is known by, see `network.StudyMark`.
        file: Where it is, or should be.

    Raises:
        LedgerError: It lacks such lines, it was edited, or the record cannot be read.
    """
    record = _read_record(number)
    if record is None:
        return
    # A ledger that is gone, or empty, lacks them all.
    if not file.is_file() or file.stat().st_size == 0:
        raise lost_ledger(file, _OLD)
    ledger = Ledger.read(file)
    if not _has_at(ledger, record.lines, record.head):
        raise lost_ledger(file, _OLD)


class SeenLedger:
    """The record of one ledger while a party answers.

    Args:
        number: As of `require_newest`.
        stores: Folders of the party's stores: beside the ledger, and of an alignment.
    """

    def __init__(self, number: str, stores: Sequence[Path]) -> None:
        self._number = number
        self._stores = stores
        self._noted: LedgerRecord | None = None

    def answered(self) -> str:
        """Return the hash of the last line that an answer was given for; empty without one."""
        record = self._noted or _read_record(self._number)
        return record.answered if record else ""

    def note_opened(self, ledger: Ledger) -> None:
        """Note a ledger's lines and its store's answers before the party answers anything.

        Errors are those of `note`.
        """
        self._note(ledger, self.answered())

    def note(self, ledger: Ledger, paid: str) -> None:
        """Note the lines with which an answer is given, and the hash of the one that paid for it.

        LedgerError if a copy of the ledger has added others, or has answered something since;
        OSError if the record cannot be written.
        """
        hashes = [entry.hash for entry in ledger.entries]
        before = self.answered()
        # An answer that is sent again was paid for by an earlier line.
        is_newer = paid in hashes and (
            before not in hashes or hashes.index(paid) > hashes.index(before)
        )
        self._note(ledger, paid if is_newer else before)

    def _note(self, ledger: Ledger, answered: str) -> None:
        answers = sum(map(answers_in, self._stores))
        new_record = LedgerRecord(
            len(ledger.entries) + 1, ledger.head, answered, answers
        )
        if new_record == self._noted:
            return
        assert ledger.path is not None

        # Read anew each time: the process of a copy may have noted lines of its own.
        record = _read_record(self._number)
        if record is not None and not _has_at(ledger, record.lines, record.head):
            raise lost_ledger(ledger.path, _OLD)
        # One lock is on a ledger, so that only the process of a copy may have noted an answer here.
        is_changed = self._noted is not None and record != self._noted
        if is_changed or (record is not None and answers < record.answers):
            raise LedgerError(
                f"{self._stores[0]}: lacks answers that this machine has seen, as in a copy of the "
                "study's folder, or in a backup. Without them the same question could be answered "
                "in another way. Put the newest copy of the whole folder back, or agree on a new "
                "budget and folder"
            )

        file = _record_file(self._number)
        folder_for_its_owner(file.parent)
        write_whole(file, msgspec.json.encode(new_record))
        self._noted = new_record
