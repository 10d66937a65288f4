"""Files that a party's folder of a study may hold: others made it, and nothing in it may run.

**Guarantee**: `require_known_files` lets no file pass whose name is not one of siloweave's own, the
study's schema or the party's rows. It says nothing of what is in a file: every one that came is
read as data, see app/network.py.
"""

from __future__ import annotations

from pathlib import Path

from siloweave.app import network
from siloweave.app.account import ACCOUNT_FILE
from siloweave.app.ends import COORDINATOR_PUBLIC, STUDY_FILE
from siloweave.app.plan import APPROVAL
from siloweave.app.policy import POLICY_FILE
from siloweave.app.presence import PRESENCE
from siloweave.app.status import ENGINE, FACTS, LOG, LOGS, PROGRAMS
from siloweave.app.study import Study
from siloweave.core.party import ALIGNMENT
from siloweave.errors import InputError, first_few
from siloweave.federation import certificates, engine
from siloweave.federation.frames import ROSTER_FILE
from siloweave.privacy.journal import NEW
from siloweave.privacy.ledger import KEY_FILE, LEDGER_FILE

# Files that came with the folder.
_SENT = (STUDY_FILE, ROSTER_FILE, COORDINATOR_PUBLIC)
# Files that the party writes.
_WRITTEN = (
    KEY_FILE,
    POLICY_FILE,
    ACCOUNT_FILE,
    f"{ACCOUNT_FILE}.lock",
    APPROVAL,
    LEDGER_FILE,
    f"{LEDGER_FILE}.lock",
    FACTS,
    PRESENCE,
    LOG,
    *(f"{LOG}.{number}" for number in range(1, LOGS + 1)),
    *network.OWN_FILES,
    engine.PARTY_SOCKET,
)
# Folders that the party fills itself. `network.party_in` refuses them where it never began.
_FILLED = ("store", ALIGNMENT, network.RESULTS, "training-*")
# Files of the folder of its engine's node.
_ENGINE = (certificates.AUTHORITY, certificates.NODE_KEY, "node.log", "node.log.old")
# Files that file managers leave behind.
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
    """Return unexpected entries of a party's folder of a study, first those that could run.

    Args:
        folder: The party's, of one study.
        data: Its rows, as its owner names them; their file may lie there.

    Returns:
        Paths, relative to the folder.
    """
    schema = Study.load(folder).schema.file
    unknown = set()
    for path in folder.iterdir():
        if path.name == ENGINE and path.is_dir():
            unknown |= {entry for entry in path.iterdir() if not _is_of_engine(entry)}
        elif not _is_known(path, schema):
            unknown.add(path)

    # Folders that the party fills are searched too: siloweave gives no file there such a name.
    unknown |= {path for path in folder.rglob("*") if _could_run(path)}

    # The rows may be there, under any name.
    if data is not None:
        row_file = Path(data).resolve()
        unknown = {path for path in unknown if path.resolve() != row_file}

    paths = [path.relative_to(folder) for path in unknown]
    return sorted(paths, key=lambda path: (not _could_run(path), path))


def _could_run(path: Path) -> bool:
    """Return whether a file has the name of a program."""
    return path.suffix.lower() in PROGRAMS


def _is_known(path: Path, schema: str) -> bool:
    """Return whether an entry of a party's folder is expected there, outside the engine's."""
    # A party that was killed may leave a file that it was writing, which ends with NEW.
    name = path.name.removesuffix(NEW)
    expected = (*_SENT, *_WRITTEN, *_OF_SYSTEMS, schema)
    # A key that was being written has a name of its own.
    if name in expected or name.startswith(f".{KEY_FILE}."):
        return True
    return path.is_dir() and any(path.match(pattern) for pattern in _FILLED)


def _is_of_engine(path: Path) -> bool:
    """Return whether an entry of the engine's folder is one of its own; its home stays empty."""
    if path.name == engine.FLOWER_HOME and path.is_dir():
        return not any(path.iterdir())
    return path.name.removesuffix(NEW) in (*_ENGINE, *_OF_SYSTEMS)
