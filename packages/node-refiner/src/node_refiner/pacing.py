"""Pauses after a node was added, and after any controller's drain. Pure.

The evidence outlives a restart: creation times and starts of drains are on the nodes, endings in the history that all
controllers share. The older controller forgot its timers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from node_refiner.settings import RefinerSettings
from tightship.objects.drain_record import Finished, Phase
from tightship.planning.evaluate import Facts
from tightship.planning.facts import added
from tightship.rules.additions import Pause, longest, newest, pause
from tightship.rules.nodes import drain_record

CLUSTER = "cluster"
"""The subject of a pause."""

_Event = tuple[float, str, float, str]
"""When something happened, what, for how long the cluster pauses, and the key that sets that."""


def cooling(facts: Facts, settings: RefinerSettings, now: float, finished: Sequence[Finished] = ()) -> Pause | None:
    """Return the longest pause at *now*, ``None`` if nothing pauses drains.

    Every drain counts, whatever its ending: a drain that was given up because its controller stopped has moved pods
    too.
    """
    events = [*_added(facts, settings), *_under_way(facts, settings), *_ended(finished, settings)]
    latest = sorted(events, key=lambda each: each[1], reverse=True)
    return longest(
        *(pause(CLUSTER, what, at, length, now, who="no node is drained", key=key) for at, what, length, key in latest)
    )


def _added(facts: Facts, settings: RefinerSettings) -> Iterator[_Event]:
    last = max(newest(added(facts)).values(), key=lambda each: (each[0], each[2]), default=None)
    if last is not None:
        at, _, name = last
        yield at, f"node {name} was added", settings.time_since_last_addition, "clusterCoolDownAfterNodeAdded"


def _under_way(facts: Facts, settings: RefinerSettings) -> Iterator[_Event]:
    for name, fact in facts.items():
        record = drain_record(fact.view.node)
        since = record.entered(Phase.CLAIMED) if record is not None and record.owns_node else None
        if since is not None:
            yield since, f"a drain of node {name} began", settings.time_gap, "clusterCoolDownAfterDrain"


def _ended(finished: Sequence[Finished], settings: RefinerSettings) -> Iterator[_Event]:
    for each in finished:
        yield each.at, f"the drain of node {each.node} ended", settings.time_gap, "clusterCoolDownAfterDrain"
