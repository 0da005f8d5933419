"""From numbers to a floor: the older controller's formula, and every bound around it.

:class:`Inputs` is everything that determines a target. The state annotation contains it, so anybody can compute the
target again from there.
"""

from __future__ import annotations

import math

from msgspec import Struct

from hpa_scaler.spec.golang import INT32_MAX, INT32_MIN


class Term(Struct, frozen=True, rename="camel", omit_defaults=True):
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
        """:attr:`exact` rounded up, ``None`` if that is not a possible number of replicas."""
        exact = self.exact
        if not math.isfinite(exact):
            return None
        replicas = math.ceil(exact)
        return replicas if INT32_MIN <= replicas <= INT32_MAX else None


class Inputs(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Everything that determines a target.

    *minimum* and *maximum* are the HPA's bounds now. *own_maximum* is the user's maximum, which differs while ours is
    raised. *replicas* are the present ones (``None``: unknown). *substitute* replaces terms without a value, by the
    rule for missing data. *held* says that nothing may be lowered. *window* is the highest floor wanted in the lowering
    window, *band* the deadband in pods, *raise_to* the highest floor that the limits of one step allow. *lowest* is
    what the API server accepts: 0 or 1.
    """

    minimum: int
    maximum: int
    own_maximum: int
    ratio: float
    lower_bound: int
    raises_maximum: bool
    replicas: int | None = None
    terms: tuple[Term, ...] = ()
    substitute: int | None = None
    upper_bound: int | None = None
    lowest: int = 1
    held: bool = False
    window: int | None = None
    band: int = 0
    raise_to: int | None = None


class Solution(Struct, frozen=True, rename="camel"):
    """The result. *query* and *by_ratio* are the two floors, ``None`` if unknown; *unbounded* is the largest of these
    and the lower bound; *wanted* is *unbounded* within the caps. *target* and *maximum* are the bounds to set.
    """

    query: int | None
    by_ratio: int | None
    unbounded: int
    wanted: int
    target: int
    maximum: int


def ratio_floor(replicas: int, ratio: float) -> int:
    """Return the lowest floor that one step down from *replicas* may reach: a step takes at least one pod, at most
    *ratio*.

    A ratio of 1 or more is no limit.
    """
    step = replicas * ratio
    return replicas - max(1, math.floor(step)) if step < INT32_MAX else -INT32_MAX


def solve(inputs: Inputs) -> Solution:
    """Return the floor that follows from *inputs*."""
    query = _by_query(inputs)
    by_ratio = None if inputs.replicas is None else ratio_floor(inputs.replicas, inputs.ratio)
    unbounded = max(inputs.lower_bound, *(each for each in (query, by_ratio) if each is not None), inputs.lowest)
    wanted = _capped(unbounded, inputs, query)
    target = _moved(inputs, wanted)
    return Solution(query, by_ratio, unbounded, wanted, target, _maximum(inputs, target))


def _by_query(inputs: Inputs) -> int | None:
    if not inputs.terms:
        return 0  # as the older controller has it: without a query the ratio and the lower bound decide
    found = [each.replicas for each in inputs.terms if each.replicas is not None]
    if not inputs.raises_maximum or inputs.upper_bound is not None:
        # More than can be counted is at least as much as a cap allows; without a cap it is no number to go by.
        found += [INT32_MAX for each in inputs.terms if each.exact > INT32_MAX]
    if inputs.substitute is not None:
        found.append(inputs.substitute)
    return max(found, default=None)


def _capped(floor: int, inputs: Inputs, query: int | None) -> int:
    """Return *floor* within the upper bound and the maximum, which only query and lower bound may exceed."""
    ceiling = inputs.own_maximum
    if inputs.raises_maximum:
        ceiling = max(ceiling, query or 0, inputs.lower_bound)
    if inputs.upper_bound is not None:
        ceiling = min(ceiling, inputs.upper_bound)
    return max(inputs.lowest, min(floor, ceiling))


def _moved(inputs: Inputs, wanted: int) -> int:
    """Return the floor after this step, if it should be at *wanted*."""
    now = inputs.minimum
    if wanted > now:
        return wanted if inputs.raise_to is None else max(now, min(wanted, inputs.raise_to))
    if wanted == now or inputs.held:
        return now
    target = wanted if inputs.window is None else min(now, max(wanted, inputs.window))
    return now if now - target <= inputs.band else target


def _maximum(inputs: Inputs, target: int) -> int:
    """Return the maximum for *target*: the user's own if it is high enough, else one more than the floor."""
    if target <= inputs.own_maximum:
        return inputs.own_maximum
    enough = min(target + 1, INT32_MAX)  # the older controller's: the HPA keeps one pod to go up
    if inputs.upper_bound is not None:
        enough = max(target, min(enough, inputs.upper_bound))
    return enough if target > inputs.minimum else min(inputs.maximum, enough)


__all__ = ["Inputs", "Solution", "Term", "ratio_floor", "solve"]
