"""One look at single columns, before anything is learned of several: all of them in one masked sum.

Hay, Rastogi, Miklau & Suciu 2010, "Boosting the accuracy of differentially private histograms
through consistency", have counts at several resolution levels (tables/levels.py says what is
ours); sums that nobody sees in the clear are Bonawitz et al.'s (2017), with noise in shares
(Kairouz, Liu & Steinke 2021). Private networks take their encoders from it (private_rounds.py).
What measures tables of several columns, AIM, FLAIM and TwoRound, cuts columns into bins by it
(tables/bins.py).

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator together with at most `tolerated` parties, and everyone who sees what follows from the
counts. A row is in one cell of every table and in the count of rows, which only moves where a row
is added or removed: the party computes the sensitivity itself, and its ledger is charged before
noise is drawn. Where a row is replaced, one party alone says how many rows it has. Assumed public:
schema, bins and roster.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from siloweave.algorithms.private_counts import Look
from siloweave.algorithms.secure_sum import (
    Cohort,
    Counts,
    Hello,
    SumNoise,
    hello,
    masked_reply,
    meet,
    noisy_sums,
    relation_of,
)
from siloweave.errors import WireError
from siloweave.federation.expected import MOST_ROWS, CheckedReply
from siloweave.federation.messages import Public, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.budget import Relation, marginal_sensitivity
from siloweave.privacy.events import SharedGaussian
from siloweave.tables.bins import Cuts, cuts_of
from siloweave.tables.codes import Codes, Domain, Encoder
from siloweave.tables.levels import ResolutionLevels
from siloweave.tables.read import Table, digest_of

__all__ = [
    "PARTY",
    "CountColumns",
    "CountRows",
    "Part",
    "count_columns",
    "count_rows",
    "look",
    "look_event",
    "look_for_cuts",
]


# Messages


class CountColumns(Cohort, frozen=True, tag="bins/columns"):
    """Count your rows, by every column's code and in all."""


class Known(Reply, frozen=True):
    """How many rows a party has, where that tells no neighbours apart."""

    rows: Public[int]


class CountRows(Request[Known], frozen=True, tag="bins/rows"):
    """How many rows have you? Asked of one party alone, where neighbours replace a row."""


# Party


@dataclass(frozen=True)
class Part:
    """What a party works with: its rows, the public bins that are counted, and the rows in them."""

    table: Table
    encoder: Encoder
    codes: Codes

    @property
    def domain(self) -> Domain:
        """Of the bins."""
        return self.codes.domain

    def digest(self) -> bytes:
        """By which the party knows again what it brought; see `Site`."""
        return digest_of(self.table, self.codes.digest())


def count_columns(request: CountColumns, site: Site[Part]) -> Counts:
    """A row is in one cell of every table, and in the cell of all rows."""
    codes, levels = site.rows.codes, ResolutionLevels(site.rows.encoder)
    rows = np.array([site.rows.table.num_rows], dtype=np.int64)
    what = f"counts of {len(codes.columns)} columns in {levels.number} tables, and of rows"
    tables = [levels.count(codes), rows]
    moved = levels.number + (relation_of(site) is Relation.ADD_REMOVE)
    return masked_reply(request, site, tables, what, contributes=moved)


def count_rows(request: CountRows, site: Site[Part]) -> Known:
    """The number of rows, public where a row is replaced and refused elsewhere."""
    if relation_of(site) is not Relation.REPLACE_ONE:
        raise WireError(f"party {site.name!r} hides its number of rows; it is counted with noise")
    return Known(Public(site.rows.table.num_rows, "neighbours have the same number of rows"))


# A party's side of a look alone; its rows are a `Part`.
PARTY: Handlers = {Hello: hello, CountRows: count_rows, CountColumns: count_columns}


# Coordinator


def look_event(
    encoder: Encoder, relation: Relation, rho: float, parties: int, tolerated: int
) -> SharedGaussian:
    """What a look is that costs a row `rho` zCDP.

    Args:
        encoder: Columns, and the finest bins that are counted.
        relation: Which tables are neighbours.
        rho: zCDP.
        parties: How many take part.
        tolerated: Of them, how many may pool what they know with the coordinator.
    """
    levels = ResolutionLevels(encoder)
    moved = levels.number + (relation is Relation.ADD_REMOVE)  # else all rows are as many
    unit = sqrt(moved) * marginal_sensitivity(relation, norm="l2")
    cells = levels.cells + 1
    share, missed = SumNoise(unit / sqrt(2 * rho), tolerated).share(parties, cells)
    return SharedGaussian(share, parties, missed, unit, cells)


def look(
    parties: Session,
    keys: dict[str, bytes],
    encoder: Encoder,
    event: SharedGaussian,
    seed: int,
    *,
    public: bool = False,
) -> Look:
    """Count all columns, and the rows, in one masked sum.

    Args:
        parties: Who holds the rows, as `Part`.
        keys: Of all of them.
        encoder: Columns, and the finest bins.
        event: From `look_event`.
        seed: For what is drawn from the counts; public.
        public: Whether the number of rows is: one party alone holds them, and a row is replaced.

    Raises:
        WireError: A party sent words that are no part of this sum; names it.
    """
    request = CountColumns(keys, event.share_sigma, event.tolerated)
    counts, rows = noisy_sums(parties, request, [(event.dimension - 1,), (1,)])
    found = max(1, int(rows[0]))
    if public:
        (name,), (known,) = parties.roster, parties.ask(CountRows())
        found = max(1, CheckedReply(name).number("rows", known.rows.value, least=0, most=MOST_ROWS))
    return Look(encoder, counts.astype(np.int64), event.sigma_total, found, seed)


def look_for_cuts(
    parties: Session, fine: Encoder, bins: int, event: SharedGaussian, seed: int
) -> dict[str, Cuts]:
    """Where to cut columns of numbers, by how their values are spread.

    Args:
        parties: Who holds the rows, as `Part`.
        fine: These columns alone, and the finest bins that are counted.
        bins: Of a column at most.
        event: From `look_event`.
        seed: Public.

    Returns:
        Of each column.

    Raises:
        SchemaError: A party codes its rows differently.
        WireError: A party sent words that are no part of this sum; names it.
    """
    counts = look(parties, meet(parties, fine.domain), fine, event, seed).columns
    return {c.name: cuts_of(c, counts[c.name], bins) for c in fine.schema.columns}
