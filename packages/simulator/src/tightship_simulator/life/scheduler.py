"""kube-scheduler: every filter and the default scoring, as :mod:`tightship.planning.placement` models them. Pure.

A pod with scheduling gates waits. One with a nominated node is tried there first, past scoring; until it is bound its
room there is kept for it, also while it is gated, from pods of no higher priority. Without preemption and volume
binding: pods that need those wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from tightship.core.objects import Pod
from tightship.core.objects.pod import DEFAULT_SCHEDULER
from tightship.planning.cluster import Snapshot
from tightship.planning.placement.scoring import scheduler_choice
from tightship.planning.placement.space import PodDemand, Space
from tightship.planning.placement.topology import NodeMask
from tightship_simulator.life.changes import Bind, Change, Json, Patch, condition, with_condition


def schedule(snapshot: Snapshot, waiting: Mapping[str, Json], at: str) -> list[Change]:
    """Return bindings of pods that fit, and a condition for those that don't, highest priority and oldest first.

    *waiting* are pods as they are in the store, the unbound ones at least, by ``namespace/name``; *at* is the time in
    RFC 3339.
    """
    if not snapshot.unscheduled:
        return []
    space = Space(snapshot)
    nominated = {each.uid: each for each in _nominations(space, snapshot)}
    changes: list[Change] = []
    for pod in sorted(snapshot.unscheduled, key=_turn):
        item = waiting.get(pod.key)
        if item is None or pod.gated or pod.deletion is not None or pod.spec.scheduler != DEFAULT_SCHEDULER:
            continue
        ask = space.demand_of(pod)
        why = "can't be judged" if ask.unknown else "no node has room for it that it may use"
        kept = [each for each in nominated.values() if each.keeps_from(pod)]
        nodes = np.flatnonzero(_feasible(space, ask, kept)) if not ask.unknown else np.array([], dtype=np.intp)
        if len(nodes):
            mine = nominated.pop(pod.uid, None)
            choice = mine.node if mine is not None and mine.node in nodes else scheduler_choice(space, ask, nodes)
            space.place(ask, choice)
            changes.append(Bind(item, space.names[choice]))
        elif condition(item, "PodScheduled").get("reason") != "Unschedulable":
            message = f"0/{len(space.nodes)} nodes are available: {why}"
            found = with_condition(item, "PodScheduled", "False", at, reason="Unschedulable", message=message)
            changes.append(Patch(item, {"status": {"phase": "Pending", "conditions": found}}, status=True))
    return changes


class _Nomination(Struct, frozen=True):
    """A pod that is to go to *node* (its number), as far as *node* takes it."""

    uid: str
    priority: int
    ask: PodDemand
    node: int

    def keeps_from(self, pod: Pod) -> bool:
        """Whether its room is kept from *pod* (``addGENominatedPods`` in the framework of kube-scheduler)."""
        return self.uid != pod.uid and self.priority >= pod.spec.priority


def _nominations(space: Space, snapshot: Snapshot) -> Iterator[_Nomination]:
    for pod in snapshot.unscheduled:
        node = space.index.get(pod.nominated_node)
        if node is None or pod.deletion is not None or pod.spec.scheduler != DEFAULT_SCHEDULER:
            continue
        if (ask := space.demand_of(pod)).unknown is None:
            yield _Nomination(pod.uid, pod.spec.priority, ask, node)


def _feasible(space: Space, ask: PodDemand, nominated: list[_Nomination]) -> NodeMask:
    """Return the nodes that take a pod both with and without those that are *nominated*."""
    mask = space.feasible(ask)
    if nominated:
        mark = space.mark()
        for each in nominated:
            space.place(each.ask, each.node)
        mask = mask & space.feasible(ask)
        space.rollback(mark)
    return mask


def _turn(pod: Pod) -> tuple[int, int, str]:
    return -pod.spec.priority, pod.created, pod.key
