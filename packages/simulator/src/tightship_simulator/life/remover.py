"""The last step of an autoscaler's scale-down and nothing else: nodes that a drain has emptied are deleted. Pure.

It never judges utilization, evicts nothing and adds nothing. As the Cluster Autoscaler does, it removes nothing while a
pod is unschedulable, and writes its taint first.
"""

from __future__ import annotations

import math

from tightship_simulator.api.budgets import controller_of
from tightship_simulator.life.changes import Change, Delete, Json, Look, Patch, condition, leaving
from tightship_simulator.life.node_autoscaler import TO_BE_DELETED

_MIRROR = "kubernetes.io/config.mirror"


class Remover:
    """Takes nodes that are cordoned, bear *taint* and have held no pod to move for *after* seconds."""

    def __init__(self, taint: str, after: float) -> None:
        self.removed: list[str] = []
        self.due = math.inf
        """When the next node may be removed, by the clock of the steps."""
        self._taint = taint
        self._after = after
        self._empty: dict[str, float] = {}

    def step(self, look: Look, now: float, at: str) -> list[Change]:
        """Return what becomes of nodes at *now* (seconds)."""
        del at
        self.due = math.inf
        drained = {node["metadata"]["name"]: node for node in look("Node") if self._drained(node)}
        pods = list(look("Pod"))
        if any(condition(pod, "PodScheduled").get("reason") == "Unschedulable" for pod in pods):
            self._empty = {name: since for name, since in self._empty.items() if name in drained}
            return []
        busy = {pod["spec"].get("nodeName") for pod in pods if _moves(pod)}
        self._empty = {name: self._empty.get(name, now) for name in drained if name not in busy}
        changes: list[Change] = []
        for name, since in self._empty.items():
            if now < since + self._after:
                self.due = min(self.due, since + self._after)
                continue
            item = drained[name]
            mark = {"key": TO_BE_DELETED, "value": str(int(now)), "effect": "NoSchedule"}
            changes += [Patch(item, {"spec": {"taints": [*item["spec"]["taints"], mark]}}, guarded=True), Delete(item)]
            self.removed.append(name)
        return changes

    def _drained(self, node: Json) -> bool:
        spec = node["spec"]
        tainted = any(each["key"] == self._taint for each in spec.get("taints") or ())
        return bool(spec.get("unschedulable")) and tainted and not leaving(node)


def _moves(pod: Json) -> bool:
    if _MIRROR in (pod["metadata"].get("annotations") or {}):
        return False
    owner = controller_of(pod)
    return owner is None or owner["kind"] != "DaemonSet"


__all__ = ["Remover"]
