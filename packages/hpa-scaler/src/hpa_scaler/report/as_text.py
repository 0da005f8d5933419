"""The explanation of HPAs for people to read."""

from __future__ import annotations

from collections.abc import Iterator

from hpa_scaler.report.as_table import age, query_formula, ratio_floor
from hpa_scaler.report.document import FloorExplanation, HpaDetail, HpaEntry, Remembered
from hpa_scaler.report.summing import heading
from hpa_scaler.spec.annotations import STATE
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.report.summary import warning_lines
from tightship.report.terminal import Terminal, clean

_WORDS = {"raise": "raise the floor", "lower": "lower the floor", "hold": "hold the floor", "skip": "leave it alone"}
_RANGE_FROM = {
    "text": "by its text",
    "query-range": "by query-range",
    "rule": "a rule whose name does not say it",
    "default": "two scrapes",
    "unreadable": "it can't be read",
}
_LABEL = 14


def render_text(document: FloorExplanation, terminal: Terminal) -> str:
    """Return the explanation of each HPA, one after the other."""
    out = heading(document, terminal) if terminal.headers else []
    for detail in document.hpas:
        out += ["", *_hpa(detail, terminal)] if out else list(_hpa(detail, terminal))
    if document.warnings and terminal.headers:
        out += ["", *warning_lines(document.warnings, terminal)]
    return "\n".join(out) + "\n"


def _hpa(detail: HpaDetail, terminal: Terminal) -> Iterator[str]:
    hpa = detail.hpa
    yield terminal.paint(clean(f"HPA {hpa.namespace}/{hpa.name}"), "bold")
    style = {"raise": "go", "lower": "bar"}.get(hpa.action, "why")
    yield from _row("Decision", _decision(hpa, terminal), terminal, style)
    yield from _row("Target", f"{clean(hpa.target)}, {_replicas(hpa)}", terminal)
    yield from _row("maxReplicas", _maximum(hpa, terminal), terminal)
    for number, text in enumerate(detail.conditions):
        yield from _row("Conditions" if number == 0 else "", clean(text), terminal)
    yield from _section("Why", terminal)
    for cause in hpa.causes:
        yield from _cause(cause.reason, cause.detail, cause.fix, terminal)
    if hpa.floors is not None:
        yield from _section("Queries", terminal)
        yield from _queries(hpa, terminal)
        yield from _section("Floors", terminal)
        yield from _floors(hpa, terminal)
    yield from _section("Annotations", terminal)
    # What the state annotation says is told below.
    written = {key: text for key, text in detail.annotations.items() if not key.endswith(f"-{STATE}")}
    for key, text in written.items():
        yield from _folded(clean(f"{key}: {text}"), terminal)
    if not written:
        yield "  none"
    yield from _section("Remembered", terminal)
    yield from _remembered(detail, terminal)


def _decision(hpa: HpaEntry, terminal: Terminal) -> str:
    dry = " (dry run)" if hpa.dry_run else ""
    if hpa.minimum.after == hpa.minimum.now:
        return f"{_WORDS[hpa.action]}: minReplicas stays {hpa.minimum.now}{dry}"
    arrow = terminal.sign("→", "->")
    return f"{_WORDS[hpa.action]}: minReplicas {hpa.minimum.now} {arrow} {hpa.minimum.after}{dry}"


def _replicas(hpa: HpaEntry) -> str:
    return "replicas unknown" if hpa.replicas is None else counted(hpa.replicas, "replica")


def _maximum(hpa: HpaEntry, terminal: Terminal) -> str:
    move = hpa.maximum
    own = "" if hpa.own_maximum == move.now else f" (its user's: {hpa.own_maximum})"
    after = "" if move.after == move.now else f" {terminal.sign('→', '->')} {move.after}"
    return f"{move.now}{after}{own}"


