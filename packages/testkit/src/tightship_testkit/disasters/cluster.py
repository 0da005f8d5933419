"""The objects that a scenario begins with."""

from __future__ import annotations

from tightship_simulator.life.node_autoscaler import NodeGroup
from tightship_testkit.disasters.scenario import Budget, Node, Pool, Scenario, Workload
from tightship_testkit.disasters.world import Json

POOL = "cloud.google.com/gke-nodepool"
SHOP = "shop"
LATE = "example.com/late"
"""Annotation of workloads that replace a pod only once it has gone."""
_AGE = "2026-01-05T06:00:00Z"
"""When everything was made that is there from the beginning: two hours before."""


def objects(scenario: Scenario) -> list[Json]:
    """Return all objects but the controllers' ConfigMaps."""
    pools = {each.name: each for each in scenario.pools}
    found = [node(each, pools[each.pool]) for each in scenario.nodes if each.pool in pools]
    for each in scenario.workloads:
        found += [workload(each)]
    names = {each.name for each in scenario.workloads}
    return found + [budget(each) for each in scenario.budgets if each.workload in names] + scenario.objects


def groups(scenario: Scenario) -> list[NodeGroup]:
    """Return the pools as the autoscaler knows them."""
    return [
        NodeGroup(pool.name, node(Node(name="template", pool=pool.name), pool), pool.least, pool.most)
        for pool in scenario.pools
    ]


def node(spec: Node, pool: Pool) -> Json:
    """Return a Ready node."""
    room = {"cpu": pool.cpu, "memory": pool.memory, "pods": "20"}
    more: Json = {"taints": spec.taints} if spec.taints else {}
    if spec.cordoned:
        more["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": spec.name,
            "labels": {"kubernetes.io/hostname": spec.name, POOL: pool.name, **pool.labels},
            "annotations": dict(spec.annotations),
            "creationTimestamp": _AGE,
        },
        "spec": more,
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def template(spec: Workload) -> Json:
    """Return the template of a workload's pods."""
    container = {
        "name": "main",
        "image": "registry.example.com/app",
        "resources": {"requests": {"cpu": spec.cpu, "memory": spec.memory}},
    }
    meta: Json = {"labels": {"app": spec.name, **spec.labels}, "annotations": dict(spec.annotations)}
    if spec.finalizers:
        meta["finalizers"] = list(spec.finalizers)
    return {"metadata": meta, "spec": {"containers": [container], **spec.spec}}


def workload(spec: Workload) -> Json:
    """Return a workload; what runs in the cluster makes its pods."""
    made = template(spec)
    meta: Json = {"name": spec.name, "namespace": SHOP, "creationTimestamp": _AGE}
    if spec.marks:
        meta["annotations"] = dict(spec.marks)
    if spec.kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {**made["metadata"], **meta}, "spec": made["spec"]}
    count: Json = {} if spec.kind == "DaemonSet" else {"replicas": spec.replicas}
    return {
        "apiVersion": "apps/v1",
        "kind": spec.kind,
        "metadata": meta,
        "spec": {**count, **_ordering(spec), "selector": {"matchLabels": {"app": spec.name}}, "template": made},
    }


def _ordering(spec: Workload) -> Json:
    if LATE in spec.annotations:
        return {"podReplacementPolicy": "TerminationComplete"}
    if spec.kind != "StatefulSet":
        return {}
    return {"podManagementPolicy": "Parallel" if "example.com/parallel" in spec.annotations else "OrderedReady"}


def budget(spec: Budget) -> Json:
    """Return a PodDisruptionBudget."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": spec.name, "namespace": SHOP},
        "spec": {"selector": {"matchLabels": {"app": spec.workload}}, **spec.spec},
    }


__all__ = [
    "LATE", "POOL", "SHOP", "budget", "groups", "node", "objects", "template", "workload",
]  # fmt: skip
