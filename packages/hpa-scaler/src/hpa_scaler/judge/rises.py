"""How far a floor may rise at once, and which rise was one bad sample that is over. Pure.

The API server accepts a ``minReplicas`` beyond the HPA's own ``behavior.scaleUp``, even with ``selectPolicy:
Disabled``. So the hpa-scaler enforces the user's limits itself, as Kubernetes computes them, with its own raises as the
scaling events. An HPA may also have limits for the floor alone. Raising a floor to the running replicas starts no pods,
and is never limited.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.promql import lookback
from hpa_scaler.annotations.queries import range_of
from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.annotations.values import INT32_MAX
from hpa_scaler.judge.floors import Limit
from hpa_scaler.judge.history import (
    DAY,
    Floor,
    FloorHistory,
    Raise,
    Spike,
    highest_floor,
    moment,
    with_floor,
    with_known,
)
from tightship.objects.autoscaling import ScalingPolicy, ScalingRules
from tightship.objects.counting import counted
from tightship.objects.horizontal import DEFAULT_UP
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration

SHARP = 1.15
"""How many times the floor of the last answer the next one must be to be a jump."""

CLEAR = 3
"""Replicas that a jump must be for at least: of a smaller one nobody could tell whether it is over."""

SPIKE_CYCLES = 3
"""Cycles that a range must cover for a jump within one of them to be no traffic, whose rate takes a range to rise."""

LONGEST_LOOK = 3600.0
"""The longest that a rise waits for a query to forget an old sample, in seconds."""


class Rise(Struct, frozen=True):
    """How far the queries may raise a floor: the *limit*, if any, and the updated *history*."""

    limit: Limit | None
    history: FloorHistory


class Wanted(Struct, frozen=True):
    """The *floor* that the queries want, ``None`` without any; *whole* if each has a usable answer.

    *granted* is the highest floor that somebody has set as a number, such as the user's own minimum. *minimum* is the
    present floor, *running* the number of replicas.
    """

    floor: int | None
    whole: bool
    granted: int
    minimum: int
    running: int


def judge_rise(wanted: Wanted, history: FloorHistory, rules: Rules, now: float, *, wait: float) -> Rise:
    """Return how far a floor may go up if the queries want far more than in the last day.

    One bad sample stays in the answers for as long as a query looks back. So a wanted floor becomes known only after
    *wait* seconds, in at least two looks. Until then a floor goes up to :attr:`Rules.rise_factor` times the known
    floor. Floors that we set meanwhile do not count as known, so steps from bad data don't add up.
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
        f"once it has been wanted for {format_duration(wait)}, at {moment(look.at + wait, now)}"
    )
    fix = "if the traffic is real, wait or raise minReplicas yourself; if not, look at the targets of Prometheus"
    return Rise((max(ceiling, wanted.running), Refusal(Reason.SUDDEN_RISE, detail=detail, fix=fix)), history)


def judge_spike(
    history: FloorHistory, spec: FloorSpec, floor: int, now: float, *, evaluated: float | None, window: float
) -> FloorHistory:
    """Return *history*, in which the queries want *floor* at *now*, without the floors of a bad sample that is over.

    A ``rate()`` follows traffic, and its end, over the whole range. A single bad sample raises all of it within a
    cycle, and leaves all of it within a cycle a range later. Then the lowering *window* keeps the floor that it kept
    before that sample. *evaluated* is the time of the last cycle.
    """
    found = [lookback(query.text) for query in spec.queries]
    shown = all(each.readable and not each.hidden for each in found)
    ranges = [each.seconds if shown else 0.0 for each in found]
    last, spike, floors = history.last, history.spike, history.floors
    rose = last is not None and floor > last.floor * SHARP
    since = math.ceil(now) if last is None or rose else last.at
    history = msgspec.structs.replace(history, last=Floor(since, floor), spike=None)
    if last is None or evaluated is None or (now - evaluated) * SPIKE_CYCLES > min(ranges):
        return history
    kept = highest_floor(floors, now, window)
    clear = last.floor + CLEAR <= floor
    if rose and clear and kept is not None and floor > kept and now - last.at >= max(ranges):
        return msgspec.structs.replace(history, spike=Spike(int(now), last.floor, floor, kept))
    if rose or spike is None or now - spike.at > max(ranges) + now - evaluated:
        return history
    quarter = max(1.0, (spike.top - spike.base) / 4)
    if abs(floor - spike.top) <= quarter:
        return msgspec.structs.replace(history, spike=spike)
    # Sooner the sample can't have left, even if it was new right after the cycle before the jump.
    left = now - spike.at + now - evaluated >= min(ranges)
    if left and spike.base * 3 / 4 <= floor <= spike.base + quarter:
        higher = (each for each in floors if each.floor > spike.top + quarter)
        return msgspec.structs.replace(history, floors=with_floor(higher, max(spike.kept, floor), now, window))
    return history


