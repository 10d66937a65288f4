"""Scores over real rows inside a federation: how far a synthetic table is from every party's rows.

The measure is the workload error of Maddock, Cormode & Maple 2024, "FLAIM" (KDD 2024):
the mean L1 distance of normalised marginals. A score computed from rows is a release like any
other, and repeated exact scores give rows away (Ganev & De Cristofaro 2023, "On the inadequacy of
similarity-based privacy metrics"), so each is paid for.

Rows split or columns split: a party is asked about those queries whose columns it holds. Its score
is one number, so it takes little budget. A pair of columns that lie at two parties is listed as
not measured.

**Guarantee** (dp): rows, under the relation of the budget, against the coordinator and all readers.
A party first releases its number of rows with discrete Gaussian noise (nothing is released where
the relation makes it public), then the mean over queries of || M_q(D_k) - n_k p_q ||_1 with the
noisy n_k. One row moves each term, and so their mean, by 1 (add/remove) or 2 (replace-one);
rounding down to a grid of 2^-10 adds one step to that. A party checks the whole request before it
pays: the queries are different sets of its own columns, each table of shares is a distribution
over exactly the cells of its query, and the price is within what the study allows.

* Split rows: a person's row lies at one party. Epsilon is the largest of all parties', and the
  other parties are readers like any other.
* Split columns: a person's row lies at all parties, whose releases add up. Epsilon is that of all
  parties' events together. Each party gets an equal share of the budget, and checks that as many
  such shares as there are parties do not exceed it. The parties know who is in the table; towards
  them only the reading under replace-one holds.
* Fit and scores: a score that is charged to a fit's ledgers, or says `after` which fit it comes,
  composes with all that these hold. A party refuses a score with which all of it together, over
  all parties where columns are split, would cost more than the total that is allowed.

Assumed public: the synthetic table (whoever made it from rows paid for it), queries, schema, and
which party holds which columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, combinations
from math import floor, fsum, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np

from siloweave.core.fit import Fit, epsilon_of_row
from siloweave.core.party import (
    Party,
    PartySide,
    PartyStores,
    coded_rows,
    direct_parties,
    named_parties,
    require_row,
    rows_taking_part,
)
from siloweave.core.run import session_with
from siloweave.core.settings import Job
from siloweave.errors import (
    BudgetError,
    InputError,
    RosterError,
    SchemaError,
    WireError,
    count_of,
    naming_party,
)
from siloweave.evaluate.workload import require_rows
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers, MemoryStore, Site
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon, of_one_person
from siloweave.privacy.budget import (
    Budget,
    Neighbours,
    gaussian_sigma,
    l1_score_sensitivity,
    rho_for,
    size_sensitivity,
)
from siloweave.privacy.events import Event, Gaussian
from siloweave.privacy.ledger import Entry, Ledger
from siloweave.progress import Progress, shows_progress, silent
from siloweave.protocols.columns import rows_sent
from siloweave.protocols.secure_sums import KeyRequest, send_key, sizes_of
from siloweave.statistics.marginals import marginal
from siloweave.tables.arrays import Floats
from siloweave.tables.codes import Clique, Codes, Domain, Encoder
from siloweave.tables.origin import Frame
from siloweave.tables.read import read
from siloweave.tables.schema import Schema
from siloweave.tables.table import Table
from siloweave.tables.units import check_unit
from siloweave.tables.write import frame_of

GRID = 1024
"""Steps of a distance that make one count."""

# Share of the budget for the number of rows.
_SIZE_SHARE = 0.5
# How far from 1 shares may add up, in the floats that they travel in.
_CLOSE = 1e-4
# Standard deviations of a 95 % interval.
_SURE = 1.96


# Messages


class Judgement(Reply, frozen=True):
    """How far a table is from a party's rows, in steps of 2^-10 counts, and how many rows.

    The number of rows is in one of both fields, the other is empty.
    """

    distance: Released[int]
    noisy_rows: tuple[Released[int], ...]
    public_rows: tuple[Public[int], ...]


class ScoreTable(Request[Judgement], frozen=True, tag="score/table"):
    """Compare these shares of a synthetic table with your rows."""

    queries: tuple[Clique, ...]
    shares: tuple[Array, ...]
    size_rho: float
    score_rho: float


# Party


@dataclass(frozen=True)
class ScoredRows:
    """A party's data in a score: its rows, and what the study allows. No message changes it.

    Attributes:
        codes: Its rows.
        budget: Most that the score may cost a row, at all parties that hold columns of it.
        parties: How many parties hold columns of the same row.
        others: What the other parties' ledgers hold about the same rows, other runs' events.
    """

    codes: Codes
    budget: Budget
    parties: int = 1
    others: tuple[Event, ...] = ()

    @property
    def domain(self) -> Domain:
        """Attributes and sizes of its rows."""
        return self.codes.domain

    def digest(self) -> bytes:
        """Return a digest of its rows; see `Site`."""
        return self.codes.digest()


def judge(request: ScoreTable, site: Site[ScoredRows]) -> Judgement:
    """Release the number of rows, then the distance from what so many synthetic rows would be."""
    data = site.rows
    tables = _shares(request, site)
    *size_event, event = _events(request, site)
    site.require_first()
    check_price(site, site.run, [*size_event, event])
    counts = [marginal(data.codes, query) for query in request.queries]

    # The noisy number of rows is used below, so the distance shows no more about the exact one.
    noisy_rows, public_rows = _size(size_event, site)
    size = noisy_rows[0].value if noisy_rows else public_rows[0].value
    size = min(max(1, size), MOST_ROWS)

    def draw() -> int:
        distances: list[float] = []
        for table_counts, shares in zip(counts, tables, strict=True):
            gaps = np.abs(table_counts - size * shares)
            distances.append(float(gaps.sum()))

        # Rounded down to the grid, which moves the mean by less than one step.
        steps = GRID * fsum(distances) / len(distances)
        exact = np.array([floor(steps)])
        noisy = mechanisms.add_gaussian(exact, event.sigma, entropy=site.entropy)
        return int(noisy[0])

    label = f"distance of a synthetic table over {len(tables)} marginals"
    distance = site.release(event, label, draw)
    return Judgement(distance, noisy_rows, public_rows)


def _malformed(site: Site[ScoredRows], content: str, wanted: str) -> WireError:
    """Return the error for a request with something else than what is wanted."""
    return WireError(
        f"party {site.name!r} was asked for a score with {content}; {wanted}. Nothing was "
        "released: check which software the coordinator runs."
    )


def _shares(request: ScoreTable, site: Site[ScoredRows]) -> list[Floats]:
    """Return the synthetic table's shares, each a distribution over its query.

    Raises:
        WireError: A query is not of this party's columns, or its shares are no distribution.
    """
    domain = site.rows.domain
    if not request.queries or len(set(request.queries)) < len(request.queries):
        raise _malformed(site, "no query, or one twice", "each must be there once")
    if len(request.shares) != len(request.queries):
        content = f"{len(request.shares)} tables for {len(request.queries)} queries"
        raise _malformed(site, content, "each query needs one")

    tables: list[Floats] = []
    for query, share in zip(request.queries, request.shares, strict=True):
        has_columns = query and set(query) <= set(domain.names)
        if not has_columns or query != domain.canonical(query):
            wanted = f"it must list columns of {domain.names} in this order"
            raise _malformed(site, f"the query {query}", wanted)
        shape = domain.shape(query)
        if share.dtype not in ("<f4", "<f8") or share.shape != shape:
            content = f"shares of {query} of type {share.dtype} and shape {share.shape}"
            wanted = f"they must be floats of shape {shape}"
            raise _malformed(site, content, wanted)

        # With shares that are no distribution, a row could move the score by more than is paid.
        # `numpy` refuses what is not finite.
        table = np.asarray(share.numpy(), dtype=np.float64)
        least = table.min()
        total = float(table.sum())
        if least < 0 or not abs(total - 1) <= _CLOSE:
            content = f"shares of {query} from {least:g}, with the sum {total:g}"
            raise _malformed(site, content, "they must be 0 or more and add up to 1")
        tables.append(table)
    return tables


def _events(request: ScoreTable, site: Site[ScoredRows]) -> list[Gaussian]:
    """Return what is going to be charged, once it is sure that such noise can be drawn."""
    neighbours = site.rows.budget.neighbours
    size_rho = request.size_rho
    score_rho = request.score_rho
    if not size_sensitivity(neighbours) and size_rho != 0:
        wanted = "it must be 0, as the number of rows is public"
        raise _malformed(site, f"size_rho = {size_rho}", wanted)
    try:
        events = priced(size_rho, score_rho, neighbours)
        for event in events:
            # Draws no number, and raises where such noise cannot be drawn.
            mechanisms.discrete_gaussian(event.sigma, 0, entropy=site.entropy)
    except (InputError, ArithmeticError) as error:
        content = f"size_rho = {size_rho} and score_rho = {score_rho}"
        wanted = f"both must be zCDP that noise can meet ({error})"
        raise _malformed(site, content, wanted) from error
    return events


def check_price(site: Site[ScoredRows], run: str, events: Sequence[Event]) -> None:
    """Refuse a score that is beyond what the study allows for it, or for everything together."""
    data = site.rows
    limit = site.ledger.limit

    # A row of split columns lies at all parties, each of which may spend as much.
    who = f"party {site.name!r}"
    together = _together(data.parties)
    score = [*events] * data.parties
    budget = data.budget
    cost = epsilon(score, budget.delta)
    if cost > budget.epsilon:
        raise BudgetError(
            f"{who}: this score would cost epsilon = {cost} at delta = {budget.delta}{together}, "
            f"and its budget is {budget.epsilon}. Nothing was released. Ask for a less precise "
            "score."
        )
    if limit is None:
        return

    # This run's own entries, of a score that is asked for again, are in `score` already.
    entries = [entry for entry in site.ledger.entries if entry.run != run]
    own_events = (entry.event for entry in entries)
    before = of_one_person((own_events, data.others))
    total = epsilon([*before, *score], limit.delta)
    if total > limit.epsilon:
        spent = epsilon(before, limit.delta)
        runs = ", ".join(sorted({entry.run for entry in entries})) or "none of its own"
        raise BudgetError(
            f"{who} has already spent epsilon = {spent} at delta = {limit.delta}{together} (run "
            f"{runs}); with this score that would be {total}, and the most that everything "
            f"together may cost is {limit.epsilon}. Nothing was released. Give the score a "
            "smaller budget, or a total that every owner allows: "
            f"total=Budget(epsilon={total}, delta={limit.delta})."
        )


def _together(parties: int) -> str:
    """Return words on the parties whose costs add up; empty for a single one."""
    if parties == 1:
        return ""
    return f" over {parties} parties that hold the same people"


def _size(
    events: Sequence[Gaussian], site: Site[ScoredRows]
) -> tuple[tuple[Released[int], ...], tuple[Public[int], ...]]:
    """Release the number of rows with the noise of an event; without one it is public."""
    n = site.rows.codes.num_rows
    if not events:
        return (), (Public(n, "the number of rows is public under replace-one"),)
    (event,) = events

    def draw() -> int:
        exact = np.array([n])
        noisy = mechanisms.add_gaussian(exact, event.sigma, entropy=site.entropy)
        return int(noisy[0])

    released = site.release(event, "number of rows", draw)
    return (released,), ()


HANDLERS: Handlers = {KeyRequest: send_key, ScoreTable: judge}
"""A party's side: which function answers which request."""


