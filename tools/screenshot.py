"""Take the picture of a report in docs/images/report.png from the example pages.

python tools/screenshot.py    # needs Chromium, and build/examples, which `make docs` writes

The picture is made from the page of today, so run this whenever the report's looks have changed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "build" / "examples" / "report.html"
PICTURE = ROOT / "docs" / "images" / "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1100, 1110
SCALE = 0.7
"""Pixels of the picture for one of the page, which makes it as wide as a page of the site."""


def browser() -> str:
    """Return the path of a browser that can draw without a screen."""
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    raise SystemExit(f"no browser was found: install one of {', '.join(BROWSERS)}")


def main() -> None:
    """Draw the top of the public report."""
    if not PAGE.is_file():
        raise SystemExit(f"{PAGE.relative_to(ROOT)} is not there: run tools/example_pages.py")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--window-size={WIDTH},{HEIGHT}", f"--force-device-scale-factor={SCALE}"]
    command = [browser(), *options, f"--screenshot={PICTURE}", PAGE.as_uri()]
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
