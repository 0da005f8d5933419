"""What is known of every node before a plan, whichever controller asks: its pool, its load, the pods a drain would
evict, and everything that stands against draining it that needs neither a plan nor the controller's own gates. Pure.

A controller adds its gates to these facts, and makes candidates of the nodes against which nothing stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import Struct

from tightship.core.drain_record import DRAIN_ANNOTATION
from tightship.core.objects import Node, NodeGroup, Owner, Pod, PodTemplate
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import NodeView, Snapshot
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.disruption_cost import total_cost
from tightship.planning.evictability import Evictability
from tightship.planning.eviction_rules import EvictionRules
from tightship.planning.karpenter import timed
from tightship.planning.node_groups import NodeGroups
from tightship.planning.nodes import (
    NodeRules,
    draining,
    judge_node,
    undeletable,
    virtual_node,
    yielded_for_good,
)
from tightship.planning.plan import Candidate, Gates, Going, Judgement
from tightship.planning.pools import KNOWN_POOL_LABELS, pool_of
from tightship.planning.prices import NO_PRICES, NodePrice, PriceList, price_of
from tightship.planning.utilization import Utilization, UtilizationRules, utilization


class FactRules(Struct, frozen=True, kw_only=True):
    """What a controller's settings say of all nodes alike.

    *past_budgets* is whether a drain deletes pods past every PodDisruptionBudget, so that none keeps a node.
    """

    nodes: NodeRules = NodeRules()
    eviction: EvictionRules = EvictionRules()
    counted: UtilizationRules = UtilizationRules()
    pool_labels: tuple[str, ...] = KNOWN_POOL_LABELS
    past_budgets: bool = False
    prices: PriceList = NO_PRICES


class NodeFacts(Struct, frozen=True):
    """What is known of one node before a plan. *refusals* is all that keeps it, in order.

    *evict* are the pods a drain would evict, *awaits* those that end by themselves and that it would wait for, *stays*
    how many go with the node; *draining* is whether a drain of ours is under way, *price* what the node costs, if that
    is known, *group* the autoscaler's node group, if that is known. *received* says that earlier rounds of a plan have
    moved pods to the node.
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
    received: bool = False

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
    snapshot: Snapshot, rules: FactRules, now: float, only: Collection[str] | None = None
) -> dict[str, NodeFacts]:
    """Return the facts of each node of *snapshot* at *now* (seconds since 1970), of virtual nodes none: nothing counts
    them.

    *only* limits what may be removed to these nodes (a selection on the command line); the rest still receives pods.
    """
    return Gatherer()(snapshot, rules, now, only)


class _Kept(Struct, frozen=True):
    """The facts of a node. They hold at any time if *timeless*, and do not depend on other nodes' pods if *alone*.

    A *virtual* node's facts are nobody's business.
    """

    fact: NodeFacts
    timeless: bool
    alone: bool
    templates: tuple[PodTemplate, ...]
    virtual: bool


class Gatherer:
    """Gathers the facts of a cluster pass after pass: anew only of nodes to which something may have happened.

    A node's facts depend on the node and its pods, on the budgets and the controllers of these pods, and some on the
    time or, where a budget can never allow an eviction, on pods elsewhere.
    """

    def __init__(self) -> None:
        self._from: tuple[Snapshot, FactRules, Collection[str] | None] | None = None
        self._kept: dict[str, _Kept] = {}

    def __call__(
        self, snapshot: Snapshot, rules: FactRules, now: float, only: Collection[str] | None = None
    ) -> dict[str, NodeFacts]:
        """See :func:`gather`."""
        touched = self._touched(snapshot, rules, only)
        same = self._from is not None and self._from[0] is snapshot
        known, kept = self._kept, dict[str, _Kept]()
        know = _knower(snapshot, rules, now, only)
        for name, view in snapshot.nodes.items():
            old = known.get(name) if touched is not None else None
            if (
                old is None
                or old.fact.view is not view
                or not old.timeless
                or not (same or old.alone)
                or (touched and any(template in touched for template in old.templates))
            ):
                old = know(view)
            kept[name] = old
        self._kept, self._from = kept, (snapshot, rules, only)
        return {name: each.fact for name, each in kept.items() if not each.virtual}

    def _touched(
        self, snapshot: Snapshot, rules: FactRules, only: Collection[str] | None
    ) -> Collection[PodTemplate] | None:
        """Return the templates whose budgets or controllers have changed, ``None`` if everything may have."""
        if self._from is None:
            return None
        before, earlier, selected = self._from
        if snapshot is before and rules is earlier and only is selected:
            return ()
        alike = rules == earlier and only == selected and before.missing == snapshot.missing
        alike = alike and before.node_pools == snapshot.node_pools
        alike = alike and before.autoscaler_statuses == snapshot.autoscaler_statuses
        if not alike or before.unreadable != snapshot.unreadable:
            return None
        if snapshot.budgets is not before.budgets and not snapshot.budgets.selects_like(before.budgets):
            return None
        budgets = snapshot.budgets.changed_since(before.budgets)
        workloads = _changed_workloads(before, snapshot)
        if not budgets and not workloads:
            return ()
        templates = dict.fromkeys(template for each in self._kept.values() for template in each.templates)
        return {
            template
            for template in templates
            if (budgets and any(budget.key in budgets for budget in snapshot.budgets.of(template)))
            or (workloads and template.owner is not None and _controller(template, template.owner) in workloads)
        }