# What both sides compute


def priced(size_rho: float, score_rho: float, neighbours: Neighbours) -> list[Gaussian]:
    """Return a score's events: the number of rows, where it is private, and the distance."""
    events: list[Gaussian] = []
    size_unit = size_sensitivity(neighbours)
    if size_unit:
        size_sigma = gaussian_sigma(size_rho, size_unit)
        events.append(Gaussian(size_sigma, size_unit))

    # Rounding to the grid adds a step.
    score_unit = GRID * l1_score_sensitivity(neighbours) + 1
    score_sigma = gaussian_sigma(score_rho, score_unit)
    events.append(Gaussian(score_sigma, score_unit))
    return events


def price_for(budget: Budget, parties: int) -> tuple[float, float]:
    """Return the zCDP of a party's number of rows and of its score: its share of the budget."""
    rho = rho_for(budget) / parties
    size_rho = 0.0
    if size_sensitivity(budget.neighbours):
        size_rho = _SIZE_SHARE * rho
    return size_rho, rho - size_rho


# Results


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
            f"FederatedScore({count_of(len(self.parties), 'party', 'parties')}: "
            f"error {self.error:.4f}, epsilon {self.epsilon}, {self.total_epsilon} in total)"
        )

    def __str__(self) -> str:
        names = ["party", *(score.party for score in self.parties)]
        width = max(map(len, names))
        lines = [f"{'party':{width}}      rows    error  95 % interval of the noise"]
        for score in self.parties:
            interval = f"{score.low:.4f} to {score.high:.4f}"
            lines.append(
                f"{score.party:{width}}  {score.rows:8,.0f}  {score.error:7.4f}  {interval}"
            )
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
        """Return one row per party, as the kind of frame that was scored."""
        rows: list[dict[str, Any]] = []
        for score in self.parties:
            row = asdict(score)
            row["columns"] = ", ".join(score.columns)
            rows.append(row)
        return frame_of(rows, list(rows[0]), self.frame)


