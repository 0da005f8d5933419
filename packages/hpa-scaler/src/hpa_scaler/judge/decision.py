"""The input and the output of one HPA's judgement, and the breaker for correlated drops. Pure.

If most queries fall together, the metrics have failed rather than the traffic. The breaker compares the floors that the
queries want with the floors that they wanted lately, as far as they look back. The breaker ignores spikes, and the
floors in force, which steps and holds keep higher. So a fleet that gets quieter over hours, or has long been quieter
than its floors, never trips the breaker. A wanted floor counts up to ``maxReplicas`` only: otherwise the end of bad,
high data would look like a fall. HPAs with the same queries count as one, because one answer moves all of them.

While many have fallen, the breaker keeps the floors wanted before. Once the fall has lasted long enough to be believed,
the breaker compares with the floors wanted then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.queries import Expectations, Expected, Outcomes, Query, forecast_keys, value_query
from hpa_scaler.annotations.spec import FloorSpec, Problems, Rollout, Rules
from hpa_scaler.judge.floors import FloorInputs, QueryTerm, Solution, solve, unguarded
from hpa_scaler.judge.history import Floor, FloorHistory, highest_floor, with_floor
from hpa_scaler.judge.rises import longest_period, time_to_know, with_raise
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.counting import counted
from tightship.objects.reasons import QUERY_FAILURES, Reason, Refusal
from tightship.objects.times import format_duration

Action = Literal["raise", "lower", "hold", "skip"]

Asked: TypeAlias = FloorSpec | Problems | None
"""The parsed annotations of an HPA; ``None`` if the HPA is not opted in."""


class Subject(Struct, frozen=True, kw_only=True):
    """Everything that a judgement of one HPA depends on.

    *rollout* matters only if the HPA asks for that check (``None``: unknown). *state_problem* says why the HPA's
    history is unreadable, and is empty if it is readable. *expected* has the forecast of each query, if the HPA
    asks for forecasts. *now* is in seconds since 1970.
    """

    hpa: HorizontalPodAutoscaler
    asked: Asked
    outcomes: Outcomes = {}
    rollout: Rollout | None = None
    history: FloorHistory = FloorHistory()
    state_problem: str = ""
    expected: tuple[Expected, ...] = ()
    rules: Rules = Rules()
    now: float

    @property
    def forecasts(self) -> Expectations:
        """The forecasts of the HPA's queries."""
        keys = forecast_keys(self.asked) if isinstance(self.asked, FloorSpec) else ()
        return dict(zip(keys, self.expected, strict=False))


