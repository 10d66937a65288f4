"""One noisy histogram of single columns, and what follows from it: encoders, frequencies, bins.

Counts of all columns are released in one masked sum, before anything is learned of several columns
(Dwork, McSherry, Nissim & Smith 2006, "Calibrating noise to sensitivity in private data analysis").
Counts at several resolution levels follow Hay, Rastogi, Miklau & Suciu 2010, "Boosting the accuracy
of differentially private histograms through consistency" (tables/codes.py says what is ours); sums
that nobody sees in the clear are Bonawitz et al.'s (2017), with noise in shares (Kairouz, Liu &
Steinke 2021). Private networks take their encoders from it (methods/dp_sgd). AIM, FLAIM and
TwoRound cut columns of numbers into bins by it (tables/bins.py).

**Guarantee** (dp): rows, add/remove or replace-one as each party's budget says, towards the
coordinator together with at most `tolerated` parties, and everyone who sees what follows from the
counts. A row is in one cell of every table and in the count of rows, which only changes where a row
is added or removed: the party computes the sensitivity itself, and its ledger is charged before
noise is drawn. Where a row is replaced, one party alone says how many rows it has. All else here is
a function of those counts, of the public schema and of a public seed (post-processing). Assumed
public: schema, bins and roster.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from siloweave.core.method import Setup, Stage, Task
from siloweave.errors import SchemaError, WireError
from siloweave.federation.expected import MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, Site
from siloweave.privacy.budget import Neighbours, marginal_sensitivity, rho_for
from siloweave.privacy.events import Gaussian, SharedGaussian
from siloweave.protocols import secure_sums, workloads
from siloweave.protocols.schema import coded_part
from siloweave.tables.arrays import Floats
from siloweave.tables.bins import Cuts, cuts_of, octave_starts, spike_bins
from siloweave.tables.codes import (
    Clique,
    Codes,
    CountedRows,
    Domain,
    Encoder,
    ResolutionLevels,
)
from siloweave.tables.column import Column
from siloweave.tables.features import Features, OneWay
from siloweave.tables.keys import fold_in, generator
from siloweave.tables.read import rows_of
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table, digest_of

# Rows of the product of the columns; shares are right to one in as many.
_DRAWN = 20_000


@dataclass(frozen=True)
class NoisyHistogram:
    """The noisy counts of every column.

    Attributes:
        encoder: Its codes are the finest bins that were counted.
        counts: Of the tables of `ResolutionLevels`, one after the other.
        sigma: Standard deviation of their noise.
        rows: How many rows there are, noisy or public; 1 or more.
        seed: For what is drawn here; public.
    """

    encoder: Encoder
    counts: npt.NDArray[np.int64]
    sigma: float
    rows: int
    seed: int

    @cached_property
    def columns(self) -> dict[str, Floats]:
        """The counts of each column's codes, none negative, which sum to the number of rows."""
        return ResolutionLevels(self.encoder).columns(
            self.counts, self.rows, self.sigma
        )

    def features(self, numeric: Any) -> Features:
        """Return encoders of all columns as feature vectors, made from the counts alone."""
        return Features.from_counts(self.encoder, self.columns, numeric=numeric)

    def shares(self, features: Features) -> dict[int, list[float]]:
        """Return how frequent each option of a categorical column is, by the start of its block."""
        X = features.encode(self.product(), key=fold_in(self.seed, "shares"))
        shares: dict[int, list[float]] = {}
        for block in features.blocks:
            if block.kind == "categorical":
                shares[block.start] = X[:, block.start : block.stop].mean(0).tolist()
        return shares

    @cached_property
    def one_way(self) -> OneWay:
        """The distribution of every single column, by these counts."""
        return OneWay.of(self.product(), self.encoder.schema)

    def product(self) -> Table:
        """Return a table whose columns have these frequencies and are independent."""
        columns: list[npt.NDArray[Any]] = []
        for name, counts in self.columns.items():
            # Rounding the cumulative counts makes the rows as many as they shall be.
            ends = np.floor(np.cumsum(counts) / counts.sum() * _DRAWN + 0.5)
            times = np.diff(np.append(0.0, ends)).astype(np.int64)
            codes = np.repeat(np.arange(len(counts)), times)
            rng = generator(fold_in(self.seed, "product", name))
            columns.append(rng.permutation(codes))
        rows = Codes(self.encoder.domain, tuple(columns))

        spikes: dict[str, Any] = {}
        for column in self.encoder.schema.coded:
            if column.is_binned:
                edges = self.encoder.edges(column.name)
                spikes[column.name] = spike_bins(
                    column, edges, self.columns[column.name]
                )
        return self.encoder.decode(
            rows, key=fold_in(self.seed, "product"), spikes=spikes
        )


