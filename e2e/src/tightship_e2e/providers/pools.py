"""Nodes of a real cluster as the pools of a scenario: taken, taken away, and brought back.

A scenario has nodes deleted, as an autoscaler does, and others added. The machines stay where they are: what comes back
is the Node itself, as it was. Its kubelet goes on by itself once there is a Node of its name again: it reports to it,
and runs its pods.
"""

from __future__ import annotations

from collections.abc import Iterable

from tightship_e2e.providers.protocol import UnavailableError
from tightship_testkit.client import ApiError, Client, Json, wait_for
from tightship_testkit.manifests import POOL
from tightship_testkit.marks import LIFECYCLE, OURS, taints

KEPT = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DEADLINE = 180.0


class Pools:
    """The *nodes* that scenarios may use, which are there now, each with a label of its pool."""

    def __init__(self, api: Client, nodes: Iterable[Json]) -> None:
        self.nodes = {each["metadata"]["name"]: as_it_was(each) for each in nodes}
        self._api = api
        self._taken: set[str] = set()

    async def add(self, pool: str) -> None:
        """Have one more node of a pool, and wait until it is Ready; raises UnavailableError when there is none left."""
        there = {each["metadata"]["name"] for each in await self._api.list("Node")}
        of = sorted(name for name, each in self.nodes.items() if each["metadata"]["labels"].get(POOL) == pool)
        free = [name for name in of if name not in self._taken or name not in there]
        if not free:
            raise UnavailableError(f"another node of pool {pool}: of {POOL}={pool} there are {len(of)}, all in use")
        name = free[0]
        self._taken.add(name)
        if name not in there:
            await self._api.create(self.nodes[name])
        if pool == "system":
            await self._api.patch("Node", name, {"metadata": {"annotations": {KEPT: "true"}}})
        await self._ready(name)

    async def restore(self) -> None:
        """Bring back what is gone of the nodes, and take off what scenarios and controllers have left on them."""
        there = {each["metadata"]["name"]: each for each in await self._api.list("Node")}
        for name, was in self.nodes.items():
            if name not in there:
                await self._api.create(was)
            else:
                await self._clear(there[name], was)
        for name in self.nodes:
            await self._ready(name)

    async def _clear(self, node: Json, was: Json) -> None:
        notes = node["metadata"].get("annotations") or {}
        before = was["metadata"]["annotations"]
        left = {key: before.get(key) for key in notes if key.startswith(OURS) or key == KEPT}
        kept = [each for each in taints(node) if not each["key"].startswith(OURS)]
        changed = {key: value for key, value in left.items() if notes.get(key) != value}
        body: Json = {"metadata": {"annotations": changed}} if changed else {}
        if len(kept) < len(taints(node)):
            body["spec"] = {"taints": kept}
        # It was not cordoned when it was taken; a cordon without a mark of ours is somebody else's.
        if body and changed.keys() - {KEPT} and node["spec"].get("unschedulable"):
            body["spec"] = {**body.get("spec", {}), "unschedulable": None}
        if body:
            await self._api.patch("Node", node["metadata"]["name"], body)

    async def _ready(self, name: str) -> None:
        async def ready() -> bool:
            try:
                return is_ready(await self._api.get("Node", name))
            except ApiError as error:
                if error.status != 404:
                    raise
                return False

        await wait_for(ready, DEADLINE, f"the node {name} is Ready")


def as_it_was(node: Json) -> Json:
    """Return a node as it is made again: who it is, not how it was, nor what a scenario of before has left on it."""
    meta, spec = node["metadata"], node["spec"]
    lasting = [each for each in taints(node) if not each["key"].startswith((*LIFECYCLE, OURS))]
    notes = {key: value for key, value in (meta.get("annotations") or {}).items() if not key.startswith(OURS)}
    kept = {key: spec[key] for key in ("podCIDR", "podCIDRs", "providerID") if key in spec}
    return {
        "kind": "Node",
        "metadata": {
            "name": meta["name"],
            "labels": meta.get("labels") or {},
            "annotations": notes,
        },
        "spec": {**kept, **({"taints": lasting} if lasting else {})},
    }


def is_ready(node: Json) -> bool:
    """Return whether pods may be bound to a node, as far as its kubelet is concerned: a cordon is another matter."""
    conditions = (node.get("status") or {}).get("conditions") or []
    lifecycle = {each["key"] for each in taints(node) if each["key"].startswith("node.kubernetes.io/")}
    waits = lifecycle - {"node.kubernetes.io/unschedulable"}
    return not waits and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


__all__ = ["DEADLINE", "KEPT", "Pools", "as_it_was", "is_ready"]
