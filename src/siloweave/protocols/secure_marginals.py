"""Noisy marginals over columns that lie at different parties; nobody sees an exact one.

A party counts marginals of its own columns itself, with noise of its own. One over columns of two
parties is a product of their rows that is opened with noise that nobody knows (secure_products.py).
The coordinator deals the random words and carries what parties send each other, which it cannot
read. Whatever the number of marginals, there are these exchanges:

1. *begin*: keys, how many rows there are at most, and noisy histograms of columns that are cut;
2. *share*: each party's rows under a mask, encrypted to the others (again for every slab of rows
   that fits into a message);
3. *measure*: any number of marginals. Again for more of them; before marginals whose columns are
   three or more, another *share* of the joint codes of each party's part.

**Guarantee** (dp): rows over all parties together, add/remove or replace-one as the budget says,
towards the coordinator, any coalition of parties without it, and everyone who sees what is
released: an upper bound of the number of rows (where it is private), noisy histograms, noisy
marginals. A row is in one cell of each table. Parties know who is in the table, so for them only a
row's replacement has a meaning, which under an add/remove budget costs twice its zCDP. Assumed: all
follow the protocol as secure_products.py says, the coordinator asks all parties for the same
marginals, and domain, roster and which columns are where are public. Every party computes prices
from the study and from the request, for itself and for all parties together, and refuses what goes
beyond. Rows above the bound are left out; that they exist has the probability that `UpperBound`
states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from math import ceil, log, log2, sqrt
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.core.method import Case, Forecast, Setup, Task
from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation import masking
from siloweave.federation.expected import MOST_ROWS, WHOLE, WORDS, CheckedReply
from siloweave.federation.masking import Words
from siloweave.federation.messages import (
    MAX_BYTES,
    Array,
    Public,
    Relayed,
    Released,
    Reply,
    Request,
)
from siloweave.federation.session import Session
from siloweave.federation.site import FolderStore, Handlers, MemoryStore, Site
from siloweave.models.estimate import Measurement
from siloweave.privacy import mechanisms
from siloweave.privacy.budget import Budget, Relation, marginal_sensitivity, rho_for
from siloweave.privacy.coins import Coins, coins_for
from siloweave.privacy.events import Event, Gaussian, SharedCoins, UpperBound
from siloweave.privacy.mechanisms import Entropy
from siloweave.protocols import secure_products as products
from siloweave.protocols.columns import ColumnsData, parts_of
from siloweave.protocols.histograms import NoisyHistogram, columns_to_cut
from siloweave.protocols.marginals import marginal_forecast
from siloweave.protocols.schema import clipped
from siloweave.protocols.secure_sums import checked_cliques
from siloweave.protocols.workload import queries_of
from siloweave.statistics.marginals import closure, marginal
from siloweave.tables.bins import Cuts, cuts_of
from siloweave.tables.codes import Clique, Codes, Domain, Encoder, ResolutionLevels
from siloweave.tables.schema import Schema

_ROWS_SHARE = 0.005  # of the zCDP, for a bound of the number of rows
_MARGIN = 9.0  # times its noise
_ESCAPES = 1e-3  # share of delta for what truncated zCDP leaves out
_ORDERS = 1.5  # times the order that a budget is read at
_SLACK = 1e-9  # relative, of sums of prices
_SLAB = 0.9  # of a message, for masked rows
_TAG = 16  # bytes that encryption adds
_EXCHANGES = 4  # begin, share, and measure twice
_COINS = 150  # of a cell, in both measurements together
_COPIES, _ROW_SECONDS = 6.0, 40.0  # of masked rows in memory; nanoseconds of each of their bytes

# Messages


class Begun(Reply, frozen=True):
    """A party's key; how many rows there are at most, from the first party; counts of columns."""

    key: Public[bytes]
    paid_bound: tuple[Released[int], ...]
    known_rows: tuple[Public[int], ...]
    counts: tuple[Released[Array], ...]  # of columns that are cut, at all resolution levels


class Begin(Request[Begun], frozen=True, tag="secure/begin"):
    """Send your key, the bound if you are the first party, and noisy counts of columns to cut."""


class Delivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What another party sent, carried by the coordinator."""

    step: int  # in which it was sent
    data: bytes
    key: bytes
    digest: bytes  # of what its rows add up to


class Shared(Reply, frozen=True):
    """Rows under a mask, encrypted to other parties."""

    rows: Relayed


class Share(Request[Shared], frozen=True, tag="secure/share"):
    """Send the others your rows from `start` to `stop` under a mask."""

    keys: dict[str, bytes]  # of all parties, signed
    dealer: bytes  # the coordinator's public key
    rows: int  # how many there are at most; those that are missing have the codes 0
    sizes: tuple[int, ...]  # how many codes each column has, in the order of the schema
    blocks: dict[str, tuple[Clique, ...]]  # every party's, whose joint codes are shared
    start: int
    stop: int
    deliveries: dict[str, Delivery]  # of the slab before, by who sent it


class Tables(Reply, frozen=True):
    """Noisy counts of own columns, and words that open with another party's."""

    own: tuple[Released[Array], ...]
    joint: tuple[Released[Array], ...]


class NoisyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A marginal, with Gaussian noise of `sigma` where one party has all columns, else of coins."""

    clique: Clique
    sigma: float = 0.0
    weights: tuple[int, ...] = ()
    copies: int = 0


class Measure(Request[Tables], frozen=True, tag="secure/measure"):
    """Measure these tables, each party those over its columns; all parties are told all of them."""

    tables: tuple[NoisyTable, ...]
    deliveries: dict[str, Delivery]  # of the last slab
    corrections: dict[int, dict[str, Array]]  # Q of secure_products.py, by *share* and first party
    coins: dict[str, Array]  # G of secure_products.py, of all tables with that party


# What both sides compute from public facts


@dataclass(frozen=True)
class SecurePlan:
    """How a budget is divided, before anything is read."""

    synth: Any  # settings of a method of marginals
    schema: Schema  # of all columns
    parts: Mapping[str, Schema]  # every party's columns, in roster order
    budget: Budget

    @property
    def first(self) -> str:
        """The party that says how many rows there are."""
        return next(iter(self.parts))

    @cached_property
    def owners(self) -> dict[str, str]:
        """Which party has each column."""
        return {name: party for party, part in self.parts.items() for name in part.names}

    @property
    def unit(self) -> float:
        """L2 sensitivity of a marginal."""
        return marginal_sensitivity(self.budget.relation, norm="l2")

    @property
    def moved(self) -> int:
        """How many cells of a marginal two neighbours move."""
        return 1 if self.budget.relation is Relation.ADD_REMOVE else 2

    @cached_property
    def rho(self) -> float:
        """zCDP of the whole run; a part of delta is for the ends of noise of coins."""
        left = self.budget.delta * (1 - _ESCAPES)
        return rho_for(msgspec.structs.replace(self.budget, delta=left))

    @cached_property
    def bound(self) -> UpperBound | None:
        """What the bound of the number of rows costs; None where that number is public."""
        if self.budget.relation is not Relation.ADD_REMOVE:
            return None
        sigma = max(1.0, 1 / sqrt(2 * _ROWS_SHARE * self.rho))
        return UpperBound(sigma, ceil(_MARGIN * sigma))

    @cached_property
    def fine(self) -> Encoder | None:
        """Fine bins of columns that are cut; None where there is none."""
        if not self.synth.counts_share:
            return None
        encoder = Encoder(self.schema, self.synth.bins)
        return columns_to_cut(encoder, queries_of(self.synth, encoder))

    def fine_of(self, party: str) -> Encoder | None:
        """Those of one party."""
        if self.fine is None:
            return None
        own = [name for name in self.fine.schema.names if self.owners[name] == party]
        return Encoder(self.fine.schema.select(own), self.fine.bins) if own else None

    @property
    def _after_bound(self) -> float:
        return self.rho - (self.bound.rho if self.bound else 0.0)

    @cached_property
    def counts_sigma(self) -> float:
        """Noise of the histograms of columns that are cut."""
        if self.fine is None:
            return 0.0
        tables = ResolutionLevels(self.fine).number
        return self.unit * sqrt(tables / (2 * self.synth.counts_share * self._after_bound))

    def counts_event(self, fine: Encoder) -> Gaussian:
        """What a party's histograms cost."""
        moved = sqrt(ResolutionLevels(fine).number) * self.unit
        return Gaussian(sigma=self.counts_sigma, sensitivity=moved)

    @cached_property
    def rho_tables(self) -> float:
        """zCDP that is left for marginals."""
        return self._after_bound * (1 - (self.synth.counts_share if self.fine else 0.0))

    @cached_property
    def most_tables(self) -> int:
        """How many marginals may be measured in all."""
        encoder = Encoder(self.schema, self.synth.bins)
        return 2 * len(closure(queries_of(self.synth, encoder), encoder.domain))

    @cached_property
    def largest_order(self) -> int:
        """Renyi order up to which noise of coins is priced."""
        read_at = 1 + sqrt(log(1 / self.budget.delta) / self.rho)
        return max(4, ceil(_ORDERS * read_at))

    @cached_property
    def tail(self) -> float:
        """Probability of an end of noise of coins: all of them have `_ESCAPES` of delta."""
        each = _ESCAPES * self.budget.delta / (2 * self.moved * self.most_tables)
        return float(2.0 ** min(-20, -ceil(-log2(each))))

    def rows_seen(self, bound: int) -> int:
        """About how many rows there are."""
        return max(1, bound - (self.bound.margin if self.bound else 0))

    def cuts(self, party: str, counts: npt.NDArray[np.int64], bound: int) -> dict[str, Cuts]:
        """Where a party's columns are cut, by its noisy counts."""
        fine = self.fine_of(party)
        if fine is None:
            return {}
        seen = NoisyHistogram(fine, counts, self.counts_sigma, self.rows_seen(bound), 0).columns
        return {c.name: cuts_of(c, seen[c.name], self.synth.bins) for c in fine.schema.columns}

    def holders(self, clique: Clique) -> tuple[str, ...]:
        """The parties that have columns of a clique, in roster order."""
        found = {self.owners[name] for name in clique}
        return tuple(party for party in self.parts if party in found)

    def halves(self, clique: Clique) -> dict[str, Clique]:
        """Every holder's part of a clique."""
        return {p: tuple(a for a in clique if self.owners[a] == p) for p in self.holders(clique)}

    def table_for(self, clique: Clique, sigma: float) -> NoisyTable:
        """A marginal that costs what Gaussian noise of `sigma` does."""
        if len(self.holders(clique)) == 1:
            return NoisyTable(clique, sigma)
        coins = coins_for(sigma, self.largest_order, self.tail)
        return NoisyTable(clique, 0.0, coins.weights, coins.copies)

    def event(self, kind: NoisyTable, count: int, release: str) -> Event:
        """What so many marginals with this noise cost together; InputError for no such noise."""
        if not kind.weights:
            return Gaussian(sigma=kind.sigma, sensitivity=sqrt(count) * self.unit)
        return SharedCoins(
            kind.weights, kind.copies, self.largest_order, self.tail, release, count * self.moved
        )

    def price(self, table: NoisyTable) -> float:
        """zCDP of one marginal."""
        event = self.event(table, 1, "price")
        return event.rho * event.count

    def groups(self, tables: Sequence[NoisyTable], party: str) -> list[Group]:
        """A party's tables, by who has the other columns and by their noise."""
        found: dict[tuple[str, str], dict[NoisyTable, list[NoisyTable]]] = {}
        for table in tables:
            holders = self.holders(table.clique)
            if party in holders:
                kind = msgspec.structs.replace(table, clique=())
                pair = (holders[0], holders[-1])
                found.setdefault(pair, {}).setdefault(kind, []).append(table)
        return [
            Group(*pair, index, kind, tuple(own))
            for pair, kinds in found.items()
            for index, (kind, own) in enumerate(kinds.items())
        ]


