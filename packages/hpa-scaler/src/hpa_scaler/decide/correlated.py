"""A breaker for correlated drops: if most queries fall together, the metrics have failed rather than the traffic.

It compares what the queries want with what they wanted lately, as far as they look back. It does not compare floors,
which steps and holds keep higher, nor spikes: a fleet that gets quieter over hours, or has long been quieter than its
floors, never trips it. A wish counts up to ``maxReplicas`` only: otherwise bad data that want more would make what
follows look like a fall. HPAs with the same queries count as one, because one answer moves all of them.

While many have fallen, the breaker keeps what they wanted before. Once the fall has lasted long enough to be believed,
it compares with what they want then.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from hpa_scaler.decide.arithmetic import solve
from hpa_scaler.decide.history import Floor
from hpa_scaler.decide.policy import Decision
from hpa_scaler.spec.queries import Query
from hpa_scaler.spec.rules import Rules
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.reasons import Reason, Refusal


class DropState(Struct, frozen=True):
    """Since when queries have been falling together, ``None`` while they are not."""

    since: float | None = None


class DropCount(Struct, frozen=True):
    """*counted* HPAs whose queries all answered, those with the same queries as one; *dropping* of them want *lost* of
    *floor* pods less than lately.
    """

    counted: int = 0
    dropping: int = 0
    floor: int = 0
    lost: int = 0


class Verdict(Struct, frozen=True):
    """The breaker's verdict on a cycle: why nothing may be lowered (``None``: lowering is allowed), and the next
    *state*.

    *believed*: so many have fallen for so long that the traffic must have fallen.
    """

    cause: Refusal | None
    state: DropState
    believed: bool = False


def count_drops(decisions: Iterable[Decision], rules: Rules) -> DropCount:
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


def judge_drops(count: DropCount, state: DropState, rules: Rules, now: float) -> Verdict:
    """Return whether a cycle with *count* may lower anything; *state* is that of the cycle before."""
    many = count.dropping > count.counted * rules.drop_share
    large = count.lost > count.floor * rules.drop_floor_share
    if count.counted < rules.drop_count or not (many or large):
        return Verdict(None, DropState())
    since = now if state.since is None else state.since
    if rules.drop_hold and now - since >= rules.drop_hold:
        return Verdict(None, DropState(), believed=True)
    left = f", for {format_duration(since + rules.drop_hold - now)} at most" if rules.drop_hold else ""
    detail = (
        f"{count.dropping} of {counted(count.counted, 'query', 'queries')} fell at once, "
        f"by {count.lost} of {counted(count.floor, 'pod')}: "
        f"nothing is lowered until they come back{left}"
    )
    return Verdict(
        Refusal(Reason.CORRELATED_DROP, detail=detail, fix="look at Prometheus and its targets"), DropState(since)
    )


def settle(decision: Decision, verdict: Verdict, now: float) -> Decision:
    """Return *decision* as *verdict* changes it, and with it what is remembered of its queries."""
    if verdict.cause is not None:
        held = hold_lowering(decision, verdict.cause)
        return held if decision.earlier is None else _remembering(held, decision.earlier, verdict.state.since, now)
    if verdict.believed and decision.answered is not None:
        return _remembering(decision, decision.answered, None, now)
    return decision


def _remembering(decision: Decision, answered: int, falling: float | None, now: float) -> Decision:
    """Return *decision* with only *answered* as what its queries wanted."""
    answers = (Floor(int(now), answered),)
    return msgspec.structs.replace(
        decision,
        history=msgspec.structs.replace(decision.history, answers=answers, falling=falling),
        written=msgspec.structs.replace(decision.written, answers=answers, falling=falling),
    )


def hold_lowering(decision: Decision, cause: Refusal) -> Decision:
    """Return *decision* without its lowering, because of *cause*; a decision that lowers nothing is
    returned unchanged.
    """
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


__all__ = ["DropCount", "DropState", "Verdict", "count_drops", "hold_lowering", "judge_drops", "settle"]
