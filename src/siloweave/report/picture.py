"""A picture of a report by itself: shown by a notebook, and stored as an SVG file."""

import re
from importlib import resources
from pathlib import Path

from siloweave.errors import InputError

__all__ = ["Picture"]

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
