"""All parties in one process, over the same bytes as the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from siloweave.errors import RosterError
from siloweave.federation.closing import with_closing
from siloweave.federation.site import Handlers, Site

__all__ = ["InProcess"]


class InProcess:
    """A transport that hands frames to sites in this process.

    Args:
        sites: The parties by name.
        handlers: The party's side of the algorithm that runs.
    """

    def __init__(self, sites: Mapping[str, Site[Any]], handlers: Handlers) -> None:
        self._sites = dict(sites)
        self._handlers = with_closing(handlers)

    def send(self, name: str, frame: bytes) -> bytes:
        """The site's answer to `frame`."""
        if name not in self._sites:
            raise RosterError(f"party {name!r} is not there; present are {sorted(self._sites)}")
        return self._sites[name].answer(frame, self._handlers)
