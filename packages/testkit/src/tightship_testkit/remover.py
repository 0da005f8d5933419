"""A stand-in for the Cluster Autoscaler, which can't be had here (its Go module is refused by the module proxy).

It does only the last step of a scale-down, and only to nodes that a drain of ours has emptied: it never judges
utilization, evicts nothing, adds nothing, and knows no node groups. So what a test shows with it is that an emptied
node can be taken away at any moment, not that the real Cluster Autoscaler would take it. As that one does, it removes
nothing while a pod is unschedulable (it would rather add a node), writes its taint first, by compare-and-swap, and then
has the node removed.
"""

from __future__ import annotations

import time

from tightship_testkit.client import ApiError, Client, Json
from tightship_testkit.looking import Looker
from tightship_testkit.marks import TAINT, taints

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
LOOK = 0.4  # seconds between two looks


class Remover(Looker):
    """Deletes nodes that are cordoned and tainted by us and have held no pod to move for *after* seconds.

    *selector* names the labels of those that it may delete, if not all.
    """

    def __init__(self, api: Client, after: float = 0.5, selector: str = "") -> None:
        super().__init__(LOOK)
        self.removed: list[str] = []
        self._chosen = {"labelSelector": selector} if selector else {}
        self._api = api
        self._after = after
        self._empty: dict[str, float] = {}

    async def _look(self) -> None:
        drained = [node for node in await self._api.list("Node", **self._chosen) if _ours(node)]
        names = {node["metadata"]["name"] for node in drained}
        self._empty = {name: since for name, since in self._empty.items() if name in names}
        if drained and any(unschedulable(pod) for pod in await self._api.list("Pod", fieldSelector="spec.nodeName=")):
            return
        for node in drained:
            name = node["metadata"]["name"]
            pods = await self._api.list("Pod", fieldSelector=f"spec.nodeName={name}")
            if any(_moves(pod) for pod in pods):
                self._empty.pop(name, None)
            elif time.monotonic() >= self._empty.setdefault(name, time.monotonic()) + self._after:
                await self._remove(node)

    async def _remove(self, node: Json) -> None:
        name = node["metadata"]["name"]
        try:
            await mark_to_be_deleted(self._api, node)
        except ApiError as error:
            if error.status in (404, 409):
                return  # somebody else wrote: seen again at the next look
            raise
        await self._api.delete("Node", name)
        self.removed.append(name)
        self._empty.pop(name, None)


async def mark_to_be_deleted(api: Client, node: Json) -> None:
    """Write the Cluster Autoscaler's taint, if the node is still the version it was judged by."""
    mark = {"key": TO_BE_DELETED, "value": str(int(time.time())), "effect": "NoSchedule"}
    body = {
        "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
        "spec": {"taints": [*taints(node), mark]},
    }
    await api.patch("Node", node["metadata"]["name"], body)


def unschedulable(pod: Json) -> bool:
    """Return whether the scheduler has found no node for a pod: the autoscaler would add one."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


def _ours(node: Json) -> bool:
    return bool(node["spec"].get("unschedulable")) and any(each["key"] == TAINT for each in taints(node))


def _moves(pod: Json) -> bool:
    meta = pod["metadata"]
    if "kubernetes.io/config.mirror" in (meta.get("annotations") or {}):
        return False
    return not any(each["kind"] == "DaemonSet" for each in meta.get("ownerReferences") or [])
