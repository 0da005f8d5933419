"""Markup made of texts. Inserting anything that is no :class:`Markup` escapes it once, so nobody can forget to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files

from tightship.documents.terminal import clean

ASSETS = files("tightship.documents.html") / "assets"
VOID = frozenset({"input", "meta"})
"""Elements without an end tag."""


class Markup(str):
    """A piece of HTML or SVG, already escaped."""

    __slots__ = ()


def text(plain: str) -> Markup:
    """Return *plain* escaped for any place, including control characters and changes of direction."""
    return Markup(escape(clean(plain), quote=True))


def tag(name: str, *children: str, **attributes: str | int | bool | None) -> Markup:
    """Return the element *name*.

    In the names of *attributes* ``_`` stands for ``-``, and a final ``_`` for nothing. ``None`` and ``False`` omit an
    attribute; ``True`` writes only its name.
    """
    head = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in VOID:
        return Markup(f"<{name}{head}>")
    body = "".join(child if isinstance(child, Markup) else text(child) for child in children)
    return Markup(f"<{name}{head}>{body}</{name}>")


def asset(name: str) -> Markup:
    """Return the HTML of the asset *name*, in which an indented line continues the line above it."""
    return Markup(re.sub(r"\n +", "", (ASSETS / name).read_text("utf-8")).removesuffix("\n"))


def joined(parts: Iterable[str]) -> Markup:
    """Return *parts* one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def _attribute(key: str, value: str | int | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{value if isinstance(value, int) else text(value)}"'
