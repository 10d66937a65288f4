"""What a ledger's limit leaves, by trial."""

import math

from siloweave.privacy.accountants import Tally
from siloweave.privacy.budget import rho_for
from siloweave.privacy.events import Gaussian


def left(ledger):
    """The largest zCDP, within 0.1 percent, that fits beside what is in the ledger."""

    def fits(rho):
        asked = Tally(ledger.events)
        asked.add(Gaussian(sigma=1.0, sensitivity=math.sqrt(2 * rho)))
        return asked.epsilon(ledger.limit.delta) <= ledger.limit.epsilon

    low, high = 0.0, rho_for(ledger.limit)
    least = 1e-6 * high
    while high - low > max(1e-3 * low, least):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