def _controller(template: PodTemplate, owner: Owner) -> tuple[str, str]:
    return owner.kind, f"{template.namespace}/{owner.name}"


def _changed_workloads(before: Snapshot, after: Snapshot) -> set[tuple[str, str]]:
    """Return (kind, key) of each controller that came, went or changed."""
    found: set[tuple[str, str]] = set()
    for kind in before.workloads.keys() | after.workloads.keys():
        old, new = before.workloads.get(kind, {}), after.workloads.get(kind, {})
        if old is not new:
            found.update((kind, key) for key in old.keys() | new.keys() if old.get(key) is not new.get(key))
    return found


def _knower(
    snapshot: Snapshot, rules: FactRules, now: float, only: Collection[str] | None
) -> Callable[[NodeView], _Kept]:
    ledger = DisruptionLedger(snapshot)
    pods = Evictability(snapshot, rules.eviction, now, ledger.covers)
    groups = NodeGroups(snapshot.autoscaler_statuses, rules.pool_labels)
    unreadable: dict[str, list[Refusal]] = {}
    for each in snapshot.unreadable:
        if each.kind == "Pod" and each.node:
            refusal = Refusal(Reason.POD_UNREADABLE, each.key, each.problem, f"fix pod {each.key}")
            unreadable.setdefault(each.node, []).append(refusal)

    def known(view: NodeView) -> _Kept:
        pods.told_time = pods.told_others = ledger.counted_pods = False
        found = pods.sort(view.pods)
        refusals = [
            *judge_node(view, now, rules.nodes, snapshot.node_pools),
            *undeletable(snapshot, view.node, rules.nodes, now),
            *_selection(view, only),
            *not_autoscaled(view.node, groups, rules.nodes),
            *found.refusals,
            *found.outlasting,
            *unreadable.get(view.name, ()),
        ]
        if not rules.past_budgets:
            refusals += ledger.charge(found.evict)[1]
        fact = NodeFacts(
            view=view,
            pool=pool_of(view.node, rules.pool_labels),
            utilization=utilization(view, now, rules.counted),
            draining=draining(view.node) and not yielded_for_good(view.node, now),
            evict=found.evict,
            stays=found.stays,
            refusals=tuple(sorted(refusals)),
            awaits=found.awaits,
            price=price_of(view.node, rules.prices),
            group=groups.of(view.node),
        )
        timeless = not (pods.told_time or view.usage.terminating or DRAIN_ANNOTATION in view.node.annotations)
        timeless = timeless and not timed(view.node, view.pods, snapshot.node_pools)
        templates = tuple(dict.fromkeys([pod.template for pod in view.pods]))
        alone = not (ledger.counted_pods or pods.told_others)
        return _Kept(fact, timeless, alone, templates, virtual_node(view.node) is not None)

    return known


def not_autoscaled(node: Node, groups: NodeGroups, rules: NodeRules) -> list[Refusal]:
    """Return the refusal of *node* if Cluster Autoscaler would not delete it, because it is in none of its *groups*."""
    group = "" if Reason.NOT_AUTOSCALED in rules.disabled else groups.left_out(node)
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


def judgement(
    snapshot: Snapshot, facts: Mapping[str, NodeFacts], gates: Gates, going: Going | None = None
) -> Judgement:
    """Return who may go by *facts*, all refusals of the others, and the *gates* while a plan grows.

    *going* is which nodes go, if that is known already.
    """
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
    return Judgement(candidates_of(facts), refusals, gates, going)
