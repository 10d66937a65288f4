"""What the commands of all groups share: options, and how errors end them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from siloweave.errors import SiloweaveError, of_system

_SEE = "See that this user may read and write there and that the disk has room, then start again"

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
EndFolder = Annotated[
    Path, typer.Argument(help="This end's folder, as `siloweave provision` makes it.")
]
StudyFile = Annotated[
    Path, typer.Argument(help="A study file, or the folder of a study.toml.")
]


def stopped() -> int:
    """Return what is said, and the exit code, where someone interrupts."""
    sys.stderr.write(
        "\ninterrupted; what was released is in the ledgers, and the same command continues\n"
    )
    return 130


@contextmanager
def reported() -> Iterator[None]:
    """Turn errors a user can cause into one message and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(stopped()) from None
    except (SiloweaveError, OSError) as error:
        from siloweave.app.console import print_error

        print_error(
            f"{of_system(error)}. {_SEE}" if isinstance(error, OSError) else str(error)
        )
        raise typer.Exit(2) from None
