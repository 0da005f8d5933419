"""When to pause: after a node was added, and after a drain, whichever controller's. Pure.

What a pause is judged by outlives a restart: when nodes were created is on the nodes, when drains began too, and how
they ended is in the history that all controllers share. The older controller forgot its timers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from node_refiner.settings import RefinerSettings
from tightship.core.drain_record import Finished, Phase
from tightship.core.durations import format_duration
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import Snapshot
from tightship.planning.nodes import drain_record

CLUSTER = "cluster"
"""What a pause is about."""


class ClusterPause(Struct, frozen=True):
    """Nothing is drained for *length* seconds after *at* (seconds since 1970), because of *what*; *key* set that."""

    at: float
    length: float
    what: str
    key: str

    @property
    def until(self) -> float:
        return self.at + self.length

    def refusal(self, now: float) -> Refusal:
        """Return the pause as it stands at *now*."""
        ago, left = format_duration(now - self.at), format_duration(self.until - now)
        detail = (
            f"{self.what} {ago} ago: no node is drained for {format_duration(self.length)} ({self.key}), {left} left"
        )
        return Refusal(Reason.COOL_DOWN, CLUSTER, detail)


def cooling(
    snapshot: Snapshot, settings: RefinerSettings, now: float, finished: Sequence[Finished] = ()
) -> Refusal | None:
    """Return why nothing is drained at *now*, ``None`` where nothing pauses it; of several pauses the longest.

    A drain counts whatever became of it: one that was given up because its controller stopped has moved pods as well.
    """
    pauses = [*_added(snapshot, settings), *_under_way(snapshot, settings), *_ended(finished, settings)]
    # A node's clock may be ahead of ours: what has not happened yet happens now.
    known = [ClusterPause(min(each.at, now), each.length, each.what, each.key) for each in pauses]
    longest = max(known, key=lambda each: (each.until, each.what), default=None)
    return longest.refusal(now) if longest is not None and longest.until > now else None


def _added(snapshot: Snapshot, settings: RefinerSettings) -> Iterator[ClusterPause]:
    newest = max(((view.node.created, name) for name, view in snapshot.nodes.items()), default=None)
    if newest is not None:
        created, name = newest
        what = f"node {name} was added"
        yield ClusterPause(created, settings.time_since_last_addition, what, "time_since_last_addition")


def _under_way(snapshot: Snapshot, settings: RefinerSettings) -> Iterator[ClusterPause]:
    for name, view in snapshot.nodes.items():
        record = drain_record(view.node)
        since = record.entered(Phase.CLAIMED) if record is not None and record.owns_node else None
        if since is not None:
            yield ClusterPause(since, settings.time_gap, f"a drain of node {name} began", "time_gap")


def _ended(finished: Sequence[Finished], settings: RefinerSettings) -> Iterator[ClusterPause]:
    for each in finished:
        yield ClusterPause(each.at, settings.time_gap, f"the drain of node {each.node} ended", "time_gap")
