"""The demo's cluster at nine in the evening: about forty nodes in three pools, and what runs on them. Pure.

A workload with a ``rate`` has traffic and an HPA. Most of those are in the care of the hpa-scaler; one is not, for
comparison. Four pods are stubborn, each in a way of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from tightship_simulator.api.objects import timestamp
from tightship_simulator.life.changes import Json, reference
from tightship_simulator.life.node_autoscaler import NodeGroup
from tightship_simulator.life.workloads import hash_of

POOL = "cloud.google.com/gke-nodepool"
ZONES = ("europe-west4-a", "europe-west4-b", "europe-west4-c")
DO_NOT_DRAIN = "tightship.dev/do-not-drain"
SYSTEM = "tightship"
"""The namespace of the controllers."""
SPARE = 1.25
"""How much more the floor takes a replica to carry than the HPA does: the HPA leads, the floor follows."""

_MEBI_OF_DAEMON, _CPU_OF_DAEMON = 200, 150


class Shape(Struct, frozen=True):
    """A pool: *count* nodes with *cpu* milli-CPU and *memory* MiB to allocate; it keeps *least* of them."""

    pool: str
    machine: str
    count: int
    cpu: int
    memory: int
    least: int


class Work(Struct, frozen=True):
    """A workload: *replicas* of *cpu* milli-CPU and *memory* MiB in *pool*, at nine in the evening.

    *rate* is the traffic (requests a second) that one replica carries, 0 where there is no HPA. *guarded* is whether
    the hpa-scaler looks after it. *budget* is the PodDisruptionBudget's spec without its selector.
    """

    namespace: str
    name: str
    pool: str
    replicas: int
    cpu: int
    memory: int
    rate: float = 0.0
    guarded: bool = True
    budget: Json = {}
    notes: dict[str, str] = {}
    scratch: bool = False

    @property
    def stubborn(self) -> bool:
        """Whether its pods may not be moved."""
        return bool(self.scratch or self.notes or self.budget.get("maxUnavailable") == 0)

    @property
    def peak(self) -> float:
        """Its traffic at nine in the evening, requests a second."""
        return self.replicas * self.rate


SHAPES = (
    Shape("compute", "c3-highcpu-8", 10, 7910, 14_000, 3),
    Shape("general", "e2-standard-8", 18, 7910, 29_000, 5),
    Shape("memory", "n2-highmem-8", 10, 7910, 58_000, 3),
)
_QUARTER = {"maxUnavailable": "25%"}
WORKS = (
    Work("shop", "web", "general", 30, 900, 1800, rate=40, budget=_QUARTER),
    Work("shop", "search", "general", 20, 1000, 3000, rate=25, budget=_QUARTER),
    Work("shop", "checkout", "general", 14, 800, 2000, rate=20, budget=_QUARTER),
    Work("shop", "quote", "general", 12, 600, 1200, rate=30, guarded=False, budget=_QUARTER),
    Work("media", "thumbs", "compute", 22, 1500, 1800, rate=15, budget=_QUARTER),
    Work("media", "feed", "memory", 14, 1200, 8000, rate=50, budget=_QUARTER),
    Work("shop", "cart-cache", "memory", 12, 800, 9000, budget={"minAvailable": 11}),
    Work("media", "transcode", "compute", 10, 900, 1200, budget={"maxUnavailable": 2}),
    Work("ops", "notify", "general", 8, 500, 1500, budget={"maxUnavailable": 1}),
    Work("kube-system", "coredns", "general", 2, 100, 70, budget={"maxUnavailable": 1}),
    Work("ops", "ledger", "general", 1, 500, 2000, budget={"maxUnavailable": 0}),
    Work("ops", "import", "general", 1, 700, 2500, notes={DO_NOT_DRAIN: "true"}),
    Work("ops", "scratch", "compute", 1, 500, 900, scratch=True),
    Work("ops", "archive", "memory", 1, 400, 6000, budget={"maxUnavailable": 0}),
)


def group(shape: Shape) -> NodeGroup:
    """Return the pool as the node autoscaler takes it; it may grow by half."""
    return NodeGroup(shape.pool, _node(shape, f"{shape.pool}-0", ZONES[0]), shape.least, shape.count * 3 // 2)


def objects(
    seed: int, now: datetime, shapes: Sequence[Shape] = SHAPES, works: Sequence[Work] = WORKS
) -> Iterator[Json]:
    """Yield every object, pods bound and Ready; the same for the same *seed* but for its times."""
    rng = random.Random(seed)  # noqa: S311 - a scene, not a secret
    old = timestamp(now - timedelta(hours=30))
    room: dict[str, dict[str, list[int]]] = {}
    for namespace in sorted({work.namespace for work in works} | {SYSTEM}):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    for shape in shapes:
        room[shape.pool] = {}
        for number in range(shape.count):
            name = f"{shape.pool}-{number + 1}"
            node = _node(shape, name, ZONES[number % len(ZONES)])
            node["metadata"] |= {"uid": name, "creationTimestamp": old}
            room[shape.pool][name] = [shape.cpu - _CPU_OF_DAEMON, shape.memory - _MEBI_OF_DAEMON]
            yield node
    yield from _daemons(room, old)
    for work in sorted(works, key=lambda each: (-each.cpu, each.name)):
        yield from _workload(work, _places(rng, work, room[work.pool]), old)


def _places(rng: random.Random, work: Work, room: dict[str, list[int]]) -> list[str]:
    """Return a node for each replica: the emptier of two chosen at random, as an evening leaves them."""
    found = []
    for _ in range(work.replicas):
        fitting = [name for name, (cpu, memory) in room.items() if cpu >= work.cpu and memory >= work.memory]
        # Rather uneven: that is what a day of scaling leaves behind.
        pair = rng.sample(fitting, min(2, len(fitting)))
        best = max(pair, key=lambda name: (room[name][0], name))
        room[best][0] -= work.cpu
        room[best][1] -= work.memory
        found.append(best)
    return found


def _node(shape: Shape, name: str, zone: str) -> Json:
    labels = {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": shape.machine,
        "topology.kubernetes.io/region": zone.rpartition("-")[0],
        "topology.kubernetes.io/zone": zone,
        POOL: shape.pool,
    }
    amounts = {"cpu": f"{shape.cpu}m", "memory": f"{shape.memory}Mi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"demo://{zone}/{name}"},
        "status": {"capacity": {**amounts, "cpu": "8"}, "allocatable": amounts, "conditions": [ready]},
    }


def _daemons(room: dict[str, dict[str, list[int]]], old: str) -> Iterator[Json]:
    spec = _pod_spec("agent", _CPU_OF_DAEMON, _MEBI_OF_DAEMON)
    spec |= {"tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"}
    owner = _thing("apps/v1", "DaemonSet", "kube-system", "node-agent", old)
    marks = {"app": "node-agent"}
    owner["spec"] = {"selector": {"matchLabels": marks}, "template": {"metadata": {"labels": marks}, "spec": spec}}
    yield owner
    for name in (name for pool in room.values() for name in pool):
        yield _pod(f"node-agent-{name}", owner, owner["spec"]["template"], name, old)


def _workload(work: Work, places: list[str], old: str) -> Iterator[Json]:
    marks = {"app": work.name}
    spec = _pod_spec(work.name, work.cpu, work.memory) | {"nodeSelector": {POOL: work.pool}}
    if work.scratch:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    template: Json = {"metadata": {"labels": marks, "annotations": work.notes}, "spec": spec}
    deployment = _thing("apps/v1", "Deployment", work.namespace, work.name, old)
    counted = {"replicas": work.replicas, "selector": {"matchLabels": marks}}
    status = {"replicas": work.replicas, "readyReplicas": work.replicas, "availableReplicas": work.replicas}
    yield {**deployment, "spec": {**counted, "template": template}, "status": status}
    digest = hash_of(template)
    hashed = {**marks, "pod-template-hash": digest}
    owner = _thing("apps/v1", "ReplicaSet", work.namespace, f"{work.name}-{digest}", old)
    owner["metadata"] |= {"labels": hashed, "ownerReferences": [reference(deployment)]}
    owner["spec"] = {
        "replicas": work.replicas,
        "selector": {"matchLabels": hashed},
        "template": {**template, "metadata": {**template["metadata"], "labels": hashed}},
    }
    owner["status"] = status
    yield owner
    for number, place in enumerate(places):
        yield _pod(f"{work.name}-{digest}-{number:02d}", owner, owner["spec"]["template"], place, old)
    if work.budget:
        budget = _thing("policy/v1", "PodDisruptionBudget", work.namespace, work.name, old)
        yield {**budget, "spec": {**work.budget, "selector": {"matchLabels": marks}}}
    if work.rate:
        yield _autoscaler(work, old)


def _autoscaler(work: Work, old: str) -> Json:
    item = _thing("autoscaling/v2", "HorizontalPodAutoscaler", work.namespace, work.name, old)
    if work.guarded:
        prefix = "tightship.dev/hpa-scaler"
        item["metadata"]["annotations"] = {
            prefix: "true",
            f"{prefix}-prometheus-query": f'sum(rate(http_requests_total{{app="{work.name}"}}[1m]))',
            f"{prefix}-requests-per-replica": f"{work.rate * SPARE:g}",
            f"{prefix}-minimum-replicas": "2",
            f"{prefix}-scale-down-max-ratio": "0.34",
        }
    target = {"type": "Utilization", "averageUtilization": 70}
    item["spec"] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": work.name},
        "minReplicas": 2,
        "maxReplicas": round(work.replicas * 1.5),
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
    }
    return item


def _pod(name: str, owner: Json, template: Json, node: str, old: str) -> Json:
    item = _thing("v1", "Pod", owner["metadata"]["namespace"], name, old)
    item["metadata"] |= {**template["metadata"], "ownerReferences": [reference(owner)]}
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": old} for kind in ("PodScheduled", "Ready")]
    status = {"phase": "Running", "startTime": old, "conditions": conditions}
    return {**item, "spec": {**template["spec"], "nodeName": node}, "status": status}


def _pod_spec(name: str, cpu: int, memory: int) -> Json:
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    return {
        "containers": [{"name": name, "image": f"registry.example.com/{name}:1", "resources": {"requests": requests}}]
    }


def _thing(version: str, kind: str, namespace: str, name: str, old: str) -> Json:
    meta = {"namespace": namespace, "name": name, "uid": f"{kind}-{namespace}-{name}".lower(), "creationTimestamp": old}
    return {"apiVersion": version, "kind": kind, "metadata": meta}


__all__ = ["DO_NOT_DRAIN", "POOL", "SHAPES", "SPARE", "SYSTEM", "WORKS", "Shape", "Work", "group", "objects"]
