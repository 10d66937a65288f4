"""The pictures of both pages, as inline SVG.

Each function takes plain records or numbers and gives one ``<svg>`` with a title and a description,
924 pixels wide where it says nothing else. Colours are CSS classes, so that a page chooses light or
dark.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import accumulate, combinations, pairwise
from pathlib import Path
from statistics import median
from textwrap import wrap
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
"""Width of a picture, in CSS pixels, where its function says nothing else."""
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

# Dots of a ledger's curve, at most.
_DOTS = 400
# Colours of mechanisms (classes m0 to m5) and of curves (p0 to p7) in style.css.
_MECHANISM_COLOURS = 6
_CURVE_COLOURS = 8
# Characters that fit beside the end of a curve, and before the bar of a category.
_BESIDE = 22
_BEFORE = 17
# Lines of a category's name, at most, and how far apart they are.
_LINES = 3
_LINE = 11.0
# Width of a chart of one column.
_CHART = 300.0
# A bin is a single number, and no stretch of the axis, up to this share of the axis.
_POINT = 1e-9
# A smaller number ends a bin that holds 0 alone.
_TINY = 1e-300
# Steps between the marks of a histogram's axis, about.
_MARKS = 5
# Marks in this share of the axis at its ends are written inwards.
_CORNER = 0.08
# A gap of the associations that has the darkest colour.
_DARKEST_GAP = 0.5
# Width of one of the two grids of a pair of columns.
_GRID = 300.0
# Letters of a label beside or below a grid, at most; a name of this length is about 220 wide.
_LABEL = 36
# Font size of labels, as style.css has it, and the least height of a cell that has one beside it.
_LABEL_SIZE = 11.0
_PITCH = 10.0
# A picture of heat maps is drawn at no less than this share of its size; the page scrolls instead.
_LEAST_SCALE = 0.75
# Width of a single heat map with its labels, beside which the page has a table.
_ONE_MAP = 620.0
# Widths of letters in parts of the font size, in DejaVu Sans. Other fonts of the page are narrower.
_NARROW_LETTERS = frozenset(" !'(),-./:;I[]fijlrt|")
_WIDE_LETTERS = frozenset("%@MWmw—…")
# Points of a curve between two of a ROC curve, on a logarithmic axis.
_BETWEEN = 24
# Where heat maps begin, below their titles, and how far they are apart.
_HEAT_TOP = 22
_BETWEEN_MAPS = 22


def figure(
    width: float,
    height: float,
    body: str,
    *,
    title: str,
    desc: str,
    least_width: float = 0.0,
) -> str:
    """Wrap shapes into an accessible image that scales down with its column.

    Sizes are in CSS pixels. Where the column is narrower than `least_width`, it scrolls.
    """
    style = ""
    if least_width:
        style = f' style="min-width:{num(least_width)}px"'
    mark = hashlib.blake2b(f"{title}{desc}{body}".encode(), digest_size=5).hexdigest()
    return (
        f'<svg viewBox="0 0 {num(width)} {num(height)}" width="{num(width)}" '
        f'height="{num(height)}"{style} role="img" aria-labelledby="t{mark} d{mark}">'
        f'<title id="t{mark}">{escape(title)}</title>'
        f'<desc id="d{mark}">{escape(desc)}</desc>{body}</svg>'
    )


def num(value: float) -> str:
    """Write a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text_width(content: str, size: float = _LABEL_SIZE) -> float:
    """Estimate how wide a text is drawn; in most fonts it is a little narrower.

    >>> text_width("ill") < text_width("age") < text_width("MMM")
    True
    """
    widths = 0.0
    for letter in content:
        if letter in _NARROW_LETTERS:
            widths += 0.4
        elif letter in _WIDE_LETTERS or unicodedata.east_asian_width(letter) in "WF":
            widths += 1.0
        elif letter.isupper() or letter.isdigit():
            widths += 0.69
        else:
            widths += 0.62
    return size * widths


def text(
    x: float,
    y: float,
    content: str,
    cls: str = "",
    anchor: str = "start",
    *,
    whole: str = "",
) -> str:
    """Return a text as SVG, escaped; `anchor` is start, middle or end.

    Where `whole` is another text, of which the content is a part, pointing at it shows it.
    """
    attributes = f' class="{cls}"' if cls else ""
    if anchor != "start":
        attributes += f' text-anchor="{anchor}"'
    place = f'x="{num(x)}" y="{num(y)}"'
    tip = ""
    if whole not in ("", content):
        tip = f"<title>{escape(whole)}</title>"
    return f"<text {place}{attributes}>{tip}{escape(content)}</text>"


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    cls: str,
    *,
    tip: str = "",
    rx: float = 0,
) -> str:
    """Return a rectangle with an optional tooltip; one of negative size is not drawn."""
    shape = (
        f'<rect x="{num(x)}" y="{num(y)}" width="{num(max(width, 0))}" '
        f'height="{num(max(height, 0))}" class="{cls}"'
    )
    if rx:
        shape += f' rx="{num(rx)}"'
    if not tip:
        return f"{shape}/>"
    return f"{shape}><title>{escape(tip)}</title></rect>"


def line(x1: float, y1: float, x2: float, y2: float, cls: str) -> str:
    """Return a straight line as SVG."""
    return f'<line x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}" class="{cls}"/>'


def circle(x: float, y: float, radius: float, cls: str) -> str:
    """Return a dot as SVG."""
    return f'<circle cx="{num(x)}" cy="{num(y)}" r="{radius:g}" class="{cls}"/>'


def path(points: Points, cls: str, *, close: bool = False) -> str:
    """Return a line through `points` as SVG, closed into an area if asked."""
    element = "polygon" if close else "polyline"
    coordinates = " ".join(f"{num(x)},{num(y)}" for x, y in points)
    return f'<{element} points="{coordinates}" class="{cls}"/>'


