"""Small pieces of inline SVG. Colours are CSS classes, so a page chooses light or dark.

A picture of a report by itself: shown by a notebook, and stored as an SVG file.

The report's pictures of cost: the ledger, bytes, time, and what ε means to an attacker.

Each function takes plain records and gives one inline SVG with a title and a description.

The report's pictures of the table itself: one chart per column, and association heat maps.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from itertools import accumulate, combinations
from pathlib import Path

from siloweave.errors import InputError
from siloweave.report import words
from siloweave.report.record import Association, LedgerRow, Marginal, PartyCost, Phase


def figure(width: float, height: float, body: str, *, title: str, desc: str) -> str:
    """Wrap shapes as an accessible image that scales down with its column.

    Args:
        width: Width of the drawing in CSS pixels.
        height: Height in CSS pixels.
        body: SVG shapes.
        title: Short name, read by screen readers.
        desc: What the picture shows, in a sentence.

    Returns:
        An ``<svg>`` element.
    """
    mark = hashlib.blake2b(f"{title}{desc}{body}".encode(), digest_size=5).hexdigest()
    return (
        f'<svg viewBox="0 0 {num(width)} {num(height)}" width="{num(width)}" '
        f'height="{num(height)}" role="img" aria-labelledby="t{mark} d{mark}">'
        f'<title id="t{mark}">{escape(title)}</title>'
        f'<desc id="d{mark}">{escape(desc)}</desc>{body}</svg>'
    )


def num(value: float) -> str:
    """A coordinate with at most one decimal."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def text(x: float, y: float, content: str, cls: str = "", anchor: str = "start") -> str:
    """Escaped text; `anchor` is start, middle or end."""
    end = "" if anchor == "start" else f' text-anchor="{anchor}"'
    kind = f' class="{cls}"' if cls else ""
    return f'<text x="{num(x)}" y="{num(y)}"{kind}{end}>{escape(content)}</text>'


def rect(
    x: float, y: float, width: float, height: float, cls: str, *, tip: str = "", rx: float = 0
) -> str:
    """A rectangle with an optional tooltip; negative sizes are drawn as nothing."""
    shape = (
        f'<rect x="{num(x)}" y="{num(y)}" width="{num(max(width, 0))}" '
        f'height="{num(max(height, 0))}" class="{cls}"' + (f' rx="{num(rx)}"' if rx else "")
    )
    return f"{shape}><title>{escape(tip)}</title></rect>" if tip else f"{shape}/>"


def line(x1: float, y1: float, x2: float, y2: float, cls: str) -> str:
    """A straight line."""
    return f'<line x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}" class="{cls}"/>'


def path(points: list[tuple[float, float]], cls: str, *, close: bool = False) -> str:
    """A polyline through `points`, closed into an area if asked."""
    steps = " ".join(f"{num(x)},{num(y)}" for x, y in points)
    return (
        f'<polygon points="{steps}" class="{cls}"/>'
        if close
        else (f'<polyline points="{steps}" class="{cls}"/>')
    )


