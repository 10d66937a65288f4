"""Cut what was measured into the appendices of docs/reference/results/, and mend their links.

The parts of results_page.py write one text whose links stay inside it (`#columns-split`). A page
begins at each heading of STARTS; a link then leads to the page that has its heading.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Appendix(NamedTuple):
    """One page: its file, its title, and what it has, in a line of the list of results.md."""

    name: str
    title: str
    about: str


APPENDICES = (
    Appendix("verdicts", "What the papers claim", "a verdict for every claim of the five papers"),
    Appendix("rows-split", "Rows split", "AIM, FLAIM and TwoRound over a hundred parties"),
    Appendix("neural-generators", "Neural generators", "quality without a guarantee"),
    Appendix(
        "private-generators",
        "Private generators and counts",
        "networks beside AIM",
    ),
    Appendix("workload-and-bins", "Workload and bins", "what AIM and TwoRound measure by default"),
    Appendix("neural-speed", "Speed and memory of networks", "beside CTGAN's and TabDDPM's code"),
    Appendix("tabsyns-protocol", "Tables by TabSyn's protocol", "eight tables, ours and peers"),
    Appendix("detectors", "Detectors", "how far they are to be trusted"),
    Appendix("columns-split", "Columns split", "SiloFuse and E2EDistr, and their bytes"),
    Appendix(
        "private-columns",
        "Private synthesis over split columns",
        "beside central methods",
    ),
    Appendix(
        "private-columns-costs",
        "Split columns: other tables and costs",
        "SVMs, seconds, bytes",
    ),
    Appendix(
        "rows-split-networks",
        "Networks over parties with different rows",
        "Fed-TGAN, MD-TGAN and diffusions",
    ),
    Appendix("persons", "A person as the unit", "what it protects from, and what it costs"),
    Appendix("one-row", "One row more in a file", "every private family with and without it"),
    Appendix("forecasts", "Errors foreseen by check", "what ε buys, foreseen and as it came out"),
    Appendix("invented-links", "Invented links", "a class of few rows beside unrelated codes"),
    Appendix("skewed-columns", "Totals and percentiles of skewed columns", "and their bins"),
    Appendix("few-rows", "Fewer than 1,000 rows", "what to take, and what it gives away"),
    Appendix("ideas", "Ideas of others beside ours", "parities, dense tables, residuals and more"),
)
STARTS = {
    "What the papers claim": "verdicts",
    "Rows split": "rows-split",
    "Neural generators": "neural-generators",
    "Private generators at equal budgets": "private-generators",
    "Counts under a bound": "private-generators",
    "Workload and bins": "workload-and-bins",
    "Speed beside the peers": "neural-speed",
    "Raked rows fool a detector that stops early": "detectors",
    "How far raking deceives a detector": "detectors",
    "Tables by TabSyn's protocol": "tabsyns-protocol",
    "XGB-C2ST by scikit-learn's trees": "detectors",
    "Columns split": "columns-split",
    "Private synthesis over split columns": "private-columns",
    "Other tables with at most 30 columns": "private-columns-costs",
    "Networks over parties with different rows": "rows-split-networks",
    "A person as the unit": "persons",
    "A person with a hundred rows": "persons",
    "One row more in a file": "one-row",
    "Errors foreseen by check": "forecasts",
    "Invented links": "invented-links",
    "Totals and percentiles of skewed columns": "skewed-columns",
    "Fewer than 1,000 rows": "few-rows",
    "Ideas of others beside ours": "ideas",
}
"""Headings at which a page begins or continues, and the page."""
NOTE = (
    "An appendix of the [results](../results.md), written by `benchmarks/results_page.py` from the "
    "runs in `benchmarks/results/`."
)
"""The end of every page."""


def anchor(heading: str) -> str:
    """Return the anchor that the site gives a heading."""
    words = re.sub(r"\]\([^)]*\)", "", heading).lower().strip()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", words))


def pieces(text: str) -> list[tuple[str, str]]:
    """Cut a text at the headings of STARTS; return each piece with the name of its page."""
    found: list[tuple[str, str]] = []
    for part in re.split(r"^(?=#{2,3} )", text, flags=re.MULTILINE):
        if not part.strip():
            continue
        heading = part.splitlines()[0].lstrip("#").strip()
        if heading in STARTS:
            found.append((STARTS[heading], part))
        else:
            name, before = found[-1]
            found[-1] = (name, before + part)
    return found


def lifted(part: str, title: str) -> str:
    """Return a piece with its first heading at the second level.

    Where that heading is the page's title, it is left out, and the others are a level higher.
    """
    depth = len(part) - len(part.lstrip("#"))
    levels = depth - 2
    if part.startswith(f"{'#' * depth} {title}\n"):
        part = part.partition("\n")[2].lstrip("\n")
        levels += 1
    return re.sub(rf"^#{{{levels}}}(?=#)", "", part, flags=re.MULTILINE) if levels else part


def pages(text: str) -> dict[str, str]:
    """Return every appendix by its name."""
    found: dict[str, list[str]] = {appendix.name: [] for appendix in APPENDICES}
    for name, part in pieces(text):
        title = next(one.title for one in APPENDICES if one.name == name)
        found[name].append(lifted(part, title).rstrip("\n"))
    written = {
        one.name: "\n\n".join([f"# {one.title}", *found[one.name], NOTE]).replace("\n\n\n", "\n\n")
        for one in APPENDICES
        if found[one.name]
    }
    places = {
        anchor(heading): name
        for name, page in written.items()
        for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
    return {name: linked(name, page, places) + "\n" for name, page in written.items()}


def linked(name: str, page: str, places: dict[str, str]) -> str:
    """Return a page whose links lead to where their headings and files are, from its folder."""

    def target(match: re.Match[str]) -> str:
        link = match[1]
        if link.startswith("#"):
            elsewhere = places[link[1:]]
            return match[0] if elsewhere == name else f"]({elsewhere}.md{link})"
        if "://" in link or link == "../results.md":
            return match[0]
        return f"](../{link})"

    return re.sub(r"\]\(([^)\s]+)\)", target, page)
