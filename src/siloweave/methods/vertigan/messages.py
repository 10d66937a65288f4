"""What VertiGAN sends (Jiang et al. 2023), and how its budget is divided over all parties.

Settings travel in no message: every party has those of its own study, and from them and its budget
it computes the same plan as the coordinator. How the budget is divided is ours.

**Guarantee**: see method.py. A plan follows from public facts alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from msgspec import UNSET, UnsetType

from siloweave.federation.expected import CheckedReply
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.methods.vertigan.settings import VertiGANFitSettings
from siloweave.models.settings import VertiGANSettings
from siloweave.privacy.budget import (
    Budget,
    Relation,
    gaussian_sigma,
    rho_for,
    size_sensitivity,
)
from siloweave.privacy.events import Event, Gaussian, SampledSharedGaussian
from siloweave.privacy.sampled import at_order
from siloweave.privacy.shared_steps import SharedSteps, moved, order_for, plan_steps
from siloweave.protocols.histograms import counts_event
from siloweave.protocols.private_steps import refuse_what_learns_nothing
from siloweave.tables.arrays import Matrix
from siloweave.tables.codes import Encoder, ResolutionLevels
from siloweave.tables.schema import Schema

_ROWS_SHARE = 0.01  # of the zCDP for the number of rows
_LEAST_SIGMA = 0.5
_FINITE = "finite; where training diverged, lower critic_rate and generator_rate"


class Counted(Reply, frozen=True):
    """How many rows there are, paid for or public, and every column's noisy counts."""

    # From the first party, where their number is private.
    paid_rows: tuple[Released[int], ...]
    known_rows: tuple[Public[int], ...]  # from the first party, where it is public
    counts: Released[Array]  # of all columns at all resolution levels


class CountOwnColumns(Request[Counted], frozen=True, tag="vertigan/count_columns"):
    """Count your rows, if you are the first party, and the codes of your columns, with noise."""


class VertiGANReady(Reply, frozen=True):
    """A confirmation that both were made, with the number of rows where nothing is hidden."""

    rows: tuple[Released[int], ...]
    ready: Public[bool]


class BeginVertiGAN(Request[VertiGANReady], frozen=True, tag="vertigan/begin"):
    """Make two networks: a head, which draws your columns, and a critic, which judges them."""

    seed: int  # what is drawn without rows
    # As they were counted; 0, and so is all below, for training without noise.
    rows: int = 0
    levels: int = 0  # units of a sum that make one `clip`
    share_sigma: float = 0.0  # noise of every step, in units
    # Numbers of a step at the party that has the most; all pay for so many.
    dimension: int = 0


class Moved(Reply, frozen=True):
    """How the loss of the party's head changes with the hidden rows."""

    slope: Released[Array]


class TrainCritics(Request[Moved], frozen=True, tag="vertigan/train_critics"):
    """Train on these hidden rows, (made, units of the trunk's last layer)."""

    number: int
    hidden: Array


def like_hidden(
    name: str, field: str, array: Array, settings: VertiGANSettings
) -> Matrix:
    """Check hidden rows or slopes; raises WireError unless the settings' shape is theirs."""
    shape = (settings.made, settings.trunk[-1])
    return CheckedReply(name).reals(field, array, shape, finite=_FINITE)


_SOME_RHO = 1e3  # so much that a reading of it is not cut off at 0


