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

from siloweave.errors import (
    BudgetError,
    LedgerError,
    SiloweaveError,
    StudyError,
    WireError,
    whole,
)
from siloweave.federation import masking, messages
from siloweave.federation.dropouts import (
    SEED,
    MaskPlan,
    digests_of,
    new_seed,
    pair_seed,
    split,
)
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
from siloweave.privacy.events import (
    Event,
    NonPrivate,
    SampledSharedGaussian,
    SharedGaussian,
)
from siloweave.privacy.journal import folder_for_its_owner, write_whole
from siloweave.privacy.ledger import Entry, Ledger, verify
from siloweave.privacy.mechanisms import Entropy, check_width
from siloweave.progress import Progress, silent

Rows = TypeVar("Rows")
T = TypeVar("T")
Handlers = Mapping[type[Request[Any]], Callable[[Any, Any], Reply]]
"""A party's side of a method: which function answers which request."""

_log = logging.getLogger("siloweave")
_packed = msgspec.msgpack.encode

_SHOWN = 60  # characters of a value in a message

# A stored reply is the digest of the request's body, then the hash of the ledger's last entry
# (which must still be in the ledger before the reply is sent again), then the frame itself.
_DIGEST = 32  # bytes
_ENTRY = 64  # bytes
_REPLY = ".reply"  # how the names of files with replies end
_LOST = (
    "A second draw would be a second release. Put the newest copy of the party's store back, or "
    "agree on a new budget and folder."
)


@dataclass(frozen=True)
class Terms:
    """The facts of a study, which every party of it is given once.

    Attributes:
        roster: Public key of every party, by name, in the order of the study.
        tolerated: Parties that may pool what they know with the coordinator, and the claim still
            holds. Each party knows its own share of the noise, so at least 1 where there are two
            parties or more.
        facts: What else requests may repeat: the method's public settings, by name.
        study: Name of the whole run, in all stages of which a party has one key for masks; if
            empty, it has one in each.
        dropouts: Parties of a sum that may vanish; in a small one fewer, see dropouts.py.
        question_limits: How often it answers each question of a run at most, by its tag; None for
            no bound.
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
    question_limits: Mapping[str, float] | None = None
    smallest_cohort: int = 1

    def __post_init__(self) -> None:
        # With 0, a party could subtract its own share of the noise from a sum over several.
        fewest_colluders = 1 if len(self.roster) > 1 else 0
        whole("tolerated", self.tolerated, fewest_colluders)
        MaskPlan.require(len(self.roster), self.tolerated, self.dropouts)

    def plan(self, cohort: Iterable[str]) -> MaskPlan:
        """Plan who masks with whom in a cohort's sum, and how many of its parties may vanish."""
        return MaskPlan.of(cohort, self.tolerated, self.dropouts)

    def missing(self, size: int) -> int:
        """Count the shares of the noise that a sum over `size` parties may have to do without."""
        return MaskPlan.for_size(size, self.tolerated, self.dropouts).missing

    def check_cohort(
        self, party: str, cohort: Mapping[str, bytes], tolerated: int
    ) -> None:
        """Raise WireError for a sum over other parties, over too few, or with too little noise."""
        # With a stranger in the cohort the coordinator could play that stranger itself; a sum
        # without this party would have no use for its words but to single them out.
        strangers = [name for name in cohort if name not in self.roster]
        if strangers or party not in cohort:
            raise WireError(
                f"party {party!r} was asked for a sum over {_short(list(cohort))}; the roster of "
                f"the study is {_short(list(self.roster))}. Nothing was released"
            )
        self._check_size(party, "was asked for a sum over", len(cohort), "released")

        # Each share of the noise is sized by what the sum must withstand. A lower number would
        # make every share too small, and colluders could subtract theirs from what is left.
        due = self.missing(len(cohort))
        if tolerated != due:
            whom = "colluders and dropouts" if self.dropouts else "colluders"
            raise WireError(
                f"party {party!r} was asked for a sum of {len(cohort)} parties that withstands "
                f"{tolerated} {whom}; the study says {due}. Nothing was released"
            )

    def check_active(self, party: str, active: Sequence[str]) -> None:
        """Raise WireError for a sum that would open over too few parties."""
        self._check_size(party, "was asked to open a sum over", len(active), "opened")

    def _check_size(self, party: str, request: str, size: int, done: str) -> None:
        """Raise WireError for a sum over too few parties; `words` describe the request."""
        # A sum over few parties has few honest ones to hide among.
        if size < self.smallest_cohort:
            parties = "party" if size == 1 else "parties"
            raise WireError(
                f"party {party!r} {request} {size} {parties}; by the study's settings none is over "
                f"fewer than {self.smallest_cohort}. Nothing was {done}"
            )

    def require(self, party: str, **stated: Any) -> None:
        """Raise WireError for a request that states other facts than the study's.

        Example:
            >>> Terms(facts={"rounds": 10}).require("north", rounds=500)
            Traceback (most recent call last):
            siloweave.errors.WireError: party 'north': the request says rounds = 500, and ...
        """
        for name, value in stated.items():
            # `None` is a value that a study may state, so that the name is looked up by itself:
            # a fact that the study lacks must not pass as one that it states to be None.
            agreed = self.facts.get(name)
            if name not in self.facts or agreed != value:
                raise WireError(
                    f"party {party!r}: the request says {name} = {_short(value)}, and the study "
                    f"says {_short(agreed)}. Nothing was released; the coordinator must run the "
                    "study that was agreed on"
                )


