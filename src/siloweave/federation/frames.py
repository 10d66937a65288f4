"""Sealed frames: what coordinator and party send each other, where someone else carries it.

A frame is a signature (Ed25519), then a `SealedFrame`: who sends to whom in which study, a nonce,
and data that only the receiver can read. The nonce is a fresh X25519 public key of the sender; with
the receiver's key of the roster it gives the key of this one frame (HKDF, ChaCha20-Poly1305). The
data is an envelope (run, step, sender, receiver, body), or the refusal that answers one.

The roster says which keys belong to whom. The coordinator signs it, and a party accepts it from the
one key that its owner knows to be the coordinator's. A party's key for sealing follows from its
signing key and the study's name, so there is one file to store and to protect.

A step that is asked again is a new frame, with a new nonce, and is answered with the stored bytes,
see federation/site.py. A frame that comes again is refused: a party remembers the nonces of what it
answered, also after a restart, and an answer names its question's nonce.

**Guarantee**: whoever carries frames sees study, sender, receiver, size and time, and nothing else;
a frame that was changed, comes again, or is of another study or sender is refused by its receiver
(EUF-CMA of Ed25519; Diffie-Hellman over X25519; ChaCha20-Poly1305). Whoever has a receiver's
signing key can read what was sent to it in the past, too. Assumed: the coordinator's public key
reached every party unaltered. Says nothing about what the coordinator learns: that is the ledger's.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import msgspec

from siloweave.errors import RosterError, SiloweaveError, StudyError, WireError
from siloweave.federation import masking, messages
from siloweave.federation.exchanges import (
    ANSWER,
    LAST,
    PARTING,
    REFUSAL,
    Exchange,
    Nonces,
)
from siloweave.federation.messages import MAX_BYTES, Envelope, Refusal
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import Identity, fingerprint, verify
from siloweave.progress import Stopwatch

FRAME = b"\1"
"""Kind of what is sealed: an envelope."""
REFUSED = b"\2"
"""Kind of what is sealed: a `messages.Refusal`."""
BEGINNING = b"\3"
"""Kind of what is sealed: facts of a stage and its first envelope."""

_SIGNATURE = 64  # bytes of a signature, before the rest of a frame

# Purposes of an end's signatures: one of them never passes for another.
_PURPOSE = b"siloweave sealed frame"
_ROSTER = b"siloweave study roster"
_SEALING = b"siloweave sealing secret"  # a signature for this purpose is secret
_ROSTER_BYTES = 2**20
_NAMED = 16  # bytes of a roster's digest that follow from the study's name alone
_OVER = (
    "party %r has answered the study to its end: %d questions, %.2f s of its own computing and "
    "%.2f s of sealing, opening and signing. It ends once the coordinator says that it has its "
    "result; until then it may be asked again"
)
_log = logging.getLogger("siloweave")

ROSTER_FILE = "roster.json"
"""What a file with a study's roster is called."""


class PublicKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public keys of one end, 32 bytes each: Ed25519 to sign with, X25519 to seal to."""

    signing: bytes
    sealing: bytes


class Roster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ends of a study, and their public keys.

    Attributes:
        study: Name of the study.
        coordinator: Name of the coordinator, as envelopes have it.
        keys: Of the coordinator and of every party, in the study's order of parties.
        keys_made_here: Parties whose private keys the coordinator made: it can sign as they do,
            read what is sealed to them, and take off their masks.
        signature: The coordinator's, of all before.
    """

    study: str
    coordinator: str
    keys: dict[str, PublicKeys]
    keys_made_here: tuple[str, ...] = ()
    signature: bytes = b""

    @property
    def parties(self) -> dict[str, bytes]:
        """The parties' public keys for signatures, by name, as `Terms` and receipts take them."""
        return {
            name: keys.signing
            for name, keys in self.keys.items()
            if name != self.coordinator
        }

    @property
    def digest(self) -> bytes:
        """The digest by which frames name the study: that of its name, then that of the roster."""
        # In two parts, so that a party can tell another roster of its study from another study.
        name_digest = blake2b(
            self.study.encode(), digest_size=_NAMED, person=b"siloweave study"
        ).digest()
        roster_digest = blake2b(msgspec.msgpack.encode(self), digest_size=32).digest()
        return name_digest + roster_digest

    def unsigned(self) -> bytes:
        """Return the bytes that the roster's signature signs."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b""))

    def store(self, path: Path) -> None:
        """Write the roster as JSON, whole or not at all."""
        write_whole(path, msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def keys_for(study: str, identity: Identity) -> PublicKeys:
    """Return the public keys of an end in a study.

    Example:
        >>> clinic = Identity.seeded(b"only for an example")
        >>> keys_for("flu", clinic) == keys_for("flu", clinic)
        True
        >>> keys_for("flu", clinic).sealing == keys_for("asthma", clinic).sealing
        False
    """
    return PublicKeys(identity.public, masking.public_key(_secret(study, identity)))


def _secret(study: str, identity: Identity) -> bytes:
    """Compute an end's X25519 secret in a study, which only the owner of its identity can."""
    # Ed25519 signs without randomness (RFC 8032), so that the same secret comes out each time.
    signature = identity.sign(_SEALING, study.encode())
    return blake2b(signature, digest_size=32, person=b"siloweave seal").digest()


