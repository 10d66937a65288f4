"""How this package starts Python processes: nothing in the folder they serve is run.

A study's folder comes from the coordinator. `python -m` puts the working folder first among the
places where modules are looked for, so a file `httpx.py` in it would run beside the party's key.

**Guarantee**: a process that is started with `command` and `environment`, in `WORKING`, looks for
modules only where this package, its interpreter, and absolute entries of PYTHONPATH outside the
served folder, and the folder above it, are.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

WORKING = Path(sys.executable).anchor or os.sep
"""The working folder of every process that an end starts: the root, where no study lies."""

# Variables that name where modules or libraries are loaded from. An entry that is relative, or
# empty, means the working folder.
_SEARCHED = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "PYTHONSTARTUP",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "DYLD_LIBRARY_PATH",
    "DYLD_INSERT_LIBRARIES",
)
# Where an interpreter looks without being told.
_INSTALLED = ("site-packages", "dist-packages")


def command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module without the working folder on its search path.

    Example:
        >>> command("siloweave", "version")[1:]
        ['-P', '-m', 'siloweave', 'version']
    """
    return [sys.executable, "-P", "-m", module, *words]


def return_memory() -> None:
    """Return free memory of this process to the system, where its C library can.

    What an end needed to start, and does not need to wait for questions, is a few MB of each of
    many processes.
    """
    gc.collect()
    with suppress(OSError, AttributeError):  # the C library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def environment(folder: Path | None = None) -> dict[str, str]:
    """Return this process's environment variables, without those that load code from a folder.

    Args:
        folder: The end's, of a study. Entries that lie in it, or are the folder above it, are left
            out. Relative ones always are.
    """
    variables = dict(os.environ)
    for name in _SEARCHED:
        if name not in variables:
            continue
        entries = variables.pop(name).split(os.pathsep)
        allowed = [entry for entry in entries if _lies_elsewhere(entry, folder)]
        if allowed:
            variables[name] = os.pathsep.join(allowed)

    # A checkout is found by its place alone; an installed package by the interpreter.
    package = Path(__file__).resolve().parents[2]
    if package.name not in _INSTALLED:
        allowed_places = variables.get("PYTHONPATH")
        places = [str(package), allowed_places] if allowed_places else [str(package)]
        variables["PYTHONPATH"] = os.pathsep.join(places)
    return variables


def _lies_elsewhere(entry: str, folder: Path | None) -> bool:
    """Return whether a path is absolute, and neither in the served folder nor its parent."""
    if not Path(entry).is_absolute():
        return False
    if folder is None:
        return True
    # Resolved, as a link may lead from anywhere into the folder.
    place = Path(entry).resolve()
    served = folder.resolve()
    return place != served.parent and not place.is_relative_to(served)
