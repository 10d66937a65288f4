"""Files that are written whole or not at all, and where compiled programs are stored."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def keep_programs() -> None:
    """Let networks' compiled programs outlive the process, in the user's cache folder.

    A program depends on settings and sizes, holds no data, and fits this machine alone. A
    JAX_COMPILATION_CACHE_DIR that is set is used instead; with an empty one nothing is stored.
    Takes effect if JAX has not been imported yet.
    """
    home = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    folder = Path(home) if home else Path.home() / ".cache"
    kept = folder / "siloweave" / f"programs-{platform.node() or 'here'}"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(kept))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a text file whole, as of `write_whole`; `private` is mode 0600."""
    from siloweave.privacy.journal import write_whole  # which `--help` does not wait for

    write_whole(path, text.encode(), private=private)
