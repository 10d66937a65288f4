"""Serve a page on this machine alone, to whoever has its address.

`siloweave review` and `siloweave status --page` show one. Nothing of it leaves the machine.

**Guarantee**: the server listens on the loopback interface alone. It answers requests whose path
has its random token, and whose Host header is its own address: a page of another site, which may
reach the same port under a name of its own (DNS rebinding), is refused. What changes something
must be a POST of JSON from the page itself. No header allows another origin to read an answer, and
the page may load nothing but from this server. Another user of this machine who can read the
browser's or this process's memory, or this terminal, is not kept out.
"""

from __future__ import annotations

import logging
import os
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Condition, Thread
from typing import Any, NamedTuple

import typer

from siloweave.errors import InputError, of_system
from siloweave.privacy.tokens import token
from siloweave.report.page import templates, text_of

HOST = "127.0.0.1"
"""Where pages are served: on this machine alone."""
MOST_BYTES = 64 * 2**20
"""The largest body of a request; a schema of many categories has some megabytes."""
JSON = "application/json"
"""The type of what a page sends, and of what it is answered."""
# Seconds that a connection may be silent for.
_SILENCE_S = 30
_PORTS = 65_535
# Seconds that the last answers may take to be sent.
_LAST_S = 5.0
_WAIT_S = 0.5

_log = logging.getLogger("siloweave")


class PageRequest(NamedTuple):
    """What a page's code is given of a request: its body, and the nonce of scripts and styles."""

    body: bytes
    nonce: str


class Answer(NamedTuple):
    """What is sent back: a status of HTTP, the type of the content, and the content."""

    status: int
    kind: str
    body: bytes


Route = Callable[[PageRequest], Answer]
"""What answers one kind of request."""
Routes = Mapping[tuple[str, str], Route]
"""Routes by the method of HTTP and the last part of the path."""


def html(text: str) -> Answer:
    """Return a page as the answer to a request."""
    return Answer(200, "text/html; charset=utf-8", text.encode())


def refusal(status: int, reason: str) -> Answer:
    """Return an answer that refuses a request, and says why."""
    return Answer(status, "text/plain; charset=utf-8", f"{reason}\n".encode())


def fill(template: str, nonce: str, **values: Any) -> str:
    """Fill in a template beside this file; everything is escaped, unknown names are refused."""

    def app_text(file: str) -> str:
        return text_of(file, "siloweave.app")

    styles = text_of("style.css") + app_text("pages.css")
    page = templates("siloweave.app").get_template(template)
    return page.render(css=styles, text_of=app_text, nonce=nonce, **values)


class LocalPage:
    """A page that is served while the block runs.

    Args:
        routes: What answers requests; all others are refused.
        port: The port; 0 lets the system choose a free one.

    Raises:
        InputError: The port is no port, or cannot be used.

    Example:
        >>> with LocalPage({("GET", ""): lambda request: html("<p>hello")}) as page:
        ...     page.address.startswith("http://127.0.0.1:")
        True
    """

    def __init__(self, routes: Routes, port: int = 0) -> None:
        if not 0 <= port <= _PORTS:
            raise InputError(
                f"--port {port}: must be 0 to {_PORTS}; 0 takes a free port"
            )
        try:
            self._server = _Server(routes, port)
        except OSError as error:
            raise InputError(
                f"--port {port}: cannot be used ({of_system(error)}): another program may serve "
                "there. Leave --port out to take a free one"
            ) from error
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def address(self) -> str:
        """The page's address, with its token."""
        return f"{self._server.origin}/{self._server.token}/"

    def __enter__(self) -> LocalPage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.finish()
        self._server.server_close()

    def open_browser(self) -> bool:
        """Open the page in the user's browser; return whether there is one.

        Other users may see the words that a browser is started with. So these have an address that
        leads to the page once, and to nothing afterwards.
        """
        once = f"{self._server.origin}/{self._server.invite()}/"
        try:
            return webbrowser.open(once)
        except (webbrowser.Error, OSError):
            return False


def serve(
    page: LocalPage,
    title: str,
    *,
    browser: bool = True,
    work: Callable[[], object] | None = None,
) -> bool:
    """Serve a page, print its address, and open it; until Ctrl-C, or while some work goes on.

    Args:
        page: What is served.
        title: What the page is called in the terminal.
        browser: Whether it is opened in the user's browser.
        work: What the page shows, which ends it; None for a page that Ctrl-C alone ends.

    Returns:
        Whether the work ended it, and not Ctrl-C.
    """
    with page:
        typer.echo(f"{title} is at {page.address}")
        typer.echo("Only this machine serves it. Ctrl-C ends it.", err=True)
        try:
            if browser and not page.open_browser():
                typer.echo("No browser could be opened: open that address.", err=True)
            if work is None:
                _wait()
            else:
                work()
        except KeyboardInterrupt:
            return False
    return True


def _wait() -> None:
    """Wait for Ctrl-C, of which Windows hears only between short waits."""
    while True:
        time.sleep(_WAIT_S)


