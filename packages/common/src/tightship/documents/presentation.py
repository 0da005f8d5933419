"""The look of a document for people: a :class:`Printout` of lines, and a page.

Texts are plain Unicode. A format adapts the lines to the terminal or the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from tightship.documents.html.page import Page

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
