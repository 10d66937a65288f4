"""What the ledgers of a fit say when they are printed."""

from siloweave.core.fit import Ledgers
from siloweave.privacy.accountants import epsilon
from siloweave.privacy.events import Gaussian
from siloweave.privacy.ledger import Ledger


def test_the_epsilon_that_is_printed_is_that_of_a_row_wherever_it_lies():
    """With split columns a row is in all ledgers, and the largest of them is less than it costs."""
    entries = {}
    for name in ("north", "south"):
        ledger = Ledger(name)
        ledger.charge(Gaussian(10.0, 1.0), run="r", step="0", what="counts", to="coordinator")
        entries[name] = ledger.entries
    one, both = (epsilon([Gaussian(10.0, 1.0)] * times, 1e-6) for times in (1, 2))
    rows, columns = Ledgers(entries, 1e-6), Ledgers(entries, 1e-6, "columns")
    assert (rows.epsilon, columns.epsilon) == (one, both)
    assert f"largest epsilon {one:.2f}" in repr(rows)
    assert f"epsilon of a row over all {both:.2f}" in repr(columns)
    assert len(str(rows).splitlines()) == 2
    assert str(columns).splitlines()[-1].startswith(f"a row over all: epsilon {both:.2f}")


def test_towards_another_party_a_score_in_the_ledgers_counts_too():
    """Nothing was stated there once a ledger had a second run, and that is more than of a row.

    A score is a distance, which a replaced row moves by two units at once: as two counts it would
    cost half of what it does.
    """
    count = Gaussian(40.0, 1.0)
    entries = {}
    for name in ("north", "south", "west"):
        ledger = Ledger(name)
        for run in ("fit", "score"):
            ledger.charge(count, run=run, step="0", what="counts", to="coordinator")
        entries[name] = ledger.entries
    both = Ledgers(entries, 1e-6, "columns", same_people=True)
    # Two other parties release twice, and each release moves twice as far.
    assert both.epsilon_to_parties == epsilon([Gaussian(40.0, 2.0)] * 4, 1e-6) > both.epsilon
    fit = {name: party_entries[:1] for name, party_entries in entries.items()}
    one = Ledgers(fit, 1e-6, "columns", same_people=True)
    assert one.epsilon_to_parties == epsilon([count] * 4, 1e-6) < both.epsilon_to_parties


def test_less_than_three_decimals_is_rounded_up_to_what_was_spent():
    """Of 1e-06 allowed, 0.001 seemed spent."""
    ledger = Ledger("north")
    ledger.charge(Gaussian(1e5, 1.0), run="r", step="0", what="counts", to="coordinator")
    ledgers = Ledgers({"north": ledger.entries}, 1e-6)
    shown = repr(ledgers).split("largest epsilon ")[1].split(" ")[0]
    assert 0.0 < ledgers.epsilon <= float(shown) < 1.01 * ledgers.epsilon < 0.001
    assert f"epsilon {shown}, delta" in str(ledgers)