class FloorDecision(Struct, frozen=True, kw_only=True):
    """The decision about one HPA: the *subject* that was judged, the new bounds, and the reasons.

    *target* and *target_maximum* are the new bounds; they equal the present ones if nothing changes. *inputs* are
    ``None`` for a skipped HPA. *causes* are all reasons, the most important first. *age* is for how many seconds the
    data are known to be complete. *answers* says for each query whether it was answered, or the reason without a usable
    answer. *history* is what to remember, unless the bounds are set.

    *answered* is the floor that the HPA's queries want together, ``None`` if one of them has no answer; *earlier* is
    the highest floor that they wanted lately.
    """

    subject: Subject
    target: int
    target_maximum: int
    inputs: FloorInputs | None = None
    causes: tuple[Refusal, ...] = ()
    age: float | None = None
    answers: tuple[str, ...] = ()
    history: FloorHistory = FloorHistory()
    answered: int | None = None
    earlier: int | None = None

    @property
    def namespace(self) -> str:
        """The HPA's namespace."""
        return self.subject.hpa.namespace

    @property
    def name(self) -> str:
        """The HPA's name."""
        return self.subject.hpa.name

    @property
    def uid(self) -> str:
        """The HPA's uid."""
        return self.subject.hpa.uid

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.subject.hpa.key

    @property
    def minimum(self) -> int:
        """The present ``minReplicas``."""
        return self.subject.hpa.min_replicas

    @property
    def maximum(self) -> int:
        """The present ``maxReplicas``."""
        return self.subject.hpa.max_replicas

    @property
    def action(self) -> Action:
        """What happens to the floor; a skipped HPA was not judged."""
        if self.inputs is None:
            return "skip"
        return "lower" if self.target < self.minimum else "raise" if self.target > self.minimum else "hold"

    @property
    def changes(self) -> bool:
        """Whether the decision sets anything."""
        return (self.target, self.target_maximum) != (self.minimum, self.maximum)

    @property
    def dry_run(self) -> bool:
        """Whether the HPA asks that the decision be shown only."""
        return self.inputs is not None and isinstance(self.subject.asked, FloorSpec) and self.subject.asked.dry_run

    @property
    def solution(self) -> Solution | None:
        """The floors that follow from the inputs."""
        return None if self.inputs is None else solve(self.inputs)

    @property
    def reason(self) -> Reason:
        """The most important reason."""
        return self.causes[0].reason if self.causes else Reason.FOLLOWS_QUERY

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All reasons, each once."""
        return tuple(dict.fromkeys(cause.reason for cause in self.causes))

    @property
    def unanswered(self) -> bool:
        """Whether a query had no usable answer."""
        return not QUERY_FAILURES.isdisjoint(self.reasons)

    @property
    def terms(self) -> tuple[QueryTerm, ...]:
        """The queries' parts of the formula; empty for a skipped HPA."""
        return () if self.inputs is None else self.inputs.terms

    @property
    def pending(self) -> bool:
        """Whether a restart would lose something: what a lowering waits for, or a bound that is the user's again."""
        if self.inputs is None:
            return False
        waits = self.action == "hold" and solve(self.inputs).wanted < self.minimum
        taken = Reason.CHANGED_BY_OTHERS in self.reasons and not self.changes
        return taken or (waits and Reason.CONTESTED not in self.reasons)

    @property
    def written(self) -> FloorHistory:
        """The history to remember once the bounds are set."""
        if not self.changes or self.inputs is None or not isinstance(self.subject.asked, FloorSpec):
            return self.history
        history, hpa = self.history, self.subject.hpa
        started = self.target - max(self.minimum, self.inputs.replicas or 0)
        longest = longest_period(self.subject.asked, hpa.scale_up)
        return msgspec.structs.replace(
            history,
            raises=with_raise(history.raises, started, self.subject.now, longest),
            original_min=self.minimum if history.original_min is None else history.original_min,
            original_max=self.inputs.own_maximum,
            applied_min=self.target,
            applied_max=self.target_maximum,
            seen=self.target,
        )


Guard = Literal["outage", "cold-source", "lowering-window", "forecast", "other"]
"""What keeps a floor above what its queries want: missing answers, young data, the lowering window, a forecast, or
anything else."""

GUARDS: tuple[Guard, ...] = Guard.__args__  # type: ignore[attr-defined]


def guard_of(decision: FloorDecision) -> Guard:
    """Return the guard that keeps the floor of *decision*; of several, the first of :data:`GUARDS`."""
    reasons = {cause.reason for cause in decision.causes}
    if not QUERY_FAILURES.isdisjoint(reasons):
        return "outage"
    if Reason.COLD_SOURCE in reasons:
        return "cold-source"
    if Reason.FOLLOWS_FORECAST in reasons:
        return "forecast"
    return "lowering-window" if Reason.LOWERING_WINDOW in reasons else "other"


DOUBTS = frozenset({Reason.COLD_SOURCE, Reason.SERIES_SPLIT, Reason.LATE_SAMPLES, Reason.FAILED_SCRAPES})
"""Reasons for which an answer may be too low, so that nothing is learned from it."""


class DropState(Struct, frozen=True):
    """The time since which queries have been falling together, ``None`` while they are not."""

    since: float | None = None


