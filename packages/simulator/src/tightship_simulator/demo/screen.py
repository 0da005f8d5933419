"""Draws a scene as lines of styled text that fit a terminal. Pure.

Colour says nothing that a letter or a number doesn't say too, so that the same picture serves without any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from tightship_simulator.demo.observations import FloorSeen
from tightship_simulator.demo.scene import AUTOSCALER, FLOORS, Line, Pool, Scene, Slot
from tightship_simulator.demo.story import BEGIN, END, clock

LEAST_WIDTH, LEAST_HEIGHT = 60, 16
"""Below that nothing sensible can be drawn."""

_LEVELS = " ▁▂▃▄▅▆▇█"
_PARTS = " ▏▎▍▌▋▊▉"
_SPARKS = "▁▂▃▄▅▆▇█"
_GAP = 2
"""Columns between two pools."""

PLAIN, DIM, LOUD = "default", "bright_black", "bold"
_BAR, _TRACK = "#5f9ea0", "on #20262a"
_OF = {"node-compactor": "#d7af5f", "node-refiner": "#b48ead", "hpa-scaler": "#81a1c1", AUTOSCALER: "#a3be8c"}
_SHORT = {"node-compactor": "compactor", "node-refiner": "refiner", "hpa-scaler": "hpa-scaler"}
_TONES = {"good": "#a3be8c", "warn": "#d7af5f", "bad": "#bf616a", "": PLAIN}
_GONE = "·"


def draw(scene: Scene, width: int, height: int) -> Text:
    """Return the picture: at most *height* lines, none wider than *width* columns."""
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return _fit([Text(f"The demo needs a terminal of {LEAST_WIDTH}x{LEAST_HEIGHT} or more.")], width, height)
    lines = _title(scene, width)
    lines += [_rule("nodes", width, "how full: CPU or memory requested, the larger")] if height >= 24 else []
    lines += _nodes(scene, width, 6 if height >= 30 else 3 if height >= 24 else 2)
    lines += [_rule("floors", width, "traffic of the night, and replicas above their floor"), *_floors(scene, width)]
    below = [_rule("controllers", width, "as their /status says"), *_controllers(scene)] if height >= 26 else []
    below.append(_legend(width))
    room = height - len(lines) - len(below) - 1
    if room > 0:
        lines += [_rule("decisions", width, "and their reasons, from Events"), *_log(list(scene.lines)[-room:], room)]
    return _fit([*lines, *below], width, height)


def _fit(lines: Sequence[Text], width: int, height: int) -> Text:
    kept = list(lines)[:height]
    for line in kept:
        line.truncate(width, overflow="ellipsis")
    picture = Text("\n", no_wrap=True, end="").join(kept)
    picture.no_wrap, picture.end = True, ""
    return picture


def _rule(title: str, width: int, more: str = "") -> Text:
    detail = f" {more} " if more else " "
    return Text.assemble(("── ", DIM), (title, LOUD), (detail + "─" * max(0, width - len(title + detail) - 3), DIM))


def _title(scene: Scene, width: int) -> list[Text]:
    share = (scene.hour - BEGIN) / (END - BEGIN)
    right = Text.assemble((f"{clock(scene.hour)} ", LOUD), *_progress(share, 28 if width >= 90 else 16))
    from_api = ", numbers from the API" if width >= 90 else ""
    left = Text.assemble(("Tightship", LOUD), (f" one night of three controllers{from_api}", DIM))
    first = Text.assemble(left, " " * (width - len(left.plain) - len(right.plain)), right)
    waiting = f", {scene.waiting} waiting" if scene.waiting else ""
    figures = [
        ("nodes ", f"{scene.began or scene.nodes} → {scene.nodes}"),
        ("pods ", f"{len(scene.pods)}{waiting}"),
        ("saved ", f"{scene.saved:.1f} node-hours, ${scene.money:.2f}"),
        ("drained ", str(sum(scene.drained.values()))),
        ("evicted ", str(sum(scene.evicted.values()))),
    ]
    second = _as_fits([Text.assemble((name, DIM), (text, LOUD)) for name, text in figures], width)
    reported = scene.reported if scene.began else "the controllers start, each a process of its own"
    return [first, second, Text(reported, _TONES["warn"] if "fails" in reported else _OF["hpa-scaler"])]


def _as_fits(parts: Iterable[Text], width: int) -> Text:
    """Return as many of *parts*, in their order, as there is room for."""
    line = Text()
    for part in parts:
        wanted = Text.assemble(line, "   ", part) if line.plain else part
        if len(wanted.plain) > width:
            break
        line = wanted
    return line


def _progress(share: float, width: int) -> list[tuple[str, str]]:
    full = round(max(0.0, min(1.0, share)) * width)
    return [("━" * full, _BAR), ("─" * (width - full), DIM)]


# Nodes.


def _nodes(scene: Scene, width: int, rows: int) -> list[Text]:
    """Return every node as an upright bar, a row of marks below them, and the pools' figures."""
    pools = sorted(scene.pools.items())
    slots = sum(len(pool.slots) for _, pool in pools)
    gaps = _GAP * max(0, len(pools) - 1)
    cell = max(1, min(4, (width + 1 - gaps) // max(1, slots)))
    lines = [_beside(_bars(scene, pool, cell, row, rows) for _, pool in pools) for row in range(rows, 0, -1)]
    lines.append(_beside(_marks(pool, cell) for _, pool in pools))
    lines.append(_beside(_label(name, pool, cell) for name, pool in pools))
    lines.append(_beside(_figures(scene, pool, cell) for _, pool in pools))
    return lines


def _beside(parts: Iterable[Text]) -> Text:
    return Text(" " * _GAP).join(list(parts))


def _bars(scene: Scene, pool: Pool, cell: int, row: int, rows: int) -> Text:
    """Return one row, counted from below, of the bars of a pool."""
    line = Text()
    wide = max(1, cell - 1)
    for slot in pool.slots:
        if slot.node is None:
            line.append(" " * cell)
            continue
        steps = round(min(1.0, scene.fullness(slot.node)) * rows * 8)
        level = max(0, min(8, steps - (row - 1) * 8))
        line.append(_LEVELS[level] * wide, f"{_colour(slot)} {_TRACK}")
        line.append(" " * (cell - wide))
    return line


def _colour(slot: Slot) -> str:
    node = slot.node
    if node is None:
        return DIM
    if node.drain:
        return _OF.get(node.by, _TONES["warn"])
    if node.taken:
        return _TONES["bad"]
    return _TONES["good"] if slot.new else _BAR


def _mark(slot: Slot) -> str:
    node = slot.node
    if node is None:
        return _GONE
    if node.taken:
        return "x"
    if node.drain:
        return {"node-compactor": "c", "node-refiner": "r"}.get(node.by, "d")
    if node.cordoned:
        return "!"
    if not node.ready:
        return "…"
    return "+" if slot.new else " "


def _marks(pool: Pool, cell: int) -> Text:
    line = Text()
    for slot in pool.slots:
        line.append(_mark(slot).ljust(cell), DIM if slot.node is None else f"bold {_colour(slot)}")
    return line


def _label(name: str, pool: Pool, cell: int) -> Text:
    return _cut(Text(name, LOUD), cell * len(pool.slots))


def _figures(scene: Scene, pool: Pool, cell: int) -> Text:
    room = cell * len(pool.slots)
    count, cpu = len(pool.nodes), sum(node.cpu for node in pool.nodes)
    share = sum(scene.used(node.name).cpu for node in pool.nodes) / max(1, cpu)
    long = f"{pool.began or count} → {count} nodes, CPU {share:.0%}"
    middle = f"{pool.began or count} → {count}, {share:.0%}"
    text = next((each for each in (long, middle) if len(each) <= room), f"{count}, {share:.0%}")
    return _cut(Text(text, DIM), room)


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis", pad=True)
    return text


# Floors.


def _floors(scene: Scene, width: int) -> list[Text]:
    spark = 22 if width >= 96 else 14
    bar = max(8, min(40, width - spark - 44))
    return [_floor(scene, floor, spark, bar) for _, floor in sorted(scene.floors.items())]


def _floor(scene: Scene, floor: FloorSeen, spark: int, bar: int) -> Text:
    history = scene.traffic.get(floor.key, [])
    last = history[-1][1] if history else None
    name = floor.key.rpartition("/")[2]
    line = Text()
    line.append(f"{name[:9]:9} ", PLAIN)
    line.append(_spark(history, spark), _OF["hpa-scaler"])
    line.append(f"{'no answer' if last is None else f'{last:,.0f}/s':>10} ", _TONES["warn"] if last is None else DIM)
    line.append_text(_replicas(floor, scene.highest.get(floor.key, 1), bar))
    line.append(f" {floor.current:>3} ", LOUD)
    if not floor.guarded:
        line.append("no floor kept", _TONES["bad"] if last is None else DIM)
    else:
        line.append(f"floor {floor.floor}", PLAIN)
        line.append(" holds" if floor.kept else "", _TONES["good"])
    return line


def _replicas(floor: FloorSeen, highest: int, width: int) -> Text:
    """Return a bar of replicas with a stroke where the floor is."""
    scale = width / max(1, highest, floor.current)
    steps = round(floor.current * scale * 8)
    text = "█" * (steps // 8) + (_PARTS[steps % 8] if steps % 8 else "")
    line = Text(text.ljust(width)[:width], _BAR)
    if floor.guarded:
        at = min(width - 1, max(0, round(floor.floor * scale) - 1))
        inside = f"bold white on {_BAR}" if line.plain[at] != " " else "bold"
        line = Text.assemble(line[:at], ("┃", inside), line[at + 1 :])
    return line


def _spark(history: Sequence[tuple[float, float | None]], width: int) -> str:
    """Return the traffic over the whole night: a column for each part of it, ``x`` where there was no answer."""
    most = max((value for _, value in history if value is not None), default=1.0)
    columns: list[str] = [" "] * width
    for hour, value in history:
        at = min(width - 1, int((hour - BEGIN) / (END - BEGIN) * width))
        columns[at] = "x" if value is None else _SPARKS[min(7, int(value / max(most, 1e-9) * 8))]
    return "".join(columns)


# Words.


def _controllers(scene: Scene) -> list[Text]:
    lines = []
    for name, short in _SHORT.items():
        text = scene.status.get(name, "is not ready yet")
        lines.append(Text.assemble((f"{short:10} ", _OF[name]), (text, PLAIN)))
    return lines


def _log(entries: Sequence[Line], room: int) -> list[Text]:
    lines = [_entry(entry) for entry in entries]
    return lines + [Text()] * (room - len(lines))


def _entry(entry: Line) -> Text:
    line = Text(f"{clock(entry.hour)} ", DIM)
    if not entry.who:
        line.append(f"· {entry.text}", LOUD)
        return line
    line.append(f"{_SHORT.get(entry.who, entry.who):10} ", _OF.get(entry.who, PLAIN))
    if entry.same and entry.same != FLOORS:
        line.append(entry.text, _TONES[entry.tone])
        line.append(f" ({entry.what})", DIM)
    else:
        line.append(f"{entry.what.rpartition('/')[2]:<14} ", PLAIN)
        line.append(entry.text, _TONES[entry.tone])
    return line


def _legend(width: int) -> Text:
    parts = [
        ("c", "node-compactor", " drained by compactor"),
        ("r", "node-refiner", " by refiner"),
        ("x", "", " being deleted"),
        (_GONE, "", " gone"),
        ("+", AUTOSCALER, " new"),
        ("…", AUTOSCALER, " starts"),
        ("┃", "", " floor"),
        ("", "", "Ctrl-C ends it"),
    ]
    named = (Text.assemble((mark, f"bold {_OF.get(who, PLAIN)}"), (text, DIM)) for mark, who, text in parts)
    return _as_fits(named, width)


__all__ = ["LEAST_HEIGHT", "LEAST_WIDTH", "draw"]
