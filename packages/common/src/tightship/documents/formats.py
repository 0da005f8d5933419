"""The output formats by the word after ``-o``: a row of :data:`FORMATS` each."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from tightship.documents.html.page import render_page
from tightship.documents.presentation import Block, Document, Grid, GridShape, Printout, TextLine, View, fitted, written
from tightship.documents.terminal import Terminal, clean

Rendered: TypeAlias = str | Mapping[str, object]
"""Text, or plain data that the command line writes as YAML: pure code loads no YAML library."""


class Render(Protocol):
    """Renders a document."""

    def __call__(self, document: Document, view: View[Document], terminal: Terminal, /) -> Rendered: ...


class Format(Struct, frozen=True):
    """How a format renders a document, and which optional part of a view it *needs*.

    If *file* is true, the result is a complete file: always in UTF-8, and never without headers.
    """

    render: Render
    needs: Literal["", "wide", "page", "rows", "summary", "patches"] = ""
    file: bool = False


WIDTH = 80
"""Columns of a summary that goes to a pipe."""


def _summary(document: Document, view: View[Document], terminal: Terminal) -> str:
    """The decision on one screen, whatever the size of the fleet."""
    assert view.summary is not None
    return written(view.summary(document), msgspec.structs.replace(terminal, width=terminal.width or WIDTH))


def _wide(document: Document, view: View[Document], terminal: Terminal) -> str:
    """A table with every column, never cut."""
    assert view.wide is not None
    printout = msgspec.structs.replace(view.printout(document), grid=Grid(view.wide(document)))
    return written(printout, terminal)


def _html(document: Document, view: View[Document], _: Terminal) -> str:
    assert view.page is not None
    return render_page(view.page(document))


_SPECIAL = re.compile(r"[\\`*_\[\]<>|#~]")


LONGEST = 65_000
"""Most characters: a comment on GitHub has at most 65,536, and whoever posts it may add a line."""

_LEFT_OUT = 4_000
"""Characters that rows leave to the lines that say how many more there are."""


def _markdown(document: Document, view: View[Document], terminal: Terminal) -> str:
    """For a comment of a pull request: the summary first, then as many rows as there is room for."""
    printout = view.printout(document)
    terminal = Terminal(headers=terminal.headers)
    parts: list[str] = []
    if terminal.headers:
        parts += [_escaped(text) for text in printout.heading]
        parts.append(_fenced(printout.start, None, terminal))
        for block in printout.below:
            parts += [f"### {_escaped(block.title)}"] if block.title else []
            parts.append(_fenced(block.lines, block.grid, terminal))
    for block in printout.blocks:
        parts += [f"### {_escaped(block.title)}"] if block.title else []
        parts.append(_fenced(block.lines, block.grid, terminal))
    if terminal.headers:
        parts.append(_fenced(printout.end, None, terminal, most=LONGEST // 2))
    room = LONGEST - _LEFT_OUT - sum(len(part) + 2 for part in parts)
    if printout.grid is not None:
        table, more = _table(printout.grid, terminal, room)
        rows = len(printout.grid.columns[0].cells)
        note = f"\n\nand {more:,} more rows" if more else ""
        table = f"<details><summary>{rows:,} rows</summary>\n\n{table}{note}\n\n</details>"
        parts.append(table)
    text = "\n\n".join(part for part in parts if part) + "\n"
    return (
        text if len(text) <= LONGEST else text[:LONGEST].rpartition("\n")[0] + "\n```\n\nand more, which has no room\n"
    )


def _table(grid: Grid, terminal: Terminal, room: int) -> tuple[str, int]:
    """Return the rows of *grid* that have *room*, and how many have none."""
    columns = fitted(msgspec.structs.replace(grid, shapes=(GridShape(bar=0),)), terminal, headers=True)
    lines = [_row(column.title for column in columns), _row("---:" if each.align == ">" else "---" for each in columns)]
    rows = [_row(map(_escaped, cells)) for cells in zip(*(column.cells for column in columns), strict=True)]
    used = sum(map(len, lines)) + 2
    for number, row in enumerate(rows):
        used += len(row) + 1
        if used > room:
            return "\n".join(lines), len(rows) - number
        lines.append(row)
    return "\n".join(lines), 0


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", " ".join(clean(text).split()))


def _fenced(lines: Sequence[TextLine], grid: Grid | None, terminal: Terminal, most: int = LONGEST) -> str:
    text = written(Printout(blocks=[Block("", lines, grid)]), terminal).strip("\n")
    if len(text) > most:
        kept = text[:most].rpartition("\n")[0]
        text = f"{kept}\nand {text.count(chr(10)) - kept.count(chr(10)):,} more lines"
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 0)
    return f"{fence}text\n{text}\n{fence}" if text else ""


def _csv(document: Document, view: View[Document], terminal: Terminal) -> str:
    """A row for each node or HPA, and a column for each value of its JSON, such as ``cpuMilli.requested``."""
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


def _name(document: Document, view: View[Document], _: Terminal) -> str:
    """The names of what the plan would change, one a line, for other commands."""
    assert view.rows is not None
    return "".join(f"{name}\n" for name, _ in view.rows(document) if name)


def _patch(document: Document, view: View[Document], _: Terminal) -> str:
    """What the document advises, for git."""
    assert view.patches is not None
    return view.patches(document)


FORMATS: Mapping[str, Format] = {
    "table": Format(lambda document, view, terminal: written(view.printout(document), terminal)),
    "summary": Format(_summary, needs="summary"),
    "wide": Format(_wide, needs="wide"),
    "json": Format(
        lambda document, *_: msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n", file=True
    ),
    "yaml": Format(lambda document, *_: dict(msgspec.to_builtins(document)), file=True),
    "html": Format(_html, needs="page", file=True),
    "markdown": Format(_markdown, file=True),
    "csv": Format(_csv, needs="rows", file=True),
    "name": Format(_name, needs="rows", file=True),
    "patch": Format(_patch, needs="patches", file=True),
}


def formats_of(view: View[Document]) -> dict[str, Format]:
    """Return the formats of a kind of document by name, the default first."""
    return {name: each for name, each in FORMATS.items() if not each.needs or getattr(view, each.needs) is not None}
