"""A tiny HTTP proxy of plain sockets: it answers CONNECT, and carries bytes both ways."""

import socket
import threading
from contextlib import contextmanager, suppress

from tests.federation.engines import shut


class Connecting:
    """What a proxy was asked, and how it answers: with `status`, or by a tunnel if that is 200.

    `hosts` are addresses by name that this proxy alone can tell.
    """

    def __init__(self, status=200, word=b"", hosts=None):
        self.status, self.word, self.heads, self.port = status, word, [], 0
        self.hosts = hosts or {}

    def meet(self, end):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = end.recv(1)
            if not piece:
                return
            head += piece
        self.heads.append(head)
        if self.status != 200 or (self.word and self.word not in head):
            status = self.status if self.status != 200 else 407
            end.sendall(b"HTTP/1.1 %d Said\r\ncontent-length: 0\r\n\r\n" % status)
            shut(end)
            return
        host, _, port = head.split()[1].decode().rpartition(":")
        host = host.strip("[]")
        other = socket.create_connection((self.hosts.get(host, host), int(port)))
        end.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=carry, args=(other, end), daemon=True).start()
        carry(end, other)


def carry(one, other):
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    shut(one, other)


@contextmanager
def proxy(*args, **named):
    """A proxy on a port of this machine."""
    made = Connecting(*args, **named)

    def take():
        with suppress(OSError):
            while True:
                end, _ = listening.accept()
                threading.Thread(target=meet, args=(end,), daemon=True).start()

    def meet(end):
        with end, suppress(OSError):
            made.meet(end)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        made.port = listening.getsockname()[1]
        threading.Thread(target=take, daemon=True).start()
        yield made
        listening.shutdown(socket.SHUT_RDWR)
