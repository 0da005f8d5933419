"""Builds documents from judgements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

from msgspec import Struct

from hpa_scaler.annotations.parsing import prefixes
from hpa_scaler.annotations.queries import Expected, range_from, range_of
from hpa_scaler.annotations.spec import ENABLE, FloorSpec, Rules
from hpa_scaler.documents.document import (
    Actions,
    BoundMove,
    CauseEntry,
    Drops,
    FloorExplanation,
    FloorPlan,
    Floors,
    FloorSummary,
    HpaDetail,
    HpaEntry,
    QueryEntry,
    ReasonCount,
    RememberedState,
)
from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.judge.floors import formula
from hpa_scaler.judge.history import highest_floor
from hpa_scaler.judge.judge import Cycle
from hpa_scaler.judge.ownership import restoration, state_of
from hpa_scaler.judge.sources import lowering_window
from tightship.documents.document import API_VERSION, Generator, SettingsView, Source
from tightship.objects.counting import some
from tightship.objects.reasons import Reason
from tightship.objects.times import rfc3339

_NAMED = 5
"""How many HPAs a warning names."""
_IMPORTANCE = {reason: number for number, reason in enumerate(Reason)}


class PlanContext(Struct, frozen=True):
    """A cycle, and the values for the head of its document. *not_enabled* HPAs are not opted in."""

    generator: Generator
    source: Source
    settings: SettingsView
    cycle: Cycle
    rules: Rules
    not_enabled: int
    now: float
    warnings: tuple[str, ...] = ()


def plan_document(context: PlanContext, order: Callable[[HpaEntry], object] | None = None) -> FloorPlan:
    """Return the plan as a document, with its HPAs by namespace and name, or in another *order*."""
    entries = [_entry(each) for each in context.cycle.decisions]
    entries.sort(key=lambda entry: (entry.namespace, entry.name))
    if order is not None:
        entries.sort(key=order)  # type: ignore[arg-type]
    return FloorPlan(
        api_version=API_VERSION,
        generator=context.generator,
        source=context.source,
        evaluated_at=rfc3339(context.now),
        settings=context.settings,
        summary=_summary(context, entries),
        hpas=tuple(entries),
        warnings=(*context.warnings, *_lint(context)),
    )


def _lint(context: PlanContext) -> Iterator[str]:
    """Yield what is wrong with the HPAs and their queries, whatever their floors are."""
    targets: dict[tuple[str, str], list[str]] = {}
    found: dict[tuple[Reason, str], dict[str, str]] = {}
    for decision in context.cycle.decisions:
        hpa = decision.subject.hpa
        targets.setdefault((hpa.namespace, str(hpa.target)), []).append(hpa.key)
        for cause in decision.causes:
            if cause.reason in (Reason.HPA_INACTIVE, Reason.LARGEST_OF_SERIES):
                found.setdefault((cause.reason, cause.fix), {})[hpa.key] = cause.detail
    for (namespace, target), keys in sorted(targets.items()):
        if len(keys) > 1:
            yield (
                f"{some(sorted(keys), _NAMED)} have the same target, {target} in {namespace}: Kubernetes scales by "
                "none of several HPAs of the same pods (AmbiguousSelector); keep one"
            )
    for (reason, fix), details in sorted(found.items()):
        same = set(details.values())
        yield f"{some(sorted(details), _NAMED)}: {same.pop() if len(same) == 1 else reason}: {fix}"


def explanation_document(context: PlanContext, keys: Iterable[str]) -> FloorExplanation:
    """Return everything about the HPAs called *keys* (``namespace/name``), in that order."""
    by_key = {each.key: each for each in context.cycle.decisions}
    return FloorExplanation(
        api_version=API_VERSION,
        generator=context.generator,
        source=context.source,
        evaluated_at=rfc3339(context.now),
        settings=context.settings,
        hpas=tuple(_detail(by_key[key]) for key in keys),
        warnings=context.warnings,
    )


def _entry(decision: FloorDecision) -> HpaEntry:
    subject = decision.subject
    inputs, solution = decision.inputs, decision.solution
    floors = None
    if inputs is not None and solution is not None:
        floors = Floors(
            by_query=solution.query if inputs.terms else None,
            by_ratio=solution.by_ratio,
            lower_bound=inputs.lower_bound,
            upper_bound=inputs.upper_bound,
            missing_data=inputs.substitute,
            wanted=solution.wanted,
            window=inputs.window,
            raise_to=inputs.raise_to,
            by_forecast=inputs.forecast,
        )
    return HpaEntry(
        namespace=decision.namespace,
        name=decision.name,
        target=str(subject.hpa.target),
        action=decision.action,
        dry_run=decision.dry_run,
        minimum=BoundMove(decision.minimum, decision.target),
        maximum=BoundMove(decision.maximum, decision.target_maximum),
        own_maximum=decision.maximum if inputs is None else inputs.own_maximum,
        replicas=subject.hpa.current_replicas if inputs is None else inputs.replicas,
        desired_replicas=None if subject.hpa.current_replicas is None else subject.hpa.desired_replicas,
        queries=_queries(decision),
        formula="" if inputs is None else formula(inputs),
        ratio=None if inputs is None else inputs.ratio,
        floors=floors,
        data_age_seconds=None if decision.age is None else int(decision.age),
        lowering_window_seconds=None if (window := _window(decision)) is None else int(window),
        reasons=tuple(reason.value for reason in decision.reasons),
        causes=tuple(CauseEntry(each.reason.value, each.detail, each.fix or None) for each in decision.causes),
    )


def _window(decision: FloorDecision) -> float | None:
    """Return for how many seconds a wanted floor is kept, ``None`` if the annotations are invalid."""
    asked = decision.subject.asked
    return lowering_window(asked, decision.subject.rules) if isinstance(asked, FloorSpec) else None


def _queries(decision: FloorDecision) -> tuple[QueryEntry, ...]:
    asked, rules = decision.subject.asked, decision.subject.rules
    if not isinstance(asked, FloorSpec):
        return ()
    return tuple(
        QueryEntry(
            query=query.text,
            server=str(query.server),
            outcome=outcome,
            value=term.value,
            per_replica=term.per_replica,
            delta=term.delta,
            replicas=term.replicas,
            looks_back_seconds=int(range_of(query, asked, rules.longest_guard)),
            range_from=range_from(query, asked),
            expected=None if expected is None else expected.value,
        )
        for query, term, outcome, expected in zip(
            asked.queries, decision.terms, decision.answers, _expected(decision), strict=False
        )
    )


def _expected(decision: FloorDecision) -> Iterable[Expected | None]:
    return decision.subject.expected or repeat(None)


def _summary(context: PlanContext, entries: list[HpaEntry]) -> FloorSummary:
    actions = Counter(entry.action for entry in entries)
    reasons = Counter(reason for entry in entries for reason in entry.reasons)
    count = context.cycle.count
    return FloorSummary(
        hpas=len(entries),
        not_enabled=context.not_enabled,
        actions=Actions(actions["raise"], actions["lower"], actions["hold"], actions["skip"]),
        floor=BoundMove(sum(entry.minimum.now for entry in entries), sum(entry.minimum.after for entry in entries)),
        maxima_raised=sum(1 for entry in entries if entry.maximum.after > entry.maximum.now),
        drops=Drops(count.counted, count.dropping, count.floor, count.lost, context.cycle.verdict.cause is not None),
        reasons=tuple(
            ReasonCount(reason, number)
            for reason, number in sorted(reasons.items(), key=lambda item: (-item[1], _IMPORTANCE[Reason(item[0])]))
        ),
    )


def _detail(decision: FloorDecision) -> HpaDetail:
    subject = decision.subject
    hpa, rules = subject.hpa, subject.rules
    back = restoration(hpa, subject.history, rules, subject.now)
    starts = tuple(f"{prefix}/{ENABLE}" for prefix in prefixes(rules.prefix))
    return HpaDetail(
        hpa=_entry(decision),
        annotations={key: text for key, text in sorted(hpa.annotations.items()) if key.startswith(starts)},
        conditions=tuple(
            f"{each.type}={each.status}{f' ({each.reason})' if each.reason else ''}" for each in hpa.conditions
        ),
        managers=tuple(
            f"{each.manager} ({each.operation}): "
            + " and ".join(
                name for name, sets in (("minReplicas", each.sets_min), ("maxReplicas", each.sets_max)) if sets
            )
            for each in hpa.managers
        ),
        remembered=_remembered(decision),
        gives_back=None if back is None else (back.minimum, back.maximum),
    )


def _remembered(decision: FloorDecision) -> RememberedState:
    history, window = decision.subject.history, _window(decision) or 0.0
    state, _ = state_of(decision.subject.hpa, decision.subject.rules.prefix)
    return RememberedState(
        target=state.target,
        reason=state.reason or None,
        evaluated_at=_time(history.evaluated),
        answered_since=_time(history.answered),
        failures=history.failures,
        highest_floor_in_window=highest_floor(history.floors, decision.subject.now, window),
        incident_at=_time(history.incident),
        rolling_since=_time(history.rolling),
        set_back_by_others=decision.history.resets,
        original_minimum=history.original_min,
        original_maximum=history.original_max,
        applied_minimum=history.applied_min,
        applied_maximum=history.applied_max,
    )


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)
