"""What annotations would have done over a recorded past: the controller's own judgement, cycle by cycle. Pure.

Each variant of the annotations goes through the same past: :func:`~hpa_scaler.judge.judge.judge_one` judges, the floor
counts at once, and :class:`~tightship.objects.horizontal.ReplicaLoop` scales as the HPA controller does. Beside each
variant goes a floor that knows the true traffic and waits for nothing: the difference in replicas is the cost of
caution.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.parsing import name_of, prefix_of, prefixes
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
from hpa_scaler.annotations.spec import ENABLE, FloorSpec, Rollout, Rules
from hpa_scaler.documents.document import FloorHead
from hpa_scaler.judge.decision import GUARDS, DropState, FloorDecision, Guard, Subject, guard_of
from hpa_scaler.judge.floors import QueryTerm, unguarded
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.judge.judge import asked_of, judge_cycle
from hpa_scaler.process.forecasts import Forecasts
from hpa_scaler.prometheus.samples import NO_TRACE, Trace
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.horizontal import SYNC, TOLERANCE, ReplicaLoop
from tightship.objects.money import NodePrice
from tightship.objects.reasons import Reason
from tightship.objects.times import rfc3339

EVERY = "*"
"""The target of a change to all HPAs."""
WEEK = 168.0
HOUR = 3600.0
_AWAY = Failure(Reason.CONNECTION_FAILED, "the server is away")

Kind = Literal["today", "none", "changed"]
"""The annotations as they are, no floor at all, or changed annotations."""
Span: TypeAlias = tuple[float, float]
"""A stretch of time: its begin and its end, in seconds since 1970."""


class AnnotationChange(Struct, frozen=True):
    """One annotation, by its name after ``hpa-scaler-``, of one HPA or of :data:`EVERY`; *text* ``None`` removes it."""

    target: str
    name: str
    text: str | None


class Variant(Struct, frozen=True):
    """A set of annotations to try, called *name* in the output."""

    name: str
    kind: Kind
    changes: tuple[AnnotationChange, ...] = ()

    def hpa(self, hpa: HorizontalPodAutoscaler, prefix: str) -> HorizontalPodAutoscaler:
        """Return *hpa* with this variant's annotations."""
        notes = {} if self.kind == "none" else dict(hpa.annotations)
        for change in self.changes:
            if change.target in (EVERY, hpa.key):
                own = prefix_of(notes, prefix)
                notes[f"{own}/{ENABLE}"] = "true"
                for each in prefixes(prefix):
                    notes.pop(name_of(each, change.name), None)
                if change.text is not None:
                    notes[name_of(own, change.name)] = change.text
        return msgspec.structs.replace(hpa, annotations=notes)


TODAY, NO_FLOOR = Variant("today", "today"), Variant("no floor", "none")


class RecordedHpa(Struct, frozen=True):
    """One HPA and its recorded past.

    *hpa* has the user's own bounds. *traces* are the answers to queries. *wanted* is what the HPA's own metrics asked
    for, in replicas; without it, *share* is the part of the traffic's need that the HPA aims at. *yardstick* says how
    much traffic one replica carries. *floor* is the recorded ``minReplicas``; *proposed* says that the query is ours.
    """

    hpa: HorizontalPodAutoscaler
    traces: Mapping[Query, Trace]
    yardstick: FloorSpec
    wanted: Trace | None = None
    replicas: Trace | None = None
    share: float = 1.0
    floor: Trace | None = None
    proposed: bool = False

    def need(self, now: float) -> float | None:
        """Return the replicas that the true traffic needs at *now*, not rounded; ``None`` if that is unknown."""
        needs = []
        for query in self.yardstick.queries:
            trace = self.traces.get(value_query(query))
            value = None if trace is None else trace.value(now)
            if value is None:
                return None
            needs.append(max(0.0, value) / query.per_replica)
        return max(needs, default=None)

    def asks_for(self, need: float | None, now: float) -> float | None:
        """Return the replicas that the HPA itself wants at *now*, when the traffic needs *need*."""
        if self.wanted is not None:
            return self.wanted.value(now)
        return None if need is None else need * self.share


