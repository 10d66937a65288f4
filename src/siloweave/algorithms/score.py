"""Scores over real rows inside a federation: how far a synthetic table is from every party's rows.

The measure is the workload error of Maddock, Cormode & Maple 2024, "FLAIM" (KDD 2024):
the mean L1 distance of normalised marginals. A score computed from rows is a release like any
other, and repeated exact scores give rows away (Ganev & De Cristofaro 2023, "On the inadequacy of
similarity-based privacy metrics"), so each is paid for.

Rows split or columns split: a party is asked about those queries whose columns it holds. Its score
is one number, so it takes little budget. What no party can see alone, a pair of columns of two
parties, is listed as not measured; over split rows `pooled` measures everyone's rows together.

**Guarantee**: rows, under the relation of the budget, against the coordinator and all readers.
A party first releases its number of rows with discrete Gaussian noise (nothing is released where
the relation makes it public), then the sum over queries of || M_q(D_k) - n_k p_q ||_1 / |Q| with
the noisy n_k, for which one row moves it by 1 (add/remove) or 2 (replace-one); rounding down to a
grid of 2^-10 adds one step to that. The synthetic table, the queries and the schema are public.
A person whose columns lie at several parties pays at each: the ledgers of all of them add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor, sqrt
from typing import Any, Literal

import numpy as np

from siloweave.algorithms.running import Job, in_process, named_parties
from siloweave.algorithms.secure_sum import (
    PARTY as SUMS,
)
from siloweave.algorithms.secure_sum import (
    Count,
    Hello,
    Noise,
    meet,
    noisy_sums,
    relation_of,
    sizes_of,
)
from siloweave.algorithms.workload import expected_l1
from siloweave.errors import InputError, SchemaError
from siloweave.evaluate.workload import require_rows
from siloweave.federation.expected import MOST_ROWS, Said
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.parties import Parties
from siloweave.federation.site import Handlers, Site
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import (
    Budget,
    Relation,
    l1_score_sensitivity,
    size_sensitivity,
)
from siloweave.privacy.calibrate import gaussian_sigma
from siloweave.privacy.events import Event, Gaussian
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Clique, Codes, Encoder
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

__all__ = ["FederatedScore", "Judge", "Judgement", "PartyScore", "judge", "pooled", "score_parties"]

_GRID = 1024  # steps a count
_SURE = 1.96  # standard deviations of a 95 % interval
_SIZE_SHARE = 0.5  # of the budget, for the number of rows


# Messages


class Judgement(Reply, frozen=True):
    """How far a table is from a party's rows, in steps of 2^-10 counts, and how many rows.

    The number of rows is in one of both fields, the other is empty.
    """

    distance: Released[int]
    noisy_rows: tuple[Released[int], ...]
    public_rows: tuple[Public[int], ...]


class Judge(Request[Judgement], frozen=True):
    """Compare these shares of a synthetic table with your rows."""

    queries: tuple[Clique, ...]
    shares: tuple[Array, ...]
    size_rho: float
    score_rho: float


# Party


def judge(request: Judge, site: Site[Codes]) -> Judgement:
    """Release the number of rows, then the distance from what so many synthetic rows would be."""
    relation = relation_of(site)
    noisy, public = _size(request, site)
    size = max(1, noisy[0].value if noisy else public[0].value)
    tables = [np.asarray(t.numpy(), dtype=np.float64) for t in request.shares]
    sensitivity = _moves(relation)
    sigma = gaussian_sigma(request.score_rho, sensitivity)

    def draw() -> int:
        gaps = [
            float(np.abs(marginal(site.rows, q) - size * p).sum())
            for q, p in zip(request.queries, tables, strict=True)
        ]
        exact = floor(_GRID * sum(gaps) / len(gaps))
        return int(mechanisms.add_gaussian(np.array([exact]), sigma, entropy=site.entropy)[0])

    what = f"distance of a synthetic table over {len(tables)} marginals"
    event = Gaussian(sigma=sigma, sensitivity=sensitivity)
    return Judgement(site.release(event, what, draw), noisy, public)


def _moves(relation: Relation) -> float:
    """How many steps of the grid one row moves a distance by."""
    return _GRID * l1_score_sensitivity(relation) + 1


def _size(
    request: Judge, site: Site[Codes]
) -> tuple[tuple[Released[int], ...], tuple[Public[int], ...]]:
    n, unit = site.rows.num_rows, size_sensitivity(relation_of(site))
    if unit == 0:
        return (), (Public(n, "the number of rows is public under replace-one"),)
    sigma = gaussian_sigma(request.size_rho, unit)
    noisy = site.release(
        Gaussian(sigma=sigma, sensitivity=unit),
        "number of rows",
        lambda: int(mechanisms.add_gaussian(np.array([n]), sigma, entropy=site.entropy)[0]),
    )
    return (noisy,), ()


# A party's side: which function answers which request.
PARTY: Handlers = {**SUMS, Judge: judge}


# Coordinator


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


@dataclass(frozen=True)
class FederatedScore:
    """What the parties said of a synthetic table.

    Attributes:
        parties: One score of each.
        error: Mean over parties, weighted by rows; over split rows no less than that of all rows
            pooled, because parties' differences cannot cancel in it.
        unmeasured: Queries whose columns lie at different parties.
        epsilon: The most that a party's ledger holds now, at the budget's delta; a person whose
            columns lie at several parties may pay up to the sum of all.
        ledgers: Every party's events.
    """

    parties: tuple[PartyScore, ...]
    error: float
    unmeasured: tuple[Clique, ...]
    epsilon: float
    ledgers: Mapping[str, tuple[Event, ...]]


def score_parties(
    data: Any,
    synthetic: Any,
    schema: Schema | Encoder,
    *,
    budget: Budget,
    split: Literal["rows", "columns"] = "rows",
    queries: Sequence[Sequence[str]] | None = None,
    bins: int = 32,
    job: Job | None = None,
) -> FederatedScore:
    """Ask every party how far a synthetic table is from its rows, and pay for the answer.

    Args:
        data: One table per party, as a list or by name: the same columns each (``"rows"``), or
            columns of the same people (``"columns"``).
        synthetic: The table to judge, with the columns of all parties.
        schema: Public facts about all columns.
        budget: Most that the scores may cost a row at one party.
        split: How the table is spread.
        queries: Sets of columns to compare; all single columns and pairs if None.
        bins: Equal-width bins of a numeric column, where `schema` is no encoder.
        job: Folder, run's name and source of noise; its budget is replaced.

    Raises:
        InputError: There is no query that a party can answer.
        SchemaError: Parties hold columns that do not fit the split or the schema.
        BudgetError: A party's ledger refuses the release.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> rows = adult().take(range(4000))
        >>> found = score_parties([rows, rows], rows, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> abs(found.error) < 0.02
        True
    """
    if split not in ("rows", "columns"):
        raise InputError(f'split={split!r} must be "rows" or "columns"')
    encoder = schema if isinstance(schema, Encoder) else Encoder(schema, bins)
    judged = synthetic if isinstance(synthetic, Codes) else encoder.encode(read(synthetic))
    require_rows(judged, "synthetic")
    held = _held(named_parties(data, None), encoder, split)
    asked = _queries(queries, judged)
    job = Job(budget) if job is None else job
    with in_process(held, PARTY, job, job.run) as (parties, sites):
        found = _ask(parties, judged, asked, job)
        events = {n: tuple(e.event for e in s.ledger.entries) for n, s in sites.items()}
    answered = {q for mine, _ in found.values() for q in mine}
    scores = tuple(score for _, score in found.values())
    weights = [score.rows for score in scores]
    return FederatedScore(
        scores,
        float(np.average([score.error for score in scores], weights=weights)),
        tuple(q for q in asked if q not in answered),
        max(epsilon(paid, budget.delta) for paid in events.values()),
        events,
    )


def _held(parts: Mapping[str, Any], encoder: Encoder, split: str) -> dict[str, Codes]:
    held, owner = {}, dict[str, str]()
    for name, part in parts.items():
        table = part if isinstance(part, Codes) else read(part)
        if isinstance(table, Codes):
            held[name] = table
            continue
        mine = encoder
        if split == "columns":
            mine = encoder.select([n for n in encoder.schema.names if n in table.names])
        held[name] = mine.encode(table)
    for name, codes in held.items():
        for column in codes.domain.names if split == "columns" else ():
            if owner.setdefault(column, name) != name:
                raise SchemaError(f"column {column!r} is held by {owner[column]!r} and {name!r}")
    return held


def _queries(queries: Sequence[Sequence[str]] | None, judged: Codes) -> list[Clique]:
    domain = judged.domain
    if queries is None:
        return [c for size in (1, 2) for c in combinations(domain.names, size)]
    if not queries:
        raise InputError("queries is empty; give at least one set of columns")
    return [domain.canonical(q) for q in queries]


def _ask(
    parties: Parties, judged: Codes, asked: Sequence[Clique], job: Job
) -> dict[str, tuple[list[Clique], PartyScore]]:
    found = {}
    for name, greeting in zip(parties.roster, parties.ask(Hello()), strict=True):
        theirs = sizes_of(name, greeting)
        for column, size in theirs.items():
            if column not in judged.domain.names or judged.domain.size_of(column) != size:
                raise SchemaError(f"party {name!r} codes column {column!r} differently")
        mine = [q for q in asked if set(q) <= set(theirs)]
        if not mine:
            raise InputError(f"party {name!r} holds the columns of no query; give it one")
        found[name] = (mine, _ask_one(parties, name, tuple(theirs), mine, judged, job))
    return found


def _ask_one(
    parties: Parties, name: str, columns: Clique, mine: list[Clique], judged: Codes, job: Job
) -> PartyScore:
    shares = tuple(Array.of(marginal(judged, q) / judged.num_rows, "<f4") for q in mine)
    size_rho = _SIZE_SHARE * job.rho if size_sensitivity(job.budget.relation) else 0.0
    request = Judge(tuple(mine), shares, size_rho, job.rho - size_rho)
    (reply,) = parties.ask(request, [name])
    told = [*(r.value for r in reply.noisy_rows), *(r.value for r in reply.public_rows)]
    (number,) = Said(name).items("numbers of rows", told, count=1)
    rows = max(1, Said(name).number("rows", number, least=-MOST_ROWS, most=MOST_ROWS))
    error = reply.distance.value / _GRID / rows
    noise = gaussian_sigma(request.score_rho, _moves(job.budget.relation)) / _GRID / rows
    unsure = gaussian_sigma(size_rho, 1.0) / rows if reply.noisy_rows else 0.0
    spread = _SURE * sqrt(noise**2 + ((1 + abs(error)) * unsure) ** 2)
    return PartyScore(name, columns, len(mine), rows, error, error - spread, error + spread)


def pooled(
    parties: Parties,
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
    keys, domain = meet(parties, synthetic.domain), synthetic.domain
    noise = Noise(unit * sqrt(len(queries) / (2 * rho)), tolerated)
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
