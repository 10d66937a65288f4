"""Pictures of scores and attacks: where a number stands, curves of attackers, distances.

Each function takes plain numbers and gives one inline SVG with a title and a description.
"""

import math
from collections.abc import Mapping, Sequence

from siloweave.report import svg, words

STRIP = 220.0
"""Width of the strip beside a number."""


def strip(
    value: float,
    low_end: float,
    high_end: float,
    interval: Sequence[float] | None,
    *,
    name: str,
    ends: tuple[str, str],
) -> str:
    """One number between two others, with its interval.

    Args:
        value: The number.
        low_end: What stands at the left end.
        high_end: What stands at the right end; differs from `low_end`.
        interval: Where the number may lie, or None.
        name: What the number is.
        ends: What the ends are called.

    Returns:
        SVG, 220 by 22 pixels; what lies outside both ends is drawn in the margin.
    """
    margin = 18.0
    reach = STRIP - 2 * margin

    def x(number: float) -> float:
        share = (number - low_end) / (high_end - low_end)
        return margin + reach * min(max(share, -0.07), 1.07)

    body = svg.rect(margin, 9, reach, 4, "track", rx=2)
    body += svg.line(margin, 4, margin, 18, "end") + svg.line(
        margin + reach, 4, margin + reach, 18, "end"
    )
    if interval is not None:
        first, last = sorted(x(end) for end in interval)
        body += svg.rect(first, 8, max(last - first, 1.0), 6, "spread", rx=3)
    body += f'<circle cx="{svg.num(x(value))}" cy="11" r="4.5" class="at"/>'
    said = f"{value:.4g}; {ends[0]} {low_end:.4g}, {ends[1]} {high_end:.4g}"
    return svg.figure(STRIP, 22, body, title=name, desc=said)


def receiver_curves(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """ROC curves of membership attacks, plain and with few false alarms spread out.

    Args:
        curves: Name to false positive rates and true positive rates, both rising from 0 to 1.

    Returns:
        SVG, 924 pixels wide.
    """
    side, top, left = 300.0, 26.0, 46.0
    body = _roc_panel(curves, left, top, side, least=None)
    body += _roc_panel(curves, left + side + 70, top, side, least=1e-3)
    x = left + 2 * side + 92
    for number, name in enumerate(curves):
        y = top + 14 + 18 * number
        body += svg.line(x, y - 4, x + 16, y - 4, f"curve p{number % 8}")
        body += svg.text(x + 22, y, words.shorten(name, 24), "lab")
    named = ", ".join(curves)
    return svg.figure(
        924, top + side + 40, body, title="ROC of each membership attack",
        desc=f"True positives against false positives of {named}; the dashed line is guessing.",
    )  # fmt: skip


def _roc_panel(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    left: float,
    top: float,
    side: float,
    least: float | None,
) -> str:
    def place(rate: float) -> float:
        if least is None:
            return rate
        return 1 - math.log10(max(rate, least)) / math.log10(least)

    title = "all false alarms" if least is None else "few false alarms (logarithmic)"
    body = svg.text(left, top - 8, title, "lab strong")
    body += svg.rect(left, top, side, side, "backdrop")
    marks = (0.0, 0.25, 0.5, 0.75, 1.0) if least is None else (0.001, 0.01, 0.1, 1.0)
    for mark in marks:
        at, label = place(mark), f"{100 * mark:g}%"
        body += svg.line(left + side * at, top, left + side * at, top + side, "grid")
        body += svg.line(left, top + side * (1 - at), left + side, top + side * (1 - at), "grid")
        body += svg.text(left + side * at, top + side + 15, label, "ax", "middle")
        body += svg.text(left - 5, top + side * (1 - at) + 4, label, "ax", "end")
    chance = [(left, top + side), (left + side, top)]
    body += svg.path(chance, "curve chance")
    for number, (fpr, tpr) in enumerate(curves.values()):
        points = [
            (left + side * place(a), top + side * (1 - place(b)))
            for a, b in _steps(fpr, tpr, least)
        ]
        body += svg.path(points, f"curve p{number % 8}")
    return body + svg.text(
        left + side / 2, top + side + 32, "others called members", "ax", "middle"
    )


def _steps(
    fpr: Sequence[float], tpr: Sequence[float], least: float | None
) -> list[tuple[float, float]]:
    points = list(zip(fpr, tpr, strict=True))
    if least is None:
        return points
    start = max((b for a, b in points if a <= least), default=0.0)
    found, last = [(least, start)], start
    for a, b in points:
        if a > least:
            found += [(a, last), (a, b)]
            last = b
    return found


def distances(edges: Sequence[float], to_train: Sequence[int], to_control: Sequence[int]) -> str:
    """Distances of synthetic rows to the closest training row, and to the closest control row.

    Args:
        edges: One more than counts.
        to_train: Synthetic rows per cell.
        to_control: Synthetic rows per cell.

    Returns:
        SVG, 924 pixels wide.
    """
    left, right, top, bottom = 46.0, 900.0, 12.0, 196.0
    high = max([*to_train, *to_control, 1])
    width = (right - left) / max(len(to_train), 1)
    body = svg.line(left, bottom, right, bottom, "base")
    outline = [(left, bottom)]
    for i, (ours, theirs) in enumerate(zip(to_train, to_control, strict=True)):
        x, tall = left + width * i, (bottom - top) * ours / high
        tip = f"{edges[i]:.3g} to {edges[i + 1]:.3g}: {ours} to training, {theirs} to control rows"
        body += svg.rect(x + 0.5, bottom - tall, max(width - 1, 0.6), tall, "syn", tip=tip)
        y = bottom - (bottom - top) * theirs / high
        outline += [(x, y), (x + width, y)]
    body += svg.path([*outline, (right, bottom)], "real-line")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = edges[0] + (edges[-1] - edges[0]) * share
        x = left + (right - left) * share
        body += svg.text(x, bottom + 16, f"{at:.3g}", "ax", "middle")
    body += svg.text((left + right) / 2, bottom + 34, "Gower distance", "ax", "middle")
    return svg.figure(
        924, bottom + 42, body, title="Distance to the closest record",
        desc="How far synthetic rows are from the closest training row and control row.",
    )  # fmt: skip


def bars(values: Sequence[tuple[str, float]], *, title: str) -> str:
    """Named values as bars from 0.

    Args:
        values: Names and values; what is below 0 is drawn as 0.
        title: Name of the picture.

    Returns:
        SVG, 924 pixels wide.
    """
    left, span, body = 190.0, 600.0, ""
    high = max([value for _, value in values] + [1e-9])
    for number, (name, value) in enumerate(values):
        y = 24.0 * number + 2
        body += svg.text(left - 10, y + 12, words.shorten(name, 28), "lab", "end")
        length = max(span * max(value, 0.0) / high, 1.0)
        body += svg.rect(left, y + 3, length, 11, "error", tip=f"{name}: {value:.4f}", rx=3)
        body += svg.text(left + length + 8, y + 12, f"{value:.3f}", "ax")
    listed = ", ".join(f"{name} {value:.3f}" for name, value in values)
    return svg.figure(924, 24.0 * len(values) + 4, body, title=title, desc=listed)
