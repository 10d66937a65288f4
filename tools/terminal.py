"""Run `siloweave demo` and write what the terminal shows as docs/images/demo.svg.

python tools/terminal.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "demo.svg"
COLUMNS = 88
LINE, CHARACTER = 18, 7.85
"""Pixels of a line, and of a character of 13 pixels in the usual monospaced fonts."""
MARGIN, TITLE_BAR = 16, 30


def record(*words: str) -> list[str]:
    """Run a command in an empty folder, and return the lines that it prints."""
    plain = {"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    source = str(Path(__file__).parent.parent / "src")
    with TemporaryDirectory() as folder:
        printed = subprocess.run(
            [sys.executable, "-m", "siloweave", *words],
            cwd=folder,
            env={**os.environ, **plain, "PYTHONPATH": source},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=True,
            encoding="utf-8",
        )
    lines = [line.rstrip() for line in printed.stdout.splitlines()]
    return [f"$ siloweave {' '.join(words)}", *lines]


def picture(lines: list[str]) -> str:
    """Return a terminal with these lines as SVG.

    It has its own dark background, so it looks the same on a light and a dark page.
    """
    width = round(COLUMNS * CHARACTER + 2 * MARGIN)
    height = TITLE_BAR + len(lines) * LINE + MARGIN
    text = []
    for place, line in enumerate(lines):
        y = TITLE_BAR + (place + 1) * LINE - 4
        kind = ' class="typed"' if line.startswith("$ ") else ""
        # A fixed length keeps columns below each other, whichever font a reader has.
        length = f'textLength="{len(line) * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs"'
        if line:
            text.append(f'<text{kind} x="{MARGIN}" y="{y}" {length}>{escape(line)}</text>')

    style = (
        "text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "fill:#d7dce2;white-space:pre}.typed{fill:#8fd18f;font-weight:700}"
    )
    buttons = [
        f'<circle cx="{MARGIN + 4 + 18 * place}" cy="15" r="5.5" fill="{colour}"/>'
        for place, colour in enumerate(("#e0625a", "#e0b04a", "#62b356"))
    ]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
            '<title id="title">What `siloweave demo` prints in a terminal</title>',
            f"<style>{style}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1f242c" stroke="#4a525e"/>',
            *buttons,
            *text,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(record("demo")), "utf-8")
