"""The look of a document for people: a :class:`Printout` of lines, and a :class:`Page` with pictures.

Texts are plain Unicode and pictures are numbers. A format adapts them to the terminal or the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

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


Tone = Literal["", "good", "warn", "bad", "dim"]


class Bar(Struct, frozen=True):
    """A node's utilization, *now* and *after* a plan, as a ratio of the allocatable amount; ``None`` without one.

    *arrived* is the part of *after* that pods from other nodes brought; *gone* says that the plan removes the node.
    """

    kind: Literal["cpu", "memory"]
    now: float | None
    after: float | None
    arrived: float = 0.0
    gone: bool = False


MarkKind = Literal["minimum", "after", "wanted", "current", "desired", "maximum"]


class Mark(Struct, frozen=True):
    """A number on a :class:`Scale`."""

    kind: MarkKind
    value: int


class Scale(Struct, frozen=True):
    """Marks on one line from 0 to *top*; a greater number appears as lying beyond *top*."""

    marks: tuple[Mark, ...]
    top: int


class Part(Struct, frozen=True):
    """A number of things, *solid* of which are marked, as a bar whose length is their share of *whole*."""

    number: int
    solid: int
    whole: int


Picture: TypeAlias = Bar | Scale | Part


class Cell(Struct, frozen=True):
    """A text in a table. *number* aligns it to the right; *detail* stands below in small; *lines* are a list below.

    The text links to the :class:`Entry` with the key *to*; *follows* marks a pod on its way there. *anchor* makes the
    text a link target, *about* a link to such a target.
    """

    text: str
    tone: Tone = ""
    number: bool = False
    detail: str = ""
    lines: tuple[str, ...] = ()
    picture: Picture | None = None
    to: str = ""
    follows: bool = False
    anchor: str = ""
    about: str = ""


class Table(Struct, frozen=True):
    """Rows under *columns*, or the text *empty*.

    In a table of *filters*, the first text of a row is a tag that filters the entries. A *compact* table has its rows
    side by side.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    empty: str = "none"
    filters: bool = False
    compact: bool = False


class Fact(Struct, frozen=True):
    """A figure at the head of the page: *value* large, *name* above it, *detail* below."""

    name: str
    value: str
    tone: Tone = ""
    detail: str = ""


class Slot(Struct, frozen=True):
    """One node of a :class:`Fleet`: the key of its entry, and its utilization of CPU and memory."""

    key: str
    cpu: Bar
    memory: Bar


class Group(Struct, frozen=True):
    """Nodes that belong together."""

    name: str
    slots: tuple[Slot, ...]


class Fleet(Struct, frozen=True):
    """Every node as a bar, before a plan and after it."""

    groups: tuple[Group, ...]


class Series(Struct, frozen=True):
    """A line of a :class:`Chart`: one value for each time, ``None`` for a gap. A *step* holds until the next value."""

    name: str
    kind: Literal["traffic", "floor", "replicas", "maximum"]
    values: tuple[float | None, ...]
    step: bool = False


class Chart(Struct, frozen=True):
    """Numbers over time. *times* are seconds since 1970, ascending; *unit* is the unit of all values.

    *marked* are some of the times, which *mark* tells about.
    """

    times: tuple[float, ...]
    series: tuple[Series, ...]
    unit: str
    label: str
    marked: tuple[float, ...] = ()
    mark: str = ""


class Section(Struct, frozen=True):
    """A heading with its contents. *half* says that half of a wide page is enough."""

    heading: str
    note: str = ""
    table: Table | None = None
    fleet: Fleet | None = None
    chart: Chart | None = None
    half: bool = False


class Entry(Struct, frozen=True, kw_only=True):
    """A row that people can search for, select and open.

    *key* is its unique name in the page, *state* a state of its :class:`EntryList`. *tags* are words for filters.
    *summary* replaces *details* until they are *opened*.
    """

    key: str
    state: str
    cells: tuple[Cell, ...]
    tags: tuple[str, ...] = ()
    summary: Cell
    details: tuple[Section, ...] = ()
    opened: bool = False


class EntryList(Struct, frozen=True):
    """All rows of a page, one entry each.

    *keys* are the keys of all entries in order. *rows* makes the entries one after another, since there may be
    thousands. *states* are the words of the entries' states and their meanings for people. *noun* is the name of an
    entry, *hint* names what the search finds; *legend* explains the marks on scales.
    """

    heading: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    rows: Callable[[], Iterator[Entry]]
    states: tuple[tuple[str, str], ...]
    noun: str
    hint: str
    note: str = ""
    empty: str = "none"
    legend: tuple[tuple[MarkKind, str], ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self.rows())


class Page(Struct, frozen=True):
    """A whole page.

    *alerts* stand on top of everything, *sections* before the listing and *below* after it. A page served by a
    controller has *links* and reloads every *refresh* seconds. If *refresh* is 0, the page is a file that loads nothing
    at all.
    """

    title: str
    subtitle: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    alerts: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    listing: EntryList | None = None
    below: tuple[Section, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    refresh: int = 0


SERVED_LINKS = (("status as JSON", "/status"), ("metrics", "/metrics"))
"""The links of a page that a controller serves."""
REFRESH = 30
"""Seconds after which a page served by a controller reloads."""


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
