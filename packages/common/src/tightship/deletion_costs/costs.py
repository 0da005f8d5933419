"""Deletion costs on the pods of the nodes to go next, so that scale-ins and rollouts empty those nodes first. Pure.

Of its Ready pods a ReplicaSet deletes the one with the lowest ``controller.kubernetes.io/pod-deletion-cost`` first; a
pod without the annotation counts as 0 (``ActivePodsWithRanks`` in kubernetes' ``pkg/controller/controller_utils.go``).
The pods of one node share one cost, and the node that was chosen first has the lowest, so that one node empties after
the other. A second annotation says whose the cost is, and which: a cost without it, or another one, is somebody else's.

Planned nodes that wait for scale-ins and rollouts to empty them, while their pods carry deletion costs. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.objects import Pod
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.selectors import Labels
from tightship.objects.times import format_duration
from tightship.rules.disruption_cost import DELETION_COST, whole_number
from tightship.rules.nodes import draining, owner_elsewhere

OURS = "tightship.dev/deletion-cost"
"""The annotation ``OWNER=COST`` beside a cost that a controller of ours has written; see :attr:`Beside.mark`."""

LOWEST = -1_000_000
"""The cost on the node that was chosen first; it leaves room for a million more.

Karpenter 1.14 and newer adds the 2^27th part of it to the 1 that evicting a pod costs, and calls a node empty on which
nothing costs more than 0 (``EvictionCost`` in ``pkg/utils/disruption/disruption.go``, ``Candidate.IsEmpty`` in
``pkg/controllers/disruption/types.go``): below -2^27 it would delete nodes with all their pods.
"""

MOST_PODS = 500
"""Most pods that carry costs of one controller at a time; the first node gets them however many pods it has."""

_DELETE_BY_COST = frozenset({"ReplicaSet", "ReplicationController"})


class Costs(Struct, frozen=True):
    """Pods that get a cost, in the plan's order, and pods that lose ours.

    *chosen* are the nodes whose pods carry costs after that, with the uids of those pods.
    """

    add: tuple[tuple[Pod, int], ...] = ()
    remove: tuple[Pod, ...] = ()
    chosen: Mapping[str, frozenset[str]] = {}


def share_costs(snapshot: Snapshot, going: Sequence[str], beside: Beside) -> Costs:
    """Return the changes after which the pods of the nodes *going*, in their order, carry costs of ours.

    A pod with a cost of anybody's stays as it is. So does every pod of a node in drain, or that somebody else is
    deleting, because those pods leave anyhow.
    """
    carried: dict[str, list[Pod]] = {}
    for pod in priced(snapshot, beside):
        carried.setdefault(pod.node, []).append(pod)
    chosen: dict[str, list[Pod]] = {}
    count = 0
    for name in going:
        pods = [pod for pod in snapshot.nodes[name].pods if _counts(pod, snapshot)]
        count += len(pods)
        if chosen and count > MOST_PODS:
            break
        chosen[name] = pods
    costs = {name: cost for name in chosen if (cost := _cost(carried.get(name, ()))) is not None}
    highest = max(costs.values(), default=LOWEST - 1)
    add: list[tuple[Pod, int]] = []
    for name, pods in chosen.items():
        fresh = [pod for pod in pods if DELETION_COST not in pod.annotations and OURS not in pod.annotations]
        if fresh and name not in costs:
            highest = costs[name] = min(highest + 1, -1)
        add += [(pod, costs[name]) for pod in fresh]
    over = [name for name in carried if name not in chosen and not _leaves(snapshot, name)]
    ours = {name: {pod.uid for pod in carried.get(name, ())} for name in chosen}
    for pod, _ in add:
        ours[pod.node].add(pod.uid)
    return Costs(
        tuple(add),
        tuple(pod for name in over for pod in carried[name]),
        {name: frozenset(uids) for name, uids in ours.items()},
    )


def priced(snapshot: Snapshot, beside: Beside) -> list[Pod]:
    """Return the pods on nodes of *snapshot* that carry the mark of a cost of ours, and are not terminating."""
    return [
        pod
        for view in snapshot.nodes.values()
        for pod in view.pods
        if pod.annotations and OURS in pod.annotations and pod.deletion is None and _is_ours(pod, beside)
    ]


def _is_ours(pod: Pod, beside: Beside) -> bool:
    return beside.ours(pod.annotations[OURS].partition("=")[0])


def notes_of(mark: str, cost: int) -> dict[str, str]:
    """Return the two annotations of a pod with *cost* of the owner *mark*."""
    return {DELETION_COST: str(cost), OURS: f"{mark}={cost}"}


def removal(annotations: Labels) -> list[dict[str, str]]:
    """Return the JSON patch that takes our mark off a pod with *annotations*, and the cost if that is ours.

    The patch fails if either has changed meanwhile.
    """
    mark = annotations[OURS]
    ours = {OURS: mark}
    if annotations.get(DELETION_COST) == mark.partition("=")[2]:
        ours[DELETION_COST] = annotations[DELETION_COST]
    paths = {f"/metadata/annotations/{key.replace('/', '~1')}": text for key, text in ours.items()}
    tests = [{"op": "test", "path": path, "value": text} for path, text in paths.items()]
    return tests + [{"op": "remove", "path": path} for path in paths]


def _counts(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether a cost on *pod* can matter: its controller goes by costs, and has another pod to choose from."""
    owner = pod.owner
    if owner is None or owner.kind not in _DELETE_BY_COST or pod.deletion is not None or pod.finished:
        return False
    known = snapshot.workloads.get(owner.kind, {}).get(f"{pod.namespace}/{owner.name}")
    return known is None or known.replicas != 1


