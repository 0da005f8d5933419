"""Small pictures in tables: utilization, marks on a scale, a share. The text beside each has its numbers."""

from __future__ import annotations

from tightship.documents.html.markup import Markup, tag
from tightship.documents.presentation import Bar, Mark, Part, Picture, Scale

WIDTH = 120
"""Length of a full bar in units, which are pixels in most windows."""

_THICK = 6
_MARGIN = 8
_AXIS = 16


def picture(drawn: Picture) -> Markup:
    """Return *drawn* as SVG that screen readers skip, because its numbers stand beside it."""
    match drawn:
        case Bar():
            return _bar(drawn)
        case Scale():
            return _scale(drawn)
        case Part():
            return _part(drawn)


def rectangle(x: float, y: float, width: float, height: float) -> str:
    """Return the path of a rectangle, empty if it has no size."""
    if width <= 0 or height <= 0:
        return ""
    return f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h-{number(width)}z"


def number(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def path(data: str, name: str) -> Markup:
    """Return a path of the class *name*, empty if *data* is."""
    return tag("path", class_=name, d=data) if data else Markup("")


def within(ratio: float | None) -> float:
    """Return *ratio* limited to the full length."""
    return min(1.0, max(0.0, ratio or 0.0))


def _bar(bar: Bar) -> Markup:
    """Draw the present above the future, or one bar if nothing changes."""
    now, same = within(bar.now) * WIDTH, not bar.gone and not bar.arrived
    height = _THICK if same else 2 * _THICK + 2
    parts = [path(rectangle(0, 0, WIDTH, _THICK), "room"), path(rectangle(0, 0, now, _THICK), bar.kind)]
    lower = _THICK + 2
    if bar.gone:
        parts.append(path(rectangle(0.5, lower + 0.5, WIDTH - 1, _THICK - 1), "gone"))
    elif not same:
        after = within(bar.after) * WIDTH
        base = max(0.0, after - bar.arrived * WIDTH)
        parts.append(path(rectangle(0, lower, WIDTH, _THICK), "room"))
        parts.append(path(rectangle(0, lower, base, _THICK), bar.kind))
        parts.append(path(rectangle(base, lower, after - base, _THICK), f"arrived {bar.kind}"))
    return _drawn("bar", WIDTH, height, *parts)


def _part(part: Part) -> Markup:
    full = WIDTH * part.number / max(1, part.whole)
    solid = WIDTH * part.solid / max(1, part.whole)
    drawn = (
        path(rectangle(0, 0, WIDTH, 10), "room"),
        path(rectangle(0, 0, solid, 10), "cpu"),
        path(rectangle(solid, 0, full - solid, 10), "arrived cpu"),
    )
    return _drawn("bar", WIDTH, 10, *drawn)


def _drawn(name: str, width: int, height: int, *parts: Markup) -> Markup:
    size = f"0 0 {width} {height}"
    return tag("svg", *parts, class_=name, width=width, height=height, viewBox=size, aria_hidden="true")


_SHAPES = {
    "minimum": "M0 -8v16M-3 -8h6M-3 8h6",
    "after": "M-5 -12h10l-5 10z",
    "wanted": "M0 -5l5 5l-5 5l-5 -5z",
    "current": "M-3.5 9a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "desired": "M-6 3h12v12h-12z",
    "maximum": "M3 -8h-3v16h3",
    "beyond": "M-4 -6l7 6l-7 6",
}
"""A shape for each kind of mark at its point, so that kinds differ even without colour. Values to set are above the
axis, running ones below it."""


def shape(kind: str, x: float, y: float) -> Markup:
    """Return the shape of a kind of mark at a point."""
    return tag("path", class_=f"mark {kind}", d=_SHAPES[kind], transform=f"translate({number(x)} {number(y)})")


def _scale(scale: Scale) -> Markup:
    width, top = 2 * WIDTH, max(1, scale.top)

    def place(value: int) -> float:
        return _MARGIN + (width - 2 * _MARGIN) * min(value, top) / top

    found: dict[str, Mark] = {mark.kind: mark for mark in scale.marks}
    now, after = found.get("minimum"), found.get("after")
    parts = [path(f"M{_MARGIN} {_AXIS}H{width - _MARGIN}", "axis")]
    if now is not None and after is not None and now.value != after.value:
        left, right = sorted((place(now.value), place(after.value)))
        parts.append(path(rectangle(left, _AXIS - 3, right - left, 6), "arrived cpu"))
    parts += [shape(mark.kind if mark.value <= top else "beyond", place(mark.value), _AXIS) for mark in scale.marks]
    return _drawn("scale", width, 2 * _AXIS, *parts)
