"""Processes that were forked from one that had used tables: they lack its threads."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from siloweave.errors import InputError


class _ForkedThreads:
    """Whether this process was forked while its parent's threads computed: a fork lacks them.

    Polars, and JAX, hand their work to threads that start with the first use. A forked child has
    their queues and no one who works them off: it would wait for ever.
    """

    # Names of threads that compute, as Linux has them.
    compute_names = re.compile(r"polars-[0-9]|tf_XLA|pjrt")
    # Whether threads compute in the process that forks, as the fork begins.
    are_running = False
    # Whether this process lacks threads that its parent had.
    are_lost = False

    @classmethod
    def before_fork(cls) -> None:
        """Note whether threads compute in the process that is about to fork."""
        thread_names = []
        for file in Path("/proc/self/task").glob("*/comm"):
            # A thread may end after its folder was listed.
            with suppress(OSError):
                thread_names.append(file.read_text())

        # Without names, where the system is no Linux, threads may run.
        has_names = bool(thread_names)
        are_computing = any(map(cls.compute_names.match, thread_names))
        cls.are_running = are_computing or not has_names

    @classmethod
    def after_fork(cls) -> None:
        """Note in the child that its parent's threads are missing."""
        cls.are_lost = cls.are_lost or cls.are_running


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_ForkedThreads.before_fork, after_in_child=_ForkedThreads.after_fork
    )


def check_process() -> None:
    """Refuse to work in a process that was forked after its parent had used tables.

    Raises:
        InputError: This process would wait for ever for threads that it does not have.
    """
    if _ForkedThreads.are_lost:
        raise InputError(
            f"this process ({os.getpid()}) was forked from one that had already used siloweave, "
            "and the threads that read and draw tables do not survive a fork. Start it afresh: "
            'multiprocessing.get_context("spawn"), or "forkserver"; or fork before any table is '
            "read or drawn"
        )
