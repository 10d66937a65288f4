"""A socket of this machine: another process hands in a frame, and gets an answer.

A network engine runs beside a party, in processes of its own that hold no key and no row. They
hand sealed frames to the party here, and carry what comes back (federation/frames.py). A
connection carries one question and its answer: one byte for the kind, eight for the length, and
the data. What an answer function refuses with WireError goes back as a code without a text, since
whoever carries frames has no need of the reason; that stands in the party's log.

**Guarantee**: none of its own, see federation/frames.py. Processes of one user alone are answered,
by default this process's own: others are refused by the folder's mode (0700, or for a node of
another user at most 0750) and, on Linux, by the identity that the kernel gives of a peer. A process
that is let in can hold up a party, for as long as it keeps `AT_ONCE` connections open, and neither
read nor forge a message. One of the party's own user can read the party's files, too; one of
another user, or in a container, cannot.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from math import inf
from pathlib import Path
from shlex import quote

from siloweave.errors import InputError, RosterError, WireError
from siloweave.federation.messages import MAX_BYTES

AT_ONCE = 32
"""Connections that are served at the same time; others wait."""

Answer = Callable[[bytes], bytes]
"""A sealed frame's answer, which is one too; raises WireError for what it cannot open."""

LIMIT = MAX_BYTES + 2**16
"""Bytes of a question or an answer: a frame, and what an engine says beside it."""

# Kinds of what crosses.
_ASK = b"\1"
_ANSWER = b"\2"
_REFUSED = b"\3"
_FAILED = b"\4"
_HEAD = 9  # bytes before the data: its kind, and its length
_PIECE = 2**20
_WAIT_S = 0.1  # between two looks whether to stop
_LONGEST = 100  # bytes of a socket's path that every system takes
# By which Linux names an open folder in a few bytes.
_DESCRIPTORS = Path("/proc/self/fd")

# Bits of a folder's mode.
_OTHERS = 0o007
_GROUP_WRITES = 0o020
_GROUP_ENTERS = 0o010

_log = logging.getLogger("siloweave")


class _LateError(Exception):
    """The deadline of a connection has passed."""


def _send(end: socket.socket, kind: bytes, data: bytes, until: float) -> None:
    """Send a kind, a length and data; `_LateError` if the other end takes too long."""
    rest = memoryview(kind + len(data).to_bytes(_HEAD - 1, "big") + data)
    while rest:
        _in_time(end, until)
        sent_bytes = end.send(rest[:_PIECE])
        rest = rest[sent_bytes:]


def _exactly(end: socket.socket, size: int, until: float) -> bytes:
    """Receive exactly so many bytes; OSError if the other end closes before."""
    # Grows with what comes: an announced length alone allocates nothing.
    data = bytearray()
    while len(data) < size:
        _in_time(end, until)
        piece = end.recv(min(size - len(data), _PIECE))
        if not piece:
            raise ConnectionError(f"it closed after {len(data):,} of {size:,} bytes")
        data += piece
    return bytes(data)


def _in_time(end: socket.socket, until: float) -> None:
    """Limit the next call to the time that is left; single bytes do not prolong it."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise _LateError
    end.settimeout(seconds)


def _received(end: socket.socket, kinds: bytes, until: float) -> tuple[bytes, bytes]:
    """Receive a kind and data; the length is checked before any data is read."""
    head = _exactly(end, _HEAD, until)
    kind = head[:1]
    size = int.from_bytes(head[1:], "big")
    if kind not in kinds:
        raise WireError(f"a connection began with {head!r}, which is no frame")
    if size > LIMIT:
        raise WireError(f"a frame of {size:,} bytes exceeds {LIMIT:,}; refused unread")
    return kind, _exactly(end, size, until)


def _listening(path: Path, node_user: int | None) -> socket.socket:
    """Open a socket that listens at this path, in a folder that no stranger can enter."""
    if not hasattr(socket, "AF_UNIX"):
        raise InputError(
            f"{path}: this system has no Unix sockets; use a spool folder instead"
        )
    try:
        if node_user is None:
            _require_own_folder(path.parent)
        else:
            _require_shared_folder(path, node_user)
        with suppress(FileNotFoundError):
            _remove_stale(path)
        end = socket.socket(socket.AF_UNIX)
        try:
            with _short(path) as name:
                end.bind(name)
            # Its mode is set before `listen`: until then nobody can connect.
            if node_user is None:
                path.chmod(0o600)
            else:
                # The folder's group is how the node's user gets in; `Server` asks who it is.
                os.chown(path, -1, path.parent.stat().st_gid)
                path.chmod(0o660)
            end.listen(AT_ONCE)
        except BaseException:
            end.close()
            raise
    except OSError as error:
        raise InputError(
            f"{path}: no socket can be made there ({error.strerror})"
        ) from error
    return end


def _require_own_folder(folder: Path) -> None:
    """Make a folder for this user alone; InputError if others can enter an existing one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    # Not every system looks at the mode of the socket itself, so that the folder keeps others out.
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise InputError(
            f"{folder}: others can enter this folder, and it holds a party's socket. Let "
            f"this user own it, and run: chmod 700 {quote(str(folder))}"
        )