def _cost(pods: Iterable[Pod]) -> int | None:
    """Return the cost that *pods* of one node carry, ``None`` if none of them has a valid one of ours."""
    return min((cost for pod in pods if (cost := _cost_of(pod)) is not None), default=None)


def _cost_of(pod: Pod) -> int | None:
    """Return the cost that our mark on *pod* tells, ``None`` if it tells no cost that we would write."""
    cost = whole_number(pod.annotations[OURS].partition("=")[2])
    return cost if cost is not None and LOWEST <= cost < 0 else None


def _leaves(snapshot: Snapshot, name: str) -> bool:
    node = snapshot.nodes[name].node
    return draining(node) or owner_elsewhere(node) is not None


class _Seen(Struct, frozen=True):
    """Pods on a node, by uid, and when one of them was last found gone, or the node chosen."""

    pods: frozenset[str]
    since: float


class ScaleIns:
    """Remembers for each chosen node when a pod last left. A new leader knows nothing of that and waits anew."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def waiting(
        self, planned: Sequence[str], chosen: Mapping[str, frozenset[str]], timeout: float, now: float
    ) -> dict[str, Refusal]:
        """Return why nodes of *planned* wait at *now*: *chosen* has the pods with a cost, by node, in the plan's order.

        A node waits until no pod has left for *timeout* seconds. Nodes that are not chosen, because enough pods carry
        costs already, wait while any before them does.
        """
        before, self._seen = self._seen, {}
        found: dict[str, Refusal] = {}
        for name, pods in chosen.items():
            known = before.get(name)
            fresh = known is None or known.pods - pods
            seen = self._seen[name] = _Seen(pods, now if known is None or fresh else known.since)
            left = seen.since + timeout - now
            if pods and left > 0:
                detail = f"{counted(len(pods), 'pod')} may leave by scale-ins, {format_duration(left)} left"
                found[name] = Refusal(Reason.SCALE_IN_EXPECTED, name, detail)
        if found:
            behind = {name for name in planned if name not in chosen}
            first = next(iter(found))
            found |= {name: Refusal(Reason.SCALE_IN_EXPECTED, name, f"after node {first}") for name in behind}
        return {name: found[name] for name in planned if name in found}
