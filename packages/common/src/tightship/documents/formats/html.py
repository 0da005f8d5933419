"""A self-contained HTML page with pictures. This module is short because a format is one module."""

from __future__ import annotations

from tightship.documents.formats import Format
from tightship.documents.html.page import render_page
from tightship.documents.presentation import Document, View
from tightship.documents.terminal import Terminal


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    del terminal
    assert view.page is not None
    return render_page(view.page(document))


FORMAT = Format(_render, needs="page", file=True, place=5)
