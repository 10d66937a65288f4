"""The coordinator's side of a private central generator: divide the budget, ask, assemble.

Abadi et al. 2016, "Deep learning with differential privacy", for the training; how the budget is
divided is ours.

**Guarantee**: that of private_central.py. Here nothing reads rows; the owner's ledger has the last
word, and the noise multiplier is the least for which it reads at most the budget.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, ClassVar

import msgspec
import numpy as np

from siloweave.algorithms.generated import Generated
from siloweave.algorithms.one_owner import owner_of
from siloweave.algorithms.outcome import Cost
from siloweave.algorithms.private_central import (
    Counts,
    Method,
    Owned,
    Prices,
    Train,
    party,
    rows_in,
)
from siloweave.algorithms.private_counts import Look
from siloweave.algorithms.private_training import PrivateTraining, refuse_what_learns_nothing
from siloweave.algorithms.running import Job, Progress, in_process, required_rows, silent
from siloweave.federation.expected import WHOLE, Said
from siloweave.federation.messages import Array
from siloweave.federation.parties import Parties
from siloweave.privacy.budget import Budget
from siloweave.privacy.calibrate import gaussian_sigma, rho_for, sampled_multiplier
from siloweave.privacy.events import Event, rho_once
from siloweave.privacy.orders import order_for
from siloweave.tables.codes import Encoder
from siloweave.tables.grains import Grains
from siloweave.tables.outline import outline
from siloweave.tables.read import read
from siloweave.tables.schema import Schema

__all__ = ["Plan", "PrivateGenerator"]

_ROWS_SHARE = 0.01
_LEAST_SIGMA = 0.5


@dataclass(frozen=True)
class Plan:
    """How a budget is divided, before anything is read.

    Attributes:
        budget: Most that any row may cost.
        rows_sigma: Noise of the number of rows.
        counts_sigma: Noise of the counts.
        looks: The events of both.
        steps: Noisy steps of training.
        batch: Expected rows of a step.
    """

    budget: Budget
    rows_sigma: float
    counts_sigma: float
    looks: tuple[Event, ...]
    steps: int
    batch: int

    @classmethod
    def of(cls, budget: Budget, tables: int, *, share: float, steps: int, batch: int) -> Plan:
        """Divide a budget.

        Args:
            budget: Most that any row may cost.
            tables: Of counts, of all columns.
            share: Of the zCDP for the counts; a hundredth goes to the number of rows.
            steps: Noisy steps.
            batch: Expected rows of a step.

        Raises:
            BudgetError: It does not pay for the steps with noise that leaves any signal, whatever
                the number of rows; the message says what is feasible.
        """
        rho, prices = rho_for(budget), Prices(budget.relation)
        unit = prices.counts(tables, 1.0).sensitivity
        rows_sigma = max(_LEAST_SIGMA, gaussian_sigma(_ROWS_SHARE * rho, 1.0))
        counts_sigma = max(_LEAST_SIGMA, gaussian_sigma(share * rho, unit))
        looks = (*prices.rows(rows_sigma), prices.counts(tables, counts_sigma))
        plan = cls(budget, rows_sigma, counts_sigma, looks, steps, batch)
        left = rho - sum(rho_once(event) for event in looks)
        refuse_what_learns_nothing(budget, left, steps, batch)
        return plan

    def rate(self, rows: int) -> float:
        """Probability of each row to be in a step."""
        return min(1.0, self.batch / rows)

    def order(self, rows: int) -> int | None:
        """The Renyi order at which the run is read, see privacy/orders.py."""
        return order_for(
            self.budget,
            rate=self.rate(rows),
            steps=self.steps,
            looks=self.looks,
            rows_sigma=self.rows_sigma,
        )

    def multiplier(self, rows: int) -> float:
        """The least noise multiplier that keeps to the budget."""
        return sampled_multiplier(
            self.budget,
            rate=self.rate(rows),
            steps=self.steps,
            others=self.looks,
            order=self.order(rows),
        )


@dataclass(frozen=True)
class PrivateGenerator(PrivateTraining):
    """What all private central generators share.

    Args:
        target, settings, clip, counts_share, bins: See `PrivateTraining`.
    """

    method: ClassVar[type[Method]]

    @property
    def instead(self) -> str:
        """The generator without DP."""
        return "the same generator without DP"

    @abstractmethod
    def network(self) -> dict[str, Any]:
        """Settings of the model, as plain values; raises InputError if one is wrong."""

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong."""
        return {**self.shared(), **self.network()}

    def fit(
        self,
        data: Any,
        schema: Schema,
        *,
        budget: Budget,
        seed: int = 0,
        folder: Path | None = None,
        run: str = "run",
        noise: str = "os",
        progress: Progress = silent,
    ) -> Generated:
        """Train on one table.

        Args:
            data: The owner's table: a `Table`, frame or path; in a mapping of one name, the
                owner's ("curator" otherwise).
            schema: Public facts about the columns.
            budget: Most that any row may cost; all of it is spent.
            seed: First weights, and what is drawn without rows.
            folder: Keeps the ledger; an interrupted run goes on from there. In memory if None.
            run: Name of the run.
            noise: "os" for the operating system's entropy; "seeded" protects nothing.
            progress: Called with a text and the share that is done; no losses.

        Raises:
            BudgetError: The budget has no bound, or is too small for these settings; nothing is
                read. Or another run spent some of it.
            InputError: A setting is wrong, or there is no such target; nothing is read. Or the run
                was stopped with other settings or rows.
            SchemaError, DataError: The table does not fit the schema; nothing is released.
        """
        chosen, encoder = self.prepared(schema, budget)
        network, tables = self.network(), Grains(encoder).number
        steps = self.method.paid_steps(network)
        batch, share = int(network["batch"]), self.counts_share
        plan = Plan.of(budget, tables, share=share, steps=steps, batch=batch)
        limited = self.stated.guarantee == "dp"
        job = Job(budget, seed, folder, run, noise, progress, limited)
        return self._run(data, encoder, job, plan, chosen, network)

    def _run(
        self,
        data: Any,
        encoder: Encoder,
        job: Job,
        plan: Plan,
        chosen: dict[str, Any],
        network: dict[str, Any],
    ) -> Generated:
        owner, rows = owner_of(data)
        table, start = read(rows), time.perf_counter()
        required_rows(owner, table.num_rows)
        codes, relation = encoder.encode(table), job.budget.relation
        store = self.training_store(job)
        held = Owned(table, encoder, codes, relation, store, job.progress)
        handlers = party(self.method)
        with in_process({owner: held}, handlers, job, job.run) as (parties, sites):
            look, multiplier, model = self._ask(parties, encoder, job, plan, network)
            site = sites[owner]
            ledgers, head = {owner: tuple(site.ledger.entries)}, site.ledger.head
        if store is not None:  # the reply is kept: what it was made with, its secret, is not needed
            rmtree(store, ignore_errors=True)
        cost = Cost(parties.traffic, parties.rounds, {"training": time.perf_counter() - start})
        drawn = {"noise_multiplier": multiplier, "rate": plan.rate(look.rows)}
        return Generated(
            self.read_model(model),
            look.features(self.method.numeric),
            self.stated,
            job.budget,
            job.noise == "os" and self.stated.guarantee == "dp",
            {**chosen, **drawn},
            ledgers,
            {owner: head},
            cost,
            look.rows,
            outline(table),
            look.one_way,
        )

    def _ask(
        self, parties: Parties, encoder: Encoder, job: Job, plan: Plan, network: dict[str, Any]
    ) -> tuple[Look, float, bytes]:
        """Both questions: counts, then the model."""
        job.progress("counting", 0.0)
        (seen,) = parties.ask(Counts(plan.rows_sigma, plan.counts_sigma))
        (name,), cells = parties.roster, Grains(encoder).cells
        counts = Said(name).array("counts", seen.counts.value, WHOLE, (cells,)).astype(np.int64)
        look = Look(encoder, counts, plan.counts_sigma, rows_in(name, seen), job.seed)
        job.progress("finding the noise that fits the budget", 0.0)
        multiplier, rate = plan.multiplier(look.rows), plan.rate(look.rows)
        (trained,) = parties.ask(
            Train(
                msgspec.json.encode(network),
                self.clip,
                self.target,
                job.seed,
                Array.of(look.counts, "<i8"),
                look.sigma,
                look.rows,
                rate,
                multiplier,
                plan.order(look.rows),
            )
        )
        return look, multiplier, trained.model.value
