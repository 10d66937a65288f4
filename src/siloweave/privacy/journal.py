"""A file that only grows, line by line, and survives that its process is killed at any moment."""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from siloweave.errors import LedgerError, naming_file

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows; a lock file stands in
    fcntl = None

_log = logging.getLogger("siloweave")

# Seconds between two tries to lock a file that another process has open.
_RETRY_S = 0.05

NEW = ".new"
"""How the name of a file ends that is still being written."""


#: Whether a line (second) is whole and follows the lines (first).
Follows = Callable[[list[bytes], bytes], bool]


class Lines(NamedTuple):
    """The lines in a file, and what a crash left behind the last one."""

    lines: list[bytes]  # whole lines, without their newlines
    size: int  # bytes of those lines that are in the file
    note: str  # what is wrong with the end; empty for nothing


def read_lines(path: Path, *, follows: Follows) -> Lines:
    """Return the lines of a file, when its last write may have been cut short by a crash.

    A write that was cut short leaves the beginning of one line, perhaps followed by zero bytes.
    Such a line was never acknowledged and is left out. If all of it is there and only the newline
    is missing, it is kept: counting a release that did not happen errs on the safe side. `follows`
    says whether a line is whole and follows those before. LedgerError if the file cannot be read,
    or its end is not what a crash leaves behind.
    """
    try:
        *lines, tail = path.read_bytes().split(b"\n")
    except OSError as error:
        raise LedgerError(
            f"{path}: cannot be read ({error.strerror}). See that this user may read it"
        ) from error
    size = sum(len(line) + 1 for line in lines)
    # The file ends with a newline: the last write was completed.
    if not tail:
        return Lines(lines, size, "")

    # A file system may make a file longer before it writes the bytes, which are then zero. Every
    # line is a JSON object, so a whole one ends with a brace.
    written = tail.rstrip(b"\0")
    whole = written[: written.rfind(b"}") + 1]
    if not whole or not follows(lines, whole):
        return Lines(
            lines, size, f"{len(tail)} bytes of a line that was never acknowledged"
        )
    # A whole line with something behind it is nothing that a crash leaves: someone wrote there.
    if whole != written:
        raise LedgerError(
            f"{path}, line {len(lines) + 1}: was edited at its end. Put back the file from the "
            "last backup."
        )
    return Lines([*lines, whole], size + len(whole), "a last line without its newline")


class Journal:
    """The one writer of a file of lines; LedgerError if another process has it open.

    **Guarantee**: when :meth:`append` returns, the line and its newline are on disk. So a last line
    without its newline was never acknowledged, and :meth:`recover` cuts it off or completes it, see
    :func:`read_lines`. After a failed write nothing is written until the file is opened again; what
    was written of the line is cut off at once, where the system can.

    Args:
        path: The file.
        wait_s: Seconds to wait for another process that has it open.
    """

    def __init__(self, path: Path, *, wait_s: float = 0.0) -> None:
        self.path = path
        self._until = time.monotonic() + wait_s
        self._lock: Path | None = None
        self._descriptor = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            is_new = not path.exists()
            self._descriptor = self._open()
            # Else a crash of the machine could leave the lines on disk, and no name for them.
            if is_new:
                sync_folder(path.parent)
        except OSError as error:
            self.close()
            raise LedgerError(
                f"{path}: cannot be opened for writing ({error.strerror}). "
                "See that this user may write there"
            ) from error

    @property
    def is_open(self) -> bool:
        """Whether lines can be appended."""
        return self._descriptor >= 0

    def _open(self) -> int:
        """Open the file, locked where the system can; return its descriptor."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        # Windows alone has the first and lacks the second.
        flags |= getattr(os, "O_BINARY", 0)
        flags |= getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(self.path, flags, 0o600)
        if fcntl is not None:
            try:
                self._flock(descriptor)
            except BlockingIOError as error:
                os.close(descriptor)
                raise LedgerError(
                    f"{self.path}: is open in another process. Only one may write a ledger; stop "
                    "the other, or read this one with Ledger.read()."
                ) from error
        return descriptor

    def _flock(self, descriptor: int) -> None:
        """Lock the open file; BlockingIOError if another process has it for too long."""
        assert fcntl is not None
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait_or_raise()
            else:
                return

    def _wait_or_raise(self) -> None:
        """Sleep a little if there is time left to wait; else raise the error being handled."""
        if time.monotonic() >= self._until:
            raise
        time.sleep(_RETRY_S)

    def _lock_file(self, lock: Path) -> None:
        """Make the lock file; FileExistsError if another process has it for too long."""
        while True:
            try:
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                self._wait_or_raise()
            else:
                return

    def _take_lock(self) -> None:
        """Make a lock file, where open files cannot be locked."""
        if fcntl is not None:
            return
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            self._lock_file(lock)
        except FileExistsError as error:
            raise LedgerError(
                f"{self.path}: is open in another process. If none is running, remove {lock}."
            ) from error
        self._lock = lock

    def recover(self, *, follows: Follows) -> Lines:
        """Return all lines, after repairing an end that was being written during a crash."""
        content = read_lines(self.path, follows=follows)
        if content.note:
            os.ftruncate(self._descriptor, content.size)
            # What is missing is nothing, or the newline of a last line that is whole.
            whole_size = sum(len(line) + 1 for line in content.lines)
            self._write(b"\n" * (whole_size - content.size))
            _log.warning("%s: repaired %s", self.path, content.note)
        return content

    def append(self, line: bytes) -> None:
        """Write one line and force it to disk; where that fails, raise LedgerError and close."""
        size_before = os.fstat(self._descriptor).st_size
        try:
            self._write(line + b"\n")
        except OSError as error:
            # What was written of the line is cut off; where that fails too, `recover` does it.
            with suppress(OSError):
                os.ftruncate(self._descriptor, size_before)
            # Closed, so that nothing is written behind a line that may not be whole.
            self.close()
            raise LedgerError(
                f"{self.path}: could not be written ({error.strerror}). Nothing was released. Free "
                "space or repair the disk, then open the ledger again."
            ) from error

    def _write(self, data: bytes) -> None:
        """Write all bytes and force them to disk."""
        # The system may write less than it was given.
        while data:
            count = os.write(self._descriptor, data)
            data = data[count:]
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file, so that others may write it."""
        # Forgotten first: closed twice, a descriptor may be another file's by then.
        descriptor = self._descriptor
        self._descriptor = -1
        if descriptor >= 0:
            os.close(descriptor)
        if self._lock is not None:
            self._lock.unlink(missing_ok=True)
            self._lock = None


