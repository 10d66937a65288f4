"""Which folder is an end of a study, and what to name in place of another folder.

**Guarantee**: nothing here reads a row or writes a file.
"""

from __future__ import annotations

from base64 import b64decode
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
COORDINATOR_PUBLIC = "coordinator.pub"
"""In a party's folder: the coordinator's public key."""


def public_key_in(path: Path) -> bytes:
    """Return the coordinator's public key in a file; InputError for a file without one."""
    try:
        return b64decode(path.read_text().strip(), validate=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise InputError(
            f"{path}: holds no public key ({reason}). Ask the coordinator for the key, by another "
            "way than the one that brought this folder, and write it into this file"
        ) from error


def ends_below(folder: Path) -> list[Path]:
    """Return the folders of ends in a folder, or in one inside it; the coordinator's first."""
    rosters = [*folder.glob(f"*/{ROSTER_FILE}"), *folder.glob(f"*/*/{ROSTER_FILE}")]
    folders = sorted(roster.parent for roster in rosters)
    return sorted(folders, key=lambda end: not (end / COORDINATOR_KEY).exists())


def require_study_folder(folder: Path) -> None:
    """Refuse a folder that has no study, and name the one that is meant where that is known.

    Raises:
        InputError: It is not there, has no study, or has ends of a study, or a party's key and its
            studies, below it.
    """
    if (folder / STUDY_FILE).exists():
        return
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {str(folder)!r}: give the folder of an end, as `siloweave "
            "provision` makes it"
        )
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
    raise InputError(
        f"{folder}: has no {STUDY_FILE}, so it is no end of a study: give the folder of an end, as "
        "`siloweave provision` makes it"
    )


def require_coordinator_folder(folder: Path) -> None:
    """Refuse the folder of a party where the coordinator's is meant; errors as InputError."""
    require_study_folder(folder)
    is_party = (folder / COORDINATOR_PUBLIC).exists()
    if is_party and not (folder / COORDINATOR_KEY).exists():
        raise InputError(
            f"{folder}: is the folder of a party: give the coordinator's, which has "
            f"{COORDINATOR_KEY}, or start the party with `siloweave party start "
            f"{quote(str(folder))}`"
        )


def require_party_folder(folder: Path) -> None:
    """Refuse the coordinator's folder where a party's is meant; errors as InputError."""
    require_study_folder(folder)
    if (folder / COORDINATOR_KEY).exists() and not (
        folder / COORDINATOR_PUBLIC
    ).exists():
        raise InputError(
            f"{folder}: is the coordinator's folder: give that of a party, or start the "
            f"coordinator with `siloweave coordinator {quote(str(folder))}`"
        )
