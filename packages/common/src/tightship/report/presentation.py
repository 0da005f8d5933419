"""How a document looks to people: a :class:`Printout` of lines, and a :class:`Page` with pictures.

Texts are plain Unicode and pictures are numbers. A format adapts them to the terminal or the file they go to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

Style = Literal["", "bold", "dim", "go", "why", "bad", "bar"]

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
    return TextLine(text, label.ljust(LABEL), style=style, label_style="bold" if label else "", indent=0)


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
    """What a grid shows at some width: every column except *without*, bars of this width, and *amounts* or not.

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

    *reasons* become the last column, which names as many of each row as fit. *below* has the lines after each row.
    """

    columns: Sequence[Column]
    shapes: Sequence[GridShape] = (GridShape(),)
    reasons: Sequence[Sequence[str]] | None = None
    below: Sequence[Sequence[TextLine]] = ()


class Block(Struct, frozen=True):
    """A *title*, with lines and a grid below it."""

    title: str
    lines: Sequence[TextLine] = ()
    grid: Grid | None = None


class Printout(Struct, frozen=True):
    """A document in lines: a *heading* that says what was judged, a grid or blocks, and the lines at the *end*."""

    heading: tuple[str, ...] = ()
    grid: Grid | None = None
    blocks: Sequence[Block] = ()
    end: Sequence[TextLine] = ()


Tone = Literal["", "good", "warn", "bad", "dim"]


class Bar(Struct, frozen=True):
    """How full a node is: ratios of what can be requested, *now* and *after* a plan, ``None`` where there is nothing.

    *arrived* is the part of *after* that came with pods of others; *gone* says that the node is no more.
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
    """Marks on one line from 0 to *top*; what is more than that is told as being beyond it."""

    marks: tuple[Mark, ...]
    top: int


class Part(Struct, frozen=True):
    """A number of things, of which *solid* are marked off: a bar as long as its share of *whole*."""

    number: int
    solid: int
    whole: int


Picture: TypeAlias = Bar | Scale | Part


class Cell(Struct, frozen=True):
    """A text in a table. *number* is set to the right; *detail* stands below in small; *lines* are a list below.

    *to* is the key of the :class:`Entry` that the text leads to; *follows* says that it is the text of something that
    goes there. *anchor* makes the text a place in the page, *about* a link to such a place.
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
    """Rows under *columns*; *empty* is said where there are none.

    In a table of *filters* the first text of a row is a tag of entries, to filter them by. A *compact* one has its rows
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
    """One node of a :class:`Fleet`: the key of its entry, and how full it is by CPU and memory."""

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
    """A line of a :class:`Chart`: values at its times, ``None`` where there is none. A *step* holds until the next."""

    name: str
    kind: Literal["traffic", "floor", "replicas", "maximum"]
    values: tuple[float | None, ...]
    step: bool = False


class Chart(Struct, frozen=True):
    """Numbers over time; *times* are seconds since 1970, ascending, *unit* is what all values count."""

    times: tuple[float, ...]
    series: tuple[Series, ...]
    unit: str
    label: str


class Section(Struct, frozen=True):
    """A heading with what belongs to it. *half* of the width is enough for it where there is much."""

    heading: str
    note: str = ""
    table: Table | None = None
    fleet: Fleet | None = None
    chart: Chart | None = None
    half: bool = False


class Entry(Struct, frozen=True, kw_only=True):
    """A row that can be searched for, selected and opened.

    *key* is its name, unlike any other of the page; *state* one of those of its :class:`EntryList`; *tags* are words to
    filter by; *summary* is what stands there for *details* until they are *opened*.
    """

    key: str
    state: str
    cells: tuple[Cell, ...]
    tags: tuple[str, ...] = ()
    summary: Cell
    details: tuple[Section, ...] = ()
    opened: bool = False


class EntryList(Struct, frozen=True):
    """All that a page is about, one entry each.

    *keys* are those of all entries, in their order; *rows* makes them, one after the other: there may be thousands.
    *states* are the words of the entries' states and what they mean to people; *noun* is what an entry is called,
    *hint* what can be searched for; *legend* says what marks on its scales mean.
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

    *alerts* stand on top of everything. A page that a controller serves has *links* and is fetched anew each *refresh*
    seconds; where that is 0 it is a file, which loads nothing at all.
    """

    title: str
    subtitle: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    alerts: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    listing: EntryList | None = None
    links: tuple[tuple[str, str], ...] = ()
    refresh: int = 0


SERVED_LINKS = (("status as JSON", "/status"), ("metrics", "/metrics"))
"""The links of a page that a controller serves."""
REFRESH = 30
"""Seconds after which a page that a controller serves is fetched anew."""


Document = TypeVar("Document", bound=Struct)


class View(Struct, Generic[Document], frozen=True):
    """How a kind of document looks: in lines, and perhaps also as the columns of a *wide* grid and as a *page*.

    A format is offered for every kind of document whose view has the part that the format needs.
    """

    printout: Callable[[Document], Printout]
    wide: Callable[[Document], Sequence[Column]] | None = None
    page: Callable[[Document], Page] | None = None
