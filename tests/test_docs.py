"""The site of the documentation: pages are reachable, links lead somewhere, tutorials run."""

import json
import math
import os
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from siloweave.app.cli import main
from siloweave.methods.registry import METHODS
from tests.test_english import problems, prose

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "tutorials").glob("*.ipynb"))
DECISIONS = DOCS / "decisions" / "README.md"
CHOICES = DECISIONS.with_name("choices.md")
NOTES = sorted(DECISIONS.parent.glob("0*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *NOTEBOOKS]


@pytest.fixture(autouse=True)
def _tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def text_of(page: Path) -> str:
    """The Markdown of a page, or of a notebook."""
    text = page.read_text("utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, where the site and a repository's pages agree on them."""
    text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\]\([^)]*\)", "", heading).lower().strip()
        found.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", words)))
    return {anchor for anchor in found if "--" not in anchor and anchor.isascii()}


def navigated(nav: list[object]) -> list[str]:
    """The files of a navigation, in order."""
    files: list[str] = []
    for entry in nav:
        for inside in entry.values() if isinstance(entry, dict) else [entry]:
            files += navigated(inside) if isinstance(inside, list) else [str(inside)]
    return files


def test_every_page_is_in_the_navigation_once():
    nav = navigated(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"])
    pages = {
        page.relative_to(DOCS).with_suffix(".md").as_posix()
        for page in PAGES
        if page.is_relative_to(DOCS) and not re.match(r"0\d+-", page.name)
    }
    assert sorted(nav) == sorted(pages), "nav in zensical.toml and the pages of docs/ differ"


def test_every_decision_is_listed():
    listed = re.findall(r"^\| \[(\d+)\]\((.+?)\) \| (.+?) \|$", text_of(DECISIONS), re.M)
    assert [file for _, file, _ in listed] == [note.name for note in NOTES]
    for number, file, title in listed:
        heading = text_of(DECISIONS.parent / file).splitlines()[0]
        assert heading.casefold() == f"# {number}: {title}".casefold()


def test_every_number_up_to_the_last_one_has_a_place():
    """A note, a row of the choices, or a line that says where its subject is now."""
    moved = re.findall(r"^\| (\d{4}.*?) \|", text_of(DECISIONS), re.M)
    placed = [note.name[:4] for note in NOTES]
    for cell in moved:
        for first, last in re.findall(r"(\d{4})(?: to (\d{4}))?", cell):
            placed += [f"{n:04d}" for n in range(int(first), int(last or first) + 1)]
    assert sorted(placed) == [f"{n:04d}" for n in range(1, int(max(placed)) + 1)]
    (choices,) = re.findall(r"^\| (\d{4}.*?) \| rows of ", text_of(DECISIONS), re.M)
    rows = re.findall(r"^\| (\d{4}) \|", text_of(CHOICES), re.M)
    assert [n for n in placed if n in rows] == rows
    assert re.findall(r"\d{4}", choices)[0] == rows[0]
    assert re.findall(r"\d{4}", choices)[-1] == rows[-1]


def test_decisions_are_few():
    assert len(NOTES) <= 25, "merge two notes of one subject before another one is added"


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.stem)
def test_a_decision_is_a_page_in_the_form_of_a_record(note):
    text = text_of(note)
    assert re.match(r"# \d{4}: .+\n\n\* Status: .+\n\* Date: \d{4}-\d\d-\d\d", text)
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert headings == ["Context", "Options", "Decision", "Consequences"]
    assert len(re.findall(r"\S*\w\S*", text)) <= 600, "a note is one page"


def test_a_choice_has_evidence_and_a_command():
    rows = re.findall(r"^\| (?:\[?\d{4}.*?) \| (.+) \| (.+) \| (.+) \|$", text_of(CHOICES), re.M)
    assert len(rows) == len(re.findall(r"^\| \[?\d{4}", text_of(CHOICES), re.M))
    for _, evidence, command in rows:
        assert re.search(r"\d", evidence)
        script = re.match(r"`((?:benchmarks|tests)/\S+\.py)", command)
        assert script, command
        assert (ROOT / script[1]).is_file(), script[1]


#: Pages that may be long: what was measured, decided, or is written from the program.
APPENDICES = (
    *("decisions/", "reference/results/", "api/"),
    *("reference/commands.md", "reference/kinds-of-columns.md"),
)
SHORT = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if not page.relative_to(DOCS).as_posix().startswith(APPENDICES)
]


