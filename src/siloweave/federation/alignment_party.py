"""What parties send in an alignment, and a party's side of it; alignment.py has the protocol."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from hashlib import blake2b

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.errors import RosterError, WireError, naming_party
from siloweave.federation import curve, masking
from siloweave.federation.curve import POINT, SEED, VALUE, Words
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.messages import Public, Released, Reply, Request
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.events import NonPrivate
from siloweave.tables.ids import IdPolicy, Ids, normal_ids, shape_of
from siloweave.tables.read import Table, digest_of

MOST_POINTS = 2**22
"""Largest part, in points: half of what a message may hold."""

CHUNK = 2**16
"""Points in one message: 2 MiB."""

TAG = 16
"""Bytes by which a party recognises a row of its own."""

GONE = b"forgotten"
"""What replaces a secret that was used."""

Rules = dict[str, tuple[str, ...]]
"""Per id column the rules that normalise it; see `siloweave.tables.ids`."""

_PURPOSE = b"siloweave alignment key"  # of a party's signature of its key
_MOST_PARTS = 2**16  # messages that one list takes
_SEAL = 32  # bytes of the sealed key before the rows that a leader names
_SECRETS = ("pair", "power", "blinds", "group", "common", "table")
_WHY = NonPrivate("which rows all parties have in common is released without noise")


class AlignmentPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is fixed once every party has sent its key and its number of ids; messages repeat it."""

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
        if not (1 <= self.chunk <= MOST_POINTS and 1 <= min(self.sizes) <= max(self.sizes)):
            raise WireError(
                f"an alignment announces parts of {self.chunk} points (1 to {MOST_POINTS:,}) and "
                f"{self.sizes} ids (1 or more each)"
            )
        most = max(self.sizes)
        if most > MOST_ROWS or self.parts(curve.cells(most)) > _MOST_PARTS:
            raise WireError(
                f"an alignment announces {most:,} ids in parts of {self.chunk:,} points; at most "
                f"{MOST_ROWS:,} ids in {_MOST_PARTS:,} parts are accepted. Send larger parts"
            )

    @property
    def digest(self) -> bytes:
        """By which an answer that belongs to another alignment is recognised."""
        return blake2b(msgspec.msgpack.encode(self), digest_size=16).digest()

    @property
    def others(self) -> list[str]:
        """Everyone but the leader."""
        return [name for name in self.names if name != self.leader]

    def size(self, name: str) -> int:
        """How many ids a party brings."""
        return self.sizes[self.names.index(name)]

    def parts(self, number: int) -> int:
        """In how many parts a list is sent; an empty one is one part."""
        return max(1, -(-number // self.chunk))

    def part(self, number: int, part: int, party: str) -> tuple[int, int]:
        """Start and end of a part of a list that `party` was asked about; WireError without it."""
        if not 0 <= part < self.parts(number):
            raise WireError(f"party {party!r} was asked about part {part} of {self.parts(number)}")
        return part * self.chunk, min(number, (part + 1) * self.chunk)


class Present(Reply, frozen=True):
    """A party's signed key; how many ids it brings, rows without id, rows with a repeated id."""

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
    """Stored."""

    plan: Public[bytes]


class Piece(Reply, frozen=True):
    """Part of something that depends on rows."""

    plan: Public[bytes]
    data: Released[bytes]


class Hide(Request[Piece], frozen=True, tag="alignment/hide"):
    """Part of the table of your shares; the first part starts with its seed."""

    plan: AlignmentPlan
    part: int


class StoreTable(Request[Done], frozen=True, tag="alignment/store-table"):
    """To the leader: part of a party's table."""

    plan: AlignmentPlan
    party: str
    part: int
    data: bytes


class Blind(Request[Piece], frozen=True, tag="alignment/blind"):
    """To the leader: part of your ids, blinded."""

    plan: AlignmentPlan
    part: int


class Raised(Reply, frozen=True):
    """What was sent, to the party's secret power."""

    plan: Public[bytes]
    points: Public[bytes]


class Raise(Request[Raised], frozen=True, tag="alignment/raise"):
    """Raise the leader's points."""

    plan: AlignmentPlan
    part: int
    points: bytes


class Unblind(Request[Done], frozen=True, tag="alignment/unblind"):
    """To the leader: your points, to a party's power."""

    plan: AlignmentPlan
    party: str
    part: int
    points: bytes


class Matched(Reply, frozen=True):
    """How many ids are common to all."""

    plan: Public[bytes]
    common: Released[int]


class Match(Request[Matched], frozen=True, tag="alignment/match"):
    """To the leader: compare."""

    plan: AlignmentPlan


class NameRows(Request[Piece], frozen=True, tag="alignment/name-rows"):
    """To the leader: part of the common rows, in words that only `party` understands."""

    plan: AlignmentPlan
    party: str
    part: int


class StoreRows(Request[Done], frozen=True, tag="alignment/store-rows"):
    """Part of the common rows, from the leader."""

    plan: AlignmentPlan
    common: int
    part: int
    data: bytes


class Confirmed(Reply, frozen=True):
    """A digest of the common ids in their order, under a key that only parties have."""

    plan: Public[bytes]
    digest: Released[bytes]


class Confirm(Request[Confirmed], frozen=True, tag="alignment/confirm"):
    """Find your common rows, and forget your secrets."""

    plan: AlignmentPlan
    common: int


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
        """By which the party recognises what it brought; see `Site`."""
        return digest_of(self.table, self.columns, astuple(self.policy))


Party = Site[AlignmentData]
_Part = Hide | StoreTable | Blind | Raise | Unblind | NameRows | StoreRows


def common_rows(site: Party, run: str) -> Table:
    """A party's rows that all parties have, in the order that all parties keep.

    WireError if the run has not been aligned to its end.
    """
    if (rows := site.recall("rows", run)) is None:
        raise WireError(f"party {site.name!r}: its rows have not been aligned in run {run!r}")
    return site.rows.table.take(np.frombuffer(rows, dtype="<i8"))


def check_points(points: bytes, number: int, sender: str) -> None:
    """Raise WireError for points that are too few or many, not reduced, zero, or there twice."""
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


# What a party keeps during a run: its ids, and what it draws once


def _asked(site: Party) -> Greet:
    if (asked := site.recall("asked")) is None:
        raise WireError(f"party {site.name!r} was not asked for its ids yet in this run")
    return msgspec.msgpack.decode(asked, type=Greet)


def _own_ids(site: Party) -> Ids:
    asked, held = _asked(site), site.rows
    columns = held.columns or asked.on
    with naming_party(site.name):
        return normal_ids(
            held.table, asked.on, rules=asked.rules, policy=held.policy, columns=columns
        )


def hashed_ids(site: Party) -> Ids:
    """The ids, hashed to 64 bytes with the run's name and the id columns; computed once."""
    run, asked = site.run, _asked(site)
    place = ("alignment", run, msgspec.msgpack.encode(asked))
    if place not in site.memo:
        found = _own_ids(site)
        head = blake2b(digest_size=64, person=b"siloweave point")
        head.update(msgspec.msgpack.encode((run, asked.on)))
        values = tuple(_continued(head, value) for value in found.values)
        site.memo[place] = replace(found, values=values)
    kept: Ids = site.memo[place]
    return kept


def _continued(head: blake2b, value: bytes) -> bytes:
    """The digest of what `head` has seen and of `value` after it."""
    one = head.copy()
    one.update(value)
    return one.digest()


def _once(site: Party, name: str, draw: Callable[[], bytes]) -> bytes:
    """What is drawn once a run; refused where it was used and forgotten."""
    if (kept := site.recall(name)) is None:
        kept = draw()
        site.remember(name, kept)
    if kept == GONE:
        raise WireError(f"party {site.name!r} has finished this alignment; start a new run")
    return kept


def _draw_blinds() -> bytes:
    """A scalar and its inverse."""
    while (pair := curve.invertible(os.urandom(POINT))) is None:
        pass
    return pair[0] + pair[1]


_DRAWS = {
    "pair": masking.new_secret,
    "power": masking.new_secret,
    "blinds": _draw_blinds,
    "group": lambda: os.urandom(_SEAL),
}


def _secret(site: Party, name: str) -> bytes:
    return _once(site, name, _DRAWS[name])


def _signed_key(site: Party) -> bytes:
    return site.signed_key(masking.public_key(_secret(site, "pair")), _PURPOSE)


def _order(site: Party, name: str, number: int) -> npt.NDArray[np.int64]:
    """A random order, from the operating system's entropy."""

    def draw() -> bytes:
        drawn = np.frombuffer(os.urandom(8 * number), dtype=np.uint64)
        return np.argsort(drawn, kind="stable").astype("<i8").tobytes()

    return np.frombuffer(_once(site, name, draw), dtype="<i8")


def _shuffled(site: Party) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """The leader's ids in the order in which they are sent, and the rows that they belong to."""
    mine = hashed_ids(site)
    order = _order(site, "order", len(mine.values))
    return [mine.values[i] for i in order.tolist()], mine.rows[order]


def _forget(site: Party) -> None:
    """Leave nothing by which what a coordinator stored becomes readable."""
    for secret in _SECRETS:
        if site.recall(secret) is not None:
            site.remember(secret, GONE)


# What every message is checked for


def _same(plan: AlignmentPlan, site: Party) -> Public[bytes]:
    if _once(site, "plan", lambda: plan.digest) != plan.digest:
        raise WireError(
            f"party {site.name!r}: a message of another alignment came, or of an older one; start "
            "a new run"
        )
    return Public(plan.digest, "names, keys and announced sizes")


def _checked(plan: AlignmentPlan, site: Party, *, leads: bool) -> Public[bytes]:
    """Refuse a plan that changed, that is not about this party, or that asks for too many ids."""
    mine, number = _signed_key(site), len(hashed_ids(site).values)
    facts = dict(zip(plan.names, zip(plan.sizes, plan.keys, strict=True), strict=True))
    if facts.get(site.name) != (number, mine) or len(facts) < len(plan.names):
        raise WireError(f"party {site.name!r}: the coordinator announced it with other facts")
    if set(plan.names) != set(site.terms.roster):
        raise WireError(
            f"party {site.name!r}: an alignment of {', '.join(plan.names)[:200]} was announced; "
            f"the roster of the study is {', '.join(site.terms.roster)[:200]}"
        )
    if (verified := ("alignment keys", plan.digest)) not in site.memo:
        for name, signed in zip(plan.names, plan.keys, strict=True):
            site.key_of(name, signed, _PURPOSE)
        site.memo[verified] = True
    if leads != (plan.leader == site.name):
        raise WireError(f"party {site.name!r}: {plan.leader!r} leads, and a message mixes it up")
    if plan.size(plan.leader) > min(plan.sizes):
        raise WireError(
            f"party {site.name!r}: {plan.leader!r} leads with {plan.size(plan.leader):,} "
            "ids, more than another party has; the one with the fewest leads"
        )
    most = site.rows.most
    if most is not None and max(plan.sizes) > most:
        raise RosterError(
            f"party {site.name!r} lets nobody bring more than most = {most:,} ids, and one "
            f"announced {max(plan.sizes):,}; raise the limit if that is right"
        )
    return _same(plan, site)


def _check_other(plan: AlignmentPlan, party: str, site: Party) -> None:
    if party not in plan.others:
        raise WireError(f"party {site.name!r}: {party!r} is no other party of this alignment")


def _check_common(plan: AlignmentPlan, common: int, site: Party) -> None:
    if not 0 <= common <= plan.size(plan.leader):
        raise WireError(
            f"party {site.name!r}: {common:,} common rows were announced, and {plan.leader!r} has "
            f"{plan.size(plan.leader):,}"
        )


def _ask_once(request: _Part, party: str, site: Party) -> None:
    """Refuse a part that was asked before, in another step: each question has a bound, its parts.

    How many parts there are follows from the plan, which is stored once and names this party's own
    number of ids. So a question that costs nothing cannot be repeated either.
    """
    tag, now = str(request.__struct_config__.tag), site.context.encode()
    if _once(site, f"part/{tag}/{party}/{request.part}", lambda: now) != now:
        raise WireError(
            f"party {site.name!r} was asked {tag!r} for part {request.part + 1} twice; it "
            "answers each part once. Nothing was released"
        )


# Shares of zero, and F of an id


def _pair_keys(plan: AlignmentPlan, site: Party) -> dict[str, bytes]:
    """The key shared with every other party, of this plan only."""
    signed = zip(plan.names, plan.keys, strict=True)
    keys = {name: key[: masking.KEY] for name, key in signed if name != site.name}
    return {
        name: blake2b(plan.digest, digest_size=32, key=one, person=b"siloweave pair").digest()
        for name, one in masking.agree_with(_secret(site, "pair"), keys).items()
    }


def _hashes(digests: Sequence[bytes], key: bytes, person: bytes) -> Words:
    """16 pseudo-random bytes for each id."""
    head = blake2b(digest_size=TAG, key=key, person=person)
    return _words(b"".join(_continued(head, digest) for digest in digests))


def _words(data: bytes) -> Words:
    return np.frombuffer(data, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _bytes(words: npt.NDArray[np.generic]) -> bytes:
    return words.astype(words.dtype.newbyteorder("<")).tobytes()


def _shares(digests: Sequence[bytes], keys: Mapping[str, bytes]) -> Words:
    """This party's share of zero for each id."""
    total: Words = np.zeros((len(digests), 2), dtype=np.uint64)
    for key in keys.values():
        total ^= _hashes(digests, key, b"siloweave zero")
    return total


def _outputs(digests: Sequence[bytes], points: bytes) -> Words:
    """F of each id, from its point under the party's power."""
    pairs = [digest + points[i * POINT : (i + 1) * POINT] for i, digest in enumerate(digests)]
    return _hashes(pairs, b"", b"siloweave oprf")


def _to_power(points: bytes, power: bytes, workers: int, sender: str) -> bytes:
    try:
        return curve.powers(points, power, workers)
    except ValueError as error:
        raise WireError(f"party {sender!r} sent a point of small order; start anew") from error


def _piece(
    whole: bytes, plan: AlignmentPlan, part: int, size: int, head: int, site: Party
) -> bytes:
    """One part of a list of items of `size` bytes; `head` bytes before it go with the first."""
    start, stop = plan.part((len(whole) - head) // size, part, site.name)
    return whole[head + start * size if part else 0 : head + stop * size]


def _check_piece(
    data: bytes, plan: AlignmentPlan, part: int, shape: tuple[int, int, int], site: Party, what: str
) -> None:
    """Refuse a part of a list of (number, size, head), see `_piece`, that has another length."""
    number, size, head = shape
    start, stop = plan.part(number, part, site.name)
    wanted = (stop - start) * size + (0 if part else head)
    if len(data) != wanted:
        raise WireError(
            f"{what} of {len(data):,} bytes in part {part + 1}, which takes {wanted:,}; start anew"
        )


# The handlers, in the order of the protocol


def greet(request: Greet, site: Party) -> Present:
    """Normalise the ids, and send their number."""
    asked = msgspec.msgpack.encode(request)
    if _once(site, "asked", lambda: asked) != asked:
        raise WireError(f"party {site.name!r} was asked for other ids before; start a new run")
    mine = hashed_ids(site)
    counts = (len(mine.values), mine.missing, mine.duplicated)
    if not mine.values:
        raise RosterError(
            f"party {site.name!r} has no row with an id of its own; leave it out of the roster, or "
            "correct the rules"
        )
    event = NonPrivate("how many ids a party brings to an alignment is released exactly")
    return Present(
        Public(_signed_key(site), "a key, drawn without looking at rows"),
        site.release(event, "how many ids, missing ids and repeated ids", lambda: counts),
    )


def describe(request: DescribeIds, site: Party) -> IdsDescribed:
    """Lengths and kinds of characters of the ids; it is over, so forget the secrets."""
    _forget(site)
    event = NonPrivate("what ids look like is released, to find out why none is common")
    what = "lengths of ids and the kinds of characters in them"
    return IdsDescribed(site.release(event, what, lambda: shape_of(_own_ids(site).values)))


def hide(request: Hide, site: Party) -> Piece:
    """Send the table of shares, for whoever learns F of an id that is in it."""
    plan = request.plan
    note = _checked(plan, site, leads=False)

    def table() -> bytes:
        digests = hashed_ids(site).values
        points = curve.hashed_powers(b"".join(digests), _secret(site, "power"), site.rows.workers)
        values = _shares(digests, _pair_keys(plan, site)) ^ _outputs(digests, points)
        seed, cells = curve.hide(digests, values)
        return seed + _bytes(cells)

    data = _piece(_once(site, "table", table), plan, request.part, VALUE, SEED, site)
    _ask_once(request, "", site)
    what = f"ids as a hidden table, part {request.part + 1}: readable where the leader has the id"
    return Piece(note, site.release(_WHY, what, lambda: data))


def store_table(request: StoreTable, site: Party) -> Done:
    """Put part of a party's table away."""
    plan, party = request.plan, request.party
    note = _checked(plan, site, leads=True)
    _check_other(plan, party, site)
    shape = (curve.cells(plan.size(party)), VALUE, SEED)
    what = f"party {party!r} sent a table of {plan.size(party):,} ids"
    _check_piece(request.data, plan, request.part, shape, site, what)
    _ask_once(request, party, site)
    site.remember(f"table/{party}/{request.part}", request.data)
    return Done(note)


def blind(request: Blind, site: Party) -> Piece:
    """Send ids to a secret power, in a random order."""
    plan = request.plan
    note = _checked(plan, site, leads=True)
    start, stop = plan.part(plan.size(plan.leader), request.part, site.name)
    _ask_once(request, "", site)
    chosen = b"".join(_shuffled(site)[0][start:stop])
    what = f"ids as blinded points in random order, part {request.part + 1}"
    points = curve.hashed_powers(chosen, _secret(site, "blinds")[:POINT], site.rows.workers)
    return Piece(note, site.release(_WHY, what, lambda: points))


def raise_points(request: Raise, site: Party) -> Raised:
    """Raise the leader's points, as many as it announced and each part once."""
    plan = request.plan
    note = _checked(plan, site, leads=False)
    start, stop = plan.part(plan.size(plan.leader), request.part, site.name)
    check_points(request.points, stop - start, plan.leader)
    digest = blake2b(request.points, digest_size=32).digest()
    if _once(site, f"asked/{request.part}", lambda: digest) != digest:
        raise WireError(
            f"party {site.name!r} raised part {request.part} before, for other points of "
            f"{plan.leader!r}; a leader may not ask for more ids than it announced"
        )
    _ask_once(request, "", site)
    points = _to_power(request.points, _secret(site, "power"), site.rows.workers, plan.leader)
    return Raised(note, Public(points, "the leader's points; no row of this party enters"))


def unblind(request: Unblind, site: Party) -> Done:
    """Undo the blinding, and look part of the ids up in a party's table."""
    plan, party = request.plan, request.party
    note = _checked(plan, site, leads=True)
    _check_other(plan, party, site)
    start, stop = plan.part(plan.size(plan.leader), request.part, site.name)
    check_points(request.points, stop - start, party)
    _ask_once(request, party, site)
    _refuse_echo(request, site)
    points = _to_power(request.points, _secret(site, "blinds")[POINT:], site.rows.workers, party)
    digests = _shuffled(site)[0][start:stop]
    seed, table = _table_of(plan, party, site)
    found = curve.look_up(digests, seed, table) ^ _outputs(digests, points)
    site.remember(f"share/{party}/{request.part}", _bytes(found))
    return Done(note)


def _refuse_echo(request: Unblind, site: Party) -> None:
    """Refuse points that another party sent: two secret powers never agree."""
    site.remember(f"raised/{request.party}/{request.part}", request.points)
    for other in request.plan.others:
        sent = site.recall(f"raised/{other}/{request.part}") or b""
        if other != request.party and sent:
            both = [np.frombuffer(one, dtype=f"V{POINT}") for one in (sent, request.points)]
            if len(np.unique(np.concatenate(both))) < len(both[0]) + len(both[1]):
                raise WireError(f"party {request.party!r} sent points that came from {other!r}")


def _table_of(plan: AlignmentPlan, party: str, site: Party) -> tuple[bytes, Words]:
    """Seed and cells of a party's table."""
    parts = range(plan.parts(curve.cells(plan.size(party))))
    pieces = [site.recall(f"table/{party}/{part}") for part in parts]
    if None in pieces:
        raise WireError(f"party {site.name!r} was not sent the whole table of {party!r}")
    whole = b"".join(piece or b"" for piece in pieces)
    return whole[:SEED], _words(whole[SEED:])


def match(request: Match, site: Party) -> Matched:
    """Find the ids whose shares add up to zero, and put them in a random order."""
    plan = request.plan
    note = _checked(plan, site, leads=True)
    digests, rows = _shuffled(site)
    total = _shares(digests, _pair_keys(plan, site))
    for party in plan.others:
        parts = range(plan.parts(len(digests)))
        shares = b"".join(site.recall(f"share/{party}/{i}") or b"" for i in parts)
        if len(shares) != total.nbytes:
            raise WireError(f"party {site.name!r} was not sent all that {party!r} answered")
        total ^= _words(shares)
    common = np.flatnonzero(~total.any(axis=1))
    chosen = common[_order(site, "final", len(common))]
    site.remember("common", b"".join(digests[i] for i in chosen.tolist()))
    site.remember("common rows", _bytes(rows[chosen]))
    what = "how many ids are common to all parties, and which to each of them"
    return Matched(note, site.release(_WHY, what, lambda: len(common)))


def _common(site: Party) -> list[bytes]:
    whole = site.recall("common") or b""
    return [whole[i : i + 64] for i in range(0, len(whole), 64)]


def name_rows(request: NameRows, site: Party) -> Piece:
    """Send a party part of the common rows; the first part starts with a key for all parties."""
    plan = request.plan
    note = _checked(plan, site, leads=True)
    _check_other(plan, request.party, site)
    key = _pair_keys(plan, site)[request.party]
    tags = _bytes(_hashes(_common(site), key, b"siloweave row"))
    data = _piece(_sealed(_secret(site, "group"), key) + tags, plan, request.part, TAG, _SEAL, site)
    _ask_once(request, request.party, site)
    what = f"common rows as words that only {request.party} can read, part {request.part + 1}"
    return Piece(note, site.release(_WHY, what, lambda: data))


def _sealed(group: bytes, key: bytes) -> bytes:
    """The parties' key under a pair's; the same again opens it."""
    pad = blake2b(b"", digest_size=_SEAL, key=key, person=b"siloweave seal").digest()
    return bytes(a ^ b for a, b in zip(group, pad, strict=True))


def store_rows(request: StoreRows, site: Party) -> Done:
    """Put part of the common rows away."""
    plan = request.plan
    note = _checked(plan, site, leads=False)
    _check_common(plan, request.common, site)
    shape, what = (request.common, TAG, _SEAL), f"party {plan.leader!r} named rows"
    _check_piece(request.data, plan, request.part, shape, site, what)
    _ask_once(request, "", site)
    site.remember(f"named/{request.part}", request.data)
    return Done(note)


def confirm(request: Confirm, site: Party) -> Confirmed:
    """Find the common rows, keep them in the agreed order, and forget the secrets."""
    note, digest = _same(request.plan, site), site.recall("digest")
    if digest is None:
        rows, digest = _settled(request, site)
        site.remember("rows", rows)
        site.remember("digest", digest)
    _forget(site)
    what = "a digest of the common rows and their order, under a key that only parties have"
    return Confirmed(note, site.release(_WHY, what, lambda: digest))


def _settled(request: Confirm, site: Party) -> tuple[bytes, bytes]:
    """Common rows in the agreed order, and the digest of their ids."""
    leads = request.plan.leader == site.name
    _checked(request.plan, site, leads=leads)
    _check_common(request.plan, request.common, site)
    if leads:
        rows, ids, group = site.recall("common rows") or b"", _common(site), _secret(site, "group")
    else:
        rows, ids, group = _found(request, site)
    order = blake2b(b"".join(ids), digest_size=32, key=group, person=b"siloweave order")
    return rows, order.digest()


def _found(request: Confirm, site: Party) -> tuple[bytes, list[bytes], bytes]:
    """The rows that the leader named, their ids, and the parties' key."""
    plan, mine = request.plan, hashed_ids(site)
    parts = range(plan.parts(request.common))
    whole = b"".join(site.recall(f"named/{part}") or b"" for part in parts)
    sealed, tags = whole[:_SEAL], whole[_SEAL:]
    key = _pair_keys(plan, site)[plan.leader]
    words = _bytes(_hashes(mine.values, key, b"siloweave row"))
    where = {words[i * TAG : (i + 1) * TAG]: i for i in range(len(mine.values))}
    chosen = [where.get(tags[i : i + TAG], -1) for i in range(0, len(tags), TAG)]
    if len(chosen) != request.common or len(set(chosen) - {-1}) != len(chosen):
        raise WireError(
            f"party {site.name!r}: what {plan.leader!r} named are not {request.common:,} "
            "different rows of this party; start anew"
        )
    ids = [mine.values[i] for i in chosen]
    return _bytes(mine.rows[chosen]), ids, _sealed(sealed, key)


# A party's side: which function answers which request.
PARTY: Handlers = {
    Greet: greet,
    DescribeIds: describe,
    Hide: hide,
    StoreTable: store_table,
    Blind: blind,
    Raise: raise_points,
    Unblind: unblind,
    Match: match,
    NameRows: name_rows,
    StoreRows: store_rows,
    Confirm: confirm,
}
