"""A party's account: every study that it has started, with all that each may cost.

The file lies beside the party's key. It only grows; each line has the hash of the line before and
the signature of the party's key, which covers all lines before it, too. A study is entered with its
whole budget, forced to disk, before its ledger is made. So what a party has spent follows from this
one file, wherever studies' folders lie, and whether they are still there.

A file cannot show that it is an old copy of itself. So this user's state folder has a small record
of every account, by the party's key: where it lies, how many lines it has, and the last one's hash.
An account that the record contradicts, or that has studies and no record here, is not used until
its owner has said what was spent besides (`state_spent`).

**Guarantee**: without the private key nobody can add, change, remove or reorder lines unnoticed,
except for whole lines at the end (see privacy/ledger.py for what a chain of signed lines shows).
Lines that are gone from the end are noticed where the record is newer. Whoever puts both files back
from one backup is not noticed. What is entered is an upper bound: the study's largest statement, as
`policy.promised` has it, whether it was spent or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from math import inf, isinf
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple, TypeVar

import msgspec

from siloweave.errors import InputError, LedgerError, count_of, number
from siloweave.privacy.journal import (
    NEW,
    Journal,
    folder_for_its_owner,
    read_lines,
    sync_folder,
    write_whole,
)
from siloweave.privacy.ledger import KEY_FILE, Identity, fingerprint, verify

ACCOUNT_FILE = "account.jsonl"
"""What the file is called, beside a party's key."""
STATE_FOLDER = "SILOWEAVE_STATE"
"""The environment variable that names the folder of records, where the usual one is not right."""

_Record = TypeVar("_Record")
_VERSION = 1
CHANGED = "CHANGED"
"""Begins a note on a key that earlier studies had under another name, or a name with another."""
# So that a signature of a line cannot be taken for one of anything else.
_PURPOSE = b"siloweave account line"
_WAIT_S = 20.0  # for another process of the same party that is writing a line
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)


class Charged(NamedTuple):
    """What studies may cost a unit: epsilons added up, and deltas."""

    epsilon: float
    delta: float


def added_up(costs: Iterable[Charged]) -> Charged:
    """Add up what studies may cost, whatever their mechanisms are (see app/policy.py).

    Example:
        >>> added_up([Charged(1.0, 1e-6), Charged(0.5, 1e-6)])
        Charged(epsilon=1.5, delta=2e-06)
    """
    listed = list(costs)
    epsilon = sum(cost.epsilon for cost in listed)
    delta = sum(cost.delta for cost in listed)
    return Charged(epsilon, delta)


def _charged(epsilon: float | None, delta: float) -> Charged:
    """Return a cost as it is added up; None, which a file has for no bound, is infinity."""
    return Charged(inf if epsilon is None else epsilon, delta)


def _in_file(epsilon: float) -> float | None:
    """Return an epsilon as a file has it: JSON has no infinity."""
    return None if isinf(epsilon) else epsilon


class AccountHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First line of an account; `key` is the party's public key, and signs this line too."""

    siloweave_account: int
    created: str
    key: bytes
    signature: bytes = b""


class AccountEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of an account.

    Attributes:
        index: Position among the entries, from 0.
        time: When, UTC, ISO 8601.
        kind: "study" where one is started; "more" where it may cost more than was entered before;
            "stated" where the owner says what was spent besides.
        study: The study's name; empty for what the owner stated.
        ledger: What the study's ledger is known by, see `network.StudyMark`.
        coordinator: The coordinator's public key.
        parties: Public keys of all parties of the study, by name.
        epsilon: What this line adds; None where nothing bounds it.
        delta: The same of delta.
        previous: Hash of the line before.
        signature: The party's.
    """

    index: int
    time: str
    kind: Literal["study", "more", "stated"]
    study: str
    ledger: str
    coordinator: bytes
    parties: dict[str, bytes]
    epsilon: float | None
    delta: float
    previous: str
    signature: bytes = b""

    @property
    def cost(self) -> Charged:
        """What this line adds."""
        return _charged(self.epsilon, self.delta)


class AccountRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this user's machine knows of an account.

    Attributes:
        folder: Where the account lies.
        lines: How many lines it had when it was written last.
        head: Hash of the last of them.
        epsilon: All that was entered by then; None for no bound.
        delta: The same of delta.
    """

    folder: str
    lines: int
    head: str
    epsilon: float | None
    delta: float

    @property
    def cost(self) -> Charged:
        """All that was entered by then."""
        return _charged(self.epsilon, self.delta)


