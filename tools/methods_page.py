"""Write docs/reference/methods.md from the registry.

python tools/methods_page.py
"""

from __future__ import annotations

from pathlib import Path

from siloweave.methods.registry import METHODS

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "methods.md"
SPLITS = {
    "rows": "Several parties, different rows of one table",
    "columns": "Several parties, different columns of the same people",
    "central": "One table at one place",
}
HEAD = """# Methods

<!-- tools/methods_page.py writes this page from the registry: change that. -->

All methods, as `siloweave list` prints them. Any *name* goes into `[method]` of a study, and
`import siloweave as sw` has the *class*.
[Choosing a synthesizer](../guides/choosing.md) explains which to take, and
[results](results.md) how they compare.

**Guarantee** and **trust** are those of the default settings. `dp`: accounted, and tested against
its claim. `none`: no claim, ε is infinite. `curator`: somebody sees the rows, or what amounts to
them. `secure-sum`: the coordinator sees masked sums. `mpc`: parties and coordinator compute
together what none of them sees. `local`: noise is added before anything leaves a party.
[Who sees what](../concepts/threat-model.md) has the details.
"""


def page() -> str:
    """The page, for the methods that are registered now."""
    parts = [HEAD]
    for split, title in SPLITS.items():
        parts.append(f"\n## {title}\n\n")
        parts.append("| name | class | family | guarantee | trust | source |\n")
        parts.append("|---|---|---|---|---|---|\n")
        for name, kind in METHODS.items():
            info = kind().info
            if info.split == split:
                cells = (f"`{name}`", f"`{kind.__name__}`", info.family, info.guarantee,
                         info.trust, info.paper)  # fmt: skip
                parts.append(f"| {' | '.join(cells)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
