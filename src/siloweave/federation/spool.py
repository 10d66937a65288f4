"""A spool folder: questions and answers as sealed files, carried by whatever a site trusts.

For each party there are two subfolders: `to-PARTY`, where the coordinator's questions lie, and
`from-PARTY`, where the party's answers do. A file is one frame, see federation/frames.py. A
question is called by a digest, and its answer by the same one. Files are written whole under
another name, forced to disk and renamed; what was answered is moved into `done`. Both ends may
share the folder, or each has its own and someone carries new files from one to the other.

Either end may be killed at any moment and started again. A question that lies there is answered
then; a coordinator that asks the same again finds its question, or the answer, and otherwise
writes a new one, which the party answers with the stored bytes. No time that another machine wrote
is ever read.

What has another kind of name, is no file, is too large, or is no frame of the study is ignored, and
named in the log once. Links are never followed: a file that is one is ignored, and a subfolder that
is one is refused.

Subfolders and files are for their owner alone. Where the spool folder itself has a group that may
write in it and that new files inherit (`chmod 2770`), they are for that group, so that two users
can share it. One coordinator at a time has a spool folder: it holds a lock on `coordinator.lock`.

**Guarantee**: none of its own, see federation/frames.py. Whoever can write in the folder can hold
up a study or stop it, and neither read nor forge a message.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from math import inf
from pathlib import Path
from shlex import quote
from types import ModuleType

from siloweave.errors import InputError, RosterError, WireError, naming_file, of_system
from siloweave.federation import messages
from siloweave.federation.frames import Opened, Seals
from siloweave.federation.watch import Watch
from siloweave.privacy.journal import NEW, write_whole

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows, where nothing keeps a second coordinator out
    fcntl = None

STOP, DONE = "stop", "done"
"""In `to-PARTY`: a file that ends `serve`, and the folder of what was answered."""
LOCK = "coordinator.lock"
"""In the spool folder: says which coordinator uses it."""
SHARED = stat.S_ISGID | stat.S_IRWXG
"""Bits of a spool folder's mode by which its owner shares it with its group."""

# Whether names can be looked up in a folder that is open.
_BY_DESCRIPTOR = {os.open, os.mkdir, os.unlink, os.rename} <= os.supports_dir_fd and (
    os.listdir in os.supports_fd
)
_log = logging.getLogger("siloweave")
_NAME = re.compile("[0-9a-f]{40}")
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")  # a party's name that a folder may have
_FIRST_S = 0.001  # a pause before the next look into a folder, which doubles up to the longest


def _to(folder: Path, party: str) -> Path:
    return folder / f"to-{_plain(party)}"


def _from(folder: Path, party: str) -> Path:
    return folder / f"from-{_plain(party)}"


def _plain(party: str) -> str:
    return party if _PLAIN.fullmatch(party) else messages.body_digest(party.encode()).hex()


def _is_shared(folder: Path) -> bool:
    """Whether the owner of a spool folder shares it with a group; a folder to be made is not."""
    try:
        return folder.stat().st_mode & SHARED == SHARED
    except OSError:
        return False


class _Open:
    """A folder that is open, so that no name in it leads elsewhere, whatever its path becomes.

    Where the system has no descriptors of folders, its path is used, once it is seen to be no link.
    """

    def __init__(self, path: Path, above: _Open | None = None) -> None:
        self.path = path
        self.descriptor: int | None = None
        if not _BY_DESCRIPTOR:
            _refuse_link(path)
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if above is None:
                self.descriptor = os.open(path, flags)
            else:
                self.descriptor = os.open(path.name, flags, dir_fd=above.descriptor)
        except OSError:
            _refuse_link(path)
            raise

    def at(self, name: str) -> str | Path:
        """What a system call takes for a name in it, beside `dir_fd`."""
        return self.path / name if self.descriptor is None else name

    def names(self) -> list[str]:
        """Return all names in it."""
        if self.descriptor is None:
            return [one.name for one in self.path.iterdir()]
        return os.listdir(self.descriptor)  # noqa: PTH208 - pathlib knows no descriptors

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def _refuse_link(place: Path) -> None:
    """InputError where a subfolder is a link, which whoever made it could point anywhere."""
    if place.is_symlink():
        raise InputError(
            f"{place}: is a link, and links in a spool folder are not followed. Find out who made "
            "it; remove it, or give another spool folder"
        )


