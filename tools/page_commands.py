"""Type the commands of a page in an empty folder, and show what each of them prints today.

python tools/page_commands.py README.md docs/guides/first-study.md

tests/test_commands_of_pages.py does the same with fewer rows, and compares the first lines. Where a
page shows more than that, compare it with this by eye.

A command begins with `$` on the page, or with a machine's name and `$`: each machine is a folder of
its own beside the others.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any, NamedTuple

import numpy as np

import siloweave as sw
from siloweave import datasets
from siloweave.app.cli import main as siloweave
from siloweave.tables.write import write

ROOT = Path(__file__).resolve().parent.parent
STUDY = "flu"
"""The README's folder, after which `siloweave init` calls its study."""

NOT_TYPED = {
    "pip install": "installs packages",
    "python ": "asks for a card, or measures it for minutes",
    "docker ": "needs Docker",
    "chgrp ": "needs a group of this machine, and to be root",
    "useradd ": "needs to be root",
    "mv clinic/flu/engine ": "needs to be root",
    "mkdir /srv/clinic-socket ": "needs to be root",
    "--network": "needs Flower, in an environment of its own: `make engine`",
    "--superlink": "waits for other machines: `make engine`",
    "--socket": "waits for a node of another user: `make engine`",
    "--node": "needs the key of a SuperNode",
    "--authority": "needs the certificate of a SuperLink",
    "flower-superlink": "is Flower's",
    "head -c 32": "is for Flower's SuperLink",
    "--spool /media/stick": "waits for other machines: the notebook two-hospitals types it",
}
"""Parts of commands that only a reader can type, and why."""

BLOCK = r"^ *```(\w*)\n(.*?)^ *```$"
"""A block of a page: its language, and its lines."""

SMALL = ["age", "sex", "income"]
"""Columns of a table whose fit is quick."""


class Command(NamedTuple):
    """A command of a page, without its prompt.

    Attributes:
        text: What is typed.
        shown: The first line that it prints there, or nothing.
        machine: The machine that the prompt names, or nothing.
    """

    text: str
    shown: str = ""
    machine: str = ""


@dataclass(frozen=True)
class Page:
    """What a page takes as given.

    Attributes:
        files: Writes a reader's files into the current folder.
        folder: Where the reader is when the page begins.
        before: What others do before a command of the page, by the command.
    """

    files: Callable[[], None]
    folder: str = STUDY
    before: Mapping[str, Callable[[], None]] = field(default_factory=dict)


def typed(text: str) -> list[Command]:
    """Return every command of a page that begins with a prompt."""
    commands: list[Command] = []
    for language, block in re.findall(BLOCK, text, re.DOTALL | re.MULTILINE):
        if language not in {"", "text", "console"}:
            continue
        lines = dedent(block).replace("\\\n", " ").splitlines()
        for line, following in zip(lines, [*lines[1:], "$ "], strict=True):
            prompt = re.match(r"([\w-]*)\$ +(.*)", line)
            if prompt is None:
                continue
            has_output = not re.match(r"[\w-]*\$ |\.\.\.$|$", following)
            shown = following.removesuffix(" ...") if has_output else ""
            # A comment begins with `#` and blanks before it.
            command = re.sub(r"\s+# .*", "", prompt[2])
            commands.append(Command(" ".join(command.split()), shown, prompt[1]))
    return commands


def reason_not_to_type(command: str) -> str:
    """Return why a command cannot be typed in a test, or nothing."""
    for part, reason in NOT_TYPED.items():
        if part in command:
            return reason
    return ""


def type_in(command: str) -> str:
    """Do what a shell would do with a command of a page, and return what siloweave prints.

    Raises:
        ValueError: The command is none of siloweave, `cd` and `cp`, or it failed.
    """
    program, *words = shlex.split(command)
    code = 0
    printed = io.StringIO()
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
        with contextlib.redirect_stdout(printed):
            code = siloweave(words)
        sys.stdout.write(printed.getvalue())
    if code != 0:
        raise ValueError(f"{command!r} ended with the exit code {code}")
    return printed.getvalue()


def with_readers_words(command: str, printed: str) -> str:
    """Put in a reader's own digest and keys: those of a page are of another study.

    Args:
        command: As the page has it.
        printed: What was printed before, in which the plan's digest is the last.
    """
    digests = re.findall(r"\b[0-9a-f]{24}\b", printed)
    if digests:
        command = re.sub(r"\b[0-9a-f]{24}\b", digests[-1], command)
    # The page shows the beginning of a key: north=xT6tNcGZ...
    for name, shown_key in re.findall(r"(\w+)=(\S+\.\.\.)", command):
        command = command.replace(shown_key, key_of(name))
    return command


