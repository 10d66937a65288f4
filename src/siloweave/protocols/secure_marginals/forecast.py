"""What a run takes, before a row is read: messages, bytes, seconds and the error of the table.

Sizes follow from the protocol (after Beaver 1997 and Gilboa & Ishai 2014; see `secure_marginals`).

**Guarantee**: none of its own; no row is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf, pi, sqrt
from typing import NamedTuple

import numpy as np

from siloweave.core.method import (
    ErrorForecast,
    Forecast,
    QuestionCounts,
    Setup,
    same_people_note,
)
from siloweave.errors import count_of
from siloweave.federation.messages import MAX_BYTES
from siloweave.models.estimate import Measurement
from siloweave.privacy.accountants import epsilon_of_rho
from siloweave.privacy.budget import marginal_sensitivity, rho_for
from siloweave.protocols import workloads
from siloweave.protocols.accuracy import error_forecast, numbers_of, two_round_buys
from siloweave.protocols.marginals import marginal_forecast
from siloweave.protocols.secure_marginals.messages import (
    Begin,
    MeasureTables,
    ShareRows,
)
from siloweave.protocols.secure_marginals.plan import (
    ESCAPES,
    SecurePlan,
    dealt_bytes,
    fit_together,
    only_alone,
    owned_codes,
    row_bytes_of,
    slabs_of,
    wide_cliques,
)
from siloweave.protocols.two_rounds import TwoRoundSettings, design
from siloweave.statistics.marginals import closure
from siloweave.tables.codes import Clique, Domain, Encoder
from siloweave.tables.schema import Schema

# With coins of pairs up to this share of a message, they take no message of their own.
_FEW_COINS = 0.05
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

    sizes = _sizes_of(plan, setup, rows, encoder)
    parties = len(setup.roster)
    owned = owned_codes(plan, encoder.domain)
    if not owned:
        owned = _owned_alike(encoder.domain, parties)
    crossed = _sharing_bytes(owned, sizes.shared)
    crossed += 4 * (2 * sizes.dealt_coins // parties)
    # Where no queries are named, wide tables are rare.
    if synth.target is not None or synth.workload != "auto":
        crossed += sizes.wide_bytes
    if parties > 1 and not plan.opens_pairs:
        notes.append(only_alone(plan))

    to_parties: float | None = None
    if parties > 1 and plan.bound is not None:
        # A replaced row may move every release twice, and meet twice as many ends of noise.
        delta = setup.budget.delta * (1 - 2 * ESCAPES)
        to_parties = epsilon_of_rho(2 * plan.rho, delta)
        notes.append(same_people_note(to_parties))

    return replace(
        base,
        questions=_question_counts(len(slabs_of(owned, sizes.shared)), parties, sizes),
        notes=(*base.notes, *notes),
        by_rows=(ShareRows,),
        closes=True,
        error=_foreseen_error(rows, plan, encoder),
        epsilon_to_parties=to_parties,
        memory_mb=base.memory_mb + sizes.memory_mb,
        bytes_per_party=crossed,
        seconds=(base.seconds or 0.0) + sizes.seconds,
    )


class _Sizes(NamedTuple):
    """How much is shared and dealt."""

    shared: int  # rows
    masked_bytes: int  # of the rows
    coins: int  # of the pairs that are measured first
    dealt_coins: int  # with those of planned pairs
    wide_bytes: int  # dealt for tables of shifted codes
    wide_words: int  # of these tables

    @property
    def memory_mb(self) -> float:
        """Megabytes in memory at once."""
        memory = _COPIES * self.masked_bytes
        memory += _WIDE_COPIES * self.wide_bytes
        memory += _COIN_COPIES * self.coins
        return 1e-6 * memory

    @property
    def seconds(self) -> float:
        """Seconds of one core."""
        return 1e-9 * (_ROW_NS * self.masked_bytes + _WORD_NS * self.wide_words)


def _sizes_of(plan: SecurePlan, setup: Setup, rows: int, encoder: Encoder) -> _Sizes:
    """Return how much is shared and dealt, for so many rows."""
    domain = encoder.domain
    margin = plan.bound.margin if plan.bound else 0
    shared = plan.shared(rows + margin)
    cells = _crossing_cells(plan, domain, len(setup.roster))
    coins = 0
    if cells:
        coins = cells * plan.coins(plan.first_sigma).number
    # A pair of more cells than these is not worth its noise, so it is not planned.
    most_cells = shared / (plan.first_sigma * sqrt(2 / pi))
    planned_cells = _crossing_cells(plan, domain, len(setup.roster), most_cells)
    wide_bytes, wide_words = _foreseen(setup, rows, encoder, shared)
    return _Sizes(
        shared=shared,
        masked_bytes=4 * shared * sum(domain.sizes),
        coins=coins,
        dealt_coins=coins + _PAIR_COINS * planned_cells,
        wide_bytes=wide_bytes,
        wide_words=wide_words,
    )


def _question_counts(slabs: int, parties: int, sizes: _Sizes) -> QuestionCounts:
    """Count how often each party is asked each question."""
    batches = _MOST_BATCHES if parties > 1 else 1
    measured = 1 + batches
    # So many coins take one more message, each time.
    if 4 * sizes.coins > _FEW_COINS * MAX_BYTES:
        measured += 2
    return {Begin: 1, ShareRows: slabs, MeasureTables: measured}


def _sharing_bytes(owned: Sequence[tuple[int, int]], rows: int) -> int:
    """Return the bytes that sharing rows takes to and from a party, at most."""
    all_codes = sum(codes for codes, _ in owned)
    widest = max(codes for codes, _ in owned)
    row_bytes = max(map(sum, row_bytes_of(owned)))
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
        return fit_together(domain, wide_cliques(cliques), shared)

    totals = np.zeros(2, dtype=np.int64)
    for number in (len(pairs), ceil(_PLANNED * len(pairs))):
        measured: list[Measurement] = []
        for pair in pairs[:number]:
            # Of rows that are spread evenly, as nothing is known of them yet.
            mean_count = rows / domain.size(pair)
            counts = np.full(domain.shape(pair), mean_count)
            measured.append(Measurement(pair, counts, sigma))
        tables = design(domain, queries, measured, planned_rho, synth, fits)
        dealt = dealt_bytes(domain, wide_cliques(tables), shared)
        totals += np.array(dealt) // 2
    size, words = totals.tolist()
    return size, words
