"""An HTTP proxy between a party and its coordinator: a tunnel (CONNECT), through which TLS passes.

The proxy sees the coordinator's name, sizes and times. TLS is between the party and the
coordinator, as without a proxy: one that opens it shows a certificate of its own, and is refused.

**Guarantee**: none of its own, see federation/certificates.py. A password of the proxy's is sent to
the proxy alone, and as plain text, as HTTP has it; no text of ours names it.
"""

from __future__ import annotations

import socket
import time
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from siloweave.errors import InputError

_ANSWER_BYTES = 2**16
"""Most bytes of a proxy's answer to CONNECT that are read."""
_ANSWER_S = 30.0
"""For that answer: a proxy that does not reach the coordinator says so by then."""
_PORT = 3128  # of a proxy whose URL has none; most have their own

# Of HTTP (RFC 9110, section 15).
_NO_PASSWORD = 407
_BAD_GATEWAY = 502
_TOO_LATE = 504


class Proxy(NamedTuple):
    """The address of a proxy, and what it is shown; `url` has the user and the password."""

    host: str
    port: int
    user: str
    password: str
    url: str

    @property
    def address(self) -> str:
        """The proxy's address as messages name it, without user and password."""
        return f"{_bracketed(self.host)}:{self.port}"


def _bracketed(host: str) -> str:
    """Write a host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def proxy_in(url: str) -> Proxy:
    """Read the proxy that a URL names; InputError for other kinds of URL.

    Example:
        >>> proxy_in("http://ann:secret@proxy.example.org:8080").address
        'proxy.example.org:8080'
        >>> proxy_in("proxy.example.org").port
        3128
    """
    whole_url = url if "://" in url else f"http://{url}"
    parts = urlsplit(whole_url)
    # Without user and password, which no error may name.
    bare_url = f"{parts.scheme}://{url.rpartition('@')[2].rpartition('://')[2]}"
    try:
        port = parts.port or _PORT
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise InputError(
            f"proxy {bare_url!r}: must be http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT; "
            "other kinds, such as SOCKS, are not supported. Ask who runs the network for an HTTP "
            "proxy"
        )
    if parts.port is None:
        whole_url = f"{whole_url.rstrip('/')}:{_PORT}"
    user = unquote(parts.username or "")
    password = unquote(parts.password or "")
    return Proxy(parts.hostname, port, user, password, whole_url)


def proxy_for(
    host: str, port: int, owner_url: str | None, *, is_local: bool
) -> Proxy | None:
    """Return the proxy on the way to a host; None where the way is direct.

    Args:
        host: Which is to be reached.
        port: Of the host.
        owner_url: The proxy's URL, as the owner gave it; it counts before the environment.
        is_local: Whether the host is this machine, which no proxy of the environment is for.

    Raises:
        InputError: A URL is not that of an HTTP proxy.
    """
    if owner_url:
        return proxy_in(owner_url)
    proxies = getproxies_environment()
    url = proxies.get("https") or proxies.get("all")
    if not url or is_local:
        return None
    if proxy_bypass(f"{_bracketed(host)}:{port}"):  # NO_PROXY
        return None
    return proxy_in(url)


def connected(
    host: str, port: int, seconds: float, proxy: Proxy | None = None
) -> socket.socket:
    """Connect to a host, through a proxy's tunnel if there is a proxy.

    Raises:
        ConnectionError: The host, or the proxy, does not answer, yet.
        InputError: The proxy refuses, and will refuse again; says what to do.
    """
    if proxy is None:
        return socket.create_connection((host, port), seconds)
    try:
        end = socket.create_connection((proxy.host, proxy.port), seconds)
    except OSError as error:
        raise ConnectionError(
            f"the proxy {proxy.address} is not reached ({error.strerror or error}); see that "
            "--proxy or HTTPS_PROXY names the right one"
        ) from error
    try:
        _ask_for_tunnel(end, f"{_bracketed(host)}:{port}", proxy)
    except BaseException:
        end.close()
        raise
    return end


def _ask_for_tunnel(end: socket.socket, where: str, proxy: Proxy) -> None:
    """Ask a proxy to connect to HOST:PORT (RFC 9110, section 9.3.6)."""
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
    if proxy.user:
        credentials = b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {credentials}")
    try:
        end.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = _head(end)
    except OSError as error:
        raise ConnectionError(
            f"the proxy {proxy.address} does not answer ({error})"
        ) from error

    # The first line is "HTTP/1.1 STATUS REASON".
    status_line = answer.partition(b"\r\n")[0]
    status, _, reason = status_line.partition(b" ")[2].partition(b" ")
    if not answer.startswith(b"HTTP/1.") or not status.isdigit():
        raise InputError(
            f"{proxy.address}: is no HTTP proxy, as its answer begins with {answer[:20]!r}; see "
            "that --proxy or HTTPS_PROXY has the proxy's own port"
        )
    code = int(status)
    text = f"{status.decode()} {reason.decode('ascii', 'replace')[:60]}".strip()
    if 200 <= code < 300:
        return
    if code == _NO_PASSWORD:
        required = "another password than it was shown" if proxy.user else "a password"
        raise InputError(
            f"the proxy {proxy.address} asks for {required} ({text}). Give it by "
            "HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT, with %40 for an @ in either"
        )
    if _BAD_GATEWAY <= code <= _TOO_LATE:  # it may be reached later
        raise ConnectionError(
            f"the proxy {proxy.address} does not reach {where} ({text})"
        )
    raise InputError(
        f"the proxy {proxy.address} refuses to connect to {where} ({text}). Ask who runs it to "
        "allow CONNECT to this host and port; proxies often allow port 443 alone, which the "
        "coordinator can listen at. If no proxy is needed: NO_PROXY="
        + where.rpartition(":")[0]
    )


def _head(end: socket.socket) -> bytes:
    """Read an answer up to its empty line, byte by byte: the tunnel's bytes follow it."""
    answer = bytearray()
    # For the whole of it: a proxy that sends a byte now and then would be awaited for ever.
    until = time.monotonic() + _ANSWER_S
    while not answer.endswith(b"\r\n\r\n") and len(answer) < _ANSWER_BYTES:
        if time.monotonic() > until:
            raise TimeoutError(f"no whole answer for {_ANSWER_S:g} s")
        byte = end.recv(1)
        if not byte:
            break
        answer += byte
    return bytes(answer)
