"""Build the site of the documentation into build/site, and check every link of it.

python tools/build_site.py    # `make docs` calls it in an environment that has what it needs
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from notebooks import page

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build" / "docs"
EXAMPLES = ROOT / "build" / "examples"
SITE = ROOT / "build" / "site"
# With this script Zensical's search would work from files, and would ask a stranger's server.
OUTSIDE = '<script src="https://unpkg.com/iframe-worker/shim" type="text/javascript"></script>'
# Ours, in docs/assets.
SCRIPTS = ("search", "scrolling")
# Zensical's mark of a property, in the titles of its index of words.
PROPERTY = "<code>property</code>"
# A link without words stands before every line of code.
LINE_LINK = re.compile(r'<a id="[^"]*__codelineno[^>]*></a>')


def copy_pages() -> None:
    """Copy docs/ and the example pages, and write a page for each notebook."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    if not EXAMPLES.is_dir():
        raise SystemExit("there are no example pages: run tools/example_pages.py, or `make docs`")
    shutil.copytree(EXAMPLES, PAGES / "examples", dirs_exist_ok=True)
    for path in PAGES.rglob("*.md"):
        path.write_text(path.read_text("utf-8").replace(".ipynb)", ".md)"), "utf-8")
    for path in PAGES.rglob("*.ipynb"):
        text = page(json.loads(path.read_text("utf-8")), path.stem)
        path.with_suffix(".md").write_text(text, "utf-8")


def drop_properties(site: Path) -> None:
    """Take the API's properties out of the index of words.

    They are many, their names are common words, and a title of one word comes first: who looks for
    "epsilon" or "missing values" wants the page about it. A property is found on its class's page.
    """
    index = json.loads((site / "search.json").read_text("utf-8"))
    index["items"] = [item for item in index["items"] if PROPERTY not in item["title"]]
    text = json.dumps(index, ensure_ascii=False)
    (site / "search.json").write_text(text, "utf-8")
    # The same for pages that are opened as files, which may not fetch.
    (site / "search.js").write_text(f"var __index = {text}", "utf-8")


class Links(HTMLParser):
    """Everything that a page links to or loads, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element links to, loads or names."""
        found = dict(attrs)
        self.anchors |= {found["id"] or ""} if "id" in found else set()
        link = found.get("href") or found.get("src")
        if link and tag == "a":
            self.links.add(link)
        elif link and found.get("rel") != "canonical":
            self.loaded.add(link)


def problems(site: Path) -> list[str]:
    """Links of a built site that lead nowhere, and what it loads from outside."""
    pages = {path.resolve(): Links(path) for path in site.rglob("*.html")}
    found = []
    for path, links in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name} loads {link}" for link in links.loaded if urlsplit(link).netloc]
        for link in links.links | links.loaded:
            parts = urlsplit(link)
            if parts.netloc or parts.scheme or name.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            known = pages[target].anchors if target in pages else {anchor}
            if not target.is_file() or (anchor and anchor not in known):
                found.append(f"{name} links to {link}, which does not exist")
    return sorted(found)


def main() -> int:
    """Build the site; return how many problems it has."""
    copy_pages()
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    if built := subprocess.run(command, cwd=ROOT, check=False).returncode:
        return built
    for path in SITE.rglob("*.html"):
        above = "../" * (len(path.relative_to(SITE).parts) - 1)
        own = "".join(f'<script src="{above}assets/{name}.js"></script>' for name in SCRIPTS)
        text = path.read_text("utf-8").replace(OUTSIDE, own)
        path.write_text(LINE_LINK.sub("", text), "utf-8")
    drop_properties(SITE)
    found = problems(SITE)
    print("\n".join(found) or "Every link leads somewhere; open build/site/index.html.")
    return len(found)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