def counted(text: str) -> int:
    """How many words a text has; the targets of links are none."""
    return len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)", "]", text)))


def paragraphs(text: str) -> list[str]:
    """The paragraphs and the points of lists, without code, headings, tables and pictures."""
    text = re.sub(r"```.*?```|<!--.*?-->", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"^(?:#|\||\[?!\[).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^(\s*(?:[*-]|\d+\.) )", r"\n\1", text, flags=re.MULTILINE)
    return [part for part in re.split(r"\n\s*\n", text) if part.strip()]


def test_a_page_is_short():
    sizes = {page.relative_to(DOCS).as_posix(): counted(text_of(page)) for page in SHORT}
    assert {name: size for name, size in sizes.items() if size > 2_500} == {}
    assert sum(sizes.values()) <= 60_000


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_paragraph_is_short(page):
    long = [
        f"{counted(part)} words from {part.strip()[:60]!r}"
        for part in paragraphs(text_of(page))
        if counted(part) > 80
    ]
    assert long == []


def test_paragraphs_are_found():
    text = "# A\n\none\ntwo\n- three\n- four\n  five\n\n```\nsix\n```\n| a |\n\nseven"
    assert [" ".join(part.split()) for part in paragraphs(text)] == [
        "one two",
        "- three",
        "- four five",
        "seven",
    ]
    assert counted("See [this page](a-b.md#c) at ε = 1.") == 6


@pytest.mark.parametrize("page", SHORT, ids=lambda p: p.relative_to(DOCS).as_posix())
def test_a_guide_has_no_history(page):
    """What was measured once and mended since belongs into decisions and the changelog."""
    if page.relative_to(DOCS).parts[0] in ("guides", "concepts"):
        assert not re.search(r"\bmended (?:then|since)\b|\bit was mended\b", text_of(page), re.I)


def test_the_pictures_of_concepts_are_as_their_script_draws_them(tmp_path, monkeypatch):
    tool = import_module("concept_pictures")
    monkeypatch.setattr(tool, "IMAGES", tmp_path)
    tool.draw_protocols()
    tool.draw_epsilon()
    tool.draw_tree()
    drawn = sorted(tmp_path.glob("*.svg"))
    assert len(drawn) == 5
    for picture in drawn:
        assert picture.read_text("utf-8") == (DOCS / "images" / picture.name).read_text("utf-8")
        assert "prefers-color-scheme:dark" in picture.read_text("utf-8")


def test_the_decision_tree_leads_to_methods_and_headings():
    tool = import_module("concept_pictures")
    guide = DOCS / "guides" / "choosing.md"
    text = text_of(guide)
    assert tool.tree_in_words() in text
    for _, _, _, answer in tool.leaves(tool.TREE):
        assert answer.method in METHODS
        file, _, anchor = answer.page.partition("#")
        page = guide.with_name(file) if file else guide
        assert not anchor or anchor in anchors(page)
        assert page.is_file()


def test_the_odds_on_the_page_are_those_of_the_formula():
    """Each row of the table in docs/concepts/epsilon.md, computed here again."""
    rows = re.findall(
        r"^\| ([\d.]+) \| ([\d.,]+) \| ([\d.]+) % \| ([\d.]+) % \|$",
        text_of(DOCS / "concepts" / "epsilon.md"),
        re.MULTILINE,
    )
    assert [row[0] for row in rows] == ["0.1", "1", "3"]
    for epsilon, factor, half, hundredth in rows:
        odds = math.exp(float(epsilon)) + 1e-6 / 1e-4
        # Bounds are rounded up, never down.
        assert 0 <= float(factor) - odds <= 0.01
        assert 0 <= float(half) - 100 * odds / (1 + odds) <= 0.1
        assert 0 <= float(hundredth) - 100 * odds / (99 + odds) <= 0.1


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    made = import_module("example_pages").PAGES  # with the site, and not stored
    shown = re.sub(r"```.*?```|`[^`\n]+`", "", text_of(page), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", shown):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        if linked.parent == DOCS / "examples" and linked.name in made:
            continue
        assert linked.is_file() or (linked.is_dir() and page.parent == ROOT), f"no file {target}"
        if page.is_relative_to(DOCS):
            assert linked.is_relative_to(DOCS), f"{target} is not a page of the site"
        if anchor:
            assert anchor in anchors(linked), f"no heading for {target}"


def test_anchors_are_read_from_headings(tmp_path):
    page = tmp_path / "a.md"
    page.write_text("# One: `two`\n```\n# no\n```\n## [Three](b.md), four?\n### A — b\n", "utf-8")
    assert anchors(page) == {"one-two", "three-four"}


RUNS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem == "two-hospitals"))
    for path in NOTEBOOKS
]
"""The one of many processes is among the slow tests."""


