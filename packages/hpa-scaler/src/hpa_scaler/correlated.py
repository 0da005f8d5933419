"""A breaker for drops that are too many at once to be traffic: where most queries fall together, the metrics failed.

It looks at what the queries want, not at what steps and holds make of it, and at whole floors: a fleet that gets
quieter over hours follows its queries closely and never looks like this.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from hpa_scaler.arithmetic import solve
from hpa_scaler.policy import Decision
from hpa_scaler.reasons import Cause, Reason
from hpa_scaler.rules import Rules
from tightship.durations import format_duration


class DropState(Struct, frozen=True):
    """Since when queries have been falling together, ``None`` while they are not."""

    since: float | None = None


class DropCount(Struct, frozen=True):
    """*counted* HPAs have queries that all answered; those of *dropping* would lose *lost* of all *floor* pods."""

    counted: int = 0
    dropping: int = 0
    floor: int = 0
    lost: int = 0


class Verdict(Struct, frozen=True):
    """What is made of a cycle: why nothing is lowered in it (``None``: it may be), and the *state* to go on from."""

    cause: Cause | None
    state: DropState


def count_drops(decisions: Iterable[Decision], rules: Rules) -> DropCount:
    """Return how many floors would fall at once by what their queries answered."""
    counted = dropping = floor = lost = 0
    for decision in decisions:
        inputs, solution = decision.inputs, decision.solution
        if (
            inputs is None
            or solution is None
            or not inputs.terms
            or any(each.replicas is None for each in inputs.terms)
        ):
            continue
        wanted = max(solution.query or 0, inputs.lower_bound)
        gone = inputs.minimum - wanted
        counted += 1
        floor += inputs.minimum
        if gone > inputs.minimum * rules.drop_size:
            dropping += 1
            lost += gone
    return DropCount(counted, dropping, floor, lost)


def judge_drops(count: DropCount, state: DropState, rules: Rules, now: float) -> Verdict:
    """Return whether anything may be lowered in a cycle with *count*, *state* being that of the cycle before."""
    many = count.dropping > count.counted * rules.drop_share
    large = count.lost > count.floor * rules.drop_floor_share
    if count.counted < rules.drop_count or not (many or large):
        return Verdict(None, DropState())
    since = now if state.since is None else state.since
    if rules.drop_hold and now - since >= rules.drop_hold:
        # So many for so long: it is the traffic after all.
        return Verdict(None, DropState(since))
    left = f", for {format_duration(since + rules.drop_hold - now)} at most" if rules.drop_hold else ""
    detail = (
        f"the queries of {count.dropping} of {count.counted} HPAs fell at once, by {count.lost} of {count.floor} pods: "
        f"nothing is lowered until they come back{left}"
    )
    return Verdict(
        Cause(Reason.CORRELATED_DROP, detail, "look at Prometheus, and at what it scrapes"), DropState(since)
    )


def hold_lowering(decision: Decision, cause: Cause) -> Decision:
    """Return *decision* without its lowering, for *cause*; any other is returned as it is."""
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


__all__ = ["DropCount", "DropState", "Verdict", "count_drops", "hold_lowering", "judge_drops"]
