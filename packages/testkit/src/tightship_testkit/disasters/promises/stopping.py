"""Stopped means stopped: who was stopped by its Lease begins nothing until it is started again."""

from __future__ import annotations

from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.promises.base import Asked, Eviction, Promise, ours
from tightship_testkit.disasters.promises.drains import begun
from tightship_testkit.disasters.registry import promise

STOP = "tightship.dev/stop"
SEEN = 1.0
"""Seconds until a stop is seen."""
UNHEARD = 11.0
"""Seconds until who can't hear of the stop leads no more: the deadline of a leader, and a request on its way."""


@promise
class StoppedMeansStopped(Promise):
    """While a controller's Lease carries the annotation, it claims no node, evicts no pod and writes no HPA."""

    name = "stopped-means-stopped"
    text = (
        "Stopped by its Lease, a controller begins nothing a second later, and nothing at all that it can't hear of it."
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._since: dict[str, float] = {}

    def changed(self, change: Change, author: str) -> None:
        meta = change.object["metadata"]
        if change.object["kind"] == "Lease":
            team = self.world.team(meta["name"])
            if team is not None and meta.get("namespace") == team.controller.namespace:
                stopped = change.type != "DELETED" and (meta.get("annotations") or {}).get(STOP, "false") != "false"
                if not stopped:
                    self._since.pop(meta["name"], None)
                else:
                    self._since.setdefault(meta["name"], self.world.now)
        elif begun(change, author):
            self._begins(author, f"Node {meta['name']}", self.world.sent)

    def evicted(self, eviction: Eviction) -> None:
        self._begins(eviction.by, f"Pod {eviction.name}", eviction.sent)

    def asked(self, request: Asked) -> None:
        if request.resource == "horizontalpodautoscalers" and request.writes:
            self._begins(request.by, f"HPA {request.name}", request.at)

    def _begins(self, by: str, subject: str, sent: float) -> None:
        since = self._since.get(ours(by))
        if since is None:
            return
        late = UNHEARD if self.world.blind(by, since) else SEEN
        if sent > since + late:
            self.broken(subject, f"{by} began it {sent - since:.1f} s after it was stopped")


__all__ = ["STOP", "StoppedMeansStopped"]
