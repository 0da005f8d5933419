"""YAML, with the same data as JSON. This module is short because a format is one module."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tightship.report.formats import Format
from tightship.report.presentation import Document, View
from tightship.report.terminal import Terminal


def _render(document: Document, view: View[Document], terminal: Terminal) -> Mapping[str, object]:
    del view, terminal
    data: dict[str, object] = msgspec.to_builtins(document)
    return data


FORMAT = Format(_render, file=True, place=4)
