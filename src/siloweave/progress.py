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

from siloweave.errors import InputError

Progress = Callable[[str, float], None]
"""Called with a text and the share that is done."""

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")

_STEP = re.compile(r"step \d+ of .*")
_EVERY_S = 10.0  # between two lines about one stage, where there is no terminal
_REDRAWN_S = 0.2  # between two pictures of a bar in a notebook
_IN_BAR: ContextVar[bool] = ContextVar("a bar is shown", default=False)


def silent(text: str, done: float) -> None:
    """Progress that is not shown."""


def duration(seconds: float) -> str:
    """Wall-clock time.

    >>> duration(0.0421), duration(7.25), duration(754)
    ('42 ms', '7.2 s', '12 min 34 s')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


class Stopwatch:
    """Adds up the seconds in which one thread or more are inside of it."""

    def __init__(self) -> None:
        self.seconds, self._inside, self._since, self._lock = 0.0, 0, 0.0, Lock()

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


def shows_progress(function: Callable[_Arguments, _Found]) -> Callable[_Arguments, _Found]:
    """Let a function's keyword `progress` be None, True, False or a function; it gets a function.

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
    """What a `progress` argument stands for; inside a bar there is no second one.

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
    watched = (sys.stderr is not None and sys.stderr.isatty()) or _in_notebook()
    if _IN_BAR.get() or not (watched if wanted is None else wanted) or parent_process() is not None:
        yield silent
        return
    mark = _IN_BAR.set(True)
    try:
        with _NotebookBar() if _in_notebook() else Bar() as bar:
            yield bar
    finally:
        _IN_BAR.reset(mark)


class Bar:
    """A progress bar on standard error; one line a stage where that is no terminal.

    Args:
        quiet: Show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._bars = Bars(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bars.add_task("starting", total=1.0)
        self._stage, self._printed = "", 0.0

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
        """Show a stage and the share that is done, from 0 to 1."""
        stage = _STEP.sub("step", text)
        if not self._console.is_terminal and (stage != self._stage or self._due(text)):
            self._console.print(text)
            self._printed = time.monotonic()
        self._stage = stage
        self._bars.update(self._task, description=text, completed=min(max(done, 0.0), 1.0))

    def line(self, text: str) -> None:
        """Show a line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _due(self, text: str) -> bool:
        """Whether steps of training, of which there are thousands, deserve another line."""
        return bool(_STEP.search(text)) and time.monotonic() - self._printed > _EVERY_S


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class _NotebookBar:
    """A progress bar below a notebook's cell; it is removed at the end."""

    def __enter__(self) -> Self:
        ipython = sys.modules["IPython.display"]
        self._html, self._drawn = ipython.HTML, 0.0
        self._place = ipython.display(self._html(""), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._place.update(self._html(""))

    def __call__(self, text: str, done: float) -> None:
        """Show a stage and the share that is done, from 0 to 1."""
        if time.monotonic() - self._drawn < _REDRAWN_S:
            return
        from html import escape

        bar = f'<progress value="{min(max(done, 0.0), 1.0):.4f}"></progress>'
        self._place.update(self._html(f"{bar} {escape(text)}"))
        self._drawn = time.monotonic()
