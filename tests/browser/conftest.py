"""A Chromium without a window, for the tests of pages."""

import os
from contextlib import ExitStack

import pytest


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        options = {"executable_path": os.environ.get("SILOWEAVE_BROWSER") or None}
        try:
            browser = driver.chromium.launch(args=["--no-sandbox"], **options)
        except playwright.Error as error:
            pytest.skip(f"no Chromium can be started: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Open an address, and refuse every message that a page leaves in the browser's console."""
    messages = []
    with ExitStack() as stack:

        def at(address, width=800, scheme="light"):
            size = {"width": width, "height": 900}
            tab = chromium.new_page(viewport=size, color_scheme=scheme)
            stack.callback(tab.close)
            tab.on("pageerror", lambda error: messages.append(str(error)))
            tab.on(
                "console",
                lambda message: messages.append(message.text) if message.type == "error" else None,
            )
            tab.goto(address)
            return tab

        yield at
    # What the page's own server refuses, or that it has ended, is shown in the console, too.
    # A question that was under way when it ended is reset, a later one is refused.
    expected = ("status of 4", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET")
    assert [text for text in messages if not any(words in text for words in expected)] == []
