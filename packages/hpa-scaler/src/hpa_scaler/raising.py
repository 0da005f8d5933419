"""How far a floor may go up in one step.

Raising ``minReplicas`` goes past the HPA's own ``behavior.scaleUp``, even past ``selectPolicy: Disabled``. So the
limits that its user wrote there are kept here, as Kubernetes itself computes them, with our own raises as the scaling
events; and an HPA may have limits of its own for the floor. Going up to what is running already starts nothing, and is
never limited.
"""

from __future__ import annotations

import math

from hpa_scaler.history import Raise, raised_within
from hpa_scaler.reasons import Cause, Reason
from hpa_scaler.spec import Spec
from tightship.objects.autoscaling import ScalingPolicy, ScalingRules

DEFAULT_POLICIES = (ScalingPolicy("Percent", 100, 15), ScalingPolicy("Pods", 4, 15))
"""What the API server makes of a ``behavior.scaleUp`` without policies, and of none beside a ``scaleDown``."""

Limit = tuple[int, Cause]
"""The highest floor, and why."""


def limits(
    spec: Spec, behavior: ScalingRules | None, raises: tuple[Raise, ...], running: int, now: float
) -> list[Limit]:
    """Return what limits a step up from *running*, the larger of the floor and the present replicas."""
    found: list[Limit] = []
    if spec.up_pods is not None:
        detail = f"scale-up-max-pods allows {spec.up_pods} more than {running}"
        found.append((running + spec.up_pods, Cause(Reason.STEP_LIMIT, detail)))
    if spec.up_ratio is not None:
        step = max(1, math.floor(running * spec.up_ratio))
        detail = f"scale-up-max-ratio {spec.up_ratio:g} allows {step} more than {running}"
        found.append((running + step, Cause(Reason.STEP_LIMIT, detail)))
    if behavior is not None and _counts(spec, behavior):
        found.append(_by_behavior(behavior, raises, running, now))
    return found


def longest_period(spec: Spec, behavior: ScalingRules | None) -> float:
    """Return for how many seconds our own raises have to be remembered."""
    if behavior is None or not _counts(spec, behavior):
        return 0.0
    return float(max((each.period_seconds for each in _policies(behavior)), default=0))


def _counts(spec: Spec, behavior: ScalingRules) -> bool:
    """Whether *behavior* limits the floor: not if the HPA says no, nor if it is what the API server filled in.

    Those defaults are there as soon as somebody writes a ``scaleDown``, and are nobody's wish: without any behavior
    there is no limit either.
    """
    filled_in = behavior.select_policy in (None, "Max") and set(_policies(behavior)) == set(DEFAULT_POLICIES)
    return spec.honour_behavior and not filled_in


def _by_behavior(behavior: ScalingRules, raises: tuple[Raise, ...], running: int, now: float) -> Limit:
    if behavior.select_policy == "Disabled":
        return running, Cause(Reason.BEHAVIOR_LIMIT, "behavior.scaleUp is Disabled")
    allowed = {each: _by_policy(each, raises, running, now) for each in _policies(behavior)}
    choose = min if behavior.select_policy == "Min" else max
    policy = choose(allowed, key=lambda each: allowed[each])
    value = f"{policy.value} %" if policy.type == "Percent" else f"{policy.value} pods"
    detail = f"behavior.scaleUp allows {value} in {policy.period_seconds} s"
    return max(running, allowed[policy]), Cause(Reason.BEHAVIOR_LIMIT, detail)


def _by_policy(policy: ScalingPolicy, raises: tuple[Raise, ...], running: int, now: float) -> int:
    start = max(0, running - raised_within(raises, now, policy.period_seconds))
    if policy.type == "Percent":
        return math.ceil(start * (1 + policy.value / 100))
    return start + policy.value


def _policies(behavior: ScalingRules) -> tuple[ScalingPolicy, ...]:
    return behavior.policies or DEFAULT_POLICIES


__all__ = ["Limit", "limits", "longest_period"]
