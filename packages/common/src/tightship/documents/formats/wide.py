"""A table with every column, never cut. This module is short because a format is one module."""

from __future__ import annotations

import msgspec

from tightship.documents.formats import Format
from tightship.documents.presentation import Document, Grid, View, written
from tightship.documents.terminal import Terminal


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    assert view.wide is not None
    printout = msgspec.structs.replace(view.printout(document), grid=Grid(view.wide(document)))
    return written(printout, terminal)


FORMAT = Format(_render, needs="wide", place=2)
