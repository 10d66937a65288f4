"""What a coordinator holds of a run: a roster, the line to the parties, and what crossed it.

The last message of a run is `Close`: every party sends its ledger as it stands after the run, so
that a coordinator reads no party's file, in one process or over a network.

**Guarantee**: a ledger holds what was released and what that costs, and no value that came from
rows, so it may be sent. The coordinator checks that its lines are one unbroken chain of hashes up
to its head, and that the chain holds every entry that paid for a reply of this session. An entry's
hash covers all lines before it, so a party that changes or removes a line up to the last of these
entries is refused by name. It can still send less than it added after that entry. A carrier adds
no guarantee: a party answers frames as over any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

import msgspec

from siloweave.errors import LedgerError, RosterError, SiloweaveError, WireError
from siloweave.federation import course, messages, records
from siloweave.federation.carriers.carrier import Carrier
from siloweave.federation.dropouts import MaskPlan
from siloweave.federation.messages import (
    Envelope,
    Masked,
    Public,
    Reply,
    Request,
    items,
    payments,
    reply_type,
)
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.events import UNREADABLE
from siloweave.privacy.ledger import Entry, check_chain, written
from siloweave.progress import Stopwatch

Entries = tuple[Entry, ...]
R = TypeVar("R", bound=Reply)
T = TypeVar("T")
_WHY = "a ledger holds no value that came from rows"
_LOOK_S = 0.2  # after so long, an interrupt is seen


class Closed(Reply, frozen=True):
    """A party's ledger: its first line, its entries as JSON, and the hash of its last line."""

    header: Public[bytes]
    entries: Public[bytes]
    head: Public[str]


class Close(Request[Closed], frozen=True, tag="run/close"):
    """Send your ledger; nothing follows in this run."""


class Parted(Reply, frozen=True):
    """A party has heard that the study has ended; holds nothing."""


class Part(Request[Parted], frozen=True, tag="run/part"):
    """The coordinator has its result, and asks nothing more: the party may end.

    Attributes:
        table: The synthetic table as CSV, which is public; empty where it is not sent.
        report: The public report, a page; empty where it is not sent.
    """

    table: bytes = b""
    report: bytes = b""


@dataclass(frozen=True)
class Closing:
    """The ledgers that a run's last messages brought.

    Attributes:
        ledgers: Every party's entries, of this and earlier runs.
        heads: The hash of each ledger's last line.
        files: Each ledger's file, as the party has it.
    """

    ledgers: dict[str, Entries]
    heads: dict[str, str]
    files: dict[str, bytes]


def closed(request: Close, site: Site[Any]) -> Closed:
    """Send the party's ledger as it is."""
    ledger = site.ledger
    entries = msgspec.json.encode(ledger.entries)
    return Closed(
        header=Public(ledger.header, _WHY),
        entries=Public(entries, _WHY),
        head=Public(ledger.head, _WHY),
    )


def with_closing(handlers: Handlers) -> Handlers:
    """Add to a party's handlers the one for the message that ends every run."""
    return {**handlers, Close: closed}


def _entries_in(party: str, reply: Closed, paid: set[str]) -> Entries:
    """Return a party's ledger entries, checked against those that paid for its replies."""
    messages.check_json(reply.entries.value)
    try:
        entries = msgspec.json.decode(reply.entries.value, type=Entries)
        # An unbroken chain shows that no line before the head was changed or removed.
        check_chain(entries, reply.head.value)
    except (*UNREADABLE, LedgerError) as error:
        raise WireError(
            f"party {party!r} sent a ledger that cannot be read: {error}"
        ) from error

    # A chain that was cut off, or written anew from some line on, is unbroken as well; what it
    # then lacks is an entry that this session has seen at work.
    missing = paid - {entry.hash for entry in entries}
    if missing:
        raise WireError(
            f"party {party!r} sent a ledger without the entry {min(missing)[:16]}, which paid for "
            "one of its replies. Its end was cut off, or two copies of the party's folder have "
            "answered, of which each has a part of what was released: see that one runs, and "
            "compare the ledger at the party with the coordinator's receipts"
        )
    return entries


