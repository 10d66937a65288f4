"""What is said in an alignment; alignment.py says why, and what it protects.

What a party brings to an alignment, and what it keeps of it.

A party's side of an alignment; alignment.py says why, and what it protects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import RosterError, WireError, naming_party
from siloweave.federation import curve, masking
from siloweave.federation.curve import POINT
from siloweave.federation.messages import Public, Released, Reply, Request
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.events import NonPrivate
from siloweave.tables.ids import IdPolicy, Ids, normal_ids, shape_of
from siloweave.tables.read import Table, digest_of

MOST_POINTS = 2**22
"""Largest part, in points: half of what a message may hold."""

CHUNK = 2**16
"""Points in one message: 2 MiB."""

Rules = dict[str, tuple[str, ...]]
"""Per id column the rules that normalise it; see `siloweave.tables.ids`."""


class AlignmentPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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

    session: AlignmentPlan
    part: int


class Keep(Request[Done], frozen=True, tag="alignment/keep"):
    """To the leader: part of a party's table."""

    session: AlignmentPlan
    party: str
    part: int
    data: bytes


class Blind(Request[Piece], frozen=True, tag="alignment/blind"):
    """To the leader: part of your ids, blinded."""

    session: AlignmentPlan
    part: int


class Raised(Reply, frozen=True):
    """What was sent, to the party's secret power."""

    session: Public[bytes]
    points: Public[bytes]


class Raise(Request[Raised], frozen=True, tag="alignment/raise"):
    """Raise the leader's points."""

    session: AlignmentPlan
    part: int
    points: bytes


class Weigh(Request[Done], frozen=True, tag="alignment/weigh"):
    """To the leader: what a party made of your points."""

    session: AlignmentPlan
    party: str
    part: int
    points: bytes


class Matched(Reply, frozen=True):
    """How many ids are common to all."""

    session: Public[bytes]
    common: Released[int]


class Match(Request[Matched], frozen=True, tag="alignment/match"):
    """To the leader: compare."""

    session: AlignmentPlan


class Tell(Request[Piece], frozen=True, tag="alignment/tell"):
    """To the leader: part of the common rows, in words that only `party` understands."""

    session: AlignmentPlan
    party: str
    part: int


class Place(Request[Done], frozen=True, tag="alignment/place"):
    """Part of the common rows, from the leader."""

    session: AlignmentPlan
    common: int
    part: int
    data: bytes


class Confirmed(Reply, frozen=True):
    """A digest of the common ids in their order, under a key that only parties have."""

    session: Public[bytes]
    digest: Released[bytes]


class Confirm(Request[Confirmed], frozen=True, tag="alignment/confirm"):
    """Find your common rows, and forget your secrets."""

    session: AlignmentPlan
    common: int


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


TAG = 16  # bytes by which a party knows a row of its own again
_Words = npt.NDArray[np.uint64]
_WHY = NonPrivate("which rows all parties have in common is released without noise")
_SECRETS = ("pair", "power", "blinds", "group", "common", "table")


def greet(request: Greet, site: Site[AlignmentData]) -> Present:
    """Normalise the ids, and say how many there are."""
    asked = msgspec.msgpack.encode(request)
    if once(site, "asked", lambda: asked) != asked:
        raise WireError(f"party {site.name!r} was asked for other ids before; start a new run")
    mine = known(site)
    counts = (len(mine.digests), mine.missing, mine.duplicated)
    if not mine.digests:
        raise RosterError(
            f"party {site.name!r} has no row with an id of its own; leave it out of the roster, or "
            "correct the rules"
        )
    key = masking.public_key(once(site, "pair", masking.new_secret))
    event = NonPrivate("how many ids a party brings to an alignment is released exactly")
    return Present(
        Public(key, "a key, drawn without looking at rows"),
        site.release(event, "how many ids, missing ids and repeated ids", lambda: counts),
    )


def describe(request: DescribeIds, site: Site[AlignmentData]) -> IdsDescribed:
    """Lengths and kinds of characters of the ids; it is over, so forget the secrets."""
    _forget(site)
    event = NonPrivate("what ids look like is released, to find out why none is common")
    what = "lengths of ids and the kinds of characters in them"
    return IdsDescribed(site.release(event, what, lambda: shape_of(own_ids(site).values)))


def _same(site: Site[AlignmentData], session: AlignmentPlan) -> Public[bytes]:
    """Refuse a session that changed.

    Raises:
        WireError: It did.
    """
    if once(site, "session", lambda: session.digest) != session.digest:
        raise WireError(
            f"party {site.name!r}: a message of another alignment came, or of an older one; start "
            "a new run"
        )
    return Public(session.digest, "names, keys and announced sizes")


def _order(number: int) -> bytes:
    """A random order, from the operating system's entropy."""
    drawn = np.frombuffer(os.urandom(8 * number), dtype=np.uint64)
    return np.argsort(drawn, kind="stable").astype("<i8").tobytes()


