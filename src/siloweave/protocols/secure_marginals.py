"""Noisy marginals over columns that lie at different parties; nobody sees an exact one.

A party counts marginals of its own columns itself, with noise of its own. A pair of columns at two
parties is a product of their rows that they open with noise that nobody knows. Any other marginal
is opened with the same noise by the first two parties of the study (secure_products.py has both,
after Beaver 1997, "Commodity-based cryptography", and Gilboa & Ishai 2014).
The coordinator deals the random words and carries what parties send each other, which it cannot
read. Whatever the number of marginals, there are these exchanges:

1. *begin*: keys, how many rows there are at most, and noisy histograms of columns that are cut;
2. *share*: each party's rows under masks, encrypted to the others (again for every slab of rows
   that fits into a message; no rows where the budget opens no table of two parties);
3. *measure*: any number of marginals, and again for more of them.

**Guarantee** (dp): rows over all parties together, add/remove or replace-one as the budget says,
towards the coordinator; any parties together, of three or more not both of the first two; and
everyone who sees what is released: an upper bound of the number of rows (where it is private),
noisy histograms, noisy marginals. A row is in one cell of each table. Parties know who is in the
table, so for them only a row's replacement has a meaning, which under an add/remove budget costs
twice its zCDP. Assumed: the coordinator follows the protocol (parties need not, see
secure_products.py) and asks all parties for the same marginals; domain, roster and which columns
are where are public. Every party computes prices from the study and from the request, for itself
and for all parties together, and refuses what goes beyond. Where two parties were asked for
different marginals, or sent different keys, rows or codes, their pads differ, and what both send
opens to random numbers, which are mostly refused; what a party counts alone is then held to its own
limit only. Rows above the bound are left out; that they exist has the probability that `UpperBound`
states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import combinations, count, pairwise
from math import ceil, inf, log2, pi, prod, sqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.core.method import Asked, Case, Forecast, Setup, Task, same_people_note
from siloweave.core.party import OwnerData
from siloweave.errors import BudgetError, CapacityError, InputError, WireError, count_of
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
from siloweave.federation.site import FolderStore, Handlers, Site
from siloweave.models.estimate import Measurement
from siloweave.models.junction_tree import cells_in
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon_of_rho
from siloweave.privacy.budget import (
    Budget,
    enough_epsilon,
    marginal_sensitivity,
    rho_for,
    size_sensitivity,
)
from siloweave.privacy.coins import MOST_SIGMA, Coins, coins_for, largest_order_for
from siloweave.privacy.events import (
    Event,
    Gaussian,
    SharedCoins,
    UnitSharedCoins,
    UnitUpperBound,
    UpperBound,
)
from siloweave.privacy.mechanisms import Entropy
from siloweave.protocols import secure_products as products
from siloweave.protocols.accuracy import error_forecast, numbers_of, two_round_buys
from siloweave.protocols.columns import parts_of
from siloweave.protocols.histograms import (
    NoisyHistogram,
    columns_to_cut,
    counts_event,
    release_counts,
)
from siloweave.protocols.marginals import marginal_forecast
from siloweave.protocols.secure_sums import checked_cliques
from siloweave.protocols.two_rounds import design
from siloweave.protocols.workload import bins_for, first_encoder, queries_of
from siloweave.statistics.marginals import closure, marginal
from siloweave.tables.bins import Cuts, cuts_of
from siloweave.tables.codes import Clique, Codes, Domain, Encoder, ResolutionLevels
from siloweave.tables.schema import Schema

_ROWS_SHARE = 0.005  # of the zCDP, for a bound of the number of rows
_MARGIN = 9.0  # times its noise
_ESCAPES = 1e-3  # share of delta for what truncated zCDP leaves out
_SLACK = 1e-9  # relative, of sums of prices
_SLAB, _FULL = 0.9, 0.96  # of a message, for masked rows or planned tables; for tables, at most
_MANY_CELLS = 2**18  # of pairs of two parties: with fewer, their coins fit into a message
_MOST_CODES = 2**13  # of all columns
_MOST_DEALT = MAX_BYTES  # to a party, in one message
_MOST_WORDS = 2**31  # of all tables of shifted codes together: rows times cells
_MOST_CELLS, _NARROW = 2**12, 3 * 2**14  # of one of them, and rows whose words have mostly 16 bits
_MOST_BATCHES = 3  # of planned tables: they fit into one message, with words of half the width
_FEW_COINS = 0.05  # of a message, for coins of pairs: so many take none of their own
_TAG = 16  # bytes that encryption adds
_EXCHANGES = 4  # begin, share, and measure twice
_COINS = 240  # of a cell of a table of shifted codes, mostly at most
_NEVER = 40  # times its sigma: noise that no honest party draws
_COPIES, _ROW_SECONDS = 8.0, 60.0  # of masked rows in memory; nanoseconds of each of their bytes
_WIDE_COPIES, _WORD_SECONDS = 6.0, 10.0  # alike, of what is dealt for shifted codes, and its words
_COIN_COPIES, _PAIR_COINS = 25.0, 190  # bytes of a pair's coin in memory; of a planned pair's cell
_PLANNED = 2 / 3  # of the pairs, in one forecast of the plan

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
    seed: bytes  # with which its proof that rows are codes is checked


class SharedRows(Reply, frozen=True):
    """Rows under a mask, encrypted to other parties."""

    rows: Relayed


class ShareRows(Request[SharedRows], frozen=True, tag="secure/share"):
    """Send the others your rows from `start` to `stop` under a mask."""

    keys: dict[str, bytes]  # of all parties, signed
    dealer: bytes  # the coordinator's public key
    rows: int  # how many there are at most; those that are missing have the codes 0
    sizes: tuple[int, ...]  # how many codes each column has, in the order of the schema
    start: int
    stop: int
    proof: Array  # k of secure_products.py, by which the others find that rows are codes
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

    @property
    def coins(self) -> Coins:
        """The noise of each cell, where it is made of coins."""
        return Coins(self.weights, self.copies)


class MeasureTables(Request[Tables], frozen=True, tag="secure/measure"):
    """Measure these tables, each party those over its columns; all parties are sent them all."""

    tables: tuple[NoisyTable, ...]
    deliveries: dict[str, Delivery]  # of the last slab
    corrections: dict[str, Array]  # of secure_products.py: Q, by the first party of a pair,
    coins: dict[str, Array]  # G of all tables with it,
    seeds: bytes  # and for tables of shifted codes: seeds of their roots, to the second party,
    cells: bytes  # and C, to both that open them


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
        return marginal_sensitivity(self.budget.neighbours, norm="l2")

    @property
    def moved(self) -> int:
        """How many sets of rows two neighbours differ in: those that are added, or replaced."""
        return 2 if self.budget.neighbours.replaces else 1

    @cached_property
    def rho(self) -> float:
        """zCDP of the whole run; a part of delta is for the ends of noise of coins."""
        left = self.budget.delta * (1 - _ESCAPES)
        return rho_for(msgspec.structs.replace(self.budget, delta=left))

    @cached_property
    def bound(self) -> UpperBound | UnitUpperBound | None:
        """What the bound of the number of rows costs; None where that number is public."""
        if not (unit := size_sensitivity(self.budget.neighbours)):
            return None
        sigma = max(1.0, unit / sqrt(2 * _ROWS_SHARE * self.rho))
        rows, margin = self.budget.neighbours.rows, ceil(_MARGIN * sigma)
        if rows == 1:
            return UpperBound(sigma, margin)
        return UnitUpperBound(sigma, margin + rows - 1, rows)

    @cached_property
    def fine(self) -> Encoder | None:
        """Fine bins of columns that are cut; None without such a column."""
        if not self.synth.counts_share:
            return None
        encoder = first_encoder(self.schema, self.synth)
        return columns_to_cut(encoder, queries_of(self.synth, encoder))

    def fine_of(self, party: str) -> Encoder | None:
        """Those of one party."""
        if self.fine is None:
            return None
        own = [name for name in self.fine.schema.names if self.owners[name] == party]
        return self.fine.select(own) if own else None

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

    @cached_property
    def rho_tables(self) -> float:
        """zCDP that is left for marginals."""
        return self._after_bound * (1 - (self.synth.counts_share if self.fine else 0.0))

    @cached_property
    def closure(self) -> list[Clique]:
        """The workload's queries, and all that lie in them."""
        encoder = first_encoder(self.schema, self.synth)
        return list(closure(queries_of(self.synth, encoder), encoder.domain))

    @property
    def most_tables(self) -> int:
        """How many marginals may be measured in all: half of them at once."""
        return 4 * len(self.closure)

    @cached_property
    def opens_pairs(self) -> bool:
        """Whether coins are wide enough for all columns and pairs, which are measured first."""
        return self.first_sigma <= MOST_SIGMA

    @cached_property
    def first_sigma(self) -> float:
        """Noise of the first measurement, of all columns and pairs."""
        number = sum(len(clique) <= 2 for clique in self.closure)
        return self.unit * sqrt(number / (2 * self.synth.pairs_share * self.rho_tables))

    @cached_property
    def crossing(self) -> list[Clique]:
        """Pairs of columns of two parties."""
        pairs = [q for q in self.closure if len(q) == 2] if self.parts else []
        return [q for q in pairs if len(self.holders(q)) > 1]

    @cached_property
    def largest_order(self) -> int:
        """Renyi order up to which noise of coins is priced."""
        return largest_order_for(self.rho, self.budget.delta)

    @cached_property
    def tail(self) -> float:
        """Probability of an end of noise of coins: all of them have `_ESCAPES` of delta."""
        ends = 2 * self.moved * self.budget.neighbours.rows
        each = _ESCAPES * self.budget.delta / (ends * self.most_tables)
        return float(2.0 ** min(-20, -ceil(-log2(each))))

    def shared(self, bound: int) -> int:
        """How many rows are shared: none where no table is opened by two parties."""
        return bound if self.opens_pairs else 0

    def rows_seen(self, bound: int) -> int:
        """About how many rows there are."""
        return max(1, bound - (self.bound.margin if self.bound else 0))

    def bins(self, rows: int) -> int:
        """How many bins a column is cut into, if there are so many rows."""
        if self.synth.bins is not None:
            return int(self.synth.bins)
        return bins_for(self.schema, rows, self.rho / self.unit**2)

    def cuts(self, party: str, counts: npt.NDArray[np.int64], bound: int) -> dict[str, Cuts]:
        """Where a party's columns are cut, by its noisy counts."""
        fine = self.fine_of(party)
        if fine is None:
            return {}
        rows = self.rows_seen(bound)
        seen = NoisyHistogram(fine, counts, self.counts_sigma, rows, 0).columns
        return {
            c.name: cuts_of(c, fine.edges(c.name), seen[c.name], self.bins(rows))
            for c in fine.schema.columns
        }

    def holders(self, clique: Clique) -> tuple[str, ...]:
        """The parties that have columns of a clique, in roster order."""
        found = {self.owners[name] for name in clique}
        return tuple(party for party in self.parts if party in found)

    @property
    def servers(self) -> tuple[str, str]:
        """The parties that open tables of shifted codes: the first two of the roster."""
        names = tuple(self.parts)
        return names[0], names[:2][-1]

    def openers(self, clique: Clique) -> tuple[str, str]:
        """The parties that open a table; one party twice where it has all columns."""
        holders = self.holders(clique)
        return self.servers if self.is_shifted(clique) else (holders[0], holders[-1])

    def dealt(
        self, tables: Sequence[NoisyTable], domain: Domain, rows: int
    ) -> tuple[Sequence[NoisyTable], int, int]:
        """Tables that are opened by shifted codes; bytes dealt for them without coins; words."""
        wide = [table for table in tables if self.is_shifted(table.clique)]
        moduli = [products.modulus_for(rows, table.coins) for table in wide]
        widths = [2 if modulus == 2**16 else 4 for modulus in moduli]
        return wide, *_dealt(domain, [t.clique for t in wide], rows, widths, coins=0)

    def is_shifted(self, clique: Clique) -> bool:
        """Whether a table is opened by shifted codes."""
        return len(clique) > 2 and len(self.holders(clique)) > 1

    def roots(self, cliques: Sequence[Clique], domain: Domain) -> dict[str, int]:
        """The root of every such table, which is its column of most codes, and how many these are.

        In the order in which they are needed first.
        """
        return _roots(domain, [clique for clique in cliques if self.is_shifted(clique)])

    def halves(self, clique: Clique) -> dict[str, Clique]:
        """Every holder's part of a clique."""
        return {p: tuple(a for a in clique if self.owners[a] == p) for p in self.holders(clique)}

    def as_sent(self, clique: Clique) -> Clique:
        """The columns of a clique, party by party."""
        return tuple(name for half in self.halves(clique).values() for name in half)

    def table_for(self, clique: Clique, sigma: float) -> NoisyTable:
        """A marginal that costs what Gaussian noise of `sigma` does."""
        if len(self.holders(clique)) == 1:
            return NoisyTable(clique, sigma)
        coins = self.coins(sigma)
        return NoisyTable(clique, 0.0, coins.weights, coins.copies)

    def coins(self, sigma: float) -> Coins:
        """Coins whose noise costs a unit what Gaussian noise of `sigma` does."""
        rows = self.budget.neighbours.rows
        return coins_for(sigma, self.largest_order, self.tail, rows)

    def event(self, kind: NoisyTable, count: int, release: str) -> Event:
        """What so many marginals with this noise cost together; InputError for no such noise."""
        if not kind.weights:
            return Gaussian(sigma=kind.sigma, sensitivity=sqrt(count) * self.unit)
        rows = self.budget.neighbours.rows
        made = (kind.weights, kind.copies, self.largest_order, self.tail, release)
        if rows == 1:
            return SharedCoins(*made, count * self.moved)
        return UnitSharedCoins(*made, count, rows)

    def price(self, table: NoisyTable) -> float:
        """zCDP of one marginal; InputError for no such noise, or noise that others make."""
        joint = len(self.holders(table.clique)) > 1
        made = (bool(table.weights), bool(table.sigma)) == (joint, not joint)
        if not made or (joint and not self.opens_pairs):  # then no rows are shared
            raise InputError(f"{table.clique} with sigma = {table.sigma:g} and {table.coins}")
        event = self.event(table, 1, "price")
        return event.rho * event.count

    def groups(self, tables: Sequence[NoisyTable], party: str) -> list[Group]:
        """Tables that a party opens or has columns of, by who has columns of them and by noise."""
        found: dict[
            tuple[tuple[str, ...], tuple[str, str], bool], dict[NoisyTable, list[NoisyTable]]
        ] = {}
        for table in tables:
            holders, openers = self.holders(table.clique), self.openers(table.clique)
            if party in holders + openers:
                kind = msgspec.structs.replace(table, clique=())
                who = (holders, openers, self.is_shifted(table.clique))
                found.setdefault(who, {}).setdefault(kind, []).append(table)
        return [
            Group(*who, index, kind, tuple(own))
            for who, kinds in found.items()
            for index, (kind, own) in enumerate(kinds.items())
        ]


