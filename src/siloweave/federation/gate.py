"""The gate of a SuperLink of ours: how much of what comes over the network is held in memory.

Flower reads a request's whole body before it looks who sent it, so that a hundred strangers who
send slowly take a gigabyte. Here a body is read before Flower is asked, and only so many bytes of
all: few and little of those who have not signed as a node that was let in, for a short time; and
of nodes what fits beside what others send at the moment, while the rest waits in the network.

**Guarantee**: bodies in memory have at most `Lane.total_bytes` bytes in each of both lanes, however
many connect. A connection itself takes memory, too: the system bounds how many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Headers = Mapping[bytes, bytes]
"""A request's headers, by their names in lower case."""

# Of HTTP (RFC 9110, section 15).
_TOO_LATE = 408
_TOO_LARGE = 413
_BUSY = 503


@dataclass
class Lane:
    """The room that requests of one kind share.

    Attributes:
        largest: Most bytes of one body.
        total_bytes: Most bytes of all bodies at a time.
        at_once: Requests at a time, from the first byte of a body until the answer.
        seconds: For a body to come.
        waits: Whether what does not fit waits for room, or is refused.
    """

    largest: int
    total_bytes: int
    at_once: int
    seconds: float
    waits: bool
    _count: int = 0  # requests in the lane
    _used: int = 0  # bytes of their bodies
    _room: asyncio.Condition = field(default_factory=asyncio.Condition)

    def _fits(self, size: int) -> bool:
        """Return whether there is room for a body of this size."""
        return self._count < self.at_once and self._used + size <= self.total_bytes

    async def enter(self, size: int) -> bool:
        """Take room for a body, and return whether there was any; some lanes wait for it."""
        async with self._room:
            if not self.waits and not self._fits(size):
                return False
            await self._room.wait_for(lambda: self._fits(size))
            self._count += 1
            self._used += size
        return True

    async def leave(self, size: int) -> None:
        """Return a body's room to the lane."""
        async with self._room:
            self._count -= 1
            self._used -= size
            self._room.notify_all()


def for_strangers() -> Lane:
    """Return the lane of requests without the signature of a node that was let in."""
    return Lane(largest=2**16, total_bytes=2**20, at_once=16, seconds=10.0, waits=False)


def for_nodes(largest: int) -> Lane:
    """Return the lane of nodes that were let in, and of the coordinator's process."""
    return Lane(
        largest=largest,
        total_bytes=32 * largest,
        at_once=2000,
        seconds=120.0,
        waits=True,
    )


class Gate:
    """An ASGI application that hands whole bodies, of a bounded total size, to another one.

    Args:
        app: The application.
        is_known: Whether a request's headers are signed by a node that was let in.
        nodes: The lane of those.
        strangers: The lane of all others.
    """

    def __init__(
        self,
        app: Any,
        is_known: Callable[[Headers], bool],
        nodes: Lane,
        strangers: Lane,
    ) -> None:
        self._app = app
        self._is_known = is_known
        self._nodes = nodes
        self._strangers = strangers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        lane = self._nodes if self._is_known(headers) else self._strangers

        # A body without a length (chunked) could grow without end, so that it is refused as well.
        announced = headers.get(b"content-length", b"")
        if not announced.isdigit() or int(announced) > lane.largest:
            await refuse(send, _TOO_LARGE)
            return
        size = int(announced)

        # Room is taken before a byte is read, and for the whole of what was announced.
        if not await lane.enter(size):
            await refuse(send, _BUSY)
            return
        try:
            try:
                body = await asyncio.wait_for(_body(receive), lane.seconds)
            except TimeoutError:
                # Who sends slowly would hold its room for ever.
                await refuse(send, _TOO_LATE)
                return
            if body is not None:  # else the other end has left
                await self._app(scope, _replayed(body, receive), send)
        finally:
            await lane.leave(size)


async def refuse(send: Any, status: int) -> None:
    """Answer a request with a status alone, and close its connection."""
    headers = [(b"connection", b"close"), (b"content-length", b"7")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"refused"})


async def _body(receive: Any) -> bytes | None:
    """Read a body, whose announced length the server enforces; None if it breaks off."""
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] == "http.disconnect":
            return None
        body += part.get("body", b"")
        if not part.get("more_body"):
            return bytes(body)


def _replayed(body: bytes, receive: Any) -> Any:
    """Return a receiving function that gives the body first, and then what else comes."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Any:
        return parts.pop() if parts else await receive()

    return received
