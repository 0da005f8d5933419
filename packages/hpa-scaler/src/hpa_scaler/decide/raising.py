"""How far a floor may go up in one step.

The API server accepts a ``minReplicas`` beyond the HPA's own ``behavior.scaleUp``, even with ``selectPolicy:
Disabled``. So the hpa-scaler keeps the user's limits itself, as Kubernetes computes them, with its own raises as the
scaling events. An HPA may also have limits for the floor alone. Raising a floor to the running replicas starts nothing,
and is never limited.
"""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct

from hpa_scaler.decide.floors import Limit
from hpa_scaler.decide.history import DAY, Floor, FloorHistory, Raise, highest_floor, raised_within, with_known
from hpa_scaler.spec.queries import range_of
from hpa_scaler.spec.spec import Rules, Spec
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.objects.autoscaling import ScalingPolicy, ScalingRules
from tightship.core.reasons import Reason, Refusal

DEFAULT_POLICIES = (ScalingPolicy("Percent", 100, 15), ScalingPolicy("Pods", 4, 15))
"""The policies that the API server fills into a ``behavior.scaleUp`` without any, or beside a ``scaleDown``."""

LONGEST_LOOK = 3600.0
"""Seconds: the longest that a rise waits until a query has forgotten an old sample."""


def limits(
    spec: Spec, behavior: ScalingRules | None, raises: tuple[Raise, ...], running: int, now: float
) -> list[Limit]:
    """Return the limits of a step up from *running*, the larger of the floor and the present replicas."""
    found: list[Limit] = []
    if spec.up_pods is not None:
        detail = f"scale-up-max-pods allows {spec.up_pods} more than {running}"
        found.append((running + spec.up_pods, Refusal(Reason.STEP_LIMIT, detail=detail)))
    if spec.up_ratio is not None:
        step = max(1, math.floor(running * spec.up_ratio))
        detail = f"scale-up-max-ratio {spec.up_ratio:g} allows {step} more than {running}"
        found.append((running + step, Refusal(Reason.STEP_LIMIT, detail=detail)))
    if behavior is not None and _counts(spec, behavior):
        found.append(_by_behavior(behavior, raises, running, now))
    return found


class Rise(Struct, frozen=True):
    """How far the queries may raise a floor: the *limit*, if any, and the *history* that records it."""

    limit: Limit | None
    history: FloorHistory


class Wanted(Struct, frozen=True):
    """What the queries want: *floor*, ``None`` if they say nothing; *whole* if each has a usable answer.

    *granted* is the highest floor that somebody has set as a number, such as the user's own minimum; *minimum* is the
    present one, and *running* the replicas.
    """

    floor: int | None
    whole: bool
    granted: int
    minimum: int
    running: int


def look_at_rise(wanted: Wanted, history: FloorHistory, rules: Rules, now: float, *, wait: float) -> Rise:
    """Return how far a floor may go up if the queries want far more than the last day knew.

    One bad sample stays in the answers for as long as a query looks back. So a wish becomes known only after *wait*
    seconds, in at least two looks. Until then a floor goes up to :attr:`Rules.rise_factor` times what is known. What we
    have set ourselves meanwhile does not count as known, so steps of bad data don't add up.
    """
    if highest_floor(history.known, now, DAY) is None:
        history = with_known(history, max(wanted.minimum, wanted.running), now)
    if wanted.floor is None:
        return Rise(None, history)
    known, ceiling = _ceiling(history, wanted, rules, now)
    look = history.look
    if wanted.whole or wanted.floor > ceiling:
        if look is None or look.floor <= ceiling < wanted.floor:
            look = Floor(math.ceil(now), wanted.floor)
        look = Floor(look.at, min(look.floor, wanted.floor))
        if now - look.at >= wait:
            history = with_known(history, look.floor, now, 2 * wait)
            look = Floor(math.ceil(now), wanted.floor)
            known, ceiling = _ceiling(history, wanted, rules, now)
        history = msgspec.structs.replace(history, look=look)
    if look is None or wanted.floor <= ceiling or not rules.rise_factor:
        return Rise(None, history)
    detail = (
        f"{wanted.floor} is wanted, and {known} was the most in the last day: {ceiling} at once, and the rest "
        f"once it has been wanted for {format_duration(wait)}, in {format_duration(max(0.0, look.at + wait - now))}"
    )
    fix = "if the traffic is real, wait or raise minReplicas yourself; if not, look at the targets of Prometheus"
    return Rise((max(ceiling, wanted.running), Refusal(Reason.SUDDEN_RISE, detail=detail, fix=fix)), history)


