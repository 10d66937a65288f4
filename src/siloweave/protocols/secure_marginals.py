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
from itertools import chain, combinations, count, pairwise
from math import ceil, inf, log2, pi, prod, sqrt
from operator import gt
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.core.method import (
    ErrorForecast,
    Forecast,
    QuestionCounts,
    Setup,
    Task,
    same_people_note,
)
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
from siloweave.privacy import events, mechanisms
from siloweave.privacy.accountants import epsilon_of_rho
from siloweave.privacy.budget import (
    Budget,
    enough_epsilon,
    marginal_sensitivity,
    rho_for,
    size_sensitivity,
)
from siloweave.privacy.coins import MOST_SIGMA, Coins, coins_for, largest_order_for
from siloweave.privacy.mechanisms import Entropy
from siloweave.protocols import histograms, workloads
from siloweave.protocols import secure_products as products
from siloweave.protocols.accuracy import error_forecast, numbers_of, two_round_buys
from siloweave.protocols.columns import parts_of
from siloweave.protocols.marginals import marginal_forecast
from siloweave.protocols.secure_sums import checked_cliques
from siloweave.protocols.two_rounds import TwoRoundSettings, design
from siloweave.statistics.marginals import closure, marginal
from siloweave.tables.bins import Cuts, cuts_of
from siloweave.tables.codes import Clique, Codes, Domain, Encoder, ResolutionLevels
from siloweave.tables.schema import Schema

# Share of the zCDP that pays for a bound of the number of rows.
_ROWS_SHARE = 0.005
# How far that bound lies above the rows, as a multiple of its noise. `UpperBound` needs 8.
_MARGIN = 9.0
# Share of delta for what truncated zCDP leaves out.
_ESCAPES = 1e-3
# Relative rounding error that sums of prices may have.
_SLACK = 1e-9
# Multiple of its sigma that no honest party's noise exceeds.
_NEVER = 40

# Shares of a message: for masked rows or planned tables, and for tables that are measured.
_SLAB = 0.9
_FULL = 0.96
# With coins of pairs up to this share of a message, they take no message of their own.
_FEW_COINS = 0.05
# Bytes that encryption adds to a message.
_TAG = 16

# Bounds of what a run may hold: codes of all columns; bytes dealt to a party in one message; words
# of all tables of shifted codes together, which are rows times cells; cells of one such table.
_MOST_CODES = 2**13
_MOST_DEALT = MAX_BYTES
_MOST_WORDS = 2**31
_MOST_CELLS = 2**12
# Coins of pairs of two parties with fewer cells than these always fit into a message.
_MANY_CELLS = 2**18
# Below so many rows, the words of a table of shifted codes have mostly 16 bits.
_NARROW = 3 * 2**14
# Coins of a cell of a table of shifted codes, mostly at most.
_COINS = 240
# Messages that planned tables take, at most: they fit into one if words have half the width.
_MOST_BATCHES = 3
# Exchanges of a run: begin, share, and measure twice.
_EXCHANGES = 4

# What a run takes, as measured.
# Copies of masked rows in memory, and nanoseconds of each of their bytes.
_COPIES = 8.0
_ROW_NS = 60.0
# Copies in memory of what is dealt for shifted codes, and nanoseconds of each of its words.
_WIDE_COPIES = 6.0
_WORD_NS = 10.0
# Bytes of a pair's coin in memory, and of the coins of a planned pair's cell in messages.
_COIN_COPIES = 25.0
_PAIR_COINS = 190
# Share of the pairs that the second of two forecasts takes to be planned.
_PLANNED = 2 / 3

# Messages


class Begun(Reply, frozen=True):
    """A party's key; how many rows there are at most, from the first party; counts of columns."""

    key: Public[bytes]
    paid_bound: tuple[Released[int], ...]
    known_rows: tuple[Public[int], ...]
    # Of columns that are cut, at all resolution levels.
    counts: tuple[Released[Array], ...]


class Begin(Request[Begun], frozen=True, tag="secure/begin"):
    """Send your key, the bound if you are the first party, and noisy counts of columns to cut."""