@dataclass(frozen=True)
class Group:
    """Tables that are released together, because one noise is on all of them."""

    first: str  # party that has columns of them
    second: str  # the other one; the same where it has all
    index: int  # of the noise, among those of this pair
    kind: NoisyTable  # the noise
    tables: tuple[NoisyTable, ...]

    @property
    def coins(self) -> Coins:
        """The noise of each cell, where it is made of coins."""
        return Coins(self.kind.weights, self.kind.copies)

    def release(self, run: str, step: int) -> str:
        """Name of the release, and what streams of both parties are used for."""
        return f"{run}/{step}/{self.first}+{self.second}/{self.index}"


def _stage(blocks: Iterable[Clique]) -> int:
    """Which *share* they belong to: 0 for columns alone, 1 where there are joint codes."""
    return int(any(len(block) > 1 for block in blocks))


def _in_run(run: str, *what: object) -> str:
    return "\0".join((run, *map(str, what)))


# Party


class _Agreed(msgspec.Struct, frozen=True):
    """What a party was told in its first *share*, and holds the coordinator to."""

    keys: dict[str, bytes]
    dealer: bytes
    rows: int
    sizes: tuple[int, ...]


class _Slab(msgspec.Struct, frozen=True):
    """What all parties were asked for in one *share*."""

    blocks: dict[str, tuple[Clique, ...]]
    start: int
    stop: int


_Slabs = dict[int, _Slab]  # of one stage, by step


