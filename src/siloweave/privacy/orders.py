"""At which Renyi order a private training is read, when a noisy number of rows decides its noise.

A training that hides the number of rows first pays for a noisy one. The sampling rate, and with it
the noise that the budget needs, follow from that number. Divergences of one order add up whatever
follows from what; the least epsilon over several orders is no such sum, as which order gives it
depends on what was released. So every training is read at one order (sampled.py, `at_order`), and
this file says which: the best one for a reference rate, from the budget, the steps and the price of
the releases before them. All of these are public before anything is read (decision 0014).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from siloweave.errors import InputError
from siloweave.privacy.accountants import Tally
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.calibrate import falls_to
from siloweave.privacy.events import Event
from siloweave.privacy.sampled import WHOLE_ORDERS, at_order

__all__ = ["order_for"]

_RATE = 1 / 16  # a batch of 1024 out of 16,384 rows; decision 0014 has what other rates pay
_DROWNED = 1e6  # noise multiplier that shows what releases before the steps cost by themselves


def order_for(budget: Budget, *, steps: int, looks: Sequence[Event]) -> int | None:
    """The order at which a training is read whose rate follows from a noisy number of rows.

    Args:
        budget: the promise.
        steps: how many, >= 1.
        looks: events that are paid from the same budget, the number of rows among them.

    Returns:
        A whole order for the events of all steps; None where neighbours have the same number of
        rows, so that its noisy value has the same distribution on both: all readings hold there for
        each value of it.

    Raises:
        InputError: there are no steps.

    **Guarantee**: the order is a function of budget, steps and `looks`, all of which are fixed
    before anything is read. So the reading at this order (`sampled.at_order`) is an upper bound,
    however rate and noise follow from what was released.

    Example:
        >>> from siloweave.privacy.events import Gaussian
        >>> looks = [Gaussian(sigma=60.0, sensitivity=1.0)]
        >>> order_for(Budget(1.0, 1e-5), steps=500, looks=looks)
        18
    """
    if steps < 1:
        raise InputError(f"order_for: steps = {steps} must be at least 1.")
    if budget.relation is Relation.REPLACE_ONE:
        return None
    spent = Tally(looks)
    return _best(budget.epsilon, budget.delta - spent.delta, steps, spent.rho)


@lru_cache(maxsize=256)
def _best(epsilon: float, delta: float, steps: int, rho: float) -> int:
    """The order with which steps at the reference rate need the least noise."""

    def readings(multiplier: float) -> list[float]:
        paid = (((multiplier, 0.0, _RATE), steps),)
        return [at_order(order, rho, paid, delta) for order in WHOLE_ORDERS]

    least = falls_to(lambda multiplier: min(readings(multiplier)), epsilon)
    found = readings(least or _DROWNED)
    best: int = WHOLE_ORDERS[found.index(min(found))]
    return best