def ticks(high: float, count: int = 4) -> list[float]:
    """Return round axis values from 0 to at least `high`.

    >>> ticks(0.97)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if not high > 0 or math.isinf(high):
        return [0.0, 1.0]
    exact_step = high / count
    power = 10.0 ** math.floor(math.log10(exact_step))
    # The least round step that suffices. A step that rounding makes too small by a last digit is
    # not passed over.
    round_steps = (multiple * power for multiple in (1, 2, 2.5, 5, 10))
    step = next(step for step in round_steps if step >= exact_step * (1 - 1e-9))
    last = math.ceil(high / step * (1 - 1e-9))
    return [round(step * i, 12) for i in range(last + 1)]


def colour_of(number: int) -> int:
    """Return the colour number of a mechanism by its place; late ones share the last colour."""
    return min(number, _MECHANISM_COLOURS - 1)


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
        """Draw the marks of the horizontal axis, and its label."""
        body = text(self.x(0.5), self.y(0) + 32, label, "ax", "middle")
        for share, mark in marks:
            x = self.x(share)
            if grid:
                body += line(x, self.y(1), x, self.y(0), "grid")
            body += text(x, self.y(0) + 15, mark, "ax", "middle")
        return body

    def upwards(self, marks: Marks, *, grid: bool = False) -> str:
        """Draw the marks of the vertical axis."""
        body = ""
        for share, mark in marks:
            y = self.y(share)
            if grid:
                body += line(self.x(0), y, self.x(1), y, "grid")
            body += text(self.left - 6, y + 4, mark, "ax", "end")
        return body


class Picture:
    """A picture of the report by itself, which notebooks show and `save` stores as SVG.

    Args:
        svg: An ``<svg>`` element as the pages have it.

    Example:
        >>> picture = Picture('<svg viewBox="0 0 9 9"><rect class="syn"/></svg>')
        >>> "xmlns" in picture.svg, ".syn" in picture.svg, "body{" in picture.svg
        (True, True, False)
    """

    def __init__(self, svg: str) -> None:
        # A page needs neither: it has the styles itself, and knows what an <svg> is.
        name_end = svg.index("<svg") + len("<svg")
        tag_end = svg.index(">") + 1
        tag = f"{svg[:name_end]} xmlns='http://www.w3.org/2000/svg'{svg[name_end:tag_end]}"
        self.svg = f"{tag}<style>{_style_of(svg)}</style>{svg[tag_end:]}"

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
            raise InputError(
                f"cannot write {path}: its folder does not exist; create it first"
            )
        path.write_text(self.svg, encoding="utf-8")
        return path


def _style_of(svg: str) -> str:
    """Return the colours, and the style rules of the classes that a picture uses."""
    css = resources.files("siloweave.report").joinpath("style.css").read_text("utf-8")
    attributes = re.findall(r'class="([^"]*)"', svg)
    classes = {name for attribute in attributes for name in attribute.split()}
    colours = ""
    rules = []
    for selectors, body in re.findall(r"([^{}@]+)\{([^{}]*)\}", css):
        # The first rule of this kind has the light colours, a later one the dark ones.
        if selectors.strip() == ":root" and not colours:
            colours = f"svg{{{body.strip()}}}"
        for selector in selectors.split(","):
            if classes & set(re.findall(r"\.([\w-]+)", selector)):
                name = selector.strip().removeprefix("svg ")
                rules.append(f"svg {name}{{{body.strip()}}}")
    font = "svg text{font:12px system-ui,sans-serif;fill:var(--ink)}"
    return "".join([colours, font, *rules])


# Cost: what epsilon means to an attacker, the ledger, bytes


def power_curve(epsilon: float, delta: float) -> str:
    """Draw the best attack that ε and δ leave: true positives by false alarms; 240 by 230."""
    axes = _Panel(38.0, 10.0, 184.0, 184.0)
    rates = [i / 200 for i in range(201)]
    power = [(rate, words.attacker_power(rate, epsilon, delta)) for rate in rates]
    curve = [(0.0, 0.0), *power]

    marks = [(0.0, "0%"), (0.5, "50%"), (1.0, "100%")]
    body = axes.backdrop()
    body += axes.across(marks, "false alarms")
    body += axes.upwards(marks)
    body += axes.path([*curve, (1.0, 1.0), (0.0, 0.0)], "reach", close=True)
    body += line(axes.x(0), axes.y(0), axes.x(1), axes.y(1), "chance")
    body += axes.path(curve, "bound")
    body += text(axes.x(0) + 8, axes.y(1) + 16, "found", "ax")
    body += text(axes.x(1) - 8, axes.y(0) - 10, "guessing", "ax", "end")

    best = words.at_most(words.attacker_power(0.01, epsilon, delta))
    desc = f"With ε = {words.epsilon(epsilon)}, a test that raises 1% false alarms finds at "
    desc += f"most {best} of the rows it looks for."
    return figure(240, 230, body, title="Best possible attack", desc=desc)


def by_party(ledgers: Sequence[LedgerRow]) -> dict[str, list[LedgerRow]]:
    """Return the ledger rows of each party, in order of index."""
    parties: dict[str, list[LedgerRow]] = {}
    for row in ledgers:
        parties.setdefault(row.party, []).append(row)
    return {
        name: sorted(rows, key=lambda row: row.index) for name, rows in parties.items()
    }


def mechanisms(ledgers: Iterable[LedgerRow]) -> list[str]:
    """Return names of the mechanisms used, the most frequent first."""
    counts = Counter(row.mechanism for row in ledgers)
    return sorted(counts, key=lambda name: (-counts[name], name))


# Where the curve of ledgers is drawn; to its right is room for the names of parties.
_LEDGER = _Panel(44.0, 12.0, 716.0, 216.0)


def staircase(ledgers: Sequence[LedgerRow], allowed: float) -> str:
    """Draw the cumulative ε of releases, below the ε that the budget allows.

    Up to eight different curves are drawn one by one (equal ones share a line); more become the
    highest curve over the band of the middle 80% of parties.
    """
    # Who has which curve; curves that differ in the last bits are one.
    parties = by_party(ledgers)
    curves: dict[tuple[float, ...], list[str]] = {}
    for name, rows in parties.items():
        curve = tuple(round(row.cumulative_epsilon, 9) for row in rows)
        curves.setdefault(curve, []).append(name)

    finite = [value for curve in curves for value in curve if math.isfinite(value)]
    limit = allowed if math.isfinite(allowed) else 0.0
    high = 1.09 * max([*finite, limit, 1e-6])
    longest = max((len(curve) for curve in curves), default=1)

    # Axes: ε upwards, whole numbers of releases to the right.
    marks = [
        (mark / high, words.rounded(mark)) for mark in ticks(high, 5) if mark <= high
    ]
    body = _LEDGER.upwards(marks, grid=True)
    inside = [mark for mark in ticks(longest, 6) if 0 < mark <= longest]
    marks = [
        (mark / longest, words.count(mark)) for mark in inside if mark == int(mark)
    ]
    body += _LEDGER.across(marks, "releases of one party, in order")

    if math.isfinite(allowed):
        y = _LEDGER.y(allowed / high)
        body += line(_LEDGER.x(0), y, _LEDGER.x(1), y, "limit")
        body += text(_LEDGER.x(0) + 6, y - 5, f"allowed ε = {allowed:g}", "limit-text")

    if len(curves) > MANY:
        weights = [len(names) for names in curves.values()]
        body += _envelope(list(curves), weights, longest, high)
    else:
        body += _curves(curves, parties, longest, high)

    top = max((curve[-1] for curve in curves if curve), default=0.0)
    noun = "release" if longest == 1 else "releases"
    desc = f"{words.parties(len(parties))}, up to {longest} {noun} each; the highest ends at "
    desc += f"ε = {words.epsilon(top)} of {words.epsilon(allowed)} allowed."
    return figure(WIDTH, 270, body, title="Cumulative ε by release", desc=desc)


def _stairs(curve: Sequence[float], longest: int, high: float) -> Points:
    """Turn a curve into steps, in shares of the longest curve and of the largest value."""
    points = [(0.0, 0.0)]
    last = 0.0
    for place, value in enumerate(curve):
        share = min(value / high, 1.0)
        points += [(place / longest, last), (place / longest, share)]
        last = share
    return [*points, (len(curve) / longest, last)]


def _beside(ends: Sequence[tuple[float, str]]) -> tuple[str, float]:
    """Draw labels beside the ends of curves, moved apart where they would overlap.

    Returns:
        The texts, and how far down the last one stands.
    """
    body = ""
    floor = _LEDGER.top - 4
    for share, label in sorted(ends, key=lambda end: -end[0]):
        # Each at least a line below the one above it.
        floor = max(_LEDGER.y(share) + 4, floor + 14)
        body += text(_LEDGER.x(1) + 8, floor, label, "lab")
    return body, floor


def _curves(
    curves: Mapping[tuple[float, ...], list[str]],
    parties: Mapping[str, list[LedgerRow]],
    longest: int,
    high: float,
) -> str:
    """Draw one staircase per distinct curve, the highest with a dot per release, by mechanism."""
    body = ""
    ends = []
    dearest = max(curves, key=lambda curve: curve[-1:])
    for curve, names in curves.items():
        stairs = _stairs(curve, longest, high)
        cls = "curve p0" if curve == dearest else "curve faint"
        body += _LEDGER.path(stairs, cls)

        # The names of the parties, or how many there are where names need too much room.
        spent = words.epsilon(curve[-1] if curve else 0.0)
        label = f"ε = {spent}: {', '.join(names)}"
        if len(names) > 1 and len(label) > _BESIDE:
            crowd = words.parties(len(names))
            if len(names) == len(parties):
                crowd = f"all {crowd}"
            label = f"ε = {spent}: {crowd}"
        # A long name goes on in the lines below.
        for piece in wrap(label, _BESIDE):
            ends.append((stairs[-1][1], piece))

    kinds = mechanisms(row for rows in parties.values() for row in rows)
    first_party = curves[dearest][0]
    for position, row in enumerate(parties[first_party][:_DOTS]):
        colour = colour_of(kinds.index(row.mechanism))
        # A release is the middle of its step.
        x = (position + 0.5) / longest
        y = min(row.cumulative_epsilon / high, 1.0)
        body += circle(_LEDGER.x(x), _LEDGER.y(y), 3, f"m{colour}")

    labels, _ = _beside(ends)
    return body + labels


def _envelope(
    curves: Sequence[tuple[float, ...]],
    weights: Sequence[int],
    longest: int,
    high: float,
) -> str:
    """Draw the highest curve over the band between the 10th and 90th percentile of parties."""
    lower = _quantiles(curves, weights, longest, 0.1)
    median = _quantiles(curves, weights, longest, 0.5)
    upper = _quantiles(curves, weights, longest, 0.9)
    highest = _quantiles(curves, weights, longest, 1.0)

    low_stairs = _stairs(lower, longest, high)
    median_stairs = _stairs(median, longest, high)
    upper_stairs = _stairs(upper, longest, high)
    highest_stairs = _stairs(highest, longest, high)
    body = _LEDGER.path([*upper_stairs, *reversed(low_stairs)], "band", close=True)
    body += _LEDGER.path(median_stairs, "curve faint")
    body += _LEDGER.path(highest_stairs, "curve p0")

    ends = [
        (highest_stairs[-1][1], f"{words.epsilon(highest[-1])}  highest party"),
        (median_stairs[-1][1], f"{words.epsilon(median[-1])}  median party"),
    ]
    labels, floor = _beside(ends)
    return body + labels + text(_LEDGER.x(1) + 8, floor + 14, "band: middle 80%", "ax")


def _quantiles(
    curves: Sequence[tuple[float, ...]],
    weights: Sequence[int],
    longest: int,
    share: float,
) -> list[float]:
    """Return, release by release, the ε that such a share of the parties does not exceed.

    Args:
        curves: Cumulative ε; a party without further releases stays where it is.
        weights: How many parties have each curve.
        longest: Releases of the longest curve.
        share: From 0 to 1.
    """
    quantiles = []
    for position in range(longest):
        values = [_value_at(curve, position) for curve in curves]
        pairs = sorted(zip(values, weights, strict=True))
        masses = list(accumulate(weight for _, weight in pairs))
        place = next(i for i, mass in enumerate(masses) if mass >= share * masses[-1])
        quantiles.append(pairs[place][0])
    return quantiles


def _value_at(curve: tuple[float, ...], position: int) -> float:
    """Return a curve's value at a release, or its last value if it ended before."""
    if not curve:
        return 0.0
    return curve[min(position, len(curve) - 1)]


