"""How far a long computation is: a bar on standard error, or whatever function is given.

One meaning of `progress` everywhere: None shows a bar in a terminal and in a notebook and nothing
where standard error is redirected; True shows one always, False never; a function is called with a
text and the share that is done, from 0 to 1.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from multiprocessing import parent_process
from threading import Lock
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from siloweave.errors import InputError, printable

Progress = Callable[[str, float], None]
"""Called with a text and the share that is done."""

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")

# The end of a text about one step of a training, which has thousands.
_STEP = re.compile(r"step \d+ of .*")
# How long all of the work takes, behind the name of each stage: a log has it once.
_FORECAST = re.compile(r" \(about [^()]* in all\)$")
# Seconds between two lines about one stage, where there is no terminal.
_EVERY_S = 10.0
# Seconds between two pictures of a bar in a notebook.
_REDRAWN_S = 0.2
# Characters of a bar, of what stands beside it (a percentage, a time and gaps), and of its text.
_BAR_WIDTH = 20
_BESIDE_BAR = 16
_TEXT_WIDTH = 60
# Whether a bar is shown, in this thread or task.
_IN_BAR: ContextVar[bool] = ContextVar("a bar is shown", default=False)


def silent(text: str, done: float) -> None:
    """Show no progress: the progress function of work that nobody watches."""


def duration(seconds: float) -> str:
    """Return a duration in words.

    Example:
        >>> duration(0.0421), duration(7.25), duration(754)
        ('42 ms', '7.2 s', '12 min 34 s')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def expected_duration(seconds: float) -> str:
    """Return a forecast of a duration in words, with no more digits than a forecast has.

    Example:
        >>> expected_duration(0.0421), expected_duration(23.2), expected_duration(754)
        ('about 42 ms', 'about 23 s', 'about 13 min')
        >>> expected_duration(20_036)
        'about 5.6 hours'
    """
    if seconds < 1:
        return f"about {float(f'{seconds * 1000:.2g}'):g} ms"
    if seconds < 100:
        return f"about {seconds:.2g} s"
    minutes = seconds / 60
    if minutes < 100:
        return f"about {minutes:.2g} min"
    return f"about {minutes / 60:.2g} hours"


class Stopwatch:
    """A clock of the seconds in which at least one thread is inside its `with` block."""

    def __init__(self) -> None:
        self.seconds = 0.0
        # How many threads are inside, and since when there is one.
        self._inside = 0
        self._since = 0.0
        self._lock = Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._since = time.perf_counter()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self.seconds += time.perf_counter() - self._since


def shows_progress(
    function: Callable[_Arguments, _Found],
) -> Callable[_Arguments, _Found]:
    """Let a function's `progress` be None, True, False or a function, and hand it a function.

    Example:
        >>> @shows_progress
        ... def work(*, progress=None):
        ...     progress("half", 0.5)
        >>> work(progress=lambda text, done: print(text, done))
        half 0.5
        >>> work(progress=False)
    """

    @wraps(function)
    def with_bar(*args: _Arguments.args, **named: _Arguments.kwargs) -> _Found:
        with bar_for(named.get("progress")) as progress:
            named["progress"] = progress
            return function(*args, **named)

    return with_bar


@contextmanager
def bar_for(wanted: Any) -> Iterator[Progress]:
    """Yield the progress function that an argument `progress` stands for; bars are not nested.

    Raises:
        InputError: It is neither None, True, False nor a function.
    """
    if callable(wanted):
        yield wanted
        return
    if wanted not in (None, True, False):
        raise InputError(
            f"progress={wanted!r} must be True, False, None (a bar in a terminal and a notebook) "
            "or a function of a text and the share that is done"
        )
    is_watched = (sys.stderr is not None and sys.stderr.isatty()) or _in_notebook()
    is_shown = is_watched if wanted is None else wanted
    # A process that another one began shares its terminal, and would draw over its bar.
    is_child = parent_process() is not None
    if _IN_BAR.get() or not is_shown or is_child:
        yield silent
        return

    mark = _IN_BAR.set(True)
    try:
        bar: Bar | _NotebookBar = _NotebookBar() if _in_notebook() else Bar()
        with bar:
            yield bar
    finally:
        _IN_BAR.reset(mark)


class Bar:
    """A progress bar on standard error; one line a stage where that is no terminal.

    Args:
        quiet: Show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        # Imported here, so that a command that shows no bar answers sooner.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as Bars
        from rich.table import Column

        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        # A bar on two lines would be drawn over what is printed above it: its text is cut.
        text_width = max(self._console.width - _BAR_WIDTH - _BESIDE_BAR, 1)
        text_column = Column(
            no_wrap=True,
            overflow="ellipsis",
            min_width=min(text_width, 24),
            max_width=min(text_width, _TEXT_WIDTH),
        )
        self._bars = Bars(
            # Names in a text are others', and no markup.
            TextColumn("{task.description}", markup=False, table_column=text_column),
            BarColumn(bar_width=_BAR_WIDTH),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bars.add_task("starting", total=1.0)
        # The last stage, and when a line about it was printed.
        self._stage = ""
        self._printed = 0.0
        self._forecast = ""

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def __call__(self, text: str, done: float) -> None:
        """Show the name of a stage and the share of it that is done, from 0 to 1."""
        text = printable(text, lines=False)
        # All steps of one training are one stage.
        stage = _STEP.sub("step", text)
        if not self._console.is_terminal and (
            stage != self._stage or self._is_due(text)
        ):
            self.line(self._without_known_forecast(text))
            self._printed = time.monotonic()
        self._stage = stage
        self._bars.update(self._task, description=text, completed=_within(done))

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _without_known_forecast(self, text: str) -> str:
        """Return a text without the forecast at its end that a line above has already."""
        forecast = _FORECAST.search(text)
        if forecast is None:
            return text
        is_known = forecast[0] == self._forecast
        self._forecast = forecast[0]
        return text.removesuffix(forecast[0]) if is_known else text

    def _is_due(self, text: str) -> bool:
        """Return whether it is time for another line about the steps of a training."""
        waited = time.monotonic() - self._printed
        return bool(_STEP.search(text)) and waited > _EVERY_S


def _within(done: float) -> float:
    """Clip a share of the work to the range from 0 to 1."""
    return min(max(done, 0.0), 1.0)


def _in_notebook() -> bool:
    """Return whether this code runs in a notebook's kernel."""
    # Where it does, IPython is imported already; it is not imported here.
    ipython = sys.modules.get("IPython")
    get_shell = getattr(ipython, "get_ipython", lambda: None)
    return getattr(get_shell(), "kernel", None) is not None


class _NotebookBar:
    """A progress bar below a notebook's cell; it is removed at the end."""

    def __enter__(self) -> Self:
        ipython = sys.modules["IPython.display"]
        self._html = ipython.HTML
        self._last_s = 0.0
        self._place = ipython.display(self._html(""), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._place.update(self._html(""))

    def __call__(self, text: str, done: float) -> None:
        """Show the name of a stage and the share of it that is done, from 0 to 1."""
        if time.monotonic() - self._last_s < _REDRAWN_S:
            return
        from html import escape

        # Texts have names of parties and columns, which come from others.
        bar = f'<progress value="{_within(done):.4f}"></progress>'
        self._place.update(self._html(f"{bar} {escape(text)}"))
        self._last_s = time.monotonic()
