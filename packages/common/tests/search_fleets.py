"""Generated fleets on which a search matters: mixed GPU nodes, and workloads whose replicas exclude each other."""

from __future__ import annotations

import random
from typing import Any

from cluster_builder import anti_affinity, node, pod

GPU = "nvidia.com/gpu"

OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "web", "namespace": "default", "uid": "uid-ReplicaSet/web"},
    "spec": {"replicas": 1000},
}
"""The controller of all pods."""


def gpu_fleet(seed: int, nodes: int = 120) -> dict[str, Any]:
    """A fleet like openb: few shapes with 0 to 8 GPUs of two models, pods of whole GPUs, a third of it requested."""
    rng = random.Random(seed)
    shapes = [("96", "384Gi", 8, "a"), ("104", "512Gi", 2, "a"), ("64", "256Gi", 2, "b"), ("32", "256Gi", 0, "")]
    items: list[dict[str, Any]] = [OWNER]
    free: list[list[float]] = []
    kinds: list[str] = []
    for number in range(nodes):
        cpu, memory, gpus, model = rng.choices(shapes, weights=[4, 3, 2, 1])[0]
        labels = {"model": model} if model else {}
        items.append(node(f"n{number:04}", cpu, memory, labels=labels, **{GPU: str(gpus)}))
        free.append([float(cpu), float(memory[:-2]), float(gpus)])
        kinds.append(model)
    demand = [(8, 32, 0), (4, 16, 0), (12, 48, 1), (8, 24, 1), (6, 20, 1), (24, 96, 2), (48, 128, 4), (88, 300, 8)]
    for number in range(int(nodes * 1.8)):
        cpu, memory, gpus = rng.choices(demand, weights=[3, 3, 5, 5, 5, 2, 1, 1])[0]
        model = rng.choice(["", "", "a", "b"]) if gpus and gpus <= 2 else ""
        fits = [
            index
            for index, (has_cpu, has_memory, has_gpus) in enumerate(free)
            if has_cpu >= cpu and has_memory >= memory and has_gpus >= gpus and (not model or kinds[index] == model)
        ]
        if not fits or sum(each[2] for each in free) < 0.6 * nodes * 3.9:
            continue
        at = max(fits, key=lambda index: (free[index][2], free[index][0]))
        free[at] = [free[at][0] - cpu, free[at][1] - memory, free[at][2] - gpus]
        selector: dict[str, Any] = {"nodeSelector": {"model": model}} if model else {}
        more = {"requests": {GPU: str(gpus)}} if gpus else {}
        items.append(pod(f"p{number:04}", f"n{at:04}", str(cpu), f"{memory}Gi", **more, **selector))
    return {"kind": "List", "items": items}


def exclusive_fleet(seed: int, nodes: int = 100) -> dict[str, Any]:
    """A fleet in which no node may run two replicas of any workload, half requested, spread as a scheduler spreads."""
    rng = random.Random(seed)
    shapes = [("8", "32Gi"), ("16", "64Gi"), ("16", "128Gi"), ("32", "128Gi")]
    items: list[dict[str, Any]] = [OWNER]
    free: list[list[float]] = []
    for number in range(nodes):
        cpu, memory = rng.choice(shapes)
        items.append(node(f"n{number:04}", cpu, memory))
        free.append([float(cpu), float(memory[:-2])])
    wanted = 0.5 * sum(cpu for cpu, _ in free)
    number = 0
    while wanted > 0:
        number += 1
        cpu, memory = rng.choice([0.5, 1, 1, 2, 3]), rng.choice([1, 2, 4, 8])
        labels = {"app": f"w{number}"}
        used: set[int] = set()
        for replica in range(rng.choice([2, 2, 3, 3, 5, 8, nodes // 8])):
            fits = [
                at
                for at, (has, has_memory) in enumerate(free)
                if at not in used and has >= cpu and has_memory >= memory
            ]
            if not fits:
                break
            at = max(fits, key=lambda each: (free[each][0], -each))
            used.add(at)
            free[at] = [free[at][0] - cpu, free[at][1] - memory]
            wanted -= cpu
            items.append(
                pod(
                    f"w{number}-{replica}",
                    f"n{at:04}",
                    f"{int(cpu * 1000)}m",
                    f"{memory}Gi",
                    labels=labels,
                    affinity=anti_affinity(app=labels["app"]),
                )
            )
    return {"kind": "List", "items": items}
