"""A file that only grows, line by line, and survives being killed at any moment."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Self

from siloweave.errors import LedgerError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows; a lock file stands in
    fcntl = None

__all__ = ["Journal", "split"]

_log = logging.getLogger(__name__)


def split(path: Path) -> tuple[list[bytes], bytes]:
    """The whole lines of a file, and what follows the last newline.

    Raises:
        LedgerError: the file cannot be read.
    """
    try:
        *lines, tail = path.read_bytes().split(b"\n")
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error}).") from error
    return lines, tail


class Journal:
    """The one writer of a file of lines.

    **Guarantee**: when :meth:`append` returns, the line and its newline are on disk. So a last line
    without its newline was never acknowledged: :meth:`recover` cuts it off if it is only a part of
    a line, and completes it if all of it is there (counting a release that did not happen errs on
    the safe side). After a failed write nothing more is written until the file is opened again.

    Args:
        path: the file, created with mode 0600.

    Raises:
        LedgerError: another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recovered = ""
        self._lock: Path | None = None
        self._descriptor = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            new = not path.exists()
            self._descriptor = self._open()
            if new:
                _sync_folder(path.parent)
        except OSError as error:
            self.close()
            raise LedgerError(f"{path}: cannot be opened for writing ({error}).") from error

    @classmethod
    def closed(cls, path: Path) -> Self:
        """A journal that cannot be written."""
        journal = cls.__new__(cls)
        journal.path, journal.recovered = path, ""
        journal._lock, journal._descriptor = None, -1
        return journal

    @property
    def is_open(self) -> bool:
        """Whether lines can be appended."""
        return self._descriptor >= 0

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                raise LedgerError(
                    f"{self.path}: is open in another process. Only one may write a ledger; stop "
                    "the other, or read this one with Ledger.read()."
                ) from error
        return descriptor

    def _take_lock(self) -> None:
        if fcntl is not None:
            return
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError as error:
            raise LedgerError(
                f"{self.path}: is open in another process. If none is running, remove {lock}."
            ) from error
        self._lock = lock

    def recover(self, *, complete: Callable[[list[bytes], bytes], bool]) -> list[bytes]:
        """All lines, after repairing a last one that was being written during a crash.

        Args:
            complete: whether the tail (second) is a whole line that follows the lines (first).
        """
        lines, tail = split(self.path)
        if not tail:
            return lines
        if complete(lines, tail):
            self.recovered = "the newline of the last line was missing and was added"
            self._write(b"\n")
            lines.append(tail)
        else:
            self.recovered = f"{len(tail)} bytes of a line that was never acknowledged were cut off"
            os.ftruncate(self._descriptor, sum(len(line) + 1 for line in lines))
            os.fsync(self._descriptor)
        _log.warning("%s: %s", self.path, self.recovered)
        return lines

    def append(self, line: bytes) -> None:
        """Write one line and force it to disk.

        Raises:
            LedgerError: it could not be written; the journal is closed then.
        """
        try:
            self._write(line + b"\n")
        except OSError as error:
            self.close()
            raise LedgerError(
                f"{self.path}: could not be written ({error}). Nothing was released. Free space "
                "or repair the disk, then open the ledger again."
            ) from error

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Let others write the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        if self._lock is not None:
            self._lock.unlink(missing_ok=True)
            self._lock = None


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