class _Box:
    """A subfolder into which one end writes files and from which the other reads them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_shared = _is_shared(path.parent)
        mode = 0o2770 if self._is_shared else 0o700
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # a link, which leads somewhere or nowhere, too
                path.mkdir(mode=0o700)
            with _Open(path) as folder:
                with suppress(FileExistsError):
                    os.mkdir(folder.at(DONE), 0o700, dir_fd=folder.descriptor)
                with _Open(path / DONE, folder) as done:
                    for place in (folder, done):
                        self._own(place, mode)
        except OSError as error:
            above = quote(str(path.parent))
            raise InputError(
                f"{path}: cannot be used as a folder of its owner's alone ({error.strerror}). Give "
                "another spool folder, or let this user own it. Two users of one group share a "
                f"spool folder that is made for them: mkdir {above} && chgrp GROUP {above} && "
                f"chmod 2770 {above}"
            ) from error
        self._seen: dict[str, tuple[int, ...]] = {}  # marks of files as they were before a read
        self._ignored: dict[str, tuple[int, ...]] = {}

    def _own(self, place: _Open, mode: int) -> None:
        """Give a subfolder its mode; OSError where another user's is not shared."""
        facts = place.path.stat() if place.descriptor is None else os.fstat(place.descriptor)
        if not stat.S_ISDIR(facts.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if hasattr(os, "geteuid") and facts.st_uid != os.geteuid():
            if not self._is_shared:
                raise PermissionError(errno.EPERM, "another user owns it")
        elif place.descriptor is None:
            place.path.chmod(mode)
        else:
            os.fchmod(place.descriptor, mode)

    def names(self) -> list[str]:
        """Names of files that may be frames; others are ignored."""
        with _Open(self.path) as folder:
            names = folder.names()
            with suppress(FileNotFoundError), _Open(self.path / DONE, folder):
                pass  # a link there is refused before anything is read
        found = []
        for name in sorted(names):
            if _NAME.fullmatch(name):
                found.append(name)
            elif name not in (STOP, DONE) and not name.endswith(NEW):
                self.ignore(name, "its name is not that of a frame")
        return found

    def read(self, name: str) -> bytes | None:
        """A file's bytes; None if it is not there, or was ignored and is the same as then."""
        with suppress(FileNotFoundError), _Open(self.path) as folder:
            return self._read(name, folder)
        return None

    def read_done(self, name: str) -> bytes | None:
        """The bytes of a file that was answered; as of `read`."""
        with (
            suppress(FileNotFoundError),
            _Open(self.path) as folder,
            _Open(self.path / DONE, folder) as done,
        ):
            return self._read(name, done)
        return None

    def take_stop(self) -> bool:
        """Whether there is a file that ends the party; it is removed."""
        with suppress(FileNotFoundError), _Open(self.path) as folder:
            os.unlink(folder.at(STOP), dir_fd=folder.descriptor)
            return True
        return False

    def _read(self, name: str, folder: _Open) -> bytes | None:
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            descriptor = os.open(folder.at(name), flags, dir_fd=folder.descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            is_link = (folder.path / name).is_symlink()
            why = "it is a link, which is not followed" if is_link else "it cannot be opened"
            self.ignore(name, f"{why} ({error.strerror})")
            return None
        try:
            facts = os.fstat(descriptor)
            self._seen[name] = _marks(facts)
            if self._ignored.get(name) == self._seen[name]:
                return None
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > messages.MAX_BYTES:
                self.ignore(name, f"it is no file of at most {messages.MAX_BYTES:,} bytes")
                return None
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read(messages.MAX_BYTES + 1)
        finally:
            os.close(descriptor)

    def ignore(self, name: str, why: object) -> None:
        """Name a file in the log, and leave it as it is until it changes."""
        with suppress(OSError):
            marks = self._seen.pop(name, None) or _marks(os.lstat(self.path / name))
            if self._ignored.get(name) != marks:
                self._ignored[name] = marks
                _log.warning("%s: ignored: %s", self.path / name, why)

    def tidy(self) -> None:
        """Remove what this end was writing when it was killed."""
        with _Open(self.path) as folder:
            for name in folder.names():
                if name.endswith(NEW):
                    with suppress(FileNotFoundError):
                        os.unlink(folder.at(name), dir_fd=folder.descriptor)

    def finish(self, name: str) -> None:
        """Move a file to what was answered, if it is still there."""
        self._seen.pop(name, None)
        with (
            suppress(OSError),
            _Open(self.path) as folder,
            _Open(self.path / DONE, folder) as done,
        ):
            os.replace(
                folder.at(name), done.at(name),
                src_dir_fd=folder.descriptor, dst_dir_fd=done.descriptor,
            )  # fmt: skip

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole; InputError if it cannot be written."""
        try:
            with _Open(self.path) as folder:
                file = self.path / name
                write_whole(file, data, shared=self._is_shared, within=folder.descriptor)
        except OSError as error:
            raise InputError(
                f"{self.path / name}: cannot be written ({error.strerror}). Nothing was sent. Free "
                "space or repair the disk, then start again: the study continues where it was"
            ) from error


def _marks(facts: os.stat_result) -> tuple[int, ...]:
    """By which a file is known as unchanged; compared with those of the same file alone."""
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


class Spool:
    """A transport over a spool folder: the coordinator's end.

    Args:
        folder: Where the subfolders lie, or are made.
        seals: The coordinator's, with the study's roster.
        seconds: For which an answer is awaited.
        pause: Longest time between two looks for it, in seconds.

    Attributes:
        noticed: Called with a party and what hinders it, while its answer is awaited.
    """

    def __init__(self, folder: Path, seals: Seals, *, seconds: float, pause: float = 0.5) -> None:
        self._folder, self._lock = folder, -1
        self._seals, self._seconds, self._pause = seals, seconds, pause
        self.noticed: Callable[[str, str], object] = lambda name, why: None
        self._boxes = {
            name: (_Box(_to(folder, name)), _Box(_from(folder, name)))
            for name in seals.roster.parties
        }
        for questions, _ in self._boxes.values():
            questions.tidy()

    def __enter__(self) -> Spool:
        """Keep other coordinators out of the folder; InputError, which names who is there."""
        if fcntl is None:
            return self
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = self._folder / LOCK
        try:
            lock = os.open(file, flags, 0o600)
        except OSError as error:
            raise InputError(f"{file}: cannot be opened ({error.strerror}); remove it") from error
        try:
            if _is_shared(self._folder) and os.fstat(lock).st_uid == os.geteuid():
                os.fchmod(lock, 0o660)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                who = os.pread(lock, 200, 0).decode("utf-8", "replace").strip()
                raise InputError(
                    f"{self._folder}: another coordinator uses this spool folder ({who}). End it "
                    "first, or give another folder"
                ) from error
            except OSError as error:  # a file system without locks
                _log.warning("%s: no lock can be held there (%s)", file, error.strerror)
            text = f"process {os.getpid()} on {socket.gethostname()}, study {self._study}\n"
            with naming_file(file):
                os.ftruncate(lock, 0)
                os.pwrite(lock, text.encode(), 0)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        """Let others use the folder; the file stays, as removing it would let in two."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def await_for(self, seconds: float) -> None:
        """Await answers to later questions for so long."""
        self._seconds = seconds

    @property
    def _study(self) -> str:
        return repr(self._seals.roster.study)

    def send(self, name: str, frame: bytes, facts: bytes = b"") -> bytes:
        """The party's answer to `frame`; with facts where a stage begins with it.

        Raises:
            RosterError: The party is unknown, or did not answer in time. The question stays where
                it is; the same one, asked again, takes an answer that came since.
            InputError: The question cannot be written; the disk may be full.
            SiloweaveError: What the party refused the question with.
        """
        if name not in self._boxes:
            raise RosterError(f"party {name!r} is not there; present are {sorted(self._boxes)}")
        questions, answers = self._boxes[name]
        mark = self._seals.mark(frame)
        if (known := self._asked(name, mark)) is None:
            sealed = self._seals.ask(name, frame, facts)
            nonce = self._seals.checked(sealed, self._seals.name, name).nonce
            called = mark + blake2b(nonce, digest_size=10).hexdigest()
            questions.write(called, sealed)
        else:
            called, nonce = known
        try:
            opened = self._answer(name, called, nonce)
        except RosterError:
            if known is not None:  # answered long ago, perhaps, and the answer is lost
                questions.finish(called)
            raise
        questions.finish(called)  # first: a question without an answer is waited for
        answers.finish(called)
        return opened.envelope()

    def _asked(self, name: str, mark: str) -> tuple[str, bytes] | None:
        """File and nonce of a question of this mark that waits for its answer, or has it."""
        questions, answers = self._boxes[name]
        found = {one.name for box in (questions, answers) for one in box.path.glob(f"{mark}*")}
        for called in sorted(filter(_NAME.fullmatch, found)):
            if (known := questions.read_done(called)) is None:
                known = questions.read(called)
            elif not (answers.path / called).exists():
                continue  # its answer was taken; a question that lies there again is a copy
            with suppress(WireError):  # of an earlier roster, or not ours
                if known is not None:
                    return called, self._seals.checked(known, self._seals.name, name).nonce
        return None

    def _answer(self, name: str, called: str, nonce: bytes) -> Opened:
        """The answer to the question of this nonce, or RosterError in the end."""
        questions, answers = self._boxes[name]
        end, wait, odd = time.monotonic() + self._seconds, _FIRST_S, ""
        while True:
            late = time.monotonic() >= end
            if (data := answers.read(called)) is not None:
                try:
                    return self._seals.open(data, name, nonce)
                except WireError as error:
                    answers.ignore(called, error)
                    odd = f" An answer was ignored: {error}."
                    self.noticed(name, str(error))
            if late:
                if odd:
                    answers.finish(called)  # so that the question is asked anew
                raise RosterError(
                    f"party {name!r} did not answer within {self._seconds:g} s. Its question lies "
                    f"in {questions.path}; see that the party runs, that files are carried, and "
                    f"{self._seals.again}.{odd}"
                )
            time.sleep(min(wait, max(0.0, end - time.monotonic())))
            wait = min(2 * wait, self._pause)


def serve(
    folder: Path,
    seals: Seals,
    reply: Callable[[Opened], bytes],
    *,
    pause: float = 0.5,
    seconds: float = inf,
    stopped: Callable[[], bool] = lambda: False,
    watch: Watch | None = None,
) -> None:
    """Answer questions from a spool folder: the party's end.

    It ends when there is a file called `stop` in `to-PARTY`, and removes that file; once it has
    refused the study, or the coordinator has its result; after so many seconds; and once it is
    `stopped`. While the folder is not there, as of a memory stick that was taken out, it waits for
    it to be back.

    Args:
        folder: Where the subfolders lie, or are made.
        seals: The party's, with the study's roster and a file for its nonces.
        reply: Answers a question that was opened.
        pause: Longest time between two looks for questions, in seconds.
        seconds: For which questions are answered.
        stopped: Says whether to end, before each look for questions.
        watch: Says what the party waits for.

    Raises:
        InputError: An answer cannot be stored or written; the disk may be full. The question stays
            where it is, and is answered when the party is started again.
        StudyError: What the study was refused with.
    """
    watch = watch or Watch(f"party {seals.name!r}")
    questions, answers = _Box(_to(folder, seals.name)), _Box(_from(folder, seals.name))
    answers.tidy()
    wait, end = _FIRST_S, time.monotonic() + seconds
    watch.connected()
    watch.waits(f"waiting for the first question in {folder}")
    try:
        while not stopped() and time.monotonic() < end:
            watch.look()
            try:
                names = questions.names()
            except FileNotFoundError as error:
                watch.lost(f"{folder} is not there: {error.strerror}")
                time.sleep(pause)
                continue
            watch.connected()
            if questions.take_stop():
                return
            if any(_taken(questions, answers, name, seals, reply) for name in names):
                watch.waits("waiting for the next question", is_said=False)
                wait = _FIRST_S
                continue
            if seals.has_ended:
                return
            if seals.refused is not None:  # and no other question lies there
                raise seals.refused
            time.sleep(wait)
            wait = min(2 * wait, pause)
    except OSError as error:
        raise InputError(
            f"party {seals.name!r} cannot read questions or store an answer "
            f"({of_system(error)}). Nothing more was sent. Free space or repair the disk, then "
            "start the party again: its question is still there"
        ) from error


def _taken(
    questions: _Box, answers: _Box, name: str, seals: Seals, reply: Callable[[Opened], bytes]
) -> bool:
    """Whether a question was answered; one that cannot be opened is ignored."""
    if (frame := questions.read(name)) is None:
        return False
    try:
        with seals.answered(frame, reply) as answer:
            answers.write(name, answer)
    except WireError as error:
        questions.ignore(name, error)
        return False
    questions.finish(name)
    return True