def key_of(name: str) -> str:
    """Return the word of a party's key, which its machine's folder or this one has."""
    key_files = [*Path("..", name).rglob("party.key"), *Path(name).rglob("party.key")]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        siloweave(["party", "key", STUDY, "--folder", str(key_files[0].parent)])
    return printed.getvalue().split()[0]


def type_page(text: str, page: Page, root: Path) -> Iterator[Command]:
    """Type every command of a page that can be typed, and yield each when it has ended."""
    folder = root / page.folder
    folder.mkdir()
    places = {"": folder}
    with contextlib.chdir(folder):
        page.files()
        places[""] = Path.cwd()
        printed = ""
        for command in typed(text):
            if reason_not_to_type(command.text):
                continue
            os.chdir(places.setdefault(command.machine, root / command.machine))
            page.before.get(command.text, _nothing)()
            printed += type_in(with_readers_words(command.text, printed))
            places[command.machine] = Path.cwd()
            yield command


def _nothing() -> None:
    """Change nothing: the reader has only typed what the page shows."""


def _two_parties() -> None:
    """Write the rows of two parties of the demo."""
    north, _, south, _ = sw.split_rows(datasets.adult(), 4, by="clusters", method="pca", seed=0)
    write(north, "north.csv")
    write(south, "south.csv")


def _finished_run() -> None:
    """Make a folder as that of the demo, with fewer columns."""
    Path("siloweave-demo").mkdir()
    with contextlib.chdir("siloweave-demo"):
        _small_study("north", "south")
        type_in("siloweave run")


def _in_a_finished_run() -> None:
    """Go into such a folder."""
    _finished_run()
    os.chdir("siloweave-demo")


def _hospital() -> None:
    """Write a CSV as a German program does."""
    lines = ["patient;born;weight;note;readmitted"]
    for row in range(200):
        patient = 7_919 * (row + 1)
        day, month, year = row % 28 + 1, row % 12 + 1, 1940 + row % 60
        born = f"{day:02d}.{month:02d}.{year}"
        readmitted = "NY"[row % 2]
        lines.append(f"P{patient:07d};{born};{50 + row % 40},{row % 10};Müller {row};{readmitted}")
    Path("hospital.csv").write_text("\n".join(lines) + "\n", encoding="cp1252")


def _survey() -> None:
    """Write a survey as SPSS does, with value labels and declared missing codes."""
    import pandas as pd
    import pyreadstat

    number = 1500
    row = np.arange(number)
    health = np.array([1, 2, 3, 2, -8, -9])
    trust = np.array([*range(11), 77, 88])
    survey = pd.DataFrame(
        {
            "caseid": row + 1,
            "health": health[row % len(health)],
            "trust": trust[row % len(trust)],
            "intdate": pd.to_datetime("2023-01-10") + pd.to_timedelta(row % 90, unit="D"),
        }
    )
    labels = {
        "health": {1: "Good", 2: "Fair", 3: "Bad", -8: "Don't know", -9: "Refused"},
        "trust": {0: "No trust", 10: "Full trust", 77: "Refused", 88: "Don't know"},
    }
    codes: Any = {"health": [-8, -9], "trust": [77, 88]}
    pyreadstat.write_sav(survey, "survey.sav", variable_value_labels=labels, missing_ranges=codes)


