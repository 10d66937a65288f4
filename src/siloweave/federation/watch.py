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

# Between two lines about one wait, which doubles from the first to the longest.
_FIRST_S = 60.0
_LONGEST_S = 3600.0
_log = logging.getLogger("siloweave")


def _cut(text: str, most: int) -> str:
    """Cut a text to so many characters; a longer one ends with dots."""
    return text if len(text) <= most else f"{text[: max(most - 3, 0)]}..."


def line_of(text: str) -> str:
    """Write a text as one line of a terminal, cut at its end, with control characters escaped.

    Example:
        >>> len(line_of("x" * 200))
        80
    """
    return _cut(printable(text, lines=False), WIDTH)


class Watch:
    """Messages about what an end waits for, and about its link.

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
        self._name = name
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()  # an engine's threads tell of the link
        self._awaited = ""  # what is waited for, in words; nothing if empty
        self._since = 0.0
        self._due = _FIRST_S  # seconds of waiting after which the next line is said
        self._is_connected = False
        self._was_connected = False
        self._lost_at: float | None = None

    def _tell(self, text: str) -> None:
        """Print a text in the terminal, and note it in full in the log."""
        _log.info("%s: %s", self._name, text)
        self._say(line_of(f"{self._name}: {text}"))

    def waits(self, text: str, *, is_said: bool = True) -> None:
        """Begin a new wait; `look` then says from time to time how long it has taken."""
        with self._lock:
            self._awaited = text
            self._since = self._clock()
            self._due = _FIRST_S
            if is_said and text:
                self._tell(text)

    def look(self) -> None:
        """Print how long this end has waited, after a minute and then ever more rarely."""
        with self._lock:
            waited = self._clock() - self._since
            if self._awaited and waited >= self._due:
                self._due = waited + min(max(waited, _FIRST_S), _LONGEST_S)
                self._tell(f"{self._awaited}, for {duration(waited)} now")

    def connected(self) -> None:
        """Print that the link is up, or is back."""
        with self._lock:
            if self._is_connected:
                return
            text = "connected"
            # A first connection that took some tries is none that is back.
            if self._was_connected and self._lost_at is not None:
                text = f"back after {duration(self._clock() - self._lost_at)}"
            self._is_connected = True
            self._was_connected = True
            self._lost_at = None
            self._tell(text)

    def lost(self, why: str) -> None:
        """Print once that the link is down, or not up yet, until it is up."""
        with self._lock:
            if self._lost_at is not None:
                return
            self._is_connected = False
            self._lost_at = self._clock()
            state = "lost" if self._was_connected else "not connected"
            # The reason is cut, and not the line's end, which says that nobody need do anything.
            room = WIDTH - len(f"{self._name}: {state} (); trying again")
            self._tell(f"{state} ({_cut(why, room)}); trying again")

    def notes(self, text: str) -> None:
        """Print any other text."""
        with self._lock:
            self._tell(text)

    def ended(self, why: str) -> None:
        """Print that this end waits for nothing more, and why."""
        with self._lock:
            self._awaited = ""
            self._tell(f"ended ({why})")
