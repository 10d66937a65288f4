"""Docs, docstrings and errors are plain English; the reference has every public name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import siloweave

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "siloweave"
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

#: What is not written, a sentence that has it, and what is written instead.
CONSTRUCTIONS = [
    (r"\b(?:is|are|was|were) none\b", "What is shown is none of a model's.", "there is no ..."),
    (r"\bof which\b[^.;:]*\bof which\b", "Rows of which some, of which a few.", "two sentences"),
    (r"\bnothing (?:was|is) made of\b", "Nothing was made of it.", "was discarded"),
    (r"\bin the place of\b", "A mean in the place of a draw.", "instead of"),
    (
        r"\b(?:two|three|four|five|six|seven|eight|nine|ten|\w+teen|[\d.]+) of a hundred\b",
        "Six of a hundred rows.",
        "6 %",
    ),
    (r"\bwhence\b", "It was slower, whence two columns.", "so"),
    (r"\bby heart\b", "Rows learnt by heart.", "memorised"),
    (r"\b(?:tells?|telling|foretells?|foretold)\b", "The page tells it.", "show, print, forecast"),
    (r"\btold\b", "The network is told the label.", "conditioned on, sent, named"),
    (r"\b(?:a|the|one|noisy|first|private) looks?\b", "It pays for a look.", "noisy histogram"),
    (r"\blaws?\b", "The law of a column.", "distribution"),
    (r"\bgrains?\b", "Counted at several grains.", "resolution levels"),
    (r"\bsurprise\b", "The least surprise.", "cross-entropy"),
    (r"\bspots?\b", "The spots of a layout.", "sphere codes"),
    (r"\bwoven\b", "A woven fit.", "column-split fit"),
    (r"\bgo(?:es)? on with\b", "The run goes on with it.", "continue"),
    (r"\bhangs? on\b", "The score hangs on it.", "depend on"),
]


def prose(page: str) -> str:
    """A page without code, link targets and comments, which may have older names."""
    page = re.sub(r"```.*?```|<!--.*?-->", " ", page, flags=re.DOTALL)
    page = re.sub(r"^ *(?:>>>|\.\.\.) .*$", " ", page, flags=re.MULTILINE)
    return re.sub(r"``?[^`\n]+?``?|\]\([^)]*\)", " ", page)


def problems(text: str) -> list[str]:
    """The constructions in a text, where they are, and what to write instead."""
    text = " ".join(text.split())
    return [
        f"{match[0]!r} in '...{text[max(0, match.start() - 40) : match.end() + 40]}...': {better}"
        for pattern, _, better in CONSTRUCTIONS
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]


def written(tree: ast.AST) -> Iterator[str]:
    """Docstrings, of names too, and texts of errors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield prose(node.value.value)
        elif isinstance(node, ast.Raise):
            texts = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
            yield from (text for text in texts if isinstance(text, str))


@pytest.mark.parametrize(("pattern", "sentence", "better"), CONSTRUCTIONS)
def test_each_construction_is_found(pattern, sentence, better):
    assert re.search(pattern, sentence, re.IGNORECASE)
    assert not problems(better)
    assert problems(sentence)
    assert problems(prose(f"# A page\n\n{sentence}\n\n```\n{sentence}\n```\n")) == problems(
        f"# A page {sentence}"
    )


def test_docstrings_and_errors_are_read():
    code = ast.parse(
        "X = 1\n'A look.'\ndef f():\n    'One law.'\n    raise ValueError(f'told {X}')\n"
    )
    assert len([found for text in written(code) for found in problems(text)]) == 3
    assert list(written(ast.parse("x = 'One law.'"))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_page_is_plain_english(page):
    assert problems(prose(page.read_text("utf-8"))) == []


@pytest.mark.parametrize("package", sorted({p.parent.name for p in SOURCE.glob("*/__init__.py")}))
def test_docstrings_and_errors_are_plain_english(package):
    paths = (SOURCE / package).rglob("*.py")
    texts = [text for path in paths for text in written(ast.parse(path.read_text("utf-8")))]
    assert texts
    assert [found for text in texts for found in problems(text)] == []


def test_docstrings_and_errors_of_single_files_are_plain_english():
    for path in SOURCE.glob("*.py"):
        texts = written(ast.parse(path.read_text("utf-8")))
        assert [found for text in texts for found in problems(text)] == [], path.name


def entries() -> dict[str, str]:
    """Terms of the glossary, in its order, and the text of each."""
    text = GLOSSARY.read_text("utf-8")
    found = re.findall(r"^## (.+)\n\n(.+)$", text, re.MULTILINE)
    terms = [term for term, _ in found]
    assert len(terms) == len(set(terms)) == text.count("\n## ")
    return dict(found)


def test_the_glossary_has_fifty_terms_for_readers():
    """Classes and functions are on the API pages."""
    assert len(entries()) == 50
    assert not set(entries()) & set(siloweave.__all__)


def test_pages_link_to_terms_of_the_glossary():
    pages = [page for page in PAGES if page != GLOSSARY]
    linked = {
        anchor
        for page in pages
        for anchor in re.findall(r"glossary\.md#([\w-]+)\)", page.read_text("utf-8"))
    }
    assert len(linked) >= 15


def test_every_public_name_is_in_the_reference_once():
    """A page of docs/api has a line `::: siloweave.NAME`, which becomes its docstring."""
    pages = [page.read_text("utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.md"))]
    shown = [name for page in pages for name in re.findall(r"^::: siloweave\.(\w+)$", page, re.M)]
    assert sorted(shown) == sorted(set(siloweave.__all__) - {"__version__"})


def test_the_glossary_is_sorted():
    terms = [term.casefold() for term in entries()]
    assert terms == sorted(terms)


def test_a_name_in_the_glossary_is_one_of_the_program():
    """What was renamed or removed is renamed or removed in the glossary, too."""
    words = set(re.findall(r"\w+", "\n".join(p.read_text("utf-8") for p in SOURCE.rglob("*.py"))))
    assert "in the code today" not in GLOSSARY.read_text("utf-8")
    for term, text in entries().items():
        for name in re.findall(r"`([^`]+)`", f"{term} {text}"):
            assert set(re.findall(r"\w+", name)) <= words, name
