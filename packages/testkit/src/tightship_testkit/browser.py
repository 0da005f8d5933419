"""A real browser without a window, for the pages that people look at: Debian's `chromium`, or another Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Programs that will do, the first that is found is taken; TIGHTSHIP_BROWSER names another one."""

PATIENCE = 120_000
"""Milliseconds that a page may take on a busy machine to become what is expected of it, and a browser to start."""
expect.set_options(timeout=PATIENCE)


def find_browser() -> str:
    """Return the browser's path; without one skip the test in a line, and fail under `CI=true`."""
    asked = os.environ.get("TIGHTSHIP_BROWSER")
    found = next(filter(None, map(shutil.which, (asked,) if asked else NAMES)), None)
    if found is not None:
        return found
    why = f"no browser ({asked or ', '.join(NAMES)}): install Debian's chromium, or let TIGHTSHIP_BROWSER name one"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One browser for the whole run. Tests that use it are marked `asyncio(loop_scope="session")`."""
    path = find_browser()
    async with async_playwright() as playwright:
        # Chromium's own sandbox does not work for root, and what is opened here is ours.
        started = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=PATIENCE)
        try:
            yield started
        finally:
            await started.close()


class Watch:
    """What a page said and asked for while it was open."""

    def __init__(self, page: Page) -> None:
        self.said: list[str] = []
        self.asked_for: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked_for.append(request.url))


@asynccontextmanager
async def opened(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    dark: bool = False,
    script: bool = True,
) -> AsyncIterator[tuple[Page, Watch]]:
    """Open *url* in a window of its own, *width* pixels wide."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
        # Where something is can be told only when it has come to rest.
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE)
    page = await context.new_page()
    watch = Watch(page)
    try:
        await page.goto(url)
        yield page, watch
    finally:
        await context.close()


__all__ = ["Watch", "browser", "find_browser", "opened"]