_encoder = msgspec.json.Encoder()


def _digest(line: bytes) -> str:
    """Return the hash by which the next line, and a record, name a line."""
    return blake2b(line, digest_size=32, person=b"siloweave accnt").hexdigest()


def _signed_line(line: AccountHeader | AccountEntry, identity: Identity) -> bytes:
    """Write a line with the signature of all that it has beside it."""
    bare = _encoder.encode(msgspec.structs.replace(line, signature=b""))
    signature = identity.sign(_PURPOSE, bare)
    return _encoder.encode(msgspec.structs.replace(line, signature=signature))


def _is_signed(line: AccountHeader | AccountEntry, key: bytes) -> bool:
    """Return whether a line's signature is that of a key, and of what the line has."""
    bare = _encoder.encode(msgspec.structs.replace(line, signature=b""))
    return verify(key, _PURPOSE, bare, line.signature)


def _now() -> str:
    """Return the time as a line has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Account:
    """The lines of one account, checked; see `read_account` and `open_account`."""

    def __init__(
        self,
        folder: Path,
        lines: Sequence[bytes],
        key: bytes,
        source: _Source | None = None,
    ) -> None:
        self.folder = folder
        self.key = key
        self.entries: tuple[AccountEntry, ...] = ()
        self._digests: list[str] = []
        if source is None:
            source = _account_in(folder)
        header = _read_header(lines[0], source)
        # Another party's account, whole and signed, would say that this one spent nothing.
        if header.key != key:
            raise LedgerError(
                f"{source.path}: is the account of the key {fingerprint(header.key)}, and "
                f"{KEY_FILE} in {folder} is {fingerprint(key)}. {source.key_remedy}"
            )
        self._digests.append(_digest(lines[0]))
        # Each line is checked against all before it, which are in the account by then.
        for line_number, line in enumerate(lines[1:], start=2):
            entry = _read_entry(line, line_number, source, key, self)
            self._add(entry, line)

    def _add(self, entry: AccountEntry, line: bytes) -> None:
        """Add a line that was checked, or that has just been written."""
        self.entries += (entry,)
        self._digests.append(_digest(line))

    @property
    def lines(self) -> int:
        """How many lines there are, with the first."""
        return len(self._digests)

    @property
    def head(self) -> str:
        """Hash of the last line."""
        return self._digests[-1]

    @property
    def total(self) -> Charged:
        """All that was entered."""
        return added_up(entry.cost for entry in self.entries)

    def knows(self, ledger: str) -> bool:
        """Return whether a study with this ledger was entered."""
        return any(entry.ledger == ledger for entry in self.entries if entry.ledger)

    def charged(self, ledger: str) -> Charged:
        """Return what was entered for the study with this ledger."""
        return added_up(entry.cost for entry in self.entries if entry.ledger == ledger)

    def ledgers_of(self, study: str, coordinator: bytes) -> set[str]:
        """Return what all ledgers are known by that were entered for a study of a coordinator."""
        return {
            entry.ledger
            for entry in self.entries
            if entry.study == study and entry.coordinator == coordinator
        }

    def others(self, *ledgers: str) -> list[Charged]:
        """Return what was entered for everything but studies with these ledgers, study by study."""
        costs: dict[str, list[Charged]] = {}
        for entry in self.entries:
            # What the owner stated has no ledger, and each such line counts by itself.
            name = entry.ledger or f"stated {entry.index}"
            costs.setdefault(name, []).append(entry.cost)
        for ledger in ledgers:
            costs.pop(ledger, None)
        return [added_up(study_costs) for study_costs in costs.values()]

    def seen_key(self, name: str, key: bytes, ledger: str = "") -> str:
        """Say whether an end of a study is known by its key from a study with another ledger.

        Returns:
            A clause for people: that it is new, or known; or that the name had another key, or the
            key another name, as where two parties' keys were swapped.
        """
        # The latest study first.
        earlier_entries = [
            entry for entry in reversed(self.entries) if entry.ledger != ledger
        ]
        for entry in earlier_entries:
            day = entry.time[:10]
            names = [
                party for party, its_key in entry.parties.items() if its_key == key
            ]
            if name in names or key == entry.coordinator:
                return f"known from study {entry.study!r} of {day}"
            if names:
                return (
                    f"{CHANGED}: in study {entry.study!r} of {day} it was the key of "
                    f"{names[0]!r}. Ask by telephone why"
                )

        # A key that no study had is suspicious where the name has had another.
        for entry in earlier_entries:
            earlier_key = entry.parties.get(name)
            if earlier_key is not None:
                day = entry.time[:10]
                return (
                    f"{CHANGED}: in study {entry.study!r} of {day} {name!r} had "
                    f"{fingerprint(earlier_key)}. Ask by telephone why"
                )
        return "new here: compare it by telephone"

    def own_name(self, key: bytes, ledger: str) -> str:
        """Return the name of a key in the latest study with another ledger; empty without one."""
        for entry in reversed(self.entries):
            names = [
                party for party, its_key in entry.parties.items() if its_key == key
            ]
            if names and entry.ledger != ledger:
                return names[0]
        return ""

    def has_at(self, lines: int, head: str) -> bool:
        """Return whether its line of this number, from 1, has this hash."""
        if not 1 <= lines <= self.lines:
            return False
        return self._digests[lines - 1] == head


class _Source(NamedTuple):
    """A file with an account's lines, and what an owner does where they are damaged.

    Attributes:
        path: The file.
        remedy: Where a line is damaged.
        key_remedy: Where the account is of another key.
    """

    path: Path
    remedy: str
    key_remedy: str


def _account_in(folder: Path) -> _Source:
    """Return the account of a party's folder as a source."""
    call = f"siloweave party account --folder {quote(str(folder))} --restore FILE"
    return _Source(
        folder / ACCOUNT_FILE,
        remedy=(
            f"Nothing was released. Move it away and put back its last backup: `{call}`"
        ),
        key_remedy=(
            "Nothing was released. Put back the file of the pair that is wrong: both belong to one "
            "party"
        ),
    )


