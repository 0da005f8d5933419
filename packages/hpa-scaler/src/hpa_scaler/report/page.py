"""The page about floors: each HPA's bounds, wanted floor and replicas on one scale, HPAs in trouble first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpa_scaler.decide.floors import short
from hpa_scaler.report.document import FloorPlan, HpaEntry
from hpa_scaler.report.over_time import Lately, over_time
from hpa_scaler.report.story import Told
from hpa_scaler.report.views import deciding, dropping, floor_rows, query_formula
from tightship.core.counting import counted
from tightship.core.reasons import HPA_TROUBLE
from tightship.report.presentation import (
    Cell,
    Entry,
    EntryList,
    Fact,
    Mark,
    MarkKind,
    Page,
    Scale,
    Section,
    Table,
    Tone,
)

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
"""The scale includes maxReplicas up to this many times the largest other number."""


def plan_page(plan: FloorPlan, lately: Lately | None = None) -> Page:
    """Return the page of *plan*, with the recent past from *lately*, if any."""
    summary = plan.summary
    hpas = sorted(plan.hpas, key=lambda each: not _is_troubled(each))
    moves = summary.actions.raised + summary.actions.lowered
    told = f"{counted(moves, 'floor')} of {counted(summary.hpas, 'HPA')} would move" if moves else "no floor would move"
    held = (dropping(summary.drops),) if summary.drops.held else ()
    others = (f"{counted(summary.not_enabled, 'more HPA')} not enabled",) if summary.not_enabled else ()
    return Page(
        title=f"{plan.generator.name}: {told}",
        subtitle=(*plan.heading, *others),
        facts=_facts(plan),
        alerts=(*held, *plan.warnings),
        sections=tuple(_sections(plan)),
        listing=EntryList(
            heading="HPAs",
            columns=COLUMNS,
            keys=tuple(hpa.key for hpa in hpas),
            rows=lambda: _rows(hpas, lately),
            states=STATES,
            noun="HPA",
            hint="name, target, query or reason",
            note="The last column opens: every query, every floor that was compared, every reason. Those in trouble "
            f"come first. Arrow keys go from name to name.{_remembered(plan, lately)}",
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


def _remembered(plan: FloorPlan, lately: Lately | None) -> str:
    if lately is None:
        return ""
    return f" {lately}" + (f" Only the first {CHARTED:,} rows have it here." if len(plan.hpas) > CHARTED else "")


def _sections(plan: FloorPlan) -> Iterator[Section]:
    if not plan.summary.reasons:
        return
    rows = tuple((Cell(each.reason, anchor=each.reason), Cell(f"{each.hpas:,}")) for each in plan.summary.reasons)
    yield Section(
        "Reasons",
        note="How many HPAs have each. docs/reasons.md has a heading for each reason, with what to do about it.",
        table=Table(("Reason", "HPAs"), rows, filters=True, compact=True),
    )


def _is_troubled(hpa: HpaEntry) -> bool:
    """Return whether somebody should look at *hpa*."""
    return not _TROUBLE.isdisjoint(hpa.reasons)


def _rows(hpas: Sequence[HpaEntry], lately: Lately | None) -> Iterator[Entry]:
    for number, hpa in enumerate(hpas):
        told = lately.told(hpa.key) if lately is not None and number < CHARTED else None
        yield Entry(
            key=hpa.key,
            state="trouble" if _is_troubled(hpa) else hpa.action,
            cells=(Cell(hpa.key, detail=hpa.target), _bounds(hpa), _decision(hpa), _query(hpa)),
            tags=hpa.reasons,
            summary=Cell(", ".join(hpa.reasons) or "no reason"),
            details=tuple(_details(hpa, told)),
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


def _details(hpa: HpaEntry, told: Told | None) -> Iterator[Section]:
    rows = tuple(
        (Cell(each.reason, about=each.reason), each.detail, each.fix or "none is known") for each in hpa.causes
    )
    if rows:
        yield Section("Why", table=Table(("Reason", "Detail", "Smallest change"), rows))
    if told is not None:
        yield from over_time(told)
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
