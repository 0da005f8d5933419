"""GitHub's Markdown, for a comment of a pull request: the summary first, then as many rows as there is room for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from tightship.documents.formats import Format
from tightship.documents.presentation import Block, Document, Grid, GridShape, Printout, TextLine, View, fitted, written
from tightship.documents.terminal import Terminal, clean

_SPECIAL = re.compile(r"[\\`*_\[\]<>|#~]")


LONGEST = 65_000
"""Most characters: a comment on GitHub has at most 65,536, and whoever posts it may add a line."""

_LEFT_OUT = 4_000
"""Characters that rows leave to the lines that say how many more there are."""


def _render(document: Document, view: View[Document], terminal: Terminal) -> str:
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


FORMAT = Format(_render, file=True, place=6)
