"""A party's site: its rows, its ledger, its memory, what it knows of the study, and the ways out.

A request states whom to sum with, how many parties may collude, how long to train. The party was
given all of that once, with the study (`Terms`), and refuses a request that differs.

The order of a release is fixed here: check the budget and append to the ledger (forced to disk),
then draw noise, then persist the reply, then send. A step that is asked again gets the stored
bytes; a draw that was lost in a crash was never sent, so its entry in the ledger pays for the next
one. A step that failed after it was paid for is answered with the same refusal for ever: a new draw
would be a second release under one entry.

**Guarantee**: a masked sum is taken only over parties of the roster, whose keys for masks they
signed themselves, over no fewer of them than the study's settings make an honest coordinator ask
for, and only with as much noise left as the study promises. A coordinator can neither
replace a party's key by one of its own, nor lower the number of colluders that the noise
withstands. Assumed: the roster's own keys reached the party unaltered.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from traceback import extract_tb
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import BudgetError, LedgerError, SiloweaveError, StudyError, WireError, whole
from siloweave.federation import masking, messages
from siloweave.federation.dropouts import SEED, MaskPlan, digests_of, new_seed, pair_seed, split
from siloweave.federation.messages import (
    Array,
    Envelope,
    Masked,
    Public,
    Recovery,
    Refusal,
    Relayed,
    Released,
    Reply,
    Request,
)
from siloweave.privacy import mechanisms
from siloweave.privacy.events import Event, NonPrivate, SampledSharedGaussian, SharedGaussian
from siloweave.privacy.journal import write_whole
from siloweave.privacy.ledger import Entry, Ledger, verify
from siloweave.privacy.mechanisms import Entropy, check_width

Rows = TypeVar("Rows")
T = TypeVar("T")
Handlers = Mapping[type[Request[Any]], Callable[[Any, Any], Reply]]
"""A party's side of a method: which function answers which request."""

_log = logging.getLogger("siloweave")
_packed = msgspec.msgpack.encode

_SHOWN = 60  # characters of a value in a message
_DIGEST = 32  # bytes; a stored reply starts with the digest of the request's body,
_ENTRY = 64  # then the hash of the ledger's last entry, which must still be there to send it again
_REPLY = ".reply"  # how the names of files with replies end
_LOST = (
    "A second draw would be a second release. Put the party's store back, or agree on a new budget "
    "and folder."
)


@dataclass(frozen=True)
class Terms:
    """A study's facts, as every party of it is given them once.

    Attributes:
        roster: Public key of every party, by name, in the order of the study.
        tolerated: Parties that may pool what they know with the coordinator, and the claim still
            holds. Each party knows its own share of the noise, so at least 1 where there are two
            parties or more.
        facts: What else requests may repeat: the method's public settings, by name.
        study: Name of the whole run, in all stages of which a party has one key for masks; if
            empty, it has one in each.
        dropouts: Parties of a sum that may vanish; in a small one fewer, see dropouts.py.
        asked: How often it answers each question of a run at most, by its tag; None for no bound.
        smallest_cohort: Fewest parties of a sum, also once some have vanished from it: what an
            honest coordinator asks for at the study's settings.

    Raises:
        InputError: `tolerated` is too low, or no whole number, or so many parties of this roster
            cannot vanish.

    Example:
        >>> Terms({"north": b"1", "south": b"2"}, tolerated=0)
        Traceback (most recent call last):
        siloweave.errors.InputError: tolerated=0 must be a whole number, 1 or more
    """

    roster: Mapping[str, bytes] = field(default_factory=dict)
    tolerated: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)
    dropouts: int = 0
    study: str = ""
    asked: Mapping[str, float] | None = None
    smallest_cohort: int = 1

    def __post_init__(self) -> None:
        whole("tolerated", self.tolerated, 1 if len(self.roster) > 1 else 0)
        MaskPlan.require(len(self.roster), self.tolerated, self.dropouts)

    def plan(self, cohort: Iterable[str]) -> MaskPlan:
        """Who masks with whom in a sum over a cohort, and how many of it may vanish."""
        return MaskPlan.of(cohort, self.tolerated, self.dropouts)

    def missing(self, size: int) -> int:
        """Shares of the noise that a sum over `size` parties must do without."""
        return MaskPlan.for_size(size, self.tolerated, self.dropouts).missing

    def check_cohort(self, party: str, cohort: Mapping[str, bytes], tolerated: int) -> None:
        """Raise WireError for a sum over others, over too few, or with too little noise."""
        strangers = [name for name in cohort if name not in self.roster]
        if strangers or party not in cohort:
            raise WireError(
                f"party {party!r} was asked for a sum over {_short(list(cohort))}; the roster of "
                f"the study is {_short(list(self.roster))}. Nothing was released"
            )
        self._check_size(party, "was asked for a sum over", len(cohort), "released")
        if tolerated != (wanted := self.missing(len(cohort))):
            whom = "colluders and dropouts" if self.dropouts else "colluders"
            raise WireError(
                f"party {party!r} was asked for a sum of {len(cohort)} parties that withstands "
                f"{tolerated} {whom}; the study says {wanted}. Nothing was released"
            )

    def check_active(self, party: str, active: Sequence[str]) -> None:
        """Raise WireError where a sum would open over too few parties."""
        self._check_size(party, "was asked to open a sum over", len(active), "opened")

    def _check_size(self, party: str, what: str, size: int, done: str) -> None:
        if size < self.smallest_cohort:
            parties = "party" if size == 1 else "parties"
            raise WireError(
                f"party {party!r} {what} {size} {parties}; by the study's settings none is over "
                f"fewer than {self.smallest_cohort}. Nothing was {done}"
            )

    def require(self, party: str, **stated: Any) -> None:
        """Raise WireError for a request that states something else than the study, by name.

        Example:
            >>> Terms(facts={"rounds": 10}).require("north", rounds=500)
            Traceback (most recent call last):
            siloweave.errors.WireError: party 'north': the request says rounds = 500, and ...
        """
        for name, value in stated.items():
            known = self.facts.get(name)
            if name not in self.facts or known != value:
                raise WireError(
                    f"party {party!r}: the request says {name} = {_short(value)}, and the study "
                    f"says {_short(known)}. Nothing was released; the coordinator must run the "
                    "study that was agreed on"
                )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Store(Protocol):
    """What a site keeps between messages. Conforming: MemoryStore, FolderStore."""

    def get(self, name: str) -> bytes | None:
        """The bytes kept under `name`, or None."""

    def put(self, name: str, data: bytes) -> None:
        """Keep `data` so that it survives whatever the store is made to survive."""


