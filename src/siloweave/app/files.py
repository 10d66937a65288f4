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
    """Write a text file: first beside its place, then renamed; `private` is mode 0600."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    mode = 0o600 if private else 0o666
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
