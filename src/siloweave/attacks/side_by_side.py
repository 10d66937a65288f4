"""Many independent jobs side by side, with the same results however many workers there are."""

import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Generic, TypeVar

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
    lane = _Lane(work, shared, name, progress, len(jobs))
    if workers == 1 or len(jobs) < 2:
        with _one_thread():
            return [lane.take(job, lambda job=job: work(shared, job)) for job in jobs]  # type: ignore[misc]
    reason = _stays_here(work, shared)
    if reason:
        warnings.warn(
            f"{reason}, so the {len(jobs)} fits run in threads of this process, which is slower; "
            "define the function in a module file to run them in processes",
            stacklevel=3,
        )
        with _one_thread(), ThreadPoolExecutor(workers) as threads:
            return lane.through(threads, lambda job: threads.submit(work, shared, job), jobs)
    with ProcessPoolExecutor(
        min(workers, len(jobs)), get_context("spawn"), initializer=_start, initargs=(work, shared)
    ) as processes:
        return lane.through(processes, lambda job: processes.submit(_one, job), jobs)


class _Lane(Generic[S, J, R]):
    """Counts what is done, and names what failed."""

    def __init__(
        self,
        work: Callable[[S, J], R],
        shared: S,
        name: Callable[[J], str],
        progress: Progress,
        jobs: int,
    ) -> None:
        self.work, self.shared, self.name, self.progress = work, shared, name, progress
        self.jobs, self.done = jobs, 0

    def take(self, job: J, result: Callable[[], R]) -> R:
        try:
            found = result()
        except BrokenProcessPool as error:
            raise InputError(
                f"a worker process died before {self.name(job)} was done. If the call stands in a "
                "script, put it under `if __name__ == '__main__':`; if memory ran out, use fewer "
                "workers; workers=1 runs everything in this process"
            ) from error
        except Exception as error:
            raise InputError(f"{self.name(job)}: {type(error).__name__}: {error}") from error
        if isinstance(found, _Failed):
            raise InputError(f"{self.name(job)}: {found.words}")
        self.done += 1
        self.progress(self.name(job), self.done / self.jobs)
        return found

    def through(
        self, pool: Executor, submit: Callable[[J], "Future[R]"], jobs: Sequence[J]
    ) -> list[R]:
        futures = {submit(job): place for place, job in enumerate(jobs)}
        results: dict[int, R] = {}
        left = set(futures)
        try:
            while left:
                finished, left = wait(left, return_when=FIRST_COMPLETED)
                for future in sorted(finished, key=lambda one: futures[one]):
                    place = futures[future]
                    results[place] = self.take(jobs[place], future.result)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        return [results[place] for place in range(len(jobs))]


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
    """Begin a worker process."""
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
