"""What a notebook and a frame show of tables, fits and results: small, and escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST = 20
"""Rows or columns that are shown; of more, the first."""
# Characters of a cell.
_LONGEST = 60
# From this size on digits are set apart; smaller numbers may be years.
_LEAST_APART = 10_000
# Python writes a larger number with an exponent.
_LARGEST_APART = 1e15


def listed(names: Sequence[str], most: int = MOST) -> str:
    """List names with commas; of many, the first ones and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    first_names = ", ".join(names[:most])
    return f"{first_names} and {len(names) - most} more"


def bound_words(bound: object) -> str:
    """Write a bound of a column for a reader: thousands apart, and a time with a blank before it.

    A number of four digits may be a year, and stays as it is.

    Example:
        >>> bound_words(1990), bound_words(32148.27), bound_words("2022-01-31T18:05:00")
        ('1990', '32,148.27', '2022-01-31 18:05')
    """
    if isinstance(bound, bool) or bound is None:
        return str(bound)
    if isinstance(bound, int | float):
        is_plain = abs(bound) < _LEAST_APART or not abs(bound) < _LARGEST_APART
        return str(bound) if is_plain else f"{bound:,}"
    day, separator, clock = str(bound).partition("T")
    if clock.count(":") > 1:
        clock = clock.removesuffix(":00")
    if not separator or clock == "00:00":
        return day
    return f"{day} {clock}"


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
