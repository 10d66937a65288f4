"""What parties and coordinator compute from public facts: prices, groups of tables, sizes.

After Beaver 1997 and Gilboa & Ishai 2014; see `secure_marginals`.

**Guarantee**: that of `secure_marginals`. Nothing here reads a row: a budget is divided the same
way by all, and each party checks requests against its own plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, pairwise
from math import ceil, log2, prod, sqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.core.method import Setup
from siloweave.errors import CapacityError, InputError
from siloweave.federation.messages import MAX_BYTES
from siloweave.privacy import events
from siloweave.privacy.budget import (
    Budget,
    enough_epsilon,
    marginal_sensitivity,
    rho_for,
    size_sensitivity,
)
from siloweave.privacy.coins import MOST_SIGMA, Coins, coins_for, largest_order_for
from siloweave.protocols import histograms, workloads
from siloweave.protocols import secure_products as products
from siloweave.protocols.columns import parts_of
from siloweave.protocols.secure_marginals.messages import NoisyTable
from siloweave.protocols.two_rounds import TwoRoundSettings
from siloweave.statistics.marginals import closure
from siloweave.tables.bins import Cuts, cuts_of
from siloweave.tables.codes import Clique, Domain, Encoder, ResolutionLevels
from siloweave.tables.schema import Schema

# Share of the zCDP that pays for a bound of the number of rows.
_ROWS_SHARE = 0.005
# How far that bound lies above the rows, as a multiple of its noise. `UpperBound` needs 8.
_MARGIN = 9.0
ESCAPES = 1e-3
"""Share of delta for what truncated zCDP leaves out."""

# Share of a message for masked rows, or for planned tables.
_SLAB = 0.9
FULL = 0.96
"""Share of a message for tables that are measured."""

# Codes of all columns, at most.
_MOST_CODES = 2**13
MOST_WORDS = 2**31
"""Words of all tables of shifted codes together, which are rows times cells, at most."""
MOST_CELLS = 2**12
"""Cells of one table of shifted codes, at most."""
# Coins of pairs of two parties with fewer cells than these always fit into a message.
_MANY_CELLS = 2**18
# Below so many rows, the words of a table of shifted codes have mostly 16 bits.
_NARROW = 3 * 2**14
# Coins of a cell of a table of shifted codes, mostly at most.
_COINS = 240


# How a budget is divided, and what tables cost


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
        delta = self.budget.delta * (1 - ESCAPES)
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
        """Probability of an end of noise of coins: all of them have `ESCAPES` of delta."""
        # Both ends of a cell's noise, once for every row that a neighbour adds or removes.
        ends = 2 * self.moved * self.budget.neighbours.rows
        delta_each = ESCAPES * self.budget.delta / (ends * self.most_tables)
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
        size, words = dealt_bytes(domain, cliques, rows, widths, coins=0)
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


def dealt_bytes(
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


def fit_together(domain: Domain, wide: Sequence[Clique], rows: int) -> bool:
    """Return whether these tables of shifted codes fit into one message, and do not take long."""
    dealt, words = dealt_bytes(domain, wide, rows)
    widest = max(map(domain.size, wide), default=0)
    is_quick = words <= MOST_WORDS and widest <= MOST_CELLS
    return is_quick and dealt <= _SLAB * MAX_BYTES


def in_run(run: str, *labels: object) -> str:
    """Return the context of a stream. A zero byte keeps labels of different lengths apart."""
    return "\0".join((run, *map(str, labels)))


# What a study must be


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
    if size > FULL * MAX_BYTES:
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


# In which messages rows are shared

Slabs = dict[int, tuple[int, int]]
"""First row and last of every *share*, by its step."""


class Slab(NamedTuple):
    """Rows that are shared in one message.

    Attributes:
        start: The first of them.
        stop: After the last one.
        proven: Up to which row proofs are sent, with this message and those before.
    """

    start: int
    stop: int
    proven: int


def owned_codes(plan: SecurePlan, domain: Domain) -> list[tuple[int, int]]:
    """Return how many codes and columns every party has."""
    owned: list[tuple[int, int]] = []
    for part in plan.parts.values():
        sizes = domain.shape(part.names)
        owned.append((sum(sizes), len(sizes)))
    return owned


def row_bytes_of(owned: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return a row's bytes at each party: of its proof, of what is sent, of what others sent."""
    total = sum(codes + columns for codes, columns in owned)
    row_bytes: list[tuple[int, int, int]] = []
    for codes, columns in owned:
        proof = 4 * codes
        sent = 4 * (codes + columns)
        delivered = 4 * (total - codes - columns)
        row_bytes.append((proof, sent, delivered))
    return row_bytes


def slabs_of(owned: Sequence[tuple[int, int]], rows: int) -> list[Slab]:
    """Plan in which slabs rows are shared: as few messages as hold them.

    No rows have one, which has the keys. A message has proofs of rows that are shared with it or
    later, and delivers the rows of the one before; the last ones go along with what is measured
    first. So proofs are sent as early as there is room for them, which the first message has, and
    the last slab is the largest.
    """
    row_bytes = row_bytes_of(owned)
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
) -> list[Slab]:
    """Plan so many slabs, or as many of them as have room for their proofs.

    Args:
        number: How many slabs there shall be.
        rows: Rows of all.
        most: Rows of one, at most.
        full: Bytes of one message.
        row_bytes: As `row_bytes_of` returns them.
    """
    # The last slab is the largest, and all others are alike.
    last_start = rows - min(most, rows)
    slab_rows = -(-last_start // max(1, number - 1))
    starts = [min(index * slab_rows, last_start) for index in range(number)]
    ends = [*starts, rows]
    slabs = list[Slab]()
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
        slabs.append(Slab(start, stop, proven))
        rows_before = stop - start
    return slabs


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


def wide_cliques(cliques: Iterable[Clique]) -> list[Clique]:
    """Return the cliques of three columns or more."""
    return [clique for clique in cliques if len(clique) > 2]
