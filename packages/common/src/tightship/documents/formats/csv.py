"""CSV with a row for each node or HPA and a column for each value of its JSON, such as ``cpuMilli.requested``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

import msgspec

from tightship.documents.formats import Format
from tightship.documents.presentation import Document, View
from tightship.documents.terminal import Terminal


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    assert view.rows is not None
    rows = [dict(_flat(msgspec.to_builtins(row))) for _, row in view.rows(document)]
    columns = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if terminal.headers:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield each scalar with its path. A list of words becomes one text, of objects their number, empty nothing."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            words = all(isinstance(each, str) for each in value)
            yield prefix + key, " ".join(value) if words else len(value)
        else:
            yield prefix + key, str(value).lower() if isinstance(value, bool) else value


FORMAT = Format(_render, needs="rows", file=True, place=7)
