"""The ledger: an append-only, signed and hash-chained record of everything a party released.

One JSON object per line. The first line names the owner and its public key; every later line is one
:class:`Entry`, which contains the hash of the line before it. Every line is signed with the owner's
key, and every signature covers all lines before it as well. The key is the party's
:class:`Identity` and lies in a file of its own; it vouches for mask keys too. Signatures are
Ed25519 (Bernstein, Duif, Lange, Schwabe & Yang 2012) from the ``cryptography`` package, and each
covers a purpose as well as a message, so that one for one purpose is never valid for another.

What is detected, and from what:

* From the file alone: a line that was edited, inserted, removed from the middle, moved, or taken
  from another ledger, also where every hash after it was computed anew. :class:`LedgerError` names
  the line.
* From the file and the owner's public key (:meth:`Ledger.read` takes it): also a file that was
  written anew and signed with another key. Opening with :class:`Ledger` makes this check.
* From the file and a hash that a receiver kept, of an entry or of the last line: also an end that
  was cut off, an old copy that was put back, and a file that the owner wrote anew with its own key.
  :meth:`Ledger.verify` takes hashes of entries. A hash covers what stands up to it, and nothing
  after it.

What is not detected: whoever has the private key can rewrite everything of which no receiver kept a
hash, and whole lines can be removed from the end back to the last hash that was kept. Whoever knows
neither key nor hash cannot distinguish a file from another one that was written and signed anew. A
file that is gone is missed only by those who know that it was there.

Order of a release: :meth:`Ledger.charge` (checks the budget, appends, forces to disk), then draw
noise, then persist the reply, then send. A retry charges the same ``(run, step)`` again and gets
the entry that is there.

**Guarantee**: without the private key nobody can make a signature that :func:`verify` accepts under
the public key (EUF-CMA of Ed25519). Whoever can read the key file can sign as the party. A
signature says nothing about the time when it was made, nor about what else was signed.
"""

import hashlib
import math
import os
import stat
import threading
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Self, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from siloweave.errors import BudgetError, InputError, LedgerError
from siloweave.privacy import journal
from siloweave.privacy.accountants import Tally
from siloweave.privacy.budget import Budget, rho_for
from siloweave.privacy.events import UNREADABLE, Event, known

KEY_FILE = "party.key"
"""What the file with a party's private key is called."""
LEDGER_FILE = "ledger.jsonl"
"""What a party's ledger is called."""
# Version of the format that this file writes and reads.
VERSION = 2
# The version before, whose lines carried no signatures.
_UNSIGNED = 1
# What signatures of lines are for; `_bound` puts it before every message.
_PURPOSE = b"siloweave ledger line"
_FORGED = (
    "its signature is not of the key in line 1. It was edited by someone who does not have the "
    "owner's key. Put back the file from the last backup."
)


