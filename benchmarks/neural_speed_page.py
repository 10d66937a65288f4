"""The part of docs/reference/results/ on speed and memory of neural generators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import neural_memory
import neural_start
from neural_page import (
    NOT_RUN,
    PROPENSITY,
    RESEMBLANCE,
    SILOFUSE_RESEMBLANCE,
    UTILITY,
    Row,
    judged,
    lines,
    table,
)


def middle(rows: list[Row], side: str, of: Callable[[Row], float | None]) -> list[float]:
    """A side's figures, sorted."""
    found = (of(row) for row in rows if row["side"] == side)
    return sorted(value for value in found if value is not None)


def speed(rows: list[Row]) -> str:
    """Ratios to the peers, one line a call."""
    asked = [
        ("ctgan-steps", "CTGAN training, steps a second", lambda r: r["steps_a_second"], False),
        ("ctgan-steps", "CTGAN training, steps a processor second", lambda r: cpu_pace(r), False),
        ("ctgan-whole", "CTGAN fit and sample, seconds", lambda r: r["whole_seconds"], True),
        ("ctgan-whole", "CTGAN fit and sample, processor s", lambda r: r["whole_cpu"], True),
        ("tabddpm", "TabDDPM training, steps a second", lambda r: r["steps_a_second"], False),
        ("tabddpm", "TabDDPM training, steps a processor second", lambda r: cpu_pace(r), False),
        ("tabddpm", "TabDDPM sampling, seconds", sampling, True),
    ]
    body = []
    for part, shown, of, less in asked:
        calls: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if row["part"] == part:
                calls[row["call"]].append(row)
        body += [line for call in calls.values() if (line := ratio(call, shown, of, less))]
        if not calls:
            body.append([shown, *[NOT_RUN] * 7])
    head = ["what", "ours", "peer", "times", "turns", "batch", "threads", "load", "commit"]
    found = [[*line, *[""] * (len(head) - len(line))] for line in body]
    return "### Speed beside the peers\n\n" + SPEED_NOTE + "\n" + table(head, found) + samples(rows)


SPEED_NOTE = """Medians of turns within one call (least to most), each turn a process of its own, at
the same batch, layers and threads. Peers are CTGAN 0.12 and the code of TabDDPM's authors.

Steps a second are the difference between two fits of one process, so compilation and preprocessing
do not count; fit and sample counts both. **times** above 1: ours is so many times faster. Where the
load is above the number of cores, processor seconds are the fairer ones.
"""


def cpu_pace(row: Row) -> float:
    """Steps a processor second between the last two fits."""
    short, long = row["fits"][-2:]
    return (long["steps"] - short["steps"]) / (long["cpu"] - short["cpu"])


def sampling(row: Row) -> float | None:
    """Seconds to draw rows: the peer's only way, and our default one."""
    if row["side"] == "peer":
        return row.get("sample_seconds")
    made = row.get("samplers", {}).get("default")
    return made["again"]["seconds"] if made else None


def ratio(call: list[Row], shown: str, of: Any, less: bool) -> list[str] | None:
    """One call's line, or None where a side is missing."""
    ours, peer = middle(call, "ours", of), middle(call, "peer", of)
    if not ours or not peer:
        return None
    times = median(peer) / median(ours) if less else median(ours) / median(peer)
    sides = [turns(ours), turns(peer)]
    loads = [load for row in call for load in row["load"]]
    first = call[0]
    of_what = shown + (f", {first['epochs']} epochs" if "epochs" in first else "")
    of_what += f", {first['draws']:,} rows" if "sampling" in shown else ""
    return [
        of_what, *sides, f"{times:.2f}", str(min(len(ours), len(peer))), str(first["batch"]),
        str(first["threads"]), f"{min(loads):.1f} to {max(loads):.1f}", first["commit"],
    ]  # fmt: skip


def turns(figures: list[float]) -> str:
    """The median of a side's turns, and the least and the most where there are several."""
    text = f"{median(figures):.2f}"
    return text + (f" ({figures[0]:.2f}–{figures[-1]:.2f})" if len(figures) > 1 else "")


def samples(rows: list[Row]) -> str:
    """What the rows that both sides drew are worth."""
    body = []
    for row in rows:
        scores = row.get("scores") or {}
        if row["part"] == "ctgan-whole" and scores:
            side = "ours, raked" if row["side"] == "ours" else row["side"]
            scores = {f"CTGAN, {side}, {row['epochs']} epochs": scores}
        steps = row["fits"][-1]["steps"]
        for sampler, told_scores in scores.items():
            found = judged(told_scores)
            told = sampler if row["part"] == "ctgan-whole" else f"TabDDPM, {row['side']}, {sampler}"
            line = [f"{told}, {steps:,} steps"]
            for score in (SILOFUSE_RESEMBLANCE, RESEMBLANCE, PROPENSITY, UTILITY):
                part = found.get(score)
                line.append(
                    f"{part['value']:.1f}{part['mark']} ({part['ceiling']:.1f})" if part else "–"
                )
            body.append(line)
    if not body:
        return ""
    head = ["sample", "resemblance (SiloFuse)", "resemblance (DP-TLDM)", "propensity", "utility"]
    said = (
        "\nScores of the rows, with the ceiling in brackets. Our CTGAN's rows are raked to single\n"
        "columns and the peer's are not, so these scores do not compare the networks. TabDDPM's\n"
        "rows are raked on neither side.\n\n"
        "A utility with ‡ is from an older run, whose trees could not learn many classes from\n"
        "rows with a few odd ones (decision 0020). One with † is from a still older run, whose\n"
        "trees also learnt numbers by the absolute error (decision 0017).\n\n"
    )
    return said + table(head, body)


def dp_steps(rows: list[Row]) -> str:
    """A private step beside one without privacy, the last call."""
    text = (
        "\n### A private step\n\nAn autoencoder of 512 x 512 units at batch 512 over 100 numbers, "
        "variants in turn:\nsteps a second (median of rounds), and how many times slower than "
        "without privacy.\nWith 32-bit float noise in a compiled loop, as it was before noise of "
        "whole numbers (decision 0013); what an exact step takes\nis on the "
        "[speed page](speed.md#private-steps).\n\n"
    )
    head = ["step", "steps a second", "times slower"]
    if not rows:
        return text + table(head, [["all", NOT_RUN, NOT_RUN]])
    last = rows[-1]
    body = [[n, f"{v['median']:.1f}", f"{v['slower']:.2f}"] for n, v in last["found"].items()]
    busy = f"load average {min(last['load']):.1f} to {max(last['load']):.1f}"
    kept = f"commit {last['commit']}; threads: {last['threads']}, {busy}"
    return f"{text}{table(head, body)}\nSource: {kept}.\n"


def page(results: Path) -> str:
    """All of it."""
    text = speed(lines(results / "neural_speed.jsonl"))
    text += dp_steps(lines(results / "neural_dp_step.jsonl"))
    text += neural_start.page(lines(results / "neural_start.jsonl"))
    return text + neural_memory.page(lines(results / "neural_memory.jsonl"))
