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
from itertools import combinations
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
from siloweave.tables.read import Frame, Table, frame_of, read
from siloweave.tables.schema import Schema
from siloweave.tables.units import check_unit

GRID = 1024
"""Steps of a distance that make one count."""

_SIZE_SHARE = 0.5  # of the budget, for the number of rows
_CLOSE = 1e-4  # how far from 1 shares may add up in the floats that they travel in
_SURE = 1.96  # standard deviations of a 95 % interval


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
        """Of its rows; see `Site`."""
        return self.codes.digest()


def judge(request: ScoreTable, site: Site[ScoredRows]) -> Judgement:
    """Release the number of rows, then the distance from what so many synthetic rows would be."""
    data = site.rows
    tables = _shares(request, site)
    *size_event, event = _events(request, site)
    site.require_first()
    check_price(site, site.run, [*size_event, event])
    counts = [marginal(data.codes, q) for q in request.queries]
    noisy, public = _size(size_event, site)
    size = min(max(1, noisy[0].value if noisy else public[0].value), MOST_ROWS)

    def draw() -> int:
        gaps = [float(np.abs(n - size * p).sum()) for n, p in zip(counts, tables, strict=True)]
        exact = np.array([floor(GRID * fsum(gaps) / len(gaps))])
        return int(mechanisms.add_gaussian(exact, event.sigma, entropy=site.entropy)[0])

    what = f"distance of a synthetic table over {len(tables)} marginals"
    return Judgement(site.release(event, what, draw), noisy, public)


def _malformed(site: Site[ScoredRows], found: str, wanted: str) -> WireError:
    return WireError(
        f"party {site.name!r} was asked for a score with {found}; {wanted}. Nothing was released: "
        "check which software the coordinator runs."
    )


def _shares(request: ScoreTable, site: Site[ScoredRows]) -> list[Floats]:
    """The synthetic table's shares, once each is known to be a distribution over its query."""
    domain = site.rows.domain
    if not request.queries or len(set(request.queries)) < len(request.queries):
        raise _malformed(site, "no query, or one twice", "each must be there once")
    if len(request.shares) != len(request.queries):
        found = f"{len(request.shares)} tables for {len(request.queries)} queries"
        raise _malformed(site, found, "each query needs one")
    tables = []
    for query, share in zip(request.queries, request.shares, strict=True):
        known = query and set(query) <= set(domain.names)
        if not known or query != domain.canonical(query):
            wanted = f"it must list columns of {domain.names} in this order"
            raise _malformed(site, f"the query {query}", wanted)
        if share.dtype not in ("<f4", "<f8") or share.shape != domain.shape(query):
            found = f"shares of {query} of type {share.dtype} and shape {share.shape}"
            raise _malformed(site, found, f"they must be floats of shape {domain.shape(query)}")
        table = np.asarray(share.numpy(), dtype=np.float64)  # refuses what is not finite
        if table.min() < 0 or not abs(float(table.sum()) - 1) <= _CLOSE:
            found = f"shares of {query} from {table.min():g}, with the sum {table.sum():g}"
            raise _malformed(site, found, "they must be 0 or more and add up to 1")
        tables.append(table)
    return tables


def _events(request: ScoreTable, site: Site[ScoredRows]) -> list[Gaussian]:
    """What is going to be charged, once it is known that such noise can be drawn."""
    neighbours = site.rows.budget.neighbours
    if not size_sensitivity(neighbours) and request.size_rho != 0:
        found = f"size_rho = {request.size_rho}"
        raise _malformed(site, found, "it must be 0, as the number of rows is public")
    try:
        events = priced(request.size_rho, request.score_rho, neighbours)
        for event in events:
            mechanisms.discrete_gaussian(event.sigma, 0, entropy=site.entropy)
    except (InputError, ArithmeticError) as error:
        found = f"size_rho = {request.size_rho} and score_rho = {request.score_rho}"
        raise _malformed(site, found, f"both must be zCDP that noise can meet ({error})") from error
    return events