class Identity:
    """A party's private key, which never leaves the party.

    Args:
        key: The private key; see `create` and `load_or_create`.

    Example:
        >>> clinic = Identity.create()
        >>> signature = clinic.sign(b"siloweave ledger line", b"...")
        >>> verify(clinic.public, b"siloweave ledger line", b"...", signature)
        True
        >>> verify(clinic.public, b"siloweave mask key", b"...", signature)
        False
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()
        """The public key, 32 bytes."""

    def __repr__(self) -> str:
        return f"Identity(public={spelled_key(self.public)})"

    @classmethod
    def create(cls) -> Self:
        """Make a new key from the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def seeded(cls, seed: bytes) -> Self:
        """Make a key that anyone who knows the seed can make, for tests with seeded noise alone."""
        private_bytes = hashlib.sha256(seed).digest()
        return cls(Ed25519PrivateKey.from_private_bytes(private_bytes))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a key from a file.

        Raises:
            InputError: The file is missing, is damaged, or can be read by other users.
        """
        place = Path(path)
        try:
            with place.open("rb") as file:
                # The mode of the file that is open, whatever has its name by then.
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                text = file.read()
        except OSError as error:
            raise InputError(
                f"{place}: the party's key cannot be read ({error.strerror}). Put the file back "
                "from a backup."
            ) from error
        if os.name == "posix" and mode & 0o077:
            raise InputError(
                f"{place}: other users may read the party's key (mode {mode:04o}, "
                f"must be 0600). If nobody else has read it, run: chmod 600 {quote(str(place))}"
            )
        try:
            key = load_pem_private_key(text, password=None)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{place}: holds no private key in PEM. Put the file back from a backup."
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(
                f"{place}: holds a {type(key).__name__}; a party's key must be Ed25519. Put the "
                "file back from a backup."
            )
        return cls(key)

    @classmethod
    def load_or_create(cls, path: str | os.PathLike[str]) -> Self:
        """Read the key from a file; a missing file is made first, with a new key and mode 0600.

        Where two processes make the file at the same time, both get the key that is in it.
        InputError as of `load`, or if it cannot be written.
        """
        place = Path(path)
        if not place.exists():
            cls.create()._store(place)
        return cls.load(place)

    def _store(self, path: Path) -> None:
        """Write a new key to its file, unless another process has stored one there by then."""
        text = self._key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        temporary = path.with_name(
            f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.new"
        )
        try:
            journal.folder_for_its_owner(path.parent)
            journal.write_whole(temporary, text)
            # A link, and no rename, which would replace the key of a process that was first: that
            # process may have signed with it.
            with suppress(FileExistsError):
                os.link(temporary, path)
            journal.sync_folder(path.parent)
        except OSError as error:
            raise InputError(
                f"{path}: the party's key cannot be written ({error.strerror}). Make the folder "
                "writable, or use another."
            ) from error
        finally:
            with suppress(OSError):
                temporary.unlink()

    def sign(self, purpose: bytes, message: bytes) -> bytes:
        """Sign a message for one purpose, such as ``b"siloweave mask key"``, of 1 to 255 bytes.

        The 64 bytes are always the same for the same arguments; InputError for a purpose of another
        length.
        """
        return self._key.sign(_bound(purpose, message))


def verify(public: bytes, purpose: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether a signature, for this purpose, was made with the private key of `public`.

    It has 64 bytes. False also where the key or the signature is malformed; InputError for a
    purpose that `sign` refuses.
    """
    signed = _bound(purpose, message)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def spelled_key(public: bytes) -> str:
    """Return a public key as people compare it, and as JSON holds it: base64."""
    return b64encode(public).decode()


def fingerprint(public: bytes) -> str:
    """Return a digest of a public key that people can read to each other, eight groups of digits.

    A second key with the fingerprint of a given one cannot be found: it is 128 bits of BLAKE2b (RFC
    7693).

    Example:
        >>> fingerprint(bytes(32))
        '6bcc 8476 7e28 c80b 3737 2417 94f1 e0ed'
    """
    digest = hashlib.blake2b(public, digest_size=16, person=b"siloweave key")
    digits = digest.hexdigest()
    return " ".join(digits[place : place + 4] for place in range(0, len(digits), 4))


def _bound(purpose: bytes, message: bytes) -> bytes:
    """Join purpose and message into one text, which can be read back in one way only."""
    if not 1 <= len(purpose) <= 255:
        raise InputError(
            f"purpose = {purpose!r} has {len(purpose)} bytes; a signature's purpose has 1 to 255."
        )
    # Without the length, "ab" with "c" and "a" with "bc" would be the same text.
    return len(purpose).to_bytes(1, "big") + purpose + message