def time_to_know(spec: Spec, rules: Rules) -> float:
    """Return for how many seconds a rise has to be wanted: until no query sees a sample that was new at first."""
    longest = max((range_of(query, spec, LONGEST_LOOK) for query in spec.queries), default=0.0)
    return longest + rules.longest_gap / 2


def maximum_limit(own_maximum: int, wanted: Wanted, rules: Rules) -> list[Limit]:
    """Return how far above the user's own maximum a floor may be, and with it the maximum."""
    limit = max(math.floor(own_maximum * rules.maximum_factor), wanted.granted, wanted.running)
    if not rules.maximum_factor or (wanted.floor or 0) <= limit:
        return []
    detail = f"no floor is set above {rules.maximum_factor:g} times maxReplicas {own_maximum}"
    return [(limit, Refusal(Reason.AT_MAX_REPLICAS, detail=detail, fix="raise maxReplicas"))]


def _ceiling(history: FloorHistory, wanted: Wanted, rules: Rules, now: float) -> tuple[int, int]:
    """Return what is known, and the highest floor that follows."""
    known = max(highest_floor(history.known, now, DAY) or 0, wanted.granted)
    return known, max(rules.rise_pods, math.floor(known * rules.rise_factor), known)


def longest_period(spec: Spec, behavior: ScalingRules | None) -> float:
    """Return for how many seconds our own raises have to be remembered."""
    if behavior is None or not _counts(spec, behavior):
        return 0.0
    return float(max((each.period_seconds for each in _policies(behavior)), default=0))


def _counts(spec: Spec, behavior: ScalingRules) -> bool:
    """Whether *behavior* limits the floor: not if the HPA opts out of that, nor if the API server filled it in.

    Those defaults appear as soon as somebody writes a ``scaleDown``, and nobody asked for them: without any behavior
    there is no limit either.
    """
    filled_in = behavior.select_policy in (None, "Max") and set(_policies(behavior)) == set(DEFAULT_POLICIES)
    return spec.honour_behavior and not filled_in


def _by_behavior(behavior: ScalingRules, raises: tuple[Raise, ...], running: int, now: float) -> Limit:
    if behavior.select_policy == "Disabled":
        return running, Refusal(Reason.BEHAVIOR_LIMIT, detail="behavior.scaleUp is Disabled")
    allowed = {each: _by_policy(each, raises, running, now) for each in _policies(behavior)}
    choose = min if behavior.select_policy == "Min" else max
    policy = choose(allowed, key=lambda each: allowed[each])
    value = f"{policy.value} %" if policy.type == "Percent" else counted(policy.value, "pod")
    detail = f"behavior.scaleUp allows {value} in {policy.period_seconds} s"
    return max(running, allowed[policy]), Refusal(Reason.BEHAVIOR_LIMIT, detail=detail)


def _by_policy(policy: ScalingPolicy, raises: tuple[Raise, ...], running: int, now: float) -> int:
    start = max(0, running - raised_within(raises, now, policy.period_seconds))
    if policy.type == "Percent":
        return math.ceil(start * (1 + policy.value / 100))
    return start + policy.value


def _policies(behavior: ScalingRules) -> tuple[ScalingPolicy, ...]:
    return behavior.policies or DEFAULT_POLICIES
