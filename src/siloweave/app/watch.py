"""Watch a study at one of its ends, in the terminal or as a page: `siloweave status` repeated.

All that is shown is what `status` shows, by the same facts.

**Guarantee**: nothing here reads a row, and nothing is changed but the file of those facts. The
page is for reading alone, and is served as `pages` says.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime
from math import inf
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import typer
from msgspec.structs import replace

from siloweave.app.status import (
    ENDED_BY,
    FAILED,
    INTERRUPTED,
    CoordinatorStatus,
    PartyStatus,
    is_late,
    known_status,
    party_table,
    state_words,
)
from siloweave.errors import InputError, StudyError, error_named
from siloweave.federation.course import FINISHED

if TYPE_CHECKING:
    from siloweave.app.pages import Answer, PageRequest, Routes

Status = CoordinatorStatus | PartyStatus
"""How far a study is at one of its ends."""
# Seconds that a page is served after the run's end, for a browser that has not shown it yet.
_GRACE_S = 10.0
# Of Ctrl-C: 128 and the number of its signal.
_INTERRUPTED = 130
# Moves a terminal's cursor to its upper left corner, and clears what is below.
_CLEAR = "\x1b[H\x1b[J"


def now(folder: Path, data: str | None) -> Status:
    """Return how far the study in an end's folder is; errors as of `status_of`."""
    # By what an earlier call stored, if it still holds; else by modules that are slow to load.
    status = known_status(folder, data)
    if status is not None:
        return status
    from siloweave.app.status_facts import status_of

    return status_of(folder, data)


def exit_code(status: Status) -> int | None:
    """Return 0 for a study that has finished here, its error's code if one ended it; else None.

    That of Ctrl-C is the shell's. A coordinator that was killed, and a party whose owner has to
    approve something, may continue.
    """
    state = status.state
    if state == FINISHED:
        return 0
    if state == "refused a question":
        return StudyError.exit_code
    if state == FAILED:
        return InputError.exit_code
    if state == INTERRUPTED:
        return _INTERRUPTED
    if not state.startswith(ENDED_BY):
        return None
    name = state.removeprefix(ENDED_BY)
    kind = error_named(name)
    # Of errors that are not this package's, such as a full disk.
    if kind.__name__ != name:
        return InputError.exit_code
    return kind.exit_code


def follow(
    folder: Path, data: str | None, every: float, show: Callable[[Status], None]
) -> int:
    """Show how far a study is, every so many seconds, until it ends; return the exit code.

    Raises:
        InputError: The folder is of no study.
        LedgerError: A ledger or a receipt was edited, before or meanwhile.
    """
    while True:
        status = now(folder, data)
        show(status)
        code = exit_code(status)
        if code is not None:
            return code
        time.sleep(every)


def watch_terminal(folder: Path, data: str | None, every: float, *, json: bool) -> int:
    """Show a study in the terminal until it ends, or until Ctrl-C; return the exit code.

    A terminal is cleared each time. A file or a pipe gets more only when something has changed;
    with `json` a line each time.
    """
    shown: list[Status] = []

    def show(status: Status) -> None:
        is_terminal = sys.stdout.isatty() and not json
        if (
            not is_terminal
            and shown
            and _without_clock(shown[-1]) == _without_clock(status)
        ):
            return
        shown.append(status)
        del shown[:-1]
        if json:
            from siloweave.report.record import spelled

            typer.echo(msgspec.json.encode(spelled(status)).decode())
            return
        from siloweave.app.console import print_status

        if is_terminal:
            typer.echo(_CLEAR, nl=False)
        print_status(status)
        if is_terminal:
            clock = datetime.now().astimezone().strftime("%H:%M:%S")
            next_look = f"again every {every:g} s; Ctrl-C stops watching"
            if exit_code(status) is not None:
                next_look = "for the last time, as it has ended"
            typer.echo(f"at {clock}, {next_look}")
        else:
            typer.echo()

    try:
        return follow(folder, data, every, show)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _without_clock(status: Status) -> Status:
    """Return a status without what changes by the mere passing of time."""
    if isinstance(status, PartyStatus):
        return replace(status, quiet=None)
    parties = []
    for party in status.parties:
        waited = party.waited
        # How long it is awaited passes with time; that it is late is news.
        if waited is not None:
            waited = inf if is_late(party) else 0.0
        parties.append(replace(party, waited=waited))
    return replace(status, seconds=0.0, left=None, parties=tuple(parties))


# The page


class _View(NamedTuple):
    """What the page was last filled with."""

    status: Status
    at: str


def show_page(
    folder: Path, data: str | None, every: float, port: int, *, browser: bool
) -> int:
    """Serve a study as a page until it ends, or until Ctrl-C; return the exit code.

    Errors as of `follow`, and InputError for a port that cannot be used. The page ends with this
    process; what it showed last stays in the browser, and says so.
    """
    from siloweave.app.pages import LocalPage, serve

    # An unusable folder is an error before anything is served.
    views = Views(now(folder, data), every)
    codes: list[int] = []

    def work() -> None:
        codes.append(follow(folder, data, every, views.put))
        views.has_shown_end.wait(_GRACE_S)

    page = LocalPage(views.routes(), port)
    was_finished = serve(page, "The study", browser=browser, work=work)
    return codes[0] if was_finished or codes else _INTERRUPTED


class Views:
    """What the page of a study shows: the last status that was put here.

    Args:
        status: What it begins with.
        every: Seconds between two requests of a page that is open.

    Attributes:
        has_shown_end: Set once a page has been sent the end of the run.
    """

    def __init__(self, status: Status, every: float) -> None:
        self.every = every
        self.has_shown_end = Event()
        self.put(status)

    def put(self, status: Status) -> None:
        """Let the page show a later status."""
        clock = datetime.now().astimezone().strftime("%H:%M:%S")
        self._view = _View(status, clock)

    def routes(self) -> Routes:
        """Return what the page's server answers: the page, and its changing part."""
        return {("GET", ""): self._whole, ("GET", "now"): self._part}

    def _whole(self, request: PageRequest) -> Answer:
        """Return the page."""
        return self._filled("watch.html", request.nonce)

    def _part(self, request: PageRequest) -> Answer:
        """Return the part of the page that changes."""
        return self._filled("watch_now.html", request.nonce)

    def _filled(self, template: str, nonce: str) -> Answer:
        """Fill in a template with the last status."""
        from siloweave.app.pages import fill, html

        view = self._view
        code = exit_code(view.status)
        parties = None
        if isinstance(view.status, CoordinatorStatus):
            parties = party_table(view.status)
        page = fill(
            template,
            nonce,
            status=view.status,
            state=state_words(view.status),
            at=view.at,
            code=code,
            is_party=parties is None,
            parties=parties,
            every=self.every,
        )
        if code is not None:
            self.has_shown_end.set()
        return html(page)
