"""How VertiGAN begins: a budget divided, columns counted, and what a party checks before it trains.

Jiang, Zhang, Karakus & Unsal 2023, see vertigan.py; how the budget is divided is ours. All parties
hold the same people, so what they release adds up, and the number of rows is common to all.

**Guarantee** (dp): of `counted`. Rows, add/remove or replace-one as the party's budget says,
towards everyone. Paid before it is drawn: the number of rows where it is asked (discrete Gaussian;
public under replace-one), and the counts of all the party's columns at once (discrete Gaussian; a
row is in at most one cell of each table of `ResolutionLevels`, so the joint L2 sensitivity is
sqrt(tables), times sqrt(2) under replace-one). Assumed public: schema and bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import sqrt
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from siloweave.algorithms.columns_split import ColumnsPart
from siloweave.algorithms.networks import settings_of
from siloweave.algorithms.private_begin import MOST_NUMBERS, json_in, refuse_unpayable
from siloweave.algorithms.private_training import refuse_what_learns_nothing
from siloweave.algorithms.secure_sum import relation_of
from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation.expected import MOST_ROWS, WHOLE, CheckedReply
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.federation.site import Site
from siloweave.privacy import mechanisms
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget, Relation, marginal_sensitivity, size_sensitivity
from siloweave.privacy.calibrate import gaussian_sigma, rho_for
from siloweave.privacy.events import Event, Gaussian, SampledSharedGaussian
from siloweave.privacy.shared_steps import SharedSteps, moved, order_for, plan_steps
from siloweave.tables.codes import Encoder
from siloweave.tables.levels import ResolutionLevels
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.settings import VertiGANSettings

__all__ = [
    "BeginVertiGAN",
    "CountOwnColumns",
    "Counted",
    "VertiGANPlan",
    "VertiGANReady",
    "check_prices",
    "checked",
    "counted",
    "counts_in",
    "priced",
    "rows_in",
    "settings_in",
    "steps_event",
]

_ROWS_SHARE = 0.01
_LEAST_SIGMA = 0.5
_MOST_BINS = 2**20


# Messages


class Counted(Reply, frozen=True):
    """How many rows there are, paid for or public, and every column's noisy counts."""

    paid_rows: tuple[Released[int], ...]
    known_rows: tuple[Public[int], ...]
    counts: Released[Array]


class CountOwnColumns(Request[Counted], frozen=True, tag="vertigan/count_columns"):
    """Count your rows, and the codes of every column, with discrete Gaussian noise.

    Attributes:
        rows_sigma: Of the number of rows, which is not asked for where this is None.
        counts_sigma: Of the counts.
        bins: Equal-width bins of a column of numbers.
    """

    rows_sigma: float | None
    counts_sigma: float
    bins: int


class VertiGANReady(Reply, frozen=True):
    """Networks are there; the number of rows where nothing is hidden."""

    rows: tuple[Released[int], ...]
    ready: Public[bool]


class BeginVertiGAN(Request[VertiGANReady], frozen=True, tag="vertigan/begin"):
    """Make a head and a critic.

    Attributes:
        settings: Of the networks, as JSON.
        seed: What is drawn without rows.
        clip: Largest norm of a row's gradient; 0 for training without noise.
        rows: As they were counted.
        rate: Probability of each row to be in a step.
        levels: Units of a sum that make one `clip`.
        share_sigma: Noise of every step, in units.
        dimension: Numbers of a step at the party that has the most; all pay for so many.
        order: The Renyi order at which all is read, see privacy/orders.py.
        prices: What every party is going to release, its counts included.
    """

    settings: bytes
    seed: int
    clip: float = 0.0
    rows: int = 0
    rate: float = 0.0
    levels: int = 0
    share_sigma: float = 0.0
    dimension: int = 0
    order: int | None = None
    prices: dict[str, tuple[Event, ...]] = msgspec.field(default_factory=dict)


def rows_in(party: str, seen: Counted) -> int:
    """How many rows a party said that it has, at least 1; raises WireError if it does not."""
    told = [*(one.value for one in seen.paid_rows), *(one.value for one in seen.known_rows)]
    (rows,) = CheckedReply(party).items("numbers of rows", told, count=1)
    return max(1, CheckedReply(party).number("rows", rows, least=-MOST_ROWS, most=MOST_ROWS))


def counts_in(party: str, seen: Counted, encoder: Encoder) -> npt.NDArray[np.int64]:
    """The noisy counts of a party's columns; raises WireError if they are none."""
    cells = ResolutionLevels(encoder).cells
    return CheckedReply(party).array("counts", seen.counts.value, WHOLE, (cells,)).astype(np.int64)


# Prices


def _rows_events(relation: Relation, sigma: float) -> list[Event]:
    """Of the number of rows; none where it is public."""
    moved = size_sensitivity(relation)
    return [Gaussian(sigma=sigma, sensitivity=moved)] if moved else []


