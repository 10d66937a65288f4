"""A table as text, written once for the terminal, `str()`, a notebook and a page.

`Terminal.table` prints one as wide as the terminal, `lines` lays it out for `str()`, and the macro
`text_table` of `parts.html` writes it into a page. Programs get the values behind it instead: the
JSON of a result has its numbers, not these texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

_GAP = 2  # blanks between columns


@dataclass(frozen=True)
class TextColumn:
    """A column's heading, and whether its cells are numbers, which are aligned right."""

    name: str
    is_number: bool = False

    @property
    def title(self) -> str:
        """The heading with a capital, as pages have it; a symbol such as ε stays as it is.

        Example:
            >>> TextColumn("rows").title, TextColumn("ε spent").title
            ('Rows', 'ε spent')
        """
        first = self.name[:1]
        return first.upper() + self.name[1:] if first.isascii() else self.name


@dataclass(frozen=True)
class Strip:
    """A number and its interval between a low and a high one, drawn beside it on a page."""

    value: float
    interval: tuple[float, float] | None
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class TextRow:
    """One line of a table.

    Attributes:
        cells: A text for each column; the first one names the row.
        group: Rows of one group stand together below its name.
        note: What must be known to read the row; numbered below the table, or below the name on a
            page.
        source: Whose measure it is; for a page alone.
        strip: What a page draws of it; None where there is nothing to draw.
        tone: The colour of its second cell on a page: "bad", or as all others.
    """

    cells: tuple[str, ...]
    group: str = ""
    note: str = ""
    source: str = ""
    strip: Strip | None = None
    tone: str = ""


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Attributes:
        columns: Their headings.
        rows: The lines below them.
        spare: Names of columns that a narrow terminal leaves out, from the last one on.
    """

    columns: tuple[TextColumn, ...]
    rows: tuple[TextRow, ...]
    spare: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows' cells."""
        return tuple(row.cells for row in self.rows)

    def groups(self) -> list[tuple[str, TextTable]]:
        """Return the rows of each group as a table of their own."""
        return [
            (name, replace(self, rows=tuple(rows)))
            for name, rows in groupby(self.rows, key=lambda row: row.group)
        ]

    def numbered(self) -> tuple[list[tuple[str, ...]], list[str]]:
        """Return the lines as they are printed, and the notes to which their marks refer.

        A group is a line of its own, above its rows. A note that holds for several rows is there
        once.

        Example:
            >>> rows = (TextRow(("a", "1"), group="g", note="few"), TextRow(("b", "2"), group="g"))
            >>> TextTable((TextColumn("x"), TextColumn("y")), rows).numbered()
            ([('g', ''), ('  a [1]', '1'), ('  b', '2')], ['few'])
        """
        lines: list[tuple[str, ...]] = []
        notes: list[str] = []
        group = ""
        for row in self.rows:
            if row.group != group:
                group = row.group
                lines.append((group, *[""] * (len(self.columns) - 1)))
            first, *others = row.cells
            if group:
                first = f"  {first}"
            if row.note:
                if row.note not in notes:
                    notes.append(row.note)
                first = f"{first} [{notes.index(row.note) + 1}]"
            lines.append((first, *others))
        return lines, notes

    def lines(self) -> list[str]:
        """Return the table with all of its columns, and its notes.

        Example:
            >>> text_table(("party", ">rows"), [("north", 9), ("south", 12)]).lines()
            ['party  rows', 'north     9', 'south    12']
        """
        lines, notes = self.numbered()
        is_right = [column.is_number for column in self.columns]
        texts = aligned([self.names, *lines], is_right)
        return texts + [f"[{number}] {note}" for number, note in enumerate(notes, 1)]


def text_table(
    heads: Sequence[str],
    rows: Iterable[TextRow | Sequence[object]],
    *,
    spare: Iterable[str] = (),
) -> TextTable:
    """Make a table.

    Args:
        heads: The columns' names; ``>`` before one aligns its cells right.
        rows: Lines, or their cells, which may be of any type.
        spare: Names of columns that a narrow terminal leaves out, from the last one on.
    """
    columns = [
        TextColumn(head.removeprefix(">"), head.startswith(">")) for head in heads
    ]
    text_rows = []
    for row in rows:
        if not isinstance(row, TextRow):
            row = TextRow(tuple(str(cell) for cell in row))
        text_rows.append(row)
    return TextTable(tuple(columns), tuple(text_rows), frozenset(spare))


def width_of(
    lines: Iterable[Sequence[str]], measure: Callable[[str], int] = len
) -> int:
    """Return how wide lines of cells are when they are aligned."""
    widths = _widths(lines, measure)
    return sum(widths) + _GAP * (len(widths) - 1)


def aligned(
    lines: Sequence[Sequence[str]],
    is_right: Sequence[bool],
    measure: Callable[[str], int] = len,
) -> list[str]:
    """Write lines of cells so that their columns stand below each other.

    Args:
        lines: The headings and the rows.
        is_right: Whether each column is aligned right.
        measure: How wide a text is, in characters of the terminal.
    """
    widths = _widths(lines, measure)
    texts = []
    for line in lines:
        padded = []
        for cell, width, right in zip(line, widths, is_right, strict=True):
            padding = " " * (width - measure(cell))
            padded.append(padding + cell if right else cell + padding)
        texts.append((" " * _GAP).join(padded).rstrip())
    return texts


def _widths(lines: Iterable[Sequence[str]], measure: Callable[[str], int]) -> list[int]:
    """Return the width of each column."""
    columns = zip(*lines, strict=True)
    return [max(measure(cell) for cell in column) for column in columns]
