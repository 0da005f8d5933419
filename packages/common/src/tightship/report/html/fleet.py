"""A fleet as two pictures side by side: every node a slot with a bar for CPU and one for memory, before and after.

The bars of a group are a few paths, however many nodes there are; which slot is which node is told by position, and
the rows of the listing hold the same as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from tightship.core.counting import counted
from tightship.report.html.bars import number, path, rectangle, within
from tightship.report.html.markup import Markup, joined, tag
from tightship.report.presentation import Bar, Fleet, Group, Slot

PANEL = 500
"""Units that a row of slots may be wide, pixels in a wide window."""


class _Grid(Struct, frozen=True):
    """How slots are laid out: each *pitch* wide with a gap, *height* high; *foot* is room below for a sign."""

    pitch: float
    height: float
    foot: float

    @property
    def columns(self) -> int:
        return int(PANEL / self.pitch)

    @property
    def row(self) -> float:
        return self.height + self.foot

    @property
    def crosses(self) -> bool:
        """Whether there is room for a line across what is gone: of many small ones only a pattern would be seen."""
        return self.pitch >= 14

    def place(self, slot: int) -> tuple[float, float]:
        line, column = divmod(slot, self.columns)
        return column * self.pitch, line * self.row


_GRIDS = (
    (14, _Grid(34, 72, 12)),
    (25, _Grid(20, 60, 12)),
    (100, _Grid(16, 44, 11)),
    (300, _Grid(10, 32, 9)),
    (2000, _Grid(7, 22, 7)),
)
_DENSE = _Grid(5, 15, 5)
"""Where a group has more nodes than any of the others is for."""


def fleet_pictures(fleet: Fleet, ids: Mapping[str, str]) -> Markup:
    """Return both pictures of every group, and what their signs mean."""
    largest = max((len(group.slots) for group in fleet.groups), default=0)
    grid = next((grid for most, grid in _GRIDS if largest <= most), _DENSE)
    # All of the same width, so that a narrow window makes them smaller alike.
    width = min(largest, grid.columns) * grid.pitch
    groups = joined(_group(group, grid, width, ids) for group in fleet.groups)
    return tag("div", _legend(), groups, class_="fleet")


def _group(group: Group, grid: _Grid, width: float, ids: Mapping[str, str]) -> Markup:
    before = len(group.slots)
    after = sum(1 for slot in group.slots if not slot.cpu.gone)
    outcome = counted(before, "node") if before == after else f"{before:,} → {counted(after, 'node')}"
    sides = (
        tag("div", tag("p", side), _panel(group, grid, width, ids, side), class_="side") for side in ("before", "after")
    )
    return tag("figure", tag("figcaption", tag("b", group.name), outcome, class_="group"), *sides, class_="pool")


def _panel(group: Group, grid: _Grid, width: float, ids: Mapping[str, str], side: str) -> Markup:
    slots = group.slots
    height = -(-len(slots) // grid.columns) * grid.row
    draw = _before if side == "before" else _after
    going = sum(1 for slot in slots if slot.cpu.gone)
    label = f"{group.name} {side}: {counted(len(slots) - (going if side == 'after' else 0), 'node')}"
    return tag(
        "svg",
        *draw(slots, grid),
        class_="map",
        role="img",
        aria_label=label,
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=number(width),
        height=number(height),
        data_side=side,
        data_pitch=number(grid.pitch),
        data_row=number(grid.row),
        data_height=number(grid.height),
        data_columns=grid.columns,
        data_slots=" ".join(ids.get(slot.key, "")[1:] for slot in slots),
    )


_Sides = tuple[tuple[str, float, Callable[[Slot], Bar]], ...]


def _sides(grid: _Grid) -> _Sides:
    half = (grid.pitch - _gap(grid)) / 2
    return ("cpu", 0.0, lambda slot: slot.cpu), ("memory", half, lambda slot: slot.memory)


def _gap(grid: _Grid) -> float:
    return max(1.0, grid.pitch * 0.2)


def _before(slots: tuple[Slot, ...], grid: _Grid) -> Iterator[Markup]:
    yield path("".join(_room(at, grid) for at, _ in enumerate(slots)), "room")
    for kind, shift, bar in _sides(grid):
        filled = (_filled(at, grid, shift, 0.0, within(bar(slot).now)) for at, slot in enumerate(slots))
        yield path("".join(filled), kind)
    yield path("".join(_sign(at, grid) for at, slot in enumerate(slots) if slot.cpu.gone), "leaves")


def _after(slots: tuple[Slot, ...], grid: _Grid) -> Iterator[Markup]:
    stay = [(at, slot) for at, slot in enumerate(slots) if not slot.cpu.gone]
    yield path("".join(_room(at, grid) for at, _ in stay), "room")
    for kind, shift, bar in _sides(grid):
        parts = [(at, within(bar(slot).after), bar(slot).arrived) for at, slot in stay]
        solid = (_filled(at, grid, shift, 0.0, after - arrived) for at, after, arrived in parts)
        yield path("".join(solid), kind)
        come = (_filled(at, grid, shift, max(0.0, after - arrived), after) for at, after, arrived in parts if arrived)
        yield path("".join(come), f"arrived {kind}")
    yield path(
        "".join(_crossed(at, grid) for at, slot in enumerate(slots) if slot.cpu.gone),
        "gone" if grid.crosses else "gone small",
    )


def _room(at: int, grid: _Grid) -> str:
    x, y = grid.place(at)
    return rectangle(x, y, grid.pitch - _gap(grid), grid.height)


def _filled(at: int, grid: _Grid, shift: float, low: float, high: float) -> str:
    x, y = grid.place(at)
    half = (grid.pitch - _gap(grid)) / 2
    top = y + grid.height * (1 - high)
    return rectangle(x + shift, top, half, grid.height * (high - low))


def _sign(at: int, grid: _Grid) -> str:
    """A triangle below the bar that points at a node that would go."""
    x, y = grid.place(at)
    wide = grid.pitch - _gap(grid)
    top, half = y + grid.height + 1.5, min(5.0, wide / 2)
    return f"M{number(x + wide / 2)} {number(top)}l{number(half)} {number(half)}h-{number(2 * half)}z"


def _crossed(at: int, grid: _Grid) -> str:
    x, y = grid.place(at)
    wide = grid.pitch - _gap(grid)
    box = rectangle(x + 0.5, y + 0.5, wide - 1, grid.height - 1)
    if not grid.crosses:
        return box
    return f"{box}M{number(x + 0.5)} {number(y + 0.5)}l{number(wide - 1)} {number(grid.height - 1)}"


def _legend() -> Markup:
    def item(name: str, kind: str, meaning: str) -> Markup:
        drawn = {
            "cpu": path(rectangle(0, 2, 8, 12), "cpu"),
            "memory": path(rectangle(8, 2, 8, 12), "memory"),
            "arrived": joined(
                (path(rectangle(0, 2, 8, 12), "arrived cpu"), path(rectangle(8, 2, 8, 12), "arrived memory"))
            ),
            "leaves": path("M8 3l6 8h-12z", "leaves"),
            "gone": path("M1.5 2.5h13v11h-13zl13 11", "gone"),
        }[kind]
        return tag("li", tag("svg", drawn, width=16, height=16, aria_hidden="true"), tag("b", name), f" {meaning}")

    return tag(
        "ul",
        item("CPU", "cpu", "requested, the left bar of a node"),
        item("memory", "memory", "requested, the right bar"),
        item("arrived", "arrived", "with pods of nodes that go"),
        item("would go", "leaves", "below a node"),
        item("gone", "gone", "after the plan"),
        class_="legend",
    )
