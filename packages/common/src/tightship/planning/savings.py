"""What drains have saved: node-hours and money that nobody had to pay for, counted since the first drain. Pure.

A node that a controller drained, and that is then gone, saves from that moment on, until a node is added to its pool:
that node ends the saving of the node that went last. What came back within an hour saved nothing at all. Nodes that
went without having been drained, as those that an autoscaler removed by itself, count for nothing.

The history that all controllers share keeps them, so they survive restarts and takeovers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.objects.drain_record import Ending, Finished, PastDrains, PoolSavings, Saving
from tightship.rules.waiting import Added

SETTLES = 3600.0
"""Seconds that a node must have been gone for: what comes back earlier saved nothing."""

SEEN_AFTER = 60.0
"""Seconds after its creation at which an added node counts: whoever counts then knows of it."""

CLOCKS_DIFFER = 5.0
"""Seconds by which our clock, which dates a drain, may be ahead of the API server's, which dates a node."""

APART = 20
"""Savings that a pool counts one by one; older ones are kept as one."""


class Saved(Struct, frozen=True):
    """What a pool has saved: hours of nodes, and what those with a price would have cost, in millionths by currency."""

    node_hours: float = 0.0
    micros: Mapping[str, int] = {}


def ended(history: PastDrains, finished: Finished) -> PastDrains:
    """Return *history* with the drain that is *finished*: if that removed the node, the node saves from now on.

    A drain that is in the history already, by a write whose answer was lost, is not entered again.
    """
    if any(_same(each, finished) for each in history.finished):
        return history
    history = msgspec.structs.replace(history, finished=(*history.finished, finished))
    if finished.ending != Ending.HANDED_OVER.value:
        return history
    # A node that was added while pods were still evicted counts, too: the drain brought it about.
    began = finished.at if finished.began is None else finished.began
    total = history.savings.get(finished.pool) or PoolSavings(seen=began - CLOCKS_DIFFER)
    hourly, currency = finished.price
    saving = Saving(finished.at, 1, {currency: hourly} if currency else {})
    total = msgspec.structs.replace(total, active=(*total.active, saving))
    if len(total.active) > APART:
        total = _oldest_as_one(total, finished.at)
    return msgspec.structs.replace(history, savings={**history.savings, finished.pool: total})


def settled(history: PastDrains, nodes: Sequence[Added], now: float) -> PastDrains:
    """Return *history* with the savings ended that *nodes* end: those of them that were added since it last looked."""
    if not history.savings:
        return history
    changed: dict[str, PoolSavings] = {}
    for at, pool, _ in sorted(nodes):
        known = history.savings.get(pool)
        # Of several nodes with one time of creation, each ends a saving.
        if known is not None and known.seen < at <= now - SEEN_AFTER:
            changed[pool] = msgspec.structs.replace(_ended_by(changed.get(pool, known), at), seen=at)
    return msgspec.structs.replace(history, savings={**history.savings, **changed}) if changed else history


def saved(history: PastDrains, now: float) -> dict[str, Saved]:
    """Return by pool what has been saved until *now*."""
    found = {}
    for pool, total in history.savings.items():
        for each in total.active:
            if now - each.at >= SETTLES:
                total = _counted(total, each, now - each.at)  # noqa: PLW2901 - the sum of all
        found[pool] = Saved(total.seconds / 3600, total.micros)
    return found


def _same(one: Finished, other: Finished) -> bool:
    """Whether both are the same drain. Written times are rounded to milliseconds."""
    return (one.node, one.controller) == (other.node, other.controller) and abs(one.at - other.at) < 0.001


def _ended_by(total: PoolSavings, at: float) -> PoolSavings:
    """Return *total* after a node was added *at* that time."""
    if not total.active:
        return total
    *others, last = total.active
    one = Saving(last.at, 1, {currency: hourly // last.nodes for currency, hourly in last.hourly.items()})
    if at - last.at >= SETTLES:
        total = _counted(total, one, at - last.at)
    if last.nodes > 1:
        left = {currency: hourly - one.hourly[currency] for currency, hourly in last.hourly.items()}
        others.append(Saving(last.at, last.nodes - 1, left))
    return msgspec.structs.replace(total, active=tuple(others))


def _oldest_as_one(total: PoolSavings, now: float) -> PoolSavings:
    older, other, *rest = total.active
    if now - older.at >= SETTLES:
        total = _counted(total, older, other.at - older.at)
    hourly = Counter(older.hourly) + Counter(other.hourly)
    one = Saving(other.at, older.nodes + other.nodes, dict(hourly))
    return msgspec.structs.replace(total, active=(one, *rest))


def _counted(total: PoolSavings, saving: Saving, seconds: float) -> PoolSavings:
    money = Counter({currency: round(hourly * seconds / 3600) for currency, hourly in saving.hourly.items()})
    micros = dict(money + Counter(total.micros))
    return msgspec.structs.replace(total, seconds=total.seconds + saving.nodes * seconds, micros=micros)
