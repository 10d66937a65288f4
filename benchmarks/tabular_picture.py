"""The picture of the tabular protocol: what a generator costs and leaks, beside its fidelity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from log_plot import STYLE

from siloweave.report import svg

WIDTH, TOP, BOTTOM = 924.0, 56.0, 300.0
NAMES_BELOW = 44.0
"""How far below the panels the first line of methods' names is."""
NAMES_A_LINE = 5
LINE_HEIGHT = 20.0
PANELS = ((56.0, 330.0), (450.0, 330.0))
"""Left edge and width of both panels."""
COLOURS = (
    *("#3f63d6", "#d9822b", "#12806a", "#a04bb8", "#b3323f", "#5f6673", "#8a7a1e", "#2b8fb3"),
    *("#e05c9b", "#4f8a10", "#7a4b2b", "#00a6a6", "#6fd08c", "#c9a600", "#9db4ff", "#ff7f6e"),
)
MOST_LEAK = 10.0


class Dot(NamedTuple):
    """One run: its method, and where it stands."""

    method: str
    table: str
    seconds: float | None
    leak: float | None
    score: float


def dots(rows: Sequence[dict[str, Any]]) -> list[Dot]:
    """Return a dot for each run that was fitted, by its rows as drawn where both are there."""
    found = []
    for row in rows:
        scores = row.get("as_drawn") or row["scores"]
        if "fit_cpu" in row:
            dot = (row["method"], row["table"], row["fit_cpu"], scores.get("leak"))
            found.append(Dot(*dot, scores["XGB-C2ST"]))
    return found


def draw(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the picture: XGB-C2ST by seconds of a fit, and by what membership attacks find."""
    points = dots(rows)
    methods = sorted({dot.method for dot in points})
    seconds = [dot.seconds for dot in points if dot.seconds]
    first = math.floor(math.log10(max(min(seconds), 0.1)))
    last = math.ceil(math.log10(max(seconds)))
    lines = math.ceil(len(methods) / NAMES_A_LINE)
    picture_height = BOTTOM + NAMES_BELOW + LINE_HEIGHT * lines
    body = f"<style>{STYLE}</style>" + svg.rect(0, 0, WIDTH, picture_height, "paper")
    titles = ("XGB-C2ST by processor seconds of a fit", "XGB-C2ST by members found, %")
    for (left, width), title in zip(PANELS, titles, strict=True):
        body += svg.text(left, TOP - 18, title, "title")
        for mark in (0, 25, 50, 75, 100):
            height = _height(mark)
            body += svg.line(left, height, left + width, height, "grid")
            body += svg.text(left - 6, height + 4, str(mark), "ax", "end")
    (left, width), (right, leak_width) = PANELS
    for power in range(first, last + 1):
        place = left + width * (power - first) / (last - first)
        body += svg.text(place, BOTTOM + 18, f"{10.0**power:g} s", "ax", "middle")
    for percent in (0, 2, 4, 6, 8, 10):
        place = right + leak_width * percent / MOST_LEAK
        body += svg.text(place, BOTTOM + 18, f"{percent}", "ax", "middle")
    for dot in points:
        colour = COLOURS[methods.index(dot.method) % len(COLOURS)]
        name = f"{dot.method}, {dot.table}: {dot.score:.0f}"
        if dot.seconds:
            share = (math.log10(dot.seconds) - first) / (last - first)
            body += _circle(left + width * max(share, 0.0), dot.score, colour, name)
        if dot.leak is not None:
            share = min(dot.leak / MOST_LEAK, 1.0)
            body += _circle(right + leak_width * share, dot.score, colour, name)
    for place, method in enumerate(methods):
        line, column = divmod(place, NAMES_A_LINE)
        x = PANELS[0][0] + 170 * column
        y = BOTTOM + NAMES_BELOW + LINE_HEIGHT * line
        colour = COLOURS[place % len(COLOURS)]
        body += f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{colour}"/>'
        body += svg.text(x + 10, y + 4, method)
    desc = "Each dot is one run on one table; higher is closer to real rows."
    drawn = svg.figure(WIDTH, picture_height, body, title="Seconds, leak and fidelity", desc=desc)
    file.write_text(drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n")


def _height(score: float) -> float:
    """Return how far down a score from 0 to 100 is drawn."""
    return BOTTOM - (BOTTOM - TOP) * score / 100


def _circle(x: float, score: float, colour: str, name: str) -> str:
    """Return a dot with its name, which a browser shows under the pointer."""
    place = f'cx="{svg.num(x)}" cy="{svg.num(_height(score))}"'
    return (
        f'<circle {place} r="4.5" fill="{colour}" fill-opacity=".75"><title>{name}</title></circle>'
    )
