"""The judgement of the HPAs of one cycle: from everything known of each to its floor, with every reason. Pure.

The running controller, ``plan`` and ``explain`` all judge here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.parsing import enabled, parse_spec, state_name, states_of
from hpa_scaler.annotations.queries import (
    NOT_FORECAST,
    NOTHING_FORECAST,
    Expectations,
    Expected,
    ForecastKey,
    Outcomes,
    Query,
    firing,
    forecast_keys,
    hold_query,
    outcome_of,
    queries_of,
    read,
)
from hpa_scaler.annotations.spec import FloorSpec, Rollout, Rules
from hpa_scaler.judge.decision import (
    Action,
    Asked,
    DropCount,
    DropState,
    DropVerdict,
    FloorDecision,
    Subject,
    compared,
    count_drops,
    judge_drops,
    with_fleet_verdict,
)
from hpa_scaler.judge.floors import (
    FloorInputs,
    Limit,
    Solution,
    bounds_moved,
    by_query,
    caps,
    follows,
    forecast_floor,
    lowering_limits,
    solve,
)
from hpa_scaler.judge.history import (
    FloorHistory,
    State,
    advised,
    caught_up,
    handed_over,
    highest_floor,
    moment,
    of_outage,
    of_wait,
    resumed,
    unwatched,
    when_released,
    window_detail,
    with_floor,
)
from hpa_scaler.judge.ownership import contested, not_ours, ownership, state_of
from hpa_scaler.judge.rises import Wanted, judge_rise, judge_spike, limits, maximum_limit, rise_ceiling, time_to_know
from hpa_scaler.judge.sources import evidence_queries, longest_look, lowering_window, outage, own, read_sources
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.reasons import Reason, Refusal, refusals
from tightship.objects.times import format_duration
from tightship.rules.windows import window_checks


class Cycle(Struct, frozen=True):
    """A cycle: the decision about every HPA, the count of drops, and the verdict on them."""

    decisions: tuple[FloorDecision, ...]
    count: DropCount
    verdict: DropVerdict


def asked_of(hpa: HorizontalPodAutoscaler, prefix: str, defaults: Mapping[str, str] = {}) -> Asked:
    """Return the parsed annotations of *hpa*, ``None`` if *hpa* is not opted in."""
    return parse_spec(hpa.annotations, prefix, defaults) if enabled(hpa.annotations, prefix) else None


def questions(asked: Iterable[Asked], rules: Rules) -> tuple[Query, ...]:
    """Return every query of a cycle, each once."""
    found: dict[Query, None] = {}
    for each in asked:
        if isinstance(each, FloorSpec):
            found |= dict.fromkeys(queries_of(each, rules.age_query, rules.longest_guard))
            found |= dict.fromkeys(evidence_queries(each, rules))
    return tuple(found)


def forecasts_of(asked: Iterable[Asked]) -> tuple[ForecastKey, ...]:
    """Return every forecast of a cycle, each once."""
    found = (key for each in asked if isinstance(each, FloorSpec) for key in forecast_keys(each))
    return tuple(dict.fromkeys(found))


def wants_rollout(asked: Asked) -> bool:
    """Whether the judgement needs the rollout state of the target."""
    return isinstance(asked, FloorSpec) and asked.rollout_check


def subject_of(
    hpa: HorizontalPodAutoscaler,
    asked: Asked,
    *,
    outcomes: Outcomes,
    rollout: Rollout | None,
    rules: Rules,
    now: float,
    forecasts: Expectations = NOTHING_FORECAST,
    remembered: FloorHistory | None = None,
) -> Subject:
    """Return the inputs of the judgement of *hpa*, with its own part of *outcomes* and *forecasts*.

    *remembered* is the running controller's history of the HPA; ``None``: read the HPA's annotation.
    """
    state, problem = (State(), "") if remembered is not None else state_of(hpa, rules.prefix)
    return Subject(
        hpa=hpa,
        asked=asked,
        outcomes=_own(asked, outcomes, rules),
        rollout=rollout,
        history=handed_over(state.history, now, rules.handover_gap) if remembered is None else remembered,
        state_problem=problem,
        expected=_expected(asked, forecasts),
        rules=rules,
        now=now,
    )


def _expected(asked: Asked, forecasts: Expectations) -> tuple[Expected, ...]:
    keys = forecast_keys(asked) if isinstance(asked, FloorSpec) else ()
    return tuple(forecasts.get(key, NOT_FORECAST) for key in keys)


def _own(asked: Asked, outcomes: Outcomes, rules: Rules) -> Outcomes:
    if not isinstance(asked, FloorSpec):
        return {}
    return {query: own(asked, query, outcomes[query]) for query in questions([asked], rules) if query in outcomes}


def judge_cycle(subjects: Iterable[Subject], before: DropState, rules: Rules, now: float) -> Cycle:
    """Judge all HPAs; *before* is the state of drops after the previous cycle."""
    alone = [judge_one(subject) for subject in subjects]
    count = count_drops(alone, rules)
    verdict = judge_drops(count, before, rules, now)
    return Cycle(tuple(with_fleet_verdict(each, verdict) for each in alone), count, verdict)


def judge_one(subject: Subject, drops: DropVerdict = DropVerdict()) -> FloorDecision:
    """Return the judgement of one HPA: the floor to write if any, every reason, and the history to keep.

    *drops* is the verdict on the HPA's cycle. Equal arguments always get equal judgements. The controller, ``plan``,
    ``explain``, ``replay`` and the reaction to somebody's change all judge here.
    """
    try:
        alone = _alone(subject)
    except Exception as error:  # a bug with one HPA must not cost all others their judgement
        why = f"judging this HPA failed: {type(error).__name__}: {' '.join(str(error).split())}"
        alone = _skipped(subject, Refusal(Reason.UNREADABLE, detail=why, fix="report this bug"))
    return with_fleet_verdict(alone, drops)


def _alone(subject: Subject) -> FloorDecision:
    refusal = not_ours(subject.hpa, subject.asked, subject.now)
    if refusal is not None or not isinstance(subject.asked, FloorSpec):
        return _skipped(subject, refusal or Refusal(Reason.NOT_ENABLED))
    return _FloorJudgement(subject, subject.asked).decision()


def _skipped(subject: Subject, cause: Refusal) -> FloorDecision:
    return FloorDecision(
        subject=subject,
        target=subject.hpa.min_replicas,
        target_maximum=subject.hpa.max_replicas,
        causes=(advised(cause),),
        history=unwatched(subject.history, outage=outage(subject.asked, subject.outcomes)),
    )


class _FloorJudgement:
    """Judges one HPA step by step: first all observations, then the wanted floor, then the decision."""

    def __init__(self, subject: Subject, spec: FloorSpec) -> None:
        hpa, rules, now = subject.hpa, subject.rules, subject.now
        self._subject = subject
        self._hpa = hpa
        self._spec = spec
        self._rules = rules
        self._now = now
        self._state_problem = subject.state_problem
        self._replicas = known_replicas(hpa)
        self._window = lowering_window(spec, rules)
        known = caught_up(subject.history, now)
        known = resumed(known, hpa.min_replicas, now, gap=rules.longest_gap, window=self._window)
        self._own = ownership(hpa, known, rules, now, window=self._window)
        self._evaluated = self._own.history.evaluated
        self._sources = read_sources(
            spec,
            subject.outcomes,
            self._own.history,
            rules=rules,
            minimum=hpa.min_replicas,
            replicas=self._replicas,
            now=now,
        )
        self._history = msgspec.structs.replace(self._sources.history, evaluated=now, seen=hpa.min_replicas)
        self._incident = self._check_incident(subject.outcomes)
        self._rolling = self._check_rollout(subject.rollout)
        self._forecast = forecast_floor(spec, subject.expected)

    def decision(self) -> FloorDecision:
        inputs = self._inputs()
        inputs = msgspec.structs.replace(inputs, forecast=self._within_reach(self._forecast.floor, inputs))
        alone = solve(inputs)
        wanted = alone.wanted
        holds = self._holds() if wanted < inputs.minimum else []
        rise = self._check_rise(inputs, alone.query)
        steps = [*rise, *self._steps()] if wanted > inputs.minimum else []
        fight = contested(self._hpa, self._history, self._rules, self._now, wanted)
        self._note(inputs, alone.query)
        answered, earlier, self._history = compared(
            self._history, self._spec, inputs, alone.query, rules=self._rules, now=self._now
        )
        inputs = msgspec.structs.replace(
            inputs,
            held=bool(holds) or not self._sources.allow_lower or fight is not None,
            window=highest_floor(self._history.floors, self._now, self._window),
            raise_to=inputs.minimum if fight is not None else min((limit for limit, _ in steps), default=None),
        )
        solution = solve(inputs)
        maximum = inputs.maximum if fight is not None else solution.maximum
        lowered = solution.target < inputs.minimum
        action: Action = "lower" if lowered else "raise" if solution.target > inputs.minimum else "hold"
        return FloorDecision(
            subject=self._subject,
            target=solution.target,
            target_maximum=maximum,
            inputs=inputs,
            causes=self._causes(action, inputs, solution, ([] if fight is None else [fight], holds, steps), maximum),
            age=self._sources.age,
            answers=self._sources.answers,
            history=self._history,
            answered=answered,
            earlier=earlier,
        )

    def _inputs(self) -> FloorInputs:
        """Return the inputs that do not depend on the wanted floor."""
        spec, hpa = self._spec, self._hpa
        lower = self._rules.lower_bound if spec.lowest is None else spec.lowest
        return FloorInputs(
            minimum=hpa.min_replicas,
            maximum=hpa.max_replicas,
            own_maximum=self._own.maximum,
            replicas=self._replicas,
            terms=self._sources.terms,
            substitute=self._sources.substitute,
            ratio=spec.ratio,
            lower_bound=lower if spec.highest is None else min(lower, spec.highest),
            upper_bound=spec.highest,
            # The API server accepts 0 only for an HPA that is meant to scale to zero.
            lowest=0 if 0 in (hpa.min_replicas, self._own.minimum) else 1,
            raises_maximum=spec.max_replicas == "raise",
            band=spec.deadband.of(hpa.min_replicas),
        )

    def _check_incident(self, outcomes: Outcomes) -> Refusal | None:
        """Return why an incident holds the floor, and record the time of the incident."""
        hold, now = self._spec.hold, self._now
        if hold is None:
            return None
        outcome = outcome_of(hold_query(hold), outcomes)
        fires = firing(outcome)
        if fires:
            self._history = msgspec.structs.replace(self._history, incident=now)
            return Refusal(Reason.INCIDENT_HOLD, detail="the hold query reports an incident")
        if fires is None:
            [failure] = read(outcome, "max", "the hold query").causes[:1]
            return Refusal(Reason.HOLD_QUERY_FAILED, detail=f"{failure.reason}: {failure.detail}", fix=failure.fix)
        last = self._history.incident
        if last is None or now - last >= hold.cool_down:
            return None
        ago, left = format_duration(now - last), format_duration(last + hold.cool_down - now)
        return Refusal(Reason.INCIDENT_HOLD, detail=f"the incident ended {ago} ago; {left} of the cool-down left")

    def _check_rollout(self, rollout: Rollout | None) -> Refusal | None:
        """Return why a rollout holds the floor, and record the start of the rollout."""
        if not self._spec.rollout_check or (rollout is not None and rollout.state == "steady"):
            self._history = msgspec.structs.replace(self._history, rolling=None)
            return None
        since = self._now if self._history.rolling is None else self._history.rolling
        self._history = msgspec.structs.replace(self._history, rolling=since)
        detail = f"{self._hpa.target} was not looked at" if rollout is None else rollout.detail
        if self._now - since >= self._rules.rollout_limit:
            detail += f", for more than {format_duration(self._rules.rollout_limit)}: this no longer holds the floor"
            return Refusal(Reason.ROLLOUT_EXPIRED, detail=detail)
        known = rollout is not None and rollout.state == "rolling"
        detail += f"; this holds the floor until {moment(since + self._rules.rollout_limit, self._now)} at the latest"
        return Refusal(Reason.ROLLOUT_IN_PROGRESS if known else Reason.ROLLOUT_UNKNOWN, detail=detail)

    def _holds(self) -> list[Refusal]:
        """Return everything except missing data that keeps the floor from being lowered."""
        spec, now = self._spec, self._now
        found = [cause for cause in (*self._sources.holds, self._incident) if cause is not None]
        if self._rolling is not None and self._rolling.reason is not Reason.ROLLOUT_EXPIRED:
            found.append(self._rolling)
        if self._replicas is None:
            detail = f"the HPA's status does not say how many replicas {self._hpa.target} has"
            found.append(Refusal(Reason.REPLICAS_UNKNOWN, detail=detail))
        if spec.paused_down.active(now):
            detail = "lowering is paused" + spec.paused_down.left(now)
            found.append(Refusal(Reason.PAUSED_SCALE_DOWN, detail=detail))
        return [*found, *refusals(window_checks([self._rules.windows, spec.lower_during], now), "")]

    def _steps(self) -> list[Limit]:
        """Return everything that limits how far one step may raise the floor."""
        spec, hpa = self._spec, self._hpa
        running = max(hpa.min_replicas, self._replicas or 0)
        found = limits(spec, hpa.scale_up, self._history.raises, running, self._now)
        if spec.paused_up.active(self._now):
            word = Refusal(Reason.PAUSED_SCALE_UP, detail="raising is paused" + spec.paused_up.left(self._now))
            found.append((hpa.min_replicas, word))
        return found

    def _check_rise(self, inputs: FloorInputs, query: int | None) -> list[Limit]:
        """Return the limits that hold for every HPA, and record the floor that the queries want."""
        wanted = Wanted(
            floor=query if inputs.terms else None,
            whole=self._sources.allow_lower,
            granted=max(self._own.minimum, inputs.lower_bound, inputs.substitute or 0),
            minimum=inputs.minimum,
            running=self._replicas or 0,
        )
        wait = time_to_know(self._spec, self._rules)
        rise = judge_rise(wanted, self._history, self._rules, self._now, wait=wait)
        self._history = rise.history
        top = maximum_limit(inputs.own_maximum, wanted, self._rules)
        return top if rise.limit is None else [rise.limit, *top]

    def _within_reach(self, floor: int | None, inputs: FloorInputs) -> int | None:
        """Return the *floor* of a forecast, within the user's own maximum and the limit of a sudden rise."""
        if floor is None:
            return None
        granted = max(self._own.minimum, inputs.lower_bound, inputs.substitute or 0)
        ceiling = rise_ceiling(self._history, self._rules, granted, self._now)
        return min(floor, inputs.own_maximum, ceiling)

    def _note(self, inputs: FloorInputs, query: int | None) -> None:
        """Record the wanted floor, or at least the present one if data are missing or may be low.

        The ratio is left out: it limits a step from the present replicas, and no window should keep its result.
        Otherwise a floor would come down by one such step for each window. A forecast that is over is left out too.
        """
        wanted = by_query(inputs, query)
        known = self._sources.allow_lower and not self._sources.holds
        floor = wanted if known else max(wanted, inputs.minimum)
        if known and inputs.terms and self._own.changed is None:
            window, before = self._window, self._evaluated
            self._history = judge_spike(self._history, self._spec, wanted, self._now, evaluated=before, window=window)
        else:
            self._history = msgspec.structs.replace(self._history, last=None, spike=None)
        floors = with_floor(self._history.floors, floor, self._now, self._window)
        self._history = msgspec.structs.replace(self._history, floors=floors)

    def _causes(
        self,
        action: Action,
        inputs: FloorInputs,
        solution: Solution,
        found: tuple[list[Refusal], list[Refusal], list[Limit]],
        maximum: int,
    ) -> tuple[Refusal, ...]:
        fight, holds, steps = found
        why = [follows(inputs, solution, self._sources.causes, self._forecast.detail)]
        unknown = [cause for cause in self._sources.causes if cause not in why]
        if action == "hold" and solution.query is None and solution.wanted < inputs.minimum:
            why = []  # what the floor would be without an answer explains nothing
        until = window_detail(self._history, solution.wanted, self._now, self._window)
        stays = self._spec.missing.rule == "hold" and solution.wanted < inputs.minimum
        cold = longest_look(self._spec, self._rules) if stays and self._rules.cold_guard else 0.0
        released = when_released(self._sources.whole or self._now, self._window)
        after = when_released(self._now + cold, self._window) if stays else None
        stops = [
            *of_outage(unknown, self._history, after, self._now),
            *(
                of_wait(each, self._history, solution.wanted, released, self._now)
                for each in (*holds, *lowering_limits(inputs, solution, self._window, until))
            ),
            *(cause for limit, cause in sorted(steps, key=lambda each: each[0]) if limit < solution.wanted),
        ]
        remarks = (self._own.changed, self._sources.largest, inactive(self._hpa), self._forecast.unused)
        notes = [each for each in remarks if each is not None]
        if self._state_problem:
            name = (*states_of(self._hpa.annotations, self._rules.prefix), state_name(self._rules.prefix))[0]
            fix = f"the memory starts empty; remove the annotation {name}"
            notes.append(Refusal(Reason.STATE_UNREADABLE, detail=self._state_problem, fix=fix))
        if self._rolling is not None and self._rolling.reason is Reason.ROLLOUT_EXPIRED:
            notes.append(self._rolling)
        if self._spec.dry_run and (solution.target, maximum) != (inputs.minimum, inputs.maximum):
            detail = f"the controller would set {solution.target}, were it not for the annotation dry-run"
            notes.append(Refusal(Reason.DRY_RUN, detail=detail))
        ordered = [*fight, *stops, *why] if action == "hold" else [*why, *stops]
        return tuple(map(advised, (*ordered, *caps(inputs, solution), *bounds_moved(inputs, maximum), *notes)))


