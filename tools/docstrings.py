"""Read docstrings as this project writes them, for the site's API reference."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """`Example:` starts an example, and ``a, b: See C.`` describes several settings."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of everything that is found; add to a method its guarantee."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            many = r"^( +)((?:\w+, )+\w+): (.*(?:\n\1 +.*)*)"
            obj.docstring.value = re.sub(many, _each, text, flags=re.MULTILINE) + _guarantee(obj)


def _each(match: re.Match[str]) -> str:
    """An entry for each of the settings that one entry describes."""
    return "\n".join(f"{match[1]}{name}: {match[3]}" for name in match[2].split(", "))


def _guarantee(obj: griffe.Object) -> str:
    """The guarantee of a method, which stands at the top of its module."""
    if not obj.is_class or "Synthesizer" not in map(str, obj.bases):
        return ""
    above = obj.module.docstring.value if obj.module.docstring else ""
    found = re.search(r"^\*\*Guarantee\*\*(?:.+\n?)+", above, re.MULTILINE)
    return f"\n\n{found[0]}" if found else ""
