"""Which folder is an end of a study, and what to name in place of another folder.

**Guarantee**: nothing here reads a row or writes a file.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from siloweave.app.status import in_a_sentence
from siloweave.errors import InputError
from siloweave.federation.frames import ROSTER_FILE
from siloweave.privacy.ledger import KEY_FILE

STUDY_FILE = "study.toml"
"""In an end's folder: the study."""
COORDINATOR_KEY = "coordinator.key"
"""In the coordinator's folder: its private key."""


def ends_below(folder: Path) -> list[Path]:
    """Return the folders of ends in a folder, or in one inside it; the coordinator's first."""
    rosters = [*folder.glob(f"*/{ROSTER_FILE}"), *folder.glob(f"*/*/{ROSTER_FILE}")]
    folders = sorted(roster.parent for roster in rosters)
    return sorted(folders, key=lambda end: not (end / COORDINATOR_KEY).exists())


def require_study_folder(folder: Path) -> None:
    """Refuse a folder that has no study, where the one that is meant can be named.

    Raises:
        InputError: It has ends of a study, or a party's key and its studies, below it.
    """
    if (folder / STUDY_FILE).exists() or not folder.is_dir():
        return
    if (folder / KEY_FILE).exists():
        studies = sorted(file.parent for file in folder.glob(f"*/{STUDY_FILE}"))
        if not studies:
            raise InputError(
                f"{folder} has the key, and no study's folder in it: put the folder there that "
                "the coordinator sent, and name that one"
            )
        names = in_a_sentence([quote(str(study)) for study in studies])
        raise InputError(f"{folder} has the key; name the study's folder: {names}")

    ends = ends_below(folder)
    if ends:
        names = in_a_sentence([end.relative_to(folder).as_posix() for end in ends])
        raise InputError(
            f"{folder} has the ends {names}: name one of them, as in `siloweave status "
            f"{quote(str(ends[0]))}`"
        )