def _backup_at(file: Path) -> _Source:
    """Return a backup of an account as a source."""
    remedy = "Nothing was changed. Give another backup with --restore"
    return _Source(file, remedy, key_remedy=remedy)


def _read_header(line: bytes, source: _Source) -> AccountHeader:
    """Read and check the first line; LedgerError where it was damaged or edited."""
    try:
        header = msgspec.json.decode(line, type=AccountHeader)
    except _UNREADABLE as error:
        raise LedgerError(
            f"{source.path}, line 1: is not the start of an account ({error}). {source.remedy}"
        ) from error
    if header.siloweave_account != _VERSION:
        raise LedgerError(
            f"{source.path}, line 1: version {header.siloweave_account} of the format is not "
            f"known; this version of siloweave reads {_VERSION}. Nothing was released"
        )
    if not _is_signed(header, header.key):
        raise LedgerError(f"{source.path}, line 1: {_altered(source)}")
    return header


def _read_entry(
    line: bytes, line_number: int, source: _Source, key: bytes, before: Account
) -> AccountEntry:
    """Read and check the line that follows an account; LedgerError where it does not."""
    try:
        entry = msgspec.json.decode(line, type=AccountEntry)
    except _UNREADABLE as error:
        raise LedgerError(
            f"{source.path}, line {line_number}: is no line of an account ({error}). "
            f"{source.remedy}"
        ) from error
    follows = entry.index == len(before.entries) and entry.previous == before.head
    # The bytes are compared, too: a line that was only written otherwise has another hash.
    is_as_written = _encoder.encode(entry) == line
    if not follows or not is_as_written or not _is_signed(entry, key):
        raise LedgerError(f"{source.path}, line {line_number}: {_altered(source)}")
    return entry


def _altered(source: _Source) -> str:
    """Say that a line was edited, and what to do."""
    return (
        "was edited, or lines before it were removed or moved, by someone without the party's "
        f"key. {source.remedy}"
    )


def _decide(folder: Path) -> str:
    """Say how an owner states what an account does not show."""
    call = f"siloweave party account --folder {quote(str(folder))}"
    return (
        f"Nothing was released. `{call}` shows what is known; its owner says what was spent "
        f"besides: `{call} --spent-since EPSILON --delta DELTA`, 0 for nothing"
    )


# The record in the user's state folder


def state_folder() -> Path:
    """Return the folder of records: SILOWEAVE_STATE, or where this system keeps state of a user."""
    folder = os.environ.get(STATE_FOLDER)
    if folder:
        return Path(folder)
    # The folders of XDG and of Windows, whose names may be in the environment, too.
    is_windows = os.name == "nt"
    name = "siloweave/state" if is_windows else "siloweave"
    variable = "LOCALAPPDATA" if is_windows else "XDG_STATE_HOME"
    base = os.environ.get(variable)
    if base:
        return Path(base) / name
    try:
        home = Path.home()
    except RuntimeError as error:
        raise LedgerError(
            "this user has no home folder, where a record of a party's account is kept. Nothing "
            f"was released. Name a folder that stays in the environment variable {STATE_FOLDER}"
        ) from error
    usual_base = "AppData/Local" if is_windows else ".local/state"
    return home / usual_base / name


