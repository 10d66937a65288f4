"""Pictures of scores and attacks: where a number stands, curves of attackers, distances.

Each function takes plain numbers and gives one inline SVG with a title and a description.

Scores and attacks in, one self-contained HTML page out.

Takes plain values, as `Scores.to_dict` and `Risks.to_dict` give them. All of these numbers come
from real rows and nobody paid for them, down to where plots are cut into cells, so the page is the
owner's, and there is no other copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import groupby, pairwise
from typing import Any

from siloweave.errors import InputError
from siloweave.report import plots, words
from siloweave.report.page import template_of
from siloweave.report.record import Association, Marginal

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

    body = plots.rect(margin, 9, reach, 4, "track", rx=2)
    body += plots.line(margin, 4, margin, 18, "end") + plots.line(
        margin + reach, 4, margin + reach, 18, "end"
    )
    if interval is not None:
        first, last = sorted(x(end) for end in interval)
        body += plots.rect(first, 8, max(last - first, 1.0), 6, "spread", rx=3)
    body += f'<circle cx="{plots.num(x(value))}" cy="11" r="4.5" class="at"/>'
    said = f"{value:.4g}; {ends[0]} {low_end:.4g}, {ends[1]} {high_end:.4g}"
    return plots.figure(STRIP, 22, body, title=name, desc=said)


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
        body += plots.line(x, y - 4, x + 16, y - 4, f"curve p{number % 8}")
        body += plots.text(x + 22, y, words.shorten(name, 24), "lab")
    named = ", ".join(curves)
    return plots.figure(
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
    body = plots.text(left, top - 8, title, "lab strong")
    body += plots.rect(left, top, side, side, "backdrop")
    marks = (0.0, 0.25, 0.5, 0.75, 1.0) if least is None else (0.001, 0.01, 0.1, 1.0)
    for mark in marks:
        at, label = place(mark), f"{100 * mark:g}%"
        body += plots.line(left + side * at, top, left + side * at, top + side, "grid")
        body += plots.line(left, top + side * (1 - at), left + side, top + side * (1 - at), "grid")
        body += plots.text(left + side * at, top + side + 15, label, "ax", "middle")
        body += plots.text(left - 5, top + side * (1 - at) + 4, label, "ax", "end")
    chance = [(left, top + side), (left + side, top)]
    body += plots.path(chance, "curve chance")
    for number, (fpr, tpr) in enumerate(curves.values()):
        points = [
            (left + side * place(a), top + side * (1 - place(b)))
            for a, b in _steps(fpr, tpr, least)
        ]
        body += plots.path(points, f"curve p{number % 8}")
    return body + plots.text(
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
    body = plots.line(left, bottom, right, bottom, "base")
    outline = [(left, bottom)]
    for i, (ours, theirs) in enumerate(zip(to_train, to_control, strict=True)):
        x, tall = left + width * i, (bottom - top) * ours / high
        tip = f"{edges[i]:.3g} to {edges[i + 1]:.3g}: {ours} to training, {theirs} to control rows"
        body += plots.rect(x + 0.5, bottom - tall, max(width - 1, 0.6), tall, "syn", tip=tip)
        y = bottom - (bottom - top) * theirs / high
        outline += [(x, y), (x + width, y)]
    body += plots.path([*outline, (right, bottom)], "real-line")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = edges[0] + (edges[-1] - edges[0]) * share
        x = left + (right - left) * share
        body += plots.text(x, bottom + 16, f"{at:.3g}", "ax", "middle")
    body += plots.text((left + right) / 2, bottom + 34, "Gower distance", "ax", "middle")
    return plots.figure(
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
        body += plots.text(left - 10, y + 12, words.shorten(name, 28), "lab", "end")
        length = max(span * max(value, 0.0) / high, 1.0)
        body += plots.rect(left, y + 3, length, 11, "error", tip=f"{name}: {value:.4f}", rx=3)
        body += plots.text(left + length + 8, y + 12, f"{value:.3f}", "ax")
    listed = ", ".join(f"{name} {value:.3f}" for name, value in values)
    return plots.figure(924, 24.0 * len(values) + 4, body, title=title, desc=listed)


COLUMNS = 80
"""Columns drawn one by one."""
_NO_ROOM = 0.02
"""A ceiling no further above its floor than this share of the larger leaves no room between."""


def render_comparison(
    scores: Mapping[str, Any] | None = None,
    risks: Mapping[str, Any] | None = None,
    *,
    title: str,
    version: str,
    created: datetime | None = None,
) -> str:
    """Make the page.

    Args:
        scores: What `Scores.to_dict` gives, or None.
        risks: What `Risks.to_dict` gives, or None.
        title: The page's heading.
        version: Of siloweave.
        created: When; now if None.

    Returns:
        An HTML page that needs no network.

    Raises:
        InputError: There is nothing to show.
    """
    if scores is None and risks is None:
        raise InputError("there are no scores and no risks to show; give at least one")
    folder = resources.files("siloweave.report")
    when = datetime.now(UTC) if created is None else created
    page: str = template_of(folder.joinpath("comparison.html").read_text("utf-8")).render(
        title=title,
        version=version,
        created=when.isoformat(timespec="seconds"),
        css=folder.joinpath("style.css").read_text("utf-8"),
        scores=_scores(scores) if scores else None,
        risks=_risks(risks) if risks else None,
    )
    return page


def _scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    telling = [(name, value) for name, value in scores["telling"][:12]]
    title = "Columns that give synthetic rows away"
    return {
        "families": [
            {"name": family, "parts": [_part(part) for part in parts]}
            for family, parts in groupby(scores["parts"], key=lambda part: part["family"])
        ],
        "charts": [chart(look) for look in scores["columns"][:COLUMNS]],
        "more_columns": max(len(scores["columns"]) - COLUMNS, 0),
        "pairs": pairs_chart(scores["associations"]),
        "settings": scores["settings"],
        "not_measured": scores["not_measured"],
        "telling": bars(telling, title=title) if telling else "",
    }


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A score with its strip, where there is room between floor and ceiling."""
    value, ceiling, floor = part["value"], part["ceiling"], part["floor"]
    drawn, way = "", None
    if ceiling is not None and floor is not None:
        room = (ceiling - floor) * (1 if part["better"] == "higher" else -1)
        if room > _NO_ROOM * max(abs(ceiling), abs(floor)):
            way = (value - floor) / (ceiling - floor)
            drawn = strip(
                value, floor, ceiling, part["interval"], name=part["name"],
                ends=("floor", "ceiling"),
            )  # fmt: skip
    return {**part, "strip": drawn, "way": way}