def signed_roster(
    study: str,
    identity: Identity,
    parties: Mapping[str, PublicKeys],
    name: str = "coordinator",
    keys_made_here: Sequence[str] = (),
) -> Roster:
    """Make a roster, signed by the coordinator of this identity and name.

    `keys_made_here` are the parties whose private keys the coordinator made.

    Raises:
        RosterError: There is no party, a party has the coordinator's name, two ends have one key,
            or a key is malformed.
    """
    if not parties or name in parties:
        raise RosterError(
            f"parties={list(parties)} must name one party or more, and not {name!r}, which is "
            "the coordinator's name"
        )
    keys = {name: keys_for(study, identity), **parties}
    roster = Roster(study, name, keys, tuple(keys_made_here))
    _check_keys(roster)
    signature = identity.sign(_ROSTER, roster.unsigned())
    return msgspec.structs.replace(roster, signature=signature)


def _check_keys(roster: Roster) -> None:
    """Raise RosterError for a malformed key, or one that two ends have."""
    owners: dict[bytes, str] = {}
    for name, keys in roster.keys.items():
        for key in (keys.signing, keys.sealing):
            if len(key) != masking.KEY:
                raise RosterError(
                    f"{name!r}: a public key has {len(key)} bytes and must have 32"
                )
            # Whoever is two parties would count twice among those that hide a sum.
            if key in owners:
                raise RosterError(
                    f"{owners[key]!r} and {name!r} have one key, {fingerprint(key)}; each needs "
                    "a key of its own"
                )
            owners[key] = name


def read_roster(path: Path, coordinator: bytes) -> Roster:
    """Read a roster from a file, if the coordinator of this public key signed it.

    Raises:
        RosterError: There is no such file, or it is no roster of this coordinator's.
    """
    try:
        # One byte more than it may have, and no more: the file came from elsewhere.
        with path.open("rb") as file:
            text = file.read(_ROSTER_BYTES + 1)
        if len(text) > _ROSTER_BYTES:
            raise RosterError(f"{path}: a roster has at most {_ROSTER_BYTES:,} bytes")
        roster = msgspec.json.decode(text, type=Roster)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", error)
        raise RosterError(
            f"{path}: is no roster ({why}); ask the coordinator for it"
        ) from error

    # The signature alone would let whoever sent the file sign with a key of its own: the key is
    # the one that the party's owner knows, and it must be the roster's coordinator's, too.
    keys = roster.keys.get(roster.coordinator)
    is_signed = (
        keys is not None
        and keys.signing == coordinator
        and verify(coordinator, _ROSTER, roster.unsigned(), roster.signature)
    )
    if not is_signed:
        raise RosterError(
            f"{path}: was not signed by the coordinator's key {fingerprint(coordinator)}. Ask the "
            "coordinator which key it has, by telephone, and for the roster again"
        )
    _check_keys(roster)
    return roster


class SealedFrame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a frame behind its signature.

    Attributes:
        study: Digest of the roster.
        sender, to: Names in the roster.
        nonce: The sender's public key for this frame alone.
        answers: Nonce of the question; empty for a question.
        data: What is sealed.
    """

    study: bytes
    sender: str
    to: str
    nonce: bytes
    answers: bytes
    data: bytes

    def context(self) -> bytes:
        """Return the facts, as bytes, that the encrypted data is bound to beside its key."""
        return msgspec.msgpack.encode(
            (self.study, self.sender, self.to, self.nonce, self.answers)
        )


class Beginning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first question of a stage, with the facts that begin the stage.

    Attributes:
        facts: By which the party prepares its side.
        frame: The question.
    """

    facts: bytes
    frame: bytes