def byte_profile(parties: Sequence[PartyCost]) -> str:
    """Draw the bytes that parties sent and received, each sorted from most to least."""
    axes = _Panel(60.0, 12.0, 700.0, 164.0)
    most = max(max(p.bytes_sent, p.bytes_received) for p in parties) or 1
    marks = [(share, words.size(most * share)) for share in (0.0, 0.5, 1.0)]
    body = axes.upwards(marks, grid=True)
    label = f"{words.parties(len(parties))}, each line from most to least"
    body += axes.across((), label)

    # A line of thousands of parties needs no more points than it has pixels.
    last = len(parties) - 1
    places = sorted({round(i * last / 200) for i in range(201)})
    for kind in ("received", "sent"):
        amounts = sorted((getattr(p, f"bytes_{kind}") for p in parties), reverse=True)
        points = [(i / last, amounts[i] / most) for i in places]
        body += axes.path(points, f"curve line-{kind}")

    total = words.size(sum(p.bytes_sent + p.bytes_received for p in parties))
    desc = f"{words.parties(len(parties))}, {total} sent and received in total."
    return figure(WIDTH, 214, body, title="Bytes on the wire by party", desc=desc)


def training_curve(looks: Sequence[TrainingLook]) -> str:
    """Draw the loss on rows held back by seconds of training, with a dot at the least.

    It takes losses at two times or more.
    """
    axes = _Panel(60.0, 12.0, 700.0, 164.0)
    longest = max(look.seconds for look in looks)
    seconds = ticks(longest)
    end = seconds[-1]

    losses = [look.loss for look in looks]
    least = min(losses)
    spread = (max(losses) - least) or 1.0
    points = [(look.seconds / end, (look.loss - least) / spread) for look in looks]

    marks = [
        (share, words.rounded(least + spread * share)) for share in (0.0, 0.5, 1.0)
    ]
    body = axes.upwards(marks, grid=True)
    body += axes.across([(mark / end, f"{mark:g} s") for mark in seconds], "training")
    body += axes.path(points, "curve line-sent")

    best = min(looks, key=lambda look: look.loss)
    x, y = points[list(looks).index(best)]
    body += circle(axes.x(x), axes.y(y), 4, "dot")
    desc = f"The loss of rows held back was {words.rounded(best.loss)} at best, after "
    desc += f"{best.seconds:.0f} seconds and {best.step:,} steps; "
    desc += f"training ended after {longest:.0f} seconds."
    return figure(WIDTH, 214, body, title="Loss of rows held back", desc=desc)


