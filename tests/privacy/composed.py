"""Events in the vocabulary of `dp_accounting`: only what is proven about them, as an oracle."""

import dp_accounting
from dp_accounting import dp_event

from siloweave.privacy.events import order_of


def translated(event):
    """One event.

    There is no word for zCDP that is escaped with some probability, nor for a list that may be
    read at one order alone: these become an event that every accountant there refuses.
    """
    if order_of(event) is not None or event.delta > 0:
        return dp_event.UnsupportedDpEvent()
    single = event.dp_event()
    return single if event.count == 1 else dp_accounting.SelfComposedDpEvent(single, event.count)


def composed(events):
    """All events, adaptively one after the other."""
    return dp_accounting.ComposedDpEvent([translated(event) for event in events])