def check_price(site: Site[ScoredRows], run: str, events: Sequence[Event]) -> None:
    """Refuse a score that is beyond what the study allows for it, or for everything together."""
    data, limit = site.rows, site.ledger.limit
    score = [*events] * data.parties
    cost = epsilon(score, data.budget.delta)
    if cost > data.budget.epsilon:
        raise BudgetError(
            f"party {site.name!r}: this score would cost epsilon = {cost} at delta = "
            f"{data.budget.delta}{_together(data.parties)}, and its budget is "
            f"{data.budget.epsilon}. Nothing was released. Ask for a less precise score."
        )
    if limit is None:
        return
    entries = [entry for entry in site.ledger.entries if entry.run != run]
    before = of_one_person(((entry.event for entry in entries), data.others))
    total = epsilon([*before, *score], limit.delta)
    if total > limit.epsilon:
        runs = ", ".join(sorted({entry.run for entry in entries})) or "none of its own"
        raise BudgetError(
            f"party {site.name!r} has already spent epsilon = {epsilon(before, limit.delta)} at "
            f"delta = {limit.delta}{_together(data.parties)} (run {runs}); with this score that "
            f"would be {total}, and the most that everything together may cost is "
            f"{limit.epsilon}. Nothing was released. Give the score a smaller budget, or a total "
            f"that every owner allows: total=Budget(epsilon={total}, delta={limit.delta})."
        )


def _together(parties: int) -> str:
    return f" over {parties} parties that hold the same people" if parties > 1 else ""


def _size(
    events: Sequence[Gaussian], site: Site[ScoredRows]
) -> tuple[tuple[Released[int], ...], tuple[Public[int], ...]]:
    n = site.rows.codes.num_rows
    if not events:
        return (), (Public(n, "the number of rows is public under replace-one"),)
    (event,) = events

    def draw() -> int:
        return int(mechanisms.add_gaussian(np.array([n]), event.sigma, entropy=site.entropy)[0])

    return (site.release(event, "number of rows", draw),), ()


HANDLERS: Handlers = {KeyRequest: send_key, ScoreTable: judge}
"""A party's side: which function answers which request."""


# What both sides compute


def priced(size_rho: float, score_rho: float, neighbours: Neighbours) -> list[Gaussian]:
    """A score's events: the number of rows, where it is private, and the distance."""
    units = [(score_rho, GRID * l1_score_sensitivity(neighbours) + 1)]  # rounding adds a step
    if unit := size_sensitivity(neighbours):
        units.insert(0, (size_rho, unit))
    return [Gaussian(gaussian_sigma(rho, unit), unit) for rho, unit in units]


def price_for(budget: Budget, parties: int) -> tuple[float, float]:
    """The zCDP of a party's number of rows and of its score: its share of the budget."""
    rho = rho_for(budget) / parties
    size = _SIZE_SHARE * rho if size_sensitivity(budget.neighbours) else 0.0
    return size, rho - size


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
        rows = [asdict(one) | {"columns": ", ".join(one.columns)} for one in self.parties]
        return frame_of(rows, list(rows[0]), self.frame)


# Coordinator


def ask_scores(
    session: Session,
    judged: Codes,
    asked: Sequence[Clique],
    price: tuple[float, float],
    neighbours: Neighbours,
    progress: Progress = silent,
) -> dict[str, tuple[list[Clique], PartyScore]]:
    """Ask every party for its score; returns the queries that each one answered, and its score.

    A party that codes a column differently from the synthetic table, or that holds the columns of
    no query, is named before anyone is asked for a score. `price` is from `price_for`.
    """
    held: dict[str, tuple[Clique, list[Clique]]] = {}
    for name, domain in zip(session.roster, session.ask(KeyRequest()), strict=True):
        theirs = sizes_of(name, domain)
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
        (reply,) = session.ask(ScoreTable(queries, shares, *price), [name])
        found[name] = (mine, _scored(name, columns, len(mine), reply, price, neighbours))
    progress("scored", 1.0)
    return found


