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
    """What a run's last message brought.

    Attributes:
        ledgers: Every party's entries, of this and earlier runs.
        heads: The hash of each ledger's last line.
        files: Each ledger's file, as the party has it.
    """

    ledgers: dict[str, Entries]
    heads: dict[str, str]
    files: dict[str, bytes]


def closed(request: Close, site: Site[Any]) -> Closed:
    """The party's ledger, as it is."""
    text = msgspec.json.encode(site.ledger.entries)
    ledger = site.ledger
    header, head = Public(ledger.header, _WHY), Public(ledger.head, _WHY)
    return Closed(header, Public(text, _WHY), head)


def with_closing(handlers: Handlers) -> Handlers:
    """A party's side of a method, and of the message that ends every run."""
    return {**handlers, Close: closed}


def _entries_in(party: str, reply: Closed, paid: set[str]) -> Entries:
    """A party's entries, checked; `paid` are the hashes of those that paid for its replies."""
    messages.check_json(reply.entries.value)
    try:
        entries = msgspec.json.decode(reply.entries.value, type=Entries)
        check_chain(entries, reply.head.value)
    except (*UNREADABLE, LedgerError) as error:
        raise WireError(f"party {party!r} sent a ledger that cannot be read: {error}") from error
    if missing := paid - {entry.hash for entry in entries}:
        raise WireError(
            f"party {party!r} sent a ledger without the entry {min(missing)[:16]}, which paid for "
            "one of its replies. Its end was cut off, or two copies of the party's folder have "
            "answered, of which each has a part of what was released: see that one runs, and "
            "compare the ledger at the party with the coordinator's receipts"
        )
    return entries


@contextmanager
def naming_step(asked: Envelope) -> Iterator[None]:
    """Let an error about an answer name its party and step."""
    try:
        yield
    except WireError as error:
        raise WireError(f"party {asked.to!r}, step {asked.step}: {error}") from error


def _never(heard: Set[str]) -> bool:
    """All answers are waited for."""
    return False


