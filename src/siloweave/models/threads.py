"""Both cores for graphical models: independent pieces of one computation run side by side.

NumPy lets other threads run while it multiplies or adds a large array, so a few threads are enough
and nothing is copied to another process. The pieces are the same however many threads there are,
and each is computed by one of them alone, so a result is the same to the last bit. BLAS has threads
of its own, which split a product by their number: while pieces run, it gets one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")

# Threads at most. Tables are a few megabytes: more threads would wait for memory.
_MOST = 8
# Environment variables by which users limit NumPy's threads.
_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


@cache
def thread_count() -> int:
    """Return the number of threads that compute: one per core of this process, at most 8.

    OPENBLAS_NUM_THREADS and OMP_NUM_THREADS lower it, as they do for NumPy.
    """
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    cores = os.cpu_count() or 1
    if affinity is not None:  # not on every system
        cores = len(affinity(0))
    counts = [cores, _MOST]
    for name in _LIMITS:
        with suppress(ValueError):  # NumPy ignores what is no number, too
            counts.append(int(os.environ.get(name, cores)))
    return max(1, min(counts))


@cache
def _pool() -> ThreadPoolExecutor:
    """Return the pool of helping threads; the thread that asks computes, too."""
    return ThreadPoolExecutor(thread_count() - 1, thread_name_prefix="siloweave-model")


# A forked process has no threads but the one that forked: it makes helpers of its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def each(task: Callable[[_Piece], _Result], pieces: Sequence[_Piece]) -> list[_Result]:
    """Compute every piece, in parallel where there are cores; return results in order.

    Pieces must not depend on each other. A task may call `each`; helpers that are busy are not
    waited for.

    Args:
        task: What is computed of a piece; runs in any thread.
        pieces: Whatever `task` takes, the longest first if they differ much.

    Raises:
        Exception: What a task raised.

    Example:
        >>> each(len, ["one", "three"])
        [3, 5]
    """
    helpers = min(thread_count(), len(pieces)) - 1
    if helpers < 1:
        return [task(piece) for piece in pieces]

    results: list[Any] = [None] * len(pieces)
    places = iter(range(len(pieces)))  # shared: the next place is taken in one step

    def work() -> None:
        for place in places:
            results[place] = task(pieces[place])

    # A copied context takes NumPy's settings for floating-point errors along.
    futures = [_pool().submit(copy_context().run, work) for _ in range(helpers)]
    try:
        work()
    finally:
        # One that has not begun finds nothing left to do. Others must end before arrays are used.
        errors = [future.exception() for future in futures if not future.cancel()]
    for error in errors:
        if error is not None:
            raise error
    return results


@cache
def _blas() -> ThreadpoolController:
    """Return the controller of BLAS's threads; it takes milliseconds to find the libraries."""
    return ThreadpoolController()


class _Users:
    """The users of one-thread BLAS, over all threads of this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.limit: Any = None


_users = _Users()


@contextmanager
def single_blas() -> Iterator[None]:
    """Limit BLAS to one thread until this block, and all such blocks of other threads, end.

    Products of these sizes take as long with two, and twice the processor. With one, sums do not
    depend on the number of cores.
    """
    with _users.lock:
        if _users.count == 0:
            _users.limit = _blas().limit(limits=1, user_api="blas")
        _users.count += 1
    try:
        yield
    finally:
        with _users.lock:
            _users.count -= 1
            if _users.count == 0:
                _users.limit.restore_original_limits()
                _users.limit = None