class _Server(ThreadingHTTPServer):
    """The server behind a `LocalPage`."""

    daemon_threads = True
    # On Windows, with it, two programs could serve one port.
    allow_reuse_address = os.name == "posix"

    def __init__(self, routes: Routes, port: int) -> None:
        self.routes = routes
        self.token = token()
        # How many answers are being made or sent.
        self._in_flight = 0
        self._all_sent = Condition()
        # Words that lead to the page once each.
        self._invitations: list[str] = []
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        """Open the socket, without asking a name server for this machine's name."""
        TCPServer.server_bind(self)
        self.server_name = HOST
        self.server_port = int(self.server_address[1])

    @property
    def origin(self) -> str:
        """The beginning of the address."""
        return f"http://{HOST}:{self.server_port}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names by which a browser of this machine may call the server."""
        return f"{HOST}:{self.server_port}", f"localhost:{self.server_port}"

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let `finish` wait for an answer."""
        with self._all_sent:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._all_sent:
                self._in_flight -= 1
                self._all_sent.notify_all()

    def finish(self) -> None:
        """Wait for the answers that are being sent; not for long, as a browser may be gone."""
        with self._all_sent:
            self._all_sent.wait_for(lambda: self._in_flight == 0, _LAST_S)

    def invite(self) -> str:
        """Return a word that leads to the page once."""
        invitation = token()
        self._invitations.append(invitation)
        return invitation

    def admits(self, word: str) -> bool:
        """Return whether a word is an invitation that nobody has used, and use it."""
        for invitation in self._invitations:
            if _are_equal(invitation, word):
                self._invitations.remove(invitation)
                return True
        return False

    def handle_error(self, request: object, client_address: object) -> None:
        """Record in the log what broke off a connection; the terminal is the user's."""
        _log.debug("a request to a page broke off", exc_info=True)


def _are_equal(secret: str, word: str) -> bool:
    """Compare a word with a secret, in a time that does not depend on where they differ."""
    return compare_digest(secret.encode(), word.encode("utf-8", "replace"))


class _Handler(BaseHTTPRequestHandler):
    """Answer one connection."""

    server: _Server
    timeout = _SILENCE_S
    server_version = "siloweave"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request for a page."""
        with self.server.answering():
            self._answer("GET")

    def do_POST(self) -> None:
        """Answer a request that may change something."""
        with self.server.answering():
            self._answer("POST")

    def log_message(self, *_: object) -> None:
        """Record nothing: lines of the terminal and of logs would have the token."""

    def _answer(self, method: str) -> None:
        """Answer a request of a method, or refuse it."""
        nonce = token()
        if self._host() not in self.server.hosts:
            # Before the token is looked at: another site learns nothing of it.
            reason = "this server answers to its own address alone"
            self._send(refusal(403, reason), nonce)
            return
        word, name = self._path_parts()
        if method == "GET" and self.server.admits(word):
            self._redirect()
            return
        if not _are_equal(self.server.token, word):
            reason = "no page is here: open the address that the terminal shows"
            self._send(refusal(404, reason), nonce)
            return

        route = self.server.routes.get((method, name))
        problem = self._problem(method, route)
        if problem is not None or route is None:
            self._send(problem or refusal(404, "no page is here"), nonce)
            return
        body = b""
        if method == "POST":
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(route(PageRequest(body, nonce)), nonce)

    def _host(self) -> str:
        """Return the address by which this server was called."""
        hosts = self.headers.get_all("Host") or []
        return hosts[0] if len(hosts) == 1 else ""

    def _path_parts(self) -> tuple[str, str]:
        """Return the token in the path and what follows it; empty for any other path."""
        parts = self.path.partition("?")[0].split("/")
        if len(parts) != 3 or parts[0]:
            return "", ""
        return parts[1], parts[2]

    def _problem(self, method: str, route: Route | None) -> Answer | None:
        """Return why a request with the token is refused; None for one that is answered."""
        if route is None:
            return refusal(404, "no page is here")
        if method == "GET":
            return None
        # A form of another site cannot send JSON without asking this server first, which has no
        # answer to that.
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != JSON:
            return refusal(415, f"the content must be {JSON}")
        origin = self.headers.get("Origin")
        origins = {f"http://{host}" for host in self.server.hosts}
        if origin is not None and origin not in origins:
            return refusal(403, "the request comes from another page")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return refusal(411, "the request has no length")
        if len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            return refusal(413, f"the request is longer than {MOST_BYTES} bytes")
        return None

    def _redirect(self) -> None:
        """Send a browser that has an invitation to the page."""
        self.send_response(303)
        self.send_header("Location", f"/{self.server.token}/")
        self.send_header("Content-Length", "0")
        self._send_privacy("")
        self.end_headers()

    def _send(self, answer: Answer, nonce: str) -> None:
        """Send an answer, with the headers that keep it on this page."""
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self._send_privacy(nonce)
        self.end_headers()
        self.wfile.write(answer.body)

    def _send_privacy(self, nonce: str) -> None:
        """Send the headers by which a browser keeps the page, and its address, to itself."""
        policy = (
            "default-src 'none'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'; connect-src 'self'"
        )
        if nonce:
            policy += f"; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'"
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
