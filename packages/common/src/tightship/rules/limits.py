"""How many nodes must stay, and how many may be out at once: one rule that a plan, a claim and a drain ask alike. Pure.

A :class:`Limit` is about the nodes of one kind: those of a pool, of a node group, of the cluster. A :class:`Count` has
how many nodes of each kind stay and are out at one moment; the three moments differ only in the nodes they count:

* a plan: what the snapshot shows, less the nodes planned before;
* a claim: what the latest snapshot shows, and what all controllers have claimed since;
* a drain: the nodes that remain once all that goes before the node has gone (:func:`left_without`).

Minimums shorten a plan. Budgets set the pace, not the direction: only a claim asks them, and ``explain`` shows them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.node_marks import virtual
from tightship.objects import Node
from tightship.objects.autoscaler_status import NodeGroup
from tightship.objects.counting import counted
from tightship.objects.drain_record import DRAIN_ANNOTATION, UNDER_WAY, Phase
from tightship.objects.pod import CORDON, DRAINING
from tightship.objects.reasons import Check, Reason, Refusal
from tightship.rules.nodes import drain_record, draining, owner_elsewhere

CLUSTER = "the cluster"
"""The kind of every node."""

_CLUSTER_BUDGET = "cluster's budget"

Kinds = Callable[[Node], Sequence[str]]
"""The kinds of a node."""


class Limit(Struct, frozen=True, kw_only=True):
    """At least *least* nodes of one *kind* stay or, if there is a *most*, the node's *takes* and those that are out
    are no more than *most*.

    *gate* names the limit for people, *reason* is why a node may not go. *detail* and *fix* say what stays or is out,
    and the smallest change after which the node may go.
    """

    gate: str
    kind: str
    reason: Reason
    detail: Callable[[int], str]
    fix: Callable[[int], str]
    least: float = 0
    most: int | None = None
    takes: int = 1

    def check(self, count: Count, node: str) -> Check:
        """Return whether *node* may go at the moment of *count*."""
        many = count.without(node, self.kind) if self.most is None else count.out[self.kind]
        may = many >= self.least if self.most is None else many + self.takes <= self.most
        return Check(self.gate, self.reason, may, self.detail(many), self.fix(many))


class Count(Struct):
    """How many nodes of each kind there are at one moment: all *nodes*, those of them that are *out*, and those that
    *stay*. *staying* has the kinds of the latter by name.
    """

    nodes: Counter[str]
    out: Counter[str]
    stay: Counter[str]
    staying: dict[str, Sequence[str]]

    def copied(self) -> Count:
        """Return the same count, to be changed apart."""
        return Count(self.nodes, self.out, self.stay.copy(), self.staying.copy())

    def stays(self, node: str, kinds: Sequence[str]) -> None:
        """Count *node*, which is of *kinds*, as one that stays."""
        self.stay.update(kinds)
        self.staying[node] = kinds

    def goes(self, node: str) -> None:
        """Count *node* as gone."""
        self.stay.subtract(self.staying.pop(node, ()))

    def without(self, node: str, kind: str) -> int:
        """Return how many nodes of *kind* stay once *node* has gone."""
        return self.stay[kind] - (kind in self.staying.get(node, ()))


def count_nodes(nodes: Iterable[Node], kinds: Kinds, out: Collection[str] = ()) -> Count:
    """Return the count of *nodes*, of which those named in *out* are out.

    The others stay, except for those that somebody else has taken: whoever deletes a node may be slow, so such a node
    leaves the budget after a while, but it never counts as staying.
    """
    count = Count(Counter(), Counter(), Counter(), {})
    for node in nodes:
        found = kinds(node)
        count.nodes.update(found)
        if node.name in out:
            count.out.update(found)
        elif owner_elsewhere(node) is None:
            count.stays(node.name, found)
    return count


class NodeBudget(Protocol):
    """A number or a percentage of nodes; ``str()`` gives it as users write it."""

    def allows(self, nodes: int) -> int:
        """Return how many of *nodes* may be out at once."""


def node_budget(budget: NodeBudget | None, kind: str, count: Count, flag: str = "") -> Limit:
    """Return the limit to nodes of *kind* that are out at once; without a *budget* it is one."""
    allowed, written = (1, "1") if budget is None else (budget.allows(count.nodes[kind]), str(budget))
    return Limit(
        gate=f"{kind.removeprefix('the ').split(maxsplit=1)[0]}'s budget",
        kind=kind,
        reason=Reason.BUDGET_EXHAUSTED,
        most=allowed,
        detail=lambda out: (
            f"{kind} may have {counted(allowed, 'node')} out at once ({written}), {counted(out, 'is', 'are')} out"
        ),
        fix=lambda _: f"raise the budget ({flag})" if flag else "",
    )


def group_kind(group: NodeGroup | None) -> tuple[str, ...]:
    """Return the kind of the nodes of *group*, nothing if it is unknown."""
    return () if group is None else (f"node group {group.name}",)


def zone_budget(budget: NodeBudget | None, node: Node, count: Count) -> tuple[Limit, ...]:
    """Return the limit to nodes of the zone of *node* that are out at once, nothing without a *budget* or a zone."""
    return () if budget is None else tuple(node_budget(budget, kind, count) for kind in zone_kind(node))


def zone_kind(node: Node) -> tuple[str, ...]:
    """Return the kind of the nodes in the zone of *node*, nothing if it has none."""
    zone = node.labels.get("topology.kubernetes.io/zone", "")
    return (f"zone {zone}",) if zone else ()


def group_minimum(group: NodeGroup | None) -> tuple[Limit, ...]:
    """Return the minimum size of the autoscaler's *group*, nothing if there is none.

    Nobody would delete a node that leaves its group below its minimum size. The older tools evict such a node's pods
    all the same, and the empty node stays.
    """
    if group is None or not (group.minimum or group.problem):
        return ()
    [kind] = group_kind(group)
    keeps = f"its minimum size is {group.minimum}"
    lower = f"lower the minimum size of {kind} to"
    unreadable = f"the minimum size of {kind} can't be read: {group.problem}"
    return (
        Limit(
            gate="node group",
            kind=kind,
            reason=Reason.NODE_GROUP_MIN_SIZE,
            least=math.inf if group.problem else group.minimum,
            detail=lambda left: unreadable if group.problem else f"{kind} would keep {counted(left, 'node')}, {keeps}",
            fix=lambda left: "" if group.problem else f"{lower} {max(0, left)} where it is set, in the autoscaler",
        ),
    )


def claimable(node: str, claimed: Collection[str], checks: Iterable[Check]) -> Refusal | None:
    """Return the first of *checks* that refuses the claim of *node* beside the nodes *claimed*, ``None`` if none does.

    *checks* are asked at the moment of the claim. Where no other node may go either, the refusal is the cluster's.
    """
    if node in claimed:
        return Refusal(Reason.DRAIN_IN_PROGRESS, node, "another drain has claimed the node")
    closed = next((each for each in checks if not each.open), None)
    whole = closed is not None and closed.gate == _CLUSTER_BUDGET
    return None if closed is None else closed.refusal(CLUSTER if whole else node)


def count_in_drain(snapshot: Snapshot, node: Node, limits: Iterable[Limit], kinds: Kinds) -> Count:
    """Return the count at a look of the drain of *node*, as far as the minimums *limits* need it: a drain asks at every
    look.
    """
    count = count_nodes((), kinds)
    asked = [each for each in limits if each.least < math.inf]
    for each in left_without(snapshot, node.name) if asked else ():
        if each.ready:
            count.stays(each.name, kinds(each))
        if all(count.without(node.name, limit.kind) >= limit.least for limit in asked):
            break
    return count


def left_without(snapshot: Snapshot, name: str) -> Iterator[Node]:
    """Yield the nodes of *snapshot* that remain once node *name* and all nodes that go before it have gone.

    Nodes that others take away go before it, and so do nodes in drain that were claimed earlier: of several drains only
    the last has to respect a minimum. Nodes claimed later are yielded as they were before their drains.
    """
    at = snapshot.nodes.get(name)
    mine = None if at is None else drain_record(at.node)
    turn = (mine.entered(Phase.CLAIMED) or 0.0, name) if mine is not None and mine.owns_node else (math.inf, name)
    for other, view in snapshot.nodes.items():
        node, record = view.node, drain_record(view.node)
        if other == name or owner_elsewhere(node) is not None or virtual(node) is not None:
            continue
        if record is None or not record.owns_node:
            if not draining(node):
                yield node
            continue
        later = record.phase in UNDER_WAY and (record.entered(Phase.CLAIMED) or 0.0, other) > turn
        if later or record.phase is Phase.RESTORING:
            taints = tuple(each for each in node.taints if each.key not in (DRAINING.key, CORDON.key))
            bare = {key: text for key, text in node.annotations.items() if key != DRAIN_ANNOTATION}
            yield msgspec.structs.replace(node, taints=taints, annotations=bare, unschedulable=False)
