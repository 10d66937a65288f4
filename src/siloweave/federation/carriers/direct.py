"""Parties in this process: a carrier that calls them.

The bytes are those that would cross a network, so that messages are counted and not estimated.

**Guarantee**: none; this is a simulation. Whoever runs it has every party's table, which a network
never does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from siloweave.errors import RosterError, naming_party
from siloweave.progress import Stopwatch


class Answering(Protocol):
    """A party as this carrier calls it. Conforming: `core.party.Party`, `SiteParty`."""

    roster: Mapping[str, bytes]

    @property
    def key(self) -> bytes:
        """The party's public key for signatures."""

    def begin(self, run: str, facts: bytes) -> None:
        """Prepare a stage, given the name of its run and its facts."""

    def answer(self, frame: bytes) -> bytes:
        """Answer a frame."""

    def recall(self, run: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return values that the party has stored in a run, by name."""

    def close(self) -> None:
        """Close the party's ledger."""


P = TypeVar("P", bound=Answering)


class Direct(Generic[P]):
    """A carrier that calls parties in this process; see `carrier.Carrier`.

    Args:
        parties: By name, in the order of the roster. Each is given the keys of all.
    """

    simulated = True
    at_once = 1

    def __init__(self, parties: Mapping[str, P]) -> None:
        self.parties = dict(parties)
        self.keys: Mapping[str, bytes] = {}
        self.sizes: Mapping[str, tuple[int, int]] = {}
        self.sealing = Stopwatch()
        self.noticed: Callable[[str, str], object] = lambda name, why: None

    def open(self, run: str, facts: bytes) -> None:
        """Have every party prepare a stage, before any party can release something."""
        for name, party in self.parties.items():
            with naming_party(name):
                party.begin(run, facts)
        # A ledger, and with it a key, is made once all rows are known to fit.
        if not self.keys:
            self.keys = {name: party.key for name, party in self.parties.items()}
            for party in self.parties.values():
                party.roster = self.keys

    def send(self, name: str, frame: bytes) -> bytes:
        """Hand a frame to a party, and return its answer; RosterError for an unknown party."""
        if name not in self.parties:
            raise RosterError(
                f"party {name!r} is not there; present are {sorted(self.parties)}"
            )
        return self.parties[name].answer(frame)

    def recall(self, name: str, run: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return values that a party has stored in a run, by name."""
        return self.parties[name].recall(run, names)

    def close(self) -> None:
        """Close the ledgers of all parties."""
        for party in self.parties.values():
            party.close()