def _scored(
    name: str,
    columns: Clique,
    queries: int,
    reply: Judgement,
    price: tuple[float, float],
    neighbours: Neighbours,
) -> PartyScore:
    rows = rows_sent(name, (*reply.noisy_rows, *reply.public_rows))
    error = reply.distance.value / GRID / rows
    *size, distance = priced(*price, neighbours)
    noise = distance.sigma / GRID / rows
    unsure = size[0].sigma / rows if size else 0.0
    spread = _SURE * sqrt(noise**2 + ((1 + abs(error)) * unsure) ** 2)
    return PartyScore(name, columns, queries, rows, error, error - spread, error + spread)


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
    job = Job(budget, seed, _of_parties(folder, parts), run, noise, progress)
    codes = _coded(parts, encoder, split, job)
    asked = _queries(queries, judged)
    before = _before(after, folder, run, codes)
    allowed = _allowed(budget, total, after)
    stores = {name: _stores_after(name, entries, allowed) for name, entries in before.items()}
    job = replace(job, total=allowed)
    found, entries = _run(codes, judged, asked, job, split, stores)
    old = {name: before.get(name, ()) for name in entries}  # as they were charged then
    ledgers = {name: (*old[name], *es[len(old[name]) :]) for name, es in entries.items()}
    paid = {name: [e for e in es if e.run == run] for name, es in ledgers.items()}
    scores = tuple(score for _, score in found.values())
    answered = {query for mine, _ in found.values() for query in mine}
    return FederatedScore(
        scores,
        float(np.average([one.error for one in scores], weights=[one.rows for one in scores])),
        tuple(query for query in asked if query not in answered),
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
    asked: Sequence[Clique],
    job: Job,
    split: str,
    stores: Mapping[str, PartyStores],
) -> tuple[dict[str, tuple[list[Clique], PartyScore]], dict[str, tuple[Entry, ...]]]:
    """Open the ledgers, let every party check what it is going to pay, then ask for the scores."""
    together = len(codes) if split == "columns" else 1
    rows = {name: ScoredRows(one, job.budget, together) for name, one in codes.items()}
    sides = {name: partial(_scoring_side, party_rows) for name, party_rows in rows.items()}
    with closing(direct_parties(sides, job, stores)) as carrier:
        carrier.open(job.run, b"")
        session = session_with(carrier, job, job.run)
        sites = {name: party.site(job.run) for name, party in carrier.parties.items()}
        if split == "columns":  # every party is sent what the others spent on the same people
            spent = {n: [e for e in s.ledger.entries if e.run != job.run] for n, s in sites.items()}
            for name, site in sites.items():
                apart = ([e.event for e in spent[other]] for other in spent if other != name)
                others = tuple(of_one_person(apart))
                site.rows = replace(site.rows, others=others)
        price, neighbours = price_for(job.budget, together), job.budget.neighbours
        for site in sites.values():  # all of them before the first one pays
            check_price(site, job.run, priced(*price, neighbours))
        found = ask_scores(session, judged, asked, price, neighbours, job.progress)
        return found, {name: site.ledger.entries for name, site in sites.items()}


def _scoring_side(rows: ScoredRows, party: Party, run: str, facts: bytes) -> PartySide:
    """Return a party's side of a score."""
    return PartySide(rows, HANDLERS)


def _check_budgets(budget: Any, total: Any) -> None:
    """Raise BudgetError for what is no budget, or has no bound."""
    for name, one in (("budget", budget), ("total", budget if total is None else total)):
        if not isinstance(one, Budget):
            raise BudgetError(f"{name}={one!r} is no Budget; give Budget(epsilon, delta)")
    if not budget.private:
        raise BudgetError("budget: a score adds noise and needs a finite epsilon; give one")


