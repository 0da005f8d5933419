"""A fleet as two pictures side by side, before and after: each node is a slot with a bar for CPU and one for memory.

The bars of a group are a few paths, however many nodes there are. The position of a slot tells its node, and the rows
of the listing hold the same as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from tightship.objects.counting import counted

PANEL = 500
"""Greatest width of a row of slots in units, which are pixels in a wide window."""


class Bar(Struct, frozen=True):
    """A node's utilization, *now* and *after* a plan, as a ratio of the allocatable amount; ``None`` without one.

    *arrived* is the part of *after* that pods from other nodes brought; *gone* says that the plan removes the node.
    *limit* is the ratio below which the node may go, ``None`` without one.
    """

    now: float | None
    after: float | None
    arrived: float = 0.0
    gone: bool = False
    limit: float | None = None

    @property
    def same(self) -> bool:
        """Whether the plan changes nothing."""
        return not self.gone and not self.arrived

    def place(self, ratio: float | None) -> int:
        """Return where *ratio* is on a bar of 120 units."""
        return round(120 * _within(ratio))


class Slot(Struct, frozen=True):
    """One node: its number in the page, and its utilization of CPU and memory."""

    number: int
    cpu: Bar
    memory: Bar


class Panel(Struct, frozen=True):
    """One side of a group: *label* tells it in words, *paths* are the classes, widths and
    lines of what is drawn.
    """

    label: str
    paths: tuple[tuple[str, float, str], ...]
    width: str
    height: str
    side: str


class Group(Struct, frozen=True):
    """Nodes that belong together: *outcome* is how many there are."""

    name: str
    outcome: str
    slots: str
    panels: tuple[Panel, ...]


class _Layout(Struct, frozen=True):
    """A layout of slots: each is *pitch* wide with its gap and *height* high, with *foot* below for a sign."""

    pitch: int
    height: int
    foot: int

    @property
    def columns(self) -> int:
        return PANEL // self.pitch

    @property
    def wide(self) -> float:
        """The width of a slot without its gap."""
        return self.pitch - max(1.0, self.pitch * 0.2)

    @property
    def row(self) -> int:
        return self.height + self.foot

    @property
    def crosses(self) -> bool:
        """Whether there is room to cross out what is gone: many small crosses would look like a pattern."""
        return self.pitch >= 14

    def place(self, slot: int) -> tuple[int, int]:
        line, column = divmod(slot, self.columns)
        return column * self.pitch, line * self.row


class Fleet(Struct, frozen=True):
    """All groups in one *layout*."""

    layout: _Layout
    groups: tuple[Group, ...]


_LAYOUTS = (
    (14, _Layout(34, 72, 12)),
    (25, _Layout(20, 60, 12)),
    (100, _Layout(16, 44, 11)),
    (300, _Layout(10, 32, 9)),
    (2000, _Layout(7, 22, 7)),
)
_DENSE = _Layout(5, 15, 5)
"""For groups with more nodes than any other layout takes."""


def fleet_of(groups: Mapping[str, Sequence[Slot]]) -> Fleet:
    """Return the pictures of *groups* by name."""
    largest = max(map(len, groups.values()), default=0)
    layout = next((layout for most, layout in _LAYOUTS if largest <= most), _DENSE)
    # All have the same width, so that a narrow window shrinks all alike.
    width = min(largest, layout.columns) * layout.pitch
    return Fleet(layout, tuple(_group(name, slots, layout, width) for name, slots in groups.items()))


def _group(name: str, slots: Sequence[Slot], layout: _Layout, width: int) -> Group:
    before = len(slots)
    left = {"before": before, "after": sum(not slot.cpu.gone for slot in slots)}
    outcome = counted(before, "node") if before == left["after"] else f"{before:,} → {counted(left['after'], 'node')}"
    height = -(-before // layout.columns) * layout.row
    panels = tuple(
        Panel(
            f"{name} {side}: {counted(count, 'node')}",
            tuple(each for each in _drawn(slots, layout, after=side == "after") if each[2]),
            str(width),
            str(height),
            side,
        )
        for side, count in left.items()
    )
    return Group(name, outcome, " ".join(str(slot.number) for slot in slots), panels)


def _drawn(slots: Sequence[Slot], layout: _Layout, *, after: bool) -> Iterator[tuple[str, float, str]]:
    going = [at for at, slot in enumerate(slots) if slot.cpu.gone]
    half = layout.wide / 2
    shown = [(at, slot) for at, slot in enumerate(slots) if not (after and slot.cpu.gone)]
    yield "room", layout.wide, "".join(_room(at, layout) for at, _ in shown)
    for kind, shift in (("cpu", 0.0), ("memory", half)):
        bars = [(at, slot.cpu if kind == "cpu" else slot.memory) for at, slot in shown]
        parts = [(at, _within(bar.after if after else bar.now), bar.arrived if after else 0.0) for at, bar in bars]
        yield kind, half, "".join(_filled(at, layout, shift, 0.0, top - arrived) for at, top, arrived in parts)
        come = (_filled(at, layout, shift, max(0.0, top - arrived), top) for at, top, arrived in parts if arrived)
        yield f"arrived {kind}", half, "".join(come)
        limits = ((at, bar.limit) for at, bar in bars if bar.limit is not None and bar.limit < 1)
        yield "limit", 1.5, "".join(_limit(at, layout, shift, limit) for at, limit in limits)
    if after:
        yield "gone", 1.0 if layout.crosses else 0.6, "".join(_crossed(at, layout) for at in going)
    else:
        yield "leaves", 0.0, "".join(_sign(at, layout) for at in going)


def _room(at: int, layout: _Layout) -> str:
    x, y = layout.place(at)
    return f"M{_number(x + layout.wide / 2)} {y}v{layout.height}"


def _filled(at: int, layout: _Layout, shift: float, low: float, high: float) -> str:
    if high <= low:
        return ""
    x, y = layout.place(at)
    bottom = _number(y + layout.height * (1 - low))
    return f"M{_number(x + shift + layout.wide / 4)} {bottom}v-{_number(layout.height * (high - low))}"


def _limit(at: int, layout: _Layout, shift: float, limit: float) -> str:
    x, y = layout.place(at)
    return f"M{_number(x + shift)} {_number(y + layout.height * (1 - limit))}h{_number(layout.wide / 2)}"


def _sign(at: int, layout: _Layout) -> str:
    """Draw a triangle below the bar that points at a node that would go."""
    x, y = layout.place(at)
    top, half = y + layout.height + 1.5, min(5.0, layout.wide / 2)
    return f"M{_number(x + layout.wide / 2)} {_number(top)}l{_number(half)} {_number(half)}h-{_number(2 * half)}z"


def _crossed(at: int, layout: _Layout) -> str:
    x, y = layout.place(at)
    wide, high = layout.wide - 1, layout.height - 1
    box = _rectangle(x + 0.5, y + 0.5, wide, high)
    return f"{box}M{_number(x + 0.5)} {_number(y + 0.5)}l{_number(wide)} {_number(high)}" if layout.crosses else box


def _within(ratio: float | None) -> float:
    return min(1.0, max(0.0, ratio or 0.0))


def _rectangle(x: float, y: float, width: float, height: float) -> str:
    if width <= 0 or height <= 0:
        return ""
    return f"M{_number(x)} {_number(y)}h{_number(width)}v{_number(height)}h-{_number(width)}z"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