class Opened(msgspec.Struct, frozen=True):
    """The contents of a frame that was opened.

    Attributes:
        kind: `FRAME` or `REFUSED`.
        data: An envelope, or a refusal.
        nonce: The frame's.
        facts: Of the stage that begins with this frame; empty for others.
    """

    kind: bytes
    data: bytes
    nonce: bytes
    facts: bytes = b""

    def envelope(self) -> bytes:
        """Return an answer's bytes; a refusal is raised as the SiloweaveError that it names."""
        if self.kind == REFUSED:
            raise messages.decode(self.data, Refusal).error()
        return self.data


_MIXED_UP = {
    "study": "it is of another study (a spool folder carries one alone) or of another roster",
    "sender": "it comes from another sender",
    "to": "it is meant for someone else",
    "answers": "it answers another question, or comes again",
}


class Seals:
    """One end of a study, which seals its frames and opens those that come.

    Args:
        name: Of this end, in the roster.
        identity: Its signing key.
        roster: As `read_roster` gives it.
        nonces: Of the questions that were answered; in memory if None.

    Attributes:
        sealed, opened: Bytes of questions to other ends, and of their answers, by name.
        again: At a coordinator: what to see to where a party does not answer, and to do then.
        refused: By what this end refused the study, once an answer is that: nothing else can
            follow, so it ends when the answer was sent, and raises this.
        has_ended: Whether the coordinator said that it has its result; the party then ends.
        sealing: At a coordinator: of the seconds in which it seals, opens and signs.

    Raises:
        RosterError: The roster names this end by other keys, or not at all.

    Example:
        >>> clinic, office = Identity.create(), Identity.create()
        >>> roster = signed_roster("flu", office, {"clinic": keys_for("flu", clinic)})
        >>> sender, receiver = Seals("coordinator", office, roster), Seals("clinic", clinic, roster)
        >>> question = Envelope("run", 0, "coordinator", "clinic", b"...")
        >>> frame = sender.seal("clinic", FRAME, messages.encode(question))
        >>> with receiver.answered(frame, lambda opened: opened.data):
        ...     pass  # here its answer is sent
        >>> receiver.open(frame, "coordinator")
        Traceback (most recent call last):
        siloweave.errors.WireError: 'clinic' has answered this frame before: it comes again; ...
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        roster: Roster,
        nonces: Nonces | None = None,
    ) -> None:
        self.name = name
        self.roster = roster
        self.sealed = Counter[str]()
        self.opened = Counter[str]()
        key = fingerprint(identity.public)
        self.again = (
            f"that the key in its coordinator.pub is {key}, as `siloweave party plan` prints it "
            "there. Then start again: the study continues where it was"
        )
        self.refused: StudyError | None = None
        self.has_ended = False
        self.sealing = Stopwatch()
        self._kind = ANSWER
        self._outdated = False  # whether `refused` was for a roster
        self._identity = identity
        self._nonces = nonces or Nonces()
        # Found out here, or no frame would open at either end, and neither could say why.
        if roster.keys.get(name) != keys_for(roster.study, identity):
            raise RosterError(
                f"{name!r} has the key {key}, and the roster of study "
                f"{roster.study!r} does not know it so; ask the coordinator for a new roster"
            )
        self._study = roster.digest
        self._own_secret = _secret(roster.study, identity)

    def mark(self, frame: bytes) -> str:
        """Return 20 digits by which this end, and nobody else, recognises a frame."""
        digest = blake2b(
            frame, key=self._own_secret, digest_size=10, person=b"siloweave mark"
        )
        return digest.hexdigest()

    def seal(
        self,
        to: str,
        kind: bytes,
        data: bytes,
        answers: bytes = b"",
        study: bytes = b"",
    ) -> bytes:
        """Seal data to another end; `answers` is the nonce of the question.

        `study` is the digest of the receiver's roster, where that is another one. WireError if the
        frame would be over `MAX_BYTES`, or `to` is unknown.
        """
        keys = self.roster.keys.get(to)
        if keys is None:
            raise WireError(
                f"{to!r} is not in the roster, so nothing can be sealed to it"
            )

        # A secret of this frame alone, which nobody has after it: its public key is the nonce.
        secret = masking.new_secret()
        nonce = masking.public_key(secret)
        frame = SealedFrame(study or self._study, self.name, to, nonce, answers, b"")
        shared = masking.agree_with(secret, {to: keys.sealing})[to]
        ciphertext = masking.sealed(kind + data, shared, frame.context())
        body = messages.encode(msgspec.structs.replace(frame, data=ciphertext))
        if len(body) + _SIGNATURE > MAX_BYTES:
            raise WireError(
                f"a sealed frame of {len(body):,} bytes exceeds {MAX_BYTES:,}"
            )
        # Signed last, over the ciphertext: who carries frames cannot put its own signature on one.
        return self._identity.sign(_PURPOSE, _digest(body)) + body

    def checked(
        self,
        frame: bytes,
        sender: str,
        to: str,
        answers: bytes = b"",
        *,
        any_roster: bool = False,
    ) -> SealedFrame:
        """Check, without opening it, that `sender` sealed a frame to `to` as the answer to a nonce.

        With `any_roster` its sender may have another roster of this study.

        Raises:
            WireError: as of `open`.
        """
        if len(frame) > MAX_BYTES:
            raise WireError(
                f"a frame of {len(frame):,} bytes exceeds {MAX_BYTES:,}; refused unread"
            )
        signature = frame[:_SIGNATURE]
        body = frame[_SIGNATURE:]
        sealed = messages.decode(body, SealedFrame)

        # Fields first: they cost nothing, and most frames that are wrong are of another question.
        study = self._study
        if any_roster:
            # The study's name must still agree; the rest of the digest may be any roster's.
            study = self._study[:_NAMED] + sealed.study[_NAMED:]
        expected = {"study": study, "sender": sender, "to": to, "answers": answers}
        for field, problem in _MIXED_UP.items():
            if getattr(sealed, field) != expected[field]:
                raise WireError(
                    f"a frame came to {self.name!r}, and {problem}; it was discarded"
                )

        # Nothing is decrypted before the signature is verified: a stranger would else learn from
        # what this end does with its data.
        keys = self.roster.keys.get(sender)
        with self.sealing:
            is_signed = keys is not None and verify(
                keys.signing, _PURPOSE, _digest(body), signature
            )
        if not is_signed:
            raise WireError(
                f"a frame came to {self.name!r} that {sender!r} did not sign; it was changed on "
                f"its way, or made with another key than the roster has of {sender!r}, and was "
                "discarded"
            )
        # Last, since only a signed nonce says anything: a true frame that comes again.
        if sealed.nonce in self._nonces:
            raise WireError(
                f"{self.name!r} has answered this frame before: it comes again; it was discarded"
            )
        return sealed

    def open(self, frame: bytes, sender: str, answers: bytes = b"") -> Opened:
        """Open a frame that `sender` sealed to this end as the answer to the nonce `answers`.

        Raises:
            WireError: The frame is too long, malformed or changed, of another study, sender or
                question, for someone else, or was answered before.
        """
        with self.sealing:
            opened = self._opened(self.checked(frame, sender, self.name, answers))
        self.opened[sender] += len(frame)
        return opened

    def _unsealed(self, sealed: SealedFrame) -> bytes:
        """Decrypt a frame's data with this end's secret and the sender's key for this frame."""
        secrets = masking.agree_with(self._own_secret, {sealed.sender: sealed.nonce})
        return masking.unsealed(sealed.data, secrets[sealed.sender], sealed.context())

    def _opened(self, sealed: SealedFrame) -> Opened:
        """Open a checked frame; WireError if its contents do not fit its outside."""
        data = self._unsealed(sealed)
        sender = sealed.sender
        is_answer = bool(sealed.answers)
        opened = Opened(data[:1], data[1:], sealed.nonce)
        if opened.kind == BEGINNING and not is_answer:
            first = messages.decode(opened.data, Beginning)
            opened = Opened(FRAME, first.frame, sealed.nonce, first.facts)

        if opened.kind == FRAME:
            # An end that signs as itself could else put another's message inside.
            envelope = messages.decode(opened.data, Envelope)
            if (envelope.sender, envelope.to) != (sender, self.name):
                raise WireError(
                    f"{sender!r} sealed a message from {envelope.sender!r} to {envelope.to!r} for "
                    f"{self.name!r}; it was discarded. Find out which software {sender!r} runs"
                )
        elif opened.kind != REFUSED or not is_answer:
            # A refusal answers a question, and is none itself.
            raise WireError(
                f"{sender!r} sealed something that is no message; it was discarded"
            )
        return opened

    def ask(self, to: str, frame: bytes, facts: bytes = b"") -> bytes:
        """Seal a question: an envelope, with the facts of a stage if it is the stage's first."""
        kind = FRAME
        data = frame
        if facts:
            kind = BEGINNING
            data = messages.encode(Beginning(facts, frame))
        with self.sealing:
            sealed = self.seal(to, kind, data)
        self.sealed[to] += len(sealed)
        return sealed

    def end(self) -> None:
        """Mark the answer being made as the last one of the study."""
        self._kind = LAST

    def part(self) -> None:
        """Mark the question in hand as the one that says that the coordinator has its result."""
        self._kind = PARTING
        self.has_ended = True

    @contextmanager
    def answered(
        self, frame: bytes, reply: Callable[[Opened], bytes]
    ) -> Iterator[bytes]:
        """Yield the sealed answer to a coordinator's sealed question, or the refusal of `reply`.

        It counts as answered where the block ends without an error: by then the answer must be
        stored, or sent. It is refused without `reply` where the coordinator has another roster of
        the study: in an answer that it can trust if that has this party's key. WireError as of
        `open`.
        """
        began = time.perf_counter()
        to = self.roster.coordinator
        self._kind = ANSWER
        computing = Stopwatch()
        sealed = self.checked(frame, to, self.name, any_roster=True)
        # Under another roster keys may differ, so that nothing of the question is looked at.
        question = self._opened(sealed) if sealed.study == self._study else None
        if question is not None and self._outdated:  # that was a question of long ago
            self.refused = None
            self._outdated = False
        try:
            if question is None:
                raise self._other_roster(sealed)
            with computing:
                replied = reply(question)
            answer = self.seal(to, FRAME, replied, sealed.nonce)
        except SiloweaveError as error:
            self._kind = REFUSAL
            if isinstance(error, StudyError):
                self.refused = error
            refusal = messages.encode(Refusal(type(error).__name__, str(error)))
            answer = self.seal(to, REFUSED, refusal, sealed.nonce, sealed.study)
        sealing = time.perf_counter() - began - computing.seconds
        yield answer

        # Only now, and not where the block raised: a question whose answer was neither stored nor
        # sent must be answered when it comes again.
        exchange = Exchange(
            nonce=sealed.nonce,
            received=len(frame),
            sent=len(answer),
            ended=time.time(),
            computing=computing.seconds,
            sealing=sealing,
            kind=self._kind,
        )
        self._nonces.add(exchange)
        if self._kind == LAST:
            exchanges = self._nonces.made
            computing_seconds = sum(exchange.computing for exchange in exchanges)
            sealing_seconds = sum(exchange.sealing for exchange in exchanges)
            _log.warning(
                _OVER, self.name, len(exchanges), computing_seconds, sealing_seconds
            )

    def _other_roster(self, sealed: SealedFrame) -> StudyError:
        """Return the error for a question whose sender has another roster."""
        self._outdated = True
        own_roster = self._study[_NAMED:].hex()[:16]
        other_roster = sealed.study[_NAMED:].hex()[:16]
        try:
            # What was sealed to this party's key opens, whichever roster it is bound to.
            self._unsealed(sealed)
        except WireError:
            return StudyError(
                f"party {self.name!r} has the key {fingerprint(self._identity.public)}, and the "
                f"coordinator's roster {other_roster} has another for it, so that neither end "
                "trusts the other. Put the party's earlier key back, or let the coordinator "
                "provision with this one and send its roster.json again"
            )
        return StudyError(
            f"party {self.name!r} has another roster than the coordinator: {own_roster}, and there "
            f"{other_roster}. Send it the coordinator's roster.json again, then start {self.name} "
            "and the coordinator again"
        )


def _digest(body: bytes) -> bytes:
    """Return the digest that is signed in place of a frame of any length."""
    return blake2b(body).digest()
