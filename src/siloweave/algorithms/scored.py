"""A score over several parties: the coordinator's side, and what it found.

Workload error of Maddock, Cormode & Maple 2024, "FLAIM" (KDD 2024). Every party scores its own
rows; over split rows `pooled` measures everyone's together.

**Guarantee**: that of score.py, where every party checks and pays; of `pooled` that of
secure_sum.py. What is here reads replies alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np

from siloweave.algorithms.running import Progress
from siloweave.algorithms.score import GRID, Judgement, ScoreTable, priced
from siloweave.errors import InputError, SchemaError
from siloweave.federation.expected import MOST_ROWS, CheckedReply
from siloweave.federation.messages import Array
from siloweave.federation.session import Session
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.ledger import Entry
from siloweave.progress import silent
from siloweave.protocols.secure_sums import (
    Count,
    KeyRequest,
    SumNoise,
    exchange_keys,
    noisy_sums,
    sizes_of,
)
from siloweave.protocols.workload import expected_l1
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Clique, Codes
from siloweave.tables.read import Frame, Table

__all__ = ["FederatedScore", "PartyScore", "ask_scores", "pooled", "summed_up"]

_SURE = 1.96  # standard deviations of a 95 % interval


@dataclass(frozen=True)
class PartyScore:
    """How far the synthetic table is from one party's rows.

    Attributes:
        party: Whose rows.
        columns: The columns it holds.
        queries: Marginals compared.
        rows: Its number of rows, noisy unless public.
        error: Mean L1 distance of normalised marginals, in [0, 2] but for noise.
        low, high: 95 % interval for the noise in `error`; rows are not treated as a sample.
    """

    party: str
    columns: tuple[str, ...]
    queries: int
    rows: float
    error: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class FederatedScore:
    """How far the parties found a synthetic table from their rows; prints as a table.

    Attributes:
        parties: One score of each.
        error: Mean over parties, weighted by rows; over split rows no less than that of all rows
            pooled, because parties' differences cannot cancel in it.
        unmeasured: Queries whose columns lie at different parties.
        budget: What this score was allowed to cost.
        total: What everything in the ledgers together was allowed to cost.
        epsilon: What this score cost a row, at the budget's delta: the largest of all parties';
            over split columns that of all parties together.
        total_epsilon: The same of everything in the ledgers, fits and scores, at the total's delta.
        private: False if noise came from a seed: then nothing here is protected.
        ledgers: Every party's record of this and earlier runs.
        frame: Kind of frame that `to_frame` makes.
    """

    parties: tuple[PartyScore, ...]
    error: float
    unmeasured: tuple[Clique, ...]
    budget: Budget
    total: Budget
    epsilon: float
    total_epsilon: float
    private: bool
    ledgers: Mapping[str, tuple[Entry, ...]]
    frame: Frame = field(default="file", compare=False)

    def __repr__(self) -> str:
        return (
            f"FederatedScore({len(self.parties)} parties: error {self.error:.4f}, epsilon "
            f"{self.epsilon}, {self.total_epsilon} in total)"
        )

    def __str__(self) -> str:
        width = max(len("party"), *(len(one.party) for one in self.parties))
        lines = [f"{'party':{width}}      rows    error  95 % interval of the noise"]
        lines += [
            f"{p.party:{width}}  {p.rows:8,.0f}  {p.error:7.4f}  {p.low:.4f} to {p.high:.4f}"
            for p in self.parties
        ]
        lines += [
            f"error {self.error:.4f} over all parties, weighted by rows",
            f"epsilon {self.epsilon} for this score, delta {self.budget.delta:g}",
            f"epsilon {self.total_epsilon} for all in the ledgers, delta {self.total.delta:g}",
        ]
        if self.unmeasured:
            missing = ", ".join(" x ".join(query) for query in self.unmeasured)
            lines.append(f"not measured, as no party holds all columns: {missing}")
        if not self.private:
            lines.append("NOT PRIVATE: the noise came from a seed")
        return "\n".join(lines)

    def to_frame(self) -> Any:
        """One row per party, as the kind of frame that was scored."""
        names = ("party", "columns", "queries", "rows", "error", "low", "high")
        columns = {name: [getattr(one, name) for one in self.parties] for name in names}
        columns["columns"] = [", ".join(found) for found in columns["columns"]]
        text = {"party", "columns"}
        arrays = {n: np.array(v, dtype=object if n in text else None) for n, v in columns.items()}
        return (
            Table.from_columns({n: (a, None) for n, a in arrays.items()})
            .framed(self.frame)
            .to_native()
        )


def ask_scores(
    parties: Session,
    judged: Codes,
    asked: Sequence[Clique],
    price: tuple[float, float],
    relation: Relation,
    progress: Progress = silent,
) -> dict[str, tuple[list[Clique], PartyScore]]:
    """Ask every party for its score.

    Args:
        parties: Who holds the rows, of which each column is coded as in the synthetic table.
        judged: The synthetic table.
        asked: Sets of columns to compare.
        price: From `price_for`.
        relation: Of the budget.
        progress: Called with a text and the share that is done.

    Returns:
        For each party: the queries that it answered, and its score.

    Raises:
        SchemaError: A party codes a column differently.
        InputError: A party holds the columns of no query; nobody was asked for a score.
    """
    held: dict[str, tuple[Clique, list[Clique]]] = {}
    for name, greeting in zip(parties.roster, parties.ask(KeyRequest()), strict=True):
        theirs = sizes_of(name, greeting)
        for column, size in theirs.items():
            if column not in judged.domain.names or judged.domain.size_of(column) != size:
                raise SchemaError(f"party {name!r} codes column {column!r} differently")
        held[name] = tuple(theirs), [q for q in asked if set(q) <= set(theirs)]
        if not held[name][1]:
            raise InputError(f"party {name!r} holds the columns of no query; give it one")
    found = {}
    for i, (name, (columns, mine)) in enumerate(held.items()):
        progress(f"party {i + 1} of {len(held)}", i / len(held))
        queries = tuple(tuple(c for c in columns if c in q) for q in mine)  # in the party's order
        shares = tuple(Array.of(marginal(judged, q) / judged.num_rows, "<f4") for q in queries)
        (reply,) = parties.ask(ScoreTable(queries, shares, *price), [name])
        found[name] = (mine, _scored(name, columns, len(mine), reply, price, relation))
    progress("scored", 1.0)
    return found


def summed_up(
    found: Mapping[str, tuple[list[Clique], PartyScore]], asked: Sequence[Clique]
) -> tuple[tuple[PartyScore, ...], float, tuple[Clique, ...]]:
    """All parties' scores, their mean weighted by rows, and the queries that nobody answered."""
    answered = {q for mine, _ in found.values() for q in mine}
    scores = tuple(score for _, score in found.values())
    mean = float(np.average([s.error for s in scores], weights=[s.rows for s in scores]))
    return scores, mean, tuple(q for q in asked if q not in answered)


