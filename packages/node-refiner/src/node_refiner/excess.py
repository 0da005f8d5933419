"""How many nodes a cluster could do without, by CPU and memory requests. Pure.

The figure is SAP node-refiner's: what all counted nodes have left, in nodes of the size of the candidate at hand; of
CPU and memory the smaller counts. Requests are kube-scheduler's, where the older controller read ``spec.containers``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from tightship.core.objects import Node
from tightship.core.resources import Resources
from tightship.core.selectors import Taint
from tightship.planning.cluster.state import add
from tightship.planning.facts import NodeFacts
from tightship.planning.nodes import draining, owner_elsewhere

SOFT = "PreferNoSchedule"
"""The effect of a taint that keeps no pod away, and so no node out of the count."""


class Excess(Struct, frozen=True):
    """How many nodes like *node* could be done without: by CPU, by memory, and by both (*nodes*).

    A resource of which the node has nothing to allocate says nothing: infinity.
    """

    node: str
    cpu: float
    memory: float

    @property
    def nodes(self) -> float:
        """The smaller of the two."""
        return min(self.cpu, self.memory)

    @property
    def scarcer(self) -> str:
        """The resource with the smaller figure, for people; CPU where both are the same."""
        return "CPU" if self.cpu <= self.memory else "memory"


class Counted(Struct, frozen=True):
    """The counted nodes together: how *many*, and their milli-CPU and bytes of memory, requested and allocatable."""

    many: int = 0
    cpu_requested: int = 0
    cpu_allocatable: int = 0
    memory_requested: int = 0
    memory_allocatable: int = 0

    def excess(self, node: Node) -> Excess:
        """Return how many nodes like *node* these could do without."""
        allocatable = node.allocatable
        return Excess(
            node.name,
            cpu=_per_node(self.cpu_allocatable - self.cpu_requested, allocatable.get("cpu", 0)),
            memory=_per_node(self.memory_allocatable - self.memory_requested, allocatable.get("memory", 0)),
        )

    def without(self, fact: NodeFacts) -> Counted:
        """Return the rest when the counted node of *fact* has been drained and deleted.

        What its pods request moves to the rest, but for DaemonSet and mirror pods, which go with the node.
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


def count(facts: Iterable[NodeFacts], starting_on: Mapping[str, Resources] = {}) -> Counted:
    """Return the sums over those of *facts* whose nodes are counted.

    What replicas about to start will request of a node (*starting_on*) is requested already.
    """
    requested: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    many = 0
    for fact in facts:
        if is_counted(fact.view.node):
            many += 1
            add(requested, fact.utilization.requested)
            add(requested, starting_on.get(fact.view.name, {}))
            add(allocatable, fact.view.node.allocatable)
    return Counted(
        many=many,
        cpu_requested=requested.get("cpu", 0),
        cpu_allocatable=allocatable.get("cpu", 0),
        memory_requested=requested.get("memory", 0),
        memory_allocatable=allocatable.get("memory", 0),
    )


def hard_taints(node: Node) -> list[Taint]:
    """Return the taints of *node* that keep pods away."""
    return [taint for taint in node.taints if taint.effect != SOFT]


def remains(node: Node) -> bool:
    """Whether *node* is one that the cluster keeps: Ready, with CPU to allocate, not cordoned, not in drain, not being
    taken away.

    The older controller counts every node there is, so that its minimum was one lower with each node on its way out.
    """
    usable = node.ready and node.allocatable.get("cpu", 0) > 0
    return usable and not node.unschedulable and not draining(node) and owner_elsewhere(node) is None


def is_counted(node: Node) -> bool:
    """Whether *node* is one of those whose room and load make up the excess: it remains, and no taint keeps pods away.

    The older controller's rule, "no taint and not unschedulable", but that a soft taint forbids nothing: Cluster
    Autoscaler puts one on nodes that it may remove, and so does node-compactor on its next. A node that is not Ready
    has a taint of the node lifecycle controller within seconds anyway.
    """
    return remains(node) and not hard_taints(node)


def _per_node(left: int, allocatable: int) -> float:
    return left / allocatable if allocatable > 0 else math.inf
