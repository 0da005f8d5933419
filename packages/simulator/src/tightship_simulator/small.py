"""Tiny clusters, each made for one point of kube-scheduler's behaviour that a random cluster once brought to light."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_CREATED = "2026-01-01T00:00:00Z"


def spread_that_ignores_a_node() -> Json:
    """A spread over zones that honours taints; node n2, alone in its zone, is not selected and so no domain of it."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "nodeTaintsPolicy": "Honor",
    }
    spec = {"topologySpreadConstraints": [spread], "nodeSelector": {"class": "a"}}
    nodes = [node("n0", "z0", {"class": "a"}), node("n1", "z1", {"class": "a"}), node("n2", "z2")]
    return cluster(*nodes, *replicas("web", ["n0", "n1"], spec))


def companion_on_the_same_node() -> Json:
    """A pod that must be beside a pod of another workload, whose only one is here; the larger is tried first."""
    beside = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "leader"}}}
    return cluster(
        node("n0"), node("n1"),
        *replicas("leader", ["n0"], {}, cpu="100m"),
        *replicas("follower", ["n0"], _affinity("podAffinity", beside), cpu="500m"),
    )  # fmt: skip


def minimum_raised_by_a_neighbour() -> Json:
    """A pod whose spread has no room in its only zone, until a smaller pod it counts has gone to the other zone."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"tier": "front"}},
        "nodeAffinityPolicy": "Ignore",
    }
    nodes = [node("n0", "z0"), node("n1", "z0", {"class": "a"}), node("n2", "z1", {"class": "b"})]
    front = {"tier": "front"}
    return cluster(
        *nodes,
        *replicas("held", ["n1", "n1"], {"nodeSelector": {"class": "a"}}, labels=front),
        *replicas("tied", ["n0"], {"nodeSelector": {"class": "a"}, "topologySpreadConstraints": [spread]}, cpu="500m"),
        *replicas("free", ["n0"], {"nodeSelector": {"class": "b"}}, labels=front),
    )


def together_but_in_turn() -> Json:
    """Two pods that must share a node, and a budget that wants one of them running all the time."""
    beside = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "pair"}}}
    status = {
        "observedGeneration": 1, "expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1,
    }  # fmt: skip
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "pair", "namespace": "shop", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "pair"}}},
        "status": status,
    }
    return cluster(node("n0"), node("n1"), *replicas("pair", ["n0", "n0"], _affinity("podAffinity", beside)), budget)


def last_of_its_group() -> Json:
    """A single pod with affinity to its own kind, as a workload scaled down for the night leaves it."""
    beside = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "lonely"}}}
    return cluster(node("n0"), node("n1"), *replicas("lonely", ["n0"], _affinity("podAffinity", beside)))


def cluster(*items: Json) -> Json:
    """Return a List."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    return {"apiVersion": "v1", "kind": "List", "items": [space, *items]}


def node(name: str, zone: str = "z0", labels: Json | None = None, *, cpu: str = "2") -> Json:
    """Return a Ready node."""
    room = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone, **(labels or {})}, "creationTimestamp": _CREATED},
        "spec": {},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def replicas(app: str, nodes: list[str], spec: Json, *, cpu: str = "100m", labels: Json | None = None) -> list[Json]:
    """Return a ReplicaSet in namespace ``shop`` and its running pods, one for each entry of *nodes*."""
    all_labels = {"app": app, **(labels or {})}
    container = {"name": "main", "image": "registry.example.com/app", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], **spec}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": app, "namespace": "shop", "uid": f"uid-{app}"},
        "spec": {
            "replicas": len(nodes),
            "selector": {"matchLabels": {"app": app}},
            "template": {"metadata": {"labels": all_labels}, "spec": spec},
        },
    }
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"uid-{app}", "controller": True}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{app}-{number}",
                "namespace": "shop",
                "labels": all_labels,
                "ownerReferences": [reference],
                "creationTimestamp": _CREATED,
            },
            "spec": {**spec, "nodeName": name},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for number, name in enumerate(nodes)
    ]
    return [owner, *pods]


def _affinity(kind: str, term: Json) -> Json:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