# Coordinator


def ask_scores(
    session: Session,
    judged: Codes,
    queries: Sequence[Clique],
    price: tuple[float, float],
    neighbours: Neighbours,
    progress: Progress = silent,
) -> dict[str, tuple[list[Clique], PartyScore]]:
    """Ask every party for its score; return the queries that it answered, and the score.

    A party that codes a column differently from the synthetic table, or that holds the columns of
    no query, is named before anyone is asked for a score. `price` is from `price_for`.
    """
    domain = judged.domain
    party_columns: dict[str, Clique] = {}
    party_queries: dict[str, list[Clique]] = {}
    replies = session.ask(KeyRequest())
    for name, reply in zip(session.roster, replies, strict=True):
        sizes = sizes_of(name, reply)
        for column, size in sizes.items():
            if column not in domain.names or domain.size_of(column) != size:
                raise SchemaError(f"party {name!r} codes column {column!r} differently")
        party_columns[name] = tuple(sizes)
        party_queries[name] = [query for query in queries if set(query) <= set(sizes)]
        if not party_queries[name]:
            raise InputError(
                f"party {name!r} holds the columns of no query; give it one"
            )

    scores: dict[str, tuple[list[Clique], PartyScore]] = {}
    number = len(party_columns)
    for index, (name, columns) in enumerate(party_columns.items()):
        progress(f"party {index + 1} of {number}", index / number)
        answered = party_queries[name]

        # The table's own marginals, with a query's columns in the order that the party has.
        sent_queries: list[Clique] = []
        shares: list[Array] = []
        for query in answered:
            ordered = tuple(column for column in columns if column in query)
            table = marginal(judged, ordered) / judged.num_rows
            sent_queries.append(ordered)
            shares.append(Array.of(table, "<f4"))
        request = ScoreTable(tuple(sent_queries), tuple(shares), *price)
        (judgement,) = session.ask(request, [name])
        score = _scored(name, columns, len(answered), judgement, price, neighbours)
        scores[name] = (answered, score)
    progress("scored", 1.0)
    return scores


