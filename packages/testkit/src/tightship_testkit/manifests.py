"""Small clusters as Lists, in the form in which kubectl prints them."""

from __future__ import annotations

from tightship_testkit.client import Json

POOL = "cloud.google.com/gke-nodepool"
"""The label that names a node's pool."""


def node(name: str, *, cpu: str = "4", **spec: object) -> Json:
    """Return a Ready node."""
    room = {"memory": "8Gi", "pods": "20", "example.com/card": "2"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {
            "capacity": {"cpu": cpu, **room},
            "allocatable": {"cpu": "3900m", **room},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def owner(kind: str, name: str) -> Json:
    """Return an owner reference of a controller."""
    group = {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    return {"apiVersion": group, "kind": kind, "name": name, "uid": "of-old", "controller": True}


def pod(
    name: str,
    node_name: str | None,
    owned_by: Json | None = None,
    labels: dict[str, str] | None = None,
    **spec: object,
) -> Json:
    """Return a pod of one container, which runs if it has a node."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    references = [owned_by] if owned_by else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": "of-old",
            "resourceVersion": "7",
            "labels": labels or {},
            "ownerReferences": references,
        },
        "spec": {
            "containers": [container],
            **({"nodeName": node_name} if node_name else {}),
            **spec,
        },
        "status": {"phase": "Running" if node_name else "Pending"},
    }


def replicas(name: str, nodes: list[str], **labels: str) -> list[Json]:
    """Return pods of one ReplicaSet, one on each of these nodes."""
    return [pod(f"{name}-{i}", n, owner("ReplicaSet", name), labels) for i, n in enumerate(nodes)]


def budget(name: str, available: int | str, **labels: str) -> Json:
    """Return a budget that wants *available* of the pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"minAvailable": available, "selector": {"matchLabels": labels}},
    }


def as_list(*items: Json) -> Json:
    """Return a List."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}
