"""The pictures of both pages, as inline SVG.

Each function takes plain records or numbers and gives one ``<svg>`` with a title and a description,
924 pixels wide where it says nothing else. Colours are CSS classes, so that a page chooses light or
dark.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import accumulate, combinations
from pathlib import Path
from typing import NamedTuple

from siloweave.errors import InputError
from siloweave.report import words
from siloweave.report.record import (
    Association,
    LedgerRow,
    Marginal,
    PartyCost,
    TrainingLook,
)

Points = list[tuple[float, float]]
Marks = Iterable[tuple[float, str]]
"""Where on an axis, as a share of it, and what is written there."""
Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Name of an attack to false positive rates and true positive rates, both from 0 to 1."""
WIDTH = 924.0
MANY = 8
"""More ledgers than this are drawn as an envelope."""
CATEGORIES = 8
"""Categories drawn one by one; the rest are one bar."""
CELLS = 24
"""Heat maps up to this many columns have a tooltip per cell."""
LABELLED = 60
"""Heat maps up to this many columns have names beside them."""
WIDEST = 100
"""Heat maps show the first columns up to this many."""


def figure(width: float, height: float, body: str, *, title: str, desc: str) -> str:
    """Wrap shapes as an accessible image that scales down with its column; sizes in CSS pixels."""
    mark = hashlib.blake2b(f"{title}{desc}{body}".encode(), digest_size=5).hexdigest()
    return (
        f'<svg viewBox="0 0 {num(width)} {num(height)}" width="{num(width)}" '
        f'height="{num(height)}" role="img" aria-labelledby="t{mark} d{mark}">'
        f'<title id="t{mark}">{escape(title)}</title>'
        f'<desc id="d{mark}">{escape(desc)}</desc>{body}</svg>'
    )


