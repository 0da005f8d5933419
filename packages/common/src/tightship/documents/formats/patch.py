"""What the document advises, as patches for git. This module is short because a format is one module."""

from __future__ import annotations

from tightship.documents.formats import Format
from tightship.documents.presentation import Document, View
from tightship.documents.terminal import Terminal


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    del terminal
    assert view.patches is not None
    return view.patches(document)


FORMAT = Format(_render, needs="patches", file=True, place=9)