def _check_session(
    session: AlignmentPlan, site: Site[AlignmentData], *, leads: bool
) -> Public[bytes]:
    """Refuse a session that changed, that is not about this party, or in which too many are asked.

    Raises:
        WireError: It is one of these.
    """
    note = _same(site, session)
    mine = masking.public_key(once(site, "pair", masking.new_secret))
    number = len(known(site).digests)
    facts = dict(zip(session.names, zip(session.sizes, session.keys, strict=True), strict=True))
    if facts.get(site.name) != (number, mine) or len(facts) < len(session.names):
        raise WireError(f"party {site.name!r}: the coordinator announced it with other facts")
    if leads != (session.leader == site.name):
        raise WireError(f"party {site.name!r}: {session.leader!r} leads, and a message mixes it up")
    if session.size(session.leader) > min(session.sizes):
        raise WireError(
            f"party {site.name!r}: {session.leader!r} leads with {session.size(session.leader):,} "
            "ids, more than another party has; the one with the fewest leads"
        )
    most = site.rows.most
    if most is not None and max(session.sizes) > most:
        raise RosterError(
            f"party {site.name!r} lets nobody bring more than most = {most:,} ids, and one "
            f"announced {max(session.sizes):,}; raise the limit if that is right"
        )
    return note


def _pair_keys(session: AlignmentPlan, site: Site[AlignmentData]) -> dict[str, bytes]:
    """The key shared with every other party, of this session only."""
    keys = zip(session.names, session.keys, strict=True)
    secret = once(site, "pair", masking.new_secret)
    shared = masking.agree_with(secret, {name: key for name, key in keys if name != site.name})
    return {
        name: blake2b(session.digest, digest_size=32, key=one, person=b"siloweave pair").digest()
        for name, one in shared.items()
    }


def _hashes(digests: Sequence[bytes], key: bytes, person: bytes) -> _Words:
    """16 pseudo-random bytes for each id."""
    head = blake2b(digest_size=TAG, key=key, person=person)
    return _words(b"".join(continued(head, digest) for digest in digests))


