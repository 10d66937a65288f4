"""A party's door to its studies: one process answers for one study, or for several.

Each study has a thread, a log, and a carrier of its own; what ends one study ends no other.

**Guarantee**: none of its own; see core/party.py. Studies share the process and nothing else: each
has its host, its ledger and its keys, and what one logs is in no other's log.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import typer

from siloweave.app.network import answers_in
from siloweave.app.presence import Running
from siloweave.app.status import clock, known_status, logging_for
from siloweave.app.status_facts import remembered
from siloweave.errors import (
    InputError,
    SiloweaveError,
    StudyError,
    count_of,
    of_system,
)
from siloweave.federation import course, engine, local, processes, spool
from siloweave.federation.exchanges import (
    NONCES,
    PARTING,
    REFUSAL,
    exchanges_in,
    finished_at,
)
from siloweave.federation.watch import Watch

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_LOOK_S = 0.2  # between two looks whether a study has ended, or this is interrupted
_FACTS_S = 10.0  # between two looks whether facts for `siloweave status` are outdated
_LATE_S = 10.0  # of waiting, after which a note says why a party has not answered
_AWAITED_S = 1.0  # between two looks whom a coordinator waits for


def ends_at(text: str, now: datetime | None = None) -> float:
    """Return the seconds until a time, or of a duration, as an owner writes it.

    A time of day is the next one; times are those of this machine's clock and zone.

    Raises:
        InputError: It is neither, or is over.

    Example:
        >>> ends_at("1.5 h"), ends_at("45min")
        (5400.0, 2700.0)
        >>> ends_at("18:30", datetime(2026, 12, 1, 18, 0))
        1800.0
    """
    now = now or datetime.now()  # noqa: DTZ005 - an owner means this machine's time
    duration = _DURATION.fullmatch(text.strip())
    if duration is not None:
        seconds = float(duration[1]) * _UNITS[duration[2]]
    else:
        try:
            seconds = _seconds_until(text.strip(), now)
        except ValueError as error:
            raise InputError(
                f"--until {text!r} must be a duration (8h, 45min, 2d), a time of day (18:30), or "
                "a date and time (2026-12-01T18:30)"
            ) from error
    if seconds <= 0:
        raise InputError(f"--until {text!r} is over; give a time that is yet to come")
    return seconds


def _seconds_until(text: str, now: datetime) -> float:
    """Return the seconds until a time of day, or a date and time; ValueError if it is neither."""
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        hour = int(clock[1])
        minute = int(clock[2])
        end = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        # A time that is over today is tomorrow's.
        if end <= now:
            end += timedelta(days=1)
    else:
        end = datetime.fromisoformat(text)
        if end.tzinfo is not None:
            now = now.astimezone(end.tzinfo)
    return (end - now).total_seconds()


@dataclass
class Door:
    """A study that a party answers for, and the way on which its questions come.

    Attributes:
        folder: The party's, of this study.
        data: Its rows, as the owner names them.
        files: The spool folder; None over a network.
        address: ``HOST:PORT`` of the coordinator; None over files, or where others run the node.
        socket: Where a node that another user runs connects; None otherwise.
        node_user: That user's number; None for this one.
        proxy: On the way to it, as the owner gave it.
        plaintext: No TLS, for trials on one machine.
        wait: Seconds for which a coordinator is awaited; or a first question, if it is refused.
        noise: "seeded" protects nothing and is for tests.
        error: What ended it, if that was an error.
    """

    folder: Path
    data: str | None
    files: Path | None
    address: str | None
    socket: Path | None
    node_user: int | None
    proxy: str | None
    plaintext: bool
    wait: float
    noise: str
    error: Exception | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Let the study's thread end, once an answer that was begun is finished."""
        self._stop.set()

    def open(self, until: float) -> None:
        """Answer until the study has ended, this is stopped, or `until` of the monotonic clock."""
        try:
            with (
                logging_for(self.folder),
                Running(self.folder, "this party") as running,
            ):
                self._answer(until, running)
        # Of any kind: an error that ended this thread alone would look like the end of the study.
        except Exception as error:  # noqa: BLE001  # raised again by `open_doors`
            self.error = error

    def _answer(self, until: float, running: Running) -> None:
        from siloweave.app.console import print_error, print_note, print_warning

        def show_rows(line: str, warning: str) -> None:
            # In the terminal alone, as it may tell how many rows there are.
            print_note(line)
            if warning:
                print_warning(warning)

        party = answers_in(
            self.folder, self.data, noise=self.noise, show_rows=show_rows
        )
        with party as (seals, reply, decline_reason):
            who = f"party {seals.name!r}"
            watch = Watch(who, lambda line: typer.echo(line, err=True))
            if decline_reason:
                print_error(decline_reason)
                watch.waits("takes no part, and says so when it is first asked")
                running.note(declines=True)

            def busy_reply(question: Any) -> bytes:
                running.note(is_busy=True)
                try:
                    return reply(question)
                finally:
                    running.note()

            past = _past_line(self.folder, seals.roster.study)
            if past:
                print_note(past)

            seconds = until - time.monotonic()
            # A party that takes no part waits for the first question only, and not for ever.
            if decline_reason:
                seconds = min(self.wait, seconds)
            with keeping_facts(self.folder, running):
                self._serve(seals, busy_reply, seconds, watch)

            if seals.has_ended:
                study = seals.roster.study
                watch.ended(f"study {study!r}: the coordinator has its result")
            elif decline_reason and not self._stop.is_set():
                # The owner's script must not take it for a study that went well.
                raise StudyError(
                    f"{decline_reason}. The coordinator asked nothing in time to hear of it"
                )
            elif time.monotonic() >= until:
                running.ends("at the time that --until names")
                watch.ended("the time that --until names has come")
            elif self._stop.is_set():
                running.ends("by Ctrl-C")
                watch.ended("stopped; the same command continues")

    def _serve(self, seals: Any, reply: Any, seconds: float, watch: Watch) -> None:
        """Answer what comes, over files or at a socket, until the end or for so many seconds."""
        if self.files is not None:
            stopped = self._stop.is_set
            spool.serve(
                self.files, seals, reply, seconds=seconds, stopped=stopped, watch=watch
            )
            return

        awaited = min(self.wait, seconds)
        with self._server(seals, reply, awaited, watch) as server:
            # The server calls this between questions: what was begun is answered before it stops.
            look_before = server.looked

            def look() -> None:
                look_before()
                if self._stop.is_set():
                    server.stop()

            server.looked = look
            server.serve(seconds)

    def _server(
        self, seals: Any, reply: Any, awaited: float, watch: Watch
    ) -> AbstractContextManager[local.Server]:
        """Open the socket at which a node hands in questions, and start the node if it is ours."""
        if self.socket is not None:
            return engine.awaiting_node(
                seals, reply, self.socket, self.node_user, watch
            )
        assert self.address is not None
        return engine.answering(
            self.folder,
            seals,
            reply,
            self.address,
            plaintext=self.plaintext,
            seconds=awaited,
            proxy=self.proxy,
            watch=watch,
        )