@contextmanager
def naming_step(question: Envelope) -> Iterator[None]:
    """Add the party and the step to an error about an answer."""
    try:
        yield
    except WireError as error:
        raise WireError(
            f"party {question.to!r}, step {question.step}: {error}"
        ) from error


def _never(answered: Set[str]) -> bool:
    """Return False: the rule of a step that waits for all answers."""
    return False


class Session:
    """The coordinator's side of a run: it asks the parties, and checks their answers.

    Args:
        roster: Names, in the order of the replies.
        carrier: How frames travel.
        run: Name of the run; a run that is started again under its name resumes.
        stored: Files of what the coordinator receives; none if None.
        at_once: Parties that are asked at the same time, at least.
        tolerated: Parties that may pool what they know with the coordinator.
        dropouts: Parties of a sum that may vanish.
        status: Where it is written down who was asked and who answered; nowhere if None.
        proofs: By reader and sender, what a sum's parties are still to show each other, which all
            stages of a run share.
        asking: Runs while an answer is awaited without which the run does not go on.

    Raises:
        RosterError: if the roster is empty or names a party twice.
    """

    def __init__(
        self,
        roster: Sequence[str],
        carrier: Carrier,
        *,
        run: str,
        stored: records.RunRecords | None = None,
        at_once: int = 1,
        tolerated: int = 1,
        dropouts: int = 0,
        status: course.StatusFile | None = None,
        proofs: dict[str, dict[str, bytes]] | None = None,
        asking: Stopwatch | None = None,
    ) -> None:
        if not roster:
            raise RosterError("the roster is empty; a study needs at least one party")
        # Under one name, two parties' answers would replace each other.
        repeated = [name for name, count in Counter(roster).items() if count > 1]
        if repeated:
            raise RosterError(
                f"the roster names {', '.join(repeated)} twice; every party needs its own name"
            )
        self.roster = tuple(roster)
        self.run = run
        self.sender = "coordinator"
        self.traffic = {name: course.Traffic() for name in roster}
        self.rounds = 0
        self.tolerated = tolerated
        self.dropouts = dropouts
        self._stored = stored or records.RunRecords()
        self._absences = self._stored.absences
        self._vanished: dict[str, int] = {}
        if self._absences is not None:
            self._vanished = self._absences.of(run)
        self.gone: set[str] = set()
        """Parties that did not answer where some may vanish; they are asked again in `close`."""
        self._paid: dict[str, set[str]] = {name: set() for name in roster}
        self._carrier = carrier
        self._at_once = at_once
        self._asking = asking or Stopwatch()
        self._status = status
        self._question = ""  # tag of the last one, for the status
        # What came with the last answers.
        self._closed: dict[str, tuple[Envelope, bytes]] = {}
        # Not waited for.
        self._late: dict[str, Future[tuple[course.Traffic, bytes] | None]] = {}
        self._along = False  # whether the last question had the one along that closes
        self._proofs = {} if proofs is None else proofs

    @property
    def simulated(self) -> bool:
        """Return whether one process has the rows of all parties."""
        return self._carrier.simulated

    def recall(self, names: Sequence[str]) -> dict[str, dict[str, bytes]]:
        """Return values that every party of a simulation has stored in this run, by name.

        That is no message: it is not counted, and no party elsewhere answers it.
        """
        return {
            name: self._carrier.recall(name, self.run, names) for name in self.roster
        }

    def ask(
        self,
        request: Request[R],
        to: Sequence[str] | None = None,
        *,
        at_once: int = 1,
        last: bool = False,
    ) -> list[R]:
        """Ask parties the same question; all must answer. The replies have the order of `to`.

        `at_once` may work at the same time, in threads of this process; replies, and what is stored
        of them, do not depend on it. The `last` question of a run brings the one along that closes
        it, if all parties are asked it; if another follows after all, the run is closed once more.

        Raises:
            RosterError: if a party is unknown, asked twice, or does not answer.
            WireError: if an answer is malformed, or answers another question; names the party.
        """
        names = self.roster if to is None else tuple(to)
        if len(set(names)) < len(names):
            raise RosterError(
                f"asked {list(names)}; a party counts once, so ask it once"
            )
        return self.ask_each(dict.fromkeys(names, request), at_once=at_once, last=last)

    def ask_each(
        self,
        requests: Mapping[str, Request[R]],
        *,
        at_once: int = 1,
        last: bool = False,
    ) -> list[R]:
        """Ask some parties in one step, each another question; all else as of `ask`."""
        closes = last and set(requests) == set(self.roster)
        then = messages.encode(Close()) if closes else b""
        return self._asked(requests, at_once, then)

    def plan(self, cohort: Iterable[str]) -> MaskPlan:
        """Plan who masks with whom in a cohort's sum, and how many of its parties may vanish."""
        return MaskPlan.of(cohort, self.tolerated, self.dropouts)

    def present(self, names: Iterable[str]) -> list[str]:
        """Return the names of those parties that have not vanished."""
        return [name for name in names if name not in self.gone]

    def ask_present(
        self,
        requests: Mapping[str, Request[R]],
        may_vanish: int,
        *,
        at_once: int = 1,
        last: bool = False,
        enough: Callable[[Set[str]], bool] = _never,
    ) -> dict[str, R]:
        """Ask some parties in one step, and return the replies of those that do not vanish.

        A party whose carrier raises RosterError is gone, and is not asked again in the run, also
        if that is started again. `last` is as of `ask`, as long as nobody is gone. Once the names
        of those that answered are `enough`, no other party is waited for. It is not gone: the next
        question to it waits until this one is answered, or its carrier gives it up.

        Raises:
            RosterError: if more are gone; names them. Nobody else is asked from there on, and the
                run may be started again when those of this step are back.
            WireError: as of `ask`.
        """
        self._check_roster(requests)
        step = self.rounds
        # A run that is started again must lose the same parties at the same step as before: its
        # parties open a sum once, for one list.
        self.gone |= {name for name, since in self._vanished.items() if since <= step}
        self._require(requests, may_vanish)
        if not self.dropouts:
            replies = self._asked(requests, at_once)
            return dict(zip(requests, replies, strict=True))

        present = {
            name: request for name, request in requests.items() if name not in self.gone
        }
        closes = last and set(present) == set(self.roster)
        then = messages.encode(Close()) if closes else b""
        questions = list(self._envelopes(present, self.rounds, then))
        self.rounds += 1
        # By any thread of this step, so that the others see it at once.
        lost = set[str]()

        def send(envelope: Envelope) -> tuple[course.Traffic, bytes] | None:
            # Nobody else is asked once the step cannot succeed: what they would release now is
            # paid for, and opens nothing.
            self._require(requests, may_vanish, lost)
            late = self._late.pop(envelope.to, None)
            try:
                # A party takes one question at a time: its last one must end first.
                if late is None or late.result() is not None:
                    return self._sent(envelope)
            except RosterError:
                pass
            lost.add(envelope.to)
            return None

        # A question that closes the run is answered by all: each ledger is needed.
        enough = _never if closes else enough
        with self._asking:
            envelopes = [envelope for envelope, _ in questions]
            pending = self._each(send, envelopes, at_once, enough)
        late = {name: future for name, future in pending.items() if not future.done()}
        self._late |= late
        answers = {
            name: future.result()
            for name, future in pending.items()
            if name not in late
        }
        self.gone |= {name for name, answer in answers.items() if answer is None}

        # Who vanished is on disk before any reply of the step is used, see above.
        self._require(requests, may_vanish)
        if self._absences is not None:
            for name in self.gone.intersection(present):
                self._absences.record(self.run, step, name)

        received: dict[str, R] = {}
        for envelope, kind in questions:
            answer = answers.get(envelope.to)
            if answer is not None:
                received[envelope.to] = self._received(envelope, kind, *answer)
        return received

    def _check_roster(self, names: Mapping[str, Any]) -> None:
        """Raise RosterError for a step that asks nobody, or parties outside the roster."""
        if not names or not self.traffic.keys() >= names.keys():
            raise RosterError(f"asked {list(names)}; the roster is {list(self.roster)}")

    def _require(
        self, names: Iterable[str], may_vanish: int, lost: Set[str] = frozenset()
    ) -> None:
        """Raise RosterError if more of these parties have vanished than may.

        `lost` are those that vanished in this step.
        """
        absent = self.gone | lost
        if sum(name in absent for name in names) > may_vanish:
            parties = ", ".join(
                f"party {name!r}" for name in self.roster if name in absent
            )
            raise RosterError(
                f"{parties} did not answer, and {self.dropouts} may vanish from a sum, of few "
                "parties fewer. Nothing was opened; start the run again when they are back, or a "
                "new one with more dropouts"
            )

    def _asked(
        self, requests: Mapping[str, Request[R]], at_once: int, then: bytes = b""
    ) -> list[R]:
        """Ask some parties in one step, all of which must answer; the replies have their order."""
        self._check_roster(requests)
        # The last question closed the run, and another one follows: the close was a step.
        self.rounds += self._along
        self._along = bool(then)
        questions = self._envelopes(requests, self.rounds, then)
        self.rounds += 1

        # One by one, a large request is freed before the next one is encoded.
        is_serial = max(at_once, self._at_once) == 1
        batches = (
            ([question] for question in questions) if is_serial else [list(questions)]
        )
        replies = list[R]()
        for batch in batches:
            with self._asking:
                envelopes = [envelope for envelope, _ in batch]
                answers = self._each(self._sent, envelopes, at_once, _never)
            for envelope, kind in batch:
                crossed, answer = answers[envelope.to].result()
                replies.append(self._received(envelope, kind, crossed, answer))
        return replies

    def _each(
        self,
        send: Callable[[Envelope], T],
        envelopes: Sequence[Envelope],
        at_once: int,
        enough: Callable[[Set[str]], bool],
    ) -> dict[str, Future[T]]:
        """Send each question, some at the same time; of several errors the first party's is raised.

        An interrupt, or what a party on another machine refuses, waits for no other one there: that
        may take an hour. Nor are others waited for once those that gave something are `enough`.
        """
        answers: dict[str, Future[T]] = {
            envelope.to: Future() for envelope in envelopes
        }
        # One iterator for all threads: each takes the next question that nobody has.
        queue = iter([(envelope, answers[envelope.to]) for envelope in envelopes])
        threads = max(at_once, self._at_once)
        if threads == 1:
            for envelope, answer in queue:
                answer.set_result(send(envelope))
            return answers

        for _ in range(min(threads, len(answers))):
            Thread(target=_work, args=(queue, send), daemon=True).start()
        try:
            while wait(answers.values(), _LOOK_S).not_done:
                # Parties in this process (`self._at_once` is 1) are all waited for, so that no
                # thread goes on with their rows.
                if self._at_once > 1 and enough(_gave(answers)):
                    break
        except BaseException:
            # Emptied first, so that no thread takes another question.
            for _, answer in queue:
                answer.cancel()
                answer.set_running_or_notify_cancel()
            # What a party in this process has begun, it finishes.
            if self._at_once == 1:
                wait(answers.values())
            raise
        _gave(answers)
        return answers

    def _envelopes(
        self, requests: Mapping[str, Request[R]], step: int, then: bytes = b""
    ) -> Iterator[tuple[Envelope, type[R]]]:
        """Yield a step's questions one by one, as they may be large, with the types of replies.

        A request that is one object for several parties is encoded once.
        """
        last_request: Request[R] | None = None
        body = b""
        # Taken before the first answer comes, which brings new ones.
        proofs = {name: self._proofs.pop(name, {}) for name in requests}
        self._closed = {}
        for name, request in requests.items():
            if request is not last_request:
                last_request = request
                body = messages.encode(request)
                self._question = str(type(request).__struct_config__.tag)
            kind = reply_type(type(request))
            envelope = Envelope(
                self.run, step, self.sender, name, body, then, proofs[name]
            )
            yield envelope, kind

    def close(self) -> Closing:
        """End the run: collect every party's ledger, except from parties that are gone.

        WireError, which names the party, if a ledger was changed, or lacks what paid for a reply.
        """
        came_along = len(self._closed) == len(self.roster)
        replies = self._closed_replies() if came_along else self._ask_to_close()

        paid = dict(self._paid)
        # Of stages before, and of what was asked before a restart.
        receipts = self._stored.receipts
        if receipts is not None:
            paid = {name: paid[name] | receipts.paid(name, self.run) for name in paid}
        ledgers = {
            name: _entries_in(name, reply, paid[name])
            for name, reply in replies.items()
        }
        heads = {name: reply.head.value for name, reply in replies.items()}
        files = {
            name: written(reply.header.value, ledgers[name])
            for name, reply in replies.items()
        }
        return Closing(ledgers, heads, files)

    def _closed_replies(self) -> dict[str, Closed]:
        """Read the ledgers that came with the last answers."""
        replies = {}
        for name in self.roster:
            envelope, body = self._closed[name]
            with naming_step(envelope):
                replies[name] = self._read(envelope, body, Closed)
        return replies

    def _ask_to_close(self) -> dict[str, Closed]:
        """Ask every party for its ledger; one that vanished sends it only if it is back."""
        # What came with the last question is asked as the same step.
        self._along = False
        absent = self.gone
        self.gone = set()
        self._vanished = {}
        # Being absent now is no absence from a sum: a run that is started again must not have it.
        self._absences = None

        requests = dict.fromkeys(self.roster, Close())
        present = set(self.roster) - absent
        return self.ask_present(
            requests,
            len(absent),
            at_once=max(1, len(absent)),
            enough=present.issubset,
        )

    def _sent(self, envelope: Envelope) -> tuple[course.Traffic, bytes]:
        """Send a question; return the traffic of both ways, and the party's answer."""
        frame = messages.encode(envelope)
        status = self._status
        if status is not None:
            status.asked(envelope.step, self._question, envelope.to)
        try:
            answer = self._carrier.send(envelope.to, frame)
        except SiloweaveError as error:
            if status is not None:
                status.refused(envelope.to, str(error))
            raise
        # Sealed frames are longer than what they hold; their carrier counts them itself.
        sent, received = self._carrier.sizes.get(envelope.to, (len(frame), len(answer)))
        if status is not None:
            status.answered(envelope.to, sent, received)
        return course.Traffic(1, sent, received), answer

    def _received(
        self, envelope: Envelope, kind: type[R], crossed: course.Traffic, answer: bytes
    ) -> R:
        """Count an answer, open it, write it down, and decode it."""
        name = envelope.to
        self.traffic[name] += crossed
        with naming_step(envelope):
            reply = messages.answer_to(envelope, answer)
            if envelope.then and reply.then:
                # Read in `close`: what closes a run is of no use where another question follows.
                self._closed[name] = envelope.next, reply.then
            return self._read(envelope, reply.body, kind)

    def _read(self, envelope: Envelope, body: bytes, kind: type[R]) -> R:
        """Write a reply down, decode it, and remember its payments and proofs."""
        run = envelope.run
        step = envelope.step
        name = envelope.to
        # Before it is decoded: what a party sent is on record, also if it cannot be read.
        if self._stored.transcript is not None:
            record = records.TranscriptRecord(run, step, name, envelope.body, body)
            self._stored.transcript.record(record)
        reply = messages.decode(body, kind)
        self._paid[name] |= payments(reply)
        for _, item in items(reply):
            if isinstance(item, Masked):
                # Each goes to its reader with the next question to it.
                for reader, proof in item.proofs.items():
                    self._proofs.setdefault(reader, {})[name] = proof
        receipts = self._stored.receipts
        if receipts is not None:
            receipts.record(run, step, name, reply)
        return reply


def _work(
    queue: Iterator[tuple[Envelope, Future[T]]], send: Callable[[Envelope], T]
) -> None:
    """Send the questions of a queue that threads share, until it is empty."""
    for envelope, answer in queue:
        # From here on nobody can cancel it, so that its result is set exactly once.
        answer.set_running_or_notify_cancel()
        try:
            answer.set_result(send(envelope))
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            answer.set_exception(error)


def _gave(answers: Mapping[str, Future[Any]]) -> set[str]:
    """Return who has answered with a value so far; raise the first error of those done."""
    return {
        name
        for name, answer in answers.items()
        if answer.done() and answer.result() is not None
    }
