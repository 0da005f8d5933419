"""Floors as a page for people: each HPA's bounds, wishes and replicas on one scale, HPAs in trouble first."""

from __future__ import annotations

from collections.abc import Iterator

from hpa_scaler.report.document import FloorPlan
from hpa_scaler.report.hpa_rows import CHARTED, COLUMNS, LEGEND, STATES, hpa_rows, is_troubled, troubled_first
from hpa_scaler.report.over_time import Lately
from hpa_scaler.report.summing import dropping, heading
from tightship.core.counting import counted
from tightship.report.html.model import Cell, Fact, Listing, Page, Section, Table
from tightship.report.html.page import render_page
from tightship.report.terminal import Terminal

_PLAIN = Terminal()


def render_html(plan: FloorPlan, terminal: Terminal) -> str:
    """Return *plan* as an HTML document; the terminal does not matter."""
    del terminal
    return render_page(plan_page(plan))


def plan_page(plan: FloorPlan, lately: Lately | None = None) -> Page:
    """Return the page of *plan*, with what was *lately* if somebody remembers it."""
    summary = plan.summary
    moves = summary.actions.raised + summary.actions.lowered
    told = f"{counted(moves, 'floor')} of {counted(summary.hpas, 'HPA')} would move" if moves else "no floor would move"
    others = (f"{counted(summary.not_enabled, 'more HPA')} not enabled",) if summary.not_enabled else ()
    return Page(
        title=f"{plan.generator.name}: {told}",
        subtitle=(*heading(plan, _PLAIN), *others),
        facts=_facts(plan),
        alerts=(*_drops(plan), *plan.warnings),
        sections=tuple(_sections(plan)),
        listing=Listing(
            heading="HPAs",
            columns=COLUMNS,
            keys=tuple(f"{hpa.namespace}/{hpa.name}" for hpa in troubled_first(plan)),
            rows=lambda: hpa_rows(plan, lately),
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
    trouble = sum(map(is_troubled, plan.hpas))
    total = f"{floor.now:,}" if floor.now == floor.after else f"{floor.now:,} → {floor.after:,}"
    return (
        Fact("in trouble", f"{trouble:,}", "bad" if trouble else "", f"of {counted(summary.hpas, 'HPA')}"),
        Fact("raised", f"{actions.raised:,}", "good" if actions.raised else "", "floors go up"),
        Fact("lowered", f"{actions.lowered:,}", "warn" if actions.lowered else "", "floors go down"),
        Fact("held", f"{actions.held:,}", detail="floors stay"),
        Fact("skipped", f"{actions.skipped:,}", detail="left alone"),
        Fact("sum of floors", total, detail="pods"),
        Fact("maxima raised", f"{summary.maxima_raised:,}", detail="bounds of HPAs"),
    )


def _remembered(plan: FloorPlan, lately: Lately | None) -> str:
    if lately is None:
        return ""
    return f" {lately}" + (f" Only the first {CHARTED:,} rows have it here." if len(plan.hpas) > CHARTED else "")


def _drops(plan: FloorPlan) -> Iterator[str]:
    drops = plan.summary.drops
    if drops.held:
        yield f"{dropping(drops)}: nothing is lowered (CorrelatedDrop)"


def _sections(plan: FloorPlan) -> Iterator[Section]:
    if not plan.summary.reasons:
        return
    rows = tuple((Cell(each.reason, anchor=each.reason), Cell(f"{each.hpas:,}")) for each in plan.summary.reasons)
    yield Section(
        "Reasons",
        note="How many HPAs have each. docs/reasons.md has a heading for each reason, with what to do about it.",
        table=Table(("Reason", "HPAs"), rows, filters=True, compact=True),
    )


__all__ = ["plan_page", "render_html"]