# Messages


class CountColumns(secure_sums.Cohort, frozen=True, tag="bins/columns"):
    """Count your rows: with each code of every column, and in all."""


class Known(Reply, frozen=True):
    """How many rows a party has, where neighbours have equally many."""

    rows: Public[int]


class CountRows(Request[Known], frozen=True, tag="bins/rows"):
    """Send the number of your rows; asked of one party alone, where neighbours replace one."""


# Party


@dataclass(frozen=True)
class HistogramData:
    """A party's data: its rows, the public bins that are counted, and the rows in them.

    The table is without rows where these are counted and not read.
    """

    table: Table
    encoder: Encoder
    codes: CountedRows

    @property
    def domain(self) -> Domain:
        """The domain of the bins."""
        return self.codes.domain

    def digest(self) -> bytes:
        """Return a digest of the rows, by which a resumed run recognises them; see `Site`."""
        return digest_of(self.table, self.codes.digest())


def count_columns(
    request: CountColumns, site: Site[HistogramData]
) -> secure_sums.Counts:
    """Count the party's rows, by every column's code and in all.

    A row is in one cell of every table, and in the cell of all rows.
    """
    codes = site.rows.codes
    levels = ResolutionLevels(site.rows.encoder)
    rows = np.array([codes.num_rows], dtype=np.int64)
    tables = [levels.count(codes), rows]
    label = f"counts of {len(codes.domain.names)} columns in {levels.number} tables, and of rows"
    contributes = _tables_of_a_row(levels, secure_sums.neighbours_of(site))
    return secure_sums.masked_reply(
        request, site, tables, label, contributes=contributes
    )


def _tables_of_a_row(levels: ResolutionLevels, neighbours: Neighbours) -> int:
    """Return in how many tables a row counts; a replaced row leaves the number of rows alone."""
    return levels.number + (not neighbours.replaces)


def count_rows(request: CountRows, site: Site[HistogramData]) -> Known:
    """Send the number of rows, which is public where a row is replaced; refuse it elsewhere."""
    if not secure_sums.neighbours_of(site).replaces:
        raise WireError(
            f"party {site.name!r} hides its number of rows; it is counted with noise"
        )
    return Known(
        Public(site.rows.codes.num_rows, "neighbours have the same number of rows")
    )


def release_counts(
    site: Site[Any], encoder: Encoder, table: Table, event: Gaussian
) -> Released[Array]:
    """Pay for a party's own noisy counts, then draw them, in the order of `ResolutionLevels`.

    `event` is that of `counts_event` for so many tables.
    """
    levels = ResolutionLevels(encoder)
    codes = encoder.encode(table)
    label = f"counts of {len(codes.columns)} columns in {levels.number} tables"
    return secure_sums.release_noisy(site, event, label, levels.count(codes))


HANDLERS: Handlers = {
    secure_sums.KeyRequest: secure_sums.send_key,
    CountRows: count_rows,
    CountColumns: count_columns,
    **secure_sums.OPENING,
}
"""A party's side of a noisy histogram alone; its rows are a `HistogramData`."""


# Coordinator


def counts_event(neighbours: Neighbours, tables: int, sigma: float) -> Gaussian:
    """Return the event of tables that are released together.

    A row is in one cell of each table, or in none.
    """
    unit = marginal_sensitivity(neighbours, norm="l2")
    return Gaussian(sigma=sigma, sensitivity=sqrt(tables) * unit)


