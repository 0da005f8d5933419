"""How many drains may begin, and how many pods they may evict, in an hour and in a day: a rate is a limit. Pure.

A budget limits how many nodes are out at once, and says nothing of how many go in a day (karpenter#2909).
Hours and days slide: nothing is free again at a border of the clock. What all controllers have begun is kept beside
their claims (:mod:`tightship.draining.begun`). A drain counts from its claim, with the pods that it would evict then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate

from msgspec import Struct

from tightship.objects.counting import counted
from tightship.objects.drain_record import Begun, Spent
from tightship.objects.durations import format_duration
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import rfc3339
from tightship.rules.checks import Check
from tightship.rules.limits import CLUSTER, Count, Limit

HOUR, DAY = 3600.0, 86400.0

SKEW = 10.0
"""Seconds by which a window is longer, since clocks of replicas differ: two that are 5 s off, one each way."""

UNREADABLE_FIX = "remove annotation tightship.dev/begun of the claims' Lease, so that counting begins anew"


class Rates(Struct, frozen=True, kw_only=True):
    """Most nodes whose drains may begin, and most pods that they may evict, in an hour and in a day; 0 is no limit.

    The rates apply to *of_pool*, or to the cluster if that is ``None``.
    """

    of_pool: str | None = None
    nodes_per_hour: int = 0
    nodes_per_day: int = 0
    evictions_per_hour: int = 0
    evictions_per_day: int = 0

    @property
    def limited(self) -> bool:
        """Whether there is any rate."""
        return bool(self.nodes_per_hour or self.nodes_per_day or self.evictions_per_hour or self.evictions_per_day)


def rate_checks(rates: Sequence[Rates], begun: Begun, node: str, evicts: int) -> Iterator[Check]:
    """Yield what *rates* say to a drain of *node* that begins now and evicts so many pods, after what has *begun*."""
    for each in rates:
        yield from _checks(each, begun, node, evicts)


def _checks(rates: Rates, begun: Begun, node: str, evicts: int) -> Iterator[Check]:
    kind = CLUSTER if rates.of_pool is None else f"pool {rates.of_pool or '(none)'}"
    limits = (
        ("node", rates.nodes_per_hour, HOUR, 1),
        ("node", rates.nodes_per_day, DAY, 1),
        ("eviction", rates.evictions_per_hour, HOUR, evicts),
        ("eviction", rates.evictions_per_day, DAY, evicts),
    )
    for what, most, window, takes in limits:
        if most and takes:
            yield _check(kind, rates.of_pool, begun, node, what=what, most=most, window=window, takes=takes)


def _check(
    kind: str, pool: str | None, begun: Begun, node: str, *, what: str, most: int, window: float, takes: int
) -> Check:
    of = f"{kind}'s {what}s in {'an hour' if window == HOUR else 'a day'}"
    gate = f"{kind.removeprefix('the ').split(maxsplit=1)[0]}'s rate"
    ahead = max((each.at for each in begun.spent), default=0.0)
    odd = f"the claims' Lease has counts of {rfc3339(ahead)}, which is to come" if ahead > begun.now + HOUR else ""
    if begun.problem or odd:
        return Check(gate, Reason.RATE_LIMITED, False, f"nobody knows {of}: {begun.problem or odd}", UNREADABLE_FIX)
    spent = [
        (each.at, each.nodes if what == "node" else each.evictions)
        for each in sorted(begun.spent, key=lambda each: each.at)
        if each.at > begun.now - window - SKEW and (pool is None or each.pool in (pool, None))
    ]

    def detail(many: int) -> str:
        found = f"{many} of {most} {what}s of {kind} in {'an hour' if window == HOUR else 'a day'}"
        if many + takes <= most:
            return f"{found}, {most - many} left"
        wants = f"; the node has {counted(takes, 'pod')} to evict" if what == "eviction" else ""
        if takes > most:
            return f"{found}{wants}, more than the rate ever lets go"
        total = accumulate(amount for _, amount in spent)
        frees = (at for (at, _), gone in zip(spent, total, strict=True) if many - gone + takes <= most)
        at = next(frees) + window + SKEW
        clock = datetime.fromtimestamp(int(at), UTC).strftime("%H:%M")
        return f"{found}{wants}; the next at {clock} UTC, in {format_duration(max(0.0, at - begun.now))}"

    limit = Limit(
        gate=gate,
        kind=of,
        reason=Reason.RATE_LIMITED,
        most=most,
        takes=takes,
        detail=detail,
        fix=lambda _: f"wait, or raise maximum{what.capitalize()}sPer{'Hour' if window == HOUR else 'Day'} of {kind}",
    )
    out = Counter({of: sum(amount for _, amount in spent)})
    return limit.check(Count(Counter(), out, Counter(), {}), node)


def refused_by_rate(rates: Sequence[Rates], begun: Begun, node: str, evicts: int) -> Refusal | None:
    """Return the first refusal of :func:`rate_checks`, ``None`` if the drain may begin."""
    return next((each.refusal(node) for each in rate_checks(rates, begun, node, evicts) if not each.open), None)


def planned(begun: Begun, pool: str, evicts: int) -> Begun:
    """Return *begun* with one more drain in *pool*, which begins now and evicts so many pods."""
    return begun.with_spent(Spent(begun.now, pool, 1, evicts))
