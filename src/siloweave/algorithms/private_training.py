"""What networks share that are trained under a budget: settings, the plan, and the fit.

DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy") over the rows of one owner or
of several: private_rounds.py trains both, and a central training is its one-party case. All that
the budget cannot pay for is refused before anything is read.

**Guarantee**: that of private_rounds.py. Here nothing reads rows but to check them and to put them
into public bins; ledgers have the last word, and the noise is the least for which they read at most
the budget.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, ClassVar

from siloweave.algorithms.arguments import needed_budget
from siloweave.algorithms.generated import Generated, Model
from siloweave.algorithms.look import Part
from siloweave.algorithms.networks import settings_of
from siloweave.algorithms.one_owner import OneOwner
from siloweave.algorithms.outcome import Cost
from siloweave.algorithms.private_rounds import (
    PrivateKind,
    PrivatePlan,
    PrivateResult,
    party,
    private_rounds,
)
from siloweave.algorithms.rows_split import RowsSplit, held_by
from siloweave.algorithms.running import (
    Job,
    PartySide,
    Progress,
    Recipe,
    named_parties,
    opened,
    silent,
)
from siloweave.errors import BudgetError, InputError, number, whole
from siloweave.federation.session import Session
from siloweave.federation.site import Handlers
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.calibrate import rho_for
from siloweave.privacy.shared_steps import CLIPS
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.read import Table
from siloweave.tables.schema import Schema

if TYPE_CHECKING:
    from siloweave.models.stepwise import Stepwise

__all__ = [
    "PrivateGAN",
    "PrivateTraining",
    "check_affordable",
    "law_of",
    "refuse_what_learns_nothing",
]

_COORDINATOR, _BEGUN = "coordinator", "begun.mark"  # whose folder remembers how a run began


@dataclass(frozen=True)
class PrivateTraining(OneOwner[Generated]):
    """Settings of a network that is trained under a budget.

    Args:
        target: A column whose classes are told to the model; only for one that takes a target.
        settings: Of the model and its training, as a mapping; defaults for the rest.
        clip: Largest norm of a row's gradient.
        counts_share: Share of the budget's zCDP for the counts of columns, in (0, 0.9].
        bins: Equal-width bins of a numeric column that are counted, and so are bins of 16, 256 ...
            of them together.
    """

    target: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    clip: float = 1.0
    counts_share: float = 0.1
    bins: int = 4096
    base: ClassVar[type[RowsSplit]]

    @property
    def missed(self) -> int:
        """Shares of the noise that the claim does without."""
        return 0

    @property
    @abstractmethod
    def instead(self) -> str:
        """What keeps no bound and is otherwise the same, in words."""

    @abstractmethod
    def network(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of the whole, and steps and batch; raises InputError if one is wrong."""

    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong."""
        own = self.shared()
        made, _ = self.network()
        return {**own, **made}

    def shared(self) -> dict[str, Any]:
        """Those of them that are listed here; raises InputError if one is wrong."""
        number("clip", self.clip, *CLIPS)
        number("counts_share", self.counts_share, 0, 0.9, "(]")
        whole("bins", self.bins, 1)
        if not isinstance(self.settings, Mapping):
            raise InputError(f"settings={self.settings!r} must be a mapping from names to values")
        own = {"clip": self.clip, "counts_share": self.counts_share, "bins": self.bins}
        return {"target": self.target, **own}

    def prepared(self, schema: Schema) -> tuple[dict[str, Any], Encoder]:
        """All settings, and the bins that will be counted.

        Raises:
            InputError: A setting is wrong, there is no such target, or no column to learn.
        """
        chosen, encoder = self.chosen(), Encoder(schema, self.bins)
        self.check_schema(schema)
        return chosen, encoder

    @property
    def kind(self) -> PrivateKind:
        """What is trained."""
        return PrivateKind(self.info.title, self.base.numeric, self.training)

    @classmethod
    def training(
        cls,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        shares: Mapping[int, Sequence[float]] | None,
    ) -> Stepwise:
        """What trains on vectors of these features, see `private_rounds.Kind`; a diffusion."""
        from siloweave.models.stepwise import DiffusionSteps

        learner: Any = cls.base.learner(features, settings, target)
        return DiffusionSteps(learner, law_of(features, target, shares))

    @classmethod
    def settings_type(cls) -> Any:
        """The dataclass of its settings."""
        return cls.base.settings_type()

    @classmethod
    def load(cls, path: Path) -> Model:
        """Read a model that was saved."""
        return cls.base.load(path)

    def party_side(
        self,
        stage: str,
        name: str,
        table: Table,
        schema: Schema,
        *,
        budget: Budget,
        parties: int,
        **_: Any,
    ) -> PartySide:
        """A party's data, its handlers, and the facts that it is given."""
        encoder = Encoder(schema, self.bins)
        plan = self.plan(encoder, budget)
        facts = plan.facts(plan.look(rho_for(budget), parties))
        return Part(table, encoder, encoder.encode(table)), self.handlers(), facts

    def handlers(self) -> Handlers:
        """A party's side; `Site.rows` is its `Part`."""
        return party(self.kind)

    def finished(self, parties: Session, left: PrivateResult, seed: int) -> Any:
        """The model that samples, from what the rounds left."""
        return left.network

    def moves(self, weights: int) -> tuple[int, int]:
        """Questions and bytes of a party that a run will take, roughly."""
        _, trained = self.network()
        steps = int(trained["steps"])
        return 4 + steps, 2 * 4 * weights * steps

    def plan(
        self, encoder: Encoder, budget: Budget, seed: int = 0, progress: Progress = silent
    ) -> PrivatePlan:
        """What the coordinator is to do."""
        whole, trained = self.network()
        steps, batch = int(trained["steps"]), int(trained["batch"])
        facts = (self.counts_share, self.clip, steps, batch, self.missed, seed, progress)
        return PrivatePlan(encoder, whole, self.target, budget, *facts)

    @property
    def tolerates(self) -> int:
        """Parties that may pool what they know with the coordinator."""
        return max(self.missed, 1)

    def allowed(self, budget: Budget | None) -> Budget:
        """The budget; raises BudgetError where there is none, or one without a bound."""
        found = needed_budget(self.info.title, budget)
        if not found.private:
            raise BudgetError(
                f"{self.info.title} needs a finite epsilon, and budget has none. Use "
                f"{self.instead} to go without a guarantee."
            )
        return found

    def arranged(self, data: Any, names: Sequence[str] | None) -> Any:
        """The tables by party."""
        return data if names is None else named_parties(data, names)

    def fitted(self, data: Any, schema: Schema, job: Job, names: Sequence[str] | None) -> Generated:
        """Train; see `fit`."""
        data = self.arranged(data, names)
        chosen, encoder = self.prepared(schema)
        plan = self.plan(encoder, job.budget, job.seed, job.progress)
        check_affordable(plan, len(data) if isinstance(data, list | tuple | Mapping) else 1)
        start, handlers = time.perf_counter(), self.handlers()
        holdings, like = held_by(data, schema, None)
        held = {n: Part(h.table, encoder, encoder.encode(h.table)) for n, h in holdings.items()}
        store = self.training_store(job, _COORDINATOR)
        if store is not None:
            (store / _BEGUN).touch()  # from here on other settings are refused by name
        event = plan.look(rho_for(job.budget), len(held))
        job = replace(job, facts=plan.facts(event))
        tables, recipe = {n: h.table for n, h in holdings.items()}, Recipe.of(self, schema)
        line = opened(held, handlers, job, job.run, recipe, tables, transcribed=False)
        with line as (parties, _):
            left = private_rounds(parties, self.kind, plan, event)
            model = self.base.model(self.finished(parties, left, job.seed))
            closing = parties.close()
        if store is not None:
            rmtree(store, ignore_errors=True)
        cost = Cost(parties.traffic, parties.rounds, {"training": time.perf_counter() - start})
        drawn = {"noise_multiplier": left.noise.multiplier, "rate": left.rate}
        drawn |= {"share_sigma": left.noise.share_sigma, "levels": left.noise.levels}
        return Generated(
            model, left.features, self.stated, job.budget,
            job.noise == "os" and self.stated.guarantee == "dp", {**chosen, **drawn},
            closing.ledgers, closing.heads, cost, left.look.rows, like, left.look.one_way,
        )  # fmt: skip


