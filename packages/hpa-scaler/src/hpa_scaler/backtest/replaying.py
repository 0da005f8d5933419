"""What annotations would have done over a recorded past: the controller's own judgement, cycle by cycle. Pure.

Each variant of the annotations lives through the same past: :func:`~hpa_scaler.judge.judge.judge_one` judges, the
floor counts at once, and ``ReplicaLoop`` scales as the HPA controller does. Beside each
variant goes a floor that knows the true traffic and waits for nothing: the difference in replicas is the cost of
caution.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from hpa_scaler.annotations.queries import (
    Failure,
    Outcome,
    Query,
    QueryAnswer,
    age_query,
    forecast_keys,
    hold_query,
    operand_queries,
    range_of,
    value_query,
)
from hpa_scaler.annotations.spec import FloorSpec, Rollout
from hpa_scaler.backtest.variants import BacktestResult, BacktestSetup, Held, HpaPast, Span, Variant, Worst
from hpa_scaler.judge.cycle import asked_of, judge_cycle
from hpa_scaler.judge.decision import (
    Asked,
    DropState,
    FloorDecision,
    Guard,
    Subject,
    guard_of,
)
from hpa_scaler.judge.floors import QueryTerm, unguarded
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.prometheus.samples import NO_TRACE, Trace
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.horizontal import SYNC, TOLERANCE, ReplicaLoop
from tightship.objects.reasons import Reason

_STEADY = Rollout("steady")
_AWAY = Failure(Reason.CONNECTION_FAILED, "the server is away")


class _Scaled:
    """Replicas under an HPA: how many there are, and how many are ready."""

    __slots__ = ("_loop", "_rising", "_start", "count", "ready")

    def __init__(self, hpa: HorizontalPodAutoscaler, replicas: int, start: float) -> None:
        self.count = self.ready = replicas
        self._loop = ReplicaLoop(hpa.scale_up, hpa.scale_down)
        self._start = start
        self._rising: list[tuple[float, int]] = []

    def live(self, now: float, seconds: float, wanted: float | None, minimum: int, maximum: int) -> float:
        """Let the HPA look for *seconds* from *now* on; return the replica-seconds."""
        spent = 0.0
        at, end = now, now + seconds
        last = now + SYNC * (math.ceil((seconds - 1e-6) / SYNC) - 1)
        while at < end - 1e-6:
            before = self.count
            ratio = None if wanted is None else wanted / before if before else 1.0
            after = self._loop.look(at, before, ratio, minimum, maximum)
            if after != before:
                self._turn(at, after)
            elif ratio is not None and after and at < last and self._loop.stays(last):
                return spent + after * (end - at)
            spent += after * min(SYNC, end - at)
            at += SYNC
        return spent

    def settle(self, now: float) -> int:
        """Return how many replicas are ready at *now*."""
        while self._rising and self._rising[0][0] <= now:
            self.ready = min(self.count, self._rising.pop(0)[1])
        return self.ready

    def _turn(self, at: float, after: int) -> None:
        self.settle(at)
        if after > self.count:
            self._rising.append((at + self._start, after))
        else:
            self.ready = min(self.ready, after)
            self._rising = [(when, min(count, after)) for when, count in self._rising if min(count, after) > self.ready]
        self.count = after


class _HpaReplay:
    """One HPA under one variant, from cycle to cycle."""

    def __init__(self, past: HpaPast, variant: Variant, setup: BacktestSetup, *, keep: bool) -> None:
        self.past, self.variant, self.setup = past, variant, setup
        hpa = variant.hpa(past.hpa, setup.rules.prefix)
        self.asked: Asked = asked_of(hpa, setup.rules.prefix)
        first = past.replicas.value(setup.begin) if past.replicas is not None else None
        begun = max(hpa.min_replicas, min(hpa.max_replicas, math.ceil(first or past.need(setup.begin) or 0)))
        self._scaled, self._free = _Scaled(hpa, begun, setup.start), _Scaled(hpa, begun, setup.start)
        self.hpa = msgspec.structs.replace(hpa, deletion=None, conditions=(), managers=(), current_replicas=begun)
        self.history = FloorHistory()
        self._free_floor = hpa.min_replicas
        self._guard: Guard = "other"
        self._keep = keep
        self.result = BacktestResult(key=hpa.key, variant=variant)
        self._forecasts = setup.forecasts()
        keys = forecast_keys(self.asked) if isinstance(self.asked, FloorSpec) else ()
        self._forecasts.want(keys)
        for key in keys:
            self._forecasts.know(key, past.traces.get(key[0], NO_TRACE), setup.begin)

    def subject(self, outcomes: Mapping[Query, Outcome], now: float) -> Subject:
        """Return what the controller would judge at *now*."""
        return Subject(
            hpa=msgspec.structs.replace(self.hpa, current_replicas=self._scaled.count),
            asked=self.asked,
            outcomes=outcomes,
            rollout=_STEADY,
            history=self.history,
            expected=tuple(self._forecasts.expected(now).values()),
            rules=self.setup.rules,
            now=now,
        )

    def follow(self, decision: FloorDecision | None, now: float, need: float | None, wanted: float | None) -> None:
        """Set the bounds of *decision*, and let the HPA live until the next cycle."""
        result, seconds = self.result, self.setup.interval
        if decision is not None:
            self._forecasts.learn((decision,))
            changes = decision.changes and not decision.dry_run
            self.history = decision.written if changes else decision.history
            if changes:
                result.changes += 1
                self.hpa = msgspec.structs.replace(
                    self.hpa, min_replicas=decision.target, max_replicas=decision.target_maximum
                )
            result.reasons[decision.reason] += 1
        floor, most = self.hpa.min_replicas, self.hpa.max_replicas
        self._judge_need(need, now)
        spent = self._scaled.live(now, seconds, wanted, floor, most)
        result.floor += floor * seconds
        result.replicas += spent
        result.lowest, result.highest = min(result.lowest, floor), max(result.highest, floor)
        if decision is not None and decision.inputs is not None:
            self._judge_caution(decision, now, need, wanted, spent)
        result.floors.append(floor)
        if self._keep:
            result.running.append(self._scaled.count)

    def _judge_need(self, need: float | None, now: float) -> None:
        result, seconds = self.result, self.setup.interval
        ready = self._scaled.settle(now)
        if need is None:
            result.unknown += seconds
            return
        if need > ready * (1 + TOLERANCE):
            result.short += seconds
            result.shorts.append(now)
        if need > 0 and (result.worst is None or need * result.worst.ready > result.worst.need * ready):
            result.worst = Worst(now, need, ready)

    def _judge_caution(
        self, decision: FloorDecision, now: float, need: float | None, wanted: float | None, spent: float
    ) -> None:
        """Let the floor live that knows the truth; while nobody knows the truth, nothing is compared."""
        assert decision.inputs is not None
        free, most = self._free, self.hpa.max_replicas
        if need is None:
            free.live(now, self.setup.interval, wanted, self.hpa.min_replicas, most)
            self._free_floor = self.hpa.min_replicas
            return
        assert isinstance(self.asked, FloorSpec)
        terms = tuple(
            QueryTerm(trace.value(now), query.per_replica, query.delta)
            for query in self.asked.queries
            if (trace := self.past.traces.get(value_query(query))) is not None
        )
        inputs = msgspec.structs.replace(decision.inputs, terms=terms)
        self._free_floor = unguarded(inputs, self._free_floor, free.count)
        extra = spent - free.live(now, self.setup.interval, wanted, self._free_floor, max(most, self._free_floor))
        ahead = decision.inputs.forecast is not None and Reason.FOLLOWS_FORECAST in decision.reasons
        if ahead or (decision.solution is not None and decision.target > decision.solution.wanted):
            self._guard = guard_of(decision)
        if extra > 0:
            self.result.caution[self._guard] += extra


class _Answers:
    """The answers that all variants of one HPA get in one cycle."""

    def __init__(self, past: HpaPast, specs: Iterable[FloorSpec], setup: BacktestSetup) -> None:
        self._world = setup
        self._values: dict[Query, tuple[Trace, float]] = {}
        self._ages: dict[Query, float] = {}
        rules = setup.rules
        for spec in specs:
            for query in spec.queries:
                seconds = range_of(query, spec, rules.longest_guard)
                for asked in (value_query(query), *(each for _, each in operand_queries(query))):
                    if asked in past.traces:
                        self._values[asked] = past.traces[asked], range_of(query, spec, math.inf)
                if rules.age_query and seconds > 0:
                    self._ages[age_query(rules.age_query, query, seconds)] = seconds
            if spec.hold is not None and hold_query(spec.hold) in past.traces:
                self._values[hold_query(spec.hold)] = past.traces[hold_query(spec.hold)], 0.0
        self._whole: dict[Query, Outcome] = {query: QueryAnswer(1, each) for query, each in self._ages.items()}

    def at(self, now: float) -> Mapping[Query, Outcome]:
        """Return the outcomes of the queries at *now*."""
        setup = self._world
        if any(now in each for each in setup.outages):
            return dict.fromkeys(self._values, _AWAY)
        found = {query: trace.answer(now) for query, (trace, _) in self._values.items()}
        since = setup.since(now)
        if math.isinf(since):
            return self._whole | found
        # A server that begins anew answers with a rate over its whole range, of the little that it has seen.
        found = {query: _partly(each, since, self._values[query][1]) for query, each in found.items()}
        return {query: QueryAnswer(1, min(since, each)) for query, each in self._ages.items()} | found


def _partly(answer: QueryAnswer, since: float, seconds: float) -> QueryAnswer:
    if answer.highest is None or since >= seconds:
        return answer
    return msgspec.structs.replace(answer, highest=answer.highest * since / seconds)


def backtest(
    pasts: Sequence[HpaPast],
    variants: Sequence[Variant],
    setup: BacktestSetup,
    tell: Callable[[float], None] | None = None,
) -> list[list[BacktestResult]]:
    """Return what each of *variants* would have done to each of *pasts*: a list for each HPA, in the given orders.

    *tell* hears the part that is done, from 0 to 1.
    """
    replays = [
        [_HpaReplay(past, variant, setup, keep=number < setup.drawn) for variant in variants]
        for number, past in enumerate(pasts)
    ]
    answers = [
        _Answers(past, [each.asked for each in row if isinstance(each.asked, FloorSpec)], setup)
        for past, row in zip(pasts, replays, strict=True)
    ]
    judging = [
        [number for number, row in enumerate(replays) if isinstance(row[place].asked, FloorSpec)]
        for place in range(len(variants))
    ]
    drops = [DropState() for _ in variants]
    for cycle_number, now in enumerate(setup.cycles()):
        if tell is not None and cycle_number % max(1, setup.count // 100) == 0:
            tell(cycle_number / setup.count)
        found = [each.at(now) for each in answers]
        needs = [past.need(now) for past in pasts]
        wanted = [_wanted(past, need, now) for past, need in zip(pasts, needs, strict=True)]
        for place in range(len(variants)):
            subjects = [replays[each][place].subject(found[each], now) for each in judging[place]]
            cycle = judge_cycle(subjects, drops[place], setup.rules, now)
            drops[place] = cycle.verdict.state
            made = dict(zip(judging[place], cycle.decisions, strict=True))
            for each, row in enumerate(replays):
                row[place].follow(made.get(each), now, needs[each], wanted[each])
    for past, row in zip(pasts, replays, strict=True):
        for replay in row:
            replay.result.held = list(_holds(past, replay.result, setup))
    return [[replay.result for replay in row] for row in replays]


def _wanted(past: HpaPast, need: float | None, now: float) -> float | None:
    if past.wanted is not None:
        return past.wanted.value(now)
    return None if need is None else need * past.share


def silences(past: HpaPast, setup: BacktestSetup) -> list[Span]:
    """Return the stretches of at least two cycles in which no query of *past* had a usable answer, or one had none."""
    least = 2 * setup.interval
    queries = past.yardstick.queries if past.yardstick is not None else ()
    traces = [past.traces[value_query(query)] for query in queries if value_query(query) in past.traces]
    gaps = [Span(*gap) for trace in traces for gap in trace.gaps(least)]
    return sorted({*setup.outages, *(each for each in gaps if setup.begin <= each.begin < setup.end)}, key=_begins)


def _begins(span: Span) -> float:
    return span.begin


def _holds(past: HpaPast, result: BacktestResult, setup: BacktestSetup) -> Iterator[Held]:
    """Yield how the floor fared in each silence, and for as long after as the queries look back."""
    if not result.floors or past.yardstick is None:
        return
    times = list(setup.cycles())
    longest = max((range_of(query, past.yardstick, math.inf) for query in past.yardstick.queries), default=0.0)
    for span in silences(past, setup):
        begin, end = bisect_right(times, span.begin) - 1, bisect_right(times, span.end + longest)
        during = result.floors[max(0, begin) : end]
        if begin >= 0 and len(during):
            yield Held(span, during[0], min(during))
