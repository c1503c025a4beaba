"""A real browser for the pages we make: headless Chromium, driven by Playwright.

Skips, saying so, where there is no Chromium; fails where CI=true, so that no page goes out unopened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 800}


@dataclass
class Visit:
    """A page that is open.

    console: errors, warnings and uncaught exceptions. outside: requests that would have left the machine.
    """

    page: Any  # playwright.sync_api.Page
    console: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )  # clientWidth: without the scroll bar


OpenPage = Callable[..., Visit]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """The browser process, one for all tests of this folder."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        why = "no Chromium on this machine (Debian: apt-get install --no-install-recommends chromium)"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """A function that opens a file or address and gives a `Visit`; at the end every visit must have been clean.

    Keywords go to `browser.new_context`: viewport=PHONE, java_script_enabled=False, color_scheme="dark", ...
    Requests that leave the machine are refused and noted. A test that expects some of what is noted clears the list.
    """
    visits: list[Visit] = []
    contexts = []

    def note(made: Visit, line: Any) -> None:
        if line.type in ("error", "warning"):
            made.console.append(f"{line.type}: {line.text}")

    def visit(target: Path | str, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        contexts.append(context)
        made = Visit(context.new_page())
        visits.append(made)
        made.page.on("pageerror", lambda error: made.console.append(f"exception: {error}"))
        made.page.on("console", lambda line: note(made, line))

        def guard(route: Any) -> None:
            address = urlsplit(route.request.url)
            if address.scheme in ("file", "data", "blob", "about") or address.hostname in ("127.0.0.1", "localhost"):
                route.continue_()
            else:
                made.outside.append(route.request.url)
                route.abort()

        context.route("**/*", guard)
        made.page.goto(target.resolve().as_uri() if isinstance(target, Path) else target)
        return made

    yield visit
    noted = [(made.console, made.outside) for made in visits]
    for context in contexts:
        context.close()
    assert noted == [([], [])] * len(noted)
