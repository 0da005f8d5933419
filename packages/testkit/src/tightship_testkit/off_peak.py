"""Clusters between two thresholds: too full for the Cluster Autoscaler's, not for a compactor's.

The Cluster Autoscaler considers a node for removal when its pods request less than a share (0.5 by default) of its
allocatable CPU and memory. Off-peak, a cluster may rest above that on every node and still have nodes to spare.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tightship_testkit.client import Json
from tightship_testkit.manifests import POOL

NAMESPACE = "shop"
CPU = 4000  # allocatable milli-CPU of each node
MEMORY = 2  # MiB requested with each milli-CPU; half of what a node has, so that CPU decides
SIZES = (300, 200, 150, 100, 50)  # milli-CPU of one pod, by workload; all multiples of the last
STEP = SIZES[-1]


def off_peak(pools: Mapping[str, int], *, low: float = 0.5, high: float = 0.7, seed: int = 0) -> Json:
    """Return a List for ``load`` of the control plane: pools by name and number of nodes, all nodes of one shape.

    On every node pods request more than *low* and less than *high* of the CPU. They belong to ReplicaSets (as those
    of Deployments do; ``load`` leaves Deployments out) that keep to one pool, each with a budget that allows one
    disruption: by turns ``maxUnavailable: 1`` and ``minAvailable`` of all but one.
    """
    rng = random.Random(seed)  # noqa: S311
    least, most = int(low * CPU / STEP) + 1, -int(-high * CPU // STEP) - 1
    if least > most:
        raise ValueError(f"no multiple of {STEP}m lies between {low:g} and {high:g} of {CPU}m")
    items: list[Json] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    for pool, count in pools.items():
        nodes = [f"{pool}-{number}" for number in range(count)]
        items += [_node(name, pool) for name in nodes]
        places: dict[int, list[str]] = {size: [] for size in SIZES}
        for node in nodes:
            left = rng.randint(least, most) * STEP
            while left:
                size = rng.choice([each for each in SIZES if each <= left])
                places[size].append(node)
                left -= size
        for number, (size, where) in enumerate(places.items()):
            if where:
                items += _workload(f"{pool}-{size}m", pool, size, where, by_minimum=number % 2 == 1)
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _node(name: str, pool: str) -> Json:
    room = {"cpu": f"{CPU}m", "memory": f"{2 * MEMORY * CPU}Mi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, POOL: pool}},
        "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _workload(name: str, pool: str, size: int, nodes: list[str], *, by_minimum: bool) -> list[Json]:
    """Return a ReplicaSet, its pods bound to these nodes, and its budget."""
    labels = {"app": name}
    selector = {"matchLabels": labels}
    requests = {"cpu": f"{size}m", "memory": f"{size * MEMORY}Mi"}
    spec: Json = {
        "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
        "nodeSelector": {POOL: pool},
    }
    # The uid is of this file only: it ties pods to their owner until both have true ones.
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}", "controller": True}
    place: Json = {"namespace": NAMESPACE, "labels": labels}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {**place, "name": name, "uid": f"uid-{name}"},
        "spec": {
            "replicas": len(nodes),
            "selector": selector,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    bound = {"minAvailable": len(nodes) - 1} if by_minimum else {"maxUnavailable": 1}
    counts = {"expectedPods": len(nodes), "currentHealthy": len(nodes), "desiredHealthy": len(nodes) - 1}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {**place, "name": name, "generation": 1},
        "spec": {**bound, "selector": selector},
        "status": {**counts, "disruptionsAllowed": 1, "observedGeneration": 1},
    }
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**place, "name": f"{name}-{number}", "ownerReferences": [owner]},
            "spec": {**spec, "nodeName": node},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for number, node in enumerate(nodes)
    ]
    return [replica_set, budget, *pods]