@dataclass(frozen=True)
class VertiGANPlan:
    """The division of a budget, which is fixed before anything is read."""

    budget: Budget  # most that any row may cost, at all parties together
    counts_sigma: float  # noise of all counts
    # Each party's releases before, in roster order.
    before: Mapping[str, tuple[Gaussian, ...]]
    steps: int  # noisy steps of all parties
    batch: int  # expected rows of a step

    @classmethod
    def of(
        cls, synth: VertiGANFitSettings, parts: Mapping[str, Schema], budget: Budget
    ) -> VertiGANPlan:
        """Divide a budget: a hundredth of the zCDP counts rows, `counts_share` columns; then steps.

        `parts` are every party's columns, in roster order.

        Raises:
            BudgetError: It does not pay for the steps with noise that leaves any signal, whatever
                the number of rows.
        """
        rho = rho_for(budget)
        neighbours = budget.neighbours

        # A row is once in every table of counts, at whichever party: one noise for all of them.
        tables = {}
        for name, schema in parts.items():
            tables[name] = ResolutionLevels(Encoder(schema, synth.finest_bins)).number
        unit = counts_event(neighbours, sum(tables.values()), 1.0).sensitivity
        counts_sigma = max(_LEAST_SIGMA, gaussian_sigma(synth.counts_share * rho, unit))
        before: dict[str, tuple[Gaussian, ...]] = {}
        for name, number in tables.items():
            before[name] = (counts_event(neighbours, number, counts_sigma),)

        # The first party counts the rows for all, where their number is private.
        first = next(iter(before))
        rows_sensitivity = size_sensitivity(neighbours)
        if rows_sensitivity:
            sigma = max(
                _LEAST_SIGMA, gaussian_sigma(_ROWS_SHARE * rho, rows_sensitivity)
            )
            rows_event = Gaussian(sigma=sigma, sensitivity=rows_sensitivity)
            before[first] = (rows_event, *before[first])

        spent = sum(event.rho for event in chain.from_iterable(before.values()))
        steps = len(parts) * synth.steps
        refuse_what_learns_nothing(budget, rho - spent, steps, synth.batch)
        return cls(budget, counts_sigma, before, steps, synth.batch)

    def rate(self, rows: int) -> float:
        """Return the probability with which each row is in a step."""
        return min(1.0, self.batch / rows)

    @property
    def order(self) -> int | None:
        """The Renyi order at which the ledgers are read, see `privacy.shared_steps.order_for`."""
        return order_for(self.budget, steps=self.steps, others=self._all)

    def noise(self, rows: int, dimension: int) -> SharedSteps:
        """Return the least noise of a step that keeps to the budget, for so many released rows."""
        return plan_steps(
            self.budget, rate=self.rate(rows), steps=self.steps, shares=1, tolerated=0,
            dimension=dimension, others=self._all, order=self.order,
        )  # fmt: skip

    def begin(self, seed: int, rows: int, dimension: int) -> BeginVertiGAN:
        """Build the request that begins the training, with noise that keeps to the budget."""
        noise = self.noise(rows, dimension)
        return BeginVertiGAN(seed, rows, noise.levels, noise.share_sigma, dimension)

    def ledgers(
        self, request: BeginVertiGAN, count: int
    ) -> dict[str, tuple[Event, ...]]:
        """Return all events that each party releases, with so many critic steps."""
        step = self.steps_event(request, count)
        return {name: (*events, step) for name, events in self.before.items()}

    def steps_event(self, request: BeginVertiGAN, count: int) -> Event:
        """Return the event of so many critic steps; InputError for numbers that no event has."""
        order = self.order
        ledger_order: int | UnsetType = UNSET if order is None else order
        return SampledSharedGaussian(
            share_sigma=request.share_sigma,
            shares=1,
            tolerated=0,
            sensitivity=moved(request.levels, request.dimension),
            dimension=request.dimension,
            sampling_rate=self.rate(request.rows),
            replace_one=self.budget.relation is Relation.REPLACE_ONE,
            count=count,
            order=ledger_order,
        )

    @property
    def most_of_others(self) -> float:
        """The most that all parties but one release together, for any number of rows.

        Rows are added or removed, and everything is read at `order`: all steps cost at most what
        the budget leaves there beside the counts, and each party takes as many of them.
        """
        order = self.order
        delta = self.budget.delta
        assert order is not None
        # What delta alone adds to the reading at an order.
        beside = at_order(order, _SOME_RHO, (), delta) - order * _SOME_RHO
        costs = [
            order * sum(event.rho for event in events)
            for events in self.before.values()
        ]
        steps = max(0.0, self.budget.epsilon - beside - sum(costs))
        parties = len(costs)
        others = sum(costs) - min(costs) + steps * (parties - 1) / parties
        return max(0.0, others + beside)

    @property
    def _all(self) -> tuple[Gaussian, ...]:
        """The events of all parties before the training."""
        return tuple(chain.from_iterable(self.before.values()))