def _scored(
    name: str,
    columns: Clique,
    queries: int,
    reply: Judgement,
    price: tuple[float, float],
    neighbours: Neighbours,
) -> PartyScore:
    """Return a party's score, with an interval for the noise in it.

    Raises:
        WireError: The party sent no number of rows.
    """
    rows = rows_sent(name, (*reply.noisy_rows, *reply.public_rows))
    error = reply.distance.value / GRID / rows
    *size_events, distance_event = priced(*price, neighbours)

    # The error is a quotient: noise of the distance, and of the rows, which moves it relatively.
    noise = distance_event.sigma / GRID / rows
    size_noise = size_events[0].sigma / rows if size_events else 0.0
    spread = _SURE * sqrt(noise**2 + ((1 + abs(error)) * size_noise) ** 2)
    return PartyScore(
        party=name,
        columns=columns,
        queries=queries,
        rows=rows,
        error=error,
        low=error - spread,
        high=error + spread,
    )


# What a user calls


@shows_progress
def score_parties(
    data: Any,
    synthetic: Any,
    schema: Schema | Encoder,
    *,
    budget: Budget,
    split: Literal["rows", "columns"] = "rows",
    queries: Sequence[Sequence[str]] | None = None,
    bins: int = 32,
    total: Budget | None = None,
    after: Fit | FederatedScore | None = None,
    seed: int = 0,
    names: Sequence[str] | None = None,
    folder: Path | str | None = None,
    run: str = "score",
    noise: str = "os",
    progress: Any = None,
) -> FederatedScore:
    """Ask every party how far a synthetic table is from its rows, and pay for the answer.

    One ledger holds what a fit and its scores cost: give the fit's `folder`, or, for a fit whose
    ledgers are in memory, `after=fit` and for the next score ``after=`` the last one.

    Args:
        data: One table per party, as a list or by name: the same columns each (``"rows"``), or
            columns of the same people (``"columns"``).
        synthetic: The table to judge, with the columns of all parties.
        schema: Public facts about all columns.
        budget: Most that this score may cost a row; over split columns at all parties together.
        split: How the table is spread.
        queries: Sets of columns to compare; all single columns and pairs if None.
        bins: Equal-width bins of a numeric column, where `schema` is no encoder.
        total: Most that everything in the ledgers, this score included, may cost a row;
            `budget` if None, so that a score beside other releases needs it.
        after: The fit, or the score, whose ledgers this one continues; not with `folder`.
        seed: Of the noise, where `noise` is "seeded".
        names: Of the parties, when `data` is a list.
        folder: Stores ledgers and replies, a fit's own may be given; the same folder and run get
            the same answer. In memory if None.
        run: Name of the score in the ledgers; each needs its own.
        noise: "os" for the operating system's entropy; "seeded" protects nothing.
        progress: As of `Synthesizer.fit`.

    Raises:
        InputError: There is no query that a party can answer, or the run's name is taken.
        RosterError: Parties are not those of the ledgers.
        SchemaError: Parties hold columns that do not fit the split or the schema.
        BudgetError: The score would cost more than `budget`, or everything more than `total`;
            nothing is released.

    Example:
        >>> from siloweave.datasets import adult, adult_schema
        >>> rows = adult().take(range(4000))
        >>> found = score_parties([rows, rows], rows, adult_schema(), budget=Budget(1.0, 1e-6))
        >>> abs(found.error) < 0.02, found.epsilon <= 1.0
        (True, True)
    """
    encoder = schema if isinstance(schema, Encoder) else Encoder(schema, bins)
    judged, frame = _judged(synthetic, encoder)
    parts = named_parties(data, names)
    _check_budgets(budget, total)
    ledger_folder = _of_parties(folder, parts)
    job = Job(budget, seed, ledger_folder, run, noise, progress)
    codes = _coded(parts, encoder, split, job)
    cliques = _queries(queries, judged)

    # What the ledgers hold already, and the most that they may hold after this score.
    before = _before(after, folder, run, codes)
    allowed = _allowed(budget, total, after)
    stores: dict[str, PartyStores] = {}
    for name, earlier in before.items():
        stores[name] = _stores_after(name, earlier, allowed)
    job = replace(job, total=allowed)
    results, entries = _run(codes, judged, cliques, job, split, stores)

    # Earlier entries are those that were charged then, not this run's copies of them.
    ledgers: dict[str, tuple[Entry, ...]] = {}
    paid: dict[str, list[Entry]] = {}
    for name, party_entries in entries.items():
        earlier = before.get(name, ())
        ledgers[name] = (*earlier, *party_entries[len(earlier) :])
        paid[name] = [entry for entry in ledgers[name] if entry.run == run]

    scores = tuple(score for _, score in results.values())
    answered: set[Clique] = set()
    for party_queries, _ in results.values():
        answered.update(party_queries)
    errors = [score.error for score in scores]
    rows = [score.rows for score in scores]
    mean_error = float(np.average(errors, weights=rows))
    unmeasured = tuple(query for query in cliques if query not in answered)
    return FederatedScore(
        parties=scores,
        error=mean_error,
        unmeasured=unmeasured,
        budget=budget,
        total=allowed,
        epsilon=epsilon_of_row(paid, split, budget.delta),
        total_epsilon=epsilon_of_row(ledgers, split, allowed.delta),
        private=noise == "os",
        ledgers=ledgers,
        frame=frame,
    )


