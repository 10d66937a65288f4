"""What a party brings to an alignment, and what it keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import WireError, naming_party
from siloweave.federation.alignment_messages import Greet
from siloweave.federation.curve import POINT
from siloweave.federation.site import Site
from siloweave.tables.digests import digest_of
from siloweave.tables.ids import IdPolicy, Ids, normal_ids
from siloweave.tables.read import Table

__all__ = [
    "GONE",
    "AlignmentData",
    "HashedIds",
    "check_points",
    "common_rows",
    "continued",
    "known",
    "once",
    "own_ids",
]

GONE = b"forgotten"
"""What is kept in the place of a secret that was used."""


@dataclass(frozen=True)
class AlignmentData:
    """What a party brings to an alignment.

    Attributes:
        table: Its rows.
        columns: What it calls the id columns; as the study does if empty.
        policy: What to do with missing and repeated ids.
        workers: Processes that compute for it.
        most: Largest number of ids that it lets any party bring; no limit if None.
    """

    table: Table
    columns: tuple[str, ...] = ()
    policy: IdPolicy = field(default_factory=IdPolicy)
    workers: int = 1
    most: int | None = None

    def digest(self) -> bytes:
        """By which the party knows again what it brought; see `Site`."""
        return digest_of(self.table, self.columns, astuple(self.policy))


@dataclass(frozen=True)
class HashedIds:
    """A party's ids, hashed with the run's name and the id columns: 64 bytes each."""

    digests: tuple[bytes, ...]
    rows: npt.NDArray[np.int64]
    missing: int
    duplicated: int


def _asked(site: Site[AlignmentData]) -> Greet:
    """What this run's ids are made of."""
    asked = site.recall("asked")
    if asked is None:
        raise WireError(f"party {site.name!r} was not asked for its ids yet in this run")
    return msgspec.msgpack.decode(asked, type=Greet)


def own_ids(site: Site[AlignmentData]) -> Ids:
    """The party's ids, normalised.

    Raises:
        InputError: as `normal_ids`, naming the party.
    """
    asked, held = _asked(site), site.rows
    columns = held.columns or asked.on
    with naming_party(site.name):
        return normal_ids(
            held.table, asked.on, rules=asked.rules, policy=held.policy, columns=columns
        )


def known(site: Site[AlignmentData]) -> HashedIds:
    """The party's ids, hashed; computed once while the process lives."""
    run, asked = site.context.rpartition("/")[0], _asked(site)
    place = ("alignment", run, msgspec.msgpack.encode(asked))
    if place not in site.memo:
        found = own_ids(site)
        head = blake2b(digest_size=64, person=b"siloweave point")
        head.update(msgspec.msgpack.encode((run, asked.on)))
        digests = tuple(continued(head, value) for value in found.values)
        site.memo[place] = HashedIds(digests, found.rows, found.missing, found.duplicated)
    found_before: HashedIds = site.memo[place]
    return found_before


def continued(head: blake2b, value: bytes) -> bytes:
    """The digest of what `head` has seen and of `value` after it."""
    one = head.copy()
    one.update(value)
    return one.digest()


def once(site: Site[AlignmentData], name: str, draw: Callable[[], bytes]) -> bytes:
    """Something that is drawn once a run.

    Raises:
        WireError: It was used, and is forgotten.
    """
    kept = site.recall(name)
    if kept is None:
        kept = draw()
        site.remember(name, kept)
    if kept == GONE:
        raise WireError(f"party {site.name!r} has finished this alignment; start a new run")
    return kept


def common_rows(site: Site[AlignmentData], run: str) -> Table:
    """A party's rows that all parties have, in the order that all parties keep.

    Args:
        site: The party.
        run: Name of the run that aligned them.

    Raises:
        WireError: This run has not been aligned to its end.
    """
    rows = site.recall("rows", run)
    if rows is None:
        raise WireError(f"party {site.name!r}: its rows have not been aligned in run {run!r}")
    return site.rows.table.take(np.frombuffer(rows, dtype="<i8"))


def check_points(points: bytes, number: int, sender: str) -> None:
    """Refuse points that are too few or many, not reduced, zero, or there twice.

    Raises:
        WireError: naming who sent them.
    """
    if len(points) != number * POINT:
        raise WireError(
            f"party {sender!r} sent {len(points):,} bytes where {number:,} points take "
            f"{number * POINT:,}"
        )
    rows = np.frombuffer(points, dtype=np.uint8).reshape(-1, POINT)
    top = (rows[:, 31] == 0x7F) & (rows[:, 1:31] == 0xFF).all(axis=1) & (rows[:, 0] >= 0xED)
    if (rows[:, 31] > 0x7F).any() or top.any() or not rows.any(axis=1).all():
        raise WireError(f"party {sender!r} sent a point that is zero or written in a foreign way")
    if len(np.unique(rows.view(f"V{POINT}"))) < number:
        raise WireError(f"party {sender!r} sent a point twice")
