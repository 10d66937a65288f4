"""The local pages in a real browser, without a window: `make browser`.

They are skipped where there is no Playwright, or no Chromium that it can start. SILOWEAVE_BROWSER
names a Chromium to use in place of Playwright's own.
"""

import pytest

from siloweave.app.pages import LocalPage
from siloweave.app.review import page_of, review_of
from siloweave.app.status import PartyStatus
from siloweave.app.watch import Views
from siloweave.tables.column import Column
from siloweave.tables.schema import Schema
from tests.app.test_review import PROPOSED, RANGED
from tests.app.test_watch import AT_COORDINATOR
from tests.browser.looks import SCHEMES, WIDTHS, grave_findings

pytestmark = pytest.mark.browser

AT_PARTY = PartyStatus(
    study="small",
    party="north",
    state="answering",
    why="",
    ended="",
    answered=40,
    at_most=120,
    run="small",
    step="3",
    epsilon=0.4,
    allowed=1.0,
    delta=1e-5,
    releases=44,
    stored=3_000_000,
    quiet=4.2,
    received=1_000_000,
    sent=2_000_000,
    computing=33.0,
    sealing=2.0,
    left=300.0,
    unexpected=("notes.py",),
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(PROPOSED.to_json() + "\n")
    rows = "\n".join(f"{17 + i},{'fm'[i % 2]},2020-01-{1 + i % 28:02d}" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"age,sex,came\n{rows}\n")
    return path


@pytest.fixture
def page(file):
    with page_of(review_of(file, str(file.with_name("rows.csv")))) as page:
        yield page


def until(locator):
    """Wait for what is expected of an element, without a script that the page's policy refuses."""
    from playwright.sync_api import expect

    return expect(locator)


def in_focus(tab):
    return tab.evaluate("document.activeElement.id")


def walk_to(tab, name, key="Tab"):
    """Press a key until a field has the focus; every stop on the way can be seen."""
    for _ in range(300):
        tab.keyboard.press(key)
        if in_focus(tab) == name:
            return
    raise AssertionError(f"{name} is not reached by {key}")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_axe_finds_nothing_serious(opened, page, width, scheme):
    with (
        LocalPage(Views(AT_COORDINATOR, 60.0).routes()) as coordinator,
        LocalPage(Views(AT_PARTY, 60.0).routes()) as party,
    ):
        for address in (page.address, coordinator.address, party.address):
            tab = opened(address, width, scheme)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            for summary in tab.locator("summary").all():
                summary.click()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert grave_findings(tab) == []


def test_a_schema_is_reviewed_by_keyboard_alone(opened, page, file):
    tab = opened(page.address)
    walk_to(tab, "c0-is_known")
    tab.keyboard.press("Space")
    assert tab.locator("#count").inner_text() == "1"
    walk_to(tab, "c0-high")
    tab.keyboard.press("Control+A")
    tab.keyboard.type("120")
    walk_to(tab, "next")
    tab.keyboard.press("Enter")
    assert in_focus(tab) == "c1-is_known"
    walk_to(tab, "r0-is_kept")
    tab.keyboard.press("Space")
    with tab.expect_navigation():
        tab.keyboard.press("Control+s")
    until(tab.locator("#message")).to_be_focused()
    assert "Saved in" in tab.locator("#message").inner_text()
    schema = Schema.from_json(file.read_bytes())
    assert (schema["age"].high, schema["age"].from_data, schema["age"].why) == (120, (), "")
    assert len(schema.constraints) == 1
    assert tab.locator("#c0-high").input_value() == "120"
    assert tab.locator("#c0-is_known").count() == 0


def test_a_problem_is_beside_its_field_and_has_the_focus(opened, page, file):
    before = file.read_bytes()
    tab = opened(page.address)
    tab.locator("#c1-kind").select_option("continuous")
    tab.locator("#c3 summary").click()
    tab.locator("#c3-zone").fill("Mars")
    tab.locator("#c3 summary").click()
    tab.locator("#c0-low").fill("abc")
    tab.locator("#save").click()
    until(tab.locator("#c0-low")).to_be_focused()
    assert "must be a number" in tab.locator("#c0-low-problem").inner_text()
    assert tab.locator("#c0-low").get_attribute("aria-invalid") == "true"
    assert "Mars" in tab.locator("#c3-zone-problem").inner_text()
    assert tab.locator("#c3-zone").is_visible()
    assert "correct 2 places" in tab.locator("#message").inner_text()
    assert file.read_bytes() == before
    tab.locator("#c0-low").fill("0")
    tab.locator("#c3-zone").fill("UTC")
    with tab.expect_navigation():
        tab.locator("#save").click()
    assert Schema.from_json(file.read_bytes())["age"].low == 0


def test_a_problem_is_named_by_a_link_and_clear_of_the_bar(opened, page):
    tab = opened(page.address)
    field = tab.locator("#c1-other")
    field.fill("nobody")
    tab.locator("#save").click()
    until(field).to_be_focused()
    link = tab.locator("#message a")
    assert tab.locator("#message").inner_text() == "Nothing was saved: sex, other"
    bar = tab.locator(".bar").bounding_box()
    for _ in range(2):
        box = field.bounding_box()
        assert 200 < box["y"] < bar["y"] - 200
        tab.keyboard.press("Control+End")
        link.click()
        until(field).to_be_focused()


def test_cells_beyond_the_bounds_are_shown_after_saving(opened, page):
    tab = opened(page.address)
    tab.locator("#c0-high").fill("75")
    with tab.expect_navigation():
        tab.locator("#save").click()
    until(tab.locator("#message")).to_contain_text("1 of 60 cells of age is above 75")


def test_bounds_of_a_range_are_corrected(opened, tmp_path):
    path = tmp_path / "ranged.json"
    path.write_text(RANGED.to_json())
    with page_of(review_of(path)) as page:
        tab = opened(page.address, width=400)
        assert tab.evaluate("document.documentElement.scrollWidth") == 400
        tab.get_by_label("to").first.fill("1899-01-01")
        tab.locator("#save").click()
        until(tab.locator("#message a")).to_have_text("range of born by member")
        tab.get_by_label("to").first.fill("1960-12-31")
        with tab.expect_navigation():
            tab.locator("#save").click()
    ranges = Schema.from_json(path.read_bytes()).constraints[0].ranges
    assert ranges[0] == ("senior", None, "1960-12-31")


def test_a_long_badge_does_not_widen_a_narrow_page(opened, tmp_path):
    facts = ("kind", "low", "high", "missing", "decimals", "padded")
    column = Column("fee", "continuous", low=0.0, high=1.5, decimals=1, padded=1, from_data=facts)
    path = tmp_path / "schema.json"
    path.write_text(Schema((column,)).to_json())
    with page_of(review_of(path)) as page:
        tab = opened(page.address, width=400)
        assert tab.evaluate("document.documentElement.scrollWidth") == 400


def test_no_label_of_a_picture_is_cut(opened, tmp_path):
    names = ["WWWWWWWWWWWWWWWWW", "Wide-MMMM-WWWWWWWWWWWW", "a"]
    (tmp_path / "rows.csv").write_text("ward\n" + "\n".join(names * 9) + "\n")
    path = tmp_path / "schema.json"
    path.write_text(Schema((Column("ward", "categorical", categories=tuple(names)),)).to_json())
    with page_of(review_of(path, str(tmp_path / "rows.csv"))) as page:
        tab = opened(page.address)
        picture = tab.locator(".plot-small svg").bounding_box()
        for label in tab.locator(".plot-small text").all():
            box = label.bounding_box()
            assert box["x"] >= picture["x"] - 1
            assert box["x"] + box["width"] <= picture["x"] + picture["width"] + 1


def test_a_kind_shows_the_fields_that_it_has(opened, page):
    tab = opened(page.address)
    assert tab.locator("#c0-low").is_visible()
    assert not tab.locator("#c0-categories").is_visible()
    tab.locator("#c0-kind").select_option("categorical")
    assert not tab.locator("#c0-low").is_visible()
    assert tab.locator("#c0-categories").is_visible()


def test_a_page_that_changes_nothing_saves_nothing(opened, page, file):
    before = file.stat().st_mtime_ns
    tab = opened(page.address)
    tab.locator("#save").click()
    until(tab.locator("#message")).to_contain_text("Nothing was")
    assert file.stat().st_mtime_ns == before


def test_a_second_reviewer_is_shown_both_files(opened, file):
    with page_of(review_of(file)) as one, page_of(review_of(file)) as two:
        first = opened(one.address)
        second = opened(two.address)
        first.locator("#c0-is_known").check()
        with first.expect_navigation():
            first.locator("#save").click()
        second.locator("#c0-high").fill("130")
        second.locator("#save").click()
        until(second.locator("#message")).to_be_focused()
        shown = second.locator("#message").inner_text()
    assert str(file) in shown
    assert str(file.with_name("schema.review.json")) in shown
    assert "high 90 against 130" in shown
    assert Schema.from_json(file.read_bytes())["age"].high == 90


def test_what_was_typed_stays_when_the_command_has_ended(opened, file):
    with page_of(review_of(file)) as page:
        tab = opened(page.address)
    tab.locator("#c0-high").fill("130")
    tab.locator("#save").click()
    until(tab.locator("#message")).to_contain_text("not run")
    assert tab.locator("#c0-high").input_value() == "130"


def test_a_page_of_a_study_follows_it_and_says_when_it_is_not_served(opened):
    views = Views(AT_COORDINATOR, 0.1)
    with LocalPage(views.routes()) as page:
        tab = opened(page.address, width=400)
        assert "running" in tab.locator("#now").inner_text()
        region = tab.locator("[role=region]")
        region.focus()
        later = {name: getattr(AT_COORDINATOR, name) for name in AT_COORDINATOR.__struct_fields__}
        views.put(type(AT_COORDINATOR)(**{**later, "questions": 7}))
        until(tab.locator("#now")).to_contain_text("7 of at")
        until(tab.locator("[role=region]")).to_be_focused()
        assert not tab.locator("#gone").is_visible()
    tab.wait_for_selector("#gone", state="visible")


def test_nothing_on_a_page_asks_another_server(chromium, page):
    asked = []
    tab = chromium.new_page()
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.address)
    tab.wait_for_load_state("networkidle")
    assert asked
    assert all(url.startswith(page.address.rsplit("/", 2)[0]) for url in asked)
    tab.close()
