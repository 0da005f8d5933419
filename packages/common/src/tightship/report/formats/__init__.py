"""The formats after ``-o``: each module here is one, called by the module's name, and there because the module is.

Such a module has a :class:`Format` called ``FORMAT``. No list names it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from tightship.report.presentation import Document, View
from tightship.report.terminal import Terminal

Rendered: TypeAlias = str | Mapping[str, object]
"""A text, or plain data, which the edge writes as YAML: this folder loads no writer of YAML."""


class Render(Protocol):
    """Renders a document."""

    def __call__(self, document: Document, view: View[Document], terminal: Terminal, /) -> Rendered: ...


class Format(Struct, frozen=True):
    """A format: how it renders a document, and which part of a view it *needs*, if any.

    *file* says that the result is a whole file: in UTF-8 whatever the locale, and never without what belongs to it.
    *place* orders the formats; the first one is the default.
    """

    render: Render
    needs: Literal["", "wide", "page"] = ""
    file: bool = False
    place: int = 100


def formats_of(view: View[Document]) -> dict[str, Format]:
    """Return the formats of a kind of document by name, the default first."""
    names = [each.name for each in pkgutil.iter_modules(__path__)]
    found: dict[str, Format] = {name: importlib.import_module(f"{__name__}.{name}").FORMAT for name in names}
    there = {name: form for name, form in found.items() if not form.needs or getattr(view, form.needs) is not None}
    return dict(sorted(there.items(), key=lambda each: (each[1].place, each[0])))


def render(document: Document, view: View[Document], name: str, terminal: Terminal = Terminal()) -> Rendered:
    """Return *document* in the format *name*, one of :func:`formats_of` its view."""
    return formats_of(view)[name].render(document, view, terminal)
