"""The report's pictures of the table itself: one chart per column, and association heat maps."""

from collections.abc import Sequence
from itertools import combinations

from siloweave.report import svg, words
from siloweave.report.record import Association, Marginal

SHOWN = 8
"""Categories drawn one by one; the rest are one bar."""
CELLS = 24
"""Heat maps up to this many columns have a tooltip per cell."""
WIDEST = 100
"""Heat maps show the first columns up to this many."""


def distribution(synthetic: Marginal, real: Marginal | None) -> str:
    """One column, synthetic, with the real one behind it in an owner's copy.

    Args:
        synthetic: Marginal of the synthetic table.
        real: Marginal of the real rows with the same labels, or None.

    Returns:
        SVG, 300 pixels wide.
    """
    draw = _histogram if synthetic.ordered else _categories
    compared = "synthetic against real" if real else "synthetic"
    top = max(range(len(synthetic.labels)), key=synthetic.proportions.__getitem__, default=0)
    mode = synthetic.labels[top] if synthetic.labels else "none"
    body, height = draw(synthetic, real)
    return svg.figure(
        300,
        height,
        body,
        title=f"{synthetic.column}, {compared}",
        desc=f"{len(synthetic.labels)} values, the most frequent is {mode}.",
    )


def total_variation(first: Sequence[float], second: Sequence[float]) -> float:
    """Total variation distance of two distributions over the same labels.

    >>> total_variation([0.5, 0.5], [0.75, 0.25])
    0.25
    """
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2


def _histogram(synthetic: Marginal, real: Marginal | None) -> tuple[str, float]:
    bins = len(synthetic.labels)
    top, bottom, gap = 10.0, 116.0, 14.0 if synthetic.missing and bins > 1 else 0.0
    width = (300.0 - gap) / max(bins, 1)
    high = max([*synthetic.proportions, *(real.proportions if real else ())], default=1) or 1
    body = svg.line(0, bottom, 300, bottom, "base")
    outline: list[tuple[float, float]] = [(0.0, bottom)]
    for number, label in enumerate(synthetic.labels):
        lone = bool(gap) and number == bins - 1
        x = width * number + (gap if lone else 0)
        share = synthetic.proportions[number]
        tip = f"{label}: {words.percent(share)} synthetic"
        tip += f", {words.percent(real.proportions[number])} real" if real else ""
        tall = (bottom - top) * share / high
        kind = "syn missing" if lone else "syn"
        body += svg.rect(x + 0.6, bottom - tall, max(width - 1.2, 0.8), tall, kind, tip=tip)
        if real:
            y = bottom - (bottom - top) * real.proportions[number] / high
            outline += [(outline[-1][0], bottom), (x, bottom)] if lone else []
            outline += [(x, y), (x + width, y)]
    if real:
        body += svg.path([*outline, (outline[-1][0], bottom)], "real-line")
    last = bins - 2 if gap else bins - 1
    body += svg.text(0, bottom + 15, words.shorten(synthetic.labels[0], 22), "ax")
    if last > 0:
        at = 244.0 if gap else 300.0
        body += svg.text(at, bottom + 15, words.shorten(synthetic.labels[last], 22), "ax", "end")
    if gap:
        body += svg.text(300, bottom + 15, "missing", "ax", "end")
    return body, 136.0


def _categories(synthetic: Marginal, real: Marginal | None) -> tuple[str, float]:
    rows = _fold(synthetic, real)
    high = max((max(share, other or 0.0) for _, share, other in rows), default=1.0) or 1.0
    left, span, pitch, body = 112.0, 142.0, 17.0, ""
    for number, (label, share, other) in enumerate(rows):
        y = pitch * number + 2
        tip = f"{label}: {words.percent(share)} synthetic"
        body += svg.text(left - 7, y + 11, words.shorten(label, 17), "ax", "end")
        if other is None:
            body += svg.rect(left, y + 2, span * share / high, 11, "syn", tip=tip, rx=1.5)
        else:
            tip += f", {words.percent(other)} real"
            body += svg.rect(left, y + 1, span * share / high, 7.5, "syn", tip=tip, rx=1.5)
            body += svg.rect(left, y + 9.5, span * other / high, 4, "real", tip=tip, rx=1.5)
        longest = span * max(share, other or 0.0) / high
        body += svg.text(left + longest + 5, y + 11, words.percent(share), "ax")
    return body, pitch * len(rows) + 4


def _fold(synthetic: Marginal, real: Marginal | None) -> list[tuple[str, float, float | None]]:
    """Largest categories (by the synthetic table), then all others as one."""
    order = sorted(range(len(synthetic.labels)), key=lambda i: -synthetic.proportions[i])
    keep = SHOWN + 1 if len(order) <= SHOWN + 1 else SHOWN
    rows: list[tuple[str, float, float | None]] = [
        (synthetic.labels[i], synthetic.proportions[i], real.proportions[i] if real else None)
        for i in order[:keep]
    ]
    if rest := order[keep:]:
        share = sum(synthetic.proportions[i] for i in rest)
        other = sum(real.proportions[i] for i in rest) if real else None
        rows.append((f"{len(rest)} others", share, other))
    return rows


