"""What networks share whose every step is paid for, wherever the rows lie.

DP-SGD (Abadi et al. 2016, "Deep learning with differential privacy") needs a clip, a share of the
budget for the look at the columns, and enough budget for its steps; all of it is checked before
anything is read.

**Guarantee**: none of its own; nothing here reads a row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from siloweave.algorithms.one_owner import OneOwner
from siloweave.errors import BudgetError, InputError, number, whole
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import SampledGaussian, rho_once
from siloweave.privacy.shared_steps import CLIPS
from siloweave.tables.codes import Encoder
from siloweave.tables.schema import Schema

__all__ = ["PrivateTraining", "refuse_what_learns_nothing"]


@dataclass(frozen=True)
class PrivateTraining(OneOwner):
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

    @property
    @abstractmethod
    def instead(self) -> str:
        """What keeps no bound and is otherwise the same, in words."""

    @abstractmethod
    def chosen(self) -> dict[str, Any]:
        """All settings, as plain values; raises InputError if one is wrong."""

    def shared(self) -> dict[str, Any]:
        """Those of them that are listed here; raises InputError if one is wrong."""
        number("clip", self.clip, *CLIPS)
        number("counts_share", self.counts_share, 0, 0.9, "(]")
        whole("bins", self.bins, 1)
        if not isinstance(self.settings, Mapping):
            raise InputError(f"settings={self.settings!r} must be a mapping from names to values")
        own = {"clip": self.clip, "counts_share": self.counts_share, "bins": self.bins}
        return {"target": self.target, **own}

    def prepared(self, schema: Schema, budget: Budget) -> tuple[dict[str, Any], Encoder]:
        """All settings, and the bins that will be counted.

        Raises:
            BudgetError: The budget has no bound.
            InputError: A setting is wrong, there is no such target, or no column to learn.
        """
        if not isinstance(budget, Budget):
            raise InputError(f"budget={budget!r} is no Budget; give Budget(epsilon, delta)")
        if not budget.private:
            raise BudgetError(
                f"{self.info.title} needs a finite epsilon, and budget has none. Use "
                f"{self.instead} to go without a guarantee."
            )
        chosen, encoder = self.chosen(), Encoder(schema, self.bins)
        self.check_schema(schema)
        return chosen, encoder


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
    unit = rho_once(SampledGaussian(1.0, 1.0, replaced, 1))  # at noise as large as one row
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
