"""The pages of a run, of scores and of attacks in a real browser, and printed: `make browser`."""

import re

import pytest

from siloweave.attacks.attack import attack
from siloweave.evaluate.scoring import score
from siloweave.report.page import render, render_comparison
from tests.browser.looks import SCHEMES, WIDTHS, grave_findings
from tests.report.conftest import build
from tests.report.test_comparison import people, scales

pytestmark = pytest.mark.browser

NAMES = ("public", "owner", "scores")


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    """The address of each page, which is a file."""
    train, control, synthetic = (people(seed) for seed in (1, 2, 3))
    scores = score(train, synthetic, holdout=control)
    risks = attack(train, synthetic, control=control, targets=60)
    record = build()
    pages = {
        "public": render(record, audience="public"),
        "owner": render(record, audience="owner"),
        "scores": render_comparison(
            scores.to_dict(), risks.to_dict(), title="People", version="9.9"
        ),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, "utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in pages}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_report_fits_and_axe_finds_nothing_serious(opened, addresses, name, width, scheme):
    tab = opened(addresses[name], width, scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert grave_findings(tab) == []


def printed_pages(tab):
    """Print a page on A4, and return the number of its sheets."""
    return len(re.findall(rb"/Type\s*/Page\b", tab.pdf(format="A4", prefer_css_page_size=True)))


@pytest.mark.parametrize("name", ["public", "owner"])
def test_a_printed_report_has_at_most_six_pages_before_its_annexes(opened, addresses, name):
    tab = opened(addresses[name])
    whole = printed_pages(tab)
    tab.add_style_tag(content="@media print { .annex, .annex ~ * { display: none !important } }")
    assert printed_pages(tab) <= 6
    assert whole > printed_pages(tab)


def test_a_printed_page_of_scores_is_not_wider_than_its_paper(opened, addresses):
    tab = opened(addresses["scores"], width=700)
    tab.emulate_media(media="print")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 700
    assert printed_pages(tab) <= 8


@pytest.mark.parametrize("width", WIDTHS)
def test_a_pair_is_enlarged_by_a_key_and_not_on_paper(opened, tmp_path, width):
    scores = score(scales(1), scales(2)).to_dict()
    page = tmp_path / "scales.html"
    page.write_text(render_comparison(scores, None, title="Scales", version="9.9"), "utf-8")
    tab = opened(page.as_uri(), width)
    tick = tab.get_by_label("Enlarge height and weight")
    picture = tab.locator("figure.pair:has(input) svg").first
    before = picture.bounding_box()["width"]
    tick.focus()
    tab.keyboard.press("Space")
    assert picture.bounding_box()["width"] > 1.3 * before
    # The figure scrolls, and the page does not.
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.emulate_media(media="print")
    assert not tick.is_visible()
    on_paper = picture.bounding_box()["width"]
    assert on_paper <= picture.locator("xpath=..").bounding_box()["width"]
    tab.emulate_media(media="screen")
    tick.focus()
    tab.keyboard.press("Space")
    assert picture.bounding_box()["width"] == pytest.approx(before, abs=1)
    assert grave_findings(tab) == []
