"""What is known of every node before a plan, whichever controller asks: its pool, its load, the pods a drain would
evict, and everything that stands against draining it that needs neither a plan nor the controller's own gates. Pure.

A controller adds its gates to these facts, and makes candidates of the nodes against which nothing stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.pools import KNOWN_POOL_LABELS, pool_of
from tightship.objects import Node, NodeGroup, Pod
from tightship.objects.drain_record import Phase
from tightship.objects.money import NO_PRICES, NodePrice, Prices, price_of
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan import Candidate, Gates, Judgement, Planner
from tightship.planning.plan.model import Utilization, UtilizationRules, utilization
from tightship.rules.after_cordon import parted, paused, pausing
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.disruption_cost import total_cost
from tightship.rules.evictability import Evictability, EvictionRules
from tightship.rules.limits import Count, count_nodes
from tightship.rules.node_groups import NodeGroups, slice_of
from tightship.rules.nodes import (
    HeldData,
    NodeRules,
    drain_record,
    draining,
    judge_node,
    undeletable,
    virtual_node,
    yielded_for_good,
)
from tightship.rules.waiting import Added


class FactRules(Struct, frozen=True, kw_only=True):
    """What a controller's settings say of all nodes alike.

    *past_budgets* is whether a drain deletes pods past every PodDisruptionBudget, so that none keeps a node.
    """

    nodes: NodeRules = NodeRules()
    eviction: EvictionRules = EvictionRules()
    counted: UtilizationRules = UtilizationRules()
    pool_labels: tuple[str, ...] = KNOWN_POOL_LABELS
    past_budgets: bool = False
    prices: Prices = NO_PRICES


class NodeFacts(Struct, frozen=True):
    """What is known of one node before a plan. *refusals* is all that keeps it, in order.

    *evict* are the pods a drain would evict, *awaits* those that end by themselves and that it would wait for, *stays*
    how many go with the node; *draining* is whether a drain of ours is under way, *price* what the node costs, if that
    is known, *group* the autoscaler's node group, if that is known. *ratio_before* is the CPU ratio before earlier
    rounds of a plan moved pods to the node, ``None`` if none did. *opens* are refusals that can end once the node is
    cordoned, and that a drain waits for.
    """

    view: NodeView
    pool: str
    utilization: Utilization
    draining: bool
    evict: tuple[Pod, ...]
    stays: int
    refusals: tuple[Refusal, ...]
    awaits: tuple[Pod, ...] = ()
    price: NodePrice | None = None
    group: NodeGroup | None = None
    ratio_before: float | None = None
    opens: tuple[Refusal, ...] = ()

    @property
    def cpu_ratio(self) -> float:
        return self.utilization.ratio("cpu")

    @property
    def memory_ratio(self) -> float:
        return self.utilization.ratio("memory")

    @property
    def disruption_cost(self) -> int:
        """What disrupting the pods costs that a drain would evict."""
        return total_cost(self.evict)


def gather(
    snapshot: Snapshot,
    rules: FactRules,
    now: float,
    only: Collection[str] | None = None,
    names: Iterable[str] | None = None,
) -> dict[str, NodeFacts]:
    """Return the facts of each node of *snapshot*, or of the nodes *names*, at *now* (seconds since 1970), of virtual
    nodes none: nothing counts them.

    *only* limits what may be removed to these nodes (a selection on the command line); the rest still receives pods.
    """
    ledger = DisruptionLedger(snapshot)
    pods = Evictability(snapshot, rules.eviction, now, ledger.covers)
    groups, data = NodeGroups(snapshot.autoscaler_statuses, rules.pool_labels), HeldData(snapshot)
    unreadable: dict[str, list[Refusal]] = {}
    for each in snapshot.unreadable:
        if each.kind == "Pod" and each.node:
            refusal = Refusal(Reason.POD_UNREADABLE, each.key, each.problem, f"fix pod {each.key}")
            unreadable.setdefault(each.node, []).append(refusal)

    failed = paused(snapshot, now)

    def build(view: NodeView) -> NodeFacts:
        found = pods.sort(view.pods)
        refusals = [
            *judge_node(view, now, rules.nodes, snapshot.node_pools),
            *undeletable(snapshot, view.node, rules.nodes, now),
            *data.refusals(view, rules.nodes),
            *_selection(view, only),
            *not_autoscaled(view.node, groups, rules.nodes),
            *found.refusals,
            *found.outlasting,
            *unreadable.get(view.name, ()),
        ]
        if not rules.past_budgets:
            refusals += ledger.charge(found.evict)[1]
        refusals, opens = parted(refusals)
        still, opens = pausing(opens, failed, now)
        refusals += still
        return NodeFacts(
            view=view,
            pool=pool_of(view.node, rules.pool_labels),
            utilization=utilization(view, now, rules.counted),
            draining=draining(view.node) and not yielded_for_good(view.node, now),
            evict=found.evict,
            stays=found.stays,
            refusals=tuple(sorted(refusals)),
            opens=tuple(sorted(opens)),
            awaits=found.awaits,
            price=price_of(view.node, rules.prices),
            group=groups.of(view.node),
        )

    views = snapshot.nodes if names is None else {name: snapshot.nodes[name] for name in names}
    return {name: build(view) for name, view in views.items() if virtual_node(view.node) is None}


def added(facts: Mapping[str, NodeFacts]) -> list[Added]:
    """Return when each node was added, its pool and its name."""
    return [(float(fact.view.node.created), fact.pool, name) for name, fact in facts.items()]


def nodes_out(facts: Mapping[str, NodeFacts], claimed: Collection[str] = ()) -> frozenset[str]:
    """Return the nodes that are out: *claimed*, in drain by any of our tools, or not Ready.

    A node that others took from its drain and never finished with does not count.
    """
    taken = {name for name in claimed if name in facts and not _given_back(facts[name])}
    return frozenset(taken | {name for name, fact in facts.items() if fact.draining or not fact.view.node.ready})


def _given_back(fact: NodeFacts) -> bool:
    record = drain_record(fact.view.node)
    return not fact.draining and record is not None and record.phase is Phase.YIELDED


def count_before_plan(facts: Mapping[str, NodeFacts], kinds: Callable[[NodeFacts], Sequence[str]]) -> Count:
    """Return the count of a plan that has removed nothing yet."""
    return _count(facts, kinds, nodes_out(facts))


def count_at_claim(
    node: str,
    facts: Mapping[str, NodeFacts],
    claimed: Collection[str],
    kinds: Callable[[NodeFacts], Sequence[str]],
) -> Count:
    """Return the count when *node* is about to be claimed; *facts* are of the latest snapshot.

    Unlike a plan's, it has what all controllers have *claimed* since, as the cluster-wide ledger says.
    """
    return _count(facts, kinds, nodes_out(facts, claimed) - {node})


def _count(facts: Mapping[str, NodeFacts], kinds: Callable[[NodeFacts], Sequence[str]], out: Collection[str]) -> Count:
    return count_nodes((fact.view.node for fact in facts.values()), lambda node: kinds(facts[node.name]), out)


class CountInPlan:
    """The count of a plan while it grows from *start*."""

    def __init__(self, start: Count) -> None:
        self._start = start
        self._planner: Planner | None = None

    def after(self, planner: Planner) -> Count:
        """Return the count after what *planner* has removed."""
        if self._planner is not planner:
            self._planner, self._seen, self._count = planner, 0, self._start.copied()
        for removal in planner.removals[self._seen :]:
            self._count.goes(removal.node)
        self._seen = len(planner.removals)
        return self._count


def not_autoscaled(node: Node, groups: NodeGroups, rules: NodeRules) -> list[Refusal]:
    """Return the refusal of *node* if Cluster Autoscaler would not delete it: it is in none of its *groups*, or a host
    of a slice of TPUs.
    """
    if Reason.NOT_AUTOSCALED in rules.disabled:
        return []
    topology = slice_of(node)
    if topology:
        detail = f"GKE scales the TPU slice {topology} as a whole, so that nobody would delete one emptied host of it"
        return [Refusal(Reason.NOT_AUTOSCALED, node.name, detail, "leave the slice to GKE")]
    group = groups.left_out(node)
    if not group:
        return []
    detail = f"Cluster Autoscaler has no node group {group}, so that nobody would delete the emptied node"
    fix = f"let Cluster Autoscaler scale node group {group}"
    return [Refusal(Reason.NOT_AUTOSCALED, node.name, detail, fix)]


def _selection(view: NodeView, only: Collection[str] | None) -> list[Refusal]:
    if only is None or view.name in only:
        return []
    return [Refusal(Reason.NOT_SELECTED, view.name, "left out by --selector or --pool", "select the node")]


def plannable(snapshot: Snapshot, rules: FactRules) -> Snapshot:
    """Return what a plan is made on: *snapshot*, without its PodDisruptionBudgets where pods are deleted past them.

    Facts are gathered from the whole, since budgets also tell which kube-system pods may be moved.
    """
    return msgspec.structs.replace(snapshot, budgets=type(snapshot.budgets)()) if rules.past_budgets else snapshot


def candidates_of(facts: Mapping[str, NodeFacts]) -> tuple[Candidate, ...]:
    """Return the nodes that nothing in *facts* keeps."""
    return tuple(
        Candidate(
            name=name,
            pool=fact.pool,
            ratio=fact.cpu_ratio,
            evict=fact.evict,
            stays=fact.stays,
            memory_ratio=fact.memory_ratio,
            price=None if fact.price is None else fact.price.hourly,
            extended=fact.utilization.extended,
            maintenance=fact.view.node.maintenance_planned,
            cost=fact.disruption_cost,
        )
        for name, fact in facts.items()
        if not fact.refusals
    )


def judgement(snapshot: Snapshot, facts: Mapping[str, NodeFacts], gates: Gates) -> Judgement:
    """Return who may go by *facts*, all refusals of the others, and the *gates* while a plan grows."""
    refusals = {name: fact.refusals for name, fact in facts.items() if fact.refusals}
    for name, view in snapshot.nodes.items():
        no_machine = virtual_node(view.node) if name not in facts else None
        if no_machine is not None:
            refusals[name] = (no_machine,)
    # An unreadable node has no facts: nothing is known of its pool, its room or its labels.
    for each in snapshot.unreadable:
        if each.kind == "Node":
            refusal = Refusal(Reason.UNREADABLE, each.name, each.problem, f"fix node {each.name}")
            refusals[each.name] = (refusal,)
    return Judgement(candidates_of(facts), refusals, gates)