def _record_file(key: bytes) -> Path:
    """Return where this machine's record of the account of a key is."""
    name = fingerprint(key).replace(" ", "")
    return state_folder() / "accounts" / f"{name}.json"


def read_record(key: bytes) -> AccountRecord | None:
    """Read what this machine knows of the account of a key; None for nothing.

    Raises:
        LedgerError: The record cannot be read, so that nothing can be compared.
    """
    remedy = (
        "if it is damaged, remove it, and say what was spent besides with `siloweave party account "
        "--spent-since EPSILON`"
    )
    return read_state(
        _record_file(key),
        AccountRecord,
        "what this machine knows of a party's account",
        remedy,
    )


def read_state(
    file: Path, kind: type[_Record], description: str, remedy: str
) -> _Record | None:
    """Read a record of the state folder; None where there is no such file.

    Args:
        file: Of the record.
        kind: Of the record.
        description: The record, in words.
        remedy: What to do where it is damaged.

    Raises:
        LedgerError: It cannot be read, so that nothing can be compared.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, *_UNREADABLE) as error:
        # Not as good as none: without a record, an account may be a new one.
        why = getattr(error, "strerror", None) or error
        raise LedgerError(
            f"{file}: {description} cannot be read ({why}). Nothing was released. "
            f"See that this user may read it; {remedy}"
        ) from error


def _write_record(account: Account) -> None:
    """Write down what this machine knows of an account; LedgerError where that is not possible."""
    file = _record_file(account.key)
    total = account.total
    record = AccountRecord(
        folder=str(account.folder.resolve()),
        lines=account.lines,
        head=account.head,
        epsilon=_in_file(total.epsilon),
        delta=total.delta,
    )
    try:
        folder_for_its_owner(file.parent)
        write_whole(file, msgspec.json.encode(record))
    except OSError as error:
        raise LedgerError(
            f"{file}: what this machine knows of a party's account cannot be written "
            f"({error.strerror}). Nothing was released. Make room or make the folder writable, or "
            f"name another in {STATE_FOLDER}; then start again"
        ) from error


def _check_homes(folder: Path, key: bytes, record: AccountRecord | None) -> None:
    """Refuse a second folder with the account of one key, while the first is still there."""
    if record is None or Path(record.folder) == folder.resolve():
        return
    elsewhere = Path(record.folder) / ACCOUNT_FILE
    try:
        with elsewhere.open("rb") as file:
            header = msgspec.json.decode(file.readline(), type=AccountHeader)
    except (OSError, *_UNREADABLE):
        # It was moved from there.
        return
    if header.key == key:
        raise LedgerError(
            f"{folder}: is a second home of one party: {record.folder} has the account of the same "
            f"key, {fingerprint(key)}, and neither would see what the other spends. Nothing was "
            "released. Use one folder for all studies of a party, and remove the other"
        )


def _check_record(account: Account, record: AccountRecord | None) -> None:
    """Refuse an account that is older than what this machine knows, or that it does not know."""
    _check_homes(account.folder, account.key, record)
    file = account.folder / ACCOUNT_FILE
    if record is None:
        # An account without entries may be a new one, which no record is of.
        if account.entries:
            raise LedgerError(
                f"{file}: this machine has no record of it, so it may be an old copy: what was "
                f"spent since is unknown. {_decide(account.folder)}"
            )
        return
    # An account with more lines is right: a process that was killed wrote a line, and no record.
    if not account.has_at(record.lines, record.head):
        difference = f"its line {record.lines} is another than this machine knows"
        if account.lines < record.lines:
            lines = count_of(account.lines, "line", "lines")
            difference = f"it has {lines}, and this machine knows of {record.lines}"
        raise LedgerError(
            f"{file}: is from a backup: {difference}. What was spent since is unknown. "
            f"{_decide(account.folder)}"
        )


# Reading and writing


def require_file(folder: Path) -> Path:
    """Return the account's file beside a party's key; LedgerError if it is missing."""
    file = folder / ACCOUNT_FILE
    if not file.is_file():
        raise LedgerError(
            f"{file}: the party's account is gone, or its key is older than accounts are, so what "
            f"it has spent is not known. {_decide(folder)}. Or put back its last backup with "
            "`--restore FILE`"
        )
    return file


def _follows(lines: list[bytes], line: bytes) -> bool:
    """Return whether a line without its newline is whole, for a write that was cut short."""
    kind = AccountEntry if lines else AccountHeader
    try:
        msgspec.json.decode(line, type=kind)
    except _UNREADABLE:
        return False
    return True


def account_lines(folder: Path, key: bytes) -> Account:
    """Read the account of a party's folder; LedgerError where it is missing or damaged."""
    lines = read_lines(require_file(folder), follows=_follows).lines
    return _account_of(lines, folder, key, _account_in(folder))