# Attacks


def receiver_curves(curves: Curves) -> str:
    """Draw ROC curves of membership attacks, plain and with few false alarms spread out."""
    side = 300.0
    top = 26.0
    left = 46.0
    body = _roc_panel(curves, left, top, side, least=None)
    body += _roc_panel(curves, left + side + 70, top, side, least=1e-3)

    # The names of the attacks, to the right of both.
    x = left + 2 * side + 92
    labels = words.shorten_apart(list(curves), 24)
    for number, name in enumerate(curves):
        y = top + 14 + 18 * number
        body += line(x, y - 4, x + 16, y - 4, f"curve p{number % _CURVE_COLOURS}")
        body += text(x + 22, y, labels[number], "lab", whole=name)

    desc = f"True positives against false positives of {', '.join(curves)}; the dashed line is "
    desc += "guessing."
    return figure(
        WIDTH, top + side + 40, body, title="ROC of each membership attack", desc=desc
    )


def _roc_panel(
    curves: Curves, left: float, top: float, side: float, least: float | None
) -> str:
    """Draw ROC curves on plain axes, or on logarithmic ones from a least rate on."""

    def place(rate: float) -> float:
        if least is None:
            return rate
        return 1 - math.log10(max(rate, least)) / math.log10(least)

    title = "few false alarms (logarithmic)"
    rates: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)
    if least is None:
        title = "all false alarms"
        rates = (0.0, 0.25, 0.5, 0.75, 1.0)

    axes = _Panel(left, top, side, side)
    marks = [(place(rate), f"{100 * rate:g}%") for rate in rates]
    body = text(left, top - 8, title, "lab strong")
    body += axes.backdrop()
    body += axes.across(marks, "others called members", grid=True)
    body += axes.upwards(marks, grid=True)
    body += axes.path([(0.0, 0.0), (1.0, 1.0)], "curve chance")
    for number, (fpr, tpr) in enumerate(curves.values()):
        points = [(place(a), place(b)) for a, b in _roc_points(fpr, tpr, least)]
        body += axes.path(points, f"curve p{number % _CURVE_COLOURS}")
    return body


def _roc_points(
    fpr: Sequence[float], tpr: Sequence[float], least: float | None
) -> Points:
    """Return a ROC curve's points; from a least rate on with points between, as logarithms bend.

    Rows with equal scores raise both rates at once. Who breaks such ties by a coin is on the
    straight line between both points, which a logarithmic axis shows as a curve and not as a step.
    """
    points = list(zip(fpr, tpr, strict=True))
    if least is None:
        return points
    bent = []
    for (a, b), (next_a, next_b) in pairwise(points):
        # A line to the right, or up, has the same shape on any axis.
        steps = _BETWEEN if next_a > a and next_b > b else 1
        for step in range(steps):
            # Most points near the left end, where the axis is widest.
            share = (step / steps) ** 2
            bent.append((a + (next_a - a) * share, b + (next_b - b) * share))
    bent += points[-1:]
    return _from_rate(bent, least)


def _from_rate(points: Points, least: float) -> Points:
    """Return the part of a curve from a least rate on, which begins where the curve is there."""
    cut = []
    for (a, b), (next_a, next_b) in pairwise(points):
        if a < least < next_a:
            share = (least - a) / (next_a - a)
            cut.append((least, b + (next_b - b) * share))
    return [*cut, *((a, b) for a, b in points if a >= least)]