class _Format(msgspec.Struct, frozen=True):
    """The one field that the first line of every version of the file has."""

    siloweave_ledger: int


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a ledger; `key` is the owner's public key, which signs this line too."""

    siloweave_ledger: int
    owner: str
    created: str
    key: bytes
    signature: bytes = b""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One release that was paid for. Holds no value that came from rows.

    Args:
        index: position in the ledger, from 0.
        time: when, UTC, ISO 8601.
        run: which run.
        step: which step of the run; ``(run, step)`` is unique.
        what: what was released, in words.
        to: who received it.
        event: what it costs.
        previous: hash of the line before.
        hash: hash of this line (of all fields above).
        signature: the owner's, of the hash.
    """

    index: int
    time: str
    run: str
    step: str
    what: str
    to: str
    event: Event
    previous: str
    hash: str = ""
    signature: bytes = b""


_Signed = TypeVar("_Signed", Header, Entry)

_encoder = msgspec.json.Encoder()
_entries: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_headers: msgspec.json.Decoder[Header] = msgspec.json.Decoder(Header)


def _digest(line: bytes) -> str:
    """Return the hash of a line."""
    return hashlib.blake2b(line, digest_size=32, person=b"siloweave ledger").hexdigest()


def _seal(entry: Entry) -> Entry:
    """Add to an entry the hash of its other fields; it is not signed yet."""
    bare = msgspec.structs.replace(entry, hash="", signature=b"")
    return msgspec.structs.replace(entry, hash=_digest(_encoder.encode(bare)))


def _signed(line: Header | Entry) -> bytes:
    """Return the bytes that a line's signature signs: the hash of everything else in the line."""
    if isinstance(line, Entry):
        return line.hash.encode()
    bare = msgspec.structs.replace(line, signature=b"")
    return _digest(_encoder.encode(bare)).encode()


def _sign(line: _Signed, identity: Identity) -> tuple[_Signed, bytes]:
    """Sign a line with its owner's key; return the line, and its bytes."""
    signature = identity.sign(_PURPOSE, _signed(line))
    line = msgspec.structs.replace(line, signature=signature)
    return line, _encoder.encode(line)


def _is_signed(line: Header | Entry, key: bytes) -> bool:
    """Return whether the signature in a line was made with the private key of `key`."""
    return verify(key, _PURPOSE, _signed(line), line.signature)


def check_chain(entries: Sequence[Entry], head: str) -> None:
    """Refuse entries that are not all the lines of one ledger, up to the line of hash `head`.

    LedgerError, with its number, for a line that does not fit its hash, or what follows it.
    """
    # Every entry contains the hash of the line before it; that of the last line is `head`.
    hashes = [*(entry.previous for entry in entries[1:]), head]
    for number, (entry, line_hash) in enumerate(zip(entries, hashes, strict=False)):
        fits = entry.index == number and _seal(entry) == entry
        if not fits or _digest(_encoder.encode(entry)) != line_hash:
            raise LedgerError(
                f"entry {number} was edited, or a line after it was removed or moved"
            )


def written(header: bytes, entries: Iterable[Entry]) -> bytes:
    """Write a ledger's first line and entries as the bytes of its owner's file."""
    lines = [header, *map(_encoder.encode, entries)]
    return b"".join(line + b"\n" for line in lines)


