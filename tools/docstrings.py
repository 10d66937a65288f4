"""Read docstrings as this project writes them, for the site's API reference.

A synthesizer's page lists every setting with its meaning, wherever the class takes it from, and
names the method's source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import griffe

METHODS = Path(__file__).parent.parent / "docs" / "reference" / "methods.md"
# The head of a list of settings, in a class that takes them and in one that holds them.
_HEAD = re.compile(r"^(?:Args|Attributes):[ ]*$", re.MULTILINE)
# An entry for one setting or several, whose names may take more than a line.
_ENTRY = re.compile(
    r"^    (\w+(?:,\s+\w+)*): ((?:.*)(?:\n(?:     .*|\s*(?=\n     )))*)", re.MULTILINE
)
_ELSEWHERE = re.compile(r"See `(?:[\w.]+\.)?(\w+)`[;.]?\s*")
_PART = re.compile(r"\w+Settings")


@dataclass(frozen=True)
class MethodFacts:
    """What the page of all methods says of one.

    Attributes:
        name: Of its class.
        heading: The heading that the method stands under: who holds what.
        guarantee: Such as ``dp``.
        source: The paper.
    """

    name: str
    heading: str
    guarantee: str
    source: str

    @property
    def use(self) -> str:
        """How a model is fitted and rows are drawn, as text of the page."""
        data, takes = "table", "one table"
        budget = "epsilon=1.0, delta=1e-6"
        if "different rows" in self.heading:
            data, takes = "[north, south]", "a list of tables, one of each party"
        if "different columns" in self.heading:
            data, takes = '{"work": work, "tax": tax}', "a table of each party, by its name"
            budget += ", relation=sw.Relation.REPLACE_ONE"
        lines = [f"model = sw.{self.name}().fit({data}, schema)"]
        if self.guarantee == "dp":
            lines = [
                f"budget = sw.Budget({budget})",
                f"model = sw.{self.name}().fit({data}, schema, budget=budget)",
            ]
        code = "\n".join([*lines, "synthetic = model.sample(1000)"])
        return (
            f"[`fit`][siloweave.core.run.Synthesizer.fit] takes {takes}, and returns a "
            "[`Fit`][siloweave.Fit], whose [`sample`][siloweave.Fit.sample] draws rows:\n\n"
            f"```python\n{code}\n```\n\n"
            f"**Source**: {self.source}."
        )


class Docstrings(griffe.Extension):
    """`Example:` starts an example, and ``a, b: See C.`` describes settings where C does."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of everything that is found; add to a method its guarantee."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            many = r"^( +)((?:\w+,\s+)+\w+): (.*(?:\n\1 +.*)*)"
            text = re.sub(many, _each, text, flags=re.MULTILINE)
            obj.docstring.value = text + _guarantee(obj)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """List in every synthesizer all its settings, and its source."""
        classes = list(_classes(pkg))
        holders = {cls.name: cls for cls in classes}
        methods = methods_in(METHODS.read_text("utf-8"))
        # Each is read as its author wrote it, before any of them is rewritten.
        rewritten = {}
        for cls in classes:
            if cls.docstring and _is_synthesizer(cls):
                rewritten[cls.path] = _complete(cls, holders, methods.get(cls.name))
            elif cls.docstring and _PART.fullmatch(cls.name):
                rewritten[cls.path] = _spelled_out(cls, holders)
        for cls in classes:
            if cls.docstring and cls.path in rewritten:
                cls.docstring.value = rewritten[cls.path]


def methods_in(page: str) -> dict[str, MethodFacts]:
    """Return the facts of each method, by its class, from the page that lists all methods."""
    facts = {}
    for heading, section in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", page, re.MULTILINE):
        row = r"^\| `\w+` \| `(\w+)` \| [^|]+ \| (\w+) \| [^|]+ \| ([^|]+) \|$"
        for name, guarantee, source in re.findall(row, section, re.MULTILINE):
            facts[name] = MethodFacts(name, heading, guarantee, source)
    return facts


def entries_of(text: str) -> dict[str, str]:
    """Return what a docstring says of each setting, by name."""
    head = _HEAD.search(text)
    if head is None:
        return {}
    # The list ends with the first line that is not indented.
    block = re.split(r"\n(?=\S)", text[head.end() :], maxsplit=1)[0]
    entries = {}
    for names, meaning in _ENTRY.findall(block):
        for name in re.split(r",\s+", names):
            entries[name] = " ".join(meaning.split())
    return entries


