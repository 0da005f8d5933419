"""The Cluster Autoscaler by its rules: nodes for pods that wait, and fewer when some are not needed. Pure.

As the real one (field notes: ``--scale-down-unneeded-time`` 10 minutes, ``--node-delete-delay-after-taint`` 5 s,
eviction for 2 minutes): a node is tainted and cordoned before it goes, nothing goes while pods wait, and a minimum is
kept: a pool that has its least is not looked at. It looks once for a place of each pod that would have to move. Pods of
CapacityBuffers that would fit nowhere have nodes added, and no node goes that the others need. Unlike the real one, one
node that is not empty is drained at a time, and DaemonSets' pods are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.pools import pool_of
from tightship.objects import Node, Pod, decode
from tightship.planning.demand import with_headroom
from tightship.planning.facts import FactRules, gather
from tightship.scheduler.fitting import fit_all
from tightship.scheduler.scoring import best_fit
from tightship.scheduler.space import Space
from tightship_simulator.life.changes import (
    Change,
    Create,
    Delete,
    Evict,
    Json,
    Patch,
    condition,
    leaving,
)
from tightship_simulator.life.growing import Pool, missing_nodes
from tightship_simulator.life.index import BOOTING

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


class Rules(Struct, frozen=True):
    """Seconds, and the share of a node's CPU or memory, the larger, below which it may go though it is not empty."""

    unneeded: float = 600.0
    taint_delay: float = 5.0
    eviction: float = 120.0
    threshold: float = 0.5


class NodeGroup(Struct, frozen=True):
    """A pool as its cloud knows it: *template* is what a new Node looks like but for its name."""

    name: str
    template: Json
    least: int
    most: int

    def pool(self) -> Pool:
        """Return it with its shape as the judgement reads it."""
        item = {**self.template, "metadata": {**self.template["metadata"], "name": self.name}}
        shape = decode("Node", msgspec.json.encode(item))
        assert isinstance(shape, Node)
        return Pool(self.name, shape, self.least, self.most)


