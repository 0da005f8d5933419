"""Floors as a table that fits its terminal: it drops long names first, then the age, the ratio floor, the formula."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hpa_scaler.decide.floors import QueryTerm, short, term_text
from hpa_scaler.report.document import FloorPlan, HpaEntry, QueryEntry
from hpa_scaler.report.summing import heading, summary_lines
from tightship.core.durations import format_duration
from tightship.report.columns import Column, lines
from tightship.report.fitting import fitted
from tightship.report.terminal import Terminal, clean

LONGEST_FORMULA = 40

_EXACT = 600
"""Seconds below which an age is told to the second: a query that looks back 5 minutes wants no less."""

_STYLES = {"raise": "go", "lower": "bar", "hold": "", "skip": "dim"}


class _Shape(Struct, frozen=True):
    """Which columns there are, and how many columns names are cut to, ``None`` for none."""

    age: bool = True
    ratio: bool = True
    formula: bool = True
    value: bool = True
    names: int | None = None


_SHAPES = (
    _Shape(),
    _Shape(names=28),
    _Shape(age=False, names=28),
    _Shape(age=False, ratio=False),
    _Shape(age=False, ratio=False, names=28),
    _Shape(age=False, ratio=False, formula=False),
    _Shape(age=False, ratio=False, formula=False, names=28),
    _Shape(age=False, ratio=False, formula=False, value=False, names=28),
)
"""From roomy to narrow; the first that leaves room for the first reason in full is taken."""


def render_table(plan: FloorPlan, terminal: Terminal) -> str:
    """Return the table of *plan*, with its summary unless headers are off."""
    reasons = [hpa.reasons for hpa in plan.hpas]
    body = lines(fitted(_SHAPES, lambda shape: _columns(plan.hpas, terminal, shape), reasons, terminal), terminal)
    if not terminal.headers:
        return "".join(f"{line}\n" for line in body)
    return "\n".join([*heading(plan, terminal), "", *body, "", *summary_lines(plan, terminal)]) + "\n"


def _columns(hpas: Sequence[HpaEntry], terminal: Terminal, shape: _Shape) -> list[Column]:
    names = [clean(f"{hpa.namespace}/{hpa.name}") for hpa in hpas]
    if shape.names is not None:
        names = [terminal.shorten(name, shape.names) for name in names]
    columns = [Column("HPA", names), moves(hpas, terminal)]
    if shape.value:
        columns.append(Column("VALUE", [_value(hpa) for hpa in hpas], ">"))
    if shape.formula:
        columns.append(Column("FORMULA", [terminal.cut(_formula(hpa), LONGEST_FORMULA) for hpa in hpas]))
    if shape.ratio:
        columns.append(Column("RATIO FLOOR", [ratio_floor(hpa) for hpa in hpas]))
    if shape.age and any(hpa.data_age_seconds is not None for hpa in hpas):
        columns.append(Column("AGE", [age(hpa) for hpa in hpas], ">"))
    return columns


def moves(hpas: Sequence[HpaEntry], terminal: Terminal) -> Column:
    """Return the column of minima: ``5 → 8``, or ``5`` if the minimum stays."""
    arrow = terminal.sign("→", "->")
    cells = []
    for hpa in hpas:
        after = "" if hpa.minimum.after == hpa.minimum.now else f" {arrow} {hpa.minimum.after}"
        dry = " (dry)" if hpa.dry_run and after else ""
        cells.append(f"{hpa.minimum.now}{after}{dry}")
    return Column("MIN", cells, styles=[_STYLES[hpa.action] for hpa in hpas])


def deciding(hpa: HpaEntry) -> QueryEntry | None:
    """Return the query that asks for the most replicas, the first if none answered, ``None`` if there is none."""
    answered = [query for query in hpa.queries if query.replicas is not None]
    return max(answered, key=lambda query: query.replicas or 0, default=next(iter(hpa.queries), None))


def ratio_floor(hpa: HpaEntry) -> str:
    """Return how the ratio floor is computed, ``-`` if the ratio is no limit."""
    by_ratio = None if hpa.floors is None else hpa.floors.by_ratio
    if hpa.replicas is None or by_ratio is None or (hpa.ratio or 0.0) >= 1:
        return "-"
    return f"{hpa.replicas} - {hpa.replicas - by_ratio} = {by_ratio}"


def age(hpa: HpaEntry) -> str:
    """Return for how long the data are known to be complete, ``-`` if no query looks back."""
    seconds = hpa.data_age_seconds
    if seconds is None:
        return "-"
    return f"{seconds}s" if seconds < _EXACT else format_duration(seconds)


def query_formula(query: QueryEntry) -> str:
    """Return the formula of one query with its numbers."""
    return term_text(QueryTerm(query.value, query.per_replica, query.delta))


def _value(hpa: HpaEntry) -> str:
    query = deciding(hpa)
    return "-" if query is None or query.value is None else short(query.value)


def _formula(hpa: HpaEntry) -> str:
    query = deciding(hpa)
    if query is None:
        return "-"
    more = len(hpa.queries) - 1
    return query_formula(query) + (f" +{more}" if more else "")


__all__ = ["age", "deciding", "moves", "query_formula", "ratio_floor", "render_table"]