@dataclass(frozen=True)
class _Party:
    """A party's side, made again from what is remembered."""

    plan: SecurePlan
    site: Site[ColumnsData]
    agreed: _Agreed
    codes: Codes  # of its own columns
    domain: Domain  # of all columns

    @property
    def real(self) -> int:
        """Rows that are counted."""
        return min(self.site.rows.table.num_rows, self.agreed.rows)

    @cached_property
    def dealer(self) -> bytes:
        """The secret shared with the coordinator."""
        return self.site.agree_with_dealer(self.agreed.dealer)

    def secret(self, other: str) -> bytes:
        """The secret shared with another party."""
        return self.site.agree({other: self.agreed.keys[other]})[other]

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.site.context.rpartition("/")[0]

    @property
    def step(self) -> int:
        """The step of it that is answered."""
        return int(self.site.context.rpartition("/")[2])

    def before(self, other: str) -> bool:
        """Whether this party is the first of a pair."""
        names = list(self.plan.parts)
        return names.index(self.site.name) < names.index(other)

    def sizes(self, blocks: Sequence[Clique]) -> list[int]:
        """How many joint codes each block has."""
        return [self.domain.size(block) for block in blocks]

    def one_hot(self, slab: _Slab) -> npt.NDArray[np.bool_]:
        """Joint codes of this party's blocks; rows that are missing have the code 0."""
        blocks, columns = slab.blocks[self.site.name], []
        for block in blocks:
            column = np.zeros(slab.stop - slab.start, dtype=np.int64)
            own = self.codes.flat(block)[slab.start : min(slab.stop, self.real)]
            column[: len(own)] = own
            columns.append(column)
        return products.one_hot(columns, self.sizes(blocks))

    def mask(self, step: int, slab: _Slab) -> Words:
        """The mask of this party's rows in a step."""
        width = sum(self.sizes(slab.blocks[self.site.name]))
        return products.masks(self.dealer, _in_run(self.run, step), slab.stop - slab.start, width)

    def slabs(self, stage: int) -> _Slabs:
        """What was asked for in a stage."""
        kept = self.site.recall(f"slabs/{stage}")
        return {} if kept is None else msgspec.msgpack.decode(kept, type=_Slabs)

    def take(self, deliveries: Mapping[str, Delivery]) -> None:
        """Multiply what others sent, and remember this party's share of each product."""
        for other, sent in deliveries.items():
            found = [(n, s[sent.step]) for n in (0, 1) if sent.step in (s := self.slabs(n))]
            if not found or other == self.site.name or not found[0][1].blocks.get(other):
                raise self.refused(f"was delivered rows of {other!r} that nobody asked for")
            (stage, slab) = found[0]
            words = self.site.open_relayed(
                other, sent.data, sent.key, self.secret(other), _in_run(self.run, sent.step)
            )
            sizes = self.sizes(slab.blocks[other])
            if words.size != (slab.stop - slab.start) * sum(sizes):
                raise self.refused(f"was sent another number of rows by {other!r}")
            words = words.reshape(-1, sum(sizes))
            if products.row_sum_digest(words, sizes, mask=False) != sent.digest:
                raise self.refused(f"was sent rows by {other!r} that are no codes")
            if self.before(other):
                part = products.count_masked(self.one_hot(slab), words)
            else:
                part = products.product(words, self.mask(sent.step, slab))
            self.site.remember(f"part/{stage}/{sent.step}/{other}", part.tobytes())

    def share_of(self, stage: int, other: str) -> Words:
        """This party's share of the products of all blocks with another's."""
        slabs = self.slabs(stage)
        if not slabs:
            raise self.refused("was asked to count before rows were shared")
        blocks = next(iter(slabs.values())).blocks
        pair = (self.site.name, other) if self.before(other) else (other, self.site.name)
        shape = tuple(sum(self.sizes(blocks.get(name, ()))) for name in pair)
        if self.before(other):
            total = products.masks(self.dealer, _in_run(self.run, "R", stage, *pair), *shape)
        else:
            total = self._words(f"correction/{stage}/{other}", shape)
        for step in slabs:
            total = total + self._words(f"part/{stage}/{step}/{other}", shape)
        return total

    def _words(self, name: str, shape: tuple[int, ...]) -> Words:
        kept = self.site.recall(name)
        if kept is None or len(kept) != 4 * int(np.prod(shape)):
            raise self.refused("was asked to count before all rows were delivered")
        return np.frombuffer(kept, dtype="<u4").reshape(shape)

    def refused(self, what: str) -> WireError:
        """The error for a request that does not fit."""
        return WireError(f"party {self.site.name!r} {what}. Nothing was released")


def _plan_of(synth: Any, site: Site[ColumnsData]) -> SecurePlan:
    facts, limit = site.terms.facts, site.ledger.limit
    if limit is None or not limit.private:
        raise BudgetError(f"party {site.name!r} has no limit; marginals are paid for out of one")
    return SecurePlan(synth, facts["schema"], facts["parts"], limit)


def begin(synth: Any, request: Begin, site: Site[ColumnsData]) -> Begun:
    """Pay for the bound, if this party is the first and it is private, and for columns to cut."""
    site.require_first()
    plan, table = _plan_of(synth, site), site.rows.table
    paid: tuple[Released[int], ...] = ()
    known: tuple[Public[int], ...] = ()
    counts: tuple[Released[Array], ...] = ()
    bound = plan.bound
    if site.name == plan.first and bound is None:
        known = (Public(table.num_rows, "neighbours have the same number of rows"),)
    elif site.name == plan.first and bound is not None:
        number = partial(_bound_of, table.num_rows, bound, site.entropy)
        paid = (site.release(bound, "an upper bound of the number of rows", number),)
    if (fine := plan.fine_of(site.name)) is not None:
        levels, codes = ResolutionLevels(fine), fine.encode(table.select(list(fine.schema.names)))

        def counted() -> Array:
            exact = levels.count(codes)
            noisy = mechanisms.add_gaussian(exact, plan.counts_sigma, entropy=site.entropy)
            return Array.of(noisy, "<i8")

        what = f"counts of {len(codes.columns)} columns in {levels.number} tables"
        counts = (site.release(plan.counts_event(fine), what, counted),)
        site.remember("counts", counts[0].value.data)
    return Begun(site.mask_key(), paid, known, counts)


