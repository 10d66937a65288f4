"""The commands that a page shows work as they are typed, one after the other, in one folder."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import siloweave as sw
from siloweave import datasets
from siloweave.app.cli import main
from siloweave.tables.read import write

ROOT = Path(__file__).resolve().parent.parent


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


def words_of(text: str) -> str:
    """Return a text without its numbers, and with single spaces."""
    return " ".join(re.sub(r"[\d.,]+", "0", text).split())


def type_in(command: str) -> None:
    """Do what a shell would do with a command of a page."""
    program, *words = shlex.split(command)
    if program == "cd":
        os.chdir(words[0])
    elif program == "cp":
        shutil.copyfile(*words)
    elif words[0] == "poc":  # its ends write to the terminal themselves
        subprocess.run([sys.executable, "-m", "siloweave", *words], check=True)
    else:
        assert program == "siloweave", f"add {program!r} to what this test can do"
        assert main(words) == 0, command


@pytest.fixture
def few_rows(monkeypatch):
    """Make Adult small, and return its rows."""
    rows = sw.split_rows(datasets.adult(), 48, by="iid", seed=0)[0]
    monkeypatch.setattr(datasets, "adult", lambda: rows)
    return rows


def test_commands_and_what_they_print_are_read():
    text = "```\n$ a b\nc 1\n$ cd d\n$ e\n...\n```\n\n```python\n$ f\n```\n\n```\ng\n```\n"
    assert typed(text) == [("a b", "c 1"), ("cd d", ""), ("e", "")]
    assert words_of("ε   1.5, 3,000") == "ε 0 0"


@pytest.mark.parametrize(("page", "number"), [("README.md", 4), ("docs/guides/first-study.md", 11)])
def test_commands_of_a_page_run_in_one_folder(page, number, few_rows, tmp_path, monkeypatch, capfd):
    # The README takes a folder with the files of two parties as given; a study is called after it.
    folder = tmp_path / "flu"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    for name, table in zip(
        ("north", "south"), sw.split_rows(few_rows, 2, by="iid", seed=0), strict=True
    ):
        write(table, f"{name}.csv")

    commands = typed((ROOT / page).read_text("utf-8"))
    assert len(commands) == number
    for command, shown in commands:
        type_in(command)
        printed = capfd.readouterr()
        assert words_of(shown) in words_of(printed.out + printed.err), command
