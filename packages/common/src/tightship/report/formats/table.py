"""Lines that fit the terminal. This module is short because a format is one module."""

from __future__ import annotations

from tightship.report.formats import Format
from tightship.report.lines import written
from tightship.report.presentation import Document, View
from tightship.report.terminal import Terminal


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    return written(view.printout(document), terminal)


FORMAT = Format(_render, place=1)
