"""Shapes, texts and axes of the pages' pictures, as inline SVG; and a picture by itself.

Colours are CSS classes, so that a page chooses light or dark.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable
from html import escape
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from siloweave.errors import InputError

Points = list[tuple[float, float]]
Marks = Iterable[tuple[float, str]]
"""Where on an axis, as a share of it, and what is written there."""
WIDTH = 924.0
"""Width of a picture, in CSS pixels, where its function says nothing else."""
# Font size of labels, as style.css has it.
_LABEL_SIZE = 11.0
# Widths of letters in parts of the font size, in DejaVu Sans. Other fonts of the page are narrower.
_NARROW_LETTERS = frozenset(" !'(),-./:;I[]fijlrt|")
_WIDE_LETTERS = frozenset("%@MWmw—…")


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


class Panel(NamedTuple):
    """A part of a picture in which shares from 0 to 1 are drawn, to the right and upwards."""

    left: float
    top: float
    width: float
    height: float

    def x(self, share: float) -> float:
        """Return where a share of the horizontal axis is drawn."""
        return self.left + self.width * share

    def y(self, share: float) -> float:
        """Return where a share of the vertical axis is drawn."""
        return self.top + self.height * (1 - share)

    def path(self, shares: Points, cls: str, *, close: bool = False) -> str:
        """Draw a line through points, or the area in it, given as shares of both axes."""
        return path([(self.x(a), self.y(b)) for a, b in shares], cls, close=close)

    def backdrop(self) -> str:
        """Draw the ground of the panel."""
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
