"""API objects for tests of one rule. What is not said is as in a quiet cluster: nothing stands against a drain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from tightship.cluster import ClusterState, Snapshot
from tightship.objects import Pod, decode

Json = dict[str, Any]

NOW = 1_790_000_000.0
"""The time at which these objects are judged; they are a day old."""

DAY = 86400.0


def when(seconds: float) -> str:
    """Return seconds since 1970 as the API writes them."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def controller(kind: str, name: str) -> Json:
    """Return the reference of a pod to its controller."""
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def workload(kind: str = "ReplicaSet", name: str = "web", namespace: str = "shop", **spec: object) -> Json:
    """Return a controller of pods; *spec* goes into its spec."""
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}, "spec": spec}


def node(
    name: str = "n1",
    *,
    ready: str = "True",
    labels: Json | None = None,
    notes: Json | None = None,
    age: float = DAY,
    allocatable: Json | None = None,
    meta: Json | None = None,
    true: tuple[str, ...] = (),
    **spec: object,
) -> Json:
    """Return a node; *notes* are its annotations, *true* conditions beside Ready that are."""
    metadata = {"name": name, "labels": labels or {}, "annotations": notes or {}, "creationTimestamp": when(NOW - age)}
    conditions = [{"type": "Ready", "status": ready}, *({"type": each, "status": "True"} for each in true)]
    room = {"cpu": "4", "memory": "16Gi", "pods": "110"} if allocatable is None else allocatable
    return {
        "kind": "Node",
        "metadata": metadata | (meta or {}),
        "spec": spec,
        "status": {"allocatable": room, "conditions": conditions},
    }


def pod(
    name: str = "web-1",
    *,
    on: str = "n1",
    namespace: str = "shop",
    owner: Json | None = None,
    naked: bool = False,
    labels: Json | None = None,
    notes: Json | None = None,
    cpu: str = "100m",
    memory: str = "128Mi",
    age: float = DAY,
    ready: bool = True,
    phase: str = "Running",
    deletion: float | None = None,
    **spec: object,
) -> Json:
    """Return a pod of ReplicaSet web; *notes* are its annotations, *deletion* is its ``deletionTimestamp``."""
    leaving = {} if deletion is None else {"deletionTimestamp": when(deletion)}
    owners = [] if naked else [owner or controller("ReplicaSet", "web")]
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": "web"} if labels is None else labels,
            "annotations": notes or {},
            "creationTimestamp": when(NOW - age),
            "ownerReferences": owners,
            **leaving,
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {
            "phase": phase,
            "startTime": when(NOW - age),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def budget(
    name: str = "web",
    *,
    namespace: str = "shop",
    selector: Json | None = None,
    generation: int = 1,
    observed: int = 1,
    failed: str = "",
    status: Json | None = None,
    **spec: object,
) -> Json:
    """Return a PodDisruptionBudget for ``app: web`` that allows one disruption; *selector* ``None`` selects that.

    Without a rule in *spec* there is ``minAvailable: 1``.
    """
    rule = spec if {"minAvailable", "maxUnavailable"} & spec.keys() else {"minAvailable": 1, **spec}
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": failed}
    counts = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    chosen = {"matchLabels": {"app": "web"}} if selector is None else selector
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "generation": generation},
        "spec": {"selector": chosen, **rule},
        "status": {
            **counts,
            **(status or {}),
            "observedGeneration": observed,
            "conditions": [condition] if failed else [],
        },
    }


def autoscaler(minimum: int, *, target: Json | None = None, namespace: str = "shop") -> Json:
    """Return an HPA, of ReplicaSet web unless told otherwise, whose floor is *minimum*; nobody has looked at it yet."""
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "scaleTargetRef": target or {"kind": "ReplicaSet", "name": "web"},
            "minReplicas": minimum,
            "maxReplicas": 100,
        },
    }


def decoded(item: Json) -> Any:
    """Return *item* as the controllers see it."""
    return decode(item["kind"], msgspec.json.encode(item))


def state_of(*items: Json) -> ClusterState:
    """Return the state of a cluster that consists of *items*."""
    state = ClusterState()
    for item in items:
        state.upsert(item["kind"], decoded(item))
    return state


def snapshot(*items: Json) -> Snapshot:
    """Return the snapshot of a cluster that consists of *items*."""
    return state_of(*items).snapshot()


def pod_of(snapshot: Snapshot, name: str = "web-1") -> Pod:
    """Return the pod called *name*, bound or not."""
    bound = [each for view in snapshot.nodes.values() for each in view.pods]
    [found] = [each for each in (*bound, *snapshot.unscheduled) if each.name == name]
    return found


def single_replica() -> list[Json]:
    """Return a node whose only pod is the one replica of a Deployment with a budget, one for it to go to, and all that
    is above the pod, the Deployment last.
    """
    deploy = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-deploy", "controller": True}
    replica_set = workload()
    replica_set["metadata"]["ownerReferences"] = [deploy]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-deploy", "generation": 3},
        "spec": {"replicas": 1, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
        "status": {"observedGeneration": 3, **counts},
    }
    stays = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    none = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    cluster = [node("a"), node("b"), pod(on="a"), pod("db-0", on="b", naked=True, labels={}, notes=stays)]
    cluster += [replica_set, budget(status=none, minAvailable=1)]
    return [*cluster, deployment]
