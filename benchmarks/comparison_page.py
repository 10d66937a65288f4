"""Write docs/reference/scores-and-attacks.md from the figures in results/.

python benchmarks/comparison_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reference" / "scores-and-attacks.md"
HEAD = """# Scores and attacks beside the reference tools

<!-- benchmarks/comparison_page.py writes this page from benchmarks/results: run that. -->

The peers run in an environment of their own: SDMetrics 0.32.0, anonymeter 1.1.0, TAPAS at commit
a7069d7.

Tables: 20,000 rows and 13 columns of Adult to train on, as many for control, and two synthetic
tables: AIM at ε = 1, and one that leaks (half training rows, half fresh rows). 500 attacks each.
anonymeter draws without a seed, so its figures change from run to run; ours repeat with their seed.
"""
UNIVARIATE = "singling_out univariate"
COLUMNS = (
    *("attack", "ours, each seed", "theirs, each run", "intervals meet"),
    *("seconds, ours", "theirs", "times"),
)


def runs_of(found: list[dict[str, Any]], table: str, side: str) -> list[dict[str, Any]]:
    """Runs of one side on one table."""
    return [run for run in found if run["table"] == table and run["side"] == side]


def quality(found: list[dict[str, Any]], tables: list[str]) -> list[str]:
    """SDMetrics' percentages."""
    lines = [
        "## SDMetrics' percentages",
        "",
        "| table | | ours | theirs | apart |",
        "|---|---|---|---|---|",
    ]
    for table in tables:
        ours, theirs = (
            runs_of(found, table, side)[0]["scores"] for side in ("siloweave", "reference")
        )
        for name, value in theirs.items():
            gap = 100 * abs(ours[name] - value)
            lines.append(
                f"| {table} | {name} | {100 * ours[name]:.2f} | {100 * value:.2f} | {gap:.2f} |"
            )
    return [*lines, ""]


def interval(run: dict[str, Any]) -> str:
    """Risk and interval."""
    return f"{run['risk']:.3f} ({run['low']:.3f}–{run['high']:.3f})"


def risks(found: list[dict[str, Any]], table: str) -> list[str]:
    """Risks of every attack, of both sides."""
    sides = {side: runs_of(found, table, side) for side in ("siloweave", "reference")}
    lines = [
        f"## Risks: {table}",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    apart = 0
    for name in sides["siloweave"][0]["risks"]:
        mine, other = ([run["risks"][name] for run in sides[s]] for s in sides)
        meet = all(a["low"] <= b["high"] and b["low"] <= a["high"] for a in mine for b in other)
        apart += not meet
        told = "with the next |  | "
        if name != UNIVARIATE:
            ours, theirs = (mean(run["seconds"] for run in rows) for rows in (mine, other))
            if name == "singling_out multivariate":  # one call of ours makes both
                theirs += mean(run["risks"][UNIVARIATE]["seconds"] for run in sides["reference"])
            told = f"{ours:.2f} | {theirs:.2f} | {theirs / ours:.0f}"
        lines.append(
            f"| {name.replace('_', ' ')} | {'; '.join(map(interval, mine))} | "
            f"{'; '.join(map(interval, other))} | {'yes' if meet else '**no**'} | {told} |"
        )
    return [*lines, "", f"Attacks whose intervals do not all meet: {apart}.", ""]


def speed() -> list[str]:
    """Our own times."""
    path = HERE / "results" / "score_speed.json"
    if not path.is_file():
        return []
    lines = [
        "## Time and memory",
        "",
        "| | seconds | processor seconds | peak MB |",
        "|---|---|---|---|",
    ]
    for name, run in json.loads(path.read_text()).items():
        lines.append(
            f"| {name} | {run['seconds']:.0f} | {run['cpu_seconds']:.0f} | {run['peak_mb']:.0f} |"
        )
    return [*lines, ""]


def definitions() -> list[str]:
    """TAPAS."""
    found = json.loads((HERE / "results" / "against_tapas.json").read_text())
    gaps = ", ".join(f"{name} {gap:.1g}" for name, gap in found["largest difference"].items())
    text = (
        f"Over {found['sets']} tables and one record, the largest difference between our summaries "
        f"and scores and TAPAS's own: {gaps}. Ours add a summary for missing values, scale numbers "
        "to their bounds, and refuse an odd number of sets."
    )
    return ["## TAPAS's five attacks", "", text, ""]


def main() -> None:
    """Gather and write."""
    found = json.loads((HERE / "results" / "against_references.json").read_text())["runs"]
    tables = list(dict.fromkeys(run["table"] for run in found))
    lines = quality(found, tables)
    for table in tables:
        lines += risks(found, table)
    lines += definitions() + speed()
    tail = HERE / "results" / "comparison_notes.md"
    text = HEAD + "\n" + "\n".join(lines) + (tail.read_text() if tail.is_file() else "")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
