"""Methods that answer a workload of marginals share settings, a party's rows, and a forecast.

Sizes in a forecast follow the methods' own formulas (McKenna, Mullins, Sheldon & Miklau 2022,
AIM, section 5; Maddock, Cormode & Maple 2024, FLAIM, section 4.3); the other figures are rough.

**Guarantee**: none of its own. What is learned before a method states its own (schema.py,
histograms.py), and all is paid from one budget; a forecast reads no row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from statistics import median
from typing import Any, ClassVar, cast

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
from siloweave.errors import InputError, RosterError, count_of, number, whole
from siloweave.federation.session import Session
from siloweave.models.junction_tree import cells_in
from siloweave.models.mrf import MRF
from siloweave.privacy.budget import marginal_sensitivity, rho_for
from siloweave.protocols import workloads
from siloweave.protocols.accuracy import Bought, error_forecast
from siloweave.protocols.histograms import BINS, columns_to_cut
from siloweave.protocols.schema import LEARNING, coded_part, open_facts
from siloweave.protocols.secure_sums import unpacked, with_dropouts
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
_PLAN_S_PER_QUERY = 0.02
# Of a party's choice in a round.
_CHOICE_S = 2.5e-3
_CHOICE_S_PER_QUERY = 5e-5
_CHOICE_S_PER_CELL = 1.5e-8
_GROWS = 1000.0  # epsilon x rows, from which a model of planned tables grows large
_GROWN = 1000.0  # cells of a large tree to those of queries
_SMALL = 20.0  # and of a small one
_NAME_BYTES = 45  # of a query by name
_KEY_BYTES = 48  # of a key in a cohort


@dataclass(frozen=True)
class MarginalSettings:
    """The settings of every synthesizer that answers a workload of marginals.

    Attributes:
        degree: Columns in a query, instead of what "auto" chooses. A set that does not fit into
            `max_model_mb` is not asked.
        queries: So many random sets of `degree` columns instead of all. `degree=3, queries=64`
            is the published benchmark's setting.
        workload: Sets of columns whose joint distribution is to be right; each must fit. "auto" is
            every pair, and triples that contain the `target`. AIM also measures triples of columns
            with two codes each, and with a `target` sets of four such columns; TwoRound and its
            like measure triples that lower the expected error.
        target: A column that is to be predicted from the others.
        bins: Bins of a column of numbers, at most. None: as many as rows, budget and columns make
            useful (workload.py, `bins_for`), and one for each value where there are at most twice
            as many values. Where columns are not cut: 16.
        counts_share: Share of the budget for a noisy histogram of columns of numbers that are in a
            query and have more values than bins, by which they are cut (histograms.py); 0 cuts
            them equally wide, and so does an `Encoder` instead of a schema.
        max_model_mb: Bound on the junction tree, at 8 bytes a cell.

    Raises:
        InputError: One of these is no number, or out of bounds.
    """

    degree: int | None = None
    queries: int | None = None
    workload: workloads.Workload = "auto"
    target: str | None = None
    bins: int | None = None
    counts_share: float = 0.2
    max_model_mb: float = 80.0

    triples: ClassVar[bool] = False  # whether triples are candidates without a target
    # Columns of a relation with the target that is seen where no fewer columns show it.
    hidden_columns: ClassVar[int] = 2

    @property
    def chooses(self) -> bool:
        """Whether the method, the domain and the target choose the workload, and not the user."""
        return self.workload == "auto" and self.degree is self.queries is None

    def __post_init__(self) -> None:
        for name in (
            "degree",
            "bins",
            "queries",
            "plan_sweeps",
            "sweeps",
            "final_sweeps",
        ):
            if getattr(self, name, None) is not None:
                whole(name, getattr(self, name), 1)
        whole("tolerated", getattr(self, "tolerated", 1), 1)
        whole("dropouts", getattr(self, "dropouts", 0), 0)
        for name in ("shrinkage", "plan_shrinkage"):
            number(name, getattr(self, name, 0), 0, inf, "[)")
        workload: Any = self.workload
        if workload is None or (isinstance(workload, str) and workload != "auto"):
            raise InputError(
                f'workload={workload!r} must be "auto" or a list of sets of columns, such as '
                '[("age", "income")]'
            )
        number("counts_share", self.counts_share, 0, 0.9)
        number("max_model_mb", self.max_model_mb, 0, inf, "()")


def encoder_of(setup: Setup) -> Encoder:
    """Return the encoder of rows: the study's, one with columns as they were cut, or equal bins."""
    return setup.encoder or workloads.first_encoder(setup.schema, setup.synth)


def coded(part: Table | Codes | Unread, setup: Setup, party: str) -> CountedRows:
    """Encode a party's rows, or return what counts them where they are."""
    encoder = encoder_of(setup)
    if isinstance(part, Codes):
        return part
    if not isinstance(part, Database):
        return coded_part(part, encoder)

    # A database counts what is surely asked at once. Triples that a method chooses itself are
    # mostly never asked, and would be many.
    synth: Any = setup.synth
    queries = workloads.queries_of(synth, encoder)
    planned = [query for query in queries if len(query) < 3 or not synth.chooses]
    rows = counted(part, encoder, closure(planned, encoder.domain))
    moved = without_others(rows.moved, encoder.schema)
    if moved:
        note = moved_note(moved, encoder.schema, part.num_rows)
        warnings.warn(f"{party}: {note}", stacklevel=2)
    return rows


