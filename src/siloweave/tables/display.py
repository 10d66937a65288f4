"""What a notebook and a frame show of tables, fits and results: small, and escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST = 20
"""Rows or columns that are shown; of more, the first."""
LONGEST = 60
"""Characters of a cell."""


def shortened(value: object, most: int = LONGEST) -> str:
    """A value as text, cut where it is long."""
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def listed(names: Sequence[str], most: int = MOST) -> str:
    """Names with commas; of many, the first and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A small HTML table; all texts are escaped, and of many rows the first are shown.

    Example:
        >>> html_table("a<b", ["x"], [["1 & 2"]])
        '<table><caption>a&lt;b</caption><tr><th>x</th></tr><tr><td>1 &amp; 2</td></tr></table>'
    """
    body = list(rows)
    more = len(body) - MOST
    lines = [_row("td", row) for row in body[:MOST]]
    if more > 0:
        lines.append(_row("td", [f"and {more} more", *[""] * (len(heads) - 1)]))
    head = _row("th", heads)
    return f"<table><caption>{escape(caption)}</caption>{head}{''.join(lines)}</table>"


def html_head(names: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """The first rows and columns of a table as HTML, and how many there are."""
    some = [["" if value is None else value for value in row[:MOST]] for row in rows]
    return html_table(f"{count:,} rows, {len(names):,} columns", names[:MOST], some)


def _row(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(shortened(cell))}</{tag}>' for cell in cells)}</tr>"
