"""A page as an HTML document that loads nothing: it contains style, script and pictures, and nothing else may run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from string import Template

from tightship.documents.html.markup import ASSETS, Markup, asset, joined, tag
from tightship.documents.html.tables import entry_ids, listing_table, section_of
from tightship.documents.presentation import Fact, Page, Section

_STYLE = Markup((ASSETS / "page.css").read_text("utf-8"))
_SCRIPT = Markup((ASSETS / "page.js").read_text("utf-8"))
_BEFORE, _AFTER = map(Template, asset("page.html").split("$main"))


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


_ALONE = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; base-uri 'none'; form-action 'none'"
)

CONTENT_SECURITY_POLICY = f"{_ALONE}; connect-src 'self'; frame-ancestors 'none'"
"""The header of a served page: the page may reload itself, and no injected markup runs."""


def render_page(page: Page) -> str:
    """Return *page* as a document. Equal pages give equal texts."""
    return "".join(page_parts(page))


def page_parts(page: Page) -> Iterator[str]:
    """Return *page* as a document in parts, so that a page with thousands of rows never is in memory as a whole."""
    ids, listing, nothing = entry_ids(page.listing), page.listing, Markup("")
    noun = "entries" if listing is None else f"{listing.noun}s"
    states = (("", f"all {noun}"), *(() if listing is None else listing.states))
    policy = tag("meta", http_equiv="Content-Security-Policy", content=_ALONE)
    reload = tag("noscript", tag("meta", http_equiv="refresh", content=str(page.refresh)))
    yield _filled(
        _BEFORE,
        policy=nothing if page.refresh else Markup(f"{policy}\n"),
        reload=Markup(f"{reload}\n") if page.refresh else nothing,
        title=page.title,
        style=_STYLE,
        refresh=str(page.refresh),
        to_list=nothing if listing is None else tag("a", f"Skip to {noun}", href="#list", class_="skip"),
        head=_head(page),
        hint="" if listing is None else listing.hint,
        states=joined(tag("option", name, value=word) for word, name in states),
        alive=tag("label", tag("input", type="checkbox", id="alive", checked=True), " keep up to date")
        if page.refresh
        else nothing,
    )
    yield from (_section(each, ids) for each in page.sections)
    if listing is not None:
        yield from listing_table(listing, ids)
    yield from (_section(each, ids) for each in page.below)
    links = joined(tag("a", name, href=target) for name, target in page.links)
    alone = "" if page.refresh else "The page is complete in itself: it loads nothing."
    yield _filled(_AFTER, footer=joined((links, alone)), script=_SCRIPT) + "\n"


def _section(section: Section, ids: Mapping[str, str]) -> Markup:
    return tag("section", section_of(section, ids, "h2", "region"), class_="half" if section.half else None)


def _filled(template: Template, **values: str) -> str:
    return template.substitute({name: joined((value,)) for name, value in values.items()})


def _head(page: Page) -> Markup:
    lines = joined(tag("p", each) for each in page.subtitle)
    alerts = joined(tag("p", each, class_="alert") for each in page.alerts)
    boxed = tag("div", alerts, role="region", aria_label="warnings") if page.alerts else ""
    facts = tag("dl", *map(_fact, page.facts), class_="facts") if page.facts else ""
    return joined((lines, boxed, facts))


def _fact(fact: Fact) -> Markup:
    below = tag("small", fact.detail) if fact.detail else ""
    return tag("div", tag("dt", fact.name), tag("dd", fact.value, below, class_=fact.tone or None), class_="fact")
