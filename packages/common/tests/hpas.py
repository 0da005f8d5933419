"""HPAs, and the pods of Deployments, in a few words: API objects as dicts."""

from typing import Any

from cluster_builder import pod

OLD, NEW = "7d4b9c", "5f6c8d"
"""Hashes of the templates of two revisions."""


def hpa(
    minimum: int = 1,
    desired: int = 0,
    current: int | None = None,
    *,
    name: str = "web",
    maximum: int = 20,
    target: str = "Deployment/web",
    conditions: dict[str, str | tuple[str, str]] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """An HPA; *conditions* are (status, reason) or status by type. A status without *current* was never written."""
    kind, _, of = target.partition("/")
    found = {key: (each, "") if isinstance(each, str) else each for key, each in (conditions or {}).items()}
    listed = [{"type": key, "status": status, "reason": reason} for key, (status, reason) in found.items()]
    if current is not None and not listed:
        listed = [{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "True"}]
    counts = {"desiredReplicas": desired, **({"currentReplicas": current} if current else {})}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"scaleTargetRef": {"kind": kind, "name": of}, "minReplicas": minimum, "maxReplicas": maximum},
        "status": {**counts, "conditions": listed},
    }


def replica(name: str, on: str = "", revision: str = OLD, of: str = "web", **more: Any) -> dict[str, Any]:
    """A pod of revision *revision* of the Deployment *of*; *created* is the second of the hour."""
    created = more.pop("created", 0)
    made = pod(
        name,
        on,
        owner=f"ReplicaSet/{of}-{revision}",
        labels={"app": of, "pod-template-hash": revision},
        **more,
    )
    made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{created:02d}Z"
    return made


def replica_set(revision: str = OLD, of: str = "web", *, owner: str = "Deployment/web") -> dict[str, Any]:
    kind, _, name = owner.partition("/")
    above = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{owner}", "controller": True}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": f"{of}-{revision}", "namespace": "default", "ownerReferences": [above]},
        "spec": {"replicas": 1},
    }