def _words(data: bytes) -> _Words:
    return np.frombuffer(data, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _shares(digests: Sequence[bytes], keys: Mapping[str, bytes]) -> _Words:
    """This party's share of zero for each id."""
    total: _Words = np.zeros((len(digests), 2), dtype=np.uint64)
    for key in keys.values():
        total ^= _hashes(digests, key, b"siloweave zero")
    return total


def _outputs(digests: Sequence[bytes], points: bytes) -> _Words:
    """F of each id, from its point under the party's power."""
    pairs = [digest + points[i * POINT : (i + 1) * POINT] for i, digest in enumerate(digests)]
    return _hashes(pairs, b"", b"siloweave oprf")


def hide(request: Hide, site: Site[AlignmentData]) -> Piece:
    """Send the table of shares, for whoever learns F of an id that is in it."""
    session = request.session
    note = _check_session(session, site, leads=False)
    table = once(site, "table", lambda: _table(session, site))
    data = _piece(table, session, request.part, curve.VALUE, curve.SEED, site.name)
    what = f"ids as a hidden table, part {request.part + 1}: readable where the leader has the id"
    return Piece(note, site.release(_WHY, what, lambda: data))


def _table(session: AlignmentPlan, site: Site[AlignmentData]) -> bytes:
    digests = known(site).digests
    power = once(site, "power", masking.new_secret)
    points = curve.hashed_powers(b"".join(digests), power, site.rows.workers)
    values = _shares(digests, _pair_keys(session, site)) ^ _outputs(digests, points)
    seed, table = curve.hide(digests, values)
    return seed + table.astype("<u8").tobytes()


def _piece(
    whole: bytes, session: AlignmentPlan, part: int, size: int, head: int, name: str
) -> bytes:
    """One part of a list of items of `size` bytes; `head` bytes before it go with the first."""
    parts = session.parts((len(whole) - head) // size)
    if not 0 <= part < len(parts):
        raise WireError(f"party {name!r} was asked for part {part} of {len(parts)}")
    start, stop = parts[part]
    return whole[head + start * size if part else 0 : head + stop * size]


def keep(request: Keep, site: Site[AlignmentData]) -> Done:
    """Put part of a party's table away."""
    note = _check_session(request.session, site, leads=True)
    _peer(request.session, request.party, site)
    site.remember(f"table/{request.party}/{request.part}", request.data)
    return Done(note)


def _peer(session: AlignmentPlan, party: str, site: Site[AlignmentData]) -> None:
    if party not in session.others:
        raise WireError(f"party {site.name!r}: {party!r} is no other party of this alignment")


def _blinds() -> bytes:
    """A scalar and its inverse."""
    while (pair := curve.invertible(os.urandom(POINT))) is None:
        pass
    return pair[0] + pair[1]


def _shuffled(site: Site[AlignmentData]) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """The leader's ids in the order in which they are sent, and the rows that they belong to."""
    mine = known(site)
    order = np.frombuffer(once(site, "order", lambda: _order(len(mine.digests))), dtype="<i8")
    return [mine.digests[i] for i in order.tolist()], mine.rows[order]


def blind(request: Blind, site: Site[AlignmentData]) -> Piece:
    """Send ids to a secret power, in a random order."""
    note = _check_session(request.session, site, leads=True)
    start, stop = _range(request.session, request.part, site)
    chosen = b"".join(_shuffled(site)[0][start:stop])
    power = once(site, "blinds", _blinds)[:POINT]
    what = f"ids as blinded points in random order, part {request.part + 1}"
    points = curve.hashed_powers(chosen, power, site.rows.workers)
    return Piece(note, site.release(_WHY, what, lambda: points))


def _range(session: AlignmentPlan, part: int, site: Site[AlignmentData]) -> tuple[int, int]:
    parts = session.parts(session.size(session.leader))
    if not 0 <= part < len(parts):
        raise WireError(f"party {site.name!r} was asked about part {part} of {len(parts)}")
    return parts[part]


def raise_points(request: Raise, site: Site[AlignmentData]) -> Raised:
    """Raise the leader's points, as many as it announced and each part once."""
    session = request.session
    note = _check_session(session, site, leads=False)
    start, stop = _range(session, request.part, site)
    check_points(request.points, stop - start, session.leader)
    digest = blake2b(request.points, digest_size=32).digest()
    if once(site, f"asked/{request.part}", lambda: digest) != digest:
        raise WireError(
            f"party {site.name!r} raised part {request.part} before, for other points of "
            f"{session.leader!r}; a leader may not ask for more ids than it announced"
        )
    power = once(site, "power", masking.new_secret)
    points = _power(request.points, power, site.rows.workers, session.leader)
    return Raised(note, Public(points, "the leader's points; no row of this party enters"))


def _power(points: bytes, power: bytes, workers: int, sender: str) -> bytes:
    try:
        return curve.powers(points, power, workers)
    except ValueError as error:
        raise WireError(f"party {sender!r} sent a point of small order; start anew") from error


def weigh(request: Weigh, site: Site[AlignmentData]) -> Done:
    """Undo the blinding, and look part of the ids up in a party's table."""
    session, party = request.session, request.party
    note = _check_session(session, site, leads=True)
    _peer(session, party, site)
    start, stop = _range(session, request.part, site)
    check_points(request.points, stop - start, party)
    _no_echo(request, site)
    undo = once(site, "blinds", _blinds)[POINT:]
    points = _power(request.points, undo, site.rows.workers, party)
    digests = _shuffled(site)[0][start:stop]
    seed, table = _table_of(session, party, site)
    found = curve.look_up(digests, seed, table) ^ _outputs(digests, points)
    site.remember(f"share/{party}/{request.part}", found.astype("<u8").tobytes())
    return Done(note)


def _no_echo(request: Weigh, site: Site[AlignmentData]) -> None:
    """Refuse points that another party sent: two secret powers never agree."""
    site.remember(f"raised/{request.party}/{request.part}", request.points)
    for other in request.session.others:
        heard = site.recall(f"raised/{other}/{request.part}") or b""
        if other != request.party and heard:
            both = [np.frombuffer(one, dtype=f"V{POINT}") for one in (heard, request.points)]
            if len(np.unique(np.concatenate(both))) < len(both[0]) + len(both[1]):
                raise WireError(f"party {request.party!r} sent points that came from {other!r}")


def _table_of(
    session: AlignmentPlan, party: str, site: Site[AlignmentData]
) -> tuple[bytes, _Words]:
    """A party's table, put together; checked against the number of ids that it announced."""
    number = curve.cells(session.size(party))
    pieces = [site.recall(f"table/{party}/{i}") for i in range(len(session.parts(number)))]
    whole = b"".join(piece or b"" for piece in pieces)
    seed, data = whole[: curve.SEED], whole[curve.SEED :]
    if len(data) != number * curve.VALUE:
        raise WireError(
            f"party {party!r} sent a table of {len(data):,} bytes where "
            f"{session.size(party):,} ids take {number * curve.VALUE:,}"
        )
    return seed, _words(data)


def match(request: Match, site: Site[AlignmentData]) -> Matched:
    """Find the ids whose shares add up to zero, and put them in a random order."""
    session = request.session
    note = _check_session(session, site, leads=True)
    digests, rows = _shuffled(site)
    total = _shares(digests, _pair_keys(session, site))
    for party in session.others:
        parts = range(len(session.parts(len(digests))))
        shares = b"".join(site.recall(f"share/{party}/{i}") or b"" for i in parts)
        if len(shares) != total.nbytes:
            raise WireError(f"party {site.name!r} was not told all that {party!r} answered")
        total ^= _words(shares)
    common = np.flatnonzero(~total.any(axis=1))
    order = np.frombuffer(once(site, "final", lambda: _order(len(common))), dtype="<i8")
    chosen = common[order]
    site.remember("common", b"".join(digests[i] for i in chosen.tolist()))
    site.remember("common rows", rows[chosen].astype("<i8").tobytes())
    what = "how many ids are common to all parties, and which to each of them"
    return Matched(note, site.release(_WHY, what, lambda: len(common)))


def _common(site: Site[AlignmentData]) -> list[bytes]:
    whole = site.recall("common") or b""
    return [whole[i : i + 64] for i in range(0, len(whole), 64)]


def tell(request: Tell, site: Site[AlignmentData]) -> Piece:
    """Tell a party part of the common rows; the first part starts with a key for all parties."""
    session = request.session
    note = _check_session(session, site, leads=True)
    _peer(session, request.party, site)
    key = _pair_keys(session, site)[request.party]
    group = once(site, "group", lambda: os.urandom(32))
    tags = _hashes(_common(site), key, b"siloweave row").astype("<u8").tobytes()
    sealed = bytes(a ^ b for a, b in zip(group, _pad(key), strict=True))
    data = _piece(sealed + tags, session, request.part, TAG, len(sealed), site.name)
    what = f"common rows as words that only {request.party} can read, part {request.part + 1}"
    return Piece(note, site.release(_WHY, what, lambda: data))


def _pad(key: bytes) -> bytes:
    return blake2b(b"", digest_size=32, key=key, person=b"siloweave seal").digest()


def place(request: Place, site: Site[AlignmentData]) -> Done:
    """Put part of the common rows away."""
    note = _check_session(request.session, site, leads=False)
    site.remember(f"told/{request.part}", request.data)
    return Done(note)


def confirm(request: Confirm, site: Site[AlignmentData]) -> Confirmed:
    """Find the common rows, keep them in the agreed order, and forget the secrets."""
    note, digest = _same(site, request.session), site.recall("digest")
    if digest is None:
        rows, digest = _settled(request, site)
        site.remember("rows", rows)
        site.remember("digest", digest)
    _forget(site)
    what = "a digest of the common rows and their order, under a key that only parties have"
    return Confirmed(note, site.release(_WHY, what, lambda: digest))


def _forget(site: Site[AlignmentData]) -> None:
    """Leave nothing by which what a coordinator stored becomes readable."""
    for secret in _SECRETS:
        if site.recall(secret) is not None:
            site.remember(secret, GONE)


def _settled(request: Confirm, site: Site[AlignmentData]) -> tuple[bytes, bytes]:
    """Common rows in the agreed order, and the digest of their ids."""
    leads = request.session.leader == site.name
    _check_session(request.session, site, leads=leads)
    if leads:
        rows, ids = site.recall("common rows") or b"", _common(site)
        group = once(site, "group", lambda: os.urandom(32))
    else:
        rows, ids, group = _found(request, site)
    order = blake2b(b"".join(ids), digest_size=32, key=group, person=b"siloweave order")
    return rows, order.digest()


def _found(request: Confirm, site: Site[AlignmentData]) -> tuple[bytes, list[bytes], bytes]:
    """The rows that the leader named, their ids, and the parties' key."""
    session, mine = request.session, known(site)
    parts = range(len(session.parts(request.common)))
    whole = b"".join(site.recall(f"told/{part}") or b"" for part in parts)
    sealed, tags = whole[:32], whole[32:]
    key = _pair_keys(session, site)[session.leader]
    words = _hashes(mine.digests, key, b"siloweave row").astype("<u8").tobytes()
    where = {words[i * TAG : (i + 1) * TAG]: i for i in range(len(mine.digests))}
    chosen = [where.get(tags[i : i + TAG], -1) for i in range(0, len(tags), TAG)]
    if len(chosen) != request.common or len(set(chosen) - {-1}) != len(chosen):
        raise WireError(
            f"party {site.name!r}: what {session.leader!r} named are not {request.common:,} "
            "different rows of this party; start anew"
        )
    group = bytes(a ^ b for a, b in zip(sealed, _pad(key), strict=True))
    rows = mine.rows[chosen].astype("<i8").tobytes()
    return rows, [mine.digests[i] for i in chosen], group


# A party's side: which function answers which request.
PARTY: Handlers = {
    Greet: greet,
    DescribeIds: describe,
    Hide: hide,
    Keep: keep,
    Blind: blind,
    Raise: raise_points,
    Weigh: weigh,
    Match: match,
    Tell: tell,
    Place: place,
    Confirm: confirm,
}
