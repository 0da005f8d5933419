"""Clusters that change at random, for properties that hold from one snapshot to the next."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tightship.cluster import ClusterState, NodeView, Snapshot
from tightship.objects import KINDS, Node, Pod, decode
from tightship.objects.selectors import Taint
from tightship_simulator import random_cluster
from tightship_simulator.generate import NOW, off_peak_cluster
from tightship_testkit.client import Json

AT = NOW.timestamp()
"""A time after the creation of every object, in seconds since 1970."""
_TAINTS = (
    Taint("node.kubernetes.io/unschedulable", "NoSchedule"),
    Taint("tightship.dev/candidate", "PreferNoSchedule", "x"),
)


def histories(seeds: Sequence[int], length: int = 5) -> Iterator[Iterator[Snapshot]]:
    """Yield for each of *seeds* the snapshots of one cluster, with a few changes between them."""
    for seed in seeds:
        rng = random.Random(seed)  # noqa: S311
        yield _history(_cluster(seed), rng, length)


def _cluster(seed: int) -> Json:
    if seed % 10 == 8:
        return off_peak_cluster(seed, 24, pods=300)
    if seed % 10 == 9:
        return off_peak_cluster(seed, 24, pods=300, conflicts=150)
    return random_cluster(seed)


def _history(cluster: Json, rng: random.Random, length: int) -> Iterator[Snapshot]:
    state = ClusterState()
    for item in cluster["items"]:
        if item["kind"] in KINDS:
            state.upsert(item["kind"], decode(item["kind"], msgspec.json.encode(item)))
    for _ in range(length):
        yield state.snapshot()
        for _ in range(rng.choice((0, 1, 3, 8))):
            _change(state, rng)


def _change(state: ClusterState, rng: random.Random) -> None:
    snapshot = state.snapshot()
    views = list(snapshot.nodes.values())
    view, what = rng.choice(views), rng.random()
    if what < 0.65 and view.pods:
        _change_pod(state, rng, rng.choice(view.pods), views)
    elif what < 0.8 and len(views) > 2:
        _change_node(state, rng, view.node)
    elif what < 0.9 and len(snapshot.budgets):
        budget = rng.choice(list(snapshot.budgets))
        state.upsert("PodDisruptionBudget", replace(budget, disruptions_allowed=rng.randrange(3)))
    else:
        kind = rng.choice(list(snapshot.workloads))
        workload = rng.choice(list(snapshot.workloads[kind].values()))
        if rng.random() < 0.5:
            state.delete(kind, workload.namespace, workload.name)
        else:
            state.upsert(kind, replace(workload, replicas=(workload.replicas or 0) + 1))


def _change_pod(state: ClusterState, rng: random.Random, pod: Pod, views: Sequence[NodeView]) -> None:
    match rng.randrange(6):
        case 0:
            state.upsert("Pod", replace(pod, ready=not pod.ready))
        case 1:
            state.delete("Pod", pod.namespace, pod.name)
        case 2:
            state.upsert("Pod", replace(pod, deletion=int(AT) + rng.randrange(200)))
        case 3:
            state.upsert("Pod", replace(pod, name=f"{pod.name}-w{rng.randrange(10**6)}", node="", phase="Pending"))
        case 4:
            state.upsert("Pod", replace(pod, requests={**pod.requests, "cpu": pod.requests.get("cpu", 0) + 50}))
        case _:
            moved = replace(pod, name=f"{pod.name}-m{rng.randrange(10**6)}", node=rng.choice(views).name)
            state.upsert("Pod", moved)


def _change_node(state: ClusterState, rng: random.Random, node: Node) -> None:
    match rng.randrange(6):
        case 0:
            state.upsert("Node", replace(node, unschedulable=not node.unschedulable))
        case 1 | 2:
            state.upsert("Node", replace(node, taints=() if node.taints else (rng.choice(_TAINTS),)))
        case 3:
            zone = {"topology.kubernetes.io/zone": rng.choice(("z1", "z2"))}
            state.upsert("Node", replace(node, labels={**node.labels, **zone}))
        case 4:
            state.delete("Node", "", node.name)
        case _:
            kept = {**node.annotations, "tightship.dev/do-not-drain": "true"}
            state.upsert("Node", replace(node, annotations=kept))
