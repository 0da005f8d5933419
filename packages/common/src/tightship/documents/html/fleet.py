"""A fleet as two pictures side by side, before and after: each node is a slot with a bar for CPU and one for memory.

The bars of a group are a few paths, however many nodes there are. The position of a slot tells its node, and the rows
of the listing hold the same as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tightship.documents.html.bars import number, path, rectangle, within
from tightship.documents.html.markup import Markup, asset, joined, tag
from tightship.documents.presentation import Fleet, Group, Slot
from tightship.objects.counting import counted

PANEL = 500
"""Greatest width of a row of slots in units, which are pixels in a wide window."""


class _Layout(Struct, frozen=True):
    """A layout of slots: each is *pitch* wide with its gap and *height* high, with *foot* below for a sign."""

    pitch: float
    height: float
    foot: float

    @property
    def columns(self) -> int:
        return int(PANEL / self.pitch)

    @property
    def wide(self) -> float:
        """The width of a slot without its gap."""
        return self.pitch - max(1.0, self.pitch * 0.2)

    @property
    def row(self) -> float:
        return self.height + self.foot

    @property
    def crosses(self) -> bool:
        """Whether there is room to cross out what is gone: many small crosses would look like a pattern."""
        return self.pitch >= 14

    def place(self, slot: int) -> tuple[float, float]:
        line, column = divmod(slot, self.columns)
        return column * self.pitch, line * self.row


_LAYOUTS = (
    (14, _Layout(34, 72, 12)),
    (25, _Layout(20, 60, 12)),
    (100, _Layout(16, 44, 11)),
    (300, _Layout(10, 32, 9)),
    (2000, _Layout(7, 22, 7)),
)
_LEGEND = asset("legend.html")
_DENSE = _Layout(5, 15, 5)
"""For groups with more nodes than any other layout takes."""


def fleet_pictures(fleet: Fleet, ids: Mapping[str, str]) -> Markup:
    """Return both pictures of every group, and the legend."""
    largest = max((len(group.slots) for group in fleet.groups), default=0)
    layout = next((layout for most, layout in _LAYOUTS if largest <= most), _DENSE)
    # All have the same width, so that a narrow window shrinks all alike.
    width = min(largest, layout.columns) * layout.pitch
    groups = joined(_group(group, layout, width, ids) for group in fleet.groups)
    return tag("div", _LEGEND, groups, class_="fleet")


def _group(group: Group, layout: _Layout, width: float, ids: Mapping[str, str]) -> Markup:
    before = len(group.slots)
    after = sum(1 for slot in group.slots if not slot.cpu.gone)
    outcome = counted(before, "node") if before == after else f"{before:,} → {counted(after, 'node')}"
    sides = (
        tag("div", tag("p", side), _panel(group, layout, width, ids, side), class_="side")
        for side in ("before", "after")
    )
    return tag("figure", tag("figcaption", tag("b", group.name), outcome, class_="group"), *sides, class_="pool")


def _panel(group: Group, layout: _Layout, width: float, ids: Mapping[str, str], side: str) -> Markup:
    slots = group.slots
    height = -(-len(slots) // layout.columns) * layout.row
    going = sum(1 for slot in slots if slot.cpu.gone)
    label = f"{group.name} {side}: {counted(len(slots) - (going if side == 'after' else 0), 'node')}"
    return tag(
        "svg",
        *_drawn(slots, layout, after=side == "after"),
        class_="map",
        role="img",
        aria_label=label,
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=number(width),
        height=number(height),
        data_side=side,
        data_pitch=number(layout.pitch),
        data_row=number(layout.row),
        data_height=number(layout.height),
        data_columns=layout.columns,
        data_slots=" ".join(ids.get(slot.key, "")[1:] for slot in slots),
    )


def _drawn(slots: tuple[Slot, ...], layout: _Layout, *, after: bool) -> Iterator[Markup]:
    going = [at for at, slot in enumerate(slots) if slot.cpu.gone]
    shown = [(at, slot) for at, slot in enumerate(slots) if not (after and slot.cpu.gone)]
    yield path("".join(_room(at, layout) for at, _ in shown), "room")
    for kind, shift in (("cpu", 0.0), ("memory", layout.wide / 2)):
        bars = [(at, slot.cpu if kind == "cpu" else slot.memory) for at, slot in shown]
        parts = [(at, within(bar.after if after else bar.now), bar.arrived if after else 0.0) for at, bar in bars]
        solid = (_filled(at, layout, shift, 0.0, top - arrived) for at, top, arrived in parts)
        yield path("".join(solid), kind)
        come = (_filled(at, layout, shift, max(0.0, top - arrived), top) for at, top, arrived in parts if arrived)
        yield path("".join(come), f"arrived {kind}")
    if after:
        yield path("".join(_crossed(at, layout) for at in going), "gone" if layout.crosses else "gone small")
    else:
        yield path("".join(_sign(at, layout) for at in going), "leaves")


def _room(at: int, layout: _Layout) -> str:
    x, y = layout.place(at)
    return rectangle(x, y, layout.wide, layout.height)


def _filled(at: int, layout: _Layout, shift: float, low: float, high: float) -> str:
    x, y = layout.place(at)
    return rectangle(x + shift, y + layout.height * (1 - high), layout.wide / 2, layout.height * (high - low))


def _sign(at: int, layout: _Layout) -> str:
    """Draw a triangle below the bar that points at a node that would go."""
    x, y = layout.place(at)
    top, half = y + layout.height + 1.5, min(5.0, layout.wide / 2)
    return f"M{number(x + layout.wide / 2)} {number(top)}l{number(half)} {number(half)}h-{number(2 * half)}z"


def _crossed(at: int, layout: _Layout) -> str:
    x, y = layout.place(at)
    wide, high = layout.wide - 1, layout.height - 1
    box = rectangle(x + 0.5, y + 0.5, wide, high)
    return f"{box}M{number(x + 0.5)} {number(y + 0.5)}l{number(wide)} {number(high)}" if layout.crosses else box