def _short(value: Any) -> str:
    """Write a value for a message, cut off if a peer made it long."""
    text = str(value)
    if len(text) <= _SHOWN:
        return text
    return text[: _SHOWN - 1] + "…"


class Store(Protocol):
    """The place where a site keeps data between messages. Conforming: MemoryStore, FolderStore."""

    def get(self, name: str) -> bytes | None:
        """Return the bytes stored under `name`, or None."""

    def put(self, name: str, data: bytes) -> None:
        """Store `data`, which then lasts as long as this kind of store does."""


class MemoryStore:
    """A store that lasts as long as the process; of all replies but the last it has the digest.

    An older step that is asked again is known as answered, and refused: its bytes are gone, and
    drawing again would be a second release.
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._last_reply = ""

    def get(self, name: str) -> bytes | None:
        """Return the bytes stored under `name`, or None."""
        return self._values.get(name)

    def put(self, name: str, data: bytes) -> None:
        """Store `data`; a new reply cuts the one before down to the digest of its request."""
        if name.startswith("reply/"):
            if self._last_reply:
                # A run of thousands of replies would fill the memory. The digest must stay: with
                # no trace of the step, the site would take it for a new one and draw again.
                self._values[self._last_reply] = self._values[self._last_reply][
                    :_DIGEST
                ]
            self._last_reply = name
        self._values[name] = data


class FolderStore:
    """A store of files in a folder, which are written whole and forced to disk.

    Names come from peers and never become part of a path; files are called by their digest. Each
    ends with a checksum, since a flipped bit in a masked sum would look like any other number.

    **Guarantee**: with a `secret`, of at most 64 bytes, a file that somebody else wrote is refused
    (keyed BLAKE2, RFC 7693, as a MAC). An older file under the same name passes.
    """

    def __init__(self, folder: Path, secret: bytes = b"") -> None:
        self._folder = folder
        self._secret = secret
        # 0o700: masks, noise streams and unsent replies lie here, for their owner alone.
        folder_for_its_owner(folder)

    def _path(self, name: str) -> Path:
        # A run's name comes from a peer; as a path it could lead out of the folder.
        digest = blake2b(name.encode(), digest_size=20).hexdigest()
        suffix = _REPLY if name.startswith("reply/") else ""
        return self._folder / (digest + suffix)

    def get(self, name: str) -> bytes | None:
        """Return the bytes stored under `name`, or None.

        WireError if the file was damaged or cut, or somebody else wrote it.
        """
        path = self._path(name)
        try:
            stored = path.read_bytes()
        except FileNotFoundError:
            return None

        # Without this check a damaged masked sum would be sent as if it were right, and a file
        # that somebody put there could set a party's stream of noise.
        data = stored[:-_DIGEST]
        if len(stored) < _DIGEST or self._checksum(name, data) != stored[-_DIGEST:]:
            raise WireError(
                f"{path}: what the party kept of {name!r} is damaged or cut off, or somebody else "
                "wrote it. Nothing more was released. Put the file back from a backup, or agree on "
                "a new budget and folder."
            )
        return data

    def put(self, name: str, data: bytes) -> None:
        """Store `data` as a file, whole or not at all."""
        write_whole(self._path(name), data + self._checksum(name, data))

    def payments(self) -> Iterator[str]:
        """Yield the hashes of the ledger's entries without which no stored reply may be sent."""
        for path in self._folder.iterdir():
            if path.suffix != _REPLY:
                continue
            with path.open("rb") as file:
                file.seek(_DIGEST)
                entry = file.read(_ENTRY)
            # The checksum is not read here: the hash is only looked up in the ledger.
            yield entry.decode("ascii", "replace").strip()

    def _checksum(self, name: str, data: bytes) -> bytes:
        # The name is covered, too: else one file could be put in the place of another.
        text = name.encode() + b"\0" + data
        return blake2b(text, digest_size=_DIGEST, key=self._secret).digest()


def answers_in(folder: Path) -> int:
    """Count the answers that a `FolderStore` has in its folder, paid or not."""
    if not folder.is_dir():
        return 0
    with os.scandir(folder) as files:
        return sum(file.name.endswith(_REPLY) for file in files)


class _Sum(msgspec.Struct, frozen=True):
    """The facts that a party remembers of the last sum that it masked."""

    run: str
    step: int
    request: bytes  # digest
    cohort: dict[str, bytes]

    def bound(self, sender: str, reader: str) -> bytes:
        """Return the bytes to which messages between two parties of this sum are bound."""
        # The request's digest is what matters: parties that were asked different things cannot
        # open what they seal for each other, and so notice that the coordinator lied.
        context = f"sum of step {self.step}, {self.request.hex()}"
        return "\0".join((self.run, sender, reader, context)).encode()


class _QuestionCounts(msgspec.Struct, frozen=True):
    """The number of times that a party was asked each question of a run, and the last question."""

    step: int = -1
    tag: str = ""
    times: dict[str, int] = {}


class _Lists(msgspec.Struct, frozen=True):
    """A digest of who was in the sum that a party opened last."""

    step: int
    active: bytes  # digest


class _Shares(msgspec.Struct, frozen=True):
    """The shares for one party, and their sender's view of who was in the sum before."""

    shares: bytes
    before: bytes


