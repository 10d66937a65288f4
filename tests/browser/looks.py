"""How pages are looked at: their widths, their colours, and what axe finds."""

import pytest

WIDTHS = (400, 800, 1400)
SCHEMES = ("light", "dark")


def grave_findings(tab):
    """Return what axe finds on a page that is serious or worse, with some of its elements."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not there")
    findings = []
    for violation in axe.Axe().run(tab).response["violations"]:
        if violation["impact"] in ("serious", "critical"):
            elements = [node["html"] for node in violation["nodes"]]
            findings.append((violation["id"], elements[:3]))
    return findings
