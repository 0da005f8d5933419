"""The health brake: nothing is drained while the cluster is unhealthy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.node_marks import virtual
from tightship.cluster.snapshot import Usage
from tightship.objects import Node, Pod
from tightship.objects.counting import counted, some
from tightship.objects.drain_record import Finished, owner_mark
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration
from tightship.rules.nodes import owner_elsewhere
from tightship.scheduler.space import Space


class HealthRules(Protocol):
    """What a cluster may show before nothing is drained any more; times are in seconds."""

    @property
    def not_ready_count(self) -> int: ...
    @property
    def not_ready_share(self) -> float: ...
    @property
    def api_failures(self) -> int: ...
    @property
    def stranded_after(self) -> float: ...
    @property
    def stranded_window(self) -> float: ...


def brake(
    snapshot: Snapshot, finished: Sequence[Finished], keys: HealthRules, now: float, api_failures: int
) -> Refusal | None:
    """Return why nothing at all is drained, with all causes in the detail; ``None`` while the cluster is healthy.

    *api_failures* counts passes in a row in which the API server failed.
    """
    causes = [*_not_ready(snapshot, keys), *_stranded(snapshot, finished, keys, now)]
    if api_failures > keys.api_failures:
        failed = counted(api_failures, "pass", "passes")
        causes.append(f"the API server failed {failed} in a row, and at most {keys.api_failures} may fail")
    return Refusal(Reason.CLUSTER_UNHEALTHY, "cluster", "; ".join(causes)) if causes else None


def _not_ready(snapshot: Snapshot, keys: HealthRules) -> list[str]:
    """Nodes on their way out normally stop being Ready, and virtual ones say little: neither side counts them."""

    def counts(node: Node) -> bool:
        return owner_elsewhere(node) is None and virtual(node) is None

    names = [view.name for view in snapshot.nodes.values() if not view.node.ready and counts(view.node)]
    if len(names) <= keys.not_ready_count:
        return []
    nodes = [view.node for view in snapshot.nodes.values() if counts(view.node)]
    if len(names) <= max(keys.not_ready_count, round(keys.not_ready_share * len(nodes), 9)):
        return []
    limit = f"{keys.not_ready_count} or {100 * keys.not_ready_share:g}%"
    nodes_not = counted(len(names), f"of {counted(len(nodes), 'node')} is", f"of {counted(len(nodes), 'node')} are")
    return [f"{nodes_not} not Ready ({some(names)}), at most {limit} may be"]


def _stranded(snapshot: Snapshot, finished: Sequence[Finished], keys: HealthRules, now: float) -> list[str]:
    """Pods that have found no place since the last drain: the next drain would add to them.

    Only pods of controllers whose pods were evicted by drains count: no other pod waits because of us. A DaemonSet's
    pod can run only on its own node, and an autoscaler adds no node for an expendable pod.
    """
    last = max((each.at for each in finished), default=None)
    if last is None or now > last + keys.stranded_window:
        return []
    lately = [each for each in finished if now <= each.at + keys.stranded_window]
    waiting = [
        pod
        for pod in snapshot.unscheduled
        # Creation times are whole seconds.
        if pod.created >= int(last)
        and now - pod.created >= keys.stranded_after
        and not pod.gated
        and not pod.daemon
        and not pod.expendable
        and pod.deletion is None
        and pod.spec.scheduler in snapshot.schedulers
        and _displaced(pod, lately)
    ]
    names = [pod.key for pod in _could_run(snapshot, waiting)]
    if not names:
        return []
    since = format_duration(keys.stranded_after)
    pods = counted(len(names), "pod created since the last drain has", "pods created since the last drain have")
    return [f"{pods} had no node for {since} or longer ({some(names)})"]


def _displaced(pod: Pod, drains: Sequence[Finished]) -> bool:
    """Whether one of *drains* may have evicted a pod of the controller of *pod*."""
    mark = None if pod.owner is None else owner_mark(pod.owner.uid)
    return any(each.displaced is None or mark in each.displaced for each in drains)


def _could_run(snapshot: Snapshot, pods: Sequence[Pod]) -> list[Pod]:
    """Return those of *pods* that some node of the cluster could run if that node were empty.

    A pod that requests what no node has says nothing about the room that drains have left.
    """
    if not pods:
        return []
    empty = {name: NodeView(view.node, (), Usage()) for name, view in snapshot.nodes.items()}
    space = Space(msgspec.structs.replace(snapshot, nodes=empty, unscheduled=()))
    return [pod for pod in pods if space.feasible(space.demand_of(pod)).any()]
