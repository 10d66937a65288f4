"""What is said in an alignment; alignment.py says why, and what it protects."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from siloweave.errors import WireError
from siloweave.federation.messages import Public, Released, Reply, Request

__all__ = [
    "CHUNK",
    "MOST_POINTS",
    "Blind",
    "Confirm",
    "Confirmed",
    "DescribeIds",
    "Done",
    "Greet",
    "Hide",
    "IdsDescribed",
    "Keep",
    "Match",
    "Matched",
    "Piece",
    "Place",
    "Present",
    "Raise",
    "Raised",
    "Rules",
    "Session",
    "Tell",
    "Weigh",
]

MOST_POINTS = 2**22
"""Largest part, in points: half of what a message may hold."""

CHUNK = 2**16
"""Points in one message: 2 MiB."""

Rules = dict[str, tuple[str, ...]]
"""Per id column the rules that normalise it; see `siloweave.tables.ids`."""


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is fixed once everyone has said who it is; every message repeats it."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    keys: tuple[bytes, ...]
    leader: str
    chunk: int

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes) or len(self.names) != len(self.keys):
            raise WireError("an alignment announces names, sizes and keys of different number")
        if self.leader not in self.names:
            raise WireError(
                f"an alignment announces a leader {self.leader!r} who is no party of it"
            )
        if not 1 <= self.chunk <= MOST_POINTS or min(self.sizes, default=0) < 1:
            raise WireError(
                f"an alignment announces parts of {self.chunk} points (1 to {MOST_POINTS:,}) and "
                f"{self.sizes} ids (1 or more each)"
            )

    @property
    def digest(self) -> bytes:
        """By which an answer that belongs to another session is known."""
        return blake2b(msgspec.msgpack.encode(self), digest_size=16).digest()

    @property
    def others(self) -> list[str]:
        """Everyone but the leader."""
        return [name for name in self.names if name != self.leader]

    def size(self, name: str) -> int:
        """How many ids a party brings."""
        return self.sizes[self.names.index(name)]

    def parts(self, number: int) -> list[tuple[int, int]]:
        """Start and end of every part of a list sent in pieces; an empty one is one part."""
        starts = range(0, max(1, number), self.chunk)
        return [(start, min(number, start + self.chunk)) for start in starts]


class Present(Reply, frozen=True):
    """A party's key, and its rows: ids it brings, rows without id, rows with a repeated id."""

    key: Public[bytes]
    counts: Released[tuple[int, int, int]]


class Greet(Request[Present], frozen=True, tag="alignment/greet"):
    """Which columns make an id, and how are they normalised?"""

    on: tuple[str, ...]
    rules: Rules


class IdsDescribed(Reply, frozen=True):
    """What a party's ids look like."""

    shape: Released[str]


class DescribeIds(Request[IdsDescribed], frozen=True, tag="alignment/describe"):
    """Nothing is common. What do your ids look like?"""


class Done(Reply, frozen=True):
    """Kept."""

    session: Public[bytes]


class Piece(Reply, frozen=True):
    """Part of something that depends on rows."""

    session: Public[bytes]
    data: Released[bytes]


class Hide(Request[Piece], frozen=True, tag="alignment/hide"):
    """Part of the table of your shares; the first part starts with its seed."""

    session: Session
    part: int


class Keep(Request[Done], frozen=True, tag="alignment/keep"):
    """To the leader: part of a party's table."""

    session: Session
    party: str
    part: int
    data: bytes


class Blind(Request[Piece], frozen=True, tag="alignment/blind"):
    """To the leader: part of your ids, blinded."""

    session: Session
    part: int


class Raised(Reply, frozen=True):
    """What was sent, to the party's secret power."""

    session: Public[bytes]
    points: Public[bytes]


class Raise(Request[Raised], frozen=True, tag="alignment/raise"):
    """Raise the leader's points."""

    session: Session
    part: int
    points: bytes


class Weigh(Request[Done], frozen=True, tag="alignment/weigh"):
    """To the leader: what a party made of your points."""

    session: Session
    party: str
    part: int
    points: bytes


class Matched(Reply, frozen=True):
    """How many ids are common to all."""

    session: Public[bytes]
    common: Released[int]


class Match(Request[Matched], frozen=True, tag="alignment/match"):
    """To the leader: compare."""

    session: Session


class Tell(Request[Piece], frozen=True, tag="alignment/tell"):
    """To the leader: part of the common rows, in words that only `party` understands."""

    session: Session
    party: str
    part: int


class Place(Request[Done], frozen=True, tag="alignment/place"):
    """Part of the common rows, from the leader."""

    session: Session
    common: int
    part: int
    data: bytes


class Confirmed(Reply, frozen=True):
    """A digest of the common ids in their order, under a key that only parties have."""

    session: Public[bytes]
    digest: Released[bytes]


class Confirm(Request[Confirmed], frozen=True, tag="alignment/confirm"):
    """Find your common rows, and forget your secrets."""

    session: Session
    common: int