class BacktestSetup(Struct, frozen=True):
    """What all variants share.

    A cycle takes *interval* seconds, a new replica is ready after *start* seconds. In *outages* no query has an answer;
    after each, the server has lost its data. *forecasts* makes the source of an HPA's forecasts. *drawn* is how many
    HPAs keep every number, for pictures. *defaults* are the configuration's, by the names of annotations.
    """

    rules: Rules
    begin: float
    end: float
    interval: float = 75.0
    start: float = 60.0
    outages: tuple[Span, ...] = ()
    forecasts: Callable[[], Forecasts] = Forecasts
    drawn: int = 40
    defaults: Mapping[str, str] = {}

    @property
    def count(self) -> int:
        """How many cycles there are."""
        return max(0, math.ceil((self.end - self.begin) / self.interval))

    def cycles(self) -> Iterator[float]:
        """Yield the time of each cycle."""
        return (self.begin + number * self.interval for number in range(self.count))


class _Scaled:
    """Replicas under an HPA: how many there are, and how many are ready."""

    def __init__(self, hpa: HorizontalPodAutoscaler, replicas: int, start: float) -> None:
        self.count = self.ready = replicas
        self._loop = ReplicaLoop(hpa.scale_up, hpa.scale_down)
        self._start = start
        self._rising: list[tuple[float, int]] = []

    def run(self, now: float, seconds: float, wanted: float | None, minimum: int, maximum: int) -> float:
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