def _require_shared_folder(path: Path, node_user: int) -> None:
    """Check the folder of a socket that another user's node uses: it must hold nothing else.

    InputError where the group cannot enter, anyone but the owner can write, or there is more in it.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        raise InputError(
            f"node_user={node_user}: only Linux says which user connects to a socket. Run the node "
            "as this user, or use a spool folder"
        )
    # In such a folder a group's members all get to the socket: only where the kernel says who
    # connects can the node's user be told from them.
    folder = path.parent
    remedy = (
        f"let the party's user make it, and as root: chgrp GROUP {quote(str(folder))} && "
        f"chmod 2710 {quote(str(folder))}, with a group that has the node's user alone"
    )
    if not folder.is_dir():
        raise InputError(
            f"{folder}: is no folder that the node's user can enter; {remedy}"
        )
    facts = folder.stat()
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid != os.geteuid() or mode & (_OTHERS | _GROUP_WRITES):
        raise InputError(
            f"{folder}: has mode {mode:o} and may be entered by its group, written by its owner, "
            f"who must be this user, and used by nobody else; {remedy}"
        )
    if not mode & _GROUP_ENTERS:
        raise InputError(
            f"{folder}: has mode {mode:o}, and the node cannot enter it; {remedy}"
        )
    others = sorted(entry.name for entry in folder.iterdir() if entry.name != path.name)
    if others:
        raise InputError(
            f"{folder}: has {', '.join(others[:3])} beside the socket, which the node's user could "
            "read. Give the socket a folder of its own"
        )


def _remove_stale(path: Path) -> None:
    """Remove the socket of a killed process; InputError if a process answers, or for a file."""
    # Anything else is not ours to remove.
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise InputError(
            f"{path}: is no socket, and lies where one belongs; move it away"
        )
    with socket.socket(socket.AF_UNIX) as client:
        try:
            with _short(path) as name:
                client.connect(name)
        except ConnectionRefusedError:
            path.unlink()
            return
    # Two processes at one party would write one ledger, and each lack what the other released.
    raise InputError(f"{path}: another process answers there; end it first")


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a short enough path of a socket: absolute, relative, or by a folder's descriptor."""
    short = min(str(path.absolute()), os.path.relpath(path), key=len)
    if len(os.fsencode(short)) <= _LONGEST:
        yield short
    elif _DESCRIPTORS.is_dir():
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield str(_DESCRIPTORS / str(folder) / path.name)
        finally:
            os.close(folder)
    else:
        raise InputError(
            f"{short}: is too long for a socket, which may have {_LONGEST} bytes. Start in a "
            "folder nearer to it, or move it"
        )


