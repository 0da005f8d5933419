"""GitHub's Markdown, for a comment of a pull request: rows as a table, other lines as they stand on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from tightship.documents.formats import Format
from tightship.documents.lines import fitted, written
from tightship.documents.presentation import Block, Document, Grid, GridShape, Printout, TextLine, View
from tightship.documents.terminal import Terminal, clean

_SPECIAL = re.compile(r"[\\`*_\[\]<>|#~]")


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
    printout = view.printout(document)
    terminal = Terminal(headers=terminal.headers)
    parts = [_escaped(text) for text in printout.heading if terminal.headers]
    if printout.grid is not None:
        parts.append(_table(printout.grid, terminal))
    for block in printout.blocks:
        parts += [f"### {_escaped(block.title)}"] if block.title else []
        parts.append(_fenced(block.lines, block.grid, terminal))
    if terminal.headers:
        parts.append(_fenced(printout.end, None, terminal))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(grid: Grid, terminal: Terminal) -> str:
    columns = fitted(msgspec.structs.replace(grid, shapes=(GridShape(bar=0),)), terminal, headers=True)
    lines = [_row(column.title for column in columns), _row("---:" if each.align == ">" else "---" for each in columns)]
    lines += [_row(map(_escaped, cells)) for cells in zip(*(column.cells for column in columns), strict=True)]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", " ".join(clean(text).split()))


def _fenced(lines: Sequence[TextLine], grid: Grid | None, terminal: Terminal) -> str:
    text = written(Printout(blocks=[Block("", lines, grid)]), terminal).strip("\n")
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 0)
    return f"{fence}text\n{text}\n{fence}" if text else ""


FORMAT = Format(_render, file=True, place=6)
