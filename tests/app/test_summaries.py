"""What a run's summary adds up."""

import pytest

from siloweave.app.ledgers import row_epsilon
from siloweave.privacy import Budget, Gaussian, Ledger
from siloweave.privacy.accountants import epsilon

DELTA = 1e-6


def ledgers(*sigmas):
    for i, sigma in enumerate(sigmas):
        ledger = Ledger(f"party {i}", limit=Budget(10.0, DELTA))
        ledger.charge(Gaussian(sigma=sigma, sensitivity=1.0), run="r", step="s", what="w", to="all")
        yield ledger


def test_parts_of_a_row_compose_and_rows_of_several_parties_do_not():
    events = [Gaussian(sigma=sigma, sensitivity=1.0) for sigma in (4.0, 8.0)]
    dearest, both = epsilon(events[:1], DELTA), epsilon(events, DELTA)
    assert row_epsilon(ledgers(4.0, 8.0), DELTA, "rows") == pytest.approx(dearest)
    assert row_epsilon(ledgers(4.0, 8.0), DELTA, "columns") == pytest.approx(both)
    assert dearest < both