def _past_line(folder: Path, study: str) -> str:
    """Say how far a study is at a party that is started again; empty before its first answer."""
    answers = exchanges_in(folder / NONCES)
    ended = finished_at(answers)
    if not ended:
        count = sum(answer.kind not in (REFUSAL, PARTING) for answer in answers)
        if not count:
            return ""
        questions = count_of(count, "question", "questions")
        return f"study {study!r} continues here: {questions} answered so far"
    when = clock(datetime.fromtimestamp(ended, UTC))
    return (
        f"study {study!r} has finished here ({when}); nothing is left to do. It stays only for a "
        "coordinator that lost its result"
    )


def open_doors(doors: Sequence[Door], seconds: float = inf) -> None:
    """Answer for all studies until each has ended.

    Raises:
        Exception: What ended the only study.
        typer.Exit: With code 2, where one of several ended with an error, which was printed.
    """
    from siloweave.app.console import print_error

    typer.echo("Ctrl-C stops this party; the same command continues", err=True)
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=door.open, args=(until,), daemon=True) for door in doors
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            # In short waits: one without an end would not notice Ctrl-C on every system.
            while thread.is_alive():
                thread.join(_LOOK_S)
    except BaseException:
        # Answers that were begun are finished, as their releases are in the ledgers already.
        for door in doors:
            door.stop()
        for thread in threads:
            thread.join()
        raise

    failed_doors = [door for door in doors if door.error is not None]
    if len(doors) == 1 and failed_doors:
        assert failed_doors[0].error is not None
        raise failed_doors[0].error
    for door in failed_doors:
        error = door.error
        why = of_system(error) if isinstance(error, OSError) else str(error)
        if not isinstance(error, SiloweaveError | OSError):
            traceback.print_exception(error)
            why = f"ended with {type(error).__name__}, an error of this program: see above"
        print_error(f"{door.folder}: {why}")
    if failed_doors:
        sys.stderr.flush()
        codes = {
            getattr(door.error, "exit_code", InputError.exit_code)
            for door in failed_doors
        }
        # Studies that ended differently have no code in common.
        code = codes.pop() if len(codes) == 1 else InputError.exit_code
        raise typer.Exit(code)