def _bound_of(rows: int, bound: UpperBound, entropy: Entropy) -> int:
    """At least the number of rows, and 1."""
    exact = np.array([rows + bound.margin], dtype=np.int64)
    noisy = mechanisms.add_gaussian(exact, bound.sigma, entropy=entropy)
    return max(rows, int(noisy[0]), 1)


def _party(synth: Any, site: Site[ColumnsData], agreed: _Agreed | None = None) -> _Party:
    """This party's side, once it is agreed on who takes part, and how columns are coded."""
    kept = site.recall("agreed")
    if agreed is not None:
        text = msgspec.msgpack.encode(agreed)
        if kept not in (None, text):
            raise WireError(f"party {site.name!r} was told of other keys, rows or codes before")
        site.remember("agreed", text)
        kept = text
    if kept is None:
        raise WireError(f"party {site.name!r} was asked to count before rows were shared")
    if kept not in site.memo:
        site.memo[kept] = _made(synth, site, msgspec.msgpack.decode(kept, type=_Agreed))
    found: _Party = site.memo[kept]
    return found


def _made(synth: Any, site: Site[ColumnsData], agreed: _Agreed) -> _Party:
    who, plan = f"party {site.name!r}", _plan_of(synth, site)
    n = site.rows.table.num_rows
    if not 1 <= agreed.rows <= MOST_ROWS or (plan.bound is None and agreed.rows != max(1, n)):
        raise WireError(f"{who} was told of {agreed.rows:,} rows, which cannot be")
    if set(agreed.keys) != set(plan.parts):
        raise WireError(f"{who} was sent keys of {', '.join(agreed.keys)}; the study has others")
    counts = np.frombuffer(site.recall("counts") or b"", "<i8")
    cuts = plan.cuts(site.name, counts, agreed.rows)
    encoder = Encoder(plan.parts[site.name], synth.bins, cuts=cuts)
    table = clipped(site.rows.table, plan.parts[site.name])
    codes = encoder.encode(table)
    widest = Encoder(plan.schema, synth.bins).domain
    fits = len(agreed.sizes) == len(widest.sizes)
    if not fits or any(n > m for n, m in zip(agreed.sizes, widest.sizes, strict=True)):
        raise WireError(f"{who} was told of more codes than the study's columns can have")
    domain = Domain(widest.names, agreed.sizes)
    if domain.shape(codes.domain.names) != codes.domain.sizes:
        raise WireError(f"{who} codes its columns otherwise than the coordinator says")
    return _Party(plan, site, agreed, codes, domain)


def share(synth: Any, request: Share, site: Site[ColumnsData]) -> Shared:
    """Mask rows, and encrypt them to the other parties."""
    party = _party(synth, site, _Agreed(request.keys, request.dealer, request.rows, request.sizes))
    slab = _Slab(request.blocks, request.start, request.stop)
    for name, blocks in request.blocks.items():
        if name not in party.plan.parts:
            raise party.refused(f"was asked to share rows with {name!r}, a stranger")
        checked_cliques(blocks, party.domain.project(party.plan.parts[name].names), site.name)
    own = request.blocks.get(site.name, ())
    words = (request.stop - request.start) * sum(party.sizes(own))
    if not (0 <= request.start < request.stop <= request.rows and 0 < 4 * words <= MAX_BYTES):
        raise party.refused(f"was asked for rows {request.start} to {request.stop} in one message")
    party.take(request.deliveries)
    stage, step = _stage(one for own in request.blocks.values() for one in own), party.step
    slabs = party.slabs(stage)
    if any(known.blocks != slab.blocks for known in slabs.values()):
        raise party.refused("was asked for other joint codes than in the slab before")
    site.remember(f"slabs/{stage}", msgspec.msgpack.encode({**slabs, step: slab}))
    masked = party.one_hot(slab) - party.mask(step, slab)
    readers = {name: party.secret(name) for name in request.blocks if name != site.name}
    return Shared(site.relay(masked, readers, _in_run(party.run, step)))


def measure(synth: Any, request: Measure, site: Site[ColumnsData]) -> Tables:
    """Check what all tables cost together, then pay for this party's, and count."""
    party = _party(synth, site)
    checked_cliques([table.clique for table in request.tables], party.domain, site.name)
    _check_price(party, request.tables)
    party.take(request.deliveries)
    for stage, dealt_to in request.corrections.items():
        for other, words in dealt_to.items():
            site.remember(f"correction/{stage}/{other}", words.data)
    own: list[Released[Array]] = []
    joint: list[Released[Array]] = []
    dealt = {other: words.numpy() for other, words in request.coins.items()}
    for group in party.plan.groups(request.tables, site.name):
        shown = ", ".join("×".join(table.clique) for table in group.tables[:8])
        shown += ", …" if len(group.tables) > 8 else ""
        release = group.release(party.run, party.step)
        event = party.plan.event(group.kind, len(group.tables), release)
        if group.first == group.second:
            what = f"{len(group.tables)} marginals: {shown}"
            own.append(site.release(event, what, partial(_counted, party, group)))
            continue
        other = group.second if group.first == site.name else group.first
        sent, dealt[other] = _closed(party, group, other, dealt.get(other))
        what = f"{len(group.tables)} marginals with {other}: {shown}"
        joint.append(site.release(event, what, partial(Array.of, sent, "<u4")))
    return Tables(tuple(own), tuple(joint))