def _tables_to_compare() -> None:
    """Write three tables, and the same with the id of a person who has two rows."""
    rows = datasets.adult().select(SMALL)
    parts = sw.split_rows(rows.take(range(300)), 3, by="iid", seed=1)
    for number, name in enumerate(["train", "synthetic", "holdout"]):
        part = parts[number]
        write(part, f"{name}.parquet")
        frame = part.framed("polars").to_native().with_row_index("patient_id")
        people = frame.with_columns(frame["patient_id"] // 2 + 1_000 * number)
        write(people, f"{name}.csv")


def _three_owners() -> None:
    """Write columns of the same people for three parties, none of which has all people."""
    rows = datasets.adult()
    count = min(6_000, rows.num_rows)
    people = rows.take(range(count)).framed("polars").to_native().with_row_index("person")
    columns = {
        "registry": ["age", "sex"],
        "office": ["workclass", "education"],
        "tax": ["income", "capital-gain"],
    }
    for number, (name, names) in enumerate(columns.items()):
        rows_known = np.random.default_rng(number).permutation(count)[: count * 11 // 12]
        people[rows_known].select(["person", *names]).write_csv(f"{name}.csv")


def _database() -> None:
    """Write the rows of a party as a SQLite database."""
    rows = datasets.adult().select(SMALL).framed("polars").to_native().rows()
    with contextlib.closing(sqlite3.connect("rows.sqlite")) as connection:
        connection.execute("CREATE TABLE stays (age INTEGER, sex TEXT, income TEXT)")
        connection.executemany("INSERT INTO stays VALUES (?, ?, ?)", rows)
        connection.commit()


def _small_study(*names: str) -> None:
    """Write rows of two parties, and propose a study of them."""
    rows = datasets.adult().select(SMALL)
    files = [f"{name}.csv" for name in names]
    for file, part in zip(files, sw.split_rows(rows, 2, by="iid", seed=0), strict=True):
        write(part, file)
    siloweave(["init", *files])


def _clinic() -> None:
    """Make a party's folder with a key, and a study in it, as a coordinator sends it."""
    _small_study("clinic", "lab")
    for name in ("clinic", "lab"):
        type_in(f"siloweave party key {STUDY} --folder {name}")
    keys = " ".join(f"--key {name}={key_of(name)}" for name in ("clinic", "lab"))
    type_in(f"siloweave provision {keys}")
    shutil.copytree("ends/clinic", f"clinic/{STUDY}")


def _backed_up_and_started() -> None:
    """Copy the account, and start the study for a second."""
    type_in("siloweave party account --folder clinic --backup copy.jsonl")
    type_in(f"siloweave party start clinic/{STUDY} --data clinic.csv --spool spool --until 1s")


def _account_lost() -> None:
    """Lose the account."""
    Path("clinic/account.jsonl").unlink()


def _organisations() -> None:
    """Write a study here and at the office, and rows at north; south makes its key, too."""
    _small_study("north", "south")
    for machine in ("north", "south", "office"):
        Path("..", machine).mkdir()
    for file in ("study.toml", "schema.json"):
        shutil.copyfile(file, Path("../office", file))
    shutil.copyfile("north.csv", "../north/rows.csv")
    type_in(f"siloweave party key {STUDY} --folder ../south/home")


def _folder_sent() -> None:
    """Send north its folder of the study."""
    shutil.copytree("../office/ends/north", f"home/{STUDY}")


def _clinic_and_office() -> None:
    """Write a study at the office; the laboratory has made its key."""
    _small_study("clinic", "lab")
    for machine in ("clinic", "office"):
        Path("..", machine).mkdir()
    for file in ("study.toml", "schema.json"):
        shutil.copyfile(file, Path("../office", file))
    type_in(f"siloweave party key {STUDY} --folder ../lab/home")


PAGES = {
    "README.md": Page(_two_parties),
    "docs/guides/first-study.md": Page(_two_parties),
    "docs/guides/prepare-your-csv.md": Page(_hospital),
    "docs/guides/spss-stata-sas.md": Page(_survey),
    "docs/guides/databases.md": Page(_database),
    "docs/guides/scores-and-attacks.md": Page(_tables_to_compare),
    "docs/guides/columns-split.md": Page(_three_owners, folder="town"),
    "docs/guides/reading-the-ledger.md": Page(_finished_run),
    "docs/guides/reading-the-report.md": Page(_in_a_finished_run),
    "docs/guides/a-party-decides.md": Page(
        _clinic,
        before={
            "siloweave party account --folder clinic": _backed_up_and_started,
            "siloweave party account --folder clinic --restore copy.jsonl": _account_lost,
        },
    ),
    "docs/guides/between-organisations.md": Page(
        _organisations,
        before={"siloweave party plan home/flu --data rows.csv": _folder_sent},
    ),
    "docs/guides/network-flower.md": Page(_clinic_and_office),
}
"""Pages with commands that can be typed, and what each takes as given."""


def main() -> None:
    """Type the commands of every page that is named."""
    os.environ.setdefault("COLUMNS", "80")
    for name in sys.argv[1:]:
        page = PAGES[Path(name).resolve().relative_to(ROOT).as_posix()]
        with TemporaryDirectory() as folder:
            os.environ["SILOWEAVE_STATE"] = str(Path(folder, "state"))
            for command in type_page(Path(name).read_text("utf-8"), page, Path(folder)):
                print(f"(that was: $ {command.text})", flush=True)


if __name__ == "__main__":
    main()
