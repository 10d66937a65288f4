"""Who can see what of a run, and what protects it: declared by every method, never guessed.

The observers are those of Bonawitz et al. 2017, "Practical secure aggregation for
privacy-preserving machine learning": a coordinator that follows the protocol and keeps all it
receives, the other parties, and readers of what is published.

**Guarantee**: none of its own. A method declares its lines beside its other facts, as a function of
its settings; a test runs every method and holds its lines against the messages that crossed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

__all__ = [
    "AVERAGED",
    "BARE_OWNER",
    "BARE_READERS",
    "COORDINATOR",
    "CURATOR",
    "GUARANTEES",
    "NOISE",
    "NOTHING",
    "OTHERS",
    "OTHERS_NOISE",
    "OWN_ROWS",
    "READERS",
    "View",
    "Views",
    "bare_rounds",
    "by_name",
    "masked_sums",
    "own_columns",
]

Kind = TypeVar("Kind", bound=type[Any])

GUARANTEES = ("dp", "partial", "refuted", "none")
"""What a method may state."""


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

NOTHING = "nothing"  # what protects something,
NOISE = "noise, paid for in the ledger"  # or this does
COORDINATOR = "the coordinator"  # who sees it,
OTHERS = "the other parties"  # or these do
OTHERS_NOISE = f"{NOISE}, also when they take away their own share of it"
"""What protects noisy sums towards a party that added a share of the noise itself."""

CURATOR = View("the curator", "all rows", "nothing; it is trusted")
"""Where one party holds all rows."""

OWN_ROWS = View("each party", "its own rows", "no message carries them")
"""Where parties hold different rows."""

READERS = View("readers", "the model and the synthetic table", NOISE)
"""Where everything that left a party is noisy."""

BARE_READERS = View("readers", READERS.sees, "nothing: no noise was added")
"""Where nothing is."""

BARE_OWNER: Views = (
    CURATOR,
    View(
        "readers",
        "the model, exact shares of every column, the number of rows, and the synthetic table",
        BARE_READERS.protected_by,
        (
            "TrainedModel.model",
            "TrainedModel.features",
            "TrainedModel.one_way",
            "TrainedModel.rows",
        ),
    ),
)
"""A generator that the owner of all rows trains without noise."""


def masked_sums(tolerated: int, what: str = "counts") -> View:
    """The coordinator's line about sums over parties that hold different rows.

    Args:
        tolerated: Parties that may pool what they know with it.
        what: What is summed.
    """
    some = "1 of them helps it" if tolerated == 1 else f"{tolerated} of them help it"
    kept = f"masks between every pair of parties, and noise: enough even if {some}"
    sees = f"sums of {what} over all parties that take part, with noise"
    return View(COORDINATOR, sees, kept, ("Counts.sums",))


def bare_rounds(heard: str, told: str, heard_in: Sequence[str], told_in: Sequence[str]) -> Views:
    """Parties with different rows agree on encoders first, and nothing is noised (fed_tgan.py).

    Args:
        heard: What the coordinator sees besides statistics.
        told: What parties see of one another besides encoders.
        heard_in: Fields of the replies that bring it.
        told_in: Requests that bring it.
    """
    facts = "each party's number of rows and exact statistics of its columns"
    facts_in = ("Described.rows", "Described.columns", "Ready.sums")
    encoders = "how columns are encoded, by everyone's statistics"
    return (
        OWN_ROWS,
        View(COORDINATOR, f"{facts}, {heard}", NOTHING, (*facts_in, *heard_in)),
        View(OTHERS, f"{encoders}, and {told}", NOTHING, ("Prepare", *told_in)),
        BARE_READERS,
    )


AVERAGED = bare_rounds(
    "and its networks after every round",
    "the mean of all networks after every round",
    ("Trained.networks",),
    ("Round",),
)
"""Federated averaging without noise."""


def own_columns(told: str | None = None) -> View:
    """Where parties hold different columns.

    Args:
        told: A column whose classes its party sends.
    """
    but = f", but for the classes of {told!r}" if told else ""
    return View("each party", "its own columns", f"no message carries them as they are{but}")


def by_name(*kinds: Kind) -> Mapping[str, Kind]:
    """A registry of methods; one that does not say what it guarantees and shows is refused.

    What a class inherits does not count: what was true of another method need not be of this one.

    Raises:
        TypeError: A class lacks a fact of its own, or two have one name; names it.

    Example:
        >>> by_name(type("Silent", (), {}))
        Traceback (most recent call last):
        ...
        TypeError: Silent declares no `info` of its own; every method must
    """
    found: dict[str, Kind] = {}
    for kind in kinds:
        for fact in ("info", "visibility"):
            if fact not in vars(kind):
                raise TypeError(
                    f"{kind.__name__} declares no `{fact}` of its own; every method must"
                )
        info = kind.info
        if info.guarantee not in GUARANTEES:
            known = ", ".join(GUARANTEES)
            raise TypeError(f"{kind.__name__} has guarantee {info.guarantee!r}; it must be {known}")
        if info.name in found:
            raise TypeError(f"{kind.__name__} is called {info.name!r}, and so is another method")
        found[info.name] = kind
    return found