def _scored(
    name: str,
    columns: Clique,
    queries: int,
    reply: Judgement,
    price: tuple[float, float],
    relation: Relation,
) -> PartyScore:
    told = [*(r.value for r in reply.noisy_rows), *(r.value for r in reply.public_rows)]
    (number,) = CheckedReply(name).items("numbers of rows", told, count=1)
    rows = max(1, CheckedReply(name).number("rows", number, least=-MOST_ROWS, most=MOST_ROWS))
    error = reply.distance.value / GRID / rows
    *size, distance = priced(*price, relation)
    noise = distance.sigma / GRID / rows
    unsure = size[0].sigma / rows if size else 0.0
    spread = _SURE * sqrt(noise**2 + ((1 + abs(error)) * unsure) ** 2)
    return PartyScore(name, columns, queries, rows, error, error - spread, error + spread)


def pooled(
    parties: Session,
    synthetic: Codes,
    queries: Sequence[Clique],
    *,
    rho: float,
    unit: float,
    tolerated: int = 1,
) -> tuple[float, float]:
    """Workload error over everyone's rows together, from masked sums; rows split.

    Args:
        parties: Who holds the rows, coded in the synthetic table's domain.
        synthetic: The table to judge.
        queries: Marginals to compare.
        rho: zCDP that a row pays.
        unit: L2 sensitivity of a marginal under the budget's relation.
        tolerated: Parties that may collude with the coordinator.

    Returns:
        The error as measured, and the error that the noise alone would show of a perfect table;
        the first is no less than the true one on average.

    **Guarantee**: that of secure_sum.py, for `len(queries)` marginals.
    """
    keys, domain = exchange_keys(parties, synthetic.domain), synthetic.domain
    noise = SumNoise(unit * sqrt(len(queries) / (2 * rho)), tolerated)
    cells = sum(domain.size(q) for q in queries)
    share, missing = noise.share(len(keys), cells)
    request = Count(keys, share, missing, tuple(queries))
    sums = noisy_sums(parties, request, [domain.shape(q) for q in queries])
    sigma = noise.total(len(keys), cells)
    rows = max(1.0, float(np.average([t.sum() for t in sums], weights=[1 / t.size for t in sums])))
    gaps = [
        np.abs(t / rows - marginal(synthetic, q) / synthetic.num_rows).sum()
        for q, t in zip(queries, sums, strict=True)
    ]
    alone = [expected_l1(sigma, domain.size(q)) / rows for q in queries]
    return float(np.mean(gaps)), float(np.mean(alone))
