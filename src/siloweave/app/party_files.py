"""What may lie in a party's folder of a study, which others made: nothing that could run there.

**Guarantee**: `require_known_files` lets no file pass whose name is not one of siloweave's own, the
study's schema or the party's rows. It says nothing of what is in a file: every one that came is
read as data, see app/network.py.
"""

from __future__ import annotations

from pathlib import Path

from siloweave.app import network
from siloweave.app.account import ACCOUNT_FILE
from siloweave.app.plan import APPROVAL
from siloweave.app.policy import POLICY_FILE
from siloweave.app.status import ENGINE, FACTS, LOG, LOGS, PROGRAMS
from siloweave.app.study import Study
from siloweave.core.party import ALIGNMENT
from siloweave.errors import InputError, first_few
from siloweave.federation import certificates, engine
from siloweave.federation.frames import ROSTER_FILE
from siloweave.privacy.journal import NEW
from siloweave.privacy.ledger import KEY_FILE, LEDGER_FILE

_SENT = (network.STUDY_FILE, ROSTER_FILE, network.COORDINATOR_PUBLIC)
_WRITTEN_HERE = (
    *(KEY_FILE, POLICY_FILE, ACCOUNT_FILE, f"{ACCOUNT_FILE}.lock"),
    *(APPROVAL, LEDGER_FILE, f"{LEDGER_FILE}.lock", FACTS),
    *(LOG, *(f"{LOG}.{number}" for number in range(1, LOGS + 1))),
    *(*network.OWN_FILES, engine.PARTY_SOCKET),
)
# Folders that the party fills itself. `network.party_in` refuses them where it never began.
_FILLED_HERE = ("store", ALIGNMENT, network.RESULTS, "training-*")
_ENGINE = (certificates.AUTHORITY, certificates.NODE_KEY, "node.log", "node.log.old")
# Which file managers leave behind.
_OF_SYSTEMS = (".DS_Store", "Thumbs.db", "desktop.ini")


def require_known_files(folder: Path, data: str | Path | None = None) -> None:
    """Refuse a party's folder of a study that has files which siloweave has no use for.

    Args:
        folder: The party's, of one study.
        data: Its rows, as its owner names them; their file may lie there.

    Raises:
        InputError: There are such files; it names them, those that could run first.
    """
    unknown = unknown_files(folder, data)
    if not unknown:
        return
    raise InputError(
        f"{folder}: has {first_few(unknown)}, which siloweave did not write there and does not "
        "expect. The folder came from others, and a program in it could run beside this party's "
        "key; nothing was started. Ask whoever sent the folder what that is. If it has this "
        "party's rows, name it by --data; if it is yours otherwise, move it to another folder"
    )


def unknown_files(folder: Path, data: str | Path | None = None) -> list[Path]:
    """Return what lies in a party's folder of a study unexpectedly, what could run first.

    Args:
        folder: The party's, of one study.
        data: Its rows, as its owner names them; their file may lie there.

    Returns:
        Paths, relative to the folder.
    """
    schema = Study.load(folder).schema.file
    row_files = [Path(data)] if data is not None else []
    unknown = set()
    for path in folder.iterdir():
        if path.name == ENGINE and path.is_dir():
            unknown |= {entry for entry in path.iterdir() if not _is_of_engine(entry)}
        elif not _is_known(path, schema):
            unknown.add(path)
    # What the party fills itself has names that siloweave gives; a program has not.
    unknown |= {path for path in folder.rglob("*") if path.suffix.lower() in PROGRAMS}
    unknown = {
        path for path in unknown if not any(_is_same(path, file) for file in row_files)
    }
    paths = [path.relative_to(folder) for path in unknown]
    return sorted(paths, key=lambda path: (path.suffix.lower() not in PROGRAMS, path))


def _is_known(path: Path, schema: str) -> bool:
    # A file that was being written when the party was killed.
    name = path.name.removesuffix(NEW)
    known = (*_SENT, *_WRITTEN_HERE, *_OF_SYSTEMS, schema)
    is_filled_here = path.is_dir() and any(
        path.match(pattern) for pattern in _FILLED_HERE
    )
    return name in known or name.startswith(f".{KEY_FILE}.") or is_filled_here


def _is_of_engine(path: Path) -> bool:
    """Say whether an entry of the engine's folder is one of its own; its home stays empty."""
    if path.name == engine.FLOWER_HOME and path.is_dir():
        return not any(path.iterdir())
    return path.name.removesuffix(NEW) in (*_ENGINE, *_OF_SYSTEMS)


def _is_same(path: Path, other: Path) -> bool:
    return path.resolve() == other.resolve()
