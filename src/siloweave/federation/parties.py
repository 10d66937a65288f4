"""The coordinator's view of the parties: a roster, one verb, and what crossed the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from siloweave.errors import RosterError, WireError
from siloweave.federation import wire
from siloweave.federation.messages import Envelope, Reply, Request, reply_type
from siloweave.federation.transcript import Heard, Transcript

__all__ = ["Parties", "Traffic", "Transport"]

R = TypeVar("R", bound=Reply)


class Transport(Protocol):
    """Carries one frame to one party and its answer back.

    Conforming: `siloweave.federation.inprocess.InProcess`. A network transport has the same one
    method and announces dropouts by raising RosterError.
    """

    def send(self, name: str, frame: bytes) -> bytes:
        """The party's answer to `frame`."""


@dataclass
class Traffic:
    """What went over the wire to and from one party, counted on the bytes themselves."""

    messages: int = 0
    bytes_to_party: int = 0
    bytes_from_party: int = 0


class Parties:
    """The parties of a run.

    Args:
        roster: Names, in the order of the replies.
        transport: How frames travel.
        run: Name of the run; a run that is started again under its name resumes.
        sender: Name of the coordinator.
        transcript: Where every answer is written down; nowhere if None.

    Raises:
        RosterError: if the roster is empty or names a party twice.
    """

    def __init__(
        self,
        roster: Sequence[str],
        transport: Transport,
        *,
        run: str,
        sender: str = "coordinator",
        transcript: Transcript | None = None,
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
        self.sender = sender
        self.traffic = {name: Traffic() for name in roster}
        self.rounds = 0
        self._transport = transport
        self._transcript = transcript

    def ask(self, request: Request[R], to: Sequence[str] | None = None) -> list[R]:
        """Ask parties the same thing; all must answer.

        Args:
            request: The question.
            to: Some of the roster, in any order; everyone if None.

        Returns:
            Their replies, in the order of `to`.

        Raises:
            RosterError: if a party is unknown, asked twice, or does not answer.
            WireError: if an answer is malformed.
        """
        names = self.roster if to is None else tuple(to)
        unknown = [n for n in names if n not in self.traffic]
        if unknown or not names:
            raise RosterError(f"asked {list(names)}; the roster is {list(self.roster)}")
        if len(set(names)) < len(names):
            raise RosterError(f"asked {list(names)}; a party counts once, so ask it once")
        step, body, kind = self.rounds, wire.encode(request), reply_type(type(request))
        self.rounds += 1
        return [self._ask_one(name, step, body, kind) for name in names]

    def _ask_one(self, name: str, step: int, body: bytes, kind: type[R]) -> R:
        frame = wire.encode(Envelope(self.run, step, self.sender, name, body))
        answer = self._transport.send(name, frame)
        seen = self.traffic[name]
        seen.messages += 1
        seen.bytes_to_party += len(frame)
        seen.bytes_from_party += len(answer)
        if self._transcript is not None:
            self._transcript.record(Heard(self.run, step, name, body, answer))
        try:
            return wire.decode(answer, kind)
        except WireError as error:
            raise WireError(f"party {name!r}, step {step}: {error}") from error