def _queries(hpa: HpaEntry, terminal: Terminal) -> Iterator[str]:
    if not hpa.queries:
        yield from _folded("none: the floor follows the ratio and the lower bound alone", terminal)
    for query in hpa.queries:
        yield from _folded(clean(query.query), terminal)
        told = "" if query.outcome == "answered" else f"   {query.outcome}"
        back = f", looks back {format_duration(query.looks_back_seconds)} ({_RANGE_FROM[query.range_from]})"
        yield from _folded(f"  {query_formula(query)}   server {clean(query.server)}{back}{told}", terminal)
    if hpa.queries and hpa.lowering_window_seconds:
        yield f"  lowered to what all answers of {format_duration(hpa.lowering_window_seconds)} want"
    elif hpa.queries:
        yield "  lowered by one answer: there is no lowering window"
    if hpa.data_age_seconds is not None:
        yield f"  data known to be whole for {age(hpa)}"


def _floors(hpa: HpaEntry, terminal: Terminal) -> Iterator[str]:
    for label, text in floor_rows(hpa):
        yield from _row(label, text, terminal)


def floor_rows(hpa: HpaEntry) -> Iterator[tuple[str, str]]:
    """Return every floor that was compared, each with its label."""
    floors = hpa.floors
    if floors is None:
        return
    unlimited = f"{floors.by_ratio} (a ratio of {hpa.ratio:g} is no limit)" if (hpa.ratio or 0) >= 1 else ""
    rows = (
        ("by query", floors.by_query),
        ("by ratio", (unlimited or ratio_floor(hpa)) if floors.by_ratio is not None else None),
        ("missing data", floors.missing_data),
        ("lower bound", floors.lower_bound),
        ("upper bound", floors.upper_bound),
        ("wanted", floors.wanted),
        ("in the window", floors.window),
        ("step up to", floors.raise_to),
    )
    yield from ((label, str(value)) for label, value in rows if value is not None)


def _remembered(detail: HpaDetail, terminal: Terminal) -> Iterator[str]:
    known = detail.remembered
    rows = (
        ("judged", known.evaluated_at),
        ("answered", None if known.answered_since is None else f"without a gap since {known.answered_since}"),
        ("failures", f"{known.failures} in a row" if known.failures else None),
        ("incident", known.incident_at),
        ("rolling out", None if known.rolling_since is None else f"since {known.rolling_since}"),
        ("set back", f"{counted(known.set_back_by_others, 'time')} by others" if known.set_back_by_others else None),
        ("last change", _change(known)),
        ("last set", _pair(known.applied_minimum, known.applied_maximum)),
        ("user's own", _pair(known.original_minimum, known.original_maximum)),
        ("on opt-out", None if detail.gives_back is None else _pair(*detail.gives_back)),
        *(("set by" if number == 0 else "", text) for number, text in enumerate(detail.managers)),
    )
    some = False
    for label, text in rows:
        if text is not None:
            some = True
            yield from _row(label, clean(text), terminal)
    if not some:
        yield "  nothing: the controller never set this floor"


def _change(known: Remembered) -> str | None:
    return None if known.target is None else f"to {known.target}, {known.reason}"


def _pair(minimum: int | None, maximum: int | None) -> str | None:
    if minimum is None and maximum is None:
        return None
    return f"minReplicas {minimum}, maxReplicas {maximum}"


def _section(title: str, terminal: Terminal) -> Iterator[str]:
    yield ""
    yield terminal.paint(title, "bold")


def _cause(reason: str, detail: str, fix: str | None, terminal: Terminal) -> Iterator[str]:
    first, *rest = terminal.fold(f"{reason} {clean(detail)}".rstrip(), "  ")
    yield "  " + terminal.paint(reason, "why") + first.removeprefix(reason)
    yield from ("  " + line for line in rest)
    if fix:
        yield from _folded(f"{terminal.sign('→', '->')} {clean(fix)}", terminal, "    ")


def _row(label: str, text: str, terminal: Terminal, style: str = "") -> Iterator[str]:
    indent = " " * (2 + _LABEL)
    first, *rest = terminal.fold(text, indent)
    yield f"  {label.ljust(_LABEL)}{terminal.paint(first, style)}"
    yield from (indent + terminal.paint(line, style) for line in rest)


def _folded(text: str, terminal: Terminal, indent: str = "  ") -> Iterator[str]:
    yield from (indent + line for line in terminal.fold(text, indent))


__all__ = ["floor_rows", "render_text"]
