"""The compactor's judge: its settings as the rules of an evaluation, of a claim, and of a drain. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice

from node_compactor.gates import CompactorGates, age_check, mark_check, pool_checks, size_check, utilization_check
from node_compactor.marking import CONTROLLER
from node_compactor.pacing import cooling
from node_compactor.settings import CompactorSettings
from tightship.cluster import Snapshot
from tightship.cluster.pools import pool_of, shown
from tightship.objects import Node
from tightship.objects.drain_record import Finished
from tightship.objects.reasons import Refusal
from tightship.planning.claim_budget import budget_check, cluster_room, nodes_out
from tightship.planning.demand import ReservedDemand
from tightship.planning.evaluate import Facts
from tightship.planning.facts import FactRules, NodeFacts
from tightship.planning.group_size import group_keeps, group_room
from tightship.planning.plan import STRATEGIES, STRATEGIES_BY_CPU, PerPool, Placement, Strategy
from tightship.planning.utilization import UtilizationRules
from tightship.rules.checks import Check, refusals
from tightship.rules.nodes import NodeRules, left_without, opt_outs, owner_elsewhere, undeletable


class CompactorJudge:
    """See :class:`tightship.planning.evaluate.Judge`."""

    def __init__(self, settings: CompactorSettings) -> None:
        self.settings = settings
        self.pace = settings
        self.placement: Placement = settings.placement
        self.steering = settings.steering_as(CONTROLLER)
        self.ahead: ReservedDemand = settings.ahead
        self.rules = FactRules(
            nodes=NodeRules(settings.disabled_rules),
            eviction=settings.eviction_rules,
            counted=UtilizationRules(settings.ignore_daemonsets, settings.ignore_mirror_pods),
            pool_labels=settings.pool_labels,
            past_budgets=settings.past_budgets,
            prices=settings.prices,
        )

    def refusals(self, fact: NodeFacts, now: float) -> list[Refusal]:
        """Return the refusals of pool, age, limit and mark against one node, whatever a plan does."""
        settings = self.settings.pool(fact.pool)
        checks: list[Check | None] = [*pool_checks(fact.pool, settings), age_check(fact, self.settings, now)]
        if settings is not None and settings.enabled:
            limit = utilization_check(fact.pool, fact.cpu_ratio, settings, received=fact.received)
            checks += [limit, mark_check(fact, self.settings, now)] if limit.open else [limit]
        return refusals(checks, fact.view.name)

    def gates(self, snapshot: Snapshot, facts: Facts, now: float) -> CompactorGates:
        """Return the gates of pools and of the plan's size."""
        del snapshot
        return CompactorGates(self.settings, facts, now)

    def strategy(self, facts: Facts) -> Strategy:
        """Return the strategy of all enabled pools, or a strategy that plans each pool by its own if they differ."""
        chosen: dict[str, str] = {}
        for name in sorted({fact.pool for fact in facts.values()}):
            pool = self.settings.pool(name)
            if pool is not None and pool.enabled:
                chosen[name] = pool.strategy or self.settings.strategy
        distinct = set(chosen.values()) or {self.settings.strategy}
        strategies = STRATEGIES_BY_CPU if self.settings.utilization == "cpu" else STRATEGIES
        if len(distinct) == 1:
            return strategies[distinct.pop()]
        return PerPool(chosen, self.settings.strategy, strategies)

    def pauses(
        self, snapshot: Snapshot, facts: Facts, finished: Sequence[Finished], now: float
    ) -> Callable[[str], Refusal | None]:
        """Return the function from a pool to its cool-down at *now*."""
        return cooling(snapshot, facts, finished, self.settings, now).of

    def room(self, node: str, facts: Facts, claimed: Collection[str]) -> Refusal | None:
        """Return why *node* may not be claimed beside the nodes *claimed*, ``None`` if it may.

        *facts* belong to the latest snapshot. Unlike a plan's gates, this method counts the siblings' later claims.
        """
        refusal = cluster_room(node, facts, self.settings.cluster_budget, claimed) or group_room(node, facts, claimed)
        pool = facts[node].pool
        own = self.settings.pool(pool)
        if refusal is not None or own is None:
            return refusal
        mates = {name: fact for name, fact in facts.items() if fact.pool == pool}
        out = nodes_out(mates, claimed) - {node}
        if own.budget is not None:
            budget = budget_check(own.budget, f"pool {shown(pool)}", nodes=len(mates), out=len(out))
            if not budget.open:
                return budget.refusal(node)
        # Whoever deletes a node may be slow. Such a node leaves the budget after a while, but never counts as staying.
        taken = sum(name not in out and owner_elsewhere(fact.view.node) is not None for name, fact in mates.items())
        return size_check(pool, len(mates) - len(out) - taken - 1, own).refusal(node)

    def node_refusals(self, snapshot: Snapshot, node: Node) -> list[Refusal]:
        """Return the refusals that keep *node* of *snapshot* as a whole; they may also appear during its drain."""
        pool = pool_of(node, self.settings.pool_labels)
        own = self.settings.pool(pool)
        checks = list(pool_checks(pool, own))
        if own is not None and own.minimum_nodes:
            rest = left_without(snapshot, node.name)
            mates = (each for each in rest if each.ready and pool_of(each, self.settings.pool_labels) == pool)
            # A drain asks at every look, so stop counting at the minimum.
            checks.append(size_check(pool, sum(1 for _ in islice(mates, own.minimum_nodes)), own))
        return [
            *opt_outs(snapshot.at(node), self.rules.nodes, snapshot.node_pools),
            *undeletable(snapshot, node, self.rules.nodes),
            *refusals(checks, node.name),
            *group_keeps(snapshot, node, self.settings.pool_labels, self.rules.nodes),
        ]

    def tells_minimum(self, pool: str) -> bool:
        """Whether the settings give *pool* a minimum, be it 0."""
        own = self.settings.pool(pool)
        return own is not None and "minimum_nodes" in own.model_fields_set