def _run(
    codes: Mapping[str, Codes],
    judged: Codes,
    queries: Sequence[Clique],
    job: Job,
    split: str,
    stores: Mapping[str, PartyStores],
) -> tuple[dict[str, tuple[list[Clique], PartyScore]], dict[str, tuple[Entry, ...]]]:
    """Open the ledgers, let every party check what it is going to pay, then ask for the scores."""
    run = job.run
    budget = job.budget
    together = len(codes) if split == "columns" else 1
    sides: dict[str, Any] = {}
    for name, party_codes in codes.items():
        rows = ScoredRows(party_codes, budget, together)
        sides[name] = partial(_scoring_side, rows)
    with closing(direct_parties(sides, job, stores)) as carrier:
        carrier.open(run, b"")
        session = session_with(carrier, job, run)
        sites = {name: party.site(run) for name, party in carrier.parties.items()}
        if split == "columns":
            _share_spent(sites, run)

        # All of them check before the first one pays.
        neighbours = budget.neighbours
        price = price_for(budget, together)
        events = priced(*price, neighbours)
        for site in sites.values():
            check_price(site, run, events)
        scores = ask_scores(session, judged, queries, price, neighbours, job.progress)
        entries = {name: site.ledger.entries for name, site in sites.items()}
    return scores, entries


