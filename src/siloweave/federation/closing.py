"""The last message of a run: every party sends its ledger, as it stands after the run.

**Guarantee**: a ledger holds what was released and what that costs, and no value that came from
rows, so it may be sent. The coordinator checks it against the payments that it saw in replies: a
ledger that lacks one is refused, and names the party.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from siloweave.errors import WireError
from siloweave.federation import wire
from siloweave.federation.messages import Public, Reply, Request
from siloweave.privacy.ledger import Entry

if TYPE_CHECKING:
    from siloweave.federation.site import Site

__all__ = ["Close", "Closed", "Closing", "entries_in", "with_closing"]

Entries = tuple[Entry, ...]
_WHY = "a ledger holds no value that came from rows"


class Closed(Reply, frozen=True):
    """A party's ledger: its entries as JSON, and the hash of its last line."""

    entries: Public[bytes]
    head: Public[str]


class Close(Request[Closed], frozen=True, tag="run/close"):
    """Send your ledger; nothing follows in this run."""


@dataclass(frozen=True)
class Closing:
    """What a run's last message brought.

    Attributes:
        ledgers: Every party's entries, of this and earlier runs.
        heads: The hash of each ledger's last line.
    """

    ledgers: dict[str, Entries]
    heads: dict[str, str]


def closed(request: Close, site: Site[Any]) -> Closed:
    """The party's ledger, as it is."""
    text = msgspec.json.encode(site.ledger.entries)
    return Closed(Public(text, _WHY), Public(site.ledger.head, _WHY))


def with_closing(
    handlers: Mapping[type[Request[Any]], Callable[..., Reply]],
) -> dict[type[Request[Any]], Callable[..., Reply]]:
    """A party's side of a method, and of the message that ends every run."""
    return {**handlers, Close: closed}


def entries_in(party: str, reply: Closed, seen: set[str]) -> Entries:
    """A party's entries.

    Args:
        party: Who sent them.
        reply: As they came.
        seen: Hashes of the entries that paid for what the party sent before.

    Raises:
        WireError: They cannot be read, or one is missing that paid for a reply; names the party.
    """
    wire.check_json(reply.entries.value)
    try:
        entries = msgspec.json.decode(reply.entries.value, type=Entries)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise WireError(f"party {party!r} sent a ledger that cannot be read: {error}") from error
    missing = seen - {entry.hash for entry in entries}
    if missing:
        raise WireError(
            f"party {party!r} sent a ledger without the entry {min(missing)[:16]}, which paid for "
            "one of its replies. Compare the ledger at the party with the coordinator's receipts"
        )
    return entries