def for_its_owner(path: str, flags: int) -> int:
    """Open a file, as an `opener` of `open`; only the owner may read a new file (mode 0600)."""
    return os.open(path, flags, 0o600)


def folder_for_its_owner(folder: Path) -> None:
    """Make a folder that is missing, and those above it, with mode 0700; OSError as of `mkdir`."""
    # `Path.mkdir` gives its mode to the last folder alone, and the umask decides on the others.
    for above in reversed(folder.parents):
        if not above.exists():
            above.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_whole(
    path: Path,
    data: bytes,
    *,
    private: bool = True,
    forced: bool = True,
    shared: bool = False,
    within: int | None = None,
) -> None:
    """Write a file so that its name stands for all of the new content, or still for the old.

    It is written beside its place, `forced` to disk, and renamed; for its owner alone if `private`,
    and for its group, too, if also `shared`. With `within`, a descriptor of its folder, it is
    written into that one, whatever the path leads to by then.
    Several processes may write one that is not private at once. OSError, which names the file, if
    it fails; what was written is removed then.
    """
    # Files that are not private may be written by several processes: each has a name of its own.
    name = path.name if private else f".{path.name}.{os.getpid()}"
    temporary = path.with_name(name + NEW)
    mode = 0o600 if private else 0o666
    # Where the folder is open, names are looked up in it.
    source = str(temporary) if within is None else temporary.name

    def opened(_: str, flags: int) -> int:
        return os.open(source, flags, mode, dir_fd=within)

    try:
        # A process that was killed may have left one; "x" refuses a file that is there, so that
        # nothing is written through a link.
        with suppress(FileNotFoundError):
            os.unlink(source, dir_fd=within)
        with naming_file(path), open(temporary, "xb", opener=opened) as file:
            # Before there is anything to read; by its descriptor, as the umask would take the
            # group's right away from a new file.
            if shared:
                os.fchmod(file.fileno(), 0o660)
            file.write(data)
            file.flush()
            # The bytes are on disk before the name shows them.
            if forced:
                os.fsync(file.fileno())
        if within is None:
            temporary.replace(path)
        else:
            os.replace(temporary.name, path.name, src_dir_fd=within, dst_dir_fd=within)
    except BaseException:
        with suppress(OSError):
            os.unlink(source, dir_fd=within)
        raise

    # The name itself is in the folder, which is forced to disk as well, where the system can.
    if not forced:
        return
    with suppress(OSError):
        if within is None:
            sync_folder(path.parent)
        else:
            os.fsync(within)


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