def _counts_event(relation: Relation, tables: int, sigma: float) -> Gaussian:
    """Of tables of counts, released together: every row is in one cell of each, or in none."""
    return Gaussian(
        sigma=sigma, sensitivity=sqrt(tables) * marginal_sensitivity(relation, norm="l2")
    )


@dataclass(frozen=True)
class VertiGANPlan:
    """How a budget is divided, before anything is read.

    Attributes:
        budget: Most that any row may cost, at all parties together.
        rows_sigma: Noise of the number of rows.
        counts_sigma: Noise of all counts.
        looks: What each party releases before the training, in roster order.
        steps: Noisy steps of all parties.
        batch: Expected rows of a step.
    """

    budget: Budget
    rows_sigma: float
    counts_sigma: float
    looks: tuple[tuple[Event, ...], ...]
    steps: int
    batch: int

    @classmethod
    def of(
        cls, budget: Budget, tables: Sequence[int], *, share: float, steps: int, batch: int
    ) -> VertiGANPlan:
        """Divide a budget.

        Args:
            budget: Most that any row may cost.
            tables: Of counts, of each party's columns.
            share: Of the zCDP for the counts; a hundredth goes to the number of rows, which the
                first party is asked for.
            steps: Noisy steps of all parties.
            batch: Expected rows of a step.

        Raises:
            BudgetError: It does not pay for the steps with noise that leaves any signal, whatever
                the number of rows; the message says what is feasible.
        """
        rho, relation = rho_for(budget), budget.relation
        unit = _counts_event(relation, sum(tables), 1.0).sensitivity
        rows_sigma = max(_LEAST_SIGMA, gaussian_sigma(_ROWS_SHARE * rho, 1.0))
        counts_sigma = max(_LEAST_SIGMA, gaussian_sigma(share * rho, unit))
        looks: list[list[Event]] = [[_counts_event(relation, n, counts_sigma)] for n in tables]
        looks[0] = [*_rows_events(relation, rows_sigma), *looks[0]]
        own = tuple(tuple(events) for events in looks)
        left = rho - sum(event.rho for events in own for event in events)
        refuse_what_learns_nothing(budget, left, steps, batch)
        return cls(budget, rows_sigma, counts_sigma, own, steps, batch)

    def rate(self, rows: int) -> float:
        """Probability of each row to be in a step."""
        return min(1.0, self.batch / rows)

    @property
    def order(self) -> int | None:
        """The Renyi order at which the run is read, see privacy/orders.py."""
        return order_for(self.budget, steps=self.steps, others=self._all)

    def noise(self, rows: int, dimension: int) -> SharedSteps:
        """The least noise of every step that keeps to the budget.

        Args:
            rows: How many there are, as it was released.
            dimension: Numbers in a step, at most.
        """
        return plan_steps(
            self.budget, rate=self.rate(rows), steps=self.steps, shares=1, tolerated=0,
            dimension=dimension, others=self._all, order=self.order,
        )  # fmt: skip

    @property
    def _all(self) -> tuple[Event, ...]:
        return tuple(event for events in self.looks for event in events)


# Party


def counted(request: CountOwnColumns, site: Site[ColumnsPart]) -> Counted:
    """Pay for the number of rows, where it is asked, then for the counts of all columns at once."""
    entropy, sigma, relation = site.entropy, request.rows_sigma, relation_of(site)
    _check(request, site)
    table, encoder = site.rows.table, Encoder(site.rows.schema, request.bins)
    n, levels, codes = table.num_rows, ResolutionLevels(encoder), encoder.encode(table)

    def number() -> int:
        assert sigma is not None
        exact = np.array([n], dtype=np.int64)
        return int(mechanisms.add_gaussian(exact, sigma, entropy=entropy)[0])

    def counts() -> Array:
        exact = levels.count(codes)
        noisy = mechanisms.add_gaussian(exact, request.counts_sigma, entropy=entropy)
        return Array.of(noisy, "<i8")

    priced = [] if sigma is None else _rows_events(relation, sigma)
    paid = tuple(site.release(event, "number of rows", number) for event in priced)
    known = () if paid or sigma is None else (Public(n, "neighbours have the same number of rows"),)
    event = _counts_event(relation, levels.number, request.counts_sigma)
    what = f"counts of {len(codes.columns)} columns in {levels.number} tables"
    return Counted(paid, known, site.release(event, what, counts))


def _check(request: CountOwnColumns, site: Site[ColumnsPart]) -> None:
    """Refuse noise that cannot be drawn, and bins beyond all use, before anything is paid."""
    sigmas = [s for s in (request.rows_sigma, request.counts_sigma) if s is not None]
    if not all(0.1 <= sigma <= 2**40 for sigma in sigmas) or not 1 <= request.bins <= _MOST_BINS:
        raise WireError(
            f"party {site.name!r}: rows_sigma={request.rows_sigma}, "
            f"counts_sigma={request.counts_sigma} and bins={request.bins} cannot be used; noise "
            f"lies between 0.1 and 2**40, bins between 1 and {_MOST_BINS:,}"
        )
    site.terms.require(site.name, private=True, bins=request.bins)
    first = next(iter(site.terms.roster)) == site.name
    if (plan := own_plan(site)) is not None:
        known = (plan.rows_sigma if first else None, plan.counts_sigma)
        if (request.rows_sigma, request.counts_sigma) != known:
            raise WireError(
                f"party {site.name!r} was asked to count with noise {request.rows_sigma} and "
                f"{request.counts_sigma}; the study's budget leads to {known[0]} and {known[1]}"
            )


