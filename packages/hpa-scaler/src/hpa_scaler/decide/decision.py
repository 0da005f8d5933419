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

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from hpa_scaler.decide.floors import FloorInputs, QueryTerm, Solution, solve
from hpa_scaler.decide.history import Floor, FloorHistory
from hpa_scaler.spec.queries import Expectations, Expected, Outcomes, Query, forecast_keys
from hpa_scaler.spec.spec import FloorSpec, Problems, Rollout, Rules
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.objects import HorizontalPodAutoscaler
from tightship.core.reasons import QUERY_FAILURES, Reason, Refusal

Action = Literal["raise", "lower", "hold", "skip"]

Asked: TypeAlias = FloorSpec | Problems | None
"""The parsed annotations of an HPA; ``None`` if the HPA is not opted in."""


class FloorDecision(Struct, frozen=True, kw_only=True):
    """The decision for one HPA, and its reasons.

    *target* and *target_maximum* are the new bounds; they equal the present ones if nothing changes. *inputs* and
    *solution* are ``None`` for a skipped HPA. *causes* are all reasons, the most important first. *age* is for how many
    seconds the data are known to be complete.

    *told* says for each query whether it was answered, or the reason without a usable answer. *window* is how long a
    wanted floor is kept, in seconds; ``None`` if the annotations are invalid.

    *history* is kept by default; *written* replaces it once the PATCH succeeds. *pending* says that a restart would
    lose something: the conditions that a lowering waits for, or a bound that is the user's own again.

    *follows* are the HPA's queries. *answered* is the floor that they want together, ``None`` if one of them has no
    answer; *earlier* is the highest floor that they wanted lately.
    """

    namespace: str
    name: str
    uid: str
    action: Action
    minimum: int
    maximum: int
    target: int
    target_maximum: int
    inputs: FloorInputs | None = None
    solution: Solution | None = None
    causes: tuple[Refusal, ...] = ()
    age: float | None = None
    told: tuple[str, ...] = ()
    window: float | None = None
    dry_run: bool = False
    history: FloorHistory = FloorHistory()
    written: FloorHistory = FloorHistory()
    pending: bool = False
    follows: tuple[Query, ...] = ()
    answered: int | None = None
    earlier: int | None = None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def changes(self) -> bool:
        """Whether the decision sets anything."""
        return (self.target, self.target_maximum) != (self.minimum, self.maximum)

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


class Judged(Struct, frozen=True):
    """One HPA's judgement: *first* by itself, *decision* together with the others of the cycle."""

    subject: Subject
    first: FloorDecision
    decision: FloorDecision

    def under(self, drops: DropVerdict) -> Judged:
        """Return the judgement with the verdict on the whole cycle applied. Nothing else applies the verdict.

        The history of the HPA's queries is changed to match.
        """
        decision = self.first
        if drops.cause is not None:
            decision = hold_lowering(decision, drops.cause)
            if decision.earlier is not None:
                decision = _remembering(decision, decision.earlier, drops.state.since, self.subject.now)
        elif drops.believed and decision.answered is not None:
            decision = _remembering(decision, decision.answered, None, self.subject.now)
        return msgspec.structs.replace(self, decision=decision)


def count_drops(decisions: Iterable[FloorDecision], rules: Rules) -> DropCount:
    """Return how many queries want far less than lately."""
    groups: dict[tuple[Query, ...], tuple[int, int]] = {}
    for decision in decisions:
        if decision.answered is None:
            continue
        earlier, now = groups.get(decision.follows, (0, 0))
        before = decision.answered if decision.earlier is None else decision.earlier
        most = decision.maximum
        groups[decision.follows] = (earlier + min(before, most), now + min(decision.answered, most))
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


def _remembering(decision: FloorDecision, answered: int, falling: float | None, now: float) -> FloorDecision:
    """Return *decision* with *answered* as the only floor that its queries wanted."""
    answers = (Floor(int(now), answered),)
    return msgspec.structs.replace(
        decision,
        history=msgspec.structs.replace(decision.history, answers=answers, falling=falling),
        written=msgspec.structs.replace(decision.written, answers=answers, falling=falling),
    )


def hold_lowering(decision: FloorDecision, cause: Refusal) -> FloorDecision:
    """Return *decision* without its lowering, because of *cause*; other decisions are returned unchanged."""
    if decision.action != "lower" or decision.inputs is None:
        return decision
    inputs = msgspec.structs.replace(decision.inputs, held=True)
    return msgspec.structs.replace(
        decision,
        action="hold",
        target=decision.minimum,
        target_maximum=decision.maximum,
        inputs=inputs,
        solution=solve(inputs),
        causes=(cause, *(each for each in decision.causes if each.reason is not Reason.MAX_TAKEN_BACK)),
        written=decision.history,
        pending=True,
    )
