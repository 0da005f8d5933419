"""Pods that come back to the node from which they were evicted: evictions would repeat until the deadline. Pure.

A cordon and a taint stop only kube-scheduler. Pods whose template names the node come back, and so do pods of a
scheduler that checks neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tightship.cluster import Snapshot
from tightship.objects import Pod
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal

_FIX = "see why the pod is bound despite the cordon: spec.nodeName in its template, or a scheduler of its own"


class Returning:
    """Remembers what one drain has evicted, by controller.

    *since* (seconds since 1970) is when an earlier drive began the evictions, if one did. Pods created since then got
    past the cordon, and earlier evictions are unknown.
    """

    def __init__(self, since: float | None = None) -> None:
        self._since = since
        self._known: set[str] = set()
        self._evicted: defaultdict[str, set[str]] = defaultdict(set)
        self._replicas: defaultdict[str, int] = defaultdict(int)

    def evicted(self, pod: Pod) -> None:
        """Record an eviction that the server granted, or may have granted."""
        if pod.owner is not None:
            self._evicted[pod.owner.uid].add(pod.uid)

    def refuses(self, left: Iterable[Pod], snapshot: Snapshot) -> list[Refusal]:
        """Return refusals for the pods in *left*, which are still to evict, that their controllers bring back."""
        found: list[Refusal] = []
        left = tuple(left)
        here = {pod.uid for pod in left}
        for pod in left:
            owner = pod.owner
            if owner is None:
                continue
            gone = len(self._evicted[owner.uid] - here)
            late = self._since is not None and pod.created > self._since
            if pod.uid not in self._known and (gone or late):
                detail = f"{owner} put this pod on the node during the drain"
                if gone:
                    detail += f", after {counted(gone, 'of its pods was', 'of its pods were')} evicted from there"
                found.append(Refusal(Reason.RETURNS_TO_NODE, pod.key, detail, _FIX))
                continue
            self._known.add(pod.uid)
            workload = snapshot.workloads.get(owner.kind, {}).get(f"{pod.namespace}/{owner.name}")
            if workload is None or workload.replicas is None:
                continue
            most = self._replicas[owner.uid] = max(self._replicas[owner.uid], workload.replicas)
            if gone >= most > 0:
                evicted = counted(gone, f"pod of {owner} was", f"pods of {owner} were")
                detail = f"{evicted} evicted from the node, and {owner} has {counted(most, 'replica')}"
                found.append(Refusal(Reason.RETURNS_TO_NODE, pod.key, detail, _FIX))
        return found