def ticks(high: float, count: int = 4) -> list[float]:
    """Round axis values from 0 to at least `high`.

    >>> ticks(0.97)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if not high > 0 or math.isinf(high):
        return [0.0, 1.0]
    raw = high / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    steps = math.ceil(high / step * (1 - 1e-9))
    return [round(step * i, 12) for i in range(steps + 1)]


_RULE = re.compile(r"([^{}@]+)\{([^{}]*)\}")


class Picture:
    """An SVG picture that needs nothing else; a notebook shows it.

    Args:
        svg: An ``<svg>`` element as the reports have it.

    Example:
        >>> picture = Picture('<svg viewBox="0 0 9 9"><rect class="syn"/></svg>')
        >>> "xmlns" in picture.svg, ".syn" in picture.svg, "body{" in picture.svg
        (True, True, False)
    """

    def __init__(self, svg: str) -> None:
        start, end = svg.index("<svg") + 4, svg.index(">") + 1
        whole = f"{svg[:start]} xmlns='http://www.w3.org/2000/svg'{svg[start:end]}"
        self.svg = f"{whole}<style>{_style_of(svg)}</style>{svg[end:]}"

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        title = re.search(r"<title[^>]*>(.*?)</title>", self.svg)
        return f"Picture({title.group(1) if title else ''})"

    def save(self, path: Path | str) -> Path:
        """Write the picture as an SVG file.

        Args:
            path: Its name ends in .svg; an existing file is replaced.

        Returns:
            The file.

        Raises:
            InputError: The name ends otherwise, or the folder does not exist.
        """
        path = Path(path)
        if path.suffix.lower() != ".svg" or path.is_dir():
            raise InputError(f"cannot write {path}: a picture's file name ends in .svg")
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: its folder does not exist; create it first")
        path.write_text(self.svg, encoding="utf-8")
        return path


def _style_of(svg: str) -> str:
    """The colours, and the rules for the classes that a picture uses; none for other elements."""
    css = resources.files("siloweave.report").joinpath("style.css").read_text("utf-8")
    used = {name for text in re.findall(r'class="([^"]*)"', svg) for name in text.split()}
    light, kept = "", []
    for selectors, body in _RULE.findall(css):
        if selectors.strip() == ":root":
            light = light or f"svg{{{body.strip()}}}"
        own = [s for s in selectors.split(",") if used & set(re.findall(r"\.([\w-]+)", s))]
        kept += [f"svg {s.strip().removeprefix('svg ')}{{{body.strip()}}}" for s in own]
    font = "svg text{font:12px system-ui,sans-serif;fill:var(--ink)}"
    return "".join([light, font, *kept])


WIDTH = 924.0
MANY = 8
"""More ledgers than this are drawn as an envelope."""
BARS = 20
"""More parties than this are drawn as a sorted profile."""


def power_curve(epsilon: float, delta: float) -> str:
    """What ε and δ leave to the best attacker: true positives against false alarms.

    Args:
        epsilon: ε, may be infinite.
        delta: δ.

    Returns:
        SVG, 240 by 226 pixels.
    """
    side, left, top = 184.0, 34.0, 10.0
    grid = [i / 200 for i in range(201)]
    curve = [(a, words.attacker_power(a, epsilon, delta)) for a in grid]
    points = [(left + side * a, top + side * (1 - power)) for a, power in curve]
    corner, origin = (left + side, top), (left, top + side)
    body = rect(left, top, side, side, "backdrop")
    body += path([origin, *points, corner, origin], "reach", close=True)
    body += line(*origin, *corner, "chance") + path([origin, *points], "bound")
    for value in (0.0, 0.5, 1.0):
        at = f"{100 * value:.0f}%"
        body += text(left + side * value, top + side + 14, at, "ax", "middle")
        body += text(left - 5, top + side * (1 - value) + 4, at, "ax", "end")
    body += text(left + side / 2, top + side + 28, "false alarms", "ax", "middle")
    body += text(left + 8, top + 16, "found", "ax")
    body += text(left + side - 8, top + side - 10, "guessing", "ax", "end")
    best = words.attacker_power(0.01, epsilon, delta)
    return figure(
        240,
        226,
        body,
        title="Best possible attack",
        desc=f"With ε = {words.epsilon(epsilon)}, a test that raises 1% false alarms finds at "
        f"most {words.percent(best)} of the rows it looks for.",
    )


def by_party(ledgers: Sequence[LedgerRow]) -> dict[str, list[LedgerRow]]:
    """Ledger rows of each party, in order of index."""
    found: dict[str, list[LedgerRow]] = {}
    for row in ledgers:
        found.setdefault(row.party, []).append(row)
    return {name: sorted(rows, key=lambda row: row.index) for name, rows in found.items()}


def staircase(ledgers: Sequence[LedgerRow], allowed: float) -> str:
    """Cumulative ε, release by release.

    Up to eight different curves are drawn one by one (equal ones share a line); more become the
    highest curve over the band of the middle 80% of parties.

    Args:
        ledgers: All releases.
        allowed: The budget's ε.

    Returns:
        SVG, 924 pixels wide.
    """
    parties = by_party(ledgers)
    curves: dict[tuple[float, ...], list[str]] = {}
    for name, rows in parties.items():
        curves.setdefault(tuple(round(r.cumulative_epsilon, 9) for r in rows), []).append(name)
    finite = [e for curve in curves for e in curve if math.isfinite(e)]
    high = max([*finite, allowed if math.isfinite(allowed) else 0.0, 1e-6])
    longest = max((len(curve) for curve in curves), default=1)
    axes = _Axes(longest, high * 1.09)
    body = axes.draw("releases of one party, in order")
    if math.isfinite(allowed):
        y = axes.y(allowed)
        body += line(axes.left, y, axes.right, y, "limit")
        body += text(axes.left + 6, y - 5, f"allowed ε = {allowed:g}", "limit-text")
    if len(curves) > MANY:
        body += _envelope(list(curves), [len(names) for names in curves.values()], axes)
    else:
        body += _curves(curves, parties, axes)
    top = max((curve[-1] for curve in curves if curve), default=0.0)
    return figure(
        WIDTH,
        270,
        body,
        title="Cumulative ε by release",
        desc=f"{len(parties)} parties, up to {longest} releases each; the highest ends at "
        f"ε = {words.epsilon(top)} of {words.epsilon(allowed)} allowed.",
    )


class _Axes:
    """Frame of the staircase: release number across, ε up."""

    left, right, top, bottom = 44.0, 760.0, 12.0, 228.0

    def __init__(self, longest: int, high: float) -> None:
        self.longest, self.high = longest, high
        self.marks = [mark for mark in ticks(high, 5) if mark <= high]

    def x(self, position: float) -> float:
        return self.left + (self.right - self.left) * position / self.longest

    def y(self, value: float) -> float:
        share = min(value / self.high, 1.0)
        return self.bottom - (self.bottom - self.top) * share

    def draw(self, label: str) -> str:
        body = "".join(
            line(self.left, self.y(mark), self.right, self.y(mark), "grid")
            + text(self.left - 7, self.y(mark) + 4, f"{mark:g}", "ax", "end")
            for mark in self.marks
        )
        for mark in ticks(self.longest, 6):
            if 0 < mark <= self.longest and mark == int(mark):
                body += text(self.x(mark), self.bottom + 16, f"{mark:g}", "ax", "middle")
        middle = (self.left + self.right) / 2
        return body + text(middle, self.bottom + 34, label, "ax", "middle")

    def steps(self, curve: Sequence[float]) -> list[tuple[float, float]]:
        points, last = [(self.x(0), self.y(0))], 0.0
        for position, value in enumerate(curve):
            points += [(self.x(position), self.y(last)), (self.x(position), self.y(value))]
            last = value
        return [*points, (self.x(len(curve)), self.y(last))]


def _curves(
    curves: dict[tuple[float, ...], list[str]], parties: dict[str, list[LedgerRow]], axes: _Axes
) -> str:
    """One staircase per distinct curve; the highest has a dot per release, by mechanism."""
    kinds = mechanisms([row for rows in parties.values() for row in rows])
    body, ends = "", []
    dearest = max(curves, key=lambda curve: curve[-1:])
    for curve, names in curves.items():
        body += path(axes.steps(curve), "curve p0" if curve == dearest else "curve faint")
        together = ", ".join(names[:3])
        crowd = len(names) > 3 or (len(names) > 1 and len(together) > 18)
        who = f"{words.count(len(names))} parties" if crowd else together
        ends.append((axes.y(curve[-1] if curve else 0.0), who, curve[-1] if curve else 0.0))
    for position, row in enumerate(parties[curves[dearest][0]][:400]):
        x, y = axes.x(position + 0.5), axes.y(row.cumulative_epsilon)
        kind = min(kinds.index(row.mechanism), 5)
        body += f'<circle cx="{num(x)}" cy="{num(y)}" r="3" class="m{kind}"/>'
    ends.sort()
    floor = axes.top - 4
    for y, who, value in ends:
        floor = max(y + 4, floor + 14)
        label = f"ε = {words.epsilon(value)}: {words.shorten(who, 16)}"
        body += text(axes.right + 8, floor, label, "lab")
    return body


def _envelope(curves: list[tuple[float, ...]], weights: list[int], axes: _Axes) -> str:
    """Highest curve over the band between the 10th and 90th percentile of parties."""
    low: list[float] = []
    middle: list[float] = []
    high: list[float] = []
    most: list[float] = []
    for position in range(axes.longest):
        held = [(curve[min(position, len(curve) - 1)] if curve else 0.0) for curve in curves]
        pairs = sorted(zip(held, weights, strict=True))
        reach = list(accumulate(weight for _, weight in pairs))
        for share, into in ((0.1, low), (0.5, middle), (0.9, high), (1.0, most)):
            spot = next(i for i, mass in enumerate(reach) if mass >= share * reach[-1])
            into.append(pairs[spot][0])
    upper, lower = axes.steps(high), axes.steps(low)
    body = path([*upper, *reversed(lower)], "band", close=True)
    body += path(axes.steps(middle), "curve faint") + path(axes.steps(most), "curve p0")
    ends = sorted(
        [
            (axes.y(most[-1]), f"{words.epsilon(most[-1])}  highest party"),
            (axes.y(middle[-1]), f"{words.epsilon(middle[-1])}  median party"),
        ]
    )
    floor = axes.top - 4
    for y, label in ends:
        floor = max(y + 4, floor + 14)
        body += text(axes.right + 8, floor, label, "lab")
    return body + text(axes.right + 8, floor + 14, "band: middle 80%", "ax")


def mechanisms(ledgers: Sequence[LedgerRow]) -> list[str]:
    """Names of the mechanisms used, the most frequent first."""
    seen: dict[str, int] = {}
    for row in ledgers:
        seen[row.mechanism] = seen.get(row.mechanism, 0) + 1
    return sorted(seen, key=lambda name: (-seen[name], name))


def party_bytes(parties: Sequence[PartyCost]) -> str:
    """Bytes sent and received: a bar pair per party, or all parties sorted when there are many.

    Args:
        parties: Costs in roster order.

    Returns:
        SVG, 924 pixels wide.
    """
    most = max([max(p.bytes_sent, p.bytes_received) for p in parties], default=0) or 1
    if len(parties) > BARS:
        body, height = _profile(parties, most), 210.0
    else:
        body, height = _byte_bars(parties, most), 28.0 * len(parties) + 4
    total = sum(p.bytes_sent + p.bytes_received for p in parties)
    return figure(
        WIDTH,
        height,
        body,
        title="Bytes on the wire by party",
        desc=f"{len(parties)} parties, {words.size(total)} sent and received in total.",
    )


def _byte_bars(parties: Sequence[PartyCost], most: int) -> str:
    body, left, span = "", 150.0, 660.0
    for number, party in enumerate(parties):
        y = 28.0 * number + 2
        body += text(left - 10, y + 14, words.shorten(party.name, 20), "lab", "end")
        for offset, amount, kind in (
            (0.0, party.bytes_sent, "sent"),
            (11.0, party.bytes_received, "received"),
        ):
            length = max(span * amount / most, 1.0)
            tip = f"{party.name} {kind} {words.size(amount)}"
            body += rect(left, y + offset, length, 9, kind, tip=tip, rx=2)
            body += text(left + length + 6, y + offset + 8.5, words.size(amount), "ax")
    return body


def _profile(parties: Sequence[PartyCost], most: int) -> str:
    left, right, top, bottom = 60.0, 760.0, 12.0, 176.0
    body = ""
    for share in (0.0, 0.5, 1.0):
        y = bottom - (bottom - top) * share
        body += line(left, y, right, y, "grid")
        body += text(left - 6, y + 4, words.size(most * share), "ax", "end")
    for kind in ("received", "sent"):
        amounts = sorted((getattr(p, f"bytes_{kind}") for p in parties), reverse=True)
        last = len(amounts) - 1
        picks = sorted({round(i * last / 200) for i in range(201)})
        points = [
            (left + (right - left) * i / last, bottom - (bottom - top) * amounts[i] / most)
            for i in picks
        ]
        body += path(points, f"curve line-{kind}")
    label = f"{words.count(len(parties))} parties, each line from most to least"
    return body + text((left + right) / 2, bottom + 20, label, "ax", "middle")


def phase_timeline(phases: Sequence[Phase]) -> str:
    """Phases one after the other, on one time axis.

    Args:
        phases: In the order they ran.

    Returns:
        SVG, 924 pixels wide.
    """
    total = sum(phase.seconds for phase in phases) or 1.0
    left, span, body, start = 190.0, 600.0, "", 0.0
    for number, phase in enumerate(phases):
        y = 24.0 * number + 2
        x, width = left + span * start / total, max(span * phase.seconds / total, 1.5)
        spent = words.duration(phase.seconds)
        body += line(left, y + 18.5, left + span, y + 18.5, "grid")
        body += text(left - 10, y + 12, words.shorten(phase.name, 28), "lab", "end")
        body += rect(x, y, width, 16, "time", tip=f"{phase.name}: {spent}", rx=3)
        share = words.percent(phase.seconds / total)
        body += text(left + span + 12, y + 12, spent, "lab")
        body += text(WIDTH, y + 12, share, "ax", "end")
        start += phase.seconds
    return figure(
        WIDTH,
        24.0 * len(phases) + 2,
        body,
        title="Seconds per phase",
        desc=f"{len(phases)} phases, {words.duration(total)} in all.",
    )


def error_bars(errors: dict[str, float], high: float, *, title: str) -> str:
    """Named errors on a scale from 0 to `high`.

    Args:
        errors: Name to value.
        high: Largest possible value.
        title: Name of the picture.

    Returns:
        SVG, 924 pixels wide.
    """
    left, span, body = 190.0, 600.0, ""
    for number, (name, value) in enumerate(errors.items()):
        y = 26.0 * number + 2
        body += text(left - 10, y + 13, words.shorten(name, 28), "lab", "end")
        body += rect(left, y + 3, span, 12, "track", rx=3)
        if math.isfinite(value):
            share = max(span * min(value / high, 1), 1.5)
            body += rect(left, y + 3, share, 12, "error", tip=f"{name}: {value:.4f}", rx=3)
        body += text(left + span + 12, y + 13, f"{value:.4f}", "lab")
        body += text(WIDTH, y + 13, f"of {high:g}", "ax", "end")
    listed = ", ".join(f"{name} {value:.4f}" for name, value in errors.items())
    return figure(WIDTH, 26.0 * len(errors) + 2, body, title=title, desc=listed)


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
    return figure(
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
    body = line(0, bottom, 300, bottom, "base")
    outline: list[tuple[float, float]] = [(0.0, bottom)]
    for number, label in enumerate(synthetic.labels):
        lone = bool(gap) and number == bins - 1
        x = width * number + (gap if lone else 0)
        share = synthetic.proportions[number]
        tip = f"{label}: {words.percent(share)} synthetic"
        tip += f", {words.percent(real.proportions[number])} real" if real else ""
        tall = (bottom - top) * share / high
        kind = "syn missing" if lone else "syn"
        body += rect(x + 0.6, bottom - tall, max(width - 1.2, 0.8), tall, kind, tip=tip)
        if real:
            y = bottom - (bottom - top) * real.proportions[number] / high
            outline += [(outline[-1][0], bottom), (x, bottom)] if lone else []
            outline += [(x, y), (x + width, y)]
    if real:
        body += path([*outline, (outline[-1][0], bottom)], "real-line")
    last = bins - 2 if gap else bins - 1
    body += text(0, bottom + 15, words.shorten(synthetic.labels[0], 22), "ax")
    if last > 0:
        at = 244.0 if gap else 300.0
        body += text(at, bottom + 15, words.shorten(synthetic.labels[last], 22), "ax", "end")
    if gap:
        body += text(300, bottom + 15, "missing", "ax", "end")
    return body, 136.0


def _categories(synthetic: Marginal, real: Marginal | None) -> tuple[str, float]:
    rows = _fold(synthetic, real)
    high = max((max(share, other or 0.0) for _, share, other in rows), default=1.0) or 1.0
    left, span, pitch, body = 112.0, 142.0, 17.0, ""
    for number, (label, share, other) in enumerate(rows):
        y = pitch * number + 2
        tip = f"{label}: {words.percent(share)} synthetic"
        body += text(left - 7, y + 11, words.shorten(label, 17), "ax", "end")
        if other is None:
            body += rect(left, y + 2, span * share / high, 11, "syn", tip=tip, rx=1.5)
        else:
            tip += f", {words.percent(other)} real"
            body += rect(left, y + 1, span * share / high, 7.5, "syn", tip=tip, rx=1.5)
            body += rect(left, y + 9.5, span * other / high, 4, "real", tip=tip, rx=1.5)
        longest = span * max(share, other or 0.0) / high
        body += text(left + longest + 5, y + 11, words.percent(share), "ax")
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
        body += text(x, 14, title, "lab strong")
        body += _cells(synthetic.names, values, kind, x, side)
        if kind == "heat" and title == "synthetic":
            body += _dots(synthetic.names, joined, x, side)
        body += _foot_labels(synthetic.names, x, side)
        x += side * width + 22
    tall = 22 + side * width + (104 if width <= 60 else 8)
    return figure(
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
        text(left - 6, 22 + side * (i + 0.5) + 3.5, words.shorten(name, 16), small, "end")
        for i, name in enumerate(names)
    )


def _foot_labels(names: Sequence[str], x: float, side: float) -> str:
    if len(names) > 60:
        return ""
    small, y = ("ax" if side >= 9 else "ax tiny"), 22 + side * len(names) + 6
    return "".join(
        f'<g transform="translate({num(x + side * (i + 0.5) + 3.5)},{num(y)}) '
        f'rotate(-90)">{text(0, 0, words.shorten(name, 15), small, "end")}</g>'
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
    body = rect(x, 22, side * width, side * width, "backdrop")
    if width <= CELLS:
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                tip = f"{names[i]} × {names[j]}: {value:.2f}"
                cls = "self" if i == j else _level(value, kind)
                spot = (x + side * j + 0.5, 22 + side * i + 0.5, side - 1, side - 1)
                body += rect(*spot, cls, tip=tip)
        return body
    levels: dict[str, list[str]] = {}
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            cls = "self" if i == j else _level(value, kind)
            levels.setdefault(cls, []).append(f"M{j} {i}h1v1h-1z")
    shapes = "".join(f'<path class="{cls}" d="{"".join(d)}"/>' for cls, d in levels.items())
    return body + f'<g transform="translate({num(x)},22) scale({side:.3f})">{shapes}</g>'


def _dots(names: Sequence[str], joined: set[frozenset[str]], x: float, side: float) -> str:
    if len(names) > CELLS:
        return ""
    place = {name: i for i, name in enumerate(names)}
    body = ""
    for pair in sorted(sorted(pair) for pair in joined):
        if all(name in place for name in pair):
            i, j = sorted(place[name] for name in pair)
            cx, cy = x + side * (j + 0.5), 22 + side * (i + 0.5)
            body += f'<circle cx="{num(cx)}" cy="{num(cy)}" r="2" class="dot"/>'
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