def _user_of(end: socket.socket) -> int | None:
    """Return the number of the other end's user, by the kernel; None except on Linux."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    # struct ucred: process, user and group.
    peer = end.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", peer)
    return int(user)


class Server:
    """A socket at which a process answers frames, one at a time.

    Args:
        path: Of the socket; its folder is made, or must be this user's alone.
        node_user: The number of the user whose processes are answered, if not this one. The folder
            must be there then, for its owner and a group of that user, with nothing else in it.
        answer: Gives the answer to a frame. WireError refuses the frame. Any other error ends the
            server, which raises it: a full disk, for example.
        seconds: For a question to arrive whole, and for an answer to be taken.

    Attributes:
        looked: Called now and then while it serves.

    Raises:
        InputError: There is no way to make a socket there, or another process answers at it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "party.sock"
        ...     with Server(path, bytes.upper):
        ...         ask(path, b"a frame", seconds=5.0)
        b'A FRAME'
    """

    def __init__(
        self,
        path: Path,
        answer: Answer,
        *,
        seconds: float = 30.0,
        node_user: int | None = None,
    ) -> None:
        self._path = path
        self._answer = answer
        self._seconds = seconds
        own_user = os.geteuid() if hasattr(os, "geteuid") else 0
        self._node_user = own_user if node_user is None else node_user
        self._end = _listening(path, None if self._node_user == own_user else node_user)
        self._end.settimeout(_WAIT_S)
        self._stopped = threading.Event()
        self._at_work = threading.Lock()  # a ledger is written by one answer at a time
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._closed = False
        self._error: BaseException | None = None
        self.looked: Callable[[], object] = lambda: None
        self._thread: threading.Thread | None = None

    def serve(self, seconds: float = inf) -> None:
        """Answer frames for so many seconds, or until `stop`; a begun answer is finished."""
        until = time.monotonic() + seconds
        try:
            while not self._stopped.is_set() and time.monotonic() < until:
                self.looked()
                if not self._free.acquire(timeout=_WAIT_S):
                    continue
                try:
                    end, _ = self._end.accept()
                except OSError as error:
                    self._free.release()
                    # Without descriptors left, this would be tried again without a pause.
                    if error.errno in (errno.EMFILE, errno.ENFILE):
                        time.sleep(_WAIT_S)
                    continue
                # Of the study, so that its log gets what is logged.
                context = copy_context()
                connection = threading.Thread(
                    target=context.run, args=(self._serve_connection, end), daemon=True
                )
                connection.start()
        finally:
            self.close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Make `serve` end."""
        self._stopped.set()

    def close(self) -> None:
        """Remove the socket, once an answer that was begun is finished."""
        self._stopped.set()
        self._end.close()
        with self._at_work:
            # Once: a later `unlink` could take away another server's socket at this path.
            if not self._closed:
                self._closed = True
                self._path.unlink(missing_ok=True)

    def _serve_connection(self, end: socket.socket) -> None:
        """Receive one question from a connection, and send its answer."""
        try:
            with end:
                # A group may have more members than the node's user, and root enters any folder.
                user = _user_of(end)
                if user not in (self._node_user, None):
                    raise WireError(
                        f"a process of user {user} connected; answered are those of user "
                        f"{self._node_user}"
                    )
                _, question = _received(end, _ASK, time.monotonic() + self._seconds)
                kind, answer = self._answered(question)
                # The answer may have taken hours; to be taken, it has as long as the question had.
                _send(end, kind, answer, time.monotonic() + self._seconds)
        except WireError as error:
            _log.warning("%s: refused: %s", self._path, error)
        except (_LateError, OSError) as error:
            _log.info("%s: a connection was given up: %r", self._path, error)
        finally:
            self._free.release()

    def _answered(self, question: bytes) -> tuple[bytes, bytes]:
        """Answer a question; return the kind of the answer, and its data."""
        with self._at_work:
            # Who waited for the one before may come here after `stop`.
            if self._stopped.is_set():
                return _FAILED, b""
            try:
                return _ANSWER, self._answer(question)
            except WireError as error:
                # Without its text: who carries frames has no need of it.
                _log.warning("%s: refused: %s", self._path, error)
                return _REFUSED, b""
            except BaseException as error:  # noqa: BLE001 - raised by `serve`, in its own thread
                self._error = error
                self._stopped.set()
                return _FAILED, b""

    def __enter__(self) -> Server:
        self._thread = threading.Thread(target=self._in_background, daemon=True)
        self._thread.start()
        return self

    def _in_background(self) -> None:
        with suppress(BaseException):  # `__exit__` raises it
            self.serve()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error


def ask(path: Path, frame: bytes, seconds: float) -> bytes:
    """Send a frame to the process that serves the socket at this path, and return its answer.

    Raises:
        WireError: The frame, or the answer, is too large or malformed, or the frame was refused.
        RosterError: Nobody serves there, or no answer came within so many seconds.
    """
    if len(frame) > LIMIT:
        raise WireError(f"a frame of {len(frame):,} bytes exceeds {LIMIT:,}")
    until = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX) as end:
            _in_time(end, until)
            with _short(path) as name:
                end.connect(name)
            _send(end, _ASK, frame, until)
            kind, data = _received(end, _ANSWER + _REFUSED + _FAILED, until)
    except (_LateError, TimeoutError) as error:
        raise RosterError(f"{path}: no answer within {seconds:g} s") from error
    except OSError as error:
        raise RosterError(
            f"{path}: nobody answers there ({error}); start `siloweave party` first"
        ) from error
    if kind == _ANSWER:
        return data
    if kind == _REFUSED:
        raise WireError(
            f"{path}: the frame was refused; the log of who serves there says why"
        )
    raise RosterError(
        f"{path}: who served there has ended; its log says why. Start it again"
    )
