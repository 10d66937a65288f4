"""Methods that answer a workload of marginals share a party's rows, a result, and a forecast.

Sizes in a forecast follow the methods' own formulas (McKenna, Mullins, Sheldon & Miklau 2022,
AIM, section 5; Maddock, Cormode & Maple 2024, FLAIM, section 4.3); the other figures are rough.

**Guarantee**: none of its own. What is learned before a method states its own (schema.py,
histograms.py), and all is paid from one budget; a forecast reads no row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from math import inf
from statistics import median
from typing import Any

from siloweave.core import views
from siloweave.core.method import (
    Forecast,
    Guarantee,
    Method,
    QuestionCounts,
    Result,
    Setup,
    Task,
)
from siloweave.core.model import MarginalModel, Measured
from siloweave.core.views import View
from siloweave.errors import RosterError, count_of
from siloweave.federation.session import Session
from siloweave.models.junction_tree import cells_in
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import marginal_sensitivity, rho_for
from siloweave.protocols import workloads
from siloweave.protocols.accuracy import Bought, error_forecast
from siloweave.protocols.histograms import BINS, columns_to_cut
from siloweave.protocols.schema import LEARNING, coded_part, open_facts
from siloweave.protocols.secure_sums import unpacked, with_dropouts
from siloweave.protocols.workloads import MarginalSettings
from siloweave.statistics.marginals import closure
from siloweave.tables.bins import bin_count
from siloweave.tables.codes import (
    Clique,
    Codes,
    CountedRows,
    Domain,
    Encoder,
    ResolutionLevels,
)
from siloweave.tables.column import Column
from siloweave.tables.counted import counted
from siloweave.tables.database import Database
from siloweave.tables.moved import moved_note, without_others
from siloweave.tables.read import Unread
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table

# Fitted to runs with 1 to 100 parties and the defaults on Adult and six other tables, on one core;
# docs/concepts/predictions.md compares them.
_BASE_MB = 230.0  # interpreter and libraries
_TREE_COPIES = 8.0  # arrays as large as the model
_START_S = 6.0  # libraries, sampling, report
_PARTY_S = 0.03  # files of a party
_REPORT_S_PER_PAIR = 7e-4  # of the report, which compares all pairs
# Of a round, for each query: the model with that query is laid out, by as many steps as there are
# columns, each of which looks at all of them. From 60, 120 and 300 columns.
_LAYOUT_S = 1e-5
_LAYOUT_S_GROWTH = 9e-10
_ROUND_S_PER_CELL = 5e-7  # of a round's fit, up to 200,000 cells
_TREE_S_PER_CELL = 1.5e-6  # of one fit of a large model
_PLAN_S_PER_QUERY = 0.006  # from 60, 120 and 300 columns
# Of a party's choice in a round.
_CHOICE_S = 2.5e-3
_CHOICE_S_PER_QUERY = 5e-5
_CHOICE_S_PER_CELL = 1.5e-8
_GROWS = 1000.0  # epsilon x rows, from which a model of planned tables grows large
_GROWN = 1000.0  # cells of a large tree to those of queries
_SMALL = 20.0  # and of a small one
_NAME_BYTES = 45  # of a query by name
_KEY_BYTES = 48  # of a key in a cohort


def encoder_of(setup: Setup) -> Encoder:
    """Return the encoder of rows: the study's, one with columns as they were cut, or equal bins."""
    if setup.encoder is not None:
        return setup.encoder
    synth = setup.settings_as(MarginalSettings)
    return workloads.first_encoder(setup.schema, synth)


def coded(part: Table | Codes | Unread, setup: Setup, party: str) -> CountedRows:
    """Encode a party's rows, or return what counts them where they are."""
    encoder = encoder_of(setup)
    if isinstance(part, Codes):
        return part
    if not isinstance(part, Database):
        return coded_part(part, encoder)

    # A database counts what is surely asked at once. Triples that a method chooses itself are
    # mostly never asked, and would be many.
    synth = setup.settings_as(MarginalSettings)
    queries = workloads.queries_of(synth, encoder)
    planned = [query for query in queries if len(query) < 3 or not synth.chooses]
    rows = counted(part, encoder, closure(planned, encoder.domain))
    moved = without_others(rows.moved, encoder.schema)
    if moved:
        note = moved_note(moved, encoder.schema, part.num_rows, setup.show_misfits)
        warnings.warn(f"{party}: {note}", stacklevel=2)
    return rows


def marginal_facts(setup: Setup) -> Mapping[str, Any]:
    """Return the settings that every party is given, and the workload that they stand for."""
    encoder = encoder_of(setup)
    synth = setup.settings_as(MarginalSettings)
    # A triple weighs as a pair of it.
    heaviest = 2 if synth.triples and synth.chooses else 0
    workload = workloads.StudyWorkload(
        tuple(workloads.queries_of(synth, encoder)),
        synth.max_model_mb,
        heaviest,
        tuple(workloads.more_candidates(synth, encoder.domain)),
    )
    return {**asdict(synth), "workload": workload}


