"""The pages about floors: a plan, with HPAs in trouble first, and HPAs over time.

A plan shows each HPA's bounds, wanted floor and replicas on one scale. Over time, traffic, floor and replicas are in
one picture, with every change of a bound: a running controller remembers a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from hpa_scaler.documents.document import FloorPlan, HpaEntry
from hpa_scaler.documents.timeline import BoundChange, Timeline
from hpa_scaler.documents.views import deciding, dropping, floor_rows, query_formula
from hpa_scaler.judge.floors import short
from tightship.documents.presentation import (
    Cell,
    Chart,
    Entry,
    EntryList,
    Fact,
    Mark,
    MarkKind,
    Page,
    Scale,
    Section,
    Series,
    Table,
    Tone,
)
from tightship.objects.counting import counted
from tightship.objects.reasons import HPA_TROUBLE
from tightship.objects.times import rfc3339

COLUMNS = ("HPA", "Bounds and replicas", "Decision", "Query", "Why, and what was compared")
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
LEGEND: tuple[tuple[MarkKind, str], ...] = (
    ("minimum", "minReplicas now"),
    ("after", "minReplicas after"),
    ("wanted", "wanted floor"),
    ("current", "replicas"),
    ("desired", "replicas the HPA wants"),
    ("maximum", "maxReplicas"),
)

_TROUBLE = frozenset(reason.value for reason in HPA_TROUBLE)
_TONES: dict[str, Tone] = {"raise": "good", "lower": "warn", "skip": "dim"}
_FARTHEST = 3
"""A scale or a chart includes maxReplicas up to this many times the largest other number."""


def plan_page(plan: FloorPlan, recent: RecentTimelines | None = None) -> Page:
    """Return the page of *plan*, with the recent past from *recent*, if any."""
    summary = plan.summary
    hpas = sorted(plan.hpas, key=lambda each: not _is_troubled(each))
    writes = recent is not None and not recent.dry
    moves = sum(each.action in ("raise", "lower") and not (writes and each.dry_run) for each in hpas)
    many = f"{counted(moves, 'floor')} of {counted(summary.hpas, 'HPA')}" if moves else "no floor"
    headline = f"{many} {'moving' if writes else 'would move'}"
    held = (dropping(summary.drops),) if summary.drops.held else ()
    counts = tuple((Cell(each.reason, anchor=each.reason), Cell(f"{each.hpas:,}")) for each in summary.reasons)
    reasons = Section(
        "Reasons",
        note="How many HPAs have each. docs/reasons.md has a heading for each reason, with what to do about it.",
        table=Table(("Reason", "HPAs"), counts, filters=True, compact=True),
    )
    past = "" if recent is None else f" {recent}"
    if past and len(hpas) > CHARTED:
        past += f" Only the first {CHARTED:,} rows have it here."
    others = (f"{counted(summary.not_enabled, 'more HPA')} not enabled",) if summary.not_enabled else ()
    return Page(
        title=f"{plan.generator.name}: {headline}",
        subtitle=(*plan.heading, *others),
        facts=_facts(plan),
        alerts=(*held, *plan.warnings),
        sections=(reasons,) if summary.reasons else (),
        listing=EntryList(
            heading="HPAs",
            columns=COLUMNS,
            keys=tuple(hpa.key for hpa in hpas),
            rows=lambda: _rows(hpas, recent),
            states=STATES,
            noun="HPA",
            hint="name, target, query or reason",
            note="The last column opens: every query, every floor that was compared, every reason. Those in trouble "
            f"come first. Arrow keys go from name to name.{past}",
            empty="No HPA is opted in.",
            legend=LEGEND,
        ),
    )


def _facts(plan: FloorPlan) -> tuple[Fact, ...]:
    summary = plan.summary
    actions, floor = summary.actions, summary.floor
    trouble = sum(map(_is_troubled, plan.hpas))
    return (
        Fact("in trouble", f"{trouble:,}", "bad" if trouble else "", f"of {counted(summary.hpas, 'HPA')}"),
        Fact("raised", f"{actions.raised:,}", "good" if actions.raised else "", "floors go up"),
        Fact("lowered", f"{actions.lowered:,}", "warn" if actions.lowered else "", "floors go down"),
        Fact("held", f"{actions.held:,}", detail="floors stay"),
        Fact("skipped", f"{actions.skipped:,}", detail="left alone"),
        Fact("sum of floors", f"{floor:,}", detail="pods"),
        Fact("maxima raised", f"{summary.maxima_raised:,}", detail="bounds of HPAs"),
    )


def _is_troubled(hpa: HpaEntry) -> bool:
    """Return whether somebody should look at *hpa*."""
    return not _TROUBLE.isdisjoint(hpa.reasons)


def _rows(hpas: Sequence[HpaEntry], recent: RecentTimelines | None) -> Iterator[Entry]:
    for number, hpa in enumerate(hpas):
        timeline = recent.timeline(hpa.key) if recent is not None and number < CHARTED else None
        yield Entry(
            key=hpa.key,
            state="trouble" if _is_troubled(hpa) else hpa.action,
            cells=(Cell(hpa.key, detail=hpa.target), _bounds(hpa), _decision(hpa), _query(hpa)),
            tags=hpa.reasons,
            summary=Cell(", ".join(hpa.reasons) or "no reason"),
            details=tuple(_hpa_details(hpa, timeline)),
        )


def _bounds(hpa: HpaEntry) -> Cell:
    wanted = None if hpa.floors is None else hpa.floors.wanted
    values: list[tuple[MarkKind, str, int | None]] = [
        ("minimum", "min", hpa.minimum.now),
        ("after", "then", hpa.minimum.after if hpa.minimum.moves else None),
        ("wanted", "wanted", wanted),
        ("desired", "desired", hpa.desired_replicas),
        ("current", "replicas", hpa.replicas),
        ("maximum", "max", hpa.maximum.after),
    ]
    known = [(kind, label, value) for kind, label, value in values if value is not None]
    others = max((value for kind, _, value in known if kind != "maximum"), default=1)
    top = hpa.maximum.after if hpa.maximum.after <= _FARTHEST * max(1, others) else 2 * max(1, others)
    text = ", ".join(f"{label} {value:,}" for _, label, value in known)
    return Cell(text, picture=Scale(tuple(Mark(kind, value) for kind, _, value in known), top))


def _decision(hpa: HpaEntry) -> Cell:
    dry = ", dry run" if hpa.dry_run else ""
    raised = f"maxReplicas {hpa.maximum:,}" if hpa.maximum.moves else ""
    return Cell(f"{hpa.action} {hpa.minimum:,}{dry}", _TONES.get(hpa.action, ""), detail=raised)


def _query(hpa: HpaEntry) -> Cell:
    query = deciding(hpa)
    if query is None:
        return Cell("none", "dim")
    more = len(hpa.queries) - 1
    return Cell(query_formula(query), detail=f"and {counted(more, 'more query', 'more queries')}" if more else "")


def _hpa_details(hpa: HpaEntry, timeline: Timeline | None) -> Iterator[Section]:
    rows = tuple(
        (Cell(each.reason, about=each.reason), each.detail, each.fix or "none is known") for each in hpa.causes
    )
    if rows:
        yield Section("Why", table=Table(("Reason", "Detail", "Smallest change"), rows))
    if timeline is not None:
        yield from over_time(timeline)
    if hpa.queries:
        yield Section("Queries", table=_queries(hpa))
    floors = tuple(floor_rows(hpa))
    if floors:
        yield Section("Floors that were compared", table=Table(("Floor", "Replicas"), floors))


def _queries(hpa: HpaEntry) -> Table:
    columns = ("Query", "Server", "Outcome", "Value", "Per replica", "Delta", "Replicas", "Looks back")
    rows = tuple(
        (
            each.query,
            each.server,
            each.outcome,
            Cell("-" if each.value is None else short(each.value), number=True),
            Cell(short(each.per_replica), number=True),
            Cell(short(each.delta), number=True),
            Cell("-" if each.replicas is None else f"{each.replicas:,}", number=True),
            Cell(f"{each.looks_back_seconds:,}s", number=True),
        )
        for each in hpa.queries
    )
    return Table(columns, rows)


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


def over_time(timeline: Timeline) -> Iterator[Section]:
    """Yield the chart, if there are several points, and the changes, the latest first."""
    if len(timeline.times) > 1:
        yield Section("Traffic, floor and replicas", chart=_chart(timeline))
    if timeline.changes:
        columns = ("At", "minReplicas", "maxReplicas", "Reasons")
        yield Section("Changes", table=Table(columns, tuple(map(_change_row, reversed(timeline.changes)))))


def _change_row(change: BoundChange) -> tuple[Cell | str, ...]:
    same = change.before == change.after
    return (
        rfc3339(change.at),
        Cell(f"{change.after:,}" if same else f"{change.before:,} → {change.after:,}", number=True),
        Cell(f"{change.maximum:,}", number=True),
        ", ".join(change.reasons),
    )


def _chart(timeline: Timeline) -> Chart:
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
