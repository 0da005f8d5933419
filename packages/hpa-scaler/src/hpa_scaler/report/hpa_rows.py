"""The rows of a page of floors: one HPA each, with its scale, all its reasons, queries and floors."""

from __future__ import annotations

from collections.abc import Iterator

from hpa_scaler.decide.floors import short
from hpa_scaler.report.as_table import deciding, query_formula
from hpa_scaler.report.as_text import floor_rows
from hpa_scaler.report.document import FloorPlan, HpaEntry, Move
from hpa_scaler.report.over_time import Lately, over_time
from hpa_scaler.report.story import Told
from tightship.core.counting import counted
from tightship.core.reasons import HPA_TROUBLE
from tightship.report.html.model import Cell, Entry, Mark, MarkKind, Scale, Section, Table, Tone

COLUMNS = ("HPA", "Bounds and replicas", "Decision", "Query", "Why, and what was compared")
STATES = (
    ("trouble", "HPAs in trouble"),
    ("raise", "floors that go up"),
    ("lower", "floors that go down"),
    ("hold", "floors that stay"),
    ("skip", "HPAs that are skipped"),
)
"""The states of a row, and what they mean."""
CHARTED = 1000
"""Rows that have what was lately, the first ones: with it a row is three times as heavy, up to 10 KB."""
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
"""How many times the largest other number maxReplicas may be for the scale to reach it."""


def is_troubled(hpa: HpaEntry) -> bool:
    """Return whether somebody should look at *hpa*."""
    return not _TROUBLE.isdisjoint(hpa.reasons)


def troubled_first(plan: FloorPlan) -> list[HpaEntry]:
    """Return the HPAs, those in trouble first, each part in the plan's own order."""
    return sorted(plan.hpas, key=lambda each: not is_troubled(each))


def hpa_rows(plan: FloorPlan, lately: Lately | None = None) -> Iterator[Entry]:
    """Return the rows, HPAs in trouble first, with what was *lately* if somebody remembers it."""
    for number, hpa in enumerate(troubled_first(plan)):
        key = f"{hpa.namespace}/{hpa.name}"
        told = lately.told(key) if lately is not None and number < CHARTED else None
        yield Entry(
            key=key,
            state="trouble" if is_troubled(hpa) else hpa.action,
            cells=(
                Cell(key, detail=hpa.target),
                _bounds(hpa),
                _decision(hpa),
                _query(hpa),
            ),
            tags=hpa.reasons,
            summary=Cell(", ".join(hpa.reasons) or "no reason"),
            details=tuple(_details(hpa, told)),
        )


def _bounds(hpa: HpaEntry) -> Cell:
    wanted = None if hpa.floors is None else hpa.floors.wanted
    values: list[tuple[MarkKind, str, int | None]] = [
        ("minimum", "min", hpa.minimum.now),
        ("after", "then", hpa.minimum.after if hpa.minimum.after != hpa.minimum.now else None),
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
    raised = "" if hpa.maximum.now == hpa.maximum.after else f"maxReplicas {_move(hpa.maximum)}"
    return Cell(f"{hpa.action} {_move(hpa.minimum)}{dry}", _TONES.get(hpa.action, ""), detail=raised)


def _move(move: Move) -> str:
    return f"{move.now:,}" if move.now == move.after else f"{move.now:,} → {move.after:,}"


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
    floors = tuple((label, text) for label, text in floor_rows(hpa))
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


__all__ = ["CHARTED", "COLUMNS", "LEGEND", "STATES", "hpa_rows", "is_troubled", "troubled_first"]
