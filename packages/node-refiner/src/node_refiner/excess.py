"""How many nodes a cluster could do without, by CPU and memory requests. Pure.

The figure is SAP node-refiner's: the free resources of all counted nodes, in nodes of the present candidate's size; the
smaller of CPU and memory counts. Requests are kube-scheduler's (the older controller read ``spec.containers``). As in
the older controller, tainted nodes do not count, because nobody knows their purpose.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from tightship.cluster.node_marks import mark_of
from tightship.cluster.state import add
from tightship.objects import Node
from tightship.objects.pod import CORDON, DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.resources import Resources
from tightship.objects.selectors import Taint
from tightship.planning.facts import NodeFacts
from tightship.rules.nodes import (
    KARPENTER_DISRUPTED,
    KARPENTER_DISRUPTING,
    TO_BE_DELETED,
    draining,
    owner_elsewhere,
)

SOFT = "PreferNoSchedule"
"""The effect of a taint that keeps no pod away, and so leaves the node in the count."""


_ACCOMPANY: Mapping[str, frozenset[Reason]] = {
    CORDON.key: frozenset({Reason.CORDONED, Reason.DRAIN_IN_PROGRESS}),
    DRAINING.key: frozenset({Reason.DRAIN_IN_PROGRESS}),
    TO_BE_DELETED: frozenset({Reason.TO_BE_DELETED}),
    KARPENTER_DISRUPTED: frozenset({Reason.KARPENTER_DISRUPTED}),
    KARPENTER_DISRUPTING: frozenset({Reason.KARPENTER_DISRUPTED}),
    "node.kubernetes.io/not-ready": frozenset({Reason.NOT_READY}),
    "node.kubernetes.io/unreachable": frozenset({Reason.NOT_READY}),
}
"""Taints that accompany a state with a reason of its own."""


_PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "node-role.kubernetes.io/",
    TO_BE_DELETED,
    KARPENTER_DISRUPTED,
    KARPENTER_DISRUPTING,
)
"""What the keys of taints begin with that come and go by themselves, or mark control planes: they make no pool."""


class Excess(Struct, frozen=True):
    """How many nodes like *node* the cluster could do without: by CPU, by memory, and by both (*nodes*).

    If the node has nothing to allocate of a resource, that resource's figure is infinite.
    """

    node: str
    cpu: float
    memory: float

    @property
    def nodes(self) -> float:
        """The smaller of both figures."""
        return min(self.cpu, self.memory)

    @property
    def scarcer(self) -> str:
        """The resource with the smaller figure, for people; CPU if both are the same."""
        return "CPU" if self.cpu <= self.memory else "memory"


class Counted(Struct, frozen=True):
    """The sums of the counted nodes: how *many*, and their milli-CPU and bytes of memory, requested and allocatable."""

    many: int = 0
    cpu_requested: int = 0
    cpu_allocatable: int = 0
    memory_requested: int = 0
    memory_allocatable: int = 0

    def excess(self, node: Node) -> Excess:
        """Return how many nodes like *node* the counted nodes could do without."""
        allocatable = node.allocatable
        return Excess(
            node.name,
            cpu=_per_node(self.cpu_allocatable - self.cpu_requested, allocatable.get("cpu", 0)),
            memory=_per_node(self.memory_allocatable - self.memory_requested, allocatable.get("memory", 0)),
        )

    def without(self, fact: NodeFacts) -> Counted:
        """Return the sums after the counted node of *fact* has been drained and deleted.

        The requests of its pods move to the other nodes, except DaemonSet and mirror pods, which go with the node.
        """
        node, usage = fact.view.node, fact.view.usage
        leaves: dict[str, int] = {}
        add(leaves, usage.daemon)
        add(leaves, usage.mirror)
        return Counted(
            many=self.many - 1,
            cpu_requested=max(0, self.cpu_requested - leaves.get("cpu", 0)),
            cpu_allocatable=self.cpu_allocatable - node.allocatable.get("cpu", 0),
            memory_requested=max(0, self.memory_requested - leaves.get("memory", 0)),
            memory_allocatable=self.memory_allocatable - node.allocatable.get("memory", 0),
        )


def sums(facts: Iterable[NodeFacts], starting_on: Mapping[str, Resources] = {}, pool: str = "") -> Counted:
    """Return the sums over those of *facts* whose nodes count: those without taints, or those of a dedicated *pool*.

    The future requests of replicas about to start (*starting_on*, by node) count as requested already.
    """
    counted = [
        (fact.view.node.allocatable, fact.utilization.requested, starting_on.get(fact.view.name, {}))
        for fact in facts
        if (remains(fact.view.node) and dedicated(fact.view.node) == pool if pool else is_counted(fact.view.node))
    ]

    def requested(resource: str) -> int:
        return sum(now.get(resource, 0) + soon.get(resource, 0) for _, now, soon in counted)

    def allocatable(resource: str) -> int:
        return sum(amounts.get(resource, 0) for amounts, _, _ in counted)

    return Counted(
        many=len(counted),
        cpu_requested=requested("cpu"),
        cpu_allocatable=allocatable("cpu"),
        memory_requested=requested("memory"),
        memory_allocatable=allocatable("memory"),
    )


def hard_taints(node: Node) -> list[Taint]:
    """Return the taints of *node* that keep pods away."""
    return [taint for taint in node.taints if taint.effect != SOFT]


def remains(node: Node) -> bool:
    """Whether the cluster keeps *node*: Ready, with CPU to allocate, not cordoned, not in drain, not being deleted.

    The older controller counted every node, so each node on its way out lowered its minimum by one.
    """
    usable = node.ready and node.allocatable.get("cpu", 0) > 0
    return usable and not node.unschedulable and not draining(node) and owner_elsewhere(node) is None


def is_counted(node: Node) -> bool:
    """Whether the room and load of *node* are part of the excess: it remains, and no taint keeps pods away.

    The older controller's rule was "no taint and not unschedulable". Here a soft taint forbids nothing: Cluster
    Autoscaler puts one on nodes that it may remove, and so does node-compactor on its next nodes. A NotReady node gets
    a taint of the node lifecycle controller within seconds anyway.
    """
    return remains(node) and not hard_taints(node)


def dedicated(node: Node) -> str:
    """Return the taints that make *node* one of a dedicated pool, as text; empty without any.

    A taint of a drain of ours does not count, and a node with a taint that comes and goes is of no such pool.
    """
    taints = [taint for taint in hard_taints(node) if taint.key not in (CORDON.key, DRAINING.key)]
    if any(taint.key.startswith(_PASSING) or mark_of(taint) is not None for taint in taints):
        return ""
    return ", ".join(sorted(map(str, taints)))


def taint_of_others(node: Node) -> Refusal | None:
    """Return the refusal of a node that somebody has tainted for their own reasons."""
    return tainted(node, frozenset({Reason.NODE_LIFECYCLE}).union(*_ACCOMPANY.values()))


def tainted(node: Node, stated: Collection[Reason]) -> Refusal | None:
    """Return the refusal of a node with hard taints, except taints whose reason has been *stated* already."""
    taints = [each for each in hard_taints(node) if not _ACCOMPANY.get(each.key, frozenset()).intersection(stated)]
    if Reason.NODE_LIFECYCLE in stated:
        taints = [each for each in taints if mark_of(each) is None]
    if not taints:
        return None
    fixes = " ".join(f"{each.key}:{each.effect}-" for each in taints)
    detail = f"carries the taint {', '.join(map(str, taints))}"
    return Refusal(Reason.TAINTED, node.name, detail, f"kubectl taint node {node.name} {fixes}")


def _per_node(left: int, allocatable: int) -> float:
    return left / allocatable if allocatable > 0 else math.inf