def distances(
    edges: Sequence[float], to_train: Sequence[int], to_control: Sequence[int]
) -> str:
    """Draw how far synthetic rows are from the closest training row, and the closest control row.

    Takes synthetic rows per cell, and edges, one more than cells.
    """
    axes = _Panel(46.0, 12.0, 854.0, 184.0)
    cells = max(len(to_train), 1)
    high = max([*to_train, *to_control, 1])

    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    span = edges[-1] - edges[0]
    marks = [(share, f"{edges[0] + span * share:.3g}") for share in shares]
    body = line(axes.x(0), axes.y(0), axes.x(1), axes.y(0), "base")
    body += axes.across(marks, "Gower distance")

    # Training rows as bars, control rows as the outline of theirs.
    width = axes.width / cells
    outline = [(0.0, 0.0)]
    for i, (train, control) in enumerate(zip(to_train, to_control, strict=True)):
        x = axes.x(i / cells)
        y = axes.y(train / high)
        tip = f"{edges[i]:.3g} to {edges[i + 1]:.3g}: "
        tip += f"{train} to training, {control} to control rows"
        body += rect(x + 0.5, y, max(width - 1, 0.6), axes.y(0) - y, "syn", tip=tip)
        outline += [(i / cells, control / high), ((i + 1) / cells, control / high)]
    body += axes.path([*outline, (1.0, 0.0)], "real-line")

    desc = "How far synthetic rows are from the closest training row and control row."
    title = "Distance to the closest record"
    return figure(WIDTH, 236, body, title=title, desc=desc)


# The table itself: one chart per column, and association heat maps


def distribution(synthetic: Marginal, real: Marginal | None) -> str:
    """Draw one column's distribution, 300 pixels wide, with the real one behind it if given."""
    draw = _histogram if synthetic.ordered else _categories
    body, height = draw(synthetic, real)

    desc = _most_of(synthetic)
    tables = "synthetic against real" if real else "synthetic"
    title = f"{synthetic.column}, {tables}"
    return figure(_CHART, height, body, title=title, desc=desc)


def _most_of(column: Marginal) -> str:
    """Describe where most rows of a column are, for a reader who does not see the picture."""
    if not column.labels:
        return "No values."
    if not column.ordered:
        place = max(range(len(column.labels)), key=column.proportions.__getitem__)
        noun = "value" if len(column.labels) == 1 else "values"
        return (
            f"{len(column.labels)} {noun}; the most frequent is {column.labels[place]}."
        )

    scale = _scale(column)
    heights = scale.densities(column.proportions)
    if not heights:
        return "Every row has the same value, or none."
    place = scale.bins[heights.index(max(heights))].number
    noun = "bin" if len(heights) == 1 else "bins"
    return f"{len(heights)} {noun}; most rows per unit are in {column.labels[place]}."


def total_variation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the total variation distance of two distributions over the same labels.

    >>> total_variation([0.5, 0.5], [0.75, 0.25])
    0.25
    """
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2


class _Bin(NamedTuple):
    """A bin on an axis: which label it has, and where it begins and ends on the axis."""

    number: int
    start: float
    end: float


class _Scale(NamedTuple):
    """A histogram's axis of values, and the unit that heights are shares of rows per.

    Attributes:
        bins: In order. On a logarithmic axis ends are powers of ten.
        unit: In units of the axis; None for plain shares, as on a logarithmic one.
        marks: Places on the axis, in the same numbers as the ends of bins, and their labels.
        per: The unit in words.
    """

    bins: tuple[_Bin, ...]
    unit: float | None
    marks: tuple[tuple[float, str], ...]
    per: str

    def densities(self, proportions: Sequence[float]) -> list[float]:
        """Return the share of rows per unit of every bin, or its plain share."""
        if self.unit is None:
            return [proportions[column_bin.number] for column_bin in self.bins]
        return [
            proportions[number] * self.unit / (end - start)
            for number, start, end in self.bins
        ]


def densities(column: Marginal) -> list[float]:
    """Return the heights of a histogram: shares of rows per unit of the axis, bin by bin.

    A bin of three years that holds .09 of the rows has .03 a year. On a logarithmic axis heights
    are plain shares. Bins of a single number beside wider ones have no height, and neither has 0 on
    a logarithmic axis: both are left out.

    >>> ages = Marginal(column="age", kind="integer", labels=("38 to 40", "41 to 42"),
    ...                 proportions=(0.6, 0.4), ordered=True, edges=(38.0, 41.0, 43.0))
    >>> [round(density, 6) for density in densities(ages)]
    [0.2, 0.2]
    """
    return _scale(column).densities(column.proportions)


def _scale(column: Marginal) -> _Scale:
    """Return the axis of a histogram."""
    if not column.edges:
        # Records of earlier versions do not say how wide bins are.
        count = len(column.labels) - column.missing
        even = tuple(_Bin(i, float(i), float(i + 1)) for i in range(count))
        if not even:
            return _Scale((), 1.0, (), "bin")
        marks = ((0.0, column.labels[0]), (float(count), column.labels[count - 1]))
        return _Scale(even, 1.0, marks, "bin")

    edges = column.edges
    # A whole number is the middle of its bar: 38 to 40 is drawn from 37.5 to 40.5.
    shift = 0.5 if column.kind == "integer" else 0.0
    # A whole 0 by itself, beside wider bins.
    widths = [end - start for start, end in pairwise(edges)]
    has_lone_zero = column.kind == "integer" and median(widths or [1.0]) > 1
    bins = []
    for number, (start, end) in enumerate(pairwise(edges)):
        is_point = end - start <= _POINT * (edges[-1] - edges[0])
        if has_lone_zero and start == 0 and end == 1:
            is_point = True
        # Logarithms begin above 0, and above the end of a bin that holds 0 alone.
        if is_point or (column.logarithmic and start <= _TINY):
            continue
        first = start - shift
        stop = end - shift
        if column.logarithmic:
            first = math.log10(first)
            stop = math.log10(stop)
        bins.append(_Bin(number, first, stop))
    if not bins:
        return _Scale((), 1.0, (), "unit")

    first = bins[0].start
    stop = bins[-1].end
    if column.logarithmic:
        decades = range(math.ceil(first - 1e-9), math.floor(stop + 1e-9) + 1)
        every = math.ceil(len(decades) / _MARKS)
        powers = tuple((float(k), words.axis_number(10.0**k)) for k in decades[::every])
        # Shares of a factor of ten would be above 100% where bins are narrower than that.
        return _Scale(tuple(bins), None, powers, "bin")

    # The power of ten next to the width of bins, so that heights are shares one can read.
    sizes = sorted(column_bin.end - column_bin.start for column_bin in bins)
    unit = 10.0 ** math.floor(math.log10(sizes[len(sizes) // 2]))
    if column.kind == "datetime":
        dates = ((first, words.day(first)), (stop, words.day(stop)))
        return _Scale(tuple(bins), unit, dates, _days(unit))
    numbers = tuple(
        (mark, words.axis_number(mark))
        for mark in ticks_between(first, stop, whole=column.kind == "integer")
    )
    per = "unit" if unit == 1 else words.axis_number(unit)
    return _Scale(tuple(bins), unit, numbers, per)


def ticks_between(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return up to seven round axis values from `low` to `high`; whole ones if asked.

    >>> ticks_between(16.5, 90.5, whole=True)
    [20.0, 40.0, 60.0, 80.0]
    """
    exact_step = (high - low) / _MARKS
    power = 10.0 ** math.floor(math.log10(exact_step))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= exact_step)
    if whole:
        step = max(step, 1.0)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    return [round(step * i, 12) for i in range(first, last + 1)]


