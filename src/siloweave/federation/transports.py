"""Two transports on one machine, over the same bytes as the network.

`InProcess` hands frames to sites in this process. `Processes` runs every party in an
operating-system process of its own, over a socket pair, with no state shared: frames cross, and
before them the public facts of the study. It shows that a coordinator needs no more than its
session; a network replaces the pair by an engine. Each side sends one byte for the kind and eight
for the length before its data.

**Guarantee**: none of its own; a party answers frames as over any transport. Its table is handed to
the site or its process at the start, which a network never does: both are simulations.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from siloweave.errors import RosterError
from siloweave.federation import messages
from siloweave.federation.messages import Refusal
from siloweave.federation.session import with_closing
from siloweave.federation.site import Handlers, Site

START, KEY, ROSTER, FRAME, RECALL, REFUSED = (bytes([i]) for i in range(1, 7))
_HEAD = 9  # bytes before the data: its kind, and its length
_PATIENCE_S = 30.0  # for a process to end


def _absent(name: str, present: Mapping[str, Any]) -> RosterError:
    return RosterError(f"party {name!r} is not there; present are {sorted(present)}")


class InProcess:
    """A transport that hands frames to sites in this process, by the parties' names."""

    def __init__(self, sites: Mapping[str, Site[Any]], handlers: Handlers) -> None:
        self._sites = dict(sites)
        self._handlers = with_closing(handlers)

    def send(self, name: str, frame: bytes) -> bytes:
        """The site's answer to `frame`."""
        if name not in self._sites:
            raise _absent(name, self._sites)
        return self._sites[name].answer(frame, self._handlers)


class Channel:
    """One end of a pair of sockets that carries kinds of data; `close` closes the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, kind: bytes, data: bytes) -> None:
        """Send data of a kind."""
        self._end.sendall(kind + len(data).to_bytes(_HEAD - 1, "big") + data)

    def receive(self) -> tuple[bytes, bytes]:
        """The next kind and data; both are empty where the other end was closed."""
        head = self._exactly(_HEAD)
        if len(head) < _HEAD:
            return b"", b""
        return head[:1], self._exactly(int.from_bytes(head[1:], "big"))

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._end.recv(min(size - len(found), 2**20))
            if not piece:
                return b""
            found += piece
        return bytes(found)


class Processes:
    """A transport over processes of this machine, each ``python -m module FILE-DESCRIPTOR``.

    `starts` is what each party's process is started with, by name. RosterError if a process ended
    before it sent its key.
    """

    def __init__(self, starts: Mapping[str, bytes], module: str) -> None:
        self._lines: dict[str, Channel] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        try:
            for name, start in starts.items():
                self._lines[name] = self._started(module)
                self._lines[name].send(START, start)
            self.keys: Mapping[str, bytes] = {name: self._answer(name) for name in starts}
            """Every party's public key."""
        except BaseException:
            self.close()
            raise

    def _started(self, module: str) -> Channel:
        mine, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", module, str(theirs.fileno())]
            found = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            self._running.append(
                subprocess.Popen(command, pass_fds=[theirs.fileno()], env=found)  # noqa: S603
            )
        return Channel(mine)

    def introduce(self, terms: bytes) -> None:
        """Give every party what it must know of the study besides its own facts: the roster."""
        for name, line in self._lines.items():
            line.send(ROSTER, terms)
            self._answer(name)

    def send(self, name: str, frame: bytes) -> bytes:
        """The party's answer to `frame`."""
        if name not in self._lines:
            raise _absent(name, self._lines)
        self._lines[name].send(FRAME, frame)
        return self._answer(name)

    def recall(self, name: str, key: str, run: str) -> bytes | None:
        """What a party remembers under `key` in a run; only a simulation may look."""
        self._lines[name].send(RECALL, msgspec.msgpack.encode((key, run)))
        return self._answer(name) or None

    def close(self) -> None:
        """End all processes."""
        for line in self._lines.values():
            line.close()
        for process in self._running:
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answer(self, name: str) -> bytes:
        kind, data = self._lines[name].receive()
        if kind == REFUSED:
            raise messages.decode(data, Refusal).error()
        if not kind:
            raise RosterError(f"party {name!r} is gone; its process ended without an answer")
        return data

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
