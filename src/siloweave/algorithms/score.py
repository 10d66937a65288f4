"""Scores over real rows inside a federation: how far a synthetic table is from every party's rows.

The measure is the workload error of Maddock, Cormode & Maple 2024, "FLAIM" (KDD 2024):
the mean L1 distance of normalised marginals. A score computed from rows is a release like any
other, and repeated exact scores give rows away (Ganev & De Cristofaro 2023, "On the inadequacy of
similarity-based privacy metrics"), so each is paid for.

Rows split or columns split: a party is asked about those queries whose columns it holds. Its score
is one number, so it takes little budget. A pair of columns that lie at two parties is listed as
not measured. The coordinator's side is in scored.py, and what a user calls in score_parties.py.

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
  such shares as there are parties keep to it. The parties know who is in the table; towards them
  only the reading under replace-one holds.
* Fit and scores: a score that is charged to a fit's ledgers, or says `after` which fit it comes,
  composes with all that these hold. A party refuses a score with which all of it together, over
  all parties where columns are split, would cost more than the total that is allowed.

Assumed public: the synthetic table (whoever made it from rows paid for it), queries, schema, and
which party holds which columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, fsum

import numpy as np
import numpy.typing as npt

from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation.expected import MOST_ROWS
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.site import Handlers, Site
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import (
    Budget,
    Relation,
    l1_score_sensitivity,
    size_sensitivity,
)
from siloweave.privacy.calibrate import gaussian_sigma, rho_for
from siloweave.privacy.events import Event, Gaussian
from siloweave.protocols.secure_sums import KeyRequest, send_key
from siloweave.statistics.marginals import marginal
from siloweave.tables.codes import Clique, Codes, Domain

__all__ = [
    "GRID",
    "PARTY",
    "Judgement",
    "ScoreTable",
    "ScoredRows",
    "check_price",
    "judge",
    "price_for",
    "priced",
]

GRID = 1024
"""Steps of a distance that make one count."""

_SIZE_SHARE = 0.5  # of the budget, for the number of rows
_CLOSE = 1e-4  # how far from 1 shares may add up in the floats that they travel in


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
    """What a party brings to a score: its rows, and what the study allows. No message changes it.

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
    check_price(site, site.context.rpartition("/")[0], [*size_event, event])
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


def _shares(request: ScoreTable, site: Site[ScoredRows]) -> list[npt.NDArray[np.float64]]:
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
            raise _malformed(
                site, f"the query {query}", f"it must list columns of {domain.names} in this order"
            )
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
    relation = site.rows.budget.relation
    if not size_sensitivity(relation) and request.size_rho != 0:
        found = f"size_rho = {request.size_rho}"
        raise _malformed(site, found, "it must be 0, as the number of rows is public")
    try:
        events = priced(request.size_rho, request.score_rho, relation)
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
    before = [*(entry.event for entry in entries), *data.others]
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
        noisy = mechanisms.add_gaussian(np.array([n]), event.sigma, entropy=site.entropy)
        return int(noisy[0])

    return (site.release(event, "number of rows", draw),), ()


# A party's side: which function answers which request.
PARTY: Handlers = {KeyRequest: send_key, ScoreTable: judge}


# What both sides compute


def _moves(relation: Relation) -> float:
    """How many steps of the grid one row moves a mean distance by."""
    return GRID * l1_score_sensitivity(relation) + 1


def priced(size_rho: float, score_rho: float, relation: Relation) -> list[Gaussian]:
    """A score's events: the number of rows, where it is private, and the distance."""
    units = [(score_rho, _moves(relation))]
    if unit := size_sensitivity(relation):
        units.insert(0, (size_rho, unit))
    return [Gaussian(gaussian_sigma(rho, unit), unit) for rho, unit in units]


def price_for(budget: Budget, parties: int) -> tuple[float, float]:
    """The zCDP of a party's number of rows and of its score: its share of the budget."""
    rho = rho_for(budget) / parties
    size = _SIZE_SHARE * rho if size_sensitivity(budget.relation) else 0.0
    return size, rho - size
