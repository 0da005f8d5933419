"""Gangs: pods that run together or not at all."""

from __future__ import annotations

from typing import Any

from tightship_testkit.disasters.promises.base import Eviction, Promise
from tightship_testkit.disasters.promises.reading import annotations as notes_of
from tightship_testkit.disasters.promises.reading import created, gang
from tightship_testkit.disasters.registry import promise

LISTED = ("PodGroup ", "LeaderWorkerSet ")
"""How names of groups begin that an object of their own describes."""


@promise
class GangsGoTogether(Promise):
    """Of pods that run together or not at all, one is evicted only where all are on its node and agree."""

    name = "gangs-go-together"
    text = "No pod of a gang is evicted alone."
    noticed = 15.0
    """Seconds after which a drain under way has seen that a gang has another pod."""
    rechecked = 620.0
    """Seconds after which a controller that may list groups again knows of them again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._begun: set[tuple[str, str]] = set()

    def evicted(self, eviction: Eviction) -> None:
        pod, world = eviction.pod, self.world
        name, place = gang(pod), pod["spec"].get("nodeName", "")
        if not name or world.blind(eviction.by, 0.0) or (name.startswith(LISTED) and self._unlisted()):
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

    def _unlisted(self) -> bool:
        """Whether a controller may not have been let to list groups: without them it goes on, and says so."""
        faults, now = self.world.scenario.faults, self.world.now
        return any(each.kind == "list-forbidden" and each.at <= now < each.until + self.rechecked for each in faults)