@pytest.mark.parametrize("path", RUNS)
def test_a_tutorial_runs_and_shows_what_is_stored(path, monkeypatch):
    monkeypatch.setenv("PATH", os.defpath)  # as in a notebook whose environment is not activated
    monkeypatch.setenv("FORCE_COLOR", "1")  # Jupyter sets it
    notebook = json.loads(path.read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, found in zip(cells, import_module("notebooks").run(notebook), strict=True):
        kinds = [
            [(output["output_type"], sorted(output.get("data", ()))) for output in outputs]
            for outputs in (found, cell["outputs"])
        ]
        assert kinds[0] == kinds[1], "run tools/notebooks.py: " + "".join(cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_tutorial_is_plain_english_and_names_no_machine(path):
    assert problems(prose(text_of(path))) == []
    assert not re.search(r"(?<![\w.}])/(?:tmp|home|root|work|Users)/", path.read_text("utf-8"))


def test_a_notebook_becomes_a_page():
    cell = {"cell_type": "code", "source": ["x = 1\n", "print(x)\n", "x"], "outputs": []}
    notebook = {"cells": [{"cell_type": "markdown", "source": ["# T"]}, cell]}
    tool = import_module("notebooks")
    (cell["outputs"],) = tool.run(notebook)
    assert [output["output_type"] for output in cell["outputs"]] == ["stream", "execute_result"]
    code = "```python\nx = 1\nprint(x)\nx\n```"
    assert tool.page(notebook, "t") == "\n\n".join(
        ["# T", code, "```text\n1\n```", "```text\n1\n```", "[This page as a notebook](t.ipynb)\n"]
    )
    cell["source"][-1] = "x;"
    assert [len(outputs) for outputs in tool.run(notebook)] == [1]


def test_the_built_site_is_checked(tmp_path):
    site = import_module("build_site")
    (tmp_path / "a.html").write_text('<a href="b.html#c">b</a><img src="d.png">', "utf-8")
    (tmp_path / "b.html").write_text('<h1 id="c">c</h1><a href="https://x.org">x</a>', "utf-8")
    assert site.problems(tmp_path) == ["a.html links to d.png, which does not exist"]
    (tmp_path / "d.png").touch()
    assert site.problems(tmp_path) == []
    (tmp_path / "b.html").write_text('<script src="https://x.org/y.js"></script>', "utf-8")
    assert site.problems(tmp_path) == [
        "a.html links to b.html#c, which does not exist",
        "b.html loads https://x.org/y.js",
    ]


def test_the_study_of_the_example_pages_can_run(tmp_path, capsys):
    import_module("example_pages").write_study(tmp_path)
    assert main(["check", str(tmp_path), "--rows"]) == 0
    printed = capsys.readouterr().out
    assert "example: TwoRound, 3 parties" in printed
    assert "holdout" not in printed
    study = (tmp_path / "study.toml").read_text("utf-8")
    assert study.count("[[parties]]") == 3


def test_every_example_page_is_explained():
    text = text_of(DOCS / "examples" / "README.md")
    links = re.findall(r"\]\(([\w-]+\.html)\)", text)
    assert links == list(import_module("example_pages").PAGES)


def test_a_terminal_is_drawn_without_anything_from_elsewhere():
    terminal = import_module("terminal")
    drawn = ElementTree.fromstring(terminal.picture(["$ siloweave list", "", "a & b <c>"]))
    lines = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert lines == ["$ siloweave list", "a & b <c>"]
    stored = terminal.PICTURE.read_text("utf-8")
    assert "$ siloweave demo" in stored
    assert re.findall(r"https?://[^\s\"']+", stored) == ["http://www.w3.org/2000/svg"]
    assert len(stored) < 100_000


def test_docstrings_are_rewritten_for_the_reference(monkeypatch):
    """As the site's parser of docstrings expects them; it is not among the tests' packages."""
    stub = SimpleNamespace(Extension=object, Object=object)
    monkeypatch.setitem(sys.modules, "griffe", stub)
    above = "A method.\n\n**Guarantee** (dp): rows,\nall of them.\n\nMore."
    text = "One.\n\nArgs:\n    a, b: Of\n        both.\n    c: Own: x, y.\n\nExample:\n    >>> 1"
    method = SimpleNamespace(
        is_class=True,
        bases=["Synthesizer", "Settings"],
        module=SimpleNamespace(docstring=SimpleNamespace(value=above)),
        docstring=SimpleNamespace(value=text),
    )
    import_module("docstrings").Docstrings().on_instance(obj=method)
    assert method.docstring.value == (
        "One.\n\nArgs:\n    a: Of\n        both.\n    b: Of\n        both.\n    c: Own: x, y.\n\n"
        "Examples:\n    >>> 1\n\n**Guarantee** (dp): rows,\nall of them.\n"
    )
    method.bases, method.docstring.value = ["Settings"], "One."
    import_module("docstrings").Docstrings().on_instance(obj=method)
    assert method.docstring.value == "One."


def class_of(name, text, bases=(), fields=()):
    """A class as the site's parser sees it, without bases that it resolves."""
    members = {}
    for field, annotation, value in fields:
        labels = {"class-attribute", "instance-attribute"}
        members[field] = SimpleNamespace(labels=labels, annotation=annotation, value=value)
    members["method"] = SimpleNamespace(labels={"class-attribute"}, annotation="Method", value="")
    return SimpleNamespace(
        name=name, path=f"pkg.{name}", bases=[base.name for base in bases], members=members,
        docstring=SimpleNamespace(value=text), mro=lambda: list(bases), is_alias=False,
        is_module=False, is_class=True,
    )  # fmt: skip


def test_every_setting_is_spelled_out_in_the_reference(monkeypatch):
    stub = SimpleNamespace(Extension=object, Object=object)
    monkeypatch.setitem(sys.modules, "griffe", stub)
    tool = import_module("docstrings")
    base = class_of("Synthesizer", "A method.")
    net = class_of("NetSettings", "Settings.\n\nAttributes:\n    width: Units\n        of it.\n",
                   fields=[("width", "int", "8"), ("joint", "bool", "True")])  # fmt: skip
    counts = class_of("CountSettings", "Settings.\n\nAttributes:\n    share: A share.\n")
    text = (
        "A net.\n\nArgs:\n    share: See `a.CountSettings`; of all.\n    part: Its net.\n\n"
        "Examples:\n    >>> 1"
    )
    fields = [("joint", "bool", "field(default=True, init=False)"), ("share", "float", "0.1"),
              ("part", "NetSettings", "NetSettings()")]  # fmt: skip
    method = class_of("AIM", text, (base, net), fields)
    classes = {cls.name: cls for cls in (base, net, counts, method)}
    tool.Docstrings().on_package(pkg=SimpleNamespace(members=classes))
    above, _, below = method.docstring.value.partition("Args:\n")
    assert below == (
        "    width: Units of it.\n    share: A share. Of all.\n"
        "    part: Its net. Its settings: [`NetSettings`][pkg.NetSettings].\n\nExamples:\n    >>> 1"
    )
    assert "model = sw.AIM().fit(table, schema, budget=budget)" in above
    assert "**Source**: McKenna, Mullins, Sheldon & Miklau 2022" in above
    # So it is in settings that refer to others.
    text = "Settings.\n\nAttributes:\n    width: See `NetSettings`.\n    deep: How deep.\n"
    more = class_of("MoreSettings", text)
    tool.Docstrings().on_package(pkg=SimpleNamespace(members=classes | {"MoreSettings": more}))
    assert more.docstring.value.endswith("    width: Units of it.\n    deep: How deep.\n")
    # A setting that nobody describes stops the build.
    bare = class_of("Bare", "A net.", (base,), [("width", "int", "8")])
    with pytest.raises(ValueError, match="Bare: the setting width is described nowhere"):
        tool.Docstrings().on_package(pkg=SimpleNamespace(members={"Bare": bare}))


def test_the_reference_knows_the_source_of_every_method(monkeypatch):
    monkeypatch.setitem(sys.modules, "griffe", SimpleNamespace(Extension=object, Object=object))
    tool = import_module("docstrings")
    methods = tool.methods_in(tool.METHODS.read_text("utf-8"))
    listed = "docs/reference/methods.md has a row for every method, see tools/methods_page.py"
    assert sorted(methods) == sorted(kind.__name__ for kind in METHODS.values()), listed
    for kind in METHODS.values():
        info = kind().info
        facts = methods[kind.__name__]
        assert (facts.source, facts.guarantee) == (info.paper, info.guarantee)
        given = {"rows": "[north, south]", "columns": '{"work": work, "tax": tax}'}
        assert given.get(info.split, "table") in facts.use
