"""What `siloweave score` and `attack` print: tables, what stands out, and where the page is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.markup import escape

from siloweave.app.terminal import Terminal
from siloweave.attacks.results import Risks
from siloweave.evaluate.scores import Scores
from siloweave.report import words
from siloweave.report.results import risk_lines, risk_tables, score_lines, score_table

# Advice that only Python can follow: arguments that these commands do not have.
_ARGUMENT = re.compile(r"(; give \w+=|: in Python, score\().*$")


def print_scores(scores: Scores, page: Path | None, *, is_wide: bool) -> None:
    """Print scores beside their ceilings and floors, and where their page is.

    Args:
        scores: What was measured.
        page: The page of them, if one was written.
        is_wide: Whether all columns are printed, however wide the table gets.
    """
    console = Terminal()
    facts = scores.to_dict()
    for gap in facts["not_measured"]:
        gap["reason"] = _ARGUMENT.sub(" (in Python: siloweave.score)", gap["reason"])
    console.say(escape(words.scored(facts)))
    console.table(score_table(facts["parts"]), is_wide=is_wide)
    _print_end(console, score_lines(facts), page, is_wide=is_wide)


def print_risks(risks: Risks, page: Path | None, *, is_wide: bool) -> None:
    """Print attacks, those first that surely found something, and where their page is.

    Args:
        risks: What attacks found.
        page: The page of them, if one was written.
        is_wide: Whether all columns are printed, however wide the table gets.
    """
    console = Terminal()
    facts = risks.to_dict()
    _, summary = words.found_by_attacks(facts)
    console.say(escape(summary))
    for table in risk_tables(facts):
        console.table(table, is_wide=is_wide)
    _print_end(console, risk_lines(facts), page, is_wide=is_wide)


def _print_end(
    console: Terminal, lines: Iterable[str], page: Path | None, *, is_wide: bool
) -> None:
    """Print the lines below tables, how to see more, and where the page is."""
    for line in lines:
        console.say(escape(line), hanging=2)
    if not is_wide:
        console.say("(--wide prints all columns, --json everything)")
    if page is not None:
        console.say(f"The page is {escape(str(page))}")


def compared(result: Scores | Risks, page: Path | None) -> dict[str, Any]:
    """Return scores or risks, and where their page is, for a program."""
    page_name = None if page is None else str(page)
    return {**result.to_dict(), "page": page_name}
