"""What the README shows works as it is written."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from siloweave.app.cli import main
from siloweave.app.study import (
    About,
    AlignmentTable,
    BudgetTable,
    Output,
    PartyTable,
    SchemaFile,
    Study,
    listed,
)

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {"demo", "init", "check", "run", "sample", "report", "ledger", "list", "score", "attack"}
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY"))]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


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
    printed = capsys.readouterr().out
    assert "party-3: 3 releases, epsilon 1.000" in printed
    assert "party-3: 3 releases, epsilon 1.000" in README


def test_the_readme_is_read_in_two_minutes():
    assert len(README.split()) <= 600


def test_lines_of_code_of_the_readme_fit_a_terminal():
    code = "\n".join(re.findall(r"```(.*?)```", README, re.DOTALL))
    assert max(map(len, code.split("\n"))) <= 84


def test_the_readme_is_drawn_by_its_script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    drawing = import_module("drawing")
    assert drawing.PICTURE.read_text("utf-8") == drawing.picture(), "run python tools/drawing.py"
    assert f"({drawing.PICTURE.relative_to(ROOT).as_posix()})" in README


def test_the_python_example_takes_nothing_public_from_rows():
    (example,) = blocks(README, "python")
    assert "detect(" not in example
    assert ".declared()" not in example
    names: dict[str, object] = {}
    (line,) = [one for one in example.splitlines() if one.startswith("schema = ")]
    exec(f"from siloweave.datasets import adult_schema\n{line}", names)
    assert not any(column.from_data for column in names["schema"].columns)


def test_the_page_of_commands_is_what_the_command_line_gives(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    commands = import_module("commands_page")
    assert commands.PAGE.read_text("utf-8") == commands.page(), (
        "the command line changed: run python tools/commands_page.py"
    )


def test_the_page_of_the_study_file_has_every_key():
    text = (ROOT / "docs/reference/study-file.md").read_text("utf-8")
    shown = {}
    for part in text.split("\n## ")[1:]:
        shown[part.split("\n")[0].strip("[]")] = re.findall(r"^\| `(\w+)` ", part, re.M)
    tables = {"schema": SchemaFile, "budget": BudgetTable, "parties": PartyTable}
    tables |= {"study": About, "alignment": AlignmentTable, "output": Output}
    expected = {name: list(one.__struct_fields__) for name, one in tables.items()}
    assert shown == {**expected, "method": ["name"]}
    assert set(shown) == set(Study.__struct_fields__) - {"base"}


@pytest.fixture
def methods_page(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return import_module("methods_page")


def test_the_page_of_methods_is_what_the_registry_gives(methods_page):
    assert methods_page.PAGE.read_text("utf-8") == methods_page.page(), (
        "the registry changed: run python tools/methods_page.py"
    )


def test_the_page_of_methods_is_what_the_command_prints(methods_page, capsys):
    main(["list", "--json"])
    printed = json.loads(capsys.readouterr().out)
    shown = {}
    text = methods_page.PAGE.read_text("utf-8")
    for line in re.findall(r"^\| `.*$", text, re.M):
        name, _, *facts = line.strip("| ").split(" | ")
        shown[name.strip("`")] = facts
    kept = ("family", "guarantee", "trust", "paper")
    assert shown == {name: [info[key] for key in kept] for name, info in printed.items()}


def test_the_readme_cites_nothing():
    """Papers stand on the page of methods."""
    papers = [info.paper for info in listed().values()]
    assert not re.search(r"\bet al\b|\barXiv\b|\bNeurIPS\b|\bICDE\b|\bVLDB\b", README)
    assert not any(paper in README for paper in papers)
    assert "(docs/reference/methods.md)" in README


TOWN = ("registry.csv", "office.csv", "tax.csv")
ELSEWHERE = {"mechanisms/aim.py", "privacy/normal.py"}  # of a reference script, and removed


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_a_page_names_are_there(page):
    homes = (ROOT, ROOT / "src", ROOT / "src" / "siloweave")
    for named in set(re.findall(r"`([\w/]+/\w+\.py)`", page.read_text("utf-8"))) - ELSEWHERE:
        assert any((home / named).is_file() for home in homes), f"{page.name} names {named}"


@pytest.mark.parametrize(
    ("guide", "said", "left"),
    [
        ("python", "BudgetError", ()),
        ("scores-and-attacks", "its ledger allows", ()),
        ("coming-from-sdv", "epsilon infinite", ()),
        ("../README", "party-3", ()),
        pytest.param("columns-split", "office", TOWN, marks=pytest.mark.slow),
        pytest.param("rows-split-networks", "epsilon infinite", (), marks=pytest.mark.slow),
    ],
)
def test_a_guide_runs_from_top_to_bottom(guide, said, left, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    page = ROOT / f"docs/guides/{guide}.md"
    for example in blocks(page.read_text("utf-8"), "python"):
        exec(compile(example, page.name, "exec"), names)
    assert said in capsys.readouterr().out
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(left)
    if left:  # what the page says of them next
        assert main(["init", *left]) == 0
        assert 'on = ["person"]' in Path("study.toml").read_text("utf-8")


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
