"""Numbers over time as one picture: traffic as an area, other lines with dashes of their own.

A line has at most two points for each of :data:`COLUMNS` stretches of time, the highest and the lowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from tightship.documents.html.markup import Markup, joined, tag
from tightship.documents.presentation import Chart, Series

COLUMNS = 600
"""Most stretches of time that a picture distinguishes."""
WIDTH, HEIGHT = 960, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 22, 26
_LETTER = 7
"""The width of a letter of the axes at most."""
_STEPS = (60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 345600, 604800, 1209600, 2592000)
"""Steps of the time axis in seconds. The picture uses the smallest that gives at most eight marks."""


class _Frame:
    """Converts times and values to places in the picture, in whole units."""

    def __init__(self, chart: Chart) -> None:
        self.begin, self.end = chart.times[0], max(chart.times[-1], chart.times[0] + 1)
        values = [value for each in chart.series for value in each.values if value is not None]
        self.step = _nice(max([*values, 1.0]) / 4)
        self.top = self.step * math.ceil(max([*values, 1.0]) / self.step)
        self._wide = (WIDTH - _LEFT - _RIGHT) / (self.end - self.begin)
        self._high = (HEIGHT - _TOP - _BOTTOM) / self.top

    def x(self, at: float) -> int:
        return round(_LEFT + self._wide * (at - self.begin))

    def y(self, value: float) -> int:
        return round(HEIGHT - _BOTTOM - self._high * value) if value > 0 else HEIGHT - _BOTTOM


def chart_picture(chart: Chart) -> Markup:
    """Return *chart* with its axes and its legend; empty if the chart has no times."""
    if not chart.times:
        return Markup("")
    frame = _Frame(chart)
    order = sorted(chart.series, key=lambda each: each.kind != "traffic")
    drawn = tag(
        "svg",
        *_grid(frame, chart.unit),
        *(_line(each, chart.times, frame) for each in order),
        _marks(chart, frame),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=chart.label,
    )
    keys = joined(tag("li", _key(each.kind), each.name) for each in chart.series)
    if chart.marked:
        keys = joined((keys, tag("li", _key("marked"), chart.mark)))
    # In a narrow window the picture scrolls, by keyboard too.
    return tag(
        "figure", drawn, tag("ul", keys, class_="legend"), class_="over-time", aria_label=chart.label, tabindex=0
    )


def _line(series: Series, times: Sequence[float], frame: _Frame) -> Markup:
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
    dense = " dense" if len(times) > 2 * COLUMNS else ""
    return tag("path", class_=f"line {series.kind}{dense}", d="".join(data))


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


def _marks(chart: Chart, frame: _Frame) -> Markup:
    """Return a stroke on the time axis for each marked time, one for all that fall on the same place."""
    places = sorted({frame.x(at) for at in chart.marked})
    return (
        tag("path", class_="line marked", d="".join(f"M{x} {frame.y(0)}v6" for x in places)) if places else Markup("")
    )


def _grid(frame: _Frame, unit: str) -> list[Markup]:
    rules, values, moments = [], [tag("text", unit, x=_LEFT - 6, y=12)], []
    value = 0.0
    while value <= frame.top + 1e-9:
        y = frame.y(value)
        rules.append(f"M{_LEFT} {y}H{WIDTH - _RIGHT}")
        values.append(tag("text", f"{value:g}", x=_LEFT - 6, y=y + 4))
        value += frame.step
    span = frame.end - frame.begin
    step = next((each for each in _STEPS if span / each <= 8), _STEPS[-1])
    at = math.ceil(frame.begin / step) * step
    while at <= frame.end:
        x = frame.x(at)
        rules.append(f"M{x} {_TOP}V{HEIGHT - _BOTTOM}")
        moment = datetime.fromtimestamp(at, UTC)
        name = moment.strftime("%d %b") if step >= 86400 else moment.strftime("%d %b %H:%M")
        # The last name ends within the picture.
        moments.append(tag("text", name, x=min(x, WIDTH - _LETTER * len(name) // 2), y=HEIGHT - 8))
        at += step
    return [
        tag("path", class_="rule", d="".join(rules)),
        tag("g", *values, text_anchor="end"),
        tag("g", *moments, text_anchor="middle"),
    ]


def _nice(rough: float) -> float:
    """Return the least whole number of 1, 2, 5 times a power of ten that is not below *rough*."""
    power = 10.0 ** math.floor(math.log10(max(rough, 1e-9)))
    found = next(step * power for step in (1, 2, 5, 10) if step * power >= rough - 1e-12)
    return max(1.0, found)


def _key(kind: str) -> Markup:
    drawn = {"traffic": "M0 12V6L10 3L22 7V12z", "marked": "M8 5v6M11 5v6M14 5v6"}.get(kind, "M0 8H22")
    return tag("svg", tag("path", class_=f"line {kind}", d=drawn), width=24, height=16, aria_hidden="true")
