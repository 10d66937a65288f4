"""What a notebook and a frame show of tables, fits and results: small, and escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST = 20
"""Rows or columns that are shown; of more, the first."""
_LONGEST = 60  # characters of a cell


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


def _row(tag: str, cells: Sequence[object]) -> str:
    texts = [
        text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in map(str, cells)
    ]
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"
