"""Pictures of growth: panels with logarithmic axes, drawn with the report's own SVG pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from siloweave.report import svg

STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1b1f27}.ax{fill:#5f6673;font-size:11px}"
    ".title{font-size:13px;font-weight:600}.grid{stroke:#dfdfd9}.paper{fill:#fff}"
    ".curve{fill:none;stroke-width:2;stroke-linejoin:round}"
    ".s0{stroke:#3f63d6}.s1{stroke:#d9822b}.f0{fill:#3f63d6}.f1{fill:#d9822b}.s2{stroke:#12806a}.f2{fill:#12806a}"
    ".guide{stroke:#8a8f9a;stroke-dasharray:5 4;fill:none;stroke-width:1.3}"
    "@media(prefers-color-scheme:dark){text{fill:#e9ebf0}.ax{fill:#959dac}.paper{fill:#12151b}"
    ".grid{stroke:#313743}.s0{stroke:#7d97f7}.s1{stroke:#f0a350}.f0{fill:#7d97f7}.f1{fill:#f0a350}"
    ".s2{stroke:#4cc3a6}.f2{fill:#4cc3a6}}"
)
PANEL, HEIGHT, LEFT, TOP, BOTTOM = 308.0, 268.0, 58.0, 58.0, 214.0


def short(value: float) -> str:
    """1000 as 1k, 0.01 as it is."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


class Scale:
    """A logarithmic axis that holds all values, with marks at powers of ten (or of two)."""

    def __init__(self, values: Sequence[float], start: float, end: float, base: int) -> None:
        low, high = min(values), max(values)
        first = math.floor(math.log(low, base) + 1e-9)
        last = max(math.ceil(math.log(high, base) - 1e-9), first + 1)
        self.marks = [float(base) ** e for e in range(first, last + 1)]
        self.first, self.last, self.base = first, last, base
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        share = (math.log(value, self.base) - self.first) / (self.last - self.first)
        return self.start + (self.end - self.start) * share


def panel(
    offset: float,
    title: str,
    series: dict[str, list[tuple[float, float]]],
    guides: list[list[tuple[float, float]]],
    base: int,
) -> str:
    seen = [*chain(*series.values()), *chain(*guides)]
    x = Scale([a for a, _ in seen], offset + LEFT, offset + PANEL - 14, base)
    y = Scale([b for _, b in seen], BOTTOM, TOP, 10)
    body = svg.text(offset + LEFT, TOP - 14, title, "title")
    for mark in y.marks:
        body += svg.line(x.start, y(mark), x.end, y(mark), "grid")
        body += svg.text(x.start - 6, y(mark) + 4, short(mark), "ax", "end")
    for mark in x.marks:
        body += svg.text(x(mark), BOTTOM + 16, short(mark), "ax", "middle")
    for guide in guides:
        body += svg.path([(x(a), y(b)) for a, b in guide], "guide")
    for i, line in enumerate(series.values()):
        body += svg.path([(x(a), y(b)) for a, b in line], f"curve s{i}")
        for a, b in line:
            body += f'<circle cx="{svg.num(x(a))}" cy="{svg.num(y(b))}" r="3" class="f{i}"/>'
    return body


def picture(file: Path, label: str, panels: list[tuple], base: int, guide: str = "") -> None:
    width = PANEL * len(panels)
    body = f"<style>{STYLE}</style>" + svg.rect(0, 0, width, HEIGHT, "paper")
    x = LEFT
    for i, name in enumerate(panels[0][1]):
        text = name
        body += f'<circle cx="{svg.num(x)}" cy="16" r="4" class="f{i}"/>'
        body += svg.text(x + 10, 20, text)
        x += 26 + 7 * len(text)
    if guide:
        body += svg.path([(x, 16), (x + 26, 16)], "guide") + svg.text(x + 32, 20, guide)
    for i, (title, series, guides) in enumerate(panels):
        body += panel(PANEL * i, title, series, guides, base)
    body += svg.text(width / 2, HEIGHT - 12, label, "ax", "middle")
    drawn = svg.figure(width, HEIGHT, body, title=f"Cost against {label}", desc=guide or label)
    file.write_text(drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n")
