"""Write docs/images/overview.svg, the drawing of README.md and of the site's home page.

python tools/drawing.py

A picture in a page does not know whether the page is light or dark. So the background is
transparent, every word stands on a filled shape, and arrows are grey enough for both.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "overview.svg"
WIDTH, HEIGHT = 720, 362

BLUE = "#1f4e79"
"""Of what stays with a party."""
GREEN = "#1d6344"
"""Of what is public."""
DARK = "#3d4450"
"""Of the coordinator, and of words on arrows."""
PALE = "#e8edf3"
"""Of a table's cells."""
GREY = "#7d8590"
"""Of arrows: 3.7 to 1 or more against white and against the site's dark background."""

PARTIES = ("North", "East", "South")
CELL = 13
DESCRIPTION = (
    "Three parties hold rows of one table. The rows stay where they are. Each party sends noisy "
    "sums under masks, and writes in its ledger what that costs. The coordinator adds the sums, in "
    "which the masks cancel, and fits a model. The model draws the synthetic table."
)


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    """Return a filled box with round corners."""
    size = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<rect {size} rx="8" fill="{colour}"/>'


def words(x: float, y: float, text: str, style: str = "") -> str:
    """Return one line of text, centred at a point, in white."""
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def bold(x: float, y: float, text: str) -> str:
    """Return a heading, centred at a point."""
    return words(x, y, text, 'class="bold"')


def number(x: float, y: float, value: int) -> str:
    """Return the number of a step, in a circle."""
    circle = f'<circle cx="{x}" cy="{y}" r="12" fill="#f2c14e"/>'
    return circle + words(x, y + 5, str(value), 'class="number"')


def grid(x: float, y: float, columns: int, rows: int, dark: str) -> str:
    """Return a small table: a dark row of names above pale cells."""
    cells = []
    for row in range(rows):
        for column in range(columns):
            colour = dark if row == 0 else PALE
            left = x + column * (CELL + 2)
            top = y + row * (CELL - 2)
            place = f'x="{left}" y="{top}" width="{CELL}" height="{CELL - 4}"'
            cells.append(f'<rect {place} fill="{colour}"/>')
    return "".join(cells)


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return a line from one point to another, with a head at its end."""
    (x1, y1), (x2, y2) = start, end
    line = f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"'
    return f'<line {line} stroke="{GREY}" stroke-width="2.5" marker-end="url(#head)"/>'


def party(name: str, top: float) -> str:
    """Return one party's box: its rows, and its ledger."""
    return "".join(
        [
            box(0, top, 226, 96, BLUE),
            bold(113, top + 23, name),
            grid(13, top + 36, 5, 3, "#9fb8d1"),
            words(50, top + 84, "rows"),
            box(100, top + 36, 116, 50, "#163a5b"),
            words(158, top + 57, "ledger:"),
            words(158, top + 76, "what it cost, ε"),
        ]
    )


def picture() -> str:
    """Return the drawing as SVG."""
    shapes = []
    for place, name in enumerate(PARTIES):
        top = 14 + place * 112
        shapes.append(party(name, top))
        middle = top + 48
        # All arrows meet at the coordinator, a little apart.
        shapes.append(arrow((230, middle), (388, 162 + place * 12)))

    shapes += [
        box(246, 146, 118, 52, DARK),
        bold(305, 168, "Masked sums"),
        words(305, 187, "with noise"),
        box(396, 118, 130, 108, DARK),
        bold(461, 144, "Coordinator"),
        words(461, 170, "adds the sums:"),
        words(461, 189, "masks cancel;"),
        words(461, 208, "fits a model"),
        arrow((530, 172), (570, 172)),
        box(578, 76, 142, 192, GREEN),
        bold(649, 102, "Synthetic table"),
        grid(612, 116, 5, 9, "#9fcbb5"),
        words(649, 238, "with a report that"),
        words(649, 256, "recomputes ε"),
    ]
    shapes += [number(12, 14, 1), number(246, 146, 2), number(216, 48, 3), number(578, 76, 4)]

    style = (
        "text{font:14px system-ui,sans-serif;fill:#fff;text-anchor:middle}"
        ".bold{font-weight:700}"
        ".number{font-weight:700;fill:#222}"
    )
    head = (
        '<marker id="head" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="6" '
        f'markerHeight="6" orient="auto"><path d="M0 0L10 5L0 10z" fill="{GREY}"/></marker>'
    )
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    label = 'role="img" aria-labelledby="title text"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {label}>',
            '<title id="title">How siloweave works</title>',
            f'<desc id="text">{escape(DESCRIPTION)}</desc>',
            f"<style>{style}</style>",
            f"<defs>{head}</defs>",
            *shapes,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
