"""A stand-in for the other half of the Cluster Autoscaler, which can't be had here: it adds nodes for pods that wait.

What it does is less than what that one does: it knows one kind of node for each value of the label `POOL`, adds one
at a time to the group that a waiting pod's node selector names, and looks again once the scheduler has had time to use
it. It simulates no scheduling (a pod that fits no node of the group has nodes added up to the group's maximum), has no
expander, and takes no time to start a node. So what a test shows with it is that nodes may come at any moment, and that
pods that wait for them get them; not which nodes the real Cluster Autoscaler would have added.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping

from tightship.kube.host import monotonic
from tightship_testkit.client import Client
from tightship_testkit.looking import Looker
from tightship_testkit.manifests import POOL
from tightship_testkit.remover import unschedulable

LOOK = 0.5  # seconds between two looks


class Grower(Looker):
    """Adds a node to a group for which a pod has waited *after* seconds, and then none for *pause* seconds.

    *most* says how many nodes a group may have, *add* adds one of a name to a group.
    """

    def __init__(
        self,
        api: Client,
        add: Callable[[str, str], Awaitable[None]],
        most: Mapping[str, int],
        after: float = 1.0,
        pause: float = 2.5,
    ) -> None:
        super().__init__(LOOK)
        self.added: list[str] = []
        self._api = api
        self._add = add
        self._most = most
        self._after = after
        self._pause = pause
        self._since: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._numbers = itertools.count()

    async def _look(self) -> None:
        now = monotonic()
        pods = [each for each in await self._api.list("Pod", fieldSelector="spec.nodeName=") if unschedulable(each)]
        uids = {each["metadata"]["uid"] for each in pods}
        self._since = {uid: self._since.get(uid, now) for uid in uids}
        waiting = [each for each in pods if now >= self._since[each["metadata"]["uid"]] + self._after]
        wanted = {(each["spec"].get("nodeSelector") or {}).get(POOL, "") for each in waiting}
        for name in sorted(wanted & set(self._most)):
            await self._grow(name, now)

    async def _grow(self, group: str, now: float) -> None:
        if now < self._next.get(group, 0):
            return
        if len(await self._api.list("Node", labelSelector=f"{POOL}={group}")) >= self._most[group]:
            return
        name = f"{group}-new-{next(self._numbers)}"
        await self._add(name, group)
        self.added.append(name)
        self._next[group] = monotonic() + self._pause


__all__ = ["Grower"]
