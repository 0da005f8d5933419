"""The output formats. Each module of this package is one, and its name is the word after ``-o``.

A module defines ``FORMAT``, a :class:`Format`. No list names the modules.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from tightship.documents.presentation import Document, View
from tightship.documents.terminal import Terminal

Rendered: TypeAlias = str | Mapping[str, object]
"""Text, or plain data that the command line writes as YAML: pure code loads no YAML library."""


class Render(Protocol):
    """Renders a document."""

    def __call__(self, document: Document, view: View[Document], terminal: Terminal, /) -> Rendered: ...


class Format(Struct, frozen=True):
    """How a format renders a document, and which optional part of a view it *needs*.

    If *file* is true, the result is a complete file: always in UTF-8, and never without headers. Formats are sorted by
    *place*, then by name; the first one is the default.
    """

    render: Render
    needs: Literal["", "wide", "page", "rows", "summary", "patches"] = ""
    file: bool = False
    place: int = 100


def formats_of(view: View[Document]) -> dict[str, Format]:
    """Return the formats of a kind of document by name, the default first."""
    names = [each.name for each in pkgutil.iter_modules(__path__)]
    found: dict[str, Format] = {name: importlib.import_module(f"{__name__}.{name}").FORMAT for name in names}
    there = {name: form for name, form in found.items() if not form.needs or getattr(view, form.needs) is not None}
    return dict(sorted(there.items(), key=lambda each: (each[1].place, each[0])))
