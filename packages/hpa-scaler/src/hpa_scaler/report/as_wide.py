"""Floors as a wide table: every query, every reason, with details. Nothing is truncated; one line for each HPA."""

from __future__ import annotations

from hpa_scaler.decide.floors import short
from hpa_scaler.report.as_table import age, moves, query_formula, ratio_floor
from hpa_scaler.report.document import FloorPlan, HpaEntry
from hpa_scaler.report.summing import heading, summary_lines
from tightship.report.columns import Column, lines
from tightship.report.terminal import Terminal, clean


def render_wide(plan: FloorPlan, terminal: Terminal) -> str:
    """Return the wide table of *plan*, with its summary unless headers are off."""
    hpas, arrow = plan.hpas, terminal.sign("→", "->")
    columns = [
        Column("NAMESPACE", [clean(hpa.namespace) for hpa in hpas]),
        Column("HPA", [clean(hpa.name) for hpa in hpas]),
        Column("TARGET", [clean(hpa.target) for hpa in hpas]),
        Column("ACTION", [hpa.action for hpa in hpas]),
        moves(hpas, terminal),
        Column("MAX", [_maximum(hpa, arrow) for hpa in hpas]),
        Column("REPLICAS", ["?" if hpa.replicas is None else str(hpa.replicas) for hpa in hpas], ">"),
        Column("VALUE", [_values(hpa) for hpa in hpas], ">"),
        Column("FORMULA", [", ".join(query_formula(query) for query in hpa.queries) or "-" for hpa in hpas]),
        Column("RATIO FLOOR", [ratio_floor(hpa) for hpa in hpas]),
        Column("BOUNDS", [_bounds(hpa) for hpa in hpas]),
        Column("AGE", [age(hpa) for hpa in hpas], ">"),
        Column("REASONS", [",".join(hpa.reasons) for hpa in hpas], styles=["why"] * len(hpas)),
        Column("DETAILS", ["; ".join(clean(cause.detail) for cause in hpa.causes if cause.detail) for hpa in hpas]),
    ]
    body = lines(columns, terminal)
    if not terminal.headers:
        return "".join(f"{line}\n" for line in body)
    return "\n".join([*heading(plan, terminal), "", *body, "", *summary_lines(plan, terminal)]) + "\n"


def _maximum(hpa: HpaEntry, arrow: str) -> str:
    move = hpa.maximum
    return str(move.now) if move.after == move.now else f"{move.now} {arrow} {move.after}"


def _values(hpa: HpaEntry) -> str:
    return ",".join("?" if query.value is None else short(query.value) for query in hpa.queries) or "-"


def _bounds(hpa: HpaEntry) -> str:
    if hpa.floors is None:
        return "-"
    upper = "" if hpa.floors.upper_bound is None else str(hpa.floors.upper_bound)
    return f"{hpa.floors.lower_bound}..{upper}"


__all__ = ["render_wide"]
