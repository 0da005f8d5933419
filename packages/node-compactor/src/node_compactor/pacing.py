"""Cool-downs after nodes were added, and after drains. Pure.

The evidence outlives a restart: nodes carry their creation times, and the history that all controllers share has the
endings of drains. A sibling's drain counts like one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.cluster.pools import shown
from tightship.objects.drain_record import Ending, Finished
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Facts
from tightship.planning.facts import added
from tightship.rules.additions import EVERY_POOL, Pause, longest, newest, pause

_REMOVED = frozenset({Ending.HANDED_OVER.value, Ending.NODE_GONE.value})
_NO_FAILURES = frozenset({Reason.RELEASED})

_Event = tuple[float, str, str, float, float]
"""When something happened, in which pool, what, and for how long its pool and all pools pause."""


def cooling(
    facts: Facts, finished: Sequence[Finished], settings: CompactorSettings, now: float
) -> Callable[[str], Pause | None]:
    """Return the function from a pool to its longest pause at *now*.

    Only the newest node of a pool counts, as evidence of a scale-up. A drain that was given up because its controller
    stopped is no failure.
    """
    events = [*_added(facts, settings), *_ended(finished, settings)]

    def of(pool: str) -> Pause | None:
        name = shown(pool)
        own = (
            pause(name, what, at, length, now, who=f"pool {name} pauses")
            for at, where, what, length, _ in events
            if where == pool
        )
        return longest(*own, *(pause(name, what, at, length, now, who=EVERY_POOL) for at, _, what, _, length in events))

    return of


def _added(facts: Facts, settings: CompactorSettings) -> Iterator[_Event]:
    for pool, (at, _, name) in newest(added(facts)).items():
        own = _own(settings.pool(pool), "after_added", settings.after_added)
        yield at, pool, f"node {name} was added to pool {shown(pool)}", own, settings.all_after_added


def _ended(finished: Sequence[Finished], settings: CompactorSettings) -> Iterator[_Event]:
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
        yield each.at, each.pool, what, *pauses


def _own(pool: PoolSettings | None, field: str, otherwise: float) -> float:
    value: float | None = getattr(pool, field, None)
    return otherwise if value is None else value