@dataclass(frozen=True)
class Group:
    """Tables that are released together, because one noise is on all of them."""

    holders: tuple[str, ...]  # parties that have columns of them
    openers: tuple[str, str]  # who opens them; one party twice where it has all columns
    shifted: bool  # whether they are opened by shifted codes
    index: int  # of the noise, among those of such tables
    kind: NoisyTable  # the noise
    tables: tuple[NoisyTable, ...]

    @property
    def coins(self) -> Coins:
        """The noise of each cell, where it is made of coins."""
        return self.kind.coins

    @property
    def first(self) -> str:
        """One party that opens them."""
        return self.openers[0]

    @property
    def second(self) -> str:
        """The other one; the same where it has all columns."""
        return self.openers[1]

    def modulus(self, rows: int) -> int:
        """Of the words that are opened."""
        return products.modulus_for(rows, self.coins) if self.shifted else products.P

    def release(self, run: str, step: int) -> str:
        """Name of the release, and what streams of both parties are used for."""
        kind = "tables" if self.shifted else "pairs"
        return f"{run}/{step}/{'+'.join(self.holders)}/{kind}/{self.index}"


def _roots(domain: Domain, wide: Sequence[Clique]) -> dict[str, int]:
    codes = dict(zip(domain.names, domain.sizes, strict=True))
    return {root: codes[root] for root in (max(clique, key=codes.__getitem__) for clique in wide)}