def heat_maps(
    synthetic: Association, real: Association | None, cliques: Sequence[Sequence[str]] = ()
) -> str:
    """Association of every pair of columns: synthetic, or real, synthetic and their difference.

    Args:
        synthetic: Matrix of the synthetic table.
        real: Matrix of the real rows with the same names, or None.
        cliques: Cliques of the model; pairs inside one are dotted.

    Returns:
        SVG.
    """
    synthetic, real = _trim(synthetic), _trim(real) if real else None
    width = len(synthetic.names)
    side = max(min((250.0 if real else 430.0) / max(width, 1), 26.0), 3.0)
    left = 104.0 if width <= 60 else 8.0
    panels = [("synthetic", synthetic.values, "heat")]
    if real:
        gaps = tuple(
            tuple(a - b for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in zip(synthetic.values, real.values, strict=True)
        )
        panels = [("real", real.values, "heat"), *panels, ("synthetic − real", gaps, "gap")]
    joined = {frozenset(pair) for clique in cliques for pair in combinations(clique, 2)}
    body, x = _side_labels(synthetic.names, left, side), left
    for title, values, kind in panels:
        body += svg.text(x, 14, title, "lab strong")
        body += _cells(synthetic.names, values, kind, x, side)
        if kind == "heat" and title == "synthetic":
            body += _dots(synthetic.names, joined, x, side)
        body += _foot_labels(synthetic.names, x, side)
        x += side * width + 22
    tall = 22 + side * width + (104 if width <= 60 else 8)
    return svg.figure(
        max(x - 22, left + 120),
        tall,
        body,
        title=f"{synthetic.measure} of every pair of columns",
        desc=f"{width} columns; {', '.join(title for title, _, _ in panels)}. The strongest "
        "pairs are listed in the table beside it.",
    )


def _trim(whole: Association) -> Association:
    """The first columns, as many as a picture can show."""
    values = tuple(row[:WIDEST] for row in whole.values[:WIDEST])
    return Association(names=whole.names[:WIDEST], values=values, measure=whole.measure)


def _side_labels(names: Sequence[str], left: float, side: float) -> str:
    if len(names) > 60:
        return ""
    small = "ax" if side >= 9 else "ax tiny"
    return "".join(
        svg.text(left - 6, 22 + side * (i + 0.5) + 3.5, words.shorten(name, 16), small, "end")
        for i, name in enumerate(names)
    )


def _foot_labels(names: Sequence[str], x: float, side: float) -> str:
    if len(names) > 60:
        return ""
    small, y = ("ax" if side >= 9 else "ax tiny"), 22 + side * len(names) + 6
    return "".join(
        f'<g transform="translate({svg.num(x + side * (i + 0.5) + 3.5)},{svg.num(y)}) '
        f'rotate(-90)">{svg.text(0, 0, words.shorten(name, 15), small, "end")}</g>'
        for i, name in enumerate(names)
    )


def _level(value: float, kind: str) -> str:
    """CSS class of a cell: h0..h10, or g0..g10 above and l0..l10 below zero."""
    if kind == "heat":
        return f"h{round(10 * min(max(value, 0.0), 1.0))}"
    strength = round(10 * min(abs(value) / 0.5, 1.0))
    return f"{'g' if value >= 0 else 'l'}{strength}"


def _cells(
    names: Sequence[str], values: Sequence[Sequence[float]], kind: str, x: float, side: float
) -> str:
    width = len(names)
    body = svg.rect(x, 22, side * width, side * width, "backdrop")
    if width <= CELLS:
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                tip = f"{names[i]} × {names[j]}: {value:.2f}"
                cls = "self" if i == j else _level(value, kind)
                spot = (x + side * j + 0.5, 22 + side * i + 0.5, side - 1, side - 1)
                body += svg.rect(*spot, cls, tip=tip)
        return body
    levels: dict[str, list[str]] = {}
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            cls = "self" if i == j else _level(value, kind)
            levels.setdefault(cls, []).append(f"M{j} {i}h1v1h-1z")
    shapes = "".join(f'<path class="{cls}" d="{"".join(d)}"/>' for cls, d in levels.items())
    return body + f'<g transform="translate({svg.num(x)},22) scale({side:.3f})">{shapes}</g>'


def _dots(names: Sequence[str], joined: set[frozenset[str]], x: float, side: float) -> str:
    if len(names) > CELLS:
        return ""
    place = {name: i for i, name in enumerate(names)}
    body = ""
    for pair in sorted(sorted(pair) for pair in joined):
        if all(name in place for name in pair):
            i, j = sorted(place[name] for name in pair)
            cx, cy = x + side * (j + 0.5), 22 + side * (i + 0.5)
            body += f'<circle cx="{svg.num(cx)}" cy="{svg.num(cy)}" r="2" class="dot"/>'
    return body


def strongest_pairs(
    synthetic: Association, real: Association | None, count: int = 10
) -> list[tuple[str, str, float, float | None]]:
    """Pairs to list: strongest in the synthetic table, or furthest from the real one.

    Args:
        synthetic: Matrix of the synthetic table.
        real: Matrix of the real rows, or None.
        count: How many pairs.

    Returns:
        (column, column, synthetic value, real value or None), the first ones matter most.
    """
    found: list[tuple[float, str, str, float, float | None]] = []
    for i, j in combinations(range(len(synthetic.names)), 2):
        ours = synthetic.values[i][j]
        theirs = real.values[i][j] if real else None
        weight = ours if theirs is None else abs(ours - theirs)
        found.append((weight, synthetic.names[i], synthetic.names[j], ours, theirs))
    found.sort(key=lambda item: (-item[0], item[1], item[2]))
    return [item[1:] for item in found[:count]]
