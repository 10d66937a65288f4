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

STOP = "stop"
"""In `to-PARTY`: a file that ends `serve`."""
DONE = "done"
"""In `to-PARTY` and `from-PARTY`: the folder of what was answered."""
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
# A party's name that a folder may have.
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
# A pause before the next look into a folder, which doubles up to the longest.
_FIRST_S = 0.001


def _to(folder: Path, party: str) -> Path:
    """Return the subfolder of the coordinator's questions to a party."""
    return folder / f"to-{_plain(party)}"


def _from(folder: Path, party: str) -> Path:
    """Return the subfolder of a party's answers."""
    return folder / f"from-{_plain(party)}"


def _plain(party: str) -> str:
    """Return a party's name as a folder's name; a digest if it is not plain enough for that."""
    # A name such as ../.. would lead out of the spool folder.
    if _PLAIN.fullmatch(party):
        return party
    return messages.body_digest(party.encode()).hex()


def _is_shared(folder: Path) -> bool:
    """Return whether the owner of a spool folder shares it with a group.

    A folder that is still to be made is not shared.
    """
    try:
        return folder.stat().st_mode & SHARED == SHARED
    except OSError:
        return False


class _Open:
    """A folder that was opened, so that its names stay in it whatever its path becomes.

    Where the system has no descriptors of folders, its path is used, once it is seen to be no link.
    """

    def __init__(self, path: Path, above: _Open | None = None) -> None:
        self.path = path
        self.descriptor: int | None = None
        if not _BY_DESCRIPTOR:
            _refuse_link(path)
            return
        # The system itself refuses a link here, in the same call that opens: between a look and an
        # opening, another could put a link in the folder's place.
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
        """Return a name in the folder as a system call takes it beside `dir_fd`."""
        if self.descriptor is None:
            return self.path / name
        return name

    def names(self) -> list[str]:
        """Return all names of files in the folder."""
        if self.descriptor is None:
            return [entry.name for entry in self.path.iterdir()]
        return os.listdir(self.descriptor)  # noqa: PTH208 - pathlib knows no descriptors

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def _refuse_link(place: Path) -> None:
    """Raise InputError for a subfolder that is a link, which its maker could point anywhere."""
    if place.is_symlink():
        raise InputError(
            f"{place}: is a link, and links in a spool folder are not followed. Find out who made "
            "it; remove it, or give another spool folder"
        )