@contextmanager
def keeping_facts(folder: Path, running: Running) -> Iterator[None]:
    """Keep what `siloweave status` takes of an end's files up to date while the block runs.

    This process has loaded what that needs; `siloweave status` would have to, at every call.
    `running` notes from time to time that the process lives.
    """
    over = threading.Event()

    def refresh() -> None:
        # The command itself says what is wrong.
        with suppress(SiloweaveError, OSError):
            if known_status(folder) is None:
                remembered(folder)

    def refresh_often() -> None:
        refresh()
        # The first time took memory that is not needed while this end waits.
        processes.return_memory()
        while not over.wait(_FACTS_S):
            running.lives()
            refresh()

    try:
        with _meanwhile(refresh_often, over):
            yield
    finally:
        refresh()


@contextmanager
def _meanwhile(work: Callable[[], None], over: threading.Event) -> Iterator[None]:
    """Let a thread work while the block runs; `over` is set at the block's end."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def waiting(
    folder: Path, names: Sequence[str], carrier: Any, watch: Watch
) -> Iterator[None]:
    """Say while the block runs whom a coordinator waits for, and for how long.

    Args:
        folder: Of the study's run, where it writes down whom it asked.
        names: Of all parties.
        carrier: Asks them; says how a party answered last, if it can.
        watch: Says it.
    """
    over = threading.Event()

    def look_often() -> None:
        awaited = tuple[str, ...]()
        since = time.monotonic()
        is_first = True
        noted = set[tuple[str, str]]()  # parties, and why they had not answered
        while not over.wait(_AWAITED_S):
            silent = _silent_parties(folder, names)
            if silent != awaited:
                awaited = silent
                since = time.monotonic()
                text = f"waiting for {', '.join(silent)}" if silent else ""
                # The first wait is shown at once; others by `watch.look`, once they are long.
                watch.waits(text, is_said=is_first)
                is_first = False
            watch.look()

            # Carriers of files cannot know how a party answered.
            is_late = time.monotonic() - since > _LATE_S
            if not is_late or not hasattr(carrier, "seen"):
                continue
            for name in awaited:
                why = carrier.seen(name)
                if why and (name, why) not in noted:
                    noted.add((name, why))
                    watch.notes(f"{name} {why}")

    with _meanwhile(look_often, over):
        yield


def _silent_parties(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """List the parties that were asked and have not answered, by what a coordinator wrote down."""
    # A study that aligns rows first has the alignment's status before that of its run.
    for run_folder in (folder, folder / course.ALIGNED):
        status = course.read_status(run_folder / course.STATUS)
        if status is not None and not status.ended:
            silent = status.asked.keys() - status.answered.keys()
            return tuple(name for name in names if name in silent)
    return ()