def _days(unit: float) -> str:
    """Write a number of days that is a power of ten."""
    return "day" if unit == 1 else f"{words.axis_number(unit)} days"


def _histogram(synthetic: Marginal, real: Marginal | None) -> tuple[str, float]:
    """Draw bins as wide as they are, with shares of rows per unit as heights.

    The real ones are an outline. What has no place on the axis is described in words below it.

    Returns:
        The shapes, and their height.
    """
    scale = _scale(synthetic)
    heights = scale.densities(synthetic.proportions)
    real_heights = scale.densities(real.proportions) if real else []
    high = _height(heights, real_heights)
    axes = _Panel(40.0, 20.0, _CHART - 44.0, 100.0)

    body = text(0, 10, f"share of rows per {scale.per}", "ax")
    if synthetic.logarithmic:
        body += text(_CHART, 10, "logarithmic axis", "ax", "end")
    marks = [(mark / high, f"{100 * mark:.4g}%") for mark in ticks(high, 2)]
    body += axes.upwards([mark for mark in marks if mark[0] <= 1], grid=True)

    if scale.bins:
        body += _histogram_bars(axes, scale, synthetic, real, high)
    body += line(axes.x(0), axes.y(0), axes.x(1), axes.y(0), "base")
    lines = _off_the_axis(synthetic, real, scale)
    bottom = axes.y(0) + 22
    for number, sentence in enumerate(lines, 1):
        body += text(0, bottom + 14 * number - 4, sentence, "ax")
    return body, bottom + 14 * len(lines)


def _histogram_bars(
    axes: _Panel,
    scale: _Scale,
    synthetic: Marginal,
    real: Marginal | None,
    high: float,
) -> str:
    """Draw the bars of a histogram, the outline of the real ones, and the axis below them."""
    low = scale.bins[0].start
    span = scale.bins[-1].end - low
    heights = scale.densities(synthetic.proportions)
    outline: Points = [(0.0, 0.0)]
    real_heights = scale.densities(real.proportions) if real else []

    body = ""
    for place, (number, start, end) in enumerate(scale.bins):
        left = axes.x((start - low) / span)
        width = axes.width * (end - start) / span
        share = synthetic.proportions[number]
        label = synthetic.labels[number]
        tip = f"{label}: {words.percent(share)} synthetic"
        if real:
            tip += f", {words.percent(real.proportions[number])} real"
            y = min(real_heights[place] / high, 1.0)
            outline += [((start - low) / span, y), ((end - low) / span, y)]

        top = axes.y(min(heights[place] / high, 1.0))
        # A hair between wide bars; narrow ones would lose too much of their width to it.
        gap = min(1.0, width / 8)
        body += rect(left + gap / 2, top, width - gap, axes.y(0) - top, "syn", tip=tip)
        if heights[place] > high:
            body += _cut_off(axes, left, width, f"{label}: {words.percent(share)}")
    if real:
        body += axes.path([*outline, (1.0, 0.0)], "real-line")
    return body + _axis_marks(axes, scale)


def _axis_marks(axes: _Panel, scale: _Scale) -> str:
    """Draw the marks below a histogram; those at its ends stay inside the picture."""
    low = scale.bins[0].start
    span = scale.bins[-1].end - low
    body = ""
    for mark, label in scale.marks:
        share = (mark - low) / span
        x = axes.x(share)
        body += line(x, axes.y(0), x, axes.y(0) + 3, "base")
        anchor = "middle"
        if share < _CORNER:
            anchor = "start"
        elif share > 1 - _CORNER:
            anchor = "end"
        short = words.shorten(label, 20)
        body += text(x, axes.y(0) + 15, short, "ax", anchor, whole=label)
    return body


def _cut_off(axes: _Panel, left: float, width: float, label: str) -> str:
    """Draw a break in a bar that is cut off so that the others can be seen, and its share."""
    body = rect(left, axes.top + 12, width, 3, "cut")
    short = words.shorten(label, 26)
    if left > axes.x(0.5):
        return body + text(left - 4, axes.top + 18, short, "ax", "end", whole=label)
    return body + text(left + width + 4, axes.top + 18, short, "ax", whole=label)


def _off_the_axis(
    synthetic: Marginal, real: Marginal | None, scale: _Scale
) -> list[str]:
    """Describe the shares that have no place on the axis: missing values, and single numbers."""
    drawn = {column_bin.number for column_bin in scale.bins}
    sentences = []
    for number, label in enumerate(synthetic.labels):
        share = synthetic.proportions[number]
        real_share = real.proportions[number] if real else 0.0
        if number in drawn or not share + real_share:
            continue
        sentence = f"{label}: {words.percent(share)}"
        if real:
            sentence += f" synthetic, {words.percent(real_share)} real"
        sentences.append(words.shorten(sentence, 50))
    return sentences


def _height(synthetic: Sequence[float], real: Sequence[float]) -> float:
    """Return the share that the full height stands for: the largest, or less if that is far off."""
    shares = [max(pair) for pair in zip(synthetic, real or synthetic, strict=True)]
    largest, *others = sorted(shares, reverse=True) or [1.0]
    second = others[0] if others else largest
    if largest > 5 * second > 0:
        return 1.5 * second
    return largest or 1.0


class _Category(NamedTuple):
    """One bar of a chart of categories, with the real share if tables are compared."""

    label: str
    share: float
    real: float | None