class Replay:
    """One HPA under one variant, from cycle to cycle, and what came of it, in seconds and replica-seconds.

    *short* is how long each ready replica had to carry more than a tenth above the yardstick, *shorts* has the times of
    it; *unknown* is how long the traffic was unknown. *worst* is the time, the need and the ready replicas of the worst
    moment. *caution* is what each guard cost. *floors* has a number for each cycle, *running* too if it is kept.
    """

    def __init__(self, past: RecordedHpa, variant: Variant, setup: BacktestSetup, *, keep: bool) -> None:
        self.past, self.variant, self.setup = past, variant, setup
        hpa = variant.hpa(past.hpa, setup.rules.prefix)
        asked = asked_of(hpa, setup.rules.prefix, setup.defaults)
        self.spec = asked if isinstance(asked, FloorSpec) else None
        first = past.replicas.value(setup.begin) if past.replicas is not None else None
        begun = max(hpa.min_replicas, min(hpa.max_replicas, math.ceil(first or past.need(setup.begin) or 0)))
        self._scaled, self._free = _Scaled(hpa, begun, setup.start), _Scaled(hpa, begun, setup.start)
        self._hpa = msgspec.structs.replace(hpa, deletion=None, conditions=(), managers=(), current_replicas=begun)
        self._history = FloorHistory()
        self._free_floor = hpa.min_replicas
        self._guard: Guard = "other"
        self._keep = keep
        self._forecasts = setup.forecasts()
        keys = forecast_keys(self.spec) if self.spec is not None else ()
        self._forecasts.want(keys)
        for key in keys:
            self._forecasts.know(key, past.traces.get(key[0], NO_TRACE), setup.begin)
        self.floor = self.replicas = self.short = self.unknown = 0.0
        self.worst: tuple[float, float, int] | None = None
        self.changes = 0
        self.caution: dict[Guard, float] = dict.fromkeys(GUARDS, 0.0)
        self.reasons: Counter[str] = Counter()
        self.floors, self.running = array("i"), array("i")
        self.shorts: list[float] = []

    def subject(self, outcomes: Mapping[Query, Outcome], now: float) -> Subject:
        """Return what the controller would judge at *now*."""
        return Subject(
            hpa=msgspec.structs.replace(self._hpa, current_replicas=self._scaled.count),
            asked=self.spec,
            outcomes=outcomes,
            rollout=Rollout("steady"),
            history=self._history,
            expected=tuple(self._forecasts.expected(now).values()),
            rules=self.setup.rules,
            now=now,
        )

    def follow(self, decision: FloorDecision | None, now: float, need: float | None) -> None:
        """Set the bounds of *decision*, and let the HPA scale until the next cycle."""
        seconds, wanted = self.setup.interval, self.past.asks_for(need, now)
        if decision is not None:
            self._forecasts.learn((decision,))
            changes = decision.changes and not decision.dry_run
            self._history = decision.written if changes else decision.history
            if changes:
                self.changes += 1
                self._hpa = msgspec.structs.replace(
                    self._hpa, min_replicas=decision.target, max_replicas=decision.target_maximum
                )
            self.reasons[decision.reason] += 1
        ready = self._scaled.settle(now)
        if need is None:
            self.unknown += seconds
        elif need > ready * (1 + TOLERANCE):
            self.short += seconds
            self.shorts.append(now)
        if need and (self.worst is None or need * self.worst[2] > self.worst[1] * ready):
            self.worst = now, need, ready
        floor = self._hpa.min_replicas
        spent = self._scaled.run(now, seconds, wanted, floor, self._hpa.max_replicas)
        self.floor += floor * seconds
        self.replicas += spent
        if decision is not None and decision.inputs is not None:
            self._compare(decision, now, need, wanted, spent)
        self.floors.append(floor)
        if self._keep:
            self.running.append(self._scaled.count)

    def _compare(
        self, decision: FloorDecision, now: float, need: float | None, wanted: float | None, spent: float
    ) -> None:
        """Run beside it the floor that knows the truth; while nobody knows the truth, nothing is compared."""
        assert decision.inputs is not None
        assert self.spec is not None
        free, most = self._free, self._hpa.max_replicas
        if need is None:
            self._free_floor = self._hpa.min_replicas
            free.run(now, self.setup.interval, wanted, self._free_floor, most)
            return
        terms = tuple(
            QueryTerm(trace.value(now), query.per_replica, query.delta)
            for query in self.spec.queries
            if (trace := self.past.traces.get(value_query(query))) is not None
        )
        inputs = msgspec.structs.replace(decision.inputs, terms=terms)
        self._free_floor = unguarded(inputs, self._free_floor, free.count)
        extra = spent - free.run(now, self.setup.interval, wanted, self._free_floor, max(most, self._free_floor))
        ahead = decision.inputs.forecast is not None and Reason.FOLLOWS_FORECAST in decision.reasons
        if ahead or (decision.solution is not None and decision.target > decision.solution.wanted):
            self._guard = guard_of(decision)
        if extra > 0:
            self.caution[self._guard] += extra

    @property
    def held(self) -> list[HeldFloor]:
        """How the floor fared in each stretch of two cycles or more without a usable answer to one of the queries, and
        for as long after as the queries look back.
        """
        past, setup, spec = self.past, self.setup, self.past.yardstick
        traces = [past.traces[key] for each in spec.queries if (key := value_query(each)) in past.traces]
        gaps = {gap for trace in traces for gap in trace.gaps(2 * setup.interval) if setup.begin <= gap[0] < setup.end}
        longest = max((range_of(query, spec, math.inf) for query in spec.queries), default=0.0)
        times = list(setup.cycles())
        found = []
        for begin, end in sorted({*setup.outages, *gaps}):
            first = bisect_right(times, begin) - 1
            during = self.floors[max(0, first) : bisect_right(times, end + longest)]
            if first >= 0 and len(during):
                lowest = min(during)
                found.append(HeldFloor(rfc3339(begin), rfc3339(end), during[0], lowest, lowest >= during[0]))
        return found

    def moment(self) -> WorstMoment | None:
        """Return the worst moment."""
        if self.worst is None:
            return None
        at, need, ready = self.worst
        return WorstMoment(rfc3339(at), round(need, 1), ready)

    def week(self) -> float:
        """Return the replica-hours of a week."""
        return self.replicas / max(self.setup.count * self.setup.interval, 1.0) * WEEK


