"""The refiner's judge: its settings as the rules of an evaluation, of a claim, and of a drain. Pure.

The judge plans twice. The *free* plan ignores threshold and minimums, and tells how many nodes could really go, pod by
pod. The real plan ends at its first candidate that threshold or minimums refuse, as the older controller's loop would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from node_refiner.excess import dedicated, is_counted, remains, taint_of_others, tainted
from node_refiner.gates import CONTROLLER, RefinerGates
from node_refiner.ordering import strategy_of
from node_refiner.outlook import Outlook, minimums_check, outlooks
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
from tightship.planning.facts import FactRules, NodeFacts, candidates_of
from tightship.planning.group_size import GroupSizes, group_keeps, group_room
from tightship.planning.nodes import NodeRules, left_without, opt_outs, undeletable
from tightship.planning.placement.scoring import Choice
from tightship.planning.plan import (
    Candidate,
    Going,
    Judgement,
    Placement,
    Planner,
    PlanStart,
    Removal,
    Strategy,
    expected,
)


class RefinerJudge:
    """See :class:`tightship.planning.evaluate.Judge`."""

    def __init__(self, settings: RefinerSettings) -> None:
        self.settings = settings
        self._strategy = strategy_of(settings)
        self.pace = settings
        self.placement: Placement = settings.placement
        self.steering = settings.steering_as(CONTROLLER)
        self.ahead: Ahead = settings.ahead
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

    def gates(self, ground: Snapshot, facts: Facts, now: float) -> RefinerGates:
        """Return the threshold, the minimums and the plan's size, with their outlook."""
        candidates = candidates_of(facts)
        taint = None if self.steering is None else self.steering.taint
        start = PlanStart(ground, candidates, self.placement, taint=taint)
        going = self._going(start, facts, candidates)
        ahead = self._outlooks(start, facts, candidates, going)
        return RefinerGates(self.settings, ground, facts, ahead, now, going)

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

    def keeps(self, snapshot: Snapshot, node: Node) -> list[Refusal]:
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

    def tells_minimum(self, pool: str) -> bool:
        """Whether the settings give *pool* a minimum: the refiner's are about the cluster."""
        del pool
        return False

    def _going(self, start: PlanStart, facts: Facts, candidates: tuple[Candidate, ...]) -> Going:
        """Return which nodes go, as far as threshold and minimums allow."""
        free = Judgement(candidates, {}, _Free(facts, 0))
        going = expected(start, free, self._strategy, self.steering)
        removals = [Removal(name, 1, ()) for name in going.names]
        allowed = outlooks(removals, facts, self.settings, len(removals)).values()
        names = {name for each in allowed for name, turn in each.turns.items() if turn.number < each.goes}
        return msgspec.structs.replace(going, names=tuple(name for name in going.names if name in names))

    def _outlooks(
        self, start: PlanStart, facts: Facts, candidates: tuple[Candidate, ...], going: Going
    ) -> Mapping[str, Outlook]:
        """Make the free plan from *facts*, and return how much of it threshold and minimums allow: by dedicated pool,
        the first for all other nodes.

        The free plan continues with the evictions that PodDisruptionBudgets allow once the moved pods are Ready again:
        the refiner drains one node after another, so a budget over the pods of many nodes does not prevent their
        removal.

        The real plan is the beginning of the free one, which explains itself as far.
        """
        strategy, ground = self._strategy, start.snapshot

        def new_planner(choose: Choice) -> Planner:
            ledger = DisruptionLedger(ground)
            return Planner(ground, ledger, candidates, self.placement, choose=choose, start=start, going=going)

        outcome = strategy.run(new_planner, _Free(facts, len(going.names)))
        planner, at_once = outcome.planner, len(outcome.planner.removals)
        planner.ledger = RenewedLedger(ground)
        waiting = [
            planner.candidates[name]
            for name, found in outcome.stays.items()
            if any(refusal.reason is Reason.PDB_SPENT_BY_PLAN for refusal in found)
        ]
        strategy.extend(planner, _Free(facts, 0), waiting)
        return outlooks(planner.removals, facts, self.settings, at_once, start.starting_on)


class _Free:
    """Holds back only what nobody would delete. A plan explains itself up to *explained* removals."""

    def __init__(self, facts: Facts, explained: int) -> None:
        self._groups = GroupSizes(facts)
        self._explained = explained

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        planner.explain = len(planner.removals) < self._explained
        return self._groups.refuses(candidate, planner)