marginal_method = partial(
    Method,
    family="graphical model",
    before=(LEARNING, BINS),
    counts=True,
    prepare=coded,
    facts=marginal_facts,
    load=MarginalModel.load,
    phase="rounds with the parties",
)
"""A `Method` of marginals: open facts of the schema are learned first, then bins."""


def curator_method(*answers: str, **settings: Any) -> Method:
    """Build a `Method` of marginals at one curator.

    Args:
        answers: What it answers that readers may see, as its counts.
        settings: Of the `Method`.
    """
    readers = View(
        "readers",
        views.READERS.sees,
        views.READERS.protected_by,
        ("Counts.sums", *answers),
    )
    return marginal_method(
        split="central",
        trust="curator",
        guarantee=lambda synth: Guarantee(
            "dp",
            "Every row, against readers of the model and the table; the curator sees all rows.",
        ),
        visibility=lambda synth: (views.CURATOR, readers),
        **settings,
    )


def require_curator(session: Session, title: str) -> None:
    """Refuse a roster of several parties."""
    if len(session.roster) != 1:
        raise RosterError(
            f"{title} runs at one curator; the roster has {len(session.roster)} parties. Use "
            "TwoRound or FLAIM"
        )


def marginal_result(
    algorithm: Callable[..., tuple[MRF, list[Measured]]],
    session: Session,
    task: Task,
    **more: Any,
) -> Result:
    """Run an algorithm of marginals over the parties, and build the result from what it learned."""
    setup = task.setup
    encoder = encoder_of(setup)
    synth = setup.settings_as(MarginalSettings)
    queries = workloads.queries_of(synth, encoder)
    mrf, measured = algorithm(
        session, encoder.domain, queries, task.rho, synth,
        unit=marginal_sensitivity(setup.budget.neighbours, norm="l2"),
        progress=task.progress, **more,
    )  # fmt: skip

    # A party in this process would keep the last model that it was sent, with all its tables.
    unpacked.cache_clear()
    if synth.chooses:
        met: set[Clique] = set()
        for measurement in measured:
            met.update(measurement.cliques)
        candidates = workloads.more_candidates(synth, encoder.domain)
        queries += [clique for clique in candidates if clique in met]
    model = MarginalModel(mrf, encoder, tuple(measured), tuple(queries))

    counts_share = synth.counts_share if encoder.cuts else 0.0
    bins = _bins_used(synth, encoder)
    facts = {"queries": len(queries), "counts_share": counts_share, "bins": bins}
    refused = workloads.refused_triples(synth, encoder.domain)
    if refused:
        facts["triples_left_out"] = refused
    return Result(model, facts=facts)


def _bins_used(synth: MarginalSettings, encoder: Encoder) -> int | dict[str, int]:
    """Return the number of bins in the settings, or the number into which each column was cut."""
    if synth.bins is None and encoder.cuts:
        return {name: len(cuts.starts) + 1 for name, cuts in encoder.cuts.items()}
    return int(synth.bins or workloads.COARSE)


# Forecasts


def cuts_columns(setup: Setup) -> bool:
    """Return whether columns are counted first, so that they can be cut into bins."""
    synth = setup.settings_as(MarginalSettings)
    if not synth.counts_share or setup.encoder is not None:
        return False
    encoder = workloads.first_encoder(guessed(setup), synth)
    return columns_to_cut(encoder, workloads.queries_of(synth, encoder)) is not None


