"""What parties send in an alignment, and a party's side of it; alignment.py has the protocol."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
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
from siloweave.tables.table import Table, digest_of

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
    """The facts that every message repeats, once all parties have sent keys and numbers of ids."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    keys: tuple[bytes, ...]
    leader: str
    chunk: int

    def __post_init__(self) -> None:
        # Checked where it is read: all that follows counts on lists of one length and on sizes
        # that no part exceeds.
        if len(self.names) != len(self.sizes) or len(self.names) != len(self.keys):
            raise WireError(
                "an alignment announces names, sizes and keys of different number"
            )
        if self.leader not in self.names:
            raise WireError(
                f"an alignment announces a leader {self.leader!r} who is no party of it"
            )
        if not (
            1 <= self.chunk <= MOST_POINTS and 1 <= min(self.sizes) <= max(self.sizes)
        ):
            raise WireError(
                f"an alignment announces parts of {self.chunk} points (1 to {MOST_POINTS:,}) and "
                f"{self.sizes} ids (1 or more each)"
            )
        most = max(self.sizes)
        # Each part is stored under a name of its own: parts of one point would fill the disk.
        if most > MOST_ROWS or self.parts(curve.cells(most)) > _MOST_PARTS:
            raise WireError(
                f"an alignment announces {most:,} ids in parts of {self.chunk:,} points; at most "
                f"{MOST_ROWS:,} ids in {_MOST_PARTS:,} parts are accepted. Send larger parts"
            )

    @property
    def digest(self) -> bytes:
        """The plan's digest, by which answers to another alignment are recognised."""
        return blake2b(msgspec.msgpack.encode(self), digest_size=16).digest()

    @property
    def others(self) -> list[str]:
        """The names of all parties but the leader."""
        return [name for name in self.names if name != self.leader]

    def size(self, name: str) -> int:
        """Return the number of ids that a party brings."""
        return self.sizes[self.names.index(name)]

    def parts(self, number: int) -> int:
        """Count the parts in which a list of `number` items is sent; an empty list has one part."""
        return max(1, -(-number // self.chunk))

    def part(self, number: int, part: int, party: str) -> tuple[int, int]:
        """Return the start and the end of one part of a list of `number` items.

        WireError, which names the `party` that was asked about it, if there is no such part.
        """
        # A part below 0 would slice from the end, and answer a second time under another number.
        if not 0 <= part < self.parts(number):
            raise WireError(
                f"party {party!r} was asked about part {part} of {self.parts(number)}"
            )
        start = part * self.chunk
        stop = min(number, start + self.chunk)
        return start, stop


class Present(Reply, frozen=True):
    """A party's signed key; how many ids it brings, rows without id, rows with a repeated id."""

    key: Public[bytes]
    counts: Released[tuple[int, int, int]]


class Greet(Request[Present], frozen=True, tag="alignment/greet"):
    """Send your key, and how many ids these columns give you, normalised so."""

    on: tuple[str, ...]
    rules: Rules


class IdsDescribed(Reply, frozen=True):
    """The form of a party's ids: no id itself."""

    shape: Released[str]


class DescribeIds(Request[IdsDescribed], frozen=True, tag="alignment/describe"):
    """No id is common to all: describe the form of your ids."""


class Done(Reply, frozen=True):
    """A confirmation that the part was stored."""

    plan: Public[bytes]


class Piece(Reply, frozen=True):
    """A part of what the protocol makes of the ids of parties."""

    plan: Public[bytes]
    data: Released[bytes]


class Hide(Request[Piece], frozen=True, tag="alignment/hide"):
    """Send part of the table of your shares of zero; the first part starts with its seed."""

    plan: AlignmentPlan
    part: int


class StoreTable(Request[Done], frozen=True, tag="alignment/store-table"):
    """To the leader: store part of a party's table."""

    plan: AlignmentPlan
    party: str
    part: int
    data: bytes


class Blind(Request[Piece], frozen=True, tag="alignment/blind"):
    """To the leader: send part of your ids, blinded."""

    plan: AlignmentPlan
    part: int


class Raised(Reply, frozen=True):
    """The blinded ids, once the party's secret was applied to them."""

    plan: Public[bytes]
    points: Public[bytes]


class Raise(Request[Raised], frozen=True, tag="alignment/raise"):
    """Apply your secret to the leader's blinded ids."""

    plan: AlignmentPlan
    part: int
    points: bytes


class Unblind(Request[Done], frozen=True, tag="alignment/unblind"):
    """To the leader: your blinded ids, once a party's secret was applied to them."""

    plan: AlignmentPlan
    party: str
    part: int
    points: bytes


class Matched(Reply, frozen=True):
    """How many ids are common to all."""

    plan: Public[bytes]
    common: Released[int]


class Match(Request[Matched], frozen=True, tag="alignment/match"):
    """To the leader: compare the blinded ids of all parties, and count the common ones."""

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
    """A party's data for an alignment: its table, and how ids are read from it.

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
        """Return a digest of the party's data, by which a resumed run recognises it; see `Site`."""
        return digest_of(self.table, self.columns, astuple(self.policy))


Party = Site[AlignmentData]
_Part = Hide | StoreTable | Blind | Raise | Unblind | NameRows | StoreRows


def common_rows(site: Party, run: str) -> Table:
    """Return the places of the rows that all parties have, in the order that all parties keep.

    WireError if the run has not been aligned to its end.
    """
    rows = site.recall("rows", run)
    if rows is None:
        raise WireError(
            f"party {site.name!r}: its rows have not been aligned in run {run!r}"
        )
    return site.rows.table.take(np.frombuffer(rows, dtype="<i8"))


def check_points(points: bytes, number: int, sender: str) -> None:
    """Raise WireError for points of a wrong number, points not reduced, zero, or repeated."""
    if len(points) != number * POINT:
        raise WireError(
            f"party {sender!r} sent {len(points):,} bytes where {number:,} points take "
            f"{number * POINT:,}"
        )
    rows = np.frombuffer(points, dtype=np.uint8).reshape(-1, POINT)

    # One point must have one form: X25519 reads a number of 255 bits modulo p = 2^255 - 19 and
    # ignores the highest bit, so that others could repeat a point unnoticed. Zero has small order.
    has_top_bit = rows[:, 31] > 0x7F
    is_p_or_more = (
        (rows[:, 31] == 0x7F)
        & (rows[:, 1:31] == 0xFF).all(axis=1)
        & (rows[:, 0] >= 0xED)
    )
    is_nonzero = rows.any(axis=1)
    if has_top_bit.any() or is_p_or_more.any() or not is_nonzero.all():
        raise WireError(
            f"party {sender!r} sent a point that is zero or written in a foreign way"
        )

    # Ids differ, and so do their points and the powers of these: a repetition is forged.
    if len(np.unique(rows.view(f"V{POINT}"))) < number:
        raise WireError(f"party {sender!r} sent a point twice")


# What a party keeps during a run: its ids, and what it draws once


def _greeting(site: Party) -> Greet:
    """Return the question for ids that this party was asked in this run."""
    stored = site.recall("asked")
    if stored is None:
        raise WireError(
            f"party {site.name!r} was not asked for its ids yet in this run"
        )
    return msgspec.msgpack.decode(stored, type=Greet)


def _own_ids(site: Party) -> Ids:
    """Return the party's ids, normalised by the study's rules and its own policy."""
    greeting = _greeting(site)
    data = site.rows
    columns = data.columns or greeting.on
    with naming_party(site.name):
        return normal_ids(
            data.table,
            greeting.on,
            rules=greeting.rules,
            policy=data.policy,
            columns=columns,
        )


def hashed_ids(site: Party) -> Ids:
    """Hash the ids to 64 bytes with the run's name and the id columns; computed once a run."""
    run = site.run
    greeting = _greeting(site)
    place = ("alignment", run, msgspec.msgpack.encode(greeting))
    if place not in site.memo:
        ids = _own_ids(site)
        # With the run's name, nothing that was learned in one run says anything of another's ids.
        head = blake2b(digest_size=64, person=b"siloweave point")
        head.update(msgspec.msgpack.encode((run, greeting.on)))
        values = tuple(_continued(head, value) for value in ids.values)
        site.memo[place] = replace(ids, values=values)
    hashed: Ids = site.memo[place]
    return hashed


def _continued(head: blake2b, value: bytes) -> bytes:
    """Hash a value after all that `head` has hashed, without a change to `head`."""
    digest = head.copy()
    digest.update(value)
    return digest.digest()


def _once(site: Party, name: str, draw: Callable[[], bytes]) -> bytes:
    """Draw a value once a run and store it; refuse it if it was used and forgotten."""
    value = site.recall(name)
    if value is None:
        value = draw()
        # Stored before it is used: a step that is asked again after a kill must use the same.
        site.remember(name, value)
    # Else this very word, which everyone knows, would be used as the secret.
    if value == GONE:
        raise WireError(
            f"party {site.name!r} has finished this alignment; start a new run"
        )
    return value


def _draw_blinds() -> bytes:
    """Draw a secret scalar and its inverse, to blind points and to undo that."""
    # About every second draw has an inverse, see `curve.invertible`.
    while (pair := curve.invertible(os.urandom(POINT))) is None:
        pass
    scalar, inverse = pair
    return scalar + inverse


_DRAWS = {
    "pair": masking.new_secret,
    "power": masking.new_secret,
    "blinds": _draw_blinds,
    "group": lambda: os.urandom(_SEAL),
}


def _secret(site: Party, name: str) -> bytes:
    """Return a secret of this run by name; it is drawn at the first use."""
    return _once(site, name, _DRAWS[name])


def _signed_key(site: Party) -> bytes:
    """Return this party's public key for the keys of pairs, and its signature."""
    key = masking.public_key(_secret(site, "pair"))
    return site.signed_key(key, _PURPOSE)


def _order(site: Party, name: str, number: int) -> npt.NDArray[np.int64]:
    """Draw a random order once a run from the operating system's entropy, and store it."""

    def draw() -> bytes:
        numbers = np.frombuffer(os.urandom(8 * number), dtype=np.uint64)
        return np.argsort(numbers, kind="stable").astype("<i8").tobytes()

    return np.frombuffer(_once(site, name, draw), dtype="<i8")


def _shuffled(site: Party) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """Return the leader's ids in the secret order in which they are sent, and the row of each."""
    ids = hashed_ids(site)
    order = _order(site, "order", len(ids.values))
    return [ids.values[i] for i in order.tolist()], ids.rows[order]


def _forget(site: Party) -> None:
    """Overwrite secrets, so that data stored by a coordinator stays unreadable for good."""
    for secret in _SECRETS:
        # Of what was never drawn there is nothing to forget.
        if site.recall(secret) is not None:
            site.remember(secret, GONE)


# What every message is checked for


def _same(plan: AlignmentPlan, site: Party) -> Public[bytes]:
    """Check that the run has one plan, and return its digest for a reply; else WireError."""
    # Under a second plan another party could lead, and compare under the same secrets.
    if _once(site, "plan", lambda: plan.digest) != plan.digest:
        raise WireError(
            f"party {site.name!r}: a message of another alignment came, or of an older one; start "
            "a new run"
        )
    return Public(plan.digest, "names, keys and announced sizes")


def _checked(plan: AlignmentPlan, site: Party, *, leads: bool) -> Public[bytes]:
    """Refuse a plan that changed, that misstates this party, or that asks for too many ids."""
    # This party's own facts: a plan that states others was made for somebody else's ids or key.
    own_key = _signed_key(site)
    own_size = len(hashed_ids(site).values)
    facts = zip(plan.sizes, plan.keys, strict=True)
    announced = dict(zip(plan.names, facts, strict=True))
    if announced.get(site.name) != (own_size, own_key) or len(announced) < len(
        plan.names
    ):
        raise WireError(
            f"party {site.name!r}: the coordinator announced it with other facts"
        )

    # Everyone of the study takes part. Without one party, what is common to the others would be
    # common to fewer than all.
    if set(plan.names) != set(site.terms.roster):
        raise WireError(
            f"party {site.name!r}: an alignment of {', '.join(plan.names)[:200]} was announced; "
            f"the roster of the study is {', '.join(site.terms.roster)[:200]}"
        )

    # With a key that its party did not sign, the coordinator could play that party. Verified once
    # a plan, as it comes with every message.
    verified = ("alignment keys", plan.digest)
    if verified not in site.memo:
        for name, signed in zip(plan.names, plan.keys, strict=True):
            site.key_of(name, signed, _PURPOSE)
        site.memo[verified] = True

    # A party answers the leader's questions, or the others', never both.
    if leads != (plan.leader == site.name):
        raise WireError(
            f"party {site.name!r}: {plan.leader!r} leads, and a message mixes it up"
        )

    # A leader may ask for as many ids as it announced, also for some that it does not hold: with
    # the fewest, it can guess at no more than another party has itself.
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
    """Raise WireError unless a party is one of the alignment, and not its leader."""
    if party not in plan.others:
        raise WireError(
            f"party {site.name!r}: {party!r} is no other party of this alignment"
        )


def _check_common(plan: AlignmentPlan, common: int, site: Party) -> None:
    """Raise WireError if more common rows are announced than the leader has rows."""
    if not 0 <= common <= plan.size(plan.leader):
        raise WireError(
            f"party {site.name!r}: {common:,} common rows were announced, and {plan.leader!r} has "
            f"{plan.size(plan.leader):,}"
        )


def _ask_once(request: _Part, party: str, site: Party) -> None:
    """Refuse a part that was asked for in an earlier step: each part is sent once.

    How many parts there are follows from the plan, which is stored once and names this party's own
    number of ids. So a question that costs nothing cannot be repeated either.
    """
    tag = str(request.__struct_config__.tag)
    # The step is stored, and not merely that it was asked: after a kill the same step may draw on.
    step = site.context.encode()
    if _once(site, f"part/{tag}/{party}/{request.part}", lambda: step) != step:
        raise WireError(
            f"party {site.name!r} was asked {tag!r} for part {request.part + 1} twice; it "
            "answers each part once. Nothing was released"
        )


# Shares of zero, and F of an id


def _pair_keys(plan: AlignmentPlan, site: Party) -> dict[str, bytes]:
    """Return the keys of this plan that the party shares with every other party, by name."""
    signed_keys = zip(plan.names, plan.keys, strict=True)
    peers = {
        name: signed[: masking.KEY] for name, signed in signed_keys if name != site.name
    }
    secrets = masking.agree_with(_secret(site, "pair"), peers)
    hash_plan = partial(blake2b, plan.digest, digest_size=32, person=b"siloweave pair")
    return {name: hash_plan(key=secret).digest() for name, secret in secrets.items()}


def _hashes(digests: Sequence[bytes], key: bytes, person: bytes) -> Words:
    """Return 16 pseudorandom bytes for each id, under a key."""
    head = blake2b(digest_size=TAG, key=key, person=person)
    return _words(b"".join(_continued(head, digest) for digest in digests))


def _words(data: bytes) -> Words:
    """Read bytes as numbers, of 16 bytes each."""
    return np.frombuffer(data, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _bytes(words: npt.NDArray[np.generic]) -> bytes:
    """Write numbers as bytes, the lowest byte first on every machine."""
    return words.astype(words.dtype.newbyteorder("<")).tobytes()


def _shares(digests: Sequence[bytes], keys: Mapping[str, bytes]) -> Words:
    """Return this party's share of zero for each id: all parties' shares add up to zero."""
    # Each pair's hash enters twice, at both of its ends, so that all shares of an id add up to 0.
    total: Words = np.zeros((len(digests), 2), dtype=np.uint64)
    for key in keys.values():
        total ^= _hashes(digests, key, b"siloweave zero")
    return total


def _outputs(digests: Sequence[bytes], points: bytes) -> Words:
    """Return the pseudorandom function F of each id, from its point to the party's power."""
    # F(y) = hash(y, H(y)^k): with the id in the hash, one point stands for one id.
    pairs = [
        digest + points[i * POINT : (i + 1) * POINT] for i, digest in enumerate(digests)
    ]
    return _hashes(pairs, b"", b"siloweave oprf")


def _to_power(points: bytes, power: bytes, workers: int, sender: str) -> bytes:
    """Raise points of another party to a power; WireError, which names it, if one becomes zero."""
    try:
        return curve.powers(points, power, workers)
    except ValueError as error:
        raise WireError(
            f"party {sender!r} sent a point of small order; start anew"
        ) from error


def _piece(
    whole: bytes, plan: AlignmentPlan, part: int, size: int, head: int, site: Party
) -> bytes:
    """Cut one part out of a list of items of `size` bytes, behind a head.

    `head` bytes before the list go with the first part.
    """
    number = (len(whole) - head) // size
    start, stop = plan.part(number, part, site.name)
    first_byte = head + start * size if part else 0
    return whole[first_byte : head + stop * size]


def _check_piece(
    data: bytes,
    plan: AlignmentPlan,
    part: int,
    shape: tuple[int, int, int],
    site: Party,
    text: str,
) -> None:
    """Refuse a part whose length is not that of its place in the list; see `_piece`."""
    number, size, head = shape
    start, stop = plan.part(number, part, site.name)
    expected = (stop - start) * size
    if part == 0:
        expected += head
    # Parts are joined by their order alone: one that is short would shift all after it.
    if len(data) != expected:
        raise WireError(
            f"{text} of {len(data):,} bytes in part {part + 1}, which takes {expected:,}; start "
            "anew"
        )


# The handlers, in the order of the protocol


def greet(request: Greet, site: Party) -> Present:
    """Normalise the party's ids, and send their number."""
    greeting = msgspec.msgpack.encode(request)
    # Other columns or rules would make other ids, to which the same secrets would be applied.
    if _once(site, "asked", lambda: greeting) != greeting:
        raise WireError(
            f"party {site.name!r} was asked for other ids before; start a new run"
        )
    ids = hashed_ids(site)
    counts = (len(ids.values), ids.missing, ids.duplicated)
    if not ids.values:
        raise RosterError(
            f"party {site.name!r} has no row with an id of its own; leave it out of the roster, or "
            "correct the rules"
        )
    event = NonPrivate(
        "how many ids a party brings to an alignment is released exactly"
    )
    return Present(
        Public(_signed_key(site), "a key, drawn without looking at rows"),
        site.release(
            event, "how many ids, missing ids and repeated ids", lambda: counts
        ),
    )


def describe(request: DescribeIds, site: Party) -> IdsDescribed:
    """Describe the ids' lengths and kinds of characters, as none is common; forget the secrets."""
    # Forgotten before the answer leaves: after it, nothing of the run may be compared or read.
    _forget(site)
    event = NonPrivate("what ids look like is released, to find out why none is common")
    text = "lengths of ids and the kinds of characters in them"
    return IdsDescribed(
        site.release(event, text, lambda: shape_of(_own_ids(site).values))
    )


def hide(request: Hide, site: Party) -> Piece:
    """Send the table of shares, which is readable to whoever learns F of an id in it."""
    plan = request.plan
    note = _checked(plan, site, leads=False)

    def table() -> bytes:
        # Step 2 of alignment.py: the map from y to s(y) + F(y), in a table that hides its keys.
        digests = hashed_ids(site).values
        points = curve.hashed_powers(
            b"".join(digests), _secret(site, "power"), site.rows.workers
        )
        values = _shares(digests, _pair_keys(plan, site)) ^ _outputs(digests, points)
        seed, cells = curve.hide(digests, values)
        return seed + _bytes(cells)

    # Made once: of two tables, whoever tries a key sees by equal values that both have it.
    whole = _once(site, "table", table)
    data = _piece(whole, plan, request.part, VALUE, SEED, site)
    _ask_once(request, "", site)
    text = f"ids as a hidden table, part {request.part + 1}: readable where the leader has the id"
    return Piece(note, site.release(_WHY, text, lambda: data))


def store_table(request: StoreTable, site: Party) -> Done:
    """Store a part of another party's table."""
    plan = request.plan
    party = request.party
    note = _checked(plan, site, leads=True)
    _check_other(plan, party, site)
    shape = (curve.cells(plan.size(party)), VALUE, SEED)
    text = f"party {party!r} sent a table of {plan.size(party):,} ids"
    _check_piece(request.data, plan, request.part, shape, site, text)
    _ask_once(request, party, site)
    site.remember(f"table/{party}/{request.part}", request.data)
    return Done(note)


def blind(request: Blind, site: Party) -> Piece:
    """Send ids as points to a secret power, in a random order."""
    # Step 3 of alignment.py: H(x)^r. The order is random, since rows may be sorted by their ids.
    plan = request.plan
    note = _checked(plan, site, leads=True)
    start, stop = plan.part(plan.size(plan.leader), request.part, site.name)
    _ask_once(request, "", site)
    ids, _ = _shuffled(site)
    digests = b"".join(ids[start:stop])
    scalar = _secret(site, "blinds")[:POINT]
    points = curve.hashed_powers(digests, scalar, site.rows.workers)
    text = f"ids as blinded points in random order, part {request.part + 1}"
    return Piece(note, site.release(_WHY, text, lambda: points))


def raise_points(request: Raise, site: Party) -> Raised:
    """Raise the leader's points to this party's power, as many as announced, each part once."""
    plan = request.plan
    note = _checked(plan, site, leads=False)
    start, stop = plan.part(plan.size(plan.leader), request.part, site.name)
    check_points(request.points, stop - start, plan.leader)

    # Each point that is raised is one id that the leader can look up in this party's table.
    digest = blake2b(request.points, digest_size=32).digest()
    if _once(site, f"asked/{request.part}", lambda: digest) != digest:
        raise WireError(
            f"party {site.name!r} raised part {request.part} before, for other points of "
            f"{plan.leader!r}; a leader may not ask for more ids than it announced"
        )
    _ask_once(request, "", site)
    power = _secret(site, "power")
    points = _to_power(request.points, power, site.rows.workers, plan.leader)
    return Raised(
        note, Public(points, "the leader's points; no row of this party enters")
    )


def unblind(request: Unblind, site: Party) -> Done:
    """Undo the blinding of points, and look their ids up in another party's table."""
    plan = request.plan
    party = request.party
    note = _checked(plan, site, leads=True)
    _check_other(plan, party, site)
    start, stop = plan.part(plan.size(plan.leader), request.part, site.name)
    check_points(request.points, stop - start, party)
    _ask_once(request, party, site)
    _refuse_echo(request, site)

    # Step 3 of alignment.py: with r undone, what is left is H(x)^k, which gives F(x).
    inverse = _secret(site, "blinds")[POINT:]
    points = _to_power(request.points, inverse, site.rows.workers, party)
    ids, _ = _shuffled(site)
    digests = ids[start:stop]
    seed, table = _table_of(plan, party, site)
    shares = curve.look_up(digests, seed, table) ^ _outputs(digests, points)
    site.remember(f"share/{party}/{request.part}", _bytes(shares))
    return Done(note)


def _refuse_echo(request: Unblind, site: Party) -> None:
    """Refuse points that equal those of another party: two secret powers never agree."""
    # Under another party's name, points look up nothing in its table, and no id would be common.
    site.remember(f"raised/{request.party}/{request.part}", request.points)
    points = np.frombuffer(request.points, dtype=f"V{POINT}")
    for other in request.plan.others:
        sent = site.recall(f"raised/{other}/{request.part}") or b""
        if other == request.party or not sent:
            continue
        other_points = np.frombuffer(sent, dtype=f"V{POINT}")
        distinct = np.unique(np.concatenate([other_points, points]))
        if len(distinct) < len(other_points) + len(points):
            raise WireError(
                f"party {request.party!r} sent points that came from {other!r}"
            )


def _table_of(plan: AlignmentPlan, party: str, site: Party) -> tuple[bytes, Words]:
    """Return the seed and the cells of another party's table, as it was stored."""
    parts = range(plan.parts(curve.cells(plan.size(party))))
    pieces = [site.recall(f"table/{party}/{part}") for part in parts]
    if None in pieces:
        raise WireError(
            f"party {site.name!r} was not sent the whole table of {party!r}"
        )
    whole = b"".join(piece or b"" for piece in pieces)
    return whole[:SEED], _words(whole[SEED:])


def match(request: Match, site: Party) -> Matched:
    """Find the ids whose shares add up to zero, and put them in a random order."""
    plan = request.plan
    note = _checked(plan, site, leads=True)
    digests, rows = _shuffled(site)

    # Step 3 of alignment.py. Where a party does not hold an id, its share is random, and so is the
    # sum: which of them does not hold it cannot be told.
    total = _shares(digests, _pair_keys(plan, site))
    for party in plan.others:
        parts = range(plan.parts(len(digests)))
        shares = b"".join(site.recall(f"share/{party}/{part}") or b"" for part in parts)
        if len(shares) != total.nbytes:
            raise WireError(
                f"party {site.name!r} was not sent all that {party!r} answered"
            )
        total ^= _words(shares)
    common = np.flatnonzero(~total.any(axis=1))

    # Step 4: a new order, since that of the blinded points says which of them is which.
    chosen = common[_order(site, "final", len(common))]
    site.remember("common", b"".join(digests[i] for i in chosen.tolist()))
    site.remember("common rows", _bytes(rows[chosen]))
    text = "how many ids are common to all parties, and which to each of them"
    return Matched(note, site.release(_WHY, text, lambda: len(common)))


def _common(site: Party) -> list[bytes]:
    """Return the common ids, hashed to 64 bytes each, as the leader has stored them."""
    whole = site.recall("common") or b""
    return [whole[i : i + 64] for i in range(0, len(whole), 64)]


def name_rows(request: NameRows, site: Party) -> Piece:
    """Send a part of the common rows to a party, in words that only this party can read.

    The first part begins with a key for all parties.
    """
    plan = request.plan
    note = _checked(plan, site, leads=True)
    _check_other(plan, request.party, site)
    key = _pair_keys(plan, site)[request.party]
    tags = _bytes(_hashes(_common(site), key, b"siloweave row"))
    group = _sealed(_secret(site, "group"), key)
    data = _piece(group + tags, plan, request.part, TAG, _SEAL, site)
    _ask_once(request, request.party, site)
    text = f"common rows as words that only {request.party} can read, part {request.part + 1}"
    return Piece(note, site.release(_WHY, text, lambda: data))


def _sealed(group: bytes, key: bytes) -> bytes:
    """Encrypt the parties' key under the key of a pair; a second call decrypts it."""
    # A pad is used for one message: a pair's key is of one plan, and so is the parties' key.
    pad = blake2b(b"", digest_size=_SEAL, key=key, person=b"siloweave seal").digest()
    return bytes(a ^ b for a, b in zip(group, pad, strict=True))


def store_rows(request: StoreRows, site: Party) -> Done:
    """Store a part of the common rows, as the leader named them."""
    plan = request.plan
    note = _checked(plan, site, leads=False)
    _check_common(plan, request.common, site)
    shape = (request.common, TAG, _SEAL)
    text = f"party {plan.leader!r} named rows"
    _check_piece(request.data, plan, request.part, shape, site, text)
    _ask_once(request, "", site)
    site.remember(f"named/{request.part}", request.data)
    return Done(note)


def confirm(request: Confirm, site: Party) -> Confirmed:
    """Find the common rows, store them in the agreed order, and forget the secrets."""
    note = _same(request.plan, site)
    digest = site.recall("digest")
    if digest is None:
        rows, digest = _settled(request, site)
        # The digest last: where it is stored, the rows are, too.
        site.remember("rows", rows)
        site.remember("digest", digest)
    # Only then: a kill before it leaves the secrets, with which the rows can be found again.
    _forget(site)
    text = "a digest of the common rows and their order, under a key that only parties have"
    return Confirmed(note, site.release(_WHY, text, lambda: digest))


def _settled(request: Confirm, site: Party) -> tuple[bytes, bytes]:
    """Return the common rows in the agreed order, and the digest of their ids."""
    leads = request.plan.leader == site.name
    _checked(request.plan, site, leads=leads)
    _check_common(request.plan, request.common, site)
    if leads:
        rows = site.recall("common rows") or b""
        ids = _common(site)
        group = _secret(site, "group")
    else:
        rows, ids, group = _found(request, site)
    # Under the parties' key: the coordinator could else try ids that it guesses.
    order = blake2b(b"".join(ids), digest_size=32, key=group, person=b"siloweave order")
    return rows, order.digest()


def _found(request: Confirm, site: Party) -> tuple[bytes, list[bytes], bytes]:
    """Return the rows that the leader named, their hashed ids, and the parties' common key."""
    plan = request.plan
    ids = hashed_ids(site)
    parts = range(plan.parts(request.common))
    whole = b"".join(site.recall(f"named/{part}") or b"" for part in parts)
    sealed = whole[:_SEAL]
    tags = whole[_SEAL:]

    # A row is recognised by the tag that both ends of the pair compute of its id.
    key = _pair_keys(plan, site)[plan.leader]
    own_tags = _bytes(_hashes(ids.values, key, b"siloweave row"))
    places = {own_tags[i * TAG : (i + 1) * TAG]: i for i in range(len(ids.values))}
    chosen = [places.get(tags[i : i + TAG], -1) for i in range(0, len(tags), TAG)]

    # A tag of no row, or of one row twice, would make tables of different lengths or orders.
    if len(chosen) != request.common or len(set(chosen) - {-1}) != len(chosen):
        raise WireError(
            f"party {site.name!r}: what {plan.leader!r} named are not {request.common:,} "
            "different rows of this party; start anew"
        )
    chosen_ids = [ids.values[i] for i in chosen]
    return _bytes(ids.rows[chosen]), chosen_ids, _sealed(sealed, key)


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
