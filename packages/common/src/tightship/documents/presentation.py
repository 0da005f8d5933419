"""The look of a document for people: a :class:`Printout`, and what writes it as lines.

Texts are plain Unicode. A format adapts the lines to the terminal or the file: columns are as wide as their cells,
grids fit the terminal, and texts are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from tightship.documents.html.page import Page
from tightship.documents.terminal import Terminal, length, pad

Style = Literal["", "bold", "dim", "go", "why", "bad", "bar", "low", "high"]

LABEL = 11
"""Width of the labels below a table, in columns of the terminal."""


class TextLine(Struct, frozen=True):
    """A text that is folded where the terminal ends. The rest hangs below its beginning.

    *sign* and *label* come before the text. *word* is its first word, painted as a reason.
    """

    text: str
    label: str = ""
    sign: Literal["", "✓", "✗", "•"] = ""
    word: str = ""
    style: Style = ""
    label_style: Style = ""
    indent: int = 2


def figure(label: str, text: str, style: Style = "") -> TextLine:
    """Return a line for the figures below a table: *text* after its *label*."""
    return TextLine(text, label.ljust(LABEL - 1) + " ", style=style, label_style="bold" if label else "", indent=0)


def warning(text: str) -> TextLine:
    """Return a line for a warning below a table."""
    return TextLine(text, "Warning".ljust(LABEL), label_style="bad", indent=0)


class Column(Struct, frozen=True):
    """A column of a :class:`Grid`. *style* applies to all cells; *styles*, if given, has one for each.

    If there are *ratios*, a bar follows each cell. *amounts* form a column of their own before it, under the same
    title. Shapes refer to the column by its *name*, or by its title if it has none.
    """

    title: str
    cells: Sequence[str]
    align: Literal["<", ">"] = "<"
    style: Style = ""
    styles: Sequence[Style] = ()
    ratios: Sequence[float | None] | None = None
    amounts: Sequence[str] | None = None
    name: str = ""


class GridShape(Struct, frozen=True):
    """The contents of a grid at some width: every column except *without*, bars of this width, and *amounts* or not.

    The first column, which has the names, is cut to *names* columns of the terminal; or as far as needed, but never
    below *shortest*.
    """

    without: tuple[str, ...] = ()
    bar: int = 10
    amounts: bool = True
    names: int | None = None
    shortest: int | None = None


class Grid(Struct, frozen=True):
    """A table in lines. Its *shapes* go from roomy to narrow; the first one that fits is used.

    *reasons* become the last column, which names as many of each row as fit. Where a shape leaves out the column
    *instead*, its cells stand there for rows without reasons. *below* has the lines after each row.
    """

    columns: Sequence[Column]
    shapes: Sequence[GridShape] = (GridShape(),)
    reasons: Sequence[Sequence[str]] | None = None
    instead: str = ""
    below: Sequence[Sequence[TextLine]] = ()


class Block(Struct, frozen=True):
    """A *title*, with lines and a grid below it."""

    title: str
    lines: Sequence[TextLine] = ()
    grid: Grid | None = None


class Printout(Struct, frozen=True):
    """A document in lines: a *heading* about the judgement, the answer in short at the *start*, a grid or blocks, more
    blocks *below* them, and the lines at the *end*. *note* says under the grid what it leaves out.
    """

    heading: tuple[str, ...] = ()
    grid: Grid | None = None
    blocks: Sequence[Block] = ()
    end: Sequence[TextLine] = ()
    start: Sequence[TextLine] = ()
    note: str = ""
    below: Sequence[Block] = ()


Document = TypeVar("Document", bound=Struct)


class View(Struct, Generic[Document], frozen=True):
    """The look of a kind of document: in lines, perhaps also as the columns of a *wide* grid and as a *page*.

    *rows* returns its nodes or HPAs, each with the name of what the plan would change, empty if nothing. *summary* is
    the look in short, *patches* what the document advises, as patches for git.
    A format exists for every kind of document whose view has the part that the format needs.
    """

    printout: Callable[[Document], Printout]
    wide: Callable[[Document], Sequence[Column]] | None = None
    page: Callable[[Document], Page] | None = None
    rows: Callable[[Document], Sequence[tuple[str, Struct]]] | None = None
    summary: Callable[[Document], Printout] | None = None
    patches: Callable[[Document], str] | None = None


WORDS_SHOWN = 3
"""Most reasons that a row of a grid names."""

REASONS = "REASONS"
"""The title of the column of reasons."""

LOW, HIGH = 0.4, 0.7
"""Ratios of requested to allocatable below which a bar is red, and below which it is yellow; a fuller one is green."""

SHORTEST_NAME = 16
"""Least width of a cut name, in columns of the terminal."""

_GAP = "  "
_GOES_ON = " \\"
_ASCII = {"✓": "ok", "✗": "no", "•": "-"}


def written(printout: Printout, terminal: Terminal) -> str:
    """Return *printout* as lines; without headers, only its rows and blocks."""
    heading = [TextLine(text, style="dim", indent=0) for text in printout.heading]
    parts = [_folded(heading if terminal.headers else (), terminal)]
    parts.append(_folded(printout.start if terminal.headers else (), terminal))
    if printout.grid is not None:
        note = [TextLine(printout.note, style="dim", indent=0)] if printout.note and terminal.headers else []
        parts.append(_grid(printout.grid, terminal, headers=terminal.headers) + _folded(note, terminal))
    parts += [_block(block, terminal) for block in (*printout.blocks, *(printout.below if terminal.headers else ()))]
    parts.append(_folded(printout.end if terminal.headers else (), terminal))
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts if part)


def reason_words(reasons: Sequence[str], most: int) -> str:
    """Return the first *most* of *reasons* and the number of the others."""
    more = len(reasons) - most
    return ", ".join(reasons[:most]) + (f" +{more}" if more > 0 else "")


def _folded(texts: Sequence[TextLine], terminal: Terminal) -> list[str]:
    return list(chain.from_iterable(_line(each, terminal) for each in texts))


def _line(line: TextLine, terminal: Terminal) -> Iterator[str]:
    """Return *line*, folded where the terminal ends. Further lines align with the text, not with the label."""
    sign = terminal.sign(line.sign, _ASCII.get(line.sign, ""))
    indent, label = " " * line.indent, terminal.plain(line.label)
    below = indent + " " * (length(sign) + length(label))
    text = terminal.plain(f"{line.word} {line.text}".rstrip() if line.word else line.text)
    first, *rest = _command(text, below, terminal) if text.startswith("kubectl ") else terminal.fold(text, below)
    first = terminal.paint(line.word, "why") + terminal.paint(first.removeprefix(line.word), line.style)
    sign = terminal.paint(sign, {"✓": "go", "✗": "bad"}.get(line.sign, ""))
    yield indent + sign + terminal.paint(label, line.label_style) + first
    yield from (below + terminal.paint(each, line.style) for each in rest)


def _command(text: str, below: str, terminal: Terminal) -> list[str]:
    """Return the lines of a command, each but the last ending as a shell wants."""
    *lines, last = terminal.fold(text, below + " " * len(_GOES_ON))
    return [*(f"{line}{_GOES_ON}" for line in lines), last]


def _block(block: Block, terminal: Terminal) -> list[str]:
    title = [terminal.paint(terminal.plain(block.title), "bold")] if block.title else []
    lines = [*title, *_folded(block.lines, terminal)]
    if block.grid is None:
        return lines
    titled = any(column.title for column in block.grid.columns)
    return lines + _grid(block.grid, terminal, headers=titled, indent=_GAP)


def _grid(grid: Grid, terminal: Terminal, *, headers: bool, indent: str = "") -> list[str]:
    """Return the lines of a grid, with the titles first if *headers*. The last column has no padding."""
    columns = fitted(grid, terminal, headers=headers)
    widths = [_width(column, headers=headers) for column in columns]
    last = len(columns) - 1

    def line(cells: Sequence[str], styles: Sequence[str]) -> str:
        parts: list[str] = []
        for number, cell in enumerate(cells):
            align = columns[number].align
            filled = cell if number == last and align == "<" else pad(cell, widths[number], align)
            parts.append(terminal.paint(filled, styles[number]))
        return (indent + _GAP.join(parts)).rstrip()

    lines = [line([column.title for column in columns], ["bold"] * len(columns))] if headers else []
    for row in range(len(columns[0].cells)):
        cells = [column.cells[row] for column in columns]
        lines.append(line(cells, [column.styles[row] if column.styles else column.style for column in columns]))
        if grid.below:
            lines += _folded(grid.below[row], terminal)
    return lines


def fitted(grid: Grid, terminal: Terminal, *, headers: bool) -> list[Column]:
    """Return the columns of the first shape that fits, and the reasons as the last column.

    A shape fits if the first reason of each row has room. If none fits, the first column, which has the names, is cut
    in the middle.
    """
    reasons = grid.reasons or ()
    titled = len(REASONS) if headers and grid.reasons is not None else 0
    least = max((length(reason_words(each, 1)) for each in reasons), default=0)
    least = max(least, titled)
    columns = _shaped(grid, grid.shapes[0], terminal)
    room: int | None = None
    if terminal.width is not None and len(grid.shapes) > 1:
        columns, room = _narrowed(grid, terminal, terminal.width, least, headers=headers)
    if grid.reasons is None:
        return columns
    shown = {column.title for column in columns}
    other = next((each for each in grid.columns if each.title == grid.instead and each.title not in shown), None)
    if other is None:
        return [*columns, Column(REASONS, [_reasons(each, terminal, room) for each in reasons], style="why")]
    cells = [_reasons(each or (cell,), terminal, room) for each, cell in zip(reasons, other.cells, strict=True)]
    styles: list[Style] = ["why" if each else "go" for each in reasons]
    return [*columns, Column(other.title, cells, styles=styles)]


def _narrowed(grid: Grid, terminal: Terminal, width: int, least: int, *, headers: bool) -> tuple[list[Column], int]:
    """Return the columns of the first shape that leaves *least* room of *width*, and that room."""

    def room_beside(columns: Sequence[Column]) -> int:
        return width - sum(_width(column, headers=headers) + len(_GAP) for column in columns)

    def shortened(columns: Sequence[Column], shortest: int) -> list[Column]:
        missing = least - room_beside(columns)
        names = max(shortest, _width(columns[0], headers=headers) - missing)
        return [_cut(columns[0], names, terminal), *columns[1:]]

    for shape in grid.shapes:
        columns = _shaped(grid, shape, terminal)
        if shape.shortest is not None:
            columns = shortened(columns, shape.shortest)
        if room_beside(columns) >= least:
            return columns, room_beside(columns)
    columns = shortened(columns, SHORTEST_NAME)
    return columns, max(8, room_beside(columns))


def _shaped(grid: Grid, shape: GridShape, terminal: Terminal) -> list[Column]:
    """Return the columns that *shape* shows, in characters that the terminal can show."""
    columns = [
        shown
        for column in grid.columns
        if (column.name or column.title) not in shape.without
        for shown in _with_bars(_plain(column, terminal.plain), shape, terminal)
    ]
    return columns if shape.names is None else [_cut(columns[0], shape.names, terminal), *columns[1:]]


def _with_bars(column: Column, shape: GridShape, terminal: Terminal) -> Iterator[Column]:
    title = column.title
    if shape.amounts and column.amounts is not None:
        yield Column(title, column.amounts, ">")
        title = ""
    if column.ratios is None or not shape.bar:
        yield msgspec.structs.replace(column, title=title)
        return
    # The bar shares a column with its number, so that both stand side by side.
    bars = [terminal.bar(ratio, shape.bar) for ratio in column.ratios]
    width = max(4, *map(length, column.cells)) if column.cells else 4
    cells = [f"{pad(text, width, '>')} {bar}" if text else bar for text, bar in zip(column.cells, bars, strict=True)]
    yield Column(title, cells, styles=[_fullness(ratio) for ratio in column.ratios])


def _fullness(ratio: float | None) -> Style:
    """Return the colour of a bar: what is nearly empty is paid for nothing."""
    return "" if ratio is None else "low" if ratio < LOW else "why" if ratio < HIGH else "high"


def _plain(column: Column, plain: Callable[[str], str]) -> Column:
    return msgspec.structs.replace(column, cells=list(map(plain, column.cells)))


def _cut(column: Column, width: int, terminal: Terminal) -> Column:
    return msgspec.structs.replace(column, cells=[terminal.shorten(cell, width) for cell in column.cells])


def _width(column: Column, *, headers: bool) -> int:
    widest = max(map(length, column.cells), default=0)
    return max(widest, length(column.title)) if headers else widest


def _reasons(reasons: Sequence[str], terminal: Terminal, room: int | None) -> str:
    choices = (reason_words(reasons, most) for most in range(WORDS_SHOWN, 0, -1))
    fitting = next((text for text in choices if room is None or length(text) <= room), None)
    return terminal.cut(reason_words(reasons, 1), room or 0) if fitting is None else fitting