def _dealt(
    domain: Domain,
    wide: Sequence[Clique],
    rows: int,
    widths: Sequence[int] = (),
    coins: int = _COINS,
) -> tuple[int, int]:
    """Bytes that the second party is dealt for tables of shifted codes, and how many words of all.

    The first one is dealt less: no seeds, and no coins. `widths` are the bytes of each one's words,
    `coins` those of a cell.
    """
    codes = dict(zip(domain.names, domain.sizes, strict=True))
    shapes = [[codes[name] for name in clique] for clique in wide]
    cells = [prod(shape) for shape in shapes]
    each = widths or [2 if rows < _NARROW else 4] * len(wide)
    words = sum(w * n // max(shape) for w, n, shape in zip(each, cells, shapes, strict=True))
    seeds = products.SEED * sum(_roots(domain, wide).values())
    return rows * (seeds + words) + 4 * coins * sum(cells), rows * sum(cells)


def _fit(domain: Domain, wide: Sequence[Clique], rows: int) -> bool:
    """Whether these tables of shifted codes fit into one message, and do not take long."""
    dealt, words = _dealt(domain, wide, rows)
    most = max(map(domain.size, wide), default=0)
    return words <= _MOST_WORDS and dealt <= _SLAB * MAX_BYTES and most <= _MOST_CELLS


def _in_run(run: str, *what: object) -> str:
    return "\0".join((run, *map(str, what)))


# Party


class _Agreed(msgspec.Struct, frozen=True):
    """What a party was sent in its first *share*, and holds the coordinator to."""

    keys: dict[str, bytes]
    dealer: bytes
    rows: int
    sizes: tuple[int, ...]


_Slabs = dict[int, tuple[int, int]]  # first row and last of every *share*, by its step


@dataclass(frozen=True)
class _Party:
    """A party's side, made again from what is remembered."""

    plan: SecurePlan
    site: Site[OwnerData]
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
    def step(self) -> int:
        """The step of it that is answered."""
        return int(self.site.context.rpartition("/")[2])

    def before(self, other: str) -> bool:
        """Whether this party is the first of a pair."""
        names = list(self.plan.parts)
        return names.index(self.site.name) < names.index(other)

    def sizes(self, party: str) -> tuple[int, ...]:
        """How many codes each column of a party has."""
        return self.domain.shape(self.plan.parts[party].names)

    def rows(self, slab: tuple[int, int]) -> Codes:
        """This party's codes in a slab; rows that are missing have the code 0."""
        start, stop = slab
        own = [column[start : min(stop, self.real)] for column in self.codes.columns]
        padded = [np.pad(codes, (0, stop - start - len(codes))) for codes in own]
        return Codes(self.codes.domain, tuple(padded))

    def one_hot(self, slab: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """These codes as one-hot rows."""
        own = self.rows(slab)
        return products.one_hot(own.columns, own.domain.sizes)

    def mask(self, step: int, slab: tuple[int, int]) -> Words:
        """The mask of this party's one-hot rows in a step."""
        width = sum(self.codes.domain.sizes)
        return products.masks(self.dealer, _in_run(self.site.run, step), slab[1] - slab[0], width)

    def shifted(self, step: int, slab: tuple[int, int]) -> npt.NDArray[np.int64]:
        """This party's shifted codes in a step, (rows, columns)."""
        own, sizes = self.rows(slab), self.codes.domain.sizes
        context = _in_run(self.site.run, step)
        b = products.shifts(self.dealer, context, slab[1] - slab[0], sizes)
        found: npt.NDArray[np.int64] = (np.stack(own.columns, axis=1) + b) % np.array(sizes)
        return found

    def prove(self, words: Array, planned: Sequence[_Slab], now: int) -> int:
        """The proof of the rows that are shared now; of later ones, a part is remembered."""
        start = planned[now - 1].proven if now else 0
        sizes, stop, total = self.codes.domain.sizes, planned[now].proven, 0
        if words.dtype != "<u4" or words.shape != (stop - start, sum(sizes)):
            raise self.refused("was sent words for a proof of other rows")
        for number, slab in enumerate(planned[now:], now):
            first, last = max(start, slab.start), min(stop, slab.stop)
            if first < last:
                m = self.shifted(self.step + number - now, slab[:2])
                own: Any = words.numpy()[first - start : last - start]
                part = products.proof_sum(own, m[first - slab.start : last - slab.start], sizes)
                self.site.remember(f"proof/{number}/{now}", str(part).encode())
        for earlier in range(now + 1):
            total += int(self.site.recall(f"proof/{now}/{earlier}") or 0)
        return total % products.P

    @property
    def slabs(self) -> _Slabs:
        """What was asked for, by step."""
        kept = self.site.recall("slabs")
        return {} if kept is None else msgspec.msgpack.decode(kept, type=_Slabs)

    @property
    def shared(self) -> int:
        """How many rows earlier steps asked for, slab after slab, so that none counts twice."""
        return max((stop for s, (_, stop) in self.slabs.items() if s != self.step), default=0)

    def take(self, deliveries: Mapping[str, Delivery]) -> None:
        """Multiply what others sent, and remember this party's share of each product."""
        for other, sent in deliveries.items():
            slab = self.slabs.get(sent.step)
            if slab is None or other == self.site.name or other not in self.plan.parts:
                raise self.refused(f"was delivered rows of {other!r} that nobody asked for")
            words = self.site.open_relayed(
                other, sent.data, sent.key, self.secret(other), _in_run(self.site.run, sent.step)
            )
            sizes, rows = self.sizes(other), slab[1] - slab[0]
            width = sum(sizes) + len(sizes)
            if words.size != rows * width + 1:
                raise self.refused(f"was sent another number of rows by {other!r}")
            masked, shifted = np.split(words[:-1].reshape(rows, width), [sum(sizes)], axis=1)
            m, proof = shifted.astype(np.int64), int(words[-1])
            fits = (m < np.array(sizes)).all() and (masked < products.P).all()
            if not fits or not products.are_codes(sent.seed, masked, m, sizes, proof):
                raise self.refused(f"was sent rows by {other!r} that are no codes")
            if self.before(other):
                part = products.count_masked(self.one_hot(slab), masked)
            else:
                part = products.product(masked, self.mask(sent.step, slab))
            self.site.remember(f"part/{sent.step}/{other}", part.tobytes())
            self.site.remember(f"shifted/{sent.step}/{other}", shifted.tobytes())

    def share_of(self, other: str) -> Words:
        """This party's share of the products of all its columns with another's."""
        pair = (self.site.name, other) if self.before(other) else (other, self.site.name)
        shape = tuple(sum(self.sizes(name)) for name in pair)
        if self.before(other):
            total = products.masks(self.dealer, _in_run(self.site.run, "R", *pair), *shape)
        else:
            total = self._words(f"correction/{other}", shape)
        for step in self.slabs:
            total = products.added(total, self._words(f"part/{step}/{other}", shape))
        return total

    def shifted_codes(self, clique: Clique) -> npt.NDArray[np.int64]:
        """Shifted codes of some columns, of all rows, (rows, columns)."""
        found = []
        for step, slab in self.slabs.items():
            own = {self.site.name: self.shifted(step, slab)}
            for name in self.plan.holders(clique):
                if name != self.site.name:
                    shape = (slab[1] - slab[0], len(self.sizes(name)))
                    own[name] = self._words(f"shifted/{step}/{name}", shape).astype(np.int64)
            columns = []
            for column in clique:
                owner = self.plan.owners[column]
                columns.append(own[owner][:, self.plan.parts[owner].names.index(column)])
            found.append(np.stack(columns, axis=1))
        return np.concatenate(found)

    def _words(self, name: str, shape: tuple[int, ...]) -> Words:
        kept = self.site.recall(name)
        if kept is None or len(kept) != 4 * int(np.prod(shape)):
            raise self.refused("was asked to count before all rows were delivered")
        return np.frombuffer(kept, dtype="<u4").reshape(shape)

    def digest(self, tables: tuple[NoisyTable, ...]) -> str:
        """Of all that every party is sent alike up to a *measure*."""
        agreed = msgspec.structs.replace(self.agreed, keys=dict(sorted(self.agreed.keys.items())))
        alike = [agreed, sorted(self.slabs.items()), tables]
        return sha256(msgspec.msgpack.encode(alike)).hexdigest()

    def refused(self, what: str) -> WireError:
        """The error for a request that does not fit."""
        return WireError(f"party {self.site.name!r} {what}. Nothing was released")


def _plan_of(synth: Any, site: Site[OwnerData]) -> SecurePlan:
    facts, limit = site.terms.facts, site.ledger.limit
    if limit is None or not limit.private:
        raise BudgetError(f"party {site.name!r} has no limit; marginals are paid for out of one")
    return SecurePlan(synth, facts["schema"], facts["parts"], limit)


def begin(synth: Any, request: Begin, site: Site[OwnerData]) -> Begun:
    """Pay for the bound, if this party is the first and it is private, and for columns to cut."""
    site.require_first()
    plan, table = _plan_of(synth, site), site.rows.table
    fine = plan.fine_of(site.name)
    paid: tuple[Released[int], ...] = ()
    known: tuple[Public[int], ...] = ()
    counts: tuple[Released[Array], ...] = ()
    bound = plan.bound
    if site.name == plan.first and bound is None:
        known = (Public(table.num_rows, "neighbours have the same number of rows"),)
    elif site.name == plan.first and bound is not None:
        number = partial(_bound_of, table.num_rows, bound, site.entropy)
        paid = (site.release(bound, "an upper bound of the number of rows", number),)
        site.remember("bound", str(paid[0].value).encode())
    if fine is not None:
        event = counts_event(
            plan.budget.neighbours, ResolutionLevels(fine).number, plan.counts_sigma
        )
        own = table.select(list(fine.schema.names))
        counts = (release_counts(site, fine, own, event),)
        site.remember("counts", counts[0].value.data)
    return Begun(site.mask_key(), paid, known, counts)


def _bound_of(rows: int, bound: UpperBound | UnitUpperBound, entropy: Entropy) -> int:
    """At least the number of rows, and 1."""
    exact = np.array([rows + bound.margin], dtype=np.int64)
    noisy = mechanisms.add_gaussian(exact, bound.sigma, entropy=entropy)
    return max(rows, int(noisy[0]), 1)


def _party(synth: Any, site: Site[OwnerData], agreed: _Agreed | None = None) -> _Party:
    """This party's side, once it is agreed on who takes part, and how columns are coded."""
    kept = site.recall("agreed")
    if agreed is not None:
        text = msgspec.msgpack.encode(agreed)
        if kept not in (None, text):
            raise WireError(f"party {site.name!r} was sent other keys, rows or codes before")
        site.remember("agreed", text)
        kept = text
    if kept is None:
        raise WireError(f"party {site.name!r} was asked to count before rows were shared")
    if kept not in site.memo:
        site.memo[kept] = _made(synth, site, msgspec.msgpack.decode(kept, type=_Agreed))
    found: _Party = site.memo[kept]
    return found


def _made(synth: Any, site: Site[OwnerData], agreed: _Agreed) -> _Party:
    who, plan = f"party {site.name!r}", _plan_of(synth, site)
    n = site.rows.table.num_rows
    known = max(1, n) if plan.bound is None else int(site.recall("bound") or agreed.rows)
    if not 1 <= agreed.rows <= MOST_ROWS or agreed.rows != known:
        raise WireError(f"{who} was sent a bound of {agreed.rows:,} rows, which cannot be")
    if set(agreed.keys) != set(plan.parts):
        raise WireError(f"{who} was sent keys of {', '.join(agreed.keys)}; the study has others")
    counts = np.frombuffer(site.recall("counts") or b"", "<i8")
    cuts = plan.cuts(site.name, counts, agreed.rows)
    encoder = replace(first_encoder(plan.parts[site.name], synth), cuts=cuts)
    codes = encoder.encode(site.rows.table)
    widest = first_encoder(plan.schema, synth).domain
    fits = len(agreed.sizes) == len(widest.sizes)
    if not fits or any(n > m for n, m in zip(agreed.sizes, widest.sizes, strict=True)):
        raise WireError(f"{who} was sent more codes than the study's columns can have")
    domain = Domain(widest.names, agreed.sizes)
    if domain.shape(codes.domain.names) != codes.domain.sizes:
        raise WireError(f"{who} codes its columns otherwise than the coordinator says")
    return _Party(plan, site, agreed, codes, domain)


def share(synth: Any, request: ShareRows, site: Site[OwnerData]) -> SharedRows:
    """Mask rows, and encrypt them to the other parties."""
    party = _party(synth, site, _Agreed(request.keys, request.dealer, request.rows, request.sizes))
    slab = (request.start, request.stop)
    planned = _slabs_of(_owned(party.plan, party.domain), party.plan.shared(request.rows))
    now = len(party.slabs.keys() - {party.step})
    if now == len(planned) or slab != planned[now][:2]:
        after = "no more" if now == len(planned) else "rows {} to {} now".format(*planned[now])
        raise party.refused(
            f"was asked for rows {request.start} to {request.stop} in one message; it answers "
            f"'secure/share' {len(planned)} times for {request.rows:,} rows, and shares {after}"
        )
    party.take(request.deliveries)
    site.remember("slabs", msgspec.msgpack.encode({**party.slabs, party.step: slab}))
    masked = products.taken(party.one_hot(slab), party.mask(party.step, slab))
    m, proof = party.shifted(party.step, slab), party.prove(request.proof, planned, now)
    rows = np.hstack([masked, m.astype(np.uint32)])
    sent = np.append(rows.reshape(-1), np.uint32(proof))
    readers = {name: party.secret(name) for name in party.plan.parts if name != site.name}
    return SharedRows(site.relay(sent, readers, _in_run(site.run, party.step)))


def measure(synth: Any, request: MeasureTables, site: Site[OwnerData]) -> Tables:
    """Check what all tables cost together, then pay for this party's, and count."""
    party = _party(synth, site)
    checked_cliques([table.clique for table in request.tables], party.domain, site.name)
    _check_size(party, request.tables)
    _check_price(party, request.tables)
    if party.shared != party.plan.shared(party.agreed.rows):
        raise party.refused(f"was asked to count after {party.shared:,} of its rows were shared")
    party.take(request.deliveries)
    for other, words in request.corrections.items():
        site.remember(f"correction/{other}", words.data)
    own, joint = list[Released[Array]](), list[Released[Array]]()
    dealt = _Dealt(party, request)
    for group in party.plan.groups(request.tables, site.name):
        shown = ", ".join("×".join(table.clique) for table in group.tables[:8])
        shown += ", …" if len(group.tables) > 8 else ""
        number = "a marginal" if len(group.tables) == 1 else f"{len(group.tables)} marginals"
        release = group.release(party.site.run, party.step)
        event = party.plan.event(group.kind, len(group.tables), release)
        if group.first == group.second:
            what = f"{number}: {shown}"
            own.append(site.release(event, what, partial(_counted, party, group)))
            continue
        others = " and ".join(name for name in group.openers if name != site.name)
        what = f"{number} with {others}: {shown}"
        if site.name not in group.openers:
            site.pay(event, what)  # its columns are counted, and two others open the tables
            continue
        sent = _closed(party, group, dealt, request.tables)
        joint.append(site.release(event, what, partial(Array.of, sent, "<u4")))
    return Tables(tuple(own), tuple(joint))


class _Dealt:
    """What the coordinator dealt, taken out in the order of the tables."""

    def __init__(self, party: _Party, request: MeasureTables) -> None:
        self._party = party
        held = {f"coins/{name}": words.data for name, words in request.coins.items()}
        held |= {"seeds": request.seeds, "cells": request.cells}
        self._held = {what: memoryview(data) for what, data in held.items()}
        self.seeds: dict[str, masking.Seeds] = {}  # of every root, (rows, codes, 2)
        plan, name, rows = party.plan, party.site.name, party.agreed.rows
        cliques = [table.clique for table in request.tables]
        for root, size in plan.roots(cliques, party.domain).items():
            if name == plan.servers[0]:
                context = _in_run(party.site.run, party.step, root)
                self.seeds[root] = products.root_seeds(party.dealer, context, rows, size)
            elif name == plan.servers[1]:
                self.seeds[root] = self._taken("seeds", (rows, size, 2), "<u8")

    def coins(self, other: str, cells: int, coins: Coins) -> Words:
        """G of some tables, (cells, coins), below 2^32."""
        return self._taken(f"coins/{other}", (cells, coins.number), "<u4")

    def cells(self, rows: int, cells: int, modulus: int) -> products.CellWords:
        """C of a table, (rows, cells)."""
        return self._taken("cells", (rows, cells), "<u4" if modulus == 2**32 else "<u2")

    def _taken(self, what: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        held, count = self._held.get(what, memoryview(b"")), int(np.prod(shape))
        size = count * np.dtype(dtype).itemsize
        if len(held) < size:
            raise self._party.refused(f"was dealt too few {what.partition('/')[0]}")
        self._held[what] = held[size:]
        return np.frombuffer(held, dtype, count).reshape(shape)


def _check_size(party: _Party, tables: Sequence[NoisyTable]) -> None:
    """Refuse tables of more cells than the study implies, or for which a message has no room."""
    plan, domain = party.plan, party.domain
    wide, dealt, words = plan.dealt(tables, domain, party.agreed.rows)
    cells = sum(domain.size(table.clique) for table in tables)
    coins = sum(domain.size(table.clique) * table.coins.number for table in tables)
    most = max(sum(map(domain.size, plan.closure)), cells_in(plan.synth.max_model_mb))
    widest = max((domain.size(table.clique) for table in wide), default=0)
    fits = cells <= most and words <= _MOST_WORDS and widest <= _MOST_CELLS
    if not fits or 4 * coins + dealt > _MOST_DEALT:
        raise party.refused(
            f"was asked for {len(tables):,} marginals of {cells:,} cells with {coins:,} coins, "
            "which is more than its study implies, or a message holds"
        )


def _check_price(party: _Party, tables: Sequence[NoisyTable]) -> None:
    """Refuse tables that would cost all parties together more than is left for tables."""
    site, plan = party.site, party.plan
    before = site.recall("prices") or msgspec.msgpack.encode({})
    prices = msgspec.msgpack.decode(before, type=dict[str, tuple[int, float]])
    try:
        rho = sum(plan.price(table) for table in tables)
    except InputError as error:
        raise party.refused(f"was asked for a table with noise that cannot be: {error}") from error
    prices[str(party.step)] = (len(tables), rho)
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


def _closed(party: _Party, group: Group, dealt: _Dealt, tables: tuple[NoisyTable, ...]) -> Words:
    """This party's words of tables that two parties open."""
    coins, first = group.coins, group.first == party.site.name
    other = group.second if first else group.first
    if coins.half + party.agreed.rows > MOST_ROWS:
        raise party.refused(f"was asked for noise of up to {coins.half:,}, which is too wide")
    release, modulus = group.release(party.site.run, party.step), group.modulus(party.agreed.rows)
    exact = _shifted if group.shifted else _product
    words = np.concatenate([exact(party, table, other, dealt, release) for table in group.tables])
    z = products.coin_bits(party.secret(other), release, len(words), coins)
    if first:
        given = products.coin_masks(party.dealer, release, len(words), coins, modulus)
    else:
        given = dealt.coins(other, len(words), coins)
    noise = products.noise_share(coins, z, given, modulus, first=first)
    same = party.digest(tables)  # with a coordinator that says something else, no pad cancels
    pad = products.pad(party.secret(other), _in_run(release, same), len(words), modulus)
    closed = products.added(words, noise, modulus)
    return (products.added if first else products.taken)(closed, pad, modulus)


def _product(party: _Party, table: NoisyTable, other: str, dealt: _Dealt, release: str) -> Words:
    """This party's share of a pair's exact counts, the first party's codes first."""
    places = []
    for name, (column,) in party.plan.halves(table.clique).items():
        names = party.plan.parts[name].names
        start = sum(party.sizes(name)[: names.index(column)])
        places.append(slice(start, start + party.domain.size_of(column)))
    share = party.share_of(other)[places[0], places[1]]
    return _without_missing(party, share, other, products.P)


def _shifted(party: _Party, table: NoisyTable, other: str, dealt: _Dealt, release: str) -> Words:
    """This party's share of any marginal's exact counts."""
    clique = party.plan.as_sent(table.clique)
    shape, rows = party.domain.shape(clique), party.agreed.rows
    (root,) = party.plan.roots([table.clique], party.domain)
    place, modulus = clique.index(root), products.modulus_for(rows, table.coins)
    C = dealt.cells(rows, party.domain.size(clique) // shape[place], modulus)
    m, info = party.shifted_codes(clique), _in_run(release, *clique)
    counts = products.count_shifted(m, shape, place, dealt.seeds[root], info, C)
    share = counts if party.before(other) else products.taken(0, counts, 2**32)
    return _without_missing(party, share, other, modulus)


def _without_missing(party: _Party, share: Words, other: str, modulus: int) -> Words:
    """A share without the rows that are missing, which have the codes 0."""
    missing = np.zeros(share.size, dtype=np.uint32)
    if party.before(other):
        missing[0] = party.agreed.rows - party.real
    return products.taken(share.reshape(-1), missing, modulus)


def secure_handlers(synth: Any) -> Handlers:
    """A party's side."""
    return {
        Begin: partial(begin, synth),
        ShareRows: partial(share, synth),
        MeasureTables: partial(measure, synth),
    }


def secure_facts(setup: Setup) -> dict[str, Any]:
    """What every party is given of a study, see `Terms`."""
    return {"schema": coded_schema(setup), "parts": parts_of(setup)}


def check_codes(setup: Setup, learn: float = 0.0) -> None:
    """Raise CapacityError for so many codes that masked rows, or coins of pairs, cannot be sent."""
    domain = first_encoder(coded_schema(setup), setup.synth).domain
    if (total := sum(domain.sizes)) > _MOST_CODES:
        widest = max(domain.names, key=domain.size_of)
        raise CapacityError(
            f"the columns have {total:,} codes in all ({widest} alone {domain.size_of(widest):,}), "
            f"and every row is sent with a number for each; at most {_MOST_CODES:,} may be. Put "
            "rare categories together in the schema, or use fewer bins"
        )
    if not setup.columns:
        return
    plan = SecurePlan(setup.synth, coded_schema(setup), parts_of(setup), setup.budget)
    cells = sum(map(domain.size, plan.crossing))
    if cells < _MANY_CELLS or not plan.opens_pairs:
        return
    size = 4 * cells * plan.coins(plan.first_sigma).number
    if size > _FULL * MAX_BYTES:
        most = max(plan.crossing, key=domain.size)
        raise CapacityError(
            f"the noise of {len(plan.crossing)} pairs of columns of two parties, {cells:,} cells, "
            f"takes a message of {size / 1e6:,.0f} MB; one holds {MAX_BYTES / 1e6:,.0f}. "
            f"{'×'.join(most)} of {' and '.join(plan.holders(most))} alone has "
            f"{domain.size(most):,} cells. Put rare categories together in the schema, use fewer "
            "bins, or name the pairs that matter as workload"
        )


def coded_schema(setup: Setup) -> Schema:
    """All columns but ids, in the order of the schema."""
    return setup.schema.select([column.name for column in setup.schema.coded])


class _Slab(NamedTuple):
    """Rows that are shared in one message, and up to which one their proof was sent by then."""

    start: int
    stop: int
    proven: int


def _owned(plan: SecurePlan, domain: Domain) -> list[tuple[int, int]]:
    """How many codes and columns every party has."""
    shapes = [domain.shape(part.names) for part in plan.parts.values()]
    return [(sum(shape), len(shape)) for shape in shapes]


def _bytes_of(owned: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Of a row, at each party: of its proof, of what is sent, and of what others sent."""
    every = sum(codes + columns for codes, columns in owned)
    return [(4 * a, 4 * (a + b), 4 * (every - a - b)) for a, b in owned]


def _slabs_of(owned: Sequence[tuple[int, int]], rows: int) -> list[_Slab]:
    """How rows are shared in as few messages as hold them; no rows, in one that has the keys.

    A message has proofs of rows that are shared with it or later, and delivers the rows of the one
    before; the last ones go along with what is measured first. So proofs are sent as early as there
    is room for them, which the first message has, and the last slab is the largest.
    """
    each, full = _bytes_of(owned), _SLAB * MAX_BYTES
    most = max(1, int(full / max(max(sent, given) for _, sent, given in each)))
    whole = max(proof + given for proof, _, given in each)
    least = max(-(-rows // most), int(rows * whole / full) - 1)
    for number in count(max(1, min(least, rows - most + 1))):  # which is enough: a row in each
        first = -(-max(0, rows - most) // max(1, number - 1))
        ends = [min(k * first, rows - min(most, rows)) for k in range(number)] + [rows]
        found, proven = list[_Slab](), 0
        for start, stop in pairwise(ends):
            before = found[-1].stop - found[-1].start if found else 0
            room = min(int((full - given * before) / proof) for proof, _, given in each)
            proven = min(rows, proven + max(1, room))
            if rows and not start < stop <= min(proven, start + most):
                break
            found.append(_Slab(start, stop, proven))
        if len(found) == number:
            return found
    raise AssertionError("more messages hold more rows")


def secure_forecast(synth: Any, case: Case) -> Forecast:
    """What a run takes: masked rows, dealt coins, and what every method of marginals takes."""
    known, notes = case.schema, list[str]()
    encoder = known if isinstance(known, Encoder) else first_encoder(known, synth)
    schema = encoder.schema.select(encoder.domain.names)
    parts = {name: schema.select(list(own)) for name, own in case.columns.items()}
    plan = SecurePlan(synth, schema, parts, case.budget)
    if synth.bins is None:
        bins = plan.bins(case.rows)
        synth, encoder = replace(synth, bins=bins), replace(encoder, bins=bins)
        if plan.fine is not None:
            cut = len(plan.fine.schema.columns)
            notes.append(
                f"{count_of(cut, 'column of numbers is', 'columns of numbers are')} cut into about "
                f"{bins} bins{' each' * (cut > 1)}, as many as about {case.rows:,} rows carry "
                f"at epsilon = {case.budget.epsilon:g}; bins = {bins} fixes it"
            )
    base = marginal_forecast(
        lambda settings, case, domain: (_EXCHANGES, 1.0), lambda *facts: {}, all_pairs=True
    )(synth, case)
    shared = plan.shared(case.rows + (plan.bound.margin if plan.bound else 0))
    width = 4 * shared * sum(encoder.domain.sizes)  # bytes of all masked rows
    cells = _crossing_cells(plan, encoder.domain, case.parties)
    coins = cells and cells * plan.coins(plan.first_sigma).number
    most = shared / (plan.first_sigma * sqrt(2 / pi))  # cells of pairs that are worth their noise
    dealt = coins + _PAIR_COINS * _crossing_cells(plan, encoder.domain, case.parties, most)
    wide, words = _foreseen(synth, case, encoder, shared)
    owned = _owned(plan, encoder.domain)
    if not owned:  # as if each party had as many
        codes, columns = sum(encoder.domain.sizes), len(encoder.domain.names)
        owned = [(-(-codes // case.parties), -(-columns // case.parties))] * case.parties
    slabs = len(_slabs_of(owned, shared))
    every, wider = sum(codes for codes, _ in owned), max(codes for codes, _ in owned)
    crossed = shared * max(map(sum, _bytes_of(owned))) + 4 * wider * (every - wider)
    named = synth.target is not None or synth.workload != "auto"  # else wide tables are rare
    measured = 1 + (_MOST_BATCHES if case.parties > 1 else 1)
    measured += 2 * (4 * coins > _FEW_COINS * MAX_BYTES)  # one more, each time
    asked: Asked = {Begin: 1, ShareRows: slabs, MeasureTables: measured}
    if case.parties > 1 and not plan.opens_pairs:
        notes.append(only_alone(plan))
    error = None
    if case.rows > 1:
        rho = plan.rho_tables / plan.unit**2
        numbers = numbers_of(encoder.schema)
        spread = (synth.pairs_share, synth.shrinkage)
        bought = two_round_buys(encoder.domain, numbers, case.rows, rho, *spread)
        error = error_forecast(encoder.schema, encoder.domain, case.rows, bought)
    to_parties: float | None = None
    if case.parties > 1 and plan.bound is not None:
        # A replaced row may move every release twice, and meet twice as many ends of noise.
        left = case.budget.delta * (1 - 2 * _ESCAPES)
        to_parties = epsilon_of_rho(2 * plan.rho, left)
        notes.append(same_people_note(to_parties))
    return replace(
        base,
        asked=asked,
        notes=(*base.notes, *notes),
        by_rows=(ShareRows,),
        closes=True,
        error=error,
        epsilon_to_parties=to_parties,
        memory_mb=base.memory_mb
        + 1e-6 * (_COPIES * width + _WIDE_COPIES * wide + _COIN_COPIES * coins),
        bytes_per_party=crossed + 4 * (2 * dealt // case.parties) + wide * named,
        seconds=(base.seconds or 0.0) + 1e-9 * (_ROW_SECONDS * width + _WORD_SECONDS * words),
    )


def _crossing_cells(plan: SecurePlan, domain: Domain, parties: int, most: float = inf) -> int:
    """How many cells all pairs of two parties have, where a pair has fewer than `most`."""
    if parties == 1 or not plan.opens_pairs:
        return 0
    pairs = plan.crossing if plan.parts else [q for q in plan.closure if len(q) == 2]
    cells = sum(size for size in map(domain.size, pairs) if size < most)
    return cells if plan.parts else cells * (parties - 1) // parties  # as if each had as many


def only_alone(plan: SecurePlan) -> str:
    """A sentence about a budget with which no table of several parties can be measured."""
    enough = enough_epsilon(plan.budget, lambda one: replace(plan, budget=one).opens_pairs)
    return (
        f"epsilon = {plan.budget.epsilon:g} is too small for tables of columns of several parties; "
        "columns of one party are measured, and those of different parties are independent in the "
        f"synthetic table. With epsilon = {enough:g} all are measured"
    )


def _foreseen(synth: Any, case: Case, encoder: Encoder, shared: int) -> tuple[int, int]:
    """Bytes that are dealt for tables of shifted codes, and their words: the mean of two plans.

    Which pairs are planned depends on the rows: here it is all of them, or those of fewer cells.
    """
    if case.parties == 1:
        return 0, 0
    domain, queries = encoder.domain, queries_of(synth, encoder)
    pairs = sorted((q for q in closure(queries, domain) if len(q) == 2), key=domain.size)
    rho = rho_for(case.budget) / marginal_sensitivity(case.budget.neighbours, norm="l2") ** 2
    sigma = sqrt(max(1, len(pairs)) / (2 * synth.pairs_share * rho))
    found = np.zeros(2, dtype=np.int64)
    for number in (len(pairs), ceil(_PLANNED * len(pairs))) if pairs else ():
        planned = [Measurement(q, np.full(domain.shape(q), case.rows / domain.size(q)), sigma)
                   for q in pairs[:number]]  # fmt: skip
        wide = _wide(
            design(domain, queries, planned, (1 - synth.pairs_share) * rho, synth,
                   lambda tables: _fit(domain, _wide(tables), shared))
        )  # fmt: skip
        found += np.array(_dealt(domain, wide, shared)) // 2
    return int(found[0]), int(found[1])


def _wide(cliques: Iterable[Clique]) -> list[Clique]:
    return [clique for clique in cliques if len(clique) > 2]


# Coordinator

_ByParty = defaultdict[str, dict[str, Any]]
"""What every party is sent, by whom it is from or whom it opens tables with."""


class SecureMarginals:
    """The coordinator's side: it deals random words, carries messages, and opens noisy tables.

    Args:
        session: With the parties, who hold `OwnerData`.
        task: The run's.

    Attributes:
        encoder: How all columns are coded, once the parties answered the first question.
    """

    def __init__(self, session: Session, task: Task) -> None:
        setup = task.setup
        self.session = session
        self.plan = SecurePlan(setup.synth, coded_schema(setup), parts_of(setup), setup.budget)
        self._secret = kept_secret(task)
        self._public = masking.public_key(self._secret)
        self._at_once = task.at_once
        self._slabs: _Slabs = {}
        self._begin(setup)

    def _begin(self, setup: Setup) -> None:
        plan = self.plan
        queries_of(plan.synth, first_encoder(plan.schema, plan.synth))  # refuses unknown columns
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
        self.encoder = replace(first_encoder(setup.schema, plan.synth), cuts=cuts)
        self.domain = self.encoder.domain
        public = {name: key[: masking.KEY] for name, key in self._keys.items()}
        self._shared = masking.agree_with(self._secret, public)

    def can_measure(self, cliques: Sequence[Clique]) -> bool:
        """Whether tables fit into one message, do not take long, and coins are wide enough."""
        joint = [clique for clique in cliques if len(self.plan.holders(clique)) > 1]
        if joint and not self.plan.opens_pairs:
            return False
        wide = _wide(joint)
        return len(cliques) <= self.plan.most_tables // 2 and _fit(self.domain, wide, self.rows)

    def measure(
        self, cliques: Sequence[Clique], sigmas: Sequence[float], *, last: bool = False
    ) -> list[Measurement]:
        """Noisy marginals, each of which costs what Gaussian noise of its sigma does, if it can be.

        `last` is as of `Session.ask`.

        Raises:
            WireError: A party sent what does not fit; names it.
            BudgetError: Noise of such a sigma cannot be made.
        """
        tables = [
            self.plan.table_for(clique, sigma)
            for clique, sigma in zip(cliques, sigmas, strict=True)
            if sigma <= MOST_SIGMA or len(self.plan.holders(clique)) == 1
        ]
        found: dict[Clique, Measurement] = {}
        batches = list(self._batches(tables))
        for batch in batches:
            found |= self._measured(batch, last=last and batch is batches[-1])
        return [found[table.clique] for table in tables]

    def _batches(self, tables: Sequence[NoisyTable]) -> Iterator[tuple[NoisyTable, ...]]:
        """Tables for one message each: their coins, and what is dealt for shifted codes, must fit.

        So must the last rows that are shared, which the first message of all delivers.
        """
        batch, wide = list[NoisyTable](), list[NoisyTable]()
        room = _FULL * MAX_BYTES - (0 if self._slabs else self._last_rows)
        coins = 0
        for table in tables:
            joint = len(self.plan.holders(table.clique)) > 1
            own = 4 * self.domain.size(table.clique) * table.coins.number if joint else 0
            shifted = [table] if self.plan.is_shifted(table.clique) else []
            _, dealt, _ = self.plan.dealt([*wide, *shifted], self.domain, self.rows)
            if batch and coins + own + dealt > room:
                yield tuple(batch)
                batch, wide, coins, room = [], [], 0, _FULL * MAX_BYTES
            batch.append(table)
            wide, coins = [*wide, *shifted], coins + own
        if batch:
            yield tuple(batch)

    @property
    def _last_rows(self) -> int:
        """Bytes that a party is delivered of the last rows, at most."""
        owned = _owned(self.plan, self.domain)
        last = _slabs_of(owned, self.plan.shared(self.rows))[-1]
        return max(given for *_, given in _bytes_of(owned)) * (last.stop - last.start)

    def _measured(
        self, tables: tuple[NoisyTable, ...], *, last: bool = False
    ) -> dict[Clique, Measurement]:
        deliveries, corrections = _ByParty(dict), _ByParty(dict)
        if not self._slabs:
            deliveries, corrections = self._share_rows()
        coins = {name: self._coins(name, tables) for name in self.plan.parts}
        servers, (seeds, cells) = self.plan.servers, self._cells(tables)
        requests = {
            name: MeasureTables(
                tables, deliveries[name], corrections[name], coins[name],
                seeds if name == servers[1] else b"", cells if name in servers else b"",
            )
            for name in self.plan.parts
        }  # fmt: skip
        replies = self.session.ask_each(requests, at_once=self._at_once, last=last)
        answered = dict(zip(requests, replies, strict=True))
        return opened_tables(self.plan, self.domain, self.rows, tables, answered)

    def _sizes(self, party: str) -> tuple[int, ...]:
        return self.domain.shape(self.plan.parts[party].names)

    def _share_rows(self) -> tuple[_ByParty, _ByParty]:
        """Let all parties share their rows, slab by slab; what they are sent next."""
        parties, run, proven = list(self.plan.parts), self.session.run, 0
        totals: dict[tuple[str, str], Words] = {}
        deliveries = _ByParty(dict)
        planned = _slabs_of(_owned(self.plan, self.domain), self.plan.shared(self.rows))
        steps = {slab: self.session.rounds + number for number, slab in enumerate(planned)}
        for slab, step in steps.items():
            start, stop, _ = slab
            self._slabs[step] = (start, stop)
            masks, seeds, requests = {}, {}, {}
            for party in parties:
                context, width = _in_run(run, step), sum(self._sizes(party))
                masks[party] = products.masks(self._shared[party], context, stop - start, width)
                seeds[party] = self._proof_seed(party, step)
                rows = (proven, slab.proven)
                parts = [self._proof(party, one, at, *rows) for one, at in steps.items()]
                requests[party] = ShareRows(
                    self._keys, self._public, self.rows, self.domain.sizes, start, stop,
                    Array.of(np.concatenate(parts), "<u4"), deliveries[party],
                )  # fmt: skip
            proven = slab.proven
            replies = self.session.ask_each(requests, at_once=self._at_once)
            for pair in combinations(parties, 2):
                part = products.product(masks[pair[0]], masks[pair[1]])
                totals[pair] = products.added(totals[pair], part) if pair in totals else part
            deliveries = _ByParty(dict)
            for sender, reply in zip(parties, replies, strict=True):
                checked, others = CheckedReply(sender), [p for p in parties if p != sender]
                words = masks[sender].size + (stop - start) * len(self._sizes(sender)) + 1
                checked.items("keys of rows", reply.rows.keys, count=len(others), among=others)
                checked.items("bytes of rows", reply.rows.data, count=4 * words + _TAG)
                for party in others:
                    key, seed = reply.rows.keys[party], seeds[sender]
                    deliveries[party][sender] = Delivery(step, reply.rows.data, key, seed)
        corrections = _ByParty(dict)
        for (first, second), total in totals.items():
            context = _in_run(run, "R", first, second)
            R = products.masks(self._shared[first], context, *total.shape)
            corrections[second][first] = Array.of(products.taken(total, R), "<u4")
        return deliveries, corrections

    def _proof_seed(self, party: str, step: int) -> bytes:
        context = _in_run(self.session.run, step)
        return masking.stream(self._secret, f"{context}/{party}".encode(), 8).tobytes()

    def _proof(self, party: str, slab: _Slab, step: int, first: int, last: int) -> Words:
        """Words for a proof of those of the rows from first to last that are in a slab."""
        sizes, count = self._sizes(party), slab.stop - slab.start
        first, last = max(first, slab.start) - slab.start, min(last, slab.stop) - slab.start
        if first >= last:
            return np.empty((0, sum(sizes)), np.uint32)
        shared, context = self._shared[party], _in_run(self.session.run, step)
        U = products.masks(shared, context, count, sum(sizes))
        b = products.shifts(shared, context, count, sizes)
        return products.proof_words(self._proof_seed(party, step), U, b, sizes, slice(first, last))

    def _coins(self, party: str, tables: Sequence[NoisyTable]) -> dict[str, Array]:
        """G for the tables that a party opens as the second one, by the first one."""
        dealt: dict[str, list[Words]] = {}
        for group in self.plan.groups(tables, party):
            if group.second != party or group.first == party:
                continue
            first = group.first
            release = group.release(self.session.run, self.session.rounds)
            count = sum(self.domain.size(table.clique) for table in group.tables)
            bits = products.coin_bits(self._secret, release, count, group.coins)
            modulus = group.modulus(self.rows)
            S = products.coin_masks(self._shared[first], release, count, group.coins, modulus)
            dealt.setdefault(first, []).append(products.taken(bits, S, modulus).reshape(-1))
        return {name: Array.of(np.concatenate(words), "<u4") for name, words in dealt.items()}

    def _cells(self, tables: Sequence[NoisyTable]) -> tuple[bytes, bytes]:
        """Seeds of the roots for the second party, and C of all tables of shifted codes."""
        run, step, b = self.session.run, self.session.rounds, self._shifts
        roots = self.plan.roots([table.clique for table in tables], self.domain)
        seeds: dict[str, tuple[masking.Seeds, masking.Seeds]] = {}
        for root, size in roots.items():
            context = _in_run(run, step, root)
            own = products.root_seeds(self._shared[self.plan.servers[0]], context, self.rows, size)
            seeds[root] = own, products.other_seeds(self._secret, context, own, b[root])
        found = []
        for group in self.plan.groups(tables, self.plan.servers[0]):
            modulus, release = group.modulus(self.rows), group.release(run, step)
            for table in group.tables if group.shifted else ():
                clique = self.plan.as_sent(table.clique)
                (root,) = self.plan.roots([table.clique], self.domain)
                shape, own_b = self.domain.shape(clique), np.stack([b[n] for n in clique], axis=1)
                info, place = _in_run(release, *clique), clique.index(root)
                C = products.corrections(seeds[root], info, own_b, shape, place, modulus)
                found.append(C.tobytes())
        return b"".join(other.tobytes() for _, other in seeds.values()), b"".join(found)

    @cached_property
    def _shifts(self) -> dict[str, npt.NDArray[np.int64]]:
        """b of every column, once rows are shared."""
        found: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
        for step, (start, stop) in self._slabs.items():
            for party, part in self.plan.parts.items():
                context, sizes = _in_run(self.session.run, step), self._sizes(party)
                b = products.shifts(self._shared[party], context, stop - start, sizes)
                for name, column in zip(part.names, b.T, strict=True):
                    found[name].append(column)
        return {name: np.concatenate(columns) for name, columns in found.items()}


def opened_tables(
    plan: SecurePlan,
    domain: Domain,
    rows: int,
    tables: Sequence[NoisyTable],
    replies: Mapping[str, Tables],
) -> dict[Clique, Measurement]:
    """Every table, from what one party or two sent.

    Args:
        plan: Of the study.
        domain: How all columns are coded.
        rows: The bound of their number that the parties were given.
        tables: What was asked for.
        replies: Every party's.

    Raises:
        WireError: A party sent what does not fit; names it.
    """
    words: dict[Group, list[npt.NDArray[Any]]] = {}
    for party, reply in replies.items():
        opens = [group for group in plan.groups(tables, party) if party in group.openers]
        checked = CheckedReply(party)
        for alone, sent, dtypes in ((True, reply.own, WHOLE), (False, reply.joint, WORDS)):
            due = [group for group in opens if (group.first == group.second) is alone]
            checked.items("groups of tables", sent, count=len(due))
            for group, one in zip(due, sent, strict=True):
                cells = sum(domain.size(table.clique) for table in group.tables)
                tail, most = ceil(_NEVER * group.kind.sigma), group.modulus(rows) - 1
                least, most = (-tail, rows + tail) if alone else (0, most)
                found = checked.array("counts", one.value, dtypes, (cells,), least=least, most=most)
                words.setdefault(group, []).append(found)
    measured: dict[Clique, Measurement] = {}
    missing = ceil(plan.bound.margin + _NEVER * plan.bound.sigma) if plan.bound else 0
    bounds = RowBounds(rows - missing, rows)
    for group, parts in words.items():
        opened, sigma = parts[0].astype(np.float64), group.kind.sigma
        if group.kind.weights:
            half, modulus = group.coins.half, group.modulus(rows)
            opened, sigma = products.opened(parts, half, modulus).astype(float), group.coins.sigma
        ends = np.cumsum([domain.size(table.clique) for table in group.tables])
        for table, own in zip(group.tables, np.split(opened, ends[:-1]), strict=True):
            if group.kind.weights:
                who = f"parties {group.first!r} and {group.second!r}"
                bounds = bounds.after(who, table.clique, own, group.coins)
            sent_as = plan.as_sent(table.clique)
            order = [sent_as.index(name) for name in table.clique]
            counts = own.reshape(domain.shape(sent_as)).transpose(order)
            measured[table.clique] = Measurement(table.clique, counts, sigma)
    return measured


class RowBounds(NamedTuple):
    """Between which numbers the rows are that tables count."""

    least: int
    most: int

    def after(self, who: str, clique: Clique, counts: npt.NDArray[Any], coins: Coins) -> RowBounds:
        """Closer bounds, by a table that opened; no count opens to less than -half.

        Raises:
            WireError: A count is larger than honest coins leave it, or their sum is not about the
                rows; names `who` sent the words.
        """
        half, total = coins.half, int(counts.sum())
        tail = ceil(_NEVER * coins.sigma * sqrt(counts.size))
        for what, value, least, most in (
            ("a count", counts.max(), -half, self.most + half),
            ("a sum", total, self.least - tail, self.most + tail),
        ):
            if not least <= value <= most:
                raise WireError(
                    f"{who} sent words that open to {what} of {value:,.0f} in {'×'.join(clique)}; "
                    f"it must be from {least:,} to {most:,}. The table was discarded: check which "
                    "software they run, and start a new run"
                )
        return RowBounds(max(self.least, total - tail), min(self.most, total + tail))


def kept_secret(task: Task) -> bytes:
    """The dealer's secret, the same when a run is resumed from its folder, or asked for again."""
    if task.store is None:
        return masking.new_secret(task.entropy)
    store, run = FolderStore(task.store.parent / "dealer"), task.store.name
    secret = store.get(run) or masking.new_secret(task.entropy)
    store.put(run, secret)
    return secret
