"""FLAIM's public settings, and the noise that a budget buys with them.

Maddock, Cormode & Maple 2024 (KDD 2024), section 4.3.

**Guarantee**: reads no row. The numbers here are a plan; what binds is every party's ledger, which
charges each release by itself. With r the Gaussian share, rho what the noisy party sizes leave,
and J the rounds that a row pays for, a round has s selections at epsilon = sqrt(8 (1 - r) rho /
(J s)), and

* Naive, Oracle: sigma = sqrt((J (2 s - 1) + d) / (2 r rho)): d one-ways once, s central and s - 1
  local measurements a round;
* Private: sigma = sqrt(J (2 s - 1 + d) / (2 r rho)): d one-ways every round.

The paper has J = T: every row is charged for all rounds, though it takes part in a tenth of them.
With `cap`, a party joins at most that many rounds, so J = cap. A row lives at one party, so the
rows of parties that sit out a round pay nothing for it (parallel composition over disjoint rows).
Who joins when is drawn before the run, from the roster and the key alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal

from msgspec.structs import replace

from siloweave.algorithms.visibility import (
    COORDINATOR,
    NOTHING,
    OTHERS,
    OTHERS_NOISE,
    OWN_ROWS,
    READERS,
    View,
    Views,
    masked_sums,
)
from siloweave.errors import InputError, number, whole

__all__ = ["FLAIMPlan", "FLAIMSettings"]

Variant = Literal["private", "naive", "oracle", "random", "naive_bayes"]


@dataclass(frozen=True)
class FLAIMSettings:
    """Public settings of FLAIM.

    Attributes:
        variant: "private" is AugFLAIM (Private); "oracle" is without any guarantee.
        rounds: T; None anneals as AIM does, starting from 8 d.
        participation: Probability p with which a party joins a round.
        local_steps: s, choices per party and round.
        cap: Most rounds that a party joins; the parties are then spread evenly over the rounds
            and `participation` is not used. None charges every row for every round.
        gaussian_share: r, share of the budget for measurements.
        size_share: Share of the budget for a party's noisy number of rows.
        tolerated: Parties of a cohort that may pool what they know with the coordinator.
        max_model_mb: Bound on the junction tree, at 8 bytes a cell.
        sweeps, final_sweeps, shrinkage: Of the fits, see models/estimate.py.
    """

    variant: Variant = "private"
    rounds: int | None = 10
    participation: float = 0.1
    local_steps: int = 1
    cap: int | None = None
    gaussian_share: float = 0.9
    size_share: float = 0.02
    tolerated: int = 1
    max_model_mb: float = 80.0
    sweeps: int = 10
    final_sweeps: int = 60
    shrinkage: float = 0.5

    def __post_init__(self) -> None:
        for name in ("participation", "gaussian_share"):
            number(name, getattr(self, name), 0, 1, "(]")
        for name in ("rounds", "local_steps", "cap"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        whole("tolerated", self.tolerated, 1)
        if self.cap is not None and not (self.rounds and 1 <= self.cap <= self.rounds):
            raise InputError(
                f"cap={self.cap} must lie between 1 and a fixed number of rounds, not {self.rounds}"
            )
        if self.cap is not None and self.variant not in ("private", "naive_bayes"):
            raise InputError(f"cap={self.cap} works with 'private' and 'naive_bayes' only")
        number("max_model_mb", self.max_model_mb, 0, inf, "()")
        number("size_share", self.size_share, 0, 1, "()")

    @property
    def chooses(self) -> bool:
        """Whether parties choose queries by the exponential mechanism."""
        return self.variant in ("private", "naive", "oracle")

    @property
    def visibility(self) -> Views:
        """Who sees what of a run."""
        seen = [masked_sums(self.tolerated)]
        told = "where columns are cut, and which queries are counted"
        told_in: tuple[str, ...] = ("Count",)
        if self.chooses:
            how = "the exponential mechanism, paid for in the ledger"
            seen.append(
                View(COORDINATOR, "which queries each party chose", how, ("Chosen.indices",))
            )
            told, told_in = (
                f"{told}; the model of every round",
                (*told_in, "Select", "MeasureQueries"),
            )
        if self.variant != "oracle":
            others = View(OTHERS, told, OTHERS_NOISE, told_in)
            return (OWN_ROWS, *seen, others, READERS)
        why = "nothing: exact counts decide what is measured"
        exact = View(COORDINATOR, "exact counts of each party", NOTHING, ("Exact.tables",))
        others = View(OTHERS, f"{told}; exact shares over all rows", why, told_in)
        readers = replace(READERS, protected_by=why)
        return (OWN_ROWS, *seen, exact, others, readers)


@dataclass
class FLAIMPlan:
    """Noise of the next round and what a row that joined every round has paid."""

    settings: FLAIMSettings
    columns: int
    unit: float
    rho: float
    sigma: float = 0.0
    epsilon: float = 0.0
    spent: float = 0.0

    def __post_init__(self) -> None:
        rounds = self.settings.cap or self.settings.rounds or 8 * self.columns
        first = 0 if self.every_round else self.columns
        share = self.settings.gaussian_share if self.settings.chooses else 1.0
        self.sigma = self.unit * sqrt((rounds * self.gaussians + first) / (2 * share * self.rho))
        steps = self.settings.local_steps
        self.epsilon = sqrt(8 * (1 - share) * self.rho / (rounds * steps))
        self.spent = first * self.unit**2 / (2 * self.sigma**2)

    @property
    def every_round(self) -> bool:
        """Whether the one-ways are measured in every round."""
        return self.settings.variant in ("private", "naive_bayes")

    @property
    def gaussians(self) -> int:
        """Measurements of a row in one round."""
        s = self.settings.local_steps
        per = {"private": 2 * s - 1 + self.columns, "naive_bayes": self.columns, "random": 1}
        return per.get(self.settings.variant, 2 * s - 1)

    @property
    def round_cost(self) -> float:
        """zCDP of a row in one round."""
        selections = self.settings.local_steps * self.epsilon**2 / 8
        return self.gaussians * self.unit**2 / (2 * self.sigma**2) + selections

    def last(self, t: int) -> bool:
        """Whether round `t` is the last; when annealing, it takes all that is left."""
        if self.settings.rounds is not None:
            return t + 1 >= self.settings.rounds
        left = self.rho - self.spent
        if left >= 2 * self.round_cost:
            return False
        grow = sqrt(left / self.round_cost)
        self.sigma, self.epsilon = self.sigma / grow, self.epsilon * grow
        return True
