"""Small pieces of inline SVG. Colours are CSS classes, so a page chooses light or dark."""

import hashlib
import math
from html import escape


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