class NodeAutoscaler:
    """Remembers since when nodes are unneeded or on their way out, in seconds of the clock it is given."""

    def __init__(self, groups: Sequence[NodeGroup], rules: Rules) -> None:
        self._groups = {group.name: group for group in groups}
        self._pools = {group.name: group.pool() for group in groups}
        self._rules = rules
        # The label of nodes that leave, as the template of each group has it.
        self._labels: dict[str, str | None] = {}
        self._unneeded: dict[str, float] = {}
        self._going: dict[str, float] = {}
        self._made = 0
        self._judged: tuple[Snapshot | None, list[str]] = (None, [])

    def step(self, snapshot: Snapshot, nodes: Mapping[str, Json], pods: Mapping[str, Json], now: float) -> list[Change]:
        """Return what becomes of nodes at *now*; *nodes* by name and *pods* by key are as they are in the store."""
        snapshot = with_headroom(snapshot)
        counts = dict.fromkeys(self._pools, 0)
        for view in snapshot.nodes.values():
            pool = pool_of(view.node)
            if pool in counts and view.name not in self._going:
                counts[pool] += 1
        changes = self._removals(snapshot, nodes, pods, now)
        waiting = [pod for pod in snapshot.unscheduled if pod.deletion is None and _unschedulable(pods.get(pod.key))]
        growth = self._growth(snapshot, nodes, waiting, counts)
        if waiting or growth:
            # A scale-up that is wanted puts scale-down off for the whole loop.
            self._unneeded.clear()
            return changes + growth
        return changes + self._begin(snapshot, nodes, counts, now)

    def _growth(
        self, snapshot: Snapshot, nodes: Mapping[str, Json], waiting: list[Any], counts: Mapping[str, int]
    ) -> list[Change]:
        coming = [name for name, node in nodes.items() if BOOTING in (node["metadata"].get("labels") or {})]
        self._labels |= _copied(snapshot)
        shapes = {
            name: msgspec.structs.replace(pool.shape, leaving=self._labels.get(name))
            for name, pool in self._pools.items()
        }
        offered = {
            name: (msgspec.structs.replace(pool, shape=shapes[name]), counts[name])
            for name, pool in self._pools.items()
        }
        wanted = [*waiting, *_buffered(snapshot)]
        return [
            Create(self._new(self._groups[name], nodes)) for name in missing_nodes(snapshot, wanted, coming, offered)
        ]

    def _new(self, group: NodeGroup, nodes: Mapping[str, Json]) -> Json:
        while True:
            self._made += 1
            name = f"{group.name}-new-{self._made}"
            if name not in nodes:
                break
        template = group.template
        meta = template["metadata"]
        labels = {**(meta.get("labels") or {}), "kubernetes.io/hostname": name, BOOTING: "true"}
        spec = template.get("spec") or {}
        # As the node lifecycle controller has it while a node is not Ready.
        taints = [*(spec.get("taints") or ()), {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        status = {
            **template["status"],
            "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}],
        }
        return {
            "apiVersion": "v1", "kind": "Node", "metadata": {**meta, "name": name, "labels": labels},
            "spec": {**spec, "taints": taints}, "status": status,
        }  # fmt: skip

    def _begin(self, snapshot: Snapshot, nodes: Mapping[str, Json], counts: dict[str, int], now: float) -> list[Change]:
        """Taint nodes that have been unneeded for long enough."""
        found: list[Change] = []
        unneeded: dict[str, float] = {}
        if self._judged[0] is not snapshot:
            self._judged = snapshot, self._candidates(snapshot, counts)
        for name in self._judged[1]:
            view, item = snapshot.nodes[name], nodes.get(name)
            pool = pool_of(view.node)
            if name in self._going or item is None or leaving(item) or BOOTING in view.node.labels:
                continue
            if self._kept(view, counts):
                continue
            since = unneeded[name] = self._unneeded.get(name, now)
            busy = not _empty(view) and any(
                not _empty(snapshot.nodes[each]) for each in self._going if each in snapshot.nodes
            )
            if now - since < self._rules.unneeded or busy:
                continue
            self._going[name] = now
            counts[pool] -= 1
            found.append(_tainted(item, now))
        self._unneeded = unneeded
        return found

    def _kept(self, view: NodeView, counts: Mapping[str, int]) -> bool:
        """Whether the node stays whatever it holds: its pool has its least already, or it may never go."""
        pool = pool_of(view.node)
        group = self._pools.get(pool)
        if group is None or counts.get(pool, 0) <= group.least:
            return True
        return view.node.annotations.get(SCALE_DOWN_DISABLED) == "true"

    def _candidates(self, snapshot: Snapshot, counts: Mapping[str, int]) -> list[str]:
        """Return empty nodes, and then those under the threshold whose pods have a place elsewhere; without them all
        pods of buffers that have a place must keep one.
        """
        found = self._movable(snapshot, counts)
        buffered = _buffered(snapshot)
        if not buffered:
            return found
        space, kept = Space(snapshot), list[str]()
        lacking = _without_place(space, buffered)
        for name in found:
            mark, column = space.mark(), space.index[name]
            space.close(column)
            asks = [space.demand_of(pod) for pod in snapshot.nodes[name].pods if not (pod.daemon or pod.mirror)]
            for ask in asks:
                space.remove(ask, column)
            if fit_all(space, asks, retries=0, explain=False).complete and _without_place(space, buffered) <= lacking:
                kept.append(name)
            else:
                space.rollback(mark)
        return kept

    def _movable(self, snapshot: Snapshot, counts: Mapping[str, int]) -> list[str]:
        mine = {name: view for name, view in snapshot.nodes.items() if not self._kept(view, counts)}
        empty = [name for name, view in mine.items() if _empty(view)]
        light = [
            name
            for name, view in mine.items()
            if not _empty(view) and not view.node.unschedulable and load_of(view) < self._rules.threshold
        ]
        if not light:
            return empty
        shown = msgspec.structs.replace(snapshot, nodes={name: snapshot.nodes[name] for name in light})
        facts = gather(shown, FactRules(), now=0.0)
        space = Space(snapshot)
        for name in sorted(light, key=lambda each: load_of(snapshot.nodes[each])):
            if facts[name].refusals:
                continue
            mark, column = space.mark(), space.index[name]
            space.close(column)
            asks = [space.demand_of(pod) for pod in facts[name].evict]
            for ask in asks:
                space.remove(ask, column)
            if fit_all(space, asks, retries=0, explain=False).complete:
                empty.append(name)
            else:
                space.rollback(mark)
        return empty

    def _removals(
        self, snapshot: Snapshot, nodes: Mapping[str, Json], pods: Mapping[str, Json], now: float
    ) -> list[Change]:
        """Go on with nodes that are tainted: evict what is left, delete what is empty, give up what takes too long."""
        found: list[Change] = []
        for name, since in list(self._going.items()):
            item, view = nodes.get(name), snapshot.nodes.get(name)
            if item is None or view is None or leaving(item):
                del self._going[name]
            elif now - since < self._rules.taint_delay:
                continue
            elif _empty(view):
                found.append(Delete(item))
                del self._going[name]
            elif now - since > self._rules.taint_delay + self._rules.eviction:
                found.append(_given_back(item))
                del self._going[name]
            else:
                found += [
                    Evict(pods[pod.key])
                    for pod in view.pods
                    if pod.key in pods and not pod.daemon and not pod.mirror and pod.deletion is None
                ]
        return found


def _copied(snapshot: Snapshot) -> dict[str, str | None]:
    """Return by pool the label of nodes that leave of the node after which the group's template is made.

    That is the first that is Ready and schedulable; without one, the last template stays
    (``MixedTemplateNodeInfoProvider`` in processors/nodeinfosprovider).
    """
    found: dict[str, str | None] = {}
    for view in snapshot.nodes.values():
        node = view.node
        if node.ready and not node.unschedulable and all(each.key != TO_BE_DELETED for each in node.taints):
            found.setdefault(pool_of(node), node.leaving)
    return found


def _buffered(snapshot: Snapshot) -> list[Pod]:
    """Return the pods for which CapacityBuffers keep room, made last of all that wait."""
    return [
        msgspec.structs.replace(each.pod, name=f"{each.buffer}-{number}", created=1 << 40)
        for each in snapshot.headroom
        if each.pod is not None
        for number in range(each.count)
    ]


def _without_place(space: Space, pods: Sequence[Pod]) -> int:
    """Return how many of *pods* have no place in *space* when all others have theirs."""
    mark, lacking = space.mark(), 0
    for ask in (space.demand_of(pod) for pod in pods):
        room = np.flatnonzero(space.feasible(ask))
        if len(room):
            space.place(ask, best_fit(space, ask, room))
        else:
            lacking += 1
    space.rollback(mark)
    return lacking


def load_of(view: NodeView) -> float:
    """Return the larger of the node's CPU and memory requests over allocatable, DaemonSets' pods left out."""
    usage, room = view.usage, view.node.allocatable
    return max(
        (usage.requested.get(each, 0) - usage.daemon.get(each, 0)) / max(1, room.get(each, 0))
        for each in ("cpu", "memory")
    )


def _empty(view: NodeView) -> bool:
    return all(pod.daemon or pod.mirror for pod in view.pods)


def _unschedulable(pod: Json | None) -> bool:
    return pod is not None and condition(pod, "PodScheduled").get("reason") == "Unschedulable"


def _tainted(item: Json, now: float) -> Patch:
    taints = [*((item.get("spec") or {}).get("taints") or ()), _taint(now)]
    return Patch(item, {"spec": {"unschedulable": True, "taints": taints}}, guarded=True)


def _taint(now: float) -> Json:
    return {"key": TO_BE_DELETED, "value": str(int(now)), "effect": "NoSchedule"}


def _given_back(item: Json) -> Patch:
    taints = [each for each in (item.get("spec") or {}).get("taints") or () if each.get("key") != TO_BE_DELETED]
    return Patch(item, {"spec": {"unschedulable": None, "taints": taints or None}}, guarded=True)


__all__ = ["TO_BE_DELETED", "NodeAutoscaler", "NodeGroup", "Rules", "load_of"]
