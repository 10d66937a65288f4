"""A table as text is one record in the terminal, in `str()` and on a page."""

import re
from html import unescape

import pytest

from siloweave.app.terminal import Terminal
from siloweave.report.page import templates
from siloweave.report.text_table import Strip, TextRow, text_table
from tests.report.outline import Outline

EVIL = "<script>alert('x')</script>&\"<b>"
HEADS = ("measure", ">value", "better", ">spread")


@pytest.fixture
def table():
    rows = [
        TextRow(("one", "0.5", "higher", "0.1 to 0.9"), group="first", note="over all"),
        TextRow(("two", "12.5", "lower", ""), group="second", note=EVIL, source="Doe 2020"),
        TextRow((EVIL, "3", "lower", "1 to 4"), group="second", note="over all", tone="bad"),
    ]
    return text_table(HEADS, rows, spare=("better", "spread"))


def on_page(table, **named):
    """The HTML that a page has for a table."""
    page = "{% import 'parts.html' as parts %}{{ parts.text_table(table, 'All', **named) }}"
    return templates("siloweave.app").from_string(page).render(table=table, named=named)


def test_notes_are_numbered_once_and_groups_are_lines(table):
    assert table.numbered()[1] == ["over all", EVIL]
    lines = table.lines()
    assert lines[0].split() == ["measure", "value", "better", "spread"]
    assert lines[1] == "first"
    assert lines[2].startswith("  one [1]")
    assert lines[3] == "second"
    assert lines[5].startswith(f"  {EVIL} [1]")
    assert lines[6:] == ["[1] over all", f"[2] {EVIL}"]
    # Numbers end where their heading does.
    end = lines[0].index("value") + len("value")
    assert [lines[place][:end].split()[-1] for place in (2, 4, 5)] == ["0.5", "12.5", "3"]


def test_each_group_is_a_table_of_its_own(table):
    groups = table.groups()
    assert [name for name, _ in groups] == ["first", "second"]
    assert [len(part.rows) for _, part in groups] == [1, 2]
    assert groups[1][1].spare == table.spare


def test_the_terminal_and_a_page_have_every_cell(table, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    Terminal().table(table, is_wide=True)
    wide = capsys.readouterr().out
    page = unescape(re.sub(r"<[^>]*>", " ", on_page(table)))
    for row in table.rows:
        for cell in (*row.cells, row.note):
            assert cell in wide.replace("\n    ", " ")
            assert cell in page
    Terminal().table(table)
    narrow = capsys.readouterr().out
    assert "spread" not in narrow
    assert "measure" in narrow


def test_a_page_escapes_cells_and_names_each_row(table):
    page = on_page(table)
    outline = Outline(page)
    assert "<script" not in page
    assert "Doe 2020" in page
    rows = [found for tag, found in outline.tags if tag == "th"]
    assert [found["scope"] for found in rows] == ["col"] * 4 + ["row"] * 3
    assert page.count('<tr class="bad">') == 1
    # Right where the terminal aligns right.
    assert page.count('<td class="n">') == 2 * len(table.rows)


def test_a_strip_is_drawn_beside_its_number():
    rows = [
        TextRow(("a", "2.0"), strip=Strip(2.0, (1.0, 3.0), 0.0, 4.0)),
        TextRow(("b", "9.0"), strip=Strip(9.0, None, 0.0, 4.0)),
        TextRow(("c", "1.0")),
    ]
    page = on_page(text_table(("x", ">y"), rows), strips="0 to 4", after="y", bare="nothing")
    assert '<i style="left:25.0%;width:50.0%"></i><b style="left:50.0%"></b>' in page
    assert '<b style="left:107.0%"></b>' in page
    assert page.count("nothing") == 1
    assert '<th scope="col">0 to 4</th>' in page
