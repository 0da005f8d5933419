"""The refiner's judge: its settings as the rules of an evaluation, of a claim, and of a drain. Pure.

A plan is made twice. The *free* one, which neither threshold nor minimums hold back, tells how many nodes could really
go, pod by pod. The real one is as much of its beginning as they allow: it ends with the first candidate at hand that
one of them refuses, as the older controller's loop would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from node_refiner.excess import is_counted, remains, taint_of_others, tainted
from node_refiner.gates import RefinerGates
from node_refiner.ordering import strategy_of
from node_refiner.outlook import Outlook, minimums_check, outlook
from node_refiner.pacing import cooling
from node_refiner.settings import RefinerSettings
from tightship.core.drain_record import Finished
from tightship.core.objects import Node
from tightship.core.reasons import Reason, Refusal
from tightship.planning.claim_budget import cluster_room
from tightship.planning.cluster import Snapshot
from tightship.planning.demand import Ahead
from tightship.planning.disruption import DisruptionLedger, RenewedLedger
from tightship.planning.evaluate import Facts
from tightship.planning.evictability import EvictionRules, awaited_for
from tightship.planning.facts import FactRules, NodeFacts, candidates_of
from tightship.planning.nodes import NodeRules, left_without, opt_outs
from tightship.planning.placement.scoring import Choice
from tightship.planning.plan import Candidate, Placement, Planner, Strategy


def eviction_rules(settings: RefinerSettings) -> EvictionRules:
    """Return the rules for pods; a drain and the plan before it go by the same."""
    return EvictionRules(
        settings.disabled_rules,
        settings.system_pod_timeout,
        awaited_for(settings.await_timeout),
        settings.node_timeout,
    )


class RefinerJudge:
    """See :class:`tightship.planning.evaluate.Judge`."""

    def __init__(self, settings: RefinerSettings) -> None:
        self.settings = settings
        self.pace = settings
        self.placement: Placement = settings.placement
        self.ahead: Ahead = settings.ahead(settings.disabled_rules)
        self.rules = FactRules(
            nodes=NodeRules(settings.disabled_rules),
            eviction=eviction_rules(settings),
            pool_labels=settings.pool_labels,
            past_budgets=settings.eviction_method == "delete",
        )

    def refusals(self, fact: NodeFacts, now: float) -> list[Refusal]:
        """Return the taints of others that keep a node, unless the state behind them is a refusal already."""
        del now
        found = tainted(fact.view.node, {refusal.reason for refusal in fact.refusals})
        return [] if found is None else [found]

    def gates(self, ground: Snapshot, facts: Facts, now: float) -> RefinerGates:
        """Return the threshold, the minimums and the plan's size, with the outlook that they go by."""
        return RefinerGates(self.settings, ground, facts, self._outlook(ground, facts), now)

    def strategy(self, facts: Facts) -> Strategy:
        """Return the strategy that tries candidates in the configured order."""
        del facts
        return strategy_of(self.settings)

    def pauses(
        self, snapshot: Snapshot, facts: Facts, finished: Sequence[Finished], now: float
    ) -> Callable[[str], Refusal | None]:
        """Return why all pools pause at *now*: a cool-down of the refiner is one of the whole cluster."""
        del facts
        pause = cooling(snapshot, self.settings, now, finished)
        return lambda _: pause

    def room(self, node: str, facts: Facts, claimed: Collection[str]) -> Refusal | None:
        """Return why *node* may not be claimed beside the nodes *claimed*, ``None`` if it may.

        The minimums are asked for once more: what a sibling has claimed since the plan is no node that remains.
        """
        refusal = cluster_room(node, facts, self.settings.cluster_budget, claimed)
        if refusal is not None:
            return refusal
        left = [fact.view.node for name, fact in facts.items() if name != node and name not in claimed]
        remaining, untainted = sum(map(remains, left)), sum(map(is_counted, left))
        return minimums_check(node, remaining, untainted, self.settings).refusal(node)

    def keeps(self, snapshot: Snapshot, node: Node) -> list[Refusal]:
        """Return what keeps *node* of *snapshot* as a whole, and may begin to while it is drained."""
        found = opt_outs(node, self.rules.nodes)
        tainted_by_others = taint_of_others(node)
        if tainted_by_others is not None:
            found.append(tainted_by_others)
        left = untainted = 0
        for each in left_without(snapshot, node.name):
            left += remains(each)
            untainted += is_counted(each)
            if left >= self.settings.minimum_nodes and untainted >= self.settings.minimum_non_tainted_nodes:
                return found  # asked at every look: enough are enough
        below = minimums_check(node.name, left, untainted, self.settings).refusal(node.name)
        return found if below is None else [*found, below]

    def _outlook(self, ground: Snapshot, facts: Facts) -> Outlook:
        """Make the free plan from *facts*, and say how much of it threshold and minimums allow.

        It goes on with what PodDisruptionBudgets allow when the moved pods are Ready again: the refiner drains one node
        after the other, and a budget over the pods of many nodes makes none of them one that could not go.
        """
        candidates, strategy = candidates_of(facts), strategy_of(self.settings)

        def new_planner(choose: Choice) -> Planner:
            return Planner(ground, DisruptionLedger(ground), candidates, self.placement, choose=choose, explain=False)

        outcome = strategy.run(new_planner, _Free())
        planner, at_once = outcome.planner, len(outcome.planner.removals)
        planner.ledger = RenewedLedger(ground)
        waiting = [
            planner.candidates[name]
            for name, found in outcome.stays.items()
            if any(refusal.reason is Reason.PDB_SPENT_BY_PLAN for refusal in found)
        ]
        strategy.extend(planner, _Free(), waiting)
        return outlook(planner.removals, facts, self.settings, at_once, planner.starting_on)


class _Free:
    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:  # noqa: ARG002 - nothing is held back
        return []