def marginal_facts(setup: Setup) -> Mapping[str, Any]:
    """Return the settings that every party is given, see `Terms`.

    Among them is what `weights_of` needs.
    """
    encoder = encoder_of(setup)
    synth = cast(Any, setup.synth)
    # A triple weighs as a pair of it.
    heaviest = 2 if synth.triples and synth.chooses else 0
    return {
        **asdict(setup.synth),
        # No setting of a method that decides itself what is counted.
        "max_model_mb": synth.max_model_mb,
        "workload": tuple(workloads.queries_of(synth, encoder)),
        "heaviest": heaviest,
        "more_candidates": tuple(workloads.more_candidates(synth, encoder.domain)),
    }


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
    synth = cast(Any, setup.synth)
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


def _bins_used(synth: Any, encoder: Encoder) -> int | dict[str, int]:
    """Return the number of bins in the settings, or the number into which each column was cut."""
    if synth.bins is None and encoder.cuts:
        return {name: len(cuts.starts) + 1 for name, cuts in encoder.cuts.items()}
    return int(synth.bins or workloads.COARSE)


# Forecasts


def cuts_columns(setup: Setup) -> bool:
    """Return whether columns are counted first, so that they can be cut into bins."""
    synth: Any = setup.synth
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
        synth: Any = setup.synth
        # What is counted: all queries, and every set of columns inside one.
        encoder = setup.encoder or workloads.first_encoder(guessed(setup), synth)
        fine = None
        if synth.counts_share:
            fine = columns_to_cut(encoder, workloads.queries_of(synth, encoder))
        encoder, bins_notes = _foreseen(setup, rows, encoder, fine)
        domain = encoder.domain
        limit = synth.max_model_mb
        parties = len(setup.roster)
        queries = workloads.queries_of(synth, encoder)
        below = closure(queries, domain)
        cells = sum(domain.size(clique) for clique in below)
        one_ways = sum(domain.sizes)
        pairs = [domain.size(clique) for clique in below if len(clique) == 2] or [0]

        # What a party sends and is sent in all rounds that it joins.
        rounds, joined = rounds_of(setup, rows, domain)
        answers = joined * parties
        cohort = max(1.0, answers / rounds)
        chosen = sum(pairs) if all_pairs else median(pairs) * min(cohort, 3.0)
        # Skew, model.
        shipped = 0.0 if all_pairs else 8 * one_ways + 4 * (one_ways + chosen)
        shipped += _NAME_BYTES * len(below) + 2 * _KEY_BYTES * cohort
        histogram_bytes = 4 * ResolutionLevels(fine).cells if fine else 0
        round_bytes = 4 * (one_ways + chosen) + shipped

        # The model, and how long it takes to fit.
        growth = _GROWN if rows * setup.budget.epsilon >= _GROWS else _SMALL
        most: float = growth * cells if all_pairs else cells
        if grown:
            most = grown(setup, domain, queries, answers)
        tree = min(cells_in(limit), domain.size(), most)
        fitted = tree if all_pairs or (grown and most < inf) else 0.0
        work = _work(
            all_pairs, rounds, answers, len(below), cells, fitted, len(domain.names)
        )

        error = None
        if buys is not None and rows > 1:
            error = error_forecast(
                encoder.schema, domain, rows, buys(setup, rows, domain)
            )
        result = Forecast(
            questions_of(setup, len(domain.names)),
            _BASE_MB + _TREE_COPIES * 8e-6 * tree + 0.05 * parties,
            histogram_bytes + int(joined * round_bytes),
            _START_S + _PARTY_S * parties + _REPORT_S_PER_PAIR * len(pairs) + work,
            setup.budget.epsilon,
            domain.size(),
            len(queries),
            cells,
            max(queries, key=domain.size),
            (*_left_out(synth, domain, limit), *bins_notes, *_triples(synth, domain)),
            waits(synth),
            error=error,
            warnings=tuple(workloads.unseen_relations(synth, domain)),
        )
        if hasattr(synth, "dropouts"):
            return with_dropouts(result, synth, parties, cohort)
        return result

    return forecast


def _foreseen(
    setup: Setup, rows: int, encoder: Encoder, fine: Encoder | None
) -> tuple[Encoder, tuple[str, ...]]:
    """Return the encoder once columns are cut for the guessed number of rows, and a note."""
    synth: Any = setup.synth
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


def _triples(synth: Any, domain: Domain) -> Iterator[str]:
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


def _left_out(synth: Any, domain: Domain, limit: float) -> Iterator[str]:
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


def _work(
    all_pairs: bool,
    rounds: float,
    answers: float,
    queries: int,
    cells: int,
    tree: float,
    columns: int,
) -> float:
    """Return the seconds that the rounds will take."""
    if all_pairs:
        planning = _PLAN_S_PER_QUERY * queries
        return _TREE_S_PER_CELL * tree + planning + answers * 2e-8 * cells
    choice = _CHOICE_S + _CHOICE_S_PER_QUERY * queries + _CHOICE_S_PER_CELL * cells
    fits = rounds * _ROUND_S_PER_CELL * min(cells, 2e5) + _TREE_S_PER_CELL * tree
    layouts: float = rounds * queries * (_LAYOUT_S + _LAYOUT_S_GROWTH * columns**2.5)
    return fits + layouts + answers * choice


def rho_of_rounds(setup: Setup) -> float:
    """Return the zCDP that remains for rounds, in units of a marginal's sensitivity.

    Bins and open facts have their shares before.
    """
    synth: Any = setup.synth
    unit = marginal_sensitivity(setup.budget.neighbours, norm="l2")
    rho = rho_for(setup.budget) / unit**2 * (1 - setup.learn)
    return rho * (1 - synth.counts_share) if cuts_columns(setup) else rho


def guessed(setup: Setup) -> Schema:
    """Return the schema, in which the columns whose facts are learned fill all their bins."""
    if not setup.learn:
        return setup.schema
    synth: Any = setup.synth
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