def _account_of(
    lines: Sequence[bytes], folder: Path, key: bytes, source: _Source
) -> Account:
    """Return the account that a file's lines are; LedgerError for an empty file."""
    if not lines:
        raise LedgerError(f"{source.path}: is empty. {source.remedy}")
    return Account(folder, lines, key, source)


def read_account(folder: Path, identity: Identity) -> Account:
    """Read the account of a party whose key and policy lie in `folder`.

    Raises:
        LedgerError: It is missing, was changed, is of another key, is older than this machine
            knows, is not known here, or is one of two; says what to do.
    """
    # The record first: another process may add a line in between, and writes the record last.
    record = read_record(identity.public)
    account = account_lines(folder, identity.public)
    _check_record(account, record)
    return account


class OpenAccount:
    """An account while its file is locked, so that no other process adds a line."""

    def __init__(self, account: Account, journal: Journal, identity: Identity) -> None:
        self.account = account
        self._journal = journal
        self._identity = identity

    def append(
        self,
        kind: Literal["study", "more", "stated"],
        cost: Charged,
        *,
        study: str = "",
        ledger: str = "",
        coordinator: bytes = b"",
        parties: Mapping[str, bytes] | None = None,
    ) -> None:
        """Add a line, force it to disk, and note it in the record.

        Raises:
            LedgerError: The disk is full, or cannot be written; no part of the line is left.
        """
        entry = AccountEntry(
            index=len(self.account.entries),
            time=_now(),
            kind=kind,
            study=study,
            ledger=ledger,
            coordinator=coordinator,
            parties=dict(parties or {}),
            epsilon=_in_file(cost.epsilon),
            delta=cost.delta,
            previous=self.account.head,
        )
        line = _signed_line(entry, self._identity)
        # The record last: one that is newer than the file would refuse it as an old copy.
        self._journal.append(line)
        signed_entry = msgspec.json.decode(line, type=AccountEntry)
        self.account._add(signed_entry, line)
        _write_record(self.account)

    def require(self, ledger: str, cost: Charged, **facts: object) -> None:
        """Enter what a study with this ledger may cost, so far as it was not entered before."""
        charged = self.account.charged(ledger)
        # Nothing is more than infinite, and infinity less infinity is no number.
        more_epsilon = 0.0
        if not isinf(charged.epsilon):
            more_epsilon = max(0.0, cost.epsilon - charged.epsilon)
        more_delta = max(0.0, cost.delta - charged.delta)

        is_known = self.account.knows(ledger)
        # A study that costs nothing is entered all the same, once.
        if is_known and more_epsilon == 0 and more_delta == 0:
            return
        kind: Literal["study", "more"] = "more" if is_known else "study"
        more = Charged(more_epsilon, more_delta)
        self.append(kind, more, ledger=ledger, **facts)  # type: ignore[arg-type]


@contextmanager
def open_account(
    folder: Path, identity: Identity, *, compared: bool = True
) -> Iterator[OpenAccount]:
    """Lock a party's account for as long as the block runs; errors are those of `read_account`.

    With `compared=False` the record of this machine is not asked, but for a second home: its owner
    is deciding just that.
    """
    record = read_record(identity.public)
    journal = Journal(require_file(folder), wait_s=_WAIT_S)
    try:
        lines = journal.recover(follows=_follows).lines
        account = _account_of(lines, folder, identity.public, _account_in(folder))
        if compared:
            _check_record(account, record)
        else:
            _check_homes(folder, identity.public, record)
        yield OpenAccount(account, journal, identity)
    finally:
        journal.close()