class Session:
    """The parties of a run.

    Args:
        roster: Names, in the order of the replies.
        carrier: How frames travel.
        run: Name of the run; a run that is started again under its name resumes.
        transcript: Where every answer is stored; nowhere if None.
        receipts: Where the payments in answers are kept; nowhere if None.
        at_once: Parties that are asked at the same time, at least.
        tolerated: Parties that may pool what they know with the coordinator.
        dropouts: Parties of a sum that may vanish.
        status: Where it is written down who was asked and who answered; nowhere if None.
        absences: Where it is kept who vanished; nowhere if None.
        sizes: By party, the bytes of the last question and of its answer, where more is sent than
            their frames, which are counted otherwise.
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
        transcript: records.FolderTranscript | None = None,
        receipts: records.Receipts | None = None,
        at_once: int = 1,
        tolerated: int = 1,
        dropouts: int = 0,
        status: course.StatusFile | None = None,
        absences: records.Absences | None = None,
        sizes: Mapping[str, tuple[int, int]] | None = None,
        proofs: dict[str, dict[str, bytes]] | None = None,
        asking: Stopwatch | None = None,
    ) -> None:
        if not roster:
            raise RosterError("the roster is empty; a study needs at least one party")
        twice = [name for name, count in Counter(roster).items() if count > 1]
        if twice:
            raise RosterError(
                f"the roster names {', '.join(twice)} twice; every party needs its own name"
            )
        self.roster = tuple(roster)
        self.run = run
        self.sender = "coordinator"
        self.traffic = {name: course.Traffic() for name in roster}
        self.rounds = 0
        self.tolerated, self.dropouts = tolerated, dropouts
        self._absences = absences
        self._vanished = absences.of(run) if absences else {}
        self.gone: set[str] = set()
        """Parties that did not answer where some may vanish; they are asked again in `close`."""
        self._paid: dict[str, set[str]] = {name: set() for name in roster}
        self._carrier = carrier
        self._sizes = {} if sizes is None else sizes
        self._transcript = transcript
        self._receipts = receipts
        self._at_once, self._asking = at_once, asking or Stopwatch()
        self._status, self._question = status, ""
        self._closed: dict[str, tuple[Envelope, bytes]] = {}  # what came with the last answers
        self._late: dict[str, Future[tuple[course.Traffic, bytes] | None]] = {}  # not waited for
        self._along = False  # whether the last question had the one along that closes
        self._proofs = {} if proofs is None else proofs

    @property
    def simulated(self) -> bool:
        """Whether one process has the rows of all parties."""
        return self._carrier.simulated

    def recall(self, names: Sequence[str]) -> dict[str, dict[str, bytes]]:
        """Return what every party of a simulation has stored in this run under some names.

        That is no message: it is not counted, and no party elsewhere answers it.
        """
        return {name: self._carrier.recall(name, self.run, names) for name in self.roster}

    def ask(
        self,
        request: Request[R],
        to: Sequence[str] | None = None,
        *,
        at_once: int = 1,
        last: bool = False,
    ) -> list[R]:
        """Ask parties, or some in any order, the same thing; all must answer, in the order of `to`.

        `at_once` may work at the same time, in threads of this process; replies, and what is stored
        of them, do not depend on it. The `last` question of a run brings the one along that closes
        it, if all parties are asked it; if another follows after all, the run is closed once more.

        Raises:
            RosterError: if a party is unknown, asked twice, or does not answer.
            WireError: if an answer is malformed, or answers another question; names the party.
        """
        names = self.roster if to is None else tuple(to)
        if len(set(names)) < len(names):
            raise RosterError(f"asked {list(names)}; a party counts once, so ask it once")
        return self.ask_each(dict.fromkeys(names, request), at_once=at_once, last=last)

    def ask_each(
        self, requests: Mapping[str, Request[R]], *, at_once: int = 1, last: bool = False
    ) -> list[R]:
        """Ask some parties in one step, each something else; all else as of `ask`."""
        closes = last and set(requests) == set(self.roster)
        return self._asked(requests, at_once, messages.encode(Close()) if closes else b"")

    def plan(self, cohort: Iterable[str]) -> MaskPlan:
        """Who masks with whom in a sum over a cohort, and how many of it may vanish."""
        return MaskPlan.of(cohort, self.tolerated, self.dropouts)

    def present(self, names: Iterable[str]) -> list[str]:
        """Those that are not gone."""
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
        """Ask some parties in one step, of whom so many may vanish: the replies of the others.

        A party whose carrier raises RosterError is gone, and is not asked again in the run, also
        if that is started again. `last` is as of `ask`, as long as nobody is gone. Once the names
        of those that answered are `enough`, no other party is waited for. It is not gone: the next
        question to it waits until this one is answered, or its carrier gives it up.

        Raises:
            RosterError: if more are gone; names them. Nobody else is asked from there on, and the
                run may be started again when those of this step are back.
            WireError: as of `ask`.
        """
        if not requests or not self.traffic.keys() >= requests.keys():
            raise RosterError(f"asked {list(requests)}; the roster is {list(self.roster)}")
        step = self.rounds
        self.gone |= {name for name, since in self._vanished.items() if since <= step}
        self._require(requests, may_vanish)
        if not self.dropouts:
            return dict(zip(requests, self._asked(requests, at_once), strict=True))
        asked = {name: one for name, one in requests.items() if name not in self.gone}
        closes = last and set(asked) == set(self.roster)
        then = messages.encode(Close()) if closes else b""
        envelopes = list(self._envelopes(asked, self.rounds, then))
        self.rounds += 1
        lost = set[str]()

        def sent(one: Envelope) -> tuple[course.Traffic, bytes] | None:
            self._require(requests, may_vanish, lost)
            late = self._late.pop(one.to, None)
            try:
                if late is None or late.result() is not None:
                    return self._sent(one)
            except RosterError:
                pass
            lost.add(one.to)
            return None

        enough = _never if closes else enough
        with self._asking:
            found = self._each(sent, [one for one, _ in envelopes], at_once, enough)
        late = {name: future for name, future in found.items() if not future.done()}
        self._late |= late
        answers = {name: one.result() for name, one in found.items() if name not in late}
        self.gone |= {name for name, answer in answers.items() if answer is None}
        self._require(requests, may_vanish)
        if self._absences is not None:
            for name in self.gone.intersection(asked):
                self._absences.record(self.run, step, name)
        return {
            one.to: self._received(one, kind, *answer)
            for one, kind in envelopes
            if (answer := answers.get(one.to)) is not None
        }

    def _require(self, names: Iterable[str], may_vanish: int, lost: Set[str] = frozenset()) -> None:
        missing = self.gone | lost
        if sum(name in missing for name in names) > may_vanish:
            gone = ", ".join(f"party {name!r}" for name in self.roster if name in missing)
            raise RosterError(
                f"{gone} did not answer, and {self.dropouts} may vanish from a sum, of few "
                "parties fewer. Nothing was opened; start the run again when they are back, or a "
                "new one with more dropouts"
            )

    def _asked(
        self, requests: Mapping[str, Request[R]], at_once: int, then: bytes = b""
    ) -> list[R]:
        if not requests or not self.traffic.keys() >= requests.keys():
            raise RosterError(f"asked {list(requests)}; the roster is {list(self.roster)}")
        self.rounds += self._along  # a step of its own
        self._along = bool(then)
        asked = self._envelopes(requests, self.rounds, then)
        self.rounds += 1
        alone, found = max(at_once, self._at_once) == 1, list[R]()
        for some in ([one] for one in asked) if alone else [list(asked)]:
            with self._asking:
                answers = self._each(self._sent, [one for one, _ in some], at_once, _never)
            found += [self._received(one, kind, *answers[one.to].result()) for one, kind in some]
        return found

    def _each(
        self,
        send: Callable[[Envelope], T],
        asked: Sequence[Envelope],
        at_once: int,
        enough: Callable[[Set[str]], bool],
    ) -> dict[str, Future[T]]:
        """What a function gives for each question, some at the same time; an error is the first's.

        An interrupt, or what a party on another machine refuses, waits for no other one there: that
        may take an hour. Nor are others waited for once those that gave something are `enough`.
        """
        found: dict[str, Future[T]] = {one.to: Future() for one in asked}
        left = iter([(one, found[one.to]) for one in asked])
        if (at_once := max(at_once, self._at_once)) == 1:
            for one, future in left:
                future.set_result(send(one))
            return found
        for _ in range(min(at_once, len(found))):
            Thread(target=_work, args=(left, send), daemon=True).start()
        try:
            while wait(found.values(), _LOOK_S).not_done:
                if self._at_once > 1 and enough(_gave(found)):
                    break
        except BaseException:
            for _, future in left:  # nobody else is asked
                future.cancel()
                future.set_running_or_notify_cancel()
            if self._at_once == 1:  # what a party in this process has begun, it finishes
                wait(found.values())
            raise
        _gave(found)
        return found

    def _envelopes(
        self, requests: Mapping[str, Request[R]], step: int, then: bytes = b""
    ) -> Iterator[tuple[Envelope, type[R]]]:
        """One by one, as the requests of a step may be large; one for all is encoded once."""
        before, body = None, b""
        proofs = {name: self._proofs.pop(name, {}) for name in requests}  # before answers bring new
        self._closed = {}
        for name, request in requests.items():
            if request is not before:
                before, body = request, messages.encode(request)
                self._question = str(type(request).__struct_config__.tag)
            kind = reply_type(type(request))
            yield Envelope(self.run, step, self.sender, name, body, then, proofs[name]), kind

    def close(self) -> Closing:
        """End the run: every party sends its ledger, but for those that are gone and not back.

        WireError, which names the party, if a ledger was changed, or lacks what paid for a reply.
        """
        replies = {}
        if len(self._closed) == len(self.roster):
            for name in self.roster:
                asked_with, body = self._closed[name]
                with naming_step(asked_with):
                    replies[name] = self._read(asked_with, body, Closed)
        else:
            self._along = False  # what came with the last question is asked as the same step
            gone, self.gone = self.gone, set()  # who is back sends its ledger, too
            self._vanished, self._absences = {}, None
            asked, there = dict.fromkeys(self.roster, Close()), set(self.roster) - gone
            enough, at_once = there.issubset, max(1, len(gone))
            replies = self.ask_present(asked, len(gone), at_once=at_once, enough=enough)
        paid = dict(self._paid)
        if self._receipts is not None:  # of stages before, and of what was asked before a restart
            paid = {name: paid[name] | self._receipts.paid(name, self.run) for name in paid}
        ledgers = {name: _entries_in(name, one, paid[name]) for name, one in replies.items()}
        return Closing(
            ledgers,
            {name: reply.head.value for name, reply in replies.items()},
            {name: written(one.header.value, ledgers[name]) for name, one in replies.items()},
        )

    def _sent(self, asked: Envelope) -> tuple[course.Traffic, bytes]:
        """What crossed for a question, and the party's answer."""
        frame, status = messages.encode(asked), self._status
        if status is not None:
            status.asked(asked.step, self._question, asked.to)
        try:
            answer = self._carrier.send(asked.to, frame)
        except SiloweaveError as error:
            if status is not None:
                status.refused(asked.to, str(error))
            raise
        plain = len(frame), len(answer)
        there, back = self._sizes.get(asked.to, plain)
        if status is not None:
            status.answered(asked.to, there, back)
        return course.Traffic(1, there, back), answer

    def _received(
        self, asked: Envelope, kind: type[R], crossed: course.Traffic, answer: bytes
    ) -> R:
        """Count an answer, open it, write it down, and read it."""
        name = asked.to
        self.traffic[name] += crossed
        with naming_step(asked):
            came = messages.answer_to(asked, answer)
            if asked.then and came.then:
                self._closed[name] = asked.next, came.then
            return self._read(asked, came.body, kind)

    def _read(self, asked: Envelope, body: bytes, kind: type[R]) -> R:
        """Write a reply down, read it, and keep its payments."""
        run, step, name = asked.run, asked.step, asked.to
        if self._transcript is not None:
            self._transcript.record(records.TranscriptRecord(run, step, name, asked.body, body))
        reply = messages.decode(body, kind)
        self._paid[name] |= payments(reply)
        for _, item in items(reply):
            for reader, proof in item.proofs.items() if isinstance(item, Masked) else ():
                self._proofs.setdefault(reader, {})[name] = proof
        if self._receipts is not None:
            self._receipts.record(run, step, name, reply)
        return reply


def _work(left: Iterator[tuple[Envelope, Future[T]]], send: Callable[[Envelope], T]) -> None:
    for one, future in left:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(send(one))
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            future.set_exception(error)


def _gave(found: Mapping[str, Future[Any]]) -> set[str]:
    """Who gave something so far; raises the first error of those that are done."""
    return {name for name, one in found.items() if one.done() and one.result() is not None}