def marginal_forecast(
    rounds_of: Callable[[Setup, int, Domain], tuple[float, float]],
    questions_of: Callable[[Setup, int], QuestionCounts],
    *,
    waits: Callable[[Any], int] = lambda synth: 0,
    all_pairs: bool = False,
    grown: Callable[[Setup, Domain, Sequence[Clique], float], float] | None = None,
    buys: Callable[[Setup, int, Domain], Bought] | None = None,
) -> Callable[[Setup, int], Forecast]:
    """Forecast the rounds, time and error of a method of marginals.

    Args:
        rounds_of: Rounds, and in how many of them a party may join, from setup, rows and domain;
            for the time and the bytes that they take.
        questions_of: How often a party is asked each question at most, from setup and number of
            columns.
        waits: See `Forecast`.
        all_pairs: Whether it measures all pairs first, and some of them again.
        grown: Cells of its model, from setup, domain, queries and how many answers all parties
            give; else those of the queries, or more of them where all pairs are measured.
        buys: What the budget buys, from setup, rows and domain, for the forecast of error; None
            where that is not known.

    Raises:
        CapacityError: By the forecast, of a query that does not fit.
    """

    def forecast(setup: Setup, rows: int) -> Forecast:
        synth = setup.settings_as(MarginalSettings)
        tables = _tables_of(setup, rows)
        domain = tables.domain
        limit = synth.max_model_mb
        rounds, joined = rounds_of(setup, rows, domain)
        answers = joined * len(setup.roster)
        cohort = max(1.0, answers / rounds)

        # Cells of the model; its fits take long where what is chosen makes a large tree.
        most: float = tables.cells
        is_large = False
        if grown is not None:
            most = grown(setup, domain, tables.queries, answers)
            is_large = most < inf
        elif all_pairs:
            is_rich = rows * setup.budget.epsilon >= _GROWS
            most *= _GROWN if is_rich else _SMALL
        tree = min(cells_in(limit), domain.size(), most)
        if all_pairs:
            work = _planning_s(tables, answers, tree)
        else:
            large_tree = tree if is_large else 0.0
            work = _rounds_s(tables, rounds, answers, large_tree)

        error = None
        if buys is not None and rows > 1:
            bought = buys(setup, rows, domain)
            error = error_forecast(tables.encoder.schema, domain, rows, bought)
        party_s = _PARTY_S * len(setup.roster)
        report_s = _REPORT_S_PER_PAIR * len(tables.pair_cells)
        result = Forecast(
            questions_of(setup, len(domain.names)),
            memory_mb=_BASE_MB + _TREE_COPIES * 8e-6 * tree + 0.05 * len(setup.roster),
            bytes_per_party=_party_bytes(tables, joined, cohort, all_pairs=all_pairs),
            seconds=_START_S + party_s + report_s + work,
            epsilon_per_party=setup.budget.epsilon,
            domain_cells=domain.size(),
            workload_queries=len(tables.queries),
            workload_cells=tables.cells,
            largest_query=max(tables.queries, key=domain.size),
            notes=(
                *_left_out(synth, domain, limit),
                *tables.notes,
                *_triples(synth, domain),
            ),
            waits=waits(synth),
            error=error,
            warnings=tuple(workloads.unseen_relations(synth, domain)),
        )
        return with_dropouts(result, setup, cohort)

    return forecast


@dataclass(frozen=True)
class _Tables:
    """The tables that a run counts, as they are foreseen."""

    encoder: Encoder
    fine: Encoder | None  # of columns whose fine bins are counted first, to be cut
    queries: Sequence[Clique]
    closure: Sequence[Clique]  # all queries, and every set of columns inside one
    notes: tuple[str, ...]

    @property
    def domain(self) -> Domain:
        """Columns, coded as they will be."""
        return self.encoder.domain

    @cached_property
    def sizes(self) -> list[int]:
        """The cells of each table."""
        return [self.domain.size(clique) for clique in self.closure]

    @cached_property
    def cells(self) -> int:
        """The cells of all tables."""
        return sum(self.sizes)

    @cached_property
    def pair_cells(self) -> list[int]:
        """The cells of each pair of columns; 0 alone where no pair is counted."""
        tables = zip(self.closure, self.sizes, strict=True)
        return [size for clique, size in tables if len(clique) == 2] or [0]


def _tables_of(setup: Setup, rows: int) -> _Tables:
    """Return what a run counts, once columns are cut for the guessed number of rows."""
    synth = setup.settings_as(MarginalSettings)
    encoder = setup.encoder or workloads.first_encoder(guessed(setup), synth)
    fine = None
    if synth.counts_share:
        fine = columns_to_cut(encoder, workloads.queries_of(synth, encoder))
    encoder, notes = _foreseen(setup, rows, encoder, fine)
    queries = workloads.queries_of(synth, encoder)
    cliques = list(closure(queries, encoder.domain))
    return _Tables(encoder, fine, queries, cliques, notes)


def _party_bytes(
    tables: _Tables, joined: float, cohort: float, *, all_pairs: bool
) -> int:
    """Return the bytes that a party sends and is sent in all rounds that it joins."""
    one_ways = sum(tables.domain.sizes)
    if all_pairs:
        chosen: float = sum(tables.pair_cells)
        shipped = 0.0
    else:
        chosen = median(tables.pair_cells) * min(cohort, 3.0)
        # Skew, model.
        shipped = 8 * one_ways + 4 * (one_ways + chosen)
    shipped += _NAME_BYTES * len(tables.closure) + 2 * _KEY_BYTES * cohort
    histogram_bytes = 0
    if tables.fine is not None:
        histogram_bytes = 4 * ResolutionLevels(tables.fine).cells
    return histogram_bytes + int(joined * (4 * (one_ways + chosen) + shipped))


