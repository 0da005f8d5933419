"""How often, whoever asks: nodes in an hour, and pods of one workload."""

from __future__ import annotations

import math
from typing import Any

from tightship_simulator.api.store import Change
from tightship_testkit.disasters.promises.base import Eviction, Promise, ours
from tightship_testkit.disasters.promises.drains import begun
from tightship_testkit.disasters.promises.pace import CLAIMS
from tightship_testkit.disasters.promises.reading import controller, seconds
from tightship_testkit.disasters.registry import promise

HOUR = 3600.0

PAUSE = 600.0
"""Seconds that a workload rests where nothing else is set."""


class _Counting(Promise):
    """Knows since when the Lease counts without the help of others: after an edit counting begins anew."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.edited = -math.inf

    def changed(self, change: Change, author: str) -> None:
        if change.object["kind"] == "Lease" and change.object["metadata"]["name"] == CLAIMS and not ours(author):
            self.edited = self.world.now

    def settings(self, program: str, key: str, default: float = 0.0) -> list[float]:
        """Return the recent values of a setting of *program*, *default* where it is not set; 0 is no limit."""
        team = self.world.team(program)
        return [0.0] if team is None else [seconds(each.get(key, default)) for each in team.recent(self.world.now)]

    def together(self) -> bool:
        """Whether both controllers count under one Lease."""
        return self.world.ledger("node-compactor") == self.world.ledger("node-refiner")


@promise
class NoRatePassed(_Counting):
    """No more drains begin within an hour than the rate of who begins one allows, whoever began the others."""

    name = "no-rate-passed"
    text = "All controllers count together"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._begun: list[tuple[float, str]] = []

    def changed(self, change: Change, author: str) -> None:
        super().changed(change, author)
        program = begun(change, author)
        if not program:
            return
        self._begun.append((self.world.now, program))
        most = max(each or math.inf for each in self.settings(program, "maximumNodesPerHour"))
        since = max(self.edited, self.world.now - HOUR)
        many = sum(at > since and (by == program or self.together()) for at, by in self._begun)
        if many > most:
            name = change.object["metadata"]["name"]
            self.broken(f"Node {name}", f"{author} claimed it, drain {many} within an hour, and {most:g} are allowed")


@promise
class WorkloadsRest(_Counting):
    """Between two evictions of one controller's pods goes by the pause of whoever evicts the second.

    A pod without a node is none that an eviction takes from anybody: ``steering: hints`` has such a pod made anew.
    """

    name = "workloads-rest"
    text = "rests between evictions of its pods"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last: dict[str, Eviction] = {}

    def evicted(self, eviction: Eviction) -> None:
        owner = controller(eviction.pod)
        if owner is None or not eviction.pod["spec"].get("nodeName"):
            return
        uid = str(owner["uid"])
        before = self._last.get(uid)
        self._last[uid] = eviction
        pause = min(self.settings(eviction.program, "workloadPause", PAUSE))
        if before is None or before.sent < self.edited:
            return
        if before.pod["metadata"]["uid"] == eviction.pod["metadata"]["uid"]:
            return
        if before.program != eviction.program and not self.together():
            return
        passed = eviction.sent - before.sent
        if passed < pause - self.world.skewed - 1.0:
            detail = f"{passed:.1f} s after {before.by} had evicted {before.name}, and the pause is {pause:g} s"
            self.broken(f"Pod {eviction.name}", f"{eviction.by} evicted it {detail}")
