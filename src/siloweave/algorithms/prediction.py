"""What a run will take, from the schema alone.

**Guarantee**: reads no row. Sizes follow the algorithms' own formulas (McKenna et al. 2022, section
5; Maddock, Cormode & Maple 2024, section 4.3); seconds are a rough figure for two cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from siloweave.algorithms.synthesizers import AIM, FLAIM, Synthesizer, TwoRound, workload_for
from siloweave.algorithms.workload import check_capacity
from siloweave.privacy.budget import Budget
from siloweave.statistics.marginals import closure
from siloweave.tables.codes import Encoder
from siloweave.tables.schema import Schema

__all__ = ["Prediction", "predict"]

_BASE_MB = 250.0  # interpreter and libraries
_SECONDS_PER_CELL = 1.2e-5  # of a round: fit and candidate marginals
_SECONDS_PER_DRAW = 1e-7


@dataclass(frozen=True)
class Prediction:
    """What a run will take.

    Attributes:
        domain_cells: Cells of the full table of all columns.
        workload_queries: Queries.
        workload_cells: Cells over the closure of the queries.
        largest_query: The query with the most cells.
        rounds: Rounds of selection and measurement, at most.
        memory_mb: Peak, with all parties in one process.
        bytes_per_party: Sent and received, an upper bound.
        seconds: On two cores, roughly.
        epsilon_per_party: Most that a party will have spent.
    """

    domain_cells: int
    workload_queries: int
    workload_cells: int
    largest_query: tuple[str, ...]
    rounds: int
    memory_mb: float
    bytes_per_party: int
    seconds: float
    epsilon_per_party: float


def predict(
    synthesizer: Synthesizer, schema: Schema | Encoder, parties: int, budget: Budget
) -> Prediction:
    """Predict a run before a row is read.

    Args:
        synthesizer: What will run.
        schema: Public facts about the columns.
        parties: Size of the roster.
        budget: What a row may cost.

    Raises:
        CapacityError: if a query does not fit, naming its columns and cells.
    """
    encoder = schema if isinstance(schema, Encoder) else Encoder(schema, synthesizer.bins)
    domain = encoder.domain
    queries = workload_for(domain, synthesizer.degree, synthesizer.queries, synthesizer.workload)
    limit = float(synthesizer.algorithm().max_model_mb)
    check_capacity(domain, queries, limit)
    below = closure(queries, domain)
    cells = sum(domain.size(q) for q in below)
    largest = max(queries, key=domain.size)
    rounds, joined = _rounds(synthesizer, len(domain.names))
    one_ways = sum(domain.sizes)
    heard = max(1.0, joined * parties / rounds)
    typical = min(domain.size(largest), cells // len(below) + 1)
    chosen = typical * min(heard, 4)
    shipped = 4 * typical * 4 + 8 * one_ways  # the model and what it is compared with
    if isinstance(synthesizer, TwoRound):  # a look at all pairs, then most of them again
        chosen, shipped = sum(domain.size(q) for q in below if len(q) == 2), 0
    sent = 4 * (joined * (one_ways + chosen) + one_ways)
    received = joined * (shipped + 64 * parties)
    draws = rounds * heard * (one_ways + chosen)
    return Prediction(
        domain.size(),
        len(queries),
        cells,
        largest,
        rounds,
        _BASE_MB + 3 * min(limit, 8e-6 * cells) + 16e-6 * cells + 0.05 * parties,
        int(sent + received) + 400,
        5.0 + rounds * _SECONDS_PER_CELL * min(cells, 2e5) + draws * _SECONDS_PER_DRAW,
        budget.epsilon,
    )


def _rounds(synthesizer: Synthesizer, columns: int) -> tuple[int, float]:
    """Rounds at most, and in how many of them a party is expected to join."""
    if isinstance(synthesizer, AIM):
        return 3 * columns, 3.0 * columns
    if not isinstance(synthesizer, FLAIM):
        return 2, 2.0
    rounds = synthesizer.rounds or 8 * columns
    joined = float(synthesizer.cap or synthesizer.participation * rounds)
    return rounds, joined