class MemoryStore:
    """Keeps things while the process lives; of all replies but the last only the digest.

    An older step that is asked again is known as answered, and refused: its bytes are gone, and
    drawing again would be a second release.
    """

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}
        self._reply = ""

    def get(self, name: str) -> bytes | None:
        """The bytes kept under `name`, or None."""
        return self._kept.get(name)

    def put(self, name: str, data: bytes) -> None:
        """Keep `data`; a new reply cuts the one before down to the digest of its request."""
        if name.startswith("reply/"):
            if self._reply:
                self._kept[self._reply] = self._kept[self._reply][:_DIGEST]
            self._reply = name
        self._kept[name] = data


class FolderStore:
    """Keeps things as files in a folder, written whole and forced to disk.

    Names come from peers and never become part of a path; files are called by their digest. Each
    ends with a checksum, since a flipped bit in a masked sum would look like any other number.

    **Guarantee**: with a `secret`, of at most 64 bytes, a file that somebody else wrote is refused
    (keyed BLAKE2, RFC 7693, as a MAC). An older file under the same name passes.
    """

    def __init__(self, folder: Path, secret: bytes = b"") -> None:
        self._folder, self._secret = folder, secret
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _path(self, name: str) -> Path:
        end = _REPLY if name.startswith("reply/") else ""
        return self._folder / (blake2b(name.encode(), digest_size=20).hexdigest() + end)

    def get(self, name: str) -> bytes | None:
        """The bytes kept under `name`, or None; WireError if the file was damaged or cut."""
        path = self._path(name)
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            return None
        data = stored[:-_DIGEST]
        if len(stored) < _DIGEST or self._checksum(name, data) != stored[-_DIGEST:]:
            raise WireError(
                f"{path}: what the party kept of {name!r} is damaged or cut off, or somebody else "
                "wrote it. Nothing more was released. Put the file back from a backup, or agree on "
                "a new budget and folder."
            )
        return data

    def put(self, name: str, data: bytes) -> None:
        """Keep `data` as a file, whole or not at all."""
        write_whole(self._path(name), data + self._checksum(name, data))

    def payments(self) -> Iterator[str]:
        """Hashes of the ledger's entries without which no reply that is kept may be sent."""
        for path in (one for one in self._folder.iterdir() if one.suffix == _REPLY):
            with path.open("rb") as file:
                file.seek(_DIGEST)
                yield file.read(_ENTRY).decode("ascii", "replace").strip()

    def _checksum(self, name: str, data: bytes) -> bytes:
        text = name.encode() + b"\0" + data
        return blake2b(text, digest_size=_DIGEST, key=self._secret).digest()


class _Sum(msgspec.Struct, frozen=True):
    """What a party remembers of the last sum that it masked."""

    run: str
    step: int
    request: bytes  # digest
    cohort: dict[str, bytes]

    def bound(self, sender: str, reader: str) -> bytes:
        """What is bound to all that both received for this sum."""
        context = f"sum of step {self.step}, {self.request.hex()}"
        return "\0".join((self.run, sender, reader, context)).encode()


