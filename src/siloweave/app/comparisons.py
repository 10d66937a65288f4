"""What `siloweave score` and `attack` print: a table, what stands out, and where the page is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.markup import escape

from siloweave.app.terminal import Terminal
from siloweave.attacks.results import Membership, Risks
from siloweave.evaluate.scores import Scores, cells_of_score
from siloweave.report import words

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
    parts = scores.to_dict()["parts"]
    console.say(escape(words.scored(parts)))

    notes: list[str] = []
    rows = []
    family = ""
    for part in scores.parts:
        if part.family != family:
            family = part.family
            rows.append((family, *[""] * 6))
        mark = ""
        if part.note:
            # A note that holds for several measures stands there once.
            if part.note not in notes:
                notes.append(part.note)
            mark = f" [{notes.index(part.note) + 1}]"
        value, interval, ceiling, floor, better = cells_of_score(part)
        name = f"  {part.name}{mark}"
        rows.append((name, value, ceiling, floor, better, part.unit, interval))
    heads = (
        *("measure", ">value", ">ceiling", ">floor", "better", "unit"),
        ">95% interval or spread",
    )
    spare = ("unit", "95% interval or spread", "better")
    console.table(heads, rows, spare=spare, is_wide=is_wide)

    for number, note in enumerate(notes, 1):
        console.say(escape(f"[{number}] {note}"), hanging=4)
    for gap in scores.not_measured:
        reason = _ARGUMENT.sub(" (in Python: siloweave.score)", gap.reason)
        console.say(escape(f"not measured: {gap.name}: {reason}"), hanging=2)
    settings = scores.settings
    counts = [f"{count:,} {name}" for name, count in settings.rows.items()]
    console.say(
        f"rows: {', '.join(counts)}; at most {settings.max_rows:,} in each fit; "
        f"seed {settings.seed}"
    )
    console.say(escape(f"ceiling: {settings.ceiling}"), hanging=2)
    console.say(escape(f"floor: {settings.floor}"), hanging=2)
    if settings.left_out:
        names = ", ".join(settings.left_out)
        console.say(escape(f"ids and texts, not compared: {names}"), hanging=2)
    _print_end(console, page, is_wide=is_wide)


def print_risks(risks: Risks, page: Path | None, *, is_wide: bool) -> None:
    """Print attacks, those first that surely found something, and where their page is.

    Args:
        risks: What attacks found.
        page: The page of them, if one was written.
        is_wide: Whether all columns are printed, however wide the table gets.
    """
    console = Terminal()
    _, summary = words.found_by_attacks(risks.to_dict())
    console.say(escape(summary))

    notes: list[str] = []
    rows = []
    for part in sorted(risks.parts, key=lambda part: (-part.low, -part.risk)):
        mark = ""
        if part.note:
            # Many attacks have the same note, which is printed once.
            if part.note not in notes:
                notes.append(part.note)
            mark = f" [{notes.index(part.note) + 1}]"
        attack = part.attack.replace("_", " ")
        rows.append(
            (
                f"{attack}: {part.variant}{mark}",
                f"{part.risk:.3f}",
                f"{part.low:.3f} to {part.high:.3f}",
                f"{part.train.value:.3f}",
                f"{part.control.value:.3f}",
                f"{part.baseline.value:.3f}",
                f"{part.attacks:,}",
            )
        )
    heads = (
        "attack",
        ">risk",
        "95% interval",
        ">train",
        ">control",
        ">guess",
        ">tries",
    )
    spare = ("train", "control", "guess", "tries")
    console.table(heads, rows, spare=spare, is_wide=is_wide)
    for number, note in enumerate(notes, 1):
        console.say(escape(f"[{number}] {note}"), hanging=4)

    _print_memberships(console, risks, is_wide=is_wide)
    _print_records(console, risks)
    for name, reason in risks.not_measured.items():
        console.say(escape(f"not measured: {name}: {reason}"), hanging=2)

    # An interval lies above the truth in half of the cases in which it misses it.
    false_alarms = len(risks.parts) * (1 - risks.confidence) / 2
    console.say(
        f"Each interval is a {risks.confidence:.0%} one on its own: if nothing leaked, about "
        f"{false_alarms:.1f} of these {len(risks.parts)} would still be wholly above 0."
    )
    for note in risks.notes:
        console.say(escape(note))
    _print_end(console, page, is_wide=is_wide)


def _print_memberships(console: Terminal, risks: Risks, *, is_wide: bool) -> None:
    """Print the areas of membership attacks' curves, and points on these."""
    if not risks.memberships:
        return
    rates = [point.asked for point in risks.memberships[0].at]
    heads = ["membership", "AUC", "95% interval"]
    heads += [f">TPR at FPR {rate:.1%}" for rate in rates]
    heads += [">by coins", ">above all"]
    rows = [_membership_cells(result) for result in risks.memberships]
    spare = (*(head.removeprefix(">") for head in heads[3:]),)
    console.table(heads, rows, spare=spare, is_wide=is_wide)


def _membership_cells(result: Membership) -> tuple[str, ...]:
    """Return a line of the table of membership attacks."""
    auc = result.roc.auc
    return (
        result.attack,
        f"{auc.value:.3f}",
        f"{auc.low:.3f} to {auc.high:.3f}",
        *(f"{point.tpr.value:.3f}" for point in result.at),
        f"{result.noise:.3f}",
        f"{result.above_all.count:,}",
    )


def _print_records(console: Terminal, risks: Risks) -> None:
    """Print whether a record is given away, how many are copied, and how close rows are."""
    unit = "rows" if risks.unit == "row" else "persons"
    worst = risks.worst
    if worst is not None:
        verdict = "given away" if worst.caught else "no more than chance"
        chance = (
            f"p = {worst.p_value:.2g} over {worst.measures} measures, by {worst.by}"
        )
        console.say(escape(f"worst record: {verdict} ({chance})"), hanging=2)
        for count in worst.copies:
            kind = "rows that occur once" if count.rows == "once" else "all rows"
            train = f"{count.train.successes:,.0f} of {count.train.trials:,.0f}"
            control = f"{count.control.successes:,.0f} of {count.control.trials:,.0f}"
            console.say(
                f"copies of {kind}: {train} training {unit}, {control} control {unit}",
                hanging=2,
            )
    closest = risks.closest
    if closest is not None:
        rate = closest.closer_to_train
        interval = f"{rate.low:.1%} to {rate.high:.1%}"
        console.say(
            f"distance to closest record: median {closest.median_to_train:.4f} to training rows, "
            f"{closest.median_to_control:.4f} to control rows; {rate.value:.1%} ({interval}) are "
            "closer to training rows, 50% if nothing is copied",
            hanging=2,
        )


def _print_end(console: Terminal, page: Path | None, *, is_wide: bool) -> None:
    """Print how to see more, and where the page is."""
    if not is_wide:
        console.say("(--wide prints all columns, --json everything)")
    if page is not None:
        console.say(f"The page is {escape(str(page))}")


def compared(result: Scores | Risks, page: Path | None) -> dict[str, Any]:
    """Return scores or risks, and where their page is, for a program."""
    page_name = None if page is None else str(page)
    return {**result.to_dict(), "page": page_name}