def _planning_s(tables: _Tables, answers: float, tree: float) -> float:
    """Return the seconds of a method that measures all pairs, and plans by them."""
    planning = _PLAN_S_PER_QUERY * len(tables.closure)
    return _TREE_S_PER_CELL * tree + planning + answers * 2e-8 * tables.cells


def _rounds_s(tables: _Tables, rounds: float, answers: float, tree: float) -> float:
    """Return the seconds of rounds in which parties choose; `tree` is 0 for a small model."""
    queries = len(tables.closure)
    choice = (
        _CHOICE_S + _CHOICE_S_PER_QUERY * queries + _CHOICE_S_PER_CELL * tables.cells
    )
    fits = rounds * _ROUND_S_PER_CELL * min(tables.cells, 2e5) + _TREE_S_PER_CELL * tree
    layout = _LAYOUT_S + _LAYOUT_S_GROWTH * len(tables.domain.names) ** 2.5
    layouts: float = rounds * queries * layout
    return fits + layouts + answers * choice


def _foreseen(
    setup: Setup, rows: int, encoder: Encoder, fine: Encoder | None
) -> tuple[Encoder, tuple[str, ...]]:
    """Return the encoder once columns are cut for the guessed number of rows, and a note."""
    synth = setup.settings_as(MarginalSettings)
    if fine is None or synth.bins is not None:
        return encoder, ()
    unit = marginal_sensitivity(setup.budget.neighbours, norm="l2")
    bins = workloads.bins_for(encoder.schema, rows, rho_for(setup.budget) / unit**2)
    sizes = {column.name: bin_count(column, bins) for column in fine.schema.columns}
    note = (
        f"{count_of(len(sizes), 'column of numbers is', 'columns of numbers are')} cut into about "
        f"{bins} bins{' each' * (len(sizes) > 1)}; a column with at most {2 * bins} values keeps a "
        f"bin for each. With about {rows:,} rows at epsilon = {setup.budget.epsilon:g}, more "
        "bins would drown in the noise. The run counts rows with noise first, and may choose "
        f"otherwise: to decide it now, set bins = {bins} in [method]"
    )
    return replace(encoder, bins_per_column=sizes), (note,)


def _triples(synth: MarginalSettings, domain: Domain) -> Iterator[str]:
    """Yield a note on the sets of columns in the workload beside all pairs."""
    refused = workloads.refused_triples(synth, domain)
    if synth.chooses and synth.target is not None:
        fours = workloads.fours_with_target(synth, domain)
        more = ""
        if fours:
            more = f"; {len(fours):,} sets of four with it are candidates, too"
        yield f"the workload is all pairs, and the triples with {synth.target!r}, the target{more}"
    elif refused:
        yield (
            f"the workload is all pairs; the {refused:,} triples of columns with two codes each "
            f"are no candidates, since they are more than {workloads.MOST_TRIPLES:,}: name a "
            "target, or list those that matter as the workload"
        )
    elif synth.chooses and synth.triples:
        yield (
            "the workload is all pairs; a triple is a candidate where its columns have two codes "
            "each, since it then measures three pairs for little more than the price of one; other "
            "relations of three columns or more are not measured: name a target for those with it"
        )


def _left_out(synth: MarginalSettings, domain: Domain, limit: float) -> Iterator[str]:
    """Yield a note on sets of columns that the default workload leaves out."""
    if synth.workload != "auto" or synth.queries is not None:
        return
    degree = synth.degree or 2
    large = workloads.too_large(domain, degree, limit)
    if large:
        sets = count_of(
            large, f"set of {degree} columns is", f"sets of {degree} columns are"
        )
        yield (
            f"{sets} not in the workload, for which {limit:g} MB have no room; use fewer bins or "
            "raise max_model_mb to have them"
        )


def rho_of_rounds(setup: Setup) -> float:
    """Return the zCDP that remains for rounds, in units of a marginal's sensitivity.

    Bins and open facts have their shares before.
    """
    synth = setup.settings_as(MarginalSettings)
    unit = marginal_sensitivity(setup.budget.neighbours, norm="l2")
    rho = rho_for(setup.budget) / unit**2 * (1 - setup.learn)
    return rho * (1 - synth.counts_share) if cuts_columns(setup) else rho


def guessed(setup: Setup) -> Schema:
    """Return the schema, in which the columns whose facts are learned fill all their bins."""
    if not setup.learn:
        return setup.schema
    synth = setup.settings_as(MarginalSettings)
    learned = open_facts(setup.schema)
    highest = (synth.bins or workloads.COARSE) - 1
    columns: list[Column] = []
    for column in setup.schema.columns:
        if column.name in learned:
            column = Column(
                column.name,
                "integer",
                low=0,
                high=highest,
                missing=column.missing,
                fallback=0,
            )
        columns.append(column)
    return Schema(tuple(columns))