def create_account(folder: Path, identity: Identity) -> Path:
    """Begin the account of a party's new key.

    Raises:
        LedgerError: There is an account, or it cannot be written.
    """
    file = folder / ACCOUNT_FILE
    header = AccountHeader(_VERSION, _now(), identity.public)
    line = _signed_line(header, identity)
    temporary = folder / f".{ACCOUNT_FILE}.{os.getpid()}{NEW}"
    try:
        write_whole(temporary, line + b"\n")
        # Unlike a renaming, a link replaces nothing.
        os.link(temporary, file)
        sync_folder(folder)
    except FileExistsError as error:
        raise LedgerError(f"{file}: is there already; nothing was changed") from error
    except OSError as error:
        raise LedgerError(
            f"{file}: cannot be written ({error.strerror}). Make room, or make the folder writable"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    _write_record(Account(folder, [line], identity.public))
    return file


def load_or_create_home(folder: Path) -> Identity:
    """Return the key in a party's folder; make it with its account if it is missing.

    Raises:
        InputError: The key cannot be read or written.
        LedgerError: There is an account without its key, whose past a new key would forget.
    """
    if (folder / KEY_FILE).exists():
        return Identity.load(folder / KEY_FILE)
    file = folder / ACCOUNT_FILE
    if file.exists():
        raise LedgerError(
            f"{file}: is a party's account, and its {KEY_FILE} is gone. With a new key, what was "
            f"spent would be forgotten. Put {KEY_FILE} back from a backup. If it is lost, move the "
            "account to another place, make the key, and state what the account holds with "
            "`siloweave party account --spent-since EPSILON --delta DELTA`"
        )
    identity = Identity.load_or_create(folder / KEY_FILE)
    create_account(folder, identity)
    return identity


# What an owner decides


def back_up(folder: Path, identity: Identity, file: Path) -> None:
    """Write a copy of an account.

    Raises:
        InputError: `file` is anything but a new file or an older copy of the account, or cannot be
            written.
        LedgerError: The account is missing or damaged.
    """
    account_file = require_file(folder)
    # A damaged one is no backup.
    account_lines(folder, identity.public)
    if file.is_dir():
        raise InputError(f"--backup {file}: is a folder; name a file in it")
    if file.exists() and file.samefile(account_file):
        raise InputError(
            f"--backup {file}: is the account itself. Name another file, on another disk if there "
            "is one"
        )
    data = account_file.read_bytes()
    # Nor may it replace a newer one, or that of another party.
    if file.exists() and not data.startswith(file.read_bytes()):
        raise InputError(
            f"--backup {file}: is there, and is no older copy of this account. Give another name"
        )
    try:
        write_whole(file, data)
    except OSError as error:
        raise InputError(
            f"--backup {file}: cannot be written ({error.strerror})"
        ) from error


def restore(folder: Path, identity: Identity, file: Path) -> None:
    """Put a copy of an account back, where none or a shorter one is.

    Whether it can be used is decided as ever: where this machine knows of later lines, or of none,
    its owner says what was spent since.

    Raises:
        InputError: There is no such file.
        LedgerError: It is no account of this key, or what is there is not its beginning.
    """
    if not file.is_file():
        raise InputError(f"--restore {file}: there is no such file")
    # A backup that is damaged, or another party's, replaces nothing.
    lines = read_lines(file, follows=_follows).lines
    _account_of(lines, folder, identity.public, _backup_at(file))
    backup = file.read_bytes()
    account_file = folder / ACCOUNT_FILE
    if account_file.exists() and not backup.startswith(account_file.read_bytes()):
        raise LedgerError(
            f"{account_file}: is not the beginning of {file}: it is newer, or has other lines. "
            "Nothing was changed. If it is damaged, move it away first"
        )
    try:
        write_whole(account_file, backup)
    except OSError as error:
        raise LedgerError(
            f"{account_file}: cannot be written ({error.strerror})"
        ) from error


def state_spent(folder: Path, identity: Identity, epsilon: float, delta: float) -> None:
    """Enter what the owner says was spent besides, after which the account can be used.

    An account that is missing is begun. Epsilon may be infinite.

    Raises:
        InputError: A number is out of bounds.
        LedgerError: There is a second home of this party, or the account is damaged.
    """
    if epsilon != inf:
        number("--spent-since", epsilon, 0, 1e6)
    number("--delta", delta, 0, 1, "[)")
    _check_homes(folder, identity.public, read_record(identity.public))
    if not (folder / ACCOUNT_FILE).exists():
        create_account(folder, identity)
    with open_account(folder, identity, compared=False) as account:
        account.append("stated", Charged(epsilon, delta))