class _Answers:
    """The answers that all variants of one HPA get in one cycle."""

    def __init__(self, past: RecordedHpa, specs: Iterable[FloorSpec], setup: BacktestSetup) -> None:
        self._setup = setup
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
            if spec.hold is not None and (asked := hold_query(spec.hold)) in past.traces:
                self._values[asked] = past.traces[asked], 0.0

    def at(self, now: float) -> Mapping[Query, Outcome]:
        """Return the outcomes of the queries at *now*."""
        if any(begin <= now < end for begin, end in self._setup.outages):
            return dict.fromkeys(self._values, _AWAY)
        since = min((now - end for _, end in self._setup.outages if end <= now), default=math.inf)
        found: dict[Query, Outcome] = {key: QueryAnswer(1, min(since, each)) for key, each in self._ages.items()}
        for query, (trace, seconds) in self._values.items():
            answer = trace.answer(now)
            # A server that begins anew answers with a rate over its whole range, of the little that it has seen.
            if answer.highest is not None and since < seconds:
                answer = msgspec.structs.replace(answer, highest=answer.highest * since / seconds)
            found[query] = answer
        return found


Found: TypeAlias = Sequence[Sequence[Replay]]
"""The replays of each HPA, one for each variant."""


def backtest(
    pasts: Sequence[RecordedHpa],
    variants: Sequence[Variant],
    setup: BacktestSetup,
    progress: Callable[[float], None] = lambda _: None,
) -> Found:
    """Return what each of *variants* would have done to each of *pasts*: a list for each HPA, in the given orders.

    *progress* gets the part that is done, from 0 to 1.
    """
    replays = [
        [Replay(past, variant, setup, keep=number < setup.drawn) for variant in variants]
        for number, past in enumerate(pasts)
    ]
    answers = [_Answers(row[0].past, [each.spec for each in row if each.spec is not None], setup) for row in replays]
    drops = [DropState() for _ in variants]
    for number, now in enumerate(setup.cycles()):
        if number % max(1, setup.count // 100) == 0:
            progress(number / setup.count)
        outcomes = [each.at(now) for each in answers]
        needs = [past.need(now) for past in pasts]
        for place in range(len(variants)):
            judged = [each for each, row in enumerate(replays) if row[place].spec is not None]
            subjects = [replays[each][place].subject(outcomes[each], now) for each in judged]
            cycle = judge_cycle(subjects, drops[place], setup.rules, now)
            drops[place] = cycle.verdict.state
            decisions = dict(zip(judged, cycle.decisions, strict=True))
            for each, row in enumerate(replays):
                row[place].follow(decisions.get(each), now, needs[each])
    return replays


class WorstMoment(Struct, frozen=True, rename="camel"):
    """The moment with the fewest *ready* replicas for the replicas that the traffic *needed*."""

    at: str
    needed: float
    ready: int


class HeldFloor(Struct, frozen=True, rename="camel"):
    """A stretch without answers: the floor *before*, the *lowest* until the range was full, whether it held."""

    begin: str
    end: str
    before: int
    lowest: int
    held: bool


class Caution(Struct, frozen=True, rename="camel"):
    """What guards cost, in replica-hours beyond a floor that knows the true traffic and waits for nothing."""

    outage: float
    cold_source: float
    lowering_window: float
    forecast: float
    other: float

    @property
    def total(self) -> float:
        """All guards together."""
        return self.outage + self.cold_source + self.lowering_window + self.forecast + self.other


class VariantEntry(Struct, frozen=True, rename="camel"):
    """One set of annotations; replica-hours are rounded to a tenth, minutes to whole minutes.

    *short_minutes* is how long each ready replica had to carry more than a tenth above what one carries;
    *short_by_hour* has these minutes by the hour of the day (UTC). *unknown_minutes* had no known traffic. *micros* is
    the cost of the replica-hours, in millionths of a currency.
    """

    name: str
    kind: Kind
    changes: Mapping[str, str | None]
    floor_hours: float
    replica_hours: float
    replica_hours_a_week: float
    micros: int | None
    short_minutes: int | None
    short_by_hour: tuple[int, ...]
    unknown_minutes: int
    worst: WorstMoment | None
    lowest_floor: int
    highest_floor: int
    floor_changes: int
    held: tuple[HeldFloor, ...]
    caution: Caution
    caution_share: float
    reasons: Mapping[str, int]


class HpaBacktest(Struct, frozen=True, rename="camel"):
    """One HPA under every set. *wanted_from* says where the replicas that the HPA itself wants come from."""

    namespace: str
    name: str
    target: str
    queries: tuple[str, ...]
    per_replica: tuple[float, ...]
    wanted_from: str
    sets: tuple[VariantEntry, ...]

    @property
    def key(self) -> str:
        """The HPA as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class FloorBacktest(FloorHead, frozen=True, rename="camel", tag_field="kind", tag="FloorBacktest"):
    """Sets of annotations side by side over a recorded past."""

    begin: str
    end: str
    interval_seconds: int
    pod_start_seconds: int
    currency: str | None
    price: str | None
    sets: tuple[str, ...]
    hpas: tuple[HpaBacktest, ...]
    warnings: tuple[str, ...]


def backtest_document(
    head: FloorHead,
    setup: BacktestSetup,
    found: Found,
    price: NodePrice | None,
    warnings: Sequence[str],
) -> FloorBacktest:
    """Return the document of the replays *found*, at the *price* of a replica-hour."""
    return FloorBacktest(
        **msgspec.structs.asdict(head),
        begin=rfc3339(setup.begin),
        end=rfc3339(setup.end),
        interval_seconds=round(setup.interval),
        pod_start_seconds=round(setup.start),
        currency=None if price is None else price.currency,
        price=None if price is None else price.basis,
        sets=tuple(each.variant.name for each in found[0]) if found else (),
        hpas=tuple(_hpa(row[0].past, row, price) for row in found),
        warnings=tuple(warnings),
    )


def _hpa(past: RecordedHpa, row: Sequence[Replay], price: NodePrice | None) -> HpaBacktest:
    queries = past.yardstick.queries
    wanted = "its own metrics" if past.wanted is not None else "its traffic" if queries else "nothing that is known"
    return HpaBacktest(
        namespace=past.hpa.namespace,
        name=past.hpa.name,
        target=str(past.hpa.target),
        queries=tuple(query.text for query in queries),
        per_replica=tuple(query.per_replica for query in queries),
        wanted_from=wanted,
        sets=tuple(_entry(replay, price) for replay in row),
    )


def _entry(replay: Replay, price: NodePrice | None) -> VariantEntry:
    hours, variant = replay.replicas / HOUR, replay.variant
    caution = Caution(*(round(seconds / HOUR, 1) for seconds in replay.caution.values()))
    free = hours - sum(replay.caution.values()) / HOUR
    by_hour = Counter(int(at // HOUR) % 24 for at in replay.shorts)
    return VariantEntry(
        name=variant.name,
        kind=variant.kind,
        changes={each.name: each.text for each in variant.changes if each.target in (EVERY, replay.past.hpa.key)},
        floor_hours=round(replay.floor / HOUR, 1),
        replica_hours=round(hours, 1),
        replica_hours_a_week=round(replay.week(), 1),
        micros=None if price is None else round(hours * price.hourly),
        short_minutes=round(replay.short / 60),
        short_by_hour=tuple(round(by_hour[hour] * replay.setup.interval / 60) for hour in range(24)),
        unknown_minutes=round(replay.unknown / 60),
        worst=replay.moment(),
        lowest_floor=min(replay.floors),
        highest_floor=max(replay.floors),
        floor_changes=replay.changes,
        held=tuple(replay.held),
        caution=caution,
        caution_share=round(caution.total / free, 4) if free > 0 else 0.0,
        reasons=dict(sorted(replay.reasons.items(), key=lambda item: (-item[1], item[0]))),
    )
