"""Columns of text, wide enough for their cells and no wider."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tightship.report.terminal import Terminal, length, pad

GAP = "  "


class Column(Struct, frozen=True):
    """One column: *title*, alignment (``<`` or ``>``), cells, and a style for each cell or none."""

    title: str
    cells: Sequence[str]
    align: str = "<"
    styles: Sequence[str] = ()

    def width(self, *, headers: bool) -> int:
        """Columns of the terminal that the widest cell takes."""
        widest = max((length(cell) for cell in self.cells), default=0)
        return max(widest, length(self.title)) if headers else widest


def lines(columns: Sequence[Column], terminal: Terminal, indent: str = "") -> list[str]:
    """Return the lines of a table, titles first unless the terminal wants none; the last column is not filled up."""
    widths = [column.width(headers=terminal.headers) for column in columns]
    last = len(columns) - 1

    def line(cells: Sequence[str], styles: Sequence[str]) -> str:
        parts: list[str] = []
        for number, cell in enumerate(cells):
            filled = (
                cell
                if number == last and columns[number].align == "<"
                else pad(cell, widths[number], columns[number].align)
            )
            parts.append(terminal.paint(filled, styles[number]))
        return (indent + GAP.join(parts)).rstrip()

    out = [line([column.title for column in columns], ["bold"] * len(columns))] if terminal.headers else []
    for row in range(len(columns[0].cells) if columns else 0):
        cells = [column.cells[row] for column in columns]
        styles = [column.styles[row] if column.styles else "" for column in columns]
        out.append(line(cells, styles))
    return out


def total_width(columns: Sequence[Column], *, headers: bool = True) -> int:
    """Return the columns of the terminal that the widest line takes."""
    return sum(column.width(headers=headers) for column in columns) + len(GAP) * max(0, len(columns) - 1)