class DropCount(Struct, frozen=True):
    """The drops among *counted* HPAs whose queries all have answers; equal queries count once. *dropping* of them want
    *lost* of *floor* pods less than lately.
    """

    counted: int = 0
    dropping: int = 0
    floor: int = 0
    lost: int = 0


class DropVerdict(Struct, frozen=True):
    """The breaker's verdict on a cycle: why nothing may be lowered (``None``: lowering is allowed), and the next
    *state*.

    *believed*: the drop has lasted so long that the traffic must have fallen.
    """

    cause: Refusal | None = None
    state: DropState = DropState()
    believed: bool = False


def compared(
    history: FloorHistory, spec: FloorSpec, inputs: FloorInputs, query: int | None, *, rules: Rules, now: float
) -> tuple[int | None, int | None, FloorHistory]:
    """Return the floor that the queries want together, the highest that they wanted for long enough lately, and
    *history* with what to compare the next answers with.

    *query* is the floor of the queries alone. Only :func:`with_fleet_verdict` changes these answers again.
    """
    window = 2 * time_to_know(spec, rules)
    falling, hold = history.falling, rules.drop_hold
    if falling is not None and (not hold or now - falling < hold):
        # While many queries have fallen at once, the floors that they wanted before do not expire.
        earlier = max((each.floor for each in history.answers), default=None)
    else:
        earlier = highest_floor(history.answers, now, window)
    if not inputs.terms or any(each.replicas is None for each in inputs.terms):
        return None, earlier, history
    answered = max(query or 0, inputs.lower_bound)
    # Without a known floor, as after a change of leader, the first answer counts.
    answers = history.answers if earlier is not None else with_floor((), answered, now, window)
    return answered, earlier, msgspec.structs.replace(history, answers=answers, falling=None)


def count_drops(decisions: Iterable[FloorDecision], rules: Rules) -> DropCount:
    """Return how many queries want far less than lately."""
    groups: dict[tuple[Query, ...], tuple[int, int]] = {}
    for decision in decisions:
        asked = decision.subject.asked
        if decision.answered is None or not isinstance(asked, FloorSpec):
            continue
        follows = tuple(map(value_query, asked.queries))
        earlier, now = groups.get(follows, (0, 0))
        before = decision.answered if decision.earlier is None else decision.earlier
        most = decision.maximum
        groups[follows] = (earlier + min(before, most), now + min(decision.answered, most))
    dropping = [before - now for before, now in groups.values() if before - now > before * rules.drop_size]
    floor = sum(before for before, _ in groups.values())
    return DropCount(len(groups), len(dropping), floor, sum(dropping))


def judge_drops(count: DropCount, state: DropState, rules: Rules, now: float) -> DropVerdict:
    """Return whether a cycle with *count* may lower anything; *state* is the state after the previous cycle."""
    many = count.dropping > count.counted * rules.drop_share
    large = count.lost > count.floor * rules.drop_floor_share
    if count.counted < rules.drop_count or not (many or large):
        return DropVerdict(None, DropState())
    since = now if state.since is None else state.since
    if rules.drop_hold and now - since >= rules.drop_hold:
        return DropVerdict(None, DropState(), believed=True)
    left = f", for {format_duration(since + rules.drop_hold - now)} at most" if rules.drop_hold else ""
    detail = (
        f"{count.dropping} of {counted(count.counted, 'query', 'queries')} fell at once, "
        f"by {count.lost} of {counted(count.floor, 'pod')}: "
        f"nothing is lowered until they come back{left}"
    )
    return DropVerdict(
        Refusal(Reason.CORRELATED_DROP, detail=detail, fix="look at Prometheus and its targets"), DropState(since)
    )


