"""Gangs: pods that run together or not at all."""

from __future__ import annotations

from typing import Any

from tightship_testkit.disasters.promises.base import Eviction, Promise
from tightship_testkit.disasters.promises.reading import annotations as notes_of
from tightship_testkit.disasters.promises.reading import created, gang
from tightship_testkit.disasters.registry import promise


@promise
class GangsGoTogether(Promise):
    """Of pods that run together or not at all, one is evicted only where all are on its node and agree."""

    name = "gangs-go-together"
    text = "No pod of a gang is evicted alone."
    noticed = 15.0
    """Seconds after which a drain under way has seen that a gang has another pod."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._begun: set[tuple[str, str]] = set()

    def evicted(self, eviction: Eviction) -> None:
        pod, world = eviction.pod, self.world
        name, place = gang(pod), pod["spec"].get("nodeName", "")
        if not name or world.blind(eviction.by, 0.0):
            return
        begun = (eviction.op, name) in self._begun
        self._begun.add((eviction.op, name))
        known = world.wall - self.noticed
        members = [
            each
            for each in world.store.list("Pod", pod["metadata"]["namespace"])
            if gang(each) == name and created(each) < known and each["metadata"]["uid"] != pod["metadata"]["uid"]
        ]
        agreed = notes_of(pod).get("tightship.dev/evict-together") == "true"
        elsewhere = sorted({each["spec"].get("nodeName", "") for each in members} - {place})
        if not members or (agreed and (begun or not elsewhere)):
            return
        where = f"others of it are on {', '.join(elsewhere)}" if elsewhere else "its owner has not agreed"
        self.broken(f"Pod {eviction.name}", f"{eviction.by} evicted it from {place}, of {name}: {where}")