class Ledger:
    """All that its owner has released, and the limit that the total will never pass.

    Args:
        owner: whose rows were released; a ledger of somebody else is refused.
        path: file to append to, created with mode 0600; in memory only when None.
        limit: budget that :meth:`charge` enforces; no limit when None.
        identity: the owner's key, by which every line is signed. When None: that of the file
            ``party.key`` beside `path`, which is made together with the ledger; in memory a
            fresh one.

    Raises:
        LedgerError: the file was changed, belongs to someone else, is signed with another key, or
            is open in another process.
        InputError: the key of a ledger is gone, damaged, or can be read by other users.

    Example:
        >>> from siloweave.privacy.events import Gaussian
        >>> ledger = Ledger("clinic", limit=Budget(epsilon=1.0, delta=1e-6))
        >>> event = Gaussian(sigma=20.0, sensitivity=1.0)
        >>> ledger.charge(event, run="r1", step="count", what="ages", to="coordinator").index
        0
        >>> ledger.epsilon() < 1.0
        True
    """

    def __init__(
        self,
        owner: str,
        *,
        path: str | os.PathLike[str] | None = None,
        limit: Budget | None = None,
        identity: Identity | None = None,
    ) -> None:
        if not owner:
            raise InputError(
                "Ledger: owner = '' must name whose rows the ledger is about."
            )
        self.owner = owner
        self.limit = limit
        self._file: journal.Journal | None = None
        self._start(None if path is None else Path(path))
        if self.path is None:
            self._head = _digest(self._new_header(identity or Identity.create()))
            return
        file = journal.Journal(self.path)
        try:
            self._load(file, identity)
        except BaseException:
            file.close()
            raise
        self._file = file

    def _start(self, path: Path | None) -> None:
        """Reset everything to what it is before the first line."""
        self._path = path
        self._recovered = ""
        # The first line, the hash of the last one, and the public key of both.
        self._first = b""
        self._head = ""
        self._key = b""
        # None for a ledger that is only read.
        self.identity: Identity | None = None

        self._guard = threading.Lock()
        self._list: list[Entry] = []
        self._keys: dict[tuple[str, str], Entry] = {}
        # None until the first entry whose cost is finite.
        self._tally: Tally | None = None
        # Numbers of steps like the last entry's that are known to fit, and not to fit; 0 for none.
        self._fitting = 0
        self._refused = 0

    def _new_header(self, identity: Identity) -> bytes:
        """Sign a first line with an identity, take it as the ledger's, and return it."""
        self.identity = identity
        self._key = identity.public
        header = Header(VERSION, self.owner, _now(), self._key)
        _, self._first = _sign(header, identity)
        return self._first

    def _load(self, file: journal.Journal, identity: Identity | None) -> None:
        """Read the ledger's file and check it; begin the ledger if the file is empty."""
        lines, _, self._recovered = file.recover(follows=self._follows)
        if identity is None:
            place = file.path.with_name(KEY_FILE)
            # A ledger with lines has a key already. If that is gone, a new one must not take its
            # place: the error says that it is to be put back.
            identity = Identity.load(place) if lines else Identity.load_or_create(place)
        if not lines:
            lines = [self._new_header(identity)]
            file.append(lines[0])
        self._replay(lines, file.path, identity.public)
        self.identity = identity

    def _follows(self, lines: list[bytes], line: bytes) -> bool:
        """Return whether a line is whole, unedited, and follows the lines before it."""
        assert self._path is not None
        if not lines:
            return _is_first_line(line)
        key = _read_header(lines[0], self._path).key
        try:
            entry = _entries.decode(line)
        except UNREADABLE:
            return False
        follows = entry.previous == _digest(lines[-1])
        is_unedited = _encoder.encode(_seal(entry)) == line
        return follows and is_unedited and _is_signed(entry, key)

    def _replay(self, lines: list[bytes], path: Path, key: bytes | None) -> None:
        """Check all lines one after the other, and add up their costs.

        Args:
            lines: All lines of the file, at least one.
            path: The file, for errors.
            key: The public key that has to be the owner's; any if None.

        Raises:
            LedgerError: A line does not fit, with its number.
        """
        header = _read_header(lines[0], path)
        if self.owner and header.owner != self.owner:
            raise LedgerError(
                f"{path}, line 1: this ledger belongs to {header.owner!r}, not to {self.owner!r}. "
                "Give the path of the owner's own ledger."
            )
        if key is not None and header.key != key:
            raise LedgerError(
                f"{path}, line 1: is signed with the key {fingerprint(header.key)}, and the key of "
                f"{header.owner!r} is {fingerprint(key)}. Someone else wrote the ledger anew, or "
                "the key was replaced. Put back both files from the last backup."
            )
        self.owner = header.owner
        self._key = header.key
        self._first = lines[0]
        self._head = _digest(lines[0])

        for number, line in enumerate(lines[1:], start=2):
            entry = _read_entry(line, number, path)
            if (entry.index, entry.previous) != (len(self._list), self._head):
                raise LedgerError(
                    f"{path}, line {number}: does not follow the line before it. A line was "
                    "edited, removed, moved or inserted. Put back the file from the last backup."
                )
            if (entry.run, entry.step) in self._keys:
                raise LedgerError(
                    f"{path}, line {number}: run {entry.run!r}, step {entry.step!r} is there twice."
                )
            self._append(entry, line)

        # After the chain: the last signature covers all lines only if every line has the hash of
        # the one before it.
        self._check_signatures([header, *self._list], path)

    def _check_signatures(self, lines: Sequence[Header | Entry], path: Path) -> None:
        """Refuse a chain that the key in its first line did not sign.

        The last signature covers every line before it, so one is enough; the others are there for
        when the file ends earlier. Where it does not fit, the first one that does not is named.
        """
        if _is_signed(lines[-1], self._key):
            return
        forged = next(
            number
            for number, line in enumerate(lines, start=1)
            if not _is_signed(line, self._key)
        )
        raise LedgerError(f"{path}, line {forged}: {_FORGED}")

    def _append(self, entry: Entry, line: bytes) -> None:
        """Take an entry as the last one and count its cost, once its line is written."""
        self._head = _digest(line)
        self._list.append(entry)
        self._keys[entry.run, entry.step] = entry

        # What `_steps_fit` found out holds only while steps of one kind follow each other.
        if len(self._list) < 2 or not _same_steps(entry.event, self._list[-2].event):
            self._fitting = 0
            self._refused = 0

        if self._tally is not None:
            self._tally.add(entry.event)
        elif math.isfinite(entry.event.rho):
            self._tally = Tally(self.events)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, key: bytes | None = None) -> Self:
        """Read a ledger file and check it; the ledger returned cannot be charged.

        Args:
            path: the file.
            key: the owner's public key, 32 bytes. Without it a file that was written anew and
                signed with another key passes; compare :attr:`key` with one that you know.

        Raises:
            LedgerError: the file is missing, was changed, or is signed with another key.
        """
        place = Path(path)
        # Not by `__init__`, which opens the file for writing. An owner of "" is any.
        ledger = cls.__new__(cls)
        ledger.owner = ""
        ledger.limit = None
        ledger._file = None
        ledger._start(place)
        lines, _, ledger._recovered = journal.read_lines(place, follows=ledger._follows)
        if not lines:
            raise LedgerError(f"{path}: is empty. Give the path of a ledger file.")
        ledger._replay(lines, place, key)
        return ledger

    def charge(self, event: Event, *, run: str, step: str, what: str, to: str) -> Entry:
        """Pay for a release, before its noise is drawn.

        Args:
            event: what will be done; see :mod:`siloweave.privacy.events`.
            run: which run.
            step: which step; charging the same ``(run, step)`` again returns its entry.
            what: what is released, in words, without any value.
            to: who will receive it.

        Returns:
            The entry, on disk (for a file) when this returns.

        Raises:
            BudgetError: the limit would be passed; nothing is written.
            LedgerError: the step was charged with another event or for another receiver, or the
                ledger is closed.

        **Guarantee**: whatever was released is in the ledger, even if the process is killed at any
        moment; what is in the ledger may not have been released. The total never passes ``limit``.
        """
        with self._guard:
            # A retry: it was paid for, so it is neither paid for nor drawn again.
            earlier = self._keys.get((run, step))
            if earlier is not None:
                return _same(earlier, event, to)

            has_file = self._file is not None and self._file.is_open
            is_closed = self.path is not None and not has_file
            if is_closed or self.identity is None:
                raise LedgerError(
                    f"{self.path}: the ledger is closed or read-only. Open it with Ledger()."
                )

            # Step 1 of a release: check the budget. Nothing is written for what it refuses.
            self._check_limit(event)

            # Step 2: append and force to disk. Only then does the caller draw noise, so that a
            # crash in between costs a payment for nothing, never a release that nobody paid for.
            bare = Entry(
                index=len(self._list),
                time=_now(),
                run=run,
                step=step,
                what=what,
                to=to,
                event=event,
                previous=self._head,
            )
            entry, line = _sign(_seal(bare), self.identity)
            if self._file is not None:
                self._file.append(line)

            # Counted after the write: where that fails, the entry is not in the ledger.
            self._append(entry, line)
            return entry

    def _check_limit(self, event: Event) -> None:
        """Raise BudgetError if the total with one more event would pass the limit."""
        # No bound, and no finite cost to add up so far: the total is infinite, and may be.
        is_boundless = self.limit is None or not self.limit.private
        is_infinite = not math.isfinite(known(event).rho)
        if is_boundless and is_infinite and self._tally is None:
            return

        # Added even where there is no limit: an unknown event is refused here.
        total = self._total.copy()
        total.add(event)
        if self.limit is None:
            return

        # The reading of zCDP is within the limit, and no reading is larger.
        has_rho = not total.orders and total.delta == 0
        if has_rho and total.rho <= rho_for(self.limit):
            return

        # More steps like the last ones, of which more than these were seen to fit.
        are_more = bool(self._list) and _same_steps(event, self._list[-1].event)
        if are_more and self._steps_fit(event):
            return

        # The reading itself, which takes a tenth of a second.
        after = total.epsilon(self.limit.delta)
        if after <= self.limit.epsilon:
            return
        raise BudgetError(
            f"charge: {self.owner!r} has spent epsilon = {self._total.epsilon(self.limit.delta)} "
            f"at delta = {self.limit.delta} and with {event} would have spent {after}, more than "
            f"its limit of {self.limit.epsilon}. Nothing was released. Ask for less, or let the "
            "owner raise the limit."
        )

    @property
    def _total(self) -> Tally:
        """The cost of all entries together."""
        return Tally(self.events) if self._tally is None else self._tally

    def _steps_fit(self, event: Event) -> bool:
        """Return whether more steps like the last ones, or many more, are known to fit the limit.

        A reading takes a tenth of a second, and a training in rounds pays at every message. What
        holds for many steps holds for their beginning, which is post-processing of them; so twice
        as many are tried first, and then ever fewer.
        """
        assert self.limit is not None
        needed = self._total.steps(event) + event.count
        while needed > self._fitting:
            # Twice as many at first; halfway to a number that was refused from then on.
            ahead = (needed + self._refused) // 2 if self._refused else 2 * needed
            if ahead <= needed:
                return False

            count = ahead - needed + event.count
            more_steps = msgspec.structs.replace(event, count=count)
            total = self._total.copy()
            total.add(more_steps)
            if total.epsilon(self.limit.delta) <= self.limit.epsilon:
                self._fitting = ahead
            else:
                self._refused = ahead
        return True

    @property
    def path(self) -> Path | None:
        """The ledger's file, or None for a ledger in memory."""
        return self._path

    @property
    def key(self) -> bytes:
        """The owner's public key, 32 bytes; its private key signed every line."""
        return self._key

    @property
    def header(self) -> bytes:
        """The ledger's first line."""
        return self._first

    @property
    def recovered(self) -> str:
        """The unfinished end that a crash left in the file, as opening found it; empty for none."""
        return self._recovered

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return tuple(self._list)

    @property
    def events(self) -> tuple[Event, ...]:
        """The privacy events of all entries, oldest first."""
        return tuple(entry.event for entry in self._list)

    @property
    def head(self) -> str:
        """The hash of the last line, which changes with every charge."""
        return self._head

    @property
    def rho(self) -> float:
        """The total zCDP of all entries.

        A step on a sample counts as if every row were in it. That is no overcount: the least
        zCDP of such a step is the same, since its Renyi divergences of high order are. It is the
        wrong unit for them, and what they cost is read from `epsilon`.
        """
        return self._total.rho

    def epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of all entries at ``delta`` (the limit's by default), rounded up."""
        if delta is None:
            if self.limit is None:
                raise InputError(
                    "Ledger.epsilon: delta is needed for a ledger without a limit."
                )
            delta = self.limit.delta
        return self._total.epsilon(delta)

    def verify(self, hashes: Iterable[str] = ()) -> None:
        """Check the file once more, and that entries with these ``hashes`` are still in it.

        Raises:
            LedgerError: the file was changed since, or an entry is gone.
        """
        own_hashes = [entry.hash for entry in self._list]
        if self.path is not None:
            with self._guard:
                fresh = Ledger.read(self.path, key=self.key)
            file_hashes = [entry.hash for entry in fresh.entries]
            # The file may have more entries, which were charged since this ledger was read.
            if file_hashes[: len(own_hashes)] != own_hashes:
                raise LedgerError(
                    f"{self.path}: was replaced or cut while it was open. Put back the file from "
                    "the last backup."
                )

        present = set(own_hashes)
        for entry_hash in hashes:
            if entry_hash not in present:
                raise LedgerError(
                    f"ledger of {self.owner!r}: the entry with hash {entry_hash[:16]} is gone. "
                    "The end was cut off, or an old copy was put back."
                )

    def close(self) -> None:
        """Release the file; further charges are refused."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _now() -> str:
    """Return the current time as entries have it: UTC, ISO 8601, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _same_steps(event: Event, earlier: Event) -> bool:
    """Return whether two events are steps on samples that differ at most in their number."""
    if event.step is None:
        return False
    return msgspec.structs.replace(event, count=earlier.count) == earlier


def _same(earlier: Entry, event: Event, to: str) -> Entry:
    """Return the stored entry of a step that is charged again; LedgerError if the release differs.

    Else one payment could be used for two releases.
    """
    if earlier.event == event and earlier.to == to:
        return earlier
    raise LedgerError(
        f"charge: run {earlier.run!r}, step {earlier.step!r} was charged as {earlier.event} to "
        f"{earlier.to!r}; now it asks for {event} to {to!r}. Give every release a step of its own."
    )


def _is_first_line(line: bytes) -> bool:
    """Return whether a line is a complete header, signed with the key that is in it."""
    try:
        header = _headers.decode(line)
    except UNREADABLE:
        return False
    return _is_signed(header, header.key)


def _read_header(line: bytes, path: Path) -> Header:
    """Read and check the first line; LedgerError if this version cannot read it."""
    try:
        # The version first: another one may have other fields.
        version = msgspec.json.decode(line, type=_Format).siloweave_ledger
        header = _headers.decode(line) if version == VERSION else None
    except UNREADABLE as error:
        raise LedgerError(
            f"{path}, line 1: is not the start of a ledger ({error})."
        ) from error
    if version == _UNSIGNED:
        raise LedgerError(
            f"{path}, line 1: version {version} of the format, written by siloweave 0.1.0 before "
            "ledgers were signed. Anyone could have edited it, so this version does not continue "
            "it. What it lists was released and still counts: read it with the version that wrote "
            "it, and start a new run in a folder of its own with what is left of the budget."
        )
    if header is None:
        raise LedgerError(
            f"{path}, line 1: version {version} of the format is not known; this "
            f"version of siloweave reads {VERSION}."
        )
    # Bytes that read alike but are written differently (spaces, order) have another hash.
    if _encoder.encode(header) != line or not _is_signed(header, header.key):
        raise LedgerError(f"{path}, line 1: {_FORGED}")
    return header


def _read_entry(line: bytes, number: int, path: Path) -> Entry:
    """Read a line's entry and check it against its own hash; LedgerError if it was edited."""
    try:
        entry = _entries.decode(line)
    except UNREADABLE as error:
        raise LedgerError(
            f"{path}, line {number}: is not an entry that this version knows ({error}). Read it "
            "with the version that wrote it, or put back the file from the last backup."
        ) from error
    if _encoder.encode(_seal(entry)) != line:
        raise LedgerError(
            f"{path}, line {number}: was edited; its hash does not fit. Put back the file from "
            "the last backup."
        )
    return entry