def _categories(synthetic: Marginal, real: Marginal | None) -> tuple[str, float]:
    """Draw a bar per category, and a thinner one for the real share.

    Returns:
        The shapes, and their height.
    """
    categories = _fold(synthetic, real)
    longest = [max(category.share, category.real or 0.0) for category in categories]
    high = max(longest, default=1.0) or 1.0
    # A name that is too long for all its lines is cut.
    labels = words.shorten_apart(
        [category.label for category in categories], _BEFORE * (_LINES - 1)
    )

    left = 112.0
    span = 142.0
    pitch = 17.0
    y = 2.0
    body = ""
    for number, category in enumerate(categories):
        lines = wrap(labels[number], _BEFORE) or [""]
        for place, piece in enumerate(lines):
            height = y + 11 + _LINE * place
            body += text(left - 7, height, piece, "ax", "end", whole=category.label)
        tip = f"{category.label}: {words.percent(category.share)} synthetic"
        width = span * category.share / high
        if category.real is None:
            body += rect(left, y + 2, width, 11, "syn", tip=tip, rx=1.5)
        else:
            tip += f", {words.percent(category.real)} real"
            real_width = span * category.real / high
            body += rect(left, y + 1, width, 7.5, "syn", tip=tip, rx=1.5)
            body += rect(left, y + 9.5, real_width, 4, "real", tip=tip, rx=1.5)
        end = left + span * longest[number] / high
        body += text(end + 5, y + 11, words.percent(category.share), "ax")
        y += pitch + _LINE * (len(lines) - 1)
    return body, y + 2


def _fold(synthetic: Marginal, real: Marginal | None) -> list[_Category]:
    """Return the largest categories, by the synthetic table, and all others as one."""
    places = list(range(len(synthetic.labels)))
    # Categories that the table itself folded go into the same bar as those folded here.
    folded_before = synthetic.others or 0
    rest = []
    if folded_before:
        place = len(places) - 1 - synthetic.missing
        places.remove(place)
        rest.append(place)

    places.sort(key=lambda i: -synthetic.proportions[i])
    # One bar for a single other category would be no shorter than the category itself.
    count = CATEGORIES
    if not rest and len(places) <= CATEGORIES + 1:
        count = CATEGORIES + 1

    categories = []
    for i in places[:count]:
        real_share = real.proportions[i] if real else None
        categories.append(
            _Category(synthetic.labels[i], synthetic.proportions[i], real_share)
        )

    rest += places[count:]
    if rest:
        folded_here = len(places[count:])
        share = sum(synthetic.proportions[i] for i in rest)
        real_share = sum(real.proportions[i] for i in rest) if real else None
        label = f"{words.count(folded_before + folded_here)} others"
        categories.append(_Category(label, share, real_share))
    return categories


def heat_maps(
    synthetic: Association,
    real: Association | None,
    cliques: Sequence[Sequence[str]] = (),
) -> str:
    """Draw the association of all pairs of columns, and how far it is from the real one if given.

    Real and synthetic names are the same; pairs inside a clique of the model are dotted. The
    picture is as wide as it takes.
    """
    synthetic = _trim(synthetic)
    panels = [("synthetic", synthetic.values, "heat")]
    if real:
        real = _trim(real)
        gaps = _differences(synthetic.values, real.values)
        panels = [
            ("real", real.values, "heat"),
            *panels,
            ("synthetic − real", gaps, "gap"),
        ]

    names = synthetic.names
    width = len(names)
    has_labels = width <= LABELLED
    labelled = names if has_labels else ()
    labels = words.shorten_apart(labelled, _LABEL)
    longest = max(map(text_width, labels), default=0.0)

    # Maps share the width that the labels leave. Cells are 3 to 26 pixels wide, and no lower than
    # the labels beside them.
    left = longest + 10
    room = _ONE_MAP - left
    if real:
        room = (WIDTH - left) / len(panels) - _BETWEEN_MAPS
    least = _PITCH if has_labels else 3.0
    side = max(min(room / max(width, 1), 26.0), least)
    edge = side * width

    body = _labels_beside(labelled, labels, left - 6, side)
    x = left
    for title, values, kind in panels:
        body += text(x, 14, title, "lab strong")
        body += _cells(names, values, kind, x, side)
        if title == "synthetic":
            body += _dots(names, cliques, x, side)
        body += _labels_below(labelled, labels, x, side, _HEAT_TOP + edge + 6)
        x += edge + _BETWEEN_MAPS

    height = _HEAT_TOP + edge + longest + 10
    titles = ", ".join(title for title, _, _ in panels)
    desc = f"{width} columns; {titles}. The strongest "
    desc += "pairs are listed in the table beside it."
    title = f"{synthetic.measure} of every pair of columns"
    whole_width = max(x - _BETWEEN_MAPS, left + 120)
    return figure(
        whole_width,
        height,
        body,
        title=title,
        desc=desc,
        least_width=_LEAST_SCALE * whole_width,
    )


def _differences(
    synthetic: Sequence[Sequence[float]], real: Sequence[Sequence[float]]
) -> tuple[tuple[float, ...], ...]:
    """Return how far synthetic associations are above the real ones, cell by cell."""
    rows = []
    for synthetic_row, real_row in zip(synthetic, real, strict=True):
        pairs = zip(synthetic_row, real_row, strict=True)
        rows.append(tuple(a - b for a, b in pairs))
    return tuple(rows)


def _trim(association: Association) -> Association:
    """Return the first columns, up to as many as a picture can show."""
    return Association(
        names=association.names[:WIDEST],
        values=tuple(row[:WIDEST] for row in association.values[:WIDEST]),
        measure=association.measure,
    )


def _labels_beside(
    names: Sequence[str], labels: Sequence[str], right: float, side: float
) -> str:
    """Draw labels left of the rows of a grid, each in the middle of its row."""
    body = ""
    for i, (label, name) in enumerate(zip(labels, names, strict=True)):
        # Down by a third of a letter, which is then in the middle.
        y = _HEAT_TOP + side * (i + 0.5) + 3.5
        body += text(right, y, label, "ax", "end", whole=name)
    return body


def _labels_below(
    names: Sequence[str], labels: Sequence[str], x: float, side: float, top: float
) -> str:
    """Draw labels below the columns of a grid, turned by a quarter."""
    body = ""
    for i, (label, name) in enumerate(zip(labels, names, strict=True)):
        turned = text(0, 0, label, "ax", "end", whole=name)
        place = f"{num(x + side * (i + 0.5) + 3.5)},{num(top)}"
        body += f'<g transform="translate({place}) rotate(-90)">{turned}</g>'
    return body


