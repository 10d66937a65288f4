"""What a carrier is: it hands a coordinator's frames to parties, and their answers back.

A run asks `open` once at the beginning of each of its stages, then `send` for every question, and
`close` at its end. No method, and nothing of core or app, asks which carrier it has, but whether it
is `simulated`.

**Guarantee**: none of its own. What a party answers is decided at the party (federation/site.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from siloweave.progress import Stopwatch


class Carrier(Protocol):
    """A carrier of frames between a coordinator and the parties of a run.

    Conforming: `direct.Direct`, `sealed.SealedCarrier`.
    """

    noticed: Callable[[str, str], object]
    """Called with a party and what hinders it, while its answer is awaited.

    A run between organisations sets it after `open`, so a carrier around another one needs a setter
    that sets it there.
    """

    @property
    def keys(self) -> Mapping[str, bytes]:
        """Every party's public key for signatures, in the order of the roster.

        A run reads it after `open`; it may be empty before.
        """

    @property
    def simulated(self) -> bool:
        """Whether one process has the rows of all parties; reports of such a run say so."""

    @property
    def at_once(self) -> int:
        """The number of parties, or more, that the carrier asks at the same time."""

    @property
    def sizes(self) -> Mapping[str, tuple[int, int]]:
        """The bytes of the last question to each party and of its answer, as they crossed.

        Empty where frames cross as they are: then their lengths count. A run takes this mapping
        once a stage, and reads it after every question: it is changed in place, never copied.
        """

    @property
    def sealing(self) -> Stopwatch:
        """A stopwatch of the seconds in which the coordinator seals and opens frames."""

    def open(self, run: str, facts: bytes) -> None:
        """Begin a stage at all parties.

        Args:
            run: Name under which the stage releases.
            facts: What every party prepares its side from.

        Raises:
            SiloweaveError: A party refuses the stage before it is asked anything.
        """

    def send(self, name: str, frame: bytes) -> bytes:
        """Send a frame to a party, and return its answer.

        Where `at_once` is more than 1, several threads call this at once, for different parties.

        Raises:
            RosterError: The party is unknown, or does not answer.
            SiloweaveError: What the party refuses the question with.
        """

    def recall(self, name: str, run: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return values that a party of a simulation has stored in a run, by name.

        Raises:
            WireError: The party is elsewhere: what it stores is its own.
        """

    def close(self) -> None:
        """End the run; parties of this process close their ledgers."""