class _Asked(msgspec.Struct, frozen=True):
    """How often a party was asked each question of a run, by its tag; and which was the last."""

    step: int = -1
    tag: str = ""
    times: dict[str, int] = {}


class _Lists(msgspec.Struct, frozen=True):
    """Who was in the sum that a party opened last."""

    step: int
    active: bytes  # digest


class _Shares(msgspec.Struct, frozen=True):
    """Shares for one party, and who was in the sum before by what their sender was shown."""

    shares: bytes
    before: bytes


class Site(Generic[Rows]):
    """One party while a study runs.

    Args:
        name: The party's name in the roster.
        rows: Its real data. Party functions read them here; nothing else does.
        ledger: Its record of releases, with the most it will ever spend.
        entropy: Where its noise comes from, see `Entropy.at`. Never from a message.
        store: What it remembers between messages.
        digest: Of the rows and of how they are read. The store keeps it per run, and it goes
            nowhere else: a run that continues must meet what it began with.
        terms: What the party knows of the study; if None, it takes part in no sum with others.
    """

    def __init__(
        self,
        name: str,
        rows: Rows,
        *,
        ledger: Ledger,
        entropy: Entropy,
        store: Store,
        digest: Callable[[], bytes] = bytes,
        terms: Terms | None = None,
    ) -> None:
        self.name = name
        self.rows = rows
        self.ledger = ledger
        self.terms = terms or Terms({name: ledger.key})
        self._source = entropy
        self._stream: Entropy | None = entropy  # of the step that is being answered
        self._store, self._digest = store, digest
        self._seal_key = os.urandom(32)
        self._agreed: dict[tuple[str, str, bytes], bytes] = {}
        self._begun: set[str] = set()
        self._at = Envelope("", 0, "", name, b"")
        self._count = self._masks = 0
        self._charged: list[Event] = []  # by the answer that is being made
        self._paid: set[str] = set()
        self.memo: dict[Any, Any] = {}
        """Results that can be computed again from rows; never sent, lost with the process."""

    def begin(self, envelope: Envelope) -> None:
        """Start answering a step; WireError where what came shows that the coordinator lied."""
        self._at = envelope
        self._count = self._masks = 0
        self._stream = None
        if envelope.proofs:
            self._compare()

    def _compare(self) -> None:
        """Raise WireError unless the others of the sum before have received what this one did.

        They show it by proofs, see `release_masked`. Nothing is looked at twice.
        """
        stored = self._store.get(self._unproved)
        sum_ = messages.decode(stored, _Sum) if stored else None
        if sum_ is None or (sum_.run, sum_.step) == (self._at.run, self._at.step):
            return
        others = {other: key for other, key in sum_.cohort.items() if other != self.name}
        for other, secret in self.agree(others).items():
            proof = self._at.proofs.get(other, b"")
            try:
                masking.unsealed(proof, secret, sum_.bound(other, self.name))
            except WireError as error:
                raise WireError(
                    f"party {self.name!r} was not shown that {other!r} received the same in step "
                    f"{sum_.step} of run {sum_.run}, and both are in one sum. Nothing more is "
                    "released; the coordinator lied to one of them, or relayed something else"
                ) from error
        self._store.put(self._unproved, b"")

    @property
    def _unproved(self) -> str:
        return f"unproved/{self._keyed_for}"

    @property
    def entropy(self) -> Entropy:
        """The source of this step's noise, opened when something is drawn."""
        if self._stream is None:
            self._stream = self._source.at(self.context)
        return self._stream

    def store_entropy(self) -> None:
        """Draw what follows in this answer from a stream that is stored.

        An answer of several draws, each of which decides what is drawn next, is the same again
        after a crash, and so are its payments.
        """
        name = f"stream/{self.context}"
        if (drawn := self._store.get(name)) is None:
            drawn = self.entropy.bytes(32)
            self._store.put(name, drawn)
        self._stream = mechanisms.StoredEntropy(drawn, private=self._source.private)

    @property
    def run(self) -> str:
        """Run that is being answered."""
        return self._at.run

    @property
    def context(self) -> str:
        """Run and step that are being answered."""
        return f"{self._at.run}/{self._at.step}"

    @property
    def asked(self) -> bytes:
        """Digest of the request that is being answered."""
        return messages.body_digest(self._at.body)

    def require_first(self) -> None:
        """Raise WireError for a release that follows another one in its run, before it is paid for.

        Where a limit holds for what all parties release together, each may release once. A question
        that is asked again is answered from the store, and does not come here.
        """
        steps = {_step_of(one) for one in self.ledger.entries if one.run == self._at.run}
        if steps - {str(self._at.step)}:
            raise WireError(
                f"party {self.name!r}: this run has released something before, and what is asked "
                "for may only come first. Nothing was released; start a new run"
            )

    def pay(self, event: Event, what: str) -> str:
        """Charge the ledger for something that steers a later release but stays here.

        Returns the hash of the entry, after which the noise may be drawn. Nothing is charged where
        that noise cannot be drawn (InputError), or the limit does not allow it (BudgetError).
        """
        self._count += 1
        return self._charge(event, what, f"{self._at.step}.{self._count}", self._at.sender).hash

    def _charge(self, event: Event, what: str, step: str, to: str) -> Entry:
        if event.width is not None:
            check_width(event.width, self._source)
        self._compare()
        entry = self.ledger.charge(event, run=self._at.run, step=step, what=what, to=to)
        self._charged.append(event)
        return entry

    def _sealed(self, entry: str, value: Any) -> bytes:
        body = entry.encode() + b"\0" + _packed(value)
        return blake2b(body, key=self._seal_key, digest_size=32).digest()

    def release(self, event: Event, what: str, draw: Callable[[], T]) -> Released[T]:
        """Pay for a value, then compute it.

        `what` is the release in words, without values. `draw` draws the noise; it is called only
        after the ledger has the event on disk, and not if `pay` refuses.
        """
        return self._drawn(self.pay(event, what), draw)

    def _drawn(self, entry: str, draw: Callable[[], T]) -> Released[T]:
        value = draw()
        return Released(value, entry, self._sealed(entry, value))

    def release_under(self, entry: str, draw: Callable[[], T]) -> Released[T]:
        """Release a value that an earlier entry of this run has paid for, without bound.

        A protocol that sends something at each of thousands of steps, all without protection,
        pays once: no further entry would make an infinite cost larger. `entry` is from `pay`.
        Nothing is computed, and LedgerError raised, if there is no such entry of this run for this
        receiver, or its event is bounded, so that it covers one release alone.
        """
        known = next((e for e in self.ledger.entries if e.hash == entry), None)
        mine = known is not None and (known.run, known.to) == (self._at.run, self._at.sender)
        if known is None or not mine or not isinstance(known.event, NonPrivate):
            raise LedgerError(
                f"party {self.name!r}: entry {entry[:12]!r} does not pay for what is asked in step "
                f"{self._at.step} of run {self._at.run}. Only a release without protection, of "
                "this run and to the same receiver, covers further ones."
            )
        return self._drawn(entry, draw)

    def release_made(self, make: Callable[[], T]) -> Released[T]:
        """Release what is made of what this run has learned and paid for, and of no row.

        That is post-processing of releases that are bounded, and of one without a bound it is part.
        LedgerError if this run has paid for nothing yet.
        """
        paid = [entry for entry in self.ledger.entries if entry.run == self._at.run]
        if not paid:
            raise LedgerError(
                f"party {self.name!r}: run {self._at.run} has paid for nothing that synthetic "
                "columns could be made of"
            )
        return self._drawn(paid[-1].hash, make)

    def release_derived(self, what_follows: Callable[[], T]) -> Released[T]:
        """Release what is computed from noise that this answer has paid for, and from no row.

        That is post-processing, and costs nothing more. LedgerError if this answer has paid for
        nothing yet.
        """
        entries = self.ledger.entries if self._charged else ()
        if not entries or (entries[-1].run, _step_of(entries[-1])) != (
            self._at.run,
            str(self._at.step),
        ):
            raise LedgerError(
                f"party {self.name!r}: step {self._at.step} of run {self._at.run} has paid for "
                "nothing from which a release could follow"
            )
        return self._drawn(entries[-1].hash, what_follows)

    def keep_private(self, event: Event, what: str, draw: Callable[[], int]) -> int:
        """Pay for a number that stays here but steers later releases; drawn once a run.

        `draw` must not fail by the rows: a later step of the run may draw under the same entry.
        """
        name = f"kept/{self._at.run}/{what}"
        if (kept := self._store.get(name)) is None:
            self._charge(event, what, f"kept {what}", "stays at the party")
            here, self._stream = self._stream, self._source.at(name)
            kept = str(draw()).encode()
            self._stream = here
            self._store.put(name, kept)
        return int(kept)

    def remember(self, name: str, value: bytes) -> None:
        """Keep something of this run for a later message."""
        self._store.put(f"memory/{self._at.run}/{name}", value)

    def recall(self, name: str, run: str | None = None) -> bytes | None:
        """What was remembered under `name` in this run, or in the one that is named."""
        return self._store.get(f"memory/{self._at.run if run is None else run}/{name}")

    def release_masked(
        self,
        event: SharedGaussian | SampledSharedGaussian,
        what: str,
        counts: npt.NDArray[np.int64],
        cohort: Mapping[str, bytes],
        besides: bytes = b"",
    ) -> Masked:
        """Pay for this party's part of a sum, add its share of the noise, and mask it.

        Counts are exact and flat; zeros where this party adds nothing. Those beyond `masking.room`
        are cut before noise is added, which moves no two neighbours apart. The cohort is the key of
        every party in the sum, this one included, as `mask_key` gives it. A sum opens only among
        parties that received the same: this request, and what else is given as `besides`. If they
        did not, and no party may vanish, their masks do not cancel: the sum is random numbers, and
        none of them pays for anything more.

        Raises:
            WireError: The cohort is not of the study, a key was not signed by its party, or the
                noise asked for is too wide for a masked sum. Nothing is paid for or drawn.

        **Guarantee**: towards everyone who knows at most `event.tolerated` of the shares, the sum
        over the cohort costs what `event` does, also if as many parties as the study allows vanish;
        before the sum is taken, nothing is learned at all (see masking.py and dropouts.py). After
        the charge nothing here raises, whatever the counts are.
        """
        self.terms.check_cohort(self.name, cohort, event.tolerated)
        if len(cohort) != event.shares or counts.size != event.dimension:
            raise WireError(
                f"a sum of {counts.size:,} numbers over {len(cohort)} parties was asked for, with "
                f"noise for {event.dimension:,} numbers of {event.shares}"
            )
        plan = self.terms.plan(cohort)
        shared = self.agree({p: k for p, k in cohort.items() if plan.vanish or p != self.name})
        inside = masking.cut(counts, masking.room(len(cohort), event.share_sigma))
        entry = self.pay(event, what)
        self._masks += 1  # a stream masks one message only
        context = f"{self.context}/{self._masks}".encode()
        digest = messages.body_digest(self._at.body + besides)
        recovery: Recovery | msgspec.UnsetType = msgspec.UNSET
        proofs: dict[str, bytes] = {}
        sum_ = _Sum(self._at.run, self._at.step, digest, dict(cohort))
        if plan.vanish:
            seeds, recovery = self._shared_out(sum_, shared)
            words = plan.masks(self.name, seeds, context, counts.size)
        else:
            words = masking.mask(self.name, shared, context + digest, counts.size)
            for other, secret in shared.items():
                proofs[other] = masking.sealed(b"", secret, sum_.bound(self.name, other))
            self._store.put(self._unproved, messages.encode(sum_))
        noisy = mechanisms.add_gaussian(inside, event.share_sigma, entropy=self.entropy)
        made = Masked(Array.of(masking.masked(noisy, words), "<u4"), entry, b"", recovery, proofs)
        return msgspec.structs.replace(made, seal=self._sealed(entry, made.value))

    def _shared_out(self, sum_: _Sum, shared: Mapping[str, bytes]) -> tuple[list[bytes], Recovery]:
        """Seeds of this party's masks in a sum, which it remembers, and what opens them."""
        plan, seeds = self.terms.plan(sum_.cohort), [new_seed(self.entropy)]
        for peer in plan.neighbours[self.name]:
            low, high = sorted((self.name, peer))
            seeds.append(pair_seed(shared[peer], sum_.bound(low, high)))
        shares = split(seeds, len(plan.names), plan.threshold, self.entropy)
        before = self.recall("lists") or b""
        sealed = {
            name: masking.sealed(
                messages.encode(_Shares(share, before)),
                shared[name],
                sum_.bound(self.name, name),
            )
            for name, share in zip(plan.names, shares, strict=True)
        }
        self.remember("sum", messages.encode(sum_))
        return seeds, Recovery(digests_of(seeds), sealed)

    def open_shares(
        self, step: int, active: Sequence[str], dead: Sequence[str], sealed: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """This party's shares of what opens the sum of a step, by active party; once a sum.

        Args:
            step: The last in which this party masked something.
            active: Parties whose words are in the sum.
            dead: All others of its cohort.
            sealed: What each active party sealed for this one.

        Raises:
            WireError: It masked nothing in that step, the lists are not of the cohort or overlap,
                too many are dead, other lists were shown before, or a party received another
                request. Nothing is opened.

        **Guarantee**: that of dropouts.py. Shares are of fresh seeds and of no row.
        """
        stored = self.recall("sum")
        sum_ = messages.decode(stored, _Sum) if stored else None
        if sum_ is None or sum_.step != step:
            raise WireError(
                f"party {self.name!r} was asked to open step {step}, and "
                f"{sum_.step if sum_ else 'none'} is its last sum that may be. Nothing was opened"
            )
        plan = self.terms.plan(sum_.cohort)
        plan.check_lists(self.name, active, dead)
        self.terms.check_active(self.name, active)
        lists = messages.encode(_Lists(step, messages.body_digest(_packed(sorted(active)))))
        before = self.recall("lists") or b""
        if before and messages.decode(before, _Lists).step == step and before != lists:
            raise WireError(
                f"party {self.name!r} was asked to open the sum of step {step} a second time, over "
                "other parties. Nothing more was opened; the coordinator must ask once"
            )
        shared, found = self.agree(sum_.cohort), {}
        for name in active:
            bound = sum_.bound(name, self.name)
            share = self._share_of(name, sealed.get(name, b""), shared[name], bound, before)
            places = plan.opened(name, dead)
            pieces = (share[SEED * i : SEED * (i + 1)] for i in places)
            found[name] = b"".join(pieces)
        self.remember("lists", lists)
        return found

    def _share_of(
        self, sender: str, sealed: bytes, secret: bytes, bound: bytes, before: bytes
    ) -> bytes:
        """A party's share for this one, if both received and were shown the same."""
        try:
            sent = messages.decode(masking.unsealed(sealed, secret, bound), _Shares)
        except WireError as error:
            raise WireError(
                f"party {self.name!r} cannot read the share of {sender!r}: it was changed, or the "
                "coordinator asked both something else in one step. Nothing was opened; find out "
                "which requests both received"
            ) from error
        mine, theirs = (messages.decode(b, _Lists) if b else None for b in (before, sent.before))
        if mine and theirs and mine.step == theirs.step and mine != theirs:
            raise WireError(
                f"parties {self.name!r} and {sender!r} were shown other lists of who is in the sum "
                f"of step {mine.step}. Nothing more is opened; the coordinator lied to one of them"
            )
        return sent.shares

    def mask_key(self) -> Public[bytes]:
        """This party's public key for masks in the present run, and its signature of it."""
        key = masking.public_key(self._secret())
        why = "a key, drawn without looking at rows"
        return Public(self.signed_key(key, masking.PURPOSE), why)

    def signed_key(self, key: bytes, purpose: bytes) -> bytes:
        """A public key of this run, and the party's signature of it for one purpose."""
        assert self.ledger.identity is not None  # a ledger that is only read pays for nothing
        return key + self.ledger.identity.sign(purpose, self._key_message(self.name, key))

    def key_of(self, name: str, signed: bytes, purpose: bytes) -> bytes:
        """The public key in what `signed_key` gave another party.

        WireError if the party that the roster names did not sign it in this run.
        """
        key, signature = signed[: masking.KEY], signed[masking.KEY :]
        known = self.terms.roster.get(name, b"")
        if not verify(known, purpose, self._key_message(name, key), signature):
            raise WireError(
                f"party {self.name!r} was given a key that party {name!r} did not sign in this "
                "run. Nothing was released; find out who changed it"
            )
        return key

    def _key_message(self, name: str, key: bytes) -> bytes:
        return b"\0".join((self._keyed_for.encode(), name.encode(), key))

    @property
    def _keyed_for(self) -> str:
        """The run in which a key is used: the whole study's, or the stage's where that is unknown.

        What is masked or encrypted under it is bound to its stage besides.
        """
        return self.terms.study or self._at.run

    def agree_with_dealer(self, key: bytes) -> bytes:
        """The secret shared with the coordinator, by a key that nobody signed."""
        return masking.agree_with(self._secret(), {"the coordinator": key})["the coordinator"]

    def _secret(self) -> bytes:
        name = f"secret/{self._keyed_for}"
        if (secret := self._store.get(name)) is None:
            secret = masking.new_secret(self._source.at(name))
            self._store.put(name, secret)
        return secret

    def agree(self, peers: Mapping[str, bytes]) -> dict[str, bytes]:
        """The secret shared with every peer, computed once a run; its signed key is checked."""
        run = self._at.run
        new = {n: signed for n, signed in peers.items() if (run, n, signed) not in self._agreed}
        keys = {name: self.key_of(name, signed, masking.PURPOSE) for name, signed in new.items()}
        if keys:
            secrets = masking.agree_with(self._secret(), keys)
            self._agreed |= {(run, name, new[name]): secret for name, secret in secrets.items()}
        return {name: self._agreed[run, name, signed] for name, signed in peers.items()}

    def relay(self, words: masking.Words, readers: Mapping[str, bytes], context: str) -> Relayed:
        """Encrypt masked words to other parties, whom the coordinator relays them to.

        `readers` are the secrets that this party shares with them (`agree`); `context` names the
        message, and is used once in a run.

        **Guarantee**: nothing of its own. The words must be uniform to every reader: rows under a
        mask that no reader knows.
        """
        key = self.entropy.bytes(masking.KEY)
        plain = words.astype("<u4", copy=False).tobytes()
        data = masking.sealed(plain, key, self._bound_to(self.name, "", context))
        keys = {
            name: masking.sealed(key, secret, self._bound_to(self.name, name, context))
            for name, secret in readers.items()
        }
        return Relayed(data, keys, self._sealed("", [data, keys]))

    def open_relayed(
        self, sender: str, data: bytes, key: bytes, secret: bytes, context: str
    ) -> masking.Words:
        """The words that another party relayed to this one; WireError if they were changed."""
        try:
            inner = masking.unsealed(key, secret, self._bound_to(sender, self.name, context))
            plain = masking.unsealed(data, inner, self._bound_to(sender, "", context))
        except WireError as error:
            raise WireError(
                f"party {self.name!r} cannot read what {sender!r} sent it through the coordinator: "
                f"{error}. Nothing was released; start a new run"
            ) from error
        return np.frombuffer(plain, dtype="<u4")

    def _bound_to(self, sender: str, reader: str, context: str) -> bytes:
        """What a relayed message is of."""
        return "\0".join((self._at.run, sender, reader, context)).encode()

    def sealed_here(self, item: messages.Sealed) -> bool:
        """Whether this very object was sealed here."""
        if isinstance(item, Relayed):
            return item.seal == self._sealed("", [item.data, item.keys])
        return item.seal == self._sealed(item.entry, item.value)

    def answer(self, frame: bytes, handlers: Handlers) -> bytes:
        """Answer a frame, the bytes of an envelope, by the function that handles its request.

        Returns the frame of the reply: the stored one if this step was answered before.

        Raises:
            WireError: if the message is malformed, for someone else, a changed repetition, not of
                the study, or the reply is not sealed. Whatever else goes wrong in a handler ends
                as this error, too.
            BudgetError: if the ledger does not allow a release.
            LedgerError: if the ledger no longer holds what paid for a stored reply, or the reply
                or store that it paid for is gone.
            StudyError: if the run was paid for with other rows.
            OSError: if a file cannot be written or read, as of a full disk. Nothing was sent, and
                the site goes on as after a kill.

        **Guarantee**: a step that failed after something was paid for fails in the same way
        whenever it is asked again, and nothing is drawn anew. Its text is fixed where noise was
        drawn, so that nothing but the failure shows; a handler must not fail there by its rows.
        """
        envelope = messages.decode(frame, Envelope)
        if envelope.to != self.name:
            raise WireError(f"a message for {envelope.to!r} came to {self.name!r}")
        first = self._answer(envelope, handlers)
        if not envelope.then:
            return first
        second = messages.decode(self._answer(envelope.next, handlers), Envelope)
        both = msgspec.structs.replace(messages.decode(first, Envelope), then=second.body)
        with suppress(WireError):  # too large together: the second is asked again by itself
            return messages.encode(both)
        return first

    def _answer(self, envelope: Envelope, handlers: Handlers) -> bytes:
        """The reply to one question: the stored one if it was answered before."""
        self._begin_run(envelope.run)
        name = f"reply/{envelope.run}/{envelope.step}"
        digest = messages.body_digest(envelope.body, envelope.sender)
        if (stored := self._store.get(name)) is not None:
            self._refuse_changed(envelope, stored, digest, "answered")
            if len(stored) == _DIGEST:
                raise WireError(
                    f"step {envelope.step} of run {envelope.run} was answered before, and the "
                    "reply is not kept; a second draw would be a second release. Start a new run, "
                    "or give the party a FolderStore."
                )
            self._check_paid(stored[_DIGEST : _DIGEST + _ENTRY].decode().strip())
            return stored[_DIGEST + _ENTRY :]
        self._refuse_again(envelope, digest)
        self._refuse_lost(envelope)
        data = self._answered(envelope, digest, handlers)
        entries = self.ledger.entries
        paid = entries[-1].hash if entries else ""
        self._store.put(name, digest + paid.ljust(_ENTRY).encode() + data)
        return data

    def _answered(self, envelope: Envelope, digest: bytes, handlers: Handlers) -> bytes:
        """What a handler replies; if it fails after a charge, the refusal is stored.

        A charge counts also where an earlier attempt wrote its entry: a process that was killed
        after that has stored no refusal.
        """
        self._charged, kind = [], "message"
        try:
            request = messages.decode_request(envelope.body, handlers)
            kind = type(request).__name__
            self._count_asked(envelope, str(type(request).__struct_config__.tag))
            self.begin(envelope)
            reply = handlers[type(request)](request, self)
            messages.check_sealed(reply, self.sealed_here)
            return messages.encode(envelope.answered(messages.encode(reply)))
        except OSError:  # as a kill: no row decides it
            raise
        except Exception as error:
            known = isinstance(error, SiloweaveError)
            where = f"party {self.name!r}, step {envelope.step} of run {envelope.run}"
            if all(isinstance(event, NonPrivate) for event in self._charged) or isinstance(
                error, BudgetError | LedgerError
            ):
                refused = error if known else WireError(f"{where}: its {kind} cannot be answered")
            else:
                refused = WireError(
                    f"{where}: its {kind} failed after it was paid for. Nothing was sent, and it "
                    "will not be drawn again; the party's own log says why"
                )
            if refused is not error:
                _log.warning("%s: %s failed, %s in %s", where, kind, *places(error))
            if self._charged:
                refusal = Refusal(type(refused).__name__, str(refused))
                self._store.put(self._refused(envelope), digest + messages.encode(refusal))
            if refused is error:
                raise
            raise refused from error

    def _count_asked(self, envelope: Envelope, tag: str) -> None:
        """Refuse a question that is asked more often than the study's plan says.

        Stored answers that are sent again do not come here. A question that was counted, and was
        not answered as the process was killed, is the last one.
        """
        if self.terms.asked is None:
            return
        name, most = f"asked/{envelope.run}", self.terms.asked.get(tag, 0)
        stored = self._store.get(name)
        before = messages.decode(stored, _Asked) if stored else _Asked()
        if (before.step, before.tag) == (envelope.step, tag):
            return
        times = before.times.get(tag, 0) + 1
        if times > most:
            raise WireError(
                f"party {self.name!r} was asked {tag!r} {times} times in run {envelope.run!r}; by "
                f"the study's plan it answers {most}. Nothing was released"
            )
        now = _Asked(envelope.step, tag, before.times | {tag: times})
        self._store.put(name, messages.encode(now))

    def _refused(self, envelope: Envelope) -> str:
        return f"refused/{envelope.run}/{envelope.step}"

    def _refuse_again(self, envelope: Envelope, digest: bytes) -> None:
        """Refuse a step that was refused before, after it was paid for, as it was then."""
        if (stored := self._store.get(self._refused(envelope))) is not None:
            self._refuse_changed(envelope, stored, digest, "refused")
            raise messages.decode(stored[_DIGEST:], Refusal).error()

    def _refuse_changed(self, asked: Envelope, stored: bytes, digest: bytes, done: str) -> None:
        """Refuse a step that was asked with another body, or by somebody else, before."""
        if stored[:_DIGEST] != digest:
            raise WireError(
                f"party {self.name!r}: step {asked.step} of run {asked.run} was {done} before for "
                "another request; a step is asked once. Start a new run, with a name of its own "
                "(run=...)."
            )

    def _begin_run(self, run: str) -> None:
        """Note in the store with which rows a run began, before anything of it is paid for.

        Where the run was paid for, LedgerError if the store knows nothing of it: what was sent is
        gone, and a second draw would not be charged; StudyError if that was with other rows.
        """
        if run in self._begun:
            return
        name, rows = f"begun/{run}", self._digest()
        before = self._store.get(name)
        if before != rows:
            paid = any(entry.run == run for entry in self.ledger.entries)
            if paid and before is None:
                raise LedgerError(
                    f"party {self.name!r}: its ledger holds releases of run {run}, and its store "
                    f"does not know that run; what was sent is gone. {_LOST}"
                )
            if paid:
                raise StudyError(
                    f"party {self.name!r}: its rows changed since this run began, or the schema "
                    f"or settings by which they are read, and part of run {run} is paid for. Give "
                    "what it began with, or start another run, with a name of its own (run=...) "
                    "and a folder of its own where budgets are spent; what both release adds up."
                )
            self._store.put(name, rows)
        self._begun.add(run)

    def _check_paid(self, entry: str) -> None:
        """Refuse to send a stored reply again whose payment is gone; reads the ledger's file once.

        What was found there once need not be looked up again: a run that resumes asks for
        thousands of stored replies, and the ledger that paid for them is as long.
        """
        if entry not in self._paid:
            self.ledger.verify([entry] if entry else [])
            self._paid = {"", *(known.hash for known in self.ledger.entries)}

    def _refuse_lost(self, asked: Envelope) -> None:
        """Refuse a step before the last that was paid: its reply was sent, and is gone."""
        for entry in reversed(self.ledger.entries):
            step = _step_of(entry)
            if entry.run != asked.run or not step.isdecimal():
                continue
            if int(step) > asked.step:
                raise LedgerError(
                    f"party {self.name!r}: step {asked.step} of run {asked.run} was answered, for "
                    f"step {step} was paid after it, and the reply is gone. {_LOST}"
                )
            return


def places(error: BaseException) -> tuple[str, str]:
    """What failed, and where in the code: not the error's text, which may name a value of a row."""
    frames = extract_tb(error.__traceback__)[-3:]
    places = (f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames)
    return type(error).__name__, " > ".join(places)


def _step_of(entry: Entry) -> str:
    """The step of a run that an entry paid for; words for a number that stays at the party."""
    return entry.step.partition(".")[0]