def _check_price(party: _Party, tables: Sequence[NoisyTable]) -> None:
    """Refuse tables that would cost all parties together more than is left for tables."""
    site, plan, step, before = party.site, party.plan, str(party.step), party.site.recall("prices")
    prices: dict[str, tuple[int, float]] = (
        {} if before is None else msgspec.msgpack.decode(before, type=dict[str, tuple[int, float]])
    )
    try:
        rho = sum(plan.price(table) for table in tables)
    except InputError as error:
        raise party.refused(f"was asked for a table with noise that cannot be: {error}") from error
    prices[step] = (len(tables), rho)
    number, total = (sum(each) for each in zip(*prices.values(), strict=True))
    if not tables or number > plan.most_tables or total > plan.rho_tables * (1 + _SLACK):
        raise BudgetError(
            f"party {site.name!r} was asked for {number:,} marginals in all, which cost all "
            f"parties together rho = {total:g}; the study leaves {plan.rho_tables:g} for "
            f"{plan.most_tables:,} at most. Nothing was released"
        )
    site.remember("prices", msgspec.msgpack.encode(prices))


def _counted(party: _Party, group: Group) -> Array:
    """Noisy counts of tables over own columns, one after the other."""
    real = Codes(party.codes.domain, tuple(c[: party.real] for c in party.codes.columns))
    exact = np.concatenate([marginal(real, table.clique).reshape(-1) for table in group.tables])
    entropy = party.site.entropy
    return Array.of(mechanisms.add_gaussian(exact, group.kind.sigma, entropy=entropy), "<i8")


def _closed(party: _Party, group: Group, other: str, dealt: Any) -> tuple[Words, Any]:
    """This party's words of tables with another, and the dealt coins that are left."""
    coins, first = group.coins, group.first == party.site.name
    if coins.half + party.agreed.rows > MOST_ROWS:
        raise party.refused(f"was asked for noise of up to {coins.half:,}, which is too wide")
    words = np.concatenate([_exact(party, table, other) for table in group.tables])
    cells, context = len(words), group.release(party.run, party.step)
    z = products.coin_bits(party.secret(other), context, cells, coins)
    if first:
        given = products.coin_masks(party.dealer, context, cells, coins)
    else:
        count = cells * coins.number
        if dealt is None or dealt.size < count:
            raise party.refused(f"was dealt too few coins for tables with {other!r}")
        given, dealt = dealt[:count].reshape(cells, coins.number), dealt[count:]
    words = words + products.noise_share(coins, z, given, first=first)
    pad = products.pad(party.secret(other), context, cells)
    return (words + pad if first else words - pad), dealt


def _exact(party: _Party, table: NoisyTable, other: str) -> Words:
    """This party's share of a table's exact counts, cells by the first party's codes first."""
    halves = party.plan.halves(table.clique)
    stage, places = _stage(halves.values()), []
    slabs = party.slabs(stage)
    blocks = next(iter(slabs.values())).blocks if slabs else {}
    for name, half in halves.items():
        if half not in blocks.get(name, ()):
            raise party.refused(f"was asked about {table.clique}, whose rows were not shared")
        at = blocks[name].index(half)
        start = sum(party.sizes(blocks[name][:at]))
        places.append(slice(start, start + party.domain.size(half)))
    found: Words = party.share_of(stage, other)[places[0], places[1]].copy()
    if party.before(other):
        found[0, 0] -= np.uint32(party.agreed.rows - party.real)  # rows that are missing
    return found.reshape(-1)


def secure_handlers(synth: Any) -> Handlers:
    """A party's side."""
    return {
        Begin: partial(begin, synth),
        Share: partial(share, synth),
        Measure: partial(measure, synth),
    }


def secure_facts(setup: Setup) -> dict[str, Any]:
    """What every party is given of a study, see `Terms`."""
    return {"schema": coded_schema(setup), "parts": parts_of(setup)}


def coded_schema(setup: Setup) -> Schema:
    """All columns but ids, in the order of the schema."""
    return setup.schema.select([column.name for column in setup.schema.coded])


