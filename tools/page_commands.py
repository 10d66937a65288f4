"""Type the commands of a page in an empty folder, and show what each of them prints today.

python tools/page_commands.py README.md docs/guides/first-study.md

tests/test_commands_of_pages.py does the same with fewer rows, and compares the first lines. Where a
page shows more than that, compare it with this by eye.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import siloweave as sw
from siloweave import datasets
from siloweave.app.cli import main as siloweave
from siloweave.tables.write import write

STUDY = "flu"
"""The README's folder, after which `siloweave init` calls its study."""


def typed(text: str) -> list[tuple[str, str]]:
    """Return every command of a page, without its `$`, and the first line that it prints there."""
    commands = []
    for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = block.splitlines()
        for line, following in zip(lines, [*lines[1:], "$"], strict=True):
            if line.startswith("$ "):
                printed = "" if following.startswith(("$", "...")) else following
                commands.append((line.removeprefix("$ "), printed))
    return commands


def type_in(command: str) -> None:
    """Do what a shell would do with a command of a page.

    Raises:
        ValueError: The command is none of siloweave, `cd` and `cp`, or it failed.
    """
    program, *words = shlex.split(command)
    code = 0
    if program == "cd":
        os.chdir(words[0])
    elif program == "cp":
        shutil.copyfile(*words)
    elif program != "siloweave":
        raise ValueError(f"{command!r} is no command of siloweave: add {program!r} to this script")
    elif words[0] == "poc":  # its ends are processes, which write to the terminal themselves
        poc = [sys.executable, "-m", "siloweave", *words]
        code = subprocess.run(poc, check=False).returncode
    else:
        code = siloweave(words)
    if code != 0:
        raise ValueError(f"{command!r} ended with the exit code {code}")


def write_files(folder: Path, rows: Any) -> Path:
    """Make a folder with the files of two parties of the demo, which the README takes as given."""
    study_folder = folder / STUDY
    study_folder.mkdir()
    north, _, south, _ = sw.split_rows(rows, 4, by="clusters", method="pca", seed=0)
    write(north, study_folder / "north.csv")
    write(south, study_folder / "south.csv")
    return study_folder


def main() -> None:
    """Type the commands of every page that is named."""
    os.environ.setdefault("COLUMNS", "80")
    texts = [Path(name).read_text("utf-8") for name in sys.argv[1:]]
    for text in texts:
        with TemporaryDirectory() as folder:
            study_folder = write_files(Path(folder), datasets.adult())
            with contextlib.chdir(study_folder):
                for command, _ in typed(text):
                    print(f"$ {command}", flush=True)
                    type_in(command)


if __name__ == "__main__":
    main()