def time_to_know(spec: FloorSpec, rules: Rules) -> float:
    """Return for how many seconds a rise must be wanted: until no query sees a sample that was new at first."""
    longest = max((range_of(query, spec, LONGEST_LOOK) for query in spec.queries), default=0.0)
    return longest + rules.longest_gap / 2


def maximum_limit(own_maximum: int, wanted: Wanted, rules: Rules) -> list[Limit]:
    """Return the limit of a floor, and with it of ``maxReplicas``, above the user's own maximum."""
    limit = max(math.floor(own_maximum * rules.maximum_factor), wanted.granted, wanted.running)
    if not rules.maximum_factor or (wanted.floor or 0) <= limit:
        return []
    detail = f"no floor is set above {rules.maximum_factor:g} times maxReplicas {own_maximum}"
    return [(limit, Refusal(Reason.AT_MAX_REPLICAS, detail=detail, fix="raise maxReplicas"))]


def rise_ceiling(history: FloorHistory, rules: Rules, granted: int, now: float) -> int:
    """Return how far a forecast may raise a floor: as far as the queries themselves could at once.

    *granted* is as in :class:`Wanted`.
    """
    if not rules.rise_factor:
        return INT32_MAX
    known = max(highest_floor(history.known, now, DAY) or 0, granted)
    return max(rules.rise_pods, math.floor(known * rules.rise_factor))


def _ceiling(history: FloorHistory, wanted: Wanted, rules: Rules, now: float) -> tuple[int, int]:
    """Return the known floor, and the highest floor that it allows."""
    known = max(highest_floor(history.known, now, DAY) or 0, wanted.granted)
    return known, max(rules.rise_pods, math.floor(known * rules.rise_factor), known)


def limits(
    spec: FloorSpec, behavior: ScalingRules | None, raises: tuple[Raise, ...], running: int, now: float
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


def longest_period(spec: FloorSpec, behavior: ScalingRules | None) -> float:
    """Return for how many seconds to remember our own raises."""
    if behavior is None or not _counts(spec, behavior):
        return 0.0
    return float(max((each.period_seconds for each in _policies(behavior)), default=0))


def with_raise(raises: Iterable[Raise], pods: int, now: float, longest: float) -> tuple[Raise, ...]:
    """Return *raises* plus one of *pods* at *now*, without raises older than the *longest* period of a policy."""
    kept = tuple(each for each in raises if now - each.at < longest)
    return (*kept, Raise(int(now), pods)) if pods > 0 and longest > 0 else kept


def raised_within(raises: Iterable[Raise], now: float, period: float) -> int:
    """Return how many pods our own raises started within the last *period* seconds."""
    return sum(each.pods for each in raises if now - each.at < period)


def _counts(spec: FloorSpec, behavior: ScalingRules) -> bool:
    """Whether *behavior* limits the floor: not if the HPA opts out, nor if the API server filled it in.

    The API server does so as soon as somebody writes a ``scaleDown``. Nobody asked for these limits: without any
    behavior there are none either.
    """
    filled_in = behavior.select_policy in (None, "Max") and set(_policies(behavior)) == set(DEFAULT_UP)
    return spec.honour_behavior and not filled_in


def _by_behavior(behavior: ScalingRules, raises: tuple[Raise, ...], running: int, now: float) -> Limit:
    if behavior.select_policy == "Disabled":
        return running, Refusal(Reason.BEHAVIOR_LIMIT, detail="behavior.scaleUp is Disabled")
    allowed = {}
    for each in _policies(behavior):
        start = max(0, running - raised_within(raises, now, each.period_seconds))
        percent = each.type == "Percent"
        allowed[each] = math.ceil(start * (1 + each.value / 100)) if percent else start + each.value
    choose = min if behavior.select_policy == "Min" else max
    policy = choose(allowed, key=lambda each: allowed[each])
    value = f"{policy.value} %" if policy.type == "Percent" else counted(policy.value, "pod")
    detail = f"behavior.scaleUp allows {value} in {policy.period_seconds} s"
    return max(running, allowed[policy]), Refusal(Reason.BEHAVIOR_LIMIT, detail=detail)


def _policies(behavior: ScalingRules) -> tuple[ScalingPolicy, ...]:
    return behavior.policies or DEFAULT_UP