def known_replicas(hpa: HorizontalPodAutoscaler) -> int | None:
    """Return the present replicas, ``None`` if the HPA controller can't read the scale and the status is outdated."""
    able = hpa.condition("AbleToScale")
    if able is not None and able.status == "False" and able.reason == "FailedGetScale":
        return None
    return hpa.current_replicas


_INACTIVE: Mapping[str, str] = {
    "FailedGetScale": "correct scaleTargetRef: the target is not there, or Kubernetes can't read its scale",
    "FailedUpdateScale": "see why Kubernetes can't write the scale of the target",
    "AmbiguousSelector": "keep one HPA for these pods",
    "InvalidSelector": "give the target a selector that selects its pods",
    "FailedGetResourceMetric": "see that metrics-server runs, and that each container requests the resource",
    "FailedGetContainerResourceMetric": "see that metrics-server runs, and that the container is there and requests it",
    "FailedGetPodsMetric": "see that the adapter of custom.metrics.k8s.io serves the metric",
    "FailedGetObjectMetric": "see that the adapter of custom.metrics.k8s.io serves the metric",
    "FailedGetExternalMetric": "see that the adapter of external.metrics.k8s.io serves the metric",
    "InvalidMetricSourceType": "correct the type of the metric in the HPA",
}
"""What to do by the reason of an HPA's condition (kubernetes/pkg/controller/podautoscaler/horizontal.go)."""


def inactive(hpa: HorizontalPodAutoscaler) -> Refusal | None:
    """Return why Kubernetes does not scale by *hpa*, ``None`` as far as its conditions say that it does."""
    for kind in ("AbleToScale", "ScalingActive"):
        found = hpa.condition(kind)
        if found is None or found.status != "False" or found.reason == "ScalingDisabled":
            continue
        if kind == "ScalingActive" or found.reason in _INACTIVE:
            what = f"{kind} is False ({found.reason or 'no reason given'})"
            detail = f"Kubernetes does not scale {hpa.target} by this HPA's metrics: {what}"
            fix = _INACTIVE.get(found.reason, "see the message of the condition: kubectl describe hpa")
            return Refusal(Reason.HPA_INACTIVE, detail=detail, fix=fix)
    return None
