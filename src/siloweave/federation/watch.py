"""What an end says in its terminal: whom it waits for, for how long, and what became of the link.

Lines are short, since a terminal may be narrow: what is more goes to the log.

**Guarantee**: a line names ends, addresses, folders and times, and no value of a row.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from siloweave.errors import printable
from siloweave.progress import duration

WIDTH = 80
"""Most characters of a line."""

_FIRST_S, _LONGEST_S = 60.0, 3600.0  # between two lines about one wait; doubles up to the second
_log = logging.getLogger("siloweave")


def _cut(text: str, most: int) -> str:
    """Return a text of so many characters at most; a longer one ends with dots."""
    return text if len(text) <= most else f"{text[: max(most - 3, 0)]}..."


def line_of(text: str) -> str:
    """Return a text as one line of a terminal, with control characters escaped; cut at its end.

    Example:
        >>> len(line_of("x" * 200))
        80
    """
    return _cut(printable(text, lines=False), WIDTH)


class Watch:
    """Says what an end waits for, and how its link is.

    Args:
        name: How the end is called in each line.
        say: Shows a line.
        clock: Seconds that only grow.

    Example:
        >>> watch = Watch("party 'north'", print)
        >>> watch.waits("connecting to office.example.org:9092")
        party 'north': connecting to office.example.org:9092
        >>> watch.connected()
        party 'north': connected
        >>> watch.lost("the link was cut")
        party 'north': lost (the link was cut); trying again
        >>> watch.ended("stopped")
        party 'north': ended (stopped)
    """

    def __init__(
        self,
        name: str,
        say: Callable[[str], object] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._say, self._clock = name, say, clock
        self._lock = threading.Lock()
        self._what, self._since, self._due = "", 0.0, _FIRST_S
        self._is_connected, self._was_connected = False, False
        self._lost_at: float | None = None

    def _tell(self, text: str) -> None:
        _log.info("%s: %s", self._name, text)
        self._say(line_of(f"{self._name}: {text}"))

    def waits(self, what: str, *, is_said: bool = True) -> None:
        """Begin to wait for something else; `look` says from time to time for how long."""
        with self._lock:
            self._what, self._since, self._due = what, self._clock(), _FIRST_S
            if is_said and what:
                self._tell(what)

    def look(self) -> None:
        """Say for how long this end has waited, after a minute and then ever more rarely."""
        with self._lock:
            waited = self._clock() - self._since
            if self._what and waited >= self._due:
                self._due = waited + min(max(waited, _FIRST_S), _LONGEST_S)
                self._tell(f"{self._what}, for {duration(waited)} now")

    def connected(self) -> None:
        """Say that the link is there, or is back."""
        with self._lock:
            if self._is_connected:
                return
            is_back, away = self._was_connected and self._lost_at is not None, 0.0
            if self._lost_at is not None:
                away = self._clock() - self._lost_at
            self._is_connected, self._was_connected, self._lost_at = True, True, None
            self._tell(f"back after {duration(away)}" if is_back else "connected")

    def lost(self, why: str) -> None:
        """Say that the link is gone, or is not there yet; once, until it is."""
        with self._lock:
            if self._lost_at is not None:
                return
            self._is_connected, self._lost_at = False, self._clock()
            what = "lost" if self._was_connected else "not connected"
            room = WIDTH - len(f"{self._name}: {what} (); trying again")
            self._tell(f"{what} ({_cut(why, room)}); trying again")

    def notes(self, text: str) -> None:
        """Say something else."""
        with self._lock:
            self._tell(text)

    def ended(self, why: str) -> None:
        """Say that this end waits for nothing more, and why."""
        with self._lock:
            self._what = ""
            self._tell(f"ended ({why})")