def with_settings(text: str, meanings: dict[str, str], above: str) -> str:
    """Return a docstring whose list of settings is another, below a text."""
    listed = "".join(f"    {name}: {meaning}\n" for name, meaning in meanings.items())
    block = f"Args:\n{listed}\n"
    if above:
        block = f"{above}\n\n{block}"
    head = _HEAD.search(text)
    if head is not None:
        _, _, rest = text[head.end() :].partition("\n\n")
        return f"{text[: head.start()]}{block}{rest}"
    # Before its example, or at the end.
    before, example, after = text.partition("Examples:")
    return f"{before.rstrip()}\n\n{block}{example}{after}"


def _each(match: re.Match[str]) -> str:
    """An entry for each of the settings that one entry describes."""
    names = re.split(r",\s+", match[2])
    return "\n".join(f"{match[1]}{name}: {match[3]}" for name in names)


def _guarantee(obj: griffe.Object) -> str:
    """The guarantee of a method, which stands at the top of its module."""
    if not obj.is_class or "Synthesizer" not in map(str, obj.bases):
        return ""
    above = obj.module.docstring.value if obj.module.docstring else ""
    found = re.search(r"^\*\*Guarantee\*\*(?:.+\n?)+", above, re.MULTILINE)
    return f"\n\n{found[0]}" if found else ""


def _classes(module: griffe.Module) -> Any:
    """Yield every class of a package, of modules within it too."""
    for member in module.members.values():
        if member.is_alias:
            continue
        if member.is_module:
            yield from _classes(member)
        elif member.is_class:
            yield member


def _is_synthesizer(cls: griffe.Class) -> bool:
    """Return whether a class is a method that users make."""
    return "Synthesizer" in map(str, cls.bases)


def _complete(
    cls: griffe.Class, holders: dict[str, griffe.Class], facts: MethodFacts | None
) -> str:
    """Return a synthesizer's docstring with the meaning of every setting."""
    meanings = {}
    for name, annotation in _fields(cls).items():
        meaning = _meaning(name, cls, holders)
        part = _PART.search(annotation)
        # What a part holds is described once, on its own page.
        if part and part[0] in holders:
            parts = _PART.findall(annotation)
            links = " or ".join(f"[`{part}`][{holders[part].path}]" for part in parts)
            meaning = f"{meaning} Its settings: {links}."
        meanings[name] = meaning
    return with_settings(cls.docstring.value, meanings, facts.use if facts else "")


def _spelled_out(cls: griffe.Class, holders: dict[str, griffe.Class]) -> str:
    """Return a docstring whose entries say themselves what they refer to elsewhere."""

    def meaning(entry: re.Match[str]) -> str:
        return f"    {entry[1]}: {_meaning(entry[1], cls, holders)}"

    referring = r"^    (\w+): See `.*(?:\n     .*)*"
    return re.sub(referring, meaning, cls.docstring.value, flags=re.MULTILINE)


def _fields(cls: griffe.Class) -> dict[str, str]:
    """Return the annotation of each setting of a dataclass, in the order of its arguments."""
    fields: dict[str, str] = {}
    for holder in [*reversed(cls.mro()), cls]:
        for name, member in holder.members.items():
            # What the class alone has is no setting, and no property is one.
            if "instance-attribute" not in member.labels or "property" in member.labels:
                continue
            annotation = str(member.annotation or "")
            if "init=False" in str(member.value or "").replace(" ", ""):
                fields.pop(name, None)
            else:
                fields[name] = annotation
    return fields


def _meaning(name: str, cls: griffe.Class, holders: dict[str, griffe.Class]) -> str:
    """Return what a class, or the first that it takes the setting from, says of a setting."""
    for holder in [cls, *cls.mro()]:
        entries = entries_of(holder.docstring.value) if holder.docstring else {}
        if name not in entries:
            continue
        meaning = entries[name]
        elsewhere = _ELSEWHERE.match(meaning)
        if elsewhere is None or elsewhere[1] not in holders:
            return meaning
        # What stands there, then what the class adds to it.
        there = _meaning(name, holders[elsewhere[1]], holders)
        more = meaning[elsewhere.end() :]
        return f"{there} {more[:1].upper()}{more[1:]}".strip()
    raise ValueError(f"{cls.path}: the setting {name} is described nowhere; add it to Args")
