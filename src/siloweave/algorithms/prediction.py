"""What a run will take, from the schema alone.

**Guarantee**: reads no row. Sizes follow the algorithms' own formulas (McKenna et al. 2022, section
5; Maddock, Cormode & Maple 2024, section 4.3); the other figures are rough.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from siloweave.algorithms.agree_schema import open_facts
from siloweave.algorithms.preparing import columns_to_cut
from siloweave.algorithms.synthesizers import MarginalSynthesizer
from siloweave.algorithms.workload import too_large
from siloweave.privacy.budget import Budget
from siloweave.statistics.marginals import closure
from siloweave.tables.codes import Domain, Encoder
from siloweave.tables.levels import ResolutionLevels
from siloweave.tables.schema import Column, Schema

__all__ = ["Prediction", "predict"]

# Fitted to runs on Adult with 1, 4 and 100 parties, 32 bins and 64 queries of 3 columns, on one
# core that had nothing else to do; docs/concepts/predictions.md compares them.
_BASE_MB, _TREE_COPIES = 230.0, 8.0  # interpreter and libraries; arrays as large as the model
_START_S, _PARTY_S = 6.0, 0.03  # libraries, sampling, report; files of a party
_ROUND_S_PER_CELL = 2e-6  # of a round's fit, up to 200,000 cells
_TREE_S_PER_CELL = 2.5e-6  # of one fit of a large model
_CHOICE_S, _CHOICE_S_PER_QUERY, _CHOICE_S_PER_CELL = 5e-3, 1e-4, 2.5e-8  # of a party in a round
_NAME_BYTES, _KEY_BYTES = 45, 48  # of a query by name; of a key in a cohort


@dataclass(frozen=True)
class Prediction:
    """What a run will take.

    Attributes:
        rounds: Rounds of selection and measurement, at most.
        memory_mb: Peak, with all parties in one process, without their rows.
        bytes_per_party: Sent and received, roughly: what is chosen is not known beforehand.
        seconds: Of one core, roughly; None where that cannot be told.
        epsilon_per_party: Most that a party will have spent.
        domain_cells: Cells of the full table of all columns; None for a method without a workload,
            as the next three.
        workload_queries: Queries.
        workload_cells: Cells over the closure of the queries.
        largest_query: The query with the most cells.
        notes: How a figure was found, where that matters.
    """

    rounds: int
    memory_mb: float
    bytes_per_party: int
    seconds: float | None
    epsilon_per_party: float
    domain_cells: int | None = None
    workload_queries: int | None = None
    workload_cells: int | None = None
    largest_query: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def predict(
    synthesizer: MarginalSynthesizer,
    schema: Schema | Encoder,
    parties: int,
    budget: Budget,
    learn: float = 0.0,
) -> Prediction:
    """Predict a run before a row is read.

    Args:
        synthesizer: What will run.
        schema: Public facts about the columns.
        parties: Size of the roster.
        budget: What a row may cost.
        learn: Share of it for facts that the schema leaves open.

    Raises:
        CapacityError: if a query does not fit, naming its columns and cells.
    """
    if learn and isinstance(schema, Schema):
        schema = _guessed(schema, synthesizer.bins)
    encoder = schema if isinstance(schema, Encoder) else Encoder(schema, synthesizer.bins)
    domain = encoder.domain
    limit = float(synthesizer.algorithm().max_model_mb)
    queries = synthesizer.queries_over(domain)
    below = closure(queries, domain)
    cells = sum(domain.size(q) for q in below)
    pairs = [domain.size(q) for q in below if len(q) == 2] or [0]
    rounds, joined = synthesizer.rounds_of(len(domain.names))
    looks = synthesizer.looks
    heard = max(1.0, joined * parties / rounds)
    one_ways = sum(domain.sizes)
    chosen = sum(pairs) if looks else median(pairs) * min(heard, 3.0)
    shipped = 0.0 if looks else 8 * one_ways + 4 * (one_ways + chosen)  # skew, model
    shipped += _NAME_BYTES * len(below) + 2 * _KEY_BYTES * heard
    fine = columns_to_cut(encoder, queries) if synthesizer.counts_share else None
    looked = 4 * ResolutionLevels(fine).cells if fine else 0
    tree = min(limit * 1e6 / 8, domain.size(), (20 if looks else 1) * cells)
    return Prediction(
        rounds,
        _BASE_MB + _TREE_COPIES * 8e-6 * tree + 0.05 * parties,
        looked + int(joined * (4 * (one_ways + chosen) + shipped)),
        _START_S
        + _PARTY_S * parties
        + _work(looks, rounds, joined * parties, len(below), cells, tree),
        budget.epsilon,
        domain.size(),
        len(queries),
        cells,
        max(queries, key=domain.size),
        _left_out(synthesizer, domain, limit),
    )


def _left_out(synthesizer: MarginalSynthesizer, domain: Domain, limit: float) -> tuple[str, ...]:
    """A note on sets of columns that the default workload leaves out."""
    if synthesizer.workload is not None or synthesizer.queries is not None:
        return ()
    count = too_large(domain, synthesizer.degree, limit)
    if not count:
        return ()
    note = (
        f"{count} sets of {synthesizer.degree} columns do not fit into {limit:g} MB and are left "
        "out of the workload; use fewer bins or raise max_model_mb to have them"
    )
    return (note,)


def _work(looks: bool, rounds: int, answers: float, queries: int, cells: int, tree: float) -> float:
    """Seconds that the rounds take."""
    if looks:
        return _TREE_S_PER_CELL * tree + answers * 2e-8 * cells
    choice = _CHOICE_S + _CHOICE_S_PER_QUERY * queries + _CHOICE_S_PER_CELL * cells
    return rounds * _ROUND_S_PER_CELL * min(cells, 2e5) + answers * choice


def _guessed(schema: Schema, bins: int) -> Schema:
    """A column of which facts are open is taken to fill its bins."""
    still_open = open_facts(schema)
    columns = [
        Column(c.name, "integer", low=0, high=bins - 1, missing=c.missing)
        if c.name in still_open
        else c
        for c in schema.columns
    ]
    return Schema(tuple(columns))
