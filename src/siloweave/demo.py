"""The demo's study: the embedded census table, spread over four parties."""

from collections.abc import Callable
from pathlib import Path

from siloweave.errors import InputError
from siloweave.files import write_text

__all__ = ["NAMES", "prepare"]

#: The four parties.
NAMES = ("north", "east", "south", "west")

_STUDY = """\
# The demo: UCI Adult (48,842 rows, 15 columns), spread over four parties.
# Change it, choose another folder below, and: siloweave run study.toml

[study]
name = "census demo {split}"
roster = ["north", "east", "south", "west"]

[schema]
file = "schema.json"       # declared by UCI's documentation; nothing was taken from rows

[budget]
epsilon = 1.0
delta = 1e-5

[method]
name = "flaim"
rounds = 10
participation = 1.0

{parties}
[output]
folder = "run"
rows = 48842
"""
_PARTY = """\
[[parties]]
name = "{name}"
data = "data/{name}.parquet"
"""


def prepare(
    folder: str | Path,
    *,
    split: str = "clusters",
    progress: Callable[[str, float], None] = lambda text, done: None,
) -> Path:
    """Write the demo's study, schema and one file for each party.

    Args:
        folder: Where; made if it is not there.
        split: ``clusters`` (like rows together) or ``iid``.
        progress: Told how far it is.

    Returns:
        The study file. If it is there already, nothing is written.

    Raises:
        InputError: The folder holds something else, or another split.
    """
    from siloweave.datasets import adult, adult_schema
    from siloweave.tables.files import write
    from siloweave.tables.split import split_rows

    target = Path(folder)
    study = target / "study.toml"
    if study.is_file():
        if f'name = "census demo {split}"' not in study.read_text("utf-8"):
            raise InputError(
                f"{study} is there already, and is no demo with --split {split}. Name another "
                "folder with --folder."
            )
        return study
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(
            f"{target} is there already and holds no demo. Name another with --folder."
        )
    progress("splitting rows", 0.0)
    method = "pca" if split == "clusters" else None
    parts = split_rows(adult(), len(NAMES), by=split, seed=0, method=method)
    (target / "data").mkdir(parents=True)
    for name, part in zip(NAMES, parts, strict=True):
        write(part, target / "data" / f"{name}.parquet")
    write_text(target / "schema.json", adult_schema().to_json() + "\n")
    parties = "\n".join(_PARTY.format(name=name) for name in NAMES)
    write_text(study, _STUDY.format(parties=parties, split=split))
    return study