def _cells(
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    kind: str,
    x: float,
    side: float,
) -> str:
    """Draw coloured cells: each with a tooltip, or, of a wide table, one shape per colour."""
    width = len(names)
    body = rect(x, _HEAT_TOP, side * width, side * width, "backdrop")
    shapes: dict[str, list[str]] = {}
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            cls = "self" if i == j else _level(value, kind)
            if width <= CELLS:
                tip = f"{names[i]} × {names[j]}: {value:.2f}"
                left = x + side * j + 0.5
                top = _HEAT_TOP + side * i + 0.5
                body += rect(left, top, side - 1, side - 1, cls, tip=tip)
            else:
                shapes.setdefault(cls, []).append(f"M{j} {i}h1v1h-1z")
    if width <= CELLS:
        return body

    # Thousands of rectangles would make a page of megabytes.
    paths = ""
    for cls, squares in shapes.items():
        paths += f'<path class="{cls}" d="{"".join(squares)}"/>'
    place = f"translate({num(x)},{_HEAT_TOP}) scale({side:.3f})"
    return body + f'<g transform="{place}">{paths}</g>'


def pair_grids(
    columns: tuple[str, str],
    labels: tuple[Sequence[str], Sequence[str]],
    real: Sequence[Sequence[float]],
    synthetic: Sequence[Sequence[float]],
) -> str:
    """Draw how two columns are distributed together: real rows beside synthetic ones.

    Args:
        columns: The first column's cells are rows of a grid.
        labels: Of the cells of both columns.
        real: Shares of rows, one row of the grid after the other.
        synthetic: The same of the synthetic table.
    """
    row_labels, column_labels = labels
    short_rows = words.shorten_apart(row_labels, _LABEL)
    short_columns = words.shorten_apart(column_labels, _LABEL)
    short_name = words.shorten(columns[0], _LABEL)
    left = max(map(text_width, [*short_rows, short_name])) + 14
    side = min(_GRID / max(len(column_labels), 1), 30.0)
    width = side * len(column_labels)
    height = side * len(row_labels)
    below = _HEAT_TOP + height + max(map(text_width, short_columns)) + 24

    # The largest share of both grids is the darkest colour of both.
    most = max(max(map(max, real)), max(map(max, synthetic))) or 1.0

    body = ""
    places = (("real", real, left), ("synthetic", synthetic, left + _GRID + 30))
    for title, shares, x in places:
        body += text(x, 14, title, "lab strong")
        body += rect(x, _HEAT_TOP, width, height, "backdrop")
        for i, row in enumerate(shares):
            for j, share in enumerate(row):
                tip = f"{row_labels[i]}, {column_labels[j]}: {words.percent(share)} {title}"
                # Roots: where few cells hold most rows, the others are not all white.
                cls = _level(math.sqrt(share / most), "heat")
                top = _HEAT_TOP + side * i + 0.5
                body += rect(x + side * j + 0.5, top, side - 1, side - 1, cls, tip=tip)
        bottom = _HEAT_TOP + height
        body += _labels_below(column_labels, short_columns, x, side, bottom + 6)
        body += text(x + width / 2, below, columns[1], "ax", "middle")

    body += _labels_beside(row_labels, short_rows, left - 6, side)
    body += text(0, 14, short_name, "ax", whole=columns[0])

    desc = _differing_cell(labels, real, synthetic)
    title = f"{columns[0]} and {columns[1]}, real beside synthetic"
    return figure(left + 2 * _GRID + 30, below + 6, body, title=title, desc=desc)


def _differing_cell(
    labels: tuple[Sequence[str], Sequence[str]],
    real: Sequence[Sequence[float]],
    synthetic: Sequence[Sequence[float]],
) -> str:
    """Describe the cell of two grids whose shares differ most."""
    row_labels, column_labels = labels
    gaps = []
    for i, (real_row, row) in enumerate(zip(real, synthetic, strict=True)):
        gaps += [
            (abs(a - b), i, j)
            for j, (a, b) in enumerate(zip(real_row, row, strict=True))
        ]
    _, i, j = max(gaps)
    return (
        f"The shares differ most at {row_labels[i]}, {column_labels[j]}: "
        f"{words.percent(real[i][j])} of the real rows and "
        f"{words.percent(synthetic[i][j])} of the synthetic ones."
    )


def _level(value: float, kind: str) -> str:
    """Return the CSS class of a cell: h0..h10, or g0..g10 above and l0..l10 below zero."""
    if kind == "heat":
        share = min(max(value, 0.0), 1.0)
        return f"h{round(10 * share)}"
    sign = "g" if value >= 0 else "l"
    share = min(abs(value) / _DARKEST_GAP, 1.0)
    return f"{sign}{round(10 * share)}"


def _dots(
    names: Sequence[str], cliques: Sequence[Sequence[str]], x: float, side: float
) -> str:
    """Draw a dot on every pair inside a clique."""
    if len(names) > CELLS:
        return ""
    places = {name: i for i, name in enumerate(names)}
    pairs = {frozenset(pair) for clique in cliques for pair in combinations(clique, 2)}
    body = ""
    # A set has no order of its own, and the same page has the same bytes.
    for pair in sorted(sorted(pair) for pair in pairs):
        if all(name in places for name in pair):
            i, j = sorted(places[name] for name in pair)
            body += circle(x + side * (j + 0.5), _HEAT_TOP + side * (i + 0.5), 2, "dot")
    return body


class ColumnLink(NamedTuple):
    """How strongly two columns depend on each other, from 0 to 1, in either table."""

    first: str
    second: str
    synthetic: float
    real: float | None


def strongest_pairs(
    synthetic: Association, real: Association | None, count: int = 10
) -> list[ColumnLink]:
    """List pairs of columns, the strongest or, with real rows, those furthest from them first."""
    names = synthetic.names
    weighted: list[tuple[float, ColumnLink]] = []
    for i, j in combinations(range(len(names)), 2):
        value = synthetic.values[i][j]
        real_value = real.values[i][j] if real else None
        weight = value if real_value is None else abs(value - real_value)
        weighted.append((weight, ColumnLink(names[i], names[j], value, real_value)))
    weighted.sort(key=lambda pair: (-pair[0], pair[1].first, pair[1].second))
    return [link for _, link in weighted[:count]]
