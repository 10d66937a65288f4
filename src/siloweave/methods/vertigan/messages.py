"""VertiGAN: one generator whose trunk is the server's, with a head and a critic at every party.

Jiang, Zhang, Karakus & Unsal 2023, "Distributed GAN-Based Privacy-Preserving Publication of
Vertically-Partitioned Data", PVLDB 16(11); the setting as VertiMRF (Zhao et al., KDD 2024) runs it
for comparison. In every round the server sends hidden rows; each party takes several private
steps of its critic on its own real rows, one step of its head against the critic, and answers with
the slope of its loss at the hidden rows, which the trunk follows. Heads never leave; in the end
each party makes its own synthetic columns of the server's hidden rows.

**Guarantee** (dp): rows, add/remove or replace-one as the budget says, towards the server and
everyone who sees synthetic rows; towards the other parties under replace-one only, since each holds
the same people, so that for it no row can come or go, only change: read so, an add/remove budget of
1 is 1.6 with two parties and 2.0 with four, of 14 columns and 40,000 rows. Counts and sums of
clipped gradients are exact integers with exact discrete noise (privacy/exact_sums.py,
privacy/shared_steps.py); a party computes their sensitivity itself. One person's row lies at every
party, so what all parties release about it composes: the number of rows, which is common to all and
asked of the first party alone (public under replace-one); every party's column counts, told once a
run; and all critic steps of all parties, with one noise, the least for which all ledgers read
together keep to the budget; they are read at one Renyi order (privacy/orders.py). A party's share
is what its own ledger holds; before it trains it reads what all are going to pay together, and
refuses if that is beyond its limit. Head, slopes and synthetic columns are computed from the
private critic (post-processing). Noise, batches and what a row's loss draws come from the party's
own entropy, fresh in every round. Once a round is paid for nothing refuses it: networks that
diverged answer with slopes that are not finite, which the server refuses. Assumed public: schema,
bounds and bins, settings, roster,
and that rows are aligned. The server sees every slope, each of them paid for. With
``private=False`` or without a bound: none, and every ledger says so.

* The gradient penalty is of one real row and one generated row. The published replica adds the
  penalty's mean over the batch to each row's loss, so that one row moves every clipped gradient and
  the sum by up to twice the batch times the clip; nothing of its noise covers that.
* Heads start from the paid frequencies (``informed``), Adam takes the place of RMSprop.
* Rows are aligned, and yet no step uses it: a critic sees its own party's columns alone. That
  columns of two parties go together can only come of the trunk, and mostly it is chance.

How VertiGAN begins: a budget divided, columns counted, and what a party checks before it trains.

Jiang, Zhang, Karakus & Unsal 2023, see vertigan.py; how the budget is divided is ours. All parties
hold the same people, so what they release adds up, and the number of rows is common to all.

**Guarantee** (dp): of `counted`. Rows, add/remove or replace-one as the party's budget says,
towards everyone. Paid before it is drawn: the number of rows where it is asked (discrete Gaussian;
public under replace-one), and the counts of all the party's columns at once (discrete Gaussian; a
row is in at most one cell of each table of `ResolutionLevels`, so the joint L2 sensitivity is sqrt(tables),
times sqrt(2) under replace-one). Assumed public: schema and bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from siloweave.federation.expected import MOST_ROWS, WHOLE, CheckedReply
from siloweave.federation.messages import Array, Public, Released, Reply, Request
from siloweave.methods.dp_sgd.method import refuse_what_learns_nothing
from siloweave.methods.vertigan.party import (
    _LEAST_SIGMA,
    _ROWS_SHARE,
)
from siloweave.privacy.budget import Budget, Relation, marginal_sensitivity, size_sensitivity
from siloweave.privacy.calibrate import gaussian_sigma, rho_for
from siloweave.privacy.events import Event, Gaussian, rho_once
from siloweave.privacy.shared_steps import SharedSteps, order_for, plan_steps
from siloweave.tables.codes import Encoder
from siloweave.tables.levels import ResolutionLevels

if TYPE_CHECKING:
    pass


class Moved(Reply, frozen=True):
    """How the loss of the party's head changes with the hidden rows."""

    slope: Released[Array]


class TrainCritics(Request[Moved], frozen=True, tag="vertigan/train_critics"):
    """Train on these hidden rows."""

    number: int
    hidden: Array


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
        left = rho - sum(rho_once(event) for events in own for event in events)
        refuse_what_learns_nothing(budget, left, steps, batch)
        return cls(budget, rows_sigma, counts_sigma, own, steps, batch)

    def rate(self, rows: int) -> float:
        """Probability of each row to be in a step."""
        return min(1.0, self.batch / rows)

    @property
    def order(self) -> int | None:
        """The Renyi order at which the run is read, see privacy/orders.py."""
        return order_for(self.budget, steps=self.steps, looks=self._all)

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
