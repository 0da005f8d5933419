"""Pauses after a node was added, and after any controller's drain. Pure.

The evidence outlives a restart: creation times and starts of drains are on the nodes, endings in the history that all
controllers share. The older controller forgot its timers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from node_refiner.settings import RefinerSettings
from tightship.cluster import Snapshot
from tightship.cluster.node_marks import virtual
from tightship.objects.drain_record import Finished, Phase
from tightship.objects.durations import format_duration
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.nodes import drain_record

CLUSTER = "cluster"
"""The subject of a pause."""


class ClusterPause(Struct, frozen=True):
    """Nothing is drained for *length* seconds (set by *key*) after *at* (seconds since 1970), because of *what*."""

    at: float
    length: float
    what: str
    key: str

    @property
    def until(self) -> float:
        return self.at + self.length

    def refusal(self, now: float) -> Refusal:
        """Return the pause at *now* as a refusal."""
        ago, left = format_duration(now - self.at), format_duration(self.until - now)
        detail = (
            f"{self.what} {ago} ago: no node is drained for {format_duration(self.length)} ({self.key}), {left} left"
        )
        return Refusal(Reason.COOL_DOWN, CLUSTER, detail)


def cooling(
    snapshot: Snapshot, settings: RefinerSettings, now: float, finished: Sequence[Finished] = ()
) -> Refusal | None:
    """Return the longest pause at *now*, ``None`` if nothing pauses drains.

    Every drain counts, whatever its ending: a drain that was given up because its controller stopped has moved pods
    too.
    """
    pauses = [*_added(snapshot, settings), *_under_way(snapshot, settings), *_ended(finished, settings)]
    # A node's clock may be ahead of ours: a future event counts as happening now.
    known = [ClusterPause(min(each.at, now), each.length, each.what, each.key) for each in pauses]
    longest = max(known, key=lambda each: (each.until, each.what), default=None)
    return longest.refusal(now) if longest is not None and longest.until > now else None


def _added(snapshot: Snapshot, settings: RefinerSettings) -> Iterator[ClusterPause]:
    made = sorted(((view.node.created, name) for name, view in snapshot.nodes.items()), reverse=True)
    # A node of Fargate comes with each pod.
    newest = next((each for each in made if virtual(snapshot.nodes[each[1]].node) is None), None)
    if newest is not None:
        created, name = newest
        what = f"node {name} was added"
        yield ClusterPause(created, settings.time_since_last_addition, what, "clusterCoolDownAfterNodeAdded")


def _under_way(snapshot: Snapshot, settings: RefinerSettings) -> Iterator[ClusterPause]:
    for name, view in snapshot.nodes.items():
        record = drain_record(view.node)
        since = record.entered(Phase.CLAIMED) if record is not None and record.owns_node else None
        if since is not None:
            yield ClusterPause(since, settings.time_gap, f"a drain of node {name} began", "clusterCoolDownAfterDrain")


def _ended(finished: Sequence[Finished], settings: RefinerSettings) -> Iterator[ClusterPause]:
    for each in finished:
        yield ClusterPause(
            each.at, settings.time_gap, f"the drain of node {each.node} ended", "clusterCoolDownAfterDrain"
        )