def chart(look: Mapping[str, Any]) -> dict[str, Any]:
    """How one column spreads in both tables, drawn."""
    synthetic, real = (_marginal(look, side) for side in ("synthetic", "real"))
    return {
        "column": look["name"],
        "kind": look["kind"],
        "distance": look["distance"],
        "svg": plots.distribution(synthetic, real),
    }


def _marginal(look: Mapping[str, Any], side: str) -> Marginal:
    edges, gone = look["edges"], look["missing"][side == "synthetic"]
    if look["kind"] == "numeric":
        labels = [f"{_number(a)} to {_number(b)}" for a, b in pairwise(edges)]
    else:
        labels = list(look["cells"])
    shares, missing = list(look[side]), any(share > 0 for share in look["missing"])
    if missing:
        labels, shares = [*labels, "missing"], [*shares, gone]
    return Marginal(
        column=look["name"],
        kind=look["kind"],
        labels=tuple(labels),
        proportions=tuple(shares),
        ordered=look["kind"] == "numeric",
        missing=missing,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def pairs_chart(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """How columns go together in both tables, drawn; None for a single column."""
    if len(found["names"]) < 2:
        return None
    ours, theirs = (
        Association(
            names=tuple(found["names"]),
            values=tuple(tuple(abs(v) for v in row) for row in found[side]),
            measure="strength of association",
        )
        for side in ("synthetic", "real")
    )
    return {
        "svg": plots.heat_maps(ours, theirs),
        "list": plots.strongest_pairs(ours, theirs),
    }


def _risks(risks: Mapping[str, Any]) -> dict[str, Any]:
    parts = [{**part, "strip": _risk_strip(part)} for part in risks["parts"]]
    curves = {m["attack"]: (m["roc"]["fpr"], m["roc"]["tpr"]) for m in risks["memberships"]}
    closest = risks["closest"]
    return {
        **risks,
        "parts": parts,
        "highest": max(parts, key=lambda part: part["risk"]) if parts else None,
        "curves": receiver_curves(curves) if curves else "",
        "distances": _distances(closest) if closest else "",
    }


def _risk_strip(part: Mapping[str, Any]) -> str:
    return strip(
        part["risk"], 0.0, 1.0, (part["low"], part["high"]),
        name=f"{part['attack']} ({part['variant']})", ends=("none", "all"),
    )  # fmt: skip


def _distances(closest: Mapping[str, Any]) -> str:
    train, control = closest["to_train"], closest["to_control"]
    counts: Sequence[int] = control["counts"]
    return distances(train["edges"], train["counts"], counts)