class Site(Generic[Rows]):
    """One party of a study, while it runs.

    Args:
        name: The party's name in the roster.
        rows: Its real data. Party functions read them here; nothing else does.
        ledger: Its record of releases, with the most it will ever spend.
        entropy: Where its noise comes from, see `Entropy.at`. Never from a message.
        store: What it remembers between messages.
        digest: Of the rows and of how they are read. The store keeps it per run, and it goes
            nowhere else: a run that continues must meet what it began with.
        terms: What the party knows of the study; if None, it takes part in no sum with others.
        answered: Returns the hash of the ledger's entry that was the last one when the party last
            gave an answer, as it was noted outside of the store; empty where nobody notes it.
        progress: Called with a text and the share that is done of the party's work.
        checkpoints: Folder for an interrupted training, of this run alone; or None.
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
        answered: Callable[[], str] = str,
        progress: Progress = silent,
        checkpoints: Path | None = None,
    ) -> None:
        self.name = name
        self.rows = rows
        self._last_answered = answered
        self.ledger = ledger
        self.terms = terms or Terms({name: ledger.key})
        self.progress = progress
        self.checkpoints = checkpoints
        self._source = entropy
        self._stream: Entropy | None = entropy  # of the step that is being answered
        self._store = store
        self._digest = digest
        # A fresh key per process: a seal is of this very site, and never stored or sent on.
        self._seal_key = os.urandom(32)
        # Secrets, by run, peer and key.
        self._agreed: dict[tuple[str, str, bytes], bytes] = {}
        self._begun: set[str] = set()
        self._at = Envelope("", 0, "", name, b"")
        self._count = 0  # payments of the step that is being answered
        self._masks = 0  # masked sums of that step
        self._charged: list[Event] = []  # by the answer that is being made
        self._paid: set[str] = set()
        self._whole: set[str] = set()  # runs whose last paid reply is in the store
        self.answered_by = ""
        """Hash of the ledger's entry that was the last one when the last answer was made."""
        self.memo: dict[Any, Any] = {}
        """Results that can be computed again from rows; never sent, lost with the process."""

    def begin(self, envelope: Envelope) -> None:
        """Start answering a step; WireError if its proofs show that the coordinator lied."""
        self._at = envelope
        self._count = 0
        self._masks = 0
        self._stream = None
        # Without proofs nothing is compared yet: a step that releases nothing may go on, and
        # `_charge` compares before anything is paid for.
        if envelope.proofs:
            self._compare()

    def _compare(self) -> None:
        """Raise WireError unless all parties of the last sum received what this one did.

        They show it by proofs, see `release_masked`. Nothing is looked at twice.
        """
        stored = self._store.get(self._unproved)
        last_sum = messages.decode(stored, _Sum) if stored else None
        # Proofs of a sum come with the question after it, so a second sum of the same step waits.
        if last_sum is None or (last_sum.run, last_sum.step) == (
            self._at.run,
            self._at.step,
        ):
            return

        # Without this a coordinator could ask each party for another sum, read them all, and go
        # on; now the run ends at the first party that is not shown everyone's proof.
        others = {
            name: key for name, key in last_sum.cohort.items() if name != self.name
        }
        for peer, secret in self.agree(others).items():
            proof = self._at.proofs.get(peer, b"")
            try:
                masking.unsealed(proof, secret, last_sum.bound(peer, self.name))
            except WireError as error:
                raise WireError(
                    f"party {self.name!r} was not shown that {peer!r} received the same in step "
                    f"{last_sum.step} of run {last_sum.run}, and both are in one sum. Nothing more "
                    "is released; the coordinator lied to one of them, or relayed something else"
                ) from error

        # Only here: a proof that is missing once must be missing again after a restart.
        self._store.put(self._unproved, b"")

    @property
    def _unproved(self) -> str:
        """The name in the store of the sum whose proofs have not come yet."""
        return f"unproved/{self._keyed_for}"

    @property
    def entropy(self) -> Entropy:
        """The source of this step's noise, opened at the first draw."""
        if self._stream is None:
            self._stream = self._source.at(self.context)
        return self._stream

    def store_entropy(self) -> None:
        """Draw the rest of this answer from a stream whose seed is stored.

        An answer of several draws, each of which decides what is drawn next, is the same again
        after a crash, and so are its payments.
        """
        name = f"stream/{self.context}"
        seed = self._store.get(name)
        if seed is None:
            seed = self.entropy.bytes(32)
            # Stored before it is used: a seed that a crash loses after a payment would draw anew.
            self._store.put(name, seed)
        self._stream = mechanisms.StoredEntropy(seed, private=self._source.private)

    @property
    def run(self) -> str:
        """The run that is being answered."""
        return self._at.run

    @property
    def context(self) -> str:
        """The run and the step that are being answered."""
        return f"{self._at.run}/{self._at.step}"

    @property
    def request_digest(self) -> bytes:
        """The digest of the request that is being answered."""
        return messages.body_digest(self._at.body)

    def require_first(self) -> None:
        """Raise WireError, before it is paid for, if a release is not the first of its run.

        Where a limit holds for what all parties release together, each may release once. A question
        that is asked again is answered from the store, and does not come here.
        """
        run_entries = (
            entry for entry in self.ledger.entries if entry.run == self._at.run
        )
        paid_steps = {_step_of(entry) for entry in run_entries}
        # This very step may have paid before a crash; its entry then pays for the next draw.
        if paid_steps - {str(self._at.step)}:
            raise WireError(
                f"party {self.name!r}: this run has released something before, and what is asked "
                "for may only come first. Nothing was released; start a new run"
            )

    def pay(self, event: Event, what: str) -> str:
        """Charge the ledger for a value that steers a later release but stays here.

        Returns the hash of the entry, after which the noise may be drawn. Nothing is charged where
        that noise cannot be drawn (InputError), or the limit does not allow it (BudgetError).
        """
        # The count tells payments of one step apart, and is the same where a step is asked again
        # after a crash: the ledger then returns the entry that it has, and charges nothing.
        self._count += 1
        step = f"{self._at.step}.{self._count}"
        return self._charge(event, what, step, self._at.sender).hash

    def _charge(self, event: Event, what: str, step: str, to: str) -> Entry:
        """Charge the ledger for an event; if this raises, nothing was charged."""
        # Both checks stand before the charge: budget that is spent never comes back.
        if event.width is not None:
            check_width(event.width, self._source)
        self._refuse_older()
        self._compare()
        entry = self.ledger.charge(event, run=self._at.run, step=step, what=what, to=to)
        self._charged.append(event)
        return entry

    def _sealed(self, entry: str, value: Any) -> bytes:
        """Compute this process's seal of a value and of the entry that paid for it."""
        body = entry.encode() + b"\0" + _packed(value)
        return blake2b(body, key=self._seal_key, digest_size=32).digest()

    def release(self, event: Event, what: str, draw: Callable[[], T]) -> Released[T]:
        """Pay for a value, then compute it.

        `what` is the release in words, without values. `draw` draws the noise; it is called only
        after the ledger has the event on disk, and not if `pay` refuses.
        """
        return self._drawn(self.pay(event, what), draw)

    def _drawn(self, entry: str, draw: Callable[[], T]) -> Released[T]:
        """Draw a value for which an entry on disk has paid, and seal it."""
        value = draw()
        return Released(value, entry, self._sealed(entry, value))

    def release_under(self, entry: str, draw: Callable[[], T]) -> Released[T]:
        """Release a value that an earlier entry of this run has paid for, without bound.

        A protocol that sends something at each of thousands of steps, all without protection,
        pays once: no further entry would make an infinite cost larger. `entry` is from `pay`.
        Nothing is computed, and LedgerError raised, if there is no such entry of this run for this
        receiver, or its event is bounded, so that it covers one release alone.
        """
        matches = (payment for payment in self.ledger.entries if payment.hash == entry)
        payment = next(matches, None)

        # An entry of another run or receiver would let values leave that nobody paid for there;
        # under a bounded one, a second draw would cost what the ledger does not show.
        covers = (
            payment is not None
            and (payment.run, payment.to) == (self._at.run, self._at.sender)
            and isinstance(payment.event, NonPrivate)
        )
        if not covers:
            raise LedgerError(
                f"party {self.name!r}: entry {entry[:12]!r} does not pay for what is asked in step "
                f"{self._at.step} of run {self._at.run}. Only a release without protection, of "
                "this run and to the same receiver, covers further ones."
            )
        return self._drawn(entry, draw)

    def release_made(self, make: Callable[[], T]) -> Released[T]:
        """Release a value made from paid releases of this run, and from no row.

        That is post-processing of releases that are bounded, and of one without a bound it is part.
        LedgerError if this run has paid for nothing yet.
        """
        payments = [entry for entry in self.ledger.entries if entry.run == self._at.run]
        if not payments:
            raise LedgerError(
                f"party {self.name!r}: run {self._at.run} has paid for nothing that synthetic "
                "columns could be made of"
            )
        return self._drawn(payments[-1].hash, make)

    def release_derived(self, what_follows: Callable[[], T]) -> Released[T]:
        """Release a value computed from noise that this answer has paid for, and from no row.

        That is post-processing, and costs nothing more. LedgerError if this answer has paid for
        nothing yet.
        """
        # That something was charged is not enough: it may stay here (`keep_private`), under an
        # entry of no step.
        step = (self._at.run, str(self._at.step))
        entries = self.ledger.entries if self._charged else ()
        if not entries or (entries[-1].run, _step_of(entries[-1])) != step:
            raise LedgerError(
                f"party {self.name!r}: step {self._at.step} of run {self._at.run} has paid for "
                "nothing from which a release could follow"
            )
        return self._drawn(entries[-1].hash, what_follows)

    def keep_private(self, event: Event, what: str, draw: Callable[[], int]) -> int:
        """Pay for a number that stays here but steers later releases; it is drawn once a run.

        `draw` must not fail by the rows: a later step of the run may draw under the same entry.
        """
        name = f"kept/{self._at.run}/{what}"
        step = f"kept {what}"
        number = self._store.get(name)
        if number is None:
            self._refuse_lost_number(step)
            self._charge(event, what, step, "stays at the party")

            # A stream of its own: which step comes first must not decide what is drawn here, nor
            # this draw what the step draws after it.
            step_stream = self._stream
            self._stream = self._source.at(name)
            number = str(draw()).encode()
            self._stream = step_stream
            self._store.put(name, number)
        return int(number)

    def remember(self, name: str, value: bytes) -> None:
        """Store a value of this run for a later message."""
        self._store.put(f"memory/{self._at.run}/{name}", value)

    def recall(self, name: str, run: str | None = None) -> bytes | None:
        """Return the value remembered under `name` in this run, or in the run given."""
        if run is None:
            run = self._at.run
        return self._store.get(f"memory/{run}/{name}")

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
        # All that may raise stands before the charge. After it, an error would tell that counts
        # were unusual, and the step could never be answered.
        self.terms.check_cohort(self.name, cohort, event.tolerated)
        if len(cohort) != event.shares or counts.size != event.dimension:
            # The ledger would be charged for other noise than what is added.
            raise WireError(
                f"a sum of {counts.size:,} numbers over {len(cohort)} parties was asked for, with "
                f"noise for {event.dimension:,} numbers of {event.shares}"
            )
        plan = self.terms.plan(cohort)
        # Where parties may vanish, each holds a share of its own seeds, sealed as to the others.
        peers = {
            name: key
            for name, key in cohort.items()
            if plan.vanish or name != self.name
        }
        shared = self.agree(peers)
        most = masking.room(len(cohort), event.share_sigma)
        inside = masking.cut(counts, most)

        entry = self.pay(event, what)

        self._masks += 1  # a stream masks one message only
        context = f"{self.context}/{self._masks}".encode()
        digest = messages.body_digest(self._at.body + besides)
        masked_sum = _Sum(self._at.run, self._at.step, digest, dict(cohort))
        recovery: Recovery | msgspec.UnsetType = msgspec.UNSET
        proofs: dict[str, bytes] = {}
        if plan.vanish:
            # What opens the sum is sealed under `bound`, so that it opens among equal requests.
            seeds, recovery = self._shared_out(masked_sum, shared)
            words = plan.masks(self.name, seeds, context, counts.size)
        else:
            # The digest is in the masks' context: they cancel among equal requests alone.
            words = masking.mask(self.name, shared, context + digest, counts.size)
            for peer, secret in shared.items():
                proofs[peer] = masking.sealed(
                    b"", secret, masked_sum.bound(self.name, peer)
                )
            # Stored before the reply, so that no kill lets a next payment skip the proofs.
            self._store.put(self._unproved, messages.encode(masked_sum))

        # The noise is drawn last: seeds are drawn from the same stream before it.
        noisy = mechanisms.add_gaussian(inside, event.share_sigma, entropy=self.entropy)
        masked_words = Array.of(masking.masked(noisy, words), "<u4")
        unsealed = Masked(masked_words, entry, b"", recovery, proofs)
        return msgspec.structs.replace(
            unsealed, seal=self._sealed(entry, unsealed.value)
        )

    def _shared_out(
        self, masked_sum: _Sum, shared: Mapping[str, bytes]
    ) -> tuple[list[bytes], Recovery]:
        """Draw the seeds of this party's masks in a sum; return them, and their sealed shares.

        The first seed is of the party's own mask, the others of those with neighbours, see
        dropouts.py. The party remembers the sum.
        """
        plan = self.terms.plan(masked_sum.cohort)
        seeds = [new_seed(self.entropy)]
        for peer in plan.neighbours[self.name]:
            # Sorted, so that both ends of a pair derive the same seed.
            low, high = sorted((self.name, peer))
            seeds.append(pair_seed(shared[peer], masked_sum.bound(low, high)))

        shares = split(seeds, len(plan.names), plan.threshold, self.entropy)
        # Each share carries the digest of the lists that this party was shown for the sum before:
        # a reader that was shown others then refuses, see `_share_of`.
        lists_before = self.recall("lists") or b""
        sealed = {}
        for name, share in zip(plan.names, shares, strict=True):
            data = messages.encode(_Shares(share, lists_before))
            sealed[name] = masking.sealed(
                data, shared[name], masked_sum.bound(self.name, name)
            )
        self.remember("sum", messages.encode(masked_sum))
        return seeds, Recovery(digests_of(seeds), sealed)

    def open_shares(
        self,
        step: int,
        active: Sequence[str],
        dead: Sequence[str],
        sealed: Mapping[str, bytes],
    ) -> dict[str, bytes]:
        """Return this party's shares of the masks in a sum, by active party; only once a sum.

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
        # An older store does not know which lists were shown.
        self._refuse_older()
        stored = self.recall("sum")
        masked_sum = messages.decode(stored, _Sum) if stored else None
        if masked_sum is None or masked_sum.step != step:
            last_step = masked_sum.step if masked_sum else "none"
            raise WireError(
                f"party {self.name!r} was asked to open step {step}, and "
                f"{last_step} is its last sum that may be. Nothing was opened"
            )
        plan = self.terms.plan(masked_sum.cohort)
        plan.check_lists(self.name, active, dead)
        self.terms.check_active(self.name, active)

        # Two openings of one sum over different parties differ by what a single party added.
        active_digest = messages.body_digest(_packed(sorted(active)))
        lists = messages.encode(_Lists(step, active_digest))
        lists_before = self.recall("lists") or b""
        is_second = (
            bool(lists_before) and messages.decode(lists_before, _Lists).step == step
        )
        if is_second and lists_before != lists:
            raise WireError(
                f"party {self.name!r} was asked to open the sum of step {step} a second time, over "
                "other parties. Nothing more was opened; the coordinator must ask once"
            )

        secrets = self.agree(masked_sum.cohort)
        opened: dict[str, bytes] = {}
        for name in active:
            sent = sealed.get(name, b"")
            bound = masked_sum.bound(name, self.name)
            share = self._share_of(name, sent, secrets[name], bound, lists_before)
            # A share of every seed was sent; only those leave that the lists open.
            pieces = (share[SEED * i : SEED * (i + 1)] for i in plan.opened(name, dead))
            opened[name] = b"".join(pieces)

        # Remembered before the answer leaves, so that no restart allows other lists.
        self.remember("lists", lists)
        return opened

    def _share_of(
        self,
        sender: str,
        sealed: bytes,
        secret: bytes,
        bound: bytes,
        lists_before: bytes,
    ) -> bytes:
        """Open a party's share for this one, if both received and were shown the same."""
        try:
            sent = messages.decode(masking.unsealed(sealed, secret, bound), _Shares)
        except WireError as error:
            raise WireError(
                f"party {self.name!r} cannot read the share of {sender!r}: it was changed, or the "
                "coordinator asked both something else in one step. Nothing was opened; find out "
                "which requests both received"
            ) from error

        # Lists of different steps say nothing against each other: either may have missed a sum.
        mine = messages.decode(lists_before, _Lists) if lists_before else None
        theirs = messages.decode(sent.before, _Lists) if sent.before else None
        if mine and theirs and mine.step == theirs.step and mine != theirs:
            raise WireError(
                f"parties {self.name!r} and {sender!r} were shown other lists of who is in the sum "
                f"of step {mine.step}. Nothing more is opened; the coordinator lied to one of them"
            )
        return sent.shares

    def mask_key(self) -> Public[bytes]:
        """Return this party's public key for masks in the present run, with its signature."""
        key = masking.public_key(self._secret())
        why = "a key, drawn without looking at rows"
        return Public(self.signed_key(key, masking.PURPOSE), why)

    def signed_key(self, key: bytes, purpose: bytes) -> bytes:
        """Return a public key of this run, and this party's signature of it for one purpose."""
        # A ledger that is only read pays for nothing.
        assert self.ledger.identity is not None
        return key + self.ledger.identity.sign(
            purpose, self._key_message(self.name, key)
        )

    def key_of(self, name: str, signed: bytes, purpose: bytes) -> bytes:
        """Check what `signed_key` gave another party, and return the public key in it.

        WireError if the party that the roster names did not sign it in this run.
        """
        key = signed[: masking.KEY]
        signature = signed[masking.KEY :]
        # Without the signature the coordinator could put a key of its own in a party's place, and
        # take off every mask and read every sealed share that is meant for that party.
        signer = self.terms.roster.get(name, b"")
        if not verify(signer, purpose, self._key_message(name, key), signature):
            raise WireError(
                f"party {self.name!r} was given a key that party {name!r} did not sign in this "
                "run. Nothing was released; find out who changed it"
            )
        return key

    def _key_message(self, name: str, key: bytes) -> bytes:
        """Return the bytes that a party signs for a key of its own."""
        # With the run, a key that was signed in an earlier one does not pass; with the name, a
        # party cannot pass another's key as its own.
        return b"\0".join((self._keyed_for.encode(), name.encode(), key))

    @property
    def _keyed_for(self) -> str:
        """The run to which a key belongs: the whole study's, or the stage's if that is not known.

        What is masked or encrypted under it is bound to its stage besides.
        """
        return self.terms.study or self._at.run

    def agree_with_dealer(self, key: bytes) -> bytes:
        """Compute the secret shared with the coordinator, whose key nobody signed."""
        return masking.agree_with(self._secret(), {"the coordinator": key})[
            "the coordinator"
        ]

    def _secret(self) -> bytes:
        """Return this party's X25519 secret of the run, which is drawn at the first use."""
        name = f"secret/{self._keyed_for}"
        secret = self._store.get(name)
        if secret is None:
            secret = masking.new_secret(self._source.at(name))
            # Stored before its public key leaves: after a kill the others would mask with a key
            # that this party no longer has.
            self._store.put(name, secret)
        return secret

    def agree(self, peers: Mapping[str, bytes]) -> dict[str, bytes]:
        """Compute the secret shared with every peer, once a run.

        WireError, before any secret is computed, if a key was not signed by its party.
        """
        run = self._at.run
        # The signed key is part of what is looked up: another key under a name that was checked
        # before is a new one, and is checked.
        unchecked = {
            name: signed
            for name, signed in peers.items()
            if (run, name, signed) not in self._agreed
        }
        keys = {
            name: self.key_of(name, signed, masking.PURPOSE)
            for name, signed in unchecked.items()
        }
        if keys:
            secrets = masking.agree_with(self._secret(), keys)
            for name, secret in secrets.items():
                self._agreed[run, name, unchecked[name]] = secret
        return {name: self._agreed[run, name, signed] for name, signed in peers.items()}

    def relay(
        self, words: masking.Words, readers: Mapping[str, bytes], context: str
    ) -> Relayed:
        """Encrypt masked words to other parties, to whom the coordinator relays them.

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
        """Decrypt the words that another party relayed to this one.

        WireError if they were changed, or are of another message, sender, reader or run.
        """
        try:
            inner = masking.unsealed(
                key, secret, self._bound_to(sender, self.name, context)
            )
            plain = masking.unsealed(data, inner, self._bound_to(sender, "", context))
        except WireError as error:
            raise WireError(
                f"party {self.name!r} cannot read what {sender!r} sent it through the coordinator: "
                f"{error}. Nothing was released; start a new run"
            ) from error
        return np.frombuffer(plain, dtype="<u4")

    def _bound_to(self, sender: str, reader: str, context: str) -> bytes:
        """Return the bytes that a relayed message is bound to; `reader` is empty for several."""
        return "\0".join((self._at.run, sender, reader, context)).encode()

    def sealed_here(self, item: messages.Sealed) -> bool:
        """Return whether this process sealed this very object."""
        # Without a seal, a handler could send a `Released` that it made itself, under any entry.
        if isinstance(item, Relayed):
            return item.seal == self._sealed("", [item.data, item.keys])
        return item.seal == self._sealed(item.entry, item.value)

    def answer(self, frame: bytes, handlers: Handlers) -> bytes:
        """Answer a frame, the bytes of an envelope, with the function that handles its request.

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
        # Another party's steps would be answered from these rows, and counted under its name.
        if envelope.to != self.name:
            raise WireError(f"a message for {envelope.to!r} came to {self.name!r}")
        first = self._answer(envelope, handlers)
        if not envelope.then:
            return first

        # The first answer is stored by now, so that the second step follows it as if it had come
        # by itself.
        second = messages.decode(self._answer(envelope.next, handlers), Envelope)
        joint = msgspec.structs.replace(
            messages.decode(first, Envelope), then=second.body
        )
        # Too large together: the second is asked again by itself.
        with suppress(WireError):
            return messages.encode(joint)
        return first

    def _answer(self, envelope: Envelope, handlers: Handlers) -> bytes:
        """Answer one question; if it was answered before, return the stored reply."""
        self._begin_run(envelope.run)
        name = f"reply/{envelope.run}/{envelope.step}"
        digest = messages.body_digest(envelope.body, envelope.sender)

        # A step that was answered gets the stored bytes: a new draw would be a second release.
        stored = self._store.get(name)
        if stored is not None:
            self._refuse_changed(envelope, stored, digest, "answered")
            if len(stored) == _DIGEST:
                raise WireError(
                    f"step {envelope.step} of run {envelope.run} was answered before, and the "
                    "reply is not kept; a second draw would be a second release. Start a new run, "
                    "or give the party a FolderStore."
                )
            self.answered_by = stored[_DIGEST : _DIGEST + _ENTRY].decode().strip()
            self._check_paid(self.answered_by)
            return stored[_DIGEST + _ENTRY :]

        # A step without a stored reply may still have been paid for, see both functions.
        self._refuse_again(envelope, digest)
        self._refuse_lost(envelope)
        data = self._answered(envelope, digest, handlers)

        # The reply is on disk before it is returned, and so before it is sent.
        entries = self.ledger.entries
        self.answered_by = entries[-1].hash if entries else ""
        paid = self.answered_by.ljust(_ENTRY).encode()
        self._store.put(name, digest + paid + data)
        return data

    def _answered(self, envelope: Envelope, digest: bytes, handlers: Handlers) -> bytes:
        """Call a handler and return its reply; if it fails after a charge, store the refusal.

        A charge counts also where an earlier attempt wrote its entry: a process that was killed
        after that has stored no refusal.
        """
        self._charged = []
        kind = "message"
        try:
            request = messages.decode_request(envelope.body, handlers)
            kind = type(request).__name__
            self._count_asked(envelope, str(type(request).__struct_config__.tag))
            self.begin(envelope)
            reply = handlers[type(request)](request, self)
            # Whatever a handler returns, nothing leaves that was not paid for at this site.
            messages.check_sealed(reply, self.sealed_here)
            return messages.encode(envelope.answered(messages.encode(reply)))
        except OSError:  # as a kill: no row decides it
            raise
        except Exception as error:
            place = f"party {self.name!r}, step {envelope.step} of run {envelope.run}"
            refused = self._refusal_of(error, place, kind)
            if refused is not error:
                _log.warning("%s: %s failed, %s in %s", place, kind, *places(error))
            if self._charged:
                # Stored before it is raised: asked again, the step must not draw anew.
                refusal = Refusal(type(refused).__name__, str(refused))
                self._store.put(
                    self._refused(envelope), digest + messages.encode(refusal)
                )
            if refused is error:
                raise
            raise refused from error

    def _refusal_of(self, error: Exception, place: str, kind: str) -> Exception:
        """Return the error that the coordinator is sent after a handler raised `error`.

        An error of this package says what its author meant to cross. Any other may name a value of
        a row, so that its text does not cross. Where bounded noise was paid for, and perhaps drawn,
        the text is fixed, since an error's wording may depend on rows and noise; only a BudgetError
        or LedgerError, which speaks of the ledger, crosses as it is.
        """
        is_unbounded = all(isinstance(event, NonPrivate) for event in self._charged)
        if not is_unbounded and not isinstance(error, BudgetError | LedgerError):
            return WireError(
                f"{place}: its {kind} failed after it was paid for. Nothing was sent, and it "
                "will not be drawn again; the party's own log says why"
            )
        if isinstance(error, SiloweaveError):
            return error
        return WireError(f"{place}: its {kind} cannot be answered")

    def _count_asked(self, envelope: Envelope, tag: str) -> None:
        """Refuse a question that is asked more often than the study's plan allows.

        Stored answers that are sent again do not come here. A question that was counted, and was
        not answered as the process was killed, is the last one.
        """
        if self.terms.question_limits is None:
            return
        name = f"asked/{envelope.run}"
        # A question that the plan lacks is never answered.
        most = self.terms.question_limits.get(tag, 0)
        stored = self._store.get(name)
        before = (
            messages.decode(stored, _QuestionCounts) if stored else _QuestionCounts()
        )
        if (before.step, before.tag) == (envelope.step, tag):
            return

        times = before.times.get(tag, 0) + 1
        if times > most:
            raise WireError(
                f"party {self.name!r} was asked {tag!r} {times} times in run {envelope.run!r}; by "
                f"the study's plan it answers {most}. Nothing was released"
            )
        # Counted before it is answered: a question after a kill must not be free of charge.
        counted = _QuestionCounts(envelope.step, tag, before.times | {tag: times})
        self._store.put(name, messages.encode(counted))

    def _refused(self, envelope: Envelope) -> str:
        """Return the store's name for the refusal of a step."""
        return f"refused/{envelope.run}/{envelope.step}"

    def _refuse_again(self, envelope: Envelope, digest: bytes) -> None:
        """Raise the stored refusal of a step that was refused after it was paid for."""
        stored = self._store.get(self._refused(envelope))
        if stored is None:
            return
        self._refuse_changed(envelope, stored, digest, "refused")
        raise messages.decode(stored[_DIGEST:], Refusal).error()

    def _refuse_changed(
        self, envelope: Envelope, stored: bytes, digest: bytes, done: str
    ) -> None:
        """Refuse a step that was asked before with another body, or by somebody else."""
        # A stored reply would answer a question that it does not fit.
        if stored[:_DIGEST] != digest:
            raise WireError(
                f"party {self.name!r}: step {envelope.step} of run {envelope.run} was {done} "
                "before for another request; a step is asked once. Start a new run, with a name "
                "of its own (run=...)."
            )

    def _begin_run(self, run: str) -> None:
        """Store with which rows a run began, before anything of it is paid for.

        Where the run was paid for, LedgerError if the store knows nothing of it: what was sent is
        gone, and a second draw would not be charged; StudyError if that was with other rows.
        """
        if run in self._begun:
            return
        name = f"begun/{run}"
        rows = self._digest()
        rows_before = self._store.get(name)
        if rows_before != rows:
            # Rows of a run that has paid for nothing may still change. Once it has paid, later
            # answers would be of other rows than those that its ledger's entries are about.
            paid = any(entry.run == run for entry in self.ledger.entries)
            if paid and rows_before is None:
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
        """Refuse to send a stored reply again if its payment is gone from the ledger's file.

        The file is read once.

        What was found there once need not be looked up again: a run that resumes asks for
        thousands of stored replies, and the ledger that paid for them is as long.
        """
        if entry in self._paid:
            return
        # A reply sent again without its entry would be a release that no ledger shows.
        required = [entry] if entry else []
        self.ledger.verify(required)
        self._paid = {"", *(payment.hash for payment in self.ledger.entries)}

    def _refuse_lost(self, envelope: Envelope) -> None:
        """Refuse a step whose reply was sent, and is lost."""
        for entry in reversed(self.ledger.entries):
            step = _step_of(entry)
            # A number that stays at the party is charged under words, not under a step.
            if entry.run != envelope.run or not step.isdecimal():
                continue
            # Only the run's last payment counts. One of this very step, whose draw was never
            # sent, pays for the next draw.
            why = ""
            if int(step) > envelope.step:
                why = f"for step {step} was paid after it"
            elif int(step) == envelope.step and self._was_answered(entry):
                why = "as this machine noted"
            if why:
                raise LedgerError(
                    f"party {self.name!r}: step {envelope.step} of run {envelope.run} was "
                    f"answered, {why}, and the reply is gone. {_LOST}"
                )
            return

    def _refuse_older(self) -> None:
        """Refuse to go on where the store lacks the answer to the last paid step before this one.

        An older copy of the store was put back. It may also have forgotten numbers that stay here
        and lists that were shown, which decide what later answers may show. Without it a party is
        only asked for what it never pays for, such as its ledger as the run ends.
        """
        run = self._at.run
        if run in self._whole:
            return
        steps = [_step_of(entry) for entry in self.ledger.entries if entry.run == run]
        # A process that was killed has paid for this step, and not answered it.
        earlier = [
            step for step in steps if step.isdecimal() and int(step) != self._at.step
        ]
        if earlier:
            last = earlier[-1]
            names = (f"reply/{run}/{last}", f"refused/{run}/{last}")
            if all(self._store.get(name) is None for name in names):
                raise LedgerError(
                    f"party {self.name!r}: step {last} of run {run} was paid for, and step "
                    f"{self._at.step} may follow its answer alone, which is gone. {_LOST}"
                )
        self._whole.add(run)

    def _refuse_lost_number(self, step: str) -> None:
        """Refuse to draw a number anew that stays here, once it may have steered an answer.

        Only a process that was killed before it stored the number has paid for it in vain; its
        entry is then the run's last one.
        """
        run_entries = [
            entry for entry in self.ledger.entries if entry.run == self._at.run
        ]
        steps = [entry.step for entry in run_entries]
        if step not in steps:
            return
        payment = run_entries[steps.index(step)]
        if payment is not run_entries[-1] or self._was_answered(payment):
            raise LedgerError(
                f"party {self.name!r}: {payment.what!r} of run {self._at.run} was paid for and "
                f"drawn, and the number is gone. {_LOST}"
            )

    def _was_answered(self, entry: Entry) -> bool:
        """Return whether an answer was given when the ledger had this entry, or a later one."""
        last_answered = self._last_answered()
        for later in reversed(self.ledger.entries):
            if later.hash == last_answered:
                return True
            if later.hash == entry.hash:
                return False
        return False


def places(error: BaseException) -> tuple[str, str]:
    """Describe an error by its class and its place in the code.

    Not the error's text, which may name a value of a row.
    """
    frames = extract_tb(error.__traceback__)[-3:]
    calls = [
        f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames
    ]
    return type(error).__name__, " > ".join(calls)


def _step_of(entry: Entry) -> str:
    """Return the step of a run that an entry paid for.

    Words, such as "kept rows", for a number that stays at the party.
    """
    return entry.step.partition(".")[0]
