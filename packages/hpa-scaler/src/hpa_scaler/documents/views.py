"""Text output about floors: a table with a row for each HPA, all about some HPAs, and the outcome of a release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hpa_scaler.annotations.spec import STATE
from hpa_scaler.documents.document import (
    Drops,
    FloorExplanation,
    FloorPlan,
    FloorRelease,
    HpaDetail,
    HpaEntry,
    QueryEntry,
    ReleaseOutcome,
)
from hpa_scaler.judge.decision_log import Replay
from hpa_scaler.judge.floors import QueryTerm, short, term_text
from tightship.documents.presentation import Block, Column, Grid, GridShape, Printout, Style, TextLine, figure, warning
from tightship.documents.terminal import Terminal
from tightship.objects.counting import counted
from tightship.objects.times import format_duration

LONGEST_FORMULA = 40
REASONS_SHOWN = 6

_EXACT = 600
"""Seconds below which an age is exact to the second: a query that looks back 5 minutes needs that."""

_STYLES: dict[str, Style] = {"raise": "go", "lower": "bar", "hold": "", "skip": "dim"}
_OUTCOMES: dict[ReleaseOutcome, Style] = {
    "restored": "go",
    "would-restore": "go",
    "nothing-ours": "dim",
    "gone": "dim",
    "refused": "bad",
    "failed": "bad",
}
_WORDS = {"raise": "raise the floor", "lower": "lower the floor", "hold": "hold the floor", "skip": "leave it alone"}
_RANGE_FROM = {
    "text": "by its text",
    "query-range": "by query-range",
    "rule": "a rule whose name does not say it",
    "default": "two scrapes",
    "unreadable": "it can't be read",
}
_SHAPES = (
    GridShape(),
    GridShape(names=28),
    GridShape(("AGE",), names=28),
    GridShape(("AGE", "RATIO FLOOR")),
    GridShape(("AGE", "RATIO FLOOR"), names=28),
    GridShape(("AGE", "RATIO FLOOR", "FORMULA")),
    GridShape(("AGE", "RATIO FLOOR", "FORMULA"), names=28),
    GridShape(("AGE", "RATIO FLOOR", "FORMULA", "VALUE"), names=28),
)


def plan_printout(plan: FloorPlan) -> Printout:
    """Return *plan* as a table, with a summary below."""
    hpas = plan.hpas
    columns = [
        Column("HPA", [hpa.key for hpa in hpas]),
        _minima(hpas),
        Column("VALUE", [_value(hpa) for hpa in hpas], ">"),
        Column("FORMULA", [Terminal().cut(_formula(hpa), LONGEST_FORMULA) for hpa in hpas]),
        Column("RATIO FLOOR", [_ratio_floor(hpa) for hpa in hpas]),
    ]
    if any(hpa.data_age_seconds is not None for hpa in hpas):
        columns.append(Column("AGE", [_age(hpa) for hpa in hpas], ">"))
    grid = Grid(columns, _SHAPES, reasons=[hpa.reasons for hpa in hpas])
    return Printout(plan.heading, grid, end=tuple(_summary(plan)))


def wide_columns(plan: FloorPlan) -> Sequence[Column]:
    """Return the columns with every query and every reason, with details."""
    hpas = plan.hpas
    return (
        Column("NAMESPACE", [hpa.namespace for hpa in hpas]),
        Column("HPA", [hpa.name for hpa in hpas]),
        Column("TARGET", [hpa.target for hpa in hpas]),
        Column("ACTION", [hpa.action for hpa in hpas]),
        _minima(hpas),
        Column("MAX", [f"{hpa.maximum}" for hpa in hpas]),
        Column("REPLICAS", ["?" if hpa.replicas is None else str(hpa.replicas) for hpa in hpas], ">"),
        Column("VALUE", [_values(hpa) for hpa in hpas], ">"),
        Column("FORMULA", [", ".join(query_formula(query) for query in hpa.queries) or "-" for hpa in hpas]),
        Column("RATIO FLOOR", [_ratio_floor(hpa) for hpa in hpas]),
        Column("BOUNDS", [_bounds(hpa) for hpa in hpas]),
        Column("AGE", [_age(hpa) for hpa in hpas], ">"),
        Column("REASONS", [",".join(hpa.reasons) for hpa in hpas], style="why"),
        Column("DETAILS", ["; ".join(cause.detail for cause in hpa.causes if cause.detail) for hpa in hpas]),
    )


def _minima(hpas: Sequence[HpaEntry]) -> Column:
    cells = [f"{hpa.minimum}{' (dry)' if hpa.dry_run and hpa.minimum.moves else ''}" for hpa in hpas]
    return Column("MIN", cells, styles=[_STYLES[hpa.action] for hpa in hpas])


def deciding(hpa: HpaEntry) -> QueryEntry | None:
    """Return the query that asks for the most replicas, the first if none has an answer, ``None`` without queries."""
    answered = [query for query in hpa.queries if query.replicas is not None]
    return max(answered, key=lambda query: query.replicas or 0, default=next(iter(hpa.queries), None))


def query_formula(query: QueryEntry) -> str:
    """Return the formula of one query with its numbers."""
    return term_text(QueryTerm(query.value, query.per_replica, query.delta))


def _formula(hpa: HpaEntry) -> str:
    query = deciding(hpa)
    if query is None:
        return "-"
    more = len(hpa.queries) - 1
    return query_formula(query) + (f" +{more}" if more else "")


def _ratio_floor(hpa: HpaEntry) -> str:
    """Return how the ratio floor is computed, ``-`` if the ratio is no limit."""
    by_ratio = None if hpa.floors is None else hpa.floors.by_ratio
    if hpa.replicas is None or by_ratio is None or (hpa.ratio or 0.0) >= 1:
        return "-"
    return f"{hpa.replicas} - {hpa.replicas - by_ratio} = {by_ratio}"


def _age(hpa: HpaEntry) -> str:
    """Return for how long the data are known to be complete, ``-`` if no query looks back."""
    seconds = hpa.data_age_seconds
    if seconds is None:
        return "-"
    return f"{seconds}s" if seconds < _EXACT else format_duration(seconds)


def _value(hpa: HpaEntry) -> str:
    query = deciding(hpa)
    return "-" if query is None or query.value is None else short(query.value)


def _values(hpa: HpaEntry) -> str:
    return ",".join("?" if query.value is None else short(query.value) for query in hpa.queries) or "-"


def _bounds(hpa: HpaEntry) -> str:
    if hpa.floors is None:
        return "-"
    upper = "" if hpa.floors.upper_bound is None else str(hpa.floors.upper_bound)
    return f"{hpa.floors.lower_bound}..{upper}"


def _summary(plan: FloorPlan) -> Iterator[TextLine]:
    """Return the plan in numbers, the most frequent reasons, and warnings."""
    summary = plan.summary
    actions = summary.actions
    others = f"   {summary.not_enabled:,} more not enabled" if summary.not_enabled else ""
    numbers = (
        f"{summary.hpas:,}: {actions.raised:,} to raise, {actions.lowered:,} to lower, {actions.held:,} held, "
        f"{actions.skipped:,} skipped{others}"
    )
    yield figure("HPAs", numbers, "bold")
    yield figure("Floor", f"{summary.floor.now:,} → {counted(summary.floor.after, 'pod')}")
    if summary.maxima_raised:
        yield figure("Maximum", f"maxReplicas goes up on {counted(summary.maxima_raised, 'HPA')}")
    if summary.drops.held:
        yield figure("Breaker", dropping(summary.drops), "why")
    widest = max((len(each.reason) for each in summary.reasons), default=0)
    for number, each in enumerate(summary.reasons[:REASONS_SHOWN]):
        line = f"{each.reason.ljust(widest)}  {counted(each.hpas, 'HPA')}"
        yield figure("Reasons" if number == 0 else "", line, "why")
    yield from map(warning, plan.warnings)


def dropping(drops: Drops) -> str:
    """Return how many of the counted queries have dropped, and the consequence."""
    queries = f"of {counted(drops.counted, 'query', 'queries')}"
    dropped = counted(drops.dropping, f"{queries} drops", f"{queries} drop")
    return f"{dropped} at once: nothing is lowered (CorrelatedDrop)"


def explanation_printout(document: FloorExplanation) -> Printout:
    """Return everything about each HPA, one after the other."""
    blocks = [block for detail in document.hpas for block in _explained(detail)]
    return Printout(document.heading, blocks=blocks, end=tuple(map(warning, document.warnings)))


def _explained(detail: HpaDetail) -> Iterator[Block]:
    hpa = detail.hpa
    yield Block(f"HPA {hpa.key}", tuple(_about(detail)))
    yield Block("Why", tuple(_causes(hpa)))
    if hpa.floors is not None:
        yield Block("Queries", tuple(_queries(hpa)))
        yield Block("Floors", [_row(label, text) for label, text in floor_rows(hpa)])
    # "Remembered" below has the content of the state annotation.
    written = [TextLine(f"{key}: {text}") for key, text in detail.annotations.items() if not key.endswith(f"-{STATE}")]
    yield Block("Annotations", written or [TextLine("none")])
    remembered = [_row(label, text) for label, text in _remembered(detail) if text is not None]
    yield Block("Remembered", remembered or [TextLine("nothing: the controller never set this floor")])


def _row(label: str, text: str, style: Style = "") -> TextLine:
    return TextLine(text, label.ljust(14), style=style)


def _about(detail: HpaDetail) -> Iterator[TextLine]:
    hpa = detail.hpa
    stays = "" if hpa.minimum.moves else "stays "
    decision = f"{_WORDS[hpa.action]}: minReplicas {stays}{hpa.minimum}{' (dry run)' if hpa.dry_run else ''}"
    replicas = "replicas unknown" if hpa.replicas is None else counted(hpa.replicas, "replica")
    own = "" if hpa.own_maximum == hpa.maximum.now else f" (its user's: {hpa.own_maximum})"
    style: Style = "go" if hpa.action == "raise" else "bar" if hpa.action == "lower" else "why"
    yield _row("Decision", decision, style)
    yield _row("Target", f"{hpa.target}, {replicas}")
    yield _row("maxReplicas", f"{hpa.maximum}{own}")
    for number, text in enumerate(detail.conditions):
        yield _row("Conditions" if number == 0 else "", text)


def _causes(hpa: HpaEntry) -> Iterator[TextLine]:
    for cause in hpa.causes:
        yield TextLine(cause.detail, word=cause.reason)
        if cause.fix:
            yield TextLine(f"→ {cause.fix}", indent=4)


def _queries(hpa: HpaEntry) -> Iterator[TextLine]:
    if not hpa.queries:
        yield TextLine("none: the floor follows the ratio and the lower bound alone")
    for query in hpa.queries:
        yield TextLine(query.query)
        note = "" if query.outcome == "answered" else f"   {query.outcome}"
        back = f", looks back {format_duration(query.looks_back_seconds)} ({_RANGE_FROM[query.range_from]})"
        yield TextLine(f"  {query_formula(query)}   server {query.server}{back}{note}")
    if hpa.queries and hpa.lowering_window_seconds:
        yield TextLine(f"lowered to what all answers of {format_duration(hpa.lowering_window_seconds)} want")
    elif hpa.queries:
        yield TextLine("lowered by one answer: there is no lowering window")
    if hpa.data_age_seconds is not None:
        yield TextLine(f"data known to be whole for {_age(hpa)}")


def floor_rows(hpa: HpaEntry) -> Iterator[tuple[str, str]]:
    """Return every floor that was compared, each with its label."""
    floors = hpa.floors
    if floors is None:
        return
    unlimited = f"{floors.by_ratio} (a ratio of {hpa.ratio:g} is no limit)" if (hpa.ratio or 0) >= 1 else ""
    rows = (
        ("by query", floors.by_query),
        ("by ratio", (unlimited or _ratio_floor(hpa)) if floors.by_ratio is not None else None),
        ("by forecast", floors.by_forecast),
        ("missing data", floors.missing_data),
        ("lower bound", floors.lower_bound),
        ("upper bound", floors.upper_bound),
        ("wanted", floors.wanted),
        ("in the window", floors.window),
        ("step up to", floors.raise_to),
    )
    yield from ((label, str(value)) for label, value in rows if value is not None)


def _remembered(detail: HpaDetail) -> Iterator[tuple[str, str | None]]:
    known = detail.remembered
    yield "judged", known.evaluated_at
    yield "answered", None if known.answered_since is None else f"without a gap since {known.answered_since}"
    yield "failures", f"{known.failures} in a row" if known.failures else None
    yield "incident", known.incident_at
    yield "rolling out", None if known.rolling_since is None else f"since {known.rolling_since}"
    yield "set back", f"{counted(known.set_back_by_others, 'time')} by others" if known.set_back_by_others else None
    yield "last change", None if known.target is None else f"to {known.target}, {known.reason}"
    yield "last set", _pair(known.applied_minimum, known.applied_maximum)
    yield "user's own", _pair(known.original_minimum, known.original_maximum)
    yield "on opt-out", None if detail.gives_back is None else _pair(*detail.gives_back)
    for number, text in enumerate(detail.managers):
        yield "set by" if number == 0 else "", text


def _pair(minimum: int | None, maximum: int | None) -> str | None:
    if minimum is None and maximum is None:
        return None
    return f"minReplicas {minimum}, maxReplicas {maximum}"


def release_printout(release: FloorRelease) -> Printout:
    """Return a row for each HPA, with the bounds left to others, and the outcomes in numbers."""
    hpas = release.hpas
    grid = Grid(
        (
            Column("HPA", [f"{hpa.namespace}/{hpa.name}" for hpa in hpas]),
            Column("MIN", [f"{hpa.minimum}" for hpa in hpas]),
            Column("MAX", [f"{hpa.maximum}" for hpa in hpas]),
            Column("OUTCOME", [hpa.outcome for hpa in hpas], styles=[_OUTCOMES[hpa.outcome] for hpa in hpas]),
            Column("WHY", [hpa.detail or hpa.left for hpa in hpas], style="why"),
        )
    )
    outcomes = Counter(hpa.outcome for hpa in hpas)
    numbers = ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(outcomes.items())) or "none"
    total = TextLine(f"{counted(len(hpas), 'HPA')}: {numbers}", indent=0)
    return Printout(grid=grid, end=(total, *(TextLine(text, style="bad", indent=0) for text in release.warnings)))


def replay_text(found: Replay) -> str:
    """Return the result of a replay in one line."""
    unended = f", {found.unended} of them cut off" if found.unended else ""
    cycles = found.cycles + found.unended
    decisions, in_all = counted(found.decisions, "decision"), counted(cycles, "cycle")
    return f"{decisions} of {in_all}{unended}: {counted(len(found.differences), 'difference')}"


def plan_rows(plan: FloorPlan) -> list[tuple[str, HpaEntry]]:
    """Return each HPA, with its name as ``explain`` takes it if a bound would move."""
    return [(hpa.key if hpa.action in ("raise", "lower") else "", hpa) for hpa in plan.hpas]
