"""How results are laid out in a terminal: sentences wrap at words, and a row is one line.

Lines are as wide as the terminal; without a terminal, as wide as the environment variable COLUMNS
says, or 80 characters. A longer word is not cut, so that a path or a command can be copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from shutil import get_terminal_size
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from siloweave.errors import printable
from siloweave.report.text_table import TextTable, aligned, width_of

_GAP = 2  # blanks between a name and its value
_INDENT = 4  # blanks before what belongs to the line above
# A command between backticks is one word, as it is typed in one line; so is a key's fingerprint,
# as it is read aloud.
_WORD = re.compile(r"(?:(?:[0-9a-f]{4} ){7}[0-9a-f]{4}|`[^`\n]{1,300}`|\S)+")


class Terminal(Console):
    """A console that wraps at words, and escapes what names of others could do to a terminal.

    Args:
        stderr: Whether it is standard error.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        width = get_terminal_size().columns
        # Without highlighting, which would colour numbers and paths in a sentence.
        super().__init__(stderr=stderr, highlight=False, width=width)

    def render_str(self, text: str, **how: Any) -> Text:
        """Render a text with what is not printable escaped: it cannot move the cursor."""
        return super().render_str(printable(text), **how)

    def say(self, markup: str, *, indent: int = 0, hanging: int = 0) -> None:
        """Print sentences in Rich's markup, wrapped at words.

        Args:
            markup: The text; a line break in it stays.
            indent: Blanks before every line.
            hanging: Blanks more before all but the first line.
        """
        for paragraph in self.render_str(markup).split("\n", allow_blank=True):
            margin = indent
            for line in _wrapped(paragraph, self.width - indent, hanging):
                line.pad_left(margin)
                self.print(line, soft_wrap=True)
                margin = indent + hanging

    def command(self, introduction: str, call: str, end: str = "") -> None:
        """Print a command to be copied, on a line of its own where it does not fit beside its text.

        Args:
            introduction: What it is for, in markup.
            call: The command, as it is typed.
            end: What stands behind it on its line, such as " in Python".
        """
        bold_call = f"[bold]{escape(call)}[/]{end}"
        whole = self.render_str(f"{introduction} {bold_call}")
        if cell_len(whole.plain) <= self.width:
            self.print(whole, soft_wrap=True)
            return
        self.say(introduction)
        self.print(self.render_str(f"  {bold_call}"), soft_wrap=True)

    def facts(self, title: str, facts: Iterable[tuple[str, str]]) -> None:
        """Print values below a title, each behind its name; a long one below it."""
        lines = [(printable(name), printable(value)) for name, value in facts]
        self.say(f"[bold]{escape(title)}[/]")
        widths = [cell_len(name) for name, _ in lines]
        # A name that takes most of a line does not push all values aside.
        most = self.width * 3 // 5
        column = max((width for width in widths if width <= most), default=0)
        for (name, value), width in zip(lines, widths, strict=True):
            start = 2 + max(column, width) + _GAP
            if start + cell_len(value) <= self.width:
                gap = " " * (start - 2 - width)
                self.print(Text(f"  {name}{gap}{value}"), soft_wrap=True)
            else:
                self.say(escape(f"{name}:"), indent=2)
                self.say(escape(value), indent=2 + _INDENT)

    def table(self, table: TextTable, *, is_wide: bool = False) -> None:
        """Print a table with a line for each row, and its notes below it.

        Where it is wider than the terminal, its spare columns are left out, from the last one on.
        Where that is not enough, each row becomes a paragraph that names its cells.

        Args:
            table: The table.
            is_wide: Whether it is printed with all columns, however wide it gets.
        """
        lines, notes = table.numbered()
        cells = [[printable(cell, lines=False) for cell in line] for line in lines]
        shown = list(range(len(table.columns)))
        if not is_wide:
            shown = self._fitting_columns(table, cells)
        if shown:
            is_right = [table.columns[place].is_number for place in shown]
            texts = aligned(
                _of_columns([table.names, *cells], shown), is_right, cell_len
            )
            for number, text in enumerate(texts):
                style = "bold" if number == 0 else ""
                self.print(Text(text, style=style), soft_wrap=True)
        else:
            self._paragraphs(table.names, cells)
        for number, note in enumerate(notes, 1):
            self.say(escape(f"[{number}] {note}"), hanging=4)

    def _fitting_columns(
        self, table: TextTable, cells: Sequence[Sequence[str]]
    ) -> list[int]:
        """Return the places of the columns that fit; empty if the table does not fit."""
        lines = [table.names, *cells]
        shown = list(range(len(table.columns)))
        spare = [place for place in shown if table.names[place] in table.spare]
        while width_of(_of_columns(lines, shown), cell_len) > self.width:
            if not spare:
                return []
            shown.remove(spare.pop())
        return shown

    def _paragraphs(self, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print each row as its first cell, and below it the others behind their heads."""
        for first, *others in rows:
            self.say(f"[bold]{escape(first)}[/]")
            line = ""
            for name, cell in zip(names[1:], others, strict=True):
                if not cell:
                    continue
                item = f"{name}: {cell}" if name else cell
                longer = f"{line} · {item}" if line else item
                # Short cells share a line.
                if line and cell_len(longer) > self.width - _INDENT:
                    self.say(escape(line), indent=_INDENT, hanging=2)
                    longer = item
                line = longer
            if line:
                self.say(escape(line), indent=_INDENT, hanging=2)


def _wrapped(text: Text, width: int, hanging: int) -> Iterator[Text]:
    """Yield a text's lines; those behind the first one are narrower by `hanging`."""
    plain = text.plain
    cuts: list[int] = []
    line_start = 0
    room = width
    for word in _WORD.finditer(plain):
        is_first = not plain[line_start : word.start()].strip()
        if not is_first and cell_len(plain[line_start : word.end()]) > room:
            line_start = word.start()
            cuts.append(line_start)
            room = width - hanging
    for line in text.divide(cuts):
        line.rstrip()
        yield line


def _of_columns(
    lines: Sequence[Sequence[str]], places: Sequence[int]
) -> list[list[str]]:
    """Return lines of cells with these columns alone."""
    return [[line[place] for place in places] for line in lines]


def quoted(path: Path) -> str:
    """Write a path as it stands in a command line."""
    return quote(str(path))