def histogram_event(
    encoder: Encoder,
    neighbours: Neighbours,
    rho: float,
    parties: int,
    tolerated: int,
    dropouts: int = 0,
) -> SharedGaussian:
    """Return the event of a noisy histogram that costs a unit `rho` zCDP.

    Args:
        encoder: Columns, and the finest bins that are counted.
        neighbours: Which tables are neighbours.
        rho: zCDP.
        parties: How many take part.
        tolerated: Of them, how many may pool what they know with the coordinator.
        dropouts: Of them, how many may vanish.
    """
    levels = ResolutionLevels(encoder)
    tables = _tables_of_a_row(levels, neighbours)
    unit = sqrt(tables) * marginal_sensitivity(neighbours, norm="l2")
    cells = levels.cells + 1  # and the number of rows
    noise = secure_sums.SumNoise(unit / sqrt(2 * rho), tolerated, dropouts)
    share, missing = noise.share(parties, cells)
    return SharedGaussian(share, parties, missing, unit, cells)


def noisy_histogram(
    session: Session,
    keys: dict[str, bytes],
    encoder: Encoder,
    event: SharedGaussian,
    seed: int,
    *,
    public: bool = False,
) -> NoisyHistogram:
    """Count all columns, and the rows, in one masked sum.

    Args:
        session: Who holds the rows, as `HistogramData`.
        keys: Of all of them.
        encoder: Columns, and the finest bins.
        event: From `histogram_event`.
        seed: For what is drawn from the counts; public.
        public: Whether the number of rows is: one party alone holds them, and a row is replaced.

    Raises:
        WireError: A party sent words that are no part of this sum; names it.
    """
    request = CountColumns(keys, event.share_sigma, event.tolerated)
    shapes = [(event.dimension - 1,), (1,)]
    counts, noisy_rows = secure_sums.noisy_sums(session, request, shapes).tables
    rows = int(noisy_rows[0])
    if public:
        (name,) = session.roster
        (reply,) = session.ask(CountRows())
        rows = CheckedReply(name).number(
            "rows", reply.rows.value, least=0, most=MOST_ROWS
        )
    rows = max(1, rows)
    return NoisyHistogram(
        encoder, counts.astype(np.int64), event.sigma_total, rows, seed
    )


# Bins, before a method of marginals

# Bins of a column that a histogram counts, and more where they are narrower near 0.
_FINE = 4096


def _fine_bins(columns: Sequence[Column]) -> Encoder:
    """Return the fine bins that are counted, between the columns' bounds."""
    cuts: dict[str, Cuts] = {}
    for column in columns:
        starts = octave_starts(column, _FINE)
        if starts:
            cuts[column.name] = Cuts(starts)
    return Encoder(Schema(tuple(columns)), _FINE, cuts=cuts)


def columns_to_cut(encoder: Encoder, queries: Sequence[Clique]) -> Encoder | None:
    """Return the fine bins of columns that have more values than bins; None if no column has.

    A column that no query names is not cut, nor is one whose bounds are too near for so many bins,
    or whose values are so large that float64 cannot separate the bins.

    Args:
        encoder: Of equally wide bins.
        queries: What the method is to answer.
    """
    named = set(chain.from_iterable(queries))
    wide: list[Column] = []
    for column in encoder.schema.columns:
        if column.name not in named or not column.is_binned:
            continue
        with suppress(SchemaError):
            edges = _fine_bins([column]).edges(column.name)
            apart = (np.diff(edges.astype(np.float64)) > 0).all()
            if apart and len(edges) > len(encoder.edges(column.name)) > encoder.bins:
                wide.append(column)
    return _fine_bins(wide) if wide else None


