"""The lines above and below a table of floors."""

from __future__ import annotations

from hpa_scaler.report.document import Drops, FloorExplanation, FloorPlan
from tightship.core.counting import counted
from tightship.report.summary import labelled
from tightship.report.terminal import Terminal, clean

REASONS_SHOWN = 6


def dropping(drops: Drops) -> str:
    """Return how many of the queries that count have dropped."""
    queries = f"of {counted(drops.counted, 'query', 'queries')}"
    return f"{counted(drops.dropping, f'{queries} drops', f'{queries} drop')} at once"


def heading(document: FloorPlan | FloorExplanation, terminal: Terminal) -> list[str]:
    """Return what was judged, and with which settings."""
    where = "standard input" if document.source.name == "-" else document.source.name
    first = f"{document.source.type} {clean(where)} at {document.evaluated_at}"
    return [
        terminal.paint(line, "dim")
        for line in (*terminal.fold(first, ""), *terminal.fold(clean(document.settings.summary), ""))
    ]


def summary_lines(plan: FloorPlan, terminal: Terminal) -> list[str]:
    """Return the plan in numbers, the most frequent reasons, and warnings."""
    summary, arrow = plan.summary, terminal.sign("→", "->")
    actions = summary.actions
    others = f"   {summary.not_enabled:,} more not enabled" if summary.not_enabled else ""
    numbers = (
        f"{summary.hpas:,}: {actions.raised:,} to raise, {actions.lowered:,} to lower, {actions.held:,} held, "
        f"{actions.skipped:,} skipped{others}"
    )
    floor = f"{summary.floor.now:,} {arrow} {counted(summary.floor.after, 'pod')}"
    parts = [("HPAs", numbers, "bold"), ("Floor", floor, "")]
    if summary.maxima_raised:
        parts.append(("Maximum", f"maxReplicas goes up on {counted(summary.maxima_raised, 'HPA')}", ""))
    if summary.drops.held:
        drops = summary.drops
        text = f"{dropping(drops)}: nothing is lowered (CorrelatedDrop)"
        parts.append(("Breaker", text, "why"))
    widest = max((len(each.reason) for each in summary.reasons), default=0)
    for number, each in enumerate(summary.reasons[:REASONS_SHOWN]):
        line = f"{each.reason.ljust(widest)}  {counted(each.hpas, 'HPA')}"
        parts.append(("Reasons" if number == 0 else "", line, "why"))
    parts += [("Warning", clean(text), "bad") for text in plan.warnings]
    return [line for label, text, style in parts for line in labelled(label, text, style, terminal)]


__all__ = ["heading", "summary_lines"]
