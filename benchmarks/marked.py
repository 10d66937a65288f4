"""A table of figures that is written between two marks of a page, such as `<!-- network -->`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def table(head: list[str], rows: Sequence[list[str]], words: int = 0) -> str:
    """A table of Markdown, of which the first columns are `words` and all others numbers."""
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def fill(page: Path, mark: str, text: str) -> None:
    """Put a text between the marks of a page, if it has them."""
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, _, rest = page.read_text().partition(start)
    _, found, after = rest.partition(end)
    if found:
        page.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}")
