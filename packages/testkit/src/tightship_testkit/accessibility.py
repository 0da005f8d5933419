"""Pages judged by axe-core, as people see them: in light and dark, wide and narrow, closed and opened."""

from __future__ import annotations

from typing import Any

import msgspec
from axe_playwright_python.async_playwright import Axe
from msgspec import Struct
from playwright.async_api import Browser, Page

from tightship_testkit.browser import opened

TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
"""What is asked of a page: WCAG 2.2 A and AA, and what axe-core calls best practice."""

MORE = ("css-orientation-lock", "label-content-name-mismatch", "p-as-heading", "table-fake-caption", "td-has-header")
"""Rules of A and AA that axe-core leaves out unless they are asked for, since they are new."""

WAYS = ((1280, "light"), (1280, "dark"), (360, "light"))
"""Widths of the window and colours in which a page is judged."""

CONTRAST = "color-contrast"

UNREADABLE = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => {
    const part = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = rgba(getComputedStyle(each).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("svg text, input[placeholder]:not([placeholder=''])")) {
    if (!element.checkVisibility()) continue;
    const [ink, words] = element.matches("text") ? [getComputedStyle(element).fill, element.textContent]
      : [getComputedStyle(element, "::placeholder").color, element.placeholder];
    const [a, b] = [light(rgba(ink)), light(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`<${element.localName}> "${words}": contrast of ${ratio.toFixed(2)}, expected 4.5`);
  }
  return poor;
}"""
"""Names the texts of poor contrast that axe-core does not judge: those of a picture, whose colour is its fill, and what
stands in a field that is empty."""

OPTIONS = {
    "runOnly": list(TAGS),
    "rules": {name: {"enabled": True} for name in MORE},
    "resultTypes": ["violations", "incomplete"],
}

OPEN = "(to) => document.querySelectorAll('details').forEach((each) => { each.open = to; })"

SEEN = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
  () => done(document.documentElement.scrollHeight))))"""


class Element(Struct, frozen=True, rename="camel"):
    """An element that a rule has something against; *target* are its selectors, *failure_summary* what mends it."""

    target: list[str]
    html: str
    failure_summary: str


class Rule(Struct, frozen=True, rename="camel"):
    """A rule that a page breaks, or of which axe-core can't tell."""

    id: str
    help: str
    help_url: str
    nodes: list[Element]


class Results(Struct, frozen=True):
    """What axe-core says of a page."""

    violations: list[Rule]
    incomplete: list[Rule]


async def shortcomings(page: Page) -> list[str]:
    """Return what is wrong with *page* as it is now: a text for each element with the rule it breaks and what mends it.

    Nothing is left out: what axe-core can't tell counts as well, but for texts in pictures, which
    :data:`UNREADABLE` judges.
    """
    size = page.viewport_size
    assert size is not None
    try:
        await _unrolled(page, size["width"])
        found: Any = await Axe().run(page, options=OPTIONS)
        results = msgspec.convert(found.response, type=Results)
        poor: list[str] = await page.evaluate(UNREADABLE)
    finally:
        await page.set_viewport_size(size)
    broken = [_described(rule, element) for rule in results.violations for element in rule.nodes]
    unsure = [
        _described(rule, element, "can't be told: ")
        for rule in results.incomplete
        for element in rule.nodes
        if not (rule.id == CONTRAST and element.html.startswith("<text "))
    ]
    return [*broken, *unsure, *(f"{CONTRAST}: {each}" for each in poor)]


async def assert_accessible(page: Page) -> None:
    """Raise :class:`AssertionError` that tells all :func:`shortcomings` of *page* as it is now."""
    __tracebackhide__ = True
    if found := await shortcomings(page):
        raise AssertionError(f"{page.url} has {len(found)} shortcomings:\n" + "\n".join(found))


async def assert_accessible_in_every_way(browser: Browser, url: str) -> None:
    """Raise :class:`AssertionError` that tells all shortcomings of *url* in all :data:`WAYS`, closed and opened."""
    __tracebackhide__ = True
    reported: dict[str, list[str]] = {}
    for width, colours in WAYS:
        async with opened(browser, url, width=width, dark=colours == "dark") as (page, _):
            # What is fetched anew while it is judged would be judged by halves.
            await page.evaluate("if (window.alive) window.alive.checked = false")
            for wide in ("closed", "opened"):
                await page.evaluate(OPEN, wide == "opened")
                for each in await shortcomings(page):
                    reported.setdefault(each, []).append(f"{width} wide, {colours}, {wide}")
    if reported:
        lines = (f"{each}\n  seen {'; '.join(ways)}" for each, ways in reported.items())
        raise AssertionError(f"{url} has {len(reported)} shortcomings:\n" + "\n".join(lines))


async def _unrolled(page: Page, width: int) -> None:
    """Make the window as high as the page: rows that are not seen have no true size, and lie upon each other."""
    high = 0
    while (needed := int(await page.evaluate(SEEN))) > high:
        high = needed
        await page.set_viewport_size({"width": width, "height": high})


def _described(rule: Rule, element: Element, doubt: str = "") -> str:
    mend = element.failure_summary.replace("\n", "\n  ")
    return f"{rule.id}: {doubt}{rule.help} ({rule.help_url})\n  {' '.join(element.target)}\n  {element.html}\n  {mend}"


__all__ = ["MORE", "TAGS", "assert_accessible", "assert_accessible_in_every_way", "shortcomings"]