def _allowed(budget: Budget, total: Budget | None, after: Any) -> Budget:
    """Most that everything may cost; raises BudgetError where budgets cannot be added up."""
    others = {"total": total, "the budget of after": after.budget if after is not None else None}
    for name, other in others.items():
        if other is None or not other.private:  # what costs infinity adds up under any relation
            continue
        if not budget.protects_alike(other):
            raise BudgetError(
                f"budget: protects {budget.protected}, and {name} {other.protected}, so their "
                "costs do not add up. Give a budget of the same unit, rows_per_unit and relation."
            )
    return budget if total is None else total


def _before(
    after: Any, folder: Path | str | None, run: str, codes: Mapping[str, Codes]
) -> Mapping[str, tuple[Entry, ...]]:
    """What the ledgers hold of the fit or score that this one comes after."""
    if after is None:
        return {}
    if not isinstance(after, Fit | FederatedScore):
        raise InputError(f"after is a {type(after).__name__}; give a fit or a score of parties")
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
    if any(entry.run == run for entries in after.ledgers.values() for entry in entries):
        raise InputError(f"run={run!r} is in the ledgers already; give this score its own name")
    return after.ledgers


def _stores_after(name: str, entries: Sequence[Entry], limit: Budget) -> PartyStores:
    """What a party stores, in memory; its ledger holds what was charged before."""
    ledger = Ledger(name)
    for e in entries:
        ledger.charge(e.event, run=e.run, step=e.step, what=e.what, to=e.to)
    ledger.limit = limit
    return ledger, MemoryStore()


def _of_parties(folder: Path | str | None, parts: Mapping[str, Any]) -> Path | None:
    """The folder; raises RosterError if it holds ledgers of more parties than are scored."""
    if folder is None:
        return None
    number = len(list((Path(folder) / "parties").glob("*/ledger.jsonl")))
    if number > len(parts):
        raise RosterError(
            f"{folder} holds the ledgers of {number} parties, and data has {len(parts)} tables; "
            "give those of all parties, in the order of the fit"
        )
    return Path(folder)


def _judged(synthetic: Any, encoder: Encoder) -> tuple[Codes, Frame]:
    """The synthetic table's codes, and what kind of frame it was."""
    table = None if isinstance(synthetic, Codes) else read(synthetic)
    codes = synthetic if table is None else encoder.encode(table)
    require_rows(codes, "synthetic")
    return codes, "file" if table is None else table.frame


def _coded(parts: Mapping[str, Any], encoder: Encoder, split: str, job: Job) -> dict[str, Codes]:
    """Every party's rows that take part, as codes."""
    if split not in ("rows", "columns"):
        raise InputError(f'split={split!r} must be "rows" or "columns"')
    if not job.budget.by_row:
        check_unit(job.budget.unit, encoder.schema)
    found, owner = dict[str, Codes](), dict[str, str]()
    for index, (name, part) in enumerate(parts.items()):
        mine, table = encoder, part
        if isinstance(part, Codes):
            require_row(name, job.budget)
        else:
            with naming_party(name):
                table = rows_taking_part(part, split, encoder.schema, job, index)
        if split == "columns" and isinstance(table, Table):
            mine = encoder.select([n for n in encoder.schema.names if n in table.names])
        found[name] = coded_rows(name, table, mine)
        for column in found[name].domain.names if split == "columns" else ():
            if owner.setdefault(column, name) != name:
                raise SchemaError(f"column {column!r} is held by {owner[column]!r} and {name!r}")
    return found


def _queries(queries: Sequence[Sequence[str]] | None, judged: Codes) -> list[Clique]:
    domain = judged.domain
    if queries is None:
        return [c for size in (1, 2) for c in combinations(domain.names, size)]
    if not queries or not all(queries):
        raise InputError("queries is empty, or one of them; give at least one set of columns")
    return list(dict.fromkeys(domain.canonical(q) for q in queries))
