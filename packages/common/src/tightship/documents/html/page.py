"""A page as an HTML document that loads nothing: it contains style, script and pictures, and nothing else may run.

This module alone loads Jinja2, and only when the first page is made. Templates are files of a package, as modules are.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from msgspec import Struct

from tightship.documents.terminal import clean
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason

if TYPE_CHECKING:
    from jinja2 import Environment

SITE = "https://tightship.github.io/tightship"
"""The documentation, for the links of pages."""

REFRESH = 30
"""Seconds after which a page served by a controller reloads."""

_MACROS = "tightship.documents.html/macros.html"
_REASONS = frozenset(reason.value for reason in Reason)
_BUFFERED = 500
"""Pieces of a template that become one part of a page."""


class Page(Struct, frozen=True):
    """A page: *template*, the name ``package/file`` of a template, and its *values* besides the fields here.

    *alerts* stand on top of everything. A page served by a controller reloads every *refresh* seconds. If *refresh* is
    0, the page is a file that loads nothing at all.
    """

    title: str
    template: str = "tightship.documents.html/base.html"
    values: Mapping[str, object] = {}
    alerts: tuple[str, ...] = ()
    refresh: int = 0


def render_page(page: Page) -> str:
    """Return *page* as a document. Equal pages give equal texts."""
    return "".join(page_parts(page))


def page_parts(page: Page) -> Iterator[str]:
    """Return *page* as a document in parts, so that a page with thousands of rows never is in memory as a whole."""
    stream = _environment().get_template(page.template).stream(page.values, page=page)
    stream.enable_buffering(_BUFFERED)
    return stream


def _body(page: Page) -> object:
    """Return the main part of *page*, for a page of several."""
    from markupsafe import Markup

    environment = _environment()
    template, macros = environment.get_template(page.template), environment.get_template(_MACROS).module
    context = template.new_context({**page.values, "page": page, "m": macros})
    return Markup("".join(template.blocks["main"](context)))  # noqa: S704 - the template escapes


def _text(name: str) -> str:
    package, _, file = name.partition("/")
    return (files(package) / "templates" / file).read_text("utf-8")


def _shown(value: object) -> object:
    """Escape control characters and changes of direction, too: texts come from clusters, from anybody."""
    return clean(value) if type(value) is str else value


def _in_text(escaped: str) -> str:
    """Return the quotes, of which commands are full, as they are: they mean nothing between tags."""
    return escaped.replace("&#34;", '"').replace("&#39;", "'")


def _about(reason: str) -> str:
    """Return the address of the chapter about *reason*, empty for what is no reason of ours."""
    return f"{SITE}/reasons/#{reason.lower()}" if reason in _REASONS else ""


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup, escape

    from tightship.documents import amounts, money  # which need documents, whose texts need this module

    made = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "about": _about,
        "body": _body,
        "amounts": amounts,
        "counted": counted,
        "money": money,
        "policy": _ALONE,
        "script": Markup(_SCRIPT),  # noqa: S704 - our own
        "site": SITE,
        "style": Markup(_STYLE),  # noqa: S704 - our own
    }
    made.filters["n"] = lambda number: f"{number:,}"
    made.filters["in_text"] = lambda text: Markup(_in_text(str(escape(clean(text)))))  # noqa: S704 - it is escaped
    return made


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


_STYLE = _text("tightship.documents.html/page.css")
_SCRIPT = _text("tightship.documents.html/page.js")
_ALONE = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; base-uri 'none'; form-action 'none'"
)

CONTENT_SECURITY_POLICY = f"{_ALONE}; connect-src 'self'; frame-ancestors 'none'"
"""The header of a served page: the page may reload itself, and no injected markup runs."""