class Delivery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows that another party sent, carried by the coordinator."""

    # The step in which they were sent.
    step: int
    data: bytes
    key: bytes
    # With this, the proof that the rows are codes is checked.
    seed: bytes


class SharedRows(Reply, frozen=True):
    """Rows under a mask, encrypted to other parties."""

    rows: Relayed


class ShareRows(Request[SharedRows], frozen=True, tag="secure/share"):
    """Send the others your rows from `start` to `stop` under a mask."""

    # All parties' keys, signed.
    keys: dict[str, bytes]
    # The coordinator's public key.
    dealer: bytes
    # How many rows there are at most; those that are missing have the codes 0.
    rows: int
    # How many codes each column has, in the order of the schema.
    sizes: tuple[int, ...]
    start: int
    stop: int
    # k of step 7 in secure_products.py, by which the others find that rows are codes.
    proof: Array
    # Rows of the slab before, by who sent them.
    deliveries: dict[str, Delivery]


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
    # Rows of the last slab, by who sent them.
    deliveries: dict[str, Delivery]
    # Q of secure_products.py, step 2: to the second party of a pair, by the first one.
    corrections: dict[str, Array]
    # G of step 4, of all tables of such a pair: to the second party, by the first one.
    coins: dict[str, Array]
    # s' of step 6, of tables of shifted codes: to the second of both parties that open them.
    seeds: bytes
    # C of step 6: to both.
    cells: bytes


# What both sides compute from public facts


@dataclass(frozen=True)
class SecurePlan:
    """How a budget is divided, before anything is read.

    Attributes:
        synth: The method's settings.
        schema: All columns.
        parts: Every party's columns, in roster order.
        budget: What a unit may cost.
    """

    synth: TwoRoundSettings
    schema: Schema
    parts: Mapping[str, Schema]
    budget: Budget

    @property
    def first(self) -> str:
        """The party that says how many rows there are."""
        return next(iter(self.parts))

    @cached_property
    def owners(self) -> dict[str, str]:
        """Which party has each column."""
        owners: dict[str, str] = {}
        for party, part in self.parts.items():
            owners |= dict.fromkeys(part.names, party)
        return owners

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
        delta = self.budget.delta * (1 - _ESCAPES)
        budget = msgspec.structs.replace(self.budget, delta=delta)
        return rho_for(budget)

    @cached_property
    def bound(self) -> events.UpperBound | events.UnitUpperBound | None:
        """What the bound of the number of rows costs; None where that number is public."""
        sensitivity = size_sensitivity(self.budget.neighbours)
        if not sensitivity:
            return None

        bound_rho = _ROWS_SHARE * self.rho
        sigma = max(1.0, sensitivity / sqrt(2 * bound_rho))
        margin = ceil(_MARGIN * sigma)
        rows = self.budget.neighbours.rows
        if rows == 1:
            return events.UpperBound(sigma, margin)
        # A unit of several rows moves their number further, and the margin with it.
        return events.UnitUpperBound(sigma, margin + rows - 1, rows)

    @cached_property
    def fine(self) -> Encoder | None:
        """Fine bins of columns that are cut; None without such a column."""
        if not self.synth.counts_share:
            return None
        encoder = workloads.first_encoder(self.schema, self.synth)
        return histograms.columns_to_cut(
            encoder, workloads.queries_of(self.synth, encoder)
        )

    def fine_of(self, party: str) -> Encoder | None:
        """Return the fine bins of one party's columns that are cut; None if it has none."""
        fine = self.fine
        if fine is None:
            return None
        columns = [name for name in fine.schema.names if self.owners[name] == party]
        return fine.select(columns) if columns else None

    @property
    def _rho_after_bound(self) -> float:
        """zCDP that is left once the bound of the number of rows is paid for."""
        bound_rho = self.bound.rho if self.bound else 0.0
        return self.rho - bound_rho

    @cached_property
    def counts_sigma(self) -> float:
        """Noise of the histograms of columns that are cut."""
        if self.fine is None:
            return 0.0
        tables = ResolutionLevels(self.fine).number
        counts_rho = self.synth.counts_share * self._rho_after_bound
        return self.unit * sqrt(tables / (2 * counts_rho))

    @cached_property
    def rho_tables(self) -> float:
        """zCDP that is left for marginals."""
        counts_share = self.synth.counts_share if self.fine else 0.0
        return self._rho_after_bound * (1 - counts_share)

    @cached_property
    def closure(self) -> list[Clique]:
        """The workload's queries, and all that lie in them."""
        encoder = workloads.first_encoder(self.schema, self.synth)
        queries = workloads.queries_of(self.synth, encoder)
        return list(closure(queries, encoder.domain))

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
        first_rho = self.synth.pairs_share * self.rho_tables
        return self.unit * sqrt(number / (2 * first_rho))

    @cached_property
    def crossing(self) -> list[Clique]:
        """Pairs of columns of two parties."""
        if not self.parts:
            return []
        pairs = [query for query in self.closure if len(query) == 2]
        return [pair for pair in pairs if len(self.holders(pair)) > 1]

    @cached_property
    def largest_order(self) -> int:
        """Renyi order up to which noise of coins is priced."""
        return largest_order_for(self.rho, self.budget.delta)

    @cached_property
    def tail(self) -> float:
        """Probability of an end of noise of coins: all of them have `_ESCAPES` of delta."""
        # Both ends of a cell's noise, once for every row that a neighbour adds or removes.
        ends = 2 * self.moved * self.budget.neighbours.rows
        delta_each = _ESCAPES * self.budget.delta / (ends * self.most_tables)
        # A power of two, rounded down, and never above 2^-20.
        exponent = min(-20, -ceil(-log2(delta_each)))
        return float(2.0**exponent)

    def shared(self, bound: int) -> int:
        """Return how many rows are shared: none where no table is opened by two parties."""
        return bound if self.opens_pairs else 0

    def rows_seen(self, bound: int) -> int:
        """Return about how many rows there are, by their upper bound."""
        margin = self.bound.margin if self.bound else 0
        return max(1, bound - margin)

    def bins(self, rows: int) -> int:
        """Return how many bins a column is cut into, if there are so many rows."""
        if self.synth.bins is not None:
            return self.synth.bins
        return workloads.bins_for(self.schema, rows, self.rho / self.unit**2)

    def cuts(
        self, party: str, counts: npt.NDArray[np.int64], bound: int
    ) -> dict[str, Cuts]:
        """Return where a party's columns are cut, by its noisy counts."""
        fine = self.fine_of(party)
        if fine is None:
            return {}

        rows = self.rows_seen(bound)
        bins = self.bins(rows)
        histogram = histograms.NoisyHistogram(fine, counts, self.counts_sigma, rows, 0)
        column_counts = histogram.columns
        cuts: dict[str, Cuts] = {}
        for column in fine.schema.columns:
            name = column.name
            cuts[name] = cuts_of(column, fine.edges(name), column_counts[name], bins)
        return cuts

    def holders(self, clique: Clique) -> tuple[str, ...]:
        """Return the parties that have columns of a clique, in roster order."""
        holders = {self.owners[name] for name in clique}
        return tuple(party for party in self.parts if party in holders)

    @property
    def servers(self) -> tuple[str, str]:
        """The parties that open tables of shifted codes: the first two of the roster."""
        first, *others = self.parts
        # A study of one party opens no such table.
        second = others[0] if others else first
        return first, second

    def openers(self, clique: Clique) -> tuple[str, str]:
        """Return the parties that open a table; one party twice where it has all columns."""
        if self.is_shifted(clique):
            return self.servers
        holders = self.holders(clique)
        return holders[0], holders[-1]

    def dealt(
        self, tables: Sequence[NoisyTable], domain: Domain, rows: int
    ) -> tuple[Sequence[NoisyTable], int, int]:
        """Return the tables of shifted codes, the bytes dealt for them without coins, and words."""
        wide = [table for table in tables if self.is_shifted(table.clique)]
        cliques = [table.clique for table in wide]
        moduli = [products.modulus_for(rows, table.coins) for table in wide]
        widths = [2 if modulus == 2**16 else 4 for modulus in moduli]
        size, words = _dealt(domain, cliques, rows, widths, coins=0)
        return wide, size, words

    def is_shifted(self, clique: Clique) -> bool:
        """Return whether a table is opened by shifted codes."""
        return len(clique) > 2 and len(self.holders(clique)) > 1

    def roots(self, cliques: Sequence[Clique], domain: Domain) -> dict[str, int]:
        """Return the root of every table of shifted codes, and how many codes it has.

        A root is a table's column of most codes. They are in the order in which they are needed
        first.
        """
        shifted = [clique for clique in cliques if self.is_shifted(clique)]
        return _roots(domain, shifted)

    def halves(self, clique: Clique) -> dict[str, Clique]:
        """Return every holder's part of a clique."""
        parts: dict[str, Clique] = dict.fromkeys(self.holders(clique), ())
        for name in clique:
            parts[self.owners[name]] += (name,)
        return parts

    def as_sent(self, clique: Clique) -> Clique:
        """Return the columns of a clique, party by party."""
        return tuple(chain.from_iterable(self.halves(clique).values()))

    def table_for(self, clique: Clique, sigma: float) -> NoisyTable:
        """Return a marginal that costs what Gaussian noise of `sigma` does."""
        if len(self.holders(clique)) == 1:
            return NoisyTable(clique, sigma)
        coins = self.coins(sigma)
        return NoisyTable(clique, 0.0, coins.weights, coins.copies)

    def coins(self, sigma: float) -> Coins:
        """Return coins whose noise costs a unit what Gaussian noise of `sigma` does."""
        rows = self.budget.neighbours.rows
        return coins_for(sigma, self.largest_order, self.tail, rows)

    def event(self, kind: NoisyTable, count: int, release: str) -> events.Event:
        """Return what so many marginals with this noise cost together.

        Raises:
            InputError: There is no such noise.
        """
        if not kind.weights:
            sensitivity = sqrt(count) * self.unit
            return events.Gaussian(sigma=kind.sigma, sensitivity=sensitivity)
        rows = self.budget.neighbours.rows
        noise = (kind.weights, kind.copies, self.largest_order, self.tail, release)
        if rows == 1:
            return events.SharedCoins(*noise, count * self.moved)
        return events.UnitSharedCoins(*noise, count, rows)

    def price(self, table: NoisyTable) -> float:
        """Return the zCDP of one marginal.

        Raises:
            InputError: There is no such noise, or the wrong parties would make it.
        """
        joint = len(self.holders(table.clique)) > 1
        has_coins = bool(table.weights)
        has_sigma = bool(table.sigma)
        fits = has_coins == joint and has_sigma == (not joint)

        # A budget that opens no table of two parties has no rows shared either.
        if not fits or (joint and not self.opens_pairs):
            noise = f"sigma = {table.sigma:g} and {table.coins}"
            raise InputError(f"{table.clique} with {noise}")
        event = self.event(table, 1, "price")
        return event.rho * event.count

    def groups(self, tables: Sequence[NoisyTable], party: str) -> list[Group]:
        """Group the tables that a party opens or has columns of, by their parties and noise."""
        by_parties: dict[_Parties, dict[NoisyTable, list[NoisyTable]]] = {}
        for table in tables:
            clique = table.clique
            holders = self.holders(clique)
            openers = self.openers(clique)
            if party not in holders + openers:
                continue
            parties = _Parties(holders, openers, self.is_shifted(clique))
            noise = msgspec.structs.replace(table, clique=())
            by_noise = by_parties.setdefault(parties, {})
            by_noise.setdefault(noise, []).append(table)

        groups: list[Group] = []
        for parties, by_noise in by_parties.items():
            # The index is the same at every party: it names the release and its streams.
            for index, (noise, members) in enumerate(by_noise.items()):
                group = Group(*parties, index, noise, tuple(members))
                groups.append(group)
        return groups


class _Parties(NamedTuple):
    """The parties of a table, and how those that open it do so."""

    holders: tuple[str, ...]
    openers: tuple[str, str]
    shifted: bool


@dataclass(frozen=True)
class Group:
    """Tables that are released together, because one noise is on all of them.

    Attributes:
        holders: Parties that have columns of them.
        openers: Parties that open them; one party twice where it has all columns.
        shifted: Whether they are opened by shifted codes.
        index: The noise's, among those of such tables.
        kind: The noise.
        tables: With their columns.
    """

    holders: tuple[str, ...]
    openers: tuple[str, str]
    shifted: bool
    index: int
    kind: NoisyTable
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
        """Return the modulus of the words that are opened."""
        if not self.shifted:
            return products.P
        return products.modulus_for(rows, self.coins)

    def sizes(self, domain: Domain) -> list[int]:
        """Return how many cells each table has."""
        return [domain.size(table.clique) for table in self.tables]

    def release(self, run: str, step: int) -> str:
        """Return the name of the release, by which both parties also name their streams."""
        kind = "tables" if self.shifted else "pairs"
        holders = "+".join(self.holders)
        return f"{run}/{step}/{holders}/{kind}/{self.index}"


def _roots(domain: Domain, wide: Sequence[Clique]) -> dict[str, int]:
    """Return every table's column of most codes, and how many codes it has."""
    # Asked very often, of many tables, and `size_of` takes longer.
    codes = dict(zip(domain.names, domain.sizes, strict=True))
    roots = [max(clique, key=codes.__getitem__) for clique in wide]
    return {root: codes[root] for root in roots}


def _dealt(
    domain: Domain,
    wide: Sequence[Clique],
    rows: int,
    widths: Sequence[int] = (),
    coins: int = _COINS,
) -> tuple[int, int]:
    """Return the bytes dealt to the second party for tables of shifted codes, and all words.

    The first party is dealt less: no seeds, and no coins.

    Args:
        domain: How many codes the columns have.
        wide: The tables.
        rows: How many rows are shared.
        widths: Bytes of each table's words; without them, by the number of rows.
        coins: Coins of a cell.
    """
    shapes = [domain.shape(clique) for clique in wide]
    cells = [prod(shape) for shape in shapes]
    if not widths:
        usual_width = 2 if rows < _NARROW else 4
        widths = [usual_width] * len(wide)

    # Of C, a row has a word for every cell of the columns but the root, which has most codes.
    row_bytes = 0
    for width, size, shape in zip(widths, cells, shapes, strict=True):
        row_bytes += width * size // max(shape)
    root_codes = sum(_roots(domain, wide).values())
    seed_bytes = products.SEED * root_codes
    coin_bytes = 4 * coins * sum(cells)
    dealt = rows * (seed_bytes + row_bytes) + coin_bytes
    words = rows * sum(cells)
    return dealt, words


def _fit(domain: Domain, wide: Sequence[Clique], rows: int) -> bool:
    """Return whether these tables of shifted codes fit into one message, and do not take long."""
    dealt, words = _dealt(domain, wide, rows)
    widest = max(map(domain.size, wide), default=0)
    is_quick = words <= _MOST_WORDS and widest <= _MOST_CELLS
    return is_quick and dealt <= _SLAB * MAX_BYTES


def _in_run(run: str, *labels: object) -> str:
    """Return the context of a stream. A zero byte keeps labels of different lengths apart."""
    return "\0".join((run, *map(str, labels)))


# Party


class _Agreed(msgspec.Struct, frozen=True):
    """What a party was sent in its first *share*, and holds the coordinator to."""

    keys: dict[str, bytes]
    dealer: bytes
    rows: int
    sizes: tuple[int, ...]


