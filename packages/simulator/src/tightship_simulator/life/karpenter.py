"""Karpenter's consolidation of empty nodes, as Karpenter documents it, and nothing else of Karpenter. Pure.

A node of a NodePool without a pod to move goes ``consolidateAfter`` after its last pod event: it gets the taint
``karpenter.sh/disrupted`` first. ``Never``, a static pool and a budget of zero for empty nodes keep all nodes, and
other budgets limit how many go at once. A node with ``karpenter.sh/do-not-disrupt`` stays. Budgets with a
schedule are taken as always open here. A node that is not empty is never touched, whatever the policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tightship.objects.times import parse_duration
from tightship_simulator.api.budgets import controller_of
from tightship_simulator.life.changes import Change, Delete, Json, Look, Patch, leaving

POOL = "karpenter.sh/nodepool"
DISRUPTED = "karpenter.sh/disrupted"
_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
_MIRROR = "kubernetes.io/config.mirror"


class Karpenter:
    """Deletes empty nodes. *validates* is how many seconds lie between taint and deletion."""

    def __init__(self, validates: float = 0.2) -> None:
        self.removed: list[str] = []
        self.due = math.inf
        """When the next node may be tainted or removed, by the clock of the steps."""
        self._validates = validates
        self._empty: dict[str, float] = {}
        self._going: dict[str, float] = {}

    def step(self, look: Look, now: float, at: str) -> list[Change]:
        """Return what becomes of nodes at *now* (seconds)."""
        del at
        self.due = math.inf
        busy = {pod["spec"].get("nodeName") for pod in look("Pod") if _moves(pod)}
        nodes = {node["metadata"]["name"]: node for node in look("Node") if not leaving(node)}
        self._going = {name: since for name, since in self._going.items() if name in nodes}
        changes: list[Change] = []
        for pool in look("NodePool"):
            mine = [node for node in nodes.values() if _labels(node).get(POOL) == pool["metadata"]["name"]]
            changes += self._consolidate(pool.get("spec") or {}, mine, busy, now)
        return changes

    def _consolidate(self, spec: Json, nodes: Sequence[Json], busy: set[str | None], now: float) -> list[Change]:
        disruption = spec.get("disruption") or {}
        after = disruption.get("consolidateAfter", "0s")
        if after == "Never" or spec.get("replicas") is not None:
            return []
        names = [node["metadata"]["name"] for node in nodes]
        allowed = _allowed(disruption, len(nodes)) - sum(name in self._going for name in names)
        changes: list[Change] = []
        for name, node in zip(names, nodes, strict=True):
            if name in busy or _DO_NOT_DISRUPT in (node["metadata"].get("annotations") or {}):
                self._empty.pop(name, None)
                continue
            if name in self._going:
                changes += self._delete(name, node, now)
                continue
            ready = self._empty.setdefault(name, now) + parse_duration(after)
            if now < ready:
                self.due = min(self.due, ready)
            elif allowed > 0:
                allowed -= 1
                self._going[name] = now
                self.due = min(self.due, now + self._validates)
                mark = {"key": DISRUPTED, "effect": "NoSchedule"}
                taints = [*(node["spec"].get("taints") or ()), mark]
                changes.append(Patch(node, {"spec": {"taints": taints}}, guarded=True))
        return changes

    def _delete(self, name: str, node: Json, now: float) -> list[Change]:
        if now < self._going[name] + self._validates:
            self.due = min(self.due, self._going[name] + self._validates)
            return []
        self.removed.append(name)
        return [Delete(node)]


def _allowed(disruption: Json, nodes: int) -> int:
    """Return how many empty nodes may go at once; percentages are rounded up."""
    budgets = disruption.get("budgets", [{"nodes": "10%"}])
    for_empty = [each["nodes"] for each in budgets if "Empty" in each.get("reasons", ["Empty"])]
    counts = [
        math.ceil(nodes * int(text.removesuffix("%")) / 100) if text.endswith("%") else int(text) for text in for_empty
    ]
    return min(counts, default=nodes)


def _labels(node: Json) -> Json:
    return node["metadata"].get("labels") or {}


def _moves(pod: Json) -> bool:
    if _MIRROR in (pod["metadata"].get("annotations") or {}):
        return False
    owner = controller_of(pod)
    return owner is None or owner["kind"] != "DaemonSet"


__all__ = ["DISRUPTED", "POOL", "Karpenter"]