class _Box:
    """A subfolder into which one end writes files, and from which the other end reads them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.parent.is_file():
            raise InputError(
                f"{path.parent}: is a file. Questions travel in a folder: give one, or a new name"
            )
        self._is_shared = _is_shared(path.parent)
        mode = 0o2770 if self._is_shared else 0o700
        # Folders are made for their owner alone; `_own` opens them once they are seen to be ours.
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A link, which leads somewhere or nowhere, too.
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
            with _Open(path) as folder:
                with suppress(FileExistsError):
                    os.mkdir(folder.at(DONE), 0o700, dir_fd=folder.descriptor)
                with _Open(path / DONE, folder) as done_folder:
                    for place in (folder, done_folder):
                        self._own(place, mode)
        except OSError as error:
            above = quote(str(path.parent))
            raise InputError(
                f"{path}: cannot be used as a folder of its owner's alone ({error.strerror}). Give "
                "another spool folder, or let this user own it. Two users of one group share a "
                f"spool folder that is made for them: mkdir {above} && chgrp GROUP {above} && "
                f"chmod 2770 {above}"
            ) from error
        # Of files as they were before a read.
        self._marks: dict[str, tuple[int, ...]] = {}
        # Marks of files that were ignored.
        self._ignored: dict[str, tuple[int, ...]] = {}

    def _own(self, place: _Open, mode: int) -> None:
        """Set the mode of a subfolder; OSError if another user's folder is not shared."""
        facts = (
            place.path.stat()
            if place.descriptor is None
            else os.fstat(place.descriptor)
        )
        if not stat.S_ISDIR(facts.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

        # A folder that another user made in advance would let that user take files away.
        is_of_other_user = hasattr(os, "geteuid") and facts.st_uid != os.geteuid()
        if is_of_other_user:
            if not self._is_shared:
                raise PermissionError(errno.EPERM, "another user owns it")
        elif place.descriptor is None:
            place.path.chmod(mode)
        else:
            os.fchmod(place.descriptor, mode)

    def names(self) -> list[str]:
        """Return the names of files that may be frames; all others are ignored."""
        with _Open(self.path) as folder:
            names = folder.names()
            with suppress(FileNotFoundError), _Open(self.path / DONE, folder):
                pass  # a link there is refused before anything is read
        frame_names = []
        for name in sorted(names):
            if _NAME.fullmatch(name):
                frame_names.append(name)
            elif name not in (STOP, DONE) and not name.endswith(NEW):
                self.ignore(name, "its name is not that of a frame")
        return frame_names

    def read(self, name: str) -> bytes | None:
        """Read a file; None if it is not there, or was ignored before and is unchanged."""
        with suppress(FileNotFoundError), _Open(self.path) as folder:
            return self._read(name, folder)
        return None

    def read_done(self, name: str) -> bytes | None:
        """Read a file that was answered; None as of `read`."""
        with (
            suppress(FileNotFoundError),
            _Open(self.path) as folder,
            _Open(self.path / DONE, folder) as done_folder,
        ):
            return self._read(name, done_folder)
        return None

    def take_stop(self) -> bool:
        """Remove the file that ends the party, and return whether it was there."""
        with suppress(FileNotFoundError), _Open(self.path) as folder:
            os.unlink(folder.at(STOP), dir_fd=folder.descriptor)
            return True
        return False

    def _read(self, name: str, folder: _Open) -> bytes | None:
        """Read a file in an open folder; None as of `read`."""
        # No link is followed, and a pipe that somebody put there does not block the opening.
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            descriptor = os.open(folder.at(name), flags, dir_fd=folder.descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            is_link = (folder.path / name).is_symlink()
            why = (
                "it is a link, which is not followed"
                if is_link
                else "it cannot be opened"
            )
            self.ignore(name, f"{why} ({error.strerror})")
            return None

        try:
            # Of the file that is open, not of its name, which may be another's by now.
            facts = os.fstat(descriptor)
            self._marks[name] = _marks(facts)
            if self._ignored.get(name) == self._marks[name]:
                return None
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > messages.MAX_BYTES:
                self.ignore(
                    name, f"it is no file of at most {messages.MAX_BYTES:,} bytes"
                )
                return None
            with os.fdopen(os.dup(descriptor), "rb") as file:
                # The file may have grown since: it is read no further than one byte too many.
                return file.read(messages.MAX_BYTES + 1)
        finally:
            os.close(descriptor)

    def ignore(self, name: str, why: object) -> None:
        """Name a file in the log, and ignore it until it changes."""
        with suppress(OSError):
            marks = self._marks.pop(name, None) or _marks(os.lstat(self.path / name))
            if self._ignored.get(name) != marks:
                self._ignored[name] = marks
                _log.warning("%s: ignored: %s", self.path / name, why)

    def tidy(self) -> None:
        """Remove the files that this end was writing when it was killed."""
        with _Open(self.path) as folder:
            for name in folder.names():
                if name.endswith(NEW):
                    with suppress(FileNotFoundError):
                        os.unlink(folder.at(name), dir_fd=folder.descriptor)

    def finish(self, name: str) -> None:
        """Move a file to the answered ones, if it is still there."""
        self._marks.pop(name, None)
        with (
            suppress(OSError),
            _Open(self.path) as folder,
            _Open(self.path / DONE, folder) as done_folder,
        ):
            os.replace(
                folder.at(name),
                done_folder.at(name),
                src_dir_fd=folder.descriptor,
                dst_dir_fd=done_folder.descriptor,
            )

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all; InputError if it cannot be written."""
        try:
            with _Open(self.path) as folder:
                file = self.path / name
                write_whole(
                    file, data, shared=self._is_shared, within=folder.descriptor
                )
        except OSError as error:
            raise InputError(
                f"{self.path / name}: cannot be written ({error.strerror}). Nothing was sent. Free "
                "space or repair the disk, then start again: the study continues where it was"
            ) from error


def _marks(facts: os.stat_result) -> tuple[int, ...]:
    """Return the facts of a file by which it is recognised as unchanged.

    They are compared with those of the same file alone: no clock of another machine is read.
    """
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


class Spool:
    """A transport over a spool folder, at the coordinator.

    Args:
        folder: Where the subfolders lie, or are made.
        seals: The coordinator's, with the study's roster.
        seconds: For which an answer is awaited.
        pause: Longest time between two looks for it, in seconds.

    Attributes:
        noticed: Called with a party and what hinders it, while its answer is awaited.
    """

    def __init__(
        self, folder: Path, seals: Seals, *, seconds: float, pause: float = 0.5
    ) -> None:
        self._folder = folder
        self._lock = -1  # descriptor of the file that keeps others out
        self._seals = seals
        self._seconds = seconds
        self._pause = pause
        self.noticed: Callable[[str, str], object] = lambda name, why: None
        self._boxes = {
            name: (_Box(_to(folder, name)), _Box(_from(folder, name)))
            for name in seals.roster.parties
        }
        for questions, _ in self._boxes.values():
            questions.tidy()

    def __enter__(self) -> Spool:
        """Lock the folder against other coordinators; InputError, which names who is there."""
        if fcntl is None:
            return self
        # Two coordinators would take each other's answers, and ask for each step twice.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = self._folder / LOCK
        try:
            lock = os.open(file, flags, 0o600)
        except OSError as error:
            raise InputError(
                f"{file}: cannot be opened ({error.strerror}); remove it"
            ) from error
        try:
            if _is_shared(self._folder) and os.fstat(lock).st_uid == os.geteuid():
                os.fchmod(lock, 0o660)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(lock, 200, 0).decode("utf-8", "replace").strip()
                raise InputError(
                    f"{self._folder}: another coordinator uses this spool folder ({holder}). End "
                    "it first, or give another folder"
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
        """Leave the folder to others; the lock's file stays, as its removal would let in two."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def await_for(self, seconds: float) -> None:
        """Set how many seconds the answers to later questions are awaited."""
        self._seconds = seconds

    @property
    def _study(self) -> str:
        """The study's name, in quotes."""
        return repr(self._seals.roster.study)

    def send(self, name: str, frame: bytes, facts: bytes = b"") -> bytes:
        """Send a frame to a party, and return its answer.

        `facts` come with the first question of a stage.

        Raises:
            RosterError: The party is unknown, or did not answer in time. The question stays where
                it is; the same one, asked again, takes an answer that came since.
            InputError: The question cannot be written; the disk may be full.
            SiloweaveError: What the party refused the question with.
        """
        if name not in self._boxes:
            raise RosterError(
                f"party {name!r} is not there; present are {sorted(self._boxes)}"
            )
        questions, answers = self._boxes[name]
        mark = self._seals.mark(frame)

        # A coordinator that was killed finds its question by the mark, which nobody else can
        # compute; the rest of a file's name is of the nonce.
        earlier = self._asked(name, mark)
        if earlier is None:
            sealed = self._seals.ask(name, frame, facts)
            nonce = self._seals.checked(sealed, self._seals.name, name).nonce
            file_name = mark + blake2b(nonce, digest_size=10).hexdigest()
            questions.write(file_name, sealed)
        else:
            file_name, nonce = earlier

        try:
            opened = self._answer(name, file_name, nonce)
        except RosterError:
            # Answered long ago, perhaps, and the answer is lost.
            if earlier is not None:
                questions.finish(file_name)
            raise
        questions.finish(file_name)  # first: a question without an answer is waited for
        answers.finish(file_name)
        return opened.envelope()

    def _asked(self, name: str, mark: str) -> tuple[str, bytes] | None:
        """Find a question with this mark that still counts; return its file name and its nonce."""
        questions, answers = self._boxes[name]
        paths = (
            path for box in (questions, answers) for path in box.path.glob(f"{mark}*")
        )
        file_names = {path.name for path in paths}
        for file_name in sorted(filter(_NAME.fullmatch, file_names)):
            question = questions.read_done(file_name)
            if question is None:
                question = questions.read(file_name)
            elif not (answers.path / file_name).exists():
                # Its answer was taken; a question that lies there again is a copy.
                continue
            if question is None:
                continue
            # It must be this coordinator's own: a nonce that others chose would be waited for.
            with suppress(WireError):  # of an earlier roster, or not ours
                opened = self._seals.checked(question, self._seals.name, name)
                return file_name, opened.nonce
        return None

    def _answer(self, name: str, file_name: str, nonce: bytes) -> Opened:
        """Await the answer to the question of this nonce; RosterError if none comes in the end."""
        questions, answers = self._boxes[name]
        end = time.monotonic() + self._seconds
        wait = _FIRST_S
        ignored = ""
        while True:
            # Looked at before the read, so that there is one more look once it is late.
            is_late = time.monotonic() >= end
            data = answers.read(file_name)
            if data is not None:
                try:
                    return self._seals.open(data, name, nonce)
                except WireError as error:
                    # Anyone who can write in the folder may put a file there: it is waited on.
                    answers.ignore(file_name, error)
                    ignored = f" An answer was ignored: {error}."
                    self.noticed(name, str(error))
            if is_late:
                if ignored:
                    answers.finish(file_name)  # so that the question is asked anew
                raise RosterError(
                    f"party {name!r} did not answer within {self._seconds:g} s. Its question lies "
                    f"in {questions.path}; see that the party runs, that files are carried, and "
                    f"{self._seals.again}.{ignored}"
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
    """Answer questions from a spool folder, at a party.

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
    questions = _Box(_to(folder, seals.name))
    answers = _Box(_from(folder, seals.name))
    answers.tidy()
    wait = _FIRST_S
    end = time.monotonic() + seconds
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
            # One question a look: another may have come meanwhile, or a file that ends the party.
            if any(_answered(questions, answers, name, seals, reply) for name in names):
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


def _answered(
    questions: _Box,
    answers: _Box,
    name: str,
    seals: Seals,
    reply: Callable[[Opened], bytes],
) -> bool:
    """Answer a question, and return whether that was done; one that cannot be opened is ignored."""
    frame = questions.read(name)
    if frame is None:
        return False
    try:
        with seals.answered(frame, reply) as answer:
            # Within the block: the question counts as answered once its answer is written.
            answers.write(name, answer)
    except WireError as error:
        questions.ignore(name, error)
        return False
    questions.finish(name)
    return True