# First row and last of every *share*, by its step.
_Slabs = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class _Party:
    """A party's side, made again from what is remembered.

    Attributes:
        plan: The study's.
        site: Where this party's rows, ledger and memory are.
        agreed: What it was sent first.
        codes: Its own columns.
        domain: All columns.
    """

    plan: SecurePlan
    site: Site[OwnerData]
    agreed: _Agreed
    codes: Codes
    domain: Domain

    @property
    def real(self) -> int:
        """Rows that are counted."""
        return min(self.site.rows.table.num_rows, self.agreed.rows)

    @cached_property
    def dealer(self) -> bytes:
        """The secret shared with the coordinator."""
        return self.site.agree_with_dealer(self.agreed.dealer)

    def secret(self, party: str) -> bytes:
        """Return the secret shared with another party."""
        key = self.agreed.keys[party]
        secrets = self.site.agree({party: key})
        return secrets[party]

    @property
    def step(self) -> int:
        """The step of the run that is answered."""
        _, _, step = self.site.context.rpartition("/")
        return int(step)

    def before(self, party: str) -> bool:
        """Return whether this party comes before another one, so is the first of the pair."""
        names = list(self.plan.parts)
        return names.index(self.site.name) < names.index(party)

    def sizes(self, party: str) -> tuple[int, ...]:
        """Return how many codes each column of a party has."""
        return self.domain.shape(self.plan.parts[party].names)

    def rows(self, slab: tuple[int, int]) -> Codes:
        """Return this party's codes in a slab; rows that are missing have the code 0."""
        start, stop = slab
        columns: list[npt.NDArray[Any]] = []
        for codes in self.codes.columns:
            real = codes[start : min(stop, self.real)]
            missing = stop - start - len(real)
            columns.append(np.pad(real, (0, missing)))
        return Codes(self.codes.domain, tuple(columns))

    def one_hot(self, slab: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Return X of a slab: this party's codes as one-hot rows."""
        codes = self.rows(slab)
        return products.one_hot(codes.columns, codes.domain.sizes)

    def mask(self, step: int, slab: tuple[int, int]) -> Words:
        """Return U of a step: the mask of this party's one-hot rows."""
        start, stop = slab
        context = _in_run(self.site.run, step)
        width = sum(self.codes.domain.sizes)
        return products.masks(self.dealer, context, stop - start, width)

    def shifted(self, step: int, slab: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Return m = x + b of a step: this party's shifted codes, (rows, columns)."""
        start, stop = slab
        sizes = self.codes.domain.sizes
        context = _in_run(self.site.run, step)
        b = products.shifts(self.dealer, context, stop - start, sizes)
        codes = self.rows(slab)
        x = np.stack(codes.columns, axis=1)
        m: npt.NDArray[np.int64] = (x + b) % np.array(sizes)
        return m

    def prove(self, words: Array, planned: Sequence[_Slab], now: int) -> int:
        """Return the proof of the rows that are shared now; remember a part of later ones.

        Args:
            words: k of step 7, of the rows whose proof comes with this message.
            planned: All slabs.
            now: Which of them is shared.
        """
        sizes = self.codes.domain.sizes
        start = planned[now - 1].proven if now else 0
        stop = planned[now].proven
        shape = (stop - start, sum(sizes))
        if words.dtype != "<u4" or words.shape != shape:
            raise self.refused("was sent words for a proof of other rows")

        # The dealer's words may be of rows in several slabs, each of which has shifts of its own.
        for number, slab in enumerate(planned[now:], now):
            first = max(start, slab.start)
            last = min(stop, slab.stop)
            if first >= last:
                continue
            # Slabs are shared in steps that follow one another.
            step = self.step + number - now
            m = self.shifted(step, slab[:2])
            slab_words: Any = words.numpy()[first - start : last - start]
            slab_m = m[first - slab.start : last - slab.start]
            part = products.proof_sum(slab_words, slab_m, sizes)
            self.site.remember(f"proof/{number}/{now}", str(part).encode())

        total = 0
        for earlier in range(now + 1):
            part_sent = self.site.recall(f"proof/{now}/{earlier}") or b"0"
            total += int(part_sent)
        return total % products.P

    @property
    def slabs(self) -> _Slabs:
        """Rows that were asked for, by step."""
        stored = self.site.recall("slabs")
        if stored is None:
            return {}
        return msgspec.msgpack.decode(stored, type=_Slabs)

    @property
    def shared(self) -> int:
        """How many rows earlier steps asked for, slab after slab, so that none counts twice."""
        shared = 0
        for step, (_, stop) in self.slabs.items():
            if step != self.step:
                shared = max(shared, stop)
        return shared

    def take(self, deliveries: Mapping[str, Delivery]) -> None:
        """Multiply what others sent, and remember this party's share of each product."""
        others = self.plan.parts.keys() - {self.site.name}
        for sender, delivery in deliveries.items():
            step = delivery.step
            slab = self.slabs.get(step)
            if slab is None or sender not in others:
                raise self.refused(
                    f"was delivered rows of {sender!r} that nobody asked for"
                )

            context = _in_run(self.site.run, step)
            secret = self.secret(sender)
            words = self.site.open_relayed(
                sender, delivery.data, delivery.key, secret, context
            )
            masked, shifted = self._checked_rows(sender, delivery, slab, words)

            # Step 3: A (without R) is of the first party of a pair, and B (without Q) of the other.
            if self.before(sender):
                part = products.count_masked(self.one_hot(slab), masked)
            else:
                mask = self.mask(step, slab)
                part = products.product(masked, mask)
            self.site.remember(f"part/{step}/{sender}", part.tobytes())
            self.site.remember(f"shifted/{step}/{sender}", shifted.tobytes())

    def _checked_rows(
        self, sender: str, delivery: Delivery, slab: tuple[int, int], words: Words
    ) -> tuple[Words, Words]:
        """Return the masked rows and shifted codes that a party sent, once they are proven.

        Raises:
            WireError: They are of another number of rows, or no codes.
        """
        start, stop = slab
        rows = stop - start
        sizes = self.sizes(sender)
        width = sum(sizes) + len(sizes)
        if words.size != rows * width + 1:
            raise self.refused(f"was sent another number of rows by {sender!r}")

        # Step 7: without its proof, a row could be counted many times, at a price of one.
        by_row = words[:-1].reshape(rows, width)
        masked, shifted = np.split(by_row, [sum(sizes)], axis=1)
        m = shifted.astype(np.int64)
        proof = int(words[-1])
        seed = delivery.seed
        is_in_bounds = (m < np.array(sizes)).all() and (masked < products.P).all()
        if not is_in_bounds or not products.are_codes(seed, masked, m, sizes, proof):
            raise self.refused(f"was sent rows by {sender!r} that are no codes")
        return masked, shifted

    def share_of(self, partner: str) -> Words:
        """Return this party's share of the products of all its columns with another's."""
        is_first = self.before(partner)
        pair = (partner, self.site.name)
        if is_first:
            pair = (self.site.name, partner)
        shape = tuple(sum(self.sizes(name)) for name in pair)

        # Step 3: A = X^T W + R at the first party, and B = M^T V + Q at the second.
        if is_first:
            context = _in_run(self.site.run, "R", *pair)
            total = products.masks(self.dealer, context, *shape)
        else:
            total = self._words(f"correction/{partner}", shape)
        for step in self.slabs:
            part = self._words(f"part/{step}/{partner}", shape)
            total = products.added(total, part)
        return total

    def shifted_codes(self, clique: Clique) -> npt.NDArray[np.int64]:
        """Return the shifted codes of some columns, of all rows, (rows, columns)."""
        slabs: list[npt.NDArray[np.int64]] = []
        for step, slab in self.slabs.items():
            start, stop = slab
            rows = stop - start
            by_party = {self.site.name: self.shifted(step, slab)}
            for name in self.plan.holders(clique):
                if name != self.site.name:
                    shape = (rows, len(self.sizes(name)))
                    words = self._words(f"shifted/{step}/{name}", shape)
                    by_party[name] = words.astype(np.int64)

            columns: list[npt.NDArray[np.int64]] = []
            for column in clique:
                owner = self.plan.owners[column]
                place = self.plan.parts[owner].names.index(column)
                columns.append(by_party[owner][:, place])
            slabs.append(np.stack(columns, axis=1))
        return np.concatenate(slabs)

    def _words(self, name: str, shape: tuple[int, ...]) -> Words:
        """Return words that this party remembers; WireError without so many of them."""
        stored = self.site.recall(name)
        expected_bytes = 4 * int(np.prod(shape))
        if stored is None or len(stored) != expected_bytes:
            raise self.refused("was asked to count before all rows were delivered")
        return np.frombuffer(stored, dtype="<u4").reshape(shape)

    def digest(self, tables: tuple[NoisyTable, ...]) -> str:
        """Return a digest of all that every party is sent alike up to a *measure*."""
        keys = dict(sorted(self.agreed.keys.items()))
        agreed = msgspec.structs.replace(self.agreed, keys=keys)
        alike = [agreed, sorted(self.slabs.items()), tables]
        return sha256(msgspec.msgpack.encode(alike)).hexdigest()

    def refused(self, reason: str) -> WireError:
        """Return the error for a request that does not fit."""
        return WireError(f"party {self.site.name!r} {reason}. Nothing was released")


def _plan_of(synth: TwoRoundSettings, site: Site[OwnerData]) -> SecurePlan:
    """Return how a party's own limit is divided; BudgetError without one."""
    facts = site.terms.facts
    limit = site.ledger.limit
    if limit is None or not limit.private:
        raise BudgetError(
            f"party {site.name!r} has no limit; marginals are paid for out of one"
        )
    return SecurePlan(synth, facts["schema"], facts["parts"], limit)


def begin(synth: TwoRoundSettings, request: Begin, site: Site[OwnerData]) -> Begun:
    """Pay for the bound, if this party is the first and it is private, and for columns to cut."""
    site.require_first()
    plan = _plan_of(synth, site)
    table = site.rows.table

    # The first party alone says how many rows there are.
    paid_bound: tuple[Released[int], ...] = ()
    known_rows: tuple[Public[int], ...] = ()
    bound = plan.bound
    if site.name == plan.first and bound is None:
        why = "neighbours have the same number of rows"
        known_rows = (Public(table.num_rows, why),)
    elif site.name == plan.first and bound is not None:
        draw = partial(_bound_of, table.num_rows, bound, site.entropy)
        label = "an upper bound of the number of rows"
        released = site.release(bound, label, draw)
        paid_bound = (released,)
        site.remember("bound", str(released.value).encode())

    counts: tuple[Released[Array], ...] = ()
    fine = plan.fine_of(site.name)
    if fine is not None:
        levels = ResolutionLevels(fine).number
        event = histograms.counts_event(
            plan.budget.neighbours, levels, plan.counts_sigma
        )
        columns = table.select(list(fine.schema.names))
        noisy_counts = histograms.release_counts(site, fine, columns, event)
        counts = (noisy_counts,)
        site.remember("counts", noisy_counts.value.data)
    return Begun(site.mask_key(), paid_bound, known_rows, counts)


def _bound_of(
    rows: int, bound: events.UpperBound | events.UnitUpperBound, entropy: Entropy
) -> int:
    """Draw an upper bound of the number of rows; it is at least that number, and 1."""
    exact = np.array([rows + bound.margin], dtype=np.int64)
    noisy = mechanisms.add_gaussian(exact, bound.sigma, entropy=entropy)

    # Noise below the margin would leave rows out. The event pays for this maximum: its `escape`.
    return max(rows, int(noisy[0]), 1)


def _party(
    synth: TwoRoundSettings, site: Site[OwnerData], agreed: _Agreed | None = None
) -> _Party:
    """Return this party's side, once it is agreed who takes part and how columns are coded."""
    stored = site.recall("agreed")
    if agreed is not None:
        encoded = msgspec.msgpack.encode(agreed)
        if stored not in (None, encoded):
            raise WireError(
                f"party {site.name!r} was sent other keys, rows or codes before"
            )
        site.remember("agreed", encoded)
        stored = encoded
    if stored is None:
        raise WireError(
            f"party {site.name!r} was asked to count before rows were shared"
        )

    # Rows are encoded once, not at every question.
    if stored not in site.memo:
        decoded = msgspec.msgpack.decode(stored, type=_Agreed)
        site.memo[stored] = _encoded_party(synth, site, decoded)
    party: _Party = site.memo[stored]
    return party


def _encoded_party(
    synth: TwoRoundSettings, site: Site[OwnerData], agreed: _Agreed
) -> _Party:
    """Encode this party's rows, and check what it was sent against the study.

    Raises:
        WireError: The bound, the keys or the numbers of codes cannot be.
    """
    who = f"party {site.name!r}"
    plan = _plan_of(synth, site)

    # Where the number of rows is public, every party knows it; else the first one drew the bound.
    if plan.bound is None:
        expected_rows = max(1, site.rows.table.num_rows)
    else:
        expected_rows = int(site.recall("bound") or agreed.rows)
    if not 1 <= agreed.rows <= MOST_ROWS or agreed.rows != expected_rows:
        raise WireError(
            f"{who} was sent a bound of {agreed.rows:,} rows, which cannot be"
        )
    if set(agreed.keys) != set(plan.parts):
        raise WireError(
            f"{who} was sent keys of {', '.join(agreed.keys)}; the study has others"
        )

    # Its columns are cut by the noisy counts that it sent, as at the coordinator.
    counts = np.frombuffer(site.recall("counts") or b"", "<i8")
    cuts = plan.cuts(site.name, counts, agreed.rows)
    encoder = workloads.first_encoder(plan.parts[site.name], synth)
    codes = replace(encoder, cuts=cuts).encode(site.rows.table)

    # A column may be cut into fewer bins than the study allows, never more.
    sizes = agreed.sizes
    widest = workloads.first_encoder(plan.schema, synth).domain
    has_all_columns = len(sizes) == len(widest.sizes)
    if not has_all_columns or any(map(gt, sizes, widest.sizes)):
        raise WireError(f"{who} was sent more codes than the study's columns can have")
    domain = Domain(widest.names, sizes)
    if domain.shape(codes.domain.names) != codes.domain.sizes:
        raise WireError(f"{who} codes its columns otherwise than the coordinator says")
    return _Party(plan, site, agreed, codes, domain)


def share(
    synth: TwoRoundSettings, request: ShareRows, site: Site[OwnerData]
) -> SharedRows:
    """Mask rows, and encrypt them to the other parties."""
    agreed = _Agreed(request.keys, request.dealer, request.rows, request.sizes)
    party = _party(synth, site, agreed)

    # Slabs follow from the study, so that a row is shared once whatever the coordinator asks.
    step = party.step
    slab = (request.start, request.stop)
    owned = _owned(party.plan, party.domain)
    planned = _slabs_of(owned, party.plan.shared(request.rows))
    now = len(party.slabs.keys() - {step})
    if now == len(planned) or slab != planned[now][:2]:
        next_rows = "no more"
        if now < len(planned):
            next_slab = planned[now]
            next_rows = f"rows {next_slab.start} to {next_slab.stop} now"
        raise party.refused(
            f"was asked for rows {request.start} to {request.stop} in one message; it answers "
            f"'secure/share' {len(planned)} times for {request.rows:,} rows, and shares {next_rows}"
        )
    party.take(request.deliveries)
    slabs = {**party.slabs, step: slab}
    site.remember("slabs", msgspec.msgpack.encode(slabs))

    # Step 1: M = X - U and m = x + b; step 7: the sum of k(m).
    M = products.taken(party.one_hot(slab), party.mask(step, slab))
    m = party.shifted(step, slab)
    proof = party.prove(request.proof, planned, now)
    rows = np.hstack([M, m.astype(np.uint32)])
    words = np.append(rows.reshape(-1), np.uint32(proof))

    others = [name for name in party.plan.parts if name != site.name]
    secrets = {name: party.secret(name) for name in others}
    context = _in_run(site.run, step)
    return SharedRows(site.relay(words, secrets, context))


def measure(
    synth: TwoRoundSettings, request: MeasureTables, site: Site[OwnerData]
) -> Tables:
    """Check what all tables cost together, then pay for this party's, and count."""
    # All tables are checked together before any is paid for.
    party = _party(synth, site)
    tables = request.tables
    cliques = [table.clique for table in tables]
    checked_cliques(cliques, party.domain, site.name)
    _check_size(party, tables)
    _check_price(party, tables)
    if party.shared != party.plan.shared(party.agreed.rows):
        raise party.refused(
            f"was asked to count after {party.shared:,} of its rows were shared"
        )

    party.take(request.deliveries)
    for sender, correction in request.corrections.items():
        site.remember(f"correction/{sender}", correction.data)

    alone = list[Released[Array]]()
    joint = list[Released[Array]]()
    dealt = _Dealt(party, request)
    for group in party.plan.groups(tables, site.name):
        number, names = _listed(group)
        release = group.release(party.site.run, party.step)
        event = party.plan.event(group.kind, len(group.tables), release)
        if group.first == group.second:
            draw = partial(_noisy_counts, party, group)
            counts = site.release(event, f"{number}: {names}", draw)
            alone.append(counts)
            continue

        partners = [name for name in group.openers if name != site.name]
        label = f"{number} with {' and '.join(partners)}: {names}"
        if site.name not in group.openers:
            # Its columns are counted, and two others open the tables.
            site.pay(event, label)
            continue
        words = _closed(party, group, dealt, tables)
        packed = partial(Array.of, words, "<u4")
        joint.append(site.release(event, label, packed))
    return Tables(tuple(alone), tuple(joint))


def _listed(group: Group) -> tuple[str, str]:
    """Return how many tables a group has, and their names, as a ledger shows them."""
    names = ", ".join("×".join(table.clique) for table in group.tables[:8])
    if len(group.tables) > 8:
        names += ", …"
    number = f"{len(group.tables)} marginals"
    if len(group.tables) == 1:
        number = "a marginal"
    return number, names


class _Dealt:
    """Words that the coordinator dealt, taken out in the order of the tables.

    Attributes:
        seeds: Of every root, (rows, codes, 2).
    """

    def __init__(self, party: _Party, request: MeasureTables) -> None:
        self._party = party
        data = {"seeds": request.seeds, "cells": request.cells}
        for name, coins in request.coins.items():
            data[f"coins/{name}"] = coins.data
        self._rest = {kind: memoryview(words) for kind, words in data.items()}
        self.seeds: dict[str, masking.Seeds] = {}

        # Step 6: the first party draws its seeds itself, and the second one is dealt its own.
        plan = party.plan
        name = party.site.name
        first, second = plan.servers
        rows = party.agreed.rows
        cliques = [table.clique for table in request.tables]
        for root, size in plan.roots(cliques, party.domain).items():
            if name == first:
                context = _in_run(party.site.run, party.step, root)
                seeds = products.root_seeds(party.dealer, context, rows, size)
                self.seeds[root] = seeds
            elif name == second:
                self.seeds[root] = self._next("seeds", (rows, size, 2), "<u8")

    def coins(self, party: str, cells: int, coins: Coins) -> Words:
        """Return G of the next tables with a party, (cells, coins), below 2^32."""
        return self._next(f"coins/{party}", (cells, coins.number), "<u4")

    def cells(self, rows: int, cells: int, modulus: int) -> products.CellWords:
        """Return C of the next table, (rows, cells)."""
        dtype = "<u4" if modulus == 2**32 else "<u2"
        return self._next("cells", (rows, cells), dtype)

    def _next(self, kind: str, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """Take words out; WireError where too few are left."""
        rest = self._rest.get(kind, memoryview(b""))
        count = int(np.prod(shape))
        size = count * np.dtype(dtype).itemsize
        if len(rest) < size:
            raise self._party.refused(f"was dealt too few {kind.partition('/')[0]}")
        self._rest[kind] = rest[size:]
        return np.frombuffer(rest, dtype, count).reshape(shape)


def _check_size(party: _Party, tables: Sequence[NoisyTable]) -> None:
    """Refuse tables of more cells than the study implies, or for which a message has no room."""
    plan = party.plan
    domain = party.domain
    cells = 0
    coins = 0
    for table in tables:
        size = domain.size(table.clique)
        cells += size
        coins += size * table.coins.number
    wide, dealt, words = plan.dealt(tables, domain, party.agreed.rows)
    widest = max((domain.size(table.clique) for table in wide), default=0)

    # A study may ask for all its closure, or for as many cells as its model may have.
    closure_cells = sum(map(domain.size, plan.closure))
    most = max(closure_cells, cells_in(plan.synth.max_model_mb))
    fits = cells <= most and words <= _MOST_WORDS and widest <= _MOST_CELLS
    if not fits or 4 * coins + dealt > _MOST_DEALT:
        raise party.refused(
            f"was asked for {len(tables):,} marginals of {cells:,} cells with {coins:,} coins, "
            "which is more than its study implies, or a message holds"
        )


def _check_price(party: _Party, tables: Sequence[NoisyTable]) -> None:
    """Refuse tables that would cost all parties together more than is left for tables."""
    site = party.site
    plan = party.plan
    prices: dict[str, tuple[int, float]] = {}
    stored = site.recall("prices")
    if stored is not None:
        prices = msgspec.msgpack.decode(stored, type=dict[str, tuple[int, float]])
    try:
        rho = sum(plan.price(table) for table in tables)
    except InputError as error:
        raise party.refused(
            f"was asked for a table with noise that cannot be: {error}"
        ) from error

    # By step, so that a question that is asked again, after a crash, is not counted twice.
    prices[str(party.step)] = (len(tables), rho)
    numbers, rhos = zip(*prices.values(), strict=True)
    number = sum(numbers)
    total = sum(rhos)
    most_rho = plan.rho_tables * (1 + _SLACK)
    if not tables or number > plan.most_tables or total > most_rho:
        raise BudgetError(
            f"party {site.name!r} was asked for {number:,} marginals in all, which cost all "
            f"parties together rho = {total:g}; the study leaves {plan.rho_tables:g} for "
            f"{plan.most_tables:,} at most. Nothing was released"
        )
    site.remember("prices", msgspec.msgpack.encode(prices))


def _noisy_counts(party: _Party, group: Group) -> Array:
    """Return noisy counts of tables over one party's columns, one after the other."""
    columns = tuple(column[: party.real] for column in party.codes.columns)
    codes = Codes(party.codes.domain, columns)
    counts = [marginal(codes, table.clique).reshape(-1) for table in group.tables]
    exact = np.concatenate(counts)
    entropy = party.site.entropy
    noisy = mechanisms.add_gaussian(exact, group.kind.sigma, entropy=entropy)
    return Array.of(noisy, "<i8")


def _closed(
    party: _Party, group: Group, dealt: _Dealt, tables: tuple[NoisyTable, ...]
) -> Words:
    """Return this party's words of tables that two parties open."""
    coins = group.coins
    is_first = group.first == party.site.name
    partner = group.second if is_first else group.first
    # Counts with wider noise would wrap around the modulus.
    if coins.half + party.agreed.rows > MOST_ROWS:
        raise party.refused(
            f"was asked for noise of up to {coins.half:,}, which is too wide"
        )

    # Steps 3 and 6: shares of exact counts.
    release = group.release(party.site.run, party.step)
    modulus = group.modulus(party.agreed.rows)
    share = _shifted if group.shifted else _product
    shares = [share(party, table, partner, dealt, release) for table in group.tables]
    exact = np.concatenate(shares)
    cells = len(exact)

    # Step 4: coins, of z that both parties know, and words that hide r.
    secret = party.secret(partner)
    z = products.coin_bits(secret, release, cells, coins)
    if is_first:
        S = products.coin_masks(party.dealer, release, cells, coins, modulus)
        noise = products.noise_share(coins, z, S, modulus, first=True)
    else:
        G = dealt.coins(partner, cells, coins)
        noise = products.noise_share(coins, z, G, modulus, first=False)

    # Step 5: a pad. With a coordinator that tells two parties different things, none cancels.
    context = _in_run(release, party.digest(tables))
    pad = products.pad(secret, context, cells, modulus)
    noisy = products.added(exact, noise, modulus)
    if is_first:
        return products.added(noisy, pad, modulus)
    return products.taken(noisy, pad, modulus)


def _product(
    party: _Party, table: NoisyTable, partner: str, dealt: _Dealt, release: str
) -> Words:
    """Return this party's share of a pair's exact counts, the first party's codes first."""
    places: list[slice] = []
    for name, (column,) in party.plan.halves(table.clique).items():
        index = party.plan.parts[name].names.index(column)
        start = sum(party.sizes(name)[:index])
        stop = start + party.domain.size_of(column)
        places.append(slice(start, stop))
    first_codes, second_codes = places
    share = party.share_of(partner)[first_codes, second_codes]
    return _without_missing(party, share, partner, products.P)


def _shifted(
    party: _Party, table: NoisyTable, partner: str, dealt: _Dealt, release: str
) -> Words:
    """Return this party's share of any marginal's exact counts, as in step 6."""
    clique = party.plan.as_sent(table.clique)
    shape = party.domain.shape(clique)
    rows = party.agreed.rows
    modulus = products.modulus_for(rows, table.coins)
    (root,) = party.plan.roots([table.clique], party.domain)
    place = clique.index(root)

    cells = party.domain.size(clique) // shape[place]
    C = dealt.cells(rows, cells, modulus)
    m = party.shifted_codes(clique)
    info = _in_run(release, *clique)
    share = products.count_shifted(m, shape, place, dealt.seeds[root], info, C)
    # Step 6: the second party takes its words away from the first one's.
    if not party.before(partner):
        share = products.taken(0, share, 2**32)
    return _without_missing(party, share, partner, modulus)


def _without_missing(party: _Party, share: Words, partner: str, modulus: int) -> Words:
    """Return a share without the rows that are missing, which have the codes 0."""
    missing = np.zeros(share.size, dtype=np.uint32)
    # One of both parties is enough.
    if party.before(partner):
        missing[0] = party.agreed.rows - party.real
    return products.taken(share.reshape(-1), missing, modulus)


def secure_handlers(synth: TwoRoundSettings) -> Handlers:
    """Return a party's side: what it answers to each question."""
    return {
        Begin: partial(begin, synth),
        ShareRows: partial(share, synth),
        MeasureTables: partial(measure, synth),
    }


def secure_facts(setup: Setup) -> dict[str, Any]:
    """Return what every party is given of a study, see `Terms`."""
    return {"schema": coded_schema(setup), "parts": parts_of(setup)}


def check_codes(setup: Setup) -> None:
    """Raise CapacityError for so many codes that masked rows, or coins of pairs, cannot be sent."""
    # Masked rows.
    schema = coded_schema(setup)
    domain = workloads.first_encoder(schema, setup.settings_as(TwoRoundSettings)).domain
    total = sum(domain.sizes)
    if total > _MOST_CODES:
        widest = max(domain.names, key=domain.size_of)
        raise CapacityError(
            f"the columns have {total:,} codes in all ({widest} alone {domain.size_of(widest):,}), "
            f"and every row is sent with a number for each; at most {_MOST_CODES:,} may be. Put "
            "rare categories together in the schema, or use fewer bins"
        )

    # Coins of pairs of two parties, once it is public who has which columns.
    if not setup.columns:
        return
    plan = SecurePlan(
        setup.settings_as(TwoRoundSettings), schema, parts_of(setup), setup.budget
    )
    cells = sum(map(domain.size, plan.crossing))
    if cells < _MANY_CELLS or not plan.opens_pairs:
        return
    coins = plan.coins(plan.first_sigma)
    size = 4 * cells * coins.number
    if size > _FULL * MAX_BYTES:
        largest = max(plan.crossing, key=domain.size)
        columns = "×".join(largest)
        holders = " and ".join(plan.holders(largest))
        raise CapacityError(
            f"the noise of {len(plan.crossing)} pairs of columns of two parties, {cells:,} cells, "
            f"takes a message of {size / 1e6:,.0f} MB; one holds {MAX_BYTES / 1e6:,.0f}. "
            f"{columns} of {holders} alone has {domain.size(largest):,} cells. Put rare categories "
            "together in the schema, use fewer bins, or name the pairs that matter as workload"
        )


def coded_schema(setup: Setup) -> Schema:
    """Return all columns but ids, in the order of the schema."""
    names = [column.name for column in setup.schema.coded]
    return setup.schema.select(names)


class _Slab(NamedTuple):
    """Rows that are shared in one message.

    Attributes:
        start: The first of them.
        stop: After the last one.
        proven: Up to which row proofs are sent, with this message and those before.
    """

    start: int
    stop: int
    proven: int


def _owned(plan: SecurePlan, domain: Domain) -> list[tuple[int, int]]:
    """Return how many codes and columns every party has."""
    owned: list[tuple[int, int]] = []
    for part in plan.parts.values():
        sizes = domain.shape(part.names)
        owned.append((sum(sizes), len(sizes)))
    return owned


def _bytes_of(owned: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return a row's bytes at each party: of its proof, of what is sent, of what others sent."""
    total = sum(codes + columns for codes, columns in owned)
    row_bytes: list[tuple[int, int, int]] = []
    for codes, columns in owned:
        proof = 4 * codes
        sent = 4 * (codes + columns)
        delivered = 4 * (total - codes - columns)
        row_bytes.append((proof, sent, delivered))
    return row_bytes


def _slabs_of(owned: Sequence[tuple[int, int]], rows: int) -> list[_Slab]:
    """Plan in which slabs rows are shared: as few messages as hold them.

    No rows have one, which has the keys. A message has proofs of rows that are shared with it or
    later, and delivers the rows of the one before; the last ones go along with what is measured
    first. So proofs are sent as early as there is room for them, which the first message has, and
    the last slab is the largest.
    """
    row_bytes = _bytes_of(owned)
    full = _SLAB * MAX_BYTES
    largest = 0  # bytes of a row in one message, sent or delivered
    whole = 0  # bytes of a row that parties are sent in all messages
    for proof, sent, delivered in row_bytes:
        largest = max(largest, sent, delivered)
        whole = max(whole, proof + delivered)
    most = max(1, int(full / largest))

    # Fewer messages than these cannot hold all rows, whatever is sent when.
    least = max(-(-rows // most), int(rows * whole / full) - 1)
    # And so many are enough: a row in each, and as many as fit in the last.
    enough = rows - most + 1
    for number in count(max(1, min(least, enough))):
        slabs = _slabs_in(number, rows, most, full, row_bytes)
        if len(slabs) == number:
            return slabs
    raise AssertionError("more messages hold more rows")


def _slabs_in(
    number: int,
    rows: int,
    most: int,
    full: float,
    row_bytes: Sequence[tuple[int, int, int]],
) -> list[_Slab]:
    """Plan so many slabs, or as many of them as have room for their proofs.

    Args:
        number: How many slabs there shall be.
        rows: Rows of all.
        most: Rows of one, at most.
        full: Bytes of one message.
        row_bytes: As `_bytes_of` returns them.
    """
    # The last slab is the largest, and all others are alike.
    last_start = rows - min(most, rows)
    slab_rows = -(-last_start // max(1, number - 1))
    starts = [min(index * slab_rows, last_start) for index in range(number)]
    ends = [*starts, rows]
    slabs = list[_Slab]()
    proven = 0
    rows_before = 0
    for start, stop in pairwise(ends):
        # The rows of the slab before are delivered in this message; the rest is for proofs.
        rooms = [
            int((full - delivered * rows_before) / proof)
            for proof, _, delivered in row_bytes
        ]
        proven = min(rows, proven + max(1, min(rooms)))
        if rows and not start < stop <= min(proven, start + most):
            break
        slabs.append(_Slab(start, stop, proven))
        rows_before = stop - start
    return slabs


def secure_forecast(setup: Setup, rows: int) -> Forecast:
    """Return what a run takes: rows, dealt coins, and what every method of marginals takes."""
    synth = setup.settings_as(TwoRoundSettings)
    notes = list[str]()
    encoder = setup.encoder or workloads.first_encoder(setup.schema, synth)
    schema = encoder.schema.select(encoder.domain.names)
    parts: dict[str, Schema] = {}
    for name, columns in setup.columns.items():
        parts[name] = schema.select(list(columns))
    plan = SecurePlan(synth, schema, parts, setup.budget)
    if synth.bins is None:
        bins = plan.bins(rows)
        setup = setup.with_settings(bins=bins)
        encoder = replace(encoder, bins=bins)
        if plan.fine is not None:
            notes.append(_bins_note(plan, rows, bins))
    base = marginal_forecast(
        lambda setup, rows, domain: (_EXCHANGES, 1.0),
        lambda *facts: {},
        all_pairs=True,
    )(setup, rows)

    # Masked rows, the coins of pairs, and what tables of shifted codes take.
    domain = encoder.domain
    margin = plan.bound.margin if plan.bound else 0
    shared = plan.shared(rows + margin)
    masked_bytes = 4 * shared * sum(domain.sizes)
    cells = _crossing_cells(plan, domain, len(setup.roster))
    coins = 0
    if cells:
        coins = cells * plan.coins(plan.first_sigma).number
    # A pair of more cells than these is not worth its noise, so it is not planned.
    most_cells = shared / (plan.first_sigma * sqrt(2 / pi))
    planned_cells = _crossing_cells(plan, domain, len(setup.roster), most_cells)
    dealt_coins = coins + _PAIR_COINS * planned_cells
    wide_bytes, wide_words = _foreseen(setup, rows, encoder, shared)

    # Bytes that cross the network, and how often each party is asked.
    owned = _owned(plan, domain)
    if not owned:
        owned = _owned_alike(domain, len(setup.roster))
    slabs = len(_slabs_of(owned, shared))
    crossed = _sharing_bytes(owned, shared)
    crossed += 4 * (2 * dealt_coins // len(setup.roster))
    # Where no queries are named, wide tables are rare.
    if synth.target is not None or synth.workload != "auto":
        crossed += wide_bytes
    batches = _MOST_BATCHES if len(setup.roster) > 1 else 1
    measured = 1 + batches
    # So many coins take one more message, each time.
    if 4 * coins > _FEW_COINS * MAX_BYTES:
        measured += 2
    questions: QuestionCounts = {Begin: 1, ShareRows: slabs, MeasureTables: measured}
    if len(setup.roster) > 1 and not plan.opens_pairs:
        notes.append(only_alone(plan))

    to_parties: float | None = None
    if len(setup.roster) > 1 and plan.bound is not None:
        # A replaced row may move every release twice, and meet twice as many ends of noise.
        delta = setup.budget.delta * (1 - 2 * _ESCAPES)
        to_parties = epsilon_of_rho(2 * plan.rho, delta)
        notes.append(same_people_note(to_parties))

    memory = _COPIES * masked_bytes
    memory += _WIDE_COPIES * wide_bytes
    memory += _COIN_COPIES * coins
    nanoseconds = _ROW_NS * masked_bytes + _WORD_NS * wide_words
    return replace(
        base,
        questions=questions,
        notes=(*base.notes, *notes),
        by_rows=(ShareRows,),
        closes=True,
        error=_foreseen_error(rows, plan, encoder),
        epsilon_to_parties=to_parties,
        memory_mb=base.memory_mb + 1e-6 * memory,
        bytes_per_party=crossed,
        seconds=(base.seconds or 0.0) + 1e-9 * nanoseconds,
    )


def _sharing_bytes(owned: Sequence[tuple[int, int]], rows: int) -> int:
    """Return the bytes that sharing rows takes to and from a party, at most."""
    all_codes = sum(codes for codes, _ in owned)
    widest = max(codes for codes, _ in owned)
    row_bytes = max(map(sum, _bytes_of(owned)))
    # Step 2: Q has a word for every code of the party and every code of another.
    corrections = 4 * widest * (all_codes - widest)
    return rows * row_bytes + corrections


def _owned_alike(domain: Domain, parties: int) -> list[tuple[int, int]]:
    """Return codes and columns as if every party had equally many, where that is not known yet."""
    codes = -(-sum(domain.sizes) // parties)
    columns = -(-len(domain.names) // parties)
    return [(codes, columns)] * parties


def _foreseen_error(
    rows: int, plan: SecurePlan, encoder: Encoder
) -> ErrorForecast | None:
    """Forecast the error of the synthetic table; None where nobody guesses how many rows it has."""
    if rows <= 1:
        return None
    synth = plan.synth
    domain = encoder.domain
    numbers = numbers_of(encoder.schema)
    rho = plan.rho_tables / plan.unit**2
    shares = (synth.pairs_share, synth.shrinkage)
    bought = two_round_buys(domain, numbers, rows, rho, *shares)
    return error_forecast(encoder.schema, domain, rows, bought)


def _bins_note(plan: SecurePlan, rows: int, bins: int) -> str:
    """Describe how columns of numbers are cut, where nobody set how many bins they have."""
    cut = len(plan.fine.schema.columns) if plan.fine else 0
    columns = count_of(cut, "column of numbers is", "columns of numbers are")
    each = " each" if cut > 1 else ""
    return (
        f"{columns} cut into about {bins} bins{each}. With about {rows:,} rows at epsilon = "
        f"{plan.budget.epsilon:g}, more bins would drown in the noise; to decide it, set bins = "
        f"{bins} in [method]"
    )


def _crossing_cells(
    plan: SecurePlan, domain: Domain, parties: int, most: float = inf
) -> int:
    """Count the cells of all pairs of two parties, where a pair has fewer than `most`."""
    if parties == 1 or not plan.opens_pairs:
        return 0
    pairs = plan.crossing
    if not plan.parts:
        pairs = [query for query in plan.closure if len(query) == 2]
    sizes = map(domain.size, pairs)
    cells = sum(size for size in sizes if size < most)
    if plan.parts:
        return cells
    # It is not known yet who has which columns: as if each party had equally many.
    return cells * (parties - 1) // parties


def only_alone(plan: SecurePlan) -> str:
    """Return a sentence about a budget too small for any table of several parties."""

    def opens_pairs(budget: Budget) -> bool:
        return replace(plan, budget=budget).opens_pairs

    enough = enough_epsilon(plan.budget, opens_pairs)
    return (
        f"epsilon = {plan.budget.epsilon:g} is too small for tables of columns of several parties; "
        "columns of one party are measured, and those of different parties are independent in the "
        f"synthetic table. With epsilon = {enough:g} all are measured"
    )


def _foreseen(
    setup: Setup, rows: int, encoder: Encoder, shared: int
) -> tuple[int, int]:
    """Estimate the bytes dealt for tables of shifted codes, and their words: the mean of two plans.

    Which pairs are planned depends on the rows: here it is all of them, or those of fewer cells.
    """
    synth = setup.settings_as(TwoRoundSettings)
    if len(setup.roster) == 1:
        return 0, 0
    domain = encoder.domain
    queries = workloads.queries_of(synth, encoder)
    pairs = [clique for clique in closure(queries, domain) if len(clique) == 2]
    pairs.sort(key=domain.size)
    if not pairs:
        return 0, 0

    unit = marginal_sensitivity(setup.budget.neighbours, norm="l2")
    rho = rho_for(setup.budget) / unit**2
    sigma = sqrt(len(pairs) / (2 * synth.pairs_share * rho))
    planned_rho = (1 - synth.pairs_share) * rho

    def fits(cliques: Sequence[Clique]) -> bool:
        return _fit(domain, _wide(cliques), shared)

    totals = np.zeros(2, dtype=np.int64)
    for number in (len(pairs), ceil(_PLANNED * len(pairs))):
        measured: list[Measurement] = []
        for pair in pairs[:number]:
            # Of rows that are spread evenly, as nothing is known of them yet.
            mean_count = rows / domain.size(pair)
            counts = np.full(domain.shape(pair), mean_count)
            measured.append(Measurement(pair, counts, sigma))
        tables = design(domain, queries, measured, planned_rho, synth, fits)
        dealt = _dealt(domain, _wide(tables), shared)
        totals += np.array(dealt) // 2
    size, words = totals.tolist()
    return size, words


def _wide(cliques: Iterable[Clique]) -> list[Clique]:
    """Return the cliques of three columns or more."""
    return [clique for clique in cliques if len(clique) > 2]


# Coordinator

_ByParty = defaultdict[str, dict[str, Any]]
"""Parts of messages to every party, by the party that they are from or for whose tables."""


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
        schema = coded_schema(setup)
        parts = parts_of(setup)
        self.plan = SecurePlan(
            setup.settings_as(TwoRoundSettings), schema, parts, setup.budget
        )
        self._secret = kept_secret(task)
        self._public = masking.public_key(self._secret)
        self._at_once = task.at_once
        self._slabs: _Slabs = {}
        self._begin(setup)

    def _begin(self, setup: Setup) -> None:
        """Ask for keys, the number of rows, and the histograms by which columns are cut."""
        plan = self.plan
        # Unknown columns in a query are refused here, before anything is paid for.
        encoder = workloads.first_encoder(plan.schema, plan.synth)
        workloads.queries_of(plan.synth, encoder)
        answers = self.session.ask(Begin(), list(plan.parts))
        replies = dict(zip(plan.parts, answers, strict=True))

        # How many rows there are, by the first party.
        first_reply = replies[plan.first]
        bounds: Sequence[Released[int] | Public[int]] = first_reply.paid_bound
        if plan.bound is None:
            bounds = first_reply.known_rows
        checked = CheckedReply(plan.first)
        (bound,) = checked.items("bounds", bounds, count=1)
        rows = checked.number("rows", bound.value, least=0, most=MOST_ROWS)
        self.rows = max(1, rows)

        # Every party's key, and where its columns are cut.
        cuts: dict[str, Cuts] = {}
        self._keys: dict[str, bytes] = {}
        for name, reply in replies.items():
            checked = CheckedReply(name)
            self._keys[name] = checked.mask_key("key", reply.key.value)
            fine = plan.fine_of(name)
            if fine is None:
                checked.items("histograms", reply.counts, count=0)
                continue
            (histogram,) = checked.items("histograms", reply.counts, count=1)
            cells = ResolutionLevels(fine).cells
            counts = checked.array("counts", histogram.value, WHOLE, (cells,))
            cuts |= plan.cuts(name, counts.astype(np.int64), self.rows)
        encoder = workloads.first_encoder(setup.schema, plan.synth)
        self.encoder = replace(encoder, cuts=cuts)
        self.domain = self.encoder.domain

        # A signed key begins with the key itself.
        public_keys = {name: key[: masking.KEY] for name, key in self._keys.items()}
        self._shared = masking.agree_with(self._secret, public_keys)

    def can_measure(self, cliques: Sequence[Clique]) -> bool:
        """Return whether tables fit into one message, are quick, and have coins wide enough."""
        joint = [clique for clique in cliques if len(self.plan.holders(clique)) > 1]
        if joint and not self.plan.opens_pairs:
            return False
        wide = _wide(joint)
        most = self.plan.most_tables // 2
        return len(cliques) <= most and _fit(self.domain, wide, self.rows)

    def measure(
        self, cliques: Sequence[Clique], sigmas: Sequence[float], *, last: bool = False
    ) -> list[Measurement]:
        """Measure marginals, each of which costs what Gaussian noise of its sigma does.

        Those of several parties whose noise would be too wide for coins are left out. `last` is as
        of `Session.ask`.

        Raises:
            WireError: A party sent what does not fit; names it.
            BudgetError: Noise of such a sigma cannot be made.
        """
        tables: list[NoisyTable] = []
        for clique, sigma in zip(cliques, sigmas, strict=True):
            if sigma <= MOST_SIGMA or len(self.plan.holders(clique)) == 1:
                tables.append(self.plan.table_for(clique, sigma))

        measurements: dict[Clique, Measurement] = {}
        batches = list(self._batches(tables))
        for number, batch in enumerate(batches, 1):
            ends = last and number == len(batches)
            measurements |= self._measure_batch(batch, last=ends)
        return [measurements[table.clique] for table in tables]

    def _batches(
        self, tables: Sequence[NoisyTable]
    ) -> Iterator[tuple[NoisyTable, ...]]:
        """Yield tables for one message each, which has room for their coins and dealt words.

        So it must have for the last rows that are shared, which the first message of all delivers.
        """
        batch = list[NoisyTable]()
        wide = list[NoisyTable]()
        coins = 0
        room = _FULL * MAX_BYTES
        if not self._slabs:
            room -= self._last_rows
        for table in tables:
            joint = len(self.plan.holders(table.clique)) > 1
            table_coins = 0
            if joint:
                table_coins = 4 * self.domain.size(table.clique) * table.coins.number
            shifted = [table] if self.plan.is_shifted(table.clique) else []
            _, dealt, _ = self.plan.dealt([*wide, *shifted], self.domain, self.rows)

            # A table too many begins the next batch. One alone is sent, however large it is.
            if batch and coins + table_coins + dealt > room:
                yield tuple(batch)
                batch = []
                wide = []
                coins = 0
                room = _FULL * MAX_BYTES

            batch.append(table)
            wide = [*wide, *shifted]
            coins += table_coins
        if batch:
            yield tuple(batch)

    @property
    def _last_rows(self) -> int:
        """Bytes that a party is delivered of the last rows, at most."""
        owned = _owned(self.plan, self.domain)
        slabs = _slabs_of(owned, self.plan.shared(self.rows))
        last_slab = slabs[-1]
        row_bytes = max(delivered for *_, delivered in _bytes_of(owned))
        return row_bytes * (last_slab.stop - last_slab.start)

    def _measure_batch(
        self, tables: tuple[NoisyTable, ...], *, last: bool = False
    ) -> dict[Clique, Measurement]:
        """Measure tables for which one message has room."""
        deliveries = _ByParty(dict)
        corrections = _ByParty(dict)

        # Rows are shared before the first tables. Their steps come first, so what is dealt below
        # is for the step after them.
        if not self._slabs:
            deliveries, corrections = self._share_rows()
        coins = {name: self._coins(name, tables) for name in self.plan.parts}
        first, second = self.plan.servers
        seeds, cells = self._cells(tables)
        seeds_of = {second: seeds}
        cells_of = {first: cells, second: cells}

        requests: dict[str, MeasureTables] = {}
        for name in self.plan.parts:
            requests[name] = MeasureTables(
                tables,
                deliveries[name],
                corrections[name],
                coins[name],
                seeds_of.get(name, b""),
                cells_of.get(name, b""),
            )
        replies = self.session.ask_each(requests, at_once=self._at_once, last=last)
        reply_of = dict(zip(requests, replies, strict=True))
        return opened_tables(self.plan, self.domain, self.rows, tables, reply_of)

    def _sizes(self, party: str) -> tuple[int, ...]:
        return self.domain.shape(self.plan.parts[party].names)

    def _share_rows(self) -> tuple[_ByParty, _ByParty]:
        """Let all parties share their rows, slab by slab; return what they are sent next.

        That is the rows of the last slab, and Q of every pair (step 2).
        """
        parties = list(self.plan.parts)
        run = self.session.run
        owned = _owned(self.plan, self.domain)
        planned = _slabs_of(owned, self.plan.shared(self.rows))
        first_step = self.session.rounds
        steps = {slab: step for step, slab in enumerate(planned, first_step)}

        totals: dict[tuple[str, str], Words] = {}
        deliveries = _ByParty(dict)
        proven = 0
        for slab, step in steps.items():
            start, stop, _ = slab
            self._slabs[step] = (start, stop)
            context = _in_run(run, step)
            masks: dict[str, Words] = {}
            requests: dict[str, ShareRows] = {}
            for party in parties:
                shared = self._shared[party]
                width = sum(self._sizes(party))
                masks[party] = products.masks(shared, context, stop - start, width)

                # Step 7: k of rows whose proof has room in this message, in whatever slab they are.
                parts: list[Words] = []
                for proven_slab, at in steps.items():
                    k = self._proof(party, proven_slab, at, proven, slab.proven)
                    parts.append(k)
                proof = Array.of(np.concatenate(parts), "<u4")
                requests[party] = ShareRows(
                    keys=self._keys,
                    dealer=self._public,
                    rows=self.rows,
                    sizes=self.domain.sizes,
                    start=start,
                    stop=stop,
                    proof=proof,
                    deliveries=deliveries[party],
                )
            proven = slab.proven
            replies = self.session.ask_each(requests, at_once=self._at_once)

            # Step 2: U^T V of each pair, whose sum over the slabs is sent less R.
            for pair in combinations(parties, 2):
                first, second = pair
                part = products.product(masks[first], masks[second])
                if pair in totals:
                    part = products.added(totals[pair], part)
                totals[pair] = part
            reply_of = dict(zip(parties, replies, strict=True))
            deliveries = self._deliveries(slab, step, reply_of)

        corrections = _ByParty(dict)
        for (first, second), total in totals.items():
            context = _in_run(run, "R", first, second)
            R = products.masks(self._shared[first], context, *total.shape)
            Q = products.taken(total, R)
            corrections[second][first] = Array.of(Q, "<u4")
        return deliveries, corrections

    def _deliveries(
        self, slab: _Slab, step: int, replies: Mapping[str, SharedRows]
    ) -> _ByParty:
        """Return the rows that parties sent each other, with the seeds that check their proofs.

        A seed leaves only now, after its sender's proof came: who knew it could make one up.
        """
        deliveries = _ByParty(dict)
        for sender, reply in replies.items():
            checked = CheckedReply(sender)
            others = [party for party in replies if party != sender]
            keys = reply.rows.keys
            data = reply.rows.data

            # Masked rows and shifted codes, and the sum of k(m).
            sizes = self._sizes(sender)
            width = sum(sizes) + len(sizes)
            words = (slab.stop - slab.start) * width + 1
            checked.items("keys of rows", keys, count=len(others), among=others)
            checked.items("bytes of rows", data, count=4 * words + _TAG)

            seed = self._proof_seed(sender, step)
            for party in others:
                delivery = Delivery(step, data, keys[party], seed)
                deliveries[party][sender] = delivery
        return deliveries

    def _proof_seed(self, party: str, step: int) -> bytes:
        """Return the seed of step 7 for the rows that a party shares in a step."""
        context = _in_run(self.session.run, step)
        info = f"{context}/{party}".encode()
        return masking.stream(self._secret, info, 8).tobytes()

    def _proof(
        self, party: str, slab: _Slab, step: int, first: int, last: int
    ) -> Words:
        """Return k for a proof of those of the rows from first to last that are in a slab."""
        sizes = self._sizes(party)
        count = slab.stop - slab.start
        first = max(first, slab.start) - slab.start
        last = min(last, slab.stop) - slab.start
        if first >= last:
            return np.empty((0, sum(sizes)), np.uint32)
        shared = self._shared[party]
        context = _in_run(self.session.run, step)
        U = products.masks(shared, context, count, sum(sizes))
        b = products.shifts(shared, context, count, sizes)
        seed = self._proof_seed(party, step)
        return products.proof_words(seed, U, b, sizes, slice(first, last))

    def _coins(self, party: str, tables: Sequence[NoisyTable]) -> dict[str, Array]:
        """Return G for the tables that a party opens as the second one, by the first one."""
        dealt: dict[str, list[Words]] = {}
        for group in self.plan.groups(tables, party):
            if group.second != party or group.first == party:
                continue

            # Step 4: G = r - S.
            release = group.release(self.session.run, self.session.rounds)
            cells = sum(group.sizes(self.domain))
            coins = group.coins
            modulus = group.modulus(self.rows)
            r = products.coin_bits(self._secret, release, cells, coins)
            shared = self._shared[group.first]
            S = products.coin_masks(shared, release, cells, coins, modulus)
            G = products.taken(r, S, modulus)
            dealt.setdefault(group.first, []).append(G.reshape(-1))
        arrays: dict[str, Array] = {}
        for name, words in dealt.items():
            arrays[name] = Array.of(np.concatenate(words), "<u4")
        return arrays

    def _cells(self, tables: Sequence[NoisyTable]) -> tuple[bytes, bytes]:
        """Return seeds of the roots for the second party, and C of all tables of shifted codes."""
        run = self.session.run
        step = self.session.rounds
        b = self._shifts
        first_party, _ = self.plan.servers
        shared = self._shared[first_party]

        # Step 6: a root's seeds s of the first party, and s' of the second.
        cliques = [table.clique for table in tables]
        roots = self.plan.roots(cliques, self.domain)
        seeds: dict[str, tuple[masking.Seeds, masking.Seeds]] = {}
        for root, size in roots.items():
            context = _in_run(run, step, root)
            first = products.root_seeds(shared, context, self.rows, size)
            second = products.other_seeds(self._secret, context, first, b[root])
            seeds[root] = (first, second)

        corrections: list[bytes] = []
        for group in self.plan.groups(tables, first_party):
            if not group.shifted:
                continue
            modulus = group.modulus(self.rows)
            release = group.release(run, step)
            for table in group.tables:
                clique = self.plan.as_sent(table.clique)
                (root,) = self.plan.roots([table.clique], self.domain)
                C = products.corrections(
                    seeds[root],
                    _in_run(release, *clique),
                    np.stack([b[name] for name in clique], axis=1),
                    self.domain.shape(clique),
                    clique.index(root),
                    modulus,
                )
                corrections.append(C.tobytes())
        second_seeds = [second.tobytes() for _, second in seeds.values()]
        return b"".join(second_seeds), b"".join(corrections)

    @cached_property
    def _shifts(self) -> dict[str, npt.NDArray[np.int64]]:
        """b of every column, once rows are shared."""
        slabs: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
        for step, (start, stop) in self._slabs.items():
            context = _in_run(self.session.run, step)
            for party, part in self.plan.parts.items():
                shared = self._shared[party]
                sizes = self._sizes(party)
                b = products.shifts(shared, context, stop - start, sizes)
                for name, column in zip(part.names, b.T, strict=True):
                    slabs[name].append(column)
        return {name: np.concatenate(columns) for name, columns in slabs.items()}


def opened_tables(
    plan: SecurePlan,
    domain: Domain,
    rows: int,
    tables: Sequence[NoisyTable],
    replies: Mapping[str, Tables],
) -> dict[Clique, Measurement]:
    """Return every table, from what one party or two sent.

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
        for group, array in _words_of(plan, domain, rows, tables, party, reply):
            words.setdefault(group, []).append(array)

    # Rows may be as many fewer than their bound as its margin and noise are.
    most_missing = 0
    if plan.bound is not None:
        most_missing = ceil(plan.bound.margin + _NEVER * plan.bound.sigma)
    bounds = RowBounds(rows - most_missing, rows)
    measured: dict[Clique, Measurement] = {}
    for group, parts in words.items():
        has_coins = bool(group.kind.weights)
        if has_coins:
            half = group.coins.half
            counts = products.opened(parts, half, group.modulus(rows))
            sigma = group.coins.sigma
        else:
            # One party counted alone.
            counts = parts[0]
            sigma = group.kind.sigma

        ends = np.cumsum(group.sizes(domain))
        pieces = np.split(counts.astype(np.float64), ends[:-1])
        for table, cells in zip(group.tables, pieces, strict=True):
            clique = table.clique
            if has_coins:
                who = f"parties {group.first!r} and {group.second!r}"
                bounds = bounds.after(who, clique, cells, group.coins)

            # Cells come with the columns party by party, and are put into the clique's order.
            sent_as = plan.as_sent(clique)
            order = [sent_as.index(name) for name in clique]
            by_party = cells.reshape(domain.shape(sent_as))
            measured[clique] = Measurement(clique, by_party.transpose(order), sigma)
    return measured


def _words_of(
    plan: SecurePlan,
    domain: Domain,
    rows: int,
    tables: Sequence[NoisyTable],
    party: str,
    reply: Tables,
) -> Iterator[tuple[Group, npt.NDArray[Any]]]:
    """Yield the counts or words that a party sent, checked, for every group that it opens."""
    alone: list[Group] = []
    joint: list[Group] = []
    for group in plan.groups(tables, party):
        if group.openers == (party, party):
            alone.append(group)
        elif party in group.openers:
            joint.append(group)
    checked = CheckedReply(party)

    # Counts of one party have its noise on them already; words of two are any below a modulus.
    for group, sent in _by_group(checked, alone, reply.own):
        shape = (sum(group.sizes(domain)),)
        tail = ceil(_NEVER * group.kind.sigma)
        most = rows + tail
        counts = checked.array("counts", sent, WHOLE, shape, least=-tail, most=most)
        yield group, counts
    for group, sent in _by_group(checked, joint, reply.joint):
        shape = (sum(group.sizes(domain)),)
        most = group.modulus(rows) - 1
        words = checked.array("counts", sent, WORDS, shape, least=0, most=most)
        yield group, words


def _by_group(
    checked: CheckedReply, groups: Sequence[Group], sent: Sequence[Released[Array]]
) -> list[tuple[Group, Array]]:
    """Match what a party sent with the groups that it opens."""
    checked.items("groups of tables", sent, count=len(groups))
    return [(group, item.value) for group, item in zip(groups, sent, strict=True)]


class RowBounds(NamedTuple):
    """Between which numbers the rows are that tables count."""

    least: int
    most: int

    def after(
        self, who: str, clique: Clique, counts: npt.NDArray[Any], coins: Coins
    ) -> RowBounds:
        """Return closer bounds, by a table that opened; no count opens to less than -half.

        Raises:
            WireError: A count is larger than honest coins leave it, or their sum is not about the
                rows; names `who` sent the words.
        """
        half = coins.half
        total = int(counts.sum())
        # The noise of a sum is wider by the root of how many counts it has.
        tail = ceil(_NEVER * coins.sigma * sqrt(counts.size))
        checks = (
            ("a count", counts.max(), -half, self.most + half),
            ("a sum", total, self.least - tail, self.most + tail),
        )
        for kind, value, least, most in checks:
            if not least <= value <= most:
                raise WireError(
                    f"{who} sent words that open to {kind} of {value:,.0f} in {'×'.join(clique)}; "
                    f"it must be from {least:,} to {most:,}. The table was discarded: check which "
                    "software they run, and start a new run"
                )
        closer_least = max(self.least, total - tail)
        closer_most = min(self.most, total + tail)
        return RowBounds(closer_least, closer_most)


def kept_secret(task: Task) -> bytes:
    """Return the dealer's secret, the same when a run is resumed, or a question asked again.

    It is in a folder next to that of the run.
    """
    if task.store is None:
        return masking.new_secret(task.entropy)
    store = FolderStore(task.store.parent / "dealer")
    run = task.store.name
    secret = store.get(run) or masking.new_secret(task.entropy)
    store.put(run, secret)
    return secret
