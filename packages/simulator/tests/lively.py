"""Objects for tests of what lives in the embedded cluster, and a way to look at them without a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tightship.cluster import Snapshot
from tightship_simulator.life.changes import Look, reference
from tightship_simulator.life.reading import Reading

Json = dict[str, Any]

AT = "2026-11-21T21:00:00Z"
LATER = "2026-11-21T21:05:00Z"
POOL = "cloud.google.com/gke-nodepool"


def looking(items: Iterable[Json]) -> Look:
    """Return a look at *items*."""
    found = list(items)
    return lambda kind: [item for item in found if item["kind"] == kind]


def snapshot(*items: Json) -> Snapshot:
    return Reading(items).snapshot()


def node(name: str, cpu: str = "4", *, pool: str = "a", ready: bool = True, **spec: Any) -> Json:
    room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    labels = {POOL: pool, "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": AT},
        "spec": spec,
        "status": {
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": AT}],
        },
    }


def pod(name: str, place: str = "", cpu: str = "1", owner: Json | None = None, **more: Any) -> Json:
    """Return a pod, Ready where it has a place; *more* goes into its spec."""
    meta: Json = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "creationTimestamp": AT}
    if owner is not None:
        meta |= {"ownerReferences": [reference(owner)], "labels": owner["spec"]["template"]["metadata"]["labels"]}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **more}
    status: Json = {"phase": "Pending"}
    if place:
        spec["nodeName"] = place
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": AT}]
        status = {"phase": "Running", "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def unschedulable(name: str, cpu: str = "1", **more: Any) -> Json:
    """Return a pod that kube-scheduler has found no node for."""
    found = pod(name, cpu=cpu, **more)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": AT}
    found["status"]["conditions"] = [condition]
    return found


def workload(kind: str, name: str, replicas: int = 1, owner: Json | None = None, **spec: Any) -> Json:
    labels = {"app": name}
    meta: Json = {"name": name, "namespace": "shop", "uid": f"uid-{kind}-{name}", "generation": 1}
    if owner is not None:
        meta["ownerReferences"] = [reference(owner)]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta,
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec},
        "status": {},
    }
