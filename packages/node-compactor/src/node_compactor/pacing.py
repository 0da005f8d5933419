"""Cool-downs after changes to nodes. Pure.

The evidence outlives a restart: nodes carry their creation times, and the history that all controllers share has the
endings of drains. A sibling's drain counts like one of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.cluster import NodeView, Snapshot
from tightship.cluster.pools import shown
from tightship.objects.drain_record import Ending, Finished
from tightship.objects.durations import format_duration
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import Facts

EVERY_POOL = "every pool"
"""The subject of a pause of the whole cluster."""

_REMOVED = frozenset({Ending.HANDED_OVER.value, Ending.NODE_GONE.value})
_NO_FAILURES = frozenset({Reason.RELEASED})


class PoolPause(Struct, frozen=True):
    """Nothing is drained until *until* (seconds since 1970), because of *what*; *length* is in seconds."""

    until: float
    what: str
    length: float
    everywhere: bool

    def refusal(self, pool: str, now: float) -> Refusal:
        """Return the pause at *now* as a refusal for *pool*."""
        who = EVERY_POOL if self.everywhere else f"pool {shown(pool)}"
        ago, left = format_duration(now - (self.until - self.length)), format_duration(self.until - now)
        detail = f"{self.what} {ago} ago: {who} pauses for {format_duration(self.length)}, {left} left"
        return Refusal(Reason.COOL_DOWN, shown(pool), detail)


class Cooling(Struct, frozen=True):
    """The pauses in effect at *now*: the longest for each of *pools*, and the longest *everywhere*."""

    now: float
    pools: Mapping[str, PoolPause] = {}
    everywhere: PoolPause | None = None

    def of(self, pool: str) -> Refusal | None:
        """Return the longest pause of *pool*, ``None`` if nothing pauses it."""
        pauses = [each for each in (self.pools.get(pool), self.everywhere) if each is not None]
        return max(pauses, key=lambda each: each.until).refusal(pool, self.now) if pauses else None


class _Event(Struct, frozen=True):
    """An event at *at* in *pool*, with the lengths of the pauses of its pool and of all pools after it."""

    at: float
    pool: str
    what: str
    pool_pause: float
    cluster_pause: float


def cooling(
    snapshot: Snapshot,
    facts: Facts,
    finished: Sequence[Finished],
    settings: CompactorSettings,
    now: float,
) -> Cooling:
    """Return the pauses in effect at *now*.

    Only the newest node of a pool counts, as evidence of a scale-up. A drain that was given up because its controller
    stopped is no failure.
    """
    pools: dict[str, PoolPause] = {}
    everywhere: PoolPause | None = None
    for event in (*_added(snapshot, facts, settings), *_ended(finished, settings)):
        # A node's clock may be ahead of ours: a future event counts as happening now.
        at = min(event.at, now)
        own = PoolPause(at + event.pool_pause, event.what, event.pool_pause, everywhere=False)
        if own.until > now and own.until > _until(pools.get(event.pool)):
            pools[event.pool] = own
        everyone = PoolPause(at + event.cluster_pause, event.what, event.cluster_pause, everywhere=True)
        if everyone.until > now and everyone.until > _until(everywhere):
            everywhere = everyone
    return Cooling(now, pools, everywhere)


def _until(pause: PoolPause | None) -> float:
    return pause.until if pause is not None else 0.0


def _added(snapshot: Snapshot, facts: Facts, settings: CompactorSettings) -> list[_Event]:
    newest: dict[str, NodeView] = {}
    for name, view in snapshot.nodes.items():
        fact = facts.get(name)
        if fact is not None and (fact.pool not in newest or view.node.created > newest[fact.pool].node.created):
            newest[fact.pool] = view
    return [
        _Event(
            at=view.node.created,
            pool=pool,
            what=f"node {view.name} was added to pool {shown(pool)}",
            pool_pause=_own(settings.pool(pool), "after_added", settings.after_added),
            cluster_pause=settings.all_after_added,
        )
        for pool, view in newest.items()
    ]


def _ended(finished: Sequence[Finished], settings: CompactorSettings) -> list[_Event]:
    events: list[_Event] = []
    for each in finished:
        own = settings.pool(each.pool)
        if each.ending in _REMOVED:
            what = f"node {each.node} of pool {shown(each.pool)} was removed"
            pauses = _own(own, "after_deleted", settings.after_deleted), settings.all_after_deleted
        elif each.ending == Ending.RESTORED.value and each.reason.partition(" ")[0] not in _NO_FAILURES:
            why = f" ({each.reason})" if each.reason else ""
            what = f"the drain of node {each.node} in pool {shown(each.pool)} was given up{why}"
            pauses = _own(own, "after_failure", settings.after_failure), settings.all_after_failure
        else:
            continue
        events.append(_Event(each.at, each.pool, what, *pauses))
    return events


def _own(pool: PoolSettings | None, field: str, otherwise: float) -> float:
    value: float | None = getattr(pool, field, None)
    return otherwise if value is None else value
