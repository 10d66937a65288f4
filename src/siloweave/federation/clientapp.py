"""A party's node where a site runs Flower's own SuperNode: an application that it starts.

The site installs siloweave beside its SuperNode, and says by the node's configuration where the
party's socket is:

    flower-supernode --node-config "siloweave-socket='/run/siloweave/party.sock'" ...

The bundle of a study's run names this module as its application and brings no code. But a SuperNode
runs whatever a SuperLink sends: run it where the party's files are not, as another user or in a
container, with the socket alone.

**Guarantee**: none of its own, see federation/frames.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from siloweave.errors import InputError
from siloweave.federation import flower

SOCKET = "siloweave-socket"
"""In a SuperNode's configuration: the path of the party's socket."""


def carry(message: Any, context: Any) -> Any:
    """Hand a message's frame to the party's socket, and return the party's answer as a reply.

    Args:
        message: Of Flower, with a sealed frame.
        context: Of Flower, with the node's configuration.

    Raises:
        InputError: The configuration names no socket.
    """
    path = context.node_config.get(SOCKET)
    if not isinstance(path, str):
        raise InputError(
            f"the SuperNode's configuration names no socket; start it with --node-config "
            f"\"{SOCKET}='/run/siloweave/party.sock'\""
        )
    return flower.handed_over(message, Path(path))


def __getattr__(name: str) -> Any:
    """Make Flower's application, `app`, only when Flower asks for it: others may lack Flower."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return flower.application_of(carry)
