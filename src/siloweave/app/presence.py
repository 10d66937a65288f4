"""Whether an end's process runs here: a file that the process keeps locked for as long as it lives.

The system lets go of the lock however the process ends, so that one that was killed is not taken
for one that answers. `siloweave status` reads this often, so that nothing here imports an array or
a method.

**Guarantee**: none; the file names a process and times, and no value of a row.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Self

import msgspec

from siloweave.errors import InputError, naming_file
from siloweave.privacy.journal import for_its_owner

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

PRESENCE = "process"
"""In an end's folder: the process that ran there last, and how it ended."""
ERROR = "with an error"
"""How a process ended that did not do what it was started for."""
_SIZE = 512  # bytes of the file, so that one write replaces all of it
_FRESH_S = 30.0  # since the last sign of life, where files cannot be locked
# For somebody who looks whether the file is locked, and holds it meanwhile.
_STARTING_S = 1.0
_RETRY_S = 0.02


class Presence(msgspec.Struct, frozen=True):
    """The process of an end, as it wrote itself down.

    Attributes:
        process: Its number.
        began: When it started, in seconds of this machine's clock.
        seen: When it gave its last sign of life.
        ended: When it ended by itself; 0 if it did not.
        how: How it ended, in words that follow "ended".
        is_busy: Whether it works at an answer.
        declines: Whether it takes no part, and waits to say so.
    """

    process: int
    began: float
    seen: float
    ended: float = 0.0
    how: str = ""
    is_busy: bool = False
    declines: bool = False


class SeenProcess(NamedTuple):
    """What is seen of an end's process: what it wrote down, and whether it runs now."""

    presence: Presence
    is_running: bool


def look(folder: Path) -> SeenProcess | None:
    """Return what is seen of an end's process; None where none ever wrote itself down."""
    try:
        with (folder / PRESENCE).open("rb") as file:
            # Read before the lock is tried: a process that starts in between is not overlooked.
            presence = msgspec.json.decode(file.read(), type=Presence)
            is_locked = _is_locked(file.fileno())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if is_locked is None:
        is_fresh = time.time() - presence.seen < _FRESH_S
        is_locked = is_fresh and not presence.ended
    return SeenProcess(presence, is_locked)


def _is_locked(descriptor: int) -> bool | None:
    """Return whether another process has locked an open file; None where that is not known."""
    if fcntl is None:
        return None
    # A shared lock for a moment: whoever starts in that moment tries again.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


class Running:
    """The file of an end's process while it runs, as a context.

    Args:
        folder: The end's.
        end: What the end is called in errors, as "this party".
    """

    def __init__(self, folder: Path, end: str) -> None:
        self._path = folder / PRESENCE
        self._end = end
        self._guard = threading.Lock()
        now = time.time()
        self._presence = Presence(os.getpid(), now, now)
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Lock the file; InputError, which names the process, where another one has it."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        with naming_file(self._path):
            self._descriptor = for_its_owner(str(self._path), flags)
        try:
            self._lock()
            self._write()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Note how the process ends, and let go of the file."""
        how = self._presence.how
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            how = "by Ctrl-C"
        elif kind is not None:
            how = ERROR
        # A full disk hides no error that is on its way.
        with suppress(OSError):
            self._change(ended=time.time(), how=how, is_busy=False)
        self._close()

    def note(self, *, is_busy: bool = False, declines: bool | None = None) -> None:
        """Note whether the process works at an answer, or takes no part; and that it lives."""
        if declines is None:
            declines = self._presence.declines
        with suppress(OSError):
            self._change(is_busy=is_busy, declines=declines)

    def lives(self) -> None:
        """Note that the process lives."""
        with suppress(OSError):
            self._change()

    def ends(self, how: str) -> None:
        """Say how the process is about to end, in words that follow "ended"."""
        with suppress(OSError):
            self._change(how=how)

    def _change(self, **facts: object) -> None:
        with self._guard:
            facts["seen"] = time.time()
            self._presence = msgspec.structs.replace(self._presence, **facts)
            self._write()

    def _write(self) -> None:
        """Write all of the file at once, so that nobody reads half of it."""
        if self._descriptor < 0:
            return
        data = msgspec.json.encode(self._presence).ljust(_SIZE)
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))

    def _lock(self) -> None:
        """Lock the open file; InputError where another process runs with it."""
        if fcntl is None:
            return
        until = time.monotonic() + _STARTING_S
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise self._already_runs() from None
                time.sleep(_RETRY_S)
            except OSError:  # a file system without locks
                return
            else:
                return

    def _already_runs(self) -> InputError:
        """Return the error about another process of the same end."""
        number = ""
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            data = os.pread(self._descriptor, _SIZE, 0)
            running = msgspec.json.decode(data, type=Presence)
            number = f" (process {running.process})"
        return InputError(
            f"{self._path.parent}: {self._end} already runs{number}. Leave it, or stop it first"
        )

    def _close(self) -> None:
        """Close the file, which lets go of its lock."""
        with self._guard:
            descriptor = self._descriptor
            self._descriptor = -1
        if descriptor >= 0:
            os.close(descriptor)