def _share_spent(sites: Mapping[str, Site[ScoredRows]], run: str) -> None:
    """Send every party what the others' ledgers hold about the same people, before this run."""
    spent: dict[str, list[Event]] = {}
    for name, site in sites.items():
        spent[name] = [entry.event for entry in site.ledger.entries if entry.run != run]
    for name, site in sites.items():
        elsewhere = [events for party, events in spent.items() if party != name]
        others = tuple(of_one_person(elsewhere))
        site.rows = replace(site.rows, others=others)


def _scoring_side(rows: ScoredRows, party: Party, run: str, facts: bytes) -> PartySide:
    """Return a party's side of a score."""
    return PartySide(rows, HANDLERS)


def _check_budgets(budget: Any, total: Any) -> None:
    """Raise BudgetError for what is no budget, or has no bound."""
    budgets = {"budget": budget}
    if total is not None:
        budgets["total"] = total
    for name, value in budgets.items():
        if not isinstance(value, Budget):
            raise BudgetError(
                f"{name}={value!r} is no Budget; give Budget(epsilon, delta)"
            )
    if not budget.private:
        raise BudgetError(
            "budget: a score adds noise and needs a finite epsilon; give one"
        )


def _allowed(budget: Budget, total: Budget | None, after: Any) -> Budget:
    """Return the most that everything may cost.

    Raises:
        BudgetError: Budgets protect something else, so what they cost cannot be added up.
    """
    after_budget = after.budget if after is not None else None
    others = {"total": total, "the budget of after": after_budget}
    for name, value in others.items():
        # What costs infinity adds up under any relation.
        if value is None or not value.private:
            continue
        if not budget.protects_alike(value):
            raise BudgetError(
                f"budget: protects {budget.protected}, and {name} {value.protected}, so their "
                "costs do not add up. Give a budget of the same unit, rows_per_unit and relation."
            )
    return budget if total is None else total


