"""Numbers over time as one picture: traffic as an area, other lines with dashes of their own.

A line has at most two points for each of :data:`COLUMNS` stretches of time, the highest and the lowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

COLUMNS = 600
"""Most stretches of time that a picture distinguishes."""
WIDTH, HEIGHT = 960, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 22, 26
_LETTER = 7
"""The width of a letter of the axes at most."""
_STEPS = (60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 345600, 604800, 1209600, 2592000)
"""Steps of the time axis in seconds. The picture uses the smallest that gives at most eight marks."""


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


class Label(Struct, frozen=True):
    """A value or a moment of an axis, and where it is."""

    text: str
    x: int
    y: int

    @property
    def middle(self) -> int:
        """Where the text's middle is, so that the last one ends within the picture."""
        return min(self.x, WIDTH - _LETTER * len(self.text) // 2)


class Drawing(Struct, frozen=True):
    """What to draw of a chart: the *rules* of its axes, their *values* and *moments*, and *lines* by their classes."""

    rules: str
    values: Sequence[Label]
    moments: Sequence[Label]
    lines: Sequence[tuple[str, str]]


class _Frame:
    """Converts times and values to places in the picture, in whole units."""

    def __init__(self, chart: Chart) -> None:
        self.begin, self.end = chart.times[0], max(chart.times[-1], chart.times[0] + 1)
        values = [value for each in chart.series for value in each.values if value is not None]
        self.step = _nice(max([*values, 1.0]) / 4)
        self.steps = math.ceil(max([*values, 1.0]) / self.step)
        self._wide = (WIDTH - _LEFT - _RIGHT) / (self.end - self.begin)
        self._high = (HEIGHT - _TOP - _BOTTOM) / (self.step * self.steps)

    def x(self, at: float) -> int:
        return round(_LEFT + self._wide * (at - self.begin))

    def y(self, value: float) -> int:
        return round(HEIGHT - _BOTTOM - self._high * value) if value > 0 else HEIGHT - _BOTTOM


def drawn(chart: Chart) -> Drawing:
    """Return what to draw of *chart*, which has times."""
    frame = _Frame(chart)
    values, moments = _axes(frame)
    order = sorted(chart.series, key=lambda each: each.kind != "traffic")
    lines = [(_class(each, chart.times), _line(each, chart.times, frame)) for each in order]
    if marks := "".join(f"M{x} {frame.y(0)}v6" for x in sorted({frame.x(at) for at in chart.marked})):
        lines.append(("marked", marks))
    return Drawing(_rules(values, moments), values, moments, lines)


def _class(series: Series, times: Sequence[float]) -> str:
    return f"{series.kind} dense" if len(times) > 2 * COLUMNS else series.kind


def _line(series: Series, times: Sequence[float], frame: _Frame) -> str:
    """Return a short path in whole units, from each point to the next that differs."""
    area, ground = series.kind == "traffic", frame.y(0)
    close = f"V{ground}z" if area else ""
    data = []
    at_x = at_y = held = 0
    going = False
    for at, value in _thinned(times, series.values, frame):
        if value is None:
            data.append(f"{_level(at_x, held)}{close}" if going else "")
            going = False
            continue
        x, y = frame.x(at), frame.y(value)
        if not going:
            data.append(f"M{x} {ground}V{y}" if area else f"M{x} {y}")
        elif y == at_y:
            held = x
            continue
        elif series.step:
            data.append(f"{_level(at_x, x)}v{y - at_y}")
        else:
            data.append(f"{_level(at_x, held)}l{x - held} {y - at_y}")
        going, at_x, at_y, held = True, x, y, x
    data.append(f"{_level(at_x, held)}{close}" if going else "")
    return "".join(data)


def _level(begin: int, end: int) -> str:
    return f"h{end - begin}" if end > begin else ""


def _thinned(times: Sequence[float], values: Sequence[float | None], frame: _Frame) -> list[tuple[float, float | None]]:
    """Return the points to draw, by time: the lowest and the highest of each stretch, and where gaps begin."""
    if len(times) <= 2 * COLUMNS:
        return list(zip(times, values, strict=True))
    points: list[tuple[float, float | None]] = []
    stretch: list[tuple[float, float | None]] = []
    number_of = -1
    for at, value in zip(times, values, strict=True):
        here = int((at - frame.begin) / (frame.end - frame.begin) * COLUMNS)
        if here != number_of:
            points += _extremes(stretch)
            stretch, number_of = [], here
        stretch.append((at, value))
    return points + _extremes(stretch)


def _extremes(stretch: list[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    known = [(value, at) for at, value in stretch if value is not None]
    found = {at: value for value, at in (min(known), max(known))} if known else {}
    gap = next(((at, value) for at, value in stretch if value is None), None)
    points: list[tuple[float, float | None]] = list(found.items())
    if gap is not None:
        points.append(gap)
    return sorted(points, key=lambda point: point[0])


def _axes(frame: _Frame) -> tuple[Sequence[Label], Sequence[Label]]:
    """Return the values and the moments of the axes."""
    values = [Label(f"{number * frame.step:g}", 0, frame.y(number * frame.step)) for number in range(frame.steps + 1)]
    span = frame.end - frame.begin
    step = next((each for each in _STEPS if span / each <= 8), _STEPS[-1])
    moments, at = [], math.ceil(frame.begin / step) * step
    while at <= frame.end:
        moment = datetime.fromtimestamp(at, UTC)
        moments.append(Label(moment.strftime("%d %b" if step >= 86400 else "%d %b %H:%M"), frame.x(at), 0))
        at += step
    return values, moments


def _rules(values: Sequence[Label], moments: Sequence[Label]) -> str:
    across = "".join(f"M{_LEFT} {each.y}H{WIDTH - _RIGHT}" for each in values)
    return across + "".join(f"M{each.x} {_TOP}V{HEIGHT - _BOTTOM}" for each in moments)


def _nice(rough: float) -> float:
    """Return the least whole number of 1, 2, 5 times a power of ten that is not below *rough*."""
    power = 10.0 ** math.floor(math.log10(max(rough, 1e-9)))
    found = next(step * power for step in (1, 2, 5, 10) if step * power >= rough - 1e-12)
    return max(1.0, found)
