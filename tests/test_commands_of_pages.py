"""The commands that a page shows work as they are typed, one after the other, in one folder.

What a page takes as given, such as a reader's own file, is written by `PAGES` of
tools/page_commands.py; what only a reader can type is in `NOT_TYPED` there.
"""

import re
from importlib import import_module
from pathlib import Path

import pytest

import siloweave as sw
from siloweave import datasets

ROOT = Path(__file__).resolve().parent.parent
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
COMMANDS = {
    "README.md": 4,
    "docs/guides/first-study.md": 11,
    "docs/guides/prepare-your-csv.md": 1,
    "docs/guides/spss-stata-sas.md": 1,
    "docs/guides/databases.md": 2,
    "docs/guides/scores-and-attacks.md": 4,
    "docs/guides/columns-split.md": 4,
    "docs/guides/reading-the-ledger.md": 1,
    "docs/guides/reading-the-report.md": 2,
    "docs/guides/a-party-decides.md": 6,
    "docs/guides/between-organisations.md": 6,
    "docs/guides/network-flower.md": 2,
}
"""How many commands of a page are typed."""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return import_module("page_commands")


@pytest.fixture
def few_rows(monkeypatch):
    """Make Adult small."""
    rows = sw.split_rows(datasets.adult(), 48, by="iid", seed=0)[0]
    monkeypatch.setattr(datasets, "adult", lambda: rows)


def words_of(text: str) -> str:
    """Return a text without its numbers, digests and keys, and with single spaces."""
    without_keys = re.sub(r"[\w+/]{86}==", "KEY", text)
    return " ".join(re.sub(r"\b[0-9a-f]{4}\b|[\d.,]+", "0", without_keys).split())


def test_commands_and_what_they_print_are_read(tool):
    text = (
        "```\n$ a b\nc 1\n$ cd d\n$ e   # why\n...\n```\n\n```python\n$ f\n```\n\n```\ng\n```\n"
        "1. Indented:\n\n    ```text\n    north$ h \\\n        i\n    j ...\n    ```\n"
    )
    assert tool.typed(text) == [
        ("a b", "c 1", ""),
        ("cd d", "", ""),
        ("e", "", ""),
        ("h i", "j", "north"),
    ]
    assert words_of("ε   1.5, 3,000") == "ε 0 0"


@pytest.mark.parametrize("command", ["siloweave check nowhere", "rm study.toml"])
def test_a_command_that_fails_is_noticed(tool, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=command):
        tool.type_in(command)


@pytest.mark.parametrize("page", COMMANDS)
def test_commands_of_a_page_run_in_one_folder(page, tool, few_rows, tmp_path, monkeypatch, capfd):
    if "spss" in page:
        pytest.importorskip("pyreadstat", reason="pip install 'siloweave[stats]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    text = (ROOT / page).read_text("utf-8")
    number = 0
    for command in tool.type_page(text, tool.PAGES[page], tmp_path):
        printed = capfd.readouterr()
        assert words_of(command.shown) in words_of(printed.out + printed.err), command.text
        number += 1
    assert number == COMMANDS[page]


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: path.stem)
def test_every_command_of_a_guide_is_typed_or_listed(page, tool):
    """A command has a prompt, so that it is found, and the page is one that is typed."""
    text = page.read_text("utf-8")
    for language, block in re.findall(tool.BLOCK, text, re.DOTALL | re.MULTILINE):
        lines = block.splitlines()
        is_without_prompt = language == "" and lines[0].strip().startswith("siloweave ")
        assert not is_without_prompt, f"a command begins with `$`: {lines[0]}"
    commands = [one.text for one in tool.typed(text) if not tool.reason_not_to_type(one.text)]
    name = page.relative_to(ROOT).as_posix()
    assert bool(commands) == (name in COMMANDS), commands


def test_every_reason_not_to_type_is_of_a_command(tool):
    commands = [one.text for page in GUIDES for one in tool.typed(page.read_text("utf-8"))]
    for part in tool.NOT_TYPED:
        assert any(part in command for command in commands), part
