"""JSON, with its keys in the order of the schema. This module is short because a format is one module."""

from __future__ import annotations

import msgspec

from tightship.report.formats import Format
from tightship.report.presentation import Document, View
from tightship.report.terminal import Terminal


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    del view, terminal
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


FORMAT = Format(_render, file=True, place=3)
