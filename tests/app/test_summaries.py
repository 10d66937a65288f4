"""What a run's summary adds up."""

import pytest

from siloweave.core.fit import epsilon_of_row
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import Gaussian
from siloweave.privacy.ledger import Ledger

DELTA = 1e-6


def ledgers(*sigmas):
    for i, sigma in enumerate(sigmas):
        ledger = Ledger(f"party {i}", limit=Budget(10.0, DELTA))
        ledger.charge(Gaussian(sigma=sigma, sensitivity=1.0), run="r", step="s", what="w", to="all")
        yield ledger.owner, ledger.entries


def test_parts_of_a_row_compose_and_rows_of_several_parties_do_not():
    events = [Gaussian(sigma=sigma, sensitivity=1.0) for sigma in (4.0, 8.0)]
    dearest, both = epsilon(events[:1], DELTA), epsilon(events, DELTA)
    assert epsilon_of_row(dict(ledgers(4.0, 8.0)), "rows", DELTA) == pytest.approx(dearest)
    assert epsilon_of_row(dict(ledgers(4.0, 8.0)), "columns", DELTA) == pytest.approx(both)
    assert dearest < both
