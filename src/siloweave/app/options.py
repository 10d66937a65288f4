"""What the commands of all groups share: options, and how errors end them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from siloweave.errors import InputError, SiloweaveError, of_system

_SEE = "See that this user may read and write there and that the disk has room, then start again"
_LESS = "Ask for less, such as fewer rows, or take a machine with more memory"

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
EndFolder = Annotated[
    Path, typer.Argument(help="This end's folder, as `siloweave provision` makes it.")
]
StudyFile = Annotated[
    Path, typer.Argument(help="A study file, or the folder of a study.toml.")
]


def stopped(*, releases: bool = False) -> int:
    """Say that a command was interrupted, and return its exit code.

    Args:
        releases: Whether it may have released something, and can be continued.
    """
    sentence = "interrupted"
    if releases:
        sentence += (
            "; what was released is in the ledgers, and the same command continues"
        )
    sys.stderr.write(f"\n{sentence}\n")
    # As a shell has it for SIGINT: 128 and the signal's number, 2.
    return 130


@contextmanager
def reported(*, releases: bool = False) -> Iterator[None]:
    """Turn errors a user can cause into one message and an exit code.

    Args:
        releases: As of `stopped`.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(stopped(releases=releases)) from None
    except (SiloweaveError, OSError, MemoryError) as error:
        # Here, since a console is slow to load and most commands end without an error.
        from siloweave.app.console import print_error

        message = str(error)
        code = InputError.exit_code
        if isinstance(error, OSError):
            message = f"{of_system(error)}. {_SEE}"
        elif isinstance(error, MemoryError):
            # NumPy's says how much was asked for; Python's own has no text.
            reason = f" ({error})" if str(error) else ""
            message = f"this machine has too little memory for that{reason}. {_LESS}"
        # A ledger that a full disk cannot take is not altered.
        elif not isinstance(error.__cause__, OSError):
            code = error.exit_code
        print_error(message)
        raise typer.Exit(code) from None
