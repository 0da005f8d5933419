"""No node goes that would leave the autoscaler's node group below its minimum size: nobody would delete it. Pure.

The older tools evict such a node's pods all the same, and the empty node stays. Both controllers ask here: for a plan,
at the moment of a claim, and at every look of a drain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from tightship.cluster import Snapshot
from tightship.objects import Node
from tightship.objects.autoscaler_status import NodeGroup
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.claim_budget import nodes_out
from tightship.planning.facts import NodeFacts, not_autoscaled
from tightship.planning.plan import Candidate, Plan, Planner
from tightship.rules.checks import Check
from tightship.rules.karpenter import karpenter_pool
from tightship.rules.node_groups import NodeGroups
from tightship.rules.nodes import NodeRules, left_without, owner_elsewhere


def group_check(group: NodeGroup, left: int) -> Check:
    """Return whether *group* may shrink to *left* nodes."""
    reason = Reason.NODE_GROUP_MIN_SIZE
    if group.problem:
        detail = f"the minimum size of node group {group.name} can't be read: {group.problem}"
        return Check("node group", reason, False, detail)
    detail = f"node group {group.name} would keep {counted(left, 'node')}, its minimum size is {group.minimum}"
    fix = f"lower the minimum size of node group {group.name} to {max(0, left)} where it is set, in the autoscaler"
    return Check("node group", reason, left >= group.minimum, detail, fix)


class GroupSizes:
    """The node groups while a plan grows, over one set of facts."""

    def __init__(self, facts: Mapping[str, NodeFacts]) -> None:
        self._facts = facts
        staying = (fact for fact in facts.values() if not fact.draining and owner_elsewhere(fact.view.node) is None)
        self._nodes = Counter(fact.group.name for fact in staying if fact.group is not None)
        self._planner: Planner | None = None
        self._seen = 0
        self._removed: Counter[str] = Counter()

    def check(self, name: str, removed: int = 0) -> Check | None:
        """Return the check of node *name* once *removed* nodes of its group have gone; ``None`` if nobody asks."""
        group = self._facts[name].group
        if group is None or not (group.minimum or group.problem):
            return None
        return group_check(group, self._nodes[group.name] - removed - 1)

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return the refusal of *candidate* after the removals of *planner*, if its group is at its minimum size."""
        group = self._facts[candidate.name].group
        if group is None:
            return []
        if self._planner is not planner:
            self._planner, self._seen, self._removed = planner, 0, Counter()
        for removal in planner.removals[self._seen :]:
            gone = self._facts[removal.node].group
            if gone is not None:
                self._removed[gone.name] += 1
        self._seen = len(planner.removals)
        check = self.check(candidate.name, self._removed[group.name])
        refusal = None if check is None else check.refusal(candidate.name)
        return [] if refusal is None else [refusal]


def group_room(node: str, facts: Mapping[str, NodeFacts], claimed: Collection[str]) -> Refusal | None:
    """Return why *node* may not be claimed beside *claimed*, ``None`` if its group allows it."""
    group = facts[node].group
    if group is None:
        return None
    mates = {name: fact for name, fact in facts.items() if fact.group is not None and fact.group.name == group.name}
    out = nodes_out(mates, claimed) - {node}
    taken = sum(name not in out and owner_elsewhere(fact.view.node) is not None for name, fact in mates.items())
    return group_check(group, len(mates) - len(out) - taken - 1).refusal(node)


def group_keeps(
    snapshot: Snapshot, node: Node, pool_labels: Iterable[str], rules: NodeRules = NodeRules()
) -> list[Refusal]:
    """Return the refusal of *node*, in drain or not, if it is in no group, or its group needs it for its minimum."""
    groups = NodeGroups(snapshot.autoscaler_statuses, pool_labels)
    group = groups.of(node)
    if group is None:
        return not_autoscaled(node, groups, rules)
    if not (group.minimum or group.problem):
        return []
    left = 0
    for each in left_without(snapshot, node.name):
        mate = groups.of(each)
        left += each.ready and mate is not None and mate.name == group.name
        if left >= group.minimum and not group.problem:
            return []  # a drain asks at every look
    refusal = group_check(group, left).refusal(node.name)
    return [] if refusal is None else [refusal]


def unknown_minimums(plan: Plan, facts: Mapping[str, NodeFacts], told: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the pools of nodes that go by *plan* though nothing tells their group's minimum size.

    *told* says of a pool whether the settings give its minimum.
    """
    going = (facts[each.node] for each in plan.removals if each.node in facts)
    unknown = {fact.pool for fact in going if fact.group is None and karpenter_pool(fact.view.node) is None}
    return tuple(sorted(pool for pool in unknown if not told(pool)))
