"""What is known of every node before a plan, whichever controller asks: its pool, its load, the pods a drain would
evict, and everything that stands against draining it that needs neither a plan nor the controller's own gates. Pure.

A controller adds its gates to these facts, and makes candidates of the nodes against which nothing stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from tightship.core.durations import format_duration
from tightship.core.objects import Pod
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import NodeView, Snapshot
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.evictability import Evictability, EvictionRules
from tightship.planning.nodes import NodeRules, draining, judge_node, yielded_for_good
from tightship.planning.plan import Candidate, Gates, Judgement
from tightship.planning.pools import KNOWN_POOL_LABELS, pool_of
from tightship.planning.utilization import Utilization, UtilizationRules, utilization


class FactRules(Struct, frozen=True, kw_only=True):
    """What a controller's settings say of all nodes alike.

    *minimum_age* is in seconds, ``None`` where ages are not asked for. *past_budgets* is whether a drain deletes pods
    past every PodDisruptionBudget, so that none keeps a node.
    """

    nodes: NodeRules = NodeRules()
    eviction: EvictionRules = EvictionRules()
    counted: UtilizationRules = UtilizationRules()
    pool_labels: tuple[str, ...] = KNOWN_POOL_LABELS
    minimum_age: float | None = None
    past_budgets: bool = False


class NodeFacts(Struct, frozen=True):
    """What is known of one node before a plan. *refusals* is all that keeps it, in order.

    *evict* are the pods a drain would evict, *awaits* those that end by themselves and that it would wait for, *stays*
    how many go with the node; *draining* is whether a drain of ours is under way.
    """

    view: NodeView
    pool: str
    utilization: Utilization
    draining: bool
    evict: tuple[Pod, ...]
    stays: int
    refusals: tuple[Refusal, ...]
    awaits: tuple[Pod, ...] = ()

    @property
    def cpu_ratio(self) -> float:
        return self.utilization.ratio("cpu")

    @property
    def memory_ratio(self) -> float:
        return self.utilization.ratio("memory")


def gather(
    snapshot: Snapshot, rules: FactRules, now: float, only: Collection[str] | None = None
) -> dict[str, NodeFacts]:
    """Return the facts of each node of *snapshot* at *now* (seconds since 1970).

    *only* limits what may be removed to these nodes (a selection on the command line); the rest still receives pods.
    """
    ledger = DisruptionLedger(snapshot)
    pods = Evictability(snapshot, rules.eviction, now, ledger.covers)
    unreadable: dict[str, list[Refusal]] = {}
    for each in snapshot.unreadable:
        if each.kind == "Pod" and each.node:
            refusal = Refusal(Reason.POD_UNREADABLE, each.key, each.problem, f"fix pod {each.key}")
            unreadable.setdefault(each.node, []).append(refusal)

    def known(view: NodeView) -> NodeFacts:
        found = pods.sort(view.pods)
        refusals = [
            *judge_node(view, now, rules.nodes),
            *_selection(view, only),
            *_age(view, rules.minimum_age, now),
            *found.refusals,
            *unreadable.get(view.name, ()),
        ]
        if not rules.past_budgets:
            refusals += ledger.charge(found.evict)[1]
        return NodeFacts(
            view=view,
            pool=pool_of(view.node, rules.pool_labels),
            utilization=utilization(view, now, rules.counted),
            draining=draining(view.node) and not yielded_for_good(view.node, now),
            evict=found.evict,
            stays=found.stays,
            refusals=tuple(sorted(refusals)),
            awaits=found.awaits,
        )

    return {name: known(view) for name, view in snapshot.nodes.items()}


def _selection(view: NodeView, only: Collection[str] | None) -> list[Refusal]:
    if only is None or view.name in only:
        return []
    return [Refusal(Reason.NOT_SELECTED, view.name, "left out by --selector or --pool", "select the node")]


def _age(view: NodeView, minimum: float | None, now: float) -> list[Refusal]:
    age = now - view.node.created
    if minimum is None or age >= minimum:
        return []
    detail = f"is {format_duration(age)} old, younger than {format_duration(minimum)}"
    return [Refusal(Reason.TOO_YOUNG, view.name, detail)]


def plannable(snapshot: Snapshot, rules: FactRules) -> Snapshot:
    """Return what a plan is made on: *snapshot*, without its PodDisruptionBudgets where pods are deleted past them.

    Facts are gathered from the whole, since budgets also tell which kube-system pods may be moved.
    """
    return msgspec.structs.replace(snapshot, budgets=type(snapshot.budgets)()) if rules.past_budgets else snapshot


_Facts = TypeVar("_Facts", bound=NodeFacts)


def candidates_of(facts: Mapping[str, _Facts]) -> tuple[Candidate, ...]:
    """Return the nodes that nothing in *facts* keeps."""
    return tuple(
        Candidate(
            name=name,
            pool=fact.pool,
            ratio=fact.cpu_ratio,
            evict=fact.evict,
            stays=fact.stays,
            memory_ratio=fact.memory_ratio,
        )
        for name, fact in facts.items()
        if not fact.refusals
    )


def judgement(snapshot: Snapshot, facts: Mapping[str, _Facts], gates: Gates) -> Judgement:
    """Return who may go by *facts*, all refusals of the others, and the *gates* while a plan grows."""
    refusals = {name: fact.refusals for name, fact in facts.items() if fact.refusals}
    # An unreadable node has no facts: nothing is known of its pool, its room or its labels.
    for each in snapshot.unreadable:
        if each.kind == "Node":
            refusal = Refusal(Reason.UNREADABLE, each.name, each.problem, f"fix node {each.name}")
            refusals[each.name] = (refusal,)
    return Judgement(candidates_of(facts), refusals, gates)
