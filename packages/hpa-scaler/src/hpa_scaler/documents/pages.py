"""The pages about floors: a plan, with HPAs in trouble first, and HPAs over time.

A plan shows each HPA's bounds, wanted floor and replicas on one scale. Over time, traffic, floor and replicas are in
one picture, with every change of a bound: a running controller remembers a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from hpa_scaler.documents.chart import Chart, Series, drawn
from hpa_scaler.documents.document import FloorPlan, HpaEntry
from hpa_scaler.documents.timeline import Timeline
from hpa_scaler.documents.views import deciding, dropping, floor_rows, query_formula
from hpa_scaler.judge.floors import short
from tightship.documents.html.page import Page
from tightship.objects.counting import counted
from tightship.objects.reasons import HPA_TROUBLE
from tightship.objects.times import rfc3339

STATES = (
    ("trouble", "HPAs in trouble"),
    ("raise", "floors that go up"),
    ("lower", "floors that go down"),
    ("hold", "floors that stay"),
    ("skip", "HPAs that are skipped"),
)
"""The states of a row, with their descriptions."""
CHARTED = 1000
"""How many rows, from the first, show the recent past: such a row is three times as large, up to 10 KB."""
MARKS = {
    "minimum": ("minReplicas now", "M0 -8v16M-3 -8h6M-3 8h6"),
    "after": ("minReplicas after", "M-5 -12h10l-5 10z"),
    "wanted": ("wanted floor", "M0 -5l5 5l-5 5l-5 -5z"),
    "current": ("replicas", "M-3.5 9a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z"),
    "desired": ("replicas the HPA wants", "M-6 3h12v12h-12z"),
    "maximum": ("maxReplicas", "M3 -8h-3v16h3"),
}
"""A name and a shape for each kind of mark, so that kinds differ even without colour. Values to set are above the axis,
running ones below it."""

_TROUBLE = frozenset(reason.value for reason in HPA_TROUBLE)
_FARTHEST = 3
"""A scale or a chart includes maxReplicas up to this many times the largest other number."""
_WIDTH, _MARGIN = 240, 8


class Mark(Struct, frozen=True):
    """A number on a scale: its *kind* and its *label* beside the scale."""

    kind: str
    label: str
    value: int


class Scale(Struct, frozen=True):
    """Marks on one line from 0 to *top*; a greater number appears as lying beyond *top*."""

    marks: tuple[Mark, ...]
    top: int

    def place(self, value: int) -> int:
        """Return where *value* is, in units of the picture."""
        return _MARGIN + round((_WIDTH - 2 * _MARGIN) * min(value, self.top) / self.top)

    @property
    def move(self) -> tuple[int, int] | None:
        """Where the floor moves, from left to right."""
        found = {mark.kind: self.place(mark.value) for mark in self.marks}
        if "after" not in found:
            return None
        left, right = sorted((found["minimum"], found["after"]))
        return left, right


class Row(Struct, frozen=True):
    """An HPA in a page: its *state* there, its bounds on a *scale*, and the recent past, if known."""

    hpa: HpaEntry
    state: str
    scale: Scale
    timeline: Timeline | None

    @property
    def chart(self) -> Chart | None:
        """The recent past as a picture, if there are several points."""
        return over_time(self.timeline) if self.timeline is not None and len(self.timeline.times) > 1 else None


def plan_page(
    plan: FloorPlan,
    recent: RecentTimelines | None = None,
    *,
    template: str = "hpa_scaler.documents/floors.html",
    alerts: Sequence[str] = (),
    refresh: int = 0,
    **more: object,
) -> Page:
    """Return the page of *plan*, with the recent past from *recent*, if any; *template* may extend its template and
    has *more* values.
    """
    summary = plan.summary
    hpas = sorted(plan.hpas, key=lambda each: not _is_troubled(each))
    writes = recent is not None and not recent.dry
    moves = sum(each.action in ("raise", "lower") and not (writes and each.dry_run) for each in hpas)
    many = f"{moves:,} of {counted(summary.hpas, 'floor')}" if moves else f"None of {counted(summary.hpas, 'floor')}"
    headline = f"{many} {'moving' if writes else 'would move'}"
    past = "" if recent is None else f" {recent}"
    if past and len(hpas) > CHARTED:
        past += f" Only the first {CHARTED:,} rows have it here."
    values = {
        "plan": plan,
        "summary": summary,
        "headline": headline,
        "hpas": hpas,
        "rows": lambda: _rows(hpas, recent),
        "trouble": sum(map(_is_troubled, hpas)),
        "past": past,
        "states": STATES,
        "marks": MARKS,
        "deciding": deciding,
        "drawn": drawn,
        "floor_rows": floor_rows,
        "query_formula": query_formula,
        "rfc3339": rfc3339,
        "short": short,
        **more,
    }
    held = (dropping(summary.drops),) if summary.drops.held else ()
    title = f"{plan.source.shown}: {headline} · {plan.generator.name}"
    return Page(title, template, values, (*alerts, *held, *plan.warnings), refresh)


def _is_troubled(hpa: HpaEntry) -> bool:
    """Return whether somebody should look at *hpa*."""
    return not _TROUBLE.isdisjoint(hpa.reasons)


def _rows(hpas: Sequence[HpaEntry], recent: RecentTimelines | None) -> Iterator[Row]:
    for number, hpa in enumerate(hpas):
        timeline = recent.timeline(hpa.key) if recent is not None and number < CHARTED else None
        yield Row(hpa, "trouble" if _is_troubled(hpa) else hpa.action, scale_of(hpa), timeline)


def scale_of(hpa: HpaEntry) -> Scale:
    """Return the numbers of *hpa* that are known."""
    values = (
        ("minimum", "min", hpa.minimum.now),
        ("after", "then", hpa.minimum.after if hpa.minimum.moves else None),
        ("wanted", "wanted", None if hpa.floors is None else hpa.floors.wanted),
        ("desired", "desired", hpa.desired_replicas),
        ("current", "replicas", hpa.replicas),
        ("maximum", "max", hpa.maximum.after),
    )
    known = tuple(Mark(kind, label, value) for kind, label, value in values if value is not None)
    others = max(1, *(mark.value for mark in known if mark.kind != "maximum"))
    return Scale(known, max(1, hpa.maximum.after if hpa.maximum.after <= _FARTHEST * others else 2 * others))


class RecentTimelines(Struct, frozen=True):
    """A running controller's memory: *timeline* returns that of an HPA by its key. *dry* marks a dry run."""

    since: float
    dry: bool
    timeline: Callable[[str], Timeline | None]

    def __str__(self) -> str:
        """Say how far back the timelines go, and where to find more."""
        why = "it makes a dry run" if self.dry else "it leads"
        return (
            "An opened row has the HPA over time, a day back at most, as far as this process remembers: since "
            f"{rfc3339(self.since)} {why}. With --decision-log FILE all of it is kept."
        )


def over_time(timeline: Timeline) -> Chart:
    """Return *timeline* as a picture."""
    would = " that would be set" if timeline.dry else ""
    series = [
        Series("what the queries ask for, in pods", "traffic", timeline.traffic),
        Series("replicas", "replicas", timeline.replicas, step=True),
        Series(f"minReplicas{would}", "floor", timeline.floors, step=True),
    ]
    most = max((value for each in series for value in each.values if value is not None), default=1.0)
    if max(timeline.maxima) <= _FARTHEST * most:
        series.append(Series(f"maxReplicas{would}", "maximum", timeline.maxima, step=True))
    begin, end = rfc3339(timeline.times[0]), rfc3339(timeline.times[-1])
    label = f"{timeline.key}: traffic, floor and replicas from {begin} to {end}; the tables below have the changes"
    return Chart(timeline.times, tuple(series), "pods", label)
