"""The refiner's judge: its settings as the rules of an evaluation, of a claim, and of a drain. Pure.

A plan ignores threshold and minimums at first, which tells how many nodes could really go, pod by pod. Then it is cut
at its first node that threshold or minimums refuse, where the older controller's loop would end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from node_refiner.excess import dedicated, is_counted, remains, taint_of_others, tainted
from node_refiner.gates import CONTROLLER, RefinerGates, UpToThreshold
from node_refiner.outlook import minimums_check
from node_refiner.pacing import cooling
from node_refiner.settings import RefinerSettings
from tightship.cluster import Snapshot
from tightship.objects import Node
from tightship.objects.drain_record import Finished
from tightship.objects.reasons import Refusal
from tightship.planning.claim_budget import cluster_room
from tightship.planning.demand import ReservedDemand
from tightship.planning.evaluate import Facts, Judge
from tightship.planning.facts import FactRules, NodeFacts
from tightship.planning.group_size import group_keeps, group_room
from tightship.planning.plan import Placement, Strategy
from tightship.rules.nodes import NodeRules, left_without, opt_outs, undeletable


class RefinerJudge(Judge):
    """See :class:`tightship.planning.evaluate.Judge`."""

    def __init__(self, settings: RefinerSettings) -> None:
        self.settings = settings
        self._strategy = UpToThreshold(settings)
        self.pace = settings
        self.placement: Placement = settings.placement
        self.steering = settings.steering_as(CONTROLLER)
        self.ahead: ReservedDemand = settings.ahead
        self.rules = FactRules(
            nodes=NodeRules(settings.disabled_rules),
            eviction=settings.eviction_rules,
            pool_labels=settings.pool_labels,
            past_budgets=settings.past_budgets,
            prices=settings.prices,
        )

    def refusals(self, fact: NodeFacts, now: float) -> list[Refusal]:
        """Return the taints of others that keep a node, unless their state is a refusal already."""
        del now
        if self.settings.count_tainted and dedicated(fact.view.node):
            return []
        found = tainted(fact.view.node, {refusal.reason for refusal in fact.refusals})
        return [] if found is None else [found]

    def gates(self, snapshot: Snapshot, facts: Facts, now: float) -> RefinerGates:
        """Return the threshold, the minimums and the plan's size."""
        return RefinerGates(self.settings, snapshot, facts, now)

    def strategy(self, facts: Facts) -> Strategy:
        """Return the strategy that tries candidates in the configured order."""
        del facts
        return self._strategy

    def pauses(
        self, snapshot: Snapshot, facts: Facts, finished: Sequence[Finished], now: float
    ) -> Callable[[str], Refusal | None]:
        """Return why all pools pause at *now*: the refiner's cool-downs apply to the whole cluster."""
        del facts
        pause = cooling(snapshot, self.settings, now, finished)
        return lambda _: pause

    def room(self, node: str, facts: Facts, claimed: Collection[str]) -> Refusal | None:
        """Return why *node* may not be claimed beside the nodes *claimed*, ``None`` if it may.

        The claim checks the minimums again: nodes that siblings have claimed since the plan do not remain.
        """
        refusal = cluster_room(node, facts, self.settings.cluster_budget, claimed) or group_room(node, facts, claimed)
        if refusal is not None:
            return refusal
        left = [fact.view.node for name, fact in facts.items() if name != node and name not in claimed]
        remaining, untainted = sum(map(remains, left)), sum(map(is_counted, left))
        return minimums_check(node, remaining, untainted, self.settings).refusal(node)

    def node_refusals(self, snapshot: Snapshot, node: Node) -> list[Refusal]:
        """Return the refusals that keep *node* of *snapshot* as a whole; they may also appear during its drain."""
        found = [
            *opt_outs(snapshot.at(node), self.rules.nodes, snapshot.node_pools),
            *undeletable(snapshot, node, self.rules.nodes),
            *group_keeps(snapshot, node, self.settings.pool_labels, self.rules.nodes),
        ]
        tainted_by_others = taint_of_others(node)
        counted = self.settings.count_tainted and dedicated(node)
        if tainted_by_others is not None and not counted:
            found.append(tainted_by_others)
        left = untainted = 0
        for each in left_without(snapshot, node.name):
            left += remains(each)
            untainted += is_counted(each)
            if left >= self.settings.minimum_nodes and untainted >= self.settings.minimum_non_tainted_nodes:
                return found  # a drain asks at every look, so stop counting at the minimums
        below = minimums_check(node.name, left, untainted, self.settings).refusal(node.name)
        return found if below is None else [*found, below]