def with_fleet_verdict(decision: FloorDecision, drops: DropVerdict) -> FloorDecision:
    """Return *decision* with the verdict on the whole cycle applied. Nothing else applies the verdict.

    The history of the HPA's queries is changed to match.
    """
    if drops.cause is not None:
        decision = hold_lowering(decision, drops.cause)
        return _remembering(decision, decision.earlier, drops.state.since)
    return _remembering(decision, decision.answered, None) if drops.believed else decision


def _remembering(decision: FloorDecision, answered: int | None, falling: float | None) -> FloorDecision:
    """Return *decision* with *answered*, if that is known, as the only floor that its queries wanted."""
    if answered is None:
        return decision
    answers = (Floor(int(decision.subject.now), answered),)
    history = msgspec.structs.replace(decision.history, answers=answers, falling=falling)
    return msgspec.structs.replace(decision, history=history)


def hold_lowering(decision: FloorDecision, cause: Refusal) -> FloorDecision:
    """Return *decision* without its lowering, because of *cause*; other decisions are returned unchanged."""
    if decision.action != "lower" or decision.inputs is None:
        return decision
    return msgspec.structs.replace(
        decision,
        target=decision.minimum,
        target_maximum=decision.maximum,
        inputs=msgspec.structs.replace(decision.inputs, held=True),
        causes=(cause, *(each for each in decision.causes if each.reason is not Reason.MAX_TAKEN_BACK)),
    )


class _Free(Struct):
    """The *floor* of one HPA without guards, its last good *terms*, and the *guard* that last kept the real floor."""

    floor: int
    terms: tuple[QueryTerm, ...]
    guard: Guard = "other"


class CautionLedger:
    """Adds up what the guards cost while the controller runs, beside a floor that waits for nothing: replica-seconds.

    Nobody knows how many replicas an HPA would keep under a lower floor, so this is an upper limit: where the replicas
    stand on the floor, all above the lower floor counts. While answers are missing or doubtful, the last good ones
    count. :mod:`~hpa_scaler.backtest.replay` knows what came, and compares replicas.
    """

    def __init__(self) -> None:
        self.spent: dict[Guard, float] = dict.fromkeys(GUARDS, 0.0)
        self.replicas = 0.0
        """The replica-seconds of all judged HPAs."""
        self._free: dict[str, _Free] = {}
        self._last: float | None = None

    def note(self, decisions: Iterable[FloorDecision], now: float, longest: float) -> Mapping[Guard, float]:
        """Add the time since the last cycle, at most *longest* seconds, as *decisions* found it, and return it."""
        seconds = 0.0 if self._last is None else min(longest, max(0.0, now - self._last))
        self._last = now
        added: dict[Guard, float] = dict.fromkeys(GUARDS, 0.0)
        before, self._free = self._free, {}
        for decision in decisions:
            if decision.inputs is None:
                continue
            running = decision.subject.hpa.current_replicas or decision.minimum
            free = before.get(decision.uid) or _Free(decision.minimum, ())
            if running <= decision.minimum:
                added[free.guard] += max(0, running - free.floor) * seconds
            self.replicas += running * seconds
            self._free[decision.uid] = _next(free, decision, running)
        for guard, each in added.items():
            self.spent[guard] += each
        return added


def _next(free: _Free, decision: FloorDecision, running: int) -> _Free:
    assert decision.inputs is not None
    known = all(each.value is not None for each in decision.terms) and DOUBTS.isdisjoint(decision.reasons)
    terms = decision.terms if known else free.terms
    if len(terms) != len(decision.terms):
        return _Free(decision.minimum, ())
    replicas = running if running > decision.minimum else min(running, free.floor)
    # A dry run's floor stays as it is, and costs nothing.
    target = decision.minimum if decision.dry_run else decision.target
    floor = unguarded(msgspec.structs.replace(decision.inputs, terms=terms), free.floor, replicas)
    ahead = Reason.FOLLOWS_FORECAST in decision.reasons
    kept = ahead or (decision.solution is not None and target > decision.solution.wanted)
    return _Free(min(floor, target), terms, guard_of(decision) if kept else free.guard)
