"""Who can see what of a run: the lines that a method states, and those that several methods share.

The observers are those of Bonawitz et al. 2017, "Practical secure aggregation for
privacy-preserving machine learning": a coordinator that follows the protocol and stores all that it
receives, the other parties, and readers of what is published.

**Guarantee**: nothing to protect. A line is text; a test compares the lines of every method with
the messages that cross.
"""

from __future__ import annotations

import msgspec


class View(msgspec.Struct, frozen=True):
    """One line of *who could see what*.

    Attributes:
        who: The observer.
        sees: What it sees.
        protected_by: What protects that; starts with "nothing" where something was released
            without noise.
        carries: The messages that bring it: fields of replies, such as ``"Counts.sums"``, or, in a
            line about the other parties, requests, such as ``"Round"``.
    """

    who: str
    sees: str
    protected_by: str
    carries: tuple[str, ...] = ()


Views = tuple[View, ...]
"""All lines of a method."""

# Observers.
COORDINATOR = "the coordinator"
OTHERS = "the other parties"

# What protects what they see.
NOTHING = "nothing"
NOISE = "noise, paid for in the ledger"
OTHERS_NOISE = f"{NOISE}; enough is left when a party subtracts its own share"
"""What protects noisy sums towards a party that added a share of the noise itself."""

CURATOR = View("the curator", "all rows", "nothing; it is trusted")
"""Where one party holds all rows."""
OWN_ROWS = View("each party", "its own rows", "no message carries them")
"""Where parties hold different rows."""
READERS = View("readers", "the model and the synthetic table", NOISE)
"""Where everything that parties release is noisy."""
BARE_READERS = View("readers", READERS.sees, "nothing: no noise was added")
"""Where nothing is noisy."""


def masked_sums(tolerated: int, what: str = "counts", *, dropouts: int = 0) -> View:
    """Return the line that says what the coordinator sees of masked sums.

    Up to `tolerated` parties may help it, and up to `dropouts` may vanish.
    """
    helpers = f"{tolerated} of them help the coordinator"
    if tolerated == 1:
        helpers = "1 of them helps the coordinator"
    if dropouts == 1:
        helpers += " and 1 vanishes"
    elif dropouts:
        helpers += f" and {dropouts} vanish"
    why = f"masks between every pair of parties, and noise: enough even if {helpers}"
    sees = f"sums of {what} over all parties that take part, with noise"
    return View(COORDINATOR, sees, why, ("Counts.sums",))


def openings(dropouts: int) -> Views:
    """Return the line that says what other parties see where a sum opens although some vanish."""
    sees = "who vanished from a sum, and their own shares of the others' masks"
    why = "a share is random; a sum opens by those of nearly all, and for one list of parties"
    if not dropouts:
        return ()
    return (View(OTHERS, sees, why, ("OpenSum",)),)


def own_columns(sent: str | None = None) -> View:
    """Return the line that says that each party sees only its own columns.

    `sent` names the one column of which a party sends the classes.
    """
    protection = "no message carries them as they are"
    if sent:
        protection += f", but for the classes of {sent!r}"
    return View("each party", "its own columns", protection)
