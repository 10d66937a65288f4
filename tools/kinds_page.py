"""Write docs/reference/kinds-of-columns.md from the rules by which kinds are proposed.

python tools/kinds_page.py
"""

from __future__ import annotations

import re
from pathlib import Path

from siloweave.tables.kinds.rules import FAMILIES

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "kinds-of-columns.md"
HEAD = """# How kinds of columns are proposed

<!-- tools/kinds_page.py writes this page from the rules: change those. -->

The rules that `siloweave init` and `sw.Schema.detect` follow. [Kinds of
columns](../guides/kinds-of-columns.md) explains the kinds, and what to write where a proposal is
wrong.

A column meets the tables in this order, and the first rule that holds decides. Texts of a
categorical type are first asked whether they name people or rows. Numbers as text that are digits
alone are whole numbers, and those with a power of ten are numbers. Value labels of SPSS, Stata and
SAS come before all rules: the labels are the categories, and numbers with labels at their ends
alone are a scale.

`…` stands for figures, forms and notes. Many reasons end with the kind to declare if they are
wrong. What else was seen is added to them: codes and marks of missing values, and texts that are no
numbers.

The rules are in `tables/kinds/rules.py`. Words by which they know a column, in several languages,
are in `tables/kinds/words.py`; a word of another language is added there.
"""


def shown(sentence: str) -> str:
    """A sentence without figures, and without the kind to declare if it is wrong."""
    plain = re.sub(r"(\{[^}]*\})+", "…", sentence)
    return re.sub(r"; declare it \w+ if that is wrong$", "", plain)


def page() -> str:
    """The page, for the rules that there are now."""
    parts = [HEAD]
    for title, rules in FAMILIES.items():
        parts.append(f"\n## {title}\n\n| what is recognised | kind | the reason |\n|---|---|---|\n")
        for rule in rules:
            parts.append(f"| {rule.name} | {rule.kind} | {shown(rule.sentence)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