def secure_forecast(synth: Any, case: Case) -> Forecast:
    """What a run takes: masked rows, dealt coins, and what every method of marginals takes."""
    base = marginal_forecast(lambda settings, columns: (_EXCHANGES, 1.0), all_pairs=True)(
        synth, case
    )
    encoder = case.schema if isinstance(case.schema, Encoder) else Encoder(case.schema, synth.bins)
    width = 4 * case.rows * sum(encoder.domain.sizes)  # bytes of all masked rows
    coins = 4 * _COINS * (base.workload_cells or 0) // case.parties
    return replace(
        base,
        memory_mb=base.memory_mb + 1e-6 * _COPIES * width,
        bytes_per_party=width + coins,
        seconds=(base.seconds or 0.0) + 1e-9 * _ROW_SECONDS * width,
    )


# Coordinator


class SecureMarginals:
    """The coordinator's side: it deals random words, carries messages, and opens noisy tables.

    Args:
        session: With the parties, who hold `ColumnsData`.
        task: The run's.

    Attributes:
        encoder: How all columns are coded, once the parties answered the first question.
    """

    def __init__(self, session: Session, task: Task) -> None:
        setup = task.setup
        self.session = session
        self.plan = SecurePlan(setup.synth, coded_schema(setup), parts_of(setup), setup.budget)
        self._secret = _kept_secret(task)
        self._public = masking.public_key(self._secret)
        self._at_once = task.at_once
        self._stages: dict[int, _Blocks] = {}
        self._begin(setup)

    def _begin(self, setup: Setup) -> None:
        plan = self.plan
        replies = dict(zip(plan.parts, self.session.ask(Begin(), list(plan.parts)), strict=True))
        first = replies[plan.first]
        sent = first.known_rows if plan.bound is None else first.paid_bound
        (rows,) = CheckedReply(plan.first).items("bounds", sent, count=1)
        self.rows = CheckedReply(plan.first).number("rows", rows.value, least=0, most=MOST_ROWS)
        self.rows = max(1, self.rows)
        cuts: dict[str, Cuts] = {}
        self._keys: dict[str, bytes] = {}
        for name, reply in replies.items():
            checked, fine = CheckedReply(name), plan.fine_of(name)
            self._keys[name] = checked.mask_key("key", reply.key.value)
            sent_counts = checked.items("histograms", reply.counts, count=int(fine is not None))
            for one in sent_counts:
                cells = ResolutionLevels(fine).cells  # type: ignore[arg-type]
                counts = checked.array("counts", one.value, WHOLE, (cells,)).astype(np.int64)
                cuts |= plan.cuts(name, counts, self.rows)
        self.encoder = replace(Encoder(setup.schema, plan.synth.bins), cuts=cuts)
        self.domain = self.encoder.domain
        public = {name: key[: masking.KEY] for name, key in self._keys.items()}
        self._shared = masking.agree_with(self._secret, public)

    def can_measure(self, clique: Clique) -> bool:
        """Whether the columns of a clique lie at two parties at most."""
        return len(self.plan.holders(clique)) <= 2

    def measure(self, cliques: Sequence[Clique], sigmas: Sequence[float]) -> list[Measurement]:
        """Noisy marginals, each of which costs what Gaussian noise of its sigma does.

        Raises:
            WireError: A party sent what does not fit; names it.
            BudgetError: Noise of such a sigma cannot be made.
        """
        plan, deliveries = self.plan, _Sent()
        corrections: dict[int, _Dealt] = {}
        tables = tuple(plan.table_for(c, s) for c, s in zip(cliques, sigmas, strict=True))
        joint = [halves for q in cliques if len(halves := plan.halves(q)) > 1]
        for stage in sorted({_stage(halves.values()) for halves in joint} - self._stages.keys()):
            self._stages[stage] = self._blocks(stage, joint)
            deliveries, corrections[stage] = self._share_rows(stage, deliveries)
        step = self.session.rounds
        requests = {
            name: Measure(
                tables,
                deliveries[name],
                {stage: dealt[name] for stage, dealt in corrections.items()},
                self._coins(tables, name, step),
            )
            for name in plan.parts
        }
        replies = self.session.ask_each(requests, at_once=self._at_once)
        return self._opened(tables, dict(zip(requests, replies, strict=True)))

    def _blocks(self, stage: int, joint: Sequence[Mapping[str, Clique]]) -> _Blocks:
        """Whose joint codes are shared: all columns alone, or the halves of wider tables."""
        if stage == 0:
            return {p: tuple((a,) for a in part.names) for p, part in self.plan.parts.items()}
        wide = [halves for halves in joint if _stage(halves.values()) == stage]
        found: dict[str, dict[Clique, None]] = {party: {} for party in self.plan.parts}
        for halves in wide:
            for party, half in halves.items():
                found[party][half] = None
        return {party: tuple(halves) for party, halves in found.items() if halves}

    def _share_rows(self, stage: int, deliveries: _Sent) -> tuple[_Sent, _Dealt]:
        """Let all parties share their rows, slab by slab; what they are sent next."""
        blocks, run = self._stages[stage], self.session.run
        sizes = {p: [self.domain.size(block) for block in own] for p, own in blocks.items()}
        widths = {party: sum(each) for party, each in sizes.items()}
        most = max(1, int(_SLAB * MAX_BYTES / (4 * sum(widths.values()))))
        totals: dict[tuple[str, str], Words] = {}
        for start in range(0, self.rows, most):
            step, stop = self.session.rounds, min(self.rows, start + most)
            requests = {
                party: Share(
                    self._keys, self._public, self.rows, self.domain.sizes, blocks, start, stop,
                    deliveries[party],
                )
                for party in blocks
            }  # fmt: skip
            replies = self.session.ask_each(requests, at_once=self._at_once)
            masks = {
                party: products.masks(
                    self._shared[party], _in_run(self.session.run, step), stop - start, width
                )
                for party, width in widths.items()
            }
            for pair in combinations(blocks, 2):
                part = products.product(masks[pair[0]], masks[pair[1]])
                totals[pair] = totals[pair] + part if pair in totals else part
            deliveries = _Sent()
            for sender, reply in zip(requests, replies, strict=True):
                checked, others = CheckedReply(sender), [p for p in blocks if p != sender]
                checked.items("keys of rows", reply.rows.keys, count=len(others), among=others)
                checked.items("bytes of rows", reply.rows.data, count=4 * masks[sender].size + _TAG)
                digest = products.row_sum_digest(masks[sender], sizes[sender], mask=True)
                for party in others:
                    key = reply.rows.keys[party]
                    deliveries[party][sender] = Delivery(step, reply.rows.data, key, digest)
        corrections = _Dealt()
        for (first, second), total in totals.items():
            context = _in_run(run, "R", stage, first, second)
            R = products.masks(self._shared[first], context, *total.shape)
            corrections[second][first] = Array.of(total - R, "<u4")
        return deliveries, corrections

    def _coins(self, tables: Sequence[NoisyTable], party: str, step: int) -> dict[str, Array]:
        """What a party is dealt for its tables with parties before it."""
        found: dict[str, list[Words]] = {}
        for group in self.plan.groups(tables, party):
            if group.second == party != group.first:
                cells = sum(self.domain.size(table.clique) for table in group.tables)
                context = group.release(self.session.run, step)
                bits = products.coin_bits(self._secret, context, cells, group.coins)
                S = products.coin_masks(self._shared[group.first], context, cells, group.coins)
                found.setdefault(group.first, []).append(products.dealt_coins(bits, S).reshape(-1))
        return {first: Array.of(np.concatenate(words), "<u4") for first, words in found.items()}

    def _opened(
        self, tables: Sequence[NoisyTable], replies: Mapping[str, Tables]
    ) -> list[Measurement]:
        """Every table, from what one party or two sent."""
        words: dict[Group, list[npt.NDArray[Any]]] = {}
        for party, reply in replies.items():
            groups, checked = self.plan.groups(tables, party), CheckedReply(party)
            for alone, sent, dtypes in ((True, reply.own, WHOLE), (False, reply.joint, WORDS)):
                due = [group for group in groups if (group.first == group.second) is alone]
                checked.items("groups of tables", sent, count=len(due))
                for group, one in zip(due, sent, strict=True):
                    cells = sum(self.domain.size(table.clique) for table in group.tables)
                    found = checked.array("counts", one.value, dtypes, (cells,))
                    words.setdefault(group, []).append(found)
        counts: dict[Clique, Measurement] = {}
        for group, parts in words.items():
            opened, sigma = parts[0].astype(np.float64), group.kind.sigma
            if group.kind.weights:
                opened, sigma = products.opened(*parts).astype(np.float64), group.coins.sigma
            ends = np.cumsum([self.domain.size(table.clique) for table in group.tables])
            for table, own in zip(group.tables, np.split(opened, ends[:-1]), strict=True):
                counts[table.clique] = Measurement(table.clique, self._placed(table, own), sigma)
        return [counts[table.clique] for table in tables]

    def _placed(self, table: NoisyTable, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Cells as a table whose axes are in the clique's order."""
        sent = [name for half in self.plan.halves(table.clique).values() for name in half]
        order = [sent.index(name) for name in table.clique]
        return cells.reshape(self.domain.shape(sent)).transpose(order)


_Blocks = dict[str, tuple[Clique, ...]]


class _Sent(defaultdict[str, dict[str, Delivery]]):
    """What every party is delivered, by who sent it."""

    def __init__(self) -> None:
        super().__init__(dict)


class _Dealt(defaultdict[str, dict[str, Array]]):
    """What every party is dealt, by the other party of a pair."""

    def __init__(self) -> None:
        super().__init__(dict)


def _kept_secret(task: Task) -> bytes:
    """The dealer's secret, the same when a run is resumed from its folder."""
    store = MemoryStore() if task.store is None else FolderStore(task.store)
    secret = store.get("dealer") or masking.new_secret(task.entropy)
    store.put("dealer", secret)
    return secret
