"""What a notebook and a frame show of tables, fits and results: small, and escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST = 20
"""Rows or columns that are shown; of more, the first."""
# Characters of a cell.
_LONGEST = 60


def listed(names: Sequence[str], most: int = MOST) -> str:
    """List names with commas; of many, the first ones and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    first_names = ", ".join(names[:most])
    return f"{first_names} and {len(names) - most} more"


def html_table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]
) -> str:
    """Write a small HTML table; all texts are escaped, and of many rows the first are shown.

    Example:
        >>> html_table("a<b", ["x"], [["1 & 2"]])
        '<table><caption>a&lt;b</caption><tr><th>x</th></tr><tr><td>1 &amp; 2</td></tr></table>'
    """
    all_rows = list(rows)
    lines = [_row("th", heads)]
    lines += [_row("td", row) for row in all_rows[:MOST]]
    num_more = len(all_rows) - MOST
    if num_more > 0:
        empty_cells = [""] * (len(heads) - 1)
        lines.append(_row("td", [f"and {num_more} more", *empty_cells]))
    caption_line = f"<caption>{escape(caption)}</caption>"
    return f"<table>{caption_line}{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[object]) -> str:
    """Write one row of an HTML table, of cells of one kind."""
    texts = [escape(_shortened(str(cell))) for cell in cells]
    tagged_texts = [f"<{tag}>{text}</{tag}>" for text in texts]
    return f"<tr>{''.join(tagged_texts)}</tr>"


def _shortened(text: str) -> str:
    """Cut off the end of a long text."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 1]}…"
