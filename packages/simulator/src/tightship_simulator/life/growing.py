"""How many nodes of which pool the Cluster Autoscaler would add for pods that wait. Pure.

Nodes that are already on their way take pods first. What is then left gets nodes one at a time, each of the first pool
(by name) whose shape takes the pod at hand and that is not at its maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.snapshot import Usage
from tightship.objects import Node, Pod
from tightship.scheduler.scoring import best_fit
from tightship.scheduler.space import Space
from tightship_simulator.life.scheduler import feasible


class Pool(Struct, frozen=True):
    """A pool of nodes: the *shape* of a new one, and how few and how many nodes it may have."""

    name: str
    shape: Node
    least: int
    most: int


def missing_nodes(
    snapshot: Snapshot, waiting: Sequence[Pod], coming: Sequence[str], pools: Mapping[str, tuple[Pool, int]]
) -> list[str]:
    """Return the pool of each node to add for *waiting* pods, in turn.

    *coming* are nodes that are not Ready yet but will be. *pools* has each pool with how many nodes it has now.
    """
    if not waiting:
        return []
    imagined = {
        name: [f"{name}/new-{number:04d}" for number in range(min(pool.most - count, len(waiting)))]
        for name, (pool, count) in sorted(pools.items())
    }
    space = _space(snapshot, set(coming), {name: pools[name][0] for name in imagined}, imagined)
    added: list[str] = []
    for pod in sorted(waiting, key=lambda each: (-each.spec.priority, each.created, each.key)):
        ask = space.demand_of(pod)
        if ask.unknown:
            continue
        room = np.flatnonzero(feasible(space, ask, pod))
        if len(room):
            space.place(ask, best_fit(space, ask, room))
            continue
        for name in sorted(imagined):
            if not imagined[name]:
                continue
            column = space.index[imagined[name][0]]
            space.open[column] = True
            if space.accepts(ask, column) and feasible(space, ask, pod)[column]:
                space.place(ask, column)
                added.append(imagined[name].pop(0))
                break
            space.open[column] = False
    return [name.partition("/")[0] for name in added]


def _space(
    snapshot: Snapshot, coming: set[str], pools: Mapping[str, Pool], imagined: Mapping[str, Sequence[str]]
) -> Space:
    """Return the cluster with nodes that are *coming* as if they were Ready, and *imagined* ones, which are shut."""
    nodes = dict(snapshot.nodes)
    for name in coming & nodes.keys():
        view = nodes[name]
        nodes[name] = NodeView(msgspec.structs.replace(view.node, ready=True, taints=()), view.pods, view.usage)
    for pool, names in imagined.items():
        shape = pools[pool].shape
        for name in names:
            labels = {**shape.labels, "kubernetes.io/hostname": name}
            node = msgspec.structs.replace(shape, name=name, uid=name, labels=labels, ready=True)
            nodes[name] = NodeView(node, (), Usage())
    space = Space(msgspec.structs.replace(snapshot, nodes=dict(sorted(nodes.items()))))
    for name in (name for names in imagined.values() for name in names):
        space.open[space.index[name]] = False
    return space


__all__ = ["Pool", "missing_nodes"]
