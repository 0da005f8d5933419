"""Generated clusters for ``bench/live.py --cluster``, the same on any day, as ``kubectl get -o json`` prints them.

    python bench/clusters.py FOLDER     writes apart.json, tight.json and equal.json

In *apart* each workload excludes its own replicas from a node by required anti-affinity, and half of the memory of
four shapes of nodes is requested. In *tight* four fifths of it are, and nothing excludes anything. *equal* has nodes of
one size. Replicas are spread as a scheduler spreads them: each goes where most memory is free.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"
SHAPES = ((16, 64), (8, 32), (16, 128), (32, 128))
"""CPUs and GiB of memory."""


class Recipe(NamedTuple):
    """How a cluster is made: *full* is the part of memory requested, *apart* whether replicas exclude each other."""

    seed: int
    shapes: int
    nodes: int
    full: float
    replicas: tuple[int, int]
    apart: bool


RECIPES = {
    "apart": Recipe(7701, 4, 150, 0.5, (2, 24), True),
    "tight": Recipe(7702, 3, 150, 0.8, (1, 12), False),
    "equal": Recipe(7703, 1, 150, 0.55, (1, 8), False),
}


def cluster(recipe: Recipe) -> Json:
    """Return the cluster of *recipe*."""
    rng = random.Random(recipe.seed)
    room: list[list[float]] = [list(rng.choice(SHAPES[: recipe.shapes])) for _ in range(recipe.nodes)]
    items = [_node(at, cpu, memory) for at, (cpu, memory) in enumerate(room)]
    wanted, app = recipe.full * sum(memory for _, memory in room), 0
    while wanted > 0:
        cpu, memory = rng.choice((0.1, 0.25, 0.5, 1)), rng.choice((1, 2, 4, 8))
        taken: set[int] = set()
        app += 1
        for replica in range(rng.randint(*recipe.replicas)):
            fits = [at for at, (has, left) in enumerate(room) if has >= cpu and left >= memory and at not in taken]
            if not fits:
                break
            most = max(room[at][1] for at in fits)
            at = rng.choice([at for at in fits if room[at][1] == most])
            if recipe.apart:
                taken.add(at)
            room[at][0] -= cpu
            room[at][1] -= memory
            wanted -= memory
            items.append(_pod(app, replica, at, cpu, memory, recipe.apart))
        else:
            continue
        if not taken:
            break
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}


def _node(at: int, cpu: float, memory: float) -> Json:
    name = f"n{at:03}"
    amounts = {"cpu": f"{cpu:g}", "memory": f"{memory:g}Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"node-{at}",
            "labels": {HOST: name},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


def _pod(app: int, replica: int, at: int, cpu: float, memory: float, apart: bool) -> Json:
    labels = {"app": f"w{app}"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w{app}-1", "uid": f"rs-{app}", "controller": True}
    requests = {"cpu": f"{int(cpu * 1000)}m", "memory": f"{memory}Gi"}
    spec: Json = {
        "nodeName": f"n{at:03}",
        "containers": [{"name": "main", "image": "registry.example/app:1", "resources": {"requests": requests}}],
    }
    if apart:
        term = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    meta = {
        "name": f"w{app}-1-{replica}",
        "namespace": "shop",
        "uid": f"pod-{app}-{replica}",
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [owner],
    }
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Running", "conditions": ready},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, recipe in RECIPES.items():
        made = cluster(recipe)
        (options.folder / f"{name}.json").write_text(json.dumps(made))
        print(f"{name}: {recipe.nodes} nodes, {len(made['items']) - recipe.nodes} pods")
    return 0


if __name__ == "__main__":
    sys.exit(main())
