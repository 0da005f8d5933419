"""Computes a floor and explains it in words: the older controller's formula, and every bound around it.

:class:`FloorInputs` has everything that determines a target. The state annotation contains the inputs, so anybody can
compute the target again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.queries import Expected
from hpa_scaler.annotations.spec import FloorSpec
from hpa_scaler.annotations.values import INT32_MAX, INT32_MIN, format_float
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration

Limit = tuple[int, Refusal]
"""The highest floor that a step may reach, and why."""


class QueryTerm(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One query's part of the formula; *value* is ``None`` if the query has no usable answer."""

    value: float | None = None
    per_replica: float = 1.0
    delta: float = 0.0

    @property
    def exact(self) -> float:
        """``delta + value / per_replica``; NaN without a value."""
        return math.nan if self.value is None else self.delta + self.value / self.per_replica

    @property
    def replicas(self) -> int | None:
        """:attr:`exact` rounded up, ``None`` if the result is no possible number of replicas."""
        exact = self.exact
        if not math.isfinite(exact):
            return None
        replicas = math.ceil(exact)
        return replicas if INT32_MIN <= replicas <= INT32_MAX else None


class FloorInputs(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Everything that determines a target.

    *minimum* and *maximum* are the HPA's present bounds. *own_maximum* is the user's maximum, which differs from a
    raised one. *replicas* is the present number (``None``: unknown). *substitute* replaces terms without a value, by
    the rule for missing data. *held* says that nothing may be lowered. *window* is the highest floor wanted in the
    lowering window, *band* the deadband in pods, *raise_to* the highest floor that the limits of one step allow.
    *lowest* is the lowest floor that the API server accepts: 0 or 1. *forecast* is the floor that a forecast asks for.
    """

    minimum: int
    maximum: int
    own_maximum: int
    ratio: float
    lower_bound: int
    raises_maximum: bool
    replicas: int | None = None
    terms: tuple[QueryTerm, ...] = ()
    substitute: int | None = None
    upper_bound: int | None = None
    lowest: int = 1
    held: bool = False
    window: int | None = None
    band: int = 0
    raise_to: int | None = None
    forecast: int | None = None


class Solution(Struct, frozen=True, rename="camel"):
    """The result: *target* and *maximum* are the bounds to set. *query* and *by_ratio* are two floors, ``None`` if
    unknown; *unbounded* is the largest of these and the lower bound; *wanted* is *unbounded* within the caps.
    """

    query: int | None
    by_ratio: int | None
    unbounded: int
    wanted: int
    target: int
    maximum: int


def ratio_floor(replicas: int, ratio: float) -> int:
    """Return the lowest floor that one step down from *replicas* may reach.

    A step takes at least one pod, else at most the share *ratio*. A ratio of 1 or more is no limit.
    """
    step = replicas * ratio
    return replicas - max(1, math.floor(step)) if step < INT32_MAX else -INT32_MAX


def solve(inputs: FloorInputs) -> Solution:
    """Return the floor that follows from *inputs*."""
    query = _by_query(inputs)
    by_ratio = None if inputs.replicas is None else ratio_floor(inputs.replicas, inputs.ratio)
    unbounded = max(inputs.lower_bound, inputs.lowest)
    for each in (query, by_ratio, inputs.forecast):
        if each is not None and each > unbounded:
            unbounded = each
    wanted = _capped(unbounded, inputs, query)
    target = _moved(inputs, wanted)
    return Solution(query, by_ratio, unbounded, wanted, target, _maximum(inputs, target))


def by_query(inputs: FloorInputs, query: int | None) -> int:
    """Return the floor that *query*, the queries' own floor, and the lower bound want within all caps."""
    return _capped(max(inputs.lower_bound, query or 0, inputs.lowest), inputs, query)


def unguarded(inputs: FloorInputs, floor: int, replicas: int | None) -> int:
    """Return where *floor*, with so many *replicas*, would go by *inputs* without guards, window and forecast."""
    return solve(
        msgspec.structs.replace(
            inputs, minimum=floor, replicas=replicas, held=False, window=None, band=0, raise_to=None, forecast=None
        )
    ).target


def _by_query(inputs: FloorInputs) -> int | None:
    if not inputs.terms:
        return 0  # as in the older controller: without a query, ratio and lower bound decide
    found = [replicas for replicas in [each.replicas for each in inputs.terms] if replicas is not None]
    if not inputs.raises_maximum or inputs.upper_bound is not None:
        # A value beyond int32 reaches any cap; without a cap, it is unusable.
        found += [INT32_MAX for each in inputs.terms if each.exact > INT32_MAX]
    if inputs.substitute is not None:
        found.append(inputs.substitute)
    return max(found, default=None)


def _capped(floor: int, inputs: FloorInputs, query: int | None) -> int:
    """Return *floor* within the upper bound and the maximum; only query and lower bound may exceed the maximum."""
    ceiling = inputs.own_maximum
    if inputs.raises_maximum:
        ceiling = max(ceiling, query or 0, inputs.lower_bound)
    if inputs.upper_bound is not None:
        ceiling = min(ceiling, inputs.upper_bound)
    return max(inputs.lowest, min(floor, ceiling))


def _moved(inputs: FloorInputs, wanted: int) -> int:
    """Return the floor after this step towards *wanted*."""
    now = inputs.minimum
    if wanted > now:
        return wanted if inputs.raise_to is None else max(now, min(wanted, inputs.raise_to))
    if wanted == now or inputs.held:
        return now
    target = wanted if inputs.window is None else min(now, max(wanted, inputs.window))
    return now if now - target <= inputs.band else target


def _maximum(inputs: FloorInputs, target: int) -> int:
    """Return the maximum for *target*: the user's own if high enough, else one more than the floor."""
    if target <= inputs.own_maximum:
        return inputs.own_maximum
    enough = min(target + 1, INT32_MAX)  # as in the older controller: the HPA can still add one pod
    if inputs.upper_bound is not None:
        enough = max(target, min(enough, inputs.upper_bound))
    return enough if target > inputs.minimum else min(inputs.maximum, enough)


def short(value: float) -> str:
    """Return a number for people: at most five significant digits, no needless exponent."""
    text = f"{value:.5g}"
    if "e" not in text:
        return text
    return format_float(float(text)) if abs(value) < 1e15 else text


def term_text(term: QueryTerm) -> str:
    """Return one query's part of the formula, such as ``ceil(-0.5 + 110.2/20) = 6``."""
    value = "?" if term.value is None else short(term.value)
    delta = "" if term.delta == 0 else f"{short(term.delta)} + "
    result = "?" if term.replicas is None else str(term.replicas)
    return f"ceil({delta}{value}/{short(term.per_replica)}) = {result}"


def formula(inputs: FloorInputs) -> str:
    """Return the formula of all queries with their numbers, empty without queries."""
    texts = [term_text(term) for term in inputs.terms]
    return texts[0] if len(texts) == 1 else ", ".join(texts)


def follows(inputs: FloorInputs, solution: Solution, causes: Sequence[Refusal] = (), forecast: str = "") -> Refusal:
    """Return the largest of the floors, which decides, as a reason.

    If the rule for missing data gave that floor, its cause is among *causes*, those of the queries. *forecast* says
    where the floor of a forecast comes from.
    """
    floor = solution.unbounded
    if inputs.terms and solution.query == floor:
        by_rule = inputs.substitute == floor and all(term.replicas != floor for term in inputs.terms)
        word = next((cause for cause in causes if cause.reason is Reason.MISSING_DATA_POLICY), None)
        return word if by_rule and word is not None else Refusal(Reason.FOLLOWS_QUERY, detail=formula(inputs))
    if solution.by_ratio == floor:
        replicas = counted(inputs.replicas or 0, "replica")
        detail = f"a step down from {replicas} by {short(inputs.ratio)} ends at {floor}"
        return Refusal(Reason.FOLLOWS_RATIO, detail=detail)
    if inputs.forecast == floor > inputs.lower_bound:
        return Refusal(Reason.FOLLOWS_FORECAST, detail=forecast)
    return Refusal(Reason.FOLLOWS_LOWER_BOUND, detail=f"the lower bound is {inputs.lower_bound}")


def caps(inputs: FloorInputs, solution: Solution) -> list[Refusal]:
    """Return the reason for a cap on the floor, unless the floor is held above the cap anyway."""
    if max(solution.wanted, solution.target) >= solution.unbounded:
        return []
    if inputs.forecast == solution.unbounded:
        return []  # a forecast keeps to the bounds of its own accord
    detail = f"{solution.unbounded} is wanted"
    if inputs.upper_bound is not None and solution.wanted == inputs.upper_bound:
        return [Refusal(Reason.AT_UPPER_BOUND, detail=f"{detail}, maximum-replicas is {inputs.upper_bound}")]
    why = "is never raised for the ratio" if inputs.raises_maximum else "is kept by max-replicas-policy"
    fix = "raise maxReplicas"
    return [Refusal(Reason.AT_MAX_REPLICAS, detail=f"{detail}, maxReplicas {inputs.own_maximum} {why}", fix=fix)]


def bounds_moved(inputs: FloorInputs, maximum: int) -> list[Refusal]:
    """Return the reason for a change of the maximum."""
    if maximum > inputs.maximum:
        detail = f"maxReplicas goes from {inputs.maximum} to {maximum}, because the floor would exceed it"
        fix = f"raise maxReplicas ({inputs.own_maximum}) yourself, or set max-replicas-policy: clamp"
        return [Refusal(Reason.MAX_RAISED, detail=detail, fix=fix)]
    if maximum < inputs.maximum:
        return [Refusal(Reason.MAX_TAKEN_BACK, detail=f"maxReplicas goes back from {inputs.maximum} to {maximum}")]
    return []


def lowering_limits(inputs: FloorInputs, solution: Solution, window: float, until: str = "") -> list[Refusal]:
    """Return the reasons that reduce or prevent a step down although nothing holds the floor.

    *window* is how long a wanted floor is kept, in seconds, and *until* says when it ends.
    """
    if inputs.held or solution.wanted >= inputs.minimum:
        return []
    found = []
    reached = solution.wanted
    if inputs.window is not None and inputs.window > solution.wanted:
        reached = min(inputs.minimum, inputs.window)
        detail = f"{solution.wanted} is wanted, but {inputs.window} was within the last {format_duration(window)}"
        detail += f": {until}" if until else ""
        found.append(Refusal(Reason.LOWERING_WINDOW, detail=detail))
    if reached < inputs.minimum and inputs.minimum - reached <= inputs.band:
        found.append(
            Refusal(Reason.DEADBAND, detail=f"{reached} is within the deadband of {inputs.band} below {inputs.minimum}")
        )
    return found


class ForecastFloor(Struct, frozen=True):
    """The *floor* that forecasts ask for, ``None`` without any, and its numbers; *unused* says why one is missing."""

    floor: int | None = None
    detail: str = ""
    unused: Refusal | None = None


def forecast_floor(spec: FloorSpec, expected: Sequence[Expected]) -> ForecastFloor:
    """Return the floor of *expected*, the forecasts of the queries of *spec*: the highest of them."""
    if spec.forecast is None:
        return ForecastFloor()
    best = ForecastFloor()
    name = "day" if spec.forecast.season == "daily" else "week"
    for query, each in zip(spec.queries, expected, strict=False):
        term = QueryTerm(each.value, query.per_replica, query.delta)
        if term.replicas is not None and (best.floor is None or term.replicas > best.floor):
            detail = (
                f"{term_text(term)}: the most that is expected within {format_duration(spec.forecast.ahead)}, by "
                f"{counted(each.seasons, f'earlier {name}')}"
            )
            best = ForecastFloor(term.replicas, detail)
    why = next((each.why for each in expected if each.why), None)
    unused = None if why is None else Refusal(Reason.FORECAST_UNUSED, detail=why)
    return msgspec.structs.replace(best, unused=unused)