def num(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text(
    x: float, y: float, content: str, cls: str = "", anchor: str = "start", *, whole: str = ""
) -> str:
    """Escaped text; `anchor` is start, middle or end.

    Where `whole` is another text, of which the content is a part, pointing at it shows it.
    """
    end = "" if anchor == "start" else f' text-anchor="{anchor}"'
    kind = f' class="{cls}"' if cls else ""
    tip = f"<title>{escape(whole)}</title>" if whole not in ("", content) else ""
    return f'<text x="{num(x)}" y="{num(y)}"{kind}{end}>{tip}{escape(content)}</text>'


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


def circle(x: float, y: float, radius: float, cls: str) -> str:
    """A dot."""
    return f'<circle cx="{num(x)}" cy="{num(y)}" r="{radius:g}" class="{cls}"/>'


def path(points: Points, cls: str, *, close: bool = False) -> str:
    """A polyline through `points`, closed into an area if asked."""
    steps = " ".join(f"{num(x)},{num(y)}" for x, y in points)
    return f'<{"polygon" if close else "polyline"} points="{steps}" class="{cls}"/>'


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
    return [round(step * i, 12) for i in range(math.ceil(high / step * (1 - 1e-9)) + 1)]


class _Panel(NamedTuple):
    """A part of a picture in which shares from 0 to 1 are drawn, to the right and upwards."""

    left: float
    top: float
    width: float
    height: float

    def x(self, share: float) -> float:
        return self.left + self.width * share

    def y(self, share: float) -> float:
        return self.top + self.height * (1 - share)

    def path(self, shares: Points, cls: str, *, close: bool = False) -> str:
        return path([(self.x(a), self.y(b)) for a, b in shares], cls, close=close)

    def backdrop(self) -> str:
        return rect(self.left, self.top, self.width, self.height, "backdrop")

    def across(self, marks: Marks, label: str, *, grid: bool = False) -> str:
        """Marks below, and a label of all of them."""
        body = text(self.x(0.5), self.y(0) + 32, label, "ax", "middle")
        for share, mark in marks:
            x = self.x(share)
            body += line(x, self.y(1), x, self.y(0), "grid") if grid else ""
            body += text(x, self.y(0) + 15, mark, "ax", "middle")
        return body

    def upwards(self, marks: Marks, *, grid: bool = False) -> str:
        """Marks to the left."""
        body = ""
        for share, mark in marks:
            y = self.y(share)
            body += line(self.x(0), y, self.x(1), y, "grid") if grid else ""
            body += text(self.left - 6, y + 4, mark, "ax", "end")
        return body


class Picture:
    """A picture of a page by itself: a notebook shows it, and it is stored as an SVG file.

    Args:
        svg: An ``<svg>`` element as the pages have it.

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
    light, rules = "", []
    for selectors, body in re.findall(r"([^{}@]+)\{([^{}]*)\}", css):
        if selectors.strip() == ":root":
            light = light or f"svg{{{body.strip()}}}"
        own = [s for s in selectors.split(",") if used & set(re.findall(r"\.([\w-]+)", s))]
        rules += [f"svg {s.strip().removeprefix('svg ')}{{{body.strip()}}}" for s in own]
    font = "svg text{font:12px system-ui,sans-serif;fill:var(--ink)}"
    return "".join([light, font, *rules])


# Cost: what epsilon means to an attacker, the ledger, bytes


def power_curve(epsilon: float, delta: float) -> str:
    """What ε and δ leave to the best attacker: true positives against false alarms; 240 by 230."""
    axes = _Panel(38.0, 10.0, 184.0, 184.0)
    power = [(i / 200, words.attacker_power(i / 200, epsilon, delta)) for i in range(201)]
    curve = [(0.0, 0.0), *power]
    marks = [(0.0, "0%"), (0.5, "50%"), (1.0, "100%")]
    body = axes.backdrop() + axes.across(marks, "false alarms") + axes.upwards(marks)
    body += axes.path([*curve, (1.0, 1.0), (0.0, 0.0)], "reach", close=True)
    body += line(axes.x(0), axes.y(0), axes.x(1), axes.y(1), "chance") + axes.path(curve, "bound")
    body += text(axes.x(0) + 8, axes.y(1) + 16, "found", "ax")
    body += text(axes.x(1) - 8, axes.y(0) - 10, "guessing", "ax", "end")
    best = words.at_most(words.attacker_power(0.01, epsilon, delta))
    desc = f"With ε = {words.epsilon(epsilon)}, a test that raises 1% false alarms finds at "
    desc += f"most {best} of the rows it looks for."
    return figure(240, 230, body, title="Best possible attack", desc=desc)


def by_party(ledgers: Sequence[LedgerRow]) -> dict[str, list[LedgerRow]]:
    """Ledger rows of each party, in order of index."""
    found: dict[str, list[LedgerRow]] = {}
    for row in ledgers:
        found.setdefault(row.party, []).append(row)
    return {name: sorted(rows, key=lambda row: row.index) for name, rows in found.items()}


def mechanisms(ledgers: Iterable[LedgerRow]) -> list[str]:
    """Names of the mechanisms used, the most frequent first."""
    seen = Counter(row.mechanism for row in ledgers)
    return sorted(seen, key=lambda name: (-seen[name], name))


_LEDGER = _Panel(44.0, 12.0, 716.0, 216.0)


def staircase(ledgers: Sequence[LedgerRow], allowed: float) -> str:
    """Cumulative ε, release by release, below the ε that the budget allows.

    Up to eight different curves are drawn one by one (equal ones share a line); more become the
    highest curve over the band of the middle 80% of parties.
    """
    parties = by_party(ledgers)
    curves: dict[tuple[float, ...], list[str]] = {}
    for name, rows in parties.items():
        curves.setdefault(tuple(round(r.cumulative_epsilon, 9) for r in rows), []).append(name)
    finite = [e for curve in curves for e in curve if math.isfinite(e)]
    high = 1.09 * max([*finite, allowed if math.isfinite(allowed) else 0.0, 1e-6])
    longest = max((len(curve) for curve in curves), default=1)
    marks = [(mark / high, f"{mark:g}") for mark in ticks(high, 5) if mark <= high]
    body = _LEDGER.upwards(marks, grid=True)
    whole = [mark for mark in ticks(longest, 6) if 0 < mark <= longest and mark == int(mark)]
    marks = [(mark / longest, f"{mark:g}") for mark in whole]
    body += _LEDGER.across(marks, "releases of one party, in order")
    if math.isfinite(allowed):
        y = _LEDGER.y(allowed / high)
        body += line(_LEDGER.x(0), y, _LEDGER.x(1), y, "limit")
        body += text(_LEDGER.x(0) + 6, y - 5, f"allowed ε = {allowed:g}", "limit-text")
    if len(curves) > MANY:
        body += _envelope(list(curves), [len(names) for names in curves.values()], longest, high)
    else:
        body += _curves(curves, parties, longest, high)
    top = max((curve[-1] for curve in curves if curve), default=0.0)
    desc = f"{len(parties)} parties, up to {longest} releases each; the highest ends at "
    desc += f"ε = {words.epsilon(top)} of {words.epsilon(allowed)} allowed."
    return figure(WIDTH, 270, body, title="Cumulative ε by release", desc=desc)


def _stairs(curve: Sequence[float], longest: int, high: float) -> Points:
    """A curve as steps, in shares of the longest one and of the largest value."""
    found, last = [(0.0, 0.0)], 0.0
    for place, value in enumerate(curve):
        share = min(value / high, 1.0)
        found += [(place / longest, last), (place / longest, share)]
        last = share
    return [*found, (len(curve) / longest, last)]


def _beside(ends: Sequence[tuple[float, str]]) -> tuple[str, float]:
    """Texts beside the ends of curves, at their shares, moved apart; where the last one stands."""
    body, floor = "", _LEDGER.top - 4
    for share, label in sorted(ends, key=lambda end: -end[0]):
        floor = max(_LEDGER.y(share) + 4, floor + 14)
        body += text(_LEDGER.x(1) + 8, floor, label, "lab")
    return body, floor


def _curves(
    curves: Mapping[tuple[float, ...], list[str]],
    parties: Mapping[str, list[LedgerRow]],
    longest: int,
    high: float,
) -> str:
    """One staircase per distinct curve; the highest has a dot per release, by mechanism."""
    kinds = mechanisms(row for rows in parties.values() for row in rows)
    body, ends = "", []
    dearest = max(curves, key=lambda curve: curve[-1:])
    for curve, names in curves.items():
        stairs = _stairs(curve, longest, high)
        body += _LEDGER.path(stairs, "curve p0" if curve == dearest else "curve faint")
        together = ", ".join(names[:3])
        crowd = len(names) > 3 or (len(names) > 1 and len(together) > 18)
        who = f"{words.count(len(names))} parties" if crowd else together
        spent = words.epsilon(curve[-1] if curve else 0.0)
        ends.append((stairs[-1][1], f"ε = {spent}: {words.shorten(who, 16)}"))
    for position, row in enumerate(parties[curves[dearest][0]][:400]):
        kind = min(kinds.index(row.mechanism), 5)
        x, y = (position + 0.5) / longest, min(row.cumulative_epsilon / high, 1.0)
        body += circle(_LEDGER.x(x), _LEDGER.y(y), 3, f"m{kind}")
    return body + _beside(ends)[0]


def _envelope(
    curves: Sequence[tuple[float, ...]], weights: Sequence[int], longest: int, high: float
) -> str:
    """Highest curve over the band between the 10th and 90th percentile of parties."""
    found: dict[float, list[float]] = {0.1: [], 0.5: [], 0.9: [], 1.0: []}
    for position in range(longest):
        held = [(curve[min(position, len(curve) - 1)] if curve else 0.0) for curve in curves]
        pairs = sorted(zip(held, weights, strict=True))
        mass = list(accumulate(weight for _, weight in pairs))
        for share, into in found.items():
            place = next(i for i, so_far in enumerate(mass) if so_far >= share * mass[-1])
            into.append(pairs[place][0])
    low, middle, upper, most = (_stairs(curve, longest, high) for curve in found.values())
    body = _LEDGER.path([*upper, *reversed(low)], "band", close=True)
    body += _LEDGER.path(middle, "curve faint") + _LEDGER.path(most, "curve p0")
    named = ((most, found[1.0], "highest"), (middle, found[0.5], "median"))
    ends = [(s[-1][1], f"{words.epsilon(curve[-1])}  {who} party") for s, curve, who in named]
    labels, floor = _beside(ends)
    return body + labels + text(_LEDGER.x(1) + 8, floor + 14, "band: middle 80%", "ax")


def byte_profile(parties: Sequence[PartyCost]) -> str:
    """Bytes sent and received by two parties or more, each sorted from most to least."""
    axes = _Panel(60.0, 12.0, 700.0, 164.0)
    most = max(max(p.bytes_sent, p.bytes_received) for p in parties) or 1
    body = axes.upwards([(s, words.size(most * s)) for s in (0.0, 0.5, 1.0)], grid=True)
    label = f"{words.count(len(parties))} parties, each line from most to least"
    body += axes.across((), label)
    last = len(parties) - 1
    for kind in ("received", "sent"):
        amounts = sorted((getattr(p, f"bytes_{kind}") for p in parties), reverse=True)
        places = sorted({round(i * last / 200) for i in range(201)})
        body += axes.path([(i / last, amounts[i] / most) for i in places], f"curve line-{kind}")
    total = words.size(sum(p.bytes_sent + p.bytes_received for p in parties))
    desc = f"{len(parties)} parties, {total} sent and received in total."
    return figure(WIDTH, 214, body, title="Bytes on the wire by party", desc=desc)


def training_curve(looks: Sequence[TrainingLook]) -> str:
    """Loss of rows held back by seconds of training, of two looks or more; the best one marked."""
    axes = _Panel(60.0, 12.0, 700.0, 164.0)
    longest = max(look.seconds for look in looks)
    seconds = ticks(longest)
    end = seconds[-1]
    losses = [look.loss for look in looks]
    least, most = min(losses), max(losses)
    spread = (most - least) or 1.0
    points = [(look.seconds / end, (look.loss - least) / spread) for look in looks]
    marks = [(share, f"{least + spread * share:.3g}") for share in (0.0, 0.5, 1.0)]
    body = axes.upwards(marks, grid=True)
    body += axes.across([(mark / end, f"{mark:g} s") for mark in seconds], "training")
    body += axes.path(points, "curve line-sent")
    best = min(looks, key=lambda look: look.loss)
    place = points[list(looks).index(best)]
    body += circle(axes.x(place[0]), axes.y(place[1]), 4, "dot")
    desc = f"The loss of rows held back was {best.loss:.3g} at best, after {best.seconds:.0f} "
    desc += f"seconds and {best.step:,} steps; training ended after {longest:.0f} seconds."
    return figure(WIDTH, 214, body, title="Loss of rows held back", desc=desc)


# Attacks


def receiver_curves(curves: Curves) -> str:
    """ROC curves of membership attacks, plain and with few false alarms spread out."""
    side, top, left = 300.0, 26.0, 46.0
    body = _roc_panel(curves, left, top, side, least=None)
    body += _roc_panel(curves, left + side + 70, top, side, least=1e-3)
    x = left + 2 * side + 92
    short = words.shorten_apart(list(curves), 24)
    for number, name in enumerate(curves):
        y = top + 14 + 18 * number
        body += line(x, y - 4, x + 16, y - 4, f"curve p{number % 8}")
        body += text(x + 22, y, short[number], "lab", whole=name)
    desc = f"True positives against false positives of {', '.join(curves)}; the dashed line is "
    desc += "guessing."
    return figure(WIDTH, top + side + 40, body, title="ROC of each membership attack", desc=desc)


def _roc_panel(curves: Curves, left: float, top: float, side: float, least: float | None) -> str:
    def place(rate: float) -> float:
        if least is None:
            return rate
        return 1 - math.log10(max(rate, least)) / math.log10(least)

    axes = _Panel(left, top, side, side)
    title = "all false alarms" if least is None else "few false alarms (logarithmic)"
    rates = (0.0, 0.25, 0.5, 0.75, 1.0) if least is None else (0.001, 0.01, 0.1, 1.0)
    marks = [(place(rate), f"{100 * rate:g}%") for rate in rates]
    body = text(left, top - 8, title, "lab strong") + axes.backdrop()
    body += axes.across(marks, "others called members", grid=True) + axes.upwards(marks, grid=True)
    body += axes.path([(0.0, 0.0), (1.0, 1.0)], "curve chance")
    for number, (fpr, tpr) in enumerate(curves.values()):
        points = [(place(a), place(b)) for a, b in _steps(fpr, tpr, least)]
        body += axes.path(points, f"curve p{number % 8}")
    return body


def _steps(fpr: Sequence[float], tpr: Sequence[float], least: float | None) -> Points:
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

    Takes synthetic rows per cell, and edges, one more than cells.
    """
    axes, cells = _Panel(46.0, 12.0, 854.0, 184.0), max(len(to_train), 1)
    high = max([*to_train, *to_control, 1])
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    marks = [(s, f"{edges[0] + (edges[-1] - edges[0]) * s:.3g}") for s in shares]
    body = line(axes.x(0), axes.y(0), axes.x(1), axes.y(0), "base")
    body += axes.across(marks, "Gower distance")
    outline = [(0.0, 0.0)]
    for i, (ours, theirs) in enumerate(zip(to_train, to_control, strict=True)):
        x, y, width = axes.x(i / cells), axes.y(ours / high), axes.width / cells
        tip = f"{edges[i]:.3g} to {edges[i + 1]:.3g}: {ours} to training, {theirs} to control rows"
        body += rect(x + 0.5, y, max(width - 1, 0.6), axes.y(0) - y, "syn", tip=tip)
        outline += [(i / cells, theirs / high), ((i + 1) / cells, theirs / high)]
    body += axes.path([*outline, (1.0, 0.0)], "real-line")
    desc = "How far synthetic rows are from the closest training row and control row."
    title = "Distance to the closest record"
    return figure(WIDTH, 236, body, title=title, desc=desc)


# The table itself: one chart per column, and association heat maps


def distribution(synthetic: Marginal, real: Marginal | None) -> str:
    """One column, 300 pixels wide, with the real one of the same labels behind it if given."""
    draw = _histogram if synthetic.ordered else _categories
    body, height = draw(synthetic, real)
    top = max(range(len(synthetic.labels)), key=synthetic.proportions.__getitem__, default=0)
    mode = synthetic.labels[top] if synthetic.labels else "none"
    title = f"{synthetic.column}, {'synthetic against real' if real else 'synthetic'}"
    desc = f"{len(synthetic.labels)} values, the most frequent is {mode}."
    return figure(300, height, body, title=title, desc=desc)


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
    high = _height(synthetic.proportions, real.proportions if real else ())
    body = line(0, bottom, 300, bottom, "base")
    outline: Points = [(0.0, bottom)]
    for number, label in enumerate(synthetic.labels):
        lone = bool(gap) and number == bins - 1
        x = width * number + (gap if lone else 0)
        share = synthetic.proportions[number]
        tip = f"{label}: {words.percent(share)} synthetic"
        tip += f", {words.percent(real.proportions[number])} real" if real else ""
        tall = (bottom - top) * min(share / high, 1.0)
        kind = "syn missing" if lone else "syn"
        body += rect(x + 0.6, bottom - tall, max(width - 1.2, 0.8), tall, kind, tip=tip)
        if share > high:  # cut off, so that the others can be seen
            body += rect(x, top + 12, width, 3, "cut")
            anchor = "end" if x > 150 else "start"
            at = x - 4 if x > 150 else x + width + 4
            body += text(at, top + 18, words.percent(share), "ax", anchor)
        if real:
            y = bottom - (bottom - top) * min(real.proportions[number] / high, 1.0)
            outline += [(outline[-1][0], bottom), (x, bottom)] if lone else []
            outline += [(x, y), (x + width, y)]
    if real:
        body += path([*outline, (outline[-1][0], bottom)], "real-line")
    last = bins - 2 if gap else bins - 1
    first = synthetic.labels[0]
    body += text(0, bottom + 15, words.shorten(first, 22), "ax", whole=first)
    if last > 0:
        at = 244.0 if gap else 300.0
        end = synthetic.labels[last]
        body += text(at, bottom + 15, words.shorten(end, 22), "ax", "end", whole=end)
    if synthetic.logarithmic:
        body += text(at if last > 0 else 300.0, 9, "logarithmic axis", "ax", "end")
    if gap:
        body += text(300, bottom + 15, "missing", "ax", "end")
    return body, 136.0


def _height(synthetic: Sequence[float], real: Sequence[float]) -> float:
    """What the highest bar stands for: the largest share, or less if it dwarfs all others."""
    shares = [max(pair) for pair in zip(synthetic, real or synthetic, strict=True)]
    largest, *others = sorted(shares, reverse=True) or [1.0]
    following = others[0] if others else largest
    return 1.5 * following if largest > 5 * following > 0 else largest or 1.0


def _categories(synthetic: Marginal, real: Marginal | None) -> tuple[str, float]:
    rows = _fold(synthetic, real)
    high = max((max(share, other or 0.0) for _, share, other in rows), default=1.0) or 1.0
    left, span, pitch, body = 112.0, 142.0, 17.0, ""
    short = words.shorten_apart([label for label, _, _ in rows], 17)
    for number, (label, share, other) in enumerate(rows):
        y = pitch * number + 2
        tip = f"{label}: {words.percent(share)} synthetic"
        body += text(left - 7, y + 11, short[number], "ax", "end", whole=label)
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
    alone = CATEGORIES + 1 if len(order) <= CATEGORIES + 1 else CATEGORIES
    rows: list[tuple[str, float, float | None]] = [
        (synthetic.labels[i], synthetic.proportions[i], real.proportions[i] if real else None)
        for i in order[:alone]
    ]
    if rest := order[alone:]:
        share = sum(synthetic.proportions[i] for i in rest)
        other = sum(real.proportions[i] for i in rest) if real else None
        rows.append((f"{len(rest)} others", share, other))
    return rows


def heat_maps(
    synthetic: Association, real: Association | None, cliques: Sequence[Sequence[str]] = ()
) -> str:
    """Association of every pair of columns: synthetic, or real, synthetic and their difference.

    Real and synthetic names are the same; pairs inside a clique of the model are dotted. The
    picture is as wide as it takes.
    """
    synthetic, real = _trim(synthetic), _trim(real) if real else None
    names, width = synthetic.names, len(synthetic.names)
    side = max(min((250.0 if real else 430.0) / max(width, 1), 26.0), 3.0)
    left = 104.0 if width <= LABELLED else 8.0
    panels = [("synthetic", synthetic.values, "heat")]
    if real:
        gaps = tuple(
            tuple(a - b for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in zip(synthetic.values, real.values, strict=True)
        )
        panels = [("real", real.values, "heat"), *panels, ("synthetic − real", gaps, "gap")]
    body, x = _labels(names, left, side, below=False), left
    for title, values, kind in panels:
        body += text(x, 14, title, "lab strong") + _cells(names, values, kind, x, side)
        if title == "synthetic":
            body += _dots(names, cliques, x, side)
        body += _labels(names, x, side, below=True)
        x += side * width + 22
    tall = 22 + side * width + (104 if width <= LABELLED else 8)
    desc = f"{width} columns; {', '.join(title for title, _, _ in panels)}. The strongest "
    desc += "pairs are listed in the table beside it."
    title = f"{synthetic.measure} of every pair of columns"
    return figure(max(x - 22, left + 120), tall, body, title=title, desc=desc)


def _trim(whole: Association) -> Association:
    """The first columns, as many as a picture can show."""
    values = tuple(row[:WIDEST] for row in whole.values[:WIDEST])
    return Association(names=whole.names[:WIDEST], values=values, measure=whole.measure)


def _labels(names: Sequence[str], x: float, side: float, *, below: bool) -> str:
    """Names of columns, left of a heat map or turned below it."""
    body, small = "", "ax" if side >= 9 else "ax tiny"
    short = words.shorten_apart(names, 15 if below else 16) if len(names) <= LABELLED else []
    for i, (name, label) in enumerate(zip(names, short, strict=False)):
        if below:
            at = f"{num(x + side * (i + 0.5) + 3.5)},{num(22 + side * len(names) + 6)}"
            turned = text(0, 0, label, small, "end", whole=name)
            body += f'<g transform="translate({at}) rotate(-90)">{turned}</g>'
        else:
            y = 22 + side * (i + 0.5) + 3.5
            body += text(x - 6, y, label, small, "end", whole=name)
    return body


def _cells(
    names: Sequence[str], values: Sequence[Sequence[float]], kind: str, x: float, side: float
) -> str:
    """Coloured cells: each with a tooltip, or, of a wide table, one shape per colour."""
    width = len(names)
    body = rect(x, 22, side * width, side * width, "backdrop")
    levels: dict[str, list[str]] = {}
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            cls = "self" if i == j else _level(value, kind)
            if width <= CELLS:
                tip = f"{names[i]} × {names[j]}: {value:.2f}"
                left, top = x + side * j + 0.5, 22 + side * i + 0.5
                body += rect(left, top, side - 1, side - 1, cls, tip=tip)
            else:
                levels.setdefault(cls, []).append(f"M{j} {i}h1v1h-1z")
    if width <= CELLS:
        return body
    shapes = "".join(f'<path class="{cls}" d="{"".join(d)}"/>' for cls, d in levels.items())
    return body + f'<g transform="translate({num(x)},22) scale({side:.3f})">{shapes}</g>'


def _level(value: float, kind: str) -> str:
    """CSS class of a cell: h0..h10, or g0..g10 above and l0..l10 below zero."""
    if kind == "heat":
        return f"h{round(10 * min(max(value, 0.0), 1.0))}"
    return f"{'g' if value >= 0 else 'l'}{round(10 * min(abs(value) / 0.5, 1.0))}"


def _dots(names: Sequence[str], cliques: Sequence[Sequence[str]], x: float, side: float) -> str:
    """A dot on every pair inside a clique."""
    if len(names) > CELLS:
        return ""
    place = {name: i for i, name in enumerate(names)}
    joined = {frozenset(pair) for clique in cliques for pair in combinations(clique, 2)}
    body = ""
    for pair in sorted(sorted(pair) for pair in joined):
        if all(name in place for name in pair):
            i, j = sorted(place[name] for name in pair)
            body += circle(x + side * (j + 0.5), 22 + side * (i + 0.5), 2, "dot")
    return body


def strongest_pairs(
    synthetic: Association, real: Association | None, count: int = 10
) -> list[tuple[str, str, float, float | None]]:
    """Pairs to list: strongest in the synthetic table, or furthest from the real one if given.

    Each as (column, column, synthetic value, real value or None); the first ones matter most.
    """
    found: list[tuple[float, str, str, float, float | None]] = []
    for i, j in combinations(range(len(synthetic.names)), 2):
        ours = synthetic.values[i][j]
        theirs = real.values[i][j] if real else None
        weight = ours if theirs is None else abs(ours - theirs)
        found.append((weight, synthetic.names[i], synthetic.names[j], ours, theirs))
    found.sort(key=lambda item: (-item[0], item[1], item[2]))
    return [item[1:] for item in found[:count]]
