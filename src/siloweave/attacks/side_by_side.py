"""Many independent jobs side by side, with the same results however many workers there are."""

import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from typing import Any, TypeVar

from siloweave.errors import InputError

__all__ = ["Progress", "side_by_side"]

S = TypeVar("S")
J = TypeVar("J")
R = TypeVar("R")
Progress = Callable[[str, float], None]
"""Called with a text and the share that is done."""


@dataclass(frozen=True)
class _Failed:
    """What went wrong in a worker, in words: not every exception survives the way back."""

    words: str


_held: list[Any] = []  # what a worker process was started with: its function and what all share


def side_by_side(
    work: Callable[[S, J], R],
    shared: S,
    jobs: Sequence[J],
    *,
    workers: int,
    name: Callable[[J], str] = str,
    progress: Progress = lambda text, done: None,
) -> list[R]:
    """Do every job, each in one BLAS thread, several at a time in processes of their own.

    Nothing is written to disk. What cannot be handed to another process (a lambda, a function
    typed into a session) is run in threads instead, with a warning; results are the same.

    Args:
        work: Called with `shared` and one job; must not depend on what ran before.
        shared: What every job needs; sent to a worker once.
        jobs: What to do.
        workers: How many at a time; 1 runs them here, one after the other.
        name: What a job is called in messages.
        progress: Called after each job, in this process.

    Returns:
        One result per job, in their order.

    Raises:
        InputError: `workers` is below 1, or a job failed; names the job. No further job starts.

    Example:
        >>> side_by_side(lambda shared, job: shared + job, 10, [1, 2], workers=1)
        [11, 12]
    """
    if workers < 1:
        raise InputError(f"workers={workers} must be at least 1: how many run side by side")
    number = count(1)

    def take(job: J, result: Callable[[], R | _Failed]) -> R:
        found = _named(name(job), result)
        progress(name(job), next(number) / len(jobs))
        return found

    if workers == 1 or len(jobs) < 2:
        with _one_thread():
            return [take(job, partial(work, shared, job)) for job in jobs]
    reason = _stays_here(work, shared)
    most = min(workers, len(jobs))
    call: Callable[[J], R | _Failed] = partial(work, shared) if reason else _one
    with _one_thread() if reason else nullcontext(), _pool(reason, most, work, shared) as pool:
        futures = {pool.submit(call, job): place for place, job in enumerate(jobs)}
        try:
            taken = {futures[f]: take(jobs[futures[f]], f.result) for f in as_completed(futures)}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [taken[place] for place in range(len(jobs))]


def _pool(reason: str, workers: int, work: object, shared: object) -> Executor:
    """Processes, or threads where there is a reason against them."""
    if not reason:
        spawn = get_context("spawn")
        return ProcessPoolExecutor(workers, spawn, initializer=_start, initargs=(work, shared))
    warnings.warn(
        f"{reason}, so the fits run in threads of this process, which is slower; define the "
        "function in a module file to run them in processes",
        stacklevel=4,
    )
    return ThreadPoolExecutor(workers)


def _named(name: str, result: "Callable[[], R | _Failed]") -> R:
    """A job's result; what went wrong is raised with the job's name."""
    try:
        found = result()
    except BrokenProcessPool as error:
        raise InputError(
            f"a worker process died before {name} was done. If the call stands in a "
            "script, put it under `if __name__ == '__main__':`; if memory ran out, use fewer "
            "workers; workers=1 runs everything in this process"
        ) from error
    except Exception as error:
        raise InputError(f"{name}: {type(error).__name__}: {error}") from error
    if isinstance(found, _Failed):
        raise InputError(f"{name}: {found.words}")
    return found


def _stays_here(work: object, shared: object) -> str:
    """Why this cannot be handed to another process; empty if it can."""
    from multiprocessing.reduction import ForkingPickler

    main = sys.modules.get("__main__")
    try:
        sent = bytes(ForkingPickler.dumps((work, shared)))
    except Exception as error:  # noqa: BLE001  # objects refuse to travel in their own ways
        return f"fit_and_sample cannot be sent to another process ({error})"
    if b"__main__" in sent and not getattr(main, "__file__", None):
        return "fit_and_sample was typed into a session, where another process cannot find it"
    return ""


def _start(work: object, shared: object) -> None:
    """Begin a worker process. Ctrl-C ends it at once and silently: the first process reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from threadpoolctl import threadpool_limits

    _held[:] = [work, shared, threadpool_limits(limits=1)]


def _one(job: Any) -> Any:
    work, shared, _ = _held
    try:
        return work(shared, job)
    except Exception as error:  # noqa: BLE001  # named and raised again on the other side
        return _Failed(f"{type(error).__name__}: {error}")


def _one_thread() -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1)
