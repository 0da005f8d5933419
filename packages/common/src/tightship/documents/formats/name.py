"""The names of what the plan would change, one a line, for other commands. This module is short: one format each."""

from __future__ import annotations

from tightship.documents.formats import Format
from tightship.documents.presentation import Document, View
from tightship.documents.terminal import Terminal


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    del terminal
    assert view.rows is not None
    return "".join(f"{name}\n" for name, _ in view.rows(document) if name)


FORMAT = Format(_render, needs="rows", file=True, place=8)