def _plan(setup: Setup) -> Setup | None:
    """Return a setup with fine bins of the columns to cut.

    None without such a column, or where the study itself says how rows are encoded.
    """
    synth = setup.settings_as(workloads.MarginalSettings)
    if setup.encoder is not None or not synth.counts_share:
        return None
    encoder = workloads.first_encoder(setup.schema, synth)
    fine = columns_to_cut(encoder, workloads.queries_of(synth, encoder))
    return None if fine is None else replace(setup, encoder=fine, stage="bins")


def _fine_of(setup: Setup) -> Encoder:
    """Return the fine bins of the columns to cut, which `_plan` gave the setup of this stage."""
    assert setup.encoder is not None
    return setup.encoder


def _share(setup: Setup) -> float:
    """Return the share of the budget that counts of single columns take."""
    synth = setup.settings_as(workloads.MarginalSettings)
    return synth.counts_share


def _prepare(table: Any, setup: Setup, party: str) -> HistogramData:
    """Return the party's rows in the columns to cut, once all rows surely fit the schema."""
    fine = _fine_of(setup)
    coded_part(table, Encoder(setup.schema))
    columns = table.select([name for name in fine.schema.names if name in table.names])
    return HistogramData(rows_of(columns, 0), fine, coded_part(columns, fine))


def _cut(session: Session, task: Task) -> tuple[dict[str, Cuts], dict[str, bytes]]:
    """Choose where to cut each column, by how its values are spread; return also the keys."""
    setup = task.setup
    fine = _fine_of(setup)
    neighbours = setup.budget.neighbours
    event = histogram_event(
        fine,
        neighbours,
        task.rho,
        len(session.roster),
        session.tolerated,
        session.dropouts,
    )
    keys = secure_sums.exchange_keys(session, fine.domain)
    histogram = noisy_histogram(session, keys, fine, event, task.seed)

    # How many bins the rows carry with the whole budget, of which this took a share.
    unit = marginal_sensitivity(neighbours, norm="l2")
    bins = workloads.bins_for(
        setup.schema, histogram.rows, rho_for(setup.budget) / unit**2
    )
    bins_of_settings = setup.settings_as(workloads.MarginalSettings).bins
    counts = histogram.columns
    cuts: dict[str, Cuts] = {}
    for column in fine.schema.columns:
        cuts[column.name] = cuts_of(
            column,
            fine.edges(column.name),
            counts[column.name],
            bins_of_settings or bins,
            exact=bins_of_settings is None,
        )
    return cuts, keys


def _refine(setup: Setup, answer: tuple[dict[str, Cuts], dict[str, bytes]]) -> Setup:
    synth = setup.settings_as(workloads.MarginalSettings)
    cuts, keys = answer
    encoder = replace(workloads.first_encoder(setup.schema, synth), cuts=cuts)
    return replace(setup, encoder=encoder, keys=keys)


def _accepts(setup: Setup, sent_setup: Setup) -> Setup:
    """Take over the cuts that the coordinator sent into a party's own setup.

    Raises:
        WireError: A column has more bins than the study says.
    """
    synth = setup.settings_as(workloads.MarginalSettings)
    sent = sent_setup.encoder
    if sent is None or setup.encoder is not None:  # a study's own encoder is not cut
        return setup
    for name, cuts in (sent.cuts or {}).items():
        if len(cuts.starts) >= workloads.most_bins(synth):
            raise WireError(
                f"column {name!r}: the coordinator cuts it into {len(cuts.starts) + 1:,} bins; by "
                f"the study these are {workloads.most_bins(synth)} at most"
            )

    # Only the cuts are taken over: all else of the encoder follows from the party's own study.
    encoder = replace(workloads.first_encoder(setup.schema, synth), cuts=sent.cuts)
    return replace(setup, encoder=encoder)


BINS = Stage(
    name="bins",
    phase="histograms of columns",
    plan=_plan,
    share=_share,
    prepare=_prepare,
    handlers=lambda synth: HANDLERS,
    coordinate=_cut,
    questions=lambda setup: secure_sums.with_openings(
        {secure_sums.KeyRequest: 1, CountColumns: 1}, setup
    ),
    refine=_refine,
    accepts=_accepts,
)
"""Columns of numbers are cut into bins by a noisy histogram."""
