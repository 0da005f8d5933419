"""kube-scheduler: every filter and the default scoring, as :mod:`tightship.scheduler` models them. Pure.

A pod with scheduling gates waits. Without preemption and volume binding: pods that need those wait. A plan does not see
the label of nodes that leave, but kube-scheduler does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tightship.cluster import Snapshot
from tightship.objects import Pod
from tightship.objects.node import LEAVING
from tightship.objects.pod import DEFAULT_SCHEDULER
from tightship.scheduler.scoring import scheduler_choice
from tightship.scheduler.space import PodDemand, Space
from tightship.scheduler.topology import NodeMask
from tightship_simulator.life.changes import Bind, Change, Json, Patch, condition, with_condition


def schedule(snapshot: Snapshot, waiting: Mapping[str, Json], at: str) -> list[Change]:
    """Return bindings of pods that fit, and a condition for those that don't, highest priority and oldest first.

    *waiting* are pods as they are in the store, the unbound ones at least, by ``namespace/name``; *at* is the time in
    RFC 3339.
    """
    if not snapshot.unscheduled:
        return []
    space = Space(snapshot)
    changes: list[Change] = []
    for pod in sorted(snapshot.unscheduled, key=_turn):
        item = waiting.get(pod.key)
        if item is None or pod.gated or pod.deletion is not None or pod.spec.scheduler != DEFAULT_SCHEDULER:
            continue
        ask = space.demand_of(pod)
        why = "can't be judged" if ask.unknown else "no node has room for it that it may use"
        nodes = np.flatnonzero(feasible(space, ask, pod)) if not ask.unknown else np.array([], dtype=np.intp)
        if len(nodes):
            choice = scheduler_choice(space, ask, nodes)
            space.place(ask, choice)
            changes.append(Bind(item, space.names[choice]))
        elif condition(item, "PodScheduled").get("reason") != "Unschedulable":
            message = f"0/{len(space.nodes)} nodes are available: {why}"
            found = with_condition(item, "PodScheduled", "False", at, reason="Unschedulable", message=message)
            changes.append(Patch(item, {"status": {"phase": "Pending", "conditions": found}}, status=True))
    return changes


def feasible(space: Space, ask: PodDemand, pod: Pod) -> NodeMask:
    """Return the nodes of *space* that take *pod*, which asks *ask*, the label of those that leave included."""
    mask, spec = space.feasible(ask), pod.spec
    for number, node in enumerate(space.nodes):
        if node.leaving is None or not mask[number]:
            continue
        labels = {**node.labels, LEAVING: node.leaving}
        selected = all(labels.get(key) == value for key, value in spec.node_selector.items())
        mask[number] = selected and (spec.node_affinity is None or spec.node_affinity.matches(node.name, labels))
    return mask


def _turn(pod: Pod) -> tuple[int, int, str]:
    return -pod.spec.priority, pod.created, pod.key