def _before(
    after: Any, folder: Path | str | None, run: str, codes: Mapping[str, Codes]
) -> Mapping[str, tuple[Entry, ...]]:
    """Return what the ledgers hold of the fit or score that this one comes after."""
    if after is None:
        return {}
    if not isinstance(after, Fit | FederatedScore):
        raise InputError(
            f"after is a {type(after).__name__}; give a fit or a score of parties"
        )
    if folder is not None:
        raise InputError(
            "folder and after both say which ledgers to continue; give folder for a fit whose "
            "ledgers are there, and after for one whose ledgers are in memory"
        )
    if set(after.ledgers) != set(codes):
        raise RosterError(
            f"data has the parties {', '.join(codes)}, and the ledgers of after are of "
            f"{', '.join(after.ledgers)}; give each party's table under its name there"
        )
    if any(entry.run == run for entry in chain.from_iterable(after.ledgers.values())):
        raise InputError(
            f"run={run!r} is in the ledgers already; give this score its own name"
        )
    return after.ledgers


def _stores_after(name: str, entries: Sequence[Entry], limit: Budget) -> PartyStores:
    """Return what a party stores, in memory, with a ledger that holds what was charged before."""
    ledger = Ledger(name)
    for entry in entries:
        ledger.charge(
            entry.event, run=entry.run, step=entry.step, what=entry.what, to=entry.to
        )
    # Only now: earlier entries are not judged by a limit of today.
    ledger.limit = limit
    return ledger, MemoryStore()


def _of_parties(folder: Path | str | None, parts: Mapping[str, Any]) -> Path | None:
    """Return the folder of the ledgers; None where they are in memory.

    Raises:
        RosterError: It holds ledgers of more parties than are scored.
    """
    if folder is None:
        return None
    party_folders = Path(folder) / "parties"
    ledgers = list(party_folders.glob("*/ledger.jsonl"))
    # A party that is left out would seem to have spent nothing.
    if len(ledgers) > len(parts):
        raise RosterError(
            f"{folder} holds the ledgers of {len(ledgers)} parties, and data has "
            f"{count_of(len(parts), 'table', 'tables')}; give those of all parties, in the order "
            "of the fit"
        )
    return Path(folder)


def _judged(synthetic: Any, encoder: Encoder) -> tuple[Codes, Frame]:
    """Return the synthetic table's codes, and what kind of frame it was."""
    if isinstance(synthetic, Codes):
        require_rows(synthetic, "synthetic")
        return synthetic, "file"
    table = read(synthetic)
    codes = encoder.encode(table)
    require_rows(codes, "synthetic")
    return codes, table.frame


def _coded(
    parts: Mapping[str, Any], encoder: Encoder, split: str, job: Job
) -> dict[str, Codes]:
    """Return every party's rows that take part, as codes."""
    if split not in ("rows", "columns"):
        raise InputError(f'split={split!r} must be "rows" or "columns"')
    if not job.budget.by_row:
        check_unit(job.budget.unit, encoder.schema)

    schema = encoder.schema
    codes: dict[str, Codes] = {}
    for index, (name, part) in enumerate(parts.items()):
        # Codes do not say whose a row is, so there the unit must be a row.
        table = part
        if isinstance(part, Codes):
            require_row(name, job.budget)
        else:
            with naming_party(name):
                table = rows_taking_part(part, split, schema, job, index)

        party_encoder = encoder
        if split == "columns" and isinstance(table, Table):
            columns = [column for column in schema.names if column in table.names]
            party_encoder = encoder.select(columns)
        codes[name] = coded_rows(name, table, party_encoder)
        if split == "columns":
            _check_apart(name, codes)
    return codes


def _check_apart(name: str, codes: Mapping[str, Codes]) -> None:
    """Raise SchemaError for a column that a party holds, and one before it, too."""
    for column in codes[name].domain.names:
        for party, party_codes in codes.items():
            if party != name and column in party_codes.domain.names:
                raise SchemaError(
                    f"column {column!r} is held by {party!r} and {name!r}"
                )


def _queries(queries: Sequence[Sequence[str]] | None, judged: Codes) -> list[Clique]:
    """Return the sets of columns to compare; all single columns and pairs if None."""
    domain = judged.domain
    if queries is None:
        singles = list(combinations(domain.names, 1))
        return [*singles, *combinations(domain.names, 2)]
    if not queries or not all(queries):
        raise InputError(
            "queries is empty, or one of them; give at least one set of columns"
        )
    return list(dict.fromkeys(domain.canonical(query) for query in queries))
