"""Parties elsewhere: a carrier of sealed frames, which a spool folder or an engine transports.

**Guarantee**: none of its own, see federation/frames.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Protocol

from siloweave.errors import RosterError, SiloweaveError, WireError
from siloweave.federation import messages
from siloweave.federation.frames import Seals
from siloweave.federation.messages import Envelope
from siloweave.federation.session import Part


class Post(Protocol):
    """A transport of sealed frames. Conforming: `spool.Spool`, `engine.Engine`."""

    noticed: Callable[[str, str], object]
    """Called with a party and what hinders it, while its answer is awaited."""

    def send(self, name: str, frame: bytes, facts: bytes = b"") -> bytes:
        """Send a frame to a party, and return its answer.

        `facts` come with the first question of a stage.
        """

    def await_for(self, seconds: float) -> None:
        """Set how many seconds the answers to later questions are awaited."""


class SealedCarrier:
    """A carrier of frames to parties outside this process; see `carrier.Carrier`.

    Args:
        post: Seals and transports frames.
        seals: The post's, with every party's keys in the study's order.
    """

    simulated = False

    def __init__(self, post: Post, seals: Seals) -> None:
        self._post = post
        self._seals = seals
        self._facts = b""
        self.keys = seals.roster.parties
        self.at_once = len(self.keys)
        self.sizes: dict[str, tuple[int, int]] = {}
        self.sealing = seals.sealing

    @property
    def noticed(self) -> Callable[[str, str], object]:
        """The function that is called with a party's name and what hinders it."""
        return self._post.noticed

    @noticed.setter
    def noticed(self, notice: Callable[[str, str], object]) -> None:
        self._post.noticed = notice

    def open(self, run: str, facts: bytes) -> None:
        """Begin a stage; its facts go to a party with the first question."""
        self._facts = facts
        self.sizes.clear()

    def send(self, name: str, frame: bytes) -> bytes:
        """Send a frame to a party, return its answer, and count the bytes that crossed."""
        if name not in self.keys:
            raise RosterError(
                f"party {name!r} is not in the roster {sorted(self.keys)}, so nothing is sent to it"
            )
        facts = b"" if name in self.sizes else self._facts
        sealed_before = self._seals.sealed[name]
        opened_before = self._seals.opened[name]
        answer = self._post.send(name, frame, facts)
        bytes_to_party = self._seals.sealed[name] - sealed_before
        bytes_from_party = self._seals.opened[name] - opened_before
        # Nothing was sealed where the question lay there from an earlier run of this process.
        self.sizes[name] = bytes_to_party or len(frame), bytes_from_party
        return answer

    def recall(self, name: str, run: str, names: Sequence[str]) -> dict[str, bytes]:
        """Raise WireError: nobody else reads what a party elsewhere has stored."""
        raise WireError(f"party {name!r} is elsewhere: nobody reads what it has stored")

    def part(self, run: str, message: Part, seconds: float) -> list[str]:
        """Let all parties know that the coordinator has its result; return who answered.

        Args:
            run: Name of the study's run, with "parting" as its stage.
            message: What they are sent.
            seconds: How long each answer is awaited.
        """
        self._post.await_for(seconds)
        body = messages.encode(message)
        names: list[str] = []

        def send(name: str) -> None:
            frame = messages.encode(Envelope(run, 0, "coordinator", name, body))
            # Who is not there hears of it from its owner.
            with suppress(SiloweaveError):
                self._post.send(name, frame)
                names.append(name)

        threads = [Thread(target=send, args=(name,), daemon=True) for name in self.keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(names)

    def close(self) -> None:
        """Leave the parties as they are: they end by themselves once they are asked to part."""
