"""What trainings by noisy sums of clipped gradients check before anything is paid or drawn.

DP-SGD: Abadi et al. 2016, "Deep learning with differential privacy"; the sums, their noise and
their price are in `privacy.shared_steps`.

**Guarantee**: none of its own. Everything here reads settings and messages, never a row.
"""

from __future__ import annotations

from math import ceil

from siloweave.errors import BudgetError, WireError
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.shared_steps import CLIPS, FINEST, WIDEST

MOST_NUMBERS = 2**25
"""Most numbers in a step's message, and in the vectors of one row."""

_BOUNDS = {
    "clip": CLIPS,
    "levels": (1, FINEST),
    "rate": (2.0**-64, 1.0),
    "share_sigma": (1.0, WIDEST * (1 + 1e-6)),
}


def refuse_unpayable(who: str, **sent: float) -> None:
    """Refuse a request with numbers that no event can have.

    Args:
        who: The party, for the message.
        sent: By name: `clip`, `levels`, `rate`, `share_sigma`.

    Raises:
        WireError: One is out of its bounds; names it.
    """
    for name, value in sent.items():
        least, most = _BOUNDS[name]
        if not least <= value <= most:
            raise WireError(
                f"{who}: {name}={value} cannot be paid for; it must lie between {least:g} and "
                f"{most:g}"
            )


def refuse_what_learns_nothing(
    budget: Budget, rho: float, steps: int, batch: int
) -> None:
    """Refuse a budget whose noise in a step would hide the clipped sum of a whole batch.

    Args:
        budget: The promise.
        rho: zCDP that is left for the steps.
        steps: How many.
        batch: Expected rows of a step; no more persons are in it, each of whom adds one clip at
            most, so that what is refused for rows is refused for persons too.

    Raises:
        BudgetError: With what would be feasible.
    """
    # Noise as large as one row.
    unit = 2.0 if budget.relation is Relation.REPLACE_ONE else 0.5
    step_rho = unit / batch**2  # of noise as large as the sum of a batch
    if rho >= steps * step_rho:
        return
    most = int(max(rho, 0.0) / step_rho)
    feasible = f"At most {most} steps are" if most else "Not even a single step is"
    raise BudgetError(
        f"epsilon = {budget.epsilon} at delta = {budget.delta} is too small for {steps} steps of "
        f"{batch} rows: the noise of a step would exceed the sum of all its clipped gradients. "
        f"{feasible} feasible; or take a batch of at least "
        f"{ceil((steps * unit / max(rho, 1e-300)) ** 0.5)}, or a larger epsilon. Nothing was read."
    )
