"""The commands that a page shows work as they are typed, one after the other, in one folder."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import siloweave as sw
from siloweave import datasets

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return import_module("page_commands")


@pytest.fixture
def few_rows(monkeypatch):
    """Make Adult small, and return its rows."""
    rows = sw.split_rows(datasets.adult(), 48, by="iid", seed=0)[0]
    monkeypatch.setattr(datasets, "adult", lambda: rows)
    return rows


def words_of(text: str) -> str:
    """Return a text without its numbers, and with single spaces."""
    return " ".join(re.sub(r"[\d.,]+", "0", text).split())


def test_commands_and_what_they_print_are_read(tool):
    text = "```\n$ a b\nc 1\n$ cd d\n$ e\n...\n```\n\n```python\n$ f\n```\n\n```\ng\n```\n"
    assert tool.typed(text) == [("a b", "c 1"), ("cd d", ""), ("e", "")]
    assert words_of("ε   1.5, 3,000") == "ε 0 0"


@pytest.mark.parametrize("command", ["siloweave check nowhere", "rm study.toml"])
def test_a_command_that_fails_is_noticed(tool, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=command):
        tool.type_in(command)


@pytest.mark.parametrize(("page", "number"), [("README.md", 4), ("docs/guides/first-study.md", 11)])
def test_commands_of_a_page_run_in_one_folder(
    page, number, tool, few_rows, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tool.write_files(tmp_path, few_rows))
    monkeypatch.setenv("COLUMNS", "80")
    commands = tool.typed((ROOT / page).read_text("utf-8"))
    assert len(commands) == number
    for command, shown in commands:
        tool.type_in(command)
        printed = capfd.readouterr()
        assert words_of(shown) in words_of(printed.out + printed.err), command