def checked(request: BeginVertiGAN, site: Site[ColumnsPart]) -> VertiGANSettings:
    """The settings, if the party can hold and finish what they ask for, and pay for its noise.

    Raises:
        WireError: Whatever is wrong with the request; names the party.
    """
    who = f"party {site.name!r}"
    own = json_in(request.settings, who)
    if not isinstance(own, dict):
        raise WireError(f"{who} was sent settings that are not a mapping")
    site.terms.require(site.name, private=bool(request.clip), **own)
    if request.clip:
        site.terms.require(site.name, clip=request.clip)
    try:
        settings = settings_in(request.settings)
    except (InputError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise WireError(f"{who} cannot train with these settings: {error}") from error
    layers = (settings.noise, *settings.trunk, *settings.head, *settings.critic)
    most = max(layers) ** 2
    if max(most, settings.made * max(layers), settings.steps) > MOST_NUMBERS:
        raise WireError(f"{who}: networks, hidden rows or steps are more than it takes")
    if not request.clip:
        return settings
    refuse_unpayable(
        who, clip=request.clip, levels=request.levels, rate=request.rate,
        share_sigma=request.share_sigma,
    )  # fmt: skip
    if not (1 <= request.dimension <= MOST_NUMBERS and 1 <= request.rows <= MOST_ROWS):
        raise WireError(f"{who}: dimension={request.dimension} or rows={request.rows} cannot be")
    return settings


def own_plan(site: Site[ColumnsPart]) -> VertiGANPlan | None:
    """The plan that the study's public facts lead to; None where the party has no bound.

    Which party holds which columns, the settings and the budget are all that it follows from, so a
    party believes no price that it is sent.
    """
    limit, facts = site.ledger.limit, site.terms.facts
    if limit is None or not limit.private:
        return None
    from siloweave.models.settings import VertiGANSettings

    settings = VertiGANSettings(**{f.name: facts[f.name] for f in fields(VertiGANSettings)})
    parts: Mapping[str, Schema] = facts["parts"]
    tables = [
        ResolutionLevels(Encoder(parts[name], facts["bins"])).number for name in site.terms.roster
    ]
    steps, share = len(tables) * settings.steps, facts["counts_share"]
    return VertiGANPlan.of(limit, tables, share=share, steps=steps, batch=settings.batch)


def check_prices(
    request: BeginVertiGAN, site: Site[ColumnsPart], settings: VertiGANSettings
) -> None:
    """Refuse to train where all parties together would go beyond this party's limit."""
    run, limit, count = site.context.rpartition("/")[0], site.ledger.limit, settings.steps
    if (plan := own_plan(site)) is not None:
        step = steps_event(request, site, count)
        known = {n: (*own, step) for n, own in zip(site.terms.roster, plan.looks, strict=True)}
        if request.prices != known or request.order != plan.order:
            raise WireError(
                f"party {site.name!r}: the prices that it is sent do not follow from the study"
            )
    mine = (
        *(e.event for e in site.ledger.entries if e.run == run),
        steps_event(request, site, count),
    )
    if mine != tuple(request.prices.get(site.name, ())):
        raise WireError(f"party {site.name!r}: what it is said to pay is not what it pays")
    if limit is None:
        return
    total = epsilon([e for events in request.prices.values() for e in events], limit.delta)
    if total > limit.epsilon:
        raise BudgetError(
            f"party {site.name!r}: all parties together would release epsilon = {total} at delta "
            f"= {limit.delta} about a row, more than the limit of {limit.epsilon}. Nothing was "
            "trained. Plan fewer steps or more noise."
        )


def steps_event(request: BeginVertiGAN, site: Site[ColumnsPart], count: int) -> Event:
    """So many critic steps; raises WireError where they are no event."""
    try:
        return priced(request, relation_of(site), count)
    except InputError as error:
        raise WireError(f"party {site.name!r}: {error}") from error


def priced(request: BeginVertiGAN, relation: Relation, count: int) -> Event:
    """What so many critic steps cost; raises InputError where there is no such event."""
    return SampledSharedGaussian(
        share_sigma=request.share_sigma,
        shares=1,
        tolerated=0,
        sensitivity=moved(request.levels, request.dimension),
        dimension=request.dimension,
        sampling_rate=request.rate,
        replace_one=relation is Relation.REPLACE_ONE,
        count=count,
        order=UNSET if request.order is None else request.order,
    )


def settings_in(data: bytes) -> VertiGANSettings:
    """Settings as they travel; raises InputError where they are none."""
    from siloweave.models.settings import VertiGANSettings

    return settings_of(VertiGANSettings, msgspec.json.decode(data))