@dataclass(frozen=True)
class PrivateGAN(PrivateTraining):
    """A GAN whose critic alone meets real rows; the generator follows the critic.

    Args:
        target, settings, clip, counts_share, bins: See `PrivateTraining`; it takes no target.
    """

    @classmethod
    def settings_type(cls) -> Any:
        """The dataclass of its settings."""
        from siloweave.models.settings import PrivateGANSettings

        return PrivateGANSettings

    @classmethod
    def training(
        cls,
        features: Features,
        settings: dict[str, Any],
        target: str | None,
        shares: Mapping[int, Sequence[float]] | None,
    ) -> Stepwise:
        """The GAN, its conditions by these frequencies."""
        from siloweave.models.private_gan import GANSteps

        return GANSteps(settings_of(cls.settings_type(), settings), features.blocks, shares)


def law_of(
    features: Features, target: str | None, shares: Mapping[int, Sequence[float]] | None
) -> Sequence[float] | None:
    """How frequent each class of a target is, by the paid counts; None where it is not known."""
    starts = [block.start for block in features.blocks if block.column == target]
    return shares[starts[0]] if shares and starts else None


def check_affordable(plan: PrivatePlan, parties: int) -> None:
    """Refuse a budget with which the noise of a step would hide a whole batch's clipped sum.

    Args:
        plan: What is to be done.
        parties: How many there are.

    Raises:
        BudgetError: With what would be feasible; nothing was read.
    """
    rho = rho_for(plan.budget)
    left = rho - plan.look(rho, max(parties, 1)).rho
    refuse_what_learns_nothing(plan.budget, left, plan.steps, plan.batch)


def refuse_what_learns_nothing(budget: Budget, left: float, steps: int, batch: int) -> None:
    """Refuse a budget with which the noise of a step would hide a whole batch's clipped sum.

    Args:
        budget: The promise.
        left: zCDP that is left for the steps.
        steps: How many.
        batch: Expected rows of a step.

    Raises:
        BudgetError: With what would be feasible.
    """
    replaced = budget.relation is Relation.REPLACE_ONE
    unit = 2.0 if replaced else 0.5  # zCDP of a step at noise as large as one row
    one = unit / batch**2
    if left >= steps * one:
        return
    most = int(max(left, 0.0) / one)
    can = f"At most {most} steps are" if most else "Not even a single step is"
    raise BudgetError(
        f"epsilon = {budget.epsilon} at delta = {budget.delta} is too small for {steps} steps of "
        f"{batch} rows: the noise of a step would exceed the sum of all its clipped gradients. "
        f"{can} feasible; or take a batch of at least "
        f"{ceil((steps * unit / max(left, 1e-300)) ** 0.5)}, or a larger epsilon. Nothing was read."
    )
