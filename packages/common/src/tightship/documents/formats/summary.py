"""The decision on one screen, whatever the size of the fleet."""

from __future__ import annotations

import msgspec

from tightship.documents.formats import Format
from tightship.documents.presentation import Document, View, written
from tightship.documents.terminal import Terminal

WIDTH = 80
"""Columns of a summary that goes to a pipe."""


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    assert view.summary is not None
    return written(view.summary(document), msgspec.structs.replace(terminal, width=terminal.width or WIDTH))


FORMAT = Format(_render, needs="summary", place=2)
