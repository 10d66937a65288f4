"""What the README shows works as it is written."""

import re
from pathlib import Path

import pytest

from siloweave.cli import main

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {"demo", "init", "check", "run", "sample", "report", "ledger", "list", "score", "attack"}
README = (ROOT / "README.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    (example,) = blocks(README, "python")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert len(names["synthetic"]) == 1000
    assert names["model"].epsilon <= 1.0
    assert names["again"].sample(5, seed=0).equals(names["model"].sample(5, seed=0))
    assert "party-10" in capsys.readouterr().out


def test_the_list_is_what_the_command_prints(capsys):
    main(["list"])
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = [block.splitlines() for block in blocks(README, "") if block.startswith("name ")]
    assert printed in shown


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    ("guide", "said"),
    [
        ("python", "BudgetError"),
        ("scores-and-attacks", "its ledger allows"),
        pytest.param("columns-split", "office", marks=pytest.mark.slow),
        pytest.param("rows-split-networks", "epsilon infinite", marks=pytest.mark.slow),
    ],
)
def test_a_guide_runs_from_top_to_bottom(guide, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    page = ROOT / f"docs/guides/{guide}.md"
    for example in blocks(page.read_text("utf-8"), "python"):
        exec(compile(example, page.name, "exec"), names)
    assert said in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name)
def test_commands_in_the_docs_exist(page, capsys):
    """Every `siloweave COMMAND --option` that a page shows is one that the program has."""
    shown = re.findall(
        r"(?:^|`|\$ )siloweave ([a-z]+)((?:[^`\n#]|\n(?= ))*)", page.read_text(), re.M
    )
    for command, rest in shown:
        if command in COMMANDS:
            main([command, "--help"])
            known = capsys.readouterr().out
            for option in re.findall(r"(?<= )--[a-z]+", rest):
                assert option in known, f"siloweave {command} has no {option}"
