"""A page as an HTML document that loads nothing: style, script and pictures are in it, and nothing else may run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files

from tightship.report.html.fleet import fleet_pictures
from tightship.report.html.markup import Markup, joined, tag, text
from tightship.report.html.tables import entry_ids, listing_table, plain_table
from tightship.report.html.timeline import chart_picture
from tightship.report.presentation import Fact, Page, Section

_ASSETS = files("tightship.report.html") / "assets"
_STYLE = (_ASSETS / "page.css").read_text("utf-8")
_SCRIPT = (_ASSETS / "page.js").read_text("utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


_ALONE = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; base-uri 'none'; form-action 'none'"
)

CONTENT_SECURITY_POLICY = f"{_ALONE}; connect-src 'self'; frame-ancestors 'none'"
"""The header to send with a page that is served: it may ask for itself anew, and nothing runs if markup got in."""

_PATTERNS = (
    '<svg class="defs" width="0" height="0" aria-hidden="true"><defs>'
    '<pattern id="hatch-cpu" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatch-ground" width="4" height="4"/><rect class="hatch-cpu" width="1.7" height="4"/></pattern>'
    '<pattern id="hatch-memory" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect class="hatch-ground" width="4" height="4"/><rect class="hatch-memory" width="1.7" height="4"/></pattern>'
    "</defs></svg>"
)


def render_page(page: Page) -> str:
    """Return *page* as a document. The same page gives the same text."""
    return "".join(page_parts(page))


def page_parts(page: Page) -> Iterator[str]:
    """Return *page* as a document, part after part: with thousands of rows the whole need not be held at once."""
    ids = entry_ids(page.listing)
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    if not page.refresh:
        yield f'<meta http-equiv="Content-Security-Policy" content="{text(_ALONE)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    if page.refresh:
        yield f'<noscript><meta http-equiv="refresh" content="{page.refresh}"></noscript>\n'
    yield f'{tag("title", page.title)}\n<style>{_STYLE}</style>\n</head>\n<body data-refresh="{page.refresh}">\n'
    yield f'{_skips(page)}\n{_PATTERNS}\n<header id="head">\n{_head(page)}</header>\n{_controls(page)}'
    yield '<main id="main" tabindex="-1">\n'
    for section in page.sections:
        yield _section(section, ids)
    if page.listing is not None:
        yield from listing_table(page.listing, ids)
    links = joined(tag("a", name, href=target) for name, target in page.links)
    alone = "" if page.refresh else "The page is complete in itself: it loads nothing."
    yield f"</main>\n<footer>{links}{alone}</footer>\n"
    yield '<div id="pick" class="js" role="status" hidden></div>\n'
    yield f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"


def _skips(page: Page) -> Markup:
    to_list = tag("a", f"Skip to {page.listing.noun}s", href="#list", class_="skip") if page.listing else ""
    return joined((tag("a", "Skip to the content", href="#main", class_="skip"), to_list))


def _head(page: Page) -> Markup:
    alerts = joined(tag("p", each, class_="alert") for each in page.alerts)
    lines = joined(tag("p", each) for each in page.subtitle)
    boxed = tag("div", alerts, role="region", aria_label="warnings") if page.alerts else Markup("")
    return joined((tag("h1", page.title), lines, boxed, _facts(page.facts)))


def _controls(page: Page) -> str:
    """Return what only works with the script; without it none of this is seen."""
    listing = page.listing
    noun = "entries" if listing is None else f"{listing.noun}s"
    states = [("", f"all {noun}"), *(() if listing is None else listing.states)]
    hint = "" if listing is None else listing.hint
    alive = tag("label", tag("input", type="checkbox", id="alive", checked=True), " keep up to date")
    parts = (
        tag("label", "Search", for_="query"),
        tag("input", type="search", id="query", placeholder=hint, autocomplete="off", spellcheck="false"),
        tag("label", "Show", for_="state"),
        tag("select", *(tag("option", name, value=word) for word, name in states), id="state"),
        tag("span", "", id="count", role="status"),
        tag("button", "Open all", type="button", id="open"),
        tag("button", "Close all", type="button", id="close"),
        tag("label", "Colours", for_="theme"),
        tag(
            "select",
            *(tag("option", word, value=word) for word in ("system", "light", "dark")),
            id="theme",
        ),
        alive if page.refresh else Markup(""),
        tag("p", "", id="stale", class_="alert", role="alert", hidden=True),
    )
    return f'<div class="controls js" role="search" aria-label="search and filter">{joined(parts)}</div>\n'


def _section(section: Section, ids: Mapping[str, str]) -> Markup:
    parts = (
        tag("h2", section.heading),
        tag("p", section.note) if section.note else "",
        Markup("") if section.fleet is None else fleet_pictures(section.fleet, ids),
        Markup("") if section.chart is None else chart_picture(section.chart),
        Markup("") if section.table is None else plain_table(section.table, ids, section.heading),
    )
    return tag("section", *parts, class_="half" if section.half else None)


def _facts(facts: tuple[Fact, ...]) -> Markup:
    if not facts:
        return Markup("")
    return tag("dl", *map(_fact, facts), class_="facts")


def _fact(fact: Fact) -> Markup:
    below = tag("small", fact.detail) if fact.detail else ""
    return tag("div", tag("dt", fact.name), tag("dd", fact.value, below, class_=fact.tone or None), class_="fact")


__all__ = ["CONTENT_SECURITY_POLICY", "page_parts", "render_page"]
